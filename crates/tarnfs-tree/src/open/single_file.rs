//! Is what shows of an archive only the file that was compressed?

use tarnfs_index::{Error, Index, Node, Row};

use super::OpenArchive;
use crate::Kind;

/// Folders that `--transform` may have put above the file. An index that lies might have a ring of them.
const DEEPEST: usize = 4096;

/// What shows of the archive in `index`, if that is one file, and it begins where its stream does.
fn only_file(index: &dyn Index) -> Result<Option<Row>, Error> {
    let mut folder = Node::ROOT;
    for _ in 0..DEEPEST {
        let mut rows: Vec<Row> = Vec::new();
        index.children(folder, 0, &mut |_, _, row| {
            rows.push(row.clone());
            rows.len() < 2
        })?;
        let [row] = rows.as_slice() else { return Ok(None) };
        if row.kind != Kind::Folder {
            let is_at_start = (row.stream, row.body, row.has_pieces, row.is_sparse) == (0, 0, false, false);
            return Ok((row.kind == Kind::File && is_at_start).then(|| row.clone()));
        }
        folder = row.node;
    }
    Ok(None)
}

/// True if what shows of the archive in `index`, whose stream has `length` bytes, is one file, and that is all of the
/// stream.
pub fn is_single_file(index: &dyn Index, length: u64) -> Result<bool, Error> {
    Ok(only_file(index)?.is_some_and(|row| row.size == length))
}

impl OpenArchive {
    /// True of a compressed file that is no archive. It may be damaged.
    pub fn is_single_file(&self) -> Result<bool, Error> {
        // What is compressed again, and shown by an index that was made with `-r`, may be an archive.
        Ok(self.index.summary().may_be_single_file() && only_file(&*self.index)?.is_some())
    }
}
