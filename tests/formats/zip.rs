//! Zip archives of real tools, mounted through the kernel, beside what unzip extracts of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{Mounted, Scratch, can_mount, have, run};

/// What makes an archive of the folder in which it runs, and its name.
const TOOLS: &[(&str, &str)] = &[
    ("zip", "zip -q -r -y ../zip.zip ."),
    ("zip", "zip -q -r -y -0 ../stored.zip ."),
    ("zip", "zip -q -r -y -Z bzip2 ../bzip2.zip ."),
    ("zip", "zip -q -r -y -fz ../zip64.zip ."),
    ("zip", "zip -q -r -y - . > ../streamed.zip"),
    ("7z", "7z a -bd -bso0 -snl -mm=Deflate ../seven.zip ."),
    ("bsdtar", "bsdtar --format zip -cf ../bsdtar.zip ."),
];

/// Files of all lengths that matter, folders, links and modes.
fn make_tree(scratch: &Scratch) {
    scratch.shell(
        "mkdir -p tree/folder/deep tree/void; cd tree; seq 1 > one; : > empty; seq 300000 > numbers;
         head -c 1048576 /dev/urandom > noise; head -c 1048577 /dev/zero > zeros; seq 7 > folder/deep/seven
         ln -s folder/deep/seven link; ln -s nowhere folder/dangling; chmod 4755 one; chmod 600 noise; chmod 750 folder
         echo text > 'a name with spaces and ü'; touch -d '2021-03-04 05:06:08' numbers folder/deep
         touch -d '1999-12-31 23:59:58' one; touch -d '2020-02-03 04:05:06' empty noise zeros folder/deep/seven a*",
    );
}

/// Some programs leave bytes behind the compressed data of a member. Its checksum and its length tell that all is
/// there.
#[test]
fn what_lies_behind_compressed_data_does_no_harm() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import bz2, struct, zlib
def deflate(data):
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()
files, directory = b'', b''
content = b''.join(b'%d ' % number for number in range(1000000))
for name, method, packed in ((b'd', 8, deflate(content)), (b'b', 12, bz2.compress(content))):
    packed += b'rest'
    about = struct.pack('<HHHHHIIIHH', 20, 0, method, 0, 33, zlib.crc32(content), len(packed), len(content), len(name), 0)
    directory += b'PK\1\2\x14\3' + about + bytes(10) + struct.pack('<I', len(files)) + name
    files += b'PK\3\4' + about + name + packed
end = struct.pack('<HHHHIIH', 0, 0, 2, 2, len(directory), len(files), 0)
open('rest.zip', 'wb').write(files + directory + b'PK\5\6' + end)
open('content', 'wb').write(content)
E",
    );
    let content = fs::read(scratch.path("content")).unwrap();
    let archive = scratch.path("rest.zip");
    for name in ["d", "b"] {
        let ran = run(&scratch, ["cat", archive.to_str().unwrap(), name]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name}");
        assert!(ran.out == content, "{name}");
    }
}

/// Everything that is compared: kind, mode, size, time in seconds, path, target; then the sums of all files.
const SURVEY: &str = r"find . -mindepth 1 -type l -printf '%y %P %l\n' -o -mindepth 1 -type d -printf '%y %m %P\n' \
     -o -mindepth 1 -printf '%y %m %s %Ts %P\n' | sort; find . -type f -print0 | sort -z | xargs -0 md5sum";

fn survey(scratch: &Scratch, folder: &Path) -> String {
    scratch.shell(&format!("cd '{}'; {SURVEY}", folder.display()))
}

