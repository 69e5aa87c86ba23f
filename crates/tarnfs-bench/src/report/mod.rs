//! What a comparison found: tables and plots, and where they come from.
//!
//! `table.rs` and `plot.rs` say what there is, without how it looks. `words.rs` writes it as text, Markdown, TSV and
//! JSON, `page.rs` as HTML, `draw/` as pictures, and `folder.rs` all of it into a folder.

mod draw;
mod folder;
mod page;
mod plot;
mod table;
mod words;

use std::ffi::OsString;
use std::path::Path;

use crate::Machine;
use crate::measure::Program;

pub use folder::Folder;
pub use plot::{Axis, Plot, Point, Series, Style};
pub use table::{Cell, Table};
pub use words::escaped;

/// What a comparison found.
#[derive(Debug)]
pub struct Report {
    title: String,
    command: String,
    machine: Machine,
    programs: Vec<Program>,
    lacking: Vec<String>,
    notes: Vec<String>,
    parts: Vec<Part>,
}

/// A part of it, in the order in which they were added.
#[derive(Debug)]
enum Part {
    Table(Table),
    Plot(Plot),
}

impl Report {
    /// An empty report. Scratch files are in that folder.
    pub fn new(title: &str, command: &[OsString], folder: &Path) -> Self {
        let words: Vec<_> = command.iter().map(|word| escaped(&word.to_string_lossy())).collect();
        Self {
            title: title.to_owned(),
            command: words.join(" "),
            machine: Machine::new(folder),
            programs: Vec::new(),
            lacking: Vec::new(),
            notes: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// This program was used: its version is told.
    pub fn uses(&mut self, program: &Program) {
        if !self.programs.contains(program) {
            self.programs.push(program.clone());
        }
    }

    /// This program is not installed.
    pub fn lacks(&mut self, name: &str) {
        if !self.lacking.iter().any(|lacking| lacking == name) {
            self.lacking.push(name.to_owned());
        }
    }

    /// A sentence on how it was measured.
    pub fn note(&mut self, sentence: impl Into<String>) {
        let sentence = escaped(&sentence.into());
        if !self.notes.contains(&sentence) {
            self.notes.push(sentence);
        }
    }

    /// One more table.
    pub fn table(&mut self, table: Table) {
        self.parts.push(Part::Table(table));
    }

    /// One more plot. It is left out where nothing is to be seen.
    pub fn plot(&mut self, plot: Plot) {
        if !plot.is_empty() {
            self.parts.push(Part::Plot(plot));
        }
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.parts.iter().filter_map(|part| if let Part::Table(table) = part { Some(table) } else { None })
    }

    fn plots(&self) -> impl Iterator<Item = &Plot> {
        self.parts.iter().filter_map(|part| if let Part::Plot(plot) = part { Some(plot) } else { None })
    }

    /// How and with what it was measured, a sentence in each line.
    fn about(&self) -> Vec<String> {
        let mut lines = vec![format!("Machine: {}", self.machine.line())];
        lines.extend(self.programs.iter().map(|program| {
            let Program { name, path, version } = program;
            format!("{name}: {version} ({})", escaped(&path.to_string_lossy()))
        }));
        if !self.lacking.is_empty() {
            lines.push(format!("Not installed, and left out: {}", self.lacking.join(", ")));
        }
        lines.extend(self.notes.iter().cloned());
        lines
    }
}

#[cfg(test)]
mod tests;
