//! Where indexes are looked for and put.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

/// What follows the archive's name in the name of its index.
pub const SUFFIX: &str = ".tarnfs.sqlite";

/// Longest name of a file that Linux allows, in bytes (NAME_MAX).
const LONGEST_NAME: usize = 255;

/// Where the index of `archive` may lie, in the order in which it is looked for and in which writing it is tried.
///
/// `index_file` (`--index-file`) is the only place where it is given. Otherwise there is one place for each of
/// `folders`: the empty one means beside the archive. In another folder the file is named after the archive's
/// absolute path, so that archives of the same name do not share one.
pub fn candidates(archive: &Path, index_file: Option<&Path>, folders: &[PathBuf]) -> Vec<PathBuf> {
    if let Some(file) = index_file {
        return vec![file.to_path_buf()];
    }
    if is_url(archive) {
        // Nothing of this machine lies beside it.
        let folders: Vec<_> = folders.iter().filter(|folder| !folder.as_os_str().is_empty()).cloned().collect();
        return candidates_of(archive, &folders);
    }
    candidates_of(&absolute(archive), folders)
}

/// True of "https://host/x.tar": a scheme as RFC 3986 has it, and two slashes.
pub fn is_url(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let Some(end) = path.windows(3).position(|bytes| bytes == b"://") else { return false };
    path.first().is_some_and(u8::is_ascii_alphabetic)
        && path.get(..end).is_some_and(|scheme| scheme.iter().all(is_of_scheme))
}

/// The same for an archive whose path is `absolute` and has no symbolic links: no file system is asked.
pub fn candidates_of(absolute: &Path, folders: &[PathBuf]) -> Vec<PathBuf> {
    folders
        .iter()
        .filter_map(|folder| {
            if folder.as_os_str().is_empty() {
                return absolute.file_name().map(|name| absolute.with_file_name(suffixed(name.as_bytes())));
            }
            Some(folder.join(flat_name(absolute)))
        })
        .collect()
}

/// Beside the archive, then [`cache_folder`].
pub fn default_folders() -> Vec<PathBuf> {
    std::iter::once(PathBuf::new()).chain(cache_folder()).collect()
}

/// `$XDG_CACHE_HOME/tarnfs` (`~/.cache/tarnfs`), the folder of this user for what can be made again.
pub fn cache_folder() -> Option<PathBuf> {
    let cache =
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute()).or_else(|| {
            std::env::var_os("HOME")
                .map(PathBuf::from)
                .filter(|home| home.is_absolute())
                .map(|home| home.join(".cache"))
        });
    cache.map(|folder| folder.join("tarnfs"))
}

/// What has to be there before an index can be put into `folder`, and is not: such a path is more likely mistyped than
/// meant. The folder itself is made, and so is [`cache_folder`] with all that it lies in.
pub fn missing_above(folder: &Path) -> Option<PathBuf> {
    let cache = cache_folder();
    let caches = cache.as_deref().and_then(Path::parent);
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty())?;
    if caches.is_some_and(|caches| caches == parent) {
        return None;
    }
    let is_missing = |path: &&Path| {
        !path.as_os_str().is_empty() && path.metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    parent.ancestors().take_while(is_missing).last().map(Path::to_owned)
}

/// Why an index cannot be put into `folder`, where something [is missing](missing_above).
pub fn why_no_folder(folder: &Path) -> Option<String> {
    let missing = missing_above(folder)?;
    Some(format!("cannot make index folder {}: {} does not exist", folder.display(), missing.display()))
}

/// The value of `--index-folders`: paths with commas between them, or a JSON list of paths where one has a comma in it.
/// An empty path means beside the archive; `~` at the start is the home folder.
pub fn parse_folders(value: &str) -> Result<Vec<PathBuf>, String> {
    let paths: Vec<String> = if value.trim_start().starts_with('[') {
        serde_json::from_str(value).map_err(|error| format!("not a JSON list of folders: {error}"))?
    } else {
        value.split(',').map(str::to_owned).collect()
    };
    Ok(paths.iter().map(|path| expand_home(path.into())).collect())
}

/// `path` with the home folder in place of a leading `~`.
pub fn expand_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => home.into(),
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path,
    }
}

/// The absolute path with the folder's symbolic links resolved, so that one archive has one name however it is reached.
fn absolute(archive: &Path) -> PathBuf {
    let resolved = archive.canonicalize().or_else(|_| std::path::absolute(archive));
    resolved.unwrap_or_else(|_| archive.to_path_buf())
}

/// Where an index with this tag lies beside the one at `main`: `a.tar.TAG.tarnfs.sqlite`.
pub(crate) fn with_tag(main: &Path, tag: &str) -> PathBuf {
    let name = main.file_name().unwrap_or_default().as_bytes();
    let name = name.strip_suffix(SUFFIX.as_bytes()).unwrap_or(name);
    main.with_file_name(suffixed(&[name, b".", tag.as_bytes()].concat()))
}

/// Where the main index lies, if `path` is that of an index with some tag.
pub fn without_tag(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes().strip_suffix(SUFFIX.as_bytes())?;
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let (name, tag) = name.split_at_checked(dot)?;
    tag.starts_with(b".options-").then(|| path.with_file_name(suffixed(name)))
}

fn suffixed(name: &[u8]) -> OsString {
    let mut name = name.to_vec();
    name.extend_from_slice(SUFFIX.as_bytes());
    OsString::from_vec(name)
}

