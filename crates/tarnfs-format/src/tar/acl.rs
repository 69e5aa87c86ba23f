//! ACLs: star's text form in, the kernel's form (`linux/posix_acl_xattr.h`) out.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, OnceLock, PoisonError};

use tarnfs_source::accounts;

/// Entries of one ACL that are believed, the mask that is added to it among them; a value of an attribute (64 KiB) has
/// room for 8191.
const MOST_ENTRIES: usize = 8191;

/// Version of the kernel's form.
const VERSION: u32 = 2;
/// The number of an entry that is about nobody by name.
const NOBODY: u32 = u32::MAX;

/// Names that no file has, for which the system is asked in a pass: an archive may have very many.
const MOST_ASKED: usize = 4096;

/// Numbers of the users and groups of this machine, read when first asked for: GNU tar, too, finds the people in an ACL
/// by their names.
#[derive(Debug, Default)]
pub(super) struct Names {
    users: OnceLock<HashMap<Vec<u8>, u32>>,
    groups: OnceLock<HashMap<Vec<u8>, u32>>,
    /// Set once somebody was not found.
    stranger: OnceLock<()>,
    /// Those that no file has.
    asked: Mutex<HashSet<(Tag, Vec<u8>)>>,
}

impl Names {
    /// Says once in a pass that ACLs are not shown; it may be so for each file.
    fn report(&self, entry: &[u8]) {
        self.stranger.get_or_init(|| {
            let shown = crate::name::excerpt(entry);
            log::warn!("ACLs that name users or groups unknown on this machine are not shown; the first: {shown}");
        });
    }

    fn find(&self, kind: Tag, name: &[u8]) -> Option<u32> {
        let (cell, file) = if kind == Tag::User { (&self.users, "/etc/passwd") } else { (&self.groups, "/etc/group") };
        let read = || {
            let lines = std::fs::read(file).unwrap_or_else(|error| {
                if error.kind() == std::io::ErrorKind::PermissionDenied {
                    // A process that has given up opening files cannot say whom this machine knows.
                    self.stranger.get_or_init(|| ());
                }
                Vec::new()
            });
            parse(&lines)
        };
        if let Some(number) = cell.get_or_init(read).get(name) {
            return Some(*number);
        }
        // A number is no name, and a server may have to be asked.
        if name.iter().all(u8::is_ascii_digit) {
            return None;
        }
        if name.len() > accounts::LONGEST {
            return None;
        }
        let question = (kind, name.to_vec());
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if !asked.contains(&question) {
            if asked.len() >= MOST_ASKED {
                return None;
            }
            asked.insert(question);
        }
        // Nobody else waits while the system is asked, which keeps its answers.
        drop(asked);
        if kind == Tag::User { accounts::user_number(name) } else { accounts::group_number(name) }
    }
}

/// Lines of "name:password:number:...".
fn parse(file: &[u8]) -> HashMap<Vec<u8>, u32> {
    file.split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|&byte| byte == b':');
            let name = fields.next()?;
            Some((name.to_vec(), number(fields.nth(1)?)?))
        })
        .collect()
}

/// What an entry is about, as the kernel numbers it; also the order in which it wants them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

/// An ACL in the kernel's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acl {
    /// The value of the attribute; `None` if the ACL says no more than the permission bits do, which is not stored
    /// either.
    pub(super) value: Option<Vec<u8>>,
    /// The permission bits that a file has once this is its access ACL.
    pub(super) permissions: u32,
}

