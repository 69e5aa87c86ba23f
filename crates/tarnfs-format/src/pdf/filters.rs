//! What undoes the filters of a stream, in the form of the decoder.

use std::io;
use std::sync::Arc;

use super::document::{Document, Stream};
use super::object::{Dict, Object};
use crate::image::damaged;

/// Filters of a stream.
const MOST: usize = 7;

/// Sixteenths of a step that undoing a filter takes for each byte that comes of it: deflate copies what comes again,
/// the others look at each byte.
const FAST: u64 = 1;
const SLOW: u64 = 8;
/// The same for each value where several share a byte, and for each row of a predictor.
const VALUE: u64 = 3;
const ROW: u64 = 16;

/// Sixteenths of a step that each byte takes which comes of these stages. Bytes between two of them are no more than a
/// few for each: the decoder sees to that.
pub(super) fn cost(stages: &[u8]) -> u64 {
    let (mut sum, mut rest) = (0_u64, stages);
    while let Some(&kind) = rest.first() {
        // Of these, no more comes than four times of what goes in. What is stored is paid for already.
        let is_paid = rest.len() == stages.len() && matches!(kind, 3 | 4 | 7);
        let each = match rest {
            [1 | 8, ..] => FAST,
            &[6, kind, colors, bits, a, b, c, d, ..] => {
                let columns = u64::from(u32::from_le_bytes([a, b, c, d]));
                let row = columns.saturating_mul(u64::from(colors)).saturating_mul(u64::from(bits)).div_ceil(8).max(1);
                let values = if kind == 2 { 8_u64.checked_div(bits.into()).unwrap_or_default() } else { 0 };
                SLOW.max(VALUE.saturating_mul(values)).saturating_add(ROW.div_ceil(row))
            }
            _ => SLOW,
        };
        sum = sum.saturating_add(if is_paid { 0 } else { each });
        rest = behind(rest).unwrap_or_default();
    }
    sum
}

/// What is behind the first one of these stages.
fn behind(stages: &[u8]) -> Option<&[u8]> {
    /// What is behind the number of the one that decrypts, and how many strings are behind that.
    const OF_CIPHER: usize = 14;
    const STRINGS: usize = 5;
    let (&kind, mut rest) = stages.split_first()?;
    match (kind, rest) {
        (2, _) => rest.get(1..),
        (6, _) => rest.get(7..),
        (7, _) => {
            rest = rest.get(OF_CIPHER..)?;
            for _ in 0..STRINGS {
                let (&length, string) = rest.split_first()?;
                rest = string.get(usize::from(length)..)?;
            }
            Some(rest)
        }
        (8, &[low, high, ref bytes @ ..]) => bytes.get(usize::from(u16::from_le_bytes([low, high]))..),
        (1 | 3..=5, _) => Some(rest),
        // A file is made then: nothing is behind that.
        _ => None,
    }
}

/// Filters that are undone, and what is left then.
#[derive(Debug, PartialEq)]
pub(super) struct Filters {
    /// For the decoder, in the order in which they are undone.
    pub(super) stages: Vec<u8>,
    pub(super) tail: Tail,
}

/// What comes of them.
#[derive(Debug, PartialEq)]
pub(super) enum Tail {
    Bytes,
    /// A file of that kind.
    Jpeg,
    Jpeg2000,
    /// Fax, and how it is coded.
    Fax(Dict),
    /// JBIG2, and what several images share.
    Jbig2(Object),
    /// What is not known.
    Unknown(Vec<u8>),
}

