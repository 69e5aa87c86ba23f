//! Walks the table of files: once for the folders, and once to tell what each file is.

use std::collections::HashMap;
use std::io;

use tarnfs_source::Source;

use super::NAME;
use super::boot::{self, Boot};
use super::extended::{OfLinux, pairs};
use super::record::Reference;
use super::stream::Stream;
use super::table::{File, Name, Table};
use super::wof;
use crate::boot::{FILE_MODE, FOLDER_MODE};
use crate::clusters::name_of;
use crate::content::Content;
use crate::image::{Budget, OfAttributes, Teller, damaged, data_of, is_damage, shown};
use crate::inodes::{Inodes, LONGEST_TARGET};
use crate::little::{u32_at, u64_at};
use crate::name::{bounded_path, excerpt};
use crate::window::Window;
use crate::{Body, Device, Entry, Error, Event, Kind, Options, ReceiveRandom, Xattrs, reparse};

/// Records that are those of the system: the volume's, the root, what else the system keeps, and the last of them.
const VOLUME: u64 = 3;
const ROOT: u64 = 5;
const OF_SYSTEM: u64 = 11;
const FIRST_OF_USERS: u64 = 24;

/// Attributes of a file.
const READ_ONLY: u32 = 0x01;
const SYSTEM: u32 = 0x04;
const FOLDER: u32 = 0x10;
const NORMAL: u32 = 0x80;
/// A driver is in charge of it.
const REPARSE: u32 = 0x400;
const OFFLINE: u32 = 0x1000;
/// When it is opened, or when it is read.
const RECALLED: u32 = 0x0044_0000;
/// Permission bits of a file that may not be written to.
const READ_ONLY_MODE: u32 = 0o444;

/// State of the volume: it was not unmounted.
const DIRTY: u16 = 1;

/// Where what has no folder any more is shown.
const LOST: &str = "lost+found";

/// Bytes of memory for a folder beside its name, and what an entry counts for beside its path.
const OF_FOLDER: usize = 96;
const OF_FILE: u64 = 512;

/// Bytes of the budget that it takes to look up one of the folders above a name, at least: as many as its own name has.
/// Any number of records may be the same bytes, and name in turn two folders that are deep, or in themselves.
const OF_STEP: u64 = 32;

/// Kinds of what Windows keeps for a driver: a file that Windows has compressed, and sockets, pipes and devices of
/// Linux.
const COMPRESSED: u32 = 0x8000_0017;
const SOCKET: u32 = 0x8000_0023;
const FIFO: u32 = 0x8000_0024;
const CHARACTER_DEVICE: u32 = 0x8000_0025;
const BLOCK_DEVICE: u32 = 0x8000_0026;

/// What the compressed form of such a file is called.
const COMPRESSED_TO: &str = "WofCompressedData";

/// Bytes of what Windows keeps for a driver, and of all extended attributes.
const LONGEST_KEPT: u64 = 16 << 10;
const LONGEST_EXTENDED: u64 = 64 << 10;

/// Bytes of all streams of a file that are shown.
const MOST_OF_STREAMS: usize = 1 << 20;

/// Longest name of an extended attribute (XATTR_NAME_MAX).
const LONGEST_NAME: usize = 255;

/// Kinds of files whose content is kept elsewhere: once for several files, in an image, and deduplicated.
const ELSEWHERE: [u32; 3] = [0x8000_0007, 0x8000_0008, 0x8000_0013];
/// The same where the attributes say so: on tape, and in a cloud, of which the number of the provider is among the
/// bits.
const OF_STORES: [u32; 2] = [0xc000_0004, 0x8000_0006];
const CLOUD: u32 = 0x9000_001a;
const NO_PROVIDER: u32 = 0xffff_0fff;

const IS_ELSEWHERE: &str =
    "its content is not on this volume, or in a form that only Windows reads (deduplicated, in a cloud, on tape)";
const NO_TARGET: &str = "its file has a name already, whose path is longer than a link can be";
const TOO_MUCH: &str = "the table of files is longer than such an image may have";