#[test]
fn what_each_tool_packs_shows_as_unzip_extracts_it() {
    if !can_mount() || !have("unzip") {
        return println!("left out: no mounts here, or no unzip");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    for (tool, command) in TOOLS {
        if !have(tool) {
            println!("left out: {command}");
            continue;
        }
        scratch.shell(&format!("cd tree; {command}"));
        let name = command.rsplit("../").next().unwrap().split(' ').next().unwrap();
        let twin = scratch.folder(format!("twin-{name}"));
        scratch.shell(&format!("TZ=UTC unzip -q -K -d '{}' {name}", twin.display()));
        let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
        for _ in 0..2 {
            assert_eq!(survey(&scratch, &mounted.path("")), survey(&scratch, &twin), "{name}");
        }
        mounted.unmount();
        let files = scratch.shell("ls; ls cache/tarnfs 2>/dev/null || true");
        assert!(!files.contains("sqlite"), "an archive with a directory needs no index: {files}");
    }
}

#[test]
fn zips_in_other_archives_show_as_folders() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "(cd tree; zip -q -r -y ../inner.zip .; tar czf ../inner.tar.gz .; zip -q -r -y -0 ../stored.zip .)
         zip -q outer.zip inner.zip inner.tar.gz stored.zip; tar cf outer.tar inner.zip stored.zip
         gzip -k outer.tar; zip -q -0 flat.zip inner.zip outer.tar.gz; xz -k inner.zip",
    );
    let tree = survey(&scratch, &scratch.path("tree"));
    for (archive, folders) in [
        ("outer.zip", &["inner.zip", "inner.tar.gz", "stored.zip"][..]),
        ("outer.tar", &["inner.zip", "stored.zip"]),
        ("outer.tar.gz", &["inner.zip", "stored.zip"]),
        ("flat.zip", &["inner.zip", "outer.tar.gz/inner.zip", "outer.tar.gz/stored.zip"]),
        ("inner.zip.xz", &[""]),
    ] {
        for options in [&["-r"][..], &["-r", "--index-minimum-file-count=0"], &["-r", "--index-minimum-file-count=0"]] {
            let mounted = Mounted::new(&scratch, scratch.path(archive), options);
            for folder in folders {
                // Times in a zip are those of its directory, whole seconds; in a tar the same.
                assert_eq!(survey(&scratch, &mounted.path(folder)), tree, "{archive}: {folder}");
            }
            mounted.unmount();
        }
    }
}

#[test]
fn a_long_member_is_read_at_any_offset() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    scratch.shell("seq 6000000 > long; zip -q long.zip long");
    let long = fs::read(scratch.path("long")).unwrap();
    for backwards in [false, true] {
        let mounted = Mounted::new(&scratch, scratch.path("long.zip"), &["-P", "2"]);
        let file = fs::File::open(mounted.path("long")).unwrap();
        let mut places: Vec<usize> = (0..long.len() - 5000).step_by(long.len() / 50).collect();
        if backwards {
            places.reverse();
        }
        let mut buffer = vec![0; 5000];
        for place in places {
            file.read_exact_at(&mut buffer, place as u64).unwrap();
            assert!(buffer == long[place..place + 5000], "at {place}");
        }
        drop(file);
        assert!(fs::read(mounted.path("long")).unwrap() == long);
        mounted.unmount();
    }
}

