//! The end of the pass: the records are sorted, and go to their tables.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use tarnfs_format::name;

use super::clashes::Bits;
use super::group::{Grouping, Totals};
use super::later::Later;
use super::latest::{Latest, innermost};
use super::output::{self, Output, Roots, Shape};
use super::pages::{Pages, Value};
use super::record::{self, Record, Tag};
use super::temporary::Temporary;
use super::{
    BLOCK, Destination, IN_MEMORY, MOST_NAMED, PAGE, SMALL, SMALL_PAGE, Writer, classes, folders, out_of_memory,
};
use crate::own::made::Made;
use crate::own::{self, Known, schema};
use crate::sqlite::{failed, open_for_writing, prepare};
use crate::store::Store;
use crate::vfs::Opened;
use crate::{Error, Index, Summary};
use folders::ROOT;

impl Writer {
    /// Writes the index and opens it. Of `summary`, `files`, `folders`, `bytes` and `has_*` are filled in here, and
    /// hard links without a target are added to `notes`.
    pub fn finish(self, summary: Summary, destination: &Destination) -> Result<Arc<dyn Index>, Error> {
        let mut choose = |path: &Path| Some(path.to_path_buf());
        self.finish_at_first(summary, std::slice::from_ref(destination), &mut choose, &mut |_, _| {})
    }

    /// As [`Writer::finish`], at the first of `destinations` where it succeeds; each failure is told to `failed`. The
    /// error of the last one if all fail. When an index is complete, `choose` is asked which file in the folder of its
    /// destination it replaces, if any: another process may have made one meanwhile.
    #[allow(clippy::needless_pass_by_value, reason = "a summary is made for one index")]
    pub fn finish_at_first(
        mut self,
        summary: Summary,
        destinations: &[Destination],
        choose: &mut dyn FnMut(&Path) -> Option<PathBuf>,
        failed: &mut dyn FnMut(&Destination, &Error),
    ) -> Result<Arc<dyn Index>, Error> {
        let mut last = Error::Io(io::Error::new(io::ErrorKind::InvalidInput, "no place for the index was given"));
        for destination in destinations {
            match self.write(&summary, destination, choose) {
                Ok(index) => return Ok(index),
                Err(error) if self.cancel.is_cancelled() => return Err(error),
                Err(error) => {
                    failed(destination, &error);
                    last = error;
                }
            }
        }
        Err(last)
    }

    fn write(
        &mut self,
        summary: &Summary,
        destination: &Destination,
        choose: &mut dyn FnMut(&Path) -> Option<PathBuf>,
    ) -> Result<Arc<dyn Index>, Error> {
        match destination {
            Destination::File(path) => {
                let mut temporary = Temporary::create(path, self.archive.as_ref())?;
                while !self.fill(summary, &Opened::file(temporary.file()?, true), PAGE)? {
                    drop(temporary);
                    temporary = Temporary::create(path, self.archive.as_ref())?;
                }
                let finished = temporary.reopen()?;
                temporary.rename_to(choose)?;
                own::open_store(Arc::new(Store::File(finished)), std::mem::take(&mut self.known))
            }
            Destination::Memory if !self.overflow.has_disk() => {
                self.write_without_name(summary, &|this| Ok(this.overflow.without_disk()))
            }
            Destination::Memory => {
                let store = |this: &Self| {
                    let most = this.budget.limit() / IN_MEMORY;
                    if this.bytes() > most as u64 {
                        tarnfs_source::temporary_file().map(Store::File)
                    } else {
                        Ok(Store::within(&this.budget, most))
                    }
                };
                match self.write_without_name(summary, &store) {
                    Err(error) if !self.cancel.is_cancelled() => {
                        log::debug!("all of the index goes to memory, nothing to a temporary file: {error}");
                        self.write_without_name(summary, &|this| Ok(this.overflow.without_disk()))
                    }
                    done => done,
                }
            }
        }
    }

    fn write_without_name(
        &mut self,
        summary: &Summary,
        store: &dyn Fn(&Self) -> io::Result<Store>,
    ) -> Result<Arc<dyn Index>, Error> {
        // It has the budget that the index in memory comes from, most of it unused in a small archive.
        self.sorter.shrink();
        loop {
            let store = Arc::new(store(self).map_err(Error::Io)?);
            let page = if self.bytes() > SMALL { PAGE } else { SMALL_PAGE };
            if self.fill(summary, &Opened::new(Arc::clone(&store), true), page)? {
                store.complete();
                return own::open_store(store, std::mem::take(&mut self.known));
            }
        }
    }

