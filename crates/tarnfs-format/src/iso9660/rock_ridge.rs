//! What stands behind the name of a record: fields of the System Use Sharing Protocol (SUSP 1.12), which Rock Ridge
//! (RRIP 1.12), zisofs and libisofs (AAIP 2.0) fill.

use std::io;

use super::bytes::{long_time, short_time, u32_at};
use super::zisofs::Packed;
use crate::{Time, Xattrs};

/// Areas in which the fields of one record go on, and bytes of one.
const MOST_AREAS: usize = 64;
const LONGEST_AREA: u32 = 64 << 10;
/// Bytes of a name or of the target of a link, and of all attributes of a file.
const MOST_TEXT: usize = 60 << 10;
const MOST_ATTRIBUTES: usize = 1 << 20;

/// A text goes on in the next field or component.
const CONTINUES: u8 = 1;
const CURRENT: u8 = 1 << 1;
const PARENT: u8 = 1 << 2;
const ROOT: u8 = 1 << 3;

/// What the fields of a record say.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// The name, as long as the file system had it.
    pub(super) name: Option<Vec<u8>>,
    pub(super) posix: Option<Posix>,
    /// The number of a device: major and minor.
    pub(super) device: Option<(u32, u32)>,
    /// Target of a symbolic link.
    pub(super) target: Vec<u8>,
    pub(super) mtime: Option<Time>,
    pub(super) atime: Option<Time>,
    pub(super) ctime: Option<Time>,
    /// This stands in place of a folder that lies too deep: the block in which the listing of that begins.
    pub(super) child: Option<u64>,
    /// A folder that is shown elsewhere.
    pub(super) is_relocated: bool,
    /// The content is compressed.
    pub(super) packed: Option<Packed>,
    /// Why the content cannot be read.
    pub(super) unreadable: Option<&'static str>,
    /// There is an access list, which is not shown.
    pub(super) has_access_list: bool,
    /// There are attributes that have no place in a file system, or too many of them.
    pub(super) has_lost_attributes: bool,
    pub(super) xattrs: Xattrs,
}

/// What POSIX says of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posix {
    /// Kind and permission bits.
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    /// Since 1.12.
    pub(super) inode: Option<u32>,
}

/// Where fields go on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub(super) block: u32,
    /// Bytes into that block, and of the area.
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// How many bytes of each record belong to somebody else, if `system_use` of the root's record says that it has such
/// fields.
pub(super) fn skipped(system_use: &[u8]) -> Option<usize> {
    // Those of a CD-ROM XA stand behind 14 bytes of that.
    [0, 14].iter().find_map(|&at| match system_use.get(at..)? {
        &[b'S', b'P', 7, 1, 0xbe, 0xef, skipped, ..] => Some(skipped.into()),
        _ => None,
    })
}

/// What `system_use` says, and the areas in which it goes on, which `read` reads. After an error, what the areas before
/// say.
pub(super) fn read(system_use: &[u8], mut read: impl FnMut(Area) -> io::Result<Vec<u8>>) -> (Fields, io::Result<()>) {
    let mut fields = Fields::default();
    let mut texts = Texts::default();
    let mut next = fields.add(system_use, &mut texts);
    let mut failed = Ok(());
    for _ in 0..MOST_AREAS {
        let Some(area) = next.filter(|area| area.length > 0 && area.length <= LONGEST_AREA) else { break };
        match read(area) {
            Ok(bytes) => next = fields.add(&bytes, &mut texts),
            Err(error) => {
                failed = Err(error);
                break;
            }
        }
    }
    let pairs = pairs(&texts.attributes);
    if let Some([_, list]) = pairs.iter().find(|[name, _]| name.is_empty()) {
        fields.has_access_list = true;
        // The group's bits of the mode are those that the list gives to anybody.
        if let Some((posix, group)) = fields.posix.as_mut().zip(owning_group(list)) {
            posix.mode &= !0o070 | group << 3;
        }
    }
    let named = pairs.into_iter().filter(|[name, _]| !name.is_empty()).collect::<Vec<_>>();
    let all = named.len();
    fields.xattrs = named.into_iter().filter_map(|[name, value]| Some((full_name(&name)?, value))).collect();
    fields.has_lost_attributes = fields.xattrs.len() < all || texts.attributes.len() >= MOST_ATTRIBUTES;
    (fields, failed)
}

/// Texts that may go on in the next field.
#[derive(Debug, Default)]
struct Texts {
    /// The last component of a target has not ended.
    is_inside: bool,
    /// The components of names and values, each with its length and whether it goes on.
    attributes: Vec<u8>,
}

