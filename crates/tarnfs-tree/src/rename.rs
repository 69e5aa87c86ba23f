//! Paths changed by a regular expression (`--transform`, `--transform-recursive-mount-point`): expression and
//! replacement as Python's `re.sub` takes them, since that is what ratarmount's users have written.

use std::borrow::Cow;
use std::fmt::Write as _;

use fancy_regex::{Captures, Regex, RegexBuilder};

/// Steps that finding one match may take, and matches that may be long in coming: an expression that goes back again
/// and again would not end.
const MOST_STEPS: usize = 1_000_000;
const MOST_SLOW: usize = 16;

/// Steps that finding each further match may take. A path of 64 KiB has at most as many matches.
const MOST_FURTHER_STEPS: usize = 1_000;

/// Bytes that are not UTF-8 stand as these characters while a path is matched: 0xf780 for 0x80.
const BYTES: u32 = 0xf700;

/// An expression and what comes in the place of what it matches.
#[derive(Debug)]
pub(crate) struct Rename {
    /// For the first matches in a path, and for those behind them.
    first: Search,
    further: Search,
    replacement: Vec<Part>,
}

/// An expression that may take so many steps for a match.
#[derive(Debug)]
struct Search {
    expression: Regex,
    /// Finds no empty match where the search begins.
    advancing: Regex,
}

impl Search {
    fn new(expression: &str, steps: usize) -> Result<Self, Box<fancy_regex::Error>> {
        let build = |expression: &str| RegexBuilder::new(expression).backtrack_limit(steps).build().map_err(Box::new);
        let plain = build(expression)?;
        // `\G` is where the search begins. An expression in verbose form may end in a comment, which a new line ends.
        let advancing = build(&format!(r"(?:{expression})(?!\G)"));
        let advancing = advancing.or_else(|_| build(&format!("(?:{expression}\n)(?!\\G)")))?;
        Ok(Self { expression: plain, advancing })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Group(usize),
    Named(String),
}

impl Rename {
    /// The error says what of it cannot be understood.
    pub(crate) fn new(expression: &str, replacement: &str) -> Result<Self, String> {
        let build = |steps: usize| {
            let built = Search::new(expression, steps);
            built.map_err(|error| format!("{expression}: this regular expression is not understood: {error}"))
        };
        let (first, further) = (build(MOST_STEPS)?, build(MOST_FURTHER_STEPS)?);
        let replacement = parts(replacement).map_err(|error| format!("{replacement}: {error}"))?;
        for part in &replacement {
            let is_there = match part {
                Part::Text(_) => true,
                Part::Group(number) => *number < first.expression.captures_len(),
                Part::Named(name) => first.expression.capture_names().flatten().any(|other| other == name),
            };
            if !is_there {
                let what = match part {
                    Part::Named(name) => name.clone(),
                    Part::Group(number) => number.to_string(),
                    Part::Text(_) => String::new(),
                };
                return Err(format!("the regular expression has no group {what}"));
            }
        }
        Ok(Self { first, further, replacement })
    }

    /// `path` with every match replaced. A path on which matching takes too long stays as it is.
    pub(crate) fn apply<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        match self.replaced(&to_text(path)) {
            Ok(Some(changed)) => Cow::Owned(to_bytes(&changed)),
            Ok(None) => Cow::Borrowed(path),
            Err(error) => {
                log::warn!("{}: keeps its path: {error}", tarnfs_format::name::excerpt(path));
                Cow::Borrowed(path)
            }
        }
    }

    /// As `re.sub` does it: an empty match counts also where the match before it ended, and behind it comes the first
    /// one that does not end at the same place. `None` without a match. The steps of all matches together are
    /// bounded.
    fn replaced(&self, text: &str) -> Result<Option<String>, Box<fancy_regex::Error>> {
        let mut changed = String::new();
        // Where the last match ended, and whether it was empty.
        let (mut end, mut was_empty) = (0, false);
        let mut count = 0_usize;
        loop {
            let search = if count < MOST_SLOW { &self.first } else { &self.further };
            let expression = if was_empty { &search.advancing } else { &search.expression };
            let Some(captures) = expression.captures_from_pos(text, end)? else { break };
            let Some(found) = captures.get(0).filter(|found| !was_empty || found.end() > end) else { break };
            count += 1;
            changed.push_str(&text[end..found.start()]);
            changed.push_str(&self.fill(&captures));
            (end, was_empty) = (found.end(), found.start() == found.end());
        }
        if count == 0 {
            return Ok(None);
        }
        changed.push_str(&text[end..]);
        Ok(Some(changed))
    }

