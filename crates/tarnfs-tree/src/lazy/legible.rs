//! An archive in an archive that is cut or damaged: what can be read of it is shown, as it is where both are indexed at
//! once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tarnfs_source::{SharedSource, Slice, Source};

/// Of what cannot be read, this is shown to a first pass: no header begins so, nor is it the end of a tar.
const FILLER: u8 = 0xff;

/// What is tried at once where something cannot be read, first and then: a block of a tar.
const STEPS: [usize; 2] = [64 << 10, 512];

/// As much of `source` as there is: a file in an archive that was cut may say that it is longer.
pub(super) fn what_is_there(source: SharedSource) -> io::Result<SharedSource> {
    let has = |offset: u64| match source.read_at(&mut [0], offset) {
        Ok(read) => Ok(read > 0),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) if is_damage(&error) => Ok(true),
        Err(error) => Err(error),
    };
    let Some(last) = source.len().checked_sub(1) else { return Ok(source) };
    if has(last)? {
        return Ok(source);
    }
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low.midpoint(high);
        if has(middle)? { low = middle + 1 } else { high = middle }
    }
    Ok(Arc::new(Slice::new(source, 0, low)))
}

fn is_damage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// A source that can be read from its first to its last byte, while somebody looks for what is in it. From then on what
/// is damaged is an error.
#[derive(Debug)]
pub(super) struct Legible {
    source: SharedSource,
    fills: AtomicBool,
}

impl Legible {
    pub(super) fn new(source: SharedSource) -> Self {
        Self { source, fills: AtomicBool::new(true) }
    }

    /// Fills nothing any more.
    pub(super) fn finish(&self) {
        self.fills.store(false, Ordering::SeqCst);
    }

    /// Reads what can be read, step by step.
    fn fill(&self, buffer: &mut [u8], offset: u64, steps: &[usize]) -> io::Result<()> {
        let Some((&step, smaller)) = steps.split_first() else {
            buffer.fill(FILLER);
            return Ok(());
        };
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            // Up to where a block ends.
            let end = buffer.len().min(done + step - (at % step as u64) as usize);
            match self.source.read_exact_at(&mut buffer[done..end], at) {
                Err(error) if is_damage(&error) => self.fill(&mut buffer[done..end], at, smaller)?,
                read => read?,
            }
            done = end;
        }
        Ok(())
    }
}

impl Source for Legible {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_before(buffer, offset, self.len())
    }

    fn read_before(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<usize> {
        match self.source.read_before(buffer, offset, end) {
            Err(error) if is_damage(&error) && self.fills.load(Ordering::SeqCst) => {
                let length = self.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
                self.fill(&mut buffer[..length], offset, &STEPS)?;
                Ok(length)
            }
            read => read,
        }
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn is_unproven(&self) -> bool {
        self.source.is_unproven()
    }

    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        self.source.verify(is_abandoned)
    }

    fn depth(&self) -> usize {
        self.source.depth()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.source.next_data(offset)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        self.source.next_hole(offset)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.source.prefetch(offset, length);
    }

    fn is_ready(&self, offset: u64, length: usize) -> bool {
        self.source.is_ready(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a read has to wait is not changed by who looks at it.
    #[derive(Debug)]
    struct Waits;

    impl Source for Waits {
        fn read_at(&self, _: &mut [u8], offset: u64) -> io::Result<usize> {
            Err(if offset < 512 { io::ErrorKind::InvalidData } else { io::ErrorKind::TimedOut }.into())
        }

        fn len(&self) -> u64 {
            1024
        }

        fn describe(&self) -> String {
            "slow".to_owned()
        }

        fn is_ready(&self, offset: u64, length: usize) -> bool {
            (offset, length) == (3, 5)
        }

        fn is_unproven(&self) -> bool {
            true
        }

        fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
            if is_abandoned() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        }

        fn depth(&self) -> usize {
            7
        }

        fn next_data(&self, offset: u64) -> Option<u64> {
            Some(offset + 1)
        }

        fn next_hole(&self, offset: u64) -> u64 {
            offset + 2
        }
    }

    #[test]
    fn all_but_damage_is_passed_on() {
        let legible = Legible::new(Arc::new(Waits));
        assert!(legible.is_ready(3, 5) && !legible.is_ready(3, 6) && !legible.is_ready(2, 5));
        assert_eq!((legible.len(), legible.describe(), legible.depth()), (1024, "slow".to_owned(), 7));
        assert_eq!((legible.next_data(5), legible.next_hole(5)), (Some(6), 7));
        assert!(legible.is_unproven() && legible.verify(&|| false).is_ok() && legible.verify(&|| true).is_err());
        // Damage is filled while somebody looks, a file that cannot be read now is an error.
        let mut bytes = [0; 512];
        assert_eq!(legible.read_at(&mut bytes, 0).unwrap(), 512);
        assert_eq!(bytes, [FILLER; 512]);
        assert_eq!(legible.read_at(&mut bytes, 512).unwrap_err().kind(), io::ErrorKind::TimedOut);
        legible.finish();
        assert_eq!(legible.read_at(&mut bytes, 0).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
