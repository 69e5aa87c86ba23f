//! The entries of an archive: what shows of it, in the order in which it is stored.

use std::io;
use std::path::Path;

use tarnfs_format::{Body, Entry, Kind};
use tarnfs_index::Node;
use tarnfs_tree::Tree as _;
use tarnfs_tree::open::{IndexPlace, Options, Problem};

use super::entries::{LONGEST_PATH, Unsorted};
use crate::report::escaped;
use crate::{Error, Scratch, Settings};

/// What became of an archive's entries.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Entries that are neither file, folder nor link: taken as empty files.
    pub(super) others: u64,
    /// Paths that are too long.
    pub(super) left_out: u64,
}

/// Hands the entries of the archive at `path` to `receive`.
pub(super) fn entries(
    path: &Path,
    scratch: &Scratch,
    settings: &Settings,
    receive: &mut dyn FnMut(&Entry) -> io::Result<()>,
) -> Result<Taken, Error> {
    let mut options = Options { cancel: settings.cancel.clone(), ..Options::default() };
    options.index.place = IndexPlace::Memory;
    options.index.is_written = false;
    options.decoding.decoded_cache = None;
    let opened = tarnfs_tree::open::open(path, &options).map_err(|problem| refused(path, problem))?;
    let tree = opened.tree;
    scratch.check_room(super::room(tree.totals().nodes))?;
    let raw = scratch.join("unsorted");
    let failed = || Error::at(&raw);
    let mut unsorted = Unsorted::new(&raw).map_err(failed())?;
    let mut taken = Taken::default();
    let mut folders = vec![(Node::ROOT, Vec::new())];
    while let Some((folder, above)) = folders.pop() {
        settings.check()?;
        let mut stopped = Ok(());
        let listed = tree.read_stored(folder, 0, &mut |child, stored| {
            let path: Vec<u8> = if above.is_empty() { child.name.to_vec() } else { [&above, child.name].join(&b'/') };
            if path.len() > LONGEST_PATH {
                taken.left_out += 1;
                return true;
            }
            let attributes = &child.attributes;
            let size = if attributes.kind == Kind::File { attributes.size } else { 0 };
            let mut entry = Entry {
                path,
                kind: attributes.kind,
                mode: attributes.mode,
                uid: attributes.uid.into(),
                gid: attributes.gid.into(),
                mtime: attributes.mtime,
                body: Body { size, stored: size, ..Body::default() },
                ..Entry::default()
            };
            match attributes.kind {
                Kind::File => {}
                Kind::Folder => folders.push((attributes.node, entry.path.clone())),
                Kind::Symlink => {
                    entry.link = tree.read_link(attributes.node).unwrap_or_default();
                    entry.link.truncate(LONGEST_PATH);
                }
                _ => taken.others += 1,
            }
            // Folders that no entry names come first.
            stopped = unsorted.add(&entry, (stored.stream, stored.header.unwrap_or(0)));
            stopped.is_ok()
        });
        listed.map_err(|error| Error::Other(format!("{}: {error}", escaped(&path.to_string_lossy()))))?;
        stopped.map_err(failed())?;
    }
    let mut number = 0_u64;
    let sorted = unsorted.sorted(&mut |entry| {
        number += 1;
        if number.is_multiple_of(4096) {
            settings.cancel.check()?;
        }
        receive(entry)
    });
    sorted.map_err(failed())?;
    scratch.remove(&raw)?;
    Ok(taken)
}

fn refused(path: &Path, problem: Problem) -> Error {
    const CANNOT_OPEN: u8 = 3;
    const NOT_AN_ARCHIVE: u8 = 4;
    let name = escaped(&path.to_string_lossy());
    match problem {
        Problem::Cancelled => Error::Cancelled,
        Problem::CannotOpen(error) => {
            Error::Archive { code: CANNOT_OPEN, what: format!("{name}: cannot be opened: {error}") }
        }
        other => Error::Archive { code: NOT_AN_ARCHIVE, what: format!("{name}: {}", escaped(&other.to_string())) },
    }
}
