//! Extended attributes (ECMA-167, 4/14.10; UDF 3.3.4): the number of a device, and those of other systems.

use std::io;

use super::bytes::{identifier, u16_at, u32_at};
use super::tag;
use crate::Xattrs;
use crate::image::Budget;

/// Bytes before the first attribute, and before what each has.
const HEAD: usize = 24;
const OF_ONE: usize = 12;

/// Kinds of attributes: the number of a device, and what a system keeps that knows UDF.
const DEVICE: u32 = 12;
const IMPLEMENTATION: u32 = 2048;

/// What an attribute counts for beside its name and value.
const PER_ATTRIBUTE: u64 = 48;

/// What is shown of the attributes of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    /// Major and minor number.
    pub(super) device: Option<(u32, u32)>,
    pub(super) xattrs: Xattrs,
}

impl Attributes {
    /// Adds those in `bytes`, if there are any. Any number of names may lead to them, so what they take is taken from
    /// the budget.
    pub(super) fn add(&mut self, bytes: &[u8], budget: &mut Budget) -> io::Result<()> {
        let read = tag::read(bytes);
        budget.take_bytes(tag::looked_at(read, bytes))?;
        let is_area = read.is_ok_and(|tag| tag.kind == tag::ATTRIBUTES);
        let mut rest = bytes.get(HEAD..).filter(|_| is_area).unwrap_or_default();
        while let (Some(kind), Some(length)) = (u32_at(rest, 0), u32_at(rest, 8)) {
            let Some((one, behind)) = rest.split_at_checked(length as usize).filter(|(one, _)| one.len() >= OF_ONE)
            else {
                return Ok(());
            };
            match kind {
                DEVICE => self.device = u32_at(one, 16).zip(u32_at(one, 20)).or(self.device),
                IMPLEMENTATION => self.add_of_system(one, budget)?,
                _ => {}
            }
            rest = behind;
        }
        Ok(())
    }

    fn add_one(&mut self, name: Vec<u8>, value: &[u8], budget: &mut Budget) -> io::Result<()> {
        budget.take_bytes(PER_ATTRIBUTE.saturating_add(name.len().saturating_add(value.len()) as u64))?;
        self.xattrs.push((name, value.to_vec()));
        Ok(())
    }

