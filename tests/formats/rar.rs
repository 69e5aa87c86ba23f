//! RAR archives, mounted through the kernel: those of real RARs, and made ones beside what was packed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::MetadataExt;
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
    ("readme_154_normal.rar", None),
    ("readme_154_password.rar", Some("password")),
    ("password_rar202.rar", Some("password")),
    ("ppmd_escape_rar300.rar", None),
    ("links_rar701.rar", None),
    ("copies_rar701.rar", None),
    ("copies_solid_rar701.rar", None),
    ("owners_rar623.rar", None),
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
        // Of volumes, copies and some filters, libarchive reads nothing.
        let is_single = !["part", "multivol", "copies"].iter().any(|what| name.contains(what));
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

#[test]
fn what_ciphers_of_before_3_0_hide_needs_its_password() {
    for name in ["readme_154_password.rar", "password_rar202.rar"] {
        let scratch = Scratch::new();
        let path = archives().join(name);
        let path = path.to_str().unwrap();
        let file = if name.contains("154") { "README.md" } else { "FILE2.TXT" };
        let read = run(&scratch, ["cat", "--password", "password", path, file]).ok();
        let plain = if name.contains("154") {
            run(&scratch, ["cat", archives().join("readme_154_normal.rar").to_str().unwrap(), file]).ok().text()
        } else {
            "file2\r\n".to_owned()
        };
        assert!(read.text() == plain, "{name}");
        for options in [&[][..], &["--password", "wrong"]] {
            let ran = run(&scratch, [&["cat"], options, &[path, file]].concat());
            assert!(ran.code != 0 && ran.out.is_empty() && ran.err.contains("password"), "{name}: {}", ran.err);
        }
    }
}

#[test]
fn links_copies_and_owners_come_from_the_headers() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let numbers = (1..=500).fold(String::new(), |text, number| text + &format!("{number}\n"));
    for name in ["links_rar701.rar", "copies_rar701.rar", "copies_solid_rar701.rar", "owners_rar623.rar"] {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch, archives().join(name), &[]);
        for file in ["numbers", "hard", "folder/same", "link", "dirlink/same"] {
            assert!(fs::read_to_string(mounted.path(file)).unwrap() == numbers, "{name}: {file}");
        }
        assert_eq!(fs::read_to_string(mounted.path("folder/other")).unwrap(), "other\n", "{name}");
        assert_eq!(fs::read_link(mounted.path("link")).unwrap(), Path::new("folder/same"), "{name}");
        let node = |file: &str| fs::metadata(mounted.path(file)).unwrap();
        // Copies are files of their own, as `unrar` makes them.
        let is_linked = name.starts_with("links");
        assert_eq!(node("numbers").ino() == node("hard").ino(), is_linked, "{name}");
        assert_eq!(node("numbers").nlink(), if is_linked { 2 } else { 1 }, "{name}");
        assert_ne!(node("numbers").ino(), node("folder/same").ino(), "{name}");
        assert_eq!(node("folder/other").mode() & 0o7777, 0o640, "{name}");
        if !name.starts_with("copies") {
            let told = run(&scratch, ["stat", archives().join(name).to_str().unwrap(), "folder/other"]).ok().text();
            assert!(told.contains("daemon") && told.contains("bin"), "{name}: {told}");
        }
        mounted.unmount();
    }
}

