//! How long an index takes: `cargo run --release -p tarnfs-index --example measure [FOLDERS [FILES-IN-EACH [FILE]]]`.

#![allow(clippy::print_stdout, clippy::arithmetic_side_effects, reason = "a program for people at a terminal")]

use std::path::PathBuf;
use std::time::Instant;

use tarnfs_format::{Body, Entry, Kind, Time};
use tarnfs_index::{Archive, Destination, Error, Node, Shape, Summary, Writer, WriterOptions};
use tarnfs_source::{Budget, Fingerprint, Limits};

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Wall clock, and the processor time of all threads (in steps of 10 ms): the honest one where others use the machine
/// as well.
struct Watch(Instant, f64);

impl Watch {
    fn start() -> Self {
        Self(Instant::now(), Self::processor())
    }

    fn processor() -> f64 {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
    }

    fn report(&self, what: &str, count: u64) {
        let (wall, processor) = (self.0.elapsed().as_secs_f64(), Self::processor() - self.1);
        let each = 1e6 / count as f64;
        println!(
            "{what}: {wall:.3} s ({processor:.2} s of processors), {:.3} ({:.3}) us each",
            wall * each,
            processor * each
        );
    }
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (folders, files) = (number(1000), number(1000));
    let path =
        std::env::args().nth(3).map_or_else(|| std::env::temp_dir().join("measure.tarnfs.sqlite"), PathBuf::from);
    let count = folders * files;

    let mut entry = Entry { mode: 0o644, user: b"user".to_vec(), group: b"group".to_vec(), ..Entry::default() };
    let watch = Watch::start();
    let mut writer = Writer::new(WriterOptions {
        limits: Limits::default(),
        budget: Budget::for_this_machine(2),
        cancel: tarnfs_source::Cancel::default(),
    })?;
    for number in 0..count {
        let (folder, file) = (number / files, number % files);
        // A stride: tar stores the files of a folder in no particular order.
        let file = file * 7919 % files;
        entry.path.clear();
        std::io::Write::write_fmt(&mut entry.path, format_args!("folder{folder:05}/file{file:06}"))?;
        entry.header = number * 512;
        entry.body = Body { offset: entry.header + 512, ..Body::default() };
        entry.mtime = Time { seconds: 1_700_000_000 + number as i64 / 5000, nanoseconds: 0 };
        writer.add(&entry)?;
    }
    watch.report("add", count);
    let archive = Archive { length: count * 512 + 1024, fingerprint: Fingerprint(1), modified: 0 };
    let summary = Summary {
        archive,
        name: None,
        shape: Shape::default(),
        layers: Vec::new(),
        format: "tar".to_owned(),
        end: count * 512,
        grown_from: None,
        files: 0,
        folders: 0,
        bytes: 0,
        has_xattrs: false,
        has_acls: false,
        has_locked: false,
        renamed: tarnfs_index::Renamed::default(),
        has_directories: false,
        label: None,
        unlisted: Vec::new(),
        notes: Vec::new(),
    };
    let watch = Watch::start();
    let index = writer.finish(summary, &Destination::File(path.clone()))?;
    watch.report("finish", count);
    let size = std::fs::metadata(&path)?.len();
    println!("peak memory {} KiB", resident_kib());
    println!("{size} bytes, {:.1} a row", size as f64 / count as f64);
    drop(index);

    let watch = Watch::start();
    let index = tarnfs_index::own::open(&path, None, false)?;
    watch.report("open", 1);

    let mut random = 88_172_645_463_325_252_u64;
    let lookups = 100_000;
    let folder_nodes: Vec<Node> = (0..folders)
        .map(|folder| {
            Ok(index.lookup(Node::ROOT, format!("folder{folder:05}").as_bytes())?.map_or(Node(0), |row| row.node))
        })
        .collect::<Result<_, Error>>()?;
    let watch = Watch::start();
    let mut found = 0;
    for _ in 0..lookups {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let folder = folder_nodes[(random % folders) as usize];
        let name = format!("file{:06}", random / folders % files);
        found += u64::from(index.lookup(folder, name.as_bytes())?.is_some_and(|row| row.kind == Kind::File));
    }
    assert_eq!(found, lookups);
    watch.report("lookup", lookups);

    let watch = Watch::start();
    let mut seen = 0_u64;
    for &folder in &folder_nodes {
        index.children(folder, 0, &mut |_, _, _| {
            seen += 1;
            true
        })?;
    }
    watch.report("children", seen);
    println!("peak memory {} KiB", resident_kib());
    Ok(())
}
