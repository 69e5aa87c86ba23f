//! What is slow to read, and why: what really decides how far one has to decode for a byte.

use std::fmt::Write as _;

use tarnfs_tree::Method;

use super::facts::{Facts, IndexState, Layer, Way, way_of};
use super::in_words::{name_of_method, percent, plural, size, time};

/// Something that is slow.
pub(super) struct Slow {
    /// Which kind of reason, for programs.
    pub(super) reason: &'static str,
    pub(super) text: String,
    /// Bytes that have to be decoded, read, or kept in memory, at most.
    pub(super) bytes: u64,
    /// How long that takes at most, in milliseconds, if it takes time.
    pub(super) milliseconds: Option<f64>,
}

/// Most of a stream.
const NEARLY_ALL: f64 = 0.99;

/// All reasons, the most general ones first.
pub(super) fn reasons(facts: &Facts<'_>) -> Vec<Slow> {
    let mut reasons = Vec::new();
    of_index(facts, &mut reasons);
    for (number, layer) in facts.layers.iter().enumerate() {
        let kept = if number == 0 { facts.share_kept() } else { 0.0 };
        of_layer(layer, kept, facts.memory, &mut reasons);
    }
    for method in &facts.census.methods {
        of_method(method, &mut reasons);
    }
    for nested in &facts.nested {
        let Some(codec) = nested.codec.as_deref().and_then(tarnfs_codec::by_name) else { continue };
        let milliseconds = codec.pace().milliseconds(nested.longest);
        // Half of it on average.
        if milliseconds >= 2.0 * tarnfs_codec::engine::SLOW_MILLISECONDS as f64 {
            let text = format!(
                "files in archives in it that are compressed with {}: up to {} are decoded before a byte, about {}",
                codec.name(),
                size(nested.longest),
                time(milliseconds)
            );
            reasons.push(Slow { reason: "nested", text, bytes: nested.longest, milliseconds: Some(milliseconds) });
        }
    }
    reasons
}

fn of_index(facts: &Facts<'_>, reasons: &mut Vec<Slow>) {
    let bytes = facts.size();
    let text = match facts.index.state {
        IndexState::Sidecar => {
            if facts.layers.is_empty() {
                return;
            }
            "ratarmount's index has no checksums: what is read for the first time is verified by decoding, which may \
             take as long as decoding all of it; `tarnfs index` makes an index that has them"
                .to_owned()
        }
        IndexState::NotKept | IndexState::InMemory if !facts.has_directory() || !facts.layers.is_empty() => {
            format!("no index is kept, so each call reads all {} of the archive", size(bytes))
        }
        _ => return,
    };
    let reason = if facts.opened.is_sidecar { "no_checksums" } else { "no_index" };
    reasons.push(Slow { reason, text, bytes, milliseconds: None });
}

fn of_layer(layer: &Layer, kept: f64, memory: u64, reasons: &mut Vec<Slow>) {
    let way = layer.way();
    let name = layer.codec.name();
    if way.is_slow() && kept < NEARLY_ALL {
        let why = why_far(layer);
        let mut text = format!("a read at a random place {}{why}", of_way(&way, layer.codec.pace().in_whole_chunks));
        if kept > 0.0 {
            let _ = write!(text, "; not in the {} of it that the cache has", percent(kept));
        }
        let reason = if layer.points.count <= 1 { "no_seek_points" } else { "seek_points" };
        reasons.push(Slow { reason, text, bytes: way.most, milliseconds: Some(way.most_time) });
    }
    let history = layer.outline.and_then(|outline| outline.history).unwrap_or_default();
    // Decoders that would hold more than that together wait for each other.
    if history > memory / 8 {
        let text = format!(
            "each decoder of {name} needs {} of memory for what was decoded before, so they wait for each other; \
             --cache-memory gives them more than {}",
            size(history),
            size(memory)
        );
        reasons.push(Slow { reason: "memory", text, bytes: history, milliseconds: None });
    }
}

/// "decodes 4 MiB first on average and 8 MiB at most, about 40 ms and 80 ms"
fn of_way(way: &Way, in_whole: bool) -> String {
    let (mean, most) = (size(way.mean as u64), size(way.most));
    let (mean_time, most_time) = (time(way.mean_time), time(way.most_time));
    if in_whole {
        return format!(
            "decodes a whole block, of {mean} on average and {most} at most: {mean_time}, at most {most_time}"
        );
    }
    format!("decodes {mean} first on average and {most} at most: {mean_time}, at most {most_time}")
}

/// Why so much is decoded, if something can be said of that.
fn why_far(layer: &Layer) -> String {
    let name = layer.codec.name();
    if !layer.codec.has_seek_points() || layer.points.count <= 1 {
        return format!(", as {name} can only be decoded from its start here");
    }
    match layer.outline.and_then(|outline| outline.parts.map(|parts| (parts, outline.part))) {
        Some((1, part)) => format!(", as it is one {part} of {name}"),
        Some((parts, _)) if layer.points.count > parts => String::new(),
        Some((_, part)) => format!(", as a {part} is as long as that"),
        None => String::new(),
    }
}

fn of_method(method: &Method, reasons: &mut Vec<Slow>) {
    let (way, name) = (way_of(method), name_of_method(method));
    if way.is_slow() && method.has_blocks {
        let text = format!("{} stored with {name}: a read {}", plural(method.files, "file"), of_way(&way, true));
        reasons.push(Slow { reason: "blocks", text, bytes: way.most, milliseconds: Some(way.most_time) });
    } else if way.is_slow() && method.shared > 0 {
        let text = format!(
            "{} stored with {name} in {} of up to {}: the first read of a file decodes what is before it in its block, \
             {} on average, up to {} at its end",
            plural(method.files, "file"),
            plural(method.shared, "solid block"),
            size(method.longest_shared),
            time(way.mean_time),
            time(way.most_time)
        );
        reasons.push(Slow { reason: "solid", text, bytes: method.longest_shared, milliseconds: Some(way.most_time) });
    } else if way.is_slow() {
        let text = format!(
            "{} stored with {name}, the longest of {}: the first read inside of one decodes what is before it, {} on \
             average, up to {}",
            plural(method.files, "file"),
            size(method.longest),
            time(way.mean_time),
            time(way.most_time)
        );
        reasons.push(Slow { reason: "members", text, bytes: method.longest, milliseconds: Some(way.most_time) });
    }
    let is_without = |step: &&String| tarnfs_codec::coder_by_name(step).is_some_and(|codec| !codec.has_seek_points());
    if let Some(step) = method.steps.iter().find(is_without).filter(|_| way.is_slow()) {
        let text = format!("{step} has no seek points: what was decoded is copied to a file while it is open");
        let (bytes, milliseconds) = (method.longest, Some(way.most_time));
        reasons.push(Slow { reason: "no_seek_points", text, bytes, milliseconds });
    }
}
