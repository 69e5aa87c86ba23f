//! What the tests of the formats share: reading an archive in memory, headers made by hand, running tools.
#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

pub(crate) mod twin;
pub(crate) mod zip;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tarnfs_format::{Entry, Error, Event, Kind, Options, SourceStream, Stream, by_name, name};
use tarnfs_source::{Cancel, Limits, MemorySource, SharedSource, Slice, Source, Stencil};

/// All that an archive told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) entries: Vec<Entry>,
    /// Offset and text of each damage.
    pub(crate) damage: Vec<(u64, String)>,
    pub(crate) labels: Vec<Vec<u8>>,
    pub(crate) unlisted: Vec<String>,
}

impl Told {
    pub(crate) fn paths(&self) -> Vec<String> {
        self.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
    }

    pub(crate) fn entry(&self, path: &str) -> &Entry {
        let found = self.entries.iter().rfind(|entry| entry.path == path.as_bytes());
        found.unwrap_or_else(|| panic!("{path} is not in {:?}", self.paths()))
    }
}

pub(crate) fn try_read(archive: &[u8], options: &Options) -> Result<Told, Error> {
    let source = Arc::new(MemorySource::new(archive, "archive"));
    try_read_source(source, options)
}

pub(crate) fn try_read_source(source: SharedSource, options: &Options) -> Result<Told, Error> {
    try_read_stream("tar", &mut SourceStream::new(source, Cancel::default()), options)
}

/// Reads an archive of that format.
pub(crate) fn try_read_as(format: &str, archive: &[u8]) -> Result<Told, Error> {
    let source = Arc::new(MemorySource::new(archive, "archive"));
    try_read_stream(format, &mut SourceStream::new(source, Cancel::default()), &Options::default())
}

pub(crate) fn try_read_stream(format: &str, stream: &mut dyn Stream, options: &Options) -> Result<Told, Error> {
    let mut told = Told::default();
    by_name(format).unwrap().forwards().unwrap().read(stream, options, &mut |event, _| {
        match event {
            Event::Entry(entry) => told.entries.push(*entry),
            Event::Damage(damage) => told.damage.push((damage.offset, damage.what)),
            Event::Label(label) => told.labels.push(label),
            Event::Unlisted(what) => told.unlisted.push(what),
            Event::Ahead(_) | Event::ForAll(_) | Event::End(_) | Event::Heavy => {}
            other => panic!("{other:?}"),
        }
        Ok(())
    })?;
    Ok(told)
}

pub(crate) fn read(archive: &[u8]) -> Told {
    try_read(archive, &Options::default()).unwrap()
}

/// Reads an archive that must be without fault.
pub(crate) fn read_whole(archive: &[u8]) -> Told {
    let told = read(archive);
    assert_eq!(told.damage, []);
    told
}

/// The bytes of an entry, through its body.
pub(crate) fn open(archive: &SharedSource, entry: &Entry) -> Arc<dyn Source> {
    let body = &entry.body;
    let stored = Arc::new(Slice::new(Arc::clone(archive), body.offset, body.stored));
    match &body.extents {
        Some(map) => Arc::new(Stencil::new(stored, map.iter().copied(), body.size).unwrap()),
        None => stored,
    }
}

pub(crate) fn content(archive: &[u8], entry: &Entry) -> Vec<u8> {
    let source: SharedSource = Arc::new(MemorySource::new(archive, "archive"));
    let source = open(&source, entry);
    let mut bytes = vec![0; source.len() as usize];
    source.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// A header block made by hand.
#[derive(Clone)]
pub(crate) struct Block(pub(crate) [u8; 512]);

impl Block {
    pub(crate) fn new(name: &str, typeflag: u8) -> Self {
        let mut block = Self([0; 512]);
        block.put(0, name.as_bytes());
        block.0[156] = typeflag;
        block.octal(100, 8, 0o644).octal(108, 8, 1000).octal(116, 8, 1000).octal(124, 12, 0).octal(
            136,
            12,
            1_700_000_000,
        );
        block
    }

    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn octal(&mut self, at: usize, width: usize, value: u64) -> &mut Self {
        let digits = format!("{value:0width$o}", width = width - 1);
        self.put(at, digits.as_bytes())
    }

    pub(crate) fn size(&mut self, size: u64) -> &mut Self {
        self.octal(124, 12, size)
    }

    pub(crate) fn ustar(&mut self) -> &mut Self {
        self.put(257, b"ustar\x0000")
    }

    pub(crate) fn gnu(&mut self) -> &mut Self {
        self.put(257, b"ustar  \0")
    }

    /// The block with its checksum, as POSIX writes it.
    pub(crate) fn done(&self) -> Vec<u8> {
        let mut block = self.clone();
        block.put(148, b"        ");
        let sum: u32 = block.0.iter().map(|&byte| u32::from(byte)).sum();
        block.put(148, format!("{sum:06o}\0 ").as_bytes());
        block.0.to_vec()
    }
}

/// `bytes` filled up to whole blocks.
pub(crate) fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(512), 0);
    padded
}

/// A header with content.
pub(crate) fn member(block: &mut Block, content: &[u8]) -> Vec<u8> {
    [block.size(content.len() as u64).done(), padded(content)].concat()
}

pub(crate) fn file(name: &str, content: &[u8]) -> Vec<u8> {
    member(Block::new(name, b'0').ustar(), content)
}

pub(crate) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length += 1;
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// A pax header (`x` or `g`) with these records.
pub(crate) fn pax(typeflag: u8, records: &[(&str, &[u8])]) -> Vec<u8> {
    let records: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
    member(Block::new("pax", typeflag).ustar(), &records)
}

pub(crate) const END: [u8; 1024] = [0; 1024];

/// Runs a command line of `sh` in `folder`; its output.
pub(crate) fn sh(folder: &Path, line: &str) -> String {
    let output = Command::new("sh").arg("-c").arg(line).current_dir(folder).env("LC_ALL", "C").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{line}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new("sh").arg("-c").arg(format!("command -v {tool}")).output().unwrap().status.success();
    if !found {
        println!("{tool} is not installed: not tested");
    }
    found
}

/// The entry that each path ends up as: the last one of that name, folders without slash, links resolved.
pub(crate) fn tree(told: &Told) -> BTreeMap<PathBuf, &Entry> {
    use std::os::unix::ffi::OsStrExt;
    let limits = Limits::default();
    let place = |path: &[u8]| -> PathBuf {
        let components = name::components(path, &limits);
        components.iter().map(std::ffi::OsStr::from_bytes).collect()
    };
    let mut tree = BTreeMap::new();
    for entry in &told.entries {
        let target = if entry.kind == Kind::HardLink { tree.get(&place(&entry.link)).copied() } else { None };
        tree.insert(place(&entry.path), target.unwrap_or(entry));
    }
    tree
}
