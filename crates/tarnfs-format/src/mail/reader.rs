//! Finds the messages in a stream.

use super::NAME;
use super::fields;
use super::lines::Lines;
use super::parts::Message;
use crate::{Error, Event, Options, Receive, Stream, Time};

/// Fields that messages have, of which a message by itself must have some. What hosts that it passed have signed comes
/// before all that its author has written, and may be long.
const FIELDS: [&[u8]; 18] = [
    b"received",
    b"return-path",
    b"delivered-to",
    b"from",
    b"to",
    b"date",
    b"subject",
    b"message-id",
    b"mime-version",
    b"x-mozilla-status",
    b"x-received",
    b"arc-seal",
    b"dkim-signature",
    b"reply-to",
    b"sender",
    b"in-reply-to",
    b"references",
    b"content-type",
];

/// How many of them.
const LEAST_FIELDS: usize = 3;

/// Bytes of its start that are looked at. A bid sees fewer, but no more than these.
const HEAD: usize = 64 << 10;

/// Bytes of it in which there is no zero: it is text.
const TEXT: usize = 4 << 10;

/// Bytes that are looked at ahead for the end of a message which says how long it is: in all so many, and so many more
/// for each byte of the file.
const LOOKED_AT: u64 = 64 << 20;
const FOR_EACH_BYTE: u64 = 4;

/// Bytes behind such an end, in which the next message begins.
const BEHIND: usize = 8;

/// What a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An mbox.
    Many,
    /// One message.
    One,
}

impl Kind {
    /// What begins with `head`, if it is any.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        let line = memchr::memchr(b'\n', head)?;
        let (first, rest) = head.split_at_checked(line)?;
        if separator(first).is_some() {
            let next = rest.get(1..)?.split(|&byte| byte == b'\n').next()?;
            let is_header = fields::is_field(next) || next.starts_with(b">From ");
            return is_header.then_some(Self::Many);
        }
        let (mut known, mut found) = (0_usize, [false; FIELDS.len()]);
        for line in head.split_inclusive(|&byte| byte == b'\n') {
            // The last one may be cut.
            let Some(line) = line.strip_suffix(b"\n") else { break };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || known >= LEAST_FIELDS {
                break;
            }
            let Some(name) = fields::name_of(line) else {
                if line.first().is_some_and(|first| matches!(first, b' ' | b'\t')) {
                    continue;
                }
                return None;
            };
            let place = FIELDS.iter().position(|field| name.eq_ignore_ascii_case(field));
            if let Some(seen) = place.and_then(|place| found.get_mut(place)) {
                known = known.saturating_add(usize::from(!std::mem::replace(seen, true)));
            }
        }
        let text = head.get(..TEXT).unwrap_or(head);
        (known >= LEAST_FIELDS && !text.contains(&0)).then_some(Self::One)
    }
}

/// The date of a line that stands before a message of an mbox: "From ADDRESS Tue Jul  1 10:52:37 2003".
fn separator(line: &[u8]) -> Option<Time> {
    let rest = line.strip_prefix(b"From ")?;
    // The address may be anything, even nothing.
    let blank = rest.iter().position(|&byte| byte == b' ')?;
    fields::date(rest.get(blank..)?.strip_suffix(b"\r").unwrap_or(rest.get(blank..)?))
}

