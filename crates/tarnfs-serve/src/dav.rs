//! WebDAV, as far as reading needs it: PROPFIND.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use quick_xml::NsReader;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use tarnfs_format::Kind;
use tarnfs_tree::{Attributes, Error, Tree, UNKNOWN};

use crate::answer::{Site, tell};
use crate::body::{Pieces, Share, Step};
use crate::conditions::{FilePlace, Validators};
use crate::held::{Entry, Held, Listed};
use crate::kinds;
use crate::pool::{Gone, Work};
use crate::url::{self, Target};

/// Bytes of a request at most.
pub(crate) const MOST_BODY: usize = 64 << 10;

/// Properties that one request may name.
const MOST_NAMED: usize = 64;

/// Bytes that these have together, as they stand in an answer: they are repeated for each entry.
const MOST_NAMES: usize = 4 << 10;

/// Entries that are told of together: so many, or fewer where many clients share the memory.
const BATCH: usize = 256;

/// Bytes of an entry, roughly, but for the URL of the folder, and the names of what it has not.
const ENTRY: usize = 1 << 10;

const DAV: &str = "DAV:";

/// Which properties are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    /// Only what they are called.
    Names,
    /// These, each with its namespace.
    Named(Vec<(String, String)>),
}

impl Wanted {
    /// Reads the body of a request; nothing means all. `None` for what is no such request. The parser expands no
    /// entities.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Some(Self::All);
        }
        let mut reader = NsReader::from_str(std::str::from_utf8(body).ok()?);
        let (mut depth, mut wanted, mut room) = (0_usize, None, MOST_NAMES);
        loop {
            let (namespace, event) = reader.read_resolved_event().ok()?;
            let (start, is_empty) = match event {
                Event::Start(start) => (start, false),
                Event::Empty(start) => (start, true),
                Event::End(_) => {
                    depth = depth.checked_sub(1)?;
                    continue;
                }
                Event::DocType(_) => return None,
                Event::Eof => return wanted.filter(|_| depth == 0),
                _ => continue,
            };
            let namespace = match namespace {
                ResolveResult::Bound(Namespace(namespace)) => namespace.to_owned(),
                ResolveResult::Unbound => String::new(),
                ResolveResult::Unknown(_) => return None,
            };
            let local = name(&start)?;
            let is_dav = namespace == DAV;
            match (depth, local.as_str()) {
                (0, "propfind") if is_dav && !is_empty && wanted.is_none() => {}
                (0, _) => return None,
                (1, "allprop") if is_dav => wanted = Some(Self::All),
                (1, "propname") if is_dav => wanted = Some(Self::Names),
                (1, "prop") if is_dav => wanted = Some(Self::Named(Vec::new())),
                (2, _) => {
                    if let Some(Self::Named(named)) = &mut wanted {
                        if named.len() == MOST_NAMED {
                            return None;
                        }
                        room = room.checked_sub(xml(&namespace).len() + local.len())?;
                        named.push((namespace, local));
                    }
                }
                _ => {}
            }
            depth += usize::from(!is_empty);
        }
    }
}

impl Wanted {
    /// Bytes that it may add to an entry: the names of what is not there.
    fn length(&self) -> usize {
        let Self::Named(named) = self else { return 0 };
        // Each in `<NAME xmlns=""/>`.
        named.iter().map(|(namespace, name)| xml(namespace).len() + name.len() + 12).sum()
    }
}

/// The local name of an element, if it is one.
fn name(start: &BytesStart<'_>) -> Option<String> {
    let local = start.local_name();
    let name = local.as_ref();
    let fits = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    (name.chars().all(fits) && name.starts_with(|letter: char| letter.is_alphabetic() || letter == '_'))
        .then(|| name.to_owned())
}

/// As it stands in XML, which has no control characters.
fn xml(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\u{0}'..='\u{1f}' | '\u{7f}' | '\u{fffe}' | '\u{ffff}' => safe.push(char::REPLACEMENT_CHARACTER),
            other => safe.push(other),
        }
    }
    safe
}

