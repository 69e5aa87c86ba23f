//! tar as POSIX has it since 2001 ("pax"), with what GNU tar and star add: extended attributes, ACLs, sparse files.
//!
//! A header of 512 bytes says what it has room for; what does not fit is in an extended header before it. That holds
//! nanoseconds, too, so most entries have one.

mod acl;
mod header;

use std::io;
use std::ops::RangeInclusive;

use tarnfs_format::{Entry, Kind};
use tarnfs_source::Extent;

use crate::container::{Container, Keeps, is_acl};
use crate::stream::BlockStream;
use crate::{ArchiveWriter, Content, Finished, Missing, Writing};

use header::Header;

/// Bytes that everything is a multiple of.
const BLOCK: u64 = 512;
/// Bytes that the whole is a multiple of, as `tar` has it.
const RECORD: u64 = 20 * BLOCK;

/// Writes a tar.
#[derive(Debug)]
struct Tar {
    out: BlockStream,
    /// Used again for each entry.
    pax: header::Pax,
    /// Access lists have numbers only.
    names_nobody: bool,
}

impl Tar {
    /// Writes what `content` has from `offset` on.
    fn copy(&mut self, content: &dyn Content, offset: u64, length: u64, missing: &mut Missing) -> io::Result<()> {
        let end = offset + length;
        let mut at = offset;
        while at < end && missing.error.is_none() {
            let room = self.out.room()?;
            let most = room.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            match content.read_at(&mut room[..most], at) {
                Ok(0) => break,
                Ok(read) => {
                    self.out.fill(read);
                    at += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => missing.error = Some(error),
            }
        }
        missing.bytes += end - at;
        self.out.put_zeros(end - at)
    }

    fn pad(&mut self) -> io::Result<()> {
        let position = self.out.position();
        self.out.put_zeros(position.next_multiple_of(BLOCK) - position)
    }
}

/// tar as it is written here.
pub(crate) struct Pax;

impl Container for Pax {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn suffix(&self) -> &'static str {
        ".tar"
    }

    fn own_levels(&self) -> Option<(RangeInclusive<i32>, i32)> {
        None
    }

    fn keeps(&self) -> Keeps {
        Keeps { root: true, names: true, xattrs: true, holes: true, ctime: true, comment: false, time_unit: 1 }
    }

    fn why_not(&self, entry: &Entry) -> Option<&'static str> {
        (entry.kind == Kind::Socket).then_some("a socket cannot be kept in a tar")
    }

    fn writer(&self, writing: Writing) -> io::Result<Box<dyn ArchiveWriter>> {
        Ok(Box::new(Tar { out: BlockStream::new(writing)?, pax: header::Pax::default(), names_nobody: false }))
    }
}

/// The map of a sparse file, as it stands before its data: format 1.0 of GNU tar.
fn sparse_map(extents: &[Extent], size: u64) -> Vec<u8> {
    let mut numbers: Vec<u64> = extents.iter().flat_map(|extent| [extent.offset, extent.length]).collect();
    // Without an end there, a hole at the end would not be seen.
    if extents.last().is_none_or(|last| last.offset + last.length < size) {
        numbers.extend([size, 0]);
    }
    let mut map = format!("{}\n", numbers.len() / 2);
    for number in numbers {
        map += &number.to_string();
        map.push('\n');
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK as usize), 0);
    map
}

impl ArchiveWriter for Tar {
    fn why_not(&self, entry: &Entry) -> Option<&'static str> {
        Pax.why_not(entry)
    }

    fn leaves_out(&self, _: &Entry) -> Vec<&'static str> {
        Vec::new()
    }

    fn has_hard_links(&self) -> bool {
        true
    }

    fn name_nobody(&mut self) {
        self.names_nobody = true;
    }

    fn add(&mut self, entry: &Entry, content: &dyn Content) -> io::Result<Missing> {
        self.pax.clear();
        let is_file = entry.kind == Kind::File;
        let map = entry.body.extents.as_ref().filter(|_| is_file).map(|extents| sparse_map(extents, entry.body.size));
        let data = match &entry.body.extents {
            Some(extents) if is_file => extents.iter().map(|extent| extent.length).sum(),
            _ if is_file => entry.body.size,
            _ => 0,
        };
        let stored = data + map.as_ref().map_or(0, |map| map.len() as u64);
        let mut header = Header::new(entry.kind, stored, &mut self.pax);
        if map.is_some() {
            header.sparse_name(&entry.path, entry.body.size, &mut self.pax);
        } else {
            header.name(&entry.path, entry.kind == Kind::Folder, &mut self.pax);
        }
        header.owner(entry, &mut self.pax);
        header.link(&entry.link, &mut self.pax);
        for (name, value) in &entry.xattrs {
            if is_acl(name) {
                let is_default = name.ends_with(b"default");
                match acl::text(value, !entry.user.is_empty() && !self.names_nobody) {
                    Some(text) => self.pax.acl(is_default, &text),
                    None => log::warn!(
                        "{}: an ACL is not understood and left out",
                        tarnfs_format::name::escape(&entry.path)
                    ),
                }
            } else {
                self.pax.xattr(name, value);
            }
        }
        if !self.pax.is_empty() {
            let before = Header::of_pax(&entry.path, self.pax.len(), entry.mtime);
            self.out.put(&before.finish())?;
            self.out.put(self.pax.bytes())?;
            self.pad()?;
        }
        self.out.put(&header.finish())?;
        let mut missing = Missing::default();
        if let Some(map) = map {
            self.out.put(&map)?;
            for extent in entry.body.extents.as_deref().unwrap_or_default() {
                self.copy(content, extent.offset, extent.length, &mut missing)?;
            }
        } else if data > 0 {
            self.copy(content, 0, data, &mut missing)?;
        }
        self.pad()?;
        Ok(missing)
    }

    fn finish(mut self: Box<Self>) -> io::Result<Finished> {
        let end = (self.out.position() + 2 * BLOCK).next_multiple_of(RECORD);
        let position = self.out.position();
        self.out.put_zeros(end - position)?;
        self.out.finish()
    }
}
