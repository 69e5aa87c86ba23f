//! What stands around a data URL, and what it says of itself.

use crate::Probe;

/// Bytes of a page before a data URL in which its name is looked for.
pub(super) const BEFORE: usize = 8 << 10;

/// Bytes of a data URL before its content, and of a tag behind one.
pub(super) const LONGEST_HEAD: usize = 512;

/// Signs before a data URL that may begin its tag, and tags that are looked at.
const MOST_STARTS: usize = 256;
const MOST_IN_VALUES: usize = 16;

/// Bytes of a page in which one is looked for before it is opened, and how many of them together.
const SEARCHED: u64 = 16 << 20;
const TOGETHER: usize = 256 << 10;

/// Bytes before what may be a data URL that are looked at until one is found. A page may have any number of them where
/// none may stand.
pub(super) const LOOKED_AT: usize = 64 << 20;

/// True if there is a data URL in the page. Of one that has to be decoded only the start is known.
pub(super) fn holds_files(probe: &Probe<'_>) -> bool {
    let Some(length) = probe.length() else {
        let head = probe.head();
        return [&b"data:"[..], b"savepage-"].iter().any(|mark| memchr::memmem::find(head, mark).is_some());
    };
    let (mut at, mut left) = (0, LOOKED_AT);
    while at < length.min(SEARCHED) {
        let bytes = probe.at(at, TOGETHER);
        for place in memchr::memmem::find_iter(&bytes, b"data:") {
            let (before, rest) = bytes.split_at_checked(place).unwrap_or_default();
            let before = before.get(before.len().saturating_sub(BEFORE)..).unwrap_or_default();
            // A comma further away is not its own, and would be looked for again for each of them.
            let rest = rest.get(..LONGEST_HEAD).unwrap_or(rest);
            if Said::of(rest).is_none() {
                continue;
            }
            if Place::of(before, false).is_some() {
                return true;
            }
            let Some(after) = left.checked_sub(before.len()) else { return false };
            left = after;
        }
        if bytes.len() < TOGETHER {
            break;
        }
        at = at.saturating_add(TOGETHER.saturating_sub(BEFORE) as u64);
    }
    false
}

/// Where one is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// What ends it.
    pub(super) end: End,
    /// The address that it was saved from.
    pub(super) address: Option<String>,
    /// The attribute whose value it is: its address may come behind it.
    pub(super) attribute: Option<String>,
    /// It is in a tag, where characters may have names (`&amp;`). In a script or a style sheet these are text.
    pub(super) is_in_tag: bool,
    /// It is one of several in an attribute, and ends before a blank.
    pub(super) is_one_of_several: bool,
    pub(super) string: InString,
}

/// Whether one is in a string of a script or a style sheet, where a backslash makes a quote a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InString {
    No,
    /// It is all of the string.
    All,
    /// The quote before it is a part of the string itself, and another one like that ends it.
    Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Quote(u8),
    Parenthesis,
    /// A blank, or the end of the tag.
    Blank,
}

impl Place {
    /// One that follows others in an attribute.
    pub(super) fn among_others(quote: u8) -> Self {
        Self { is_one_of_several: true, ..Self::new(End::Quote(quote), true, None, None) }
    }

    fn new(end: End, is_in_tag: bool, address: Option<String>, attribute: Option<String>) -> Self {
        let is_one_of_several = attribute.as_deref().is_some_and(has_several);
        Self { end, address, attribute, is_in_tag, is_one_of_several, string: InString::No }
    }

