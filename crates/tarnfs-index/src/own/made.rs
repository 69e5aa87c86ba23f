//! The rows of an index that was made just now, as they went to its tables: who goes through all of them at once need
//! not ask SQLite for what is known.

use tarnfs_source::{Budget, Grant};

use super::session::Stored;

/// Bytes that they may take: those of about 150 000 entries. Of an index that has more, none are kept.
const MOST: usize = 8 << 20;

/// Rows of `entries` and `folders`.
#[derive(Debug)]
pub(crate) struct Made {
    /// In the order of the nodes, from 1 on.
    rows: Vec<Row>,
    names: Vec<u8>,
    folders: Vec<(u64, [i64; 4])>,
    grant: Grant,
}

/// A row of `entries`.
#[derive(Debug)]
struct Row {
    header: i64,
    size: i64,
    mtime: i64,
    class: u32,
    /// Where its name ends, among all of them.
    end: u32,
}

impl Made {
    /// None yet; `None` if there is no memory for them.
    pub(crate) fn new(budget: &Budget) -> Option<Self> {
        let (rows, names, folders) = Default::default();
        Some(Self { rows, names, folders, grant: budget.take(MOST)? })
    }

    fn bytes(&self) -> usize {
        let rows = self.rows.len().saturating_mul(size_of::<Row>());
        let folders = self.folders.len().saturating_mul(size_of::<(u64, [i64; 4])>());
        rows.saturating_add(folders).saturating_add(self.names.len())
    }

    /// Adds the row of the next node. False if that is too much, or if it is another node.
    pub(crate) fn push(&mut self, node: u32, name: &[u8], class: u32, [header, size, mtime]: [i64; 3]) -> bool {
        let is_next = node as usize == self.rows.len().saturating_add(1);
        let end = u32::try_from(self.names.len().saturating_add(name.len()));
        let (true, Ok(end), true) = (is_next, end, self.bytes() < MOST) else { return false };
        self.names.extend_from_slice(name);
        self.rows.push(Row { header, size, mtime, class, end });
        true
    }

    /// Adds a folder, which is behind those before it: its columns parent, first, count, subfolders.
    pub(crate) fn push_folder(&mut self, node: u32, columns: [i64; 4]) {
        self.folders.push((u64::from(node), columns));
    }

    /// All are there. `None` if that is too much.
    pub(crate) fn complete(mut self) -> Option<Self> {
        if self.bytes() > MOST {
            return None;
        }
        self.rows.shrink_to_fit();
        self.names.shrink_to_fit();
        self.folders.shrink_to_fit();
        self.grant.shrink_to(self.bytes());
        Some(self)
    }

    /// The row of `node`, and its name.
    pub(super) fn row(&self, node: u64) -> Option<(Stored, &[u8])> {
        let at = usize::try_from(node).ok()?.checked_sub(1)?;
        let Row { header, size, mtime, class, end } = *self.rows.get(at)?;
        let start = at.checked_sub(1).and_then(|before| self.rows.get(before)).map_or(0, |before| before.end);
        let name = self.names.get(start as usize..end as usize)?;
        Some((Stored::new(node, class.into(), header, size, mtime), name))
    }

    /// The columns of a folder.
    pub(super) fn folder(&self, node: u64) -> Option<[i64; 4]> {
        let at = self.folders.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        self.folders.get(at).map(|(_, columns)| *columns)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_too_many_are_none() {
        let budget = Budget::new(MOST);
        let mut made = Made::new(&budget).unwrap();
        assert!(Made::new(&budget).is_none());
        assert!(made.push(1, b"", 0, [-1, 0, 7]) && made.push(2, b"name", 3, [4, 5, 6]));
        assert!(!made.push(4, b"too early", 3, [4, 5, 6]));
        made.push_folder(1, [1, 2, 1, 0]);
        let mut made = made.complete().unwrap();
        assert!(budget.used() < 1024);
        let (_, name) = made.row(2).unwrap();
        assert_eq!((name, made.row(1).unwrap().1), (&b"name"[..], &b""[..]));
        assert!(made.row(0).is_none() && made.row(3).is_none());
        assert_eq!((made.folder(1), made.folder(2)), (Some([1, 2, 1, 0]), None));
        let mut node = 3;
        while made.push(node, &[b'n'; 255], 0, [0; 3]) {
            node += 1;
        }
        assert!((20_000..40_000).contains(&node));
        assert!(made.complete().is_none());
        assert_eq!(budget.used(), 0);
    }
}
