//! zip with what Info-ZIP adds for Unix: modes, owners, times, symbolic links (PKWARE's APPNOTE 6.3.10, Info-ZIP's
//! `extrafld.txt`).
//!
//! Files are deflated, or stored where that is not shorter. A small one is a single job; one that is larger is cut into
//! parts that several threads deflate, each with the end of the part before it as a dictionary, as pigz has it.

mod directory;

use std::fmt;
use std::io;
use std::ops::RangeInclusive;

use libdeflater::{CompressionLvl, Compressor as Deflater};
use tarnfs_format::{Entry, Kind, Time};
use zlib_rs::{Deflate, DeflateFlush};

use crate::container::{Container, Keeps, is_acl};
use crate::pipeline::{Pipeline, Sink, Work};
use crate::sidecar::Pool;
use crate::stream::Writing;
use crate::{ArchiveWriter, Content, Finished, Missing, Output};

use directory::Directory;

/// Bytes in a part of a large file.
const PART: usize = 512 << 10;
/// Bytes that deflate looks back at most.
const WINDOW: usize = 1 << WINDOW_BITS;
const WINDOW_BITS: u8 = 15;
/// Parts, small files among them, that wait for each thread at most.
const WAITING: usize = 16;

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const END_64_PLACE: u32 = 0x0706_4b50;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// Lengths and CRC-32 stand behind the data.
const HAS_DESCRIPTOR: u16 = 1 << 3;
const IS_UTF8: u16 = 1 << 11;
const UNIX: u16 = 3 << 8;
/// Version 3.0 of the description.
const MADE_BY: u16 = 0x1e;
const VERSION: u16 = 20;
const VERSION_64: u16 = 45;
/// From this on a length has no room in four bytes.
const LARGE: u64 = u32::MAX as u64;
/// A file that is so long may grow past that by what deflate adds.
const NEARLY_LARGE: u64 = LARGE - (16 << 20);

/// Levels of deflate; 0 only stores.
const LEVELS: RangeInclusive<i32> = 0..=9;
/// The one that is taken if none is named.
const USUAL_LEVEL: i32 = 6;

/// What is written of an entry before its data.
#[derive(Debug, Default)]
struct Member {
    path: Vec<u8>,
    mode: u32,
    is_folder: bool,
    mtime: Time,
    /// Where it is another one.
    atime: Option<Time>,
    owner: (u32, u32),
    /// As far as is known before it is read.
    size: u64,
}

/// A part of a member's data.
struct Part {
    /// With the first one.
    member: Option<Box<Member>>,
    data: Vec<u8>,
    /// The window before `data`.
    before: Vec<u8>,
    is_last: bool,
    packed: Vec<u8>,
    crc: crc32fast::Hasher,
}

impl Part {
    /// All of a member.
    fn is_all(&self) -> bool {
        self.member.is_some() && self.is_last
    }
}

/// Deflates parts.
struct Packer {
    level: i32,
    /// For what is a part of its own.
    whole: Option<Deflater>,
}

impl Packer {
    fn pack(&mut self, mut part: Part) -> io::Result<Part> {
        let failed = |what: &dyn fmt::Display| io::Error::other(format!("deflating failed: {what}"));
        part.crc.update(&part.data);
        if part.is_all() && (self.level == 0 || part.data.is_empty()) {
            return Ok(part);
        }
        if part.is_all() {
            let deflater = match &mut self.whole {
                Some(deflater) => deflater,
                none => {
                    let level = CompressionLvl::new(self.level).map_err(|error| failed(&format!("{error:?}")))?;
                    none.insert(Deflater::new(level))
                }
            };
            part.packed.resize(deflater.deflate_compress_bound(part.data.len()), 0);
            let length = deflater.deflate_compress(&part.data, &mut part.packed).map_err(|error| failed(&error))?;
            part.packed.truncate(length);
            return Ok(part);
        }
        // A new one for each part: one that was used before finds other matches, and the bytes would depend on which
        // thread packs which part. Level 1 of this library makes noise longer by an eighth. What is only stored has the
        // form of deflate, too: the length of other data must stand before them for who reads a zip from its start.
        let level = if self.level == 0 { 0 } else { self.level.max(2) };
        let mut deflate = Deflate::new(level, false, WINDOW_BITS);
        if !part.before.is_empty() {
            deflate.set_dictionary(&part.before).map_err(|error| failed(&error.as_str()))?;
        }
        // Stored blocks at worst, and the empty one that ends a part at a byte.
        part.packed.resize(part.data.len() + part.data.len() / 1000 + 1024, 0);
        let flush = if part.is_last { DeflateFlush::Finish } else { DeflateFlush::SyncFlush };
        deflate.compress(&part.data, &mut part.packed, flush).map_err(|error| failed(&error.as_str()))?;
        let (read, written) = (deflate.total_in() as usize, deflate.total_out() as usize);
        if read != part.data.len() || written >= part.packed.len() {
            return Err(failed(&"it has become too long"));
        }
        part.packed.truncate(written);
        Ok(part)
    }
}

