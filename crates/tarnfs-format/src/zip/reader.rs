//! Walks the directory, and tells its members in the order in which they lie in the archive.

use std::collections::BinaryHeap;
use std::io;

use tarnfs_source::Source;

use super::NAME;
use super::central::{Central, Next, Walk};
use super::coders::{Coders, Recipe, unreadable};
use super::end::{self, Directory, End};
use super::extra::Numbers;
use super::local;
use super::member::{Member, name_in_unknown_encoding};
use super::scan::{Found, Scan};
use crate::encoding::Encoding;
use crate::guess::Names;
use crate::name::excerpt;
use crate::window::Window;
use crate::{Body, Damage, Error, Event, Kind, Options, Piece, ReceiveRandom};

/// Members whose order is found in one pass over a directory that is in another order: 16 MiB.
const AT_ONCE: usize = 1 << 20;

/// Where a header of the directory says that a member is, the member if it can be shown, and what is wrong with it.
type Made = (u64, Option<Member>, Option<String>);

/// One pass over one archive.
pub(super) struct Reader<'run> {
    source: &'run dyn Source,
    options: &'run Options,
    receive: &'run mut ReceiveRandom<'run>,
    coders: Coders,
    /// Whether it can be read depends on where the next one begins.
    pending: Option<Member>,
    /// The directory is not whole: members may lie between those that it tells.
    scan: Option<Scan<'run>>,
    /// Of names that do not say what they are in.
    encoding: Option<Encoding>,
    /// Members told.
    count: u64,
}

impl<'run> Reader<'run> {
    pub(super) fn new(
        source: &'run dyn Source,
        options: &'run Options,
        receive: &'run mut ReceiveRandom<'run>,
    ) -> Self {
        Self {
            source,
            options,
            receive,
            coders: Coders::default(),
            pending: None,
            scan: None,
            encoding: options.encoding,
            count: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        let not_this = |reason: &str| Error::NotThisFormat { format: NAME, reason: reason.to_owned() };
        let length = self.source.len();
        match end::find(self.source, &self.options.cancel).map_err(at(length))? {
            End::Directory(directory) => self.directory(&directory),
            End::Split(others) => Err(not_this(&format!(
                "it is the last part of an archive in {} files, and all of them are needed",
                u64::from(others).saturating_add(1)
            ))),
            End::Missing => {
                self.damage(length, "no directory is at its end; members were found by their local headers, which tell no links and no modes")?;
                self.scan = Some(self.new_scan());
                self.gap(0, length, true)?;
                if self.count == 0 { Err(not_this("neither a directory nor a member is in it")) } else { Ok(()) }
            }
        }
    }

    fn window(&self) -> Window<'run> {
        Window::new(self.source, &self.options.cancel)
    }

