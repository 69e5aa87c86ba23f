//! Archives made by the zip programs that people use, compared with what Python's zipfile lists and unzip extracts, and
//! archives made by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::zip::{Made, Member, Read, locals, read, read_raw, read_whole, try_read, zip};
use common::{Block, has, sh};
use proptest::prelude::*;
use tarnfs_format::zip::Zip;
use tarnfs_format::{Device, Format, Kind, Probe, detect};
use tarnfs_source::{MemorySource, SharedSource};

/// A tree with what zip programs store.
const TREE: &str = r#"
    export TZ=UTC
    mkdir -p tree/folder/inner tree/empty
    printf hello > tree/folder/file; : > tree/folder/nothing
    head -c 100000 /dev/urandom > tree/folder/inner/random
    seq 20000 > tree/folder/inner/numbers
    ln -s ../file tree/folder/inner/link; ln -s missing tree/dangling
    chmod 4751 tree/folder/file; chmod 1777 tree/empty; chmod 400 tree/folder/nothing
    [ "$(id -u)" = 0 ] && chown 1234:4321 tree/folder/file
    touch -h -d '2001-02-03 04:05:06 UTC' tree/folder/file tree/dangling tree/folder/inner
    printf x > 'tree/sp ace"\\'; printf x > tree/ä
"#;

/// What Python lists, a line each; and, of what it is given, whether the content is where it was said to be.
const PYTHON: &str = r"
import bz2, calendar, lzma, sys, zipfile, zlib
archive = zipfile.ZipFile(sys.argv[1])
whole = open(sys.argv[1], 'rb').read()
def undo(steps, data):
    if steps == '': return data
    if steps == 'deflate': return zlib.decompress(data, -15)
    if steps == 'bzip2': return bz2.decompress(data)
    if steps == 'lzma-zip':
        properties = lzma._decode_filter_properties(lzma.FILTER_LZMA1, data[4:9])
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[properties]).decompress(data[9:])
for line in sys.stdin:
    start, stored, size, crc, steps = line.rstrip('\n').split(' ')
    data = undo(steps, whole[int(start):int(start) + int(stored)])
    assert data is None or (len(data), zlib.crc32(data)) == (int(size), int(crc)), line
for info in archive.infolist():
    time = calendar.timegm(info.date_time + (0, 0, 0))
    print(info.orig_filename.encode('utf-8' if info.flag_bits & 0x800 else 'cp437').hex(), info.header_offset,
        info.file_size, info.compress_size, info.CRC, info.external_attr >> 16, time, info.create_system)
";

/// Compares an archive with what Python lists of it: names, places, sizes, checksums, modes, times, content.
fn compare(path: &Path) -> Read {
    compare_made(path, true)
}

fn compare_made(path: &Path, is_made_here: bool) -> Read {
    let archive = fs::read(path).unwrap();
    let told = read_whole(&archive);
    let mut child = Command::new("python3")
        .args(["-c", PYTHON])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = String::new();
    let source = MemorySource::new(archive, "archive");
    for member in &told.members {
        if member.piece.length == 0 {
            continue;
        }
        let start = member.content(&source).unwrap();
        let crc = member.piece.crc.unwrap_or_default();
        writeln!(lines, "{start} {} {} {crc} {}", member.piece.stored, member.piece.length, member.codecs()).unwrap();
    }
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", path.display());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut listed: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    listed.sort_by_key(|line| line[1].parse::<u64>().unwrap());
    assert_eq!(listed.len(), told.members.len(), "{}", path.display());
    for (member, line) in told.members.iter().zip(&listed) {
        let hex = |text: &str| -> Vec<u8> {
            text.as_bytes().chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
        };
        let number = |at: usize| line[at].parse::<u64>().unwrap();
        let shown = String::from_utf8_lossy(&member.entry.path);
        // Python knows neither Unicode paths beside others nor the separators of Windows, and guesses no encoding. What
        // programs on Unix have written keeps its bytes.
        if WRITTEN_ON_UNIX.iter().any(|name| path.file_stem().is_some_and(|stem| stem == *name)) {
            assert_eq!(member.entry.path, hex(line[0]), "{shown}");
        } else if str::from_utf8(&hex(line[0])).is_err() {
            assert!(str::from_utf8(&member.entry.path).is_ok(), "{shown}");
        } else if is_made_here || !path.to_string_lossy().contains("7075") && !hex(line[0]).contains(&b'\\') {
            assert_eq!(member.entry.path, hex(line[0]), "{shown}");
        }
        assert_eq!(member.entry.header, number(1), "{shown}");
        assert_eq!(member.entry.body.size, number(2), "{shown}");
        if number(2) > 0 {
            assert_eq!(member.piece.stored, number(3), "{shown}");
        }
        if let Some(crc) = member.piece.crc {
            assert_eq!(u64::from(crc), number(4), "{shown}");
        }
        if number(5) != 0 {
            assert_eq!(u64::from(member.entry.mode), number(5) & 0o7777, "{shown}");
            assert_eq!(member.entry.kind == Kind::Symlink, number(5) >> 12 == 0o12, "{shown}");
        }
        let difference = member.entry.mtime.seconds - line[6].parse::<i64>().unwrap();
        // Made elsewhere, it has the local time of there.
        let difference = if is_made_here { difference } else { (difference + 2).rem_euclid(900) - 2 };
        assert!((-2..=2).contains(&difference), "{shown}: {difference}");
    }
    told
}

