//! Archives that were split over several files, opened by any of them.
//!
//! Either the parts are numbered behind a name (`x.7z.001`, `x.tar.gz.aa`) and are simply to be joined, or a format has
//! names of its own, of which the last one ([`Format::volumes`]) or the first one ([`Format::first_volumes`]) is known.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use tarnfs_format::Format;
use tarnfs_source::{FileSource, Fingerprint, Joined, SharedSource, Source as _};

use crate::open::Problem;

/// Behind a part that is not there, so many others are looked for, to tell a gap from the end.
const LOOKED_FOR: usize = 8;

/// The parts of an archive, in their order.
#[derive(Debug)]
pub(crate) struct Parts {
    files: Vec<Arc<FileSource>>,
    /// Where the archive would lie if it were one file.
    pub(crate) path: PathBuf,
    /// Where a next part would lie, if nothing says how many there are.
    pub(crate) next: Option<PathBuf>,
}

impl Parts {
    /// The parts of the archive of which the file at `path` is one; `None` if it is no part.
    pub(crate) fn find(path: &Path) -> Result<Option<Self>, Problem> {
        for format in tarnfs_format::FORMATS {
            if let Some(parts) = named_by(*format, path)? {
                return Ok(Some(parts));
            }
            if let Some(parts) = counted_by(*format, path)? {
                return Ok(Some(parts));
            }
        }
        let Some((stem, suffix)) = path.file_name().and_then(|name| split_suffix(name.as_bytes())) else {
            return Ok(None);
        };
        // What begins as decimal numbers may go on as hexadecimal ones.
        let (mut most, mut missing): (Option<Self>, _) = (None, None);
        for count in COUNTS.iter().filter(|count| count.may_have(suffix)) {
            let found = match numbered(path, stem, suffix, count) {
                Ok(found) => found,
                // Counted in another way nothing may be missing.
                Err(problem @ Problem::MissingPart(_)) => {
                    missing.get_or_insert(problem);
                    continue;
                }
                Err(problem) => return Err(problem),
            };
            if found.as_ref().map(|parts| parts.files.len()) > most.as_ref().map(|parts| parts.files.len()) {
                most = found;
            }
        }
        match (most, missing) {
            (None, Some(problem)) => Err(problem),
            (most, _) => Ok(most),
        }
    }

    /// The format whose volumes they are, if each of these has headers of its own, so that they cannot simply be
    /// joined.
    pub(crate) fn are_volumes(&self) -> io::Result<Option<&'static str>> {
        /// Bytes that such headers have together, at the most.
        const HEAD: usize = 16 << 10;
        let mut head = vec![0; HEAD];
        for part in self.files.iter().skip(1) {
            let read = part.read_at(&mut head, 0)?;
            let head = head.get(..read).unwrap_or_default();
            if let Some(format) = tarnfs_format::FORMATS.iter().find(|format| format.is_later_volume(head)) {
                return Ok(Some(format.name()));
            }
        }
        Ok(None)
    }

    /// All of them as one.
    pub(crate) fn joined(&self) -> io::Result<Joined> {
        let parts: Vec<_> = self.files.iter().map(|file| Arc::clone(file) as SharedSource).collect();
        let name = format!("{} in {} files", self.path.display(), parts.len());
        Joined::new(parts, name)
    }

    pub(crate) fn files(&self) -> &[Arc<FileSource>] {
        &self.files
    }

    /// From now on a rename of one is told from a rewrite.
    pub(crate) fn watch(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| {
            file.watch(Fingerprint::of(&**file)?);
            Ok(())
        })
    }
}

/// Where the archive would lie of which the file at `path` is one part; `None` if it is no part.
pub fn whole_of_parts(path: &Path) -> Result<Option<PathBuf>, Problem> {
    Ok(Parts::find(path)?.map(|parts| parts.path))
}

/// The parts, if `format` calls its volumes so.
fn named_by(format: &dyn Format, path: &Path) -> Result<Option<Parts>, Problem> {
    let Some(last) = path.file_name().and_then(|name| format.last_volume(name.as_bytes())) else { return Ok(None) };
    let last_path = sibling(path, &last);
    let is_last = path.file_name().is_some_and(|name| name.as_bytes() == last);
    let Some(file) = open_if_there(&last_path, path)? else {
        return if is_last { Ok(None) } else { Err(Problem::MissingPart(last_path)) };
    };
    let volumes = format.volumes(&last, &file).map_err(|error| Problem::Read { offset: file.len(), error })?;
    let Some(names) = volumes else { return Ok(None) };
    // It may be of another archive, or of none.
    if !is_last && names.iter().all(|name| path.file_name().is_none_or(|own| own.as_bytes() != name)) {
        return Ok(None);
    }
    let mut files = Vec::with_capacity(names.len().saturating_add(1));
    for name in names {
        let part = sibling(path, &name);
        files.push(Arc::new(open_if_there(&part, path)?.ok_or(Problem::MissingPart(part))?));
    }
    files.push(Arc::new(file));
    Ok(Some(Parts { files, path: last_path, next: None }))
}

