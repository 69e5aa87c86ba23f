/// A plot: what is drawn over what.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Of its files, and in JSON: words with `-` between.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

/// What is along one side of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub(super) label: String,
    pub(super) is_logarithmic: bool,
    /// Names for 0, 1, 2, ...; none for numbers.
    pub(super) names: Vec<String>,
}

impl Axis {
    /// Numbers, from 0 where that is near.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), is_logarithmic: false, names: Vec::new() }
    }

    /// Numbers, each decade as long as the others. What is not above 0 is left out.
    pub fn logarithmic(label: &str) -> Self {
        Self { is_logarithmic: true, ..Self::linear(label) }
    }

    /// One place for each of these names: the first is at 0, the next at 1, ...
    pub fn names<N: AsRef<str>>(label: &str, names: impl IntoIterator<Item = N>) -> Self {
        let names = names.into_iter().map(|name| super::escaped(name.as_ref())).collect();
        Self { names, ..Self::linear(label) }
    }
}

/// What has one colour.
#[derive(Debug, Clone)]
pub struct Series {
    pub(super) name: String,
    pub(super) style: Style,
    pub(super) points: Vec<Point>,
}

/// How it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Points with lines between, and a band from the lowest to the highest.
    Line,
    /// Points, with a line from the lowest to the highest.
    Points,
    /// Bars from the bottom, with a line from the lowest to the highest. Those of several series stand side by side.
    Bars,
}

/// One point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Point {
    /// A point of one run.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }

    /// With the lowest and the highest of several runs.
    #[must_use]
    pub fn between(self, low: f64, high: f64) -> Self {
        Self { low, high, ..self }
    }

    /// The median of a cell at `x`; `None` if it has no figure.
    pub fn of(x: f64, cell: &super::Cell) -> Option<Self> {
        match cell {
            super::Cell::Figure(summary) => Some(Self::new(x, summary.median()).between(summary.min(), summary.max())),
            super::Cell::Missing(_) => None,
        }
    }
}

impl Series {
    /// A series without points.
    pub fn new(name: &str, style: Style) -> Self {
        Self { name: super::escaped(name), style, points: Vec::new() }
    }

    /// With these points.
    #[must_use]
    pub fn with(mut self, points: impl IntoIterator<Item = Point>) -> Self {
        self.points.extend(points);
        self
    }
}

impl Plot {
    /// A plot without series.
    pub fn new(name: &str, title: &str, x: Axis, y: Axis) -> Self {
        Self { name: name.to_owned(), title: title.to_owned(), x, y, series: Vec::new() }
    }

    /// One more series. It is left out if it has no points that can be shown.
    pub fn series(&mut self, mut series: Series) {
        let can_be = |axis: &Axis, value: f64| value.is_finite() && (!axis.is_logarithmic || value > 0.0);
        series.points.retain(|point| {
            can_be(&self.x, point.x) && [point.y, point.low, point.high].iter().all(|&value| can_be(&self.y, value))
        });
        if !series.points.is_empty() {
            self.series.push(series);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}
