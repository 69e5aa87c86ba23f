//! What an archive has that is in no member: a comment, a program before them, comments on single ones.

use std::io;

use tarnfs_source::{Cancel, Source};

use super::bytes::u16_at;
use super::central::Walk;
use super::end::{self, End};
use super::reader::{offset, shift};
use crate::Unlisted;
use crate::name::excerpt;
use crate::window::Window;

/// What EPUB and OpenDocument have first, stored as it is, so that who looks at the first bytes knows what it is.
const MUST_BE_FIRST: &[u8] = b"mimetype";

/// What volumes of an archive, and one that was to become several and did not, begin with: it says nothing else.
const MARKS: [&[u8; 4]; 2] = [b"PK\x07\x08", b"PK00"];

/// See [`crate::Format::unlisted`].
pub(super) fn unlisted(source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
    let mut found = Unlisted::default();
    let End::Directory(mut directory) = end::find(source, cancel)? else { return Ok(Unlisted::unknown()) };
    let mut walk = Walk::new(Window::new(source, cancel), directory.range.clone());
    let (mut first, mut lowest, mut commented) = (None, None::<(u64, Vec<u8>)>, 0_u64);
    while let Some(header) = walk.next_header()? {
        commented = commented.saturating_add(u64::from(header.has_comment));
        let Some(at) = offset(&header, &directory) else { continue };
        first.get_or_insert(at);
        if lowest.as_ref().is_none_or(|(before, _)| at < *before) {
            lowest = Some((at, header.name.to_vec()));
        }
    }
    directory.shift = shift(source, &directory, first)?;
    let (start, name) = match &lowest {
        Some((at, name)) => (at.saturating_add_signed(directory.shift), name.as_slice()),
        // It has no members.
        None => (directory.range.start, &b""[..]),
    };
    if start > 0 && !is_mark(source, start)? {
        found.others.push(format!("{start} bytes before its first file"));
    }
    if name == MUST_BE_FIRST {
        found.others.push(format!("'{}' as its first file, which says of what kind it is", excerpt(name)));
    }
    match commented {
        0 => {}
        1 => found.others.push("the comment on one of its files".to_owned()),
        more => found.others.push(format!("comments on {more} of its files")),
    }
    let (comment, end) = comment(source, directory.range.end)?;
    found.comment = comment;
    let behind = source.len().saturating_sub(end);
    if behind > 0 {
        found.others.push(format!("{behind} bytes behind its end"));
    }
    Ok(found)
}

/// True if nothing but a mark is before byte `start`.
fn is_mark(source: &dyn Source, start: u64) -> io::Result<bool> {
    let mut head = [0; 4];
    if start != head.len() as u64 {
        return Ok(false);
    }
    source.read_exact_at(&mut head, 0)?;
    Ok(MARKS.contains(&&head))
}

/// The comment on all of it, and where that ends: behind the first record behind the directory. One further back may
/// stand in the comment.
fn comment(source: &dyn Source, from: u64) -> io::Result<(Vec<u8>, u64)> {
    /// What may stand between the directory and its end: records of zip64, with data of any program.
    const BETWEEN: usize = 64 << 10;
    let length = source.len().saturating_sub(from).min((end::TAIL.saturating_add(BETWEEN)) as u64);
    let mut bytes = vec![0; length as usize];
    source.read_exact_at(&mut bytes, from)?;
    let Some(record) = end::records(&bytes).last() else { return Ok((Vec::new(), source.len())) };
    let start = (record.at as usize).saturating_add(end::RECORD);
    let length = bytes.get(record.at as usize..).map_or(0, |record| u16_at(record, end::COMMENT_LENGTH)).into();
    let rest = bytes.get(start..).unwrap_or_default();
    let comment = rest.get(..length).unwrap_or(rest);
    Ok((comment.to_vec(), from.saturating_add(start as u64).saturating_add(comment.len() as u64)))
}
