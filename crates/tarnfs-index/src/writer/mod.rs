//! Making an index.
//!
//! What [`Writer::add`] takes becomes a compact [`record`], which waits in the [`sort`]er. At the end the records go by
//! once, in the order of (folder, name); [`group`] decides what shows under each name, [`links`] what hard links are
//! names of, and [`output`] appends the rows. Nothing but the table of folders and a few bytes for each hard link and
//! for each archive in the archive grows with it.

mod allowance;
mod clashes;
mod classes;
mod finish;
mod folders;
mod group;
mod interner;
mod later;
mod latest;
mod layers;
mod links;
mod origins;
mod output;
mod pages;
pub(crate) mod record;
mod sort;
mod spool;
pub(crate) mod temporary;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tarnfs_codec::{Chunk, Damage};
use tarnfs_format::{Body, Coder, Entry, Kind, Piece, Xattrs, name};
use tarnfs_source::{Budget, Cancel, Limits, Setting};

use crate::own::{self, Known};
use crate::pieces;
use crate::{Error, FIRST_NESTED, Nested, Renamed, STORED_IN_PIECES, trust};

use allowance::Allowance;
use clashes::Clashes;
use classes::Classes;
use folders::{Folders, ROOT};
use interner::Interner;
use layers::Layers;
use links::Links;
use origins::Origins;
use record::{Builder, Numbers, Shared, Tag, more};
use sort::Sorter;
use spool::Overflow;

/// What shapes the writing of an index.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Bounds on paths.
    pub limits: Limits,
    /// What memory entries are gathered in; what does not fit goes to a temporary file without a name, on a disk if
    /// there is one.
    pub budget: Budget,
    /// Ends the writing, also of a large index, soon after it was asked for.
    pub cancel: Cancel,
}

/// Where an index goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A file, whose folder is made if need be. There is never a half index of that name.
    File(PathBuf),
    /// No name: it is in memory, or in a temporary file if it is too large for that. No disk is needed.
    Memory,
}

/// Makes an index in one pass: takes entries in the archive's order, sorts them once, writes them in order.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each says something else of what was found")]
pub struct Writer {
    limits: Limits,
    entries: u64,
    folders: Folders,
    clashes: Clashes,
    links: Links,
    sorter: Sorter,
    builder: Builder,
    classes: Classes,
    xattr_names: Interner,
    coders: Interner,
    layers: Layers,
    origins: Origins,
    /// Of each nested stream the one that it lies in, and where it begins there.
    starts: Vec<(u32, u64)>,
    /// How long each nested stream is that is known.
    lengths: Vec<u64>,
    /// The stream that the builder's entries lie in.
    stream: u32,
    has_xattrs: bool,
    has_acls: bool,
    /// Bytes of the longest file or link that has pieces, and of the longest nested stream; 0 if there is none.
    longest_in_pieces: u64,
    /// Notes on attributes that are left out.
    left_out: Vec<(u64, String)>,
    reach: Reach,
    /// True while all headers lie on multiples of [`BLOCK`].
    is_in_blocks: bool,
    /// The folder of the last path, and the start of the path that says so, its slash included.
    last_folder: (Vec<u8>, folders::Number),
    /// That folder is not where its path seems to lead.
    is_last_changed: bool,
    renamed: Renamed,
    /// Used again for each entry.
    scratch: Scratch,
    archive: Option<trust::Owner>,
    budget: Budget,
    /// Bytes of memory that all tables may take together.
    most_memory: usize,
    /// How many records there were when they began to be written, once those are completed that entries in another
    /// order than that of the archive leave out.
    completed: Option<u64>,
    /// They are all there.
    is_complete: bool,
    /// For what is too much for memory.
    overflow: Overflow,
    /// Bytes that all that is taken may have.
    most_bytes: u64,
    cancel: Cancel,
    /// See [`Writer::keeping_rows`].
    keeps_rows: bool,
    /// What is known without asking of the index that was written last.
    known: Known,
}

/// Byte at which the content that goes furthest ends.
#[derive(Debug, Default)]
struct Reach {
    /// In the archive's own stream.
    own: u64,
    /// In the nested one that comes.
    nested: u64,
    /// True if content goes past the end of a nested stream.
    is_nested_cut: bool,
}

#[derive(Debug, Default)]
struct Scratch {
    xattrs: Vec<u32>,
    pieces: Vec<u8>,
    coder: Vec<u8>,
    /// That of the last piece, and its number: those of one archive share few of them.
    last_coder: Option<(Arc<Coder>, u32)>,
    implied: Vec<folders::Number>,
}

