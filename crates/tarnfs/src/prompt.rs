//! Asks a person at a terminal for something that nobody is to see.

use std::io;

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use crate::logging;

/// Bytes of a line at most.
const MOST: usize = 4096;

/// Keys, as a terminal sends them.
const INTERRUPT: u8 = 0x03;
const END: u8 = 0x04;
const BACKSPACE: [u8; 2] = [0x08, 0x7f];
const CLEAR: u8 = 0x15;

/// Gives a terminal its modes back.
struct Restored(Termios);

impl Drop for Restored {
    fn drop(&mut self) {
        // There is nothing else to do.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.0);
    }
}

/// The line that a person types at the terminal that is standard input, without its end; it does not show there. To be
/// called before signals are listened to: Ctrl-C ends the program.
pub(crate) fn line(question: &str) -> io::Result<Vec<u8>> {
    let stdin = rustix::stdio::stdin();
    let before = tcgetattr(stdin)?;
    let mut hidden = before.clone();
    // Ctrl-C comes as a key, so that the terminal shows again what is typed when the program ends.
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    hidden.special_codes[SpecialCodeIndex::VMIN] = 1;
    hidden.special_codes[SpecialCodeIndex::VTIME] = 0;
    let restored = Restored(before);
    tcsetattr(stdin, OptionalActions::Flush, &hidden)?;
    logging::print(question.to_owned());
    let mut line = Vec::new();
    let read = loop {
        let mut key = [0];
        match rustix::io::read(stdin, &mut key) {
            Ok(0) => break Ok(false),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => break Err(error),
        }
        match key[0] {
            b'\n' | b'\r' | END => break Ok(false),
            INTERRUPT => break Ok(true),
            CLEAR => line.clear(),
            key if BACKSPACE.contains(&key) => {
                // All bytes of a character of UTF-8.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            key if line.len() < MOST => line.push(key),
            _ => {}
        }
    };
    drop(restored);
    logging::print("\n".to_owned());
    if read? {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT)?;
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(line)
}
