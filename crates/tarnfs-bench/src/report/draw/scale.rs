//! Numbers along one side of a plot.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::super::Axis;
use super::super::words::number;

/// Places of numbers, or of names, between two ends.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    names: Vec<String>,
}

impl Scale {
    /// Ends that have room for all `values`, of which there is one.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) =
            values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if !axis.names.is_empty() {
            (low, high) = (-0.5, axis.names.len() as f64 - 0.5);
        } else if axis.is_logarithmic {
            // At least one decade, so that there is a number to be read on each side.
            let room = ((high / low).log10() * 0.05).max(0.05);
            (low, high) = (low / 10_f64.powf(room), high * 10_f64.powf(room));
            if high / low < 10.0 {
                (low, high) = (10_f64.powf(low.log10().floor()), 10_f64.powf(high.log10().ceil()));
            }
        } else {
            // From 0, where most of the plot is not below the lowest value then.
            if low > 0.0 && low < high * 0.7 || high <= low {
                low = low.min(0.0);
            }
            let room = (high - low) * 0.05;
            let is_from_zero = low == 0.0;
            high += if high > low { room } else { 1.0 };
            low -= if is_from_zero { 0.0 } else { room };
        }
        Self { low, high, is_logarithmic: axis.is_logarithmic, names: axis.names.clone() }
    }

    pub(super) fn low(&self) -> f64 {
        self.low
    }

    /// Steps of 1, 2 or 5 times a power of ten, not more than `most`.
    fn steps(&self, most: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / most.max(1) as f64;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|&step| step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|times| times as f64 * step).take_while(|&value| value <= self.high).take(100).collect()
    }

    /// Powers of ten, not more than `most`; with 2 and 5 times these where there are few.
    fn decades(&self, most: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let apart = ((last - first) as usize / most.max(1) + 1) as i32;
        let times: &[f64] = if last - first <= 3 && most >= 6 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let powers = (first..=last).filter(|power| power % apart == 0);
        let all = powers.flat_map(|power| times.iter().map(move |times| times * 10_f64.powi(power)));
        all.filter(|value| (self.low..=self.high).contains(value)).collect()
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let part = if self.is_logarithmic {
            (value / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        start + (f64::from(end - start) * part.clamp(-0.1, 1.1)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let most = hint.max_num_points();
        match self.names.len() {
            0 if self.is_logarithmic => self.decades(most),
            0 => self.steps(most),
            names => (0..names).map(|at| at as f64).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        match self.names.get(value.round().max(0.0) as usize) {
            Some(name) if (value.round() - value).abs() < 1e-9 => name.clone(),
            Some(_) => String::new(),
            None => rounded(*value),
        }
    }
}

/// A number on an axis: large ones with the letter of a thousand, a million, ...
fn rounded(value: f64) -> String {
    // What is left of 0.1 + 0.2 - 0.3.
    let value = if value.abs() < 1e-12 { 0.0 } else { (value * 1e9).round() / 1e9 };
    let short = |number: f64| {
        let text = format!("{number:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value.abs() {
        1e9.. => short(value / 1e9) + "G",
        1e6.. => short(value / 1e6) + "M",
        1e4.. => short(value / 1e3) + "k",
        0.001.. => short(value),
        _ => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_numbers_to_read() {
        let linear = Scale::new(&Axis::linear(""), [3.0, 98.0].into_iter());
        assert_eq!(linear.steps(6), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let near = Scale::new(&Axis::linear(""), [98.0, 99.0].into_iter());
        assert!(near.low() > 90.0 && near.steps(5).len() >= 2, "{near:?}");
        for value in [0.0, 5.0, -5.0] {
            let one = Scale::new(&Axis::linear(""), [value].into_iter());
            assert!(one.steps(5).len() >= 2 && one.range().contains(&value), "{one:?}");
        }
        let wide = Scale::new(&Axis::logarithmic(""), [0.002, 300.0].into_iter());
        assert_eq!(wide.decades(10), [0.01, 0.1, 1.0, 10.0, 100.0]);
        let narrow = Scale::new(&Axis::logarithmic(""), [3.0].into_iter());
        assert_eq!(narrow.decades(10), [1.0, 2.0, 5.0, 10.0]);
        let shown: Vec<_> = [0.0, 0.002, 0.5, 20.0, 1500.0, 20000.0, 2.5e6, 3e9, 1e-6].map(rounded).to_vec();
        assert_eq!(shown, ["0", "0.002", "0.5", "20", "1500", "20k", "2.5M", "3G", "1.00e-6"]);
    }
}
