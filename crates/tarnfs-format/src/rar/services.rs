//! What belongs to a file or to the archive, and has a header of the form that files have.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Limits, SharedSource, Slice};

use super::file::File;
use super::walk::Found;
use crate::{Coder, Decode};

/// Their names: a comment, owners on Unix (RAR 3 and 4), a stream and an access list of NTFS.
pub(super) const COMMENT: &[u8] = b"CMT";
pub(super) const OWNERS: &[u8] = b"UOW";
pub(super) const STREAM: &[u8] = b"STM";
const ACCESS_LIST: &[u8] = b"ACL";

/// Bytes that a stream may be stored as which is decoded.
const LONGEST_STORED: u64 = 1 << 20;

/// The name of a stream: `:name`, perhaps with its kind behind it, in UTF-8 in RAR 5 and in UTF-16 before.
pub(super) fn name_of_stream(service: &File, is_five: bool) -> Option<Vec<u8>> {
    let name = if is_five {
        service.beside.clone()
    } else {
        let units: Vec<u16> = service.beside.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
        String::from_utf16_lossy(&units).into_bytes()
    };
    let name = name.split(|byte| *byte == 0).next()?.strip_prefix(b":")?;
    let name = name.strip_suffix(b":$DATA").unwrap_or(name);
    (!name.is_empty() && !name.iter().any(|byte| matches!(byte, b':' | b'/' | b'\\'))).then(|| name.to_vec())
}

/// True of a stream that can be an attribute. Each that is encrypted may have another key, and each of these takes
/// long.
pub(super) fn is_short(service: &File, found: &Found, limits: &Limits) -> bool {
    let is_here = !service.is_continued && !service.goes_on && !found.is_cut && !service.is_encrypted;
    let is_short = service.size.is_some_and(|size| size <= limits.xattr_value as u64);
    is_here && is_short && found.length <= LONGEST_STORED
}

/// True of what no file of the archive shows.
pub(super) fn is_left_out(service: &File, found: &Found, is_five: bool, limits: &Limits) -> bool {
    match &service.path[..] {
        ACCESS_LIST => true,
        STREAM => name_of_stream(service, is_five).is_none() || !is_short(service, found, limits),
        _ => false,
    }
}

/// The content of one that is short ([`is_short`]).
pub(super) fn content(
    service: &File,
    found: &Found,
    coder: &Coder,
    source: &SharedSource,
    decode: &Decode,
) -> io::Result<Vec<u8>> {
    let size = service.size.unwrap_or_default();
    let value = if size == 0 {
        Vec::new()
    } else if service.is_stored {
        let mut value = vec![0; size.min(found.length) as usize];
        source.read_exact_at(&mut value, found.data)?;
        value
    } else {
        let end = found.data.saturating_add(found.length);
        let stored = Slice::new(SharedSource::clone(source), found.at, end.saturating_sub(found.at));
        decode.decode(coder, Arc::new(stored), size, &|_| true)?
    };
    if value.len() as u64 != size || service.crc.is_some_and(|crc| crc != crc32fast::hash(&value)) {
        return Err(crate::image::damaged("its checksum does not match its data"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tarnfs_source::MemorySource;

    use super::*;
    use crate::rar::Rar;
    use crate::{Event, Options, ReadRandom as _};

    /// A header of RAR 5 with its checksum. Numbers below 128 are their own byte.
    fn block(fields: &[u8]) -> Vec<u8> {
        let header = [&[fields.len() as u8], fields].concat();
        [&crc32fast::hash(&header).to_le_bytes(), &header[..]].concat()
    }

    /// An archive of so many files with that number of streams, each of 10 bytes that are packed in 4; how many of them
    /// are decoded, how many are attributes, and what is told.
    fn decoded(files: usize, streams: usize, is_right: bool) -> (usize, usize, Vec<String>) {
        let file = block(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 1, b'a']);
        let stream = |number: usize| {
            let record = [7, b':', b'0' + number as u8 / 100, b'0' + number as u8 / 10 % 10, b'0' + number as u8 % 10];
            let fields = [3, 3, 6, 4, 0, 10, 0, 0x80, 1, 1, 3, b'S', b'T', b'M', 5];
            [block(&[&fields[..], &record].concat()), vec![1; 4]].concat()
        };
        let group = [file, (0..streams).flat_map(stream).collect()].concat();
        let bytes = [b"Rar!\x1a\x07\x01\0".to_vec(), block(&[1, 0, 0]), group.repeat(files), block(&[5, 0, 0])];
        let source: SharedSource = Arc::new(MemorySource::new(bytes.concat(), "archive"));
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let decode = Decode::new(move |_, _, length, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            if is_right { Ok(vec![7; length as usize]) } else { Err(crate::image::damaged("no stream")) }
        });
        let (mut attributes, mut told) = (0, Vec::new());
        Rar.read(&source, &Options { decode, ..Options::default() }, &mut |event| {
            match event {
                Event::Entry(entry) => attributes += entry.xattrs.len(),
                Event::Damage(damage) => told.push(damage.what),
                _ => {}
            }
            Ok(())
        })
        .unwrap();
        (count.load(Ordering::Relaxed), attributes, told)
    }

    /// Some fifty bytes of an archive ask for a decoder, which takes far longer to make than they are read.
    #[test]
    fn streams_are_decoded_as_long_as_the_archive_pays_for_them() {
        assert_eq!(decoded(400, 1, true), (400, 400, vec![]));
        let (count, attributes, told) = decoded(100, 100, true);
        assert!(attributes == count && (1000..7000).contains(&count), "{count} {attributes}");
        assert_eq!(told, ["there are too many streams: from here on they are left out"]);
        let (count, attributes, told) = decoded(100, 100, false);
        assert!(attributes == 0 && count < 700 && told.len() == count + 1, "{count} {}", told.len());
    }

    fn name(beside: &[u8], is_five: bool) -> Option<String> {
        let service = File { beside: beside.to_vec(), ..File::default() };
        name_of_stream(&service, is_five).map(|name| String::from_utf8(name).unwrap())
    }

    #[test]
    fn streams_have_names() {
        assert_eq!(name(b":Zone.Identifier", true).as_deref(), Some("Zone.Identifier"));
        assert_eq!(name(b":a\xc3\xa4:$DATA", true).as_deref(), Some("a\u{e4}"));
        let wide: Vec<u8> = ":\u{416}x".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(name(&wide, false).as_deref(), Some("\u{416}x"));
        for none in [&b""[..], b":", b"x", b"::$DATA", b":a:b", b":a/b", b":a\\b"] {
            assert_eq!(name(none, true), None, "{none:?}");
        }
    }
}
