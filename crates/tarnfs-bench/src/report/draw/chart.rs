//! Title, legend, axes and what is between them.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, FontTransform, IntoFont, RGBColor, TextStyle};

use super::super::{Plot, Point, Series, Style};
use super::scale::Scale;
use super::{FONT, SIZE};

type Failed<B> = DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>;

/// Colours that also people who see fewer of them tell apart (Okabe and Ito), and that show on black and on white.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 128),
    RGBColor(150, 90, 40),
    RGBColor(110, 60, 160),
    RGBColor(140, 160, 0),
];

/// Sizes of letters, and of what is around them, at the scale of 1.
const TITLE: u32 = 22;
const LETTER: u32 = 14;
const MARGIN: u32 = 20;
const LEGEND_LINE: u32 = 24;
const BELOW_AXIS: u32 = 48;
const BESIDE_AXIS: u32 = 66;
/// Names below the axis that are written upwards have this much room.
const LONGEST_NAME: u32 = 190;

/// A picture that is being drawn, so many times as large as the sizes above say.
pub(super) struct Canvas<'a, B: DrawingBackend> {
    pub(super) area: &'a DrawingArea<B, Shift>,
    pub(super) scale: u32,
}

impl<B: DrawingBackend> Canvas<'_, B> {
    fn pixels(&self, size: u32) -> i32 {
        (size * self.scale) as i32
    }

    fn letters(&self, size: u32) -> TextStyle<'static> {
        (FONT, self.pixels(size)).into_font().color(&BLACK)
    }

    fn width(&self, text: &str) -> u32 {
        let found = self.area.estimate_text_size(text, &self.letters(LETTER));
        // What cannot be measured is taken for as long as letters are wide on average.
        found.map_or(text.chars().count() as u32 * 8 * self.scale, |(width, _)| width)
    }

    /// Draws all of it.
    pub(super) fn draw(&self, plot: &Plot) -> Result<(), Failed<B>> {
        let top = self.pixels(14);
        self.area.draw(&Text::new(plot.title.clone(), (self.pixels(MARGIN), top), self.letters(TITLE)))?;
        let below = self.legend(plot, top + self.pixels(TITLE + 12))?;
        let (_, body) = self.area.split_vertically(below);
        let xs = plot.series.iter().flat_map(|series| series.points.iter().map(|point| point.x));
        let points = plot.series.iter().flat_map(|series| series.points.iter());
        let ys = points.flat_map(|point| [point.y, point.low, point.high]);
        let has_bars = plot.series.iter().any(|series| series.style == Style::Bars);
        let from_zero = (has_bars && !plot.y.is_logarithmic).then_some(0.0);
        let (x, y) = (Scale::new(&plot.x, xs), Scale::new(&plot.y, ys.chain(from_zero)));
        let upwards = self.is_crowded(plot);
        let longest = plot.x.names.iter().map(|name| self.width(name)).max().unwrap_or(0);
        let room =
            if upwards { longest.min(LONGEST_NAME * self.scale) + 16 * self.scale } else { BELOW_AXIS * self.scale };
        let mut chart = ChartBuilder::on(&body)
            .margin_right(self.pixels(MARGIN))
            .margin_left(self.pixels(MARGIN))
            .margin_bottom(self.pixels(6))
            .margin_top(self.pixels(6))
            .x_label_area_size(room)
            .y_label_area_size(BESIDE_AXIS * self.scale)
            .build_cartesian_2d(x.clone(), y.clone())?;
        let letters = self.letters(LETTER);
        let at_x = |value: &f64| if upwards { String::new() } else { x.format_ext(value) };
        let at_y = |value: &f64| y.format_ext(value);
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(BLACK.mix(0.0)).bold_line_style(BLACK.mix(0.15)).axis_style(BLACK.mix(0.6));
        mesh.label_style(letters.clone()).axis_desc_style(letters.clone());
        mesh.x_label_formatter(&at_x).y_label_formatter(&at_y).y_desc(plot.y.label.as_str()).y_labels(10);
        match plot.x.names.len() {
            0 => mesh.x_labels(10),
            names => mesh.disable_x_mesh().x_labels(names),
        };
        if !upwards {
            mesh.x_desc(plot.x.label.as_str());
        }
        mesh.draw()?;
        if upwards {
            for (at, name) in plot.x.names.iter().enumerate() {
                let (left, top) = chart.backend_coord(&(at as f64, y.low()));
                self.upwards(name, (left, top + self.pixels(6)))?;
            }
        }
        let bars = plot.series.iter().filter(|series| series.style == Style::Bars).count();
        let mut bar = 0;
        for (number, series) in plot.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            if series.style == Style::Bars {
                draw_bars(&mut chart, series, colour, (bar, bars), y.low())?;
                bar += 1;
            } else {
                draw_points(&mut chart, series, colour, self.scale)?;
            }
        }
        Ok(())
    }

    /// A name that is written upwards and ends at `end`, without its middle where it is too long.
    fn upwards(&self, name: &str, end: (i32, i32)) -> Result<(), Failed<B>> {
        let letters: Vec<char> = name.chars().collect();
        let (mut name, mut left_out) = (name.to_owned(), 0);
        while self.width(&name) > LONGEST_NAME * self.scale && left_out < letters.len() {
            left_out += 1;
            let (start, rest) = letters.split_at((letters.len() - left_out) / 2);
            name = start.iter().chain(&['…']).chain(&rest[left_out..]).collect();
        }
        // Turned, letters go up from where they begin, and what is their middle lies sideways.
        let style = self.letters(LETTER).transform(FontTransform::Rotate270).pos(Pos::new(HPos::Right, VPos::Center));
        let end = (end.0 - self.area.get_base_pixel().0, end.1 - self.area.get_base_pixel().1);
        self.area.draw(&Text::new(name, end, style))
    }

    /// True if names below the axis would touch each other.
    fn is_crowded(&self, plot: &Plot) -> bool {
        let place = (SIZE.0 - 110) * self.scale / plot.x.names.len().max(1) as u32;
        plot.x.names.iter().any(|name| self.width(name) + 8 * self.scale > place)
    }

    /// A square and a name for each series, in lines below the title. Returns where the next line would be.
    fn legend(&self, plot: &Plot, top: i32) -> Result<i32, Failed<B>> {
        let (mut left, mut top) = (self.pixels(MARGIN), top);
        for (number, series) in plot.series.iter().enumerate() {
            let wide = self.width(&series.name) as i32 + self.pixels(34);
            if left > self.pixels(MARGIN) && left + wide > self.pixels(SIZE.0 - MARGIN) {
                (left, top) = (self.pixels(MARGIN), top + self.pixels(LEGEND_LINE));
            }
            let square = [(left, top + self.pixels(1)), (left + self.pixels(12), top + self.pixels(13))];
            self.area.draw(&Rectangle::new(square, COLOURS[number % COLOURS.len()].filled()))?;
            let at = (left + self.pixels(18), top + self.pixels(7));
            let letters = self.letters(LETTER).pos(Pos::new(HPos::Left, VPos::Center));
            self.area.draw(&Text::new(series.name.clone(), at, letters))?;
            left += wide;
        }
        Ok(top + self.pixels(LEGEND_LINE + 4))
    }
}

