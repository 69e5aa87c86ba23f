//! How much faster tarnfs is with more threads: making an index, and decoding, of each archive.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::measure::{Job, Kept, Reason, in_turn};
use crate::report::{Axis, Cell, Plot, Point, Series, Style, Table, escaped};
use crate::{Error, Report, Scratch, Settings};

/// What is done with so many threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Index,
    Decode,
}

impl Work {
    const ALL: [Self; 2] = [Self::Index, Self::Decode];

    fn name(self) -> &'static str {
        match self {
            Self::Index => "indexing",
            Self::Decode => "decoding",
        }
    }
}

/// An archive.
struct Subject {
    path: PathBuf,
    name: String,
    /// What it is compressed with, as its name says.
    codec: String,
    /// Its size without compression.
    decoded: u64,
}

impl Subject {
    fn new(path: &Path, settings: &Settings, scratch: &Scratch) -> Result<Self, Error> {
        let path = path.canonicalize().map_err(Error::opening(path))?;
        let name = escaped(&path.file_name().unwrap_or_default().to_string_lossy());
        settings.say(&format!("{name}: decoding it once"));
        let keeps = scratch.folder("keeps")?;
        let job = call(Work::Index, &path, 0, &keeps, settings);
        let failed = |reason: Reason| match reason {
            Reason::Cancelled => Error::Cancelled,
            _ => Error::Other(format!("{name}: {reason}")),
        };
        job.run(&settings.cancel).map_err(|reason| Error::of_archive(&name, reason))?;
        // The program's path and its words are those of the script, which needs no quotes for them. The script ends as
        // the program, not as `wc`: a part would be counted as the whole.
        let script = "exec 3>&1; code=$({ { \"$0\" \"$@\"; echo $? >&4; } | wc -c >&3; } 4>&1); exit \"$code\"";
        let script = ["-c", script].map(OsString::from);
        let program = settings.tarnfs.path.clone().into_os_string();
        let all = script.into_iter().chain([program]).chain(words(Work::Decode, &path, 0, &keeps));
        let mut job = Job::new(Path::new("/bin/sh"), all, settings.limit);
        job.variable("XDG_CACHE_HOME", &keeps);
        let counted = job.keep(Kept::All).run(&settings.cancel).map_err(failed)?.output;
        let decoded = String::from_utf8_lossy(&counted).trim().parse().unwrap_or(0);
        let codec = name.rsplit_once('.').map_or(String::new(), |(_, end)| end.to_owned());
        Ok(Self { path, name, codec, decoded })
    }
}

fn words(work: Work, archive: &Path, threads: usize, keeps: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = match work {
        Work::Index => vec!["index".into(), "-c".into()],
        Work::Decode => vec!["cat".into(), "--binary".into()],
    };
    let mut folders = OsString::from("--index-folders=");
    folders.push(keeps);
    words.extend([format!("-P{threads}").into(), "--cache-size=0".into(), folders, archive.into()]);
    words
}

fn call(work: Work, archive: &Path, threads: usize, keeps: &Path, settings: &Settings) -> Job {
    let mut job = settings.tarnfs.job(words(work, archive, threads, keeps), settings.limit);
    job.variable("XDG_CACHE_HOME", keeps);
    job
}

/// 1, 2, 4, ... and all cores.
fn numbers_of_threads() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut numbers: Vec<usize> =
        std::iter::successors(Some(1), |number| Some(number * 2)).take_while(|&n| n < cores).collect();
    numbers.push(cores);
    numbers
}

/// Of a report.
pub const TITLE: &str = "Speed with several threads";

