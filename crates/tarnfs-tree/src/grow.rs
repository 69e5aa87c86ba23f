//! An archive that only grew: what its index says of the old part is kept, and reading begins where it ended.
//!
//! What comes out is the index that reading it all anew would make. So the old entries must come as they would then:
//! folders lie in an index in the order in which the archive first names them, which [`Order`] finds out first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tarnfs_format::{Body, Entry, Kind};
use tarnfs_index::{Error, Index, Node, Row, Writer};
use tarnfs_source::Limits;

/// Gives everything that `index` knows to `writer`, as entries with the headers that they had.
///
/// An entry of the archive has at least `shortest` bytes. [`Error::Stale`] if the index does not know enough of the
/// archive for that.
pub(crate) fn replay(index: &Arc<dyn Index>, shortest: u64, writer: &mut Writer) -> Result<(), Error> {
    let (summary, replaced) = (index.summary(), index.replaced_count()?);
    if replaced > summary.files.saturating_add(summary.folders) {
        // Each of them costs more than a header does.
        return Err(Error::Stale("more of its entries were replaced than show".to_owned()));
    }
    let links = Links::of(&**index)?;
    check_clashes(&**index, &links)?;
    let order = Order::of(&**index, &links, shortest)?;
    order.tell(writer);
    let rows = order.rows;
    drop(order);
    let shared = links.all().map(|(_, node)| (node, None)).collect();
    let mut replay = Replay { index, writer, links: &links, shared, waiting: Vec::new(), rows };
    replay.folders()?;
    replay.replaced()?;
    replay.links()
}

/// Where a folder and something else had one path, more than their headers tells in which order they came: a folder may
/// show again only for what was named in it last.
fn check_clashes(index: &dyn Index, links: &Links) -> Result<(), Error> {
    let mut problem = Ok(());
    // Those of one name come together.
    let mut last: Option<(Node, Vec<u8>, bool)> = None;
    let mut check = |folder: Node, name: &[u8], is_folder: bool| -> Result<(), Error> {
        if last.as_ref().is_some_and(|last| (last.0, last.1.as_slice(), last.2) == (folder, name, is_folder)) {
            return Ok(());
        }
        last = Some((folder, name.to_vec(), is_folder));
        match index.lookup(folder, name)? {
            Some(shown) if (shown.kind == Kind::Folder) == is_folder => Ok(()),
            _ => Err(Error::Stale("a folder in it has the path of something else".to_owned())),
        }
    };
    index.replaced(&mut |folder, name, row| {
        // The root has no name, and is never anything else.
        if problem.is_ok() && !name.is_empty() {
            problem = check(folder, name, row.kind == Kind::Folder);
        }
    })?;
    for (folder, name, ..) in &links.replaced {
        problem = problem.and_then(|()| check(*folder, name, false));
    }
    problem
}

/// All hard links. Grows with them, not with the files.
struct Links {
    /// Folder and name of each that shows: its header, and the node that it shares.
    shown: HashMap<(Node, Vec<u8>), (u64, Node)>,
    /// Those that were replaced: folder, name, header, node.
    replaced: Vec<(Node, Vec<u8>, u64, Node)>,
}

impl Links {
    fn of(index: &dyn Index) -> Result<Self, Error> {
        let mut shown = HashMap::new();
        index.hard_links(&mut |folder, name, header, node| {
            shown.insert((folder, name.to_vec()), (header, node));
        })?;
        let (mut replaced, mut leads_nowhere) = (Vec::new(), false);
        index.replaced_links(&mut |folder, name, header, node| match node {
            Some(node) => replaced.push((folder, name.to_vec(), header, node)),
            None => leads_nowhere = true,
        })?;
        if leads_nowhere {
            // What it leads to may come with what was appended, and its target is not known any more.
            return Err(Error::Stale("a hard link that was replaced leads nowhere".to_owned()));
        }
        let this = Self { shown, replaced };
        this.check(index)?;
        this.check_fallbacks(index)?;
        Ok(this)
    }

