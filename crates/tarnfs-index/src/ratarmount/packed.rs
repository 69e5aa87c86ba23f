//! Sidecars that somebody has compressed, as ratarmount takes them: they are decoded into a temporary file that has no
//! name.

use std::fs::File;
use std::io::{self, Write as _};

use tarnfs_codec::Options;
use tarnfs_source::{Cancel, SharedSource, temporary_file};

use crate::Error;

/// What follows the name of a sidecar that was compressed, in the order in which they are looked for.
pub const PACKED: [&str; 6] = [".zst", ".gz", ".xz", ".bz2", ".lz4", ".lz"];

/// What a database begins with.
pub(super) const SQLITE: &[u8] = b"SQLite format 3\0";

/// Bytes of a compressed file that say how it is compressed.
const HEAD: usize = 4096;

/// Bytes that a sidecar may be long, unless its archive is longer: about five million files.
const LONGEST: u64 = 1 << 30;

/// What is in `source`, if that is compressed; `None` if it is a database or anything else. It may come from anybody:
/// no more is written than a sidecar of an archive of `archive` bytes needs.
pub(super) fn unpacked(source: SharedSource, archive: u64, cancel: &Cancel) -> Result<Option<File>, Error> {
    let most = archive.max(LONGEST);
    if source.len() > most {
        return Ok(None);
    }
    let Some(mut file) = decoded(source, most, cancel, temporary_file)? else { return Ok(None) };
    file.flush()?;
    Ok(Some(file))
}

/// The first `length` bytes of what is in `source`, if that is compressed.
pub(super) fn start(source: SharedSource, length: usize) -> Result<Option<Vec<u8>>, Error> {
    struct Start(Vec<u8>, usize);

    impl io::Write for Start {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.1.saturating_sub(self.0.len()));
            self.0.extend_from_slice(bytes.get(..count).unwrap_or_default());
            // It has all that is wanted.
            if count < bytes.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut start = Start(Vec::new(), length);
    let is_packed = match decoded(source, u64::MAX, &Cancel::default(), || Ok(&mut start)) {
        Ok(to) => to.is_some(),
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::WriteZero => true,
        Err(error) => return Err(error),
    };
    Ok(is_packed.then_some(start.0))
}

/// Decodes `source` into what `make` makes, if it is compressed.
fn decoded<W: io::Write>(
    source: SharedSource,
    most: u64,
    cancel: &Cancel,
    make: impl FnOnce() -> io::Result<W>,
) -> Result<Option<W>, Error> {
    let mut head = vec![0; HEAD];
    let read = source.read_at(&mut head, 0)?;
    head.truncate(read);
    if head.starts_with(SQLITE) {
        return Ok(None);
    }
    let Some(codec) = tarnfs_codec::detect(&head) else { return Ok(None) };
    let damaged = |what: &str| Error::Broken(format!("it is compressed ({}), and {what}", codec.name()));
    let options = Options { cancel: cancel.clone(), ..Options::default() };
    let mut pass = codec.first_pass(source, &options)?;
    let (mut to, mut buffer, mut left) = (make()?, vec![0; 1 << 18], most);
    let (mut points, mut damage) = (Vec::new(), Vec::new());
    loop {
        cancel.check()?;
        let read = match pass.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(damaged("was cut")),
            Err(error) => return Err(error.into()),
        };
        left = left.checked_sub(read as u64).ok_or_else(|| {
            damaged(&format!("has more than {} MiB in it, which no index of this archive needs", most >> 20))
        })?;
        to.write_all(buffer.get(..read).unwrap_or_default())?;
        // Nobody reads it at another place.
        pass.take_points(&mut points);
        points.clear();
    }
    pass.take_damage(&mut damage);
    if damage.is_empty() { Ok(Some(to)) } else { Err(damaged("is damaged")) }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::io::Seek as _;
    use std::sync::Arc;

    use tarnfs_source::MemorySource;

    use super::*;

    fn source(bytes: &[u8]) -> SharedSource {
        Arc::new(MemorySource::new(bytes.to_vec(), "test"))
    }

    #[test]
    fn what_is_compressed_comes_out_whole_or_not_at_all() {
        let bytes: Vec<u8> = SQLITE.iter().copied().chain((0..3_000_000_u32).map(|at| (at >> 7) as u8)).collect();
        let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
        let length = zstd_safe::compress(&mut packed[..], &bytes, 1).unwrap();
        packed.truncate(length);
        let mut file = unpacked(source(&packed), 0, &Cancel::default()).unwrap().unwrap();
        let mut read = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        assert_eq!(start(source(&packed), 72).unwrap().unwrap(), bytes[..72]);
        for end in [100, length / 2, length - 1] {
            let cut = unpacked(source(&packed[..end]), 0, &Cancel::default());
            assert!(cut.is_err(), "{end}");
        }
        for other in [&bytes[..], b"", b"text\n"] {
            assert!(unpacked(source(other), 0, &Cancel::default()).unwrap().is_none());
        }
        let error = decoded(source(&packed), 1 << 20, &Cancel::default(), temporary_file).unwrap_err();
        assert!(error.to_string().contains("1 MiB"), "{error}");
    }
}
