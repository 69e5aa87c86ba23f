//! LZMA: a dictionary coder whose symbols go through a range coder with learnt probabilities.
//!
//! Written from the LZMA specification and The .xz File Format. A decoder's whole state can be kept, so that decoding can start inside the data.
//!
//! - `range`: bits from bytes
//! - `model`: what is learnt
//! - `history`: the dictionary
//! - `symbols`: literals and matches
//! - `lzma2`: the chunks of an xz block
//! - `survey`: finds seek points
//! - `checkpoint`: what is kept of a decoder at a seek point

mod checkpoint;
mod history;
mod lzma2;
mod model;
mod range;
mod survey;
mod symbols;
#[cfg(test)]
mod tests;

pub(crate) use lzma2::{Lzma2, Outcome, Step};
pub(crate) use survey::Found;
