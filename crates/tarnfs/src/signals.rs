//! SIGINT, SIGTERM and SIGHUP: the first one asks whatever runs to end, a second one ends the process.
//!
//! SIGINT and SIGHUP stay ignored where whoever started the program had them ignored (`nohup`, `&` in a script).

#![allow(unsafe_code, reason = "masks and dispositions of signals, which no safe crate here offers")]

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use libc::c_int;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};
use tarnfs_fuse::{Stopper, Unmounter};
use tarnfs_source::Cancel;

use crate::exit::Code;
use crate::made::Made;
use crate::prompt;
use crate::terminal;
use crate::watcher::Watcher;

/// Work that is asked to end and does not is ended after this time.
const PATIENCE: Duration = Duration::from_millis(900);

/// The same where somebody was told, and closes what is open.
const PATIENCE_WITH_THE_TOLD: Duration = Duration::from_secs(5);

/// What is not finished is removed for so long by who is asked a second time.
const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// Who has waited until all was removed ends by itself in this time.
const BY_ITSELF: Duration = Duration::from_millis(100);

/// A mount that nobody uses has ended after this time.
const AT_ONCE: Duration = Duration::from_millis(500);

/// What a person or the system ends a program with.
const OURS: [c_int; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Keeps signals waiting until [`Ending::listen`], in this thread and in a process that it forks. Without it one that
/// comes before would end the process in the middle of whatever it does.
pub(crate) fn hold() {
    set_mask(libc::SIG_BLOCK);
}

/// Lets signals in again.
pub(crate) fn release() {
    set_mask(libc::SIG_UNBLOCK);
}

fn set_mask(how: c_int) {
    // SAFETY: `ours` is a set that has been made by `sigemptyset`, and lives longer than the calls.
    unsafe {
        let mut ours = MaybeUninit::uninit();
        libc::sigemptyset(ours.as_mut_ptr());
        for signal in OURS {
            libc::sigaddset(ours.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(how, ours.as_ptr(), std::ptr::null_mut());
    }
}

/// True if Ctrl-C was pressed since [`hold`].
pub(crate) fn interrupt_waits() -> bool {
    waits(SIGINT)
}

/// True if a signal that would end the process has come since [`hold`].
pub(crate) fn one_waits() -> bool {
    OURS.into_iter().any(|signal| waits(signal) && !is_ignored(signal))
}

fn waits(signal: c_int) -> bool {
    let mut waiting = MaybeUninit::uninit();
    // SAFETY: `sigpending` fills the set, as it says by returning 0.
    unsafe { libc::sigpending(waiting.as_mut_ptr()) == 0 && libc::sigismember(waiting.as_ptr(), signal) == 1 }
}

fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action this only fills in the old one, as it says by returning 0.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// What a signal ends. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending(Arc<Mutex<SignalState>>, Arc<Arrived>);

/// Signals that have come and were not obeyed, in the order of [`OURS`]. Set by their handlers, whoever listens then.
#[derive(Debug, Default)]
struct Arrived {
    signals: [Arc<AtomicBool>; OURS.len()],
    is_registered: AtomicBool,
}

/// See [`Ending::when_asked`].
struct Told(Box<dyn Fn() + Send>);

impl std::fmt::Debug for Told {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Told")
    }
}

#[derive(Debug, Default)]
struct SignalState {
    /// The thread that waits for signals, and what ends it.
    listener: Option<(Handle, JoinHandle<()>)>,
    /// Who removes the mount point, where there is somebody.
    watcher: Option<Watcher>,
    cancel: Cancel,
    mounted: Option<Stopper>,
    /// What is told that a signal has come.
    told: Option<Told>,
    /// There is a person at a terminal; asked while that can be asked.
    is_told: bool,
    /// The mount point, if this process made it.
    made_folder: Option<Arc<Made>>,
    /// Removes what is not finished, if the process ends by itself.
    remover: Option<Remover>,
    /// See [`Ending::goes_on`].
    last_words: Option<(PathBuf, String)>,
    asked: bool,
}

/// Something to do at the end.
#[derive(Clone)]
struct Remover(Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Remover {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Remover")
    }
}

impl Ending {
    fn state(&self) -> std::sync::MutexGuard<'_, SignalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The flag that a signal sets while nothing is mounted.
    pub(crate) fn cancel(&self) -> Cancel {
        self.state().cancel.clone()
    }

    /// From now on a process that is ended without waiting for anybody calls `remover` first. That may take long; it is
    /// waited for until a second signal comes.
    pub(crate) fn removes(&self, remover: Option<impl Fn() + Send + Sync + 'static>) {
        self.state().remover = remover.map(|remover| Remover(Arc::new(remover)));
    }

    /// From now on a signal unmounts. A signal that came before this call does so at once.
    pub(crate) fn mounted(&self, stopper: Stopper) {
        let mut state = self.state();
        if state.asked {
            stopper.stop();
        }
        state.mounted = Some(stopper);
        state.is_told = terminal::is_told();
    }

    /// The mount is gone, and other work goes on: the next signal is the first one again, and asks that to end.
    /// `last_words` are said if the process is ended without waiting for it, as long as there is something at the path.
    pub(crate) fn goes_on(&self, last_words: (PathBuf, String)) {
        let mut state = self.state();
        state.asked = false;
        state.mounted = None;
        state.cancel = Cancel::default();
        state.last_words = Some(last_words);
    }

    /// A signal also calls `tell`; one that came before does so at once. What is told ends soon, as all work.
    pub(crate) fn when_asked(&self, tell: impl Fn() + Send + 'static) {
        let mut state = self.state();
        if state.asked {
            tell();
        }
        state.told = Some(Told(Box::new(tell)));
    }

    /// A folder to be removed when the process ends, or `None` once it is gone.
    pub(crate) fn made_folder(&self, folder: Option<Arc<Made>>) {
        self.state().made_folder = folder;
    }

    /// Who removes the mount point when the process ends.
    pub(crate) fn watched_by(&self, watcher: Watcher) {
        self.state().watcher = Some(watcher);
    }

    /// Does `work` while no thread waits for signals, so that the thread that goes on waiting is as restricted as this
    /// one is then.
    pub(crate) fn without_listener(&self, work: impl FnOnce()) -> std::io::Result<()> {
        hold();
        let listener = self.state().listener.take();
        if let Some((handle, thread)) = listener {
            handle.close();
            // A panic of it has been told.
            let _ = thread.join();
        }
        work();
        self.listen()
    }

    /// Starts the thread that waits for signals.
    pub(crate) fn listen(&self) -> std::io::Result<()> {
        // An index that may not grow any more (`ulimit -f`) is an error to whoever writes it, not the end of the
        // process.
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        let ours =
            || OURS.into_iter().zip(&self.1.signals).filter(|(signal, _)| *signal == SIGTERM || !is_ignored(*signal));
        // Before the listener's own, so that a signal is known when it is woken. They stay when it ends: one that comes
        // to another thread before there is a new listener is obeyed by that.
        if !self.1.is_registered.swap(true, Ordering::SeqCst) {
            for (signal, came) in ours() {
                signal_hook::flag::register(signal, Arc::clone(came))?;
            }
        }
        let mut signals = Signals::new(ours().map(|(signal, _)| signal))?;
        // Only now is there somebody to whom those that came since `hold` can be given.
        release();
        let ending = self.clone();
        let handle = signals.handle();
        let thread = std::thread::Builder::new().name("signals".into()).stack_size(128 << 10).spawn(move || {
            ending.obey();
            for _ in signals.forever() {
                ending.obey();
            }
        })?;
        self.state().listener = Some((handle, thread));
        Ok(())
    }

    /// Obeys those that have come.
    fn obey(&self) {
        for came in &self.1.signals {
            if came.swap(false, Ordering::SeqCst) {
                self.signalled();
            }
        }
    }

    fn signalled(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.asked, true) {
            end_now(&state);
        }
        state.cancel.cancel();
        if let Some(Told(tell)) = &state.told {
            tell();
        }
        if let Some(stopper) = &state.mounted {
            stopper.stop();
            let is_told = state.is_told;
            drop(state);
            // Where nobody has a file open, the process has ended by then.
            std::thread::sleep(AT_ONCE);
            if is_told && self.state().mounted.is_some() {
                terminal::say("files are in use: it ends in 5 s, or at once with Ctrl-C once more");
            }
            return;
        }
        let patience = if state.told.is_some() { PATIENCE_WITH_THE_TOLD } else { PATIENCE };
        drop(state);
        let ending = self.clone();
        // Work that looks at the flag ends before this; a thread that cannot start means no patience.
        let waiting = std::thread::Builder::new().name("patience".into()).spawn(move || {
            std::thread::sleep(patience);
            let remover = ending.state().remover.clone();
            if let Some(Remover(remove)) = remover {
                // The lock is for who asks a second time.
                remove();
                std::thread::sleep(BY_ITSELF);
            }
            let state = ending.state();
            if state.mounted.is_none() {
                end_now(&state);
            }
        });
        if waiting.is_err() {
            end_now(&self.state());
        }
    }
}

/// Ends the process as other programs end whose output nobody reads any more: by the signal, which shells know. Comes
/// back where that is ignored.
pub(crate) fn end_by_broken_pipe() {
    // If the handler cannot be set, the exit code is that of any failure.
    let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
}

/// Ends the process without waiting for anybody for long. An index that is being written has no name yet or a temporary
/// one.
#[allow(clippy::exit)] // Threads that do not come back cannot be joined.
fn end_now(state: &SignalState) -> ! {
    prompt::show_again();
    if let Some(Remover(remove)) = state.remover.clone() {
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        let own = Arc::clone(&remove);
        let removing = std::thread::Builder::new().name("removing".into()).spawn(move || {
            own();
            let _ = done.send(());
        });
        match removing {
            // What still hangs is left behind.
            Ok(_) => {
                let _ = is_done.recv_timeout(LAST_PATIENCE);
            }
            Err(_) => remove(),
        }
    }
    if let Some(watcher) = &state.watcher {
        // It does the same when it sees that this process has ended; who waits for this process may look at once. What
        // another thread is about to mount it looks for only then.
        let _ = watcher.unmount();
        let _ = watcher.ending();
    } else if let Some(folder) = &state.made_folder {
        // If it cannot be removed, there is nothing else to try.
        let _ = folder.remove();
    }
    if state.mounted.is_none() {
        let words = state.last_words.as_ref().filter(|(path, _)| path.symlink_metadata().is_ok());
        terminal::say_interrupted(words.map(|(_, words)| words.as_str()));
    }
    std::process::exit(Code::Interrupted as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::Command;

    /// Set in the process in which signals are taken: handlers are those of a whole process.
    const CHILD: &str = "TARNFS_TEST_SIGNALS";

    /// A signal that comes to another thread while nobody listens is obeyed as soon as somebody does.
    #[test]
    fn no_signal_is_lost_while_nobody_listens() {
        if std::env::var_os(CHILD).is_some() {
            return child();
        }
        let test = std::thread::current().name().unwrap().to_owned();
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ended = command.args([&test, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.code(), Some(Code::Interrupted as i32), "{ended:?}");
    }

    /// What is removed at the end may hang: a second signal does not wait for it.
    #[test]
    fn a_second_signal_ends_what_hangs_while_it_removes() {
        if std::env::var_os(CHILD).is_some() {
            let ending = Ending::default();
            ending.listen().unwrap();
            let (removes, is_removing) = std::sync::mpsc::channel();
            let hangs = move || {
                removes.send(()).unwrap();
                std::thread::sleep(Duration::from_secs(600));
            };
            ending.removes(Some(hangs));
            // SAFETY: sends this process a signal, for which it has a handler.
            let ask = || assert_eq!(unsafe { libc::kill(libc::getpid(), SIGTERM) }, 0);
            ask();
            // One signal is waited for.
            is_removing.recv().unwrap();
            ask();
            return std::thread::sleep(Duration::from_secs(120));
        }
        let test = std::thread::current().name().unwrap().to_owned();
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ended = command.args([&test, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.code(), Some(Code::Interrupted as i32), "{ended:?}");
    }

    /// While a mount that has ended is committed, a signal is the first one again; and who is ended says where what was
    /// written is.
    #[test]
    fn what_goes_on_behind_a_mount_is_asked_before_it_is_ended() {
        const ASKED_AGAIN: &str = "asked again";
        if std::env::var_os(CHILD).is_some() {
            let ending = Ending::default();
            ending.listen().unwrap();
            // SAFETY: sends this process a signal, for which it has a handler.
            let ask = || assert_eq!(unsafe { libc::kill(libc::getpid(), SIGTERM) }, 0);
            for _ in 0..2 {
                let cancel = ending.cancel();
                ask();
                while !cancel.is_cancelled() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                ending.goes_on(("/".into(), "it is kept".to_owned()));
            }
            let _ = writeln!(std::io::stderr(), "{ASKED_AGAIN}");
            ask();
            ask();
            return std::thread::sleep(Duration::from_secs(120));
        }
        let test = std::thread::current().name().unwrap().to_owned();
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ended = command.args([&test, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.code(), Some(Code::Interrupted as i32), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(ASKED_AGAIN) && said.contains("it is kept"), "{ended:?}");
    }

    fn child() {
        let ending = Ending::default();
        ending.listen().unwrap();
        let raise = || {
            // SAFETY: sends this process a signal, for which it has a handler.
            assert_eq!(unsafe { libc::kill(libc::getpid(), SIGTERM) }, 0);
            // This thread keeps signals waiting; the one that waits for this one does not.
            while !ending.1.signals.iter().any(|came| came.load(Ordering::SeqCst)) {
                std::thread::yield_now();
            }
        };
        ending.without_listener(raise).unwrap();
        // Obeyed, it ends this process.
        std::thread::sleep(Duration::from_secs(120));
    }
}