/// The member whose parts are being written.
#[derive(Debug)]
struct Open {
    member: Box<Member>,
    /// Where its header begins.
    start: u64,
    method: u16,
    size: u64,
    packed: u64,
    crc: crc32fast::Hasher,
}

/// Writes parts in order, and notes what the directory will say.
struct Ordered {
    output: Output,
    position: u64,
    directory: Directory,
    open: Option<Open>,
    pool: Pool,
}

fn put<const N: usize>(into: &mut Vec<u8>, bytes: [u8; N]) {
    into.extend_from_slice(&bytes);
}

fn put_field(into: &mut Vec<u8>, id: u16, data: &[u8]) {
    put(into, id.to_le_bytes());
    put(into, (data.len() as u16).to_le_bytes());
    into.extend_from_slice(data);
}

/// A time in the format of DOS, in UTC; the other fields say it exactly. What it cannot say is its first day.
fn dos_time(time: Time) -> (u16, u16) {
    const FIRST: (u16, u16) = (0, 1 << 5 | 1);
    const DAY: i64 = 86_400;
    let (days, second) = (time.seconds.div_euclid(DAY), time.seconds.rem_euclid(DAY));
    let Some((year, month, day)) = civil(days).filter(|(year, _, _)| (1980..2108).contains(year)) else {
        return FIRST;
    };
    let clock = (second / 3600) << 11 | (second / 60 % 60) << 5 | (second % 60 / 2);
    let date = (year - 1980) << 9 | month << 5 | day;
    (clock as u16, date as u16)
}

/// Year, month and day of a number of days since 1970: Howard Hinnant's `civil_from_days`.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    let shifted = days.checked_add(719_468)?;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    Some((year + era * 400 + i64::from(month <= 2), month, day))
}

/// A time as NTFS counts it: 100 ns, from 1601 on. `None` of one that it cannot say.
fn ticks(time: Time) -> Option<u64> {
    let whole = time.seconds.checked_add(11_644_473_600)?.checked_mul(10_000_000)?;
    // Zero says nothing.
    u64::try_from(whole).ok()?.checked_add((time.nanoseconds / 100).into()).filter(|ticks| *ticks > 0)
}

/// True if the times of an entry can be kept.
fn tells_times(entry: &Entry) -> bool {
    match entry.atime {
        None => i32::try_from(entry.mtime.seconds).is_ok() || ticks(entry.mtime).is_some(),
        Some(atime) => ticks(entry.mtime).is_some() && ticks(atime).is_some(),
    }
}

impl Member {
    /// Times and owner, for the header before the data or for the directory.
    fn extra(&self) -> Vec<u8> {
        let mut extra = Vec::new();
        if let Ok(seconds) = i32::try_from(self.mtime.seconds) {
            put_field(&mut extra, 0x5455, &[&[1], &seconds.to_le_bytes()[..]].concat());
        }
        // Info-ZIP's field has whole seconds until 2038, and only one time where it is in the directory.
        let is_told = self.mtime.nanoseconds == 0 && i32::try_from(self.mtime.seconds).is_ok() && self.atime.is_none();
        if let Some(mtime) = ticks(self.mtime).filter(|_| !is_told) {
            let mut field = vec![0, 0, 0, 0, 1, 0, 24, 0];
            for time in [mtime, self.atime.and_then(ticks).unwrap_or(mtime), mtime] {
                put(&mut field, time.to_le_bytes());
            }
            put_field(&mut extra, 0x000a, &field);
        }
        let (user, group) = self.owner;
        put_field(&mut extra, 0x7875, &[&[1, 4], &user.to_le_bytes()[..], &[4], &group.to_le_bytes()].concat());
        extra
    }

