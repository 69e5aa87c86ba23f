//! The pieces of a file and their coders, in the form in which an index keeps them.

use std::sync::Arc;

use tarnfs_format::{Coder, Input, MOST_OF_CODERS, Piece, Step};

use crate::Error;
use crate::writer::record::{read_bytes, read_number, write_bytes, write_number};

/// Bytes of the names and properties of one coder. A key derivation's salt, or the properties of a filter, take a few
/// dozen.
const LONGEST_CODER: usize = 4096;

/// Steps of one coder; 7-Zip writes up to 4.
const MOST_STEPS: usize = 32;

/// Streams that go into one step.
const MOST_INPUTS: usize = 32;

/// Bit of what stands behind a step: it has a length.
const HAS_LENGTH: u64 = 1;

/// Pieces of one file: each takes some hundred bytes of memory while the file is open. In blocks of 128 KiB that is a
/// file of 128 GiB.
const MOST_PIECES: usize = 1 << 20;

/// Bits of the number that stands before a coder's.
const HAS_CRC: u64 = 1;
const IS_SHARED: u64 = 2;

fn signed(number: u64) -> i64 {
    (number >> 1) as i64 ^ ((number & 1) as i64).wrapping_neg()
}

fn unsigned(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// Appends `pieces` of the entry with that `header`. `number_of` numbers coders from 1 on.
pub(crate) fn write<E>(
    bytes: &mut Vec<u8>,
    pieces: &[Piece],
    header: u64,
    mut number_of: impl FnMut(&Arc<Coder>) -> Result<u32, E>,
) -> Result<(), E> {
    let mut expected = header;
    for piece in pieces {
        let number = piece.coder.as_ref().map_or(Ok(0), &mut number_of)?;
        let is_shared = number != 0 && (piece.skip, piece.decoded) != (0, piece.length);
        let bits = if piece.crc.is_some() { HAS_CRC } else { 0 } | if is_shared { IS_SHARED } else { 0 };
        write_number(bytes, bits | u64::from(number) << 2);
        write_number(bytes, piece.hole);
        write_number(bytes, piece.length);
        write_number(bytes, unsigned(piece.offset.wrapping_sub(expected) as i64));
        if number != 0 {
            write_number(bytes, piece.stored);
        }
        if is_shared {
            write_number(bytes, piece.decoded);
            write_number(bytes, piece.skip);
        }
        if let Some(crc) = piece.crc {
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        expected = piece.offset.wrapping_add(piece.stored);
    }
    Ok(())
}

/// The inverse of [`write`]. `size` is the file's, `stream` the length of what offsets count in, or the most that there
/// can be where the archive may be cut.
pub(crate) fn read(
    bytes: &[u8],
    header: u64,
    size: u64,
    stream: u64,
    coder_of: impl FnMut(u32) -> Result<Arc<Coder>, Error>,
) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    each(bytes, header, size, stream, coder_of, |piece| {
        pieces.push(piece);
        true
    })?;
    Ok(pieces)
}

/// The same, one by one: each is handed to `receive`, until that returns false.
pub(crate) fn each(
    mut bytes: &[u8],
    header: u64,
    size: u64,
    stream: u64,
    mut coder_of: impl FnMut(u32) -> Result<Arc<Coder>, Error>,
    mut receive: impl FnMut(Piece) -> bool,
) -> Result<(), Error> {
    let wrong = |what: &str| Error::Broken(format!("the pieces of a file {what}"));
    let (mut count, mut expected, mut end) = (0_usize, header, 0_u64);
    let (mut last, mut coders) = (None::<(u32, Arc<Coder>)>, 0_usize);
    while !bytes.is_empty() {
        if count >= MOST_PIECES {
            return Err(wrong("are too many"));
        }
        count = count.saturating_add(1);
        let what = read_number(&mut bytes);
        let (hole, length) = (read_number(&mut bytes), read_number(&mut bytes));
        let offset = expected.wrapping_add(signed(read_number(&mut bytes)) as u64);
        let number = u32::try_from(what >> 2).map_err(|_| wrong("name no coder"))?;
        let stored = if number == 0 { length } else { read_number(&mut bytes) };
        let (decoded, skip) =
            if what & IS_SHARED == 0 { (length, 0) } else { (read_number(&mut bytes), read_number(&mut bytes)) };
        let crc = if what & HAS_CRC == 0 {
            None
        } else {
            let (crc, rest) = bytes.split_first_chunk().ok_or_else(|| wrong("end in a checksum"))?;
            bytes = rest;
            Some(u32::from_le_bytes(*crc))
        };
        end = end.checked_add(hole).and_then(|start| start.checked_add(length)).unwrap_or(u64::MAX);
        if length == 0 || end > size || skip.checked_add(length).is_none_or(|end| end > decoded) {
            return Err(wrong("go past its end"));
        }
        expected = offset
            .checked_add(stored)
            .filter(|&end| end <= stream)
            .ok_or_else(|| wrong("go past the end of the archive"))?;
        // Nearly always that of the piece before: an index may name others in turn, each of which would be kept.
        let coder = match (number, &last) {
            (0, _) => None,
            (number, Some((known, coder))) if *known == number => Some(Arc::clone(coder)),
            (number, _) => {
                let coder = coder_of(number)?;
                coders = coders.saturating_add(coder.weight());
                if coders > MOST_OF_CODERS {
                    return Err(wrong("have too many coders"));
                }
                last = Some((number, Arc::clone(&coder)));
                Some(coder)
            }
        };
        if !receive(Piece { hole, length, offset, stored, coder, decoded, skip, crc }) {
            break;
        }
    }
    Ok(())
}

/// Bytes of the archive up to which pieces go.
pub(crate) fn reach(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.offset.saturating_add(piece.stored)).max().unwrap_or_default()
}

