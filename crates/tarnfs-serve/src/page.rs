//! The page of a folder: sorted, searched with all that is below, without scripts.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tarnfs_format::Kind;
use tarnfs_tree::{Error, Node, Tree, UNKNOWN, escape};

use crate::download;
use crate::held::{Entry, Listed};
use crate::pool::Gone;
use crate::url::{self, Target};

const STYLE: &str = include_str!("page.css");

/// Rows of a page.
const ROWS: usize = 10_000;

/// Bytes of HTML that these may take: what was found below has a whole path, and a name that is no text takes seven
/// times its length.
const MOST_PAGE: usize = 8 << 20;

/// Bytes of HTML of a row beside its name, at most.
const OF_ROW: usize = 128;

/// Rows that are sorted. Of a larger folder, the others are found by searching.
const MOST_ROWS: usize = 200_000;

/// Bytes that these may take: names may be long.
const MOST_BYTES: usize = 32 << 20;

/// Bytes of the target of a link that are shown; it may have as many as it likes.
const MOST_TARGET: usize = 200;

/// Characters that are searched for: no name has so many. Each link of a page has them.
const MOST_SEARCH: usize = 1024;

/// Entries that are looked at together.
const BATCH: usize = 4096;

/// The same in a search of the folders below: each of those that one lies in has so many in memory.
const BATCH_BELOW: usize = 64;

/// Folders in each other that are searched.
const MOST_LEVELS: usize = 1024;

/// How long a search goes on.
const LONGEST: Duration = Duration::from_secs(5);

/// The Content-Security-Policy of pages: of all that a page could have, only our own style counts.
pub(crate) fn policy() -> String {
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Name,
    Size,
    Time,
}

/// How a folder is shown.
#[derive(Debug)]
pub(crate) struct View {
    by: By,
    is_descending: bool,
    search: String,
    page: usize,
}

impl View {
    /// As the query of a URL says. What it does not say, or nobody knows, is as usual.
    pub(crate) fn of(query: &str) -> Self {
        let by = match url::in_query(query, "sort").as_deref() {
            Some("size") => By::Size,
            Some("time") => By::Time,
            _ => By::Name,
        };
        Self {
            by,
            is_descending: url::in_query(query, "order").as_deref() == Some("desc"),
            search: url::in_query(query, "q").unwrap_or_default().chars().take(MOST_SEARCH).collect(),
            page: url::in_query(query, "page").and_then(|page| page.parse().ok()).unwrap_or(1).max(1),
        }
    }

    /// A link to the same folder in another way.
    fn link(&self, by: By, is_descending: bool, page: usize) -> String {
        let sort = match by {
            By::Name => "name",
            By::Size => "size",
            By::Time => "time",
        };
        let mut link = format!("?sort={sort}&amp;order={}", if is_descending { "desc" } else { "asc" });
        if !self.search.is_empty() {
            let _ = write!(link, "&amp;q={}", url::encode(self.search.as_bytes()));
        }
        if page > 1 {
            let _ = write!(link, "&amp;page={page}");
        }
        link
    }
}

/// One line of the table.
struct Row {
    /// Its path, where it was found below.
    name: Box<[u8]>,
    kind: Kind,
    size: u64,
    seconds: i64,
    /// False where only its name and kind are known.
    is_known: bool,
}

impl Row {
    fn is_folder(&self) -> bool {
        self.kind == Kind::Folder
    }

    /// Bytes of HTML that it takes, at most. [`shown`] and [`url::encode`] both write the name.
    fn length(&self) -> usize {
        let of_byte = |byte: &u8| match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) => 2,
            b'&' | b'<' | b'>' | b'"' | b'\'' => 9,
            _ => 7,
        };
        OF_ROW + self.name.iter().map(of_byte).sum::<usize>()
    }
}

/// Where in `rows` each page begins. One row is always on it.
fn pages(rows: &[Row]) -> Vec<usize> {
    let (mut begins, mut first, mut taken) = (vec![0], 0, 0);
    for (at, row) in rows.iter().enumerate() {
        let length = row.length();
        if at > first && (at - first == ROWS || taken + length > MOST_PAGE) {
            begins.push(at);
            (first, taken) = (at, 0);
        }
        taken += length;
    }
    begins
}