    fn flags(&self) -> u16 {
        let needs = !self.path.is_ascii() && std::str::from_utf8(&self.path).is_ok();
        if needs { IS_UTF8 } else { 0 }
    }
}

impl Ordered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// The header before the data. `known`: method, CRC-32, packed length and length; without, they come behind it.
    fn local(&mut self, member: &Member, method: u16, known: Option<(u32, u64, u64)>) -> io::Result<()> {
        let mut extra = member.extra();
        let is_large = known.map_or(member.size >= NEARLY_LARGE, |(_, packed, size)| packed.max(size) >= LARGE);
        let (crc, packed, size) = known.unwrap_or_default();
        let (mut packed_32, mut size_32) = (packed as u32, size as u32);
        if is_large {
            (packed_32, size_32) = (u32::MAX, u32::MAX);
            let mut field = Vec::new();
            put_field(&mut field, 1, &[size.to_le_bytes(), packed.to_le_bytes()].concat());
            field.append(&mut extra);
            extra = field;
        }
        let (clock, date) = dos_time(member.mtime);
        let mut header = Vec::with_capacity(30 + member.path.len() + extra.len());
        put(&mut header, LOCAL.to_le_bytes());
        put(&mut header, (if is_large { VERSION_64 } else { VERSION }).to_le_bytes());
        put(&mut header, (member.flags() | if known.is_none() { HAS_DESCRIPTOR } else { 0 }).to_le_bytes());
        put(&mut header, method.to_le_bytes());
        put(&mut header, clock.to_le_bytes());
        put(&mut header, date.to_le_bytes());
        put(&mut header, crc.to_le_bytes());
        put(&mut header, packed_32.to_le_bytes());
        put(&mut header, size_32.to_le_bytes());
        put(&mut header, (member.path.len() as u16).to_le_bytes());
        put(&mut header, (extra.len() as u16).to_le_bytes());
        header.extend_from_slice(&member.path);
        header.extend_from_slice(&extra);
        self.write(&header)
    }

    /// What the directory says of a member of which all was written.
    fn close(&mut self, open: Open, has_descriptor: bool) -> io::Result<()> {
        let Open { member, start, method, size, packed, crc } = open;
        let mut large = Vec::new();
        let mut short = |number: u64| {
            if number >= LARGE {
                put(&mut large, number.to_le_bytes());
                u32::MAX
            } else {
                number as u32
            }
        };
        // In this order they stand in the field.
        let (size_32, packed_32, start_32) = (short(size), short(packed), short(start));
        let is_large = !large.is_empty();
        let mut extra = Vec::new();
        if is_large {
            put_field(&mut extra, 1, &large);
        }
        extra.append(&mut member.extra());
        let (clock, date) = dos_time(member.mtime);
        let mut fixed = Vec::with_capacity(directory::FIXED);
        let out = &mut fixed;
        put(out, CENTRAL.to_le_bytes());
        put(out, (UNIX | MADE_BY).to_le_bytes());
        put(out, (if is_large { VERSION_64 } else { VERSION }).to_le_bytes());
        put(out, (member.flags() | if has_descriptor { HAS_DESCRIPTOR } else { 0 }).to_le_bytes());
        put(out, method.to_le_bytes());
        put(out, clock.to_le_bytes());
        put(out, date.to_le_bytes());
        put(out, crc.finalize().to_le_bytes());
        put(out, packed_32.to_le_bytes());
        put(out, size_32.to_le_bytes());
        put(out, (member.path.len() as u16).to_le_bytes());
        put(out, (extra.len() as u16).to_le_bytes());
        // No comment, first disk, nothing known of whether it is text.
        put(out, [0; 6]);
        let dos: u32 = if member.is_folder { 0x10 } else { 0 };
        put(out, (member.mode << 16 | dos).to_le_bytes());
        put(out, start_32.to_le_bytes());
        self.directory.push(&fixed, &member.path, &extra)
    }

    /// The directory and what leads to it, and the comment.
    fn end(&mut self, comment: &[u8]) -> io::Result<()> {
        let (start, directory) = (self.position, std::mem::take(&mut self.directory));
        let members = directory.members();
        directory.write(&mut |bytes| self.write(bytes))?;
        let length = self.position - start;
        let mut end = Vec::new();
        if start >= LARGE || length >= LARGE || members >= 0xffff {
            let place = self.position;
            put(&mut end, END_64.to_le_bytes());
            put(&mut end, 44_u64.to_le_bytes());
            put(&mut end, (UNIX | VERSION_64).to_le_bytes());
            put(&mut end, VERSION_64.to_le_bytes());
            put(&mut end, [0; 8]);
            for number in [members, members, length, start] {
                put(&mut end, number.to_le_bytes());
            }
            put(&mut end, END_64_PLACE.to_le_bytes());
            put(&mut end, [0; 4]);
            put(&mut end, place.to_le_bytes());
            put(&mut end, 1_u32.to_le_bytes());
        }
        let short = members.min(0xffff) as u16;
        put(&mut end, END.to_le_bytes());
        put(&mut end, [0; 4]);
        put(&mut end, short.to_le_bytes());
        put(&mut end, short.to_le_bytes());
        put(&mut end, (length.min(LARGE) as u32).to_le_bytes());
        put(&mut end, (start.min(LARGE) as u32).to_le_bytes());
        put(&mut end, (comment.len() as u16).to_le_bytes());
        end.extend_from_slice(comment);
        self.write(&end)
    }
}

