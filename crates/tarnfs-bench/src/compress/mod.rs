//! What compressors make of the files of a folder: as records of 128 KiB, as a file system that compresses stores
//! them, and as an archive in which any file can be read by itself.
//!
//! Compressors are libraries in this process. One writer takes the files in their order. Where two work at once, one
//! of them begins with the last file, and they end where they meet; each has an archive of its own.

mod archives;
mod files;
mod lzjb;
mod packers;
mod records;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tarnfs_source::{Budget, Cancel};

use crate::measure::{Reason, in_turn, own_memory};
use crate::report::{Axis, Cell, Plot, Point, Series, Style, Table};
use crate::{Error, Report, Settings};

use archives::Archives;
use files::{Files, Loaded};
use records::Records;

/// What is compressed, and how.
#[derive(Debug)]
pub struct Options {
    /// The folder.
    pub folder: PathBuf,
    /// Bytes of its files that are taken.
    pub size: u64,
    /// Names of compressors; all if there are none.
    pub only: Vec<String>,
}

/// Writers that work at once.
const WRITERS: [usize; 2] = [1, 2];
/// Files that are read from what was written.
const READ: usize = 16;

/// What one run gave.
struct Run {
    seconds: f64,
    packed: u64,
}

/// A way to store files.
trait Form {
    /// What it compresses with: "xz", 6.
    fn candidates(&self) -> Vec<(String, i32)>;

    /// Compresses the files with one of the candidates and so many writers.
    fn run(&mut self, candidate: usize, writers: usize, watch: &Watch<'_>) -> Result<Run, Reason>;

    /// How long it takes to read each of these files from what was written, in seconds.
    fn read(&mut self, candidate: usize, numbers: &[usize], watch: &Watch<'_>) -> Result<Vec<f64>, Reason>;
}

/// How long something may take.
struct Watch<'a> {
    start: Instant,
    limit: Duration,
    cancel: &'a Cancel,
}

impl Watch<'_> {
    fn check(&self) -> Result<(), Reason> {
        if self.cancel.is_cancelled() {
            Err(Reason::Cancelled)
        } else if self.start.elapsed() > self.limit {
            Err(Reason::TooLong(self.limit))
        } else {
            Ok(())
        }
    }
}

/// The files that are left to be written, from both ends.
struct Left(Mutex<(usize, usize)>);

impl Left {
    fn new(count: usize) -> Self {
        Self(Mutex::new((0, count)))
    }

    /// The next one for a writer: the second one takes them from the end.
    fn next(&self, writer: usize) -> Option<usize> {
        let mut left = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (from, to) = &mut *left;
        if from >= to {
            return None;
        }
        if writer == 0 {
            *from += 1;
            Some(*from - 1)
        } else {
            *to -= 1;
            Some(*to)
        }
    }
}

/// Does `work` for each writer at once, and says how long all of them took, and how much they wrote.
fn at_once(writers: usize, work: impl Fn(usize) -> Result<u64, Reason> + Sync) -> Result<Run, Reason> {
    let start = Instant::now();
    let packed: Result<u64, Reason> = std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = (1..writers).map(|writer| scope.spawn(move || work(writer))).collect();
        let own = work(0);
        let ended = || Reason::Failed("a thread has ended unexpectedly".to_owned());
        others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(ended()))).chain([own]).sum()
    });
    Ok(Run { seconds: start.elapsed().as_secs_f64(), packed: packed? })
}

/// The comparison.
pub fn compress(settings: &Settings, options: &Options) -> Result<Report, Error> {
    files::check(&options.folder)?;
    let known = || packers::METHODS.iter().map(|(_, name, _)| *name);
    if let Some(wrong) = options.only.iter().find(|only| !known().any(|name| name == only.as_str())) {
        let all: Vec<_> = known().collect();
        return Err(Error::Usage(format!("{wrong}: there is no such compressor; give {}", all.join(", "))));
    }
    let most = Budget::memory_of_this_machine().map_or(u64::MAX, |all| all / 2);
    if options.size > most {
        let what = "the files are held in memory, of which half may be used";
        return Err(Error::Usage(format!("--size {}: {what}: {most} bytes", options.size)));
    }
    settings.say("reading the files");
    let files = files::load(&options.folder, options.size, &settings.cancel)?;
    // Two archives, each as long as all of it at worst.
    let scratch = settings.scratch(2 * files.loaded() + (64 << 20))?;
    let mut report = settings.report("Compressors", &scratch);
    note(&mut report, options, &files);
    let is_wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let forms: Vec<(&str, &str, Box<dyn Form + '_>)> = vec![
        ("records", "As records of 128 KiB", Box::new(Records::new(&files.all, is_wanted))),
        (
            "archive",
            "As an archive that is read at any place",
            Box::new(Archives::new(&files.all, &scratch, is_wanted)),
        ),
    ];
    for (name, title, mut form) in forms {
        measured(settings, &files, (name, title), &mut *form, &mut report)?;
    }
    report.note(format!("The most memory that this process has had was {} MB.", own_memory() / 1_000_000));
    Ok(report)
}

fn note(report: &mut Report, options: &Options, files: &Files) {
    let (loaded, count) = (files.loaded(), files.all.len());
    let folder = options.folder.to_string_lossy();
    if loaded < files.bytes {
        report.note(format!(
            "{count} of the {} files in {folder} were compressed, {loaded} bytes of {}, chosen from all over it.",
            files.found, files.bytes
        ));
    } else {
        report.note(format!("All {count} files in {folder} were compressed, {loaded} bytes."));
    }
    if files.unreadable > 0 {
        report.note(format!("{} files or folders could not be read.", files.unreadable));
    }
    report.note(
        "Files were in memory, and compressors are libraries in this process. A second writer begins with the last \
         file, and both end where they meet; each writes an archive of its own.",
    );
    report.note(
        "Ratio is bytes by bytes compressed, efficiency is ratio by time. The mean leaves out the tenth at each end of \
         the runs. A file: from opening it to its last byte, the mean of 16 files from all over the list, with tarnfs's \
         own reading and an empty cache for an archive.",
    );
}

