//! Streams: what a file has under one name, and where in the image that lies.

use std::io;
use std::sync::{Arc, LazyLock};

use super::boot::Boot;
use super::record::{Run, runs};
use crate::content::Content;
use crate::entry::MOST_OF_CODERS;
use crate::image::{Budget, CODERS, too_many_coders};
use crate::{Coder, Input, Piece, Step};

/// Clusters of a compression unit, as a power of two, and bytes of one, at most.
const MOST_OF_UNIT: u8 = 16;
const LONGEST_UNIT: u64 = 2 << 20;

/// Parts of the image that what is compressed together may lie in: an index keeps no more.
pub(super) const MOST_PARTS: usize = 32;

/// Bytes for the coder that says that the rest of a file cannot be read.
const OF_REST: usize = 1 << 10;

/// Runs of one stream.
const MOST_RUNS: usize = 1 << 20;

/// Bytes of the budget that a run counts for each time that all of them are gone through: it may be a hole, and a file
/// may have hundreds of thousands of them in three bytes each.
const OF_RUN: u64 = 4;

const ENCRYPTED: &str = "it is encrypted by Windows (EFS), which alone decrypts it";
const NOWHERE: &str = "it lies where it cannot";

/// What a file has under one name.
#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    pub(super) size: u64,
    /// Bytes from the start that were written. Those behind them are zeros.
    written: u64,
    /// Clusters that are compressed together, as a power of two; 0 where nothing is.
    unit: u8,
    is_encrypted: bool,
    place: Place,
    /// Why nobody can tell where some of it lies.
    wrong: Option<&'static str>,
}

#[derive(Debug, Clone)]
enum Place {
    /// In a record: the bytes, and where in the image they lie.
    Inside(Vec<u8>, Vec<(u64, u64)>),
    Runs {
        runs: Vec<Run>,
        clusters: u64,
    },
}

impl Default for Place {
    fn default() -> Self {
        Self::Runs { runs: Vec::new(), clusters: 0 }
    }
}

/// What a part of an attribute says of a value in clusters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent<'r> {
    pub(super) first: u64,
    pub(super) runs: &'r [u8],
    pub(super) unit: u8,
    pub(super) size: u64,
    pub(super) written: u64,
}

impl Stream {
    /// A value in a record, which lies in such parts of the image.
    pub(super) fn inside(value: &[u8], places: Vec<(u64, u64)>, is_encrypted: bool) -> Self {
        let size = value.len() as u64;
        Self { size, written: size, is_encrypted, place: Place::Inside(value.to_vec(), places), ..Self::default() }
    }

    /// Its first part, if it lies in clusters.
    pub(super) fn begin(extent: &Extent<'_>, is_compressed: bool, is_encrypted: bool) -> Self {
        let mut stream = Self { size: extent.size, written: extent.written, is_encrypted, ..Self::default() };
        if is_compressed && extent.unit > 0 {
            stream.unit = extent.unit;
        }
        stream.go_on(extent);
        stream
    }

    /// Adds the next part.
    pub(super) fn go_on(&mut self, extent: &Extent<'_>) {
        let Place::Runs { runs: known, clusters } = &mut self.place else {
            self.wrong = self.wrong.or(Some("some of it is in two places"));
            return;
        };
        if extent.first != *clusters {
            self.wrong = self.wrong.or(Some("nothing tells where some of its parts lie"));
            return;
        }
        for run in runs(extent.runs) {
            let added = run.and_then(|run| {
                let sum = clusters.checked_add(run.count).filter(|_| known.len() < MOST_RUNS);
                Ok((run, sum.ok_or("it lies in too many parts")?))
            });
            match added {
                Ok((run, sum)) => {
                    *clusters = sum;
                    known.push(run);
                }
                Err(what) => {
                    self.wrong = self.wrong.or(Some(what));
                    return;
                }
            }
        }
    }

