//! Rows: a header that says of which type each value is, and the values.

use super::pages::Text;

/// Columns that are looked at.
const MOST_COLUMNS: usize = 64;

/// A number of up to nine bytes, each with 7 bits but the last; and how many these are.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (number, &byte) in bytes.iter().enumerate().take(9) {
        if number == 8 {
            return Some((value << 8 | u64::from(byte), 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((value, number.saturating_add(1)));
        }
    }
    None
}

/// What a value is, and where in its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) kind: ValueKind,
    pub(super) at: u64,
    pub(super) length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Null,
    Integer,
    /// One that takes no bytes.
    Known(i64),
    Float,
    Blob,
    Text,
}

impl Value {
    /// The number, of which these are the bytes.
    pub(super) fn number(self, bytes: &[u8]) -> Option<i64> {
        match self.kind {
            ValueKind::Known(number) => Some(number),
            ValueKind::Integer => {
                let start = if bytes.first()? & 0x80 == 0 { 0_i64 } else { -1 };
                Some(bytes.iter().fold(start, |number, &byte| number << 8 | i64::from(byte)))
            }
            ValueKind::Float => Some(f64::from_be_bytes(*bytes.first_chunk()?) as i64),
            ValueKind::Text => std::str::from_utf8(bytes).ok()?.trim().parse().ok(),
            ValueKind::Null | ValueKind::Blob => None,
        }
    }
}

/// Bytes of the header of the row that begins with `bytes`.
pub(super) fn header_length(bytes: &[u8]) -> Option<u64> {
    varint(bytes).map(|(length, _)| length)
}

/// The values of a row that begins with `bytes`, among them all of its header, and has `length` in all. `None` if they
/// do not fit into it.
pub(super) fn values(bytes: &[u8], length: u64) -> Option<Vec<Value>> {
    let (header, mut at) = varint(bytes)?;
    let end = usize::try_from(header).ok()?;
    let types = bytes.get(..end)?;
    let (mut values, mut place) = (Vec::new(), header);
    while at < end && values.len() < MOST_COLUMNS {
        let (serial, taken) = varint(types.get(at..)?)?;
        at = at.saturating_add(taken);
        let (kind, bytes) = match serial {
            0 => (ValueKind::Null, 0),
            1..=4 => (ValueKind::Integer, serial),
            5 => (ValueKind::Integer, 6),
            6 => (ValueKind::Integer, 8),
            7 => (ValueKind::Float, 8),
            8 => (ValueKind::Known(0), 0),
            9 => (ValueKind::Known(1), 0),
            10 | 11 => return None,
            _ if serial % 2 == 0 => (ValueKind::Blob, serial.saturating_sub(12) / 2),
            _ => (ValueKind::Text, serial.saturating_sub(13) / 2),
        };
        values.push(Value { kind, at: place, length: bytes });
        place = place.checked_add(bytes).filter(|end| *end <= length)?;
    }
    Some(values)
}

/// Text in UTF-8.
pub(super) fn decoded(text: Text, bytes: Vec<u8>) -> Vec<u8> {
    let Text::Utf16 { is_big } = text else { return bytes };
    let (units, _) = bytes.as_chunks::<2>();
    let units = units.iter().map(|unit| if is_big { u16::from_be_bytes(*unit) } else { u16::from_le_bytes(*unit) });
    let characters = char::decode_utf16(units).map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER));
    characters.collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_apart() {
        assert_eq!(varint(&[0x81, 0x00]), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9]), Some((u64::MAX, 9)));
        assert_eq!((varint(&[0x80]), varint(&[])), (None, None));
        // NULL, -2, 0, 1, "ab", a blob of one byte.
        let row = [7, 0, 1, 8, 9, 17, 14, 0xfe, b'a', b'b', 7];
        let found = values(&row, row.len() as u64).unwrap();
        let number = |at: usize| found[at].number(&row[found[at].at as usize..][..found[at].length as usize]);
        assert_eq!([0, 1, 2, 3].map(number), [None, Some(-2), Some(0), Some(1)]);
        assert_eq!((found[4].kind, found[4].at, found[4].length), (ValueKind::Text, 8, 2));
        assert_eq!((found[5].kind, found[5].at, found[5].length), (ValueKind::Blob, 10, 1));
        assert!(values(&row, 10).is_none() && values(&row[..3], 11).is_none());
        assert!(values(&[2, 10], 2).is_none());
        assert_eq!(decoded(Text::Utf16 { is_big: true }, vec![0, 0x61, 0, 0xe4]), "aä".as_bytes());
    }
}
