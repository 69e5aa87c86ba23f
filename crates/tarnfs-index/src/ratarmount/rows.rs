//! Rows of the table `files`: what they say, checked.

use rusqlite::types::ValueRef;
use tarnfs_format::{Device, Kind, Time};
use tarnfs_source::Limits;

use crate::{Error, Node};

/// Type bits of `st_mode`.
const TYPE: u32 = 0o170_000;
pub(super) const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const FIFO: u32 = 0o010_000;
const SOCKET: u32 = 0o140_000;

/// Bytes of one block of a tar: headers begin at multiples of it.
pub(super) const BLOCK: u64 = 512;

/// The last row of a name, which shows.
pub(super) const LAST_OF_NAME: &str = "WHERE path = ?1 AND name = ?2 ORDER BY offsetheader DESC LIMIT 1";
/// The last one before a header.
pub(super) const EARLIER_OF_NAME: &str =
    "WHERE path = ?1 AND name = ?2 AND offsetheader < ?3 ORDER BY offsetheader DESC LIMIT 1";
/// All of a name.
pub(super) const ALL_OF_NAME: &str = "WHERE path = ?1 AND name = ?2 ORDER BY offsetheader";
/// All in a folder, from behind a name on.
pub(super) const OF_FOLDER: &str = "WHERE path = ?1 AND name > ?2 ORDER BY name, offsetheader";
/// The row of a number.
pub(super) const OF_NUMBER: &str = "WHERE rowid = ?1";

/// Whether there are extended attributes of a header, and these.
pub(super) const HAS_XATTRS: &str = "SELECT 1 FROM xattrsdata WHERE offsetheader = ?1 LIMIT 1";
pub(super) const XATTRS: &str =
    "SELECT xattrkeys.name, value FROM xattrsdata JOIN xattrkeys ON xattrkeys.id = keyid WHERE offsetheader = ?1";

/// The columns of a [`Stored`], in its order. The last one says whether path and name stand in the row itself: where
/// rows are found by their key, SQLite takes these from the key, and that may lead to any row.
pub(super) fn columns(has_generated: bool) -> String {
    let generated = if has_generated { "isgenerated" } else { "0" };
    format!(
        "rowid,path,name,offsetheader,offset,size,mtime,mode,type,linkname,uid,gid,issparse,{generated},\
         (SELECT own.path = files.path AND own.name = files.name FROM files AS own WHERE own.rowid = files.rowid)"
    )
}

/// What sets rows apart, in the order in which they are asked for. Rows that do not go on in it come from a broken tree
/// of pages, and may have no end.
#[derive(Debug, Default)]
pub(super) struct Place {
    path: Vec<u8>,
    name: Vec<u8>,
    header: Option<i64>,
    rowid: i64,
}

/// In which order rows come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Path, name and header, or some of them where the others are the same.
    Key,
    /// Their numbers.
    Number,
}

impl Place {
    /// Goes on to `row`, which has [`columns`].
    pub(super) fn go_on(&mut self, row: &rusqlite::Row<'_>, by: By) -> Result<(), Error> {
        let value = |index: usize| row.get_ref(index).map_err(crate::sqlite::broken);
        let number = value(0)?.as_i64().unwrap_or_default();
        let is_behind = match by {
            By::Number => number > self.rowid,
            By::Key => {
                let bytes = |index: usize| Ok::<_, Error>(value(index)?.as_bytes().unwrap_or_default());
                let (path, name, header) = (bytes(1)?, bytes(2)?, value(3)?.as_i64().ok());
                let here = (path, name, header, number);
                let is_behind = here > (&self.path[..], &self.name[..], self.header, self.rowid);
                self.path.clear();
                self.path.extend_from_slice(path);
                self.name.clear();
                self.name.extend_from_slice(name);
                self.header = header;
                is_behind
            }
        };
        self.rowid = number;
        if is_behind { Ok(()) } else { Err(Error::Broken(format!("row {number} of files is out of order"))) }
    }
}

