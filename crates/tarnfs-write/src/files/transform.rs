//! `--transform`: sed's `s/…/…/`, as GNU tar takes it.

use std::fmt;

use fancy_regex::{Captures, Regex, RegexBuilder};

/// A replacement of parts of a path.
#[derive(Debug, Clone)]
pub struct Transform {
    regex: Regex,
    replacement: Vec<Piece>,
    /// Replace this occurrence, the first being 1, and with `all` those behind it.
    first: usize,
    all: bool,
    /// Where it holds.
    members: bool,
    symlinks: bool,
}

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Member,
    Symlink,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Group(usize),
    Case(Case),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Case {
    #[default]
    AsIs,
    Upper,
    Lower,
    NextUpper,
    NextLower,
}

/// Steps that one replacement may take.
const MOST_STEPS: usize = 1_000_000;

/// Why an expression cannot be used.
#[derive(Debug)]
pub struct BadTransform(String);

impl fmt::Display for BadTransform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for BadTransform {}

fn bad<T>(what: impl Into<String>) -> Result<T, BadTransform> {
    Err(BadTransform(what.into()))
}

impl Transform {
    /// All of `s/…/…/FLAGS;s/…/…/FLAGS`.
    pub fn parse(text: &str) -> Result<Vec<Self>, BadTransform> {
        let mut rest = text;
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (one, behind) = Self::one(rest)?;
            all.push(one);
            rest = behind.trim_start_matches(';');
        }
        Ok(all)
    }

    fn one(text: &str) -> Result<(Self, &str), BadTransform> {
        let behind = text.strip_prefix('s').ok_or_else(|| BadTransform("give s/OLD/NEW/".to_owned()))?;
        let Some(mark) = behind.chars().next().filter(|mark| *mark != '\\') else { return bad("give s/OLD/NEW/") };
        let behind = &behind[mark.len_utf8()..];
        let (pattern, behind) = until(behind, mark)?;
        let (replacement, behind) = until(behind, mark)?;
        let end = behind.find(';').unwrap_or(behind.len());
        let (flags, behind) = behind.split_at(end);
        let (mut first, mut all, mut is_extended, mut ignores_case) = (1, false, false, false);
        let (mut members, mut symlinks) = (true, true);
        let mut number = String::new();
        for flag in flags.chars() {
            match flag {
                'g' => all = true,
                'i' => ignores_case = true,
                'x' => is_extended = true,
                'r' => members = true,
                'R' => members = false,
                's' => symlinks = true,
                'S' => symlinks = false,
                // A hard link has the name that the member has got.
                'h' | 'H' => {}
                '0'..='9' => number.push(flag),
                _ => return bad(format!("{flag} is no flag of s/OLD/NEW/")),
            }
        }
        if !number.is_empty() {
            first = match number.parse() {
                Ok(number @ 1..) => number,
                _ => return bad(format!("{number} is no occurrence")),
            };
        }
        let pattern = if is_extended { extended(&pattern) } else { basic(&pattern) };
        // A dot stands for the end of a line, too.
        let pattern = if ignores_case { format!("(?si:{pattern})") } else { format!("(?s:{pattern})") };
        let regex = RegexBuilder::new(&pattern).backtrack_limit(MOST_STEPS).build();
        let regex = regex.map_err(|error| BadTransform(error.to_string()))?;
        let replacement = pieces(&replacement)?;
        let groups = regex.captures_len();
        if let Some(Piece::Group(group)) =
            replacement.iter().find(|piece| matches!(piece, Piece::Group(group) if *group >= groups))
        {
            return bad(format!("there is no group \\{group}"));
        }
        Ok((Self { regex, replacement, first, all, members, symlinks }, behind))
    }

    /// What becomes of `name`.
    pub(super) fn of(&self, name: &[u8], role: Role) -> Vec<u8> {
        let holds = match role {
            Role::Member => self.members,
            Role::Symlink => self.symlinks,
        };
        if !holds {
            return name.to_vec();
        }
        if let Ok(text) = std::str::from_utf8(name) {
            return self.replaced(text).map_or_else(|| name.to_vec(), String::into_bytes);
        }
        // Bytes as characters of Latin-1. What the replacement adds beyond them has no byte.
        let text: String = name.iter().map(|&byte| char::from(byte)).collect();
        let replaced = self.replaced(&text);
        let bytes = replaced.and_then(|text| text.chars().map(|one| u8::try_from(one).ok()).collect());
        bytes.unwrap_or_else(|| name.to_vec())
    }

    /// `None` if nothing is replaced, also where that would take too long.
    fn replaced(&self, text: &str) -> Option<String> {
        let mut new = String::new();
        let (mut from, mut has_changed) = (0, false);
        for (number, found) in self.regex.captures_iter(text).enumerate() {
            let found = found.ok()?;
            let whole = found.get(0)?;
            let is_wanted = if self.all { number + 1 >= self.first } else { number + 1 == self.first };
            if !is_wanted {
                continue;
            }
            new.push_str(&text[from..whole.start()]);
            self.put(&mut new, &found);
            from = whole.end();
            has_changed = true;
            if !self.all {
                break;
            }
        }
        new.push_str(&text[from..]);
        has_changed.then_some(new)
    }

    fn put(&self, new: &mut String, found: &Captures<'_>) {
        let (mut case, mut next) = (Case::AsIs, None);
        for piece in &self.replacement {
            let text = match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Group(group) => found.get(*group).map_or("", |group| group.as_str()),
                Piece::Case(one @ (Case::NextUpper | Case::NextLower)) => {
                    next = Some(*one);
                    continue;
                }
                Piece::Case(all) => {
                    (case, next) = (*all, None);
                    continue;
                }
            };
            for letter in text.chars() {
                match next.take().unwrap_or(case) {
                    Case::Upper | Case::NextUpper => new.extend(letter.to_uppercase()),
                    Case::Lower | Case::NextLower => new.extend(letter.to_lowercase()),
                    Case::AsIs => new.push(letter),
                }
            }
        }
    }
}

