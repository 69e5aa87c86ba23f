//! Stands in for the crate's own types until they are there.

/// How content is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coder {
    /// Its number.
    pub number: u32,
    /// In the order in which they are undone.
    pub steps: Vec<Step>,
    /// Offsets are those of a header.
    pub is_behind_header: bool,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its codec.
    pub codec: String,
    /// What that needs to know.
    pub properties: Vec<u8>,
}
