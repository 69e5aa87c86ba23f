//! The fuzz targets' entry points over every archive of the corpus, its prefixes and some mutations, on stable Rust.

mod support;

#[path = "../fuzz/src/lib.rs"]
mod entry_points;

use std::fs;

/// Larger files are read by other tests; here each is decoded many times.
const LARGEST: u64 = 64 << 10;

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 10] = [
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
];

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
    let mut state = 42_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    for (path, seed) in &seeds {
        for (name, target) in TARGETS {
            // Foreign bytes are refused at their first bytes; a few of them suffice.
            let near = path.to_string_lossy().contains(match name {
                "gzip" | "zlib" | "deflate" => "gz",
                "bzip2" => "bz2",
                "zstd" => "zst",
                other => other,
            });
            let mutations = if near { 12 } else { 0 };
            println!("{name} {}", path.display());
            target(seed);
            for _ in 0..mutations {
                let mut bytes = seed.clone();
                bytes.truncate(random(bytes.len()) + 1);
                target(&bytes);
                let mut bytes = seed.clone();
                for _ in 0..=random(4) {
                    let at = random(bytes.len());
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << random(8);
                    }
                }
                target(&bytes);
            }
        }
    }
    assert!(seeds.len() > 250);
}
