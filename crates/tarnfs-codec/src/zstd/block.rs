//! Decodes the blocks of a frame (RFC 8878 §3.1.1.3).

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh64::Xxh64;

use super::dictionary::Dictionary;
use super::entropy::DecodedBlock;
use super::frame::{BlockHeader, BlockKind, FrameHeader, LARGEST_BLOCK, checksum};
use super::literals::{self, Literals};
use super::sequences::{self, Sequence, Tables};
use super::window::{self, Window};

/// What is wrong with a block, as a clause.
pub(super) type Invalid = &'static str;

/// The offsets that count as repeated where a frame begins (RFC 8878 §3.1.1.5).
const FIRST_REPEATS: [u32; 3] = [1, 4, 8];

/// Decodes one block after another, and knows what the next one may refer to.
pub(super) struct Blocks {
    pub(super) literals: Literals,
    pub(super) tables: Tables,
    /// None of them is 0.
    repeats: [u32; 3],
    pub(super) window: Window,
    sequences: Vec<Sequence>,
    /// Bytes that the last block became.
    decoded: usize,
}

impl Blocks {
    pub(super) fn new() -> Self {
        Self {
            literals: Literals::new(),
            tables: Tables::new(),
            repeats: FIRST_REPEATS,
            window: Window::default(),
            sequences: Vec::new(),
            decoded: 0,
        }
    }

    /// Makes ready for the blocks of a frame that was made with `dictionary`. False if there is no memory for its
    /// window.
    pub(super) fn start(&mut self, header: &FrameHeader, dictionary: Option<&Arc<Dictionary>>) -> bool {
        // Nothing refers back further than the content is long.
        let reach = header.content.map_or(header.window, |content| content.min(header.window));
        let largest_block = header.largest_block() as usize;
        let is_possible = usize::try_from(reach).is_ok_and(|reach| self.window.start(reach, largest_block));
        self.begin_with(dictionary);
        is_possible
    }

    /// Nothing of one frame is known in the next: only what is in its dictionary.
    pub(super) fn begin_with(&mut self, dictionary: Option<&Arc<Dictionary>>) {
        self.window.put_before(dictionary);
        if let Some(known) = dictionary.and_then(|dictionary| dictionary.known()) {
            self.literals.know(&known.huffman);
            self.tables.know(&known.tables);
            self.repeats = known.repeats;
        } else {
            self.literals.reset();
            self.tables.reset();
            self.repeats = FIRST_REPEATS;
        }
        self.decoded = 0;
    }

    /// Decodes a block; its bytes are [`Blocks::decoded`] then. After an error the frame cannot go on.
    pub(super) fn decode(&mut self, header: BlockHeader, content: &[u8]) -> Result<(), Invalid> {
        self.decoded = match header.kind {
            BlockKind::Raw => {
                self.window.append(content);
                content.len()
            }
            BlockKind::Repeated { count } => {
                self.window.append_repeated(*content.first().ok_or("a block without its byte")?, count);
                count
            }
            BlockKind::Compressed => {
                let length = self.literals.decode(content)?;
                let rest = content.get(length..).unwrap_or_default();
                let sequences = self.tables.decode(rest, &mut self.sequences)?;
                self.window.execute(self.literals.with_margin(), sequences, &mut self.repeats)?
            }
        };
        Ok(())
    }

    /// The same with a block that was decoded but for this.
    pub(super) fn execute(&mut self, block: &DecodedBlock) -> Result<(), Invalid> {
        let (literals, sequences) = block.content();
        self.decoded = self.window.execute(literals, sequences, &mut self.repeats)?;
        Ok(())
    }

    /// Makes ready for whole frames of at most `length` bytes together, which come one behind the other: into `memory`,
    /// whatever that holds, or into its own. False if there is no memory.
    pub(super) fn start_whole_frames(&mut self, memory: Option<Vec<u8>>, length: usize) -> bool {
        self.window.start_with_all(memory, length, LARGEST_BLOCK as usize)
    }

    /// Decodes a whole frame of at most `most` bytes behind those before; its place among their bytes, or `None` if
    /// anything is wrong with it.
    pub(super) fn decode_frame(
        &mut self,
        header: &FrameHeader,
        dictionary: Option<&Arc<Dictionary>>,
        frame: &[u8],
        most: usize,
    ) -> Option<Range<usize>> {
        let start = self.window.start_behind(usize::try_from(header.window).ok()?, header.largest_block() as usize);
        self.begin_with(dictionary);
        let (mut rest, mut length, mut hash) = (frame.get(header.length..)?, 0, Xxh64::new(0));
        loop {
            let (block, behind) = rest.split_first_chunk()?;
            let block = BlockHeader::parse(*block, header).ok()?;
            let (content, behind) = behind.split_at_checked(block.length)?;
            self.decode(block, content).ok()?;
            if header.checksum {
                hash.update(self.decoded());
            }
            length += self.decoded;
            rest = behind;
            if length > most {
                return None;
            }
            if block.last {
                break;
            }
        }
        let has_its_length = header.content.is_none_or(|content| content == length as u64);
        let is_right = !header.checksum || *rest.first_chunk()? == checksum(hash.digest());
        (has_its_length && is_right).then_some(start..start + length)
    }

    /// True if `what` is wrong as it is where a frame was made with a dictionary that is not there.
    pub(super) fn may_be_for_want_of_a_dictionary(what: Invalid) -> bool {
        [window::BEFORE_WINDOW, literals::NO_CODE, sequences::NO_TABLE].contains(&what)
    }

    /// The bytes of all frames that were decoded since [`Blocks::start_whole_frames`], and others behind them.
    pub(super) fn whole_frames(&self) -> &[u8] {
        self.window.all()
    }

    /// The same, with their memory.
    pub(super) fn take_whole_frames(&mut self) -> Vec<u8> {
        self.window.take_all()
    }

    /// The offsets that count as repeated.
    pub(super) fn repeats(&self) -> &[u32; 3] {
        &self.repeats
    }

    /// Has other offsets that count as repeated.
    pub(super) fn set_repeats(&mut self, repeats: [u32; 3]) -> Result<(), Invalid> {
        if repeats.contains(&0) {
            return Err("repeats an offset of 0");
        }
        self.repeats = repeats;
        Ok(())
    }

    /// The bytes of the last block.
    pub(super) fn decoded(&self) -> &[u8] {
        self.last(self.decoded)
    }

    /// The last `count` bytes of it.
    pub(super) fn last(&self, count: usize) -> &[u8] {
        self.window.last(count.min(self.decoded))
    }

    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> usize {
        const LITERALS_AND_TABLES: usize = 160 << 10;
        LITERALS_AND_TABLES + self.window.memory() + self.sequences.capacity() * size_of::<Sequence>()
    }
}
