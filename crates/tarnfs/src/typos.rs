//! What a person has mistyped: a command's name, or that of an archive.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tarnfs_tree::build::without_suffix;

/// Entries of a folder that are looked at for a name that was meant.
const MOST_NAMES: usize = 10_000;

/// True if one letter more or less, another one, or two neighbours swapped make `right` of `typed`.
pub(crate) fn is_near(typed: &[u8], right: &[u8]) -> bool {
    if typed == right {
        return false;
    }
    let (short, long) = if typed.len() < right.len() { (typed, right) } else { (right, typed) };
    let same = short.iter().zip(long).take_while(|(one, other)| one == other).count();
    let (short, long) = (&short[same..], &long[same..]);
    match (short, long) {
        (_, [_, rest @ ..]) if rest == short => true,
        ([_, one @ ..], [_, other @ ..]) if one == other => true,
        ([a, b, one @ ..], [c, d, other @ ..]) => one == other && (a, b) == (d, c),
        _ => false,
    }
}

/// What `word` means to other programs, as the command of tarnfs that does it: the letters of tar's options, with or
/// without a dash before them, and names of programs.
pub(crate) fn command_of_habit(word: &[u8]) -> Option<&'static str> {
    /// Letters that tar's users put behind the first one.
    const OTHERS: &[u8] = b"afhjkmpvwzJZ";
    match word {
        b"unzip" | b"untar" | b"unpack" => return Some("extract"),
        b"test" | b"verify" | b"fsck" => return Some("check"),
        b"show" => return Some("cat"),
        b"tree" | b"dir" => return Some("ls"),
        b"version" => return Some("--version"),
        _ => {}
    }
    let (first, others) = word.strip_prefix(b"-").unwrap_or(word).split_first()?;
    let command = match first {
        b'x' => "extract",
        b't' => "ls",
        b'c' => "create",
        _ => return None,
    };
    others.iter().all(|letter| OTHERS.contains(letter)).then_some(command)
}

/// The command that `word` may be a mistyped name of, or that it means to other programs.
pub(crate) fn command(word: &Path) -> Option<String> {
    if let Some(command) = command_of_habit(word.as_os_str().as_bytes()) {
        return Some(command.to_owned());
    }
    let commands = crate::args::command();
    let is_it = |name: &str| is_near(word.as_os_str().as_bytes(), name.as_bytes());
    let mut shown = commands.get_subcommands().filter(|command| !command.is_hide_set());
    shown
        .find(|command| is_it(command.get_name()) || command.get_all_aliases().any(is_it))
        .map(|command| command.get_name().to_owned())
}

/// True if the name says that this is an archive.
pub(crate) fn is_archive(name: &[u8]) -> bool {
    // The names of sites end in what brotli has, and those are folders.
    let name = name.to_ascii_lowercase();
    // Countries have two letters, and one letter says little.
    let says_enough = |end: &[u8]| end.len() > 3 || end.iter().any(u8::is_ascii_digit);
    let is_format = tarnfs_format::by_suffix(&name).is_some_and(|(_, stem)| says_enough(&name[stem.len()..]));
    !name.ends_with(b".br") && (without_suffix(&name).is_some() || is_format)
}

/// True if the name says so once a letter too many is left out, or two are swapped.
fn is_nearly_archive(name: &[u8]) -> bool {
    /// Of shorter ends, others are words of their own.
    const LEAST: usize = 3;
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else { return false };
    let (stem, end) = name.split_at(dot + 1);
    let is_it = |end: Vec<u8>| is_archive(&[stem, &end].concat());
    let without = |at: usize| [&end[..at], &end[at + 1..]].concat();
    let swapped = |at: usize| {
        let mut end = end.to_vec();
        end.swap(at, at + 1);
        end
    };
    let is_doubled = |at: usize| at > 0 && end[at - 1] == end[at];
    (0..end.len()).any(|at| (end.len() > LEAST || is_doubled(at)) && is_it(without(at)))
        || (0..end.len().saturating_sub(1)).any(|at| end[at] != end[at + 1] && is_it(swapped(at)))
}