/// Compares attributes with those of what unzip extracts.
fn compare_extracted(folder: &Path, archive: &str, password: &str) {
    if !has("unzip") {
        return;
    }
    let told = read_whole(&fs::read(folder.join(archive)).unwrap());
    let password = if password.is_empty() { String::new() } else { format!("-P {password}") };
    sh(folder, &format!("rm -rf twin; mkdir twin; cd twin; TZ=UTC unzip -q -X -K {password} ../{archive}"));
    for member in &told.members {
        let path = folder.join("twin").join(str::from_utf8(&member.entry.path).unwrap());
        let metadata = fs::symlink_metadata(&path).unwrap();
        let (shown, kind) = (path.display(), metadata.file_type());
        match member.entry.kind {
            Kind::File => assert!(kind.is_file() && metadata.len() == member.entry.body.size, "{shown}"),
            Kind::Folder => assert!(kind.is_dir(), "{shown}"),
            Kind::Symlink => assert!(kind.is_symlink() && metadata.len() == member.entry.body.size, "{shown}"),
            // unzip makes a file of it.
            Kind::Fifo => continue,
            other => panic!("{shown}: {other:?}"),
        }
        if member.entry.kind != Kind::Symlink {
            assert_eq!(member.entry.mode, metadata.mode() & 0o7777, "{shown}");
            assert_eq!(member.entry.mtime.seconds, metadata.mtime(), "{shown}");
        }
        if rustix::process::geteuid().is_root() {
            let owner = (u64::from(metadata.uid()), u64::from(metadata.gid()));
            assert_eq!((member.entry.uid, member.entry.gid), owner, "{shown}");
        }
    }
}

