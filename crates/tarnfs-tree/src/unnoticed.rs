//! What a codec makes of damaged input without noticing it. Its first pass was given bytes that nobody can read any
//! more, or that were wrong, and where nothing in the format tells, all that it has decoded from there on may be wrong.
//! So may the states of later seek points, though the input behind them is right.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use tarnfs_codec::{Checks, Chunk, ChunkTable, Codec, Damage, SeekPoint};

/// Damaged places in a row that a codec has noticed, of which each is looked at. Behind more all counts as damaged.
const MOST_NOTICED: usize = 256;

/// Damaged input that nobody has noticed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unnoticed {
    /// The byte of the input.
    pub(crate) byte: u64,
    /// Where the chunk ends that is decoded from it, in decoded bytes.
    pub(crate) end: u64,
}

/// The first damaged byte of the input of `codec` that its first pass, which has made `table`, has not noticed.
/// `damaged` gives the first damaged byte from a place on.
pub(crate) fn first_unnoticed(
    codec: &dyn Codec,
    table: &dyn ChunkTable,
    damaged: &dyn Fn(u64) -> io::Result<Option<u64>>,
) -> io::Result<Option<Unnoticed>> {
    let (mut from, mut noticed) = (0, 0);
    while let Some(byte) = damaged(from)? {
        let Some(chunk) = chunk_of(table, byte)? else { return Ok(None) };
        let end = chunk.point.decoded.saturating_add(chunk.length);
        let begins_behind = chunk.point.compressed_bit / 8 > byte;
        let known = noticed_in(codec, table, &chunk)?.filter(|_| noticed < MOST_NOTICED);
        let Some(known) = known else {
            // The header before the first chunk says how all of it is decoded.
            return Ok(Some(Unnoticed { byte, end: if begins_behind { 0 } else { end } }));
        };
        noticed += 1;
        let next = known.decoded.end.max(end);
        let Some(next) = table.chunk_at(next)? else { return Ok(None) };
        from = (next.point.compressed_bit / 8).max(byte.saturating_add(1));
    }
    Ok(None)
}

/// What says that a first pass has noticed damage of the bytes from which `codec` has decoded `chunk`, if it has.
pub(crate) fn noticed_in(codec: &dyn Codec, table: &dyn ChunkTable, chunk: &Chunk) -> io::Result<Option<Damage>> {
    let start = chunk.point.decoded;
    let end = start.saturating_add(chunk.length);
    // A block that is verified by itself may have left nothing but a gap. Of all else it is not known from where on
    // it is wrong: the start of the chunk has to be damaged, too.
    // Where the next chunk begins with a member, all before it was compared.
    let is_compared =
        codec.compares_members() && table.chunk_at(end)?.is_none_or(|next| codec.settles(&next.point) == Checks::Chunk);
    table.damage_in(if codec.settles(&SeekPoint::default()) == Checks::Itself {
        start..end.saturating_add(1)
    } else if is_compared {
        start..end
    } else {
        start..start.saturating_add(1)
    })
}

/// The last chunk that begins at this byte of the input or before it, or the first one; `None` if there is none.
fn chunk_of(table: &dyn ChunkTable, byte: u64) -> io::Result<Option<Chunk>> {
    let Some(mut found) = table.chunk_at(0)? else { return Ok(None) };
    let (mut low, mut high) = (found.point.decoded.saturating_add(found.length), table.decoded_length());
    while low < high {
        let middle = low.midpoint(high);
        let Some(chunk) = table.chunk_at(middle)? else { return Ok(Some(found)) };
        if chunk.point.compressed_bit / 8 <= byte {
            low = chunk.point.decoded.saturating_add(chunk.length).max(middle.saturating_add(1));
            found = chunk;
        } else {
            high = chunk.point.decoded.min(middle);
        }
    }
    Ok(Some(found))
}

