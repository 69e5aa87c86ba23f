//! The first pass: an archive is read once, from its start to its end, and its index is written on the way.
//!
//! `walk` reads the members of an archive and of archives that lie in it as they are; `walk_directory` those of one
//! that has a directory, which `directory` reads beside it; `decoding` is a compressed stream
//! while it is decoded, and `held_back` hands on what of it is verified; `nested` reads compressed files in the
//! archive, `line` brings what several threads find there into order; `receiver` brings what is found into the index;
//! `names` says what options make of paths; `sparse` is about files with holes; `parts` puts together what was split;
//! `amount` counts what is read of archives in the archive; `bad_blocks` passes what a disk cannot read of what is not
//! compressed.

mod amount;
mod bad_blocks;
mod bodies;
mod decoding;
mod directory;
mod hashing;
mod held_back;
mod line;
mod names;
mod nested;
mod parts;
mod receiver;
mod sparse;
mod undamaged;
mod walk;
mod walk_directory;

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tarnfs_codec::engine::{Indexing, SpillWriter};
use tarnfs_codec::{Checks, Codec, FileCodec, SeekPoint};
use tarnfs_format::name::steers_a_terminal;
use tarnfs_format::{
    Body, Entry, Format, Kind, Probe, ReadForwards, ReadRandom, Reader, SourceStream, Stream, foreign,
};
use tarnfs_index::{Archive, Layer, SINGLE_FILE, Summary, Writer};
use tarnfs_source::{Fingerprint, Limits, Setting, SharedSource, Slice};

use crate::open::{DecodedCache, FileFacts, KeptAs, Options, Recreate};
use crate::preferred::Choice;
use crate::problem::Problem;

pub(crate) use amount::Amount;
use bad_blocks::PastBadBlocks;
use bodies::{Bodies, is_no_room};
use decoding::DecodingStream;
use hashing::rest_of;
pub(crate) use names::{Names, converted, most_layers};
pub(crate) use nested::is_damage;
use nested::{Candidate, Expansion, is_certain};
pub(crate) use receiver::may_lack_notes;
use receiver::{Direct, Receiver};
pub(crate) use walk::content_of;
use walk::{Content, GUESS, MemberPlace, Walk, content_of_head, hand_on_bytes};
pub(crate) use walk_directory::is_unreadable;

/// Why something that is compressed stays a file.
const NO_ROOM: &str = "there is no room to keep it while it is read";

/// `None` where [`Bodies::take`] had no room.
fn no_room_is_none<T>(taken: io::Result<T>) -> io::Result<Option<T>> {
    match taken {
        Ok(taken) => Ok(Some(taken)),
        Err(error) if is_no_room(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How far a first pass has come; read by whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the archive's file read so far.
    pub bytes: AtomicU64,
    /// Length of the archive's file in bytes; 0 before it is known.
    pub total: AtomicU64,
    /// Entries found so far.
    pub entries: AtomicU64,
}

/// Bytes of a stream that are looked at to tell its format, at least.
pub(crate) const HEAD: usize = 4096;

/// The same of one with that name: some formats have nothing to tell them by at their start.
pub(crate) fn head_length(name: &[u8]) -> usize {
    tarnfs_format::by_suffix(name).map_or(HEAD, |(format, _)| format.head().max(HEAD))
}

/// Bytes of a file's name that Linux allows (NAME_MAX).
const LONGEST_NAME: usize = 255;

/// Bytes of a tar archive without members at most. GNU tar's `--blocking-factor` goes further; nobody does.
const LONGEST_EMPTY: u64 = 1 << 20;

/// An archive that is being written, as who reads along sees it.
pub enum Along {
    /// Its bytes.
    Plain(Box<dyn Stream>),
    /// What is compressed with that codec, and the seek points that come of it.
    Compressed(&'static dyn Codec, Box<dyn tarnfs_codec::FirstPass>),
}

impl std::fmt::Debug for Along {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Compressed(codec, _) => codec.name(),
        })
    }
}

