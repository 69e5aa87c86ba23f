//! Reading the members of one archive, and those of archives that lie in it as they are. What is compressed in it waits
//! (`nested.rs`).

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarnfs_codec::Codec;
use tarnfs_format::{
    Body, Damage, Entry, Event, Format, Kind, Probe, ReadForwards, Stream, Xattrs, name, stream::Part,
};
use tarnfs_source::{SharedSource, Slice, Source};

use super::amount::{self, Amount};
use super::bodies::{Bodies, is_no_room};
use super::decoding::Shifts;
use super::hashing::{self, Hashing};
use super::head_length;
use super::names::{Names, OwnName, last_component};
use super::nested::{Candidate, too_many_layers};
use super::parts::Gathered;
use super::receiver::{About, Call, Receiver};
use super::sparse;
use super::walk_directory::is_unreadable;
use crate::access_list;
use crate::archive::LONGEST_TARGET;
use crate::open::{Contents, Options};
use crate::parts;
use crate::pieces::CodedStreams;
use crate::preferred::{Choice, Preferred};
use crate::problem::Problem;

/// Bodies are padded to this many bytes in the archives that can grow.
const RECORD: u64 = 512;

/// Archives inside each other that are read by calls inside each other; deeper ones wait, so that no archive fills the
/// stack.
const MOST_CALLS: u32 = 12;

/// Format's bids up to this one are guesses (zeros; damage at the start), not enough for a file in an archive.
pub(super) const GUESS: u32 = 4;

/// What reads the members of archives, wherever they lie.
pub(super) struct Walk<'a> {
    pub(super) names: &'a Names,
    pub(super) options: &'a Options,
    pub(super) format_options: &'a tarnfs_format::Options,
    pub(super) receiver: &'a dyn Receiver,
    pub(super) bodies: &'a Bodies,
    pub(super) shifts: &'a RefCell<Shifts>,
    /// How many archives that lie in it uncompressed may still be shown as folders.
    pub(super) left: Cell<u64>,
    /// The bytes of the stream that is read, if they can be read at any time, and the byte of the stream at which they
    /// begin.
    pub(super) bytes: Option<(&'a SharedSource, u64)>,
    /// Of an archive without compression headers say how far it was read.
    pub(super) shows_progress: bool,
    /// Called behind each member of the archive itself: what waits must not fill the memory.
    pub(super) behind_each: Option<&'a dyn Fn() -> Result<(), Problem>>,
    /// What that call has said.
    pub(super) failed: RefCell<Option<Problem>>,
    /// Computes what is kept of files' contents, if anything is.
    pub(super) hashing: Option<Hashing<'a>>,
    /// Who gets the contents of files.
    pub(super) contents: Option<&'a dyn Contents>,
    /// What may still be read of archives in the archive.
    pub(super) amount: &'a Arc<Amount>,
    /// What is decoded of single members, of an archive that has a directory.
    pub(super) coded: Arc<CodedStreams>,
    /// Where the compressed file begins that is read. Notes count bytes of the archive; what counts in here is told
    /// beside them.
    pub(super) compressed_at: Option<u64>,
    /// Files of the archive that is being read which may be parts of one that was split.
    pub(super) parts: RefCell<Gathered>,
}

/// Where the members of an archive are put.
#[derive(Debug, Clone, Default)]
pub(super) struct MemberPlace {
    /// Empty, or a path that ends in a slash.
    pub(super) prefix: Vec<u8>,
    /// Archives around it; one that is compressed counts twice.
    pub(super) depth: u32,
    /// Layers of compression around it and its own, those around the archive itself left aside.
    pub(super) layers: u32,
    /// Of these, files that are read through a coder while what is in them is read.
    pub(super) in_pieces: u32,
    /// Byte of the stream at which it ends, if the stream goes on behind it.
    pub(super) end: Option<u64>,
}

/// What is to be done with a file in an archive whose name says that it may be an archive, or a part of one.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// It is shown as a folder.
    Archive(Content),
    /// It is kept, since it may be a part. For itself it is this.
    Part(Option<Content>),
    /// Nothing: it is known where it is.
    Nothing,
}

