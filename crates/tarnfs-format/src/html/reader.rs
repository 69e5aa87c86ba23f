//! Looks for data URLs in a page, from its start to its end.

use std::io;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tarnfs_source::{SharedSource, Slice};

use super::NAME;
use super::kinds::with_extension;
use super::place::{BEFORE, End, InString, LONGEST_HEAD, LOOKED_AT, Place, RawText, Said, saved_from};
use crate::image::{Teller, is_damage};
use crate::measure::{Encoding, Measure};
use crate::name::bounded_path;
use crate::window::Window;
use crate::{Body, Coder, Entry, Error, Kind, Options, Piece, ReceiveRandom, Step};

/// Bytes that are looked at together: less than the window has, which would be read again for each place otherwise.
const TOGETHER: usize = 64 << 10;

const BEHIND: usize = 4 << 10;

/// Bytes of contents that are decoded to name them.
const MOST_HASHED: u64 = 16 << 30;

/// Bytes before what may be a data URL that are looked at in vain, and so many more for each byte of the page. From
/// then on fewer are looked at: a tag that begins further away is not seen.
const MOST_IN_VAIN: u64 = LOOKED_AT as u64;
const FOR_EACH_BYTE: u64 = 4;

/// What undoes what addresses and pages have for characters.
const IN_PAGES: u8 = 1;
const IN_ADDRESSES: u8 = 2;
const BASE64: u8 = 4;
const IN_STRINGS: u8 = 8;
const IN_STYLES: u8 = 16;

/// Bytes of base64 that are looked at together.
const OF_BASE64: usize = 256;

/// Bytes of a character's name, as the decoder takes them.
const LONGEST_NAME: usize = 12;

struct Page<'s> {
    source: &'s SharedSource,
    window: Window<'s>,
    options: &'s Options,
    hashed: u64,
    /// What ends no content from some byte on, and whether that is passed where a backslash stands before it.
    endless: Vec<(End, bool)>,
    /// From some byte on no comment ends: none begins there.
    has_no_comments: bool,
    raw: RawText,
    /// Behind a content that is one of several in an attribute: where, and the quote that ends that.
    others: Option<(u64, u8)>,
    /// Bytes before what may be a data URL that were looked at, and none was there.
    in_vain: u64,
    /// Bytes in which ends of contents were looked for.
    #[cfg(test)]
    searched: u64,
}

pub(super) fn read(source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
    let mut page = Page::new(source, options);
    if page.files(&mut Teller::new(receive))? {
        return Ok(());
    }
    Err(Error::NotThisFormat { format: NAME, reason: "no file is in it: it has no data URLs".to_owned() })
}

/// What is known of a content once its end was found.
struct Content {
    end: u64,
    measure: Measure,
    has_ampersand: bool,
    has_percent: bool,
    has_backslash: bool,
}

/// How far `part` may be base64 in `place`. What follows is another address, or what a script does with it.
fn base64_in(part: &[u8], place: &Place) -> usize {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let mut at = 0_usize;
    let has_blanks = !place.is_one_of_several && place.end != End::Blank;
    for chunk in part.chunks(OF_BASE64) {
        // Nearly all of them have nothing else; all of one are looked at without a branch.
        if chunk.iter().fold(true, |is_all, byte| is_all & is_plain(*byte)) {
            at = at.saturating_add(chunk.len());
            continue;
        }
        for byte in chunk {
            let is_part = is_plain(*byte)
                || match byte {
                    b'=' | b'%' => true,
                    // The name of a character: "&#10;". The start of one may be in what came before.
                    b'&' => place.is_in_tag,
                    b'#' => place.is_in_tag && at.checked_sub(1).is_none_or(|at| part.get(at) == Some(&b'&')),
                    b';' => {
                        let start = at.saturating_sub(LONGEST_NAME);
                        let before = part.get(start..at).unwrap_or_default();
                        place.is_in_tag && (start == 0 || memchr::memchr(b'&', before).is_some())
                    }
                    b'\\' => matches!(place.end, End::Quote(_)) && place.attribute.is_none(),
                    // Nothing that ends a content is a part of it.
                    blank => blank.is_ascii_whitespace() && has_blanks,
                };
            if !is_part {
                return at;
            }
            at = at.saturating_add(1);
        }
    }
    at
}

