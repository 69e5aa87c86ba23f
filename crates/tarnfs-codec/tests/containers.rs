//! What containers name: folders of cabinets, members of LHA and ARJ, payloads of packages. The archives are those of
//! `tests/archives/small`, which other programs have read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tarnfs_codec::{CoderContext, Damage, DecodeContext, Decoder, Options, SeekPoint, coder_by_name, detect};
use tarnfs_source::{MemorySource, SharedSource};

fn archive(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/small");
    std::fs::read(folder.join(name)).unwrap()
}

fn source(bytes: &[u8]) -> SharedSource {
    Arc::new(MemorySource::new(bytes, "bytes"))
}

fn half(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn word(bytes: &[u8], at: usize) -> usize {
    half(bytes, at) | half(bytes, at + 2) << 16
}

/// What is stored, the codec's name, its properties, and the bytes that come of it.
type Stored = (Vec<u8>, &'static str, Vec<u8>, usize);

/// The only folder of a cabinet that has no reserved bytes.
fn folder(name: &str) -> Stored {
    let bytes = archive(name);
    let (start, blocks, kind) = (word(&bytes, 36), half(&bytes, 40), half(&bytes, 42));
    let mut at = word(&bytes, 16);
    let mut length = 0;
    for _ in 0..half(&bytes, 28) {
        length = length.max(word(&bytes, at) + word(&bytes, at + 4));
        at += 17 + bytes[at + 16..].iter().position(|&byte| byte == 0).unwrap();
    }
    let mut properties = vec![(kind & 15) as u8, (kind >> 8) as u8];
    properties.extend([0; 8]);
    properties.extend((blocks as u32).to_le_bytes());
    properties.push(0);
    (bytes[start..].to_vec(), "cabinet", properties, length)
}

/// The first member of an archive of LHA, with a header of level 0 or 2.
fn member(name: &str, method: u8) -> Stored {
    let bytes = archive(name);
    let (header, crc) = if bytes[20] == 2 {
        (half(&bytes, 0), [bytes[21], bytes[22]])
    } else {
        let behind = 22 + usize::from(bytes[21]);
        (usize::from(bytes[0]) + 2, [bytes[behind], bytes[behind + 1]])
    };
    let data = bytes[header..header + word(&bytes, 7)].to_vec();
    (data, "lzh-checked", [&[method][..], &crc].concat(), word(&bytes, 11))
}

/// The first file of an archive of ARJ.
fn packed(name: &str, method: u8) -> Stored {
    let bytes = archive(name);
    let first = half(&bytes, 2) + 10;
    let header = first + 4;
    let data = header + half(&bytes, first + 2) + 6;
    (bytes[data..data + word(&bytes, header + 12)].to_vec(), "lzh", vec![method], word(&bytes, header + 16))
}

fn all() -> Vec<Stored> {
    let mut all: Vec<_> =
        ["mszip.cab", "stored.cab", "quantum.cab", "lzx-verbatim.cab", "lzx-calls.cab"].map(folder).to_vec();
    all.extend([member("lh1.lzh", 1), member("lh5.lzh", 5), member("lh6.lzh", 6), member("lh7.lzh", 7)]);
    all.extend([packed("method1.arj", 32), packed("method4.arj", 33)]);
    all
}

fn to_end(decoder: &mut dyn Decoder) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 10_000]);
    loop {
        let read = decoder.read(&mut buffer)?;
        assert!(decoder.memory() < 8 << 20, "{} bytes of memory", decoder.memory());
        if read == 0 {
            return Ok(all);
        }
        all.extend_from_slice(&buffer[..read]);
        assert!(all.len() < 1 << 20, "more than there can be");
    }
}

/// What is damaged is an error.
fn decode(stored: &[u8], codec: &str, properties: &[u8], length: usize) -> io::Result<Vec<u8>> {
    let (all, damage) = decode_all(stored, codec, properties, length)?;
    match damage.into_iter().next() {
        Some(damage) => Err(io::Error::new(io::ErrorKind::InvalidData, damage.what)),
        None => Ok(all),
    }
}