    fn new_scan(&self) -> Scan<'run> {
        let mut scan = Scan::new(self.window(), self.options.limits.resynchronise);
        scan.take_names_for(self.encoding);
        scan
    }

    fn directory(&mut self, directory: &Directory) -> Result<(), Error> {
        let mut walk = Walk::new(self.window(), directory.range.clone());
        // What the whole of it looks like, before anything is told.
        let (mut count, mut last, mut is_ordered, mut first) = (0_u64, 0, true, None);
        let mut names = Names::default();
        loop {
            match walk.next().map_err(at(directory.range.start))? {
                Next::Header(header) => {
                    if self.options.guess_encoding && std::str::from_utf8(header.name()).is_err() {
                        let unknown = name_in_unknown_encoding(&header.head(), &header.extra());
                        if let Some((name, is_of_dos)) = unknown {
                            names.add(name, is_of_dos);
                        }
                    }
                    let offset = offset(&header, directory).unwrap_or_default();
                    first.get_or_insert(offset);
                    is_ordered &= offset >= last;
                    (count, last) = (count.saturating_add(1), offset);
                }
                Next::Broken(range) => {
                    let length = range.end.saturating_sub(range.start);
                    self.damage(range.start, format!("{length} bytes of the directory are no header"))?;
                    if self.scan.is_none() {
                        self.scan = Some(self.new_scan());
                    }
                }
                Next::End => break,
            }
        }
        self.take_guess(&names);
        let told = if directory.is_64 { count } else { count & 0xffff };
        if told != directory.members && self.scan.is_none() {
            let what = format!("the directory has {count} members, its end says {}", directory.members);
            self.damage(directory.range.start, what)?;
        }
        let mut directory = directory.clone();
        directory.shift = shift(self.source, &directory, first).map_err(at(directory.range.start))?;

        walk.rewind();
        if is_ordered {
            while let Some(header) = next_header(&mut walk, &directory)? {
                let made = self.member(&header, &directory)?;
                self.push(made)?;
            }
        } else {
            self.unordered(&mut walk, &directory)?;
        }
        let start = directory.range.start;
        let is_behind = self.pending.as_ref().is_some_and(|member| member.entry.header >= start);
        let end = if is_behind { self.source.len() } else { start };
        let from = self.flush(end)?;
        self.gap(from, end, true)
    }

    /// Takes names that do not say what they are in for what `names` looks like.
    fn take_guess(&mut self, names: &Names) {
        let Some((encoding, name)) = names.guess() else { return };
        let archive = self.source.describe();
        log::info!(
            "{}: names that are not UTF-8 are taken for {name}; -e takes them for others",
            excerpt(archive.as_bytes())
        );
        self.encoding = Some(encoding);
        self.scan.iter_mut().for_each(|scan| scan.take_names_for(Some(encoding)));
    }

    /// Tells the members in the order of their local headers, though the directory has another one. Of those with the
    /// same header, in the order of the directory.
    fn unordered(&mut self, walk: &mut Walk<'_>, directory: &Directory) -> Result<(), Error> {
        let mut told = None;
        loop {
            // The lowest ones of those that were not told.
            let mut lowest = BinaryHeap::new();
            walk.rewind();
            while let Some(header) = next_header(walk, directory)? {
                let key = (offset(&header, directory).unwrap_or_default(), header.at);
                if told.is_some_and(|told| key <= told) {
                    continue;
                }
                if lowest.len() < AT_ONCE {
                    lowest.push(key);
                } else if let Some(mut highest) = lowest.peek_mut()
                    && key < *highest
                {
                    *highest = key;
                }
            }
            let keys = lowest.into_sorted_vec();
            let Some(&last) = keys.last() else { return Ok(()) };
            for &(_, at) in &keys {
                walk.jump(at);
                if let Some(header) = next_header(walk, directory)? {
                    let made = self.member(&header, directory)?;
                    self.push(made)?;
                }
            }
            told = Some(last);
        }
    }

    /// The member of a header of the directory, with what is wrong with it; without, if it cannot even be shown.
    fn member(&self, header: &Central<'_>, directory: &Directory) -> Result<Made, Error> {
        let (at, name, extra) = (header.at, header.name(), header.extra());
        let left_out = |what: &str| Ok((at, None, Some(format!("'{}' is left out: {what}", excerpt(name)))));
        let Some(numbers) = header.numbers(&extra) else {
            return left_out("its zip64 field is too short");
        };
        let counted =
            directory.volumes.start(header.volume(&extra)).and_then(|start| start.checked_add(numbers.offset));
        let Some(offset) = counted.and_then(|at| at.checked_add_signed(directory.shift)) else {
            return left_out("it does not lie in this file");
        };
        let behind = if offset < directory.range.start { directory.range.start } else { self.source.len() };
        let mut content = offset.checked_add(local::HEADER as u64).and_then(|at| at.checked_add(name.len() as u64));
        if content.is_some_and(|content| content.saturating_add(numbers.stored) > behind) {
            content = self.content_behind(offset)?.into_iter().chain(content).min();
        }
        let Some(content) = content.filter(|&content| content <= behind && i64::try_from(numbers.size).is_ok()) else {
            return left_out("it would lie behind the end");
        };
        let end = content.saturating_add(numbers.stored);
        let numbers = Numbers { offset, ..numbers };
        let mut member = Member::new(&header.head(), &extra, numbers, end.min(behind), self.encoding);
        let mut what = member.contradiction();
        if end > behind {
            what = Some(format!("its {} bytes would reach behind the end", numbers.stored));
        }
        if what.is_some() {
            member.recipe = Recipe::Damaged;
            member.stored = member.stored.min(behind.saturating_sub(offset));
        }
        let what = what.map(|what| format!("'{}' cannot be read: {what}", excerpt(name)));
        let ends_early = || format!("'{}' has a byte 0 in its name: there it ends", excerpt(name));
        let what = what.or_else(|| name.contains(&0).then(ends_early));
        Ok((offset, Some(member), what))
    }

    /// Where the content begins behind the local header at byte `at`, if there is one: the name in there may be shorter
    /// than that in the directory.
    fn content_behind(&self, at: u64) -> Result<Option<u64>, Error> {
        match local::find_content(self.source, at, None) {
            Ok(content) => Ok(Some(content)),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => Ok(None),
            Err(error) => Err(Error::Read { offset: at, error }),
        }
    }

    /// Takes the next member, and tells the one before.
    fn push(&mut self, (at, member, what): Made) -> Result<(), Error> {
        if let Some(what) = what {
            self.damage(at, what)?;
        }
        let Some(member) = member else { return Ok(()) };
        let at = member.entry.header;
        let from = self.flush(at)?;
        self.gap(from, at, false)?;
        self.pending = Some(member);
        Ok(())
    }

    /// Tells the pending member, behind which something begins at byte `next`. Returns where it ends.
    fn flush(&mut self, next: u64) -> Result<u64, Error> {
        let Some(mut member) = self.pending.take() else { return Ok(0) };
        let at = member.entry.header;
        if member.least_end > next && member.recipe != Recipe::Damaged {
            let end = self.content_behind(at)?.and_then(|content| content.checked_add(member.stored));
            member.least_end = end.unwrap_or(member.least_end);
        }
        // Content that is there once but counted many times: bombs are made so.
        if member.least_end > next {
            let path = excerpt(&member.entry.path);
            let what = format!("'{path}' cannot be read: it would reach over what begins at byte {next}");
            self.damage(at, what)?;
            member.recipe = Recipe::Damaged;
            member.stored = member.stored.min(next.saturating_sub(at));
        }
        let end = if self.scan.is_some() && member.recipe != Recipe::Damaged {
            local::find_content(self.source, at, None).map_or(member.least_end, |at| at.saturating_add(member.stored))
        } else {
            member.least_end
        };
        self.tell(member)?;
        Ok(end)
    }

    /// Tells the members in `from..to` that the directory does not tell, where it is damaged.
    fn gap(&mut self, mut from: u64, to: u64, is_end: bool) -> Result<(), Error> {
        if from >= to {
            return Ok(());
        }
        let Some(mut scan) = self.scan.take() else { return Ok(()) };
        // Without a directory that was said of all.
        let mut is_told = from == 0 && to == self.source.len();
        while let Some(found) = scan.next(from, to, is_end).map_err(at(from))? {
            match found {
                Found::Member { member, end, .. }
                    if member.size > i64::MAX as u64 || member.least_end > i64::MAX as u64 =>
                {
                    self.damage(member.entry.header, "a member is left out: it says that it is longer than can be")?;
                    from = end;
                }
                Found::Member { mut member, end, is_cut } => {
                    let at = member.entry.header;
                    let path = excerpt(&member.entry.path).to_string();
                    if is_cut {
                        member.stored = to.saturating_sub(member.least_end.saturating_sub(member.stored));
                        self.damage(at, format!("'{path}' goes on behind the end: the archive was cut"))?;
                    } else if let Some(what) = member.contradiction() {
                        self.damage(at, format!("'{path}' cannot be read: {what}"))?;
                        member.recipe = Recipe::Damaged;
                    } else if !is_told {
                        let what = format!("'{path}' and what follows up to byte {to} were found by local headers");
                        self.damage(at, what)?;
                    }
                    is_told = true;
                    self.tell(member)?;
                    from = end;
                }
                Found::LeftOut { at, next, what } => {
                    self.damage(at, format!("a member is left out: {what}"))?;
                    from = next;
                }
            }
        }
        self.scan = Some(scan);
        Ok(())
    }

    fn tell(&mut self, member: Member) -> Result<(), Error> {
        let Member { mut entry, size, stored, crc, recipe, .. } = member;
        entry.body = Body { offset: entry.header, ..Body::default() };
        let has_content = entry.kind == Kind::File || entry.kind == Kind::Symlink && entry.link.is_empty();
        if has_content && size > 0 {
            let (coder, is_new) = self.coders.get(recipe);
            if is_new
                && recipe != Recipe::Damaged
                && let Some(missing) = unreadable(recipe)
            {
                let path = excerpt(&entry.path).to_string();
                self.damage(entry.header, format!("'{path}' and its like cannot be read: {missing}"))?;
            }
            let offset = entry.header;
            entry.body.size = size;
            entry.body.pieces = Some(vec![Piece {
                hole: 0,
                length: size,
                offset,
                stored,
                coder: Some(coder),
                decoded: size,
                skip: 0,
                crc,
            }]);
        }
        self.count = self.count.saturating_add(1);
        (self.receive)(Event::Entry(entry)).map_err(Error::Receiver)
    }

    fn damage(&mut self, offset: u64, what: impl Into<String>) -> Result<(), Error> {
        (self.receive)(Event::Damage(Damage { offset, what: what.into() })).map_err(Error::Receiver)
    }
}

