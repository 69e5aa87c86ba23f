//! The table of files (MFT): a record for each file, and further ones for what does not fit into that.

use std::collections::BTreeSet;
use std::io;

use super::boot::Boot;
use super::record::{self, Attribute, Form, Record, Reference};
use super::stream::{Extent, Stream};
use crate::Time;
use crate::clusters::name_of;
use crate::content::Content;
use crate::image::{Budget, damaged, is_damage};
use crate::little::{u32_at, u64_at};
use crate::reparse::units;
use crate::time::file_time;
use crate::window::Window;

/// Bytes of the list of a file's attributes, and of all attributes of a file, at most.
const LONGEST_LIST: u64 = 1 << 20;
const MOST_OF_FILE: usize = 4 << 20;

/// Bytes of an entry of that list before the name.
const LISTED: usize = 26;

/// What an attribute counts for beside the bytes of its record: any number of records may be the same bytes of the
/// image, and hundreds of attributes have place in one.
const OF_ATTRIBUTE: u64 = 64;

/// How often the table is opened again with what it tells of itself.
const MOST_ROUNDS: usize = 16;

/// A name that DOS has for a file beside another one.
const OF_DOS: u8 = 2;

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    content: Content,
    record: u64,
    /// The first record, which tells where the others lie: what the table has there may be damaged.
    first: Vec<u8>,
}

/// What a file is called, and in which folder.
#[derive(Debug, Clone)]
pub(super) struct Name {
    pub(super) folder: Reference,
    pub(super) text: Vec<u8>,
    pub(super) is_of_dos: bool,
}

/// What is told of a file beside its content.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    /// 100 ns since 1601.
    pub(super) created: u64,
    pub(super) modified: Option<Time>,
    pub(super) changed: Option<Time>,
    pub(super) accessed: Option<Time>,
    pub(super) attributes: u32,
}

/// A file or folder, with what all its records say.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) sequence: u16,
    pub(super) is_folder: bool,
    pub(super) facts: Facts,
    pub(super) names: Vec<Name>,
    pub(super) data: Option<Stream>,
    /// Streams with a name.
    pub(super) streams: Vec<(Vec<u16>, Stream)>,
    /// What Windows keeps for a driver, extended attributes, and of the volume: its name and state.
    pub(super) reparse: Option<Stream>,
    pub(super) extended: Option<Stream>,
    pub(super) label: Option<Vec<u8>>,
    pub(super) state: u16,
    /// Why some of it may be missing.
    pub(super) wrong: Option<String>,
}

/// A part of an attribute that lies in clusters.
struct Part {
    kind: u32,
    name: Vec<u16>,
    is_compressed: bool,
    is_encrypted: bool,
    first: u64,
    runs: Vec<u8>,
    unit: u8,
    size: u64,
    written: u64,
}

impl Table {
    /// Opens the table of an image of `there` bytes. The second value says why the copy of its first record is used.
    pub(super) fn open(
        boot: &Boot,
        there: u64,
        window: &mut Window<'_>,
        budget: &mut Budget,
    ) -> io::Result<(Self, Option<String>)> {
        let mut why = None;
        for at in [boot.table, boot.mirror] {
            let first = window.bytes(at, u64::MAX, boot.record as usize).map(<[u8]>::to_vec);
            let mut table = Self { content: Content::new(boot.record), record: boot.record, first: Vec::new() };
            let opened = first.and_then(|first| {
                table.first = first;
                table.grow(boot, there, window, budget)
            });
            match opened {
                Ok(()) => return Ok((table, why)),
                Err(error) if is_damage(&error) => why = why.or(Some(error.to_string())),
                Err(error) => return Err(error),
            }
        }
        Err(damaged(why.unwrap_or_default()))
    }

    /// Takes up what its own records say of it: what these are may only be known behind the first ones.
    fn grow(&mut self, boot: &Boot, there: u64, window: &mut Window<'_>, budget: &mut Budget) -> io::Result<()> {
        let mut clusters = 0;
        for _ in 0..MOST_ROUNDS {
            let first = self.read(0, window, budget)?.ok_or_else(|| damaged("its first record is not in use"))?;
            let file = self.file(0, &first, boot, there, window, budget)?;
            let stream = file.data.ok_or_else(|| damaged("its first record says nothing of it"))?;
            if stream.clusters() <= clusters {
                break;
            }
            clusters = stream.clusters();
            self.content = stream.content(boot, there, budget);
        }
        Ok(())
    }