/// Numbers of files from all over the list.
fn chosen(count: usize) -> Vec<usize> {
    let parts = READ.min(count);
    let mut numbers: Vec<_> = (0..parts).map(|part| part * count / parts).collect();
    // Not in order: neighbours would help each other.
    let middle = numbers.len() / 2;
    numbers.rotate_left(middle);
    numbers.chunks_mut(2).for_each(<[usize]>::reverse);
    numbers
}

fn measured(
    settings: &Settings,
    files: &Files,
    (name, title): (&str, &str),
    form: &mut dyn Form,
    report: &mut Report,
) -> Result<(), Error> {
    let candidates = form.candidates();
    let numbers = chosen(files.all.len());
    let watch = || Watch { start: Instant::now(), limit: settings.limit, cancel: &settings.cancel };
    // What each candidate gave with each number of writers, and how quickly files were read.
    let mut runs: Vec<[Vec<Result<Run, Reason>>; 2]> = candidates.iter().map(|_| Default::default()).collect();
    let mut read: Vec<Option<Result<Vec<f64>, Reason>>> = candidates.iter().map(|_| None).collect();
    for (run, number) in in_turn(candidates.len(), settings.runs) {
        let (compressor, level) = &candidates[number];
        settings.say(&format!("{title}: run {} of {}: {compressor} {level}", run + 1, settings.runs));
        for (place, writers) in WRITERS.into_iter().enumerate() {
            settings.check()?;
            // What took too long once is not tried again.
            if runs[number].iter().flatten().any(Result::is_err) {
                continue;
            }
            let done = form.run(number, writers, &watch());
            if place == 0 && run == 0 && done.is_ok() {
                read[number] = Some(form.read(number, &numbers, &watch()));
            }
            runs[number][place].push(done);
        }
        settings.check()?;
    }
    let mut table = Table::new(
        name,
        title,
        &["compressor", "level", "writers"],
        &[
            ("time", "s"),
            ("mean", "s"),
            ("ratio", ""),
            ("efficiency", "1/s"),
            ("mean efficiency", "1/s"),
            ("file", "ms"),
        ],
    );
    let all = files.loaded() as f64;
    let ratio = |run: &Run| all / run.packed.max(1) as f64;
    let names = candidates.iter().map(|(name, level)| format!("{name} {level}"));
    let heading = format!("{title}: ratio by time");
    let mut plot = Plot::new(
        &format!("{name}-efficiency"),
        &heading,
        Axis::names("compressor and level", names),
        Axis::logarithmic("efficiency (1/s)"),
    );
    for (place, writers) in WRITERS.into_iter().enumerate() {
        let line = if writers == 1 { "one writer".to_owned() } else { format!("{writers} writers at once") };
        let mut series = Series::new(&line, Style::Line);
        for (number, (compressor, level)) in candidates.iter().enumerate() {
            let of_runs = &runs[number][place];
            let figures = |value: &dyn Fn(&Run) -> f64| -> Vec<Result<f64, Reason>> {
                of_runs.iter().map(|run| run.as_ref().map(value).map_err(Clone::clone)).collect()
            };
            let mean = |cell: &Cell| match cell {
                Cell::Figure(summary) => Cell::from(summary.trimmed_mean(0.1)),
                other @ Cell::Missing(_) => other.clone(),
            };
            let seconds = Cell::of(&figures(&|run| run.seconds));
            let efficiency = Cell::of(&figures(&|run| ratio(run) / run.seconds));
            series = series.with(Point::of(number as f64, &efficiency));
            let file = match &read[number] {
                // The mean, without a spread: that of files of all lengths says nothing of the compressor.
                Some(Ok(seconds)) => {
                    Cell::from(seconds.iter().map(|seconds| seconds * 1e3).sum::<f64>() / seconds.len() as f64)
                }
                Some(Err(reason)) => Cell::missing(reason.to_string()),
                None => Cell::none(),
            };
            let cells = [mean(&seconds), Cell::of(&figures(&ratio)), efficiency.clone(), mean(&efficiency), file];
            let words = [compressor.clone(), level.to_string(), writers.to_string()];
            table.row(words, std::iter::once(seconds).chain(cells));
        }
        plot.series(series);
    }
    report.table(table);
    report.plot(plot);
    Ok(())
}

/// The bytes of a file, as [`Loaded`] has them, or what is wrong with those that were read.
fn same(file: &Loaded, read: &[u8]) -> Result<(), Reason> {
    if file.bytes == read {
        return Ok(());
    }
    let name = String::from_utf8_lossy(&file.path).into_owned();
    Err(Reason::Failed(format!("{name}: other bytes were read than written")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_writers_meet() {
        let left = Left::new(5);
        let taken: Vec<_> = [0, 1, 1, 0, 0, 1, 0].into_iter().map(|writer| left.next(writer)).collect();
        assert_eq!(taken, [Some(0), Some(4), Some(3), Some(1), Some(2), None, None]);
        let mut numbers = chosen(100);
        assert_ne!(numbers[0], 0);
        numbers.sort_unstable();
        assert_eq!((numbers.len(), numbers[0], numbers[15]), (16, 0, 93));
        assert_eq!((chosen(1), chosen(0)), (vec![0], vec![]));
    }
}