/// Records of one index: each gets a number below 2³¹ for its node, and so does each that is replaced.
const MOST_RECORDS: u64 = (1 << 30) - 16;

/// Hard links without a target that are named one by one in the summary's notes.
const MOST_NAMED: usize = 100;

/// The part of the budget that one index in memory may have: it is one over this.
const IN_MEMORY: usize = 4;

/// Bytes that an index may have of any archive, and further ones for each byte of the archive's file. A header with
/// 16 MiB of attributes compresses to 3 KiB: an archive of 476 KB had an index of 2.5 GB. One of many empty files,
/// which compress well, has 5 to 10 bytes of index for each of its own.
const MOST_BYTES: u64 = 1 << 30;
const BYTES_FOR_EACH: u64 = 64;

/// How many times the memory budget what waits for the index may take where no disk takes it; what any may.
const WITHOUT_DISK: usize = 3;
const LEAST_WITHOUT_DISK: usize = 64 << 20;

/// Streams around an entry by which it finds its place among others of its name; as many as an archive has by default.
const MOST_AROUND: usize = 100;

/// Bytes that headers of a tar archive lie on multiples of.
const BLOCK: u64 = 512;

/// Page size of the file in bytes.
const PAGE: u32 = 4096;

/// An index without a name with up to this many bytes has smaller pages: each of its tables takes one at least, and a
/// mount may have thousands of small ones.
const SMALL: u64 = 64 << 10;
const SMALL_PAGE: u32 = 512;

impl Writer {
    /// A writer of one index.
    pub fn new(options: WriterOptions) -> Result<Self, Error> {
        Self::with(options, false)
    }

    /// A writer of an index that says what is secret. Nothing of it comes onto a disk unless it is written to a file
    /// that has a name.
    pub fn of_secrets(options: WriterOptions) -> Result<Self, Error> {
        Self::with(options, true)
    }

    #[allow(clippy::needless_pass_by_value, reason = "options are made for one writer")]
    fn with(options: WriterOptions, is_secret: bool) -> Result<Self, Error> {
        let memory = Budget::new(options.budget.limit().saturating_mul(WITHOUT_DISK).max(LEAST_WITHOUT_DISK));
        let overflow = if is_secret { Overflow::in_memory(&memory) } else { Overflow::on_disk(&memory) };
        let mut this = Self {
            limits: options.limits,
            entries: 0,
            folders: Folders::new(&options.budget),
            clashes: Clashes::default(),
            links: Links::new(&options.budget),
            sorter: Sorter::new(&options.budget, &overflow, options.cancel.clone()),
            builder: Builder::new(&overflow),
            classes: Classes::new(&overflow),
            xattr_names: Interner::new(&overflow),
            coders: Interner::new(&overflow),
            layers: Layers::new(&overflow),
            origins: Origins::new(&options.budget),
            starts: Vec::new(),
            lengths: Vec::new(),
            stream: 0,
            has_xattrs: false,
            has_acls: false,
            longest_in_pieces: 0,
            left_out: Vec::new(),
            reach: Reach::default(),
            is_in_blocks: true,
            last_folder: (Vec::new(), ROOT),
            is_last_changed: false,
            renamed: Renamed::default(),
            scratch: Scratch::default(),
            archive: None,
            most_memory: Allowance::together(&options.budget, Budget::memory_of_this_machine()),
            completed: None,
            is_complete: false,
            budget: options.budget,
            overflow,
            most_bytes: MOST_BYTES,
            cancel: options.cancel,
            keeps_rows: false,
            known: Known::default(),
        };
        this.limits.name = this.limits.name.min(usize::from(u8::MAX));
        this.sorter.push(this.builder.number(ROOT, b"", Tag::Marker, 0, ROOT))?;
        Ok(this)
    }

    /// Lets nobody read the index who may not read the archive, whose owner, group and permission bits are `archive`.
    /// Without this everybody may.
    #[must_use]
    pub fn readable_as(mut self, archive: trust::Owner) -> Self {
        self.archive = Some(archive);
        self
    }

    /// Lets the index grow with an archive whose file has so many bytes. Without this it has [`MOST_BYTES`].
    #[must_use]
    pub fn of_archive(mut self, length: u64) -> Self {
        self.most_bytes = most_bytes(length);
        self
    }

