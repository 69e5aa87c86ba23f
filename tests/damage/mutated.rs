//! Archives that are cut and changed at random, thousands of them, opened and read in this process: no panic, no hang,
//! and what is read of a cut archive is what was in the whole one.
//!
//! A part of the samples is run each time. `TARNFS_FULL=1 cargo test --release --test mutated -- --nocapture` runs all:
//! 200 samples with 1000 mutations each, and every prefix of the small ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it has done")]

use std::fs;
use std::path::PathBuf;

use crate::devour::{self, Contents, Random, Watchdog, in_parallel};
use crate::support::{Scratch, corpus, have};

const CODECS: [(&str, &str); 11] = [
    ("tar", "cat"),
    ("gz", "gzip -n"),
    ("bz2", "bzip2"),
    ("xz", "xz --block-size=4KiB"),
    ("zst", "zstd -q"),
    ("lz4", "lz4 -q"),
    ("Z", "compress -c"),
    ("lzo", "lzop -c"),
    ("lrz", "lrzip -Q -T"),
    ("zz", "python3 -c 'import sys,zlib; sys.stdout.buffer.write(zlib.compress(sys.stdin.buffer.read()))'"),
    (
        "deflate",
        "python3 -c 'import sys,zlib; c=zlib.compressobj(9,8,-15); sys.stdout.buffer.write(c.compress(sys.stdin.buffer.read())+c.flush())'",
    ),
];

