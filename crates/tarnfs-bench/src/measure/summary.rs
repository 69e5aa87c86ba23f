/// What several runs gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// In rising order; at least one.
    sorted: Vec<f64>,
}

impl Summary {
    /// `None` without values, or with one that is no number.
    pub fn new(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        if sorted.is_empty() || sorted.iter().any(|value| !value.is_finite()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        Some(Self { sorted })
    }

    /// All of them, in rising order.
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// The one in the middle; of an even number, the mean of both.
    pub fn median(&self) -> f64 {
        let middle = self.sorted.len() / 2;
        if self.sorted.len() % 2 == 1 {
            self.sorted[middle]
        } else {
            f64::midpoint(self.sorted[middle - 1], self.sorted[middle])
        }
    }

    /// The smallest.
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// The largest.
    pub fn max(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// The mean without the outer part on either side (0.1 is a tenth at each end).
    pub fn trimmed_mean(&self, outer: f64) -> f64 {
        let left_out = (self.sorted.len() as f64 * outer.clamp(0.0, 0.49)) as usize;
        let inner = &self.sorted[left_out..self.sorted.len() - left_out];
        inner.iter().sum::<f64>() / inner.len() as f64
    }

    /// Half of what lies between the smallest and the largest, as a part of the median; `None` of one run.
    pub fn spread(&self) -> Option<f64> {
        let half = (self.max() - self.min()) / 2.0;
        (self.sorted.len() > 1 && self.median() != 0.0).then(|| half / self.median().abs())
    }
}

/// In which order so many programs are measured so many times: (run, program). All take their turn in each run, and
/// another one begins, so that what the machine does meanwhile hits all of them.
pub fn in_turn(programs: usize, runs: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..runs).flat_map(move |run| (0..programs).map(move |turn| (run, (run + turn) % programs)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "these are exact")]

    use super::*;

    #[test]
    fn figures_of_runs() {
        let of = |values: &[f64]| Summary::new(values).unwrap();
        let odd = of(&[5.0, 1.0, 2.0]);
        assert_eq!((odd.median(), odd.min(), odd.max(), odd.spread()), (2.0, 1.0, 5.0, Some(1.0)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]).median(), 3.0);
        assert_eq!((of(&[7.0]).median(), of(&[7.0]).spread(), of(&[0.0, 0.0]).spread()), (7.0, None, None));
        let ten: Vec<f64> = (1..=9).map(f64::from).chain([1000.0]).collect();
        assert_eq!(of(&ten).trimmed_mean(0.1), 5.5);
        assert_eq!(of(&[3.0]).trimmed_mean(0.5), 3.0);
        assert_eq!((Summary::new(&[]), Summary::new(&[1.0, f64::NAN])), (None, None));
    }

    #[test]
    fn each_program_has_its_turn_in_each_run() {
        let turns: Vec<_> = in_turn(3, 2).collect();
        assert_eq!(turns, [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 0)]);
        assert_eq!(in_turn(0, 5).count(), 0);
    }
}
