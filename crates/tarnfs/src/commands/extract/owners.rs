//! Whose the files are: names in the archive, numbers on this machine.

#![allow(unsafe_code, reason = "no safe crate here asks the system for a user by name")]

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use tarnfs_index::{Index, Owner};
use tarnfs_tree::{Error, Node};

/// Names that are kept once somebody was asked for them.
const MOST: usize = 4096;

/// Finds the numbers of owners.
#[derive(Debug)]
pub(in crate::commands) struct Owners {
    /// Numbers are taken as they stand.
    is_numeric: bool,
    /// By the numbers in the archive: the numbers here. `None` of those that have several names there.
    of_numbers: HashMap<(u32, u32), Option<(u32, u32)>>,
    /// All numbers of the archive are in the table.
    is_complete: bool,
    users: Names,
    groups: Names,
}

impl Owners {
    /// Those of `index`.
    pub(in crate::commands) fn new(index: &dyn Index, is_numeric: bool) -> Result<Self, Error> {
        let (users, groups) = (Names::new(number_of_user), Names::new(number_of_group));
        let mut owners = Self { is_numeric, of_numbers: HashMap::new(), is_complete: false, users, groups };
        if !is_numeric && let Some(all) = index.owners()? {
            owners.is_complete = true;
            for (user, group) in all {
                let key = (user.id, group.id);
                let here = (owners.users.number(user), owners.groups.number(group));
                owners
                    .of_numbers
                    .entry(key)
                    .and_modify(|known| *known = known.filter(|known| *known == here))
                    .or_insert(Some(here));
            }
        }
        Ok(owners)
    }

    /// The numbers here of what has these numbers in the archive.
    pub(in crate::commands) fn here(
        &self,
        index: &dyn Index,
        node: Node,
        uid: u32,
        gid: u32,
    ) -> Result<(u32, u32), Error> {
        if self.is_numeric {
            return Ok((uid, gid));
        }
        match self.of_numbers.get(&(uid, gid)) {
            Some(Some(here)) => Ok(*here),
            // A folder that no entry names has an owner that the index does not know.
            None if self.is_complete => Ok((uid, gid)),
            _ => {
                let (user, group) = index.owner_names(node)?;
                let numbers = |id, name| Owner { id, name };
                Ok((self.users.number(numbers(uid, user)), self.groups.number(numbers(gid, group))))
            }
        }
    }
}

/// Names and their numbers.
#[derive(Debug)]
struct Names {
    known: Mutex<HashMap<Vec<u8>, Option<u32>>>,
    ask: fn(&CStr) -> Option<u32>,
}

impl Names {
    fn new(ask: fn(&CStr) -> Option<u32>) -> Self {
        Self { known: Mutex::default(), ask }
    }

    /// That of its name, if this machine knows it; else its own.
    fn number(&self, owner: Owner) -> u32 {
        /// No system has longer ones.
        const LONGEST: usize = 256;
        if owner.name.is_empty() || owner.name.len() > LONGEST {
            return owner.id;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = known.get(&owner.name) {
            return number.unwrap_or(owner.id);
        }
        let number = CString::new(owner.name.clone()).ok().and_then(|name| (self.ask)(&name));
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(owner.name, number);
        number.unwrap_or(owner.id)
    }
}

/// Room for what the system says of a user or group.
const ROOM: usize = 64 << 10;

fn number_of_user(name: &CStr) -> Option<u32> {
    let (mut entry, mut room, mut found) = (MaybeUninit::<libc::passwd>::uninit(), vec![0; ROOM], std::ptr::null_mut());
    // SAFETY: all pointers are valid for the call, and the room has the length that is told.
    let result =
        unsafe { libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut found) };
    // SAFETY: where it is found, `found` points to `entry`, which was filled.
    (result == 0 && !found.is_null()).then(|| unsafe { entry.assume_init_ref() }.pw_uid)
}

fn number_of_group(name: &CStr) -> Option<u32> {
    let (mut entry, mut room, mut found) = (MaybeUninit::<libc::group>::uninit(), vec![0; ROOM], std::ptr::null_mut());
    // SAFETY: all pointers are valid for the call, and the room has the length that is told.
    let result =
        unsafe { libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut found) };
    // SAFETY: where it is found, `found` points to `entry`, which was filled.
    (result == 0 && !found.is_null()).then(|| unsafe { entry.assume_init_ref() }.gr_gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_or_stay_numbers() {
        let (users, groups) = (Names::new(number_of_user), Names::new(number_of_group));
        let owner = |id, name: &str| Owner { id, name: name.as_bytes().to_vec() };
        for names in [&users, &groups] {
            assert_eq!(names.number(owner(77, "root")), 0);
            assert_eq!(names.number(owner(77, "nobody-is-called-so")), 77);
            assert_eq!(names.number(owner(77, "")), 77);
            assert_eq!(names.number(owner(77, "ro\0ot")), 77);
            assert_eq!(names.number(owner(77, &"x".repeat(1000))), 77);
        }
    }
}
