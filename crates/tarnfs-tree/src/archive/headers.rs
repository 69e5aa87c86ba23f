//! Whether headers of the archive have to be read before a node is answered for, and whether that may take long.

use tarnfs_index::Node;

use super::ArchiveTree;
use crate::Kind;

impl ArchiveTree {
    /// True if a question about `node` may have to wait for a header: one that has to be decoded, or that a server has.
    pub(super) fn may_wait_for_header(&self, node: Node) -> bool {
        let Some(recheck) = &self.recheck else { return false };
        let stream = self.streams.innermost();
        let is_decoded = !self.index.summary().layers.is_empty();
        // A disk is read at once, as it always was.
        let is_far = !is_decoded && stream.file_range().is_none();
        if is_far && recheck.is_of_sidecar() {
            // There, names and attributes stand in headers, too.
            return true;
        }
        // What cannot be read now is an error in any case.
        let Some(row) = self.row(node).ok().filter(|row| row.kind == Kind::File) else { return false };
        let is_there = |header: u64| stream.is_ready(header, row.body.saturating_sub(header) as usize);
        is_decoded || is_far && row.header.is_some_and(|header| !is_there(header))
    }
}
