//! What follows a frame, stream, file or member that begins or goes on with damaged bytes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_source::testing::CountedSource;
use tarnfs_source::{Cancel, MemorySource, Source};

use crate::starts::LONG_GAP;
use crate::testing::{Pass, assert_points_lead_to, decode, noise, resume, sample, source, tool};
use crate::{Codec, DecodeContext, Options, by_name};

/// Of each format: the tool, the bytes of its magic (of xz: all of its header), and whether its own tool refuses what
/// follows the last frame and is none.
const FORMATS: [(&str, &str, usize, bool); 7] = [
    ("bzip2", "bzip2 -c", 4, false),
    ("gzip", "gzip -nc", 2, false),
    ("lz4", "lz4 -qc", 4, true),
    ("lzip", "lzip -qc", 4, false),
    ("lzop", "lzop -c", 9, false),
    ("xz", "xz -qc", 12, true),
    ("zstd", "zstd -qc", 4, true),
];

/// Three parts of a file, and what a tool makes of each.
fn parts(command: &str) -> ([Vec<u8>; 3], [Vec<u8>; 3]) {
    let parts = [sample(300_000, 1), sample(200_000, 2), sample(400_000, 3)];
    let packed = parts.each_ref().map(|part| tool(command, part));
    (parts, packed)
}

fn codec(name: &str) -> &'static dyn Codec {
    by_name(name).unwrap()
}

/// All that is not damaged is `before` and `behind`, and every seek point leads to what the first pass gave.
#[track_caller]
fn assert_served_around(codec: &dyn Codec, stream: &[u8], pass: &Pass, before: &[u8], behind: &[u8], what: &str) {
    assert!(pass.error.is_none(), "{what}: {:?}", pass.error);
    assert!(pass.data.starts_with(before) && pass.data.ends_with(behind), "{what}");
    let lost = before.len() as u64..(pass.data.len() - behind.len()) as u64;
    assert!(!lost.is_empty(), "{what}: nothing is missing");
    let is_told = |at: u64| pass.damage.iter().any(|damage| damage.decoded.contains(&at));
    assert!(lost.clone().all(is_told), "{what}: {lost:?}, {:?}", pass.damage);
    let around = [lost.start.checked_sub(1), Some(lost.end).filter(|_| !behind.is_empty())];
    assert!(around.into_iter().flatten().all(|at| !is_told(at)), "{what}: {lost:?}, {:?}", pass.damage);
    if !["bzip2", "gzip"].contains(&codec.name()) {
        return assert_points_lead_to(codec, stream, &pass.points, &pass.data);
    }
    // Of these a first pass alone looks behind damage, and has a seek point at the gap, and one behind it.
    assert!([lost.start, lost.end].iter().all(|&at| pass.points.iter().any(|point| point.decoded == at)), "{what}");
    for (at, point) in pass.points.iter().enumerate().filter(|(_, point)| !lost.contains(&point.decoded)) {
        let end = pass.points.get(at + 1).map_or(pass.data.len() as u64, |next| next.decoded);
        // Nobody reads further.
        let mut resumed = codec.resume(source(stream), point, &DecodeContext::default()).unwrap();
        let mut buffer = vec![0; (end - point.decoded) as usize];
        let mut length = 0;
        while length < buffer.len() {
            let read = resumed.read(&mut buffer[length..]).unwrap();
            assert!(read > 0, "{what}: {at}");
            length += read;
        }
        assert!(buffer == pass.data[point.decoded as usize..end as usize], "{what}: {at}");
    }
}

#[test]
fn one_damaged_byte_of_a_magic_costs_nothing() {
    for (name, command, magic, _) in FORMATS {
        let (parts, packed) = parts(command);
        for damaged in [1, 2] {
            for byte in 0..magic {
                let mut packed = packed.clone();
                packed[damaged][byte] ^= 0x42;
                let stream = packed.concat();
                let pass = decode(codec(name), &stream);
                assert!(pass.error.is_none() && pass.data == parts.concat(), "{name}, byte {byte}: {:?}", pass.error);
                let start = parts[..damaged].concat().len() as u64;
                let [damage] = &pass.damage[..] else { panic!("{name}, byte {byte}: {:?}", pass.damage) };
                assert_eq!(damage.decoded, start..start, "{name}, byte {byte}");
                assert_points_lead_to(codec(name), &stream, &pass.points, &parts.concat());
            }
        }
    }
}

