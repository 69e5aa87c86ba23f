//! An archive in an archive shows the same tree whether it is compressed or not, also where its entries take each
//! other's places.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tarnfs_index::{Recursion, Shape};
use tarnfs_tree::open::Options;

use common::{Found, memory, open, options, survey};

/// An entry: type flag, path, target.
type Item = (u8, &'static str, &'static str);

/// A member of a tar as POSIX has it (ustar). Of a file, the bytes say where it stands.
fn member(kind: u8, name: &str, target: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    header[136..147].copy_from_slice(b"14000000000");
    header[148..156].fill(b' ');
    header[156] = kind;
    header[157..157 + target.len()].copy_from_slice(target.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
    header[154] = 0;
    let mut member = [&header[..], bytes].concat();
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

fn members(tar: &mut Vec<u8>, items: &[Item]) {
    for (number, (kind, name, target)) in items.iter().enumerate() {
        let bytes = if *kind == b'0' { number.to_string() } else { String::new() };
        tar.extend(member(*kind, name, target, bytes.as_bytes()));
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    // A window of 2^15, and 16 for the wrapper of gzip.
    let config = zlib_rs::DeflateConfig { window_bits: 15 + 16, ..zlib_rs::DeflateConfig::default() };
    let mut packed = vec![0; zlib_rs::compress_bound(bytes.len()) + 64];
    let (packed, code) = zlib_rs::compress_slice(&mut packed, bytes, config);
    assert_eq!(code, zlib_rs::ReturnCode::Ok);
    packed.to_vec()
}

fn item() -> impl Strategy<Value = Item> {
    let paths = || prop::sample::select(vec!["d", "d/f", "d/g", "d/e", "d/e/x", "e", "e/f", "other/x"]);
    (prop::sample::select(b"000021155".to_vec()), paths(), paths()).prop_map(|(kind, path, target)| match kind {
        b'1' | b'2' => (kind, path, target),
        _ => (kind, path, ""),
    })
}

/// What an archive shows that has a file of `big` bytes and the archive `inner`; and how often which name was replaced.
fn shown(
    inner: (&str, &[u8]),
    big: usize,
    strip_extension: bool,
) -> (BTreeMap<Vec<u8>, Found>, BTreeMap<Vec<u8>, usize>) {
    let mut tar = member(b'0', "big", "", &vec![b'x'; big]);
    tar.extend(member(b'0', inner.0, "", inner.1));
    tar.resize(tar.len() + 1024, 0);
    let extensions = tarnfs_tree::DEFAULT_EXTENSIONS.map(str::to_owned).into();
    let recursion = Recursion { depth: None, extensions, strip_extension, transform: None };
    let shape = Shape { recursion: Some(recursion), gnu_incremental: Some(false), ..Shape::default() };
    let opened = open(memory("archive", &tar), &Options { shape, ..options() }).unwrap();
    let found = survey(&*opened.tree, &mut |path, error| panic!("{}: {error}", String::from_utf8_lossy(path)));
    let mut replaced = BTreeMap::new();
    let mut count = |name: &[u8]| *replaced.entry(name.to_vec()).or_default() += 1;
    // Folders that no entry names are known from the first of all entries that come.
    opened
        .index
        .replaced(&mut |_, name, row| {
            if row.header.is_some() {
                count(name);
            }
        })
        .unwrap();
    // The file that shows as a folder, or, with -s, beside it: it has other bytes.
    let _ = replaced.remove(inner.0.as_bytes());
    let name = |path: Vec<u8>| String::from_utf8(path).unwrap().replace("/a.tar.gz", "/a.tar").into_bytes();
    let is_file_itself = |path: &[u8], what: &Found| path == b"/a.tar" && what.0.starts_with("File");
    let found = found.into_iter().map(|(path, what)| (name(path), what));
    (found.filter(|(path, what)| !is_file_itself(path, what)).collect(), replaced)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn compression_changes_nothing_of_the_tree(
        inner in prop::collection::vec(item(), 1..7),
        big in prop::sample::select(vec![0, 1000, 1 << 20]),
        strip in any::<bool>(),
    ) {
        let mut tar = Vec::new();
        members(&mut tar, &inner);
        tar.resize(tar.len() + 1024, 0);
        let plain = shown(("a.tar", &tar), big, strip);
        let compressed = shown(("a.tar.gz", &packed(&tar)), big, strip);
        prop_assert_eq!(plain, compressed);
    }
}
