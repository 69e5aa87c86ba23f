//! Whether what is in a folder may have to be waited for: a server can be gone, and so can a process that serves a
//! mount.
//!
//! Told by the kind of file system, of the folder and of all that is mounted below it. Kinds that are not known as
//! those of disks and of memory may wait.

use std::fs::File;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstatfs;

use super::served;

/// `f_type` of file systems on disks, and in memory (`linux/magic.h` and the sources of each).
const LOCAL: &[u64] = &[
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // EROFS
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0x9660,      // ISO 9660
    0x1501_3346, // UDF
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS (ntfs3)
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x3434,      // NILFS2
    0x482b,      // HFS+
    0x9fa0,      // proc
    0x6265_6572, // sysfs
];

/// The same by the names that they have in the table of mounts.
const LOCAL_NAMES: &[&[u8]] = &[
    b"ext2",
    b"ext3",
    b"ext4",
    b"xfs",
    b"btrfs",
    b"tmpfs",
    b"ramfs",
    b"rootfs",
    b"overlay",
    b"squashfs",
    b"erofs",
    b"f2fs",
    b"zfs",
    b"bcachefs",
    b"iso9660",
    b"udf",
    b"vfat",
    b"msdos",
    b"exfat",
    b"ntfs3",
    b"jfs",
    b"reiserfs",
    b"nilfs2",
    b"hfsplus",
    b"proc",
    b"sysfs",
    b"devtmpfs",
    b"devpts",
    b"cgroup",
    b"cgroup2",
    b"mqueue",
    b"hugetlbfs",
    b"debugfs",
    b"tracefs",
    b"securityfs",
    b"configfs",
    b"bpf",
    b"pstore",
    b"efivarfs",
    b"binfmt_misc",
    b"nsfs",
];

/// How often the table of mounts is looked at, in milliseconds.
const EVERY: u64 = 100;

/// What is known of a folder.
#[derive(Debug)]
pub(super) struct Waits {
    /// The folder itself may have to be waited for.
    always: bool,
    below: AtomicBool,
    /// The table of mounts, open: later no path may be opened any more. `None` if there is none, or nothing is to be
    /// learned from it.
    table: Option<File>,
    /// Where the folder is in it.
    path: Vec<u8>,
    begun: Instant,
    /// When the table was looked at, in milliseconds since then.
    looked: AtomicU64,
}

impl Waits {
    /// Asks about `folder`, which may take as long as anything there does.
    pub(super) fn of(folder: BorrowedFd<'_>) -> Self {
        #[allow(clippy::unnecessary_cast, reason = "it has another type on other processors")]
        let is_local = |kind| LOCAL.contains(&(kind as u64 & 0xffff_ffff));
        let always = !fstatfs(folder).is_ok_and(|found| is_local(found.f_type));
        let path = std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let path = path.map_or_else(|_| Vec::new(), |path| path.as_os_str().as_bytes().to_vec());
        let table = if always || path.is_empty() { None } else { File::open("/proc/self/mountinfo").ok() };
        let this = Self {
            always,
            below: AtomicBool::new(false),
            table,
            path,
            begun: Instant::now(),
            looked: AtomicU64::new(0),
        };
        this.look();
        this
    }

    /// True if a question about what is in the folder may have to wait. This itself does not.
    pub(super) fn any(&self) -> bool {
        if self.always {
            return true;
        }
        let Some(table) = &self.table else { return false };
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked = self.looked.load(Ordering::Relaxed);
        if now.saturating_sub(looked) >= EVERY
            && self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            // The system says of an open table of mounts that it is urgent to read when it has changed.
            let mut changed = [PollFd::new(table, PollFlags::PRI | PollFlags::ERR)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut changed, Some(&at_once)).is_ok_and(|count| count > 0) {
                self.look();
            }
        }
        self.below.load(Ordering::Relaxed)
    }

    fn look(&self) {
        let Some(table) = &self.table else { return };
        let (mut text, mut part) = (Vec::new(), vec![0; 64 << 10]);
        while let Ok(read @ 1..) = table.read_at(&mut part, text.len() as u64) {
            text.extend_from_slice(&part[..read]);
        }
        self.below.store(any_waits(&text, &self.path), Ordering::Relaxed);
    }
}

