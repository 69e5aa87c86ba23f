//! What the options make of an entry's path, and of the place of an archive in the archive.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use tarnfs_format::encoding::Encoding;
use tarnfs_format::{Entry, Kind, name};
use tarnfs_index::Shape;
use tarnfs_source::{Limits, Setting};

use crate::extensions::Extensions;
use crate::hashes::Hashes;
use crate::preferred::Preferred;
use crate::problem::Problem;
use crate::rename::{Rename, shown};

/// How paths are changed on the way into the index.
#[derive(Debug)]
pub(crate) struct Names {
    encoding: Option<Encoding>,
    transform: Option<Rename>,
    /// Paths were asked of `transform`, and it has changed one.
    was_asked: AtomicBool,
    has_changed: AtomicBool,
    pub(super) recursion: Option<Rules>,
    /// What is kept of files' contents.
    pub(super) hashes: Hashes,
    /// What a file is that could be several things.
    pub(crate) preferred: Preferred,
}

/// Which files are opened as archives, and where what they hold is put.
#[derive(Debug)]
pub(super) struct Rules {
    /// Archives inside each other at most, a compressed one counted as two: the file, and the archive that comes out.
    pub(super) depth: u32,
    /// Layers of compression inside each other at most.
    pub(super) layers: u32,
    extensions: Extensions,
    /// Members of the archive itself are looked into, whatever their names are.
    pub(super) takes_members: bool,
    strip_extension: bool,
    transform: Option<Rename>,
}

/// Layers of compression inside each other at most, in an archive that is read so.
pub(crate) fn most_layers(shape: &Shape, limits: &Limits) -> u32 {
    let depth = shape.recursion.as_ref().and_then(|recursion| recursion.depth);
    depth.unwrap_or(0).max(u32::try_from(limits.compression_layers).unwrap_or(u32::MAX))
}

impl Names {
    /// [`Problem::Option`] if an option makes no sense.
    pub(crate) fn new(shape: &Shape, limits: &Limits) -> Result<Self, Problem> {
        let rename = |option: Setting, pair: &Option<(String, String)>| -> Result<Option<Rename>, Problem> {
            let Some((expression, replacement)) = pair else { return Ok(None) };
            let made = Rename::new(expression, replacement);
            let pair = || pair.as_ref().map(shown).unwrap_or_default();
            made.map(Some).map_err(|error| Problem::Option(format!("{option} {}: {error}", pair())))
        };
        let encoding = match &shape.encoding {
            None => None,
            Some(name) => Some(Encoding::for_name(name).ok_or_else(|| {
                let why = if Encoding::is_of_no_names(name) {
                    "no names in an archive can be in this encoding: a byte 0 ends them"
                } else {
                    "there is no encoding of that name"
                };
                Problem::Option(format!("{} {name}: {why}", Setting::Encoding))
            })?),
        };
        let recursion = match &shape.recursion {
            None => None,
            Some(recursion) => {
                let extensions = Extensions::new(&recursion.extensions)
                    .map_err(|error| Problem::Option(format!("{}: {error}", Setting::RecursiveExtensions)))?;
                Some(Rules {
                    depth: recursion.depth.unwrap_or(u32::MAX),
                    layers: most_layers(shape, limits),
                    takes_members: extensions.takes_members(),
                    extensions,
                    strip_extension: recursion.strip_extension,
                    transform: rename(Setting::TransformRecursiveMountPoint, &recursion.transform)?,
                })
            }
        };
        let hashes = Hashes::new(&shape.hashes);
        let preferred = Preferred::new(&shape.backends);
        let preferred = preferred.map_err(|error| Problem::Option(format!("{} {error}", Setting::UseBackend)))?;
        let transform = rename(Setting::Transform, &shape.transform)?;
        let (was_asked, has_changed) = Default::default();
        Ok(Self { encoding, transform, was_asked, has_changed, recursion, hashes, preferred })
    }

    /// True if `--transform` has changed nothing: then it does not mean what was meant.
    pub(super) fn transform_is_idle(&self) -> bool {
        self.was_asked.load(Ordering::Relaxed) && !self.has_changed.load(Ordering::Relaxed)
    }