#[test]
fn encrypted_members_need_their_password() {
    if !can_mount() || !have("zip") || !have("7z") {
        return println!("left out: no mounts here, or no zip or 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 100000 > tree/numbers; seq 10 > tree/few; printf 'wrong\\nsecret\\n' > words
         (cd tree; zip -q -P secret ../old.zip numbers few; 7z a -bd -bso0 -psecret -mem=AES256 ../aes.zip numbers few
          7z a -bd -bso0 -psecret -mem=AES128 -mx0 ../aes-stored.zip numbers few)",
    );
    let words = scratch.path("words");
    for archive in ["old.zip", "aes.zip", "aes-stored.zip"] {
        for options in [["--password", "secret"], ["--password-file", words.to_str().unwrap()]] {
            let mounted = Mounted::new(&scratch, scratch.path(archive), &options);
            let tree = survey(&scratch, &scratch.path("tree"));
            assert_eq!(survey(&scratch, &mounted.path("")), tree, "{archive} {options:?}");
            mounted.unmount();
        }
        for (options, expected) in
            [(&[][..], "give --password or --password-file"), (&["--password", "wrong"], "wrong password")]
        {
            let path = scratch.path(archive);
            let mut arguments = vec!["cat"];
            arguments.extend(options);
            arguments.extend([path.to_str().unwrap(), "numbers"]);
            let ran = run(&scratch, &arguments);
            // The old cipher has one byte that tells: sometimes a wrong password shows only in what comes out.
            let is_told = ran.err.contains(expected) || archive == "old.zip" && ran.err.contains("damaged");
            assert!(ran.code != 0 && ran.out.is_empty() && is_told, "{archive} {options:?}: {}", ran.err);
            let listed = run(&scratch, ["ls".as_ref(), path.as_os_str()]).ok().text();
            assert_eq!(listed, "few\nnumbers\n", "names are not encrypted");
        }
    }
}

/// The last byte of the header of 12 bytes that `password` makes of the one at `header`: the old cipher has nothing
/// else that tells a wrong password.
fn check_byte(header: &[u8], password: &[u8]) -> u8 {
    let crc = |before: u32, byte: u8| {
        (0..8).fold(before ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    };
    let mut keys = [0x1234_5678_u32, 0x2345_6789, 0x3456_7890];
    let update = |keys: &mut [u32; 3], byte: u8| {
        keys[0] = crc(keys[0], byte);
        keys[1] = keys[1].wrapping_add(keys[0] & 0xFF).wrapping_mul(134_775_813).wrapping_add(1);
        keys[2] = crc(keys[2], (keys[1] >> 24) as u8);
    };
    for &byte in password {
        update(&mut keys, byte);
    }
    let mut plain = 0;
    for &byte in &header[..12] {
        let mixed = (keys[2] | 2) & 0xFFFF;
        plain = byte ^ (mixed.wrapping_mul(mixed ^ 1) >> 8) as u8;
        update(&mut keys, plain);
    }
    plain
}

#[test]
fn a_wrong_password_that_passes_the_check_of_the_old_cipher_gives_no_garbage() {
    if !have("zip") {
        return println!("left out: no zip");
    }
    let scratch = Scratch::new();
    // More than is compared before its first byte is served.
    scratch.shell("head -c 18000000 /dev/urandom > long; zip -q -0 -P right long.zip long");
    let (path, whole) = (scratch.path("long.zip"), fs::read(scratch.path("long")).unwrap());
    let archive = fs::read(&path).unwrap();
    let length = |at: usize| usize::from(u16::from_le_bytes([archive[at], archive[at + 1]]));
    let header = &archive[30 + length(26) + length(28)..];
    let right = check_byte(header, b"right");
    let wrong =
        (0..1_000_000).map(|number| format!("wrong{number}")).find(|word| check_byte(header, word.as_bytes()) == right);
    let wrong = wrong.unwrap();
    fs::write(scratch.path("words"), format!("{wrong}\nright\n")).unwrap();
    let cat = |option: &str, value: &str| run(&scratch, ["cat", option, value, path.to_str().unwrap(), "long"]);
    let refused = cat("--password", &wrong);
    assert!(refused.code != 0 && refused.out.is_empty(), "{} bytes", refused.out.len());
    assert!(refused.err.contains("wrong password"), "{}", refused.err);
    let words = scratch.path("words");
    assert!(cat("--password-file", words.to_str().unwrap()).ok().out == whole);
}

#[test]
fn a_wrong_password_is_told_of_however_many_files_there_are() {
    if !have("7z") {
        return println!("left out: no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; cd tree; for i in $(seq 1100); do echo $i > $i; done
         7z a -bd -bso0 -mx0 -psecret -mem=AES256 ../many.zip .",
    );
    let list = |password| {
        let path = scratch.path("many.zip");
        run(&scratch, ["ls".as_ref(), "--password".as_ref(), password, path.as_os_str()])
    };
    let refused = list("wrong".as_ref());
    // The others might have another password.
    assert_eq!(refused.code, 0, "{}", refused.err);
    let told = "wrong password: none of the 32 files that were tried can be opened, of 1100 encrypted ones\n";
    assert!(refused.err.ends_with(told) && refused.err.lines().count() == 1, "{}", refused.err);
    let right = list("secret".as_ref()).ok();
    assert_eq!(right.err, "");
}

/// Not all files are tried before a mount, and a password may be that of one which was not.
#[test]
fn a_password_of_one_file_among_many_is_not_refused() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; cd tree; for i in $(seq 300); do echo $i > $i; done; seq 2000 > other
         7z a -bd -bso0 -mx0 -psecret -mem=AES256 ../many.zip $(seq 300)
         7z a -bd -bso0 -mx0 -prare -mem=AES256 ../many.zip other",
    );
    let path = scratch.path("many.zip");
    let told = "none of the 32 files that were tried can be opened, of 301 encrypted ones";
    let cat = run(&scratch, ["cat", "--password", "rare", path.to_str().unwrap(), "other"]).ok();
    assert!(cat.out == fs::read(scratch.path("tree/other")).unwrap());
    let listed = run(&scratch, ["ls", "--password", "rare", path.to_str().unwrap()]);
    let is_listed = listed.code == 0 && listed.text().lines().count() == 301;
    // The one that differs is perhaps among those that are tried.
    assert!(is_listed, "{}", listed.err);
    let mounted = Mounted::any(&scratch, &path, &["--password", "rare"]);
    assert!(fs::read(mounted.path("other")).unwrap() == fs::read(scratch.path("tree/other")).unwrap());
    assert!(fs::read(mounted.path("1")).is_err());
    assert!(mounted.ran.err.contains(told), "{}", mounted.ran.err);
    mounted.unmount();
}

#[test]
fn what_is_damaged_is_an_error_and_the_rest_is_served() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    scratch
        .shell("mkdir tree; cd tree; for i in $(seq 9); do seq $i 30000 > $i; done; zip -q ../a.zip 1 2 3 4 5 6 7 8 9");
    let whole = fs::read(scratch.path("a.zip")).unwrap();
    // In the middle of the fifth member; and all of the directory gone.
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x10;
    fs::write(scratch.path("flipped.zip"), &flipped).unwrap();
    fs::write(scratch.path("cut.zip"), &whole[..whole.len() * 2 / 3]).unwrap();
    let mut wrong = Vec::new();
    for (archive, bad) in [("flipped.zip", 1), ("cut.zip", 1)] {
        let mounted = Mounted::any(&scratch, scratch.path(archive), &[]);
        let mut good = 0;
        for number in 1..=9 {
            let (path, twin) = (mounted.path(number.to_string()), scratch.path(format!("tree/{number}")));
            match fs::read(&path) {
                Ok(bytes) => {
                    assert!(bytes == fs::read(twin).unwrap(), "{archive}: {number}");
                    good += 1;
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(_) => wrong.push(archive),
            }
        }
        assert!(good >= 5, "{archive}: {good} are whole");
        assert!(wrong.iter().filter(|name| **name == archive).count() <= bad, "{wrong:?}");
        mounted.unmount();
    }
    assert!(wrong.contains(&"flipped.zip"));
}

#[test]
fn an_archive_that_is_changed_is_an_error_never_wrong_bytes() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "seq 50000 > a; seq 9 50009 > b; zip -q -0 one.zip a; cp b a.new; mv a kept; mv a.new a; zip -q -0 two.zip a",
    );
    let mounted = Mounted::new(&scratch, scratch.path("one.zip"), &[]);
    assert_eq!(fs::metadata(mounted.path("a")).unwrap().len(), fs::metadata(scratch.path("kept")).unwrap().len());
    scratch.shell("cat two.zip > one.zip");
    let error = fs::read(mounted.path("a")).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(116 | 5)), "{error}");
    mounted.unmount();
}

