//! The fields of a message's header, or of a part's.

use super::words;
use crate::{Time, calendar};

/// Bytes of a header that are kept; what is behind them is passed.
pub(super) const LONGEST: usize = 64 << 10;

/// Parameters of a field that are looked at.
const MOST_PARAMETERS: usize = 64;

/// True if `line` begins a field: "Subject: ...".
pub(super) fn is_field(line: &[u8]) -> bool {
    name_of(line).is_some()
}

/// The name that a field begins with.
pub(super) fn name_of(line: &[u8]) -> Option<&[u8]> {
    /// Longer ones are none.
    const LONGEST_NAME: usize = 128;
    let start = line.get(..LONGEST_NAME.min(line.len()))?;
    let colon = start.iter().position(|&byte| byte == b':')?;
    // Some programs write blanks before the colon.
    let name = start.get(..colon)?.trim_ascii_end();
    let is_name = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    is_name.then_some(name)
}

/// A header, as it is stored.
#[derive(Debug, Default)]
pub(super) struct Fields {
    text: Vec<u8>,
    /// There was no room for the last line.
    is_left_out: bool,
}

impl Fields {
    /// Takes a line of it, without its end.
    pub(super) fn push(&mut self, line: &[u8]) {
        // What goes on with a line that is not there must not go on with the one before that.
        if self.is_left_out && line.first().is_some_and(|first| matches!(first, b' ' | b'\t')) {
            return;
        }
        let length = self.text.len().saturating_add(line.len()).saturating_add(1);
        self.is_left_out = length > LONGEST;
        if !self.is_left_out {
            self.text.extend_from_slice(line);
            self.text.push(b'\n');
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The value of the first field of that name (in lower case), in one line.
    pub(super) fn get(&self, name: &str) -> Option<Vec<u8>> {
        let mut value: Option<Vec<u8>> = None;
        for line in self.text.split(|&byte| byte == b'\n') {
            if let Some(value) = &mut value {
                // A line that begins with a blank goes on with the one before it.
                if !line.first().is_some_and(|first| matches!(first, b' ' | b'\t')) {
                    break;
                }
                value.extend_from_slice(line);
            } else if name_of(line).is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes())) {
                let colon = line.iter().position(|&byte| byte == b':')?;
                value = Some(line.get(colon.saturating_add(1)..)?.to_vec());
            }
        }
        value.map(|value| value.trim_ascii().to_vec())
    }

    /// The same as text, with what is encoded in it.
    pub(super) fn text_of(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| words::text(&value))
    }

    /// When the message was written.
    pub(super) fn date(&self) -> Option<Time> {
        date(&self.get("date")?)
    }

    /// How many bytes follow the header, in files that say so.
    pub(super) fn content_length(&self) -> Option<u64> {
        std::str::from_utf8(&self.get("content-length")?).ok()?.parse().ok()
    }

    /// A field with parameters: "text/plain; charset=utf-8".
    pub(super) fn structured(&self, name: &str) -> Option<Structured> {
        Some(Structured::of(&self.get(name)?))
    }
}

/// A value with parameters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Structured {
    /// In lower case.
    pub(super) value: Vec<u8>,
    /// Names in lower case.
    parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Structured {
    fn of(text: &[u8]) -> Self {
        let end = text.iter().position(|&byte| byte == b';').unwrap_or(text.len());
        let (value, mut rest) = text.split_at_checked(end).unwrap_or((text, b""));
        let value = value.split(|&byte| byte == b'(').next().unwrap_or_default();
        let mut found = Self { value: value.trim_ascii().to_ascii_lowercase(), parameters: Vec::new() };
        while let Some(behind) = rest.strip_prefix(b";") {
            if found.parameters.len() >= MOST_PARAMETERS {
                break;
            }
            let (name, value, behind) = parameter(behind);
            if !name.is_empty() {
                found.parameters.push((name.trim_ascii().to_ascii_lowercase(), value));
            }
            rest = behind;
        }
        found
    }

    /// The parameter of that name as it is stored.
    pub(super) fn raw(&self, name: &str) -> Option<&[u8]> {
        self.parameters.iter().find(|(found, _)| found == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// The parameter of that name as text: as RFC 2231 has it, also in parts, or with the words of RFC 2047 that many
    /// programs write.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        if let Some(value) = self.raw(&format!("{name}*")) {
            return Some(words::extended(value).unwrap_or_else(|| words::plain(value)));
        }
        if let Some(value) = self.raw(name) {
            return Some(words::text(value));
        }
        // name*0, name*1*, ...
        let (mut joined, mut is_extended) = (Vec::new(), false);
        for number in 0..MOST_PARAMETERS {
            let plain = self.raw(&format!("{name}*{number}"));
            let extended = self.raw(&format!("{name}*{number}*"));
            match (plain, extended) {
                (_, Some(part)) => {
                    is_extended |= number == 0;
                    joined.extend_from_slice(part);
                }
                // What is not encoded in it must not be taken for an escape.
                (Some(part), None) if is_extended => {
                    for &byte in part {
                        if byte == b'%' { joined.extend_from_slice(b"%25") } else { joined.push(byte) }
                    }
                }
                (Some(part), None) => joined.extend_from_slice(part),
                (None, None) => break,
            }
        }
        if joined.is_empty() {
            return None;
        }
        let extended = if is_extended { words::extended(&joined) } else { None };
        Some(extended.unwrap_or_else(|| words::text(&joined)))
    }
}