    /// Keeps the rows of a small index in memory, too, as long as it is open: for who goes through all of them once.
    #[must_use]
    pub fn keeping_rows(mut self, keeps: bool) -> Self {
        self.keeps_rows = keeps;
        self
    }

    /// Gives the folder at `path` its place, though there may be none in the end: folders lie in the order in which
    /// they are first named. For who adds entries in another order than that of the archive.
    pub fn expect_folder(&mut self, path: &[u8]) {
        let mut folder = ROOT;
        for component in &name::components(path, &self.limits) {
            self.clashes.add_folder(folder);
            folder = self.folders.child(folder, component);
        }
    }

    /// Takes the next entry of the archive.
    pub fn add(&mut self, entry: &Entry) -> Result<(), Error> {
        self.add_from(0, entry)
    }

    /// Takes the next entry; what it says of bytes counts in `stream` ([`crate::Row::stream`]).
    pub fn add_from(&mut self, stream: u32, entry: &Entry) -> Result<(), Error> {
        if self.sorter.records() >= MOST_RECORDS {
            return Err(io::Error::other("an index of more than a billion entries cannot be made").into());
        }
        let beside_last = self.place_beside_last(&entry.path);
        // Nothing else makes the tables grow.
        let may_grow = beside_last.is_none() || matches!(entry.kind, Kind::Folder | Kind::HardLink);
        if may_grow && let Some((things, bytes)) = self.beyond_memory() {
            let (path, mib) = (name::excerpt(&entry.path), bytes >> 20);
            return Err(out_of_memory(&format!("{path}: {things} up to here take {mib} MiB")));
        }
        self.check_bytes()?;
        self.lie_in(stream);
        if let Some(last) = beside_last {
            if self.is_last_changed {
                self.renamed.meet(&entry.path);
            }
            return self.add_at(self.last_folder.1, last, entry, stream);
        }
        let components = name::components(&entry.path, &self.limits);
        let (folder, last) = place(&mut self.folders, &mut self.clashes, components.iter());
        self.is_last_changed = components.are_changed();
        if self.is_last_changed {
            self.renamed.meet(&entry.path);
        }
        self.remember_folder(&entry.path, folder, last);
        self.add_at(folder, last, entry, stream)
    }

    /// Entries whose path is not the one that they have in the archive.
    pub fn renamed(&self) -> &Renamed {
        &self.renamed
    }

    /// Which table takes more memory than it may, and how many bytes.
    fn beyond_memory(&mut self) -> Option<(&'static str, usize)> {
        const FOLDERS: &str = "the folders of all paths";
        const LINKS: &str = "the hard links";
        const ARCHIVES: &str = "the archives in the archive";
        if let Some(bytes) = self.folders.beyond_limit() {
            return Some((FOLDERS, bytes));
        }
        if let Some(bytes) = self.links.beyond_limit() {
            return Some((LINKS, bytes));
        }
        let archives = self.bytes_of_archives();
        if let Some(bytes) = self.origins.beyond_limit(archives) {
            return Some((ARCHIVES, bytes));
        }
        let all = [(ARCHIVES, archives), (LINKS, self.links.bytes()), (FOLDERS, self.folders.bytes())];
        let together = all.iter().fold(0_usize, |sum, (_, bytes)| sum.saturating_add(*bytes));
        all.into_iter().max_by_key(|(_, bytes)| *bytes).filter(|_| together > self.most_memory)
    }

    /// Bytes of memory that the archives in the archive take, and their streams.
    fn bytes_of_archives(&self) -> usize {
        let starts = self.starts.capacity().saturating_mul(size_of::<(u32, u64)>());
        let lengths = self.lengths.capacity().saturating_mul(size_of::<u64>());
        self.origins.bytes().saturating_add(starts).saturating_add(lengths)
    }

    /// The nested stream that comes next begins at byte `start` of `input`. Its entries come before all is known of it.
    pub fn begin_nested(&mut self, input: u32, start: u64) {
        let place = self.layers.nested() as usize;
        self.starts.resize(place, (0, 0));
        self.starts.push((input, start));
        self.reach.nested = 0;
        if self.stream == self.next_nested() {
            self.stream = 0;
            self.builder.around.clear();
        }
    }

    /// True if nested streams were found.
    pub fn has_nested(&self) -> bool {
        self.layers.nested() > 0
    }

