//! What the words behind a name tell.

use super::line::{is_comment, unescaped, words};
use crate::{Device, Kind, Time, Xattrs};

/// What is told of a file. What is not told is what `/set` has told of all, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) kind: Option<Kind>,
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) user: Vec<u8>,
    pub(super) group: Vec<u8>,
    pub(super) mtime: Option<Time>,
    pub(super) size: Option<u64>,
    pub(super) device: Option<Device>,
    pub(super) link: Vec<u8>,
    /// Sums, flags, and where the content lies.
    pub(super) others: Xattrs,
}

/// Keywords that say something of a file which Linux has no attribute for.
const OTHERS: [&[u8]; 19] = [
    b"cksum",
    b"content",
    b"contents",
    b"flags",
    b"md5",
    b"md5digest",
    b"ripemd160digest",
    b"rmd160",
    b"rmd160digest",
    b"sha1",
    b"sha1digest",
    b"sha256",
    b"sha256digest",
    b"sha384",
    b"sha384digest",
    b"sha512",
    b"sha512digest",
    b"tags",
    b"xattrsdigest",
];

/// Those that are of no use without the files.
const WITHOUT_USE: [&[u8]; 8] =
    [b"dev", b"ignore", b"inode", b"nlink", b"nochange", b"optional", b"resdevice", b"digest"];

/// Bytes of what is told of all files: each entry has it.
const LONGEST_OF_ALL: usize = 255;

/// The keyword of a word, and its value.
fn pair(word: &[u8]) -> (&[u8], &[u8]) {
    let at = word.iter().position(|&byte| byte == b'=').unwrap_or(word.len());
    let (keyword, value) = word.split_at(at);
    (keyword, value.get(1..).unwrap_or_default())
}

fn is_known(keyword: &[u8]) -> bool {
    const NAMED: [&[u8]; 10] =
        [b"type", b"mode", b"uid", b"gid", b"uname", b"gname", b"time", b"size", b"device", b"link"];
    [&NAMED[..], &OTHERS, &WITHOUT_USE].iter().any(|known| known.contains(&keyword))
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn kind(name: &[u8]) -> Option<Kind> {
    Some(match name {
        b"file" => Kind::File,
        b"dir" => Kind::Folder,
        b"link" => Kind::Symlink,
        b"char" => Kind::CharacterDevice(Device::default()),
        b"block" => Kind::BlockDevice(Device::default()),
        b"fifo" => Kind::Fifo,
        b"socket" => Kind::Socket,
        _ => return None,
    })
}

/// Seconds, and nanoseconds as a number: `1.5` is 5 of these, as for bsdtar.
fn time(text: &[u8]) -> Option<Time> {
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let seconds = number(parts.next()?)?;
    let nanoseconds = match parts.next() {
        None | Some(b"") => 0,
        Some(digits) => number::<u64>(digits)?.min(999_999_999) as u32,
    };
    Some(Time { seconds, nanoseconds })
}

/// `native,8,1`, with any name of a system, or the number of Linux.
fn device(text: &[u8]) -> Option<Device> {
    let of_linux = |number: u64| Device {
        major: (number >> 8 & 0xfff | number >> 32 & !0xfff) as u32,
        minor: (number & 0xff | number >> 12 & !0xff) as u32,
    };
    let whole = |text: &[u8]| match text.strip_prefix(b"0x") {
        Some(digits) => u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok(),
        None => number(text),
    };
    let parts: Vec<&[u8]> = text.splitn(4, |&byte| byte == b',').collect();
    match parts[..] {
        [one] | [_, one] => whole(one).map(of_linux),
        [_, major, minor] | [_, major, minor, _] => {
            Some(Device { major: whole(major)?.try_into().ok()?, minor: whole(minor)?.try_into().ok()? })
        }
        _ => None,
    }
}

impl Told {
    /// Adds what a word tells. False if it is none that is known, or its value is none.
    pub(super) fn add(&mut self, word: &[u8], most_of_other: usize) -> bool {
        let (keyword, value) = pair(word);
        match keyword {
            b"type" => self.kind = kind(value),
            // Of symbolic modes nobody makes any.
            b"mode" => {
                let mode = std::str::from_utf8(value).ok().and_then(|digits| u32::from_str_radix(digits, 8).ok());
                self.mode = mode.map(|mode| mode & 0o7777);
            }
            b"uid" => self.uid = number(value),
            b"gid" => self.gid = number(value),
            b"time" => self.mtime = time(value),
            b"size" => self.size = number(value),
            b"device" => self.device = device(value),
            b"uname" => self.user = unescaped(value),
            b"gname" => self.group = unescaped(value),
            b"link" => self.link = unescaped(value),
            _ if OTHERS.contains(&keyword) => {
                if !value.is_empty() && value.len() <= most_of_other && self.others.len() < OTHERS.len() {
                    self.others.push(([b"user.mtree.", keyword].concat(), unescaped(value)));
                }
            }
            _ => return WITHOUT_USE.contains(&keyword),
        }
        match keyword {
            b"type" => self.kind.is_some(),
            b"mode" => self.mode.is_some(),
            b"uid" => self.uid.is_some(),
            b"gid" => self.gid.is_some(),
            b"time" => self.mtime.is_some(),
            b"size" => self.size.is_some(),
            b"device" => self.device.is_some(),
            _ => true,
        }
    }

    /// What a line tells of all files behind it: `/set`, or with `/unset` what is not told any more. False if it is
    /// neither.
    pub(super) fn of_all(&mut self, line: &[u8]) -> bool {
        let mut words = words(line);
        match words.next() {
            Some(b"/set") => {
                let mut told = self.clone();
                let is_right = words.fold(true, |is_right, word| {
                    let is_short = word.len() <= LONGEST_OF_ALL;
                    is_short && told.add(word, LONGEST_OF_ALL) && is_right
                });
                // What is of one file is told of that.
                *self = Self { link: Vec::new(), others: Xattrs::new(), size: None, ..told };
                is_right
            }
            Some(b"/unset") => {
                for word in words {
                    match word {
                        b"all" => *self = Self::default(),
                        b"type" => self.kind = None,
                        b"mode" => self.mode = None,
                        b"uid" => self.uid = None,
                        b"gid" => self.gid = None,
                        b"uname" => self.user.clear(),
                        b"gname" => self.group.clear(),
                        b"time" => self.mtime = None,
                        b"device" => self.device = None,
                        _ => {}
                    }
                }
                true
            }
            _ => false,
        }
    }
}

/// The name of a line, and the words that tell something of it. Of NetBSD's `mtree -D` the name is the last word.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut all: Vec<&[u8]> = words(line).collect();
    let is_last = all.first().is_some_and(|first| first.contains(&b'=') && is_known(pair(first).0))
        && all.last().is_some_and(|last| *last == b"." || last.starts_with(b"./"));
    let name = if is_last { all.pop()? } else { (!all.is_empty()).then(|| all.remove(0))? };
    Some((name, all))
}

