//! Programs that write and read tars: create, list, extract and compare, in memory and on a disk, plain and compressed.

mod programs;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::measure::{Caches, Kept, Program, Reason, Summary, Usage, in_turn};
use crate::report::{Axis, Cell, Plot, Point, Series, Style, Table};
use crate::{Error, Report, Scratch, Settings};

use programs::{Archiver, Operation, PLAIN};
pub(crate) use programs::{COMPRESSIONS, Compression};

/// The columns of the table.
const FIGURES: [(&str, &str); 7] = [
    ("best", "s"),
    ("real", "s"),
    ("user", "s"),
    ("system", "s"),
    ("CPU", "%"),
    ("speed", "KB/s"),
    ("peak memory", "MiB"),
];

/// What is measured on one medium.
struct Bench<'a> {
    medium: &'static str,
    scratch: &'a Scratch,
    archivers: &'a [Archiver],
    /// What goes in, and how much that is.
    tree: PathBuf,
    size: Size,
    caches: Caches,
    settings: &'a Settings,
}

/// How much is in a folder.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    files: usize,
    bytes: u64,
    /// What it takes on a disk, holes filled.
    blocks: u64,
}

/// What several runs of a program gave, or why there is nothing.
type Runs = Result<Vec<Usage>, String>;

/// A row: where, how, what, by whom, and what it took.
struct Row {
    medium: &'static str,
    compression: &'static str,
    operation: Operation,
    program: String,
    speed: Cell,
}

/// Compares programs on these files and folders.
pub fn compare(settings: &Settings, paths: &[PathBuf]) -> Result<Report, Error> {
    let size = paths.iter().try_fold(Size::default(), |size, path| add_size(path, size, &|| settings.check()))?;
    if size.files == 0 {
        return Err(Error::Usage("there are no files in that to be archived".to_owned()));
    }
    // The files, a tar, one that is compressed, another one that a program writes, and what is extracted.
    let room = size.blocks.saturating_mul(5).saturating_add(64 << 20);
    let disk = settings.scratch(room)?;
    let memory = Scratch::in_memory(room);
    let mut report = settings.report("Writing and reading tars", &disk);
    let caches = Caches::new(settings);
    report.note(caches.line());
    if caches != Caches::AllDrop {
        report.note("The files that go in stay in the page cache: on the disk, create and compare are not cold.");
    }
    let megabytes = size.bytes as f64 / f64::from(1 << 20);
    report.note(format!("What goes in: {} files, {megabytes:.1} MiB.", size.files));
    report.note(
        "Speed is the size of the files over the best time. On the disk each run is cold, and it \
         ends when all is written (syncfs). All read the same archive, which GNU tar has written; what each program \
         writes and extracts is compared with the files by GNU tar. The compressor alone has a tar that is there already.",
    );
    let mut archivers = Archiver::all(settings, &mut report);
    archivers.push(Archiver::alone(settings));
    let mut table = Table::new("tar", "Tars", &["medium", "compression", "operation", "program"], &FIGURES);
    let mut rows = Vec::new();
    let copier = Program::find("cp", &[]).ok_or_else(|| Error::Other("cp is not installed".to_owned()))?;
    for (medium, scratch) in [("memory", memory.as_ref()), ("disk", Some(&disk))] {
        let Some(scratch) = scratch else {
            report.note("There is too little memory for files (/dev/shm), so nothing was measured in it.");
            continue;
        };
        settings.say(&format!("copying files: {medium}"));
        let tree = scratch.folder("tree")?;
        let words = ["-a", "--"].map(OsString::from).into_iter().chain(paths.iter().map(OsString::from));
        let copied = copier.job(words.chain([OsString::from(&tree)]), settings.limit).run(&settings.cancel);
        copied.map_err(|reason| stopped(&reason, "the files cannot be copied"))?;
        let bench = Bench { medium, scratch, archivers: &archivers, tree, size, caches, settings };
        for compression in &COMPRESSIONS {
            bench.with(compression, &mut table, &mut rows, &mut report)?;
        }
        scratch.remove(&scratch.join(PLAIN))?;
        scratch.remove(&bench.tree)?;
    }
    report.table(table);
    plots(&mut report, &rows);
    Ok(report)
}

fn stopped(reason: &Reason, what: &str) -> Error {
    match reason {
        Reason::Cancelled => Error::Cancelled,
        _ => Error::Other(format!("{what}: {reason}")),
    }
}

