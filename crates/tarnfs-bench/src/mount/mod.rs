//! Programs that mount archives: how long it takes to mount one, to find what is in it, and to read some of it.

mod grid;
mod mounted;
mod mounters;
mod one;
mod recompress;

use std::path::PathBuf;

use crate::measure::Caches;
use crate::report::{Axis, Plot, Point, Series, Style, Table};
use crate::{Error, Report, Scratch, Settings};

use mounters::{Kind, Mounter};
use one::{FIGURES, Figures, Subject};

pub use grid::grid;
pub use recompress::recompress;

/// Says in the report how all of this is measured. Returns what drops caches.
fn about(settings: &Settings, report: &mut Report) -> Caches {
    let caches = Caches::new(settings);
    report.note(caches.line());
    report.note(
        "First mount: no index, cold. Next mount: with what the first one kept. cat: one file of ten that are chosen \
         by chance, each by itself. 1000 files: as many by chance, as md5sum reads them. All programs get the same \
         files, and what they return is compared.",
    );
    caches
}

/// Compares all that mount these archives, which may lie in that scratch folder.
pub fn compare(
    settings: &Settings,
    archives: &[PathBuf],
    scratch: &Scratch,
    mut report: Report,
) -> Result<Report, Error> {
    let caches = about(settings, &mut report);
    let kinds = archives.iter().map(|archive| Kind::of(archive)).collect::<Result<Vec<_>, _>>()?;
    let mounters = Mounter::all(settings, &mut report, &kinds);
    let mut table = Table::new("mount", "Mounting, finding and reading", &["archive", "program"], &FIGURES);
    let mut all = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (archive, kind) in archives.iter().zip(kinds) {
        let fitting: Vec<&Mounter> = mounters.iter().filter(|mounter| mounter.fits(kind)).collect();
        let subject = Subject::new(archive, fitting[0], scratch, settings)?;
        let measured = subject.measure(&fitting, caches, scratch, settings, &mut report)?;
        let name = distinct(subject.name(), &names);
        for (mounter, figures) in fitting.iter().zip(measured) {
            table.row([&name, &mounter.program.name], figures.cells());
            all.push((name.clone(), mounter.program.name.clone(), figures));
        }
        names.push(name);
    }
    report.table(table);
    bars(&mut report, "archive", "", &all);
    Ok(report)
}

/// A name that none of `others` has: two archives in two folders may have one.
fn distinct(name: &str, others: &[String]) -> String {
    let numbered = (2..).map(|number| format!("{name} ({number})"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !others.contains(name)).unwrap_or_default()
}

/// The figures that one looks at first: of its file, its title, and which it is.
const PLOTS: [(&str, &str, usize); 6] = [
    ("first-mount", "Time of the first mount", one::FIRST_MOUNT),
    ("next-mount", "Time of the next mount", one::NEXT_MOUNT),
    ("find", "Time of find", one::FIND),
    ("cat", "Time of cat of one file by chance", one::CAT),
    ("many-files", "Time of 1000 files by chance", one::MANY),
    ("memory", "Peak memory", one::MEMORY),
];

fn unit_of(plot: &str) -> &'static str {
    if plot == "memory" { "MiB" } else { "seconds" }
}

/// A plot for each figure that one looks at first: bars of the programs for each archive.
fn bars(report: &mut Report, what: &str, of: &str, all: &[(String, String, Figures)]) {
    let mut archives: Vec<&str> = Vec::new();
    let mut programs: Vec<&str> = Vec::new();
    for (archive, program, _) in all {
        if !archives.contains(&archive.as_str()) {
            archives.push(archive);
        }
        if !programs.contains(&program.as_str()) {
            programs.push(program);
        }
    }
    for (name, title, figure) in PLOTS {
        let unit = unit_of(name);
        let (name, title) = match of {
            "" => (name.to_owned(), title.to_owned()),
            of => (format!("{name}-{of}"), format!("{title}: {of}")),
        };
        let mut plot = Plot::new(&name, &title, Axis::names(what, &archives), Axis::logarithmic(unit));
        for program in &programs {
            let points = all.iter().filter(|(_, of, _)| of == program).filter_map(|(archive, _, figures)| {
                let at = archives.iter().position(|name| name == archive)?;
                Point::of(at as f64, &figures.cell(figure))
            });
            plot.series(Series::new(program, Style::Bars).with(points));
        }
        report.plot(plot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_one_name_are_told_apart() {
        let mut names = Vec::new();
        for _ in 0..3 {
            names.push(distinct("a.tar", &names));
        }
        assert_eq!(names, ["a.tar", "a.tar (2)", "a.tar (3)"]);
    }
}
