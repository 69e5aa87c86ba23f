//! Extended headers: records of "length key=value\n", pax's (`x`, `g`) and Solaris' (`X`) alike.

use tarnfs_source::{Extent, Limits};

use super::numbers::{decimal, time};
use super::sparse;
use crate::name::{escape, excerpt};
use crate::{Time, Xattrs};

/// What extended headers say of an entry, or of all entries behind them. `None`: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) user: Option<Vec<u8>>,
    pub(super) group: Option<Vec<u8>>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) mtime: Option<Time>,
    pub(super) atime: Option<Time>,
    pub(super) ctime: Option<Time>,
    pub(super) major: Option<u32>,
    pub(super) minor: Option<u32>,
    /// In the order of the records; a name that comes twice counts with its last value.
    pub(super) xattrs: Xattrs,
    /// ACLs in star's text form.
    pub(super) acl_access: Option<Vec<u8>>,
    pub(super) acl_default: Option<Vec<u8>>,
    /// The name of the archive (GNU).
    pub(super) label: Option<Vec<u8>>,
    pub(super) sparse: Sparse,
    /// There is a record that says something which no entry shows ([`others`]).
    pub(super) has_others: bool,
    /// A record that cannot be read might have told the size of the content: where the next header is, is not certain,
    /// so what would be read under this header is not served.
    pub(super) size_in_doubt: bool,
}

/// The records about holes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sparse {
    /// The real name: the one in the header is made up for programs that do not know these records.
    pub(super) name: Option<Vec<u8>>,
    pub(super) major: u64,
    pub(super) minor: u64,
    /// Length of the file with its holes.
    pub(super) real_size: Option<u64>,
    /// Map of formats 0.0 and 0.1.
    pub(super) map: Option<Vec<Extent>>,
    /// Offset of a pair of format 0.0 whose length has not come yet.
    open: Option<u64>,
    /// A record about holes could not be understood: where the data go is not known.
    pub(super) is_broken: bool,
}