/// Adds what is at `path`, and in it.
fn add_size(path: &Path, mut size: Size, check: &dyn Fn() -> Result<(), Error>) -> Result<Size, Error> {
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        check()?;
        let found = fs::symlink_metadata(&path).map_err(Error::at(&path))?;
        // A tar has holes as zeros.
        let length = if found.is_file() { found.len() } else { 0 };
        let taken = length.max(found.blocks().saturating_mul(512)).saturating_add(4096);
        size.blocks = size.blocks.saturating_add(taken);
        if found.is_dir() {
            for entry in fs::read_dir(&path).map_err(Error::at(&path))? {
                left.push(entry.map_err(Error::at(&path))?.path());
            }
        } else if found.is_file() {
            size.files += 1;
            size.bytes = size.bytes.saturating_add(found.len());
        }
    }
    Ok(size)
}

impl Bench<'_> {
    /// All operations of all programs with one compression.
    fn with(
        &self,
        compression: &'static Compression,
        table: &mut Table,
        rows: &mut Vec<Row>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let Some(command) = compression.command(self.settings, report) else { return Ok(()) };
        let archive = self.scratch.join(format!("archive{}", compression.suffix));
        let gnu = self.archivers.iter().find(|archiver| archiver.is_gnu());
        let gnu = gnu.ok_or_else(|| Error::Other("GNU tar is not installed, and is needed here".to_owned()))?;
        let keeps = self.scratch.folder("keeps")?;
        let folders = [self.tree.as_path(), self.tree.as_path(), keeps.as_path()];
        let written =
            gnu.call(Operation::Create, &command, &archive, folders, self.settings).run(&self.settings.cancel);
        written.map_err(|reason| stopped(&reason, "GNU tar cannot write the archive"))?;
        for operation in Operation::ALL {
            let all = self.operation(operation, compression, &command, &archive, gnu)?;
            for (archiver, runs) in self.archivers.iter().zip(all) {
                let cells = self.cells(&runs);
                let speed = cells[5].clone();
                table.row([self.medium, compression.name, operation.name(), &archiver.name], cells);
                let (medium, compression) = (self.medium, compression.name);
                rows.push(Row { medium, compression, operation, program: archiver.name.clone(), speed });
            }
        }
        // What is not compressed is there for the compressors.
        if command.is_empty() { Ok(()) } else { self.scratch.remove(&archive) }
    }

    fn cells(&self, runs: &Runs) -> Vec<Cell> {
        let runs = match runs {
            Ok(runs) => runs,
            Err(reason) => return vec![Cell::missing(reason.clone()); FIGURES.len()],
        };
        let of = |value: &dyn Fn(&Usage) -> f64| Summary::new(&runs.iter().map(value).collect::<Vec<_>>());
        let real = of(&|usage| usage.real);
        let peaks: Vec<f64> =
            runs.iter().filter_map(|usage| usage.peak_memory).map(|bytes| bytes as f64 / f64::from(1 << 20)).collect();
        let peak = Summary::new(&peaks)
            .map_or_else(|| Cell::missing("not more than tarnfs bench itself has had"), Cell::Figure);
        let best = real.as_ref().map_or(f64::NAN, Summary::min);
        vec![
            best.into(),
            real.into(),
            of(&|usage| usage.user).into(),
            of(&|usage| usage.system).into(),
            of(&|usage| usage.processor()).into(),
            (self.size.bytes as f64 / 1024.0 / best).into(),
            peak,
        ]
    }

    /// One operation of all programs, in turn.
    fn operation(
        &self,
        operation: Operation,
        compression: &Compression,
        command: &str,
        archive: &Path,
        gnu: &Archiver,
    ) -> Result<Vec<Runs>, Error> {
        let lacks =
            |archiver: &Archiver| archiver.lacks(operation, command).map_or(Ok(Vec::new()), |why| Err(why.to_owned()));
        let mut all: Vec<Runs> = self.archivers.iter().map(lacks).collect();
        for (run, which) in in_turn(self.archivers.len(), self.settings.runs) {
            self.settings.check()?;
            let Ok(runs) = &mut all[which] else { continue };
            let (archiver, runs_in_all) = (&self.archivers[which], self.settings.runs);
            let (medium, kind, name) = (self.medium, compression.name, operation.name());
            self.settings.say(&format!(
                "{medium}, {kind}: {name}, run {} of {runs_in_all}, {}",
                run + 1,
                archiver.name
            ));
            match self.run(archiver, operation, compression, (command, archive), gnu, run == 0) {
                Ok(usage) => runs.push(usage),
                Err(Reason::Cancelled) => return Err(Error::Cancelled),
                Err(reason) => all[which] = Err(reason.to_string()),
            }
        }
        Ok(all)
    }

    /// One call. What the first one does is verified.
    fn run(
        &self,
        archiver: &Archiver,
        operation: Operation,
        compression: &Compression,
        (command, archive): (&str, &Path),
        gnu: &Archiver,
        is_first: bool,
    ) -> Result<Usage, Reason> {
        let failed = |error: Error| Reason::Failed(error.to_string());
        let (tree, cancel) = (self.tree.as_path(), &self.settings.cancel);
        let out = self.scratch.folder("out").map_err(failed)?;
        // An index that is there would be of use.
        let keeps = self.scratch.join(if archiver.begins_without_index() { "fresh" } else { "keeps" });
        let own = self.scratch.join(format!("own{}", compression.suffix));
        self.scratch.remove(&own).map_err(failed)?;
        if archiver.begins_without_index() {
            self.scratch.folder("fresh").map_err(failed)?;
        } else if operation != Operation::Create && is_first {
            // What an index is of use for needs one.
            archiver.call(Operation::List, command, archive, [tree, &out, &keeps], self.settings).run(cancel)?;
        }
        let target = if operation == Operation::Create { own.as_path() } else { archive };
        let mut job = archiver.call(operation, command, target, [tree, &out, &keeps], self.settings);
        if operation == Operation::List {
            job.keep(Kept::All);
        }
        if self.medium == "disk" {
            self.caches.drop([archive]);
        }
        let start = std::time::Instant::now();
        let mut done = job.run(cancel)?;
        if self.medium == "disk" && matches!(operation, Operation::Create | Operation::Extract) {
            let folder = File::open(self.scratch.path()).map_err(|error| Reason::Failed(error.to_string()))?;
            rustix::fs::syncfs(&folder).map_err(|error| Reason::Failed(error.to_string()))?;
            done.usage.real = start.elapsed().as_secs_f64();
        }
        let lines = done.output.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count();
        if operation == Operation::List && lines < self.size.files {
            return Err(Reason::Failed(format!("lists {lines} lines, and there are {} files", self.size.files)));
        }
        if is_first {
            let verify = |archive: &Path, folder: &Path| {
                let call = gnu.call(Operation::Compare, command, archive, [folder, &out, &keeps], self.settings);
                call.run(cancel).map_err(|reason| match reason {
                    Reason::Failed(words) | Reason::Exit { words, .. } => {
                        Reason::Failed(format!("GNU tar finds a difference: {words}"))
                    }
                    other => other,
                })
            };
            match operation {
                Operation::Create => verify(&own, tree).map(drop)?,
                Operation::Extract => verify(archive, &out).map(drop)?,
                Operation::List | Operation::Compare => {}
            }
        }
        self.scratch.remove(&own).map_err(failed)?;
        self.scratch.folder("out").map_err(failed)?;
        Ok(done.usage)
    }
}

