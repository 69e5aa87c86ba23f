//! `tarnfs overlay diff`: what an overlay changes, as `git diff` shows it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use tarnfs_tree::{Attributes, Change, Changed, Error, Kind, Node, Now, OverlayError, OverlayStatus, Tree, path};

use crate::args::{OverlayDiff, shown};
use crate::exit::{Code, Failure};
use crate::inside::{self, Trouble};
use crate::terminal::{Output, escaped};

/// Longer files are only said to differ: lines of both are in memory.
const LONGEST: u64 = 8 << 20;

/// Bytes in which a zero says that it is no text, as for git.
const LOOKED_AT: usize = 8000;

/// Lines around a change.
const CONTEXT: u32 = 3;

/// One of the two that are compared.
struct Side {
    kind: Kind,
    mode: u32,
    /// What a link leads to, or a file holds; `None` of one that is no text, or too long for that.
    text: Option<Vec<u8>>,
    /// Nothing was written to it.
    is_as_before: bool,
}

/// Both trees, and where the difference goes.
struct Job<'a> {
    arguments: &'a OverlayDiff,
    old: &'a dyn Tree,
    out: Output,
    /// The paths of what has another name, until it is known whether it was changed, too.
    renamed: Option<(Vec<u8>, Vec<u8>)>,
}

/// Shows what is different.
pub(super) fn run(arguments: &OverlayDiff) -> Result<Code, Failure> {
    inside::not_standard_input(&arguments.archive)?;
    let failed = |error: OverlayError| Failure::new(Code::CannotOpen, error.to_string());
    let status = OverlayStatus::open(&arguments.folder).map_err(failed)?;
    let (opened, code) = inside::open(&arguments.archive, &arguments.open)?;
    let old = inside::tree(&opened);
    let mut job = Job { arguments, old: &old, out: Output::new(), renamed: None };
    let mut done = Ok(());
    status
        .each(&mut |changed| {
            done = job.show(&changed);
            done.is_ok()
        })
        .map_err(failed)?;
    let of_output = |error: io::Error| (Vec::new(), Trouble::Output(error));
    let done = done.and_then(|()| job.only_renamed().and_then(|()| job.out.flush()).map_err(of_output));
    done.map_err(|(path, trouble)| trouble.failure(&arguments.archive, &path))?;
    Ok(code)
}

/// With the path that it is about.
type Done = Result<(), (Vec<u8>, Trouble)>;

