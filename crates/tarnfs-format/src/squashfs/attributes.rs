//! Extended attributes.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use tarnfs_source::Limits;

use super::inode::NO_XATTRS;
use super::metadata::{Metadata, Place};
use super::numbers::Fields;
use super::start::NO_TABLE;
use crate::Xattrs;
use crate::image::{OfAttributes, Quota, TOO_MANY_ATTRIBUTES, damaged};

/// Bit of an attribute's kind: in place of its value stands where that is.
const IS_ELSEWHERE: u16 = 1 << 8;

/// Bytes that the attributes of one inode may take.
const MOST_OF_ONE: usize = 32 << 20;

/// What reading lists may cost for a whole image, in bytes, where each attribute counts as many as `OF_ONE` beside its
/// own, and each block that is decoded for it as many as it may hold. Inodes may name ever other lists of the same
/// bytes, and each value may stand in a block of its own.
const READ: Quota = Quota { most: 256 << 20, least: 1 << 20, of_small: 1024 };
const OF_ONE: u64 = 64;

/// So much more for each byte of the image: where hundreds of thousands of files have a signature each, these take that
/// much room, and each block of them may be needed again and again. But few bytes may be packed in many, so what is
/// longer counts as `LARGE`.
const FOR_EACH_BYTE: u64 = 64;
const LARGE: u64 = 256 << 20;

/// Lists that are remembered: of most images all that there are.
const MOST_KNOWN: usize = 1 << 12;
const MOST_OF_KNOWN: u64 = 16 << 20;

/// The attributes of an image.
#[derive(Debug)]
pub(super) struct Attributes {
    /// Where their names and values begin; `None` where there are none.
    table: Option<u64>,
    /// How many lists of them there are, and where the list of the blocks that tell where they are begins.
    count: u32,
    list: u64,
    /// What was read, or what is wrong with it. Many files have the same ones.
    known: HashMap<u32, Result<Rc<Xattrs>, String>>,
    /// Bytes of what is known.
    known_bytes: u64,
    /// What reading has cost, and may cost.
    cost: u64,
    most: u64,
    /// Bytes that had been decoded when the cost was counted last.
    decoded: u64,
    /// What may still be handed out.
    told: OfAttributes,
}

impl Attributes {
    /// Of an image with `data` bytes that are no holes, one of so many `shares`, whose table of them begins at byte
    /// `table`, and which is read through `read_at`.
    pub(super) fn new(
        table: u64,
        (data, shares): (u64, u64),
        read_at: impl Fn(u64) -> io::Result<[u8; 16]>,
    ) -> io::Result<Self> {
        let most = READ.of(data, shares).saturating_add(data.min(LARGE).saturating_mul(FOR_EACH_BYTE));
        let (known, known_bytes, cost, decoded) = Default::default();
        let told = OfAttributes::new(data, shares);
        let mut attributes = Self { table: None, count: 0, list: 0, known, known_bytes, cost, most, decoded, told };
        if table != NO_TABLE {
            let header = read_at(table)?;
            let mut fields = Fields(&header);
            attributes.table = Some(fields.u64()?);
            attributes.count = fields.u32()?;
            attributes.list = table.saturating_add(header.len() as u64);
        }
        Ok(attributes)
    }

    /// List `number`.
    pub(super) fn list(&mut self, metadata: &mut Metadata<'_>, number: u32, limits: &Limits) -> io::Result<Xattrs> {
        let Some(table) = self.table.filter(|_| number != NO_XATTRS) else { return Ok(Vec::new()) };
        let list = match self.known.get(&number) {
            Some(Ok(list)) => Rc::clone(list),
            Some(Err(what)) => return Err(damaged(what.as_str())),
            None => self.new_list(metadata, table, number, limits)?,
        };
        if !self.told.take(&list) {
            self.table = None;
            return Err(damaged(format!("{TOO_MANY_ATTRIBUTES}; others are left out")));
        }
        Ok(list.to_vec())
    }