/// True if one of the mounts in `table` (`/proc/self/mountinfo`) below `folder` may have to be waited for. Those of
/// this process are never asked.
fn any_waits(table: &[u8], folder: &[u8]) -> bool {
    table.split(|&byte| byte == b'\n').any(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let (Some(device), Some(place)) = (fields.nth(2), fields.nth(1)) else { return false };
        let Some(kind) = fields.skip_while(|field| *field != b"-").nth(1) else { return false };
        let place = unescaped(place);
        let below = Path::new(std::ffi::OsStr::from_bytes(&place));
        let folder = Path::new(std::ffi::OsStr::from_bytes(folder));
        let is_below = below.starts_with(folder) && below != folder;
        is_below && !LOCAL_NAMES.contains(&kind) && !numbers(device).is_some_and(|(a, b)| served::is_served(a, b))
    })
}

/// `st_dev` as it is written in the table: `major:minor`.
fn numbers(device: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A path with its spaces and the like, which are written as octal numbers behind a backslash.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            out.push(byte);
            rest = &behind[3..];
        } else {
            out.push(first);
            rest = behind;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn mounts_below_a_folder_are_told_by_their_kind() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
            30 22 0:50 / /srv/with\\040space/nfs rw shared:2 master:1 - nfs4 server:/ rw\n\
            31 22 4095:99 / /srv/own/mount rw - fuse.tarnfs tarnfs rw\n\
            32 22 0:60 / /srv/tmp rw - tmpfs tmpfs rw\n\
            33 22 0:61 / /srv/top rw - fuse.other other rw\n";
        let _own = served::Served::begin(4095, 99);
        for (folder, waits) in [
            ("/", true),
            ("/srv", true),
            ("/srv/with space", true),
            ("/srv/with", false),
            ("/srv/with space/nfs", false),
            ("/srv/own", false),
            ("/srv/tmp", false),
            ("/srv/top", false),
            ("/home", false),
        ] {
            assert_eq!(any_waits(table, folder.as_bytes()), waits, "{folder}");
        }
        assert!(any_waits(&table[..], b"/srv") && !any_waits(b"", b"/") && !any_waits(b"\n - \n1 2 3", b"/"));
    }

    #[test]
    fn a_folder_of_this_machine_need_not_be_waited_for() {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let open = File::open(folder.path()).unwrap();
        let waits = Waits::of(open.as_fd());
        assert!(!waits.always && !waits.any());
    }

    /// Comes back once it is so.
    fn until(is_so: &dyn Fn() -> bool) {
        for _ in 0..1000 {
            if is_so() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("it was not seen");
    }

    /// What is mounted below a folder while it is served counts from then on, as long as it is there.
    #[test]
    fn mounts_that_come_and_go_are_seen() {
        const FOLDER: &str = "TARNFS_TEST_MOUNTS";
        let run = |program: &str, arguments: &[&str]| {
            std::process::Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
        };
        if let Ok(folder) = std::env::var(FOLDER) {
            let (open, below) = (File::open(&folder).unwrap(), format!("{folder}/below"));
            let waits = Waits::of(open.as_fd());
            assert!(!waits.always && !waits.any());
            // Another one of a disk changes nothing.
            assert!(run("mount", &["-t", "tmpfs", "tmpfs", &below]));
            std::thread::sleep(std::time::Duration::from_millis(2 * EVERY));
            assert!(!waits.any());
            // One that nobody serves any more.
            let options = "fd=3,rootmode=40000,user_id=0,group_id=0";
            let fuse = format!("exec 3<>/dev/fuse && mount -i -t fuse -o {options} none \"$0\"");
            if !run("sh", &["-c", &fuse, &below]) {
                println!("left out: there is no fuse");
                return;
            }
            until(&|| waits.any());
            assert!(Waits::of(open.as_fd()).any());
            assert!(run("umount", &["-i", "-c", &below]));
            until(&|| !waits.any());
            return;
        }
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        let mut within = std::process::Command::new("unshare");
        within.args(["--user", "--map-root-user", "--mount"]).env(FOLDER, folder.path());
        let can = "mount -t tmpfs tmpfs \"$TARNFS_TEST_MOUNTS/below\"";
        let mut probe = std::process::Command::new("unshare");
        probe.args(["--user", "--map-root-user", "--mount", "sh", "-c", can]).env(FOLDER, folder.path());
        if !probe.status().is_ok_and(|status| status.success()) {
            println!("left out: needs unshare and user namespaces");
            return;
        }
        let this = std::env::current_exe().unwrap();
        let name = "folder::waits::tests::mounts_that_come_and_go_are_seen";
        assert!(within.arg(this).args(["--exact", name]).status().unwrap().success());
    }
}
