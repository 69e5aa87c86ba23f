//! What an archive has that is in no member: a comment, a program before them, what lies between them, comments on
//! single ones, and what else headers say of them.

use std::io;

use tarnfs_source::{Cancel, Source};

use super::bytes::{u16_at, u32_at, u64_at};
use super::central::{Central, Walk};
use super::end::{self, Directory, End};
use super::extra;
use super::local::Local;
use super::member::{FLAG_DESCRIPTOR, hides_content, is_hidden};
use super::reader::{offset, shift};
use crate::Unlisted;
use crate::name::excerpt;
use crate::window::Window;

/// What EPUB and OpenDocument have first, stored as it is, so that who looks at the first bytes knows what it is.
const MUST_BE_FIRST: &[u8] = b"mimetype";

/// What volumes of an archive, and one that was to become several and did not, begin with: it says nothing else.
const MARKS: [&[u8; 4]; 2] = [b"PK\x07\x08", b"PK00"];

/// See [`crate::Format::unlisted`].
pub(super) fn unlisted(source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
    let mut found = Unlisted::default();
    let End::Directory(mut directory) = end::find(source, cancel)? else { return Ok(Unlisted::unknown()) };
    let mut walk = Walk::new(Window::new(source, cancel), directory.range.clone());
    let (mut first, mut lowest, mut commented) = (None, None::<(u64, Vec<u8>)>, 0_u64);
    while let Some(header) = walk.next_header()? {
        commented = commented.saturating_add(u64::from(header.has_comment()));
        let Some(at) = offset(&header, &directory) else { continue };
        first.get_or_insert(at);
        if lowest.as_ref().is_none_or(|(before, _)| at < *before) {
            lowest = Some((at, header.name().to_vec()));
        }
    }
    // A signature of it (APPNOTE 4.3.13) may be in its range or behind that.
    let behind_headers = walk.left();
    directory.shift = shift(source, &directory, first)?;
    let (start, name) = match &lowest {
        Some((at, name)) => (at.saturating_add_signed(directory.shift), name.as_slice()),
        // It has no members.
        None => (directory.range.start, &b""[..]),
    };
    if start > 0 && !is_mark(source, start)? {
        found.others.push(format!("{start} bytes before its first file"));
    }
    if name == MUST_BE_FIRST {
        found.others.push(format!("'{}' as its first file, which says of what kind it is", excerpt(name)));
    }
    found.others.extend(beside(source, &mut walk, &directory, start, cancel)?);
    match commented {
        0 => {}
        1 => found.others.push("the comment on one of its files".to_owned()),
        more => found.others.push(format!("comments on {more} of its files")),
    }
    let Ending { comment, start, end } = ending(source, &directory)?;
    let between = behind_headers.saturating_add(start.saturating_sub(directory.range.end));
    if between > 0 {
        found.others.push(format!("{between} bytes between its directory and its end"));
    }
    found.comment = comment;
    let behind = source.len().saturating_sub(end);
    if behind > 0 {
        found.others.push(format!("{behind} bytes behind its end"));
    }
    Ok(found)
}

