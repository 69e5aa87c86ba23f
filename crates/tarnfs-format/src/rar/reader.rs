//! Reads an archive: which files are decoded together, and an entry for each.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, Limits, SharedSource, Source};
use xxhash_rust::xxh3::xxh3_64;

use super::Version;
use super::file::File;
use super::services;
use super::walk::{Block, Found, Next, Walk, find_start};
use crate::entry::LONGEST_FILE;
use crate::guess::Names;
use crate::image::{Quota, data_of};
use crate::name::{bounded_path, excerpt};
use crate::separators::{Separators, with_slashes};
use crate::{
    Body, Coder, Damage, Decode, Entry, Error, Event, Kind, Options, Piece, ReceiveRandom, Step, Unlisted, Volume,
};

/// Stored files of up to so many bytes that have no checksum but BLAKE2sp go through the decoder, which compares it.
/// Longer ones are read where they lie, and nothing compares them.
const COMPARED: u64 = 16 << 20;

/// Pieces of files whose content another one may have: each takes some hundred bytes of memory. Copies of others are
/// taken for hard links.
const MOST_KEPT: usize = 1 << 18;

/// Pieces that copies have beside the first one of each, in all: a few bytes make a copy, and a file may lie in any
/// number of parts. Further copies of such files are taken for hard links as well.
const MOST_COPIED: usize = 1 << 18;

/// Parts of a file whose places are kept: a header makes one, and none has to have a byte. A file lies in no more
/// volumes than have numbers, some ten thousand. Only of what is stored as it is are they needed.
const MOST_PARTS: usize = 1 << 18;

/// What a coder is made of: how the headers are encrypted, what it decodes, and the codec.
type Recipe = (Option<Vec<u8>>, u8, &'static str);

/// What it decodes: a file, a group of files, or what belongs to a file.
const ALONE: u8 = 0;
const RUN: u8 = 1;
const SERVICE: u8 = 2;

/// Bytes of the streams of one file that are attributes.
const MOST_OF_STREAMS: usize = 1 << 20;

/// Bytes that come of the streams of all files more than are stored of them: whoever reads the archive keeps these.
const MOST_MADE_OF_STREAMS: u64 = 64 << 20;

/// What is decoded for streams, in bytes that would be decoded at the same time. Making a decoder takes as long as some
/// thousand, and a few bytes of an archive ask for one. A file with a stream takes some two hundred.
const STREAMS: Quota = Quota { most: 64 << 20, least: 1 << 20, of_small: 16 };
const STREAMS_FOR_EACH_BYTE: u64 = 10;
const OF_DECODER: u64 = 2 << 10;
/// What one costs more that cannot be decoded: no program writes such streams.
const OF_WRONG: u64 = 32 << 10;

/// Coders that are kept.
const MOST_CODERS: usize = 8;

/// Bytes of a comment.
const LONGEST_COMMENT: usize = 64 << 10;

/// Files that are decoded together.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Where the header of the first one begins, and where the content of the last one ends.
    start: u64,
    end: u64,
    /// Bytes that come of all.
    decoded: u64,
    /// The same of those before the first one that is encrypted: nobody needs a password for them.
    plain_end: u64,
    plain: u64,
}

impl Group {
    /// Of a file whose header begins there.
    fn new(start: u64) -> Self {
        Self { start, end: start, decoded: 0, plain_end: start, plain: 0 }
    }

    fn is_encrypted(&self) -> bool {
        self.plain_end < self.end
    }

    /// Adds `whole`, of which so many bytes come. False if that are more than there can be.
    fn add(&mut self, whole: &Whole, size: u64) -> bool {
        let decoded = self.decoded.checked_add(size).filter(|decoded| i64::try_from(*decoded).is_ok());
        let Some(decoded) = decoded else { return false };
        let is_plain = !self.is_encrypted() && !whole.file.is_encrypted;
        (self.end, self.decoded) = (whole.end, decoded);
        if is_plain {
            (self.plain_end, self.plain) = (self.end, decoded);
        }
        true
    }
}

