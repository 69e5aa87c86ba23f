//! Decodes the blocks of a frame (RFC 8878 §3.1.1.3).

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh64::Xxh64;

use super::dictionary::Dictionary;
use super::entropy::DecodedBlock;
use super::frame::{BlockHeader, BlockKind, FrameHeader, LARGEST_BLOCK, checksum};
use super::literals::{self, Literals};
use super::sequences::{self, Section, Sequence, Tables};
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
    /// The block behind the last one, if it was decoded beside that.
    beside: Option<Box<Beside>>,
    /// Bytes that the last block became.
    decoded: usize,
}

/// A block that is decoded beside the one before it, but for its place in the window. What is known before it stays
/// with the other, as nothing may come of this.
struct Beside {
    literals: Literals,
    tables: Tables,
    sequences: Vec<Sequence>,
    /// What its header says, and how many sequences it has, once it is decoded.
    ready: Option<(BlockHeader, usize)>,
}

/// Blocks with fewer sequences are not decoded beside each other: there is more to do for that than it saves.
const WORTH_TWO: usize = if cfg!(test) { 2 } else { 200 };

impl Blocks {
    pub(super) fn new() -> Self {
        Self {
            literals: Literals::new(),
            tables: Tables::new(),
            repeats: FIRST_REPEATS,
            window: Window::default(),
            sequences: Vec::new(),
            beside: None,
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
        self.forget_beside();
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
    ///
    /// `behind` is the block that comes next, if it is known by now: the two are decoded faster than one after the
    /// other. It must be decoded next, if anything of the frame is. What is wrong with it is told then.
    pub(super) fn decode(
        &mut self,
        header: BlockHeader,
        content: &[u8],
        behind: Option<(BlockHeader, &[u8])>,
    ) -> Result<(), Invalid> {
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
                let count = self.take_beside(header).map_or_else(|| self.decode_parts(content, behind), Ok)?;
                let sequences = self.sequences.get(..count).unwrap_or_default();
                self.window.execute(self.literals.with_margin(content), sequences, &mut self.repeats)?
            }
        };
        Ok(())
    }

    /// True if [`Blocks::decode`] can make use of what comes behind this block.
    pub(super) fn goes_faster_with_next(&self, header: BlockHeader) -> bool {
        let is_decoded = self.beside.as_ref().is_some_and(|beside| beside.ready.is_some());
        header.kind == BlockKind::Compressed && !header.last && !is_decoded
    }

    /// Decodes the literals and the sequences of a block; returns how many sequences these are.
    fn decode_parts(&mut self, content: &[u8], behind: Option<(BlockHeader, &[u8])>) -> Result<usize, Invalid> {
        let length = self.literals.decode(content)?;
        let section = self.tables.read(content.get(length..).unwrap_or_default())?;
        let behind = behind.filter(|(header, _)| header.kind == BlockKind::Compressed && section.count >= WORTH_TWO);
        if let Some((header, behind)) = behind {
            let beside = self.beside.get_or_insert_with(|| Box::new(Beside::new()));
            // What is wrong with it is told when its turn comes.
            if let Ok(then) = beside.read(&self.literals, &self.tables, behind) {
                let (tables, to) = ([&self.tables, &beside.tables], [&mut self.sequences, &mut beside.sequences]);
                let [this, other] = sequences::decode_two(tables, [section, then], to);
                beside.ready = other.is_ok().then_some((header, then.count));
                return this.map(|()| section.count);
            }
        }
        self.tables.decode_section(section, &mut self.sequences)?;
        Ok(section.count)
    }

    /// Goes on with the block that was decoded beside the one before, if it was; returns how many sequences it has.
    fn take_beside(&mut self, header: BlockHeader) -> Option<usize> {
        let beside = self.beside.as_mut()?;
        let (_, count) = beside.ready.take().filter(|(ready, _)| *ready == header)?;
        std::mem::swap(&mut self.literals, &mut beside.literals);
        std::mem::swap(&mut self.tables, &mut beside.tables);
        std::mem::swap(&mut self.sequences, &mut beside.sequences);
        Some(count)
    }

    fn forget_beside(&mut self) {
        if let Some(beside) = &mut self.beside {
            beside.ready = None;
        }
    }

    /// The same with a block that was decoded but for this.
    pub(super) fn execute(&mut self, block: &DecodedBlock) -> Result<(), Invalid> {
        self.forget_beside();
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
            let then = if block.last { None } else { BlockHeader::next(behind, header) };
            self.decode(block, content, then).ok()?;
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
        let sequences = |sequences: &Vec<Sequence>| sequences.capacity() * size_of::<Sequence>();
        let beside = self.beside.as_ref().map_or(0, |beside| LITERALS_AND_TABLES + sequences(&beside.sequences));
        LITERALS_AND_TABLES + self.window.memory() + sequences(&self.sequences) + beside
    }
}

impl Beside {
    fn new() -> Self {
        Self { literals: Literals::new(), tables: Tables::new(), sequences: Vec::new(), ready: None }
    }

    /// Reads the block but for its sequences, before which these literals and tables are known.
    fn read<'a>(&mut self, literals: &Literals, tables: &Tables, content: &'a [u8]) -> Result<Section<'a>, Invalid> {
        match literals.code() {
            Some(code) => self.literals.know(code),
            None => self.literals.reset(),
        }
        self.tables.know(tables);
        let length = self.literals.decode(content)?;
        self.tables.read(content.get(length..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tool;
    use crate::zstd::frame::Start;

    /// What comes of the blocks of a frame, and what is wrong with the first that cannot be decoded.
    fn decode(frame: &[u8], beside: bool) -> (Vec<u8>, Option<Invalid>) {
        let Start::Frame(header) = Start::parse(frame) else { panic!("no frame") };
        let mut blocks = Blocks::new();
        assert!(blocks.start(&header, None));
        let (mut rest, mut decoded) = (&frame[header.length..], Vec::new());
        while let Some((block, content)) = BlockHeader::next(rest, &header) {
            rest = &rest[crate::zstd::frame::BLOCK_HEADER + content.len()..];
            let behind = BlockHeader::next(rest, &header).filter(|_| beside && !block.last);
            if let Err(what) = blocks.decode(block, content, behind) {
                return (decoded, Some(what));
            }
            decoded.extend_from_slice(blocks.decoded());
            if block.last {
                break;
            }
        }
        (decoded, None)
    }

    #[test]
    fn blocks_beside_each_other_become_the_same_and_the_same_is_wrong_with_them() {
        let line = |n: u32| format!("{} is {} of {}\n", n % 977, n.wrapping_mul(n) % 1009, n / 3);
        let data: Vec<u8> = (0..40_000).flat_map(|n| line(n).into_bytes()).collect();
        for level in ["-1", "-3", "-19"] {
            let frame = tool(&format!("zstd -q -c {level}"), &data);
            assert!(decode(&frame, true) == (data.clone(), None), "{level}");
            let mut wrong = 0;
            for at in (20..frame.len()).step_by(frame.len() / 150) {
                let mut damaged = frame.clone();
                damaged[at] ^= 1 << (at % 8);
                let apart = decode(&damaged, false);
                assert!(decode(&damaged, true) == apart, "{level}, byte {at}: {:?}", apart.1);
                wrong += usize::from(apart.1.is_some());
            }
            assert!(wrong > 20, "{wrong}");
        }
    }
}
