//! How two indexes of one archive differ: `tarnfs check` compares what is there with what it has just made.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tarnfs_codec::ChunkTable;
use tarnfs_format::Kind;
use tarnfs_index::{Error, FIRST_NESTED, Holder, Index, Node, Row, STORED_IN_PIECES, Summary};
use tarnfs_source::Cancel;

use crate::terminal::escaped;

/// What is wrong, for people; `None` if nothing is.
type Found = Result<Option<String>, Error>;

/// Children that are compared at once.
const BATCH: usize = 256;

/// Two indexes that are walked side by side.
struct Both<'a> {
    old: &'a Arc<dyn Index>,
    new: &'a Arc<dyn Index>,
    cancel: &'a Cancel,
}

/// How the index that was `there` differs from the one that was just made.
pub(super) fn difference(there: &Arc<dyn Index>, fresh: &Arc<dyn Index>, cancel: &Cancel) -> Found {
    let (old, new) = (there.summary(), fresh.summary());
    if (old.files, old.bytes, old.end) != (new.files, new.bytes, new.end) {
        let totals = |of: &Summary| format!("{} files with {} bytes", of.files, of.bytes);
        return Ok(Some(format!("it has {}, the archive {}", totals(old), totals(new))));
    }
    let both = Both { old: there, new: fresh, cancel };
    if let Some(what) = both.layers()? {
        return Ok(Some(what));
    }
    let mut last_stream = 0;
    if let Some(what) = both.tree(&mut last_stream)? {
        return Ok(Some(what));
    }
    for number in FIRST_NESTED..=last_stream {
        if let Some(what) = both.nested(number)? {
            return Ok(Some(what));
        }
    }
    both.others()
}

/// How a sidecar of ratarmount differs from the index that was just made, in what both say: names, types, and where
/// files lie. Not in names that are not UTF-8, which it writes in its own way, nor where files with several names lie:
/// it looks for these among what was stored last.
pub(crate) fn difference_of_sidecar(sidecar: &Arc<dyn Index>, fresh: &Arc<dyn Index>, cancel: &Cancel) -> Found {
    let mut waiting = vec![(Node::ROOT, Node::ROOT)];
    while let Some((old_folder, new_folder)) = waiting.pop() {
        let count = |index: &Arc<dyn Index>, folder| {
            let (mut count, mut from) = (0, 0);
            loop {
                cancel.check()?;
                match batch(index, folder, &mut from)?.len() {
                    0 => return Ok::<_, Error>(count),
                    some => count += some,
                }
            }
        };
        let (old_count, new_count) = (count(sidecar, old_folder)?, count(fresh, new_folder)?);
        let mut from = 0;
        loop {
            cancel.check()?;
            let batch = batch(fresh, new_folder, &mut from)?;
            for (name, new) in &batch {
                if std::str::from_utf8(name).is_err() {
                    continue;
                }
                let full = || shown_in(&**fresh, new_folder, name);
                let Some(old) = sidecar.lookup(old_folder, name)? else {
                    return Ok(Some(format!("it has no {}", full()?)));
                };
                if std::mem::discriminant(&old.kind) != std::mem::discriminant(&new.kind) {
                    return Ok(Some(format!("{} has another type", full()?)));
                }
                if new.kind == Kind::File && new.links == 1 && (old.body, old.size) != (new.body, new.size) {
                    return Ok(Some(format!("{} has another place or length in the archive", full()?)));
                }
                if new.kind == Kind::Folder {
                    waiting.push((old.node, new.node));
                }
            }
            if batch.is_empty() {
                break;
            }
        }
        if old_count != new_count {
            let folder = match new_folder {
                Node::ROOT => "the root".to_owned(),
                folder => shown_in(&**fresh, folder, b"")?,
            };
            return Ok(Some(format!("it has {old_count} entries in {folder}, the archive {new_count}")));
        }
    }
    Ok(None)
}

