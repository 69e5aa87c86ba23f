//! What is in a folder: names that are only here, and then those that are below, as they are by now.
//!
//! A name that is below stays where it is in the listing, also if something else has it by now: who lists a folder
//! while others change it gets each name once.

use super::editing::is_name;
use super::rows::{self, Said};
use super::{NodePlace, Overlay, lock};
use crate::asker::unasked;
use crate::{Attributes, Child, Error, Lifetime, Node, UNKNOWN};

/// Positions in a listing below this are those of names that are only here; behind it are those of what is below,
/// moved by as much. Where nothing is below any more, the names that were over it are there.
pub(super) const BELOW: u64 = 1 << 32;

/// Names that are read at once for a listing.
const BATCH: usize = 128;

impl Overlay {
    /// True if nothing below a folder can have changed since its names were compared with that.
    pub(super) fn is_compared(&self, id: u64, lower: Node) -> bool {
        self.lower.lifetime(lower) == Lifetime::Forever && lock(&self.compared).contains(&id)
    }

    /// Names in a folder that are said to be over something below, and are not any more, or the other way round:
    /// another archive is below, or a folder in which somebody has made or removed something.
    fn compare(&self, folder: Node, id: u64, lower: Node) -> Result<(), Error> {
        if self.is_compared(id, lower) {
            return Ok(());
        }
        let mut wrong = Vec::new();
        for is_over in [false, true] {
            let mut seq = 0;
            loop {
                let batch = self.database.ask(|connection| rows::names(connection, id, is_over, seq, BATCH))?;
                let Some(last) = batch.last() else { break };
                seq = last.seq;
                for row in batch.into_iter().filter(|row| is_name(&row.name).is_ok()) {
                    if self.is_over(folder, &row.name)? != is_over {
                        wrong.push((row, !is_over));
                    }
                }
            }
        }
        if !wrong.is_empty() {
            // Who lists it has not asked for that, and who removes it asks more of what is below before that begins.
            unasked(|| {
                self.edit_for_room(|editing| {
                    // By name alone: what has it may be another by now.
                    let set = |(row, is_over): &(rows::NameRow, bool)| {
                        rows::set_over(editing.connection, id, &row.name, *is_over)
                    };
                    wrong.iter().try_for_each(set)
                })
            })?;
        }
        lock(&self.compared).insert(id);
        Ok(())
    }

