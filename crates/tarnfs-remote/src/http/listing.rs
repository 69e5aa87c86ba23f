//! Pages that list a folder, as nginx, Apache, lighttpd, Python and others make them: links to what lies in it.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ureq::http::{Method, header};

use super::answer::{all_of, refused, text};
use super::{Asker, Plain, Question};
use crate::backend::{Entry, Fault, MOST_ENTRIES};
use crate::fetch::{error, tried};
use crate::open::Settings;
use crate::time::{of_http, of_parts};
use crate::url::Url;

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
    let (links, is_elsewhere) = links(&String::from_utf8_lossy(&page), &asker.place());
    if links.is_empty() && is_elsewhere {
        let what = "the page that the server sends has links, but none to what is in this folder: it is no list of it";
        return Err(io::Error::other(what));
    }
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
                Fault::Missing(_) => Ok(None),
                fault => {
                    log::info!("{url}: is left out: {}", error(fault));
                    Ok(None)
                }
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

/// What the page at `url` has links to that lies directly below it, each name once; and whether it has links to other
/// places of this server, which are none of the folders above.
fn links(page: &str, url: &Url) -> (Vec<Link>, bool) {
    let mut found: Vec<Link> = Vec::new();
    let (mut names, mut is_elsewhere) = (std::collections::HashSet::new(), false);
    let base = tags(page, "base").find_map(|(href, _)| href);
    let base = base.and_then(|base| url.redirected(&text_of(base)).ok()).unwrap_or_else(|| url.clone());
    let folder = url.components();
    for (href, behind) in tags(page, "a") {
        let Some(to) = href.map(text_of).and_then(|link| place(&link, &base, url)) else { continue };
        let names_to = to.components();
        let Some([name]) = names_to.strip_prefix(&folder[..]) else {
            // Not in the folder, nor one of those that it lies in.
            is_elsewhere |= !folder.starts_with(&names_to);
            continue;
        };
        let name = name.clone();
        // What stands between the link and the next one.
        let text = behind.split_once("</").and_then(|(_, end)| end.split_once('>')).map_or("", |(_, text)| text);
        let text = text.split(['<', '\n']).next().unwrap_or_default();
        let told = exact(text);
        let (size, modified) = told.unwrap_or_default();
        let entry = Entry { name, is_folder: to.path().ends_with('/'), size, modified };
        if entry.is_possible() && names.insert(entry.name.clone()) {
            found.push(Link { entry, is_exact: told.is_some() });
        }
        // It is refused then.
        if found.len() > MOST_ENTRIES {
            break;
        }
    }
    (found, is_elsewhere)
}

/// Where a link of the page at `url` leads, if that is something on the same server that has no query.
fn place(link: &str, base: &Url, url: &Url) -> Option<Url> {
    let link = link.trim_ascii().split('#').next()?;
    if link.is_empty() || link.contains('?') {
        return None;
    }
    base.redirected(link).ok().filter(|to| to.origin() == url.origin())
}

/// Bytes of a tag at most: what is longer is none.
const LONGEST_TAG: usize = 8 << 10;

/// The tags of this name: what `href` is in each, as it is written, and what stands between it and the next one.
fn tags<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = (Option<&'a str>, &'a str)> {
    let mut next = begin(page, name, 0);
    std::iter::from_fn(move || {
        loop {
            let begun = next?;
            let Some((href, length)) = inside(page.get(begun..)?) else {
                next = begin(page, name, begun);
                continue;
            };
            let end = begun + length;
            next = begin(page, name, end);
            return Some((href, page.get(end..next.unwrap_or(page.len()))?));
        }
    })
}

/// Where the next tag of this name goes on behind its name.
fn begin(page: &str, name: &str, from: usize) -> Option<usize> {
    page.get(from..)?.match_indices('<').find_map(|(at, _)| {
        let start = from + at + 1;
        let end = start + name.len();
        let is_it = page.get(start..end)?.eq_ignore_ascii_case(name) && page.as_bytes().get(end)?.is_ascii_whitespace();
        is_it.then_some(end)
    })
}

/// What `href` is in the tag that goes on with `text`, and the length of that with its `>`. `None` of what is no tag.
///
/// A `<` ends it, unless it is in quotes, and these end at the next ones of their kind: so no byte of a page is looked
/// at more than a few times, whatever stands there.
fn inside(text: &str) -> Option<(Option<&str>, usize)> {
    let bytes = text.as_bytes().get(..LONGEST_TAG.min(text.len()))?;
    let behind = |from: usize, is_end: &dyn Fn(u8) -> bool| {
        bytes.get(from..)?.iter().position(|&byte| is_end(byte)).map(|found| from + found)
    };
    let is_space = |byte: u8| byte.is_ascii_whitespace();
    let (mut href, mut at) = (None, 0);
    loop {
        at = behind(at, &|byte| !is_space(byte) && byte != b'/')?;
        match bytes.get(at)? {
            b'>' => return Some((href, at + 1)),
            b'<' => return None,
            _ => {}
        }
        // An attribute, whose name has one letter at least.
        let name_end = behind(at + 1, &|byte| is_space(byte) || b"/>=<".contains(&byte))?;
        let name = text.get(at..name_end);
        at = behind(name_end, &|byte| !is_space(byte))?;
        if bytes.get(at) != Some(&b'=') {
            continue;
        }
        at = behind(at + 1, &|byte| !is_space(byte))?;
        let first = *bytes.get(at)?;
        let (value, end) = if matches!(first, b'"' | b'\'') {
            let end = behind(at + 1, &|byte| byte == first)?;
            (text.get(at + 1..end), end + 1)
        } else {
            let end = behind(at, &|byte| is_space(byte) || byte == b'>' || byte == b'<')?;
            (text.get(at..end), end)
        };
        at = end;
        if href.is_none() && name.is_some_and(|name| name.eq_ignore_ascii_case("href")) {
            href = value;
        }
    }
}

/// The text that stands in a page so: with its references undone, each once.
fn text_of(written: &str) -> String {
    /// Letters between `&` and `;`.
    const LONGEST: usize = 10;
    let (mut text, mut rest) = (String::with_capacity(written.len()), written);
    while let Some((before, behind)) = rest.split_once('&') {
        text += before;
        rest = behind;
        let end = behind.bytes().take(LONGEST).position(|byte| byte == b';');
        let letter = end.and_then(|end| Some((letter(behind.get(..end)?)?, behind.get(end + 1..)?)));
        match letter {
            Some((letter, behind)) => {
                text.push(letter);
                rest = behind;
            }
            None => text.push('&'),
        }
    }
    text + rest
}

/// What a reference stands for.
fn letter(reference: &str) -> Option<char> {
    let number = |digits: &str, radix| {
        // A sign is none.
        let code = digits.chars().all(|digit| digit.is_digit(radix)).then(|| u32::from_str_radix(digits, radix).ok());
        code.flatten().filter(|&code| code != 0).and_then(char::from_u32)
    };
    match reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let digits = reference.strip_prefix('#')?;
            let hexadecimal = digits.strip_prefix(['x', 'X']);
            hexadecimal.map_or_else(|| number(digits, 10), |digits| number(digits, 16))
        }
    }
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
mod tests;
