//! A plot as a picture, drawn by the plotters library: SVG, which follows the colours of a page that it stands in, and
//! PNG. Letters are those of a font that is compiled in, so a picture looks the same everywhere.

mod chart;
mod scale;

use std::sync::Once;

use plotters::prelude::{BitMapBackend, IntoDrawingArea, SVGBackend, WHITE};
use plotters::style::{FontStyle, register_font};

use chart::Canvas;

use super::Plot;
use crate::Error;

/// Size of a picture, in the pixels of a page.
const SIZE: (u32, u32) = (960, 540);

/// How many pixels of PNG are one of these: letters have no edges then.
const FINER: u32 = 2;

/// What the letters are called, here and in SVG.
const FONT: &str = "sans-serif";

/// DejaVu Sans, with the letters of Latin alphabets.
static LETTERS: &[u8] = include_bytes!("../../../font/DejaVuSans.ttf");

fn with_letters() {
    static ONCE: Once = Once::new();
    // If they were no font, drawing would fail below.
    ONCE.call_once(|| drop(register_font(FONT, FontStyle::Normal, LETTERS)));
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Other(format!("cannot draw a plot: {error}"))
}

/// A picture of its own, on white.
pub(super) fn svg(plot: &Plot) -> Result<String, Error> {
    with_letters();
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        Canvas { area: &area, scale: 1 }.draw(plot).map_err(failed)?;
        area.present().map_err(failed)?;
    }
    Ok(text)
}

/// A picture without ground, whose lines and letters have the colour of the page's own.
pub(super) fn svg_in_page(plot: &Plot) -> Result<String, Error> {
    with_letters();
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        Canvas { area: &area, scale: 1 }.draw(plot).map_err(failed)?;
        area.present().map_err(failed)?;
    }
    Ok(text.replace("\"#000000\"", "\"currentColor\""))
}

/// A picture of pixels, on white.
pub(super) fn png(plot: &Plot) -> Result<Vec<u8>, Error> {
    with_letters();
    let (width, height) = (SIZE.0 * FINER, SIZE.1 * FINER);
    let mut pixels = vec![0; width as usize * height as usize * 3];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        Canvas { area: &area, scale: FINER }.draw(plot).map_err(failed)?;
        area.present().map_err(failed)?;
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}
