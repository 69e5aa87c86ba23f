use std::io::ErrorKind;
use std::sync::Arc;

use md5::{Digest, Md5};
use tarnfs_source::{Cancel, Limits, SharedSource};

use super::Lrzip;
use super::header::{DIGEST, LENGTH, MAGIC};
use super::history::{History, STEP};
use super::stream::STORED;
use crate::testing::{
    CancelledBehind, assert_points_lead_to, assert_read_anywhere, assert_survives_mutations, corpus, decode,
    decode_in_steps, length_in_little_memory, noise, resume, sample, source, tool,
};
use crate::{Codec, Damage, DecodeContext, FILLER, FileCodec as _, Options, PIECE, Scratch, SeekPoint};

/// Without a look at whether LZ4 makes less of it: then short blocks are stored.
const METHODS: [&str; 5] = ["--lzma -T", "-g -T", "-b -T", "-l -T", "-n"];

/// The numbers of those methods.
const NUMBERS: [u8; 5] = [6, 7, 4, 5, STORED];

fn lrzip(options: &str, data: &[u8]) -> Vec<u8> {
    tool(&format!("env LRZIP=NOCONFIG lrzip -Q {options}"), data)
}

/// From and to files: of older versions it does not read from a pipe.
fn unpack(packed: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["packed", "data"].map(|name| folder.path().join(name));
    std::fs::write(&from, packed).unwrap();
    lrzip(&format!("-d -o {} {}", to.display(), from.display()), b"");
    std::fs::read(to).unwrap()
}

/// What lrzip makes of a file.
fn lrzip_file(options: &str, data: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["data", "packed"].map(|name| folder.path().join(name));
    std::fs::write(&from, data).unwrap();
    lrzip(&format!("{options} -o {} {}", to.display(), from.display()), b"");
    std::fs::read(to).unwrap()
}

/// Bytes that are found again far behind: lrzip finds what is alike from 31 bytes on.
fn repetitive(length: usize, seed: u64) -> Vec<u8> {
    let part = sample(length / 3 + 1, seed);
    let mut data = [&part[..], &sample(length / 3 + 1, seed + 1), &part].concat();
    data.truncate(length);
    data
}

/// One file of several chunks, from files of one each, of these decoded bytes.
fn join(files: &[Vec<u8>], data: &[u8]) -> Vec<u8> {
    let mut joined = files[0][..LENGTH].to_vec();
    joined[6..14].copy_from_slice(&(data.len() as u64).to_le_bytes());
    for (index, file) in files.iter().enumerate() {
        let mut chunk = file[LENGTH..file.len() - DIGEST].to_vec();
        chunk[1] = u8::from(index + 1 == files.len());
        joined.extend(chunk);
    }
    joined.extend(Md5::digest(data));
    joined
}

/// What a chunk is to do.
enum Do<'a> {
    Literals(&'a [u8]),
    /// Distance and length.
    Match(u64, u64),
}

/// A writer of chunks whose blocks are stored, at most `block` bytes each.
struct Writer {
    minor: u8,
    width: usize,
    block: usize,
    /// With a CRC-32 for each chunk.
    checks: bool,
}

impl Writer {
    fn number(to: &mut Vec<u8>, number: u64, width: usize) {
        to.extend(&number.to_le_bytes()[..width]);
    }

    /// A chunk, and what it decodes to.
    fn chunk(&self, is_last: bool, list: &[Do]) -> (Vec<u8>, Vec<u8>) {
        let (mut control, mut literals, mut decoded) = (Vec::new(), Vec::new(), Vec::new());
        let lengths = if self.minor == 4 { 8 } else { 2 };
        for what in list {
            match *what {
                Do::Literals(bytes) => {
                    control.push(0);
                    Self::number(&mut control, bytes.len() as u64, lengths);
                    literals.extend(bytes);
                    decoded.extend(bytes);
                }
                Do::Match(distance, length) => {
                    control.push(1);
                    Self::number(&mut control, length, lengths);
                    Self::number(&mut control, distance, self.width);
                    for _ in 0..length {
                        let from = decoded.len().checked_sub(distance as usize);
                        decoded.push(from.and_then(|from| decoded.get(from)).copied().unwrap_or(0));
                    }
                }
            }
        }
        control.push(0);
        Self::number(&mut control, 0, lengths);
        let mut crc = crc32fast::Hasher::new_with_initial(u32::MAX);
        crc.update(&decoded);
        if self.checks {
            control.extend((!crc.finalize()).to_le_bytes());
        }

        let mut chunk = Vec::new();
        if self.minor > 4 {
            chunk.push(self.width as u8);
        }
        if self.minor > 5 {
            chunk.push(u8::from(is_last));
            Self::number(&mut chunk, decoded.len() as u64, self.width);
        }
        let width = if self.minor > 5 { self.width } else { 8 };
        let (base, header) = (chunk.len(), 1 + 3 * width);
        // Where it says where the next block of each stream is.
        let mut heads = [chunk.len() + 1 + 2 * width, chunk.len() + header + 1 + 2 * width];
        for _ in 0..2 {
            chunk.push(STORED);
            chunk.extend(vec![0; 3 * width]);
        }
        // Bytes to follow come first, as they fill a block before there is much to do.
        for (stream, data) in [(1, literals), (0, control)] {
            for block in data.chunks(self.block) {
                let at = (chunk.len() - base) as u64;
                chunk[heads[stream]..][..width].copy_from_slice(&at.to_le_bytes()[..width]);
                heads[stream] = chunk.len() + 1 + 2 * width;
                chunk.push(STORED);
                Self::number(&mut chunk, block.len() as u64, width);
                Self::number(&mut chunk, block.len() as u64, width);
                Self::number(&mut chunk, 0, width);
                chunk.extend(block);
            }
        }
        (chunk, decoded)
    }

