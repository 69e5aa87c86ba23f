//! Archives that were split over several files, opened by any of them.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use tarnfs_source::{FileSource, Fingerprint, Joined, SharedSource};

use crate::open::Problem;
use crate::parts::{self, Wrong, split_suffix};

/// The parts of an archive, in their order.
#[derive(Debug)]
pub(crate) struct Parts {
    files: Vec<(Vec<u8>, Arc<FileSource>)>,
    /// Where the archive would lie if it were one file.
    pub(crate) path: PathBuf,
    /// Where a next part would lie, if nothing says how many there are.
    pub(crate) next: Option<PathBuf>,
}

impl Parts {
    /// The parts of the archive of which the file at `path` is one; `None` if it is no part.
    pub(crate) fn find(path: &Path) -> Result<Option<Self>, Problem> {
        let Some(name) = path.file_name() else { return Ok(None) };
        let open = |name: &[u8]| open_if_there(&sibling(path, name), path).map(|file| file.map(Arc::new));
        match parts::find(name.as_bytes(), &open) {
            Ok(found) => Ok(found.map(|found| Self {
                path: sibling(path, &found.whole),
                next: found.next.map(|next| sibling(path, &next)),
                files: found.files,
            })),
            Err(Wrong::Missing(name)) => Err(Problem::MissingPart(sibling(path, &name))),
            Err(Wrong::Problem(problem)) => Err(problem),
        }
    }

    /// The format whose volumes they are, if each of these has headers of its own, so that they cannot simply be
    /// joined.
    pub(crate) fn are_volumes(&self) -> io::Result<Option<&'static str>> {
        parts::are_volumes(&self.files)
    }

    /// All of them as one.
    pub(crate) fn joined(&self) -> io::Result<Joined> {
        let parts: Vec<_> = self.files().map(|file| Arc::clone(file) as SharedSource).collect();
        let name = format!("{} in {} files", self.path.display(), parts.len());
        Joined::new(parts, name)
    }

    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = &Arc<FileSource>> {
        self.files.iter().map(|(_, file)| file)
    }

    /// From now on a rename of one is told from a rewrite.
    pub(crate) fn watch(&self) -> io::Result<()> {
        self.files().try_for_each(|file| {
            file.watch(Fingerprint::of(&**file)?);
            Ok(())
        })
    }
}

/// Where the archive would lie of which the file at `path` is one part; `None` if it is no part.
pub fn whole_of_parts(path: &Path) -> Result<Option<PathBuf>, Problem> {
    Ok(Parts::find(path)?.map(|parts| parts.path))
}

/// Where all files lie of the archive of which the file at `path` is one part; none if it is no part.
pub fn parts_of(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let parts = Parts::find(path)?;
    Ok(parts.into_iter().flat_map(|parts| parts.files).map(|(name, _)| sibling(path, &name)).collect())
}

/// Where the first part would lie that is not there, or is a link that is not followed, of a file that is numbered as a
/// later one.
pub(super) fn first_of(path: &Path) -> Option<PathBuf> {
    let (stem, suffix) = split_suffix(path.file_name()?.as_bytes())?;
    let is_later =
        suffix.len() >= 3 && suffix.iter().all(u8::is_ascii_digit) && suffix.iter().any(|&byte| byte != b'0');
    let first = format!("{:0width$}", 1, width = suffix.len());
    let first = sibling(path, &[stem, b".", first.as_bytes()].concat());
    (is_later && (first.is_symlink() || !first.exists())).then_some(first)
}

/// The file at `path`, if there is one. A symbolic link is none, but for the file that is `named`: nobody has named
/// another one, and who may write to the folder would choose what is read as a part.
fn open_if_there(path: &Path, named: &Path) -> Result<Option<FileSource>, Problem> {
    let no_follow = if path.file_name() == named.file_name() { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::RDONLY | no_follow | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Err(Errno::LOOP) => return Ok(None),
        file => file.map_err(io::Error::from),
    };
    match file.and_then(|file| FileSource::from_file(file.into(), path)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => Ok(None),
        Err(error) => Err(Problem::CannotOpen(io::Error::new(error.kind(), format!("{}: {error}", path.display())))),
    }
}

