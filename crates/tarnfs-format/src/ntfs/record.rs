//! Records of the table of files, and the attributes in them ([MS-NTFS] is no specification: the layout is that which
//! the Linux-NTFS project has written down, and which the kernel's `fs/ntfs3/ntfs.h` has).

use crate::little::{u16_at, u32_at, u64_at};
use crate::reparse::units;

/// Kinds of attributes.
pub(super) const STANDARD: u32 = 0x10;
pub(super) const LIST: u32 = 0x20;
pub(super) const NAME: u32 = 0x30;
pub(super) const LABEL: u32 = 0x60;
pub(super) const STATE: u32 = 0x70;
pub(super) const DATA: u32 = 0x80;
pub(super) const REPARSE: u32 = 0xc0;
pub(super) const EXTENDED: u32 = 0xe0;
const END: u32 = 0xffff_ffff;

/// What a record and an attribute say of themselves.
const IN_USE: u16 = 1;
const IS_FOLDER: u16 = 2;
const COMPRESSED: u16 = 0x00ff;
const ENCRYPTED: u16 = 0x4000;

/// Bytes whose last two stand elsewhere, to tell whether all were written.
const STRIDE: usize = 512;

/// Bytes of a record before its first attribute, at least.
const HEADER: usize = 42;

/// The number of a record, and how often it was used when that was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) number: u64,
    pub(super) sequence: u16,
}

impl Reference {
    pub(super) fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let all = u64_at(bytes, at)?;
        Some(Self { number: all & 0xffff_ffff_ffff, sequence: (all >> 48) as u16 })
    }
}

/// A record that is in use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// As they were before the last two of each [`STRIDE`] were moved.
    bytes: Vec<u8>,
    /// Where those stand.
    moved: usize,
    pub(super) sequence: u16,
    pub(super) is_folder: bool,
    /// The file that it belongs to, if that has a record of its own.
    pub(super) base: Option<Reference>,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attribute<'r> {
    pub(super) kind: u32,
    pub(super) name: Vec<u16>,
    pub(super) is_compressed: bool,
    pub(super) is_encrypted: bool,
    pub(super) form: Form<'r>,
}

