//! What a commit needs of an overlay: what it was over, whether that is still there, a note of the archive that it goes
//! into, and the emptying.
//!
//! The note is on the disk before the archive is replaced. Who finds the new archive in its place knows that only the
//! emptying is left; who finds the old one, that nothing has happened. All names go in one transaction with the note.
//! What they had is removed behind that, as all that has no name is: now, or when the overlay is opened next.

use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, params};
use tarnfs_source::{Cancel, FileSource, Fingerprint, Source};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::database::failed;
use super::files::join;
use super::rows::{self, ROOT, Said, changed};
use super::{NodePlace, Overlay, OverlayError, OverlayStatus, OverlayTree};
use crate::{Child, Error, Kind, Node, UNKNOWN};

/// Keys of the table `overlay`.
const GOES_INTO: &str = "goes into";
const APPENDS: &str = "appends";
const LEFT: &str = "left";
const OVER: &str = "over";
const MOUNTED: &str = "mounted";

/// Rows that are read at once.
const BATCH: usize = 512;

/// Bytes of what is appended that are written last, at once: with two blocks of zeros a tar ends.
pub const HEAD: u64 = 1024;

/// Bytes of a block of a tar.
const BLOCK: u64 = 512;

/// An archive that an overlay goes into, as it will be: all of its bytes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoesInto {
    /// How many there are.
    length: u64,
    hash: u64,
}

impl GoesInto {
    /// Reads all of an archive.
    pub fn of(archive: &dyn Source, cancel: &Cancel) -> io::Result<Self> {
        Ok(Self { length: archive.len(), hash: hash(archive, 0..archive.len(), cancel)? })
    }

    fn to_text(self) -> String {
        format!("{} {:016x}", self.length, self.hash)
    }

    fn parse(text: &str) -> Option<Self> {
        let (length, hash) = text.split_once(' ')?;
        Some(Self { length: length.parse().ok()?, hash: u64::from_str_radix(hash, 16).ok()? })
    }

    /// True if it is this `archive`.
    pub fn is(self, archive: &dyn Source) -> io::Result<bool> {
        Ok(archive.len() == self.length && Self::of(archive, &Cancel::default())? == self)
    }
}

/// The archive that an overlay is over, as it was when it was mounted last. What was written was written to that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedOver {
    /// Hashes of its whole path: as it was given, where links may lead elsewhere by now, and without links.
    paths: Vec<u64>,
    /// Length and samples. There are two where it had something at its end that a commit takes away first.
    states: Vec<(u64, Fingerprint)>,
}

impl MountedOver {
    /// The archive at `path`, as it is now.
    pub fn of(path: &Path) -> io::Result<Self> {
        let real = path.canonicalize()?;
        let file = FileSource::open(&real)?;
        let states = vec![(file.len(), Fingerprint::of(&file)?)];
        let given = std::path::absolute(path)?;
        // However it is given: from another folder, or by a link to the one that it is in.
        let named = match (given.parent(), given.file_name()) {
            (Some(folder), Some(name)) => folder.canonicalize()?.join(name),
            _ => real.clone(),
        };
        let hash = |path: &Path| xxh3_64(path.as_os_str().as_bytes());
        let mut paths = vec![hash(&real), hash(&given), hash(&named)];
        paths.sort_unstable();
        paths.dedup();
        Ok(Self { paths, states })
    }

    /// True if it had the same path, or a link that leads elsewhere by now led to it.
    pub fn is_at_place_of(&self, other: &Self) -> bool {
        self.paths.iter().any(|path| other.paths.contains(path))
    }

    /// True if it was as the `other` is.
    pub fn is_as(&self, other: &Self) -> bool {
        self.states.iter().any(|state| other.states.contains(state))
    }

    /// True if it was as this one was before something was appended to it.
    pub fn is_as_before(&self, appends: &Appends) -> bool {
        self.states.contains(&(appends.length, appends.fingerprint))
    }

