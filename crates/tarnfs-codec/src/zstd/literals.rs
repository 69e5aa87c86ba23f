//! The literals of a block (RFC 8878 §3.1.1.3.1).

use super::block::Invalid;
use super::frame::LARGEST_BLOCK;
use super::huffman::Huffman;

/// Bytes behind the literals that may be read, and mean nothing.
pub(super) const LITERALS_MARGIN: usize = 64;

/// Fewer literals are in one stream.
const LEAST_FOR_FOUR: usize = 6;

/// So may end what was made with a dictionary that is not there.
pub(super) const NO_CODE: Invalid = "literals with the code of the block before, which had none";

const CUT: Invalid = "the literals of a block are cut";

/// The literals of one block after another.
pub(super) struct Literals {
    bytes: Box<[u8]>,
    length: usize,
    /// Where in the block they stand as they are, if nothing of them is in `bytes`.
    in_block: Option<usize>,
    /// The code that a block may use again.
    huffman: Huffman,
    has_code: bool,
}

/// What the header of the literals says.
struct Header {
    form: Form,
    /// Bytes of the header, of what is behind it, and of what that becomes.
    length: usize,
    compressed: usize,
    decoded: usize,
    streams: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Raw,
    Repeated,
    Compressed,
    /// With the code of the last block that had one.
    SameCode,
}

impl Header {
    fn parse(block: &[u8]) -> Result<Self, Invalid> {
        let first = *block.first().ok_or(CUT)?;
        let form = [Form::Raw, Form::Repeated, Form::Compressed, Form::SameCode][usize::from(first & 3)];
        let size_format = first >> 2 & 3;
        let number = |length: usize| -> Result<u64, Invalid> {
            let mut bytes = [0; 8];
            bytes[..length].copy_from_slice(block.get(..length).ok_or(CUT)?);
            Ok(u64::from_le_bytes(bytes))
        };
        let sized = |length: usize, shift: u32| {
            let decoded = (number(length)? >> shift) as usize;
            let compressed = if form == Form::Raw { decoded } else { 1 };
            Ok(Self { form, length, compressed, decoded, streams: 1 })
        };
        let compressed = |length: usize, bits: u32| {
            let sizes = number(length)? >> 4;
            let mask = (1 << bits) - 1;
            let streams = if size_format == 0 { 1 } else { 4 };
            let (decoded, compressed) = ((sizes & mask) as usize, (sizes >> bits & mask) as usize);
            Ok(Self { form, length, compressed, decoded, streams })
        };
        match (form, size_format) {
            (Form::Raw | Form::Repeated, 0 | 2) => sized(1, 3),
            (Form::Raw | Form::Repeated, 1) => sized(2, 4),
            (Form::Raw | Form::Repeated, _) => sized(3, 4),
            (_, 0 | 1) => compressed(3, 10),
            (_, 2) => compressed(4, 14),
            _ => compressed(5, 18),
        }
    }
}

impl Literals {
    pub(super) fn new() -> Self {
        Self { bytes: Self::memory(), length: 0, in_block: None, huffman: Huffman::new(), has_code: false }
    }

    /// Room for the literals of any block.
    pub(super) fn memory() -> Box<[u8]> {
        vec![0; LARGEST_BLOCK as usize + LITERALS_MARGIN].into_boxed_slice()
    }

    /// Gives the literals of `block`, which was decoded last, for other [`Literals::memory`], and returns how many they
    /// are.
    pub(super) fn exchange(&mut self, memory: &mut Box<[u8]>, block: &[u8]) -> usize {
        if self.in_block.is_some() {
            let literals = self.with_margin(block);
            memory[..literals.len()].copy_from_slice(literals);
        } else {
            std::mem::swap(&mut self.bytes, memory);
        }
        std::mem::take(&mut self.length)
    }

    /// Forgets the code: a frame begins.
    pub(super) fn reset(&mut self) {
        self.has_code = false;
    }

