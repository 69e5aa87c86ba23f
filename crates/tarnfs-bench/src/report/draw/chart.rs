//! Title, legend, axes and what is between them.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, FontTransform, IntoFont, IntoTextStyle, RGBColor, TextStyle};

use super::super::{Plot, Point, Series, Style};
use super::scale::Scale;
use super::{FONT, SIZE};

type Failed<B> = DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>;

/// Colours that also people who see fewer of them tell apart (Okabe and Ito), and that show on black and on white.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 128),
    RGBColor(150, 90, 40),
];

const TITLE: i32 = 22;
const LETTER: i32 = 14;
const MARGIN: i32 = 20;
/// Height of a line of the legend.
const LINE: i32 = 22;
/// Of names below the axis that are longer than their places, all are written upwards.
const ROOM_BELOW: u32 = 36;

/// Draws it.
pub(super) fn draw<B: DrawingBackend>(plot: &Plot, area: &DrawingArea<B, Shift>) -> Result<(), Failed<B>> {
    let text = |size: i32| (FONT, size).into_font().color(&BLACK);
    area.draw(&Text::new(plot.title.clone(), (MARGIN, 14), text(TITLE)))?;
    let below = legend(plot, area, 14 + TITLE + 12)?;
    let (_, body) = area.split_vertically(below);
    let xs = plot.series.iter().flat_map(|series| series.points.iter().map(|point| point.x));
    let ys =
        plot.series.iter().flat_map(|series| series.points.iter().flat_map(|point| [point.y, point.low, point.high]));
    let has_bars = plot.series.iter().any(|series| series.style == Style::Bars);
    let from_zero = (has_bars && !plot.y.is_logarithmic).then_some(0.0);
    let (x, y) = (Scale::new(&plot.x, xs), Scale::new(&plot.y, ys.chain(from_zero)));
    let upright = is_crowded(plot, area);
    let longest = plot.x.names.iter().map(|name| width(area, name)).max().unwrap_or(0);
    let room = if upright { longest.min(180) + ROOM_BELOW } else { ROOM_BELOW + 14 };
    let mut chart = ChartBuilder::on(&body)
        .margin_right(MARGIN)
        .margin_bottom(8)
        .margin_top(6)
        .x_label_area_size(room)
        .y_label_area_size(76)
        .build_cartesian_2d(x.clone(), y.clone())?;
    let names = if upright {
        text(LETTER).transform(FontTransform::Rotate270).pos(Pos::new(HPos::Right, VPos::Center))
    } else {
        text(LETTER)
    };
    let faint = BLACK.mix(0.15);
    let (at_x, at_y) = (|value: &f64| x.format_ext(value), |value: &f64| y.format_ext(value));
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(BLACK.mix(0.0)).bold_line_style(faint).axis_style(BLACK.mix(0.6));
    mesh.label_style(text(LETTER)).x_label_style(names).y_desc(plot.y.label.as_str()).axis_desc_style(text(LETTER));
    mesh.x_label_formatter(&at_x).y_label_formatter(&at_y);
    if plot.x.names.is_empty() {
        mesh.x_labels(10);
    } else {
        mesh.disable_x_mesh().x_labels(plot.x.names.len());
    }
    if !upright {
        mesh.x_desc(plot.x.label.as_str());
    }
    mesh.y_labels(10).draw()?;
    let bars = plot.series.iter().filter(|series| series.style == Style::Bars).count();
    let mut bar = 0;
    for (number, series) in plot.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        if series.style == Style::Bars {
            draw_bars(&mut chart, series, colour, (bar, bars), y.low())?;
            bar += 1;
        } else {
            draw_points(&mut chart, series, colour)?;
        }
    }
    Ok(())
}

fn width<B: DrawingBackend>(area: &DrawingArea<B, Shift>, text: &str) -> u32 {
    let style: TextStyle<'_> = (FONT, LETTER).into_text_style(area);
    // What cannot be measured is taken for as long as letters are wide on average.
    area.estimate_text_size(text, &style).map_or(text.chars().count() as u32 * 8, |(width, _)| width)
}

/// True if names below the axis would touch each other.
fn is_crowded<B: DrawingBackend>(plot: &Plot, area: &DrawingArea<B, Shift>) -> bool {
    let place = (SIZE.0 - 110) / plot.x.names.len().max(1) as u32;
    plot.x.names.iter().any(|name| width(area, name) + 8 > place)
}

/// A square and a name for each series, in lines below the title. Returns where the next line would be.
fn legend<B: DrawingBackend>(plot: &Plot, area: &DrawingArea<B, Shift>, top: i32) -> Result<i32, Failed<B>> {
    let (mut left, mut top) = (MARGIN, top);
    for (number, series) in plot.series.iter().enumerate() {
        let wide = width(area, &series.name) as i32 + 34;
        if left > MARGIN && left + wide > SIZE.0 as i32 - MARGIN {
            (left, top) = (MARGIN, top + LINE);
        }
        let colour = COLOURS[number % COLOURS.len()];
        area.draw(&Rectangle::new([(left, top + 2), (left + 12, top + 14)], colour.filled()))?;
        area.draw(&Text::new(series.name.clone(), (left + 18, top), (FONT, LETTER).into_font().color(&BLACK)))?;
        left += wide;
    }
    Ok(top + LINE + 4)
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
        chart.draw_series([PathElement::new(line, colour.stroke_width(2))])?;
    } else {
        let spread =
            |point: &Point| PathElement::new(vec![(point.x, point.low), (point.x, point.high)], colour.stroke_width(1));
        chart.draw_series(points.iter().filter(|point| point.low < point.high).map(spread))?;
    }
    chart.draw_series(points.iter().map(|point| Circle::new((point.x, point.y), 4, colour.filled())))?;
    Ok(())
}
