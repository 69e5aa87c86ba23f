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

    /// Reads the next children of `folder` and returns how many rows that were, those that are not shown among them.
    pub(super) fn read_batch(
        &self,
        session: &mut Session,
        folder: Node,
        from: u64,
        batch: &mut Vec<(u64, usize, Row)>,
        names: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        let Some(found) = session.folder(folder.0, &self.bounds)?.filter(|found| from < found.count) else {
            return Ok(0);
        };
        let first = found.first.saturating_add(from);
        let last = found.first.saturating_add(found.count);
        let end = first.saturating_add(BATCH as u64).min(last);
        // And the one behind them: a folder may be behind what has its name.
        let ahead = end.saturating_add(1).min(last);
        let mut stored = [None; BATCH + 1];
        let mut count = 0_usize;
        {
            let mut query = session.connection.prepare_cached(RANGE).map_err(broken)?;
            let mut rows = query.query([first as i64, ahead as i64]).map_err(broken)?;
            let mut start = 0;
            while let Some(row) = rows.next().map_err(broken)? {
                let name = name_of(row)?;
                let is_twin = count > 0 && names.get(start..) == Some(name);
                start = names.len();
                names.extend_from_slice(name);
                let place = stored.get_mut(count).ok_or_else(|| lies(folder.0, "it has too many children"))?;
                let node = first.saturating_add(count as u64);
                *place = Some((Stored::read(row)?.is_number(node)?, names.len(), is_twin));
                count = count.saturating_add(1);
            }
        }
        if count as u64 != ahead.saturating_sub(first) {
            return Err(lies(folder.0, "some of its children are missing"));
        }
        let count = end.saturating_sub(first);
        let mut kept = 0;
        let mut start = 0;
        for number in 0..count {
            let at = |number: u64| stored.get(number as usize).copied().flatten();
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
                let length = name.len();
                names.copy_within(name, kept);
                kept = kept.saturating_add(length);
                batch.push((next, kept, row));
            }
        }
        Ok(count)
    }
}
