//! LZW as TIFF has it: codes of 9 to 12 bits, the highest bit first.

use std::io;

use super::{Feed, Undo};

const CLEAR: usize = 256;
const END: usize = 257;
const MOST: usize = 4096;

pub(super) struct Lzw {
    /// Codes grow one entry before they have to.
    early: usize,
    bits: u32,
    count: u32,
    width: u32,
    /// Of each entry: the one that it begins with, and its last byte and length.
    before: Vec<u16>,
    last: Vec<u8>,
    length: Vec<u16>,
    previous: Option<usize>,
    /// What is to be handed out, from its end.
    waiting: Vec<u8>,
    has_ended: bool,
}

impl Lzw {
    pub(super) fn new(is_early: bool) -> Self {
        let mut lzw = Self {
            early: usize::from(is_early),
            bits: 0,
            count: 0,
            width: 9,
            before: Vec::with_capacity(MOST),
            last: Vec::with_capacity(MOST),
            length: Vec::with_capacity(MOST),
            previous: None,
            waiting: Vec::new(),
            has_ended: false,
        };
        for entry in 0..=END {
            lzw.before.push(0);
            lzw.last.push(entry as u8);
            lzw.length.push(1);
        }
        lzw
    }

    fn code(&mut self, input: &mut Feed) -> io::Result<Option<usize>> {
        while self.count < self.width {
            let Some(byte) = input.next()? else { return Ok(None) };
            self.bits = self.bits << 8 | u32::from(byte);
            self.count += 8;
        }
        self.count -= self.width;
        let code = self.bits >> self.count & ((1 << self.width) - 1);
        Ok(Some(code as usize))
    }

    /// Puts what `code` stands for into `waiting`, the last byte first; returns its first byte.
    fn expand(&mut self, mut code: usize) -> u8 {
        for _ in 1..self.length[code] {
            self.waiting.push(self.last[code]);
            code = usize::from(self.before[code]);
        }
        self.waiting.push(self.last[code]);
        self.last[code]
    }

    fn next(&mut self, input: &mut Feed) -> io::Result<()> {
        // Some streams end without the code for it.
        let Some(code) = self.code(input)? else {
            self.has_ended = true;
            return Ok(());
        };
        match code {
            END => self.has_ended = true,
            CLEAR => {
                for entries in [&mut self.before, &mut self.length] {
                    entries.truncate(END + 1);
                }
                self.last.truncate(END + 1);
                (self.width, self.previous) = (9, None);
            }
            code => {
                let Some(previous) = self.previous else {
                    if code > END {
                        return Err(input.wrong("LZW begins with a code that stands for nothing"));
                    }
                    self.expand(code);
                    self.previous = Some(code);
                    return Ok(());
                };
                let entries = self.last.len();
                if code > entries || code == entries && entries >= MOST {
                    return Err(input.wrong("a code of LZW that stands for nothing"));
                }
                let first = if code < entries {
                    self.expand(code)
                } else {
                    // The one that is made now: what came before, and its first byte again.
                    self.waiting.push(0);
                    let first = self.expand(previous);
                    self.waiting[0] = first;
                    first
                };
                if entries < MOST {
                    self.before.push(previous as u16);
                    self.last.push(first);
                    self.length.push(self.length[previous].saturating_add(1));
                }
                self.previous = Some(code);
                let most = self.last.len() + self.early;
                if most >= 1 << self.width && self.width < 12 {
                    self.width += 1;
                }
            }
        }
        Ok(())
    }
}

impl Undo for Lzw {
    fn undo(&mut self, input: &mut Feed, output: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < output.len() {
            if let Some(byte) = self.waiting.pop() {
                output[written] = byte;
                written += 1;
            } else if self.has_ended {
                break;
            } else {
                self.next(input)?;
            }
        }
        Ok(written)
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + 6 * MOST + self.waiting.capacity()
    }
}
