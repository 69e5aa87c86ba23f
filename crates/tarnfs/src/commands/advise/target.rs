//! The command that makes the archive that is advised.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use tarnfs_tree::build::without_suffix;
use tarnfs_write::Target;
use tarnfs_write::compress::Compression;

use super::quote::{Quoted, as_path};
use crate::args::Open;

/// What is put into an archive.
pub(in crate::commands) enum Input<'a> {
    /// A folder.
    Folder(&'a Path),
    /// An archive. It may be a single file that is compressed, or one that is not compressed as it is.
    Archive { path: &'a Path, open: &'a Open, is_single: bool, is_plain: bool },
}

/// Names that are tried before one is told that is taken.
const TRIES: u32 = 1000;

impl Input<'_> {
    /// The command line.
    pub(in crate::commands) fn command(
        &self,
        compression: &'static dyn Compression,
        level: i32,
        threads: usize,
    ) -> String {
        let mut words: Vec<OsString> = vec!["tarnfs".into()];
        let mut options = Vec::new();
        if level != compression.usual_level() {
            options.extend(["--level".into(), level.to_string().into()]);
        }
        if threads > 0 {
            options.extend(["--threads".into(), threads.to_string().into()]);
        }
        match self {
            Self::Folder(path) => {
                let (parent, name) = place(path);
                let out = free(Path::new(""), name.as_bytes(), archive_suffix(compression).as_bytes());
                words.push("create".into());
                words.append(&mut options);
                words.push(as_path(out.as_os_str()));
                if !parent.as_os_str().is_empty() {
                    words.extend(["-C".into(), as_path(parent.as_os_str())]);
                }
                // Of the root of the file system there is only what is in it.
                let is_root = name == OsStr::new(ROOT) && parent == Path::new("/");
                words.push(if is_root { ".".into() } else { as_path(&name) });
            }
            Self::Archive { path, is_plain: true, .. } if compression.is_plain() => {
                // A line that a shell takes no notice of.
                return format!("# {} is best left as it is", Quoted(path.as_os_str()));
            }
            Self::Archive { path, open, is_single, .. } => {
                let name = path.file_name().unwrap_or_default().as_bytes();
                let folder = path.parent().unwrap_or(Path::new(""));
                let without = without_suffix(name).unwrap_or_else(|| name.to_vec());
                let cat = *is_single && compression.is_plain();
                let out = if *is_single {
                    free(folder, &without, compression.suffix().as_bytes())
                } else {
                    let stem = tarnfs_format::by_suffix(&without).map_or(&without[..], |(_, stem)| stem);
                    free(folder, stem, archive_suffix(compression).as_bytes())
                };
                words.push(if cat { "cat".into() } else { "convert".into() });
                words.extend(of_reading(open));
                if !cat {
                    words.append(&mut options);
                }
                words.push(as_path(path.as_os_str()));
                let out = as_path(out.as_os_str());
                if cat {
                    return format!("{} > {}", joined(&words), Quoted(&out));
                }
                words.push(out);
            }
        }
        joined(&words)
    }
}

/// What an archive of the root of the file system is called.
const ROOT: &str = "root";

fn joined(words: &[OsString]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| Quoted(word).to_string()).collect();
    quoted.join(" ")
}

/// What the name of an archive ends in.
fn archive_suffix(compression: &dyn Compression) -> String {
    let container = Target::plain().container().map_or("", |container| container.suffix());
    format!("{container}{}", compression.suffix())
}

/// The folder that a folder lies in, as it was typed if possible, and its name there.
fn place(path: &Path) -> (PathBuf, OsString) {
    // What a symbolic link leads to is meant, and of `.` nobody knows the name.
    let is_itself = path.symlink_metadata().is_ok_and(|found| found.is_dir()) && path.file_name().is_some();
    let path = if is_itself { path.to_owned() } else { path.canonicalize().unwrap_or_else(|_| path.to_owned()) };
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => (parent.to_owned(), name.to_owned()),
        _ => (path, ROOT.into()),
    }
}

/// A name of which there is no file yet.
fn free(folder: &Path, stem: &[u8], suffix: &[u8]) -> PathBuf {
    let named = |number: u32| {
        let number = if number > 1 { format!("-{number}") } else { String::new() };
        folder.join(OsString::from_vec([stem, number.as_bytes(), suffix].concat()))
    };
    (1..TRIES).map(named).find(|path| path.symlink_metadata().is_err()).unwrap_or_else(|| named(TRIES))
}

/// The options without which the archive is read as something else. A password is nothing to be shown: who reads the
/// command is told that it is missing.
fn of_reading(open: &Open) -> Vec<OsString> {
    let mut words = Vec::new();
    if open.recursive {
        words.push("-r".into());
    }
    if let Some(depth) = open.recursion_depth {
        words.push(format!("--recursion-depth={depth}").into());
    }
    for (is_given, option) in [
        (open.ignore_zeros, "-i"),
        (open.gnu_incremental, "--gnu-incremental"),
        (open.detect_gnu_incremental, "--detect-gnu-incremental"),
        (open.strip_recursive_tar_extension, "-s"),
    ] {
        words.extend(is_given.then(|| option.into()));
    }
    // A value may begin with a dash, or be empty.
    if !open.encoding.eq_ignore_ascii_case("utf-8") {
        words.push(format!("--encoding={}", open.encoding).into());
    }
    if open.recursive_extensions != tarnfs_tree::DEFAULT_EXTENSIONS {
        words.extend(open.recursive_extensions.iter().map(|globs| format!("--recursive-extensions={globs}").into()));
    }
    for (option, pair) in
        [("--transform", &open.transform), ("--transform-recursive-mount-point", &open.transform_recursive_mount_point)]
    {
        // Of one that is repeated, the last ones count.
        if let Some([.., expression, replacement]) = pair.as_deref() {
            words.extend([option, expression, replacement].map(OsString::from));
        }
    }
    words.extend(open.use_backend.iter().map(|names| format!("--use-backend={names}").into()));
    // Standard input is another one then.
    let passwords = open.password_files().filter(|file| file.as_os_str() != "-").map(|file| ("--password-file", file));
    let dictionaries = open.zstd_dictionary.iter().map(|file| ("--zstd-dictionary", file));
    for (option, file) in passwords.chain(dictionaries) {
        words.extend([option.into(), as_path(file.as_os_str())]);
    }
    words
}
