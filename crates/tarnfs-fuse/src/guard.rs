//! Panics while serving: caught, with the backtrace that only the panic hook can see.

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True while this thread works for the kernel.
    static SERVING: Cell<bool> = const { Cell::new(false) };
    /// What the hook saw last.
    static SEEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Lets the panic hook keep message and backtrace of panics inside [`catch`]; others go on to the hook that was there.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |panic| {
            if SERVING.get() {
                let seen = format!("{panic}\n{}", Backtrace::force_capture());
                SEEN.with(|place| place.replace(Some(seen)));
            } else {
                previous(panic);
            }
        }));
    });
}

/// Does `work`; the error is what is to be logged of a panic.
///
/// What `work` touches must bear to be left half done: trees and sources are shared by threads and keep whatever they
/// change behind locks, whose poisoning they handle.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let outer = SERVING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    SERVING.set(outer);
    result.map_err(|_| SEEN.with(RefCell::take).unwrap_or_else(|| "panic".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place_and_backtrace() {
        install();
        assert_eq!(catch(|| 7), Ok(7));
        let told = catch(|| panic!("as tested")).unwrap_err();
        assert!(told.contains("as tested") && told.contains("guard.rs"), "{told}");
        assert!(told.contains("tarnfs_fuse::guard"), "{told}");
        assert_eq!(catch(|| 8), Ok(8));
    }
}
