//! Names in folders, and what is known of a node.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use rustix::io::Errno;
use tarnfs_tree::{Error, Node};

use super::{Answer, Dispatcher, Given, KnownAttributes, KnownName, Questions, attempt, errno, told};
use crate::protocol::{
    Folders, Keep, Reply, ReplyAttributes, ReplyData, ReplyEntry, ReplyNames, ReplyOpen, ReplyXattr, open,
};
use crate::statistics::{ATTRIBUTE, Operation};
use crate::{attributes, lifetimes, listing};

/// The longest target of a symbolic link that the kernel takes: a page less its end.
const MOST_LINK: usize = 4095;

/// The longest name of an extended attribute; an empty one makes the kernel refuse the whole list (`XATTR_NAME_MAX`).
const MOST_XATTR_NAME: usize = 255;

impl Dispatcher {
    /// What the kernel gets for [`ATTRIBUTE`] where there is this much `room`. Without any it asks for the length, and
    /// is told a greater one: the value may have grown when it asks for that.
    fn statistics(&self, room: u32) -> Vec<u8> {
        const MORE: usize = 512;
        let mut json = self.deadlines.statistics(self.asks.tree.work()).to_json().into_bytes();
        if room == 0 {
            json.resize(json.len().saturating_add(MORE), b' ');
        }
        json
    }

    /// The answer to [`TELL`](crate::ask::TELL).
    pub(super) fn told(&self) -> Vec<u8> {
        let statistics = self.deadlines.statistics(self.asks.tree.work()).to_json();
        [self.source.as_bytes(), &[0], statistics.as_bytes()].concat()
    }
}

impl Questions {
    pub(super) fn found(&self, attributes: &tarnfs_tree::Attributes) -> KnownAttributes {
        let keep = lifetimes::of_node(&*self.tree, &self.handles, attributes.node);
        (keep, attributes::shown(&*self.tree, attributes, self.overrides))
    }

    /// The same of a child of `folder`.
    pub(super) fn named(&self, folder: Node, attributes: &tarnfs_tree::Attributes) -> KnownName {
        let keep = lifetimes::of_child(&*self.tree, &self.handles, self.tree.lifetime(folder), attributes.node);
        (keep, attributes::shown(&*self.tree, attributes, self.overrides))
    }

    pub(super) fn attributes(&self, node: Node) -> Answer<KnownAttributes> {
        Ok(self.found(&told(self.tree.attributes(node))?))
    }

    /// The child `name`; node number 0, which the kernel keeps too, if there is none. `.` and `..` come from file
    /// handles of an NFS server.
    fn child(&self, folder: Node, name: &[u8]) -> Answer<KnownName> {
        let known = |node| self.attributes(node).map(|(keep, found)| (Keep::both(keep), found));
        match name {
            b"." => known(folder),
            b".." => known(told(self.tree.parent(folder))?),
            name => match self.tree.lookup(folder, name) {
                Ok(attributes) => Ok(self.named(folder, &attributes)),
                Err(Error::NotFound) => Ok((lifetimes::of_nothing(&*self.tree, folder), attributes::bare_folder(0))),
                Err(error) => Err(errno(&error)),
            },
        }
    }
}

impl Folders for Dispatcher {
    fn lookup(&self, folder: u64, name: &[u8], reply: ReplyEntry) {
        // Before the tree is asked anything: whatever that waits for, there is an answer at the deadline.
        let ticket = self.deadlines.begin(Operation::Lookup, folder, reply);
        let asked = if self.must_not_wait() { folder } else { self.asks.tree.asked_for(Node(folder), name).0 };
        ticket.asks(asked);
        let is_ready = self.is_ready(asked);
        let name = name.to_vec();
        let child = move |asks: &Questions| {
            let found = asks.child(Node(folder), &name)?;
            // Where nobody takes the answer, it is dropped with what it holds.
            let node = Some(Node(found.1.node)).filter(|node| node.0 != 0 && !matches!(&*name, b"." | b".."));
            Ok((found, Given::new(asks, node.into_iter().collect())))
        };
        self.ask_with(
            Operation::Lookup,
            asked,
            is_ready,
            ticket,
            child,
            |_, reply, ((keep, child), given): (KnownName, Given)| {
                if reply.entry(keep, &child) {
                    given.taken();
                }
            },
        );
    }

