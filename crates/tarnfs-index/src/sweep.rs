//! What is counted of an index.

use std::collections::HashSet;
use std::io;

use tarnfs_codec::ChunkTable;
use tarnfs_format::{Kind, Piece};

use crate::{Error, Holder, Index, Node, Row};

/// An entry that is counted.
#[derive(Debug)]
pub struct Swept<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// What it is: [`Kind::HardLink`] of further names of a file. Devices have no numbers here.
    pub kind: Kind,
    /// Length in bytes; 0 of what is no file.
    pub size: u64,
    /// The stream that it lies in.
    pub stream: u32,
    /// True if it has holes.
    pub is_sparse: bool,
    /// Its pieces, if it is stored so.
    pub pieces: Option<&'a [Piece]>,
}

/// The seek points of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SeekPoints {
    /// How many there are.
    pub count: u64,
    /// Decoded bytes between two of them at most, or behind the last one.
    pub longest: u64,
    /// Decoded bytes behind all of them.
    pub decoded: u64,
    /// Sum of the squares of the lengths behind them: of a byte at a random place, a decoder has to give half of what
    /// that is by byte of the stream before it comes to the byte.
    pub squares: f64,
    /// What is decoded there can be compared with checksums.
    pub has_checksums: bool,
}

impl SeekPoints {
    /// Another one, with so many decoded bytes behind it.
    pub(crate) fn add(&mut self, length: u64) {
        self.count = self.count.saturating_add(1);
        self.longest = self.longest.max(length);
        self.decoded = self.decoded.saturating_add(length);
        self.squares += (length as f64).powi(2);
    }

    /// Those of a table, each of which has to be asked for.
    pub(crate) fn of(table: &dyn ChunkTable) -> Result<Self, Error> {
        let mut found = Self { has_checksums: true, ..Self::default() };
        let mut at = 0;
        while let Some(chunk) = table.chunk_at(at).map_err(as_broken)? {
            let end = chunk.point.decoded.saturating_add(chunk.length);
            if end <= at {
                return Err(Error::Broken("its seek points lead back".to_owned()));
            }
            found.has_checksums &= !chunk.checksums.is_empty();
            found.add(chunk.length);
            at = end;
        }
        Ok(found)
    }

    /// Decoded bytes before a byte at a random place, from the seek point before it on: on average.
    pub fn mean_way(&self) -> f64 {
        if self.decoded == 0 { 0.0 } else { self.squares / self.decoded as f64 / 2.0 }
    }
}

fn as_broken(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => Error::Broken(error.to_string()),
        _ => Error::Io(error),
    }
}

/// Rows that are read at once.
const BATCH: usize = 1024;

/// Files with several names of which it is known that one was counted.
const MOST_SHARED: usize = 1 << 20;

/// [`Index::sweep`] of an index that has no quicker way.
pub(crate) fn through_folders<I: Index + ?Sized>(
    index: &I,
    receive: &mut dyn FnMut(&Swept<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut shared = HashSet::new();
    let mut waiting = vec![(Node::ROOT, 0)];
    // Folders that lie about which rows are theirs may all have the same ones.
    let summary = index.summary();
    let mut left = summary.files.saturating_add(summary.folders).saturating_mul(16).saturating_add(1 << 20);
    while let Some((folder, from)) = waiting.pop() {
        let mut rows: Vec<(Vec<u8>, Row)> = Vec::new();
        let mut next = from;
        index.children(folder, from, &mut |behind, name, row| {
            next = behind;
            rows.push((name.to_vec(), row.clone()));
            rows.len() < BATCH
        })?;
        if rows.len() == BATCH {
            waiting.push((folder, next));
        }
        left = left.checked_sub(rows.len() as u64).ok_or_else(|| Error::Broken("it has no end".to_owned()))?;
        for (name, row) in rows {
            if row.kind == Kind::Folder {
                waiting.push((row.node, 0));
            }
            let is_counted =
                row.links > 1 && row.kind != Kind::Folder && shared.len() < MOST_SHARED && !shared.insert(row.node);
            let kind = if is_counted { Kind::HardLink } else { row.kind };
            let pieces = if row.has_pieces && !is_counted { Some(index.pieces(Holder::File(row.node))?) } else { None };
            receive(&Swept {
                name: &name,
                kind,
                size: if kind == Kind::File { row.size } else { 0 },
                stream: row.stream,
                is_sparse: row.is_sparse && kind == Kind::File,
                pieces: pieces.as_deref(),
            })?;
        }
    }
    Ok(())
}
