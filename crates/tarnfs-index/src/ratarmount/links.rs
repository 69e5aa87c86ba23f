//! Hard links: what each of them shares.
//!
//! A row of a link has the path of its target, which may be a link again. In an archive in the archive that path begins
//! at the folder that stands for it, and which one that is, only the folders above tell. A sidecar may have come from
//! anybody, and each link in it may go a long way: so all look-ups of a request are counted ([`Following`]), and what
//! was found of a folder is remembered for the next link.

use std::collections::VecDeque;

use rusqlite::params;
use tarnfs_format::Kind;
use tarnfs_source::Cancel;

use super::reader::RatarmountIndex;
use super::rows::{EARLIER_OF_NAME, LAST_OF_NAME, Shown, Stored, split_target};
use crate::{Error, Row};

/// Links from one hard link to another that are followed; ratarmount's own bound.
const LONGEST_CHAIN: usize = 128;

/// Folders that are looked at to find the archive in the archive that a hard link, and those that it leads to, are in.
const MOST_ABOVE: usize = 2048;

/// Look-ups that the links of one request may take, and further ones for each of its links. A link of a tar takes one
/// for its target, and some for the folders above it where the link before lies elsewhere.
const MOST_LOOKUPS: u64 = if cfg!(test) { 10_000 } else { 100_000 };
const LOOKUPS_FOR_EACH: u64 = 32;

/// Look-ups between two looks at whether it is still wanted.
const TICK: u64 = 1024;

/// Folders that are remembered.
const REMEMBERED: usize = 64;

/// What following the hard links of one request has taken, and what was found on the way.
#[derive(Debug, Default)]
pub(super) struct Following {
    lookups: u64,
    links: u64,
    /// Folders by their paths, the one that was looked at last at the end.
    folders: VecDeque<(String, Above)>,
}

/// Where a folder lies.
#[derive(Debug, Clone)]
struct Above {
    /// The path of the folder that stands for the innermost archive that it is in; empty for the outermost.
    archive: String,
    /// Folders that tell so. Where these are more than [`MOST_ABOVE`], it is not known.
    folders: usize,
}

impl Following {
    /// To be called for each look-up.
    fn look_up(&mut self, cancel: &Cancel) -> Result<(), Error> {
        self.lookups = self.lookups.saturating_add(1);
        if self.lookups > MOST_LOOKUPS.saturating_add(self.links.saturating_mul(LOOKUPS_FOR_EACH)) {
            return Err(Error::Broken("its hard links go too long a way to what they share".to_owned()));
        }
        if self.lookups.is_multiple_of(TICK) { Ok(cancel.check()?) } else { Ok(()) }
    }

    fn above(&self, path: &str) -> Option<&Above> {
        self.folders.iter().rev().find(|(known, _)| known == path).map(|(_, above)| above)
    }

    fn remember(&mut self, path: &str, above: Above) {
        if self.folders.len() >= REMEMBERED {
            self.folders.pop_front();
        }
        self.folders.push_back((path.to_owned(), above));
    }
}

/// A row, and what it shows.
pub(super) struct Resolved {
    path: String,
    name: String,
    row: Option<Row>,
}

