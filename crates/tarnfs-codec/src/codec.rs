//! What a codec is, and what some of them have beside.

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{CoderContext, DecodeContext, Decoder, FirstPass, Options, Outline, OwnChecks, SeekPoint};

/// What can be verified of a chunk that a table without checksums leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// Nothing before the stream's end, or not by decoding from there on.
    Whole,
    /// The chunk, by decoding it to its end: see [`StreamChecks::verified`].
    Chunk,
    /// Each byte before it is returned: what [`StreamChecks::settles`] may say. For a table of another program that is
    /// not enough: a block that is right may lie at another decoded byte than the table says.
    Itself,
}

impl Checks {
    /// In a format whose frames or members have checks: points at their starts have no state.
    pub(crate) fn of_frames(point: &SeekPoint) -> Self {
        if point.state.is_empty() { Self::Chunk } else { Self::Whole }
    }
}

/// How fast a codec decodes on an ordinary processor, as far as it says how slow a random read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Decoded bytes in a millisecond.
    pub bytes_per_millisecond: u64,
    /// A chunk is decoded as a whole, whatever is wanted of it.
    pub in_whole_chunks: bool,
}

impl Pace {
    /// How long it takes to decode so many bytes.
    pub fn milliseconds(self, bytes: u64) -> f64 {
        bytes as f64 / self.bytes_per_millisecond.max(1) as f64
    }

    /// True if storing what was decoded takes little of the time that decoding it takes.
    pub(crate) fn is_slow(self) -> bool {
        self.bytes_per_millisecond <= 100_000
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self { bytes_per_millisecond: 400_000, in_whole_chunks: false }
    }
}

/// One compressed format.
///
/// An implementor provides what has no body here, and the [`pace`](Self::pace). What only some codecs have is in traits
/// of its own, which this one leads to.
pub trait Codec: Send + Sync {
    /// Its name, as it stands in an index: "gzip".
    fn name(&self) -> &'static str;

    /// Starts decoding `source` from its start, collecting seek points.
    fn first_pass(&self, source: SharedSource, options: &Options) -> io::Result<Box<dyn FirstPass>>;

    /// Starts decoding `source` at `point`. The decoder goes on through later chunks to the end of the stream.
    fn resume(&self, source: SharedSource, point: &SeekPoint, context: &DecodeContext) -> io::Result<Box<dyn Decoder>>;

    /// False if decoding can only start at the start.
    fn has_seek_points(&self) -> bool {
        true
    }

    /// True if a first pass decodes ahead on several threads ([`Options::threads`]).
    fn decodes_ahead(&self) -> bool {
        false
    }

    /// False if one read may take much memory before [`Decoder::memory_after`] tells of it, as for a block of any
    /// length that is decoded at once. Those are decoded one at a time.
    fn tells_memory(&self) -> bool {
        true
    }

    /// How the stream is built, from its headers alone; `None` where they tell nothing of it, or are damaged.
    fn outline(&self, source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Outline>> {
        let _ = (source, cancel);
        Ok(None)
    }

    /// How fast it decodes. Known beforehand, so that it is not measured at each mount.
    fn pace(&self) -> Pace {
        Pace::default()
    }

    /// Of a codec of files: how they are known.
    fn file_codec(&self) -> Option<&dyn FileCodec> {
        None
    }

    /// Of a codec that containers (zip, 7z) use: what they want to know of it.
    fn container_codec(&self) -> Option<&dyn ContainerCodec> {
        None
    }

    /// Of a codec whose streams have checks of their own: what these tell.
    fn stream_checks(&self) -> Option<&dyn StreamChecks> {
        None
    }

    /// Of a codec whose seek points are windows, as other programs keep them too.
    fn windows(&self) -> Option<&dyn Windows> {
        None
    }
}

impl dyn Codec + '_ {
    /// How sure it is that a stream which begins with `head` is in this format ([`FileCodec::bid`]).
    pub fn bid(&self, head: &[u8]) -> u32 {
        self.file_codec().map_or(0, |own| own.bid(head))
    }

    /// What can be verified of a chunk at `point` of a table without checksums ([`StreamChecks::checks`]).
    pub fn checks(&self, point: &SeekPoint) -> Checks {
        self.stream_checks().map_or(Checks::Whole, |own| own.checks(point))
    }

    /// What a first pass has verified of its bytes when it comes to `point` ([`StreamChecks::settles`]).
    pub fn settles(&self, point: &SeekPoint) -> Checks {
        self.stream_checks().map_or(Checks::Whole, |own| own.settles(point))
    }

    /// True if each member has a checksum of its content ([`StreamChecks::compares_members`]).
    pub fn compares_members(&self) -> bool {
        self.stream_checks().is_some_and(StreamChecks::compares_members)
    }

