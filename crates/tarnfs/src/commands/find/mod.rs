//! `tarnfs find`: the tests and actions of find(1), answered from the index.

mod expression;
mod mode;
mod pattern;
mod printf;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use tarnfs_tree::{Attributes, Error, Kind, Tree, path};

use crate::args::{Find, shown};
use crate::exit::{Code, Failure};
use crate::inside::{self, Trouble};
use crate::json;
use crate::terminal::Output;
use expression::{Expression, Owner, Query, Test, Which};

pub(crate) use expression::begins_expression;

/// Finds files and folders, below the root or the folders that are named.
pub(crate) fn run(arguments: &Find) -> Result<Code, Failure> {
    let (opened, code) = inside::open_to_list(&arguments.archive, &arguments.open)?;
    inside::tell_of_sidecar(&arguments.archive, &opened, inside::INDEX_INSTEAD);
    let tree = inside::tree(&opened);
    let paths = arguments.words.iter().position(|word| begins_expression(word.as_bytes()));
    let (typed, words) = arguments.words.split_at(paths.unwrap_or(arguments.words.len()));
    let Query { expression, least_depth, most_depth, depth_first } =
        expression::parse(words, &tree).map_err(|what| Failure::new(Code::Usage, what))?;
    let mut search = Search {
        tree: &tree,
        expression: &expression,
        depths: (least_depth, most_depth),
        depth_first,
        has_json: arguments.json,
        out: Output::new(),
        prunes: false,
        quits: false,
        unreadable: Vec::new(),
        untold: 0,
    };
    let mut paths = inside::Paths::new(&arguments.archive, arguments.open.colour(), code);
    let root = [OsString::from(".")];
    for start in paths.expand(&tree, if typed.is_empty() { &root } else { typed }) {
        let Some(found) = paths.find(&tree, &start, false) else { continue };
        if let Err(trouble) = search.below(start.clone(), &found) {
            paths.failed(trouble.failure(&arguments.archive, &start))?;
        }
        if search.quits {
            break;
        }
    }
    search.out.flush().map_err(|error| Trouble::Output(error).failure(&arguments.archive, b""))?;
    if search.untold > 0 {
        log::error!("{}: {} more entries cannot be read", shown(arguments.archive.as_os_str()), search.untold);
    }
    for (path, error) in search.unreadable {
        paths.failed(Trouble::Tree(error).failure(&arguments.archive, &path))?;
    }
    Ok(paths.code())
}

/// An entry that is looked at.
struct Visit<'a> {
    /// As it is printed: what was typed, and the way from there.
    path: &'a [u8],
    /// Bytes of `path` that were typed.
    start: usize,
    name: &'a [u8],
    /// Levels below what was typed.
    depth: usize,
    attributes: &'a Attributes,
}

impl Visit<'_> {
    /// What was typed.
    fn start(&self) -> &[u8] {
        &self.path[..self.start]
    }

    /// The way from there.
    fn below(&self) -> &[u8] {
        let below = &self.path[self.start..];
        below.strip_prefix(b"/").unwrap_or(below)
    }

    /// The folder that it is in: `.` if the path does not say.
    fn folder(&self) -> &[u8] {
        match self.path.iter().rposition(|&byte| byte == b'/') {
            Some(0) => b"/",
            Some(end) => &self.path[..end],
            None => b".",
        }
    }
}

/// The last component of a path, without slashes behind it.
fn last_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len().min(1), |at| at + 1);
    let path = &path[..end];
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) if at + 1 < path.len() => &path[at + 1..],
        _ => path,
    }
}

/// Entries that cannot be read which are told of one by one.
const MOST_TOLD: usize = 100;

#[allow(clippy::struct_excessive_bools, reason = "each says something else")]
struct Search<'a> {
    tree: &'a dyn Tree,
    expression: &'a Expression,
    /// The least and the most levels below what was typed.
    depths: (usize, usize),
    depth_first: bool,
    has_json: bool,
    out: Output,
    /// What is in the folder that was looked at last is left out.
    prunes: bool,
    quits: bool,
    unreadable: Vec<(Vec<u8>, Error)>,
    untold: u64,
}

/// A folder whose entries are being looked at.
struct Level {
    folder: Attributes,
    /// Bytes of its path, and where its name begins.
    path: usize,
    name: usize,
    /// Where to go on.
    from: u64,
}

