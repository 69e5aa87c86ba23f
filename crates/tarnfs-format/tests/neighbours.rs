//! A format is one folder and one line: nothing else knows its name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

use tarnfs_format::FORMATS;

/// Who may name a format, and why.
const MAY: &[(&str, &str)] = &[
    // The list of formats.
    ("tarnfs-format/src/lib.rs", "::"),
    // Where the volume of a disc ends decides whether a disk was partitioned behind it.
    ("tarnfs-format/src/partitions/mod.rs", "::"),
    // Both have the same CRC-16.
    ("tarnfs-format/src/lha/header.rs", "ext::"),
    // ratarmount's indexes describe tars, and the command knows what joined tars look like.
    ("tarnfs-index/src/ratarmount/", "\"tar\""),
    ("tarnfs/src/inside.rs", "\"tar\""),
    // A suffix behind that of a compression, and what a user may have typed.
    ("tarnfs-tree/src/build/mod.rs", "\"tar\""),
    ("tarnfs-tree/src/build/mod.rs", "\".tar\""),
    ("tarnfs/src/typos.rs", "\"tar\""),
    // Who writes an archive names its format, and there is a list of those, too.
    ("tarnfs-write/src/container/", "\""),
    ("tarnfs-write/src/container/mod.rs", "::"),
    // What a compressed tar is called for short.
    ("tarnfs-codec/src/", "\".tar\""),
    // These compressions have no other name than that of their container.
    ("tarnfs-codec/src/coders/", "rar"),
    ("tarnfs-codec/src/coders/mod.rs", "pdf::"),
    ("tarnfs-codec/src/package/", "::"),
    // What ratarmount calls its readers, and what they read.
    ("tarnfs-format/src/backends.rs", "\""),
    // What files of a media type are called.
    ("tarnfs-format/src/naming.rs", "\"."),
    // What lies in packages.
    ("tarnfs-format/src/rpm/", "cpio::"),
    ("tarnfs-format/src/deb/", "ar::"),
    // Programs that are measured, and archives that are made for that.
    ("tarnfs-bench/src/", "\""),
    ("tarnfs-bench/src/", "tar::"),
    // A comparison of such programs.
    ("tarnfs/src/commands/bench.rs", "tar::"),
    // The kernel's own file systems.
    ("tarnfs-tree/src/folder/waits.rs", "\"squashfs\""),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// `text` without comments and the tests at its end.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let end = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn nobody_knows_a_format_by_its_name() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let own = crates.join("tarnfs-format/src");
    let folders: Vec<String> = own
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        // Others have tests of a file beside them.
        .filter(|path| path.join("mod.rs").is_file())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(folders.len(), FORMATS.len(), "one folder for each format: {folders:?}");

    let mut files = Vec::new();
    for one in crates.read_dir().unwrap() {
        sources(&one.unwrap().path().join("src"), &mut files);
    }
    assert!(files.len() > 100, "{files:?}");
    let mut names: Vec<(Option<&str>, String)> =
        folders.iter().map(|folder| (Some(folder.as_str()), format!("{folder}::"))).collect();
    names.extend(FORMATS.iter().map(|format| (None, format!("\"{}\"", format.name()))));
    let suffixes = FORMATS.iter().flat_map(|format| format.suffixes());
    names.extend(suffixes.map(|suffix| (None, format!("\"{suffix}\""))));
    let mut wrong = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let shown = file.strip_prefix(crates).unwrap().to_str().unwrap();
        for (folder, name) in &names {
            let is_own = match folder {
                Some(folder) => file.starts_with(own.join(folder)),
                // What it is called it says itself, somewhere in its folder.
                None => folders.iter().any(|folder| file.starts_with(own.join(folder))),
            };
            let may = MAY.iter().any(|(place, what)| shown.starts_with(place) && name.contains(what));
            let is_name = |line: &&str| {
                let before = line.find(name.as_str()).map(|at| line[..at].chars().next_back());
                before.is_some_and(|before| {
                    before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_' || name.starts_with("\"."))
                })
            };
            if !is_own && !may && code(&text).any(|line| is_name(&line)) {
                wrong.push(format!("{shown}: {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