    fn add_of_system(&mut self, one: &[u8], budget: &mut Budget) -> io::Result<()> {
        let length = u32_at(one, OF_ONE).unwrap_or_default() as usize;
        // A checksum of what comes before stands first.
        let Some(used) = one.get(48..).map(|rest| rest.get(..length).unwrap_or(rest)) else { return Ok(()) };
        match identifier(one, 16) {
            // UDF 3.3.4.5.4.2: 32 bytes behind the number of a folder.
            b"*UDF Mac FinderInfo" => {
                if let Some(info) = used.get(8..40).filter(|info| info.iter().any(|byte| *byte != 0)) {
                    self.add_one(b"user.com.apple.FinderInfo".to_vec(), info, budget)?;
                }
            }
            // UDF 3.3.4.5.3.1: flags, the lengths of a name and its value, and these, one after the other.
            b"*UDF OS/2 EA" => {
                let mut rest = used.get(2..).unwrap_or_default();
                while let [_, of_name, ..] = *rest {
                    let value = u16_at(rest, 2).map(|length| (usize::from(of_name).saturating_add(4), length));
                    let Some((end, of_value)) = value else { return Ok(()) };
                    let all = rest.split_at_checked(end.saturating_add(of_value.into()));
                    let Some((all, behind)) = all.filter(|_| of_name > 0) else { return Ok(()) };
                    let (name, value) = all.split_at_checked(end).unwrap_or_default();
                    let name = [b"user.", name.get(4..).unwrap_or_default()].concat();
                    self.add_one(name, value, budget)?;
                    rest = behind;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udf::bytes::crc;

    fn area(attributes: &[u8]) -> Vec<u8> {
        let body = [[0xff; 8].as_slice(), attributes].concat();
        let mut tag = [0; 16];
        tag[..2].copy_from_slice(&tag::ATTRIBUTES.to_le_bytes());
        tag[8..10].copy_from_slice(&crc(&body[..8]).to_le_bytes());
        tag[10] = 8;
        tag[4] = tag.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        [&tag[..], &body].concat()
    }

    fn one(kind: u32, rest: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &[1, 0, 0, 0], &(rest.len() as u32 + 12).to_le_bytes(), rest].concat()
    }

    fn of_system(name: &str, used: &[u8]) -> Vec<u8> {
        let mut entity = [0; 32];
        entity[1..=name.len()].copy_from_slice(name.as_bytes());
        one(IMPLEMENTATION, &[&(used.len() as u32).to_le_bytes()[..], &entity, used].concat())
    }

    #[test]
    fn devices_and_what_other_systems_keep() {
        let device = one(DEVICE, &[[0; 4], [8, 0, 0, 0], [3, 1, 0, 0]].concat());
        let finder = of_system("*UDF Mac FinderInfo", &[&[0; 8][..], &[7; 32], &[0; 8]].concat());
        let fields = [&[0, 0][..], &[0, 5, 3, 0], b".NAMEabc", &[0, 1, 0, 0], b"x"].concat();
        let others = [of_system("*UDF OS/2 EA", &fields), of_system("*UDF FreeEASpace", &[0; 8])].concat();
        let mut found = Attributes::default();
        found.add(&area(&[device, finder, others].concat()), &mut Budget::new(0, 1)).unwrap();
        assert_eq!(found.device, Some((8, 259)));
        let pair = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
        let finder = pair("user.com.apple.FinderInfo", &[7; 32]);
        assert_eq!(found.xattrs, [finder, pair("user..NAME", b"abc"), pair("user.x", b"")]);
    }

    #[test]
    fn what_is_cut_or_damaged_is_left_out() {
        let whole = area(&one(DEVICE, &[0; 12]));
        for length in 0..whole.len() {
            let mut found = Attributes::default();
            found.add(&whole[..length], &mut Budget::new(0, 1)).unwrap();
            assert_eq!(found, Attributes::default(), "{length}");
        }
        let mut other = whole;
        other[17] ^= 1;
        let mut found = Attributes::default();
        found.add(&other, &mut Budget::new(0, 1)).unwrap();
        assert_eq!(found, Attributes::default());
        // One that has no length ends them, and so does a name of none.
        found.add(&area(&[0; 40]), &mut Budget::new(0, 1)).unwrap();
        found.add(&area(&of_system("*UDF OS/2 EA", &[0; 40])), &mut Budget::new(0, 1)).unwrap();
        assert_eq!(found, Attributes::default());
    }

    /// The tag of the entry need not cover them, so that nobody has paid for a look at them yet.
    #[test]
    fn a_checksum_of_them_is_paid_for() {
        let mut area = area(&[0; 4000]);
        let paid = |area: &[u8]| {
            let mut budget = Budget::new(0, 1);
            let before = budget.bytes;
            Attributes::default().add(area, &mut budget).unwrap();
            before - budget.bytes
        };
        assert_eq!(paid(&area), 24);
        area[20] ^= 1;
        assert_eq!(paid(&area), 4024);
    }

    /// Any number of names may lead to one entry with thousands of attributes.
    #[test]
    fn attributes_are_paid_for() {
        let many = [0, 1, 0, 0, b'x'].repeat(1000);
        let area = area(&of_system("*UDF OS/2 EA", &[&[0, 0][..], &many].concat()));
        let mut budget = Budget::new(0, 1);
        // Each time, the tag is looked at before.
        budget.bytes = 2500 * (PER_ATTRIBUTE + 6) + 3 * 24;
        let told: Vec<_> = (0..4)
            .map(|_| {
                let mut found = Attributes::default();
                (found.add(&area, &mut budget).is_ok(), found.xattrs.len())
            })
            .collect();
        assert_eq!(told, [(true, 1000), (true, 1000), (false, 500), (false, 0)]);
    }
}
