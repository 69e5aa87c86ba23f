//! Requests that would change something: their layouts, and what each asks for.

use std::ops::Range;

use rustix::io::Errno;

use super::abi::{In, opcode};
use super::reply::{Reply, ReplyAttributes, ReplyCreated, ReplyDone, ReplyEntry, ReplyWrite};
use super::{How, Writing};

/// What is made, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct New<'a> {
    /// Kind and permissions, as `st_mode` has them.
    pub(crate) mode: u32,
    /// What is to be taken from the permissions.
    pub(crate) umask: u32,
    pub(crate) device: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Of a symbolic link; else empty.
    pub(crate) target: &'a [u8],
}

/// A time that a file gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    Now,
    /// Seconds and nanoseconds.
    At(i64, u32),
}

/// What of a node is to become something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// Of which only the permissions count.
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<Stamp>,
    pub(crate) mtime: Option<Stamp>,
}

/// What is to survive a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synced {
    /// What was written to the file that is open under this handle.
    File(u64),
    /// The names in a folder.
    Folder,
}

/// A request. A file that is created without a name has none.
#[derive(Debug, PartialEq, Eq)]
enum Asked<'a> {
    Make { name: &'a [u8], new: New<'a> },
    Create { name: Option<&'a [u8]>, new: New<'a>, flags: u32 },
    Link { node: u64, name: &'a [u8] },
    Remove { name: &'a [u8], is_folder: bool },
    Rename { from: &'a [u8], folder: u64, to: &'a [u8], flags: u32 },
    Change { handle: Option<u64>, change: Change },
    Write { handle: u64, offset: u64, bytes: &'a [u8] },
    Sync { what: Synced, data_only: bool },
    Allocate { handle: u64, range: Range<u64>, mode: u32 },
    SetXattr { name: &'a [u8], value: &'a [u8], flags: u32 },
    RemoveXattr { name: &'a [u8] },
    Copy,
}

/// What a new node is, whatever else its mode says.
const FILE: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// What the request asks for, which comes from `user` and `group`; `None` if it is cut short.
fn parse(opcode: u32, mut body: In<'_>, (user, group): (u32, u32)) -> Option<Asked<'_>> {
    let new = |mode, umask, device, target| New { mode, umask: umask & 0o777, device, user, group, target };
    Some(match opcode {
        opcode::SYMLINK => {
            let (name, target) = (body.whole_name()?, body.whole_name()?);
            Asked::Make { name, new: new(SYMLINK | 0o777, 0, 0, target) }
        }
        opcode::MKNOD => {
            let mut head = body.whole(16)?;
            let (mode, device, umask) = (head.u32(), head.u32(), head.u32());
            Asked::Make { name: body.whole_name()?, new: new(mode, umask, device, &[]) }
        }
        opcode::MKDIR => {
            let mut head = body.whole(8)?;
            let (mode, umask) = (head.u32() & PERMISSIONS, head.u32());
            Asked::Make { name: body.whole_name()?, new: new(FOLDER | mode, umask, 0, &[]) }
        }
        opcode::CREATE | opcode::TMPFILE => {
            let mut head = body.whole(16)?;
            let (flags, mode, umask) = (head.u32(), head.u32() & PERMISSIONS, head.u32());
            // What has no name has a number in its place.
            let name = if opcode == opcode::CREATE { Some(body.whole_name()?) } else { None };
            Asked::Create { name, new: new(FILE | mode, umask, 0, &[]), flags }
        }
        opcode::LINK => Asked::Link { node: body.whole(8)?.u64(), name: body.whole_name()? },
        opcode::UNLINK => Asked::Remove { name: body.whole_name()?, is_folder: false },
        opcode::RMDIR => Asked::Remove { name: body.whole_name()?, is_folder: true },
        opcode::RENAME | opcode::RENAME2 => {
            let mut head = body.whole(if opcode == opcode::RENAME { 8 } else { 16 })?;
            // Past the end of the shorter one come zeros.
            let (folder, flags) = (head.u64(), head.u32());
            Asked::Rename { from: body.whole_name()?, folder, to: body.whole_name()?, flags }
        }
        opcode::SETATTR => changed(body.whole(88)?),
        opcode::WRITE => {
            let mut head = body.whole(40)?;
            let (handle, offset, size) = (head.u64(), head.u64(), head.u32());
            Asked::Write { handle, offset, bytes: body.whole(size as usize)?.0 }
        }
        opcode::FSYNC | opcode::FSYNCDIR => {
            /// `FUSE_FSYNC_FDATASYNC`.
            const DATA_ONLY: u32 = 1;
            let mut head = body.whole(16)?;
            let (handle, flags) = (head.u64(), head.u32());
            let what = if opcode == opcode::FSYNC { Synced::File(handle) } else { Synced::Folder };
            Asked::Sync { what, data_only: flags & DATA_ONLY != 0 }
        }
        opcode::FALLOCATE => {
            let mut head = body.whole(32)?;
            let (handle, offset, length, mode) = (head.u64(), head.u64(), head.u64(), head.u32());
            Asked::Allocate { handle, range: offset..offset.checked_add(length)?, mode }
        }
        opcode::SETXATTR => {
            let mut head = body.whole(8)?;
            let (size, flags) = (head.u32(), head.u32());
            Asked::SetXattr { name: body.whole_name()?, value: body.whole(size as usize)?.0, flags }
        }
        opcode::REMOVEXATTR => Asked::RemoveXattr { name: body.whole_name()? },
        opcode::COPY_FILE_RANGE => Asked::Copy,
        _ => return None,
    })
}

/// `struct fuse_setattr_in`.
fn changed(mut body: In<'_>) -> Asked<'static> {
    /// What is set in it (`FATTR_*`).
    const MODE: u32 = 1 << 0;
    const UID: u32 = 1 << 1;
    const GID: u32 = 1 << 2;
    const SIZE: u32 = 1 << 3;
    const ATIME: u32 = 1 << 4;
    const MTIME: u32 = 1 << 5;
    const HANDLE: u32 = 1 << 6;
    const ATIME_NOW: u32 = 1 << 7;
    const MTIME_NOW: u32 = 1 << 8;
    let (set, _) = (body.u32(), body.u32());
    let (handle, size, _lock_owner) = (body.u64(), body.u64(), body.u64());
    let (atime, mtime, _ctime) = (body.u64() as i64, body.u64() as i64, body.u64());
    let (atime_part, mtime_part, _ctime_part) = (body.u32(), body.u32(), body.u32());
    let (mode, _) = (body.u32(), body.u32());
    let (uid, gid) = (body.u32(), body.u32());
    let stamp = |is_now: u32, seconds, part| if set & is_now == 0 { Stamp::At(seconds, part) } else { Stamp::Now };
    let change = Change {
        mode: (set & MODE != 0).then_some(mode),
        uid: (set & UID != 0).then_some(uid),
        gid: (set & GID != 0).then_some(gid),
        size: (set & SIZE != 0).then_some(size),
        atime: (set & ATIME != 0).then(|| stamp(ATIME_NOW, atime, atime_part)),
        mtime: (set & MTIME != 0).then(|| stamp(MTIME_NOW, mtime, mtime_part)),
    };
    Asked::Change { handle: (set & HANDLE != 0).then_some(handle), change }
}

/// Answers a request about `node`, which comes from `user` and `group`.
pub(super) fn answer(
    filesystem: &impl Writing,
    (opcode, node, body): (u32, u64, In<'_>),
    (user, group): (u32, u32),
    reply: Reply,
) {
    let Some(asked) = parse(opcode, body, (user, group)) else { return reply.error(Errno::INVAL) };
    match asked {
        Asked::Make { name, new } => filesystem.make(node, name, new, ReplyEntry(reply)),
        Asked::Create { name, new, flags } => {
            filesystem.create(node, name, new, How::new(flags, user), ReplyCreated(reply));
        }
        Asked::Link { node: linked, name } => filesystem.link(linked, node, name, ReplyEntry(reply)),
        Asked::Remove { name, is_folder } => filesystem.remove(node, name, is_folder, ReplyDone(reply)),
        Asked::Rename { from, folder, to, flags } => {
            filesystem.rename((node, from), (folder, to), flags, ReplyDone(reply));
        }
        Asked::Change { handle, change } => filesystem.set_attributes(node, handle, change, ReplyAttributes(reply)),
        Asked::Write { handle, offset, bytes } => filesystem.write(node, handle, offset, bytes, ReplyWrite(reply)),
        Asked::Sync { what, data_only } => filesystem.sync(node, what, data_only, ReplyDone(reply)),
        Asked::Allocate { handle, range, mode } => filesystem.allocate(node, handle, range, mode, ReplyDone(reply)),
        Asked::SetXattr { name, value, flags } => filesystem.set_xattr(node, name, value, flags, ReplyDone(reply)),
        Asked::RemoveXattr { name } => filesystem.remove_xattr(node, name, ReplyDone(reply)),
        Asked::Copy => filesystem.copy(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 32-bit words, and bytes behind them.
    fn body(words: &[u32], bytes: &[u8]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).chain(bytes.iter().copied()).collect()
    }

    /// A 64-bit number in words.
    fn long(number: u64) -> [u32; 2] {
        let bytes = number.to_ne_bytes();
        [0, 4].map(|at| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
    }

    /// As the kernel lays them out.
    #[test]
    fn requests_are_understood_whole_or_not_at_all() {
        let new = |mode, umask, device, target| New { mode, umask, device, user: 7, group: 8, target };
        let [h, o] = [long(0x1_0000_0005), long(0x2_0000_0006)];
        let setattr = [
            &[0x1ff, 0][..],
            &h,
            &o,
            &long(0),
            &long(100),
            &long((-200_i64) as u64),
            &long(300),
            &[1, 2, 3, 0o644, 0, 70, 80, 0],
        ]
        .concat();
        let change = Change {
            mode: Some(0o644),
            uid: Some(70),
            gid: Some(80),
            size: Some(0x2_0000_0006),
            atime: Some(Stamp::Now),
            mtime: Some(Stamp::Now),
        };
        let mut timed = setattr.clone();
        timed[0] = 0x30;
        let at = Change { atime: Some(Stamp::At(100, 1)), mtime: Some(Stamp::At(-200, 2)), ..Change::default() };
        let write = [&h[..], &o, &[3, 0], &long(0), &[0, 0]].concat();
        let (handle, offset) = (0x1_0000_0005, 0x2_0000_0006);
        let cases = [
            (opcode::SYMLINK, body(&[], b"a\0b\0"), Asked::Make { name: b"a", new: new(SYMLINK | 0o777, 0, 0, b"b") }),
            (
                opcode::MKNOD,
                body(&[0o010_644, 9, 0o27, 0], b"a\0"),
                Asked::Make { name: b"a", new: new(0o010_644, 0o27, 9, b"") },
            ),
            (
                opcode::MKDIR,
                body(&[0o1755, 0o22], b"a\0"),
                Asked::Make { name: b"a", new: new(FOLDER | 0o1755, 0o22, 0, b"") },
            ),
            (
                opcode::CREATE,
                body(&[5, FILE | 0o600, 0o77, 0], b"a\0"),
                Asked::Create { name: Some(b"a"), new: new(FILE | 0o600, 0o77, 0, b""), flags: 5 },
            ),
            (opcode::LINK, body(&h, b"a\0"), Asked::Link { node: handle, name: b"a" }),
            (opcode::UNLINK, body(&[], b"a\0"), Asked::Remove { name: b"a", is_folder: false }),
            (opcode::RMDIR, body(&[], b"a\0"), Asked::Remove { name: b"a", is_folder: true }),
            (opcode::RENAME, body(&h, b"a\0b\0"), Asked::Rename { from: b"a", folder: handle, to: b"b", flags: 0 }),
            (
                opcode::RENAME2,
                body(&[&h[..], &[2, 0]].concat(), b"a\0b\0"),
                Asked::Rename { from: b"a", folder: handle, to: b"b", flags: 2 },
            ),
            (opcode::SETATTR, body(&setattr, b""), Asked::Change { handle: Some(handle), change }),
            (opcode::SETATTR, body(&timed, b""), Asked::Change { handle: None, change: at }),
            (opcode::WRITE, body(&write, b"xyz"), Asked::Write { handle, offset, bytes: b"xyz" }),
            (
                opcode::FSYNC,
                body(&[&h[..], &[1, 0]].concat(), b""),
                Asked::Sync { what: Synced::File(handle), data_only: true },
            ),
            (
                opcode::FSYNCDIR,
                body(&[&h[..], &[0, 0]].concat(), b""),
                Asked::Sync { what: Synced::Folder, data_only: false },
            ),
            (
                opcode::FALLOCATE,
                body(&[&h[..], &o, &long(9), &[3, 0]].concat(), b""),
                Asked::Allocate { handle, range: offset..offset + 9, mode: 3 },
            ),
            (
                opcode::SETXATTR,
                body(&[3, 1], b"user.a\0xyz"),
                Asked::SetXattr { name: b"user.a", value: b"xyz", flags: 1 },
            ),
            (opcode::REMOVEXATTR, body(&[], b"user.a\0"), Asked::RemoveXattr { name: b"user.a" }),
        ];
        for (opcode, whole, expected) in cases {
            assert_eq!(parse(opcode, In(&whole), (7, 8)), Some(expected));
            for length in 0..whole.len() {
                assert_eq!(parse(opcode, In(&whole[..length]), (7, 8)), None, "{opcode}: {length} bytes");
            }
        }
        let tmpfile = body(&[5, 0o600, 0, 0], b"#7\0");
        let unnamed = Asked::Create { name: None, new: new(FILE | 0o600, 0, 0, b""), flags: 5 };
        assert_eq!(parse(opcode::TMPFILE, In(&tmpfile), (7, 8)), Some(unnamed));
        let endless = body(&[&h[..], &long(u64::MAX), &long(1), &[0, 0]].concat(), b"");
        assert_eq!(parse(opcode::FALLOCATE, In(&endless), (7, 8)), None);
        assert_eq!(parse(opcode::UNLINK, In(b"\0"), (7, 8)), None, "a name without a letter");
    }
}