fn codecs(told: &Read) -> Vec<String> {
    let mut names: Vec<String> = told.members.iter().map(Member::codecs).filter(|codecs| !codecs.is_empty()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn info_zip() {
    if !has("zip") {
        return;
    }
    for (options, expected) in [
        ("-r -y", &["deflate"][..]),
        ("-r -y -0", &[]),
        ("-r -y -Z bzip2", &["bzip2"]),
        // Not every zip can write a link with a descriptor.
        ("-r -y -fd -x *link *dangling @", &["deflate"]),
        ("-r -y -FI", &["deflate"]),
        ("-r -y -P secret", &["zipcrypto", "zipcrypto+deflate"]),
        ("-r -y -X", &["deflate"]),
        ("-r -y -D -j", &["deflate"]),
        ("-r -y -fz", &["deflate"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        sh(folder.path(), TREE);
        let fifo =
            if options.contains("-FI") { "mkfifo tree/fifo; (timeout 5 tail -f /dev/null > tree/fifo &);" } else { "" };
        sh(folder.path(), &format!("export TZ=UTC; {fifo} zip -q {options} a.zip tree"));
        let told = compare(&folder.path().join("a.zip"));
        assert_eq!(codecs(&told), expected, "{options}");
        if !options.contains("-X") && !options.contains("-j") {
            let password = if options.contains("-P") { "secret" } else { "" };
            compare_extracted(folder.path(), "a.zip", password);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    sh(folder.path(), TREE);
    sh(
        folder.path(),
        "export TZ=UTC; rm tree/dangling tree/folder/inner/link
         zip -q -r -y - tree | cat > a.zip; zip -q -r -y - tree -fz- | cat > b.zip",
    );
    for name in ["a.zip", "b.zip"] {
        compare(&folder.path().join(name));
    }
}

#[test]
fn seven_zip() {
    if !has("7z") {
        return;
    }
    for (options, expected) in [
        ("-mm=Deflate", &["deflate"][..]),
        ("-mm=Deflate64", &["deflate64"]),
        ("-mm=BZip2", &["bzip2"]),
        ("-mm=LZMA", &["lzma-zip"]),
        ("-mm=PPMd", &["ppmd8"]),
        ("-mm=Copy", &[]),
        ("-mm=Deflate -psecret -mem=AES256", &["aes-zip", "aes-zip+deflate"]),
        ("-mm=LZMA -psecret -mem=AES128", &["aes-zip", "aes-zip+lzma-zip"]),
        ("-mm=Deflate -psecret -mem=ZipCrypto", &["zipcrypto", "zipcrypto+deflate"]),
        ("-mm=Deflate -mtm=on -mta=on -mtc=on -mtp=1", &["deflate"]),
        ("-mm=Deflate -mcu=on", &["deflate"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        sh(folder.path(), TREE);
        sh(folder.path(), &format!("export TZ=UTC; 7z a -tzip -snl {options} a.zip tree > /dev/null"));
        let told = compare(&folder.path().join("a.zip"));
        assert_eq!(codecs(&told), expected, "{options}");
        if options.contains("AES256") {
            let member = told.members.iter().find(|member| member.codecs() == "aes-zip+deflate").unwrap();
            assert_eq!(member.piece.coder.as_ref().unwrap().steps[0].properties, [3]);
            assert!(told.members.iter().any(|member| member.piece.crc.is_none() && member.piece.length > 0));
        }
    }
}

#[test]
fn bsdtar() {
    if !has("bsdtar") {
        return;
    }
    for options in [
        "",
        "--options zip:compression=store",
        "--options zip:zip64",
        "--options zip:encryption=zipcrypt --passphrase secret",
        "--options zip:encryption=aes256 --passphrase secret",
    ] {
        let folder = tempfile::tempdir().unwrap();
        sh(folder.path(), TREE);
        sh(folder.path(), &format!("export TZ=UTC LC_ALL=C.UTF-8; bsdtar --format=zip {options} -cf a.zip tree"));
        compare(&folder.path().join("a.zip"));
    }
}

#[test]
fn pythons_zipfile() {
    for (what, script) in [
        (
            "methods",
            "
for method in (0, 8, 12, 14): z.writestr(f'm{method}', b'content ' * 1000, compress_type=method)",
        ),
        (
            "zip64",
            "
with z.open('large', 'w', force_zip64=True) as f: f.write(b'content ' * 1000)
z.writestr('small', b'1')",
        ),
        (
            "folders",
            "
z.mkdir('folder')
z.writestr('folder/file', b'1')",
        ),
        (
            "comments",
            "
z.writestr('a', b'1')
z.infolist()[0].comment = b'about a'
z.comment = b'a comment, ' * 5000",
        ),
        (
            "twice",
            "
z.writestr('a', b'first')
z.writestr('b', b'1')
z.writestr('a', b'second one')",
        ),
        (
            "names",
            "
z.writestr('ä/ö', b'1')
z.writestr('a\\\\b', b'1')",
        ),
        ("empty", ""),
    ] {
        for streamed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.zip");
            let target = if streamed { "Stream(open('a.zip', 'wb'))" } else { "'a.zip'" };
            let script = format!(
                "
import warnings, zipfile
warnings.simplefilter('ignore')
class Stream:
    def __init__(self, file): self.write, self.flush = file.write, file.flush
z = zipfile.ZipFile({target}, 'w', compression=zipfile.ZIP_DEFLATED)
{script}
z.close()
"
            );
            fs::write(folder.path().join("make.py"), script).unwrap();
            sh(folder.path(), "python3 make.py");
            let told = compare(&path);
            match what {
                "empty" => assert_eq!(told.members.len(), 0),
                "twice" => {
                    let sizes: Vec<_> = told.members.iter().map(|member| member.piece.length).collect();
                    assert_eq!(sizes, [5, 1, 10]);
                }
                _ => {}
            }
            // Without its directory, the same members are found.
            let archive = fs::read(&path).unwrap();
            let start = told.directory(&archive);
            if what != "empty" {
                let rebuilt = read(&archive[..start]);
                assert_eq!(rebuilt.damage.len(), 1, "{what}: {:?}", rebuilt.damage);
                for (one, other) in told.members.iter().zip(&rebuilt.members) {
                    assert_eq!(one.entry.path, other.entry.path, "{what}");
                    assert_eq!((&one.piece, one.entry.mtime), (&other.piece, other.entry.mtime), "{what}");
                }
            }
        }
    }
}

#[test]
fn many_members() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
import zipfile
z = zipfile.ZipFile('a.zip', 'w')
for n in range(70000): z.writestr(zipfile.ZipInfo(f'folder/{n:06}', (2020, 1, 1, 0, 0, n % 60)), str(n))
z.close()";
    sh(folder.path(), &format!("python3 -c \"{script}\""));
    let told = compare(&folder.path().join("a.zip"));
    assert_eq!(told.members.len(), 70_000);
    // The same, with the directory in another order.
    let mut archive = fs::read(folder.path().join("a.zip")).unwrap();
    let start = told.directory(&archive);
    let length = 46 + "folder/000000".len();
    let mut headers: Vec<Vec<u8>> =
        archive[start..start + length * 70_000].chunks(length).map(<[u8]>::to_vec).collect();
    headers.sort_by_key(|header| header[16..20].to_vec());
    archive[start..start + length * 70_000].copy_from_slice(&headers.concat());
    let sorted = read_whole(&archive);
    assert!(told.members.iter().zip(&sorted.members).all(|(one, other)| one.entry == other.entry));
}

#[test]
fn something_before_and_behind_the_archive() {
    let archive = zip(&[Made::new("a", b"hello"), Made::new("b", b"12345678")]);
    let told = read_whole(&archive);
    let stub = b"#!/bin/sh\nexec unzip PK\x03\x04 $0\n".repeat(3000);
    for prefix in [&b"x"[..], &stub] {
        let moved = read_whole(&[prefix, &archive].concat());
        assert_eq!(moved.paths(), ["a", "b"]);
        for (one, other) in told.members.iter().zip(&moved.members) {
            assert_eq!(one.entry.header + prefix.len() as u64, other.entry.header);
        }
    }
    let trailing = [&archive[..], &b"\n".repeat(60_000)].concat();
    assert_eq!(read_whole(&trailing).paths(), ["a", "b"]);
    if has("zip") {
        let folder = tempfile::tempdir().unwrap();
        sh(
            folder.path(),
            "seq 1000 > x; zip -q a.zip x; (seq 5000; cat a.zip) > b.zip; cp b.zip c.zip; zip -q -A c.zip || true",
        );
        for name in ["b.zip", "c.zip"] {
            compare(&folder.path().join(name));
        }
    }
    // One behind the other: the last one is the archive, as unzip has it.
    let other = zip(&[Made::new("c", b"1")]);
    assert_eq!(read_whole(&[&archive[..], &other].concat()).paths(), ["c"]);
}

/// A head, and a tail where it costs nothing, tell what an archive is.
#[test]
fn something_long_behind_the_archive() {
    let members = [Made { external: 0o100_755 << 16, ..Made::new("a", b"text") }, Made::new("b", b"more")];
    let archive = zip(&members);
    for length in [65_514, 65_515, 65_536, 70_000, 1_048_576 + 65_557 - 5, 3 << 20] {
        for filler in [0, b'P'] {
            let read = read_whole(&[archive.clone(), vec![filler; length]].concat());
            assert_eq!(read.paths(), ["a", "b"], "{length}");
            assert_eq!(read.members[0].entry.mode, 0o755, "by the directory, {length}");
        }
    }
    // Wherever the steps of the search divide the record.
    for length in (1_048_576 + 65_557 - 30)..(1_048_576 + 65_557 + 5) {
        let read = read_whole(&[archive.clone(), vec![0; length]].concat());
        assert_eq!(read.members[0].entry.mode, 0o755, "{length}");
    }
    // So far that its members are found by their headers.
    let read = read(&[archive, vec![0; 17 << 20]].concat());
    assert_eq!((read.paths(), read.damage.len()), (vec!["a".to_owned(), "b".to_owned()], 1));
}

#[test]
fn bids() {
    let archive = zip(&[Made::new("a.tar", &common::file("in", b"hello"))]);
    let tar = [common::file("in", b"hello"), common::END.to_vec()].concat();
    let name = |archive: &[u8]| {
        let source = MemorySource::new(archive, "archive");
        let probe = Probe::new(&archive[..archive.len().min(4096)], &source);
        detect(&probe).map_or("", Format::name)
    };
    assert_eq!(name(&archive), "zip");
    assert_eq!(name(&zip(&[])), "zip");
    assert_eq!(detect(&Probe::of_head(&archive[..100])).map(Format::name), Some("zip"));
    // A prefix, and something behind it. A tar that is stored in it has no say.
    for prefix in [&b"#!/bin/sh\n"[..], b"MZ\x90\0", &[0xff; 3000], &b"text\n".repeat(300)] {
        assert_eq!(name(&[prefix, &archive].concat()), "zip");
        assert_eq!(name(&[prefix, &archive, b"some more"].concat()), "zip");
        assert_eq!(name(&archive[..archive.len() - 10]), "zip");
    }
    // As the last member of a tar that gzip did not pack.
    let packed = [b"\x1f\x8b\x08\0", &b"tar"[..], &archive, &[0; 1024]].concat();
    assert!((1..16).contains(&Zip.bid(&Probe::new(&packed[..100], &MemorySource::new(&packed[..], "packed")))));
    // Archives that lie in a tar, at its end or with its end cut off.
    let mut v7 = Block::new("a.zip", 0);
    for outer in [common::file("a.zip", &archive), common::member(&mut v7, &archive)] {
        assert_eq!(name(&outer), "tar");
        assert_eq!(name(&outer[..512 + archive.len()]), "tar");
    }
    assert_eq!(name(&tar), "tar");
    for other in [&b"PK"[..], b"PK\x03\x04", b"", b"PK\x01\x02", &[0; 3000], b"text"] {
        assert_ne!(name(other), if other == b"PK\x03\x04" { "" } else { "zip" }, "{other:?}");
    }
}

#[test]
fn comments_that_look_like_the_end() {
    let mut archive = zip(&[Made::new("a", b"hello")]);
    let end = archive.len();
    let records = b"PK\x05\x06".repeat(16_000);
    archive[end - 2..].copy_from_slice(&(records.len() as u16).to_le_bytes());
    archive.extend(&records);
    assert_eq!(read_whole(&archive).paths(), ["a"]);
    // The comment is cut, or longer than it says.
    assert_eq!(read_whole(&[&archive[..], b"more"].concat()).paths(), ["a"]);
    assert_eq!(read(&archive[..archive.len() - 1]).paths(), ["a"]);
}

#[test]
fn names_in_other_encodings() {
    let latin = Made { flags: 0, ..Made::new_raw(b"\x84.txt", b"1") };
    let shift_jis = Made::new_raw(b"\x83\x5c\x83\x7b", b"1");
    let utf = Made { flags: 1 << 11, ..Made::new("ä/ö", b"1") };
    let field = [&[0x75, 0x70, 12, 0, 1][..], &crc32fast(b"\x84.2").to_le_bytes(), "ä/x.2".as_bytes()].concat();
    let field = [&field[..2], &(field.len() as u16 - 4).to_le_bytes(), &field[4..]].concat();
    let unicode = Made { extra: field.clone(), ..Made::new_raw(b"\x84.2", b"1") };
    let renamed = Made { extra: field, ..Made::new_raw(b"other", b"1") };
    let backslashes = Made { host: 0, ..Made::new("a\\b", b"1") };
    let of_unix = Made { host: 3, ..Made::new("a\\c", b"1") };
    let told = read_raw(&zip(&[latin, shift_jis, utf, unicode, renamed, backslashes, of_unix]));
    let paths: Vec<&[u8]> = told.members.iter().map(|member| &member.entry.path[..]).collect();
    let expected: [&[u8]; 7] =
        [b"\x84.txt", b"\x83\x5c\x83\x7b", "ä/ö".as_bytes(), "ä/x.2".as_bytes(), b"other", b"a/b", b"a\\c"];
    assert_eq!(paths, expected);
}

#[test]
fn names_that_say_nothing_are_guessed_together() {
    let of = |host: u8, flags: u16, name: &[u8]| Made { host, flags, ..Made::new_raw(name, b"1") };
    let paths = |members: &[Made]| read_whole(&zip(members)).paths();
    // Code page 437, with the separators of Windows; what is marked or is UTF-8 already stays.
    let german = [
        of(0, 0, b"B\x81cher\\Gr\x94\xe1e.txt"),
        of(0, 1 << 11, "Tür".as_bytes()),
        of(0, 0, "schön".as_bytes()),
        of(0, 1 << 11, b"T\x81r"),
    ];
    assert_eq!(paths(&german), ["Bücher/Größe.txt", "Tür", "schön", "T\u{fffd}r"]);
    // Shift-JIS, where half of a character may be the backslash.
    let japanese = [of(0, 0, b"\x83\x5c\x83\x74\x83\x67\\\x95\x5c.txt"), of(0, 0, b"\x8e\xca\x90\x5e.jpg")];
    assert_eq!(paths(&japanese), ["ソフト/表.txt", "写真.jpg"]);
    assert_eq!(paths(&[of(3, 0, b"B\xfccher.txt")]), ["Bücher.txt"]);
    // Bytes of a name on Unix are that name: two of them may be one in no encoding.
    let owner = [0x75, 0x78, 3, 0, 1, 0, 0];
    let times = [0x55, 0x54, 5, 0, 1, 0, 0, 0, 0];
    let raw = |host: u8, extra: &[u8]| paths(&[Made { extra: extra.to_vec(), ..of(host, 0, b"B\xfccher.txt") }]);
    assert_eq!(raw(3, &owner), ["B\u{fffd}cher.txt"]);
    assert_eq!(raw(3, &times), ["B\u{fffd}cher.txt"]);
    assert_eq!(raw(11, &times), ["Bücher.txt"]);
    // What nothing fits: DOS has a character for each byte.
    assert_eq!(paths(&[of(0, 0, b"\xff\xb0\xff.txt")]).len(), 1);
    // Those that are found behind a broken directory are of the same archive.
    let mut archive = zip(&[of(0, 0, b"B\x81cher"), of(0, 0, b"T\x81ren"), of(0, 0, b"M\x81he")]);
    let headers: Vec<usize> = (0..archive.len() - 4).filter(|&at| archive[at..].starts_with(b"PK\x01\x02")).collect();
    archive[headers[1]] = b'X';
    assert_eq!(read(&archive).paths(), ["Bücher", "Türen", "Mühe"]);
}

fn crc32fast(bytes: &[u8]) -> u32 {
    common::zip::crc(bytes)
}

#[test]
fn modes_of_each_host() {
    let of = |host: u8, external: u32, name: &str| {
        let archive = zip(&[Made { host, external, ..Made::new(name, b"") }]);
        let told = read_whole(&archive);
        (told.members[0].entry.kind, told.members[0].entry.mode)
    };
    assert_eq!(of(3, 0o100_640 << 16, "a"), (Kind::File, 0o640));
    assert_eq!(of(3, 0o104_755 << 16, "a"), (Kind::File, 0o4755));
    assert_eq!(of(3, 0o600 << 16, "a"), (Kind::File, 0o600));
    assert_eq!(of(3, 0, "a"), (Kind::File, 0o644));
    assert_eq!(of(3, 0o100_000 << 16, "a"), (Kind::File, 0));
    assert_eq!(of(3, 0o040_700 << 16 | 0x10, "a/"), (Kind::Folder, 0o700));
    assert_eq!(of(3, 0o040_700 << 16, "a"), (Kind::Folder, 0o700));
    assert_eq!(of(3, 0o100_644 << 16, "a/"), (Kind::Folder, 0o644));
    assert_eq!(of(3, 0o120_777 << 16, "a"), (Kind::Symlink, 0o777));
    assert_eq!(of(3, 0o010_600 << 16, "a"), (Kind::Fifo, 0o600));
    assert_eq!(of(3, 0o140_600 << 16, "a"), (Kind::Socket, 0o600));
    assert!(matches!(of(3, 0o020_600 << 16, "a"), (Kind::CharacterDevice(_), 0o600)));
    assert!(matches!(of(3, 0o060_600 << 16, "a"), (Kind::BlockDevice(_), 0o600)));
    assert_eq!(of(0, 0x20, "a"), (Kind::File, 0o644));
    assert_eq!(of(0, 0x21, "a"), (Kind::File, 0o444));
    assert_eq!(of(10, 0x10, "a"), (Kind::Folder, 0o755));
    assert_eq!(of(0, 0x11, "a/"), (Kind::Folder, 0o555));
    assert_eq!(of(0, 0o100_640 << 16 | 0x20, "a"), (Kind::File, 0o640));
    assert_eq!(of(0, 0x0644 << 16, "a"), (Kind::File, 0o644));
    assert_eq!(of(19, 0o100_640 << 16, "a"), (Kind::File, 0o640));
}

#[test]
fn what_has_content_is_a_file_whatever_type_it_has() {
    let of = |made: Made, content: &[u8], name: &str| {
        let archive = zip(&[Made { content: content.to_vec(), name: name.into(), ..made }]);
        let told = read_whole(&archive);
        assert_eq!(told.members[0].entry.body.size, content.len() as u64);
        (told.members[0].entry.kind, told.members[0].entry.mode)
    };
    let unix = |mode: u32| Made { host: 3, external: mode << 16, ..Made::new("", b"") };
    for kind in [0o010_000, 0o140_000, 0o020_000, 0o060_000] {
        assert_eq!(of(unix(kind | 0o600), b"text", "a"), (Kind::File, 0o600), "{kind:o}");
        // Nothing came out of the pipe.
        let empty = Made { descriptor: true, ..unix(kind | 0o600) };
        assert_eq!(of(empty, b"", "-"), (Kind::File, 0o600), "{kind:o}");
    }
    assert_eq!(of(unix(0o040_755), b"text", "a"), (Kind::File, 0o644));
    assert_eq!(of(Made { external: 0x10, ..Made::new("", b"") }, b"text", "a"), (Kind::File, 0o644));
    assert_eq!(of(unix(0o120_777), b"text", "a"), (Kind::Symlink, 0o777));
}

#[test]
fn what_zip_reads_from_a_pipe_is_a_file() {
    if !has("zip") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    sh(folder.path(), "seq 1000 | cat | zip -q a.zip -");
    let told = read_whole(&fs::read(folder.path().join("a.zip")).unwrap());
    let entry = &told.members[0].entry;
    assert_eq!((entry.kind, entry.body.size), (Kind::File, 3893));
}

#[test]
fn methods_that_are_not_known() {
    let with = |method, name: &str| Made { method, ..Made::new(name, b"1234") };
    let archive = zip(&[with(8, "a"), with(97, "b"), with(8, "c"), with(0, "d"), with(97, "e"), with(60_000, "f")]);
    let told = read(&archive);
    assert_eq!(told.paths(), ["a", "b", "c", "d", "e", "f"]);
    let codecs: Vec<_> = told.members.iter().map(Member::codecs).collect();
    let wavpack = "zip method 97 (WavPack)";
    assert_eq!(codecs, ["deflate", wavpack, "deflate", "", wavpack, "zip method 60000"]);
    let damage: Vec<_> = told.damage.iter().map(|(_, what)| what.as_str()).collect();
    assert_eq!(
        damage,
        [
            "'b' and its like cannot be read: zip method 97 (WavPack)",
            "'f' and its like cannot be read: zip method 60000"
        ]
    );
}

/// Fifield's bombs (USENIX WOOT 2019): many members of the same bytes.
#[test]
fn members_that_overlap_are_refused() {
    let archive = zip(&[Made::new("a", b"hello"), Made::new("b", b"12345678"), Made::new("c", b"1")]);
    let clean = read_whole(&archive);
    let directory = clean.directory(&archive);
    let at = |number: usize| directory + number * 47;
    let change = |changes: &[(usize, &[u8])]| {
        let mut archive = archive.clone();
        for (at, bytes) in changes {
            archive[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let told = read(&archive);
        let sign = |member: &Member| if member.is_refused() { '-' } else { '+' };
        let refused: String = told.members.iter().map(sign).collect();
        (told.paths().concat(), refused, told.damage.len())
    };
    let expect = |paths: &str, refused: &str, damage| (paths.to_owned(), refused.to_owned(), damage);
    // All three are the first one.
    assert_eq!(change(&[(at(1) + 42, &[0]), (at(2) + 42, &[0])]), expect("abc", "--+", 2));
    // The first one's content holds the others.
    let both = 8 + 31 + 5 + 31;
    assert_eq!(change(&[(at(0) + 20, &[both]), (at(0) + 24, &[both])]), expect("abc", "-++", 1));
    // One that goes on into the directory, and behind the end.
    assert_eq!(change(&[(at(2) + 20, &[2]), (at(2) + 24, &[2])]), expect("abc", "++-", 1));
    assert_eq!(change(&[(at(2) + 20, &[0, 0, 0, 0x80])]), expect("abc", "++-", 1));
    assert_eq!(change(&[(at(2) + 42, &[0xff, 0xff, 0xff, 0x7f])]), expect("ab", "++", 1));
    // Stored, but of another size.
    assert_eq!(change(&[(at(1) + 24, &[9])]), expect("abc", "+-+", 1));
    // A name with a byte 0.
    assert_eq!(change(&[(at(1) + 46, &[0])]), expect("a\0c", "+++", 1));
}

/// Some programs write another name into the local header; unzip and 7z read such members.
#[test]
fn a_name_may_be_shorter_in_the_local_header() {
    let members = |names: [&str; 2]| [Made::new(names[0], b"hello"), Made::new(names[1], b"12345678")];
    let long = members(["name-a", "name-b"]);
    let (short, named) = (locals(&members(["a", "b"])), zip(&long));
    let (directory, end) = named[locals(&long).len()..].split_at(2 * 52);
    let (mut directory, mut end) = (directory.to_vec(), end.to_vec());
    directory[52 + 42] = 36;
    end[16] = short.len() as u8;
    let archive = [short, directory.clone(), end.clone()].concat();
    let told = read_whole(&archive);
    assert_eq!(told.paths(), ["name-a", "name-b"]);
    let source = MemorySource::new(archive.clone(), "archive");
    let contents = [0, 1].map(|number| told.members[number].content(&source).unwrap());
    assert_eq!((contents, told.members.iter().any(Member::is_refused)), ([31, 36 + 31], false));
    // One that has no local header at all is refused as before.
    let mut damaged = archive;
    damaged[36] = b'?';
    let told = read(&damaged);
    assert_eq!((told.paths(), told.damage.len()), (vec!["name-a".to_owned(), "name-b".to_owned()], 1));
    assert!(!told.members[0].is_refused() && told.members[1].is_refused());
}

#[test]
fn a_local_header_that_says_something_else_is_an_error() {
    let large = Made { large: true, ..Made::new("large", b"12345") };
    let archive = zip(&[Made::new("a", b"hello"), Made { descriptor: true, ..Made::new("b", b"123") }, large]);
    let open = |archive: &[u8], number: usize| {
        let told = read_whole(archive);
        told.members[number].content(&MemorySource::new(archive, "archive"))
    };
    let headers: Vec<usize> = read_whole(&archive).members.iter().map(|member| member.entry.header as usize).collect();
    assert_eq!(open(&archive, 0).unwrap(), 31);
    assert!(open(&archive, 1).is_ok() && open(&archive, 2).is_ok());
    for (number, at) in [(0, 0), (0, 14), (0, 18), (0, 22), (0, 27), (1, 3), (2, 14), (2, 30 + 5 + 4)] {
        let mut archive = archive.clone();
        archive[headers[number] + at] ^= 0x40;
        assert_eq!(open(&archive, number).unwrap_err().kind(), std::io::ErrorKind::InvalidData, "{number} {at}");
    }
}

/// Nobody writes it so, but what is there can be read.
#[test]
fn members_behind_the_directory() {
    let archive = zip(&[Made::new("a", b"hello"), Made::new("b", b"12345678")]);
    let start = read_whole(&archive).directory(&archive);
    let (locals, rest) = archive.split_at(start);
    let (directory, end) = rest.split_at(rest.len() - 22);
    let mut moved = [directory, locals, end].concat();
    for (number, offset) in [(0, 94), (1, 94 + 36)] {
        moved[number * 47 + 42] = offset;
    }
    let end = moved.len() - 22;
    moved[end + 16..end + 20].fill(0);
    let told = read_whole(&moved);
    assert_eq!(told.paths(), ["a", "b"]);
    assert!(told.members.iter().all(|member| !member.is_refused()));
}

#[test]
fn a_damaged_directory_loses_nothing() {
    let members: Vec<Made> =
        (0..50).map(|n| Made::new(&format!("file{n:02}"), format!("content {n}").as_bytes())).collect();
    let archive = zip(&members);
    let clean = read_whole(&archive);
    let directory = clean.directory(&archive);
    for broken in [vec![0], vec![7], vec![7, 8, 9], vec![7, 9], vec![49], (1..50).collect()] {
        let mut archive = archive.clone();
        let gaps = broken.windows(2).filter(|two| two[0] + 1 != two[1]).count() + 1;
        for number in &broken {
            archive[directory + number * 52 + 1] = b'?';
        }
        let told = read(&archive);
        assert_eq!(told.paths(), clean.paths(), "{broken:?}: {:?}", told.damage);
        let of = |member: &Member| (member.piece.clone(), member.entry.mtime, member.entry.header);
        assert!(told.members.iter().zip(&clean.members).all(|(one, other)| of(one) == of(other)));
        assert_eq!(told.damage.len(), 2 * gaps, "{:?}", told.damage);
    }
}

#[test]
fn what_is_whole_of_a_cut_archive_is_told() {
    let members = [Made::new("a", &[b'a'; 100]), Made::new("b", &[b'b'; 200]), Made::new("c", &[b'c'; 300])];
    let archive = zip(&members);
    let clean = read_whole(&archive);
    let directory = clean.directory(&archive);
    let headers: Vec<usize> = clean.members.iter().map(|member| member.entry.header as usize).collect();
    for length in 0..archive.len() {
        let told = try_read(&archive[..length]);
        if length < 31 {
            assert!(told.is_err(), "{length}");
            continue;
        }
        let told = told.unwrap();
        let expected = headers.iter().filter(|&&at| at + 31 <= length.min(directory)).count();
        assert_eq!(told.members.len(), expected, "{length}: {:?}", told.damage);
        assert!(!told.damage.is_empty());
    }
    // Its start was cut off: the offsets are wrong by as much.
    let told = read(&archive[50..]);
    assert_eq!(told.paths(), ["b", "c"]);
    assert_eq!(told.members[0].entry.header, headers[1] as u64 - 50);
}

#[test]
fn content_that_holds_archives_does_not_confuse_the_search() {
    let inner = zip(&[Made::new("inner1", b"hello"), Made { descriptor: true, ..Made::new("inner2", b"12345") }]);
    for descriptor in [false, true] {
        let outer = [
            Made { descriptor, ..Made::new("a.jar", &inner) },
            Made { descriptor, ..Made::new("b", b"hello") },
            Made { descriptor, ..Made::new("c.jar", &inner) },
        ];
        let archive = locals(&outer);
        let told = read(&archive);
        assert_eq!(told.paths(), ["a.jar", "b", "c.jar"], "{:?}", told.damage);
        assert_eq!(told.members[2].piece.length, inner.len() as u64);
    }
    // A descriptor that is not there costs its member, and at worst shows those of the archive in it.
    let outer = [Made { descriptor: true, ..Made::new("a", &[b'a'; 100]) }, Made::new("b", b"hello")];
    let mut archive = locals(&outer);
    archive[30 + 1 + 100..][..12].fill(b'?');
    let told = read(&archive);
    assert_eq!(told.paths(), ["b"], "{:?}", told.damage);
}

#[test]
fn volumes_of_a_split_archive() {
    if !has("zip") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let make = "for n in $(seq 20); do head -c 20000 /dev/urandom > $n; done; head -c 100 /dev/urandom > small
        zip -q -0 -s 64k a.zip $(seq 15) small $(seq 16 20); cat a.z?? a.zip > b.zip";
    sh(folder.path(), make);
    let archive = fs::read(folder.path().join("b.zip")).unwrap();
    let told = read_whole(&archive);
    let source = MemorySource::new(&archive[..], "archive");
    assert_eq!(told.members.len(), 21);
    for (path, member) in told.paths().iter().zip(&told.members) {
        let content = fs::read(folder.path().join(path)).unwrap();
        let start = member.content(&source).unwrap() as usize;
        assert!(archive[start..start + member.piece.stored as usize] == content, "{path}");
    }
    let error = try_read(&fs::read(folder.path().join("a.zip")).unwrap()).unwrap_err();
    assert!(error.to_string().contains("it is the last part of an archive in 7 files"), "{error}");
    // Of the first one alone, what is in it.
    let told = read(&fs::read(folder.path().join("a.z01")).unwrap());
    assert_eq!(told.paths(), ["1", "2", "3", "4"]);
}

/// What is told of archives of other projects' tests that are not as they should be: members, and damage.
const ODD: [(&str, usize, &str); 9] = [
    ("test_read_data_into_fd_size_exceeds_declared_stored", 2, "20 bytes where 10 would be stored"),
    ("test_read_format_zip_encryption_data", 2, "PKWARE's strong encryption"),
    ("test_read_format_zip_encryption_partially", 2, "PKWARE's strong encryption"),
    // Not one header in them can be one.
    ("test_read_format_zip_lzma_alone_leak", 0, "neither a directory nor a member"),
    ("test_read_format_zip_malformed1", 0, "neither a directory nor a member"),
    ("test_read_format_zip_ppmd8_crash_1", 0, "neither a directory nor a member"),
    ("test_read_format_zip_zipx_lzma_oom", 0, "neither a directory nor a member"),
    // What comes out of the coder is longer than the directory says: that is for whoever decodes it.
    ("test_read_format_zip_size_exceeds_declared_deflate", 2, ""),
    ("test_option_stdout_size_exceeds_declared_deflate", 2, ""),
];

/// Those whose names are not UTF-8 and have fields of Unix beside them.
const WRITTEN_ON_UNIX: [&str; 2] =
    ["libarchive__test_read_format_zip_filename_cp866", "libarchive__test_read_format_zip_filename_koi8r"];

/// Archives of other projects' tests are what Python lists, or damaged in the way that is known.
#[test]
fn archives_of_other_projects() {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
    let corpus = std::env::var_os("TARNFS_CORPUS").unwrap_or_else(|| default.into());
    let archives = Path::new(&corpus).join("libarchive");
    if !archives.is_dir() {
        println!("no corpus at {}: not tested", archives.display());
        return;
    }
    let mut paths: Vec<PathBuf> = fs::read_dir(archives).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|suffix| suffix == "zip" || suffix == "zipx"));
    paths.sort();
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        println!("{name}");
        let Some((_, members, what)) = ODD.iter().find(|(odd, ..)| name.ends_with(odd)) else {
            compare_made(&path, false);
            continue;
        };
        let (told, damage) = match try_read(&fs::read(&path).unwrap()) {
            Ok(told) => (told.members.len(), told.damage.into_iter().map(|(_, what)| what).collect::<String>()),
            Err(error) => (0, error.to_string()),
        };
        assert!(told == *members && damage.contains(what) && damage.is_empty() == what.is_empty(), "{name}: {damage}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever happens to an archive, it is read to an end, and nothing that is told lies outside of it or twice.
    #[test]
    fn changed_archives_are_read_in_bounds(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        places in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..8, prop::sample::select(vec![0_u8, 1, 0x7f, 0x80, 0xff])), 0..3),
        cut in prop::option::of(any::<prop::sample::Index>()),
        seed in 0_usize..4,
    ) {
        let large = Made { descriptor: true, ..Made::new("descriptor", &[b'x'; 300]) };
        let inner = zip(&[Made::new("inner", b"1"), large.clone()]);
        let seeds = [
            zip(&[Made::new("a", b"hello"), large.clone(), Made { method: 8, ..Made::new("c/", b"") }]),
            locals(&[large.clone(), Made::new("jar", &inner), large]),
            zip(&[Made::new("jar", &inner), Made { large: true, ..Made::new("large", b"12345") }]),
            zip(&(0..40).map(|n| Made::new(&format!("{n}"), b"")).collect::<Vec<_>>()),
        ];
        let mut archive = seeds[seed].clone();
        for (at, byte) in changes {
            let at = at.index(archive.len());
            archive[at] = byte;
        }
        for (at, length, byte) in places {
            let at = at.index(archive.len());
            let end = archive.len().min(at + length);
            archive[at..end].fill(byte);
        }
        if let Some(cut) = cut {
            archive.truncate(cut.index(archive.len()));
        }
        common::zip::check(&archive);
    }
}

#[test]
fn each_byte_of_an_archive_can_be_anything() {
    let made =
        [Made { large: true, ..Made::new("a", b"hello") }, Made { descriptor: true, ..Made::new("b/c", b"1234") }];
    let archive = zip(&made);
    for at in 0..archive.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut archive = archive.clone();
            archive[at] = byte;
            common::zip::check(&archive);
        }
    }
}

/// Each read that is made fails in turn: an error, or what was told is right.
#[test]
fn reads_that_fail_are_errors() {
    use tarnfs_source::testing::{Fault, FaultySource, When};
    let made: Vec<Made> = (0..5).map(|n| Made::new(&format!("{n}"), b"hello")).collect();
    let whole = zip(&made);
    let reversed = {
        let mut archive = whole.clone();
        let start = read_whole(&whole).directory(&whole);
        let headers: Vec<Vec<u8>> = archive[start..start + 5 * 47].chunks(47).rev().map(<[u8]>::to_vec).collect();
        archive[start..start + 5 * 47].copy_from_slice(&headers.concat());
        archive
    };
    for archive in [whole.clone(), reversed, locals(&made)] {
        let paths = read(&archive).paths();
        for fault in [Fault::Error(5), Fault::Nothing, Fault::Half] {
            for number in 1.. {
                let inner = Arc::new(MemorySource::new(archive.clone(), "archive"));
                let source = Arc::new(FaultySource::new(inner, fault, When::At(number)));
                let shared: SharedSource = Arc::<FaultySource>::clone(&source);
                let told = common::zip::try_read_source(&shared);
                if !source.has_struck() {
                    assert_eq!(told.unwrap().paths(), paths);
                    break;
                }
                assert!(told.is_err(), "{fault:?} {number}");
            }
        }
    }
}

#[test]
fn devices_and_links_of_asi() {
    let asi = |mode: u16, number: u32, link: &[u8]| {
        let rest = [&mode.to_le_bytes()[..], &number.to_le_bytes(), &[7, 0, 8, 0], link].concat();
        let field = [&crc32fast(&rest).to_le_bytes()[..], &rest].concat();
        Made { extra: [&[0x6e, 0x75][..], &(field.len() as u16).to_le_bytes(), &field].concat(), ..Made::new("a", b"") }
    };
    let device = read_whole(&zip(&[asi(0o060_640, 0x0103, b"")])).members.remove(0).entry;
    assert_eq!((device.kind, device.mode), (Kind::BlockDevice(Device { major: 1, minor: 3 }), 0o640));
    assert_eq!((device.uid, device.gid), (7, 8));
    let link = read_whole(&zip(&[asi(0o120_777, 0, b"target")])).members.remove(0).entry;
    assert_eq!((link.kind, &link.link[..]), (Kind::Symlink, &b"target"[..]));
}