/// All that can be decoded, and what is told of it.
fn decode_all(stored: &[u8], codec: &str, properties: &[u8], length: usize) -> io::Result<(Vec<u8>, Vec<Damage>)> {
    let coder =
        CoderContext { properties: properties.into(), decoded_length: Some(length as u64), ..CoderContext::default() };
    let options = Options { coder: coder.clone(), ..Options::default() };
    let codec = coder_by_name(codec).unwrap();
    let mut pass = codec.first_pass(source(stored), &options)?;
    let (all, mut damage) = (to_end(&mut *pass)?, Vec::new());
    pass.take_damage(&mut damage);
    let context = DecodeContext { coder, ..DecodeContext::default() };
    let again = to_end(&mut *codec.resume(source(stored), &SeekPoint::default(), &context)?)?;
    assert!(all == again, "other bytes");
    Ok((all, damage))
}

/// Who wants it all the same gets a file whose checksum differs to its end: the error came with the last 16 KiB.
#[test]
fn a_file_of_lha_with_a_wrong_checksum_is_given_to_its_end() {
    let stored = (b"good content".to_vec(), "lzh-checked", vec![0, 1, 2], 12);
    for (data, codec, properties, length) in
        [stored, member("lh1.lzh", 1), member("lh5.lzh", 5), member("lh6.lzh", 6), member("lh7.lzh", 7)]
    {
        let wrong = [&properties[..2], &[!properties[2]]].concat();
        let (all, damage) = decode_all(&data, codec, &wrong, length).unwrap();
        assert!(
            all.len() == length && (properties[0] == 0 || all == decode(&data, codec, &properties, length).unwrap())
        );
        let [damage] = &damage[..] else { panic!("{damage:?}") };
        assert!(damage.decoded == (0..length as u64) && damage.lost_from == length as u64, "{damage:?}");
        assert!(damage.what.contains("CRC-16"), "{damage:?}");
    }
}

/// The blocks of a folder, with their checksums, the last byte of one of which is another one.
fn blocks(contents: &[&[u8]], is_stored: bool, changed: usize, has_checksums: bool) -> Vec<u8> {
    let mut folder = Vec::new();
    for (number, content) in contents.iter().enumerate() {
        let length = content.len() as u16;
        // Deflate, which stores it.
        let head = [b"CK\x01", &length.to_le_bytes()[..], &(!length).to_le_bytes()].concat();
        let mut data = if is_stored { content.to_vec() } else { [&head, *content].concat() };
        let lengths = [(data.len() as u16).to_le_bytes(), length.to_le_bytes()].concat();
        let sum = |bytes: &[u8]| {
            let (words, rest) = bytes.as_chunks::<4>();
            let sum = words.iter().fold(0, |sum, word| sum ^ u32::from_le_bytes(*word));
            sum ^ rest.iter().fold(0, |word, &byte| word << 8 | u32::from(byte))
        };
        let checksum = if has_checksums { sum(&data) ^ sum(&lengths) } else { 0 };
        if number == changed {
            *data.last_mut().unwrap() ^= 1;
        }
        folder.extend([&checksum.to_le_bytes(), &lengths[..], &data].concat());
    }
    folder
}

