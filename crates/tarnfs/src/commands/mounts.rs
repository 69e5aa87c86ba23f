use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use tarnfs_fuse::MountedTree;
use tarnfs_tree::Time;

use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::terminal::{Output, output_failure};
use crate::{json, times};

/// How long all mounts together have to tell their statistics.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a mount's source. The kernel takes 4095; the rest is for fusermount3, which escapes some of them.
const LONGEST_SOURCE: usize = 3000;

/// Lists the mounts of tarnfs: what is mounted, where, and since when. `as_json`: one object on each line, as
/// `doc/json.md` says.
pub(crate) fn run(as_json: bool) -> Result<Code, Failure> {
    let mut mounts = tarnfs_fuse::mounts().map_err(|error| Failure::new(Code::Failure, error.to_string()))?;
    tarnfs_fuse::find_since(&mut mounts);
    let told = tarnfs_fuse::told(&mounts, PATIENCE);
    let mut out = Output::new();
    let written = mounts.iter().zip(told).try_for_each(|(mount, told)| {
        let (source, statistics) = told.map(|told| (told.source, told.statistics)).unzip();
        let statistics = statistics.and_then(|said| serde_json::from_str::<Value>(&said).ok());
        let source = source.flatten();
        let is_called = source.as_ref().is_some_and(|source| is_called(mount) && *source != mount.source);
        let name = is_called.then_some(mount.source.as_os_str());
        let (sources, more) = sources(source.as_ref().unwrap_or(&mount.source));
        let since = statistics.as_ref().and_then(|all| all["since"].as_u64());
        let since = since.or_else(|| mount.since?.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()));
        if as_json {
            return out.json(&json::of_mount((name, &sources, more), &mount.mount_point, since, statistics));
        }
        if let Some(name) = name {
            out.name_in_line(name.as_bytes())?;
            out.write_all(b" (")?;
        }
        for (number, source) in sources.iter().enumerate() {
            if number > 0 {
                out.write_all(b", ")?;
            }
            out.name_in_line(source.as_os_str().as_bytes())?;
        }
        if more > 0 {
            write!(out, " and {more} more")?;
        }
        if name.is_some() {
            out.write_all(b")")?;
        }
        out.write_all(b" on ")?;
        out.name_in_line(mount.mount_point.as_os_str().as_bytes())?;
        if let Some(seconds) = since.and_then(|since| i64::try_from(since).ok()) {
            write!(out, " since {}", times::minutes(Time { seconds, nanoseconds: 0 }))?;
        }
        out.write_all(b"\n")
    });
    written.and_then(|()| out.flush()).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}

/// True if the table of mounts may have a name (`-o fsname=`) in the place of what is mounted.
pub(super) fn is_called(mount: &MountedTree) -> bool {
    !mount.source.as_bytes().starts_with(b"/")
}

/// `sources`, whole paths, as the source in the table of mounts: with colons between them. Of many, those that fit, and
/// how many more there are. It has no spaces unless a path has some.
pub(crate) fn source(sources: &[PathBuf]) -> OsString {
    let mut joined = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let source = escaped(source.as_os_str().as_bytes());
        if number > 0 {
            if joined.len() + source.len() > LONGEST_SOURCE {
                joined.extend_from_slice(format!(":+{}", sources.len() - number).as_bytes());
                break;
            }
            joined.push(b':');
        }
        joined.extend_from_slice(&source);
        if number + 1 == sources.len() && count_of_more(&joined).is_some() {
            // The path itself ends as if there were more.
            joined.extend_from_slice(b":+0");
        }
    }
    if joined.is_empty() { OsString::from("tarnfs") } else { OsString::from_vec(joined) }
}

/// The paths in a [`source`], and how many more there are.
pub(crate) fn sources(source: &OsStr) -> (Vec<PathBuf>, usize) {
    let mut rest = source.as_bytes();
    let mut more = 0;
    if let Some((before, number)) = count_of_more(rest) {
        (rest, more) = (before, number);
    }
    let mut paths = Vec::new();
    let mut path = Vec::new();
    let mut at = 0;
    while at < rest.len() {
        // Each begins with a slash.
        let backslashes = rest[at..].iter().take_while(|&&byte| byte == b'\\').count();
        let behind = &rest[at + backslashes..];
        if !behind.is_empty() && !behind.starts_with(b":/") {
            path.extend_from_slice(&rest[at..at + backslashes.max(1)]);
            at += backslashes.max(1);
            continue;
        }
        path.extend_from_slice(&rest[at..at + backslashes / 2]);
        at += backslashes;
        if backslashes % 2 == 1 {
            path.extend_from_slice(behind.get(..1).unwrap_or(b"\\"));
            at += 1;
        } else if !behind.is_empty() {
            paths.push(PathBuf::from(OsString::from_vec(std::mem::take(&mut path))));
            at += 1;
        }
    }
    paths.push(PathBuf::from(OsString::from_vec(path)));
    (paths, more)
}

/// What is before the number of further sources at the end, and that number, if there is one.
fn count_of_more(joined: &[u8]) -> Option<(&[u8], usize)> {
    let colon = joined.iter().rposition(|&byte| byte == b':')?;
    let number = joined[colon + 1..].strip_prefix(b"+")?;
    Some((&joined[..colon], std::str::from_utf8(number).ok()?.parse().ok()?))
}

/// A path in a [`source`]: a colon before a slash has a backslash before it, and backslashes before it or at the end
/// are doubled.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(path.len());
    let mut backslashes = 0;
    for (at, &byte) in path.iter().enumerate() {
        if path[at..].starts_with(b":/") {
            escaped.resize(escaped.len() + backslashes + 1, b'\\');
        }
        backslashes = if byte == b'\\' { backslashes + 1 } else { 0 };
        escaped.push(byte);
    }
    escaped.resize(escaped.len() + backslashes, b'\\');
    escaped
}

/// A [`source`] for messages.
pub(crate) fn shown_source(source: &OsStr) -> String {
    let (paths, more) = sources(source);
    let paths: Vec<_> = paths.iter().map(|path| shown(path.as_os_str())).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    paths.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_archives_of_a_mount_are_told() {
        for paths in [
            &["/a.tar"][..],
            &["/a.tar", "/b c.tar"],
            &["/at:12:00.tar", "/x:+3y", "/b.tar"],
            &["/odd:/a.tar", "/b:", "/c.tar"],
            &["/a\\", "/b\\\\"],
            &["/a\\:/b\\\\:/c\\d\\", "/e\\:+1", "/f:"],
            &["/x:+3"],
            &["/a", "/x:+3\\"],
            &["/a", "/x:+3:+0"],
            &["/x:+3", "/a"],
        ] {
            let paths: Vec<_> = paths.iter().map(PathBuf::from).collect();
            assert_eq!(sources(&source(&paths)), (paths, 0));
        }
        assert_eq!(source(&[]), "tarnfs");
        assert_eq!(source(&["/a.tar".into(), "/b.tar".into()]), "/a.tar:/b.tar");
        let many: Vec<_> = (100..900).map(|number| PathBuf::from(format!("/archives/{number}.tar"))).collect();
        let joined = source(&many);
        let (some, more) = sources(&joined);
        assert!(joined.len() <= LONGEST_SOURCE + 10 && some.len() + more == many.len() && some == many[..some.len()]);
    }
}
