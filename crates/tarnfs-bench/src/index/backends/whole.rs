//! All of it in memory, serialised as a whole: who opens it reads all of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Found, Known, Opened, failed, full_mode, kind_of};
use crate::Error;
use crate::index::entries::{Reader, split, text};

/// Bytes of memory for each entry, about: the maps, and the file when it is read.
pub(super) const MEMORY: u64 = 400;

/// What is kept of an entry.
#[derive(Debug, Serialize, Deserialize)]
struct Item {
    header: u64,
    offset: u64,
    size: u64,
    mtime: i64,
    mode: u32,
    uid: u32,
    gid: u32,
    link: Option<Box<str>>,
}

/// Folders by their paths, and in each what has which name.
type Folders = BTreeMap<Box<str>, BTreeMap<Box<str>, Item>>;

pub(super) fn make(is_json: bool, entries: &mut Reader, path: &Path) -> Result<(), Error> {
    let mut folders = Folders::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let (folder, name) = split(&entry.path);
        let item = Item {
            header: entry.header,
            offset: entry.body.offset,
            size: entry.body.size,
            mtime: entry.mtime.seconds,
            mode: full_mode(&entry),
            uid: entry.uid as u32,
            gid: entry.gid as u32,
            link: (!entry.link.is_empty()).then(|| text(&entry.link).into()),
        };
        folders.entry(text(folder).into()).or_default().insert(text(name).into(), item);
    }
    let file = File::create_new(path).map_err(Error::at(path))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    if is_json {
        serde_json::to_writer(&mut out, &folders).map_err(failed)?;
    } else {
        rmp_serde::encode::write(&mut out, &folders).map_err(failed)?;
    }
    out.flush().map_err(Error::at(path))
}

struct Whole(Folders);

pub(super) fn open(is_json: bool, path: &Path) -> Result<Box<dyn Opened>, Error> {
    let bytes = fs::read(path).map_err(Error::at(path))?;
    let folders = if is_json {
        serde_json::from_slice(&bytes).map_err(failed)?
    } else {
        rmp_serde::from_slice(&bytes).map_err(failed)?
    };
    Ok(Box::new(Whole(folders)))
}

fn found(item: &Item) -> Found {
    Found {
        kind: kind_of(item.mode),
        size: item.size,
        mode: item.mode & 0o7777,
        owner: (item.uid, item.gid),
        seconds: item.mtime,
        node: 0,
    }
}

impl Opened for Whole {
    fn known(&self, path: &[u8]) -> Result<Known, Error> {
        Ok(Known { path: path.to_owned(), node: 0 })
    }

    fn lookup(&self, folder: &Known, name: &[u8]) -> Result<Option<Found>, Error> {
        let items = self.0.get(text(&folder.path).as_str());
        Ok(items.and_then(|items| items.get(text(name).as_str())).map(found))
    }

    fn find(&self, path: &[u8]) -> Result<Option<Found>, Error> {
        let (folder, name) = split(path);
        self.lookup(&Known { path: folder.to_owned(), node: 0 }, name)
    }

    fn list(&self, folder: &Known, receive: &mut dyn FnMut(&[u8], &Found)) -> Result<(), Error> {
        let items = self.0.get(text(&folder.path).as_str()).into_iter().flatten();
        items.for_each(|(name, item)| receive(name.as_bytes(), &found(item)));
        Ok(())
    }
}
