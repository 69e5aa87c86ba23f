//! What stands in a block of a folder (Linux: fs/ext4/ext4.h, `struct ext4_dir_entry_2`).

use crate::little::{u16_at, u32_at};

/// Bytes before a name.
const HEAD: usize = 8;

/// Bytes of what stands at the end of a block with a checksum: an entry without a name.
const TAIL: usize = 12;
const TAIL_MARK: u8 = 0xDE;

/// Bytes of the first entry of a folder, that of itself; where the head of an index stands behind the second one, and
/// how many bytes it says that it has.
const FIRST: usize = 12;
const OF_INDEX: usize = 24;
const OF_INDEX_LENGTH: u8 = 8;

/// An entry of a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) inode: u32,
    pub(super) name: Vec<u8>,
}

/// The next entry in `bytes` from byte `at` on, which moves on: those of nothing are passed. An error where they are
/// none from there on.
pub(super) fn next(bytes: &[u8], at: &mut usize) -> Option<Result<Named, &'static str>> {
    while let Some(rest) = bytes.get(*at..).filter(|rest| rest.len() >= HEAD) {
        let (inode, stored) = (u32_at(rest, 0)?, u16_at(rest, 4)?);
        let length = match usize::from(stored) {
            // In blocks of 64 KiB, more than 16 bits can say.
            0 | 0xffff if bytes.len() > 0xffff => bytes.len(),
            length => length,
        };
        let name = usize::from(*rest.get(6)?);
        if length < HEAD.saturating_add(name) || length > rest.len() || length % 4 != 0 {
            *at = bytes.len();
            return Some(Err("its entries do not fit in it"));
        }
        *at = at.saturating_add(length);
        let name = rest.get(HEAD..HEAD.saturating_add(name)).unwrap_or_default();
        if inode != 0 && !matches!(name, b"." | b"..") {
            return Some(Ok(Named { inode, name: name.to_vec() }));
        }
    }
    None
}

/// The checksum of a block of a folder, and how many bytes it is of; `None` if it has none.
pub(super) fn sum(block: &[u8]) -> Option<(u32, usize)> {
    let before = block.len().checked_sub(TAIL)?;
    let tail = block.get(before..)?;
    let is_tail = u32_at(tail, 0)? == 0 && usize::from(u16_at(tail, 4)?) == TAIL && tail.get(6..8)? == [0, TAIL_MARK];
    is_tail.then(|| u32_at(tail, 8)).flatten().map(|sum| (sum, before))
}

/// True if `block` is one of the index of a folder, without names: below the root of that it is one entry of nothing.
pub(super) fn is_index(block: &[u8]) -> bool {
    u32_at(block, 0) == Some(0) && u16_at(block, 4).is_some_and(|told| is_all(told, block.len()))
}

/// True if `block`, which is the first one of a folder, is the root of an index: behind the entries of the folder
/// itself and of the one above, the second of which takes all that is left, stands what says how names are hashed.
pub(super) fn is_root(block: &[u8]) -> bool {
    let rest = block.len().checked_sub(FIRST);
    let is_last = |told: u16| rest == Some(usize::from(told));
    u16_at(block, 4).is_some_and(|told| usize::from(told) == FIRST)
        && u16_at(block, FIRST.saturating_add(4)).is_some_and(is_last)
        && u32_at(block, OF_INDEX) == Some(0)
        && block.get(OF_INDEX.saturating_add(5)) == Some(&OF_INDEX_LENGTH)
}

/// True if a stored length is that of a whole block.
fn is_all(told: u16, length: usize) -> bool {
    // In blocks of 64 KiB, more than 16 bits can say.
    if length > 0xffff { matches!(told, 0 | 0xffff) } else { usize::from(told) == length }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(inode: u32, length: u16, name: &[u8]) -> Vec<u8> {
        let mut entry = [&inode.to_le_bytes()[..], &length.to_le_bytes(), &[name.len() as u8, 1], name].concat();
        entry.resize(usize::from(length), 0);
        entry
    }

    #[test]
    fn entries_follow_each_other_and_those_of_nothing_are_passed() {
        let block =
            [entry(2, 12, b"."), entry(2, 12, b".."), entry(11, 16, b"a"), entry(0, 16, b"gone"), entry(12, 72, b"bc")]
                .concat();
        let mut at = 0;
        let mut names = Vec::new();
        while let Some(found) = next(&block, &mut at) {
            let found = found.unwrap();
            names.push((found.inode, found.name));
        }
        assert_eq!((names, at), (vec![(11, b"a".to_vec()), (12, b"bc".to_vec())], block.len()));
    }

    /// As Linux makes the root of an index: the end of the block of names that it was has not been wiped.
    #[test]
    fn an_index_is_known_by_its_start_and_not_by_its_end() {
        let tail = [&[0, 0, 0, 0, 12, 0, 0, TAIL_MARK][..], b"sum!"].concat();
        let root = |second: u16, head: [u8; 8]| {
            let mut root =
                [entry(2, 12, b"."), entry(2, 12, b".."), head.to_vec(), vec![0; 212], tail.clone()].concat();
            root[16..18].copy_from_slice(&second.to_le_bytes());
            root
        };
        let made = root(244, [0, 0, 0, 0, 1, 8, 0, 0]);
        assert_eq!(made.len(), 256);
        assert!(is_root(&made) && sum(&made).is_some() && next(&made, &mut 0).is_none());
        // A block of names, and heads that are none.
        assert!(!is_root(&root(12, [0, 0, 0, 0, 1, 8, 0, 0])) && !is_root(&root(244, [1, 0, 0, 0, 1, 8, 0, 0])));
        assert!(!is_root(&root(244, [0, 0, 0, 0, 1, 9, 0, 0])) && !is_root(&[]) && !is_root(&made[..20]));
        let mut below = [entry(0, 256, b""), Vec::new()].concat();
        below[244..].copy_from_slice(&tail);
        assert!(is_index(&below) && sum(&below).is_some());
        // A block of names of which none is left ends before its tail.
        below[4..6].copy_from_slice(&244_u16.to_le_bytes());
        assert!(!is_index(&below));
        let mut large = vec![0; 65_536];
        large[65_524..].copy_from_slice(&tail);
        assert!(is_index(&large));
        large[4..6].copy_from_slice(&65_524_u16.to_le_bytes());
        assert!(!is_index(&large));
    }

    #[test]
    fn an_entry_ends_in_its_block() {
        for (length, name) in [(0, &b"a"[..]), (8, b"a"), (14, b"a"), (4000, b"a"), (12, b"abcde")] {
            let mut block = entry(11, 16, name);
            block[4..6].copy_from_slice(&u16::to_le_bytes(length));
            block.resize(64, 0);
            let mut at = 0;
            assert!(next(&block, &mut at).unwrap().is_err(), "{length}");
            assert_eq!((at, next(&block, &mut at)), (64, None));
        }
    }
}
