//! Skippable frames, which zstd (RFC 8878, section 3.1.2) and LZ4 have in common. Which of the two a file is, only the
//! frame behind them tells.

/// Bytes of one before what is to be skipped.
const HEADER: usize = 8;

/// What of `head` is behind the skippable frames that it begins with; `None` if it ends in one of them.
pub(crate) fn behind(head: &[u8]) -> Option<&[u8]> {
    let mut rest = head;
    while let [first, 0x2a, 0x4d, 0x18, ..] = *rest
        && first & 0xf0 == 0x50
    {
        let length = u32::from_le_bytes(*rest.get(4..)?.first_chunk()?);
        rest = rest.get(HEADER.checked_add(usize::try_from(length).ok()?)?..)?;
    }
    Some(rest)
}

/// True if `head` has nothing but skippable frames: the name of the file has to tell the rest.
pub(crate) fn is_all(head: &[u8]) -> bool {
    !head.is_empty() && behind(head).is_none_or(<[u8]>::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tool;
    use crate::{Codec, detect, detect_named};

    #[test]
    fn the_frame_behind_them_tells_what_it_is_or_the_name_does() {
        let frame = |kind: u8, length: usize| {
            [&[kind, 0x2a, 0x4d, 0x18][..], &(length as u32).to_le_bytes(), &vec![7; length]].concat()
        };
        for (name, command) in [("zst", "zstd -q -c"), ("lz4", "lz4 -q -c")] {
            let packed = tool(command, b"what is packed");
            let (file, codec) = (format!("a.tar.{name}"), if name == "zst" { "zstd" } else { name });
            let named = |head: &[u8]| detect_named(file.as_bytes(), &head[..head.len().min(4096)]).map(Codec::name);
            let few = [frame(0x50, 3), frame(0x5f, 0), packed.clone()].concat();
            assert_eq!(detect(&few).map(Codec::name), Some(codec));
            // Longer than what is looked at; very many; and nothing else.
            let many = frame(0x51, 0).repeat(600);
            for all in [[frame(0x50, 5000), packed.clone()].concat(), [many, packed].concat(), frame(0x50, 9)] {
                assert_eq!(named(&all), Some(codec), "{name}");
                assert!(detect_named(b"a.bin", &all[..all.len().min(4096)]).is_none());
            }
            assert_eq!(named(b"\x40\x2a\x4d\x18 is something else"), None);
        }
        assert!(behind(b"\x50\x2a\x4d\x18\xff\xff\xff\xff").is_none() && behind(b"\x50\x2a\x4d\x18\x01").is_none());
        assert!(!is_all(b"") && !is_all(b"\x50\x2a"));
    }
}