    /// A file, and what it decodes to.
    fn file(&self, has_digest: bool, chunks: &[&[Do]]) -> (Vec<u8>, Vec<u8>) {
        let (mut body, mut decoded) = (Vec::new(), Vec::new());
        for (index, list) in chunks.iter().enumerate() {
            let (chunk, data) = self.chunk(index + 1 == chunks.len(), list);
            body.extend(chunk);
            decoded.extend(data);
        }
        let mut file = [&MAGIC[..], &[0, self.minor], &(decoded.len() as u64).to_le_bytes(), &[0; 10]].concat();
        file[21] = u8::from(has_digest);
        file.extend(body);
        if has_digest {
            file.extend(Md5::digest(&decoded));
        }
        (file, decoded)
    }
}

#[test]
fn reads_what_lrzip_writes_with_every_method() {
    for data in [&b""[..], b"a", &[7; 63], &vec![0; 1 << 20], &noise(300_000), &repetitive(2_000_000, 2)] {
        for (method, number) in METHODS.into_iter().zip(NUMBERS) {
            for options in ["-L 1", "", "-L 9"] {
                let packed = lrzip(&format!("{method} {options}"), data);
                // The first block is behind the header of the file, of the chunk, and of two streams.
                let width = usize::from(packed[LENGTH]);
                let used = packed[LENGTH + 2 + width + 2 * (1 + 3 * width)];
                assert!(used == number || data.len() < 1 << 20, "{method}");
                let pass = decode(&Lrzip, &packed);
                assert_eq!(pass.points.len(), 1);
                assert_points_lead_to(&Lrzip, &packed, &pass.points, data);
                assert!(pass.whole() == data, "{method} {options}, {} bytes", data.len());
            }
        }
        assert!(decode(&Lrzip, &lrzip("", data)).whole() == data, "{} bytes", data.len());
    }
}

#[test]
fn is_read_anywhere_and_in_steps_of_any_length() {
    let data = repetitive(1_000_000, 3);
    for method in METHODS {
        let packed = lrzip(method, &data);
        let points = decode(&Lrzip, &packed).points;
        assert_read_anywhere(&Lrzip, &packed, &points, &data, 3);
        for step in [1009, 65_536, 2 << 20] {
            assert!(decode_in_steps(&Lrzip, &packed, step, Limits::default()).whole() == data, "{method}, {step}");
        }
    }
    let short = repetitive(5000, 4);
    assert!(decode_in_steps(&Lrzip, &lrzip("", &short), 1, Limits::default()).whole() == short);
}

#[test]
fn chunks_follow_each_other_and_each_is_a_seek_point() {
    let data = repetitive(1_500_000, 5);
    let parts: Vec<_> = data.chunks(300_000).collect();
    let files: Vec<_> = parts.iter().zip(METHODS).map(|(part, method)| lrzip(method, part)).collect();
    // The properties of LZMA are those of the first header.
    let packed = join(&files, &data);
    assert!(unpack(&packed) == data, "lrzip itself reads it");
    let pass = decode(&Lrzip, &packed);
    assert_eq!(
        pass.points.iter().map(|point| point.decoded).collect::<Vec<_>>(),
        [0, 300_000, 600_000, 900_000, 1_200_000]
    );
    assert_points_lead_to(&Lrzip, &packed, &pass.points, &data);
    assert_read_anywhere(&Lrzip, &packed, &pass.points, &data, 5);
    let points = pass.points.clone();
    assert!(pass.whole() == data);
    // As in a pipe, where nobody knows how much will come.
    let mut unknown = packed.clone();
    unknown[6..14].fill(0);
    assert!(decode(&Lrzip, &unknown).whole() == data);
    // As where the threads of lrzip are late.
    for mut late in [packed, unknown] {
        for point in &points {
            late[point.compressed_bit as usize / 8 + usize::from(point.decoded == 0) * LENGTH + 1] = 1;
        }
        assert!(decode(&Lrzip, &late).whole() == data);
    }
}