/// The value of `system.posix_acl_access` or `system.posix_acl_default` for an ACL in text form
/// ("user::rw-,user:lisa:r--:1000,group::r--,mask::r--,other::---", separated by commas or new lines).
///
/// People are found by their name on this machine, else by the number that star writes behind it. A mask that is needed
/// and missing (libarchive leaves it out) is computed as `setfacl` does. `Ok(None)` if there are no entries, or if they
/// name somebody who cannot be found: `tar` then sets no ACL either.
pub(super) fn binary(text: &[u8], is_default: bool, names: &Names) -> Result<Option<Acl>, String> {
    let bad = |entry: &[u8]| format!("ACL entry {} is not understood", crate::name::excerpt(entry));
    let too_many = || format!("an ACL has more than {MOST_ENTRIES} entries");
    let mut entries = Vec::new();
    for line in text.split(|&byte| byte == b',' || byte == b'\n') {
        // Comments behind '#' say what the mask leaves.
        let entry = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
        if entry.is_empty() {
            continue;
        }
        if entries.len() >= MOST_ENTRIES {
            return Err(too_many());
        }
        let (tag, id, bits) = parse_entry(entry, names).ok_or_else(|| bad(entry))?;
        let Some(id) = id else {
            names.report(entry);
            return Ok(None);
        };
        entries.push((tag, id, bits));
    }
    let is_named = |entry: &&(Tag, u32, u16)| matches!(entry.0, Tag::User | Tag::Group);
    if entries.iter().any(|entry| is_named(&entry)) && entries.iter().all(|entry| entry.0 != Tag::Mask) {
        let group_class = entries.iter().filter(|entry| is_named(entry) || entry.0 == Tag::OwningGroup);
        let bits = group_class.fold(0, |bits, entry| bits | entry.2);
        entries.push((Tag::Mask, NOBODY, bits));
        if entries.len() > MOST_ENTRIES {
            return Err(too_many());
        }
    }
    entries.sort_unstable();
    let has = |tag| entries.iter().filter(|entry| entry.0 == tag).count();
    let once = [Tag::Owner, Tag::OwningGroup, Tag::Other].into_iter().all(|tag| has(tag) == 1);
    if entries.is_empty() {
        return Ok(None);
    }
    if !once || has(Tag::Mask) > 1 {
        return Err("an ACL lacks an entry or has one twice".to_owned());
    }
    // The group's bits of a file show the mask, where there is one.
    let bits = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| u32::from(entry.2));
    let group = bits(Tag::Mask).or_else(|| bits(Tag::OwningGroup)).unwrap_or(0);
    let permissions = bits(Tag::Owner).unwrap_or(0) << 6 | group << 3 | bits(Tag::Other).unwrap_or(0);
    if !is_default && has(Tag::Mask) == 0 {
        return Ok(Some(Acl { value: None, permissions }));
    }
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        value.extend((tag as u16).to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Ok(Some(Acl { value: Some(value), permissions }))
}

/// What an entry is about, its number if it can be found, and its permissions; `None` if it has no form.
fn parse_entry(entry: &[u8], names: &Names) -> Option<(Tag, Option<u32>, u16)> {
    let mut fields = entry.split(|&byte| byte == b':').map(<[u8]>::trim_ascii);
    let kind = fields.next()?;
    let mut name = fields.next()?;
    let mut permissions = fields.next();
    if permissions.is_none() && matches!(kind, b"m" | b"mask" | b"o" | b"other") {
        // Solaris leaves the empty name out of these.
        (name, permissions) = (b"", Some(name));
    }
    let permissions = permissions?;
    let tag = match (kind, name) {
        (b"u" | b"user", b"") => Tag::Owner,
        (b"u" | b"user", _) => Tag::User,
        (b"g" | b"group", b"") => Tag::OwningGroup,
        (b"g" | b"group", _) => Tag::Group,
        (b"m" | b"mask", b"") => Tag::Mask,
        (b"o" | b"other", b"") => Tag::Other,
        _ => return None,
    };
    let id = match tag {
        Tag::User | Tag::Group => {
            names.find(tag, name).or_else(|| number(fields.next().unwrap_or_default())).or_else(|| number(name))
        }
        _ => Some(NOBODY),
    };
    let mut bits = 0;
    for &letter in permissions {
        bits |= match letter {
            b'r' => 4,
            b'w' => 2,
            b'x' => 1,
            b'-' => 0,
            _ => return None,
        };
    }
    Some((tag, id, bits))
}

