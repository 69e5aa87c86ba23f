use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};

impl Refuse for Sender<i32> {
    fn refuse(self, errno: Errno) {
        self.send(errno.raw_os_error()).unwrap();
    }

    fn unique(&self) -> u64 {
        9
    }
}

fn begin(deadlines: &Arc<Deadlines>) -> (Ticket<Sender<i32>>, Receiver<i32>) {
    let (sender, receiver) = channel();
    (deadlines.begin(Operation::Read, 7, sender), receiver)
}

#[test]
fn what_takes_too_long_is_answered_and_the_late_answer_dropped() {
    let deadlines = Deadlines::new(Duration::from_millis(20));
    let (ticket, receiver) = begin(&deadlines);
    std::thread::scope(|scope| {
        scope.spawn(|| deadlines.watch(|_| None, || ()));
        assert_eq!(receiver.recv(), Ok(Errno::IO.raw_os_error()));
        assert!(!ticket.is_wanted());
        ticket.answer(|reply| reply.send(0).unwrap());
        assert!(receiver.recv().is_err());
        deadlines.finish();
    });
    let statistics = deadlines.statistics(Work::default());
    assert_eq!((statistics.deadlines_missed, statistics.in_flight, statistics.oldest), (1, 0, None));
}

#[test]
fn files_that_cannot_be_read_are_told_once_and_not_without_end() {
    let (mut failures, begin) = (Failures::default(), Instant::now());
    let now = |left_out| Telling::Now { by_path: true, left_out };
    // In turn.
    for _ in 0..3 {
        failures.met(7, begin);
        failures.met(8, begin);
    }
    assert_eq!(failures.told, 2);
    let told = (100..10_100).filter(|&node| failures.met(node, begin) == now(0)).count();
    assert_eq!((told as u32, failures.nodes.len()), (Failures::MOST_TOLD - 2, Failures::MOST_NODES));
    let left_out = 10_000 - told as u64;
    assert_eq!(failures.met(7, begin + Failures::WINDOW), now(left_out), "it was long ago");
    failures.looked = Failures::MOST_LOOKED;
    let no_path = Telling::Now { by_path: false, left_out: 0 };
    assert_eq!(failures.met(8, begin + Failures::WINDOW), no_path);
}

/// A timer that ticks ends no read whose bytes come soon.
#[test]
fn a_read_goes_on_after_a_signal() {
    let patience = Patience { reads: Duration::from_secs(3600), others: Duration::ZERO };
    let deadlines = Deadlines::with(Duration::from_secs(3600), patience);
    for is_early in [false, true] {
        if is_early {
            assert!(!deadlines.interrupt(9), "it is still to come");
        }
        let (ticket, receiver) = begin(&deadlines);
        assert!(is_early || !deadlines.interrupt(8) && deadlines.interrupt(9));
        assert!(deadlines.let_signalled_go().is_some() && ticket.is_wanted());
        ticket.answer(|reply| reply.send(0).unwrap());
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [0]);
    }
    assert_eq!(deadlines.statistics(Work::default()).interrupted, 0);
}

/// Who is killed does not wait until the watchdog would look by itself.
#[test]
fn the_watchdog_is_woken_for_who_is_to_be_let_go() {
    for is_early in [false, true] {
        let patience = Patience { reads: Duration::from_millis(50), others: Duration::from_secs(3600) };
        let deadlines = Deadlines::with(Duration::from_secs(3600), patience);
        if is_early {
            assert!(!deadlines.interrupt(9));
        }
        std::thread::scope(|scope| {
            // Unless it is woken, it does not look as long as the test may take.
            let nap = Duration::from_secs(7200);
            let watching = Arc::clone(&deadlines);
            let watch = scope.spawn(move || {
                while watching.sleep(nap) {
                    watching.let_signalled_go().into_iter().for_each(|next| watching.wake_at(next));
                }
            });
            let (ticket, receiver) = begin(&deadlines);
            if !is_early {
                deadlines.interrupt(9);
            }
            assert_eq!(receiver.recv(), Ok(Errno::INTR.raw_os_error()));
            assert!(!ticket.is_wanted());
            drop(ticket);
            deadlines.finish();
            watch.join().unwrap();
        });
        assert_eq!(deadlines.statistics(Work::default()).interrupted, 1);
    }
}

#[test]
fn an_interrupted_request_is_answered_when_patience_is_over() {
    let deadlines = Deadlines::with(Duration::from_secs(60), Patience::NONE);
    let (ticket, receiver) = begin(&deadlines);
    assert!(!deadlines.interrupt(8) && deadlines.interrupt(9));
    assert_eq!(receiver.recv(), Ok(Errno::INTR.raw_os_error()));
    assert!(!ticket.is_wanted() && !deadlines.interrupt(9));
}

