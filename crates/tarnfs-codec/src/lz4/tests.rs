use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tarnfs_source::{Budget, Limits, MemorySource, SharedSource, Source};

use super::Lz4;
use crate::engine::{DecodedSource, Indexing, PieceCache, Workers};
use crate::{Chunk, ChunkTable, Codec, Damage, DecodeContext, Decoder, FileCodec as _, Options, SeekPoint};

/// What a first pass finds.
struct Found {
    decoded: Vec<u8>,
    points: Vec<SeekPoint>,
    damage: Vec<Damage>,
    end: io::Result<()>,
}

fn source(bytes: &[u8]) -> SharedSource {
    Arc::new(MemorySource::new(bytes, "test.lz4"))
}

fn first_pass(bytes: &[u8], spacing: u64) -> Found {
    let options = Options { seek_point_spacing: spacing, ..Options::default() };
    let mut pass = Lz4.first_pass(source(bytes), &options).unwrap();
    let (mut decoded, mut points, mut damage) = (Vec::new(), Vec::new(), Vec::new());
    let mut buffer = vec![0; 10_007];
    let end = loop {
        match pass.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(read) => decoded.extend_from_slice(&buffer[..read]),
            Err(error) => break Err(error),
        }
        pass.take_points(&mut points);
        assert!(points.iter().all(|point| point.decoded <= decoded.len() as u64));
        // A legacy block takes 8 MiB, decoded and compressed.
        assert!(pass.memory() < 20 << 20);
    };
    assert_eq!(pass.read(&mut buffer).unwrap(), 0);
    pass.take_points(&mut points);
    pass.take_damage(&mut damage);
    Found { decoded, points, damage, end }
}

fn resume(bytes: &[u8], point: &SeekPoint) -> io::Result<Vec<u8>> {
    let mut decoder = Lz4.resume(source(bytes), point, &DecodeContext::default())?;
    read_all(&mut *decoder)
}

fn read_all(decoder: &mut dyn Decoder) -> io::Result<Vec<u8>> {
    let (mut decoded, mut buffer) = (Vec::new(), vec![0; 100_000]);
    loop {
        match decoder.read(&mut buffer)? {
            0 => return Ok(decoded),
            read => decoded.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Text that compresses, with matches near and far and parts that do not compress.
fn text(length: usize) -> Vec<u8> {
    let mut seed = 1_u32;
    let mut random = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 9) as usize
    };
    let mut text = Vec::with_capacity(length + 2000);
    while text.len() < length {
        match random() % 10 {
            0 => text.extend((0..random() % 400).map(|_| random() as u8)),
            1..5 if text.len() > 100 => {
                let back = 1 + random() % text.len().min(80_000);
                let start = text.len() - back;
                let end = (start + random() % 300).min(text.len());
                text.extend_from_within(start..end);
            }
            _ => text.extend(format!("line {} of {}\n", random() % 50, random() % 7).bytes()),
        }
    }
    text.truncate(length);
    text
}

/// What the `lz4` command makes of `data`.
fn lz4(arguments: &[&str], data: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (plain, packed) = (folder.path().join("plain"), folder.path().join("packed"));
    std::fs::write(&plain, data).unwrap();
    let status = Command::new("lz4").args(["-q", "-f"]).args(arguments).args([&plain, &packed]).status();
    assert!(status.expect("the lz4 command is needed for this test").success());
    std::fs::read(&packed).unwrap()
}

/// What the `lz4` command decodes, if it succeeds.
fn lz4_decoded(path: &Path) -> Option<Vec<u8>> {
    let output = Command::new("lz4").args(["-dc"]).arg(path).stderr(Stdio::null()).output().unwrap();
    output.status.success().then_some(output.stdout)
}

const VARIANTS: [&[&str]; 14] = [
    &[],
    &["-1", "-B4"],
    &["-9", "-B4", "-BD"],
    &["-1", "-B4", "-BD", "-BX"],
    &["-12", "-B5", "-BD"],
    &["-3", "-B6", "-BI"],
    &["-B7", "-BX"],
    &["-B7", "-BD"],
    &["-B4", "--no-frame-crc"],
    &["-B4", "-BD", "--no-frame-crc", "-BX"],
    &["-B4", "--content-size"],
    &["--fast=20", "-B4"],
    &["-l"],
    &["-l", "-9"],
];

#[test]
fn reads_what_lz4_writes_and_resumes_at_each_point() {
    let data = text(10 << 20);
    for arguments in VARIANTS {
        let packed = lz4(arguments, &data);
        for spacing in [1, 1 << 20] {
            let found = first_pass(&packed, spacing);
            found.end.unwrap();
            assert!(found.decoded == data, "{arguments:?}");
            assert_eq!(found.damage, [], "{arguments:?}");
            assert_eq!(found.points[0], SeekPoint::default());
            assert!(found.points.is_sorted_by(|one, next| next.decoded - one.decoded >= spacing));
            assert!(found.points.len() > 1, "{arguments:?}");
            let some = found.points.len().div_ceil(12);
            for point in found.points.iter().step_by(some).chain(found.points.last()) {
                let decoded = resume(&packed, point).unwrap();
                assert!(decoded == data[point.decoded as usize..], "{arguments:?} {}", point.decoded);
            }
        }
    }
}

#[test]
fn nothing_incompressible_and_short_data() {
    let mut noise = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (noise >> 33) as u8
    })
    .take(300_000)
    .collect();
    for data in [&b""[..], b"a", b"abcabcabcabcabcabcabc", &noise, &vec![0; 1 << 20]] {
        for arguments in VARIANTS {
            let found = first_pass(&lz4(arguments, data), 1 << 20);
            found.end.unwrap();
            assert!(found.decoded == data && found.damage.is_empty(), "{arguments:?}");
        }
    }
}