    /// Bytes of a record.
    pub(super) fn record(&self) -> u64 {
        self.record
    }

    /// How many records there are.
    pub(super) fn count(&self) -> u64 {
        self.content.size.checked_div(self.record).unwrap_or(0)
    }

    /// Why some of it is not there.
    pub(super) fn missing(&self) -> Option<&str> {
        self.content.missing.as_deref()
    }

    /// The number of the first record from `number` on that is stored somewhere.
    pub(super) fn stored(&self, number: u64) -> u64 {
        let at = number.saturating_mul(self.record);
        let passed = match self.content.at(at) {
            Err(hole) => hole,
            Ok((piece, inside)) if piece.coder.is_some() => piece.length.saturating_sub(inside),
            Ok(_) => 0,
        };
        number.saturating_add(passed.checked_div(self.record).unwrap_or(0))
    }

    /// The byte of the image at which a record begins.
    pub(super) fn byte(&self, number: u64) -> u64 {
        let found = self.content.at(number.saturating_mul(self.record));
        found.map_or(0, |(piece, inside)| piece.offset.saturating_add(inside))
    }

    /// Reads a record; `None` if it is not in use.
    pub(super) fn read(&self, number: u64, window: &mut Window<'_>, budget: &mut Budget) -> io::Result<Option<Record>> {
        budget.take_bytes(self.record)?;
        if number >= self.count() {
            return Err(damaged("a record lies behind the end of the table of files"));
        }
        let mut bytes = Vec::new();
        if number == 0 {
            bytes.clone_from(&self.first);
        } else {
            self.content.read(window, number.saturating_mul(self.record), self.record, &mut bytes)?;
        }
        Record::read(bytes).map_err(damaged)
    }

    /// Where in the image a value lies that a record holds.
    fn places(&self, number: u64, record: &Record, at: usize, length: usize) -> Vec<(u64, u64)> {
        let mut places = Vec::new();
        for (at, length) in record.places(at, length) {
            let (mut at, mut left) = (number.saturating_mul(self.record).saturating_add(at as u64), length as u64);
            // A record may lie in several clusters.
            while left > 0
                && let Ok((piece, inside)) = self.content.at(at)
            {
                let length = left.min(piece.length.saturating_sub(inside));
                places.push((piece.offset.saturating_add(inside), length));
                (at, left) = (at.saturating_add(length), left.saturating_sub(length));
            }
        }
        places
    }

    /// What `record`, which is the first one of a file, and others say of it.
    pub(super) fn file(
        &self,
        number: u64,
        record: &Record,
        boot: &Boot,
        there: u64,
        window: &mut Window<'_>,
        budget: &mut Budget,
    ) -> io::Result<File> {
        let mut file = File { sequence: record.sequence, is_folder: record.is_folder, ..File::default() };
        let (mut parts, mut room) = (Vec::new(), MOST_OF_FILE);
        let list = self.gather(number, record, &mut file, &mut parts, (&mut room, &mut *budget));
        if let Some(list) = list {
            let others = others(&list, number, boot, there, window, budget);
            let others = note(&mut file, others)?.unwrap_or_default();
            for other in others {
                let read = self.read(other, window, budget).and_then(|found| {
                    let found = found.filter(|found| found.base.is_some_and(|base| base.number == number));
                    found.ok_or_else(|| damaged("a record of it belongs to another file"))
                });
                if let Some(found) = note(&mut file, read)? {
                    self.gather(other, &found, &mut file, &mut parts, (&mut room, &mut *budget));
                }
            }
            // In which records the parts of one lie says nothing of their order.
            parts.sort_by(|one, other| (one.kind, &one.name, one.first).cmp(&(other.kind, &other.name, other.first)));
        }
        for part in parts {
            file.add(part);
        }
        Ok(file)
    }