/// `-w 1` is the smallest window, of 100 MiB.
#[test]
fn reads_the_chunks_and_blocks_of_a_large_file() {
    const CHUNK: u64 = 100 << 20;
    let part = sample(900_000, 6);
    let data = part.repeat(130);
    for pipe in [true, false] {
        let packed = if pipe { lrzip("-l -T -w 1", &data) } else { lrzip_file("-g -T -w 1", &data) };
        let mut pass = Lrzip.first_pass(source(&packed), &Options::default()).unwrap();
        let (mut buffer, mut at, mut points) = (vec![0; PIECE], 0, Vec::new());
        loop {
            let read = pass.read(&mut buffer).unwrap();
            assert!(data[at..at + read] == buffer[..read], "at {at}");
            at += read;
            pass.take_points(&mut points);
            if read == 0 {
                break;
            }
        }
        let mut damage = Vec::new();
        pass.take_damage(&mut damage);
        assert_eq!(damage, []);
        assert_eq!(at, data.len());
        assert_eq!(points.iter().map(|point| point.decoded).collect::<Vec<_>>(), [0, CHUNK]);
        assert!(resume(&Lrzip, &packed, &points[1], PIECE).unwrap() == data[CHUNK as usize..]);
    }
}

#[test]
fn older_versions_are_read_as_lrzip_reads_them() {
    let (first, second) = (sample(60_000, 7), noise(30_000));
    let list = [
        Do::Literals(&first),
        Do::Match(60_000, 50_000),
        Do::Literals(&second),
        Do::Match(1, 1000),
        Do::Match(141_000, 65_535),
        Do::Match(3, 31),
    ];
    let rest = [Do::Literals(&second), Do::Match(30_000, 30_000)];
    for minor in [4, 5, 6] {
        for has_digest in [false, true] {
            for (width, block) in [(8, 10_000), (3, 1 << 20)] {
                if minor == 4 && width != 8 {
                    continue;
                }
                let writer = Writer { minor, width, block, checks: true };
                let (packed, data) = writer.file(has_digest, &[&list, &rest]);
                assert!(unpack(&packed) == data, "the test's own writer is wrong: 0.{minor}, {has_digest}, {width}");
                let pass = decode(&Lrzip, &packed);
                assert_eq!(pass.points.len(), 2);
                assert_points_lead_to(&Lrzip, &packed, &pass.points, &data);
                assert!(pass.whole() == data, "0.{minor}, {has_digest}, {width}");
                // A byte of the literals, which nothing but a checksum protects.
                let mut wrong = packed.clone();
                wrong[5000] ^= 1;
                let pass = decode(&Lrzip, &wrong);
                pass.assert_honest(&data, "a literal");
                assert!(!pass.is_clean());
            }
        }
    }
}

#[test]
fn a_file_cut_at_any_byte_gives_what_is_whole_and_an_error() {
    let data = repetitive(1500, 8);
    let files: Vec<_> = data.chunks(300).zip(METHODS).map(|(part, method)| lrzip(method, part)).collect();
    let packed = join(&files, &data);
    assert!(decode(&Lrzip, &packed).whole() == data);
    let mut lengths = Vec::new();
    for length in 0..packed.len() {
        let pass = decode(&Lrzip, &packed[..length]);
        assert_eq!(pass.error_kind(), ErrorKind::UnexpectedEof, "cut at {length}");
        assert!(data.starts_with(&pass.data), "cut at {length}");
        // Nothing says that what is there of a chunk is right.
        let served = pass.damage.iter().map(|damage| damage.decoded.start).min().unwrap_or(pass.data.len() as u64);
        assert!(served.is_multiple_of(300));
        lengths.push(served);
    }
    lengths.dedup();
    assert_eq!(lengths, [0, 300, 600, 900, 1200, 1500]);
}

#[test]
fn a_flipped_bit_is_noticed_wherever_it_is() {
    let data = repetitive(900, 9);
    let mut files: Vec<_> = METHODS.map(|method| (lrzip(method, &data), data.clone())).into();
    files.push((lrzip("", &data[..7]), data[..7].to_vec()));
    files.push((lrzip("", b""), Vec::new()));
    let parts: Vec<_> = data.chunks(300).map(|part| lrzip("-l -T", part)).collect();
    files.push((join(&parts, &data), data.clone()));
    let list = [Do::Literals(&data), Do::Match(900, 800)];
    files.push(Writer { minor: 6, width: 2, block: 500, checks: true }.file(false, &[&list, &list]));
    for (packed, data) in files {
        assert!(decode(&Lrzip, &packed).whole() == data);
        for bit in 0..packed.len() * 8 {
            let mut wrong = packed.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            decode(&Lrzip, &wrong).assert_honest(&data, &format!("bit {bit} of {}", packed.len()));
        }
    }
}