    /// Writes everything into an empty file. False if that has to be done again, with another one: there are records
    /// now that were missing.
    fn fill(&mut self, summary: &Summary, file: &Opened, page: u32) -> Result<bool, Error> {
        let mut summary = summary.clone();
        self.links.reset();
        self.folders.reset();
        self.classes.arrange();
        let unit = if self.is_in_blocks { BLOCK } else { 1 };
        let connection = open_for_writing(file, page)?;
        connection.execute_batch("BEGIN").map_err(failed)?;
        schema::create(&connection)?;
        connection.execute_batch("COMMIT").map_err(failed)?;
        let roots = Roots(schema::roots(&connection)?);
        let mut pages = Pages::behind(file.store(), page)?;
        let mut later = Later::new(&self.overflow);
        // The same numbers as where none is missing.
        let records = u32::try_from(self.completed.unwrap_or(self.sorter.records())).map_err(io::Error::other)?;
        let xattr_names = self.places_of_xattr_names();
        let hidden = self.hidden()?;
        let bytes_of_others = self.folders.bytes().saturating_add(self.bytes_of_archives());
        let most_memory = self.most_memory;
        self.known = Known::default();
        let made = if self.keeps_rows { Made::new(&self.budget) } else { None };
        let shape = Shape { classes: &mut self.classes, xattr_names: &xattr_names, large: &self.builder.large, unit };
        let mut output = Output::new((&mut pages, &roots), &mut later, shape, made)?;
        let mut grouping = Grouping::new(&mut self.folders, &mut self.links, &mut output, records);
        let cancel = &self.cancel;
        let mut taken = 0_u32;
        self.sorter.sorted::<Error>(|record| {
            taken = taken.wrapping_add(1);
            if taken.is_multiple_of(1024) {
                cancel.check()?;
                let bytes = grouping.links.bytes();
                if grouping.links.beyond_limit().is_some() || bytes.saturating_add(bytes_of_others) > most_memory {
                    return Err(out_of_memory(&format!("the hard links take {} MiB", bytes >> 20)));
                }
            }
            match &hidden {
                Some(hidden) if hidden.hides(&record) => Ok(()),
                // Of a folder in which there is something else, too. What came from that archive makes none of it.
                Some(hidden) if record.tag == Tag::Marker && hidden.is_gone(&record) => grouping.take_number(&record),
                _ => grouping.take(record),
            }
        })?;
        let (mut totals, behind) = grouping.finish()?;
        self.known.rows = output.finish()?;
        // Of what is hidden, no row says how long it is.
        self.known.longest_in_pieces = hidden.is_none().then_some(self.longest_in_pieces);
        let may_be_missing = self.clashes.is_out_of_order() || hidden.is_some();
        if may_be_missing && !self.is_complete && !behind.is_empty() {
            self.completed.get_or_insert(self.sorter.records());
            let is_more = self.complete(&behind, hidden.as_ref())?;
            // Else it is done again at the next destination: what was added already changes nothing.
            self.is_complete = true;
            if is_more {
                return Ok(false);
            }
        }
        self.links.resolve();
        for folder in self.links.folders_that_show() {
            totals.folders = totals.folders.saturating_add(1);
            let parent = self.folders.get(folder).parent;
            if let Some(parent) = self.folders.get_mut(parent) {
                parent.subfolders = parent.subfolders.saturating_add(1);
            }
        }
        self.write_folders(&mut pages, &roots)?;
        pages.finish()?;
        connection.execute_batch("BEGIN").map_err(failed)?;
        later.insert(&connection, &self.cancel)?;
        self.write_shared(&connection, &xattr_names)?;
        let unresolved = self.write_links(&connection, totals, unit, &mut summary)?;
        self.layers.write(&connection)?;
        summary.has_xattrs = self.has_xattrs;
        summary.has_acls = self.has_acls;
        summary.folders = totals.folders;
        let stream = summary.layers.last().map_or(summary.archive.length, |layer| layer.decoded_length);
        if self.reach.own > stream && summary.notes.is_empty() {
            summary.notes.push((stream, "the archive ends inside the content of a file".to_owned()));
        }
        summary.notes.extend(unresolved);
        summary.notes.extend(self.left_out.iter().cloned());
        let is_cut = self.reach.own > stream || self.reach.is_nested_cut;
        schema::write_summary(&connection, &summary, unit, is_cut)?;
        connection.execute_batch("COMMIT").map_err(failed)?;
        connection.close().map_err(|(_, error)| failed(error))?;
        Ok(true)
    }

