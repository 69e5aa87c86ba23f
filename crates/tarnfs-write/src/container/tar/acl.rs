//! ACLs: the kernel's form (`linux/posix_acl_xattr.h`) in, star's text form out.

use crate::files::names;

const VERSION: [u8; 4] = 2_u32.to_le_bytes();
const ENTRY: usize = 8;

/// "user::rw-,user:lisa:r--:1000,group::r--,mask::r--,other::---". Names stand there if `with_names`, the number behind
/// them; else the number stands for the name. `None` if `value` is no ACL.
pub(super) fn text(value: &[u8], with_names: bool) -> Option<Vec<u8>> {
    let entries = value.strip_prefix(&VERSION)?;
    if !entries.len().is_multiple_of(ENTRY) {
        return None;
    }
    let mut text = Vec::new();
    for entry in entries.chunks_exact(ENTRY) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let bits = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let (kind, is_named) = match tag {
            0x01 => ("user", false),
            0x02 => ("user", true),
            0x04 => ("group", false),
            0x08 => ("group", true),
            0x10 => ("mask", false),
            0x20 => ("other", false),
            _ => return None,
        };
        if !text.is_empty() {
            text.push(b',');
        }
        text.extend_from_slice(kind.as_bytes());
        text.push(b':');
        let name = if kind == "user" { names::user_name(id) } else { names::group_name(id) };
        let name = name.filter(|_| is_named && with_names);
        match &name {
            Some(name) => text.extend_from_slice(name),
            None if is_named => text.extend_from_slice(id.to_string().as_bytes()),
            None => {}
        }
        text.push(b':');
        for (bit, letter) in [(4, b'r'), (2, b'w'), (1, b'x')] {
            text.push(if bits & bit != 0 { letter } else { b'-' });
        }
        if name.is_some() {
            text.extend_from_slice(format!(":{id}").as_bytes());
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_in_words() {
        let entry =
            |tag: u16, bits: u16, id: u32| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat();
        let value = [
            VERSION.to_vec(),
            entry(1, 6, u32::MAX),
            entry(2, 4, 0),
            entry(4, 5, u32::MAX),
            entry(8, 1, 4_000_000_000),
            entry(16, 7, u32::MAX),
            entry(32, 0, u32::MAX),
        ]
        .concat();
        let shown = |with_names| String::from_utf8(text(&value, with_names).unwrap()).unwrap();
        assert_eq!(shown(true), "user::rw-,user:root:r--:0,group::r-x,group:4000000000:--x,mask::rwx,other::---");
        assert_eq!(shown(false), "user::rw-,user:0:r--,group::r-x,group:4000000000:--x,mask::rwx,other::---");
        assert_eq!(text(&value[..value.len() - 1], true), None);
        assert_eq!(text(b"", true), None);
    }
}
