//! B-trees: all leaves in the order of their keys, or what is stored of one file.

use std::cmp::Ordering;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::rc::Rc;

use crate::big::{u16_at, u32_at};
use crate::content::Content;
use crate::image::{Budget, damaged, is_damage};
use crate::window::Window;

/// Bytes of what begins each node, and where the map of the nodes in use begins in the first one.
const DESCRIPTOR: usize = 14;
const MAP: usize = 248;

/// Kinds of nodes.
const LEAF: u8 = 0xff;
const INDEX: u8 = 0;

/// Levels of a tree. One of 2³² nodes has fewer.
const DEEPEST: usize = 16;

/// Nodes that are kept.
const KEPT: usize = 64;

/// A node that is read again costs one of so many of its bytes.
const READ_AGAIN: u64 = 64;
/// And so many at least: it has to be read, however short it is.
const LEAST_AGAIN: u64 = 64;

/// Where the number of a file stands in a key of what is stored of files.
const FILE: usize = 4;

/// A tree.
pub(super) struct Tree {
    content: Content,
    /// Bytes of a node, and how many nodes there are.
    node: u64,
    count: u64,
    root: u32,
    first: u32,
    /// A bit for each of the first nodes: it is in use.
    map: Vec<u8>,
    /// The one that was used last first.
    kept: VecDeque<(u32, Rc<[u8]>)>,
    /// Those that were read.
    read: HashSet<u32>,
}

/// A node.
pub(super) struct Node {
    number: u32,
    bytes: Rc<[u8]>,
}

/// A record: its key, what is stored under it, and the byte of the tree at which that begins.
pub(super) struct Record<'r> {
    pub(super) key: &'r [u8],
    pub(super) data: &'r [u8],
    pub(super) at: u64,
}

/// A walk over all leaves.
#[derive(Default)]
pub(super) struct Walk {
    /// The next leaf, in the order of keys.
    next: u32,
    /// Where the chain of leaves is damaged, all other nodes are looked at from this one on.
    rest: Option<u64>,
    passed: HashSet<u32>,
    /// What was found to be damaged, up to [`MOST_DAMAGE`].
    damage: Vec<String>,
}

/// Damage of a tree that is told.
const MOST_DAMAGE: usize = 1000;

impl Walk {
    /// `what` is damaged.
    pub(super) fn note(&mut self, what: impl Into<String>) {
        if self.damage.len() < MOST_DAMAGE {
            self.damage.push(what.into());
        }
    }

    /// What was found to be damaged.
    pub(super) fn into_damage(self) -> Vec<String> {
        self.damage
    }
}

impl Node {
    fn kind(&self) -> Option<u8> {
        self.bytes.get(8).copied()
    }

    /// The node behind it in the same level, or 0.
    fn next(&self) -> u32 {
        u32_at(&self.bytes, 0).unwrap_or(0)
    }

    /// Its records.
    fn count(&self) -> usize {
        u16_at(&self.bytes, 10).map_or(0, usize::from)
    }

    /// The record of that number, of a node that begins at byte `start` of the tree. Records lie one behind the other,
    /// and where each begins stands at the end.
    fn record(&self, number: usize, start: u64) -> Option<Record<'_>> {
        let offset = |record: usize| {
            let behind = record.checked_add(1)?.checked_mul(2)?;
            u16_at(&self.bytes, self.bytes.len().checked_sub(behind)?).map(usize::from)
        };
        let from = offset(number).filter(|from| *from >= DESCRIPTOR)?;
        let own = self.bytes.get(from..offset(number.checked_add(1)?)?)?;
        let length = usize::from(u16_at(own, 0)?).checked_add(2)?;
        let data_at = length.checked_next_multiple_of(2)?;
        let at = start.checked_add(from as u64)?.checked_add(data_at as u64)?;
        Some(Record { key: own.get(..length)?, data: own.get(data_at..)?, at })
    }
}

impl Tree {
    /// Reads the first node. Of `content`, no more is there than the `length` bytes of the image.
    pub(super) fn open(content: Content, window: &mut Window<'_>, length: u64) -> io::Result<Self> {
        let mut header = Vec::new();
        content.read(window, 0, 64, &mut header)?;
        let (root, first, node) = (u32_at(&header, 16), u32_at(&header, 24), u16_at(&header, 32));
        let is_header = header.get(8) == Some(&1);
        let node = node.filter(|node| is_header && node.is_power_of_two() && *node >= 512);
        let node = u64::from(node.ok_or_else(|| damaged("a b-tree has no header"))?);
        let mut map = Vec::new();
        let is_read = content.read(window, MAP as u64, node.saturating_sub(MAP as u64), &mut map);
        // Behind it is where it begins: two bytes for each record of the node.
        map.truncate(map.len().saturating_sub(8));
        if is_read.is_err() {
            map.clear();
        }
        let count = content.size.min(length).checked_div(node).unwrap_or(0);
        let (root, first) = (root.unwrap_or(0), first.unwrap_or(0));
        Ok(Self { content, node, count, root, first, map, kept: VecDeque::new(), read: HashSet::new() })
    }

    /// Byte of the image at which byte `at` of the tree lies, and how many lie there in one run.
    pub(super) fn place(&self, at: u64) -> (u64, u64) {
        self.content.at(at).map_or((0, 0), |(piece, inside)| {
            (piece.offset.saturating_add(inside), piece.length.saturating_sub(inside))
        })
    }

    fn start(&self, number: u32) -> u64 {
        u64::from(number).saturating_mul(self.node)
    }

