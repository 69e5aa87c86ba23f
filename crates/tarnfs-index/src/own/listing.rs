//! The children of a folder.

use super::session::{Folder, Session, Stored, lies, name_of};
use super::{Own, RANGE};
use crate::sqlite::broken;
use crate::{Error, Node, Row};

/// Children that are read at once.
pub(super) const BATCH: usize = 128;

impl Own {
    /// The folder `name` of `folder` that has children, whether it shows or something in front of it.
    pub(super) fn content(
        &self,
        session: &mut Session,
        folder: Node,
        found: Folder,
        name: &[u8],
    ) -> Result<Option<(Node, Folder)>, Error> {
        let (behind, shown) = Self::find(session, found, name)?;
        for stored in [behind, shown].into_iter().flatten() {
            if let Some(own) = session.folder(stored.node, &self.bounds)? {
                if own.parent != folder.0 {
                    return Err(lies(stored.node, "it is in another folder"));
                }
                return Ok(Some((Node(stored.node), own)));
            }
        }
        Ok(None)
    }

    /// Tells `session` of a folder what is known without a query.
    fn know_folder(&self, session: &mut Session, node: u64) -> Result<(), Error> {
        if let Some(columns) = self.known.rows.as_ref().and_then(|made| made.folder(node)) {
            session.know(node, Folder::checked(node, columns, &self.bounds)?);
        }
        Ok(())
    }

    /// Reads the next children of `folder` from row `from` of it on, and returns the row behind them; `None` if there
    /// is none. Rows that are not shown count, too.
    pub(super) fn read_batch(
        &self,
        session: &mut Session,
        folder: Node,
        from: u64,
        batch: &mut Vec<(u64, usize, Row)>,
        names: &mut Vec<u8>,
    ) -> Result<Option<u64>, Error> {
        self.know_folder(session, folder.0)?;
        let Some(found) = session.folder(folder.0, &self.bounds)?.filter(|found| from < found.count) else {
            return Ok(None);
        };
        let first = found.first.saturating_add(from);
        let last = found.first.saturating_add(found.count);
        let end = first.saturating_add(BATCH as u64).min(last);
        // And the one behind them: a folder may be behind what has its name.
        let ahead = end.saturating_add(1).min(last);
        let most = ahead.saturating_sub(first) as usize;
        let mut stored = Vec::with_capacity(most);
        let mut start = 0;
        let mut take = |row: Stored, name: &[u8]| {
            let is_twin = !stored.is_empty() && names.get(start..) == Some(name);
            start = names.len();
            names.extend_from_slice(name);
            if stored.len() >= most {
                return Err(lies(folder.0, "it has too many children"));
            }
            let node = first.saturating_add(stored.len() as u64);
            stored.push((row.is_number(node)?, names.len(), is_twin));
            Ok(())
        };
        if let Some(made) = &self.known.rows {
            (first..ahead).filter_map(|node| made.row(node)).try_for_each(|(row, name)| take(row, name))?;
        } else {
            let mut query = session.connection.prepare_cached(RANGE).map_err(broken)?;
            let mut rows = query.query([first as i64, ahead as i64]).map_err(broken)?;
            while let Some(row) = rows.next().map_err(broken)? {
                take(Stored::read(row)?, name_of(row)?)?;
            }
        }
        if stored.len() != most {
            return Err(lies(folder.0, "some of its children are missing"));
        }
        if self.known.rows.is_some() {
            stored.iter().try_for_each(|(stored, ..)| self.know_folder(session, stored.node))?;
        } else {
            session.know_folders(stored.iter().map(|(stored, ..)| stored), &self.bounds)?;
        }
        let count = end.saturating_sub(first);
        batch.reserve(count as usize);
        let mut kept = 0;
        let mut start = 0;
        for number in 0..count {
            let at = |number: u64| stored.get(number as usize).copied();
            let Some((stored, name_end, _)) = at(number) else { break };
            let next = from.saturating_add(number).saturating_add(1);
            let name = start..name_end;
            start = name_end;
            if let Some((twin, _, true)) = at(number.saturating_add(1)) {
                session.check_pair(&stored, &twin)?;
                if session.complete(twin, Some(folder.0), &self.bounds)?.is_some() {
                    continue;
                }
            }
            if let Some(row) = session.complete(stored, Some(folder.0), &self.bounds)? {
                // A hard link is of another node's class.
                if row.node.0 == stored.node {
                    self.owner_names.list(stored.node, stored.class);
                }
                let length = name.len();
                names.copy_within(name, kept);
                kept = kept.saturating_add(length);
                batch.push((next, kept, row));
            }
        }
        Ok((end < last).then(|| from.saturating_add(count)))
    }
}
