//! Files whose bytes are read before they are verified ([`tarnfs_source::Source::is_unproven`]): the kernel keeps
//! nothing of them, so that wrong ones are not served once they are known to be wrong.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::deadline::lock;
use crate::protocol::open;

/// Nodes that are noted. Of more, all count as noted for as long as the mount lasts.
const MOST: usize = 1 << 16;

/// Files that were opened while they were not verified.
#[derive(Debug)]
pub(crate) struct Unproven {
    /// Their nodes. `None` once there were too many.
    nodes: Mutex<Option<HashSet<u64>>>,
}

impl Default for Unproven {
    fn default() -> Self {
        Self { nodes: Mutex::new(Some(HashSet::new())) }
    }
}

impl Unproven {
    /// With which flags `node` is opened, where they would be `flags` for a file that is verified. Waits for nothing:
    /// by then nobody else can answer the kernel.
    pub(crate) fn flags(&self, node: u64, is_unproven: bool, flags: u32) -> u32 {
        let mut nodes = lock(&self.nodes);
        if is_unproven {
            if let Some(noted) = &mut *nodes {
                noted.insert(node);
                if noted.len() > MOST {
                    *nodes = None;
                }
            }
            return open::DIRECT_IO;
        }
        // Whoever had mapped it into memory meanwhile has left pages in the kernel.
        match nodes.as_mut().map(|noted| noted.remove(&node)) {
            Some(false) => flags,
            Some(true) | None => flags & !open::KEEP_CACHE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_opened_too_early_is_read_anew_once() {
        let unproven = Unproven::default();
        let kept = open::KEEP_CACHE | open::PASSTHROUGH;
        assert_eq!(unproven.flags(7, true, kept), open::DIRECT_IO);
        assert_eq!(unproven.flags(8, false, kept), kept);
        assert_eq!(unproven.flags(7, false, kept), open::PASSTHROUGH);
        assert_eq!(unproven.flags(7, false, kept), kept);
    }

    #[test]
    fn of_very_many_nothing_is_kept() {
        let unproven = Unproven::default();
        for node in 0..=MOST as u64 {
            unproven.flags(node, true, open::KEEP_CACHE);
        }
        for _ in 0..2 {
            assert_eq!(unproven.flags(7, false, open::KEEP_CACHE), 0);
        }
    }
}
