//! Paths in an archive that were typed as globs: the shell cannot expand them, since it does not see the archive.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::rc::Rc;

use globset::{GlobBuilder, GlobMatcher};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use tarnfs_tree::{Error, Kind, Node, Tree, path};

/// Bytes of all paths that globs may stand for in one call: they are sorted, and so in memory.
pub(crate) const ROOM: usize = 96 << 20;

/// What a path takes beside its bytes.
const EACH: usize = 64;

/// Folders of one folder that wait to be searched at a time. Those that it lies in have as many.
const MOST_WAITING: usize = 256;

/// The paths that `typed` stands for, in the order of a listing. That is `typed` itself if it names something or is no
/// glob. `*` and `?` stand for no slash and no leading dot, as in a shell; `**` for any folders. What they take is
/// taken from `room`; where that is not enough, it is an error, and no room is taken.
pub(crate) fn expand(tree: &dyn Tree, typed: &[u8], room: &mut usize) -> Result<Vec<Vec<u8>>, Error> {
    if !is_glob(typed) || path::find(tree, typed, false).is_ok() {
        return Ok(vec![typed.to_vec()]);
    }
    let Some(pattern) = Pattern::new(typed) else { return Ok(vec![typed.to_vec()]) };
    let (mut found, mut left) = (Vec::new(), Some(*room));
    walk(tree, &pattern, &mut |above, name| {
        left = left.and_then(|left| left.checked_sub(above.len() + name.len() + EACH));
        if left.is_some() {
            found.push([above, name].concat());
        }
        left.is_some()
    })?;
    let Some(left) = left else {
        let what = "stands for too many paths; name a folder, or use `tarnfs find`";
        return Err(io::Error::new(io::ErrorKind::ArgumentListTooLong, what).into());
    };
    *room = left;
    found.sort_unstable();
    if found.is_empty() { Err(Error::NotFound) } else { Ok(found) }
}

/// True if `pattern` stands for something.
pub(crate) fn has_any(tree: &dyn Tree, pattern: &Pattern) -> Result<bool, Error> {
    let mut is_found = false;
    walk(tree, pattern, &mut |_, _| {
        is_found = true;
        false
    })?;
    Ok(is_found)
}

/// Gives what `pattern` stands for to `receive`, until that says that it is enough: what is before the name, with the
/// slash, and the name.
fn walk(tree: &dyn Tree, pattern: &Pattern, receive: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
    let mut goes_on = true;
    // `**` can reach a folder in several ways; it is searched once for all of them. What is before its name is shared
    // by all that wait in the same folder: paths may be long.
    let (folder, at) = (Node::ROOT, BTreeSet::from([0]));
    let mut waiting = vec![Waiting { folder, from: 0, depth: 1, above: Rc::default(), name: Vec::new(), at }];
    while let Some(Waiting { folder, from, depth, above, name, at }) = waiting.pop() {
        let prefix: Rc<[u8]> = [&above[..], &name].concat().into();
        // A folder may hold millions. Each level on the way down has some that wait.
        let most = (4096 / depth).clamp(16, MOST_WAITING);
        let (mut inner, mut rest) = (Vec::new(), None);
        tree.read_dir(folder, from, &mut |child| {
            let mut next = pattern.after(&at, child.name);
            if next.remove(&pattern.components.len()) {
                goes_on = receive(&prefix, child.name);
            }
            if child.attributes.kind == Kind::Folder && !next.is_empty() {
                let (folder, name) = (child.attributes.node, [child.name, b"/"].concat());
                let (depth, above) = (depth + 1, Rc::clone(&prefix));
                inner.push(Waiting { folder, from: 0, depth, above, name, at: next });
                rest = (inner.len() == most).then_some(child.next);
            }
            goes_on && rest.is_none()
        })?;
        if !goes_on {
            break;
        }
        if let Some(from) = rest {
            waiting.push(Waiting { folder, from, depth, above, name, at });
        }
        waiting.extend(inner.into_iter().rev());
    }
    Ok(())
}

/// A folder that is still to be searched, or the rest of one.
struct Waiting {
    folder: Node,
    from: u64,
    depth: usize,
    /// What is before its name, and the name, each with a slash behind it.
    above: Rc<[u8]>,
    name: Vec<u8>,
    /// Numbers of the pattern's components that its entries may match.
    at: BTreeSet<usize>,
}