    fn to_text(&self) -> String {
        let states = self.states.iter().map(|(length, Fingerprint(samples))| format!(" {length} {samples:016x}"));
        let paths: Vec<_> = self.paths.iter().map(|path| format!("{path:016x}")).collect();
        format!("{}{}", paths.join(","), states.collect::<String>())
    }

    fn parse(text: &str) -> Option<Self> {
        let (paths, states) = text.split_once(' ')?;
        let words: Vec<&str> = states.split(' ').collect();
        let state = |state: &[&str]| match state {
            [length, samples] => Some((length.parse().ok()?, Fingerprint(u64::from_str_radix(samples, 16).ok()?))),
            _ => None,
        };
        let states = words.chunks(2).map(state).collect::<Option<_>>()?;
        let paths = paths.split(',').map(|path| u64::from_str_radix(path, 16).ok()).collect::<Option<_>>()?;
        Some(Self { paths, states })
    }
}

/// An archive that an overlay is appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appends {
    /// Device and inode of the file: it stays the same one.
    file: (u64, u64),
    /// Bytes that it had before.
    pub length: u64,
    /// Of its samples.
    pub fingerprint: Fingerprint,
    /// Byte at which its entries ended. There were only zeros from there on.
    pub end: u64,
    /// Bytes that are put there.
    pub tail: u64,
    /// Hashes of the first block of them, of all that is written last, and of what is behind that.
    first: u64,
    head: u64,
    rest: u64,
}

impl Appends {
    /// Of `part`, `tail` bytes that are put behind the `end` of an archive, which is the `file` with these numbers of
    /// device and inode.
    pub fn new(
        file: (u64, u64),
        (length, fingerprint): (u64, Fingerprint),
        end: u64,
        (part, tail): (&dyn Source, u64),
        cancel: &Cancel,
    ) -> io::Result<Self> {
        let of = |range| hash(part, range, cancel);
        let (first, head, rest) = (of(0..BLOCK)?, of(0..HEAD)?, of(HEAD..tail.max(HEAD))?);
        Ok(Self { file, length, fingerprint, end, tail, first, head, rest })
    }

    /// True if all that was to be appended is behind the end of the archive, but for its head, of which one block is
    /// not there: a loss of power has come in between.
    pub fn is_torn(&self, archive: &dyn Source) -> io::Result<bool> {
        if !self.has_rest(archive)? {
            return Ok(false);
        }
        let mut head = [0; HEAD as usize];
        archive.read_exact_at(&mut head, self.end)?;
        let (first, second) = head.split_at(BLOCK as usize);
        let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
        Ok(is_zero(first) || is_zero(second) && self.is_begun(archive)?)
    }

    /// True if the first block behind the end of the old archive is that of what was to be appended.
    fn is_begun(&self, archive: &dyn Source) -> io::Result<bool> {
        Ok(self.hash(archive, BLOCK)? == Some(self.first))
    }

    /// True if all of it is part of the archive. Its head alone says little: it may be that of another commit.
    pub fn is_done(&self, archive: &dyn Source) -> io::Result<bool> {
        Ok(self.has_head(archive)? && self.has_rest(archive)?)
    }

    fn has_head(&self, archive: &dyn Source) -> io::Result<bool> {
        Ok(self.hash(archive, HEAD)? == Some(self.head))
    }

    fn has_rest(&self, archive: &dyn Source) -> io::Result<bool> {
        let (begin, end) = (self.end.saturating_add(HEAD), self.end.saturating_add(self.tail.max(HEAD)));
        Ok(end <= archive.len() && hash(archive, begin..end, &Cancel::default())? == self.rest)
    }

    fn hash(&self, archive: &dyn Source, length: u64) -> io::Result<Option<u64>> {
        let end = self.end.saturating_add(length);
        (end <= archive.len()).then(|| hash(archive, self.end..end, &Cancel::default())).transpose()
    }