    /// What is added from here on lies in `stream`.
    fn lie_in(&mut self, stream: u32) {
        if stream == self.stream {
            return;
        }
        let starts = self.starts_around(stream);
        self.builder.around.clear();
        for start in starts.into_iter().rev().take(MOST_AROUND) {
            record::write_number(&mut self.builder.around, start);
        }
        self.stream = stream;
    }

    /// True if what begins at `one` comes before what does at `other`, in the order of all that the archive holds.
    fn is_before(&self, one: origins::Place, other: origins::Place) -> bool {
        let around = |stream| self.starts_around(stream).into_iter().rev().take(MOST_AROUND);
        if one.0 == other.0 {
            return one.1 < other.1;
        }
        around(one.0).chain([one.1]).lt(around(other.0).chain([other.1]))
    }

    /// Where a nested stream begins in the one around it, and so on, the outermost last; nothing for the archive's own.
    fn starts_around(&self, stream: u32) -> Vec<u64> {
        let mut starts = Vec::new();
        let mut at = stream;
        while let Some(&(input, start)) = at.checked_sub(FIRST_NESTED).and_then(|place| self.starts.get(place as usize))
        {
            starts.push(start);
            // Numbers shrink on the way out.
            at = input.min(at.saturating_sub(1));
        }
        starts
    }