    /// The same of one that is not known.
    fn new_list(
        &mut self,
        metadata: &mut Metadata<'_>,
        table: u64,
        number: u32,
        limits: &Limits,
    ) -> io::Result<Rc<Xattrs>> {
        self.decoded = metadata.decoded();
        metadata.count_elsewhere(true);
        let list = self.read(metadata, table, number, limits).map(Rc::new);
        metadata.count_elsewhere(false);
        // Also what came before an error.
        self.charge(metadata, 0)?;
        let of_one =
            |(name, value): &(Vec<u8>, Vec<u8>)| OF_ONE.saturating_add(name.len().saturating_add(value.len()) as u64);
        let bytes = list.iter().flat_map(|list| list.iter()).map(of_one).fold(OF_ONE, u64::saturating_add);
        self.known_bytes = self.known_bytes.saturating_add(bytes);
        if self.known.len() >= MOST_KNOWN || self.known_bytes > MOST_OF_KNOWN {
            self.known.clear();
            self.known_bytes = bytes;
        }
        let known = match &list {
            Ok(list) => Ok(Rc::clone(list)),
            // It may be right the next time.
            Err(error) if error.kind() != io::ErrorKind::InvalidData => return list,
            Err(error) => Err(error.to_string()),
        };
        self.known.insert(number, known);
        list
    }

    /// Adds `bytes`, and what was decoded since the last time, to what reading has cost.
    fn charge(&mut self, metadata: &Metadata<'_>, bytes: u64) -> io::Result<()> {
        let decoded = metadata.decoded().saturating_sub(self.decoded);
        self.decoded = metadata.decoded();
        self.cost = self.cost.saturating_add(decoded).saturating_add(bytes);
        if self.cost > self.most {
            self.table = None;
            return Err(damaged("reading the extended attributes takes too long; others are left out"));
        }
        Ok(())
    }

    fn read(&mut self, metadata: &mut Metadata<'_>, table: u64, number: u32, limits: &Limits) -> io::Result<Xattrs> {
        if number >= self.count {
            return Err(damaged(format!("list {number} of {}", self.count)));
        }
        let entry = metadata.entry::<16>(self.list, number.into())?;
        let mut fields = Fields(&entry);
        let mut place = Place::new(table, fields.u64()?)?;
        let count = fields.u32()?;
        if count as usize > limits.xattrs {
            return Err(damaged(format!("{count} of them, more than {}", limits.xattrs)));
        }
        let (mut list, mut bytes) = (Vec::new(), 0_usize);
        for _ in 0..count {
            let kind = u16::from_le_bytes(metadata.array(&mut place)?);
            let length = u16::from_le_bytes(metadata.array(&mut place)?);
            let prefix = match kind & !IS_ELSEWHERE {
                0 => &b"user."[..],
                1 => b"trusted.",
                2 => b"security.",
                kind => return Err(damaged(format!("one of kind {kind}, which there is not"))),
            };
            let mut name = prefix.to_vec();
            name.resize(prefix.len().saturating_add(length.into()), 0);
            metadata.read(&mut place, name.get_mut(prefix.len()..).unwrap_or_default())?;
            self.charge(metadata, OF_ONE.saturating_add(name.len() as u64))?;
            let mut value = self.value(metadata, &mut place, limits)?;
            if kind & IS_ELSEWHERE != 0 {
                let reference = value.try_into().map_err(|_| damaged("one that does not say where its value is"))?;
                let mut elsewhere = Place::new(table, u64::from_le_bytes(reference))?;
                value = self.value(metadata, &mut elsewhere, limits)?;
            }
            let of_this = name.len().saturating_add(value.len());
            bytes = bytes.saturating_add(of_this);
            if bytes > MOST_OF_ONE {
                return Err(damaged("those of one file take more than 32 MiB"));
            }
            if name.len() > limits.name || name.contains(&0) || name.len() == prefix.len() {
                return Err(damaged("one with a name that it cannot have"));
            }
            list.push((name, value));
        }
        Ok(list)
    }

    fn value(&mut self, metadata: &mut Metadata<'_>, place: &mut Place, limits: &Limits) -> io::Result<Vec<u8>> {
        let length = u32::from_le_bytes(metadata.array(place)?) as usize;
        if length > limits.xattr_value {
            return Err(damaged(format!("one of {length} bytes, more than {}", limits.xattr_value)));
        }
        let mut value = vec![0; length];
        metadata.read(place, &mut value)?;
        self.charge(metadata, length as u64)?;
        Ok(value)
    }
}
