//! What is read ahead: who reads on where it was read before wants what comes next, too.

/// Readers that are told apart. One that reads at random takes the place of the one that was seen least recently.
const READERS: usize = 16;

/// Bytes ahead of a reader at first, and at most: what a connection of 1 Gbit/s brings in 60 ms and more.
const FIRST: u64 = 512 << 10;
const MOST: u64 = 8 << 20;

/// So far behind or before the end of the last read, it still goes on there: several threads read for one reader.
const NEAR: u64 = 1 << 20;

/// The readers of one object.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    readers: Vec<Reader>,
    time: u64,
}

#[derive(Debug, Clone, Copy)]
struct Reader {
    /// Where its first read began, and its last one has ended.
    start: u64,
    end: u64,
    /// What lies before this byte was asked for.
    asked: u64,
    seen: u64,
}

impl Ahead {
    /// Somebody has read these bytes. Returns those that should be fetched now, none of them behind byte `most`.
    pub(crate) fn read(&mut self, start: u64, end: u64, most: u64) -> std::ops::Range<u64> {
        self.time += 1;
        let is_near =
            |reader: &&mut Reader| start <= reader.end.saturating_add(NEAR) && end.saturating_add(NEAR) >= reader.end;
        let Some(reader) = self.readers.iter_mut().filter(|reader| is_near(reader)).max_by_key(|reader| reader.seen)
        else {
            if self.readers.len() >= READERS
                && let Some(oldest) = self.readers.iter().enumerate().min_by_key(|(_, reader)| reader.seen)
            {
                let oldest = oldest.0;
                self.readers.swap_remove(oldest);
            }
            self.readers.push(Reader { start, end, asked: end, seen: self.time });
            return end..end;
        };
        reader.seen = self.time;
        if end <= reader.end {
            // Once more, or by another thread that was late.
            return end..end;
        }
        reader.end = end;
        // As much again as it has read, so that what nobody reads is at most that.
        let window = end.saturating_sub(reader.start).clamp(FIRST, MOST);
        let from = reader.asked.max(end);
        let to = end.saturating_add(window).min(most);
        // Not in small steps: each is a request.
        if to.saturating_sub(from) < (window / 4).min(most.saturating_sub(from)) || from >= to {
            return end..end;
        }
        reader.asked = to;
        from..to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_on_gets_more_and_more_ahead_and_nothing_twice() {
        let mut ahead = Ahead::default();
        let (step, most) = (128 << 10, 100 << 20);
        let mut asked = step;
        for number in 0..400 {
            let range = ahead.read(number * step, (number + 1) * step, most);
            if !range.is_empty() {
                assert!(range.start == asked.max((number + 1) * step), "{number}: {range:?} after {asked}");
                asked = range.end;
            }
            assert!(number == 0 || asked > (number + 1) * step, "{number}");
        }
        assert!(asked >= 400 * step + MOST / 2 && asked <= 400 * step + MOST);
        // Who has read little gets little.
        let mut ahead = Ahead::default();
        assert!(ahead.read(0, step, most).is_empty());
        assert_eq!(ahead.read(step, 2 * step, most), 2 * step..2 * step + FIRST);
        let mut ahead = Ahead::default();
        for number in 0..16 {
            let asked = ahead.read(number * step, (number + 1) * step, most).end;
            assert!(asked <= (number + 1) * step + FIRST.max((number + 1) * step), "{number}: {asked}");
        }
        let mut ahead = Ahead::default();
        for number in 0..400 {
            ahead.read(number * step, (number + 1) * step, most);
        }
        // No further than the end.
        let end = ahead.read(400 * step, 401 * step, 402 * step);
        assert!(end.end <= 402 * step || end.is_empty());
    }

    #[test]
    fn who_reads_at_random_gets_nothing_ahead() {
        let mut ahead = Ahead::default();
        for number in 0..1000_u64 {
            let at = number * 7919 % 1000 * (4 << 20);
            assert!(ahead.read(at, at + 4096, 1 << 40).is_empty());
        }
        assert!(ahead.readers.len() <= READERS);
    }
}
