//! Names in folders, and what is known of a node.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use rustix::io::Errno;
use tarnfs_tree::{Error, LastKnown, Node};

use super::{Answer, Dispatcher, Given, GivenName, KnownName, Questions, send_attributes, send_name, told};
use crate::deadline::Ticket;
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
        let mut json = self.asks.statistics().to_json().into_bytes();
        if room == 0 {
            json.resize(json.len().saturating_add(MORE), b' ');
        }
        json
    }

    /// The answer to [`TELL`](crate::ask::TELL).
    pub(super) fn told(&self) -> Vec<u8> {
        let statistics = self.asks.statistics().to_json();
        [self.source.as_bytes(), &[0], statistics.as_bytes()].concat()
    }

    /// Answers with what was known of a node when somebody asked last.
    fn answer_with_last(&self, known: LastKnown, ticket: Ticket<ReplyAttributes>) {
        let (keep, found) = self.asks.found(&known.attributes);
        // It may be otherwise by now: who asks next is to know, and the kernel to ask.
        if let Some(refresh) = known.refresh {
            self.later(ticket.node(), move |_| refresh());
        }
        let keep = if known.is_old { Duration::ZERO } else { keep };
        ticket.answer(|reply| reply.attributes(keep, &found));
    }
}

impl Questions {
    /// The child `name`; node number 0, which the kernel keeps too, if there is none. `.` and `..` come from file
    /// handles of an NFS server.
    fn child(&self, folder: Node, name: &[u8]) -> Answer<GivenName> {
        let (found, given) = match name {
            b"." => (self.itself(folder)?, None),
            b".." => (self.itself(told(self.tree.parent(folder))?)?, None),
            name => self.looked_up(folder, name)?,
        };
        // Where nobody takes the answer, it is dropped with what it holds.
        Ok((found, Given::new(self, given.into_iter().collect())))
    }

    fn itself(&self, folder: Node) -> Answer<KnownName> {
        let (keep, found) = self.attributes(folder)?;
        Ok((Keep::both(keep), found))
    }

    /// What is known of the child `name`, and its node if there is one.
    fn looked_up(&self, folder: Node, name: &[u8]) -> Answer<(KnownName, Option<Node>)> {
        match self.tree.lookup(folder, name) {
            Ok(attributes) => Ok((self.named(folder, &attributes), Some(attributes.node))),
            Err(Error::NotFound) => {
                let keep = lifetimes::of_nothing(&*self.tree, folder);
                Ok(((keep, attributes::bare_folder(0)), None))
            }
            Err(error) => Err(error.errno()),
        }
    }

    /// Fills the reply behind `ticket` with the children of `folder` from position `offset` on.
    fn list(&self, folder: Node, offset: u64, ticket: Ticket<ReplyNames>) {
        if !ticket.is_wanted() {
            return;
        }
        let mut given = Given::new(self, Vec::new());
        let (shown, nodes) = ((&*self.tree, &*self.handles, self.overrides), &mut given.nodes);
        let filled = ticket.attempt(|| told(listing::fill(shown, folder, offset, &ticket, nodes)));
        ticket.settle(filled, |reply, ()| given.sent(reply.done()));
    }

    /// The value of an extended attribute.
    fn xattr(&self, node: Node, name: &[u8]) -> Answer<Vec<u8>> {
        let value = told(self.tree.xattr(node, name))?.ok_or(Errno::NODATA)?;
        Ok(attributes::masked(name, value, self.overrides.umask))
    }

    /// The names of all of them, each with a zero byte behind it.
    fn xattr_names(&self, node: Node) -> Answer<Vec<u8>> {
        let all = told(self.tree.xattrs(node))?;
        let fits = |name: &Vec<u8>| (1..=MOST_XATTR_NAME).contains(&name.len()) && !name.contains(&0);
        let names = all.into_iter().map(|(name, _)| name).filter(fits);
        Ok(names.flat_map(|name| name.into_iter().chain([0])).collect())
    }
}

impl Folders for Dispatcher {
    fn lookup(&self, folder: u64, name: &[u8], reply: ReplyEntry) {
        // Before the tree is asked anything: whatever that waits for, there is an answer at the deadline.
        let ticket = self.begin(Operation::Lookup, folder, reply);
        let asked = if self.must_not_wait() { folder } else { self.asks.tree.asked_for(Node(folder), name).0 };
        ticket.asks(asked);
        let name = name.to_vec();
        self.ask_with(self.is_ready(asked), ticket, move |asks| asks.child(Node(folder), &name), send_name);
    }

    fn getattr(&self, node: u64, reply: ReplyAttributes) {
        let ticket = self.begin(Operation::Attributes, node, reply);
        let is_ready = self.is_ready(node);
        if !is_ready && let Some(known) = self.asks.tree.attributes_at_once(Node(node)) {
            return self.answer_with_last(known, ticket);
        }
        self.ask_with(is_ready, ticket, move |asks| asks.attributes(Node(node)), send_attributes);
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
        self.unasked(node, || self.asks.tree.forget(Node(node), times));
    }

    fn opendir(&self, node: u64, reply: ReplyOpen) {
        if self.terms.no_opendir {
            return self.refuse_once(Operation::Open, reply);
        }
        self.count(Operation::Open);
        let is_kept = lifetimes::keeps_listing(&*self.asks.tree, Node(node));
        reply.opened(0, if is_kept { open::KEEP_CACHE | open::CACHE_DIR } else { 0 }, 0);
    }

    fn releasedir(&self, node: u64, reply: Reply) {
        // What that closes nobody waits for.
        if self.must_not_wait() {
            self.later(node, move |asks| asks.tree.close_folder(Node(node)));
        } else {
            self.unasked(node, || self.asks.tree.close_folder(Node(node)));
        }
        reply.done();
    }

    fn readdir(&self, folder: u64, offset: u64, reply: ReplyNames) {
        let ticket = self.begin(Operation::ReadDir, folder, reply);
        let list = move |asks: &Questions| asks.list(Node(folder), offset, ticket);
        if !self.must_not_wait() && self.asks.tree.lists_at_once(Node(folder), offset) {
            return list(&self.asks);
        }
        self.later_if_held_up(folder, list);
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
        let value = move |asks: &Questions| asks.xattr(Node(node), &name);
        self.ask(Operation::Xattr, node, reply, value, move |_, reply, value| reply.value(&value, room));
    }

    fn listxattr(&self, node: u64, room: u32, reply: ReplyXattr) {
        if !self.has_xattrs {
            return self.refuse_once(Operation::Xattr, reply);
        }
        let names = move |asks: &Questions| asks.xattr_names(Node(node));
        self.ask(Operation::Xattr, node, reply, names, move |_, reply, names| reply.value(&names, room));
    }
}
