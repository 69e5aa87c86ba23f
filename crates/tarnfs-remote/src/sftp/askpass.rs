//! A password for `ssh`, which asks a program for it (`SSH_ASKPASS`): this one, under a variable that says where the
//! password is.
//!
//! It stands in no argument and no variable. It is in a file in memory that the process has open which starts `ssh`,
//! and that processes of this user alone can open.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};

/// Where the password is.
const VARIABLE: &str = "TARNFS_ASKPASS";

/// Bytes of one at most.
const LONGEST: u64 = 4 << 10;

/// A password as `ssh` gets it.
pub(super) struct Secret(File);

impl Secret {
    pub(super) fn new(password: &str) -> io::Result<Self> {
        let mut file = File::from(memfd_create("tarnfs", MemfdFlags::CLOEXEC)?);
        file.write_all(password.as_bytes())?;
        Ok(Self(file))
    }

    /// Says to a program that is to be started whom to ask. To be called in the process that stays.
    pub(super) fn tell(&self, command: &mut Command) {
        let this = format!("/proc/{}", std::process::id());
        command
            .env("SSH_ASKPASS", format!("{this}/exe"))
            .env("SSH_ASKPASS_REQUIRE", "force")
            .env(VARIABLE, format!("{this}/fd/{}", self.0.as_raw_fd()));
        // Older ones ask nobody without a display.
        if std::env::var_os("DISPLAY").is_none() {
            command.env("DISPLAY", ":0");
        }
    }
}

/// False of whether to trust a host, which may be called like that, the passphrase of a key, or a number that counts
/// once. In lower case.
fn is_for_password(question: &str) -> bool {
    let others = ["passphrase", "fingerprint", "yes/no"];
    question.contains("password") && !others.iter().any(|other| question.contains(other))
}

/// If `ssh` has started this program to be told a password, tells it, and returns whether that was one: to be called
/// by `main` before anything else, with the arguments of the program. `None`: it was started by somebody else.
pub fn answer_ssh(arguments: &[OsString]) -> Option<bool> {
    let path = std::env::var_os(VARIABLE)?;
    let question = arguments.get(1)?.to_string_lossy().to_lowercase();
    if !is_for_password(&question) {
        return Some(false);
    }
    let mut password = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut password));
    password.push(b'\n');
    Some(read.is_ok() && io::stdout().write_all(&password).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_password_is_answered() {
        for (question, is) in [
            ("me@h's password: ", true),
            ("(me@h) password for me@h:", true),
            ("enter passphrase for key '/home/me/password': ", false),
            ("verification code: ", false),
            (
                "the authenticity of host 'password.org (::1)' can't be established.\ned25519 key fingerprint is x.\n\
                 are you sure you want to continue connecting (yes/no/[fingerprint])? ",
                false,
            ),
            ("please type 'yes', 'no' or the fingerprint: ", false),
        ] {
            assert_eq!(is_for_password(question), is, "{question}");
        }
    }
}