/// A small tree in each dialect and each compression.
fn made(scratch: &Scratch) -> Vec<PathBuf> {
    scratch.shell(
        r#"
        mkdir -p tree/folder; cd tree
        printf hello > file; seq 1 400 > folder/numbers; : > folder/empty; ln -s file link; ln file folder/hard
        printf start > sparse; printf middle | dd of=sparse bs=4k seek=3 conv=notrunc status=none; truncate -s 64k sparse
        printf long > folder/$(printf 'n%.0s' $(seq 120)); mkfifo fifo
        cd ..; plain="folder file link"; all="$plain sparse fifo"
        tar --format=v7 -b1 -C tree -cf v7 file link folder/numbers
        tar --format=ustar -b1 -C tree --exclude='*nnn*' -cf ustar $all
        for format in oldgnu gnu posix; do tar --format=$format -b1 -C tree -cf $format $all; done
        tar --format=gnu -S -b1 -C tree -cf gnu-sparse $all
        for version in 0.0 0.1 1.0; do tar --format=posix -S --sparse-version=$version -b1 -C tree -cf pax-sparse-$version $all; done
        tar --format=gnu -g snapshot -b1 -C tree -cf incremental .
        "#,
    );
    // Of the same tree in other formats.
    if have("cpio") && have("ar") {
        scratch.shell(
            r"cd tree; for format in bin odc newc crc; do
                find file link folder/* fifo | grep -v nnn | cpio -o --quiet -H $format > ../made-$format.cpio; done
            gzip -n < ../made-newc.cpio > ../made-newc.cpio.gz; xz < ../made-crc.cpio > ../made-crc.cpio.xz
            zstd -q < ../made-odc.cpio > ../made-odc.cpio.zst; cat ../made-newc.cpio ../made-odc.cpio > ../made-two.cpio
            ar rcU ../made-gnu.ar file folder/numbers folder/nnn*; gzip -n < ../made-gnu.ar > ../made-gnu.ar.gz",
        );
    }
    let is_rare = |suffix: &str| matches!(suffix, "Z" | "lzo" | "lrz");
    for (suffix, tool) in CODECS {
        if is_rare(suffix) && !have(tool.split(' ').next().unwrap()) {
            continue;
        }
        scratch.shell(&format!("for tar in v7 ustar oldgnu gnu posix gnu-sparse pax-sparse-* incremental; do [ -f $tar ] || continue; case $tar in *.tar|*.gz|*.bz2|*.xz|*.zst|*.lz4|*.Z|*.lzo|*.lrz|*.zz|*.deflate) continue;; esac; {tool} < $tar > made-$tar.{suffix}; done"));
    }
    let mut made: Vec<_> = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    made.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("made-"));
    made.sort();
    made
}

/// Archives of other projects that can be opened, the small ones first.
fn foreign() -> Vec<PathBuf> {
    let Some(corpus) = corpus() else { return Vec::new() };
    let mut found: Vec<_> = ["libarchive", "xz", "zstd/golden-decompression", "zstd/golden-decompression-errors"]
        .iter()
        .flat_map(|folder| fs::read_dir(corpus.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && devour::devour(path).is_some())
        .collect();
    found.sort_by_key(|path| (fs::metadata(path).unwrap().len(), path.clone()));
    found
}

fn is_full() -> bool {
    std::env::var_os("TARNFS_FULL").is_some()
}

fn name(path: &std::path::Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn changed_at_random_places() {
    let scratch = Scratch::new();
    let mut samples: Vec<_> = foreign();
    samples.truncate(120);
    samples.extend(made(&scratch));
    // Every so many, so that all codecs are among them.
    let (number, mutations) = if is_full() { (200, 1000) } else { (20, 50) };
    let step = (samples.len() / number).max(1);
    let samples: Vec<_> = samples.into_iter().step_by(step).take(number).collect();
    let watchdog = Watchdog::new();
    in_parallel(samples.len(), |index| {
        let whole = fs::read(&samples[index]).unwrap();
        let path = scratch.path(format!("mutated-{index}"));
        for seed in 0..mutations {
            let mut random = Random(seed << 16 | index as u64);
            let mut bytes = whole.clone();
            // As libarchive does it: up to one byte in a hundred, at least up to four.
            for _ in 0..=random.below((whole.len() / 100).max(4)) {
                let at = random.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.below(256) as u8;
                }
            }
            if random.below(8) == 0 {
                bytes.truncate(random.below(whole.len()));
            }
            fs::write(&path, &bytes).unwrap();
            watchdog
                .watch(|| format!("{} (sample {index}), seed {seed}", name(&samples[index])), || devour::devour(&path));
        }
    });
    println!("{} samples, {mutations} mutations of each", samples.len());
}

#[test]
fn cut_at_every_byte() {
    let scratch = Scratch::new();
    let mut samples: Vec<_> = made(&scratch);
    samples.extend(foreign().into_iter().filter(|path| fs::metadata(path).unwrap().len() <= 20 << 10));
    let most = if is_full() { usize::MAX } else { 15 };
    let watchdog = Watchdog::new();
    let opened = std::sync::atomic::AtomicUsize::new(0);
    in_parallel(samples.len(), |index| {
        let whole = fs::read(&samples[index]).unwrap();
        let expected = devour::devour(&samples[index]).unwrap();
        let path = scratch.path(format!("cut-{index}"));
        // Prime to the blocks of 512 bytes.
        let step = (whole.len() / most).max(1) | 1;
        for length in (0..whole.len()).step_by(if is_full() { 1 } else { step }) {
            fs::write(&path, &whole[..length]).unwrap();
            let case = || format!("{} cut at {length}", name(&samples[index]));
            let found = watchdog.watch(case, || devour::devour(&path));
            check_cut(&expected, &found.unwrap_or_default(), &case());
            opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    println!("{} prefixes of {} samples", opened.into_inner(), samples.len());
}

/// What could be read whole is what it was. A compressed file that is no archive is cut with its file: where its header
/// names the one file in it, that file is shorter.
fn check_cut(expected: &Contents, found: &Contents, case: &str) {
    let one_file = expected.len() == 1;
    for (path, bytes) in found {
        if let (Some(bytes), Some(Some(expected))) = (bytes, expected.get(path)) {
            let right = if one_file { expected.starts_with(bytes) } else { bytes == expected };
            assert!(right, "{case}: {}", String::from_utf8_lossy(path));
        }
    }
}