    fn getattr(&self, node: u64, reply: ReplyAttributes) {
        let ticket = self.deadlines.begin(Operation::Attributes, node, reply);
        let is_ready = self.is_ready(node);
        if !is_ready && let Some(known) = self.asks.tree.attributes_at_once(Node(node)) {
            let (keep, found) = self.asks.found(&known.attributes);
            // It may be otherwise by now: who asks next is to know, and the kernel to ask.
            if let Some(refresh) = known.refresh {
                self.later(node, move |_| refresh());
            }
            let keep = if known.is_old { Duration::ZERO } else { keep };
            return ticket.answer(|reply| reply.attributes(keep, &found));
        }
        self.ask_with(
            Operation::Attributes,
            node,
            is_ready,
            ticket,
            move |asks| asks.attributes(Node(node)),
            |_, reply, (keep, found)| reply.attributes(keep, &found),
        );
    }

    fn readlink(&self, node: u64, reply: ReplyData) {
        let target = move |asks: &Questions| match asks.tree.read_link(Node(node)) {
            Ok(target) if target.len() > MOST_LINK => Err(Errno::NAMETOOLONG),
            target => told(target),
        };
        self.ask(Operation::ReadLink, node, reply, target, |_, reply, target| reply.data(&target));
    }

    fn forget(&self, node: u64, times: u64) {
        // Also where nothing can change: folders that a tree makes up (of versions, or of several sources) are known as
        // long as the kernel knows them. Nobody waits for an answer.
        let _ = self.attempt(Operation::Other, node, || {
            self.asks.tree.forget(Node(node), times);
            Ok(())
        });
    }

    fn opendir(&self, node: u64, reply: ReplyOpen) {
        if self.no_opendir {
            return self.refuse_once(Operation::Open, reply);
        }
        self.deadlines.counters.count(Operation::Open);
        let is_kept = lifetimes::keeps_listing(&*self.asks.tree, Node(node));
        reply.opened(0, if is_kept { open::KEEP_CACHE | open::CACHE_DIR } else { 0 }, 0);
    }

    fn releasedir(&self, node: u64, reply: Reply) {
        // What that closes nobody waits for.
        if self.must_not_wait() {
            self.later(node, move |asks| asks.tree.close_folder(Node(node)));
        } else {
            let _ = self.attempt(Operation::Other, node, || {
                self.asks.tree.close_folder(Node(node));
                Ok(())
            });
        }
        reply.done();
    }

    fn readdir(&self, folder: u64, offset: u64, reply: ReplyNames) {
        let ticket = self.deadlines.begin(Operation::ReadDir, folder, reply);
        let fill = move |asks: &Questions| {
            if !ticket.is_wanted() {
                return;
            }
            let mut given = Given::new(asks, Vec::new());
            let filled = attempt(&asks.deadlines, Operation::ReadDir, folder, || {
                listing::fill(
                    (&*asks.tree, &asks.handles),
                    Node(folder),
                    offset,
                    asks.overrides,
                    &ticket,
                    &mut given.nodes,
                )
                .map_err(|error| errno(&error))
            });
            match filled {
                Ok(()) => ticket.answer(|reply| {
                    if reply.done() {
                        given.taken();
                    }
                }),
                Err(errno) => ticket.refuse(errno),
            }
        };
        if !self.must_not_wait() && self.asks.tree.lists_at_once(Node(folder), offset) {
            return fill(&self.asks);
        }
        self.later_if_held_up(folder, fill);
    }

    fn getxattr(&self, node: u64, name: &[u8], room: u32, reply: ReplyXattr) {
        if !self.has_xattrs {
            return self.refuse_once(Operation::Xattr, reply);
        }
        if node == Node::ROOT.0 && name == ATTRIBUTE.as_bytes() {
            let statistics = || Ok(self.statistics(room));
            return self.serve(Operation::Xattr, node, reply, statistics, |reply, value| reply.value(&value, room));
        }
        let name = name.to_vec();
        let value = move |asks: &Questions| {
            let value = told(asks.tree.xattr(Node(node), &name))?.ok_or(Errno::NODATA)?;
            Ok(attributes::masked(&name, value, asks.overrides.umask))
        };
        self.ask(Operation::Xattr, node, reply, value, move |_, reply, value| reply.value(&value, room));
    }

    fn listxattr(&self, node: u64, room: u32, reply: ReplyXattr) {
        if !self.has_xattrs {
            return self.refuse_once(Operation::Xattr, reply);
        }
        let names = move |asks: &Questions| {
            let all = told(asks.tree.xattrs(Node(node)))?;
            let fits = |name: &Vec<u8>| (1..=MOST_XATTR_NAME).contains(&name.len()) && !name.contains(&0);
            let names = all.into_iter().map(|(name, _)| name).filter(fits);
            Ok(names.flat_map(|name| name.into_iter().chain([0])).collect::<Vec<u8>>())
        };
        self.ask(Operation::Xattr, node, reply, names, move |_, reply, names| reply.value(&names, room));
    }
}
