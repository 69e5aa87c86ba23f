//! Patterns for names and paths: globs as fnmatch(3) has them, and the syntaxes of regular expressions that find(1)
//! knows.
//!
//! All become regular expressions of the `regex` crate, whose searches take time in proportion to the text. The
//! commonest globs are compared without one.

use std::fmt::Write as _;

use regex::bytes::{Regex, RegexBuilder};

/// Memory that one compiled expression may take: `a{1000}{1000}` is refused.
const MOST_MEMORY: usize = 10 << 20;

/// A glob, or a regular expression for the whole text.
#[derive(Debug)]
pub(super) enum Pattern {
    /// The text itself.
    Exact(Vec<u8>),
    /// `*TEXT`
    Suffix(Vec<u8>),
    /// `TEXT*`
    Prefix(Vec<u8>),
    /// For what is UTF-8, and for what is not: of that, one byte is one character.
    Regex(Box<(Regex, Regex)>),
}

/// How a regular expression is written (`-regextype`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Groups are `\(` and `\)`, an alternative is `\|`; braces are characters.
    Emacs,
    /// The same with `\{2,3\}`; `+` and `?` are characters.
    Basic,
    /// Groups, alternatives, braces, `+` and `?` need no backslash.
    Extended,
}

impl Syntax {
    /// The names of GNU find.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"emacs" | b"findutils-default" => Self::Emacs,
            b"posix-basic" | b"posix-minimal-basic" | b"ed" | b"sed" | b"grep" => Self::Basic,
            b"posix-extended" | b"posix-egrep" | b"egrep" | b"awk" | b"gnu-awk" | b"posix-awk" => Self::Extended,
            _ => return None,
        })
    }

    pub(super) const NAMES: &'static str = "emacs, posix-basic, posix-extended";
}

impl Pattern {
    /// `*` and `?` stand for slashes and leading dots, too, as for find.
    pub(super) fn glob(glob: &[u8], ignores_case: bool) -> Result<Self, String> {
        let is_plain = |text: &[u8]| !ignores_case && !text.iter().any(|byte| b"*?[\\".contains(byte));
        match glob {
            text if is_plain(text) => return Ok(Self::Exact(text.to_vec())),
            [b'*', text @ ..] if is_plain(text) => return Ok(Self::Suffix(text.to_vec())),
            [text @ .., b'*'] if is_plain(text) => return Ok(Self::Prefix(text.to_vec())),
            _ => {}
        }
        Self::compiled(ignores_case, |is_text| of_glob(glob, is_text))
    }

    pub(super) fn regex(text: &[u8], syntax: Syntax, ignores_case: bool) -> Result<Self, String> {
        // Mistakes are told of once, and in what was typed.
        let translated = of_regex(text, syntax, true)?;
        let bytes = of_regex(text, syntax, false)?;
        Self::compiled(ignores_case, |is_text| if is_text { translated.clone() } else { bytes.clone() })
    }

    fn compiled(ignores_case: bool, translate: impl Fn(bool) -> String) -> Result<Self, String> {
        let compile = |is_text: bool| {
            RegexBuilder::new(&format!("^(?:{})$", translate(is_text)))
                .unicode(is_text)
                .case_insensitive(ignores_case)
                .dot_matches_new_line(true)
                .size_limit(MOST_MEMORY)
                .build()
                .map_err(|error| match error {
                    regex::Error::CompiledTooBig(_) => "it takes too much memory".to_owned(),
                    _ => "it is no regular expression that is understood".to_owned(),
                })
        };
        Ok(Self::Regex(Box::new((compile(true)?, compile(false)?))))
    }

    pub(super) fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Exact(all) => text == all.as_slice(),
            Self::Suffix(end) => text.ends_with(end),
            Self::Prefix(start) => text.starts_with(start),
            Self::Regex(regexes) => {
                let regex = if std::str::from_utf8(text).is_ok() { &regexes.0 } else { &regexes.1 };
                regex.is_match(text)
            }
        }
    }
}

