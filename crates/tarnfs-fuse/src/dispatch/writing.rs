//! What would change something.

use rustix::io::Errno;
use tarnfs_tree::Node;

use super::{Answer, Dispatcher};
use crate::protocol::{Filesystem as _, How, Reply, ReplyAttributes, ReplyWrite, Writing};
use crate::statistics::Operation;

impl Dispatcher {
    /// True for what is there to control the mount.
    pub(super) fn is_own(&self, node: u64) -> bool {
        self.asks.tree.control().is_some_and(|control| control.is_own(Node(node)))
    }

    pub(super) fn takes_writes(&self, node: u64) -> bool {
        self.asks.tree.control().is_some_and(|control| control.takes_writes(Node(node)))
    }

    /// Whoever serves a mount is controlled by that user and by root alone, also where the kernel does not look at
    /// modes.
    pub(super) fn may_open(&self, node: u64, how: How) -> Answer<()> {
        if how.to_write && !self.takes_writes(node) {
            return Err(Errno::ROFS);
        }
        if self.is_own(node) && how.user != 0 && how.user != rustix::process::geteuid().as_raw() {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }
}

impl Writing for Dispatcher {
    fn write(&self, node: u64, handle: u64, bytes: &[u8], reply: ReplyWrite) {
        let write = || {
            let control = self.asks.tree.control().filter(|control| control.takes_writes(Node(node)));
            control.ok_or(Errno::ROFS)?.write(handle, bytes);
            Ok(bytes.len() as u32)
        };
        self.serve(Operation::Write, node, reply, write, ReplyWrite::taken);
    }

    fn truncate(&self, node: u64, reply: ReplyAttributes) {
        let attributes = || if self.takes_writes(node) { self.asks.attributes(Node(node)) } else { Err(Errno::ROFS) };
        self.serve(Operation::Write, node, reply, attributes, |reply, (keep, found)| reply.attributes(keep, &found));
    }

    fn access(&self, node: u64, to_write: bool, reply: Reply) {
        if self.asks.tree.control().is_none() {
            return self.other(reply);
        }
        self.deadlines.counters.count(Operation::Other);
        if to_write && !self.takes_writes(node) {
            return reply.error(Errno::ROFS);
        }
        reply.done();
    }

    /// Where the mount is read-only, this takes a remount by root.
    fn change(&self, reply: Reply) {
        self.deadlines.counters.count(Operation::Write);
        reply.error(Errno::ROFS);
    }
}
