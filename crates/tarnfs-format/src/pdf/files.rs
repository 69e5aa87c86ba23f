//! What is attached to a document.

use std::collections::HashSet;
use std::io;

use xxhash_rust::xxh3::xxh3_64;

use super::crypt::What;
use super::object::{Dict, Object, text};
use super::reader::Reader;
use crate::image::damaged;
use crate::name::{bounded_path, excerpt};
use crate::naming::Names;
use crate::{Error, Time, calendar};

/// Characters of a name in the document: the standard allows 127.
const LONGEST_NAME: usize = 127;

/// Where the stream of a file may be told: the last one that a program writes first.
const KINDS: [&str; 5] = ["UF", "F", "Unix", "Mac", "DOS"];

impl Reader<'_, '_> {
    /// Tells of what the document lists.
    pub(super) fn listed(&mut self, root: &Dict) -> Result<(), Error> {
        let names = self.of(0, |document| {
            let names = document.dict(root, "Names")?.unwrap_or_default();
            Ok(names.get("EmbeddedFiles").cloned())
        })?;
        let mut waiting: Vec<(Object, usize)> = names.flatten().into_iter().map(|names| (names, 0)).collect();
        let mut seen = HashSet::new();
        while let Some((node, held)) = waiting.pop() {
            if self.document.is_spent() {
                break;
            }
            if node.reference().is_some_and(|(number, _)| !seen.insert(number)) {
                continue;
            }
            let found = self.of(0, |document| {
                document.held = held;
                document.spend(1)?;
                let node = document.resolve(&node)?.dict().cloned().unwrap_or_default();
                let kids = document.get(&node, "Kids")?;
                document.hold(kids.parts())?;
                Ok((kids, document.get(&node, "Names")?))
            })?;
            let Some((kids, names)) = found else { continue };
            for pair in names.array().unwrap_or_default().as_chunks::<2>().0 {
                let [name, file] = pair;
                self.attached(Some(name), file)?;
            }
            let (kids, held) = (kids.array().unwrap_or_default(), self.document.held);
            waiting.extend(kids.iter().rev().map(|kid| (kid.clone(), held)));
        }
        self.document.held = 0;
        Ok(())
    }

    /// Tells of what is attached to a page.
    pub(super) fn on_page(&mut self, page: &Dict) -> Result<(), Error> {
        let notes = self.of(0, |document| document.get(page, "Annots"))?;
        for note in notes.as_ref().and_then(Object::array).unwrap_or_default() {
            let file = self.of(0, |document| {
                let note = document.resolve(note)?.dict().cloned().unwrap_or_default();
                let is_file = document.get(&note, "Subtype")?.name() == Some(b"FileAttachment");
                Ok(note.get("FS").filter(|_| is_file).cloned())
            })?;
            if let Some(file) = file.flatten() {
                self.attached(None, &file)?;
            }
        }
        Ok(())
    }

    /// A path that nothing else has: any number of files may be attached under one name.
    fn free_path(&mut self, path: &str) -> Vec<u8> {
        let folder = path.rfind('/').map_or(0, |slash| slash.saturating_add(1));
        let (folder, name) = path.split_at_checked(folder).unwrap_or(("", path));
        let free = self.names.path(folder.as_bytes(), name);
        let Some(page) = page_of(path) else { return free };
        if page < self.pages {
            // What is on that page may have it by now.
            return self.names.path(folder.as_bytes(), name);
        }
        self.like_pages.insert(xxh3_64(&free));
        free
    }

    /// The path of what is on a page, called `name`, unless something has it that was attached.
    pub(super) fn path_on_page(&mut self, name: String) -> Vec<u8> {
        if self.like_pages.contains(&xxh3_64(name.as_bytes())) {
            self.names.path(b"", &name)
        } else {
            name.into_bytes()
        }
    }

    /// The same of an image of the page whose paths are `on_page`.
    pub(super) fn path_of_image(&mut self, name: &str, on_page: &mut HashSet<u64>) -> Vec<u8> {
        let Self { images_called, names, like_pages, .. } = self;
        images_called.path(name, on_page, names, like_pages)
    }