/// A number of RAR 5.
fn number(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7F {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Content as it is packed, how, how long it is, and its CRC-32.
struct Packed {
    data: Vec<u8>,
    method: u64,
    size: u64,
    crc: u32,
}

impl Packed {
    fn stored(content: &[u8]) -> Self {
        Self { data: content.to_vec(), method: 0, size: content.len() as u64, crc: crc32fast::hash(content) }
    }

    /// Takes it from an archive of one file.
    fn compressed(content: &[u8]) -> Self {
        let mut builder = Builder::new(ArchiveVersion::Rar50);
        builder.add_bytes(b"x".to_vec(), content.to_vec(), Some(0), Some(0o100_644)).unwrap();
        let archive = builder.compression_level(Some(3)).to_bytes().unwrap();
        let mut at = 8;
        loop {
            at += 4;
            let next = |at: &mut usize| {
                let mut number = 0_u64;
                for shift in (0..63).step_by(7) {
                    let byte = archive[*at];
                    *at += 1;
                    number |= u64::from(byte & 0x7F) << shift;
                    if byte & 0x80 == 0 {
                        break;
                    }
                }
                number
            };
            let length = next(&mut at);
            let end = at + length as usize;
            let (kind, flags) = (next(&mut at), next(&mut at));
            let _extra = if flags & 1 != 0 { next(&mut at) } else { 0 };
            let data = if flags & 2 != 0 { next(&mut at) } else { 0 };
            if kind != 2 {
                at = end + data as usize;
                continue;
            }
            let flags = next(&mut at);
            let size = next(&mut at);
            next(&mut at);
            // The time, and the CRC-32.
            at += [2, 4].iter().filter(|flag| flags & **flag != 0).count() * 4;
            let method = next(&mut at);
            assert!(method & 0x380 != 0, "it is compressed");
            let data = archive[end..end + data as usize].to_vec();
            return Self { data, method, size, crc: crc32fast::hash(content) };
        }
    }

    /// A block of RAR 5: kind 2 of a file, 3 of what belongs to one.
    fn block(&self, kind: u64, name: &[u8], extra: &[u8]) -> Vec<u8> {
        let extra = if extra.is_empty() { Vec::new() } else { [number(extra.len() as u64), extra.to_vec()].concat() };
        let flags = 2 | u64::from(!extra.is_empty());
        let fields = [
            number(kind),
            number(flags),
            if extra.is_empty() { Vec::new() } else { number(extra.len() as u64) },
            number(self.data.len() as u64),
            number(4),
            number(self.size),
            number(0o100_644),
            self.crc.to_le_bytes().to_vec(),
            number(self.method),
            number(1),
            number(name.len() as u64),
            name.to_vec(),
            extra,
        ]
        .concat();
        [sealed(&fields), self.data.clone()].concat()
    }
}

/// A header with its length and checksum.
fn sealed(fields: &[u8]) -> Vec<u8> {
    let header = [&number(fields.len() as u64), fields].concat();
    [&crc32fast::hash(&header).to_le_bytes()[..], &header].concat()
}

const MARK: &[u8] = b"Rar!\x1a\x07\x01\0";

/// A stream of NTFS with its name, in an archive of RAR 5.
fn stream(name: &str, content: &Packed) -> Vec<u8> {
    content.block(3, b"STM", &[&number(7)[..], name.as_bytes()].concat())
}

/// Streams of one file have a bound together.
#[test]
fn not_all_of_very_many_streams_are_attributes() {
    let scratch = Scratch::new();
    let many = (0..60).flat_map(|number| stream(&format!(":s{number}"), &Packed::stored(&vec![7; 60_000])));
    let file = Packed::stored(b"one").block(2, b"one", &[]);
    let archive = [MARK.to_vec(), sealed(&[1, 0, 0]), file, many.collect(), sealed(&[5, 0, 0])].concat();
    fs::write(scratch.path("many.rar"), archive).unwrap();
    let stat = run(&scratch, ["stat", "--json", scratch.path("many.rar").to_str().unwrap(), "one"]).ok().text();
    let count = stat.matches("user.s").count();
    assert!((10..20).contains(&count), "{count}");
}

#[test]
fn short_streams_of_ntfs_are_extended_attributes() {
    if !can_mount() || !have("getfattr") {
        return println!("left out: no mounts here, or no getfattr");
    }
    let scratch = Scratch::new();
    let text = (0..2000).fold(String::new(), |text, number| text + &format!("{number}, "));
    let mut wrong = Packed::stored(b"other");
    wrong.crc ^= 1;
    let five = [
        MARK.to_vec(),
        sealed(&[1, 0, 0]),
        Packed::stored(b"one").block(2, b"one", &[]),
        stream(":Zone.Identifier:$DATA", &Packed::stored(b"[ZoneTransfer]")),
        stream(":text", &Packed::compressed(text.as_bytes())),
        stream(":empty", &Packed::stored(b"")),
        stream(":long", &Packed::stored(&vec![7; 70_000])),
        Packed::stored(b"two").block(2, b"two", &[]),
        stream(":wrong", &wrong),
        sealed(&[5, 0, 0]),
    ];
    fs::write(scratch.path("five.rar"), five.concat()).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("five.rar"), &[]);
    let names = |file: &str| {
        let at = mounted.path("");
        scratch.shell(&format!(
            "getfattr --absolute-names '{}/{file}' | sed -n /^user/p | sort | paste -sd,",
            at.display()
        ))
    };
    assert_eq!(names("one").trim(), "user.Zone.Identifier,user.empty,user.text");
    assert_eq!(names("two").trim(), "");
    let value = |name: &str| {
        let at = mounted.path("one");
        scratch.shell(&format!("getfattr --absolute-names --only-values -n user.{name} '{}'", at.display()))
    };
    assert_eq!(value("Zone.Identifier"), "[ZoneTransfer]");
    assert!(value("text") == text);
    assert_eq!(fs::read(mounted.path("two")).unwrap(), b"two");
    assert!(mounted.ran.err.contains("a stream of 'two' is left out"), "{}", mounted.ran.err);
    mounted.unmount();
    // What would be lost keeps the archive.
    let ran = run(
        &scratch,
        ["convert", "--replace", scratch.path("five.rar").to_str().unwrap(), scratch.path("a.tar").to_str().unwrap()],
    );
    assert!(scratch.path("five.rar").exists() && ran.code != 0, "{}", ran.err);
}

/// Archives of RAR in archives, and behind a program.
#[test]
fn archives_in_archives_are_folders() {
    if !can_mount() || !have("zip") || !have("7z") {
        return println!("left out: no mounts here, or a program is missing");
    }
    let files = &tree()[..12];
    for version in [ArchiveVersion::Rar50, ArchiveVersion::Rar40] {
        for solid in [false, true] {
            let scratch = Scratch::new();
            let what = format!("{version:?}, solid {solid}");
            let bytes = builder(version, files).solid(solid).compression_level(Some(3)).to_bytes().unwrap();
            fs::write(scratch.path("in.rar"), &bytes).unwrap();
            let program = [fs::read("/bin/true").unwrap(), bytes.clone()].concat();
            fs::write(scratch.path("setup.rar"), &program).unwrap();
            let mut itself = Builder::new(version);
            for (name, content) in [("in.rar", bytes), ("setup.rar", program)] {
                itself.add_bytes(name.as_bytes().to_vec(), content, Some(0), None).unwrap();
            }
            let store = itself.compression_level(Some(0)).to_bytes().unwrap();
            fs::write(scratch.path("itself.rar"), store).unwrap();
            scratch.shell(
                "tar cf out.tar in.rar setup.rar; zip -q -0 out.zip in.rar setup.rar; zip -q deflated.zip in.rar
                7z a -bso0 out.7z in.rar; gzip -k out.tar",
            );
            for outer in ["out.tar", "out.zip", "itself.rar", "deflated.zip", "out.7z", "out.tar.gz"] {
                let mounted = Mounted::new(&scratch, scratch.path(outer), &["-r"]);
                let mut inner = vec!["in.rar"];
                // Of what is compressed, only the first bytes are looked at.
                if matches!(outer, "out.tar" | "out.zip") {
                    inner.push("setup.rar");
                }
                for inner in inner {
                    for (name, content) in files.iter().rev() {
                        let read = fs::read(mounted.path(format!("{inner}/{name}")));
                        let read = read.unwrap_or_else(|error| panic!("{what}: {outer}/{inner}/{name}: {error}"));
                        assert!(read == *content, "{what}: {outer}/{inner}/{name}");
                    }
                }
                mounted.unmount();
            }
        }
    }
}