/// A file of which all parts were found, or the first ones.
struct Whole {
    file: Box<File>,
    /// Where its first header begins.
    at: u64,
    /// Where its parts are stored, how long they are, and the CRC-32 of each: of the first ones, if there are more than
    /// [`MOST_PARTS`].
    parts: Vec<(u64, u64, Option<u32>)>,
    has_more_parts: bool,
    /// Bytes of all parts, and where the last one ends.
    stored: u64,
    end: u64,
    /// How the headers before it were encrypted.
    lock: Option<Vec<u8>>,
}

impl Whole {
    /// True if it is decoded with others, or others with it: what has no content may have codes for the next one. Where
    /// nothing is stored there is nothing to decode, whatever size is told, as of a link.
    fn is_in_group(&self) -> bool {
        !self.file.is_stored && self.stored > 0
    }

    /// Adds a part, whose header is `file`: the last one tells the checksum of all.
    fn add(&mut self, file: Box<File>, found: &Found) {
        if self.parts.len() < MOST_PARTS {
            self.parts.push((found.data, found.length, file.crc));
        } else {
            self.has_more_parts = true;
        }
        self.stored = self.stored.saturating_add(found.length);
        self.end = found.data.saturating_add(found.length);
        self.file = file;
    }
}

/// Puts the parts of files together.
#[derive(Default)]
struct Files {
    begun: Option<Whole>,
}

impl Files {
    /// A block that is a file, or a part of one: the file, if that was all of it. What is wrong goes to `problems`.
    fn add(
        &mut self,
        file: Box<File>,
        found: &Found,
        lock: Option<&Vec<u8>>,
        problems: &mut Vec<Damage>,
    ) -> Option<Whole> {
        let mut problem = |what: &str, file: &File| {
            let what = format!("'{}' {what}", excerpt(&file.path));
            problems.push(Damage { offset: found.at, what });
        };
        let mut whole = match self.begun.take() {
            Some(begun) if file.is_continued && begun.file.path == file.path => {
                let mut whole = begun;
                whole.add(file, found);
                whole
            }
            begun => {
                if let Some(begun) = begun {
                    problem("goes on in a volume that is not there", &begun.file);
                }
                if file.is_continued {
                    problem("begins in a volume that is not there", &file);
                    return None;
                }
                let parts = vec![(found.data, found.length, file.crc)];
                let (stored, end) = (found.length, found.data.saturating_add(found.length));
                Whole { file, at: found.at, parts, has_more_parts: false, stored, end, lock: lock.cloned() }
            }
        };
        if found.is_cut {
            problem("is cut short", &whole.file);
        }
        if whole.file.goes_on && !found.is_cut {
            self.begun = Some(whole);
            return None;
        }
        whole.file.goes_on = found.is_cut;
        Some(whole)
    }
}

/// What the archive `source` says of itself as a volume.
pub(super) fn volume(source: &dyn Source) -> io::Result<Option<Volume>> {
    let (start, version) = match find_start(source) {
        Ok(found) => found,
        Err(Error::NotThisFormat { .. }) => return Ok(None),
        Err(other) => return Err(other.into()),
    };
    let mut walk = Walk::new(source, start, version, &Decode::default(), &Cancel::default());
    let (mut goes_on, mut is_continued) = (false, false);
    let told = |is_followed, is_continued| {
        let is_part = is_continued || is_followed == Some(true);
        Ok(Some(Volume { is_followed, is_part, next: None, set: None }))
    };
    loop {
        let found = match walk.next() {
            Ok(Next::Block(found)) => found,
            // Whoever reads it says what is wrong.
            Ok(Next::Damage(_)) => return told(None, is_continued),
            Ok(Next::End) => return told(Some(goes_on), is_continued),
            // Its headers are encrypted.
            Err(Error::Read { error, .. })
                if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) =>
            {
                return told(None, is_continued);
            }
            Err(other) => return Err(other.into()),
        };
        match found.block {
            Block::Main { is_volume: false, .. } => return Ok(None),
            Block::File(file) => {
                goes_on = file.goes_on;
                is_continued |= file.is_continued;
            }
            Block::End { is_followed } => return told(Some(is_followed), is_continued),
            _ => {}
        }
    }
}