/// What is compressed refers to what came before, so all that follows may be wrong; what is stored does not.
#[test]
fn a_block_of_a_cabinet_with_a_wrong_checksum_is_told_and_decoded() {
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at / 7 * 31) as u8).collect();
    let contents: Vec<_> = content.chunks(32 << 10).collect();
    let properties = |method: u8| [&[method, 0][..], &[0; 8], &4_u32.to_le_bytes(), &[0]].concat();
    for (method, wrong) in [(0, 32_768..65_536), (1, 32_768..100_000)] {
        let folder = blocks(&contents, method == 0, 1, true);
        let (all, damage) = decode_all(&folder, "cabinet", &properties(method), content.len()).unwrap();
        let differ: Vec<_> = (0..content.len()).filter(|&at| all[at] != content[at]).collect();
        assert_eq!(differ, [65_535]);
        // In parts, each of which is told before it is given.
        let mut next = wrong.start;
        for damage in damage {
            assert_eq!((damage.decoded.start, damage.lost_from), (next, damage.decoded.end));
            assert!(damage.what.contains("checksum of a block"), "{damage:?}");
            next = damage.decoded.end;
        }
        assert_eq!(next, wrong.end);
    }
    // Without checksums an error tells that what came before it may be wrong.
    let mut folder = blocks(&contents, false, 9, false);
    let last = folder.len() - contents[3].len() - 7;
    folder[last] = b'X';
    let coder = CoderContext {
        properties: properties(1).as_slice().into(),
        decoded_length: Some(content.len() as u64),
        ..CoderContext::default()
    };
    let mut pass = coder_by_name("cabinet")
        .unwrap()
        .first_pass(source(&folder), &Options { coder, ..Options::default() })
        .unwrap();
    assert!(to_end(&mut *pass).is_err());
    let mut damage = Vec::new();
    pass.take_damage(&mut damage);
    assert!(damage.len() == 1 && damage[0].decoded == (0..98_304), "{damage:?}");
}

#[test]
fn what_is_cut_or_changed_ends_with_an_error_or_as_many_bytes() {
    for (stored, codec, properties, length) in all() {
        let whole = decode(&stored, codec, &properties, length).unwrap();
        assert_eq!(whole.len(), length, "{codec} {properties:?}");
        // The decoders read no further than they have to: what is cut has to be noticed where it is needed.
        for cut in (0..stored.len() / 2).step_by(1 + stored.len() / 40) {
            assert!(decode(&stored[..cut], codec, &properties, length).is_err(), "{codec} {properties:?} {cut}");
        }
        let is_checked = codec == "cabinet" || properties.len() == 3;
        for place in (0..stored.len()).step_by(1 + stored.len() / 60) {
            let mut changed = stored.clone();
            changed[place] ^= 0x11;
            let found = decode(&changed, codec, &properties, length);
            assert!(!is_checked || found.is_err() || found.unwrap() == whole, "{codec} {properties:?} {place}");
        }
    }
}

/// Without checksums, what is wrong with the data themselves shows, or other bytes come.
#[test]
fn blocks_without_checksums_end_whatever_is_in_them() {
    for (stored, codec, properties, length) in all().into_iter().filter(|stored| stored.1 == "cabinet") {
        let mut plain = stored.clone();
        let mut at = 0;
        while at + 8 <= plain.len() {
            plain[at..at + 4].fill(0);
            at += 8 + half(&plain, at + 4);
        }
        assert_eq!(decode(&plain, codec, &properties, length).unwrap().len(), length);
        for place in (0..plain.len()).step_by(1 + plain.len() / 150) {
            for value in [0, 0xff, plain[place] ^ 0x24] {
                let mut changed = plain.clone();
                changed[place] = value;
                let found = decode(&changed, codec, &properties, length);
                assert!(found.is_err() || found.unwrap().len() == length, "{place}");
            }
        }
    }
}

#[test]
fn properties_that_no_container_has_are_refused() {
    for (codec, properties) in [
        ("cabinet", &[][..]),
        ("cabinet", &[1, 0, 7]),
        ("cabinet", &[4, 15]),
        ("cabinet", &[3, 14]),
        ("cabinet", &[3, 22]),
        ("cabinet", &[2, 9]),
        ("lzh", &[]),
        ("lzh", &[2]),
        ("lzh", &[99, 0, 0]),
        // It would compare nothing.
        ("lzh-checked", &[5]),
        ("lzh-checked", &[5, 0]),
    ] {
        let refused = decode(b"data", codec, properties, 10).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{codec} {properties:?}");
    }
}

fn tool(command: &str, input: &[u8]) -> Vec<u8> {
    let mut child =
        Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap().stdout;
    writer.join().unwrap().unwrap();
    output
}

