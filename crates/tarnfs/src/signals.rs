//! SIGINT, SIGTERM and SIGHUP: the first one asks whatever runs to end, a second one ends the process.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tarnfs_fuse::Stopper;
use tarnfs_source::Cancel;

use crate::exit::Code;

/// Work that is asked to end and does not is ended after this time.
const PATIENCE: Duration = Duration::from_millis(900);

/// What a signal ends. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    cancel: Cancel,
    mounted: Option<Stopper>,
    /// The mount point, if this process made it.
    made_folder: Option<PathBuf>,
    asked: bool,
}

impl Ending {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The flag that a signal sets while nothing is mounted.
    pub(crate) fn cancel(&self) -> Cancel {
        self.state().cancel.clone()
    }

    /// From now on a signal unmounts. A signal that came before this call does so at once.
    pub(crate) fn mounted(&self, stopper: Stopper) {
        let mut state = self.state();
        if state.asked {
            stopper.stop();
        }
        state.mounted = Some(stopper);
    }

    /// A folder to be removed when the process ends, or `None` once it is gone.
    pub(crate) fn made_folder(&self, folder: Option<PathBuf>) {
        self.state().made_folder = folder;
    }

    /// Starts the thread that waits for signals.
    pub(crate) fn listen(&self) -> std::io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let ending = self.clone();
        std::thread::Builder::new().name("signals".into()).stack_size(128 << 10).spawn(move || {
            for _ in signals.forever() {
                ending.signalled();
            }
        })?;
        Ok(())
    }

    fn signalled(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.asked, true) {
            end_now(&state);
        }
        state.cancel.cancel();
        if let Some(stopper) = &state.mounted {
            stopper.stop();
            return;
        }
        drop(state);
        let ending = self.clone();
        // Work that looks at the flag ends before this; a thread that cannot start means no patience.
        let waiting = std::thread::Builder::new().name("patience".into()).spawn(move || {
            std::thread::sleep(PATIENCE);
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

/// Ends the process without waiting for anybody. An index that is being written has no name yet or a temporary one.
#[allow(clippy::exit)] // Threads that do not come back cannot be joined.
fn end_now(state: &State) -> ! {
    if let Some(folder) = &state.made_folder {
        // If it cannot be removed, there is nothing else to try.
        let _ = std::fs::remove_dir(folder);
    }
    std::process::exit(Code::Interrupted as i32)
}
