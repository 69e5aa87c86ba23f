//! What a client has already: ETags, times, and ranges of what it began to read.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{
    HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use tarnfs_tree::{Attributes, Lifetime};

/// A file that was changed less than this ago may be changed again without another time.
const TIMES_DIFFER: Duration = Duration::from_secs(2);

/// Ranges of one request at most; of more, the whole is sent.
const MOST_RANGES: usize = 16;

/// What tells one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Validators {
    /// In quotes; `W/` before it says that it may stay the same for a moment though the bytes change. `None`: nobody
    /// knows what would be another one then.
    pub(crate) etag: Option<String>,
    /// Whole seconds.
    pub(crate) modified: Option<SystemTime>,
    /// False if other bytes may have that time, too: it is told, and says nothing here.
    is_exact: bool,
}

/// Where a file is: `salt` tells archives from each other, `path` the files in one, and `way` archives in these.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePlace<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) way: &'a [u8],
    pub(crate) salt: &'a [u8],
}

impl FilePlace<'_> {
    /// Names what is there, if that has these `marks`. In quotes.
    fn tag(&self, marks: &[&[u8]]) -> String {
        let mut hash = blake3::Hasher::new();
        for part in [self.salt, self.way, self.path] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        for mark in marks {
            hash.update(mark);
        }
        format!("\"{}\"", &hash.finalize().to_hex()[..32])
    }
}

impl Validators {
    pub(crate) fn of(attributes: &Attributes, lifetime: Lifetime, place: FilePlace<'_>) -> Self {
        let Attributes { size, mtime, ctime, .. } = attributes;
        let tag = place.tag(&[
            &size.to_le_bytes(),
            &mtime.seconds.to_le_bytes(),
            &mtime.nanoseconds.to_le_bytes(),
            &ctime.seconds.to_le_bytes(),
            &ctime.nanoseconds.to_le_bytes(),
        ]);
        let modified = system_time(mtime.seconds);
        let now = SystemTime::now();
        // Where no time is known of the last change, that is 0.
        let changed = system_time(ctime.seconds).filter(|_| ctime.seconds != 0);
        let is_settled = |time: Option<SystemTime>| {
            time.is_some_and(|time| now.duration_since(time).is_ok_and(|age| age > TIMES_DIFFER))
        };
        let is_strong = lifetime == Lifetime::Forever || is_settled(modified) && is_settled(changed);
        let etag = if is_strong { tag } else { format!("W/{tag}") };
        // A time that is still to come says nothing.
        let modified = modified.filter(|time| *time <= now);
        Self { etag: Some(etag), modified, is_exact: true }
    }

    /// Of what lies behind a URL and may be replaced there. Sizes and times are those of a listing, which may be
    /// rounded, and older than what is read: only a name of these bytes ([`tarnfs_source::Source::version`]) says what
    /// they are. Without one, nobody is told that what he has is the same.
    pub(crate) fn of_far(attributes: &Attributes, version: Option<&str>, place: FilePlace<'_>) -> Self {
        let Some(version) = version else { return Self { etag: None, modified: None, is_exact: false } };
        Self { etag: Some(place.tag(&[b"version", version.as_bytes()])), ..Self::listed(attributes) }
    }

    /// Of what a listing tells of it, for who asks for no bytes.
    pub(crate) fn listed(attributes: &Attributes) -> Self {
        let now = SystemTime::now();
        let modified = Some(attributes.mtime.seconds).filter(|&seconds| seconds != 0).and_then(system_time);
        Self { etag: None, modified: modified.filter(|time| *time <= now), is_exact: false }
    }

    /// As a header has it.
    pub(crate) fn last_modified(&self) -> Option<String> {
        self.modified.map(httpdate::fmt_http_date)
    }

    fn is_strong(&self) -> bool {
        self.etag.as_ref().is_some_and(|etag| !etag.starts_with("W/"))
    }
}

/// A time that HTTP can say.
pub(crate) fn system_time(seconds: i64) -> Option<SystemTime> {
    /// The end of the year 9999.
    const END: u64 = 253_402_300_800;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds < END)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// What conditions come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Go,
    NotModified,
    Failed,
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// True if a list of ETags has one that fits.
fn lists(headers: &HeaderMap, name: &HeaderName, fits: impl Fn(&str) -> bool) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    // Ours have no commas.
    values.flat_map(|value| value.split(',')).map(str::trim).any(|tag| tag == "*" || fits(tag))
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

