//! Content that is not simply stored in one run.

use tarnfs_format::{Coder, Piece};

use crate::{Error, Node};

/// What has pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A file, or a symbolic link ([`crate::Row::has_pieces`]).
    File(Node),
    /// The nested stream of that number, which is [`crate::STORED_IN_PIECES`]. Offsets count in the stream that it lies
    /// in.
    Stream(u32),
}

/// What an index says of content that is stored in pieces. By default there is none.
pub trait InPieces {
    /// Hands each piece of `holder` to `receive`, until that returns false: a list of them may be long.
    fn each_piece(&self, holder: Holder, receive: &mut dyn FnMut(&Piece) -> bool) -> Result<(), Error> {
        let _ = receive;
        Err(Error::Broken(match holder {
            Holder::File(node) => format!("node {} has no pieces", node.0),
            Holder::Stream(number) => format!("stream {number} has no pieces"),
        }))
    }

    /// All of them.
    fn pieces(&self, holder: Holder) -> Result<Vec<Piece>, Error> {
        let mut pieces = Vec::new();
        self.each_piece(holder, &mut |piece| {
            pieces.push(piece.clone());
            true
        })?;
        Ok(pieces)
    }

    /// Bytes in which they are kept, of what is no hard link: four for each, or more.
    fn pieces_take(&self, holder: Holder) -> Result<u64, Error> {
        let _ = holder;
        Ok(0)
    }

    /// True if some file or link that has pieces is longer than so many bytes, also one that a later entry has
    /// replaced, or whose content is shown in its place.
    fn has_pieces_above(&self, bytes: u64) -> Result<bool, Error> {
        let _ = bytes;
        Ok(false)
    }

    /// True if there are symbolic links whose target is stored in pieces.
    fn has_links_in_pieces(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Hands each coder that pieces of files may have to `receive`, until that returns false.
    fn coders(&self, receive: &mut dyn FnMut(&Coder) -> bool) -> Result<(), Error> {
        let _ = receive;
        Ok(())
    }
}
