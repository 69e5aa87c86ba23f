//! What stands before the text of a file.

use std::io;

use tarnfs_source::Source;

/// Bytes in which the text has to begin.
const LONGEST: usize = 4 << 10;

/// The line that begins a file: "begin 644 name".
pub(super) struct Begin<'h> {
    pub(super) name: &'h [u8],
    /// Where the first line of text is.
    pub(super) length: usize,
    /// Fields stand before it: it may be mail, which has more than that text.
    pub(super) has_fields: bool,
}

/// What the line gets behind fields: less than mail, and enough for what is no more than such text.
pub(super) const BEHIND_FIELDS: u32 = 24;

/// True of a line that begins a field, as mail has them before its text.
fn is_field(line: &[u8]) -> bool {
    let colon = line.iter().position(|&byte| byte == b':');
    let name = colon.and_then(|colon| line.get(..colon)).unwrap_or_default();
    !name.is_empty() && name.iter().all(u8::is_ascii_graphic)
}

/// True of a line that goes on with a field, if one stands before it.
fn is_more(line: &[u8]) -> bool {
    line.first().is_some_and(u8::is_ascii_whitespace)
}

/// True of a line as mail has them before its text: a field, one that goes on, or an empty one.
fn is_of_mail(line: &[u8]) -> bool {
    line.trim_ascii_end().is_empty() || is_field(line) || is_more(line)
}

/// The line that begins with `mark` and permissions, at the start of `head` or behind fields.
pub(super) fn begin<'h>(head: &'h [u8], mark: &[u8]) -> Option<Begin<'h>> {
    let (mut length, mut has_fields) = (0, false);
    for line in head.get(..LONGEST.min(head.len()))?.split_inclusive(|&byte| byte == b'\n') {
        length += line.len();
        let Some(rest) = line.strip_prefix(mark) else {
            if is_of_mail(line) {
                has_fields |= is_field(line);
                continue;
            }
            return None;
        };
        let blank = rest.iter().position(|&byte| byte == b' ')?;
        let (mode, name) = rest.split_at_checked(blank)?;
        let is_mode = (3..=4).contains(&mode.len()) && mode.iter().all(|digit| matches!(digit, b'0'..=b'7'));
        let name = name.trim_ascii();
        return (is_mode && !name.is_empty() && line.ends_with(b"\n")).then_some(Begin { name, length, has_fields });
    }
    None
}

/// In words, what stands before the text of a file, and is none of it.
pub(super) fn before(source: &dyn Source, mark: &[u8]) -> io::Result<Vec<String>> {
    let mut head = vec![0; LONGEST];
    let read = source.read_at(&mut head, 0)?;
    head.truncate(read);
    let has_fields = match begin(&head, mark) {
        Some(begin) => begin.has_fields,
        None => start(source, mark)? > 0,
    };
    Ok(if has_fields { vec!["the header fields before its text".to_owned()] } else { Vec::new() })
}

/// Where the text of a file begins: behind such a line, behind fields and an empty line, or at its start.
pub(super) fn start(source: &dyn Source, mark: &[u8]) -> io::Result<u64> {
    let mut head = vec![0; LONGEST];
    let read = source.read_at(&mut head, 0)?;
    head.truncate(read);
    if let Some(begin) = begin(&head, mark) {
        return Ok(begin.length as u64);
    }
    // A line that begins with a blank is text, unless a field stands before it: some indent what they encode.
    let (mut length, mut has_field) = (0, false);
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        length += line.len();
        if has_field && line.trim_ascii().is_empty() {
            return Ok(length as u64);
        }
        if !(is_field(line) || has_field && is_more(line)) {
            return Ok(0);
        }
        has_field = true;
    }
    Ok(0)
}