/// What stands before the next `mark` that is not escaped, and what behind it.
fn until(text: &str, mark: char) -> Result<(String, &str), BadTransform> {
    let mut part = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        if letter == mark {
            return Ok((part, &text[at + letter.len_utf8()..]));
        }
        if letter == '\\' {
            match letters.next() {
                Some((_, escaped)) if escaped == mark => part.push(mark),
                Some((_, escaped)) => part.extend(['\\', escaped]),
                None => break,
            }
        } else {
            part.push(letter);
        }
    }
    bad(format!("a {mark} is missing: give s{mark}OLD{mark}NEW{mark}"))
}

/// A basic regular expression of POSIX, with what GNU adds, as the library takes it.
fn basic(pattern: &str) -> String {
    let mut regex = String::new();
    let mut letters = pattern.chars().peekable();
    // A star at a start stands for itself, and so does a caret elsewhere.
    let mut is_start = true;
    while let Some(letter) = letters.next() {
        let was_start = std::mem::replace(&mut is_start, false);
        match letter {
            '\\' => match letters.next() {
                Some(special @ ('(' | ')' | '{' | '}' | '|' | '+' | '?')) => {
                    regex.push(special);
                    is_start = matches!(special, '(' | '|');
                }
                Some('<') => regex.push_str(r"\b(?=\w)"),
                Some('>') => regex.push_str(r"\b(?<=\w)"),
                Some(other) => regex.extend(['\\', other]),
                None => regex.push_str(r"\\"),
            },
            '(' | ')' | '{' | '}' | '|' | '+' | '?' => regex.extend(['\\', letter]),
            '*' if was_start => regex.push_str(r"\*"),
            '^' if !was_start => regex.push_str(r"\^"),
            '^' => {
                regex.push('^');
                is_start = true;
            }
            '$' if letters.peek().is_some_and(|next| *next != '\\') => regex.push_str(r"\$"),
            '[' => set(&mut regex, &mut letters),
            other => regex.push(other),
        }
    }
    regex
}

/// An extended one. Only sets are written differently.
fn extended(pattern: &str) -> String {
    let mut regex = String::new();
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '[' => set(&mut regex, &mut letters),
            '\\' => {
                regex.push('\\');
                regex.extend(letters.next());
            }
            other => regex.push(other),
        }
    }
    regex
}

