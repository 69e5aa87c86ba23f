//! What `tarnfs convert` would give: a command for each compression with which single files are got at much sooner.

use tarnfs_write::Target;
use tarnfs_write::compress::{self, COMPRESSIONS, Compression};

use super::facts::Facts;
use super::in_words::time;
use crate::args::Open;
use crate::commands::advise::target::Input;

/// A way to make it faster.
pub(super) struct Faster {
    pub(super) command: String,
    pub(super) text: String,
    /// How long a read at a random place takes now and then, on average and in milliseconds.
    pub(super) now: f64,
    pub(super) then: f64,
}

/// It has to become faster by this factor.
const WORTH_IT: f64 = 2.0;

/// What is taken where the archive's own compression cannot be written, or is slow itself.
const QUICK: &str = "zstd";

/// Commands, the one that changes least first. None where nothing is slow, or where something would be lost.
pub(super) fn commands(facts: &Facts<'_>, open: &Open) -> Vec<Faster> {
    let summary = facts.opened.index.summary();
    // What is converted is not encrypted any more, what is damaged is refused, and ratarmount's index says too little.
    let is_kept = facts.locked.is_none() && summary.notes.is_empty() && !summary.has_locked && !facts.opened.is_sidecar;
    let now = facts.mean_time();
    if !is_kept || now < tarnfs_codec::engine::SLOW_MILLISECONDS as f64 {
        return Vec::new();
    }
    let is_single = facts.format.is_none();
    let is_tree = Target::plain().container().is_some_and(|container| summary.format == container.name());
    let keeps_stream = (is_single || is_tree) && !facts.looks_into_archives;
    let input = Input::Archive {
        path: facts.path,
        open,
        is_single: is_single && keeps_stream,
        is_plain: keeps_stream && summary.layers.is_empty(),
    };
    // That of the tar in it.
    let length = if keeps_stream { facts.opened.stream.len() } else { facts.census.bytes };
    let own = facts.layers.first().map(|layer| layer.codec.name());
    let named = |name: &str| COMPRESSIONS.iter().copied().find(|one| one.name() == name);
    let mut candidates: Vec<&'static dyn Compression> = own.and_then(named).into_iter().collect();
    candidates.extend(named(QUICK).filter(|quick| Some(quick.name()) != own));
    let faster = candidates.into_iter().filter_map(|compression| {
        let level = compression.usual_level();
        let then = time_of(compression, level, length)?;
        if then * WORTH_IT > now {
            return None;
        }
        let text = format!(
            "a read at a random place would take {} instead of {}{}{}",
            time(then),
            time(now),
            if facts.cache.is_some() { " where it is not in the cache" } else { "" },
            also(facts, compression)
        );
        Some(Faster { command: input.command(compression, level, 0), text, now, then })
    });
    faster.collect()
}

/// What else it gives.
fn also(facts: &Facts<'_>, compression: &dyn Compression) -> &'static str {
    let is_one = facts.layers.first().and_then(|layer| layer.outline).is_some_and(|outline| outline.parts == Some(1));
    let is_same = facts.layers.first().is_some_and(|layer| layer.codec.name() == compression.name());
    match (is_one, is_same) {
        (true, true) => ", and other programs could decode it on several threads",
        (_, false) => "; `tarnfs advise` says how large it would become",
        _ => "",
    }
}

/// How long a read at a random place takes in an archive that is written so: on average, in milliseconds.
fn time_of(compression: &dyn Compression, level: i32, length: u64) -> Option<f64> {
    let pace = tarnfs_codec::by_name(compression.name())?.pace();
    let apart = compress::apart(compression, compression.part(level) as u64).min(length);
    Some(pace.milliseconds(if pace.in_whole_chunks { apart } else { apart / 2 }))
}