    /// Adds markers of the folders `behind` something else at the last place where each is named. True if there are
    /// such.
    fn complete(&mut self, behind: &Bits, hidden: Option<&Hidden>) -> Result<bool, Error> {
        let others = self.links.bytes().saturating_add(self.bytes_of_archives());
        let room = self.most_memory.saturating_sub(self.folders.bytes()).saturating_sub(others);
        let (folders, cancel) = (&self.folders, &self.cancel);
        let (mut latest, mut taken) = (Latest::default(), 0_u32);
        // Those of one folder often come together.
        let mut last = (ROOT, None);
        self.sorter.each::<Error>(|record| {
            taken = taken.wrapping_add(1);
            if taken.is_multiple_of(1024) {
                cancel.check()?;
            }
            if record.tag != Tag::Entry || hidden.is_some_and(|hidden| hidden.is_gone(&record)) {
                return Ok(());
            }
            if record.folder != last.0 {
                last = (record.folder, innermost(behind, folders, record.folder));
            }
            if let Some(folder) = last.1 {
                latest.note(folder, &record);
                if latest.bytes() > room {
                    let mib = latest.bytes() >> 20;
                    return Err(out_of_memory(&format!(
                        "folders that something else shows in place of take {mib} MiB"
                    )));
                }
            }
            Ok(())
        })?;
        let places = latest.complete(behind, folders);
        let is_any = !places.is_empty();
        (self.builder.origin, self.stream) = (0, 0);
        for (number, mut place) in places {
            cancel.check()?;
            let folder = self.folders.get(number);
            // All but the last number, which ends with the first byte of its kind.
            let end = place.iter().rev().skip(1).position(|byte| byte & 0x80 == 0);
            let around = place.len().saturating_sub(end.map_or(place.len(), |end| end.saturating_add(1)));
            let rank = record::read_number(&mut place.get(around..).unwrap_or_default());
            place.truncate(around);
            self.builder.around = place;
            let marker = self.builder.number(folder.parent, self.folders.name(&folder), Tag::Marker, rank, number);
            self.sorter.push(marker)?;
        }
        self.builder.around.clear();
        Ok(is_any)
    }

    /// What does not show because its archive was replaced, if there is such.
    fn hidden(&mut self) -> Result<Option<Hidden>, Error> {
        let Some(gone) = self.origins.gone() else { return Ok(None) };
        let mut hidden = Hidden { gone, has_something: vec![false; self.folders.all().len()] };
        let (folders, cancel) = (&self.folders, &self.cancel);
        self.sorter.sorted::<Error>(|record| {
            cancel.check()?;
            if record.tag == Tag::Entry && !hidden.is_gone(&record) {
                hidden.note(record.folder);
                if record.is_folder()
                    && let Some(own) = folders.find(record.folder, record.name)
                {
                    hidden.note(own);
                }
            }
            Ok(())
        })?;
        // A folder's number is greater than its parent's.
        for (number, folder) in folders.all().iter().enumerate().rev() {
            if hidden.has_something.get(number) == Some(&true) {
                hidden.note(folder.parent);
            }
        }
        Ok(Some(hidden))
    }

    fn write_folders(&mut self, pages: &mut Pages<'_>, roots: &Roots) -> Result<(), Error> {
        let mut table = roots.table("folders", pages)?;
        let shown = |folder: &folders::Folder| folder.is_real && folder.node != 0;
        let mut order: Vec<&folders::Folder> = self.folders.all().iter().filter(|folder| shown(folder)).collect();
        order.sort_unstable_by_key(|folder| folder.node);
        for folder in order {
            let parent = self.folders.get(folder.parent).node;
            let folders::Folder { node, first, count, subfolders, .. } = *folder;
            let [parent, first, count, subfolders] = [parent, first, count, subfolders].map(i64::from);
            let number = Value::Integer;
            let values = [Value::Null, number(parent), number(first), number(count), number(subfolders)];
            table.push(pages, node, &values)?;
            if let Some(made) = &mut self.known.rows {
                made.push_folder(node, [parent, first, count, subfolders]);
            }
        }
        table.finish(pages)?;
        self.known.rows = self.known.rows.take().and_then(Made::complete);
        Ok(())
    }

