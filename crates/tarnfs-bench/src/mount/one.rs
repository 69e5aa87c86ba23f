//! One archive, and what each program takes for it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::mounted::Mounted;
use super::mounters::Mounter;
use crate::measure::{Caches, Done, Input, Kept, Program, Reason, Summary, in_turn};
use crate::report::{Cell, escaped};
use crate::seeded::Seeded;
use crate::{Error, Report, Scratch, Settings};

/// The columns of a table.
pub(super) const FIGURES: [(&str, &str); 11] = [
    ("first mount", "s"),
    ("next mount", "s"),
    ("find", "s"),
    ("files", ""),
    ("cat", "s"),
    ("cat, fastest", "s"),
    ("cat, slowest", "s"),
    ("1000 files", "s"),
    ("largest file", "MB/s"),
    ("peak memory", "MiB"),
    ("index", "MiB"),
];

pub(super) const FIRST_MOUNT: usize = 0;
pub(super) const NEXT_MOUNT: usize = 1;
pub(super) const FIND: usize = 2;
const FILES: usize = 3;
pub(super) const CAT: usize = 4;
const FASTEST: usize = 5;
const SLOWEST: usize = 6;
pub(super) const MANY: usize = 7;
const LARGEST: usize = 8;
pub(super) const MEMORY: usize = 9;
const INDEX: usize = 10;

const MIB: f64 = 1_048_576.0;

/// Files that are read one by one.
const FEW: usize = 10;

/// Files that one call reads.
const MANY_FILES: usize = 1000;

/// An archive, and which of its files are read.
#[derive(Debug)]
pub(super) struct Subject {
    archive: PathBuf,
    name: String,
    few: Vec<Vec<u8>>,
    many: Vec<Vec<u8>>,
    largest: Option<(Vec<u8>, u64)>,
    /// What the programs that stand here need.
    tools: Tools,
}

#[derive(Debug)]
struct Tools {
    find: Program,
    cat: Program,
    xargs: Program,
    md5sum: Program,
}

impl Tools {
    fn new() -> Result<Self, Error> {
        let tool = |name: &str| {
            Program::find(name, &[]).ok_or_else(|| Error::Other(format!("{name} is not installed, and is needed here")))
        };
        Ok(Self { find: tool("find")?, cat: tool("cat")?, xargs: tool("xargs")?, md5sum: tool("md5sum")? })
    }
}

/// What one program takes for one archive, run by run.
#[derive(Debug, Default)]
pub(super) struct Figures {
    runs: [Vec<Result<f64, Reason>>; FIGURES.len()],
    /// Files that it returns otherwise than tarnfs.
    wrong: Option<String>,
}

impl Figures {
    fn add(&mut self, figure: usize, value: Result<f64, Reason>) {
        self.runs[figure].push(value);
    }

    pub(super) fn cell(&self, figure: usize) -> Cell {
        match (&self.wrong, figure) {
            // Whoever returns other bytes is not quick, but wrong.
            (Some(wrong), CAT | FASTEST | SLOWEST | MANY | LARGEST) => Cell::missing(wrong.clone()),
            _ => Cell::of(&self.runs[figure]),
        }
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        (0..FIGURES.len()).map(|figure| self.cell(figure)).collect()
    }
}

