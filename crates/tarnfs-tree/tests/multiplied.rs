//! A few bytes of an image may stand for very many: holes, and blocks that its files share. And what lies behind a
//! block that is damaged is right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::Write;
use std::sync::Barrier;
use std::time::Duration;

use rustix::io::Errno;
use tarnfs_index::{Recursion, Shape};
use tarnfs_tree::{Base, Lazily, LazyTree, Node, Tree, Waiting as _};

use common::{ImageFile, deflated, image, member, memory, open, options, paths};

const BLOCK: u32 = 1 << 20;

/// Bytes of a file, which begins with `first` and ends with `last`, and has a hole of `blocks` blocks between them.
fn with_hole(name: &str, (first, blocks, last): (&[u8], usize, &[u8])) -> (Vec<u8>, ImageFile) {
    let padded = |bytes: &[u8]| {
        let mut block = bytes.to_vec();
        block.resize(BLOCK as usize, 0);
        deflated(&block)
    };
    let (first, mut sizes) = (padded(first), vec![0; blocks + 1]);
    sizes[0] = first.len() as u32;
    let mut run = first;
    if !last.is_empty() {
        let last = padded(last);
        sizes.push(last.len() as u32);
        run.extend(last);
    }
    let size = sizes.len() as u64 * u64::from(BLOCK);
    (run, ImageFile { name: name.to_owned(), size, blocks: sizes, start: 0 })
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let config = zlib_rs::DeflateConfig { window_bits: 15 + 16, ..zlib_rs::DeflateConfig::default() };
    let mut packed = vec![0; zlib_rs::compress_bound(bytes.len()) + 64];
    let (packed, code) = zlib_rs::compress_slice(&mut packed, bytes, config);
    assert_eq!(code, zlib_rs::ReturnCode::Ok);
    packed.to_vec()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn recursive() -> Shape {
    let extensions = [".tar", ".gz", ".xz"].map(str::to_owned).into();
    Shape { recursion: Some(Recursion { extensions, ..Recursion::default() }), ..Shape::default() }
}

/// Behind a compressed file there may be any number of zeros. Of more than anybody can read, the first are enough, and
/// what is between others is a bomb.
#[test]
fn holes_in_compressed_files_take_no_time() {
    let tar = [member(b'0', "first", b"content"), vec![0; 1024]].concat();
    for (end, packed) in [(".gz", gzip(&tar)), (".xz", xz(&tar))] {
        let name = format!("x.tar{end}");
        for last in [&b""[..], b"more"] {
            // 1 TiB.
            let (run, file) = with_hole(&name, (&packed, 1 << 20, last));
            let image = image(BLOCK, &[run], &[file]);
            let opened = open(memory("image", &image), &common_options(recursive())).unwrap();
            let seen = paths(&*opened.tree);
            assert!(seen.contains(&format!("/{name}/first").into_bytes()), "{seen:?}");
            let notes = &opened.index.summary().notes;
            // What is behind the hole is found, and is nothing compressed.
            assert_eq!(notes.is_empty(), last.is_empty(), "{name}: {notes:?}");
        }
    }
}

fn common_options(shape: Shape) -> tarnfs_tree::open::Options {
    tarnfs_tree::open::Options { shape, ..options() }
}

/// Holes that would take too long are not hashed, wherever they are.
#[test]
fn holes_in_an_image_are_not_hashed() {
    // 6 TiB, and in one that is stored in a tar in a hole.
    let (run, big) = with_hole("big", (b"content", 6 << 20, b""));
    let mut header = member(b'0', "inner", b"");
    // Its size in base 256, and the sum of the header once more.
    header[124..136].copy_from_slice(&[&[0x80, 0, 0, 0][..], &(6_u64 << 40).to_be_bytes()].concat());
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let (of_tar, tar) = with_hole("hole.tar", (&header, 6 << 20, b""));
    let small = deflated(&[b'x'; 1000]);
    let files = [
        big,
        ImageFile { start: 1, ..tar },
        ImageFile { name: "small".to_owned(), size: 1000, start: 2, blocks: vec![small.len() as u32] },
    ];
    let image = image(BLOCK, &[run, of_tar, small], &files);
    for shape in [Shape::default(), recursive()] {
        let is_recursive = shape.recursion.is_some();
        let options = common_options(Shape { hashes: vec!["crc32".to_owned()], ..shape });
        let tree = open(memory("image", &image), &options).unwrap().tree;
        let hashes = |node: Node| tree.xattrs(node).unwrap().len();
        let found = |folder: Node, name: &str| tree.lookup(folder, name.as_bytes()).unwrap().node;
        assert_eq!(["big", "small"].map(|name| hashes(found(Node::ROOT, name))), [0, 1]);
        if is_recursive {
            assert_eq!(hashes(found(found(Node::ROOT, "hole.tar"), "inner")), 0);
        }
    }
}

/// A list of pieces that is long is read only when there is room for it, by one at a time.
#[test]
fn long_lists_of_pieces_wait_for_memory() {
    const SMALL: u32 = 4096;
    let block = deflated(&[b'a'; SMALL as usize]);
    let file = |name: &str, count: usize| ImageFile {
        name: name.to_owned(),
        size: count as u64 * u64::from(SMALL),
        start: 0,
        blocks: vec![block.len() as u32; count],
    };
    let image = image(SMALL, &[block.repeat(10_000)], &[file("long", 10_000), file("short", 100)]);
    let options = common_options(Shape::default());
    let budget = options.decoding.cache.budget().clone();
    let opened = open(memory("image", &image), &options).unwrap();
    let tree = &*opened.tree;
    let [long, short] = ["long", "short"].map(|name| tree.lookup(Node::ROOT, name.as_bytes()).unwrap().node);
    assert_eq!([long, short].map(|node| tree.is_ready(node)), [false, true]);
    let other = budget.alone_for_now(Duration::ZERO).unwrap();
    assert_eq!(tree.open(long).unwrap_err().errno(), Errno::NOMEM);
    assert_eq!(tree.damage(long).unwrap(), None);
    let read = |node: Node| {
        let source = tree.open(node).unwrap();
        let (mut bytes, at) = ([0; 10], source.len() - 10);
        source.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(bytes, [b'a'; 10]);
        source
    };
    drop(read(short));
    drop(other);
    let before = budget.used();
    let source = read(long);
    assert!(source.memory() > 10_000 * 64 && budget.used() > before + 10_000 * 64);
    // Those who come at the same time wait for each other.
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                drop(read(long));
            });
        }
    });
    // While it is open, others can be read.
    drop((budget.alone_for_now(Duration::ZERO).unwrap(), read(short)));
}