/// The filters of a stream. What decrypts it comes first: `cipher`, unless it says by itself what does.
pub(super) fn of(document: &mut Document<'_>, stream: &Stream, cipher: Option<Vec<u8>>) -> io::Result<Filters> {
    let dict = &stream.dict;
    let mut names = document.get(dict, "Filter")?;
    if names == Object::Null {
        names = document.get(dict, "F")?;
    }
    let mut parameters = document.get(dict, "DecodeParms")?;
    if parameters == Object::Null {
        parameters = document.get(dict, "DP")?;
    }
    let names = match names {
        Object::Array(names) => names,
        Object::Name(name) => Arc::new(vec![Object::Name(name)]),
        _ => Arc::default(),
    };
    let parameters = match parameters {
        Object::Array(parameters) => parameters,
        Object::Dict(dict) => Arc::new(vec![Object::Dict(dict)]),
        _ => Arc::default(),
    };
    if names.len() > MOST {
        return Err(damaged("a stream has too many filters"));
    }
    let (mut stages, mut cipher) = (Vec::new(), cipher);
    let mut tail = Tail::Bytes;
    for (number, name) in names.iter().enumerate() {
        // Nothing can be undone that was done before it.
        if matches!(tail, Tail::Unknown(_)) {
            break;
        }
        if tail != Tail::Bytes {
            return Err(damaged("something was done with an image that was compressed"));
        }
        let name = document.resolve(name)?;
        let of_it = parameters.get(number).cloned().unwrap_or(Object::Null);
        let of_it = document.resolve(&of_it)?.dict().cloned().unwrap_or_default();
        match name.name().unwrap_or_default() {
            b"FlateDecode" | b"Fl" => {
                stages.push(1);
                predictor(document, &of_it, &mut stages)?;
            }
            b"LZWDecode" | b"LZW" => {
                let early = document.get(&of_it, "EarlyChange")?.integer().unwrap_or(1);
                stages.extend([2, u8::from(early != 0)]);
                predictor(document, &of_it, &mut stages)?;
            }
            b"ASCII85Decode" | b"A85" => stages.push(3),
            b"ASCIIHexDecode" | b"AHx" => stages.push(4),
            b"RunLengthDecode" | b"RL" => stages.push(5),
            b"DCTDecode" | b"DCT" => tail = Tail::Jpeg,
            b"JPXDecode" => tail = Tail::Jpeg2000,
            b"CCITTFaxDecode" | b"CCF" => tail = Tail::Fax(of_it),
            b"JBIG2Decode" => tail = Tail::Jbig2(of_it.get("JBIG2Globals").cloned().unwrap_or(Object::Null)),
            b"Crypt" => {
                // It takes the place of what decrypts others.
                cipher = None;
                let of_it = document.get(&of_it, "Name")?;
                let own = of_it.name().filter(|name| *name != b"Identity");
                if let Some(own) = own {
                    let encryption = document.encryption.as_ref();
                    match encryption.and_then(|encryption| encryption.named_stage(own, stream.id)) {
                        Some(stage) => stages.extend(stage),
                        None => tail = Tail::Unknown(name.name().unwrap_or_default().to_vec()),
                    }
                }
            }
            other => tail = Tail::Unknown(other.to_vec()),
        }
    }
    if let Some(cipher) = cipher {
        stages.splice(0..0, cipher);
    }
    Ok(Filters { stages, tail })
}

fn predictor(document: &mut Document<'_>, parameters: &Dict, stages: &mut Vec<u8>) -> io::Result<()> {
    let mut number = |name: &str, default: i64| -> io::Result<i64> {
        Ok(document.get(parameters, name)?.integer().unwrap_or(default))
    };
    let kind = number("Predictor", 1)?;
    if kind > 1 {
        let numbers = [kind, number("Colors", 1)?, number("BitsPerComponent", 8)?];
        let columns = u32::try_from(number("Columns", 1)?);
        let [_, colors, bits] = numbers;
        let bits_of_pixel = u64::try_from(colors.saturating_mul(bits)).unwrap_or(0);
        let wrong = || damaged("a predictor that cannot be");
        let numbers: Result<Vec<u8>, _> = numbers.into_iter().map(u8::try_from).collect();
        stages.push(6);
        stages.extend(numbers.map_err(|_| wrong())?);
        let columns = columns.map_err(|_| wrong())?;
        stages.extend(columns.to_le_bytes());
        // Nothing comes out before the end of a row.
        document.spend(u64::from(columns).saturating_mul(bits_of_pixel).div_ceil(8))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_cost_what_they_do_with_each_byte() {
        let cipher = [&[7; 15][..], &[2, 0, 0, 0, 0, 1, 9, 0]].concat();
        for (stages, expected) in [
            (&[][..], 0),
            (&[1], FAST),
            (&[3, 1], FAST),
            (&[1, 3], FAST + SLOW),
            (&[3, 3, 5], 2 * SLOW),
            (&[1, 6, 15, 3, 8, 100, 0, 0, 0, 4, 1], 2 * FAST + 2 * SLOW + 1),
            // Rows of one byte take longer, and so does what looks at each bit.
            (&[1, 6, 15, 1, 8, 1, 0, 0, 0], FAST + SLOW + ROW),
            (&[1, 6, 2, 1, 1, 1, 0, 0, 0], FAST + 8 * VALUE + ROW),
            (&[1, 6, 2, 1, 4, 0, 1, 0, 0], FAST + SLOW + 1),
            (&[6, 2, 0, 0, 0, 0, 0, 0], SLOW + ROW),
            (&[6, 2, 1, 1], SLOW),
            (&[2, 1, 8, 2, 0, 3, 3, 1], SLOW + 2 * FAST),
            (&[&cipher[..], &[1]].concat(), FAST),
            (&[&[1][..], &cipher, &[1]].concat(), 2 * FAST + SLOW),
            // What is no stage costs something, and ends it.
            (&[1, 7, 3, 1], FAST + SLOW),
            (&[1, 99, 1], FAST + SLOW),
        ] {
            assert_eq!(cost(stages), expected, "{stages:?}");
        }
    }
}
