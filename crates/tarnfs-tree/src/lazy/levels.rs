//! How many archives lie in each other, as `--recursion-depth` counts them.

use tarnfs_source::SharedSource;

use super::LazyTree;
use super::archives::File;
use crate::Error;
use crate::build::{content_of, head_length};

impl LazyTree {
    /// True if what is compressed in `file` is not looked into: it is compressed, which is one archive, and the one in
    /// it would be too many. `--recursion-depth`
    pub(super) fn is_only_decompressed(&self, file: &File, source: &SharedSource) -> Result<bool, Error> {
        let most = self.how.options.shape.recursion.as_ref().and_then(|recursion| recursion.depth);
        if most.is_none_or(|most| file.depth.saturating_add(1) < most) {
            return Ok(false);
        }
        let mut head = vec![0; head_length(&file.name)];
        let read = source.read_at(&mut head, 0)?;
        let content = content_of(&head[..read], &**source, &file.name, &self.names.preferred)?;
        Ok(content.is_some_and(|content| content.codec().is_some()))
    }
}