    fn to_text(self) -> String {
        let Self { file: (device, inode), length, fingerprint: Fingerprint(fingerprint), end, tail, .. } = self;
        let Self { first, head, rest, .. } = self;
        format!("{device} {inode} {length} {end} {tail} {fingerprint:016x} {first:016x} {head:016x} {rest:016x}")
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let &[device, inode, length, end, tail, fingerprint, first, head, rest] = words.as_slice() else { return None };
        let hash = |word| u64::from_str_radix(word, 16).ok();
        Some(Self {
            file: (device.parse().ok()?, inode.parse().ok()?),
            length: length.parse().ok()?,
            fingerprint: Fingerprint(hash(fingerprint)?),
            end: end.parse().ok()?,
            tail: tail.parse().ok()?,
            first: hash(first)?,
            head: hash(head)?,
            rest: hash(rest)?,
        })
    }
}

fn hash(source: &dyn Source, mut range: std::ops::Range<u64>, cancel: &Cancel) -> io::Result<u64> {
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 1 << 20];
    while !range.is_empty() {
        cancel.check()?;
        let batch = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(buffer.len());
        source.read_exact_at(&mut buffer[..batch], range.start)?;
        hash.update(&buffer[..batch]);
        range.start += batch as u64;
    }
    Ok(hash.digest())
}

/// How something in an overlay is not as it is below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// It was made here: it is another one than what is below, if there is something.
    pub is_made: bool,
    /// Its content is in the overlay.
    pub has_content: bool,
}

impl OverlayTree {
    fn of<T>(&self, done: Result<T, Error>) -> Result<T, OverlayError> {
        done.map_err(|error| OverlayError { path: self.folder().to_owned(), error })
    }

    /// Others may use the folder from now on, though this tree is still there: nobody asks it any more.
    pub fn release(&self) -> Result<(), OverlayError> {
        self.of(self.0.files.release().map_err(Error::from))
    }

    /// The archive that a commit was about to put it into, or has put it into, when it was ended.
    pub fn goes_into(&self) -> Result<Option<GoesInto>, OverlayError> {
        self.of(self.0.value(GOES_INTO).map(|text| text.as_deref().and_then(GoesInto::parse)))
    }

    /// True if it is in the `archive` since a commit that was ended before it had emptied it.
    pub fn is_in(&self, archive: &dyn Source) -> Result<bool, OverlayError> {
        let is_in = || {
            let (new, appended) = (self.0.value(GOES_INTO)?, self.0.value(APPENDS)?);
            if let Some(new) = new.as_deref().and_then(GoesInto::parse)
                && new.is(archive)?
            {
                return Ok(true);
            }
            match appended.as_deref().and_then(Appends::parse) {
                Some(appended) => Ok(appended.is_done(archive)?),
                None => Ok(false),
            }
        };
        self.of(is_in())
    }

    /// False if the `archive` was to get what is here behind its end, and does not have the head of that. All of it was
    /// on the disk before the head was written.
    pub fn has_head(&self, archive: &dyn Source) -> Result<bool, OverlayError> {
        let appended = || match self.0.value(APPENDS)?.as_deref().and_then(Appends::parse) {
            Some(appended) => Ok(appended.has_head(archive)?),
            None => Ok(true),
        };
        self.of(appended())
    }

    /// Notes the archive that it goes into. It is on the disk then.
    pub fn note_goes_into(&self, archive: GoesInto) -> Result<(), OverlayError> {
        let noted = self.0.put_value(GOES_INTO, Some(&archive.to_text()));
        self.of(noted.and_then(|()| Ok(self.0.sync()?)))
    }

    /// Takes back what was noted for a commit that has not come to its end.
    pub fn forget_notes(&self) -> Result<(), OverlayError> {
        let forget = || {
            for key in [GOES_INTO, APPENDS, LEFT] {
                if self.0.value(key)?.is_some() {
                    self.0.put_value(key, None)?;
                }
            }
            Ok(())
        };
        self.of(forget())
    }

