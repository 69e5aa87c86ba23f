//! Content that is stored in pieces.

use tarnfs_format::{Coder, Kind, Piece};

use super::session::{Session, lies};
use super::{Own, ROWS, schema};
use crate::sqlite::broken;
use crate::writer::record::more;
use crate::{Error, Holder, InPieces, Index as _, StreamTables as _, pieces};

impl Own {
    /// Hands each piece of `holder` to `receive`, until that returns false.
    fn pieces_of(&self, holder: Holder, receive: impl FnMut(Piece) -> bool) -> Result<(), Error> {
        let (bytes, start, size, end) = match holder {
            Holder::File(node) => {
                let row = self.row(node)?.ok_or_else(|| lies(node.0, "there is none"))?;
                if !row.has_pieces {
                    return Err(lies(node.0, "it has no pieces"));
                }
                let bytes = self.map_of(row.node)?;
                let length = self.pool.with(|session| session.stream_length(row.stream, &self.bounds))?;
                let end = if self.bounds.is_cut { u64::MAX } else { length };
                (bytes, row.header.unwrap_or_default(), row.size, end)
            }
            Holder::Stream(number) => {
                let nested = self.nested(number)?;
                let bytes = self.map("SELECT map FROM nested_pieces WHERE layer = ?", i64::from(number))?;
                (bytes, nested.start, nested.decoded_length, nested.start.saturating_add(nested.length))
            }
        };
        // Not under one lock: `receive` may ask as well.
        let coder_of = |number| self.pool.with(|session| session.coder(number));
        pieces::each(&bytes, start, size, end, coder_of, receive)
    }
}

impl InPieces for Own {
    fn each_piece(&self, holder: Holder, receive: &mut dyn FnMut(&Piece) -> bool) -> Result<(), Error> {
        self.pieces_of(holder, |piece| receive(&piece))
    }

    fn pieces(&self, holder: Holder) -> Result<Vec<Piece>, Error> {
        let mut pieces = Vec::new();
        self.pieces_of(holder, |piece| {
            pieces.push(piece);
            true
        })?;
        Ok(pieces)
    }

    fn pieces_take(&self, holder: Holder) -> Result<u64, Error> {
        match holder {
            Holder::File(node) => self.length_of_map("SELECT length(map) FROM extents WHERE node = ?", node.0 as i64),
            Holder::Stream(number) => {
                self.length_of_map("SELECT length(map) FROM nested_pieces WHERE layer = ?", i64::from(number))
            }
        }
    }

    /// Asked of all rows, a part of them at a time.
    fn has_pieces_above(&self, bytes: u64) -> Result<bool, Error> {
        /// Most archives have no class of such files, which is known at once.
        const ANY: &str = "SELECT EXISTS (SELECT 1 FROM classes WHERE more & ?1)";
        const NESTED: &str = "SELECT EXISTS (SELECT 1 FROM nested_pieces JOIN layers USING (layer) \
                              WHERE layer >= ?3 AND layer < ?4 AND ?1 AND decoded_length > ?2)";
        const ENTRIES: &str = "SELECT EXISTS (SELECT 1 FROM entries JOIN classes USING (class) \
                               WHERE entries.rowid >= ?3 AND entries.rowid < ?4 AND more & ?1 AND size > ?2)";
        const OLDER: &str = "SELECT EXISTS (SELECT 1 FROM replaced JOIN classes USING (class) \
                                WHERE node >= ?3 AND node < ?4 AND more & ?1 AND size > ?2)";
        if let Some(longest) = self.known.longest_in_pieces {
            return Ok(longest > bytes);
        }
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

    fn has_links_in_pieces(&self) -> Result<bool, Error> {
        const ANY: &str = "SELECT EXISTS (SELECT 1 FROM classes WHERE more & ?1 AND type = ?2)";
        let values = [i64::from(more::PIECES), i64::from(schema::type_of(Kind::Symlink))];
        self.pool.with(|session| session.connection.query_row(ANY, values, |row| row.get(0)).map_err(broken))
    }

    fn coders(&self, receive: &mut dyn FnMut(&Coder) -> bool) -> Result<(), Error> {
        // They are numbered from 1 on.
        for number in 1..=u32::MAX {
            let coder = self.pool.with(|session| session.coder_if_any(number))?;
            if !coder.is_some_and(|coder| receive(&coder)) {
                break;
            }
        }
        Ok(())
    }
}
