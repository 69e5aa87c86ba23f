//! Partitions: where a block of one lies in the image.

use std::collections::BTreeMap;
use std::io;

use super::bytes::{Place, damaged};

/// All partitions of a logical volume, in the order of its maps.
#[derive(Debug)]
pub(super) struct Space {
    /// Bytes of a block.
    pub(super) block: u64,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug)]
pub(super) enum Part {
    /// In one run, which begins at a byte.
    Plain { start: u64 },
    /// The same with packets of blocks that lie elsewhere, since the disc is worn where they should be: the first block
    /// of each, and the byte where it is.
    Sparable { start: u64, packet: u32, spared: BTreeMap<u32, u64> },
    /// Blocks of the partition `below` in any order, as a table says. What is written again gets another block there.
    Virtual { below: usize, table: Vec<u32> },
    /// The content of a file in the partition `below`, and of its copy.
    Metadata { below: usize, copies: Vec<Vec<Run>> },
    /// Why it cannot be read.
    Unreadable(String),
}

/// Blocks of a file that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The first of them, in the file.
    pub(super) first: u64,
    pub(super) count: u64,
    /// Where that lies. `None` of a hole.
    pub(super) at: Option<u32>,
}

/// What stands in a table for a block that is not there.
const NO_BLOCK: u32 = u32::MAX;

impl Space {
    /// How many copies of the blocks of a partition there are.
    pub(super) fn copies(&self, partition: u16) -> usize {
        match self.parts.get(usize::from(partition)) {
            Some(Part::Metadata { copies, .. }) => copies.len().max(1),
            _ => 1,
        }
    }

    /// The byte at which a block lies, and how many blocks lie together there.
    pub(super) fn find(&self, Place { partition, block }: Place, copy: usize) -> io::Result<(u64, u64)> {
        let wrong = |what: &str| damaged(format!("block {block} of partition {partition}: {what}"));
        match self.parts.get(usize::from(partition)) {
            None => Err(wrong("there is no such partition")),
            Some(Part::Unreadable(why)) => Err(wrong(why)),
            Some(Part::Virtual { below, table }) => match table.get(block as usize).copied() {
                None | Some(NO_BLOCK) => Err(wrong("it is not in the table of blocks")),
                Some(block) => self.basic(*below, block).map(|(at, _)| (at, 1)).ok_or_else(|| wrong("it is nowhere")),
            },
            Some(Part::Metadata { below, copies }) => {
                let runs = copies.get(copy).map(Vec::as_slice).unwrap_or_default();
                let behind = runs.partition_point(|run| run.first <= block.into());
                let run = behind.checked_sub(1).and_then(|at| runs.get(at));
                let inside = run.map(|run| (run, u64::from(block).saturating_sub(run.first)));
                let Some((run, inside)) = inside.filter(|(run, inside)| *inside < run.count) else {
                    return Err(wrong("it is behind the end of the metadata"));
                };
                let at = run.at.and_then(|at| u64::from(at).checked_add(inside)).and_then(|at| u32::try_from(at).ok());
                let at = at.ok_or_else(|| wrong("it was not recorded"))?;
                let (byte, count) = self.basic(*below, at).ok_or_else(|| wrong("it is nowhere"))?;
                Ok((byte, count.min(run.count.saturating_sub(inside))))
            }
            Some(_) => self.basic(partition.into(), block).ok_or_else(|| wrong("it is nowhere")),
        }
    }

    /// The same of a partition that stands on no other.
    fn basic(&self, partition: usize, block: u32) -> Option<(u64, u64)> {
        let far = |block: u32| u64::from(block).checked_mul(self.block);
        let left = u64::from(u32::MAX).saturating_sub(block.into());
        match self.parts.get(partition)? {
            Part::Plain { start } => Some((start.checked_add(far(block)?)?, left)),
            Part::Sparable { start, packet, spared } => {
                let inside = block.checked_rem(*packet)?;
                let first = block.saturating_sub(inside);
                let in_packet = u64::from(packet.saturating_sub(inside));
                if let Some(at) = spared.get(&first) {
                    return Some((at.checked_add(far(inside)?)?, in_packet));
                }
                let next = spared.range(first..).next().map(|(next, _)| u64::from(next.saturating_sub(block)));
                Some((start.checked_add(far(block)?)?, next.unwrap_or(left)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_each_kind_of_partition() {
        let run = |first, count, at| Run { first, count, at };
        let parts = vec![
            Part::Plain { start: 2048 },
            Part::Sparable { start: 4096, packet: 32, spared: BTreeMap::from([(32, 1 << 20), (64, 2 << 20)]) },
            Part::Virtual { below: 0, table: vec![7, NO_BLOCK, 3] },
            Part::Metadata {
                below: 1,
                copies: vec![vec![run(0, 40, Some(30)), run(40, 2, None), run(42, 5, Some(1))]],
            },
            Part::Unreadable("why".to_owned()),
            Part::Metadata { below: 2, copies: Vec::new() },
        ];
        let space = Space { block: 512, parts };
        let find = |partition, block| space.find(Place { partition, block }, 0).map_err(|error| error.to_string());
        let last = u64::from(u32::MAX);
        assert_eq!(find(0, 3), Ok((2048 + 3 * 512, last - 3)));
        assert_eq!(find(1, 5), Ok((4096 + 5 * 512, 27)));
        assert_eq!(find(1, 40), Ok(((1 << 20) + 8 * 512, 24)));
        assert_eq!(find(1, 64), Ok((2 << 20, 32)));
        assert_eq!(find(1, 96), Ok((4096 + 96 * 512, last - 96)));
        assert_eq!((find(2, 0), find(2, 2)), (Ok((2048 + 7 * 512, 1)), Ok((2048 + 3 * 512, 1))));
        assert_eq!((find(3, 0), find(3, 4)), (Ok((4096 + 30 * 512, 2)), Ok(((1 << 20) + 2 * 512, 30))));
        assert_eq!(find(3, 46), Ok((4096 + 5 * 512, 1)));
        for (partition, block) in [(2, 1), (2, 3), (3, 41), (3, 47), (4, 0), (5, 0), (6, 0)] {
            assert!(find(partition, block).is_err(), "{partition} {block}");
        }
        assert!(find(4, 0).unwrap_err().contains("why"));
    }
}
