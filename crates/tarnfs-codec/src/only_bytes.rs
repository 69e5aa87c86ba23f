//! A stream from its start to its end, for who wants nothing but its bytes.

use std::io;

use crate::{Damage, FirstPass, SeekPoint};

/// Decodes a stream from its start. What its first pass finds beside the bytes is dropped as it comes, but for the
/// first damage: a short stream can have any number of seek points and of damaged frames, and nobody else takes them.
pub struct OnlyBytes {
    pass: Box<dyn FirstPass>,
    points: Vec<SeekPoint>,
    shifts: Vec<u64>,
    found: Vec<Damage>,
    damage: Option<Damage>,
}

impl OnlyBytes {
    /// Of a pass that has read nothing yet.
    pub fn new(pass: Box<dyn FirstPass>) -> Self {
        Self { pass, points: Vec::new(), shifts: Vec::new(), found: Vec::new(), damage: None }
    }

    /// As [`Decoder::read`](crate::Decoder::read).
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.pass.read(buffer);
        self.pass.take_points(&mut self.points);
        self.points.clear();
        self.pass.take_shifts(&mut self.shifts);
        self.shifts.clear();
        self.pass.take_damage(&mut self.found);
        let first = self.found.drain(..).next();
        self.damage = self.damage.take().or(first);
        read
    }

    /// What was found first to be wrong with it, also of what concerns no byte.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }
}

impl std::fmt::Debug for OnlyBytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OnlyBytes").field("damage", &self.damage).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, Findings};

    /// Gives so many zeros, each with a point, damage and a shift.
    struct Talking {
        left: u64,
        findings: Findings,
    }

    impl Decoder for Talking {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Findings { points, damage, shifts } = &self.findings;
            assert!(points.is_empty() && damage.is_empty() && shifts.is_empty(), "nobody has taken it");
            if self.left == 0 || buffer.is_empty() {
                return Ok(0);
            }
            buffer[0] = 0;
            let at = self.left;
            self.left -= 1;
            let (decoded, what) = (at..at + 1, "a test".to_owned());
            self.findings.report(Damage { decoded, lost_from: at, compressed: at, compressed_from: at, what });
            self.findings.points.push(SeekPoint::default());
            self.findings.shift(at);
            Ok(1)
        }

        fn memory(&self) -> usize {
            0
        }
    }

    impl FirstPass for Talking {
        fn findings(&mut self) -> Option<&mut Findings> {
            Some(&mut self.findings)
        }

        fn compressed_position(&self) -> u64 {
            0
        }
    }

    #[test]
    fn what_is_found_beside_the_bytes_takes_no_memory() {
        let mut only = OnlyBytes::new(Box::new(Talking { left: 1000, findings: Findings::default() }));
        let mut bytes = 0;
        while only.read(&mut [0; 10]).unwrap() > 0 {
            bytes += 1;
        }
        assert_eq!((bytes, only.damage().map(|damage| damage.compressed)), (1000, Some(1000)));
        let Findings { points, damage, shifts } = only.pass.findings().unwrap();
        assert!(points.is_empty() && damage.is_empty() && shifts.is_empty());
        assert!([only.points.capacity(), only.shifts.capacity(), only.found.capacity()].iter().all(|&kept| kept < 100));
    }
}
