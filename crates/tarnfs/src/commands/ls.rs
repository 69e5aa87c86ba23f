use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use tarnfs_tree::{ArchiveTree, Attributes, Error, Kind, Node, Tree, path};

use crate::args::{List, shown};
use crate::commands::stat::{mode_string, owner};
use crate::exit::{Code, Failure};
use crate::inside::{self, Trouble};
use crate::terminal::Output;
use crate::{json, times};

/// Lists folders and files.
pub(crate) fn run(arguments: &List) -> Result<Code, Failure> {
    let (opened, code) = inside::open_to_list(&arguments.archive, &arguments.open).map_err(|failure| {
        inside::of_folder(&arguments.archive, failure, "what is in an archive is listed: tarnfs ls ARCHIVE [PATH...]")
    })?;
    inside::tell_of_sidecar(&arguments.archive, &opened, inside::INDEX_INSTEAD);
    for (letter, what) in [
        (b'c', "-c makes a new index; `tarnfs stat` shows when a file was changed"),
        (b'i', "-i reads on behind zero blocks; `tarnfs stat` shows numbers of nodes"),
        (b'r', "-r looks into archives in the archive; --reverse reverses the order"),
    ] {
        if has_letter_as_ls(std::env::args_os(), letter) {
            log::warn!("{what}");
        }
    }
    let tree = inside::tree(&opened);
    let (out, row, unreadable) = (Output::new(), Vec::new(), Vec::new());
    let damaged = opened.tree.may_be_damaged().then_some(&*opened.tree);
    let mut listing = Listing { tree: &tree, damaged, arguments, out, row, unreadable, untold: 0, room: ROOM };
    // As `ls`: what leads to a folder is followed, unless it is asked for itself. Programs get all links as they are.
    let follow = !arguments.long && !arguments.directory && !arguments.json;
    let mut paths = inside::Paths::new(&arguments.archive, arguments.open.colour(), code);
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for path in paths.expand(&tree, &arguments.paths) {
        let folder = follow.then(|| path::find(&tree, &path, true).ok()).flatten();
        let folder = folder.filter(|found| found.kind == Kind::Folder);
        let Some(found) = folder.or_else(|| paths.find(&tree, &path, false)) else { continue };
        if found.kind == Kind::Folder && !arguments.directory {
            folders.push((path, found));
        } else {
            files.push((path, found));
        }
    }
    // Without an order that was asked for, they come as they were named.
    if listing.is_sorted() {
        listing.sort(&mut files);
        listing.sort(&mut folders);
    }
    let has_files = !files.is_empty();
    for (path, found) in files {
        if let Err(trouble) = listing.line(&path, &found) {
            paths.failed(trouble.failure(&arguments.archive, &path))?;
        }
    }
    let has_headings = folders.len() > 1 || has_files || paths.has_failed();
    for (number, (path, found)) in folders.into_iter().enumerate() {
        let result = listing
            .heading((has_headings && !arguments.json).then_some(path.as_slice()), number > 0 || has_files)
            .and_then(|()| listing.folder(found.node, listing.prefix(&path)));
        match result {
            Ok(()) => {}
            Err(trouble) => paths.failed(trouble.failure(&arguments.archive, &path))?,
        }
    }
    listing.out.flush().map_err(|error| Trouble::Output(error).failure(&arguments.archive, b""))?;
    if listing.untold > 0 {
        let archive = shown(arguments.archive.as_os_str());
        let what = format!("{archive}: {} more links cannot be read", listing.untold);
        paths.failed(Failure::new(Code::Failure, what))?;
    }
    for (path, error) in listing.unreadable {
        paths.failed(Trouble::Tree(error).failure(&arguments.archive, &path))?;
    }
    Ok(paths.code())
}

