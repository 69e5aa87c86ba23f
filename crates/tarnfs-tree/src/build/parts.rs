//! Parts of archives that were split, which lie in an archive: gathered while that is read, and put together at its
//! end, since they come in any order.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;

use tarnfs_format::{Body, Entry, Format, Piece, Volume, VolumesByFirst, name};
use tarnfs_source::{Limits, MemorySource, SharedSource, Source};

use super::amount::Amount;
use super::names::last_component;
use super::sparse::in_pieces;
use super::walk::{Content, MemberPlace, Walk, Wanted, content_of_head};
use super::walk_directory::is_unreadable;
use super::{head_length, head_of};
use crate::access_list;
use crate::parts::{self, Found, Wrong};
use crate::preferred::Preferred;
use crate::problem::Problem;
use crate::readers::{self, Readers};

/// Bytes of what is gathered of an archive and of those in it, which may be read at the same time.
const MOST_GATHERED: usize = 32 << 20;

/// The same of one archive, which it may have however much others have.
const LEAST_GATHERED: usize = 1 << 20;

/// Bytes that a file takes beside what is in it, and that a folder takes: of trees, and of what was allocated.
const OF_FILE: usize = 160;
const OF_ENTRY: usize = 512;
const OF_FOLDER: usize = 1 << 10;

/// Names that are remembered of what went by. Of each its hash is kept.
const MOST_PASSED: usize = 1 << 14;

/// What is said where a part is not all there.
pub(super) const CUT: &str = "the archive that its parts lie in is cut";

/// Parts that are looked for in an archive and in those in it. Each file may count up from the first one of its folder,
/// so what it takes would grow with the square of their number.
const MOST_LOOKS: u64 = 2_000_000;

/// Where there are more, those stay of which at least one in so many is there. Names of programs end like parts that
/// are counted with letters: `x.py` would be the 414th of one archive.
const ONE_IN: u64 = 8;

/// One file that may be a part.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    /// Who may read it.
    readers: Readers,
    /// What it is, if it is taken for itself.
    pub(super) alone: bool,
    /// Its bytes, where the stream that it lies in cannot be read again.
    pub(super) kept: Option<SharedSource>,
}

/// What is kept of a file.
#[derive(Debug)]
enum File {
    /// All that the directory or a header tells of it.
    Entry(Box<Entry>),
    /// Its only piece: nobody asks for more of one that is only a part of others, and there may be very many.
    Piece(Box<Piece>),
}

impl Part {
    /// Of the file `entry`, which is called `name`.
    pub(super) fn new(entry: Entry, name: &[u8], alone: bool, kept: Option<SharedSource>) -> Self {
        let readers = Readers::of_member((entry.uid, entry.gid), entry.mode, &entry.xattrs);
        let is_shown = alone || parts::is_first(name) || parts::is_called_volume(name) || parts::is_called_whole(name);
        let file = match entry.body.pieces.as_deref() {
            Some([piece]) if !is_shown && piece.hole.saturating_add(piece.length) == entry.body.size => {
                File::Piece(Box::new(piece.clone()))
            }
            _ => File::Entry(Box::new(entry)),
        };
        Self { file, readers, alone, kept }
    }

    fn entry(&self) -> Option<&Entry> {
        match &self.file {
            File::Entry(entry) => Some(entry),
            File::Piece(_) => None,
        }
    }

    fn pieces(&self) -> &[Piece] {
        match &self.file {
            File::Entry(entry) => entry.body.pieces.as_deref().unwrap_or_default(),
            File::Piece(piece) => std::slice::from_ref(piece),
        }
    }

    fn size(&self) -> u64 {
        match &self.file {
            File::Entry(entry) => entry.body.size,
            File::Piece(piece) => piece.hole.saturating_add(piece.length),
        }
    }

    fn body(&self) -> Body {
        match &self.file {
            File::Entry(entry) => entry.body.clone(),
            File::Piece(piece) => Body {
                offset: piece.offset,
                stored: piece.stored,
                size: self.size(),
                pieces: Some(vec![(**piece).clone()]),
                extents: None,
            },
        }
    }

