//! What an index may be: how long it takes to make one of very many entries and to ask it, and what memory that needs.
//!
//! `entries.rs` has the entries, which are made (`names.rs`) or come from an archive (`archive.rs`), in a file. Each
//! of `backends/` makes its index of them, and asks it, in a process of its own (`step.rs`).

mod archive;
mod backends;
mod entries;
mod names;
mod step;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::machine::free_memory;
use crate::measure::{Kept, Reason, Summary, in_turn};
use crate::report::{Axis, Cell, Plot, Point, Series, Style, Table, escaped};
use crate::seeded::Seeded;
use crate::{Error, Report, Scratch, Settings};

use backends::Backend;
use entries::{Reader, Sum, Writer};
use step::{CHOSEN, Chosen, ENTRIES, INDEX, Made, Read};

pub use step::step;

/// The columns of the table.
const FIGURES: [(&str, &str); 9] = [
    ("making", "s"),
    ("memory, making", "MiB"),
    ("size", "MiB"),
    ("opening", "ms"),
    ("memory, open", "MiB"),
    ("name", "µs"),
    ("path", "µs"),
    ("folder", "µs"),
    ("all", "s"),
];

/// Those that are drawn over the number of entries: of the file, the title, the figure.
const PLOTS: [(&str, &str, usize); 9] = [
    ("making", "Time of making an index", 0),
    ("making-memory", "Peak memory of making an index", 1),
    ("size", "Size of an index", 2),
    ("opening", "Time of opening an index", 3),
    ("opening-memory", "Peak memory until an index is open", 4),
    ("name", "Time of looking up a name in a folder", 5),
    ("path", "Time of looking up a path", 6),
    ("folder", "Time of listing a folder", 7),
    ("all", "Time of listing all folders", 8),
];

const MIB: f64 = 1_048_576.0;

/// Names, and as many paths, that are looked up, and folders that are listed.
const LOOKUPS: usize = 1000;
const FOLDERS: usize = 200;

/// Bytes on the disk for each entry: the list of them, the index, and what is sorted beside it. (With made names the
/// largest index, ratarmount's, has 420.)
const ROOM: u64 = 1200;

/// Bytes that are needed for so many entries.
fn room(entries: u64) -> u64 {
    entries.saturating_mul(ROOM).saturating_add(64 << 20)
}

/// Points of a line that shows memory over time.
const POINTS: usize = 60;

/// What is compared.
#[derive(Debug, Clone)]
pub struct Options {
    /// Archives whose entries are taken.
    pub archives: Vec<PathBuf>,
    /// How many entries are made, once for each, where there are no archives.
    pub entries: Vec<u64>,
}

/// A set of entries.
struct Subject {
    /// "made", or the name of the archive.
    name: String,
    sum: Sum,
}

/// What one kind of index gives.
#[derive(Default)]
struct Runs {
    made: Vec<Made>,
    read: Vec<Read>,
    /// Why there is no more, of making and of reading.
    failed: [Option<String>; 2],
}