impl Subject {
    /// Lists `archive` with the first program, and chooses files.
    pub(super) fn new(archive: &Path, own: &Mounter, scratch: &Scratch, settings: &Settings) -> Result<Self, Error> {
        let archive = archive.canonicalize().map_err(Error::opening(archive))?;
        let name = escaped(&archive.file_name().unwrap_or_default().to_string_lossy());
        settings.say(&format!("{name}: choosing files"));
        let tools = Tools::new()?;
        let keeps = scratch.folder("keeps")?;
        let failed = |reason: Reason| Error::of_archive(&name, reason);
        let mounted = Mounted::new(own, &archive, &keeps, scratch, settings)?.map_err(failed)?;
        let mut job = tools.find.job(find_words(mounted.at(), "%s %P\\0"), settings.limit);
        let listed = job.keep(Kept::All).run(&settings.cancel).map_err(failed)?.output;
        mounted.unmount();
        let file = |line: &[u8]| {
            let blank = line.iter().position(|&byte| byte == b' ')?;
            let size: u64 = std::str::from_utf8(&line[..blank]).ok()?.parse().ok()?;
            Some((line[blank + 1..].to_vec(), size))
        };
        let mut files: Vec<(Vec<u8>, u64)> = listed.split(|&byte| byte == 0).filter_map(file).collect();
        if files.is_empty() {
            return Err(Error::Other(format!("{name}: there is no file in it to read")));
        }
        // Each program may list them in another order; the choice is the same.
        files.sort();
        let largest = files.iter().max_by_key(|(_, size)| size).filter(|(_, size)| *size > 0).cloned();
        let names: Vec<Vec<u8>> = files.into_iter().map(|(name, _)| name).collect();
        let mut chance = Seeded::new(names.len() as u64);
        let (few, many) = (chance.some_of(&names, FEW), chance.some_of(&names, MANY_FILES));
        Ok(Self { archive, name, few, many, largest, tools })
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Measures programs in turn, the first of which is what the others are compared with.
    pub(super) fn measure(
        &self,
        mounters: &[&Mounter],
        caches: Caches,
        scratch: &Scratch,
        settings: &Settings,
        report: &mut Report,
    ) -> Result<Vec<Figures>, Error> {
        let mut all: Vec<Figures> = mounters.iter().map(|_| Figures::default()).collect();
        let mut sums: Vec<Option<Vec<u8>>> = vec![None; mounters.len()];
        for (run, which) in in_turn(mounters.len(), settings.runs) {
            settings.check()?;
            let program = &mounters[which].program.name;
            settings.say(&format!("{}: run {} of {}, {program}", self.name, run + 1, settings.runs));
            // Who has failed or took too long does so again.
            if all[which].runs[FIRST_MOUNT].iter().any(Result::is_err) {
                continue;
            }
            let seen = self.run(mounters[which], &mut all[which], caches, scratch, settings, report)?;
            if sums[which].is_none() {
                sums[which] = seen;
            }
        }
        let own = mounters.iter().position(|mounter| mounter.is_own());
        let right = own.and_then(|at| sums[at].as_deref()).map(sums_of);
        for ((figures, sums), mounter) in all.iter_mut().zip(sums).zip(mounters) {
            if let (Some(right), Some(sums), false) = (&right, sums, mounter.is_own()) {
                // Who has read fewer files was too slow, which is told elsewhere.
                let differs = |(name, sum): &(Vec<u8>, Vec<u8>)| right.get(name).is_some_and(|right| right != sum);
                let number = sums_of(&sums).into_iter().filter(differs).count();
                figures.wrong = (number > 0).then(|| format!("{number} of its files differ from those of tarnfs"));
            }
        }
        Ok(all)
    }

    /// One run of one program. Returns the sums of files.
    fn run(
        &self,
        mounter: &Mounter,
        figures: &mut Figures,
        caches: Caches,
        scratch: &Scratch,
        settings: &Settings,
        report: &mut Report,
    ) -> Result<Option<Vec<u8>>, Error> {
        let program = &mounter.program.name;
        let keeps = scratch.folder("keeps")?;
        let mut peaks = Vec::new();
        let mut unmount = |mounted: Mounted, peaks: &mut Vec<f64>| {
            peaks.extend(mounted.peak_memory());
            if let Some(what) = mounted.unmount() {
                report.note(format!("{}: {program} {what}.", self.name));
            }
        };
        caches.drop([&self.archive]);
        let mounted = match Mounted::new(mounter, &self.archive, &keeps, scratch, settings)? {
            Ok(mounted) => mounted,
            Err(Reason::Cancelled) => return Err(Error::Cancelled),
            Err(reason) => {
                figures.add(FIRST_MOUNT, Err(reason));
                return Ok(None);
            }
        };
        figures.add(FIRST_MOUNT, Ok(mounted.seconds));
        unmount(mounted, &mut peaks);
        figures.add(INDEX, Ok(size_of(&keeps) as f64 / MIB));
        let again = Mounted::new(mounter, &self.archive, &keeps, scratch, settings)?;
        let mounted = match again {
            Ok(mounted) => mounted,
            Err(reason) => {
                figures.add(NEXT_MOUNT, Err(reason));
                return Ok(None);
            }
        };
        figures.add(NEXT_MOUNT, Ok(mounted.seconds));
        let mut sums = self.read(&mounted, figures, settings)?;
        unmount(mounted, &mut peaks);
        if let Some((largest, size)) = &self.largest
            && figures.runs[MANY].iter().all(Result::is_ok)
        {
            // What it has decoded before does not count: a file is mostly read once.
            match Mounted::new(mounter, &self.archive, &keeps, scratch, settings)? {
                Err(reason) => figures.add(LARGEST, Err(reason)),
                Ok(mounted) => {
                    let read = self.tools.cat.job([path(mounted.at(), largest)], settings.limit).run(&settings.cancel);
                    figures.add(LARGEST, not_cancelled(read)?.map(|done| *size as f64 / 1e6 / done.usage.real));
                    if figures.runs[LARGEST].len() == 1
                        && let Some(sums) = &mut sums
                    {
                        let mut job = self.tools.md5sum.job(["-z".into(), path(mounted.at(), largest)], settings.limit);
                        let sum = not_cancelled(job.keep(Kept::All).run(&settings.cancel))?;
                        sums.extend(sum.map(|done| done.output).unwrap_or_default());
                    }
                    unmount(mounted, &mut peaks);
                }
            }
        }
        if let Some(peak) = peaks.into_iter().max_by(f64::total_cmp) {
            figures.add(MEMORY, Ok(peak / MIB));
        }
        Ok(sums)
    }

    /// Finds and reads what is mounted, as long as nothing fails.
    fn read(&self, mounted: &Mounted, figures: &mut Figures, settings: &Settings) -> Result<Option<Vec<u8>>, Error> {
        let at = mounted.at();
        // Before anything has been listed, so that no name is known yet.
        let mut each: Vec<Result<f64, Reason>> = Vec::new();
        for file in &self.few {
            let read = self.tools.cat.job([path(at, file)], settings.limit).run(&settings.cancel);
            each.push(not_cancelled(read)?.map(|done| done.usage.real));
            if each.last().is_some_and(Result::is_err) {
                break;
            }
        }
        let times: Vec<f64> = each.iter().filter_map(|time| time.as_ref().ok().copied()).collect();
        if let Some(Err(reason)) = each.pop() {
            for figure in [CAT, FASTEST, SLOWEST] {
                figures.add(figure, Err(reason.clone()));
            }
            return Ok(None);
        }
        if let Some(times) = Summary::new(&times) {
            figures.add(CAT, Ok(times.median()));
            figures.add(FASTEST, Ok(times.min()));
            figures.add(SLOWEST, Ok(times.max()));
        }
        let mut job = self.tools.find.job(find_words(at, "."), settings.limit);
        let found = not_cancelled(job.keep(Kept::All).run(&settings.cancel))?;
        figures.add(FILES, found.as_ref().map(|done| done.output.len() as f64).map_err(Clone::clone));
        let goes_on = found.is_ok();
        figures.add(FIND, found.map(|done| done.usage.real));
        if !goes_on {
            return Ok(None);
        }
        // All mounts are at the same place, so what is said has the same names.
        let names: Vec<u8> = self.many.iter().flat_map(|name| [path(at, name).as_bytes(), b"\0"].concat()).collect();
        let mut job = self.tools.xargs.job(["-0", "md5sum", "-z"], settings.limit);
        job.input(Input::Bytes(names)).keep(Kept::All);
        match not_cancelled(job.run(&settings.cancel))? {
            Ok(done) => {
                figures.add(MANY, Ok(done.usage.real));
                Ok(Some(done.output))
            }
            Err(reason) => {
                figures.add(MANY, Err(reason));
                Ok(None)
            }
        }
    }
}

/// What `md5sum -z` says: the sum of each file, 32 letters before its name.
fn sums_of(said: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    const SUM: usize = 32;
    let lines = said.split(|&byte| byte == 0).filter(|line| line.len() > SUM);
    lines.map(|line| (line[SUM..].to_vec(), line[..SUM].to_vec())).collect()
}

/// `Err` only if all is to end.
fn not_cancelled(done: Result<Done, Reason>) -> Result<Result<Done, Reason>, Error> {
    match done {
        Err(Reason::Cancelled) => Err(Error::Cancelled),
        other => Ok(other),
    }
}

/// The arguments of find that print this of each file.
fn find_words<'a>(at: &'a Path, print: &'a str) -> [&'a OsStr; 5] {
    [at.as_os_str(), "-type".as_ref(), "f".as_ref(), "-printf".as_ref(), print.as_ref()]
}

fn path(at: &Path, name: &[u8]) -> std::ffi::OsString {
    at.join(OsStr::from_bytes(name)).into_os_string()
}

/// Bytes of all files in a folder, and in those in it.
fn size_of(folder: &Path) -> u64 {
    let mut size = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => size += found.len(),
                Err(_) => {}
            }
        }
    }
    size
}
