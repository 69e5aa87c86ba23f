//! Images as files. What a format of images has before its data is made here.

use std::io;

use super::document::{Document, Stream};
use super::filters::{Filters, Tail};
use super::object::{Dict, Object};
use crate::image::damaged;

/// Stages of the decoder that make files.
const PREFIX: u8 = 8;
const PNG: u8 = 9;

/// Bytes of pixels in a PNG that is made: its parts have lengths of 31 bits.
const MOST_PIXELS: u64 = 1 << 30;

/// Bytes of a block that is stored in deflated data.
const BLOCK: u64 = 65535;

/// Names of colours in each other.
const MOST_LEVELS: usize = 8;

/// A file that is made of an image.
#[derive(Debug)]
pub(super) struct Image {
    /// What its name ends in.
    pub(super) end: &'static str,
    /// What undoes its filters and makes it.
    pub(super) stages: Vec<u8>,
    /// How long it is; else, what is made of the stages has to be counted, but for these bytes before them.
    pub(super) size: Option<u64>,
}

/// Colours of pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Colors {
    Gray,
    /// 0 is no ink, which is white.
    Ink,
    Rgb,
    Cmyk,
    Indexed(Vec<u8>),
    Other(u8),
}

impl Colors {
    fn count(&self) -> u64 {
        match self {
            Self::Gray | Self::Ink | Self::Indexed(_) => 1,
            Self::Rgb => 3,
            Self::Cmyk => 4,
            Self::Other(count) => u64::from(*count),
        }
    }
}

/// The file that the image in `stream` is. `fax`: bytes of fax, if it is one.
pub(super) fn of(document: &mut Document<'_>, stream: &Stream, filters: Filters, fax: u64) -> io::Result<Image> {
    let dict = &stream.dict;
    let Filters { mut stages, tail } = filters;
    let stored = stages.is_empty().then_some(stream.length);
    let as_stored = |end: &'static str, stages| Ok(Image { end, stages, size: stored });
    let parameters = match tail {
        Tail::Jpeg => return as_stored(".jpg", stages),
        Tail::Jpeg2000 => return as_stored(".jp2", stages),
        Tail::Jbig2(_) => return as_stored(".jb2e", stages),
        Tail::Unknown(_) => return as_stored(".bin", stages),
        Tail::Fax(parameters) => Some(parameters),
        Tail::Bytes => None,
    };
    let mut side = |long: &str, short: &str| -> io::Result<u32> {
        let mut value = document.get(dict, long)?;
        if value == Object::Null {
            value = document.get(dict, short)?;
        }
        let side = value.unsigned().and_then(|side| u32::try_from(side).ok()).filter(|side| *side > 0);
        side.ok_or_else(|| damaged("an image without a size"))
    };
    let (width, height) = (side("Width", "W")?, side("Height", "H")?);
    // What the lowest value stands for.
    let lowest = match document.get(dict, "Decode")? {
        Object::Array(range) => range.first().and_then(Object::number),
        _ => None,
    };
    let is_inverted = lowest == Some(1.0);
    if let Some(parameters) = parameters {
        let header = of_fax(document, &parameters, (width, height), is_inverted, fax)?;
        prefix(&mut stages, &header)?;
        return Ok(Image { end: ".tif", stages, size: Some(fax.saturating_add(header.len() as u64)) });
    }
    let is_mask = matches!(document.get(dict, "ImageMask")?, Object::Bool(true));
    let bits = if is_mask { 1 } else { document.get(dict, "BitsPerComponent")?.integer().unwrap_or(8) };
    let bits = u8::try_from(bits).ok().filter(|bits| matches!(bits, 1 | 2 | 4 | 8 | 16));
    let bits = bits.ok_or_else(|| damaged("an image with bits that cannot be"))?;
    let colors = if is_mask { Colors::Gray } else { colors(document, dict.get("ColorSpace"), 0)? };
    let row = u64::from(width).saturating_mul(colors.count()).saturating_mul(bits.into()).div_ceil(8);
    let bytes = row.saturating_mul(height.into());
    let is_png = match colors {
        Colors::Gray | Colors::Ink | Colors::Indexed(_) => !(bits == 16 && matches!(colors, Colors::Indexed(_))),
        Colors::Rgb => bits >= 8,
        Colors::Cmyk | Colors::Other(_) => false,
    };
    if is_png && bytes.saturating_add(height.into()) <= MOST_PIXELS {
        // In a table, values stand for places and not for light.
        let is_inverted = match colors {
            Colors::Indexed(_) => {
                lowest == Some(u32::MAX.checked_shr(32_u32.saturating_sub(bits.into())).unwrap_or(0).into())
            }
            _ => is_inverted,
        };
        return Ok(png((width, height), bits, &colors, is_inverted, row, stages));
    }
    if matches!(colors, Colors::Cmyk | Colors::Rgb) && bits >= 8 && bytes <= u64::from(u32::MAX >> 1) {
        let header = print((width, height), bits, &colors, bytes);
        let size = bytes.saturating_add(header.len() as u64);
        prefix(&mut stages, &header)?;
        return Ok(Image { end: ".tif", stages, size: Some(size) });
    }
    as_stored(".raw", stages)
}

