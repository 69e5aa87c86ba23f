//! An index that was made with `-r`, for who has not asked for that: what archives in the archive hold is hidden.
//!
//! Where such an index shows a folder with what an archive holds, it keeps the archive itself as an entry that was
//! replaced. That entry is shown in place of the folder. It is only done where this is certain to be all that `-r` has
//! changed. Nothing else may be in such a folder, no hard link may lead into one, and nothing may have been found
//! broken. To know that, all rows are looked at once, which takes far less time than reading the archive.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use tarnfs_codec::{ChunkTable, Damage};
use tarnfs_format::{Coder, Kind, Nature, Piece, Xattrs};
use tarnfs_index::{Error, History, Holder, InPieces, Index, Nested, Node, Row, Shape, StreamTables, Summary};
use tarnfs_source::{Extent, SharedSource};

use super::single_file::is_single_file;

/// Replaced entries that are looked at, and kept in memory for that: some megabytes.
const MOST_REPLACED: u64 = 20_000;

/// Rows that are looked at: some seconds. Reading so large an archive again takes longer, but not by as much.
const MOST_ROWS: u64 = 8 << 20;

/// True if an index of the shape `made` may serve a call that wants `wanted`, with archives shown as files.
pub(super) fn may_serve(made: &Shape, wanted: &Shape) -> bool {
    let keeps_paths = |made: &Shape| {
        let rules = made.recursion.as_ref();
        made.transform.is_none() && rules.is_some_and(|rules| !rules.strip_extension && rules.transform.is_none())
    };
    // Of an archive that shows as a folder there are no hashes.
    let rest = Shape { recursion: None, hashes: Vec::new(), ..made.clone() };
    keeps_paths(made) && rest == *wanted
}

/// `index` with archives shown as files; `None` where it is not certain that this is what a pass without `-r` would
/// have found.
pub(super) fn shown(index: Arc<dyn Index>) -> Result<Option<Arc<dyn Index>>, Error> {
    let summary = index.summary();
    let rows = summary.files.saturating_add(summary.folders);
    if !summary.notes.is_empty() || rows > MOST_ROWS || index.replaced_count()? > MOST_REPLACED {
        return Ok(None);
    }
    let Some(found) = Survey::of(&*index, rows)? else { return Ok(None) };
    Ok(Some(Arc::new(ArchivesAsFiles { index, found })))
}

/// What shows in place of what.
#[derive(Debug, Default)]
struct Found {
    /// The archive that is shown in place of each folder with what it holds.
    files: HashMap<Node, Row>,
    /// How many names each of these archives has.
    names: HashMap<Node, u32>,
    /// How many of such folders lie in each folder.
    fewer: HashMap<Node, u32>,
}

/// An entry that was replaced, with its name.
type Replaced = (Vec<u8>, Row);

/// Where what an archive holds is stored: its bytes in the archive's own stream.
type Stored = Range<u64>;

/// A look at all rows.
struct Survey<'i> {
    index: &'i dyn Index,
    replaced: HashMap<Node, Vec<Replaced>>,
    /// Where each nested stream lies in the archive's own.
    nested: HashMap<u32, Stored>,
    /// What is in archives that are shown as files, and the folders that show it.
    inner: Nodes,
    /// What else is.
    outer: Nodes,
    found: Found,
    /// Rows that there may still be: an index that lies has the same ones in many folders.
    left: u64,
}

impl<'i> Survey<'i> {
    /// What is found in `index`, whose summary says that it has so many `rows`.
    fn of(index: &'i dyn Index, rows: u64) -> Result<Option<Found>, Error> {
        // In place of a compressed file may show what is in it, where a pass without `-r` shows the file: a document.
        let summary = index.summary();
        let may_be_document = tarnfs_format::by_name(&summary.format)
            .is_none_or(|format| !summary.layers.is_empty() && format.nature() == Nature::Document);
        if may_be_document && !is_single_file(index, summary.end)? {
            return Ok(None);
        }
        let (replaced, nested, inner, outer, found) = Default::default();
        // Names of one file count once in a summary.
        let left = rows.saturating_mul(2).saturating_add(1024);
        let mut survey = Self { index, replaced, nested, inner, outer, found, left };
        index.replaced(&mut |folder, name, row| {
            survey.replaced.entry(folder).or_default().push((name.to_vec(), row.clone()));
        })?;
        let mut waiting: Vec<(Node, Option<Stored>)> = vec![(Node::ROOT, None)];
        while let Some((folder, within)) = waiting.pop() {
            if !survey.folder(folder, within, &mut waiting)? {
                return Ok(None);
            }
        }
        Ok(survey.links()?.then_some(survey.found))
    }