/// True if this letter stands beside letters of ls(1) in one word, as in `ls -ltr`: there it means something else.
fn has_letter_as_ls(arguments: impl Iterator<Item = OsString>, wanted: u8) -> bool {
    let mut words = arguments.take_while(|word| word != "--");
    words.any(|word| match word.as_bytes() {
        [b'-', letters @ ..] if !letters.starts_with(b"-") => {
            // No value of an option, as in `-elatin1`.
            let are_all = letters.iter().all(|letter| b"lRhtSa1cirs".contains(letter));
            // What is not sorted is seldom meant to be in reverse.
            let beside = if wanted == b'r' { &b"tS"[..] } else { b"ltS" };
            are_all && letters.contains(&wanted) && letters.iter().any(|letter| beside.contains(letter))
        }
        _ => false,
    })
}

/// What the order of a listing depends on; the name comes last.
type Key = (i128, i128);

struct Listing<'a> {
    tree: &'a dyn Tree,
    /// What says which files are damaged, if any may be.
    damaged: Option<&'a ArchiveTree>,
    arguments: &'a List,
    out: Output,
    /// One line, reused.
    row: Vec<u8>,
    /// Links of which no target can be read, and why: some of them, as far as they were not told of.
    unreadable: Vec<(Vec<u8>, Error)>,
    /// How many others there are.
    untold: u64,
    /// What is left of [`ROOM`].
    room: usize,
}

/// The entries of a folder in the order that was asked for, and what they take of the room.
type Sorted = (std::vec::IntoIter<(Vec<u8>, Attributes)>, usize);

/// A folder that is being listed, while those in it are, too.
struct Begun {
    folder: Node,
    /// Bytes of the path that stand before the names in it.
    prefix: usize,
    /// What comes next in it: each with the end of its name among `names`, where that of the next one begins.
    entries: VecDeque<(usize, Attributes)>,
    names: Vec<u8>,
    /// Where the name begins of what comes next.
    start: usize,
    /// Where the rest begins.
    from: Option<u64>,
    /// Why there is no rest.
    failure: Option<Error>,
}

impl Begun {
    fn new(folder: Node, prefix: usize) -> Self {
        let (entries, names) = Default::default();
        Self { folder, prefix, entries, names, start: 0, from: Some(0), failure: None }
    }

    /// Reads some more of it. An index reads many rows for one; but each folder on the way down keeps what it has read.
    fn read(&mut self, tree: &dyn Tree, depth: usize) {
        let most = (4096 / depth).clamp(16, 128);
        let Some(from) = self.from.take() else { return };
        self.names.clear();
        self.start = 0;
        let (entries, names, rest) = (&mut self.entries, &mut self.names, &mut self.from);
        let read = tree.read_dir(self.folder, from, &mut |child| {
            names.extend_from_slice(child.name);
            entries.push_back((names.len(), child.attributes));
            *rest = (entries.len() >= most).then_some(child.next);
            rest.is_none()
        });
        if let Err(failure) = read {
            (self.from, self.failure) = (None, Some(failure));
        }
    }

    /// What comes next; its name goes behind `path`.
    fn next(&mut self, path: &mut Vec<u8>) -> Option<Attributes> {
        let (end, attributes) = self.entries.pop_front()?;
        path.truncate(self.prefix);
        path.extend_from_slice(self.names.get(self.start..end).unwrap_or_default());
        self.start = end;
        Some(attributes)
    }
}

/// Bytes of all entries that are in memory at a time to be sorted.
const ROOM: usize = 128 << 20;

/// What an entry takes of them, beside its name.
const EACH: usize = size_of::<(Vec<u8>, Attributes)>() + 16;

/// Links that cannot be read which are told of one by one.
const MOST_TOLD: usize = 100;

