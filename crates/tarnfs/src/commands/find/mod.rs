//! `tarnfs find`: the tests and actions of find(1), answered from the index.

mod expression;
mod mode;
mod pattern;
mod printf;
mod walk;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use tarnfs_tree::{Attributes, Error, Kind, Tree, path};

use crate::args::{Find, Open, shown};
use crate::exit::{Code, Failure};
use crate::inside::{self, Trouble};
use crate::json;
use crate::terminal::Output;
use expression::{Expression, Owner, Query, Test, Which};

pub(crate) use expression::{begins_expression, words};

/// Finds files and folders, below the root or the folders that are named.
pub(crate) fn run(arguments: &Find) -> Result<Code, Failure> {
    let (opened, code) = inside::open_to_list(&arguments.archive, &arguments.open).map_err(|mut failure| {
        let is_password = |word: &&OsString| word.as_bytes().starts_with(b"--password");
        if let Some(word) = arguments.words.iter().find(is_password) {
            let what = "stands behind the archive: options stand before it";
            // What is behind it is one.
            let option = word.as_bytes().split(|&byte| byte == b'=').next().unwrap_or_default();
            failure.message = format!("{}; {} {what}", failure.message, shown(OsStr::from_bytes(option)));
        }
        inside::of_folder(
            &arguments.archive,
            failure,
            "the archive comes first: tarnfs find ARCHIVE [PATH...] [EXPRESSION]",
        )
    })?;
    inside::tell_of_sidecar(&arguments.archive, &opened, inside::INDEX_INSTEAD);
    let tree = inside::tree(&opened);
    let paths = arguments.words.iter().position(|word| begins_expression(word.as_bytes()));
    let (typed, words) = arguments.words.split_at(paths.unwrap_or(arguments.words.len()));
    let Query { expression, least_depth, most_depth, depth_first, sought } =
        expression::parse(words, &tree).map_err(|what| Failure::new(Code::Usage, what))?;
    let mut out = Output::new();
    let search = Search {
        tree: &tree,
        open: &arguments.open,
        expression: &expression,
        depths: (least_depth, most_depth),
        depth_first,
        has_json: arguments.json,
        is_terminal: out.is_terminal(),
    };
    let mut paths = inside::Paths::new(&arguments.archive, arguments.open.colour(), code);
    let root = [OsString::from(".")];
    let starts = paths.expand(&tree, if typed.is_empty() { &root } else { typed });
    let mut starts = starts.into_iter().filter_map(|start| {
        let found = paths.find(&tree, &start, false)?;
        Some((start, found))
    });
    let mut unreadable = Vec::new();
    let mut untold = 0_u64;
    let searched = walk::below(&search, &mut starts, &mut out, &mut |path, error| {
        if unreadable.len() < MOST_TOLD {
            unreadable.push((path, error));
        } else {
            untold += 1;
        }
    });
    searched
        .and_then(|()| out.flush().map_err(Trouble::Output))
        .map_err(|trouble| trouble.failure(&arguments.archive, b""))?;
    for what in sought.iter().filter_map(|sought| sought.never_met()) {
        log::warn!("{}: {what}", shown(arguments.archive.as_os_str()));
    }
    if untold > 0 {
        let what = format!("{}: {untold} more entries cannot be read", shown(arguments.archive.as_os_str()));
        paths.failed(Failure::new(Code::Failure, what))?;
    }
    for (path, error) in unreadable {
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

/// What is looked for, by all threads.
struct Search<'a> {
    tree: &'a dyn Tree,
    open: &'a Open,
    expression: &'a Expression,
    /// The least and the most levels below what was typed.
    depths: (usize, usize),
    depth_first: bool,
    has_json: bool,
    is_terminal: bool,
}

/// What comes of looking at some entries.
struct Looker<'a> {
    search: &'a Search<'a>,
    out: Output,
    /// What is in the folder that was looked at last is left out.
    prunes: bool,
    quits: bool,
    unreadable: Vec<(Vec<u8>, Error)>,
    /// Bytes of the paths of these.
    unreadable_bytes: usize,
}

impl<'a> Looker<'a> {
    fn new(search: &'a Search<'a>) -> Self {
        let out = Output::in_memory(search.is_terminal);
        Self { search, out, prunes: false, quits: false, unreadable: Vec::new(), unreadable_bytes: 0 }
    }

    fn look_at(&mut self, visit: &Visit<'_>) -> Result<(), Trouble> {
        self.prunes = false;
        let expression = self.search.expression;
        self.holds(expression, visit).map(drop)
    }

    fn cannot_be_read(&mut self, path: &[u8], error: Error) {
        self.unreadable_bytes += path.len();
        self.unreadable.push((path.to_vec(), error));
    }

    /// Bytes of what is not a part yet.
    fn memory(&self) -> usize {
        self.out.len() + self.unreadable_bytes
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
                attributes.kind == Kind::Symlink && pattern.matches(&self.search.tree.read_link(attributes.node)?)
            }
            Test::Type(letters) => letters.contains(&printf::letter_of(attributes.kind).as_bytes()[0]),
            Test::TypeBehind(letters) => {
                let kind = match path::find(self.search.tree, visit.path, true) {
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
                    self.search.tree.read_dir(attributes.node, 0, &mut |_| {
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
            Test::Print if self.search.has_json => {
                let mut way = visit.path;
                while let Some(rest) = way.strip_prefix(b"./").or_else(|| way.strip_prefix(b"/")) {
                    way = rest;
                }
                let (value, unreadable) =
                    json::of(self.search.tree, self.search.open, if way == b"." { b"" } else { way }, attributes)?;
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
                let unreadable = format.print(&mut self.out, self.search.tree, visit)?;
                self.tell(visit, unreadable)
            }
            Test::Ls => {
                let unreadable = printf::print_long(&mut self.out, self.search.tree, visit)?;
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
                let (user, group) = self.search.tree.owner_names(attributes.node)?;
                Ok(name.is(if is_group { &group } else { &user }))
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
