//! The kernel's side: mounts a [`Tree`](tarnfs_tree::Tree) through FUSE.
//!
//! The low-level protocol (`protocol`), in which a file is its node number: the kernel asks for a node, a method of the
//! tree is called, its answer goes back (`dispatch`). Of a tree that cannot change nothing is kept per file: node
//! numbers come from the tree and are valid for ever, so "forget" means nothing, and files and folders need not be
//! opened. What cannot change is given to the kernel for ever; a second listing or a second read of the same bytes
//! never gets here. Where anything in a tree can change, files are opened (`handles`), and the tree says of each node
//! how long the kernel may keep what it is told (`lifetimes`): for ever, for a second, or not at all. What would change
//! something goes to [`Tree::edit`](tarnfs_tree::Tree::edit); a tree without it is mounted read-only.
//!
//! What must hold, and where it is done:
//! - a thread that answers the kernel never decodes: reads that would wait go to `workers`;
//! - every request has a deadline, at which the kernel gets an error whatever became of the work: `deadline`;
//! - a program that gets a signal while it reads gets its answer at once, else after some seconds: `deadline`;
//! - a panic becomes EIO, a count and a backtrace in the log: `guard`;
//! - a mount can always be taken away, also one whose program has died: `unmount`.
//!
//! Threads are started by [`mount()`] and end with the mount; a program that forks must do so before.

#![deny(unsafe_code)]

mod ask;
mod attributes;
mod buffers;
mod closing;
mod deadline;
mod device;
mod dispatch;
mod error;
mod fusermount;
mod guard;
mod handles;
mod lifetimes;
mod listing;
mod mountinfo;
mod opened;
mod options;
mod protocol;
mod servers;
mod session;
mod statistics;
mod unmount;
mod unproven;
mod workers;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use ask::{Told, told};
pub use device::is_mounted_device;
pub use error::Error;
pub use fusermount::find as fusermount;
pub use options::{MountOptions, plain_option, split_options};
pub use protocol::{Offer, REQUESTS_FOR_BACKING_FILES, offer};
pub use servers::find_since;
pub use session::{Mount, Stopper, mount};
pub use statistics::{ATTRIBUTE as STATISTICS_ATTRIBUTE, Operation, Statistics};
pub use unmount::{MountedDevice, MountedTree, Unmounter, abort, mounts, unmount, unmount_dead};
