//! Files that were written to, and are being closed: who does so goes on when what the file still does is done.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tarnfs_tree::edit::Pending;
use tarnfs_tree::{Error, WritableFile};

use crate::deadline::{Ticket, lock};
use crate::protocol::ReplyDone;

/// How long who waits for what a file still does, does so before it looks whether somebody still wants to know.
const NAP: Duration = Duration::from_millis(100);

/// The part of the deadline after which there is an answer all the same.
const PART: f64 = 0.8;

/// Somebody closes `file`, and is answered when what it still does is done.
pub(crate) fn flush(file: &dyn WritableFile, ticket: Ticket<ReplyDone>) {
    match ticket.attempt(|| file.flush().map_err(|error| Error::from(error).errno())) {
        Ok(pending) if pending.is_empty() => ticket.answer(ReplyDone::done),
        Ok(pending) => answer_after(pending, ticket),
        Err(errno) => ticket.refuse(errno),
    }
}

/// Answers when all that is `pending` is done, or some time before the deadline. A thread of its own waits.
fn answer_after(pending: Vec<Pending>, ticket: Ticket<ReplyDone>) {
    let limit = ticket.limit().mul_f64(PART);
    let ticket = Arc::new(Mutex::new(Some(ticket)));
    let waiting = Arc::clone(&ticket);
    let wait = move || {
        wait_for(pending, limit, &|| lock(&waiting).as_ref().is_some_and(Ticket::is_wanted));
        answer(&waiting);
    };
    let builder = thread::Builder::new().name("tarnfs-closing".to_owned()).stack_size(256 << 10);
    if builder.spawn(wait).is_err() {
        answer(&ticket);
    }
}

/// Waits for all that is `pending`, together no longer than `limit`, and as long as somebody wants to know.
fn wait_for(pending: Vec<Pending>, limit: Duration, is_wanted: &dyn Fn() -> bool) {
    let begun = Instant::now();
    for one in pending {
        while begun.elapsed() < limit && is_wanted() && !one.is_done(NAP) {}
    }
}

fn answer(ticket: &Mutex<Option<Ticket<ReplyDone>>>) {
    if let Some(ticket) = lock(ticket).take() {
        ticket.answer(ReplyDone::done);
    }
}