/// In the order of RFC 9110, 13.2.2.
pub(crate) fn check(headers: &HeaderMap, now: &Validators) -> Outcome {
    let etag = now.etag.as_deref();
    let opaque = etag.map(|etag| etag.trim_start_matches("W/"));
    if headers.contains_key(IF_MATCH) {
        if !lists(headers, &IF_MATCH, |tag| now.is_strong() && Some(tag) == etag) {
            return Outcome::Failed;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, IF_UNMODIFIED_SINCE), now.modified)
        && (modified > since || !now.is_exact)
    {
        return Outcome::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if lists(headers, &IF_NONE_MATCH, |tag| Some(tag.trim_start_matches("W/")) == opaque) {
            return Outcome::NotModified;
        }
    } else if let (Some(since), Some(modified)) = (date(headers, IF_MODIFIED_SINCE), now.modified)
        && modified <= since
        && now.is_exact
    {
        return Outcome::NotModified;
    }
    Outcome::Go
}

/// Which part of a file is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    Whole,
    Parts(Vec<Range<u64>>),
    /// None of them lies in the file.
    Nothing,
}

/// What the headers ask for of a file of that length.
pub(crate) fn wanted(headers: &HeaderMap, now: &Validators, length: u64) -> Wanted {
    let mut values = headers.get_all(RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Wanted::Whole };
    if let Some(has) = headers.get(IF_RANGE) {
        let has = has.to_str().unwrap_or_default();
        let is_same = match httpdate::parse_http_date(has) {
            Ok(date) => now.is_strong() && now.is_exact && now.modified == Some(date),
            Err(_) => now.is_strong() && Some(has) == now.etag.as_deref(),
        };
        if !is_same {
            return Wanted::Whole;
        }
    }
    value.to_str().ok().and_then(|value| parse(value, length)).unwrap_or(Wanted::Whole)
}

/// `None` for what is no list of ranges.
fn parse(value: &str, length: u64) -> Option<Wanted> {
    let (unit, list) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let number = |text: &str| match text.trim() {
        text if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() => {
            // More digits than there are bytes in any file.
            Some(text.parse().unwrap_or(u64::MAX))
        }
        _ => None,
    };
    let mut parts: Vec<Range<u64>> = Vec::new();
    for (count, one) in list.split(',').enumerate() {
        if count == MOST_RANGES {
            return None;
        }
        let (first, last) = one.split_once('-')?;
        let part = if first.trim().is_empty() {
            length.saturating_sub(number(last)?)..length
        } else {
            let first = number(first)?;
            let last = if last.trim().is_empty() { u64::MAX } else { number(last)? };
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(length)
        };
        if part.start < part.end {
            parts.push(part);
        }
    }
    // Nobody gets more than there is by asking for the same twice.
    let all: u64 = parts.iter().fold(0, |sum, part| sum.saturating_add(part.end - part.start));
    match parts.len() {
        0 => Some(Wanted::Nothing),
        2.. if all > length => None,
        _ => Some(Wanted::Parts(parts)),
    }
}