    /// The decoded bytes as a source, if the codec gives any of them without those before it
    /// ([`ContainerCodec::random_access`]).
    pub fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        self.container_codec().map_or(Ok(None), |own| own.random_access(source, coder))
    }

    /// Bytes that come of `stored` ones, if that follows ([`ContainerCodec::decoded_length`]).
    pub fn decoded_length(&self, stored: u64, coder: &CoderContext) -> Option<u64> {
        self.container_codec()?.decoded_length(stored, coder)
    }
}

/// A codec of files: how a compressed file is known, and what it says of itself.
pub trait FileCodec: Codec {
    /// What of it is read, in one line. Empty if it is not listed beside the others.
    fn about(&self) -> &'static str {
        ""
    }

    /// Suffixes of file names, with what replaces them: `(".tgz", ".tar")`, `(".gz", "")`.
    fn suffixes(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// How sure it is that a stream which begins with `head` (at least 1 KiB, unless the stream is shorter) is in this
    /// format: the number of bits that had to match. 0 if it is not.
    fn bid(&self, head: &[u8]) -> u32;

    /// True if a stream that begins with `head` may be one of these though nothing in it tells that: the name of its
    /// file has to.
    fn may_be_named(&self, head: &[u8]) -> bool {
        let _ = head;
        false
    }

    /// The name that a stream which begins with `head` says that its file had before it was compressed. It may hold any
    /// bytes but 0.
    fn stored_name<'h>(&self, head: &'h [u8]) -> Option<&'h [u8]> {
        let _ = head;
        None
    }

    /// What is in the stream `source` and in nothing that comes of it, in words. Who finds nothing takes it away once
    /// what comes of it is kept elsewhere.
    fn unlisted(&self, source: &dyn Source) -> io::Result<Vec<String>> {
        let _ = source;
        Ok(Vec::new())
    }
}

/// A codec that containers use.
pub trait ContainerCodec {
    /// The decoded bytes as a source, of a codec that gives any of them without those before it (stored bytes,
    /// ciphers): it needs no first pass and no seek points. `None` of others. A password that is missing or cannot
    /// be the right one is an error of either (`PermissionDenied`).
    fn random_access(&self, source: &SharedSource, coder: &CoderContext) -> io::Result<Option<SharedSource>> {
        let _ = (source, coder);
        Ok(None)
    }

    /// Bytes that come of `stored` ones, of a codec with which that follows: a filter or a cipher. `None` of others.
    fn decoded_length(&self, stored: u64, coder: &CoderContext) -> Option<u64> {
        let _ = (stored, coder);
        None
    }

    /// What it compares with checks of its own that stand in for a checksum of the container.
    fn own_checks(&self) -> OwnChecks {
        OwnChecks::None
    }

    /// True if it does not take all that the step before it gives, but one of the files in that: others lie beside it,
    /// and share that step.
    fn takes_part(&self) -> bool {
        false
    }
}

/// A codec whose streams have checks of their own.
pub trait StreamChecks {
    /// What can be verified of a chunk at `point` of a table without checksums.
    fn checks(&self, point: &SeekPoint) -> Checks {
        let _ = point;
        Checks::Whole
    }

    /// What a first pass has verified of its bytes when it comes to `point`: with [`Checks::Chunk`] all that were
    /// decoded before, with [`Checks::Itself`] each byte before it is returned. What is verified is never found to
    /// be damaged.
    fn settles(&self, point: &SeekPoint) -> Checks {
        self.checks(point)
    }

    /// True if each member has a checksum of its content, which is compared where it ends. A chunk may hold many
    /// members.
    fn compares_members(&self) -> bool {
        false
    }

    /// Where [`StreamChecks::checks`] says that a chunk can be verified: decodes from `point` on. The chunk ends at bit
    /// `end`, or where the stream does; `source` ends with the byte of that bit. What is wrong is an error, or in the
    /// findings once 0 was returned.
    fn verified(
        &self,
        source: SharedSource,
        point: &SeekPoint,
        end: Option<u64>,
        options: &Options,
    ) -> io::Result<Box<dyn FirstPass>> {
        let _ = (source, point, end, options);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A codec whose seek points are windows: for those of another program.
pub trait Windows {
    /// The [`SeekPoint::state`] for a point inside compressed data before which these bytes were decoded (at most the
    /// format's window; none if nothing behind it refers to them): for seek points that another program has found.
    fn state_from_window(&self, window: &[u8]) -> io::Result<Vec<u8>>;

    /// The window in a [`SeekPoint::state`], for the seek points of another program. Bytes never referred to may be
    /// zero.
    fn window_from_state(&self, state: &[u8]) -> io::Result<Vec<u8>>;
}
