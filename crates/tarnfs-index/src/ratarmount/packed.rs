//! Sidecars that somebody has compressed, as ratarmount takes them: they are decoded into a temporary file that has no
//! name.

use std::fs::File;
use std::io::{self, Write};

use tarnfs_codec::{OnlyBytes, Options};
use tarnfs_source::{Cancel, SharedSource, temporary_file};

use crate::Error;

/// What follows the name of a sidecar that was compressed, in the order in which they are looked for.
pub const PACKED: [&str; 6] = [".zst", ".gz", ".xz", ".bz2", ".lz4", ".lz"];

/// What a database begins with.
pub(super) const SQLITE: &[u8] = b"SQLite format 3\0";

/// Bytes of the head of a database.
const DATABASE_HEAD: usize = 100;

/// Bytes of a compressed file that say how it is compressed.
const HEAD: usize = 4096;

/// Bytes that a sidecar may be long, unless its archive is longer: about five million files.
const LONGEST: u64 = 1 << 30;

/// So many times as long as it is compressed a sidecar may be, if it is long: those that were made of archives have 5
/// to 40 times. Zeros have thousands of times.
const MOST_TIMES: u64 = 250;
const SHORT: u64 = 64 << 20;

/// What is in `source`, if that is a compressed database; `None` if it is anything else. It may come from anybody: no
/// more is written than a sidecar of an archive of `archive` bytes needs, nor than the database says that it has.
pub(super) fn unpacked(source: SharedSource, archive: u64, cancel: &Cancel) -> Result<Option<File>, Error> {
    let most = archive.max(LONGEST);
    if source.len() > most {
        return Ok(None);
    }
    let most = most.min(source.len().saturating_mul(MOST_TIMES).max(SHORT));
    unpacked_into(source, most, cancel, temporary_file)
}

/// The same, into what `make` makes, with a bound on what comes out.
fn unpacked_into<W: Write>(
    source: SharedSource,
    most: u64,
    cancel: &Cancel,
    make: impl FnOnce() -> io::Result<W>,
) -> Result<Option<W>, Error> {
    let Some(mut packed) = Packed::open(source, cancel)? else { return Ok(None) };
    let mut head = [0; DATABASE_HEAD];
    let filled = packed.fill(&mut head)?;
    let head = head.get(..filled).unwrap_or_default();
    if !head.starts_with(SQLITE) {
        return Ok(None);
    }
    let stated = stated_length(head);
    if stated.is_some_and(|stated| stated > most) {
        return Err(packed.too_long(most));
    }
    let mut to = make()?;
    to.write_all(head)?;
    let (mut buffer, mut length) = (vec![0; 1 << 18], filled as u64);
    loop {
        let read = packed.fill(&mut buffer)?;
        if read == 0 {
            break;
        }
        length = length.saturating_add(read as u64);
        match stated {
            Some(stated) if length > stated => return Err(packed.is_wrong("goes on behind its end")),
            None if length > most => return Err(packed.too_long(most)),
            _ => to.write_all(buffer.get(..read).unwrap_or_default())?,
        }
    }
    if stated.is_some_and(|stated| length < stated) {
        return Err(packed.is_wrong("was cut"));
    }
    to.flush()?;
    Ok(Some(to))
}

/// The first `length` bytes of what is in `source`, or fewer if there are not so many; `None` if it is not compressed.
pub(super) fn start(source: SharedSource, length: usize) -> Result<Option<Vec<u8>>, Error> {
    let cancel = Cancel::default();
    let Some(mut packed) = Packed::open(source, &cancel)? else { return Ok(None) };
    let mut start = vec![0; length];
    let filled = packed.fill(&mut start)?;
    start.truncate(filled);
    Ok(Some(start))
}

/// Bytes of the database that begins with `head`. `None` if that does not say: very old programs did not write it.
fn stated_length(head: &[u8]) -> Option<u64> {
    let number = |at: usize| head.get(at..).and_then(|rest| rest.first_chunk()).map(|four| u32::from_be_bytes(*four));
    let page_size = match u64::from(number(16)? >> 16) {
        1 => 65_536,
        size => size,
    };
    // The number of pages is valid if it was written with the last change.
    let pages = number(28).filter(|&pages| pages > 0 && number(24) == number(92))?;
    page_size.is_power_of_two().then(|| page_size.saturating_mul(u64::from(pages)))
}

/// What is decoded of a compressed file.
struct Packed<'c> {
    codec: &'static str,
    bytes: OnlyBytes,
    cancel: &'c Cancel,
}

impl<'c> Packed<'c> {
    /// `None` if it is not compressed.
    fn open(source: SharedSource, cancel: &'c Cancel) -> Result<Option<Self>, Error> {
        let mut head = vec![0; HEAD];
        let read = source.read_at(&mut head, 0)?;
        head.truncate(read);
        if head.starts_with(SQLITE) {
            return Ok(None);
        }
        let Some(codec) = tarnfs_codec::detect(&head) else { return Ok(None) };
        let options = Options { cancel: cancel.clone(), ..Options::default() };
        let bytes = OnlyBytes::new(codec.first_pass(source, &options)?);
        Ok(Some(Self { codec: codec.name(), bytes, cancel }))
    }

