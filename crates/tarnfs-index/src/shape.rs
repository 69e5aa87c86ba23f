//! The options that shape an index, and which index serves which options.

use std::fmt;
use std::path::{Path, PathBuf};

use tarnfs_format::name;
use tarnfs_source::Setting;
use xxhash_rust::xxh3::xxh3_64;

use crate::location::with_tag;

/// [`Recursion::extensions`] if nothing else is said.
pub const DEFAULT_EXTENSIONS: [&str; 4] = ["/archive", "/compressed", "/disk", "/split"];

/// Which files in an archive are shown as folders of what they hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recursion {
    /// `--recursion-depth`: archives inside each other at most, a compressed tar counted as two; `None` for as many as
    /// there are.
    pub depth: Option<u32>,
    /// `--recursive-extensions`, as given: which names make a file a candidate.
    pub extensions: Vec<String>,
    /// `-s`: the folder has the name without the extension.
    pub strip_extension: bool,
    /// `--transform-recursive-mount-point`: regular expression and replacement for the folder's path.
    pub transform: Option<(String, String)>,
}

/// What shaped the index. Another value means another tree ([`Shape::serves`] says when an index is used nevertheless).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape {
    /// `-e`: how names that are not UTF-8 are converted; `None` leaves them as they are.
    pub encoding: Option<String>,
    /// `-i`.
    pub ignore_zeros: bool,
    /// `--gnu-incremental` (`Some(true)`), `--detect-gnu-incremental` (`None`), neither (`Some(false)`).
    pub gnu_incremental: Option<bool>,
    /// `--transform`: regular expression and replacement for each path.
    pub transform: Option<(String, String)>,
    /// `-r`; `None` if archives inside the archive stay files.
    pub recursion: Option<Recursion>,
    /// `--hashes`: names of what is kept of each file's content, in order.
    pub hashes: Vec<String>,
    /// `--use-backend`: what a file is read as that could be several things, first what counts most.
    pub backends: Vec<String>,
}

impl Shape {
    /// True if an index of this shape has all that one of the shape `wanted` has, and nothing else but more hashes,
    /// which can be hidden.
    pub fn serves(&self, wanted: &Self) -> bool {
        let has = |hash: &String| self.hashes.contains(hash);
        wanted.hashes.iter().all(has) && self.without_hashes() == wanted.without_hashes()
    }

    fn without_hashes(&self) -> Self {
        Self { hashes: Vec::new(), ..self.clone() }
    }

    /// Where an index of this shape lies if another one has taken `main`: beside it, with a hash of the options in the
    /// name. First without the hashes of files, since an index that has more of them serves as well; then with them.
    pub fn variants(&self, main: &Path) -> Vec<PathBuf> {
        let mut tags = vec![self.without_hashes().tag(), self.tag()];
        tags.dedup();
        tags.iter().map(|tag| with_tag(main, tag)).collect()
    }

    fn tag(&self) -> String {
        // The names of files must not depend on how a program calls its settings. No word has a zero in it.
        let words = self.words(|setting| match setting {
            Setting::Recursive => "-r".to_owned(),
            Setting::StripRecursiveTarExtension => "-s".to_owned(),
            Setting::IgnoreZeros => "-i".to_owned(),
            other => format!("--{}", other.name()),
        });
        format!("options-{:016x}", xxh3_64(words.join("\0").as_bytes()))
    }

    /// The settings that differ from the defaults, as `called` calls them, each value that is a text of its own a word
    /// of its own.
    fn words(&self, called: impl Fn(Setting) -> String) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let with = |setting, value: &str| format!("{}={value}", called(setting));
        let pair = |setting, pair: &(String, String)| [called(setting), pair.0.clone(), pair.1.clone()];
        if let Some(Recursion { depth, extensions, strip_extension, transform }) = &self.recursion {
            words.push(match depth {
                None => called(Setting::Recursive),
                Some(depth) => with(Setting::RecursionDepth, &depth.to_string()),
            });
            words.extend(extensions.iter().map(|extensions| with(Setting::RecursiveExtensions, extensions)));
            words.extend(strip_extension.then(|| called(Setting::StripRecursiveTarExtension)));
            words.extend(transform.iter().flat_map(|of| pair(Setting::TransformRecursiveMountPoint, of)));
        }
        words.extend(self.transform.iter().flat_map(|of| pair(Setting::Transform, of)));
        words.extend(self.ignore_zeros.then(|| called(Setting::IgnoreZeros)));
        words.extend(self.encoding.iter().map(|encoding| with(Setting::Encoding, encoding)));
        words.extend(match self.gnu_incremental {
            Some(true) => Some(called(Setting::GnuIncremental)),
            Some(false) => None,
            None => Some(called(Setting::DetectGnuIncremental)),
        });
        if !self.backends.is_empty() {
            // As they are given: what comes last counts most.
            let backends: Vec<_> = self.backends.iter().rev().cloned().collect();
            words.push(with(Setting::UseBackend, &backends.join(",")));
        }
        if !self.hashes.is_empty() {
            words.push(with(Setting::Hashes, &self.hashes.join(",")));
        }
        words
    }
}