/// Adds what stands for itself, one character or, if it is no text, one byte.
fn literal(out: &mut String, text: &[u8], is_text: bool) {
    match std::str::from_utf8(text) {
        Ok(text) if is_text || text.is_ascii() => out.push_str(&regex::escape(text)),
        _ => {
            for byte in text {
                let _ = write!(out, "(?-u:\\x{byte:02x})");
            }
        }
    }
}

/// The first character of `text`: one byte, if it begins with none or is read as bytes.
fn first(text: &[u8], is_text: bool) -> &[u8] {
    let length = match text.first() {
        Some(byte) if is_text && *byte >= 0xC0 => {
            (2..=4).find(|&length| text.get(..length).is_some_and(|character| std::str::from_utf8(character).is_ok()))
        }
        _ => None,
    };
    &text[..length.unwrap_or(1).min(text.len())]
}

fn of_glob(glob: &[u8], is_text: bool) -> String {
    let mut out = String::new();
    let mut rest = glob;
    while let [byte, behind @ ..] = rest {
        match byte {
            b'*' => out.push_str(".*"),
            b'?' => out.push('.'),
            b'[' => {
                if let Some((set, after)) = brackets(behind, is_text, true) {
                    out.push_str(&set);
                    rest = after;
                    continue;
                }
                literal(&mut out, b"[", is_text);
            }
            b'\\' if !behind.is_empty() => {
                let character = first(behind, is_text);
                literal(&mut out, character, is_text);
                rest = &behind[character.len()..];
                continue;
            }
            _ => {
                let character = first(rest, is_text);
                literal(&mut out, character, is_text);
                rest = &rest[character.len()..];
                continue;
            }
        }
        rest = behind;
    }
    out
}

