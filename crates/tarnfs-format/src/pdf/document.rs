//! A document: its objects, found where its tables say.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use tarnfs_source::{MemorySource, SharedSource, Slice};

use super::crypt::{Encryption, What};
use super::filters::{self, Tail};
use super::object::{Dict, Object, Parser};
use super::places::{Place, Places};
use crate::image::{Budget, Quota, damaged, data_of, is_damage};
use crate::window::Window;
use crate::{Options, Step};

/// Objects of a document; that many the standard allows.
const MOST_OBJECTS: usize = 8_388_607;

/// Bytes of an object, without what is in its stream.
const LONGEST_OBJECT: usize = 8 << 20;

/// Bytes that are looked at first; most objects are short.
const SHORT: usize = 1 << 10;

/// References to references.
const MOST_STEPS: usize = 32;

/// Bytes of a stream that is read whole: of objects, of a table, of what a page draws.
const LONGEST_STREAM: usize = 64 << 20;

/// Streams of objects that are kept, and bytes that they have together, also with a stream that is decoded.
const MOST_STREAMS: usize = 8;
const MOST_BYTES: usize = 64 << 20;

/// Bytes of a stream that is read in parts, and of one that is read with what lies around it.
const PART: usize = 64 << 10;

/// Bytes of a string that is decrypted.
const LONGEST_STRING: usize = 64 << 10;

/// Steps that are taken for a document, each of some nanoseconds to some tens: it may ask for the same thing any
/// number of times. A small one may take few: an archive may have any number of these, and blanks in them cost nothing
/// to pack. A plot that draws a circle of 420 bytes again and again takes some 110 for each, of 8 bytes that are
/// stored.
const STEPS: Quota = Quota { most: 512 << 20, least: 8 << 20, of_small: STEPS_FOR_EACH_BYTE };
/// For each byte of a long one, if that is more. A plot is drawn for its text, and again to look for images.
const STEPS_FOR_EACH_BYTE: u64 = 32;

/// Steps that a document with `data` bytes that are no holes may take, which is one of `shares`.
pub(super) fn steps(data: u64, shares: u64) -> u64 {
    STEPS.of(data, shares).max(data.saturating_mul(STEPS_FOR_EACH_BYTE))
}

/// Steps that are taken for each stream that is decoded, beside one for each byte that is stored of it. What its
/// filters may do before anything comes of them takes about as long.
const WORK_OF_STREAM: u64 = 8 << 10;

/// Bytes that deflate makes of one. So many that come of a stream are paid for by each that is stored of it.
const PACKED: u64 = 1032;

/// Sixteenths of a step that decoding may take for what comes beyond that ([`filters::cost`]). Filters in each other
/// make any number of bytes of a few, and an archive may have any number of such documents, which may be blanks mostly.
const DECODING: Quota = Quota { most: 8 << 30, least: 16 << 20, of_small: 4 << 10 };

/// Bytes that are read and decoded, beside some for each one that there is. All of a stream may be held.
const BYTES: Quota = Quota { most: 256 << 20, least: 16 << 20, of_small: 1 << 10 };
const OF_EACH_BYTE: u64 = 4;

/// What may be read of a document with `data` bytes that are no holes, which is one of `shares`.
pub(super) fn budget(data: u64, shares: u64) -> Budget {
    let bytes = BYTES.of(data, shares).saturating_add(data.saturating_mul(OF_EACH_BYTE));
    Budget { bytes, ..Budget::new(data, shares) }
}

/// Steps that decrypting a string takes.
const WORK_OF_STRING: u64 = 256;

/// Objects that are kept at once while pages, forms and lists in each other are read: of about 100 bytes each.
const MOST_HELD: usize = 1 << 20;

/// Streams of objects that cannot be read and are told.
const MOST_LOST: usize = 64;

/// Objects in a stream of them.
const MOST_IN_STREAM: usize = 1 << 20;

/// Objects that the smallest document may have. Others may have one for each of their bytes.
const LEAST_OBJECTS: u64 = 64 << 10;

/// What is read of a dictionary that says how a document is encrypted, and objects in one of these.
const OF_ENCRYPTION: [&str; 14] =
    ["Filter", "V", "R", "Length", "EncryptMetadata", "P", "CF", "StmF", "StrF", "EFF", "O", "U", "OE", "UE"];
const MOST_OF_ENCRYPTION: usize = 1 << 12;

