use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::MountFlags;
use tarnfs_source::Setting;

use crate::{Error, Unmounter};

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// What the table of mounts shows as the source: the path of the archive.
    pub source: OsString,
    /// Let other users in too; the kernel then checks owner and mode of each file (`default_permissions`).
    pub allow_other: bool,
    /// What came after `-o`, separate or joined by commas ([`split_options`]). Known: `allow_other`,
    /// `default_permissions`, `noexec`, `exec`, `noatime`, `atime`, `nodiratime`, `relatime`, `sync`, `async`,
    /// `dirsync`, `ro`, `nosuid`, `nodev`, `max_read=`, `uid=`, `gid=`, `umask=`, `fsname=`, and what fstab and
    /// libfuse's other users write and what holds anyway (`defaults`, `noauto`, `nonempty`, `kernel_cache`, ...).
    pub options: Vec<String>,
    /// Threads that answer the kernel; at least 1. Work that has to wait has others.
    pub threads: usize,
    /// When a request that has no answer yet is answered with an error.
    pub deadline: Duration,
    /// Answer questions for extended attributes also where the tree has none, so that the root's
    /// [`STATISTICS_ATTRIBUTE`] can be read. Without it the kernel is told at its first question not to ask again,
    /// which makes `ls -l` faster.
    ///
    /// [`STATISTICS_ATTRIBUTE`]: crate::STATISTICS_ATTRIBUTE
    pub statistics: bool,
    /// The folder to mount on, where it was opened before: whatever its path leads to by now.
    pub folder: Option<Arc<OwnedFd>>,
    /// Who takes the mount away where this process will not be allowed to any more.
    pub unmounter: Option<Arc<dyn Unmounter>>,
}

impl Default for MountOptions {
    /// No source, only for oneself, a thread for each core (2 to 4), a deadline of 60 seconds.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            source: "tarnfs".into(),
            allow_other: false,
            options: Vec::new(),
            threads: cores.clamp(2, 4),
            deadline: Duration::from_secs(60),
            statistics: false,
            folder: None,
            unmounter: None,
        }
    }
}

impl MountOptions {
    /// Whether all options are known, without mounting anything.
    pub fn check(&self) -> Result<(), Error> {
        Parsed::new(self).map(drop)
    }
}

/// The options in a value of `-o`: at each comma, but not at one behind a backslash, which belongs to a value. Still
/// with their backslashes.
pub fn split_options(joined: &str) -> Vec<&str> {
    let mut is_escaped = false;
    let mut options: Vec<&str> = joined
        .split(|character| {
            let separates = character == ',' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            separates
        })
        .collect();
    options.retain(|option| !option.is_empty());
    options
}

/// One of [`split_options`], without its backslashes.
pub fn plain_option(option: &str) -> String {
    let mut characters = option.chars();
    let mut plain = String::with_capacity(option.len());
    while let Some(character) = characters.next() {
        plain.push(if character == '\\' { characters.next().unwrap_or(character) } else { character });
    }
    plain
}

/// Attributes that a person wants to see instead of the stored ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// Permission bits to take away.
    pub(crate) umask: u32,
}

/// Options sorted by who is to have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// What the table of mounts shows.
    pub(crate) source: OsString,
    /// What is mounted.
    pub(crate) mounted: OsString,
    pub(crate) flags: MountFlags,
    pub(crate) allow_other: bool,
    pub(crate) default_permissions: bool,
    pub(crate) max_read: Option<u32>,
    pub(crate) statistics: bool,
    pub(crate) overrides: Overrides,
}

/// Flags that every mount has, but for [`Parsed::let_writes_in`]: what is in an archive never gains rights here.
const ALWAYS: MountFlags = MountFlags::RDONLY.union(MountFlags::NOSUID).union(MountFlags::NODEV);

