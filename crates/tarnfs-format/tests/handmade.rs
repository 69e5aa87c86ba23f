//! Archives that no tool at hand writes: old dialects, rare fields, and headers that lie.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Block, END, content, file, member, pax, read, read_whole, try_read};
use tarnfs_format::tar::Tar;
use tarnfs_format::{Device, Error, Format, Kind, Options, Probe, ReadForwards, Time};
use tarnfs_source::{Extent, Limits};

fn seconds(seconds: i64) -> Time {
    Time { seconds, nanoseconds: 0 }
}

fn gnu_long(typeflag: u8, name: &[u8]) -> Vec<u8> {
    member(Block::new("././@LongLink", typeflag).gnu(), &[name, b"\0"].concat())
}

/// Big-endian two's complement with the first bit set.
fn base_256(value: i128, width: usize) -> Vec<u8> {
    let mut bytes = value.to_be_bytes()[16 - width..].to_vec();
    bytes[0] |= 0x80;
    bytes
}

#[test]
fn old_checksums() {
    // A name with high bytes: some old tars summed signed bytes.
    let mut block = Block::new("", b'0');
    block.put(0, b"\xe4\xf6\xfc").put(148, b"        ");
    let signed: i32 = block.0.iter().map(|&byte| i32::from(byte.cast_signed())).sum();
    let unsigned: i32 = block.0.iter().map(|&byte| i32::from(byte)).sum();
    assert_ne!(signed, unsigned);
    for sum in [signed, unsigned] {
        for text in [format!("{sum:06o}\0 "), format!("{sum:6o} \0"), format!("{sum:07o}\0"), format!(" {sum:o}\0\0\0")]
        {
            block.put(148, text.get(..8).unwrap().as_bytes());
            let told = read_whole(&[block.0.to_vec(), END.to_vec()].concat());
            assert_eq!(told.entries[0].path, b"\xe4\xf6\xfc", "{text:?}");
        }
    }
    block.put(148, format!("{:06o}\0 ", unsigned + 1).as_bytes());
    assert!(matches!(
        try_read(&[block.0.to_vec(), END.to_vec()].concat(), &Options::default()),
        Err(Error::NotThisFormat { .. })
    ));
}

#[test]
fn numbers_beyond_octal() {
    let mut block = Block::new("big", b'0');
    block
        .gnu()
        .put(108, &base_256(3_000_000_000, 8))
        .put(116, &base_256(-2, 8))
        .put(136, &base_256(-1_234_567_890, 12));
    let told = read_whole(&[block.done(), END.to_vec()].concat());
    let entry = told.entry("big");
    assert_eq!((entry.uid, entry.gid, entry.mtime), (3_000_000_000, 4_294_967_294, seconds(-1_234_567_890)));
    // Twelve digits without an end.
    let mut block = Block::new("digits", b'0');
    block.put(136, b"777777777777");
    let told = read_whole(&[block.done(), END.to_vec()].concat());
    assert_eq!(told.entry("digits").mtime, seconds(0o777_777_777_777));
}

#[test]
fn a_size_that_is_no_size_is_damage() {
    for size in [base_256(-5, 12), b"frog\0\0\0\0\0\0\0\0".to_vec(), base_256(1 << 70, 12)] {
        let mut block = Block::new("bad", b'0');
        block.gnu().put(124, &size);
        let told = read(&[file("before", b"1"), block.done(), file("after", b"2"), END.to_vec()].concat());
        assert_eq!(told.paths(), ["before", "after"]);
        assert_eq!(told.damage.len(), 1);
        assert_eq!(told.damage[0].0, 1024);
    }
    // One that no file can have: what is behind it cannot be found, what came before is there.
    let mut block = Block::new("huge", b'0');
    block.gnu().put(124, &base_256(i128::from(i64::MAX), 12));
    let told = read(&[file("before", b"1"), block.done(), file("after", b"2"), END.to_vec()].concat());
    assert_eq!(told.paths(), ["before"]);
    assert!(!told.damage.is_empty());
}

