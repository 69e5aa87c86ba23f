//! Dictionaries (RFC 8878 §5): bytes, and often codes, that frames refer to as if they stood before them.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use tarnfs_source::Setting;

use xxhash_rust::xxh64::xxh64;

use super::block::Invalid;
use super::fse::Counts;
use super::huffman::Huffman;
use super::sequences::{Description, Kind, Tables};

/// First four bytes of a dictionary with codes, little-endian. What begins with others is bytes alone.
const MAGIC: u32 = 0xEC30_A437;
/// Bytes of the magic and the ID.
const HEADER: usize = 8;

/// Dictionaries that frames of zstd may need. Clones share them.
#[derive(Clone, Default)]
pub struct Dictionaries(Arc<Vec<Arc<Dictionary>>>);

/// One dictionary.
pub(super) struct Dictionary {
    /// 0 for one that has none.
    id: u32,
    /// XXH64 of all its bytes.
    hash: u64,
    known: Option<Known>,
    /// The last bytes of these are the content.
    bytes: Vec<u8>,
    content: usize,
}

/// What the first block of a frame may use again.
pub(super) struct Known {
    pub(super) huffman: Huffman,
    pub(super) tables: Tables,
    /// None of them is 0.
    pub(super) repeats: [u32; 3],
}

impl Dictionaries {
    /// Adds what a file holds: a dictionary as `zstd --train` makes it, or any other bytes, which are one without an
    /// ID.
    ///
    /// # Errors
    /// What is wrong with it, as a clause.
    pub fn add(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        let dictionary = Dictionary::new(bytes)?;
        match self.0.iter().find(|other| other.id == dictionary.id) {
            Some(other) if other.hash == dictionary.hash => return Ok(()),
            Some(_) if dictionary.id == 0 => {
                return Err("is another one without an ID: frames do not tell them apart".into());
            }
            Some(_) => return Err(format!("is another one of ID {}", dictionary.id)),
            None => {}
        }
        Arc::make_mut(&mut self.0).push(Arc::new(dictionary));
        Ok(())
    }

    /// The one for a frame with this ID, where it needs one; `Err` if that is not there. A frame without an ID (0) may
    /// have been made with any, as `zstd -D` takes it: with the one that has none, or else the first.
    pub(super) fn for_frame(&self, id: u32) -> Result<Option<&Arc<Dictionary>>, ()> {
        match self.0.iter().find(|dictionary| dictionary.id == id) {
            None if id == 0 => Ok(self.0.first()),
            found => found.map(Some).ok_or(()),
        }
    }

    /// The one of this ID and hash.
    pub(super) fn same(&self, id: u32, hash: u64) -> Option<&Arc<Dictionary>> {
        self.0.iter().find(|dictionary| (dictionary.id, dictionary.hash) == (id, hash))
    }

    /// What to do about a frame that names none and may have been made with one that is not there, as a clause.
    pub(super) fn advice(&self) -> String {
        let which = if self.0.is_empty() { "a dictionary" } else { "another dictionary" };
        format!("if it was made with {which}, {NAME_IT}{}", Setting::ZstdDictionary)
    }

    /// True if damage of which `what` was said may have been for want of a dictionary, and there is one now.
    pub fn may_mend(&self, what: &str) -> bool {
        !self.0.is_empty() && what.contains(NAME_IT)
    }
}

/// What damage for want of a dictionary is known by, also in an index.
const NAME_IT: &str = "name that with ";

impl fmt::Debug for Dictionaries {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|dictionary| dictionary.id)).finish()
    }
}

/// What to do about a missing dictionary, as a clause.
pub(super) fn needed(id: u32) -> String {
    let which = if id == 0 { "a dictionary without an ID".to_owned() } else { format!("dictionary {id}") };
    format!("needs {which}, which was not given: name its file with {}", Setting::ZstdDictionary)
}

impl Dictionary {
    fn new(bytes: Vec<u8>) -> Result<Self, String> {
        if bytes.is_empty() {
            return Err("is empty".into());
        }
        let hash = xxh64(&bytes, 0);
        let header = bytes.first_chunk::<HEADER>().map(|header| u64::from_le_bytes(*header));
        let Some(header) = header.filter(|header| *header as u32 == MAGIC) else {
            return Ok(Self { id: 0, hash, known: None, bytes, content: 0 });
        };
        let (known, content) =
            Known::read(&bytes).map_err(|what| format!("is a dictionary of zstd that is damaged: {what}"))?;
        Ok(Self { id: (header >> 32) as u32, hash, known: Some(known), bytes, content })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// What a frame knows from its start.
    pub(super) fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }

    /// What stands before a frame.
    pub(super) fn content(&self) -> &[u8] {
        &self.bytes[self.content..]
    }
}

impl Known {
    /// Reads what stands between the header and the content, and where the content begins.
    fn read(bytes: &[u8]) -> Result<(Self, usize), Invalid> {
        const CUT: Invalid = "it ends too early";
        /// The tables stand in another order than in a block.
        const ORDER: [Kind; 3] = [Kind::Offsets, Kind::MatchLengths, Kind::LiteralLengths];
        let mut at = HEADER;
        let mut huffman = Huffman::new();
        at += huffman.read(bytes.get(at..).ok_or(CUT)?)?;
        let mut descriptions = [Description::Predefined; 3];
        for kind in ORDER {
            let (counts, length) = Counts::read(bytes.get(at..).ok_or(CUT)?, kind.symbols(), kind.most_log())?;
            descriptions[kind as usize] = Description::Counts(counts);
            at += length;
        }
        let mut tables = Tables::new();
        tables.set(&descriptions)?;
        let (offsets, content) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<12>()).ok_or(CUT)?;
        let mut repeats = [0; 3];
        for (repeat, offset) in repeats.iter_mut().zip(offsets.as_chunks::<4>().0) {
            *repeat = u32::from_le_bytes(*offset);
        }
        if repeats.iter().any(|&repeat| repeat == 0 || repeat as usize > content.len()) {
            return Err("it repeats an offset that it does not reach");
        }
        Ok((Self { huffman, tables, repeats }, bytes.len() - content.len()))
    }
}