/// Streams in which the length of others is found. Each may be in another one.
const MOST_NESTED: u32 = 8;

/// An object, with what it is called and where its stream begins.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) object: Object,
    pub(super) id: (u32, u16),
    stream: Option<u64>,
}

/// A stream.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) dict: Dict,
    pub(super) id: (u32, u16),
    pub(super) offset: u64,
    pub(super) length: u64,
    /// The document ends in it.
    pub(super) is_cut: bool,
}

/// A stream that is decoded.
#[derive(Debug)]
struct Decoding {
    /// Sixteenths of a step that each byte takes which comes of it.
    cost: u64,
    /// Those for which it has paid.
    paid: u64,
}

/// Objects that were in a stream.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) bytes: Vec<u8>,
    /// Number and place of each.
    pub(super) places: Vec<(u32, u32)>,
}

impl Objects {
    /// Bytes of memory that they take.
    fn weight(&self) -> usize {
        self.bytes.len().saturating_add(self.places.len().saturating_mul(size_of::<(u32, u32)>()))
    }
}

pub(super) struct Document<'s> {
    source: &'s SharedSource,
    pub(super) options: &'s Options,
    window: Window<'s>,
    /// Where it begins: places count from there.
    pub(super) start: u64,
    pub(super) places: Places,
    /// The number of the table that is read.
    pub(super) table: u32,
    pub(super) trailer: Dict,
    pub(super) encryption: Option<Encryption>,
    pub(super) budget: Budget,
    /// Files that may still be told, and bytes of their paths. Any number of pages may show one image under any number
    /// of names: a document that has little may tell little.
    told: Budget,
    streams: VecDeque<(u32, Arc<Objects>)>,
    /// Streams of objects that cannot be read, with their numbers, where they lie, and why.
    pub(super) lost: Vec<(u32, u64, String)>,
    nested: u32,
    most_objects: usize,
    /// Steps that may still be taken.
    pub(super) work: u64,
    /// Sixteenths of steps that decoding may still take, beside those that a stream pays for.
    decoding: u64,
    /// Bytes of streams that may still pay: any number of them may be stored in the same ones.
    paying: u64,
    /// Objects that who reads it keeps, by what it has told with [`Document::hold`].
    pub(super) held: usize,
}

impl<'s> Document<'s> {
    /// The document that begins at byte `start` of `source`.
    pub(super) fn open(source: &'s SharedSource, options: &'s Options, start: u64) -> io::Result<Self> {
        // Holes are nothing that may be read.
        let data = data_of(&**source);
        let most_objects = usize::try_from(data.saturating_add(LEAST_OBJECTS)).unwrap_or(MOST_OBJECTS);
        let mut document = Self {
            source,
            options,
            window: Window::growing(&**source).until(&options.cancel),
            start,
            places: Places::default(),
            table: 0,
            trailer: Dict::default(),
            encryption: None,
            budget: budget(data, options.shares),
            told: Budget::of_image(data, options.shares),
            streams: VecDeque::new(),
            lost: Vec::new(),
            nested: 0,
            most_objects: most_objects.min(MOST_OBJECTS),
            work: steps(data, options.shares),
            decoding: DECODING.of(data, options.shares),
            paying: data,
            held: 0,
        };
        document.find_objects()?;
        document.set_encryption()?;
        if document.places.len() == 0 {
            return Err(damaged("there is no object in it"));
        }
        Ok(document)
    }

