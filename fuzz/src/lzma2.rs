//! LZMA2 data as liblzma decodes them: where it comes to an end, the same bytes; where it finds an error, ours are the
//! same as far as both go.

use liblzma::stream::{Action, Filters, Status, Stream};
use tarnfs_codec::{Damage, Options, by_name};

use super::{MOST_DECODED, limits, source};

/// Largest dictionary, as LZMA2 writes it: 16 MiB.
const MOST_BITS: u8 = 24;

/// The first byte chooses the dictionary, the others are chunks.
pub fn lzma2(data: &[u8]) {
    let Some((&bits, chunks)) = data.split_first() else { return };
    let bits = bits % (MOST_BITS + 1);
    let (theirs, end) = by_liblzma(bits, chunks);
    if let Some(end) = end.filter(|_| theirs.len() < MOST_DECODED as usize) {
        let whole = file(bits, &chunks[..end], Some(theirs.len()));
        let (ours, damage) = by_tarnfs(&whole);
        assert!(damage.is_none(), "liblzma finds nothing wrong: {damage:?}");
        assert!(ours == theirs, "{} bytes, liblzma has {}, or others", ours.len(), theirs.len());
        return;
    }
    let (ours, damage) = by_tarnfs(&file(bits, chunks, None));
    let right = damage.map_or(u64::MAX, |damage| damage.decoded.start) as usize;
    let both = theirs.len().min(ours.len()).min(right);
    assert!(theirs[..both] == ours[..both], "other bytes");
}

/// What is decoded, and how many bytes of input that took if they came to an end.
fn by_liblzma(bits: u8, chunks: &[u8]) -> (Vec<u8>, Option<usize>) {
    let mut filters = Filters::new();
    filters.lzma2_properties(&[bits]).expect("a dictionary that can be");
    let mut stream = Stream::new_raw_decoder(&filters).expect("memory for a dictionary");
    let (mut decoded, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let (taken, written) = (stream.total_in(), stream.total_out());
        let result = stream.process(&chunks[taken as usize..], &mut buffer, Action::Finish);
        decoded.extend_from_slice(&buffer[..(stream.total_out() - written) as usize]);
        match result {
            Ok(Status::StreamEnd) => return (decoded, Some(stream.total_in() as usize)),
            Ok(_)
                if decoded.len() < MOST_DECODED as usize
                    && (stream.total_in(), stream.total_out()) != (taken, written) => {}
            _ => return (decoded, None),
        }
    }
}

/// A stream without checks, and a block of LZMA2 alone; with its end (xz file format, 2.1.2 and 4) if it is known how
/// many bytes are in it.
fn file(bits: u8, chunks: &[u8], decoded: Option<usize>) -> Vec<u8> {
    let with_crc = |bytes: &[u8]| [bytes, &crc32fast::hash(bytes).to_le_bytes()].concat();
    let padded = |mut bytes: Vec<u8>| {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let block = [&with_crc(&[2, 0, 0x21, 1, bits, 0, 0, 0]), chunks].concat();
    let unpadded = block.len();
    let mut file = [&b"\xFD7zXZ\0"[..], &with_crc(&[0, 0]), &padded(block)].concat();
    let Some(decoded) = decoded else {
        file.truncate(file.len() - (unpadded.next_multiple_of(4) - unpadded));
        return file;
    };
    let index = with_crc(&padded([&[0, 1][..], &number(unpadded), &number(decoded)].concat()));
    let backward = (index.len() as u32 / 4 - 1).to_le_bytes();
    let footer = [&backward[..], &[0, 0]].concat();
    file.extend([&index[..], &crc32fast::hash(&footer).to_le_bytes(), &footer, b"YZ"].concat());
    file
}

/// A multibyte integer (xz file format, 1.2).
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// What is handed out, and the first damage.
fn by_tarnfs(file: &[u8]) -> (Vec<u8>, Option<Damage>) {
    let options = Options { limits: limits(), ..Options::default() };
    let mut pass = by_name("xz").expect("it is there").first_pass(source(file), &options).expect("it starts");
    let (mut decoded, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(read @ 1..) = pass.read(&mut buffer) {
        decoded.extend_from_slice(&buffer[..read]);
        if decoded.len() as u64 >= MOST_DECODED {
            break;
        }
    }
    let mut damage = Vec::new();
    pass.take_damage(&mut damage);
    (decoded, damage.into_iter().min_by_key(|damage| damage.decoded.start))
}
