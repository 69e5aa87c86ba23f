//! Damage that no codec notices.

use super::*;

/// Bytes of a block, and of these those that are stored in it. The rest is copied from 6144 bytes before it: from the
/// block before, and from what is stored in this one.
const BLOCK: usize = 8192;
const STORED: usize = 4096;
const BACK: usize = 6144;

/// A frame of lz4 whose blocks depend on each other, without checksums, of so many blocks; where in it the bytes begin
/// that are stored in each; and what it holds.
fn linked(blocks: usize) -> (Vec<u8>, Vec<usize>, Vec<u8>) {
    let descriptor = [0x40, 0x40];
    let check = (xxhash_rust::xxh32::xxh32(&descriptor, 0) >> 8) as u8;
    let mut packed = [&0x184D_2204_u32.to_le_bytes()[..], &descriptor, &[check]].concat();
    let mut state = 88_172_645_463_325_252_u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..length).map(next).collect()
    };
    // A length behind a token: what it counts, without the 15 of the token.
    let more = |length: usize| [vec![255; (length - 15) / 255], vec![((length - 15) % 255) as u8]].concat();
    let (mut starts, mut bytes) = (Vec::new(), Vec::new());
    for number in 0..blocks {
        if number == 0 {
            let first = noise(BLOCK);
            packed.extend((BLOCK as u32 | 1 << 31).to_le_bytes());
            starts.push(packed.len());
            packed.extend(&first);
            bytes.extend(first);
            continue;
        }
        let (stored, last) = (noise(STORED), noise(12));
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

/// What is decoded of what stands for bytes that cannot be read is not shown, nor what is copied from there.
#[test]
fn what_is_decoded_of_damage_is_not_shown() {
    let (packed, starts, bytes) = linked(60);
    for damaged in [None, Some(30), Some(59)] {
        let range = damaged.map_or(0..0, |block| starts[block] as u64 + 1024..starts[block] as u64 + 1025);
        let (length, content) = (packed.len() as u64, packed.clone());
        let open = move |_: &[u8]| -> io::Result<SharedSource> {
            Ok(Arc::new(Damaged(MemorySource::new(content.clone(), "whole"), range.clone())))
        };
        let file = crate::toy::File { name: b"x.lz4".to_vec(), position: 1, size: length, ..Default::default() };
        let mut how = how(None);
        how.options.decoding.seek_point_spacing = Some(BLOCK as u64);
        let tree = LazyTree::new(Base::Other(Arc::new(Toy::new(vec![file], Box::new(open)))), how).unwrap();
        let archive = tree.lookup(Node::ROOT, b"x.lz4").unwrap();
        let source = tree.open(tree.lookup(archive.node, b"x").unwrap().node).unwrap();
        let read = |number: usize| {
            let mut piece = vec![0; BLOCK];
            let read = source.read_exact_at(&mut piece, (number * BLOCK) as u64);
            let is_right = piece == bytes[number * BLOCK..][..BLOCK];
            read.map(|()| assert!(is_right, "{damaged:?}: block {number} is wrong"))
        };
        // Backwards, so that no decoder goes on.
        for number in (0..60).rev() {
            let read = read(number);
            let is_before = damaged.is_none_or(|damaged| number < damaged);
            assert_eq!(read.is_ok(), is_before, "{damaged:?}: block {number}: {read:?}");
        }
    }
}