/// Where the chunks of a stream begin whose table is being made.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// Of each chunk: the decoded byte, and the first byte of the input that nothing before it was decoded from.
    chunks: Vec<(u64, u64)>,
}

impl Starts {
    /// Chunks that are kept, each in 16 bytes. Those behind them count for the last one.
    const MOST: usize = 1 << 16;

    /// Forgets all, for another stream.
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
    }

    /// The chunk that comes next begins there.
    pub(crate) fn add(&mut self, point: &SeekPoint) {
        if self.chunks.len() < Self::MOST {
            self.chunks.push((point.decoded, point.compressed_bit.div_ceil(8)));
        }
    }

    /// From which byte on what `codec` has decoded may be wrong, as some of its input is `damaged` and its first pass
    /// has not noticed that. `is_known` says of a decoded byte that it is known to be damaged.
    pub(crate) fn wrong_from(
        &self,
        codec: &dyn Codec,
        damaged: impl Iterator<Item = Range<u64>>,
        is_known: &dyn Fn(u64) -> bool,
    ) -> Option<u64> {
        // These compare all bytes with a checksum: what they have not noticed is not there.
        if codec.compares_members() || codec.settles(&SeekPoint::default()) == Checks::Itself {
            return None;
        }
        let of_place = |(number, place): (usize, Range<u64>)| {
            let behind = self.chunks.partition_point(|&(_, byte)| byte <= place.start);
            // The header before the first chunk says how all of it is decoded.
            let Some(first) = behind.checked_sub(1) else { return Some(0) };
            let mut inside = self.chunks.iter().skip(first).take_while(|&&(_, byte)| byte < place.end);
            // As of a table: the start of each chunk has to be known to be damaged.
            let unknown = inside.find(|&&(decoded, _)| number >= MOST_NOTICED || !is_known(decoded));
            unknown.map(|&(decoded, _)| decoded)
        };
        damaged.enumerate().filter_map(of_place).min()
    }
}

/// The first damaged byte in `range` of a stream; `damage_in` says whether there is one in a part of it.
pub(crate) fn first_damaged(
    damage_in: &dyn Fn(Range<u64>) -> io::Result<bool>,
    range: Range<u64>,
) -> io::Result<Option<u64>> {
    if range.is_empty() || !damage_in(range.clone())? {
        return Ok(None);
    }
    // None before `low`, one before `high`.
    let (mut low, mut high) = (range.start, range.end);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if damage_in(range.start..middle)? { high = middle } else { low = middle }
    }
    Ok(Some(low))
}

/// The table of a stream of which all from some byte on was decoded from what is damaged.
#[derive(Debug)]
pub(crate) struct Behind {
    table: Arc<dyn ChunkTable>,
    from: u64,
    /// True if what it was decoded from is lost, and not only unverified.
    is_lost: bool,
}

impl Behind {
    /// The `table` of a stream that lies at `part` of one whose table is `around`, with all damage that comes of that.
    pub(crate) fn of(
        codec: &dyn Codec,
        table: Arc<dyn ChunkTable>,
        around: &dyn ChunkTable,
        part: &Range<u64>,
    ) -> io::Result<Arc<dyn ChunkTable>> {
        let damage_in = |range: Range<u64>| Ok(around.damage_in(range)?.is_some());
        if !damage_in(part.clone())? {
            return Ok(table);
        }
        let damaged = |from: u64| {
            let found = first_damaged(&damage_in, part.start.saturating_add(from)..part.end)?;
            Ok(found.map(|byte| byte - part.start))
        };
        let Some(Unnoticed { end: from, .. }) = first_unnoticed(codec, &*table, &damaged)? else { return Ok(table) };
        let is_lost = around.lost_in(part.clone())?.is_some();
        Ok(Arc::new(Self { table, from, is_lost }))
    }