/// One row as it stands in the table.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) rowid: i64,
    /// Of the folder, with a slash before each component; empty for the root.
    pub(super) path: String,
    pub(super) name: String,
    /// Byte of the stream at which the header begins; one more for a folder that stands for an archive in it or
    /// for a GNU dump directory. `None` for a compressed single file.
    pub(super) offset_header: Option<u64>,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) mtime: Time,
    /// `st_mode`; without type bits for hard links, block devices and whatever Python's tarfile does not know.
    pub(super) mode: u32,
    /// Type flag of the tar header; `None` for folders that no entry names.
    pub(super) flag: Option<u8>,
    pub(super) link: Vec<u8>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) is_sparse: bool,
    pub(super) is_generated: bool,
}

/// What a row shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    As(Kind),
    /// Another name of what is at its `link`.
    HardLink,
    /// A row that is no file: the label of a volume.
    Nothing,
}

impl Stored {
    /// Reads a row of [`columns`]. Of a name that is longer than `limits` allow, no more is read than tells so.
    pub(super) fn read(row: &rusqlite::Row<'_>, limits: &Limits) -> Result<Self, Error> {
        let value = |index: usize| row.get_ref(index).map_err(crate::sqlite::broken);
        let rowid = match value(0)? {
            ValueRef::Integer(rowid) if rowid > 0 => rowid,
            _ => return Err(Error::Broken("a row of files has no number".to_owned())),
        };
        let wrong = |column: &str| Error::Broken(format!("row {rowid} of files: {column} is not what it should be"));
        if value(14)? != ValueRef::Integer(1) {
            return Err(Error::Broken(format!("row {rowid} of files is not what its key says")));
        }
        let text = |index: usize, column: &str| match value(index)? {
            ValueRef::Text(text) => std::str::from_utf8(text).map_err(|_| wrong(column)),
            ValueRef::Null => Ok(""),
            _ => Err(wrong(column)),
        };
        // Each byte that is not UTF-8 may stand there as four.
        let longest = limits.path.saturating_mul(4);
        let path = |index: usize, column: &str| match text(index, column)? {
            text if text.len() <= longest => Ok(text),
            _ => Err(Error::Broken(format!("row {rowid} of files: {column} is too long"))),
        };
        let number = |index: usize, column: &str| match value(index)? {
            ValueRef::Integer(number) => u64::try_from(number).map_err(|_| wrong(column)),
            ValueRef::Null => Ok(0),
            _ => Err(wrong(column)),
        };
        let small = |index: usize, column: &str| {
            number(index, column).and_then(|n| u32::try_from(n).map_err(|_| wrong(column)))
        };
        let is_implied = matches!(value(8)?, ValueRef::Integer(_));
        let flag = match value(8)? {
            ValueRef::Blob([flag]) | ValueRef::Text([flag]) => Some(*flag),
            _ => None,
        };
        let offset_header = match value(3)? {
            // Such a folder has the header of the first entry in it: not its own.
            _ if is_implied => None,
            ValueRef::Null => None,
            _ => Some(number(3, "offsetheader")?),
        };
        let stored = Self {
            rowid,
            path: path(1, "path")?.to_owned(),
            name: beginning(text(2, "name")?, limits.name.saturating_add(4)).to_owned(),
            offset_header,
            offset: number(4, "offset")?,
            size: number(5, "size")?,
            mtime: match value(6)? {
                ValueRef::Real(seconds) => time(seconds).ok_or_else(|| wrong("mtime"))?,
                ValueRef::Integer(seconds) => Time { seconds, nanoseconds: 0 },
                ValueRef::Null => Time::default(),
                _ => return Err(wrong("mtime")),
            },
            mode: small(7, "mode")?,
            flag,
            link: path(9, "linkname")?.into(),
            // Python's tarfile reads what base-256 holds, also what no owner can be.
            uid: number(10, "uid")? as u32,
            gid: number(11, "gid")? as u32,
            is_sparse: number(12, "issparse")? != 0,
            is_generated: number(13, "isgenerated")? != 0,
        };
        if stored.size.checked_add(stored.offset).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(wrong("size"));
        }
        Ok(stored)
    }

    /// Nodes are numbered as rows are, behind the root.
    pub(super) fn node(&self) -> Node {
        Node((self.rowid as u64).saturating_add(Node::ROOT.0))
    }

    /// The row's number of a node, if it can be one of a row.
    pub(super) fn rowid_of(node: Node) -> Option<i64> {
        node.0.checked_sub(Node::ROOT.0).and_then(|rowid| i64::try_from(rowid).ok()).filter(|&rowid| rowid > 0)
    }

    /// What it shows. Device numbers are not stored: they are those of the header, which `device` fetches.
    pub(super) fn shown(&self, device: impl FnOnce() -> Result<Device, Error>) -> Result<Shown, Error> {
        Ok(match self.mode & TYPE {
            FOLDER => Shown::As(Kind::Folder),
            FILE => Shown::As(Kind::File),
            SYMLINK => Shown::As(Kind::Symlink),
            FIFO => Shown::As(Kind::Fifo),
            SOCKET => Shown::As(Kind::Socket),
            CHARACTER_DEVICE => Shown::As(Kind::CharacterDevice(device()?)),
            BLOCK_DEVICE => Shown::As(Kind::BlockDevice(device()?)),
            0 => match self.flag {
                Some(b'V') => Shown::Nothing,
                Some(b'4') => Shown::As(Kind::BlockDevice(device()?)),
                _ if !self.link.is_empty() => Shown::HardLink,
                Some(b'1') => Shown::Nothing,
                _ => Shown::As(Kind::File),
            },
            _ => return Err(Error::Broken(format!("row {} of files has the mode {:o}", self.rowid, self.mode))),
        })
    }

    /// True without looking at more than the row.
    pub(super) fn is_folder(&self) -> bool {
        self.mode & TYPE == FOLDER
    }

    /// The path of what this row names: what is in it has this as its `path`.
    pub(super) fn full_path(&self) -> String {
        if self.name.is_empty() { self.path.clone() } else { format!("{}/{}", self.path, self.name) }
    }

    /// True if the name can be one of a directory entry.
    pub(super) fn has_valid_name(&self, limits: &Limits) -> bool {
        let name = &self.name;
        !name.is_empty() && name.len() <= limits.name && name != "." && name != ".." && !name.contains(['/', '\0'])
    }

    /// Byte of the stream at which the first header of this entry begins.
    pub(super) fn header(&self) -> Option<u64> {
        let header = self.offset_header?;
        // A folder that stands for an archive in the archive has that one's header; a dump directory its own.
        (!self.is_generated).then(|| if header % BLOCK == 1 { header.saturating_sub(1) } else { header })
    }
}