#[test]
fn names_that_are_there_twice_are_versions() {
    if !can_mount() || !have("python3") {
        return println!("left out: no mounts here, or no python3");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -W ignore -c \"
import zipfile
with zipfile.ZipFile('twice.zip', 'w', zipfile.ZIP_DEFLATED) as z:
    z.writestr('name', 'old'); z.writestr('other', 'x'); z.writestr('name', 'newer')\"",
    );
    let mounted = Mounted::new(&scratch, scratch.path("twice.zip"), &[]);
    let read = |name: &str| fs::read_to_string(mounted.path(name)).unwrap();
    assert_eq!(
        (read("name"), read("name.versions/1"), read("name.versions/2")),
        ("newer".into(), "old".into(), "newer".into())
    );
    mounted.unmount();
}

#[test]
fn an_archive_in_a_damaged_member_is_not_served() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    scratch.shell("head -c 20M /dev/urandom > noise; tar cf inner.tar noise; zip -q -1 outer.zip inner.tar");
    let mut bytes = fs::read(scratch.path("outer.zip")).unwrap();
    // Noise is stored in deflate: a flipped bit changes a byte and nothing else.
    let place = bytes.len() / 2;
    bytes[place] ^= 1;
    fs::write(scratch.path("outer.zip"), bytes).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("outer.zip"), &["-r"]);
    assert!(mounted.ran.err.contains("CRC-32"), "{}", mounted.ran.err);
    assert!(fs::read(mounted.path("inner.tar/noise")).is_err());
    mounted.unmount();
}