/// A sector that a disk has lost.
#[test]
fn behind_a_start_that_is_lost_the_next_one_is_found() {
    for (name, command, ..) in FORMATS {
        let (parts, mut packed) = parts(command);
        packed[1][..512].fill(0xA5);
        let stream = packed.concat();
        let pass = decode(codec(name), &stream);
        if ["bzip2", "gzip"].contains(&name) {
            // As its tool has it, that is no part of the file.
            assert!(pass.error.is_none() && pass.data == parts[0] && !pass.is_clean(), "{name}");
            continue;
        }
        assert_served_around(codec(name), &stream, &pass, &parts[0], &parts[2], name);
        // Of a member of lzip its trailer says how long it is.
        let lost = if name == "lzip" { 200_000 } else { 512 };
        assert_eq!(pass.data.len(), 700_000 + lost, "{name}");
        assert_eq!(pass.shifts, if name == "lzip" { vec![] } else { vec![300_000 + lost as u64] }, "{name}");
    }
}

/// Else each read there would look through what lies between again.
#[test]
fn behind_a_long_gap_is_a_seek_point() {
    for (name, command) in [("xz", "xz -qc"), ("zstd", "zstd -qc")] {
        let (parts, [first, second, third]) = parts(command);
        let stream = [&first[..], &noise(LONG_GAP as usize + 100), &second, &third].concat();
        let pass = decode(codec(name), &stream);
        let behind = [&parts[1][..], &parts[2]].concat();
        assert_served_around(codec(name), &stream, &pass, &parts[0], &behind, name);
        let start = (pass.data.len() - behind.len()) as u64;
        let there = pass.points.iter().filter(|point| point.decoded == start).count();
        assert_eq!(there, 1, "{name}: {start}");
    }
}

/// > A compressed file of which the end is lost is an error for who reads to its end, and never a shorter file.
#[test]
fn a_last_start_that_is_lost_is_an_error_where_it_is_one_for_the_tool() {
    for (name, command, _, refuses) in FORMATS {
        let (parts, mut packed) = parts(command);
        packed[2][..20].fill(b'?');
        for garbage in [false, true] {
            let stream =
                if garbage { [&packed[..2].concat()[..], b"garbage behind it"].concat() } else { packed.concat() };
            let pass = decode(codec(name), &stream);
            let what = format!("{name}, {:?}", pass.error);
            if !garbage && name == "lzip" {
                // Its trailer says where it begins.
                assert!(pass.error.is_none() && pass.data.len() == parts.concat().len(), "{what}");
                continue;
            }
            assert!(pass.data == parts[..2].concat(), "{what}");
            assert_eq!(
                pass.error.as_ref().map(io::Error::kind),
                refuses.then_some(io::ErrorKind::InvalidData),
                "{what}"
            );
            assert!(!pass.is_clean(), "{what}");
            if refuses {
                assert!(pass.points.iter().all(|point| resume(codec(name), &stream, point, 5000).is_err()), "{what}");
            }
        }
        // What a tape or a disk is padded with is no part of the file.
        let pass = decode(codec(name), &[&packed[..2].concat()[..], &vec![0; 40_000]].concat());
        assert!(pass.error.is_none() && pass.data == parts[..2].concat(), "{name}: {:?}", pass.error);
    }
}