/// True of text in which each line says what one can say in a specification, and at least so many say something of
/// files. `is_all`: its last line is whole.
pub(super) fn are_all_known(text: &[u8], is_all: bool, least: usize) -> bool {
    let mut lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    if !is_all {
        lines.pop();
    }
    if text.contains(&0) {
        return false;
    }
    let (mut right, mut has_kind, mut goes_on) = (0_usize, false, false);
    for line in lines {
        let before = std::mem::replace(&mut goes_on, !is_comment(line) && line.trim_ascii_end().ends_with(b"\\"));
        if is_comment(line) {
            continue;
        }
        let line = line.trim_ascii_end();
        let line = line.strip_suffix(b"\\").unwrap_or(line);
        let Some((name, found)) = split(line) else { continue };
        let (first, of_all) = if before { (Some(name), false) } else { (None, matches!(name, b"/set" | b"/unset")) };
        if name == b".." && found.is_empty() {
            continue;
        }
        let is_known_word = |word: &[u8]| {
            let (keyword, value) = pair(word);
            is_known(keyword) && (keyword != b"type" || kind(value).is_some())
        };
        let tells = !found.is_empty() || before || goes_on || of_all;
        if !tells || !first.into_iter().chain(found.iter().copied()).all(is_known_word) {
            return false;
        }
        has_kind |= first.into_iter().chain(found).any(|word| word.starts_with(b"type="));
        right = right.saturating_add(1);
    }
    has_kind && right >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_of_a_file() {
        let mut told = Told::default();
        for word in ["type=file", "mode=04755", "uid=7", "gname=a\\040b", "time=5.25", "size=9", "sha256=ab", "nlink=2"]
        {
            assert!(told.add(word.as_bytes(), 100), "{word}");
        }
        assert_eq!((told.kind, told.mode, told.uid, told.size), (Some(Kind::File), Some(0o4755), Some(7), Some(9)));
        assert_eq!((told.group.as_slice(), told.mtime), (&b"a b"[..], Some(Time { seconds: 5, nanoseconds: 25 })));
        assert_eq!(told.others, [(b"user.mtree.sha256".to_vec(), b"ab".to_vec())]);
        for wrong in ["type=thing", "mode=u+x", "mode=9", "size=-1", "time=x", "device=a,b,c", "colour=red", ""] {
            assert!(!told.add(wrong.as_bytes(), 100), "{wrong}");
        }
        for (text, major, minor) in [("native,8,1", 8, 1), ("linux,0x103", 1, 3), ("259", 1, 3), ("bsd,4,2,1", 4, 2)] {
            assert_eq!(device(text.as_bytes()), Some(Device { major, minor }), "{text}");
        }
        assert_eq!(time(b"-3"), Some(Time { seconds: -3, nanoseconds: 0 }));
    }

    #[test]
    fn what_holds_for_all_is_set_and_unset() {
        let mut told = Told::default();
        assert!(
            told.of_all(b"/set type=file uid=5 mode=644 size=9 sha1=x") && !told.of_all(b"/setx") && !told.of_all(b"a")
        );
        assert_eq!((told.kind, told.uid, told.size, told.others.len()), (Some(Kind::File), Some(5), None, 0));
        assert!(told.of_all(b"/unset uid") && told.uid.is_none() && told.mode.is_some());
        assert!(told.of_all(b"/unset all") && told == Told::default());
    }

    #[test]
    fn only_specifications_are_taken_for_some() {
        let is_one = |text: &str| are_all_known(text.as_bytes(), true, 3);
        assert!(is_one("# a\n/set type=file uid=0\n.  type=dir\n    a size=3\n..\n"));
        assert!(is_one("./a type=file \\\n   size=4\n./b type=dir\n"));
        assert!(is_one("type=file uid=18 mode=0123 ./file\ntype=dir ./dir\ntype=dir .\n"));
        for none in [
            "",
            "a b\nc d\ne f\n",
            "PATH=/bin\nHOME=/root\nSHELL=/bin/sh\n",
            "a type=dir\nb type=dir\n",
            "a size=3\nb size=3\nc size=3\n",
            "a type=thing\nb type=dir\nc type=dir\n",
            "x\ny\nz\n",
            "a type=dir\0\nb type=dir\nc type=dir\n",
            "file type=dir; echo\na type=dir\nb type=dir\n",
        ] {
            assert!(!is_one(none), "{none}");
        }
        assert!(!are_all_known(b"a type=dir\nb type=dir\nc type=d", false, 3));
    }
}
