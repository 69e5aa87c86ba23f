//! What looks like something that it is not: names, parts, headers and limits that nearly fit.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::sync::Arc;

use common::{Block, END, content, file, member, pax, read, read_whole, try_read};
use tarnfs_format::tar::Tar;
use tarnfs_format::{Event, Options, ReadForwards, SourceStream, Stream, Time};
use tarnfs_source::{Cancel, Limits, MemorySource};

/// A file of 3000 bytes in two parts, 1024 in the first: between them what is said to be its continuation.
fn volumes(between: &[u8]) -> Vec<u8> {
    [
        Block::new("big", b'0').gnu().size(3000).done(),
        vec![b'a'; 1024],
        between.to_vec(),
        vec![b'b'; 2048],
        END.to_vec(),
    ]
    .concat()
}

fn continued(name: &str, at: u64, left: u64) -> Vec<u8> {
    Block::new(name, b'M').gnu().octal(369, 12, at).size(left).done()
}

fn is_joined(between: &[u8]) -> bool {
    let archive = volumes(between);
    let told = try_read(&archive, &Options { ignore_zeros: true, ..Options::default() }).unwrap();
    let entry = &told.entries[0];
    assert_eq!(entry.body.size, 3000);
    if entry.body.extents.is_some() {
        assert_eq!(content(&archive, entry), [vec![b'a'; 1024], vec![b'b'; 1976]].concat());
    }
    entry.body.extents.is_some()
}

#[test]
fn a_file_goes_on_where_all_that_is_said_fits() {
    assert!(is_joined(&continued("big", 1024, 1976)));
    // A name that does not fit is cut.
    assert!(is_joined(&continued("bi", 1024, 1976)));
    for (name, at, left) in [
        ("bag", 1024, 1976),
        ("bigger", 1024, 1976),
        ("", 1024, 1976),
        ("big", 1023, 1977),
        ("big", 512, 1976),
        ("big", 1024, 1975),
    ] {
        assert!(!is_joined(&continued(name, at, left)), "{name:?} {at} {left}");
    }
    // A label, or records for this entry, may stand before it.
    let label = Block::new("label", b'V').gnu().done();
    assert!(is_joined(&[label, continued("big", 1024, 1976)].concat()));
    assert!(!is_joined(&[file("x", b""), continued("big", 1024, 1976)].concat()));
    // As POSIX archives say it: records for all, and behind them the entry itself.
    let announced = |name: &[u8], at: &[u8], left: &[u8], rest: u64| {
        let all = pax(
            b'g',
            &[("GNU.volume.filename", name), ("GNU.volume.offset", at), ("GNU.volume.size", left), ("comment", b"x")],
        );
        [all, Block::new("big", b'0').ustar().size(rest).done()].concat()
    };
    assert!(is_joined(&announced(b"big", b"1024", b"1976", 1976)));
    for (name, at, left, rest) in [
        (&b"bag"[..], &b"1024"[..], &b"1976"[..], 1976),
        (b"bi", b"1024", b"1976", 1976),
        (b"big", b"1023", b"1976", 1976),
        (b"big", b"x", b"1976", 1976),
        (b"big", b"1024", b"1975", 1976),
        (b"big", b"1024", b"1976", 1975),
    ] {
        assert!(!is_joined(&announced(name, at, left, rest)), "{name:?} {at:?} {left:?} {rest}");
    }
    // Nothing announced it.
    let other = pax(b'g', &[("comment", b"x")]);
    assert!(!is_joined(&[other, Block::new("big", b'0').ustar().size(1976).done()].concat()));
}

/// A stream that cannot go back, in which bytes may be missing.
struct Once(SourceStream, bool);

impl Stream for Once {
    fn position(&self) -> u64 {
        self.0.position()
    }

    fn peek(&mut self, length: usize) -> std::io::Result<&[u8]> {
        self.0.peek(length)
    }

    fn skip(&mut self, length: u64) -> std::io::Result<u64> {
        self.0.skip(length)
    }

    fn may_have_shifted(&self, _: u64) -> bool {
        self.1
    }
}

/// Paths and damage; of what is read ahead of an entry, whether it may be shifted.
fn read_once(archive: Vec<u8>, shifted: bool) -> (Vec<String>, Vec<String>, Vec<bool>) {
    read_once_with(archive, shifted, &Options { ignore_zeros: true, ..Options::default() })
}

