//! Entries and mounts as JSON, for `ls --json`, `stat --json` and `mounts --json`. `doc/json.md` says what the keys
//! mean.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tarnfs_tree::hashes::normalise;
use tarnfs_tree::{Attributes, Change, Changed, Error, Kind, OverlayStatus, Tree};

use crate::args::Open;
use crate::commands::stat::kind_name;
use crate::inside;

/// Prefix of the extended attributes that `--hashes` adds.
const HASH: &str = "user.hash.";

/// What an overlay changes.
pub(crate) fn of_change(status: &OverlayStatus, changed: &Changed) -> Value {
    let mut entry = Map::new();
    entry.insert("change".into(), changed.change.letter().to_string().into());
    put(&mut entry, "path", &changed.path);
    if changed.change != Change::Deleted {
        entry.insert("type".into(), if changed.is_folder() { "folder" } else { "file" }.into());
    }
    if let Some(from) = &changed.from {
        put(&mut entry, "from", from);
    }
    if let Some(content) = changed.content.as_ref().and_then(|content| status.path_of(content)) {
        put(&mut entry, "content", content.as_os_str().as_bytes());
    }
    Value::Object(entry)
}

/// All that is known of an entry, and why the target of a link is not, if it cannot be read. `open` says which hashes
/// were asked for: an archive may have attributes of its own with such names.
pub(crate) fn of(
    tree: &dyn Tree,
    open: &Open,
    path: &[u8],
    attributes: &Attributes,
) -> Result<(Value, Option<Error>), Error> {
    let asked = if open.hashes.is_empty() { Vec::new() } else { normalise(&open.hashes).unwrap_or_default() };
    let (user, group) = tree.owner_names(attributes.node)?;
    let time = |time: tarnfs_tree::Time| json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds });
    let (mut entry, mut unreadable) = (Map::new(), None);
    put(&mut entry, "path", path);
    entry.insert("node".into(), attributes.node.0.into());
    entry.insert("type".into(), kind_name(attributes.kind).into());
    entry.insert("mode".into(), format!("{:04o}", attributes.mode).into());
    entry.insert("uid".into(), attributes.uid.into());
    entry.insert("gid".into(), attributes.gid.into());
    put(&mut entry, "user", &user);
    put(&mut entry, "group", &group);
    entry.insert("links".into(), attributes.links.into());
    entry.insert("size".into(), attributes.size.into());
    entry.insert("blocks".into(), attributes.blocks.into());
    entry.insert("mtime".into(), time(attributes.mtime));
    entry.insert("atime".into(), time(attributes.atime));
    entry.insert("ctime".into(), time(attributes.ctime));
    match attributes.kind {
        Kind::Symlink => match tree.read_link(attributes.node) {
            Ok(target) => put(&mut entry, "target", &target),
            Err(error) if inside::is_interrupted(&error) => return Err(error),
            Err(error) => unreadable = Some(error),
        },
        Kind::CharacterDevice(device) | Kind::BlockDevice(device) => {
            entry.insert("device".into(), json!({ "major": device.major, "minor": device.minor }));
        }
        _ => {}
    }
    let (mut hashes, mut xattrs) = (Map::new(), Vec::new());
    for (name, value) in tree.xattrs(attributes.node)? {
        let hash = std::str::from_utf8(&name).ok().and_then(|name| name.strip_prefix(HASH));
        if let Some(hash) = hash.filter(|hash| asked.iter().any(|asked| asked == hash)) {
            hashes.insert(hash.to_owned(), String::from_utf8_lossy(&value).into());
        } else {
            let mut xattr = Map::new();
            put(&mut xattr, "name", &name);
            put(&mut xattr, "value", &value);
            xattrs.push(Value::Object(xattr));
        }
    }
    if !hashes.is_empty() {
        entry.insert("hashes".into(), hashes.into());
    }
    if !xattrs.is_empty() {
        entry.insert("xattrs".into(), xattrs.into());
    }
    Ok((Value::Object(entry), unreadable))
}

/// What is mounted at `mount_point`: `archives`, and so many `more` whose names the table of mounts has no room for;
/// `since` when in seconds since 1970, and its `statistics`, where they are known.
pub(crate) fn of_mount(
    (name, archives, more): (Option<&OsStr>, &[PathBuf], usize),
    mount_point: &Path,
    since: Option<u64>,
    statistics: Option<Value>,
) -> Value {
    let named = |path: &Path| {
        let mut named = Map::new();
        put(&mut named, "path", path.as_os_str().as_bytes());
        named
    };
    let mut mount = Map::new();
    put(&mut mount, "mountpoint", mount_point.as_os_str().as_bytes());
    if let Some(name) = name {
        put(&mut mount, "name", name.as_bytes());
    }
    let archives: Vec<_> = archives.iter().map(|path| Value::Object(named(path))).collect();
    mount.insert("archives".into(), archives.into());
    mount.insert("more".into(), more.into());
    mount.extend(since.map(|since| ("since".into(), since.into())));
    mount.extend(statistics.map(|statistics| ("statistics".into(), statistics)));
    Value::Object(mount)
}

/// The same with what is wrong with the file, if anything is.
pub(crate) fn with_damage(mut entry: Value, damage: Option<String>) -> Value {
    if let (Some(what), Some(entry)) = (damage, entry.as_object_mut()) {
        entry.insert("damage".into(), what.into());
    }
    entry
}

/// Puts `bytes` under `key` as a string. If they are not UTF-8, the bytes themselves are beside it, in base64.
pub(crate) fn put(entry: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if matches!(text, std::borrow::Cow::Owned(_)) {
        entry.insert(format!("{key}_bytes"), STANDARD.encode(bytes).into());
    }
    entry.insert(key.to_owned(), text.into_owned().into());
}
