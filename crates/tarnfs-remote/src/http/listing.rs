//! Pages that list a folder, as nginx, Apache, lighttpd, Python and others make them: links to what lies in it.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ureq::http::{Method, header};

use super::answer::{all_of, refused, text};
use super::{Asker, Plain, Question};
use crate::backend::{Entry, Fault, MOST_ENTRIES};
use crate::fetch::tried;
use crate::open::Settings;
use crate::time::{of_http, of_parts};
use crate::url::{Url, plain};

/// Files that are asked for their size at most, where the page does not say it to the byte.
const MOST_ASKED: usize = 10_000;

/// Questions at a time.
const AT_ONCE: usize = 8;

/// Lists the folder at `url`, which ends in a slash.
pub(crate) fn list(url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Vec<Entry>> {
    let asker = Asker::new(Box::new(Plain::new(url, settings)));
    let page = tried(deadline, true, || {
        let answer =
            asker.ask(&Question { method: Method::GET, headers: &[], body: None, deadline, is_for_body: true })?;
        if !answer.status().is_success() {
            return Err(refused(answer.status(), &answer));
        }
        let is_html = text(&answer, &header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html"));
        if !is_html {
            return Err(Fault::Final("the server does not list it".to_owned()));
        }
        all_of(answer, deadline)
    })?;
    let links = links(&String::from_utf8_lossy(&page), &asker.place());
    if links.len() > MOST_ENTRIES || links.iter().filter(|link| link.is_to_be_asked()).count() > MOST_ASKED {
        return Err(io::Error::other(format!("there are more than {MOST_ASKED} names in it")));
    }
    let (next, found, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(None));
    let lock = |mutex: &Mutex<Vec<Entry>>, entry| mutex.lock().map(|mut all| all.push(entry)).unwrap_or_default();
    let work = || {
        while let Some(link) = links.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !link.is_to_be_asked() {
                lock(&found, link.entry.clone());
                continue;
            }
            match size(&url.child(&link.entry.name, false), settings, deadline) {
                Ok(Some((size, modified))) => lock(&found, Entry { size, modified, ..link.entry.clone() }),
                // It leads nowhere.
                Ok(None) => {}
                Err(error) => {
                    if let Ok(mut failed) = failed.lock() {
                        *failed = Some(error);
                    }
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..AT_ONCE.min(links.iter().filter(|link| link.is_to_be_asked()).count()) {
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    match failed.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => found.into_inner().map_err(|_| io::Error::other("the listing has failed")),
    }
}

/// Length and time of the file at `url`; `None` if there is none.
fn size(url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Option<(u64, i64)>> {
    let asker = Asker::new(Box::new(Plain::quiet(url, settings)));
    let question = Question { method: Method::HEAD, headers: &[], body: None, deadline, is_for_body: true };
    tried(deadline, false, || {
        let answer = asker.ask(&question)?;
        if !answer.status().is_success() {
            return match refused(answer.status(), &answer) {
                Fault::Again(what, after) => Err(Fault::Again(what, after)),
                _ => Ok(None),
            };
        }
        let length = text(&answer, &header::CONTENT_LENGTH).and_then(|length| length.trim().parse().ok());
        let modified = text(&answer, &header::LAST_MODIFIED).and_then(|time| of_http(&time)).unwrap_or(0);
        Ok(length.map(|length| (length, modified)))
    })
}

/// A link to what lies in a folder.
struct Link {
    entry: Entry,
    /// The page says its size to the byte.
    is_exact: bool,
}

impl Link {
    fn is_to_be_asked(&self) -> bool {
        !self.entry.is_folder && !self.is_exact
    }
}

/// What the page at `url` has links to that lies directly below it, each name once.
fn links(page: &str, url: &Url) -> Vec<Link> {
    let mut found: Vec<Link> = Vec::new();
    let mut names = std::collections::HashSet::new();
    for (tag, behind) in tags(page, &page.to_ascii_lowercase()) {
        let Some(link) = attribute(tag, "href") else { continue };
        let Some((name, is_folder)) = below(&link, url) else { continue };
        // What stands between the link and the next one.
        let text = behind.split_once("</").and_then(|(_, end)| end.split_once('>')).map_or("", |(_, text)| text);
        let text = text.split(['<', '\n']).next().unwrap_or_default();
        let told = exact(text);
        let (size, modified) = told.unwrap_or_default();
        let entry = Entry { name, is_folder, size, modified };
        if entry.is_possible() && names.insert(entry.name.clone()) {
            found.push(Link { entry, is_exact: told.is_some() });
        }
        // It is refused then.
        if found.len() > MOST_ENTRIES {
            break;
        }
    }
    found
}

/// Bytes of a tag at most: what is longer is none.
const LONGEST_TAG: usize = 8 << 10;

/// The tags of links, and what stands between each and the next one. `lower` is the page in lower case. No byte is in
/// two of them, so that a page costs no more than its length.
fn tags<'a>(page: &'a str, lower: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    const START: &str = "<a ";
    let next = move |from: usize| lower.get(from..)?.find(START).map(|found| from + found);
    let mut at = next(0);
    std::iter::from_fn(move || {
        loop {
            let start = at? + START.len();
            let bytes = lower.as_bytes().get(start..)?;
            let Some(length) = bytes.iter().take(LONGEST_TAG).position(|&byte| byte == b'>') else {
                let behind = (start + LONGEST_TAG..=lower.len()).find(|&behind| lower.is_char_boundary(behind));
                at = behind.and_then(next);
                continue;
            };
            let end = start + length;
            at = next(end);
            return Some((page.get(start..end)?, page.get(end..at.unwrap_or(page.len()))?));
        }
    })
}

/// The value of an attribute, with its references undone.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let at = tag.to_ascii_lowercase().find(&format!("{name}="))?;
    let value = tag.get(at + name.len() + 1..)?;
    let value = match value.chars().next()? {
        quote @ ('"' | '\'') => value[1..].split(quote).next()?,
        _ => value.split_ascii_whitespace().next()?,
    };
    let undone = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#x27;", "'"), ("&amp;", "&")];
    Some(undone.iter().fold(value.to_owned(), |value, (reference, letter)| value.replace(reference, letter)))
}

/// The name of what a link leads to, if it lies directly below `url`, and whether that is a folder.
fn below(link: &str, url: &Url) -> Option<(Vec<u8>, bool)> {
    let link = link.split('#').next()?;
    if link.contains('?') {
        return None;
    }
    let to = url.redirected(link.strip_prefix("./").unwrap_or(link)).ok()?;
    let name = to.path().strip_prefix(url.path()).filter(|_| to.origin() == url.origin())?;
    let (name, is_folder) = match name.strip_suffix('/') {
        Some(name) => (name, true),
        None => (name, false),
    };
    (!name.contains('/')).then(|| (plain(name), is_folder))
}

/// Size and time behind a link, as nginx writes them: `28-Nov-2026 01:02    1234`. (Others round the size.)
fn exact(text: &str) -> Option<(u64, i64)> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_ascii_whitespace();
    let (date, time, size) = (words.next()?, words.next()?, words.next()?);
    let mut date = date.split('-');
    let (day, month, year) = (date.next()?.parse().ok()?, date.next()?, date.next()?.parse().ok()?);
    let month = MONTHS.iter().position(|known| *known == month)? as u32 + 1;
    let (hour, minute) = time.split_once(':')?;
    let modified = of_parts([year, month, day, hour.parse().ok()?, minute.parse().ok()?, 0])?;
    let is_end = words.next().is_none();
    // A folder has none.
    let size = if size == "-" { 0 } else { size.parse().ok()? };
    Some((size, modified)).filter(|_| is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_what_lies_in_a_folder_are_found() {
        let url = Url::parse("http://host:1/a%20b/").unwrap();
        let page = "<html><h1>Index of /a b/</h1><pre><a href=\"../\">../</a>\n\
            <a href=\"c/\">c/</a>   28-Nov-2026 01:02       -\n\
            <A HREF='d%20e.tar'>d e.tar</a>  28-Nov-2026 01:02     1234\r\n\
            <a class=x href=\"/a%20b/f&amp;g\">f</a> 2026-11-28 01:02  1.2M\n\
            <a href=\"?C=N;O=D\">Name</a> <a href=\"http://other/a%20b/h\">h</a> <a href=\"/x\">x</a>\n\
            <a href=\"./i%2Fj\">i/j</a> <a href=\"k/l\">k</a> <a href=\"c/\">again</a> <a href=.>.</a>\n\
            <a href=\"m%FF\">m</a> <a href='#top'>top</a><a href='mailto:me@host'>me</a> <a href=\"%2e%2e\">up</a>";
        let found: Vec<_> = links(page, &url)
            .into_iter()
            .map(|link| (link.entry.name, link.entry.is_folder, link.entry.size, link.is_exact))
            .collect();
        let of = |name: &[u8], is_folder, size, is_exact| (name.to_vec(), is_folder, size, is_exact);
        assert_eq!(
            found,
            [
                of(b"c", true, 0, true),
                of(b"d e.tar", false, 1234, true),
                of(b"f&g", false, 0, false),
                of(b"m\xff", false, 0, false),
            ]
        );
        assert_eq!(url.child(b"m\xff", true).request(), "http://host:1/a%20b/m%FF/");
    }

    #[test]
    fn no_byte_of_a_page_is_looked_at_for_two_links() {
        let repeated = "<a ".repeat(100_000) + ">";
        let open = "<a href=x>".repeat(100_000);
        let letters = format!("<a {}<a href=b>b</a>", "\u{e4}".repeat(LONGEST_TAG));
        for page in [&repeated, &open, &letters] {
            let bytes: usize = tags(page, &page.to_ascii_lowercase()).map(|(tag, text)| tag.len() + text.len()).sum();
            assert!(bytes <= page.len(), "{bytes}");
        }
        let url = Url::parse("http://host/").unwrap();
        assert_eq!((links(&repeated, &url).len(), links(&open, &url).len(), links(&letters, &url).len()), (0, 1, 1));
    }
}
