//! What lies in a folder of a host.
//!
//! A link shows as what it leads to, but for one that leads back to a folder above: whoever goes into all folders would
//! come to no end.

use std::io;
use std::time::Instant;

use super::session::Session;
use super::wire::{Answer, Attributes, Question, status};
use super::{Place, attributes, fault, handle};
use crate::backend::{Entry, Fault, MOST_ENTRIES};
use crate::fetch::tried;

/// Questions for names that are asked at a time: each answer has about a hundred.
const NAMES_AT_ONCE: usize = 8;

/// Links that are asked about at a time.
const LINKS_AT_ONCE: usize = 256;

/// What lies in the folder, each name once.
pub(super) fn list(place: &Place, deadline: Instant) -> io::Result<Vec<Entry>> {
    let found = tried(deadline, true, || {
        let session = place.host()?.session(deadline)?;
        let path = place.path(&session, deadline)?;
        if !attributes(session.ask_one(Question::OfPath(&path), deadline)?)?.is_folder() {
            return Ok(None);
        }
        let mut found = names(&session, &path, deadline)?;
        follow(&session, &path, &mut found, deadline)?;
        Ok(Some(found))
    })?;
    let found = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotADirectory, "it is no folder"))?;
    let mut entries: Vec<_> = found.into_iter().filter_map(|(name, about)| entry(name, &about)).collect();
    // A server that says one twice has both under one name.
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries.dedup_by(|one, other| one.name == other.name);
    Ok(entries)
}

fn entry(name: Vec<u8>, about: &Attributes) -> Option<Entry> {
    let is_folder = about.is_folder();
    let size = if is_folder { 0 } else { about.size.filter(|_| about.may_be_file())? };
    let modified = i64::from(about.modified.unwrap_or(0)) * 1_000_000_000;
    Some(Entry { name, is_folder, size, modified }).filter(Entry::is_possible)
}

/// Longer names cannot be shown (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

/// A folder that is open there, as long as it is read.
struct Folder<'a> {
    session: &'a Session,
    handle: Vec<u8>,
}

impl Drop for Folder<'_> {
    fn drop(&mut self) {
        self.session.close(&self.handle);
    }
}

/// Names of a folder, and what is said of each.
pub(super) type Found = Vec<(Vec<u8>, Attributes)>;

pub(super) fn names(session: &Session, path: &[u8], deadline: Instant) -> Result<Found, Fault> {
    let folder = Folder { session, handle: handle(session.ask_one(Question::OpenFolder(path), deadline)?)? };
    let mut found = Vec::new();
    let (mut is_end, mut count) = (false, 0);
    while !is_end {
        let mut answers = session.ask(&[Question::Names(&folder.handle); NAMES_AT_ONCE])?;
        for _ in 0..NAMES_AT_ONCE {
            match answers.next(deadline)? {
                Answer::Names(names) if !names.is_empty() => {
                    count += names.len();
                    found.extend(names.into_iter().filter(|(name, _)| name.len() <= LONGEST_NAME));
                }
                Answer::Names(_) | Answer::Status(status::EOF) => is_end = true,
                answer => return Err(fault(&answer)),
            }
        }
        // Also those that nothing can have: there may be no end of them.
        if count > MOST_ENTRIES {
            return Err(Fault::Final(format!("there are more than {MOST_ENTRIES} names in it")));
        }
    }
    found.retain(|(name, _)| name != b"." && name != b"..");
    Ok(found)
}

/// Asks what links lead to, and about what the server says too little of. What leads nowhere is left out.
fn follow(session: &Session, path: &[u8], found: &mut Found, deadline: Instant) -> Result<(), Fault> {
    let path_of = |name: &[u8]| [path, b"/", name].concat();
    let links: Vec<_> = (0..found.len()).filter(|&number| found[number].1.is_to_be_asked()).collect();
    let mut folders = Vec::new();
    for links in links.chunks(LINKS_AT_ONCE) {
        let paths: Vec<_> = links.iter().map(|&number| path_of(&found[number].0)).collect();
        let questions: Vec<_> = paths.iter().map(|path| Question::OfPath(path)).collect();
        let mut answers = session.ask(&questions)?;
        for &number in links {
            found[number].1 = match answers.next(deadline)? {
                Answer::Attributes(about) => about,
                // Neither a file nor a folder.
                Answer::Status(_) => Attributes { mode: Some(libc::S_IFLNK), ..Attributes::default() },
                answer => return Err(fault(&answer)),
            };
            if found[number].1.is_folder() {
                folders.push(number);
            }
        }
    }
    if folders.is_empty() {
        return Ok(());
    }
    let ends = |end: &usize| path.get(*end).is_none_or(|&byte| byte == b'/') && *end > 0;
    let mut above: Vec<_> = (1..=path.len()).filter(ends).map(|end| path[..end].to_vec()).collect();
    above.push(if path.starts_with(b"/") { b"/".to_vec() } else { b".".to_vec() });
    let above = real_paths(session, &above, deadline)?;
    for folders in folders.chunks(LINKS_AT_ONCE) {
        let paths: Vec<_> = folders.iter().map(|&number| path_of(&found[number].0)).collect();
        for (&number, to) in folders.iter().zip(real_paths(session, &paths, deadline)?) {
            if above.iter().any(|above| lies_in(above, &to)) {
                found[number].1.mode = Some(libc::S_IFLNK);
            }
        }
    }
    Ok(())
}

fn real_paths(session: &Session, paths: &[Vec<u8>], deadline: Instant) -> Result<Vec<Vec<u8>>, Fault> {
    let questions: Vec<_> = paths.iter().map(|path| Question::RealPath(path)).collect();
    let mut answers = session.ask(&questions)?;
    let real = |answer| match answer {
        Answer::Names(names) => Ok(names.into_iter().next().map(|(name, _)| name).unwrap_or_default()),
        answer => Err(fault(&answer)),
    };
    paths.iter().map(|_| answers.next(deadline).and_then(real)).collect()
}

/// True if the path is that of this folder, or of something in it.
fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lies_in_itself_and_in_those_above() {
        for (path, folder, is) in [
            ("/a/b", "/a/b", true),
            ("/a/b", "/a", true),
            ("/a/b", "/", true),
            ("/a/b", "/a/bc", false),
            ("/a/bc", "/a/b", false),
            ("/a", "/a/b", false),
        ] {
            assert_eq!(lies_in(path.as_bytes(), folder.as_bytes()), is, "{path} {folder}");
        }
    }
}