/// A member of an ar, filled up to an even length.
fn of_ar(name: &str, content: &[u8]) -> Vec<u8> {
    let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100_644, content.len());
    let padding: &[u8] = if content.len() % 2 == 1 { b"\n" } else { b"" };
    [header.as_bytes(), content, padding].concat()
}

/// Headers of RPM without anything in them, and a payload behind.
fn of_rpm(payload: &[u8]) -> Vec<u8> {
    let lead = [&b"\xed\xab\xee\xdb\x03\0"[..], &[0; 90]].concat();
    let header =
        |length: u8| [&b"\x8e\xad\xe8\x01\0\0\0\0\0\0\0\0\0\0\0"[..], &[length], &vec![7; length.into()]].concat();
    // The first one is filled up to a multiple of eight bytes.
    [lead, header(3), vec![0; 5], header(40), payload.to_vec()].concat()
}

/// From each seek point on comes what the first pass has decoded there, whatever the payload is compressed with.
#[test]
fn packages_are_read_from_each_seek_point() {
    let text: Vec<u8> = (0..60_000_u32).flat_map(|number| number.to_string().into_bytes()).collect();
    for command in ["cat", "gzip -nc", "xz --block-size=100KiB -c", "zstd -qc", "bzip2 -c"] {
        let packed = tool(command, &text);
        assert!(!packed.is_empty(), "{command}");
        let deb = [
            b"!<arch>\n".to_vec(),
            of_ar("debian-binary", b"2.0\n"),
            of_ar("control.tar.gz", &tool("gzip -nc", b"control")),
            of_ar("data.tar.x", &packed),
            of_ar("_gpg", b"signed"),
        ]
        .concat();
        for package in [deb, of_rpm(&packed)] {
            let codec = detect(&package).unwrap();
            let options = Options { seek_point_spacing: 64 << 10, threads: 2, ..Options::default() };
            let mut pass = codec.first_pass(source(&package), &options).unwrap();
            let (mut all, mut points, mut buffer) = (Vec::new(), Vec::new(), vec![0; 7000]);
            loop {
                let read = pass.read(&mut buffer).unwrap();
                pass.take_points(&mut points);
                assert!(points.iter().all(|point: &SeekPoint| point.decoded <= (all.len() + read) as u64));
                if read == 0 {
                    break;
                }
                all.extend_from_slice(&buffer[..read]);
            }
            let mut damage = Vec::new();
            pass.take_damage(&mut damage);
            assert_eq!(damage, [], "{command}");
            assert!(all.ends_with(&text) && all.len() < text.len() + 500, "{command}");
            assert!(points.len() > 1 && points[0] == SeekPoint::default(), "{command}: {points:?}");
            for point in &points {
                let mut decoder = codec.resume(source(&package), point, &DecodeContext::default()).unwrap();
                let (mut rest, mut filled) = (vec![0; (all.len() - point.decoded as usize).min(100_000)], 0);
                while filled < rest.len() {
                    filled += decoder.read(&mut rest[filled..]).unwrap();
                }
                assert!(rest == all[point.decoded as usize..][..rest.len()], "{command}: {point:?}");
            }
            let wrong = SeekPoint { compressed_bit: 8, decoded: 1, state: Vec::new() };
            assert!(codec.resume(source(&package), &wrong, &DecodeContext::default()).is_err());
            for length in (0..package.len() - 70).step_by(1 + package.len() / 60) {
                // What is whole in front of the data is shown, and damage says that the rest is missing.
                let is_told = codec.first_pass(source(&package[..length]), &options).map_or(true, |mut pass| {
                    let (ended, mut damage) = (to_end_of(&mut *pass), Vec::new());
                    pass.take_damage(&mut damage);
                    ended.is_err() || !damage.is_empty()
                });
                // A stream that is stored as it is ends anywhere.
                assert!(is_told || command == "cat", "{command}: {length}");
            }
        }
    }
}

fn to_end_of(decoder: &mut dyn Decoder) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    while decoder.read(&mut buffer)? > 0 {}
    Ok(())
}