impl Sink<Part> for Ordered {
    fn take(&mut self, mut part: Part) -> io::Result<()> {
        let is_all = part.is_all();
        if let Some(member) = part.member.take() {
            let start = self.position;
            let is_shorter = !part.packed.is_empty() && part.packed.len() < part.data.len();
            let is_deflated = !is_all || is_shorter;
            let method = if is_deflated { DEFLATED } else { STORED };
            let crc = crc32fast::Hasher::new();
            if is_all {
                let packed = if is_deflated { part.packed.len() } else { part.data.len() };
                let known = (part.crc.clone().finalize(), packed as u64, part.data.len() as u64);
                self.local(&member, method, Some(known))?;
            } else {
                self.local(&member, method, None)?;
            }
            self.open = Some(Open { member, start, method, size: 0, packed: 0, crc });
        }
        let Some(mut open) = self.open.take() else { return Err(io::ErrorKind::InvalidInput.into()) };
        let bytes = if open.method == DEFLATED { &part.packed } else { &part.data };
        self.write(bytes)?;
        open.packed += bytes.len() as u64;
        open.size += part.data.len() as u64;
        open.crc.combine(&part.crc);
        if part.is_last {
            if !is_all {
                let mut descriptor = DESCRIPTOR.to_le_bytes().to_vec();
                put(&mut descriptor, open.crc.clone().finalize().to_le_bytes());
                if open.member.size >= NEARLY_LARGE {
                    put(&mut descriptor, open.packed.to_le_bytes());
                    put(&mut descriptor, open.size.to_le_bytes());
                } else {
                    put(&mut descriptor, (open.packed as u32).to_le_bytes());
                    put(&mut descriptor, (open.size as u32).to_le_bytes());
                }
                self.write(&descriptor)?;
            }
            self.close(open, !is_all)?;
        } else {
            self.open = Some(open);
        }
        self.pool.give_back(part.data);
        self.pool.give_back(part.packed);
        Ok(())
    }
}

/// Writes a zip.
struct Zip {
    pipeline: Pipeline<Part, Part, Ordered>,
    pool: Pool,
    comment: Vec<u8>,
}

impl Zip {
    /// Bytes of memory for each thread, roughly.
    const MEMORY: u64 = (WAITING * 2 * PART) as u64 + (2 << 20);