    /// Adds what one record says. Returns the list of attributes that are in others.
    fn gather(
        &self,
        number: u64,
        record: &Record,
        file: &mut File,
        parts: &mut Vec<Part>,
        (room, budget): (&mut usize, &mut Budget),
    ) -> Option<Stream> {
        let (mut list, before) = (None, parts.len());
        for attribute in record.attributes() {
            let attribute = match attribute {
                Ok(attribute) => attribute,
                Err(what) => {
                    file.wrong.get_or_insert_with(|| what.to_owned());
                    break;
                }
            };
            if let Err(error) = budget.take_bytes(OF_ATTRIBUTE) {
                file.wrong.get_or_insert_with(|| error.to_string());
                break;
            }
            let Attribute { kind, name, is_compressed, is_encrypted, form } = attribute;
            let weight = size_of::<Part>().saturating_add(match &form {
                Form::Inside { value, .. } => value.len(),
                Form::Runs { runs, .. } => runs.len(),
            });
            let Some(left) = room.checked_sub(weight) else {
                file.wrong.get_or_insert_with(|| "it has too many attributes".to_owned());
                break;
            };
            *room = left;
            match form {
                Form::Inside { at, value } => {
                    let stream = || Stream::inside(value, self.places(number, record, at, value.len()), is_encrypted);
                    match kind {
                        record::LIST => list = Some(stream()),
                        record::DATA | record::REPARSE | record::EXTENDED => file.put(kind, name, stream()),
                        _ => file.tell(kind, value),
                    }
                }
                Form::Runs { first, runs, unit, size, written } => {
                    let runs = runs.to_vec();
                    parts.push(Part { kind, name, is_compressed, is_encrypted, first, runs, unit, size, written });
                }
            }
        }
        // A list in clusters tells of all others, so it is in one part. Those of other records were looked at.
        let of_list = parts.iter().skip(before).position(|part| part.kind == record::LIST);
        let of_list = of_list.map(|at| parts.swap_remove(before.saturating_add(at)));
        list.or_else(|| of_list.map(|part| part.begin()))
    }
}

impl Part {
    fn extent(&self) -> Extent<'_> {
        let Self { first, unit, size, written, .. } = *self;
        Extent { first, runs: &self.runs, unit, size, written }
    }

    fn begin(&self) -> Stream {
        Stream::begin(&self.extent(), self.is_compressed, self.is_encrypted)
    }
}

impl File {
    /// Takes up a value that the record has.
    fn tell(&mut self, kind: u32, value: &[u8]) {
        match kind {
            record::STANDARD => {
                let time = |at: usize| u64_at(value, at).and_then(file_time);
                self.facts = Facts {
                    created: u64_at(value, 0).unwrap_or_default(),
                    modified: time(8),
                    changed: time(16),
                    accessed: time(24),
                    attributes: u32_at(value, 32).unwrap_or_default(),
                };
            }
            record::NAME => {
                let found = value.get(64).zip(value.get(65)).and_then(|(length, space)| {
                    let folder = Reference::read(value, 0)?;
                    let name = name_of(units(value, 66, u16::from(*length).checked_mul(2)?)?.into_iter());
                    Some(Name { folder, text: name.unwrap_or_default(), is_of_dos: *space == OF_DOS })
                });
                match found {
                    Some(name) => self.names.push(name),
                    None => {
                        self.wrong.get_or_insert_with(|| "a name of it is damaged".to_owned());
                    }
                }
            }
            record::LABEL => {
                self.label =
                    u16::try_from(value.len()).ok().and_then(|length| name_of(units(value, 0, length)?.into_iter()));
            }
            record::STATE => self.state = crate::little::u16_at(value, 10).unwrap_or_default(),
            _ => {}
        }
    }

    /// Takes up the first part of a stream, or all of it.
    fn put(&mut self, kind: u32, name: Vec<u16>, stream: Stream) {
        match kind {
            record::DATA if name.is_empty() => self.data = Some(stream),
            record::DATA => self.streams.push((name, stream)),
            record::REPARSE => self.reparse = Some(stream),
            record::EXTENDED => self.extended = Some(stream),
            _ => {}
        }
    }