impl Sparse {
    fn set(&mut self, key: &[u8], value: &[u8], limits: &Limits) -> Result<(), String> {
        let number = || match value {
            [] => Ok(None),
            _ => decimal(value).map(Some).ok_or_else(|| {
                format!("GNU.sparse.{}={} is not a number", excerpt(key), escape(value.get(..40).unwrap_or(value)))
            }),
        };
        match key {
            b"name" => self.name = (!value.is_empty()).then(|| super::header::text(value).to_vec()),
            b"major" => self.major = number()?.unwrap_or(0),
            b"minor" => self.minor = number()?.unwrap_or(0),
            b"realsize" | b"size" => self.real_size = number()?,
            b"numblocks" => self.map = number()?.map(|_| Vec::new()),
            b"map" => self.map = if value.is_empty() { None } else { Some(sparse::text_map(value, limits)?) },
            b"offset" => self.open = number()?,
            b"numbytes" => {
                let (Some(offset), Some(length)) = (self.open.take(), number()?) else {
                    return Err("a length in the map of a sparse file has no offset".to_owned());
                };
                sparse::push(self.map.get_or_insert_default(), Extent { offset, length, skip: 0 }, limits)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Something wrong in an extended header: at which byte of it, and what.
pub(super) type Problem = (usize, String);

/// Bytes that an attribute takes in an index and in memory, beside its name and its value.
const OF_XATTR: usize = 32;

/// More than this are not told one by one: a header of 16 MiB has room for millions.
const MOST_PROBLEMS: usize = 8;

impl Pax {
    /// Adds the records in `body`, which override what is there; an empty value takes a key away.
    ///
    /// Reading ends at the first record that has no form, as in GNU tar; what came before it counts.
    pub(super) fn read(&mut self, body: &[u8], limits: &Limits, problems: &mut Vec<Problem>) {
        let mut rest = body;
        while !rest.is_empty() {
            let at = body.len().saturating_sub(rest.len());
            let (key, value, behind) = match record(rest) {
                Ok(Some(record)) => record,
                Ok(None) => return,
                Err(what) => {
                    self.size_in_doubt |= mentions_size(rest);
                    problems.push((at, format!("malformed extended header ({what}); the rest of it was skipped")));
                    return;
                }
            };
            if let Err(what) = self.set(key, value, limits)
                && problems.len() <= MOST_PROBLEMS
            {
                let what = if problems.len() == MOST_PROBLEMS { "there are more problems".to_owned() } else { what };
                problems.push((at, format!("extended header: {what}")));
            }
            rest = behind;
        }
        if self.xattrs.len() > 1 {
            keep_last(&mut self.xattrs);
        }
    }

    /// Takes out what cannot be meant for all entries from here on: holes, and more bytes of names and attributes than
    /// would be cheap to hand to each of them. False if there was any.
    pub(super) fn make_global(&mut self) -> bool {
        const MOST: usize = 4096;
        let is_fit = self.inherited() <= MOST && self.sparse == Sparse::default();
        if !is_fit {
            self.keep_numbers();
        }
        is_fit
    }

    /// Takes out all that is kept for each entry by itself.
    pub(super) fn keep_numbers(&mut self) {
        let Self { uid, gid, size, mtime, atime, ctime, major, minor, .. } = *self;
        *self = Self { uid, gid, size, mtime, atime, ctime, major, minor, ..Self::default() };
    }

    /// Bytes that names and attributes take with each entry that has them from a global header.
    pub(super) fn inherited(&self) -> usize {
        let strings = [&self.path, &self.link, &self.user, &self.group, &self.acl_access, &self.acl_default];
        let strings = strings.into_iter().flatten().map(Vec::len);
        let xattrs = self.xattrs.iter();
        let xattrs = xattrs.map(|(name, value)| OF_XATTR.saturating_add(name.len()).saturating_add(value.len()));
        strings.chain(xattrs).fold(0, usize::saturating_add)
    }

    fn set(&mut self, key: &[u8], value: &[u8], limits: &Limits) -> Result<(), String> {
        let what = || format!("{}={}", excerpt(key), escape(value.get(..40).unwrap_or(value)));
        // As a program written in C sees it: the path to which `tar` extracts ends there.
        let string = || (!value.is_empty()).then(|| super::header::text(value).to_vec());
        // What is too long for a name counts as none: it would be kept for each entry, and the number is there.
        let owner = || match string() {
            Some(name) if name.len() > limits.owner_name => Err(name.len()),
            name => Ok(name),
        };
        let no_owner = |length: usize| {
            format!(
                "{key} has {length} bytes, more than {most}; the number counts",
                key = excerpt(key),
                most = limits.owner_name
            )
        };
        let number = || match value {
            [] => Ok(None),
            _ => decimal(value).map(Some).ok_or_else(|| format!("{} is not a number", what())),
        };
        let part = || number().map(|number| number.and_then(|number| u32::try_from(number).ok()));
        let moment = || match value {
            [] => Ok(None),
            _ => time(value).map(Some).ok_or_else(|| format!("{} is not a time", what())),
        };
        match key {
            b"path" => self.path = string(),
            b"linkpath" => self.link = string(),
            b"uname" => {
                let name = owner();
                self.user = name.as_ref().map_or_else(|_| Some(Vec::new()), Clone::clone);
                name.map_err(no_owner)?;
            }
            b"gname" => {
                let name = owner();
                self.group = name.as_ref().map_or_else(|_| Some(Vec::new()), Clone::clone);
                name.map_err(no_owner)?;
            }
            b"uid" => self.uid = number()?,
            b"gid" => self.gid = number()?,
            b"size" => {
                self.size_in_doubt = !value.is_empty() && decimal(value).is_none();
                self.size = number()?;
            }
            b"mtime" => self.mtime = moment()?,
            b"atime" => self.atime = moment()?,
            b"ctime" => self.ctime = moment()?,
            b"SCHILY.devmajor" => self.major = part()?,
            b"SCHILY.devminor" => self.minor = part()?,
            b"SCHILY.acl.access" => self.acl_access = string(),
            b"SCHILY.acl.default" => self.acl_default = string(),
            b"GNU.volume.label" => {
                self.label = string();
                if let Some(label) = self.label.as_mut().filter(|label| label.len() > limits.owner_name) {
                    label.truncate(limits.owner_name);
                    return Err("the name of the archive was cut: it is too long".to_owned());
                }
            }
            b"SCHILY.realsize" => self.sparse.real_size = number()?,
            _ => {
                if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    let done = self.sparse.set(key, value, limits);
                    self.sparse.is_broken |= done.is_err();
                    return done;
                } else if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.add_xattr(schily_name(name), value.to_vec(), limits)?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let decoded = base64(value).ok_or_else(|| format!("{} is not base64", what()))?;
                    self.add_xattr(url_decoded(name), decoded, limits)?;
                } else {
                    // The rest says nothing that a file system shows (comment, hdrcharset, SCHILY.ino, SCHILY.nlink,
                    // LIBARCHIVE.creationtime, ...) or nothing that Linux has (SCHILY.fflags, SCHILY.acl.ace).
                    self.has_others |= is_other(key, value);
                }
            }
        }
        Ok(())
    }

    fn add_xattr(&mut self, name: Vec<u8>, value: Vec<u8>, limits: &Limits) -> Result<(), String> {
        let left_out = |why: &str| Err(format!("extended attribute {} left out: {why}", excerpt(&name)));
        if name.is_empty() || name.contains(&0) || name.len() > limits.name {
            return left_out("no name that Linux could hold");
        }
        if value.len() > limits.xattr_value {
            return left_out("its value is too long");
        }
        if self.xattrs.len() >= limits.xattrs {
            return left_out("the entry has too many");
        }
        self.xattrs.push((name, value));
        Ok(())
    }
}

/// Key, value, and what is behind the record.
type Record<'bytes> = (&'bytes [u8], &'bytes [u8], &'bytes [u8]);

/// The record at the start of `bytes`; `None` where only padding is left.
fn record(bytes: &[u8]) -> Result<Option<Record<'_>>, &'static str> {
    if bytes.first() == Some(&0) {
        return Ok(None);
    }
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (length, rest) = bytes.split_at_checked(digits).unwrap_or_default();
    let length = decimal(length).ok_or("a record has no length")?;
    let length = usize::try_from(length).ok().filter(|&length| length <= bytes.len()).ok_or("a record is too long")?;
    let (whole, behind) = bytes.split_at_checked(length).ok_or("a record is too long")?;
    let rest = match rest {
        [b' ', ..] if length > digits => whole.get(digits.saturating_add(1)..).ok_or("a record is too short")?,
        _ => return Err("a record has no blank behind its length"),
    };
    let [rest @ .., b'\n'] = rest else { return Err("a record does not end with a new line") };
    let equals = rest.iter().position(|&byte| byte == b'=').ok_or("a record has no equal sign")?;
    let (key, value) = rest.split_at_checked(equals).unwrap_or_default();
    Ok(Some((key, value.get(1..).unwrap_or_default(), behind)))
}

/// True of a record that is passed over, but for those that only say how the file was archived, or when it was made.
fn is_other(key: &[u8], value: &[u8]) -> bool {
    let is_of_archiving = matches!(
        key,
        b"hdrcharset"
            | b"charset"
            | b"LIBARCHIVE.creationtime"
            | b"LIBARCHIVE.symlinktype"
            | b"SCHILY.dev"
            | b"SCHILY.ino"
            | b"SCHILY.nlink"
            | b"SCHILY.filetype"
            | b"SCHILY.release"
            | b"SCHILY.archtype"
    );
    !value.is_empty() && !is_of_archiving && !key.starts_with(b"GNU.volume.")
}

/// The keys of the records in `body` that say something which no entry shows.
pub(super) fn others(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = body;
    let records = std::iter::from_fn(move || {
        let (key, value, behind) = record(rest).ok()??;
        rest = behind;
        Some((key, value))
    });
    let is_known = |key: &[u8], value: &[u8]| {
        let mut pax = Pax::default();
        // What is wrong with it was told.
        let _ = pax.set(key, value, &Limits::default());
        !pax.has_others
    };
    records.filter(move |(key, value)| !is_known(key, value)).map(|(key, _)| key)
}

/// The comment in a header: `git archive` has the commit there.
pub(super) fn comment(body: &[u8]) -> Option<&[u8]> {
    let (mut rest, mut found) = (body, None);
    while let Ok(Some((key, value, behind))) = record(rest) {
        if key == b"comment" {
            found = Some(value);
        }
        rest = behind;
    }
    found
}

/// True if the bytes that cannot be read as records might have had one about the size.
fn mentions_size(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|window| window == b"size=")
}

