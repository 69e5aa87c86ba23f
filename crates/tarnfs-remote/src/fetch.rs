//! Trying again: how often, how soon, and until when.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io::{self, Cursor, Read};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::backend::{Fault, Object, Version};

/// How long a read may take, with all that is tried. Less than what the kernel is made to wait (60 s).
pub(crate) const DEADLINE: Duration = Duration::from_secs(45);

/// Between two attempts at first, and at most.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// What a server may ask for: any number. Nobody waits so long.
const MOST_ASKED: Duration = Duration::from_secs(24 * 3600);

/// Attempts without an answer at an object that nobody has seen yet: its name may be mistyped.
const AT_FIRST: u32 = 4;

/// Tries `attempt` until it brings something, or there is no point in going on, or the `deadline` has come. `is_first`:
/// nothing has come of this object yet. The error says what was wrong the last time.
pub(crate) fn tried<T>(
    deadline: Instant,
    is_first: bool,
    mut attempt: impl FnMut() -> Result<T, Fault>,
) -> io::Result<T> {
    let (begin, mut wait, mut attempts) = (Instant::now(), FIRST, 0);
    loop {
        attempts += 1;
        let (what, after) = match attempt() {
            Ok(found) => return Ok(found),
            Err(Fault::Again(what, after)) => (what, after.map(|after| after.min(MOST_ASKED))),
            Err(fault) => return Err(error(fault)),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        // What the server says may be nothing: then it is not asked more often than without. And not all come again at
        // once.
        let pause = after.unwrap_or_default().max(wait);
        let pause = pause + pause.mul_f64(chance() / 4.0);
        if pause >= left || (is_first && after.is_none() && attempts >= AT_FIRST) {
            let times = if attempts == 1 { String::new() } else { format!(", {attempts} times") };
            let taken = begin.elapsed().as_secs();
            let later = match after {
                Some(after) if pause >= left => format!(", and to come again after {} s", after.as_secs()),
                _ => String::new(),
            };
            return Err(io::Error::other(format!("{what}{later}{times} in {taken} s")));
        }
        log::debug!("attempt {attempts}: {what}; again in {} ms", pause.as_millis());
        std::thread::sleep(pause);
        wait = (wait * 2).min(LONGEST);
    }
}

/// From 0 to 1.
fn chance() -> f64 {
    let random = RandomState::new().hash_one(Instant::now());
    random as f64 / u64::MAX as f64
}

/// The error that stands for a fault.
pub(crate) fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::Again(what, _) | Fault::Final(what) => io::Error::other(what),
        Fault::Folder => io::Error::new(io::ErrorKind::IsADirectory, "it is a folder, which can be mounted or served"),
        Fault::Missing(what) => io::Error::new(io::ErrorKind::NotFound, what),
        Fault::Changed(what) => io::Error::new(
            io::ErrorKind::StaleNetworkFileHandle,
            format!("it has changed since it was opened ({what}): unmount it and mount it again"),
        ),
    }
}

/// Reads `range` of the object to the end of `bytes`, which is empty. What came before a connection was cut is not
/// asked for again, and is there also after an error.
pub(crate) fn fetch(
    object: &dyn Object,
    version: &Version,
    range: Range<u64>,
    deadline: Instant,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    bytes.reserve_exact(length);
    tried(deadline, false, || {
        while bytes.len() < length {
            let start = range.start + bytes.len() as u64;
            let mut body = object.range(start..range.end, version, deadline)?;
            let before = bytes.len();
            read_by(deadline, &mut body, range.end - start, bytes)?;
            if bytes.len() == before {
                return Err(Fault::Again("the answer is empty".to_owned(), None));
            }
        }
        Ok(())
    })
}

/// Reads a body to its end, or `most` bytes of it, to the end of `bytes`. What came before a fault is there.
pub(crate) fn read_by(deadline: Instant, body: &mut dyn Read, most: u64, bytes: &mut Vec<u8>) -> Result<(), Fault> {
    const STEP: u64 = 64 << 10;
    let mut left = most;
    while left > 0 {
        if Instant::now() >= deadline {
            return Err(Fault::Again("the server sends too slowly".to_owned(), None));
        }
        let before = bytes.len();
        bytes.resize(before + left.min(STEP) as usize, 0);
        let read = body.read(&mut bytes[before..]);
        bytes.truncate(before + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => break,
            Ok(count) => left -= count as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cut(&error)),
        }
    }
    Ok(())
}

/// Bytes that come in groups, each of which is known to be of the right version before any of it is read. What is wrong
/// with one is the end of the body: who asks for the rest learns it.
pub(crate) struct Groups<G> {
    bytes: Cursor<Vec<u8>>,
    next: G,
}

impl<G: FnMut() -> Result<Vec<u8>, Fault>> Groups<G> {
    /// After the first one. An empty one is the end.
    pub(crate) fn behind(first: Vec<u8>, next: G) -> Self {
        Self { bytes: Cursor::new(first), next }
    }
}

impl<G: FnMut() -> Result<Vec<u8>, Fault>> Read for Groups<G> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        if read > 0 || buffer.is_empty() {
            return Ok(read);
        }
        self.bytes = Cursor::new((self.next)().unwrap_or_default());
        self.bytes.read(buffer)
    }
}

/// What it means that a body cannot be read on.
fn cut(error: &io::Error) -> Fault {
    let what = match error.kind() {
        io::ErrorKind::TimedOut => "the server has stopped sending".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection was cut".to_owned(),
        _ => format!("the connection was cut ({error})"),
    };
    Fault::Again(what, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_work_later_is_tried_again_and_all_else_is_not() {
        let soon = || Instant::now() + Duration::from_secs(20);
        let mut faults =
            vec![Fault::Again("busy".to_owned(), Some(Duration::from_millis(1))), Fault::Again("cut".to_owned(), None)];
        assert_eq!(tried(soon(), true, || faults.pop().map_or(Ok(7), Err)).unwrap(), 7);
        let mut count = 0;
        let changed = tried(soon(), false, || {
            count += 1;
            Err::<(), _>(Fault::Changed("x".to_owned()))
        });
        assert_eq!((changed.unwrap_err().kind(), count), (io::ErrorKind::StaleNetworkFileHandle, 1));
        let late = Some(Duration::from_secs(3600));
        let error = tried(soon(), false, || Err::<(), _>(Fault::Again("busy".to_owned(), late))).unwrap_err();
        assert_eq!(error.to_string(), "busy, and to come again after 3600 s in 0 s");
        let error =
            tried(soon(), false, || Err::<(), _>(Fault::Again("busy".to_owned(), Some(Duration::MAX)))).unwrap_err();
        assert!(error.to_string().starts_with("busy, and to come again after "), "{error}");
        let error = tried(soon(), true, || Err::<(), _>(Fault::Again("gone".to_owned(), None))).unwrap_err();
        assert!(error.to_string().starts_with("gone, 4 times in "), "{error}");
        // 100, 200, 400 ms, and up to a quarter more each.
        for after in [None, Some(Duration::ZERO)] {
            let (start, mut count) = (Instant::now(), 0);
            let busy = tried(start + Duration::from_secs(1), false, || {
                count += 1;
                Err::<(), _>(Fault::Again("busy".to_owned(), after))
            });
            assert!(busy.is_err() && count <= 4, "{count} in {:?}", start.elapsed());
        }
    }
}
