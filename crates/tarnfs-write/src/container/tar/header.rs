//! Headers: the block of 512 bytes, and the extended one before it.

use tarnfs_format::{Device, Entry, Kind, Time};

/// Of the fields: where they begin, and how long they are.
const NAME: (usize, usize) = (0, 100);
const MODE: (usize, usize) = (100, 8);
const UID: (usize, usize) = (108, 8);
const GID: (usize, usize) = (116, 8);
const SIZE: (usize, usize) = (124, 12);
const MTIME: (usize, usize) = (136, 12);
const CHECKSUM: (usize, usize) = (148, 8);
const TYPE: usize = 156;
const LINK: (usize, usize) = (157, 100);
const MAGIC: (usize, usize) = (257, 8);
const USER: (usize, usize) = (265, 32);
const GROUP: (usize, usize) = (297, 32);
const MAJOR: (usize, usize) = (329, 8);
const MINOR: (usize, usize) = (337, 8);
const PREFIX: (usize, usize) = (345, 155);

/// The extended header of one entry: records of a length, a key and a value.
#[derive(Debug, Default)]
pub(super) struct Pax(Vec<u8>);

impl Pax {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        // The length counts its own digits.
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while rest + length.to_string().len() != length {
            length = rest + length.to_string().len();
        }
        self.0.extend_from_slice(length.to_string().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    fn number(&mut self, key: &str, number: u64) {
        self.put(key.as_bytes(), number.to_string().as_bytes());
    }

    fn time(&mut self, key: &str, time: Time) {
        // Before 1970 the nanoseconds count forward, the digits behind the point backward.
        let is_before = time.seconds < 0;
        let (seconds, nanoseconds) = if is_before && time.nanoseconds > 0 {
            ((time.seconds + 1).unsigned_abs(), 1_000_000_000 - time.nanoseconds)
        } else {
            (time.seconds.unsigned_abs(), time.nanoseconds)
        };
        let mut text = format!("{}{seconds}", if is_before { "-" } else { "" });
        if nanoseconds > 0 {
            text += format!(".{nanoseconds:09}").trim_end_matches('0');
        }
        self.put(key.as_bytes(), text.as_bytes());
    }

    pub(super) fn acl(&mut self, is_default: bool, text: &[u8]) {
        self.put(if is_default { b"SCHILY.acl.default" } else { b"SCHILY.acl.access" }, text);
    }

    /// As GNU tar has it: what would end the key is escaped.
    pub(super) fn xattr(&mut self, name: &[u8], value: &[u8]) {
        let mut key = b"SCHILY.xattr.".to_vec();
        for &byte in name {
            match byte {
                b'%' => key.extend_from_slice(b"%25"),
                b'=' => key.extend_from_slice(b"%3D"),
                byte => key.push(byte),
            }
        }
        self.put(&key, value);
    }
}

/// The block of an entry.
#[derive(Debug)]
pub(super) struct Header([u8; 512]);

/// `name` in `folder/KIND/`, cut to the length of a field.
fn within(path: &[u8], kind: &str) -> Vec<u8> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let slash = path.iter().rposition(|&byte| byte == b'/');
    let (folder, name) = slash.map_or((&b"."[..], path), |slash| (&path[..slash], &path[slash + 1..]));
    let folder = if folder.is_empty() { b"." } else { folder };
    let whole = [folder, b"/", kind.as_bytes(), b"/", name].concat();
    let most = NAME.1 - 1;
    if whole.len() <= most {
        return whole;
    }
    // The name tells more than the folder.
    let short = [kind.as_bytes(), b"/", name].concat();
    short[..short.len().min(most)].to_vec()
}

/// Where a path can be cut so that what is before the slash fits into the prefix, and what is behind it into the name.
fn split(path: &[u8]) -> Option<usize> {
    let from = path.len().checked_sub(NAME.1 + 1)?;
    // A slash at the end belongs to the name.
    let to = path.len().checked_sub(2)?.min(PREFIX.1);
    (from.max(1)..=to).find(|&at| path[at] == b'/')
}

impl Header {
    fn empty() -> Self {
        let mut header = [0; 512];
        header[MAGIC.0..MAGIC.0 + MAGIC.1].copy_from_slice(b"ustar\x0000");
        Self(header)
    }

    pub(super) fn new(kind: Kind, stored: u64, pax: &mut Pax) -> Self {
        let mut this = Self::empty();
        this.0[TYPE] = match kind {
            Kind::File | Kind::Socket => b'0',
            Kind::HardLink => b'1',
            Kind::Symlink => b'2',
            Kind::CharacterDevice(_) => b'3',
            Kind::BlockDevice(_) => b'4',
            Kind::Folder => b'5',
            Kind::Fifo => b'6',
        };
        this.number_or(SIZE, stored, "size", pax);
        let Device { major, minor } = match kind {
            Kind::CharacterDevice(device) | Kind::BlockDevice(device) => device,
            _ => Device::default(),
        };
        this.number_or(MAJOR, major.into(), "SCHILY.devmajor", pax);
        this.number_or(MINOR, minor.into(), "SCHILY.devminor", pax);
        this
    }

    /// That of an extended header.
    pub(super) fn of_pax(path: &[u8], length: u64, mtime: Time) -> Self {
        let mut this = Self::empty();
        this.0[TYPE] = b'x';
        this.bytes(NAME, &within(path, "PaxHeaders"));
        this.number(MODE, 0o644);
        this.number(UID, 0);
        this.number(GID, 0);
        this.number(SIZE, length);
        let _ = this.number(MTIME, u64::try_from(mtime.seconds).unwrap_or(0)) || this.number(MTIME, 0);
        this
    }