/// What a link or a device of Services for Unix begins with, as ntfs-3g writes it, too.
const INTERIX_LINK: &[u8] = b"IntxLNK\x01";
const INTERIX_CHARACTER: &[u8] = b"IntxCHR\0";
const INTERIX_BLOCK: &[u8] = b"IntxBLK\0";

/// A folder: how often its record was used, where it is, and its name there.
struct Folder {
    sequence: u16,
    parent: Reference,
    name: Box<[u8]>,
}

/// Why a file has no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoPath {
    /// It is one of the system's.
    Hidden,
    Wrong(&'static str),
}

const TOO_OFTEN: NoPath = NoPath::Wrong("where folders are is looked up too often");

/// One pass over one image.
pub(super) struct Reader<'run> {
    options: &'run Options,
    boot: Boot,
    /// Bytes of the image.
    there: u64,
    teller: Teller<'run>,
    window: Window<'run>,
    /// For what lies elsewhere than in the table.
    beside: Window<'run>,
    budget: Budget,
    /// For what is read of files: any number of names may lead to the same bytes, and files stay when that is used up.
    of_values: Budget,
    inodes: Inodes,
    folders: HashMap<u64, Folder>,
    /// The folder that was told of last, and its path.
    last: Option<(Reference, Result<Vec<u8>, NoPath>)>,
}

fn at_start(error: io::Error) -> Error {
    Error::Read { offset: 0, error }
}

impl<'run> Reader<'run> {
    pub(super) fn open(
        source: &'run dyn Source,
        options: &'run Options,
        receive: &'run mut ReceiveRandom<'run>,
    ) -> Result<Self, Error> {
        let none = || Error::NotThisFormat { format: NAME, reason: "there is no boot sector".to_owned() };
        let (boot, is_copy) = boot::find(source).map_err(at_start)?.ok_or_else(none)?;
        let data = data_of(source);
        let mut teller = Teller::new(receive).with_attributes(OfAttributes::new(data, options.shares));
        if is_copy {
            teller.damage(0, "the boot sector is damaged; its copy at the end is read".to_owned())?;
        }
        let there = source.len();
        if boot.length > there {
            let end = boot.length;
            teller.damage(there, format!("the volume ends at byte {end}, only {there} are there: it was cut"))?;
        }
        Ok(Self {
            options,
            boot,
            there,
            teller,
            window: Window::growing(source).until(&options.cancel),
            beside: Window::growing(source).until(&options.cancel),
            budget: Budget::in_clusters(data, options.shares),
            of_values: Budget::in_clusters(data, options.shares),
            inodes: Inodes::of_image(data),
            folders: HashMap::new(),
            last: None,
        })
    }

