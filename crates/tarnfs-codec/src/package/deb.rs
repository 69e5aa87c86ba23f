//! Debian's packages: an ar with a member for the version of the format, `control.tar` and `data.tar`, each compressed
//! or not, and perhaps signatures (`deb(5)`, and `_gpg` of debsigs).
//!
//! The head is an ar, too, with another magic: all members but the payload, decoded, and the header of the payload,
//! which has no length and comes last.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use tarnfs_source::{Cancel, Limits, MemorySource, SharedSource, Slice};

use super::metered::{self, Metered};
use super::{Layout, codec_of};
use crate::{Damage, FILLER, Findings, FirstPass, Options, faults};

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
pub(super) const MOST: u64 = 64 << 20;

/// Damaged parts of a member that are told one by one, and places where it may be out of step. From the next one on all
/// of it is lost: each may be one byte, and takes a hundred bytes of memory.
pub(super) const MOST_REPORTS: usize = 256;

/// Bytes that are decoded together. Reports of damage are taken behind each of these.
const STEP: usize = 8 << 10;

const CUT: &str = "the package is cut short in it";

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
    let (mut head, mut payload, mut findings) = (DECODED.to_vec(), None, Findings::default());
    let mut without_payload = "it is cut short before its data, or has none";
    let mut at = MAGIC.len() as u64;
    for number in 0..=MOST_MEMBERS {
        if number == MOST_MEMBERS {
            without_payload = "it has too many members before its data: what follows is not read";
            break;
        }
        let mut header = [0; HEADER];
        if source.read_at(&mut header, at)? < HEADER {
            break;
        }
        let Some(size) = size_of_member(&header) else {
            if payload.is_some() {
                // What follows the payload is no part of the package.
                break;
            }
            if head.len() == DECODED.len() {
                return Err(faults::invalid(at, "a member of a package of Debian without a valid header"));
            }
            without_payload = "a member before its data has no valid header: what follows is not read";
            break;
        };
        let start = at + HEADER as u64;
        if header.starts_with(DATA) {
            payload.get_or_insert((start, size.min(source.len().saturating_sub(start)), header));
        } else {
            let before = (head.len() + HEADER) as u64;
            let mut member = member(source, &Header { bytes: header, start, size, before }, limits, cancel)?;
            findings.take_moved(&mut member.findings, 0, 0);
            push(&mut head, &header, Some(&member.content));
        }
        at = start.saturating_add(size).checked_next_multiple_of(2).unwrap_or(u64::MAX);
    }
    let end = source.len().min(at);
    let (start, length) = match payload {
        Some((start, length, header)) => {
            push(&mut head, &header, None);
            (start, length)
        }
        None if head.len() == DECODED.len() => return Err(faults::cut(end, "a package of Debian, which has nothing")),
        None => {
            // The members that are there are served, and nothing behind them.
            let decoded = head.len() as u64;
            let (what, compressed) = (without_payload.to_owned(), end);
            let damage =
                Damage { decoded: decoded..decoded, lost_from: decoded, compressed, compressed_from: compressed, what };
            findings.report(damage);
            (source.len(), 0)
        }
    };
    let head: SharedSource = Arc::new(MemorySource::new(head, "the head of a package"));
    Ok(Layout { findings, ..Layout::new(source, head, start, length)? })
}

/// What a member's header says of its length; `None` if it is no header.
fn size_of_member(header: &[u8; HEADER]) -> Option<u64> {
    let size = header.get(SIZE).filter(|_| header.ends_with(END))?;
    std::str::from_utf8(size.trim_ascii()).ok()?.parse().ok()
}

/// What a member holds, and what is wrong with it.
#[derive(Default)]
pub(super) struct Member {
    pub(super) content: Vec<u8>,
    /// In bytes of the content until it has ended, then of the head.
    pub(super) findings: Findings,
    /// Byte of the content from which on nothing is served: too much is damaged to keep all of it apart.
    pub(super) lost_from: Option<u64>,
    /// Byte of the head at which the content begins, and of the package at which it is stored.
    pub(super) before: u64,
    pub(super) start: u64,
    pub(super) name: String,
}

impl Member {
    /// Takes what `pass` has found since the last call. A few bytes of the package may be as many reports as there are
    /// decoded bytes.
    pub(super) fn take(&mut self, pass: &mut dyn FirstPass) {
        let (mut damage, mut shifts) = (Vec::new(), Vec::new());
        pass.take_points(&mut Vec::new());
        pass.take_damage(&mut damage);
        pass.take_shifts(&mut shifts);
        for found in damage {
            if self.findings.damage.len() < MOST_REPORTS {
                let what = self.named(&found.what);
                self.findings.damage.push(Damage { what, ..found.moved(0, self.start) });
            } else if !found.decoded.is_empty() {
                self.lose_from(found.decoded.start);
            }
        }
        for shift in shifts {
            if self.findings.shifts.len() < MOST_REPORTS {
                self.findings.shifts.push(shift);
            } else {
                self.lose_from(shift);
            }
        }
    }

