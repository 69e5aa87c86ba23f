//! A password that is asked for at a terminal, where an archive turns out to need one and none is given.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_tree::open::{OpenArchive, Options, Passwords};
use tarnfs_tree::{Error, Fit};

use crate::args::{Open, shown};
use crate::exit::{Code, Failure};
use crate::prompt;

/// Passwords that are asked for, of one archive.
const MOST: u32 = 3;

/// Asks for passwords.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// What was typed, and fits the archive that it was asked for. The last one may not.
    passwords: Vec<Arc<[u8]>>,
    /// The archive of the last one, and how many were asked for it.
    last: Option<(PathBuf, u32)>,
}

impl Asking {
    /// `None` where there is nobody to be asked, or passwords are given: an empty one says that there is none.
    pub(crate) fn of(open: &Open) -> Option<Self> {
        let is_given = !open.password.is_empty() || open.password_files().next().is_some();
        (!is_given && prompt::has_person()).then(Self::default)
    }

    /// Asks for the password of `archive`. What is typed is tried with `options` from now on, in place of another one
    /// that was asked for the same archive. False if nothing is typed, or it was asked often enough.
    pub(crate) fn ask(&mut self, archive: &Path, options: &mut Options) -> Result<bool, Failure> {
        let asked = self.last.take().filter(|(last, _)| last == archive).map_or(0, |(_, asked)| asked);
        let name = shown(archive.file_name().unwrap_or(archive.as_os_str()));
        if asked == MOST {
            return Ok(false);
        }
        let again = if asked > 0 { "Wrong password. " } else { "" };
        let cancel = options.cancel.clone();
        let typed = prompt::line(&format!("{again}Password for {name}: "), &|| cancel.is_cancelled());
        let typed = typed.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => Failure::new(Code::Interrupted, format!("{name}: interrupted")),
            _ => Failure::new(Code::CannotOpen, format!("{name}: asking for the password: {error}")),
        })?;
        if typed.is_empty() {
            return Ok(false);
        }
        if asked > 0 {
            self.passwords.pop();
        }
        self.passwords.push(typed.into());
        self.last = Some((archive.to_owned(), asked + 1));
        options.decoding.passwords = Passwords::new(self.passwords.clone());
        Ok(true)
    }
}

/// True if a password is missing for the files of an archive that encrypts them itself, or none that was typed opens
/// any.
pub(crate) fn is_locked(opened: &OpenArchive, options: &Options) -> Result<bool, Error> {
    if !opened.encrypts_files() {
        return Ok(false);
    }
    Ok(opened.tree.locked(&options.cancel)?.is_some_and(|locked| match locked.passwords {
        Fit::NotGiven => true,
        Fit::None => locked.tried == locked.encrypted,
        Fit::SomeOrUnknown => false,
    }))
}
