//! Reading a directory in a time that follows from what is in it.

use std::sync::Arc;
use std::time::Duration;

use tarnfs_source::{SharedSource, TimeLimit};

use crate::image::data_of;
use crate::{Damage, Error, Event, Options, ReadRandom, ReceiveRandom};

/// Processor time for each entry. Reading one and putting it into an index takes 5 µs.
const FOR_AN_ENTRY: Duration = Duration::from_micros(200);
/// Nanoseconds for each byte of the archive that is no hole: 8 MB in a second.
const FOR_A_BYTE: u64 = 125;
/// Events after which it is looked how long it took.
const LOOK: u64 = 16;

/// Reads as [`ReadRandom::read`] does. If it takes far longer than any real archive, reading stops, what was read
/// stays, and that is told as damage: a small image may lead to the same list or part millions of times, in ways that
/// no reader foresees one by one ([`Limits::directory_time`](tarnfs_source::Limits::directory_time)).
pub fn read_in_time(
    format: &dyn ReadRandom,
    source: &SharedSource,
    options: &Options,
    receive: &mut ReceiveRandom<'_>,
) -> Result<(), Error> {
    let of_data = Duration::from_nanos(data_of(&**source).saturating_mul(FOR_A_BYTE));
    let limit = Arc::new(TimeLimit::of_this_thread(options.limits.directory_time.saturating_add(of_data)));
    let limited = Options { cancel: options.cancel.within(&limit), ..options.clone() };
    let (mut events, mut entries, mut is_refused) = (0_u64, 0_u64, false);
    let result = format.read(source, &limited, &mut |event| {
        if matches!(event, Event::Entry(_)) {
            entries = entries.saturating_add(1);
            limit.allow(FOR_AN_ENTRY);
        }
        // Whoever takes it may read an archive in this one there.
        limit.without(|| receive(event)).inspect_err(|_| is_refused = true)?;
        events = events.wrapping_add(1);
        if events.is_multiple_of(LOOK) { limit.check() } else { Ok(()) }
    });
    match result {
        Err(_) if limit.is_over() && !is_refused && !options.cancel.is_cancelled() => {
            receive(Event::Damage(Damage { offset: 0, what: too_long(&limit, entries) })).map_err(Error::Receiver)
        }
        result => result,
    }
}

fn too_long(limit: &TimeLimit, entries: u64) -> String {
    let seconds = limit.allowed().as_secs();
    format!(
        "reading stopped behind {entries} entries, as it took more than {seconds} seconds: no archive of this length \
         takes that long unless it is damaged or made to waste time"
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use tarnfs_source::{Cancel, Limits, MemorySource};

    use super::*;
    use crate::Entry;

    /// Tells an entry, and then works for ever.
    struct Endless {
        tells: bool,
    }

    impl ReadRandom for Endless {
        fn read(&self, _: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
            let damage = Event::Damage(Damage { offset: 3, what: "again".to_owned() });
            let entry = Entry { path: b"first".to_vec(), ..Entry::default() };
            receive(Event::Entry(Box::new(entry))).map_err(Error::Receiver)?;
            loop {
                if self.tells {
                    receive(damage.clone()).map_err(Error::Receiver)?;
                }
                options.cancel.check().map_err(|error| Error::Read { offset: 7, error })?;
            }
        }
    }

    #[test]
    fn what_takes_too_long_stops_and_what_was_read_stays() {
        let source: SharedSource = Arc::new(MemorySource::new([0; 100], "endless"));
        for tells in [true, false] {
            let limits = Limits { directory_time: Duration::from_millis(30), ..Limits::default() };
            let options = Options { limits, ..Options::default() };
            let (mut entries, mut last) = (0, None);
            let result = read_in_time(&Endless { tells }, &source, &options, &mut |event| {
                match event {
                    Event::Entry(_) => entries += 1,
                    Event::Damage(damage) => last = Some(damage.what),
                    _ => {}
                }
                Ok(())
            });
            result.unwrap();
            assert_eq!(entries, 1);
            assert!(last.is_some_and(|what| what.starts_with("reading stopped behind 1 entries")));
        }
    }

    #[test]
    fn what_the_receiver_says_is_no_damage() {
        let source: SharedSource = Arc::new(MemorySource::new([0; 100], "endless"));
        let limits = Limits { directory_time: Duration::ZERO, ..Limits::default() };
        let options = Options { limits, ..Options::default() };
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let start = std::time::Instant::now();
        let result = read_in_time(&Endless { tells: true }, &source, &options, &mut |_| {
            if start.elapsed() < Duration::from_millis(10) { Ok(()) } else { Err(full()) }
        });
        // Either may come first; but no damage is told to who takes none.
        assert!(matches!(result, Err(Error::Receiver(error)) if error.kind() == io::ErrorKind::StorageFull));
    }

    #[test]
    fn who_is_cancelled_is_told_of_that() {
        let source: SharedSource = Arc::new(MemorySource::new([0; 100], "endless"));
        let options = Options { cancel: Cancel::default(), ..Options::default() };
        let result = read_in_time(&Endless { tells: true }, &source, &options, &mut |event| {
            if matches!(event, Event::Damage(_)) {
                options.cancel.cancel();
            }
            Ok(())
        });
        assert!(matches!(result, Err(Error::Read { error, .. }) if error.kind() == io::ErrorKind::Interrupted));
    }
}