/// What stands between brackets.
enum Item<'a> {
    /// A character, which may begin a range.
    Character(&'a [u8]),
    /// One that begins none: `[=a=]`.
    Alone(&'a [u8]),
    /// `[:digit:]`
    Class(&'a str),
}

/// What comes next between brackets, and what comes behind it. `None` at the end of the text.
fn item(text: &[u8], is_text: bool, has_backslash: bool) -> Option<(Item<'_>, &[u8])> {
    let single = |text| {
        let character = first(text, is_text);
        (character, &text[character.len()..])
    };
    if let [b'[', b':', behind @ ..] = text
        && let Some(end) = behind.windows(2).position(|two| two == b":]")
        && let Ok(name) = std::str::from_utf8(&behind[..end])
    {
        return Some((Item::Class(name), &behind[end + 2..]));
    }
    if let [b'[', mark @ (b'.' | b'='), behind @ ..] = text
        && let (character, [end, b']', after @ ..]) = single(behind)
        && !character.is_empty()
        && end == mark
    {
        return Some((if *mark == b'.' { Item::Character(character) } else { Item::Alone(character) }, after));
    }
    let (character, after) = match text {
        [] => return None,
        [b'\\', behind @ ..] if has_backslash && !behind.is_empty() => single(behind),
        text => single(text),
    };
    Some((Item::Character(character), after))
}

/// The last character of a range, and what comes behind it. No class ends one.
fn range_end(text: &[u8], is_text: bool, has_backslash: bool) -> Option<(&[u8], &[u8])> {
    match item(text, is_text, has_backslash)? {
        (Item::Character(character), after) => Some((character, after)),
        _ => Some(text.split_at(1)),
    }
}

/// What stands behind a `[`, as a set of the `regex` crate, and what comes behind its end. `None` if it has no end.
/// `is_glob`: a backslash takes away what a character means, and a range that goes backwards has nothing in it, where a
/// regular expression is wrong.
fn brackets(text: &[u8], is_text: bool, is_glob: bool) -> Option<(String, &[u8])> {
    let mut out = String::from("[");
    let mut rest = text;
    if let [b'!' | b'^', behind @ ..] = rest {
        out.push('^');
        rest = behind;
    }
    let (start, mut is_first) = (out.len(), true);
    loop {
        if let ([b']', behind @ ..], false) = (rest, is_first) {
            if out.len() == start {
                // Nothing is both.
                out.push_str("a&&b");
            }
            out.push(']');
            return Some((out, behind));
        }
        is_first = false;
        let (found, after) = item(rest, is_text, is_glob)?;
        rest = after;
        match (found, after) {
            (Item::Class(name), _) => {
                let _ = write!(out, "[:{name}:]");
            }
            // Between two characters it says that those between them are meant.
            (Item::Character(from), [b'-', behind @ ..]) if !matches!(behind, [b']', ..] | []) => {
                let (to, after) = range_end(behind, is_text, is_glob)?;
                rest = after;
                if !is_glob || place_of(from) <= place_of(to) {
                    member(&mut out, from, is_text);
                    out.push('-');
                    member(&mut out, to, is_text);
                }
            }
            (Item::Character(character) | Item::Alone(character), _) => member(&mut out, character, is_text),
        }
    }
}

/// Where a character is among all.
fn place_of(character: &[u8]) -> u32 {
    let text = std::str::from_utf8(character).ok().and_then(|text| text.chars().next());
    text.map_or_else(|| character.first().copied().unwrap_or_default().into(), u32::from)
}

/// A character in a set.
fn member(out: &mut String, character: &[u8], is_text: bool) {
    match (std::str::from_utf8(character), character) {
        (Ok(text), _) if is_text => {
            if let [byte] = character
                && !byte.is_ascii_alphanumeric()
            {
                let _ = write!(out, "\\x{byte:02x}");
            } else {
                out.push_str(text);
            }
        }
        (_, bytes) => {
            for byte in bytes {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
}

/// What an expression in one of find's syntaxes is in that of the `regex` crate.
fn of_regex(text: &[u8], syntax: Syntax, is_text: bool) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    // True where a `*` would have nothing to repeat, and is a character.
    let mut is_start = true;
    while let [byte, behind @ ..] = rest {
        let (token, escaped) = match (byte, behind) {
            (b'\\', []) => return Err("it ends with a backslash".into()),
            (b'\\', [next, ..]) => (*next, true),
            (byte, _) => (*byte, false),
        };
        let after = if escaped { &behind[1..] } else { behind };
        let is_operator = match token {
            b'(' | b')' | b'|' => escaped != (syntax == Syntax::Extended),
            b'{' | b'}' => match syntax {
                Syntax::Emacs => false,
                Syntax::Basic => escaped,
                Syntax::Extended => !escaped,
            },
            b'+' | b'?' => match syntax {
                Syntax::Basic => escaped,
                _ => !escaped,
            },
            b'*' => !(escaped || is_start && syntax != Syntax::Extended),
            b'.' => !escaped,
            // Elsewhere they are characters there.
            b'^' => !escaped && (is_start || syntax == Syntax::Extended),
            b'$' => {
                let is_end = matches!(after, [] | [b'\\', b')' | b'|', ..]);
                !escaped && (is_end || syntax == Syntax::Extended)
            }
            _ => false,
        };
        let was_start = std::mem::replace(&mut is_start, matches!(token, b'(' | b'|' | b'^') && is_operator);
        if is_operator {
            if was_start && matches!(token, b'+' | b'?') && syntax != Syntax::Extended {
                literal(&mut out, &[token], is_text);
            } else {
                match token {
                    // Behind another operator `?` would say something else.
                    b'?' => out.push_str("{0,1}"),
                    b'.' if syntax == Syntax::Emacs => out.push_str("[^\n]"),
                    token => out.push(char::from(token)),
                }
            }
            rest = after;
        } else if token == b'[' && !escaped {
            let Some((set, end)) = brackets(after, is_text, false) else {
                return Err("a [ in it has no ]".into());
            };
            out.push_str(&set);
            rest = end;
        } else if escaped && token.is_ascii_digit() && token != b'0' {
            return Err(format!("\\{} refers to a group, which is not possible here", char::from(token)));
        } else if escaped && matches!(token, b'w' | b'W' | b's' | b'S' | b'b' | b'B') {
            out.push('\\');
            out.push(char::from(token));
            rest = after;
        } else if escaped && matches!(token, b'<' | b'>' | b'`' | b'\'') {
            out.push_str(match token {
                b'<' => "\\b{start}",
                b'>' => "\\b{end}",
                b'`' => "\\A",
                _ => "\\z",
            });
            rest = after;
        } else {
            let character = if escaped { first(behind, is_text) } else { first(rest, is_text) };
            literal(&mut out, character, is_text);
            rest = if escaped { &behind[character.len()..] } else { &rest[character.len()..] };
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_find_has_them() {
        for (glob, text, matches) in [
            ("*", ".hidden", true),
            ("*.c", "a/b.c", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a?c", "a\u{e4}c", true),
            ("a??c", "a\u{e4}c", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[+--x]", ",", true),
            ("[+--x]", "x", true),
            ("[+--x]", "y", false),
            ("[[:digit:]]*", "7up", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("[x", "[x", true),
            ("a.c", "abc", false),
            ("[\\]]", "]", true),
            ("[a-c-e]", "-", true),
            ("[a-c-e]", "d", false),
            ("[z-a]", "m", false),
            ("[!z-a]", "m", true),
            ("[z-ax]", "x", true),
            ("[\u{e4}-a]", "b", false),
            ("[a-\\c]", "b", true),
            ("[a-[:digit:]]", "5", false),
            ("[a-[:digit:]]", "d]", true),
            ("[[:digit:]-z]", "-", true),
            ("[[:digit:]-z]", "y", false),
            ("[[=a=]x]", "a", true),
            ("[[=a=]x]", "=", false),
            ("[[=a=]-c]", "b", false),
            ("[[.-.]]", "-", true),
            ("[[.-.]]", ".", false),
            ("[[.a.]-[.c.]]", "b", true),
            ("[[:digit]", "d", true),
            ("[[=a]", "=", true),
        ] {
            let pattern = Pattern::glob(glob.as_bytes(), false).unwrap();
            assert_eq!(pattern.matches(text.as_bytes()), matches, "{glob} {text}");
        }
        assert!(Pattern::glob(b"*.TXT", true).unwrap().matches(b"a.txt"));
        assert!(Pattern::glob(b"caf?", false).unwrap().matches(b"caf\xe9"));
        assert!(Pattern::glob(b"caf\xe9*x", false).unwrap().matches(b"caf\xe9 x"));
        assert!(!Pattern::glob("caf\u{e9}*x".as_bytes(), false).unwrap().matches(b"caf\xe9 x"));
    }

    #[test]
    fn regular_expressions_of_each_syntax() {
        use Syntax::{Basic, Emacs, Extended};
        for (text, syntax, name, matches) in [
            (".*\\.c", Emacs, "./a.c", true),
            ("\\(a\\|b\\)c", Emacs, "bc", true),
            ("(a|b)c", Emacs, "(a|b)c", true),
            ("a+", Emacs, "aaa", true),
            ("a{2}", Emacs, "a{2}", true),
            ("*a", Emacs, "*a", true),
            ("a+", Basic, "a+", true),
            ("a\\+", Basic, "aa", true),
            ("a\\{2\\}", Basic, "aa", true),
            ("(a|b){2}", Extended, "ab", true),
            ("\\(a\\)", Extended, "(a)", true),
            ("a", Extended, "ba", false),
            ("[\\]", Extended, "\\", true),
            (".*/a$b", Emacs, "./a$b", true),
            ("x^y\\|^z", Basic, "x^y", true),
            ("\\(a$\\|^b\\)", Basic, "b", true),
            ("a$b", Extended, "a$b", false),
            ("a.b", Emacs, "a\nb", false),
            ("a.b", Basic, "a\nb", true),
            ("a+?b", Emacs, "b", true),
            ("[^/]*x", Extended, "a/x", false),
            ("\u{e4}.", Extended, "\u{e4}\u{f6}", true),
            ("[[=a=][.-.]]", Basic, "-", true),
        ] {
            let pattern = Pattern::regex(text.as_bytes(), syntax, false).unwrap();
            assert_eq!(pattern.matches(name.as_bytes()), matches, "{text} {syntax:?} {name}");
        }
        for text in ["\\(a\\)\\1", "[a", "[z-a]", "a\\", "\\(a"] {
            assert!(Pattern::regex(text.as_bytes(), Emacs, false).is_err(), "{text}");
        }
        assert!(Pattern::regex(b"(a{1000}){1000}", Extended, false).is_err());
    }
}