    /// That of a data URL that follows `before`; `None` if none may stand there. `is_raw` if it is in a script or a
    /// style sheet, as far as that is known.
    pub(super) fn of(before: &[u8], is_raw: bool) -> Option<Self> {
        let (last, rest) = before.split_last()?;
        match last {
            b'"' | b'\'' => {
                let (end, tag) = (End::Quote(*last), Tag::before(rest, is_raw));
                let string = match rest.ends_with(b"\\") {
                    _ if !is_raw => InString::No,
                    true => InString::Part,
                    false => InString::All,
                };
                if let Some(address) = in_style(rest) {
                    return Some(Self { string, ..Self::new(end, tag.is_open, address, None) });
                }
                match attribute(rest).filter(|_| tag.is_open) {
                    Some(name) if name.starts_with("data-savepage-") => None,
                    Some(name) => {
                        let address = saved_from(tag.text, &name);
                        Some(Self::new(end, tag.is_open, address, Some(name)))
                    }
                    None => Some(Self { string, ..Self::new(end, tag.is_open, None, None) }),
                }
            }
            b'(' => {
                let address = in_style(before)?;
                Some(Self::new(End::Parenthesis, Tag::before(before, is_raw).is_open, address, None))
            }
            b'=' => {
                let name = attribute(before)?;
                let tag = Tag::before(before, is_raw);
                let address = saved_from(tag.text, &name);
                tag.is_open.then(|| Self::new(End::Blank, true, address, Some(name)))
            }
            // Another address may stand before it: "a.png 1x, data:".
            last if last.is_ascii_whitespace() || *last == b',' => {
                // An address may have quotes of the other kind.
                let within = |quote: u8| {
                    let before = before.get(..memchr::memrchr(quote, before)?)?;
                    let is_one = has_several(&attribute(before)?) && Tag::before(before, is_raw).is_open;
                    is_one.then(|| Self::among_others(quote))
                };
                within(b'"').or_else(|| within(b'\''))
            }
            _ => None,
        }
    }
}

/// True of an attribute that has several addresses: `srcset`, `imagesrcset`, and what scripts make these of.
fn has_several(attribute: &str) -> bool {
    attribute.ends_with("srcset") && !attribute.starts_with("data-savepage-")
}

/// The last of some tags that go on to their end, which is that of all of them: `starts` has what follows where each
/// begins, the last one first. Those that are in a value alike at some place go on alike from there, so that only the
/// last one counts, and all of them are followed at once.
fn open<'b>(starts: &[&'b [u8]]) -> Option<&'b [u8]> {
    let all = starts.last()?;
    let mut following = starts.iter().rev().copied().peekable();
    // Between values, and in those with each kind of quotes.
    let (mut between, mut double, mut single) = (None, None, None);
    for place in memchr::memchr3_iter(b'>', b'"', b'\'', all) {
        let left = all.len().saturating_sub(place);
        while let Some(begun) = following.next_if(|start| start.len() > left) {
            between = Some(begun);
        }
        match all.get(place) {
            Some(b'>') => between = None,
            Some(b'"') => std::mem::swap(&mut between, &mut double),
            _ => std::mem::swap(&mut between, &mut single),
        }
    }
    let between = following.last().or(between);
    [between, double, single].into_iter().flatten().min_by_key(|start| start.len())
}

/// Whether `before` ends in "url(", and the address in the comment before that.
#[allow(clippy::option_option, reason = "a style may be one without a name")]
fn in_style(before: &[u8]) -> Option<Option<String>> {
    const MARK: &[u8] = b"savepage-url=";
    let rest = before.strip_suffix(b"url(")?;
    let address = (|| {
        let comment = rest.strip_suffix(b"*/")?;
        let start = memchr::memmem::rfind(comment, b"/*")?;
        let address = comment.get(start.checked_add(2)?..)?.strip_prefix(MARK)?;
        named(address)
    })();
    Some(address)
}

/// The name of the attribute whose value begins behind `before`, if that is in a tag.
fn attribute(before: &[u8]) -> Option<String> {
    let rest = before.trim_ascii_end().strip_suffix(b"=")?.trim_ascii_end();
    let is_of_name = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.');
    let length = rest.iter().rev().take_while(is_of_name).count();
    let start = rest.len().checked_sub(length)?;
    let name = rest.get(start..).filter(|name| !name.is_empty())?;
    // In a script, what stands there is a variable.
    let is_value =
        rest.get(start.checked_sub(1)?).is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\''));
    is_value.then(|| String::from_utf8_lossy(name).to_ascii_lowercase())
}