/// What a file is, by its first bytes.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Format(&'static dyn Format),
    Codec(&'static dyn Codec),
}

/// True if a part of the headers of `entry`, which have just been read, is not what the archive has: its name may be
/// one that nobody gave it. Of a link, so may its target.
fn is_made_up(entry: &Entry, stream: &dyn Stream) -> bool {
    let end = if entry.kind == Kind::File { entry.body.offset } else { stream.position() };
    stream.is_filled(entry.header..end)
}

/// Gives `contents` what `stream` holds of `entry`, at whose content it stands.
fn hand_on(contents: &dyn Contents, entry: &Entry, stream: &mut dyn Stream) -> io::Result<()> {
    let body = &entry.body;
    let is_here = entry.kind == Kind::File && body.pieces.is_none() && stream.position() == body.offset;
    if !is_here || body.stored == 0 || !contents.begin(entry)? {
        return Ok(());
    }
    let left = hand_on_bytes(contents, body.stored, stream)?;
    contents.end(left == 0)
}

/// Gives `contents` the next `length` bytes of `stream`; says how many were not there.
pub(super) fn hand_on_bytes(contents: &dyn Contents, length: u64, stream: &mut dyn Stream) -> io::Result<u64> {
    let mut left = length;
    while left > 0 {
        let mut taken = Ok(());
        let passed = hashing::next(stream, left, &mut |part| taken = contents.write(part))?;
        taken?;
        if passed == 0 {
            break;
        }
        left -= passed;
    }
    Ok(left)
}

/// What a file of that name is, which is `source` and begins with `head`. What is damaged is what its head says; where
/// reading failed otherwise, nobody knows what it is.
pub(crate) fn content_of(
    head: &[u8],
    source: &dyn Source,
    name: &[u8],
    preferred: &Preferred,
) -> io::Result<Option<Content>> {
    let probe = Probe::new(head, source);
    let content = content_by(&probe, name, preferred);
    match probe.take_error() {
        Some((_, error)) if !is_unreadable(&error) && !super::is_known_by(head) => Err(error),
        _ => match content {
            Some(Content::Format(format)) if is_part(format, source)? => Ok(None),
            content => Ok(content),
        },
    }
}

