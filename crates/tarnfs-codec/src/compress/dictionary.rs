//! The strings that codes stand for, and how wide the next code is.

const MAGIC: [u8; 2] = [0x1F, 0x9D];

/// In the header's third byte: the widest code, two reserved bits, block mode.
const WIDTH: u8 = 0x1F;
const RESERVED: u8 = 0x60;
const BLOCK_MODE: u8 = 0x80;

/// Bytes of the header.
pub(super) const HEADER: usize = 3;

/// In block mode, the code that empties the dictionary.
const CLEAR: usize = 256;

const NARROWEST: u32 = 9;
const WIDEST: u32 = 16;

/// Bytes of the longest string: each code adds one byte to another string at most.
pub(super) const LONGEST: usize = 1 << WIDEST;

/// Bytes that writing a string may write in all: whole tails.
pub(super) const ROOM: usize = LONGEST + TAIL;

/// Bytes of a string that are kept with its code.
const TAIL: usize = 8;

/// What the header says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    widest: u32,
    block_mode: bool,
}

impl Header {
    /// Reads the first bytes of a file. The error says what is wrong with them.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let &[first, second, flags, ..] = bytes else { return Err("the header is cut") };
        let widest = u32::from(flags & WIDTH);
        if [first, second] != MAGIC {
            return Err("this is no header of compress");
        }
        if flags & RESERVED != 0 || !(NARROWEST..=WIDEST).contains(&widest) {
            return Err("the header has values that no compress writes");
        }
        Ok(Self { widest, block_mode: flags & BLOCK_MODE != 0 })
    }
}

/// What a code was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// It stands for a string.
    String,
    /// It emptied the dictionary.
    Clear,
    /// It stands for nothing yet.
    Unknown,
}

/// A string, by its last bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// As many of its last bytes as are left when the bytes before them are whole tails, lowest first.
    tail: u64,
    /// The code of what is before them.
    before: u16,
    /// Bytes of the string, less one.
    last: u16,
    first: u8,
}

/// The dictionary, and where in the stream it is.
#[derive(Debug)]
pub(super) struct Dictionary {
    header: Header,
    entries: Vec<Entry>,
    /// The next code that gets a string.
    next: usize,
    /// The code before, whose string gets one more byte.
    old: Option<usize>,
    /// Bits of the next code.
    pub(super) width: u32,
    /// Bit of the stream at which the next code lies; behind the last one of all.
    pub(super) bit: u64,
    /// Where what is left out behind a code began: that code may be the last one of all.
    pub(super) padded_since: u64,
    /// Since which bit codes have this width.
    wide_since: u64,
    /// Since which bit the dictionary is filled.
    pub(super) filled_since: u64,
}

impl Dictionary {
    /// One that is empty at bit `bit` of the stream.
    pub(super) fn new(header: Header, bit: u64) -> Self {
        let mut entries = vec![Entry::default(); 1 << header.widest];
        for (byte, entry) in (0..=u8::MAX).zip(&mut entries) {
            *entry = Entry { tail: u64::from(byte), before: 0, last: 0, first: byte };
        }
        let mut dictionary = Self {
            header,
            entries,
            next: 0,
            old: None,
            width: 0,
            bit,
            padded_since: bit,
            wide_since: bit,
            filled_since: bit,
        };
        dictionary.clear();
        dictionary
    }

    fn clear(&mut self) {
        self.next = if self.header.block_mode { CLEAR + 1 } else { CLEAR };
        self.old = None;
        self.width = NARROWEST;
        (self.wide_since, self.filled_since) = (self.bit, self.bit);
    }

    /// All codes are in use.
    pub(super) fn is_full(&self) -> bool {
        self.next == self.entries.len()
    }

    /// Codes are written by eights; where the width changes, the rest of eight is left out.
    fn skip_rest_of_eight(&mut self) {
        let group = u64::from(self.width) * 8;
        self.padded_since = self.bit;
        self.bit = self.wide_since + (self.bit - self.wide_since).next_multiple_of(group);
    }

    /// Reads the next code from `bytes`, at whose start bit `start` of the stream lies. `None` if it is not wholly in
    /// there.
    #[inline]
    pub(super) fn read(&mut self, bytes: &[u8], start: u64) -> Option<usize> {
        let bit = usize::try_from(self.bit.checked_sub(start)?).ok()?;
        let (at, end) = (bit / 8, bit + self.width as usize);
        let word = match bytes.get(at..).and_then(<[u8]>::first_chunk) {
            Some(&word) => u32::from_le_bytes(word),
            None if end <= bytes.len() * 8 => {
                bytes.get(at..)?.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
            }
            None => return None,
        };
        self.bit += u64::from(self.width);
        Some((word >> (bit % 8)) as usize & ((1 << self.width) - 1))
    }

    /// Takes in a code that was read.
    #[inline]
    pub(super) fn accept(&mut self, code: usize) -> Code {
        if code == CLEAR && self.header.block_mode {
            self.skip_rest_of_eight();
            self.clear();
            return Code::Clear;
        }
        if code >= self.next {
            // The string that this code itself makes: the one before, and that one's first byte.
            if code > self.next || self.old.is_none() {
                return Code::Unknown;
            }
        } else if self.old.is_none() && code >= CLEAR {
            return Code::Unknown;
        }
        if let Some(old) = self.old
            && !self.is_full()
        {
            let first = self.entries[if code == self.next { old } else { code }].first;
            let before = self.entries[old];
            let bytes = usize::from(before.last) + 1;
            self.entries[self.next] = if bytes.is_multiple_of(TAIL) {
                Entry { tail: u64::from(first), before: old as u16, last: bytes as u16, first: before.first }
            } else {
                let tail = before.tail | u64::from(first) << (bytes % TAIL * 8);
                Entry { tail, last: bytes as u16, ..before }
            };
            self.grow();
        }
        self.old = Some(code);
        Code::String
    }

    fn grow(&mut self) {
        self.next += 1;
        if self.next == 1 << self.width && self.width < self.header.widest {
            self.skip_rest_of_eight();
            self.width += 1;
            self.wide_since = self.bit;
        }
    }

    /// Writes the string of `code` to the start of `output`, which has [`ROOM`]; returns its length.
    #[inline]
    pub(super) fn write(&self, mut code: usize, output: &mut [u8]) -> usize {
        let last = usize::from(self.entries[code].last);
        let mut start = last / TAIL * TAIL;
        loop {
            let entry = &self.entries[code];
            output[start..start + TAIL].copy_from_slice(&entry.tail.to_le_bytes());
            if start == 0 {
                return last + 1;
            }
            start -= TAIL;
            code = usize::from(entry.before);
        }
    }

    /// Goes on behind damage without knowing what the code stood for. True if the dictionary is empty from here on.
    pub(super) fn pass_over(&mut self, code: usize) -> bool {
        let is_clear = code == CLEAR && self.header.block_mode;
        if is_clear {
            self.skip_rest_of_eight();
            self.clear();
        } else if !self.is_full() {
            self.grow();
        }
        is_clear
    }

    /// Goes on at bit `bit` of the stream, where the dictionary is the same: it is full. False if no code begins there.
    pub(super) fn jump(&mut self, bit: u64) -> bool {
        let possible = self.is_full() && bit >= self.bit && (bit - self.bit).is_multiple_of(u64::from(self.width));
        self.bit = bit;
        possible
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.entries[..])
    }
}
