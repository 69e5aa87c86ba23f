//! What shows under a name when an archive has several entries for it.
//!
//! The records of one name come together, in the order of the archive. The last one shows, whatever it is; the earlier
//! ones are kept as *replaced*:
//! - of several entries for one folder the last one's attributes show, and it holds what all of them brought;
//! - an entry "through" something that is no folder (`a/b` where `a` is a symbolic link) makes a folder of it in the
//!   tree, which counts as one that no entry names, unless an entry names it before anything else takes its place
//!   again;
//! - a folder with something in it that does not show has a row all the same, behind what shows in its place: what is
//!   in it is found by that row.
//!
//! A hard link is a name of the latest entry of its target's path, folders left aside, that stands before the link;
//! only if there is none, of the last one that follows. A link that leads nowhere leaves in place what its name showed
//! before.

use crate::Error;

use super::clashes::Bits;
use super::folders::{self, Folders, ROOT};
use super::links::{self, Links, Target};
use super::output::Output;
use super::record::{Attributes, Record, Tag};

/// Makes rows of sorted records.
pub(super) struct Grouping<'w, 'c, 's> {
    pub(super) folders: &'w mut Folders,
    pub(super) links: &'w mut Links,
    pub(super) output: &'w mut Output<'c, 's>,
    /// The next node that shows, and the next one that is replaced.
    next: u32,
    next_replaced: u32,
    group: Group,
    totals: Totals,
    /// Folders with something in them in whose place something else shows.
    behind: Bits,
}

/// What is known of the records of one name so far.
#[derive(Default)]
struct Group {
    folder: folders::Number,
    name: Vec<u8>,
    /// The folder of this name.
    own: Option<folders::Number>,
    /// The record that shows unless another one comes; empty if there is none.
    candidate: Vec<u8>,
    /// True if a folder shows that no entry names, unless something else comes.
    is_implied: bool,
    /// The entry of the last folder that was replaced; empty if no entry named it.
    folder_entry: Vec<u8>,
    /// The latest entry that is no folder, where it has been replaced.
    latest: Option<Target>,
    /// Links that are names of the candidate.
    waiting: Vec<links::Number>,
    /// Links before which there was nothing.
    early: Vec<links::Number>,
}

/// Sums over what shows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) files: u64,
    pub(super) folders: u64,
    pub(super) bytes: u64,
    /// Nodes below this one show.
    pub(super) first_replaced: u32,
}

impl<'w, 'c, 's> Grouping<'w, 'c, 's> {
    /// `records` is how many records come at most: replaced entries are numbered behind them.
    pub(super) fn new(
        folders: &'w mut Folders,
        links: &'w mut Links,
        output: &'w mut Output<'c, 's>,
        records: u32,
    ) -> Self {
        let first_replaced = records.saturating_add(2);
        let totals = Totals { first_replaced, ..Totals::default() };
        Self {
            folders,
            links,
            output,
            next: 1,
            next_replaced: first_replaced,
            group: Group::default(),
            totals,
            behind: Bits::default(),
        }
    }

    /// Takes the next record.
    pub(super) fn take(&mut self, record: Record<'_>) -> Result<(), Error> {
        self.begin(&record)?;
        match record.tag {
            Tag::Marker => self.marker(record.number())?,
            Tag::Request => self.request(record.number()),
            Tag::Entry => self.entry(record)?,
        }
        Ok(())
    }

    /// Takes a marker that says nothing of where there is a folder, only which one it is.
    pub(super) fn take_number(&mut self, record: &Record<'_>) -> Result<(), Error> {
        self.begin(record)?;
        self.group.own = Some(record.number());
        Ok(())
    }

    fn begin(&mut self, record: &Record<'_>) -> Result<(), Error> {
        if record.folder != self.group.folder || record.name != self.group.name {
            self.end_group()?;
            self.group.folder = record.folder;
            self.group.name.clear();
            self.group.name.extend_from_slice(record.name);
        }
        Ok(())
    }

    /// From here on there is a folder.
    fn marker(&mut self, number: folders::Number) -> Result<(), Error> {
        self.group.own = Some(number);
        let candidate = &self.group.candidate;
        let is_folder = !candidate.is_empty() && Record::read(candidate).is_folder();
        if !is_folder && !self.group.is_implied {
            self.replace_candidate()?;
            self.group.is_implied = true;
        }
        Ok(())
    }

    /// Ends with the last record. The folders in which there is something, and in whose place something else shows.
    pub(super) fn finish(mut self) -> Result<(Totals, Bits), Error> {
        self.end_group()?;
        Ok((self.totals, self.behind))
    }

    fn request(&mut self, link: links::Number) {
        let candidate = &self.group.candidate;
        if !candidate.is_empty() && !Record::read(candidate).is_folder() {
            self.group.waiting.push(link);
        } else if let Some(target) = self.group.latest {
            self.links.set_target(link, target);
        } else {
            self.group.early.push(link);
        }
    }

    fn entry(&mut self, record: Record<'_>) -> Result<(), Error> {
        let is_folder = record.is_folder();
        if self.group.own == Some(ROOT) && !is_folder {
            // The root is a folder, whatever the archive says of it.
            let attributes = record.attributes();
            let before = self.group.latest;
            self.group.latest = Some(self.replaced(record, attributes)?);
            self.set_fallback(attributes, before);
            return Ok(());
        }
        // The entry of a folder that was only known by what is in it so far.
        let before = if self.group.is_implied && is_folder { None } else { self.replace_candidate()? };
        self.group.is_implied = false;
        if before.is_some() {
            self.set_fallback(record.attributes(), before);
        }
        self.group.candidate.extend_from_slice(record.bytes);
        Ok(())
    }