/// Where a tag may begin in `before`, from the last place on.
fn starts(before: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = memchr::memrchr_iter(b'<', before).take(MOST_STARTS);
    let rests = starts.filter_map(|start| before.get(start..));
    rests.filter(|rest| {
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':');
        let behind = rest.get(1..).unwrap_or_default();
        // In a script, `<` compares.
        let ends = behind.iter().find(|byte| !is_of_name(byte));
        behind.first().is_some_and(u8::is_ascii_alphabetic)
            && ends.is_none_or(|end| end.is_ascii_whitespace() || matches!(end, b'/' | b'>'))
    })
}

/// The tag before a place, from its start on.
struct Tag<'b> {
    text: &'b [u8],
    /// The place is in it.
    is_open: bool,
}

impl<'b> Tag<'b> {
    /// That before the end of `before`. There may be tags in values of its attributes.
    fn before(before: &'b [u8], is_raw: bool) -> Self {
        let starts: Vec<&[u8]> = starts(before).take(MOST_IN_VALUES).collect();
        let open = open(&starts);
        let text = open.or(starts.first().copied()).unwrap_or_default();
        // It may be a long one.
        let is_long = before.len() >= BEFORE.saturating_sub(LONGEST_HEAD);
        Self { text, is_open: open.is_some() || is_long && text.is_empty() && !is_raw }
    }
}

/// Elements in which there are neither tags nor comments (HTML 13.1.2.1).
const RAW: [&[u8]; 2] = [b"script", b"style"];

/// Whether such an element is open, for who passes over a page.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RawText {
    open: Option<&'static [u8]>,
}

impl RawText {
    pub(super) fn is_open(self) -> bool {
        self.open.is_some()
    }

    /// True in a style sheet, whose escapes are others than those of scripts.
    pub(super) fn is_style(self) -> bool {
        self.open == Some(b"style")
    }

    /// Passes over the first `length` of `bytes`: what begins there may go on in the others.
    pub(super) fn pass(&mut self, bytes: &[u8], length: usize) {
        let is_named = |rest: &[u8], name: &[u8]| {
            rest.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name))
                && !rest.get(name.len()).is_some_and(u8::is_ascii_alphanumeric)
        };
        for place in memchr::memchr_iter(b'<', bytes.get(..length).unwrap_or(bytes)) {
            let rest = bytes.get(place.saturating_add(1)..).unwrap_or_default();
            if let Some(name) = self.open {
                if rest.strip_prefix(b"/").is_some_and(|rest| is_named(rest, name)) {
                    self.open = None;
                }
            } else if let Some(name) = RAW.into_iter().find(|name| is_named(rest, name)) {
                let tag = rest.get(..LONGEST_HEAD).unwrap_or(rest);
                let end = memchr::memchr(b'>', tag).and_then(|end| tag.get(..end));
                // XHTML may have one that is empty.
                self.open = Some(name).filter(|_| !end.is_some_and(|tag| tag.ends_with(b"/")));
            }
        }
    }
}

/// The address that `text` has for an attribute: `data-savepage-src="..."`.
pub(super) fn saved_from(text: &[u8], attribute: &str) -> Option<String> {
    let mark = format!("data-savepage-{attribute}=");
    let lower = text.to_ascii_lowercase();
    let place = memchr::memmem::rfind(&lower, mark.as_bytes())?;
    let rest = text.get(place.checked_add(mark.len())?..)?;
    let (quote, rest) = rest.split_first()?;
    let length = match quote {
        b'"' | b'\'' => memchr::memchr(*quote, rest)?,
        _ => return None,
    };
    named(rest.get(..length)?)
}

/// An address that is a name.
fn named(address: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(address).replace("&amp;", "&");
    (!text.is_empty() && !text.starts_with("data:")).then_some(text)
}

/// What a data URL says before its content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) kind: String,
    pub(super) is_base64: bool,
    /// Bytes up to its content.
    pub(super) length: usize,
}