pub(super) fn read(stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
    let offset = stream.position();
    let head = stream.peek(HEAD).map_err(|error| Error::Read { offset, error })?;
    let Some(kind) = Kind::of(head) else {
        return Err(Error::NotThisFormat { format: NAME, reason: "it does not begin as mail does".to_owned() });
    };
    let longest = options.limits.path;
    let mut lines = Lines::new(stream);
    let mut message = (kind == Kind::One).then(|| Message::new(offset, None, Time::default(), longest));
    let (mut number, mut looked_at, mut known) = (0_u64, 0_u64, None);
    // Where the line before begins if it is empty.
    let mut empty = None;
    let mut told = Vec::new();
    let mut counter = 0_u32;
    while lines.next(stream)? {
        counter = counter.wrapping_add(1);
        if counter.is_multiple_of(4096) {
            options.cancel.check().map_err(Error::Receiver)?;
        }
        let line = lines.line();
        let time = if kind == Kind::Many && line.is_start { separator(line.text) } else { None };
        let begins = match (time, &message) {
            (None, _) => None,
            (time, None) => time,
            (time, Some(message)) => {
                let at = line.at;
                let goes_on = known.is_some_and(|end| at < end) || {
                    known = goes_on(message, at, &lines, stream, &mut looked_at)?;
                    known.is_some()
                };
                if goes_on { None } else { time }
            }
        };
        let line = lines.line();
        if let Some(time) = begins {
            if let Some(message) = message.take() {
                message.finish(empty.unwrap_or(line.at), empty.is_some(), &mut told);
            }
            number = number.saturating_add(1);
            message = Some(Message::new(line.behind(), Some(number), time, longest));
            empty = None;
        } else {
            empty = line.is_empty().then_some(line.at);
            if let Some(message) = &mut message {
                message.line(line, &mut told);
            }
        }
        tell(&mut told, stream, receive)?;
    }
    let end = lines.line().behind();
    if let Some(message) = message {
        // In an mbox an empty line ends each message.
        let empty = empty.filter(|_| kind == Kind::Many);
        message.finish(empty.unwrap_or(end), empty.is_some(), &mut told);
    }
    tell(&mut told, stream, receive)?;
    receive(Event::End(end), stream).map_err(Error::Receiver)
}

fn tell(told: &mut Vec<Event>, stream: &mut dyn Stream, receive: &mut Receive<'_>) -> Result<(), Error> {
    told.drain(..).try_for_each(|event| receive(event, stream)).map_err(Error::Receiver)
}

