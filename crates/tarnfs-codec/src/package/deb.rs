//! Debian's packages: an ar with a member for the version of the format, `control.tar` and `data.tar`, each compressed
//! or not, and perhaps signatures (`deb(5)`, and `_gpg` of debsigs).
//!
//! The head is an ar, too, with another magic: all members but the payload, decoded, and the header of the payload,
//! which has no length and comes last.

use std::io;
use std::sync::Arc;

use tarnfs_source::{Cancel, Limits, MemorySource, SharedSource, Slice};

use super::{Layout, codec_of};
use crate::{Options, faults};

/// What an ar begins with, and what a package of Debian does.
const MAGIC: &[u8] = b"!<arch>\n";
const FIRST: &[u8] = b"debian-binary";

/// What the head begins with.
const DECODED: &[u8] = b"!<debs>\n";

/// Bytes of the header of a member, and its fields.
const HEADER: usize = 60;
const NAME: usize = 16;
const SIZE: std::ops::Range<usize> = 48..58;
const END: &[u8] = b"`\n";

/// The two members that are decoded.
const CONTROL: &[u8] = b"control.tar";
const DATA: &[u8] = b"data.tar";

/// Members that are looked at: there are three, and some signatures.
const MOST_MEMBERS: usize = 64;

/// Bytes of all members but the payload, decoded. The list of files of the largest packages has 10 MiB.
const MOST: u64 = 64 << 20;

pub(super) fn bid(head: &[u8]) -> u32 {
    let is_one = head.strip_prefix(MAGIC).is_some_and(|header| header.starts_with(FIRST));
    if is_one { (MAGIC.len() + FIRST.len()) as u32 * 8 } else { 0 }
}

pub(super) fn layout(source: &SharedSource, limits: &Limits, cancel: &Cancel) -> io::Result<Layout> {
    let mut magic = [0; MAGIC.len()];
    source.read_exact_at(&mut magic, 0)?;
    if magic != MAGIC {
        return Err(faults::invalid(0, "this is no package of Debian"));
    }
    let (mut head, mut damage, mut payload) = (DECODED.to_vec(), Vec::new(), None);
    let mut at = MAGIC.len() as u64;
    for _ in 0..MOST_MEMBERS {
        let mut header = [0; HEADER];
        if source.read_at(&mut header, at)? < HEADER {
            break;
        }
        let Some(size) = size_of_member(&header) else {
            if payload.is_some() {
                // What follows the payload is no part of the package.
                break;
            }
            return Err(faults::invalid(at, "a member of a package of Debian without a valid header"));
        };
        let start = at + HEADER as u64;
        if header.starts_with(DATA) {
            payload.get_or_insert((start, size.min(source.len().saturating_sub(start)), header));
        } else {
            let room = MOST.saturating_sub(head.len() as u64);
            let (content, problem) = member(source, &header, start, size, room, limits, cancel)?;
            let content_at = (head.len() + HEADER) as u64;
            push(&mut head, &header, Some(&content));
            if let Some((from, what)) = problem {
                // Up to the end of the member, with what fills it up.
                damage.push((content_at.saturating_add(from)..head.len() as u64, start, what));
            }
        }
        at = start.saturating_add(size).checked_next_multiple_of(2).unwrap_or(u64::MAX);
    }
    let (start, length, header) =
        payload.ok_or_else(|| faults::cut(source.len().min(at), "a package of Debian, which has no data"))?;
    push(&mut head, &header, None);
    let head: SharedSource = Arc::new(MemorySource::new(head, "the head of a package"));
    Ok(Layout { damage, ..Layout::new(source, head, start, length)? })
}

/// What a member's header says of its length; `None` if it is no header.
fn size_of_member(header: &[u8; HEADER]) -> Option<u64> {
    let size = header.get(SIZE).filter(|_| header.ends_with(END))?;
    std::str::from_utf8(size.trim_ascii()).ok()?.parse().ok()
}

/// What a member holds, decoded if it is what says how to install the package. What is wrong comes beside what could be
/// read, with the byte of that from which on it is not right, or may not be.
fn member(
    source: &SharedSource,
    header: &[u8; HEADER],
    start: u64,
    size: u64,
    room: u64,
    limits: &Limits,
    cancel: &Cancel,
) -> io::Result<(Vec<u8>, Option<(u64, String)>)> {
    let name = String::from_utf8_lossy(&header[..NAME]).trim_end_matches([' ', '/']).to_owned();
    let size = size.min(source.len().saturating_sub(start));
    let is_coded = header.starts_with(CONTROL);
    let codec = if is_coded { codec_of(&**source, start, size)? } else { codec_of(&**source, start, 0)? };
    let options = Options { limits: *limits, cancel: cancel.clone(), ..Options::default() };
    let slice = Arc::new(Slice::new(Arc::clone(source), start, size));
    let mut content = Vec::new();
    // The first that is wrong: there may be any number.
    let mut wrong: Option<(u64, String)> = None;
    let decode = || {
        let mut pass = codec.first_pass(slice, &options)?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            cancel.check()?;
            let read = pass.read(&mut buffer);
            pass.take_points(&mut Vec::new());
            pass.take_shifts(&mut Vec::new());
            let mut damage = Vec::new();
            pass.take_damage(&mut damage);
            let first = damage.into_iter().min_by_key(|damage| damage.decoded.start);
            if let Some(first) = first.filter(|first| wrong.as_ref().is_none_or(|(at, _)| first.decoded.start < *at)) {
                wrong = Some((first.decoded.start, first.what));
            }
            let read = read?;
            if read == 0 {
                return Ok(());
            }
            if content.len() as u64 + read as u64 > room {
                return Err(io::Error::new(io::ErrorKind::Unsupported, format!("it has more than {MOST} bytes")));
            }
            content.extend_from_slice(&buffer[..read]);
        }
    };
    let decoded = decode();
    let problem = match decoded {
        Ok(()) => wrong,
        Err(error) if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Interrupted => {
            return Err(error);
        }
        Err(error) => Some((wrong.map_or(content.len() as u64, |(at, _)| at), error.to_string())),
    };
    Ok((content, problem.map(|(from, what)| (from, format!("'{}': {what}", name.escape_debug())))))
}

/// A header with that content, or one that has no length.
fn push(head: &mut Vec<u8>, header: &[u8; HEADER], content: Option<&[u8]>) {
    let mut header = *header;
    let name = [CONTROL, DATA].into_iter().find(|name| header.starts_with(name));
    if let Some(name) = name {
        header[..NAME].fill(b' ');
        header[..name.len()].copy_from_slice(name);
    }
    header[SIZE].fill(b' ');
    if let Some(content) = content {
        let digits = content.len().to_string();
        header[SIZE][..digits.len()].copy_from_slice(digits.as_bytes());
    }
    head.extend_from_slice(&header);
    if let Some(content) = content {
        head.extend_from_slice(content);
        head.resize(head.len().next_multiple_of(2), b'\n');
    }
}
