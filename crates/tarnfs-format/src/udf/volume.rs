//! The volume descriptor sequence (ECMA-167, 3/8.4): which partitions there are, and what lies in them.

use std::collections::{BTreeMap, HashSet};
use std::io;

use super::bytes::{Place, damaged, is_damage, long_place, u16_at, u32_at};
use super::image::{Image, LARGEST_BLOCK};
use super::names::field;
use super::recognition::Anchor;
use super::tag::{self, Wrong};
use crate::image::Budget;

/// Descriptors of a sequence, all its extents together. There are 16 sectors for them.
const MOST: usize = 4096;
/// Partition maps: UDF has two of them.
const MOST_MAPS: u32 = 64;

/// What the prevailing descriptors say: of each kind, those with the highest number.
#[derive(Debug, Default)]
pub(super) struct Volume {
    logical: Option<(u32, Logical)>,
    /// By the number of the partition: the descriptor's own number, and the first sector and length of the partition.
    pub(super) partitions: BTreeMap<u16, (u32, u64, u64)>,
    primary: Option<(u32, String)>,
}

/// A logical volume.
#[derive(Debug, Clone)]
pub(super) struct Logical {
    pub(super) name: String,
    /// Bytes of a block.
    pub(super) block: u64,
    /// Where the file set is.
    pub(super) file_set: Place,
    pub(super) maps: Vec<Map>,
}

/// A partition map (ECMA-167, 3/10.7; UDF 2.2.8 to 2.2.10): how blocks of a partition become sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Map {
    Plain {
        partition: u16,
    },
    Virtual {
        partition: u16,
    },
    Sparable {
        partition: u16,
        packet: u32,
        tables: Vec<u32>,
        length: u32,
    },
    Metadata {
        partition: u16,
        file: u32,
        mirror: u32,
    },
    /// Why it cannot be read.
    Other(String),
}

impl Volume {
    /// Reads the sequence of an anchor. What is damaged there is told, and taken from the copy.
    pub(super) fn read(
        image: &mut Image<'_>,
        anchor: Anchor,
        budget: &mut Budget,
        told: &mut Vec<(u64, String)>,
    ) -> io::Result<Self> {
        let mut volume = Self::default();
        let is_whole = volume.add(image, (anchor.sector, anchor.main), budget, told)?;
        if !is_whole || !volume.is_complete() {
            volume.add(image, (anchor.sector, anchor.reserve), budget, told)?;
        }
        Ok(volume)
    }

    fn is_complete(&self) -> bool {
        let Some((_, logical)) = &self.logical else { return false };
        logical.maps.iter().filter_map(Map::partition).all(|number| self.partitions.contains_key(&number))
    }

    /// The logical volume and its name.
    pub(super) fn logical(&self) -> Option<(&Logical, &str)> {
        let (_, logical) = self.logical.as_ref()?;
        let other = self.primary.as_ref().map(|(_, name)| name.as_str()).unwrap_or_default();
        Some((logical, if logical.name.is_empty() { other } else { &logical.name }))
    }

    /// Reads one sequence. False if some of it is damaged.
    fn add(
        &mut self,
        image: &mut Image<'_>,
        (sector, extent): (u64, (u64, u64)),
        budget: &mut Budget,
        told: &mut Vec<(u64, String)>,
    ) -> io::Result<bool> {
        let (mut is_whole, mut next, mut passed) = (true, Some(extent), HashSet::new());
        while let Some((first, length)) = next.take() {
            let end = first.saturating_add(length.checked_div(sector).unwrap_or_default());
            let mut number = first;
            while number < end && passed.len() < MOST && passed.insert(number) {
                let at = number.saturating_mul(sector);
                let bytes = match image.show(at, LARGEST_BLOCK) {
                    Ok(bytes) => bytes,
                    Err(error) if is_damage(&error) => &[],
                    Err(error) => return Err(error),
                };
                // The checksum of a sector may cover all behind it, too.
                let read = tag::read(bytes);
                budget.take_bytes(tag::looked_at(read, bytes))?;
                let wrong = match read {
                    Ok(tag) if u64::from(tag.location) == number => {
                        number = number.saturating_add((tag.length as u64).div_ceil(sector).max(1));
                        match tag.kind {
                            tag::TERMINATOR => break,
                            tag::POINTER => {
                                next = u32_at(bytes, 24).zip(u32_at(bytes, 20)).map(|(at, of)| (at.into(), of.into()));
                                break;
                            }
                            kind => self.take(kind, bytes),
                        }
                        continue;
                    }
                    Ok(_) => "it belongs elsewhere",
                    // What was not written yet ends it.
                    Err(Wrong::Nothing) => break,
                    Err(wrong) => wrong.words(),
                };
                told.push((at, format!("a volume descriptor: {wrong}")));
                is_whole = false;
                number = number.saturating_add(1);
            }
        }
        Ok(is_whole)
    }

