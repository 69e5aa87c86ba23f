//! A few bytes of an image may stand for very many: holes, and blocks that its files share.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use rustix::io::Errno;
use tarnfs_index::Shape;
use tarnfs_tree::{Node, Tree};

use common::{ImageFile, deflated, image, memory, open, options};

fn common_options(shape: Shape) -> tarnfs_tree::open::Options {
    tarnfs_tree::open::Options { shape, ..options() }
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
    let other = budget.alone_for_now().unwrap();
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
    // While it is open, others can be read.
    drop((budget.alone_for_now().unwrap(), read(short)));
}
