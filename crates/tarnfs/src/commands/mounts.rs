use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::exit::{Code, Failure};
use crate::terminal::{Output, output_failure};

/// Lists the mounts of tarnfs: what is mounted, and where.
pub(crate) fn run() -> Result<Code, Failure> {
    let mounts = tarnfs_fuse::mounts().map_err(|error| Failure::new(Code::Failure, error.to_string()))?;
    let mut out = Output::new();
    let written = mounts.iter().try_for_each(|mount| {
        out.name(mount.source.as_bytes())?;
        out.write_all(b" on ")?;
        out.name(mount.mount_point.as_os_str().as_bytes())?;
        out.write_all(b"\n")
    });
    written.and_then(|()| out.flush()).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}
