//! What the tests of trees share.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tarnfs_codec::engine::PieceCache;
use tarnfs_index::trust;
use tarnfs_source::{Budget, MemorySource, SharedSource};
use tarnfs_tree::open::{DecodingOptions, FileFacts, IndexOptions, IndexPlace, OpenArchive, Options};
use tarnfs_tree::{Error, Kind, Node, Tree};

/// A small archive of one of everything, in each compression.
pub(crate) fn archives() -> Vec<(&'static str, Vec<u8>)> {
    let compressed: [(_, &[u8]); 5] = [
        ("gz", include_bytes!("../../../../fuzz/archives/tree.tar.gz")),
        ("bz2", include_bytes!("../../../../fuzz/archives/tree.tar.bz2")),
        ("xz", include_bytes!("../../../../fuzz/archives/tree.tar.xz")),
        ("zst", include_bytes!("../../../../fuzz/archives/tree.tar.zst")),
        ("lz4", include_bytes!("../../../../fuzz/archives/tree.tar.lz4")),
    ];
    let mut archives: Vec<_> = compressed.map(|(name, bytes)| (name, bytes.to_vec())).into();
    let opened = open(memory("gz", &archives[0].1), &options()).unwrap();
    let mut plain = vec![0; opened.stream.len() as usize];
    opened.stream.read_exact_at(&mut plain, 0).unwrap();
    archives.push(("tar", plain));
    archives
}

/// A member of a tar: its header and content.
pub(crate) fn member(kind: u8, name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[136..147].copy_from_slice(b"00000000001");
    header[148..156].copy_from_slice(b"        ");
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut member = [&header[..], content].concat();
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

/// A zip archive of files that are stored as they are.
pub(crate) fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    zip_with(files, false)
}

/// The same of files that are deflated, or stored.
pub(crate) fn zip_with(files: &[(&str, &[u8])], is_deflated: bool) -> Vec<u8> {
    let (mut locals, mut central) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let (crc, length) = (crc32fast::hash(bytes).to_le_bytes(), (bytes.len() as u32).to_le_bytes());
        // Without the header and the checksum of zlib.
        let packed = is_deflated.then(|| deflated(bytes)).map(|packed| packed[2..packed.len() - 4].to_vec());
        let bytes = packed.as_deref().unwrap_or(bytes);
        // From the version that is needed to the lengths of the name and of what follows it.
        let shared = [
            &[20, 0, 0, 0, if is_deflated { 8 } else { 0 }, 0, 0, 0, 0x21, 0x58][..],
            &crc,
            &(bytes.len() as u32).to_le_bytes(),
            &length,
            &(name.len() as u16).to_le_bytes(),
            &[0; 2],
        ]
        .concat();
        let at = (locals.len() as u32).to_le_bytes();
        central.extend([&b"PK\x01\x02\x14\0"[..], &shared, &[0; 10], &at, name.as_bytes()].concat());
        locals.extend([&b"PK\x03\x04"[..], &shared, name.as_bytes(), bytes].concat());
    }
    let [at, size] = [&locals, &central].map(|part| (part.len() as u32).to_le_bytes());
    let count = (files.len() as u16).to_le_bytes();
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &size, &at, &[0; 2]].concat();
    [locals, central, end].concat()
}

/// A file of an image.
#[derive(Debug, Default)]
pub(crate) struct ImageFile {
    pub(crate) name: String,
    pub(crate) size: u64,
    /// Which of the runs of blocks it begins with.
    pub(crate) start: usize,
    /// Stored bytes of each of its blocks; 0 for a hole.
    pub(crate) blocks: Vec<u32>,
}

/// What zlib makes of `bytes`.
pub(crate) fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; zlib_rs::compress_bound(bytes.len()) + 64];
    let (packed, code) = zlib_rs::compress_slice(&mut packed, bytes, zlib_rs::DeflateConfig::default());
    assert_eq!(code, zlib_rs::ReturnCode::Ok);
    packed.to_vec()
}

/// Blocks of metadata, and where each begins.
fn metadata(bytes: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let (mut packed, mut starts) = (Vec::new(), Vec::new());
    for part in bytes.chunks(8192) {
        starts.push(packed.len());
        let smaller = Some(deflated(part)).filter(|smaller| smaller.len() < part.len());
        let is_stored = if smaller.is_none() { 1 << 15 } else { 0 };
        let part = smaller.unwrap_or_else(|| part.to_vec());
        packed.extend((part.len() as u16 | is_stored).to_le_bytes());
        packed.extend(part);
    }
    (packed, starts)
}

