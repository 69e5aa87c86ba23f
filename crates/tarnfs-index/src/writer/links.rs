//! Hard links: which node each of them is a name of.
//!
//! Each link asks at the place of its target ([`super::record::Tag::Request`]), so the answers come while the sorted
//! records go by. A target may be a link itself; the chains are followed at the end, each link once.

use tarnfs_source::Budget;

use super::allowance::Allowance;

/// Number of a hard link, in the order of the archive.
pub(super) type Number = u32;

/// What a hard link is a name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// This node.
    Node(u32),
    /// What another hard link is a name of.
    Link(Number),
}

/// A [`Target`] in four bytes: there may be many millions of links.
const IS_LINK: u32 = 1 << 31;
const NONE: u32 = u32::MAX;

/// How far a link is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    OnPath,
    Done,
}

/// Bytes of memory for one link: 8 while they are gathered, and at most so many at the end, when chains are followed
/// and the links are sorted.
const BYTES: usize = 36;

/// All hard links.
#[derive(Debug)]
pub(super) struct Links {
    /// Of each link its own node (of the entry that it is), 0 while unknown.
    nodes: Vec<u32>,
    targets: Vec<u32>,
    /// What a link's name showed before it: what it goes on showing if the link leads nowhere. Sorted by link when
    /// resolved.
    fallbacks: Vec<(Number, u32)>,
    /// Of a link in whose place there was a folder, that folder: it goes on showing if the link leads nowhere.
    folders: Vec<(Number, u32)>,
    /// Of the memory that they take: enough for some 29 million, unless all that is there is too little.
    allowance: Allowance,
}

fn pack(target: Target) -> u32 {
    match target {
        Target::Node(node) => node,
        Target::Link(link) => link | IS_LINK,
    }
}

impl Links {
    /// None yet. What comes is taken from `budget`.
    pub(super) fn new(budget: &Budget) -> Self {
        let [nodes, targets] = [Vec::new(), Vec::new()];
        let [fallbacks, folders] = [Vec::new(), Vec::new()];
        Self { nodes, targets, fallbacks, folders, allowance: Allowance::new(budget) }
    }

    /// Bytes that they will take.
    pub(super) fn bytes(&self) -> usize {
        let both = self.fallbacks.capacity().saturating_add(self.folders.capacity());
        self.nodes.len().saturating_mul(BYTES).saturating_add(both.saturating_mul(size_of::<(Number, u32)>()))
    }

    /// Bytes that they will take, if that is more than they may. Takes from the budget what was added.
    pub(super) fn beyond_limit(&mut self) -> Option<usize> {
        self.allowance.beyond(self.bytes())
    }

    /// Numbers the next link.
    pub(super) fn next(&mut self) -> Number {
        let number = self.nodes.len() as Number;
        self.nodes.push(0);
        self.targets.push(NONE);
        number
    }

    /// Forgets what was learnt; the links remain.
    pub(super) fn reset(&mut self) {
        self.nodes.fill(0);
        self.targets.fill(NONE);
        self.fallbacks.clear();
        self.folders.clear();
    }

    pub(super) fn set_node(&mut self, link: Number, node: u32) {
        if let Some(place) = self.nodes.get_mut(link as usize) {
            *place = node;
        }
    }

    pub(super) fn set_target(&mut self, link: Number, target: Target) {
        if let Some(place) = self.targets.get_mut(link as usize) {
            *place = pack(target);
        }
    }

    pub(super) fn set_fallback(&mut self, link: Number, target: Target) {
        self.fallbacks.push((link, pack(target)));
    }

    pub(super) fn set_folder(&mut self, link: Number, folder: u32) {
        self.folders.push((link, folder));
    }

    /// Once resolved: the folders in whose places are links that lead nowhere.
    pub(super) fn folders_that_show(&self) -> impl Iterator<Item = u32> {
        let leads_nowhere = |link: Number| self.target(link as usize) & IS_LINK != 0;
        self.folders.iter().filter(move |(link, _)| leads_nowhere(*link)).map(|(_, folder)| *folder)
    }

