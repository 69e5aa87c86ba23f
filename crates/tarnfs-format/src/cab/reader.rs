//! Reads cabinets, one behind the other: which folders go on in the next one, and an entry for each file.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, SharedSource, Source};

use super::header::{FILE, FOLDER, File, Folder, Header, LONGEST, LONGEST_NAME, Place};
use super::{BEHIND_PROGRAM, MAGIC, MOST_BEFORE, NAME, names};
use crate::guess::Names;
use crate::image::Teller;
use crate::name::{bounded_path, excerpt};
use crate::separators::{Separators, with_slashes};
use crate::time::dos_time;
use crate::window::Window;
use crate::{Body, Coder, Entry, Error, Event, Kind, Options, Piece, Probe, ReceiveRandom, Step, Unlisted, Volume};

/// The compression of folders that nothing is compressed in, and of the last one that is known.
const LAST_METHOD: u8 = 3;

/// Where in `bytes` a cabinet begins.
pub(super) fn find(bytes: &[u8]) -> Option<usize> {
    let starts = |bytes: &[u8]| bytes.starts_with(MAGIC) && Header::read(bytes).is_some_and(|header| header.major == 1);
    (0..bytes.len()).find(|&at| bytes.get(at) == Some(&b'M') && bytes.get(at..).is_some_and(starts))
}

/// Where the first cabinet of `source` begins.
fn start(source: &dyn Source) -> io::Result<Option<u64>> {
    let mut head = vec![0; 4096];
    let read = source.read_at(&mut head, 0)?;
    head.truncate(read);
    if head.starts_with(MAGIC) {
        return Ok(Some(0));
    }
    let probe = Probe::new(&head, source);
    let behind = crate::program::end(&probe).filter(|end| *end < MOST_BEFORE);
    let found = behind.and_then(|end| Some(end.saturating_add(find(&probe.at(end, BEHIND_PROGRAM))? as u64)));
    match probe.take_error() {
        Some((_, error)) => Err(error),
        None => Ok(found),
    }
}

/// What the cabinet says of those before and behind it.
pub(super) fn volume(source: &dyn Source) -> io::Result<Option<Volume>> {
    let Some(start) = start(source)? else { return Ok(None) };
    let mut bytes = vec![0; LONGEST];
    let read = source.read_at(&mut bytes, start)?;
    let Some(header) = Header::read(bytes.get(..read).unwrap_or_default()) else { return Ok(None) };
    let next = header.next.as_deref().and_then(names::plain);
    let is_one = header.previous.is_some() || header.next.is_some();
    // Its whole files are read without the others.
    let set = Some((header.set, header.place));
    Ok(is_one.then(|| Volume { is_followed: Some(header.next.is_some()), is_part: false, next, set }))
}

/// Where cabinets begin: the first one at `first`, each other one where a file does.
fn starts(first: u64, parts: &[u64]) -> Vec<u64> {
    std::iter::once(first).chain(parts.iter().copied().filter(|part| *part > first)).collect()
}

/// What is in the cabinets and in none of their files.
pub(super) fn unlisted(source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
    let Some(first) = start(source)? else { return Ok(Unlisted::unknown()) };
    let (mut end, mut has_reserved) = (first, false);
    for at in starts(first, source.part_starts()) {
        let mut bytes = vec![0; LONGEST];
        let read = source.read_at(&mut bytes, at)?;
        let header = Header::read(bytes.get(..read).unwrap_or_default());
        let Some(header) = header else { return Ok(Unlisted::unknown()) };
        has_reserved |= (header.reserved, header.of_folder, header.of_block) != (0, 0, 0);
        end = at.saturating_add(header.length);
    }
    let mut others = Vec::new();
    if has_reserved {
        others.push("what other programs have put into its reserved bytes, such as a signature".to_owned());
    }
    others.extend(crate::around(source, first..end, cancel)?);
    Ok(Unlisted::of(others))
}

/// A cabinet.
struct Cabinet {
    /// Where it begins, and ends.
    at: u64,
    end: u64,
    header: Header,
    /// The number of its first folder in all cabinets: the last one of the cabinet before, if that goes on here.
    first: usize,
    folders: usize,
}

