//! Entries that later ones of the same path have replaced.

use std::cmp::Ordering;
use std::ops::Range;

use tarnfs_format::Kind;

use super::session::{Folder, Session, Stored, goes_on, lies, name_of};
use super::{InFolder, Own, REPLACED, ROWS};
use crate::sqlite::broken;
use crate::{Error, History, Node, Row};

impl Own {
    /// Where in `replaced` the rows of one name are. The table has the folders in the order in which their children
    /// lie, and is numbered in its order: two searches.
    pub(super) fn find_replaced(
        &self,
        session: &mut Session,
        folder: Node,
        name: &[u8],
    ) -> Result<Option<Range<i64>>, Error> {
        let Some(searched) = session.folder(folder.0, &self.bounds)? else { return Ok(None) };
        // Each by itself: of a query for both, SQLite reads the whole table.
        let end_of = |sql: &str| -> Result<Option<i64>, Error> {
            let mut query = session.connection.prepare_cached(sql).map_err(broken)?;
            query.query_row([], |row| row.get(0)).map_err(broken)
        };
        let first = end_of("SELECT min(node) FROM replaced")?.unwrap_or(0);
        let end = end_of("SELECT max(node) FROM replaced")?.unwrap_or(-1).saturating_add(1);
        // The first row that is not before what is searched; or that is behind it.
        let mut search = |from: i64, is_before: fn(Ordering) -> bool| -> Result<i64, Error> {
            let (mut low, mut high) = (from, end);
            while low < high {
                let middle = low.midpoint(high);
                let Some(row) = Replaced::first(session, middle, high)? else {
                    high = middle;
                    continue;
                };
                let own = session.folder(row.folder, &self.bounds)?;
                let own = own.ok_or_else(|| lies(row.stored.node, "the folder that it was in is none"))?;
                if is_before(own.first.cmp(&searched.first).then_with(|| row.name.as_slice().cmp(name))) {
                    low = (row.stored.node as i64).saturating_add(1);
                } else {
                    high = middle;
                }
            }
            Ok(low)
        };
        let first = search(first, Ordering::is_lt)?;
        Ok(Some(first..search(first, Ordering::is_le)?))
    }

    /// Passes over the first `from` rows of one name, without those that [`Self::read_replaced`] leaves out. Returns
    /// how many that were. Only links are looked at: a name may be stored millions of times.
    pub(super) fn pass_replaced(&self, rows: &mut Range<i64>, from: u64) -> Result<u64, Error> {
        let mut passed = 0_u64;
        while passed < from && !rows.is_empty() {
            let step = i64::try_from(from.saturating_sub(passed).min(ROWS)).unwrap_or(i64::MAX);
            let next = rows.start.saturating_add(step).min(rows.end);
            let left_out: i64 = self.pool.with(|session| {
                let sql = "SELECT count(*) FROM hard_links WHERE node >= ? AND node < ? AND shared = 0";
                let mut query = session.connection.prepare_cached(sql).map_err(broken)?;
                query.query_row([rows.start, next], |row| row.get(0)).map_err(broken)
            })?;
            let shown = next.saturating_sub(rows.start).saturating_sub(left_out);
            passed = passed.saturating_add(u64::try_from(shown).unwrap_or(0));
            rows.start = next;
        }
        Ok(passed)
    }

    /// Some of the rows of replaced entries behind node `after`, without hard links, each with its folder and name; and
    /// the last node that was looked at, if there was one.
    pub(super) fn read_all_replaced(
        &self,
        session: &mut Session,
        mut after: i64,
    ) -> Result<(Vec<InFolder>, Option<i64>), Error> {
        let mut batch = Vec::new();
        {
            let mut query = session
                .connection
                .prepare_cached(
                    "SELECT name, node, class, header, size, mtime, folder FROM replaced \
                     WHERE node > ? ORDER BY node LIMIT 256",
                )
                .map_err(broken)?;
            let mut rows = query.query([after]).map_err(broken)?;
            while let Some(row) = rows.next().map_err(broken)? {
                let stored = Stored::read(row)?;
                // The root's own name is empty; nothing else's is.
                let folder = row.get::<_, i64>(6).map_err(broken)?;
                let is_root = folder == 1 && row.get_ref(0).map_err(broken)?.as_blob().is_ok_and(<[u8]>::is_empty);
                let name = if is_root { Vec::new() } else { name_of(row)?.to_vec() };
                // Rows that do not go on in order come from a broken tree of pages, and may have no end.
                let node = i64::try_from(stored.node).ok().filter(|&node| node > after);
                after = node.ok_or_else(|| lies(stored.node, "it is out of order"))?;
                batch.push((folder, name, stored));
            }
        }
        if batch.is_empty() {
            return Ok((Vec::new(), None));
        }
        session.patience.renew();
        let mut found = Vec::new();
        for (folder, name, stored) in batch {
            if session.folder(folder as u64, &self.bounds)?.is_none() {
                return Err(lies(stored.node, "the folder that it was in is none"));
            }
            if !session.is_hard_link(&stored)?
                && let Some(row) = session.complete(stored, None, &self.bounds)?
            {
                found.push((Node(folder as u64), name, row));
            }
        }
        Ok((found, Some(after)))
    }

