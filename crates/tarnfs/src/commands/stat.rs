use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;

use tarnfs_tree::{Attributes, Error, Kind, Tree};

use crate::args::Stat;
use crate::exit::{Code, Failure};
use crate::inside::{self, Trouble};
use crate::terminal::Output;
use crate::{json, times};

/// Shows everything that is known of each path; a symbolic link itself, not its target.
pub(crate) fn run(arguments: &Stat) -> Result<Code, Failure> {
    let (opened, code) = inside::open(&arguments.archive, &arguments.open).map_err(|mut failure| {
        // As in stat(1).
        if arguments.open.recreate_index && arguments.archive.as_os_str().as_bytes().starts_with(b"%") {
            failure
                .message
                .push_str("; -c makes the index again, and there are no formats here: --json is for programs");
        }
        failure
    })?;
    inside::tell_of_sidecar(&arguments.archive, &opened, inside::INDEX_INSTEAD);
    let tree = inside::tree(&opened);
    // Of what is in the archive itself; a folder of versions is not.
    let damage = |node| opened.tree.damage(node).ok().flatten();
    let mut paths = inside::Paths::new(&arguments.archive, arguments.open.colour(), code);
    let mut out = Output::new();
    let mut is_behind_others = false;
    for path in paths.expand(&tree, &arguments.paths) {
        let Some(attributes) = paths.find(&tree, &path, false) else { continue };
        let written = if arguments.json {
            let value = json::of(&tree, &arguments.open, &path, &attributes);
            value.map_err(Trouble::from).and_then(|(value, unreadable)| {
                out.json(&json::with_damage(value, damage(attributes.node)))?;
                unreadable.map_or(Ok(()), |error| Err(error.into()))
            })
        } else {
            write(
                &mut out,
                std::mem::replace(&mut is_behind_others, true),
                &tree,
                &path,
                &attributes,
                damage(attributes.node),
            )
        };
        if let Err(trouble) = written {
            paths.failed(trouble.failure(&arguments.archive, &path))?;
        }
    }
    out.flush().map_err(|error| Trouble::Output(error).failure(&arguments.archive, b""))?;
    Ok(paths.code())
}

fn write(
    out: &mut Output,
    is_behind_others: bool,
    tree: &dyn Tree,
    path: &[u8],
    attributes: &Attributes,
    damage: Option<String>,
) -> Result<(), Trouble> {
    if is_behind_others {
        writeln!(out)?;
    }
    let (user, group) = owner(tree, attributes)?;
    let mut unreadable = None;
    out.write_all(b"  Path: ")?;
    out.name(if path.is_empty() { b"/" } else { path })?;
    writeln!(out)?;
    writeln!(out, "  Type: {}", kind_name(attributes.kind))?;
    if attributes.kind == Kind::Symlink {
        out.write_all(b"Target: ")?;
        match tree.read_link(attributes.node) {
            Ok(target) => out.name(&target)?,
            Err(error) if inside::is_interrupted(&error) => return Err(error.into()),
            Err(error) => {
                out.write_all(b"?")?;
                unreadable = Some(error);
            }
        }
        writeln!(out)?;
    }
    if let Kind::CharacterDevice(device) | Kind::BlockDevice(device) = attributes.kind {
        writeln!(out, "Device: {},{}", device.major, device.minor)?;
    }
    let plural = |number: u64| if number == 1 { "" } else { "s" };
    let (size, blocks) = (attributes.size, attributes.blocks);
    writeln!(out, "  Size: {size} byte{} in {blocks} block{} of 512", plural(size), plural(blocks))?;
    writeln!(out, "  Node: {}", attributes.node.0)?;
    writeln!(out, " Links: {}", attributes.links)?;
    writeln!(out, "  Mode: {:04o} {}", attributes.mode, mode_string(attributes))?;
    writeln!(out, " Owner: {} ({user}), {} ({group})", attributes.uid, attributes.gid)?;
    for (name, time) in [("Modify", attributes.mtime), ("Access", attributes.atime), ("Change", attributes.ctime)] {
        writeln!(out, "{name}: {}", times::in_both_zones(time))?;
    }
    if let Some(what) = damage {
        writeln!(out, "Damage: {}", crate::terminal::harmless(what))?;
    }
    for (name, value) in tree.xattrs(attributes.node)? {
        out.write_all(b" xattr: ")?;
        out.name(&name)?;
        out.write_all(b"=")?;
        out.write_all(crate::terminal::escaped(&value).as_bytes())?;
        writeln!(out)?;
    }
    unreadable.map_or(Ok(()), |error| Err(error.into()))
}

/// Names of owner and group, or their numbers where the archive has no names.
pub(crate) fn owner(tree: &dyn Tree, attributes: &Attributes) -> Result<(String, String), Error> {
    let (user, group) = tree.owner_names(attributes.node)?;
    let or_number = |name: Vec<u8>, number: u32| {
        if name.is_empty() { number.to_string() } else { crate::terminal::escaped(&name) }
    };
    Ok((or_number(user, attributes.uid), or_number(group, attributes.gid)))
}

/// The type in one word.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Folder => "folder",
        Kind::Symlink => "symlink",
        Kind::HardLink => "hard link",
        Kind::CharacterDevice(_) => "character device",
        Kind::BlockDevice(_) => "block device",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
    }
}

/// `-rwxr-xr-x`, as `ls -l` shows it.
pub(crate) fn mode_string(attributes: &Attributes) -> String {
    let kind = match attributes.kind {
        Kind::File | Kind::HardLink => '-',
        Kind::Folder => 'd',
        Kind::Symlink => 'l',
        Kind::CharacterDevice(_) => 'c',
        Kind::BlockDevice(_) => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
    };
    let mode = attributes.mode;
    let mut text = String::with_capacity(10);
    text.push(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use tarnfs_tree::Time;

    use super::*;

    #[test]
    fn modes_look_as_in_ls() {
        let attributes = |kind, mode| Attributes {
            node: tarnfs_tree::Node::ROOT,
            kind,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            blocks: 0,
            mtime: Time::default(),
            atime: Time::default(),
            ctime: Time::default(),
        };
        assert_eq!(mode_string(&attributes(Kind::File, 0o4755)), "-rwsr-xr-x");
        assert_eq!(mode_string(&attributes(Kind::Folder, 0o1776)), "drwxrwxrwT");
        assert_eq!(mode_string(&attributes(Kind::Fifo, 0o2640)), "prw-r-S---");
    }
}
