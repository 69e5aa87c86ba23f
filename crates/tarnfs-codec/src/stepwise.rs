//! Reading from a decoder that goes on in steps of its format, some of which decode nothing.

use std::io;

/// A decoder that goes on by one part of its format at a time.
pub(crate) trait Stepwise {
    /// Goes on by one part, or by what fits into `buffer`; returns the bytes written, which may be none.
    fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// True behind the last part.
    fn has_ended(&self) -> bool;

    /// Ends after an error: [`Stepwise::has_ended`] from now on.
    fn end(&mut self);

    /// Where an error waits that came after bytes which have to be returned first.
    fn waiting(&mut self) -> &mut Option<io::Error>;
}

/// Moves what `decoded` holds from `served` on into `buffer`, as much as fits; returns how many bytes.
pub(crate) fn hand_out(decoded: &[u8], served: &mut usize, buffer: &mut [u8]) -> usize {
    let rest = decoded.get(*served..).unwrap_or_default();
    let length = rest.len().min(buffer.len());
    buffer[..length].copy_from_slice(&rest[..length]);
    *served += length;
    length
}

/// Steps until `buffer` is full, as [`Decoder::read`](crate::Decoder::read) promises it.
pub(crate) fn read(decoder: &mut impl Stepwise, buffer: &mut [u8]) -> io::Result<usize> {
    if let Some(error) = decoder.waiting().take() {
        return Err(error);
    }
    let mut filled = 0;
    while filled < buffer.len() && !decoder.has_ended() {
        match decoder.step(&mut buffer[filled..]) {
            Ok(written) => filled += written,
            Err(error) => {
                decoder.end();
                if filled == 0 {
                    return Err(error);
                }
                *decoder.waiting() = Some(error);
            }
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of as many bytes each; what is behind them is an error.
    struct Steps {
        lengths: Vec<usize>,
        ended: bool,
        waiting: Option<io::Error>,
    }

    impl Stepwise for Steps {
        fn step(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.lengths.pop().ok_or(io::ErrorKind::InvalidData)?.min(buffer.len());
            buffer[..length].fill(1);
            Ok(length)
        }

        fn has_ended(&self) -> bool {
            self.ended
        }

        fn end(&mut self) {
            self.ended = true;
        }

        fn waiting(&mut self) -> &mut Option<io::Error> {
            &mut self.waiting
        }
    }

    #[test]
    fn an_error_comes_once_and_after_the_bytes_before_it() {
        let mut steps = Steps { lengths: vec![1, 0, 2, 0], ended: false, waiting: None };
        let mut buffer = [0; 8];
        assert_eq!(read(&mut steps, &mut buffer[..0]).unwrap(), 0);
        assert_eq!(read(&mut steps, &mut buffer).unwrap(), 3);
        assert_eq!(buffer[..4], [1, 1, 1, 0]);
        assert_eq!(read(&mut steps, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&mut steps, &mut buffer).unwrap(), 0);
    }
}
