//! A report as text, Markdown, TSV and JSON.

use std::fmt::Write;

use serde_json::{Value, json};
use tarnfs_format::name::steers_a_terminal;

use super::{Cell, Part, Plot, Report, Table};

/// `text` without what steers a terminal: names may hold anything.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            _ if steers_a_terminal(character) => shown.extend(character.escape_unicode()),
            _ => shown.push(character),
        }
    }
    shown
}

/// A number for people: three digits, or all of a whole number.
pub(super) fn number(value: f64) -> String {
    const MOST_WHOLE: f64 = 1e15;
    let size = value.abs();
    if value.fract() == 0.0 && size < MOST_WHOLE {
        return format!("{value:.0}");
    }
    match size {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.1.. => format!("{value:.3}"),
        0.01.. => format!("{value:.4}"),
        0.001.. => format!("{value:.5}"),
        _ => format!("{value:.2e}"),
    }
}

/// A column with its unit.
pub(super) fn heading((name, unit): &(String, String)) -> String {
    if unit.is_empty() { name.clone() } else { format!("{name} ({unit})") }
}

/// What stands in tables for people, and the reasons of "-", each once.
pub(super) struct Shown {
    /// The labels and cells of each row.
    pub(super) rows: Vec<Vec<String>>,
    /// "[1] not installed".
    pub(super) reasons: Vec<String>,
}

impl Shown {
    pub(super) fn new(table: &Table) -> Self {
        let mut reasons: Vec<String> = Vec::new();
        let mut cell = |cell: &Cell| -> String {
            match cell {
                Cell::Figure(summary) => match summary.spread() {
                    Some(spread) => format!("{} ±{:.0}%", number(summary.median()), spread * 100.0),
                    None => number(summary.median()),
                },
                Cell::Missing(reason) if reason.is_empty() => "-".to_owned(),
                Cell::Missing(reason) => {
                    let known = reasons.iter().position(|known| known == reason).unwrap_or(reasons.len());
                    if known == reasons.len() {
                        reasons.push(reason.clone());
                    }
                    format!("- [{}]", known + 1)
                }
            }
        };
        let rows = table
            .rows
            .iter()
            .map(|(labels, cells)| labels.iter().cloned().chain(cells.iter().map(&mut cell)).collect())
            .collect();
        let reasons = reasons.iter().enumerate().map(|(at, reason)| format!("[{}] {reason}", at + 1)).collect();
        Self { rows, reasons }
    }
}

impl Table {
    fn headings(&self) -> Vec<String> {
        self.labels.iter().cloned().chain(self.columns.iter().map(heading)).collect()
    }