/// The properties of one file or folder, each as XML.
fn properties(
    site: &Site,
    (path, way): (&[u8], &[u8]),
    name: &[u8],
    attributes: &Attributes,
) -> Vec<(&'static str, String)> {
    let now = if site.is_far {
        // Which version it is, is known when it is open.
        Validators::listed(attributes)
    } else {
        let place = FilePlace { path, way, salt: &site.salt };
        Validators::of(attributes, site.tree.lifetime(attributes.node), place)
    };
    let is_folder = attributes.kind == Kind::Folder;
    let mut all = vec![
        ("resourcetype", if is_folder { "<D:collection/>".to_owned() } else { String::new() }),
        ("displayname", xml(&String::from_utf8_lossy(name))),
        ("supportedlock", String::new()),
    ];
    if attributes.node == UNKNOWN {
        // More than its name and kind would be made up.
        return all;
    }
    if let Some(modified) = now.last_modified() {
        all.push(("getlastmodified", modified));
    }
    if !is_folder {
        all.push(("getcontentlength", attributes.size.to_string()));
        all.push(("getcontenttype", kinds::of(name)));
        all.extend(now.etag.map(|etag| ("getetag", xml(&etag))));
    }
    all
}

fn response(out: &mut String, href: &str, all: &[(&'static str, String)], wanted: &Wanted) {
    let _ = write!(out, "<D:response><D:href>{href}</D:href><D:propstat><D:prop>");
    let mut missing = String::new();
    let mut put = |name: &str, value: &str| {
        let _ = match value {
            "" => write!(out, "<D:{name}/>"),
            value => write!(out, "<D:{name}>{value}</D:{name}>"),
        };
    };
    match wanted {
        Wanted::All => all.iter().for_each(|(name, value)| put(name, value)),
        Wanted::Names => all.iter().for_each(|(name, _)| put(name, "")),
        Wanted::Named(named) => {
            for (namespace, name) in named {
                let known = all.iter().find(|(known, _)| namespace == DAV && known == name);
                if let Some((name, value)) = known {
                    put(name, value);
                } else {
                    let namespace = xml(namespace);
                    let _ = write!(missing, "<{name} xmlns=\"{namespace}\"/>");
                }
            }
        }
    }
    *out += "</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>";
    if !missing.is_empty() {
        let _ = write!(
            out,
            "<D:propstat><D:prop>{missing}</D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>"
        );
    }
    *out += "</D:response>\n";
}

/// The answer: what was asked for, and what is in it.
pub(crate) struct Found {
    site: Arc<Site>,
    held: Held,
    place: Target,
    wanted: Wanted,
    /// What is to be told next.
    next: Next,
    share: Share,
}

enum Next {
    Itself { with_entries: bool },
    Entries(u64),
    End,
    Nothing,
}

impl Found {
    pub(crate) fn new(site: Arc<Site>, held: Held, place: Target, wanted: Wanted, with_entries: bool) -> Self {
        let share = site.memory.one_more();
        Self { site, held, place, wanted, next: Next::Itself { with_entries }, share }
    }

    fn entries(&self, from: u64, out: &mut String, gone: &Gone) -> Result<Option<u64>, Error> {
        let tree: &dyn Tree = &*self.site.tree;
        let (base, most) = (self.place.as_folder(), self.share.piece());
        // What is listed and not told is listed again, so there should not be much of it.
        let batch = most / (ENTRY + base.len() + self.wanted.length());
        let listed = Listed::new(tree, self.held.attributes.node, from, batch.clamp(1, BATCH))?;
        let (folder, inside) = (self.place.in_tree(), self.held.way_inside());
        for Entry { name, attributes, next } in &listed.entries {
            gone.check()?;
            let path = if folder.is_empty() { name.clone() } else { [&folder, b"/".as_slice(), name].concat() };
            let mut target = None;
            if attributes.kind == Kind::Symlink {
                // WebDAV has no links. What leads nowhere is left out, and what leads back: whoever goes into all
                // folders would never come to an end.
                match Held::find(&self.site.tree, &path) {
                    Ok(found) if !found.is_loop => target = Some(found),
                    _ => continue,
                }
            }
            let way = target.as_ref().map_or(inside.as_slice(), Held::way);
            let attributes = target.as_ref().map_or(attributes, |target| &target.attributes);
            let slash = match attributes.kind {
                Kind::Folder => "/",
                Kind::File => "",
                _ => continue,
            };
            let all = properties(&self.site, (&path, way), name, attributes);
            response(out, &format!("{base}{}{slash}", url::encode(name)), &all, &self.wanted);
            if out.len() >= most {
                return Ok(Some(*next));
            }
        }
        Ok(listed.next)
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // Also where the client went in the middle.
        self.site.tree.close_folder(self.held.attributes.node);
    }
}

impl Pieces for Found {
    fn next(&mut self, gone: &Gone) -> io::Result<Step> {
        let mut out = String::new();
        match self.next {
            Next::Itself { with_entries } => {
                out += "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
                let is_folder = self.held.attributes.kind == Kind::Folder;
                let mut href = self.place.as_folder();
                if !is_folder && href.len() > 1 {
                    href.pop();
                }
                let name = self.place.names.last().map_or(self.site.title.as_bytes(), Vec::as_slice);
                let all = properties(&self.site, (&self.place.in_tree(), self.held.way()), name, &self.held.attributes);
                response(&mut out, &href, &all, &self.wanted);
                self.next = if with_entries && is_folder { Next::Entries(0) } else { Next::End };
            }
            Next::Entries(from) => {
                let next = self.entries(from, &mut out, gone).map_err(|error| {
                    // Nobody waits for it any more.
                    if !gone.is_gone() {
                        tell(&self.place.in_tree(), &error);
                    }
                    io::Error::other(error)
                })?;
                self.next = next.map_or(Next::End, Next::Entries);
            }
            Next::End => {
                out += "</D:multistatus>\n";
                self.next = Next::Nothing;
            }
            Next::Nothing => return Ok(Step::End),
        }
        Ok(Step::Piece(self.share.piece_of(out.into_bytes())))
    }

    fn work(&self) -> Work {
        Work::Look
    }

    fn left(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_properties() {
        let named = |body: &str| Wanted::parse(body.as_bytes());
        assert_eq!(named(" \n"), Some(Wanted::All));
        assert_eq!(named("<propfind xmlns='DAV:'><allprop/></propfind>"), Some(Wanted::All));
        assert_eq!(
            named("<?xml version='1.0'?><D:propfind xmlns:D='DAV:'><D:propname/></D:propfind>"),
            Some(Wanted::Names)
        );
        let one = named(
            "<a:propfind xmlns:a='DAV:' xmlns:z='urn:z'><a:prop><a:getetag/><z:color>x<a:deep/></z:color></a:prop></a:propfind>",
        );
        let dav = |name: &str| (DAV.to_owned(), name.to_owned());
        assert_eq!(one, Some(Wanted::Named(vec![dav("getetag"), ("urn:z".to_owned(), "color".to_owned())])));
        let many = format!("<propfind xmlns='DAV:'><prop>{}</prop></propfind>", "<x/>".repeat(MOST_NAMED + 1));
        // Each of these names is repeated for each entry.
        let long =
            format!("<propfind xmlns='DAV:' xmlns:z='{}'><prop><z:x/></prop></propfind>", "\"".repeat(MOST_NAMES));
        for bad in [
            "x",
            "<propfind/>",
            "<propfind xmlns='DAV:'>",
            "<propfind xmlns='DAV:'/>",
            "<propfind xmlns='urn:x'><allprop/></propfind>",
            "<propfind xmlns='DAV:'><prop></propfind>",
            "<propfind xmlns='DAV:'><prop><b:x/></prop></propfind>",
            "<!DOCTYPE x [<!ENTITY a 'b'>]><propfind xmlns='DAV:'><allprop/></propfind>",
            &many,
            &long,
        ] {
            assert_eq!(named(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_not_there_is_said_to_be_missing() {
        let mut out = String::new();
        let wanted = Wanted::Named(vec![(DAV.into(), "getetag".into()), ("a\"<".into(), "getetag".into())]);
        response(&mut out, "/x", &[("getetag", "1".to_owned())], &wanted);
        assert!(out.contains("<D:getetag>1</D:getetag></D:prop><D:status>HTTP/1.1 200"), "{out}");
        assert!(out.contains("<getetag xmlns=\"a&quot;&lt;\"/></D:prop><D:status>HTTP/1.1 404"), "{out}");
    }
}
