//! The numbers before the parts of a header (7zFormat.txt, "Property IDs").

pub(super) const END: u64 = 0x00;
pub(super) const HEADER: u64 = 0x01;
pub(super) const ARCHIVE_PROPERTIES: u64 = 0x02;
pub(super) const ADDITIONAL_STREAMS: u64 = 0x03;
pub(super) const MAIN_STREAMS: u64 = 0x04;
pub(super) const FILES: u64 = 0x05;
pub(super) const PACK_INFO: u64 = 0x06;
pub(super) const UNPACK_INFO: u64 = 0x07;
pub(super) const SUBSTREAMS_INFO: u64 = 0x08;
pub(super) const SIZE: u64 = 0x09;
pub(super) const CRC: u64 = 0x0a;
pub(super) const FOLDER: u64 = 0x0b;
pub(super) const UNPACK_SIZE: u64 = 0x0c;
pub(super) const FILES_IN_FOLDERS: u64 = 0x0d;
pub(super) const EMPTY_STREAM: u64 = 0x0e;
pub(super) const EMPTY_FILE: u64 = 0x0f;
pub(super) const ANTI: u64 = 0x10;
pub(super) const NAMES: u64 = 0x11;
/// Of Windows the time when a file was made, of Unix when its inode was changed.
pub(super) const CHANGED: u64 = 0x12;
pub(super) const ACCESSED: u64 = 0x13;
pub(super) const MODIFIED: u64 = 0x14;
pub(super) const ATTRIBUTES: u64 = 0x15;
pub(super) const ENCODED_HEADER: u64 = 0x17;
