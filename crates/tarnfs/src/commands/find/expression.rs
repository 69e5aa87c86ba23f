//! What find(1) calls an expression: tests and actions, read from the words of a command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tarnfs_tree::{Error, Node, Time, Tree, path};
use tarnfs_write::files;

use super::mode::ModeTest;
use super::pattern::{Pattern, Syntax};
use super::printf::Format;
use crate::typos;

/// How deep parentheses and negations may lie in each other.
const MOST_DEPTH: usize = 200;

/// A test, an action, or several of them.
#[derive(Debug)]
pub(super) enum Expression {
    /// All of them, until one is false.
    And(Vec<Self>),
    /// All of them, until one is true.
    Or(Vec<Self>),
    /// All of them; the last one counts. (`,`)
    List(Vec<Self>),
    Not(Box<Self>),
    Test(Test),
}

/// A number and how it is compared: `+N`, `-N` or `N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    More(u64),
    Less(u64),
    Equal(u64),
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str| {
            // `parse` takes a sign, too.
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        match text.as_bytes().first()? {
            b'+' => number(&text[1..]).map(Self::More),
            b'-' => number(&text[1..]).map(Self::Less),
            _ => number(text).map(Self::Equal),
        }
    }

    pub(super) fn holds(self, value: u64) -> bool {
        match self {
            Self::More(than) => value > than,
            Self::Less(than) => value < than,
            Self::Equal(to) => value == to,
        }
    }
}

/// Which time of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Modified,
    Read,
    Changed,
}

/// Owner or group.
#[derive(Debug)]
pub(super) enum Owner {
    Number(u32),
    Name(Arc<Sought>),
}

/// A name of a user or group.
#[derive(Debug)]
pub(super) struct Sought {
    /// `-user`
    of: Vec<u8>,
    pub(super) name: Vec<u8>,
    is_known_here: bool,
    /// An entry was asked for it, and one has it.
    asked: AtomicBool,
    met: AtomicBool,
}

impl Sought {
    /// Whether an entry has that name, by its owner or group.
    pub(super) fn is(&self, owner: &[u8]) -> bool {
        let is_it = self.name == owner;
        self.asked.store(true, Ordering::Relaxed);
        if is_it {
            self.met.store(true, Ordering::Relaxed);
        }
        is_it
    }

    /// What is said if nobody is called so: it was probably mistyped.
    pub(super) fn never_met(&self) -> Option<String> {
        let is_missing = self.asked.load(Ordering::Relaxed) && !self.met.load(Ordering::Relaxed) && !self.is_known_here;
        let (of, name) = (shown(&self.of), shown(&self.name));
        is_missing.then(|| format!("{of} {name}: nobody is called so among the entries that were looked at"))
    }
}

#[derive(Debug)]
pub(super) enum Test {
    True,
    False,
    Name(Pattern),
    Path(Pattern),
    Target(Pattern),
    /// Letters.
    Type(Vec<u8>),
    TypeBehind(Vec<u8>),
    /// In units of so many bytes, rounded up.
    Size(Number, u64),
    Empty,
    /// Later than.
    Newer(Which, Time),
    /// In units of so many seconds before `since`, rounded down for days and up for minutes.
    Age {
        which: Which,
        number: Number,
        unit: u64,
        since: Time,
    },
    User(Owner),
    Group(Owner),
    Uid(Number),
    Gid(Number),
    Mode(ModeTest),
    Executable,
    Links(Number),
    Number(Number),
    Same(Node),
    Prune,
    Quit,
    Print,
    Print0,
    Printf(Format),
    Ls,
}

impl Test {
    /// True for what prints something, so that no `-print` is added.
    fn is_action(&self) -> bool {
        matches!(self, Self::Print | Self::Print0 | Self::Printf(_) | Self::Ls)
    }
}

/// All that the words say.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) expression: Expression,
    pub(super) least_depth: usize,
    pub(super) most_depth: usize,
    /// What is in a folder comes before the folder.
    pub(super) depth_first: bool,
    pub(super) sought: Vec<Arc<Sought>>,
}

/// True if a word begins an expression and is no path. Options of tarnfs have one letter or two dashes.
pub(crate) fn begins_expression(word: &[u8]) -> bool {
    match word {
        b"(" | b")" | b"!" | b"," | b"-a" | b"-o" => true,
        // Words of three letters and more that nobody knows are mistyped tests; so is what begins as one does.
        [b'-', name @ ..] => {
            is_known(name.split(|&byte| byte == b'-').next().unwrap_or_default())
                || name.len() > 2 && name.iter().all(u8::is_ascii_alphabetic)
        }
        _ => false,
    }
}