/// Where the value of an attribute is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form<'r> {
    /// In the record, from that byte on.
    Inside { at: usize, value: &'r [u8] },
    /// In clusters, from that one of the value on. The lengths in bytes are only right in the part that has the first.
    Runs { first: u64, runs: &'r [u8], unit: u8, size: u64, written: u64 },
}

impl Record {
    /// Takes a record apart; `None` if it is not in use. The error says what is wrong.
    pub(super) fn read(mut bytes: Vec<u8>) -> Result<Option<Self>, &'static str> {
        let short = "a record is too short";
        match bytes.get(..4).ok_or(short)? {
            b"FILE" => {}
            b"\0\0\0\0" => return Ok(None),
            b"BAAD" => return Err("a record was found to be torn before"),
            _ => return Err("a record does not begin as one"),
        }
        let flags = u16_at(&bytes, 22).ok_or(short)?;
        if flags & IN_USE == 0 {
            return Ok(None);
        }
        let (Some(moved), Some(count)) = (u16_at(&bytes, 4), u16_at(&bytes, 6)) else { return Err(short) };
        let (at, count) = (usize::from(moved), usize::from(count));
        let fits = count.checked_sub(1) == bytes.len().checked_div(STRIDE)
            && at >= HEADER
            && at.saturating_add(count.saturating_mul(2)) <= STRIDE.saturating_sub(2);
        if !fits {
            return Err("what tells whether a record is whole is damaged");
        }
        let (first, rest) = bytes.split_at_mut_checked(STRIDE).ok_or(short)?;
        let (mark, stand_ins) = first
            .get(at..at.saturating_add(count.saturating_mul(2)))
            .and_then(|words| words.split_first_chunk::<2>())
            .map(|(mark, words)| (*mark, words.to_vec()))
            .ok_or(short)?;
        let strides = std::iter::once(first).chain(rest.chunks_mut(STRIDE));
        for (stride, word) in strides.zip(stand_ins.as_chunks::<2>().0) {
            let end = stride.last_chunk_mut::<2>().ok_or(short)?;
            if *end != mark {
                return Err("a record is torn: some of it is older than the rest");
            }
            *end = *word;
        }
        // That of the table itself has the number 0, and was used once.
        let base = Reference::read(&bytes, 32).filter(|base| (base.number, base.sequence) != (0, 0));
        let sequence = u16_at(&bytes, 16).ok_or(short)?;
        Ok(Some(Self { moved: at, sequence, is_folder: flags & IS_FOLDER != 0, base, bytes }))
    }

    /// Its attributes. What is behind a damaged one is not found, and the last item says so.
    pub(super) fn attributes(&self) -> impl Iterator<Item = Result<Attribute<'_>, &'static str>> {
        let mut at = u16_at(&self.bytes, 20).map(usize::from);
        let used = u32_at(&self.bytes, 24).map_or(0, |used| used as usize).min(self.bytes.len());
        std::iter::from_fn(move || {
            let start = at.take()?;
            let bytes = self.bytes.get(..used)?;
            if u32_at(bytes, start) == Some(END) {
                return None;
            }
            let Some((attribute, end)) = Self::attribute(bytes, start) else {
                return Some(Err("its attributes are damaged"));
            };
            at = Some(end);
            Some(Ok(attribute))
        })
    }

    /// The attribute at byte `start`, and where it ends.
    fn attribute(bytes: &[u8], start: usize) -> Option<(Attribute<'_>, usize)> {
        let length = u32_at(bytes, start.checked_add(4)?)? as usize;
        let end = start.checked_add(length).filter(|_| length >= 24)?;
        let own = bytes.get(start..end)?;
        let name_length = u16::from(*own.get(9)?).checked_mul(2)?;
        let name = units(own, u16_at(own, 10)?.into(), name_length)?;
        let flags = u16_at(own, 12)?;
        let form = if *own.get(8)? == 0 {
            let (length, at) = (u32_at(own, 16)? as usize, usize::from(u16_at(own, 20)?));
            let value = own.get(at..at.checked_add(length)?)?;
            Form::Inside { at: start.checked_add(at)?, value }
        } else {
            let unit = *own.get(34)?;
            let (size, written) = (u64_at(own, 48)?, u64_at(own, 56)?);
            Form::Runs { first: u64_at(own, 16)?, runs: own.get(u16_at(own, 32)?.into()..)?, unit, size, written }
        };
        let attribute = Attribute {
            kind: u32_at(own, 0)?,
            name,
            is_compressed: flags & COMPRESSED != 0,
            is_encrypted: flags & ENCRYPTED != 0,
            form,
        };
        Some((attribute, end))
    }

    /// Where the bytes of `at..at + length` are stored, each as a place in the record and a length.
    pub(super) fn places(&self, at: usize, length: usize) -> Vec<(usize, usize)> {
        let (mut found, mut at, end) = (Vec::new(), at, at.saturating_add(length));
        while at < end {
            let stride = at / STRIDE;
            let last = stride.saturating_add(1).saturating_mul(STRIDE).saturating_sub(2);
            if at < last {
                let length = end.min(last).saturating_sub(at);
                found.push((at, length));
                at = at.saturating_add(length);
            } else {
                // The words stand behind the mark.
                let word = self.moved.saturating_add(stride.saturating_add(1).saturating_mul(2));
                let inside = at.saturating_sub(last);
                let length = end.saturating_sub(at).min(2_usize.saturating_sub(inside));
                found.push((word.saturating_add(inside), length));
                at = at.saturating_add(length);
            }
        }
        found
    }
}

/// Clusters of a value that lie one behind the other: how many, and the first one; `None` if they are a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) count: u64,
    pub(super) at: Option<u64>,
}

/// The runs in `bytes`, up to the end that they have, or to what is wrong.
pub(super) fn runs(bytes: &[u8]) -> impl Iterator<Item = Result<Run, &'static str>> {
    let (mut rest, mut last) = (Some(bytes), 0_i64);
    std::iter::from_fn(move || {
        let (&header, behind) = rest.take()?.split_first()?;
        if header == 0 {
            return None;
        }
        let mut read = || {
            let (count, behind) = number(behind, header & 0xf)?;
            let count = u64::try_from(count).ok().filter(|count| *count > 0)?;
            let (distance, behind) = number(behind, header >> 4)?;
            let at = if header >> 4 == 0 {
                None
            } else {
                last = last.checked_add(distance)?;
                Some(u64::try_from(last).ok()?)
            };
            rest = Some(behind);
            Some(Run { count, at })
        };
        Some(read().ok_or("what tells where it lies is damaged"))
    })
}

