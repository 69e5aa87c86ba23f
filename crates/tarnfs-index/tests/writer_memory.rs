//! However large an index is, and whatever its entries hold, making it takes little memory and few descriptors.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test that overflows or finds an error fails"
)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{entry, summary, writer};
use tarnfs_codec::Damage;
use tarnfs_format::{Entry, Kind};
use tarnfs_index::{Archive, Destination, Index, Nested, Node, Row, Summary, Writer, ratarmount};
use tarnfs_source::{Extent, FileSource, Fingerprint};

const CHILD: &str = "TARNFS_TEST_WRITER";

/// Runs the test `child_process` as `what`, with 32 descriptors: its peak of memory in bytes.
fn peak_of(what: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 32 && exec \"$0\" --exact child_process --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, format!("{what} {}", folder.path().join("index").display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let peak = said.lines().find_map(|line| line.split_once("peak ")?.1.parse().ok());
    peak.unwrap_or_else(|| panic!("{what}: {said}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Not a test of its own: what the others measure.
#[test]
#[allow(clippy::print_stdout, reason = "the parent reads it")]
fn child_process() {
    let Some(what) = std::env::var(CHILD).ok() else { return };
    let (what, path) = what.split_once(' ').unwrap();
    let destination = Destination::File(Path::new(path).to_path_buf());
    match what {
        "runs" => many_runs(&destination),
        "large" => large_entries(&destination),
        "damage" => damage_of_many(&destination),
        "large-in-memory" => large_entries(&Destination::Memory),
        "sidecar" => sidecar_of_long_paths(Path::new(path)),
        _ => panic!("{what}"),
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("\npeak {}", line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10);
}

fn find(index: &dyn Index, name: &str) -> Row {
    index.lookup(Node::ROOT, name.as_bytes()).unwrap().unwrap()
}

/// Entries that are sorted in a hundred parts.
fn many_runs(destination: &Destination) {
    let mut writer = writer(0);
    let name = |number: u64| format!("{:0>250}", number * 7919 % 1_000_003);
    for number in 0..250_000 {
        writer.add(&entry(number, Kind::File, name(number).as_bytes(), b"")).unwrap();
    }
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(descriptors < 12, "{descriptors} descriptors");
    let index = writer.finish(summary(), destination).unwrap();
    assert_eq!(index.summary().files, 250_000);
    for number in [0, 1, 100_000, 249_999] {
        assert_eq!(find(&*index, &name(number)).header, Some(number << 20));
    }
}

/// As much as one header of a tar archive may hold, nearly.
const LARGE: usize = 8 << 20;
const COUNT: u64 = 32;

fn large(number: u64) -> Entry {
    // The path comes again: the first ones are replaced.
    let mut large = entry(number, Kind::File, format!("f{}", number % (COUNT - 2)).as_bytes(), b"");
    let value = |at: usize| vec![(number as usize + at) as u8; 64 << 10];
    large.xattrs = (0..LARGE >> 16).map(|at| (format!("user.{at:03}").into_bytes(), value(at))).collect();
    large
}

fn large_entries(destination: &Destination) {
    let mut writer: Writer = writer(0);
    for number in 0..COUNT {
        writer.add(&large(number)).unwrap();
    }
    let mut sparse = entry(COUNT, Kind::File, b"sparse", b"");
    let extents: Vec<_> = (0..100_000).map(|at| Extent { offset: at * 1000, length: 10, skip: at % 3 }).collect();
    sparse.body.size = 1 << 30;
    sparse.body.extents = Some(extents.clone());
    sparse.xattrs = vec![(b"user.a".to_vec(), b"1".to_vec())];
    writer.add(&sparse).unwrap();
    writer.add(&entry(COUNT + 1, Kind::Symlink, b"link", &[b'x'; 10_000])).unwrap();
    assert!(writer.bytes() > COUNT * LARGE as u64);
    let index: Arc<dyn Index> = writer.finish(summary(), destination).unwrap();
    for number in [2, 20, COUNT - 1] {
        let row = find(&*index, &format!("f{}", number % (COUNT - 2)));
        assert!(index.xattrs(row.node).unwrap() == large(number).xattrs, "{number}");
    }
    let (sparse, link) = (find(&*index, "sparse"), find(&*index, "link"));
    assert!(index.extents(sparse.node).unwrap() == extents);
    assert_eq!(index.xattrs(sparse.node).unwrap(), [(b"user.a".to_vec(), b"1".to_vec())]);
    assert_eq!(index.link(link.node).unwrap(), [b'x'; 10_000]);
}

/// Streams of which every other frame is damaged.
fn damage_of_many(destination: &Destination) {
    const STREAMS: u32 = 200;
    const RANGES: u64 = 5000;
    let mut writer = writer(0);
    for stream in 0..STREAMS {
        let number = writer.next_nested();
        for range in 0..RANGES {
            let start = range * 16;
            let what = format!("the checksum of frame {range} of stream {stream} does not match its data");
            let damage =
                Damage { decoded: start..start + 8, lost_from: start, compressed: start, compressed_from: start, what };
            writer.add_damage(number as usize, &damage).unwrap();
        }
        let nested = Nested { codec: "zstd".to_owned(), decoded_length: RANGES * 16, input: 0, start: 0, length: 1000 };
        assert_eq!(writer.add_nested(&nested).unwrap(), number);
    }
    let index = writer.finish(summary(), destination).unwrap();
    for stream in [0, 1, 19, 20, 100, STREAMS - 1] {
        let table = Arc::clone(&index).chunks((tarnfs_index::FIRST_NESTED + stream) as usize).unwrap();
        for range in [0, 1, 77, RANGES - 1] {
            let start = range * 16;
            let found = table.damage_in(start..start + 8).unwrap().unwrap();
            // Where there is too much of it, what follows the first counts as one.
            let is_told_apart = stream < 20;
            assert_eq!(found.decoded == (start..start + 8), is_told_apart, "{stream} {range}: {found:?}");
            let behind = table.damage_in(start + 8..start + 16).unwrap();
            assert_eq!(behind.is_none(), is_told_apart || range == RANGES - 1, "{stream} {range}: {behind:?}");
        }
    }
}

/// Very many folders in one that has a long path.
fn sidecar_of_long_paths(path: &Path) {
    let archive = path.with_extension("tar");
    fs::write(&archive, [0; 10_240]).unwrap();
    let above = [&[b'x'; 200][..], b"/"].concat().repeat(300);
    let mut writer = writer(0);
    for end in (200..above.len()).step_by(201) {
        writer.add(&entry(0, Kind::Folder, &above[..end], b"")).unwrap();
    }
    for number in 0..2000_u32 {
        let path = [&above, format!("{number}/").as_bytes()].concat();
        writer.add(&entry(0, Kind::Folder, &path, b"")).unwrap();
    }
    let fingerprint = Fingerprint::of(&FileSource::open(&archive).unwrap()).unwrap();
    let archived = Archive { length: 10_240, fingerprint, modified: 0 };
    let summary = Summary { archive: archived, ..summary() };
    let index = writer.finish(summary, &Destination::Memory).unwrap();
    ratarmount::write(&index, &archive, &path.with_extension("index.sqlite")).unwrap();
}

#[test]
fn a_sidecar_of_long_paths_takes_little_memory() {
    let peak = peak_of("sidecar");
    assert!(peak < 72 << 20, "{peak} bytes");
}

#[test]
fn damage_of_many_streams_takes_little_memory() {
    let peak = peak_of("damage");
    assert!(peak < 64 << 20, "{peak} bytes");
}

#[test]
fn many_runs_take_little_memory_and_few_descriptors() {
    let peak = peak_of("runs");
    assert!(peak < 56 << 20, "{peak} bytes");
}

#[test]
fn large_entries_are_merged_in_little_memory() {
    let peak = peak_of("large");
    assert!(peak < 128 << 20, "{peak} bytes");
}

/// Where there is a disk, nobody has such an index in memory.
#[test]
fn a_large_index_without_a_name_is_not_in_memory() {
    let peak = peak_of("large-in-memory");
    assert!(peak < 128 << 20, "{peak} bytes");
}