    /// Makes of `entry`, as it stands in an archive whose content is put behind `prefix` (empty, or ending in a slash),
    /// what the index gets. `None` for the root of an archive inside another: it looks like the file that the
    /// archive is.
    pub(super) fn place(&self, prefix: &[u8], entry: &mut Entry, limits: &Limits) -> Option<OwnName> {
        for text in [&mut entry.path, &mut entry.link] {
            if let Cow::Owned(text_in_utf8) = converted(self.encoding.as_ref(), text) {
                *text = text_in_utf8;
            }
        }
        if !prefix.is_empty() {
            if name::components(&entry.path, limits).is_root() {
                return None;
            }
            entry.path = joined(prefix, &entry.path, limits);
            if entry.kind == Kind::HardLink {
                entry.link = joined(prefix, &entry.link, limits);
            }
        }
        // Without recursion nobody asks for it.
        let recursion = self.recursion.as_ref().filter(|_| self.transform.is_some());
        let own_name = OwnName(recursion.map(|_| last_component(&entry.path).to_vec()));
        self.transform(entry);
        Some(own_name)
    }

    /// Changes the path of `entry`, and that to which a hard link leads, as `--transform` says.
    pub(super) fn transform(&self, entry: &mut Entry) {
        let Some(transform) = &self.transform else { return };
        self.was_asked.store(true, Ordering::Relaxed);
        let path = transformed(transform, &entry.path);
        let before = entry.path.strip_prefix(b"./").unwrap_or(&entry.path);
        if path.strip_prefix(b"/").unwrap_or(&path) != before.strip_prefix(b"/").unwrap_or(before) {
            self.has_changed.store(true, Ordering::Relaxed);
        }
        entry.path = path;
        if entry.kind == Kind::HardLink {
            entry.link = transformed(transform, &entry.link);
        }
    }

    /// The name of `path` without what makes it a candidate; `None` if it is none, or there is no recursion.
    pub(crate) fn stem<'n>(&self, path: &'n [u8]) -> Option<&'n [u8]> {
        let name = last_component(path);
        let length = self.recursion.as_ref()?.extensions.stem(name)?;
        name.get(..length)
    }

    /// Ends of names that make a file a candidate, those of globs left aside.
    pub(crate) fn extensions(&self) -> impl Iterator<Item = &[u8]> {
        self.recursion.iter().flat_map(|rules| rules.extensions.literal())
    }

    /// True if what lies in so many archives is opened.
    pub(super) fn goes_below(&self, depth: u32) -> bool {
        self.recursion.as_ref().is_some_and(|rules| depth < rules.depth)
    }

    /// Layers of compression inside each other at most; `None` without recursion.
    pub(super) fn most_layers(&self) -> Option<u32> {
        self.recursion.as_ref().map(|rules| rules.layers)
    }

    /// Where what the candidate at `path` holds is put: a path without slashes at its ends. `None` if it would lie too
    /// deep.
    pub(super) fn folder_of(&self, path: &[u8], limits: &Limits) -> Option<Vec<u8>> {
        let rules = self.recursion.as_ref()?;
        let mut folder = Cow::Borrowed(path);
        if rules.strip_extension
            && let Some(stem) = self.stem(path)
        {
            let before = path.len() - last_component(path).len();
            folder = Cow::Owned([&path[..before], stem].concat());
        }
        if let Some(transform) = &rules.transform {
            folder = Cow::Owned(transformed(transform, &folder));
        }
        let components = name::components(&folder, limits);
        let folder: Vec<&[u8]> = components.iter().collect();
        // Something must have its place in it.
        let fits =
            folder.len() + 2 < limits.path_components && folder.first().is_none_or(|&first| first != name::TOO_DEEP);
        fits.then(|| folder.join(&b'/'))
    }
}

/// The name that an entry has in its archive, which says whether it may be an archive: `None` if that is the one of its
/// path, which `--transform` may change.
#[derive(Debug)]
pub(super) struct OwnName(Option<Vec<u8>>);

impl OwnName {
    /// That of `entry`.
    pub(super) fn of<'n>(&'n self, entry: &'n Entry) -> &'n [u8] {
        self.0.as_deref().unwrap_or_else(|| last_component(&entry.path))
    }
}

/// As `re.sub` gets it in ratarmount: with a slash before it.
fn transformed(transform: &Rename, path: &[u8]) -> Vec<u8> {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let from_root = if path.starts_with(b"/") { Cow::Borrowed(path) } else { Cow::Owned([b"/", path].concat()) };
    transform.apply(&from_root).into_owned()
}