fn skippable(data: &[u8]) -> Vec<u8> {
    [&0x184D_2A5B_u32.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data].concat()
}

#[test]
fn frames_of_all_kinds_follow_each_other() {
    let data = text(400_000);
    let (first, rest) = data.split_at(70_000);
    let (second, third) = rest.split_at(200_000);
    let packed = [
        skippable(b"at the start"),
        lz4(&["-BD"], first),
        lz4(&[], b""),
        skippable(&vec![0; 70_000]),
        lz4(&["-l"], second),
        lz4(&["-B4", "-BX"], third),
        skippable(b""),
    ]
    .concat();
    let found = first_pass(&packed, 1);
    found.end.unwrap();
    assert!(found.decoded == data);
    assert_eq!(found.damage, []);
    for point in &found.points {
        assert!(resume(&packed, point).unwrap() == data[point.decoded as usize..]);
    }
}

#[test]
fn what_follows_the_last_frame_is_an_error_but_for_zeros() {
    let data = text(5000);
    for garbage in [&b"garbage behind it"[..], &[0; 1024], b"x"] {
        for arguments in [&["-l"][..], &[]] {
            let packed = [&lz4(arguments, &data), garbage].concat();
            let found = first_pass(&packed, 1 << 20);
            assert!(found.decoded == data);
            if garbage[0] == 0 {
                found.end.unwrap();
                assert_eq!(found.damage.len(), 1);
                assert_eq!(found.damage[0].decoded, 5000..5000);
                assert_eq!(found.damage[0].compressed, (packed.len() - garbage.len()) as u64);
            } else {
                // One byte alone may be the beginning of another legacy block.
                let is_cut = garbage.len() == 1 && !arguments.is_empty();
                let kind = if is_cut { ErrorKind::UnexpectedEof } else { ErrorKind::InvalidData };
                assert_eq!(found.end.unwrap_err().kind(), kind);
            }
        }
    }
}

/// Small files of each kind, made of `data`; with each whether it has checksums that cover all its decoded bytes.
fn small(data: &[u8]) -> Vec<(Vec<u8>, bool)> {
    let (first, second) = data.split_at(data.len() / 2);
    vec![
        (lz4(&["-B4"], data), true),
        (lz4(&["-B4", "-BD", "-BX", "--content-size"], data), true),
        (lz4(&["-B4", "-BX", "--no-frame-crc"], data), true),
        (lz4(&["-B4", "--no-frame-crc"], data), false),
        (lz4(&["-l"], data), false),
        ([lz4(&["-B4"], first), skippable(b"between"), lz4(&["-BD"], second)].concat(), true),
    ]
}