/// What takes long to decode for a name, or for the first bytes of an archive, is not decoded.
#[test]
fn bombs_behind_links_and_names_cost_nothing() {
    if !have("python3") {
        return println!("left out: no python3");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import zipfile
with zipfile.ZipFile('links.zip', 'w', zipfile.ZIP_BZIP2) as z:
    for n in range(200):
        link = zipfile.ZipInfo('link%d' % n); link.create_system = 3; link.external_attr = 0o120777 << 16
        z.writestr(link, bytes(1 << 20), zipfile.ZIP_BZIP2)
    z.writestr('file', 'text')\"",
    );
    let ran = run(&scratch, ["ls".as_ref(), scratch.path("links.zip").as_os_str()]);
    assert_eq!(ran.text(), "file\n");
    assert!(
        ran.err.contains("the target of the link has 1048576 bytes, more than 4095; it is left out"),
        "{}",
        ran.err
    );
}

/// What other programs call a zip: the name says nothing, the content all.
#[test]
fn what_was_read_from_a_pipe_is_a_file() {
    if !can_mount() || !have("zip") {
        return println!("left out: no mounts here, or no zip");
    }
    let scratch = Scratch::new();
    scratch.shell("seq 1000 > numbers; cat numbers | zip -q a.zip -");
    let mounted = Mounted::new(&scratch, scratch.path("a.zip"), &[]);
    assert!(fs::read(mounted.path("-")).unwrap() == fs::read(scratch.path("numbers")).unwrap());
    mounted.unmount();
}

/// Names as Windows writes them in five countries, by Python, which writes what it is told.
const COUNTRIES: &str = r"
import sys, zipfile
for encoding, name in [('cp437', 'Müller & Söhne'), ('cp850', 'São João'), ('shift_jis', '日本語テスト'),
                       ('gbk', '新建文件夹'), ('cp866', 'Новая папка')]:
    class Info(zipfile.ZipInfo):
        def _encodeFilenameFlags(self):
            return self.filename.encode(encoding), 0
    with zipfile.ZipFile(encoding + '.zip', 'w') as archive:
        for number in range(3):
            info = Info(f'{name}/{name} {number}.txt')
            info.create_system = 0
            archive.writestr(info, 'text')
";

