//! Access control lists of archives that are shown as folders.
//!
//! Where a file has a list, the group bits of its mode are the list's mask: the mode alone would let in whom the list
//! denies.

use crate::Xattrs;

/// The attribute that has the list. A folder has another one besides, for what is made in it.
pub(crate) const NAME: &[u8] = b"system.posix_acl_access";

/// Only the list of `xattrs`, if there is one.
pub(crate) fn of_file(xattrs: &Xattrs) -> Xattrs {
    xattrs.iter().filter(|(name, _)| name == NAME).cloned().collect()
}

/// The same for a folder in the file's place.
pub(crate) fn of_folder(xattrs: &Xattrs) -> Xattrs {
    let mut xattrs = of_file(xattrs);
    for (_, value) in &mut xattrs {
        open_to_readers(value);
    }
    xattrs
}

/// In a list in the kernel's form: whoever may read the file may look into the folder, as with the bits of its mode.
pub(crate) fn open_to_readers(value: &mut [u8]) {
    const HEADER: usize = 4;
    const ENTRY: usize = 8;
    const READ: u8 = 4;
    // A tag of two bytes, then two bytes of bits, then the number of the user or group. All of it is little endian.
    for entry in value.get_mut(HEADER..).unwrap_or_default().chunks_exact_mut(ENTRY) {
        if let Some(bits) = entry.get_mut(2) {
            *bits |= (*bits & READ) >> 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_read_may_look_into_it() {
        let list = [&[2, 0, 0, 0][..], &[1, 0, 6, 0, 255, 255, 255, 255], &[2, 0, 0, 0, 57, 48, 0, 0], &[16, 0, 4, 0]];
        let mut value = [list.concat(), vec![255; 4], vec![32, 0, 2, 0]].concat();
        open_to_readers(&mut value);
        assert_eq!((value[6], value[14], value[22], value[30]), (7, 0, 5, 2), "the last is cut");
        open_to_readers(&mut []);
        let xattrs = vec![(b"user.x".to_vec(), vec![1]), (NAME.to_vec(), vec![2, 0, 0, 0])];
        assert_eq!(of_folder(&xattrs), [(NAME.to_vec(), vec![2, 0, 0, 0])]);
    }
}