/// What a first pass reads with.
#[derive(Debug)]
pub(crate) struct FirstPass<'a> {
    pub(crate) source: &'a SharedSource,
    /// Name of the archive's file: some codecs are known by nothing else.
    pub(crate) name: &'a [u8],
    /// A compressed stream that is no archive becomes one file of these attributes.
    pub(crate) single_file: Entry,
    pub(crate) names: &'a Names,
    pub(crate) format: &'a tarnfs_format::Options,
    pub(crate) options: &'a Options,
    pub(crate) archive: Archive,
    /// Whose what is kept decoded is; `None` if nothing is kept.
    pub(crate) kept_as: Option<KeptAs>,
    /// Set where some of it could not be read, and what could is served.
    pub(crate) unread: &'a AtomicBool,
}

impl FirstPass<'_> {
    /// Reads the archive into `writer`.
    pub(crate) fn run(&self, writer: Writer) -> Result<(Writer, Summary), Problem> {
        self.options.progress.total.store(self.source.len(), Ordering::Relaxed);
        let head = head_of(self.source, head_length(&self.single_file.path))?;
        let probe = Probe::new(&head, &**self.source);
        let chosen = self.names.preferred.choose(&probe);
        let format = self.names.preferred.detect(&probe);
        let codec = match format {
            _ if let Some(Choice::Codec(codec)) = chosen => Some(codec),
            _ if chosen.is_some() || tarnfs_format::known_by_its_end(self.name).is_some() => None,
            None => tarnfs_codec::detect_named(self.name, &head),
            Some(format) => tarnfs_codec::detect(&head).filter(|codec| codec.bid(&head) > format.bid(&probe)),
        };
        refuse_unread(&probe)?;
        let read = self.read_into(writer, |direct, expansion| match codec {
            Some(codec) => self.compressed(codec, direct, expansion),
            None => self.plain(&head, direct, expansion),
        });
        if read.is_ok() && self.names.transform_is_idle() {
            let name = tarnfs_format::name::escape(self.name);
            let it = Setting::Transform;
            log::warn!("{name}: {it} has changed no path; it gets them with a slash before them: /home/me");
        }
        read
    }

    /// Archives that may lie in it: of those that are compressed, and of those that are not.
    fn most_archives(&self) -> u64 {
        self.options.limits.nested.saturating_add(self.source.len() / 16)
    }

    /// Calls `read` with what takes what it finds, then reads the compressed files that it has found.
    fn read_into(
        &self,
        writer: Writer,
        read: impl FnOnce(&Direct, &Expansion<'_>) -> Result<Summary, Problem>,
    ) -> Result<(Writer, Summary), Problem> {
        let direct = Direct::new(writer, self.options.limits, self.most_archives());
        let bodies = Bodies::new(self.source.len());
        let expansion = Expansion::new(self.names, self.options, self.format, &bodies, self.source.len());
        let mut summary = read(&direct, &expansion)?;
        expansion.run(&direct)?;
        if expansion.has_unread() {
            self.unread.store(true, Ordering::Relaxed);
        }
        if direct.stays_file() {
            SINGLE_FILE.clone_into(&mut summary.format);
        }
        let (writer, mut notes) = direct.into_parts();
        summary.renamed.join(writer.renamed().clone());
        notes.append(&mut summary.notes);
        summary.notes = notes;
        summary.has_locked |= expansion.has_locked();
        summary.has_directories = expansion.has_directories();
        tarnfs_index::join_unlisted(&mut summary.unlisted, expansion.take_unlisted());
        Ok((writer, summary))
    }

    fn plain(&self, head: &[u8], direct: &Direct, expansion: &Expansion<'_>) -> Result<Summary, Problem> {
        if head.is_empty() {
            return Err(Problem::Empty);
        }
        let is_zeros = head.iter().all(|&byte| byte == 0);
        let may_be = !is_zeros || self.is_named_tar() || self.is_short_and_zeros()?;
        // One that only has a header somewhere is an archive of another kind in which a tar lies, if it says so.
        let probe = Probe::new(head, &**self.source);
        let is_guess = |format: &&dyn Format| format.bid(&probe) <= GUESS && foreign::name_of(head).is_some();
        // What has a directory is known by what stands elsewhere: an image may well begin with zeros.
        let is_known = |format: &&dyn Format| (may_be || format.forwards().is_none()) && !is_guess(format);
        let format = self.names.preferred.detect(&probe).filter(is_known);
        refuse_unread(&probe)?;
        // The last resort, before it is refused.
        let searching = Probe::new(head, &**self.source).searching();
        let format = format.or_else(|| self.names.preferred.detect(&searching).filter(is_known));
        refuse_unread(&searching)?;
        let Some(format) = format else { return Err(self.not_an_archive(is_zeros)?) };
        let summary = self.summary(format.name());
        match format.reader() {
            Reader::Forwards(format) => self.plain_from(0, format, summary, direct, expansion),
            Reader::Random(format) => self.random(format, summary, direct, expansion),
            _ => Err(Problem::NotAnArchive),
        }
    }

    /// Reads an archive that has a directory.
    fn random(
        &self,
        format: &dyn ReadRandom,
        mut summary: Summary,
        direct: &Direct,
        expansion: &Expansion<'_>,
    ) -> Result<Summary, Problem> {
        let shifts = RefCell::default();
        let behind_each = || expansion.run_if_many(direct);
        let walk = Walk {
            shows_progress: true,
            behind_each: Some(&behind_each),
            left: self.most_archives().into(),
            ..expansion.walk(direct, &shifts, None, self.options.decoding.threads)
        };
        let members = walk.random(format, self.source, 0, &MemberPlace::default())?;
        summary.end = self.source.len();
        summary.label = members.label.or(summary.label);
        tarnfs_index::join_unlisted(&mut summary.unlisted, members.unlisted);
        Ok(summary)
    }

    /// True if the name, without a suffix of compression, ends in `.tar`.
    fn is_named_tar(&self) -> bool {
        self.single_file.path.to_ascii_lowercase().ends_with(b".tar")
    }

    /// The codec or format that the suffix of its name stands for.
    fn said_by_its_name(&self) -> Option<&'static str> {
        let name = self.name.to_ascii_lowercase();
        let is_named = |codec: &&&dyn FileCodec| {
            codec.suffixes().iter().any(|(suffix, _)| name.len() > suffix.len() && name.ends_with(suffix.as_bytes()))
        };
        let codec = tarnfs_codec::CODECS.iter().find(is_named).map(|codec| codec.name());
        codec.or_else(|| name.ends_with(b".tar").then_some("tar"))
    }

    /// What the file may be encrypted with, as its name says which format it should have.
    fn encrypted_as_a_whole(&self, head: &[u8]) -> Option<&'static str> {
        let (format, _) = tarnfs_format::by_suffix(self.name)?;
        format.encrypted_with(head, self.source.len())
    }

    /// True for what `tar -c` makes of nothing: zeros up to the end of one record. Images of disks begin with as many
    /// and go on.
    fn is_short_and_zeros(&self) -> Result<bool, Problem> {
        if self.source.len() > LONGEST_EMPTY {
            return Ok(false);
        }
        let mut bytes = vec![0; self.source.len() as usize];
        self.source.read_at(&mut bytes, 0).map_err(|error| Problem::Read { offset: 0, error })?;
        Ok(bytes.iter().all(|&byte| byte == 0))
    }

    /// What to say of a file that no format takes.
    fn not_an_archive(&self, is_zeros: bool) -> Result<Problem, Problem> {
        /// Bytes of it that are shown.
        const SHOWN: usize = 16;
        let mut head = vec![0; foreign::HEAD];
        let mut filled = 0;
        while filled < head.len() {
            let read = self.source.read_at(&mut head[filled..], filled as u64);
            let read = read.map_err(|error| Problem::Read { offset: filled as u64, error })?;
            if read == 0 {
                break;
            }
            filled += read;
        }
        Ok(match foreign::name_of(&head[..filled]) {
            Some(name) => Problem::Foreign(name),
            None if let Some(program) = foreign::encrypted_with(&head[..filled]) => Problem::Encrypted(program),
            None if let Some(program) = self.encrypted_as_a_whole(&head[..filled]) => Problem::Encrypted(program),
            None if let Some(says) = self.said_by_its_name() => {
                Problem::Misnamed { says, start: head[..filled.min(SHOWN)].to_vec() }
            }
            None if is_zeros => Problem::OnlyZeros { may_be_empty: self.source.len() <= LONGEST_EMPTY },
            None => Problem::NotAnArchive,
        })
    }

    /// Reads what an uncompressed archive holds from byte `start` on, where a header begins.
    fn plain_from(
        &self,
        start: u64,
        format: &dyn ReadForwards,
        mut summary: Summary,
        direct: &Direct,
        expansion: &Expansion<'_>,
    ) -> Result<Summary, Problem> {
        let shifts = RefCell::default();
        let behind_each = || expansion.run_if_many(direct);
        let walk = Walk {
            bytes: Some((self.source, 0)),
            shows_progress: true,
            behind_each: Some(&behind_each),
            left: self.most_archives().into(),
            ..expansion.walk(direct, &shifts, None, self.options.decoding.threads)
        };
        let stream = SourceStream::new(SharedSource::clone(self.source), self.options.cancel.clone());
        let mut stream = PastBadBlocks::new(stream, self.options.decoding.force);
        stream.skip(start).map_err(|error| walk.problem(start, error))?;
        let members = walk.members(format, &mut stream, &MemberPlace::default())?;
        summary.end = members.end.max(start);
        summary.label = members.label.or(summary.label);
        tarnfs_index::join_unlisted(&mut summary.unlisted, members.unlisted);
        let end = summary.end.min(self.source.len());
        // Who reads what is appended later begins behind the headers that say something of it, too.
        let bad_blocks = stream.into_bad_blocks();
        if !bad_blocks.is_empty() {
            self.unread.store(true, Ordering::Relaxed);
        }
        summary.grown_from = if members.holds_for_more || !bad_blocks.is_empty() {
            None
        } else {
            let fingerprint = Fingerprint::of(&Slice::new(SharedSource::clone(self.source), 0, end));
            Some(fingerprint.map_err(|error| walk.problem(0, error))?)
        };
        summary.notes.extend(bad_blocks.into_iter().map(|(at, why)| (at, format!("it cannot be read: {why}"))));
        Ok(summary)
    }

    /// Goes on where the archive that `old` describes ended. The writer has got all that `old` knows.
    pub(crate) fn grow(&self, old: &Summary, writer: Writer) -> Result<(Writer, Summary), Problem> {
        self.options.progress.total.store(self.source.len(), Ordering::Relaxed);
        let format = tarnfs_format::by_name(&old.format).and_then(|format| format.forwards());
        let format = format.ok_or(Problem::NotAnArchive)?;
        let (label, has_locked, renamed) = (old.label.clone(), old.has_locked, old.renamed.clone());
        let unlisted = old.unlisted.clone();
        let summary = Summary { label, has_locked, renamed, unlisted, ..self.summary(&old.format) };
        self.read_into(writer, |direct, expansion| self.plain_from(old.end, format, summary, direct, expansion))
    }

    /// Reads along with an archive that is being written: its uncompressed bytes. Also says whether headers say
    /// something of what is appended later. What depends on the file as a whole is left out of the summary.
    pub(crate) fn read_along(&self, content: Along, writer: Writer) -> Result<(Writer, Summary, bool), Problem> {
        let mut holds_for_more = false;
        let (writer, summary) = self.read_into(writer, |direct, expansion| match content {
            Along::Compressed(codec, pass) => {
                let indexing = Indexing::of_pass(codec, pass, &self.options.cancel);
                self.decoded(codec, indexing, direct, expansion)
            }
            Along::Plain(mut stream) => {
                let shifts = RefCell::default();
                let walk = expansion.walk(direct, &shifts, None, self.options.decoding.threads);
                let head = stream.peek(HEAD).map_err(|error| walk.problem(0, error))?;
                let format = tarnfs_format::detect(&Probe::of_head(head)).ok_or(Problem::NotAnArchive)?;
                let forwards = format.forwards().ok_or(Problem::NotAnArchive)?;
                let members = walk.members(forwards, &mut *stream, &MemberPlace::default())?;
                holds_for_more = members.holds_for_more;
                let (end, label, unlisted) = (members.end, members.label, members.unlisted);
                Ok(Summary { end, label, unlisted, ..self.summary(format.name()) })
            }
        })?;
        Ok((writer, summary, holds_for_more))
    }

    fn compressed(
        &self,
        codec: &'static dyn Codec,
        direct: &Direct,
        expansion: &Expansion<'_>,
    ) -> Result<Summary, Problem> {
        let options = tarnfs_codec::Options {
            threads: self.options.decoding.threads_for(codec.name()),
            ..self.options.first_pass()
        };
        let indexing = Indexing::new(codec, SharedSource::clone(self.source), &options).map_err(|error| {
            if self.options.cancel.is_cancelled() { Problem::Cancelled } else { Problem::Read { offset: 0, error } }
        })?;
        self.decoded(codec, indexing, direct, expansion)
    }

    /// Reads what a compressed archive holds, which `indexing` decodes.
    fn decoded(
        &self,
        codec: &'static dyn Codec,
        mut indexing: Indexing,
        direct: &Direct,
        expansion: &Expansion<'_>,
    ) -> Result<Summary, Problem> {
        let shifts = RefCell::default();
        let behind_each = || expansion.run_if_many(direct);
        let contents = self.options.contents.as_deref();
        let walk = Walk {
            behind_each: Some(&behind_each),
            left: self.most_archives().into(),
            contents,
            ..expansion.walk(direct, &shifts, None, self.options.decoding.threads)
        };
        let failed = |at: u64, error: io::Error| walk.problem(at, error);
        if let Some((cache, kept_as)) = self.cache_to_fill(codec).zip(self.kept_as) {
            let budget = self.options.decoding.cache.budget().clone();
            let anew = self.options.index.recreate == Recreate::Always;
            indexing.keep(SpillWriter::new(0, codec.pace(), cache.spill(kept_as, codec.name(), budget, anew)));
        }
        let mut stream = DecodingStream::new(indexing, direct, &shifts, &self.options.cancel)
            .of_archive(&self.options.progress.bytes, self.options.sink.as_ref());
        stream.tell().map_err(|error| failed(0, error))?;
        let length = head_length(&self.single_file.path);
        let head = stream.peek(length).map(<[u8]>::to_vec).map_err(|error| failed(0, error))?;
        let is_unsupported = |ended: &mut (u64, io::Error)| ended.1.kind() == io::ErrorKind::Unsupported;
        if let Some((at, error)) = stream.ended_by.take_if(|ended| head.is_empty() && is_unsupported(ended)) {
            return Err(failed(at, error));
        }
        let mut summary = self.summary(SINGLE_FILE);
        // In the file that was compressed.
        let place = MemberPlace { depth: 1, ..MemberPlace::default() };
        // Zeros are a file of zeros, unless the name says that they are an archive without members.
        let is_a_file = head.iter().all(|&byte| byte == 0) && !self.is_named_tar();
        let of_name = tarnfs_format::known_by_its_end(&self.single_file.path);
        let detected = of_name.or_else(|| self.names.preferred.detect(&Probe::of_head(&head)));
        let format = detected.filter(|format| {
            let stays = format.is_document(&head) && self.names.recursion.is_none();
            !is_a_file && !stays && !self.options.only_decompress
        });
        let content = format.map(Content::Format).or_else(|| self.inner(&head).map(Content::Codec));
        if let Some(format) = format
            && let Some(forwards) = format.forwards()
        {
            format.name().clone_into(&mut summary.format);
            let members = walk.members(forwards, &mut stream, &place)?;
            (summary.end, summary.label, summary.unlisted) = (members.end, members.label, members.unlisted);
            // The rest is decoded as well: its checksums, and the seek points of what an append may bring.
            stream.skip(u64::MAX).map_err(|error| failed(stream.position, error))?;
        } else if let Some(content) = content {
            if let Content::Format(format) = content {
                format.name().clone_into(&mut summary.format);
            }
            let name = &self.single_file.path;
            let single_file = self.named_as_stored(codec)?;
            let is_secret = self.options.decoding.is_secret;
            let taken = expansion.bodies.take(&mut stream, u64::MAX, &String::from_utf8_lossy(name), is_secret);
            // What was not kept stays the file that it is.
            stream.skip(u64::MAX).map_err(|error| failed(stream.position, error))?;
            let length = stream.position;
            summary.end = length;
            let size = stream.length_of_file(length);
            let body = Body { stored: size, size, ..Body::default() };
            let kept = no_room_is_none(taken).map_err(|error| failed(stream.position, error))?;
            // What is damaged is not served, and what comes out of it is nothing that was ever stored.
            let is_whole = stream.damage.is_empty() && !stream.has_shifts();
            let Some(bytes) = kept.filter(|_| is_whole) else {
                if is_whole {
                    direct.note(0, format!("what lies in it stays a file: {NO_ROOM}"))?;
                }
                SINGLE_FILE.clone_into(&mut summary.format);
                let entry = Entry { body, ..single_file };
                shifts.borrow_mut().settle(&entry, direct)?;
                direct.entry(&entry)?;
                return Ok(finish_compressed(codec, stream, summary));
            };
            direct.candidate(Candidate {
                input: 0,
                file_in: 0,
                archive: 0,
                start: 0,
                length,
                bytes,
                damaged: Vec::new(),
                pieces: None,
                split: None,
                codec: content.codec(),
                name: name.clone(),
                makes_folder: false,
                file: Box::new(self.single_file.clone()),
                expected: None,
                content: None,
                instead: Some(Box::new(Entry { body, ..single_file })),
                is_layer: true,
                place: MemberPlace { layers: u32::from(content.codec().is_some()), ..place },
                told_at: 0,
            })?;
        } else {
            let mut entry = self.named_as_stored(codec)?;
            let taken = contents.filter(|_| self.names.hashes.is_empty()).map(|contents| {
                let is_wanted = contents.begin(&entry)?;
                let length = if is_wanted { u64::MAX - hand_on_bytes(contents, u64::MAX, &mut stream)? } else { 0 };
                if is_wanted { contents.end(stream.ended_by.is_none()).map(|()| length) } else { Ok(length) }
            });
            let first = taken.transpose().map_err(|error| failed(stream.position, error))?.unwrap_or(0);
            let (rest, hashes) =
                rest_of(&mut stream, &self.names.hashes).map_err(|error| failed(stream.position, error))?;
            let length = first + rest;
            entry.body.size = stream.length_of_file(length);
            entry.body.stored = entry.body.size;
            // Those of a part are not those of the file.
            entry.xattrs = if entry.body.size == length { hashes } else { Vec::new() };
            shifts.borrow_mut().settle(&entry, direct)?;
            direct.entry(&entry)?;
            summary.end = length;
        }
        Ok(finish_compressed(codec, stream, summary))
    }

    /// The entry of a compressed single file, named as the stream says if it does and that can be a name.
    fn named_as_stored(&self, codec: &dyn Codec) -> Result<Entry, Problem> {
        let head = head_of(self.source, head_length(&self.single_file.path))?;
        let path = stored_name(codec, &head, &self.options.limits).unwrap_or_else(|| self.single_file.path.clone());
        let mut entry = Entry { path, ..self.single_file.clone() };
        self.names.transform(&mut entry);
        Ok(entry)
    }

    /// The codec of what a decoded stream that begins so holds, if that is compressed once more and is to be undone.
    fn inner(&self, head: &[u8]) -> Option<&'static dyn Codec> {
        self.names.recursion.as_ref()?;
        let name = &self.single_file.path;
        match content_of_head(head, name, &self.names.preferred)? {
            Content::Codec(codec) => is_certain(codec, head, name, self.names).then_some(codec),
            Content::Format(_) => None,
        }
    }

    /// Where decoded pieces go. Who has got the bytes on the way does not come back for them.
    fn cache_to_fill(&self, codec: &dyn Codec) -> Option<&DecodedCache> {
        let hands_on_all = self.options.contents.is_some()
            || self.options.sink.is_some() && codec.settles(&SeekPoint::default()) == Checks::Itself;
        self.options.decoding.decoded_cache.as_ref().filter(|_| !hands_on_all)
    }

    fn summary(&self, format: &str) -> Summary {
        Summary {
            archive: self.archive,
            name: Some(self.name.to_vec()),
            shape: self.options.shape.clone(),
            layers: Vec::new(),
            format: format.to_owned(),
            end: 0,
            grown_from: None,
            files: 0,
            folders: 0,
            bytes: 0,
            has_xattrs: false,
            has_acls: false,
            label: None,
            unlisted: Vec::new(),
            has_locked: false,
            renamed: tarnfs_index::Renamed::default(),
            has_directories: false,
            notes: Vec::new(),
        }
    }
}