/// One thread may read of a signal before another begins with the request that it is for.
#[test]
fn a_signal_that_comes_before_its_request_is_known() {
    let deadlines = Deadlines::with(Duration::from_secs(60), Patience::NONE);
    for round in 0..2 {
        for other in 0..MOST_EARLY as u64 {
            deadlines.interrupt(1000 + other);
        }
        assert!(!deadlines.interrupt(9));
        let (ticket, receiver) = begin(&deadlines);
        assert_eq!(receiver.recv(), Ok(Errno::INTR.raw_os_error()));
        assert!(!ticket.is_wanted(), "{round}");
    }
    assert!(lock(&deadlines.requests).early.len() < MOST_EARLY);
    let (ticket, receiver) = begin(&deadlines);
    assert!(ticket.is_wanted(), "it was for that one");
    drop((ticket, receiver));
}

/// Of those that come too early only so many are known.
#[test]
fn a_signal_for_a_request_that_is_there_is_not_kept_for_another() {
    let deadlines = Deadlines::with(Duration::from_secs(60), Patience::NONE);
    let (ticket, receiver) = begin(&deadlines);
    assert!(deadlines.interrupt(9));
    assert_eq!(receiver.recv(), Ok(Errno::INTR.raw_os_error()));
    drop(ticket);
    let (next, receiver) = begin(&deadlines);
    assert!(next.is_wanted());
    drop((next, receiver));
}

/// A timer that ticks is no reason for `stat(2)` to fail.
#[test]
fn what_is_no_read_goes_on_for_a_while_after_a_signal() {
    for (others, is_let_go) in [(Duration::from_secs(3600), false), (Duration::ZERO, true)] {
        let patience = Patience { reads: Duration::ZERO, others };
        let deadlines = Deadlines::with(Duration::from_secs(3600), patience);
        let (sender, receiver) = channel();
        let ticket = deadlines.begin(Operation::Lookup, 7, sender);
        assert_eq!(deadlines.let_signalled_go(), None);
        assert!(deadlines.interrupt(9));
        assert_eq!(deadlines.statistics(Work::default()).interrupted, u64::from(is_let_go));
        deadlines.let_signalled_go();
        deadlines.let_signalled_go();
        assert_eq!(ticket.is_wanted(), !is_let_go);
        ticket.answer(|reply| reply.send(0).unwrap());
        let expected = if is_let_go { Errno::INTR.raw_os_error() } else { 0 };
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [expected]);
        assert_eq!(deadlines.statistics(Work::default()).interrupted, u64::from(is_let_go));
    }
}

#[test]
fn what_gets_on_is_waited_for_beyond_the_deadline() {
    let deadlines = Deadlines::with(Duration::from_millis(1), Patience::NONE);
    let (ticket, receiver) = begin(&deadlines);
    let (other, refused) = channel();
    let other = deadlines.begin(Operation::Lookup, 8, other);
    for steps in 0..10 {
        std::thread::sleep(Duration::from_millis(2));
        let held_up = |node| (node == 7).then_some(steps);
        assert!(deadlines.give_up_overdue(&held_up), "somebody is still at the other one");
        assert!(ticket.is_wanted());
    }
    assert_eq!(refused.recv(), Ok(Errno::IO.raw_os_error()), "it is not held up");
    drop(other);
    while ticket.is_wanted() {
        deadlines.give_up_overdue(&|_| Some(9));
    }
    assert_eq!(receiver.recv(), Ok(Errno::IO.raw_os_error()), "it got no further");
    // A signal ends it as any other request.
    let (sender, receiver) = channel();
    let ticket = deadlines.begin(Operation::Lookup, 7, sender);
    assert!(deadlines.interrupt(9));
    deadlines.let_signalled_go();
    assert!(!ticket.is_wanted());
    assert_eq!(receiver.recv(), Ok(Errno::INTR.raw_os_error()));
}