    fn read(&mut self, number: u32, window: &mut Window<'_>, budget: &mut Budget) -> io::Result<Node> {
        if let Some(at) = self.kept.iter().position(|(kept, _)| *kept == number)
            && let Some((_, bytes)) = self.kept.remove(at)
        {
            self.kept.push_front((number, Rc::clone(&bytes)));
            return Ok(Node { number, bytes });
        }
        if u64::from(number) >= self.count {
            return Err(damaged(format!("node {number} of a b-tree lies behind its end")));
        }
        // What is stored of the files may be in another order than their names.
        let again = (self.node / READ_AGAIN).max(LEAST_AGAIN);
        budget.take_bytes(if self.read.insert(number) { self.node } else { again })?;
        let mut bytes = Vec::new();
        self.content.read(window, self.start(number), self.node, &mut bytes)?;
        let bytes: Rc<[u8]> = bytes.into();
        self.kept.push_front((number, Rc::clone(&bytes)));
        self.kept.truncate(KEPT);
        Ok(Node { number, bytes })
    }

    pub(super) fn walk(&self) -> Walk {
        Walk { next: self.first, ..Walk::default() }
    }

    /// The next leaf. Damage is in the walk.
    pub(super) fn next(
        &mut self,
        walk: &mut Walk,
        window: &mut Window<'_>,
        budget: &mut Budget,
    ) -> io::Result<Option<Node>> {
        loop {
            let number = match walk.rest {
                None if walk.next == 0 => return Ok(None),
                None => walk.next,
                Some(number) if number >= self.count => return Ok(None),
                Some(number) => {
                    walk.rest = number.checked_add(1);
                    let number = u32::try_from(number).unwrap_or(u32::MAX);
                    if !self.is_used(number) || walk.passed.contains(&number) {
                        continue;
                    }
                    number
                }
            };
            let wrong = if walk.passed.insert(number) {
                match self.read(number, window, budget) {
                    Ok(node) if node.kind() == Some(LEAF) => {
                        walk.next = node.next();
                        return Ok(Some(node));
                    }
                    Ok(_) if walk.rest.is_some() => continue,
                    Ok(_) => format!("node {number} of a b-tree is no leaf"),
                    Err(error) if is_damage(&error) && budget.bytes < self.node => {
                        walk.note(error.to_string());
                        return Ok(None);
                    }
                    Err(error) if is_damage(&error) => format!("node {number} of a b-tree: {error}"),
                    Err(error) => return Err(error),
                }
            } else {
                format!("node {number} of a b-tree comes again")
            };
            walk.note(wrong);
            // Leaves need not be found by those before them.
            walk.rest.get_or_insert(1);
        }
    }

    fn is_used(&self, number: u32) -> bool {
        let byte = self.map.get((number / 8) as usize);
        byte.is_none_or(|byte| byte & (0x80 >> (number % 8)) != 0)
    }

    /// The records of a leaf that `walk` has come to.
    pub(super) fn records<'n>(&self, node: &'n Node, walk: &mut Walk) -> Vec<Record<'n>> {
        let start = self.start(node.number);
        let records: Vec<_> = (0..node.count()).map_while(|number| node.record(number, start)).collect();
        if records.len() < node.count() {
            walk.note(format!("node {} of a b-tree is damaged", node.number));
        }
        records
    }

    /// Hands to `take` what is stored of the file `id`, in a tree whose keys begin with such numbers.
    pub(super) fn of_file(
        &mut self,
        id: u32,
        window: &mut Window<'_>,
        budget: &mut Budget,
        take: &mut dyn FnMut(Record<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut number = self.root;
        if number == 0 {
            return Ok(());
        }
        let wrong = |node: &Node| damaged(format!("node {} of a b-tree is damaged", node.number));
        let mut leaf = None;
        for _ in 0..DEEPEST {
            let node = self.read(number, window, budget)?;
            // Each record is looked at.
            budget.take_bytes(node.count() as u64)?;
            if node.kind() == Some(LEAF) {
                leaf = Some(node);
                break;
            }
            if node.kind() != Some(INDEX) {
                return Err(wrong(&node));
            }
            // The last one that begins before the file, as what is stored of it may begin in the middle.
            let mut below = None;
            for index in 0..node.count() {
                let record = node.record(index, 0).ok_or_else(|| wrong(&node))?;
                if below.is_some() && u32_at(record.key, FILE).is_none_or(|first| first >= id) {
                    break;
                }
                below = Some(u32_at(record.data, 0).ok_or_else(|| wrong(&node))?);
            }
            number = below.ok_or_else(|| wrong(&node))?;
        }
        let mut passed = HashSet::new();
        while let Some(node) = leaf.take() {
            let start = self.start(node.number);
            for index in 0..node.count() {
                let record = node.record(index, start).ok_or_else(|| wrong(&node))?;
                match u32_at(record.key, FILE).map(|file| file.cmp(&id)) {
                    Some(Ordering::Equal) => take(record)?,
                    Some(Ordering::Greater) => return Ok(()),
                    _ => {}
                }
            }
            if node.next() != 0 {
                if !passed.insert(node.number) {
                    return Err(damaged("the leaves of a b-tree are a ring"));
                }
                let next = self.read(node.next(), window, budget)?;
                budget.take_bytes(next.count() as u64)?;
                leaf = Some(next).filter(|next| next.kind() == Some(LEAF));
            }
        }
        Ok(())
    }
}
