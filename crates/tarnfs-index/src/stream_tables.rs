//! Streams that have to be decoded: layers of compression around the archive, and compressed files in it.

use std::ops::Range;
use std::sync::Arc;

use tarnfs_codec::{ChunkTable, Damage};

use crate::{Error, Nested, SeekPoints};

/// What an index keeps of streams that have to be decoded.
pub trait StreamTables {
    /// What is known of nested stream `number` ([`FIRST_NESTED`](crate::FIRST_NESTED) and those that follow).
    fn nested(&self, number: u32) -> Result<Nested, Error> {
        Err(Error::Broken(format!("there is no stream {number}")))
    }

    /// Hands every nested stream to `receive`, with its number. An index that keeps none has none.
    fn each_nested(&self, receive: &mut dyn FnMut(u32, &Nested)) -> Result<(), Error> {
        let _ = receive;
        Ok(())
    }

    /// What there is to count of the seek points of layer `layer`, or of the nested stream of that number.
    fn seek_points(self: Arc<Self>, layer: usize) -> Result<SeekPoints, Error> {
        SeekPoints::of(&*self.chunks(layer)?)
    }

    /// The chunks of layer `layer` (0 is the outermost), or of the nested stream of that number.
    fn chunks(self: Arc<Self>, layer: usize) -> Result<Arc<dyn ChunkTable>, Error>;

    /// Damage of the innermost stream that overlaps `range`.
    fn damage_in(&self, range: Range<u64>) -> Result<Option<Damage>, Error>;

    /// True if some of the damage can be decoded and only fails a check of its format.
    fn has_unverified(&self) -> bool {
        false
    }
}
