//! Who must not wait for whom: what a tree may have to wait for is done by threads that are counted by lanes, so that
//! one that gets no answer, from a server that is gone for instance, leaves threads to the others.

use std::sync::atomic::{AtomicU64, Ordering};

/// A lane of its own, for a tree. Below 2³²: trees of many trees have the rest for them.
pub(crate) fn new_lane() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_trees_share_a_lane() {
        let [one, other] = [(); 2].map(|()| super::new_lane());
        assert!(one != other && one.max(other) < 1 << 32);
    }
}