/// A coder as it is kept: the name of the format of its header, or nothing; then name and properties of each step. A
/// step whose length or inputs are told has, as another one without a name behind it, these as properties.
pub(crate) fn write_coder(bytes: &mut Vec<u8>, coder: &Coder) {
    bytes.clear();
    write_bytes(bytes, coder.is_behind_header.as_deref().unwrap_or_default().as_bytes());
    for step in &coder.steps {
        write_bytes(bytes, step.codec.as_bytes());
        write_bytes(bytes, &step.properties);
        if step.decoded_length.is_some() || !step.inputs.is_empty() {
            write_bytes(bytes, &[]);
            write_bytes(bytes, &more_of(step));
        }
    }
}

/// Twice the number of inputs, plus 1 if there is a length; the length; for each input 0, offset and length of stored
/// bytes, or the number of a step, from 1.
fn more_of(step: &Step) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_number(&mut bytes, (step.inputs.len() as u64) << 1 | u64::from(step.decoded_length.is_some()));
    step.decoded_length.into_iter().for_each(|length| write_number(&mut bytes, length));
    for input in &step.inputs {
        match *input {
            Input::Stored { offset, length } => {
                for number in [0, offset, length] {
                    write_number(&mut bytes, number);
                }
            }
            Input::Step(number) => write_number(&mut bytes, (number as u64).saturating_add(1)),
        }
    }
    bytes
}

/// The inverse of [`more_of`], of the step with this `number`.
fn read_more(mut bytes: &[u8], step: &mut Step, number: usize) -> Option<()> {
    if step.decoded_length.is_some() || !step.inputs.is_empty() {
        return None;
    }
    let what = read_number(&mut bytes);
    step.decoded_length = (what & HAS_LENGTH != 0).then(|| read_number(&mut bytes));
    let count = usize::try_from(what >> 1).ok().filter(|&count| count <= MOST_INPUTS)?;
    for _ in 0..count {
        step.inputs.push(match read_number(&mut bytes).checked_sub(1) {
            None => Input::Stored { offset: read_number(&mut bytes), length: read_number(&mut bytes) },
            Some(before) => Input::Step(usize::try_from(before).ok().filter(|&before| before < number)?),
        });
    }
    bytes.is_empty().then_some(())
}

