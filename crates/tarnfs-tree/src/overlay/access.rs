//! Access control lists of POSIX, as extended attributes have them (`linux/posix_acl_xattr.h`): what a mode makes of
//! one, one of a mode, and what new files get of the folder's.

/// Names of the lists.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEAD: usize = 4;
const ENTRY: usize = 8;

/// Whom an entry is for.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// A list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List(Vec<Entry>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    who: u32,
}

impl List {
    /// `None` if it is none: then it is kept as it is.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (head, entries) = value.split_first_chunk::<HEAD>()?;
        if u32::from_le_bytes(*head) != VERSION || entries.len() % ENTRY != 0 {
            return None;
        }
        let entry = |bytes: &[u8]| {
            let [tag, tag_high, low, high, who @ ..] = bytes else { return None };
            let who = u32::from_le_bytes(who.try_into().ok()?);
            let (tag, permissions) = (u16::from_le_bytes([*tag, *tag_high]), u16::from_le_bytes([*low, *high]));
            matches!(tag, OWNER | USER | GROUP | NAMED_GROUP | MASK | OTHERS).then_some(Entry { tag, permissions, who })
        };
        let list = Self(entries.chunks(ENTRY).map(entry).collect::<Option<_>>()?);
        [OWNER, GROUP, OTHERS].iter().all(|&tag| list.of(tag).is_some()).then_some(list)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend(entry.tag.to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            bytes.extend(entry.who.to_le_bytes());
        }
        bytes
    }

    fn of(&self, tag: u16) -> Option<u32> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.permissions) & 7)
    }

    /// It says no more than a mode can.
    pub(super) fn is_a_mode(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.tag, OWNER | GROUP | OTHERS))
    }

    /// The permission bits that a file with this list shows.
    pub(super) fn mode(&self) -> u32 {
        let group = self.of(MASK).or(self.of(GROUP)).unwrap_or(0);
        self.of(OWNER).unwrap_or(0) << 6 | group << 3 | self.of(OTHERS).unwrap_or(0)
    }

    /// What becomes of the list of a file that gets these permission bits.
    pub(super) fn with_mode(mut self, mode: u32) -> Self {
        let has_mask = self.of(MASK).is_some();
        for entry in &mut self.0 {
            let Some(bits) = bits_for(entry.tag, mode, has_mask) else { continue };
            entry.permissions = bits;
        }
        self
    }

    /// What becomes of the folder's default list for something new that was asked for with these permission bits: its
    /// own list, and its mode.
    pub(super) fn for_new(mut self, mode: u32) -> (Self, u32) {
        let has_mask = self.of(MASK).is_some();
        for entry in &mut self.0 {
            let Some(bits) = bits_for(entry.tag, mode, has_mask) else { continue };
            entry.permissions &= bits;
        }
        let mode = self.mode();
        (self, mode)
    }
}

/// What permission bits mean for whom an entry is for; `None` where they mean nothing.
fn bits_for(tag: u16, mode: u32, has_mask: bool) -> Option<u16> {
    let bits = match tag {
        OWNER => mode >> 6,
        MASK => mode >> 3,
        GROUP if !has_mask => mode >> 3,
        OTHERS => mode,
        _ => return None,
    };
    Some((bits & 7) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        List(entries.iter().map(|&(tag, permissions, who)| Entry { tag, permissions, who }).collect()).to_bytes()
    }

    #[test]
    fn a_list_and_a_mode_say_the_same() {
        let minimal = list(&[(OWNER, 6, 0), (GROUP, 4, 0), (OTHERS, 1, 0)]);
        let parsed = List::parse(&minimal).unwrap();
        assert!(parsed.is_a_mode());
        assert_eq!((parsed.mode(), parsed.to_bytes()), (0o641, minimal));
        let named = list(&[(OWNER, 7, 0), (USER, 6, 1000), (GROUP, 7, 0), (MASK, 5, 0), (OTHERS, 0, 0)]);
        let parsed = List::parse(&named).unwrap();
        assert!(!parsed.is_a_mode());
        assert_eq!(parsed.mode(), 0o750);
        let changed = parsed.clone().with_mode(0o624);
        assert_eq!(changed.mode(), 0o624);
        assert_eq!(
            changed.to_bytes(),
            list(&[(OWNER, 6, 0), (USER, 6, 1000), (GROUP, 7, 0), (MASK, 2, 0), (OTHERS, 4, 0)])
        );
        assert_eq!(parsed.for_new(0o644).1, 0o640);
    }

    #[test]
    fn what_is_no_list_is_none() {
        for bytes in [&[][..], &[2, 0, 0], &[3, 0, 0, 0], &[2, 0, 0, 0], &[2, 0, 0, 0, 1, 0, 7, 0, 0, 0, 0]] {
            assert_eq!(List::parse(bytes), None);
        }
        assert_eq!(List::parse(&list(&[(OWNER, 6, 0), (GROUP, 4, 0), (0x40, 1, 0)])), None);
    }
}