    /// A link whose target is not there shows what its path showed before. Its target may come with what was appended,
    /// and is not known any more. (Nor is a link to its own path told from that.)
    fn check_fallbacks(&self, index: &dyn Index) -> Result<(), Error> {
        /// Header, node (of a link the one that it shares), whether it is a link.
        type Seen = (u64, Node, bool);
        // Of each path that has a link, its entries.
        let mut paths: HashMap<(Node, Vec<u8>), Vec<Seen>> = HashMap::new();
        for ((folder, name), (header, node)) in &self.shown {
            paths.entry((*folder, name.clone())).or_default().push((*header, *node, true));
        }
        for (folder, name, header, node) in &self.replaced {
            paths.entry((*folder, name.clone())).or_default().push((*header, *node, true));
        }
        if paths.is_empty() {
            return Ok(());
        }
        index.replaced(&mut |folder, name, row| {
            if row.kind != Kind::Folder
                && let Some(entries) = paths.get_mut(&(folder, name.to_vec()))
            {
                entries.push((row.header.unwrap_or_default(), row.node, false));
            }
        })?;
        for entries in paths.values_mut() {
            entries.sort_unstable();
            let falls_back = |pair: &[Seen]| matches!(pair, [before, link] if link.2 && link.1 == before.1);
            if entries.windows(2).any(falls_back) {
                return Err(Error::Stale("a hard link in it shows what its path showed before".to_owned()));
            }
        }
        Ok(())
    }