impl Listing<'_> {
    fn heading(&mut self, path: Option<&[u8]>, is_behind_others: bool) -> Result<(), Trouble> {
        let Some(path) = path else { return Ok(()) };
        if is_behind_others {
            self.out.write_all(b"\n")?;
        }
        self.out.name(path)?;
        self.out.write_all(b":\n")?;
        Ok(())
    }

    /// What stands before the names in the folder `path`: a person has its path above them, a program has whole paths.
    fn prefix(&self, path: &[u8]) -> Vec<u8> {
        if !self.arguments.json {
            return Vec::new();
        }
        let components = path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let mut prefix = Vec::new();
        for component in components {
            prefix.extend_from_slice(component);
            prefix.push(b'/');
        }
        prefix
    }

    /// True if another order than by name was asked for.
    fn is_sorted(&self) -> bool {
        let List { by_time, by_size, reverse, .. } = *self.arguments;
        by_time || by_size || reverse
    }

    fn folder(&mut self, folder: Node, prefix: Vec<u8>) -> Result<(), Trouble> {
        if self.is_sorted() { self.sorted(folder, prefix) } else { self.by_name(folder, prefix) }
    }

    /// Lists a folder and, with `-R`, those in it: each under its path, depth first, without recursion in the program.
    fn by_name(&mut self, folder: Node, prefix: Vec<u8>) -> Result<(), Trouble> {
        if !self.arguments.all_levels {
            return self.flat(folder, &prefix);
        }
        let mut path = prefix;
        // As many as the tree is deep.
        let mut open = vec![Begun::new(folder, path.len())];
        while let Some(last) = open.last_mut() {
            let Some(attributes) = last.next(&mut path) else {
                if let Some(failure) = last.failure.take() {
                    return Err(failure.into());
                }
                let depth = open.len();
                match open.last_mut() {
                    Some(last) if last.from.is_some() => last.read(self.tree, depth),
                    _ => drop(open.pop()),
                }
                continue;
            };
            self.line(&path, &attributes)?;
            if attributes.kind == Kind::Folder {
                path.push(b'/');
                open.push(Begun::new(attributes.node, path.len()));
            }
        }
        Ok(())
    }

    /// Lists what is in one folder.
    fn flat(&mut self, folder: Node, prefix: &[u8]) -> Result<(), Trouble> {
        let mut failure = None;
        let tree = self.tree;
        tree.read_dir(folder, 0, &mut |child| {
            failure = self.line(&[prefix, child.name].concat(), &child.attributes).err();
            failure.is_none()
        })?;
        failure.map_or(Ok(()), Err)
    }

    /// The same in another order. The entries of one folder, and of those that it lies in, are in memory.
    fn sorted(&mut self, folder: Node, prefix: Vec<u8>) -> Result<(), Trouble> {
        self.room = ROOM;
        // One path for all: of each folder on the way down only its length is kept.
        let mut path = prefix;
        let mut open = vec![(self.entries(folder)?, path.len())];
        while let Some(((entries, taken), prefix)) = open.last_mut() {
            let Some((name, attributes)) = entries.next() else {
                self.room += *taken;
                open.pop();
                continue;
            };
            path.truncate(*prefix);
            path.extend_from_slice(&name);
            self.line(&path, &attributes)?;
            if self.arguments.all_levels && attributes.kind == Kind::Folder {
                let inner = self.entries(attributes.node)?;
                path.push(b'/');
                open.push((inner, path.len()));
            }
        }
        Ok(())
    }

    /// Names and attributes of what is in a folder.
    fn entries(&mut self, folder: Node) -> Result<Sorted, Trouble> {
        let (mut entries, mut left) = (Vec::new(), Some(self.room));
        self.tree.read_dir(folder, 0, &mut |child| {
            left = left.and_then(|left| left.checked_sub(child.name.len() + EACH));
            if left.is_some() {
                entries.push((child.name.to_vec(), child.attributes));
            }
            left.is_some()
        })?;
        let Some(left) = left else {
            let what = "holds too many entries to be sorted; without -t, -S and --reverse they are listed by name";
            return Err(Error::from(io::Error::new(io::ErrorKind::ArgumentListTooLong, what)).into());
        };
        let taken = std::mem::replace(&mut self.room, left) - left;
        self.sort(&mut entries);
        Ok((entries.into_iter(), taken))
    }

    /// Puts names, or paths, into the order that was asked for.
    fn sort(&self, entries: &mut [(Vec<u8>, Attributes)]) {
        let key = |attributes: &Attributes| -> Key {
            if self.arguments.by_time {
                (-i128::from(attributes.mtime.seconds), -i128::from(attributes.mtime.nanoseconds))
            } else if self.arguments.by_size {
                (-i128::from(attributes.size), 0)
            } else {
                (0, 0)
            }
        };
        entries.sort_by(|(left, of_left), (right, of_right)| (key(of_left), left).cmp(&(key(of_right), right)));
        if self.arguments.reverse {
            entries.reverse();
        }
    }

    fn line(&mut self, path: &[u8], attributes: &Attributes) -> Result<(), Trouble> {
        if self.arguments.json {
            let (value, unreadable) = json::of(self.tree, &self.arguments.open, path, attributes)?;
            self.out.json(&json::with_damage(value, self.damage(attributes)))?;
            if let Some(error) = unreadable {
                self.cannot_be_read(path, error);
            }
        } else if self.arguments.long {
            self.long(path, attributes)?;
        } else {
            self.out.name(path)?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// What is wrong with a file, if that is known. Of what is not in the archive itself, such as an older version,
    /// nothing is.
    fn damage(&self, attributes: &Attributes) -> Option<String> {
        self.damaged?.damage(attributes.node).ok().flatten()
    }

    /// The rest is listed all the same.
    fn cannot_be_read(&mut self, path: &[u8], error: Error) {
        if self.unreadable.len() < MOST_TOLD {
            self.unreadable.push((path.to_vec(), error));
        } else {
            self.untold += 1;
        }
    }

    fn long(&mut self, path: &[u8], attributes: &Attributes) -> Result<(), Trouble> {
        let (user, group) = owner(self.tree, attributes)?;
        let size = match attributes.kind {
            Kind::CharacterDevice(device) | Kind::BlockDevice(device) => format!("{},{}", device.major, device.minor),
            _ if self.arguments.human_readable => human_readable(attributes.size),
            _ => attributes.size.to_string(),
        };
        self.row.clear();
        write!(
            self.row,
            "{} {:>3} {user:<8} {group:<8} {size:>10} {} ",
            mode_string(attributes),
            attributes.links,
            times::minutes(attributes.mtime),
        )?;
        self.out.write_all(&self.row)?;
        self.out.name(path)?;
        if attributes.kind == Kind::Symlink {
            self.out.write_all(b" -> ")?;
            match self.tree.read_link(attributes.node) {
                Ok(target) => self.out.name(&target)?,
                Err(error) if inside::is_interrupted(&error) => return Err(error.into()),
                Err(error) => {
                    self.out.write_all(b"?")?;
                    self.cannot_be_read(path, error);
                }
            }
        }
        // In a pipe it could not be told from a name; there is --json.
        let is_marked = self.out.is_terminal() && self.damage(attributes).is_some();
        self.out.write_all(if is_marked { b" (damaged)\n" } else { b"\n" })?;
        Ok(())
    }
}

/// A size as `ls -h` shows it: rounded up, with one decimal below ten.
fn human_readable(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1_u128;
    for name in UNITS {
        unit <<= 10;
        // In tenths, rounded up.
        let tenths = (u128::from(bytes) * 10).div_ceil(unit);
        if tenths < 100 {
            return format!("{}.{}{name}", tenths / 10, tenths % 10);
        }
        let whole = u128::from(bytes).div_ceil(unit);
        if whole < 1024 {
            return format!("{whole}{name}");
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_as_ls_does() {
        for (bytes, shown) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (1_048_575, "1.0M"),
            (1_048_576, "1.0M"),
            (5_000_000_000, "4.7G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human_readable(bytes), shown, "{bytes}");
        }
    }
}