    fn weight(&self) -> usize {
        /// What stands for bytes that are kept, beside these.
        const KEPT: usize = 200;
        let file = match &self.file {
            File::Entry(entry) => entry.weight() + OF_ENTRY,
            File::Piece(_) => size_of::<Piece>(),
        };
        file + self.readers.weight() + OF_FILE + if self.kept.is_some() { KEPT } else { 0 }
    }
}

/// Files of one archive that may be parts, by folder and name.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    folders: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Part>>,
    weight: usize,
    /// Where that counts, once there is something.
    amount: Option<Arc<Amount>>,
    /// Hashes of the paths and lengths of files that may have been parts, but went by before it was known of what.
    passed: HashMap<u64, u64>,
    /// A part of an archive was left out.
    is_full: bool,
    /// To make room has freed so little that no more are taken: else all would be gone through for each one.
    is_closed: bool,
}

/// The folder of what is at `path`, empty or with a slash at its end, and what it is called there: `name`, where that
/// is another one than in the path. However the path is spelled: `./x` and `a/../x` replace `x`.
fn place_of(path: &[u8], name: &[u8], limits: &Limits) -> (Vec<u8>, Vec<u8>) {
    let components = name::components(path, limits);
    let (mut folder, mut last): (Vec<u8>, &[u8]) = (Vec::with_capacity(path.len()), &[]);
    for component in &components {
        if !last.is_empty() {
            folder.extend_from_slice(last);
            folder.push(b'/');
        }
        last = component;
    }
    let name = if last_component(path) == name { last } else { name };
    (folder, name.to_vec())
}

/// The place of `suffix` among those of its length, where it counts parts.
fn number_of(suffix: &[u8]) -> Option<u64> {
    let (base, zero) = match suffix {
        _ if suffix.iter().all(u8::is_ascii_digit) => (10, b'0'),
        _ if suffix.iter().all(u8::is_ascii_lowercase) => (26, b'a'),
        _ => return None,
    };
    suffix.iter().try_fold(0_u64, |number, byte| number.checked_mul(base)?.checked_add(u64::from(byte - zero)))
}

/// A hash of the path of a file.
fn hash_of(folder: &[u8], name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (folder, name).hash(&mut hasher);
    hasher.finish()
}

impl Gathered {
    /// Remembers that a file goes by which may be a part, but of what is not known yet.
    fn pass(&mut self, entry: &Entry, name: &[u8], limits: &Limits) {
        if self.passed.len() < MOST_PASSED && parts::stem_of_number(name).is_some() {
            let (folder, name) = place_of(&entry.path, name, limits);
            self.passed.insert(hash_of(&folder, &name), entry.body.size);
        }
    }

    fn set_weight(&mut self, weight: usize) {
        let before = std::mem::replace(&mut self.weight, weight);
        if let Some(amount) = &self.amount {
            amount.set_gathered(before, weight);
        }
    }

    /// Takes in the one at `path`, in the place of an earlier one. It counts in `amount`, with those of other archives.
    pub(super) fn add(&mut self, (path, name): (&[u8], &[u8]), part: Part, limits: &Limits, amount: &Arc<Amount>) {
        if self.is_closed {
            self.is_full |= part.alone || self.has_first(path, name, limits);
            return;
        }
        self.amount.get_or_insert_with(|| Arc::clone(amount));
        let (folder, name) = place_of(path, name, limits);
        let of_folder = if self.folders.contains_key(&folder) { 0 } else { folder.len() + OF_FOLDER };
        let weight = name.len() + part.weight() + of_folder;
        let has_room = |own: usize| {
            let all = amount.gathered().saturating_add(weight);
            all <= MOST_GATHERED || own.saturating_add(weight) <= LEAST_GATHERED
        };
        if !has_room(self.weight) {
            self.leave_out();
        }
        if !has_room(self.weight) {
            self.is_closed = true;
            self.is_full |= part.alone || self.has_first_in(&folder, &name);
            return;
        }
        self.set_weight(self.weight.saturating_add(weight));
        let length = name.len();
        if let Some(before) = self.folders.entry(folder).or_default().insert(name, part) {
            self.set_weight(self.weight.saturating_sub(length + before.weight()));
        }
    }

