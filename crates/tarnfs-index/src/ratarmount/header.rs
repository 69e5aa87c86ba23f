//! What the archive's own headers say, for what a sidecar does not hold.

use std::io;
use std::sync::Arc;

use tarnfs_format::{Entry, Event, Options, SourceStream, Stream};
use tarnfs_source::{Cancel, Limits, SharedSource, Slice, Source};

use crate::{Error, Shape};

/// The entry whose first header begins at byte `header` of `stream`; `None` if there is no valid header.
pub(super) fn entry_at(
    stream: &SharedSource,
    header: u64,
    shape: &Shape,
    limits: &Limits,
) -> Result<Option<Entry>, Error> {
    let Some(rest) = stream.len().checked_sub(header) else { return Ok(None) };
    let part = Arc::new(Slice::new(Arc::clone(stream), header, rest));
    let cancel = Cancel::default();
    let options = Options {
        // Only what follows at once is wanted: nothing is searched for.
        limits: Limits { resynchronise: 0, ..*limits },
        ignore_zeros: false,
        gnu_incremental: shape.gnu_incremental,
        cancel: cancel.clone(),
        ..Options::default()
    };
    let mut first = None;
    let mut receive = |event, _: &mut dyn Stream| match event {
        Event::Label(_) | Event::ForAll(_) | Event::Unlisted(_) | Event::Heavy => Ok(()),
        Event::Entry(entry) => {
            first = Some(*entry);
            Err(io::ErrorKind::Interrupted.into())
        }
        _ => Err(io::ErrorKind::Interrupted.into()),
    };
    let format = tarnfs_format::by_name("tar").and_then(|format| format.forwards());
    let format = format.ok_or_else(|| Error::Unknown("there is no tar reader".into()))?;
    match format.read(&mut SourceStream::new(part, cancel), &options, &mut receive) {
        Err(tarnfs_format::Error::Read { offset, error }) => Err(io::Error::new(
            error.kind(),
            format!("reading the header at byte {}: {error}", header.saturating_add(offset)),
        )
        .into()),
        // Stopped behind the first entry, or there was none.
        _ => Ok(first.map(|mut entry| {
            entry.header = entry.header.saturating_add(header);
            entry.body.offset = entry.body.offset.saturating_add(header);
            entry
        })),
    }
}

/// The header of an entry that says what it is, behind its extended ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastHeader {
    /// Its type flag.
    pub(super) flag: u8,
    /// Byte at which its content begins.
    pub(super) body: u64,
    /// Bytes of content.
    pub(super) size: u64,
}

/// Steps over the extended headers that begin at byte `header`; `None` where that leads to no header.
pub(super) fn last_header(source: &dyn Source, header: u64) -> io::Result<Option<LastHeader>> {
    /// A long name, a long link, pax headers for one entry and for all that follow; more are possible but do not occur.
    const MOST: usize = 64;
    let mut at = header;
    for _ in 0..MOST {
        let mut block = [0; 512];
        if source.read_at(&mut block, at)? < block.len() {
            return Ok(None);
        }
        let digits = block[124..136].iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
        let size = digits.fold(0_u64, |size, digit| size.saturating_mul(8).saturating_add(u64::from(digit & 7)));
        let body = at.saturating_add(512);
        let flag = block[156];
        if !b"xgXLKN".contains(&flag) {
            return Ok(Some(LastHeader { flag, body, size }));
        }
        at = body.saturating_add(size.checked_next_multiple_of(512).unwrap_or(u64::MAX));
    }
    Ok(None)
}
