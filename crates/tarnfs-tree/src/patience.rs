//! Waiting for memory that others give back.

use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tarnfs_source::Cancel;

use crate::Error;

/// Who reads a large list waits so long for others who do the same: they are done in some milliseconds.
pub(crate) const A_MOMENT: Duration = Duration::from_secs(1);

/// Others may have open what takes much memory for so long.
const PATIENCE: Duration = Duration::from_secs(50);

/// So often it is tried.
const NAP: Duration = Duration::from_millis(20);

/// Does `open`, again and again as long as others have the memory that it takes.
///
/// # Errors
///
/// Those of `open`; `ENOMEM` if there is no memory for 50 s; that of `cancel`.
pub fn with_memory<T>(cancel: &Cancel, mut open: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let begin = Instant::now();
    loop {
        match open() {
            Err(error) if error.errno() == Errno::NOMEM && begin.elapsed() < PATIENCE => {
                cancel.check()?;
                thread::sleep(NAP);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_until_there_is_memory() {
        let mut left = 3;
        let mut open = || {
            left -= 1;
            if left > 0 { Err(Errno::NOMEM.into()) } else { Ok(left) }
        };
        assert_eq!(with_memory(&Cancel::default(), &mut open).unwrap(), 0);
        let (mut tries, cancel) = (0, Cancel::default());
        let other = with_memory(&cancel, || {
            tries += 1;
            Err::<(), _>(Errno::IO.into())
        });
        assert_eq!((other.unwrap_err().errno(), tries), (Errno::IO, 1));
        cancel.cancel();
        assert!(with_memory(&cancel, || Err::<(), _>(Errno::NOMEM.into())).is_err());
    }
}