fn by_name(one: &Row, other: &Row) -> Ordering {
    let lower = |row: &Row, at: usize| row.name[at].to_ascii_lowercase();
    let shared = one.name.len().min(other.name.len());
    let first = (0..shared).map(|at| lower(one, at).cmp(&lower(other, at))).find(|order| order.is_ne());
    first.unwrap_or_else(|| one.name.len().cmp(&other.name.len())).then_with(|| one.name.cmp(&other.name))
}

/// `text` as it stands in HTML. Names show what would steer the direction of a text, or nothing, as codes.
fn html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            other => safe.push(other),
        }
    }
    safe
}

fn shown(name: &[u8]) -> String {
    html(&escape(name).to_string())
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1023.95 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

fn time(seconds: i64) -> String {
    match Timestamp::from_second(seconds) {
        // Without the seconds and the letter behind them.
        Ok(time) => match time.to_string().split_once('T') {
            Some((day, clock)) => format!("{day} {}", clock.get(..5).unwrap_or_default()),
            None => String::new(),
        },
        Err(_) => String::new(),
    }
}

fn count(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// What a page has of a folder.
#[derive(Default)]
struct Rows {
    list: Vec<Row>,
    /// Bytes that they take.
    bytes: usize,
    /// How many there are that are not among the rows.
    others: usize,
    /// Folders that were not searched: what is in them cannot be read, or they are archives that would have to be
    /// opened.
    unread: usize,
    /// There was no more time.
    is_cut: bool,
}

impl Rows {
    fn add(&mut self, above: &[u8], Entry { name, attributes, .. }: &Entry) {
        let bytes = self.bytes.saturating_add(size_of::<Row>() + above.len() + name.len());
        if bytes > MOST_BYTES || self.list.len() == MOST_ROWS {
            self.others += 1;
            return;
        }
        self.bytes = bytes;
        self.list.push(Row {
            name: [above, name.as_slice()].concat().into(),
            kind: attributes.kind,
            size: attributes.size,
            seconds: attributes.mtime.seconds,
            is_known: attributes.node != UNKNOWN,
        });
    }
}

/// What is in a folder.
fn listed(tree: &dyn Tree, folder: Node, gone: &Gone) -> Result<Rows, Error> {
    let (mut found, mut from) = (Rows::default(), 0);
    loop {
        gone.check()?;
        let listed = Listed::new(tree, folder, from, BATCH)?;
        listed.entries.iter().for_each(|entry| found.add(b"", entry));
        match listed.next {
            Some(next) => from = next,
            None => return Ok(found),
        }
    }
}

/// A folder that is being searched, while those in it are, too.
struct Level<'a> {
    folder: Node,
    /// Its path from the one where the search began, with a slash behind it.
    path: Vec<u8>,
    listed: Listed<'a>,
    /// The next of its entries.
    at: usize,
}

/// What has this in its name in a folder, and in those below. Nothing is opened for that.
fn found(tree: &dyn Tree, folder: Node, search: &str, gone: &Gone) -> Result<Rows, Error> {
    let (wanted, begun) = (search.to_lowercase(), Instant::now());
    let mut found = Rows::default();
    let listed = Listed::new(tree, folder, 0, BATCH)?;
    let mut levels = vec![Level { folder, path: Vec::new(), listed, at: 0 }];
    let mut end = Ok(());
    while let Some(level) = levels.last_mut() {
        if let Err(error) = gone.check() {
            end = Err(error.into());
            break;
        }
        if begun.elapsed() >= LONGEST {
            found.is_cut = true;
            break;
        }
        let Some(entry) = level.listed.entries.get(level.at) else {
            match level.listed.next.map(|next| Listed::new(tree, level.folder, next, BATCH_BELOW)) {
                Some(Ok(listed)) => (level.listed, level.at) = (listed, 0),
                Some(Err(error)) if levels.len() == 1 => {
                    end = Err(error);
                    break;
                }
                result => {
                    found.unread += usize::from(result.is_some());
                    leave(tree, levels.pop());
                }
            }
            continue;
        };
        level.at += 1;
        if String::from_utf8_lossy(&entry.name).to_lowercase().contains(&wanted) {
            found.add(&level.path, entry);
        }
        if entry.attributes.kind != Kind::Folder {
            continue;
        }
        let (inner, path) = (entry.attributes.node, [&level.path, entry.name.as_slice(), b"/"].concat());
        let is_searched = inner != UNKNOWN && levels.len() < MOST_LEVELS && tree.is_ready(inner);
        match is_searched.then(|| Listed::new(tree, inner, 0, BATCH_BELOW)) {
            Some(Ok(listed)) => levels.push(Level { folder: inner, path, listed, at: 0 }),
            _ => found.unread += 1,
        }
    }
    while levels.len() > 1 {
        leave(tree, levels.pop());
    }
    end.map(|()| found)
}

fn leave(tree: &dyn Tree, level: Option<Level<'_>>) {
    if let Some(level) = level {
        tree.close_folder(level.folder);
    }
}

/// Where a link leads, cut if it is long. One that cannot be read is shown without its target.
fn target(tree: &dyn Tree, folder: Node, name: &[u8]) -> Option<String> {
    let link = tree.lookup(folder, name).ok()?;
    let target = tree.read_link(link.node).ok();
    tree.forget(link.node, 1);
    let target = target?;
    let is_cut = target.len() > MOST_TARGET;
    let shown = shown(&target[..target.len().min(MOST_TARGET)]);
    Some(if is_cut { format!("{shown}\u{2026}") } else { shown })
}

/// The page of `folder`, at `place`, in a tree that is called `title`.
pub(crate) fn page(
    tree: &dyn Tree,
    folder: Node,
    place: &Target,
    title: &str,
    view: &View,
    gone: &Gone,
) -> Result<String, Error> {
    let found = match view.search.as_str() {
        "" => listed(tree, folder, gone),
        search => found(tree, folder, search, gone),
    };
    tree.close_folder(folder);
    let Rows { list: mut rows, others, unread, is_cut, .. } = found?;
    rows.sort_unstable_by(|one, other| {
        let folders_first = other.is_folder().cmp(&one.is_folder());
        let order = match view.by {
            By::Name => by_name(one, other),
            By::Size if one.is_folder() => by_name(one, other),
            By::Size => one.size.cmp(&other.size).then_with(|| by_name(one, other)),
            By::Time => one.seconds.cmp(&other.seconds).then_with(|| by_name(one, other)),
        };
        folders_first.then(if view.is_descending { order.reverse() } else { order })
    });
    let begins = pages(&rows);
    let number = view.page.min(begins.len());
    let here = &rows[begins[number - 1]..begins.get(number).copied().unwrap_or(rows.len())];

    let mut page = String::with_capacity(8192 + here.len() * 192);
    let name = place.names.last().map_or_else(|| shown(title.as_bytes()), |name| shown(name));
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=en><meta charset=utf-8><title>{name}</title>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\"><link rel=icon href=\"data:,\">\
         <style>{STYLE}</style>\n<header><h1>"
    );
    crumbs(&mut page, place, title);
    let order = if view.is_descending { "desc" } else { "asc" };
    let sort = match view.by {
        By::Name => "name",
        By::Size => "size",
        By::Time => "time",
    };
    let _ = write!(
        page,
        "</h1><form><input type=hidden name=sort value={sort}><input type=hidden name=order value={order}>\
         <input type=search name=q value=\"{}\" placeholder=\"Names here and below\" aria-label=\"Search the names in this folder and below\">\
         <button>Search</button></form></header>\n<table><thead><tr>",
        html(&view.search)
    );
    for (by, word) in [(By::Name, "Name"), (By::Size, "Size"), (By::Time, "Changed (UTC)")] {
        // What is sorted by is turned round; sizes and times begin with the largest.
        let is_current = by == view.by;
        let turns = if is_current { !view.is_descending } else { by != By::Name };
        let arrow = match (is_current, view.is_descending) {
            (false, _) => "",
            (true, true) => " \u{2193}",
            (true, false) => " \u{2191}",
        };
        let _ = write!(page, "<th><a href=\"{}\">{word}{arrow}</a>", view.link(by, turns, 1));
    }
    page += "<tbody>\n";
    if !place.names.is_empty() {
        page += "<tr class=u><td><a href=\"../\">..</a><td><td>\n";
    }
    for row in here {
        gone.check()?;
        // Where a page is full of names, they alone are told.
        let is_link_here = row.kind == Kind::Symlink && !row.name.contains(&b'/') && page.len() < MOST_PAGE;
        let target = if is_link_here { target(tree, folder, &row.name) } else { None };
        line(&mut page, row, target);
    }
    page += "</table>\n";
    if begins.len() > 1 {
        page += "<nav>";
        for other in 1..=begins.len() {
            if other == number {
                let _ = write!(page, "<b>{other}</b> ");
            } else {
                let _ = write!(page, "<a href=\"{}\">{other}</a> ", view.link(view.by, view.is_descending, other));
            }
        }
        page += "</nav>\n";
    }
    let folders = rows.iter().filter(|row| row.is_folder()).count();
    let bytes = rows.iter().filter(|row| row.kind == Kind::File).fold(0_u64, |sum, row| sum.saturating_add(row.size));
    let _ = write!(
        page,
        "<footer><span>{}, {}, {}",
        count(folders, "folder"),
        count(rows.len() - folders, "file"),
        size(bytes)
    );
    if !view.search.is_empty() {
        page += " found; <a href=\"./\">show all</a>";
    }
    if unread > 0 {
        let _ = write!(page, "; {} not searched", count(unread, "folder"));
    }
    if is_cut {
        page += "; there was no time for the rest: search in a folder below";
    }
    if others > 0 {
        let _ = write!(page, "; {others} more are not shown: search for them");
    }
    page += "</span><span>Download this folder as ";
    for (number, (label, _)) in download::offered().iter().enumerate() {
        let comma = if number == 0 { "" } else { ", " };
        let _ = write!(page, "{comma}<a href=\"?download={label}\">{label}</a>");
    }
    page += "</span></footer></html>\n";
    // It may have to wait until it is sent.
    page.shrink_to_fit();
    Ok(page)
}

