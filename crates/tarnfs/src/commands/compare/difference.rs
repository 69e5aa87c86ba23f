//! What differs, in one line each: in words, or as JSON.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use tarnfs_tree::{Device, Kind, Time};

use crate::commands::stat::kind_name;
use crate::json::put;
use crate::terminal::Output;
use crate::times;

/// How the other side differs from the archive. Of two values the first is the archive's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Difference {
    OnlyInArchive,
    OnlyInOther,
    Kind(Kind),
    Size(u64, u64),
    /// The first byte that is another one.
    Content(u64),
    Target(Vec<u8>, Vec<u8>),
    Device(Device, Device),
    Mode(u32, u32),
    User(u32, u32),
    Group(u32, u32),
    Mtime(Time, Time),
    /// It is one file with this path in the archive only.
    NotLinked(Vec<u8>),
    /// It is one file with this path on the other side only.
    Linked(Vec<u8>),
    /// An extended attribute, and its values.
    Xattr(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
    /// It changed while it was read.
    Changed,
}

/// How differences are written.
#[derive(Debug)]
pub(super) struct Style {
    pub(super) is_json: bool,
    /// What both sides are called.
    pub(super) archive: Vec<u8>,
    pub(super) other: Vec<u8>,
}

impl Style {
    /// Writes that what is a `kind` in the archive, or on the other side if it is only there, differs.
    pub(super) fn write(&self, out: &mut Output, path: &[u8], kind: Kind, what: &Difference) -> io::Result<()> {
        let path = if path.is_empty() { b"." } else { path };
        if self.is_json { out.json(&as_json(path, kind, what)) } else { self.in_words(out, path, kind, what) }
    }

    fn in_words(&self, out: &mut Output, path: &[u8], kind: Kind, what: &Difference) -> io::Result<()> {
        out.name_in_line(path)?;
        out.write_all(b": ")?;
        let mut named = |words: &str, name: &[u8]| {
            out.write_all(words.as_bytes())?;
            out.name_in_line(name)
        };
        match what {
            Difference::OnlyInArchive => named("Only in ", &self.archive)?,
            Difference::OnlyInOther => named("Only in ", &self.other)?,
            Difference::NotLinked(to) => named("Not linked to ", to)?,
            Difference::Linked(to) => named("Linked to ", to)?,
            Difference::Target(archive, other) => {
                named("Symlink differs: ", archive)?;
                named(" -> ", other)?;
            }
            Difference::Xattr(name, archive, other) => {
                named("Extended attribute ", name)?;
                match (archive, other) {
                    (Some(_), None) => named(" only in ", &self.archive)?,
                    (None, Some(_)) => named(" only in ", &self.other)?,
                    _ => named(" differs", b"")?,
                }
            }
            Difference::Kind(other) => {
                write!(out, "File type differs: {} -> {}", kind_name(kind), kind_name(*other))?;
            }
            Difference::Size(archive, other) => write!(out, "Size differs: {archive} -> {other}")?,
            Difference::Content(at) => write!(out, "Contents differ: from byte {at} on")?,
            Difference::Device(archive, other) => {
                let number = |device: &Device| format!("{},{}", device.major, device.minor);
                write!(out, "Device number differs: {} -> {}", number(archive), number(other))?;
            }
            Difference::Mode(archive, other) => write!(out, "Mode differs: {archive:04o} -> {other:04o}")?,
            Difference::User(archive, other) => write!(out, "Uid differs: {archive} -> {other}")?,
            Difference::Group(archive, other) => write!(out, "Gid differs: {archive} -> {other}")?,
            Difference::Mtime(archive, other) => {
                write!(out, "Mod time differs: {} -> {}", times::in_utc(*archive), times::in_utc(*other))?;
            }
            Difference::Changed => out.write_all(b"Changed while it was read")?,
        }
        out.write_all(b"\n")
    }
}

/// The same as an object. `doc/json.md` says what the keys mean.
fn as_json(path: &[u8], kind: Kind, what: &Difference) -> Value {
    let mut entry = Map::new();
    put(&mut entry, "path", path);
    entry.insert("type".into(), kind_name(kind).into());
    let time = |time: &Time| json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds });
    let device = |device: &Device| json!({ "major": device.major, "minor": device.minor });
    let (name, values) = match what {
        Difference::OnlyInArchive => ("only in archive", None),
        Difference::OnlyInOther => ("only in other", None),
        Difference::Kind(other) => ("type", Some((kind_name(kind).into(), kind_name(*other).into()))),
        Difference::Size(archive, other) => ("size", Some(((*archive).into(), (*other).into()))),
        Difference::Content(_) => ("content", None),
        Difference::Target(..) => ("target", None),
        Difference::Device(archive, other) => ("device", Some((device(archive), device(other)))),
        Difference::Mode(archive, other) => {
            ("mode", Some((format!("{archive:04o}").into(), format!("{other:04o}").into())))
        }
        Difference::User(archive, other) => ("uid", Some(((*archive).into(), (*other).into()))),
        Difference::Group(archive, other) => ("gid", Some(((*archive).into(), (*other).into()))),
        Difference::Mtime(archive, other) => ("mtime", Some((time(archive), time(other)))),
        Difference::NotLinked(_) => ("not linked", None),
        Difference::Linked(_) => ("linked", None),
        Difference::Xattr(..) => ("xattr", None),
        Difference::Changed => ("changed", None),
    };
    entry.insert("differs".into(), name.into());
    if let Some((archive, other)) = values {
        entry.insert("archive".into(), archive);
        entry.insert("other".into(), other);
    }
    match what {
        Difference::Content(at) => {
            entry.insert("at".into(), (*at).into());
        }
        Difference::Target(archive, other) => {
            put(&mut entry, "archive", archive);
            put(&mut entry, "other", other);
        }
        Difference::NotLinked(to) | Difference::Linked(to) => put(&mut entry, "to", to),
        Difference::Xattr(name, archive, other) => {
            put(&mut entry, "name", name);
            if let Some(archive) = archive {
                put(&mut entry, "archive", archive);
            }
            if let Some(other) = other {
                put(&mut entry, "other", other);
            }
        }
        _ => {}
    }
    Value::Object(entry)
}