impl Both<'_> {
    fn layers(&self) -> Found {
        let (old, new) = (&self.old.summary().layers, &self.new.summary().layers);
        if old.len() != new.len() {
            return Ok(Some(format!("it says {} layers of compression, the archive has {}", old.len(), new.len())));
        }
        for (number, (old_layer, new_layer)) in old.iter().zip(new).enumerate() {
            if old_layer != new_layer {
                let (old, new) = (old_layer.decoded_length, new_layer.decoded_length);
                return Ok(Some(format!("it says that {old} bytes are compressed in the archive, there are {new}")));
            }
            if let Some(what) = self.chunks(number, new_layer.decoded_length)? {
                return Ok(Some(what));
            }
        }
        Ok(None)
    }

    /// Seek points, checksums and damage of one layer, or of the nested stream of that number.
    fn chunks(&self, layer: usize, length: u64) -> Found {
        let (old_table, new_table) = (Arc::clone(self.old).chunks(layer)?, Arc::clone(self.new).chunks(layer)?);
        let mut position = 0;
        while position < length {
            self.cancel.check()?;
            let (Some(old), Some(new)) = (old_table.chunk_at(position)?, new_table.chunk_at(position)?) else {
                return Ok(Some(format!("it has no seek point for decoded byte {position}")));
            };
            let is_same_chunk = (old.point.decoded, old.length) == (new.point.decoded, new.length);
            // Other seek points, such as those of another spacing, have other pieces.
            if is_same_chunk && !old.checksums.is_empty() && old.checksums != new.checksums {
                return Ok(Some(format!("its checksums of what lies behind decoded byte {position} do not match")));
            }
            position = new.point.decoded.saturating_add(new.length).max(position + 1);
        }
        if damage(&*old_table, length)? != damage(&*new_table, length)? {
            return Ok(Some("it says that other parts of the archive are damaged".to_owned()));
        }
        Ok(None)
    }

    /// All that shows; `last_stream` gets the greatest number of a stream in which some of it lies.
    fn tree(&self, last_stream: &mut u32) -> Found {
        let roots = (self.old.row(Node::ROOT)?, self.new.row(Node::ROOT)?);
        if let (Some(old), Some(new)) = &roots
            && let Some(what) = self.entry(old, new)?
        {
            return Ok(Some(format!("the root has {what}")));
        }
        let mut waiting = vec![(Node::ROOT, Node::ROOT)];
        while let Some((old_folder, new_folder)) = waiting.pop() {
            let (mut old_from, mut new_from) = (0, 0);
            loop {
                self.cancel.check()?;
                let old = batch(self.old, old_folder, &mut old_from)?;
                let new = batch(self.new, new_folder, &mut new_from)?;
                for at in 0..old.len().max(new.len()) {
                    let full = |name: &[u8]| shown_in(&**self.new, new_folder, name);
                    let ((old_name, old), (new_name, new)) = match (old.get(at), new.get(at)) {
                        (Some(old), Some(new)) => (old, new),
                        (Some((name, _)), None) => return Ok(Some(format!("the archive has no {}", full(name)?))),
                        (None, Some((name, _))) => return Ok(Some(format!("it has no {}", full(name)?))),
                        (None, None) => break,
                    };
                    if old_name != new_name {
                        let (old, new) = (full(old_name)?, full(new_name)?);
                        return Ok(Some(format!("it has {old} where the archive has {new}")));
                    }
                    if let Some(what) = self.entry(old, new)? {
                        return Ok(Some(format!("{} has {what}", full(old_name)?)));
                    }
                    *last_stream = new.stream.max(*last_stream);
                    if new.kind == Kind::Folder {
                        waiting.push((old.node, new.node));
                    }
                }
                if new.len() < BATCH {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// What an entry has other than it should.
    fn entry(&self, old: &Row, new: &Row) -> Result<Option<&'static str>, Error> {
        let place = |row: &Row| (row.stream, row.header, row.body, row.size);
        let nodes = (old.node, new.node);
        Ok(if old.kind != new.kind {
            Some("another type")
        } else if place(old) != place(new) {
            Some("another place or length in the archive")
        } else if (Row { node: new.node, ..old.clone() }) != *new {
            Some("other attributes")
        } else if new.kind == Kind::Symlink && self.old.link(nodes.0)? != self.new.link(nodes.1)? {
            Some("another target")
        } else if new.has_pieces && self.old.pieces(Holder::File(nodes.0))? != self.new.pieces(Holder::File(nodes.1))? {
            Some("other pieces")
        } else if new.is_sparse && self.old.extents(nodes.0)? != self.new.extents(nodes.1)? {
            Some("other holes")
        } else if new.has_xattrs && self.old.xattrs(nodes.0)? != self.new.xattrs(nodes.1)? {
            Some("other extended attributes or hashes")
        } else if self.old.owner_names(nodes.0)? != self.new.owner_names(nodes.1)? {
            Some("another owner")
        } else {
            None
        })
    }

    fn nested(&self, number: u32) -> Found {
        let (old, new) = (self.old.nested(number)?, self.new.nested(number)?);
        if old != new {
            let what = format!("it says other things of the compressed file at byte {} of the archive", new.start);
            return Ok(Some(what));
        }
        if new.codec == STORED_IN_PIECES {
            let is_same = self.old.pieces(Holder::Stream(number))? == self.new.pieces(Holder::Stream(number))?;
            let what = || format!("it says other pieces of the file at byte {} of the archive", new.start);
            return Ok((!is_same).then(what));
        }
        let found = self.chunks(number as usize, new.decoded_length)?;
        Ok(found.map(|what| format!("of the compressed file at byte {} of the archive: {what}", new.start)))
    }

    /// What does not show, and hard links: they come in any order, so a sum of hashes stands for all of them.
    fn others(&self) -> Found {
        // Nobody can make an index for keys that nobody knows.
        let keys = RandomState::new();
        if others(&**self.old, &keys, self.cancel)? == others(&**self.new, &keys, self.cancel)? {
            Ok(None)
        } else {
            Ok(Some("it has other older versions of files, or other hard links, than the archive".to_owned()))
        }
    }
}

/// The next children of `folder`; `from` is moved behind them.
fn batch(index: &Arc<dyn Index>, folder: Node, from: &mut u64) -> Result<Vec<(Vec<u8>, Row)>, Error> {
    let mut found = Vec::new();
    index.children(folder, *from, &mut |next, name, row| {
        *from = next;
        found.push((name.to_vec(), row.clone()));
        found.len() < BATCH
    })?;
    Ok(found)
}

/// The damaged ranges of a layer, the last one first.
fn damage(table: &dyn ChunkTable, length: u64) -> Result<Vec<(u64, u64, u64)>, Error> {
    let (mut found, mut end) = (Vec::new(), length);
    while let Some(last) = table.damage_in(0..end)?.filter(|last| last.decoded.start < end) {
        found.push((last.decoded.start, last.lost_from, last.decoded.end));
        end = last.decoded.start;
    }
    Ok(found)
}

/// Replaced entries, hard links and replaced hard links of `index`: how many there are, and the sum of their hashes.
fn others(index: &dyn Index, keys: &RandomState, cancel: &Cancel) -> Result<[(u64, u64); 3], Error> {
    let mut sums = [(0_u64, 0_u64); 3];
    let mut last: Option<(Node, Vec<u8>)> = None;
    let mut failed: Result<(), Error> = Ok(());
    let mut add = |which: usize, folder: Node, name: &[u8], what: &dyn Fn() -> Result<u64, Error>| {
        let mut hash = || -> Result<u64, Error> {
            cancel.check()?;
            if last.as_ref().is_none_or(|(known, _)| *known != folder) {
                last = Some((folder, path_of(index, folder)?));
            }
            let path = last.as_ref().map(|(_, path)| path);
            Ok(keys.hash_one((path, name, what()?)))
        };
        if failed.is_ok() {
            match hash() {
                Ok(hash) => sums[which] = (sums[which].0 + 1, sums[which].1.wrapping_add(hash)),
                Err(error) => failed = Err(error),
            }
        }
    };
    index.replaced(&mut |folder, name, row| add(0, folder, name, &|| Ok(keys.hash_one(without_number(row)))))?;
    let shared = |node: Node| index.row(node).map(|row| row.map(|row| without_number(&row)));
    index.hard_links(&mut |folder, name, header, node| {
        add(1, folder, name, &|| Ok(keys.hash_one((header, shared(node)?))));
    })?;
    index.replaced_links(&mut |folder, name, header, node| {
        add(2, folder, name, &|| Ok(keys.hash_one((header, node.map(shared).transpose()?))));
    })?;
    failed.map(|()| sums)
}

/// All of a row but its number.
fn without_number(row: &Row) -> Row {
    Row { node: Node::ROOT, ..row.clone() }
}

/// The path of `name` in `folder`, as it is shown. It is looked for only when it is to be said: one that each folder
/// that waits had with it would be kept as often as there are folders, and paths may be long.
fn shown_in(index: &dyn Index, folder: Node, name: &[u8]) -> Result<String, Error> {
    let (mut names, mut node) = (vec![name.to_vec()], folder);
    while node != Node::ROOT {
        names.extend(index.named_row(node)?.map(|(_, name)| name));
        node = index.parent(node)?;
    }
    names.reverse();
    Ok(escaped(&names.join(&b'/')))
}

/// The path of `folder`, found from below.
fn path_of(index: &dyn Index, folder: Node) -> Result<Vec<u8>, Error> {
    let (mut path, mut node) = (Vec::new(), folder);
    while node != Node::ROOT {
        if let Some((_, name)) = index.named_row(node)? {
            path.extend(name);
        }
        path.push(b'/');
        node = index.parent(node)?;
    }
    Ok(path)
}
