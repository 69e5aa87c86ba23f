//! The fuzz targets' entry points on stable Rust: over what fuzzing has found, over the archives of the corpus and what is near them, and
//! over indexes that were changed.

mod support;

#[path = "../fuzz/src/lib.rs"]
mod entry_points;

use std::fs;
use std::path::Path;

/// Larger files are read by other tests; here each is decoded many times.
const LARGEST: u64 = 64 << 10;

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 12] = [
    ("tar", entry_points::tar),
    ("names", entry_points::names),
    ("gzip", entry_points::gzip),
    ("zlib", entry_points::zlib),
    ("deflate", entry_points::deflate),
    ("bzip2", entry_points::bzip2),
    ("xz", entry_points::xz),
    ("zstd", entry_points::zstd),
    ("lz4", entry_points::lz4),
    ("index", entry_points::index),
    ("ratarmount", entry_points::ratarmount),
    ("rows", entry_points::rows),
];

/// Numbers that are the same in each run: a failure can be seen again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// Flips a few bits.
    fn damage(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << self.below(8);
            }
        }
        bytes
    }

    fn cut(&mut self, seed: &[u8]) -> Vec<u8> {
        seed[..self.below(seed.len())].to_vec()
    }
}

/// What fuzzing has found, in files that are called after their target: `gzip-what-it-was.bin`.
#[test]
fn nothing_that_was_found_comes_back() {
    let mut replayed = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/found")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some((target, _)) = name.split_once('-').filter(|(_, rest)| rest.strip_suffix(".bin").is_some()) else {
            continue;
        };
        let (_, target) = TARGETS.iter().find(|(name, _)| *name == target).expect("it is called after a target");
        println!("{name}");
        target(&fs::read(path).unwrap());
        replayed += 1;
    }
    println!("{replayed} files");
}

#[test]
fn every_target_survives_the_corpus_and_what_is_near_it() {
    let Some(corpus) = support::corpus() else { return };
    let mut seeds = Vec::new();
    for folder in ["libarchive", "xz", "zstd/golden-decompression", "zstd/golden-decompression-errors"] {
        for entry in fs::read_dir(corpus.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && fs::metadata(&path).unwrap().len() <= LARGEST {
                seeds.push((path.clone(), fs::read(path).unwrap()));
            }
        }
    }
    seeds.sort();
    let mut random = Random(42);
    for (path, seed) in &seeds {
        let name = path.file_name().unwrap().to_string_lossy();
        for (target, run) in TARGETS {
            println!("{target} {name}");
            run(seed);
            // Foreign bytes are refused at their start; once suffices.
            let near = match target {
                "tar" => &["tar"][..],
                "gzip" => &["gz"],
                "bzip2" => &["bz"],
                "xz" => &[".xz", "txz"],
                "zstd" => &["zst"],
                "lz4" => &["lz4"],
                _ => &[],
            };
            if near.iter().any(|part| name.contains(part)) {
                for _ in 0..12 {
                    run(&random.cut(seed));
                    run(&random.damage(seed));
                }
            }
        }
    }
    assert!(seeds.len() > 250, "{} archives", seeds.len());
}

#[test]
fn an_index_may_be_cut_and_damaged() {
    let mut random = Random(7);
    for template in entry_points::templates() {
        let own = (&template.own, entry_points::index as fn(&[u8]));
        let foreign = template.foreign.as_ref().map(|foreign| (foreign, entry_points::ratarmount as fn(&[u8])));
        for (sidecar, run) in [Some(own), foreign].into_iter().flatten() {
            println!("{}", template.name);
            run(&sidecar.bytes);
            for _ in 0..60 {
                run(&random.cut(&sidecar.bytes));
                run(&random.damage(&sidecar.bytes));
            }
        }
    }
}

#[test]
fn rows_of_an_index_may_lie() {
    let mut random = Random(3);
    for _ in 0..3000 {
        let length = 5 + random.below(20);
        entry_points::rows(&random.bytes(length));
    }
}