#[test]
fn mutations_are_survived() {
    let data = repetitive(300_000, 10);
    for method in METHODS {
        assert_survives_mutations(&Lrzip, &lrzip(method, &data), &data);
    }
    let parts: Vec<_> = data.chunks(150_000).map(|part| lrzip("-l -T", part)).collect();
    assert_survives_mutations(&Lrzip, &join(&parts, &data), &data);
}

#[test]
fn a_damaged_chunk_is_missing_and_no_other() {
    let data = repetitive(900_000, 11);
    let parts: Vec<_> = data.chunks(300_000).map(|part| lrzip("-g -T", part)).collect();
    let packed = join(&parts, &data);
    let second = decode(&Lrzip, &packed).points[1].compressed_bit as usize / 8;
    let (mut undecoded, mut by_checksum) = (0, 0);
    for at in (100..parts[1].len() - 100).step_by(7001) {
        let mut wrong = packed.clone();
        wrong[second + at] ^= 0x10;
        let pass = decode(&Lrzip, &wrong);
        assert!(pass.error.is_none(), "{at}: {:?}", pass.error);
        assert_eq!(pass.damage.len(), 1, "{at}: {:?}", pass.damage);
        assert_eq!((pass.damage[0].decoded.clone(), pass.damage[0].compressed), (300_000..600_000, second as u64));
        assert!(pass.data.len() == data.len() && pass.data[..300_000] == data[..300_000]);
        assert!(pass.data[600_000..] == data[600_000..]);
        assert_points_lead_to(&Lrzip, &wrong, &pass.points[2..], &data);
        undecoded += usize::from(pass.data[599_000..600_000] == [FILLER; 1000]);
        by_checksum += usize::from(pass.damage[0].what.contains("CRC-32"));
    }
    assert!(undecoded > 0 && by_checksum + undecoded > 1, "{undecoded}, {by_checksum}");
}

#[test]
fn the_digest_decides_where_checksums_differ() {
    let data = repetitive(6000, 12);
    let parts: Vec<_> = data.chunks(2000).map(|part| lrzip("-n", part)).collect();
    let packed = join(&parts, &data);
    let third = packed.len() - DIGEST - (parts[2].len() - LENGTH - DIGEST);
    let damage = |at: usize, packed: &[u8]| {
        let mut wrong = packed.to_vec();
        wrong[at] ^= 1;
        let pass = decode(&Lrzip, &wrong);
        assert!(pass.error.is_none(), "{:?}", pass.error);
        let found = pass.damage.into_iter();
        found.map(|damage| (damage.decoded.start, damage.decoded.end)).collect::<Vec<_>>()
    };
    // The digest itself: the checksums of all chunks are right.
    assert_eq!(damage(packed.len() - 1, &packed), [(6000, 6000)]);
    // The data of the last chunk, of which the literals come last.
    assert_eq!(damage(packed.len() - DIGEST - 1, &packed), [(4000, 6000)]);
    // The CRC-32 of a chunk, the last of what its first block says.
    let (list, other) = ([Do::Literals(&data)], [Do::Literals(&data[..100])]);
    let writer = Writer { minor: 6, width: 2, block: 1 << 16, checks: true };
    let (with, _) = writer.file(true, &[&other, &list]);
    assert_eq!(damage(with.len() - DIGEST - 1, &with), []);
    let (without, _) = writer.file(false, &[&other, &list]);
    assert_eq!(damage(without.len() - 1, &without), [(100, 6100)]);
    // Chunks without a CRC-32: what the digest would say of them it cannot say behind one that is damaged.
    let bare = Writer { checks: false, ..writer };
    let (whole, _) = bare.file(true, &[&other, &list]);
    assert_eq!(damage(0, &[&[whole[0] ^ 1], &whole[1..]].concat()), []);
    assert_eq!(damage(whole.len() - 1, &whole), [(0, 6100)]);
    let (mixed, _) = bare.file(true, &[&other, &[Do::Match(1, 5)], &other, &list]);
    assert_eq!(damage(0, &[&[mixed[0] ^ 1], &mixed[1..]].concat()), [(100, 105), (0, 100), (105, 6205)]);
    // Another length than the header says, and something behind the end.
    assert_eq!(damage(6, &packed), [(6000, 6000)]);
    assert_eq!(damage(0, &[&[packed[0] ^ 1], &packed[1..], b"behind"].concat()), [(6000, 6000)]);
    // A chunk that is missing, of which only the digest knows.
    let mut short = [&packed[..third], &packed[packed.len() - DIGEST..]].concat();
    short[6..14].fill(0);
    let second = third - (parts[1].len() - LENGTH - DIGEST);
    short[second + 1] = 1;
    assert_eq!(damage(0, &[&[short[0] ^ 1], &short[1..]].concat()), [(4000, 4000)]);
}

