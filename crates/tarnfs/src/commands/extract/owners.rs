//! Whose the files are: names in the archive, numbers on this machine.

use std::collections::HashMap;

use tarnfs_index::{Index, Owner};
use tarnfs_source::accounts::{group_number, user_number};
use tarnfs_tree::{Error, Node};

/// Finds the numbers of owners.
#[derive(Debug)]
pub(in crate::commands) struct Owners {
    /// Numbers are taken as they stand.
    is_numeric: bool,
    /// By the numbers in the archive: the numbers here. `None` of those that have several names there.
    of_numbers: HashMap<(u32, u32), Option<(u32, u32)>>,
    /// All numbers of the archive are in the table.
    is_complete: bool,
}

impl Owners {
    /// Those of `index`.
    pub(in crate::commands) fn new(index: &dyn Index, is_numeric: bool) -> Result<Self, Error> {
        let mut owners = Self { is_numeric, of_numbers: HashMap::new(), is_complete: false };
        if !is_numeric && let Some(all) = index.owners()? {
            owners.is_complete = true;
            for (user, group) in all {
                let key = (user.id, group.id);
                let here = (number(&user, user_number), number(&group, group_number));
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
                let (user, group) = (Owner { id: uid, name: user }, Owner { id: gid, name: group });
                Ok((number(&user, user_number), number(&group, group_number)))
            }
        }
    }
}

/// The number of a user or group on this machine, if it knows the name; else its own. What is known is remembered.
fn number(owner: &Owner, known: fn(&[u8]) -> Option<u32>) -> u32 {
    known(&owner.name).unwrap_or(owner.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_or_stay_numbers() {
        let owner = |id, name: &str| Owner { id, name: name.as_bytes().to_vec() };
        crate::accounts::ask_system();
        for known in [user_number, group_number] {
            assert_eq!(number(&owner(77, "root"), known), 0);
            assert_eq!(number(&owner(77, "nobody-is-called-so"), known), 77);
            assert_eq!(number(&owner(77, ""), known), 77);
            assert_eq!(number(&owner(77, "ro\0ot"), known), 77);
            assert_eq!(number(&owner(77, &"x".repeat(1000)), known), 77);
        }
    }
}