    /// What is at `path` is another file, or none.
    pub(super) fn remove(&mut self, path: &[u8], name: &[u8], limits: &Limits) {
        // Mostly there is none.
        if self.folders.is_empty() {
            return;
        }
        let (folder, name) = place_of(path, name, limits);
        let Some(names) = self.folders.get_mut(&folder) else { return };
        let Some(before) = names.remove(&name) else { return };
        let mut gone = name.len() + before.weight();
        if names.is_empty() {
            self.folders.remove(&folder);
            gone += folder.len() + OF_FOLDER;
        }
        self.set_weight(self.weight.saturating_sub(gone));
    }

    /// True if the archive of which the file `name` at `path` would be a part has a first part that is known, and is
    /// one by its start.
    pub(super) fn has_first(&self, path: &[u8], name: &[u8], limits: &Limits) -> bool {
        if self.folders.is_empty() {
            return false;
        }
        let (folder, name) = place_of(path, name, limits);
        self.has_first_in(&folder, &name)
    }

    fn has_first_in(&self, folder: &[u8], name: &[u8]) -> bool {
        let Some((stem, suffix)) = parts::split_suffix(name) else { return false };
        let Some(names) = self.folders.get(folder) else { return false };
        parts::firsts(suffix).any(|first| {
            let first = [stem, b".", &first].concat();
            names.get(&first).is_some_and(|part| part.alone)
        })
    }

    /// The path of a part which went by, if that of the archive that begins in `first` would need it. No part is longer
    /// than the first one.
    fn passed_part(
        &self,
        (folder, name, first): (&[u8], &[u8], &Part),
        found: &Result<Option<Found<CandidateVolume<'_, '_>>>, Wrong>,
    ) -> Option<Vec<u8>> {
        if self.passed.is_empty() {
            return None;
        }
        let needed = match found {
            Ok(Some(found)) => found.after.clone(),
            Ok(None) if parts::is_first(name) => parts::next_ones(name),
            Err(Wrong::Missing(missing)) => vec![missing.clone()],
            Ok(None) | Err(Wrong::Problem(_)) => Vec::new(),
        };
        let has_passed = |needed: &&Vec<u8>| {
            let size = self.passed.get(&hash_of(folder, needed));
            size.is_some_and(|size| *size <= first.size())
        };
        needed.iter().find(has_passed).map(|passed| [folder, passed].concat())
    }

    /// Makes room: what is hardly a part is left out.
    fn leave_out(&mut self) {
        for names in self.folders.values_mut() {
            // By stem and length of the number: how many there are, and the highest number.
            let mut groups: BTreeMap<(Vec<u8>, usize), (u64, u64)> = BTreeMap::new();
            let group_of = |name: &[u8]| {
                let (stem, suffix) = parts::split_suffix(name)?;
                Some(((stem.to_vec(), suffix.len()), number_of(suffix)?))
            };
            for (group, number) in names.keys().filter_map(|name| group_of(name)) {
                let (count, highest) = groups.entry(group).or_default();
                (*count, *highest) = (*count + 1, number.max(*highest));
            }
            names.retain(|name, part| {
                let Some((group, _)) = group_of(name).filter(|_| !part.alone) else { return true };
                groups.get(&group).is_some_and(|(count, highest)| count.saturating_mul(ONE_IN) > *highest)
            });
        }
        self.folders.retain(|_, names| !names.is_empty());
        let files: usize = self.folders.values().flatten().map(|(name, part)| name.len() + part.weight()).sum();
        let folders: usize = self.folders.keys().map(|folder| folder.len() + OF_FOLDER).sum();
        let (before, weight) = (self.weight, files + folders);
        self.set_weight(weight);
        self.is_closed = weight > before / 4 * 3;
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.set_weight(0);
    }
}

/// The parts of which one is kept in a stream that goes by, as that stream.
#[derive(Debug)]
struct Kept {
    /// By the byte of the stream at which each begins.
    parts: BTreeMap<u64, SharedSource>,
    name: String,
}

