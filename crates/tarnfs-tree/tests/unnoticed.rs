//! Damage that the codec of what lies in a damaged archive does not notice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use tarnfs_index::{Recursion, Shape};
use tarnfs_tree::open::{DecodingOptions, Options};
use tarnfs_tree::{Node, Tree};

use common::{member, memory, open, options};

/// Bytes of a block, and of these those that are stored in it. The rest is copied from 6144 bytes before it: from the
/// block before, and from what is stored in this one.
const BLOCK: usize = 8192;
const STORED: usize = 4096;
const BACK: usize = 6144;

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = 0x0139_408d_cbbf_7a44 ^ seed;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(next).collect()
}

/// A frame of lz4 whose blocks depend on each other, without checksums; where in it the bytes begin that are stored in
/// each; and what it holds.
fn linked(blocks: usize, seed: u64) -> (Vec<u8>, Vec<usize>, Vec<u8>) {
    let descriptor = [0x40, 0x40];
    let check = (xxhash_rust::xxh32::xxh32(&descriptor, 0) >> 8) as u8;
    let mut packed = [&0x184D_2204_u32.to_le_bytes()[..], &descriptor, &[check]].concat();
    // A length behind a token: what it counts, without the 15 of the token.
    let more = |length: usize| [vec![255; (length - 15) / 255], vec![((length - 15) % 255) as u8]].concat();
    let (mut starts, mut bytes) = (Vec::new(), noise(BLOCK, seed));
    packed.extend((BLOCK as u32 | 1 << 31).to_le_bytes());
    starts.push(packed.len());
    packed.extend(&bytes);
    for number in 1..blocks as u64 {
        let (stored, last) = (noise(STORED, seed + 1000 * number), noise(12, seed + 1000 * number + 1));
        let copied = BLOCK - STORED - last.len();
        let before = [&[0xff][..], &more(STORED)].concat();
        let back = (BACK as u16).to_le_bytes();
        let block = [&before[..], &stored, &back, &more(copied - 4), &[12 << 4], &last].concat();
        packed.extend((block.len() as u32).to_le_bytes());
        starts.push(packed.len() + before.len());
        packed.extend(block);
        bytes.extend(stored);
        for _ in 0..copied {
            bytes.push(bytes[bytes.len() - BACK]);
        }
        bytes.extend(last);
    }
    packed.extend([0; 4]);
    (packed, starts, bytes)
}

/// A gzip file of members of 1000 bytes, each with its bytes as they are. One of `bytes` is another one in it.
fn gzip(bytes: &[u8], damaged: Option<usize>) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, part) in bytes.chunks(1000).enumerate() {
        out.extend(b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01");
        out.extend((part.len() as u16).to_le_bytes());
        out.extend((!(part.len() as u16)).to_le_bytes());
        let start = out.len();
        out.extend(part);
        if let Some(at) = damaged.and_then(|damaged| damaged.checked_sub(number * 1000)).filter(|&at| at < part.len()) {
            out[start + at] ^= 0x10;
        }
        out.extend(crc32fast::hash(part).to_le_bytes());
        out.extend((part.len() as u32).to_le_bytes());
    }
    out
}

fn recursive(force: bool) -> Options {
    let extensions = tarnfs_tree::DEFAULT_EXTENSIONS.map(str::to_owned).into();
    let recursion = Recursion { extensions, ..Recursion::default() };
    let options = options();
    Options {
        shape: Shape { recursion: Some(recursion), ..options.shape },
        decoding: DecodingOptions { seek_point_spacing: Some(BLOCK as u64), force, ..options.decoding },
        ..options
    }
}

fn find(tree: &dyn Tree, path: &str) -> Node {
    path.split('/').fold(Node::ROOT, |folder, name| tree.lookup(folder, name.as_bytes()).unwrap().node)
}

