//! cpio archives: those that people's programs write, compared with what GNU cpio extracts from them, and those that
//! are cut, altered, or made by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use common::twin::compare_all;
use common::{Told, content, has, sh, tree, try_read_as, try_read_stream};
use tarnfs_format::{Body, Entry, ForwardStream, Kind, Options, Probe, SourceStream, by_name, detect};
use tarnfs_source::{Cancel, MemorySource, SharedSource};

/// What all dialects can store.
const PLAIN: &str = r#"
    mkdir -p tree/folder/inner tree/empty
    printf hello > tree/folder/file; : > tree/folder/nothing; : > tree/TRAILER
    head -c 100001 /dev/urandom > tree/folder/inner/random
    ln -s ../file tree/folder/inner/link; ln -s /etc/passwd tree/absolute; ln -s missing tree/dangling
    ln tree/folder/file tree/hard; ln tree/folder/nothing tree/nothing
    ln tree/folder/inner/random tree/a; ln tree/folder/inner/random tree/folder/z
    chmod 4751 tree/folder/file; chmod 1777 tree/empty; chmod 0 tree/folder/inner/random
    touch -h -d '2001-02-03 04:05:06 UTC' tree/folder/file tree/dangling tree/folder/inner
    printf x > "$(printf 'tree/b\344d\033name')"
    printf x > 'tree/sp ace"\\'
    name=$(printf '%0200d' 3); mkdir -p tree/$name/$name; echo longer > tree/$name/$name/$name
"#;

const DEVICES: &str = r#"
    [ "$(id -u)" = 0 ] && mknod tree/null c 1 3 && mknod tree/disk b 250 70 && chown 1234:4321 tree/null
    mkfifo tree/fifo; ln tree/fifo tree/other-fifo
"#;

/// Makes a.cpio of a folder `tree` in `folder`, and what GNU cpio extracts from it in `twin`.
fn twin(scripts: &[&str], make: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    sh(folder.path(), &scripts.concat());
    sh(folder.path(), "find tree -exec touch -h -d '2020-01-02 03:04:05 UTC' {} +");
    sh(folder.path(), make);
    sh(folder.path(), "mkdir twin && cd twin && cpio -i -d -m -u --quiet --no-absolute-filenames < ../a.cpio");
    folder
}

fn compare(folder: &Path) -> Told {
    let archive = fs::read(folder.join("a.cpio")).unwrap();
    assert_eq!(
        detect(&Probe::of_head(&archive[..archive.len().min(4096)])).map(tarnfs_format::Format::name),
        Some("cpio")
    );
    let told = try_read_as("cpio", &archive).unwrap();
    assert_eq!(told.damage, []);
    // GNU cpio loses the times of folders in which something is made later.
    sh(folder, "find twin -mindepth 1 -exec touch -h -d '2020-01-02 03:04:05 UTC' {} +");
    compare_all(archive, &told, &folder.join("twin"));
    // Names of one file.
    let entries = tree(&told);
    let node = |path: &Path| fs::symlink_metadata(folder.join("twin").join(path)).unwrap().ino();
    for (one, entry) in &entries {
        for (other, same) in &entries {
            if entry.kind == Kind::File && same.kind == Kind::File {
                assert_eq!(
                    entry.header == same.header,
                    node(one) == node(other),
                    "{} {}",
                    one.display(),
                    other.display()
                );
            }
        }
    }
    told
}

#[test]
fn gnu_cpio_in_each_of_its_formats() {
    if !has("cpio") {
        return;
    }
    for (format, scripts) in [
        ("newc", &[PLAIN, DEVICES][..]),
        ("crc", &[PLAIN, DEVICES]),
        ("odc", &[PLAIN, DEVICES]),
        ("bin", &[PLAIN, DEVICES]),
        // Here the number of a device stands where a length is.
        ("hpodc", &[PLAIN, DEVICES]),
        ("hpbin", &[PLAIN, DEVICES]),
    ] {
        for order in ["find tree", "find tree -depth", "find tree | sort -r", "find ./tree | sort"] {
            let make = format!("{order} | cpio -o --quiet -H {format} > a.cpio");
            let folder = twin(scripts, &make);
            compare(folder.path());
        }
        // Appended to: a second entry of a name counts.
        let make = format!(
            "find tree | cpio -o --quiet -H {format} -O a.cpio; printf changed > tree/folder/nothing; touch -d '2020-01-02 03:04:05 UTC' tree/folder/nothing
             printf 'tree/nothing\ntree/folder/nothing\n' | cpio -o --quiet -A -H {format} -O a.cpio"
        );
        let folder = twin(scripts, &make);
        let archive = fs::read(folder.path().join("a.cpio")).unwrap();
        let told = try_read_as("cpio", &archive).unwrap();
        let entries = tree(&told);
        for name in ["tree/folder/nothing", "tree/nothing"] {
            assert_eq!(content(&archive, entries[Path::new(name)]), b"changed", "{format} {name}");
        }
    }
}