impl Source for Kept {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.parts.range(..=offset).next_back() {
            Some((start, part)) => part.read_at(buffer, offset - start),
            None => Ok(0),
        }
    }

    fn len(&self) -> u64 {
        self.parts.last_key_value().map_or(0, |(start, part)| start.saturating_add(part.len()))
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

/// What files say of themselves as volumes, by name and format.
type Volumes<'g> = HashMap<(&'g [u8], &'static str), Option<Volume>>;

/// The files of one folder that may be parts, while these are put together.
struct InFolder<'g> {
    names: &'g BTreeMap<Vec<u8>, Part>,
    /// Makes the bytes of one of them.
    bytes: &'g dyn Fn(&Part) -> SharedSource,
    /// What is known by now: to find that may take a walk over all of a volume, and each of them asks for all others.
    volumes: RefCell<Volumes<'g>>,
}

impl<'g> InFolder<'g> {
    fn get<'f>(&'f self, name: &[u8]) -> Option<CandidateVolume<'f, 'g>> {
        let (name, part) = self.names.get_key_value(name)?;
        Some(CandidateVolume { name, part, source: OnceCell::new(), folder: self })
    }
}

/// A part that is looked for. Mostly only its length is asked for.
#[derive(Clone)]
struct CandidateVolume<'f, 'g> {
    name: &'g [u8],
    part: &'g Part,
    source: OnceCell<SharedSource>,
    folder: &'f InFolder<'g>,
}

impl parts::File for CandidateVolume<'_, '_> {
    fn source(&self) -> &dyn Source {
        &**self.source.get_or_init(|| (self.folder.bytes)(self.part))
    }

    fn length(&self) -> u64 {
        self.part.size()
    }

    fn volume(&self, format: &dyn VolumesByFirst) -> io::Result<Option<Volume>> {
        let key = (self.name, format.name());
        if let Some(known) = self.folder.volumes.borrow().get(&key) {
            return Ok(known.clone());
        }
        let volume = format.volume(self.source())?;
        self.folder.volumes.borrow_mut().insert(key, volume.clone());
        Ok(volume)
    }
}

/// What was kept of one file, whose content began at byte `start` of its stream, as that stream.
pub(super) fn at_its_place(start: u64, kept: SharedSource) -> SharedSource {
    let name = kept.describe();
    Arc::new(Kept { parts: BTreeMap::from([(start, kept)]), name })
}

/// True if the first part of an archive begins as one.
fn begins_as_archive(name: &[u8], source: &SharedSource, preferred: &Preferred) -> bool {
    let whole = parts::stem_of_number(name).unwrap_or(name);
    head_of(source, head_length(whole)).is_ok_and(|head| content_of_head(&head, whole, preferred).is_some())
}

/// The same as [`parts::is_split`], of a file that begins with `head`.
fn is_split(name: &[u8], head: &[u8]) -> bool {
    let head: SharedSource = Arc::new(MemorySource::new(head.to_vec(), "a head"));
    parts::is_split(name, &head)
}

/// What an archive that is put together is made of.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// The byte of it at which each part begins.
    pub(super) starts: Vec<u64>,
    /// A part that is not there, and which nobody can say is missing.
    pub(super) next: Option<Vec<u8>>,
    /// The archive that its parts lie in is cut, and with it the last of them.
    pub(super) is_cut: bool,
    /// It lies in an archive that is read forwards, and has no checksums of it.
    pub(super) is_unchecked: bool,
}