/// Where in `bytes` the string ends that `quote` ends. `is_escape` if what stands before them makes the first of them a
/// part of it; so of what follows them.
fn end_of_string(bytes: &[u8], quote: u8, is_escape: &mut bool) -> Option<usize> {
    let mut free = usize::from(*is_escape);
    for place in memchr::memchr2_iter(quote, b'\\', bytes) {
        if place < free {
            continue;
        }
        if bytes.get(place) == Some(&quote) {
            return Some(place);
        }
        free = place.saturating_add(2);
    }
    *is_escape = free > bytes.len();
    None
}

impl<'s> Page<'s> {
    fn new(source: &'s SharedSource, options: &'s Options) -> Self {
        Self {
            source,
            window: Window::new(&**source, &options.cancel),
            options,
            hashed: 0,
            endless: Vec::new(),
            has_no_comments: false,
            raw: RawText::default(),
            others: None,
            in_vain: 0,
            #[cfg(test)]
            searched: 0,
        }
    }

    /// Tells all of them; false if there are none.
    fn files(&mut self, tell: &mut Teller<'_>) -> Result<bool, Error> {
        let failed = |offset| move |error| Error::Read { offset, error };
        let (mut at, mut found) = (0, false);
        while let Some(start) = self.next(at).map_err(failed(at))? {
            self.options.cancel.check().map_err(failed(start))?;
            at = start.saturating_add(5);
            let Some((entry, end)) = self.file(start).map_err(failed(start))? else { continue };
            (at, found) = (end, true);
            tell.entry(entry)?;
        }
        Ok(found)
    }

    /// Where the next one may begin, from byte `at` on, that is in no comment.
    fn next(&mut self, mut at: u64) -> io::Result<Option<u64>> {
        let end = self.source.len();
        // Where the comment began.
        let mut in_comment = None;
        while at < end {
            self.options.cancel.check()?;
            let bytes = self.window.bytes(at, end, TOGETHER)?;
            let (mut from, mut found) = (0_usize, None::<usize>);
            loop {
                let rest = bytes.get(from..).unwrap_or_default();
                if in_comment.is_some() {
                    let Some(place) = memchr::memmem::find(rest, b"-->") else { break };
                    (from, in_comment) = (from.saturating_add(place).saturating_add(3), None);
                    continue;
                }
                // Looked for once, however many comments stand before it.
                if found.is_none_or(|found| found < from) {
                    let place = memchr::memmem::find(rest, b"data:").unwrap_or(rest.len());
                    found = Some(from.saturating_add(place));
                }
                let found = found.unwrap_or(bytes.len());
                let before = bytes.get(from..found).unwrap_or_default();
                let comment = if self.has_no_comments { None } else { memchr::memmem::find(before, b"<!--") };
                if let Some(place) = comment {
                    self.raw.pass(before, place);
                    // In a script and in the value of an attribute it is text.
                    let value = before.get(..place).and_then(|before| before.split_last());
                    let value = value.filter(|(quote, _)| matches!(quote, b'"' | b'\''));
                    let is_value = value.is_some_and(|(_, before)| before.trim_ascii_end().ends_with(b"="));
                    from = from.saturating_add(place).saturating_add(4);
                    let is_text = is_value || self.raw.is_open();
                    in_comment = (!is_text).then(|| at.saturating_add(from as u64));
                    continue;
                }
                if found >= bytes.len() {
                    break;
                }
                self.raw.pass(before, before.len());
                return Ok(Some(at.saturating_add(found as u64)));
            }
            if bytes.len() < TOGETHER {
                // One that does not end is none: in a script it is text.
                let Some(begun) = in_comment.take() else { return Ok(None) };
                self.has_no_comments = true;
                at = begun;
                continue;
            }
            // A mark may go on in what follows, and what is before it counts.
            let passed = bytes.len().saturating_sub(LONGEST_HEAD).max(from);
            if in_comment.is_none() {
                self.raw.pass(bytes.get(from..).unwrap_or_default(), passed.saturating_sub(from));
            }
            at = at.saturating_add(passed as u64);
        }
        Ok(None)
    }