#[test]
fn what_is_wrong_with_many_chunks_takes_little_memory() {
    const MANY: usize = 10_000;
    let one = [Do::Literals(b"a")];
    let chunks = vec![&one[..]; MANY];
    let writer = Writer { minor: 6, width: 2, block: 100, checks: true };
    let (packed, decoded) = writer.file(false, &chunks);
    let length = (packed.len() - LENGTH) / MANY;
    // The literal is the last but what there is to do, which ends with the CRC-32.
    let damaged = |is_wrong: &dyn Fn(usize) -> bool| {
        let mut wrong = packed.clone();
        for chunk in (0..MANY).filter(|&chunk| is_wrong(chunk)) {
            wrong[LENGTH + chunk * length + length - 1] ^= 1;
        }
        let mut pass = Lrzip.first_pass(source(&wrong), &Options::default()).unwrap();
        let mut data = vec![0; MANY];
        assert_eq!(pass.read(&mut data).unwrap(), MANY);
        assert!(pass.memory() < 1 << 20, "{}", pass.memory());
        let pass = decode(&Lrzip, &wrong);
        assert!(pass.error.is_none() && pass.data == decoded);
        pass.damage
    };
    let ranges = |damage: &[Damage]| damage.iter().map(|damage| damage.decoded.clone()).collect::<Vec<_>>();
    // Those that follow each other are one.
    let all = damaged(&|_| true);
    assert!(ranges(&all).iter().eq([&(0..MANY as u64)]), "{}", all.len());
    let last = (packed.len() - length) as u64;
    assert_eq!((all[0].compressed_from, all[0].compressed, all[0].lost_from), (LENGTH as u64, last, MANY as u64));
    assert!(all[0].what.contains("chunks"), "{}", all[0].what);
    assert_eq!(ranges(&damaged(&|chunk| chunk == 3 || (7..9).contains(&chunk))), [3..4, 7..9]);
    // Of many that do not, the last ones are one, with what is between them.
    let some = ranges(&damaged(&|chunk| chunk % 2 == 1));
    assert!(some.len() < MANY / 2, "{}", some.len());
    assert_eq!((some[0].clone(), some.last().unwrap().end), (1..2, MANY as u64));
    assert!((1..MANY as u64).step_by(2).all(|byte| some.iter().any(|range| range.contains(&byte))));

    // Without a CRC-32, every second one of them, and with a digest that is wrong.
    let bare = Writer { checks: false, ..writer };
    let (checked, unchecked) = (writer.chunk(false, &one).0, bare.chunk(false, &one).0);
    let mut wrong = packed[..LENGTH].to_vec();
    wrong[21] = 1;
    for _ in 0..MANY / 2 {
        wrong.extend([&checked[..], &unchecked].concat());
    }
    wrong.extend([0; DIGEST]);
    let mut pass = Lrzip.first_pass(source(&wrong), &Options::default()).unwrap();
    assert_eq!(pass.read(&mut vec![0; MANY]).unwrap(), MANY);
    assert!(pass.memory() < 1 << 20, "{}", pass.memory());
    let found = decode(&Lrzip, &wrong).damage;
    assert!(ranges(&found).iter().eq([&(0..MANY as u64)]), "{}", found.len());
}

