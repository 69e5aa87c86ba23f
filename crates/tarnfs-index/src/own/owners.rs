//! Names of owners. Many entries share a class, and with it the names: who prints them for each entry of a list asks
//! for the same few again and again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use super::{LIMITS, Own};
use crate::{Error, Node};

/// Nodes whose class is kept: what some threads have listed last, 32 KiB.
const NODES: usize = 4096;
/// Classes whose names are kept: at most 32 KiB, since a longer name than [`LIMITS`] has is not kept.
const CLASSES: usize = 64;

/// Names of a user and a group.
type Names = (Vec<u8>, Vec<u8>);

/// What was asked and listed lately. A place that another one has taken costs a query, no more.
#[derive(Debug, Default)]
pub(super) struct OwnerNames {
    /// Node (upper half) and class of what was listed, at the place that the node's number says. Made when names are
    /// asked for first: most mounts never are.
    listed: OnceLock<Box<[AtomicU64]>>,
    known: RwLock<Vec<Option<(i64, Names)>>>,
}

impl OwnerNames {
    /// `node`, which is of that `class`, is being listed.
    pub(super) fn list(&self, node: u64, class: i64) {
        if let Some(listed) = self.listed.get()
            && let (Ok(number), Ok(class)) = (u32::try_from(node), u32::try_from(class))
            && let Some(place) = listed.get(node as usize % NODES)
        {
            place.store(u64::from(number) << 32 | u64::from(class), Ordering::Relaxed);
        }
    }

    /// The class of `node`, if it was listed lately.
    fn class(&self, node: u64) -> Option<i64> {
        let listed = self.listed.get_or_init(|| (0..NODES).map(|_| AtomicU64::new(0)).collect());
        let both = listed.get(node as usize % NODES)?.load(Ordering::Relaxed);
        (both >> 32 == node && node != 0).then_some((both & u64::from(u32::MAX)) as i64)
    }

    fn names(&self, class: i64) -> Option<Names> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (of, names) = known.get(class as usize % CLASSES)?.as_ref()?;
        (*of == class).then(|| names.clone())
    }

    fn keep(&self, class: i64, names: &Names) {
        if names.0.len().max(names.1.len()) > LIMITS.owner_name {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            known.resize(CLASSES, None);
        }
        if let Some(place) = known.get_mut(class as usize % CLASSES) {
            *place = Some((class, names.clone()));
        }
    }
}

impl Own {
    /// Names of the owner and the group of `node`.
    pub(super) fn names_of_owner(&self, node: Node) -> Result<Names, Error> {
        let listed = self.owner_names.class(node.0);
        if let Some(names) = listed.and_then(|class| self.owner_names.names(class)) {
            return Ok(names);
        }
        self.pool.with(|session| {
            let class = match listed {
                Some(class) => class,
                None => self.stored(session, node)?.class,
            };
            if let Some(names) = self.owner_names.names(class) {
                return Ok(names);
            }
            let names = session.owner_names(class)?;
            self.owner_names.keep(class, &names);
            Ok(names)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_listed_last_is_known() {
        let names = OwnerNames::default();
        names.list(7, 3);
        assert_eq!(names.class(7), None, "nobody had asked yet");
        for (node, class) in [(7, 3), (8, i64::from(u32::MAX)), (9, -1), (10, 1 << 32), (0, 5), (1 << 33, 6)] {
            names.list(node, class);
        }
        let known = [7, 8, 9, 10, 0, 1 << 33].map(|node| names.class(node));
        assert_eq!(known, [Some(3), Some(i64::from(u32::MAX)), None, None, None, None]);
        names.list(7 + NODES as u64, 4);
        assert_eq!((names.class(7), names.class(7 + NODES as u64)), (None, Some(4)));
    }

    #[test]
    fn names_of_few_classes_are_kept() {
        let names = OwnerNames::default();
        assert_eq!(names.names(3), None);
        let (ours, long) = ((b"me".to_vec(), b"us".to_vec()), (vec![b'n'; LIMITS.owner_name + 1], Vec::new()));
        names.keep(3, &ours);
        names.keep(4, &long);
        assert_eq!((names.names(3), names.names(4)), (Some(ours.clone()), None));
        names.keep(3 + CLASSES as i64, &ours);
        assert_eq!((names.names(3), names.names(3 + CLASSES as i64)), (None, Some(ours)));
        assert_eq!(names.known.read().unwrap().len(), CLASSES);
    }
}