/// Beside the magic: what says how a frame is to be read, and how long it is.
#[test]
fn a_wrong_bit_of_a_header_hides_nothing_behind() {
    let bits = |byte: usize, bits: &[u32]| bits.iter().map(|bit| (byte, 1_u8 << bit)).collect::<Vec<_>>();
    for (name, command, changes) in [
        // The method, and flags that must be zero.
        ("gzip", "gzip -nc", [bits(2, &[0, 1, 2, 3, 4, 5, 6, 7]), bits(3, &[5, 6, 7])].concat()),
        // A dictionary seems to be needed, a bit that is reserved, and a window of exabytes.
        ("zstd", "zstd -qc", [bits(4, &[0, 1, 3]), bits(5, &[7])].concat()),
        // A block that seems to go behind the end of the file.
        ("lz4", "lz4 -qc", bits(9, &[5])),
    ] {
        let (parts, packed) = parts(command);
        for (byte, mask) in changes {
            let mut packed = packed.clone();
            packed[1][byte] ^= mask;
            let stream = packed.concat();
            let pass = decode(codec(name), &stream);
            assert_served_around(codec(name), &stream, &pass, &parts[0], &parts[2], &format!("{name}, {byte}, {mask}"));
        }
    }
}

#[test]
fn the_end_mark_of_a_frame_of_lz4_that_became_a_block_hides_nothing_behind() {
    let parts: Vec<_> = (0..8).map(|seed| sample(40_000, seed)).collect();
    let packed: Vec<_> = parts.iter().map(|part| tool("lz4 -qc", part)).collect();
    // Before the checksum of the frame.
    let end = packed[1].len() - 8;
    for change in [[0, 0, 1, 0], [0, 0, 0x20, 0], [0, 0x80, 0, 0], [0, 0, 0, 0x80]] {
        let mut packed = packed.clone();
        packed[1][end..end + 4].copy_from_slice(&change);
        let stream = packed.concat();
        let pass = decode(codec("lz4"), &stream);
        assert!(pass.error.is_none() && pass.data.starts_with(&parts[0]), "{change:?}: {:?}", pass.error);
        let behind = parts[2..].concat();
        assert!(pass.data.ends_with(&behind) && !pass.damage.is_empty(), "{change:?}: {}", pass.data.len());
        let end = (pass.data.len() - behind.len()) as u64;
        assert!(pass.damage.iter().all(|damage| (40_000..=end).contains(&damage.decoded.end)), "{change:?}");
        assert_points_lead_to(codec("lz4"), &stream, &pass.points, &pass.data);
    }
}

#[test]
fn a_damaged_magic_of_the_old_frames_of_lz4_costs_nothing() {
    let (parts, packed) = parts("lz4 -qcl");
    for (damaged, byte) in [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 3)] {
        let mut packed = packed.clone();
        packed[damaged][byte] ^= 0x42;
        let pass = decode(codec("lz4"), &packed.concat());
        assert!(pass.error.is_none() && pass.data == parts.concat(), "{damaged}, {byte}: {:?}", pass.error);
        assert_eq!(pass.damage.len(), 1, "{damaged}, {byte}");
    }
    let mut packed = packed;
    packed[1][..512].fill(0xA5);
    let pass = decode(codec("lz4"), &packed.concat());
    assert_served_around(codec("lz4"), &packed.concat(), &pass, &parts[0], &parts[2], "a start that is lost");
}

#[test]
fn a_file_of_the_same_kind_that_is_stored_is_no_next_start() {
    for (name, command, ..) in FORMATS {
        // Some that fit into what is stored at once, one behind the other, and one that does not.
        let small = [tool(command, &sample(20_000, 4)), vec![0; 512], tool(command, &sample(90_000, 5))].concat();
        let large = tool(command, &noise(700_000));
        let outer = [noise(5000), small, noise(5000), large, noise(5000)].concat();
        let (parts, mut packed) = parts(command);
        packed[1] = tool(command, &outer);
        packed[1][..20].fill(0xA5);
        let pass = decode(codec(name), &packed.concat());
        if ["bzip2", "gzip"].contains(&name) {
            // As its tool has it, that is no part of the file.
            assert!(pass.error.is_none() && pass.data == parts[0] && !pass.is_clean(), "{name}");
            continue;
        }
        assert_served_around(codec(name), &packed.concat(), &pass, &parts[0], &parts[2], name);
        let lost = if name == "lzip" { outer.len() } else { 512 };
        assert_eq!(pass.data.len(), 700_000 + lost, "{name}");
    }
}

