//! LZMA: a dictionary coder whose symbols go through a range coder with learnt probabilities.
//!
//! Written from the LZMA specification and The .xz File Format. A decoder's whole state can be kept, so that decoding
//! can start inside the data.
//!
//! - `range`: bits from bytes
//! - `model`: what is learnt
//! - `history`: the dictionary
//! - `symbols`: literals and matches
//! - `decoder`: what decoders share, whatever wraps the symbols
//! - `lzma2`: the chunks of an xz block
//! - `lzma1`: symbols without framing, and on top of them `members`: the files `.lzma` (`alone`) and `.lz` (`lzip`) of
//!   which `ahead` decodes those that follow on other threads
//! - `survey`: finds seek points
//! - `checkpoint`: what is kept of a decoder at a seek point

mod ahead;
mod alone;
mod checkpoint;
mod decoder;
mod history;
mod lzip;
mod lzma1;
mod lzma2;
mod members;
mod model;
mod range;
mod survey;
mod symbols;
#[cfg(test)]
mod tests;

pub(crate) use alone::Lzma;
pub(crate) use decoder::{Framing, LzmaDecoder, Outcome, Step};
pub(crate) use lzip::Lzip;
pub(crate) use lzma1::{Bare, Lzma1};
pub(crate) use lzma2::{Chunks, Lzma2};
pub(crate) use model::Properties;
pub(crate) use survey::LzmaPoint;
