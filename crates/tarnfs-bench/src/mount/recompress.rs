//! One archive in several compressions, and how quick single files of each are.

use std::path::{Path, PathBuf};

use super::mounters::{Kind, Mounter};
use super::one::{FIGURES, Subject};
use super::{about, bars};
use crate::measure::{Input, Job, Kept, Reason};
use crate::report::{Cell, Table};
use crate::{Error, Report, Scratch, Settings};

/// A compression, its program, the options, and what a file of it is called.
const COMPRESSIONS: [(&str, &str, &[&str], &str); 5] = [
    ("gzip", "gzip", &["-c"], "tar.gz"),
    ("pixz", "pixz", &[], "tpxz"),
    ("xz", "xz", &["-c", "-T1"], "tar.xz"),
    ("bzip2", "bzip2", &["-c"], "tar.bz2"),
    ("zstd", "zstd", &["-c"], "tar.zst"),
];

/// Compresses each archive in all of these, and compares those who mount them.
pub fn recompress(
    settings: &Settings,
    archives: &[PathBuf],
    scratch: &Scratch,
    mut report: Report,
) -> Result<Report, Error> {
    let caches = about(settings, &mut report);
    report.note("Each archive was decompressed, and compressed again with the usual options of each program.");
    let mounters = Mounter::all(settings, &mut report, &[Kind::Other]);
    let all_mounters: Vec<&Mounter> = mounters.iter().collect();
    let mut columns = vec![("size", "MiB"), ("compressing", "s")];
    columns.extend(FIGURES);
    let mut table = Table::new(
        "recompress",
        "One archive in several compressions",
        &["archive", "compression", "program"],
        &columns,
    );
    for (number, archive) in archives.iter().enumerate() {
        let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
        settings.say(&format!("{name}: decompressing it"));
        let plain = scratch.join("plain.tar");
        let mut job = settings
            .tarnfs
            .job(["cat".as_ref(), "--index-file=:memory:".as_ref(), archive.as_os_str()], settings.limit);
        job.variable("XDG_CACHE_HOME", scratch.path());
        run(job.keep(Kept::File(plain.clone())), &name, settings)?
            .map_err(|reason| Error::Other(format!("{name}: {reason}")))?;
        let mut all = Vec::new();
        for (compression, program, options, end) in COMPRESSIONS {
            let Some(program) = settings.program(&mut report, program) else { continue };
            settings.say(&format!("{name}: {compression}"));
            let packed = scratch.join(format!("again.{end}"));
            let mut job = Job::new(&program.path, options, settings.limit);
            job.input(Input::File(plain.clone())).keep(Kept::File(packed.clone()));
            let time = match run(&mut job, &name, settings)? {
                Ok(seconds) => Cell::from(seconds),
                Err(reason) => {
                    table.row([name.as_str(), compression], [Cell::none(), Cell::missing(reason.to_string())]);
                    continue;
                }
            };
            let size = packed.metadata().map_err(Error::at(&packed))?.len() as f64 / f64::from(1 << 20);
            let subject = Subject::new(&packed, all_mounters[0], scratch, settings)?;
            let measured = subject.measure(&all_mounters, caches, scratch, settings, &mut report)?;
            for (mounter, figures) in mounters.iter().zip(measured) {
                let cells = [Cell::from(size), time.clone()].into_iter().chain(figures.cells());
                table.row([name.as_str(), compression, &mounter.program.name], cells);
                all.push((compression.to_owned(), mounter.program.name.clone(), figures));
            }
            scratch.remove(&packed)?;
        }
        scratch.remove(&plain)?;
        // Two archives of one name have plots of their own.
        let name = if number == 0 { file_name(archive) } else { format!("{}-{}", file_name(archive), number + 1) };
        bars(&mut report, "compression", &name, &all);
    }
    report.table(table);
    Ok(report)
}

/// A name for the file of a plot.
fn file_name(archive: &Path) -> String {
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    name.chars()
        .take(100)
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '_' })
        .collect()
}

fn run(job: &mut Job, name: &str, settings: &Settings) -> Result<Result<f64, Reason>, Error> {
    match job.run(&settings.cancel) {
        Ok(done) => Ok(Ok(done.usage.real)),
        Err(Reason::Cancelled) => Err(Error::Cancelled),
        Err(reason) => {
            settings.say(&format!("{name}: {reason}"));
            Ok(Err(reason))
        }
    }
}