/// The parts, if `format` knows what its first volume is called, and each says whether another one follows.
fn counted_by(format: &dyn Format, path: &Path) -> Result<Option<Parts>, Problem> {
    let Some(own) = path.file_name().map(OsStrExt::as_bytes) else { return Ok(None) };
    let firsts = format.first_volumes(own);
    let volume = |file: &FileSource| format.volume(file).map_err(|error| Problem::Read { offset: 0, error });
    let mut found = None;
    for name in &firsts {
        if let Some(file) = open_if_there(&sibling(path, name), path)? {
            found = Some((name.clone(), file));
            break;
        }
    }
    let Some((first, file)) = found else {
        // What has another name than the others is no volume of them.
        let missing = firsts.first().map(|first| sibling(path, first));
        let (Some(missing), Some(file)) = (missing, open_if_there(path, path)?) else { return Ok(None) };
        return volume(&file)?.map_or(Ok(None), |_| Err(Problem::MissingPart(missing)));
    };
    let Some(mut last) = volume(&file)? else { return Ok(None) };
    let (mut name, mut is_among, mut files) = (first.clone(), first == own, vec![Arc::new(file)]);
    let next = loop {
        let next = last.next.clone().or_else(|| format.next_volume(&name));
        let Some(next) = next.filter(|_| last.is_followed != Some(false)) else { break None };
        let Some(file) = open_if_there(&sibling(path, &next), path)? else { break Some(next) };
        // What has its name may be of another archive, or a volume that is there already.
        let Some(volume) = volume(&file)?.filter(|volume| volume.may_follow(&last)) else { break Some(next) };
        is_among |= next == own;
        (last, name) = (volume, next);
        files.push(Arc::new(file));
    };
    let missing = next.as_ref().map(|next| sibling(path, next));
    // What others need not be there for is read without them.
    if let (Some(missing), Some(true)) = (&missing, last.is_followed.filter(|_| last.is_part)) {
        return Err(Problem::MissingPart(missing.clone()));
    }
    // Where nothing says whether another one follows, those behind a gap do.
    let (mut behind, mut is_gap) = (next, false);
    for _ in 0..LOOKED_FOR {
        behind = behind.as_deref().and_then(|name| format.next_volume(name));
        let Some(name) = &behind else { break };
        is_gap |= open_if_there(&sibling(path, name), path)?.is_some();
    }
    match missing {
        Some(missing) if is_gap => return Err(Problem::MissingPart(missing)),
        // A single file that is not split.
        missing if files.len() > 1 && is_among => {
            return Ok(Some(Parts { files, path: sibling(path, &first), next: missing }));
        }
        _ => {}
    }
    Ok(None)
}