    /// What would have shown does not; returns it, unless it is a folder.
    fn replace_candidate(&mut self) -> Result<Option<Target>, Error> {
        if std::mem::take(&mut self.group.is_implied) {
            let node = self.next_replaced;
            self.next_replaced = node.saturating_add(1);
            let folder = self.folders.get(self.group.folder).node;
            self.output.replaced_folder(node, folder, &self.group.name)?;
            self.group.folder_entry.clear();
            return Ok(None);
        }
        if self.group.candidate.is_empty() {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.group.candidate);
        let earlier = Record::read(&bytes);
        let attributes = earlier.attributes();
        let target = self.replaced(earlier, attributes)?;
        for link in std::mem::take(&mut self.group.waiting) {
            self.links.set_target(link, target);
        }
        if attributes.is_folder {
            self.group.folder_entry = bytes;
            return Ok(None);
        }
        self.group.latest = Some(target);
        self.group.candidate = bytes;
        self.group.candidate.clear();
        Ok(Some(target))
    }

    fn set_fallback(&mut self, attributes: Attributes<'_>, before: Option<Target>) {
        if let (Some(link), Some(before)) = (attributes.hard_link, before) {
            self.links.set_fallback(link, before);
        }
    }

    /// Writes an entry that does not show; what links to it are names of.
    fn replaced(&mut self, record: Record<'_>, attributes: Attributes<'_>) -> Result<Target, Error> {
        let node = self.next_replaced;
        self.next_replaced = node.saturating_add(1);
        let folder = self.folders.get(record.folder).node;
        // Whether a link is a name of it may only be known later.
        self.output.replaced(node, folder, &record, attributes, !attributes.is_folder)?;
        Ok(match attributes.hard_link {
            Some(link) => {
                self.links.set_node(link, node);
                Target::Link(link)
            }
            None => Target::Node(node),
        })
    }

    /// The next node that shows, in the folder of the group.
    fn next_node(&mut self) -> u32 {
        let node = self.next;
        self.next = node.saturating_add(1);
        if let Some(parent) = self.folders.get_mut(self.group.folder).filter(|_| node != 1) {
            if parent.count == 0 {
                parent.first = node;
            }
            parent.count = parent.count.saturating_add(1);
        }
        node
    }

    /// Writes a folder that something else shows in place of.
    fn folder_behind(&mut self, own: folders::Number) -> Result<(), Error> {
        let node = self.next_node();
        if let Some(folder) = self.folders.get_mut(own) {
            folder.node = node;
        }
        if self.group.folder_entry.is_empty() {
            return self.output.implied_folder(node, &self.group.name);
        }
        let record = Record::read(&self.group.folder_entry);
        self.output.entry(node, &record, record.attributes(), false)
    }

    fn end_group(&mut self) -> Result<(), Error> {
        if self.group.candidate.is_empty() && !self.group.is_implied {
            if self.group.own.is_none() {
                // Only links to what is not in the archive.
                self.group.early.clear();
                return Ok(());
            }
            self.group.is_implied = true;
        }
        let bytes = std::mem::take(&mut self.group.candidate);
        let record = Record::read(&bytes);
        let attributes = (!bytes.is_empty()).then(|| record.attributes());
        let is_folder = attributes.is_none_or(|attributes| attributes.is_folder);
        let own = self.group.own.take();
        if let (Some(own), false) = (own, is_folder) {
            // Behind a link, since that may lead nowhere.
            let link = attributes.and_then(|attributes| attributes.hard_link);
            let has_children = self.folders.get(own).has_children;
            if link.is_some() || has_children {
                self.folder_behind(own)?;
            }
            if has_children {
                self.behind.set(own, true);
            }
            if let Some(link) = link {
                self.links.set_folder(link, own);
            }
        }
        let node = self.next_node();
        let group = &mut self.group;
        if let Some(parent) = self.folders.get_mut(group.folder).filter(|_| node != 1) {
            parent.subfolders = parent.subfolders.saturating_add(u32::from(is_folder));
        }
        if let Some(folder) = own.filter(|_| is_folder).and_then(|own| self.folders.get_mut(own)) {
            folder.node = node;
        }
        let shown = match attributes {
            Some(Attributes { hard_link: Some(link), .. }) => Some(Target::Link(link)),
            Some(attributes) if !attributes.is_folder => Some(Target::Node(node)),
            _ => None,
        };
        let has_names = !group.waiting.is_empty() || !group.early.is_empty();
        for link in group.waiting.drain(..) {
            if let Some(target) = shown {
                self.links.set_target(link, target);
            }
        }
        for link in group.early.drain(..) {
            if let Some(target) = shown.or(group.latest) {
                self.links.set_target(link, target);
            }
        }
        group.latest = None;
        group.is_implied = false;
        group.folder_entry.clear();
        match attributes {
            None => self.output.implied_folder(node, &group.name)?,
            Some(attributes) => {
                if let Some(link) = attributes.hard_link {
                    self.links.set_node(link, node);
                } else if !is_folder {
                    self.totals.files = self.totals.files.saturating_add(1);
                    self.totals.bytes = self.totals.bytes.saturating_add(attributes.size_of_file());
                }
                let may_be_shared = has_names && matches!(shown, Some(Target::Node(_)));
                self.output.entry(node, &record, attributes, may_be_shared)?;
            }
        }
        self.totals.folders = self.totals.folders.saturating_add(u64::from(is_folder));
        self.group.candidate = bytes;
        self.group.candidate.clear();
        Ok(())
    }
}