/// Compares kinds of index.
pub fn compare(settings: &Settings, options: &Options) -> Result<Report, Error> {
    let most = if options.archives.is_empty() { options.entries.iter().copied().max().unwrap_or(0) } else { 0 };
    for archive in &options.archives {
        archive.metadata().map_err(Error::opening(archive))?;
    }
    let scratch = settings.scratch(room(most))?;
    let mut report = settings.report("Indexes", &scratch);
    about(&mut report);
    let labels = ["entries of", "entries", "index"];
    let mut table = Table::new("index", "Indexes", &labels, &FIGURES);
    let mut all: Vec<(u64, Backend, Vec<Cell>)> = Vec::new();
    let mut times = Vec::new();
    let made = options.entries.iter().map(|&entries| (None, entries));
    let given = options.archives.iter().map(|archive| (Some(archive.as_path()), 0));
    let sets: Vec<(Option<&Path>, u64)> = if options.archives.is_empty() { made.collect() } else { given.collect() };
    for (number, (archive, entries)) in sets.into_iter().enumerate() {
        let subject = match archive {
            Some(archive) => from_archive(archive, &scratch, settings, &mut report)?,
            None => made_entries(entries, &scratch, settings)?,
        };
        let measured = measure(&subject, &scratch, settings)?;
        for (backend, runs) in Backend::ALL.into_iter().zip(&measured) {
            let cells = cells(backend, runs);
            table.row([subject.name.as_str(), &subject.sum.count.to_string(), backend.name()], cells.clone());
            all.push((subject.sum.count, backend, cells));
        }
        note_on_time(&subject, &measured, &mut report);
        times.push(over_time(number, &subject, &measured));
        scratch.remove(&scratch.join(ENTRIES))?;
    }
    report.table(table);
    for plot in times {
        report.plot(plot);
    }
    for (name, title, figure) in PLOTS {
        let unit = Axis::logarithmic(FIGURES[figure].1);
        let mut plot = Plot::new(name, title, Axis::logarithmic("entries"), unit);
        for backend in Backend::ALL {
            let of = all.iter().filter(|(_, of, _)| *of == backend);
            let points = of.filter_map(|(entries, _, cells)| Point::of(*entries as f64, cells.get(figure)?));
            plot.series(Series::new(backend.name(), Style::Line).with(points));
        }
        report.plot(plot);
    }
    Ok(report)
}

fn about(report: &mut Report) {
    report.note(
        "All indexes are made of the same entries, in the order of an archive, each by a process of its own, and are on \
         the disk when it ends. \"The entries alone\" is what it takes to read these. Memory is the most that the process \
         had at once; that of an empty one is in the row of the entries alone.",
    );
    report.note(format!(
        "tarnfs: the index that it writes and reads, with the checks of each row. ratarmount: its schema 0.7, as tarnfs \
         writes it, asked with plain statements. One table of paths: SQLite, with the whole path as key. MessagePack and \
         JSON: maps of folders and names, written whole and read whole. SQLite is {}.",
        tarnfs_index::sqlite_version()
    ));
    report.note(format!(
        "Another process opens the index, which is in the page cache, looks up {LOOKUPS} names in folders that are known \
         and {LOOKUPS} paths from the root on, and lists {FOLDERS} folders, all by chance, and then all there are; the \
         times are means. tarnfs looks up each name of a path, as the kernel asks for it, and the others the path at \
         once. All must show the same entries.",
    ));
}

/// Makes so many entries.
fn made_entries(entries: u64, scratch: &Scratch, settings: &Settings) -> Result<Subject, Error> {
    settings.say(&format!("making {entries} entries"));
    let path = scratch.join(ENTRIES);
    let written = Writer::new(&path).and_then(|mut writer| {
        names::make(entries, 1, &settings.cancel, &mut |entry| writer.add(entry))?;
        writer.finish()
    });
    written.map_err(Error::at(&path))?;
    Ok(Subject { name: "made".to_owned(), sum: look_through(scratch, settings)? })
}

/// Takes those of an archive.
fn from_archive(archive: &Path, scratch: &Scratch, settings: &Settings, report: &mut Report) -> Result<Subject, Error> {
    let name = escaped(&archive.file_name().unwrap_or_default().to_string_lossy());
    settings.say(&format!("{name}: listing it"));
    let path = scratch.join(ENTRIES);
    let mut writer = Writer::new(&path).map_err(Error::at(&path))?;
    let taken = archive::entries(archive, scratch, settings, &mut |entry| writer.add(entry))?;
    if writer.finish().map_err(Error::at(&path))? == 0 {
        return Err(Error::Other(format!("{name}: there is nothing in it")));
    }
    report.note(format!(
        "{name}: names, sizes, times and owners of what shows, in its order; all else is as in a tar that is not \
         compressed."
    ));
    if taken.others > 0 {
        report.note(format!("{name}: {} devices, fifos and sockets were taken as empty files.", taken.others));
    }
    if taken.left_out > 0 {
        report.note(format!("{name}: {} entries with very long paths were left out.", taken.left_out));
    }
    Ok(Subject { name, sum: look_through(scratch, settings)? })
}

/// Some of many that go by, each as likely as any other.
struct Sample<T> {
    most: usize,
    seen: u64,
    some: Vec<T>,
}