/// Name and value of the parameter at the start of `text`, and what is behind it.
fn parameter(text: &[u8]) -> (&[u8], Vec<u8>, &[u8]) {
    let end = text.iter().position(|byte| matches!(byte, b'=' | b';')).unwrap_or(text.len());
    let (name, rest) = text.split_at_checked(end).unwrap_or((text, b""));
    let Some(rest) = rest.strip_prefix(b"=") else { return (b"", Vec::new(), rest) };
    let rest = rest.trim_ascii_start();
    let (mut value, mut is_escaped) = (Vec::new(), false);
    if let Some(quoted) = rest.strip_prefix(b"\"") {
        let mut at = 0_usize;
        for &byte in quoted {
            at = at.saturating_add(1);
            match byte {
                _ if std::mem::take(&mut is_escaped) => value.push(byte),
                b'\\' => is_escaped = true,
                b'"' => break,
                _ => value.push(byte),
            }
        }
        let behind = quoted.get(at..).unwrap_or_default();
        let next = behind.iter().position(|&byte| byte == b';').unwrap_or(behind.len());
        return (name, value, behind.get(next..).unwrap_or_default());
    }
    let end = rest.iter().position(|&byte| byte == b';').unwrap_or(rest.len());
    let (value, behind) = rest.split_at_checked(end).unwrap_or((rest, b""));
    (name, value.trim_ascii().to_vec(), behind)
}

const MONTHS: [&[u8]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];

/// Minutes to the east of Greenwich: "+0100", "GMT", "EST".
fn zone(token: &str) -> Option<i64> {
    let old = ["PST", "PDT", "MST", "MDT", "CST", "CDT", "EST", "EDT"];
    match token {
        "GMT" | "UT" | "UTC" | "Z" => return Some(0),
        _ => {}
    }
    if let Some(place) = old.iter().position(|name| *name == token) {
        let hours = [8, 7, 7, 6, 6, 5, 5, 4];
        return hours.get(place).map(|hours: &i64| hours.saturating_mul(-60));
    }
    let sign = match token.as_bytes() {
        [b'+', _, _, _, _] => 1,
        [b'-', _, _, _, _] => -1,
        _ => return None,
    };
    let number: i64 = token.get(1..)?.parse().ok()?;
    let minutes = number.checked_div(100)?.saturating_mul(60).saturating_add(number.checked_rem(100)?);
    Some(minutes.saturating_mul(sign))
}