    /// Takes up a part of an attribute in clusters; those of one come one behind the other.
    fn add(&mut self, part: Part) {
        if part.first == 0 {
            let stream = part.begin();
            return self.put(part.kind, part.name, stream);
        }
        let known = match part.kind {
            record::DATA if part.name.is_empty() => self.data.as_mut(),
            // Its parts come one behind the other. To look for it among all streams, for each part, took minutes where
            // the first parts are missing.
            record::DATA => self.streams.last_mut().filter(|(name, _)| *name == part.name).map(|(_, stream)| stream),
            record::REPARSE => self.reparse.as_mut(),
            record::EXTENDED => self.extended.as_mut(),
            _ => return,
        };
        match known {
            Some(stream) => stream.go_on(&part.extent()),
            None => {
                self.wrong.get_or_insert_with(|| "the first part of what is in it is not there".to_owned());
            }
        }
    }
}

/// What was read, or nothing where that is damaged: the file has the reason then.
fn note<T>(file: &mut File, read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_damage(&error) => {
            file.wrong.get_or_insert_with(|| error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The numbers of the other records that the list of attributes names.
fn others(
    list: &Stream,
    number: u64,
    boot: &Boot,
    there: u64,
    window: &mut Window<'_>,
    budget: &mut Budget,
) -> io::Result<BTreeSet<u64>> {
    if list.size > LONGEST_LIST {
        return Err(damaged("the list of its attributes is too long"));
    }
    budget.take_bytes(list.size)?;
    let mut bytes = Vec::new();
    list.content(boot, there, budget).read(window, 0, list.size, &mut bytes)?;
    let (mut found, mut at) = (BTreeSet::new(), 0_usize);
    while let Some(entry) = bytes.get(at..at.saturating_add(LISTED)) {
        let length = crate::little::u16_at(entry, 4).map_or(0, usize::from);
        let reference = Reference::read(entry, 16);
        let Some(reference) = reference.filter(|_| length >= LISTED) else {
            return Err(damaged("the list of its attributes is damaged"));
        };
        if reference.number != number {
            found.insert(reference.number);
        }
        at = at.saturating_add(length);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ntfs::record::tests::{inside, record as stored_record};

    fn part(name: &str, first: u64) -> Part {
        Part {
            kind: record::DATA,
            name: name.encode_utf16().collect(),
            is_compressed: false,
            is_encrypted: false,
            first,
            // One cluster, the ninth.
            runs: vec![0x11, 1, 9, 0],
            unit: 0,
            size: 8192,
            written: 8192,
        }
    }

    /// Each part is compared with the stream that was begun last, and with no other.
    #[test]
    fn a_part_goes_on_with_the_stream_before_it_only() {
        let clusters = |file: &File| file.streams.iter().map(|(_, stream)| stream.clusters()).collect::<Vec<_>>();
        let mut file = File::default();
        for (name, first) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
            file.add(part(name, first));
        }
        assert_eq!((clusters(&file), &file.wrong), (vec![2, 2], &None));
        file.add(part("a", 2));
        assert_eq!(clusters(&file), [2, 2]);
        assert!(file.wrong.unwrap().contains("first part"));
    }

    /// The same record may be that of any number of files.
    #[test]
    fn attributes_are_paid_for() {
        let values = vec![inside(0x80, b"abcd"); 25];
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let found = Record::read(stored_record(&values)).unwrap().unwrap();
        let table = Table { content: Content::new(1024), record: 1024, first: Vec::new() };
        let read = |budget: &mut Budget| {
            let (mut file, mut parts, mut room) = (File::default(), Vec::new(), MOST_OF_FILE);
            table.gather(1, &found, &mut file, &mut parts, (&mut room, budget));
            file.wrong
        };
        let mut budget = Budget::new(0, 1);
        let before = budget.bytes;
        assert_eq!(read(&mut budget), None);
        assert_eq!(before - budget.bytes, 25 * OF_ATTRIBUTE);
        budget.bytes = 10 * OF_ATTRIBUTE + 1;
        assert!(read(&mut budget).unwrap().contains("too often"));
        assert_eq!(budget.bytes, 1);
    }
}