#[test]
fn names_without_an_encoding_are_guessed() {
    if !have("python3") {
        return println!("left out: no python3");
    }
    let scratch = Scratch::new();
    fs::write(scratch.path("countries.py"), COUNTRIES).unwrap();
    scratch.shell("python3 countries.py");
    for (encoding, guess, name) in [
        ("cp437", "cp437", "Müller & Söhne"),
        ("cp850", "cp850", "São João"),
        ("shift_jis", "Shift_JIS", "日本語テスト"),
        ("gbk", "GBK", "新建文件夹"),
        ("cp866", "IBM866", "Новая папка"),
    ] {
        let archive = scratch.path(format!("{encoding}.zip"));
        let archive = archive.to_str().unwrap();
        let shown = run(&scratch, ["ls", "-d", "2", archive]).ok();
        assert_eq!(shown.text(), format!("{name}\n"), "{encoding}");
        assert!(shown.err.contains(&format!("are taken for {guess}")), "{encoding}: {}", shown.err);
        let inside = format!("{name}/{name} 1.txt");
        assert_eq!(run(&scratch, ["cat", archive, &inside]).ok().out, b"text", "{encoding}");
        // Whoever says what they are is believed.
        let latin = run(&scratch, ["ls", "-e", "latin1", archive]).ok().text();
        assert_ne!(latin, format!("{name}\n"), "{encoding}");
        // In what is none the bytes stay.
        let raw = run(&scratch, ["ls", "-e", "ascii", archive]).ok();
        assert!(std::str::from_utf8(&raw.out).is_err() && !raw.err.contains("taken for"), "{encoding}");
    }
}

#[test]
fn a_zip_is_known_whatever_its_name() {
    if !have("zip") {
        return println!("left out: no zip");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir META-INF; echo 'Manifest-Version: 1.0' > META-INF/MANIFEST.MF; printf text > mimetype; zip -q -X x.zip mimetype META-INF META-INF/MANIFEST.MF");
    let listed = |name: &str| {
        let path = scratch.path(name);
        run(&scratch, ["ls".as_ref(), path.as_os_str()]).ok().text()
    };
    let expected = listed("x.zip");
    assert!(expected.contains("mimetype"), "{expected}");
    for name in "x.jar x.whl x.apk x.docx x.xlsx x.odt x.epub x.cbz x.xpi x.ipa x.tar x.bin x".split(' ') {
        fs::rename(scratch.path("x.zip"), scratch.path(name)).unwrap();
        assert_eq!(listed(name), expected, "{name}");
        fs::rename(scratch.path(name), scratch.path("x.zip")).unwrap();
    }
}

/// As Python's own installer has it with it.
#[test]
fn a_real_wheel_is_what_python_makes_of_it() {
    let scratch = Scratch::new();
    let find = "python3 -c 'import ensurepip, glob, os; print(*glob.glob(os.path.dirname(ensurepip.__file__) + \"/_bundled/*.whl\"))' 2>/dev/null || true";
    let found = scratch.shell(find);
    let Some(wheel) = found.split_whitespace().next().filter(|_| can_mount()) else {
        return println!("left out: no mounts here, or no wheel beside Python");
    };
    scratch.shell(&format!("python3 -m zipfile -e '{wheel}' tree; cp '{wheel}' x.whl"));
    let mounted = Mounted::new(&scratch, scratch.path("x.whl"), &[]);
    assert_eq!(scratch.shell(&format!("diff -r tree '{}' 2>&1 || true", mounted.at.display())), "");
    mounted.unmount();
}

/// With AES a file may have no CRC-32 of its own (AE-2): one page was read of it, and it was not compared with
/// anything.
#[test]
fn a_page_of_a_damaged_encrypted_file_is_not_served() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell("head -c 900000 /dev/urandom > a; 7z a -bd -bso0 -tzip -mem=AES256 -mm=Copy -psecret x.zip a");
    let path = scratch.path("x.zip");
    let mut bytes = fs::read(&path).unwrap();
    // The field of AES in both headers: version 2, and the header has no checksum then.
    let fields: Vec<_> = (0..bytes.len() - 8).filter(|&at| bytes[at..].starts_with(&[1, 0x99, 7, 0])).collect();
    assert_eq!(fields.len(), 2);
    for at in fields {
        bytes[at + 4..at + 6].copy_from_slice(&2_u16.to_le_bytes());
    }
    let directory = bytes.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    bytes[14..18].fill(0);
    bytes[directory + 16..directory + 20].fill(0);
    let options = ["--password", "secret"];
    for (damaged, at) in [(false, 0), (true, 700_000), (true, 100_000)] {
        let mut bytes = bytes.clone();
        bytes[at] ^= u8::from(damaged);
        fs::write(&path, bytes).unwrap();
        let mounted = Mounted::new(&scratch, &path, &options);
        let file = fs::File::open(mounted.path("a")).unwrap();
        for page in [0, at as u64 / 4096, 3] {
            let mut read = [0; 4096];
            let result = file.read_exact_at(&mut read, page * 4096);
            assert_eq!(result.is_err(), damaged, "page {page}, damaged at {at}: {result:?}");
        }
        drop(file);
        mounted.unmount();
    }
}

