//! `tarnfs bench`: comparisons of programs, which the crate tarnfs-bench makes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tarnfs_bench::{Error, Report, Settings, compress, index, made, mount, scale, tar};
use tarnfs_source::Cancel;

use crate::args::{Bench, BenchCommand, BenchCompress, BenchMount, BenchScale, BenchTar, Measuring};
use crate::exit::{Code, Failure};
use crate::terminal;

/// Makes one of the comparisons.
pub(crate) fn run(arguments: &Bench) -> Result<Code, Failure> {
    match &arguments.what {
        BenchCommand::Mount(it) => report(&it.measuring, it.keep_caches, |settings| bench_mount(it, settings)),
        BenchCommand::Tar(it) => report(&it.measuring, it.keep_caches, |settings| bench_tar(it, settings)),
        BenchCommand::Scale(it) => report(&it.measuring, true, |settings| bench_scale(it, settings)),
        BenchCommand::Compress(it) => report(&it.measuring, true, |settings| bench_compress(it, settings)),
        BenchCommand::Index(it) => report(&it.measuring, true, |settings| {
            let options = index::Options { archives: it.archives.clone(), entries: it.entries.clone() };
            index::compare(settings, &options)
        }),
        BenchCommand::IndexStep { what, kind, folder } => step(what, kind, folder),
    }
}

/// One step of a comparison, in a process of its own: says what it takes to whoever has started it.
fn step(what: &str, kind: &str, folder: &Path) -> Result<Code, Failure> {
    let said = index::step(what, kind, folder).map_err(failure)?;
    io::stdout().write_all(said.as_bytes()).map_err(|error| terminal::output_failure(&error))?;
    Ok(Code::Success)
}

/// Bytes of all files that are there; what is not is told later.
fn size_of(paths: &[PathBuf]) -> u64 {
    paths.iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum()
}

/// Room for indexes and other small files.
const SOME_ROOM: u64 = 64 << 20;

/// Of what is decompressed, where nobody knows how much that is.
const RATIO: u64 = 8;

fn bench_mount(it: &BenchMount, settings: &Settings) -> Result<Report, Error> {
    if it.grid {
        return mount::grid(settings, it.most_folders);
    }
    let size = it.make.map_or_else(|| size_of(&it.archives), |bytes| bytes.saturating_mul(5));
    let room = if it.recompress { size.saturating_mul(RATIO) } else { size / 4 + it.make.map_or(0, |_| size) };
    let scratch = settings.scratch(room.saturating_add(SOME_ROOM))?;
    let mut report = settings.report("Mounting archives", &scratch);
    let archives: Vec<PathBuf> = match it.make {
        Some(bytes) if it.recompress => {
            made::archives(bytes, true, &scratch, settings, &mut report)?.into_iter().take(1).collect()
        }
        Some(bytes) => made::archives(bytes, false, &scratch, settings, &mut report)?,
        None => it.archives.clone(),
    };
    let compare = if it.recompress { mount::recompress } else { mount::compare };
    compare(settings, &archives, &scratch, report)
}

fn bench_tar(it: &BenchTar, settings: &Settings) -> Result<Report, Error> {
    let Some(bytes) = it.make else { return tar::compare(settings, &it.paths) };
    let scratch = settings.scratch(bytes.saturating_mul(2).saturating_add(SOME_ROOM))?;
    let made = made::tree(bytes, &scratch, settings)?;
    tar::compare(settings, &[made])
}

fn bench_scale(it: &BenchScale, settings: &Settings) -> Result<Report, Error> {
    let Some(bytes) = it.make else {
        let scratch = settings.scratch(size_of(&it.archives).saturating_add(SOME_ROOM))?;
        let report = settings.report(scale::TITLE, &scratch);
        return scale::compare(settings, &it.archives, &scratch, report);
    };
    let scratch = settings.scratch(bytes.saturating_mul(8).saturating_add(SOME_ROOM))?;
    let mut report = settings.report(scale::TITLE, &scratch);
    let mut archives = Vec::new();
    for bytes in [bytes / 4, bytes] {
        archives.extend(made::archives(bytes, true, &scratch, settings, &mut report)?);
    }
    scale::compare(settings, &archives, &scratch, report)
}

fn bench_compress(it: &BenchCompress, settings: &Settings) -> Result<Report, Error> {
    let compress = |folder: PathBuf| {
        compress::compress(settings, &compress::Options { folder, size: it.size, only: it.only.clone() })
    };
    let Some(bytes) = it.make else { return compress(it.directory.clone().unwrap_or_default()) };
    let scratch = settings.scratch(bytes.saturating_add(SOME_ROOM))?;
    compress(made::tree(bytes, &scratch, settings)?)
}

/// Prints what `compare` finds, and writes it into a folder.
fn report(
    measuring: &Measuring,
    keep_caches: bool,
    compare: impl FnOnce(&Settings) -> Result<Report, Error>,
) -> Result<Code, Failure> {
    let cancel = until_signalled()?;
    let program = measuring.program.clone().map_or_else(std::env::current_exe, Ok);
    let program = program.map_err(|error| Failure::new(Code::Failure, format!("where this program is: {error}")))?;
    // Before anything is measured: it would be lost otherwise.
    let out = measuring.out.as_deref().map(tarnfs_bench::report::Folder::new).transpose().map_err(failure)?;
    let mut settings = Settings::new(&program, cancel).map_err(failure)?;
    settings.peers.clone_from(&measuring.peers);
    settings.runs = measuring.runs;
    settings.limit = measuring.limit;
    settings.folder.clone_from(&measuring.folder);
    settings.keep_caches = keep_caches;
    settings.progress = Some(terminal::tell);
    let report = compare(&settings).map_err(failure)?;
    let text = if measuring.json {
        serde_json::to_string_pretty(&report.json()).unwrap_or_default() + "\n"
    } else {
        report.text()
    };
    // It is printed, too, where it cannot be written.
    let written = out.map_or(Ok(()), |out| out.write(&report));
    io::stdout().write_all(text.as_bytes()).map_err(|error| terminal::output_failure(&error))?;
    written.map_err(failure)?;
    Ok(Code::Success)
}

/// The flag that signals set. Nothing ends the process at once: mounts are taken away first, and scratch files.
fn until_signalled() -> Result<Cancel, Failure> {
    let came = Arc::new(AtomicBool::new(false));
    let cancel = Cancel::from(Arc::clone(&came));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&came))
            .map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
    }
    Ok(cancel)
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Cancelled => Failure::new(Code::Interrupted, "interrupted"),
        Error::Usage(what) => Failure::new(Code::Usage, what),
        Error::Archive { code, what } => Failure::new(Code::from_number(code), what),
        other => Failure::new(Code::Failure, other.to_string()),
    }
}
