use std::collections::HashMap;

/// The longest line, in bytes. The longest path that the kernel takes has 4096.
pub const LONGEST_LINE: usize = 64 << 10;

/// A line that somebody has written, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line.
    Whole(Vec<u8>),
    /// One that was longer than [`LONGEST_LINE`], of which nothing was kept.
    TooLong,
}

/// What each writer has begun to write.
#[derive(Debug, Default)]
pub(super) struct Writers(HashMap<u64, Begun>);

/// The line that is not at its end.
#[derive(Debug, Default)]
struct Begun {
    line: Vec<u8>,
    is_too_long: bool,
}

impl Begun {
    fn add(&mut self, bytes: &[u8]) {
        if self.is_too_long || self.line.len() + bytes.len() > LONGEST_LINE {
            *self = Self { line: Vec::new(), is_too_long: true };
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    /// The line, unless there is nothing in it.
    fn end(self) -> Option<Line> {
        match self {
            Self { is_too_long: true, .. } => Some(Line::TooLong),
            Self { line, .. } => (!line.trim_ascii().is_empty()).then_some(Line::Whole(line)),
        }
    }
}

impl Writers {
    /// Takes what `writer` goes on with, and gives the lines that end in it.
    pub(super) fn write(&mut self, writer: u64, bytes: &[u8]) -> Vec<Line> {
        let begun = self.0.entry(writer).or_default();
        let mut lines = Vec::new();
        let mut parts = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            begun.add(part);
            if parts.peek().is_some() {
                lines.extend(std::mem::take(begun).end());
            }
        }
        lines
    }

    /// The line that `writer` has not ended.
    pub(super) fn close(&mut self, writer: u64) -> Option<Line> {
        self.0.remove(&writer)?.end()
    }
}
