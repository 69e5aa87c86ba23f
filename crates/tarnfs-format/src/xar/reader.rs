//! Reads an archive: the header, the table of contents, and the extended attributes in the heap.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use tarnfs_source::{SharedSource, Slice};

use super::attributes::{BLOCKS, Values};
use super::toc::{self, Data, File};
use super::{MAGIC, NAME, VERSION};
use crate::entry::LONGEST_FILE;
use crate::image::{Budget, OfAttributes, Teller, data_of};
use crate::name::{bounded_path, excerpt};
use crate::{Body, Coder, Device, Entry, Error, Kind, Options, Piece, ReceiveRandom, Step, Xattrs, big};

/// Bytes of the fixed part of the header.
const HEADER: usize = 28;

/// Bytes of the table, decoded: of some hundred thousand files.
const MOST_TOC: u64 = 64 << 20;

/// Bytes of the values of all extended attributes.
const MOST_ATTRIBUTES: u64 = 64 << 20;

/// Folders in each other.
const DEEPEST: usize = 1024;

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let mut header = [0; HEADER];
    source.read_exact_at(&mut header, 0).map_err(|error| Error::Read { offset: 0, error })?;
    let field = |at: usize| big::u64_at(&header, at).unwrap_or_default();
    let [size, version] = [4, 6].map(|at| big::u16_at(&header, at).unwrap_or_default());
    if !header.starts_with(MAGIC) {
        return Err(Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() });
    }
    if version != VERSION {
        return Err(Error::Unsupported {
            format: NAME,
            reason: format!("version {version} of the format is not known"),
        });
    }
    let (start, stored, length) = (u64::from(size), field(8), field(16));
    let heap = start.checked_add(stored).filter(|end| *end <= source.len());
    let heap = heap.ok_or_else(|| {
        let what = format!("its table of contents of {stored} bytes ends behind byte {}", source.len());
        Error::Read { offset: start, error: io::Error::new(io::ErrorKind::UnexpectedEof, what) }
    })?;
    if length > MOST_TOC || stored > MOST_TOC {
        return Err(unreadable(format!("its table of contents has {length} bytes, more than {MOST_TOC}")));
    }
    // All of it is in memory before the first entry is told.
    let held = options.limits.held;
    let needs = |bytes: u64| {
        let what = format!("reading its table of contents takes more than {bytes} bytes of memory");
        Error::Read { offset: start, error: io::Error::new(io::ErrorKind::OutOfMemory, what) }
    };
    if length > held {
        return Err(needs(held));
    }
    let table: SharedSource = Arc::new(Slice::new(Arc::clone(source), start, stored));
    let toc = options.decode.decode(&coder("zlib"), table, length, &|_| true);
    let toc = toc.map_err(|error| {
        let what = format!("the table of contents: {error}");
        Error::Read { offset: start, error: io::Error::new(error.kind(), what) }
    })?;
    let data = data_of(&**source);
    let mut tell = Teller::new(receive).with_attributes(OfAttributes::new(data, options.shares));
    let most = options.limits.waiting_names;
    let left = usize::try_from(held.saturating_sub(length)).map_or(most, |left| left.min(most));
    let files = toc::read(&toc, left).map_err(|(at, what)| {
        if left < most && what == toc::too_much(left) {
            return needs(held);
        }
        unreadable(format!("its table of contents is damaged at its byte {at}: {what}"))
    })?;
    drop(toc);
    let ids: HashMap<&[u8], usize> =
        files.iter().enumerate().map(|(number, file)| (file.id.as_slice(), number)).collect();
    let mut reader = Reader {
        source,
        options,
        heap,
        coders: Vec::new(),
        attributes: 0,
        budget: Budget::new(data, options.shares),
        values: Values::new(data, options.shares),
    };
    // A link means what its target shows before it.
    for are_links in [false, true] {
        for (number, file) in files.iter().enumerate() {
            options.cancel.check().map_err(Error::Receiver)?;
            if is_link(file) == are_links {
                let header = start.saturating_add(number as u64);
                let header = if are_links { header.saturating_add(files.len() as u64) } else { header };
                if !reader.file(&files, &ids, file, header.min(source.len()), &mut tell)? {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn unreadable(reason: String) -> Error {
    Error::Unreadable { format: NAME, reason }
}

fn coder(codec: &str) -> Coder {
    Coder { steps: vec![Step { codec: codec.to_owned(), ..Step::default() }], is_behind_header: None }
}

fn is_link(file: &File) -> bool {
    file.kind == b"hardlink" && file.original != b"original"
}

/// The path of a file; `None` if it lies too deep.
fn path_of(files: &[File], file: &File, most: usize) -> Option<Vec<u8>> {
    let mut names = vec![file.name.as_slice()];
    let mut parent = file.parent;
    let mut length = file.name.len();
    while let Some(folder) = parent.and_then(|number| files.get(number as usize)) {
        length = length.saturating_add(folder.name.len()).saturating_add(1);
        if names.len() > DEEPEST || length > most {
            return None;
        }
        names.push(&folder.name);
        parent = folder.parent;
    }
    names.reverse();
    Some(names.join(&b'/'))
}

struct Reader<'o> {
    source: &'o SharedSource,
    options: &'o Options,
    /// Where the heap begins.
    heap: u64,
    coders: Vec<Arc<Coder>>,
    /// Bytes of extended attributes so far.
    attributes: u64,
    budget: Budget,
    values: Values,
}

impl Reader<'_> {
    /// Tells a file. False if nothing behind it is told.
    fn file(
        &mut self,
        files: &[File],
        ids: &HashMap<&[u8], usize>,
        file: &File,
        header: u64,
        tell: &mut Teller<'_>,
    ) -> Result<bool, Error> {
        let limits = self.options.limits;
        let Some(path) = path_of(files, file, limits.path) else {
            tell.damage(header, format!("'{}' lies too deep; it was left out", excerpt(&file.name)))?;
            return Ok(true);
        };
        let device = Device { major: file.major, minor: file.minor };
        let mut link = Vec::new();
        let kind = match file.kind.as_slice() {
            b"hardlink" if is_link(file) => {
                let original = ids.get(file.original.as_slice()).and_then(|number| files.get(*number));
                let Some(target) = original.and_then(|original| path_of(files, original, limits.path)) else {
                    let what = format!("'{}' is another name of a file that is not there", excerpt(&path));
                    tell.damage(header, what)?;
                    return Ok(true);
                };
                link = target;
                Kind::HardLink
            }
            b"" | b"file" | b"hardlink" => Kind::File,
            b"directory" => Kind::Folder,
            b"symlink" => {
                link = bounded_path(file.link.clone(), limits.path);
                Kind::Symlink
            }
            b"fifo" => Kind::Fifo,
            b"character special" => Kind::CharacterDevice(device),
            b"block special" => Kind::BlockDevice(device),
            b"socket" => Kind::Socket,
            other => {
                let what = format!("'{}' is of the kind '{}', which is not known", excerpt(&path), excerpt(other));
                tell.damage(header, what)?;
                return Ok(true);
            }
        };
        // Each name is told with the names of all folders that it lies in.
        if self.budget.take_bytes(path.len().saturating_add(link.len()) as u64).is_err() {
            tell.damage(header, "what is behind is left out: its paths are too long for so few bytes".to_owned())?;
            return Ok(false);
        }
        let body = match &file.data {
            Some(data) if kind == Kind::File && data.size > 0 => self.body(data, header, &path, tell)?,
            _ => Body { offset: header, ..Body::default() },
        };
        let default = if kind == Kind::Folder { 0o755 } else { 0o644 };
        let owner = |name: &[u8]| name.get(..limits.owner_name).unwrap_or(name).to_vec();
        let xattrs = self.xattrs(file, header, &path, tell)?;
        tell.entry(Entry {
            kind,
            mode: file.mode.unwrap_or(default),
            uid: file.uid,
            gid: file.gid,
            user: owner(&file.user),
            group: owner(&file.group),
            mtime: file.mtime.unwrap_or_default(),
            atime: file.atime,
            ctime: file.ctime,
            header,
            body,
            link,
            xattrs,
            path,
            ..Entry::default()
        })?;
        Ok(true)
    }

    /// Where something in the heap lies; the error says why it cannot be there.
    fn place(&self, data: &Data) -> Result<u64, String> {
        let offset = self.heap.checked_add(data.offset);
        let end = offset.and_then(|offset| offset.checked_add(data.stored));
        match (offset, end) {
            (Some(offset), Some(end)) if end <= self.source.len() => Ok(offset),
            _ => Err(format!("lies behind the end of the archive at byte {}", self.source.len())),
        }
    }

    /// The coder of an encoding; `None` for bytes that are stored as they are.
    fn coder(&mut self, encoding: &[u8]) -> Option<Arc<Coder>> {
        let codec = match encoding {
            b"" | b"application/octet-stream" => return None,
            // RFC 1950, in spite of the name.
            b"application/x-gzip" => "zlib".to_owned(),
            b"application/x-bzip2" => BLOCKS.to_owned(),
            b"application/x-xz" => "xz".to_owned(),
            b"application/x-lzma" => "lzma".to_owned(),
            other => format!("the encoding {}", excerpt(other)),
        };
        let is_it = |coder: &&Arc<Coder>| coder.steps.first().is_some_and(|step| step.codec == codec);
        if let Some(known) = self.coders.iter().find(is_it) {
            return Some(Arc::clone(known));
        }
        let made = Arc::new(coder(&codec));
        if self.coders.len() < 16 {
            self.coders.push(Arc::clone(&made));
        }
        Some(made)
    }

    fn body(&mut self, data: &Data, header: u64, path: &[u8], tell: &mut Teller<'_>) -> Result<Body, Error> {
        let size = data.size.min(LONGEST_FILE);
        let body = Body { offset: header, size, ..Body::default() };
        let coder = self.coder(&data.encoding);
        let place = self.place(data).and_then(|offset| {
            if data.size > size {
                return Err(format!("would have {} bytes", data.size));
            }
            if coder.is_none() && data.stored < size {
                return Err(format!("has {size} bytes, of which {} are stored", data.stored));
            }
            Ok(offset)
        });
        let piece = match place {
            Ok(offset) => {
                let stored = if coder.is_none() { size } else { data.stored };
                Piece { length: size, offset, stored, coder, decoded: size, ..Piece::default() }
            }
            Err(what) => {
                tell.damage(header, format!("'{}' {what}", excerpt(path)))?;
                Piece::unreadable(header, size)
            }
        };
        Ok(Body { pieces: Some(vec![piece]), ..body })
    }

    fn xattrs(&mut self, file: &File, header: u64, path: &[u8], tell: &mut Teller<'_>) -> Result<Xattrs, Error> {
        let limits = self.options.limits;
        let mut xattrs = Xattrs::new();
        for attribute in file.attributes.iter().take(limits.xattrs) {
            self.options.cancel.check().map_err(Error::Receiver)?;
            let data = &attribute.data;
            self.attributes = self.attributes.saturating_add(data.size);
            let name = named(&attribute.name);
            let is_none = attribute.name.is_empty() || name.contains(&0) || name.len() > limits.name;
            let value = if is_none {
                Err("left out: it has no name that Linux could hold".to_owned())
            } else if data.size > limits.xattr_value as u64 || self.attributes > MOST_ATTRIBUTES {
                Err(format!("has an extended attribute of {} bytes, which is too long", data.size))
            } else {
                self.value(data)
            };
            match value {
                Ok(value) => xattrs.push((name, value)),
                Err(what) => {
                    let name = excerpt(&attribute.name);
                    tell.damage(header, format!("'{}', extended attribute '{name}': {what}", excerpt(path)))?;
                }
            }
        }
        Ok(xattrs)
    }

    fn value(&mut self, data: &Data) -> Result<Vec<u8>, String> {
        let offset = self.place(data)?;
        if let Some(coder) = self.coder(&data.encoding) {
            return self.values.get(data, (self.source, offset), &coder, &self.options.decode);
        }
        let left_out = |_| "it is left out: the archive asks for too much work".to_owned();
        self.budget.take_bytes(data.size).map_err(left_out)?;
        let slice: SharedSource = Arc::new(Slice::new(Arc::clone(self.source), offset, data.stored));
        let mut value = vec![0; data.size as usize];
        slice.read_exact_at(&mut value, 0).map(|()| value).map_err(|error| error.to_string())
    }
}

/// The name of an extended attribute, in a namespace of Linux.
fn named(name: &[u8]) -> Vec<u8> {
    const SPACES: [&[u8]; 4] = [b"user.", b"security.", b"trusted.", b"system."];
    if SPACES.iter().any(|space| name.starts_with(space)) { name.to_vec() } else { [b"user.", name].concat() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tarnfs_source::{Limits, MemorySource};

    use super::*;
    use crate::{Decode, Event};

    /// What is told of an archive with this table and some bytes behind it. What is packed with bzip2 is given to
    /// `decode`, with how many of them were before it.
    fn told(
        files: &str,
        options: &Options,
        decode: impl Fn(usize, u64) -> io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> (Result<(), Error>, Vec<Entry>, Vec<String>, usize) {
        let toc = format!("<xar><toc>{files}</toc></xar>").into_bytes();
        let lengths = [3_u64, toc.len() as u64].map(u64::to_be_bytes).concat();
        let archive = [&b"xar!\0\x1c\0\x01"[..], &lengths, &[0; 4], b"toc", b"hello"].concat();
        let source: SharedSource = Arc::new(MemorySource::new(archive, "an archive"));
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let decode = Decode::new(move |coder, _, length, _| match coder.steps[0].codec.as_str() {
            "zlib" => Ok(toc.clone()),
            _ => decode(counter.fetch_add(1, Ordering::Relaxed), length),
        });
        let (mut entries, mut damage) = (Vec::new(), Vec::new());
        let mut receive = |event| {
            match event {
                Event::Entry(entry) => entries.push(*entry),
                Event::Damage(told) => damage.push(told.what),
                _ => {}
            }
            Ok(())
        };
        let result = read(&source, &Options { decode, ..options.clone() }, &mut receive);
        (result, entries, damage, count.load(Ordering::Relaxed))
    }

    fn attribute(size: u64) -> String {
        format!(
            "<ea><name>a</name><offset>0</offset><length>5</length><size>{size}</size>\
             <encoding style=\"application/x-bzip2\"/></ea>"
        )
    }

    fn file(inside: &str) -> String {
        format!("<file><name>x</name><type>file</type>{inside}</file>")
    }

    /// The table and its files are held together, and several small archives may be read beside each other.
    #[test]
    fn what_holds_more_than_it_may_is_refused_as_that() {
        let files = file("").repeat(100);
        let read = |held: u64| {
            let limits = Limits { held, ..Limits::default() };
            told(&files, &Options { limits, ..Options::default() }, |_, _| Ok(Vec::new()))
        };
        // Less than the table, and less than its files beside that.
        for held in [files.len() as u64, files.len() as u64 + 5000] {
            let (result, entries, ..) = read(held);
            let Err(Error::Read { error, .. }) = result else { panic!("{held}: {result:?}") };
            assert!(error.kind() == io::ErrorKind::OutOfMemory && entries.is_empty(), "{held}: {error}");
        }
        let (result, entries, ..) = read(1 << 20);
        assert!(result.is_ok() && entries.len() == 100, "{result:?}");
    }

    #[test]
    fn attributes_have_names_that_linux_can_hold() {
        let attribute = |name: &str| attribute(1).replace("<name>a</name>", &format!("<name>{name}</name>"));
        let attributes = ["a", "", "x&#0;y", &"n".repeat(300), "security.b"].map(attribute).concat();
        let (_, entries, damage, _) = told(&file(&attributes), &Options::default(), |_, _| Ok(vec![b'v']));
        let names: Vec<_> = entries[0].xattrs.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [&b"user.a"[..], b"security.b"]);
        assert!(damage.len() == 3 && damage[0].contains("no name that Linux could hold"), "{damage:?}");
    }

    /// Any number of attributes may lead to the same block, of which more comes than each says.
    #[test]
    fn few_attributes_are_decoded_that_give_more_than_they_say() {
        let attributes: String = (0..5000).map(|number| attribute(number + 1)).collect();
        let wrong = |_, _| Err(io::Error::new(io::ErrorKind::InvalidData, "more comes out of it"));
        let (result, entries, damage, count) = told(&file(&attributes), &Options::default(), wrong);
        assert!(result.is_ok() && entries.len() == 1 && entries[0].xattrs.is_empty());
        assert!((1..=3).contains(&count), "{count} of 5000");
        assert!(damage[0].contains("more comes out") && damage[900].contains("too much work"), "{}", damage[900]);
    }

    #[test]
    fn attributes_that_are_right_are_all_read() {
        // Those of different sizes are not the same one. What is the same is decoded once, whichever files have it.
        let attributes: String = (0..10_000).map(|number| attribute(number % 2 + 1)).collect();
        let right = |_: usize, length: u64| Ok(vec![b'v'; length as usize]);
        let files = [file(&attributes), file(&attributes)].concat();
        let (result, entries, damage, count) = told(&files, &Options::default(), right);
        assert!(result.is_ok() && damage.is_empty(), "{damage:?}");
        assert_eq!((entries.len(), count), (2, 2));
        assert!(entries.iter().all(|entry| entry.xattrs.len() == 10_000 && entry.xattrs[1].1 == b"vv"));
    }

    #[test]
    fn attributes_of_one_file_can_be_cancelled() {
        let options = Options::default();
        let cancel = options.cancel.clone();
        let attributes: String = (0..5000).map(|number| attribute(number + 1)).collect();
        let (result, _, _, count) = told(&file(&attributes), &options, move |number, length| {
            if number == 9 {
                cancel.cancel();
            }
            Ok(vec![0; length as usize])
        });
        assert!(matches!(result, Err(Error::Receiver(error)) if error.kind() == io::ErrorKind::Interrupted));
        assert_eq!(count, 10);
    }

    /// All files in a folder have its name in their paths, which the table has once.
    #[test]
    fn long_paths_of_short_tables_have_an_end() {
        let files = file("").repeat(400);
        let folder = format!("<file><name>{}</name><type>directory</type>{files}</file>", "f".repeat(60_000));
        let options = Options { shares: 16, ..Options::default() };
        let (result, entries, damage, _) = told(&folder, &options, |_, _| Ok(Vec::new()));
        let length: usize = entries.iter().map(|entry| entry.path.len()).sum();
        assert!(result.is_ok() && (15 << 20..17 << 20).contains(&length), "{length}");
        assert!(damage.len() == 1 && damage[0].contains("paths are too long"), "{damage:?}");
    }
}
