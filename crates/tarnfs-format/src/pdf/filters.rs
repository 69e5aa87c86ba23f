//! What undoes the filters of a stream, in the form of the decoder.

use std::io;
use std::sync::Arc;

use super::document::{Document, Stream};
use super::object::{Dict, Object};
use crate::image::damaged;

/// Filters of a stream.
const MOST: usize = 7;

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
