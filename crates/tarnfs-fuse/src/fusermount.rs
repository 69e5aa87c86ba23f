//! The helper that mounts for people who may not: fusermount3 of libfuse, which is set-user-id root.

use std::env;
use std::ffi::OsString;
use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};

use crate::Error;
use crate::options::Parsed;

/// Where a person may say which helper to use; libfuse's other users know the same name.
const OVERRIDE: &str = "FUSERMOUNT_PATH";

/// Folders in which the helper is, also where `PATH` has been emptied.
const USUAL_FOLDERS: &str = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin";

/// The path of the helper that mounts for people who may not. With `FUSERMOUNT_PATH` set, only that one.
pub fn find() -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os(OVERRIDE) {
        let path = PathBuf::from(path);
        return if path.is_file() { Ok(path) } else { Err(Error::NoFusermount) };
    }
    let path = env::var_os("PATH").unwrap_or_else(|| USUAL_FOLDERS.into());
    env::split_paths(&path)
        .flat_map(|folder| ["fusermount3", "fusermount"].map(|name| folder.join(name)))
        .find(|candidate| candidate.is_file())
        .ok_or(Error::NoFusermount)
}

/// Mounts through the helper, which hands the open device back over a socket.
pub(crate) fn mount(mount_point: &Path, options: &Parsed, can_open_device: bool) -> Result<OwnedFd, Error> {
    let helper = find()?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| Error::io("make a socket", error))?;
    // The helper finds its end of the socket as standard input, so that nothing else has to be inherited.
    let mut child = Command::new(&helper)
        .arg("-o")
        .arg(helper_options(options))
        .arg("--")
        .arg(mount_point)
        .env("_FUSE_COMMFD", "0")
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Error::io(format!("run {}", helper.display()), error))?;
    let device = receive_device(&ours);
    let mut said = String::new();
    if let Some(mut stream) = child.stderr.take() {
        let _ = stream.read_to_string(&mut said);
    }
    let _ = child.wait();
    device.map_err(|error| explain(&said, can_open_device, &error))
}

/// The options with which the helper is called. Only in the source may a comma or a backslash be.
fn helper_options(options: &Parsed) -> OsString {
    let mut all: Vec<String> = options.flag_names().into_iter().map(str::to_owned).collect();
    all.push("subtype=tarnfs".to_owned());
    all.extend(Some(options.fuse_data()).filter(|data| !data.is_empty()));
    let mut all = (all.join(",") + ",fsname=").into_bytes();
    for &byte in options.source.as_bytes() {
        all.extend(matches!(byte, b'\\' | b',').then_some(b'\\'));
        all.push(byte);
    }
    OsString::from_vec(all)
}

/// Waits for the message that carries the device; an end of the stream means that the helper gave up.
fn receive_device(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(device) = descriptors.next()
        {
            return Ok(device);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// What the helper's complaint means for a person.
fn explain(said: &str, can_open_device: bool, error: &io::Error) -> Error {
    if said.contains("user_allow_other") {
        return Error::NoOthers;
    }
    if !can_open_device && (said.contains("/dev/fuse") || said.is_empty()) {
        return Error::NoPermission;
    }
    let said = said.trim().trim_start_matches("fusermount3: ").trim_start_matches("fusermount: ");
    Error::Fusermount(if said.is_empty() { error.to_string() } else { said.to_owned() })
}

/// Unmounts through the helper; `lazily` also what is in use.
pub(crate) fn unmount(mount_point: &Path, lazily: bool) -> Result<(), Error> {
    let helper = find()?;
    let Output { status, stderr, .. } = Command::new(&helper)
        .arg("-u")
        .args(lazily.then_some("-z"))
        .arg("--")
        .arg(mount_point)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::io(format!("run {}", helper.display()), error))?;
    if status.success() {
        return Ok(());
    }
    Err(explain(&String::from_utf8_lossy(&stderr), true, &io::Error::other(status.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MountOptions;

    #[test]
    fn a_source_with_commas_stays_one_option() {
        let options = MountOptions { source: r"a,b\c.tar".into(), ..MountOptions::default() };
        let options = Parsed::new(&options).unwrap();
        assert_eq!(helper_options(&options), r"ro,nosuid,nodev,subtype=tarnfs,fsname=a\,b\\c.tar");
    }

    #[test]
    fn complaints_become_advice() {
        let error = io::Error::from(io::ErrorKind::UnexpectedEof);
        let conf = "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\n";
        assert!(matches!(explain(conf, true, &error), Error::NoOthers));
        let device = "fusermount3: failed to open /dev/fuse: Permission denied\n";
        assert!(matches!(explain(device, false, &error), Error::NoPermission));
        let other = "fusermount3: user has no write access to mountpoint /x\n";
        assert_eq!(explain(other, true, &error).to_string(), "fusermount3: user has no write access to mountpoint /x");
    }
}
