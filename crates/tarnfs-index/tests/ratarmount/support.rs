//! Archives made by real tools, and what ratarmount shows of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tarnfs_codec::Dictionaries;
use tarnfs_codec::engine::{DecodedSource, Indexing, PieceCache, Workers};
use tarnfs_format::{Body, Entry, Event, Kind, Probe, SourceStream, Time};
use tarnfs_index::ratarmount::{self, Expected};
use tarnfs_index::{
    Archive, Destination, Error, Index, Layer, Node, Row, Shape, Summary, Writer, WriterOptions, trust,
};
use tarnfs_source::{Budget, Cancel, FileSource, Fingerprint, Limits, MemorySource, SharedSource, Slice, Stencil};

/// The Python that has ratarmount: of the folder TARNFS_PEERS, else the one that runs `ratarmount`.
pub(crate) fn python() -> Option<PathBuf> {
    let script = if let Some(folder) = std::env::var_os("TARNFS_PEERS") {
        PathBuf::from(folder).join("bin/ratarmount")
    } else {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join("ratarmount")).find(|file| file.exists())?
    };
    let text = std::fs::read_to_string(script).ok()?;
    let python = text.lines().next()?.strip_prefix("#!")?.trim();
    Some(PathBuf::from(python)).filter(|python| python.exists())
}

/// The Python with ratarmount, or one line that says that there is none.
#[macro_export]
macro_rules! python_or_return {
    () => {
        match $crate::support::python() {
            Some(python) => python,
            None => {
                eprintln!("ratarmount is not installed (TARNFS_PEERS, PATH): nothing was compared with it");
                return;
            }
        }
    };
}

/// Runs a shell script in `folder`; it must succeed.
pub(crate) fn shell(folder: &Path, script: &str) {
    let output = Command::new("bash").args(["-euo", "pipefail", "-c", script]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// What is shown of one path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) kind: &'static str,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    /// In microseconds: a double has no more.
    pub(crate) mtime: i64,
    pub(crate) link: String,
    /// CRC-32 of a file's content.
    pub(crate) content: Option<u32>,
    /// CRC-32 of each value.
    pub(crate) xattrs: BTreeMap<String, u32>,
}

impl Facts {
    /// True if they are equal, but for how a double was rounded.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        (self.mtime - other.mtime).abs() <= 1 && *self == Self { mtime: self.mtime, ..other.clone() }
    }
}

pub(crate) type Tree = BTreeMap<String, Facts>;

/// What ratarmount's library shows of `archive`, with the sidecar that it makes ("write") or must find ("use").
pub(crate) fn dump(
    python: &Path,
    doing: &str,
    archive: &Path,
    sidecar: &Path,
    options: &[&str],
) -> Result<Tree, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ratarmount/dump.py");
    let output = Command::new(python).arg(script).arg(doing).args([archive, sidecar]).args(options).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let field = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let tree = text.lines().filter(|line| line.starts_with('[')).map(|line| {
        let line: Vec<serde_json::Value> = serde_json::from_str(line).unwrap();
        let kind = ["file", "folder", "symlink", "device", "fifo"];
        let number = |index: usize| line[index].as_u64().unwrap();
        let facts = Facts {
            kind: kind.into_iter().find(|kind| *kind == line[1].as_str().unwrap()).unwrap(),
            mode: number(2) as u32,
            uid: number(3) as u32,
            gid: number(4) as u32,
            size: if line[1] == "file" { number(5) } else { 0 },
            mtime: (line[6].as_f64().unwrap() * 1e6).round() as i64,
            link: field(&line[7]),
            content: line[8].as_u64().map(|crc| crc as u32),
            xattrs: line[9]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, crc)| (name.clone(), crc.as_u64().unwrap() as u32))
                .collect(),
        };
        (field(&line[0]), facts)
    });
    Ok(tree.collect())
}

/// Opens a sidecar for the archive as it is.
pub(crate) fn open(archive: &Path, sidecar: &Path, shape: Shape) -> Result<(Arc<dyn Index>, SharedSource), Error> {
    let file = Arc::new(FileSource::open(archive)?);
    let modified = file.identity().modified as i64;
    let source: SharedSource = file;
    let expected = Expected {
        source: Arc::clone(&source),
        modified,
        verify_mtime: true,
        shape,
        limits: Limits::default(),
        dictionaries: Dictionaries::default(),
        cancel: Cancel::default(),
    };
    Ok((ratarmount::open(trust::open(sidecar, None, false)?, &expected)?, source))
}

