/// How long what was said of a node may be kept ([`crate::Tree::lifetime`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifetime {
    /// Not at all: it may be something else in a moment.
    None,
    /// For about a second: it may change.
    Short,
    /// As long as somebody knows the node: it never changes.
    Forever,
}

impl Lifetime {
    /// Of what either never changes, or may.
    pub fn unless(can_change: bool) -> Self {
        if can_change { Self::Short } else { Self::Forever }
    }
}
