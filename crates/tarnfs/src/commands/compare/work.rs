//! The threads that compare files, links and devices. Each takes some that follow each other in the archive, so that
//! what they share is decoded once.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use tarnfs_format::Shown;
use tarnfs_tree::{Device, Error, Kind, Node, Tree, with_memory};

use super::content::{Buffers, Unreadable, first_difference, first_difference_from};
use super::difference::Difference;
use super::lines::Turn;
use super::side::{FileNumber, Readable, Seen, Side};
use super::{Comparison, Linked, Stop, Unread};
use crate::commands::extract::plan::{Item, Items, What, take};
use crate::commands::window::Window;
use crate::exit::Code;

/// Folders of the other side that one thread has open.
const MOST_FOLDERS: usize = 8;

/// Compares all of them, on so many threads.
pub(super) fn run<S: Side>(comparison: &Comparison<'_, S>, items: Items, threads: usize) -> Result<(), Stop> {
    let items = Mutex::new(items);
    let stopped = Mutex::new(None);
    let work = || {
        let mut worker = Worker {
            comparison,
            folders: HashMap::new(),
            uses: 0,
            buffers: Buffers::default(),
            window: Window::default(),
            first: None,
        };
        while !comparison.is_stopped.load(Ordering::Relaxed) {
            match worker.some(&items) {
                Ok(true) => {}
                Ok(false) => break,
                Err(stop) => {
                    comparison.is_stopped.store(true, Ordering::Relaxed);
                    stopped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(stop);
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where there can be no more threads, fewer do it all.
            if std::thread::Builder::new().name("comparing".into()).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    stopped.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)?;
    comparison.check()
}

struct Worker<'a, S: Side> {
    comparison: &'a Comparison<'a, S>,
    folders: HashMap<Node, (Arc<S::Folder>, u64)>,
    uses: u64,
    buffers: Buffers,
    window: Window,
    /// What was compared last, if it has more names: its first name, and what that is at the other side.
    first: Option<(Node, FileNumber, Node, Vec<u8>)>,
}

impl<S: Side> Worker<'_, S> {
    /// Compares those that come next. False if there are no more.
    fn some(&mut self, items: &Mutex<Items>) -> Result<bool, Stop> {
        let comparison = self.comparison;
        comparison.lines.check()?;
        take(
            items,
            |error| comparison.cannot_note(&error),
            || comparison.lines.turn(),
            |turn, item| {
                comparison.check()?;
                self.one(item, turn)?;
                comparison.progress.entries.fetch_add(1, Ordering::Relaxed);
                Ok(())
            },
        )
    }

    fn one(&mut self, item: &Item, turn: &mut Turn<'_>) -> Result<(), Stop> {
        match self.compare(item, turn) {
            Ok(()) => Ok(()),
            Err(error) => self.comparison.unread(&self.comparison.path_of(item.folder, &item.name), error),
        }
    }

    fn folder(&mut self, node: Node) -> Result<Arc<S::Folder>, Unread> {
        self.uses += 1;
        if let Some((folder, used)) = self.folders.get_mut(&node) {
            *used = self.uses;
            return Ok(Arc::clone(folder));
        }
        let deep = self.comparison.deep.lock().unwrap_or_else(PoisonError::into_inner);
        let known = deep.get(&node).and_then(|folder| self.comparison.side.copied(folder));
        drop(deep);
        let folder = if let Some(known) = known {
            Arc::new(known)
        } else {
            let names = self.comparison.tree.names_to(node).map_err(Unread::Archive)?;
            Arc::new(self.comparison.side.folder(&names).map_err(Unread::Other)?)
        };
        if self.folders.len() >= MOST_FOLDERS
            && let Some(oldest) = self.folders.iter().min_by_key(|(_, (_, used))| *used).map(|(node, _)| *node)
        {
            self.folders.remove(&oldest);
        }
        self.folders.insert(node, (Arc::clone(&folder), self.uses));
        Ok(folder)
    }

    fn compare(&mut self, item: &Item, turn: &mut Turn<'_>) -> Result<(), Unread> {
        let comparison = self.comparison;
        if self.first.as_ref().is_some_and(|(node, ..)| *node != item.node) {
            self.first = None;
        }
        let kind = kind_of(item.kind);
        let folder = match self.folder(item.folder) {
            // It was there a moment ago.
            Err(Unread::Other(Error::NotFound)) => None,
            folder => Some(folder?),
        };
        let seen = match &folder {
            Some(folder) => comparison.side.look(folder, &item.name).map_err(Unread::Other)?,
            None => None,
        };
        let mut add = |what: &Difference| comparison.add(turn, item.folder, &item.name, kind, what);
        let (Some(folder), Some(seen)) = (folder, seen) else {
            add(&Difference::OnlyInArchive);
            return Ok(());
        };
        if let (Kind::CharacterDevice(one), Kind::CharacterDevice(other))
        | (Kind::BlockDevice(one), Kind::BlockDevice(other)) = (kind, seen.kind)
        {
            if one != other {
                add(&Difference::Device(one, other));
            }
        } else if kind != seen.kind {
            add(&Difference::Kind(seen.kind));
            return Ok(());
        }
        if comparison.what.links
            && comparison.keeps.has_links(&item.stored)
            && seen.has_links
            && self.is_linked(item, &seen, &mut add)
        {
            // It was compared by its first name.
            return Ok(());
        }
        match item.kind {
            What::File => self.content(item, &folder, &seen, &mut add)?,
            What::Symlink => {
                let archive = comparison.tree.read_link(item.node).map_err(Unread::Archive)?;
                let other = comparison.side.target(&folder, &item.name, &seen).map_err(Unread::Other)?;
                if archive != other {
                    add(&Difference::Target(archive, other));
                }
            }
            _ => {}
        }
        let shown = Shown { kind, mode: item.mode, uid: item.uid, gid: item.gid, mtime: item.mtime };
        comparison.attributes((item.node, &item.stored), shown, (&folder, &item.name, &seen), add)
    }

    /// Compares what is one file. True if this name is one more of what was compared.
    fn is_linked(&mut self, item: &Item, seen: &Seen, mut add: impl FnMut(&Difference)) -> bool {
        let comparison = self.comparison;
        if seen.links > 1 {
            let (file, stored, node) = (seen.file, item.stored, item.node);
            comparison.note_linked(Linked { file, stored, node, folder: item.folder, name: item.name.clone() });
        }
        if item.links < 2 {
            return false;
        }
        match &self.first {
            Some((_, file, ..)) if *file == seen.file => {
                if item.kind == What::File {
                    comparison.progress.bytes.fetch_add(item.size, Ordering::Relaxed);
                }
                return true;
            }
            Some((_, _, folder, name)) => add(&Difference::NotLinked(comparison.path_of(*folder, name))),
            None => self.first = Some((item.node, seen.file, item.folder, item.name.clone())),
        }
        false
    }

    fn content(
        &mut self,
        item: &Item,
        folder: &S::Folder,
        seen: &Seen,
        mut add: impl FnMut(&Difference),
    ) -> Result<(), Unread> {
        let comparison = self.comparison;
        let differs = item.size != seen.size;
        // Of a compressed file of which something is missing, the size says nothing.
        let may_be_cut = comparison.is_a_file || differs && item.stored.stream != 0;
        if may_be_cut && !comparison.force && self.is_damaged(item)? {
            let what = "is damaged; --force compares what of it can be decoded";
            let path = comparison.path_of(item.folder, &item.name);
            comparison.report.of_file(&path, Code::Damaged, what);
            return Ok(());
        }
        if differs {
            comparison.progress.bytes.fetch_add(item.size, Ordering::Relaxed);
            add(&Difference::Size(item.size, seen.size));
            return Ok(());
        }
        if !comparison.what.content || item.size == 0 {
            return Ok(());
        }
        let first = match self.passed(item, seen)? {
            Some(first) => {
                comparison.progress.bytes.fetch_add(item.size, Ordering::Relaxed);
                first
            }
            None => self.read(item, folder, seen, &mut add)?,
        };
        if let Some(at) = first {
            add(&Difference::Content(at));
        }
        Ok(())
    }

    /// True if something of it is known to be damaged or missing.
    fn is_damaged(&self, item: &Item) -> Result<bool, Unread> {
        let tree = self.comparison.tree;
        Ok(tree.may_be_damaged() && tree.damage(item.node).map_err(Unread::Archive)?.is_some())
    }

    /// What was found while the archive was decoded, if that is right.
    #[allow(clippy::option_option, reason = "the inner one is what was found")]
    fn passed(&self, item: &Item, seen: &Seen) -> Result<Option<Option<u64>>, Unread> {
        let comparison = self.comparison;
        let (Some(passing), 0, Some(header)) = (comparison.passing, item.stored.stream, item.stored.header) else {
            return Ok(None);
        };
        if self.is_damaged(item)? {
            return Ok(None);
        }
        Ok(passing.first(header, seen))
    }

    /// Reads both.
    fn read(
        &mut self,
        item: &Item,
        folder: &S::Folder,
        seen: &Seen,
        mut add: impl FnMut(&Difference),
    ) -> Result<Option<u64>, Unread> {
        let comparison = self.comparison;
        let file = comparison.side.open(folder, &item.name, seen).map_err(Unread::Other)?;
        let small = comparison.stream.and_then(|stream| self.window.content(stream, &item.stored, item.size));
        let first = if let Some(content) = small {
            comparison.progress.bytes.fetch_add(item.size, Ordering::Relaxed);
            let first = first_difference_from(content, &file, &mut self.buffers);
            first.map_err(|error| Unread::Other(error.into()))?
        } else {
            let open = || comparison.tree.open_stored(item.node, &item.stored, item.size);
            let source = with_memory(comparison.cancel, open).map_err(Unread::Archive)?;
            let (archive, other) = ((&*source, !item.stored.is_plain), (&file, seen.is_sparse));
            let first = first_difference(archive, other, &mut self.buffers, comparison.cancel, comparison.progress);
            first.map_err(|error| match error {
                Unreadable::Archive(error) => Unread::Archive(error.into()),
                Unreadable::Other(error) => Unread::Other(error.into()),
            })?
        };
        if !file.is_still(seen).map_err(|error| Unread::Other(error.into()))? {
            add(&Difference::Changed);
        }
        if comparison.force
            && let Some(what) = comparison.tree.xattr(item.node, super::DAMAGED).map_err(Unread::Archive)?
        {
            let what = format!("is damaged, and was compared as it is: {}", String::from_utf8_lossy(&what));
            comparison.report.of_file(&comparison.path_of(item.folder, &item.name), Code::Damaged, &what);
        }
        Ok(first)
    }
}

fn kind_of(what: What) -> Kind {
    let device = |major, minor| Device { major, minor };
    match what {
        What::File => Kind::File,
        What::Symlink => Kind::Symlink,
        What::Character(major, minor) => Kind::CharacterDevice(device(major, minor)),
        What::Block(major, minor) => Kind::BlockDevice(device(major, minor)),
        What::Fifo => Kind::Fifo,
        What::Socket => Kind::Socket,
    }
}