    fn fill(&self, captures: &Captures<'_>) -> String {
        let group = |found: Option<fancy_regex::Match<'_>>| found.map_or("", |found| found.as_str()).to_owned();
        let text = self.replacement.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Group(number) => group(captures.get(*number)),
            Part::Named(name) => group(captures.name(name)),
        });
        text.collect()
    }
}

/// The parts of a replacement: `\1`, `\g<1>`, `\g<name>` stand for groups, `\\` for a backslash, `\n` and the like for
/// what they are in C.
fn parts(replacement: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = replacement;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let Some(next) = after.chars().next() else { return Err("it ends in a backslash".to_owned()) };
        rest = &after[next.len_utf8()..];
        let group = match next {
            'g' => {
                let named = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
                let (name, after) = named.ok_or("behind \\g comes the name of a group, as \\g<name>")?;
                rest = after;
                // Digits only: `parse` takes a sign as well.
                let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
                let number = name.parse().ok().filter(|_| is_number);
                if number.is_none() && !is_identifier(name) {
                    return Err(format!("{name} is not the name of a group"));
                }
                Some(number.map_or_else(|| Part::Named(name.to_owned()), Part::Group))
            }
            digit if digit.is_ascii_digit() => {
                let digits = &after[..after.bytes().take(3).take_while(u8::is_ascii_digit).count()];
                let octal = after.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                // As in Python: behind a 0 up to two more octal digits are a character, and so are three of them.
                let is_character = digit == '0' || octal == 3;
                let length = if is_character { octal } else { digits.len().min(2) };
                rest = &after[length..];
                if is_character {
                    let number = u32::from_str_radix(&after[..length], 8).unwrap_or(u32::MAX);
                    let byte =
                        u8::try_from(number).map_err(|_| format!("\\{} is more than \\377", &after[..length]))?;
                    text.push(char::from(byte));
                    None
                } else {
                    after[..length].parse().ok().map(Part::Group)
                }
            }
            '\\' => {
                text.push('\\');
                None
            }
            letter => {
                let stands_for = match letter {
                    'n' => Some('\n'),
                    't' => Some('\t'),
                    'r' => Some('\r'),
                    'f' => Some('\x0c'),
                    'v' => Some('\x0b'),
                    'a' => Some('\x07'),
                    'b' => Some('\x08'),
                    letter if letter.is_ascii_alphabetic() => return Err(format!("\\{letter} means nothing")),
                    _ => None,
                };
                match stands_for {
                    Some(character) => text.push(character),
                    None => text.extend(['\\', letter]),
                }
                None
            }
        };
        if let Some(group) = group {
            parts.extend((!text.is_empty()).then(|| Part::Text(std::mem::take(&mut text))));
            parts.push(group);
        }
    }
    text.push_str(rest);
    parts.extend((!text.is_empty()).then_some(Part::Text(text)));
    Ok(parts)
}

/// As a group may be named.
fn is_identifier(name: &str) -> bool {
    let is_start = |letter: char| letter == '_' || letter.is_alphabetic();
    name.starts_with(is_start) && name.chars().all(|letter| is_start(letter) || letter.is_alphanumeric())
}

fn to_text(path: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(path) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().filter_map(|&byte| char::from_u32(BYTES | u32::from(byte))));
    }
    Cow::Owned(text)
}