/// What is in the archive and in none of its files.
pub(super) fn unlisted(source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
    let (start, version) = match find_start(source) {
        Ok(found) => found,
        Err(Error::Read { error, .. }) => return Err(error),
        Err(_) => return Ok(Unlisted::unknown()),
    };
    let mut walk = Walk::new(source, start, version, &Decode::default(), cancel);
    let (mut unlisted, mut is_locked, mut left_out) = (Unlisted::default(), false, false);
    let (mut has_comment, mut comments) = (false, 0_u64);
    loop {
        let found = match walk.next() {
            Ok(Next::Block(found)) => found,
            Ok(_) => break,
            Err(Error::Read { error, .. }) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
            Err(_) => {
                is_locked = true;
                break;
            }
        };
        let service = match &found.block {
            Block::Service(service) => service,
            Block::LeftOut => {
                left_out = true;
                continue;
            }
            Block::Main { has_comment: true, .. } => {
                has_comment = true;
                continue;
            }
            Block::File(file) => {
                comments = comments.saturating_add(u64::from(file.has_comment && !file.is_continued));
                continue;
            }
            _ => continue,
        };
        if services::is_left_out(service, &found, version == Version::Five, &Limits::default()) {
            left_out = true;
        } else if service.path == services::COMMENT {
            if service.is_stored && !service.is_encrypted {
                let comment = walk.data(&found, LONGEST_COMMENT)?;
                unlisted.comment = comment.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
            } else {
                unlisted.others.push("a comment that is compressed".to_owned());
            }
        }
    }
    if left_out {
        let what = "access lists of NTFS, streams that cannot be attributes, or attributes of OS/2, macOS or BeOS";
        unlisted.others.push(what.to_owned());
    }
    if has_comment {
        unlisted.others.push("a comment that is not read".to_owned());
    }
    if comments > 0 {
        unlisted.others.push(format!("comments on {comments} of its files"));
    }
    if !is_locked {
        unlisted.others.extend(crate::around(source, start..walk.position(), cancel)?);
    }
    Ok(unlisted)
}

/// Hands what the archive holds to `receive`.
pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let (start, version) = find_start(&**source)?;
    let data = data_of(&**source);
    let walk = |source| Walk::new(source, start, version, &options.decode, &options.cancel);
    let mut reader = Reader {
        options,
        receive,
        version,
        groups: Groups::new(walk(&**source)),
        separators: Separators::new(options),
        names: Some(walk(&**source)),
        group: None,
        skip: 0,
        coders: Vec::new(),
        kept: HashMap::new(),
        kept_pieces: 0,
        copied_pieces: 0,
        made: 0,
        work: STREAMS.of(data, options.shares).saturating_add(data.saturating_mul(STREAMS_FOR_EACH_BYTE)),
        has_enough: false,
        last: None,
    };
    reader.run(walk(&**source), source)
}

/// Gathers the paths of the archive.
fn gather(walk: Option<Walk<'_>>, names: &mut Names) -> Result<(), Error> {
    let Some(mut walk) = walk else { return Ok(()) };
    while !names.are_enough()
        && let Next::Block(found) = walk.next()?
    {
        if let Block::File(file) = found.block {
            names.add(&file.path, true);
        }
    }
    Ok(())
}

/// True of a file that is decoded with what came before it.
fn is_solid(file: &File, archive: bool, is_first: bool) -> bool {
    file.is_solid || file.is_as_archive && archive && !is_first
}

/// Finds the groups, in their order: of more than one file, or of one that counts on another one before it, which has
/// left nothing. It goes on as far as they are asked for, so that no more than two are kept: 68 bytes of an archive
/// make one. What is wrong is told by who reads the archive at the same time.
#[allow(clippy::struct_excessive_bools, reason = "each says something else")]
struct Groups<'s> {
    walk: Walk<'s>,
    /// Those that were found and not handed out yet.
    found: VecDeque<Group>,
    has_ended: bool,
    files: Files,
    problems: Vec<Damage>,
    /// What the archive says of all its files, and whether it has said so.
    archive: bool,
    is_begun: bool,
    is_first: bool,
    /// The group that may go on, whether it counts alone, and whether something is lost that what follows needs.
    current: Option<Group>,
    counts: bool,
    is_lost: bool,
}

impl<'s> Groups<'s> {
    fn new(walk: Walk<'s>) -> Self {
        Self {
            walk,
            found: VecDeque::new(),
            has_ended: false,
            files: Files::default(),
            problems: Vec::new(),
            archive: false,
            is_begun: false,
            is_first: true,
            current: None,
            counts: false,
            is_lost: false,
        }
    }

