use std::io;
use std::path::PathBuf;

/// Why a tree cannot be mounted or a mount cannot be taken away. Each message ends with what a person can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no FUSE, or a container hides it.
    #[error(
        "/dev/fuse does not exist: load the kernel's module (modprobe fuse) or, in a container, pass the device in \
         (docker run --device /dev/fuse --cap-add SYS_ADMIN)"
    )]
    NoDevice,
    /// The device is there, but not for this user.
    #[error(
        "/dev/fuse cannot be opened by this user: let root run \"chmod 666 /dev/fuse\", as udev does on most systems, or mount as root"
    )]
    NoPermission,
    /// Only root may let other users in, unless the system's administrator says otherwise.
    #[error(
        "the option allow_other is for root only, unless /etc/fuse.conf has a line \"user_allow_other\": let root add it, or mount \
         without allow_other"
    )]
    NoOthers,
    /// Somebody who may not mount needs a helper that may.
    #[error(
        "only root can mount and unmount without the program fusermount3, which is not installed: install the package fuse3 (Debian, Ubuntu, \
         Fedora, Arch, Alpine), or mount as root, or inside \"unshare -Urm\""
    )]
    NoFusermount,
    /// The helper refused.
    #[error("fusermount3: {0}")]
    Fusermount(String),
    /// The folder cannot be mounted on, or has no mount of ours.
    #[error("{}: {reason}", .path.display())]
    MountPoint {
        /// Which folder.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// An option after `-o` that is not known or cannot be kept.
    #[error("-o {0}")]
    Option(String),
    /// The system refused for another reason.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done, with which path.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { doing: doing.into(), source: source.into() }
    }

    pub(crate) fn mount_point(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::MountPoint { path: path.into(), reason: reason.into() }
    }
}