    /// Looks at what is in `folder`; `within` is where the archive is stored that it belongs to, if it does to one.
    /// False if something is not as it should be. Folders in it go to `waiting`.
    fn folder(
        &mut self,
        folder: Node,
        within: Option<Stored>,
        waiting: &mut Vec<(Node, Option<Stored>)>,
    ) -> Result<bool, Error> {
        let mut replaced = self.replaced.remove(&folder).unwrap_or_default();
        let mut rows = Vec::new();
        let (mut streams, mut is_plain) = (HashSet::new(), true);
        let nodes = if within.is_some() { &mut self.inner } else { &mut self.outer };
        is_plain &= replaced.iter().all(|(_, row)| nodes.add(row.node));
        let names: HashSet<&[u8]> = replaced.iter().map(|(name, _)| name.as_slice()).collect();
        let left = &mut self.left;
        self.index.children(folder, 0, &mut |_, name, row| {
            *left = left.saturating_sub(1);
            is_plain &= *left > 0;
            match &within {
                Some(within) if row.stream == 0 => is_plain &= is_at(row, within),
                Some(_) => drop(streams.insert(row.stream)),
                None => is_plain &= row.stream == 0 || row.kind == Kind::Folder,
            }
            // Which side a folder is on shows when it is looked into.
            is_plain &= row.kind == Kind::Folder || nodes.add(row.node);
            // Few rows are kept: of what shows, only what has replaced something. Of folders their numbers are enough.
            if within.is_none() && names.contains(name) {
                rows.push((name.to_vec(), row.clone()));
            } else if row.kind == Kind::Folder {
                is_plain &= within.is_some() || row.stream == 0;
                waiting.push((row.node, within.clone()));
            }
            is_plain
        })?;
        is_plain &= nodes.add(folder);
        if let Some(within) = within {
            streams.extend(replaced.iter().map(|(_, row)| row.stream).filter(|&stream| stream != 0));
            is_plain &= replaced.iter().all(|(_, row)| row.stream != 0 || is_at(row, &within));
            for stream in streams {
                is_plain &= self.lies_in(stream, &within)?;
            }
            return Ok(is_plain);
        }
        for (name, row) in rows {
            let before: Vec<Row> = replaced.extract_if(.., |(of, _)| *of == name).map(|(_, row)| row).collect();
            let has = |kind: Kind| before.iter().any(|row| row.kind == kind);
            match (row.kind, before.as_slice()) {
                (Kind::Folder, [file, rest @ ..]) if file.kind == Kind::File => {
                    let within = file.body..file.body.saturating_add(file.size);
                    let is_stored_so = file.stream == 0 && !file.is_sparse && !file.has_pieces && file.size > 0;
                    for row in rest.iter().chain([&row]) {
                        is_plain &= row.kind == Kind::Folder && self.is_of(row, &within)?;
                    }
                    is_plain &= is_stored_so;
                    let fewer = self.found.fewer.entry(folder).or_default();
                    *fewer = fewer.saturating_add(1);
                    self.found.names.insert(file.node, 1);
                    self.found.files.insert(row.node, file.clone());
                    waiting.push((row.node, Some(within)));
                }
                (Kind::Folder, _) if !has(Kind::File) && row.stream == 0 => waiting.push((row.node, None)),
                // A folder with something in it that does not show, or archives and folders of one name.
                _ if row.kind == Kind::Folder || has(Kind::Folder) => return Ok(false),
                _ => {}
            }
        }
        // What is left has no name that shows.
        Ok(is_plain && replaced.is_empty())
    }

    /// True if `row` was found in the archive that is stored there, or is the folder that shows it.
    fn is_of(&mut self, row: &Row, within: &Stored) -> Result<bool, Error> {
        if row.stream == 0 { Ok(is_at(row, within)) } else { self.lies_in(row.stream, within) }
    }