/// Ends with a compressed archive of which all was decoded.
fn finish_compressed(codec: &'static dyn Codec, mut stream: DecodingStream<'_>, mut summary: Summary) -> Summary {
    if let Err(error) = stream.indexing.finish_keeping() {
        log::info!("no decoded pieces are kept: {error}");
    }
    summary.notes.extend(stream.told(codec));
    summary.layers.push(Layer { codec: codec.name().to_owned(), decoded_length: stream.indexing.decoded_position() });
    summary
}

/// The first `length` bytes of `source`, or all if it is shorter.
fn head_of(source: &SharedSource, length: usize) -> Result<Vec<u8>, Problem> {
    let mut head = vec![0; length];
    let read = source.read_at(&mut head, 0).map_err(|error| Problem::Read { offset: 0, error })?;
    head.truncate(read);
    Ok(head)
}

/// True if the start alone says which format it is: then what lies elsewhere changes nothing of that.
fn is_known_by(head: &[u8]) -> bool {
    let probe = Probe::of_head(head);
    tarnfs_format::detect(&probe).is_some_and(|format| format.bid(&probe) > GUESS)
}

/// The error of a format that could not look at the bytes that it is known by. Damaged ones are no error: it is not
/// that format.
fn refuse_unread(probe: &Probe<'_>) -> Result<(), Problem> {
    match probe.take_error() {
        Some((offset, error)) if !is_unreadable(&error) && !is_known_by(probe.head()) => {
            Err(Problem::Read { offset, error })
        }
        _ => Ok(()),
    }
}

