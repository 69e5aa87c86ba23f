//! Removes what has no name any more, with its content, when nobody knows it.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::rows::{self, NodeRow};
use super::{Overlay, lock};
use crate::{Error, Kind, Node};

/// How long what was removed is gathered, and how many files at most, before it is removed at once.
const GATHERED: Duration = Duration::from_millis(500);
const MOST_REAPED: usize = 1000;

/// Where there is less room, what was removed goes without waiting for more: bytes.
const SHORT: u64 = 64 << 20;

/// Removes what has no name, when nobody knows it any more: many at once, as that takes bringing the log to the disk.
fn reap(overlay: &Weak<Overlay>, ids: &Receiver<u64>) {
    while let Ok(first) = ids.recv() {
        let Some(is_needed) = overlay.upgrade().map(|overlay| overlay.is_short_of_room()) else { return };
        let until = Instant::now() + if is_needed { Duration::ZERO } else { GATHERED };
        let mut all = vec![first];
        while all.len() < MOST_REAPED
            && let Ok(next) = ids.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            all.push(next);
        }
        let Some(overlay) = overlay.upgrade() else { return };
        overlay.reap(&all);
    }
}

impl Overlay {
    /// Has a thread that may wait remove a node that has no name. Where there is none, that is done at the end.
    pub(super) fn reap_later(&self, id: u64) {
        let start = || {
            let (me, (to, from)) = (Weak::clone(&self.me), channel());
            let builder = thread::Builder::new().name("tarnfs-overlay".to_owned()).stack_size(256 << 10);
            builder.spawn(move || reap(&me, &from)).ok().map(|_| Mutex::new(to))
        };
        if let Some(reaper) = self.reaper.get_or_init(start) {
            let _ = lock(reaper).send(id);
        }
    }

    /// True where what was removed is to make room for others.
    pub(super) fn is_short_of_room(&self) -> bool {
        self.files.space().is_ok_and(|space| space.f_bavail.saturating_mul(space.f_frsize) < SHORT)
    }

    /// True if a node has no name, and nobody knows it any more.
    pub(super) fn is_left(&self, id: u64) -> bool {
        let node = self.met.lower(id).unwrap_or(Node(self.first.saturating_add(id)));
        !self.known.is_known(node) && self.opened(node).is_none() && lock(&self.orphans).contains(&id)
    }

    /// Removes nodes that have no name, those that nobody knows any more.
    ///
    /// First, what has taken their names is brought to the disk: after a loss of power they have them again, and what
    /// has replaced them is not there.
    pub(super) fn reap(&self, ids: &[u64]) {
        let left: Vec<u64> = ids.iter().copied().filter(|&id| self.is_left(id)).collect();
        if left.is_empty() {
            return;
        }
        if let Err(error) = self.sync() {
            let folder = self.files.path().display();
            log::warn!("{folder}: removed files stay, as what was done cannot be brought to the disk: {error}");
            return;
        }
        for id in left {
            self.reap_one(id);
        }
    }

    /// Of what could not be removed when the overlay is opened, nothing else gets the place: it would be removed with
    /// it, when that can be done. Contents may be gone before that is noted, where all was removed at once.
    pub(super) fn avoid_places(&self) -> Result<(), Error> {
        let left: Vec<u64> = lock(&self.orphans).iter().copied().collect();
        for id in left {
            match self.row(id) {
                Ok(Some(NodeRow { kind: Kind::File, place: Some(place), .. })) => self.files.avoid(place),
                Err(error) if !rows::is_wrong(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn reap_one(&self, id: u64) {
        if !self.is_left(id) {
            return;
        }
        let removed = self.row(id).and_then(|row| {
            let Some(row) = row.filter(|row| row.links == 0) else { return Ok(()) };
            // Its place is free only when nothing says any more that it is its own: the next file there would be taken
            // for it, and removed.
            let remove = || self.edit_for_room(|editing| rows::remove_node(editing.connection, id));
            match (row.kind, &row.place) {
                (Kind::File, Some(place)) => {
                    remove().or_else(|error| match error.errno() {
                        Errno::NOSPC | Errno::DQUOT => {
                            self.files.open_content(place)?.set_len(0)?;
                            remove()
                        }
                        _ => Err(error),
                    })?;
                    self.files.remove_unused(place);
                }
                (Kind::Folder, Some(place)) => {
                    remove()?;
                    self.files.remove_folder(place);
                }
                _ => remove()?,
            }
            Ok(())
        });
        match removed {
            Ok(()) => {
                self.files.take_reserve();
                lock(&self.orphans).remove(&id);
                self.met.part(id);
            }
            // It is tried again when the overlay is used again.
            Err(error) => log::warn!("{}: a removed file stays: {error}", self.files.path().display()),
        }
    }
}
