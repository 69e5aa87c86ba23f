//! Bytes that can be read at any offset, by many threads at once.
//!
//! Everything that tarnfs reads is a [`Source`]: a local file, a part of another source, a sparse
//! file stretched over its holes, memory, and (in `tarnfs-codec`) the decoded bytes of a compressed
//! stream. A source has no position; whoever reads says where.
//!
//! The crate also holds what every reader draws on: [`Limits`] (how far a number from a file is
//! believed), the memory [`Budget`], and [`Cancel`].

pub mod accounts;
mod budget;
mod cancel;
mod changed;
mod crc32c;
mod file;
mod followed;
mod joined;
mod limits;
mod memory;
mod reader;
mod setting;
mod slice;
mod stencil;
mod strict;
mod temporary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use budget::{Alone, Budget, Grant};
pub use cancel::{Cancel, TimeLimit};
pub use changed::{FileIdentity, Fingerprint};
pub use crc32c::crc32c;
pub use file::{FileSource, of_system};
pub use followed::FollowedFile;
pub use joined::Joined;
pub use limits::Limits;
pub use memory::MemorySource;
pub use reader::Reader;
pub use setting::Setting;
pub use slice::Slice;
pub use stencil::{Extent, Stencil};
pub use strict::Strict;
pub use temporary::{temporary_file, temporary_file_in};

/// Bytes that any number of threads may read at any offset. They, and their number, stay the same, but for those of a
/// file that is shown as it is now ([`FollowedFile`]), or that takes what is written to it.
///
/// An implementor provides `read_at`, `len` and `describe`.
///
/// Errors carry what happened in their [`io::ErrorKind`]: `InvalidData` for bytes that are damaged (a checksum that
/// does not match), `StaleNetworkFileHandle` (ESTALE) when what is read has changed since it was opened,
/// `TimedOut`, `Interrupted` when [`Cancel`] was asked for; anything else comes from the operating system.
#[allow(clippy::len_without_is_empty)]
pub trait Source: Send + Sync + Debug {
    /// Reads up to `buffer.len()` bytes at `offset` (bytes from the start) and returns how many were read.
    ///
    /// Returns fewer than asked for only at the end of the source, 0 only at or after it (or for an empty buffer).
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Length in bytes.
    fn len(&self) -> u64;

    /// What a person would call this source, for messages: the path of a file, "the decoded data of x.gz".
    fn describe(&self) -> String;

    /// How many decoders a read goes through, one inside the other: 0 for what is read as it is. What stands on another
    /// source says as much as that one. Decoders wait only for those of a lesser depth, so a source that says too
    /// little may wait for itself.
    fn depth(&self) -> usize {
        0
    }

    /// Reads exactly `buffer.len()` bytes at `offset`; `UnexpectedEof` if the source ends before.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.read_at(buffer, offset)?;
        if read == buffer.len() {
            return Ok(());
        }
        let behind = offset.saturating_add(read as u64);
        if behind < self.len() {
            // What is missing there is said by who reads on, such as a part of an archive that was cut.
            self.read_at(&mut buffer[read..], behind)?;
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "{}: ends at byte {}, {} bytes were asked for at {offset}",
                self.describe(),
                self.len(),
                buffer.len()
            ),
        ))
    }

    /// As [`read_at`](Self::read_at), for a reader that will hardly go on behind byte `end`: nothing there needs to be
    /// read ahead.
    fn read_before(&self, buffer: &mut [u8], offset: u64, end: u64) -> io::Result<usize> {
        let _ = end;
        self.read_at(buffer, offset)
    }

    /// The first byte at or after `offset` that is not in a hole; `None` where there is none. (`SEEK_DATA`)
    fn next_data(&self, offset: u64) -> Option<u64> {
        (offset < self.len()).then_some(offset)
    }

    /// The first byte at or after `offset` that is in a hole; the end counts as one. (`SEEK_HOLE`)
    fn next_hole(&self, offset: u64) -> u64 {
        self.len().max(offset)
    }

    /// No more bytes than these are different ones: what a disk has in any number of places may be stored once. Bounds
    /// that grow with a source count no more.
    fn most_data(&self) -> u64 {
        self.len()
    }

    /// Says that `length` bytes from `offset` are wanted soon. Never blocks; doing nothing is right.
    fn prefetch(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// True if a `read_at` of this range returns at once, without decoding or waiting for anything but
    /// the page cache. Callers that must not wait (the threads that answer the kernel) ask before they read.
    fn is_ready(&self, offset: u64, length: usize) -> bool {
        let _ = (offset, length);
        true
    }

    /// True if what is read now may turn out to be wrong later, and be an error then: nobody should keep it. What
    /// stands on another source says as much as that one.
    fn is_unproven(&self) -> bool {
        false
    }

    /// Waits until all of it is verified, where it is not ([`Source::is_unproven`]). What was found to be wrong is an
    /// error for whoever reads there. An error says that nothing is known. `Interrupted` once `is_abandoned`.
    fn verify(&self, is_abandoned: &dyn Fn() -> bool) -> io::Result<()> {
        let _ = is_abandoned;
        Ok(())
    }

    /// A number that no other version has that was opened in this process, where this is one version of something that
    /// others replace: what is opened in its place next may have other bytes, though nothing else tells the two apart.
    /// What shows all of another source says as much as that one. A part of an archive does not: its node is that of
    /// one version.
    fn pinned(&self) -> Option<u64> {
        None
    }

    /// Names these bytes: whatever is opened in their place later, if it has others, has another name or none. `None`
    /// where that is not known, or what is told of the file beside its bytes is enough.
    fn version(&self) -> Option<&str> {
        None
    }

    /// True if something in `range` could not be read, and something else was handed out in its place.
    fn is_filled(&self, range: Range<u64>) -> bool {
        let _ = range;
        false
    }

    /// Bytes of memory that this source alone takes while it is open, where that grows with what it is made from.
    /// `usize::MAX` where it takes more than there is for it: then it is to be closed as soon as it is not being read.
    fn memory(&self) -> usize {
        0
    }

    /// The open file that has these very bytes at these very offsets and may change under whoever reads: the kernel can
    /// then be told to read there itself. `None` for all else.
    fn backing_file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The open file in which these bytes lie one behind the other, and the byte of it at which they begin: the kernel
    /// can copy them. Whoever has it do so reads a byte here afterwards, which says whether the file has changed.
    fn file_range(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }

    /// The byte at which each of the files begins that it is put together from ([`Joined`]), in their order; none
    /// where it is one.
    fn part_starts(&self) -> &[u64] {
        &[]
    }
}

/// Shared ownership of any source.
pub type SharedSource = Arc<dyn Source>;

#[cfg(test)]
mod tests;
