//! 7z archives are what 7-Zip says they are.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

mod common;
#[path = "common/undo.rs"]
mod undo;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::sh;
use tarnfs_format::sevenzip::SevenZip;
use tarnfs_format::{Decode, Entry, Error, Event, Input, Kind, Options, Piece, ReadRandom};
use tarnfs_source::{FileSource, MemorySource, SharedSource, Slice, Source};
use undo::undo;

/// All that an archive told.
#[derive(Debug, Default)]
struct Told {
    entries: Vec<(Entry, Option<Piece>)>,
    damage: Vec<String>,
    unlisted: Vec<String>,
}

impl Told {
    fn paths(&self) -> Vec<String> {
        self.entries.iter().map(|(entry, _)| String::from_utf8_lossy(&entry.path).into_owned()).collect()
    }

    fn entry(&self, path: &str) -> &(Entry, Option<Piece>) {
        let found = self.entries.iter().find(|(entry, _)| entry.path == path.as_bytes());
        found.unwrap_or_else(|| panic!("{path} is not in {:?}", self.paths()))
    }
}

fn read_source(source: &SharedSource, password: Option<&str>) -> Result<Told, Error> {
    let mut told = Told::default();
    let password = password.map(str::to_owned);
    let decode = Decode::new(move |coder, stored, length, _| undo(coder, stored.as_ref(), length, password.as_deref()));
    SevenZip.read(source, &Options { decode, ..Options::default() }, &mut |event| {
        match event {
            Event::Entry(mut entry) => {
                let piece = entry.body.pieces.take().map(|mut pieces| pieces.remove(0));
                told.entries.push((*entry, piece));
            }
            Event::Damage(damage) => told.damage.push(damage.what),
            Event::Unlisted(what) => told.unlisted.push(what),
            other => panic!("{other:?}"),
        }
        Ok(())
    })?;
    Ok(told)
}

fn read(archive: &[u8], password: Option<&str>) -> Result<Told, Error> {
    read_source(&(Arc::new(MemorySource::new(archive, "archive")) as SharedSource), password)
}

fn content(source: &SharedSource, piece: &Piece, password: Option<&str>) -> io::Result<Vec<u8>> {
    let stored = Slice::new(Arc::clone(source), piece.offset, piece.stored);
    let bytes = if let Some(coder) = &piece.coder {
        undo(coder, &stored, piece.decoded, password)?
    } else {
        let mut bytes = vec![0; piece.stored as usize];
        stored.read_exact_at(&mut bytes, 0)?;
        bytes
    };
    let bytes = bytes[piece.skip as usize..][..piece.length as usize].to_vec();
    assert_eq!(piece.crc, Some(crc32fast::hash(&bytes)));
    Ok(bytes)
}

/// 7-Zip, under whichever name; `None`, and a line that says so, if it is not here.
fn seven_zip() -> Option<&'static str> {
    let is_here = |name: &&str| {
        std::process::Command::new("sh").args(["-c", &format!("command -v {name}")]).output().unwrap().status.success()
    };
    let found = ["7zz", "7z"].into_iter().find(is_here);
    if found.is_none() {
        println!("7-Zip is not installed: not tested");
    }
    found
}

/// What 7-Zip lists, in the order of the archive.
fn listing(archive: &Path, password: &str) -> Vec<BTreeMap<String, String>> {
    let tool = seven_zip().unwrap();
    let name = archive.file_name().unwrap().to_string_lossy();
    let text = sh(archive.parent().unwrap(), &format!("TZ=UTC {tool} l -slt -p{password} {name}"));
    let (_, records) = text.split_once("----------\n").unwrap();
    let fields = |record: &str| {
        record
            .lines()
            .filter_map(|line| line.split_once(" ="))
            .map(|(key, value)| (key.into(), value.trim().into()))
            .collect()
    };
    records.split("\n\n").filter(|record| record.contains("Path =")).map(fields).collect()
}

