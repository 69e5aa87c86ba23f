//! What an answer says: which version it is of, which bytes it has, and why there are none.

use std::io::{self, Read};
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use ureq::http::{Response, StatusCode, header};

use crate::backend::{Body, Fault, Version};
use crate::fetch::read_by;

/// An answer whose body is still to be read.
pub(crate) type Answer = Response<ureq::Body>;

pub(crate) fn again(what: &str) -> Fault {
    Fault::Again(what.to_owned(), None)
}

/// The value of a header, if it is text.
pub(crate) fn text(answer: &Answer, name: &header::HeaderName) -> Option<String> {
    answer.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// True of a tag that no other bytes have.
pub(crate) fn is_strong(tag: &str) -> bool {
    !tag.starts_with("W/")
}

/// Whether the version that the answer tells will not be that of other bytes, too, as those are that were written in
/// the same second (RFC 9110, 8.8.2.2). There are servers that make tags of that second, and call them strong.
pub(crate) fn is_lasting(answer: &Answer, tag: Option<&String>) -> bool {
    /// As old a change must be, by the clock of the server: with its tag, and without, where the clock that the file
    /// has may be another one.
    const WITH_TAG: Duration = Duration::from_secs(2);
    const WITHOUT: Duration = Duration::from_secs(60);
    let time = |name| text(answer, &name).and_then(|text| httpdate::parse_http_date(&text).ok());
    let (modified, now) = (time(header::LAST_MODIFIED), time(header::DATE));
    let age = modified.zip(now).and_then(|(modified, now)| now.duration_since(modified).ok());
    match tag {
        Some(tag) if is_strong(tag) => age.is_none_or(|age| age >= WITH_TAG),
        _ => age.is_some_and(|age| age >= WITHOUT),
    }
}

/// Whether the answer, which has this tag, is about `version`, as far as it says so.
pub(crate) fn says(answer: &Answer, tag: Option<String>, version: &Version) -> Result<(), Fault> {
    let modified = text(answer, &header::LAST_MODIFIED);
    let changed = || Err(Fault::Changed("another version is there now".to_owned()));
    match (&version.tag, tag) {
        (Some(_), None) => return Err(again("the server does not say any more which version it has")),
        (Some(expected), Some(said)) if said != *expected => return changed(),
        // Several servers behind one name may have written it at other times.
        (Some(expected), Some(_)) if is_strong(expected) => return Ok(()),
        _ => {}
    }
    match (&version.modified, modified) {
        (Some(_), None) if version.tag.is_none() => Err(again("the server does not say any more when it was changed")),
        (Some(expected), Some(said)) if said != *expected => changed(),
        _ => Ok(()),
    }
}

/// Which bytes an answer has, and how long all is, if it says so.
pub(crate) fn content_range(answer: &Answer) -> Result<(Range<u64>, Option<u64>), Fault> {
    let parsed = text(answer, &header::CONTENT_RANGE).and_then(|text| {
        let (range, length) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let length = match length.trim() {
            "*" => None,
            length => Some(length.parse().ok()?),
        };
        Some((first..last.checked_add(1).filter(|&end| end > first)?, length))
    });
    parsed.ok_or_else(|| again("the server does not say which bytes it has sent"))
}

pub(crate) fn length_of_unsatisfied(answer: &Answer) -> Option<u64> {
    text(answer, &header::CONTENT_RANGE)?.trim().strip_prefix("bytes")?.trim_start().strip_prefix("*/")?.parse().ok()
}

/// What a status says that is none of those that are expected.
pub(crate) fn refused(status: StatusCode, answer: &Answer) -> Fault {
    let said = format!("the server says {} {}", status.as_u16(), status.canonical_reason().unwrap_or(""));
    match status.as_u16() {
        401 => Fault::Final(format!("{}: give user and password in ~/.netrc or in the URL", said.trim_end())),
        403 => Fault::Final(format!(
            "{}: it may not be read, or what the URL was signed with has run out",
            said.trim_end()
        )),
        404 | 410 => Fault::Missing(said),
        408 | 425 | 429 | 500 | 502..=504 | 506..=599 => Fault::Again(said, retry_after(answer)),
        _ => Fault::Final(said),
    }
}

fn retry_after(answer: &Answer) -> Option<Duration> {
    let said = text(answer, &header::RETRY_AFTER)?;
    match said.trim().parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(&said).ok()?.duration_since(SystemTime::now()).ok(),
    }
}

/// The bytes of an answer, and no more than these. Reading to the end keeps the connection for the next request.
pub(crate) fn body(answer: Answer, length: u64) -> Body {
    Box::new(ToEnd { body: answer.into_body().into_reader(), left: length })
}

struct ToEnd<R> {
    body: R,
    left: u64,
}

impl<R: Read> Read for ToEnd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.body.read(&mut buffer[..most])?;
        self.left -= read as u64;
        if self.left == 0 {
            // Only what was read to its end is known to have one.
            let _ = self.body.read(&mut [0]);
        }
        Ok(read)
    }
}

/// All bytes of an answer that lists something.
pub(crate) fn all_of(answer: Answer, deadline: Instant) -> Result<Vec<u8>, Fault> {
    all_before(answer, deadline, 64 << 20)
}

/// The same of one in JSON. What is made of it may have sixteen times as many bytes; interfaces tell lists in parts.
pub(crate) fn json_of(answer: Answer, deadline: Instant) -> Result<Vec<u8>, Fault> {
    all_before(answer, deadline, 16 << 20)
}

fn all_before(answer: Answer, deadline: Instant, most: u64) -> Result<Vec<u8>, Fault> {
    let (mut bytes, length) = (Vec::new(), answer.body().content_length());
    read_by(deadline, &mut answer.into_body().into_reader(), most + 1, &mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Fault::Final(format!("the list that the server sends is longer than {} MiB", most >> 20)));
    }
    match length {
        Some(length) if length != bytes.len() as u64 => Err(again("the answer is too short")),
        _ => Ok(bytes),
    }
}
