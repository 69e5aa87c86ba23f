//! Layers of compression, and compressed files in the archive.

use std::ops::Range;
use std::sync::Arc;

use tarnfs_codec::{ChunkTable, Damage};

use super::{Own, chunks, schema};
use crate::sqlite::broken;
use crate::{Error, FIRST_NESTED, Nested, SeekPoints, StreamTables};

impl StreamTables for Own {
    fn nested(&self, number: u32) -> Result<Nested, Error> {
        let wrong = |what: &str| Error::Broken(format!("stream {number}: {what}"));
        if number < FIRST_NESTED {
            return Err(wrong("it is none that is nested"));
        }
        self.pool.with(|session| {
            let mut query = session
                .connection
                .prepare_cached("SELECT codec, decoded_length, input, start, length FROM layers WHERE layer = ?")
                .map_err(broken)?;
            let mut rows = query.query([number]).map_err(broken)?;
            let row = rows.next().map_err(broken)?.ok_or_else(|| wrong("it is missing"))?;
            let at = |column: usize| -> Result<u64, Error> {
                u64::try_from(row.get::<_, i64>(column).map_err(broken)?).map_err(|_| wrong("a number is negative"))
            };
            let codec = schema::codec_name(row, 0)?;
            let (decoded_length, start, length) = (at(1)?, at(3)?, at(4)?);
            // Numbers shrink on the way out, so no way through the streams is endless.
            let input =
                u32::try_from(at(2)?).ok().filter(|&input| input == 0 || (FIRST_NESTED..number).contains(&input));
            let input = input.ok_or_else(|| wrong("it lies in a stream that is not there"))?;
            drop(rows);
            drop(query);
            let outer = session.stream_length(input, &self.bounds)?;
            if start.checked_add(length).is_none_or(|end| end > outer) {
                return Err(wrong("it goes past the end of the stream that it lies in"));
            }
            Ok(Nested { codec, decoded_length, input, start, length })
        })
    }

    fn each_nested(&self, receive: &mut dyn FnMut(u32, &Nested)) -> Result<(), Error> {
        self.all_nested(receive)
    }

    fn seek_points(self: Arc<Self>, layer: usize) -> Result<SeekPoints, Error> {
        self.count_seek_points(layer)
    }

    fn chunks(self: Arc<Self>, layer: usize) -> Result<Arc<dyn ChunkTable>, Error> {
        Ok(Arc::new(chunks::Chunks::new(self, layer)?))
    }

    fn damage_in(&self, range: Range<u64>) -> Result<Option<Damage>, Error> {
        match self.summary.layers.len().checked_sub(1) {
            Some(layer) => self.damage_of(layer, range, false),
            None => Ok(None),
        }
    }

    fn has_unverified(&self) -> bool {
        self.has_unverified
    }
}