/// A folder, over all cabinets.
#[derive(Default)]
struct Whole {
    /// Where its blocks are: the first one of each cabinet, their number, and the bytes that each has reserved.
    runs: Vec<(u64, u32, u8)>,
    method: u8,
    window: u8,
    /// Where the bytes of the last cabinet end.
    end: u64,
    /// Bytes that files want of it.
    decoded: u64,
    /// It goes on in a cabinet that is not there.
    is_cut: bool,
    coder: Option<Arc<Coder>>,
}

impl Whole {
    fn start(&self) -> u64 {
        self.runs.first().map_or(0, |(start, ..)| *start)
    }

    /// What undoes its compression.
    fn coder(&mut self) -> Arc<Coder> {
        let start = self.start();
        let (method, window, runs) = (self.method, self.window, &self.runs);
        let made = self.coder.get_or_insert_with(|| {
            let step = if method > LAST_METHOD {
                Step { codec: format!("a cabinet's compression {method}"), ..Step::default() }
            } else {
                let run = |(at, count, reserved): &(u64, u32, u8)| {
                    [&at.saturating_sub(start).to_le_bytes()[..], &count.to_le_bytes(), &[*reserved]].concat()
                };
                let properties = [&[method, window][..], &runs.iter().flat_map(run).collect::<Vec<_>>()];
                Step { codec: "cabinet".to_owned(), properties: properties.concat(), ..Step::default() }
            };
            Arc::new(Coder { steps: vec![step], is_behind_header: None })
        });
        Arc::clone(made)
    }
}

/// Hands what the cabinets hold to `receive`.
pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let first = start(&**source).map_err(|error| Error::Read { offset: 0, error })?;
    let none = || Error::NotThisFormat { format: NAME, reason: "no cabinet begins in it".to_owned() };
    let first = first.ok_or_else(none)?;
    let mut reader = Reader {
        window: Window::new(&**source, &options.cancel),
        cancel: &options.cancel,
        length: source.len(),
        tell: Teller::new(receive),
        most: options.limits.path,
        separators: Separators::new(options),
        names: Names::default(),
        folders: Vec::new(),
        has_hidden: false,
    };
    let cabinets = reader.cabinets(first, source.part_starts())?;
    reader.measure(&cabinets)?;
    for (number, cabinet) in cabinets.iter().enumerate() {
        reader.files(cabinet, number == 0)?;
    }
    Ok(())
}

struct Reader<'o, 'r> {
    window: Window<'o>,
    cancel: &'o Cancel,
    /// Bytes of all cabinets.
    length: u64,
    tell: Teller<'r>,
    most: usize,
    separators: Separators,
    /// Names that may say which encoding they have.
    names: Names,
    folders: Vec<Whole>,
    /// Whether it was told that files have attributes which nothing shows.
    has_hidden: bool,
}

impl Reader<'_, '_> {
    fn bytes(&mut self, at: u64, end: u64, length: usize) -> Result<&[u8], Error> {
        self.window.bytes(at, end, length).map_err(|error| Error::Read { offset: at, error })
    }