    /// Follows all chains, each link once. Afterwards [`Links::resolved`] tells.
    ///
    /// A link shows what its target shows; if that is nothing, or leads back to the link, what its name showed before.
    pub(super) fn resolve(&mut self) {
        self.fallbacks.sort_unstable();
        let mut states = vec![Visit::New; self.targets.len()];
        let mut path: Vec<(usize, bool)> = Vec::new();
        for start in 0..self.targets.len() {
            if states.get(start) == Some(&Visit::New) {
                path.push((start, false));
            }
            while let Some((link, falls_back)) = path.last_mut() {
                let edge = if *falls_back { self.fallback(*link) } else { self.target(*link) };
                let mut end = edge;
                if edge != NONE && edge & IS_LINK != 0 {
                    let next = (edge & !IS_LINK) as usize;
                    match states.get(next) {
                        Some(Visit::New) if next != *link => {
                            if let Some(state) = states.get_mut(*link) {
                                *state = Visit::OnPath;
                            }
                            path.push((next, false));
                            continue;
                        }
                        Some(Visit::Done) => end = self.target(next),
                        _ => end = NONE,
                    }
                }
                if end == NONE && !*falls_back {
                    *falls_back = true;
                    continue;
                }
                let link = *link;
                if let (Some(state), Some(target)) = (states.get_mut(link), self.targets.get_mut(link)) {
                    (*state, *target) = (Visit::Done, end);
                }
                path.pop();
            }
        }
    }

    fn target(&self, link: usize) -> u32 {
        self.targets.get(link).copied().unwrap_or(NONE)
    }

    /// What the name of `link` showed before.
    fn fallback(&self, link: usize) -> u32 {
        let found = self.fallbacks.binary_search_by_key(&(link as Number), |(link, _)| *link);
        found.ok().and_then(|at| self.fallbacks.get(at)).map_or(NONE, |(_, target)| *target)
    }

    /// The node of each link and the node that it is a name of (0: none), in the order of the archive.
    pub(super) fn resolved(&self) -> impl Iterator<Item = (u32, u32)> {
        let shared = |&target: &u32| if target & IS_LINK == 0 { target } else { 0 };
        self.nodes.iter().copied().zip(self.targets.iter().map(shared))
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]
mod tests {
    use super::*;

    fn resolve(targets: &[Option<Target>], fallbacks: &[(Number, Target)]) -> Vec<u32> {
        let mut links = Links::new(&Budget::new(0));
        for (number, target) in targets.iter().enumerate() {
            let link = links.next();
            links.set_node(link, number as u32 + 100);
            if let Some(target) = *target {
                links.set_target(link, target);
            }
        }
        for (link, target) in fallbacks {
            links.set_fallback(*link, *target);
        }
        links.resolve();
        links.resolved().map(|(_, shared)| shared).collect()
    }

    #[test]
    fn chains_cycles_and_dead_ends() {
        use Target::{Link, Node};
        let targets = [
            Some(Link(1)),
            Some(Link(2)),
            Some(Node(7)),
            Some(Link(3)),
            Some(Link(5)),
            Some(Link(4)),
            None,
            Some(Link(6)),
        ];
        assert_eq!(resolve(&targets, &[]), [7, 7, 7, 0, 0, 0, 0, 0]);
        assert_eq!(resolve(&targets, &[(5, Node(9)), (6, Node(8)), (3, Link(7))]), [7, 7, 7, 8, 9, 9, 8, 8]);
    }

    #[test]
    fn a_chain_of_a_million_links_is_followed_once() {
        let count = 1_000_000;
        let forward: Vec<_> =
            (0..count).map(|n| Some(if n + 1 == count { Target::Node(5) } else { Target::Link(n + 1) })).collect();
        assert!(resolve(&forward, &[]).iter().all(|&shared| shared == 5));
        let cycle: Vec<_> = (0..count).map(|n| Some(Target::Link((n + 1) % count))).collect();
        assert!(resolve(&cycle, &[]).iter().all(|&shared| shared == 0));
    }

    #[test]
    fn links_take_from_the_budget_and_have_a_limit() {
        let budget = Budget::new(64 << 20);
        let mut links = Links::new(&budget);
        links.allowance.most = 32 << 20;
        let mut most = 0;
        while links.beyond_limit().is_none() {
            links.next();
            most += 1;
        }
        assert_eq!((most, budget.used()), ((32 << 20) / BYTES + 1, 36 << 20));
        // What is found out about them at the end counts, too.
        let before = links.bytes();
        links.set_fallback(0, Target::Node(1));
        let after = links.bytes();
        links.set_folder(0, 1);
        assert!(before < after && after < links.bytes());
        drop(links);
        assert_eq!(budget.used(), 0);
    }
}
