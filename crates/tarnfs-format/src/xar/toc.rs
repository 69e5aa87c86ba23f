//! The table of contents: one element for each file, those of a folder inside of it.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::{Time, calendar};

/// Elements inside each other: of folders, and of what is told of a file.
const DEEPEST: usize = 4096;

/// Bytes that one value takes, at most: a target of a link, or a name.
const LONGEST: usize = 64 << 10;

/// A file, as the table has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) id: Vec<u8>,
    /// The folder that it lies in.
    pub(super) parent: Option<u32>,
    pub(super) name: Vec<u8>,
    /// "file", "directory", "symlink", ...
    pub(super) kind: Vec<u8>,
    /// Of a hard link, the id of the file that it is another name of.
    pub(super) original: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) mode: Option<u32>,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) user: Vec<u8>,
    pub(super) group: Vec<u8>,
    pub(super) mtime: Option<Time>,
    pub(super) atime: Option<Time>,
    pub(super) ctime: Option<Time>,
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) data: Option<Data>,
    pub(super) attributes: Vec<Attribute>,
}

/// Where something lies in the heap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Data {
    pub(super) offset: u64,
    /// Bytes in the heap.
    pub(super) stored: u64,
    /// Bytes that come of them.
    pub(super) size: u64,
    pub(super) encoding: Vec<u8>,
}

/// An extended attribute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attribute {
    pub(super) name: Vec<u8>,
    pub(super) data: Data,
}

impl File {
    /// Bytes of memory that it takes, roughly.
    fn weight(&self) -> usize {
        let texts = [&self.id, &self.name, &self.kind, &self.original, &self.link, &self.user, &self.group];
        let texts = texts.iter().map(|text| text.capacity()).fold(0, usize::saturating_add);
        let attributes = self.attributes.len().saturating_mul(size_of::<Attribute>().saturating_add(64));
        size_of::<Self>().saturating_add(texts).saturating_add(attributes)
    }
}

/// What is open while the table is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    File(u32),
    Data,
    Attribute,
    Device,
    Other,
}

/// What is wrong with a table whose files take more than that.
pub(super) fn too_much(most: usize) -> String {
    format!("its files take more than {most} bytes of memory")
}

/// Reads a table: all its files, in its order. `most` is how many bytes of memory they may take. The error says what is
/// wrong, with the byte of the table.
pub(super) fn read(toc: &[u8], most: usize) -> Result<Vec<File>, (u64, String)> {
    let mut reader = Reader::from_reader(toc);
    reader.config_mut().check_end_names = false;
    let mut files: Vec<File> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut text: Vec<u8> = Vec::new();
    let mut is_coded = false;
    let (mut weight, mut attributes) = (0_usize, 0_usize);
    loop {
        let at = reader.buffer_position();
        let event = reader.read_event().map_err(|error| (at, error.to_string()))?;
        match event {
            Event::Start(start) => {
                text.clear();
                if open.len() >= DEEPEST {
                    return Err((at, format!("more than {DEEPEST} elements in each other")));
                }
                let next = begin(&start, &mut files, &open);
                attributes = attributes.saturating_add(usize::from(next == Open::Attribute));
                is_coded = value(&start, "enctype").as_deref() == Some(b"base64");
                open.push(next);
            }
            Event::Empty(empty) => {
                let next = begin(&empty, &mut files, &open);
                attributes = attributes.saturating_add(usize::from(next == Open::Attribute));
            }
            Event::Text(part) if text.len().saturating_add(part.len()) <= LONGEST => {
                text.extend_from_slice(part.as_bytes());
            }
            Event::GeneralRef(name) => text.extend(resolved(name.as_bytes())),
            Event::CData(part) if text.len().saturating_add(part.len()) <= LONGEST => {
                text.extend_from_slice(part.as_bytes());
            }
            Event::End(end) => {
                let ended = open.pop();
                if ended == Some(Open::Other)
                    && let Some(&inside) = open.last()
                {
                    let decoded = if is_coded { base64(&text) } else { None };
                    let own = open.iter().rev().find_map(|open| match open {
                        Open::File(number) => Some(*number),
                        _ => None,
                    });
                    let file = own.and_then(|own| files.get_mut(own as usize));
                    if let Some(file) = file {
                        set(file, inside, end.local_name().as_ref().as_bytes(), decoded.as_deref().unwrap_or(&text));
                    }
                }
                if let Some(Open::File(number)) = ended {
                    weight = weight.saturating_add(files.get(number as usize).map_or(0, File::weight));
                    if weight > most {
                        return Err((at, too_much(most)));
                    }
                }
                text.clear();
                is_coded = false;
            }
            Event::Eof => return Ok(files),
            _ => {}
        }
        // Those that are open take memory, too: a list that grows has room for as many more for a moment.
        let of_attributes = attributes.saturating_mul(size_of::<Attribute>()).saturating_mul(3);
        if files.len().saturating_mul(size_of::<File>()).saturating_add(of_attributes) > most {
            return Err((at, too_much(most)));
        }
    }
}

