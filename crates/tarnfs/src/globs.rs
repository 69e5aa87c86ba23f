//! Paths in an archive that were typed as globs: the shell cannot expand them, since it does not see the archive.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use tarnfs_tree::{Error, Kind, Node, Tree, path};

/// The paths that `typed` stands for, in the order of a listing. That is `typed` itself if it names something or is no
/// glob. `*` and `?` stand for no slash and no leading dot, as in a shell; `**` for any folders.
pub(crate) fn expand(tree: &dyn Tree, typed: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    if !is_glob(typed) || path::find(tree, typed, false).is_ok() {
        return Ok(vec![typed.to_vec()]);
    }
    let Some(pattern) = Pattern::new(typed) else { return Ok(vec![typed.to_vec()]) };
    let mut found = Vec::new();
    // Folders still to be searched, with the number of the pattern's component that their entries must match.
    let mut waiting = vec![(Node::ROOT, Vec::new(), 0)];
    while let Some((folder, prefix, at)) = waiting.pop() {
        let mut inner = Vec::new();
        tree.read_dir(folder, 0, &mut |child| {
            let path = [prefix.as_slice(), child.name].concat();
            for next in pattern.after(at, child.name) {
                if next == pattern.components.len() {
                    found.push(path.clone());
                }
                if child.attributes.kind == Kind::Folder && !pattern.is_at_end(next) {
                    inner.push((child.attributes.node, [path.as_slice(), b"/"].concat(), next));
                }
            }
            true
        })?;
        waiting.extend(inner.into_iter().rev());
    }
    // `**` can reach a path in several ways.
    found.sort();
    found.dedup();
    if found.is_empty() { Err(Error::NotFound) } else { Ok(found) }
}

fn is_glob(typed: &[u8]) -> bool {
    typed.iter().any(|byte| b"*?[{".contains(byte))
}

/// A glob, component by component.
struct Pattern {
    /// `None` stands for `**`.
    components: Vec<Option<(GlobMatcher, bool)>>,
}

impl Pattern {
    /// `None` if it is no glob that is understood: then it is a name.
    fn new(typed: &[u8]) -> Option<Self> {
        let components = typed
            .split(|&byte| byte == b'/')
            .filter(|component| !matches!(*component, b"" | b"."))
            .map(|component| {
                if component == b"**" {
                    return Some(None);
                }
                let glob =
                    GlobBuilder::new(std::str::from_utf8(component).ok()?).literal_separator(true).build().ok()?;
                Some(Some((glob.compile_matcher(), component.first() == Some(&b'.'))))
            })
            .collect::<Option<Vec<_>>>()?;
        (!components.is_empty()).then_some(Self { components })
    }

    /// With `name` at component `at`: the components that may come next. As many as there are: the path matches.
    fn after(&self, at: usize, name: &[u8]) -> Vec<usize> {
        let mut after = Vec::new();
        let mut at = at;
        // `**` may stand for nothing.
        while let Some(None) = self.components.get(at) {
            if name.first() != Some(&b'.') {
                after.push(at);
                if at + 1 == self.components.len() {
                    after.push(at + 1);
                }
            }
            at += 1;
        }
        if let Some(Some((glob, takes_dots))) = self.components.get(at)
            && (*takes_dots || name.first() != Some(&b'.'))
            && glob.is_match(Path::new(OsStr::from_bytes(name)))
        {
            after.push(at + 1);
        }
        after
    }

    fn is_at_end(&self, next: usize) -> bool {
        next == self.components.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `glob` matches `path`, as [`expand`] walks.
    fn matches(glob: &str, path: &str) -> bool {
        let pattern = Pattern::new(glob.as_bytes()).unwrap();
        let mut at = vec![0];
        for name in path.split('/') {
            at = at.into_iter().flat_map(|at| pattern.after(at, name.as_bytes())).collect();
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
    }
}
