//! A directory is read on one thread while what it tells goes into the index on another.
//!
//! Who reads it waits for the one who writes, as it would if it called it; who writes waits for nobody else than who
//! reads. So nothing can wait for itself that did not before.

use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use tarnfs_format::{Error, Event, Options, ReadRandom, read_in_time};
use tarnfs_source::SharedSource;

/// An archive below this many bytes is read before a thread has begun.
const LEAST: u64 = 128 << 10;

/// Events that are handed on at once, and bytes of them; how many of these may wait. All that are on their way fit in
/// the cache of a processor.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 1 << 20;
const WAITING: usize = 3;

/// As the thread that starts the program has.
const STACK: usize = 8 << 20;

/// Takes an event, and leaves what it does not need. An error ends the reading.
pub(super) type Take<'t> = dyn FnMut(&mut Event) -> io::Result<()> + 't;

/// Reads the archive in `source` as [`read_in_time`] does, which runs on a thread of its own if there are `threads`
/// for it.
pub(super) fn read(
    format: &dyn ReadRandom,
    source: &SharedSource,
    options: &Options,
    threads: usize,
    take: &mut Take<'_>,
) -> Result<(), Error> {
    if threads < 2 || source.len() < LEAST {
        return read_in_time(format, source, options, &mut |mut event| take(&mut event));
    }
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(WAITING);
        // What was allocated by one thread and is freed by another makes both wait for the allocator.
        let (give_back, given_back) = channel();
        let work = move || {
            let mut batch = Batch {
                events: Vec::new(),
                bytes: 0,
                out: 0,
                taken: Vec::new(),
                spare: Vec::new(),
                sender,
                given_back,
            };
            let read = read_in_time(format, source, options, &mut |event| batch.push(event));
            // If nobody takes them, who took the ones before has failed.
            batch.flush().map_err(Error::Receiver).and(read)
        };
        let builder = thread::Builder::new().name("directory".to_owned()).stack_size(STACK);
        let Ok(reading) = builder.spawn_scoped(scope, work) else {
            return read_in_time(format, source, options, &mut |mut event| take(&mut event));
        };
        let told = receiver.iter().try_for_each(|mut events: Vec<Event>| {
            let told = events.iter_mut().try_for_each(&mut *take);
            drop(give_back.send(events));
            told
        });
        // Who reads stops at the next event, or where it waits.
        drop((receiver, give_back));
        let read = reading.join().unwrap_or_else(|panic| resume_unwind(panic));
        told.map_err(Error::Receiver).and(read)
    })
}

/// Events that go to the thread that writes.
struct Batch {
    events: Vec<Event>,
    bytes: usize,
    /// Batches that were not given back.
    out: usize,
    /// Of one that was, the events that are not freed yet. One goes for each that comes: so the allocator has the
    /// memory of the next one at hand, which it has not behind the end of thousands.
    taken: Vec<Event>,
    /// The room of one.
    spare: Vec<Event>,
    sender: SyncSender<Vec<Event>>,
    /// Those that were taken.
    given_back: Receiver<Vec<Event>>,
}

impl Batch {
    /// What is large, such as a file of a million pieces, is alone: nothing else waits, and nothing else is made before
    /// it is gone.
    fn push(&mut self, event: Event) -> io::Result<()> {
        let bytes = weight(&event);
        let is_large = bytes >= BATCH_BYTES;
        if is_large {
            self.flush()?;
            self.wait()?;
        }
        self.bytes += bytes;
        drop(self.taken.pop());
        self.events.push(event);
        if is_large {
            self.flush()?;
            return self.wait();
        }
        if self.events.len() >= BATCH || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.bytes = 0;
        while let Ok(taken) = self.given_back.try_recv() {
            self.out -= 1;
            self.spare = std::mem::replace(&mut self.taken, taken);
            self.spare.clear();
        }
        let events = std::mem::replace(&mut self.events, std::mem::take(&mut self.spare));
        self.sender.send(events).map_err(|_| io::ErrorKind::Interrupted)?;
        self.out += 1;
        Ok(())
    }

    /// Waits until all are given back, and gone.
    fn wait(&mut self) -> io::Result<()> {
        while self.out > 0 {
            drop(self.given_back.recv().map_err(|_| io::ErrorKind::Interrupted)?);
            self.out -= 1;
        }
        self.taken.clear();
        Ok(())
    }
}

