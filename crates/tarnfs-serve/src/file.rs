//! The bytes of a file, or parts of it.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Bytes;
use tarnfs_source::SharedSource;
use tarnfs_tree::escape;

use crate::body::{Need, Pieces, Room, Share, Step};
use crate::pool::{Gone, Work};

/// What a body has one behind the other.
#[derive(Debug)]
pub(crate) enum Part {
    Text(Bytes),
    File(Range<u64>),
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(range) => range.end - range.start,
        }
    }
}

/// Reads parts of a file.
pub(crate) struct Parts {
    source: SharedSource,
    left: VecDeque<Part>,
    share: Share,
    spare: Spare,
    /// The last piece, which is sent once all of the file is verified.
    last: Option<Bytes>,
    state: Option<State>,
    /// What is read, for the log.
    path: Vec<u8>,
}

/// What is known of a file that may change while it is read.
#[derive(Debug, PartialEq, Eq)]
struct State {
    length: i64,
    modified: (i64, i64),
}

impl State {
    fn of(source: &SharedSource) -> Option<Self> {
        let stat = rustix::fs::fstat(source.backing_file()?).ok()?;
        // Not the time of its inode, which another name changes, too.
        Some(Self { length: stat.st_size, modified: (stat.st_mtime, stat.st_mtime_nsec as i64) })
    }
}

impl Parts {
    pub(crate) fn new(source: SharedSource, parts: impl Into<VecDeque<Part>>, share: Share, path: Vec<u8>) -> Self {
        let state = State::of(&source);
        Self { source, left: parts.into(), share, spare: Spare::default(), last: None, state, path }
    }

    /// Bytes that are still to come.
    pub(crate) fn length(&self) -> u64 {
        let last = self.last.as_ref().map_or(0, |last| last.len() as u64);
        last + self.left.iter().map(Part::len).sum::<u64>()
    }

    fn read(&mut self, gone: &Gone) -> io::Result<Step> {
        if self.last.is_some() {
            self.source.verify(&|| gone.is_gone())?;
            self.source.read_at(&mut [0], self.source.len().saturating_sub(1))?;
            return Ok(self.last.take().map_or(Step::End, Step::Piece));
        }
        let range = match self.left.front_mut() {
            None => return Ok(Step::End),
            Some(Part::Text(text)) => {
                let text = std::mem::take(text);
                self.left.pop_front();
                return Ok(Step::Piece(text));
            }
            Some(Part::File(range)) => range,
        };
        let piece = self.share.piece();
        let length = (range.end - range.start).min(piece as u64) as usize;
        let mut buffer = self.spare.take(length, piece, &self.share);
        let mut read = 0;
        while read < length {
            match self.source.read_before(&mut buffer.bytes[read..length], range.start + read as u64, range.end)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => read += more,
            }
        }
        range.start += length as u64;
        let is_last = range.start == range.end;
        let is_end = is_last && range.end == self.source.len();
        let piece = self.spare.bytes(buffer, length);
        if is_last {
            self.left.pop_front();
            if State::of(&self.source) != self.state {
                return Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, "it has changed meanwhile"));
            }
        }
        if is_end && self.source.is_unproven() {
            // Whoever has the end of a file may have all of it: it ends only if all of it is right.
            self.last = Some(piece);
            return Ok(Step::Later);
        }
        Ok(Step::Piece(piece))
    }
}

impl Pieces for Parts {
    fn next(&mut self, gone: &Gone) -> io::Result<Step> {
        self.read(gone).inspect_err(|error| {
            // Who has gone is no reason to tell anybody.
            if !gone.is_gone() {
                log::warn!("{}: {error}: the answer was broken off", escape(&self.path));
            }
        })
    }

    fn work(&self) -> Work {
        if self.last.is_some() { Work::Verify } else { Work::Read }
    }

    fn need(&self) -> Need {
        match self.left.front() {
            _ if self.last.is_some() => Need::Thread,
            Some(Part::File(range)) => {
                let length = (range.end - range.start).min(self.share.piece() as u64) as usize;
                if self.source.is_unproven() || !self.source.is_ready(range.start, length) {
                    Need::Thread
                } else if self.source.file_range().is_some() {
                    // Nothing of it is ever decoded.
                    Need::Nothing
                } else {
                    Need::Hardly
                }
            }
            _ => Need::Nothing,
        }
    }

    fn left(&self) -> Option<u64> {
        Some(self.length())
    }
}

/// Buffers that were sent, to be filled again.
#[derive(Debug, Clone, Default)]
struct Spare(Arc<Mutex<Vec<Buffer>>>);

/// What a piece is read into.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    _room: Room,
}

/// Goes back when it was sent.
struct Filled {
    buffer: Option<Buffer>,
    length: usize,
    spare: Spare,
}

impl Spare {
    /// Buffers that are kept.
    const MOST: usize = 3;

    /// One of at least `length`. Where pieces have become shorter, the long ones are given back.
    fn take(&self, length: usize, piece: usize, share: &Share) -> Buffer {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let fits = |buffer: &Buffer| (length..=2 * piece).contains(&buffer.bytes.len());
        kept.filter(fits).unwrap_or_else(|| Buffer { bytes: vec![0; length], _room: share.hold(length) })
    }

    fn bytes(&self, buffer: Buffer, length: usize) -> Bytes {
        Bytes::from_owner(Filled { buffer: Some(buffer), length, spare: self.clone() })
    }
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer.bytes[..self.length])
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let mut spare = self.spare.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < Spare::MOST {
            spare.extend(self.buffer.take());
        }
    }
}

/// Headers between the parts of a `multipart/byteranges`, and the parts.
pub(crate) fn multipart(parts: &[Range<u64>], kind: &str, length: u64, boundary: &str) -> Vec<Part> {
    let mut all = Vec::with_capacity(parts.len() * 2 + 1);
    for part in parts {
        let (first, last) = (part.start, part.end - 1);
        all.push(Part::Text(
            format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: bytes {first}-{last}/{length}\r\n\r\n")
                .into(),
        ));
        all.push(Part::File(part.clone()));
    }
    all.push(Part::Text(format!("\r\n--{boundary}--\r\n").into()));
    all
}
