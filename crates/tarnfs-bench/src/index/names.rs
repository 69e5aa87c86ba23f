//! Entries with names, sizes and times as in a home folder with source code and pictures, in the order in which tar
//! walks through it.

use std::collections::HashSet;
use std::io;

use tarnfs_format::{Body, Entry, Kind, Time};
use tarnfs_source::Cancel;

use crate::seeded::{Seeded, WORDS_IN_USE, word};

/// Folders in each other.
const DEEPEST: usize = 10;

/// Ends of names, those that are frequent more than once.
const ENDS: [&str; 12] = ["c", "h", "rs", "py", "py", "js", "ts", "html", "md", "txt", "json", "png"];

/// A folder that entries are put into.
struct Level {
    /// Length of its path.
    length: usize,
    names: HashSet<Vec<u8>>,
}

/// Hands so many made entries to `receive`.
pub(super) fn make(
    entries: u64,
    seed: u64,
    cancel: &Cancel,
    receive: &mut dyn FnMut(&Entry) -> io::Result<()>,
) -> io::Result<()> {
    /// Files of a folder: a third of this on average, which is that of source trees.
    const FILES: f64 = 60.0;
    let mut chance = Seeded::new(seed);
    let mut path = Vec::new();
    let mut levels = vec![Level { length: 0, names: HashSet::new() }];
    let mut made = 0;
    while made < entries {
        cancel.check()?;
        // Up as often as down on average, but seldom to the top.
        while levels.len() > DEEPEST || levels.len() > 1 && chance.below(2) == 0 {
            if levels.len() == 2 && chance.below(50) != 0 {
                break;
            }
            levels.pop();
        }
        let name = folder_name(&mut chance);
        enter(&mut levels, &mut path, name, made);
        receive(&entry(&path, Kind::Folder, &mut chance))?;
        levels.push(Level { length: path.len(), names: HashSet::new() });
        made += 1;
        let files = (chance.part() * chance.part() * FILES * 4.0 / 3.0) as u64;
        for _ in 0..files.min(entries - made) {
            let name = file_name(&mut chance);
            let is_link = chance.below(80) == 0;
            let before = path.len();
            enter(&mut levels, &mut path, name.clone(), made);
            let mut entry = entry(&path, if is_link { Kind::Symlink } else { Kind::File }, &mut chance);
            if is_link {
                entry.link = [b"../", name.as_slice()].concat();
            }
            receive(&entry)?;
            path.truncate(before);
            made += 1;
        }
    }
    Ok(())
}

/// Makes `path` that of a `name` in the last folder, with a number if there is one of that name.
fn enter(levels: &mut [Level], path: &mut Vec<u8>, mut name: Vec<u8>, number: u64) {
    let Some(level) = levels.last_mut() else { return };
    if level.names.contains(&name) {
        name.extend(format!("~{number}").bytes());
    }
    path.truncate(level.length);
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend(&name);
    level.names.insert(name);
}

fn some_word(chance: &mut Seeded, name: &mut Vec<u8>) {
    word((chance.part().powi(3) * WORDS_IN_USE) as u64, name);
}

fn folder_name(chance: &mut Seeded) -> Vec<u8> {
    let mut name = Vec::new();
    some_word(chance, &mut name);
    if chance.below(4) == 0 {
        name.push(b'-');
        some_word(chance, &mut name);
    }
    name
}

fn file_name(chance: &mut Seeded) -> Vec<u8> {
    let mut name = Vec::new();
    match chance.below(10) {
        0 => name.extend(
            format!("IMG_20{:02}{:04}_{:06}.jpg", chance.below(30), chance.below(1300), chance.below(240_000)).bytes(),
        ),
        kind => {
            some_word(chance, &mut name);
            if kind < 6 {
                name.push(b'_');
                some_word(chance, &mut name);
            }
            if kind == 9 {
                name.extend(format!("-{}", chance.below(1000)).bytes());
            }
            name.push(b'.');
            name.extend(ENDS[chance.below(ENDS.len() as u64) as usize].bytes());
        }
    }
    name
}

fn entry(path: &[u8], kind: Kind, chance: &mut Seeded) -> Entry {
    // From 2010 on, for fifteen years.
    let seconds = 1_262_304_000 + chance.below(15 * 365 * 86_400) as i64;
    let size = if kind == Kind::File { (4096.0 * 2_f64.powf((chance.part() - 0.4) * 14.0)) as u64 } else { 0 };
    Entry {
        path: path.to_vec(),
        kind,
        mode: match kind {
            Kind::Folder => 0o755,
            Kind::Symlink => 0o777,
            _ => 0o644,
        },
        uid: 1000,
        gid: 1000,
        mtime: Time { seconds, nanoseconds: 0 },
        body: Body { size, stored: size, ..Body::default() },
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_entries_are_a_tree() {
        let mut paths: Vec<(Vec<u8>, Kind)> = Vec::new();
        make(20_000, 1, &Cancel::default(), &mut |entry| {
            paths.push((entry.path.clone(), entry.kind));
            Ok(())
        })
        .unwrap();
        assert_eq!(paths.len(), 20_000);
        let mut folders: HashSet<&[u8]> = HashSet::from([&b""[..]]);
        let mut all = HashSet::new();
        let mut deepest = 0;
        for (path, kind) in &paths {
            let (folder, name) = super::super::entries::split(path);
            // A folder comes before what is in it, and no path twice.
            assert!(folders.contains(folder) && !name.is_empty() && all.insert(path), "{path:?}");
            deepest = deepest.max(path.split(|&byte| byte == b'/').count() - 1);
            if *kind == Kind::Folder {
                folders.insert(path);
            }
        }
        assert!((5..=DEEPEST).contains(&deepest), "{deepest}");
        assert!((500..2000).contains(&folders.len()), "{}", folders.len());
        assert!(paths.iter().any(|(_, kind)| *kind == Kind::Symlink));
        let stopped = Cancel::default();
        stopped.cancel();
        make(1 << 40, 1, &stopped, &mut |_| Ok(())).unwrap_err();
    }
}
