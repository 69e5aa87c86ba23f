//! Archives that can be written.

pub mod tar;
pub mod zip;

/// Extended attributes that are access control lists.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}