    /// The next one.
    fn next(&mut self) -> Result<Option<Group>, Error> {
        while self.found.is_empty() && !self.has_ended {
            self.step()?;
        }
        Ok(self.found.pop_front())
    }

    /// The group that may go on does not.
    fn close(&mut self, counts: bool) {
        self.found.extend(self.current.take().filter(|_| counts));
    }

    /// Looks at the next block.
    fn step(&mut self) -> Result<(), Error> {
        let Next::Block(found) = self.walk.next()? else {
            self.has_ended = true;
            self.close(self.counts);
            return Ok(());
        };
        match &found.block {
            Block::Main { is_solid, .. } if !self.is_begun => (self.archive, self.is_begun) = (*is_solid, true),
            // Nothing depends on anything else.
            Block::File(_) if !self.archive => self.has_ended = true,
            _ => {}
        }
        let Found { block: Block::File(file), .. } = found else { return Ok(()) };
        if self.has_ended {
            return Ok(());
        }
        let found = Found { block: Block::Other, ..found };
        let (is_stored, begun) = (file.is_stored, self.files.begun.as_ref().is_some_and(Whole::is_in_group));
        self.problems.clear();
        let whole = self.files.add(file, &found, None, &mut self.problems);
        // Of the one before, or of this one, parts are not there. What is only stored leaves nothing to others.
        let has_no_start = whole.is_none() && self.files.begun.is_none();
        if self.problems.len() > usize::from(found.is_cut) && (begun || has_no_start && !is_stored) {
            self.close(self.counts);
            self.is_lost = true;
        }
        let Some(whole) = whole.filter(Whole::is_in_group) else { return Ok(()) };
        let is_solid = is_solid(&whole.file, self.archive, std::mem::take(&mut self.is_first));
        if !is_solid {
            self.close(self.counts);
            self.is_lost = false;
        }
        if self.is_lost {
            return Ok(());
        }
        let size = whole.file.size.filter(|_| !found.is_cut);
        let is_next = self.current.is_some();
        let group = self.current.get_or_insert_with(|| Group::new(whole.at));
        if size.is_some_and(|size| group.add(&whole, size)) {
            self.counts = is_next || is_solid;
        } else {
            // What follows cannot be found in what comes of it.
            self.close(is_next && self.counts);
            self.is_lost = true;
        }
        Ok(())
    }
}

/// The file that was read last: what follows may tell more of it.
struct Last {
    entry: Box<Entry>,
}

struct Reader<'o, 'r> {
    options: &'o Options,
    receive: &'r mut ReceiveRandom<'r>,
    version: Version,
    groups: Groups<'o>,
    separators: Separators,
    /// Goes along the names, if they have to say which encoding they have.
    names: Option<Walk<'o>>,
    /// The group that comes next, or is read, and bytes of it that come before the next file.
    group: Option<Group>,
    skip: u64,
    /// The coders that were used last: behind headers that are encrypted so, of a group or not, encrypted or not.
    coders: Vec<(Recipe, Arc<Coder>)>,
    /// Content that others may have, by the hash of its path.
    kept: HashMap<u64, Body>,
    /// Pieces of these, and those that copies have beside their first ones.
    kept_pieces: usize,
    copied_pieces: usize,
    /// Bytes that come of the streams of all files so far more than are stored of them.
    made: u64,
    /// What may still be spent on decoding streams, and whether it was told that others are left out.
    work: u64,
    has_enough: bool,
    last: Option<Last>,
}