/// The way from the root. A link that had the whole way, in a folder that lies deep, would be as long as all before it.
fn crumbs(page: &mut String, place: &Target, title: &str) {
    let Some((last, above)) = place.names.split_last() else {
        *page += &shown(title.as_bytes());
        return;
    };
    let _ = write!(page, "<a href=\"/\">{}</a>", shown(title.as_bytes()));
    for (at, name) in above.iter().enumerate() {
        let way = "../".repeat(above.len() - at);
        let _ = write!(page, "<i>/</i><a href=\"{way}\">{}</a>", shown(name));
    }
    let _ = write!(page, "<i>/</i>{}", shown(last));
}

fn line(page: &mut String, row: &Row, target: Option<String>) {
    let (class, slash) = match row.kind {
        Kind::Folder => (" class=d", "/"),
        Kind::File => ("", ""),
        Kind::Symlink => (" class=l", ""),
        _ => (" class=o", ""),
    };
    let name = shown(&row.name);
    let _ = write!(page, "<tr{class}><td>");
    match row.kind {
        Kind::Folder | Kind::File | Kind::Symlink => {
            let way: Vec<_> = row.name.split(|&byte| byte == b'/').map(url::encode).collect();
            let _ = write!(page, "<a href=\"{}{slash}\">{name}{slash}</a>", way.join("/"));
        }
        // Devices and the like have no content.
        _ => *page += &name,
    }
    if let Some(target) = target {
        let _ = write!(page, " <small>\u{2192} {target}</small>");
    }
    if row.kind == Kind::File && row.is_known {
        let _ = write!(page, "<td title=\"{} bytes\">{}", row.size, size(row.size));
    } else {
        *page += "<td>";
    }
    let _ = writeln!(page, "<td>{}", if row.is_known { time(row.seconds) } else { String::new() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_digit_behind_the_point() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (1_500_000, "1.4 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(time(0), "1970-01-01 00:00");
        assert_eq!(time(1_600_000_000), "2020-09-13 12:26");
        assert_eq!(time(-100_000_000_000), "-001199-02-15 14:13");
        assert_eq!(time(i64::MAX), "");
    }

    fn row(name: Vec<u8>, kind: Kind) -> Row {
        Row { name: name.into(), kind, size: u64::MAX, seconds: -100_000_000_000, is_known: true }
    }

    #[test]
    fn a_line_takes_no_more_than_it_is_counted_with() {
        let all: Vec<_> = (1..=255).collect();
        let steering = "\u{85}\u{61c}\u{200e}\u{202e}\u{2066}é漢\u{1f600}";
        for name in ["a/b-._~/c", "\"\"", "&&<>''", "\\\n\t\u{7f}", steering].map(|name| name.as_bytes().to_vec()) {
            for name in [name, all.clone(), vec![0xff; 300], Vec::new()] {
                for kind in [Kind::Folder, Kind::File, Kind::Symlink, Kind::Fifo] {
                    let row = row(name.clone(), kind);
                    let mut text = String::new();
                    line(&mut text, &row, None);
                    assert!(text.len() <= row.length(), "{} > {}: {text}", text.len(), row.length());
                }
            }
        }
    }

    /// A search finds whole paths: 10 000 of them made pages of hundreds of MiB.
    #[test]
    fn a_page_ends_where_it_is_long_enough() {
        let rows =
            |count: usize, length: usize| (0..count).map(|_| row(vec![0xff; length], Kind::File)).collect::<Vec<_>>();
        let begins = |rows: Vec<Row>| pages(&rows);
        assert_eq!(begins(rows(0, 0)), [0]);
        assert_eq!(begins(rows(ROWS, 1)), [0]);
        assert_eq!(begins(rows(2 * ROWS + 1, 1)), [0, ROWS, 2 * ROWS]);
        let of_page = MOST_PAGE / (7 * 30_000 + OF_ROW);
        assert_eq!(begins(rows(100, 30_000)), [0, of_page, 2 * of_page]);
        // What is longer than a page has one.
        assert_eq!(begins(rows(2, MOST_PAGE)), [0, 1]);
    }

    #[test]
    fn the_way_to_a_folder_that_lies_deep_is_no_long_page() {
        let place = Target { names: vec![b"n".to_vec(); 1000], is_folder: true };
        let mut page = String::new();
        crumbs(&mut page, &place, "title");
        assert!(page.len() < 2 << 20, "{}", page.len());
        let mut page = String::new();
        crumbs(&mut page, &Target::parse("/a/b%20b/c/").unwrap(), "t");
        assert_eq!(page, "<a href=\"/\">t</a><i>/</i><a href=\"../../\">a</a><i>/</i><a href=\"../\">b b</a><i>/</i>c");
    }

    /// Whoever searches a large tree and goes away leaves no thread at work.
    #[test]
    fn nobody_searches_for_who_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        let tree = tarnfs_tree::FolderTree::open(folder.path()).unwrap();
        let waits = std::sync::Arc::new(());
        let gone = Gone::with(&waits);
        let names = |rows: Rows| rows.list.iter().map(|row| row.name.to_vec()).collect::<Vec<_>>();
        assert_eq!(names(found(&tree, Node::ROOT, "B", &gone).unwrap()), [b"a/b"]);
        drop(waits);
        assert!(found(&tree, Node::ROOT, "B", &gone).is_err_and(|error| error.errno() == rustix::io::Errno::INTR));
    }

    #[test]
    fn queries_say_how() {
        let view = View::of("sort=size&order=desc&q=%3Cb%3E&page=0");
        assert_eq!((view.by, view.is_descending, view.search.as_str(), view.page), (By::Size, true, "<b>", 1));
        assert_eq!(view.link(By::Name, false, 2), "?sort=name&amp;order=asc&amp;q=%3Cb%3E&amp;page=2");
        // No name has so many characters.
        let long = View::of(&format!("q={}", "%F0%9F%98%80".repeat(5000)));
        assert_eq!(long.search.chars().count(), MOST_SEARCH);
        assert_eq!(html("<b a=\"'&"), "&lt;b a=&quot;&#39;&amp;");
    }
}
