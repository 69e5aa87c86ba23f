//! The file that commands are written to.

use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use tarnfs_source::Source;

use super::output::Output;
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

/// What one writer has begun to write: the line that is not at its end.
#[derive(Debug, Default)]
pub(super) struct Begun {
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

    /// Takes what the writer goes on with, and gives the lines that end in it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut parts = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            self.add(part);
            if parts.peek().is_some() {
                lines.extend(self.end());
            }
        }
        lines
    }

    /// The line, unless there is nothing in it; the next one begins.
    pub(super) fn end(&mut self) -> Option<Line> {
        match std::mem::take(self) {
            Self { is_too_long: true, .. } => Some(Line::TooLong),
            Self { line, .. } => (!line.trim_ascii().is_empty()).then_some(Line::Whole(line)),
        }
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
    begun: Begun,
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
        let last = self.written().begun.end();
        drop(last.and_then(|line| self.submit(line)));
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
        let mut written = self.written();
        for line in written.begun.write(bytes) {
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

    /// Who closes it goes on when what was written is done, so that the next line of a script finds it done.
    fn flush(&self) -> io::Result<Vec<Pending>> {
        Ok(std::mem::take(&mut self.written().pending))
    }

    fn writes_at_once(&self) -> bool {
        true
    }
}