/// What lies between members, of which the first one begins at byte `start`, and what their headers say that they do
/// not show.
fn beside(
    source: &dyn Source,
    walk: &mut Walk<'_>,
    directory: &Directory,
    start: u64,
    cancel: &Cancel,
) -> io::Result<Vec<String>> {
    let mut window = Window::new(source, cancel);
    window.jumps(true);
    let (mut stored, mut end, mut is_known, mut more, mut hidden) = (0_u64, start, true, 0_u64, 0_u64);
    walk.rewind();
    while let Some(header) = walk.next_header()? {
        let at = offset(&header, directory).and_then(|at| at.checked_add_signed(directory.shift));
        let member = at.map(|at| Local::read(&mut window, at, u64::MAX)).transpose()?.flatten();
        let extra = header.extra();
        let numbers = header.numbers(&extra);
        hidden =
            hidden.saturating_add(numbers.is_some_and(|numbers| hides_content(&header.head(), &extra, numbers)).into());
        let says_more = is_hidden(&header.head()) || extra::says_more(header.fields());
        let (Some(at), Some(local)) = (at, member) else {
            is_known = false;
            more = more.saturating_add(says_more.into());
            continue;
        };
        more = more.saturating_add((says_more || extra::says_more(local.extra)).into());
        let (content, has_descriptor) = (local.content, local.flags & FLAG_DESCRIPTOR != 0);
        let Some(behind) = end_of(&mut window, &header, content, has_descriptor)? else {
            is_known = false;
            continue;
        };
        (stored, end) = (stored.saturating_add(behind.saturating_sub(at)), end.max(behind));
    }
    let mut others = Vec::new();
    let between = end.saturating_sub(start).checked_sub(stored);
    match (between, directory.range.start.checked_sub(end)) {
        (Some(between), Some(before)) if is_known => {
            for (bytes, place) in [(between, "between its files"), (before, "between its files and its directory")] {
                others.extend((bytes > 0).then(|| format!("{bytes} bytes {place}")));
            }
        }
        _ => others.push("what may lie between its files, which cannot be told".to_owned()),
    }
    if hidden > 0 {
        others.push(format!("content of folders and the like, which is not shown ({hidden})"));
    }
    if more > 0 {
        others.push(format!("extra fields, or attributes of DOS, that are not shown ({more})"));
    }
    Ok(others)
}

/// Where the member ends whose content begins at byte `content`, with the sizes that may follow that.
fn end_of(
    window: &mut Window<'_>,
    header: &Central<'_>,
    content: u64,
    has_descriptor: bool,
) -> io::Result<Option<u64>> {
    let Some(numbers) = header.numbers(&header.extra()) else { return Ok(None) };
    let Some(end) = content.checked_add(numbers.stored) else { return Ok(None) };
    if !has_descriptor {
        return Ok(Some(end));
    }
    let bytes = window.bytes(end, u64::MAX, 24)?;
    // With its signature and without, and with numbers of eight bytes and of four, the longer ones first. Some have
    // none at all.
    let kinds = [(24, true), (16, true), (20, false), (12, false)];
    let length = kinds.into_iter().find_map(|(length, has_signature)| {
        let rest = bytes.get(..length)?;
        let numbers_at = if has_signature { rest.strip_prefix(b"PK\x07\x08")? } else { rest }.get(4..)?;
        let told = match numbers_at.len() {
            16 => (u64_at(numbers_at, 0), u64_at(numbers_at, 8)),
            _ => (u32_at(numbers_at, 0).into(), u32_at(numbers_at, 4).into()),
        };
        (told == (numbers.stored, numbers.size)).then_some(length)
    });
    Ok(end.checked_add(length.unwrap_or_default() as u64))
}

/// True if nothing but a mark is before byte `start`.
fn is_mark(source: &dyn Source, start: u64) -> io::Result<bool> {
    let mut head = [0; 4];
    if start != head.len() as u64 {
        return Ok(false);
    }
    source.read_exact_at(&mut head, 0)?;
    Ok(MARKS.contains(&&head))
}

/// What ends an archive: the comment on all of it, where its records begin, and where the comment ends.
struct Ending {
    comment: Vec<u8>,
    start: u64,
    end: u64,
}

/// The end of the archive with that directory: the first record behind that. One further back may stand in the comment.
fn ending(source: &dyn Source, directory: &Directory) -> io::Result<Ending> {
    /// What may stand between the directory and its end: records of zip64, with data of any program. Where there is
    /// more, the record that has told of the directory is the one.
    const BETWEEN: usize = 64 << 10;
    let (from, length) = (directory.range.end, source.len());
    let mut bytes = vec![0; length.saturating_sub(from).min((end::TAIL.saturating_add(BETWEEN)) as u64) as usize];
    source.read_exact_at(&mut bytes, from)?;
    let first = end::records(&bytes).last().map_or(u64::MAX, |record| from.saturating_add(record.at));
    let at = first.min(directory.record);
    let mut bytes = vec![0; length.saturating_sub(at).min(end::TAIL as u64) as usize];
    source.read_exact_at(&mut bytes, at)?;
    let rest = bytes.get(end::RECORD..).unwrap_or_default();
    let comment = rest.get(..u16_at(&bytes, end::COMMENT_LENGTH).into()).unwrap_or(rest).to_vec();
    let end = at.saturating_add(end::RECORD as u64).saturating_add(comment.len() as u64);
    Ok(Ending { comment, start: end::start(source, at)?, end })
}

