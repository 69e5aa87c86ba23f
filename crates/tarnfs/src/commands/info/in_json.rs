//! What is said to programs: one object, with raw numbers. `doc/json.md` says what the keys mean.

use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Map, Value, json};
use tarnfs_tree::{Fit, Method};

use super::facts::{Facts, IndexState, Layer, Way, way_of};
use super::faster::Faster;
use super::in_words::step_name;
use super::slow::Slow;
use crate::json::put;

/// All that is said.
pub(super) fn object(facts: &Facts<'_>, slow: &[Slow], faster: &[Faster]) -> Value {
    let summary = facts.opened.index.summary();
    let census = &facts.census;
    let mut object = Map::new();
    put(&mut object, "path", facts.path.as_os_str().as_bytes());
    object.insert("format".into(), summary.format.as_str().into());
    if let Some(label) = &summary.label {
        put(&mut object, "label", label);
    }
    object.insert("split".into(), facts.is_split.into());
    object.insert("size".into(), facts.size().into());
    object.insert("unpacked".into(), facts.opened.stream.len().into());
    object.insert("content".into(), census.bytes.into());
    object.insert("layers".into(), facts.layers.iter().map(of_layer).collect());
    let entries = json!({
        "files": census.files,
        "folders": census.folders,
        "symlinks": census.symlinks,
        "hard_links": census.hard_links,
        "character_devices": census.character_devices,
        "block_devices": census.block_devices,
        "fifos": census.fifos,
        "sockets": census.sockets,
        "sparse": census.sparse,
        "versions": census.versions,
        "longest": census.longest,
    });
    object.insert("entries".into(), entries);
    if let Some(locked) = facts.locked {
        let passwords = match locked.passwords {
            Fit::NotGiven => "not given",
            Fit::None => "wrong",
            Fit::SomeOrUnknown => "fit or unknown",
        };
        object.insert("encrypted".into(), json!({ "files": locked.encrypted, "passwords": passwords }));
    }
    let streams = facts.nested.iter().map(|nested| {
        json!({
            "codec": nested.codec,
            "streams": nested.streams,
            "compressed": nested.compressed,
            "decoded": nested.decoded,
            "longest": nested.longest,
        })
    });
    let archives = json!({
        "recursive": facts.looks_into_archives,
        "files": census.archives,
        "opened": census.opened,
        "streams": streams.collect::<Vec<_>>(),
    });
    object.insert("archives".into(), archives);
    object.insert("methods".into(), census.methods.iter().map(of_method).collect());
    object.insert("index".into(), index(facts));
    if let Some(kept) = &facts.cache {
        let mut cache = Map::new();
        put(&mut cache, "path", kept.path.as_os_str().as_bytes());
        cache.insert("bytes".into(), kept.bytes.into());
        cache.insert("decoded".into(), kept.decoded.into());
        object.insert("cache".into(), cache.into());
    }
    if let Some(kept) = &facts.members {
        let mut members = Map::new();
        put(&mut members, "path", kept.path.as_os_str().as_bytes());
        members.insert("bytes".into(), kept.bytes.into());
        object.insert("member_seek_points".into(), members.into());
    }
    let places = summary.notes.iter().map(|(at, what)| json!({ "at": at, "what": what }));
    let damage = json!({
        "places": places.collect::<Vec<_>>(),
        "files": facts.damaged.as_ref().map(|damaged| damaged.damaged),
        "unverified": facts.opened.index.has_unverified(),
    });
    object.insert("damage".into(), damage);
    let slow = slow.iter().map(
        |one| json!({ "reason": one.reason, "text": one.text, "bytes": one.bytes, "milliseconds": one.milliseconds }),
    );
    object.insert("slow".into(), slow.collect());
    let faster = faster.iter().map(|one| {
        json!({
            "command": one.command,
            "text": one.text,
            "milliseconds_now": one.now,
            "milliseconds_then": one.then,
        })
    });
    object.insert("convert".into(), faster.collect());
    Value::Object(object)
}

fn of_way(way: &Way) -> Value {
    json!({
        "mean_bytes": way.mean.round(),
        "most_bytes": way.most,
        "mean_milliseconds": way.mean_time,
        "most_milliseconds": way.most_time,
    })
}

fn of_layer(layer: &Layer) -> Value {
    let outline = layer.outline;
    let points = &layer.points;
    json!({
        "codec": layer.codec.name(),
        "compressed": layer.compressed,
        "decoded": layer.decoded,
        "part": outline.map(|outline| outline.part),
        "parts": outline.and_then(|outline| outline.parts),
        "longest_part": outline.and_then(|outline| outline.longest),
        "history": outline.and_then(|outline| outline.history),
        "check": outline.and_then(|outline| outline.check),
        "seek_points": {
            "count": points.count,
            "mean": layer.apart(),
            "longest": points.longest,
            "checksums": points.has_checksums,
        },
        "random_read": of_way(&layer.way()),
    })
}

fn of_method(method: &Method) -> Value {
    let steps: Vec<_> = method.steps.iter().map(|step| step_name(step)).collect();
    json!({
        "steps": steps,
        "files": method.files,
        "bytes": method.bytes,
        "stored": method.stored,
        "blocks": method.has_blocks,
        "runs": method.runs,
        "longest": method.longest,
        "solid_blocks": if method.has_blocks { 0 } else { method.shared },
        "longest_solid_block": if method.has_blocks { 0 } else { method.longest_shared },
        "first_read": of_way(&way_of(method)),
    })
}

fn index(facts: &Facts<'_>) -> Value {
    let state = match facts.index.state {
        IndexState::Used => "used",
        IndexState::Made => "made",
        IndexState::Sidecar => "ratarmount",
        IndexState::NotNeeded => "not needed",
        IndexState::TooSmall => "too small",
        IndexState::InMemory => "in memory",
        IndexState::NotKept => "not kept",
    };
    let mut index = Map::new();
    index.insert("state".into(), state.into());
    if let Some(path) = &facts.opened.index_path {
        put(&mut index, "path", path.as_os_str().as_bytes());
        index.insert("bytes".into(), facts.index.bytes.into());
    }
    index.insert("options".into(), facts.opened.index.summary().shape.to_string().into());
    Value::Object(index)
}
