//! Which format a file is read as that could be of several (`--use-backend`): formats by their own names, and by those
//! that ratarmount 1.3 has for what reads them (its `ARCHIVE_BACKENDS` and `COMPRESSION_BACKENDS`).

/// A reader of ratarmount, and what it reads, by the names that these have here. The same may be read by several.
struct Backend {
    name: &'static str,
    formats: &'static [&'static str],
    codecs: &'static [&'static str],
}

/// What some of them decode.
const OF_TAR: &[&str] = &["gzip", "zlib", "deflate", "bzip2", "xz", "zstd"];
const OF_LIBARCHIVE: &[&str] = &["bzip2", "gzip", "xz", "zstd", "lrzip", "lz4", "lzip", "lzma", "lzop", "compress"];

const BACKENDS: &[Backend] = &[
    Backend { name: "ar", formats: &["ar", "deb"], codecs: &[] },
    Backend { name: "rarfile", formats: &["rar"], codecs: &[] },
    Backend { name: "tarfile", formats: &["tar"], codecs: OF_TAR },
    Backend { name: "zipfile", formats: &["zip"], codecs: &[] },
    Backend { name: "PySquashfsImage", formats: &["squashfs"], codecs: &[] },
    Backend {
        name: "libarchive",
        formats: &["cab", "xar", "cpio", "iso9660", "warc", "7z", "rar", "tar", "zip", "rpm"],
        codecs: OF_LIBARCHIVE,
    },
    Backend { name: "py7zr", formats: &["7z"], codecs: &[] },
    Backend { name: "pyfatfs", formats: &["fat"], codecs: &[] },
    Backend { name: "ext4", formats: &["ext"], codecs: &[] },
    Backend { name: "asar", formats: &["asar"], codecs: &[] },
    Backend { name: "sqlar", formats: &["sqlar"], codecs: &[] },
    Backend { name: "html", formats: &["html"], codecs: &[] },
    Backend { name: "pdf", formats: &["pdf"], codecs: &[] },
    Backend { name: "ogg", formats: &["ogg"], codecs: &[] },
];

/// Those of which it does not matter here whether they are asked for: there is one decoder for each codec, and an index
/// is nothing else at the same time.
const IDLE: &[&str] =
    &["rapidgzip", "rapidgzip-bzip2", "indexed_gzip", "indexed_bzip2", "indexed_zstd", "lzmaffi", "RatarmountIndex"];

/// The values of the option in the order in which they count: of what is given last comes first, as in ratarmount. A
/// comma stands between names. Names that change nothing are left out.
pub fn in_order<'v>(values: impl Iterator<Item = &'v str>) -> Vec<String> {
    let given: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    let mut names: Vec<String> = Vec::new();
    for name in given.into_iter().rev() {
        if !name.is_empty() && !IDLE.contains(&name) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The formats and codecs that the backend of that name reads; `None` if ratarmount has none.
pub fn read_by(name: &str) -> Option<(&'static [&'static str], &'static [&'static str])> {
    BACKENDS.iter().find(|backend| backend.name == name).map(|backend| (backend.formats, backend.codecs))
}

/// The names of all backends of ratarmount.
pub fn names() -> impl Iterator<Item = &'static str> {
    BACKENDS.iter().map(|backend| backend.name).chain(IDLE.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_last_counts_most() {
        assert_eq!(
            in_order(["zipfile,rarfile", "", " tarfile,rapidgzip"].into_iter()),
            ["tarfile", "rarfile", "zipfile"]
        );
        assert_eq!(in_order(["zip,zip"].into_iter()), ["zip"]);
    }
}