#[test]
fn a_file_cut_at_any_byte_gives_what_is_whole_and_an_error() {
    let data = text(700);
    for (packed, _) in small(&data) {
        assert!(packed.len() < 1500);
        for length in 0..packed.len() {
            let found = first_pass(&packed[..length], 1 << 20);
            assert!(data.starts_with(&found.decoded));
            match found.end {
                // Between two frames a cut cannot be told from an end.
                Ok(()) => assert!(found.decoded.is_empty() || found.decoded == data[..350] || found.decoded == data),
                Err(error) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}"),
            }
        }
    }
    // Several blocks: those that are whole come first.
    let data = text(200_000);
    for arguments in [&["-B4"][..], &["-B4", "-BD", "-BX"]] {
        let packed = lz4(arguments, &data);
        let found = first_pass(&packed[..packed.len() - 100], 1);
        assert_eq!(found.end.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert!(found.decoded == data[..3 << 16]);
    }
}

#[test]
fn a_flipped_bit_is_noticed_wherever_there_is_a_checksum() {
    let data = text(700);
    for (packed, checked) in small(&data) {
        for bit in 0..packed.len() * 8 {
            let mut wrong = packed.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let found = first_pass(&wrong, 1 << 20);
            // Behind damage that changed the length, everything is moved.
            let moved = found.damage.iter().any(|_| found.decoded.len() != data.len());
            let end = found.damage.iter().map(|damage| damage.decoded.end as usize).min().filter(|_| moved);
            let is_damaged = |index: usize| found.damage.iter().any(|it| it.decoded.contains(&(index as u64)));
            let wrong_byte = (0..found.decoded.len().min(end.unwrap_or(usize::MAX)))
                .any(|index| data.get(index) != found.decoded.get(index) && !is_damaged(index));
            // The bit that says "stored" is covered by the frame's checksum, but not by the block's.
            let checked = checked && !(bit == 87 && packed[4] & 0b100 == 0);
            let noticed = found.end.is_err() || !found.damage.is_empty() || found.decoded == data;
            assert!(noticed || !checked, "bit {bit}");
            assert!(found.end.is_err() || !checked || !wrong_byte, "bit {bit}");
        }
    }
}

#[test]
fn spoilt_files_end_with_bytes_or_an_error() {
    let data = text(150_000);
    let mut seed = 1_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for arguments in [&["-B4", "--no-frame-crc"][..], &["-9", "-B4", "-BD", "--no-frame-crc"], &["-l"]] {
        let packed = lz4(arguments, &data);
        let points = first_pass(&packed, 1).points;
        for _ in 0..300 {
            let mut wrong = packed.clone();
            for _ in 0..=random(8) {
                let at = random(wrong.len());
                wrong[at] = random(256) as u8;
            }
            let found = first_pass(&wrong, 1);
            assert!(found.decoded.len() < 1 << 26);
            let _ = resume(&wrong, &points[random(points.len())]);
        }
    }
}

#[test]
fn damage_is_told_as_exactly_as_the_checksums_allow() {
    let data = text(300_000);
    let damage = |arguments: &[&str], offset: usize| {
        let mut packed = lz4(arguments, &data);
        // Stored and literal bytes of the first block: changing one leaves it decodable.
        let at = packed.windows(4).position(|four| four == &data[offset..offset + 4]).unwrap();
        packed[at + 1] ^= 1;
        let found = first_pass(&packed, 1 << 20);
        found.end.unwrap();
        found.damage.iter().map(|damage| (damage.decoded.start, damage.decoded.end)).collect::<Vec<_>>()
    };
    assert_eq!(damage(&["-B4", "-BX"], 0), [(0, 65536)]);
    assert_eq!(damage(&["-B4", "-BX", "-BD"], 0), [(0, 300_000)]);
    assert_eq!(damage(&["-B4"], 0), [(0, 300_000)]);
    assert_eq!(damage(&["-B4", "--no-frame-crc"], 0), []);
}

