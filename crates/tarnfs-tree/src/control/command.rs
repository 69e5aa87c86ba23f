//! The file that commands are written to.

use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use tarnfs_source::Source;

use super::output::Output;
use crate::asker::begins;
use crate::edit::{Allocation, Pending, Token, WritableFile};

/// The longest line, in bytes. The longest path that the kernel takes has 4096.
pub const LONGEST_LINE: usize = 64 << 10;

/// Lines of one writer that are waited for when it closes the file: more are only run.
const MOST_PENDING: usize = 256;

/// A line that somebody has written, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line.
    Whole(Vec<u8>),
    /// One that was longer than [`LONGEST_LINE`], of which nothing was kept.
    TooLong,
}

/// A line on its way to whoever runs it.
#[derive(Debug)]
pub struct Submitted {
    /// What it says.
    pub line: Line,
    /// Dropped when it is done: then nobody waits for it any more.
    pub token: Token,
}

/// A line that is not at its end.
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

    /// The line, unless there is nothing in it; the next one begins.
    fn end(&mut self) -> Option<Line> {
        match std::mem::take(self) {
            Self { is_too_long: true, .. } => Some(Line::TooLong),
            Self { line, .. } => (!line.trim_ascii().is_empty()).then_some(Line::Whole(line)),
        }
    }
}

/// What one writer has begun to write.
///
/// Each line is a command. But where a line is no more than the name of a program, as ratarmount has it, each line up
/// to the end of the file is a word of that command; or up to a line that begins with such a name, too.
#[derive(Debug, Default)]
pub(super) struct Commands {
    begun: Begun,
    /// Words of a command on several lines, each with a zero byte behind it.
    words: Option<Begun>,
}

/// What a command begins with.
const NAMES: [&[u8]; 2] = [b"ratarmount", b"tarnfs"];

/// The name with which a line begins, and what is behind it.
fn named(line: &[u8]) -> Option<(&'static [u8], &[u8])> {
    NAMES.into_iter().find_map(|name| line.strip_prefix(name).map(|rest| (name, rest)))
}

impl Commands {
    /// Takes what the writer goes on with, and gives the commands that end in it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut parts = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            self.begun.add(part);
            if parts.peek().is_some() {
                self.end_line(&mut lines);
            }
        }
        lines
    }

    /// Nothing more is written.
    pub(super) fn end(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        self.end_line(&mut lines);
        lines.extend(self.end_words());
        lines
    }

    fn end_line(&mut self, lines: &mut Vec<Line>) {
        let Some(line) = self.begun.end() else { return };
        let text = if let Line::Whole(text) = &line { text.trim_ascii() } else { b"" };
        let is_name = named(text).is_some_and(|(_, rest)| rest.is_empty());
        let begins = named(text).is_some_and(|(_, rest)| rest.first().is_none_or(|byte| b" \t\0".contains(byte)));
        if begins {
            lines.extend(self.end_words());
        }
        match &mut self.words {
            // With the end of the line as Windows has it, or without.
            words @ None if is_name => words.insert(Begun::default()).add(&[text, b"\0"].concat()),
            None => lines.push(line),
            Some(words) => match line {
                Line::Whole(mut word) => {
                    word.pop_if(|byte| *byte == b'\r');
                    word.push(0);
                    words.add(&word);
                }
                Line::TooLong => *words = Begun { line: Vec::new(), is_too_long: true },
            },
        }
    }

    /// The command on several lines.
    fn end_words(&mut self) -> Option<Line> {
        self.words.take().and_then(|mut words| words.end())
    }
}

/// The file for commands, as one of those who write to it has it open: what he writes becomes lines, wherever he thinks
/// that he writes it.
#[derive(Debug)]
pub(super) struct CommandFile {
    lines: SyncSender<Submitted>,
    output: Arc<Output>,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    commands: Commands,
    /// What was submitted and may not be done yet.
    pending: Vec<Pending>,
}

impl CommandFile {
    pub(super) fn new(lines: SyncSender<Submitted>, output: Arc<Output>) -> Self {
        Self { lines, output, written: Mutex::default() }
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a line to whoever runs them, which never waits.
    fn submit(&self, line: Line) -> Option<Pending> {
        let (token, pending) = Pending::new();
        if self.lines.try_send(Submitted { line, token }).is_err() {
            self.output.say(b"tarnfs: too many commands wait already: one was not run\n");
            return None;
        }
        Some(pending)
    }
}

impl Drop for CommandFile {
    fn drop(&mut self) {
        let last = self.written().commands.end();
        for line in last {
            drop(self.submit(line));
        }
    }
}

/// Nothing can be read there.
impl Source for CommandFile {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn len(&self) -> u64 {
        0
    }

    fn describe(&self) -> String {
        "command".to_owned()
    }
}

impl WritableFile for CommandFile {
    fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
        begins()?;
        let mut written = self.written();
        for line in written.commands.write(bytes) {
            let pending = self.submit(line).filter(|_| written.pending.len() < MOST_PENDING);
            written.pending.extend(pending);
        }
        Ok(bytes.len())
    }

    /// Whoever opens it with `>` empties it.
    fn set_len(&self, length: u64) -> io::Result<()> {
        if length == 0 { Ok(()) } else { Err(Errno::ROFS.into()) }
    }

    fn sync(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _: Allocation, _: std::ops::Range<u64>, _: bool) -> io::Result<()> {
        Err(Errno::ROFS.into())
    }

    fn is_waited_for(&self) -> bool {
        true
    }

    /// Who closes it goes on when what was written is done, so that the next line of a script finds it done.
    fn flush(&self) -> io::Result<Vec<Pending>> {
        Ok(std::mem::take(&mut self.written().pending))
    }

    fn writes_at_once(&self) -> bool {
        true
    }
}