/// Words of GNU find; those that are refused, too.
const WORDS: [&str; 73] = [
    "amin",
    "and",
    "anewer",
    "atime",
    "cmin",
    "cnewer",
    "ctime",
    "daystart",
    "delete",
    "depth",
    "empty",
    "exec",
    "execdir",
    "executable",
    "false",
    "fls",
    "follow",
    "fprint",
    "fprint0",
    "fprintf",
    "fstype",
    "gid",
    "group",
    "ilname",
    "iname",
    "inum",
    "ipath",
    "iregex",
    "iwholename",
    "links",
    "lname",
    "ls",
    "maxdepth",
    "mindepth",
    "mmin",
    "mount",
    "mtime",
    "name",
    "newer",
    "nogroup",
    "noleaf",
    "not",
    "nouser",
    "nowarn",
    "ok",
    "okdir",
    "or",
    "path",
    "perm",
    "print",
    "print0",
    "printf",
    "prune",
    "quit",
    "readable",
    "regex",
    "regextype",
    "samefile",
    "size",
    "true",
    "type",
    "uid",
    "used",
    "user",
    "warn",
    "wholename",
    "writable",
    "xattr",
    "xdev",
    "xtype",
    "ignore_readdir_race",
    "noignore_readdir_race",
    "context",
];

/// Words of GNU find that say nothing of an entry of an archive, or are refused for another reason.
const REFUSED: [&str; 18] = [
    "context", "delete", "exec", "execdir", "fls", "follow", "fprint", "fprint0", "fprintf", "fstype", "nogroup",
    "nouser", "ok", "okdir", "readable", "used", "writable", "xattr",
];

/// The words of an expression that there are, for completions.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    WORDS.into_iter().filter(|word| !REFUSED.contains(word))
}

fn is_known(word: &[u8]) -> bool {
    let is_newer = word.len() == 7 && word.starts_with(b"newer");
    is_newer || WORDS.iter().any(|known| known.as_bytes() == word)
}

/// Reads the words of an expression. `-newer` and `-samefile` look into the `tree`.
pub(super) fn parse(words: &[OsString], tree: &dyn Tree) -> Result<Query, String> {
    let now = Zoned::now();
    let mut parser = Parser {
        words,
        at: 0,
        tree,
        since: now.clone(),
        now,
        syntax: Syntax::Emacs,
        depth: 0,
        has_action: false,
        least_depth: 0,
        most_depth: usize::MAX,
        depth_first: false,
        sought: Vec::new(),
    };
    let expression = if words.is_empty() { Expression::Test(Test::True) } else { parser.list()? };
    if let Some(word) = parser.peek() {
        return Err(match word {
            b")" => "there is a ) without a ( before it".into(),
            word => format!("{}: is no test of find; paths stand before the expression", shown(word)),
        });
    }
    let Parser { has_action, least_depth, most_depth, depth_first, sought, .. } = parser;
    let expression =
        if has_action { expression } else { Expression::And(vec![expression, Expression::Test(Test::Print)]) };
    Ok(Query { expression, least_depth, most_depth, depth_first, sought })
}

fn shown(word: &[u8]) -> String {
    crate::terminal::escaped(word)
}