    /// The code that is known.
    pub(super) fn code(&self) -> Option<&Huffman> {
        self.has_code.then_some(&self.huffman)
    }

    /// Knows this code from now on.
    pub(super) fn know(&mut self, code: &Huffman) {
        self.huffman.clone_from(code);
        self.has_code = true;
    }

    /// Knows the code of these weights from now on.
    pub(super) fn set_code(&mut self, weights: &[u8]) -> Result<(), Invalid> {
        self.has_code = true;
        self.huffman.make(weights)
    }

    /// Decodes the literals of `block`, and returns how many bytes they take in it.
    pub(super) fn decode(&mut self, block: &[u8]) -> Result<usize, Invalid> {
        let header = Header::parse(block)?;
        let end = header.length + header.compressed;
        let content = block.get(header.length..end).ok_or(CUT)?;
        self.in_block = None;
        if header.form == Form::Raw && end + LITERALS_MARGIN <= block.len() && header.decoded <= LARGEST_BLOCK as usize
        {
            (self.in_block, self.length) = (Some(header.length), header.decoded);
            return Ok(end);
        }
        let most = self.bytes.len() - LITERALS_MARGIN;
        let output = self.bytes[..most].get_mut(..header.decoded).ok_or("more literals than a block may have")?;
        self.length = header.decoded;
        match header.form {
            Form::Raw => output.copy_from_slice(content),
            Form::Repeated => output.fill(*content.first().ok_or(CUT)?),
            Form::Compressed | Form::SameCode => {
                let streams = read_code(&mut self.huffman, &mut self.has_code, header.form, content)?;
                if header.streams == 1 {
                    self.huffman.decode(streams, output)?;
                } else {
                    let (streams, output) = four(streams, output)?;
                    self.huffman.decode_four(streams, output)?;
                }
            }
        }
        Ok(end)
    }

    /// The literals of `block`, which was decoded last, and [`LITERALS_MARGIN`] bytes.
    pub(super) fn with_margin<'a>(&'a self, block: &'a [u8]) -> &'a [u8] {
        let length = self.length + LITERALS_MARGIN;
        match self.in_block {
            Some(start) => &block[start..start + length],
            None => &self.bytes[..length],
        }
    }
}

/// Bytes that the literals take in `block`, and how many literals they are, without decoding them.
pub(super) fn lengths(block: &[u8]) -> Result<(usize, usize), Invalid> {
    let header = Header::parse(block)?;
    Ok((header.length + header.compressed, header.decoded))
}

/// Reads the code before the streams, if there is one, and returns the streams.
fn read_code<'a>(
    huffman: &mut Huffman,
    has_code: &mut bool,
    form: Form,
    content: &'a [u8],
) -> Result<&'a [u8], Invalid> {
    if form == Form::Compressed {
        *has_code = false;
        let length = huffman.read(content)?;
        *has_code = true;
        return content.get(length..).ok_or(CUT);
    }
    if *has_code { Ok(content) } else { Err(NO_CODE) }
}

/// Four streams, and where each of them goes.
type Four<'a, 'b> = ([&'a [u8]; 4], [&'b mut [u8]; 4]);

/// The four streams (RFC 8878 §3.1.1.3.1.6) and what each of them becomes.
fn four<'a, 'b>(content: &'a [u8], output: &'b mut [u8]) -> Result<Four<'a, 'b>, Invalid> {
    if output.len() < LEAST_FOR_FOUR {
        return Err("too few literals for four streams");
    }
    let (lengths, mut rest) = content.split_first_chunk::<6>().ok_or(CUT)?;
    let mut streams = [&rest[..0]; 4];
    for (stream, length) in streams.iter_mut().zip(lengths.as_chunks::<2>().0) {
        (*stream, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or(CUT)?;
    }
    streams[3] = rest;
    let part = output.len().div_ceil(4);
    let (a, output) = output.split_at_mut(part);
    let (b, output) = output.split_at_mut(part);
    let (c, d) = output.split_at_mut(part);
    Ok((streams, [a, b, c, d]))
}
