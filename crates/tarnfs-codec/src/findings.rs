//! What a first pass finds beside the bytes.

use crate::{Damage, SeekPoint};

/// Reports of damage that concerns no byte, at one place, that are kept. Streams and frames that hold nothing may stand
/// one behind the other by the million, each with a wrong checksum, and nobody can take what was found before a byte is
/// decoded.
const MOST_AT_ONE_PLACE: usize = 8;

/// What a first pass finds beside the bytes.
#[derive(Debug, Default)]
pub struct Findings {
    /// In ascending order; the first one has `decoded == 0`. A point may only be here once the bytes before it have
    /// been returned by `read`.
    pub points: Vec<SeekPoint>,
    /// Damage that did not end the stream.
    pub damage: Vec<Damage>,
    /// The offsets of decoded bytes before which an unknown number of bytes is missing, or too many came, in ascending
    /// order: whatever begins before such a byte and goes on behind it is out of step there.
    pub shifts: Vec<u64>,
}

impl Findings {
    /// Takes note of damage. Of what concerns no byte only the first few at one place are kept.
    pub(crate) fn report(&mut self, damage: Damage) {
        let is_alike = |other: &&Damage| other.decoded.is_empty() && other.decoded.start == damage.decoded.start;
        let is_one_of_many =
            damage.decoded.is_empty() && self.damage.iter().rev().take_while(is_alike).count() >= MOST_AT_ONE_PLACE;
        if !is_one_of_many {
            self.damage.push(damage);
        }
    }

    /// Takes what was found in a stream that begins at these bytes of ours.
    pub(crate) fn take_moved(&mut self, from: &mut Self, decoded: u64, compressed: u64) {
        self.points.extend(from.points.drain(..).map(|point| SeekPoint {
            compressed_bit: point.compressed_bit.saturating_add(compressed.saturating_mul(8)),
            decoded: point.decoded.saturating_add(decoded),
            state: point.state,
        }));
        self.damage.extend(from.damage.drain(..).map(|damage| damage.moved(decoded, compressed)));
        self.shifts.extend(from.shifts.drain(..).map(|shift| shift.saturating_add(decoded)));
    }

    /// Takes note that what lies behind the decoded byte `at` may be out of step.
    pub(crate) fn shift(&mut self, at: u64) {
        if self.shifts.last() != Some(&at) {
            self.shifts.push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{source, tool};
    use crate::{Options, by_name};

    /// The stream that a tool makes of nothing, with another value of this byte, from the end.
    fn empty(command: &str, from_end: usize) -> Vec<u8> {
        let mut stream = tool(command, b"");
        let at = stream.len() - from_end;
        stream[at] ^= 1;
        stream
    }

    #[test]
    fn what_is_wrong_with_streams_of_nothing_takes_no_memory() {
        let sized = [0x68, 0x40, 5, 0, 0, 0, 0, 0, 0, 0];
        let header_checksum = (xxhash_rust::xxh32::xxh32(&sized, 0) >> 8) as u8;
        // Of lrzip: a chunk of two streams that hold nothing but the end and a CRC-32. Of snappy: a stored chunk.
        let lrzip = [&b"LRZI\x00\x06"[..], &[0; 18]].concat();
        let chunk = |is_last| [1, is_last, 0, 3, 0, 0, 8, 3, 0, 0, 0, 3, 7, 7, 0, 0, 0, 0, 1, 2, 3, 4];
        let chunks = [lrzip, chunk(0).repeat(999), chunk(1).to_vec()].concat();
        let snappy = [&b"\xff\x06\0\0sNaPpY"[..], &[1, 4, 0, 0, 1, 2, 3, 4]].concat();
        // A file of lzop that holds nothing has only the checksum of its header, without which nothing is read.
        for (codec, bytes) in [
            ("bzip2", empty("bzip2 -c", 1).repeat(1000)),
            ("gzip", empty("gzip -nc", 5).repeat(1000)),
            ("lrzip", chunks),
            ("lz4", empty("lz4 -qc", 1).repeat(1000)),
            // The length that the header says: all behind it may be out of step.
            ("lz4", [&b"\x04\x22\x4d\x18"[..], &sized, &[header_checksum], &[0; 4]].concat().repeat(1000)),
            ("lzip", empty("lzip -qc", 16).repeat(1000)),
            ("snappy", snappy.repeat(1000)),
            // The padding of the index.
            ("xz", empty("xz -qc", 17).repeat(1000)),
            ("zstd", empty("zstd -qc", 1).repeat(1000)),
        ] {
            for threads in [1, 3] {
                let options = Options { threads, ..Options::default() };
                let mut pass = by_name(codec).unwrap().first_pass(source(&bytes), &options).unwrap();
                let read = pass.read(&mut [0; 10]);
                assert!(matches!(read, Ok(0)), "{codec}: {read:?}");
                let findings = pass.findings().unwrap();
                let (damage, shifts) = (findings.damage.len(), findings.shifts.len());
                assert!((1..=MOST_AT_ONE_PLACE).contains(&damage) && shifts <= 1, "{codec}: {damage}, {shifts}");
            }
        }
    }

    #[test]
    fn damage_of_bytes_is_kept_whatever_is_beside_it() {
        let damage = |decoded: std::ops::Range<u64>| {
            let (lost_from, what) = (decoded.end, "a test".to_owned());
            Damage { decoded, lost_from, compressed: 1, compressed_from: 1, what }
        };
        let mut findings = Findings::default();
        for at in 0..100 {
            findings.report(damage(at..at + 1));
            findings.report(damage(at + 1..at + 1));
        }
        assert_eq!(findings.damage.len(), 200);
        for _ in 0..100 {
            findings.report(damage(100..100));
            findings.shift(100);
        }
        assert_eq!((findings.damage.len(), findings.shifts.len()), (200 + MOST_AT_ONE_PLACE - 1, 1));
        findings.report(damage(100..101));
        assert_eq!(findings.damage.len(), 200 + MOST_AT_ONE_PLACE);
    }
}