fn read_once_with(archive: Vec<u8>, shifted: bool, options: &Options) -> (Vec<String>, Vec<String>, Vec<bool>) {
    let mut stream =
        Once(SourceStream::new(Arc::new(MemorySource::new(archive, "archive")), Cancel::default()), shifted);
    let (mut paths, mut damage, mut ahead) = (Vec::new(), Vec::new(), Vec::new());
    Tar.read(&mut stream, options, &mut |event, stream| {
        match event {
            Event::Entry(entry) => paths.push(String::from_utf8(entry.path).unwrap()),
            Event::Damage(what) => damage.push(what.what),
            Event::Ahead(_) => ahead.push(stream.may_have_shifted(u64::MAX)),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    (paths, damage, ahead)
}

#[test]
fn who_reads_ahead_knows_whether_bytes_are_missing() {
    for shifted in [false, true] {
        let (paths, damage, ahead) = read_once(volumes(&continued("big", 1024, 1976)), shifted);
        assert_eq!((paths, damage.len(), ahead), (vec!["big".to_owned()], 0, vec![shifted]));
    }
}

#[test]
fn the_search_for_a_header_ends_with_the_archive() {
    // Junk up to the end: whole blocks, parts of one, and as much as is looked at together.
    for length in [512, 700, 1024, 65_535, 65_536, 65_537, 66_048] {
        for shifted in [false, true] {
            let (paths, damage, _) = read_once([file("first", b"1"), vec![7; length]].concat(), shifted);
            assert_eq!((paths, damage.len()), (vec!["first".to_owned()], 1), "{length}, shifted: {shifted}");
        }
    }
}

/// Whoever passes a file of which a part is missing may come out in zeros of the next one.
#[test]
fn zeros_behind_a_gap_do_not_end_the_archive() {
    let read = |archive: &[&[u8]], shifted| read_once_with(archive.concat(), shifted, &Options::default());
    let (first, second) = (&file("first", b"1")[..], &file("second", b"2")[..]);
    for zeros in [512, 700, 1024, 1500, 65_536, 200_000] {
        let (paths, damage, _) = read(&[first, &vec![0; zeros], second, &END], true);
        assert_eq!((paths, damage.len()), (vec!["first".to_owned(), "second".to_owned()], 1), "{zeros}: {damage:?}");
        // Nothing follows: that is the end.
        let (paths, damage, _) = read(&[first, &vec![0; zeros]], true);
        assert_eq!((paths, damage), (vec!["first".to_owned()], vec![]), "{zeros}");
    }
    // The first header may be what is missing.
    assert_eq!(read(&[&[0; 1024], second, &END], true).0, ["second"]);
    assert_eq!(read(&[&[0; 1024]], true), (vec![], vec![], vec![]));
    // Something follows that is no header.
    let (paths, damage, _) = read(&[first, &[0; 1024], &[7; 700]], true);
    assert_eq!((paths, damage.len()), (vec!["first".to_owned()], 1), "{damage:?}");
    // Where nothing is missing, zeros are the end.
    assert_eq!(read(&[first, &[0; 1024], second, &END], false).0, ["first"]);
}

#[test]
fn what_was_skipped_is_told_in_blocks_or_bytes() {
    let archive = |junk: &[u8]| [file("first", b"1"), junk.to_vec(), file("second", b"2"), END.to_vec()].concat();
    for (length, shifted, expected) in [(300, true, "300 bytes"), (1024, true, "2 blocks"), (1536, false, "3 blocks")] {
        let (paths, damage, _) = read_once(archive(&vec![7; length]), shifted);
        assert_eq!(paths, ["first", "second"]);
        assert_eq!(damage, [format!("no valid header; {expected} were skipped")]);
    }
    // What has the magic of a header but not its sum, and what has the fields of one but not the magic.
    let mut wrong_sum = Block::new("wrong", b'0').ustar().done();
    wrong_sum[0] = b'W';
    let no_magic = Block::new("none", b'0').put(257, b"uster").done();
    for junk in [wrong_sum, no_magic] {
        let junk = [vec![7; 100], junk, vec![7; 200]].concat();
        let (paths, damage, _) = read_once(archive(&junk), true);
        assert_eq!(paths, ["first", "second"]);
        assert_eq!(damage, [format!("no valid header; {} bytes were skipped", junk.len())]);
    }
}

#[test]
fn an_entry_of_star_has_both_times_or_its_signature() {
    let dialect = |times: [&[u8]; 2], signature: &[u8]| {
        let mut block = Block::new("name", b'0');
        block.ustar().put(476, times[0]).put(488, times[1]).put(508, signature);
        let told = read_whole(&[block.done(), END.to_vec()].concat());
        (told.entries[0].atime, told.entries[0].ctime)
    };
    let time = |seconds| Some(Time { seconds, nanoseconds: 0 });
    let (one, two): (&[u8], &[u8]) = (b"00000000012 ", b"00000000034 ");
    assert_eq!(dialect([one, two], b""), (time(0o12), time(0o34)));
    assert_eq!(dialect([one, b"not a time.."], b""), (None, None));
    assert_eq!(dialect([b"not a time..", two], b""), (None, None));
    assert_eq!(dialect([one, b""], b"tar\0"), (time(0o12), None));
    // A prefix that goes on there leaves no room for them.
    let mut block = Block::new("name", b'0');
    block.ustar().put(345, &[b'p'; 155]).put(508, b"tar\0");
    let told = read_whole(&[block.done(), END.to_vec()].concat());
    assert_eq!(told.entries[0].path, [&[b'p'; 155][..], b"/name"].concat());
}

#[test]
fn a_path_as_long_as_it_may_be_is_not_cut() {
    let limits = Limits { path: 10, ..Limits::default() };
    let read = |name: &str| {
        try_read(&[file(name, b"1"), END.to_vec()].concat(), &Options { limits, ..Options::default() }).unwrap()
    };
    let told = read("0123456789");
    assert_eq!((told.paths(), told.damage.len()), (vec!["0123456789".to_owned()], 0));
    let told = read("0123456789a");
    assert_eq!(told.entries[0].path.len(), 10);
    assert!(told.damage[0].1.contains("a path of 11 bytes was cut to 10"), "{:?}", told.damage);
    let link = |target: &str| {
        let archive = [Block::new("l", b'2').ustar().put(157, target.as_bytes()).done(), END.to_vec()].concat();
        try_read(&archive, &Options { limits, ..Options::default() }).unwrap()
    };
    assert_eq!(link("0123456789").entries[0].link, b"0123456789");
    assert!(link("0123456789a").entries.is_empty());
}

#[test]
fn numbers_that_are_none_are_told_of() {
    for (at, width, what) in [(100, 8, "mode"), (108, 8, "user"), (116, 8, "group"), (136, 12, "time")] {
        let mut block = Block::new("name", b'0');
        block.ustar().put(at, &vec![b'x'; width]);
        let told = read(&[file("first", b"1"), block.done(), END.to_vec()].concat());
        let damage: Vec<&str> = told.damage.iter().map(|(_, what)| what.as_str()).collect();
        assert!(damage.iter().any(|told| told.contains(&format!("its {what} is not a number"))), "{damage:?}");
        assert_eq!(told.paths(), ["first", "name"]);
    }
    // Where a record says it, what the header says does not matter.
    let mut block = Block::new("name", b'0');
    block.ustar().put(108, b"xxxxxxxx").put(136, b"xxxxxxxxxxxx");
    let archive = [pax(b'x', &[("uid", b"7"), ("mtime", b"9")]), member(&mut block, b"1"), END.to_vec()].concat();
    let told = read_whole(&archive);
    assert_eq!((told.entries[0].uid, told.entries[0].mtime.seconds), (7, 9));
}

#[test]
fn names_of_owners_are_read_where_a_header_has_them() {
    let owners = |magic: &[u8]| {
        let mut block = Block::new("name", b'0');
        block.put(257, magic).put(265, b"alice\0").put(297, b"staff\0");
        let told = read(&[block.done(), END.to_vec()].concat());
        (told.entries[0].user.clone(), told.entries[0].group.clone())
    };
    assert_eq!(owners(b"ustar\x0000"), (b"alice".to_vec(), b"staff".to_vec()));
    assert_eq!(owners(b"ustar  \0"), (b"alice".to_vec(), b"staff".to_vec()));
    assert_eq!(owners(b""), (Vec::new(), Vec::new()));
}

#[test]
fn access_control_lists_are_those_of_what_can_have_them() {
    let list: &[u8] = b"user::rw-,user:1000:r--,group::r--,mask::r--,other::---";
    let xattrs = |key: &str, typeflag: u8| {
        let mut block = Block::new("name", typeflag);
        block.ustar().put(157, b"target");
        let told = read(&[pax(b'x', &[(key, list)]), block.done(), END.to_vec()].concat());
        told.entries[0].xattrs.iter().map(|(name, _)| String::from_utf8(name.clone()).unwrap()).collect::<Vec<_>>()
    };
    for (typeflag, has_access, has_default) in [(b'0', true, false), (b'5', true, true), (b'2', false, false)] {
        let shown = |name: &str, has: bool| if has { vec![name.to_owned()] } else { Vec::new() };
        let [access, default] = ["SCHILY.acl.access", "SCHILY.acl.default"].map(|key| xattrs(key, typeflag));
        assert_eq!(access, shown("system.posix_acl_access", has_access), "{}", char::from(typeflag));
        assert_eq!(default, shown("system.posix_acl_default", has_default), "{}", char::from(typeflag));
    }
}

#[test]
fn an_attribute_as_long_as_it_may_be_is_kept() {
    let limits = Limits { xattr_value: 10, ..Limits::default() };
    for (value, is_kept) in [(&b"0123456789"[..], true), (b"0123456789a", false)] {
        let archive = [pax(b'x', &[("SCHILY.xattr.user.long", value)]), file("name", b"1"), END.to_vec()].concat();
        let told = try_read(&archive, &Options { limits, ..Options::default() }).unwrap();
        assert_eq!((told.entries[0].xattrs.len() == 1, told.damage.is_empty()), (is_kept, is_kept));
    }
}