    /// What is written from now on is in no archive, and must not be removed when one is found that has all that was
    /// noted of a commit. Of one that was appending to the `file` with these numbers of device and inode it stays noted
    /// what that has left: the next commit takes it away, also where all of it is there after a loss of power.
    pub fn distrust_notes(&self, file: Option<(u64, u64)>) -> Result<(), OverlayError> {
        let distrust = || {
            for key in [APPENDS, LEFT] {
                let Some(text) = self.0.value(key)? else { continue };
                let of = Appends::parse(&text).map(|appends| appends.file);
                if of.is_none() || of != file {
                    self.0.put_value(key, None)?;
                } else if key == APPENDS {
                    let sql = "UPDATE OR REPLACE overlay SET key = ? WHERE key = ?";
                    self.0.edit_for_room(|editing| {
                        editing.connection.execute(sql, [LEFT, APPENDS]).map(drop).map_err(failed)
                    })?;
                }
            }
            if self.0.value(GOES_INTO)?.is_some() {
                self.0.put_value(GOES_INTO, None)?;
            }
            Ok(())
        };
        self.of(distrust())
    }

    /// The same of what it was appended to just now, which could not be taken back: what of it is on the disk, nobody
    /// knows. That is on the disk then.
    pub fn distrust_appended(&self, archive: Appends) -> Result<(), OverlayError> {
        self.distrust_notes(Some(archive.file))?;
        self.of(self.0.sync().map_err(Error::from))
    }

    /// Notes the archive that it is appended to, as it is before that. It is on the disk then.
    pub fn note_appends(&self, archive: Appends) -> Result<(), OverlayError> {
        let noted = self.0.put_value(APPENDS, Some(&archive.to_text()));
        self.of(noted.and_then(|()| Ok(self.0.sync()?)))
    }

    /// What it was over, in words, if that was no single archive as it is.
    pub fn over(&self) -> Result<Option<String>, OverlayError> {
        self.of(self.0.value(OVER).map(|text| text.filter(|text| !text.is_empty())))
    }

    /// Notes what it is over from now on, in words; `None` of a single archive as it is. What an overlay that is not
    /// empty was over before stays, if that is none.
    pub fn note_over(&self, over: Option<&str>) -> Result<(), OverlayError> {
        let note = || {
            if over.is_some() || self.0.is_empty()? {
                self.0.put_value(OVER, over)?;
            }
            Ok(())
        };
        self.of(note())
    }

    /// The archive that it was mounted over last, if that was noted.
    pub fn mounted_over(&self) -> Result<Option<MountedOver>, OverlayError> {
        self.of(self.0.value(MOUNTED).map(|text| text.as_deref().and_then(MountedOver::parse)))
    }

    /// Notes the archive that it is mounted over from now on; `None` if it is not over one archive as it is. True if
    /// something is here that was written over that archive when it was another one.
    pub fn note_mounted_over(&self, archive: Option<&MountedOver>) -> Result<bool, OverlayError> {
        let note = || {
            let before = self.0.value(MOUNTED)?;
            let mut now = archive.cloned();
            if let (Some(now), Some(left)) = (&mut now, self.0.value(LEFT)?.as_deref().and_then(Appends::parse)) {
                now.states.push((left.length, left.fingerprint));
            }
            let text = now.as_ref().map(MountedOver::to_text);
            if text != before {
                self.0.put_value(MOUNTED, text.as_deref())?;
            }
            let before = before.as_deref().and_then(MountedOver::parse);
            let is_other =
                before.zip(now).is_some_and(|(before, now)| before.is_at_place_of(&now) && !before.is_as(&now));
            Ok(is_other && !self.0.is_empty()?)
        };
        self.of(note())
    }

    /// The path of something that has a name here, and that no listing gives: it would get into no archive.
    pub fn unlisted(&self, cancel: &Cancel) -> Result<Option<Vec<u8>>, OverlayError> {
        self.of(self.0.unlisted(cancel))
    }

    /// An overlay in which nothing was written takes the attributes of the root anew when it is opened next.
    pub fn forget_root(&self) -> Result<(), OverlayError> {
        self.of(self.0.edit_for_room(|editing| {
            let sql = "DELETE FROM nodes WHERE id = ? AND changed = 0 AND NOT EXISTS (SELECT 1 FROM names)";
            if editing.connection.execute(sql, [ROOT as i64]).map_err(failed)? > 0 {
                editing.connection.execute("DELETE FROM xattrs WHERE node = ?", [ROOT as i64]).map_err(failed)?;
            }
            Ok(())
        }))
    }