fn sibling(path: &Path, name: &[u8]) -> PathBuf {
    path.with_file_name(OsString::from_vec(name.to_vec()))
}

#[cfg(test)]
mod tests {
    use tarnfs_source::Source as _;

    use super::*;

    fn found(folder: &Path, name: &str) -> Result<Option<(usize, u64)>, String> {
        match Parts::find(&folder.join(name)) {
            Ok(parts) => Ok(parts.map(|parts| (parts.files().len(), parts.joined().unwrap().len()))),
            Err(problem) => Err(problem.to_string()),
        }
    }

    #[test]
    fn any_part_leads_to_all() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, length: usize| std::fs::write(folder.path().join(name), vec![7; length]).unwrap();
        for (name, length) in [("a.7z.001", 10), ("a.7z.002", 20), ("a.7z.003", 30), ("b.tar.aa", 9), ("b.tar.ab", 5)] {
            write(name, length);
        }
        for name in ["a.7z.001", "a.7z.002", "a.7z.003"] {
            assert_eq!(found(folder.path(), name), Ok(Some((3, 60))));
        }
        assert_eq!(found(folder.path(), "b.tar.ab"), Ok(Some((2, 14))));
        // Copies of two days, and what is simply called so.
        for (name, length) in [("c.tar.00", 5), ("c.tar.01", 6), ("notes.2024", 3), ("d.tar.gz", 3), ("e.002", 1)] {
            write(name, length);
            assert_eq!(found(folder.path(), name), Ok(None), "{name}");
        }
        // With a gap: nothing but `split` counts with letters, and parts of one length are no copies.
        for (names, missing) in [
            (&["g.tar.aa", "g.tar.ac"][..], "g.tar.ab"),
            (&["h.tar.00", "h.tar.01", "h.tar.03"], "h.tar.02"),
            (&["i.tar.aa", "i.tar.ad"], "i.tar.ab"),
        ] {
            for name in names {
                write(name, 8);
            }
            for name in names {
                assert!(found(folder.path(), name).unwrap_err().contains(missing), "{name}");
            }
        }
        for (name, length) in [("k.tar.00", 5), ("k.tar.02", 5), ("l.tar.aa", 3), ("l.tar.ac", 4)] {
            write(name, length);
        }
        for name in ["k.tar.00", "k.tar.02", "l.tar.aa", "l.tar.ac"] {
            assert_eq!(found(folder.path(), name), Ok(None), "{name}");
        }
        write("a.7z.005", 1);
        assert!(found(folder.path(), "a.7z.001").unwrap_err().contains("a.7z.004"));
        std::fs::remove_file(folder.path().join("a.7z.001")).unwrap();
        assert_eq!(found(folder.path(), "a.7z.002"), Ok(None));
        assert_eq!(first_of(&folder.path().join("a.7z.002")), Some(folder.path().join("a.7z.001")));
        assert_eq!(first_of(&folder.path().join("c.tar.01")), None);
    }

    #[test]
    fn long_counts_go_on_where_split_widens_them() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..90 {
            std::fs::write(folder.path().join(format!("x.{number:02}")), "ab").unwrap();
        }
        std::fs::write(folder.path().join("x.9000"), "a").unwrap();
        for name in ["x.00", "x.50", "x.9000"] {
            assert_eq!(found(folder.path(), name), Ok(Some((91, 181))), "{name}");
        }
        for number in 0..20 {
            std::fs::write(folder.path().join(format!("y.{number:02x}")), "ab").unwrap();
        }
        for name in ["y.00", "y.09", "y.0b", "y.13"] {
            assert_eq!(found(folder.path(), name), Ok(Some((20, 40))), "{name}");
        }
    }
}
