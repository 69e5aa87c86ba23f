//! Sparse files in an archive that is read forwards: an image of a disk, or a part of an archive, is often one. What is
//! stored of it are pieces, with holes between them.

use std::borrow::Cow;
use std::io;

use tarnfs_format::{Body, Entry, Piece, Stream, stream::Part};
use tarnfs_source::{SharedSource, Slice};

use super::hashing;
use super::names::last_component;
use super::parts::{Split, at_its_place};
use super::walk::{Expanded, MemberPlace, Walk, Wanted};

/// Extents of a file that is looked into. Pieces of it wait in memory, and take more than these.
const MOST_EXTENTS: usize = 1 << 18;

/// True of a sparse file that can be looked into. What goes on in another volume has a map as well.
pub(super) fn may_be_looked_into(body: &Body) -> bool {
    let Some(extents) = &body.extents else { return false };
    extents.len() <= MOST_EXTENTS && extents.iter().all(|extent| extent.skip == 0)
}

/// The first `length` bytes of a file that begins with these `stored` bytes.
pub(super) fn head<'s>(body: &Body, stored: &'s [u8], length: usize) -> Cow<'s, [u8]> {
    let Some(extents) = &body.extents else { return Cow::Borrowed(stored) };
    let mut head = vec![0; usize::try_from(body.size).map_or(length, |size| size.min(length))];
    let mut rest = stored;
    for extent in extents {
        let place = usize::try_from(extent.offset).ok().and_then(|start| head.get_mut(start..));
        let Some(place) = place.filter(|place| !place.is_empty()) else { break };
        let length = usize::try_from(extent.length).unwrap_or(usize::MAX).min(place.len()).min(rest.len());
        let (data, behind) = rest.split_at(length);
        if let Some(place) = place.get_mut(..length) {
            place.copy_from_slice(data);
        }
        rest = behind;
    }
    Cow::Owned(head)
}

/// The pieces of a file in a stream that begins at byte `base`, and its length. Of one that is cut, what lies in the
/// first `there` stored bytes.
fn pieces(body: &Body, base: u64, there: u64) -> (Vec<Piece>, u64) {
    let offset = body.offset.saturating_sub(base);
    let Some(extents) = &body.extents else {
        let length = body.size.min(there);
        let piece = Piece { length, offset, stored: length, decoded: length, ..Piece::default() };
        return (vec![piece], length);
    };
    let (mut pieces, mut from, mut end) = (Vec::<Piece>::new(), 0_u64, 0_u64);
    for extent in extents {
        let length = extent.length.min(there.saturating_sub(from));
        let hole = extent.offset.saturating_sub(end);
        if length < extent.length && length == 0 {
            return (pieces, end);
        }
        end = extent.offset.saturating_add(length);
        match pieces.last_mut() {
            // Nothing lies between them.
            Some(last) if hole == 0 => {
                last.length = last.length.saturating_add(length);
                (last.stored, last.decoded) = (last.length, last.length);
            }
            _ => {
                let offset = offset.saturating_add(from);
                pieces.push(Piece { hole, length, offset, stored: length, decoded: length, ..Piece::default() });
            }
        }
        from = from.saturating_add(length);
        if length < extent.length {
            return (pieces, end);
        }
    }
    (pieces, body.size)
}

/// `entry`, whose content lies in a stream that begins at byte `base`, as one that is stored in pieces. Of one that is
/// cut, what lies in the first `there` stored bytes.
pub(super) fn in_pieces(entry: &Entry, base: u64, there: u64) -> Entry {
    let (pieces, size) = pieces(&entry.body, base, there);
    let offset = entry.body.offset.saturating_sub(base);
    let body = Body { offset, stored: size, size, pieces: Some(pieces), extents: None };
    Entry { header: entry.header.saturating_sub(base), body, ..entry.clone() }
}

