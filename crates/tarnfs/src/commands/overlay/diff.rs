//! `tarnfs overlay diff`: what an overlay changes, as `git diff` shows it.

use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use tarnfs_tree::{Attributes, Error, Held, Kind, Named, Node, OverlayError, OverlayStatus, Tree, path};

use crate::args::OverlayDiff;
use crate::commands::rewriting::children;
use crate::exit::{Code, Failure};
use crate::inside::{self, Trouble};
use crate::terminal::{Output, escaped};

/// Longer files are only said to differ: lines of both are in memory.
const LONGEST: u64 = 8 << 20;

/// Of more lines the best difference takes time with their square.
const MOST_BY_HISTOGRAM: usize = 20_000;

/// More lines are one change if each of them is there more often than that.
const MOST_REPEATED: usize = 100_000;
const REPEATED: usize = 16;

/// Bytes in which a zero says that it is no text, as for git.
const LOOKED_AT: usize = 8000;

/// Lines around a change.
const CONTEXT: u32 = 3;

/// One of the two that are compared.
struct Side {
    kind: Kind,
    mode: u32,
    /// What a link leads to, or a file holds; `None` of one that is no text, or too long for that, or is not compared.
    text: Option<Vec<u8>>,
    /// Nothing was written to it.
    is_as_before: bool,
}

/// Where it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// At the same path.
    Stays,
    /// At another one, where it is no more.
    Renamed,
    /// At another one, where it may be yet: it has several names.
    Copied,
}

/// A folder of the archive that has another name, or lies in one.
struct Moved<'a> {
    from: Vec<u8>,
    path: Vec<u8>,
    node: Node,
    /// Where it goes on in it.
    next: u64,
    /// What the overlay says of it; it says nothing of those that lie in others.
    held: Option<&'a Held>,
}

/// Both trees, and where the difference goes.
struct Job<'a> {
    arguments: &'a OverlayDiff,
    status: &'a OverlayStatus,
    old: &'a dyn Tree,
    out: Output,
}

/// Shows what is different.
pub(super) fn run(arguments: &OverlayDiff) -> Result<Code, Failure> {
    inside::not_standard_input(&arguments.archive)?;
    let failed = |error: OverlayError| Failure::new(Code::CannotOpen, error.to_string());
    let status = OverlayStatus::open(&arguments.folder).map_err(failed)?;
    let (opened, code) = inside::open(&arguments.archive, &arguments.open)?;
    let old = inside::tree(&opened);
    let mut job = Job { arguments, status: &status, old: &old, out: Output::new() };
    let mut done = Ok(());
    // What is gone from a folder that has another name goes first: something new may have its old path, and git wants
    // to know by then that this is free. All else is where its old path is, before what has that now.
    for is_first in [true, false] {
        let walked = status.each_name(&mut |named| {
            done = if is_first { job.gone_elsewhere(named) } else { job.show(named) };
            done.is_ok()
        });
        walked.map_err(failed)?;
        if done.is_err() {
            break;
        }
    }
    let done = done.and_then(|()| job.out.flush().map_err(of_output(b"")));
    done.map_err(|(path, trouble)| trouble.failure(&arguments.archive, &path))?;
    Ok(code)
}

/// With the path that it is about.
type Failed = (Vec<u8>, Trouble);
type Done = Result<(), Failed>;

fn of_tree(path: &[u8]) -> impl FnOnce(Error) -> Failed {
    move |error| (path.to_vec(), Trouble::Tree(error))
}

fn of_overlay(path: &[u8]) -> impl FnOnce(OverlayError) -> Failed {
    move |error| (path.to_vec(), Trouble::Tree(error.error))
}

fn of_output(path: &[u8]) -> impl FnOnce(io::Error) -> Failed {
    move |error| (path.to_vec(), Trouble::Output(error))
}

/// As git: no folders, and nothing else that is neither a file nor a link.
fn is_shown(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Symlink)
}

