//! Users and groups as the C library knows them: from files, directory services, systemd (`nsswitch.conf`).

#![allow(unsafe_code, reason = "no safe crate here asks the system for users and groups")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use libc::{getgrgid_r, getgrnam_r, getpwnam_r, getpwuid_r};
use tarnfs_source::accounts::{self, System};

/// Room for what the system says of a user or group.
const ROOM: usize = 64 << 10;
/// Of a group with many members it is asked again, with room up to that.
const MOST_ROOM: usize = 16 << 20;

/// From now on, the system is asked for those that are in no file.
pub(crate) fn ask_system() {
    accounts::ask(Some(System { user_name, group_name, user_number, group_number }));
}

/// The same is over: a process that has given up opening files can ask nobody.
pub(crate) fn ask_nobody() {
    accounts::ask(None);
}

fn user_name(id: u32) -> Option<Vec<u8>> {
    // SAFETY: `getpwuid_r` does what `found` asks for, and its names end with a NUL.
    unsafe { found(|to, room, length, found| getpwuid_r(id, to, room, length, found), |user| name_at(user.pw_name)) }?
}

fn group_name(id: u32) -> Option<Vec<u8>> {
    // SAFETY: `getgrgid_r` does what `found` asks for, and its names end with a NUL.
    unsafe { found(|to, room, length, found| getgrgid_r(id, to, room, length, found), |group| name_at(group.gr_name)) }?
}

fn user_number(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: `getpwnam_r` does what `found` asks for; `name` ends with a NUL.
    unsafe { found(|to, room, length, found| getpwnam_r(name.as_ptr(), to, room, length, found), |user| user.pw_uid) }
}

fn group_number(name: &[u8]) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: `getgrnam_r` does what `found` asks for; `name` ends with a NUL.
    unsafe { found(|to, room, length, found| getgrnam_r(name.as_ptr(), to, room, length, found), |group| group.gr_gid) }
}

/// What `take` has of the entry that `ask` finds.
///
/// # Safety
/// `ask` may be called with pointers to an entry, to that many bytes of room and to a pointer. Where it answers 0 and
/// leaves a pointer there that is not null, it has filled the entry; what that points to is in the room.
unsafe fn found<E, A>(
    ask: impl Fn(*mut E, *mut c_char, usize, *mut *mut E) -> c_int,
    take: impl FnOnce(&E) -> A,
) -> Option<A> {
    let mut length = ROOM;
    loop {
        let (mut entry, mut room, mut found) = (MaybeUninit::<E>::uninit(), vec![0; length], null_mut());
        match ask(entry.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut found) {
            libc::EINTR => {}
            libc::ERANGE if length < MOST_ROOM => length *= 4,
            0 if !found.is_null() => {
                // SAFETY: it was filled, and the room is there until the end of this block.
                return Some(take(unsafe { entry.assume_init_ref() }));
            }
            _ => return None,
        }
    }
}

/// # Safety
/// `name` is null, or points to bytes that end with a NUL.
unsafe fn name_at(name: *const c_char) -> Option<Vec<u8>> {
    // SAFETY: that is what was promised.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes().to_vec()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_root_and_not_everybody() {
        assert_eq!((user_name(0).as_deref(), group_name(0).as_deref()), (Some(&b"root"[..]), Some(&b"root"[..])));
        assert_eq!((user_number(b"root"), group_number(b"root")), (Some(0), Some(0)));
        for name in [&b"nobody-is-called-so"[..], b"ro\0ot"] {
            assert_eq!((user_number(name), group_number(name)), (None, None));
        }
        assert_eq!((user_name(3_999_999_999), group_name(3_999_999_999)), (None, None));
    }
}
