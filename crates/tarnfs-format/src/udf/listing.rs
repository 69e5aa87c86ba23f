//! Listings of folders: file identifier descriptors (ECMA-167, 4/14.4), one behind the other.

use std::io;

use super::bytes::{Place, is_damage, long_place, u16_at};
use super::image::{Image, LARGEST_BLOCK};
use super::tag;
use crate::content::Content;

/// Bytes before what its writer has put there, and before the name.
const HEAD: u64 = 38;
/// Each begins at a multiple of so many bytes.
const UNIT: u64 = 4;

const NO_NAME: &str = "there is no name in them";

const IS_HIDDEN: u8 = 1;
const IS_DELETED: u8 = 1 << 2;
const IS_PARENT: u8 = 1 << 3;

/// A listing that is being read.
#[derive(Debug)]
pub(super) struct Listing {
    content: Content,
    at: u64,
    buffer: Vec<u8>,
}

/// A name in a listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// As it is stored.
    pub(super) stored: Vec<u8>,
    pub(super) is_hidden: bool,
    /// Where its entry lies.
    pub(super) entry: Option<Place>,
}

/// What comes next in a listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Name(Name),
    /// So many bytes that are none, and why.
    Damage(u64, String),
    /// More was read than there can be.
    TooMuch,
    End,
}

impl Listing {
    pub(super) fn new(content: Content) -> Self {
        Self { content, at: 0, buffer: Vec::new() }
    }

    /// Parts that it lies in.
    pub(super) fn parts(&self) -> usize {
        self.content.pieces.len()
    }

    /// What comes next. `left` is how many bytes may still be read, of all listings.
    pub(super) fn next(&mut self, image: &mut Image<'_>, left: &mut u64) -> io::Result<Next> {
        let mut bad = None;
        loop {
            let (at, size) = (self.at, self.content.size);
            if at >= size {
                let skipped = bad.map(|from| size.saturating_sub(from));
                return Ok(skipped.map_or(Next::End, |skipped| damage(skipped, NO_NAME)));
            }
            // What is a hole, or is not there, may be longer than anything that can be read.
            let gap = match self.content.at(at) {
                Ok((piece, inside)) if piece.coder.is_some() => Some(piece.length.saturating_sub(inside)),
                Ok(_) => None,
                Err(hole) => Some(hole),
            };
            if let Some(gap) = gap {
                self.at = at.saturating_add(gap.max(1)).min(size);
                let why = self.content.missing.as_deref().unwrap_or("there is nothing in them");
                return Ok(damage(self.at.saturating_sub(bad.unwrap_or(at)), why));
            }
            let found = match self.name_at(image, at, left) {
                Ok(found) => found,
                Err(error) if is_damage(&error) => None,
                Err(error) => return Err(error),
            };
            if found.is_some()
                && let Some(from) = bad
            {
                // It is read again.
                return Ok(damage(at.saturating_sub(from), NO_NAME));
            }
            let length = found.as_ref().map_or(UNIT, |(_, length)| *length);
            let Some(rest) = left.checked_sub(length) else { return Ok(Next::TooMuch) };
            *left = rest;
            self.at = at.saturating_add(length);
            match found {
                Some((Some(name), _)) => return Ok(Next::Name(name)),
                Some((None, _)) => {}
                None => {
                    bad.get_or_insert(at);
                }
            }
        }
    }

    /// The name at byte `at`, if it is one that shows, and the bytes that its descriptor has.
    fn name_at(&mut self, image: &mut Image<'_>, at: u64, left: &mut u64) -> io::Result<Option<(Option<Name>, u64)>> {
        let buffer = &mut self.buffer;
        self.content.read(image.content(), at, HEAD, buffer)?;
        let numbers = (|| Some((u16_at(buffer, 0)?, *buffer.get(18)?, *buffer.get(19)?, u16_at(buffer, 36)?)))();
        let Some((tag::NAME, flags, of_name, of_others)) = numbers else { return Ok(None) };
        let before = HEAD.saturating_add(of_others.into());
        let length = before.saturating_add(of_name.into()).next_multiple_of(UNIT);
        if length > LARGEST_BLOCK {
            return Ok(None);
        }
        self.content.read(image.content(), at, length, buffer)?;
        if tag::read(buffer).is_err() {
            *left = left.saturating_sub(length);
            return Ok(None);
        }
        if flags & (IS_DELETED | IS_PARENT) != 0 {
            return Ok(Some((None, length)));
        }
        let name = buffer.get(before as usize..).and_then(|rest| rest.get(..of_name.into())).unwrap_or_default();
        let entry = long_place(buffer, 20).filter(|(length, _)| length << 2 != 0).map(|(_, place)| place);
        Ok(Some((Some(Name { stored: name.to_vec(), is_hidden: flags & IS_HIDDEN != 0, entry }), length)))
    }
}

fn damage(skipped: u64, why: &str) -> Next {
    Next::Damage(skipped, why.to_owned())
}