/// Bytes that an event holds, roughly.
fn weight(event: &Event) -> usize {
    let more = match event {
        Event::Entry(entry) | Event::Ahead(entry) => entry.weight(),
        Event::Damage(damage) => damage.what.len(),
        Event::Label(label) => label.len(),
        Event::Unlisted(what) => what.len(),
        _ => 0,
    };
    more + 256
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tarnfs_format::{Damage, Entry, ReceiveRandom};
    use tarnfs_source::MemorySource;

    use super::*;

    /// So many entries, each with a long path, then an error.
    struct Many(u64, AtomicU64);

    impl ReadRandom for Many {
        fn read(&self, _: &SharedSource, _: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
            for header in 0..self.0 {
                let entry = Entry { path: vec![b'a'; 4000], header, ..Entry::default() };
                receive(Event::Entry(Box::new(entry))).map_err(Error::Receiver)?;
                self.1.fetch_add(1, Ordering::Relaxed);
            }
            receive(Event::Damage(Damage { offset: 7, what: "the end".to_owned() })).map_err(Error::Receiver)?;
            Err(Error::NotThisFormat { format: "many", reason: String::new() })
        }
    }

    fn large() -> SharedSource {
        Arc::new(MemorySource::new(vec![0; LEAST as usize], "large"))
    }

    #[test]
    fn all_comes_in_order_and_then_the_error() {
        for threads in [1, 2] {
            let mut next = 0;
            let mut is_damage_last = false;
            let read = read(&Many(3000, AtomicU64::new(0)), &large(), &Options::default(), threads, &mut |event| {
                is_damage_last = matches!(event, Event::Damage(damage) if damage.offset == 7);
                if let Event::Entry(entry) = event {
                    assert_eq!(entry.header, next);
                    next += 1;
                }
                Ok(())
            });
            assert!(matches!(read, Err(Error::NotThisFormat { .. })) && is_damage_last);
            assert_eq!(next, 3000);
        }
    }

    /// Who writes and fails is heard, and no more than what may wait was read ahead.
    #[test]
    fn what_fails_on_one_side_ends_the_other() {
        let many = Many(1 << 40, AtomicU64::new(0));
        let mut taken = 0;
        let read = read(&many, &large(), &Options::default(), 2, &mut |_| {
            taken += 1;
            if taken < 100 { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        });
        assert!(matches!(read, Err(Error::Receiver(error)) if error.kind() == io::ErrorKind::StorageFull));
        let most = (BATCH_BYTES / 4000 + 2) * (WAITING + 3) + 100;
        assert!(many.1.into_inner() <= most as u64);
    }

    /// Of what is large there is never more than one: as a directory that is read by itself has it.
    #[test]
    fn no_two_large_entries_wait() {
        static ALIVE: AtomicU64 = AtomicU64::new(0);
        struct Large;
        impl ReadRandom for Large {
            fn read(&self, _: &SharedSource, _: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
                for number in 0..20 {
                    let length = if number % 3 == 0 { 100 } else { BATCH_BYTES };
                    let is_large = length == BATCH_BYTES;
                    assert_eq!(ALIVE.load(Ordering::SeqCst), 0, "before {number}");
                    ALIVE.fetch_add(u64::from(is_large), Ordering::SeqCst);
                    let entry = Entry { path: vec![b'a'; length], header: number, ..Entry::default() };
                    receive(Event::Entry(Box::new(entry))).map_err(Error::Receiver)?;
                }
                Ok(())
            }
        }
        let mut next = 0;
        let result = read(&Large, &large(), &Options::default(), 2, &mut |event| {
            let Event::Entry(entry) = event else { panic!("an entry") };
            assert_eq!(entry.header, next);
            next += 1;
            if entry.path.len() == BATCH_BYTES {
                ALIVE.fetch_sub(1, Ordering::SeqCst);
            }
            Ok(())
        });
        assert!(result.is_ok() && next == 20);
        // Who fails at such a one does not wait for it.
        let failed = read(&Large, &large(), &Options::default(), 2, &mut |_| Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(failed, Err(Error::Receiver(error)) if error.kind() == io::ErrorKind::StorageFull));
    }

    #[test]
    #[should_panic(expected = "the reader has a defect")]
    fn a_panic_goes_on() {
        struct Panics;
        impl ReadRandom for Panics {
            fn read(&self, _: &SharedSource, _: &Options, _: &mut ReceiveRandom<'_>) -> Result<(), Error> {
                panic!("the reader has a defect");
            }
        }
        let _ = read(&Panics, &large(), &Options::default(), 2, &mut |_| Ok(()));
    }
}