    /// The name of an entry whose path has the same folder as the one before, as nearly all have.
    fn place_beside_last<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let last = path.strip_prefix(self.last_folder.0.as_slice()).filter(|_| !self.last_folder.0.is_empty())?;
        let is_plain = !matches!(last, b"" | b"." | b"..")
            && last.len() <= self.limits.name
            && last.iter().all(|&byte| byte != b'/' && byte != 0);
        is_plain.then_some(last)
    }

    fn remember_folder(&mut self, path: &[u8], folder: folders::Number, last: &[u8]) {
        self.last_folder.0.clear();
        let Some(start) = path.strip_suffix(last).filter(|start| start.ends_with(b"/")) else { return };
        // A path that was cut at a NUL or for its depth is not what it seems.
        let components = start.split(|&byte| byte == b'/').count();
        if components <= self.limits.path_components && !start.contains(&0) {
            self.last_folder.0.extend_from_slice(start);
            self.last_folder.1 = folder;
        }
    }

    fn add_at(&mut self, folder: folders::Number, name: &[u8], entry: &Entry, stream: u32) -> Result<(), Error> {
        let link = if entry.kind == Kind::HardLink { Some(self.add_request(entry)?) } else { None };
        // What the header of a hard link says beside its target counts for nothing: the link is a name of what that is.
        let bare_link;
        let entry = match link {
            Some(_) => {
                bare_link = Entry { kind: Kind::HardLink, header: entry.header, ..Entry::default() };
                &bare_link
            }
            None => entry,
        };
        self.clashes.meet(stream, entry.header);
        self.make_real(folder, entry.header)?;
        let is_root = folder == ROOT && name.is_empty();
        if !is_root && let Some(folder) = self.folders.get_mut(folder) {
            folder.has_children = true;
        }
        if self.clashes.any() {
            self.make_real_again(folder, entry.header)?;
        }
        if entry.kind == Kind::Folder && !is_root {
            self.clashes.add_folder(folder);
            let own = self.folders.child(folder, name);
            self.make_real(own, entry.header)?;
            self.clashes.give_back(own);
        } else if self.clashes.may_have_folders(folder)
            && let Some(own) = self.folders.find(folder, name).filter(|_| !is_root)
        {
            self.clashes.take(own);
        }
        self.is_in_blocks &= entry.header.is_multiple_of(BLOCK);
        let fewer;
        let entry = match self.readable_xattrs(entry) {
            Some(xattrs) => {
                fewer = Entry { xattrs, ..entry.clone() };
                &fewer
            }
            None => entry,
        };
        let bits = record::bits_of(entry);
        let class = self.classes.number(entry, bits, stream)?;
        self.scratch.xattrs.clear();
        for (name, _) in &entry.xattrs {
            self.has_xattrs = true;
            self.has_acls |= matches!(name.as_slice(), b"system.posix_acl_access" | b"system.posix_acl_default");
            self.scratch.xattrs.push(self.xattr_names.number(name)?);
        }
        if matches!(entry.kind, Kind::File) {
            let end = end_of(&entry.body);
            let place = stream.checked_sub(FIRST_NESTED).map(|place| place as usize);
            match place.and_then(|place| self.lengths.get(place)) {
                // What turned out to be no archive is told as a file when its stream is over.
                Some(&length) => self.reach.is_nested_cut |= end > length,
                None if stream == 0 => self.reach.own = self.reach.own.max(end),
                None => self.reach.nested = self.reach.nested.max(end),
            }
        }
        self.scratch.pieces.clear();
        if let Some(list) = &entry.body.pieces {
            self.write_pieces(list, entry.header)?;
            if bits & more::PIECES != 0 {
                self.longest_in_pieces = self.longest_in_pieces.max(entry.body.size);
            }
        } else if entry.kind == Kind::File && entry.body.offset < entry.header {
            return Err(io::Error::other("content before its header has to be told in pieces").into());
        }
        let shared = Shared { xattrs: &self.scratch.xattrs, pieces: &self.scratch.pieces };
        let record = self.builder.entry(folder, name, entry, Numbers { class, bits, link }, shared)?;
        self.sorter.push(record)?;
        self.entries = self.entries.saturating_add(1);
        Ok(())
    }

    /// The attributes of `entry` that an index may have, if these are not all.
    fn readable_xattrs(&mut self, entry: &Entry) -> Option<Xattrs> {
        let mut room = XattrRoom::default();
        if entry.xattrs.iter().all(|xattr| room.has(xattr)) {
            return None;
        }
        if self.left_out.len() < MOST_NAMED {
            let what = format!(
                "{}: extended attributes are left out: they are too long or too many",
                name::excerpt(&entry.path)
            );
            // A note's byte is one of the archive.
            let at = self.starts_around(self.stream).last().copied().unwrap_or(entry.header);
            self.left_out.push((at, what));
        }
        let mut room = XattrRoom::default();
        Some(entry.xattrs.iter().filter(|xattr| room.has(xattr)).cloned().collect())
    }

    /// There is a folder `number`, and so are those that it is in: the entry whose header is at byte `rank` says so.
    fn make_real(&mut self, mut number: folders::Number, rank: u64) -> Result<(), Error> {
        let implied = &mut self.scratch.implied;
        implied.clear();
        while let Some(folder) = self.folders.get_mut(number).filter(|folder| !folder.is_real) {
            folder.is_real = true;
            implied.push(number);
            number = folder.parent;
            if let Some(parent) = self.folders.get_mut(number) {
                parent.has_children = true;
            }
        }
        for &number in implied.iter().rev() {
            let folder = self.folders.get(number);
            let marker = self.builder.number(folder.parent, self.folders.name(&folder), Tag::Marker, rank, number);
            self.sorter.push(marker)?;
        }
        Ok(())
    }

    /// The same where something else had the path of one of them meanwhile.
    fn make_real_again(&mut self, mut number: folders::Number, rank: u64) -> Result<(), Error> {
        while number != ROOT {
            let folder = self.folders.get(number);
            if self.clashes.give_back(number) {
                let marker = self.builder.number(folder.parent, self.folders.name(&folder), Tag::Marker, rank, number);
                self.sorter.push(marker)?;
            }
            number = folder.parent;
        }
        Ok(())
    }

    /// Numbers a hard link, and asks at the place of its target.
    fn add_request(&mut self, entry: &Entry) -> Result<links::Number, Error> {
        let link = self.links.next();
        let components = name::components(&entry.link, &self.limits);
        let (folder, name) = place(&mut self.folders, &mut self.clashes, components.iter());
        if !name.is_empty() {
            let request = self.builder.number(folder, name, Tag::Request, entry.header, link);
            self.sorter.push(request)?;
        }
        Ok(link)
    }

    /// A number for an archive that lies in archive `within`; the archive itself is 0. Its file begins at `place`, a
    /// byte of a stream, and has the path of which `path` is a hash. If the archive that shows there lies behind it, it
    /// is replaced already: of what lies in compressed files, the later one may be found first.
    pub fn add_archive(&mut self, within: u32, path: u64, place: (u32, u64)) -> Result<u32, Error> {
        if let Some((things, bytes)) = self.beyond_memory() {
            return Err(out_of_memory(&format!("{things} take {} MiB", bytes >> 20)));
        }
        let is_behind = self.origins.shown_at(path).is_some_and(|(_, shown)| self.is_before(place, shown));
        let number = self.origins.add(within, path, place);
        if is_behind {
            self.origins.replace(number);
        } else {
            self.origins.show(number);
        }
        Ok(number)
    }

    /// The number that the next archive gets.
    pub fn next_archive(&self) -> u32 {
        self.origins.next()
    }

    /// The archive that archive `number` lies in.
    pub fn around_archive(&self, number: u32) -> u32 {
        self.origins.around(number)
    }

    /// What is added from here on was found in that archive.
    pub fn enter_archive(&mut self, number: u32) {
        self.builder.origin = number;
    }

    /// True if there may be something for [`Writer::replace_archive_at`] to replace.
    pub fn shows_archives(&self) -> bool {
        self.origins.any_shown()
    }

    /// What begins at `place` has the path with that hash. What was found in an archive that was there before, and in
    /// those in it, does not show.
    pub fn replace_archive_at(&mut self, path: u64, place: (u32, u64)) {
        if let Some((number, shown)) = self.origins.shown_at(path)
            && !self.is_before(place, shown)
        {
            self.origins.replace(number);
        }
    }

    /// True if what was found in that archive does not show.
    pub fn is_replaced(&self, number: u32) -> bool {
        self.origins.is_gone(number)
    }

    /// Takes the next nested stream and returns its number.
    pub fn add_nested(&mut self, nested: &Nested) -> Result<u32, Error> {
        self.check_bytes()?;
        self.reach.is_nested_cut |= std::mem::take(&mut self.reach.nested) > nested.decoded_length;
        self.lengths.push(nested.decoded_length);
        self.layers.add_nested(nested, &[])
    }

    /// Takes the next nested stream, which is a file of `size` bytes whose `pieces` lie in stream `input`, and returns
    /// its number.
    pub fn add_nested_pieces(&mut self, input: u32, pieces: &[Piece], size: u64) -> Result<u32, Error> {
        self.check_bytes()?;
        let start = pieces.iter().map(|piece| piece.offset).min().unwrap_or_default();
        let length = pieces::reach(pieces).saturating_sub(start);
        self.write_pieces(pieces, start)?;
        self.longest_in_pieces = self.longest_in_pieces.max(size);
        let codec = STORED_IN_PIECES.to_owned();
        let nested = Nested { codec, decoded_length: size, input, start, length };
        self.lengths.push(size);
        self.layers.add_nested(&nested, &self.scratch.pieces)
    }

    /// Puts `list`, of what begins at byte `from`, into `scratch.pieces`, as it is kept.
    fn write_pieces(&mut self, list: &[Piece], from: u64) -> Result<(), Error> {
        let Scratch { pieces, coder: bytes, last_coder, .. } = &mut self.scratch;
        pieces.clear();
        pieces::write(pieces, list, from, |coder| {
            if let Some((_, number)) = last_coder.as_ref().filter(|(last, _)| Arc::ptr_eq(last, coder)) {
                return Ok(*number);
            }
            pieces::write_coder(bytes, coder);
            let number = self.coders.number(bytes)?;
            *last_coder = Some((Arc::clone(coder), number));
            io::Result::Ok(number)
        })?;
        Ok(())
    }

    /// The number that the next nested stream gets.
    pub fn next_nested(&self) -> u32 {
        FIRST_NESTED.saturating_add(self.layers.nested())
    }

    /// Takes the next chunk of layer `layer` (0 is the outermost), or of the nested stream of that number.
    #[allow(clippy::needless_pass_by_value, reason = "whoever makes chunks has no use for them afterwards")]
    pub fn add_chunk(&mut self, layer: usize, chunk: Chunk) -> Result<(), Error> {
        self.check_bytes()?;
        self.layers.add_chunk(layer, &chunk, self.limits.compression_layers)
    }

    /// Takes damage of layer `layer` (0 is the outermost), or of the nested stream of that number.
    pub fn add_damage(&mut self, layer: usize, damage: &Damage) -> Result<(), Error> {
        self.layers.add_damage(layer, damage, self.limits.compression_layers)
    }

    /// Entries taken so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes of what was taken: about as many as the index will have.
    pub fn bytes(&self) -> u64 {
        let shared = [self.classes.bytes(), self.xattr_names.bytes(), self.coders.bytes()];
        let parts = shared.into_iter().chain([self.builder.large.len(), self.layers.bytes()]);
        parts.fold(self.sorter.bytes(), u64::saturating_add)
    }

    /// An error if that is more than there may be.
    fn check_bytes(&self) -> Result<(), Error> {
        if self.bytes() <= self.most_bytes { Ok(()) } else { Err(too_many_bytes(self.most_bytes)) }
    }
}

