//! What is said: three lines, a table, or JSON.

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use tarnfs_write::compress::Compression;

use super::advice::Advice;
use super::measure::{Measured, Results};
use super::sample::Sample;
use crate::args::Purpose;
use crate::terminal::Output;

/// All that there is to say.
pub(super) struct Told<'a> {
    pub(super) path: &'a Path,
    pub(super) sample: &'a Sample,
    pub(super) results: &'a Results,
    pub(super) advice: &'a Advice,
    /// Bytes of an archive as it is now.
    pub(super) now: Option<u64>,
    /// What makes each of them.
    pub(super) command: &'a dyn Fn(&Measured) -> String,
}

/// "xz, level 6", "lz4".
fn name(compression: &dyn Compression, level: i32) -> String {
    let levels = compression.levels();
    match compression.name() {
        _ if compression.is_plain() => "no compression".to_owned(),
        name if levels.start() == levels.end() => name.to_owned(),
        name => format!("{name}, level {level}"),
    }
}

fn percent(ratio: f64) -> String {
    if ratio < 0.0995 { format!("{:.1} %", ratio * 100.0) } else { format!("{:.0} %", ratio * 100.0) }
}

/// A number with two digits at least.
fn digits(number: f64) -> String {
    if number < 9.95 { format!("{number:.1}") } else { format!("{number:.0}") }
}

/// "38 MB".
fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000.0 {
        return format!("{bytes:.0} B");
    }
    let mut scaled = bytes / 1000.0;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    format!("{} {}", digits(scaled), UNITS[unit])
}

/// "2.1 s", "0.7 ms".
fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.0995 => format!("{} ms", digits(seconds * 1e3)),
        _ if seconds < 120.0 => format!("{} s", digits(seconds)),
        _ if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{} h", digits(seconds / 3600.0)),
    }
}