/// The cipher says that the password is right: what is wrong then is the file.
#[test]
fn a_damaged_file_does_not_make_the_password_wrong() {
    if !can_mount() || !have("7z") {
        return println!("left out: no mounts here, or no 7z");
    }
    let scratch = Scratch::new();
    scratch.shell("seq 200000 > numbers; echo text > plain; 7z a -bd -bso0 -tzip -mem=AES256 -psecret x.zip numbers; zip -q x.zip plain");
    let path = scratch.path("x.zip");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mounted = Mounted::new(&scratch, &path, &["--password", "secret"]);
    assert_eq!(fs::read_to_string(mounted.path("plain")).unwrap(), "text\n");
    assert_eq!(fs::read(mounted.path("numbers")).unwrap_err().raw_os_error(), Some(5));
    assert!(!mounted.ran.err.contains("wrong password"), "{}", mounted.ran.err);
    mounted.unmount();
    let ran = run(&scratch, ["check", "--password", "secret", path.to_str().unwrap()]);
    assert!(ran.code == 5 && ran.text().contains("numbers"), "{} {} {}", ran.code, ran.text(), ran.err);
}

/// Who knows what is in an encrypted file can make it say something else, up to some byte, and what stands in the
/// headers is not encrypted. The check of all stored bytes tells, also where the decoder needs few of them.
#[test]
fn an_encrypted_file_that_was_forged_is_not_served() {
    if !have("7z") {
        return println!("left out: no 7z here");
    }
    let scratch = Scratch::new();
    scratch.shell("head -c 200000 /dev/urandom > a; 7z a -bd -bso0 -tzip -mem=AES256 -mm=Copy -psecret x.zip a");
    let (known, mut zip) = (fs::read(scratch.path("a")).unwrap(), fs::read(scratch.path("x.zip")).unwrap());
    let number = |zip: &[u8], at: usize| usize::from(u16::from_le_bytes([zip[at], zip[at + 1]]));
    // Behind the header, the salt of 16 bytes and 2 that verify the password.
    let data = 30 + number(&zip, 26) + number(&zip, 28) + 16 + 2;
    let forged = b"this was never in the archive";
    let length = forged.len() as u16;
    let block = [&[1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), forged].concat();
    for (number, byte) in block.iter().enumerate() {
        zip[data + number] ^= known[number] ^ byte;
    }
    // AE-2, which has no checksum, and Deflate64, which ends by itself.
    let fields: Vec<usize> = (0..zip.len() - 11).filter(|&at| zip[at..].starts_with(b"\x01\x99\x07\0")).collect();
    assert!(fields.len() >= 2);
    for at in fields {
        zip[at + 4] = 2;
        zip[at + 9..at + 11].copy_from_slice(&[9, 0]);
    }
    let entry = zip.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").unwrap();
    for (crc, size) in [(14, 22), (entry + 16, entry + 24)] {
        zip[crc..crc + 4].fill(0);
        zip[size..size + 4].copy_from_slice(&u32::from(length).to_le_bytes());
    }
    fs::write(scratch.path("forged.zip"), zip).unwrap();
    let path = scratch.path("forged.zip");
    let ran = run(&scratch, ["cat", "--password", "secret", path.to_str().unwrap(), "a"]);
    assert!(ran.out.is_empty() && ran.code != 0, "{}", String::from_utf8_lossy(&ran.out));
    assert!(ran.err.contains("HMAC"), "{}", ran.err);
    let ran = run(&scratch, ["check", "--password", "secret", path.to_str().unwrap()]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    let ran = run(&scratch, ["cat", "--force", "--password", "secret", path.to_str().unwrap(), "a"]);
    assert_eq!(ran.out, forged, "{}", ran.err);
}