fn is_in(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl Job<'_> {
    /// What is gone from a folder that has another name.
    fn gone_elsewhere(&mut self, named: &Named) -> Done {
        let Some(below) = named.below.as_ref().filter(|below| **below != named.path) else { return Ok(()) };
        if let Some(held) = &named.held
            && self.is_what_was_at(held, below)?
        {
            return Ok(());
        }
        match self.nameless(below)? {
            Some(was) => self.removed(below, was),
            None => Ok(()),
        }
    }

    fn show(&mut self, named: &Named) -> Done {
        let path = &named.path;
        if let Some(held) = &named.held
            && self.is_what_was_at(held, path)?
        {
            return if held.is_changed { self.came(path, held, How::Stays) } else { Ok(()) };
        }
        let was = if named.below.as_ref() == Some(path) { self.nameless(path)? } else { None };
        let Some(held) = &named.held else {
            return was.map_or(Ok(()), |was| self.removed(path, was));
        };
        if let Some(was) = was {
            if held.from.is_none() && is_shown(was.kind) && is_shown(held.now.kind) {
                return self.compared((path, Some(&was)), path, held, How::Stays);
            }
            self.removed(path, was)?;
        }
        self.came(path, held, if held.is_further { How::Copied } else { How::Renamed })
    }

    /// True if what has a name is what the archive has at the path `at`.
    fn is_what_was_at(&self, held: &Held, at: &[u8]) -> Result<bool, Failed> {
        match &held.from {
            Some(from) if from == at => Ok(true),
            Some(from) if held.is_shared => {
                let there = self.find(at)?.map(|found| found.node);
                Ok(there.is_some() && there == self.find(from)?.map(|found| found.node))
            }
            _ => Ok(false),
        }
    }

    /// What the archive has at a path, unless that has a name in the mount.
    fn nameless(&self, path: &[u8]) -> Result<Option<Attributes>, Failed> {
        if self.status.has_name(path).map_err(of_overlay(path))? { Ok(None) } else { self.find(path) }
    }

    /// What has a path now.
    fn came(&mut self, path: &[u8], held: &Held, how: How) -> Done {
        let Some(from) = &held.from else { return self.compared((path, None), path, held, How::Stays) };
        if held.now.kind == Kind::Folder {
            return if how == How::Stays { Ok(()) } else { self.moved(from, path, held) };
        }
        let from = if how == How::Stays { path } else { from };
        let was = self.find(from)?;
        self.compared((from, was.as_ref()), path, held, how)
    }

    /// A folder that has another name: so has all that is in it, and of which nothing is said by name.
    fn moved(&mut self, from: &[u8], path: &[u8], held: &Held) -> Done {
        let Some(was) = self.find(from)?.filter(|was| was.kind == Kind::Folder) else { return Ok(()) };
        let (from, path) = (from.to_vec(), path.to_vec());
        let mut left = vec![Moved { from, path, node: was.node, next: 0, held: Some(held) }];
        while let Some(folder) = left.pop() {
            let (found, next) = children(self.old, folder.node, folder.next).map_err(of_tree(&folder.from))?;
            let mut inner = Vec::new();
            for (name, was) in found {
                // It has its own turn.
                if let Some(held) = folder.held
                    && self.status.says_of(held, &name).map_err(of_overlay(&folder.path))?
                {
                    continue;
                }
                let [from, path] = [&folder.from, &folder.path].map(|folder| [&folder[..], b"/", &name].concat());
                if was.kind == Kind::Folder {
                    if self.is_asked_in(&from) || self.is_asked_in(&path) {
                        inner.push(Moved { from, path, node: was.node, next: 0, held: None });
                    }
                } else if is_shown(was.kind) && (self.is_asked_for(&from) || self.is_asked_for(&path)) {
                    let side = Side { kind: was.kind, mode: was.mode, text: None, is_as_before: true };
                    let put = self.put((&from, Some(&side)), (&path, Some(&side)), How::Renamed);
                    put.map_err(of_output(&path))?;
                }
            }
            if let Some(next) = next {
                left.push(Moved { next, ..folder });
            }
            left.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    /// What has a path now, beside what it was.
    fn compared(&mut self, (from, was): (&[u8], Option<&Attributes>), path: &[u8], held: &Held, how: How) -> Done {
        if !self.is_asked_for(from) && !self.is_asked_for(path) {
            return Ok(());
        }
        let is_read =
            |was: &Attributes| held.content.is_some() || was.kind == Kind::Symlink || was.kind != held.now.kind;
        let before = was.map(|was| self.before(from, was, is_read(was))).transpose()?.flatten();
        let after = self.after(held, before.as_ref()).map_err(|error| (path.to_vec(), Trouble::Tree(error.into())))?;
        let how = if before.is_some() { how } else { How::Stays };
        self.put((from, before.as_ref()), (path, after.as_ref()), how).map_err(of_output(path))
    }

    /// The paths that were given.
    fn given(&self) -> impl Iterator<Item = &[u8]> {
        self.arguments.paths.iter().map(|given| {
            let given = given.as_bytes();
            let given = given.strip_prefix(b"/").unwrap_or(given);
            given.strip_suffix(b"/").unwrap_or(given)
        })
    }

    fn is_asked_for(&self, path: &[u8]) -> bool {
        self.arguments.paths.is_empty() || self.given().any(|given| is_in(path, given))
    }

    /// True if it may be that something in a folder is asked for.
    fn is_asked_in(&self, folder: &[u8]) -> bool {
        self.is_asked_for(folder) || self.given().any(|given| is_in(given, folder))
    }

    fn find(&self, path: &[u8]) -> Result<Option<Attributes>, Failed> {
        match path::find(self.old, path, false) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound | Error::NotAFolder) => Ok(None),
            Err(error) => Err(of_tree(path)(error)),
        }
    }

    /// What was removed: of a folder, all that is in it and has no other name.
    fn removed(&mut self, path: &[u8], was: Attributes) -> Done {
        let mut left = vec![(path.to_vec(), was, 0)];
        while let Some((path, was, from)) = left.pop() {
            if was.kind != Kind::Folder {
                if self.is_asked_for(&path)
                    && let Some(before) = self.before(&path, &was, true)?
                {
                    self.put((&path, Some(&before)), (&path, None), How::Stays).map_err(of_output(&path))?;
                }
                continue;
            }
            if !self.is_asked_in(&path) {
                continue;
            }
            let (found, next) = children(self.old, was.node, from).map_err(of_tree(&path))?;
            let mut inner = Vec::new();
            for (name, was) in found {
                let path = [&path[..], b"/", &name].concat();
                if !self.status.has_name(&path).map_err(of_overlay(&path))? {
                    inner.push((path, was, 0));
                }
            }
            if let Some(next) = next {
                left.push((path, was, next));
            }
            left.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    /// What the archive has; `is_read`: with what is in it. `None` of what is not shown.
    fn before(&self, path: &[u8], was: &Attributes, is_read: bool) -> Result<Option<Side>, Failed> {
        let read = || -> Result<Option<Vec<u8>>, Error> {
            match was.kind {
                Kind::Symlink => self.old.read_link(was.node).map(Some),
                Kind::File if was.size <= LONGEST => {
                    let file = self.old.open(was.node)?;
                    let mut bytes = vec![0; was.size as usize];
                    file.read_exact_at(&mut bytes, 0)?;
                    Ok(text(bytes))
                }
                _ => Ok(None),
            }
        };
        if !is_shown(was.kind) {
            return Ok(None);
        }
        let text = if is_read { read().map_err(of_tree(path))? } else { None };
        Ok(Some(Side { kind: was.kind, mode: was.mode, text, is_as_before: true }))
    }

    /// What is there now; `None` of what is not shown. Where nothing was written to a file, it is as it was `before`.
    fn after(&self, held: &Held, before: Option<&Side>) -> io::Result<Option<Side>> {
        let text = match (held.now.kind, &held.content) {
            (Kind::Symlink, _) => Some(held.now.target.clone()),
            (Kind::File, Some(content)) => {
                let mut bytes = Vec::new();
                self.status.open_content(content)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
                if bytes.len() as u64 > LONGEST { None } else { text(bytes) }
            }
            (Kind::File, None) => match before.filter(|before| before.kind == Kind::File) {
                Some(before) => before.text.clone(),
                // Something of a mount that is not the archive alone.
                None if held.from.is_some() => return Ok(None),
                None => Some(Vec::new()),
            },
            _ => return Ok(None),
        };
        let is_as_before = held.content.is_none();
        Ok(Some(Side { kind: held.now.kind, mode: held.now.mode, text, is_as_before }))
    }

    fn header(&mut self, old: &[u8], new: &[u8]) -> io::Result<()> {
        writeln!(self.out, "diff --git {} {}", quoted("a/", old), quoted("b/", new))
    }

    /// What is at one path, and what that was at the old one before.
    fn put(
        &mut self,
        (old_path, before): (&[u8], Option<&Side>),
        (path, after): (&[u8], Option<&Side>),
        how: How,
    ) -> io::Result<()> {
        match (before, after) {
            (None, None) => return Ok(()),
            // Something else has the name: as git, one that goes, and one that comes.
            (Some(old), Some(new)) if old.kind != new.kind => {
                if how != How::Copied {
                    self.put((old_path, before), (old_path, None), How::Stays)?;
                }
                return self.put((path, None), (path, after), How::Stays);
            }
            _ => {}
        }
        let nothing = Some(Vec::new());
        let texts = [before, after].map(|side| side.map_or(&nothing, |side| &side.text).as_deref());
        let has_same_mode = before.is_some_and(|old| after.is_some_and(|new| mode(old) == mode(new)));
        let is_same = match texts {
            [None, None] => after.is_some_and(|after| after.is_as_before),
            [old, new] => old == new,
        };
        // As git: times and owners are not shown.
        if is_same && has_same_mode && how == How::Stays {
            return Ok(());
        }
        self.header(old_path, path)?;
        match (before, after) {
            (None, Some(new)) => writeln!(self.out, "new file mode {:o}", mode(new))?,
            (Some(old), None) => writeln!(self.out, "deleted file mode {:o}", mode(old))?,
            // Of a link that is renamed, git has to be told that it is one: there may be a folder in its place.
            (Some(old), Some(new)) if !has_same_mode || how == How::Renamed && old.kind == Kind::Symlink => {
                writeln!(self.out, "old mode {:o}\nnew mode {:o}", mode(old), mode(new))?;
            }
            _ => {}
        }
        let (from, to) = (quoted("", old_path), quoted("", path));
        match how {
            How::Stays => {}
            How::Renamed => writeln!(self.out, "rename from {from}\nrename to {to}")?,
            How::Copied => writeln!(self.out, "copy from {from}\ncopy to {to}")?,
        }
        let names = [("a/", old_path, before), ("b/", path, after)]
            .map(|(side, path, there)| there.map_or_else(|| "/dev/null".to_owned(), |_| quoted(side, path)));
        match texts {
            _ if is_same => Ok(()),
            [Some(old), Some(new)] => self.lines(&names, old, new),
            _ => writeln!(self.out, "Binary files {} and {} differ", names[0], names[1]),
        }
    }

    /// The lines that differ, with some around them.
    fn lines(&mut self, names: &[String; 2], old: &[u8], new: &[u8]) -> io::Result<()> {
        writeln!(self.out, "--- {}\n+++ {}", names[0], names[1])?;
        let input = InternedInput::new(old, new);
        let hunks = hunks(&input);
        let lines = |from: &[imara_diff::Token], range: Range<u32>| {
            from[range.start as usize..range.end as usize].iter().map(|&line| input.interner[line]).collect::<Vec<_>>()
        };
        let total = input.before.len() as u32;
        let mut hunks = hunks.into_iter().peekable();
        while let Some(first) = hunks.next() {
            let mut group: Vec<Hunk> = vec![first];
            while let Some(last) = group.last().map(|last| last.before.end)
                && let Some(next) = hunks.next_if(|next| next.before.start - last <= 2 * CONTEXT)
            {
                group.push(next);
            }
            let (Some(first), Some(last)) = (group.first(), group.last()) else { break };
            let above = first.before.start.min(CONTEXT);
            let below = (total - last.before.end).min(CONTEXT);
            let old = first.before.start - above..last.before.end + below;
            let new = first.after.start - above..last.after.end + below;
            writeln!(self.out, "@@ -{} +{} @@", position(&old), position(&new))?;
            let mut at = old.start;
            for hunk in &group {
                self.each(b" ", &lines(&input.before, at..hunk.before.start))?;
                self.each(b"-", &lines(&input.before, hunk.before.clone()))?;
                self.each(b"+", &lines(&input.after, hunk.after.clone()))?;
                at = hunk.before.end;
            }
            self.each(b" ", &lines(&input.before, at..old.end))?;
        }
        Ok(())
    }

    fn each(&mut self, sign: &[u8], lines: &[&[u8]]) -> io::Result<()> {
        for line in lines {
            self.out.write_all(sign)?;
            self.out.write_all(line)?;
            if !line.ends_with(b"\n") {
                self.out.write_all(b"\n\\ No newline at end of file\n")?;
            }
        }
        Ok(())
    }
}

/// What differs. Very many lines that are mostly the same few are one change: looking for the best ones would take
/// minutes.
fn hunks(input: &InternedInput<&[u8]>) -> Vec<Hunk> {
    let (before, after) = (&input.before, &input.after);
    let same = before.iter().zip(after).take_while(|(old, new)| old == new).count();
    let (old, new) = (&before[same..], &after[same..]);
    let same_below = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let lines = old.len() + new.len() - 2 * same_below;
    if lines > MOST_REPEATED && lines / REPEATED > input.interner.num_tokens() as usize {
        let changed = |all: &[imara_diff::Token]| same as u32..(all.len() - same_below) as u32;
        return vec![Hunk { before: changed(before), after: changed(after) }];
    }
    let algorithm = if lines > MOST_BY_HISTOGRAM { Algorithm::Myers } else { Algorithm::Histogram };
    let mut diff = Diff::compute(algorithm, input);
    diff.postprocess_lines(input);
    diff.hunks().collect()
}

/// What a file holds, if that is text.
fn text(bytes: Vec<u8>) -> Option<Vec<u8>> {
    let is_binary = bytes[..bytes.len().min(LOOKED_AT)].contains(&0);
    (!is_binary).then_some(bytes)
}

/// As `stat` has it, but for the permissions of a link.
fn mode(of: &Side) -> u32 {
    if of.kind == Kind::Symlink { 0o120_000 } else { 0o100_000 | of.mode & 0o7777 }
}

/// Lines of a hunk, counted from 1; of none, the one before.
fn position(lines: &Range<u32>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        count => format!("{},{count}", lines.start + 1),
    }
}

/// A name as git writes it: in quotes, with octal numbers, where it is no plain text.
fn quoted(side: &str, path: &[u8]) -> String {
    let plain = escaped(path);
    if plain.as_bytes() == path && !path.iter().any(|byte| b"\"\\".contains(byte)) {
        return format!("{side}{plain}");
    }
    let digit = |value: u8| char::from(b'0' + value);
    let mut all = format!("\"{side}");
    for &byte in path {
        match byte {
            b'"' | b'\\' => all.extend(['\\', byte.into()]),
            b' '..=b'~' => all.push(byte.into()),
            _ => all.extend(['\\', digit(byte >> 6), digit(byte >> 3 & 7), digit(byte & 7)]),
        }
    }
    all.push('"');
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lines_of_which_every_second_one_differs_take_no_minutes() {
        const LINES: usize = 40_000;
        let text =
            |what: &str| -> String { (0..LINES).map(|at| format!("{at}\n{what} {at}\n")).collect::<Vec<_>>().concat() };
        let (before, after) = (text("old"), text("new"));
        let input = InternedInput::new(before.as_bytes(), after.as_bytes());
        let start = std::time::Instant::now();
        assert_eq!(hunks(&input).len(), LINES);
        assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
    }

    #[test]
    fn very_many_lines_that_repeat_are_one_change() {
        let text = |lines: usize, by: usize| {
            let middle: String =
                (0..lines).map(|at| if (at * at / by).is_multiple_of(3) { "a\n" } else { "b\n" }).collect();
            format!("first\n{middle}last\n")
        };
        let changes = |lines: usize| {
            let (before, after) = (text(lines, 7), text(lines, 5));
            let input = InternedInput::new(before.as_bytes(), after.as_bytes());
            let found = hunks(&input);
            let of = |side: fn(&Hunk) -> &Range<u32>| found.iter().map(|hunk| side(hunk).len()).sum::<usize>();
            let stays = (input.before.len() - of(|hunk| &hunk.before), input.after.len() - of(|hunk| &hunk.after));
            assert!(stays.0 == stays.1 && stays.0 >= 2, "{stays:?}");
            found.len()
        };
        assert!(changes(1000) > 1);
        assert_eq!(changes(MOST_REPEATED), 1);
    }
}
