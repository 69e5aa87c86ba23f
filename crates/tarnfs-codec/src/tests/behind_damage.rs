//! What follows a frame, stream, file or member that begins or goes on with damaged bytes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_source::{Cancel, Source};

use crate::testing::{Pass, assert_points_lead_to, decode, noise, sample, source, tool};
use crate::{Codec, Options, by_name};

/// Of each format: the tool, the bytes of its magic, and whether its own tool refuses what follows the last frame and
/// is none.
const FORMATS: [(&str, &str, usize, bool); 7] = [
    ("bzip2", "bzip2 -c", 4, false),
    ("gzip", "gzip -nc", 2, false),
    ("lz4", "lz4 -qc", 4, true),
    ("lzip", "lzip -qc", 4, false),
    ("lzop", "lzop -c", 9, true),
    ("xz", "xz -qc", 6, true),
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
    assert_points_lead_to(codec, stream, &pass.points, &pass.data);
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
    for (name, command, _, refuses) in FORMATS {
        let (parts, mut packed) = parts(command);
        packed[1][..512].fill(0xA5);
        let stream = packed.concat();
        let pass = decode(codec(name), &stream);
        if refuses || name == "lzip" {
            assert_served_around(codec(name), &stream, &pass, &parts[0], &parts[2], name);
            // Of a member of lzip its trailer says how long it is.
            let lost = if name == "lzip" { 200_000 } else { 512 };
            assert_eq!(pass.data.len(), 700_000 + lost, "{name}");
            assert_eq!(pass.shifts, if name == "lzip" { vec![] } else { vec![300_512] }, "{name}");
        } else {
            // As its tool has it, that is no part of the file.
            assert!(pass.error.is_none() && pass.data == parts[0] && !pass.is_clean(), "{name}");
        }
    }
}

#[test]
fn a_file_of_the_same_kind_that_is_stored_is_no_next_start() {
    for (name, command, _, refuses) in FORMATS {
        // Some that fit into what is stored at once, one behind the other, and one that does not.
        let small = [tool(command, &sample(20_000, 4)), vec![0; 512], tool(command, &sample(90_000, 5))].concat();
        let large = tool(command, &noise(700_000));
        let outer = [noise(5000), small, noise(5000), large, noise(5000)].concat();
        let (parts, mut packed) = parts(command);
        packed[1] = tool(command, &outer);
        packed[1][..20].fill(0xA5);
        let pass = decode(codec(name), &packed.concat());
        if refuses || name == "lzip" {
            assert_served_around(codec(name), &packed.concat(), &pass, &parts[0], &parts[2], name);
            assert_eq!(pass.data.len(), 700_000 + if name == "lzip" { outer.len() } else { 512 }, "{name}");
        }
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
    for (name, command, ..) in FORMATS {
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
                match pass.read(&mut buffer[length..]).unwrap() {
                    0 => break,
                    read => length += read,
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
