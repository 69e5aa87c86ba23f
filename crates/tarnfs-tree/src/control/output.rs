use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tarnfs_source::Source;

use crate::Time;

/// Bytes that are kept. Of more, the older half goes, up to the end of a line.
const MOST: usize = 1 << 20;

/// What was said so far.
#[derive(Debug, Default)]
pub(super) struct Output(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    text: VecDeque<u8>,
    changed: Option<Time>,
}

impl Output {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn say(&self, text: &[u8]) {
        let mut said = self.said();
        said.text.extend(&text[text.len().saturating_sub(MOST)..]);
        if said.text.len() > MOST {
            let least = said.text.len() - MOST / 2;
            let end = said.text.iter().skip(least).position(|&byte| byte == b'\n').map_or(0, |line| line + 1);
            said.text.drain(..least + end);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        said.changed = Some(Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() });
    }

    /// When something was said last.
    pub(super) fn changed(&self) -> Option<Time> {
        self.said().changed
    }
}

impl Source for Output {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let said = self.said();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(said.text.len());
        let length = buffer.len().min(said.text.len() - start);
        for (to, from) in buffer.iter_mut().zip(said.text.range(start..start + length)) {
            *to = *from;
        }
        Ok(length)
    }

    fn len(&self) -> u64 {
        self.said().text.len() as u64
    }

    fn describe(&self) -> String {
        "output".to_owned()
    }
}
