//! Decodes the literals and sequences of the blocks that follow on another thread, in a frame too large to be decoded
//! as a whole.
//!
//! Executing them needs all that came before, but what they are does not: of a block only the codes and tables are used
//! again in the next. So one thread does the one half of the work, ahead, and the walk in `decoder` the other. Whatever
//! is wrong with a block is left to the walk: the thread ends, and hands over what is known before that block.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use tarnfs_source::SharedSource;

use super::block::{Blocks, Invalid};
use super::frame::{BLOCK_HEADER, BlockHeader, BlockKind, FrameHeader, LARGEST_BLOCK};
use super::huffman::MOST_WEIGHTS;
use super::literals::{LITERALS_MARGIN, Literals};
use super::sequences::{Description, Sequence, Tables};
use crate::input::Input;

/// Blocks that wait for the walk at most. (In the tests there are few.)
const MOST_WAITING: usize = if cfg!(test) { 2 } else { 16 };
/// Bytes of memory that one of them takes, of all but strange files.
const MEMORY_OF_ONE: usize = 3 * LARGEST_BLOCK as usize;

/// What a block may use of those before it.
pub(super) struct Entropy {
    pub(super) literals: Literals,
    pub(super) tables: Tables,
}

/// The same, in a form that is quickly copied.
#[derive(Clone)]
pub(super) struct Known {
    /// Of the Huffman code, if there is one: its weights, and how many there are.
    weights: Option<([u8; MOST_WEIGHTS], usize)>,
    tables: Option<[Description; 3]>,
}

/// A block without its place in the window.
pub(super) struct DecodedBlock {
    /// Bytes of the compressed stream, its header among them.
    pub(super) length: usize,
    /// It is the last one of its frame.
    pub(super) last: bool,
    /// What was known before it.
    pub(super) before: Known,
    memory: Memory,
    literals: usize,
    sequences: usize,
}

/// What the thread says.
pub(super) enum Next {
    Block(DecodedBlock),
    /// It has decoded the last block, or anything is wrong with the one that follows: what is known before that.
    Ended(Entropy),
    /// It panicked.
    Lost,
}

/// What a block is decoded to, used again and again.
struct Memory {
    literals: Box<[u8]>,
    sequences: Vec<Sequence>,
}

/// The thread, and what it has decoded.
pub(super) struct EntropyAhead {
    blocks: Receiver<DecodedBlock>,
    spare: Sender<Memory>,
    thread: JoinHandle<Entropy>,
}

impl Known {
    fn of(literals: &Literals, tables: &Tables) -> Self {
        let weights = literals.code().map(|code| {
            let mut weights = [0; MOST_WEIGHTS];
            let given = code.weights();
            weights[..given.len()].copy_from_slice(given);
            (weights, given.len())
        });
        Self { weights, tables: tables.descriptions() }
    }

    /// Makes these know it, and nothing else.
    pub(super) fn restore(&self, literals: &mut Literals, tables: &mut Tables) -> Result<(), Invalid> {
        literals.reset();
        tables.reset();
        if let Some((weights, given)) = &self.weights {
            literals.set_code(&weights[..*given])?;
        }
        self.tables.as_ref().map_or(Ok(()), |descriptions| tables.set(descriptions))
    }
}

impl DecodedBlock {
    /// The literals, with [`LITERALS_MARGIN`] bytes more, and the sequences.
    pub(super) fn content(&self) -> (&[u8], &[Sequence]) {
        (&self.memory.literals[..self.literals + LITERALS_MARGIN], &self.memory.sequences[..self.sequences])
    }
}

impl EntropyAhead {
    /// Goes on at the block that begins at byte `position` of the compressed stream, before which `blocks` has decoded
    /// all. `None` if there is no thread to be had.
    pub(super) fn start(source: &SharedSource, position: u64, header: FrameHeader, blocks: &Blocks) -> Option<Self> {
        let mut entropy = Entropy { literals: Literals::new(), tables: blocks.tables.clone() };
        if let Some(code) = blocks.literals.code() {
            entropy.literals.know(code);
        }
        let input = Input::new(SharedSource::clone(source), position);
        let (decoded, blocks) = sync_channel(MOST_WAITING);
        let (spare, memory) = channel();
        let work = move || entropy.decode_all(input, &header, &decoded, &memory);
        let thread = Builder::new().name("zstd blocks".to_owned()).spawn(work).ok()?;
        Some(Self { blocks, spare, thread })
    }

