//! LZMA2 data as liblzma decodes them: where it comes to an end, the same bytes; where it finds an error, ours are the same as far as both go.

use liblzma::stream::{Action, Filters, Status, Stream};
use tarnfs_codec::{Options, by_name};

use super::{MOST_DECODED, limits, source};

/// Largest dictionary, as LZMA2 writes it: 16 MiB.
const MOST_BITS: u8 = 24;

/// The first byte chooses the dictionary, the others are chunks.
pub fn lzma2(data: &[u8]) {
    let Some((&bits, chunks)) = data.split_first() else { return };
    let bits = bits % (MOST_BITS + 1);
    let (theirs, ended) = by_liblzma(bits, chunks);
    let Some(ours) = by_tarnfs(bits, chunks) else { return };
    let both = theirs.len().min(ours.len());
    assert!(theirs[..both] == ours[..both], "other bytes");
    if ended && theirs.len() < MOST_DECODED as usize {
        assert!(ours.len() == theirs.len(), "{} bytes, liblzma has {}", ours.len(), theirs.len());
    }
}

fn by_liblzma(bits: u8, chunks: &[u8]) -> (Vec<u8>, bool) {
    let mut filters = Filters::new();
    filters.lzma2_properties(&[bits]).expect("a dictionary that can be");
    let mut stream = Stream::new_raw_decoder(&filters).expect("memory for a dictionary");
    let (mut decoded, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let (taken, written) = (stream.total_in(), stream.total_out());
        let result = stream.process(&chunks[taken as usize..], &mut buffer, Action::Finish);
        decoded.extend_from_slice(&buffer[..(stream.total_out() - written) as usize]);
        match result {
            Ok(Status::StreamEnd) => return (decoded, true),
            Ok(_)
                if decoded.len() < MOST_DECODED as usize
                    && (stream.total_in(), stream.total_out()) != (taken, written) => {}
            _ => return (decoded, false),
        }
    }
}

/// What comes before the first damage; behind it the decoder goes on.
fn by_tarnfs(bits: u8, chunks: &[u8]) -> Option<Vec<u8>> {
    let with_crc = |bytes: &[u8]| [bytes, &crc32fast::hash(bytes).to_le_bytes()].concat();
    // A stream without checks, and a block of LZMA2 alone.
    let file = [&b"\xFD7zXZ\0"[..], &with_crc(&[0, 0]), &with_crc(&[2, 0, 0x21, 1, bits, 0, 0, 0]), chunks].concat();
    let options = Options { limits: limits(), ..Options::default() };
    let mut pass = by_name("xz")?.first_pass(source(&file), &options).expect("it starts");
    let (mut decoded, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(read @ 1..) = pass.read(&mut buffer) {
        decoded.extend_from_slice(&buffer[..read]);
        if decoded.len() as u64 >= MOST_DECODED {
            break;
        }
    }
    let mut damage = Vec::new();
    pass.take_damage(&mut damage);
    decoded.truncate(damage.iter().map(|damage| damage.decoded.start).min().unwrap_or(u64::MAX) as usize);
    Some(decoded)
}