    pub(super) fn name(&mut self, path: &[u8], is_folder: bool, pax: &mut Pax) {
        let with_slash;
        let path = if is_folder && !path.ends_with(b"/") {
            with_slash = [path, b"/"].concat();
            &with_slash
        } else {
            path
        };
        if self.bytes(NAME, path) {
            return;
        }
        if let Some(slash) = split(path) {
            self.bytes(PREFIX, &path[..slash]);
            self.bytes(NAME, &path[slash + 1..]);
            return;
        }
        pax.put(b"path", path);
        self.bytes(NAME, &path[..NAME.1]);
    }

    /// Of a sparse file: its own name is in the extended header, so that nobody takes the map for its content.
    pub(super) fn sparse_name(&mut self, path: &[u8], size: u64, pax: &mut Pax) {
        pax.put(b"GNU.sparse.major", b"1");
        pax.put(b"GNU.sparse.minor", b"0");
        pax.put(b"GNU.sparse.name", path);
        pax.number("GNU.sparse.realsize", size);
        self.bytes(NAME, &within(path, "GNUSparseFile.0"));
    }

    pub(super) fn owner(&mut self, entry: &Entry, pax: &mut Pax) {
        self.number(MODE, (entry.mode & 0o7777).into());
        self.number_or(UID, entry.uid, "uid", pax);
        self.number_or(GID, entry.gid, "gid", pax);
        for (field, key, name) in [(USER, "uname", &entry.user), (GROUP, "gname", &entry.group)] {
            // The field ends with a zero, too.
            if name.len() >= field.1 || !self.bytes(field, name) {
                pax.put(key.as_bytes(), name);
            }
        }
        let seconds = u64::try_from(entry.mtime.seconds).ok();
        let fits = seconds.is_some_and(|seconds| self.number(MTIME, seconds));
        if !fits {
            self.number(MTIME, 0);
        }
        if !fits || entry.mtime.nanoseconds > 0 {
            pax.time("mtime", entry.mtime);
        }
        for (key, time) in [("atime", entry.atime), ("ctime", entry.ctime)] {
            if let Some(time) = time {
                pax.time(key, time);
            }
        }
    }

    pub(super) fn link(&mut self, target: &[u8], pax: &mut Pax) {
        if !self.bytes(LINK, target) {
            pax.put(b"linkpath", target);
            self.bytes(LINK, &target[..LINK.1]);
        }
    }

    /// The block with its checksum.
    pub(super) fn finish(mut self) -> [u8; 512] {
        self.0[CHECKSUM.0..CHECKSUM.0 + CHECKSUM.1].fill(b' ');
        let sum: u32 = self.0.iter().map(|&byte| u32::from(byte)).sum();
        self.0[CHECKSUM.0..CHECKSUM.0 + CHECKSUM.1].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0
    }

    /// False if `bytes` does not fit into the field.
    fn bytes(&mut self, (start, length): (usize, usize), bytes: &[u8]) -> bool {
        if bytes.len() > length {
            return false;
        }
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
        true
    }

    /// False if `number` does not fit into the field.
    fn number(&mut self, (start, length): (usize, usize), mut number: u64) -> bool {
        let digits = length - 1;
        if number >> (3 * digits) != 0 {
            return false;
        }
        for at in (start..start + digits).rev() {
            self.0[at] = b'0' + (number & 7) as u8;
            number >>= 3;
        }
        true
    }

    /// What does not fit goes to the extended header.
    fn number_or(&mut self, field: (usize, usize), number: u64, key: &str, pax: &mut Pax) {
        if !self.number(field, number) {
            self.number(field, 0);
            pax.number(key, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, length: usize) -> String {
        let mut pax = Pax::default();
        pax.put(key.as_bytes(), &vec![b'v'; length]);
        String::from_utf8(pax.0).unwrap()
    }

    #[test]
    fn records_count_their_own_digits() {
        // 5 bytes beside digits and value.
        for length in 0..2000 {
            let record = record("k", length);
            let (stated, _) = record.split_once(' ').unwrap();
            assert_eq!(stated.parse::<usize>().unwrap(), record.len());
        }
    }

    #[test]
    fn times_before_1970_and_with_few_digits() {
        let text = |seconds, nanoseconds| {
            let mut pax = Pax::default();
            pax.time("mtime", Time { seconds, nanoseconds });
            String::from_utf8(pax.0).unwrap().trim().rsplit_once('=').unwrap().1.to_owned()
        };
        assert_eq!(text(5, 120_000_000), "5.12");
        assert_eq!(text(5, 1), "5.000000001");
        assert_eq!(text(-1, 0), "-1");
        assert_eq!(text(-1, 500_000_000), "-0.5");
        assert_eq!(text(-3, 250_000_000), "-2.75");
    }

    #[test]
    fn paths_are_split_where_both_parts_fit() {
        let path = |folder: usize, name: usize| [vec![b'f'; folder], vec![b'/'], vec![b'n'; name]].concat();
        assert_eq!(split(&path(155, 100)), Some(155));
        assert_eq!(split(&path(156, 100)), None);
        assert_eq!(split(&path(20, 101)), None);
        assert_eq!(split(&path(1, 100)), Some(1));
        // A folder's own slash is none to split at.
        assert_eq!(split(&[vec![b'n'; 101], vec![b'/']].concat()), None);
        let two = [path(100, 50), vec![b'/'], vec![b'n'; 90]].concat();
        assert_eq!(split(&two), Some(151));
    }
}