    /// Tells all that is on the volume.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let opened = Table::open(&self.boot, self.there, &mut self.beside, &mut self.budget);
        let (table, why) = opened.map_err(|error| {
            if is_damage(&error) {
                Error::Unreadable { format: NAME, reason: format!("its table of files cannot be read: {error}") }
            } else {
                at_start(error)
            }
        })?;
        if let Some(why) = why {
            self.teller.damage(self.boot.table, format!("the table of files: {why}; its copy is read"))?;
        }
        for is_first in [true, false] {
            let mut number = 0;
            while number < table.count() {
                self.options.cancel.check().map_err(at_start)?;
                let stored = table.stored(number);
                if stored > number {
                    number = stored;
                    continue;
                }
                if self.budget.bytes < table.record() {
                    // A table may be as long as all holes of a disk.
                    let what = format!("the files from record {number} on are left out: {TOO_MUCH}");
                    self.teller.damage(table.byte(number), what)?;
                    return Ok(());
                }
                self.record(&table, number, is_first)?;
                number = number.saturating_add(1);
            }
        }
        if let Some(missing) = table.missing() {
            self.teller.damage(self.boot.table, format!("the table of files is not whole: {missing}"))?;
        }
        Ok(())
    }

    /// Takes note of the folder of that number, or tells of the file.
    fn record(&mut self, table: &Table, number: u64, is_first: bool) -> Result<(), Error> {
        let at = table.byte(number);
        let read = table.read(number, &mut self.window, &mut self.budget).and_then(|found| {
            let is_wanted = |found: &&super::record::Record| found.base.is_none() && (found.is_folder || !is_first);
            let Some(record) = found.as_ref().filter(is_wanted) else { return Ok(None) };
            let (window, budget) = (&mut self.beside, &mut self.budget);
            table.file(number, record, &self.boot, self.there, window, budget).map(Some)
        });
        match read {
            Ok(None) => Ok(()),
            Ok(Some(file)) if is_first => {
                self.take_note(number, file);
                Ok(())
            }
            Ok(Some(file)) => self.tell(number, &file, at),
            Err(error) if is_damage(&error) && is_first => Ok(()),
            Err(error) if is_damage(&error) => {
                self.teller.damage(at, format!("the file of record {number} is left out: {error}"))
            }
            Err(error) => Err(Error::Read { offset: at, error }),
        }
    }

    fn take_note(&mut self, number: u64, file: File) {
        let name = file.names.into_iter().find(|name| !name.is_of_dos);
        let Some(Name { folder: parent, text: name, .. }) = name else { return };
        if self.inodes.take(name.len().saturating_add(OF_FOLDER)) {
            self.folders.insert(number, Folder { sequence: file.sequence, parent, name: name.into() });
        }
    }

    /// The path of a folder; empty of the root.
    fn path_of(&mut self, folder: Reference) -> Result<&[u8], NoPath> {
        let known = self.last.take().filter(|(last, _)| *last == folder);
        let found = known.unwrap_or_else(|| (folder, self.found_path(folder)));
        let (_, path) = self.last.insert(found);
        path.as_deref().map_err(|why| *why)
    }

    /// The same, from the folders above it. Each of these is paid for: records in two deep folders may come in turn.
    fn found_path(&mut self, folder: Reference) -> Result<Vec<u8>, NoPath> {
        let mut names: Vec<&[u8]> = Vec::new();
        let (mut at, mut length) = (folder, 0_usize);
        let lost;
        while at.number != ROOT {
            self.budget.take_bytes(OF_STEP).map_err(|_| TOO_OFTEN)?;
            if at.number == OF_SYSTEM {
                return Err(NoPath::Hidden);
            }
            // A record that was used again is another folder.
            let is_it = |above: &&Folder| at.sequence == 0 || above.sequence == at.sequence;
            let Some(above) = self.folders.get(&at.number).filter(is_it) else {
                lost = format!("{LOST}/{}", at.number);
                names.push(lost.as_bytes());
                break;
            };
            self.budget.take_bytes((above.name.len() as u64).saturating_sub(OF_STEP)).map_err(|_| TOO_OFTEN)?;
            length = length.saturating_add(above.name.len()).saturating_add(1);
            // One that is in itself ends here, too.
            if names.len() >= self.options.limits.path_components || length >= self.options.limits.path {
                return Err(NoPath::Wrong("the folder that it is in is too deep, or in itself"));
            }
            names.push(&above.name);
            at = above.parent;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// Tells of a file or folder, whose record begins at byte `at`.
    fn tell(&mut self, number: u64, file: &File, at: u64) -> Result<(), Error> {
        if number == VOLUME {
            if let Some(label) = file.label.clone() {
                self.teller.event(Event::Label(label))?;
            }
            if file.state & DIRTY != 0 {
                let what = "the volume was not unmounted, and its journal is not replayed: what was written last may be missing or wrong";
                self.teller.damage(at, what.to_owned())?;
            }
        }
        if number == ROOT {
            return self.tell_file(b".".to_vec(), file, at).map(drop);
        }
        if number < FIRST_OF_USERS {
            return Ok(());
        }
        let (mut first, mut is_told, mut is_hidden) = (None::<Vec<u8>>, false, false);
        // A folder has one name.
        let names = file.names.iter().filter(|name| !name.is_of_dos);
        let mut names: Vec<_> = names.take(if file.is_folder { 1 } else { usize::MAX }).collect();
        // What is in a file is told once: where it has several names, with one that links can lead to.
        let is_target = |name: &&Name| self.length_of(name).is_ok_and(|length| length <= LONGEST_TARGET);
        if names.len() > 1
            && let Some(before) = names.iter().position(is_target).and_then(|at| names.get_mut(..=at))
        {
            before.rotate_right(1);
        }
        for name in names {
            self.options.cancel.check().map_err(at_start)?;
            if is_told && first.is_none() {
                let what = format!("'{}' is left out: {NO_TARGET}", excerpt(&name.text));
                self.teller.damage(at, what)?;
                continue;
            }
            let path = match self.path(name) {
                Ok(path) => path,
                Err(NoPath::Hidden) => {
                    is_hidden = true;
                    continue;
                }
                Err(NoPath::Wrong(why)) => {
                    let shown = excerpt(&name.text);
                    self.teller.damage(at, format!("'{shown}' is left out: {why}"))?;
                    is_hidden = true;
                    continue;
                }
            };
            match &first {
                None => {
                    is_told = self.tell_file(path.clone(), file, at)?;
                    first = Some(path).filter(|path| is_told && path.len() <= LONGEST_TARGET);
                    // It is told why.
                    is_hidden |= !is_told;
                }
                Some(first) => self.tell_link(path, first.clone(), file, at)?,
            }
        }
        if !is_told && !is_hidden {
            self.teller.damage(at, format!("the file of record {number} is left out: it has no name"))?;
        }
        Ok(())
    }

    /// Bytes of the path of what has a name.
    fn length_of(&mut self, name: &Name) -> Result<usize, NoPath> {
        let of_name = name.text.len();
        let length = match self.path_of(name.folder)?.len() {
            0 => of_name,
            above => above.saturating_add(1).saturating_add(of_name),
        };
        match of_name {
            0 => Err(NoPath::Wrong("that cannot be a name")),
            _ if length > self.options.limits.path => Err(NoPath::Wrong("its path is too long")),
            _ => Ok(length),
        }
    }

    /// The path of what has a name. It is paid for: any number of names may be in a folder that is deep.
    fn path(&mut self, name: &Name) -> Result<Vec<u8>, NoPath> {
        let length = self.length_of(name)? as u64;
        self.budget.take_bytes(length).map_err(|_| NoPath::Wrong("the entries of the image are read too often"))?;
        let folder = self.path_of(name.folder)?;
        Ok(if folder.is_empty() { name.text.clone() } else { [folder, &b"/"[..], &name.text].concat() })
    }

    /// Tells of a further name of a file, whose path is paid for.
    fn tell_link(&mut self, path: Vec<u8>, link: Vec<u8>, file: &File, at: u64) -> Result<(), Error> {
        if let Err(error) = self.budget.take_link(&[], &link) {
            return self.teller.damage(at, format!("'{}' is left out: {error}", excerpt(&path)));
        }
        // Behind what it is a link to.
        let (header, mtime) = (at.saturating_add(1), file.facts.modified.unwrap_or_default());
        let (kind, mode) = (Kind::HardLink, mode_of(file));
        self.teller.entry(Entry { path, kind, mode, mtime, header, link, ..Entry::default() })
    }

    /// Tells of a file or folder, whose path is paid for. False if it is left out.
    fn tell_file(&mut self, path: Vec<u8>, file: &File, at: u64) -> Result<bool, Error> {
        if let Err(error) = self.budget.take_bytes(OF_FILE) {
            self.teller.damage(at, format!("'{}' is left out: {error}", shown(&path)))?;
            return Ok(false);
        }
        let facts = file.facts;
        let mut entry = Entry {
            path,
            kind: if file.is_folder { Kind::Folder } else { Kind::File },
            mode: mode_of(file),
            mtime: facts.modified.unwrap_or_default(),
            atime: facts.accessed,
            ctime: facts.changed,
            header: at,
            body: Body { offset: at, ..Body::default() },
            ..Entry::default()
        };
        let mut wrong = file.wrong.clone();
        let others = self.extended(file, &mut entry, &mut wrong)?;
        let kept = self.reparse(file, &mut entry, &mut wrong)?;
        self.interix(file, &mut entry, &mut wrong)?;
        let is_compressed = kept.as_deref().and_then(|kept| u32_at(kept, 0)) == Some(COMPRESSED);
        if entry.kind == Kind::File {
            self.body(file, kept.as_deref(), &mut entry, &mut wrong)?;
        }
        if matches!(entry.kind, Kind::File | Kind::Folder) {
            let mut xattrs = others;
            let kept = kept.filter(|_| !is_compressed).map(|kept| (b"user.ntfs.reparse".to_vec(), kept));
            xattrs.extend(kept);
            add_facts(file, &mut xattrs);
            self.streams(file, is_compressed, &entry.path, &mut xattrs, &mut wrong)?;
            let limits = self.options.limits;
            xattrs.retain(|(name, value)| name.len() <= LONGEST_NAME && value.len() <= limits.xattr_value);
            xattrs.truncate(limits.xattrs);
            entry.xattrs = xattrs;
        }
        if let Some(wrong) = wrong {
            self.teller.damage(at, format!("'{}': {wrong}", shown(&entry.path)))?;
        }
        self.teller.entry(entry)?;
        Ok(true)
    }

    /// All bytes of a stream of at most `most` bytes; `None` if they are compressed.
    fn bytes(&mut self, stream: &Stream, most: u64) -> io::Result<Option<Vec<u8>>> {
        if stream.size > most {
            return Err(damaged("it is too long"));
        }
        self.of_values.take_bytes(stream.size)?;
        if let Some(bytes) = stream.bytes() {
            return Ok(Some(bytes.to_vec()));
        }
        let content = stream.content(&self.boot, self.there, &mut self.of_values);
        if content.missing.is_none() && content.pieces.iter().any(|piece| piece.coder.is_some()) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        content.read(&mut self.beside, 0, stream.size, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Takes up owner, mode and device of Linux on Windows, and returns the other attributes of this kind.
    fn extended(&mut self, file: &File, entry: &mut Entry, wrong: &mut Option<String>) -> Result<Xattrs, Error> {
        let mut others = Xattrs::new();
        let Some(stream) = &file.extended else { return Ok(others) };
        let bytes = self.bytes(stream, LONGEST_EXTENDED);
        let Some(bytes) = told(bytes, "extended attributes of it", entry.header, wrong)? else { return Ok(others) };
        let mut of_linux = OfLinux::default();
        for (name, value) in pairs(&bytes) {
            if !of_linux.take(name, value) && !name.is_empty() && !name.contains(&0) {
                others.push(([b"user.ntfs.ea.", name].concat(), value.to_vec()));
            }
        }
        entry.uid = of_linux.uid.unwrap_or_default().into();
        entry.gid = of_linux.gid.unwrap_or_default().into();
        let Some(mode) = of_linux.mode else { return Ok(others) };
        entry.mode = mode & 0o7777;
        let device = of_linux.device;
        if !file.is_folder {
            entry.kind = match mode & 0o170_000 {
                0o010_000 => Kind::Fifo,
                0o020_000 => Kind::CharacterDevice(device),
                0o060_000 => Kind::BlockDevice(device),
                0o140_000 => Kind::Socket,
                _ => entry.kind,
            };
        }
        Ok(others)
    }

    /// Takes up what Windows keeps for a driver if that makes a link or a special file, and returns it if not.
    fn reparse(
        &mut self,
        file: &File,
        entry: &mut Entry,
        wrong: &mut Option<String>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(stream) = &file.reparse else { return Ok(None) };
        let bytes = self.bytes(stream, LONGEST_KEPT);
        let Some(bytes) = told(bytes, "what Windows keeps for a driver", entry.header, wrong)? else { return Ok(None) };
        let (Some(kind), Some(data)) = (u32_at(&bytes, 0), bytes.get(8..)) else { return Ok(None) };
        if reparse::is_link(kind) {
            match reparse::target(kind, data) {
                Some(target) => {
                    (entry.kind, entry.mode) = (Kind::Symlink, 0o777);
                    entry.link = bounded_path(target, self.options.limits.path);
                }
                None => {
                    wrong.get_or_insert_with(|| "it is a link whose target is damaged".to_owned());
                }
            }
            return Ok(None);
        }
        let device = match entry.kind {
            Kind::CharacterDevice(device) | Kind::BlockDevice(device) => device,
            _ => Device::default(),
        };
        entry.kind = match kind {
            SOCKET => Kind::Socket,
            FIFO => Kind::Fifo,
            CHARACTER_DEVICE => Kind::CharacterDevice(device),
            BLOCK_DEVICE => Kind::BlockDevice(device),
            _ => return Ok(Some(bytes)),
        };
        Ok(None)
    }

    /// Makes a link or a device of what Services for Unix keep as a file of the system.
    fn interix(&mut self, file: &File, entry: &mut Entry, wrong: &mut Option<String>) -> Result<(), Error> {
        const HEAD: usize = INTERIX_LINK.len();
        // UTF-16, of a path that Linux takes.
        const LONGEST: u64 = 2 * LONGEST_TARGET as u64;
        let is_one = |stream: &&Stream| (HEAD as u64..=LONGEST).contains(&stream.size);
        let may_be = entry.kind == Kind::File && file.facts.attributes & SYSTEM != 0;
        let Some(stream) = file.data.as_ref().filter(|_| may_be).filter(is_one) else { return Ok(()) };
        let bytes = self.bytes(stream, LONGEST);
        let Some(bytes) = told(bytes, "what it begins with", entry.header, wrong)? else { return Ok(()) };
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else { return Ok(()) };
        let device = || {
            let [major, minor] = [0, 8].map(|at| u64_at(rest, at).and_then(|number| u32::try_from(number).ok()));
            Some(Device { major: major?, minor: minor? })
        };
        match head {
            INTERIX_LINK => {
                let units = rest.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
                let target: String =
                    char::decode_utf16(units).map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
                (entry.kind, entry.mode) = (Kind::Symlink, 0o777);
                entry.link = bounded_path(target.into_bytes(), self.options.limits.path);
            }
            INTERIX_CHARACTER => entry.kind = device().map_or(entry.kind, Kind::CharacterDevice),
            INTERIX_BLOCK => entry.kind = device().map_or(entry.kind, Kind::BlockDevice),
            _ => {}
        }
        Ok(())
    }

    /// Where the content of a file lies. `kept` is what Windows keeps for a driver that is in charge of it.
    fn body(
        &mut self,
        file: &File,
        kept: Option<&[u8]>,
        entry: &mut Entry,
        wrong: &mut Option<String>,
    ) -> Result<(), Error> {
        let Some(stream) = &file.data else { return Ok(()) };
        let kind = kept.and_then(|kept| u32_at(kept, 0));
        let of_windows = kept.filter(|_| kind == Some(COMPRESSED)).and_then(|kept| {
            let packed = file.streams.iter().find(|(name, _)| is_compressed_form(name));
            let packed = packed.map(|(_, packed)| packed.content(&self.boot, self.there, &mut self.budget));
            let missing = || {
                let mut content = Content::new(1);
                content.add_missing(0, 1, "what Windows has compressed it to is not there");
                content
            };
            let packed = packed.unwrap_or_else(missing);
            wof::content(kept.get(8..)?, stream.size, &packed, &mut self.beside, &mut self.budget)
        });
        let content = match of_windows {
            Some(Ok(content)) => content,
            Some(Err(error)) if !is_damage(&error) => return Err(Error::Read { offset: entry.header, error }),
            Some(Err(why)) => {
                let mut content = Content::new(stream.size);
                content.add_missing(entry.header, stream.size, why.to_string());
                content
            }
            None => {
                let found = stream.content(&self.boot, self.there, &mut self.budget);
                let is_nowhere = found.pieces.is_empty() && found.size > 0
                    || kind.is_some_and(|kind| is_elsewhere(kind, file.facts.attributes));
                // What a driver has made of it is no zeros, also where nobody can tell what that is.
                let has_driver = file.reparse.is_some() || file.facts.attributes & REPARSE != 0;
                if has_driver && is_nowhere {
                    let mut content = Content::new(found.size);
                    content.add_missing(entry.header, found.size, IS_ELSEWHERE);
                    content
                } else {
                    found
                }
            }
        };
        if let Some(missing) = content.missing {
            wrong.get_or_insert_with(|| format!("some of what is in it cannot be read: {missing}"));
        }
        entry.body = Body { offset: entry.header, size: content.size, pieces: Some(content.pieces), ..Body::default() };
        Ok(())
    }

    /// Adds streams with a name.
    fn streams(
        &mut self,
        file: &File,
        is_compressed: bool,
        path: &[u8],
        xattrs: &mut Xattrs,
        wrong: &mut Option<String>,
    ) -> Result<(), Error> {
        let limits = self.options.limits;
        let streams = file.streams.iter().filter(|(name, _)| !(is_compressed && is_compressed_form(name)));
        let mut room = MOST_OF_STREAMS as u64;
        for (units, stream) in streams {
            let name = name_of(units.iter().copied()).unwrap_or_default();
            let full = [b"user.", &name[..]].concat();
            let is_shown = stream.size <= limits.xattr_value as u64 && full.len() <= LONGEST_NAME && !name.is_empty();
            let left = room.checked_sub(stream.size.saturating_add(full.len() as u64)).filter(|_| is_shown);
            if left.is_none() || xattrs.len() >= limits.xattrs {
                let (size, name) = (stream.size, excerpt(&name));
                log::info!("{}: its stream '{name}' of {size} bytes is not shown", shown(path));
                continue;
            }
            room = left.unwrap_or_default();
            let bytes = self.bytes(stream, limits.xattr_value as u64);
            match told(bytes, "a stream of it", 0, wrong)? {
                Some(value) => xattrs.push((full, value)),
                None => log::info!("{}: its stream '{}' is not shown", shown(path), excerpt(&name)),
            }
        }
        Ok(())
    }
}

/// Adds what Windows tells of a file and Linux has no place for.
fn add_facts(file: &File, xattrs: &mut Xattrs) {
    let facts = file.facts;
    let mut add = |name: &str, value: Vec<u8>| xattrs.push((format!("user.ntfs.{name}").into_bytes(), value));
    if facts.attributes & !(FOLDER | NORMAL) != 0 {
        add("attributes", format!("{:#010x}", facts.attributes).into_bytes());
    }
    if facts.created != 0 {
        add("created", facts.created.to_string().into_bytes());
    }
    let short = file.names.iter().find(|name| name.is_of_dos).map(|name| name.text.clone());
    if let Some(short) = short.filter(|short| !short.is_empty()) {
        add("short_name", short);
    }
}

fn is_elsewhere(kind: u32, attributes: u32) -> bool {
    let may_be_here = kind & NO_PROVIDER == CLOUD || OF_STORES.contains(&kind);
    ELSEWHERE.contains(&kind) || may_be_here && attributes & (OFFLINE | RECALLED) != 0
}

fn is_compressed_form(name: &[u16]) -> bool {
    name.iter().copied().eq(COMPRESSED_TO.encode_utf16())
}

/// Permission bits of a file of which Linux has not told them.
fn mode_of(file: &File) -> u32 {
    match file.facts.attributes & READ_ONLY {
        _ if file.is_folder => FOLDER_MODE,
        0 => FILE_MODE,
        _ => READ_ONLY_MODE,
    }
}

/// What was read; nothing where it is damaged, and `wrong` says that `what` is, unless something else is wrong already.
fn told<T>(read: io::Result<Option<T>>, what: &str, at: u64, wrong: &mut Option<String>) -> Result<Option<T>, Error> {
    match read {
        Ok(found) => Ok(found),
        Err(error) if is_damage(&error) => {
            wrong.get_or_insert_with(|| format!("{what} cannot be read: {error}"));
            Ok(None)
        }
        Err(error) => Err(Error::Read { offset: at, error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarnfs_source::MemorySource;

    /// Any number of records may be in folders that are in themselves: each cost as many look-ups as a path may have,
    /// for a byte each.
    #[test]
    fn look_ups_of_folders_in_themselves_are_paid_for() {
        let (source, options) = (MemorySource::new(boot::tests::good(), "image"), Options::default());
        let mut ignore = |_| Ok(());
        let mut reader = Reader::open(&source, &options, &mut ignore).unwrap();
        let place = |number: u64| Reference { number, sequence: 0 };
        for (number, parent) in [(100, 101), (101, 100), (30, 40), (40, ROOT)] {
            let name = number.to_string().into_bytes().into();
            reader.folders.insert(number, Folder { sequence: 1, parent: place(parent), name });
        }
        let mut paid = |number: u64| {
            let before = reader.budget.bytes;
            (reader.path_of(place(number)).map(<[u8]>::to_vec), before - reader.budget.bytes)
        };
        assert_eq!(paid(30), (Ok(b"40/30".to_vec()), 2 * OF_STEP));
        assert_eq!(paid(30), (Ok(b"40/30".to_vec()), 0));
        for folder in [100, 101, 100] {
            let (path, taken) = paid(folder);
            assert!(matches!(path, Err(NoPath::Wrong(why)) if why.contains("in itself")));
            assert!(taken > 16 * options.limits.path_components as u64, "{taken}");
        }
        reader.budget.bytes = 5 * OF_STEP;
        let late = reader.path_of(place(101));
        assert!(matches!(late, Err(NoPath::Wrong(why)) if why.contains("too often")));
    }

    /// Tells of a file with names in folders, with what may be paid for that: the paths of files and of links, what is
    /// damaged, and what was paid. Folders 100 to 199 have 250 bytes each, and are each in the one before it.
    #[allow(clippy::type_complexity, reason = "a test takes it apart at once")]
    fn told_with(names: &[(u64, &str)], most: Option<u64>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<String>, u64) {
        let (source, options) = (MemorySource::new(boot::tests::good(), "image"), Options::default());
        let events = std::cell::RefCell::new(Vec::new());
        let mut receive = |event| {
            events.borrow_mut().push(event);
            Ok(())
        };
        let mut reader = Reader::open(&source, &options, &mut receive).unwrap();
        // It was cut.
        events.borrow_mut().clear();
        let place = |number: u64| Reference { number, sequence: 0 };
        for number in 100..200 {
            let (parent, name) = (if number == 100 { ROOT } else { number - 1 }, [b'f'; 250].into());
            reader.folders.insert(number, Folder { sequence: 1, parent: place(parent), name });
        }
        let names = names.iter().map(|(folder, text)| Name {
            folder: place(*folder),
            text: text.as_bytes().to_vec(),
            is_of_dos: false,
        });
        let file = File { names: names.collect(), ..File::default() };
        reader.budget.bytes = most.unwrap_or(reader.budget.bytes);
        let before = reader.budget.bytes;
        reader.tell(30, &file, 7).unwrap();
        let paid = before - reader.budget.bytes;
        let (mut files, mut links, mut damage) = (Vec::new(), Vec::new(), Vec::new());
        for event in events.take() {
            match event {
                Event::Entry(entry) if entry.kind == Kind::HardLink => links.push(entry.path),
                Event::Entry(entry) => files.push(entry.path),
                Event::Damage(found) => damage.push(found.what),
                _ => {}
            }
        }
        (files, links, damage, paid)
    }

    /// No link can lead to a long path. The file was told as a whole under each of its names, and as left out.
    #[test]
    fn the_content_of_a_file_is_told_once() {
        let (files, links, damage, _) = told_with(&[(130, "one"), (130, "two"), (131, "three")], None);
        assert_eq!((files.len(), links.len(), damage.len()), (1, 0, 2), "{damage:?}");
        assert!(files[0].ends_with(b"/one") && damage.iter().all(|what| what.contains(NO_TARGET)), "{damage:?}");
        let (files, links, damage, _) = told_with(&[(130, "one"), (ROOT, "two"), (130, "three")], None);
        let ends = links.iter().zip(["/one", "/three"]).all(|(path, end)| path.ends_with(end.as_bytes()));
        assert!(files == [b"two".to_vec()] && links.len() == 2 && ends && damage.is_empty(), "{damage:?}");
        // A name that is in no folder that is shown is none.
        let (files, links, damage, _) = told_with(&[(OF_SYSTEM, "one"), (130, "two")], None);
        assert_eq!((files.len(), links.len(), damage.len()), (1, 0, 0), "{damage:?}");
    }

    /// Before the path of a name is put together, it is paid for.
    #[test]
    fn paths_are_paid_for() {
        let (files, _, damage, paid) = told_with(&[(180, "one")], None);
        assert_eq!((files.len(), damage.len(), paid), (1, 0, 81 * 250 + 81 * 251 + 3 + OF_FILE));
        let (files, _, damage, paid) = told_with(&[(180, "one")], Some(81 * (250 + 251)));
        assert_eq!((files.len(), damage.len(), paid), (0, 1, 81 * 250), "{damage:?}");
    }
}