impl<T> Sample<T> {
    fn new(most: usize) -> Self {
        Self { most, seen: 0, some: Vec::new() }
    }

    fn see(&mut self, one: impl FnOnce() -> T, chance: &mut Seeded) {
        self.seen += 1;
        if self.some.len() < self.most {
            self.some.push(one());
        } else if let Ok(place) = usize::try_from(chance.below(self.seen))
            && let Some(old) = self.some.get_mut(place)
        {
            *old = one();
        }
    }
}

/// Goes through the entries, and chooses what is looked up.
fn look_through(scratch: &Scratch, settings: &Settings) -> Result<Sum, Error> {
    let path = scratch.join(ENTRIES);
    let mut chance = Seeded::new(7);
    let (mut sum, mut paths, mut folders) = (Sum::default(), Sample::new(2 * LOOKUPS), Sample::new(FOLDERS));
    for entry in Reader::new(&path).map_err(Error::at(&path))? {
        let entry = entry.map_err(Error::at(&path))?;
        sum.add(&entry.path, entry.kind, entry.body.size);
        paths.see(|| entry.path.clone(), &mut chance);
        if entry.kind == tarnfs_format::Kind::Folder {
            folders.see(|| entry.path.clone(), &mut chance);
        }
        if sum.count.is_multiple_of(4096) {
            settings.check()?;
        }
    }
    let mut names = chance.some_of(&paths.some, usize::MAX);
    let paths = names.split_off(names.len() / 2);
    let folders = if folders.some.is_empty() { vec![Vec::new()] } else { folders.some };
    Chosen { names, paths, folders }.write(&scratch.join(CHOSEN))?;
    Ok(sum)
}

/// All kinds of index, in turn.
fn measure(subject: &Subject, scratch: &Scratch, settings: &Settings) -> Result<Vec<Runs>, Error> {
    let mut all: Vec<Runs> = Backend::ALL.iter().map(|_| Runs::default()).collect();
    for (run, which) in in_turn(all.len(), settings.runs) {
        settings.check()?;
        let (backend, runs) = (Backend::ALL[which], &mut all[which]);
        if runs.failed.iter().any(Option::is_some) {
            continue;
        }
        let (name, kind, count) = (&subject.name, backend.name(), subject.sum.count);
        settings.say(&format!("{name}, {count} entries: run {} of {}, {kind}", run + 1, settings.runs));
        runs.failed = match once(backend, subject, scratch, settings, runs) {
            Ok(()) => [None, None],
            Err((_, Reason::Cancelled)) => return Err(Error::Cancelled),
            Err((0, reason)) => [Some(reason.to_string()), None],
            Err((_, reason)) => [None, Some(reason.to_string())],
        };
        // What is half is of no use to anybody.
        scratch.remove(&scratch.join(INDEX))?;
    }
    Ok(all)
}

/// Makes one, and reads it. The error says which of both fails.
fn once(
    backend: Backend,
    subject: &Subject,
    scratch: &Scratch,
    settings: &Settings,
    runs: &mut Runs,
) -> Result<(), (usize, Reason)> {
    let needed = backend.memory().saturating_mul(subject.sum.count);
    if let Some(free) = free_memory().filter(|&free| free < needed) {
        let what = format!("it needs about {} MiB of memory, and {} MiB are free", needed >> 20, free >> 20);
        return Err((0, Reason::Failed(what)));
    }
    runs.made.push(in_process("make", backend, scratch, settings).map_err(|reason| (0, reason))?);
    if backend == Backend::Nothing {
        return Ok(());
    }
    let read: Read = in_process("read", backend, scratch, settings).map_err(|reason| (1, reason))?;
    let Sum { count, hash } = subject.sum;
    if (read.count, read.hash) != (count, hash) {
        let what = format!("shows {} entries, which are not the {count} that went in", read.count);
        return Err((1, Reason::Failed(what)));
    }
    runs.read.push(read);
    Ok(())
}