    /// Reads the next rows of that name, with the bytes at which their headers begin. `rest` is empty behind the last.
    pub(super) fn read_replaced(
        &self,
        session: &mut Session,
        folder: Node,
        name: &[u8],
        rest: &mut Range<i64>,
    ) -> Result<Vec<(Option<u64>, Row)>, Error> {
        let mut found = Vec::new();
        while found.len() < REPLACED {
            let next = Replaced::first(session, rest.start, rest.end)?;
            let Some(row) = next.filter(|row| row.folder == folder.0 && row.name == name) else {
                *rest = 0..0;
                break;
            };
            session.patience.renew();
            rest.start = (row.stored.node as i64).saturating_add(1);
            let header = row.stored.header(&self.bounds);
            if let Some(row) = session.complete(row.stored, None, &self.bounds)? {
                found.push((header, row));
            }
        }
        if found.iter().any(|(_, row)| row.kind == Kind::Folder)
            && let Some(searched) = session.folder(folder.0, &self.bounds)?
            && let Some((content, own)) = self.content(session, folder, searched, name)?
        {
            for (_, row) in found.iter_mut().filter(|(_, row)| row.kind == Kind::Folder) {
                (row.node, row.links) = (content, own.links());
            }
        }
        Ok(found)
    }
}

/// A row of `replaced`.
struct Replaced {
    folder: u64,
    name: Vec<u8>,
    stored: Stored,
}

impl Replaced {
    /// The first row whose node is in `from..end`.
    fn first(session: &Session, from: i64, end: i64) -> Result<Option<Self>, Error> {
        let sql = "SELECT name, node, class, header, size, mtime, folder FROM replaced \
                   WHERE node >= ? AND node < ? ORDER BY node LIMIT 1";
        let mut query = session.connection.prepare_cached(sql).map_err(broken)?;
        let mut rows = query.query([from, end]).map_err(broken)?;
        let Some(row) = rows.next().map_err(broken)? else { return Ok(None) };
        let stored = Stored::read(row)?;
        let node = stored.node as i64;
        // Of a broken tree of pages, SQLite may give another row than one that was asked for.
        if node < from || node >= end {
            return Err(lies(stored.node, "it is out of order"));
        }
        let name = row.get_ref(0).map_err(broken)?.as_blob().unwrap_or_default().to_vec();
        Ok(Some(Self { folder: row.get::<_, i64>(6).map_err(broken)? as u64, name, stored }))
    }
}

impl History for Own {
    fn replaced(&self, receive: &mut dyn FnMut(Node, &[u8], &Row)) -> Result<(), Error> {
        let mut after = self.bounds.last as i64;
        loop {
            // It may be done twice: so what is found is handed on behind it.
            let (found, last) = self.pool.with(|session| self.read_all_replaced(session, after))?;
            for (folder, name, row) in &found {
                receive(*folder, name, row);
            }
            let Some(last) = last else { return Ok(()) };
            after = last;
        }
    }

    fn replaced_count(&self) -> Result<u64, Error> {
        let ends = self.pool.with(|session| session.replaced())?;
        Ok(ends.map_or(0, |(first, last)| last.abs_diff(first).saturating_add(1)))
    }