#[cfg(test)]
mod tests {
    use tarnfs_tree::{Kind, Node, Time};

    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "one range is what is asked for")]
    fn ranges_are_those_of_the_rfc() {
        for (asked, parts) in [
            ("bytes=0-0", vec![0..1]),
            ("bytes=0-", vec![0..100]),
            ("bytes=99-", vec![99..100]),
            ("bytes=50-1000", vec![50..100]),
            ("bytes=-1", vec![99..100]),
            ("bytes=-1000", vec![0..100]),
            ("Bytes = 1 - 2", vec![1..3]),
            ("bytes=0-1,5-6, -2", vec![0..2, 5..7, 98..100]),
            ("bytes=0-1,200-300", vec![0..2]),
            ("bytes=0-99999999999999999999999", vec![0..100]),
        ] {
            assert_eq!(parse(asked, 100), Some(Wanted::Parts(parts)), "{asked}");
        }
        for nothing in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=18446744073709551615-"] {
            assert_eq!(parse(nothing, 100), Some(Wanted::Nothing), "{nothing}");
        }
        let many = format!("bytes={}", vec!["0-0"; MOST_RANGES + 1].join(","));
        for bad in
            ["bytes", "bytes=", "bytes=-", "bytes=2-1", "bytes=a-b", "items=0-1", "bytes=+1-2", "bytes=0-1,", &many]
        {
            assert_eq!(parse(bad, 100), None, "{bad}");
        }
        // Together longer than the file.
        assert_eq!(parse("bytes=0-,0-", 100), None);
        assert_eq!(parse("bytes=0-", 0), Some(Wanted::Nothing));
    }

    #[test]
    fn conditions_go_by_etag_first() {
        let now = Validators { etag: Some("\"a\"".into()), modified: system_time(1_000_000_000), is_exact: true };
        let weak = Validators { etag: Some("W/\"a\"".into()), ..now.clone() };
        let headers = |pairs: &[(HeaderName, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value.parse().unwrap());
            }
            headers
        };
        let (then, before) = ("Sun, 09 Sep 2001 01:46:40 GMT", "Sun, 09 Sep 2001 01:46:39 GMT");
        for (pairs, outcome, of_weak) in [
            (vec![], Outcome::Go, Outcome::Go),
            (vec![(IF_NONE_MATCH, "\"b\", W/\"a\"")], Outcome::NotModified, Outcome::NotModified),
            (vec![(IF_NONE_MATCH, "*")], Outcome::NotModified, Outcome::NotModified),
            (vec![(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, then)], Outcome::Go, Outcome::Go),
            (vec![(IF_MODIFIED_SINCE, then)], Outcome::NotModified, Outcome::NotModified),
            (vec![(IF_MODIFIED_SINCE, before)], Outcome::Go, Outcome::Go),
            (vec![(IF_MODIFIED_SINCE, "yesterday")], Outcome::Go, Outcome::Go),
            (vec![(IF_MATCH, "\"a\"")], Outcome::Go, Outcome::Failed),
            (vec![(IF_MATCH, "\"b\"")], Outcome::Failed, Outcome::Failed),
            (vec![(IF_UNMODIFIED_SINCE, before)], Outcome::Failed, Outcome::Failed),
            (vec![(IF_UNMODIFIED_SINCE, then)], Outcome::Go, Outcome::Go),
        ] {
            assert_eq!(check(&headers(&pairs), &now), outcome, "{pairs:?}");
            assert_eq!(check(&headers(&pairs), &weak), of_weak, "{pairs:?}");
        }
        let ranged = |if_range: &str, now: &Validators| {
            wanted(&headers(&[(RANGE, "bytes=0-0"), (IF_RANGE, if_range)]), now, 9) != Wanted::Whole
        };
        assert!(ranged("\"a\"", &now) && ranged(then, &now));
        assert!(!ranged("\"b\"", &now) && !ranged(before, &now) && !ranged("W/\"a\"", &weak) && !ranged(then, &weak));
        assert_eq!(wanted(&headers(&[(RANGE, "bytes=0-0"), (RANGE, "bytes=1-1")]), &now, 9), Wanted::Whole);
    }

    fn attributes(size: u64, seconds: i64) -> Attributes {
        let time = Time { seconds, nanoseconds: 0 };
        Attributes {
            node: Node::ROOT,
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            size,
            blocks: 1,
            mtime: time,
            atime: time,
            ctime: time,
        }
    }

    const PLACE: FilePlace<'_> = FilePlace { path: b"f", way: b"", salt: b"here" };

    /// A listing may say the same of other bytes: of the same length, and changed in the same minute.
    #[test]
    fn what_is_far_is_told_from_others_by_its_version_alone() {
        let listed = attributes(7, 1_000_000_000);
        let of = |version| Validators::of_far(&listed, version, PLACE);
        let (one, other, none) = (of(Some("1")), of(Some("2")), of(None));
        assert!(one.is_strong() && one == of(Some("1")) && one.etag != other.etag);
        assert_eq!((&none.etag, none.modified), (&None, None));
        let elsewhere = Validators::of_far(&listed, Some("1"), FilePlace { path: b"g", ..PLACE });
        assert_ne!(elsewhere.etag, one.etag);
        let has = |name: HeaderName, value: &str, now: &Validators| {
            let headers = HeaderMap::from_iter([(name, value.parse().unwrap()), (RANGE, "bytes=1-2".parse().unwrap())]);
            (check(&headers, now), wanted(&headers, now, 7) != Wanted::Whole)
        };
        let etag = one.etag.clone().unwrap();
        let then = one.last_modified().unwrap();
        assert_eq!(then, "Sun, 09 Sep 2001 01:46:40 GMT");
        assert_eq!(has(IF_NONE_MATCH, &etag, &one).0, Outcome::NotModified);
        assert_eq!(has(IF_RANGE, &etag, &one), (Outcome::Go, true));
        for now in [&other, &none] {
            assert_eq!(has(IF_NONE_MATCH, &etag, now).0, Outcome::Go);
            assert_eq!(has(IF_RANGE, &etag, now), (Outcome::Go, false));
            assert_eq!(has(IF_MATCH, &etag, now).0, Outcome::Failed);
        }
        for now in [&one, &other, &none] {
            assert_eq!(has(IF_MODIFIED_SINCE, &then, now).0, Outcome::Go);
            assert_eq!(has(IF_RANGE, &then, now), (Outcome::Go, false));
        }
        assert_eq!(has(IF_UNMODIFIED_SINCE, &then, &one).0, Outcome::Failed);
        // Nor is a time that the server does not tell one.
        assert_eq!(Validators::of_far(&attributes(7, 0), Some("1"), PLACE).modified, None);
    }

    #[test]
    fn a_time_that_is_not_known_is_not_long_ago() {
        let is_strong = |seconds, lifetime| Validators::of(&attributes(7, seconds), lifetime, PLACE).is_strong();
        assert!(is_strong(1_000_000_000, Lifetime::Short) && is_strong(0, Lifetime::Forever));
        assert!(!is_strong(0, Lifetime::Short));
    }
}