pub(super) fn last_component(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// `path` behind `prefix`, and never above it.
fn joined(prefix: &[u8], path: &[u8], limits: &Limits) -> Vec<u8> {
    let mut joined = prefix.to_vec();
    for component in &name::components(path, limits) {
        joined.extend_from_slice(component);
        joined.push(b'/');
    }
    joined.pop();
    joined
}

/// A name that is not UTF-8 is taken for one in `encoding`.
pub(crate) fn converted<'t>(encoding: Option<&Encoding>, text: &'t [u8]) -> Cow<'t, [u8]> {
    match encoding {
        Some(encoding) if std::str::from_utf8(text).is_err() => Cow::Owned(encoding.decode(text).into_owned()),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use tarnfs_index::Recursion;

    use super::*;

    fn pair(expression: &str, replacement: &str) -> (String, String) {
        (expression.to_owned(), replacement.to_owned())
    }

    fn recursive(change: impl FnOnce(&mut Recursion)) -> Shape {
        let extensions = ["tar", "tar.gz", "gz"].map(str::to_owned).into();
        let mut recursion = Recursion { extensions, ..Recursion::default() };
        change(&mut recursion);
        Shape { recursion: Some(recursion), ..Shape::default() }
    }

    fn names(shape: &Shape) -> Names {
        Names::new(shape, &Limits::default()).unwrap()
    }

    fn entry(kind: Kind, path: &str, link: &str) -> Entry {
        Entry { kind, path: path.into(), link: link.into(), ..Entry::default() }
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for (shape, option) in [
            (Shape { encoding: Some("none".to_owned()), ..Shape::default() }, "no encoding of that name"),
            (Shape { encoding: Some("utf-16".to_owned()), ..Shape::default() }, "a byte 0 ends them"),
            (Shape { transform: Some(pair("(", "")), ..Shape::default() }, "`transform`"),
            (recursive(|recursion| recursion.transform = Some(pair("(", ""))), "`transform-recursive-mount-point`"),
            (recursive(|recursion| recursion.extensions.push("/none".to_owned())), "`recursive-extensions`"),
            (Shape { backends: vec!["none".to_owned()], ..Shape::default() }, "`use-backend`"),
        ] {
            match Names::new(&shape, &Limits::default()) {
                Err(Problem::Option(what)) => assert!(what.contains(option), "{option}: {what}"),
                other => panic!("{option}: {other:?}"),
            }
        }
    }

    /// Whatever it says of itself, it is in the folder of its archive, and so is what it is a link to.
    #[test]
    fn what_an_archive_holds_is_put_behind_its_path() {
        let (names, limits) = (names(&Shape::default()), Limits::default());
        for (kind, path, link, expected) in [
            (Kind::File, "x/y", "", ("in.tar/x/y", "")),
            (Kind::File, "../../x", "", ("in.tar/x", "")),
            (Kind::File, "/x//./y/", "", ("in.tar/x/y", "")),
            (Kind::HardLink, "x", "/y/../z", ("in.tar/x", "in.tar/z")),
            // Where a symbolic link leads depends on where it is.
            (Kind::Symlink, "x", "../y", ("in.tar/x", "../y")),
        ] {
            let mut placed = entry(kind, path, link);
            names.place(b"in.tar/", &mut placed, &limits).unwrap();
            let found = (std::str::from_utf8(&placed.path).unwrap(), std::str::from_utf8(&placed.link).unwrap());
            assert_eq!(found, expected, "{path}");
            // In the archive itself all is as it stands.
            let mut placed = entry(kind, path, link);
            assert_eq!(names.place(b"", &mut placed, &limits).unwrap().of(&placed), last_component(path.as_bytes()));
            assert_eq!((placed.path, placed.link), (path.as_bytes().to_vec(), link.as_bytes().to_vec()));
        }
        for root in ["", ".", "./", "/", "..", "a/.."] {
            assert!(names.place(b"in.tar/", &mut entry(Kind::Folder, root, ""), &limits).is_none(), "{root}");
            assert!(names.place(b"", &mut entry(Kind::Folder, root, ""), &limits).is_some(), "{root}");
        }
    }

    /// What is not UTF-8 is taken for the encoding, before anything else looks at it.
    #[test]
    fn names_are_converted_first() {
        let names = names(&Shape { encoding: Some("latin1".to_owned()), ..Shape::default() });
        let mut umlauts = entry(Kind::HardLink, "", "");
        (umlauts.path, umlauts.link) = (b"\xe4".to_vec(), "\u{f6}".into());
        names.place(b"", &mut umlauts, &Limits::default()).unwrap();
        assert_eq!((umlauts.path, umlauts.link), ("\u{e4}".into(), "\u{f6}".into()));
        assert_eq!(&*converted(None, b"\xe4"), b"\xe4");
    }

    #[test]
    fn an_expression_that_changes_nothing_is_told() {
        let limits = Limits::default();
        let idle = |transform, paths: &[&str]| {
            let names = names(&Shape { transform, ..Shape::default() });
            for path in paths {
                names.place(b"", &mut entry(Kind::File, path, ""), &limits).unwrap();
            }
            names.transform_is_idle()
        };
        for (transform, paths, is_idle) in [
            (None, &["a"][..], false),
            (Some(pair("x", "y")), &[], false),
            (Some(pair("x", "y")), &["a", "./b", "/c"], true),
            (Some(pair("x", "y")), &["a", "x"], false),
            // Nor does one that only spells a path in another way.
            (Some(pair("^/", "")), &["a"], true),
        ] {
            assert_eq!(idle(transform.clone(), paths), is_idle, "{transform:?} {paths:?}");
        }
        // Links lead to where their files are then, and whether a file is an archive is said by its own name.
        let shape = Shape { transform: Some(pair("^/d/(.*)[.]tar$", "/e/\\1")), ..recursive(|_| ()) };
        let names = names(&shape);
        let mut link = entry(Kind::HardLink, "d/a.tar", "./d/b.tar");
        let own = names.place(b"", &mut link, &limits).unwrap();
        assert_eq!((own.of(&link), &link.path[..], &link.link[..]), (&b"a.tar"[..], &b"/e/a"[..], &b"/e/b"[..]));
        assert_eq!(
            (names.stem(b"x/a.tar.gz"), names.stem(b"x/tar"), names.stem(b"x.tar/a")),
            (Some(&b"a"[..]), None, None)
        );
    }

    #[test]
    fn the_folder_of_an_archive_is_its_file_or_what_options_make_of_it() {
        let limits = Limits::default();
        let folder = |shape: &Shape, path: &str| {
            names(shape).folder_of(path.as_bytes(), &limits).map(|folder| String::from_utf8(folder).unwrap())
        };
        let (plain, strip) = (recursive(|_| ()), recursive(|recursion| recursion.strip_extension = true));
        let moved = recursive(|recursion| recursion.transform = Some(pair("^/d/", "/e/../f/")));
        let all = recursive(|recursion| {
            (recursion.strip_extension, recursion.transform) = (true, Some(pair("(.*)", "/top\\1")));
        });
        for (shape, path, expected) in [
            (&plain, "d/a.tar.gz", "d/a.tar.gz"),
            (&plain, "/d//a.tar/", "d/a.tar"),
            (&strip, "d/a.tar.gz", "d/a"),
            (&strip, "d.tar/a", "d.tar/a"),
            (&moved, "d/a.tar", "f/a.tar"),
            (&moved, "x/a.tar", "x/a.tar"),
        ] {
            assert_eq!(folder(shape, path).as_deref(), Some(expected), "{path}");
        }
        assert!(folder(&all, "a.tar").is_some_and(|path| path.starts_with("top/a")));
        assert_eq!(folder(&Shape::default(), "a.tar"), None);
        // Something has to have room in it.
        let deep = |components: usize| folder(&plain, &vec!["d"; components].join("/")).is_some();
        let most = limits.path_components;
        assert!(deep(most - 3) && !deep(most - 2) && !deep(most + 1));
    }

    #[test]
    fn archives_in_each_other_are_counted() {
        let names_of = |depth| names(&recursive(|recursion| recursion.depth = depth));
        let two = names_of(Some(2));
        assert_eq!([0, 1, 2, 3].map(|depth| two.goes_below(depth)), [true, true, false, false]);
        assert!(names_of(None).goes_below(1 << 20) && !names(&Shape::default()).goes_below(0));
        let limit = Limits::default().compression_layers as u32;
        let layers = |depth| names_of(depth).most_layers();
        assert_eq!(
            [layers(None), layers(Some(2)), layers(Some(limit + 7))],
            [Some(limit), Some(limit), Some(limit + 7)]
        );
        assert_eq!(names(&Shape::default()).most_layers(), None);
    }
}