    /// The path of something that is said of what is below, and is not there, or is something else by now.
    pub fn missing_below(&self) -> Result<Option<Vec<u8>>, OverlayError> {
        self.of(self.0.missing_below())
    }

    /// The path of a folder of older versions in which something was written. No listing leads there, so it would be in
    /// no archive.
    pub fn among_versions(&self) -> Result<Option<Vec<u8>>, OverlayError> {
        self.of(self.0.among_versions())
    }

    /// True if the user, and if the group, of what has this node was given by who wrote here: what it is called below
    /// is of no use then.
    pub fn has_own_owner(&self, node: Node) -> Result<(bool, bool), OverlayError> {
        self.of(self.0.has_own_owner(node))
    }

    /// How what has this node is not as it is below; `None` if nothing is said of it here.
    pub fn written(&self, node: Node) -> Result<Option<Written>, OverlayError> {
        let NodePlace::Own(id) = self.0.place(node) else { return Ok(None) };
        let written = self.0.known_row(id).map(|row| Written {
            is_made: row.lower.is_none(),
            has_content: row.kind == Kind::File && row.place.is_some(),
        });
        self.of(written).map(Some)
    }

    /// True if something that has several names below is not as it is there: it may have names in folders of which
    /// nothing is said.
    pub fn has_shared(&self) -> Result<bool, OverlayError> {
        self.of(self.0.database.ask(rows::shared).map(|shared| !shared.is_empty()))
    }

    /// True if something that is below is not at its place, whether it was removed or has another name.
    pub fn hides_below(&self) -> Result<bool, OverlayError> {
        self.of(self.0.database.ask(|connection| {
            let sql = "SELECT EXISTS (SELECT 1 FROM names WHERE node IS NULL)";
            connection.query_row(sql, [], |row| row.get(0)).map_err(failed)
        }))
    }

    /// True if what has this node is as it is below.
    pub fn is_as_below(&self, node: Node) -> bool {
        matches!(self.0.place(node), NodePlace::Lower)
    }

    /// Removes all that was written, as it is in the archive by now. `keeps_root`: that has the attributes of the root,
    /// too. The tree is of no use any more.
    pub fn empty(&self, keeps_root: bool) -> Result<(), OverlayError> {
        self.of(self.0.empty(keeps_root))
    }

    /// Removes folders in which no content lies any more. Where nothing was written, no other is left.
    pub fn remove_empty_folders(&self) {
        self.0.files.remove_empty_folders();
    }
}

impl OverlayStatus {
    /// The archive that a commit was about to append it to when it was ended, as it was before.
    pub fn appends(&self) -> Result<Option<Appends>, OverlayError> {
        Ok(self.value(APPENDS)?.as_deref().and_then(Appends::parse))
    }

    /// The same where what is here may have been changed since: all of what was appended is to be taken away.
    pub fn left(&self) -> Result<Option<Appends>, OverlayError> {
        Ok(self.value(LEFT)?.as_deref().and_then(Appends::parse))
    }

    fn value(&self, key: &str) -> Result<Option<String>, OverlayError> {
        value(&self.connection, key).map_err(|error| OverlayError { path: self.folder.clone(), error })
    }
}

fn value(connection: &Connection, key: &str) -> Result<Option<String>, Error> {
    let mut query = connection.prepare_cached("SELECT value FROM overlay WHERE key = ?").map_err(failed)?;
    query.query_row([key], |row| row.get(0)).optional().map_err(failed)
}

impl Overlay {
    fn value(&self, key: &str) -> Result<Option<String>, Error> {
        self.database.ask(|connection| value(connection, key))
    }

    /// A mount begins with that, and a commit: neither needs more room than is kept.
    fn put_value(&self, key: &str, value: Option<&str>) -> Result<(), Error> {
        self.edit_for_room(|editing| {
            let done = match value {
                Some(value) => {
                    editing.connection.execute("INSERT OR REPLACE INTO overlay VALUES (?, ?)", params![key, value])
                }
                None => editing.connection.execute("DELETE FROM overlay WHERE key = ?", [key]),
            };
            done.map(drop).map_err(failed)
        })
    }

