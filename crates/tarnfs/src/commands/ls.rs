use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use tarnfs_tree::{Attributes, Error, Kind, Node, Tree};

use crate::args::List;
use crate::commands::stat::{Calendar, kind_name, mode_string, owner};
use crate::exit::{Code, Failure};
use crate::inside::{self, Trouble};
use crate::terminal::Output;

/// Lists a folder, or one file.
pub(crate) fn run(arguments: &List) -> Result<Code, Failure> {
    let (opened, code) = inside::open(&arguments.archive, &arguments.open)?;
    let tree = inside::tree(&opened);
    let path = arguments.path.as_deref().unwrap_or_default().as_bytes();
    let start = inside::find(&tree, &arguments.archive, path, true)?;
    let mut listing = Listing { tree: &tree, arguments, out: Output::new(), row: Vec::new() };
    let result =
        if start.kind == Kind::Folder { listing.folder(start.node, Vec::new()) } else { listing.line(path, &start) };
    match result.and_then(|()| Ok(listing.out.flush()?)) {
        Ok(()) => Ok(code),
        Err(trouble) => Err(trouble.failure(&arguments.archive, path)),
    }
}

struct Listing<'a> {
    tree: &'a dyn Tree,
    arguments: &'a List,
    out: Output,
    /// One line, reused.
    row: Vec<u8>,
}

impl Listing<'_> {
    /// Lists a folder and, with `-R`, those in it: each under its path, depth first, without recursion in the program.
    fn folder(&mut self, folder: Node, prefix: Vec<u8>) -> Result<(), Trouble> {
        // Folders still to be listed, each with the position to go on from: no more than the depth of the tree.
        let mut open = vec![(folder, prefix, 0)];
        while let Some((folder, prefix, from)) = open.pop() {
            let mut failure = None;
            let mut inner = None;
            let tree = self.tree;
            tree.read_dir(folder, from, &mut |child| {
                let path = [prefix.as_slice(), child.name].concat();
                if let Err(error) = self.line(&path, &child.attributes) {
                    failure = Some(error);
                    return false;
                }
                if self.arguments.all_levels && child.attributes.kind == Kind::Folder {
                    inner = Some((child.next, child.attributes.node, [path.as_slice(), b"/"].concat()));
                    return false;
                }
                true
            })?;
            if let Some(failure) = failure {
                return Err(failure);
            }
            if let Some((next, node, path)) = inner {
                open.push((folder, prefix, next));
                open.push((node, path, 0));
            }
        }
        Ok(())
    }

    fn line(&mut self, path: &[u8], attributes: &Attributes) -> Result<(), Trouble> {
        if self.arguments.json {
            let value = self.json(path, attributes)?;
            writeln!(self.out, "{value}")?;
        } else if self.arguments.long {
            self.long(path, attributes)?;
        } else {
            self.out.name(path)?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn long(&mut self, path: &[u8], attributes: &Attributes) -> Result<(), Trouble> {
        let (user, group) = owner(self.tree, attributes)?;
        let size = match attributes.kind {
            Kind::CharacterDevice(device) | Kind::BlockDevice(device) => format!("{},{}", device.major, device.minor),
            _ => attributes.size.to_string(),
        };
        self.row.clear();
        write!(
            self.row,
            "{} {:>3} {user:<8} {group:<8} {size:>10} {} ",
            mode_string(attributes),
            attributes.links,
            Calendar::of(attributes.mtime).minutes(),
        )?;
        self.out.write_all(&self.row)?;
        self.out.name(path)?;
        if attributes.kind == Kind::Symlink {
            self.out.write_all(b" -> ")?;
            let target = self.tree.read_link(attributes.node)?;
            self.out.name(&target)?;
        }
        self.out.write_all(b"\n")?;
        Ok(())
    }

    fn json(&self, path: &[u8], attributes: &Attributes) -> Result<Value, Trouble> {
        let mut value = describe(self.tree, attributes)?;
        value["path"] = text(path);
        Ok(value)
    }
}

/// All of a node's attributes, as `--json` shows them.
pub(crate) fn describe(tree: &dyn Tree, attributes: &Attributes) -> Result<Value, Error> {
    let (user, group) = tree.owner_names(attributes.node)?;
    let time = |time: tarnfs_tree::Time| json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds });
    let mut value = json!({
        "node": attributes.node.0,
        "type": kind_name(attributes.kind),
        "mode": format!("{:04o}", attributes.mode),
        "uid": attributes.uid,
        "gid": attributes.gid,
        "user": text(&user),
        "group": text(&group),
        "links": attributes.links,
        "size": attributes.size,
        "blocks": attributes.blocks,
        "mtime": time(attributes.mtime),
        "atime": time(attributes.atime),
        "ctime": time(attributes.ctime),
    });
    match attributes.kind {
        Kind::Symlink => value["target"] = text(&tree.read_link(attributes.node)?),
        Kind::CharacterDevice(device) | Kind::BlockDevice(device) => {
            value["device"] = json!({ "major": device.major, "minor": device.minor });
        }
        _ => {}
    }
    Ok(value)
}

/// A JSON string; bytes that are not UTF-8 become a list of numbers, so that nothing is lost.
pub(crate) fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.into(),
    }
}
