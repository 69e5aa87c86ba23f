use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::args::shown;
use crate::exit::{Code, Failure};
use crate::terminal::{Output, output_failure};

/// Bytes of a mount's source. The kernel takes 4095; the rest is for fusermount3, which escapes some of them.
const LONGEST_SOURCE: usize = 3000;

/// Lists the mounts of tarnfs: what is mounted, and where.
pub(crate) fn run() -> Result<Code, Failure> {
    let mounts = tarnfs_fuse::mounts().map_err(|error| Failure::new(Code::Failure, error.to_string()))?;
    let mut out = Output::new();
    let written = mounts.iter().try_for_each(|mount| {
        let (sources, more) = sources(&mount.source);
        for (number, source) in sources.iter().enumerate() {
            if number > 0 {
                out.write_all(b", ")?;
            }
            out.name(source.as_os_str().as_bytes())?;
        }
        if more > 0 {
            write!(out, " and {more} more")?;
        }
        out.write_all(b" on ")?;
        out.name(mount.mount_point.as_os_str().as_bytes())?;
        out.write_all(b"\n")
    });
    written.and_then(|()| out.flush()).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}

/// `sources`, whole paths, as the source in the table of mounts: with colons between them. Of many, those that fit, and
/// how many more there are. It has no spaces unless a path has some.
pub(crate) fn source(sources: &[PathBuf]) -> OsString {
    let mut joined = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let source = replaced(source.as_os_str().as_bytes(), b":/", b"\\:/");
        if number > 0 {
            if joined.len() + source.len() > LONGEST_SOURCE {
                joined.extend_from_slice(format!(":+{}", sources.len() - number).as_bytes());
                break;
            }
            joined.push(b':');
        }
        joined.extend_from_slice(&source);
    }
    if joined.is_empty() { OsString::from("tarnfs") } else { OsString::from_vec(joined) }
}

/// The paths in a [`source`], and how many more there are.
pub(crate) fn sources(source: &OsStr) -> (Vec<PathBuf>, usize) {
    let mut rest = source.as_bytes();
    let mut more = 0;
    if let Some(colon) = rest.iter().rposition(|&byte| byte == b':')
        && let Some(number) = rest[colon + 1..].strip_prefix(b"+")
        && let Some(number) = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok())
    {
        (rest, more) = (&rest[..colon], number);
    }
    let mut paths = Vec::new();
    let mut start = 0;
    // Each begins with a slash. A colon before a slash inside of one has a backslash before it.
    let is_end = |at: usize| rest[at..].starts_with(b":/") && at > 0 && rest[at - 1] != b'\\';
    for end in (0..rest.len()).filter(|&at| is_end(at)).chain([rest.len()]) {
        paths.push(PathBuf::from(OsString::from_vec(replaced(&rest[start..end], b"\\:/", b":/"))));
        start = end + 1;
    }
    (paths, more)
}

/// A [`source`] for messages.
pub(crate) fn shown_source(source: &OsStr) -> String {
    let (paths, more) = sources(source);
    let paths: Vec<_> = paths.iter().map(|path| shown(path.as_os_str())).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    paths.join(", ") + &more
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(from) {
            replaced.extend_from_slice(to);
            rest = behind;
        } else {
            replaced.push(byte);
            rest = behind;
        }
    }
    replaced
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