/// A date as messages have it ("Tue, 1 Jul 2003 10:52:37 +0200") or as the line before a message in an mbox does ("Tue
/// Jul  1 10:52:37 2003").
pub(super) fn date(text: &[u8]) -> Option<Time> {
    /// A longer one is none.
    const LONGEST_DATE: usize = 256;
    let text = std::str::from_utf8(text.get(..LONGEST_DATE.min(text.len()))?).ok()?;
    let (mut month, mut day, mut year, mut clock, mut east) = (None, None, None, None, None);
    for token in text.split([' ', '\t', ',']).filter(|token| !token.is_empty()) {
        // A comment is at the end.
        if token.starts_with('(') {
            break;
        }
        let start = token.as_bytes().get(..3).map(<[u8]>::to_ascii_lowercase);
        let of_month = start.and_then(|start| MONTHS.iter().position(|name| **name == *start));
        if let (Some(found), None) = (of_month, month) {
            month = Some(found.checked_add(1)? as i64);
        } else if token.contains(':') {
            let mut numbers = token.split(':').map(|number| number.parse::<i64>().ok().filter(|number| *number >= 0));
            let [hour, minute] = [numbers.next()??, numbers.next()??];
            clock = Some([hour, minute, numbers.next().flatten().unwrap_or(0)]);
        } else if let (Some(found), Some(_)) = (zone(token), clock) {
            east = Some(found);
        } else if token.bytes().all(|byte| byte.is_ascii_digit()) {
            let number: i64 = token.parse().ok()?;
            if day.is_none() && number <= 31 && token.len() <= 2 {
                day = Some(number);
            } else if year.is_none() {
                year = Some(match (number, token.len()) {
                    (..50, ..=2) => number.saturating_add(2000),
                    (_, ..=3) => number.saturating_add(1900),
                    _ => number,
                });
            }
        }
    }
    let year = year.filter(|year| (1900..10_000).contains(year))?;
    let seconds = calendar::seconds_of([year, month?, day?], clock?, east.unwrap_or(0))?;
    Some(Time { seconds, nanoseconds: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        let mut fields = Fields::default();
        text.lines().for_each(|line| fields.push(line.as_bytes()));
        fields
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        for (value, name) in [
            ("attachment; filename=a.txt", "a.txt"),
            ("attachment; filename=\"a \\\"b\\\".txt\"; x=y", "a \"b\".txt"),
            ("attachment; filename*=utf-8''gr%C3%BCn.txt; filename=\"gruen.txt\"", "grün.txt"),
            ("attachment; filename*0=\"long\"; filename*1=\"er.txt\"", "longer.txt"),
            ("attachment; filename*0*=utf-8''gr%C3%BC; filename*1=\"n%41\"; filename*2*=%2e", "grün%41."),
            ("attachment; filename=\"=?utf-8?b?Z3LDvG4=?=.txt\"", "grün.txt"),
            ("ATTACHMENT (x) ; FileName = a.txt ;", "a.txt"),
        ] {
            let field = Structured::of(value.as_bytes());
            assert_eq!(field.value, b"attachment", "{value}");
            assert_eq!(field.text("filename").as_deref(), Some(name), "{value}");
        }
        assert_eq!(Structured::of(b"").text("name"), None);
        assert_eq!(Structured::of(b"a;b;c=;\"").text("name"), None);
    }

    #[test]
    fn fields_go_on_in_the_next_line() {
        let fields = fields("Received: x\nSubject:  one\n\ttwo \nFrom : a\nsubject: other\nno field\n y");
        assert_eq!(fields.get("subject").unwrap(), b"one\ttwo");
        assert_eq!((fields.get("from").unwrap(), fields.get("to")), (b"a".to_vec(), None));
        assert!(!is_field(b"no field") && !is_field(b": x") && !is_field(b"a b: c") && is_field(b"X-Y: "));
    }

    /// There is no room for all: what goes on with a line that is left out is left out, too.
    #[test]
    fn lines_that_are_left_out_take_along_what_goes_on_with_them() {
        let long = "x".repeat(LONGEST);
        let fields = fields(&format!("Subject: one\nX-Long: {long}\n\tlong\n still\nTo: a\n {long}\n more\nFrom: b"));
        let found = ["subject", "x-long", "to", "from"].map(|name| fields.get(name));
        assert_eq!(found, [Some(b"one".to_vec()), None, Some(b"a".to_vec()), Some(b"b".to_vec())]);
    }

    #[test]
    fn dates_are_read_as_they_are_written() {
        for (text, seconds) in [
            ("Tue, 1 Jul 2003 10:52:37 +0200 (CEST)", Some(1_057_049_557)),
            ("Tue Jul  1 08:52:37 2003", Some(1_057_049_557)),
            ("1 Jul 03 08:52 GMT", Some(1_057_049_520)),
            ("Tue, 01 Jul 2003 04:52:37 EDT", Some(1_057_049_557)),
            ("Mon Jan 01 00:00:00 +0000 2001", Some(978_307_200)),
            ("1 Jul 2003", None),
            ("Jul 10:00:00 2003", None),
            ("1 Jul 2003 99:00:00", None),
            ("", None),
        ] {
            assert_eq!(date(text.as_bytes()).map(|time| time.seconds), seconds, "{text}");
        }
    }
}