    /// All cabinets, with their folders: the first one begins at `first`, each other one where a file begins.
    fn cabinets(&mut self, first: u64, parts: &[u64]) -> Result<Vec<Cabinet>, Error> {
        let starts = starts(first, parts);
        let mut cabinets: Vec<Cabinet> = Vec::new();
        for (number, &at) in starts.iter().enumerate() {
            let limit = starts.get(number.saturating_add(1)).copied().unwrap_or(self.length);
            let header = Header::read(self.bytes(at, limit, LONGEST)?);
            let Some(header) = header else {
                if cabinets.is_empty() {
                    return Err(unreadable(format!("its header at byte {at} is damaged")));
                }
                self.tell.damage(at, "this is no cabinet: what goes on in it cannot be read".to_owned())?;
                break;
            };
            // Those of all sets are called the same, and nothing else tells that contents do not belong together.
            if let Some(Cabinet { header: last, .. }) = cabinets.last()
                && (header.set != last.set || Some(header.place) != last.place.checked_add(1))
            {
                let what = "this cabinet does not belong to the one before it: it is not read";
                self.tell.damage(at, what.to_owned())?;
                break;
            }
            if header.major != 1 {
                let reason = format!("version {} of the format is not known", header.major);
                return Err(Error::Unsupported { format: NAME, reason });
            }
            let end = at.saturating_add(header.length).min(limit);
            if end.saturating_sub(at) < header.length {
                let what = format!("the cabinet ends after {} of its {} bytes", end.saturating_sub(at), header.length);
                self.tell.damage(end, what)?;
            }
            let name = |name: &Option<Vec<u8>>| name.as_ref().map(|name| excerpt(name).to_string());
            if let Some(previous) = name(&header.previous).filter(|_| number == 0) {
                let what = format!("what begins in the cabinet before it, '{previous}', is not read");
                self.tell.damage(at, what)?;
            }
            if let Some(next) = name(&header.next).filter(|_| number.saturating_add(1) == starts.len()) {
                let what = format!("what goes on in the next cabinet, '{next}', cannot be read");
                self.tell.damage(at, what)?;
            }
            let cabinet = Cabinet { at, end, header, first: self.folders.len(), folders: 0 };
            cabinets.push(self.folders(cabinet, number > 0)?);
        }
        Ok(cabinets)
    }

    /// Reads the folders of a cabinet. The first one goes on from the cabinet before it, if a file does.
    fn folders(&mut self, mut cabinet: Cabinet, is_behind: bool) -> Result<Cabinet, Error> {
        let (at, end) = (cabinet.at, cabinet.end);
        let goes_on = is_behind && !self.folders.is_empty() && self.has(&cabinet, Place::FromPrevious)?;
        if goes_on {
            cabinet.first = cabinet.first.saturating_sub(1);
        }
        let size = FOLDER.saturating_add(cabinet.header.of_folder.into());
        let mut found = Vec::with_capacity(cabinet.header.folders.into());
        for number in 0..u64::from(cabinet.header.folders) {
            let place = number.saturating_mul(size as u64).saturating_add(cabinet.header.end).saturating_add(at);
            let Some(folder) = Folder::read(self.bytes(place, end, FOLDER)?) else {
                self.tell.damage(place, "the cabinet ends in its table of folders".to_owned())?;
                break;
            };
            found.push(folder);
        }
        // A folder ends where another one begins.
        let mut starts: Vec<u64> = found.iter().map(|folder| at.saturating_add(folder.at)).chain([end]).collect();
        starts.sort_unstable();
        for (number, folder) in found.iter().enumerate() {
            let start = at.saturating_add(folder.at).min(end);
            let behind = starts.partition_point(|other| *other <= start);
            let until = starts.get(behind).copied().unwrap_or(end).min(end);
            let run = (start, u32::from(folder.blocks), cabinet.header.of_block);
            match self.folders.last_mut().filter(|_| number == 0 && goes_on) {
                Some(whole) => {
                    whole.runs.push(run);
                    (whole.end, whole.is_cut) = (until, false);
                }
                None => self.folders.push(Whole {
                    runs: vec![run],
                    method: folder.method,
                    window: folder.window,
                    end: until,
                    ..Whole::default()
                }),
            }
        }
        cabinet.folders = found.len();
        if let Some(last) = self.folders.last_mut() {
            last.is_cut = cabinet.header.next.is_some();
        }
        Ok(cabinet)
    }

    /// True if a file of the cabinet is in such a place.
    fn has(&mut self, cabinet: &Cabinet, place: Place) -> Result<bool, Error> {
        let mut at = cabinet.at.saturating_add(cabinet.header.files_at);
        for _ in 0..cabinet.header.files {
            let Some(file) = File::read(self.bytes(at, cabinet.end, FILE.saturating_add(LONGEST_NAME))?) else { break };
            if file.place == place {
                return Ok(true);
            }
            at = at.saturating_add(file.length());
        }
        Ok(false)
    }