type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<Scale, Scale>>;

fn draw_bars<B: DrawingBackend>(
    chart: &mut Chart<'_, B>,
    series: &Series,
    colour: RGBColor,
    (bar, bars): (usize, usize),
    bottom: f64,
) -> Result<(), Failed<B>> {
    const GROUP: f64 = 0.8;
    let wide = GROUP / bars as f64;
    let left = |point: &Point| point.x - GROUP / 2.0 + bar as f64 * wide;
    let one = |point: &Point| {
        let (left, right) = (left(point) + wide * 0.05, left(point) + wide * 0.95);
        Rectangle::new([(left, bottom), (right, point.y)], colour.filled())
    };
    chart.draw_series(series.points.iter().map(one))?;
    let spread = |point: &Point| {
        let middle = left(point) + wide / 2.0;
        PathElement::new(vec![(middle, point.low), (middle, point.high)], BLACK.mix(0.7).stroke_width(1))
    };
    chart.draw_series(series.points.iter().filter(|point| point.low < point.high).map(spread))?;
    Ok(())
}

fn draw_points<B: DrawingBackend>(
    chart: &mut Chart<'_, B>,
    series: &Series,
    colour: RGBColor,
    scale: u32,
) -> Result<(), Failed<B>> {
    let mut points = series.points.clone();
    if series.style == Style::Line {
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        if points.iter().any(|point| point.low < point.high) {
            let upper = points.iter().map(|point| (point.x, point.high));
            let lower = points.iter().rev().map(|point| (point.x, point.low));
            chart.draw_series([Polygon::new(upper.chain(lower).collect::<Vec<_>>(), colour.mix(0.18).filled())])?;
        }
        let line: Vec<_> = points.iter().map(|point| (point.x, point.y)).collect();
        chart.draw_series([PathElement::new(line, colour.stroke_width(2 * scale))])?;
    } else {
        let spread = |point: &Point| {
            PathElement::new(vec![(point.x, point.low), (point.x, point.high)], colour.stroke_width(scale))
        };
        chart.draw_series(points.iter().filter(|point| point.low < point.high).map(spread))?;
    }
    chart.draw_series(points.iter().map(|point| Circle::new((point.x, point.y), 4 * scale, colour.filled())))?;
    Ok(())
}
