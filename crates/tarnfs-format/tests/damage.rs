//! Archives that are cut, altered, or made to harm: what is whole is told, nothing crashes, everything ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{END, Told, file, pax, sh, try_read};
use tarnfs_format::tar::Tar;
use tarnfs_format::{Entry, Format, Options, Probe};

/// Small archives of each kind, by name.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    sh(
        folder.path(),
        "mkdir tree; printf hello > tree/file; ln tree/file tree/hard; ln -s file tree/link
         long=tree/$(printf '%0120d' 1); echo long > $long; ln -s $long tree/to
         truncate -s 100K tree/sparse; for n in 1 2 3 4 5 6; do
            printf x | dd of=tree/sparse bs=8k seek=$n conv=notrunc status=none; done",
    );
    [
        ("ustar", "--format=ustar --exclude='*0000*' --exclude=to"),
        ("gnu", "--format=gnu --sparse"),
        ("posix-0.0", "--format=posix --sparse --sparse-version=0.0"),
        ("posix-1.0", "--format=posix --sparse --sparse-version=1.0"),
        ("incremental", "--format=gnu -g snapshot"),
    ]
    .map(|(name, options)| {
        sh(folder.path(), &format!("tar {options} -b 1 -cf a.tar tree"));
        (name, fs::read(folder.path().join("a.tar")).unwrap())
    })
    .to_vec()
}

fn told(archive: &[u8]) -> Told {
    try_read(archive, &Options::default()).unwrap_or_default()
}

/// The entries whose headers and maps lie before byte `end`.
fn before(entries: &[Entry], end: usize) -> &[Entry] {
    let count = entries.iter().take_while(|entry| entry.body.offset <= end as u64).count();
    &entries[..count]
}

#[test]
fn cut_at_every_byte() {
    for (name, archive) in samples() {
        let whole = told(&archive).entries;
        assert!(whole.len() >= 5, "{name}");
        for length in 0..archive.len() {
            let cut = told(&archive[..length]).entries;
            assert_eq!(cut, before(&whole, length), "{name}, cut at {length}");
        }
    }
}

#[test]
fn bits_flipped() {
    for (start, (name, archive)) in samples().into_iter().enumerate() {
        let whole = told(&archive).entries;
        let mut altered = archive.clone();
        // A prime step: another byte of each block.
        for at in (start..archive.len()).step_by(11) {
            for bit in 0..8 {
                altered[at] ^= 1 << bit;
                let entries = told(&altered).entries;
                // A hard link may be told by what follows it: its own block is not all that counts.
                let safe = before(&whole, at.saturating_sub(512));
                assert!(entries.starts_with(safe), "{name}, bit {bit} of byte {at}");
                altered[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn bytes_replaced_at_random() {
    let mut state = 2_463_534_242_u32;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize
    };
    for (_, archive) in samples() {
        for _ in 0..2000 {
            let mut altered = archive.clone();
            for _ in 0..random() % 20 {
                let at = random() % altered.len();
                altered[at] = random() as u8;
            }
            // With its checksum right again, the rest of a header is believed.
            let (blocks, _) = altered.as_chunks_mut::<512>();
            for block in blocks {
                if block[257..262] == *b"ustar" {
                    block[148..156].fill(b' ');
                    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
                    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
                }
            }
            for ignore_zeros in [false, true] {
                let told = try_read(&altered, &Options { ignore_zeros, gnu_incremental: None, ..Options::default() });
                for entry in told.map(|told| told.entries).unwrap_or_default() {
                    assert!(entry.header <= entry.body.offset && entry.body.offset <= altered.len() as u64);
                }
            }
            Tar.bid(&Probe::of_head(&altered));
        }
    }
}

fn corpus() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let folder = std::env::var_os("TARNFS_CORPUS").map_or_else(default, PathBuf::from);
    if !folder.is_dir() {
        println!("no corpus at {} (TARNFS_CORPUS): not tested", folder.display());
        return None;
    }
    Some(folder)
}

/// The file's bytes, decompressed with the tool that its name asks for; `None` if that is not here or refuses.
fn decompressed(path: &Path) -> Option<Vec<u8>> {
    let tool: &[&str] = match path.extension()?.to_str()? {
        "gz" | "tgz" | "Z" => &["gzip", "-dc"],
        "bz2" | "tbz" => &["bzip2", "-dc"],
        "xz" | "txz" | "tlz" | "lzma" => &["xz", "-dc"],
        "zst" => &["zstd", "-dcq"],
        "lz4" => &["lz4", "-dcq"],
        _ => return fs::read(path).ok(),
    };
    let input = fs::File::open(path).ok()?;
    let output = Command::new(tool[0]).args(&tool[1..]).stdin(input).output().ok()?;
    (!output.stdout.is_empty()).then_some(output.stdout)
}

#[test]
fn the_corpus_of_others_is_read_without_a_crash() {
    let Some(folder) = corpus() else { return };
    let mut tars = 0;
    for entry in fs::read_dir(folder.join("libarchive")).unwrap() {
        let path = entry.unwrap().path();
        if fs::metadata(&path).unwrap().len() > 64 << 20 {
            continue;
        }
        let Some(bytes) = decompressed(&path) else { continue };
        let bid = Tar.bid(&Probe::of_head(&bytes[..bytes.len().min(64 << 10)]));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let told = try_read(&bytes, &Options::default());
        if bid > 0 {
            tars += 1;
            assert!(told.is_ok(), "{name}: {told:?}");
        }
        let is_other = [".zip", ".rar", ".7z", ".cab", ".iso", ".xar", ".lha", ".warc", ".cpio", ".mtree"];
        if is_other.iter().any(|end| name.ends_with(end)) {
            assert!(bid < 10, "{name} is no tar");
        }
        for cut in [1, 100, 512, 700, 1024, 1536, 2000] {
            let _ = try_read(&bytes[..bytes.len().saturating_sub(cut)], &Options::default());
        }
    }
    assert!(tars >= 30, "{tars} tars");
}

#[test]
fn a_problem_in_each_record_is_not_told_a_million_times() {
    let records: Vec<_> = std::iter::repeat_n(("uid", &b"frog"[..]), 100_000).collect();
    let told = told(&[pax(b'x', &records), file("file", b"1"), END.to_vec()].concat());
    assert_eq!(told.paths(), ["file"]);
    assert!(told.damage.len() < 20, "{}", told.damage.len());
}