/// Where `message` ends, if byte `at`, where a line stands as before a message, lies in it: it says how long it is, and
/// where it ends the next one begins, or nothing is left. All such lines up to there lie in it, too.
fn goes_on(
    message: &Message,
    at: u64,
    lines: &Lines,
    stream: &mut dyn Stream,
    looked_at: &mut u64,
) -> Result<Option<u64>, Error> {
    let Some((start, length)) = message.content else { return Ok(None) };
    let Some(end) = start.checked_add(length).filter(|end| *end > at) else { return Ok(None) };
    let most = LOOKED_AT.saturating_add(at.saturating_mul(FOR_EACH_BYTE)).saturating_sub(*looked_at);
    *looked_at = looked_at.saturating_add(end.saturating_sub(at).min(most));
    let Some(behind) = lines.look_at(stream, end, BEHIND, most)? else { return Ok(None) };
    let is_end = behind.len() < BEHIND;
    let next = behind.trim_ascii_start();
    let ends =
        next.starts_with(b"From ") || next.starts_with(b"From") && behind.len() == BEHIND || next.is_empty() && is_end;
    Ok(ends.then_some(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceStream;
    use std::sync::Arc;
    use tarnfs_source::{Cancel, MemorySource};

    fn entries(text: &str) -> Vec<(String, String)> {
        let mut stream = SourceStream::new(Arc::new(MemorySource::new(text.as_bytes(), "mail")), Cancel::default());
        let mut found = Vec::new();
        read(&mut stream, &Options::default(), &mut |event, _| {
            if let Event::Entry(entry) = event {
                let piece = entry.body.pieces.iter().flatten().next();
                let shown = piece.map_or("", |piece| &text[piece.offset as usize..][..piece.stored as usize]);
                found.push((String::from_utf8(entry.path).unwrap(), shown.to_owned()));
            }
            Ok(())
        })
        .unwrap();
        found
    }

    const SEPARATOR: &str = "From a@b.example Tue Jul  1 10:52:37 2003\n";

    #[test]
    fn messages_are_told_from_text() {
        for (head, kind) in [
            ("From a@b.example Tue Jul  1 10:52:37 2003\nSubject: x\n", Some(Kind::Many)),
            ("From a at b  Tue Jul  1 10:52:37 2003\r\nX: y\r\n", Some(Kind::Many)),
            ("From - Mon Jan 01 00:00:00 2001\n>From x\n", Some(Kind::Many)),
            ("From the beginning of 2001, at 10:00 in January\nall was well.\n", None),
            ("From here on\n", None),
            ("From a@b.example Tue Jul  1 10:52:37 2003\nno field\n", None),
            ("From: a\nTo: b\nSubject: c\n\ntext", Some(Kind::One)),
            ("Return-Path: <a>\r\nReceived: from x\r\n by y\r\nReceived: z\r\nDate: today\r\n", Some(Kind::One)),
            ("From: a\nTo: b\n\nSubject: c\n", None),
            ("Package: a\nVersion: 1\nDate: x\n", None),
            ("From: a\nFrom: b\nFrom: c\n", None),
            ("", None),
        ] {
            assert_eq!(Kind::of(head.as_bytes()), kind, "{head}");
        }
    }

    /// As Gmail's "Download original" begins: the author's fields come behind some KiB of others.
    fn signed(lines: usize) -> String {
        let folded = format!("         {}\r\n", "x".repeat(70)).repeat(lines);
        format!(
            "Delivered-To: me@a.example\r\nReceived: by 2002:a05 with SMTP id x;\r\n        Tue, 1 Jul 2003\r\n\
            X-Google-Smtp-Source: A\r\nARC-Authentication-Results: i=1;\r\n{folded}\
            ARC-Message-Signature: i=1;\r\n{folded}ARC-Seal: i=1; a=rsa-sha256;\r\n{folded}\
            Return-Path: <a@b>\r\nFrom: a@b\r\nSubject: signed\r\n\r\nHello\r\n"
        )
    }

    #[test]
    fn fields_of_hosts_may_stand_before_those_of_the_author() {
        for lines in [1, 20, 200] {
            let text = signed(lines);
            assert_eq!(entries(&text), [("body.txt".to_owned(), "Hello\r\n".to_owned())], "{lines}");
            // What a bid takes, the reader takes, too.
            if Kind::of(&text.as_bytes()[..4096.min(text.len())]).is_none() {
                assert!(text.len() > 4096, "{lines}");
            }
        }
        assert_eq!(Kind::of(&signed(20).as_bytes()[..4096]), Some(Kind::One));
    }

    #[test]
    fn parts_never_take_the_names_of_messages() {
        let part =
            |kind: &str, name: &str, text: &str| format!("--B\nContent-Type: {kind}; name=\"{name}\"\n\n{text}\n");
        let parts = [
            part("message/rfc822", "message.eml", "From: inner\n\ninner text"),
            part("text/plain", "message.eml", "attached"),
            part("text/plain", "message (2).eml", "attached, too"),
            part("text/plain", "a (2).txt", "two"),
            part("text/plain", "a.txt", "one"),
            part("text/plain", "a.txt", "three"),
        ];
        let message = format!("Subject: outer\nContent-Type: multipart/mixed; boundary=B\n\n{}--B--\n", parts.concat());
        let found = entries(&format!("{SEPARATOR}{message}"));
        let expected = [
            ("message (2)/body.txt", "inner text"),
            ("message (2).eml", "From: inner\n\ninner text"),
            ("message (2)/", ""),
            ("message (3).eml", "attached"),
            ("message (2) (2).eml", "attached, too"),
            ("a (2).txt", "two"),
            ("a.txt", "one"),
            ("a (3).txt", "three"),
            ("message.eml", message.as_str()),
            ("", ""),
        ];
        let expected = expected.map(|(path, text)| (format!("000001 outer/{path}"), text.to_owned()));
        assert_eq!(found, expected);
    }

    /// What decodes a part of that text.
    fn properties(text: &str) -> (u64, Vec<u8>) {
        let text =
            format!("From: a\nTo: b\nSubject: c\nContent-Type: text/x\nContent-Transfer-Encoding: base64\n\n{text}");
        let source = Arc::new(MemorySource::new(text.as_bytes(), "mail"));
        let mut found = Vec::new();
        read(&mut SourceStream::new(source, Cancel::default()), &Options::default(), &mut |event, _| {
            if let Event::Entry(entry) = event {
                let coder = entry.body.pieces.iter().flatten().next().and_then(|piece| piece.coder.clone()).unwrap();
                found.push((entry.body.size, coder.steps[0].properties.clone()));
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[test]
    fn base64_in_equal_lines_is_told() {
        let told = |all: u32, end: u8| [&all.to_le_bytes()[..], &[end]].concat();
        assert_eq!(properties("QUJD\nREVG\nRw==\n"), (7, told(4, 1)));
        assert_eq!(properties("QUJDREVG\r\nQUJD\r\n\r\n"), (9, told(8, 2)));
        assert_eq!(properties("\nQUJD\n"), (3, Vec::new()));
        assert_eq!(properties("QUJD\nREVGQUJD\n"), (9, Vec::new()));
        // A line that comes in pieces is one line.
        let long = "QUJD".repeat(300_000);
        assert_eq!(properties(&format!("{long}\n")), (900_000, told(1_200_000, 1)));
        assert_eq!(properties(&format!("{long}\n{long}\n")), (1_800_000, told(1_200_000, 1)));
    }

    /// The padding that ends a piece of a line takes a byte of it, though it ends nothing.
    #[test]
    fn padding_at_the_end_of_a_piece_is_seen() {
        let place = super::super::lines::TOGETHER;
        for behind in 0..80 {
            let head = 88 + behind;
            let before = (place - head) / 4 * 4 + 2;
            let text = format!("{}={}\n", "A".repeat(before), "A".repeat(300_002));
            assert_eq!(properties(&text).1, Vec::<u8>::new(), "{behind}");
        }
    }

    #[test]
    fn a_message_ends_where_the_next_one_begins() {
        let text =
            format!("{SEPARATOR}Subject: one\n\nfirst\n>From x\nFrom here\n\n{SEPARATOR}Subject: two\n\nsecond\n");
        let found = entries(&text);
        let expected = [
            ("000001 one/body.txt", "first\n>From x\nFrom here\n"),
            ("000001 one/message.eml", "Subject: one\n\nfirst\n>From x\nFrom here\n"),
            ("000001 one/", ""),
            ("000002 two/body.txt", "second\n"),
            ("000002 two/message.eml", "Subject: two\n\nsecond\n"),
            ("000002 two/", ""),
        ];
        assert_eq!(found, expected.map(|(path, text)| (path.to_owned(), text.to_owned())));
    }

    /// mboxcl2 quotes nothing.
    #[test]
    fn a_message_that_says_how_long_it_is_may_have_such_lines() {
        let content = format!("text\n\n{SEPARATOR}more\n");
        for (length, behind, count) in [
            (content.len(), format!("\n{SEPARATOR}\nx"), 2),
            (content.len(), String::new(), 1),
            // What it says is not so.
            (content.len() - 3, format!("\n{SEPARATOR}\nx"), 3),
            (content.len() + 90, String::new(), 2),
            (3, format!("\n{SEPARATOR}\nx"), 3),
        ] {
            let text = format!("{SEPARATOR}Content-Length: {length}\n\n{content}{behind}");
            let folders = entries(&text).iter().filter(|(path, _)| path.ends_with('/')).count();
            assert_eq!(folders, count, "{length} {behind:?}");
        }
    }

    /// Where such a message ends is looked at once, however many lines in it look as if another one began.
    #[test]
    fn a_long_message_may_quote_many_others() {
        let quoted = format!("{SEPARATOR}Subject: quoted\n\n");
        let line = format!("{}\n", "x".repeat(99));
        let content = format!("{}{}", quoted.repeat(60), line.repeat(15_000));
        let length = content.len();
        let text = format!("{SEPARATOR}Content-Length: {length}\n\n{content}\n{SEPARATOR}Subject: two\n\nsecond\n");
        let folders = entries(&text).iter().filter(|(path, _)| path.ends_with('/')).count();
        assert_eq!(folders, 2);
    }

    #[test]
    fn parts_end_where_the_line_between_them_begins() {
        let text = "From: a\nTo: b\nSubject: c\nContent-Type: multipart/mixed; boundary=\"=_x\"\n\nbefore\n--=_x\n\ntext\n\n\
            --=_x\nContent-Type: text/html\nContent-Disposition: attachment; filename=a.html\n\n<p>\r\n\r\n--=_x\r\n\
            Content-Type: message/rfc822\n\nSubject: inner\nContent-Type: multipart/mixed; boundary=\"=_x1\"\n\n\
            --=_x1\nContent-Type: image/png\n\nPNG\n--=_x1\n\n--=_x10\n--=_x--\nbehind\n--=_x\n";
        let found = entries(text);
        let inner = "Subject: inner\nContent-Type: multipart/mixed; boundary=\"=_x1\"\n\n\
            --=_x1\nContent-Type: image/png\n\nPNG\n--=_x1\n\n--=_x10";
        let expected = [
            ("body.txt", "text\n"),
            ("a.html", "<p>\r\n"),
            ("inner/part.png", "PNG"),
            ("inner/body.txt", "--=_x10"),
            ("inner.eml", inner),
            ("inner/", ""),
        ];
        assert_eq!(found, expected.map(|(path, text)| (path.to_owned(), text.to_owned())));
    }
}