/// The binary one of a machine with the other order of bytes.
#[test]
fn binary_in_the_other_order_of_bytes() {
    if !has("cpio") {
        return;
    }
    let folder = twin(&[PLAIN, DEVICES], "find tree | cpio -o --quiet -H bin > a.cpio");
    let archive = fs::read(folder.path().join("a.cpio")).unwrap();
    let told = try_read_as("cpio", &archive).unwrap();
    let mut swapped = archive.clone();
    let mut swap = |at: usize| {
        for word in swapped[at..at + 26].as_chunks_mut::<2>().0 {
            word.reverse();
        }
    };
    let mut at = 0;
    while at + 26 <= archive.len() && archive[at] == 0xc7 {
        swap(at);
        let word = |index: usize| usize::from(u16::from_le_bytes([archive[at + index], archive[at + index + 1]]));
        let (name, size) = (word(20), word(22) << 16 | word(24));
        at += 26 + name.next_multiple_of(2) + size.next_multiple_of(2);
    }
    fs::write(folder.path().join("a.cpio"), &swapped).unwrap();
    assert_eq!(compare(folder.path()).entries, told.entries);
}

#[test]
fn bsdtar_in_each_of_its_formats() {
    if !has("bsdtar") || !has("cpio") {
        return;
    }
    for (format, scripts) in [("newc", &[PLAIN, DEVICES][..]), ("odc", &[PLAIN, DEVICES]), ("cpio", &[PLAIN])] {
        let folder = twin(scripts, &format!("bsdtar --format={format} -cf a.cpio tree"));
        compare(folder.path());
    }
}

/// A header of newc with its name.
fn newc(path: &str, mode: u32, names: u32, inode: u32, content: &[u8]) -> Vec<u8> {
    header(b"070701", path, [inode, mode, names, content.len() as u32, 0], content)
}

