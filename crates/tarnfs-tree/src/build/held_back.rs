//! Decoded bytes on their way to a [`Sink`]: they wait until nothing can be found wrong with them any more.

use std::io;
use std::sync::Arc;

use crate::open::Sink;

/// Bytes that wait at most. The checksum of most streams stands at their end, so a larger one goes to nobody before it
/// has been read: who wants it reads it again, with what was found in the first pass.
const MOST: usize = 32 << 20;

/// Bytes that a sink gets when they are verified.
pub(super) struct HeldBack<'a> {
    sink: &'a Arc<dyn Sink>,
    waiting: Vec<u8>,
}

impl<'a> HeldBack<'a> {
    pub(super) fn new(sink: &'a Arc<dyn Sink>) -> Self {
        Self { sink, waiting: Vec::new() }
    }

    /// Takes the bytes that come next. The last `unsettled` of all bytes up to here are not verified yet. False if too
    /// many wait: the sink gets nothing more.
    pub(super) fn write(&mut self, decoded: &[u8], unsettled: u64) -> io::Result<bool> {
        let unsettled = usize::try_from(unsettled).unwrap_or(usize::MAX);
        let settled = (self.waiting.len() + decoded.len()).saturating_sub(unsettled);
        let first = settled.min(self.waiting.len());
        if first > 0 {
            self.sink.write(&self.waiting[..first])?;
            self.waiting.drain(..first);
        }
        let (now, later) = decoded.split_at(settled - first);
        if !now.is_empty() {
            self.sink.write(now)?;
        }
        let has_room = self.waiting.len() + later.len() <= MOST;
        if has_room {
            self.waiting.extend_from_slice(later);
        }
        Ok(has_room)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<u8>>);

    impl Sink for Kept {
        fn write(&self, decoded: &[u8]) -> io::Result<()> {
            self.0.lock().unwrap().extend(decoded);
            Ok(())
        }
    }

    #[test]
    fn bytes_wait_until_they_are_verified() {
        let kept = Arc::new(Kept::default());
        let sink = Arc::clone(&kept) as Arc<dyn Sink>;
        let mut held = HeldBack::new(&sink);
        for (decoded, unsettled, got) in [
            ("ab", 2, ""),
            ("cd", 3, "a"),
            ("ef", 2, "abcd"),
            ("gh", 0, "abcdefgh"),
            ("ij", 9, "abcdefgh"),
            ("", 0, "abcdefghij"),
        ] {
            assert!(held.write(decoded.as_bytes(), unsettled).unwrap());
            assert_eq!(*kept.0.lock().unwrap(), got.as_bytes(), "{decoded}");
        }
        let batch = vec![0; MOST];
        assert!(held.write(&batch, MOST as u64).unwrap());
        assert!(!held.write(&batch[..1], MOST as u64 + 1).unwrap());
    }
}