/// True if `source` is one of the volumes of an archive: a folder of what begins and ends in it would hide the rest.
fn is_part(format: &dyn Format, source: &dyn Source) -> io::Result<bool> {
    match format.volumes_by_first().map_or(Ok(None), |format| format.volume(source)) {
        // The others are there.
        _ if source.part_starts().len() > 1 => Ok(false),
        Ok(volume) => Ok(volume.is_some_and(|volume| volume.is_part)),
        Err(error) if is_unreadable(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a stream of that name is of which only the start is known.
pub(crate) fn content_of_head(head: &[u8], name: &[u8], preferred: &Preferred) -> Option<Content> {
    content_by(&Probe::of_head(head), name, preferred)
}

fn content_by(probe: &Probe<'_>, name: &[u8], preferred: &Preferred) -> Option<Content> {
    match preferred.choose(probe) {
        Some(Choice::Codec(codec)) => return Some(Content::Codec(codec)),
        Some(Choice::Format(format)) if format.bid(probe) > GUESS => return Some(Content::Format(format)),
        _ => {}
    }
    let head = probe.head();
    let format = tarnfs_format::detect(probe).filter(|format| format.bid(probe) > GUESS);
    if let Some(of_name) = tarnfs_format::known_by_its_end(name) {
        // Where the end is not there, it is cut: what it begins with is no stream of its own.
        return if probe.length().is_none() { Some(of_name) } else { format }.map(Content::Format);
    }
    let codec = match format {
        None => tarnfs_codec::detect_named(name, head),
        Some(format) => tarnfs_codec::detect(head).filter(|codec| codec.bid(head) > format.bid(probe)),
    };
    codec.map(Content::Codec).or(format.map(Content::Format))
}

impl Content {
    /// True if what is in it is compared with checksums that it has itself, file by file.
    pub(super) fn compares_content(self) -> bool {
        matches!(self, Self::Format(format) if format.compares_content())
    }

    /// The codec that it is compressed with.
    pub(crate) fn codec(self) -> Option<&'static dyn Codec> {
        match self {
            Self::Codec(codec) => Some(codec),
            Self::Format(_) => None,
        }
    }
}

/// What became of an archive.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Byte of the stream at which the last member ends.
    pub(super) end: u64,
    /// The name that the archive gives itself.
    pub(super) label: Option<Vec<u8>>,
    /// What is in it that no entry shows, in words.
    pub(super) unlisted: Vec<String>,
    /// What comes behind the end would not stand for itself: a header says something of it.
    pub(super) holds_for_more: bool,
}

/// A file whose content was read before it was certain that this is all of it.
struct Ahead {
    entry: Box<Entry>,
    read: Read,
}

enum Read {
    /// What it holds was told.
    Expanded(Expanded),
    Hashed(hashing::Content),
}

/// What became of a file whose content was read as an archive.
#[derive(Default)]
pub(super) struct Expanded {
    /// Of its members, something is missing before that byte.
    pub(super) shift: Option<u64>,
    /// The file's own hashes, where it shows beside the folder.
    pub(super) hashes: Xattrs,
}

impl Walk<'_> {
    /// Reads the members of the archive of that format which `stream` holds.
    pub(super) fn members(
        &self,
        format: &dyn ReadForwards,
        stream: &mut dyn Stream,
        place: &MemberPlace,
    ) -> Result<Members, Problem> {
        let members = RefCell::new(Members { end: stream.position(), ..Members::default() });
        let result = self.members_at(format, stream, place, &members, 0);
        self.ended(result, members.into_inner())
    }

    /// What came of reading `members`.
    pub(super) fn ended(&self, result: Result<(), tarnfs_format::Error>, members: Members) -> Result<Members, Problem> {
        if let Some(problem) = self.failed.take() {
            return Err(problem);
        }
        match result {
            Ok(()) => Ok(members),
            Err(tarnfs_format::Error::Read { offset, error }) => Err(self.problem(offset, error)),
            Err(tarnfs_format::Error::NotThisFormat { .. }) => Err(Problem::NotAnArchive),
            Err(
                tarnfs_format::Error::Unreadable { format, reason }
                | tarnfs_format::Error::Unsupported { format, reason },
            ) => Err(Problem::Unreadable { format, reason }),
            Err(tarnfs_format::Error::Receiver(error)) => Err(self.problem(members.end, error)),
            Err(error) => Err(Problem::Index(tarnfs_index::Error::Io(io::Error::other(error)))),
        }
    }

    /// What an error while reading at byte `offset` stands for.
    pub(super) fn problem(&self, offset: u64, error: io::Error) -> Problem {
        if self.options.cancel.is_cancelled() {
            return Problem::Cancelled;
        }
        // What is found goes to the writer while the stream is read.
        match error.downcast::<tarnfs_index::Error>() {
            Ok(of_writer) => of_writer.into(),
            Err(error) => Problem::Read { offset, error },
        }
    }

    fn members_at(
        &self,
        format: &dyn ReadForwards,
        stream: &mut dyn Stream,
        place: &MemberPlace,
        members: &RefCell<Members>,
        calls: u32,
    ) -> Result<(), tarnfs_format::Error> {
        let progress = &self.options.progress;
        let limits = &self.options.limits;
        let mut format_options = Cow::Borrowed(self.format_options);
        if place.depth > 0 {
            format_options.to_mut().limits = amount::limits_at(self.format_options.limits, place.depth);
        }
        // An archive that lies in another one has parts of its own.
        let of_outer = self.parts.take();
        let count = Cell::new(0_u64);
        let mut last: Option<Box<Entry>> = None;
        let mut ahead: Option<Ahead> = None;
        let result = format.read(stream, &format_options, &mut |event, stream| {
            match event {
                Event::Ahead(entry) if is_made_up(&entry, stream) => {}
                Event::Ahead(mut entry) => {
                    if let Some(end) = place.end {
                        entry.body.end_at(end);
                    }
                    let Some(own_name) = self.names.place(&place.prefix, &mut entry, limits) else { return Ok(()) };
                    self.settle(last.take().as_deref()).map_err(io::Error::other)?;
                    if let Some(wanted) = self.wanted(&entry, own_name.of(&entry), stream, place)? {
                        self.flush()?;
                        self.receiver.about(About::Ahead, &entry).map_err(io::Error::other)?;
                        let expanded = self.hashed(wanted, &entry, stream, place, members, calls)?;
                        ahead = Some(Ahead { entry, read: Read::Expanded(expanded) });
                    } else if let Some(hashing) = &self.hashing {
                        let content = hashing.read(&entry, stream, self.bytes)?;
                        ahead = Some(Ahead { entry, read: Read::Hashed(content) });
                    }
                }
                Event::Entry(mut entry) => {
                    count.set(count.get() + 1);
                    if let Some(end) = place.end {
                        entry.body.end_at(end);
                    }
                    if count.get().is_multiple_of(1024) {
                        progress.entries.fetch_add(1024, Ordering::Relaxed);
                        if self.shows_progress {
                            progress.bytes.fetch_max(entry.header, Ordering::Relaxed);
                        }
                    }
                    let end = entry.body.offset.saturating_add(entry.body.stored).next_multiple_of(RECORD);
                    let furthest = members.borrow().end.max(end);
                    members.borrow_mut().end = furthest;
                    if is_made_up(&entry, stream) {
                        let what = "what says what lies there could not be read: it is left out".to_owned();
                        return self.damage(Damage { offset: entry.header, what }, place);
                    }
                    let Some(own_name) = self.place(place, &mut entry, 0)? else { return Ok(()) };
                    // All of the content of the entry before this one has been passed.
                    self.settle(last.take().as_deref()).map_err(io::Error::other)?;
                    match ahead.take().filter(|ahead| ahead.entry.header == entry.header) {
                        Some(ahead) => self.passed(ahead, &entry)?,
                        None if let Some((source, base)) = self.bytes.filter(|_| entry.body.pieces.is_some()) => {
                            self.in_pieces(&entry, &own_name, source, base, place)?;
                        }
                        None => self.entry(&entry, own_name.of(&entry), stream, place, members, calls)?,
                    }
                    self.behind_each()?;
                    last = Some(entry);
                }
                Event::Damage(damage) => self.damage(damage, place)?,
                Event::Heavy => self.receiver.wait(&mut || false).map_err(io::Error::other)?,
                Event::End(end) if calls == 0 => {
                    let furthest = members.borrow().end.max(end);
                    members.borrow_mut().end = furthest;
                }
                Event::ForAll(holds) if calls == 0 => members.borrow_mut().holds_for_more = holds,
                Event::Label(label) if place.prefix.is_empty() => members.borrow_mut().label = Some(label),
                Event::Unlisted(what) if place.prefix.is_empty() => members.borrow_mut().unlisted.push(what),
                _ => {}
            }
            Ok(())
        });
        progress.entries.fetch_add(count.get() % 1024, Ordering::Relaxed);
        self.flush().map_err(tarnfs_format::Error::Receiver)?;
        let settled = self.settle(last.as_deref());
        settled.map_err(|error| tarnfs_format::Error::Receiver(io::Error::other(error)))?;
        let is_read = match &result {
            Err(tarnfs_format::Error::Read { error, .. }) => is_unreadable(error),
            result => result.is_ok(),
        };
        if is_read {
            self.put_together(self.bytes, true, place).map_err(tarnfs_format::Error::Receiver)?;
        }
        self.parts.replace(of_outer);
        result
    }

    /// Makes of `entry`, whose archive begins at byte `base` of the stream, what the index gets ([`Names::place`]).
    /// `None` of what does not belong into it. A symbolic link of more than Linux takes is one, which is noted: nobody
    /// could follow it, and a small archive could have so many that their targets fill the disk.
    pub(super) fn place(&self, place: &MemberPlace, entry: &mut Entry, base: u64) -> io::Result<Option<OwnName>> {
        let own_name = self.names.place(&place.prefix, entry, &self.options.limits);
        if own_name.is_some() && entry.kind == Kind::Symlink && entry.link.len() as u64 > LONGEST_TARGET {
            self.note_at(entry.header.saturating_add(base), long_target(entry, entry.link.len() as u64))?;
            return Ok(None);
        }
        Ok(own_name)
    }

    pub(super) fn damage(&self, damage: Damage, place: &MemberPlace) -> io::Result<()> {
        let what = match place.prefix.strip_suffix(b"/") {
            Some(inside) => format!("{}: {}", name::excerpt(inside), damage.what),
            None => damage.what,
        };
        self.note_at(damage.offset, what)
    }

    /// What waits is read before it is too much.
    pub(super) fn behind_each(&self) -> io::Result<()> {
        let Some(behind_each) = self.behind_each else { return Ok(()) };
        behind_each().map_err(|problem| {
            *self.failed.borrow_mut() = Some(problem);
            io::ErrorKind::Interrupted.into()
        })
    }

    /// True if the content of what is called `name` in its archive is to be shown, should it be an archive.
    pub(super) fn may_be_archive(&self, name: &[u8], place: &MemberPlace) -> bool {
        let Some(rules) = &self.names.recursion else { return false };
        let is_named = || self.names.stem(name).is_some() || rules.takes_members && place.prefix.is_empty();
        self.names.goes_below(place.depth) && is_named()
    }

    /// Makes damage of what of the entry, which has been passed, is out of step.
    fn settle(&self, entry: Option<&Entry>) -> Result<(), tarnfs_index::Error> {
        entry.map_or(Ok(()), |entry| self.shifts.borrow_mut().settle(entry, self.receiver))
    }

    /// Tells of an entry at whose content `stream` stands.
    fn entry(
        &self,
        entry: &Entry,
        name: &[u8],
        stream: &mut dyn Stream,
        place: &MemberPlace,
        members: &RefCell<Members>,
        calls: u32,
    ) -> io::Result<()> {
        let wanted = self.wanted(entry, name, stream, place)?;
        match (wanted, &self.hashing) {
            (None, Some(hashing)) if entry.kind == Kind::File => {
                let content = hashing.read(entry, stream, self.bytes)?;
                hashing.push(entry.clone(), content)
            }
            (None, _) => {
                if let Some(contents) = self.contents {
                    hand_on(contents, entry, stream)?;
                }
                self.receiver.entry(entry).map_err(io::Error::other)
            }
            // How much of it is known shows when its members have been passed.
            (Some(wanted), _) if self.bytes.is_none() => {
                self.flush()?;
                self.receiver.about(About::Ahead, entry).map_err(io::Error::other)?;
                let expanded = self.hashed(wanted, entry, stream, place, members, calls)?;
                self.receiver.about(About::Confirm, &expanded.of(entry)).map_err(io::Error::other)
            }
            (Some(wanted), _) => {
                if let Some(hashing) = self.hashing_of(entry, wanted) {
                    hashing.push(entry.clone(), hashing.read(entry, stream, self.bytes)?)?;
                    hashing.flush()?;
                } else {
                    self.flush()?;
                    self.receiver.entry(entry).map_err(io::Error::other)?;
                }
                self.expand(wanted, entry, stream, place, members, calls).map(drop)
            }
        }
    }

    /// Tells of an entry whose content was read before.
    fn passed(&self, ahead: Ahead, entry: &Entry) -> io::Result<()> {
        let is_all = ahead.entry.body == entry.body;
        match (ahead.read, &self.hashing) {
            (Read::Hashed(content), Some(hashing)) => {
                let content = if is_all { content } else { hashing::Content::Hashed(Vec::new()) };
                return hashing.push(entry.clone(), content);
            }
            (Read::Expanded(expanded), _) if is_all => self.receiver.about(About::Confirm, &expanded.of(entry)),
            (Read::Expanded(expanded), _) => {
                self.receiver.about(About::TakeBack, &Expanded { hashes: Vec::new(), ..expanded }.of(entry))
            }
            (Read::Hashed(_), None) => self.receiver.entry(entry),
        }
        .map_err(io::Error::other)
    }

    /// Hands on the entries that wait for their hashes.
    fn flush(&self) -> io::Result<()> {
        self.hashing.as_ref().map_or(Ok(()), Hashing::flush)
    }

    /// What is to be done with `entry`, which is called `name` in its archive, and at whose content `stream` stands, if
    /// that is an archive, or compressed, or a part.
    fn wanted(
        &self,
        entry: &Entry,
        name: &[u8],
        stream: &mut dyn Stream,
        place: &MemberPlace,
    ) -> io::Result<Option<Wanted>> {
        let Some(rules) = &self.names.recursion else { return Ok(None) };
        let limits = &self.options.limits;
        let may_be_part = self.names.goes_below(place.depth) && parts::may_be_part(name);
        let body = &entry.body;
        // What was passed already cannot be read here.
        let is_here = stream.position() == body.offset;
        let is_readable = entry.kind == Kind::File
            && body.size > 0
            && match &body.extents {
                None => body.stored == body.size && is_here,
                Some(_) => sparse::may_be_looked_into(body) && (is_here || self.bytes.is_some()),
            };
        let may_be_archive = self.may_be_archive(name, place);
        // What was there under this path before is another file.
        self.parts.borrow_mut().remove(&entry.path, name, limits);
        if !is_readable || !may_be_archive && !may_be_part {
            return Ok(None);
        }
        let content = if may_be_archive {
            let end = body.offset.saturating_add(body.stored);
            let mut part = Part::new(stream, end);
            let (length, preferred) = (head_length(name), &self.names.preferred);
            let head = &*sparse::head(body, part.peek(length)?, length);
            let content = match self.bytes {
                // Its directory may lie at its end.
                Some(bytes) => content_of(head, &*self.content_at(body, bytes), name, preferred)?,
                None => content_of_head(head, name, preferred),
            };
            if may_be_part && let Some(wanted) = self.as_part(entry, name, content, head)? {
                return Ok(Some(wanted).filter(|wanted| !matches!(wanted, Wanted::Nothing)));
            }
            content
        } else {
            let wanted = self.as_part(entry, name, None, &[])?;
            return Ok(wanted.filter(|wanted| !matches!(wanted, Wanted::Nothing)));
        };
        let why_not = match &content {
            Some(Content::Codec(_)) if place.layers >= rules.layers => too_many_layers(rules.layers),
            // Paths may be made to stay as short as they are. Else each component is two archives at the most: one that
            // is compressed, and the tar in it.
            Some(_) if place.depth as usize >= self.options.limits.path_components.saturating_mul(2) => {
                "it lies in too many archives; it stays a file".to_owned()
            }
            Some(_) if self.names.folder_of(&entry.path, &self.options.limits).is_none() => {
                "it lies in too many folders; it stays a file".to_owned()
            }
            // Each takes memory until all is read.
            Some(Content::Format(_)) if self.left.get() == 0 => {
                "it stays a file: there are too many archives in this archive; is it a bomb?".to_owned()
            }
            Some(Content::Format(_)) => {
                self.left.update(|left| left - 1);
                return Ok(content.map(Wanted::Archive));
            }
            _ => return Ok(content.map(Wanted::Archive)),
        };
        self.note(entry, &why_not)?;
        Ok(None)
    }

    fn note(&self, entry: &Entry, why: &str) -> io::Result<()> {
        self.note_at(entry.header, format!("{}: {why}", shown(entry)))
    }

    /// Notes `what` of byte `at` of the stream that is read.
    pub(super) fn note_at(&self, at: u64, what: String) -> io::Result<()> {
        let (at, what) = match self.compressed_at {
            Some(start) => (start, format!("{what}, at byte {at} of its decoded data")),
            None => (at, what),
        };
        self.receiver.note(at, what).map_err(io::Error::other)
    }

    /// What computes hashes of a file that holds an archive, if it shows as well: beside the folder, not in its place.
    pub(super) fn hashing_of(&self, entry: &Entry, wanted: Wanted) -> Option<&Hashing<'_>> {
        if let Wanted::Part(_) = wanted {
            return self.hashing.as_ref();
        }
        let limits = &self.options.limits;
        let folder = self.names.folder_of(&entry.path, limits)?;
        let is_beside = !name::components(&folder, limits).iter().eq(name::components(&entry.path, limits).iter());
        self.hashing.as_ref().filter(|_| is_beside)
    }

    /// The same as [`Walk::expand`], and the file's own content is hashed, too.
    fn hashed(
        &self,
        wanted: Wanted,
        entry: &Entry,
        stream: &mut dyn Stream,
        place: &MemberPlace,
        members: &RefCell<Members>,
        calls: u32,
    ) -> io::Result<Expanded> {
        if entry.body.extents.is_some() && self.bytes.is_none() {
            return self.expand_sparse(wanted, entry, stream, place);
        }
        let Some(hashing) = self.hashing_of(entry, wanted) else {
            let shift = self.expand(wanted, entry, stream, place, members, calls)?;
            return Ok(Expanded { shift, hashes: Vec::new() });
        };
        if self.bytes.is_some() {
            let hashes = hashing.now(entry, &hashing.read(entry, stream, self.bytes)?)?;
            let shift = self.expand(wanted, entry, stream, place, members, calls)?;
            return Ok(Expanded { shift, hashes });
        }
        let end = entry.body.offset.saturating_add(entry.body.size);
        let mut part = Part::new(stream, end);
        let mut passing = hashing.passing(&mut part);
        let shift = self.expand(wanted, entry, &mut passing, place, members, calls)?;
        let hashes = passing.finish(end)?;
        Ok(Expanded { shift, hashes })
    }

    /// True if what lies there may come from what a password opens.
    pub(super) fn may_be_secret(&self, place: &MemberPlace) -> bool {
        let decoding = &self.options.decoding;
        decoding.is_secret || place.in_pieces > 0 && !decoding.passwords.is_empty()
    }

    /// Reads the archive that the content of `entry` is, or leaves it for later. If it was read, and its members have
    /// passed a place before which something is missing, returns that place.
    fn expand(
        &self,
        wanted: Wanted,
        entry: &Entry,
        stream: &mut dyn Stream,
        place: &MemberPlace,
        members: &RefCell<Members>,
        calls: u32,
    ) -> io::Result<Option<u64>> {
        if entry.body.extents.is_some() {
            return Ok(self.expand_sparse(wanted, entry, stream, place)?.shift);
        }
        let body = &entry.body;
        let end = body.offset.saturating_add(body.size);
        let mut part = Part::new(stream, end);
        let content = match wanted {
            Wanted::Archive(content) => content,
            Wanted::Part(content) => {
                if let Some(kept) = self.keep(entry, &mut part, place)? {
                    self.gather(entry, last_component(&entry.path), content, Some(kept));
                }
                return Ok(None);
            }
            Wanted::Nothing => return Ok(None),
        };
        let codec = content.codec();
        let path = self.names.folder_of(&entry.path, &self.options.limits).unwrap_or_default();
        let inner = MemberPlace {
            prefix: [path.as_slice(), b"/"].concat(),
            depth: place.depth + 1,
            layers: place.layers + u32::from(codec.is_some()),
            in_pieces: place.in_pieces,
            // Of a compressed one the stream ends where it ends.
            end: codec.is_none().then_some(end),
        };
        let inner = if path.is_empty() { MemberPlace { prefix: Vec::new(), ..inner } } else { inner };
        if let Content::Format(format) = content
            && calls < MOST_CALLS
            && let Some(format) = format.forwards()
        {
            self.receiver.about(About::Open, entry).map_err(io::Error::other)?;
            if !path.is_empty() {
                self.receiver.entry(&folder_for(entry, &path)).map_err(io::Error::other)?;
            }
            self.shifts.borrow_mut().enter(entry.header);
            let read = self.members_at(format, &mut part, &inner, members, calls + 1);
            let shift = self.shifts.borrow_mut().leave();
            match read {
                Ok(()) => self.receiver.call(Call::Close).map_err(io::Error::other)?,
                Err(tarnfs_format::Error::Read { error, .. } | tarnfs_format::Error::Receiver(error)) => {
                    return Err(error);
                }
                Err(error) => {
                    self.receiver.call(Call::Close).map_err(io::Error::other)?;
                    self.note_at(body.offset, format!("{}: {error}", shown(entry)))?;
                }
            }
            return Ok(shift);
        }
        let bytes: SharedSource = match self.bytes {
            Some((bytes, base)) => {
                let start = body.offset.saturating_sub(base);
                // Of one that was cut, as much as there is.
                let length = body.size.min(bytes.len().saturating_sub(start));
                std::sync::Arc::new(Slice::new(SharedSource::clone(bytes), start, length))
            }
            None => match self.keep(entry, &mut part, place)? {
                Some(bytes) => bytes,
                None => return Ok(None),
            },
        };
        let candidate = Candidate {
            input: 0,
            file_in: 0,
            archive: 0,
            start: body.offset,
            length: bytes.len(),
            bytes,
            damaged: Vec::new(),
            pieces: None,
            split: None,
            codec,
            name: last_component(&entry.path).to_vec(),
            makes_folder: !path.is_empty(),
            file: Box::new(Entry { link: Vec::new(), xattrs: access_list::of_file(&entry.xattrs), ..entry.clone() }),
            expected: None,
            content: None,
            instead: None,
            is_layer: false,
            place: inner,
            told_at: self.compressed_at.unwrap_or(body.offset),
        };
        self.receiver.candidate(candidate).map_err(io::Error::other).map(|()| None)
    }
}