/// An archive in the archive, in frames of its own, one behind the other: each of them leads to another one.
#[test]
fn short_files_of_the_same_kind_one_behind_the_other_are_no_next_start() {
    for (name, command, ..) in FORMATS {
        let inner: Vec<u8> = (0..4).flat_map(|seed| tool(command, &sample(8000, seed))).collect();
        assert!(inner.len() < 40_000, "{name}: it fits into one block");
        let outer = [noise(70_000), inner, noise(300_000)].concat();
        let (parts, mut packed) = parts(command);
        packed[1] = tool(command, &outer);
        packed[1][..20].fill(0xA5);
        let stream = packed.concat();
        let pass = decode(codec(name), &stream);
        if ["bzip2", "gzip"].contains(&name) {
            // As its tool has it, that is no part of the file.
            assert!(pass.error.is_none() && pass.data == parts[0] && !pass.is_clean(), "{name}");
            continue;
        }
        assert_served_around(codec(name), &stream, &pass, &parts[0], &parts[2], name);
        let lost = if name == "lzip" { outer.len() } else { 512 };
        assert_eq!(pass.data.len(), 700_000 + lost, "{name}");
        // Where nothing follows, nothing is made up.
        let pass = decode(codec(name), &packed[..2].concat());
        let whole = parts[0].len() + if name == "lzip" { outer.len() } else { 0 };
        assert!(pass.data.len() == whole && !pass.is_clean(), "{name}: {} bytes", pass.data.len());
    }
}