fn to_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u32::from(character).checked_sub(BYTES) {
            Some(byte @ 0x80..=0xff) => bytes.push(byte as u8),
            _ => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// Expression and replacement as a person has typed them, for messages.
pub(crate) fn shown(pair: &(String, String)) -> String {
    let mut text = String::new();
    let _ = write!(text, "{} -> {}", pair.0, pair.1);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(expression: &str, replacement: &str, path: &[u8]) -> Vec<u8> {
        Rename::new(expression, replacement).unwrap().apply(path).into_owned()
    }

    /// Results are those of Python's `re.sub`.
    #[test]
    fn replaces_as_python_does() {
        for (expression, replacement, path, result) in [
            ("^/a/", "/b/", "/a/a/x", "/b/a/x"),
            (r"(.*)/([^/]*)\.tar$", r"\2", "/x/y/z.tar", "z"),
            (r"(?P<first>[^/]+)/(.*)", r"\g<2>/\g<first>", "/a/b/c", "/b/c/a"),
            (r"(\w+)-(\w+)", r"\2\\\1", "one-two", "two\\one"),
            ("x", "", "xaxbx", "ab"),
            (r"(?<=a)b", "c", "abab", "acac"),
            (r"(.)\1", r"<\1>", "aabbc", "<a><b>c"),
            (r"(a)|b", r"[\1]", "ab", "[a][]"),
            ("é", r"e\g<0>", "/é", "/eé"),
            ("x*", "-", "abxd", "-a-b--d-"),
            ("", "-", "aé", "-a-é-"),
            (".*", "x", "abc", "xx"),
            ("$", "!", "ab", "ab!"),
            ("a|", "-", "aab", "---b-"),
            ("|a", "-", "ba", "-b---"),
            ("|aa|a", "-", "aa", "---"),
            ("(a*?)", r"<\1>", "baac", "<>b<><a><><a><>c<>"),
            (r"\b|b", "_", "ab b", "_a__ ___"),
            ("(?i)B*", "-", "abB", "-a--"),
            ("(a)", r"\012", "ab", "\nb"),
            ("(a)", r"\n\t\r\f\v\a\b\\", "a", "\n\t\r\x0c\x0b\x07\x08\\"),
            ("(a)", r"\08\07x\0", "ab", "\08\x07x\0b"),
            ("(a)", r"\1011\177\377", "ab", "A1\x7f\u{ff}b"),
            ("(a)", r"\1é\g<01>", "ab", "aéab"),
            ("(?x) b * # some", "-", "abb", "-a--"),
            // The matches behind the first ones are found by fewer steps.
            ("(?=(.))", r"\1", "abcdefghijklmnopqrstuvwxyz", "aabbccddeeffgghhiijjkkllmmnnooppqqrrssttuuvvwwxxyyzz"),
        ] {
            assert_eq!(
                String::from_utf8(renamed(expression, replacement, path.as_bytes())).unwrap(),
                result,
                "{expression} {replacement} {path}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay() {
        assert_eq!(renamed("a", "b", b"/a\xff\xe4/a"), b"/b\xff\xe4/b");
    }

    #[test]
    fn what_is_not_understood_is_refused_and_what_does_not_end_stays() {
        for (expression, replacement) in
            [("(", ""), ("a", r"\1"), ("a", r"\g<x>"), ("a", "\\"), ("a", r"\g"), ("a", r"\q")].into_iter().chain(
                [r"\400", r"\118", r"\19", r"\g<+1>", r"\g< 1>", r"\g<1_0>", r"\g<>", r"\g<²>"].map(|end| ("(a)", end)),
            )
        {
            assert!(Rename::new(expression, replacement).is_err(), "{expression} {replacement}");
        }
        let path = [b"a".repeat(5000), b"!".to_vec()].concat();
        assert_eq!(renamed(r"(a+)+\1b", "x", &path), path);
    }

    /// Each match alone takes far less than the steps that one may take: all together would take an hour.
    #[test]
    fn the_steps_of_all_matches_together_are_bounded() {
        let path = b"/".repeat(64 << 10);
        assert_eq!(renamed("(?=(?:(?=/)/)*x|/)/", "-", &path), path);
        assert_eq!(renamed("(?=/)/", "-", &path), b"-".repeat(64 << 10));
    }
}
