use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarnfs_source::Cancel;

use super::{Job, Kept};
use crate::report::escaped;

/// A program that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// What it is called in the report.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// The line in which it says its version; "unknown" if it does not.
    pub version: String,
}

/// Programs that say their version in another way than `--version`.
const SAY_IT_WITH: &[(&str, &str)] = &[
    ("squashfuse", "--help"),
    ("squashfuse_ll", "--help"),
    ("mksquashfs", "-version"),
    ("pixz", "-h"),
    ("zip", "-v"),
    ("7z", "i"),
];

impl Program {
    /// Looks for it in `folders`, then in those of `PATH`.
    pub fn find(name: &str, folders: &[PathBuf]) -> Option<Self> {
        let path = Self::path_of(name, folders)?;
        let version = version(name, &path).unwrap_or_else(|| "unknown".to_owned());
        Some(Self { name: name.to_owned(), path, version })
    }

    /// Where it is, without its version.
    pub(crate) fn path_of(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Programs are started in other folders.
        let given = folders.iter().filter_map(|folder| std::path::absolute(folder).ok());
        let all = given.chain(std::env::split_paths(&path).filter(|folder| folder.is_absolute()));
        all.map(|folder| folder.join(name)).find(|path| is_program(path))
    }

    /// The program at this path. Fails if it does not say its version with its name.
    pub fn at(name: &str, path: &Path) -> Result<Self, String> {
        let path = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
        match version(name, &path) {
            Some(version) if version.contains(name) => Ok(Self { name: name.to_owned(), path, version }),
            _ => Err(format!("{}: does not say its version, as {name} does with --version", path.display())),
        }
    }

    /// A call of it with these arguments.
    pub fn job<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>, limit: Duration) -> Job {
        Job::new(&self.path, arguments, limit)
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// How lines begin in which programs that mount say the versions of what they stand on.
const OF_OTHERS: [&str; 4] = ["fusermount", "FUSE library version", "using FUSE kernel", "libfuse"];

/// The first line with a digit of what it says of its version.
fn version(name: &str, path: &Path) -> Option<String> {
    const LIMIT: Duration = Duration::from_secs(20);
    const LONGEST: usize = 100;
    let option = SAY_IT_WITH.iter().find(|(program, _)| *program == name).map_or("--version", |(_, option)| option);
    let mut job = Job::new(path, [option], LIMIT);
    job.keep(Kept::All);
    // Some say it in an error message.
    let said = job.said(&Cancel::default())?;
    let text = String::from_utf8_lossy(&said).into_owned();
    let line = text.lines().map(str::trim).find(|line| {
        line.bytes().any(|byte| byte.is_ascii_digit()) && !OF_OTHERS.iter().any(|other| line.starts_with(other))
    })?;
    Some(escaped(&line.chars().take(LONGEST).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_with_their_versions() {
        let sh = Program::find("tar", &[]).unwrap();
        assert!(sh.path.is_absolute() && sh.version.contains("tar"), "{sh:?}");
        assert_eq!(Program::find("no-such-program", &[PathBuf::from("/")]), None);
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("mine");
        std::fs::write(&own, "#!/bin/sh\necho >&2 mine\necho >&2 '  mine 1.2\x1b[2J'\nexit 3\n").unwrap();
        // What nobody may run is no program.
        assert_eq!(Program::find("mine", &[folder.path().to_owned()]), None);
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Program::find("mine", &[folder.path().to_owned()]).unwrap().version, "mine 1.2\\u{1b}[2J");
        assert!(Program::at("mine", &folder.path().join("other")).is_err());
    }
}