/// Flags as `mount(8)` and fusermount3 call them.
const FLAGS: &[(&str, MountFlags)] = &[
    ("dirsync", MountFlags::DIRSYNC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("noexec", MountFlags::NOEXEC),
    ("relatime", MountFlags::RELATIME),
    ("sync", MountFlags::SYNCHRONOUS),
];

/// The opposites of [`FLAGS`], and what holds without being said: written by people, fstab and scripts made for other
/// mounters.
const HOLDS_ANYWAY: &[&str] = &[
    "async",
    "async_read",
    "atime",
    "atomic_o_trunc",
    "auto",
    "auto_cache",
    "auto_unmount",
    "big_writes",
    "clone_fd",
    "defaults",
    "diratime",
    "direct_io",
    "exec",
    "hard_remove",
    "intr",
    "kernel_cache",
    "large_read",
    "no_auto_cache",
    "no_remote_flock",
    "no_remote_lock",
    "no_remote_posix_lock",
    "no_splice_move",
    "no_splice_read",
    "no_splice_write",
    "nodev",
    "noauto",
    "noauto_cache",
    "nofail",
    "noforget",
    "nonempty",
    "nopath",
    "nosuid",
    "nouser",
    "owner",
    "readdir_ino",
    "ro",
    "splice_move",
    "splice_read",
    "splice_write",
    "sync_read",
    "use_ino",
    "user",
    "users",
    "_netdev",
];

/// Options of libfuse with a number that change nothing here: names never change in an archive, so the kernel may keep
/// them for ever, and the kernel and tarnfs agree on sizes by themselves.
const WITHOUT_EFFECT: &[&str] = &[
    "ac_attr_timeout",
    "attr_timeout",
    "congestion_threshold",
    "entry_timeout",
    "intr_signal",
    "max_background",
    "max_idle_threads",
    "max_readahead",
    "max_threads",
    "max_write",
    "negative_timeout",
    "remember",
];

impl Parsed {
    pub(crate) fn new(options: &MountOptions) -> Result<Self, Error> {
        let mut parsed = Self {
            source: options.source.clone(),
            mounted: options.source.clone(),
            flags: ALWAYS,
            allow_other: options.allow_other,
            default_permissions: false,
            max_read: None,
            statistics: options.statistics,
            overrides: Overrides::default(),
        };
        for option in options.options.iter().flat_map(|joined| split_options(joined)) {
            parsed.add(&plain_option(option))?;
        }
        // Without it the kernel would let everybody read what anybody has made it cache.
        parsed.default_permissions |= parsed.allow_other;
        Ok(parsed)
    }

    fn add(&mut self, option: &str) -> Result<(), Error> {
        if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == option) {
            self.flags |= *flag;
            return Ok(());
        }
        if HOLDS_ANYWAY.contains(&option) || option.starts_with("x-") || option.starts_with("comment=") {
            return Ok(());
        }
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let number = |radix| {
            u32::from_str_radix(value, radix).map_err(|_| Error::Option(format!("{option}: {name}= needs a number")))
        };
        match name {
            "allow_other" => self.allow_other = true,
            "default_permissions" => self.default_permissions = true,
            "fsname" => self.source = value.into(),
            "max_read" => self.max_read = Some(number(10)?),
            "uid" => self.overrides.uid = Some(number(10)?),
            "gid" => self.overrides.gid = Some(number(10)?),
            "umask" => self.overrides.umask = number(8)? & 0o777,
            // Seconds may have a fraction.
            name if WITHOUT_EFFECT.contains(&name) => match value.parse::<f64>() {
                Ok(number) if number.is_finite() => {}
                _ => return Err(Error::Option(format!("{option}: {name}= needs a number"))),
            },
            "modules" => {
                let what =
                    "it names libraries of libfuse, which tarnfs does not load (with modules=subdir goes subdir=PATH)";
                return Err(Error::Option(format!("{option}: {what}")));
            }
            "subtype" if value == "tarnfs" => {}
            "subtype" => {
                let what = "mounts of tarnfs have the type fuse.tarnfs; leave it out";
                return Err(Error::Option(format!("{option}: {what}")));
            }
            "allow_root" => {
                let what = "the kernel knows only allow_other; root can always read what is mounted with that";
                return Err(Error::Option(format!("allow_root: {what}")));
            }
            "remount" => {
                let what = "a mount cannot be changed, and is read-only anyway: unmount it, and mount it again";
                return Err(Error::Option(format!("remount: {what}")));
            }
            "rw" => {
                let what = "an archive is mounted for reading only; leave rw out";
                return Err(Error::Option(format!("rw: {what}, and give {} DIR to write", Setting::WriteOverlay)));
            }
            "suid" | "dev" => {
                return Err(Error::Option(format!(
                    "{option}: what is in an archive gets no rights here; leave it out"
                )));
            }
            _ => return Err(Error::Option(format!("{option}: this option is not known; leave it out"))),
        }
        Ok(())
    }

    /// Lets the kernel hand on what would change something; the tree refuses what it cannot do ([`tarnfs_tree::Edit`]).
    pub(crate) fn let_writes_in(&mut self) {
        self.flags -= MountFlags::RDONLY;
    }

    /// The names of the flags, for fusermount3: it knows neither `relatime`, which holds anyway, nor `nodiratime`,
    /// without which all is read the same.
    pub(crate) fn flag_names(&self) -> Vec<&'static str> {
        let mut names = vec![if self.flags.contains(MountFlags::RDONLY) { "ro" } else { "rw" }, "nosuid", "nodev"];
        let is_known = |name: &&str| !matches!(*name, "relatime" | "nodiratime");
        names.extend(
            FLAGS.iter().filter(|(_, flag)| self.flags.contains(*flag)).map(|(name, _)| *name).filter(is_known),
        );
        names
    }

    /// Options that FUSE itself understands, joined by commas.
    pub(crate) fn fuse_data(&self) -> String {
        let mut data = Vec::new();
        if self.default_permissions {
            data.push("default_permissions".to_owned());
        }
        if self.allow_other {
            data.push("allow_other".to_owned());
        }
        data.extend(self.max_read.map(|bytes| format!("max_read={bytes}")));
        data.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Result<Parsed, Error> {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Parsed::new(&MountOptions { options, ..MountOptions::default() })
    }

    #[test]
    fn known_options_go_where_they_belong() {
        let parsed =
            parse(&["noexec,allow_other", "max_read=65536", "uid=7,umask=022", "defaults,ro", "x-systemd.automount"])
                .unwrap();
        assert_eq!(parsed.flags, ALWAYS | MountFlags::NOEXEC);
        assert_eq!(parsed.fuse_data(), "default_permissions,allow_other,max_read=65536");
        assert_eq!(parsed.flag_names(), ["ro", "nosuid", "nodev", "noexec"]);
        let parsed = parse(&["relatime,nodiratime,noexec"]).unwrap();
        assert_eq!(parsed.flags, ALWAYS | MountFlags::NOEXEC | MountFlags::RELATIME | MountFlags::NODIRATIME);
        assert_eq!(parsed.flag_names(), ["ro", "nosuid", "nodev", "noexec"], "the helper does not know the others");
        let mut writable = parsed.clone();
        writable.let_writes_in();
        assert_eq!(writable.flag_names(), ["rw", "nosuid", "nodev", "noexec"]);
        let parsed = parse(&["uid=7,umask=022"]).unwrap();
        assert_eq!(parsed.overrides, Overrides { uid: Some(7), gid: None, umask: 0o22 });
        assert_eq!(parse(&["fsname=other"]).unwrap().source, "other");
        let parsed = parse(&[r"noexec,fsname=a\,b\\c,,umask=077"]).unwrap();
        assert_eq!((parsed.source.to_str(), parsed.overrides.umask), (Some(r"a,b\c"), 0o77));
    }

    /// Scripts that were made for other programs have them.
    #[test]
    fn what_libfuse_takes_is_taken() {
        let plain = parse(&[]).unwrap();
        for option in [
            "no_auto_cache",
            "no_splice_read",
            "clone_fd",
            "large_read",
            "entry_timeout=0.5",
            "max_write=4096",
            "subtype=tarnfs",
        ] {
            assert_eq!(parse(&[option]).unwrap(), plain, "{option}");
        }
    }

    #[test]
    fn what_is_not_known_or_cannot_be_is_named() {
        for option in [
            "remount",
            "rw",
            "suid",
            "dev",
            "uid=x",
            "colour=blue",
            "allow_root",
            "umask=9",
            "subtype=foo",
            "entry_timeout=x",
            "max_write=",
            "remember",
        ] {
            let message = parse(&["noatime", option]).unwrap_err().to_string();
            assert!(message.contains(option), "{message}");
        }
    }
}
