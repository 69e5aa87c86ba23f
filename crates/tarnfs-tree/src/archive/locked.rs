//! Which files of an archive are encrypted, and whether a password opens any of them: told when it is opened, not when
//! somebody reads.
//!
//! An archive without encrypted files costs one look at its coders. Of others every file is looked at, and few bytes
//! are decoded: ciphers that can tell a wrong password do so in their first bytes, and of the others small files are
//! tried.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarnfs_codec::CoderContext;
use tarnfs_format::{Coder, Piece};
use tarnfs_index::{Holder, Index, Node, Row};
use tarnfs_source::{Cancel, MemorySource, SharedSource, Source as _};

use super::ArchiveTree;
use crate::chain::chain;
use crate::pieces::stored;
use crate::{Error, Kind};

/// What [`ArchiveTree::locked`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedFiles {
    /// Regular files, by their names: one with two names is two.
    pub files: u64,
    /// Those that are encrypted.
    pub encrypted: u64,
    /// Those with content that are not.
    pub readable: u64,
    /// Of the encrypted ones, those that passwords were tried with.
    pub tried: u64,
    /// What the passwords are worth.
    pub passwords: Fit,
}

/// Whether passwords open what is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// None is given.
    NotGiven,
    /// They open none of the encrypted files that were tried. These need not be all of them.
    None,
    /// They open some, or too much would have to be decoded to know.
    SomeOrUnknown,
}

/// How a try ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    Wrong,
    FitsOrUnknown,
    /// There was no more time.
    TooLong,
}

/// Rows that are looked at under one lock of the index.
const BATCH: usize = 256;

/// Encrypted files that are tried, and passwords times files.
const MOST_FILES: usize = 1024;
const MOST_TRIES: usize = 4096;

/// The same where a key is derived for each, which takes some milliseconds. So many that no password opens are worth a
/// warning: an archive rarely has several passwords.
const ENOUGH: usize = 32;

/// Passwords are tried for so long before a mount.
const LONGEST_TRY: Duration = Duration::from_secs(3);

/// Names that are looked at for each node of the index, and beside those.
const NAMES_PER_NODE: u64 = 16;
const MORE_NAMES: u64 = 1 << 20;

/// Bytes that are decoded for all of it.
const MOST_DECODED: u64 = 16 << 20;

impl ArchiveTree {
    /// Which files are encrypted, and whether the passwords with which this archive was opened fit. `None` if nothing
    /// is encrypted.
    pub fn locked(&self, cancel: &Cancel) -> Result<Option<LockedFiles>, Error> {
        if !has_encrypted(&*self.index)? {
            return Ok(None);
        }
        let mut found = LockedFiles { files: 0, encrypted: 0, readable: 0, tried: 0, passwords: Fit::NotGiven };
        // The cheapest to try first.
        let mut candidates: Vec<(u64, Row, Piece)> = Vec::new();
        self.each_file(cancel, &mut |row| {
            found.files += 1;
            let Some(piece) = self.encrypted_piece(row)? else {
                found.readable += u64::from(row.size > 0);
                return Ok(());
            };
            found.encrypted += 1;
            candidates.push((piece.skip.saturating_add(piece.length), row.clone(), piece));
            if candidates.len() >= 2 * MOST_FILES {
                candidates.sort_by_key(|(cost, ..)| *cost);
                candidates.truncate(MOST_FILES);
            }
            Ok(())
        })?;
        candidates.sort_by_key(|(cost, ..)| *cost);
        candidates.truncate(MOST_FILES);
        if candidates.iter().any(|(.., piece)| derives_key(piece)) {
            candidates = some_of(candidates);
        }
        if !self.streams.context().passwords.is_empty() {
            let (tried, outcome) = self.try_passwords(&candidates, cancel)?;
            found.tried = tried;
            found.passwords = if outcome == Try::Wrong { Fit::None } else { Fit::SomeOrUnknown };
        }
        Ok((found.encrypted > 0).then_some(found))
    }

