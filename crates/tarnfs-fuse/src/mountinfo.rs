//! The table of mounts, `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Error;

/// Where the kernel shows the mounts of this process's mount namespace.
const TABLE: &str = "/proc/self/mountinfo";

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The kernel's number for the mount, which is its own while it lasts.
    pub(crate) id: u64,
    /// "major:minor" of the file system, which also names its connection and its read-ahead.
    pub(crate) device: String,
    pub(crate) mount_point: PathBuf,
    /// Such as "fuse.tarnfs".
    pub(crate) kind: String,
    /// What is mounted, as whoever mounted it calls it.
    pub(crate) source: OsString,
    /// The user who mounted it, where the file system tells.
    pub(crate) user: Option<u32>,
    /// The file system takes what is written.
    pub(crate) is_writable: bool,
}

impl MountEntry {
    /// The file system's `st_dev`.
    pub(crate) fn numbers(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.device.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// When it was mounted: then the kernel made the folder of its connection.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        let (_, minor) = self.numbers()?;
        fs::metadata(format!("/sys/fs/fuse/connections/{minor}")).ok()?.modified().ok()
    }
}

/// The `st_dev` of what is mounted over a connection to the kernel, where it tells (newer kernels): for a mount that
/// somebody else has made, and knows where.
pub(crate) fn of_connection(device: &impl AsRawFd) -> Option<(u32, u32)> {
    of_descriptor(Path::new(&format!("/proc/self/fdinfo/{}", device.as_raw_fd())))
}

/// The same of a descriptor, by the file in `/proc` that tells of it.
pub(crate) fn of_descriptor(file: &Path) -> Option<(u32, u32)> {
    let told = fs::read_to_string(file).ok()?;
    let number = told.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    // As the kernel's own `MKDEV`: 20 bits of minor number. FUSE has no device, so its major number is 0.
    let number: u32 = number.trim().parse().ok()?;
    Some((number >> 20, number & 0xf_ffff))
}

/// The number of the mount that `path`, a descriptor that only names a place, leads to. The file system is not asked.
pub(crate) fn id_of(path: &impl AsRawFd) -> Option<u64> {
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", path.as_raw_fd())).ok()?;
    told.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

fn read() -> Result<Vec<u8>, Error> {
    fs::read(TABLE).map_err(|error| Error::io(format!("read {TABLE}"), error))
}

/// The mount that is on top at `mount_point`, an absolute path without symbolic links.
pub(crate) fn find(mount_point: &Path) -> Result<Option<MountEntry>, Error> {
    let table = read()?;
    Ok(table.rsplit(|&byte| byte == b'\n').filter_map(parse).find(|entry| entry.mount_point == mount_point))
}

/// The mount of this number.
pub(crate) fn of_id(id: u64) -> Result<Option<MountEntry>, Error> {
    let table = read()?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).find(|entry| entry.id == id))
}

/// All mounts of this `kind`, in the order in which they were made.
pub(crate) fn of_kind(kind: &str) -> Result<Vec<MountEntry>, Error> {
    let entries = read()?;
    let entries = entries.split(|&byte| byte == b'\n').filter_map(parse);
    Ok(entries.filter(|entry| entry.kind == kind).collect())
}

/// The mounts of the file system `device` ("major:minor") of this `kind`, wherever they are by now; the last one first.
pub(crate) fn of_device(device: &str, kind: &str) -> Result<Vec<MountEntry>, Error> {
    let entries = read()?;
    let entries = entries.rsplit(|&byte| byte == b'\n').filter_map(parse);
    Ok(entries.filter(|entry| entry.device == device && entry.kind == kind).collect())
}

/// "36 35 98:0 /root /mount/point options ... - type source super-options"
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = fields.nth(1)?;
    let mount_point = fields.nth(1)?;
    let mut fields = fields.skip_while(|&field| field != b"-");
    let kind = fields.nth(1)?;
    let source = fields.next()?;
    let options = fields.next().and_then(|options| std::str::from_utf8(options).ok()).unwrap_or_default();
    let is_writable = options.split(',').any(|option| option == "rw");
    let user = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
    Some(MountEntry {
        id,
        device: String::from_utf8_lossy(device).into_owned(),
        mount_point: PathBuf::from(OsString::from_vec(unescape(mount_point))),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: OsString::from_vec(unescape(source)),
        user,
        is_writable,
    })
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        if let Some(digits) = digits {
            plain.push(digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
            rest = &after[3..];
        } else {
            plain.push(byte);
            rest = after;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_optional_fields_and_escapes() {
        let line =
            br"36 35 0:45 / /mnt/a\040b\134c rw,noatime shared:1 master:2 - fuse.tarnfs /x\040y.tar ro,user_id=17,group_id=0";
        let entry = parse(line).unwrap();
        assert_eq!((entry.id, entry.device.as_str(), entry.numbers()), (36, "0:45", Some((0, 45))));
        for device in ["", "45", "0:", ":45", "a:b", "-1:2", "../0:45"] {
            assert_eq!(MountEntry { device: device.to_owned(), ..entry.clone() }.numbers(), None, "{device}");
        }
        assert_eq!(entry.mount_point, Path::new(r"/mnt/a b\c"));
        assert_eq!((entry.kind.as_str(), entry.user), ("fuse.tarnfs", Some(17)));
        assert_eq!(entry.source, "/x y.tar");
        assert!(!entry.is_writable, "rw is said of the mount alone");
        assert!(parse(b"36 35 0:45 / /m ro - fuse.tarnfs /x rw,user_id=0").unwrap().is_writable);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 0:45 / /mnt rw shared:1"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(find(Path::new("/")).unwrap().is_some());
        assert!(find(Path::new("/no such mount")).unwrap().is_none());
        let root = find(Path::new("/")).unwrap().unwrap();
        assert!(of_device(&root.device, &root.kind).unwrap().contains(&root));
        assert_eq!(of_id(root.id).unwrap().as_ref(), Some(&root));
        assert_eq!(of_device(&root.device, "no such kind").unwrap(), []);
        assert_eq!(of_device("no:such", &root.kind).unwrap(), []);
    }

    #[test]
    fn a_descriptor_tells_its_mount_and_only_a_connection_a_connection() {
        let proc = fs::File::open("/proc").unwrap();
        assert_eq!(id_of(&proc), find(Path::new("/proc")).unwrap().map(|entry| entry.id));
        assert_eq!(of_connection(&proc), None);
    }
}
