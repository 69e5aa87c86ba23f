//! Images of Windows in which files have several streams without a name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha1::{Digest, Sha1};
use tarnfs_format::{Decode, Entry, Error, Event, FORMATS, Kind, Options, Reader};
use tarnfs_source::{Limits, MemorySource, SharedSource};

const NONE: [u8; 20] = [0; 20];

/// Attributes.
const FOLDER: u32 = 0x10;
const FILE: u32 = 0x20;
const REPARSE: u32 = 0x400;
const ENCRYPTED: u32 = 0x4000;

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// A stream of a file without a name.
fn stream(hash: [u8; 20]) -> Vec<u8> {
    padded([&38_u64.to_le_bytes()[..], &[0; 8], &hash, &[0; 2]].concat())
}

/// What tells a file: attributes, where what is in it begins, its own stream, the kind of a link, and others.
fn dentry(name: &str, (attributes, below): (u32, u64), hash: [u8; 20], reparse: u32, others: &[[u8; 20]]) -> Vec<u8> {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut own = vec![0; 102];
    own[..8].copy_from_slice(&(102 + name.len() as u64 + 2).to_le_bytes());
    own[8..12].copy_from_slice(&attributes.to_le_bytes());
    own[12..16].fill(0xff);
    own[16..24].copy_from_slice(&below.to_le_bytes());
    own[64..84].copy_from_slice(&hash);
    own[88..92].copy_from_slice(&reparse.to_le_bytes());
    own[96] = others.len() as u8;
    own[100..102].copy_from_slice(&(name.len() as u16).to_le_bytes());
    let own = padded([own, name, vec![0; 2]].concat());
    [own, others.iter().flat_map(|hash| stream(*hash)).collect()].concat()
}

/// An archive with one image whose root has these files, and with these contents, which are not packed. The hash of
/// each is its number.
fn archive(files: &[u8], contents: &[&[u8]]) -> Vec<u8> {
    let tree = tree(files);
    let mut archive = vec![0; 208];
    let mut table = Vec::new();
    for (number, content) in contents.iter().chain(&[&tree[..]]).enumerate() {
        let is_tree = number == contents.len();
        let (length, flags) = (content.len() as u64, if is_tree { 2 } else { 0 });
        table.extend([length | flags << 56, archive.len() as u64, length].map(u64::to_le_bytes).concat());
        table.extend([1, 0, 1, 0, 0, 0]);
        table.extend(hash(number));
        archive.extend_from_slice(content);
    }
    finished(archive, &table)
}

/// A tree whose root has these files.
fn tree(files: &[u8]) -> Vec<u8> {
    let root = dentry("", (FOLDER, 8 + 104 + 8), NONE, 0, &[]);
    [&[8, 0, 0, 0, 0, 0, 0, 0], &root[..], &[0; 8], files, &[0; 8]].concat()
}

/// With its header, and the table of resources.
fn finished(mut archive: Vec<u8>, table: &[u8]) -> Vec<u8> {
    let mut put = |at: usize, bytes: &[u8]| archive[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MSWIM\0\0\0");
    put(8, &[208, 0x1_0d00, 0, 0].map(u32::to_le_bytes).concat());
    put(40, &[1, 0, 1, 0, 1, 0, 0, 0]);
    let length = table.len() as u64;
    let at = archive.len() as u64;
    archive[48..72].copy_from_slice(&[length, at, length].map(u64::to_le_bytes).concat());
    [&archive, table].concat()
}

fn hash(number: usize) -> [u8; 20] {
    [number as u8 + 1; 20]
}

fn told(archive: &[u8]) -> (Vec<Entry>, Vec<String>) {
    let (entries, damage, _, result) = read(archive, Limits::default());
    result.unwrap();
    (entries, damage)
}

/// Entries, what is damaged, how often something was decoded, and how it ended.
fn read(archive: &[u8], limits: Limits) -> (Vec<Entry>, Vec<String>, usize, Result<(), Error>) {
    let format = FORMATS.iter().find(|format| format.name() == "wim").unwrap();
    let Reader::Random(reader) = format.reader() else { panic!("it is read forwards") };
    let count = Arc::new(AtomicUsize::new(0));
    let (of_whole, of_each) = (Arc::clone(&count), Arc::clone(&count));
    let decode = Decode::new(move |_, stored: SharedSource, length, _| {
        of_whole.fetch_add(1, Ordering::Relaxed);
        let mut bytes = vec![0; length as usize];
        stored.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    })
    .with_each(move |step, stored, _, take| {
        assert_eq!(step.codec, "chunked");
        of_each.fetch_add(1, Ordering::Relaxed);
        let mut bytes = vec![0; step.decoded_length.unwrap().min(stored.len()) as usize];
        stored.read_exact_at(&mut bytes, 0)?;
        bytes.chunks(100).try_for_each(take)
    });
    let options = Options { decode, limits, ..Options::default() };
    let source: SharedSource = Arc::new(MemorySource::new(archive, "archive"));
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    let result = reader.read(&source, &options, &mut |event| {
        match event {
            Event::Entry(entry) => entries.push(*entry),
            Event::Damage(found) => damage.push(found.what),
            _ => {}
        }
        Ok(())
    });
    (entries, damage, count.load(Ordering::Relaxed), result)
}

/// The bytes of a file; `None` if they cannot be read.
fn content<'a>(archive: &'a [u8], entry: &Entry) -> Option<&'a [u8]> {
    let Some([piece]) = entry.body.pieces.as_deref() else { return Some(&[]) };
    (piece.stored > 0).then(|| &archive[piece.offset as usize..(piece.offset + piece.stored) as usize])
}

