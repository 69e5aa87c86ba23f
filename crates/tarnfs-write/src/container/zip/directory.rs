//! The directory of a zip, which stands behind all members, as it waits in memory until they are written.
//!
//! A path may have 64 KiB, and stands in full in each entry; an archive that is converted may have said it once. So of
//! a path only what differs from the one before it is kept (members of a folder follow each other), and what has
//! gathered is deflated.

use std::io;

use libdeflater::{CompressionLvl, Compressor, Decompressor};

/// Bytes of an entry before its path.
pub(super) const FIXED: usize = 46;

/// Bytes that are not deflated yet, at most; and those that are written at once, roughly.
const MOST_OPEN: usize = 1 << 20;

/// Entries in a row. Each is three lengths of two bytes (what its path shares with that of the one before it, the rest
/// of the path, the extra fields), the bytes before the path, the rest of the path, the extra fields.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Deflated parts, and how long each was.
    packed: Vec<(Box<[u8]>, usize)>,
    /// Those behind them.
    open: Vec<u8>,
    /// The path of the last one.
    last: Vec<u8>,
    members: u64,
}

impl Directory {
    pub(super) fn members(&self) -> u64 {
        self.members
    }

    /// Appends an entry: [`FIXED`] bytes, then path and extra fields, which are not longer than a zip can say.
    pub(super) fn push(&mut self, fixed: &[u8], path: &[u8], extra: &[u8]) -> io::Result<()> {
        let shared = self.last.iter().zip(path).take_while(|(one, other)| one == other).count();
        let rest = path.get(shared..).unwrap_or_default();
        debug_assert_eq!(fixed.len(), FIXED);
        for number in [shared, rest.len(), extra.len()] {
            let number = u16::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            self.open.extend_from_slice(&number.to_le_bytes());
        }
        self.open.extend_from_slice(fixed);
        self.open.extend_from_slice(rest);
        self.open.extend_from_slice(extra);
        self.last.truncate(shared);
        self.last.extend_from_slice(rest);
        self.members += 1;
        if self.open.len() >= MOST_OPEN { self.pack() } else { Ok(()) }
    }

    fn pack(&mut self) -> io::Result<()> {
        let mut deflater = Compressor::new(CompressionLvl::fastest());
        let mut part = vec![0; deflater.deflate_compress_bound(self.open.len())];
        let length = deflater.deflate_compress(&self.open, &mut part).map_err(io::Error::other)?;
        // The part itself is as long as the entries.
        self.packed.push((part.get(..length).unwrap_or_default().into(), self.open.len()));
        self.open.clear();
        Ok(())
    }

    /// Hands all entries to `write`, as they stand in the archive.
    pub(super) fn write(self, write: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut path = Vec::new();
        let mut inflater = Decompressor::new();
        let mut part = Vec::new();
        for (packed, length) in self.packed {
            part.resize(length, 0);
            inflater.deflate_decompress(&packed, &mut part).map_err(io::Error::other)?;
            unfold(&part, &mut path, write)?;
        }
        unfold(&self.open, &mut path, write)
    }
}

/// Hands entries of a part to `write`; `path` is that of the one before them.
fn unfold(part: &[u8], path: &mut Vec<u8>, write: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut left = part;
    let mut out = Vec::new();
    while !left.is_empty() {
        let [shared, rest, extra] = [number(&mut left)?, number(&mut left)?, number(&mut left)?];
        out.extend_from_slice(taken(&mut left, FIXED)?);
        path.truncate(shared);
        path.extend_from_slice(taken(&mut left, rest)?);
        out.extend_from_slice(path);
        out.extend_from_slice(taken(&mut left, extra)?);
        if out.len() >= MOST_OPEN {
            write(&out)?;
            out.clear();
        }
    }
    write(&out)
}

fn number(left: &mut &[u8]) -> io::Result<usize> {
    let (number, rest) = left.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
    *left = rest;
    Ok(u16::from_le_bytes(*number).into())
}

fn taken<'a>(left: &mut &'a [u8], length: usize) -> io::Result<&'a [u8]> {
    let (taken, rest) = left.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
    *left = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_as_they_went_in_and_take_little_until_then() {
        let mut state = 1_u32;
        let mut noise = |length: usize| -> Vec<u8> {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            (0..length).map(|_| next()).collect()
        };
        // Longer than what deflate looks back at.
        let long = noise(60_000);
        let mut paths: Vec<_> = (0..400_u32).map(|number| [&long, &number.to_le_bytes()[..]].concat()).collect();
        for path in [&b""[..], b"short", b"short", &vec![b'x'; 0xffff], b"sho", b"show"] {
            paths.push(path.to_vec());
        }
        paths.extend((0..40_000).map(|number| format!("many/{}/{number}", number / 100).into_bytes()));
        let (mut directory, mut expected) = (Directory::default(), Vec::new());
        for (number, path) in paths.iter().enumerate() {
            let (fixed, extra) = ([number as u8; FIXED], noise(number % 20));
            directory.push(&fixed, path, &extra).unwrap();
            expected.extend_from_slice(&[&fixed[..], path, &extra].concat());
        }
        let held = directory.open.len() + directory.packed.iter().map(|(part, _)| part.len()).sum::<usize>();
        assert!(directory.packed.len() > 1 && held < expected.len() / 10, "{held} of {} bytes", expected.len());
        assert_eq!(directory.members(), paths.len() as u64);
        let mut all = Vec::new();
        let mut write = |bytes: &[u8]| {
            all.extend_from_slice(bytes);
            Ok(())
        };
        directory.write(&mut write).unwrap();
        assert!(all == expected);
    }
}
