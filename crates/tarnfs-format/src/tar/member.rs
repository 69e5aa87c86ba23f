//! What a header and the extended headers before it say together.

use tarnfs_source::Limits;

use super::acl::{self, Names};
use super::header::{Dialect, Header};
use super::pax::Pax;
use crate::name::bounded_path;
use crate::{Device, Entry, Kind, Time};

/// What came before a header and is about it.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Byte of the stream at which the first of these headers begins.
    pub(super) start: Option<u64>,
    pub(super) long_name: Option<Vec<u8>>,
    pub(super) long_link: Option<Vec<u8>>,
    /// Records, and the byte of the stream at which they begin; `Err` if there were some that could not be had.
    pub(super) records: Option<Result<(u64, Vec<u8>), ()>>,
}

/// What the content of an entry is to be read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// There is none, whatever the size says.
    None,
    /// A hard link: of a size that a pax record tells, there is content. Else it depends on what follows.
    Link,
    /// Something about a folder; passed over.
    Skipped,
    /// Plain bytes.
    Plain,
    /// Bytes behind a map that begins in the header (old GNU, star).
    FieldMap,
    /// Bytes behind a map in decimal lines (GNU 1.0).
    LineMap,
    /// Bytes whose map was in the records (GNU 0.0 and 0.1).
    RecordMap,
}

/// Everything about an entry but where its content is, and what its content is. Moves out of `pending` and `pax` what
/// it keeps; an empty `pax` stays so. Problems that cost only a part of the entry
/// are added to `problems`; `Err` is one that costs all of it.
pub(super) fn entry(
    header: Header<'_>,
    pending: &mut Pending,
    pax: &mut Pax,
    limits: &Limits,
    names: &Names,
    problems: &mut Vec<String>,
) -> Result<(Box<Entry>, Content), String> {
    let dialect = header.dialect();
    if pax.size_in_doubt {
        return Err("its size is in doubt".to_owned());
    }

    let path = pax.sparse.name.take().or_else(|| pax.path.take()).or_else(|| pending.long_name.take());
    let path = path.unwrap_or_else(|| header.path(dialect));
    let (kind, content) = kind(header, &path, pax, problems)?;
    if path.len() > limits.path {
        problems.push(format!("a path of {} bytes was cut to {}", path.len(), limits.path));
    }
    let path = bounded_path(path, limits.path);
    let mut link = Vec::new();
    if matches!(kind, Kind::HardLink | Kind::Symlink) {
        link = pax.link.take().or_else(|| pending.long_link.take()).unwrap_or_else(|| header.link().to_vec());
        if link.len() > limits.path {
            return Err(format!("the target of a link has {} bytes, more than {}", link.len(), limits.path));
        }
    }

    let (atime, ctime) = header.other_times(dialect);
    let mut number = |what: &str, value: Option<u64>| {
        value.unwrap_or_else(|| {
            problems.push(format!("its {what} is not a number"));
            0
        })
    };
    let mode = number("mode", header.mode().map(u64::from)) as u32;
    let uid = pax.uid.unwrap_or_else(|| number("user", header.uid()));
    let gid = pax.gid.unwrap_or_else(|| number("group", header.gid()));
    let mtime = pax.mtime.or_else(|| header.mtime()).unwrap_or_else(|| {
        problems.push("its time is not a number".to_owned());
        Time::default()
    });
    let mut entry = Box::new(Entry {
        path,
        kind,
        mode,
        uid,
        gid,
        user: pax.user.take().unwrap_or_else(|| header.user(dialect).to_vec()),
        group: pax.group.take().unwrap_or_else(|| header.group(dialect).to_vec()),
        mtime,
        atime: pax.atime.or(atime),
        ctime: pax.ctime.or(ctime),
        link,
        xattrs: std::mem::take(&mut pax.xattrs),
        ..Entry::default()
    });
    for (name, text, is_default) in [
        (&b"system.posix_acl_access"[..], pax.acl_access.take(), false),
        (b"system.posix_acl_default", pax.acl_default.take(), true),
    ] {
        // Only folders have a default, and links have none at all.
        let applies = if is_default { kind == Kind::Folder } else { kind != Kind::Symlink };
        let Some(text) = text.filter(|_| applies) else { continue };
        entry.has_acl_text |= !is_default;
        match acl::binary(&text, is_default, names) {
            Ok(Some(acl)) => {
                // GNU tar may have stored it a second time as it was; what names people is better elsewhere.
                entry.xattrs.retain(|(other, _)| other != name);
                entry.xattrs.extend(acl.value.map(|value| (name.to_vec(), value)));
                if !is_default {
                    entry.mode = entry.mode & 0o7000 | acl.permissions;
                }
            }
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    Ok((entry, content))
}

fn kind(header: Header<'_>, path: &[u8], pax: &Pax, problems: &mut Vec<String>) -> Result<(Kind, Content), String> {
    let mut device = || {
        let stored = header.device().unwrap_or_else(|| {
            problems.push("its device number is not a number".to_owned());
            Device::default()
        });
        Device { major: pax.major.unwrap_or(stored.major), minor: pax.minor.unwrap_or(stored.minor) }
    };
    Ok(match header.typeflag() {
        b'1' => (Kind::HardLink, Content::Link),
        b'2' => (Kind::Symlink, Content::None),
        b'3' => (Kind::CharacterDevice(device()), Content::None),
        b'4' => (Kind::BlockDevice(device()), Content::None),
        b'5' => (Kind::Folder, Content::None),
        b'6' => (Kind::Fifo, Content::None),
        // What was in the folder when an incremental dump was made.
        b'D' => (Kind::Folder, Content::Skipped),
        b'S' if matches!(header.dialect(), Dialect::Gnu | Dialect::Star) => (Kind::File, Content::FieldMap),
        // Before there was a type for folders, a slash at the end said it.
        b'0' | 0 | b'7' if path.ends_with(b"/") => (Kind::Folder, Content::Skipped),
        // POSIX: a type that is not known is a regular file.
        _ => match (&pax.sparse, pax.sparse.major, pax.sparse.minor) {
            (sparse, ..) if sparse.is_broken => {
                return Err("the map of a sparse file cannot be read".to_owned());
            }
            (_, 1, 0) => (Kind::File, Content::LineMap),
            (sparse, 0, _) if sparse.map.is_some() => (Kind::File, Content::RecordMap),
            (_, 0, _) => (Kind::File, Content::Plain),
            (_, major, minor) => return Err(format!("sparse format {major}.{minor} is not known")),
        },
    })
}