#[cfg(test)]
mod tests {
    use tarnfs_source::MemorySource;

    use super::*;

    /// What is in an archive of two files, each stored as it is: bytes before the second one and before the directory,
    /// extra fields of the second one (of its local header, and in the directory), and its attributes of DOS.
    #[derive(Default)]
    struct Archive<'a> {
        between: &'a [u8],
        before: &'a [u8],
        local: &'a [u8],
        central: &'a [u8],
        attributes: u32,
        /// What follows the content of the second one, where its sizes do.
        descriptor: Option<&'a [u8]>,
        /// The second one is a folder.
        is_folder: bool,
        /// What follows the headers in the directory, and what follows that.
        signature: &'a [u8],
        behind: &'a [u8],
        /// Bytes that are stored of the second one, and those that come of them, where that are others.
        packed: Option<(&'a [u8], u32)>,
    }

    impl Archive<'_> {
        fn others(&self) -> Vec<String> {
            self.unlisted().others
        }

        fn unlisted(&self) -> Unlisted {
            let (mut bytes, mut directory) = (Vec::<u8>::new(), Vec::<u8>::new());
            let second = if self.is_folder { &b"b/"[..] } else { b"b" };
            for (name, local, central) in [(&b"a"[..], &b""[..], &b""[..]), (second, self.local, self.central)] {
                let is_second = name == second;
                if is_second {
                    bytes.extend(self.between);
                }
                let at = bytes.len() as u32;
                let descriptor = self.descriptor.filter(|_| is_second);
                let flags = if descriptor.is_some() { FLAG_DESCRIPTOR } else { 0 };
                let packed = self.packed.filter(|_| is_second);
                let (content, size) = packed.unwrap_or((b"text", 4));
                let sizes = [0, content.len() as u32, size].map(u32::to_le_bytes).concat();
                let method = if packed.is_some() { 8 } else { 0 };
                let common = |extra: &[u8]| {
                    let lengths = [name.len() as u16, extra.len() as u16].map(u16::to_le_bytes).concat();
                    let time = [method, 0, 0, 0, 0x21, 0];
                    [&[20, 0][..], &flags.to_le_bytes(), &time, &sizes, &lengths].concat()
                };
                bytes.extend([b"PK\x03\x04", &common(local)[..], name, local, content].concat());
                bytes.extend(descriptor.unwrap_or_default());
                let attributes = if is_second { self.attributes } else { 0 };
                directory.extend([b"PK\x01\x02\x14\0", &common(central)[..], &[0; 6]].concat());
                directory.extend([&attributes.to_le_bytes()[..], &at.to_le_bytes(), name, central].concat());
            }
            bytes.extend(self.before);
            directory.extend(self.signature);
            let places = [directory.len() as u32, bytes.len() as u32].map(u32::to_le_bytes).concat();
            let end = [&b"PK\x05\x06"[..], &[0, 0, 0, 0, 2, 0, 2, 0], &places, &[4, 0], b"note"].concat();
            let source = MemorySource::new([&bytes[..], &directory, self.behind, &end].concat(), "archive");
            unlisted(&source, &Cancel::default()).unwrap()
        }
    }

    #[test]
    fn what_lies_between_files_is_told() {
        assert_eq!(Archive::default().others(), Vec::<String>::new());
        let both = Archive { between: &[7; 30], before: b"APK Sig Block 42", ..Archive::default() };
        assert_eq!(both.others(), ["30 bytes between its files", "16 bytes between its files and its directory"]);
    }

    /// The digital signature of APPNOTE 4.3.13, in the range of the directory or behind it, or anything else.
    #[test]
    fn what_lies_between_the_directory_and_its_end_is_told() {
        let signature = [&b"PK\x05\x05\x58\x02"[..], &[7; 600]].concat();
        // So much is no longer looked through for the record.
        let long = vec![b'x'; 140_000];
        for (signature, behind) in [(&signature[..], &b""[..]), (b"", &signature), (b"", &[7; 30]), (b"", &long)] {
            let archive = Archive { signature, behind, ..Archive::default() };
            let found = archive.unlisted();
            let what = format!("{} bytes between its directory and its end", signature.len() + behind.len());
            assert_eq!((found.others, &found.comment[..]), (vec![what], &b"note"[..]));
        }
        assert_eq!(Archive::default().unlisted().comment, b"note");
    }

    /// Where a record of zip64 stands before the end, nothing does.
    #[test]
    fn a_record_of_zip64_is_no_data() {
        let record = [&b"PK\x06\x06"[..], &44_u64.to_le_bytes(), &[0; 44]].concat();
        let locator = [&b"PK\x06\x07"[..], &[0; 12], &[1, 0, 0, 0]].concat();
        let end = [&b"PK\x05\x06"[..], &[0; 18]].concat();
        let source = MemorySource::new([record, locator, end].concat(), "an archive without members");
        assert_eq!(unlisted(&source, &Cancel::default()).unwrap(), Unlisted::default());
    }

    /// Nothing comes of it, and more is stored than any method takes for that.
    #[test]
    fn content_that_is_packed_and_has_no_size_is_told() {
        let what = ["content of folders and the like, which is not shown (1)"];
        assert_eq!(Archive { packed: Some((&[7; 500], 0)), ..Archive::default() }.others(), what);
        assert_eq!(Archive { packed: Some((&[3, 0], 0)), ..Archive::default() }.others(), Vec::<String>::new());
    }

    /// A folder shows nothing of it.
    #[test]
    fn content_of_folders_is_told() {
        let folder = Archive { is_folder: true, ..Archive::default() };
        assert_eq!(folder.others(), ["content of folders and the like, which is not shown (1)"]);
    }

    /// The sizes that follow content belong to it.
    #[test]
    fn sizes_behind_a_file_are_its_own() {
        let (short, long) = ([0_u32, 4, 4].map(u32::to_le_bytes).concat(), [4_u64, 4].map(u64::to_le_bytes).concat());
        let long = [&[0; 4][..], &long].concat();
        let signed = |rest: &[u8]| [&b"PK\x07\x08"[..], rest].concat();
        for descriptor in [&short, &long, &signed(&short), &signed(&long), &Vec::new()] {
            let archive = Archive { descriptor: Some(descriptor), ..Archive::default() };
            assert_eq!(archive.others(), Vec::<String>::new(), "{} bytes", descriptor.len());
            let archive = Archive { before: b"more", ..archive };
            assert_eq!(archive.others(), ["4 bytes between its files and its directory"]);
        }
    }

    #[test]
    fn what_headers_say_that_is_not_shown_is_told() {
        let what = ["extra fields, or attributes of DOS, that are not shown (1)"];
        // An access list of Windows, and what some program has.
        for field in [&b"\x53\x44\x02\0ab"[..], b"\x34\x12\0\0"] {
            assert_eq!(Archive { local: field, ..Archive::default() }.others(), what);
            assert_eq!(Archive { central: field, ..Archive::default() }.others(), what);
        }
        for attributes in [2, 4, 6] {
            assert_eq!(Archive { attributes, ..Archive::default() }.others(), what);
        }
        // The time, a mark of Java, and zeros that align.
        for field in [&b"\x55\x54\x05\0\x01abcd"[..], b"\xfe\xca\0\0", &[0; 3], &[0; 9]] {
            let archive = Archive { local: field, central: field, attributes: 0x20, ..Archive::default() };
            assert_eq!(archive.others(), Vec::<String>::new());
        }
    }
}