struct Parser<'a> {
    words: &'a [OsString],
    at: usize,
    tree: &'a dyn Tree,
    now: Zoned,
    /// What ages are counted from.
    since: Zoned,
    syntax: Syntax,
    depth: usize,
    has_action: bool,
    least_depth: usize,
    most_depth: usize,
    depth_first: bool,
    sought: Vec<Arc<Sought>>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a [u8]> {
        self.words.get(self.at).map(|word| word.as_bytes())
    }

    fn list(&mut self) -> Result<Expression, String> {
        self.separated(&[b","], Self::either, Expression::List)
    }

    fn either(&mut self) -> Result<Expression, String> {
        self.separated(&[b"-o", b"-or"], Self::both, Expression::Or)
    }

    fn separated(
        &mut self,
        by: &[&[u8]],
        next: fn(&mut Self) -> Result<Expression, String>,
        together: fn(Vec<Expression>) -> Expression,
    ) -> Result<Expression, String> {
        let first = next(self)?;
        let mut all = vec![first];
        while self.peek().is_some_and(|word| by.contains(&word)) {
            self.at += 1;
            all.push(next(self)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { together(all) })
    }

    fn both(&mut self) -> Result<Expression, String> {
        let mut all = vec![self.one()?];
        loop {
            match self.peek() {
                None | Some(b")" | b"," | b"-o" | b"-or") => break,
                Some(b"-a" | b"-and") => self.at += 1,
                Some(_) => {}
            }
            all.push(self.one()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::And(all) })
    }

    fn one(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(format!("there are more than {MOST_DEPTH} parentheses and negations in each other"));
        }
        let word = self.peek().ok_or("something is missing at the end of the expression")?;
        self.at += 1;
        let expression = match word {
            b"!" | b"-not" => Expression::Not(Box::new(self.one()?)),
            b"(" => {
                let inner = self.list()?;
                if self.peek() != Some(b")") {
                    return Err("a ( has no )".into());
                }
                self.at += 1;
                inner
            }
            b")" | b"," | b"-o" | b"-or" | b"-a" | b"-and" => {
                return Err(format!("there is nothing between {} and what stands before it", shown(word)));
            }
            word => {
                let test = self.test(word)?;
                self.has_action |= test.is_action();
                Expression::Test(test)
            }
        };
        self.depth -= 1;
        Ok(expression)
    }

    /// The word behind `of`.
    fn argument(&mut self, of: &[u8]) -> Result<&'a [u8], String> {
        let argument = self.peek().ok_or_else(|| format!("{} needs an argument", shown(of)))?;
        self.at += 1;
        Ok(argument)
    }

    fn text(&mut self, of: &[u8]) -> Result<&'a str, String> {
        let argument = self.argument(of)?;
        std::str::from_utf8(argument).map_err(|_| wrong(of, argument, "it is not UTF-8"))
    }

    fn number(&mut self, of: &[u8]) -> Result<Number, String> {
        let text = self.text(of)?;
        Number::parse(text).ok_or_else(|| wrong(of, text.as_bytes(), "a number is needed: N, +N or -N"))
    }

    fn depth_limit(&mut self, of: &[u8]) -> Result<usize, String> {
        let text = self.text(of)?;
        text.parse().map_err(|_| wrong(of, text.as_bytes(), "a number is needed"))
    }

    fn glob(&mut self, of: &[u8]) -> Result<Pattern, String> {
        let glob = self.argument(of)?;
        Pattern::glob(glob, of[1] == b'i').map_err(|what| wrong(of, glob, &what))
    }

    fn test(&mut self, word: &'a [u8]) -> Result<Test, String> {
        Ok(match word {
            b"-true" => Test::True,
            b"-false" => Test::False,
            b"-name" | b"-iname" => Test::Name(self.glob(word)?),
            b"-path" | b"-wholename" | b"-ipath" | b"-iwholename" => Test::Path(self.glob(word)?),
            b"-lname" | b"-ilname" => Test::Target(self.glob(word)?),
            b"-regex" | b"-iregex" => {
                let text = self.argument(word)?;
                let pattern = Pattern::regex(text, self.syntax, word == b"-iregex");
                Test::Path(pattern.map_err(|what| wrong(word, text, &what))?)
            }
            b"-regextype" => {
                let name = self.argument(word)?;
                let known = Syntax::named(name);
                self.syntax = known.ok_or_else(|| wrong(word, name, &format!("these are known: {}", Syntax::NAMES)))?;
                Test::True
            }
            b"-type" => Test::Type(self.types(word)?),
            b"-xtype" => Test::TypeBehind(self.types(word)?),
            b"-size" => self.size(word)?,
            b"-empty" => Test::Empty,
            b"-mtime" | b"-atime" | b"-ctime" | b"-mmin" | b"-amin" | b"-cmin" => Test::Age {
                which: which(word[1]).unwrap_or(Which::Modified),
                unit: if word.ends_with(b"min") { 60 } else { 86_400 },
                number: self.number(word)?,
                since: time_of(self.since.timestamp()),
            },
            b"-newer" => Test::Newer(Which::Modified, self.time_of_file(word, Which::Modified)?),
            b"-anewer" => Test::Newer(Which::Read, self.time_of_file(word, Which::Modified)?),
            b"-cnewer" => Test::Newer(Which::Changed, self.time_of_file(word, Which::Modified)?),
            [b'-', b'n', b'e', b'w', b'e', b'r', of, than] => {
                let unknown = || format!("{}: only a, c and m, and at the end t, are known", shown(word));
                let of = which(*of).ok_or_else(unknown)?;
                let than = match than {
                    b't' => self.date(word)?,
                    than => self.time_of_file(word, which(*than).ok_or_else(unknown)?)?,
                };
                Test::Newer(of, than)
            }
            b"-user" => Test::User(self.owner(word)?),
            b"-group" => Test::Group(self.owner(word)?),
            b"-uid" => Test::Uid(self.number(word)?),
            b"-gid" => Test::Gid(self.number(word)?),
            b"-links" => Test::Links(self.number(word)?),
            b"-inum" => Test::Number(self.number(word)?),
            b"-perm" => {
                let text = self.text(word)?;
                let mode = ModeTest::parse(text);
                Test::Mode(mode.ok_or_else(|| wrong(word, text.as_bytes(), "a mode is needed: 644, -u+w, /222"))?)
            }
            b"-executable" => Test::Executable,
            b"-samefile" => {
                let name = self.argument(word)?;
                let found =
                    path::find(self.tree, name, false).map_err(|error| wrong(word, name, &error.to_string()))?;
                Test::Same(found.node)
            }
            b"-maxdepth" => {
                self.most_depth = self.depth_limit(word)?;
                Test::True
            }
            b"-mindepth" => {
                self.least_depth = self.depth_limit(word)?;
                Test::True
            }
            b"-depth" => {
                self.depth_first = true;
                Test::True
            }
            b"-daystart" => {
                let midnight = self.now.start_of_day().and_then(|start| start.tomorrow());
                self.since = midnight.map_err(|error| format!("-daystart: {error}"))?;
                Test::True
            }
            // Nothing else is mounted inside of an archive, and nobody changes it.
            b"-xdev"
            | b"-mount"
            | b"-noleaf"
            | b"-warn"
            | b"-nowarn"
            | b"-ignore_readdir_race"
            | b"-noignore_readdir_race" => Test::True,
            b"-prune" => Test::Prune,
            b"-quit" => Test::Quit,
            b"-print" => Test::Print,
            b"-print0" => Test::Print0,
            b"-printf" => {
                let format = self.argument(word)?;
                Test::Printf(Format::parse(format).map_err(|what| wrong(word, format, &what))?)
            }
            b"-ls" => Test::Ls,
            b"-exec" | b"-execdir" | b"-ok" | b"-okdir" => {
                let what = "runs no programs: print the paths with -print0 and give them to `xargs -0`";
                return Err(format!("{}: tarnfs find {what}", shown(word)));
            }
            b"-delete" => return Err("-delete: tarnfs find changes no archive".into()),
            word if word.starts_with(b"--") => {
                // What is behind it may be a password.
                let option = word.split(|&byte| byte == b'=').next().unwrap_or_default();
                return Err(format!("{}: options stand before the archive, and tests behind it", shown(option)));
            }
            word if word.starts_with(b"-") => {
                let mut near = words().filter(|known| typos::is_near(&word[1..], known.as_bytes())).peekable();
                // 7z has a password right behind it.
                if near.peek().is_none() && word.starts_with(b"-p") {
                    let what = "a password is given with --password, before the archive";
                    return Err(format!("-p...: is no test that tarnfs find knows; {what}"));
                }
                let meant = near.next().map_or("; ".to_owned(), |known| format!("; did you mean -{known}? Or "));
                return Err(format!("{}: is no test that tarnfs find knows{meant}see tarnfs find --help", shown(word)));
            }
            word => return Err(format!("{}: paths stand before the expression", shown(word))),
        })
    }

    fn types(&mut self, word: &[u8]) -> Result<Vec<u8>, String> {
        let letters = self.argument(word)?;
        let types: Vec<_> = letters.split(|&byte| byte == b',').collect();
        if types.iter().all(|letter| matches!(letter, [b'f' | b'd' | b'l' | b'b' | b'c' | b'p' | b's'])) {
            Ok(types.concat())
        } else {
            Err(wrong(word, letters, "letters are needed, with commas between: f, d, l, b, c, p, s"))
        }
    }

    fn size(&mut self, word: &[u8]) -> Result<Test, String> {
        let text = self.text(word)?;
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'c') => (&text[..text.len() - 1], 1),
            Some(b'w') => (&text[..text.len() - 1], 2),
            Some(b'b') => (&text[..text.len() - 1], 512),
            Some(b'k') => (&text[..text.len() - 1], 1 << 10),
            Some(b'M') => (&text[..text.len() - 1], 1 << 20),
            Some(b'G') => (&text[..text.len() - 1], 1 << 30),
            _ => (text, 512),
        };
        let number = Number::parse(digits);
        let number = number.ok_or_else(|| wrong(word, text.as_bytes(), "a size is needed: 10k, +1M, -512c"))?;
        Ok(Test::Size(number, unit))
    }

    fn owner(&mut self, word: &[u8]) -> Result<Owner, String> {
        let name = self.argument(word)?;
        let number = std::str::from_utf8(name).ok().and_then(|text| text.parse().ok());
        if let Some(number) = number {
            return Ok(Owner::Number(number));
        }
        let here = if word == b"-user" { files::user_number(name) } else { files::group_number(name) };
        let sought = Arc::new(Sought {
            of: word.to_vec(),
            name: name.to_vec(),
            is_known_here: here.is_some(),
            asked: AtomicBool::default(),
            met: AtomicBool::default(),
        });
        self.sought.push(Arc::clone(&sought));
        Ok(Owner::Name(sought))
    }

    /// A time of a file: in the archive, or else on this machine. That of a link is its own, as in all else here.
    fn time_of_file(&mut self, word: &[u8], which: Which) -> Result<Time, String> {
        let name = self.argument(word)?;
        match path::find(self.tree, name, false) {
            Ok(found) => Ok(which.of(&found)),
            Err(Error::NotFound | Error::NotAFolder) => {
                use std::os::unix::fs::MetadataExt;
                let found = std::fs::symlink_metadata(std::ffi::OsStr::from_bytes(name)).map_err(|error| {
                    wrong(word, name, &format!("it is not in the archive, and on this machine: {error}"))
                })?;
                let (seconds, nanoseconds) = match which {
                    Which::Modified => (found.mtime(), found.mtime_nsec()),
                    Which::Read => (found.atime(), found.atime_nsec()),
                    Which::Changed => (found.ctime(), found.ctime_nsec()),
                };
                Ok(Time { seconds, nanoseconds: nanoseconds as u32 })
            }
            Err(error) => Err(wrong(word, name, &error.to_string())),
        }
    }

    /// A date: `2026-11-25`, `2026-11-25 19:30`, `2026-11-25T19:30:00Z`, `@1700000000`.
    fn date(&mut self, word: &[u8]) -> Result<Time, String> {
        let text = self.text(word)?.trim();
        let seconds = text.strip_prefix('@').and_then(|seconds| seconds.parse::<i64>().ok());
        if let Some(seconds) = seconds {
            return Ok(Time { seconds, nanoseconds: 0 });
        }
        let local = |time: DateTime| time.to_zoned(TimeZone::system()).ok().map(|zoned| zoned.timestamp());
        let timestamp = (text.parse::<Timestamp>().ok())
            .or_else(|| text.parse::<DateTime>().ok().and_then(local))
            .or_else(|| text.parse::<Date>().ok().and_then(|date| local(date.at(0, 0, 0, 0))));
        let understood = "a date is needed: 2026-11-25, '2026-11-25 19:30', 2026-11-25T19:30:00Z or @SECONDS";
        timestamp.map(time_of).ok_or_else(|| wrong(word, text.as_bytes(), understood))
    }
}

fn wrong(of: &[u8], argument: &[u8], what: &str) -> String {
    format!("{} {}: {what}", shown(of), shown(argument))
}

fn which(letter: u8) -> Option<Which> {
    Some(match letter {
        b'm' => Which::Modified,
        b'a' => Which::Read,
        b'c' => Which::Changed,
        _ => return None,
    })
}

fn time_of(timestamp: Timestamp) -> Time {
    // Before 1970 the seconds are those before the time, as in a file.
    let nanoseconds = timestamp.as_nanosecond();
    Time {
        seconds: nanoseconds.div_euclid(1_000_000_000) as i64,
        nanoseconds: nanoseconds.rem_euclid(1_000_000_000) as u32,
    }
}

impl Which {
    pub(super) fn of(self, attributes: &tarnfs_tree::Attributes) -> Time {
        match self {
            Self::Modified => attributes.mtime,
            Self::Read => attributes.atime,
            Self::Changed => attributes.ctime,
        }
    }
}