    /// Its bytes, if they stand in a record.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Inside(bytes, _) if !self.is_encrypted => Some(bytes),
            _ => None,
        }
    }

    /// Clusters that are told.
    pub(super) fn clusters(&self) -> u64 {
        match &self.place {
            Place::Inside(..) => 0,
            Place::Runs { clusters, .. } => *clusters,
        }
    }

    /// Where it lies in an image of `there` bytes.
    pub(super) fn content(&self, boot: &Boot, there: u64, budget: &mut Budget) -> Content {
        if i64::try_from(self.size).is_err() {
            let mut content = Content::new(1);
            content.add_missing(0, 1, "it has a length that cannot be");
            return content;
        }
        let mut content = Content::new(self.size);
        if self.is_encrypted {
            content.add_missing(0, self.size, ENCRYPTED);
            return content;
        }
        match &self.place {
            Place::Inside(_, places) => places.iter().for_each(|&(at, length)| content.add(at, length, there)),
            Place::Runs { runs, .. } => {
                if let Err(error) = budget.take_bytes(OF_RUN.saturating_mul(runs.len() as u64)) {
                    content.add_missing(0, self.size, error.to_string());
                    return content;
                }
                let mut to = Target {
                    content: &mut content,
                    boot,
                    there,
                    written: self.written,
                    budget,
                    coders: Coders::default(),
                };
                if self.unit == 0 {
                    for run in runs {
                        if to.content.left() == 0 {
                            break;
                        }
                        to.run(*run);
                    }
                } else if self.unit > MOST_OF_UNIT || boot.cluster << self.unit > LONGEST_UNIT {
                    to.content.add_missing(0, self.size, "it is compressed in a way that is not known");
                } else {
                    to.units(runs, self.unit);
                }
            }
        }
        if self.wrong.is_none() && content.end() >= self.written {
            let left = content.left();
            content.add_hole(left);
        }
        let left = content.left();
        content.add_missing(0, left, self.wrong.unwrap_or("nothing tells where some of its parts lie"));
        bounded(content)
    }
}

/// The coders of a file's pieces, as they are made: an index keeps no more than so many bytes of them.
#[derive(Default)]
pub(super) struct Coders {
    last: Option<Arc<Coder>>,
    bytes: usize,
}

impl Coders {
    /// Takes that of `piece`, which is that of the piece before where both are alike. False if there is no room for it.
    pub(super) fn take(&mut self, piece: &mut Piece) -> bool {
        match (&self.last, &piece.coder) {
            (Some(last), Some(coder)) if last == coder => piece.coder = Some(Arc::clone(last)),
            (_, Some(coder)) => {
                self.bytes = self.bytes.saturating_add(coder.weight());
                self.last = Some(Arc::clone(coder));
            }
            (_, None) => {}
        }
        self.bytes <= MOST_OF_CODERS.saturating_sub(OF_REST)
    }
}

/// What an index keeps of `content`: of one whose parts are packed in too many ways, the first ones.
pub(super) fn bounded(content: Content) -> Content {
    if too_many_coders(&content.pieces, MOST_OF_CODERS).is_none() {
        return content;
    }
    let whole = too_many_coders(&content.pieces, MOST_OF_CODERS.saturating_sub(OF_REST)).unwrap_or_default();
    let mut kept = Content::new(content.size);
    for piece in content.pieces.into_iter().take(whole) {
        kept.add_hole(piece.hole);
        kept.add_packed(Piece { hole: 0, ..piece });
    }
    let left = kept.left();
    kept.add_missing(0, left, CODERS);
    kept
}

/// The content that is put together.
struct Target<'t> {
    content: &'t mut Content,
    boot: &'t Boot,
    there: u64,
    written: u64,
    budget: &'t mut Budget,
    coders: Coders,
}