impl Reader<'_, '_> {
    fn run(&mut self, mut walk: Walk<'_>, source: &SharedSource) -> Result<(), Error> {
        let (mut files, mut archive, mut is_begun, mut is_first) = (Files::default(), false, false, true);
        let mut problems = Vec::new();
        loop {
            let found = match walk.next()? {
                Next::Block(found) => found,
                Next::End => break,
                Next::Damage(damage) if !is_begun => {
                    let reason = format!("its first header is damaged, at byte {}", damage.offset);
                    return Err(Error::Unreadable { format: super::NAME, reason });
                }
                Next::Damage(damage) => {
                    self.flush()?;
                    self.damage(damage)?;
                    break;
                }
            };
            let Found { at, data, length, is_cut, block } = found;
            let found = Found { at, data, length, is_cut, block: Block::Other };
            match block {
                Block::Main { is_solid, .. } => {
                    archive |= is_solid;
                    is_begun = true;
                }
                Block::Lock(_) => is_begun = true,
                Block::File(mut file) => {
                    self.flush()?;
                    if self.version == Version::Four {
                        let walk = &mut self.names;
                        let encoding = self.separators.encoding_of(&file.path, |names| gather(walk.take(), names))?;
                        file.path = with_slashes(std::mem::take(&mut file.path), encoding);
                    }
                    let whole = files.add(file, &found, walk.lock.as_ref(), &mut problems);
                    for problem in problems.drain(..) {
                        self.damage(problem)?;
                    }
                    if let Some(whole) = whole {
                        let is_solid = is_solid(&whole.file, archive, is_first);
                        is_first &= !whole.is_in_group();
                        self.file(whole, is_solid)?;
                    }
                }
                Block::Service(service) => match &service.path[..] {
                    services::OWNERS => {
                        let mut names = service.beside.split(|byte| *byte == 0);
                        self.owner(names.next().unwrap_or_default(), names.next().unwrap_or_default());
                    }
                    services::STREAM => self.stream(&service, &found, walk.lock.as_ref(), source)?,
                    _ => {}
                },
                Block::Owner { user, group } => self.owner(&user, &group),
                Block::End { .. } | Block::LeftOut | Block::Other => {}
            }
        }
        self.flush()?;
        if let Some(begun) = files.begun {
            let what = format!("'{}' goes on in a volume that is not there", excerpt(&begun.file.path));
            self.damage(Damage { offset: begun.at, what })?;
        }
        Ok(())
    }

    fn owner(&mut self, user: &[u8], group: &[u8]) {
        let most = self.options.limits.owner_name;
        if let Some(Last { entry }) = &mut self.last {
            (entry.user, entry.group) = (cut(user, most), cut(group, most));
        }
    }

    /// A stream of the last file is an attribute of it, if it is short and everybody may read it.
    fn stream(
        &mut self,
        service: &File,
        found: &Found,
        lock: Option<&Vec<u8>>,
        source: &SharedSource,
    ) -> Result<(), Error> {
        let limits = &self.options.limits;
        let Some(Last { entry }) = &self.last else { return Ok(()) };
        let Some(name) = services::name_of_stream(service, self.version == Version::Five) else { return Ok(()) };
        let name = [b"user.", &name[..]].concat();
        let taken = entry.xattrs.iter().fold(0, |sum: usize, (_, value)| sum.saturating_add(value.len()));
        let has_room = entry.xattrs.len() < limits.xattrs && name.len() <= limits.name && taken <= MOST_OF_STREAMS;
        if !has_room || !services::is_short(service, found, limits) {
            return Ok(());
        }
        if self.has_enough {
            return Ok(());
        }
        let size = service.size.unwrap_or_default();
        let cost = if service.is_stored || size == 0 { 0 } else { OF_DECODER };
        let left = self.work.checked_sub(cost);
        self.made = self.made.saturating_add(size.saturating_sub(found.length));
        let Some(left) = left.filter(|_| self.made <= MOST_MADE_OF_STREAMS) else {
            self.has_enough = true;
            let what = "there are too many streams: from here on they are left out".to_owned();
            return self.damage(Damage { offset: found.at, what });
        };
        self.work = left;
        let path = excerpt(&entry.path).to_string();
        let coder = self.coder(lock, SERVICE, "rar");
        match services::content(service, found, &coder, source, &self.options.decode) {
            Ok(value) => {
                if let Some(Last { entry }) = &mut self.last {
                    entry.xattrs.push((name, value));
                }
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                self.work = self.work.saturating_sub(OF_WRONG);
                let what = format!("a stream of '{path}' is left out: {error}");
                self.damage(Damage { offset: found.at, what })
            }
            // Nothing here can decode it.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            Err(error) => Err(Error::Read { offset: found.at, error }),
        }
    }

    fn damage(&mut self, damage: Damage) -> Result<(), Error> {
        (self.receive)(Event::Damage(damage)).map_err(Error::Receiver)
    }

