//! The grid of ratarmount's benchmarks: more and more folders of 1000 files, of several sizes, in several compressions.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::mounters::{Kind, Mounter};
use super::one::{FIGURES, FIND, FIRST_MOUNT, Figures, Subject};
use super::{PLOTS, about, unit_of};
use crate::measure::{Input, Job, Kept, Reason};
use crate::report::{Axis, Plot, Point, Series, Style, Table};
use crate::seeded::Seeded;
use crate::tar::{COMPRESSIONS, Compression};
use crate::{Error, Report, Scratch, Settings};

/// Bytes of a file, and what that is called.
const SIZES: [(u64, &str); 3] = [(0, "0 B"), (64, "64 B"), (64 << 10, "64 KiB")];

/// Files of a folder.
const FILES: u64 = 1000;

/// How many more folders the next archive has.
const GROWS: u64 = 4;

/// One program on one archive.
struct Measured {
    size: &'static str,
    compression: &'static str,
    folders: u64,
    program: String,
    figures: Figures,
}

/// Compares programs on archives that grow until each of them takes longer than the limit for one thing, until making
/// one takes that long, or until there is no room for the next, or it would have more than so many folders.
pub fn grid(settings: &Settings, most_folders: u64) -> Result<Report, Error> {
    let scratch = settings.scratch(256 << 20)?;
    let mut report = settings.report("Mounting archives that grow", &scratch);
    let caches = about(settings, &mut report);
    let mounters = Mounter::all(settings, &mut report, &[Kind::Other]);
    let mut all: Vec<Measured> = Vec::new();
    for (bytes, size) in SIZES {
        for compression in &COMPRESSIONS {
            let Some(command) = compression.command(settings, &mut report) else { continue };
            let mut left: Vec<&Mounter> = mounters.iter().collect();
            let (mut folders, mut is_last) = (1, false);
            while !left.is_empty() && !is_last && folders <= most_folders {
                let (name, start) = (format!("{size} × {folders}000, {}", compression.name), Instant::now());
                let room = folders * FILES * (512 + bytes.next_multiple_of(512)) * 3 + (64 << 20);
                if !scratch.has_room(room) {
                    report.note(format!("{name}: there is no room for it on the disk."));
                    break;
                }
                settings.say(&format!("making {name}"));
                let archive = make(folders, bytes, compression, &command, &scratch, settings)?;
                if start.elapsed() > settings.limit {
                    report.note(format!("{name}: making it took longer than the limit, so this is the last one."));
                    is_last = true;
                }
                let Some(own) = mounters.first() else { break };
                let subject = match Subject::new(&archive, own, &scratch, settings) {
                    Ok(subject) => subject,
                    Err(Error::Cancelled) => return Err(Error::Cancelled),
                    Err(error) => {
                        report.note(format!("{name}: {error}"));
                        break;
                    }
                };
                let measured = subject.measure(&left, caches, &scratch, settings, &mut report)?;
                let goes_on: Vec<bool> = measured
                    .iter()
                    .map(|it| it.cell(FIRST_MOUNT).median().is_some() && it.cell(FIND).median().is_some())
                    .collect();
                for (mounter, figures) in left.iter().zip(measured) {
                    let program = mounter.program.name.clone();
                    all.push(Measured { size, compression: compression.name, folders, program, figures });
                }
                let mut goes_on = goes_on.into_iter();
                left.retain(|_| goes_on.next().unwrap_or(false));
                scratch.remove(&archive)?;
                folders = folders.saturating_mul(GROWS);
            }
        }
    }
    let labels = ["files of", "compression", "folders", "program"];
    let mut table = Table::new("grid", "Folders of 1000 files", &labels, &FIGURES);
    for it in &all {
        table.row([it.size, it.compression, &it.folders.to_string(), &it.program], it.figures.cells());
    }
    report.table(table);
    lines(&mut report, &all);
    Ok(report)
}

/// For each figure and compression a plot over the number of files.
fn lines(report: &mut Report, all: &[Measured]) {
    for compression in &COMPRESSIONS {
        for (name, title, figure) in PLOTS {
            let unit = Axis::logarithmic(unit_of(name));
            let (name, title) =
                (format!("{name}-{}", compression.name), format!("{title}, compression: {}", compression.name));
            let mut plot = Plot::new(&name, &title, Axis::logarithmic("files"), unit);
            let mut series: Vec<(&str, &str)> = Vec::new();
            for it in all.iter().filter(|it| it.compression == compression.name) {
                if !series.contains(&(&it.program, it.size)) {
                    series.push((&it.program, it.size));
                }
            }
            for (program, size) in series {
                let of = all
                    .iter()
                    .filter(|it| it.compression == compression.name && it.program == program && it.size == size);
                let points = of.filter_map(|it| Point::of((it.folders * FILES) as f64, &it.figures.cell(figure)));
                plot.series(Series::new(&format!("{program}, {size}"), Style::Line).with(points));
            }
            report.plot(plot);
        }
    }
}

/// Makes an archive of so many folders.
fn make(
    folders: u64,
    bytes: u64,
    compression: &Compression,
    command: &str,
    scratch: &Scratch,
    settings: &Settings,
) -> Result<PathBuf, Error> {
    let plain = scratch.join("grid.tar");
    write(&plain, folders, bytes, settings).map_err(Error::at(&plain))?;
    if command.is_empty() {
        return Ok(plain);
    }
    let packed = scratch.join(format!("grid{}", compression.suffix));
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    // To make an archive is no matter of the limit, but it must end some day.
    let mut job =
        Job::new(Path::new(program), words.chain(["-c"]), settings.limit.max(std::time::Duration::from_secs(3600)));
    let done = job.input(Input::File(plain.clone())).keep(Kept::File(packed.clone())).run(&settings.cancel);
    done.map_err(|reason| match reason {
        Reason::Cancelled => Error::Cancelled,
        _ => Error::Other(format!("{command}: {reason}")),
    })?;
    scratch.remove(&plain)?;
    Ok(packed)
}

/// Writes a tar of folders of 1000 files, the contents of which are text.
fn write(path: &Path, folders: u64, bytes: u64, settings: &Settings) -> io::Result<()> {
    const BLOCK: usize = 512;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut chance = Seeded::new(folders ^ bytes);
    // One text for all would compress too well, and one for each file takes long to make.
    let texts: Vec<Vec<u8>> = (0..64).map(|_| chance.text(bytes as usize)).collect();
    for folder in 0..folders {
        settings.cancel.check()?;
        out.write_all(&header(&format!("folder{folder:06}/"), 0, b'5'))?;
        for file in 0..FILES {
            out.write_all(&header(&format!("folder{folder:06}/file{file:04}.txt"), bytes, b'0'))?;
            if bytes > 0 {
                let mut text = texts[chance.below(64) as usize].clone();
                // No two files are the same.
                let number = chance.number().to_string();
                let length = number.len().min(text.len());
                text[..length].copy_from_slice(&number.as_bytes()[..length]);
                text.resize(text.len().next_multiple_of(BLOCK), 0);
                out.write_all(&text)?;
            }
        }
    }
    out.write_all(&[0; 2 * BLOCK])?;
    out.into_inner()?.sync_all()
}

/// A header as POSIX 1003.1-1988 has it (ustar).
fn header(name: &str, size: u64, kind: u8) -> [u8; 512] {
    let mut header = [0; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, if kind == b'5' { "0000755" } else { "0000644" });
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, "14000000000");
    // The sum is made with blanks in its place.
    put(148, "        ");
    put(257, "ustar");
    put(263, "00");
    header[156] = kind;
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}