/// Of codecs, the names that 7-Zip has for them.
fn method(codec: &str) -> &str {
    match codec {
        "lzma-raw" => "LZMA",
        "lzma2" => "LZMA2",
        "ppmd7" => "PPMD",
        "bzip2" => "BZip2",
        "deflate" => "Deflate",
        "deflate64" => "Deflate64",
        "aes-7z" => "7zAES",
        "delta" => "Delta",
        "bcj2" => "BCJ2",
        "bcj-x86" => "BCJ",
        "swap2" => "Swap2",
        "swap4" => "Swap4",
        "zstd" => "04F71101",
        other => other.trim_start_matches("bcj-"),
    }
}

fn mode(kind: Kind, mode: u32) -> String {
    let letter = match kind {
        Kind::Folder => 'd',
        Kind::Symlink => 'l',
        _ => '-',
    };
    let letters = (0..9).map(|bit| if mode >> (8 - bit) & 1 == 1 { "rwx".as_bytes()[bit % 3] as char } else { '-' });
    std::iter::once(letter).chain(letters).collect()
}

/// "2001-02-03 04:05:06.7890123" as seconds and nanoseconds since 1970.
fn seconds(text: &str) -> (i64, u32) {
    let numbers: Vec<i64> = text.split(['-', ' ', ':', '.']).map(|part| part.parse().unwrap()).collect();
    let [year, month, day, hour, minute, second, ..] = numbers[..] else { panic!("{text}") };
    // Years that begin in March end with the day that not all have.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719_469;
    let fraction = text.split_once('.').map_or("0", |(_, fraction)| fraction);
    (((days * 24 + hour) * 60 + minute) * 60 + second, format!("{fraction:0<9}").parse().unwrap())
}

/// Compares with what 7-Zip lists, and with what it unpacks, as far as it can be decoded here. Returns how many files
/// were.
fn compare(archive: &Path, password: Option<&str>) -> usize {
    let source: SharedSource = Arc::new(FileSource::open(archive).unwrap());
    let told = read_source(&source, password).unwrap();
    let listed = listing(archive, password.unwrap_or("none"));
    assert_eq!(told.entries.len(), listed.len(), "{}: {:?}", archive.display(), told.paths());
    let folder = tempfile::tempdir().unwrap();
    let (tool, to) = (seven_zip().unwrap(), folder.path().display());
    let name = archive.file_name().unwrap().to_string_lossy();
    sh(
        archive.parent().unwrap(),
        &format!("{tool} x -bd -snld -p{} -o{to} {name} > /dev/null || true", password.unwrap_or("none")),
    );
    let mut blocks: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    let mut compared = 0;
    for ((entry, piece), record) in told.entries.iter().zip(&listed) {
        let field = |key: &str| record.get(key).map_or("", String::as_str);
        let path = String::from_utf8_lossy(&entry.path);
        let what = format!("{}: {path}: {entry:?} {piece:?} {record:?}", archive.display());
        assert_eq!(path, field("Path"), "{what}");
        assert_eq!(piece.as_ref().map_or(0, |piece| piece.length).to_string(), field("Size"), "{what}");
        assert_eq!(entry.body.size.to_string(), field("Size"), "{what}");
        let crc = piece.as_ref().and_then(|piece| piece.crc).map_or_else(String::new, |crc| format!("{crc:08X}"));
        assert_eq!(crc, field("CRC"), "{what}");
        let (kind, attributes) = (field("Attributes"), entry.mode);
        assert_eq!(kind.starts_with('D'), entry.kind == Kind::Folder, "{what}");
        if let Some(listed) = kind.split(' ').find(|part| part.len() == 10) {
            let special = |letter: char| if "sStT".contains(letter) { '?' } else { letter };
            if !listed.chars().any(|letter| special(letter) == '?') && !listed.starts_with('p') {
                assert_eq!(mode(entry.kind, attributes), listed, "{what}");
            }
        }
        for (time, key) in [(Some(entry.mtime), "Modified"), (entry.atime, "Accessed"), (entry.ctime, "Created")] {
            if let Some(time) = time.filter(|_| !field(key).is_empty()) {
                assert_eq!((time.seconds, time.nanoseconds), seconds(field(key)), "{what}");
            }
        }
        let Some(piece) = piece else { continue };
        let steps = piece.coder.iter().flat_map(|coder| coder.steps.iter().rev());
        let methods: Vec<String> = steps.map(|step| method(&step.codec).to_uppercase()).collect();
        // Each is followed by what its properties say: "LZMA2:24".
        let listed: Vec<String> =
            field("Method").split(' ').map(|name| name.split(':').next().unwrap().to_uppercase()).collect();
        if !methods.contains(&"BCJ2".to_owned()) {
            let listed: Vec<String> = listed.into_iter().filter(|name| name != "COPY").collect();
            assert_eq!(methods, listed, "{what}");
        }
        let block = (piece.offset, piece.stored, piece.decoded);
        if piece.coder.is_some() {
            assert_eq!(*blocks.entry(field("Block").to_owned()).or_insert(block), block, "{what}");
        }
        let unpacked = folder.path().join(std::ffi::OsStr::from_bytes(&entry.path));
        match content(&source, piece, password) {
            Ok(bytes) if entry.kind == Kind::Symlink => {
                let target = fs::read_link(&unpacked).unwrap();
                assert_eq!(bytes, target.as_os_str().as_bytes(), "{what}");
                compared += 1;
            }
            Ok(bytes) => {
                assert!(bytes == fs::read(&unpacked).unwrap(), "{what}");
                compared += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(error) => panic!("{what}: {error}"),
        }
    }
    compared
}

/// A folder with a tree of files in it, `t`.
fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    sh(
        folder.path(),
        "mkdir -p t/folder/deeper t/nothing; seq 1 20000 > t/numbers; head -c 70000 /dev/urandom > t/noise
         : > t/empty; printf x > t/folder/one; printf two > t/folder/deeper/two; cp /bin/ls t/program
         ln -s folder/one t/link; ln -s ../nowhere t/folder/broken; chmod 4750 t/program; chmod 400 t/folder/one
         touch -d '2001-02-03 04:05:06.789012300Z' t/numbers; touch -d '1969-12-31 23:59:58.5Z' t/noise
         printf ä > 't/ä€😀 name'; printf b > t/$(printf 'bad\\377\\303name'); printf s > 't/back\\slash'
         printf l > t/$(printf '%0250d' 1); printf n > 't/new'",
    );
    folder
}

