//! What an index knows of damage in a layer.

use std::ops::Range;

use tarnfs_codec::Damage;

use super::Own;
use crate::Error;
use crate::sqlite::broken;

impl Own {
    /// `only_lost`: of what cannot be decoded, not of what only fails a check.
    pub(super) fn damage_of(&self, layer: usize, range: Range<u64>, only_lost: bool) -> Result<Option<Damage>, Error> {
        if !self.has_damage || range.is_empty() {
            return Ok(None);
        }
        let end = i64::try_from(range.end).unwrap_or(i64::MAX);
        self.pool.with(|session| {
            // Ranges do not overlap, so if the last one that begins before the end does not reach in, none does.
            let mut query = session
                .connection
                .prepare_cached(
                    "SELECT first, \"end\", compressed, what FROM damage WHERE layer = ? AND first < ? \
                     AND compressed >= ? ORDER BY first DESC LIMIT 1",
                )
                .map_err(broken)?;
            let least = if only_lost { 0 } else { i64::MIN };
            let mut rows = query.query([layer as i64, end, least]).map_err(broken)?;
            let Some(row) = rows.next().map_err(broken)? else { return Ok(None) };
            let get = |column: usize| row.get::<_, i64>(column).map_err(broken).map(|number| number.max(0) as u64);
            let decoded = get(0)?..get(1)?;
            if decoded.end <= range.start {
                return Ok(None);
            }
            let compressed = row.get::<_, i64>(2).map_err(broken)?;
            let lost_from = if compressed < 0 { decoded.end } else { decoded.start };
            let compressed = if compressed < 0 { !compressed } else { compressed } as u64;
            let what = row.get(3).map_err(broken)?;
            Ok(Some(Damage { decoded, lost_from, compressed, compressed_from: compressed, what }))
        })
    }
}
