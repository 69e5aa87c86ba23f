//! Reading the members of an archive that has a directory, in which each member says where its content lies.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarnfs_codec::Codec;
use tarnfs_format::{Body, Damage, Entry, Event, Kind, Piece, ReadRandom};
use tarnfs_source::{SharedSource, Source as _};

use super::directory;
use super::hashing;
use super::head_length;
use super::names::{OwnName, last_component};
use super::nested::{Candidate, is_damage, not_looked_into, too_many_layers};
use super::parts::{Part, Split};
use super::walk::{MemberPlace, Members, Walk, content_of, content_of_head, long_target, shown};
use crate::access_list;
use crate::archive::{LONGEST_TARGET, is_encrypted};
use crate::parts;
use crate::pieces::{self, PieceSource};
use crate::problem::Problem;
use crate::streams::{MOST_DEPTH, MOST_IN_PIECES};

/// How a file is stored that is to be looked into.
enum Stored<'e> {
    /// As it is, in one run.
    Plain(&'e Piece),
    /// In one run that a codec undoes, which makes the seek points of the index.
    Coded(&'static dyn Codec, &'e Piece),
    /// Otherwise: its pieces are a stream of their own.
    Pieces,
}

impl<'e> Stored<'e> {
    /// How `body` is stored, which `content` reads.
    fn of(body: &'e Body, content: &PieceSource) -> Self {
        let Some([piece]) = body.pieces.as_deref().filter(|_| !content.has_blocks()) else { return Self::Pieces };
        let is_all = (piece.hole, piece.skip, piece.length, piece.decoded) == (0, 0, body.size, body.size);
        match piece.coder.as_ref().map_or(&[][..], |coder| &coder.steps) {
            [] if is_all => Self::Plain(piece),
            [step] if is_all && step.properties.is_empty() && step.inputs.is_empty() => {
                tarnfs_codec::by_name(&step.codec).map_or(Self::Pieces, |codec| Self::Coded(codec, piece))
            }
            _ => Self::Pieces,
        }
    }
}

