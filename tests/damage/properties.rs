//! Any tree that tar can store reads back equal, from every dialect and compression, at any offset.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::support::{Scratch, run};
use proptest::prelude::*;

/// A file of the tree: its bytes, or where a link points.
#[derive(Debug, Clone)]
enum Leaf {
    File(Vec<u8>),
    Symlink(String),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    // Any byte but NUL and '/'; not only dots.
    prop::collection::vec(prop_oneof![8 => b'a'..=b'e', 1 => 1_u8..=255], 1..40)
        .prop_map(|mut name| {
            name.retain(|&byte| byte != b'/');
            name.insert(0, b'n');
            name
        })
        .prop_filter("long names are tested elsewhere", |name| name.len() < 200)
}

fn leaf() -> impl Strategy<Value = Leaf> {
    prop_oneof![
        4 => (0_usize..200_000, any::<u64>(), 1_u32..8).prop_map(|(length, seed, spread)| {
            // From very repetitive to random.
            let mut state = seed | 1;
            Leaf::File((0..length).map(|_| { state ^= state << 13; state ^= state >> 7; state ^= state << 17; (state % (1 << spread)) as u8 }).collect())
        }),
        1 => "[a-z/.]{1,150}".prop_map(Leaf::Symlink),
    ]
}

fn tree() -> impl Strategy<Value = BTreeMap<Vec<Vec<u8>>, Leaf>> {
    prop::collection::btree_map(prop::collection::vec(name(), 1..5), leaf(), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_reads_back(tree in tree(), format in prop::sample::select(vec!["gnu", "posix", "oldgnu"]),
                           tool in prop::sample::select(vec!["cat", "gzip -1", "bzip2 -1", "xz -0 --block-size=64KiB", "zstd -q", "lz4 -q"])) {
        let scratch = Scratch::new();
        let root = scratch.folder("tree");
        let mut expected = BTreeMap::new();
        for (components, leaf) in &tree {
            let path: PathBuf = components.iter().map(|name| std::ffi::OsStr::from_bytes(name)).collect();
            // A name that is a file in one path and a folder in another cannot be made; leave it out.
            if fs::create_dir_all(root.join(&path).parent().unwrap()).is_err() || root.join(&path).exists() {
                continue;
            }
            match leaf {
                Leaf::File(bytes) => fs::write(root.join(&path), bytes).unwrap(),
                Leaf::Symlink(target) => std::os::unix::fs::symlink(target, root.join(&path)).unwrap(),
            }
            expected.insert(path, leaf.clone());
        }
        scratch.shell(&format!("tar --format={format} -C tree -c . | {tool} > archive"));
        let archive = scratch.path("archive");
        for (path, leaf) in &expected {
            let archive = archive.as_os_str();
            match leaf {
                Leaf::File(bytes) => {
                    let out = run(&scratch, ["cat".as_ref(), "--index-minimum-file-count=0".as_ref(), archive, path.as_os_str()]).ok().out;
                    prop_assert!(out == *bytes, "{}", path.display());
                }
                Leaf::Symlink(target) => {
                    let text = run(&scratch, ["stat".as_ref(), archive, path.as_os_str()]).ok().text();
                    let line = format!("Target: {target}\n");
                    prop_assert!(text.contains(&line), "{}: {text}", path.display());
                }
            }
        }
        let listed = run(&scratch, ["ls".as_ref(), "-R".as_ref(), "--json".as_ref(), archive.as_os_str()]).ok().text();
        let folders = walk(&root);
        prop_assert_eq!(listed.lines().count(), folders);
    }
}

fn walk(root: &std::path::Path) -> usize {
    fs::read_dir(root)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            1 + if entry.file_type().unwrap().is_dir() { walk(&entry.path()) } else { 0 }
        })
        .sum()
}