impl Walk<'_> {
    /// True if what `source` says of itself is that it is one of several volumes, which are called as `name` is.
    pub(super) fn is_volume(name: &[u8], source: &dyn Source) -> io::Result<bool> {
        let is_one = |format: &dyn Format| {
            if let Some(format) = format.volumes_by_last().filter(|format| parts::is_last(*format, name)) {
                return format.volumes(source).map(|others| others.is_some());
            }
            let first = format.volumes_by_first().filter(|format| parts::is_first_of(*format, name));
            first.map_or(Ok(false), |format| format.volume(source).map(|volume| volume.is_some()))
        };
        for format in tarnfs_format::FORMATS {
            match is_one(*format) {
                Ok(false) => {}
                Err(error) if is_unreadable(&error) => {}
                found => return found,
            }
        }
        Ok(false)
    }

    /// What is to be done with a file whose name may be that of a part, and which is `content` if it is taken for
    /// itself. Of an archive that can be read at any time it is remembered. `None`: it is no part as far as one can
    /// tell by now.
    pub(super) fn as_part(
        &self,
        entry: &Entry,
        name: &[u8],
        content: Option<Content>,
        head: &[u8],
    ) -> io::Result<Option<Wanted>> {
        let is_part = match self.bytes {
            _ if !parts::is_called_whole(name) => match content {
                // It may be what its name says.
                Some(_) => parts::is_first(name) || parts::is_called_volume(name) && is_split(name, head),
                None => self.bytes.is_some() || self.is_likely_part(entry, name),
            },
            Some(bytes) => Self::is_volume(name, &*self.content_at(&entry.body, bytes))?,
            // What is known by its end will be seen when all of it is there.
            None => content.is_none() || Self::is_volume(name, &MemorySource::new(head.to_vec(), "a head"))?,
        };
        match (is_part, self.bytes) {
            (false, None) if content.is_none() => {
                self.parts.borrow_mut().pass(entry, name, &self.options.limits);
                Ok(None)
            }
            (false, _) => Ok(None),
            (true, Some(_)) => {
                self.gather(entry, name, content, None);
                Ok(Some(Wanted::Nothing))
            }
            (true, None) => Ok(Some(Wanted::Part(content))),
        }
    }

    /// True if the file is worth keeping while it goes by.
    fn is_likely_part(&self, entry: &Entry, name: &[u8]) -> bool {
        parts::is_called_volume(name)
            || parts::stem_of_number(name).is_some_and(|stem| self.names.stem(stem).is_some())
            || self.parts.borrow().has_first(&entry.path, name, &self.options.limits)
    }

    /// Puts together what was gathered of the archive that has come to its end, whose members lie in `stream`, which
    /// begins at that byte of what they count in. Without a stream the parts themselves are there.
    /// Those of an archive that is read forwards have no checksums.
    pub(super) fn put_together(
        &self,
        stream: Option<(&SharedSource, u64)>,
        is_forwards: bool,
        place: &MemberPlace,
    ) -> io::Result<()> {
        let gathered = self.parts.take();
        let are_all = self.put_all_together(&gathered, stream, is_forwards, place)?;
        if gathered.is_full || !are_all {
            let shown = name::excerpt(place.prefix.strip_suffix(b"/").unwrap_or(b"the archive"));
            log::warn!(
                "{shown} has so many files with numbers that not all archives in several parts are put together"
            );
        }
        Ok(())
    }

    /// The same of all that was `gathered`. False if there were too many looks.
    fn put_all_together(
        &self,
        gathered: &Gathered,
        stream: Option<(&SharedSource, u64)>,
        is_forwards: bool,
        place: &MemberPlace,
    ) -> io::Result<bool> {
        for (folder, names) in &gathered.folders {
            let mut told = BTreeSet::new();
            let (source, base) = match stream {
                Some((source, base)) => (SharedSource::clone(source), base),
                None => (Self::kept(names), 0),
            };
            let bytes = |part: &Part| -> SharedSource { Arc::new(self.pieces_of(&source, &part.body())) };
            let in_folder = InFolder { names, bytes: &bytes, volumes: RefCell::default() };
            // They show under the name of another part.
            let mut others: HashSet<Vec<u8>> = HashSet::new();
            // What the archive lacks that they are parts of.
            let mut lacking: HashMap<&[u8], Vec<u8>> = HashMap::new();
            for (name, part) in names {
                if others.remove(name) {
                    continue;
                }
                let Some(entry) = part.entry() else { continue };
                if self.amount.looks() > MOST_LOOKS {
                    return Ok(false);
                }
                if !self.may_be_archive(name, place) && !parts::is_called_volume(name) {
                    continue;
                }
                self.options.cancel.check()?;
                let walked = RefCell::new(Vec::new());
                let open = |name: &[u8]| {
                    self.amount.look();
                    // What its owner keeps from others must not come to them with a file that was put beside it.
                    let found = in_folder.get(name).filter(|found| part.readers.may_share(&found.part.readers));
                    let alike = found.as_ref().filter(|found| part.readers.is_alike(&found.part.readers));
                    walked.borrow_mut().extend(alike.map(|found| found.name));
                    Ok(found)
                };
                let found = match lacking.remove(name.as_slice()) {
                    Some(missing) => Err(Wrong::Missing(missing)),
                    None => parts::find(name, &open),
                };
                if let Err(Wrong::Missing(missing)) = &found {
                    // Each of them would walk to there again.
                    let later = walked.take().into_iter().filter(|other| *other > name.as_slice());
                    lacking.extend(later.map(|other| (other, missing.clone())));
                }
                if let Ok(Some(found)) = &found {
                    let files = found.files.iter().map(|(file, _)| file);
                    others.extend(files.filter(|file| **file != found.shown && *file > name).cloned());
                }
                match found {
                    // What goes by cannot be had again.
                    Ok(_) | Err(Wrong::Missing(_))
                        if let Some(before) = gathered.passed_part((folder, name, part), &found)
                            && (part.alone || in_folder.get(name).is_some_and(|file| parts::is_split(name, &file))) =>
                    {
                        let (shown, before) = (name::excerpt(&entry.path), name::excerpt(&before));
                        log::warn!(
                            "{shown}: {before}, a part of it, comes before it in a compressed archive; both stay \
                             files: --lazy, or the archive without its compression, shows what is in them"
                        );
                    }
                    Ok(Some(found)) if found.shown == *name => {
                        self.put_together_one(found, names, (&source, base), is_forwards, place)?;
                    }
                    Ok(None) if part.alone => {
                        let split = Split { is_unchecked: is_forwards, ..Split::default() };
                        self.tell_candidate(entry, name, (&source, base), place, split)?;
                    }
                    Err(Wrong::Missing(missing))
                        if let Some(file) = in_folder.get(name)
                            && (part.alone && begins_as_archive(name, &bytes(part), &self.names.preferred)
                                || parts::is_split(name, &file)) =>
                    {
                        let why = if names.contains_key(&missing) { parts::OF_ANOTHER } else { "" };
                        let missing = [folder.as_slice(), &missing].concat();
                        let (shown, path) = (name::excerpt(&entry.path), name::excerpt(&missing));
                        let stands_alone = parts::stands_alone(name, &file);
                        let then = if stands_alone { "" } else { "; it stays a file" };
                        let what = format!("{shown}: a part of it is missing: {path}{why}{then}");
                        if told.insert(missing.clone()) {
                            self.note_at(entry.header.saturating_add(base), what)?;
                        }
                        if stands_alone && self.may_be_archive(name, place) {
                            let split = Split { is_unchecked: is_forwards, ..Split::default() };
                            self.tell_candidate(entry, name, (&source, base), place, split)?;
                        }
                    }
                    // It is none, shows under the name of another part, or is only called like one.
                    Ok(_) | Err(Wrong::Missing(_)) => {}
                    Err(Wrong::Problem(Problem::Read { error, .. })) if is_unreadable(&error) => {}
                    Err(Wrong::Problem(Problem::Read { error, .. })) => return Err(error),
                    Err(Wrong::Problem(problem)) => return Err(io::Error::other(problem)),
                }
            }
        }
        Ok(true)
    }

    /// What was kept of `names`, as the stream that they lay in.
    fn kept(names: &BTreeMap<Vec<u8>, Part>) -> SharedSource {
        let parts = names.values().filter_map(|part| Some((part.body().offset, part.kept.clone()?))).collect();
        Arc::new(Kept { parts, name: "what was kept of parts".to_owned() })
    }

    fn put_together_one(
        &self,
        found: Found<CandidateVolume<'_, '_>>,
        names: &BTreeMap<Vec<u8>, Part>,
        (source, base): (&SharedSource, u64),
        is_unchecked: bool,
        place: &MemberPlace,
    ) -> io::Result<()> {
        let Some(first) = names.get(&found.shown).and_then(Part::entry) else { return Ok(()) };
        let told = |what: String| {
            let shown = name::excerpt(&first.path);
            self.note_at(first.header.saturating_add(base), format!("{shown}: {what}; it stays a file"))
        };
        let volumes = match parts::are_volumes(&found.files) {
            // Of a part that cannot be read, nobody knows; what is in front of it may be right.
            Err(error) if is_unreadable(&error) => None,
            volumes => volumes?,
        };
        if !self.format_options.ignore_zeros
            && let Some(format) = volumes
        {
            return told(format!("its parts are volumes of {format}, each with headers of its own: -i joins them"));
        }
        let (mut pieces, mut starts, mut size, mut hole) = (Vec::new(), Vec::new(), 0_u64, 0_u64);
        let (mut is_cut, mut lacks) = (false, 0);
        for (name, _) in &found.files {
            let Some(part) = names.get(name) else { return Ok(()) };
            starts.push(size);
            let mut there = 0_u64;
            for piece in part.pieces() {
                there = there.saturating_add(piece.hole).saturating_add(piece.length);
                if is_cut {
                    return told(CUT.to_owned());
                }
                let mut piece = piece.clone();
                piece.hole = piece.hole.saturating_add(std::mem::take(&mut hole));
                let missing = piece.offset.saturating_add(piece.stored).saturating_sub(source.len());
                if missing > 0 && piece.coder.is_some() {
                    return told(CUT.to_owned());
                }
                if missing > 0 {
                    let length = piece.length;
                    // What is whole of the last one is shown, as of an archive that is no part.
                    piece.stored = piece.stored.saturating_sub(missing);
                    (piece.length, piece.decoded) = (piece.stored, piece.stored);
                    (is_cut, lacks) = (true, missing.min(length));
                }
                if piece.length > 0 {
                    pieces.push(piece);
                }
            }
            // A part may end in a hole.
            hole = hole.saturating_add(part.size().saturating_sub(there));
            size = match size.checked_add(part.size()).filter(|size| i64::try_from(*size).is_ok()) {
                Some(size) => size,
                None => return told("its parts are longer than a file can be".to_owned()),
            };
        }
        let count = found.files.len();
        size = size.saturating_sub(lacks);
        let body = Body { stored: size, size, offset: first.body.offset, pieces: Some(pieces), extents: None };
        let mut entry = Entry { body, ..first.clone() };
        if let Some(shown) = names.get(&found.shown) {
            let all = found.files.iter().filter_map(|(name, _)| Some(&names.get(name)?.readers));
            let readers = readers::of_all(&shown.readers, all);
            entry.mode = readers.restrict((entry.uid, entry.gid), entry.mode);
            if !readers.have_list() {
                entry.xattrs.retain(|(name, _)| name != access_list::NAME);
            }
        }
        // One part alone is simply what it is.
        let starts = if count > 1 { starts } else { Vec::new() };
        // Then a part that is not there is not why something is missing.
        let split = Split { starts, next: found.next.filter(|_| !is_cut), is_cut, is_unchecked };
        self.tell_candidate(&entry, &found.whole, (source, base), place, split)
    }

    /// Tells of the archive that `entry` is, which is called `name`, if it is one.
    pub(super) fn tell_candidate(
        &self,
        entry: &Entry,
        name: &[u8],
        (source, base): (&SharedSource, u64),
        place: &MemberPlace,
        split: Split,
    ) -> io::Result<()> {
        match self.candidate_of(entry, name, (source, base), place, split)? {
            Some(candidate) => self.receiver.candidate(candidate).map_err(io::Error::other),
            None => Ok(()),
        }
    }

    /// Remembers a file of an archive that is read forwards, at whose content its stream stands, as one that may be a
    /// part. What lies in a stream that goes by is `kept`.
    pub(super) fn gather(&self, entry: &Entry, name: &[u8], content: Option<Content>, kept: Option<SharedSource>) {
        let base = self.bytes.map_or(0, |(_, base)| base);
        let part = Part::new(in_pieces(entry, base, u64::MAX), name, content.is_some(), kept);
        self.parts.borrow_mut().add((&entry.path, name), part, &self.options.limits, self.amount);
    }
}

#[cfg(test)]
mod tests;