impl Target<'_> {
    /// Bytes that were written of the next `length` ones.
    fn written(&self, length: u64) -> u64 {
        length.min(self.written.saturating_sub(self.content.end()))
    }

    /// The byte of the image at which a run begins, if there is such a run.
    fn byte(&self, run: Run) -> Option<u64> {
        let at = run.at?;
        at.checked_add(run.count).filter(|end| *end <= self.boot.clusters)?;
        at.checked_mul(self.boot.cluster)
    }

    /// Nothing behind it can be told: no part has room.
    fn end(&mut self, why: &io::Error) {
        let left = self.content.left();
        self.content.add_missing(0, left, why.to_string());
    }

    /// A run that is stored as it is.
    fn run(&mut self, run: Run) {
        if self.content.left() == 0 {
            return;
        }
        let length = run.count.saturating_mul(self.boot.cluster);
        if run.at.is_none() {
            return self.content.add_hole(length);
        }
        let stored = self.written(length);
        if let Err(error) = self.budget.take_parts(1) {
            return self.end(&error);
        }
        match self.byte(run) {
            Some(at) => self.content.add(at, stored, self.there),
            None => self.content.add_missing(0, stored, NOWHERE),
        }
        self.content.add_hole(length.saturating_sub(stored));
    }

    /// Runs of which each `1 << shift` clusters are compressed by themselves.
    fn units(&mut self, runs: &[Run], shift: u8) {
        let in_unit = 1_u64 << shift;
        let mut runs = runs.iter().copied().filter(|run| run.count > 0);
        let mut next = runs.next();
        let mut parts: Vec<Run> = Vec::new();
        while let Some(run) = next
            && self.content.left() > 0
        {
            // What is not compressed is all there, and may go over many units.
            let whole = run.count & !in_unit.saturating_sub(1);
            if whole > 0 {
                self.run(Run { count: whole, at: run.at });
                next = rest(run, whole).or_else(|| runs.next());
                continue;
            }
            parts.clear();
            let mut left = in_unit;
            while let Some(run) = next.filter(|_| left > 0) {
                let count = run.count.min(left);
                parts.push(Run { count, at: run.at });
                left = left.saturating_sub(count);
                next = rest(run, count).or_else(|| runs.next());
            }
            self.unit(&parts, in_unit);
        }
    }

    /// A unit of so many clusters, which lies in `parts`.
    fn unit(&mut self, parts: &[Run], in_unit: u64) {
        let length = in_unit.saturating_mul(self.boot.cluster);
        let stored = parts.iter().filter(|part| part.at.is_some()).map(|part| part.count).sum::<u64>();
        if stored == 0 {
            return self.content.add_hole(length);
        }
        if stored == in_unit {
            return parts.iter().for_each(|part| self.run(*part));
        }
        let wanted = self.written(length).min(self.content.left());
        if let Err(error) = self.budget.take_parts(parts.len() as u64) {
            return self.end(&error);
        }
        match self.packed(parts, length, wanted) {
            Ok(mut piece) if wanted > 0 => {
                if !self.coders.take(&mut piece) {
                    let left = self.content.left();
                    return self.content.add_missing(0, left, CODERS);
                }
                self.content.add_packed(piece);
            }
            Ok(_) => {}
            Err(why) => self.content.add_missing(0, wanted, why),
        }
        self.content.add_hole(length.saturating_sub(wanted));
    }

    /// The first `wanted` bytes of a unit that is compressed: of its clusters, the first ones hold it.
    fn packed(&self, parts: &[Run], length: u64, wanted: u64) -> Result<Piece, String> {
        let stored = parts.iter().copied().take_while(|part| part.at.is_some());
        if stored.clone().count() != parts.iter().filter(|part| part.at.is_some()).count() {
            return Err("what is compressed has a hole".to_owned());
        }
        let places: Option<Vec<_>> =
            stored.map(|part| Some((self.byte(part)?, part.count.saturating_mul(self.boot.cluster)))).collect();
        let places = places.filter(|places| places.iter().all(|(at, length)| at.saturating_add(*length) <= self.there));
        joined(&places.ok_or(NOWHERE)?, &Packed::LZNT1, length, wanted)
    }
}

/// What is left of a run behind its first `count` clusters.
fn rest(run: Run, count: u64) -> Option<Run> {
    let left = run.count.checked_sub(count).filter(|left| *left > 0)?;
    Some(Run { count: left, at: run.at.map(|at| at.saturating_add(count)) })
}

/// What undoes units that lie in one place: nearly all of them.
static LZNT1: LazyLock<Arc<Coder>> = LazyLock::new(|| {
    let step = Step { codec: Packed::LZNT1.codec.to_owned(), ..Step::default() };
    Arc::new(Coder { steps: vec![step], is_behind_header: None })
});

/// What undoes a compression.
pub(super) struct Packed {
    pub(super) codec: &'static str,
    pub(super) properties: Vec<u8>,
    /// It decodes blocks.
    pub(super) is_block: bool,
}

impl Packed {
    const LZNT1: Self = Self { codec: "lznt1-block", properties: Vec::new(), is_block: true };
}