impl Told<'_> {
    fn seconds(&self, measured: &Measured) -> f64 {
        self.sample.total as f64 / measured.rate
    }

    fn size(&self, measured: &Measured) -> f64 {
        self.sample.total as f64 * measured.ratio
    }

    /// What the estimates stand on.
    fn basis(&self, of: &Measured) -> String {
        let sample = self.sample;
        if sample.is_all() {
            return if of.is_estimated { "estimated from all of it" } else { "all of it was tried" }.to_owned();
        }
        let at_least = if sample.is_cut { "what was seen of it" } else { "it" };
        format!("estimated from {} of {at_least}", size(sample.length() as f64))
    }

    /// Why another one may be better.
    fn not_tried(&self) -> String {
        match self.results.left_out.len() {
            0 => String::new(),
            1 => "; 1 level was not tried (-v says why)".to_owned(),
            more => format!("; {more} levels were not tried (-v says why)"),
        }
    }

    /// Three lines; the last is the command for `purpose`.
    pub(super) fn lines(&self, out: &mut Output, purpose: Purpose) -> io::Result<()> {
        let Advice { size: small, speed, access, all, best, is_worth_it } = self.advice;
        let of = |measured: &Measured| name(measured.compression, measured.level);
        let more = if self.sample.is_cut { "at least " } else { "" };
        let total = format!("{more}{}", size(self.sample.total as f64));
        if *is_worth_it {
            writeln!(
                out,
                "Size: {} ({}, {}). Speed: {} ({}, {}). Access: {} ({}, {} a file).",
                of(small),
                percent(small.ratio),
                time(self.seconds(small)),
                of(speed),
                percent(speed.ratio),
                time(self.seconds(speed)),
                of(access),
                percent(access.ratio),
                time(access.access)
            )?;
        } else {
            writeln!(
                out,
                "Size, speed and access: no compression. It can hardly be made smaller: {} leaves {}.",
                of(best),
                percent(best.ratio)
            )?;
        }
        let now = self.now.map(|now| format!(", which are {} now", size(now as f64))).unwrap_or_default();
        writeln!(
            out,
            "Over all: {}: {} of {total}{now}: {}, in {} on {} {}, {} a file; {}{}.",
            of(all),
            percent(all.ratio),
            size(self.size(all)),
            time(self.seconds(all)),
            all.threads,
            if all.threads == 1 { "thread" } else { "threads" },
            time(all.access),
            self.basis(all),
            self.not_tried()
        )?;
        let chosen = self.advice.of(purpose);
        writeln!(out, "{}", (self.command)(chosen))?;
        Ok(())
    }

    /// What was measured.
    pub(super) fn table(&self, out: &mut Output) -> io::Result<()> {
        let heading = ["compression", "level", "size", "", "compress", "time", "decode", "a file", "sample"];
        let mut rows = vec![heading.map(str::to_owned)];
        let rate = |rate: f64| if rate.is_finite() { format!("{} MB/s", digits(rate / 1e6)) } else { "-".to_owned() };
        rows.extend(self.results.measured.iter().map(|one| {
            [
                one.compression.name().to_owned(),
                one.level.to_string(),
                percent(one.ratio),
                size(self.size(one)),
                rate(one.rate),
                time(self.seconds(one)),
                rate(one.decode),
                time(one.access),
                size(one.tried as f64),
            ]
        }));
        let widths: Vec<_> = (0..heading.len())
            .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
            .collect();
        for row in &rows {
            let cells = row.iter().zip(&widths).enumerate();
            let cells: Vec<_> = cells
                .map(
                    |(number, (cell, width))| {
                        if number == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                    },
                )
                .collect();
            writeln!(out, "{}", cells.join("  ").trim_end())?;
        }
        for (compression, level, why) in &self.results.left_out {
            writeln!(out, "{}: left out: {why}", name(*compression, *level))?;
        }
        writeln!(
            out,
            "\n\
             Sizes: what each makes of its part of the sample, compared with one that has compressed all of it. What\n\
             repeats at a distance of more than {} shows only in the archive, and makes it smaller.\n\
             Time: compressing on all threads, without reading files and writing the archive. Decode: one thread.\n\
             A file: from half the distance of two places where decoding can start to the end of a file of usual length.\n\
             Over all: the least time to compress it once, and to copy it at 100 MB/s and decode it ten times.\n",
            size(super::sample::PIECE as f64)
        )
    }

    /// One object.
    pub(super) fn json(&self) -> Value {
        let sample = self.sample;
        let number = |number: f64| if number.is_finite() { json!(number) } else { Value::Null };
        let of = |one: &Measured| {
            let mut object = Map::new();
            object.insert("compression".into(), one.compression.name().into());
            object.insert("level".into(), one.level.into());
            object.insert("ratio".into(), number(one.ratio));
            object.insert("size".into(), number(self.size(one).round()));
            object.insert("threads".into(), one.threads.into());
            object.insert("compress_rate".into(), number(one.rate));
            object.insert("seconds".into(), number(self.seconds(one)));
            object.insert("decode_rate".into(), number(one.decode));
            object.insert("file_seconds".into(), number(one.access));
            object.insert("sample".into(), one.tried.into());
            object.insert("estimated".into(), one.is_estimated.into());
            object
        };
        let advised = |one: &Measured| {
            let mut object = of(one);
            object.insert("command".into(), (self.command)(one).into());
            Value::Object(object)
        };
        let mut object = Map::new();
        crate::json::put(&mut object, "path", self.path.as_os_str().as_bytes());
        object.insert("bytes".into(), sample.total.into());
        object.insert("files".into(), sample.files.into());
        object.insert("now".into(), self.now.map_or(Value::Null, Value::from));
        object.insert(
            "sample".into(),
            json!({
                "bytes": sample.length(),
                "pieces": sample.pieces.len(),
                "all": sample.is_all(),
                "cut": sample.is_cut,
                "unreadable": sample.unreadable,
            }),
        );
        object.insert("measured".into(), self.results.measured.iter().map(|one| Value::Object(of(one))).collect());
        let left_out = self.results.left_out.iter().map(
            |(compression, level, why)| json!({ "compression": compression.name(), "level": level, "reason": why }),
        );
        object.insert("left_out".into(), left_out.collect());
        let advice = self.advice;
        object.insert(
            "advice".into(),
            json!({
                "size": advised(&advice.size),
                "speed": advised(&advice.speed),
                "access": advised(&advice.access),
                "all": advised(&advice.all),
                "worth_it": advice.is_worth_it,
            }),
        );
        Value::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_digits_and_a_unit() {
        for (bytes, shown) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (1234.0, "1.2 kB"),
            (38_400_000.0, "38 MB"),
            (999_600.0, "1.0 MB"),
            (5e18, "5000 PB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
        for (seconds, shown) in [
            (0.00071, "0.7 ms"),
            (0.05, "50 ms"),
            (0.8, "0.8 s"),
            (110.0, "110 s"),
            (180.0, "3 min"),
            (9000.0, "2.5 h"),
        ] {
            assert_eq!(time(seconds), shown);
        }
        assert_eq!((percent(0.042), percent(0.42)), ("4.2 %".to_owned(), "42 %".to_owned()));
    }
}