/// A set, behind its bracket: a backslash stands for itself in it, and so does a bracket that opens no class.
fn set(regex: &mut String, letters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    regex.push('[');
    regex.extend(letters.next_if_eq(&'^'));
    if letters.next_if_eq(&']').is_some() {
        regex.push_str(r"\]");
    }
    while let Some(letter) = letters.next() {
        match letter {
            ']' => {
                regex.push(']');
                return;
            }
            '[' if letters.peek() == Some(&':') => {
                regex.push('[');
                for letter in letters.by_ref() {
                    regex.push(letter);
                    if letter == ']' {
                        break;
                    }
                }
            }
            '[' | '\\' | '&' | '~' => regex.extend(['\\', letter]),
            other => regex.push(other),
        }
    }
}

fn pieces(replacement: &str) -> Result<Vec<Piece>, BadTransform> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut letters = replacement.chars();
    while let Some(letter) = letters.next() {
        let piece = match letter {
            '&' => Piece::Group(0),
            '\\' => match letters.next() {
                Some(digit @ '0'..='9') => Piece::Group(digit as usize - '0' as usize),
                Some('U') => Piece::Case(Case::Upper),
                Some('L') => Piece::Case(Case::Lower),
                Some('E') => Piece::Case(Case::AsIs),
                Some('u') => Piece::Case(Case::NextUpper),
                Some('l') => Piece::Case(Case::NextLower),
                Some('n') => {
                    text.push('\n');
                    continue;
                }
                Some(other) => {
                    text.push(other);
                    continue;
                }
                None => return bad("the replacement ends with a backslash"),
            },
            other => {
                text.push(other);
                continue;
            }
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(piece);
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(expression: &str, name: &[u8], role: Role) -> Vec<u8> {
        let all = Transform::parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        all.iter().fold(name.to_vec(), |name, one| one.of(&name, role))
    }

    #[test]
    fn paths_change_as_sed_changes_them() {
        for (expression, name, expected) in [
            ("s/a/b/", "banana", "bbnana"),
            ("s/a/b/g", "banana", "bbnbnb"),
            ("s/a/b/2", "banana", "banbna"),
            ("s/a/b/2g", "banana", "banbnb"),
            ("s,^,prefix/,", "x/y", "prefix/x/y"),
            ("s,^usr/,,", "usr/bin", "bin"),
            (r"s/\(a\)\(n\)/\2\1/", "banana", "bnaana"),
            (r"s/(a)(n)/\2\1/x", "banana", "bnaana"),
            ("s/(a)/b/", "x(a)", "xb"),
            (r"s/a\+/b/", "caat", "cbt"),
            ("s/a+/b/", "a+", "b"),
            ("s/A/b/i", "cat", "cbt"),
            (r"s/.*/\U&/", "cat", "CAT"),
            (r"s/\(.\)\(.*\)/\u\1\2/", "cat", "Cat"),
            (r"s/c\(.\)/\U\1\Eb/", "cat", "Abt"),
            (r"s/\//-/g", "a/b/c", "a-b-c"),
            ("s/a/1/;s/1/2/", "cat", "c2t"),
            ("s/[]x]/-/g", "a]x", "a--"),
            ("s,[^/]*$,new,", "a/b", "a/new"),
            (r"s/[\/]/-/", r"a\b", "a\\b"),
            ("s/*/star/", "a*b", "astarb"),
            ("s/x/y/", "cat", "cat"),
            (r"s/a\|t/-/g", "cat", "c--"),
            (r"s/a/&&/", "cat", "caat"),
            ("s/a.*/x/", "cat\nflap", "cx"),
        ] {
            let new = changed(expression, name.as_bytes(), Role::Member);
            assert_eq!(String::from_utf8_lossy(&new), expected, "{expression} {name}");
        }
        assert_eq!(changed("s/a/b/", b"\xffa", Role::Member), b"\xffb");
        assert_eq!(changed("s/a/b/S", b"a", Role::Symlink), b"a");
        assert_eq!(changed("s/a/b/R", b"a", Role::Member), b"a");
        assert_eq!(changed("s/a/b/RH", b"a", Role::Symlink), b"b");
        for bad in ["", "x", "s/a", "s/a/b", "s/a/b/q", r"s/a/\1/", "s/[/x/", "s/a/b/0", "y/a/b/"] {
            assert!(bad.is_empty() || Transform::parse(bad).is_err(), "{bad}");
        }
    }
}