    /// Fills `buffer`; fewer bytes at the end only. What is damaged is an error at once.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0_usize;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            self.cancel.check()?;
            let read = match self.bytes.read(rest) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(self.is_wrong("was cut")),
                Err(error) => return Err(error.into()),
            };
            if self.bytes.damage().is_some() {
                return Err(self.is_wrong("is damaged"));
            }
            if read == 0 {
                break;
            }
            filled = filled.saturating_add(read);
        }
        Ok(filled)
    }

    fn is_wrong(&self, what: &str) -> Error {
        Error::Broken(format!("it is compressed ({}), and {what}", self.codec))
    }

    fn too_long(&self, most: u64) -> Error {
        let what = format!("has more than {} MiB in it, which no index of this archive needs", most >> 20);
        self.is_wrong(&what)
    }
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

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
        let length = zstd_safe::compress(&mut packed[..], bytes, 1).unwrap();
        packed.truncate(length);
        packed
    }

    /// A frame of one stored byte, whose checksum is wrong.
    fn damaged_frame(byte: u8) -> Vec<u8> {
        vec![0x28, 0xb5, 0x2f, 0xfd, 0x24, 1, 9, 0, 0, byte, 1, 2, 3, 4]
    }

    /// So many pages of 4096 bytes, as the head says, which `bytes` follow.
    fn database(pages: u32, bytes: usize) -> Vec<u8> {
        let mut database = vec![0; DATABASE_HEAD];
        database[..16].copy_from_slice(SQLITE);
        database[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        database[28..32].copy_from_slice(&pages.to_be_bytes());
        database.extend((0..bytes.saturating_sub(DATABASE_HEAD) as u32).map(|at| (at >> 7) as u8));
        database
    }

    /// What is written of it, and what is said.
    fn written(packed: &[u8], most: u64) -> (Vec<u8>, Result<bool, String>) {
        let mut to = Vec::new();
        let done = unpacked_into(source(packed), most, &Cancel::default(), || Ok(&mut to));
        let done = done.map(|done| done.is_some()).map_err(|error| error.to_string());
        (to, done)
    }

    #[test]
    fn what_is_compressed_comes_out_whole_or_not_at_all() {
        let bytes = database(1000, 4_096_000);
        let packed = zstd(&bytes);
        let mut file = unpacked(source(&packed), 0, &Cancel::default()).unwrap().unwrap();
        let mut read = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        assert_eq!(start(source(&packed), 72).unwrap().unwrap(), bytes[..72]);
        for end in [100, packed.len() / 2, packed.len() - 1] {
            let cut = unpacked(source(&packed[..end]), 0, &Cancel::default());
            assert!(cut.is_err(), "{end}");
        }
        for other in [&bytes[..], b"", b"text\n"] {
            assert!(unpacked(source(other), 0, &Cancel::default()).unwrap().is_none());
        }
    }

    /// It may come from anybody.
    #[test]
    fn no_more_is_written_than_a_database_says_that_it_has() {
        let most = 8 << 20;
        // Not even its first bytes are those of a database.
        let (to, done) = written(&zstd(&vec![0; 3_000_000]), most);
        assert_eq!((to.len(), done), (0, Ok(false)));
        let (to, done) = written(&zstd(&database(3000, 1_000_000)), most);
        assert!(to.is_empty() && done.as_ref().is_err_and(|told| told.contains("8 MiB")), "{done:?}");
        let (to, done) = written(&zstd(&database(10, 3_000_000)), most);
        assert!(to.len() <= 40_960 && done.as_ref().is_err_and(|told| told.contains("behind its end")), "{done:?}");
        let (_, done) = written(&zstd(&database(100, 400_000)), most);
        assert!(done.as_ref().is_err_and(|told| told.contains("was cut")), "{done:?}");
        let (to, done) = written(&zstd(&database(100, 409_600)), most);
        assert_eq!((to.len(), done), (409_600, Ok(true)));
        // One that does not say how long it is.
        let (_, done) = written(&zstd(&database(0, 3_000_000)), 1 << 20);
        assert!(done.as_ref().is_err_and(|told| told.contains("1 MiB")), "{done:?}");
        assert_eq!(written(&zstd(&database(0, 1_000_000)), 1 << 20).1, Ok(true));
    }

    #[test]
    fn the_bound_grows_with_what_is_compressed() {
        let zeros = |pages: u32| {
            let mut database = database(pages, 1_000_000);
            database.truncate(DATABASE_HEAD);
            unpacked(source(&zstd(&database)), u64::MAX, &Cancel::default())
                .map(drop)
                .map_err(|error| error.to_string())
        };
        // As much as a short one may have: it is seen that it is cut.
        assert!(zeros(16_384).unwrap_err().contains("was cut"));
        assert!(zeros(16_385).unwrap_err().contains("64 MiB"));
    }

    #[test]
    fn the_first_damage_ends_it() {
        let bytes = database(1000, 4_096_000);
        let frames: Vec<u8> = bytes[DATABASE_HEAD..][..100_000].iter().flat_map(|&byte| damaged_frame(byte)).collect();
        let packed = [zstd(&bytes[..DATABASE_HEAD]), frames].concat();
        let (to, done) = written(&packed, u64::MAX);
        assert_eq!(to.len(), DATABASE_HEAD);
        assert!(done.as_ref().is_err_and(|told| told.contains("damaged")), "{done:?}");
    }
}
