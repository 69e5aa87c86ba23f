//! Two trees, or a mount and what a tool has extracted, as text.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use crate::support::{Ran, Scratch, run};

/// The names of all files of a folder, and their sums.
pub(crate) fn sums(scratch: &Scratch, folder: &Path) -> String {
    let folder = folder.display();
    scratch.shell(&format!(
        "cd '{folder}'; find . -type f -printf '%s %p\n' | sort; find . -type f -print0 | sort -z | xargs -0 -r md5sum"
    ))
}

/// Kind, permission bits and time of all but folders, and where links lead, whose times not every tool restores.
pub(crate) fn attributes(scratch: &Scratch, folder: &Path) -> String {
    let folder = folder.display();
    scratch.shell(&format!("cd '{folder}'; find . -mindepth 1 '(' -type l -printf '%p %l\n' -o ! -type d -printf '%y %m %n %Ts %p\n' ')' | sort"))
}

/// A small archive of the tests.
pub(crate) fn small(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/small").join(name)
}

/// What a command of tarnfs says of an archive in the scratch folder.
pub(crate) fn told(scratch: &Scratch, command: &str, name: &str, more: &[&str]) -> Ran {
    let path = scratch.path(name);
    run(scratch, [command, path.to_str().unwrap()].into_iter().chain(more.iter().copied()))
}