    fn each_file(&self, cancel: &Cancel, receive: &mut dyn FnMut(&Row) -> Result<(), Error>) -> Result<(), Error> {
        // An index that lies has the same rows in many folders. Names of one file count once in a summary.
        let summary = self.index.summary();
        let mut left = (summary.files + summary.folders).saturating_mul(NAMES_PER_NODE).saturating_add(MORE_NAMES);
        let mut waiting = vec![(Node::ROOT, 0)];
        while let Some((folder, from)) = waiting.pop() {
            cancel.check()?;
            let (mut rows, mut next) = (Vec::new(), from);
            self.index.children(folder, from, &mut |behind, _, row| {
                next = behind;
                rows.push(row.clone());
                rows.len() < BATCH
            })?;
            if rows.len() == BATCH {
                waiting.push((folder, next));
            }
            left = left.saturating_sub(1 + rows.len() as u64);
            if left == 0 {
                log::debug!("the index has more names than its archive may have: not all files are looked at");
                break;
            }
            for row in rows {
                match row.kind {
                    Kind::Folder => waiting.push((row.node, 0)),
                    Kind::File => receive(&row)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The first piece of a file that is encrypted.
    fn encrypted_piece(&self, row: &Row) -> Result<Option<Piece>, Error> {
        if !row.has_pieces {
            return Ok(None);
        }
        let mut pieces = self.index.pieces(Holder::File(row.node))?.into_iter();
        Ok(pieces.find(|piece| piece.coder.as_deref().is_some_and(is_encrypted)))
    }

    /// How many were tried, and what came of it.
    fn try_passwords(&self, candidates: &[(u64, Row, Piece)], cancel: &Cancel) -> Result<(u64, Try), Error> {
        // What lies in one block has one password.
        let mut tried = HashSet::new();
        let passwords = self.streams.context().passwords.iter().count();
        let (mut tries, mut decoded) = (0_usize, 0_u64);
        let begun = Instant::now();
        for (number, (cost, row, piece)) in (0..).zip(candidates) {
            cancel.check()?;
            if !tried.insert((row.stream, piece.offset)) {
                continue;
            }
            tries = tries.saturating_add(passwords);
            if tries > MOST_TRIES && tries > passwords {
                let is_enough = number >= ENOUGH as u64;
                return Ok((number, if is_enough { Try::Wrong } else { Try::FitsOrUnknown }));
            }
            // An archive may say that a key takes 16 million rounds, for each of its files and each password.
            let go_on = || cancel.check().map(|()| begun.elapsed() <= LONGEST_TRY).map_err(Error::from);
            match self.first_step(row, piece, &go_on)? {
                Try::Wrong => continue,
                Try::TooLong => return Ok((number, Try::FitsOrUnknown)),
                Try::FitsOrUnknown => {}
            }
            decoded = decoded.saturating_add(cost.saturating_mul(passwords as u64));
            if decoded > MOST_DECODED {
                return Ok((number, Try::FitsOrUnknown));
            }
            let read = self.pieces(row)?.read_at(&mut [0], 0);
            if !read.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
                return Ok((number + 1, Try::FitsOrUnknown));
            }
        }
        Ok((candidates.len() as u64, Try::Wrong))
    }

    /// [`Try::Wrong`] if the cipher itself refuses all passwords. Nothing behind it is decoded. `go_on` is asked before
    /// each password.
    fn first_step(&self, row: &Row, piece: &Piece, go_on: GoOn) -> Result<Try, Error> {
        let Some(coder) = &piece.coder else { return Ok(Try::FitsOrUnknown) };
        let stream = self.streams.get(row.stream)?;
        all_refused(self.streams.context().passwords.iter(), go_on, |password| {
            let stored: SharedSource = match stored(&stream, piece) {
                Ok(stored) => Arc::new(stored),
                // Damaged, which is told where somebody reads it.
                Err(_) => return Ok(false),
            };
            let mut done = Vec::new();
            for link in chain(coder, Some(password), stored.len(), piece.decoded)? {
                let Ok((source, context)) = link.input(&stored, &done) else { break };
                match link.codec.random_access(&source, &context) {
                    Ok(Some(random)) => done.push(random),
                    Ok(None) => break,
                    Err(error) => return Ok(error.kind() == io::ErrorKind::PermissionDenied),
                }
            }
            Ok(false)
        })
    }

    /// True if a file that cannot be read for want of the right password may be whole.
    pub(super) fn is_locked(&self, row: &Row) -> Result<bool, Error> {
        if self.streams.context().passwords.is_empty() {
            return Ok(true);
        }
        match self.encrypted_piece(row)? {
            Some(piece) => Ok(self.first_step(row, &piece, &|| Ok(true))? == Try::Wrong),
            None => Ok(false),
        }
    }
}

/// Says whether there is time for one more password. An error ends all of it.
type GoOn<'a> = &'a dyn Fn() -> Result<bool, Error>;

/// [`Try::Wrong`] if each of `passwords` is refused.
fn all_refused<P>(
    passwords: impl Iterator<Item = P>,
    go_on: GoOn,
    mut is_refused: impl FnMut(P) -> Result<bool, Error>,
) -> Result<Try, Error> {
    for password in passwords {
        if !go_on()? {
            return Ok(Try::TooLong);
        }
        if !is_refused(password)? {
            return Ok(Try::FitsOrUnknown);
        }
    }
    Ok(Try::Wrong)
}

/// True if a key is derived for `piece`.
fn derives_key(piece: &Piece) -> bool {
    piece.coder.iter().flat_map(|coder| &coder.steps).any(|step| step.codec.starts_with("aes"))
}

/// At most [`ENOUGH`] of them: the cheapest, and some from among all others.
fn some_of<T>(candidates: Vec<T>) -> Vec<T> {
    let others = candidates.len().saturating_sub(ENOUGH / 2);
    let step = others.div_ceil(ENOUGH / 2).max(1);
    let is_taken = |number: usize| number < ENOUGH / 2 || (number - ENOUGH / 2).is_multiple_of(step);
    candidates.into_iter().enumerate().filter(|(number, _)| is_taken(*number)).map(|(_, taken)| taken).collect()
}

/// True if something in the archive of that index is encrypted.
pub(crate) fn has_encrypted(index: &dyn Index) -> Result<bool, tarnfs_index::Error> {
    let mut is_any = false;
    index.coders(&mut |coder| {
        is_any = is_encrypted(coder);
        !is_any
    })?;
    Ok(is_any)
}

/// True if one of its steps needs a password: such codecs say so before they look at any byte.
pub(crate) fn is_encrypted(coder: &Coder) -> bool {
    let nothing: SharedSource = Arc::new(MemorySource::new(Vec::new(), "nothing"));
    coder.steps.iter().any(|step| {
        let context = CoderContext { properties: step.properties.as_slice().into(), ..CoderContext::default() };
        let refusal = |codec: &dyn tarnfs_codec::Codec| codec.random_access(&nothing, &context).err();
        let refusal = tarnfs_codec::coder_by_name(&step.codec).and_then(refusal);
        refusal.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// One file may have to be tried with many passwords, and each may take long.
    #[test]
    fn time_and_interruption_are_looked_at_before_each_password() {
        let (asked, tried) = (Cell::new(0), Cell::new(0));
        let go_on = || {
            asked.set(asked.get() + 1);
            if asked.get() == 7 { Err(Error::Io(io::ErrorKind::Interrupted.into())) } else { Ok(asked.get() % 4 != 0) }
        };
        let refuse = |_| {
            tried.set(tried.get() + 1);
            Ok(true)
        };
        assert_eq!(all_refused(0..3, &go_on, refuse).unwrap(), Try::Wrong);
        assert_eq!(all_refused(0..100, &go_on, refuse).unwrap(), Try::TooLong);
        assert!(all_refused(0..100, &go_on, refuse).is_err());
        assert_eq!((asked.get(), tried.get()), (7, 5));
        assert_eq!(all_refused(0..100, &|| Ok(true), |_| Ok(false)).unwrap(), Try::FitsOrUnknown);
    }

    #[test]
    fn some_of_many_are_tried_and_all_of_few() {
        for count in [0, 1, 16, 17, 32] {
            assert_eq!(some_of((0..count).collect::<Vec<_>>()).len(), count);
        }
        for count in [33, 48, 100, 1024] {
            let some = some_of((0..count).collect::<Vec<_>>());
            assert!((ENOUGH / 2 + 8..=ENOUGH).contains(&some.len()), "{count}: {}", some.len());
            assert!(some.last().is_some_and(|last| last + count / 8 >= count), "{count}: also of the last");
        }
    }
}