impl RatarmountIndex {
    /// What a row shows: the file that a hard link shares; nothing for a link to what is not there or is a folder, and
    /// for rows that are no files.
    pub(super) fn resolve(&self, mut stored: Stored, following: &mut Following) -> Result<Option<Row>, Error> {
        let mut left = MOST_ABOVE;
        for step in 0..LONGEST_CHAIN {
            match self.shown(&stored)? {
                // No folder is in two places: there would be no end to it.
                Shown::As(Kind::Folder) if step > 0 => return Ok(None),
                Shown::As(kind) => return self.make_row(&stored, kind).map(Some),
                Shown::Nothing => return Ok(None),
                Shown::HardLink if step == 0 => following.links = following.links.saturating_add(1),
                Shown::HardLink => {}
            }
            let Some((path, name)) = self.target(&stored, following, &mut left)? else { return Ok(None) };
            following.look_up(&self.cancel)?;
            let target = if path == stored.path && name == stored.name {
                // It was stored twice, and means the earlier one.
                let before = stored.offset_header.and_then(|header| i64::try_from(header).ok()).unwrap_or_default();
                self.one(EARLIER_OF_NAME, params![path, name, before])?
            } else {
                self.one(LAST_OF_NAME, params![path, name])?
            };
            match target {
                Some(target) => stored = target,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Folder and name of what a hard link is one more name of. In an archive in the archive they are relative to its
    /// folder. `None` as well where more folders would have to be looked at for it than are `left`.
    fn target(
        &self,
        link: &Stored,
        following: &mut Following,
        left: &mut usize,
    ) -> Result<Option<(String, String)>, Error> {
        let Some((path, name)) = split_target(&link.link) else { return Ok(None) };
        let Above { archive, folders } = self.above(&link.path, following)?;
        let Some(fewer) = left.checked_sub(folders) else { return Ok(None) };
        *left = fewer;
        Ok(Some((archive + &path, name)))
    }

    /// [`resolve`](Self::resolve) of rows that come in the order of their names and headers. `last` is the one before
    /// with what came of it: a link to its own name shows that, however many of them there are.
    pub(super) fn resolve_next(
        &self,
        stored: Stored,
        last: &mut Option<Resolved>,
        following: &mut Following,
    ) -> Result<Option<Row>, Error> {
        let (path, name) = (stored.path.clone(), stored.name.clone());
        let mut left = MOST_ABOVE;
        let row = match last.take() {
            Some(before)
                if (&before.path, &before.name) == (&path, &name)
                    && self.shown(&stored)? == Shown::HardLink
                    && self
                        .target(&stored, following, &mut left)?
                        .is_some_and(|target| target == (path.clone(), name.clone())) =>
            {
                before.row.filter(|row| row.kind != Kind::Folder)
            }
            _ => self.resolve(stored, following)?,
        };
        *last = Some(Resolved { path, name, row: row.clone() });
        Ok(row)
    }

    /// In which archive what has this `path` lies. A path may have as many folders as it has bytes.
    fn above(&self, path: &str, following: &mut Following) -> Result<Above, Error> {
        if !self.has_generated {
            return Ok(Above { archive: String::new(), folders: 0 });
        }
        let (mut at, mut folders) = (path, 0_usize);
        let above = loop {
            if let Some(known) = following.above(at) {
                break Above { folders: known.folders.saturating_add(folders), archive: known.archive.clone() };
            }
            let Some((folder, name)) = at.rsplit_once('/') else { break Above { archive: String::new(), folders } };
            folders = folders.saturating_add(1);
            if folders > MOST_ABOVE {
                break Above { archive: String::new(), folders };
            }
            following.look_up(&self.cancel)?;
            if self.last_of(folder, name)?.is_some_and(|stored| stored.is_generated) {
                break Above { archive: at.to_owned(), folders };
            }
            at = folder;
        };
        if folders > 0 {
            // The next link may well lie in a folder beside this one.
            let parent = path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty());
            if let Some(parent) = parent
                && above.archive != path
                && above.folders <= MOST_ABOVE
                && following.above(parent).is_none()
            {
                let folders = above.folders.saturating_sub(1);
                following.remember(parent, Above { archive: above.archive.clone(), folders });
            }
            following.remember(path, above.clone());
        }
        Ok(above)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::Connection;
    use tarnfs_format::Entry;
    use tarnfs_source::{Budget, FileSource, Fingerprint, Limits, SharedSource};

    use super::*;
    use crate::ratarmount::reader::{Expected, open_index};
    use crate::ratarmount::rows::By;
    use crate::ratarmount::write;
    use crate::{Archive, Destination, Index as _, Node, Shape, Summary, Writer, WriterOptions};

    /// A sidecar with the file `f`, and rows of links: folder, name, target.
    fn with_links(links: &[(String, String, String)]) -> Arc<RatarmountIndex> {
        let folder = tempfile::tempdir().unwrap();
        let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("sidecar"));
        // What is in it, nobody looks at.
        std::fs::write(&archive, [0; 10_240]).unwrap();
        let file = FileSource::open(&archive).unwrap();
        let modified = file.identity().modified as i64;
        let source: SharedSource = Arc::new(file);
        let options =
            WriterOptions { limits: Limits::default(), budget: Budget::new(1 << 20), cancel: Cancel::default() };
        let mut writer = Writer::new(options).unwrap();
        writer.add(&Entry { path: b"f".to_vec(), ..Entry::default() }).unwrap();
        let of = Archive { length: 10_240, fingerprint: Fingerprint::of(&*source).unwrap(), modified };
        let own = writer.finish(Summary::new(of, "tar"), &Destination::Memory).unwrap();
        write(&own, &archive, &sidecar).unwrap();
        let mut connection = Connection::open(&sidecar).unwrap();
        let transaction = connection.transaction().unwrap();
        // No row is one of a header, which opening would look at.
        transaction.execute("UPDATE files SET offsetheader = NULL", []).unwrap();
        for (path, name, target) in links {
            let sql = "INSERT INTO files VALUES (?1, ?2, NULL, 0, 0, 0, 420, x'31', ?3, 0, 0, 0, 0, 0, 0)";
            transaction.execute(sql, [path, name, target]).unwrap();
        }
        transaction.commit().unwrap();
        drop(connection);
        let expected = Expected {
            source,
            modified,
            verify_mtime: false,
            shape: Shape::default(),
            limits: Limits::default(),
            dictionaries: tarnfs_codec::Dictionaries::default(),
            cancel: Cancel::default(),
        };
        open_index(std::fs::File::open(&sidecar).unwrap(), &expected).unwrap()
    }

    fn link(path: &str, name: &str, target: &str) -> (String, String, String) {
        (path.to_owned(), name.to_owned(), target.to_owned())
    }

    /// What the rows in the root show, with what that took.
    fn resolved(index: &RatarmountIndex) -> Result<(Vec<bool>, u64), Error> {
        let (mut rows, mut following) = (Vec::new(), Following::default());
        index.select("WHERE path = '' ORDER BY name, offsetheader", By::Key, params![], &mut |stored| {
            rows.push(index.resolve(stored, &mut following)?.is_some());
            Ok(true)
        })?;
        Ok((rows, following.lookups))
    }

    /// > No archive makes tarnfs crash, hang, or use memory without bound.
    #[test]
    fn links_that_go_the_same_long_way_look_at_it_once() {
        let deep = "/a".repeat(1500);
        for (target, shows) in [("f", true), ("nothing", false)] {
            let mut links = vec![link(&deep, "x", target), link("", "y", &format!("{deep}/x"))];
            links.extend((0..1000).map(|number| link("", &format!("l{number:04}"), "y")));
            let (rows, lookups) = resolved(&with_links(&links)).unwrap();
            // f, the links, y.
            assert_eq!((rows.len(), rows[0], rows[1], rows[1001]), (1002, true, shows, shows));
            assert!((1500..6000).contains(&lookups), "{lookups}");
        }
    }

    #[test]
    fn links_that_go_each_a_long_way_have_an_end() {
        let mut links = Vec::new();
        for number in 0..10 {
            let deep = format!("/b{number}{}", "/a".repeat(2000));
            links.push(link(&deep, "x", "f"));
            links.push(link("", &format!("l{number}"), &format!("{deep}/x")));
        }
        let index = with_links(&links);
        assert!(matches!(resolved(&index), Err(Error::Broken(what)) if what.contains("too long a way")));
        let listed = index.children(Node::ROOT, 0, &mut |_, _, _| true);
        assert!(matches!(listed, Err(Error::Broken(what)) if what.contains("too long a way")));
        // Each of them is found.
        for name in [&b"l0"[..], b"l9"] {
            assert!(index.lookup(Node::ROOT, name).unwrap().is_some());
        }
    }

    /// Whatever was looked at before, a link shows the same.
    #[test]
    fn what_is_remembered_changes_nothing() {
        let deep = |folders: usize| "/a".repeat(folders);
        let mut links = Vec::new();
        for folders in [2047, 2048, 2049, 2050, 1, 2] {
            links.push(link(&deep(folders), "x", "f"));
            links.push(link("", &format!("l{folders:04}"), &format!("{}/x", deep(folders))));
        }
        // Two of which each is near enough, and not both.
        links.push(link(&deep(1024), "z", &format!("{}/z", deep(1025))));
        links.push(link(&deep(1025), "z", "f"));
        links.push(link("", "m", &format!("{}/z", deep(1024))));
        let index = with_links(&links);
        let mut names = Vec::new();
        index
            .select("WHERE path = '' ORDER BY name, offsetheader", By::Key, params![], &mut |stored| {
                names.push(stored.name);
                Ok(true)
            })
            .unwrap();
        let (rows, _) = resolved(&index).unwrap();
        assert_eq!(names, ["f", "l0001", "l0002", "l2047", "l2048", "l2049", "l2050", "m"]);
        assert_eq!(rows, [true, true, true, true, true, false, false, false]);
        for (name, shows) in names.iter().zip(rows) {
            assert_eq!(index.lookup(Node::ROOT, name.as_bytes()).unwrap().is_some(), shows, "{name}");
        }
    }

    #[test]
    fn what_is_not_wanted_any_more_ends() {
        let mut following = Following::default();
        let cancel = Cancel::default();
        cancel.cancel();
        let ended = (0..TICK).map(|_| following.look_up(&cancel)).find(Result::is_err);
        assert!(matches!(ended, Some(Err(Error::Io(error))) if error.kind() == std::io::ErrorKind::Interrupted));
    }
}
