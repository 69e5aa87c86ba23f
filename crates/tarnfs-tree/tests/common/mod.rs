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
    let (mut locals, mut central) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let (crc, length) = (crc32fast::hash(bytes).to_le_bytes(), (bytes.len() as u32).to_le_bytes());
        // From the version that is needed to the lengths of the name and of what follows it.
        let shared = [
            &[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0x58][..],
            &crc,
            &length,
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
    let facts = FileFacts { owner, modified: 1_700_000_000_000_000_000 };
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
