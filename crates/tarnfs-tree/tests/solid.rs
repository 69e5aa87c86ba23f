//! Files that were compressed together, of each of which the archive has a hash.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io;

use sha1::{Digest, Sha1};
use tarnfs_source::Cancel;
use tarnfs_tree::open::{DecodingOptions, OpenArchive, Options};
use tarnfs_tree::{Error, Node, Tree};

use common::{memory, open, options};

/// Bytes of a chunk of the resource, and where it begins in the archive.
const CHUNK: u32 = 64 << 10;
const START: usize = 208;

/// The second one is longer than what is compared before its first byte is served.
const FILES: [(&str, usize); 4] = [("a", 100_000), ("b", 17 << 20), ("c", 5), ("d", 300_000)];

/// An image of Windows with these files in one solid resource, which is not compressed; and where each begins.
fn image() -> (Vec<u8>, Vec<Vec<u8>>, Vec<usize>) {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let dentry = |attributes: u32, below: u64, name: &str, hash: &[u8]| {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut own = vec![0; 102];
        own[..8].copy_from_slice(&(104 + name.len() as u64).to_le_bytes());
        own[8..12].copy_from_slice(&attributes.to_le_bytes());
        own[12..16].fill(0xff);
        own[16..24].copy_from_slice(&below.to_le_bytes());
        own[64..64 + hash.len()].copy_from_slice(hash);
        own[100] = name.len() as u8;
        own.extend([&name[..], &[0; 2]].concat());
        own.resize(own.len().next_multiple_of(8), 0);
        own
    };
    let contents: Vec<Vec<u8>> = FILES
        .iter()
        .enumerate()
        .map(|(file, (_, length))| (0..*length).map(|at| (at / 7 + at * file) as u8).collect())
        .collect();
    let all = contents.concat();
    let chunks: Vec<u8> = all.chunks(CHUNK as usize).flat_map(|chunk| (chunk.len() as u32).to_le_bytes()).collect();
    let head = [&words(&[all.len() as u64])[..], &CHUNK.to_le_bytes(), &[0; 4], &chunks].concat();
    let resource = [&head, &all].map(|part| &part[..]).concat();
    let mut tree = [words(&[8]), dentry(0x10, 8 + 104, "", &[])].concat();
    let mut table = [words(&[resource.len() as u64 | 16 << 56, START as u64, 1 << 32]), vec![0; 26]].concat();
    table[24] = 1;
    let (mut starts, mut at) = (Vec::new(), 0);
    for ((name, length), content) in FILES.iter().zip(&contents) {
        let hash = Sha1::digest(content);
        tree.extend(dentry(0x80, 0, name, &hash));
        table.extend(
            [&words(&[*length as u64 | 16 << 56, at, *length as u64])[..], &[1, 0, 1, 0, 0, 0], &hash].concat(),
        );
        starts.push(START + head.len() + at as usize);
        at += *length as u64;
    }
    tree.extend([0; 8]);
    let tree_at = (START + resource.len()) as u64;
    let of_tree = [words(&[tree.len() as u64 | 2 << 56, tree_at, tree.len() as u64]), vec![0; 26]].concat();
    table.extend(of_tree);
    let last = table.len() - 26;
    table[last] = 1;
    let mut header = [&b"MSWIM\0\0\0"[..], &[208, 0xe00, 0, CHUNK].map(u32::to_le_bytes).concat(), &[0; 184]].concat();
    header[40..48].copy_from_slice(&[1, 0, 1, 0, 1, 0, 0, 0]);
    header[48..72].copy_from_slice(&words(&[table.len() as u64, tree_at + tree.len() as u64, table.len() as u64]));
    ([header, resource, tree, table].concat(), contents, starts)
}

fn opened(bytes: &[u8], force: bool) -> OpenArchive {
    let options = options();
    let options = Options { decoding: DecodingOptions { force, ..options.decoding }, ..options };
    open(memory("a.wim", bytes), &options).unwrap()
}

fn read(opened: &OpenArchive, name: &str) -> Result<Vec<u8>, Error> {
    let node = opened.tree.lookup(Node::ROOT, name.as_bytes()).unwrap().node;
    let source = opened.tree.open(node)?;
    let mut bytes = vec![0; source.len() as usize];
    source.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// > Without `--force`, bytes whose checksum does not match are never served. Reading that range is an error, and the
/// > rest of the file is read.
///
/// Nothing was compared: the resource that they lie in has no check of its own.
#[test]
fn a_file_of_a_solid_resource_with_a_wrong_hash_is_not_served_and_takes_nothing_from_others() {
    let (image, contents, starts) = image();
    let whole = opened(&image, false);
    assert_eq!(whole.index.summary().notes.len(), 0);
    for ((name, _), content) in FILES.iter().zip(&contents) {
        assert!(read(&whole, name).unwrap() == *content, "{name}");
    }
    let found = whole.tree.damaged(9, &Cancel::default()).unwrap();
    assert_eq!((found.files, found.damaged, found.unchecked), (4, 0, 0));
    for (wrong, inside) in [(0, 50_000), (1, 10 << 20), (2, 3), (3, 299_999)] {
        let (mut damaged, mut changed) = (image.clone(), contents.clone());
        damaged[starts[wrong] + inside] ^= 1;
        changed[wrong][inside] ^= 1;
        let (strict, lenient) = (opened(&damaged, false), opened(&damaged, true));
        for (at, (name, _)) in FILES.iter().enumerate() {
            match read(&strict, name) {
                Err(Error::Io(error)) if at == wrong => assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}"),
                found => assert!(at != wrong && found.unwrap() == contents[at], "{name}, wrong is {wrong}"),
            }
            assert!(read(&lenient, name).unwrap() == changed[at], "{name}, wrong is {wrong}");
        }
        let found = opened(&damaged, false).tree.damaged(9, &Cancel::default()).unwrap();
        assert_eq!((found.damaged, &found.first[0].0[..]), (1, FILES[wrong].0.as_bytes()));
    }
}
