//! What a header and its extra fields say together.

use super::coders::{Cipher, Recipe};
use super::extra::{Extra, Numbers};
use crate::encoding::Encoding;
use crate::time::dos_time;
use crate::{Entry, Kind};

/// Sizes and crc follow the content.
pub(super) const FLAG_DESCRIPTOR: u16 = 1 << 3;
pub(super) const FLAG_ENCRYPTED: u16 = 1 << 0;
const FLAG_STRONG: u16 = 1 << 6;
const FLAG_UTF_8: u16 = 1 << 11;
/// The local header has zeros in place of numbers.
pub(super) const FLAG_MASKED: u16 = 1 << 13;

pub(super) const METHOD_AES: u16 = 99;

const HOST_DOS: u8 = 0;
const HOST_UNIX: u8 = 3;
const HOST_NTFS: u8 = 10;
const HOST_VFAT: u8 = 14;
/// Unix, Atari, BeOS, macOS, Syllable: those whose modes are Unix's.
const HOSTS_WITH_MODES: [u8; 5] = [3, 5, 16, 19, 30];

const DOS_READ_ONLY: u32 = 1;
const DOS_HIDDEN: u32 = 2;
const DOS_SYSTEM: u32 = 4;
const DOS_FOLDER: u32 = 0x10;

/// What a header of the directory and a local one have both, but for sizes and offset. A local one has neither host nor
/// attributes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header<'b> {
    pub(super) host: u8,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) time: u16,
    pub(super) date: u16,
    pub(super) crc: u32,
    pub(super) external: u32,
    pub(super) name: &'b [u8],
}

/// A member and where it lies.
#[derive(Debug)]
pub(super) struct Member {
    /// All but its body. `header` is the byte at which its local header begins.
    pub(super) entry: Box<Entry>,
    pub(super) size: u64,
    pub(super) stored: u64,
    pub(super) crc: Option<u32>,
    pub(super) recipe: Recipe,
    /// Byte behind its content, if its local header has the same name and no extra fields: else it is asked before
    /// something is refused.
    pub(super) least_end: u64,
}

impl Member {
    /// `numbers.offset` counts from the start of the source; `least_end` is behind it. Names that do not say what they
    /// are in are in `encoding`.
    pub(super) fn new(
        header: &Header<'_>,
        extra: &Extra<'_>,
        numbers: Numbers,
        least_end: u64,
        encoding: Option<Encoding>,
    ) -> Self {
        let path = path(header, extra, encoding);
        let (kind, mode) = kind_and_mode(header, extra, numbers, path.ends_with(b"/"));
        let (uid, gid) = extra.owner.unwrap_or_default();
        let (recipe, has_crc) = recipe(header, extra);
        let link = extra.link.filter(|_| kind == Kind::Symlink).unwrap_or_default().to_vec();
        let entry = Box::new(Entry {
            path,
            kind,
            mode,
            uid,
            gid,
            mtime: extra.mtime.unwrap_or_else(|| dos_time(header.date, header.time)),
            atime: extra.atime,
            header: numbers.offset,
            link,
            ..Entry::default()
        });
        let crc = has_crc.then_some(header.crc);
        Self { entry, size: numbers.size, stored: numbers.stored, crc, recipe, least_end }
    }

    /// What its sizes say that cannot be.
    pub(super) fn contradiction(&self) -> Option<String> {
        let Self { size, stored, recipe, .. } = self;
        let Recipe::Packed { cipher, method } = recipe else { return None };
        let added = cipher.overhead()?;
        let whole = size.checked_add(added);
        let is_wrong = if *method == 0 { Some(*stored) != whole } else { *stored < added };
        is_wrong.then(|| format!("it takes {stored} bytes where {size} would be stored"))
    }
}

/// The name of a header, if nothing says in which encoding it is ("cp437" in theory, that of the writer in fact), and
/// whether the writer was one of DOS or Windows.
pub(super) fn name_in_unknown_encoding<'b>(header: &Header<'b>, extra: &Extra<'_>) -> Option<(&'b [u8], bool)> {
    let is_known = header.flags & FLAG_UTF_8 != 0 || extra.unicode_path.is_some() || is_of_unix(header, extra);
    (!is_known).then_some((header.name, is_of_windows(header)))
}

/// True if a program on Unix has written it: the bytes of its name are those that the file had.
fn is_of_unix(header: &Header<'_>, extra: &Extra<'_>) -> bool {
    extra.is_of_unix || header.host == HOST_UNIX && extra.has_unix_times
}

fn is_of_windows(header: &Header<'_>) -> bool {
    matches!(header.host, HOST_DOS | HOST_NTFS | HOST_VFAT)
}

/// True of a file that DOS or Windows hides, or takes for one of its own.
pub(super) fn is_hidden(header: &Header<'_>) -> bool {
    is_of_windows(header) && header.external & (DOS_HIDDEN | DOS_SYSTEM) != 0
}

