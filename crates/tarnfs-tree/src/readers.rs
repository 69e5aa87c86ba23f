//! Who may read a file, and several files that are shown as one: an archive that was split.
//!
//! Whoever may write to a folder can put a file beside those of others that makes parts of them. So it counts who may
//! read each of these, not the first one alone.

use tarnfs_index::trust::Owner;

use crate::access_list;
use crate::{Attributes, Node, Tree, Xattrs};

/// Who may read a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Readers {
    user: u64,
    group: u64,
    /// Permission bits (0o777).
    mode: u32,
    /// Its access control list, as the attribute has it.
    list: Option<Box<[u8]>>,
}

impl Readers {
    pub(crate) fn new((user, group): (u64, u64), mode: u32, list: Option<&[u8]>) -> Self {
        Self { user, group, mode: mode & 0o777, list: list.map(Box::from) }
    }

    /// Those of the file `attributes` in `tree`.
    pub(crate) fn of_file(tree: &dyn Tree, attributes: &Attributes) -> Self {
        let owner = (attributes.uid.into(), attributes.gid.into());
        // Without bits of the group a list gives nobody anything: they are its mask.
        let list = if attributes.mode & 0o070 == 0 { Ok(None) } else { tree.xattr(attributes.node, access_list::NAME) };
        // One that cannot be read may deny anybody, and is like no other.
        let list = list.unwrap_or_else(|_| Some(Vec::new()));
        Self::new(owner, attributes.mode, list.as_deref())
    }

    /// Those of a file with these `xattrs`.
    pub(crate) fn of_member(owner: (u64, u64), mode: u32, xattrs: &Xattrs) -> Self {
        let list = xattrs.iter().find(|(name, _)| name == access_list::NAME);
        Self::new(owner, mode, list.map(|(_, list)| list.as_slice()))
    }

    /// True if all may read it.
    fn are_all(&self) -> bool {
        self.list.is_none() && self.mode & 0o044 == 0o044
    }

    /// True if files that these may read may be parts of one archive. Those of one user may, those that all may read,
    /// and such ones of root with any others. What another user keeps for himself may not, whatever it is called.
    pub(crate) fn may_share(&self, other: &Self) -> bool {
        self.user == other.user
            || self.are_all() && other.are_all()
            || [self, other].iter().any(|readers| readers.user == 0 && readers.are_all())
    }

    /// True if what may be a part beside one of these files may be one beside the other.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        (self.user, self.are_all()) == (other.user, other.are_all())
    }

    /// Leaves those who may read the file of `other` as well. Where their lists differ, that is the owner alone.
    pub(crate) fn keep_those_of(&mut self, other: &Self) {
        let (is_user, is_group) = (self.user == other.user, self.group == other.group);
        if self.list != other.list || self.list.is_some() && !(is_user && is_group) {
            (self.mode, self.list) = (self.mode & 0o700, None);
        }
        let may_read = |shift: u32| other.mode >> shift & 4 != 0;
        let all = other.are_all();
        let stays = [
            if is_user { may_read(6) } else { all || self.user == 0 },
            if is_group { may_read(3) } else { all },
            if is_group { may_read(0) } else { all },
        ];
        for (stays, bits) in stays.into_iter().zip([0o700, 0o070, 0o007]) {
            if !stays {
                self.mode &= !bits;
            }
        }
    }

    /// The bits of a file of this owner and with this `mode`, as far as these may read it.
    pub(crate) fn restrict(&self, owner: (u64, u64), mode: u32) -> u32 {
        // It was given to somebody else.
        let own = if owner == (self.user, self.group) { self.mode } else { 0 };
        mode & (!0o777 | own)
    }

    /// Bytes that it takes where it is not bounded.
    pub(crate) fn weight(&self) -> usize {
        self.list.as_ref().map_or(0, |list| list.len())
    }

    /// True if a list of the file holds for these.
    pub(crate) fn have_list(&self) -> bool {
        self.list.is_some()
    }
}

/// Those who may read each of the files that `all` are of, in a file that belongs to the owner of `first`.
pub(crate) fn of_all<'r>(first: &Readers, all: impl IntoIterator<Item = &'r Readers>) -> Readers {
    let mut readers = first.clone();
    all.into_iter().for_each(|other| readers.keep_those_of(other));
    readers
}