    /// Starts its threads. Of `writing`, compression and index mean nothing here: a zip has a directory.
    fn new(writing: Writing) -> io::Result<Self> {
        let room = usize::try_from(writing.memory / Self::MEMORY).unwrap_or(usize::MAX);
        let threads = writing.threads.min(room).max(1);
        let level = writing.level;
        let work = || {
            let mut packer = Packer { level, whole: None };
            Box::new(move |part| packer.pack(part)) as Work<Part, Part>
        };
        let pool = Pool::default();
        let ordered = Ordered {
            output: writing.output,
            position: 0,
            directory: Directory::default(),
            open: None,
            pool: pool.clone(),
        };
        let works = (0..threads).map(|_| work()).collect();
        let pipeline = Pipeline::new(None, works, WAITING * threads, ordered)?;
        Ok(Self { pipeline, pool, comment: Vec::new() })
    }

    fn send(&mut self, member: Option<Box<Member>>, data: Vec<u8>, before: Vec<u8>, is_last: bool) -> io::Result<()> {
        let packed = self.pool.take(0);
        self.pipeline.send(Part { member, data, before, is_last, packed, crc: crc32fast::Hasher::new() })
    }
}

/// Fills `buffer` from `content`, and says how far it got.
fn fill(content: &dyn Content, buffer: &mut [u8], offset: u64, missing: &mut Missing) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() && missing.error.is_none() {
        match content.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => missing.error = Some(error),
        }
    }
    Ok(filled)
}

/// zip as it is written here.
pub(crate) struct InfoZip;

impl Container for InfoZip {
    fn name(&self) -> &'static str {
        "zip"
    }

    fn suffix(&self) -> &'static str {
        ".zip"
    }

    fn own_levels(&self) -> Option<(RangeInclusive<i32>, i32)> {
        Some((LEVELS, USUAL_LEVEL))
    }

    fn keeps(&self) -> Keeps {
        // Times are those of NTFS.
        Keeps { root: false, names: false, xattrs: false, holes: false, ctime: false, comment: true, time_unit: 100 }
    }

    fn why_not(&self, entry: &Entry) -> Option<&'static str> {
        match entry.kind {
            Kind::Socket => Some("a socket cannot be kept in a zip"),
            Kind::Fifo => Some("a named pipe cannot be kept in a zip"),
            Kind::CharacterDevice(_) | Kind::BlockDevice(_) => Some("a device cannot be kept in a zip"),
            _ if entry.path.len() >= 0xffff => Some("its path is too long for a zip"),
            _ => None,
        }
    }

    fn writer(&self, writing: Writing) -> io::Result<Box<dyn ArchiveWriter>> {
        Ok(Box::new(Zip::new(writing)?))
    }
}