    /// Tells the last file.
    fn flush(&mut self) -> Result<(), Error> {
        match self.last.take() {
            Some(Last { entry }) => (self.receive)(Event::Entry(entry)).map_err(Error::Receiver),
            None => Ok(()),
        }
    }

    fn file(&mut self, whole: Whole, is_solid: bool) -> Result<(), Error> {
        let limits = self.options.limits;
        let body = self.body(&whole, is_solid)?;
        let Whole { file, at, .. } = whole;
        if file.path.is_empty() {
            return self.damage(Damage { offset: at, what: "a file without a name is left out".to_owned() });
        }
        if file.path.len() > limits.path {
            let (path, length) = (excerpt(&file.path).to_string(), file.path.len());
            let what = format!("{path}: a path of {length} bytes was cut to {}", limits.path);
            self.damage(Damage { offset: at, what })?;
        }
        let File { path, mut kind, mode, uid, gid, mtime, atime, mut link, copy_of, .. } = *file;
        let (user, group) = (cut(&file.user, limits.owner_name), cut(&file.group, limits.owner_name));
        let (mut body, is_copy) = (body, copy_of.is_some());
        if let Some(original) = copy_of {
            let known = self.kept.get(&xxh3_64(&original));
            let pieces = known.map_or(0, pieces_of).saturating_sub(1).saturating_add(self.copied_pieces);
            if let Some(known) = known.filter(|_| pieces <= MOST_COPIED) {
                body = Body { offset: at, ..known.clone() };
                self.copied_pieces = pieces;
            } else {
                (kind, link) = (Kind::HardLink, original);
            }
        }
        let path = bounded_path(path, limits.path);
        let (pieces, has_content) = (pieces_of(&body), kind == Kind::File && body.size > 0);
        if self.version == Version::Five {
            // What was at this path before is not there any more.
            let before = self.kept.remove(&xxh3_64(&path)).as_ref().map_or(0, pieces_of);
            self.kept_pieces = self.kept_pieces.saturating_sub(before);
            let kept = self.kept_pieces.saturating_add(pieces);
            // Of what was copied already, other copies name the original.
            if has_content && !(is_copy && pieces > 1) && kept <= MOST_KEPT {
                self.kept_pieces = kept;
                self.kept.insert(xxh3_64(&path), body.clone());
            }
        }
        let link = bounded_path(link, limits.path);
        let entry =
            Entry { path, kind, mode, uid, gid, user, group, mtime, atime, header: at, body, link, ..Entry::default() };
        self.last = Some(Last { entry: Box::new(entry) });
        Ok(())
    }

    /// Where its content is.
    fn body(&mut self, whole: &Whole, is_solid: bool) -> Result<Body, Error> {
        let Whole { file, at, parts, stored, .. } = whole;
        let empty = Body { offset: *at, ..Body::default() };
        let group = self.group_at(*at)?.filter(|_| whole.is_in_group());
        let skip = self.skip;
        if group.is_some() {
            self.skip = skip.saturating_add(file.size.unwrap_or_default());
        }
        let has_content = file.kind == Kind::File || file.kind == Kind::Symlink && file.link.is_empty();
        if !has_content || file.copy_of.is_some() {
            return Ok(empty);
        }
        let Some(size) = file.size else {
            let what = format!("'{}' has no size: it is shown as empty", excerpt(&file.path));
            self.damage(Damage { offset: *at, what })?;
            return Ok(empty);
        };
        if size == 0 {
            return Ok(empty);
        }
        if size > LONGEST_FILE {
            let what = format!("'{}' would have {size} bytes", excerpt(&file.path));
            self.damage(Damage { offset: *at, what })?;
            return Ok(Body { size: LONGEST_FILE, pieces: Some(vec![Piece::unreadable(*at, size)]), ..empty });
        }
        let is_plain = file.is_stored && !file.is_encrypted && (!file.has_other_check || size > COMPARED);
        let pieces = if file.goes_on || is_plain && *stored < size {
            // It is cut, as was told.
            vec![Piece::unreadable(*at, size)]
        } else if is_plain && whole.has_more_parts {
            let what = format!("'{}' lies in more than {MOST_PARTS} parts: it cannot be read", excerpt(&file.path));
            self.damage(Damage { offset: *at, what })?;
            vec![Piece::unreadable(*at, size)]
        } else if is_plain {
            plain(parts, size)
        } else if let Some(group) = group {
            // What comes before all that is encrypted is decoded without it.
            let is_plain = *at < group.plain_end;
            let (end, decoded) = if is_plain { (group.plain_end, group.plain) } else { (group.end, group.decoded) };
            let codec = codec(file, !is_plain);
            let coder = Some(self.coder(whole.lock.as_ref(), RUN, codec));
            let (offset, stored) = (group.start, end.saturating_sub(group.start));
            vec![Piece { hole: 0, length: size, offset, stored, coder, decoded, skip, crc: file.crc }]
        } else if is_solid && whole.is_in_group() {
            let what = format!("'{}' cannot be decoded without a file that is not there", excerpt(&file.path));
            self.damage(Damage { offset: *at, what })?;
            vec![Piece::unreadable(*at, size)]
        } else {
            let coder = Some(self.coder(whole.lock.as_ref(), ALONE, codec(file, file.is_encrypted)));
            let stored = whole.end.saturating_sub(*at);
            vec![Piece { length: size, offset: *at, stored, coder, decoded: size, crc: file.crc, ..Piece::default() }]
        };
        Ok(Body { size, pieces: Some(pieces), ..empty })
    }

