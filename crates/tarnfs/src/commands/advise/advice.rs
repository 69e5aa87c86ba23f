//! Which of those that were measured is the best at what.

use super::measure::{Measured, Results};
use crate::args::Purpose;

/// What is advised.
pub(super) struct Advice {
    pub(super) size: Measured,
    pub(super) speed: Measured,
    pub(super) access: Measured,
    pub(super) all: Measured,
    /// What makes it smallest, whether that is advised or not.
    pub(super) best: Measured,
    /// It becomes smaller at all.
    pub(super) is_worth_it: bool,
}

/// What becomes no shorter than that is better left as it is.
const WORTH: f64 = 0.97;
/// What is larger by no more than this is as small.
const AS_SMALL: f64 = 1.01;
/// What takes no longer than so many times the least is as quick.
const AS_QUICK: f64 = 1.25;
/// And what takes no longer than that, in seconds: nobody sees it.
const AT_ONCE: f64 = 1e-3;
/// How often an archive is copied and decoded for each time that it is made, and bytes that are copied in a second.
const TIMES: f64 = 10.0;
const COPIED: f64 = 100e6;

/// The one with the least `value`.
fn least<'a>(among: impl Iterator<Item = &'a Measured>, value: impl Fn(&Measured) -> f64) -> Option<&'a Measured> {
    among.min_by(|one, other| value(one).total_cmp(&value(other)))
}

impl Advice {
    /// Of what was measured; `None` if that is nothing.
    pub(super) fn of_results(results: &Results, threads: usize) -> Option<Self> {
        let all = || results.measured.iter();
        // That nothing gets smaller can only be said where something was tried.
        if all().all(Measured::is_plain) {
            return None;
        }
        let best = least(all(), |one| one.ratio)?;
        let plain = all().find(|one| one.is_plain()).unwrap_or(best);
        if best.ratio > WORTH {
            let plain = || plain.clone();
            let best = best.clone();
            return Some(Self {
                size: plain(),
                speed: plain(),
                access: plain(),
                all: plain(),
                best,
                is_worth_it: false,
            });
        }
        let worth = || all().filter(|one| one.ratio <= WORTH);
        let size = least(worth().filter(|one| one.ratio <= best.ratio * AS_SMALL), |one| 1.0 / one.rate)?;
        let speed = least(worth(), |one| 1.0 / one.rate)?;
        let access = (least(worth(), |one| one.access)?.access * AS_QUICK).max(AT_ONCE);
        let access = least(worth().filter(|one| one.access <= access), |one| one.ratio)?;
        let cost = |one: &Measured| 1.0 / one.rate + TIMES * (one.ratio / COPIED + 1.0 / (one.decode * threads as f64));
        let all = least(worth(), cost)?;
        Some(Self {
            size: size.clone(),
            speed: speed.clone(),
            access: access.clone(),
            all: all.clone(),
            best: best.clone(),
            is_worth_it: true,
        })
    }

    /// The one for that.
    pub(super) fn of(&self, purpose: Purpose) -> &Measured {
        match purpose {
            Purpose::Size => &self.size,
            Purpose::Speed => &self.speed,
            Purpose::Access => &self.access,
            Purpose::All => &self.all,
        }
    }
}

#[cfg(test)]
mod tests {
    use tarnfs_write::compress::COMPRESSIONS;

    use super::*;

    /// In MB/s and ms.
    fn measured(name: &str, (ratio, rate, decode, access): (f64, f64, f64, f64)) -> Measured {
        let compression = *COMPRESSIONS.iter().find(|one| one.name() == name).unwrap();
        let (rate, decode, access) = (rate * 1e6, decode * 1e6, access / 1e3);
        let level = compression.usual_level();
        Measured { compression, level, ratio, rate, threads: 2, decode, access, tried: 1, is_estimated: false }
    }

    fn names(measured: &[Measured]) -> Vec<&'static str> {
        let results = Results { measured: measured.to_vec(), ..Results::default() };
        let advice = Advice::of_results(&results, 2).unwrap();
        let purposes = [Purpose::Size, Purpose::Speed, Purpose::Access, Purpose::All];
        purposes.iter().map(|purpose| advice.of(*purpose).compression.name()).collect()
    }

    #[test]
    fn each_is_best_at_what_it_is_for() {
        let text = [
            measured("none", (1.0, 9000.0, f64::INFINITY, 0.05)),
            measured("bzip2", (0.201, 40.0, 40.0, 12.0)),
            measured("gzip", (0.3, 90.0, 400.0, 0.6)),
            measured("lz4", (0.5, 900.0, 2000.0, 0.7)),
            measured("xz", (0.2, 8.0, 100.0, 40.0)),
            measured("zstd", (0.25, 300.0, 900.0, 2.5)),
        ];
        // bzip2 is as small as xz, and quicker; gzip is smaller than lz4, and as quick to get at a file.
        assert_eq!(names(&text), ["bzip2", "lz4", "gzip", "zstd"]);
        let noise: Vec<_> = text.iter().map(|one| Measured { ratio: 1.0, ..one.clone() }).collect();
        assert_eq!(names(&noise), ["none"; 4]);
        assert!(Advice::of_results(&Results::default(), 2).is_none());
    }
}