    /// Writes what hard links share, and says which of them lead nowhere.
    fn write_links(
        &mut self,
        connection: &Connection,
        totals: Totals,
        unit: u64,
        summary: &mut Summary,
    ) -> Result<Vec<(u64, String)>, Error> {
        (summary.files, summary.bytes) = (totals.files, totals.bytes);
        // Those without a node were in an archive that was replaced.
        let mut links: Vec<(u32, u32)> = self.links.resolved().filter(|&(node, _)| node != 0).collect();
        links.sort_unstable();
        let mut insert = prepare(connection, "INSERT INTO hard_links VALUES (?, ?)")?;
        let sql = "SELECT header, name, stream FROM entries JOIN classes USING (class) WHERE entries.rowid = ?";
        let mut name_of = prepare(connection, sql)?;
        let mut lost = Vec::new();
        let mut lost_count = 0_u64;
        for &(node, shared) in &links {
            insert.execute((node, shared)).map_err(failed)?;
            if shared == 0 && node < totals.first_replaced {
                lost_count = lost_count.saturating_add(1);
                if lost.len() < MOST_NAMED {
                    let (header, name, stream): (i64, Vec<u8>, u32) =
                        name_of.query_row([node], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(failed)?;
                    let name = name::excerpt(&name).to_string();
                    // A note's byte is one of the archive: of a nested stream, the one at which it begins there.
                    let (at, place) = match self.starts_around(stream).last() {
                        Some(&start) => (start, " in the compressed file that begins there"),
                        None => ((header as u64).saturating_mul(unit), ""),
                    };
                    lost.push((
                        at,
                        format!("the hard link {name}{place} leads to nothing in the archive; it is left out"),
                    ));
                }
            }
        }
        if let Some(more) = lost_count.checked_sub(MOST_NAMED as u64).filter(|&more| more > 0) {
            lost.push((0, format!("{more} more hard links lead to nothing in the archive")));
        }
        let mut shared: Vec<u32> = links
            .into_iter()
            .filter(|&(node, shared)| node < totals.first_replaced && shared != 0)
            .map(|(_, shared)| shared)
            .collect();
        shared.sort_unstable();
        let mut insert = prepare(connection, "INSERT INTO link_counts VALUES (?, ?)")?;
        let mut size_of = prepare(connection, "SELECT size FROM replaced WHERE node = ?")?;
        for names in shared.chunk_by(|left, right| left == right) {
            let Some(&node) = names.first() else { continue };
            let mut count = names.len() as u64;
            if node < totals.first_replaced {
                count = count.saturating_add(1);
            } else {
                // A replaced file that a link still shows.
                let size: i64 = size_of.query_row([node], |row| row.get(0)).map_err(failed)?;
                summary.files = summary.files.saturating_add(1);
                summary.bytes = summary.bytes.saturating_add(size as u64);
            }
            insert.execute((node, count as i64)).map_err(failed)?;
        }
        Ok(lost)
    }

    /// In the order of the names, however they came.
    fn places_of_xattr_names(&self) -> Vec<u32> {
        let known = self.xattr_names.known();
        let mut order: Vec<u32> = (0..known.len() as u32).collect();
        order.sort_unstable_by_key(|&at| known.get(at as usize));
        classes::places(order.into_iter())
    }

    fn write_shared(&self, connection: &Connection, xattr_names: &[u32]) -> Result<(), Error> {
        self.classes.write(connection)?;
        let mut insert = prepare(connection, "INSERT INTO coders VALUES (?, ?)")?;
        let in_order: Vec<u32> = (0..self.coders.count()).collect();
        self.coders
            .each_in_order(&in_order, &mut |number, coder| insert.execute((number, coder)).map(drop).map_err(failed))?;
        let mut insert = prepare(connection, "INSERT INTO xattr_names VALUES (?, ?)")?;
        self.xattr_names.each_in_order(xattr_names, &mut |number, name| {
            let place = output::place_of(xattr_names, number);
            insert.execute((place, name)).map(drop).map_err(failed)
        })
    }
}

/// What came from archives that were replaced.
#[derive(Debug)]
struct Hidden {
    /// Of each archive whether it was.
    gone: Vec<bool>,
    /// Of each folder whether anything else names it, or lies in it.
    has_something: Vec<bool>,
}

impl Hidden {
    fn is_gone(&self, record: &Record<'_>) -> bool {
        self.gone.get(record.origin as usize).copied().unwrap_or_default()
    }

    fn note(&mut self, folder: folders::Number) {
        if let Some(place) = self.has_something.get_mut(folder as usize) {
            *place = true;
        }
    }

    fn hides(&self, record: &Record<'_>) -> bool {
        match record.tag {
            Tag::Marker => {
                let number = record.number();
                number != ROOT && self.has_something.get(number as usize) == Some(&false)
            }
            Tag::Request | Tag::Entry => self.is_gone(record),
        }
    }
}