    /// True if no name was made, changed or removed.
    fn is_empty(&self) -> Result<bool, Error> {
        self.database.ask(|connection| {
            let sql = "SELECT NOT EXISTS (SELECT 1 FROM names)";
            connection.query_row(sql, [], |row| row.get(0)).map_err(failed)
        })
    }

    /// See [`OverlayTree::unlisted`]. Goes through the folders of which something is said, as whoever makes an archive
    /// of the tree does.
    fn unlisted(&self, cancel: &Cancel) -> Result<Option<Vec<u8>>, Error> {
        let mut folders = vec![(Node::ROOT, ROOT, Vec::new())];
        // A file that somebody has made for us may have a folder in itself.
        let mut seen = HashSet::from([ROOT]);
        while let Some((folder, id, path)) = folders.pop() {
            let expected = self.database.ask(|connection| rows::count_of_names(connection, id))?;
            let (mut found, mut result) = (0, Ok(()));
            let mut look = |child: Child<'_>| -> Result<(), Error> {
                let node = child.attributes.node;
                cancel.check()?;
                // Of what is as below, nobody asks the database: there may be very much of it.
                let may_be_here = node == UNKNOWN || matches!(self.place(node), NodePlace::Own(_));
                if may_be_here && let Said::Node(inner) = self.said(id, child.name)? {
                    found += 1;
                    if child.attributes.kind == Kind::Folder && seen.insert(inner) {
                        // Held until it was gone through.
                        folders.push((node, inner, join(&path, child.name)));
                        return Ok(());
                    }
                }
                self.forget(node, 1);
                Ok(())
            };
            if expected > 0 {
                self.read_dir(folder, 0, &mut |child| {
                    result = look(child);
                    result.is_ok()
                })?;
            }
            result?;
            self.forget(folder, 1);
            if found < expected {
                return self.one_unlisted(folder, id).map(|name| Some(join(&path, &name)));
            }
        }
        self.database.ask(|connection| rows::name_elsewhere(connection, &seen))
    }

    /// A name in a folder that its listing does not give.
    fn one_unlisted(&self, folder: Node, id: u64) -> Result<Vec<u8>, Error> {
        let mut names: HashSet<Vec<u8>> = HashSet::new();
        self.read_dir(folder, 0, &mut |child| {
            names.insert(child.name.to_vec());
            self.forget(child.attributes.node, 1);
            true
        })?;
        let all = self.database.ask(|connection| rows::all_names(connection, id))?;
        let one = all.into_iter().find(|(row, _)| row.node.is_some() && !names.contains(&row.name));
        Ok(one.map(|(row, _)| row.name).unwrap_or_default())
    }

    /// True of a folder that nothing tells of but what lies in it, as below. What was made in it here has changed its
    /// time, but nobody has given it attributes.
    pub(super) fn is_implied(&self, id: u64, node: Node) -> bool {
        let is_as_below = |row: &rows::NodeRow| row.lower.is_some() && row.changed & changed::ATTRIBUTES == 0;
        self.row(id).is_ok_and(|row| row.as_ref().is_some_and(is_as_below))
            && self.below(node).is_some_and(|lower| self.lower.is_implied(lower))
    }

    /// Hands rows to `receive`, in the order of their numbers, until that returns false.
    fn each_row(&self, receive: &mut dyn FnMut(rows::NodeRow) -> Result<bool, Error>) -> Result<(), Error> {
        let mut last = 0;
        loop {
            let batch = self.database.ask(|connection| rows::nodes_behind(connection, last, BATCH))?;
            let Some(row) = batch.last() else { return Ok(()) };
            last = row.id;
            for row in batch {
                if !receive(row)? {
                    return Ok(());
                }
            }
        }
    }

    fn missing_below(&self) -> Result<Option<Vec<u8>>, Error> {
        let mut missing = None;
        self.each_row(&mut |row| {
            if let Some(path) = row.lower.as_ref().filter(|_| row.links > 0) {
                let is_there = match self.lower_of(&row)? {
                    None => false,
                    // Its content is what is below.
                    Some(node) if row.kind == Kind::File && row.place.is_none() => {
                        self.lower.attributes(node)?.size == row.size
                    }
                    Some(_) => true,
                };
                missing = (!is_there).then(|| path.clone());
            }
            Ok(missing.is_none())
        })?;
        Ok(missing)
    }

    fn among_versions(&self) -> Result<Option<Vec<u8>>, Error> {
        let mut found = None;
        self.each_row(&mut |row| {
            if let (Kind::Folder, Some(path)) = (row.kind, row.lower.as_ref().filter(|_| row.links > 0)) {
                let is_it = self.lower_of(&row)?.is_some_and(|node| self.lower.is_of_versions(node));
                let has_names = || self.database.ask(|connection| rows::has_names(connection, row.id));
                found = (is_it && (row.changed != 0 || has_names()?)).then(|| path.clone());
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    fn has_own_owner(&self, node: Node) -> Result<(bool, bool), Error> {
        let NodePlace::Own(id) = self.place(node) else { return Ok((false, false)) };
        let row = self.known_row(id)?;
        let Some(lower) = self.lower_of(&row)? else { return Ok((true, true)) };
        let below = self.lower.attributes(lower)?;
        Ok((below.uid != row.uid, below.gid != row.gid))
    }

    /// The names of the owner of a node of the overlay, as far as they are those below.
    pub(super) fn owner_names(&self, id: u64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let row = self.known_row(id)?;
        let Some(lower) = self.lower_of(&row)? else { return Ok((Vec::new(), Vec::new())) };
        let below = self.lower.attributes(lower)?;
        let (mut user, mut group) = self.lower.owner_names(lower)?;
        if below.uid != row.uid {
            user.clear();
        }
        if below.gid != row.gid {
            group.clear();
        }
        Ok((user, group))
    }

    fn empty(&self, keeps_root: bool) -> Result<(), Error> {
        self.edit_for_room(|editing| {
            let root = ROOT as i64;
            let run = |sql: &str, id: &[i64]| {
                editing.connection.execute(sql, rusqlite::params_from_iter(id)).map(drop).map_err(failed)
            };
            run("DELETE FROM names", &[])?;
            // All of it is without a name then, and none of it stands for something below.
            run("UPDATE nodes SET links = 0, lower = NULL, is_shared = 0 WHERE id <> ?", &[root])?;
            run("DELETE FROM xattrs WHERE node <> ?", &[root])?;
            if keeps_root {
                run("UPDATE nodes SET changed = 0 WHERE id = ?", &[root])?;
            }
            let sql = "DELETE FROM overlay WHERE key IN (?, ?, ?, ?)";
            editing.connection.execute(sql, [GOES_INTO, APPENDS, LEFT, OVER]).map(drop).map_err(failed)
        })?;
        // Else a loss of power would bring the names back, and not what they had.
        self.sync()?;
        if let Err(error) = self.remove_all() {
            let what = "what was in it is not wanted any more, and goes when it is opened next";
            log::warn!("{}: {what}: {error}", self.files.path().display());
        }
        Ok(())
    }

    /// Removes what has no name, which is all, and then what is said of it: who is ended in between goes on from there
    /// when it is opened next, before anything gets a place ([`Overlay::avoid_places`] if that fails, too).
    fn remove_all(&self) -> Result<(), Error> {
        self.each_row(&mut |row| {
            if let (Kind::File, Some(place)) = (row.kind, row.place) {
                self.files.remove(&place)?;
            }
            Ok(true)
        })?;
        // Also those that no row names: what was removed may have had a folder that others lay in.
        self.files.remove_empty_folders();
        self.edit_for_room(|editing| {
            let sql = "DELETE FROM nodes WHERE id <> ?";
            editing.connection.execute(sql, [ROOT as i64]).map(drop).map_err(failed)
        })?;
        Ok(self.sync()?)
    }
}