/// A block of an image that is damaged costs what lies in it of an archive, and not what comes behind it.
#[test]
fn members_behind_a_damaged_block_are_right() {
    const SMALL: u32 = 128 << 10;
    let text = |number: u32| -> Vec<u8> {
        let mut state = number;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"0123456789abcdef"[(state >> 28) as usize]
        };
        (0..20_000).map(next).collect()
    };
    let mut tar: Vec<u8> = (0..200).flat_map(|number| member(b'0', &format!("f{number}"), &text(number))).collect();
    tar.resize(tar.len() + 1024, 0);
    let (mut run, mut blocks) = (Vec::new(), Vec::new());
    for (number, block) in tar.chunks(SMALL as usize).enumerate() {
        let mut block = deflated(block);
        if number == 10 {
            let half = block.len() / 2;
            block[half..half + 4].fill(0xff);
        }
        blocks.push(block.len() as u32);
        run.extend(block);
    }
    let file = ImageFile { name: "x.tar".to_owned(), size: tar.len() as u64, start: 0, blocks };
    let opened = open(memory("image", &image(SMALL, &[run], &[file])), &common_options(recursive())).unwrap();
    let tree = &*opened.tree;
    let folder = tree.lookup(Node::ROOT, b"x.tar").unwrap().node;
    let (mut right, mut refused) = (0, 0);
    for number in 0..200 {
        let Ok(file) = tree.lookup(folder, format!("f{number}").as_bytes()) else { continue };
        let is_known = tree.damage(file.node).unwrap().is_some();
        if let Ok(bytes) = common::content(tree, file.node) {
            assert!(bytes == text(number) && !is_known, "{number}");
            right += 1;
        } else {
            assert!(is_known, "{number}");
            refused += 1;
        }
    }
    // The last one before the block goes on in it.
    assert!(right >= 190 && refused == 1, "{right} are right, {refused} refused");
    let notes = &opened.index.summary().notes;
    assert!(notes.iter().any(|(_, what)| what.starts_with("x.tar: ")), "{notes:?}");
}