    /// What comes next; `None` if there is no such thread, and after the end.
    pub(super) fn next(this: &mut Option<Self>) -> Option<Next> {
        if let Ok(block) = this.as_ref()?.blocks.recv() {
            return Some(Next::Block(block));
        }
        this.take().map(|ahead| ahead.thread.join().map_or(Next::Lost, Next::Ended))
    }

    /// Takes back the memory of a block that was executed.
    pub(super) fn recycle(&self, block: DecodedBlock) {
        // If the thread has ended, nobody needs it.
        let _ = self.spare.send(block.memory);
    }

    /// Bytes of memory held.
    pub(super) fn memory() -> usize {
        (MOST_WAITING + 2) * MEMORY_OF_ONE
    }
}

impl Entropy {
    fn decode_all(
        mut self,
        mut input: Input,
        header: &FrameHeader,
        decoded: &SyncSender<DecodedBlock>,
        spare: &Receiver<Memory>,
    ) -> Self {
        loop {
            let before = Known::of(&self.literals, &self.tables);
            let memory = spare.try_recv().ok();
            let Some(block) = self.decode_next(&mut input, header, &before, memory) else {
                // It was right before, so it is right again.
                let _ = before.restore(&mut self.literals, &mut self.tables);
                return self;
            };
            let last = block.last;
            // Nobody wants more if it cannot be sent.
            if decoded.send(block).is_err() || last {
                return self;
            }
        }
    }

    /// `None` if anything is wrong.
    fn decode_next(
        &mut self,
        input: &mut Input,
        header: &FrameHeader,
        before: &Known,
        memory: Option<Memory>,
    ) -> Option<DecodedBlock> {
        let block = BlockHeader::parse(*input.fill(BLOCK_HEADER).ok()?.first_chunk()?, header).ok()?;
        let length = BLOCK_HEADER + block.length;
        let content = input.fill(length).ok()?.get(BLOCK_HEADER..length)?;
        let mut memory = memory.unwrap_or_else(|| Memory { literals: Literals::memory(), sequences: Vec::new() });
        let (mut literals, mut sequences) = (0, 0);
        match block.kind {
            BlockKind::Raw => {
                literals = content.len();
                memory.literals.get_mut(..literals)?.copy_from_slice(content);
            }
            BlockKind::Repeated { count } => {
                literals = count;
                memory.literals.get_mut(..count)?.fill(*content.first()?);
            }
            BlockKind::Compressed => {
                let section = self.literals.decode(content).ok()?;
                let rest = content.get(section..).unwrap_or_default();
                sequences = self.tables.decode(rest, &mut memory.sequences).ok()?.len();
                literals += self.literals.exchange(&mut memory.literals, content);
            }
        }
        input.consume(length);
        (literals + LITERALS_MARGIN <= memory.literals.len()).then(|| DecodedBlock {
            length,
            last: block.last,
            before: before.clone(),
            memory,
            literals,
            sequences,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{sample, source, tool};
    use crate::zstd::frame::Start;

    #[test]
    fn all_blocks_of_a_frame_come_and_make_its_content() {
        let data = sample(900_000, 3);
        let stream = tool("zstd -q -c -5", &data);
        let Start::Frame(header) = Start::parse(&stream) else { panic!("no frame") };
        let mut blocks = Blocks::new();
        assert!(blocks.start(&header, None));
        let mut ahead = EntropyAhead::start(&source(&stream), header.length as u64, header, &blocks);
        let mut decoded = Vec::new();
        while let Some(Next::Block(block)) = EntropyAhead::next(&mut ahead) {
            blocks.execute(&block).unwrap();
            decoded.extend_from_slice(blocks.decoded());
            ahead.as_ref().unwrap().recycle(block);
        }
        assert!(ahead.is_none() && decoded == data);
    }
}