#[test]
fn of_a_frame_that_cannot_be_decoded_to_its_checksum_nothing_is_believed() {
    const HEADER: usize = 7;
    const STORED: usize = 4 + 65536;
    let data = crate::testing::noise(200_000);
    for arguments in [&["-B4"][..], &["-B4", "-BD"]] {
        for size in [0x7777_7777_u32, 100] {
            let mut packed = lz4(arguments, &data);
            packed[HEADER + 100] ^= 1;
            packed[HEADER + 2 * STORED..][..4].copy_from_slice(&size.to_le_bytes());
            let found = first_pass(&packed, 1 << 20);
            assert_eq!(found.end.unwrap_err().kind(), ErrorKind::InvalidData);
            // What is lost of a block that cannot be decoded is told for itself.
            let damaged = found.damage.iter().fold(0, |end, damage| {
                assert_eq!(damage.decoded.start, end);
                damage.decoded.end
            });
            assert_eq!(damaged, found.decoded.len() as u64);
            assert!(damaged >= 131_072 && found.damage.len() == if size == 100 { 2 } else { 1 }, "{:?}", found.damage);
        }
    }
    // Where blocks have checksums, those before are known to be right; and nothing is known of a frame without any.
    for (arguments, block) in [(&["-B4", "-BX"][..], STORED + 4), (&["-B4", "--no-frame-crc"], STORED)] {
        let mut packed = lz4(arguments, &data);
        packed[HEADER + 2 * block..][..4].copy_from_slice(&[0x77; 4]);
        assert_eq!(first_pass(&packed, 1 << 20).damage, []);
    }
}

#[test]
fn what_a_state_and_a_header_say_is_checked() {
    let data = text(300_000);
    let packed = lz4(&["-B4", "-BD"], &data);
    let found = first_pass(&packed, 1);
    let point = found.points.iter().find(|point| !point.state.is_empty()).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut point = point.clone();
        point.state[at..at + bytes.len()].copy_from_slice(bytes);
        resume(&packed, &point).map_err(|error| error.to_string())
    };
    assert!(with(0, &[]).unwrap() == data[point.decoded as usize..]);
    for (at, bytes, text) in [
        (0, &[point.state[0] + 1][..], "whose state has version"),
        // Of another version, and with blocks of 16 and of 16 million KiB.
        (1, &[0xC0 | point.state[1]], "whose state has the flags"),
        (2, &[0x30], "whose state has the flags"),
        (2, &[0x80], "whose state has the flags"),
        (3, &70_000_u32.to_le_bytes(), "with a history of 70000 bytes"),
        (3, &100_u32.to_le_bytes(), "history"),
    ] {
        let error = with(at, bytes).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
    let mut wrong = packed.clone();
    wrong[6] ^= 1;
    let error = first_pass(&wrong, 1).end.unwrap_err().to_string();
    assert!(error.contains("its checksum is"), "{error}");
}

#[test]
fn headers_that_cannot_be_read_say_why() {
    let with_header = |flags: u8, block: u8, more: &[u8]| {
        let descriptor = [&[flags, block], more].concat();
        let checksum = (xxhash_rust::xxh32::xxh32(&descriptor, 0) >> 8) as u8;
        [&super::frame::MAGIC.to_le_bytes()[..], &descriptor, &[checksum], &[0; 4]].concat()
    };
    let cases = [
        (with_header(0b0110_0001, 0x40, &[1, 2, 3, 4]), "dictionary"),
        (with_header(0b1010_0000, 0x40, &[]), "version"),
        (with_header(0b0110_0010, 0x40, &[]), "reserved"),
        (with_header(0b0110_0000, 0x30, &[]), "reserved"),
        (with_header(0b0110_0000, 0xC0, &[]), "reserved"),
        ([&with_header(0b0110_0000, 0x40, &[])[..7], &[1, 0, 1, 0], &vec![0; 70_000]].concat(), "65537 bytes"),
        (b"PK\x03\x04 something else".to_vec(), "no frame"),
    ];
    for (bytes, text) in cases {
        let error = first_pass(&bytes, 1 << 20).end.unwrap_err();
        let is_damaged = text != "dictionary";
        assert_eq!(error.kind(), if is_damaged { ErrorKind::InvalidData } else { ErrorKind::Unsupported });
        assert!(error.to_string().contains(text) && error.to_string().ends_with("of the compressed file"), "{error}");
    }
    assert!(first_pass(&with_header(0b0110_0000, 0x40, &[]), 1).end.is_ok());
    let options = Options { limits: Limits { decoder_window: 1 << 20, ..Limits::default() }, ..Options::default() };
    let mut pass = Lz4.first_pass(source(&lz4(&["-B7"], &text(5 << 20))), &options).unwrap();
    assert!(pass.read(&mut [0; 10]).unwrap_err().to_string().contains("limit"));
}

