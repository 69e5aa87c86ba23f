use std::path::PathBuf;

use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::terminal::{self, Colour};

/// Unmounts all of them; the last failure decides the exit code.
pub(crate) fn run(mountpoints: &[PathBuf]) -> Code {
    let mut code = Code::Success;
    for mountpoint in mountpoints {
        if let Err(error) = tarnfs_fuse::unmount(mountpoint) {
            code = Code::CannotMount;
            let message = match error {
                tarnfs_fuse::Error::MountPoint { .. } => error.to_string(),
                error => format!("{}: {error}", shown(mountpoint.as_os_str())),
            };
            terminal::report(&Failure::new(code, message), Colour::default());
        }
    }
    code
}