/// What a compressed single file is called after its archive: that name without its suffix.
pub(crate) fn name_of_single_file(archive: &std::path::Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let name = archive.file_name().unwrap_or_default().as_bytes();
    without_suffix(name).unwrap_or_else(|| name.to_vec())
}

/// The entry of a compressed single file, named after the archive.
pub(crate) fn single_file(archive: &std::path::Path, file: &FileFacts) -> Entry {
    Entry {
        path: name_of_single_file(archive),
        kind: Kind::File,
        mode: file.owner.mode & 0o777,
        uid: u64::from(file.owner.user),
        gid: u64::from(file.owner.group),
        mtime: file.mtime(),
        ..Entry::default()
    }
}

/// The name that a compressed stream which begins with `head` gives its content, if a file may be called so: anybody
/// can have written it.
fn stored_name(codec: &dyn Codec, head: &[u8], limits: &Limits) -> Option<Vec<u8>> {
    let stored = codec.file_codec()?.stored_name(head)?;
    if stored.len() > limits.name.min(LONGEST_NAME) {
        return None;
    }
    let is_taken = matches!(stored, b"" | b"." | b"..") || stored == crate::control::FOLDER;
    // Bytes above ASCII may be of any encoding.
    let steers = |stored: &[u8]| match std::str::from_utf8(stored) {
        Ok(text) => text.chars().any(steers_a_terminal),
        Err(_) => stored.iter().any(u8::is_ascii_control),
    };
    (!is_taken && !stored.contains(&b'/') && !steers(stored)).then(|| stored.to_vec())
}