/// The owner `one` of a file that is made of that and of the one that `other` owns: what is known of both is for those
/// who may read both, and for the owner: whoever opens them by their names may read them.
pub(crate) fn joined_owner(one: Owner, other: Owner) -> Owner {
    let readers = |owner: Owner| Readers::new((owner.user.into(), owner.group.into()), owner.mode, None);
    let both = of_all(&readers(one), [&readers(other)]).restrict((one.user.into(), one.group.into()), one.mode);
    Owner { mode: both | one.mode & 0o700, ..one }
}

/// Those of the file `name` in `folder` of `tree`, which nobody holds then.
pub(crate) fn of_name(tree: &dyn Tree, folder: Node, name: &[u8]) -> Result<Readers, crate::Error> {
    let attributes = tree.lookup(folder, name)?;
    let readers = Readers::of_file(tree, &attributes);
    tree.forget(attributes.node, 1);
    Ok(readers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(user: u64, group: u64, mode: u32) -> Readers {
        Readers::new((user, group), mode, None)
    }

    #[test]
    fn what_one_user_keeps_for_himself_is_no_part_beside_another_ones() {
        let (own, open) = (readers(7, 7, 0o600), readers(7, 7, 0o644));
        for (other, private, public) in [
            (readers(7, 9, 0o600), true, true),
            (readers(8, 8, 0o600), false, false),
            (readers(8, 7, 0o640), false, false),
            (readers(8, 8, 0o644), false, true),
            (readers(8, 8, 0o604), false, false),
            (readers(0, 0, 0o644), true, true),
            (readers(0, 0, 0o600), false, false),
            (Readers::new((8, 8), 0o644, Some(b"list")), false, false),
        ] {
            assert_eq!((own.may_share(&other), open.may_share(&other)), (private, public), "{other:?}");
            assert_eq!((other.may_share(&own), other.may_share(&open)), (private, public), "{other:?}");
        }
    }

    #[test]
    fn an_index_of_several_files_is_as_private_as_each() {
        let owner = |user, mode| Owner { user, group: user, mode };
        assert_eq!(joined_owner(owner(7, 0o644), owner(7, 0o600)), owner(7, 0o600));
        assert_eq!(joined_owner(owner(7, 0o644), owner(8, 0o644)), owner(7, 0o644));
        assert_eq!(joined_owner(owner(7, 0o644), owner(8, 0o640)), owner(7, 0o600));
    }

    #[test]
    fn who_may_read_all_of_them_may_read_them_together() {
        for (first, other, mode) in [
            (readers(7, 7, 0o644), readers(7, 7, 0o600), 0o600),
            (readers(7, 7, 0o644), readers(7, 7, 0o640), 0o640),
            (readers(7, 7, 0o644), readers(7, 7, 0o444), 0o644),
            (readers(7, 7, 0o640), readers(7, 9, 0o640), 0o600),
            (readers(7, 7, 0o644), readers(7, 9, 0o604), 0o600),
            (readers(7, 7, 0o600), readers(7, 7, 0o644), 0o600),
            (readers(7, 7, 0o644), readers(8, 8, 0o644), 0o644),
            (readers(7, 7, 0o644), readers(8, 7, 0o640), 0o040),
            (readers(0, 0, 0o644), readers(8, 8, 0o600), 0o600),
            (readers(7, 7, 0o644), Readers::new((7, 7), 0o664, Some(b"list")), 0o600),
            (Readers::new((7, 7), 0o664, Some(b"list")), readers(7, 7, 0o664), 0o600),
            (Readers::new((7, 7), 0o664, Some(b"one")), Readers::new((7, 7), 0o664, Some(b"two")), 0o600),
            (Readers::new((7, 7), 0o664, Some(b"list")), Readers::new((7, 7), 0o664, Some(b"list")), 0o664),
        ] {
            let both = of_all(&first, [&first, &other]);
            let owner = (first.user, first.group);
            assert_eq!(both.restrict(owner, 0o1000 | first.mode), 0o1000 | mode, "{first:?} {other:?}");
            assert_eq!(both.restrict((99, 99), 0o777), 0, "given to another user");
            assert_eq!(both.have_list(), mode == 0o664);
        }
    }
}