fn packed(folder: &tempfile::TempDir, options: &str) -> PathBuf {
    let tool = seven_zip().unwrap();
    sh(folder.path(), &format!("rm -f a.7z; {tool} a -bd -snl {options} a.7z t > /dev/null"));
    folder.path().join("a.7z")
}

#[test]
fn each_method_solid_and_not() {
    if seven_zip().is_none() {
        return;
    }
    let folder = tree();
    for method in ["copy", "lzma", "lzma2", "ppmd", "bzip2", "deflate", "deflate64"] {
        for solid in ["-ms=on", "-ms=off", "-ms=3f", "-ms=on -mhc=off", "-ms=on -mf=off -mtc=on -mta=on"] {
            let compared = compare(&packed(&folder, &format!("-mx=1 -m0={method} {solid}")), None);
            let is_read = matches!(method, "copy" | "lzma" | "lzma2" | "bzip2");
            // Of the empty folder, the others and the empty file there is no content.
            assert_eq!(compared, if is_read { 12 } else { 0 }, "{method} {solid}");
        }
    }
}

#[test]
fn each_filter() {
    if seven_zip().is_none() {
        return;
    }
    let folder = tree();
    for filter in ["delta:4", "delta:256", "bcj", "ppc", "ia64", "arm", "armt", "sparc", "arm64", "riscv"] {
        for options in [
            format!("-m0={filter} -m1=lzma2"),
            format!("-m0={filter} -m1=bzip2 -ms=off"),
            format!("-m0={filter} -m1=copy"),
        ] {
            assert_eq!(compare(&packed(&folder, &format!("-mx=1 {options}")), None), 12, "{options}");
        }
    }
    assert_eq!(compare(&packed(&folder, "-mx=1 -m0=delta:2 -m1=bcj -m2=lzma"), None), 12);
    for filter in ["swap2", "swap4"] {
        let options = format!("-mx=1 -m0={filter} -m1=lzma2");
        // Only newer ones know these.
        let packs = std::process::Command::new(seven_zip().unwrap()).arg("i").output().unwrap().stdout;
        if String::from_utf8_lossy(&packs).to_lowercase().contains(filter) {
            assert_eq!(compare(&packed(&folder, &options), None), 12, "{options}");
        }
    }
    let bcj2 = packed(&folder, "-mx=1 -m0=bcj2 -m1=lzma -m2=lzma -m3=lzma -mb0:1 -mb0s1:2 -mb0s2:3");
    assert_eq!(compare(&bcj2, None), 0);
    let told = read(&fs::read(bcj2).unwrap(), None).unwrap();
    assert_eq!(told.damage, Vec::<String>::new());
    let (_, piece) = told.entry("t/numbers");
    let piece = piece.as_ref().unwrap();
    let steps = &piece.coder.as_ref().unwrap().steps;
    let codecs: Vec<_> = steps.iter().map(|step| step.codec.as_str()).collect();
    assert_eq!(codecs, ["lzma-raw", "lzma-raw", "lzma-raw", "bcj2"]);
    let inputs = &steps[3].inputs;
    assert_eq!(inputs[..3], [Input::Step(0), Input::Step(1), Input::Step(2)]);
    // The fourth stream is stored as it is. All of them together are what is stored.
    let mut stored: Vec<_> = (steps.iter().flat_map(|step| &step.inputs))
        .filter_map(|input| if let Input::Stored { offset, length } = *input { Some((offset, length)) } else { None })
        .collect();
    assert_eq!((inputs.len(), stored.len()), (4, 4));
    stored.sort_unstable();
    let end = stored.into_iter().fold(0, |end, (offset, length)| if offset == end { end + length } else { u64::MAX });
    assert_eq!(end, piece.stored);
}