    /// A link to a path means what the path showed before the link. The index knows what that was, not by which path:
    /// that must be that of the entry itself. It is not for a link to a link whose target was replaced in between,
    /// and for one that comes before its target.
    fn check(&self, index: &dyn Index) -> Result<(), Error> {
        let shared: HashSet<Node> = self.all().map(|(_, node)| node).collect();
        // Of those that were replaced: their path, and the headers of all entries of that path.
        let mut paths: HashMap<Node, (Node, Vec<u8>)> = HashMap::new();
        let mut versions: HashMap<(Node, Vec<u8>), Vec<u64>> = HashMap::new();
        index.replaced(&mut |folder, name, row| {
            if shared.contains(&row.node) {
                paths.insert(row.node, (folder, name.to_vec()));
                versions.entry((folder, name.to_vec())).or_default();
            }
        })?;
        if !versions.is_empty() {
            index.replaced(&mut |folder, name, row| {
                if let Some(headers) = versions.get_mut(&(folder, name.to_vec())) {
                    headers.extend(row.header);
                }
            })?;
        }
        for (folder, name, header, _) in &self.replaced {
            if let Some(headers) = versions.get_mut(&(*folder, name.clone())) {
                headers.push(*header);
            }
        }
        for (path, headers) in &mut versions {
            match self.shown.get(path) {
                Some((header, _)) => headers.push(*header),
                None => headers.extend(index.lookup(path.0, &path.1)?.and_then(|row| row.header)),
            }
        }
        for (link, node) in self.all() {
            let row = index.row(node)?.ok_or_else(|| Error::Broken(format!("node {} is missing", node.0)))?;
            let own = row.header.unwrap_or_default();
            let between = |header: &u64| own < *header && *header < link;
            let headers = paths.get(&node).and_then(|path| versions.get(path));
            if own > link || headers.is_some_and(|headers| headers.iter().any(between)) {
                return Err(Error::Stale(
                    "what a hard link in it leads to would have to be found out again".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Header and shared node of each.
    fn all(&self) -> impl Iterator<Item = (u64, Node)> {
        let replaced = self.replaced.iter().map(|&(_, _, header, node)| (header, node));
        self.shown.values().copied().chain(replaced)
    }
}

/// Calls `receive` with each child of `folder`.
fn each_child(
    index: &dyn Index,
    folder: Node,
    receive: &mut dyn FnMut(Vec<u8>, Row) -> Result<(), Error>,
) -> Result<(), Error> {
    /// In batches: a folder of ten million names does not fit into memory at once.
    const BATCH: usize = 4096;
    let mut from = 0;
    loop {
        let mut children = Vec::new();
        index.children(folder, from, &mut |next, name, row| {
            from = next;
            children.push((name.to_vec(), row.clone()));
            children.len() < BATCH
        })?;
        if children.is_empty() {
            return Ok(());
        }
        for (name, row) in children {
            receive(name, row)?;
        }
    }
}

/// The folders in the order in which the archive first names them.
struct Order {
    folders: Vec<Folder>,
    /// Rows of all folders.
    rows: u64,
}

struct Folder {
    /// Place of the one that it is in; of the root its own.
    parent: usize,
    name: Vec<u8>,
    depth: u32,
    /// Header of the first entry that names it: its own, or that of something in it.
    first: u64,
}

impl Order {
    fn of(index: &dyn Index, links: &Links, shortest: u64) -> Result<Self, Error> {
        const NEVER: u64 = u64::MAX;
        let summary = index.summary();
        // Of folders that lie about which rows are theirs, several may have the same ones: nothing would end that soon.
        let most_files = summary.end.min(summary.archive.length).checked_div(shortest).unwrap_or_default();
        let (mut rows, mut files) = (0_u64, 0_u64);
        let mut folders = vec![Folder { parent: 0, name: Vec::new(), depth: 0, first: NEVER }];
        let mut places = HashMap::from([(Node::ROOT, 0)]);
        let mut open = vec![(Node::ROOT, 0)];
        while let Some((node, place)) = open.pop() {
            each_child(index, node, &mut |name, row| {
                let link = links.shown.get(&(node, name.clone()));
                let first = link.map_or(row.header, |(header, _)| Some(*header)).unwrap_or(NEVER);
                folders[place].first = folders[place].first.min(first);
                rows += 1;
                if row.kind == Kind::Folder {
                    open.push((row.node, folders.len()));
                    if places.insert(row.node, folders.len()).is_some() {
                        return Err(Error::Broken(format!("the folder {} is in two folders", row.node.0)));
                    }
                    let depth = folders[place].depth + 1;
                    if depth as usize > Limits::DEFAULT.path_components {
                        return Err(Error::Broken(format!("the folder {} lies in {depth} folders", row.node.0)));
                    }
                    folders.push(Folder { parent: place, name, depth, first });
                    return Ok(());
                }
                files += 1;
                if files > most_files {
                    let what =
                        format!("its folders hold more than the {most_files} files that its archive has room for");
                    return Err(Error::Broken(what));
                }
                Ok(())
            })?;
        }
        let mut note = |folder: Node, first: u64| {
            if let Some(place) = places.get(&folder) {
                folders[*place].first = folders[*place].first.min(first);
            }
        };
        // Earlier entries of folders that are still there.
        let mut again = Vec::new();
        index.replaced(&mut |folder, name, row| {
            let first = row.header.unwrap_or(NEVER);
            note(folder, first);
            if row.kind == Kind::Folder {
                again.push((folder, name.to_vec(), first));
            }
        })?;
        for (folder, name, first) in again {
            if let Some(row) = index.lookup(folder, &name)? {
                note(row.node, first);
            }
        }
        for &(folder, _, header, _) in &links.replaced {
            note(folder, header);
        }
        // Whoever names something in a folder names the folder; those above come before it.
        for place in (1..folders.len()).rev() {
            let parent = folders[place].parent;
            folders[parent].first = folders[parent].first.min(folders[place].first);
        }
        Ok(Self { folders, rows })
    }

    fn tell(&self, writer: &mut Writer) {
        let folders = &self.folders;
        let mut order: Vec<usize> = (1..folders.len()).collect();
        order.sort_by_key(|&place| (folders[place].first, folders[place].depth));
        for place in order {
            let mut components = Vec::new();
            let mut at = place;
            while at != 0 {
                components.push(folders[at].name.as_slice());
                at = folders[at].parent;
            }
            components.reverse();
            writer.expect_folder(&components.join(&b'/'));
        }
    }
}

struct Replay<'a> {
    index: &'a Arc<dyn Index>,
    writer: &'a mut Writer,
    links: &'a Links,
    /// A path of each node that has hard links.
    shared: HashMap<Node, Option<Vec<u8>>>,
    /// Hard links, until all paths are known: path, header, node.
    waiting: Vec<(Vec<u8>, u64, Node)>,
    /// Rows that the folders have.
    rows: u64,
}

impl Replay<'_> {
    fn folders(&mut self) -> Result<(), Error> {
        let root = self.index.row(Node::ROOT)?;
        if let Some(root) = root.filter(|root| root.header.is_some()) {
            self.entry(b"./".to_vec(), &root)?;
        }
        let index = Arc::clone(self.index);
        let mut open = vec![(Node::ROOT, Vec::new())];
        while let Some((folder, prefix)) = open.pop() {
            each_child(&*index, folder, &mut |name, row| {
                let changed = || Error::Broken("it changed while it was read".to_owned());
                self.rows = self.rows.checked_sub(1).ok_or_else(changed)?;
                let path = [prefix.as_slice(), &name].concat();
                if let Some(&(header, node)) = self.links.shown.get(&(folder, name)) {
                    self.waiting.push((path, header, node));
                    return Ok(());
                }
                if row.kind == Kind::Folder {
                    open.push((row.node, [path.as_slice(), b"/"].concat()));
                }
                if row.header.is_some() { self.entry(path, &row) } else { Ok(()) }
            })?;
        }
        Ok(())
    }

    fn replaced(&mut self) -> Result<(), Error> {
        let index = Arc::clone(self.index);
        let mut problem = Ok(());
        // Those of one folder come together.
        let mut last: Option<(Node, Vec<u8>)> = None;
        index.replaced(&mut |folder, name, row| {
            if problem.is_err() {
                return;
            }
            if last.as_ref().is_none_or(|(last, _)| *last != folder) {
                match self.path(folder, b"") {
                    Ok(path) => last = Some((folder, path)),
                    Err(error) => problem = Err(error),
                }
            }
            if let Some((_, prefix)) = last.as_ref().filter(|_| problem.is_ok()) {
                problem = self.entry([prefix.as_slice(), name].concat(), row);
            }
        })?;
        problem?;
        for (folder, name, header, node) in &self.links.replaced {
            let path = self.path(*folder, name)?;
            self.waiting.push((path, *header, *node));
        }
        Ok(())
    }

    fn links(&mut self) -> Result<(), Error> {
        for (path, header, node) in std::mem::take(&mut self.waiting) {
            let target = self.shared.get(&node).cloned().flatten();
            let link = target.ok_or_else(|| Error::Broken(format!("node {} has hard links and no name", node.0)))?;
            self.writer.add(&Entry { path, kind: Kind::HardLink, header, link, ..Entry::default() })?;
        }
        Ok(())
    }

    /// The path of `name` in `folder`, by the names of the folders above it.
    fn path(&self, folder: Node, name: &[u8]) -> Result<Vec<u8>, Error> {
        let mut components = vec![name.to_vec()];
        let mut at = folder;
        let mut seen = HashSet::new();
        while at != Node::ROOT {
            if !seen.insert(at) {
                return Err(Error::Broken(format!("the folder {} is inside itself", at.0)));
            }
            let named = self.index.named_row(at)?;
            let (_, name) = named.ok_or_else(|| Error::Broken(format!("the folder {} is missing", at.0)))?;
            components.push(name);
            at = self.index.parent(at)?;
        }
        components.reverse();
        Ok(components.join(&b'/'))
    }

    fn entry(&mut self, path: Vec<u8>, row: &Row) -> Result<(), Error> {
        if let Some(known) = self.shared.get_mut(&row.node) {
            known.get_or_insert_with(|| path.clone());
        }
        let entry = self.as_entry(path, row)?;
        self.writer.add(&entry)
    }

    fn as_entry(&self, path: Vec<u8>, row: &Row) -> Result<Entry, Error> {
        let (user, group) = self.index.owner_names(row.node)?;
        let extents = if row.is_sparse { Some(self.index.extents(row.node)?) } else { None };
        let stored = match &extents {
            Some(extents) => {
                extents.iter().fold(0, |sum: u64, extent| sum.saturating_add(extent.skip).saturating_add(extent.length))
            }
            None if row.kind == Kind::File => row.size,
            None => 0,
        };
        Ok(Entry {
            path,
            kind: row.kind,
            mode: row.mode,
            uid: u64::from(row.uid),
            gid: u64::from(row.gid),
            user,
            group,
            mtime: row.mtime,
            atime: Some(row.atime),
            ctime: Some(row.ctime),
            header: row.header.unwrap_or_default(),
            inherits: row.inherits,
            has_acl_text: false,
            body: Body {
                offset: row.body,
                stored,
                size: if row.kind == Kind::File { row.size } else { 0 },
                extents,
                pieces: None,
            },
            link: if row.kind == Kind::Symlink { self.index.link(row.node)? } else { Vec::new() },
            xattrs: if row.has_xattrs { self.index.xattrs(row.node)? } else { Vec::new() },
        })
    }
}
