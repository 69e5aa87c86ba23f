//! Memory that this process does not need any more goes back to the system.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tarnfs_codec::engine::PieceCache;

/// Between two looks at whether anybody has read. After one look without a read all is given back.
const LOOK: Duration = Duration::from_secs(20);

/// Keeps malloc from giving each thread an arena of its own, up to eight for each core: what one thread has freed, no
/// other would use, and many readers at once took twice the memory of their budget. Our threads allocate seldom enough
/// to share. Nor does it keep what is large. To be called before there is a second thread.
pub(crate) fn share_free_memory() {
    #[cfg(target_env = "gnu")]
    {
        const ARENAS: i32 = 2;
        // Larger blocks are always mapped. Without a number malloc chooses one that grows: then the zeros of a
        // dictionary are written, which takes time, and are in memory before anybody uses them.
        const MAPPED_FROM: i32 = 1 << 20;
        // SAFETY: sets numbers inside malloc, before there is a second thread.
        #[allow(unsafe_code, reason = "nothing safe sets them")]
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, ARENAS);
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        }
    }
}

/// Gives the system what malloc keeps of memory that was freed. A first pass frees some hundred MiB at once.
pub(crate) fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: malloc takes its own locks.
        #[allow(unsafe_code, reason = "nothing safe does it")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Empties a cache that nobody has read from for a while. Ends when dropped.
#[derive(Debug)]
pub(crate) struct IdleCache {
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl IdleCache {
    pub(crate) fn watch(cache: Arc<PieceCache>) -> io::Result<Self> {
        let end = Arc::<(Mutex<bool>, Condvar)>::default();
        let ended = Arc::clone(&end);
        let thread = std::thread::Builder::new()
            .name("tarnfs-idle".to_owned())
            .stack_size(64 << 10)
            .spawn(move || watch(&cache, &ended))?;
        Ok(Self { end, thread: Some(thread) })
    }
}

fn watch(cache: &PieceCache, (ended, end): &(Mutex<bool>, Condvar)) {
    let (mut before, mut is_empty) = (cache.uses(), true);
    let mut guard = ended.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        guard = end.wait_timeout_while(guard, LOOK, |ended| !*ended).unwrap_or_else(PoisonError::into_inner).0;
        if *guard {
            return;
        }
        let now = cache.uses();
        if now != before {
            is_empty = false;
        } else if !is_empty {
            cache.give_back();
            give_back_freed();
            log::debug!("nobody reads: the caches are empty");
            is_empty = true;
        }
        before = now;
    }
}

impl Drop for IdleCache {
    fn drop(&mut self) {
        *self.end.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing left to do.
            let _ = thread.join();
        }
    }
}