/// Begins an element: what it is, and what its attributes tell.
fn begin(start: &BytesStart<'_>, files: &mut Vec<File>, open: &[Open]) -> Open {
    let name = start.local_name();
    let name = name.as_ref().as_bytes();
    let innermost = open.last().copied().unwrap_or(Open::Other);
    let own = open.iter().rev().find_map(|open| match open {
        Open::File(number) => Some(*number),
        _ => None,
    });
    let file = own.and_then(|own| files.get_mut(own as usize));
    match (innermost, name, file) {
        (Open::File(_) | Open::Other, b"file", _) => {
            let number = u32::try_from(files.len()).unwrap_or(u32::MAX);
            files.push(File { id: value(start, "id").unwrap_or_default(), parent: own, ..File::default() });
            Open::File(number)
        }
        (Open::File(_), b"data", Some(file)) => {
            file.data = Some(Data::default());
            Open::Data
        }
        (Open::File(_), b"ea", Some(file)) => {
            file.attributes.push(Attribute::default());
            Open::Attribute
        }
        (Open::File(_), b"device", Some(_)) => Open::Device,
        (Open::File(_), b"type", Some(file)) => {
            file.original = value(start, "link").unwrap_or_default();
            Open::Other
        }
        (Open::Data, b"encoding", Some(file)) => {
            if let Some(data) = &mut file.data {
                data.encoding = value(start, "style").unwrap_or_default();
            }
            Open::Other
        }
        (Open::Attribute, b"encoding", Some(file)) => {
            if let Some(attribute) = file.attributes.last_mut() {
                attribute.data.encoding = value(start, "style").unwrap_or_default();
            }
            Open::Other
        }
        _ => Open::Other,
    }
}

/// The value of an attribute of an element.
fn value(start: &BytesStart<'_>, name: &str) -> Option<Vec<u8>> {
    let found = start.try_get_attribute(name).ok()??;
    (found.value.len() <= LONGEST).then(|| found.value.as_bytes().to_vec())
}

/// What an element inside of one of a file tells.
fn set(file: &mut File, inside: Open, name: &[u8], text: &[u8]) {
    let trimmed = text.trim_ascii();
    let number = || std::str::from_utf8(trimmed).ok()?.parse::<u64>().ok();
    let target = match inside {
        Open::Data => file.data.as_mut(),
        Open::Attribute => file.attributes.last_mut().map(|attribute| &mut attribute.data),
        _ => None,
    };
    if let (Some(data), Some(number)) = (target, number()) {
        match name {
            b"offset" => data.offset = number,
            b"length" => data.stored = number,
            b"size" => data.size = number,
            _ => {}
        }
    }
    match (inside, name) {
        (Open::Attribute, b"name") => {
            if let Some(attribute) = file.attributes.last_mut() {
                attribute.name = text.to_vec();
            }
        }
        (Open::Device, b"major") => file.major = number().unwrap_or_default() as u32,
        (Open::Device, b"minor") => file.minor = number().unwrap_or_default() as u32,
        (Open::File(_), b"name") => file.name = text.to_vec(),
        (Open::File(_), b"type") => file.kind = trimmed.to_vec(),
        (Open::File(_), b"link") => file.link = text.to_vec(),
        (Open::File(_), b"uid") => file.uid = number().unwrap_or_default(),
        (Open::File(_), b"gid") => file.gid = number().unwrap_or_default(),
        (Open::File(_), b"user") => file.user = trimmed.to_vec(),
        (Open::File(_), b"group") => file.group = trimmed.to_vec(),
        (Open::File(_), b"mode") => {
            let text = std::str::from_utf8(trimmed).unwrap_or_default();
            file.mode = u32::from_str_radix(text, 8).ok().map(|mode| mode & 0o7777);
        }
        (Open::File(_), b"mtime") => file.mtime = time(trimmed),
        (Open::File(_), b"atime") => file.atime = time(trimmed),
        (Open::File(_), b"ctime") => file.ctime = time(trimmed),
        _ => {}
    }
}

/// A character by its name or number.
fn resolved(name: &[u8]) -> Vec<u8> {
    let number = |digits: &[u8], base: u32| {
        let digits = std::str::from_utf8(digits).ok()?;
        char::from_u32(u32::from_str_radix(digits, base).ok()?)
    };
    let character = match name {
        b"amp" => Some('&'),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16),
        [b'#', digits @ ..] => number(digits, 10),
        _ => None,
    };
    character.map(|character| character.to_string().into_bytes()).unwrap_or_default()
}