    /// Finds out how it is encrypted. What is wrong with the password is an error.
    pub(super) fn set_encryption(&mut self) -> io::Result<()> {
        let said = self.trailer.get("Encrypt").cloned().unwrap_or(Object::Null);
        if said == Object::Null || self.encryption.is_some() {
            return Ok(());
        }
        let dict = self.resolve(&said)?;
        let all = dict.dict().cloned().unwrap_or_default();
        let mut dict = Vec::new();
        for name in OF_ENCRYPTION {
            if let Some(value) = all.get(name) {
                let value = self.resolve(value)?;
                dict.push((name.as_bytes().to_vec(), value));
            }
        }
        dict.retain(|(_, value)| value.parts() <= MOST_OF_ENCRYPTION);
        let dict = Dict(Arc::new(dict));
        let id = self.trailer.get("ID").cloned().unwrap_or(Object::Null);
        let id = self.resolve(&id)?;
        let id = match id.array().and_then(<[Object]>::first) {
            Some(first) => self.resolve(first)?.string().unwrap_or_default().to_vec(),
            None => Vec::new(),
        };
        let encryption = Encryption::of(&dict, &id);
        let what = "it is encrypted in a way that is not known";
        let encryption = encryption.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, what))?;
        // All that was read before was not decrypted.
        self.streams.clear();
        self.lost.clear();
        let kinds = [What::Stream, What::String, What::File];
        let stages = kinds.into_iter().find_map(|what| encryption.stage(what, (0, 0)));
        if let Some(stage) = stages {
            // What is decrypted does not matter: the password is compared before.
            let nothing = Arc::new(MemorySource::new(vec![0; 32], "nothing"));
            self.decode(&stage, nothing, 64)?;
        }
        self.encryption = Some(encryption);
        Ok(())
    }

    pub(super) fn length(&self) -> u64 {
        self.source.len()
    }

    pub(super) fn cancel(&self) -> io::Result<()> {
        self.options.cancel.check()
    }

    /// Takes so many steps of those that may be taken. Each loop does whose length the document says.
    pub(super) fn spend(&mut self, steps: u64) -> io::Result<()> {
        self.cancel()?;
        let left = self.work.checked_sub(steps);
        // Once they do not suffice, there are none: whoever goes on ends here, too.
        self.work = left.unwrap_or(0);
        left.map(drop).ok_or_else(|| damaged("it takes too much work to read it"))
    }

    /// True if nothing more can be read of it.
    pub(super) fn is_spent(&self) -> bool {
        let decodes_nothing = self.decoding == 0 && self.paying == 0;
        self.work == 0 || self.budget.bytes == 0 || self.told.bytes == 0 || decodes_nothing
    }

    pub(super) fn take_bytes(&mut self, count: usize) -> io::Result<()> {
        let taken = self.budget.take_bytes(count as u64);
        if taken.is_err() {
            self.budget.bytes = 0;
        }
        taken
    }

    /// What decodes a stream of which so many bytes are stored.
    fn begin(&mut self, stages: &[u8], stored: u64) -> io::Result<Decoding> {
        self.spend(stored)?;
        let cost = filters::cost(stages);
        // What is copied takes nothing.
        let paying = if cost == 0 { 0 } else { self.paying.min(stored) };
        self.paying = self.paying.saturating_sub(paying);
        Ok(Decoding { cost, paid: paying.saturating_mul(PACKED).saturating_mul(cost) })
    }

    /// So many bytes have come of a stream.
    fn pay(&mut self, decoding: &mut Decoding, count: usize) -> io::Result<()> {
        self.cancel()?;
        let taken = decoding.cost.saturating_mul(count as u64);
        let beyond = taken.saturating_sub(decoding.paid);
        decoding.paid = decoding.paid.saturating_sub(taken);
        let left = self.decoding.checked_sub(beyond);
        self.decoding = left.unwrap_or(0);
        left.map(drop).ok_or_else(|| damaged("far more comes of its streams than is stored of them"))
    }

    /// A file with that path is told. What is not paid for is left out, and so is all behind it.
    pub(super) fn take_file(&mut self, path: &[u8]) -> io::Result<()> {
        let taken = self.told.take_parts(1).and_then(|()| self.told.take_bytes(path.len() as u64));
        if taken.is_err() {
            self.told.bytes = 0;
        }
        taken.map_err(|_| damaged("there are more files in it than it has room for"))
    }

    /// So many objects are kept until who reads it sets `held` back.
    pub(super) fn hold(&mut self, parts: usize) -> io::Result<()> {
        self.held = self.held.saturating_add(parts);
        if self.held > MOST_HELD {
            return Err(damaged("too much of it would have to be kept in memory"));
        }
        Ok(())
    }

    /// Up to `length` bytes from byte `at` on.
    pub(super) fn bytes(&mut self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let bytes = self.window.bytes(at, u64::MAX, length)?.to_vec();
        self.take_bytes(bytes.len())?;
        Ok(bytes)
    }

    /// Forgets what tables have said.
    pub(super) fn forget(&mut self) {
        self.places.clear();
        self.streams.clear();
        self.lost.clear();
        self.trailer = Dict::default();
        self.encryption = None;
    }

    /// An object is there, unless a later table has told of it. What a table calls free, the stream that belongs to it
    /// may have: it hides that from old programs (section 7.5.8.4).
    pub(super) fn place(&mut self, number: u64, place: Place) -> io::Result<()> {
        let Ok(number) = u32::try_from(number) else { return Ok(()) };
        match self.places.get(number) {
            Some(known) if known != Place::Free(self.table) => Ok(()),
            _ => self.replace(number, place),
        }
    }

    /// An object is there, whatever was said before.
    pub(super) fn replace(&mut self, number: u32, place: Place) -> io::Result<()> {
        let is_full = self.places.len() >= self.most_objects;
        match self.places.needed(number) {
            _ if is_full && self.places.get(number).is_none() => return Ok(()),
            None => return Ok(()),
            Some(0) => {}
            // They are kept as long as the document is read.
            Some(bytes) => self.take_bytes(bytes)?,
        }
        self.places.set(number, place);
        Ok(())
    }

    /// Reads with `read` from byte `at` on: with more bytes, as long as those that it got do not suffice.
    fn with_bytes<T>(&mut self, at: u64, mut read: impl FnMut(&mut Parser<'_>) -> Option<T>) -> io::Result<Option<T>> {
        let mut length = SHORT;
        loop {
            let bytes = self.bytes(at, length)?;
            let mut parser = Parser::new(&bytes);
            let found = read(&mut parser);
            self.spend(parser.steps())?;
            if !parser.is_cut || bytes.len() < length || length >= LONGEST_OBJECT {
                return Ok(found);
            }
            length = length.saturating_mul(8).min(LONGEST_OBJECT);
        }
    }

    /// The object at byte `at`, which has no number.
    pub(super) fn object_behind(&mut self, at: u64) -> io::Result<Object> {
        #[allow(clippy::redundant_closure_for_method_calls, reason = "the method is not general enough")]
        let object = self.with_bytes(at, |parser| parser.object())?;
        Ok(object.unwrap_or(Object::Null))
    }

    /// The object that begins at byte `at` with its number; `None` if none does.
    pub(super) fn object_at(&mut self, at: u64) -> io::Result<Option<Found>> {
        if at >= self.length() {
            return Ok(None);
        }
        let found = self.with_bytes(at, |parser| {
            let number = u32::try_from(parser.object()?.integer()?).ok()?;
            let generation = u16::try_from(parser.object()?.integer()?).ok()?;
            if !parser.object()?.is_word(b"obj") {
                return None;
            }
            let object = parser.object()?;
            parser.skip_white();
            let behind = parser.at();
            let mut stream = None;
            if matches!(object, Object::Dict(_)) && parser.object().is_some_and(|word| word.is_word(b"stream")) {
                stream = Some(behind.saturating_add(6) as u64);
            }
            Some(Found { object, id: (number, generation), stream })
        })?;
        let Some(mut found) = found else { return Ok(None) };
        if let Some(place) = found.stream {
            // Behind the word the line ends. Some programs write blanks before that.
            let at = at.saturating_add(place);
            let end = self.bytes(at, 16)?;
            let blanks = end.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            let length = match end.get(blanks..).unwrap_or_default() {
                [b'\r', b'\n', ..] => blanks.saturating_add(2),
                [b'\n' | b'\r', ..] => blanks.saturating_add(1),
                _ => 0,
            };
            found.stream = Some(at.saturating_add(length as u64));
        }
        Ok(Some(found))
    }

    /// The object with that number, and where its stream is.
    fn found(&mut self, number: u32) -> io::Result<Option<Found>> {
        self.spend(1)?;
        let found = match self.places.get(number) {
            None | Some(Place::Free(_)) => None,
            Some(Place::At(at)) => self.object_at(at)?.filter(|found| found.id.0 == number),
            Some(Place::In(stream, index)) => {
                let objects = self.objects_in(stream)?;
                let index = index as usize;
                let by_index = objects.places.get(index).filter(|(found, _)| *found == number);
                let place = match by_index {
                    None => {
                        self.spend(objects.places.len() as u64)?;
                        objects.places.iter().find(|(found, _)| *found == number)
                    }
                    place => place,
                };
                let Some(bytes) = place.and_then(|(_, at)| objects.bytes.get(*at as usize..)) else { return Ok(None) };
                let mut parser = Parser::new(bytes.get(..LONGEST_OBJECT).unwrap_or(bytes));
                let object = parser.object();
                // It is read anew for each reference to it, and two bytes may be an object.
                self.take_bytes(parser.at())?;
                self.spend(parser.steps())?;
                // They were decrypted with the stream.
                return Ok(object.map(|object| Found { object, id: (number, 0), stream: None }));
            }
        };
        let Some(mut found) = found else { return Ok(None) };
        if let Some(encryption) = self.encryption.clone()
            && let Some(stage) = encryption.stage(What::String, found.id)
        {
            self.decrypt(&mut found.object, &stage)?;
        }
        Ok(Some(found))
    }

    /// Decrypts the strings in an object.
    fn decrypt(&mut self, object: &mut Object, stage: &[u8]) -> io::Result<()> {
        let mut waiting = vec![object];
        while let Some(object) = waiting.pop() {
            match object {
                Object::String(string) if !string.is_empty() && string.len() <= LONGEST_STRING => {
                    self.spend(WORK_OF_STRING)?;
                    let stored = Arc::new(MemorySource::new(string.as_slice(), "a string"));
                    match self.decode(stage, stored, LONGEST_STRING) {
                        Ok(clear) => *string = clear,
                        Err(error) if is_damage(&error) => {}
                        Err(error) => return Err(error),
                    }
                }
                Object::Array(array) => waiting.extend(Arc::make_mut(array)),
                Object::Dict(dict) => waiting.extend(Arc::make_mut(&mut dict.0).iter_mut().map(|(_, object)| object)),
                _ => {}
            }
        }
        Ok(())
    }

    /// What `object` is, or what it refers to. What is not there, or damaged, is nothing.
    pub(super) fn resolve(&mut self, object: &Object) -> io::Result<Object> {
        let &Object::Reference(mut number, _) = object else { return Ok(object.clone()) };
        for _ in 0..MOST_STEPS {
            match self.found(number) {
                Ok(Some(Found { object: Object::Reference(next, _), .. })) => number = next,
                Ok(found) => return Ok(found.map_or(Object::Null, |found| found.object)),
                Err(error) if is_damage(&error) && !self.is_spent() => return Ok(Object::Null),
                Err(error) => return Err(error),
            }
        }
        Ok(Object::Null)
    }

    /// What stands in `dict` under that name.
    pub(super) fn get(&mut self, dict: &Dict, name: &str) -> io::Result<Object> {
        // Some names are compared in one step.
        self.spend((dict.0.len() / 16).saturating_add(1) as u64)?;
        dict.get(name).map_or(Ok(Object::Null), |object| self.resolve(object))
    }

    /// The dictionary in `dict` under that name.
    pub(super) fn dict(&mut self, dict: &Dict, name: &str) -> io::Result<Option<Dict>> {
        Ok(match self.get(dict, name)? {
            Object::Dict(dict) => Some(dict),
            _ => None,
        })
    }

    /// The stream that `object` refers to.
    pub(super) fn stream(&mut self, object: &Object) -> io::Result<Option<Stream>> {
        let &Object::Reference(mut number, _) = object else { return Ok(None) };
        for _ in 0..MOST_STEPS {
            match self.found(number)? {
                Some(Found { object: Object::Reference(next, _), .. }) => number = next,
                Some(found) => return self.stream_of(&found),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The stream of an object that has one. Where it does not end where it says, it ends before the next mark.
    pub(super) fn stream_of(&mut self, found: &Found) -> io::Result<Option<Stream>> {
        const MARK: &[u8] = b"endstream";
        const STEP: usize = 64 << 10;
        let (Some(offset), Object::Dict(dict)) = (found.stream, &found.object) else { return Ok(None) };
        let (dict, id) = (dict.clone(), found.id);
        self.nested = self.nested.saturating_add(1);
        let length = if self.nested <= MOST_NESTED { self.get(&dict, "Length") } else { Ok(Object::Null) };
        self.nested = self.nested.saturating_sub(1);
        if let Some(length) = length?.unsigned()
            && let Some(end) = offset.checked_add(length).filter(|end| *end <= self.length())
        {
            let behind = self.bytes(end, MARK.len().saturating_add(4))?;
            if behind.trim_ascii_start().starts_with(MARK) {
                return Ok(Some(Stream { dict, id, offset, length, is_cut: false }));
            }
        }
        let mut at = offset;
        loop {
            self.cancel()?;
            let bytes = self.bytes(at, STEP)?;
            if let Some(place) = memchr::memmem::find(&bytes, MARK) {
                // The line before it ends.
                let before = bytes.get(..place).unwrap_or_default();
                let end = if before.ends_with(b"\r\n") {
                    2
                } else {
                    usize::from(before.ends_with(b"\n") || before.ends_with(b"\r"))
                };
                let end = at.saturating_add(place.saturating_sub(end) as u64);
                return Ok(Some(Stream { dict, id, offset, length: end.saturating_sub(offset), is_cut: false }));
            }
            if bytes.len() < STEP {
                let length = self.length().saturating_sub(offset);
                return Ok(Some(Stream { dict, id, offset, length, is_cut: true }));
            }
            // The mark may begin there, and the line before it end with two bytes.
            at = at.saturating_add(STEP.saturating_sub(MARK.len().saturating_add(2)) as u64);
        }
    }

    /// What is stored of a stream, to be decoded. There may be any number of streams.
    pub(super) fn stored(&mut self, stream: &Stream) -> io::Result<SharedSource> {
        self.spend(WORK_OF_STREAM)?;
        Ok(Arc::new(Slice::new(SharedSource::clone(self.source), stream.offset, self.stored_length(stream))))
    }

    /// Bytes of it.
    fn stored_length(&self, stream: &Stream) -> u64 {
        stream.length.min(self.length().saturating_sub(stream.offset))
    }

    /// What `stages` make of `stored`, up to `most` bytes: more is an error.
    pub(super) fn decode(&mut self, stages: &[u8], stored: SharedSource, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut kept = std::mem::take(&mut self.streams);
        // What is not paid for is not held, either.
        let left = usize::try_from(self.budget.bytes).unwrap_or(usize::MAX);
        let (most, mut is_spent) = (most.min(left), false);
        let read = self.each(stages, stored, &mut |part| {
            let length = bytes.len().saturating_add(part.len());
            if length > most {
                is_spent = length > left;
                return Err(damaged(format!("more than {most} bytes come of a stream")));
            }
            make_room(&mut kept, length);
            bytes.extend_from_slice(part);
            Ok(())
        });
        self.streams = kept;
        // What came before something wrong has taken as long.
        self.take_bytes(if is_spent { left } else { bytes.len() })?;
        read.map(|()| bytes)
    }

    /// Hands on what `stages` make of `stored`.
    pub(super) fn each(
        &mut self,
        stages: &[u8],
        stored: SharedSource,
        receive: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (options, mut decoding) = (self.options, self.begin(stages, stored.len())?);
        options.decode.each(&step(stages), stored, &options.cancel, &mut |part| {
            self.pay(&mut decoding, part.len())?;
            receive(part)
        })
    }

    /// The whole content of a stream.
    pub(super) fn decoded(&mut self, stream: &Stream) -> io::Result<Vec<u8>> {
        let encryption = self.encryption.clone();
        let cipher = encryption.and_then(|encryption| encryption.stage(What::Stream, stream.id));
        let stages = self.stages(stream, cipher)?;
        if stages.is_empty() {
            let length = usize::try_from(self.stored_length(stream)).ok().filter(|length| *length <= LONGEST_STREAM);
            let length = length.ok_or_else(|| damaged("a stream is too long"))?;
            if length <= PART {
                return self.bytes(stream.offset, length);
            }
            self.take_bytes(length)?;
            make_room(&mut self.streams, length);
            let mut bytes = vec![0; length];
            self.source.read_exact_at(&mut bytes, stream.offset)?;
            return Ok(bytes);
        }
        let stored = self.stored(stream)?;
        self.decode(&stages, stored, LONGEST_STREAM)
    }

    /// What undoes a stream of bytes. Of one that is encrypted, `cipher` decrypts it.
    fn stages(&mut self, stream: &Stream, cipher: Option<Vec<u8>>) -> io::Result<Vec<u8>> {
        let filters = filters::of(self, stream, cipher)?;
        if filters.tail == Tail::Bytes {
            Ok(filters.stages)
        } else {
            Err(damaged("a stream of another kind was expected"))
        }
    }

    /// Hands on the content of a stream that is never encrypted, in parts: it may be longer than what is kept.
    pub(super) fn each_plainly(
        &mut self,
        stream: &Stream,
        receive: &mut dyn FnMut(&mut Self, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let stages = self.stages(stream, None)?;
        if stages.is_empty() {
            let (mut at, mut left) = (stream.offset, self.stored_length(stream));
            while left > 0 {
                let part = self.bytes(at, usize::try_from(left).map_or(PART, |left| left.min(PART)))?;
                if part.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                at = at.saturating_add(part.len() as u64);
                left = left.saturating_sub(part.len() as u64);
                receive(self, &part)?;
            }
            return Ok(());
        }
        let (stored, options) = (self.stored(stream)?, self.options);
        let mut decoding = self.begin(&stages, stored.len())?;
        options.decode.each(&step(&stages), stored, &options.cancel, &mut |part| {
            self.pay(&mut decoding, part.len())?;
            self.take_bytes(part.len())?;
            receive(self, part)
        })
    }

    /// The objects in the stream with that number.
    fn objects_in(&mut self, number: u32) -> io::Result<Arc<Objects>> {
        if let Some(place) = self.streams.iter().position(|(found, _)| *found == number)
            && let Some((_, objects)) = self.streams.remove(place)
        {
            // What is asked for often stays.
            self.streams.push_front((number, Arc::clone(&objects)));
            return Ok(objects);
        }
        let wrong = || damaged("a stream of objects is damaged");
        // One that lies in another one would lead to itself.
        let Some(Place::At(at)) = self.places.get(number) else { return Err(wrong()) };
        self.nested = self.nested.saturating_add(1);
        let is_too_deep = self.nested > MOST_NESTED;
        let read = if is_too_deep { Err(wrong()) } else { self.read_objects(at, number) };
        self.nested = self.nested.saturating_sub(1);
        let (read, failure) = match read {
            Ok(read) => (read, None),
            // It is not decoded again for each of its objects.
            Err(error) if is_damage(&error) && !is_too_deep && !self.is_spent() => {
                if self.lost.len() < MOST_LOST && self.lost.iter().all(|(known, ..)| *known != number) {
                    self.lost.push((number, at, error.to_string()));
                }
                (Objects::default(), Some(error))
            }
            Err(error) => return Err(error),
        };
        let objects = Arc::new(read);
        make_room(&mut self.streams, objects.weight());
        self.streams.truncate(MOST_STREAMS.saturating_sub(1));
        self.streams.push_front((number, Arc::clone(&objects)));
        failure.map_or(Ok(objects), Err)
    }

    fn read_objects(&mut self, at: u64, number: u32) -> io::Result<Objects> {
        let wrong = || damaged("a stream of objects is damaged");
        let found = self.object_at(at)?.filter(|found| found.id.0 == number).ok_or_else(wrong)?;
        let stream = self.stream_of(&found)?.ok_or_else(wrong)?;
        let bytes = self.decoded(&stream)?;
        let first = self.get(&stream.dict, "First")?.unsigned().and_then(|first| usize::try_from(first).ok());
        // A stream may have no bytes at all, and decode to as many. Its objects are missing then.
        let first = first.filter(|first| *first <= bytes.len()).ok_or_else(wrong)?;
        let mut parser = Parser::of_content(&bytes);
        let mut places = Vec::new();
        while parser.at() < first && places.len() < MOST_IN_STREAM {
            self.spend(1)?;
            let Some(number) = parser.object().and_then(|object| u32::try_from(object.integer()?).ok()) else { break };
            let Some(place) = parser.object().and_then(|object| usize::try_from(object.integer()?).ok()) else { break };
            places.push((number, u32::try_from(first.saturating_add(place)).unwrap_or(u32::MAX)));
        }
        Ok(Objects { bytes, places })
    }

    /// The numbers of the objects in a stream.
    pub(super) fn numbers_in(&mut self, number: u32) -> io::Result<Vec<u32>> {
        Ok(self.objects_in(number)?.places.iter().map(|(number, _)| *number).collect())
    }
}

/// Drops the streams of objects that were not asked for longest, until one of so many bytes may be beside the others.
pub(super) fn make_room(kept: &mut VecDeque<(u32, Arc<Objects>)>, length: usize) {
    let weight = |kept: &VecDeque<(u32, Arc<Objects>)>| {
        kept.iter().map(|(_, objects)| objects.weight()).fold(length, usize::saturating_add)
    };
    while !kept.is_empty() && weight(kept) > MOST_BYTES {
        kept.pop_back();
    }
}

/// What decodes a stream.
pub(super) fn step(stages: &[u8]) -> Step {
    Step { codec: "pdf-stream".to_owned(), properties: stages.to_vec(), ..Step::default() }
}