#[test]
fn encrypted_archives() {
    if seven_zip().is_none() || !common::has("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Few files: to make a key takes half a second.
    sh(folder.path(), "mkdir t; seq 1 10000 > t/numbers; printf x > t/x");
    for options in ["-m0=lzma2", "-m0=copy", "-m0=bcj -m1=lzma", "-m0=bzip2"] {
        let archive = packed(&folder, &format!("-mx=1 -psecret {options}"));
        assert_eq!(compare(&archive, Some("secret")), 2);
    }
    let archive = packed(&folder, "-mx=1 -psecret -mhe=on");
    assert_eq!(compare(&archive, Some("secret")), 2);
    let bytes = fs::read(&archive).unwrap();
    for (password, expected) in [(None, "give a password"), (Some("wrong"), "wrong password")] {
        let Err(Error::Read { error, .. }) = read(&bytes, password) else { panic!("it was read") };
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn many_files() {
    let Some(tool) = seven_zip().filter(|_| common::has("python3")) else { return };
    let folder = tempfile::tempdir().unwrap();
    // Links, for files of their own take a minute to remove on some disks.
    sh(
        folder.path(),
        "mkdir t; for file in $(seq 100); do
            seq $file > $file; for name in $(seq 200); do echo $file t/file-$file-of-$name; done; done |
         python3 -c 'import os, sys; [os.link(*line.split()) for line in sys.stdin]'",
    );
    let archive = packed(&folder, "-mx=1");
    let source: SharedSource = Arc::new(FileSource::open(&archive).unwrap());
    let told = read_source(&source, None).unwrap();
    assert_eq!((told.entries.len(), told.damage.len()), (20_001, 0));
    let names = sh(folder.path(), &format!("{tool} l -ba -slt a.7z | sed -n 's/^Path = //p'"));
    assert!(names.lines().eq(told.paths().iter().map(String::as_str)));
    let pieces: Vec<&Piece> = told.entries.iter().filter_map(|(_, piece)| piece.as_ref()).collect();
    assert!(pieces.windows(2).all(|pair| pair[0].skip + pair[0].length == pair[1].skip));
    let coder = pieces[0].coder.as_ref().unwrap();
    assert!(pieces.iter().all(|piece| Arc::ptr_eq(piece.coder.as_ref().unwrap(), coder)), "one coder for all");
    let stored = Slice::new(Arc::clone(&source), pieces[0].offset, pieces[0].stored);
    let decoded = undo(coder, &stored, pieces[0].decoded, None).unwrap();
    for piece in pieces {
        let bytes = &decoded[piece.skip as usize..][..piece.length as usize];
        assert_eq!(piece.crc, Some(crc32fast::hash(bytes)));
    }
}

#[test]
fn archives_without_files_or_names() {
    let Some(tool) = seven_zip() else { return };
    let folder = tempfile::tempdir().unwrap();
    sh(
        folder.path(),
        &format!(
            "printf x > x; {tool} a e.7z x; {tool} d e.7z x; printf stdin | {tool} a -si n.7z\n: > none; {tool} a o.7z none"
        ),
    );
    assert_eq!(read(&fs::read(folder.path().join("e.7z")).unwrap(), None).unwrap().entries.len(), 0);
    compare(&folder.path().join("o.7z"), None);
    let source: SharedSource = Arc::new(FileSource::open(folder.path().join("n.7z")).unwrap());
    let told = read_source(&source, None).unwrap();
    assert_eq!(told.paths(), ["n"]);
    assert_eq!(content(&source, told.entries[0].1.as_ref().unwrap(), None).unwrap(), b"stdin");
}

#[test]
fn anti_items_are_not_shown() {
    let Some(tool) = seven_zip() else { return };
    let folder = tree();
    packed(&folder, "-mx=1");
    sh(
        folder.path(),
        &format!(
            "rm -r t/numbers t/nothing; echo new > t/new; {tool} u a.7z -snl -u- '-up0q3r2x2y2z0w2!anti.7z' t > /dev/null"
        ),
    );
    let told = read(&fs::read(folder.path().join("anti.7z")).unwrap(), None).unwrap();
    let [unlisted] = &told.unlisted[..] else { panic!("{:?}", told.unlisted) };
    assert!(unlisted.starts_with("entries that say what is to be removed ("), "{unlisted}");
    assert!(!told.paths().contains(&"t/numbers".to_owned()), "{:?}", told.paths());
    assert_eq!(told.damage, Vec::<String>::new());
}

#[test]
fn programs_that_unpack_themselves() {
    if seven_zip().is_none() {
        return;
    }
    let folder = tree();
    let archive = fs::read(packed(&folder, "-mx=1")).unwrap();
    let plain = read(&archive, None).unwrap();
    assert_eq!(plain.unlisted, Vec::<String>::new());
    for length in [1, 511, 200_000, 1 << 20] {
        let mut prefixed = vec![0x37; length];
        prefixed[..length.min(6)].copy_from_slice(&b"7z\xbc\xaf\x27\x1d"[..length.min(6)]);
        prefixed.extend(&archive);
        let told = read(&prefixed, None).unwrap();
        assert_eq!(told.paths(), plain.paths());
        let (_, piece) = told.entry("t/numbers");
        let (_, expected) = plain.entry("t/numbers");
        assert_eq!(piece.as_ref().unwrap().offset, expected.as_ref().unwrap().offset + length as u64);
        assert_eq!(told.entries[0].0.header, length as u64 + 1);
        let source: SharedSource = Arc::new(MemorySource::new(prefixed, "prefixed"));
        let numbers = fs::read(folder.path().join("t/numbers")).unwrap();
        assert_eq!(content(&source, piece.as_ref().unwrap(), None).unwrap(), numbers);
    }
    let far = [vec![0; (1 << 20) + 1], archive].concat();
    assert!(matches!(read(&far, None), Err(Error::NotThisFormat { .. })));
}

#[test]
fn what_is_cut_or_no_archive_is_an_error() {
    assert!(matches!(read(b"", None), Err(Error::NotThisFormat { .. })));
    assert!(matches!(read(&[7; 5000], None), Err(Error::NotThisFormat { .. })));
    let Some(tool) = seven_zip() else { return };
    let folder = tree();
    let archive = fs::read(packed(&folder, "-mx=1")).unwrap();
    for length in (0..100).chain((100..archive.len()).step_by(997)).chain(archive.len() - 200..archive.len()) {
        let error = read(&archive[..length], None).unwrap_err().to_string();
        if length >= 32 {
            assert!(error.contains("it is cut, or the first one of several files"), "{error}");
        }
    }
    sh(folder.path(), &format!("{tool} a -v50k v.7z t > /dev/null; cat v.7z.* > whole.7z"));
    let error = read(&fs::read(folder.path().join("v.7z.001")).unwrap(), None).unwrap_err().to_string();
    assert!(error.contains("several files"), "{error}");
    assert_eq!(read(&fs::read(folder.path().join("whole.7z")).unwrap(), None).unwrap().damage, Vec::<String>::new());
    for at in 6..32 {
        let mut changed = archive.clone();
        changed[at] ^= 1;
        assert_eq!(read(&changed, None).is_err(), at != 7, "byte {at}");
    }
}

/// Archives of libarchive's tests, written by many versions of many programs.
#[test]
fn archives_of_others() {
    if seven_zip().is_none() {
        return;
    }
    let corpus = std::env::var_os("TARNFS_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"), PathBuf::from);
    let Ok(files) = fs::read_dir(corpus.join("libarchive")) else {
        println!("no archives of other projects at {} (TARNFS_CORPUS): not tested", corpus.display());
        return;
    };
    let is_7z = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.contains("format_7zip_") && [".7z", ".exe", ".elf"].iter().any(|suffix| name.ends_with(suffix))
    };
    let mut compared = 0;
    for path in files.map(|file| file.unwrap().path()).filter(is_7z) {
        let name = path.file_name().unwrap().to_string_lossy();
        if ["_oom", "malformed", "elf64trunc", "encryption_header", "sfx_boundary"]
            .iter()
            .any(|part| name.contains(part))
        {
            let source: SharedSource = Arc::new(FileSource::open(&path).unwrap());
            println!("{name}: {:?}", read_source(&source, None).map_err(|error| error.to_string()));
        } else {
            compared += compare(&path, None);
        }
    }
    println!("{compared} files were compared");
}

/// Changed headers of real archives, their checksums set right so that the changes are read.
#[test]
fn changed_archives_are_errors_or_archives() {
    let Some(tool) = seven_zip() else { return };
    let folder = tree();
    sh(folder.path(), "rm t/program t/noise t/numbers; seq 10 > t/numbers");
    let mut random = 12_345_u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % limit
    };
    let (mut read_on, mut cases) = (0, 0);
    for options in ["-m0=lzma2", "-m0=copy -mtc=on -mta=on", "-ms=off -m0=bcj -m1=lzma", "-psecret -m0=ppmd"] {
        sh(folder.path(), &format!("rm -f a.7z; {tool} a -bd -snl -mhc=off {options} a.7z t > /dev/null"));
        let archive = fs::read(folder.path().join("a.7z")).unwrap();
        let header = 32 + u64::from_le_bytes(archive[12..20].try_into().unwrap()) as usize;
        for _ in 0..2000 {
            let mut changed = archive.clone();
            for _ in 0..=below(3) {
                let at = header + below(changed.len() - header);
                match below(4) {
                    0 => changed[at] ^= 1 << below(8),
                    1 => changed[at] = below(256) as u8,
                    2 => changed.insert(at, [0, 1, 0x7f, 0xff][below(4)]),
                    _ => drop(changed.drain(at..(at + 1 + below(8)).min(changed.len()))),
                }
            }
            let length = (changed.len() - header) as u64;
            changed[20..28].copy_from_slice(&length.to_le_bytes());
            let crc = crc32fast::hash(&changed[header..]);
            changed[28..32].copy_from_slice(&crc.to_le_bytes());
            let crc = crc32fast::hash(&changed[12..32]);
            changed[8..12].copy_from_slice(&crc.to_le_bytes());
            cases += 1;
            if let Ok(told) = read(&changed, None) {
                read_on += 1;
                for (_, piece) in &told.entries {
                    let end = piece.as_ref().map(|piece| piece.offset + piece.stored);
                    assert!(end.is_none_or(|end| end <= changed.len() as u64));
                }
            }
        }
    }
    println!("{read_on} of {cases} could still be read");
    assert!(read_on > cases / 20 && read_on < cases);
}
