//! The names in a block of a folder (`struct erofs_dirent`): records of twelve bytes, then the names.

use crate::little::{u16_at, u64_at};

const RECORD: usize = 12;

/// A name, and its inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: Vec<u8>,
    pub(super) inode: u64,
}

/// The names in `block`; what is wrong with it.
pub(super) fn names(block: &[u8]) -> (Vec<Named>, Option<&'static str>) {
    let place = |number: usize| {
        let at = number.checked_mul(RECORD)?;
        Some((u64_at(block, at)?, usize::from(u16_at(block, at.checked_add(8)?)?)))
    };
    let first = place(0).map_or(0, |(_, name)| name);
    if first < RECORD || !first.is_multiple_of(RECORD) || first > block.len() {
        return (Vec::new(), Some("its first name lies where none can be"));
    }
    let count = first.checked_div(RECORD).unwrap_or_default();
    let mut names = Vec::new();
    for number in 0..count {
        let Some((inode, start)) = place(number) else { return (names, Some("it is cut")) };
        let next = number.saturating_add(1);
        let end = if next < count { place(next).map_or(0, |(_, start)| start) } else { block.len() };
        let Some(name) = block.get(start..end).filter(|_| start >= first) else {
            return (names, Some("a name lies where none can be"));
        };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        if !matches!(name, b"." | b"..") {
            names.push(Named { name: name.to_vec(), inode });
        }
    }
    (names, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_the_next_one_begins() {
        let mut block = Vec::new();
        for (inode, at) in [(36_u64, 36_u16), (40, 37), (50, 42)] {
            block.extend(inode.to_le_bytes());
            block.extend(at.to_le_bytes());
            block.extend([1, 0]);
        }
        block.extend(b".namesecond\0\0\0");
        let (found, wrong) = names(&block);
        let found: Vec<_> = found.iter().map(|one| (&one.name[..], one.inode)).collect();
        assert_eq!((found, wrong), (vec![(&b"names"[..], 40), (b"econd", 50)], None));
        assert!(names(&block[..20]).1.is_some() && names(&[]).1.is_some());
        block[20] = 9;
        assert!(names(&block).1.is_some());
    }
}