/// A time in UTC: "2007-02-23T15:11:14Z", perhaps with parts of a second.
fn time(text: &[u8]) -> Option<Time> {
    let field = |from: usize, length: usize| {
        let digits = text.get(from..from.checked_add(length)?)?;
        let is_number = digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| std::str::from_utf8(digits).ok()?.parse::<i64>().ok())?
    };
    let day = [field(0, 4)?, field(5, 2)?, field(8, 2)?];
    let clock = [field(11, 2)?, field(14, 2)?, field(17, 2)?];
    let seconds = calendar::seconds_of(day, clock, 0)?;
    let mut nanoseconds = 0_u32;
    if text.get(19) == Some(&b'.') {
        let digits = text.get(20..)?.iter().take_while(|byte| byte.is_ascii_digit()).take(9);
        let (read, count) = digits.fold((0_u32, 0_u32), |(number, count), digit| {
            let next = number.saturating_mul(10).saturating_add(u32::from(digit.saturating_sub(b'0')));
            (next, count.saturating_add(1))
        });
        nanoseconds = read.saturating_mul(10_u32.saturating_pow(9_u32.saturating_sub(count)));
    }
    Some(Time { seconds, nanoseconds })
}

/// What is written in base64; `None` if something else is in it.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity((text.len() / 4).saturating_mul(3));
    let (mut word, mut bits) = (0_u32, 0_u32);
    for &letter in text.iter().filter(|letter| !letter.is_ascii_whitespace() && **letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter.wrapping_sub(b'A'),
            b'a'..=b'z' => letter.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => letter.wrapping_sub(b'0').wrapping_add(52),
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        word = word << 6 | u32::from(value);
        bits = bits.saturating_add(6);
        if bits >= 8 {
            bits = bits.saturating_sub(8);
            bytes.push((word >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_count_before_their_file_ends() {
        let toc = [&b"<xar><toc><file id=\"1\">"[..], &b"<ea/>".repeat(20_000)].concat();
        assert!(read(&toc, 1 << 20).unwrap_err().1.contains("bytes of memory"));
    }

    #[test]
    fn files_are_read_with_all_that_is_told_of_them() {
        let toc = br#"<?xml version="1.0" encoding="UTF-8"?><xar><toc><checksum style="sha1"><size>20</size></checksum>
            <file id="1"><name>a &amp; b&#65;</name><type>directory</type><mode>0755</mode>
            <file id="2"><data><offset>20</offset><length>11</length><size>3</size>
            <encoding style="application/x-gzip"/></data><ea id="0"><name>user.x</name><offset>31</offset><size>2</size>
            <length>2</length><encoding style="application/octet-stream"/></ea>
            <mtime>2007-02-23T15:11:14.5Z</mtime><type link="original">file</type><uid>501</uid><user>me</user>
            <name enctype="base64">aGk=</name></file></file>
            <file id="3"><type>block special</type><device><major>8</major><minor>1</minor></device><name>d</name></file>
            <file id="4"><type>symlink</type><link type="file">a b</link><name>l</name></file></toc></xar>"#;
        let files = read(toc, 1 << 20).unwrap();
        assert_eq!(files.len(), 4);
        assert_eq!((files[0].name.as_slice(), files[0].mode, files[0].parent), (&b"a & bA"[..], Some(0o755), None));
        assert_eq!((files[1].name.as_slice(), files[1].parent, files[1].uid), (&b"hi"[..], Some(0), 501));
        let data = files[1].data.as_ref().unwrap();
        assert_eq!((data.offset, data.stored, data.size, &data.encoding[..]), (20, 11, 3, &b"application/x-gzip"[..]));
        assert_eq!(files[1].attributes[0].name, b"user.x");
        assert_eq!(files[1].attributes[0].data.offset, 31);
        assert_eq!(files[1].mtime, Some(Time { seconds: 1_172_243_474, nanoseconds: 500_000_000 }));
        assert_eq!((files[1].original.as_slice(), files[1].user.as_slice()), (&b"original"[..], &b"me"[..]));
        assert_eq!((files[2].major, files[2].minor, files[2].kind.as_slice()), (8, 1, &b"block special"[..]));
        assert_eq!(files[3].link, b"a b");
        assert!(read(toc, 100).is_err());
        for length in 0..toc.len() {
            let _ = read(&toc[..length], 1 << 20);
        }
        let deep = b"<a>".repeat(DEEPEST + 1);
        assert!(read(&deep, 1 << 20).is_err());
    }
}
