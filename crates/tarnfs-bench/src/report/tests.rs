//! One report in each form, read back.

use std::fs;
use std::path::Path;

use super::*;
use crate::Error;
use crate::measure::{Reason, Summary};

fn report() -> Report {
    let mut report = Report::new("A <title>", &["tarnfs".into(), "bench\u{1b}[2J".into()], Path::new("/tmp"));
    report.uses(&Program { name: "tar".into(), path: "/bin/tar".into(), version: "tar 1.0".into() });
    report.lacks("star");
    report.lacks("star");
    report.note("A note.");
    report.note("A note.");
    let mut table = Table::new("times", "Times", &["archive", "program"], &[("real", "s"), ("files", "")]);
    let slow = Cell::of(&[Ok(1.0), Err(Reason::Failed("no | way".into()))]);
    table.row(["a\tb", "tar"], [Cell::of(&[Ok(1.5), Ok(1.0), Ok(2.0)]), Cell::from(12345.0)]);
    table.row(["a<b", "star"], [slow.clone(), slow]);
    table.row(["none"], []);
    report.table(table);
    let names = Axis::names("program", ["tar", "bsdtar & others"]);
    let mut bars = Plot::new("bars", "Bars of <things>", names.clone(), Axis::linear("seconds"));
    bars.series(Series::new("cold", Style::Bars).with([Point::new(0.0, 3.0).between(2.0, 5.0), Point::new(1.0, 1.0)]));
    bars.series(Series::new("warm", Style::Bars).with([Point::new(0.0, 1.0)]));
    bars.series(Series::new("nothing", Style::Bars).with([Point::new(0.0, f64::NAN)]));
    report.plot(bars);
    let mut lines = Plot::new("lines", "Lines", Axis::logarithmic("bytes"), Axis::logarithmic("seconds"));
    let cell = Cell::Figure(Summary::new(&[0.01, 0.02, 0.04]).unwrap());
    let points =
        [Point::of(1e3, &cell), Some(Point::new(1e6, 2.0)), Some(Point::new(1e7, 0.0)), Point::of(1.0, &Cell::none())];
    lines.series(Series::new("tar", Style::Line).with(points.into_iter().flatten()));
    lines.series(Series::new("bsdtar", Style::Points).with([Point::new(1e4, 0.3).between(0.1, 0.5)]));
    report.plot(lines);
    let many = Axis::names("compression", (0..40).map(|level| format!("compressor with a long name {level}")));
    let mut band = Plot::new("band", "Names that are written upwards", many, Axis::linear("ratio"));
    band.series(Series::new("one", Style::Line).with((0..40).map(|at| {
        let at = f64::from(at);
        Point::new(at, at * at).between(at * at * 0.8, at * at * 1.2)
    })));
    report.plot(band);
    report.plot(Plot::new("empty", "Nothing", names, Axis::linear("")));
    report
}

#[test]
fn text_has_columns_and_reasons() {
    let text = report().text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[2..8],
        [
            "Times",
            "  archive  program   real (s)  files",
            "  a\\u{9}b  tar      1.50 ±33%  12345",
            "  a<b      star         - [1]  - [1]",
            "  none                      -      -",
            "  [1] failed: no | way",
        ]
    );
    assert_eq!(text.matches("A note.").count(), 1);
    assert!(text.contains("Not installed, and left out: star\n") && text.contains("tar: tar 1.0 (/bin/tar)"), "{text}");
    assert!(!report().markdown().contains('\u{1b}'));
}

#[test]
fn tables_are_read_by_programs() {
    let report = report();
    let tsv = report.tables().next().unwrap().tsv();
    let rows: Vec<Vec<_>> = tsv.lines().map(|line| line.split('\t').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 10), "{tsv}");
    assert_eq!(rows[1], ["a\\u{9}b", "tar", "real", "s", "1.5", "1", "2", "33.33", "3", ""]);
    assert_eq!(rows[3], ["a<b", "star", "real", "s", "-", "-", "-", "-", "0", "failed: no | way"]);
    let json = report.json();
    let cell = &json["tables"][0]["rows"][0]["cells"][0];
    assert_eq!((cell["median"].as_f64(), cell["runs"][2].as_f64()), (Some(1.5), Some(2.0)));
    assert_eq!(json["tables"][0]["rows"][1]["cells"][0]["reason"], "failed: no | way");
    assert_eq!(json["plots"].as_array().unwrap().len(), 3);
    assert!(json["machine"]["memory"].as_u64().unwrap() > 1 << 20 && json["machine"]["cores"].as_u64().unwrap() > 0);
    let markdown = report.markdown();
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    assert!(markdown.lines().filter(|line| line.starts_with('|')).all(|line| columns(line) == 5), "{markdown}");
}

#[test]
fn a_folder_holds_all_of_it() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("out");
    Folder::new(&path).unwrap().write(&report()).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let all =
        "band.png band.svg bars.png bars.svg index.html lines.png lines.svg report.json report.md report.txt times.tsv";
    assert_eq!(names.join(" "), all);
    let page = fs::read_to_string(path.join("index.html")).unwrap();
    assert!(page.contains("A &lt;title&gt;") && page.contains("a&lt;b") && !page.contains("<script"), "{page}");
    assert_eq!(page.matches("<svg").count(), 3);
    // Pictures in the page have the colours of the page.
    assert!(page.contains("currentColor") && !page.contains("#000000"));
    for plot in ["bars", "lines", "band"] {
        let svg = fs::read_to_string(path.join(format!("{plot}.svg"))).unwrap();
        assert!(svg.contains("</svg>") && svg.matches("<text").count() > 5, "{svg}");
        let file = std::io::BufReader::new(fs::File::open(path.join(format!("{plot}.png"))).unwrap());
        let mut picture = png::Decoder::new(file).read_info().unwrap();
        let mut pixels = vec![0; picture.output_buffer_size().unwrap()];
        picture.next_frame(&mut pixels).unwrap();
        // Black is what letters are: a font that cannot be drawn would leave none.
        let dark = pixels.chunks(3).filter(|pixel| pixel.iter().all(|&part| part < 60)).count();
        assert!(dark > 500, "{plot}: {dark} dark pixels");
    }
    if let Some(keep) = std::env::var_os("TARNFS_KEEP_PLOTS") {
        fs::rename(&path, keep).unwrap();
    }
}

#[test]
fn a_folder_with_something_in_it_stays_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("out");
    fs::create_dir(&path).unwrap();
    let folder = Folder::new(&path).unwrap();
    fs::write(path.join("mine"), "mine").unwrap();
    // It came meanwhile.
    assert!(folder.write(&report()).is_err());
    assert!(matches!(Folder::new(&path), Err(Error::Usage(_))));
    assert!(matches!(Folder::new(&path.join("mine/out")), Err(Error::Io(..))));
    // Nothing is left beside it.
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    drop(Folder::new(&scratch.path().join("other")).unwrap());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}