/// At most the first `most` bytes of `text`, a few less where a character would be cut.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Seconds with a fraction. `None` for what is no time. A tar may have later ones than a fraction has room for.
fn time(seconds: f64) -> Option<Time> {
    // Up to 2^53 each second is a number of its own; the year is then 285 million.
    const MOST: f64 = 9.0e15;
    if seconds.is_nan() {
        return None;
    }
    let seconds = seconds.clamp(-MOST, MOST);
    let whole = seconds.floor();
    let nanoseconds = ((seconds - whole) * 1e9).round() as u32;
    let carry = i64::from(nanoseconds >= 1_000_000_000);
    Some(Time { seconds: (whole as i64).saturating_add(carry), nanoseconds: if carry == 1 { 0 } else { nanoseconds } })
}

/// The folder's path and the name that a link target means: from the root, without `.`, `..` and doubled slashes.
/// `None` for the root itself.
pub(super) fn split_target(target: &[u8]) -> Option<(String, String)> {
    let target = std::str::from_utf8(target).ok()?;
    let mut parts = Vec::new();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let name = parts.pop()?.to_owned();
    Some((parts.iter().fold(String::new(), |path, part| path + "/" + part), name))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn read(path: usize, name: usize, link: usize) -> Result<Stored, Error> {
        let text = |length: usize| "\u{e4}".repeat(length / 2);
        let connection = Connection::open_in_memory().unwrap();
        let sql = "SELECT 1, ?1, ?2, 0, 512, 0, 0, 0, x'30', ?3, 0, 0, 0, 0, 1";
        let mut statement = connection.prepare(sql).unwrap();
        let mut rows = statement.query([text(path), text(name), text(link)]).unwrap();
        Stored::read(rows.next().unwrap().unwrap(), &Limits::DEFAULT)
    }

    #[test]
    fn what_is_too_long_is_not_copied() {
        let most = Limits::DEFAULT.path * 4;
        let long = read(most, 200_000, most).unwrap();
        assert_eq!((long.path.len(), long.link.len()), (most, most));
        assert!(long.name.len() < 300 && !long.has_valid_name(&Limits::DEFAULT), "{} bytes", long.name.len());
        assert!(read(0, 254, 0).unwrap().has_valid_name(&Limits::DEFAULT));
        for (path, link, what) in [(most + 2, 0, "path"), (0, most + 2, "linkname")] {
            let refused = read(path, 2, link);
            assert!(matches!(&refused, Err(Error::Broken(told)) if told.contains(what)), "{what}");
        }
    }

    /// A row in which column number `column` is `value`, and all else is right.
    fn with(column: usize, value: &str) -> Result<Stored, Error> {
        let mut values = ["1", "'/p'", "'n'", "0", "512", "10", "0", "33188", "x'30'", "''", "0", "0", "0", "0", "1"];
        values[column] = value;
        let connection = Connection::open_in_memory().unwrap();
        let mut statement = connection.prepare(&format!("SELECT {}", values.join(", "))).unwrap();
        let mut rows = statement.query([]).unwrap();
        Stored::read(rows.next().unwrap().unwrap(), &Limits::DEFAULT)
    }

    #[test]
    fn each_column_holds_what_it_should() {
        for (column, value, wrong) in [
            (0, "0", Some("no number")),
            (0, "NULL", Some("no number")),
            (1, "x'70'", Some("path")),
            (1, "CAST(x'ff' AS TEXT)", Some("path")),
            (1, "NULL", None),
            (2, "7", Some("name")),
            (3, "-1", Some("offsetheader")),
            (3, "NULL", None),
            (4, "-1", Some("offset")),
            (4, "'7'", Some("offset")),
            (5, "-1", Some("size")),
            (5, "9223372036854775295", None),
            (5, "9223372036854775296", Some("size")),
            (6, "'x'", Some("mtime")),
            (6, "NULL", None),
            (7, "-1", Some("mode")),
            (7, "4294967296", Some("mode")),
            (9, "7", Some("linkname")),
            (10, "-1", Some("uid")),
            (10, "4294967297", None),
            (11, "'x'", Some("gid")),
            (12, "-1", Some("issparse")),
            (13, "'x'", Some("isgenerated")),
            (14, "0", Some("its key")),
            (14, "NULL", Some("its key")),
        ] {
            match (with(column, value), wrong) {
                (Ok(_), None) => {}
                (Err(Error::Broken(what)), Some(wrong)) => assert!(what.contains(wrong), "{column} {value}: {what}"),
                (found, _) => panic!("{column} {value}: {found:?}"),
            }
        }
        let row = with(10, "4294967297").unwrap();
        assert_eq!((row.uid, row.flag, row.header(), row.node()), (1, Some(b'0'), Some(0), Node(2)));
        assert!(with(12, "1").unwrap().is_sparse && with(13, "1").unwrap().is_generated);
        // A folder that no entry names has another one's header.
        assert_eq!(with(8, "5").unwrap().offset_header, None);
        let numbers = [0, 1, 2, 1 << 62, 1 << 63, u64::MAX].map(|node| Stored::rowid_of(Node(node)));
        assert_eq!(numbers, [None, None, Some(1), Some((1 << 62) - 1), Some(i64::MAX), None]);
    }

    #[test]
    fn a_row_shows_what_its_mode_and_its_flag_say() {
        let device = Device { major: 1, minor: 2 };
        let row = |mode: u32, flag: Option<u8>, link: &str| {
            let row = Stored { mode, flag, link: link.into(), ..with(0, "1").unwrap() };
            row.shown(|| Ok(device)).ok()
        };
        for (kind, expected) in [
            (FOLDER, Kind::Folder),
            (FILE, Kind::File),
            (SYMLINK, Kind::Symlink),
            (FIFO, Kind::Fifo),
            (SOCKET, Kind::Socket),
            (CHARACTER_DEVICE, Kind::CharacterDevice(device)),
            (BLOCK_DEVICE, Kind::BlockDevice(device)),
        ] {
            assert_eq!(row(kind | 0o755, Some(b'0'), "x"), Some(Shown::As(expected)));
            let is_folder = Stored { mode: kind, ..with(0, "1").unwrap() }.is_folder();
            assert_eq!(is_folder, expected == Kind::Folder);
        }
        assert_eq!(row(0o170_000, Some(b'0'), ""), None);
        for (flag, link, expected) in [
            (Some(b'V'), "x", Shown::Nothing),
            (Some(b'4'), "x", Shown::As(Kind::BlockDevice(device))),
            (Some(b'1'), "x", Shown::HardLink),
            (Some(b'0'), "x", Shown::HardLink),
            (Some(b'1'), "", Shown::Nothing),
            (Some(b'0'), "", Shown::As(Kind::File)),
            (None, "", Shown::As(Kind::File)),
        ] {
            assert_eq!(row(0o644, flag, link), Some(expected), "{flag:?} {link}");
        }
    }

    #[test]
    fn a_header_begins_at_a_block() {
        let header =
            |offset_header, is_generated| Stored { offset_header, is_generated, ..with(0, "1").unwrap() }.header();
        assert_eq!(header(Some(1024), false), Some(1024));
        // The folder of a dump directory.
        assert_eq!(header(Some(1025), false), Some(1024));
        assert_eq!(header(Some(1026), false), Some(1026));
        assert_eq!((header(Some(1025), true), header(None, false)), (None, None));
        for (name, is_valid) in
            [("a", true), ("...", true), ("", false), (".", false), ("..", false), ("a/b", false), ("a\0", false)]
        {
            let row = Stored { name: name.to_owned(), ..with(0, "1").unwrap() };
            assert_eq!(row.has_valid_name(&Limits::DEFAULT), is_valid, "{name}");
        }
        for (target, expected) in [
            ("a/b/c", Some(("/a/b", "c"))),
            ("/a//./b/", Some(("/a", "b"))),
            ("a/../b", Some(("", "b"))),
            ("../../b", Some(("", "b"))),
            ("a/..", None),
            ("/", None),
        ] {
            let found = split_target(target.as_bytes());
            assert_eq!(found, expected.map(|(path, name)| (path.to_owned(), name.to_owned())), "{target}");
        }
        assert_eq!(split_target(b"\xff"), None);
    }

    #[test]
    fn seconds_have_a_fraction_and_an_end() {
        for (seconds, expected) in [
            (1.5, Some((1, 500_000_000))),
            (-0.25, Some((-1, 750_000_000))),
            (-2.0, Some((-2, 0))),
            // Rounded up to a whole one.
            (0.999_999_999_9, Some((1, 0))),
            (1e300, Some((9_000_000_000_000_000, 0))),
            (f64::NEG_INFINITY, Some((-9_000_000_000_000_000, 0))),
            (f64::NAN, None),
        ] {
            assert_eq!(time(seconds).map(|time| (time.seconds, time.nanoseconds)), expected, "{seconds}");
        }
    }
}