/// The parts that are counted as `count` does it, if the one with that `suffix` is among them.
fn numbered(path: &Path, stem: &[u8], suffix: &[u8], count: &Count) -> Result<Option<Parts>, Problem> {
    let part = |suffix: &[u8]| sibling(path, &[stem, b".", suffix].concat());
    let suffix_of_path = suffix;
    for mut next in count.firsts(suffix) {
        // Mostly it is nothing that has to do with the archive.
        let Ok(Some(first)) = open_if_there(&part(&next), path) else { continue };
        let mut files = vec![Arc::new(first)];
        let mut is_among = next == suffix;
        loop {
            let (normal, wider) = (count.next(&next), count.wider(&next));
            let found = [normal.clone(), wider].into_iter().flatten().find_map(|suffix| {
                let opened = open_if_there(&part(&suffix), path).transpose()?;
                Some(opened.map(|file| (suffix, file)))
            });
            let Some((found, file)) = found.transpose()? else {
                match normal {
                    Some(normal) => next = normal,
                    None => next.clear(),
                }
                break;
            };
            is_among |= found == suffix;
            files.push(Arc::new(file));
            next = found;
        }
        // What looks numbered may be copies of different days. Who splits makes parts of one length. Three digits are
        // used for nothing else.
        let is_certain = count.digits == DECIMAL && suffix.len() >= 3;
        let is_even = files.split_last().is_some_and(|(last, rest)| {
            let length = rest.first().map_or(last.len(), |first| first.len());
            rest.iter().all(|file| file.len() == length) && last.len() <= length
        });
        let missing = Some(part(&next)).filter(|_| !next.is_empty());
        // The last part is the only one that may be shorter, so behind parts of one length there may be another one.
        // Copies of two days have numbers; nothing but `split` counts with letters.
        let length = files.first().map_or(0, |first| first.len());
        let may_go_on = files.iter().all(|file| file.len() == length) && (files.len() > 1 || count.is_of_letters());
        if (is_certain || may_go_on)
            && let Some(missing) = &missing
        {
            let mut behind = next.clone();
            for _ in 0..LOOKED_FOR {
                let Some(suffix) = count.next(&behind) else { break };
                let is_among = is_among || suffix_of_path == suffix;
                if let Some(later) = open_if_there(&part(&suffix), path)?
                    && (is_certain || is_among && later.len() <= length)
                {
                    return Err(Problem::MissingPart(missing.clone()));
                }
                behind = suffix;
            }
        }
        if !is_certain && (files.len() == 1 || !is_even) {
            continue;
        }
        if is_among {
            let path = sibling(path, stem);
            return Ok(Some(Parts { files, path, next: missing }));
        }
    }
    Ok(None)
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

/// What is before and behind the last dot of a name.
fn split_suffix(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let (stem, suffix) = (name.get(..dot)?, name.get(dot + 1..)?);
    (!stem.is_empty() && (2..=10).contains(&suffix.len())).then_some((stem, suffix))
}

/// A way to count parts.
#[derive(Debug)]
struct Count {
    /// In their order.
    digits: &'static [u8],
    /// The numbers that the first part may have.
    firsts: &'static [u8],
}

const DECIMAL: &[u8] = b"0123456789";

/// 7-Zip's and those of GNU `split`.
const COUNTS: [Count; 3] = [
    Count { digits: DECIMAL, firsts: b"01" },
    Count { digits: b"0123456789abcdef", firsts: b"0" },
    Count { digits: b"abcdefghijklmnopqrstuvwxyz", firsts: b"a" },
];

impl Count {
    fn may_have(&self, suffix: &[u8]) -> bool {
        suffix.iter().all(|byte| self.digits.contains(byte))
    }

    fn is_of_letters(&self) -> bool {
        self.digits.first() == Some(&b'a')
    }

    /// The suffixes that the first part may have, if that of another one is `suffix`.
    fn firsts(&self, suffix: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        let zero = self.digits.first().copied();
        let first = move |length: usize, last: u8| {
            let mut first = vec![zero.unwrap_or(last); length];
            first.iter_mut().last().into_iter().for_each(|byte| *byte = last);
            first
        };
        let lengths = (2..=suffix.len()).rev();
        lengths.flat_map(move |length| self.firsts.iter().map(move |last| first(length, *last)))
    }

    /// One more. Decimal numbers become longer behind the last one, as in 7-Zip; others end there.
    fn next(&self, suffix: &[u8]) -> Option<Vec<u8>> {
        let mut next = suffix.to_vec();
        for byte in next.iter_mut().rev() {
            let at = self.digits.iter().position(|digit| digit == byte)?;
            if let Some(higher) = self.digits.get(at + 1) {
                *byte = *higher;
                return Some(next);
            }
            *byte = *self.digits.first()?;
        }
        (self.digits == DECIMAL).then(|| [b"1", &next[..]].concat())
    }

    /// What follows in `split`, which widens suffixes in time: `yz` by `zaaa`, `zyzz` by `zzaaaa`.
    fn wider(&self, suffix: &[u8]) -> Option<Vec<u8>> {
        let (&last, &zero) = (self.digits.last()?, self.digits.first()?);
        let before_last = *self.digits.get(self.digits.len().checked_sub(2)?)?;
        let level = suffix.iter().take_while(|byte| **byte == last).count();
        let expected = [vec![last; level], vec![before_last], vec![last; level + 1]].concat();
        (suffix == expected).then(|| [vec![last; level + 1], vec![zero; level + 3]].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_as_by_who_splits() {
        let [decimal, hex, letters] = &COUNTS;
        let next =
            |count: &Count, suffix: &str| count.next(suffix.as_bytes()).map(|next| String::from_utf8(next).unwrap());
        assert_eq!(next(decimal, "009").as_deref(), Some("010"));
        assert_eq!(next(decimal, "999").as_deref(), Some("1000"));
        assert_eq!(next(hex, "0f").as_deref(), Some("10"));
        assert_eq!(next(letters, "az").as_deref(), Some("ba"));
        assert_eq!(next(letters, "zz"), None);
        let wider =
            |count: &Count, suffix: &str| count.wider(suffix.as_bytes()).map(|next| String::from_utf8(next).unwrap());
        assert_eq!(wider(letters, "yz").as_deref(), Some("zaaa"));
        assert_eq!(wider(letters, "zyzz").as_deref(), Some("zzaaaa"));
        assert_eq!(wider(decimal, "89").as_deref(), Some("9000"));
        assert_eq!(wider(decimal, "9899").as_deref(), Some("990000"));
        assert_eq!((wider(decimal, "88"), wider(decimal, "899"), wider(letters, "z")), (None, None, None));
        let firsts: Vec<_> = decimal.firsts(b"0012").collect();
        assert_eq!(firsts, [&b"0000"[..], b"0001", b"000", b"001", b"00", b"01"]);
    }

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