impl Search<'_> {
    /// Looks at `found` and at all below it, without recursion in the program.
    fn below(&mut self, typed: Vec<u8>, found: &Attributes) -> Result<(), Trouble> {
        let (least, most) = self.depths;
        let start = typed.len();
        let mut path = typed;
        let name = last_of(&path).to_vec();
        let visit = Visit { path: &path, start, name: &name, depth: 0, attributes: found };
        let is_folder = found.kind == Kind::Folder;
        if !(self.depth_first && is_folder) && least == 0 {
            self.look_at(&visit)?;
        } else {
            self.prunes = false;
        }
        let mut levels = Vec::new();
        if is_folder && most > 0 && !self.prunes && !self.quits {
            levels.push(Level { folder: found.clone(), path: start, name: 0, from: 0 });
        } else if is_folder && self.depth_first && least == 0 {
            self.look_at(&visit)?;
        }
        while let Some(level) = levels.pop() {
            if self.quits {
                break;
            }
            // The number of levels around what is in this folder.
            let depth = levels.len() + 1;
            path.truncate(level.path);
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            let prefix = path.len();
            let (mut trouble, mut inner) = (None, None);
            let tree = self.tree;
            let listed = tree.read_dir(level.folder.node, level.from, &mut |child| {
                path.truncate(prefix);
                path.extend_from_slice(child.name);
                let attributes = &child.attributes;
                let goes_in = attributes.kind == Kind::Folder && depth < most;
                let is_later = self.depth_first && goes_in;
                self.prunes = false;
                if depth >= least && !is_later {
                    let visit = Visit { path: &path, start, name: child.name, depth, attributes };
                    if let Err(error) = self.look_at(&visit) {
                        trouble = Some(error);
                        return false;
                    }
                }
                if goes_in && !self.prunes {
                    inner = Some((child.next, child.attributes));
                    return false;
                }
                !self.quits
            });
            if let Some(trouble) = trouble {
                return Err(trouble);
            }
            if let Err(error) = listed {
                if inside::is_interrupted(&error) {
                    return Err(error.into());
                }
                path.truncate(level.path);
                self.cannot_be_read(&path, error);
            }
            if let Some((next, folder)) = inner {
                let length = path.len();
                levels.push(Level { from: next, ..level });
                levels.push(Level { folder, path: length, name: prefix, from: 0 });
            } else if self.depth_first && !self.quits && depth > least {
                path.truncate(level.path);
                let name = if depth == 1 { name.clone() } else { path[level.name..].to_vec() };
                let visit = Visit { path: &path, start, name: &name, depth: depth - 1, attributes: &level.folder };
                self.look_at(&visit)?;
            }
        }
        Ok(())
    }

    fn look_at(&mut self, visit: &Visit<'_>) -> Result<(), Trouble> {
        self.prunes = false;
        let expression = self.expression;
        self.holds(expression, visit).map(drop)
    }

    fn cannot_be_read(&mut self, path: &[u8], error: Error) {
        if self.unreadable.len() < MOST_TOLD {
            self.unreadable.push((path.to_vec(), error));
        } else {
            self.untold += 1;
        }
    }

    /// Parentheses in each other are as many as the parser takes at most.
    fn holds(&mut self, expression: &Expression, visit: &Visit<'_>) -> Result<bool, Trouble> {
        match expression {
            Expression::Test(test) => match self.passes(test, visit) {
                Err(Trouble::Tree(error)) if !inside::is_interrupted(&error) => {
                    self.cannot_be_read(visit.path, error);
                    Ok(false)
                }
                passes => passes,
            },
            Expression::Not(inner) => Ok(!self.holds(inner, visit)?),
            Expression::And(all) => {
                for one in all {
                    if self.quits || !self.holds(one, visit)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expression::Or(all) => {
                for one in all {
                    if self.quits || self.holds(one, visit)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expression::List(all) => {
                let mut last = false;
                for one in all {
                    last = !self.quits && self.holds(one, visit)?;
                }
                Ok(last)
            }
        }
    }

    fn passes(&mut self, test: &Test, visit: &Visit<'_>) -> Result<bool, Trouble> {
        let attributes = visit.attributes;
        Ok(match test {
            Test::True => true,
            Test::False => false,
            Test::Name(pattern) => pattern.matches(visit.name),
            Test::Path(pattern) => pattern.matches(visit.path),
            Test::Target(pattern) => {
                attributes.kind == Kind::Symlink && pattern.matches(&self.tree.read_link(attributes.node)?)
            }
            Test::Type(letters) => letters.contains(&printf::letter_of(attributes.kind).as_bytes()[0]),
            Test::TypeBehind(letters) => {
                let kind = match path::find(self.tree, visit.path, true) {
                    Ok(found) => found.kind,
                    Err(Error::NotFound | Error::NotAFolder | Error::TooManyLinks) => attributes.kind,
                    Err(error) => return Err(error.into()),
                };
                letters.contains(&printf::letter_of(kind).as_bytes()[0])
            }
            Test::Size(number, unit) => number.holds(attributes.size.div_ceil(*unit)),
            Test::Empty => match attributes.kind {
                Kind::File => attributes.size == 0,
                Kind::Folder => {
                    let mut is_empty = true;
                    self.tree.read_dir(attributes.node, 0, &mut |_| {
                        is_empty = false;
                        false
                    })?;
                    is_empty
                }
                _ => false,
            },
            Test::Newer(which, than) => which.of(attributes) > *than,
            Test::Age { which, number, unit, since } => is_of_age(*which, *number, *unit, *since, attributes),
            Test::User(owner) => self.is_owner(owner, attributes, false)?,
            Test::Group(owner) => self.is_owner(owner, attributes, true)?,
            Test::Uid(number) => number.holds(attributes.uid.into()),
            Test::Gid(number) => number.holds(attributes.gid.into()),
            Test::Mode(mode) => mode.holds(attributes.mode),
            Test::Executable => attributes.mode & 0o111 != 0 && attributes.kind != Kind::Symlink,
            Test::Links(number) => number.holds(attributes.links.into()),
            Test::Number(number) => number.holds(attributes.node.0),
            Test::Same(node) => attributes.node == *node,
            Test::Prune => {
                self.prunes = true;
                true
            }
            Test::Quit => {
                self.quits = true;
                true
            }
            Test::Print if self.has_json => {
                let mut way = visit.path;
                while let Some(rest) = way.strip_prefix(b"./").or_else(|| way.strip_prefix(b"/")) {
                    way = rest;
                }
                let (value, unreadable) = json::of(self.tree, if way == b"." { b"" } else { way }, attributes)?;
                self.out.json(&value)?;
                self.tell(visit, unreadable)
            }
            Test::Print => {
                self.out.name(visit.path)?;
                self.out.write_all(b"\n")?;
                true
            }
            Test::Print0 => {
                // For a program: whatever is in the name, it is not changed.
                self.out.write_all(visit.path)?;
                self.out.write_all(b"\0")?;
                true
            }
            Test::Printf(format) => {
                let unreadable = format.print(&mut self.out, self.tree, visit)?;
                self.tell(visit, unreadable)
            }
            Test::Ls => {
                let unreadable = printf::print_long(&mut self.out, self.tree, visit)?;
                self.tell(visit, unreadable)
            }
        })
    }

    /// Actions are true, whatever of the entry could not be read.
    fn tell(&mut self, visit: &Visit<'_>, unreadable: Option<Error>) -> bool {
        if let Some(error) = unreadable {
            self.cannot_be_read(visit.path, error);
        }
        true
    }

    /// By name where the archive has one, else by the number that was typed.
    fn is_owner(&self, owner: &Owner, attributes: &Attributes, is_group: bool) -> Result<bool, Error> {
        match owner {
            Owner::Number(number) => Ok(*number == if is_group { attributes.gid } else { attributes.uid }),
            Owner::Name(name) => {
                let (user, group) = self.tree.owner_names(attributes.node)?;
                Ok(*name == if is_group { group } else { user })
            }
        }
    }
}

/// Days that are not over do not count, as in find; minutes do.
fn is_of_age(
    which: Which,
    number: expression::Number,
    unit: u64,
    since: tarnfs_tree::Time,
    attributes: &Attributes,
) -> bool {
    let nanoseconds = |time: tarnfs_tree::Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let age = nanoseconds(since) - nanoseconds(which.of(attributes));
    let unit = i128::from(unit) * 1_000_000_000;
    let days = if unit == 60_000_000_000 { -((-age).div_euclid(unit)) } else { age.div_euclid(unit) };
    match number {
        expression::Number::More(than) if unit == 60_000_000_000 => age > i128::from(than) * unit,
        expression::Number::Less(than) => age < i128::from(than) * unit,
        expression::Number::More(than) => days > i128::from(than),
        expression::Number::Equal(to) => days == i128::from(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_components() {
        for (path, last) in [("a/b", "b"), ("a/b//", "b"), ("a", "a"), (".", "."), ("/", "/"), ("//", "/"), ("", "")] {
            assert_eq!(last_of(path.as_bytes()), last.as_bytes(), "{path}");
        }
    }
}
