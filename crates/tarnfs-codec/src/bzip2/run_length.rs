/// Equal bytes in a row after which a count of further ones follows.
const RUN: usize = 4;

/// Undoes the first run-length coding of a block: four equal bytes are followed by a count (0 to 255) of further ones.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Expander {
    /// Bytes of the block that are done.
    position: usize,
    /// What remains of a run.
    run: usize,
    byte: u8,
}

impl Expander {
    /// True if the block ended with four equal bytes and no count.
    pub(super) fn lacks_count(&self, block: &[u8]) -> bool {
        self.position > block.len()
    }

    /// True if it has come to `position` of the block, and no run goes on there.
    pub(super) fn is_between_runs(&self, position: usize) -> bool {
        self.position == position && self.run == 0
    }

    /// Writes what follows from `block` into `output` and returns how many bytes; fewer than fit only at its end.
    pub(super) fn expand(&mut self, block: &[u8], output: &mut [u8]) -> usize {
        let mut written = 0;
        loop {
            let count = self.run.min(output.len() - written);
            output[written..written + count].fill(self.byte);
            self.run -= count;
            written += count;
            let room = output.len() - written;
            if room == 0 || self.position >= block.len() {
                return written;
            }
            let rest = &block[self.position..];
            let plain = before_run(rest, room);
            output[written..written + plain].copy_from_slice(&rest[..plain]);
            written += plain;
            self.position += plain;
            if plain < room && plain < rest.len() {
                let further = rest.get(plain + RUN).copied().unwrap_or(0);
                self.byte = rest[plain];
                self.run = RUN + usize::from(further);
                self.position += RUN + 1;
            }
        }
    }
}

/// The bytes of `block` before its first run, at most `most`; all if there is none.
fn before_run(block: &[u8], most: usize) -> usize {
    const STEP: usize = 32;
    let mut position = 0;
    while position < most {
        let Some(window) = block[position..].first_chunk::<{ STEP + RUN - 1 }>() else { break };
        let mut found = false;
        for at in 0..STEP {
            let byte = window[at];
            found |= (byte ^ window[at + 1]) | (byte ^ window[at + 2]) | (byte ^ window[at + 3]) == 0;
        }
        if found {
            break;
        }
        position += STEP;
    }
    while position < most.min(block.len()) {
        match block.get(position..position + RUN) {
            None => return most.min(block.len()),
            Some(&[a, b, c, d]) if a == b && b == c && c == d => return position,
            Some(_) => position += 1,
        }
    }
    most.min(block.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand_by(step: usize, block: &[u8]) -> Vec<u8> {
        let (mut expander, mut all, mut buffer) = (Expander::default(), Vec::new(), vec![0; step]);
        loop {
            let count = expander.expand(block, &mut buffer);
            all.extend_from_slice(&buffer[..count]);
            if count < step {
                assert!(expander.lacks_count(block));
                return all;
            }
        }
    }

    #[test]
    fn counts_follow_four_equal_bytes() {
        let mut block = b"abbbbbcccc\0cccd".to_vec();
        block.extend([b'x'; 40]);
        block.extend_from_slice(b"yyyy");
        let mut expected = b"a".to_vec();
        // The fifth b is the count 98, so of the c's three are left before the zero ...
        expected.extend([b'b'; 4 + 98]);
        expected.extend_from_slice(b"cccc");
        expected.extend_from_slice(b"cccd");
        // ... and of 40 x, each fifth is a count of 120.
        expected.extend([b'x'; 8 * (4 + 120)]);
        expected.extend_from_slice(b"yyyy");
        for step in [1, 2, 3, 5, 31, 32, 33, 100, 5000] {
            assert_eq!(expand_by(step, &block), expected, "step {step}");
        }
    }

    #[test]
    fn finds_a_run_at_every_place() {
        for start in 0..100 {
            let mut block: Vec<u8> = (0..150).collect();
            block[start..start + RUN].fill(200);
            assert_eq!(before_run(&block, 1000), start);
            assert_eq!(before_run(&block, start.min(50)), start.min(50));
        }
    }
}