/// A number with a sign of so many bytes, and what is behind it.
fn number(bytes: &[u8], length: u8) -> Option<(i64, &[u8])> {
    let (own, behind) = bytes.split_at_checked(length.into())?;
    let sign = if own.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let mut whole = [sign; 8];
    whole.get_mut(..own.len())?.copy_from_slice(own);
    Some((i64::from_le_bytes(whole), behind))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record of 1024 bytes with such attributes.
    pub(in crate::ntfs) fn record(attributes: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        bytes[..4].copy_from_slice(b"FILE");
        (bytes[4], bytes[6], bytes[16], bytes[20], bytes[22]) = (48, 3, 7, 56, 1);
        let mut at = 56;
        for attribute in attributes {
            bytes[at..at + attribute.len()].copy_from_slice(attribute);
            at += attribute.len();
        }
        bytes[at..at + 4].copy_from_slice(&[0xff; 4]);
        bytes[24..28].copy_from_slice(&(at as u32 + 8).to_le_bytes());
        let ends: Vec<u8> = [&bytes[510..512], &bytes[1022..]].concat();
        bytes[48..50].copy_from_slice(b"ok");
        bytes[50..54].copy_from_slice(&ends);
        bytes[510..512].copy_from_slice(b"ok");
        bytes[1022..].copy_from_slice(b"ok");
        bytes
    }

    pub(in crate::ntfs) fn inside(kind: u8, value: &[u8]) -> Vec<u8> {
        let mut own = vec![0; 24];
        (own[0], own[20]) = (kind, 24);
        own[16..20].copy_from_slice(&(value.len() as u32).to_le_bytes());
        own.extend(value);
        own.resize(own.len().next_multiple_of(8), 0);
        let length = own.len() as u32;
        own[4..8].copy_from_slice(&length.to_le_bytes());
        own
    }

    /// A value may go over the end of a sector, whose last two bytes stand elsewhere.
    #[test]
    fn a_value_is_what_it_was_before_the_record_was_written() {
        let value: Vec<u8> = (0..600_u32).map(|number| number as u8).collect();
        let stored = record(&[&inside(0x10, b"standard"), &inside(0x80, &value)]);
        let record = Record::read(stored.clone()).unwrap().unwrap();
        assert_eq!((record.sequence, record.is_folder, record.base), (7, false, None));
        let attributes: Vec<_> = record.attributes().map(Result::unwrap).collect();
        assert_eq!(attributes.iter().map(|one| one.kind).collect::<Vec<_>>(), [STANDARD, DATA]);
        let Form::Inside { at, value: found } = attributes[1].form else { panic!() };
        assert!(found == value);
        let places = record.places(at, value.len());
        let joined: Vec<u8> = places.iter().flat_map(|&(at, length)| stored[at..at + length].to_vec()).collect();
        assert!(joined == value && places.len() == 3, "{places:?}");
        assert_eq!(record.places(509, 2), [(509, 1), (50, 1)]);
        assert_eq!(record.places(511, 2), [(51, 1), (512, 1)]);
        assert_eq!(record.places(1022, 2), [(52, 2)]);
    }

    #[test]
    fn what_belongs_to_the_table_itself_belongs_to_a_file() {
        let mut stored = record(&[&inside(0x10, b"x")]);
        let base = |stored: &[u8]| Record::read(stored.to_vec()).unwrap().unwrap().base;
        assert_eq!(base(&stored), None);
        stored[38] = 1;
        assert_eq!(base(&stored), Some(Reference { number: 0, sequence: 1 }));
    }

    #[test]
    fn a_record_that_is_torn_is_damaged_and_one_that_is_free_is_none() {
        let good = record(&[&inside(0x10, b"x")]);
        for (at, byte) in [(0, b'X'), (4, 255), (5, 1), (6, 2), (510, 0), (1023, 0)] {
            let mut changed = good.clone();
            changed[at] = byte;
            assert!(Record::read(changed).is_err(), "byte {at}");
        }
        let mut free = good.clone();
        (free[22], free[510]) = (2, 0);
        assert_eq!((Record::read(free), Record::read(vec![0; 1024])), (Ok(None), Ok(None)));
        assert!(Record::read(b"BAAD".repeat(256)).is_err());
        for length in 0..good.len() {
            assert!(Record::read(good[..length].to_vec()).is_err(), "{length}");
        }
        let mut cut = good.clone();
        cut[60..64].copy_from_slice(&2000_u32.to_le_bytes());
        let cut = Record::read(cut).unwrap().unwrap();
        assert_eq!(cut.attributes().map(|one| one.is_ok()).collect::<Vec<_>>(), [false]);
    }

    #[test]
    fn runs_are_told_from_where_the_last_one_began() {
        let found: Result<Vec<_>, _> = runs(&[0x21, 0x18, 0x34, 0x56, 0x01, 5, 0x11, 2, 0xf0, 0, 9]).collect();
        let run = |count, at| Run { count, at };
        assert_eq!(found.unwrap(), [run(0x18, Some(0x5634)), run(5, None), run(2, Some(0x5624))]);
        for wrong in [&[0x11, 1][..], &[0x11, 0, 1], &[0x11, 0x80, 1], &[0x10, 1], &[0x11, 1, 0x80], &[0x19; 20]] {
            let found: Vec<_> = runs(wrong).collect();
            assert!(found.last().is_some_and(Result::is_err) && found.len() < 3, "{wrong:?}: {found:?}");
        }
    }
}
