//! Asks a person at a terminal for something that nobody is to see.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};

use crate::{logging, signals};

/// Bytes of a line at most.
const MOST: usize = 4096;

/// Keys, as a terminal sends them.
const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BACKSPACE: [u8; 2] = [0x08, 0x7f];
const CLEAR: u8 = 0x15;

/// How often it is looked whether a signal has come.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The modes that the terminal had before it was told to hide what is typed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal shows again what is typed, if it was told not to: also to be called by whoever ends this process.
pub(crate) fn show_again() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // There is nothing else to do.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &before);
    }
}

/// Why no more is read.
enum End {
    /// The line is there.
    Line,
    /// Ctrl-C.
    Interrupt,
    /// A signal has come.
    Signal,
}

/// True if there is a person who can be asked: what is typed comes from a terminal, the question shows on one, and no
/// other program has it meanwhile.
pub(crate) fn has_person() -> bool {
    let is_ours = || tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|group| group == rustix::process::getpgrp());
    io::stdin().is_terminal() && io::stderr().is_terminal() && is_ours()
}

/// The line that a person types at the terminal that is standard input, without its end; it does not show there. Ctrl-C
/// is a signal to this process, and so is what others send. Whoever listens to signals says by `is_cancelled` that one
/// has come.
pub(crate) fn line(question: &str, is_cancelled: &dyn Fn() -> bool) -> io::Result<Vec<u8>> {
    let stdin = rustix::stdio::stdin();
    let before = tcgetattr(stdin)?;
    let mut hidden = before.clone();
    // Ctrl-C comes as a key, and signals wait, so that the terminal shows again what is typed when the program ends.
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
    hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
    signals::hold();
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    let mut line = Vec::new();
    let end = tcsetattr(stdin, OptionalActions::Flush, &hidden).map_err(io::Error::from).and_then(|()| {
        logging::print(question.to_owned());
        keys(&mut line, is_cancelled)
    });
    show_again();
    logging::print("\n".to_owned());
    if matches!(end, Ok(End::Interrupt)) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT);
    }
    signals::release();
    match end? {
        End::Line => Ok(line),
        End::Interrupt | End::Signal => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// Adds what is typed to `line`.
fn keys(line: &mut Vec<u8>, is_cancelled: &dyn Fn() -> bool) -> io::Result<End> {
    let stdin = rustix::stdio::stdin();
    loop {
        if is_cancelled() || signals::one_waits() {
            return Ok(End::Signal);
        }
        let mut key = [0];
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK)).and_then(|ready| match ready {
            0 => Err(rustix::io::Errno::INTR),
            _ => rustix::io::read(stdin, &mut key),
        }) {
            Ok(0) => return Ok(End::Line),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match key[0] {
            b'\n' | b'\r' | END => return Ok(End::Line),
            INTERRUPT => return Ok(End::Interrupt),
            CLEAR => line.clear(),
            key if BACKSPACE.contains(&key) => {
                // All bytes of a character of UTF-8.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            key if line.len() < MOST => line.push(key),
            _ => {}
        }
    }
}