/// > Of a WIM image, a mount shows what `wimlib-imagex apply` makes of it, with its streams and attributes of Windows
/// > as extended attributes, and those that wimlib captured on Unix.
///
/// What Windows keeps for a file is the first of its streams without a name, and the content is the second one.
#[test]
fn the_content_of_a_file_is_not_what_windows_keeps_for_it() {
    const CLOUD: u32 = 0x9000_001a;
    let contents = [&b"of the driver"[..], b"content", b"\x02\0\0\0target", b"keys", b"bad"];
    let [kept, real, target, raw, bad] = [0, 1, 2, 3, 4].map(hash);
    let files = [
        dentry("both", (FILE | REPARSE, 0), NONE, CLOUD, &[kept, real]),
        dentry("own", (FILE | REPARSE, 0), kept, CLOUD, &[real]),
        dentry("only", (FILE | REPARSE, 0), kept, CLOUD, &[]),
        dentry("plain", (FILE, 0), NONE, 0, &[NONE, real]),
        dentry("link", (FILE | REPARSE, 0), NONE, LINUX, &[target]),
        dentry("folder", (FOLDER | REPARSE | ENCRYPTED, 0), NONE, CLOUD, &[kept]),
        dentry("absent", (FILE | REPARSE, 0), [99; 20], CLOUD, &[real]),
        dentry("efs", (FILE | ENCRYPTED | REPARSE, 0), raw, CLOUD, &[]),
        dentry("lost", (FILE | REPARSE, 0), bad, LINUX, &[]),
        dentry("gone", (FILE | REPARSE, 0), [99; 20], LINUX, &[]),
    ];
    let archive = archive(&files.concat(), &contents);
    let (entries, damage) = told(&archive);
    let reparse = [&CLOUD.to_le_bytes()[..], &[13, 0, 0, 0], contents[0]].concat();
    let shown: Vec<_> = entries
        .iter()
        .map(|entry| {
            let value = entry.xattrs.iter().find(|(name, _)| name == b"user.ntfs.reparse").map(|(_, value)| value);
            assert!(value.is_none_or(|value| *value == reparse), "{entry:?}");
            (String::from_utf8_lossy(&entry.path), entry.kind, content(&archive, entry), value.is_some())
        })
        .map(|(path, kind, content, has_kept)| (path.into_owned(), kind, content, has_kept))
        .collect();
    let nothing = &b""[..];
    let expected = [
        (".", Kind::Folder, Some(nothing), false),
        ("both", Kind::File, Some(contents[1]), true),
        ("own", Kind::File, Some(contents[1]), true),
        ("only", Kind::File, Some(nothing), true),
        ("plain", Kind::File, Some(contents[1]), false),
        ("link", Kind::Symlink, Some(nothing), false),
        ("folder", Kind::Folder, Some(nothing), true),
        ("absent", Kind::File, Some(contents[1]), false),
        ("efs", Kind::File, None, false),
        ("lost", Kind::File, None, false),
        ("gone", Kind::File, None, false),
    ];
    assert_eq!(shown, expected.map(|(path, kind, content, has_kept)| (path.to_owned(), kind, content, has_kept)));
    assert_eq!(entries[5].link, b"target");
    let expected = [
        "'absent' is one for which what Windows keeps is not in the archive",
        "what is in 'efs' is encrypted by Windows (EFS)",
        "'lost' is a link whose target is none",
        "'gone' is a link whose target is not in the archive",
    ];
    assert_eq!(damage.len(), expected.len(), "{damage:?}");
    assert!(expected.iter().zip(&damage).all(|(expected, found)| found.starts_with(expected)), "{damage:?}");
}