    fn replaced_of(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Option<u64>, &Row) -> bool,
    ) -> Result<u64, Error> {
        let Some(mut rest) = self.pool.with(|session| self.find_replaced(session, folder, name))? else {
            return Ok(0);
        };
        let passed = if from == 0 { 0 } else { self.pass_replaced(&mut rest, from)? };
        while !rest.is_empty() {
            let (found, behind) = self.pool.with(|session| {
                // It may be done twice.
                let mut rest = rest.clone();
                let found = self.read_replaced(session, folder, name, &mut rest)?;
                Ok((found, rest))
            })?;
            rest = behind;
            if !found.iter().all(|(header, row)| receive(*header, row)) {
                break;
            }
        }
        Ok(passed)
    }

    fn hard_links(&self, receive: &mut dyn FnMut(Node, &[u8], u64, Node)) -> Result<(), Error> {
        self.pool.with_once(|session| {
            let mut folders = session
                .connection
                .prepare_cached("SELECT parent, first, count, subfolders, node FROM folders ORDER BY node")
                .map_err(broken)?;
            let mut links = session
                .connection
                .prepare_cached(
                    "SELECT name, header, shared, hard_links.node \
                     FROM hard_links JOIN entries ON entries.rowid = hard_links.node \
                     WHERE hard_links.node >= ? AND hard_links.node < ? ORDER BY hard_links.node",
                )
                .map_err(broken)?;
            // Folders that lie about which rows are theirs may all have the same ones.
            let (mut left, mut last_folder) = (session.count_links(self.bounds.last)?, 0);
            let mut folders = folders.query([]).map_err(broken)?;
            while let Some(row) = folders.next().map_err(broken)? {
                let get = |column: usize| row.get::<_, i64>(column).map_err(broken);
                let node = goes_on(&mut last_folder, get(4)?)?;
                let folder = Folder::checked(node, [get(0)?, get(1)?, get(2)?, get(3)?], &self.bounds)?;
                let (first, end) = (folder.first as i64, folder.first.saturating_add(folder.count) as i64);
                let mut rows = links.query([first, end]).map_err(broken)?;
                let mut last_link = 0;
                while let Some(row) = rows.next().map_err(broken)? {
                    let get = |column: usize| row.get::<_, i64>(column).map_err(broken);
                    session.patience.renew();
                    let (header, shared) = (get(1)?, get(2)?);
                    let link = goes_on(&mut last_link, get(3)?)?;
                    left = left.checked_sub(1).ok_or_else(|| lies(link, "it is in several folders"))?;
                    if shared > 0 {
                        let header = self.bounds.byte(header);
                        let header = header.filter(|&header| self.bounds.has_nested || header <= self.bounds.stream);
                        let header = header.ok_or_else(|| lies(link, "it lies behind the end of the archive"))?;
                        receive(Node(node), name_of(row)?, header, Node(shared as u64));
                    }
                }
                session.patience.renew();
            }
            Ok(())
        })
    }

    fn replaced_links(&self, receive: &mut dyn FnMut(Node, &[u8], u64, Option<Node>)) -> Result<(), Error> {
        // Once: what was handed on must not come again.
        self.pool.with_once(|session| {
            let mut query = session
                .connection
                .prepare_cached(
                    // In this order, since most of what was replaced is no link.
                    "SELECT name, replaced.node, class, header, size, mtime, folder, shared \
                     FROM hard_links CROSS JOIN replaced USING (node) \
                     WHERE hard_links.node > ? ORDER BY hard_links.node",
                )
                .map_err(broken)?;
            let mut after = self.bounds.last;
            let mut rows = query.query([after as i64]).map_err(broken)?;
            while let Some(row) = rows.next().map_err(broken)? {
                session.patience.renew();
                let (stored, name) = (Stored::read(row)?, name_of(row)?);
                let number = |column: usize| row.get::<_, i64>(column).map_err(broken);
                let (folder, shared) = (number(6)?, number(7)?);
                if stored.node <= after {
                    return Err(lies(stored.node, "it is out of order"));
                }
                after = stored.node;
                let header = stored.header(&self.bounds).ok_or_else(|| lies(after, "it has no header"))?;
                let (Ok(folder), Ok(shared)) = (u64::try_from(folder), u64::try_from(shared)) else {
                    return Err(lies(after, "a number is negative"));
                };
                receive(Node(folder), name, header, (shared != 0).then_some(Node(shared)));
            }
            Ok(())
        })
    }
}