/// A plot for each operation on each medium: the speed of programs with each compression.
fn plots(report: &mut Report, rows: &[Row]) {
    for medium in ["memory", "disk"] {
        for operation in Operation::ALL {
            let here: Vec<&Row> =
                rows.iter().filter(|row| row.medium == medium && row.operation == operation).collect();
            let names = COMPRESSIONS.iter().map(|compression| compression.name);
            let name = format!("{}-{medium}", operation.name());
            let title = format!("{}, in {medium}", operation.name()).replace("in disk", "on disk");
            let mut plot = Plot::new(&name, &title, Axis::names("compression", names), Axis::logarithmic("KB/s"));
            let mut programs: Vec<&str> = Vec::new();
            for row in &here {
                if !programs.contains(&row.program.as_str()) {
                    programs.push(&row.program);
                }
            }
            for program in programs {
                let points = here.iter().filter(|row| row.program == program).filter_map(|row| {
                    let at = COMPRESSIONS.iter().position(|compression| compression.name == row.compression)?;
                    Point::of(at as f64, &row.speed)
                });
                plot.series(Series::new(program, Style::Bars).with(points));
            }
            report.plot(plot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tar of them has zeros there, in memory or on the disk.
    #[test]
    fn holes_need_room() {
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("holes")).unwrap().set_len(400 << 20).unwrap();
        fs::write(folder.path().join("small"), "x").unwrap();
        let size = add_size(folder.path(), Size::default(), &|| Ok(())).unwrap();
        assert_eq!((size.files, size.bytes), (2, (400 << 20) + 1));
        assert!(size.blocks > 400 << 20, "{size:?}");
    }
}