/// A file with extended attributes, as `wimlib-imagex capture --unix-data` and Windows store them.
fn with_xattrs(name: &str, list: &[u8]) -> Vec<u8> {
    let item = [&[2, 0, 0, 0][..], &(list.len() as u32).to_le_bytes(), list].concat();
    let mut own = [dentry(name, (FILE, 0), NONE, 0, &[]), padded(item)].concat();
    let length = own.len() as u64;
    own[..8].copy_from_slice(&length.to_le_bytes());
    own
}

fn xattr(name: &str, value: &[u8]) -> Vec<u8> {
    [&(value.len() as u16).to_le_bytes()[..], &[name.len() as u8, 0], name.as_bytes(), &[0], value].concat()
}

#[test]
fn extended_attributes_are_those_that_were_captured() {
    let access_list = [&[2, 0, 0, 0][..], &[0xff; 24]].concat();
    let list = [
        xattr("user.mine", b"hello"),
        xattr("security.capability", &[1; 20]),
        xattr("system.posix_acl_access", &access_list),
        xattr("$KERNEL.PURGE", &[]),
    ];
    let all = list.concat();
    let files = [with_xattrs("whole", &all), with_xattrs("cut", &all[..20]), with_xattrs("none", &[])];
    let (entries, damage) = told(&archive(&files.concat(), &[]));
    let shown = |number: usize| -> Vec<(String, &[u8])> {
        let xattrs = entries[number].xattrs.iter();
        let named = xattrs.map(|(name, value)| (String::from_utf8(name.clone()).unwrap(), value.as_slice()));
        named.filter(|(name, _)| name != "user.ntfs.attributes").collect()
    };
    let expected: [(&str, &[u8]); 4] = [
        ("user.mine", b"hello"),
        ("security.capability", &[1; 20]),
        ("system.posix_acl_access", &access_list),
        ("user.ntfs.ea.$KERNEL.PURGE", b""),
    ];
    let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value)).into();
    assert_eq!((shown(1), shown(2), shown(3)), (expected.clone(), expected[..1].to_vec(), Vec::new()));
    assert_eq!(damage, ["'cut': some of its extended attributes are left out"]);
}

const LINUX: u32 = 0xa000_001d;

/// An archive with these contents in solid resources of such chunks, and the files in its root.
fn solid_archive(files: &[u8], solids: &[Vec<Vec<u8>>], chunk: usize) -> Vec<u8> {
    const SOLID: u64 = 16 << 56;
    let (mut archive, mut table) = (vec![0; 208], Vec::new());
    let mut list = |packed: u64, offset: usize, length: u64, hash: &[u8]| {
        table.extend([packed, offset as u64, length].map(u64::to_le_bytes).concat());
        table.extend([1, 0, 1, 0, 0, 0]);
        table.extend(hash);
    };
    for contents in solids {
        let data = contents.concat();
        let lengths = data.chunks(chunk).flat_map(|part| (part.len() as u32).to_le_bytes());
        let header = [&(data.len() as u64).to_le_bytes()[..], &(chunk as u32).to_le_bytes(), &[0; 4]].concat();
        let stored = [header, lengths.collect(), data].concat();
        list(stored.len() as u64 | SOLID, archive.len(), 1 << 32, &NONE);
        archive.extend(stored);
        let mut at = 0;
        for content in contents {
            list(content.len() as u64 | SOLID, at, content.len() as u64, &Sha1::digest(content));
            at += content.len();
        }
    }
    let tree = tree(files);
    list(tree.len() as u64 | 2 << 56, archive.len(), tree.len() as u64, &[77; 20]);
    archive.extend(tree);
    finished(archive, &table)
}

