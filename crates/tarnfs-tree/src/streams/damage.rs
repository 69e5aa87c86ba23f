//! What is known to be wrong with bytes of a stream, or with what they are decoded from.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use tarnfs_codec::ChunkTable;
use tarnfs_index::{Holder, Nested, STORED_IN_PIECES};

use super::{MOST_CALLS, MOST_IN_PIECES, Streams, codec_of};
use crate::Error;
use crate::unnoticed::noticed_in;

/// Places of pieces that are looked at to tell whether a file is damaged.
const MOST_PLACES: usize = 4096;

/// Places of the pieces of one stream that are kept: 2 MiB.
const MOST_KEPT_PLACES: usize = 1 << 15;

/// Where a piece lies, or several that follow each other.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Bytes of what the pieces make up.
    file: Range<u64>,
    /// Bytes of what they lie in.
    stored: Range<u64>,
    /// Each byte may come of any that is stored.
    is_coded: bool,
}

impl Place {
    fn is_followed_by(&self, stored: &Range<u64>, is_coded: bool) -> bool {
        !self.is_coded && !is_coded && self.stored.end == stored.start
    }

    /// Where those of these bytes lie that are here.
    fn stored_of(&self, range: &Range<u64>) -> Range<u64> {
        if self.is_coded {
            return self.stored.clone();
        }
        let from = range.start.saturating_sub(self.file.start);
        let to = range.end.min(self.file.end).saturating_sub(self.file.start);
        self.stored.start.saturating_add(from)..self.stored.start.saturating_add(to)
    }
}

/// Where the pieces of the streams lie that were asked for last, the last one first.
pub(super) type LastPlaces = VecDeque<(u32, Option<Arc<[Place]>>)>;

/// How many there are: as many as may lie in each other.
const MOST_LISTS_OF_PLACES: usize = MOST_IN_PIECES as usize;

/// Parts of streams whose answers are kept.
const MOST_ANSWERS: usize = 64;

/// What was answered last, the one first that was of use last. Many files may lie in one packed piece, and each asks
/// for all of it.
#[derive(Debug, Default)]
pub(super) struct Asked(VecDeque<Answer>);

#[derive(Debug)]
struct Answer {
    stream: u32,
    range: Range<u64>,
    damage: Option<String>,
}

impl Asked {
    /// The answer that tells what is wrong with `range` of the stream `stream`, if there is one.
    fn answer(&mut self, stream: u32, range: &Range<u64>) -> Option<&Answer> {
        let lies_in = |one: &Range<u64>, other: &Range<u64>| other.start <= one.start && one.end <= other.end;
        let follows = |answer: &&Answer| match answer.damage {
            // What is around damage has it, too.
            Some(_) => lies_in(&answer.range, range),
            None => lies_in(range, &answer.range),
        };
        let place = self.0.iter().position(|answer| answer.stream == stream && follows(&answer))?;
        let answer = self.0.remove(place)?;
        self.0.push_front(answer);
        self.0.front()
    }

    fn add(&mut self, stream: u32, range: Range<u64>, damage: Option<String>) {
        self.0.truncate(MOST_ANSWERS - 1);
        self.0.push_front(Answer { stream, range, damage });
    }
}

/// A nested stream with its number, and its table.
type InChain = ((u32, Nested), Arc<dyn ChunkTable>);

/// Tells the damage of parts of one stream.
pub(crate) struct Damages<'s> {
    streams: &'s Streams,
    /// `None` if the stream lies in too many others.
    chain: Option<Vec<InChain>>,
}

impl Damages<'_> {
    /// What is wrong with these bytes, if anything is known. In very many layers they count as damaged.
    pub(crate) fn of(&self, range: Range<u64>) -> Result<Option<String>, Error> {
        let Some(chain) = &self.chain else {
            return Ok(Some("it lies in too many layers of compression to tell".to_owned()));
        };
        let mut left = MOST_PLACES;
        self.streams.damage_in(chain, range, &mut left)
    }
}

impl Streams {
    /// What is wrong with these bytes of that stream, or with what they are decoded from, if that is known.
    pub(crate) fn damage_of(&self, number: u32, range: Range<u64>) -> Result<Option<String>, Error> {
        self.damages(number)?.of(range)
    }