    fn lose_from(&mut self, at: u64) {
        self.lost_from = Some(self.lost_from.map_or(at, |from| from.min(at)));
    }

    fn named(&self, what: &str) -> String {
        format!("'{}': {what}", self.name.escape_debug())
    }

    /// These bytes of the content are none of the member; or something is wrong where they are, if they are none.
    fn lose(&mut self, decoded: Range<u64>, what: &str) {
        let (what, compressed, lost_from) = (self.named(what), self.start, decoded.start);
        self.findings.damage.push(Damage { decoded, lost_from, compressed, compressed_from: compressed, what });
    }

    /// Nothing more comes: all places become those of the head, and none lies behind the content.
    pub(super) fn end(mut self) -> Self {
        let length = self.content.len() as u64;
        if let Some(from) = self.lost_from.filter(|&from| from < length) {
            self.lose(from..length, "too many parts of it are damaged: what follows is not served");
        }
        for damage in &mut self.findings.damage {
            damage.decoded = damage.decoded.start.min(length)..damage.decoded.end.min(length);
            damage.lost_from = damage.lost_from.min(length);
        }
        for shift in &mut self.findings.shifts {
            *shift = length.min(*shift);
        }
        let mut of_content = std::mem::take(&mut self.findings);
        self.findings.take_moved(&mut of_content, self.before, 0);
        self
    }
}

/// The header of a member, and where that lies.
pub(super) struct Header {
    pub(super) bytes: [u8; HEADER],
    /// Byte at which its content is stored.
    pub(super) start: u64,
    /// Bytes that the content has, as the header says.
    pub(super) size: u64,
    /// So many bytes of the head are before it.
    pub(super) before: u64,
}

/// What a member holds, decoded if it is what says how to install the package. What is wrong comes beside what could be
/// read.
pub(super) fn member(
    source: &SharedSource,
    &Header { bytes: header, start, size, before }: &Header,
    limits: &Limits,
    cancel: &Cancel,
) -> io::Result<Member> {
    let name = String::from_utf8_lossy(&header[..NAME]).trim_end_matches([' ', '/']).to_owned();
    let there = size.min(source.len().saturating_sub(start));
    let is_coded = header.starts_with(CONTROL);
    let codec = codec_of(&**source, start, if is_coded { there } else { 0 })?;
    let options = Options { limits: *limits, cancel: cancel.clone(), ..Options::default() };
    let slice: SharedSource = Arc::new(Slice::new(Arc::clone(source), start, there));
    // Blocks and streams that hold nothing can be any number, and are decoded again for other readers.
    let metered = Arc::new(Metered::new(Arc::clone(&slice)));
    let room = MOST.saturating_sub(before);
    let mut member = Member { before, start, name, ..Member::default() };
    let decode = || {
        let mut pass = codec.first_pass(if is_coded { Arc::clone(&metered) as _ } else { slice }, &options)?;
        let mut buffer = vec![0; STEP];
        loop {
            cancel.check()?;
            let read = pass.read(&mut buffer);
            member.take(&mut *pass);
            let read = read?;
            if read == 0 {
                return Ok(());
            }
            if member.content.len() as u64 + read as u64 > room {
                return Err(io::Error::new(io::ErrorKind::Unsupported, format!("it has more than {MOST} bytes")));
            }
            member.content.extend_from_slice(&buffer[..read]);
            let decoded = member.content.len() as u64;
            metered.set_decoded(decoded);
            // What is passed without being read counts as well.
            let most = metered::most(decoded);
            if is_coded && pass.compressed_position() > most {
                return Err(metered::too_much(most, decoded));
            }
        }
    };
    let what = match decode() {
        Ok(()) if there == size => return Ok(member.end()),
        Ok(()) => CUT.to_owned(),
        Err(error) => {
            let of_data = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof, io::ErrorKind::Unsupported];
            // Any other one says nothing of the member: another time it may be read.
            if error.raw_os_error().is_some() || !of_data.contains(&error.kind()) {
                return Err(error);
            }
            error.to_string()
        }
    };
    let end = member.content.len() as u64;
    // What is decoded is a tar: its files that go on behind its end are cut there, so no byte need be lost for it.
    // Another member is a file that is longer by a byte that cannot be read: nobody takes what is left for all of it.
    if !is_coded {
        member.content.push(FILLER);
    }
    member.lose(end..member.content.len() as u64, &what);
    Ok(member.end())
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