/// The inverse of [`write_coder`].
pub(crate) fn read_coder(mut bytes: &[u8]) -> Result<Coder, Error> {
    let wrong = || Error::Broken("a coder makes no sense".to_owned());
    if bytes.len() > LONGEST_CODER {
        return Err(wrong());
    }
    let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| wrong());
    let behind = name(read_bytes(&mut bytes))?;
    let mut steps: Vec<Step> = Vec::new();
    while !bytes.is_empty() {
        let (codec, properties) = (name(read_bytes(&mut bytes))?, read_bytes(&mut bytes));
        let is_more = codec.is_empty();
        if !codec.is_empty() {
            steps.push(Step { codec, properties: properties.to_vec(), ..Step::default() });
        }
        let number = steps.len().checked_sub(1).filter(|&number| number < MOST_STEPS).ok_or_else(wrong)?;
        if let Some(step) = steps.last_mut().filter(|_| is_more) {
            read_more(properties, step, number).ok_or_else(wrong)?;
        }
    }
    Ok(Coder { steps, is_behind_header: Some(behind).filter(|behind| !behind.is_empty()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Vec<Piece> {
        let lzma = Step { codec: "lzma".to_owned(), properties: vec![1, 2], ..Step::default() };
        let known = Step { decoded_length: Some(1 << 40), ..lzma.clone() };
        let inputs = vec![Input::Step(0), Input::Stored { offset: 3, length: 300 }, Input::Step(1)];
        let steps = vec![lzma.clone(), known, Step { inputs, ..lzma }];
        let coder = Arc::new(Coder { steps, is_behind_header: Some("zip".to_owned()) });
        let stored = Piece { hole: 3, length: 10, offset: 500, stored: 10, decoded: 10, ..Piece::default() };
        let whole = Piece { coder: Some(coder), length: 100, offset: 20, stored: 40, decoded: 100, ..stored.clone() };
        let part = Piece { skip: 5, length: 95, crc: Some(7), offset: 1 << 40, ..whole.clone() };
        vec![stored, whole, part]
    }

    fn written(pieces: &[Piece]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let (mut bytes, mut coders) = (Vec::new(), Vec::new());
        write::<()>(&mut bytes, pieces, 600, |coder| {
            let mut bytes = Vec::new();
            write_coder(&mut bytes, coder);
            coders.push(bytes);
            Ok(coders.len() as u32)
        })
        .unwrap();
        (bytes, coders)
    }

    #[test]
    fn what_is_written_is_read() {
        let (bytes, coders) = written(&pieces());
        let coder_of = |number: u32| Ok(Arc::new(read_coder(&coders[number as usize - 1]).unwrap()));
        assert_eq!(read(&bytes, 600, 214, u64::MAX, coder_of).unwrap(), pieces());
        for most in 1..=3 {
            let mut some = Vec::new();
            let receive = |piece| {
                some.push(piece);
                some.len() < most
            };
            each(&bytes, 600, 214, u64::MAX, coder_of, receive).unwrap();
            assert_eq!(some, pieces()[..most]);
        }
        assert!(read(&bytes, 600, 213, u64::MAX, coder_of).is_err(), "past the file's end");
        assert!(read(&bytes, 600, 214, 1 << 40, coder_of).is_err(), "past the archive's end");
        assert_eq!(reach(&pieces()), (1 << 40) + 40);
    }

    #[test]
    fn what_lies_is_refused() {
        let (bytes, _) = written(&pieces());
        let coder_of = |_| Ok(Arc::default());
        for length in 0..bytes.len() {
            // Of what is cut, some is nothing; nothing is read behind the end.
            let _ = read(&bytes[..length], 600, 1000, u64::MAX, coder_of);
            let mut flipped = bytes.clone();
            flipped[length] ^= 0xff;
            let _ = read(&flipped, 600, 1000, u64::MAX, coder_of);
        }
        let too_far = Piece { skip: 6, ..pieces().remove(2) };
        assert!(read(&written(&[too_far]).0, 600, 1000, u64::MAX, coder_of).is_err());
        assert!(read_coder(&vec![0; LONGEST_CODER + 1]).is_err());
        assert!(read_coder(&[0; 100]).is_err(), "too many steps");
        assert!(read_coder(&[1, 0xff]).is_err());
        // Behind a step "a": another one as its input, and more inputs than there are.
        assert!(read_coder(&[0, 1, b'a', 0, 0, 2, 2, 1]).is_err());
        assert!(read_coder(&[0, 1, b'a', 0, 0, 2, 66, 0]).is_err());
        assert!(read_coder(&[0, 1, b'a', 0, 0, 2, 1, 7]).is_ok());
    }

    /// An index may name others in turn, each of which would be kept.
    #[test]
    fn coders_of_a_file_are_bounded_by_what_they_take() {
        let heavy = Step { properties: vec![0; MOST_OF_CODERS / 10], ..Step::default() };
        let heavy = Arc::new(Coder { steps: vec![heavy], is_behind_header: None });
        let coder = Some(Arc::new(Coder::default()));
        let piece = Piece { coder, length: 10, offset: 600, stored: 0, decoded: 10, ..Piece::default() };
        for (changes, is_right) in [(9, true), (10, false)] {
            let bytes = written(&vec![piece.clone(); changes]).0;
            let coder_of = |_| Ok(Arc::clone(&heavy));
            assert_eq!(read(&bytes, 600, 1 << 20, u64::MAX, coder_of).is_ok(), is_right, "{changes}");
        }
    }

    /// Each guard by itself: all else of these pieces is right.
    #[test]
    fn a_piece_lies_in_its_file_and_in_the_archive() {
        let plain = Piece { length: 10, offset: 500, stored: 10, decoded: 10, ..Piece::default() };
        let coder = Some(Arc::new(Coder::default()));
        let coded = Piece { coder, stored: 7, ..plain.clone() };
        let read = |piece: &Piece, size, stream| {
            read(&written(std::slice::from_ref(piece)).0, 600, size, stream, |_| Ok(Arc::default())).is_ok()
        };
        for (what, piece, size, stream, is_right) in [
            ("all of it", &plain, 10, 510, true),
            ("behind the file", &plain, 9, 510, false),
            ("behind the archive", &plain, 10, 509, false),
            ("what is stored counts", &coded, 10, 507, true),
            ("packed, behind the archive", &coded, 10, 506, false),
            ("nothing", &Piece { length: 0, ..plain.clone() }, 10, 510, false),
            ("a hole before it", &Piece { hole: 5, ..plain.clone() }, 15, 510, true),
            ("too large a hole", &Piece { hole: 6, ..plain.clone() }, 15, 510, false),
            ("a hole without end", &Piece { hole: u64::MAX, ..plain.clone() }, 1 << 40, 510, false),
            ("a part", &Piece { skip: 5, decoded: 15, ..coded.clone() }, 10, 510, true),
            ("a part behind the end", &Piece { skip: 6, decoded: 15, ..coded.clone() }, 10, 510, false),
            ("a part far behind it", &Piece { skip: u64::MAX, decoded: 15, ..coded.clone() }, 10, 510, false),
            ("the last bytes", &Piece { offset: u64::MAX - 10, ..plain.clone() }, 10, u64::MAX, true),
            ("bytes behind the last", &Piece { offset: u64::MAX - 9, ..plain.clone() }, 10, u64::MAX, false),
        ] {
            assert_eq!(read(piece, size, stream), is_right, "{what}");
        }
        // A checksum that is cut, and a coder that has no number.
        let mut bytes = written(&[Piece { crc: Some(7), ..plain.clone() }]).0;
        bytes.pop();
        assert!(super::read(&bytes, 600, 10, 510, |_| Ok(Arc::default())).is_err());
        let mut bytes = Vec::new();
        write_number(&mut bytes, 1 << 34);
        bytes.extend(&written(&[coded]).0[1..]);
        let refused = super::read(&bytes, 600, 10, 510, |_| Ok(Arc::default()));
        assert!(matches!(&refused, Err(Error::Broken(what)) if what.contains("no coder")), "{refused:?}");
    }

    /// What takes memory while a file is open is bounded.
    #[test]
    fn a_file_has_so_many_pieces_and_coders() {
        let piece = [0_u8, 0, 1, 0];
        let counted = |bytes: &[u8]| {
            let mut count = 0;
            let size = bytes.len() as u64;
            each(
                bytes,
                0,
                size,
                u64::MAX,
                |_| Ok(Arc::default()),
                |_| {
                    count += 1;
                    true
                },
            )
            .map(|()| count)
        };
        assert_eq!(counted(&piece.repeat(MOST_PIECES)).unwrap(), MOST_PIECES);
        assert!(counted(&piece.repeat(MOST_PIECES + 1)).is_err());
        // Coders number 1 and 2 in turn, and one that stays.
        let of_coder = |number: u8| [number << 2, 0, 1, 0, 1];
        let turns = |count: usize| (0..count).flat_map(|turn| of_coder(1 + turn as u8 % 2)).collect::<Vec<_>>();
        let most = MOST_OF_CODERS / Coder::default().weight();
        assert_eq!(counted(&turns(most)).unwrap(), most);
        assert!(counted(&turns(most + 1)).is_err());
        assert!(counted(&of_coder(1).repeat(most + 1)).is_ok());
    }

    #[test]
    fn a_coder_is_what_was_written() {
        // The name of no format, and steps "a" without properties.
        let steps = |count: usize| [&[0][..], &[1, b'a', 0].repeat(count)].concat();
        assert_eq!(read_coder(&steps(MOST_STEPS)).unwrap().steps.len(), MOST_STEPS);
        assert!(read_coder(&steps(MOST_STEPS + 1)).is_err());
        let long = |length: usize| {
            let (low, high) = (length as u8 | 0x80, (length >> 7) as u8);
            [&[0, 1, b'a', low, high][..], &vec![7; length]].concat()
        };
        let most = LONGEST_CODER - 5;
        assert_eq!(read_coder(&long(most)).unwrap().steps[0].properties.len(), most);
        assert!(read_coder(&long(most + 1)).is_err());
        // More of a step that is not there.
        assert!(read_coder(&[0, 0, 2, 1, 7]).is_err());
        let more = |more: &[u8]| read_coder(&[&[0, 1, b'a', 0, 1, b'b', 0, 0, more.len() as u8][..], more].concat());
        // Its inputs: nothing, the step before it, itself, as many as there may be, one more.
        assert!(more(&[0]).is_ok() && more(&[2, 1]).is_ok() && more(&[2, 2]).is_err());
        let many = |count: usize| [&[2 * count as u8][..], &[1].repeat(count)].concat();
        assert!(more(&many(MOST_INPUTS)).is_ok() && more(&many(MOST_INPUTS + 1)).is_err());
        // Something behind them, and more of the same step once more.
        assert!(more(&[2, 1, 9]).is_err());
        assert!(read_coder(&[0, 1, b'a', 0, 0, 2, 1, 7, 0, 2, 1, 8]).is_err());
        assert!(read_coder(&[0, 1, b'a', 0, 0, 4, 2, 0, 3, 5, 0, 2, 1, 8]).is_err());
    }
}
