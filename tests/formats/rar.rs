//! RAR archives, mounted through the kernel: those of real RARs, and made ones beside what was packed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::path::{Path, PathBuf};

use rars::{ArchiveVersion, Builder};

use crate::support::{Mounted, Scratch, can_mount, have, run};
use crate::trees::sums;

/// Archives of real RARs, each by its first file, with the password of those that have one.
const REAL: &[(&str, Option<&str>)] = &[
    ("m1_fastest.rar", None),
    ("m5_max.rar", None),
    ("multifile.rar", None),
    ("filter_arm.rar", None),
    ("filter_delta.rar", None),
    ("filter_e8.rar", None),
    ("filter_e8e9.rar", None),
    ("solid.rar", None),
    ("solid_multivol.part01.rar", None),
    ("header_encrypted.rar", Some("password")),
    ("password_aes.rar", Some("password")),
    ("encrypted_multivol.part1.rar", Some("password")),
    ("with_comment.rar", None),
    ("stored_blake2.rar", None),
    ("with_all_services.rar", None),
    ("solid_rar300.rar", None),
    ("compressed_multivol_prng_rar300.rar", None),
    ("rarvm_audio_stereo_rar300.rar", None),
    ("rarvm_delta_4ch_rar300.rar", None),
    ("rarvm_itanium_synthetic_rar300.rar", None),
    ("rarvm_rgb_gradient_rar300.rar", None),
    ("rarvm_x86_e8_rar300.rar", None),
    ("rarvm_x86_e8e9_rar300.rar", None),
    ("ppmd_lorem_rar300.rar", None),
    ("ppmd_solid_rar300.rar", None),
    ("ppmd_lz_match_rar300.rar", None),
    ("header_encrypted_multivol_rar300.rar", Some("password")),
    ("encrypted_newnaming_rar300.part01.rar", Some("password")),
    ("with_comment_rar300.rar", None),
    ("ext_time_rar420.rar", None),
];

fn archives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/rar")
}

#[test]
fn what_real_rars_have_packed_is_read() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    for (name, password) in REAL {
        let scratch = Scratch::new();
        scratch.shell(&format!("cp '{}'/* .", archives().display()));
        let options: Vec<&str> = password.iter().flat_map(|password| ["--password", password]).collect();
        let path = scratch.path(name);
        // Each file is compared with its checksum.
        let checked = run(&scratch, ["check", path.to_str().unwrap()].into_iter().chain(options.iter().copied()));
        assert_eq!(checked.code, 0, "{name}: {}", checked.err);
        let mounted = Mounted::new(&scratch, path, &options);
        let ours = sums(&scratch, &mounted.path(""));
        mounted.unmount();
        assert!(!ours.is_empty(), "{name}");
        // Of volumes, and of some filters, libarchive reads nothing.
        let is_single = !name.contains("part") && !name.contains("multivol");
        if password.is_none() && is_single && have("bsdtar") {
            scratch.shell(&format!("mkdir theirs; cd theirs; bsdtar -xf '../{name}' 2> ../log || touch ../refused"));
            if !scratch.path("refused").exists() {
                assert_eq!(ours, sums(&scratch, &scratch.path("theirs")), "{name}");
            }
        }
    }
}

#[test]
fn volumes_are_opened_by_any_of_them_and_a_missing_one_is_named() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    for (parts, password) in [
        ("solid_multivol.part0", None),
        ("encrypted_multivol.part", Some("password")),
        ("compressed_multivol_prng_rar300.r", None),
        ("header_encrypted_multivol_rar300.r", Some("password")),
        ("encrypted_newnaming_rar300.part0", Some("password")),
    ] {
        let scratch = Scratch::new();
        scratch.shell(&format!("cp '{}'/{parts}* .", archives().display()));
        let options: Vec<&str> = password.iter().flat_map(|password| ["--password", password]).collect();
        let names = scratch.shell(&format!("ls {parts}*"));
        let mut known: Option<String> = None;
        for name in names.lines() {
            let mounted = Mounted::new(&scratch, scratch.path(name), &options);
            let ours = sums(&scratch, &mounted.path(""));
            mounted.unmount();
            assert!(ours.contains("./"), "{name}");
            assert_eq!(*known.get_or_insert_with(|| ours.clone()), ours, "{name}");
        }
        // `x.rar` is the first one of `x.r00`.
        let first = names.lines().find(|name| name.contains(".rar")).unwrap();
        for missing in names.lines() {
            let other = if missing == first { names.lines().last().unwrap() } else { first };
            // Where headers are encrypted, nothing says that the last one is missing.
            if other == missing || password.is_some() && parts.starts_with("header") {
                continue;
            }
            scratch.shell(&format!("mv {missing} away"));
            let ran =
                run(&scratch, ["ls", scratch.path(other).to_str().unwrap()].into_iter().chain(options.iter().copied()));
            assert!(ran.code != 0 && ran.err.contains(missing), "{missing}: {}", ran.err);
            scratch.shell(&format!("mv away {missing}"));
        }
    }
}