/// > No archive makes tarnfs crash, hang, or use memory without bound.
#[test]
fn what_only_looks_like_a_start_costs_a_few_times_what_there_is_to_read() {
    let lz4 = {
        let header = tool("lz4 -qc", b"data")[..7].to_vec();
        // Blocks of nothing, among them headers in blocks that are stored: each leads over all others.
        let unit = [&[7, 0, 0, 0x80][..], &header, &[0, 0, 0, 0x80].repeat(1020)].concat();
        [&header[..], &[0xFF; 4], &unit.repeat(2100), &[0xFF; 4], &tool("lz4 -qc", b"more")].concat()
    };
    let xz = {
        let header = tool("xz -qc", b"data")[..12 + 12].to_vec();
        // A block header that is damaged, then streams of one chunk that reaches to the end of these, and an index of
        // as many records as a number can say.
        let mut bytes = [&header[..12], &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        let unit = header.len() + 4;
        let end = bytes.len() + 2300 * unit;
        while bytes.len() < end {
            // One less than there are.
            let length = (end - bytes.len() - header.len() - 3 - 1) as u16;
            bytes.extend([&header[..], &[1], &length.to_be_bytes(), &[0]].concat());
        }
        // The end of the chunks, padding and a check.
        bytes.extend([0; 12]);
        bytes.extend([&[0][..], &[0xFF; 8], &[0x7F], &[5, 0].repeat(500_000)].concat());
        bytes
    };
    for (name, bytes) in [("lz4", lz4), ("xz", xz)] {
        let most = 6 * bytes.len() as u64 + (80 << 20);
        let counted = Arc::new(CountedSource::new(Arc::new(MemorySource::new(bytes, "counted"))));
        let mut pass = codec(name).first_pass(counted.clone(), &Options::default()).unwrap();
        let mut buffer = vec![0; 100_000];
        while pass.read(&mut buffer).is_ok_and(|read| read > 0) {}
        let read = counted.bytes();
        assert!(read < most, "{name}: {read} bytes");
    }
}

/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn what_is_between_a_start_that_is_lost_and_a_cut_is_served() {
    // Parts that are longer than what is stored together.
    for (name, command, length) in [
        ("zstd", "zstd -qc", 150_000),
        ("lz4", "lz4 -qc -B4", 100_000),
        ("lzop", "lzop -c", 300_000),
        ("xz", "xz -qc0", 90_000),
    ] {
        let parts: Vec<_> = (0..5).map(|part| [&[part; 100][..], &noise(length)].concat()).collect();
        let mut packed: Vec<_> = parts.iter().map(|part| tool(command, part)).collect();
        // Of lz4 how long blocks may be is known in a frame: the length of its second one.
        let (at, delivered) = if name == "lz4" { (7 + 4 + 65536, 65536) } else { (0, 0) };
        packed[1][at..at + 512].fill(0xA5);
        let left = packed[4].len() / 3;
        packed[4].truncate(left);
        let pass = decode(codec(name), &packed.concat());
        assert_eq!(pass.error_kind(), io::ErrorKind::UnexpectedEof, "{name}");
        assert!(pass.data.starts_with(&parts[0]), "{name}");
        let start = parts[0].len() + delivered + 512;
        let whole = parts[2..4].concat();
        assert!(pass.data.get(start..).is_some_and(|rest| rest.starts_with(&whole)), "{name}: {}", pass.data.len());
        let is_told = |at: usize| pass.damage.iter().any(|damage| damage.decoded.contains(&(at as u64)));
        assert!(
            is_told(start - 1) && !is_told(start) && !is_told(start + whole.len() - 1),
            "{name}: {:?}",
            pass.damage
        );
    }
}

#[test]
fn behind_what_cannot_be_decoded_all_others_are_served() {
    // Frames that do not say how long they are; blocks with checksums; members.
    for (name, command, tells_length) in
        [("zstd", "zstd -qc", false), ("lz4", "lz4 -qc -B4 -BX", false), ("lzip", "lzip -qc -1", true)]
    {
        let (parts, packed) = parts(command);
        let mut seen = 0;
        for place in 1..40 {
            let mut packed = packed.clone();
            let from = packed[1].len() * place / 40;
            let to = packed[1].len().min(from + 20);
            packed[1][from..to].fill(0xFF);
            let stream = packed.concat();
            let pass = decode(codec(name), &stream);
            let what = format!("{command}, from byte {from}");
            assert!(pass.error.is_none(), "{what}: {:?}", pass.error);
            assert!(pass.data.starts_with(&parts[0]) && pass.data.ends_with(&parts[2]), "{what}");
            assert!(!pass.damage.is_empty() && !pass.shifts.contains(&0), "{what}");
            let end = (pass.data.len() - parts[2].len()) as u64;
            assert!(pass.damage.iter().all(|damage| (300_000..=end).contains(&damage.decoded.end)), "{what}");
            assert_points_lead_to(codec(name), &stream, &pass.points, &pass.data);
            let gap = [0xFF; 400];
            let is_gap = pass.data[300_000..end as usize].windows(gap.len()).any(|bytes| bytes == gap);
            seen += usize::from(is_gap);
            assert!(!tells_length || pass.data.len() == 900_000 && pass.shifts.is_empty(), "{what}");
        }
        assert!(seen > 0, "{command}");
    }
}

#[test]
fn the_rest_of_a_frame_of_lz4_is_served_where_its_blocks_have_checksums() {
    let data = sample(300_000, 7);
    for (command, served_behind) in [("lz4 -qc -B4 -BX", true), ("lz4 -qc -B4", false), ("lz4 -qc -B4 -BX -BD", false)]
    {
        let mut stream = tool(command, &data);
        // The second block.
        let first = u32::from_le_bytes(stream[7..11].try_into().unwrap()) as usize;
        let start = 7 + 4 + first + if command.contains("-BX") { 4 } else { 0 };
        stream[start + 4..start + 400].fill(0xFF);
        let pass = decode(codec("lz4"), &stream);
        assert!(pass.error.is_none() && pass.data.len() == data.len(), "{command}: {:?}", pass.error);
        assert!(pass.data[..65536] == data[..65536] && pass.data[65536..131_072].iter().all(|&byte| byte == 0xFF));
        let damaged = |at: u64| pass.damage.iter().any(|damage| damage.decoded.contains(&at));
        assert_eq!((damaged(0), damaged(65536), damaged(131_072)), (!command.contains("-BX"), true, !served_behind));
        assert!(!served_behind || pass.data[131_072..] == data[131_072..]);
        let lost: Vec<_> = pass.damage.iter().filter(|damage| damage.lost_from < damage.decoded.end).collect();
        assert!(lost.len() == 1 && lost[0].decoded == (65536..131_072), "{command}: {:?}", pass.damage);
        assert_points_lead_to(codec("lz4"), &stream, &pass.points, &pass.data);
    }
}

/// A disk at whose start there is something, and zeros behind it, which nobody tells from other bytes.
#[derive(Debug)]
struct Disk {
    start: Vec<u8>,
    read: AtomicU64,
}

impl Disk {
    /// More than anybody has to read.
    const MOST: u64 = 1 << 30;
}

impl Source for Disk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed) > Self::MOST {
            return Err(io::Error::other("a disk of a terabyte is read"));
        }
        buffer.fill(0);
        let rest = self.start.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(buffer.len())
    }

    fn len(&self) -> u64 {
        1 << 40
    }

    fn describe(&self) -> String {
        "a disk".into()
    }
}