impl Said {
    /// That of the one at the start of `text`.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let rest = text.strip_prefix(b"data:")?;
        let comma = memchr::memchr(b',', rest)?;
        let said = rest.get(..comma)?;
        if said.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'<' | b'>')) {
            return None;
        }
        // Commas and blanks may be written as others write them in addresses.
        let said = String::from_utf8_lossy(said).replace("%3D", "=").replace("\\/", "/").to_ascii_lowercase();
        let mut parts = said.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        if !kind.is_empty() && !kind.contains('/') {
            return None;
        }
        let is_base64 = parts.next_back() == Some("base64");
        let kind = if kind.is_empty() { "text/plain" } else { kind };
        let length = comma.checked_add(6)?;
        Some(Self { kind: kind.to_owned(), is_base64, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_save_page_we_gives() {
        for (before, end, address) in [
            ("<p><img data-savepage-src=\"/a/b.png\" src=\"", End::Quote(b'"'), Some("/a/b.png")),
            ("<img data-savepage-src='x?a=1&amp;b' SRC = '", End::Quote(b'\''), Some("x?a=1&b")),
            ("<img data-savepage-href=\"y\" src=\"", End::Quote(b'"'), None),
            ("<img src=", End::Blank, None),
            ("a{b:/*savepage-url=../f.woff*/url(", End::Parenthesis, Some("../f.woff")),
            ("a{b:/*savepage-url=../f.woff*/url(\"", End::Quote(b'"'), Some("../f.woff")),
            ("a{b:url(", End::Parenthesis, None),
            ("<script> x = \"", End::Quote(b'"'), None),
        ] {
            let place = Place::of(before.as_bytes(), false).unwrap();
            assert_eq!((place.end, place.address.as_deref()), (end, address), "{before}");
        }
        for before in ["", "x", "(", "x(", "<img data-savepage-src=\"", "x="] {
            assert_eq!(Place::of(before.as_bytes(), false), None, "{before}");
        }
    }

    /// True if `tag`, which begins as one does, goes on to its end.
    fn is_open(tag: &[u8]) -> bool {
        let mut quote = None;
        for byte in tag {
            match (quote, byte) {
                (None, b'>') => return false,
                (None, b'"' | b'\'') => quote = Some(byte),
                (Some(begun), byte) if begun == byte => quote = None,
                _ => {}
            }
        }
        true
    }

    /// All tags that may be open are followed at once, as if each was followed by itself.
    #[test]
    fn the_last_tag_that_is_open_is_found() {
        let (mut seed, mut found, mut none) = (1_u64, 0, 0);
        for _ in 0..20_000 {
            let mut text = Vec::new();
            for _ in 0..40 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let parts: [&[u8]; 8] = [b"<a ", b"<b>", b"\"", b"\"", b"'", b">", b" x", b"<"];
                text.extend_from_slice(parts[(seed >> 60) as usize % parts.len()]);
            }
            let begun: Vec<&[u8]> = starts(&text).take(MOST_IN_VALUES).collect();
            let expected = begun.iter().copied().find(|tag| is_open(tag));
            assert_eq!(open(&begun), expected, "{}", String::from_utf8_lossy(&text));
            *(if expected.is_some() { &mut found } else { &mut none }) += 1;
        }
        assert!(found > 1000 && none > 1000, "{found} {none}");
        assert_eq!(open(&[]), None);
    }

    #[test]
    fn characters_have_names_in_tags_only() {
        for (before, is_in_tag, is_one_of_several) in [
            ("<img src=\"", true, false),
            ("<p title='a>b' style=\"background:url(", true, false),
            ("<a onclick=\"f('", true, false),
            ("<style>a{background:url('", false, false),
            ("<script> x = \"", false, false),
            ("<script>for(i=0;i<n;i++) x = \"", false, false),
            ("<img srcset='", true, true),
            ("<img data-srcset = \"a.png 1x, ", true, true),
            ("<img srcset=\"a.png 1x,", true, true),
            ("<img srcset=\"it's.png 1x, ", true, true),
            ("<img srcset='5\"x7\".png 1x, ", true, true),
            ("<img title=\"if a<b then c>d\" src=\"", true, false),
            ("<img title=\"<b>bold</b> text\" src=", true, false),
            ("<p data-content=\"<p>..</p>\" srcset=\"", true, true),
            (&format!("{}\" style=\"mask:url('", "M1 2 ".repeat(1700)), true, false),
            (&format!("<style>a{{}} {}/* */ a{{b:url('", "M1 2 ".repeat(1700)), false, false),
            (&format!("<script>x = '{}', y = '", "M1 2 ".repeat(1700)), false, false),
        ] {
            let mut raw = RawText::default();
            raw.pass(before.as_bytes(), before.len());
            let seen = &before.as_bytes()[before.len().saturating_sub(BEFORE)..];
            let place = Place::of(seen, raw.is_open()).unwrap();
            assert_eq!((place.is_in_tag, place.is_one_of_several), (is_in_tag, is_one_of_several), "{before}");
        }
        for before in
            ["<img alt=\"a, ", "<p>a, ", "<img data-savepage-srcset=\"a 1x, ", "<img srcset=\"a 1x\" alt='b, "]
        {
            assert_eq!(Place::of(before.as_bytes(), false), None, "{before}");
        }
    }

    #[test]
    fn scripts_and_style_sheets_have_an_end() {
        for (text, is_open) in [
            ("", false),
            ("<p><SCRIPT type='x'> a<b", true),
            ("<script>'<style>' </style> <script> <\\/script>", true),
            ("<script>x</Script >", false),
            ("<style>a>b{}</style><p>", false),
            ("<scripts><styled><style/><script src='x' />", false),
            ("<style", true),
        ] {
            for step in [1, 7, 1000] {
                let (mut raw, mut at) = (RawText::default(), 0);
                while at < text.len() {
                    let length = step.min(text.len() - at);
                    raw.pass(&text.as_bytes()[at..], length);
                    at += length;
                }
                assert_eq!(raw.is_open(), is_open, "{text} {step}");
            }
        }
    }

    #[test]
    fn pages_hold_files_whose_heads_are_short() {
        use tarnfs_source::MemorySource;
        let holds = |page: &str| {
            let source = MemorySource::new(page.as_bytes(), "a page");
            holds_files(&Probe::new(&page.as_bytes()[..page.len().min(4096)], &source))
        };
        assert!(holds("<img src=\"data:image/png;base64,QUJD\">"));
        assert!(holds(&format!("<p>{}<img src=\"data:,x\">", "data: ".repeat(5000))));
        assert!(holds(&format!("<img src=\"data:text/{},x\">", "y".repeat(LONGEST_HEAD - 20))));
        // Tags that have ended may be looked at in vain for a while.
        let ended = format!("{}{}> srcset=\"{}\"\n", "<a ".repeat(16), "x".repeat(4000), " data:,".repeat(500));
        for (count, expected) in [(2, true), (40, false)] {
            assert_eq!(holds(&format!("<html>{}<img src=\"data:,x\">", ended.repeat(count))), expected, "{count}");
        }
        // What the reader does not take is none here.
        assert!(!holds(&format!("<img src=\"data:text/{},x\">", "y".repeat(LONGEST_HEAD))));
        assert!(!holds(&format!("<html>{},", "data:".repeat(100_000))));
    }

    #[test]
    fn kinds_stand_before_the_content() {
        for (text, said) in [
            ("data:image/png;base64,QUJD", Some(("image/png", true, 22))),
            ("data: Image/PNG;base64,x", Some(("image/png", true, 23))),
            ("data:,x", Some(("text/plain", false, 6))),
            ("data:text/css;charset=utf-8,x", Some(("text/css", false, 28))),
            ("data:image/svg+xml;utf8,<svg", Some(("image/svg+xml", false, 24))),
            ("data:\"x\",", None),
            ("data:text", None),
            ("data:text,", None),
        ] {
            let found = Said::of(text.as_bytes());
            let found = found.as_ref().map(|said| (said.kind.as_str(), said.is_base64, said.length));
            assert_eq!(found, said, "{text}");
        }
    }
}