/// Measures these archives.
pub fn compare(
    settings: &Settings,
    archives: &[PathBuf],
    scratch: &Scratch,
    mut report: Report,
) -> Result<Report, Error> {
    report.note(
        "Indexing: tarnfs index -c. Decoding: tarnfs cat of the whole archive, with its index; of an archive that is \
         not compressed that is copying. The archive is in the page cache. Speed is that of decoded bytes; the \
         speed-up is the median time of one thread over that of several.",
    );
    let threads = numbers_of_threads();
    if threads.len() == 1 {
        report.note("There is one core, so there is nothing to be gained.");
    }
    let columns = [("size", "MiB"), ("time", "s"), ("CPU", "%"), ("speed", "MB/s"), ("speed-up", "")];
    let mut table = Table::new("scale", "Several threads", &["archive", "work", "threads"], &columns);
    let over_threads = Axis::linear("threads");
    let mut plot = Plot::new("threads", "Speed-up over one thread", over_threads, Axis::linear("times as fast"));
    let mut by_size: Vec<(String, Point)> = Vec::new();
    for archive in archives {
        let subject = Subject::new(archive, settings, scratch)?;
        for work in Work::ALL {
            let times = measure(&subject, work, &threads, scratch, settings)?;
            let one = times[0].0.median();
            let mut line = Series::new(&format!("{}, {}", subject.name, work.name()), Style::Line);
            for (&number, (time, processor)) in threads.iter().zip(&times) {
                let up = one.zip(time.median()).map(|(one, time)| one / time);
                let size = subject.decoded as f64;
                let speed = time.median().map_or_else(Cell::none, |time| (size / 1e6 / time).into());
                let gain = up.map_or_else(Cell::none, Cell::from);
                let cells = [(size / f64::from(1 << 20)).into(), time.clone(), processor.clone(), speed, gain];
                table.row([subject.name.as_str(), work.name(), &number.to_string()], cells);
                line = line.with(up.map(|up| Point::new(number as f64, up)));
                if number > 1 && number == threads[threads.len() - 1] {
                    let place = up.map(|up| Point::new(size / f64::from(1 << 20), up));
                    by_size.extend(place.map(|point| (format!("{}, {}", subject.codec, work.name()), point)));
                }
            }
            plot.series(line);
        }
    }
    report.table(table);
    report.plot(plot);
    report.plot(over_size(&by_size, threads[threads.len() - 1]));
    Ok(report)
}

/// Times and processor time for each number of threads, which take turns.
fn measure(
    subject: &Subject,
    work: Work,
    threads: &[usize],
    scratch: &Scratch,
    settings: &Settings,
) -> Result<Vec<(Cell, Cell)>, Error> {
    let mut runs: Vec<Vec<Result<(f64, f64), Reason>>> = vec![Vec::new(); threads.len()];
    let keeps = scratch.join("keeps");
    if work == Work::Decode {
        // The index of the last run of the other work is there; without one the first run would be another work.
        let index = call(Work::Index, &subject.path, 0, &keeps, settings);
        index.run(&settings.cancel).map_err(|reason| match reason {
            Reason::Cancelled => Error::Cancelled,
            _ => Error::Other(format!("{}: {reason}", subject.name)),
        })?;
    }
    for (run, which) in in_turn(threads.len(), settings.runs) {
        settings.check()?;
        if runs[which].iter().any(Result::is_err) {
            continue;
        }
        let (number, name) = (threads[which], work.name());
        settings.say(&format!("{}: {name}, run {} of {}, {number} threads", subject.name, run + 1, settings.runs));
        let job = call(work, &subject.path, number, &keeps, settings);
        match job.run(&settings.cancel) {
            Ok(done) => runs[which].push(Ok((done.usage.real, done.usage.processor()))),
            Err(Reason::Cancelled) => return Err(Error::Cancelled),
            Err(reason) => runs[which].push(Err(reason)),
        }
    }
    let cell = |runs: &[Result<(f64, f64), Reason>], of: fn(&(f64, f64)) -> f64| {
        Cell::of(&runs.iter().map(|run| run.as_ref().map(of).map_err(Clone::clone)).collect::<Vec<_>>())
    };
    Ok(runs.iter().map(|runs| (cell(runs, |run| run.0), cell(runs, |run| run.1))).collect())
}

/// The speed-up of all cores over the size of archives, a line for each codec.
fn over_size(points: &[(String, Point)], cores: usize) -> Plot {
    let title = format!("Speed-up of {cores} threads over one");
    let mut plot = Plot::new("size", &title, Axis::logarithmic("MiB, decoded"), Axis::linear("times as fast"));
    let mut names: Vec<&str> = points.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let of = points.iter().filter(|(other, _)| other == name).map(|(_, point)| *point);
        plot.series(Series::new(name, Style::Line).with(of));
    }
    plot
}
