//! ASCIIHex, ASCII85 and RunLength.

use std::io;

use super::{Feed, Undo};

/// Two digits for each byte, up to ">".
#[derive(Default)]
pub(super) struct AsciiHex {
    has_ended: bool,
}

impl Undo for AsciiHex {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        let (mut written, mut high) = (0, None);
        while written < output.len() && !self.has_ended {
            let Some(letter) = input.next()? else {
                self.has_ended = true;
                break;
            };
            let Some(value) = char::from(letter).to_digit(16).map(|value| value as u8) else {
                match letter {
                    b'>' => self.has_ended = true,
                    letter if letter.is_ascii_whitespace() || letter == 0 => {}
                    _ => return Err(input.wrong("a character that ASCIIHex does not have")),
                }
                continue;
            };
            match high.take() {
                None => high = Some(value),
                Some(high) => {
                    output[written] = high << 4 | value;
                    written += 1;
                }
            }
        }
        // The last digit may be missing: it is 0.
        if let (Some(high), true) = (high, self.has_ended) {
            output[written] = high << 4;
            written += 1;
        }
        Ok(written)
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}

/// Five characters for four bytes, up to "~>".
#[derive(Default)]
pub(super) struct Ascii85 {
    has_ended: bool,
    left: Vec<u8>,
}

impl Ascii85 {
    /// The bytes of so many characters, of which the last ones may be missing.
    fn group(digits: &[u8]) -> Option<Vec<u8>> {
        let mut value = 0_u64;
        for number in 0..5 {
            value = value * 85 + u64::from(digits.get(number).copied().unwrap_or(84));
        }
        let value = u32::try_from(value).ok()?;
        Some(value.to_be_bytes()[..digits.len() - 1].to_vec())
    }

    fn next(&mut self, input: &mut Feed) -> io::Result<()> {
        let (mut digits, mut count) = ([0; 5], 0);
        while count < 5 {
            match input.next()? {
                Some(letter @ b'!'..=b'u') => {
                    digits[count] = letter - b'!';
                    count += 1;
                }
                Some(b'z') if count == 0 => {
                    self.left = vec![0; 4];
                    return Ok(());
                }
                None | Some(b'~') => {
                    self.has_ended = true;
                    break;
                }
                Some(letter) if letter.is_ascii_whitespace() || letter == 0 => {}
                Some(_) => return Err(input.wrong("a character that ASCII85 does not have")),
            }
        }
        // One alone says nothing.
        if count > 1 {
            let bytes = Self::group(&digits[..count]);
            self.left = bytes.ok_or_else(|| input.wrong("characters of ASCII85 that are no bytes"))?;
        }
        Ok(())
    }
}

impl Undo for Ascii85 {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < output.len() {
            if self.left.is_empty() {
                if self.has_ended {
                    break;
                }
                self.next(input)?;
                continue;
            }
            let length = self.left.len().min(output.len() - written);
            output[written..written + length].copy_from_slice(&self.left[..length]);
            self.left.drain(..length);
            written += length;
        }
        Ok(written)
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}

/// Runs of bytes: a length below 128 and one more byte than that as they are, or one above it and a byte to repeat.
#[derive(Default)]
pub(super) struct RunLength {
    /// How many bytes are still to come, and the one that is repeated.
    left: usize,
    repeated: Option<u8>,
    has_ended: bool,
}

impl Undo for RunLength {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < output.len() && !self.has_ended {
            if self.left == 0 {
                match input.next()? {
                    None | Some(128) => self.has_ended = true,
                    Some(length @ 0..128) => (self.left, self.repeated) = (usize::from(length) + 1, None),
                    Some(length) => {
                        let byte = input.next()?.ok_or_else(|| input.wrong("a run without its byte"))?;
                        (self.left, self.repeated) = (257 - usize::from(length), Some(byte));
                    }
                }
                continue;
            }
            let byte = match self.repeated {
                Some(byte) => byte,
                None => input.next()?.ok_or_else(|| input.wrong("a run is cut short"))?,
            };
            output[written] = byte;
            written += 1;
            self.left -= 1;
        }
        Ok(written)
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
    }
}