    /// The file of the data URL at byte `start`, if it is one, and where that ends.
    fn file(&mut self, start: u64) -> io::Result<Option<(Entry, u64)>> {
        let end = self.source.len();
        let Some(said) = Said::of(self.window.bytes(start, end, LONGEST_HEAD)?) else { return Ok(None) };
        let most = MOST_IN_VAIN.saturating_add(end.saturating_mul(FOR_EACH_BYTE));
        let length = if self.in_vain > most { LONGEST_HEAD } else { BEFORE };
        let from = start.saturating_sub(length as u64);
        let before = self.window.bytes(from, start, length)?.to_vec();
        let others = self.others.and_then(|(at, quote)| {
            // The attribute itself may begin too far before it.
            let between = usize::try_from(at.checked_sub(from)?).ok().and_then(|at| before.get(at..))?;
            let last = between.last()?;
            let is_next = last.is_ascii_whitespace() || *last == b',';
            (is_next && memchr::memchr(quote, between).is_none()).then(|| Place::among_others(quote))
        });
        let is_raw = self.raw.is_open();
        let Some(place) = others.or_else(|| Place::of(&before, is_raw)) else {
            self.in_vain = self.in_vain.saturating_add(before.len() as u64);
            return Ok(None);
        };
        let offset = start.saturating_add(said.length as u64);
        let content = self.content(offset, &place, said.is_base64)?;
        let Some(content) = content.filter(|content| content.end > offset) else { return Ok(None) };
        self.others = match place.end {
            End::Quote(quote) if place.is_one_of_several => Some((content.end, quote)),
            _ => None,
        };
        let stored = content.end.saturating_sub(offset);
        let mut address = place.address;
        if let (None, Some(attribute)) = (&address, &place.attribute) {
            let behind = self.window.bytes(content.end, end, BEHIND)?;
            let tag = memchr::memchr(b'>', behind).and_then(|end| behind.get(..end)).unwrap_or_default();
            address = saved_from(tag, attribute);
        }
        let in_style = self.raw.is_style();
        let mut flags = 0;
        for (is_there, flag) in [
            (content.has_ampersand && place.is_in_tag, IN_PAGES),
            (content.has_percent, IN_ADDRESSES),
            (said.is_base64, BASE64),
            (content.has_backslash && !in_style, IN_STRINGS),
            (content.has_backslash && in_style, IN_STYLES),
        ] {
            flags |= if is_there { flag } else { 0 };
        }
        let (mut size, mut step) = content.measure.finish(stored);
        let mut hash = Sha256::new();
        let is_untold = flags & (IN_PAGES | IN_ADDRESSES | IN_STRINGS | IN_STYLES) != 0;
        if is_untold {
            step = Some(Step { codec: "data-url".to_owned(), properties: vec![flags], ..Step::default() });
        }
        if is_untold || address.is_none() {
            match self.counted(offset, stored, step.as_ref(), &mut hash) {
                Ok(counted) => size = counted,
                Err(error) if is_damage(&error) || error.kind() == io::ErrorKind::Unsupported => {
                    // It has no other name then.
                    hash.update(offset.to_le_bytes());
                    size = if is_untold { 0 } else { size };
                }
                Err(error) => return Err(error),
            }
        }
        let name = address.unwrap_or_else(|| {
            hash.finalize()
                .iter()
                .flat_map(|byte| [byte >> 4, byte & 15])
                .filter_map(|digit| char::from_digit(digit.into(), 16))
                .collect()
        });
        let path = bounded_path(with_extension(name, &said.kind).into_bytes(), self.options.limits.path);
        let coder = step.map(|step| Arc::new(Coder { steps: vec![step], is_behind_header: None }));
        let piece = Piece { length: size, offset, stored, coder, decoded: size, ..Piece::default() };
        let body = Body { offset: start, size, pieces: (size > 0).then(|| vec![piece]), ..Body::default() };
        let entry = Entry { path, kind: Kind::File, mode: 0o644, header: start, body, ..Entry::default() };
        Ok(Some((entry, content.end)))
    }