#[test]
fn behind_a_chunk_of_another_length_all_may_be_out_of_step() {
    let data = noise(20_000);
    let list = [Do::Literals(&data), Do::Match(20_000, 19_999)];
    for minor in [4, 5, 6] {
        let width = if minor == 4 { 8 } else { 4 };
        let writer = Writer { minor, width, block: 1 << 16, checks: true };
        let (packed, decoded) = writer.file(true, &[&list, &list]);
        assert_eq!(decode(&Lrzip, &packed).shifts, []);
        // The length of the match of the first chunk.
        let lengths = if minor == 4 { 8 } else { 2 };
        let control = [&[0][..], &20_000_u64.to_le_bytes()[..lengths], &[1]].concat();
        let at = packed.windows(control.len()).position(|bytes| bytes == control).unwrap() + control.len();
        let mut wrong = packed.clone();
        assert_eq!(wrong[at..at + 2], 19_999_u16.to_le_bytes());
        wrong[at] -= 1;
        let pass = decode(&Lrzip, &wrong);
        assert_eq!(pass.data.len(), decoded.len() - 1, "{:?}", pass.error);
        // Older versions look for another chunk where bytes are missing.
        assert_eq!(pass.error.is_none(), minor == 6);
        assert_eq!(pass.shifts, [39_998], "0.{minor}");
        pass.assert_honest(&decoded, "a shorter match");
        // Bytes that are wrong, but as many.
        let mut wrong = packed.clone();
        let literal = wrong.windows(100).position(|bytes| bytes == &data[..100]).unwrap();
        wrong[literal] ^= 1;
        let pass = decode(&Lrzip, &wrong);
        assert_eq!(pass.damage[0].decoded, 0..39_999);
        // Older versions do not say how long a chunk is.
        assert_eq!(pass.shifts, if minor == 6 { vec![] } else { vec![39_999] }, "0.{minor}");
        // The same in the second chunk: how long it is counts, not where it ends.
        let mut wrong = packed.clone();
        let second = (literal + 100..wrong.len()).find(|&at| wrong[at..].starts_with(&data[..100])).unwrap();
        wrong[second] ^= 1;
        let pass = decode(&Lrzip, &wrong);
        assert_eq!(pass.damage[0].decoded, 39_999..79_998);
        assert_eq!(pass.shifts, if minor == 6 { vec![] } else { vec![79_998] }, "0.{minor}");
        let mut wrong = packed.clone();
        let second = (at..wrong.len()).find(|&at| wrong[at..].starts_with(&control)).unwrap() + control.len();
        wrong[second] -= 1;
        let pass = decode(&Lrzip, &wrong);
        assert!(pass.damage.iter().any(|damage| damage.decoded == (39_999..79_997)), "0.{minor}: {:?}", pass.damage);
        assert_eq!(pass.shifts, [79_997], "0.{minor}");
    }
}

#[test]
fn what_is_not_supported_is_named() {
    let data: Vec<u8> = (0..4000).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    let mut newer = lrzip("", &data);
    newer[5] = 7;
    let few = Limits { lzma_dictionary: 4096, ..Limits::default() };
    for (packed, limits, text) in [
        (lrzip("-z -T", &data), Limits::default(), "ZPAQ"),
        (lrzip_file("--encrypt=secret", &data), Limits::default(), "encrypted"),
        (newer, Limits::default(), "version 0.7"),
        (lrzip("-T", &data), few, "bytes, the limit is 4096"),
    ] {
        assert_eq!(crate::detect(&packed).map(Codec::name), Some("lrzip"));
        let pass = decode_in_steps(&Lrzip, &packed, PIECE, limits);
        assert_eq!(pass.error_kind(), ErrorKind::Unsupported, "{text}");
        let error = pass.error.unwrap().to_string();
        assert!(error.contains(text) && error.ends_with("of the compressed file"), "{error}");
    }
    assert_eq!(Lrzip.bid(b"LRZI"), 0);
    assert_eq!(Lrzip.bid(b"LZIP\x01"), 0);
}

#[test]
fn chunks_that_are_not_valid_are_refused() {
    let literals = [Do::Literals(b"0123456789")];
    let writer = Writer { minor: 6, width: 2, block: 100, checks: true };
    for list in
        [&[Do::Match(1, 5)][..], &[Do::Literals(b"abc"), Do::Match(4, 5)], &[Do::Literals(b"a"), Do::Match(0, 5)]]
    {
        let pass = decode(&Lrzip, &writer.file(true, &[&literals, list]).0);
        assert_eq!(pass.error_kind(), ErrorKind::InvalidData);
        assert!(pass.error.unwrap().to_string().contains("bytes back, before its chunk"));
        assert!(pass.data.starts_with(b"0123456789"));
    }
    let (whole, _) = writer.file(true, &[&literals]);
    // Behind the header of the file: of the chunk (4 bytes), of two streams and of a block (7 each).
    let block = LENGTH + 4 + 7 + 7;
    for (at, value, text) in [
        (LENGTH, 0, "distances have 0 bytes"),
        (LENGTH, 9, "distances have 9 bytes"),
        (LENGTH + 1, 2, "neither the last nor another"),
        (LENGTH + 4, LITERAL_METHOD, "no stream of a chunk"),
        (LENGTH + 4 + 5, 1, "lies before the one"),
        (block, 9, "method 9"),
        (block, 4, "cannot be decoded"),
        (block, 6, "properties that lrzip does not use"),
        (block + 1, 9, "another length than its data"),
        (block + 5, 14, "lies before the one"),
    ] {
        let mut wrong = whole.clone();
        // As large as they can be.
        wrong[16] = (4 * 5 + 4) * 9 + 8;
        wrong[at] = value;
        let pass = decode(&Lrzip, &wrong);
        assert_eq!(pass.error_kind(), ErrorKind::InvalidData, "{text}");
        let error = pass.error.unwrap().to_string();
        assert!(error.contains(text) && error.ends_with("of the compressed file"), "{error}");
    }
    // Between two others, as many bytes stand for it as it says, unless there cannot be so many.
    let wide = Writer { minor: 6, width: 8, block: 100, checks: true };
    let (packed, _) = wide.file(true, &[&literals, &[Do::Match(1, 5)], &literals]);
    let second = LENGTH + wide.chunk(false, &literals).0.len();
    let pass = decode(&Lrzip, &packed);
    assert!(pass.error.is_none() && pass.data.len() == 25 && pass.damage[0].decoded == (10..15), "{:?}", pass.damage);
    assert_eq!(pass.points.last().unwrap().decoded, 15, "of its own, however near");
    assert_eq!(pass.damage.len(), 1, "{:?}", pass.damage);
    for (length, is_possible) in [(1_u64 << 20, true), (1 << 60, false)] {
        let mut wrong = packed.clone();
        wrong[6..14].copy_from_slice(&(1_u64 << 61).to_le_bytes());
        wrong[second + 2..][..8].copy_from_slice(&length.to_le_bytes());
        let pass = decode(&Lrzip, &wrong);
        assert_eq!(pass.data.len() > 1 << 20, is_possible, "{length}");
        assert!(is_possible || pass.error_kind() == ErrorKind::InvalidData);
    }
    // More bytes than are needed, and fewer.
    for (length, text) in [(9, "more than its chunk needs"), (11, "more bytes than follow")] {
        let mut wrong = whole.clone();
        let control = block + 7 + 10 + 7;
        assert_eq!(wrong[control..control + 3], [0, 10, 0]);
        wrong[control + 1] = length;
        assert!(decode(&Lrzip, &wrong).error.unwrap().to_string().contains(text));
    }
}