impl Fields {
    /// Adds the fields in `area`. Returns where they go on.
    fn add(&mut self, mut area: &[u8], texts: &mut Texts) -> Option<Area> {
        let mut next = None;
        while let &[first, second, length, _version, ..] = area
            && let Some((field, rest)) = area.split_at_checked(length.into())
            && let Some(data) = field.get(4..)
        {
            area = rest;
            match &[first, second] {
                b"ST" => break,
                b"CE" => {
                    let numbers = (u32_at(data, 0), u32_at(data, 8), u32_at(data, 16));
                    if let (Some(block), Some(offset), Some(length)) = numbers {
                        next = Some(Area { block, offset, length });
                    }
                }
                b"NM" => self.add_name(data),
                b"SL" => self.add_target(data, texts),
                b"PX" => self.posix = posix(data),
                b"PN" => self.device = u32_at(data, 0).zip(u32_at(data, 8)).map(device),
                b"TF" => self.add_times(data),
                b"CL" => self.child = u32_at(data, 0).map(u64::from),
                b"RE" => self.is_relocated = true,
                b"ZF" => match Packed::parse(field) {
                    Some(packed) => self.packed = Some(packed),
                    None => self.unreadable = Some("it is compressed in a way that is not known"),
                },
                b"SF" => self.unreadable = Some("sparse files of Rock Ridge cannot be read"),
                b"AL" if texts.attributes.len() < MOST_ATTRIBUTES => {
                    texts.attributes.extend_from_slice(data.get(1..).unwrap_or_default());
                }
                _ => {}
            }
        }
        next
    }

    fn add_name(&mut self, data: &[u8]) {
        let Some((&flags, text)) = data.split_first() else { return };
        // Of the folder itself and of the one that it is in.
        if flags & (CURRENT | PARENT) != 0 {
            return;
        }
        let name = self.name.get_or_insert_default();
        if name.len() < MOST_TEXT {
            name.extend_from_slice(text);
        }
    }

    fn add_target(&mut self, data: &[u8], texts: &mut Texts) {
        let mut components = data.get(1..).unwrap_or_default();
        while let &[flags, length, ..] = components
            && let Some((component, rest)) = components.get(2..).and_then(|rest| rest.split_at_checked(length.into()))
        {
            components = rest;
            if self.target.len() >= MOST_TEXT {
                return;
            }
            if !texts.is_inside && !self.target.is_empty() && !self.target.ends_with(b"/") {
                self.target.push(b'/');
            }
            self.target.extend_from_slice(match flags & (CURRENT | PARENT | ROOT) {
                CURRENT => b".",
                PARENT => b"..",
                ROOT => b"/",
                _ => component,
            });
            texts.is_inside = flags & CONTINUES != 0;
        }
    }

    fn add_times(&mut self, data: &[u8]) {
        let Some((&flags, mut rest)) = data.split_first() else { return };
        let is_long = flags & (1 << 7) != 0;
        let length = if is_long { 17 } else { 7 };
        for bit in 0..4 {
            if flags & (1 << bit) == 0 {
                continue;
            }
            let Some((bytes, behind)) = rest.split_at_checked(length) else { return };
            rest = behind;
            let time = if is_long { long_time(bytes) } else { short_time(bytes) };
            match bit {
                1 => self.mtime = time,
                2 => self.atime = time,
                3 => self.ctime = time,
                // When it was made.
                _ => {}
            }
        }
    }
}

fn posix(data: &[u8]) -> Option<Posix> {
    Some(Posix {
        mode: u32_at(data, 0)?,
        links: u32_at(data, 8)?,
        user: u32_at(data, 16)?,
        group: u32_at(data, 24)?,
        inode: u32_at(data, 32),
    })
}

/// Where the upper half says nothing, both numbers stand in the lower one, as Linux packs 12 and 20 bits.
fn device((high, low): (u32, u32)) -> (u32, u32) {
    if high == 0 { (low >> 8 & 0xfff, low & 0xff | low >> 12 & 0xf_ff00) } else { (high, low) }
}

/// The names and values in a list of components: a name, its value, and so on. Of each component, the first byte is a
/// flag, and the second one the length.
fn pairs(mut list: &[u8]) -> Vec<[Vec<u8>; 2]> {
    let mut texts = Vec::new();
    let mut text = Vec::new();
    while let &[flags, length, ..] = list
        && let Some((component, rest)) = list.get(2..).and_then(|rest| rest.split_at_checked(length.into()))
    {
        list = rest;
        text.extend_from_slice(component);
        if flags & CONTINUES == 0 {
            texts.push(std::mem::take(&mut text));
        }
    }
    let mut texts = texts.into_iter();
    std::iter::from_fn(|| Some([texts.next()?, texts.next()?])).collect()
}

/// What the owning group may do by an access list of libisofs. Each entry is a byte: its kind, whether a number or a
/// name follows with its length before it, and three permissions.
fn owning_group(mut list: &[u8]) -> Option<u32> {
    /// Kinds, and where the list for new files begins.
    const GROUP: u8 = 3;
    const DEFAULT: u8 = 8;
    while let &[entry, ref rest @ ..] = list {
        match entry >> 4 {
            GROUP => return Some(u32::from(entry & 7)),
            DEFAULT => break,
            _ => {}
        }
        let followed = entry & 8 != 0;
        let length = rest.first().filter(|_| followed).map_or(0, |length| usize::from(length & 0x7f).saturating_add(1));
        list = rest.get(length..)?;
    }
    None
}

/// A name with its namespace, which is one byte. `None` for what only libisofs understands, and for access lists, which
/// it stores in a form of its own.
fn full_name(name: &[u8]) -> Option<Vec<u8>> {
    let (first, rest) = name.split_first()?;
    let namespace = match first {
        3 => &b"user."[..],
        5 => b"trusted.",
        6 => b"security.",
        _ => return None,
    };
    (!rest.is_empty() && !rest.contains(&0)).then(|| [namespace, rest].concat())
}
