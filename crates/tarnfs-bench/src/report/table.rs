use crate::measure::{Reason, Summary};

use super::escaped;

/// A table: each row has some names, and a figure in each column.
#[derive(Debug)]
pub struct Table {
    /// Of its file, and in JSON: words with `-` between.
    pub(super) name: String,
    pub(super) title: String,
    /// What the names at the start of a row are: "archive", "program".
    pub(super) labels: Vec<String>,
    /// Each with its unit, which may be empty.
    pub(super) columns: Vec<(String, String)>,
    pub(super) rows: Vec<(Vec<String>, Vec<Cell>)>,
}

/// A figure, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// What several runs gave.
    Figure(Summary),
    /// "-", and the reason, where one is given.
    Missing(String),
}

impl Table {
    /// A table without rows.
    pub fn new(name: &str, title: &str, labels: &[&str], columns: &[(&str, &str)]) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            columns: columns.iter().map(|&(name, unit)| (name.to_owned(), unit.to_owned())).collect(),
            rows: Vec::new(),
        }
    }

    /// One more row. There is a name for each label, and a cell for each column; cells that are missing are "-".
    pub fn row<L: AsRef<str>>(&mut self, labels: impl IntoIterator<Item = L>, cells: impl IntoIterator<Item = Cell>) {
        let labels = labels.into_iter().map(|label| escaped(label.as_ref())).chain(std::iter::repeat(String::new()));
        let cells = cells.into_iter().chain(std::iter::repeat_with(Cell::none));
        let row = (labels.take(self.labels.len()).collect(), cells.take(self.columns.len()).collect());
        self.rows.push(row);
    }
}

impl Cell {
    /// "-", without a reason: it makes no sense there.
    pub fn none() -> Self {
        Self::Missing(String::new())
    }

    /// "-", with a reason.
    pub fn missing(reason: impl Into<String>) -> Self {
        Self::Missing(escaped(&reason.into()))
    }

    /// What several runs gave, or why one of them failed.
    pub fn of(runs: &[Result<f64, Reason>]) -> Self {
        let values: Result<Vec<f64>, &Reason> = runs.iter().map(|run| run.as_ref().copied()).collect();
        match values {
            Ok(values) => Summary::new(&values).map_or_else(Self::none, Self::Figure),
            Err(reason) => Self::missing(reason.to_string()),
        }
    }

    /// The median, where there is a figure.
    pub fn median(&self) -> Option<f64> {
        match self {
            Self::Figure(summary) => Some(summary.median()),
            Self::Missing(_) => None,
        }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Summary::new(&[value]).map_or_else(Self::none, Self::Figure)
    }
}

impl From<Option<Summary>> for Cell {
    fn from(summary: Option<Summary>) -> Self {
        summary.map_or_else(Self::none, Self::Figure)
    }
}