    /// The group that the file whose header begins at `at` lies in, if there is one.
    fn group_at(&mut self, at: u64) -> Result<Option<Group>, Error> {
        while self.group.is_none_or(|group| at >= group.end) {
            let Some(next) = self.groups.next()? else { return Ok(None) };
            (self.group, self.skip) = (Some(next), 0);
        }
        Ok(self.group.filter(|group| at >= group.start))
    }

    /// The coder of `what`, behind headers that are encrypted so.
    fn coder(&mut self, lock: Option<&Vec<u8>>, what: u8, codec: &'static str) -> Arc<Coder> {
        let which = (lock.cloned(), what, codec);
        if let Some((_, coder)) = self.coders.iter().find(|(known, _)| *known == which) {
            return Arc::clone(coder);
        }
        let properties = [&[what, self.version.number()], lock.map(Vec::as_slice).unwrap_or_default()].concat();
        let steps = vec![Step { codec: codec.to_owned(), properties, ..Step::default() }];
        let coder = Arc::new(Coder { steps, is_behind_header: None });
        // Each volume may have another salt.
        self.coders.truncate(MOST_CODERS.saturating_sub(1));
        self.coders.insert(0, (which, Arc::clone(&coder)));
        coder
    }
}

/// What decodes `file`, for who needs a password or not. Where a file has no checksum at all, its name says that.
fn codec(file: &File, is_encrypted: bool) -> &'static str {
    match (is_encrypted, file.crc.is_some() || file.has_other_check) {
        (false, true) => "rar",
        (true, true) => "aes-rar",
        (false, false) => "rar-unchecked",
        (true, false) => "aes-rar-unchecked",
    }
}

fn pieces_of(body: &Body) -> usize {
    body.pieces.as_ref().map_or(0, Vec::len)
}

fn cut(name: &[u8], most: usize) -> Vec<u8> {
    name.get(..most).unwrap_or(name).to_vec()
}

/// The pieces of a file that is stored as it is, of at most `size` bytes.
fn plain(parts: &[(u64, u64, Option<u32>)], size: u64) -> Vec<Piece> {
    let mut left = size;
    // The checksum of the last part is told as that of all parts: those before it are taken out.
    let mut before = Some(crc32fast::Hasher::new());
    let mut pieces = Vec::with_capacity(parts.len());
    for (number, &(offset, length, crc)) in parts.iter().enumerate() {
        let is_last = number.saturating_add(1) == parts.len();
        let length = length.min(left);
        left = left.saturating_sub(length);
        let crc = match (&mut before, crc) {
            (Some(before), Some(crc)) if is_last => {
                before.combine(&crc32fast::Hasher::new_with_initial_len(0, length));
                Some(before.clone().finalize() ^ crc)
            }
            (Some(before), Some(crc)) => {
                before.combine(&crc32fast::Hasher::new_with_initial_len(crc, length));
                Some(crc)
            }
            _ => {
                before = None;
                None
            }
        };
        if length > 0 {
            pieces.push(Piece { length, offset, stored: length, decoded: length, crc, ..Piece::default() });
        }
    }
    pieces
}
