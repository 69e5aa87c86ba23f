//! Looks for where the next frame, stream, file or member begins, behind bytes that are none.
//!
//! Whatever decodes comes to the same place, as what is looked at depends on the stream alone: a decoder that was
//! resumed before such bytes puts the same gap there as the first pass.
//!
//! A header alone proves nothing: a damaged frame may hold files of its own kind, which it stores as they are. So the
//! blocks behind the header must lead to another start, or the end; or further than a block reaches that is stored, as
//! what is cut into such blocks does not lead on from one to the next.

use std::io;

use tarnfs_source::{Cancel, SharedSource};

/// Bytes that stand for what is lost where nothing says how much that is. A tar is made of blocks of as many: a gap
/// that keeps to them lets it go on behind.
pub(crate) const GAP: usize = 512;

/// Bytes that are looked at behind a stream of next to nothing. Behind others it is as many as were read before it and
/// these: a small file at the start of a large disk does not cost a look at all of that.
const LOOKED_AT: u64 = 64 << 20;

/// Bytes that are looked at together.
const WINDOW: usize = 256 << 10;

/// So many places may look like a start and be none, and one more in each 4 KiB. By chance it is one in 2^32 bytes.
const LOOK_ALIKES: u64 = 1000;
const BETWEEN: u64 = 4 << 10;

/// The first place, from byte `from` of `source` on, at which `magic` stands, and of which `is_start` says that it is
/// a start. The magic is four bytes, none of them zero and no two of them the same.
///
/// Holes are jumped over. `None` also where too much only looks like a start.
pub(crate) fn next(
    source: &SharedSource,
    from: u64,
    magic: [u8; 4],
    cancel: &Cancel,
    mut is_start: impl FnMut(u64) -> io::Result<bool>,
) -> io::Result<Option<u64>> {
    let mut left = LOOKED_AT.saturating_add(from);
    let (mut look_alikes, mut at, mut window) = (0_u64, from, Vec::new());
    while let Some(data) = source.next_data(at).filter(|_| left > 0) {
        cancel.check()?;
        at = data;
        let length = source.len().saturating_sub(at).min(left).min(WINDOW as u64) as usize;
        window.resize(length, 0);
        let read = source.read_at(&mut window, at)?;
        let bytes = window.get(..read).unwrap_or_default();
        let mut behind = 0;
        while let Some(place) = find(bytes, &magic, behind) {
            let found = at.saturating_add(place as u64);
            if is_start(found)? {
                return Ok(Some(found));
            }
            cancel.check()?;
            look_alikes += 1;
            if look_alikes > LOOK_ALIKES + found.saturating_sub(from) / BETWEEN {
                return Ok(None);
            }
            behind = place + 1;
        }
        // A magic may go on behind the window.
        let Some(passed) = read.checked_sub(magic.len() - 1).filter(|&passed| passed > 0) else { break };
        at = at.saturating_add(passed as u64);
        left = left.saturating_sub(passed as u64);
    }
    Ok(None)
}

/// Where `wanted`, of bytes that are different, is in `bytes`, from byte `from` on. One byte of as many as it has is
/// looked at.
pub(crate) fn find(bytes: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let mut last = from.checked_add(wanted.len().checked_sub(1)?)?;
    while let Some(byte) = bytes.get(last) {
        if let Some(behind) = wanted.iter().position(|other| other == byte) {
            let at = last - behind;
            if at >= from && bytes[at..].starts_with(wanted) {
                return Some(at);
            }
        }
        last += wanted.len();
    }
    None
}

/// `head` with `magic` at its start, if just one byte of that is another one there: then all the rest of a header can
/// tell whether it is one.
pub(crate) fn mended(head: &[u8], magic: &[u8]) -> Option<Vec<u8>> {
    let (found, rest) = head.split_at_checked(magic.len())?;
    let wrong = found.iter().zip(magic).filter(|(found, wanted)| found != wanted).count();
    (wrong == 1).then(|| [magic, rest].concat())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tarnfs_source::Source;

    use super::*;
    use crate::testing::source;

    const MAGIC: [u8; 4] = *b"ABCD";

    #[test]
    fn the_first_that_proves_itself_is_found() {
        for at in [0, 1, WINDOW - 4, WINDOW - 3, WINDOW - 1, WINDOW, 2 * WINDOW + 77] {
            let mut bytes = vec![b'A'; 3 * WINDOW];
            bytes[at..at + 4].copy_from_slice(&MAGIC);
            bytes[3 * WINDOW - 4..].copy_from_slice(&MAGIC);
            let source = source(&bytes);
            let found = |from, accepted: u64| {
                next(&source, from, MAGIC, &Cancel::default(), |place| Ok(place >= accepted)).unwrap()
            };
            assert_eq!(found(0, 0), Some(at as u64));
            assert_eq!(found(at as u64 + 1, 0), Some(3 * WINDOW as u64 - 4));
            assert_eq!(found(0, at as u64 + 1), Some(3 * WINDOW as u64 - 4));
            assert_eq!(found(0, u64::MAX), None);
        }
    }

    /// A terabyte of which all but a few bytes is a hole, or zeros of which nobody knows that.
    #[derive(Debug)]
    struct Disk {
        magic: u64,
        tells_holes: bool,
        read: AtomicU64,
    }

    impl Source for Disk {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            buffer.fill(0);
            self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            for (byte, at) in MAGIC.iter().zip(self.magic..) {
                if let Some(place) = at.checked_sub(offset).and_then(|place| buffer.get_mut(place as usize)) {
                    *place = *byte;
                }
            }
            Ok(buffer.len())
        }

        fn len(&self) -> u64 {
            1 << 40
        }

        fn describe(&self) -> String {
            "a disk".into()
        }

        fn next_data(&self, offset: u64) -> Option<u64> {
            if self.tells_holes { (offset < self.magic + 4).then(|| offset.max(self.magic)) } else { Some(offset) }
        }
    }

    #[test]
    fn holes_are_jumped_over_and_not_all_of_a_disk_is_looked_at() {
        for (tells_holes, magic, expected) in
            [(true, 1 << 39, Some(1 << 39)), (false, 1 << 39, None), (false, 10 << 20, Some(10 << 20))]
        {
            let disk = std::sync::Arc::new(Disk { magic, tells_holes, read: AtomicU64::new(0) });
            let source: SharedSource = disk.clone();
            assert_eq!(next(&source, 5, MAGIC, &Cancel::default(), |_| Ok(true)).unwrap(), expected);
            let read = disk.read.load(Ordering::Relaxed);
            assert!(read < LOOKED_AT + (2 * WINDOW) as u64 && (!tells_holes || read <= WINDOW as u64), "{read}");
        }
    }

    #[test]
    fn among_too_many_that_only_look_like_a_start_none_is_looked_for() {
        let bytes = MAGIC.repeat(5000);
        let mut looked_at = 0;
        let found = next(&source(&bytes), 0, MAGIC, &Cancel::default(), |_| {
            looked_at += 1;
            Ok(false)
        });
        assert_eq!(found.unwrap(), None);
        assert!((1000..1010).contains(&looked_at), "{looked_at}");
        let cancel = Cancel::default();
        cancel.cancel();
        assert!(next(&source(&bytes), 0, MAGIC, &cancel, |_| Ok(false)).is_err());
    }

    #[test]
    fn one_wrong_byte_of_a_magic_is_mended() {
        assert_eq!(mended(b"ABxDrest", &MAGIC).unwrap(), b"ABCDrest");
        for other in [&b"ABCDrest"[..], b"AxxDrest", b"ABC", b""] {
            assert_eq!(mended(other, &MAGIC), None);
        }
    }
}