impl ArchiveWriter for Zip {
    fn why_not(&self, entry: &Entry) -> Option<&'static str> {
        InfoZip.why_not(entry)
    }

    fn leaves_out(&self, entry: &Entry) -> Vec<&'static str> {
        let mut left_out = Vec::new();
        if entry.xattrs.iter().any(|(name, _)| !is_acl(name)) {
            left_out.push("extended attributes");
        }
        if entry.xattrs.iter().any(|(name, _)| is_acl(name)) {
            left_out.push("ACLs");
        }
        if entry.body.extents.is_some() {
            left_out.push("holes");
        }
        if !tells_times(entry) {
            left_out.push("times so far from now");
        }
        if [entry.uid, entry.gid].into_iter().any(|id| u32::try_from(id).is_err()) {
            left_out.push("owners with numbers so large");
        }
        left_out
    }

    fn loses(&self, entry: &Entry) -> Vec<&'static str> {
        let has_names = !entry.user.is_empty() || !entry.group.is_empty();
        if has_names { vec!["names of owners"] } else { Vec::new() }
    }

    fn has_hard_links(&self) -> bool {
        false
    }

    fn comment(&mut self, comment: &[u8]) -> bool {
        let has_room = u16::try_from(comment.len()).is_ok();
        if has_room {
            comment.clone_into(&mut self.comment);
        }
        has_room
    }

    fn add(&mut self, entry: &Entry, content: &dyn Content) -> io::Result<Missing> {
        const FOLDER: u32 = 0o040_000;
        const FILE: u32 = 0o100_000;
        const LINK: u32 = 0o120_000;
        let mut path = entry.path.clone();
        let (kind, is_folder) = match entry.kind {
            Kind::Folder => (FOLDER, true),
            Kind::Symlink => (LINK, false),
            _ => (FILE, false),
        };
        if is_folder && !path.ends_with(b"/") {
            path.push(b'/');
        }
        let size = if entry.kind == Kind::File { entry.body.size } else { 0 };
        let owner = |id: u64| u32::try_from(id).unwrap_or(u32::MAX);
        let member = Box::new(Member {
            path,
            mode: kind | entry.mode & 0o7777,
            is_folder,
            mtime: entry.mtime,
            atime: entry.atime,
            owner: (owner(entry.uid), owner(entry.gid)),
            size,
        });
        let mut missing = Missing::default();
        if entry.kind == Kind::Symlink {
            let mut data = self.pool.take(0);
            data.extend_from_slice(&entry.link);
            self.send(Some(member), data, Vec::new(), true)?;
            return Ok(missing);
        }
        let (mut member, mut before, mut at) = (Some(member), Vec::new(), 0);
        loop {
            let length = (size - at).min(PART as u64) as usize;
            let mut data = self.pool.take(length);
            let filled = fill(content, &mut data, at, &mut missing)?;
            data.truncate(filled);
            let is_short = filled < length;
            if is_short {
                missing.bytes = size - at - filled as u64;
            }
            at += filled as u64;
            let is_last = is_short || at == size;
            let window = if is_last { Vec::new() } else { data[data.len().saturating_sub(WINDOW)..].to_vec() };
            self.send(member.take(), data, std::mem::replace(&mut before, window), is_last)?;
            if is_last {
                return Ok(missing);
            }
        }
    }

    fn finish(self: Box<Self>) -> io::Result<Finished> {
        let mut ordered = self.pipeline.finish()?;
        ordered.end(&self.comment)?;
        Ok(Finished { output: ordered.output, index: None, length: ordered.position })
    }
}

impl fmt::Debug for Zip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Zip").field("pipeline", &self.pipeline).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_zip_cannot_say_of_times_is_known() {
        let time = |seconds| Time { seconds, nanoseconds: 0 };
        // 1336, 1601, 1960, 2040, and the year 40000.
        for (seconds, is_told) in [
            (-20_000_000_000, false),
            (-11_644_473_600, false),
            (-11_644_473_599, true),
            (-315_619_200, true),
            (2_208_988_800, true),
            (1_200_000_000_000, false),
        ] {
            let entry = Entry { mtime: time(seconds), ..Entry::default() };
            assert_eq!(tells_times(&entry), is_told, "{seconds}");
            let entry = Entry { mtime: time(0), atime: Some(time(seconds)), ..Entry::default() };
            assert_eq!(tells_times(&entry), is_told, "{seconds}");
        }
        let member = Member { mtime: time(1), atime: Some(Time { seconds: 2, nanoseconds: 300 }), ..Member::default() };
        let extra = member.extra();
        let field = [[0, 0, 0, 0, 1, 0, 24, 0], (116_444_736_010_000_000_u64).to_le_bytes()].concat();
        let found = extra.windows(field.len()).position(|bytes| bytes == field).unwrap();
        assert_eq!(extra[found + 16..found + 24], 116_444_736_020_000_003_u64.to_le_bytes());
    }

    #[test]
    fn days_of_dos() {
        let dos = |seconds| dos_time(Time { seconds, nanoseconds: 0 });
        // 2024-02-29 23:59:58.
        assert_eq!(dos(1_709_251_198), ((23 << 11) + (59 << 5) + 29, (44 << 9) + (2 << 5) + 29));
        assert_eq!(dos(0), (0, 33));
        assert_eq!(dos(i64::MAX), (0, 33));
        assert_eq!(dos(315_532_800), (0, 33));
    }
}