pub(crate) fn is_glob(typed: &[u8]) -> bool {
    typed.iter().any(|byte| b"*?[{".contains(byte))
}

/// What is typed as a glob; `None` if it is none.
pub(crate) fn pattern(typed: &[u8]) -> Option<Pattern> {
    if is_glob(typed) { Pattern::new(typed) } else { None }
}

/// A glob, component by component.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// `None` stands for `**`.
    components: Vec<Option<(GlobMatcher, bool)>>,
    /// Bytes stand for the characters of Latin-1: what was typed is not UTF-8.
    is_bytes: bool,
}

/// Each byte as a character.
fn as_latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

impl Pattern {
    /// `None` if it is no glob that is understood: then it is a name.
    fn new(typed: &[u8]) -> Option<Self> {
        let is_bytes = std::str::from_utf8(typed).is_err();
        let components = typed
            .split(|&byte| byte == b'/')
            .filter(|component| !matches!(*component, b"" | b"."))
            .map(|component| {
                if component == b"**" {
                    return Some(None);
                }
                let text = match std::str::from_utf8(component) {
                    Ok(text) if !is_bytes => text.to_owned(),
                    _ => as_latin1(component),
                };
                let glob = GlobBuilder::new(&text).literal_separator(true).build().ok()?;
                Some(Some((glob.compile_matcher(), component.first() == Some(&b'.'))))
            })
            .collect::<Option<Vec<_>>>()?;
        (!components.is_empty()).then_some(Self { components, is_bytes })
    }

    /// How many components it has.
    pub(crate) fn len(&self) -> usize {
        self.components.len()
    }

    /// With `name` at one of the components `at`: the components that may come next. The number of all components among
    /// them means that the path matches.
    pub(crate) fn after(&self, at: &BTreeSet<usize>, name: &[u8]) -> BTreeSet<usize> {
        let mut after = BTreeSet::new();
        let latin1 = self.is_bytes.then(|| as_latin1(name));
        let text = latin1.as_ref().map_or_else(|| OsStr::from_bytes(name), OsStr::new);
        for &(mut at) in at {
            // `**` may stand for nothing.
            while let Some(None) = self.components.get(at) {
                if name.first() != Some(&b'.') {
                    after.insert(at);
                    if at + 1 == self.components.len() {
                        after.insert(at + 1);
                    }
                }
                at += 1;
            }
            if let Some(Some((glob, takes_dots))) = self.components.get(at)
                && (*takes_dots || name.first() != Some(&b'.'))
                && glob.is_match(Path::new(text))
            {
                after.insert(at + 1);
            }
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `glob` matches `path`, as [`expand`] walks.
    fn matches(glob: &str, path: &str) -> bool {
        let pattern = Pattern::new(glob.as_bytes()).unwrap();
        let mut at = BTreeSet::from([0]);
        for name in path.split('/') {
            at = pattern.after(&at, name.as_bytes());
        }
        at.contains(&pattern.components.len())
    }

    #[test]
    fn globs_match_as_in_a_shell() {
        for (glob, path) in [
            ("*.c", "a.c"),
            ("a/*.c", "a/b.c"),
            ("a/?.c", "a/b.c"),
            ("[a-c]*/x", "box/x"),
            ("**/x", "x"),
            ("**/x", "a/b/x"),
            ("a/**", "a/b/c"),
            ("a/**/d", "a/b/c/d"),
            (".*", ".profile"),
            ("./a/*", "a/b"),
            ("{a,b}.c", "b.c"),
        ] {
            assert!(matches(glob, path), "{glob} {path}");
        }
        for (glob, path) in [
            ("*.c", "a/b.c"),
            ("*", ".profile"),
            ("a/*", "a/b/c"),
            ("**/x", "a/.git/x"),
            ("a/?", "a/.b"),
            ("a/**", "a"),
        ] {
            assert!(!matches(glob, path), "{glob} {path}");
        }
        assert!(Pattern::new(b"[z").is_none());
        let at = BTreeSet::from([0]);
        for (glob, name, matches) in [(&b"b\xe4*"[..], &b"b\xe4r"[..], true), (b"b\xe4*", b"b\xc3\xa4r", false)] {
            assert_eq!(!Pattern::new(glob).unwrap().after(&at, name).is_empty(), matches, "{glob:?}");
        }
    }
}