fn number(text: &[u8]) -> Option<u32> {
    super::numbers::decimal(text).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Of one name it is asked once, however many lists have it; of too many names, no more.
    #[test]
    fn the_system_is_asked_of_each_name_once() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        fn number(name: &[u8]) -> Option<u32> {
            // Tests beside this one ask, too.
            let is_own = name == b"of-the-directory" || name.starts_with(b"unknown-");
            ASKED.fetch_add(is_own.into(), Ordering::Relaxed);
            (name == b"of-the-directory").then_some(4711)
        }
        let nobody = |_: u32| None;
        accounts::ask(Some(accounts::System {
            user_name: nobody,
            group_name: nobody,
            user_number: number,
            group_number: |_| None,
        }));
        let names = Names::default();
        for _ in 0..2 * MOST_ASKED {
            assert_eq!(names.find(Tag::User, b"of-the-directory"), Some(4711));
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
        for number in 0..2 * MOST_ASKED {
            assert_eq!(names.find(Tag::User, format!("unknown-{number}").as_bytes()), None);
        }
        assert!(ASKED.load(Ordering::Relaxed) <= MOST_ASKED);
        assert_eq!(names.find(Tag::User, b"of-the-directory"), Some(4711));
    }

    #[test]
    fn an_acl_in_the_order_of_the_kernel() {
        let names = Names::default();
        names.users.set(parse(b"lisa:x:1000:1000:::\n")).unwrap();
        names.groups.set(parse(b"wheel:x:10:\n")).unwrap();
        let text =
            b"other::r--,user:77:-w-,mask::rwx,user::rw-,group::r-x,group:gone:--x:12,user:lisa:rwx:5,group:wheel:r--";
        let acl = binary(text, false, &names).unwrap().unwrap();
        let value = acl.value.unwrap();
        assert_eq!(acl.permissions, 0o674);
        let entries: Vec<_> = value[4..]
            .chunks(8)
            .map(|entry| (entry[0], entry[2], u32::from_le_bytes(entry[4..].try_into().unwrap())))
            .collect();
        assert_eq!(value[..4], [2, 0, 0, 0]);
        assert_eq!(
            entries,
            [
                (1, 6, NOBODY),
                (2, 2, 77),
                (2, 7, 1000),
                (4, 5, NOBODY),
                (8, 4, 10),
                (8, 1, 12),
                (16, 7, NOBODY),
                (32, 4, NOBODY)
            ]
        );
    }

    #[test]
    fn acls_that_say_nothing_and_acls_that_are_wrong() {
        let names = Names::default();
        let plain = b"user::rw-\ngroup::r--\nother::r--\n";
        assert_eq!(binary(plain, false, &names), Ok(Some(Acl { value: None, permissions: 0o644 })));
        assert_eq!(binary(plain, true, &names).unwrap().unwrap().value.unwrap().len(), 28);
        assert_eq!(binary(b"", true, &names), Ok(None));
        let stranger = b"user:nobody-of-that-name:rw-,user::rw-,group::r--,mask::r--,other::r--";
        assert_eq!(binary(stranger, false, &names), Ok(None));
        let no_mask = binary(b"user::rw-,group::r--,other::r--,user:1:-wx", false, &names).unwrap().unwrap();
        assert_eq!((no_mask.permissions, no_mask.value.unwrap().len()), (0o674, 44));
        // With its mask it has one too many.
        let named = (0..8188).fold(String::new(), |text, id| text + &format!(",user:{id}:r--"));
        let full = |named: &str| binary(format!("user::rw-,group::r--,other::r--{named}").as_bytes(), false, &names);
        assert!(full(&named).unwrap_err().contains("8191"));
        let (_, one_less) = named.split_at(",user:0:r--".len());
        assert_eq!(full(one_less).unwrap().unwrap().value.unwrap().len(), 65_532);
        for bad in [
            &b"user::rw-"[..],
            b"user::rw-,group::r--,other::r--,other::r--",
            b"user::rq-,group::r--,other::r--",
            b"frog::rw-,user::rw-,group::r--,other::r--",
            b"user",
        ] {
            assert!(binary(bad, false, &names).is_err(), "{bad:?}");
        }
    }
}
