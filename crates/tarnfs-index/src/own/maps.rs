//! Maps of where the bytes of an entry lie, which may be long.

use crate::sqlite::{broken, with_longer};
use crate::{Error, Node};

use super::Own;

impl Own {
    /// The row of `node` in `extents`.
    pub(super) fn map_of(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.map("SELECT map FROM extents WHERE node = ?", node.0 as i64)
    }

    /// A map, which may be long.
    pub(super) fn map(&self, query: &str, of: i64) -> Result<Vec<u8>, Error> {
        self.pool.with(|session| {
            with_longer(&session.connection, || {
                let mut query = session.connection.prepare_cached(query).map_err(broken)?;
                query.query_row([of], |row| row.get::<_, Vec<u8>>(0)).map_err(broken)
            })
        })
    }

    /// Bytes of a map, which is not read for that.
    pub(super) fn length_of_map(&self, query: &str, of: i64) -> Result<u64, Error> {
        self.pool.with(|session| {
            let mut query = session.connection.prepare_cached(query).map_err(broken)?;
            let length = query.query_row([of], |row| row.get::<_, i64>(0)).map_err(broken)?;
            Ok(u64::try_from(length).unwrap_or_default())
        })
    }
}
