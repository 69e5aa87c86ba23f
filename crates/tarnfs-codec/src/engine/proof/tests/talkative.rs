//! A codec that has much to tell of a chunk while it verifies it.

use super::*;
use crate::StreamChecks;

/// Gives zeros, and has something to tell with each of them while it verifies.
struct Talkative;

struct Talking {
    left: usize,
    tells: bool,
    findings: Findings,
}

impl Decoder for Talking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(1000).min(self.left);
        buffer[..length].fill(0);
        self.left -= length;
        if !self.tells {
            return Ok(length);
        }
        let (compressed, what) = (self.left as u64, "of no byte".to_owned());
        let damage = Damage { decoded: 0..0, lost_from: 0, compressed, compressed_from: compressed, what };
        self.findings.damage.push(damage);
        self.findings.points.push(SeekPoint::default());
        self.findings.shifts.push(compressed);
        let Findings { damage, points, shifts } = &self.findings;
        // As many reads as a piece takes.
        let most = PIECE / 1000 + 10;
        assert!(damage.len() <= most && points.len() <= most && shifts.len() <= most, "{}", damage.len());
        Ok(length)
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

impl Codec for Talkative {
    fn name(&self) -> &'static str {
        "talkative"
    }

    fn first_pass(&self, _: SharedSource, _: &Options) -> io::Result<Box<dyn FirstPass>> {
        Ok(Box::new(Talking { left: LENGTH, tells: true, findings: Findings::default() }))
    }

    fn resume(&self, _: SharedSource, _: &SeekPoint, _: &DecodeContext) -> io::Result<Box<dyn Decoder>> {
        Ok(Box::new(Talking { left: LENGTH, tells: false, findings: Findings::default() }))
    }

    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        Some(self)
    }
}

impl StreamChecks for Talkative {
    fn checks(&self, _: &SeekPoint) -> Checks {
        Checks::Chunk
    }

    fn verified(
        &self,
        source: SharedSource,
        _: &SeekPoint,
        _: Option<u64>,
        options: &Options,
    ) -> io::Result<Box<dyn FirstPass>> {
        self.first_pass(source, options)
    }
}

/// > No archive makes tarnfs crash, hang, or use memory without bound.
#[test]
fn what_is_told_of_a_chunk_while_it_is_verified_is_not_kept() {
    let chunk = Chunk { point: SeekPoint::default(), length: LENGTH as u64, checksums: Vec::new() };
    let foreign = Foreign {
        codec: &Talkative,
        decoded: vec![0; LENGTH],
        stream: vec![0; 10],
        table: Table { chunks: vec![chunk], damage: Vec::new() },
    };
    assert!(foreign.reads(&foreign.open(|_| {}), 10, LENGTH - 10));
}