    /// The number of the folder that a file is in. Whole folders of the cabinet count from its first one.
    fn folder_of(&self, cabinet: &Cabinet, place: Place) -> Option<usize> {
        let number = match place {
            Place::Folder(number) => usize::from(number),
            Place::FromPrevious => 0,
            Place::ToNext => cabinet.folders.checked_sub(1)?,
        };
        let number = (number < cabinet.folders).then(|| cabinet.first.saturating_add(number))?;
        (number < self.folders.len()).then_some(number)
    }

    /// Learns how many bytes of each folder files want, and what they are called.
    fn measure(&mut self, cabinets: &[Cabinet]) -> Result<(), Error> {
        for cabinet in cabinets {
            let mut at = cabinet.at.saturating_add(cabinet.header.files_at);
            for _ in 0..cabinet.header.files {
                let Some(file) = File::read(self.bytes(at, cabinet.end, FILE.saturating_add(LONGEST_NAME))?) else {
                    break;
                };
                self.names.add(&file.name, true);
                let whole = self.folder_of(cabinet, file.place).and_then(|number| self.folders.get_mut(number));
                if let Some(whole) = whole {
                    whole.decoded = whole.decoded.max(file.skip.saturating_add(file.size));
                }
                at = at.saturating_add(file.length());
            }
        }
        Ok(())
    }

    fn files(&mut self, cabinet: &Cabinet, is_first: bool) -> Result<(), Error> {
        let mut at = cabinet.at.saturating_add(cabinet.header.files_at);
        for number in 0..cabinet.header.files {
            self.cancel.check().map_err(Error::Receiver)?;
            let Some(file) = File::read(self.bytes(at, cabinet.end, FILE.saturating_add(LONGEST_NAME))?) else {
                let left = cabinet.header.files.saturating_sub(number);
                return self.tell.damage(at, format!("no file is told of here: {left} files are missing"));
            };
            let header = at;
            at = at.saturating_add(file.length());
            // The cabinet in which it begins tells of it.
            if file.place == Place::FromPrevious {
                if is_first {
                    let what = format!("'{}' begins in a cabinet that is not there", excerpt(&file.name));
                    self.tell.damage(header, what)?;
                }
                continue;
            }
            self.file(cabinet, &file, header)?;
        }
        Ok(())
    }

    fn file(&mut self, cabinet: &Cabinet, file: &File, header: u64) -> Result<(), Error> {
        let names = &mut self.names;
        let encoding = self.separators.encoding_of(&file.name, |gathered| {
            *gathered = std::mem::take(names);
            Ok(())
        })?;
        let path = with_slashes(file.name.clone(), encoding);
        let mut body = Body { offset: header, size: file.size, ..Body::default() };
        if file.size > 0 {
            let whole = self.folder_of(cabinet, file.place).and_then(|number| self.folders.get_mut(number));
            let piece = match whole {
                None => Err("is in a folder that is not there"),
                Some(whole) if whole.is_cut && file.place == Place::ToNext => {
                    Err("goes on in a cabinet that is not there")
                }
                Some(whole) => Ok(Piece {
                    length: file.size,
                    offset: whole.start(),
                    stored: whole.end.saturating_sub(whole.start()),
                    coder: Some(whole.coder()),
                    decoded: whole.decoded,
                    skip: file.skip,
                    ..Piece::default()
                }),
            };
            body.pieces = Some(vec![match piece {
                Ok(piece) => piece,
                Err(what) => {
                    self.tell.damage(header, format!("'{}' {what}", excerpt(&path)))?;
                    Piece::unreadable(header, file.size)
                }
            }]);
        }
        if file.is_hidden() && !self.has_hidden {
            self.has_hidden = true;
            self.tell.event(Event::Unlisted("attributes of DOS that are not shown".to_owned()))?;
        }
        self.tell.entry(Entry {
            path: bounded_path(path, self.most),
            kind: Kind::File,
            mode: file.mode(),
            mtime: dos_time(file.date, file.time),
            header,
            body,
            ..Entry::default()
        })
    }
}

fn unreadable(reason: String) -> Error {
    Error::Unreadable { format: NAME, reason }
}