impl Walk<'_> {
    /// The content of a file, where the `bytes` of its stream can be read at any time, from byte `base` on.
    pub(super) fn content_at(&self, body: &Body, (bytes, base): (&SharedSource, u64)) -> SharedSource {
        if body.extents.is_none() {
            let start = body.offset.saturating_sub(base);
            return std::sync::Arc::new(Slice::new(SharedSource::clone(bytes), start, body.size));
        }
        let (pieces, size) = pieces(body, base, u64::MAX);
        std::sync::Arc::new(
            self.pieces_of(bytes, &Body { size, stored: size, pieces: Some(pieces), ..Body::default() }),
        )
    }

    /// Leaves the archive or the part for later that the sparse file `entry` is. What it is stored as is kept, where it
    /// goes by; then the file itself is hashed, too.
    pub(super) fn expand_sparse(
        &self,
        wanted: Wanted,
        entry: &Entry,
        stream: &mut dyn Stream,
        place: &MemberPlace,
    ) -> io::Result<Expanded> {
        let body = &entry.body;
        let mut expanded = Expanded::default();
        let ((source, base), kept) = if let Some((bytes, base)) = self.bytes {
            ((SharedSource::clone(bytes), base), None)
        } else {
            let mut part = Part::new(stream, body.offset.saturating_add(body.stored));
            let Some(kept) = self.keep(entry, &mut part, place)? else { return Ok(expanded) };
            if let Some(hashing) = self.hashing_of(entry, wanted)
                && hashing.may_hash(entry, hashing::holes_in(body))
            {
                let content = hashing::Content::Source(SharedSource::clone(&kept));
                expanded.hashes = hashing.now(entry, &content)?;
            }
            ((at_its_place(body.offset, SharedSource::clone(&kept)), 0), Some(kept))
        };
        let name = last_component(&entry.path);
        match wanted {
            Wanted::Archive(_) => {
                let there = source.len().saturating_sub(body.offset.saturating_sub(base));
                let split = Split { is_unchecked: true, ..Split::default() };
                self.tell_candidate(&in_pieces(entry, base, there), name, (&source, base), place, split)?;
            }
            Wanted::Part(content) => self.gather(entry, name, content, kept),
            Wanted::Nothing => {}
        }
        Ok(expanded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::Extent;

    fn body(extents: &[(u64, u64)], size: u64) -> Body {
        let extents: Vec<_> = extents.iter().map(|&(offset, length)| Extent { offset, length, skip: 0 }).collect();
        let stored = extents.iter().map(|extent| extent.length).sum();
        Body { offset: 1000, stored, size, extents: Some(extents), pieces: None }
    }

    #[test]
    fn extents_are_pieces_with_holes() {
        let told = |body: &Body, there| {
            let (pieces, size) = pieces(body, 300, there);
            let pieces: Vec<_> = pieces.iter().map(|piece| (piece.hole, piece.length, piece.offset)).collect();
            (pieces, size)
        };
        let sparse = body(&[(5, 10), (15, 1), (20, 4)], 50);
        assert_eq!(told(&sparse, u64::MAX), (vec![(5, 11, 700), (4, 4, 711)], 50));
        // Of one that is cut, what is there.
        assert_eq!(told(&sparse, 12), (vec![(5, 11, 700), (4, 1, 711)], 21));
        assert_eq!(told(&sparse, 11), (vec![(5, 11, 700)], 16));
        assert_eq!(told(&body(&[], 50), 0), (vec![], 50));
        let plain = Body { offset: 1000, stored: 7, size: 7, ..Body::default() };
        assert_eq!(told(&plain, u64::MAX), (vec![(0, 7, 700)], 7));
    }

    #[test]
    fn a_head_has_the_holes_of_its_file() {
        for (length, expected) in
            [(8, &b"\0\0ab\0cd\0"[..]), (6, b"\0\0ab\0c"), (3, b"\0\0a"), (99, b"\0\0ab\0cd\0\0\0")]
        {
            assert_eq!(*head(&body(&[(2, 2), (5, 2)], 10), b"abcdef", length), *expected, "{length}");
        }
        assert_eq!(*head(&body(&[(2, 2), (5, 2)], 10), b"a", 8), *b"\0\0a\0\0\0\0\0");
        assert_eq!(*head(&Body::default(), b"abc", 8), *b"abc");
    }

    #[test]
    fn what_goes_on_elsewhere_is_not_looked_into() {
        let mut sparse = body(&[(0, 1), (5, 1)], 10);
        assert!(may_be_looked_into(&sparse) && !may_be_looked_into(&Body::default()));
        sparse.extents.iter_mut().flatten().for_each(|extent| extent.skip = 1);
        assert!(!may_be_looked_into(&sparse));
    }
}