/// Bytes that the index of an archive may have whose file has so many.
pub(crate) fn most_bytes(length: u64) -> u64 {
    MOST_BYTES.saturating_add(length.saturating_mul(BYTES_FOR_EACH))
}

/// Says that `what` is more than there may be.
fn out_of_memory(what: &str) -> Error {
    let setting = Setting::CacheMemory;
    let what = format!("{what} of memory, more than the limit; a larger memory budget ({setting}) raises it");
    io::Error::new(io::ErrorKind::OutOfMemory, what).into()
}

/// Says that an index would have more than these.
pub(crate) fn too_many_bytes(most: u64) -> Error {
    let mib = most >> 20;
    let what = format!(
        "its index would have more than {mib} MiB, the limit for an archive of its length: it may be made to fill the disk"
    );
    io::Error::new(io::ErrorKind::FileTooLarge, what).into()
}

/// Attributes of one entry that fit into what is read of one.
#[derive(Debug, Default)]
struct XattrRoom {
    bytes: usize,
    count: usize,
}

impl XattrRoom {
    /// True if this one does, too; then it counts.
    fn has(&mut self, (name, value): &(Vec<u8>, Vec<u8>)) -> bool {
        let bytes = self.bytes.saturating_add(name.len()).saturating_add(value.len());
        let fits = name.len() <= own::LONGEST_XATTR_NAME
            && value.len() <= own::LIMITS.xattr_value
            && self.count < own::LIMITS.xattrs
            && bytes <= own::MOST_XATTR_BYTES;
        if fits {
            (self.bytes, self.count) = (bytes, self.count.saturating_add(1));
        }
        fits
    }
}