/// The stage that gives these bytes, which are no more than some thousands.
pub(super) fn literal(bytes: &[u8]) -> Vec<u8> {
    let mut stages = vec![PREFIX];
    stages.extend((bytes.len() as u16).to_le_bytes());
    stages.extend(bytes);
    stages
}

fn prefix(stages: &mut Vec<u8>, header: &[u8]) -> io::Result<()> {
    let length = u16::try_from(header.len()).map_err(|_| damaged("an image with too many colours"))?;
    stages.push(PREFIX);
    stages.extend(length.to_le_bytes());
    stages.extend(header);
    Ok(())
}

/// The colours that `space` says.
fn colors(document: &mut Document<'_>, space: Option<&Object>, level: usize) -> io::Result<Colors> {
    if level > MOST_LEVELS {
        return Err(damaged("colours that lead to themselves"));
    }
    let space = document.resolve(space.unwrap_or(&Object::Null))?;
    let (name, parts) = match &space {
        Object::Name(name) => (name.clone(), &[][..]),
        Object::Array(parts) => {
            let first = document.resolve(parts.first().unwrap_or(&Object::Null))?;
            (first.name().unwrap_or_default().to_vec(), parts.get(1..).unwrap_or_default())
        }
        _ => (Vec::new(), &[][..]),
    };
    Ok(match name.as_slice() {
        b"DeviceRGB" | b"RGB" | b"CalRGB" => Colors::Rgb,
        b"DeviceCMYK" | b"CMYK" => Colors::Cmyk,
        b"Lab" => Colors::Other(3),
        b"ICCBased" => {
            let profile = document.stream(parts.first().unwrap_or(&Object::Null))?;
            let dict = profile.map(|profile| profile.dict).unwrap_or_default();
            match document.get(&dict, "N")?.integer() {
                Some(1) => Colors::Gray,
                Some(4) => Colors::Cmyk,
                _ => Colors::Rgb,
            }
        }
        b"Separation" => Colors::Ink,
        b"DeviceN" => {
            let names = document.resolve(parts.first().unwrap_or(&Object::Null))?;
            match names.array().map_or(1, <[Object]>::len) {
                1 => Colors::Ink,
                4 => Colors::Cmyk,
                count => Colors::Other(u8::try_from(count).map_err(|_| damaged("too many colours"))?),
            }
        }
        b"Indexed" | b"I" => {
            let base = colors(document, parts.first(), level.saturating_add(1))?;
            let table = parts.get(2).cloned().unwrap_or(Object::Null);
            let bytes = match document.resolve(&table)? {
                Object::String(string) => string,
                _ => match document.stream(&table)? {
                    Some(stream) => document.decoded(&stream)?,
                    None => Vec::new(),
                },
            };
            match base {
                // Three of them need not be red, green and blue.
                Colors::Other(_) => Colors::Other(1),
                base => Colors::Indexed(palette(&base, &bytes)),
            }
        }
        _ => Colors::Gray,
    })
}