/// Where the next header says that its member lies, of those that are headers.
fn next_header<'w>(walk: &'w mut Walk<'_>, directory: &Directory) -> Result<Option<Central<'w>>, Error> {
    walk.next_header().map_err(at(directory.range.start))
}

/// What is to be added to offsets: some programs that put something before an archive count from the file's start, but
/// not so in its end record. `first`: the offset of the first header.
pub(super) fn shift(source: &dyn Source, directory: &Directory, first: Option<u64>) -> io::Result<i64> {
    let is_header = |offset: Option<u64>| {
        let mut signature = [0; 4];
        let offset = offset.filter(|offset| offset.saturating_add(4) <= source.len());
        let read = offset.map(|offset| source.read_exact_at(&mut signature, offset)).transpose();
        read.map(|read| read.is_some() && signature == local::SIGNATURE)
    };
    let shifted = first.and_then(|first| first.checked_add_signed(directory.shift));
    if directory.shift != 0 && !is_header(shifted)? && is_header(first)? {
        return Ok(0);
    }
    Ok(directory.shift)
}

/// Where a header of the directory says that its member begins, before it is shifted.
pub(super) fn offset(header: &Central<'_>, directory: &Directory) -> Option<u64> {
    let (offset, volume) = if let Some(plain) = header.plain_offset() {
        plain
    } else {
        let extra = header.extra();
        (header.numbers(&extra)?.offset, header.volume(&extra))
    };
    directory.volumes.start(volume)?.checked_add(offset)
}

fn at(offset: u64) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::Read { offset, error }
}