impl Job<'_> {
    fn show(&mut self, changed: &Changed) -> Done {
        let path = &changed.path;
        if !self.is_asked_for(path) && !changed.from.as_ref().is_some_and(|from| self.is_asked_for(from)) {
            return Ok(());
        }
        let (of, of_output) =
            (|error: Error| (path.clone(), Trouble::Tree(error)), |error| (path.clone(), Trouble::Output(error)));
        let from = changed.from.as_ref().unwrap_or(path);
        if changed.change == Change::Renamed {
            self.only_renamed().map_err(of_output)?;
            self.renamed = Some((from.clone(), path.clone()));
            return Ok(());
        }
        if self.renamed.as_ref().is_some_and(|(_, renamed)| renamed != path) {
            self.only_renamed().map_err(of_output)?;
        }
        let was = self.find(from).map_err(of)?;
        match (&changed.now, was) {
            (None, Some(was)) => self.removed(path, &was),
            // Something of a mount that is not the archive alone.
            (None, None) => Ok(()),
            (Some(now), was) => {
                if let Some(was) = was.as_ref().filter(|was| was.kind == Kind::Folder && now.kind != Kind::Folder) {
                    self.removed(path, was)?;
                }
                let was = was.filter(|was| now.kind == Kind::Folder || was.kind != Kind::Folder);
                let before = was.map(|was| self.before(path, &was)).transpose()?;
                let after = after(now, changed, before.as_ref()).map_err(|error| of(error.into()))?;
                self.put(from, path, before.as_ref(), Some(&after)).map_err(of_output)
            }
        }
    }

    /// Says that something has another name, and is as it was.
    fn only_renamed(&mut self) -> io::Result<()> {
        let Some((from, path)) = self.renamed.take() else { return Ok(()) };
        self.header(&from, &path)?;
        self.names(&from, &path)
    }

    fn names(&mut self, from: &[u8], path: &[u8]) -> io::Result<()> {
        writeln!(self.out, "rename from {}\nrename to {}", quoted("", from), quoted("", path))
    }

    fn is_asked_for(&self, path: &[u8]) -> bool {
        let wanted = |given: &std::ffi::OsString| {
            let given = given.as_bytes();
            let given = given.strip_prefix(b"/").unwrap_or(given);
            let given = given.strip_suffix(b"/").unwrap_or(given);
            given.is_empty() || path.strip_prefix(given).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        self.arguments.paths.is_empty() || self.arguments.paths.iter().any(wanted)
    }

    fn find(&self, path: &[u8]) -> Result<Option<Attributes>, Error> {
        if path == b"/" {
            return self.old.attributes(Node::ROOT).map(Some);
        }
        match path::find(self.old, path, false) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound | Error::NotAFolder) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What was removed: of a folder, all that is in it.
    fn removed(&mut self, path: &[u8], was: &Attributes) -> Done {
        let mut left = vec![(path.to_vec(), was.clone(), 0)];
        while let Some((path, was, from)) = left.pop() {
            let of = |error: Error| (path.clone(), Trouble::from(error));
            if was.kind != Kind::Folder {
                let before = self.before(&path, &was)?;
                let put = self.put(&path, &path, Some(&before), None);
                put.map_err(|error| (path.clone(), Trouble::Output(error)))?;
                continue;
            }
            let (found, next) = crate::commands::rewriting::children(self.old, was.node, from).map_err(of)?;
            let inner = |name: &[u8]| [&path[..], b"/", name].concat();
            let found: Vec<_> = found.into_iter().map(|(name, was)| (inner(&name), was, 0)).collect();
            if let Some(next) = next {
                left.push((path.clone(), was, next));
            }
            left.extend(found.into_iter().rev());
        }
        Ok(())
    }

    fn before(&self, path: &[u8], was: &Attributes) -> Result<Side, (Vec<u8>, Trouble)> {
        let read = || -> Result<Option<Vec<u8>>, Error> {
            match was.kind {
                Kind::Symlink => self.old.read_link(was.node).map(Some),
                Kind::File if was.size <= LONGEST => {
                    let file = self.old.open(was.node)?;
                    let mut bytes = vec![0; was.size as usize];
                    file.read_exact_at(&mut bytes, 0)?;
                    Ok(text(bytes))
                }
                Kind::File => Ok(None),
                _ => Ok(Some(Vec::new())),
            }
        };
        let text = read().map_err(|error| (path.to_vec(), Trouble::Tree(error)))?;
        Ok(Side { kind: was.kind, mode: was.mode, text, is_as_before: true })
    }

    fn header(&mut self, old: &[u8], new: &[u8]) -> io::Result<()> {
        writeln!(self.out, "diff --git {} {}", quoted("a/", old), quoted("b/", new))
    }

    /// What is at one path, which was `old_path` before.
    fn put(&mut self, old_path: &[u8], path: &[u8], before: Option<&Side>, after: Option<&Side>) -> io::Result<()> {
        // Something else has the name: as git, one that goes, and one that comes.
        if let (Some(old), Some(new)) = (before, after)
            && old.kind != new.kind
        {
            self.put(old_path, old_path, before, None)?;
            return self.put(path, path, None, after);
        }
        let nothing = Some(Vec::new());
        let texts = [before, after].map(|side| side.map_or(&nothing, |side| &side.text).as_deref());
        let has_same_mode = before.is_some_and(|old| after.is_some_and(|new| old.mode == new.mode));
        let is_new_folder = before.is_none() && after.is_some_and(|new| new.kind == Kind::Folder);
        let is_same = match texts {
            [None, None] => after.is_some_and(|after| after.is_as_before),
            [old, new] => old == new,
        };
        // As git: times and owners are not shown, nor folders.
        if is_new_folder || is_same && has_same_mode && self.renamed.is_none() {
            return Ok(());
        }
        self.header(old_path, path)?;
        match (before, after) {
            (None, Some(new)) => writeln!(self.out, "new file mode {:o}", mode(new))?,
            (Some(old), None) => writeln!(self.out, "deleted file mode {:o}", mode(old))?,
            (Some(old), Some(new)) if old.mode != new.mode => {
                writeln!(self.out, "old mode {:o}\nnew mode {:o}", mode(old), mode(new))?;
            }
            _ => {}
        }
        if self.renamed.take().is_some() {
            self.names(old_path, path)?;
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
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        let lines = |from: &[imara_diff::Token], range: Range<u32>| {
            from[range.start as usize..range.end as usize].iter().map(|&line| input.interner[line]).collect::<Vec<_>>()
        };
        let total = input.before.len() as u32;
        let mut hunks = diff.hunks().peekable();
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

/// Where nothing was written to a file, it is as it was `before`.
fn after(now: &Now, changed: &Changed, before: Option<&Side>) -> io::Result<Side> {
    let text = match (now.kind, &changed.content) {
        (Kind::Symlink, _) => Some(now.target.clone()),
        (Kind::File, Some(content)) => {
            let say =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", shown(content.as_os_str())));
            let mut bytes = Vec::new();
            File::open(content).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)).map_err(say)?;
            if bytes.len() as u64 > LONGEST { None } else { text(bytes) }
        }
        (Kind::File, None) => before.map_or_else(|| Some(Vec::new()), |before| before.text.clone()),
        _ => Some(Vec::new()),
    };
    Ok(Side { kind: now.kind, mode: now.mode, text, is_as_before: changed.content.is_none() })
}

/// What a file holds, if that is text.
fn text(bytes: Vec<u8>) -> Option<Vec<u8>> {
    let is_binary = bytes[..bytes.len().min(LOOKED_AT)].contains(&0);
    (!is_binary).then_some(bytes)
}

/// As `stat` has it.
fn mode(of: &Side) -> u32 {
    let kind = match of.kind {
        Kind::Folder => 0o040_000,
        Kind::Symlink => return 0o120_000,
        Kind::Fifo => 0o010_000,
        Kind::CharacterDevice(_) => 0o020_000,
        Kind::BlockDevice(_) => 0o060_000,
        Kind::Socket => 0o140_000,
        _ => 0o100_000,
    };
    kind | of.mode & 0o7777
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