/// As if it had been packed.
const LITERAL_METHOD: u8 = 4;

#[test]
fn a_state_that_lies_is_an_error_or_decodes() {
    let data = repetitive(600_000, 14);
    let parts: Vec<_> = data.chunks(300_000).map(|part| lrzip("-l -T", part)).collect();
    let packed = join(&parts, &data);
    let point = decode(&Lrzip, &packed).points.pop().unwrap();
    for state in [&b""[..], &[0], &[2], &[1, 0]] {
        assert!(resume(&Lrzip, &packed, &SeekPoint { state: state.to_vec(), ..point.clone() }, PIECE).is_err());
    }
    for compressed_bit in [1, 80, u64::MAX, u64::MAX - 7, packed.len() as u64 * 8 + 8, point.compressed_bit - 8] {
        assert!(resume(&Lrzip, &packed, &SeekPoint { compressed_bit, ..point.clone() }, PIECE).is_err());
    }
    assert!(resume(&Lrzip, &packed, &SeekPoint { decoded: u64::MAX, ..point }, PIECE).is_err());
}

#[test]
fn a_chunk_longer_than_the_memory_goes_through_a_file() {
    let data = repetitive(8 << 20, 15);
    let limits = Limits { decoder_window: 0, ..Limits::default() };
    for method in ["-l -T", "-n"] {
        let packed = lrzip(method, &data);
        assert!(decode_in_steps(&Lrzip, &packed, PIECE, limits).whole() == data);
        // The files that were made before are those that are borrowed.
        let scratch = Scratch::default();
        scratch.fill();
        let all = scratch.waiting();
        let options = Options { limits, scratch: scratch.clone(), ..Options::default() };
        let context = DecodeContext { limits, scratch: scratch.clone(), ..DecodeContext::default() };
        let mut pass = Lrzip.first_pass(source(&packed), &options).unwrap();
        let point = decode(&Lrzip, &packed).points[0].clone();
        let mut resumed = Lrzip.resume(source(&packed), &point, &context).unwrap();
        let mut buffer = vec![0; 6 << 20];
        let read = pass.read(&mut buffer).unwrap() + pass.read(&mut buffer).unwrap();
        assert!(read > 0 && scratch.waiting() == all - 1);
        while resumed.read(&mut buffer).unwrap() > 0 && scratch.waiting() == all - 1 {}
        assert_eq!(scratch.waiting(), all - 2);
        drop((pass, resumed));
        assert_eq!(scratch.waiting(), all);
        let mut pass = Lrzip.first_pass(source(&packed), &Options { limits, ..Options::default() }).unwrap();
        assert_eq!(length_in_little_memory(&mut *pass, 3 << 20), data.len());
    }
    // Matches from the file, from memory, and from both; and a second chunk, which has its own.
    let (first, second) = (noise(60_000), sample(60_000, 16));
    let mut list = vec![Do::Literals(&first), Do::Literals(&second)];
    for round in 1..60 {
        list.extend([
            Do::Match(120_000, 60_000),
            Do::Literals(&first),
            Do::Match(1 + round * 7000, 50_000),
            Do::Match(2, 99),
        ]);
    }
    let (packed, data) = Writer { minor: 6, width: 4, block: 1 << 20, checks: true }.file(true, &[&list, &list]);
    assert!(unpack(&packed) == data, "the test's own writer is wrong");
    assert!(decode_in_steps(&Lrzip, &packed, 10_000, limits).whole() == data);
}