/// What the [`Shape`] of a call without options is in words.
pub(crate) const NO_OPTIONS: &str = "none";

/// The options for people, without defaults: "--recursive --hashes=sha256" on a command line. They may come from a file
/// that lies: escaped, and as many as a message needs.
impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.clone();
        if let Some(recursion) = &mut shown.recursion
            && recursion.extensions == DEFAULT_EXTENSIONS
        {
            recursion.extensions.clear();
        }
        match shown.words(|setting| setting.to_string()) {
            words if words.is_empty() => formatter.write_str(NO_OPTIONS),
            words => write!(formatter, "{}", name::excerpt(words.join(" ").as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn shapes() -> Vec<Shape> {
        let plain = Shape { gnu_incremental: Some(false), ..Shape::default() };
        let recursive = |recursion: Recursion| Shape { recursion: Some(recursion), ..plain.clone() };
        let pair = |one: &str, other: &str| Some((one.to_owned(), other.to_owned()));
        vec![
            recursive(Recursion::default()),
            recursive(Recursion { depth: Some(2), ..Recursion::default() }),
            recursive(Recursion { extensions: vec!["tar".to_owned()], ..Recursion::default() }),
            recursive(Recursion { strip_extension: true, ..Recursion::default() }),
            recursive(Recursion { transform: pair("a", "b"), ..Recursion::default() }),
            Shape { transform: pair("a", "b"), ..plain.clone() },
            Shape { transform: pair("a b", ""), ..plain.clone() },
            Shape { transform: pair("a", "b "), ..plain.clone() },
            Shape { encoding: Some("latin1".to_owned()), ..plain.clone() },
            Shape { ignore_zeros: true, ..plain.clone() },
            Shape { gnu_incremental: Some(true), ..plain.clone() },
            Shape { gnu_incremental: None, ..plain.clone() },
            Shape { backends: vec!["zip".to_owned()], ..plain.clone() },
            Shape { backends: vec!["zip".to_owned(), "tar".to_owned()], ..plain.clone() },
            plain,
        ]
    }

    #[test]
    fn more_hashes_serve_and_nothing_else_does() {
        let with = |shape: &Shape, hashes: &[&str]| Shape {
            hashes: hashes.iter().map(|&hash| hash.to_owned()).collect(),
            ..shape.clone()
        };
        for (one, shape) in shapes().iter().enumerate() {
            for (other, wanted) in shapes().iter().enumerate() {
                assert_eq!(shape.serves(wanted), one == other, "{shape}, {wanted}");
                assert_eq!(with(shape, &["md5", "sha1"]).serves(&with(wanted, &["sha1"])), one == other);
            }
            assert!(!with(shape, &["md5"]).serves(&with(shape, &["sha1"])));
            assert!(!shape.serves(&with(shape, &["sha1"])));
        }
    }

    #[test]
    fn what_an_index_says_of_its_options_goes_to_messages_escaped_and_cut() {
        let encoding = Some(format!("\u{1b}[2J{}", "x".repeat(1 << 20)));
        let shown = Shape { encoding, gnu_incremental: Some(false), ..Shape::default() }.to_string();
        assert!(shown.starts_with("`encoding`=\\x1b[2Jxx") && shown.len() < 1000, "{} bytes", shown.len());
    }

    #[test]
    fn each_shape_has_a_place_of_its_own() {
        let main = Path::new("/data/a.tar.tarnfs.sqlite");
        let places: BTreeSet<_> = shapes().iter().flat_map(|shape| shape.variants(main)).collect();
        assert_eq!(places.len(), shapes().len());
        let hashed = Shape { hashes: vec!["md5".to_owned()], ..Shape::default() };
        let [first, second] = <[_; 2]>::try_from(hashed.variants(main)).unwrap();
        assert_eq!(
            [first.clone()].as_slice(),
            Shape::default().variants(main),
            "an index with more hashes is found there"
        );
        // It must be found by later versions, too.
        assert_eq!(second, Path::new("/data/a.tar.options-020fabc3f5ae9534.tarnfs.sqlite"));
    }
}
