//! What headers of both forms say of a file.

use crate::{Kind, Time};

/// A file, or the part of one that is in this volume.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "a header says them, each for itself")]
pub(super) struct File {
    /// In UTF-8 where the archive tells. Before RAR 5 there is a backslash between the names of a path, whatever the
    /// system.
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) user: Vec<u8>,
    pub(super) group: Vec<u8>,
    pub(super) mtime: Time,
    pub(super) atime: Option<Time>,
    /// Target of a link, where the header has it.
    pub(super) link: Vec<u8>,
    /// Its content is that of this file.
    pub(super) copy_of: Option<Vec<u8>>,
    /// `None` if it was not known when the header was written.
    pub(super) size: Option<u64>,
    pub(super) is_stored: bool,
    /// It is decoded with what came before it.
    pub(super) is_solid: bool,
    /// The archive says that, for all files but the first.
    pub(super) is_as_archive: bool,
    pub(super) is_encrypted: bool,
    /// There is a comment on it in the header, which nothing here reads.
    pub(super) has_comment: bool,
    /// Of its content, or of this part if another one follows.
    pub(super) crc: Option<u32>,
    /// There is a BLAKE2sp in place of it, or a checksum that depends on the password.
    pub(super) has_other_check: bool,
    /// Of what belongs to a file: what its header says beside all that, such as the name of a stream.
    pub(super) beside: Vec<u8>,
    /// It began in another volume, and goes on in another one.
    pub(super) is_continued: bool,
    pub(super) goes_on: bool,
}

const TYPE: u32 = 0o170_000;

/// What bits of Unix say.
pub(super) fn of_unix(bits: u32, is_folder: bool) -> (Kind, u32) {
    let kind = match bits & TYPE {
        0o040_000 => Kind::Folder,
        0o120_000 => Kind::Symlink,
        0o010_000 => Kind::Fifo,
        0o140_000 => Kind::Socket,
        _ if is_folder => Kind::Folder,
        // Devices have no numbers here.
        _ => Kind::File,
    };
    (kind, bits & 0o7777)
}

/// What attributes of Windows or DOS say.
pub(super) fn of_windows(attributes: u32, is_folder: bool) -> (Kind, u32) {
    const READ_ONLY: u32 = 1;
    const FOLDER: u32 = 0x10;
    let writable = if attributes & READ_ONLY == 0 { 0o200 } else { 0 };
    if is_folder || attributes & FOLDER != 0 {
        (Kind::Folder, 0o555 | writable)
    } else {
        (Kind::File, 0o444 | writable)
    }
}