#[test]
fn little_is_read_of_a_disk_that_holds_a_small_file() {
    let data = sample(400_000, 6);
    for (name, command, _, refuses) in FORMATS {
        for (behind, threads) in [(&b"garbage"[..], 1), (b"garbage", 3), (b"", 3)] {
            let start = [&tool(command, &data)[..], behind].concat();
            let disk = Arc::new(Disk { start, read: AtomicU64::new(0) });
            let options = Options { threads, ..Options::default() };
            let mut pass = codec(name).first_pass(disk.clone(), &options).unwrap();
            let mut buffer = vec![0; 1000];
            // The first bytes do not wait for what is behind.
            assert_eq!(pass.read(&mut buffer).unwrap(), buffer.len(), "{name}, {threads} threads");
            assert!(buffer == data[..buffer.len()], "{name}");
            let read = disk.read.load(Ordering::Relaxed);
            let most = if name == "lzip" { 70 << 20 } else { 20 << 20 };
            assert!(read < most, "{name}, {threads} threads: {read} bytes");
            if behind.is_empty() {
                continue;
            }
            buffer.resize(data.len() + 1, 0);
            let mut length = 1000;
            loop {
                match pass.read(&mut buffer[length..]) {
                    Ok(0) => break,
                    Ok(read) => length += read,
                    Err(error) => {
                        assert!(refuses && error.kind() == io::ErrorKind::InvalidData, "{name}: {error}");
                        break;
                    }
                }
            }
            assert!(buffer[1000..length] == data[1000..], "{name}");
        }
    }
}

#[test]
fn going_back_through_padding_can_be_cancelled() {
    let disk = Disk { start: tool("xz -qc", b"data"), read: AtomicU64::new(0) };
    let cancel = Cancel::default();
    cancel.cancel();
    let outline = codec("xz").outline(&(Arc::new(disk) as _), &cancel);
    assert_eq!(outline.unwrap_err().kind(), io::ErrorKind::Interrupted);
    assert!(codec("xz").outline(&source(&tool("xz -qc", b"data")), &Cancel::default()).unwrap().is_some());
}

/// Each of which leads to a search.
#[test]
fn a_great_many_damaged_starts_end() {
    for (name, command, ..) in FORMATS {
        let mut one = tool(command, b"x");
        let end = one.len();
        one[end / 2..].fill(0xA5);
        let stream = [&tool(command, b"data")[..], &one.repeat(20_000)].concat();
        for threads in [1, 3] {
            let options = Options { threads, ..Options::default() };
            let mut pass = codec(name).first_pass(source(&stream), &options).unwrap();
            let (mut buffer, mut data) = (vec![0; 100_000], Vec::new());
            while let Ok(read @ 1..) = pass.read(&mut buffer) {
                data.extend(&buffer[..read]);
                assert!(data.len() < 64 << 20, "{name}");
            }
            assert!(data.starts_with(b"data"), "{name}");
        }
    }
}