    /// Columns below each other, with two blanks between.
    fn text(&self) -> String {
        let (headings, shown) = (self.headings(), Shown::new(self));
        let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
        for row in &shown.rows {
            for (width, word) in widths.iter_mut().zip(row) {
                *width = word.chars().count().max(*width);
            }
        }
        let mut text = format!("{}\n", self.title);
        for row in std::iter::once(&headings).chain(&shown.rows) {
            let mut line = String::new();
            for (column, (word, &width)) in row.iter().zip(&widths).enumerate() {
                let _ = match column {
                    _ if column < self.labels.len() => write!(line, "  {word:width$}"),
                    _ => write!(line, "  {word:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for reason in shown.reasons {
            let _ = writeln!(text, "  {reason}");
        }
        text
    }

    fn markdown(&self) -> String {
        let (headings, shown) = (self.headings(), Shown::new(self));
        let line = |words: &[String]| {
            let words: Vec<_> = words.iter().map(|word| word.replace('\\', "\\\\").replace('|', "\\|")).collect();
            format!("| {} |\n", words.join(" | "))
        };
        let mut text = format!("## {}\n\n{}", self.title, line(&headings));
        let rule = (0..headings.len()).map(|at| if at < self.labels.len() { " --- |" } else { " ---: |" });
        let _ = writeln!(text, "|{}", rule.collect::<String>());
        shown.rows.iter().for_each(|row| text.push_str(&line(row)));
        shown.reasons.iter().for_each(|reason| {
            let _ = write!(text, "\n{reason}\n");
        });
        text
    }

    /// One figure in each line, with all that is known of it.
    pub(super) fn tsv(&self) -> String {
        let figures = ["figure", "unit", "median", "min", "max", "spread_percent", "runs", "reason"];
        let words: Vec<&str> = self.labels.iter().map(String::as_str).chain(figures).collect();
        let mut text = words.join("\t") + "\n";
        for (labels, cells) in &self.rows {
            for ((name, unit), cell) in self.columns.iter().zip(cells) {
                labels.iter().chain([name, unit]).for_each(|word| {
                    let _ = write!(text, "{word}\t");
                });
                let _ = match cell {
                    Cell::Figure(found) => {
                        let spread = found.spread().map_or("-".to_owned(), |spread| format!("{:.2}", spread * 100.0));
                        let (median, min, max, runs) = (found.median(), found.min(), found.max(), found.sorted().len());
                        writeln!(text, "{median}\t{min}\t{max}\t{spread}\t{runs}\t")
                    }
                    Cell::Missing(reason) => writeln!(text, "-\t-\t-\t-\t0\t{reason}"),
                };
            }
        }
        text
    }

    fn json(&self) -> Value {
        let cell = |cell: &Cell| match cell {
            Cell::Figure(found) => json!({
                "median": found.median(), "min": found.min(), "max": found.max(), "spread": found.spread(),
                "runs": found.sorted(),
            }),
            Cell::Missing(reason) => json!({ "reason": reason }),
        };
        let columns = self.columns.iter().map(|(name, unit)| json!({ "name": name, "unit": unit }));
        let rows = self
            .rows
            .iter()
            .map(|(labels, cells)| json!({ "labels": labels, "cells": cells.iter().map(cell).collect::<Vec<_>>() }));
        json!({
            "name": self.name, "title": self.title, "labels": self.labels,
            "columns": columns.collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>(),
        })
    }
}

impl Plot {
    fn json(&self) -> Value {
        let axis = |axis: &super::Axis| {
            let is_logarithmic = axis.is_logarithmic;
            json!({ "label": axis.label, "logarithmic": is_logarithmic, "names": axis.names })
        };
        let series = self.series.iter().map(|series| {
            let points = series.points.iter().map(|point| json!([point.x, point.y, point.low, point.high]));
            json!({ "name": series.name, "points": points.collect::<Vec<_>>() })
        });
        json!({
            "name": self.name, "title": self.title, "x": axis(&self.x), "y": axis(&self.y),
            "series": series.collect::<Vec<_>>(),
        })
    }
}

impl Report {
    /// For a terminal: the tables, and how it was measured.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.title);
        for table in self.tables() {
            text.push_str(&table.text());
            text.push('\n');
        }
        self.about().iter().for_each(|line| {
            let _ = writeln!(text, "{line}");
        });
        text
    }

    /// As Markdown, with links to the plots.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n    {}\n\n", self.title, self.command);
        for part in &self.parts {
            match part {
                Part::Table(table) => text.push_str(&table.markdown()),
                Part::Plot(plot) => {
                    let _ = writeln!(text, "![{}]({}.svg)", plot.title, plot.name);
                }
            }
            text.push('\n');
        }
        self.about().iter().for_each(|line| {
            let _ = writeln!(text, "- {line}");
        });
        text
    }

    /// All of it as JSON.
    pub fn json(&self) -> Value {
        let machine = &self.machine;
        let programs = self.programs.iter().map(|program| {
            json!({ "name": program.name, "version": program.version, "path": program.path.to_string_lossy() })
        });
        json!({
            "title": self.title,
            "command": self.command,
            "machine": {
                "processor": machine.processor, "cores": machine.cores, "memory": machine.memory,
                "kernel": machine.kernel, "file_system": machine.file_system,
            },
            "programs": programs.collect::<Vec<_>>(),
            "not_installed": self.lacking,
            "notes": self.notes,
            "tables": self.tables().map(Table::json).collect::<Vec<_>>(),
            "plots": self.plots().map(Plot::json).collect::<Vec<_>>(),
        })
    }
}
