//! The same bytes as libzstd decodes, or an error where it has one.
//!
//! Intended differences, each passed over below:
//!
//! - Zeros behind the last frame are padding here, and an error there; an empty stream is the other way around.
//! - libzstd lets matches begin before the window, as long as the bytes happen to be in its buffer.
//! - A stream of literals must end with its last bit (RFC 8878 §4.2.2). Where libzstd decodes two at a time or four
//!   side by side, it passes over what is left or missing behind the last one, and over a missing end mark.
//! - The table for the weights of a Huffman code has no symbols that no weight is. libzstd minds only where one is
//!   used.
//! - Where it streams, libzstd passes over a compressed block without a byte, and over the content's length in a header
//!   if the last block is empty. `ZSTD_decompress` does not, and has the last word.
//! - An empty dictionary is none there, and refused here.

use tarnfs_codec::Dictionaries;
use tarnfs_codec::engine::Indexing;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::{LARGEST_WINDOW_LOG, MOST_DECODED, limits, source};

/// What `data` decodes to with this dictionary (empty for none), and where in it libzstd stopped, if it did so before
/// the end.
fn with_libzstd(data: &[u8], dictionary: &[u8]) -> (Vec<u8>, Option<usize>) {
    let mut context = DCtx::create();
    context.load_dictionary(dictionary).unwrap();
    context.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW_LOG)).unwrap();
    let (mut decoded, mut buffer) = (Vec::new(), vec![0; 128 << 10]);
    let mut input = InBuffer::around(data);
    let mut frame = 0;
    loop {
        let mut output = OutBuffer::around(&mut buffer[..]);
        let result = context.decompress_stream(&mut output, &mut input);
        decoded.extend_from_slice(output.as_slice());
        match result {
            Ok(0) if input.pos() == data.len() => return (decoded, None),
            Ok(0) => frame = input.pos(),
            Ok(_) if output.as_slice().is_empty() && input.pos() == data.len() => return (decoded, Some(frame)),
            Ok(_) if decoded.len() as u64 <= MOST_DECODED => {}
            _ => return (decoded, Some(frame)),
        }
    }
}

/// Whether libzstd decodes `data` at once, to no more than `length` bytes.
fn at_once(data: &[u8], dictionary: &[u8], length: usize) -> bool {
    let mut context = DCtx::create();
    context.load_dictionary(dictionary).unwrap();
    context.decompress(&mut vec![0; length][..], data).is_ok()
}

/// Decodes a stream with the codec and with libzstd.
pub fn zstd_differential(data: &[u8]) {
    compare(data, &[]);
}

/// The same with a dictionary: its length in two bytes, little-endian, then it, then the stream.
pub fn zstd_dictionary(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk() else { return };
    let Some((dictionary, stream)) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length))) else { return };
    compare(stream, dictionary);
}

fn compare(data: &[u8], dictionary: &[u8]) {
    if data.is_empty() {
        return;
    }
    let mut dictionaries = Dictionaries::default();
    if !dictionary.is_empty() {
        let added = dictionaries.add(dictionary.to_vec());
        let theirs = DCtx::create().load_dictionary(dictionary);
        if let Err(what) = added {
            assert!(theirs.is_err() || is_intended(&what), "libzstd takes the dictionary, but {what}");
            return;
        }
        assert!(theirs.is_ok(), "libzstd refuses the dictionary");
    }
    let codec = tarnfs_codec::by_name("zstd").expect("it is in the table");
    let options = tarnfs_codec::Options { limits: limits(), dictionaries, ..tarnfs_codec::Options::default() };
    let mut indexing = Indexing::new(codec, source(data), &options).unwrap();
    let (mut decoded, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let error = loop {
        match indexing.read(&mut buffer) {
            Ok(0) => break None,
            Ok(read) => decoded.extend_from_slice(&buffer[..read]),
            Err(error) => break Some(error.to_string()),
        }
        if decoded.len() as u64 > MOST_DECODED {
            return;
        }
    };
    let mut damage = Vec::new();
    indexing.take_damage(&mut damage);
    let what = error.into_iter().chain(damage.into_iter().map(|damage| damage.what)).next();
    let (expected, stopped) = with_libzstd(data, dictionary);
    match (what, stopped) {
        (None, None) => assert!(decoded == expected, "other bytes"),
        (None, Some(at)) => {
            assert!(decoded == expected, "other bytes");
            assert!(at > 0 && data[at..].iter().all(|&byte| byte == 0), "libzstd refuses the frame at {at}");
        }
        (Some(what), None) => {
            let passes = is_intended(&what) || !at_once(data, dictionary, expected.len());
            assert!(passes, "libzstd decodes it, but {what}");
        }
        (Some(_), Some(_)) => {}
    }
}

/// True for what is refused on purpose.
fn is_intended(what: &str) -> bool {
    ["before the window", "a stream of literals", "the weights of a Huffman code have"]
        .iter()
        .any(|reason| what.contains(reason))
}