/// The path as bytes. UTF-8 where the archive says so. What is no UTF-8 otherwise is taken for `encoding`, and stays as
/// it is if it does not fit.
fn path(header: &Header<'_>, extra: &Extra<'_>, encoding: Option<Encoding>) -> Vec<u8> {
    let mut path = match (extra.unicode_path, encoding) {
        (Some(path), _) if header.flags & FLAG_UTF_8 == 0 => path.to_vec(),
        (None, Some(encoding)) if header.flags & FLAG_UTF_8 == 0 && !is_of_unix(header, extra) => {
            encoding.decode(header.name).into_owned()
        }
        _ => header.name.to_vec(),
    };
    // Some writers on Windows do not turn their separators around. In encodings of East Asia the byte is half of a
    // character.
    if is_of_windows(header) && path.contains(&b'\\') && !path.contains(&b'/') && std::str::from_utf8(&path).is_ok() {
        path.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    }
    path
}

/// True if it has content that nothing shows: that of a folder, of a link whose target stands in a header, or of what
/// is empty.
pub(super) fn hides_content(header: &Header<'_>, extra: &Extra<'_>, numbers: Numbers) -> bool {
    /// What any method may store where there is nothing: xz takes 32 bytes for that.
    const OF_NOTHING: u64 = 64;
    if let (Recipe::Packed { cipher, .. }, _) = recipe(header, extra)
        && let Some(added) = cipher.overhead()
        && numbers.size == 0
        && numbers.stored > added.saturating_add(OF_NOTHING)
    {
        return true;
    }
    let has_slash = path(header, extra, None).ends_with(b"/");
    match kind_and_mode(header, extra, numbers, has_slash).0 {
        Kind::File => false,
        Kind::Symlink => extra.link.is_some_and(|link| !link.is_empty() && link.len() as u64 != numbers.size),
        _ => numbers.size > 0,
    }
}

fn kind_and_mode(header: &Header<'_>, extra: &Extra<'_>, numbers: Numbers, has_slash: bool) -> (Kind, u32) {
    let Numbers { size, stored, .. } = numbers;
    let (kind, mode) = told_kind_and_mode(header, extra, has_slash);
    // What zip reads from a pipe has the type of the pipe, and the content is what counts. Where nothing came out of
    // it, packed bytes or a descriptor still say that it was read.
    let is_read = size > 0 || stored > 0 || header.flags & FLAG_DESCRIPTOR != 0;
    match kind {
        Kind::Fifo | Kind::Socket | Kind::CharacterDevice(_) | Kind::BlockDevice(_) if is_read => (Kind::File, mode),
        // No folder has content. Only the slash would say that it is one all the same.
        Kind::Folder if size > 0 && !has_slash => (Kind::File, mode & 0o7666),
        kind => (kind, mode),
    }
}

/// What the header says, whether it fits the content or not.
fn told_kind_and_mode(header: &Header<'_>, extra: &Extra<'_>, has_slash: bool) -> (Kind, u32) {
    let stored = (header.external >> 16) as u16;
    let device = extra.device.unwrap_or_default();
    let of_type = |mode: u16| match mode & 0o170_000 {
        0o040_000 => Some(Kind::Folder),
        0o120_000 => Some(Kind::Symlink),
        0o020_000 => Some(Kind::CharacterDevice(device)),
        0o060_000 => Some(Kind::BlockDevice(device)),
        0o010_000 => Some(Kind::Fifo),
        0o140_000 => Some(Kind::Socket),
        0o100_000 => Some(Kind::File),
        _ => None,
    };
    // Other hosts leave the upper half empty, or have a mode there with a type.
    let is_mode = stored != 0 && (HOSTS_WITH_MODES.contains(&header.host) || of_type(stored).is_some());
    if let Some(mode) = extra.mode.or(is_mode.then_some(stored)) {
        let kind = if has_slash { Kind::Folder } else { of_type(mode).unwrap_or_default() };
        return (kind, u32::from(mode & 0o7777));
    }
    let is_folder = has_slash || header.external & DOS_FOLDER != 0;
    let (kind, mode) = if is_folder { (Kind::Folder, 0o755) } else { (Kind::File, 0o644) };
    (kind, if header.external & DOS_READ_ONLY != 0 { mode & 0o555 } else { mode })
}

/// What undoes the content, and whether the checksum is one.
pub(super) fn recipe(header: &Header<'_>, extra: &Extra<'_>) -> (Recipe, bool) {
    let Header { flags, method, .. } = *header;
    let packed = |cipher, method| Recipe::Packed { cipher, method };
    if flags & FLAG_ENCRYPTED == 0 {
        return (packed(Cipher::None, method), true);
    }
    if flags & (FLAG_STRONG | FLAG_MASKED) != 0 {
        return (packed(Cipher::Strong, method), false);
    }
    match extra.aes {
        Some(aes) if method == METHOD_AES => {
            (packed(Cipher::Aes { strength: aes.strength }, aes.method), aes.version == 1)
        }
        _ => {
            // Where the checksum was not known when the content was written, the time stands in for it.
            let [low, high] = header.time.to_le_bytes();
            let _ = low;
            let check = if flags & FLAG_DESCRIPTOR != 0 { high } else { header.crc.to_le_bytes()[3] };
            (packed(Cipher::Zip { check }, method), true)
        }
    }
}