/// A table of colours as red, green and blue.
fn palette(base: &Colors, table: &[u8]) -> Vec<u8> {
    let count = usize::try_from(base.count()).unwrap_or(1).max(1);
    let mut palette = Vec::new();
    for color in table.chunks_exact(count).take(256) {
        match color {
            [ink] if *base == Colors::Ink => palette.extend([255_u8.saturating_sub(*ink); 3]),
            [gray] => palette.extend([*gray; 3]),
            [red, green, blue] => palette.extend([*red, *green, *blue]),
            [inks @ .., black] if inks.len() == 3 => {
                let light = u16::from(255_u8.saturating_sub(*black));
                palette.extend(inks.iter().map(|ink| {
                    let light = u16::from(255_u8.saturating_sub(*ink)).saturating_mul(light);
                    (light / 255) as u8
                }));
            }
            _ => palette.extend([0; 3]),
        }
    }
    palette
}

/// A PNG: the decoder makes it of the pixels, without compressing them.
fn png(
    (width, height): (u32, u32),
    bits: u8,
    colors: &Colors,
    is_inverted: bool,
    row: u64,
    mut stages: Vec<u8>,
) -> Image {
    let mut table = match colors {
        Colors::Indexed(table) => table.clone(),
        _ => Vec::new(),
    };
    let kind = match colors {
        Colors::Rgb => 2,
        Colors::Indexed(_) => 3,
        _ => 0,
    };
    if kind == 3 {
        // Each value that a pixel may have is in it.
        table.resize(3_usize.saturating_mul(1 << bits.min(8)), 0);
        if is_inverted {
            table = table.as_chunks::<3>().0.iter().rev().flatten().copied().collect();
        }
    }
    let is_inverted = (is_inverted != (*colors == Colors::Ink)) && kind != 3;
    stages.push(PNG);
    stages.extend(width.to_le_bytes());
    stages.extend(height.to_le_bytes());
    stages.extend([bits, kind, u8::from(is_inverted)]);
    stages.extend((table.len() as u16).to_le_bytes());
    let of_table = if kind == 3 { table.len().saturating_add(12) as u64 } else { 0 };
    stages.extend(table);
    let bytes = row.saturating_add(1).saturating_mul(height.into());
    let blocks = bytes.div_ceil(BLOCK).max(1);
    // The signature and the first chunk, that of colours, and those of data and of the end, with what zlib adds.
    let size = 33_u64.saturating_add(of_table).saturating_add(12 + 12 + 2 + 4);
    let size = size.saturating_add(bytes).saturating_add(blocks.saturating_mul(5));
    Image { end: ".png", stages, size: Some(size) }
}

/// A field of a TIFF.
type Field = (u16, u16, u32, u32);

const SHORT: u16 = 3;
const LONG: u16 = 4;

/// The head of a TIFF of one strip, which follows it. `beside` is what does not fit into its fields. Samples of 16 bits
/// have the higher byte first in PDF: all numbers have then.
fn tiff(fields: &[Field], beside: &[u8], place_of_data: usize, is_big: bool) -> Vec<u8> {
    let short = |value: u16| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
    let long = |value: u32| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut header = if is_big { b"MM".to_vec() } else { b"II".to_vec() };
    header.extend(short(42));
    header.extend(long(8));
    header.extend(short(fields.len() as u16));
    let length = 8_usize.saturating_add(2).saturating_add(fields.len().saturating_mul(12)).saturating_add(4);
    let behind = length.saturating_add(beside.len()) as u32;
    for (number, &(tag, kind, count, value)) in fields.iter().enumerate() {
        let value = match value {
            _ if number == place_of_data => behind,
            // Where what does not fit lies.
            u32::MAX => length as u32,
            value => value,
        };
        header.extend(short(tag));
        header.extend(short(kind));
        header.extend(long(count));
        // A short one stands at the start of its place.
        header.extend(long(if is_big && kind == SHORT && count == 1 { value << 16 } else { value }));
    }
    header.extend([0; 4]);
    header.extend(beside);
    header
}