impl Walk<'_> {
    /// Keeps what comes next of `stream`, the content of `entry` as it is stored. `None` if there is no room for it,
    /// which is noted.
    pub(super) fn keep(
        &self,
        entry: &Entry,
        stream: &mut dyn Stream,
        place: &MemberPlace,
    ) -> io::Result<Option<SharedSource>> {
        let shown = shown(entry).to_string();
        match self.bodies.take(stream, entry.body.stored, &shown, self.may_be_secret(place)) {
            Err(error) if is_no_room(&error) => {
                let why = format!("it stays a file: there is no room to keep it while it is read ({error})");
                self.note(entry, &why).map(|()| None)
            }
            taken => taken.map(Some),
        }
    }
}

impl Expanded {
    /// What is known of `entry` now. That something is missing damage cannot say: the members of the archive that lie
    /// behind it have headers of their own, and are right.
    fn of(self, entry: &Entry) -> Cow<'_, Entry> {
        let mut entry = Cow::Borrowed(entry);
        if let Some(shift) = self.shift {
            let entry = entry.to_mut();
            let start = entry.body.offset;
            entry.body.end_at(shift.max(start));
        } else if !self.hashes.is_empty() {
            entry.to_mut().xattrs.extend(self.hashes);
        }
        entry
    }
}

/// As much of the entry's path as a message needs.
pub(super) fn shown(entry: &Entry) -> name::Escaped<'_> {
    name::excerpt(&entry.path)
}

/// What is noted of a symbolic link whose target has so many bytes.
pub(super) fn long_target(entry: &Entry, bytes: u64) -> String {
    format!("{}: the target of the link has {bytes} bytes, more than {LONGEST_TARGET}; it is left out", shown(entry))
}

/// The folder that shows what the file `entry` holds: as it, but for what makes it a folder.
pub(super) fn folder_for(entry: &Entry, path: &[u8]) -> Entry {
    Entry {
        path: path.to_vec(),
        kind: Kind::Folder,
        // Whoever may read it may look into it.
        mode: entry.mode & 0o777 | (entry.mode & 0o444) >> 2,
        uid: entry.uid,
        gid: entry.gid,
        user: entry.user.clone(),
        group: entry.group.clone(),
        mtime: entry.mtime,
        atime: entry.atime,
        ctime: entry.ctime,
        // Behind the file's own header, and like it on a whole block.
        header: entry.body.offset,
        body: Body { offset: entry.body.offset, ..Default::default() },
        xattrs: access_list::of_folder(&entry.xattrs),
        ..Entry::default()
    }
}