    /// How far the content at byte `offset` goes; `None` if it has no end.
    fn content(&mut self, offset: u64, place: &Place, is_base64: bool) -> io::Result<Option<Content>> {
        let end = place.end;
        let has_escapes = place.string != InString::No && !is_base64;
        let passes_escapes = place.string == InString::All && !is_base64;
        // Looked for once: many may begin, and none end.
        if self.endless.contains(&(end, passes_escapes)) {
            return Ok(None);
        }
        let encoding = if is_base64 { Encoding::Base64 } else { Encoding::None };
        let measure = Measure::new(encoding);
        let (has_ampersand, has_percent, has_backslash) = (false, false, false);
        let mut content = Content { end: offset, measure, has_ampersand, has_percent, has_backslash };
        let all = self.source.len();
        let mut is_escape = false;
        loop {
            self.options.cancel.check()?;
            let bytes = self.window.bytes(content.end, all, TOGETHER)?;
            let found = match end {
                // To look for its end first would cost much where little before that is base64.
                _ if is_base64 => Some(base64_in(bytes, place)).filter(|length| *length < bytes.len()),
                End::Quote(quote) if passes_escapes => end_of_string(bytes, quote, &mut is_escape),
                End::Quote(quote) if place.is_one_of_several => {
                    bytes.iter().position(|byte| *byte == quote || byte.is_ascii_whitespace())
                }
                End::Quote(quote) => memchr::memchr(quote, bytes),
                End::Parenthesis => memchr::memchr(b')', bytes),
                End::Blank => bytes.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'>'),
            };
            let mut part = bytes.get(..found.unwrap_or(bytes.len())).unwrap_or_default();
            #[cfg(test)]
            {
                self.searched = self.searched.saturating_add(part.len() as u64);
            }
            if is_base64 {
                if found.is_some() && part.ends_with(b"\\") {
                    // Of the quote behind it.
                    part = part.get(..part.len().saturating_sub(1)).unwrap_or_default();
                }
                content.has_backslash |= memchr::memchr(b'\\', part).is_some();
            } else if found.is_some() && place.is_one_of_several {
                // It parts them.
                part = part.strip_suffix(b",").unwrap_or(part);
            } else if has_escapes {
                if found.is_some() && !passes_escapes {
                    // Of the quote behind it.
                    part = part.strip_suffix(b"\\").unwrap_or(part);
                } else if found.is_none() && !passes_escapes && bytes.len() == TOGETHER {
                    // What follows may be the quote that it belongs to.
                    part = part.strip_suffix(b"\\").unwrap_or(part);
                }
                content.has_backslash |= memchr::memchr(b'\\', part).is_some();
            }
            content.measure.text(part);
            content.has_ampersand |= memchr::memchr(b'&', part).is_some();
            content.has_percent |= memchr::memchr(b'%', part).is_some();
            content.end = content.end.saturating_add(part.len() as u64);
            if found.is_some() {
                return Ok(Some(content));
            }
            if bytes.len() < TOGETHER {
                self.endless.push((end, passes_escapes));
                return Ok(None);
            }
        }
    }

    /// How many bytes a content has, all of which go into `hash`.
    fn counted(&mut self, offset: u64, stored: u64, step: Option<&Step>, hash: &mut Sha256) -> io::Result<u64> {
        let source: SharedSource = Arc::new(Slice::new(SharedSource::clone(self.source), offset, stored));
        self.hashed = self.hashed.saturating_add(stored);
        if self.hashed > MOST_HASHED {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut size = 0_u64;
        let mut take = |part: &[u8]| {
            size = size.saturating_add(part.len() as u64);
            hash.update(part);
            Ok(())
        };
        if let Some(step) = step {
            self.options.decode.each(step, source, &self.options.cancel, &mut take)?;
        } else {
            let mut buffer = vec![0; TOGETHER.min(usize::try_from(stored).unwrap_or(TOGETHER))];
            let mut at = 0;
            while at < stored {
                self.options.cancel.check()?;
                let read = source.read_at(&mut buffer, at)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                take(buffer.get(..read).unwrap_or_default())?;
                at = at.saturating_add(read as u64);
            }
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use tarnfs_source::MemorySource;
    use tarnfs_source::testing::CountedSource;

    use super::*;
    use crate::{Decode, Event};

    /// A codec with its properties.
    type Told = (String, Vec<u8>);

    /// What is stored of each file in a page, and what decodes it.
    fn files(page: &str) -> Vec<(String, Option<Told>)> {
        let source: SharedSource = Arc::new(MemorySource::new(page.as_bytes(), "a page"));
        let mut files = Vec::new();
        let mut receive = |event| {
            if let Event::Entry(entry) = event {
                let pieces = entry.body.pieces.unwrap_or_default();
                let stored = pieces.first().map(|piece| &page[piece.offset as usize..][..piece.stored as usize]);
                let coder = pieces.first().and_then(|piece| piece.coder.clone());
                let step = coder.map(|coder| (coder.steps[0].codec.clone(), coder.steps[0].properties.clone()));
                files.push((stored.unwrap_or_default().to_owned(), step));
            }
            Ok(())
        };
        let decode = Decode::default().with_each(|_, _, _, take| take(b"decoded"));
        let _ = read(&source, &Options { decode, ..Options::default() }, &mut receive);
        files
    }

    fn stored(page: &str) -> Vec<String> {
        files(page).into_iter().map(|(stored, _)| stored).collect()
    }

    /// What stands behind base64 in the same quotes is none of it.
    #[test]
    fn base64_ends_where_it_does() {
        const PNG: &str = "data:image/png;base64,";
        for (page, expected) in [
            (format!("<img srcset=\"{PNG}QUJD 1x, {PNG}REVG 2x\">"), &["QUJD", "REVG"][..]),
            (format!("<img srcset=\"a.png 1x, {PNG}QUJD 1x,b 2x,{PNG}REVG 2x\">"), &["QUJD", "REVG"]),
            ("<img srcset=\"data:,a 1x, data:,b, data:,c\"> data:,d".to_owned(), &["a", "b", "c"]),
            (
                format!("<img srcset=\"{PNG}{} 1x, {PNG}REVG 2x\">", "QUJD".repeat(9000)),
                &[&"QUJD".repeat(9000), "REVG"],
            ),
            (format!("<img srcset=\"{PNG}QUJD 1x\" alt=', {PNG}REVG'>"), &["QUJD"]),
            (format!("<img src=\"{PNG}QU\nJD\">"), &["QU\nJD"]),
            (format!("<img src=\"{PNG}QUI#fragment\">"), &["QUI"]),
            (format!("<img src=\"{PNG}QUI=?x\">"), &["QUI="]),
            (format!("<script>s='{PNG}QUI\\x3d'"), &["QUI\\x3d"]),
            (format!("<script>s='{PNG}QUI#x'"), &["QUI"]),
            (format!("<script>s='<img src=\\\"{PNG}QUJD\\\">'"), &["QUJD"]),
            (format!("<script>s='{PNG}${{x}}', t=\"{PNG}QUJD\""), &["QUJD"]),
        ] {
            assert_eq!(stored(&page), expected, "{page}");
        }
    }

    /// How many files a page has, and how many bytes were read for them, searched for their ends, and looked at in
    /// vain.
    fn work(page: &str) -> (u64, u64, u64, u64) {
        let counted = Arc::new(CountedSource::new(Arc::new(MemorySource::new(page.as_bytes(), "a page"))));
        let source: SharedSource = Arc::<CountedSource>::clone(&counted);
        let options = Options::default();
        let mut page = Page::new(&source, &options);
        let mut files = 0;
        page.files(&mut Teller::new(&mut |_| {
            files += 1;
            Ok(())
        }))
        .unwrap();
        let (searched, in_vain) = (page.searched, page.in_vain);
        (files, counted.bytes(), searched, in_vain)
    }

    /// What ends the short content of very many may be far away, in all of the ways in which one may end.
    #[test]
    fn ends_of_base64_are_not_looked_for_far_away() {
        const COUNT: usize = 20_000;
        for part in
            ["<a b=data:/;base64,AAAA*", "\ndata:/;base64,AAAA*", "'data:/;base64,AAAA*", "url(data:/;base64,AAAA*"]
        {
            let page = format!("<html>{}<img srcset=\"{}", "'".repeat(9000), part.repeat(COUNT));
            let (files, read, searched, _) = work(&page);
            assert!(files >= COUNT as u64 - 1, "{part:?}: {files}");
            // Of each content some is read again to name it.
            let length = page.len() as u64;
            assert!(read <= 8 * length, "{part:?}: {read} bytes read of {length}");
            assert!(searched <= length, "{part:?}: {searched} bytes searched of {length}");
        }
    }

    /// Where very many seem to begin that are none, few bytes before each are looked at, and others are found still.
    #[test]
    fn few_bytes_are_looked_at_in_vain() {
        const COUNT: usize = 40_000;
        let page = format!("<html>{}<img src=\"data:,x\">", "x data:/,".repeat(COUNT));
        let (files, read, _, in_vain) = work(&page);
        let length = page.len() as u64;
        assert_eq!(files, 1);
        assert!(read <= 8 * length, "{read} bytes read of {length}");
        let most = MOST_IN_VAIN + length * FOR_EACH_BYTE + ((COUNT + 1) * LONGEST_HEAD + BEFORE) as u64;
        assert!((MOST_IN_VAIN..most).contains(&in_vain), "{in_vain}");
    }

    #[test]
    fn characters_are_undone_where_they_are_written() {
        let flags = |page: &str| files(page)[0].1.as_ref().map(|(codec, flags)| (codec.clone(), flags.clone()));
        let url = |flags: u8| Some(("data-url".to_owned(), vec![flags]));
        // A style sheet has them as they are.
        assert_eq!(flags("<style>a{b:url('data:image/svg+xml;utf8,A &amp; B')}</style>"), None);
        assert_eq!(flags("<style>a{b:url('data:image/svg+xml;utf8,A &amp;%20B')}</style>"), url(2));
        assert_eq!(flags("<p style=\"a:url('data:image/svg+xml;utf8,A &amp; B')\">"), url(1));
        assert_eq!(flags("<img src=\"data:text/plain,A &amp; B\">"), url(1));
        assert_eq!(flags("<script>s='data:image/png;base64,QU\\/D\\x3d'"), url(12));
        assert_eq!(flags("<script>s='data:image/png;base64,QUJD'").unwrap().0, "mime-base64");
        assert_eq!(flags("<script>s='data:text/plain,a\\u003db'"), url(8));
        assert_eq!(flags("<script>s='data:text/plain,a%20b'"), url(2));
        // Elsewhere it is a letter.
        assert_eq!(flags("<p>'data:text/plain,a\\u003db'"), None);
    }

    /// A quote behind a backslash is a part of the string, unless one like it begins what is looked at.
    #[test]
    fn strings_end_where_they_do() {
        const SVG: &str = "data:image/svg+xml,<svg";
        for (page, expected) in [
            (format!("<script>s=\"{SVG} a=\\\"b\\\"/>\", t=\"{SVG}>\"</script>"), &["<svg a=\\\"b\\\"/>", "<svg>"][..]),
            (format!("<script>s=\"<p style='{SVG} a=\\\"b\\\"/>'\"</script>"), &["<svg a=\\\"b\\\"/>"]),
            (format!("<script>s=\"<img src=\\\"{SVG}/>\\\">\"</script>"), &["<svg/>"]),
            (format!("<script>s='{SVG} \\\\'; t='{SVG}>'</script>"), &["<svg \\\\", "<svg>"]),
            (format!("<style>a{{b:url(\"{SVG} a=\\\"b\\\"/>\")}}</style>"), &["<svg a=\\\"b\\\"/>"]),
            (format!("<p>\"{SVG} a=\\\" b\""), &["<svg a=\\"]),
            (format!("<img src=\"{SVG} a=\\\" b=\">"), &["<svg a=\\"]),
            // One that has no end hides none of another kind.
            (format!("<script>s='{SVG}\\'</script><img src=\"{SVG}>\">"), &["<svg>"]),
        ] {
            assert_eq!(stored(&page), expected, "{page}");
        }
        // Wherever the bytes that are looked at together end.
        for length in TOGETHER - 14..TOGETHER {
            let text = format!("<svg {}\\\\\\\"/>", "x".repeat(length));
            assert_eq!(stored(&format!("<script>s=\"data:image/svg+xml,{text}\"")), [text.as_str()], "{length}");
        }
    }

    #[test]
    fn comments_do_not_begin_in_quotes_and_have_an_end() {
        let image = "<img src='data:,x'>";
        for (page, count) in [
            (format!("{image}<!-- {image} -->{image}"), 2),
            (format!("<p>he said \"<!-- {image} -->\"{image}"), 1),
            (format!("<p title=\"<!--\">{image}{image}"), 2),
            (format!("<script><!-- x={image} --></script>{image}"), 2),
            (format!("<script>{}x(\"<!--\")</script>{image}{image}", " ".repeat(TOGETHER)), 2),
            (format!("<script>x</script>\"<!-- {image} -->\"{image}"), 1),
            (format!("{image}<script>var empty=\"<!--\";</script>{image}{image}"), 3),
            (format!("{image}<style>a{{content:'<!--'}}</style>{image}<!-- -->{image}"), 3),
            (format!("{image}<script>if (/<!--/.test(x)) y;</script>{image}{image}"), 3),
            (format!("{image}<!-- {}{image}<!-- {image}", " ".repeat(TOGETHER)), 3),
            (format!("{image}<!-- {}{image}-->{image}", " ".repeat(TOGETHER)), 2),
        ] {
            assert_eq!(stored(&page).len(), count, "{}", &page[..100.min(page.len())]);
        }
    }
}