    /// Tells of a file that was attached, if it was not told before. The list has a name for it.
    fn attached(&mut self, listed: Option<&Object>, file: &Object) -> Result<(), Error> {
        let longest = self.document.options.limits.path;
        let found = self.of(0, |document| {
            let file = document.resolve(file)?.dict().cloned().unwrap_or_default();
            let mut names = Vec::new();
            for name in ["UF", "F"] {
                names.push(document.get(&file, name)?);
            }
            names.extend(listed.map(|name| document.resolve(name)).transpose()?);
            let mut names = names.iter().filter_map(Object::string).map(|name| path_of(name, longest));
            let name = names.find(|name| !name.is_empty());
            let streams = document.dict(&file, "EF")?.unwrap_or_default();
            let stream = KINDS.iter().find_map(|kind| streams.get(kind)).cloned();
            Ok(stream.map(|stream| (name, stream)))
        })?;
        let Some((name, stream)) = found.flatten() else { return Ok(()) };
        if stream.reference().is_none_or(|(number, _)| !self.attached.insert(number)) {
            return Ok(());
        }
        let count = self.attached.len();
        let path = self.free_path(&name.unwrap_or_else(|| format!("attached_{count}")));
        let found = self.of(0, |document| {
            let stream = document
                .stream(&stream)?
                .ok_or_else(|| damaged(format!("'{}' is attached, but not there", excerpt(&path))))?;
            let parameters = document.dict(&stream.dict, "Params")?.unwrap_or_default();
            let time = document.get(&parameters, "ModDate")?.string().and_then(date);
            Ok((stream, time))
        })?;
        let Some((stream, time)) = found else { return Ok(()) };
        let content = self.content(&stream, What::File)?;
        self.file(path, time.unwrap_or_default(), &content)
    }
}

/// Paths of images on one page that are remembered, and such of all pages that had to get a number. Forms that are in
/// each other give one image any number of names.
const MOST_ON_PAGE: usize = 1 << 18;
const MOST_NUMBERED: usize = 1 << 16;

/// What images on pages are called.
#[derive(Debug)]
pub(super) struct Called {
    most_on_page: usize,
    most_numbered: usize,
    /// Those that got a number which is remembered, and others.
    numbered: usize,
    forgotten: u64,
}

impl Default for Called {
    fn default() -> Self {
        Self { most_on_page: MOST_ON_PAGE, most_numbered: MOST_NUMBERED, numbered: 0, forgotten: 0 }
    }
}

impl Called {
    /// `name` as a path that nothing has: neither another image of the page, with `on_page` the hashes of their paths,
    /// nor what was attached. An image is called as the forms that it is in and itself, so two may have one name.
    /// Where there are too many to remember them all, each gets a number that no other one has.
    fn path(
        &mut self,
        name: &str,
        on_page: &mut HashSet<u64>,
        names: &mut Names,
        like_pages: &HashSet<u64>,
    ) -> Vec<u8> {
        let hash = xxh3_64(name.as_bytes());
        let is_kept = on_page.len() < self.most_on_page;
        if is_kept && !like_pages.contains(&hash) && on_page.insert(hash) {
            return name.as_bytes().to_vec();
        }
        let may_number = is_kept && self.numbered < self.most_numbered;
        let dot = name.rfind('.').filter(|dot| *dot > 0);
        let (stem, end) = dot.and_then(|dot| name.split_at_checked(dot)).unwrap_or((name, ""));
        loop {
            let path = if may_number {
                self.numbered = self.numbered.saturating_add(1);
                names.path(b"", name)
            } else {
                self.forgotten = self.forgotten.saturating_add(1);
                format!("{stem} (+{}){end}", self.forgotten).into_bytes()
            };
            let hash = xxh3_64(&path);
            // Where no more are kept, no later one has its name without a number.
            let is_free = if is_kept { on_page.insert(hash) } else { !on_page.contains(&hash) };
            if is_free && !like_pages.contains(&hash) {
                return path;
            }
        }
    }
}

/// What the string `name` says, as a path of up to `longest` bytes. A string may have millions, and each of them be
/// three here.
fn path_of(name: &[u8], longest: usize) -> String {
    let name = name.get(..longest.saturating_mul(4)).unwrap_or(name);
    String::from_utf8_lossy(&bounded_path(text(name).into_bytes(), longest)).into_owned()
}

/// The number of the page, of a name that what is on one has: `page_0.txt`, `page_0_Im1.png`.
fn page_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("page_")?;
    let behind = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let number = rest.strip_suffix(behind)?.parse().ok()?;
    (behind == ".txt" || behind.starts_with('_')).then_some(number)
}