    /// To ask for the damage of many parts of that stream.
    pub(crate) fn damages(&self, number: u32) -> Result<Damages<'_>, Error> {
        let chain = self.chain(number)?;
        if chain.len() > MOST_CALLS {
            return Ok(Damages { streams: self, chain: None });
        }
        let tables = self.tables(&chain)?;
        Ok(Damages { streams: self, chain: Some(chain.into_iter().zip(tables).collect()) })
    }

    /// What is wrong with `range` of the first stream of `chain`, which lies in the one behind it. So many places are
    /// still looked at: from then on, what may be damaged counts as such.
    fn damage_in(&self, chain: &[InChain], range: Range<u64>, left: &mut usize) -> Result<Option<String>, Error> {
        let Some((stream @ ((number, _), table), around)) = chain.split_first() else {
            return Ok(self.index.damage_in(range)?.map(|damage| damage.what));
        };
        let asked = || self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = asked().answer(*number, &range) {
            return Ok(known.damage.clone());
        }
        let damage = match table.damage_in(range.clone())? {
            Some(damage) => Some(damage.what),
            None => self.damage_around(stream, around, &range, left)?,
        };
        // With more places left, it may turn out to be sound.
        if damage.is_none() || *left > 0 {
            asked().add(*number, range, damage.clone());
        }
        Ok(damage)
    }

    /// The same, of what the stream lies in.
    fn damage_around(
        &self,
        ((number, nested), table): &InChain,
        around: &[InChain],
        range: &Range<u64>,
        left: &mut usize,
    ) -> Result<Option<String>, Error> {
        let all = nested.start..nested.start.saturating_add(nested.length);
        if nested.codec != STORED_IN_PIECES {
            return self.damage_of_chunks(nested, &**table, around, range.clone(), left);
        }
        let Some(places) = self.places(*number)? else { return self.damage_in(around, all, left) };
        let first = places.partition_point(|place| place.file.end <= range.start);
        let inside = places.get(first..).unwrap_or_default().iter().take_while(|place| place.file.start < range.end);
        for place in inside {
            let Some(fewer) = left.checked_sub(1) else { return self.damage_in(around, all, left) };
            *left = fewer;
            if let Some(damage) = self.damage_in(around, place.stored_of(range), left)? {
                return Ok(Some(damage));
            }
        }
        Ok(None)
    }

    /// The same of the chunks in which `range` lies of a stream that a codec decodes. What its first pass has noticed
    /// is in its `table`, and what may be wrong behind that, too.
    fn damage_of_chunks(
        &self,
        nested: &Nested,
        table: &dyn ChunkTable,
        around: &[InChain],
        range: Range<u64>,
        left: &mut usize,
    ) -> Result<Option<String>, Error> {
        let (codec, mut at) = (codec_of(&nested.codec)?, range.start);
        let stored = |byte: u64| nested.start.saturating_add(byte.min(nested.length));
        while at < range.end {
            let (Some(fewer), Some(chunk)) = (left.checked_sub(1), table.chunk_at(at)?) else {
                return self.damage_in(around, stored(0)..stored(u64::MAX), left);
            };
            *left = fewer;
            let end = chunk.point.decoded.saturating_add(chunk.length).max(at.saturating_add(1));
            if noticed_in(codec, table, &chunk)?.is_none() {
                let from = chunk.point.compressed_bit / 8;
                let next = table.chunk_at(end)?.map_or(u64::MAX, |next| next.point.compressed_bit.div_ceil(8));
                if let Some(damage) = self.damage_in(around, stored(from)..stored(next), left)? {
                    return Ok(Some(damage));
                }
            }
            at = end;
        }
        Ok(None)
    }

    /// Where the pieces of that stream lie; `None` if they are too many to be kept. The last ones are.
    fn places(&self, number: u32) -> Result<Option<Arc<[Place]>>, Error> {
        let last = || self.last_places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, places)) = last().iter().find(|(known, _)| *known == number) {
            return Ok(places.clone());
        }
        let (mut places, mut end, mut are_few) = (Vec::<Place>::new(), 0_u64, true);
        self.index.each_piece(Holder::Stream(number), &mut |piece| {
            let start = end.saturating_add(piece.hole);
            end = start.saturating_add(piece.length);
            let stored = piece.offset..piece.offset.saturating_add(piece.stored);
            let (file, is_coded) = (start..end, piece.coder.is_some());
            match places.last_mut().filter(|last| last.is_followed_by(&stored, is_coded)) {
                // What lies between them is a hole.
                Some(last) if last.file.end == start => {
                    (last.file.end, last.stored.end) = (end, stored.end);
                }
                _ => places.push(Place { file, stored, is_coded }),
            }
            are_few = places.len() <= MOST_KEPT_PLACES;
            are_few
        })?;
        let places: Option<Arc<[Place]>> = are_few.then(|| places.into());
        let mut last = last();
        last.push_front((number, places.clone()));
        last.truncate(MOST_LISTS_OF_PLACES);
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_follow_from_those_of_larger_and_smaller_parts() {
        let mut asked = Asked::default();
        asked.add(1, 10..20, None);
        asked.add(1, 30..40, Some("lost".to_owned()));
        for (stream, range, known) in [
            (1, 10..20, Some(None)),
            (1, 12..13, Some(None)),
            (1, 9..20, None),
            (1, 12..21, None),
            (2, 10..20, None),
            (1, 30..40, Some(Some("lost"))),
            (1, 0..100, Some(Some("lost"))),
            (1, 31..40, None),
        ] {
            let known = known.map(|damage| damage.map(str::to_owned));
            assert_eq!(
                asked.answer(stream, &range).map(|answer| answer.damage.clone()),
                known,
                "{range:?} of stream {stream}"
            );
        }
        for number in 2..MOST_ANSWERS as u32 + 2 {
            asked.add(number, 0..1, None);
        }
        assert_eq!(asked.0.len(), MOST_ANSWERS);
        assert!(asked.answer(1, &(10..20)).is_none());
    }
}