/// The head of a TIFF of fax.
fn of_fax(
    document: &mut Document<'_>,
    parameters: &Dict,
    (width, height): (u32, u32),
    is_inverted: bool,
    length: u64,
) -> io::Result<Vec<u8>> {
    let kind = document.get(parameters, "K")?.integer().unwrap_or(0);
    let columns = document.get(parameters, "Columns")?.unsigned().and_then(|columns| u32::try_from(columns).ok());
    let width = columns.filter(|columns| *columns > 0).unwrap_or(if columns.is_none() { 1728 } else { width });
    let is_black_1 = matches!(document.get(parameters, "BlackIs1")?, Object::Bool(true));
    let is_aligned = matches!(document.get(parameters, "EncodedByteAlign")?, Object::Bool(true));
    let length = u32::try_from(length).map_err(|_| damaged("an image is too long for a TIFF"))?;
    // Runs of black are black, but where they are 1 and that is white.
    let photometric = u32::from(is_black_1 != is_inverted);
    let (compression, options) = match kind {
        ..0 => (4, (293, LONG, 1, 0)),
        // Lines that begin where bytes do.
        0 => (3, (292, LONG, 1, if is_aligned { 4 } else { 0 })),
        _ => (3, (292, LONG, 1, if is_aligned { 5 } else { 1 })),
    };
    let fields = [
        (256, LONG, 1, width),
        (257, LONG, 1, height),
        (258, SHORT, 1, 1),
        (259, SHORT, 1, compression),
        (262, SHORT, 1, photometric),
        (273, LONG, 1, 0),
        (277, SHORT, 1, 1),
        (278, LONG, 1, height),
        (279, LONG, 1, length),
        options,
    ];
    Ok(tiff(&fields, &[], 5, false))
}

/// The head of a TIFF of pixels.
fn print((width, height): (u32, u32), bits: u8, colors: &Colors, bytes: u64) -> Vec<u8> {
    let (count, photometric) = if *colors == Colors::Cmyk { (4, 5) } else { (3, 2) };
    let is_big = bits == 16;
    let bits = u16::from(bits);
    let bits = if is_big { bits.to_be_bytes() } else { bits.to_le_bytes() };
    let each: Vec<u8> = (0..count).flat_map(|_| bits).collect();
    let fields = [
        (256, LONG, 1, width),
        (257, LONG, 1, height),
        (258, SHORT, count, u32::MAX),
        (259, SHORT, 1, 1),
        (262, SHORT, 1, photometric),
        (273, LONG, 1, 0),
        (277, SHORT, 1, count),
        (278, LONG, 1, height),
        (279, LONG, 1, bytes as u32),
        (284, SHORT, 1, 1),
    ];
    tiff(&fields, &each, 5, is_big)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples are stored as PDF has them: the header says in which order their bytes are.
    #[test]
    fn samples_of_16_bits_have_the_higher_byte_first() {
        let header = print((2, 3), 16, &Colors::Cmyk, 48);
        assert_eq!(header[..10], *b"MM\0*\0\0\0\x08\0\x0a");
        let field = |number: usize| &header[10 + 12 * number..22 + 12 * number];
        assert_eq!(field(0), [1, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2]);
        // The bits of each sample lie behind the fields, and the compression in its own.
        assert_eq!(field(2), [1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 134]);
        assert_eq!(header[134..], [0, 16].repeat(4));
        assert_eq!(field(3), [1, 3, 0, 3, 0, 0, 0, 1, 0, 1, 0, 0]);
        assert_eq!(field(5), [1, 0x11, 0, 4, 0, 0, 0, 1, 0, 0, 0, 142]);
        assert!(print((2, 3), 8, &Colors::Cmyk, 24).starts_with(b"II*\0\x08\0\0\0\x0a\0"));
    }

    #[test]
    fn ink_of_a_table_is_dark() {
        assert_eq!(palette(&Colors::Ink, &[0, 255]), [255, 255, 255, 0, 0, 0]);
        assert_eq!(palette(&Colors::Gray, &[0, 255]), [0, 0, 0, 255, 255, 255]);
    }
}