/// A date: "D:20030701105237+02'00'", of which the end may be missing.
fn date(text: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.strip_prefix("D:").unwrap_or(text);
    let number = |from: usize, to: usize| text.get(from..to).and_then(|digits| digits.parse::<i64>().ok());
    let year = number(0, 4)?;
    let day = [year, number(4, 6).unwrap_or(1), number(6, 8).unwrap_or(1)];
    let clock = [number(8, 10).unwrap_or(0), number(10, 12).unwrap_or(0), number(12, 14).unwrap_or(0)];
    let (hours, minutes) = (number(15, 17).unwrap_or(0), number(18, 20).unwrap_or(0));
    let east = hours.saturating_mul(60).saturating_add(minutes);
    let east = match text.get(14..15) {
        Some("+") => east,
        Some("-") => east.saturating_neg(),
        _ => 0,
    };
    Some(Time { seconds: calendar::seconds_of(day, clock, east)?, nanoseconds: 0 })
}

/// A name that has nothing but what names have.
pub(super) fn plain(name: &[u8]) -> String {
    String::from_utf8_lossy(name)
        .chars()
        .take(LONGEST_NAME)
        .map(|letter| if matches!(letter, '/' | '\0') { '_' } else { letter })
        .collect()
}

/// What only has errors of damage is nothing.
pub(super) fn or_nothing<T>(result: io::Result<T>) -> io::Result<Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) if crate::image::is_damage(&error) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_their_own_names() {
        for (name, expected) in [
            ("page_0.txt", Some(0)),
            ("page_12_Im1.png", Some(12)),
            ("page_.txt", None),
            ("page_1.pdf", None),
            ("x/page_0.txt", None),
        ] {
            assert_eq!(page_of(name), expected, "{name}");
        }
    }

    /// However many there are, all paths differ, and few are remembered.
    #[test]
    fn images_have_paths_of_their_own() {
        let mut called = Called { most_on_page: 20, most_numbered: 10, ..Called::default() };
        let (mut names, like_pages) = (Names::default(), HashSet::from([xxh3_64(b"page_0_a.png")]));
        assert_eq!(names.path(b"", "page_0_a.png"), b"page_0_a.png");
        for page in 0..3 {
            let (mut on_page, mut all) = (HashSet::new(), HashSet::new());
            for round in 0..100 {
                for name in ["a", "b", "a (2)", "b (+3)", &format!("c{round}")] {
                    let path = called.path(&format!("page_{page}_{name}.png"), &mut on_page, &mut names, &like_pages);
                    let path = String::from_utf8(path).unwrap();
                    assert!(path != "page_0_a.png" && path.contains(".png"), "{path}");
                    assert!(all.insert(path.clone()), "{path} is there twice");
                }
            }
            assert!(on_page.len() <= 20 && called.numbered <= 20, "{} {}", on_page.len(), called.numbered);
            assert!(all.contains(&format!("page_{page}_b.png")));
        }
    }

    #[test]
    fn long_names_are_cut_before_they_are_kept() {
        let names = [&b"page_99991_"[..], b"page_99992_", b"\xfe\xff\0p", b"\xef\xbb\xbfp"];
        let cut = names.map(|start| path_of(&[start, [0x80].repeat(1 << 20).as_slice()].concat(), 1000));
        for (name, start) in cut.iter().zip(["page_99991_", "page_99992_", "p", "p"]) {
            assert!(name.len() <= 1000 && name.starts_with(start), "{name}");
        }
        assert_eq!(path_of(b"gr\xfcn \x80", 1000), "grün •");
        // What differs only behind it has another name.
        let [one, other] = ["1", "2"].map(|end| path_of(["a".repeat(2000), end.to_owned()].concat().as_bytes(), 1000));
        assert_ne!(one, other);
    }

    #[test]
    fn dates_may_lack_their_end() {
        for (text, seconds) in [
            ("D:20030701105237+02'00'", Some(1_057_049_557)),
            ("D:20030701085237Z", Some(1_057_049_557)),
            ("D:20030701045237-04'00", Some(1_057_049_557)),
            ("2003", Some(1_041_379_200)),
            ("D:20031301", None),
            ("D:x", None),
        ] {
            assert_eq!(date(text.as_bytes()).map(|time| time.seconds), seconds, "{text}");
        }
    }
}