/// Which blocks of a file can be read, each by itself and backwards, so that no decoder goes on. None is wrong unless
/// wrong ones are asked for.
fn readable(tree: &dyn Tree, path: &str, bytes: &[u8], unverified: bool) -> Vec<bool> {
    let source = tree.open(find(tree, path)).unwrap();
    let mut readable: Vec<bool> = (0..bytes.len() / BLOCK)
        .rev()
        .map(|number| {
            let mut block = vec![0; BLOCK];
            let read = source.read_exact_at(&mut block, (number * BLOCK) as u64);
            let is_right = block == bytes[number * BLOCK..][..BLOCK];
            assert!(read.is_err() || is_right || unverified, "{path}: block {number} is wrong");
            read.is_ok()
        })
        .collect();
    readable.reverse();
    readable
}

/// What is in a compressed file in a damaged archive is served up to the damage. Behind it, its blocks were decoded
/// from wrong bytes, also those whose own input is right.
#[test]
fn what_is_decoded_from_damage_is_damaged() {
    let (packed, starts, bytes) = linked(60, 1);
    let (other, _, others) = linked(60, 2);
    let before = member(b'0', "b.lz4", &other);
    let tar = [before.clone(), member(b'0', "x.lz4", &packed), member(b'0', "y.lz4", &other), vec![0; 1024]].concat();
    let cases = [(None, false), (Some(0), false), (Some(30), false), (Some(59), false), (Some(30), true)];
    for (damaged, unverified) in cases {
        let at = damaged.map(|block| before.len() + 512 + starts[block] + 1024);
        let opened = open(memory("archive.tar.gz", &gzip(&tar, at)), &recursive(unverified)).unwrap();
        let tree = &*opened.tree;
        for name in ["b", "y"] {
            let path = format!("{name}.lz4/{name}");
            assert!(readable(tree, &path, &others, false).iter().all(|&is| is), "{damaged:?}: {path}");
        }
        let read = readable(tree, "x.lz4/x", &bytes, unverified);
        // Input is read ahead: of the blocks just before the damage some may be refused.
        let is_known = |number: &usize| damaged.is_none_or(|damaged| *number >= damaged || *number + 8 < damaged);
        let expected = |number: usize| unverified || damaged.is_none_or(|damaged| number < damaged);
        let differ: Vec<usize> = (0..60).filter(is_known).filter(|&number| read[number] != expected(number)).collect();
        assert!(differ.is_empty(), "{damaged:?}, {unverified}: {differ:?}");
    }
}

/// What lies in what was decoded from damage is damaged, too, at any depth.
#[test]
fn damage_goes_on_inwards() {
    let (packed, _, bytes) = linked(60, 3);
    // A tar in which a long one lies behind the damage, in blocks that depend on it.
    let first = noise(30 * BLOCK, 4);
    let tar = [member(b'0', "first", &first), member(b'0', "x.lz4", &packed), vec![0; 1024]].concat();
    let outer = [member(b'0', "in.tar.lz4", &stored(&tar)), vec![0; 1024]].concat();
    for damaged in [None, Some(10_000)] {
        let opened = open(memory("archive.tar.gz", &gzip(&outer, damaged)), &recursive(false)).unwrap();
        let tree = &*opened.tree;
        let read = readable(tree, "in.tar.lz4/first", &first, false);
        assert!(damaged.is_none_or(|_| read.contains(&false)), "{read:?}");
        let read = readable(tree, "in.tar.lz4/x.lz4/x", &bytes, false);
        // Nothing tells in that stream where the wrong bytes end.
        assert!(read.iter().all(|&is| is == damaged.is_none()), "{damaged:?}: {read:?}");
    }
}

/// A frame of lz4 of blocks that are stored.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let descriptor = [0x60, 0x40];
    let check = (xxhash_rust::xxh32::xxh32(&descriptor, 0) >> 8) as u8;
    let mut packed = [&0x184D_2204_u32.to_le_bytes()[..], &descriptor, &[check]].concat();
    for block in bytes.chunks(64 << 10) {
        packed.extend((block.len() as u32 | 1 << 31).to_le_bytes());
        packed.extend(block);
    }
    packed.extend([0; 4]);
    packed
}