#[test]
fn a_bomb_takes_no_memory() {
    let packed = lrzip("-l -T", &vec![0; 60 << 20]);
    let limits = Limits { decoder_window: 1 << 20, ..Limits::default() };
    let mut pass = Lrzip.first_pass(source(&packed), &Options { limits, ..Options::default() }).unwrap();
    assert_eq!(length_in_little_memory(&mut *pass, 3 << 20), 60 << 20);
}

#[test]
fn a_chunk_of_matches_of_no_bytes_can_be_cancelled() {
    let list: Vec<_> = (0..1_000_000).map(|_| Do::Match(1, 0)).collect();
    let (file, decoded) = Writer { minor: 6, width: 4, block: 8 << 20, checks: true }.file(true, &[&list]);
    assert_eq!(decoded, b"");
    assert!(decode(&Lrzip, &file).whole().is_empty());
    let cancel = Cancel::default();
    let options = Options { cancel: cancel.clone(), ..Options::default() };
    let source: SharedSource = Arc::new(CancelledBehind(source(&file), 1 << 20, cancel));
    let mut pass = Lrzip.first_pass(source, &options).unwrap();
    assert_eq!(pass.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::Interrupted);
}

#[test]
fn a_chain_of_empty_blocks_can_be_cancelled() {
    const BLOCK: u32 = 1 + 3 * 4;
    let block =
        |length: u32, next: u32| [&[STORED][..], &[length, length, next].map(u32::to_le_bytes).concat()].concat();
    let crc = !crc32fast::Hasher::new_with_initial(u32::MAX).finalize();
    let control = [&[0; 3][..], &crc.to_le_bytes()].concat();
    let chain = |count: u32| (2..count + 2).flat_map(|number| block(0, (number + 1) * BLOCK)).collect::<Vec<_>>();
    let count = 100_000;
    let header = [&MAGIC[..], &[0, 6], &[0; 18], &[4, 1, 0, 0, 0, 0]].concat();
    let streams = [block(0, 2 * BLOCK), block(0, 0)].concat();
    let file = [header, streams, chain(count), block(7, 0), control].concat();
    assert!(decode(&Lrzip, &file).whole().is_empty());
    let cancel = Cancel::default();
    let options = Options { cancel: cancel.clone(), ..Options::default() };
    let source: SharedSource = Arc::new(CancelledBehind(source(&file), 200_000, cancel));
    let mut pass = Lrzip.first_pass(source, &options).unwrap();
    assert_eq!(pass.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::Interrupted);
}

#[test]
fn a_history_repeats_what_was_there() {
    let mut history = History::new(&Limits { decoder_window: 0, ..Limits::default() }, Scratch::default());
    let (mut expected, mut served) = (Vec::new(), Vec::new());
    for round in 0..40 {
        history.make_room().unwrap();
        let bytes = sample(STEP / 2, round);
        let written: Result<usize, ()> = history.append(STEP / 2, |buffer| {
            buffer[..bytes.len() - 9].copy_from_slice(&bytes[..bytes.len() - 9]);
            Ok(bytes.len() - 9)
        });
        assert_eq!(written, Ok(bytes.len() - 9));
        expected.extend(&bytes[..bytes.len() - 9]);
        let distance = [1, 3, 1000, expected.len() / 2 + 1, expected.len()][round as usize % 5];
        let mut left = STEP / 3;
        while left > 0 {
            let count = history.repeat(distance as u64, left).unwrap();
            for _ in 0..count {
                expected.push(expected[expected.len() - distance]);
            }
            left -= count;
        }
        assert_eq!(history.repeat(expected.len() as u64 + 1, 5).unwrap(), 0);
        assert_eq!(history.repeat(0, 5).unwrap(), 0);
        let mut buffer = vec![0; history.unserved()];
        assert_eq!(history.serve(&mut buffer), buffer.len());
        served.extend(buffer);
        assert_eq!(history.length(), expected.len() as u64);
    }
    assert!(served == expected);
    assert!(history.memory() < 2 << 20);
    history.clear().unwrap();
    assert_eq!((history.length(), history.repeat(1, 1).unwrap()), (0, 0));
}

#[test]
fn other_projects_archives_decode_as_lrzip_does() {
    let Some(folder) = corpus("libarchive") else { return };
    let mut compared = 0;
    for path in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "lrz") {
            let bytes = std::fs::read(&path).unwrap();
            assert!(decode(&Lrzip, &bytes).whole() == unpack(&bytes), "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared >= 2, "{compared}");
}