#[test]
fn types_of_all_dialects() {
    let mut device = Block::new("device", b'4');
    device.ustar().octal(329, 8, 8).octal(337, 8, 1);
    let archive = [
        // Before POSIX: no magic, folders by their slash, link names in the header.
        Block::new("old folder/", 0).done(),
        member(&mut Block::new("old file", 0), b"old"),
        member(Block::new("contiguous", b'7').ustar(), b"whole"),
        member(Block::new("unknown", b'Z').ustar(), b"is a file"),
        Block::new("fifo", b'6').ustar().done(),
        Block::new("folder", b'5').ustar().done(),
        device.done(),
        Block::new("symlink", b'2').ustar().put(157, b"target").done(),
        Block::new("hard", b'1').ustar().put(157, b"old file").done(),
        END.to_vec(),
    ]
    .concat();
    let told = read_whole(&archive);
    let kinds: Vec<_> = told.entries.iter().map(|entry| entry.kind).collect();
    let block = Kind::BlockDevice(Device { major: 8, minor: 1 });
    assert_eq!(
        kinds,
        [
            Kind::Folder,
            Kind::File,
            Kind::File,
            Kind::File,
            Kind::Fifo,
            Kind::Folder,
            block,
            Kind::Symlink,
            Kind::HardLink
        ]
    );
    for (name, bytes) in [("old file", &b"old"[..]), ("contiguous", b"whole"), ("unknown", b"is a file")] {
        assert_eq!(content(&archive, told.entry(name)), bytes);
    }
    assert_eq!((&told.entries[7].link[..], &told.entries[8].link[..]), (&b"target"[..], &b"old file"[..]));
}

#[test]
fn the_dialect_decides_what_a_prefix_is() {
    let name = |magic: &[u8]| {
        let mut block = Block::new("name", b'0');
        block.put(257, magic).put(345, b"pre/fix").put(265, b"user");
        read_whole(&[block.done(), END.to_vec()].concat()).paths().remove(0)
    };
    assert_eq!(name(b"ustar\x0000"), "pre/fix/name");
    assert_eq!(name(b"ustar  \0"), "name");
    assert_eq!(name(b""), "name");
    // star: 131 bytes of prefix and two times.
    let mut star = Block::new("name", b'0');
    star.ustar().put(345, &[b'p'; 130]).put(476, b"00000000012 00000000034 ").put(508, b"tar\0");
    let told = read_whole(&[star.done(), END.to_vec()].concat());
    let entry = &told.entries[0];
    assert_eq!(entry.path, [&[b'p'; 130][..], b"/name"].concat());
    assert_eq!((entry.atime, entry.ctime), (Some(seconds(0o12)), Some(seconds(0o34))));
    // And without its signature, by the times alone.
    star.put(508, &[0; 4]);
    assert_eq!(read_whole(&[star.done(), END.to_vec()].concat()).entries[0].atime, Some(seconds(0o12)));
}

#[test]
fn sparse_files_of_star() {
    let mut block = Block::new("sparse", b'S');
    block.ustar().put(508, b"tar\0").octal(452, 12, 5000);
    let pair = |block: &mut Block, at: usize, offset: u64, length: u64| {
        block.octal(at, 12, offset).octal(at + 12, 12, length);
    };
    for n in 0..4 {
        pair(&mut block, 356 + n * 24, n as u64 * 1000, 2);
    }
    block.0[355] = 1;
    let mut more = Block([0; 512]);
    pair(&mut more, 0, 4500, 2);
    let archive =
        [block.size(10).done(), more.0.to_vec(), common::padded(b"0011223344"), file("next", b"n"), END.to_vec()];
    let archive = archive.concat();
    let told = read_whole(&archive);
    assert_eq!(told.paths(), ["sparse", "next"]);
    let body = &told.entries[0].body;
    assert_eq!((body.offset, body.stored, body.size), (1024, 10, 5000));
    let bytes = content(&archive, &told.entries[0]);
    assert_eq!((bytes.len(), &bytes[2000..2003], &bytes[4500..4502]), (5000, &b"22\0"[..], &b"44"[..]));
}