/// Byte of its stream at which the content ends, as its row will say.
fn end_of(body: &Body) -> u64 {
    if let Some(list) = &body.pieces {
        return pieces::reach(list);
    }
    let extents = body.extents.as_ref();
    let length = extents.map(|extents| {
        extents.iter().fold(0, |sum: u64, extent| sum.saturating_add(extent.skip).saturating_add(extent.length))
    });
    body.offset.saturating_add(length.unwrap_or(body.size).max(body.stored))
}

/// The folder of a path and its last component, which is empty for the root.
fn place<'c>(folders: &mut Folders, clashes: &mut Clashes, components: name::Iter<'c>) -> (folders::Number, &'c [u8]) {
    let mut folder = ROOT;
    let mut last: &[u8] = b"";
    for component in components {
        if !last.is_empty() {
            clashes.add_folder(folder);
            folder = folders.child(folder, last);
        }
        last = component;
    }
    (folder, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of a small machine's memory is less than each table may have.
    #[test]
    fn folders_and_links_have_a_limit_together() {
        let options = || WriterOptions { limits: Limits::default(), budget: Budget::new(0), cancel: Cancel::default() };
        let folder = |number: u64| Entry {
            path: format!("{number}/").into_bytes(),
            kind: Kind::Folder,
            header: number << 9,
            ..Entry::default()
        };
        let link = |number: u64| Entry {
            path: b"a".to_vec(),
            link: b"b".to_vec(),
            kind: Kind::HardLink,
            header: number << 9,
            ..Entry::default()
        };
        let most = |entry: &dyn Fn(u64) -> Entry| {
            let mut writer = Writer::new(options()).unwrap();
            writer.most_memory = 1 << 20;
            let failed = (0..).find_map(|number| writer.add(&entry(number)).err().map(|error| (number, error)));
            let (number, error) = failed.unwrap();
            assert!(matches!(&error, Error::Io(error) if error.kind() == io::ErrorKind::OutOfMemory), "{error}");
            assert!(writer.folders.bytes() + writer.links.bytes() > 1 << 20);
            assert!(writer.folders.beyond_limit().is_none() && writer.links.beyond_limit().is_none());
            (number, error.to_string())
        };
        let (folders, told) = most(&folder);
        assert!((3000..20_000).contains(&folders) && told.contains("the folders of all paths"), "{folders}: {told}");
        let (links, told) = most(&link);
        assert!((20_000..30_000).contains(&links) && told.contains("the hard links"), "{links}: {told}");
        let (both, _) = most(&|number| if number.is_multiple_of(2) { folder(number) } else { link(number) });
        assert!(folders < both && both < links, "{both}");
    }
}