impl Walk<'_> {
    /// Reads the archive of that format which `source` holds. It begins at byte `base` of its stream.
    pub(super) fn random(
        &self,
        format: &dyn ReadRandom,
        source: &SharedSource,
        base: u64,
        place: &MemberPlace,
    ) -> Result<Members, Problem> {
        let (mut members, mut count) = (Members { end: base.saturating_add(source.len()), ..Members::default() }, 0);
        let entries = &self.options.progress.entries;
        let of_outer = self.parts.take();
        // Those in it are read on several threads already.
        let threads = if place.depth == 0 { self.options.decoding.threads } else { 1 };
        let mut result = directory::read(format, source, self.format_options, threads, &mut |event| {
            match event {
                Event::Entry(entry) => {
                    count += 1;
                    if count % 1024 == 0 {
                        entries.fetch_add(1024, Ordering::Relaxed);
                        self.options.cancel.check()?;
                    }
                    if place.depth > 0 {
                        self.amount.add_entry(&entry.body)?;
                    }
                    if let Some(own_name) = self.place(place, entry, base)? {
                        self.member(entry, &own_name, source, base, place)?;
                        self.behind_each()?;
                    }
                }
                Event::Damage(damage) => {
                    let (offset, what) = (damage.offset.saturating_add(base), std::mem::take(&mut damage.what));
                    self.damage(Damage { offset, what }, place)?;
                }
                Event::Label(label) if place.prefix.is_empty() => members.label = Some(std::mem::take(label)),
                Event::Unlisted(what) if place.prefix.is_empty() => members.unlisted.push(std::mem::take(what)),
                _ => {}
            }
            Ok(())
        });
        entries.fetch_add(count % 1024, Ordering::Relaxed);
        if result.is_ok() {
            let together = self.put_together(Some((source, base)), false, place);
            result = together.map_err(tarnfs_format::Error::Receiver);
        }
        self.parts.replace(of_outer);
        self.ended(result, members)
    }

    /// Tells of an entry of an archive that is read forwards, which lies in pieces in `source`. That begins at byte
    /// `base` of the stream.
    pub(super) fn in_pieces(
        &self,
        entry: &Entry,
        own_name: &OwnName,
        source: &SharedSource,
        base: u64,
        place: &MemberPlace,
    ) -> io::Result<()> {
        let mut entry = entry.clone();
        entry.header = entry.header.saturating_sub(base);
        entry.body.offset = entry.body.offset.saturating_sub(base);
        for piece in entry.body.pieces.iter_mut().flatten() {
            piece.offset = piece.offset.saturating_sub(base);
        }
        self.member(&mut entry, own_name, source, base, place)
    }

    /// Tells of an entry from the directory of the archive in `source`, which begins at byte `base` of its stream.
    fn member(
        &self,
        entry: &mut Entry,
        own_name: &OwnName,
        source: &SharedSource,
        base: u64,
        place: &MemberPlace,
    ) -> io::Result<()> {
        if entry.kind == Kind::Symlink
            && entry.link.is_empty()
            && entry.body.pieces.is_some()
            && !self.has_target(entry, source, base)?
        {
            return Ok(());
        }
        let has_content = entry.kind == Kind::File && entry.body.size > 0;
        let mut candidate = None;
        let name = own_name.of(entry);
        let may_be_archive = self.may_be_archive(name, place);
        let may_be_part = self.names.goes_below(place.depth) && parts::may_be_part(name);
        // What was there under this path before is another file.
        self.parts.borrow_mut().remove(&entry.path, name, &self.options.limits);
        if has_content && may_be_part && self.is_part_of_directory(entry, name, source, place)? {
            let alone = may_be_archive && parts::is_first(name);
            let part = Part::new(entry.clone(), name, alone, None);
            self.parts.borrow_mut().add((&entry.path, name), part, &self.options.limits, self.amount);
        } else if has_content && may_be_archive {
            candidate = self.candidate_of(entry, name, (source, base), place, Split::default())?;
        }
        if has_content
            && let Some(hashing) = &self.hashing
            && hashing.may_hash(entry, hashing::may_be_stored_nowhere(&entry.body))
        {
            let plain = Entry {
                body: Body { stored: entry.body.size, size: entry.body.size, ..Body::default() },
                ..entry.clone()
            };
            match hashing.now(&plain, &hashing::Content::Source(Arc::new(self.pieces_of(source, &entry.body)))) {
                Ok(hashes) => entry.xattrs.extend(hashes),
                Err(error) if is_unreadable(&error) => {}
                Err(error) => return Err(error),
            }
        }
        move_by(entry, base);
        self.receiver.entry(entry).map_err(io::Error::other)?;
        if let Some(candidate) = candidate {
            self.receiver.candidate(candidate).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// True if the file `entry`, whose name may be that of a part, is looked at once all are known.
    fn is_part_of_directory(
        &self,
        entry: &Entry,
        name: &[u8],
        source: &SharedSource,
        place: &MemberPlace,
    ) -> io::Result<bool> {
        if !parts::is_called_whole(name) {
            // What is an archive for itself, and has a number that no first part has, is called so for another reason.
            if !self.may_be_archive(name, place) || parts::is_first(name) {
                return Ok(true);
            }
            let content = Arc::new(self.pieces_of(source, &entry.body));
            if parts::is_called_volume(name) && parts::is_split(name, &(Arc::clone(&content) as SharedSource)) {
                return Ok(true);
            }
            // The 18th part of `split` is called as an archive of `ar`.
            let length = head_length(name).min(usize::try_from(entry.body.size).unwrap_or(usize::MAX));
            return match content.head(length) {
                Ok(head) => Ok(content_of_head(&head, name, &self.names.preferred).is_none()),
                Err(error) if is_unreadable(&error) => Ok(true),
                Err(error) => Err(error),
            };
        }
        let content = self.pieces_of(source, &entry.body);
        // Its end would have to be decoded to see what it says.
        let is_plain = entry
            .body
            .pieces
            .iter()
            .flatten()
            .all(|piece| piece.coder.as_ref().is_none_or(|coder| coder.steps.is_empty()));
        let length = head_length(name).min(usize::try_from(entry.body.size).unwrap_or(usize::MAX));
        let is_known = || match content.head(length) {
            Ok(head) => {
                Ok(content_of_head(&head, name, &self.names.preferred).is_some() && parts::is_led_by_last(name))
            }
            Err(error) if is_unreadable(&error) => Ok(true),
            Err(error) => Err(error),
        };
        Ok((is_plain || !is_known()?) && Self::is_volume(name, &content)?)
    }

    pub(super) fn pieces_of(&self, source: &SharedSource, body: &Body) -> PieceSource {
        PieceSource::of_body(source, body, &self.coded, self.options)
    }

    /// False if the symbolic link `entry`, whose target is its content, has none that can be one. The target is read
    /// when somebody asks for it: a solid block would have to be decoded up to there.
    fn has_target(&self, entry: &mut Entry, source: &SharedSource, base: u64) -> io::Result<bool> {
        let at = entry.header.saturating_add(base);
        if entry.body.size > LONGEST_TARGET {
            // Nothing of it is read: it may be a bomb.
            return self.note_at(at, long_target(entry, entry.body.size)).map(|()| false);
        }
        let coders = entry.body.pieces.iter().flatten().filter_map(|piece| piece.coder.as_deref());
        if !coders.into_iter().any(is_encrypted) {
            return Ok(true);
        }
        let mut target = vec![0; entry.body.size as usize];
        match self.pieces_of(source, &entry.body).read_exact_at(&mut target, 0) {
            Ok(()) => {
                entry.link = target;
                entry.body = Body { offset: entry.header, ..Body::default() };
            }
            // Where it leads, nobody can say without the password. As a file it is counted with those that are
            // encrypted, and who opens it is told.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (entry.kind, entry.mode) = (Kind::File, entry.mode & 0o666);
            }
            Err(error) if !is_unreadable(&error) => return Err(error),
            Err(error) => {
                let what = format!("{}: the target of the link: {error}", shown(entry));
                return self.note_at(at, what).map(|()| false);
            }
        }
        Ok(true)
    }

    /// What is to be read later of a member that holds an archive.
    pub(super) fn candidate_of(
        &self,
        entry: &Entry,
        name: &[u8],
        (source, base): (&SharedSource, u64),
        place: &MemberPlace,
        split: Split,
    ) -> io::Result<Option<Candidate>> {
        let content = self.pieces_of(source, &entry.body).of_parts(split.starts.clone());
        let length = head_length(name);
        let head = content.head(length.min(usize::try_from(entry.body.size).unwrap_or(length)));
        let inner = match head.and_then(|head| content_of(&head, &content, name, &self.names.preferred)) {
            Ok(Some(inner)) => inner,
            Ok(None) => return Ok(None),
            // Whoever reads the file is told.
            Err(error) if is_unreadable(&error) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                let what = format!("{}: {}; it stays a file", shown(entry), not_looked_into(&error));
                return self.note_at(entry.header.saturating_add(base), what).map(|()| None);
            }
            // It may be read the next time: nothing of that belongs into an index.
            Err(error) => return Err(error),
        };
        let stored = Stored::of(&entry.body, &content);
        let codec = match stored {
            Stored::Coded(codec, _) => Some(codec),
            Stored::Plain(_) | Stored::Pieces => inner.codec(),
        };
        let is_coded = matches!(stored, Stored::Coded(..));
        let in_pieces = place.in_pieces + u32::from(matches!(stored, Stored::Pieces));
        let layers = place.layers + u32::from(codec.is_some()) + u32::from(matches!(stored, Stored::Pieces));
        let why_not = match &self.names.recursion {
            Some(rules) if layers > rules.layers => Some(too_many_layers(rules.layers)),
            _ if place.depth as usize >= self.options.limits.path_components.saturating_mul(2) => {
                Some("it lies in too many archives; it stays a file".to_owned())
            }
            _ if in_pieces > MOST_IN_PIECES => {
                Some("it lies in too many archives to be read; it stays a file".to_owned())
            }
            // Each is called by the next, on one stack.
            _ if content.depth() + in_pieces as usize > MOST_DEPTH => {
                Some("too many coders are around it; it stays a file".to_owned())
            }
            _ => None,
        };
        if let Some(why) = why_not {
            self.note_at(entry.header.saturating_add(base), format!("{}: {why}", shown(entry)))?;
            return Ok(None);
        }
        let Some(path) = self.names.folder_of(&entry.path, &self.options.limits) else { return Ok(None) };
        // What lies in it is read where it is stored, and not everything has checksums of its own.
        if let Stored::Plain(_) = stored
            && !inner.compares_content()
            && !split.is_unchecked
        {
            match content.check(&self.options.cancel) {
                Ok(()) => {}
                Err(error) if is_unreadable(&error) => {
                    let what = format!("{}: it stays a file: {error}", shown(entry));
                    self.note_at(entry.header.saturating_add(base), what)?;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        let mut file = Entry { link: Vec::new(), xattrs: access_list::of_file(&entry.xattrs), ..entry.clone() };
        move_by(&mut file, base);
        let pieces = file.body.pieces.take().unwrap_or_default();
        // The folder that shows what it holds comes behind it.
        file.body.offset = file.header.saturating_add(1);
        let first = pieces.first().map_or(0, |piece| piece.offset);
        let expected = match stored {
            Stored::Coded(_, piece) => piece.crc.map(|crc| (piece.decoded, crc)),
            Stored::Plain(_) | Stored::Pieces => None,
        };
        let (start, bytes, pieces): (_, SharedSource, _) = match stored {
            Stored::Plain(piece) | Stored::Coded(_, piece) => {
                let bytes = pieces::stored(source, piece)?;
                (bytes.start().saturating_add(base), Arc::new(bytes), None)
            }
            Stored::Pieces => {
                // Thousands of candidates may wait: none may hold what was decoded to look at it.
                content.close_last();
                // What is not compressed is jumped over where it is a hole.
                let amount = codec.map(|_| Arc::clone(self.amount));
                let content = content.counting_holes(amount);
                (0, Arc::new(content), Some(pieces.into()))
            }
        };
        let length = bytes.len();
        let content = is_coded.then_some(inner);
        let place = MemberPlace {
            prefix: if path.is_empty() { Vec::new() } else { [path.as_slice(), b"/"].concat() },
            depth: place.depth + 1,
            layers,
            in_pieces,
            end: codec.is_none().then_some(start.saturating_add(length)),
        };
        Ok(Some(Candidate {
            input: 0,
            file_in: 0,
            archive: 0,
            start,
            length,
            bytes,
            damaged: Vec::new(),
            told_at: self.compressed_at.unwrap_or(if pieces.is_some() { first } else { start }),
            pieces,
            codec,
            name: if split.starts.is_empty() { last_component(&entry.path).to_vec() } else { name.to_vec() },
            split: Some(Arc::new(split))
                .filter(|split| !split.starts.is_empty() || split.next.is_some() || split.is_cut),
            makes_folder: !path.is_empty(),
            file: Box::new(file),
            expected,
            content,
            instead: None,
            is_layer: false,
            place,
        }))
    }
}

/// True of what is damaged, encrypted, or not known: whoever reads it is told.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    // What the system refuses has a number. It says nothing about the bytes.
    is_damage(error) || error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

/// Counts what is said of bytes from `base` bytes further ahead.
fn move_by(entry: &mut Entry, base: u64) {
    entry.header = entry.header.saturating_add(base);
    entry.body.offset = entry.body.offset.saturating_add(base);
    for piece in entry.body.pieces.iter_mut().flatten() {
        piece.offset = piece.offset.saturating_add(base);
    }
}