    /// True if nested stream `number` lies there.
    fn lies_in(&mut self, number: u32, within: &Stored) -> Result<bool, Error> {
        let mut way = vec![number];
        let stored = loop {
            let last = way[way.len() - 1];
            if let Some(stored) = self.nested.get(&last) {
                break stored.clone();
            }
            let nested = self.index.nested(last)?;
            if nested.input == 0 {
                break nested.start..nested.start.saturating_add(nested.length);
            }
            way.push(nested.input);
        };
        // All of them: else a chain of many streams would be gone through once for each.
        self.nested.extend(way.into_iter().map(|number| (number, stored.clone())));
        Ok(within.start <= stored.start && stored.end <= within.end)
    }

    /// Counts the names of archives that are shown as files. False if a hard link leads from what is shown to what is
    /// not, or the other way.
    fn links(&mut self) -> Result<bool, Error> {
        if self.outer.meets(&self.inner) {
            return Ok(false);
        }
        let names = &mut self.found.names;
        self.index.hard_links(&mut |_, _, _, node| {
            if let Some(count) = names.get_mut(&node) {
                *count = count.saturating_add(1);
            }
        })?;
        let mut is_plain = true;
        self.index.replaced_links(&mut |folder, _, _, node| {
            let leads_astray = node.is_none_or(|node| names.contains_key(&node) || self.inner.has(node));
            is_plain &= !leads_astray && !self.inner.has(folder);
        })?;
        Ok(is_plain)
    }
}

/// Some of the nodes of an index, a bit for each.
#[derive(Debug, Default)]
struct Nodes(Vec<u64>);

impl Nodes {
    /// Behind all rows of an index that is looked at, what hard links are called among them.
    const MOST: u64 = 8 * MOST_ROWS;

    /// False if an index has no such node that is looked at.
    fn add(&mut self, node: Node) -> bool {
        let (word, bit) = Self::place(node);
        if node.0 >= Self::MOST {
            return false;
        }
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
        true
    }

    fn has(&self, node: Node) -> bool {
        let (word, bit) = Self::place(node);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn place(node: Node) -> (usize, u64) {
        (usize::try_from(node.0 / 64).unwrap_or(usize::MAX), 1 << (node.0 % 64))
    }

    /// True if one is among both.
    fn meets(&self, others: &Self) -> bool {
        self.0.iter().zip(&others.0).any(|(one, other)| one & other != 0)
    }
}

/// True if an entry of the archive's own stream lies there.
fn is_at(row: &Row, stored: &Stored) -> bool {
    row.header.is_none_or(|header| stored.contains(&header))
}

/// The index, as somebody sees it who has not asked for what is in archives.
#[derive(Debug)]
struct ArchivesAsFiles {
    index: Arc<dyn Index>,
    found: Found,
}

impl ArchivesAsFiles {
    /// What shows in place of `row`.
    fn shown(&self, mut row: Row) -> Row {
        if let Some(file) = self.found.files.get(&row.node) {
            row = file.clone();
        }
        if let Some(&names) = self.found.names.get(&row.node) {
            row.links = names;
        }
        if let Some(&fewer) = self.found.fewer.get(&row.node) {
            row.links = row.links.saturating_sub(fewer);
        }
        row
    }
}

impl Index for ArchivesAsFiles {
    fn summary(&self) -> &Summary {
        self.index.summary()
    }

    fn numbering(&self) -> u64 {
        // Nodes have the numbers of a pass with `-r`, not those of one without.
        !self.index.numbering()
    }

    fn waits(&self) -> bool {
        self.index.waits()
    }

    fn lookup(&self, folder: Node, name: &[u8]) -> Result<Option<Row>, Error> {
        Ok(self.index.lookup(folder, name)?.map(|row| self.shown(row)))
    }

    fn children(
        &self,
        folder: Node,
        from: u64,
        receive: &mut dyn FnMut(u64, &[u8], &Row) -> bool,
    ) -> Result<(), Error> {
        let is_changed = |node: Node| {
            let Found { files, names, fewer } = &self.found;
            files.contains_key(&node) || names.contains_key(&node) || fewer.contains_key(&node)
        };
        self.index.children(folder, from, &mut |next, name, row| {
            if is_changed(row.node) { receive(next, name, &self.shown(row.clone())) } else { receive(next, name, row) }
        })
    }

    fn count(&self, folder: Node) -> Result<u64, Error> {
        self.index.count(folder)
    }

