//! zip, with zip64, as APPNOTE 6.3.10 and Info-ZIP's extrafld.txt have it.
//!
//! The directory at the end says all but one thing: how long the local header before each content is. It is read in
//! parts, and nothing before it is; [`find_content`] reads a local header when its member is opened. `end` finds the
//! directory, `central` walks it, `extra` reads the fields behind a header, `member` makes an [`Entry`] of both,
//! `coders` says what undoes the content. `reader` does all that in order. Where the directory is missing or damaged,
//! `scan` finds members by their local headers.
//!
//! What `unzip` and Python's zipfile make of an archive is the reference. What is so on purpose:
//!
//! - Members are told in the order in which they lie in the archive, so of two with the same name the one further
//!   back is the later one. The directory has the same order, unless an archive was put together in another way.
//! - Times of DOS are local time of nobody knows whom: they are taken for UTC. Most archives of today have better ones
//!   beside them.
//! - Only the directory is read, so times of the last access that stand in local headers only are not told. Times of
//!   creation have no place in an [`Entry`].
//! - A member without an owner belongs to user and group 0, and has the mode 0644 or 0755 if it has none.
//! - Members that overlap cannot be read, but the last of them: archives that pack the same bytes many times are bombs.
//! - The target of a symbolic link is the content of its member: such an entry has a body, and an empty link.

mod central;
mod coders;
mod end;
mod extra;
mod local;
mod member;
mod reader;
mod scan;
mod step;
mod window;

use std::io;

use tarnfs_source::{SharedSource, Source};

pub use step::{Coder, Step};

use crate::{Damage, Entry, Error, Options};
use member::Member;

/// What an archive tells.
#[derive(Debug)]
pub enum Told {
    /// How content is undone.
    Coder(Coder),
    /// A member.
    Member(Box<Packed>),
    /// Something is wrong.
    Damage(Damage),
}

/// A member and its content.
#[derive(Debug)]
pub struct Packed {
    /// Its attributes.
    pub entry: Entry,
    /// Length.
    pub size: u64,
    /// Bytes stored.
    pub stored: u64,
    /// CRC-32 of the content.
    pub crc: Option<u32>,
    /// Coder.
    pub coder: u32,
}

fn body(member: Member, coder: u32) -> Told {
    let Member { entry, size, stored, crc, .. } = member;
    Told::Member(Box::new(Packed { entry: *entry, size, stored, crc, coder }))
}

/// Reads an archive.
pub fn read(
    source: &SharedSource,
    options: &Options,
    receive: &mut dyn FnMut(Told) -> io::Result<()>,
) -> Result<(), Error> {
    reader::Reader::new(&**source, options, receive).run()
}

/// Where the content of the member begins whose local header is at byte `header`.
pub fn find_content(source: &dyn Source, header: u64) -> io::Result<u64> {
    local::find_content(source, header)
}