/// Of those with the same name the last one. Sorted, so that a header with thousands of them takes no time.
fn keep_last(xattrs: &mut Xattrs) {
    xattrs.reverse();
    xattrs.sort_by(|(one, _), (other, _)| one.cmp(other));
    xattrs.dedup_by(|(one, _), (other, _)| one == other);
}

/// GNU tar writes '=' and '%' in the name of an attribute as %3D and %25, and nothing else so.
fn schily_name(name: &[u8]) -> Vec<u8> {
    unescaped(name, |code| matches!(code, b"3D" | b"25"))
}

fn url_decoded(name: &[u8]) -> Vec<u8> {
    unescaped(name, |_| true)
}

/// `name` with the %XX in it decoded, of which `wanted` says whether they are meant.
fn unescaped(name: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, behind)) = rest.split_first() {
        let code = behind.get(..2).filter(|code| byte == b'%' && wanted(code));
        let value = code.and_then(|code| std::str::from_utf8(code).ok()).filter(|code| !code.starts_with('+'));
        if let Some(value) = value.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            decoded.push(value);
            rest = behind.get(2..).unwrap_or_default();
        } else {
            decoded.push(byte);
            rest = behind;
        }
    }
    decoded
}

/// Base 64 with or without its padding (libarchive writes none).
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text =
        text.iter().rposition(|&byte| byte != b'=').map_or(&[][..], |last| text.get(..=last).unwrap_or_default());
    let mut decoded = Vec::with_capacity(text.len());
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for &byte in group {
            let value = match byte {
                b'A'..=b'Z' => byte.wrapping_sub(b'A'),
                b'a'..=b'z' => byte.wrapping_sub(b'a').wrapping_add(26),
                b'0'..=b'9' => byte.wrapping_sub(b'0').wrapping_add(52),
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = (bits << 6) | u32::from(value);
        }
        let [_, one, two, three] = match group.len() {
            4 => bits,
            3 => bits << 6,
            2 => bits << 12,
            _ => return None,
        }
        .to_be_bytes();
        decoded.extend([one, two, three].iter().take(group.len().saturating_sub(1)));
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &[u8]) -> (Pax, Vec<Problem>) {
        let (mut pax, mut problems) = (Pax::default(), Vec::new());
        pax.read(body, &Limits::default(), &mut problems);
        (pax, problems)
    }

    #[test]
    fn records_override_and_empty_ones_take_away() {
        let (pax, problems) = read(b"10 path=a\n14 uname=root\n10 path=b\n9 uname=\n11 size=12\n\0\0\0");
        assert_eq!((pax.path.as_deref(), pax.user, pax.size), (Some(&b"b"[..]), None, Some(12)));
        assert_eq!(problems, []);
    }

    #[test]
    fn malformed_records_end_the_header_but_not_what_came_before() {
        for (bad, doubt) in [
            (&b"99 path=b\n"[..], false),
            (b"x", false),
            (b"10path=bb\n", false),
            (b"9 path=bb\n", false),
            (b"7 pathb\n", false),
            (b"0 path=b\n", false),
            (b"2 path=b\n", false),
            (b"99999999999999999999999 path=b\n", false),
            (b"12 size=12\n", true),
        ] {
            let (pax, problems) = read(&[b"10 path=a\n", bad].concat());
            assert_eq!(pax.path.as_deref(), Some(&b"a"[..]), "{bad:?}");
            assert_eq!(problems.len(), 1, "{bad:?}");
            assert_eq!((problems[0].0, pax.size_in_doubt), (10, doubt), "{bad:?}");
        }
    }

    #[test]
    fn records_that_no_entry_shows_are_known() {
        let body = b"10 path=a\n14 comment=hi\n13 VENDOR.k=\n14 VENDOR.k=v\n17 SCHILY.ino=12\n21 hdrcharset=BINARY\n";
        assert_eq!(others(body).collect::<Vec<_>>(), [&b"comment"[..], b"VENDOR.k"]);
        let (pax, problems) = read(body);
        assert_eq!((pax.has_others, problems), (true, vec![]));
        assert!(!read(b"10 path=a\n17 SCHILY.ino=12\n29 SCHILY.xattr.user.%3D=\0=\n\n").0.has_others);
    }

    #[test]
    fn attributes_of_both_writers() {
        let (pax, problems) = read(b"29 SCHILY.xattr.user.%3D=\0=\n\n36 LIBARCHIVE.xattr.user.b%20c=AAH/\n");
        assert_eq!(problems, []);
        assert_eq!(pax.xattrs, [(b"user.=".to_vec(), b"\0=\n".to_vec()), (b"user.b c".to_vec(), vec![0, 1, 255]),]);
        for (text, bytes) in [("", &b""[..]), ("YQ", b"a"), ("YQ==", b"a"), ("YWI=", b"ab"), ("YWJj", b"abc")] {
            assert_eq!(base64(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!((base64(b"Y"), base64(b"Y Q=")), (None, None));
    }
}