/// A squashfs image without fragments of `files` in its root, by their names, and of `runs` of blocks, which any of
/// them may share: https://dr-emann.github.io/squashfs/
pub(crate) fn image(block: u32, runs: &[Vec<u8>], files: &[ImageFile]) -> Vec<u8> {
    const NONE: u64 = u64::MAX;
    let numbers = |numbers: &[u64], bytes: usize| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()[..bytes].to_vec()).collect()
    };
    let mut out = vec![0; 96];
    let mut starts = Vec::new();
    for run in runs {
        starts.push(out.len() as u64);
        out.extend(run);
    }
    let (mut inodes, mut places) = (Vec::new(), Vec::new());
    for (number, file) in (2..).zip(files) {
        places.push(inodes.len());
        inodes.extend(numbers(&[9, 0o644, 0, 0], 2));
        inodes.extend(numbers(&[0, number], 4));
        inodes.extend(numbers(&[starts[file.start], file.size, 0], 8));
        inodes.extend(numbers(&[1, NONE, 0, NONE], 4));
        inodes.extend(file.blocks.iter().flat_map(|size| size.to_le_bytes()));
    }
    let root = inodes.len();
    let blocks = metadata(&[inodes.as_slice(), &[0; 64]].concat()).1;
    let mut folder = Vec::new();
    for (number, (file, place)) in (2_u64..).zip(files.iter().zip(places)) {
        // A header for each.
        folder.extend(numbers(&[0, blocks[place / 8192] as u64, number], 4));
        folder.extend(numbers(&[(place % 8192) as u64, 0, 2, file.name.len() as u64 - 1], 2));
        folder.extend(file.name.as_bytes());
    }
    inodes.extend(numbers(&[8, 0o755, 0, 0], 2));
    inodes.extend(numbers(&[0, 1, 2, folder.len() as u64 + 3, 0, files.len() as u64 + 2], 4));
    inodes.extend(numbers(&[0, 0], 2));
    inodes.extend(numbers(&[NONE], 4));
    let (packed, blocks) = metadata(&inodes);
    let root = (blocks[root / 8192] as u64) << 16 | (root % 8192) as u64;
    let table = |out: &mut Vec<u8>, bytes: &[u8]| {
        let at = out.len() as u64;
        out.extend(bytes);
        at
    };
    let inodes = table(&mut out, &packed);
    let folders = table(&mut out, &metadata(&folder).0);
    let fragments = out.len() as u64;
    let owner = table(&mut out, &metadata(&[0; 4]).0);
    let owners = table(&mut out, &owner.to_le_bytes());
    let head = [
        numbers(&[0x7371_7368, files.len() as u64 + 1, 0, block.into(), 0], 4),
        numbers(&[1, block.ilog2().into(), 0x10, 1, 4, 0], 2),
        numbers(&[root, out.len() as u64, owners, NONE, inodes, folders, fragments, NONE], 8),
    ];
    out[..96].copy_from_slice(&head.concat());
    out
}

pub(crate) fn memory(name: &str, bytes: &[u8]) -> SharedSource {
    Arc::new(MemorySource::new(bytes, name))
}

/// An index in memory, with as many seek points as there can be.
pub(crate) fn options() -> Options {
    Options {
        index: IndexOptions {
            place: IndexPlace::Memory,
            minimum_file_count: 0,
            is_trusted: true,
            ..IndexOptions::default()
        },
        decoding: DecodingOptions {
            seek_point_spacing: Some(4096),
            threads: 2,
            cache: PieceCache::new(Budget::new(64 << 20)),
            ..DecodingOptions::default()
        },
        ..Options::default()
    }
}

pub(crate) fn open(source: SharedSource, options: &Options) -> Result<OpenArchive, tarnfs_tree::open::Problem> {
    let owner = trust::Owner { user: 0, group: 0, mode: 0o644 };
    let facts = FileFacts { owner, modified: 1_700_000_000_000_000_000, identity: Some(1) };
    tarnfs_tree::open::open_source(source, facts, Path::new("archive"), options)
}

/// What is found at one path: its kind and length, and its content if it is a file.
pub(crate) type Found = (String, Option<Vec<u8>>);

/// Every path, with what is there. What cannot be listed or read is told to `failed`.
pub(crate) fn survey(tree: &dyn Tree, failed: &mut dyn FnMut(&[u8], Error)) -> BTreeMap<Vec<u8>, Found> {
    let mut found = BTreeMap::new();
    let mut open = vec![(Node::ROOT, Vec::new())];
    while let Some((folder, path)) = open.pop() {
        let mut children = Vec::new();
        let listed = tree.read_dir(folder, 0, &mut |child| {
            children.push((child.name.to_vec(), child.attributes));
            true
        });
        if let Err(error) = listed {
            failed(&path, error);
        }
        for (name, attributes) in children {
            let path = [path.as_slice(), b"/", &name].concat();
            if attributes.kind == Kind::Folder {
                open.push((attributes.node, path.clone()));
            }
            let content = (attributes.kind == Kind::File).then(|| content(tree, attributes.node));
            let content = match content.transpose() {
                Ok(content) => content,
                Err(error) => {
                    failed(&path, error);
                    None
                }
            };
            found.insert(path, (format!("{:?} {}", attributes.kind, attributes.size), content));
        }
    }
    found
}

/// All bytes of a file.
pub(crate) fn content(tree: &dyn Tree, node: Node) -> Result<Vec<u8>, Error> {
    let source = tree.open(node)?;
    // Only as much as there is of an archive of these tests, whatever an index says.
    let mut bytes = vec![0; source.len().min(4 << 20) as usize];
    source.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Every path of a tree in which nothing is broken, sorted.
pub(crate) fn paths(tree: &dyn Tree) -> Vec<Vec<u8>> {
    survey(tree, &mut |path, error| panic!("{}: {error}", path.escape_ascii())).into_keys().collect()
}