/// Has a new process do it.
fn in_process<T: DeserializeOwned>(
    what: &str,
    backend: Backend,
    scratch: &Scratch,
    settings: &Settings,
) -> Result<T, Reason> {
    let words = ["bench", "__index", what, backend.word()];
    let words = words.into_iter().map(std::ffi::OsStr::new).chain([scratch.path().as_os_str()]);
    let mut job = settings.tarnfs.job(words, settings.limit);
    // What is sorted beside an index is in the scratch folder, too.
    job.variable("TMPDIR", scratch.path()).variable("SQLITE_TMPDIR", scratch.path());
    let done = job.keep(Kept::All).run(&settings.cancel)?;
    serde_json::from_slice(&done.output).map_err(|error| Reason::Failed(format!("says something else: {error}")))
}

/// The figures of one kind of index.
fn cells(backend: Backend, runs: &Runs) -> Vec<Cell> {
    let [making, reading] = &runs.failed;
    let of = |values: Vec<f64>, failed: Option<&String>| match failed {
        Some(reason) => Cell::missing(reason.clone()),
        None => Summary::new(&values).map_or_else(Cell::none, Cell::Figure),
    };
    let made = |value: fn(&Made) -> f64| of(runs.made.iter().map(value).collect(), making.as_ref());
    let read =
        |value: fn(&Read) -> f64| of(runs.read.iter().map(value).collect(), making.as_ref().or(reading.as_ref()));
    let size = if backend == Backend::Nothing { Cell::none() } else { made(|made| made.size as f64 / MIB) };
    vec![
        made(|made| made.seconds),
        made(|made| made.peak as f64 / MIB),
        size,
        read(|read| read.opening * 1e3),
        read(|read| read.memory as f64 / MIB),
        read(|read| read.lookup * 1e6),
        read(|read| read.find * 1e6),
        read(|read| read.list * 1e6),
        read(|read| read.all),
    ]
}

/// Says what the sidecar of ratarmount is made from.
fn note_on_time(subject: &Subject, measured: &[Runs], report: &mut Report) {
    for (backend, runs) in Backend::ALL.iter().zip(measured) {
        let before: Vec<f64> = runs.made.iter().filter_map(|made| made.before).collect();
        if let Some(before) = Summary::new(&before) {
            report.note(format!(
                "{}, {} entries: what {} has is written from an index of tarnfs in memory, which takes {:.3} s of the time.",
                subject.name,
                subject.sum.count,
                backend.name(),
                before.median()
            ));
        }
    }
}

/// Memory over time while indexes are made: of each kind the run of median length.
fn over_time(number: usize, subject: &Subject, measured: &[Runs]) -> Plot {
    let count = subject.sum.count;
    let name = format!("memory-over-time-{}", number + 1);
    let title = format!("Memory while an index is made: {}, {count} entries", subject.name);
    let mut plot = Plot::new(&name, &title, Axis::linear("seconds"), Axis::linear("MiB"));
    for (backend, runs) in Backend::ALL.iter().zip(measured) {
        let mut by_time: Vec<&Made> = runs.made.iter().collect();
        by_time.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        let Some(made) = by_time.get((by_time.len().max(1) - 1) / 2) else { continue };
        plot.series(Series::new(backend.name(), Style::Line).with(thinned(&made.samples)));
    }
    plot
}

/// So many points that a line shows; of neighbours the highest.
fn thinned(samples: &[(f64, u64)]) -> Vec<Point> {
    let highest = |part: &[(f64, u64)]| part.iter().copied().max_by_key(|(_, bytes)| *bytes);
    let parts = samples.chunks(samples.len().div_ceil(POINTS).max(1));
    parts.filter_map(highest).map(|(seconds, bytes)| Point::new(seconds, bytes as f64 / MIB)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_from_all_over() {
        let (mut chance, mut some) = (Seeded::new(3), Sample::new(100));
        (0..10_000_u32).for_each(|number| some.see(|| number, &mut chance));
        let sum: u32 = some.some.iter().sum();
        assert!(some.some.len() == 100 && (300_000..700_000).contains(&sum), "{sum}");
        let points =
            thinned(&(0..1000).map(|number| (f64::from(number), u64::from(number == 500))).collect::<Vec<_>>());
        assert!(points.len() <= POINTS && points.contains(&Point::new(500.0, 1.0 / MIB)));
        assert!(thinned(&[]).is_empty());
    }
}