/// An archive beside `path` whose name is nearly the same, but none of `others`.
fn neighbour(path: &Path, others: &[PathBuf]) -> Option<PathBuf> {
    let typed = path.file_name()?.as_bytes();
    if !typed.contains(&b'.') {
        return None;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names = std::fs::read_dir(folder).ok()?.take(MOST_NAMES).flatten().map(|entry| entry.file_name());
    let mut near: Vec<_> = names
        .filter(|name| is_near(typed, name.as_bytes()) && is_archive(name.as_bytes()))
        .map(|name| path.with_file_name(name))
        .filter(|path| path.is_file() && !others.contains(path))
        .collect();
    near.sort();
    near.into_iter().next()
}

/// What is wrong with `mountpoint`, which follows `sources`, if it does not exist and looks like the name of an
/// archive.
pub(crate) fn mistaken_mountpoint(mountpoint: &Path, sources: &[PathBuf]) -> Option<String> {
    let name = mountpoint.file_name()?.as_bytes();
    if mountpoint.as_os_str().as_bytes().ends_with(b"/") || mountpoint.symlink_metadata().is_ok() {
        return None;
    }
    let meant = neighbour(mountpoint, sources);
    if meant.is_none() && !is_archive(name) && !is_nearly_archive(name) {
        return None;
    }
    let path = crate::args::shown(mountpoint.as_os_str());
    let meant = meant.map(|meant| format!("; did you mean {}?", crate::args::shown(meant.as_os_str())));
    let meant = meant.unwrap_or_else(|| ".".to_owned());
    Some(format!("{path} does not exist{meant} To mount there, write {path}/, or make that folder first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_of_the_finger_is_near() {
        for (typed, right) in
            [("mont", "mount"), ("mounnt", "mount"), ("moumt", "mount"), ("muont", "mount"), ("l", "ls")]
        {
            assert!(
                is_near(typed.as_bytes(), right.as_bytes()) && is_near(right.as_bytes(), typed.as_bytes()),
                "{typed}"
            );
        }
        for (typed, right) in [("mount", "mount"), ("mnt", "mount"), ("tuonm", "mount"), ("", "ls"), ("mnout", "mount")]
        {
            assert!(!is_near(typed.as_bytes(), right.as_bytes()), "{typed}");
        }
        assert_eq!(command(Path::new("chek")).as_deref(), Some("check"));
        assert_eq!(command(Path::new("lisst")).as_deref(), Some("ls"));
        assert_eq!(command(Path::new("__complet")), None);
    }

    #[test]
    fn what_other_programs_call_it_is_known() {
        for (word, command) in
            [("xf", "extract"), ("-tvf", "ls"), ("czf", "create"), ("x", "extract"), ("verify", "check")]
        {
            assert_eq!(command_of_habit(word.as_bytes()), Some(command), "{word}");
        }
        for word in ["", "-", "--xf", "text", "xfs", "cat", "gx", "a.tar"] {
            assert_eq!(command_of_habit(word.as_bytes()), None, "{word}");
        }
    }

    #[test]
    fn names_of_folders_are_no_archives() {
        for name in [
            "a.tar",
            "a.tarr",
            "a.tra",
            "a.TGZZ",
            "a.gz",
            "a.zg",
            "a.gzz",
            "a.zip",
            "a.tar.gzz",
            "a.tar.zstd",
            "a.tarf",
        ] {
            assert!(is_archive(name.as_bytes()) || is_nearly_archive(name.as_bytes()), "{name}");
        }
        for name in [
            "a",
            "mnt",
            "a.mounted",
            "a.d",
            "a.mnt",
            "a.txt",
            "2024.01.02",
            "v1.10",
            "site.com",
            "site.br",
            "site.xyz",
            "site.com.tr",
            "site.com.ar",
            "a.1",
            ".tar",
            "a.",
            "a.tar.mounted",
            "tar",
            "tgz",
            "a.dir",
            "a.tmp",
        ] {
            assert!(!is_archive(name.as_bytes()) && !is_nearly_archive(name.as_bytes()), "{name}");
        }
    }
}
