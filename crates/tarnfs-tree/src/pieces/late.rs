//! Long pieces, which are verified beside the readers of their file.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tarnfs_format::Piece;
use tarnfs_source::SharedSource;

use super::coded::Decoded;
use super::{PieceSource, is_sealed};
use crate::build::is_damage;
use crate::members::Member;
use crate::unproven::{self, Late, Step as Turn};

/// For so long a long piece is verified before others have their turn.
const TURN: Duration = Duration::from_millis(50);

/// Bytes that are read at once for it.
const READ_AT_ONCE: u64 = 256 << 10;

impl PieceSource {
    /// Has piece `at` verified beside the readers, if that is to be done and nobody is at it.
    pub(super) fn begin(&self, at: usize, member: &Arc<Member>) {
        let Some(watched) = &self.watched else { return };
        if member.tries.begin() {
            unproven::submit(Arc::new(Beside { file: Weak::clone(&watched.this), at, member: Arc::clone(member) }));
        }
    }

    /// Verifies some more of the long piece `at`. True once it is known whether it is right. An error says that it
    /// cannot be known now.
    pub(super) fn verify_more(
        &self,
        at: usize,
        piece: &Piece,
        member: &Member,
        buffer: &mut Vec<u8>,
    ) -> io::Result<bool> {
        self.context.cancel.check()?;
        if member.verdict().is_some() {
            return Ok(true);
        }
        let step = self.opened(at, piece).and_then(|(decoded, skip)| {
            if let Some(whole) = &decoded.whole {
                if !whole.advance()? {
                    member.decide(decoded.complaint().map_or(Ok(()), |what| Err(what.to_owned())));
                }
                return Ok(());
            }
            let Some(range) = member.unseen(READ_AT_ONCE) else {
                // With a checksum, whoever has seen the last of it is about to decide.
                if is_sealed(piece) {
                    self.check_seal(&decoded.source, skip)?;
                    // Its seal was compared.
                    member.decide(decoded.flaw(piece, true).map_or(Ok(()), Err));
                }
                return Ok(());
            };
            buffer.resize((range.end - range.start) as usize, 0);
            decoded.source.read_exact_at(buffer, skip.saturating_add(range.start))?;
            member.see(buffer, range.start);
            Ok(())
        });
        match step {
            Err(error) if is_damage(&error) => member.decide(Err(error.to_string())),
            step => step?,
        }
        unproven::count_step();
        Ok(member.verdict().is_some())
    }

    /// Has the check of an encryption compared, whose verdict the next read tells.
    pub(super) fn check_seal(&self, source: &SharedSource, skip: u64) -> io::Result<()> {
        source.verify(&|| self.context.cancel.is_cancelled())?;
        source.read_exact_at(&mut [0], skip)
    }

    /// True while a reader gets on with piece `at` himself.
    pub(super) fn is_led(&self, at: usize, piece: &Piece, member: &Member) -> bool {
        let position = match self.opened(at, piece) {
            Ok((Decoded { whole: Some(whole), .. }, _)) => Some(whole.position()),
            Ok(_) => member.unseen(1).map(|range| range.start),
            Err(_) => None,
        };
        position.is_some_and(|position| member.is_led(position))
    }
}

/// A long piece that is verified beside the readers of its file.
struct Beside {
    /// Gone once nobody has it open.
    file: Weak<PieceSource>,
    at: usize,
    member: Arc<Member>,
}

impl Late for Beside {
    fn step(&self) -> Turn {
        let Self { at, member, .. } = self;
        let begun = Instant::now();
        let mut buffer = Vec::new();
        loop {
            let found = self.file.upgrade();
            let Some((file, (_, piece))) = found.as_ref().and_then(|file| Some((file, file.pieces.get(*at)?))) else {
                member.tries.end();
                return Turn::Ended;
            };
            if member.verdict().is_none() && file.is_led(*at, piece, member) {
                return Turn::NotNow;
            }
            match file.verify_more(*at, piece, member, &mut buffer) {
                Ok(false) if begun.elapsed() < TURN => {}
                Ok(false) => return Turn::More,
                Ok(true) => {
                    match member.verdict() {
                        Some(Err(what)) if file.serves_damaged() => file.serve_damaged(*at, piece, what),
                        Some(Err(what)) => {
                            let path = file.path();
                            log::error!(
                                "{path}: damaged, and not read any more: {what}; what was read before was not verified"
                            );
                        }
                        _ => log::debug!("{}: its checksum is right", file.path()),
                    }
                    member.tries.end();
                    return Turn::Ended;
                }
                Err(error) => {
                    self.failed(&error.to_string());
                    return Turn::Ended;
                }
            }
        }
    }

    fn failed(&self, why: &str) {
        let minutes = self.member.tries.fail();
        let name = self.file.upgrade().map_or_else(|| "a file".to_owned(), |file| file.path());
        log::warn!(
            "{name}: could not be verified this time: {why}; it is tried again in {minutes} minutes if somebody reads it"
        );
    }
}