fn header(magic: &[u8], path: &str, [inode, mode, names, size, sum]: [u32; 5], content: &[u8]) -> Vec<u8> {
    let numbers = [inode, mode, 0, 0, names, 7, size, 8, 1, 0, 0, path.len() as u32 + 1, sum];
    let mut bytes = magic.to_vec();
    bytes.extend(numbers.iter().flat_map(|number| format!("{number:08X}").into_bytes()));
    bytes.extend([path.as_bytes(), b"\0"].concat());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn trailer() -> Vec<u8> {
    newc("TRAILER!!!", 0, 1, 0, b"")
}

const FILE: u32 = 0o100_644;

fn told(archive: &[u8]) -> Told {
    try_read_as("cpio", archive).unwrap()
}

fn shown(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let told = told(archive);
    let content = |entry: &Entry| if entry.kind == Kind::File { content(archive, entry) } else { Vec::new() };
    tree(&told).into_iter().map(|(path, entry)| (path.to_str().unwrap().to_owned(), content(entry))).collect()
}

/// As an initramfs: several archives, zeros between them, inodes that start anew.
#[test]
fn archives_one_behind_the_other() {
    let first = [newc("a", FILE, 2, 1, b""), newc("b", FILE, 2, 1, b"first"), trailer(), vec![0; 1000]].concat();
    let second = [newc("b", FILE, 2, 1, b""), newc("c", FILE, 2, 1, b"second"), trailer()].concat();
    let archive = [first.clone(), second, vec![0; 77]].concat();
    let expected =
        [("a", "first"), ("b", "second"), ("c", "second")].map(|(name, text)| (name.to_owned(), text.into()));
    assert_eq!(shown(&archive), expected);
    assert_eq!(told(&archive).damage, []);
    // What is compressed is one file, up to the end.
    let compressed = [first.as_slice(), b"\x28\xb5\x2f\xfdwhatever"].concat();
    let whole = told(&compressed);
    assert_eq!(
        (whole.damage.len(), content(&compressed, whole.entry("part-2.zst"))),
        (0, compressed[first.len()..].into())
    );
    let unknown = told(&[first.as_slice(), b"junk"].concat());
    assert_eq!((unknown.entries.len(), unknown.damage.len()), (2, 1));
    assert_eq!(unknown.damage[0].0, first.len() as u64);
}

#[test]
fn names_of_one_file() {
    // Without its content, a name is left out, and nothing is taken for it.
    let cut = [newc("a", FILE, 3, 1, b""), newc("x", FILE, 1, 2, b"x")].concat();
    let without = told(&cut);
    assert_eq!(without.paths(), ["x"]);
    assert!(without.damage.iter().any(|(at, what)| *at == 0 && what.starts_with("a: ")), "{:?}", without.damage);
    // At the end of the archive it is certain that there is none.
    assert_eq!(told(&[cut, trailer()].concat()).damage, []);
    // The content may come first, and a file on another device is another one.
    let first = [newc("a", FILE, 3, 1, b"text"), newc("b", FILE, 3, 1, b""), trailer()].concat();
    assert_eq!(shown(&first), [("a".to_owned(), b"text".to_vec()), ("b".to_owned(), b"text".to_vec())]);
    // Two with content are two.
    let two = [newc("a", FILE, 3, 1, b"text"), newc("b", FILE, 3, 1, b"TEXT"), trailer()].concat();
    assert_eq!(shown(&two), [("a".to_owned(), b"text".to_vec()), ("b".to_owned(), b"TEXT".to_vec())]);
    // A target whose path was stored before means what is stored now.
    let again =
        [newc("b", FILE, 1, 9, b"old"), newc("a", FILE, 2, 1, b""), newc("b", FILE, 2, 1, b"new"), trailer()].concat();
    let again = told(&again);
    let (link, target) = (again.entry("a"), again.entry("b"));
    assert!(link.kind == Kind::HardLink && link.link == b"b" && link.header > target.header);
}

#[test]
fn checksums_are_compared_where_the_content_goes_by() {
    let content: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
    let sum: u32 = content.iter().map(|&byte| u32::from(byte)).sum();
    for (stored, expected) in [(sum, 0), (sum ^ 1, 1)] {
        let file = header(b"070702", "a", [1, FILE, 1, content.len() as u32, stored], &content);
        let archive = [file, header(b"070702", "TRAILER!!!", [0; 5], b"")].concat();
        let source = || SourceStream::new(Arc::new(MemorySource::new(archive.clone(), "archive")), Cancel::default());
        let forwards = try_read_stream("cpio", &mut ForwardStream(source()), &Options::default()).unwrap();
        assert_eq!((forwards.damage.len(), forwards.entries.len()), (expected, 1), "{:?}", forwards.damage);
        // What is not read is not known.
        assert_eq!(told(&archive).damage, []);
    }
}

/// Small archives of each kind.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    sh(
        folder.path(),
        "mkdir tree; printf hello > tree/file; ln tree/file tree/hard; ln -s file tree/link; printf x > tree/x
         mkfifo tree/fifo; long=tree/$(printf '%0120d' 1); echo long > $long",
    );
    ["newc", "crc", "odc", "bin"]
        .map(|format| {
            sh(folder.path(), &format!("find tree | sort | cpio -o --quiet -H {format} > a.cpio"));
            (format, fs::read(folder.path().join("a.cpio")).unwrap())
        })
        .to_vec()
}

#[test]
fn cut_at_every_byte() {
    if !has("cpio") {
        return;
    }
    for (name, archive) in samples() {
        let whole = told(&archive);
        assert!(whole.entries.len() >= 6 && whole.damage.is_empty(), "{name}");
        let end = whole.entries.iter().map(|entry| entry.body.offset + entry.body.stored).max().unwrap();
        for length in 0..archive.len() {
            let cut = try_read_as("cpio", &archive[..length]).unwrap_or_default();
            // What is whole is there. A name whose content is missing is not.
            let is_there = |entry: &&Entry| match entry.kind {
                Kind::HardLink => whole.entry(&String::from_utf8_lossy(&entry.link)).body.offset <= length as u64,
                Kind::Symlink => entry.body.offset + entry.body.stored <= length as u64,
                _ => entry.body.offset <= length as u64,
            };
            for entry in whole.entries.iter().filter(is_there).filter(|entry| entry.header < length as u64) {
                let is_later = entry.kind == Kind::HardLink && entry.body.offset > length as u64;
                assert!(cut.entries.contains(entry) || is_later, "{name}, cut at {length}: {entry:?}");
            }
            // Of a name that is cut in what fills it up, the content begins at the end.
            let as_whole = |entry: &Entry| {
                let same = |whole: &&Entry| whole.header == entry.header && whole.body.offset > length as u64;
                match whole.entries.iter().find(same) {
                    Some(whole) if entry.body.offset == length as u64 => {
                        let body = Body { offset: whole.body.offset, ..entry.body.clone() };
                        Entry { body, ..entry.clone() }
                    }
                    _ => entry.clone(),
                }
            };
            for entry in &cut.entries {
                assert!(whole.entries.contains(&as_whole(entry)), "{name}, cut at {length}");
                assert!(entry.body.offset <= length as u64, "{name}, cut at {length}: {entry:?}");
            }
            assert!(
                length as u64 > end || length == 0 || !cut.damage.is_empty() || cut.entries.is_empty(),
                "{name}, {length}"
            );
        }
    }
}