/// A member of a cpio archive ("newc").
fn newc(name: &str, mode: u32, content: &[u8]) -> Vec<u8> {
    let (length, name_length) = (content.len(), name.len() + 1);
    let numbers = [1, mode, 0, 0, 1, 1, length as u32, 0, 0, 0, 0, name_length as u32, 0];
    let mut bytes = b"070701".to_vec();
    for number in numbers {
        bytes.extend(format!("{number:08x}").bytes());
    }
    bytes.extend([name.as_bytes(), &[0]].concat());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// What stands in place of a damaged block is nobody's name, and leads nowhere.
#[test]
fn nothing_is_made_up_of_a_damaged_block() {
    const SMALL: usize = 4096;
    let mut state = 1_u32;
    let mut text = |length: usize| -> Vec<u8> {
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"0123456789abcdef"[(state >> 28) as usize]
        };
        (0..length).map(next).collect()
    };
    let (name, target) = ("a_name_that_goes_on_in_the_next_block", b"../../../where/it/leads");
    // The header of a link ends where a block does, or its name goes on behind that.
    for in_name in [0, 20] {
        let header = 110 + (name.len() + 1).next_multiple_of(4) - 2 - in_name;
        let first = text(2 * SMALL - 116 - header);
        let mut cpio = newc("first", 0o100_644, &first);
        cpio.extend(newc(name, 0o120_777, target));
        cpio.extend(newc("lost", 0o100_644, &text(2 * SMALL)));
        let last = text(1000);
        cpio.extend(newc("last", 0o100_644, &last));
        cpio.extend(newc("TRAILER!!!", 0, b""));
        let (mut run, mut blocks) = (Vec::new(), Vec::new());
        for (number, block) in cpio.chunks(SMALL).enumerate() {
            let mut block = deflated(block);
            if number == 2 {
                let half = block.len() / 2;
                block[half..half + 4].fill(0xff);
            }
            blocks.push(block.len() as u32);
            run.extend(block);
        }
        let file = ImageFile { name: "x.cpio".to_owned(), size: cpio.len() as u64, start: 0, blocks };
        let recursion = Recursion { extensions: [".cpio".to_owned()].into(), ..Recursion::default() };
        let shape = Shape { recursion: Some(recursion), ..Shape::default() };
        let lazily = shape.clone();
        let image = image(SMALL as u32, &[run], &[file]);
        let opened = open(memory("image", &image), &common_options(shape)).unwrap();
        let tree = &*opened.tree;
        assert_eq!(paths(tree), [&b"/x.cpio"[..], b"/x.cpio/first", b"/x.cpio/last"], "{in_name}");
        let folder = tree.lookup(Node::ROOT, b"x.cpio").unwrap().node;
        for (name, content) in [("first", &first), ("last", &last)] {
            let file = tree.lookup(folder, name.as_bytes()).unwrap().node;
            assert!(common::content(tree, file).unwrap() == *content, "{name}");
        }
        let notes = &opened.index.summary().notes;
        assert!(notes.iter().any(|(_, what)| what.contains("it is left out")), "{notes:?}");
        // So it is where the archive is opened when somebody looks into it.
        let plain = open(memory("image", &image), &common_options(Shape::default())).unwrap();
        let options = common_options(lazily);
        let how = Lazily { options, all: false, most_open: 4, mountpoint: None };
        let tree = LazyTree::new(Base::Other(plain.tree), how).unwrap();
        let folder = tree.lookup(Node::ROOT, b"x.cpio").unwrap().node;
        let mut names = Vec::new();
        tree.read_dir(folder, 0, &mut |child| {
            names.push(child.name.to_vec());
            true
        })
        .unwrap();
        names.sort();
        assert_eq!(names, [&b"first"[..], b"last"], "{in_name}");
    }
}

/// What a compressed file holds has a path as all others.
#[test]
fn paths_of_what_was_compressed_are_transformed() {
    let text = gzip(b"text");
    let transform = |from: &str, to: &str| Some((from.to_owned(), to.to_owned()));
    let shape = Shape { transform: transform("^/archive$", "/top/words"), ..Shape::default() };
    let opened = open(memory("text.gz", &text), &common_options(shape)).unwrap();
    assert_eq!(paths(&*opened.tree), [&b"/top"[..], b"/top/words"]);
    let tar = [member(b'0', "text.gz", &text), vec![0; 1024]].concat();
    let shape = Shape { transform: transform("text$", "words"), ..recursive() };
    let opened = open(memory("o.tar", &tar), &common_options(shape)).unwrap();
    assert_eq!(paths(&*opened.tree), [&b"/text.gz"[..], b"/text.gz/words"]);
}