/// The name of what a compressed file holds: `x.tar` for `x.tgz`, `x` for `x.gz`; `None` if no codec knows its suffix,
/// or nothing is left that can be a name.
pub fn without_suffix(name: &[u8]) -> Option<Vec<u8>> {
    let lower = name.to_ascii_lowercase();
    let suffixes = tarnfs_codec::CODECS.iter().flat_map(|codec| codec.suffixes());
    let (suffix, instead) = suffixes
        .filter(|(suffix, _)| lower.len() > suffix.len() && lower.ends_with(suffix.as_bytes()))
        .max_by_key(|(suffix, _)| suffix.len())?;
    let stem = [&name[..name.len() - suffix.len()], instead.as_bytes()].concat();
    // No file has one of these names.
    (!matches!(stem.as_slice(), b"." | b"..")).then_some(stem)
}

/// What the folder is called that shows an archive of that name: `None` if the name is none of an archive.
pub fn without_archive_suffix(name: &[u8]) -> Option<Vec<u8>> {
    let inner = without_suffix(name).unwrap_or_else(|| name.to_vec());
    // Only what is read forwards is opened inside a compressed file.
    let is_opened = |format: &dyn Format| inner == name || format.forwards().is_some();
    match tarnfs_format::by_suffix(&inner).filter(|(format, _)| is_opened(*format)) {
        Some((_, stem)) if !matches!(stem, b"." | b"..") => Some(stem.to_vec()),
        _ => Some(inner).filter(|inner| inner != name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_suffix_of_compression() {
        for (name, without) in [
            ("x.tar.gz", "x.tar"),
            ("x.TGZ", "x.tar"),
            ("x.tar.lz", "x.tar"),
            ("x.tar.lzip", "x.tar"),
            ("x.lzip", "x"),
            ("x.tlzip", "x.tar"),
        ] {
            assert_eq!(without_suffix(name.as_bytes()).as_deref(), Some(without.as_bytes()), "{name}");
        }
        assert_eq!((without_suffix(b"x.tar"), without_suffix(b".lzip")), (None, None));
    }
}