#[test]
fn bytes_altered() {
    if !has("cpio") {
        return;
    }
    let mut state = 2_463_534_242_u32;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize
    };
    for (name, archive) in samples() {
        let whole = told(&archive).entries;
        for at in (0..archive.len()).step_by(3) {
            let mut altered = archive.clone();
            altered[at] ^= 1 << (random() % 8);
            let entries = try_read_as("cpio", &altered).unwrap_or_default().entries;
            let safe: Vec<&Entry> =
                whole.iter().filter(|entry| entry.body.offset + entry.body.stored <= at as u64).collect();
            // Those before it are as they were, but for a name whose content lies behind it.
            let links = |entry: &&&Entry| entry.kind != Kind::HardLink;
            for entry in safe.iter().filter(links) {
                assert!(entries.contains(entry), "{name}, byte {at}: {entry:?}");
            }
        }
        for _ in 0..2000 {
            let mut altered = archive.clone();
            for _ in 0..random() % 20 {
                let at = random() % altered.len();
                altered[at] = random() as u8;
            }
            let _ = try_read_as("cpio", &altered);
        }
    }
}

/// Each file with its content, as the format crc has them.
fn with_sums(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in files.iter().copied().chain([("TRAILER!!!", &b""[..])]) {
        let sum = content.iter().map(|byte| u64::from(*byte)).sum();
        let fields = [1, 0o100_644, 0, 0, 1, 0, content.len() as u64, 0, 0, 0, 0, name.len() as u64 + 1, sum];
        archive.extend(b"070702");
        archive.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        for bytes in [[name.as_bytes(), b"\0"].concat(), content.to_vec()] {
            archive.extend(bytes);
            archive.resize(archive.len().next_multiple_of(4), 0);
        }
    }
    archive
}

/// What is not compressed is not read when it is listed: whoever reads it all has its sums compared.
#[test]
fn the_sums_of_an_archive_that_is_not_compressed_are_compared_where_somebody_wants_it() {
    let cpio = by_name("cpio").unwrap();
    let content: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
    let mut archive = with_sums(&[("a", b"short"), ("b", &content), ("c", b"")]);
    let wrong = |archive: &[u8]| -> Option<Vec<String>> {
        let source: SharedSource = Arc::new(MemorySource::new(archive, "archive"));
        let found = cpio.wrong_checksums(&source, &Cancel::default()).unwrap()?;
        Some(found.into_iter().map(|damage| damage.what).collect())
    };
    assert_eq!(wrong(&archive), Some(Vec::new()));
    archive[150_000] ^= 1;
    let told = wrong(&archive).unwrap();
    assert!(told.len() == 1 && told[0].starts_with("b: its bytes add up to"), "{told:?}");
    // Others have none.
    archive[..6].copy_from_slice(b"070701");
    assert_eq!(wrong(&archive), None);
    assert_eq!(wrong(b"0707"), None);
}

/// Only files show what is stored of them.
#[test]
fn content_of_what_is_no_file_is_told_once() {
    const FOLDER: u32 = 0o040_755;
    const FIFO: u32 = 0o010_644;
    let file = newc("a", FILE, 1, 1, b"text");
    for (member, is_told) in [
        (newc("d", FOLDER, 2, 2, b""), false),
        (newc("l", 0o120_777, 1, 2, b"a"), false),
        (newc("d", FOLDER, 2, 2, b"secret"), true),
        (newc("p", FIFO, 1, 2, b"secret"), true),
    ] {
        let told = told(&[&file[..], &member, &member, &trailer()].concat());
        assert_eq!((told.damage.len(), told.unlisted.len()), (0, usize::from(is_told)), "{told:?}");
    }
    let told = told(&[file, newc("TRAILER!!!", 0, 1, 0, b"secret")].concat());
    assert_eq!(told.unlisted, ["content of folders and the like, which is not shown"]);
}