/// What is packed: names, content.
fn tree() -> Vec<(String, Vec<u8>)> {
    let numbers =
        |from: u32, to: u32| (from..to).flat_map(|number| format!("{number}\n").into_bytes()).collect::<Vec<u8>>();
    let noise: Vec<u8> = (0..60_000_u32)
        .scan(1_u32, |seed, _| {
            *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((*seed >> 24) as u8)
        })
        .collect();
    let mut files = vec![
        ("numbers".to_owned(), numbers(0, 20_000)),
        ("noise".to_owned(), noise),
        ("more".to_owned(), numbers(5_000, 30_000)),
        ("zeros".to_owned(), vec![0; 300_000]),
        ("empty".to_owned(), Vec::new()),
        ("program".to_owned(), fs::read("/bin/true").unwrap_or_default()),
    ];
    files.extend((0..20).map(|number| (format!("folder/{number}"), numbers(number, number * 30 + 500))));
    files
}

fn builder(version: ArchiveVersion, files: &[(String, Vec<u8>)]) -> Builder {
    let mut builder = Builder::new(version);
    for (name, content) in files {
        let mode = (version != ArchiveVersion::Rar15).then_some(0o100_640);
        builder.add_bytes(name.clone().into_bytes(), content.clone(), Some(1_600_000_000), mode).unwrap();
    }
    builder
}

fn is_whole(scratch: &Scratch, path: &Path, options: &[&str], files: &[(String, Vec<u8>)], what: &str) {
    let mounted = Mounted::new(scratch, path, options);
    // Backwards, so that nothing is read in its order.
    for (name, content) in files.iter().rev() {
        let read = fs::read(mounted.path(name)).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        assert!(read == *content, "{what}: {name}");
    }
    mounted.unmount();
}

const VERSIONS: &[ArchiveVersion] =
    &[ArchiveVersion::Rar70, ArchiveVersion::Rar50, ArchiveVersion::Rar40, ArchiveVersion::Rar29];

#[test]
fn whatever_way_it_was_packed_the_tree_is_the_same() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let files = tree();
    for &version in VERSIONS {
        for (solid, level) in [(false, 3), (true, 3), (false, 0)] {
            let scratch = Scratch::new();
            let what = format!("{version:?}, solid {solid}, level {level}");
            let bytes = builder(version, &files).solid(solid).compression_level(Some(level)).to_bytes();
            fs::write(scratch.path("a.rar"), bytes.unwrap()).unwrap();
            is_whole(&scratch, &scratch.path("a.rar"), &[], &files, &what);
            assert_eq!(run(&scratch, ["check", scratch.path("a.rar").to_str().unwrap()]).code, 0, "{what}");
            assert!(!scratch.shell("ls").contains("sqlite"), "an archive with a directory needs no index");
        }
    }
}

#[test]
fn encrypted_ones_need_their_password() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let files = &tree()[..10];
    for &version in VERSIONS {
        for (solid, headers) in [(false, false), (true, false), (true, true)] {
            // What writes them here does not encrypt those of this version.
            let headers = headers && version != ArchiveVersion::Rar29;
            let scratch = Scratch::new();
            let what = format!("{version:?}, solid {solid}, headers {headers}");
            let builder = builder(version, files).solid(solid).password(Some(b"secret".to_vec()));
            let bytes = builder.header_encryption(headers).to_bytes();
            let path = scratch.path("a.rar");
            fs::write(&path, bytes.unwrap()).unwrap();
            is_whole(&scratch, &path, &["--password", "secret"], files, &what);
            for options in [&[][..], &["--password", "wrong"]] {
                let words = [&["cat"], options, &[path.to_str().unwrap(), "numbers"]].concat();
                let ran = run(&scratch, words);
                assert!(ran.code != 0 && ran.out.is_empty() && ran.err.contains("password"), "{what}: {}", ran.err);
            }
        }
    }
}
