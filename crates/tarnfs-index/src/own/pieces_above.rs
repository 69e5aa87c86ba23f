//! Is there a long file that is stored in pieces? Asked of all rows, a part of them at a time.

use crate::Error;
use crate::sqlite::broken;
use crate::writer::record::more;

use super::session::Session;
use super::{Own, ROWS};

impl Own {
    /// [`Index::has_pieces_above`](crate::Index::has_pieces_above).
    pub(super) fn finds_pieces_above(&self, bytes: u64) -> Result<bool, Error> {
        if let Some(longest) = self.known.longest_in_pieces {
            return Ok(longest > bytes);
        }
        /// Most archives have no class of such files, which is known at once.
        const ANY: &str = "SELECT EXISTS (SELECT 1 FROM classes WHERE more & ?1)";
        const NESTED: &str = "SELECT EXISTS (SELECT 1 FROM nested_pieces JOIN layers USING (layer) \
                              WHERE layer >= ?3 AND layer < ?4 AND ?1 AND decoded_length > ?2)";
        const ENTRIES: &str = "SELECT EXISTS (SELECT 1 FROM entries JOIN classes USING (class) \
                               WHERE entries.rowid >= ?3 AND entries.rowid < ?4 AND more & ?1 AND size > ?2)";
        const OLDER: &str = "SELECT EXISTS (SELECT 1 FROM replaced JOIN classes USING (class) \
                                WHERE node >= ?3 AND node < ?4 AND more & ?1 AND size > ?2)";
        let (class, bytes) = (i64::from(more::PIECES), i64::try_from(bytes).unwrap_or(i64::MAX));
        let all = self.pool.with(|session| {
            let mut all = Vec::new();
            all.extend(session.layers_in_pieces()?.map(|ends| (NESTED, ends)));
            if session.connection.query_row(ANY, [class], |row| row.get(0)).map_err(broken)? {
                all.push((ENTRIES, (1, self.bounds.last)));
                all.extend(session.replaced()?.map(|ends| (OLDER, ends)));
            }
            Ok(all)
        })?;
        for (sql, (first, last)) in all {
            let mut at = first;
            while at <= last {
                let end = at.saturating_add(ROWS).min(last.saturating_add(1));
                let values = [class, bytes, at as i64, end as i64];
                let ask =
                    |session: &mut Session| session.connection.query_row(sql, values, |row| row.get(0)).map_err(broken);
                if self.pool.with(ask)? {
                    return Ok(true);
                }
                at = end;
            }
        }
        Ok(false)
    }
}
