//! The content of one file on both sides. What is a hole on both is not read.

use std::io;
use std::sync::atomic::Ordering;

use tarnfs_source::{Cancel, Source};
use tarnfs_tree::build::Progress;

use super::side::Readable;
use crate::commands::extract::content::verify;

/// Bytes that are read at once.
const BATCH: usize = 256 << 10;

/// Why contents could not be compared.
#[derive(Debug)]
pub(super) enum Unreadable {
    Archive(io::Error),
    Other(io::Error),
}

/// Room for a part of both sides.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    archive: Vec<u8>,
    other: Vec<u8>,
}

/// The first byte that is another one; `None` if there is none. Both are of one length. Of both it is said whether they
/// may have holes.
pub(super) fn first_difference(
    (source, has_holes): (&dyn Source, bool),
    (other, has_other_holes): (&impl Readable, bool),
    buffers: &mut Buffers,
    cancel: &Cancel,
    progress: &Progress,
) -> Result<Option<u64>, Unreadable> {
    let size = source.len();
    // Up to `run` the archive's side has no hole. It is asked once for each run, as it may look at all of its parts.
    let (mut at, mut run) = (0, 0);
    let mut found = None;
    let most = BATCH.min(usize::try_from(size).unwrap_or(BATCH));
    if buffers.archive.len() < most {
        buffers.archive.resize(most, 0);
        buffers.other.resize(most, 0);
    }
    while at < size {
        cancel.check().map_err(Unreadable::Archive)?;
        let from = at;
        let data = if has_holes && at >= run { source.next_data(at).unwrap_or(size) } else { at };
        let other_data = if has_other_holes && data > at { other.next_data(at).unwrap_or(size) } else { at };
        at = data.min(other_data).min(size);
        if at == from {
            // A long hole is compared without going beyond it.
            let end = if data > at {
                data
            } else if has_holes {
                if at >= run {
                    run = source.next_hole(at);
                }
                run
            } else {
                size
            };
            let length = (end.min(size) - at).min(BATCH as u64) as usize;
            let (left, right) = (&mut buffers.archive[..length], &mut buffers.other[..length]);
            source.read_exact_at(left, at).map_err(Unreadable::Archive)?;
            let read = other.read_at(right, at).map_err(Unreadable::Other)?;
            found = difference(left, &right[..read]).map(|place| at + place);
            if found.is_some() {
                break;
            }
            at += length as u64;
        }
        progress.bytes.fetch_add(at - from, Ordering::Relaxed);
    }
    verify(source, cancel).map_err(Unreadable::Archive)?;
    other.verify().map_err(Unreadable::Other)?;
    Ok(found)
}

/// [`first_difference`] from `content`, which is all of the archive's side.
pub(super) fn first_difference_from(
    content: &[u8],
    other: &impl Readable,
    buffers: &mut Buffers,
) -> io::Result<Option<u64>> {
    if buffers.other.len() < content.len() {
        buffers.other.resize(content.len(), 0);
    }
    let read = other.read_at(&mut buffers.other[..content.len()], 0)?;
    let found = difference(content, &buffers.other[..read]);
    other.verify()?;
    Ok(found)
}

/// Where two parts differ first, also if one of them ends there.
pub(super) fn difference(one: &[u8], other: &[u8]) -> Option<u64> {
    if one == other {
        return None;
    }
    let place = one.iter().zip(other).position(|(one, other)| one != other);
    Some(place.unwrap_or(one.len().min(other.len())) as u64)
}

#[cfg(test)]
mod tests {
    use tarnfs_source::Stencil;

    use super::super::side::Seen;
    use super::*;
    use crate::commands::extract::content::tests::sparse;

    struct Other(Stencil);

    impl Readable for Other {
        fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
            self.0.read_at(buffer, at)
        }

        fn next_data(&self, at: u64) -> Option<u64> {
            self.0.next_data(at)
        }

        fn is_still(&self, _: &Seen) -> io::Result<bool> {
            Ok(true)
        }

        fn verify(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_source_is_asked_once_for_each_run_where_its_holes_are() {
        let long = 10 * BATCH as u64 + 7;
        for (extents, expected) in [
            (vec![(1 << 20, long), (16 << 20, 5)], None),
            (vec![(1 << 20, long), (16 << 20, 4)], Some((16 << 20) + 4)),
            (vec![(1 << 20, long - 1)], Some((1 << 20) + long - 1)),
        ] {
            let (source, _) = sparse(&[(1 << 20, long), (16 << 20, 5)], 20 << 20);
            let other = Other(sparse(&extents, 20 << 20).0.0);
            let (cancel, progress) = (Cancel::default(), Progress::default());
            let found =
                first_difference((&source, true), (&other, true), &mut Buffers::default(), &cancel, &progress).unwrap();
            assert_eq!(found, expected);
            assert_eq!(source.1.into_inner(), if extents.len() > 1 { 2 } else { 1 });
        }
    }
}