    fn damage(&self, decoded: Range<u64>) -> Option<Damage> {
        let all = self.from..self.decoded_length();
        let is_in = !decoded.is_empty() && decoded.end > all.start && decoded.start < all.end;
        is_in.then(|| Damage {
            lost_from: if self.is_lost { all.start } else { all.end },
            decoded: all,
            compressed: 0,
            compressed_from: 0,
            what: "what comes before it was decoded from damaged data".to_owned(),
        })
    }
}

impl ChunkTable for Behind {
    fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
        self.table.chunk_at(decoded)
    }

    fn decoded_length(&self) -> u64 {
        self.table.decoded_length()
    }

    fn damage_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>> {
        let known = self.table.damage_in(decoded.clone())?;
        Ok(known.or_else(|| self.damage(decoded)))
    }

    fn lost_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>> {
        let known = self.table.lost_in(decoded.clone())?;
        Ok(known.or_else(|| self.damage(decoded).filter(|_| self.is_lost)))
    }

    fn longest(&self) -> io::Result<Option<u64>> {
        self.table.longest()
    }

    fn has_checksums(&self) -> bool {
        self.table.has_checksums()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of 100 bytes, each decoded from 10, and what is known to be damaged.
    #[derive(Debug, Default)]
    struct Hundreds {
        chunks: u64,
        damage: Vec<Range<u64>>,
        is_lost: bool,
    }

    impl ChunkTable for Hundreds {
        fn chunk_at(&self, decoded: u64) -> io::Result<Option<Chunk>> {
            let number = decoded / 100;
            let point = SeekPoint { compressed_bit: (number * 10 + 5) * 8 + 3, decoded: number * 100, state: vec![1] };
            Ok((number < self.chunks).then_some(Chunk { point, length: 100, checksums: Vec::new() }))
        }

        fn decoded_length(&self) -> u64 {
            self.chunks * 100
        }

        fn damage_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>> {
            let is_in = |damage: &&Range<u64>| damage.start < decoded.end && damage.end > decoded.start;
            let found = self.damage.iter().filter(|_| !decoded.is_empty()).find(is_in).cloned();
            let of = |decoded: Range<u64>| {
                let lost_from = if self.is_lost { decoded.start } else { decoded.end };
                Damage { lost_from, decoded, compressed: 1, compressed_from: 1, what: "known".to_owned() }
            };
            Ok(found.map(of))
        }

        fn lost_in(&self, decoded: Range<u64>) -> io::Result<Option<Damage>> {
            Ok(self.damage_in(decoded)?.filter(|_| self.is_lost))
        }
    }

    type Case = (&'static str, &'static [Range<u64>], &'static [u64], Option<(u64, u64)>);
    type Wrong = (&'static str, &'static [Range<u64>], &'static [Range<u64>], Option<u64>);

    fn named(codec: &str) -> &'static dyn Codec {
        tarnfs_codec::by_name(codec).unwrap()
    }

    #[allow(clippy::single_range_in_vec_init, reason = "it is one place that is damaged")]
    #[test]
    fn damage_counts_up_to_the_end_unless_the_codec_has_noticed_it() {
        // What is known of the stream, which input is damaged, and which of that was not noticed.
        let cases: [Case; 11] = [
            ("lz4", &[], &[], None),
            ("lz4", &[], &[37], Some((37, 400))),
            ("lz4", &[], &[35], Some((35, 400))),
            ("lz4", &[], &[34], Some((34, 300))),
            // Before the first chunk, and in the last one.
            ("lz4", &[], &[2], Some((2, 0))),
            ("lz4", &[], &[999], Some((999, 1000))),
            // All of it was noticed, the first place was, and a part of the chunk was.
            ("lz4", &[200..500], &[37], None),
            ("lz4", &[200..500], &[37, 38, 60], Some((60, 600))),
            ("lz4", &[350..500], &[37], Some((37, 400))),
            ("bzip2", &[350..500], &[37], None),
            // A gap behind the last block that was right.
            ("bzip2", &[400..401], &[37], None),
        ];
        for (codec, known, damaged, unnoticed) in cases {
            let table = Hundreds { chunks: 10, damage: known.to_vec(), is_lost: false };
            let next = |from: u64| Ok(damaged.iter().copied().find(|&byte| byte >= from));
            let found = first_unnoticed(named(codec), &table, &next).unwrap();
            assert_eq!(found.map(|found| (found.byte, found.end)), unnoticed, "{codec} {known:?} {damaged:?}");
        }
        assert_eq!(first_unnoticed(named("lz4"), &Hundreds::default(), &|_| Ok(Some(0))).unwrap(), None);
    }

    #[allow(clippy::single_range_in_vec_init, reason = "it is one place that is damaged")]
    #[test]
    fn what_is_decoded_is_wrong_from_the_chunk_on_whose_damaged_input_was_not_noticed() {
        // Chunks of 100 bytes, each decoded from 10 behind a header of 5 bytes and 3 bits. What is known of the stream,
        // which input is damaged, and from where on what is decoded may be wrong.
        let cases: [Wrong; 14] = [
            ("lz4", &[], &[], None),
            ("lz4", &[], &[37..38], Some(300)),
            ("lz4", &[], &[36..37], Some(300)),
            // Some bits of this byte belong to the chunk before.
            ("lz4", &[], &[35..36], Some(200)),
            ("lz4", &[], &[0..1], Some(0)),
            ("lz4", &[], &[999..1000], Some(900)),
            ("lz4", &[200..500], &[37..38], None),
            ("lz4", &[200..500], &[37..47], None),
            ("lz4", &[200..500], &[37..60], Some(500)),
            ("lz4", &[200..500], &[37..38, 60..61], Some(500)),
            ("lz4", &[], &[37..38, 20..60], Some(100)),
            ("lz4", &[350..500], &[37..38], Some(300)),
            ("bzip2", &[], &[37..38], None),
            ("gzip", &[], &[37..38], None),
        ];
        for (codec, known, damaged, expected) in cases {
            let mut starts = Starts::default();
            let table = Hundreds { chunks: 10, ..Hundreds::default() };
            (0..10).for_each(|number| starts.add(&table.chunk_at(number * 100).unwrap().unwrap().point));
            let is_known = |decoded: u64| known.iter().any(|known| known.contains(&decoded));
            let found = starts.wrong_from(named(codec), damaged.iter().cloned(), &is_known);
            assert_eq!(found, expected, "{codec} {known:?} {damaged:?}");
            starts.clear();
            let found = starts.wrong_from(named(codec), damaged.iter().cloned(), &is_known);
            assert_eq!(found, (codec == "lz4" && !damaged.is_empty()).then_some(0));
        }
    }

    #[allow(clippy::single_range_in_vec_init, reason = "it is one place that is damaged")]
    #[test]
    fn what_lies_behind_damage_is_damaged() {
        for is_lost in [false, true] {
            let table = || Arc::new(Hundreds { chunks: 10, ..Hundreds::default() }) as Arc<dyn ChunkTable>;
            let around = Hundreds { chunks: 100, damage: vec![1030..1040, 3000..3001], is_lost };
            let of = |part: Range<u64>| Behind::of(named("lz4"), table(), &around, &part).unwrap();
            let from = |table: &dyn ChunkTable| {
                first_damaged(&|range| Ok(table.damage_in(range)?.is_some()), 0..table.decoded_length()).unwrap()
            };
            assert_eq!(from(&*of(1000..1100)), Some(300));
            assert_eq!((from(&*of(1040..1100)), from(&*of(5000..5100))), (None, None));
            let behind = of(1000..1100);
            assert_eq!((behind.damage_in(299..300).unwrap(), behind.damage_in(400..400).unwrap()), (None, None));
            assert_eq!(behind.damage_in(299..301).unwrap().unwrap().decoded, 300..1000);
            assert_eq!(behind.lost_in(999..1000).unwrap().is_some(), is_lost);
        }
    }
}