#[test]
fn maps_of_sparse_files_that_lie_cost_only_their_file() {
    let sparse = |map: &[(u64, u64)], real: u64| {
        let mut block = Block::new("sparse", b'S');
        block.gnu().octal(483, 12, real);
        for (n, (offset, length)) in map.iter().enumerate() {
            block.octal(386 + n * 24, 12, *offset).octal(398 + n * 24, 12, *length);
        }
        [file("before", b"1"), member(&mut block, b"0123456789"), file("after", b"2"), END.to_vec()].concat()
    };
    assert_eq!(read_whole(&sparse(&[(0, 5), (10, 5)], 20)).paths().len(), 3);
    for (map, real) in [
        (&[(10, 5), (0, 5)][..], 20),
        (&[(0, 6), (5, 4)], 20),
        (&[(0, 5), (18, 5)], 20),
        (&[(0, 5), (10, 6)], 20),
        (&[(0, 5), (0o7777_7777_7777, 5)], 20),
    ] {
        let told = read(&sparse(map, real));
        assert_eq!((told.paths(), told.damage.len()), (vec!["before".into(), "after".into()], 1), "{map:?}");
    }
    for records in [
        &[("GNU.sparse.map", &b"0,5,x"[..]), ("GNU.sparse.size", b"10")][..],
        &[("GNU.sparse.major", b"2"), ("GNU.sparse.minor", b"0")],
        &[("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"99")],
        &[("GNU.sparse.numbytes", b"5"), ("GNU.sparse.size", b"10")],
    ] {
        let archive = [file("before", b"1"), pax(b'x', records), file("sparse", b"no map"), file("after", b"2")];
        let told = read(&[archive.concat(), END.to_vec()].concat());
        assert_eq!(told.paths(), ["before", "after"], "{records:?}");
        assert!(!told.damage.is_empty());
    }
    // A file of 8 EiB with one byte at its end.
    let (offset, size) = ((i64::MAX - 1).to_string(), i64::MAX.to_string());
    let map = format!("{offset},1");
    let records = [("GNU.sparse.map", map.as_bytes()), ("GNU.sparse.size", size.as_bytes())];
    let archive = [pax(b'x', &records), file("sparse", b"E"), END.to_vec()].concat();
    let told = read_whole(&archive);
    assert_eq!(told.entries[0].body.size, i64::MAX as u64);
    assert_eq!(told.entries[0].body.extents, Some(vec![Extent { offset: i64::MAX as u64 - 1, length: 1, skip: 0 }]));
}

#[test]
fn pax_records_override_the_header() {
    let records: &[(&str, &[u8])] = &[
        ("path", b"new/path"),
        ("linkpath", b"to"),
        ("uid", b"4294967294"),
        ("gid", b"7"),
        ("uname", "ü".as_bytes()),
        ("gname", b"g"),
        ("mtime", b"-1.25"),
        ("atime", b"1.000000001"),
        ("ctime", b"2"),
        ("comment", b"no matter"),
        ("hdrcharset", b"BINARY"),
        ("SCHILY.ino", b"99"),
        ("LIBARCHIVE.creationtime", b"1"),
        ("LIBARCHIVE.xattr.user.a%20b", b"AAE"),
        ("SCHILY.xattr.user.c", b"\0\n="),
    ];
    for typeflag in *b"xX" {
        let archive = [pax(typeflag, records), Block::new("old", b'2').ustar().done(), file("next", b""), END.to_vec()];
        let told = read_whole(&archive.concat());
        let entry = told.entry("new/path");
        assert_eq!((entry.uid, entry.gid, &entry.link[..]), (4_294_967_294, 7, &b"to"[..]));
        assert_eq!((&entry.user[..], &entry.group[..]), ("ü".as_bytes(), &b"g"[..]));
        assert_eq!(entry.mtime, Time { seconds: -2, nanoseconds: 750_000_000 });
        assert_eq!(entry.atime, Some(Time { seconds: 1, nanoseconds: 1 }));
        assert_eq!(entry.ctime, Some(seconds(2)));
        let xattrs = vec![(b"user.a b".to_vec(), vec![0, 1]), (b"user.c".to_vec(), b"\0\n=".to_vec())];
        assert_eq!(entry.xattrs, xattrs);
        assert_eq!((entry.header, told.entry("next").uid), (0, 1000));
    }
}

#[test]
fn global_records_hold_until_the_next_ones() {
    let archive = [
        pax(b'g', &[("uname", b"everybody"), ("mtime", b"5.5")]),
        file("one", b"1"),
        pax(b'x', &[("uname", b""), ("mtime", b"6")]),
        file("two", b"2"),
        file("three", b"3"),
        // GNU tar forgets what the one before said.
        pax(b'g', &[("gname", b"all")]),
        file("four", b"4"),
        END.to_vec(),
    ]
    .concat();
    let told = read_whole(&archive);
    let seen: Vec<_> = told.entries.iter().map(|entry| (entry.user.clone(), entry.mtime.seconds)).collect();
    let everybody = b"everybody".to_vec();
    assert_eq!(seen, [(everybody.clone(), 5), (vec![], 6), (everybody, 5), (vec![], 1_700_000_000)]);
    assert_eq!(told.entry("four").group, b"all");
    assert_eq!(told.entry("one").header, 1024);
    // The last of several headers counts, and global ones also where they come between.
    let archive = [
        pax(b'x', &[("path", b"no")]),
        pax(b'x', &[("uname", b"x")]),
        pax(b'g', &[("gid", b"5"), ("uname", b"g")]),
        file("file", b"1"),
        END.to_vec(),
    ];
    let told = read_whole(&archive.concat());
    let entry = told.entry("file");
    assert_eq!((&entry.user[..], entry.gid, entry.header), (&b"x"[..], 5, 0));
    // The last of several records of one key counts as well, where GNU tar takes the first of a global header.
    for typeflag in [b'g', b'x'] {
        let archive = [
            pax(typeflag, &[("gid", b"5"), ("gid", b"6"), ("uname", b"a"), ("uname", b"b")]),
            file("file", b""),
            END.to_vec(),
        ];
        let told = read_whole(&archive.concat());
        assert_eq!((told.entry("file").gid, &told.entry("file").user[..]), (6, &b"b"[..]));
    }
    // What would have to be copied into each of a million entries is not for all.
    let archive = [pax(b'g', &[("gid", b"5"), ("path", &[b'p'; 5000])]), file("file", b"1"), END.to_vec()];
    let told = read(&archive.concat());
    assert_eq!((told.entry("file").gid, told.damage.len()), (5, 1));
}

#[test]
fn long_names_and_links_of_gnu() {
    let (long, target) = ("n".repeat(3000), "t".repeat(2000));
    let archive = [
        gnu_long(b'K', target.as_bytes()),
        gnu_long(b'L', long.as_bytes()),
        Block::new("cut", b'2').gnu().put(157, b"cut").done(),
        file("next", b""),
        END.to_vec(),
    ]
    .concat();
    let told = read_whole(&archive);
    assert_eq!(told.paths(), [long.as_str(), "next"]);
    assert_eq!(told.entries[0].link, target.as_bytes());
    assert_eq!((told.entries[0].header, told.entries[0].kind), (0, Kind::Symlink));
    // pax has the last word.
    let archive = [gnu_long(b'L', b"gnu"), pax(b'x', &[("path", b"pax")]), file("ustar", b"1"), END.to_vec()].concat();
    assert_eq!(read_whole(&archive).paths(), ["pax"]);
}

#[test]
fn one_size_counts() {
    // CVE-2025-62518: pax says 1024, ustar 0. A reader that skips by the other one finds the entry inside.
    let inner = file("phantom", b"");
    let archive = [
        pax(b'x', &[("size", b"1024")]),
        Block::new("outer", b'0').ustar().done(),
        common::padded(&inner),
        vec![b'x'; 512],
        file("after", b"2"),
        END.to_vec(),
    ]
    .concat();
    let told = read_whole(&archive);
    assert_eq!(told.paths(), ["outer", "after"]);
    assert_eq!(told.entries[0].body.size, 1024);
    // What has no content has none, whatever its header says.
    for typeflag in *b"23456" {
        let archive = [
            Block::new("none", typeflag).ustar().size(1024).done(),
            file("next", b"1"),
            file("after", b"2"),
            END.to_vec(),
        ];
        let told = read_whole(&archive.concat());
        assert_eq!(told.paths(), ["none", "next", "after"], "{}", char::from(typeflag));
        assert_eq!((told.entries[0].body.size, told.entries[0].body.stored), (0, 0));
    }
    // A size that cannot be read: the entry is passed over by the size that is left, and not served.
    for bad in [&b"12x"[..], b"-1", b"99999999999999999999"] {
        let archive = [pax(b'x', &[("size", bad)]), file("doubtful", b"1"), file("after", b"2"), END.to_vec()];
        assert_eq!(read(&archive.concat()).paths(), ["after"], "{bad:?}");
    }
}

#[test]
fn hard_links_with_content() {
    let link = |size| Block::new("link", b'1').ustar().put(157, b"file").size(size).done();
    let start = file("file", b"data");
    // Some tars store the file again, some only its size, some say so in pax.
    let again = [start.clone(), link(4), common::padded(b"data"), file("after", b"2"), END.to_vec()].concat();
    let size_only = [start.clone(), link(4), file("after", b"2"), END.to_vec()].concat();
    let records = pax(b'x', &[("size", b"4")]);
    let by_pax = [start, records, link(0), common::padded(b"data"), file("after", b"2"), END.to_vec()].concat();
    for (archive, size) in [(again, 4), (size_only, 0), (by_pax, 4)] {
        let told = read_whole(&archive);
        assert_eq!(told.paths(), ["file", "link", "after"]);
        let entry = told.entry("link");
        assert_eq!((entry.kind, entry.body.size, &entry.link[..]), (Kind::HardLink, size, &b"file"[..]));
    }
}

#[test]
fn malformed_records_cost_only_themselves() {
    let cases: &[(&[u8], &str)] = &[
        (b"10 path=a\n9 mtime=x\n", "a"),
        (b"10 path=a\n10 path=b", "a"),
        (b"frog", "ustar"),
        (b"99999 path=a\n", "ustar"),
        (b"12 uid=frog\n10 path=a\n", "a"),
    ];
    for (records, expected) in cases {
        let header = member(Block::new("pax", b'x').ustar(), records);
        let told = read(&[header, file("ustar", b"1"), file("after", b"2"), END.to_vec()].concat());
        assert_eq!(told.paths(), [*expected, "after"], "{records:?}");
        assert_eq!(told.damage.len(), 1, "{:?}", told.damage);
        assert!((512..1024).contains(&told.damage[0].0));
    }
    // A NUL ends a name, as in every program written in C.
    let archive = [pax(b'x', &[("path", b"a/b\0/../c")]), file("ustar", b"1"), END.to_vec()].concat();
    assert_eq!(read_whole(&archive).paths(), ["a/b"]);
}

#[test]
fn zero_blocks() {
    let (one, two) = (file("one", b"1"), file("two", b"2"));
    let zero = vec![0; 512];
    // Without an end, with half of one, with a lone zero block before more (GNU tar stops there, with a warning).
    assert_eq!(read_whole(&[one.clone(), two.clone()].concat()).paths(), ["one", "two"]);
    assert_eq!(read_whole(&[one.clone(), two.clone(), zero.clone()].concat()).paths(), ["one", "two"]);
    let lone = [one.clone(), zero.clone(), two.clone(), END.to_vec()].concat();
    let told = read(&lone);
    assert_eq!((told.paths(), told.damage.len()), (vec!["one".into()], 1));
    let options = Options { ignore_zeros: true, ..Options::default() };
    let told = try_read(&lone, &options).unwrap();
    assert_eq!((told.paths(), told.damage), (vec!["one".into(), "two".into()], vec![]));
    // Nothing at all, and nothing but zeros, are empty archives.
    for empty in [0, 512, 1024, 10_240] {
        assert_eq!(read_whole(&vec![0; empty]).entries, []);
    }
}

#[test]
fn damage_is_passed_over_up_to_the_next_header() {
    let noise: Vec<u8> = (0..2048_u32).map(|n| (n * 7 % 251) as u8 + 1).collect();
    let told = read(&[file("one", b"1"), noise.clone(), file("two", b"2"), END.to_vec()].concat());
    assert_eq!((told.paths(), told.damage.len()), (vec!["one".into(), "two".into()], 1));
    assert_eq!(told.damage[0], (1024, "no valid header; 4 blocks were skipped".to_owned()));
    // At the start, too, and with zeros in it.
    let told = read(&[noise.clone(), END.to_vec(), file("two", b"2"), END.to_vec()].concat());
    assert_eq!((told.paths(), told.damage.len()), (vec!["two".into()], 1));
    // Only so far as the limits say.
    let limits = Limits { resynchronise: 1024, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let far = [file("one", b"1"), vec![7; 1 << 20], file("two", b"2"), END.to_vec()].concat();
    assert_eq!(try_read(&far, &options).unwrap().paths(), ["one"]);
    assert_eq!(read(&far).paths(), ["one", "two"]);
    assert!(matches!(try_read(&noise, &Options::default()), Err(Error::NotThisFormat { .. })));
}

#[test]
fn solaris_and_gnu_extras() {
    let archive = [
        member(Block::new("acl", b'A').ustar(), b"1000004\0user::rw-"),
        file("with acl", b"1"),
        member(Block::new("label", b'V').gnu(), b""),
        member(Block::new("dump/", b'D').gnu(), b"Yfile\0Dfolder\0\0"),
        member(Block::new("part", b'M').gnu().octal(369, 12, 4096), b"rest"),
        file("after", b"2"),
        END.to_vec(),
    ]
    .concat();
    let told = read(&archive);
    assert_eq!(told.paths(), ["with acl", "dump/", "part", "after"]);
    assert_eq!(told.labels, [b"label"]);
    assert_eq!((told.entries[1].kind, told.entries[1].body.size), (Kind::Folder, 0));
    assert_eq!(content(&archive, told.entry("part")), b"rest");
    assert_eq!(told.damage.len(), 1);
    assert!(told.damage[0].1.contains("4096 bytes before it"), "{:?}", told.damage);
}

#[test]
fn times_taken_for_folders_are_stripped_where_asked() {
    let archive = [
        file("14130613451/early", b"0"),
        Block::new("14130613451/dir/", b'D').gnu().done(),
        file("14130613451/dir/file", b"1"),
        file("plain", b"2"),
        file("1413061345/short", b"3"),
        END.to_vec(),
    ]
    .concat();
    let paths =
        |gnu_incremental| try_read(&archive, &Options { gnu_incremental, ..Options::default() }).unwrap().paths();
    let rest = ["plain", "1413061345/short"];
    assert_eq!(paths(Some(true)), [&["early", "dir/", "dir/file"][..], &rest].concat());
    assert_eq!(paths(None), [&["14130613451/early", "dir/", "dir/file"][..], &rest].concat());
    assert_eq!(paths(Some(false))[..3], ["14130613451/early", "14130613451/dir/", "14130613451/dir/file"]);
}

#[test]
fn what_is_beyond_the_limits_is_left_out_or_cut() {
    let limits = Limits { extended_header: 2000, path: 1000, xattrs: 1, xattr_value: 10, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let told = |parts: &[Vec<u8>]| try_read(&[&parts.concat()[..], &END].concat(), &options).unwrap();
    // A name that is too long for a header: the one in the header stays.
    let long = told(&[gnu_long(b'L', &[b'n'; 3000]), file("short", b"1"), file("after", b"2")]);
    assert_eq!((long.paths(), long.damage.len()), (vec!["short".into(), "after".into()], 1));
    // Records that are too long: what they say of the size is not known.
    let records = pax(b'x', &[("comment", &[b'n'; 3000])]);
    let long = told(&[records, file("doubtful", b"1"), file("after", b"2")]);
    assert_eq!((long.paths(), long.damage.len()), (vec!["after".into()], 2));
    // A path that is too long is cut, and stays different from others.
    let path = |end: &str| [&[b'n'; 1500][..], end.as_bytes()].concat();
    let cut = told(&[gnu_long(b'L', &path("a")), file("", b"1"), gnu_long(b'L', &path("b")), file("", b"2")]);
    assert_eq!(cut.damage.len(), 2);
    assert_eq!((cut.entries[0].path.len(), cut.entries[1].path.len()), (1000, 1000));
    assert_ne!(cut.entries[0].path, cut.entries[1].path);
    let records =
        [("SCHILY.xattr.user.a", &b"1"[..]), ("SCHILY.xattr.user.b", b"2"), ("SCHILY.xattr.user.c", &[0; 11])];
    let few = told(&[pax(b'x', &records), file("file", b"1")]);
    assert_eq!((few.entries[0].xattrs.len(), few.damage.len()), (1, 2));
}

#[test]
fn only_tars_are_bid_for() {
    let bid = |head: &[u8]| Tar.bid(&Probe::of_head(head));
    let mut v7 = Block::new("file", 0);
    assert!(bid(&file("a", b"1")) > bid(&v7.done()));
    assert!(bid(&v7.done()) >= 40);
    assert!(bid(&[vec![0; 512], file("a", b"1")].concat()) > 0);
    assert!(bid(&[vec![1; 512], file("a", b"1")].concat()) > 0);
    // GNU tar lists nothing in either, without an error.
    assert!((1..10).contains(&bid(&[0; 10_240])) && (1..10).contains(&bid(&[0; 512])));
    let inside = |start: &[u8]| [&common::padded(start)[..], &file("a", b"1")].concat();
    for other in [
        vec![],
        vec![0; 511],
        vec![b'a'; 4096],
        [vec![0; 4096], vec![1]].concat(),
        inside(b"PK\x03\x04"),
        inside(b"\x7fELF\x02\x01\x01"),
        inside(b"#!/bin/sh\n"),
        "text, and more of it\n".repeat(100).into_bytes(),
        v7.octal(124, 12, 0).put(124, b"frog").done(),
    ] {
        assert_eq!(bid(&other), 0, "{:?}", &other[..other.len().min(20)]);
    }
    // A megabyte of what nobody wrote.
    let mut state = 88_172_645_463_325_252_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(1 << 20)
    .collect();
    for start in (0..1 << 20).step_by(4096) {
        assert_eq!(bid(&noise[start..start + 4096]), 0);
    }
}

/// Owners' names and what is said of records that are not understood are short, whatever the records are.
#[test]
fn long_names_of_owners_and_long_messages_are_not_kept() {
    let long = b"\xff".repeat(1 << 20);
    let name = |length: usize| b"n".repeat(length);
    let archive = [
        pax(b'x', &[("uname", &name(255)), ("gname", &name(256))]),
        member(Block::new("named", b'0').ustar().put(265, b"user").put(297, b"group"), b"1"),
        pax(b'x', &[("uname", &long), ("SCHILY.acl.access", &long), ("GNU.sparse.offset", &long), ("uid", &long)]),
        member(Block::new("long", b'0').ustar().put(265, b"user").put(297, b"group"), b"2"),
        pax(b'g', &[("GNU.volume.label", &long)]),
        file("after", b"3"),
        END.to_vec(),
    ];
    let mut records = common::record("GNU.sparse.x", b"1");
    for key in ["SCHILY.xattr.", "LIBARCHIVE.xattr.", "GNU.sparse."] {
        let key = [key.as_bytes(), &long].concat();
        let rest = key.len() + 1 + 3 + 1;
        records.extend([(rest + 7).to_string().as_bytes(), b" ", &key, b"=x \n"].concat());
    }
    let odd = member(Block::new("pax", b'x').ustar(), &records);
    let told = read(&[archive[..4].concat(), odd, file("odd", b"4"), archive[4..].concat()].concat());
    assert_eq!(told.paths(), ["named", "odd", "after"]);
    let named = told.entry("named");
    // Not the short one in the header: it may be somebody else's.
    assert_eq!((named.user.len(), named.group.len()), (255, 0));
    assert_eq!(told.labels, [long[..255].to_vec()]);
    let text: Vec<_> = told.damage.iter().map(|(_, what)| what).collect();
    assert!(text.iter().any(|what| what.contains("gname has 256 bytes")), "{text:?}");
    assert!(text.iter().any(|what| what.contains("uname has 1048576 bytes")), "{text:?}");
    for what in text {
        assert!(what.len() < 4096, "{} bytes: {what:.100}", what.len());
    }
}

/// A global size that is no number counts for nothing, and all sizes are in the headers.
#[test]
fn a_malformed_global_size_costs_no_entry() {
    let bad: [&[u8]; 3] = [b"12 size=frog\n", b"99999 size=12\n", b"x size=1\n"];
    for records in bad {
        let archive =
            [member(Block::new("pax", b'g').ustar(), records), file("one", b"1"), file("two", b"22"), END.to_vec()];
        let told = read(&archive.concat());
        assert_eq!(told.paths(), ["one", "two"], "{}", String::from_utf8_lossy(records));
        assert_eq!(told.damage.len(), 1, "{:?}", told.damage);
    }
}

/// A hard link whose size a pax record tells has that much content, whatever its header says and whatever the content
/// looks like.
#[test]
fn a_hard_link_with_a_pax_size_has_content() {
    // A header in the content: the block behind the link looks as if nothing was stored.
    let content = file("inside", b"no entry");
    let size = content.len().to_string();
    for in_header in [0, content.len() as u64] {
        let mut link = Block::new("link", b'1');
        link.ustar().put(157, b"first").size(in_header);
        let archive = [
            file("first", b"1"),
            pax(b'x', &[("size", size.as_bytes())]),
            link.done(),
            common::padded(&content),
            file("after", b"2"),
            END.to_vec(),
        ];
        let told = read_whole(&archive.concat());
        assert_eq!(told.paths(), ["first", "link", "after"]);
        assert_eq!((told.entry("link").kind, &*told.entry("link").link), (Kind::HardLink, &b"first"[..]));
    }
}

/// But where the next header lies at once, nothing is passed over that could not be content.
#[test]
fn a_hard_link_with_a_pax_size_may_have_no_content() {
    for (size, in_header) in
        [(2, 0), (2, 2), (512, 0), (700, 700), (3000, 0), (5120, 0), (1 << 20, 1 << 20), (20 << 30, 0)]
    {
        let mut link = Block::new("link", b'1');
        link.ustar().put(157, b"first").size(if in_header > 1 << 30 { 0 } else { in_header });
        for next in [file("next", b"content"), file("next", b""), file("next", &[b'x'; 5000])] {
            let archive = [
                file("first", b"1"),
                pax(b'x', &[("size", format!("{size}").as_bytes())]),
                link.done(),
                next,
                file("after", b"2"),
                END.to_vec(),
            ];
            let told = read_whole(&archive.concat());
            assert_eq!(told.paths(), ["first", "link", "next", "after"], "{size}");
            assert_eq!(told.entry("link").body.size, 0);
        }
    }
}

/// What lies behind the header of a folder takes room, and is not shown.
#[test]
fn the_content_of_a_folder_counts_as_stored() {
    let mut dump = Block::new("folder/", b'D');
    dump.gnu().size(600);
    let mut old = Block::new("old/", b'0');
    old.size(3);
    let archive = [
        dump.done(),
        common::padded(&[b'Y'; 600]),
        old.done(),
        common::padded(b"old"),
        file("after", b"2"),
        END.to_vec(),
    ];
    let told = read_whole(&archive.concat());
    assert_eq!(told.paths(), ["folder/", "old/", "after"]);
    let bodies = ["folder/", "old/"].map(|path| (told.entry(path).body.offset, told.entry(path).body.stored));
    assert_eq!(bodies, [(512, 600), (2048, 3)]);
    assert!(told.entries[..2].iter().all(|entry| entry.kind == Kind::Folder && entry.body.size == 0));
}

/// Bytes of which something is missing: headers may begin at any byte.
struct Shifted(tarnfs_format::SourceStream);

impl tarnfs_format::Stream for Shifted {
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
        true
    }
}

/// The search looks at 64 KiB together: a header that lies across their end is found as any other.
#[test]
fn a_header_across_the_steps_of_the_search_is_found() {
    const STEP: usize = 64 << 10;
    let noise = |length: usize| -> Vec<u8> { (0..length).map(|n| (n % 251) as u8 | 1).collect() };
    let read = |archive: Vec<u8>| {
        let source = std::sync::Arc::new(tarnfs_source::MemorySource::new(archive, "archive"));
        let mut stream = Shifted(tarnfs_format::SourceStream::new(source, tarnfs_source::Cancel::default()));
        let (mut paths, mut damage) = (Vec::new(), Vec::new());
        let read = Tar.read(&mut stream, &Options::default(), &mut |event, _| {
            match event {
                tarnfs_format::Event::Entry(entry) => paths.push(entry.path),
                tarnfs_format::Event::Damage(what) => damage.push(what),
                _ => {}
            }
            Ok(())
        });
        read.unwrap();
        (paths, damage)
    };
    for steps in [1, 2] {
        for before in [0, 1, 100, 256, 257, 258, 262, 511, 512, 513, 1000] {
            let length = steps * STEP - before;
            let archive = [file("first", b"1"), noise(length), file("second", b"2"), END.to_vec()].concat();
            let (paths, damage) = read(archive);
            assert_eq!(
                paths,
                [b"first".to_vec(), b"second".to_vec()],
                "{before} bytes before the end of {steps} steps"
            );
            assert_eq!(damage.len(), 1, "{damage:?}");
            assert_eq!(damage[0].offset, 1024);
        }
    }
}

/// The search gives up at its limit, and says so.
#[test]
fn the_search_for_a_header_has_a_limit() {
    const STEP: usize = 64 << 10;
    let junk = vec![7; 4 * STEP];
    let archive = [file("first", b"1"), junk, file("second", b"2"), END.to_vec()].concat();
    for (limit, paths) in [(5 * STEP, 2), (4 * STEP, 2), (3 * STEP, 1), (0, 1)] {
        let limits = Limits { resynchronise: limit as u64, ..Limits::default() };
        let told = try_read(&archive, &Options { limits, ..Options::default() }).unwrap();
        assert_eq!(told.paths().len(), paths, "{limit}: {:?}", told.damage);
        assert_eq!(told.damage.len(), 1);
        assert_eq!(told.damage[0].1.contains("within the limit"), paths == 1, "{:?}", told.damage);
    }
}

/// Whether a header holds for all entries behind it is told when it changes.
#[test]
fn headers_for_all_entries_are_told_of() {
    let all = |records: &[(&str, &[u8])]| pax(b'g', records);
    let archive = [
        all(&[("comment", b"of git")]),
        file("one", b"1"),
        all(&[("uid", b"7")]),
        all(&[("uid", b"8")]),
        file("two", b"2"),
        all(&[("comment", b"ends it")]),
        file("three", b"3"),
        END.to_vec(),
    ];
    let source = std::sync::Arc::new(tarnfs_source::MemorySource::new(archive.concat(), "archive"));
    let mut stream = tarnfs_format::SourceStream::new(source, tarnfs_source::Cancel::default());
    let mut told = Vec::new();
    let read = Tar.read(&mut stream, &Options::default(), &mut |event, _| {
        told.push(match event {
            tarnfs_format::Event::Entry(entry) => format!("{} {}", String::from_utf8(entry.path).unwrap(), entry.uid),
            tarnfs_format::Event::ForAll(holds) => holds.to_string(),
            tarnfs_format::Event::Unlisted(what) => what,
            other => panic!("{other:?}"),
        });
        Ok(())
    });
    read.unwrap();
    // The comment of the first one is that on the archive.
    let comment = "'comment' in its extended headers";
    assert_eq!(told, ["one 1000", "true", "two 8", comment, "false", "three 1000"]);
}

#[test]
fn records_that_no_entry_shows_are_told_once() {
    let archive = [
        pax(b'x', &[("comment", b"of one"), ("SCHILY.ino", b"12")]),
        file("one", b"1"),
        pax(b'x', &[("VENDOR.key", b"y"), ("mtime", b"7")]),
        file("two", b"2"),
        pax(b'x', &[("VENDOR.key", b"z"), ("SCHILY.fflags", b"nodump"), ("LIBARCHIVE.creationtime", b"7")]),
        file("three", b"3"),
        END.to_vec(),
    ];
    let told = read_whole(&archive.concat());
    let keys = ["comment", "VENDOR.key", "SCHILY.fflags"];
    assert_eq!(told.unlisted, keys.map(|key| format!("'{key}' in its extended headers")));
    assert_eq!(told.paths(), ["one", "two", "three"]);
}

/// What folders hold beside files has no place in a tree.
#[test]
fn content_of_folders_is_told_once() {
    let list = b"Ya\0\0";
    let archive = [
        member(Block::new("d/", b'5').ustar(), b""),
        member(Block::new("d/", b'D').gnu(), list),
        member(Block::new("e/", b'D').gnu(), list),
        member(Block::new("f/", b'0').ustar(), &[7; 600]),
        member(Block::new("g/", b'0').ustar(), b""),
        file("a", b"1"),
        member(Block::new("label", b'V').gnu(), b"2"),
        END.to_vec(),
    ];
    let told = read_whole(&archive.concat());
    assert_eq!(told.paths(), ["d/", "d/", "e/", "f/", "g/", "a"]);
    let lists = "lists of what was in its folders (incremental dumps)";
    let of_label = "content behind a label of the archive";
    assert_eq!(told.unlisted, [lists, "content of folders, which is not shown", of_label]);
    let without = read_whole(&[&archive[0][..], &archive[4], &archive[5], &END].concat());
    assert!(without.unlisted.is_empty(), "{:?}", without.unlisted);
}