/// `/data/my_file.tar` becomes `data_my%5Ffile.tar`: `_` for `/`, and what could be mistaken for it escaped, so no two
/// paths share a name. What is too long for one name keeps its end, behind a hash of the whole.
fn flat_name(absolute: &Path) -> OsString {
    let path = absolute.as_os_str().as_bytes();
    let mut name = Vec::with_capacity(path.len());
    for &byte in path.strip_prefix(b"/").unwrap_or(path) {
        match byte {
            b'/' => name.push(b'_'),
            b'_' => name.extend_from_slice(b"%5F"),
            b'%' => name.extend_from_slice(b"%25"),
            // A folder full of hidden files is one that nobody ever cleans up.
            b'.' if name.is_empty() => name.extend_from_slice(b"%2E"),
            other => name.push(other),
        }
    }
    let most = LONGEST_NAME.saturating_sub(SUFFIX.len()).saturating_sub(TEMPORARY_ROOM);
    if name.len() > most {
        let hash = format!("{:032x}-", xxh3_128(path));
        let kept = name.len().saturating_sub(most.saturating_sub(hash.len()));
        name.drain(..kept);
        name.splice(..0, hash.into_bytes());
    }
    suffixed(&name)
}

/// Room in a name for what [`crate::Writer`] puts around it while it writes, and for [`with_tag`].
const TEMPORARY_ROOM: usize = 64;

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]
mod tests {
    use super::*;

    fn flat(path: &str) -> String {
        flat_name(Path::new(path)).into_string().unwrap()
    }

    #[test]
    fn one_place_for_each_folder_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().canonicalize().unwrap().join("a b.tar.gz");
        std::fs::write(&archive, b"").unwrap();
        let folders = [PathBuf::new(), PathBuf::from("/cache")];
        let beside = archive.with_file_name("a b.tar.gz.tarnfs.sqlite");
        let cached = PathBuf::from("/cache").join(flat(archive.to_str().unwrap()));
        assert_eq!(candidates(&archive, None, &folders), [beside.clone(), cached]);
        assert_eq!(candidates(&archive, Some(Path::new("x")), &folders), [PathBuf::from("x")]);
        // However it is reached.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&archive, &link).unwrap();
        assert_eq!(candidates(&link, None, &folders[..1]), [beside]);
    }

    #[test]
    fn a_tag_is_told_from_the_name_of_an_archive() {
        let main = Path::new("/d/a.tar.tarnfs.sqlite");
        assert_eq!(without_tag(&with_tag(main, "options-0123456789abcdef")).as_deref(), Some(main));
        for name in ["a.tar.tarnfs.sqlite", "options-1.tarnfs.sqlite", "a.options-1", "a.options-1.sqlite", ""] {
            assert_eq!(without_tag(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn no_two_archives_share_a_name() {
        let paths = ["/a/b", "/a_b", "/a__b", "/a/_b", "/a_/b", "/.a", "/_.a", "/a", "/a%5Fb", "/a/b_c"];
        let names: std::collections::BTreeSet<String> = paths.iter().map(|path| flat(path)).collect();
        assert_eq!(names.len(), paths.len());
        let long = |end: &str| flat(&format!("/{}/{end}", "folder/".repeat(100)));
        assert_ne!(long("a.tar"), long("b.tar"));
        assert!(
            long("a.tar").len() + TEMPORARY_ROOM <= LONGEST_NAME && long("a.tar").ends_with("_a.tar.tarnfs.sqlite")
        );
    }

    #[test]
    fn a_path_that_just_fits_is_a_name_as_it_is() {
        let most = LONGEST_NAME - SUFFIX.len() - TEMPORARY_ROOM;
        let (fits, longer) = ("x".repeat(most), "x".repeat(most + 1));
        assert_eq!(flat(&format!("/{fits}")), format!("{fits}{SUFFIX}"));
        let cut = flat(&format!("/{longer}"));
        assert!(cut.len() == most + SUFFIX.len() && cut != format!("{fits}{SUFFIX}"), "{cut}");
    }

    #[test]
    fn folders_come_with_commas_or_as_json() {
        let paths = |value: &str| parse_folders(value).unwrap();
        assert_eq!(paths(""), [PathBuf::new()]);
        assert_eq!(paths("/a,,b"), [PathBuf::from("/a"), PathBuf::new(), PathBuf::from("b")]);
        assert_eq!(paths("[\"/a,b\", \"\"]"), [PathBuf::from("/a,b"), PathBuf::new()]);
        assert!(parse_folders("[1]").is_err());
        assert_eq!(default_folders()[0], PathBuf::new());
    }

    /// A folder is made, and those above it are not.
    #[test]
    fn what_is_missing_above_a_folder_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let below = |path: &str| folder.path().join(path);
        let missing = |path: &str| missing_above(&below(path));
        assert_eq!(
            (missing("new"), missing("a/new"), missing("a/b/c/new")),
            (None, Some(below("a")), Some(below("a")))
        );
        std::fs::create_dir(below("a")).unwrap();
        assert_eq!((missing("a/new"), missing("a/b/c/new")), (None, Some(below("a/b"))));
        assert!(why_no_folder(&below("a/b/new")).is_some_and(|why| why.contains("a/b does not exist")));
        assert_eq!((why_no_folder(&below("a/new")), missing_above(Path::new("new"))), (None, None));
        // That of this user is made with all that it lies in.
        assert_eq!(cache_folder().and_then(|cache| missing_above(&cache)), None);
        if let Some(home) = std::env::var_os("HOME").map(PathBuf::from) {
            for (path, expected) in
                [("~", home.clone()), ("~/x/y", home.join("x/y")), ("~x", "~x".into()), ("/~", "/~".into())]
            {
                assert_eq!(expand_home(path.into()), expected, "{path}");
            }
            assert_eq!(parse_folders("~/x,").unwrap(), [home.join("x"), PathBuf::new()]);
        }
    }
}