#[test]
fn a_state_that_lies_is_an_error_or_decodes() {
    let data = text(300_000);
    for arguments in [&["-B4"][..], &["-B4", "-BD"], &["-l"]] {
        let packed = lz4(arguments, &data);
        let points = first_pass(&packed, 1).points;
        let point = points.last().unwrap();
        for index in 0..point.state.len().min(2000) {
            let mut wrong = point.clone();
            wrong.state[index] ^= 0x55;
            let _ = resume(&packed, &wrong);
            wrong.state.truncate(index);
            let _ = resume(&packed, &wrong);
        }
        for compressed_bit in [1, 80, u64::MAX, u64::MAX - 7, packed.len() as u64 * 8] {
            assert!(resume(&packed, &SeekPoint { compressed_bit, ..point.clone() }).is_err());
        }
        let mut long = point.clone();
        long.state.resize(1 << 20, 0xFF);
        let _ = resume(&packed, &long);
    }
}

#[test]
fn bids_for_its_frames_only() {
    let bid = |bytes: &[u8]| Lz4.bid(&bytes[..bytes.len().min(1024)]);
    let packed = lz4(&[], &text(10_000));
    assert_eq!(bid(&packed), 48);
    assert_eq!(bid(&lz4(&["-l"], b"abc")), 32);
    assert_eq!(bid(&[skippable(b"abc"), packed].concat()), 48);
    for other in [&skippable(b"abc")[..], b"", b"\x04", b"\x28\xB5\x2F\xFD zstd", &[0; 1024]] {
        assert_eq!(bid(other), 0);
    }
}

#[derive(Debug)]
struct Table(Vec<Chunk>);

impl ChunkTable for Table {
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
        let end = |chunk: &Chunk| chunk.point.decoded + chunk.length;
        Ok(self.0.iter().find(|chunk| (chunk.point.decoded..end(chunk)).contains(&decoded)).cloned())
    }

    fn decoded_length(&self) -> u64 {
        self.0.last().map_or(0, |chunk| chunk.point.decoded + chunk.length)
    }

    fn damage_in(&self, _decoded: std::ops::Range<u64>) -> io::Result<Option<Damage>> {
        Ok(None)
    }
}

#[test]
fn is_read_at_any_offset_through_the_engine() {
    let data = text(6 << 20);
    for arguments in VARIANTS {
        let packed = lz4(arguments, &data);
        let options = Options { seek_point_spacing: 300_000, ..Options::default() };
        let mut indexing = Indexing::new(&Lz4, source(&packed), &options).unwrap();
        let (mut buffer, mut chunks) = (vec![0; 1 << 17], Vec::new());
        while indexing.read(&mut buffer).unwrap() > 0 {}
        indexing.take_chunks(&mut chunks);
        let decoded = DecodedSource::new(
            &Lz4,
            source(&packed),
            Arc::new(Table(chunks)),
            PieceCache::new(Budget::new(4 << 20)),
            Workers::new(1),
            Limits::default(),
        );
        let mut offset = 12_345;
        for _ in 0..60 {
            offset = (offset * 31 + 7919) % data.len();
            let length = (offset % 70_000).min(data.len() - offset);
            decoded.read_exact_at(&mut buffer[..length], offset as u64).unwrap();
            assert!(buffer[..length] == data[offset..offset + length], "{arguments:?}");
        }
    }
}

#[test]
fn other_projects_archives_decode_as_lz4_does() {
    let corpus = std::env::var_os("TARNFS_CORPUS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"), std::path::PathBuf::from);
    let Ok(files) = std::fs::read_dir(corpus.join("libarchive")) else {
        let _ = writeln!(io::stderr(), "skipped: no corpus in {}", corpus.display());
        return;
    };
    let mut compared = 0;
    for path in files.map(|file| file.unwrap().path()) {
        if !path.is_file() || !path.file_name().is_some_and(|name| name.to_string_lossy().contains("lz4")) {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let found = first_pass(&bytes, 1 << 20);
        // Its skippable frame goes past the end of the file, at which `lz4` does not look.
        let cut = path.to_string_lossy().contains("raw_skip");
        if let Some(expected) = lz4_decoded(&path).filter(|_| !cut) {
            found.end.unwrap();
            assert!(found.decoded == expected, "{}", path.display());
            assert!(bytes.is_empty() || Lz4.bid(&bytes) > 0, "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared >= 5);
}
