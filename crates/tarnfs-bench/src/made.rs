//! Files to measure on, for those who have none at hand.

use std::fs;
use std::path::{Path, PathBuf};

use crate::measure::Program;
use crate::seeded::make_tree;
use crate::{Error, Report, Scratch, Settings};

/// What each kind of archive is made with: the end of its name, the program, and the words for a tree in the working
/// folder; `OUT` stands for the archive.
const KINDS: [(&str, &str, &[&str]); 7] = [
    (".tar", "tar", &["-cf", "OUT", "tree"]),
    (".tar.gz", "tar", &["-czf", "OUT", "tree"]),
    (".tar.bz2", "tar", &["-cjf", "OUT", "tree"]),
    (".tar.xz", "tar", &["-I", "xz -T0 --block-size=4MiB", "-cf", "OUT", "tree"]),
    (".tar.zst", "tar", &["-I", "zstd", "-cf", "OUT", "tree"]),
    (".zip", "zip", &["-q", "-r", "-y", "OUT", "tree"]),
    (".squashfs", "mksquashfs", &["tree", "OUT", "-quiet", "-no-progress"]),
];

/// The seed of all that is made.
const SEED: u64 = 1;

/// A tree of about so many bytes in a folder of `scratch`.
pub fn tree(bytes: u64, scratch: &Scratch, settings: &Settings) -> Result<PathBuf, Error> {
    settings.say("making files");
    let path = scratch.join(format!("made-{bytes}"));
    make_tree(&path.join("tree"), bytes, SEED, &settings.cancel).map_err(Error::at(&path))?;
    Ok(path.join("tree"))
}

/// Archives of such a tree, one of each kind; those of tar only, if so. What cannot be made is left out.
pub fn archives(
    bytes: u64,
    only_tar: bool,
    scratch: &Scratch,
    settings: &Settings,
    report: &mut Report,
) -> Result<Vec<PathBuf>, Error> {
    let tree = tree(bytes, scratch, settings)?;
    let folder = tree.parent().unwrap_or(Path::new("/")).to_owned();
    let mut made = Vec::new();
    for (end, program, words) in KINDS.iter().filter(|(_, program, _)| !only_tar || *program == "tar") {
        let name = format!("{}{end}", size(bytes));
        settings.say(&format!("making {name}"));
        let Some(program) = Program::find(program, &settings.peers) else {
            report.lacks(program);
            continue;
        };
        let path = folder.join(&name);
        let words = words.iter().map(|word| if *word == "OUT" { path.as_os_str() } else { word.as_ref() });
        match program.job(words, settings.limit).folder(&folder).run(&settings.cancel) {
            Ok(_) => made.push(path),
            Err(crate::measure::Reason::Cancelled) => return Err(Error::Cancelled),
            Err(reason) => report.note(format!("{name} was not made: {reason}")),
        }
    }
    fs::remove_dir_all(&tree).map_err(Error::at(&tree))?;
    report.note(format!("The archives were made: of {} of seeded files.", size(bytes)));
    Ok(made)
}

/// For names: 64MiB.
fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes >= MIB { format!("{}MiB", bytes / MIB) } else { format!("{}KiB", bytes / 1024) }
}