    /// The children of a folder that are only here, or those that are, or were, over something below (`is_over`).
    /// Their positions are moved by `base`. False if `receive` takes no more.
    fn list_own(
        &self,
        id: u64,
        is_over: bool,
        (mut seq, base): (u64, u64),
        receive: &mut dyn FnMut(Child<'_>) -> bool,
    ) -> Result<bool, Error> {
        loop {
            let (last, batch) = self.database.ask(|connection| {
                let names = rows::names(connection, id, is_over, seq, BATCH)?;
                let last = names.last().map(|row| row.seq);
                let with_node = |row: rows::NameRow| {
                    let node = row.node.map_or(Ok(None), |node| rows::node(connection, node));
                    match node {
                        Err(error) if rows::is_wrong(&error) => {
                            log::warn!("{}: is not shown: {error}", tarnfs_format::name::excerpt(&row.name));
                            Ok(None)
                        }
                        node => node.map(|node| Some((row.seq, row.name, node?))),
                    }
                };
                let with_nodes = names.into_iter().filter_map(|row| with_node(row).transpose());
                Ok((last, with_nodes.collect::<Result<Vec<_>, Error>>()?))
            })?;
            let Some(last) = last else { return Ok(true) };
            seq = last;
            for (next, name, node) in batch {
                if is_name(&name).is_err() {
                    log::warn!("{}: is no name, and not shown", tarnfs_format::name::excerpt(&name));
                    continue;
                }
                let attributes = self.shown(&node)?;
                let node = attributes.node;
                self.known.hold(node);
                if !receive(Child { name: &name, attributes, next: next.saturating_add(base) }) {
                    self.forget(node, 1);
                    return Ok(false);
                }
            }
        }
    }

    /// The children of a folder that are below, as they are by now.
    fn list_below(
        &self,
        folder: Node,
        lower: Node,
        id: Option<u64>,
        from: u64,
        receive: &mut dyn FnMut(Child<'_>) -> bool,
    ) -> Result<(), Error> {
        let mut failure = None;
        self.lower.read_dir(lower, from, &mut |child| {
            let found = child.attributes.node;
            let next = child.next.saturating_add(BELOW);
            let said = id.map_or(Ok(Said::Nothing), |id| self.said(id, child.name));
            let given = match said {
                Ok(Said::Gone) => Ok(None),
                Ok(Said::Node(own)) => match self.is_made_anew(own, folder, child.name, &child.attributes) {
                    Ok(true) => return self.give_unknown(&child, next, receive),
                    Ok(false) => self.give(own).map(Some),
                    Err(error) => Err(error),
                },
                Ok(Said::Nothing) if found == UNKNOWN => {
                    return receive(Child { next, ..child });
                }
                Ok(Said::Nothing) => {
                    if let Some(own) = self.met.id(found) {
                        match self.is_name_of(own, found, folder, child.name) {
                            Ok(true) => self.give_named(own, folder, child.name).map(Some),
                            Ok(false) => return self.give_unknown(&child, next, receive),
                            Err(error) => Err(error),
                        }
                    } else {
                        self.hold_seen(&child.attributes, folder, child.name);
                        let is_taken = receive(Child { next, ..child });
                        if !is_taken {
                            // What is below takes its own back.
                            self.pass_on(self.known.take_back(found));
                        }
                        return is_taken;
                    }
                }
                Err(error) => Err(error),
            };
            let goes_on = match given {
                Ok(None) => true,
                Ok(Some(attributes)) => {
                    let node = attributes.node;
                    let is_taken = receive(Child { name: child.name, attributes, next });
                    if !is_taken {
                        self.forget(node, 1);
                    }
                    is_taken
                }
                Err(error) => {
                    failure = Some(error);
                    false
                }
            };
            // What is refused below counts as not given.
            if goes_on && found != UNKNOWN {
                self.lower.forget(found, 1);
            }
            goes_on
        })?;
        failure.map_or(Ok(()), Err)
    }

    /// Who asks for a child of which only the name is certain is told what it is.
    fn give_unknown(&self, child: &Child<'_>, next: u64, receive: &mut dyn FnMut(Child<'_>) -> bool) -> bool {
        let found = child.attributes.node;
        let attributes = Attributes { node: UNKNOWN, ..child.attributes };
        let goes_on = receive(Child { attributes, next, ..*child });
        // What is refused below counts as not given.
        if goes_on {
            self.lower.forget(found, 1);
        }
        goes_on
    }

    pub(super) fn read_dir(
        &self,
        folder: Node,
        from: u64,
        receive: &mut dyn FnMut(Child<'_>) -> bool,
    ) -> Result<(), Error> {
        let lower = self.below(folder);
        let id = match self.place(folder) {
            NodePlace::Own(id) => Some(id),
            NodePlace::Lower => None,
        };
        if let Some(id) = id
            && from < BELOW
        {
            if let Some(lower) = lower
                && from == 0
            {
                self.compare(folder, id, lower)?;
            }
            if !self.list_own(id, false, (from, 0), receive)? {
                return Ok(());
            }
        }
        let from = from.saturating_sub(BELOW);
        let Some(lower) = lower else {
            let id = id.ok_or(Error::NotFound)?;
            return self.list_own(id, true, (from, BELOW), receive).map(drop);
        };
        let mut is_begun = from > 0;
        let listed = self.list_below(folder, lower, id, from, &mut |child| {
            let is_taken = receive(child);
            is_begun |= is_taken;
            is_taken
        });
        match (listed, id) {
            (Err(error), Some(id)) if self.is_gone_below(folder, &error) => {
                if is_begun {
                    return Ok(());
                }
                // What was over it is left, and who goes on with that is not to ask what is below.
                self.lose(id);
                self.list_own(id, true, (0, BELOW), receive).map(drop)
            }
            (listed, _) => listed,
        }
    }
}