    fn names(&self, folder: Node, receive: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.index.names(folder, receive)
    }

    fn row(&self, node: Node) -> Result<Option<Row>, Error> {
        Ok(self.index.row(node)?.map(|row| self.shown(row)))
    }

    fn named_row(&self, node: Node) -> Result<Option<(Row, Vec<u8>)>, Error> {
        Ok(self.index.named_row(node)?.map(|(row, name)| (self.shown(row), name)))
    }

    fn folder_of(&self, node: Node) -> Result<Option<Node>, Error> {
        self.index.folder_of(node)
    }

    fn parent(&self, folder: Node) -> Result<Node, Error> {
        self.index.parent(folder)
    }

    fn link(&self, node: Node) -> Result<Vec<u8>, Error> {
        self.index.link(node)
    }

    fn xattrs(&self, node: Node) -> Result<Xattrs, Error> {
        self.index.xattrs(node)
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.index.xattr(node, name)
    }

    fn hide_xattrs(&self, names: Vec<Vec<u8>>) {
        self.index.hide_xattrs(names);
    }

    fn extents(&self, node: Node) -> Result<Vec<Extent>, Error> {
        self.index.extents(node)
    }

    fn knows_extents(&self) -> bool {
        self.index.knows_extents()
    }

    fn read_headers_from(&self, stream: &SharedSource) {
        self.index.read_headers_from(stream);
    }

    fn owner_names(&self, node: Node) -> Result<(Vec<u8>, Vec<u8>), Error> {
        self.index.owner_names(node)
    }
}

impl InPieces for ArchivesAsFiles {
    fn each_piece(&self, holder: Holder, receive: &mut dyn FnMut(&Piece) -> bool) -> Result<(), Error> {
        self.index.each_piece(holder, receive)
    }

    fn pieces(&self, holder: Holder) -> Result<Vec<Piece>, Error> {
        self.index.pieces(holder)
    }

    fn pieces_take(&self, holder: Holder) -> Result<u64, Error> {
        self.index.pieces_take(holder)
    }

    fn has_pieces_above(&self, bytes: u64) -> Result<bool, Error> {
        self.index.has_pieces_above(bytes)
    }

    fn has_links_in_pieces(&self) -> Result<bool, Error> {
        self.index.has_links_in_pieces()
    }

    fn coders(&self, receive: &mut dyn FnMut(&Coder) -> bool) -> Result<(), Error> {
        self.index.coders(receive)
    }
}

impl History for ArchivesAsFiles {
    fn replaced(&self, receive: &mut dyn FnMut(Node, &[u8], &Row)) -> Result<(), Error> {
        self.index.replaced(receive)
    }

    fn replaced_count(&self) -> Result<u64, Error> {
        // The archives are not replaced by anything here.
        Ok(self.index.replaced_count()?.saturating_sub(self.found.files.len() as u64))
    }

    fn replaced_of(
        &self,
        folder: Node,
        name: &[u8],
        from: u64,
        receive: &mut dyn FnMut(Option<u64>, &Row) -> bool,
    ) -> Result<u64, Error> {
        if self.index.lookup(folder, name)?.is_some_and(|row| self.found.files.contains_key(&row.node)) {
            // The archive is all that was ever stored there.
            return Ok(0);
        }
        self.index.replaced_of(folder, name, from, &mut |header, row| receive(header, &self.shown(row.clone())))
    }

    fn hard_links(&self, receive: &mut dyn FnMut(Node, &[u8], u64, Node)) -> Result<(), Error> {
        self.index.hard_links(receive)
    }

    fn replaced_links(&self, receive: &mut dyn FnMut(Node, &[u8], u64, Option<Node>)) -> Result<(), Error> {
        self.index.replaced_links(receive)
    }
}

impl StreamTables for ArchivesAsFiles {
    fn nested(&self, number: u32) -> Result<Nested, Error> {
        self.index.nested(number)
    }

    fn chunks(self: Arc<Self>, layer: usize) -> Result<Arc<dyn ChunkTable>, Error> {
        Arc::clone(&self.index).chunks(layer)
    }

    fn damage_in(&self, range: Range<u64>) -> Result<Option<Damage>, Error> {
        self.index.damage_in(range)
    }

    fn has_unverified(&self) -> bool {
        self.index.has_unverified()
    }
}