    fn take(&mut self, kind: u16, bytes: &[u8]) {
        let Some(own) = u32_at(bytes, 16) else { return };
        match kind {
            tag::PRIMARY if self.primary.as_ref().is_none_or(|(known, _)| own > *known) => {
                self.primary = bytes.get(24..56).and_then(field).map(|name| (own, name));
            }
            tag::LOGICAL if self.logical.as_ref().is_none_or(|(known, _)| own > *known) => {
                self.logical = Logical::parse(bytes).map(|logical| (own, logical)).or(self.logical.take());
            }
            tag::PARTITION => {
                let numbers = (|| Some((u16_at(bytes, 22)?, u32_at(bytes, 188)?, u32_at(bytes, 192)?)))();
                if let Some((number, start, length)) = numbers
                    && self.partitions.get(&number).is_none_or(|(known, ..)| own > *known)
                {
                    self.partitions.insert(number, (own, start.into(), length.into()));
                }
            }
            _ => {}
        }
    }
}

impl Logical {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let block = u64::from(u32_at(bytes, 212)?);
        let is_possible = block.is_power_of_two() && (512..=LARGEST_BLOCK).contains(&block);
        let (_, file_set) = long_place(bytes, 248)?;
        let (length, count) = (u32_at(bytes, 264)?, u32_at(bytes, 268)?.min(MOST_MAPS));
        let mut rest = bytes.get(440..)?;
        rest = rest.get(..length as usize).unwrap_or(rest);
        let mut maps = Vec::new();
        for _ in 0..count {
            let &[kind, length, ..] = rest else { break };
            let map = rest.get(..length.into()).filter(|_| length >= 2)?;
            maps.push(Map::parse(kind, map));
            rest = rest.get(length.into()..).unwrap_or_default();
        }
        let name = bytes.get(84..212).and_then(field).unwrap_or_default();
        is_possible.then_some(Self { name, block, file_set, maps })
    }
}

impl Map {
    fn parse(kind: u8, bytes: &[u8]) -> Self {
        let of = |bytes: &[u8]| {
            let number = |at: usize| u16_at(bytes, at);
            let long = |at: usize| u32_at(bytes, at);
            let volume = number(if kind == 1 { 2 } else { 36 })?;
            if volume > 1 {
                return Some(Self::Other(format!("it is on volume {volume} of several")));
            }
            if kind == 1 {
                return Some(Self::Plain { partition: number(4)? });
            }
            let partition = number(38)?;
            let name = super::bytes::identifier(bytes, 4);
            Some(match name {
                b"*UDF Virtual Partition" => Self::Virtual { partition },
                b"*UDF Sparable Partition" => Self::Sparable {
                    partition,
                    packet: number(40)?.into(),
                    tables: (0..usize::from(*bytes.get(42)?).min(4))
                        .filter_map(|table| long(table.saturating_mul(4).saturating_add(48)))
                        .collect(),
                    length: long(44)?,
                },
                b"*UDF Metadata Partition" => Self::Metadata { partition, file: long(40)?, mirror: long(44)? },
                other => Self::Other(format!("it is of a kind that is not known: {}", crate::name::excerpt(other))),
            })
        };
        let map = matches!(kind, 1 | 2).then(|| of(bytes)).flatten();
        map.unwrap_or_else(|| Self::Other(format!("its map is of kind {kind}, or cut")))
    }

    /// The partition that it maps to.
    pub(super) fn partition(&self) -> Option<u16> {
        match self {
            Self::Plain { partition }
            | Self::Virtual { partition }
            | Self::Sparable { partition, .. }
            | Self::Metadata { partition, .. } => Some(*partition),
            Self::Other(_) => None,
        }
    }
}

/// What is wrong with a volume that has no file set.
pub(super) fn missing(what: &str) -> io::Error {
    damaged(format!("there is no {what}"))
}