/// What is kept for a link, and the file that has it.
fn link(number: usize) -> (Vec<u8>, Vec<u8>) {
    let content = format!("\x02\0\0\0some/target/{number:03}").into_bytes();
    let hash = Sha1::digest(&content).into();
    (content, dentry(&format!("l{number:03}"), (FILE | REPARSE, 0), hash, LINUX, &[]))
}

/// Links among these that are right; others must be told of as damaged.
fn right_links(entries: &[Entry]) -> usize {
    let links = entries.iter().filter(|entry| entry.kind == Kind::Symlink);
    let right = links.map(|entry| {
        let (path, target) = (String::from_utf8_lossy(&entry.path), String::from_utf8_lossy(&entry.link));
        assert_eq!(target, format!("some/target/{}", &path[1..]));
    });
    right.count()
}

/// What Windows keeps for links is compared with its hash, as contents are: the codec of a solid resource compares
/// nothing.
#[test]
fn no_changed_byte_of_a_solid_resource_changes_a_link() {
    const COUNT: usize = 12;
    let links: Vec<_> = (0..COUNT).map(link).collect();
    let contents = links.iter().enumerate().flat_map(|(n, (link, _))| [link.clone(), vec![n as u8; 70]]);
    let files = links.iter().flat_map(|(_, file)| file.clone()).collect::<Vec<_>>();
    // Some links lie in two chunks.
    let archive = solid_archive(&files, &[contents.collect()], 64);
    let (entries, damage) = told(&archive);
    assert_eq!((right_links(&entries), damage), (COUNT, Vec::new()));
    let end = 208 + 16 + COUNT * (19 + 70) * 68 / 64;
    let mut noticed = 0;
    for at in 208..end {
        let mut wrong = archive.clone();
        wrong[at] ^= 1;
        let (entries, damage) = told(&wrong);
        let right = right_links(&entries);
        assert_eq!(right == COUNT, damage.is_empty(), "{at}: {damage:?}");
        noticed += usize::from(right < COUNT);
    }
    assert!(noticed >= COUNT * 19, "{noticed}");
}

/// `wimlib-imagex append --solid` makes another solid resource: a folder has links of both in turn.
#[test]
fn each_chunk_with_links_is_decoded_once() {
    const COUNT: usize = 40;
    let links: Vec<_> = (0..COUNT).map(link).collect();
    let of = |first: usize| {
        let own = |from: usize, to: usize| (from..to).map(move |n| first + 2 * n);
        let contents = |range: std::ops::Range<usize>| own(range.start, range.end).map(|n| links[n].0.clone());
        let filler = |byte: u8, length: usize| vec![vec![byte; length]];
        [filler(1, 4100), contents(0..10).collect(), filler(2, 40_000), contents(10..20).collect(), filler(3, 9000)]
            .concat()
    };
    let files = links.iter().flat_map(|(_, file)| file.clone()).collect::<Vec<_>>();
    let archive = solid_archive(&files, &[of(0), of(1)], 4096);
    let (entries, damage, decoded, result) = read(&archive, Limits::default());
    result.unwrap();
    assert_eq!((right_links(&entries), damage), (COUNT, Vec::new()));
    // The tree, and two chunks of each.
    assert_eq!(decoded, 1 + 2 * 2);
}

/// Where several archives are read beside each other, one that needs much memory waits until it is by itself.
#[test]
fn what_takes_more_memory_than_there_is_now_is_refused_before_it_is_decoded() {
    let (content, file) = link(1);
    let archive = solid_archive(&file, &[vec![content, vec![0; 100_000]]], 65_536);
    for (held, is_enough) in [(80_000, false), (100_000, true)] {
        let (entries, _, decoded, result) = read(&archive, Limits { held, ..Limits::default() });
        let is_refused =
            |result| matches!(result, Err(Error::Read { error, .. }) if error.kind() == io::ErrorKind::OutOfMemory);
        assert_eq!((entries.is_empty(), decoded == 0, is_refused(result)), (!is_enough, !is_enough, !is_enough));
    }
    // What is kept of short contents is counted, too.
    let contents = (0..100).map(|number| vec![number; 1000]).collect();
    let archive = solid_archive(&link(1).1, &[contents], 4096);
    for (held, is_enough) in [(100_000, false), (200_000, true)] {
        let (entries, ..) = read(&archive, Limits { held, ..Limits::default() });
        assert_eq!(entries.is_empty(), !is_enough, "{held}");
    }
}