#[test]
fn bytes_that_somebody_is_stuck_on_are_not_waited_for_again() {
    let deadlines = Deadlines::new(Duration::ZERO);
    let read = |node, bytes| {
        let (sender, receiver) = channel();
        (deadlines.begin_read(node, bytes, sender), receiver)
    };
    let (stuck, receiver) = read(7, 4096..8192);
    assert!(deadlines.give_up_overdue(&|_| None) && deadlines.give_up_overdue(&|_| None));
    assert_eq!(receiver.recv(), Ok(Errno::IO.raw_os_error()));
    for (node, bytes, is_same) in
        [(7, 8000..9000, true), (7, 0..5000, true), (7, 8192..9000, false), (8, 0..9000, false)]
    {
        let (ticket, receiver) = read(node, bytes.clone());
        assert_eq!(ticket.is_none(), is_same, "{node} {bytes:?}");
        drop(ticket);
        assert_eq!(receiver.recv(), Ok(Errno::IO.raw_os_error()));
    }
    drop(stuck);
    assert!(!deadlines.give_up_overdue(&|_| None), "nobody is at work");
    assert!(read(7, 4096..8192).0.is_some());
    assert_eq!(lock(&deadlines.requests).stuck, []);
    assert_eq!(deadlines.statistics(Work::default()).of(Operation::Read), 6);
}

#[test]
fn an_answer_comes_once_and_a_dropped_ticket_is_an_error() {
    let deadlines = Deadlines::new(Duration::from_secs(60));
    let (ticket, receiver) = begin(&deadlines);
    assert_eq!(deadlines.statistics(Work::default()).in_flight, 1);
    ticket.answer(|reply| reply.send(0).unwrap());
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [0]);
    let (ticket, receiver) = begin(&deadlines);
    drop(ticket);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [Errno::IO.raw_os_error()]);
    assert_eq!(deadlines.statistics(Work::default()).in_flight, 0);
}

/// > A change that has begun is ended by no signal. It waits for its disk as with any file system; `umount -f` lets
/// > those go who wait.
#[test]
fn a_change_that_has_begun_is_answered_with_what_comes_of_it() {
    let deadlines = Deadlines::with(Duration::ZERO, Patience::NONE);
    let change = || {
        let (sender, receiver) = channel();
        (deadlines.begin(Operation::Write, 7, sender), receiver)
    };
    let begins = |ticket: &Ticket<Sender<i32>>| ticket.asks_for(tarnfs_tree::asker::begins);
    // Signals and the deadline come too late.
    let (ticket, receiver) = change();
    begins(&ticket).unwrap();
    assert!(deadlines.interrupt(9), "the kernel need not say it again");
    for _ in 0..2 {
        assert_eq!(deadlines.let_signalled_go(), None);
        assert!(deadlines.give_up_overdue(&|_| None), "somebody is at work");
    }
    assert!(ticket.is_wanted());
    begins(&ticket).unwrap();
    ticket.answer(|reply| reply.send(0).unwrap());
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [0]);
    // A signal that came before it is forgotten.
    let patience = Patience { reads: Duration::ZERO, others: Duration::from_secs(3600) };
    let patient = Deadlines::with(Duration::from_secs(3600), patience);
    let (sender, receiver) = channel();
    let ticket = patient.begin(Operation::Write, 7, sender);
    assert!(patient.interrupt(9) && patient.let_signalled_go().is_some());
    begins(&ticket).unwrap();
    assert_eq!(patient.let_signalled_go(), None);
    ticket.refuse(Errno::NOSPC);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [Errno::NOSPC.raw_os_error()]);
    // Either comes before it.
    for (is_signalled, errno) in [(true, Errno::INTR), (false, Errno::IO)] {
        let (ticket, receiver) = change();
        if is_signalled {
            assert!(deadlines.interrupt(9));
        } else {
            deadlines.give_up_overdue(&|_| None);
        }
        assert_eq!(begins(&ticket), Err(Errno::INTR));
        ticket.answer(|reply| reply.send(0).unwrap());
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [errno.raw_os_error()]);
    }
    assert_eq!(deadlines.statistics(Work::default()).interrupted, 1);
}

/// On a disk `mkdir(2)` is not interrupted. Behind a disk that hangs, whatever has not begun has its error in time.
#[test]
fn what_waits_for_a_disk_hears_no_signal() {
    let deadlines = Deadlines::with(Duration::ZERO, Patience::NONE);
    let (sender, receiver) = channel();
    let ticket = deadlines.begin(Operation::Write, 7, sender);
    ticket.waiting.waits_for_disk();
    assert!(deadlines.interrupt(9) && ticket.is_wanted());
    assert_eq!(deadlines.let_signalled_go(), None);
    deadlines.give_up_overdue(&|_| None);
    assert_eq!(receiver.recv(), Ok(Errno::IO.raw_os_error()));
    assert!(!ticket.waiting.begins());
    ticket.waiting.waits_for_disk();
    assert!(!ticket.waiting.begins());
}
