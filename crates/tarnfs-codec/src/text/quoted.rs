//! Quoted-printable (RFC 2045): "=4A" is a byte, "=" at the end of a line joins it with the next one. Any other "=" is
//! itself.

use std::io;

use tarnfs_source::SharedSource;

use super::{Letters, Text};
use crate::{Codec, DecodeContext, Decoder, FirstPass, Options, Pace, SeekPoint};

/// The codec.
#[derive(Debug)]
pub(crate) struct QuotedPrintable;

impl Codec for QuotedPrintable {
    fn name(&self) -> &'static str {
        "quoted-printable"
    }

    fn pace(&self) -> Pace {
        Pace { bytes_per_millisecond: 500_000, in_whole_chunks: false }
    }

    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Text::first_pass(source, 0, Escapes::default(), options)))
    }

    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Text::resume(source, 0, Escapes::default(), point, context)?))
    }
}

/// Where in an escape it is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Escapes {
    #[default]
    Plain,
    /// Behind "=".
    Escaped,
    /// Behind "=" and a digit.
    Digit(u8),
    /// Behind "=" and a carriage return, up to the end of the line.
    ToEnd,
}

fn value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

impl Letters for Escapes {
    fn decode(&mut self, text: &[u8], is_last: bool, bytes: &mut Vec<u8>) -> Result<(), (usize, &'static str)> {
        let mut rest = text;
        loop {
            if *self == Self::Plain {
                let plain = rest.iter().position(|&letter| letter == b'=').unwrap_or(rest.len());
                bytes.extend_from_slice(&rest[..plain]);
                rest = &rest[plain..];
            }
            let Some((&letter, behind)) = rest.split_first() else { break };
            rest = behind;
            *self = match *self {
                Self::Plain => Self::Escaped,
                Self::Escaped | Self::ToEnd if letter == b'\n' => Self::Plain,
                Self::ToEnd => Self::ToEnd,
                Self::Escaped if letter == b'\r' => Self::ToEnd,
                Self::Escaped if letter == b'=' => {
                    bytes.push(b'=');
                    Self::Plain
                }
                Self::Escaped if value(letter).is_some() => Self::Digit(letter),
                Self::Escaped => {
                    bytes.extend_from_slice(&[b'=', letter]);
                    Self::Plain
                }
                Self::Digit(first) => {
                    match (value(first), value(letter)) {
                        (Some(high), Some(low)) => bytes.push(high << 4 | low),
                        _ if letter == b'=' => bytes.extend_from_slice(&[b'=', first]),
                        _ => bytes.extend_from_slice(&[b'=', first, letter]),
                    }
                    if letter == b'=' { Self::Escaped } else { Self::Plain }
                }
            };
        }
        if let (Self::Digit(first), true) = (*self, is_last) {
            bytes.extend_from_slice(&[b'=', first]);
        }
        Ok(())
    }

    fn is_between(&self) -> bool {
        *self == Self::Plain
    }

    fn has_ended(&self) -> bool {
        false
    }
}