/// The innermost stream.
pub(crate) fn stream(index: &Arc<dyn Index>, source: SharedSource) -> Result<SharedSource, Error> {
    let mut stream = source;
    for (number, layer) in index.summary().layers.iter().enumerate() {
        let codec = tarnfs_codec::by_name(&layer.codec).unwrap();
        let table = Arc::clone(index).chunks(number)?;
        let cache = PieceCache::new(Budget::new(64 << 20));
        stream = DecodedSource::new(codec, stream, table, cache, Workers::new(1), Limits::default());
    }
    Ok(stream)
}

/// The content of a file.
pub(crate) fn content(index: &Arc<dyn Index>, stream: &SharedSource, row: &Row) -> Result<Vec<u8>, Error> {
    let source: SharedSource = if row.is_sparse {
        let extents = index.extents(row.node)?;
        let stored = extents.iter().map(|extent| extent.length).sum();
        let packed = Arc::new(Slice::new(Arc::clone(stream), row.body, stored));
        Arc::new(Stencil::new(packed, extents, row.size)?)
    } else {
        Arc::new(Slice::new(Arc::clone(stream), row.body, row.size))
    };
    let mut bytes = vec![0; usize::try_from(row.size).unwrap()];
    source.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// All of a tree, with every byte.
pub(crate) fn walk(index: &Arc<dyn Index>, source: SharedSource) -> Result<Tree, Error> {
    let stream = stream(index, source)?;
    let mut tree = Tree::new();
    let mut folders = vec![(Node::ROOT, String::new())];
    while let Some((folder, path)) = folders.pop() {
        let mut children = Vec::new();
        // A few at a time: the kernel never takes a large folder at once.
        let (mut from, mut before) = (0, usize::MAX);
        while before != children.len() {
            before = children.len();
            index.children(folder, from, &mut |next, name, row| {
                from = next;
                children.push((name.to_vec(), row.clone()));
                children.len() % 7 != 0
            })?;
        }
        for (name, row) in children {
            let full = format!("{path}/{}", String::from_utf8(name.clone()).unwrap());
            assert_eq!(index.lookup(folder, &name)?.as_ref(), Some(&row), "{full}");
            assert_eq!(index.row(row.node)?.as_ref(), Some(&row), "{full}");
            if row.kind == Kind::Folder {
                assert_eq!(index.parent(row.node)?, folder, "{full}");
                folders.push((row.node, full.clone()));
            }
            let before = tree.insert(full.clone(), facts(index, &stream, &row)?);
            assert_eq!(before, None, "{full}");
        }
    }
    Ok(tree)
}

fn facts(index: &Arc<dyn Index>, stream: &SharedSource, row: &Row) -> Result<Facts, Error> {
    let kind = match row.kind {
        Kind::File => "file",
        Kind::Folder => "folder",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        _ => "device",
    };
    let microseconds = |time: Time| time.seconds * 1_000_000 + (f64::from(time.nanoseconds) / 1e3).round() as i64;
    Ok(Facts {
        kind,
        mode: row.mode,
        uid: row.uid,
        gid: row.gid,
        size: if kind == "file" { row.size } else { 0 },
        mtime: microseconds(row.mtime),
        link: if kind == "symlink" { String::from_utf8(index.link(row.node)?).unwrap() } else { String::new() },
        content: (kind == "file" && row.size > 0)
            .then(|| content(index, stream, row))
            .transpose()?
            .map(|bytes| crc32fast::hash(&bytes)),
        xattrs: index
            .xattrs(row.node)?
            .into_iter()
            .map(|(name, value)| (String::from_utf8(name).unwrap(), crc32fast::hash(&value)))
            .collect(),
    })
}

/// A folder `tree` with one of each kind of file.
pub(crate) const TREE: &str = r"
    mkdir -p tree/a/b/c tree/empty
    echo hello > tree/a/hello
    seq 1 60000 > tree/a/b/numbers
    head -c 300000 /dev/urandom > tree/a/b/random
    ln -s ../hello tree/a/b/symlink
    ln tree/a/hello tree/a/hardlink
    ln tree/a/hello tree/a/b/c/third
    mkfifo tree/a/fifo
    mknod tree/a/null c 1 3 2> /dev/null || true
    mknod tree/a/loop b 7 1 2> /dev/null || true
    truncate -s 1M tree/a/sparse
    printf middle | dd of=tree/a/sparse bs=1 seek=500000 conv=notrunc status=none
    printf end >> tree/a/sparse
    truncate -s 2M tree/a/hole
    setfattr -n user.colour -v blue tree/a/hello 2> /dev/null || true
    setfattr -n user.more -v 0x00ff01 tree/a 2> /dev/null || true
    : > tree/zero
    touch -d '1965-03-04 05:06:07.25' tree/zero
    echo umlaut > tree/$'\xc3\xa4\xc3\xb6'
    chmod 4750 tree/a/b/numbers
    for n in $(seq 300); do echo $n > tree/empty/file$n; done
    echo long > tree/a/$(printf 'x%.0s' $(seq 180))
    mkdir -p tree/$(printf 'd%.0s' $(seq 120))/$(printf 'e%.0s' $(seq 120))
    echo deep > tree/$(printf 'd%.0s' $(seq 120))/$(printf 'e%.0s' $(seq 120))/deep
";

/// Text and noise, more than a few seek points of it.
pub(crate) const LARGE: &str = r"
    seq 1 900000 > tree/a/large
    head -c 5000000 /dev/urandom > tree/a/noise
    seq 900000 -1 1 > tree/last
";

/// An index of tarnfs, in memory.
pub(crate) fn own_index(archive: &Path, shape: &Shape) -> (Arc<dyn Index>, SharedSource) {
    let file = Arc::new(FileSource::open(archive).unwrap());
    let modified = file.identity().modified as i64;
    let source: SharedSource = file;
    let mut head = vec![0; 4096];
    let read = source.read_at(&mut head, 0).unwrap();
    head.truncate(read);
    let mut writer = Writer::new(WriterOptions {
        limits: Limits::default(),
        budget: Budget::new(64 << 20),
        cancel: tarnfs_source::Cancel::default(),
    })
    .unwrap();
    let (mut stream, mut layers) = (Arc::clone(&source), Vec::new());
    if let Some(codec) = tarnfs_codec::detect(&head).filter(|_| tarnfs_format::detect(&Probe::of_head(&head)).is_none())
    {
        let options = tarnfs_codec::Options { seek_point_spacing: 1 << 20, ..tarnfs_codec::Options::default() };
        let mut indexing = Indexing::new(codec, Arc::clone(&source), &options).unwrap();
        let (mut decoded, mut chunks, mut buffer) = (Vec::new(), Vec::new(), vec![0; 128 << 10]);
        loop {
            match indexing.read(&mut buffer).unwrap() {
                0 => break,
                read => decoded.extend_from_slice(&buffer[..read]),
            }
        }
        indexing.take_chunks(&mut chunks);
        for chunk in chunks {
            writer.add_chunk(0, chunk).unwrap();
        }
        layers.push(Layer { codec: codec.name().into(), decoded_length: decoded.len() as u64 });
        stream = Arc::new(MemorySource::new(decoded, "decoded"));
    }
    let mut head = vec![0; 4096];
    let read = stream.read_at(&mut head, 0).unwrap();
    let format = tarnfs_format::detect(&Probe::of_head(&head[..read]));
    if let Some(format) = format {
        let options = tarnfs_format::Options {
            ignore_zeros: shape.ignore_zeros,
            gnu_incremental: shape.gnu_incremental,
            ..tarnfs_format::Options::default()
        };
        let mut receive = |event, _: &mut dyn tarnfs_format::Stream| {
            if let Event::Entry(entry) = event {
                writer.add(&entry).unwrap();
            }
            Ok(())
        };
        format
            .forwards()
            .unwrap()
            .read(&mut SourceStream::new(Arc::clone(&stream), Cancel::default()), &options, &mut receive)
            .unwrap();
    } else {
        let name = archive.file_stem().unwrap().to_str().unwrap();
        let length = stream.len();
        let body = Body { offset: 0, stored: length, size: length, ..Body::default() };
        let entry = Entry { path: name.into(), mode: 0o644, body, ..Entry::default() };
        writer.add(&entry).unwrap();
    }
    let summary = Summary {
        archive: Archive { length: source.len(), fingerprint: Fingerprint::of(&*source).unwrap(), modified },
        name: None,
        shape: shape.clone(),
        layers,
        format: format.map_or("file", |format| format.name()).into(),
        end: stream.len(),
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
    };
    (writer.finish(summary, &Destination::Memory).unwrap(), source)
}