/// What lies in `places` of the image, of which `length` bytes come and `wanted` are: in one place it is as it is, of
/// several the bytes are joined first.
pub(super) fn joined(places: &[(u64, u64)], packed: &Packed, length: u64, wanted: u64) -> Result<Piece, String> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &(at, length) in places {
        match runs.last_mut().filter(|(start, sum)| start.saturating_add(*sum) == at) {
            Some((_, sum)) => *sum = sum.saturating_add(length),
            None => runs.push((at, length)),
        }
    }
    if runs.len() > MOST_PARTS {
        return Err("what is compressed together lies in too many parts of the image".to_owned());
    }
    let start = runs.iter().map(|(at, _)| *at).min().unwrap_or_default();
    let end = runs.iter().map(|(at, length)| at.saturating_add(*length)).max().unwrap_or_default();
    let stored = end.saturating_sub(start);
    if packed.is_block && runs.len() == 1 {
        let coder = Some(Arc::clone(&LZNT1));
        return Ok(Piece { length: wanted, offset: start, stored, coder, decoded: length, ..Piece::default() });
    }
    let codec = packed.codec.to_owned();
    let steps = if let [_] = runs.as_slice() {
        let (properties, decoded_length) = (packed.properties.clone(), Some(length));
        vec![Step { codec, properties, decoded_length, ..Step::default() }]
    } else {
        let inputs = runs.iter().map(|&(at, length)| Input::Stored { offset: at.saturating_sub(start), length });
        let sum = runs.iter().map(|(_, length)| *length).fold(0, u64::saturating_add);
        let all = Step {
            codec: "copy".to_owned(),
            decoded_length: Some(sum),
            inputs: inputs.collect(),
            properties: Vec::new(),
        };
        let inputs = vec![Input::Step(0)];
        let last = if packed.is_block {
            let properties = [&length.to_le_bytes()[..], packed.codec.as_bytes()].concat();
            Step { codec: "block".to_owned(), properties, decoded_length: Some(wanted), inputs }
        } else {
            Step { codec, properties: packed.properties.clone(), decoded_length: Some(length), inputs }
        };
        vec![all, last]
    };
    // Of a block among other steps, only what is wanted comes.
    let decoded = if packed.is_block { wanted } else { length };
    let coder = Some(Arc::new(Coder { steps, is_behind_header: None }));
    Ok(Piece { length: wanted, offset: start, stored, coder, decoded, ..Piece::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ntfs::boot;

    const CLUSTER: u64 = 4096;

    fn boot() -> Boot {
        boot::parse(&boot::tests::good()).unwrap()
    }

    fn extent(runs: &[u8], size: u64, written: u64) -> Extent<'_> {
        Extent { first: 0, runs, unit: 4, size, written }
    }

    fn content(stream: &Stream) -> Content {
        stream.content(&boot(), 1000 * CLUSTER, &mut Budget::new(1 << 30, 1))
    }

    fn shown(content: &Content) -> Vec<(u64, u64, u64, bool)> {
        content.pieces.iter().map(|one| (one.hole, one.length, one.offset, one.coder.is_some())).collect()
    }

    #[test]
    fn what_was_not_written_is_zeros() {
        // Ten clusters at 100, a hole of five, and five at 90.
        let runs = [0x11, 10, 100, 0x01, 5, 0x11, 5, 0xf6, 0];
        let stream = Stream::begin(&extent(&runs, 20 * CLUSTER - 1, 17 * CLUSTER + 7), false, false);
        let found = content(&stream);
        let expected = [(0, 10 * CLUSTER, 100 * CLUSTER, false), (5 * CLUSTER, 2 * CLUSTER + 7, 90 * CLUSTER, false)];
        assert_eq!((shown(&found), found.size, found.missing), (expected.to_vec(), 20 * CLUSTER - 1, None));
        // All of it, though the runs end before: nothing was written there.
        let stream = Stream::begin(&extent(&runs, 100 * CLUSTER, CLUSTER), false, false);
        assert_eq!(shown(&content(&stream)), [(0, CLUSTER, 100 * CLUSTER, false)]);
        let stream = Stream::begin(&extent(&runs, 100 * CLUSTER, 100 * CLUSTER), false, false);
        assert!(content(&stream).missing.unwrap().contains("nothing tells"));
    }

    #[test]
    fn parts_follow_each_other() {
        let mut stream = Stream::begin(&extent(&[0x11, 10, 100, 0], 12 * CLUSTER, 12 * CLUSTER), false, false);
        stream.go_on(&Extent { first: 10, ..extent(&[0x21, 2, 0x90, 1, 0], 0, 0) });
        let found = content(&stream);
        assert_eq!(shown(&found), [(0, 10 * CLUSTER, 100 * CLUSTER, false), (0, 2 * CLUSTER, 400 * CLUSTER, false)]);
        let mut stream = Stream::begin(&extent(&[0x11, 10, 100, 0], 12 * CLUSTER, 12 * CLUSTER), false, false);
        stream.go_on(&Extent { first: 11, ..extent(&[0x11, 2, 100, 0], 0, 0) });
        assert!(content(&stream).missing.is_some());
        // Behind the last cluster.
        let stream = Stream::begin(&extent(&[0x21, 1, 0xe8, 3, 0], 5, 5), false, false);
        assert_eq!(content(&stream).missing.unwrap(), NOWHERE);
        let stream = Stream::begin(&extent(&[0x11, 1, 1, 0], 5, 5), false, true);
        assert!(content(&stream).missing.unwrap().contains("EFS"));
    }

    /// A file may have hundreds of thousands of runs, and any number of names: where its parts are used up, it ends,
    /// and what is gone through costs each time.
    #[test]
    fn runs_are_paid_for_and_end_with_the_parts() {
        const RUNS: usize = 1000;
        for is_compressed in [false, true] {
            // A cluster and a hole, again and again; of units of two, each is compressed.
            let runs = [0x11, 1, 5, 0x01, 1].repeat(RUNS / 2);
            let size = RUNS as u64 * CLUSTER;
            let one = Extent { unit: 1, ..extent(&runs, size, size) };
            let stream = Stream::begin(&one, is_compressed, false);
            let mut budget = Budget::new(1 << 30, 1);
            budget.parts = 4;
            let before = budget.bytes;
            let found = stream.content(&boot(), 1000 * CLUSTER, &mut budget);
            assert!((3..=5).contains(&found.pieces.len()), "{}", found.pieces.len());
            assert!(found.missing.unwrap().contains("too many parts"));
            assert_eq!(before - budget.bytes, RUNS as u64 * OF_RUN);
            budget.bytes = RUNS as u64 * OF_RUN - 1;
            let found = stream.content(&boot(), 1000 * CLUSTER, &mut budget);
            assert_eq!((found.pieces.len(), found.missing.is_some(), found.left()), (1, true, 0));
        }
    }

    /// A unit in two places has a coder of its own: no more are made than an index keeps.
    #[test]
    fn coders_are_made_as_far_as_there_is_room() {
        const UNITS: u64 = 100_000;
        // From each unit to the next, one cluster on or back; its second cluster lies two or three behind the first.
        let mut runs = vec![0x11, 1, 100];
        for unit in 0..UNITS {
            let (behind, back) = if unit % 2 == 0 { (2, 0xfe) } else { (3, 0xfd) };
            runs.extend([0x11, 1, behind, 0x01, 14, 0x11, 1, back]);
        }
        runs.truncate(runs.len() - 3);
        let size = UNITS * 16 * CLUSTER;
        let found = content(&Stream::begin(&extent(&runs, size, size), true, false));
        assert!((1000..UNITS as usize * 2 / 3).contains(&found.pieces.len()), "{}", found.pieces.len());
        assert_eq!((found.missing.as_deref(), found.size, found.left()), (Some(CODERS), size, 0));
        assert!(too_many_coders(&found.pieces, MOST_OF_CODERS).is_none());
    }

    /// The first unit is compressed to three clusters, the second is stored, the third a hole, and the fourth
    /// compressed to two clusters in two places, of which the later one comes first.
    #[test]
    fn units_are_compressed_each_by_itself() {
        let runs = [0x11, 3, 100, 0x01, 13, 0x11, 16, 10, 0x01, 16, 0x11, 1, 100, 0x11, 1, 0x80, 0x01, 14, 0];
        let size = 63 * CLUSTER + 1;
        let stream = Stream::begin(&extent(&runs, size, size), true, false);
        let found = content(&stream);
        let unit = 16 * CLUSTER;
        let expected = [
            (0, unit, 100 * CLUSTER, true),
            (0, unit, 110 * CLUSTER, false),
            (unit, 15 * CLUSTER + 1, 82 * CLUSTER, true),
        ];
        assert_eq!((shown(&found), found.missing), (expected.to_vec(), None));
        let coder = |number: usize| found.pieces[number].coder.as_ref().unwrap();
        assert_eq!((coder(0).steps.len(), found.pieces[0].stored, found.pieces[0].decoded), (1, 3 * CLUSTER, unit));
        let places = [(128 * CLUSTER, CLUSTER), (0, CLUSTER)];
        assert_eq!(
            coder(2).steps[0].inputs,
            places.map(|(offset, length)| Input::Stored { offset, length }),
            "joined in their order"
        );
        assert_eq!((coder(2).steps[1].codec.as_str(), found.pieces[2].stored), ("block", 129 * CLUSTER));
        // What was not written of the first unit.
        let stream = Stream::begin(&extent(&runs, size, 5), true, false);
        assert_eq!(shown(&content(&stream)), [(0, 5, 100 * CLUSTER, true)]);
        // A hole before what is stored.
        let stream = Stream::begin(&extent(&[0x01, 3, 0x11, 13, 9, 0], unit, unit), true, false);
        assert!(content(&stream).missing.unwrap().contains("hole"));
        let large = Extent { unit: 16, ..extent(&runs, size, size) };
        assert!(content(&Stream::begin(&large, true, false)).missing.unwrap().contains("not known"));
    }
}
