//! The version of liblzma, which its crate does not tell.

#![allow(unsafe_code)]

// SAFETY: as `lzma/version.h` declares it: it returns a number, and there is nothing that a caller could do wrong.
unsafe extern "C" {
    safe fn lzma_version_number() -> u32;
}

/// The version of liblzma that is compiled in: "5.8.1".
pub(crate) fn liblzma_version() -> String {
    // `XYYYZZZS`: major, minor and patch, and a digit for how stable it is.
    let number = lzma_version_number();
    format!("{}.{}.{}", number / 10_000_000, number / 10_000 % 1000, number / 10 % 1000)
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_looks_like_one() {
        assert!(super::liblzma_version().starts_with("5."), "{}", super::liblzma_version());
    }
}
