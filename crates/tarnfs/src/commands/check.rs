use std::io::{self, Write};
use std::path::Path;

use tarnfs_format::Damage;
use tarnfs_index::{Index, Shape};
use tarnfs_source::Cancel;
use tarnfs_tree::DamagedFiles;
use tarnfs_tree::containers::wrong_digests;
use tarnfs_tree::open::{IndexPlace, OpenArchive, Options, Problem, Recreate};

use super::difference::{difference, difference_of_sidecar};
use crate::args::{Check, shown};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::terminal::{escaped, output_failure};

/// Damaged files that are named without `-d 2`.
const MOST_NAMED: usize = 20;

/// Reads each archive from its start to its end, says on standard output what is damaged, and compares what was found
/// with its index.
pub(crate) fn run(arguments: &Check) -> Result<Code, Failure> {
    let most_named = if arguments.open.debug >= 2 { usize::MAX } else { MOST_NAMED };
    inside::each(&arguments.archives, &arguments.open, |archive, options| one(archive, options, most_named))
}

/// What of an archive that is whole may be wrong all the same, since nothing tells. `index` is its index.
fn without_checksums(index: &dyn Index) -> Result<&'static str, tarnfs_index::Error> {
    let summary = index.summary();
    // Archives in it may have some, where they are looked into.
    let mut has_others = false;
    if summary.shape.recursion.is_some() && summary.layers.is_empty() {
        index.each_nested(&mut |_, _| has_others = true)?;
        index.coders(&mut |_| {
            has_others = true;
            false
        })?;
    }
    Ok(match tarnfs_format::by_name(&summary.format) {
        Some(format) if has_others && !format.compares_content() => {
            ", which has no checksums to compare but those of archives in it"
        }
        Some(format) if summary.layers.is_empty() && !format.compares_content() => match format.forwards() {
            Some(_) => ", which has no checksums to compare",
            None => ", not all of which need have checksums",
        },
        _ => "",
    })
}

/// What does not fit to checksums of an archive for which all of it has to be read.
pub(super) fn wrong_checksums(opened: &OpenArchive, cancel: &Cancel) -> io::Result<Option<Vec<Damage>>> {
    let format = tarnfs_format::by_name(&opened.index.summary().format);
    format.map_or(Ok(None), |format| format.wrong_checksums(&opened.stream, cancel))
}

fn one(archive: &Path, options: &Options, most_named: usize) -> Result<Code, Failure> {
    let name = shown(archive.as_os_str());
    let existing = |shape: &Shape| {
        let shape = shape.clone();
        let mut options = Options { shape, ..options.clone() };
        options.index.recreate = Recreate::Never;
        options.decoding.decoded_cache = None;
        tarnfs_tree::open::open(archive, &options)
    };
    let mut found = existing(&options.shape);
    let shape = found.as_ref().map_or(&options.shape, |found| &found.index.summary().shape).clone();
    if shape != options.shape {
        // It has more hashes than were asked for: these are compared, too.
        found = existing(&shape);
    }
    let mut fresh = Options { shape, ..options.clone() };
    fresh.index.place = IndexPlace::Memory;
    fresh.index.recreate = Recreate::Always;
    fresh.decoding.decoded_cache = None;
    let fresh = inside::open_quietly(archive, &fresh)?;
    inside::unlocked(archive, &fresh, options)?;
    let summary = fresh.index.summary();
    let mut lines = Vec::new();
    let mut notes: Vec<_> = summary.notes.iter().collect();
    notes.sort();
    notes.dedup();
    for note in notes {
        lines.push(format!("{name}: {}", inside::told(archive, summary, note)));
    }
    // Where some were compared when it was listed, they were told.
    let mut checksums = None;
    if lines.is_empty() {
        let wrong = wrong_checksums(&fresh, &options.cancel);
        checksums = wrong.map_err(|error| inside::failure(archive, b"", &error.into()))?;
        let told = |damage: &Damage| format!("{name}: damaged at byte {}: {}", damage.offset, damage.what);
        lines.extend(checksums.iter().flatten().map(told));
    }
    let wrong_layers = wrong_digests(&fresh, options);
    let wrong_layers = wrong_layers.map_err(|error| inside::failure(archive, b"", &error.into()))?;
    lines.extend(wrong_layers.iter().map(|what| format!("{name}: damaged: {what}")));
    // What a compressed file holds is one file.
    let is_a_file = fresh.is_single_file().map_err(|error| inside::failure(archive, b"", &error.into()))?;
    let counted = fresh.tree.damaged(if is_a_file { 0 } else { most_named }, &options.cancel);
    let DamagedFiles { files, damaged, links, locked, unchecked, first } =
        counted.map_err(|error| inside::failure(archive, b"", &error))?;
    let is_noted = !lines.is_empty();
    // Files of which a checksum is wrong can be read all the same.
    let has_wrong_checksums = !wrong_layers.is_empty() || checksums.as_ref().is_some_and(|wrong| !wrong.is_empty());
    if (is_noted && !has_wrong_checksums && locked < files) || damaged > 0 || links > 0 {
        let of = match (files, damaged) {
            (_, 1..) if is_a_file => "the file in it is damaged".to_owned(),
            _ if is_a_file => "the file in it is not damaged".to_owned(),
            (1.., 0) if locked >= files => "its files were not checked".to_owned(),
            (0, _) => "it has no files".to_owned(),
            (1, 0) => "its only file is not damaged".to_owned(),
            (_, 0) => format!("none of its {files} files is damaged"),
            (1, _) => "its only file is damaged".to_owned(),
            (_, 1) => format!("1 of {files} files is damaged"),
            _ => format!("{damaged} of {files} files are damaged"),
        };
        let of_links = match links {
            0 => String::new(),
            1 => "; the target of 1 symbolic link is damaged".to_owned(),
            _ => format!("; the targets of {links} symbolic links are damaged"),
        };
        let is_served = links == 0 || damaged > 0;
        let force =
            if is_served && fresh.index.has_unverified() { "; --force serves what of it can be decoded" } else { "" };
        lines.push(format!("{name}: {of}{of_links}{force}"));
        // Where no line above says it.
        let why = |what: &str| if is_noted { String::new() } else { format!(": {what}") };
        lines.extend(first.iter().map(|(path, what)| format!("{name}: damaged: {}{}", escaped(path), why(what))));
        let more = damaged + links - first.len() as u64;
        if more > 0 && !first.is_empty() {
            lines.push(format!("{name}: and {more} more; -d 2 names all"));
        }
    }
    let mut code = if lines.is_empty() { Code::Success } else { Code::Damaged };
    if locked > 0 {
        // Nobody knows whether they are damaged.
        code = code.max(Code::CannotOpen);
        let verb = if locked == 1 { "was" } else { "were" };
        let password = if options.decoding.passwords.is_empty() {
            inside::GIVE_A_PASSWORD
        } else {
            "no password that is given opens them"
        };
        lines.push(format!("{name}: {} encrypted and {verb} not checked: {password}", inside::are(locked, files)));
    } else if lines.is_empty() {
        let (files_noun, bytes) = (inside::noun(files, "file"), summary.bytes);
        let unnoticed = if bytes == 0 || checksums.is_some() { Ok("") } else { without_checksums(&*fresh.index) };
        let unnoticed = unnoticed.map_err(|error| inside::failure(archive, b"", &error.into()))?;
        let unnoticed = match unchecked {
            _ if checksums.is_some() => String::new(),
            // Of an archive in another one, that one may have checksums.
            _ if !unnoticed.is_empty() || summary.shape.recursion.is_some() => unnoticed.to_owned(),
            0 => String::new(),
            1 => ", of which 1 file was compared with nothing".to_owned(),
            _ => format!(", of which {unchecked} files were compared with nothing"),
        };
        lines.push(format!(
            "{name}: whole: {files} {files_noun} with {bytes} {} of content{unnoticed}",
            inside::noun(bytes, "byte")
        ));
    }
    lines.extend(inside::only_zeros(&fresh).map(|what| format!("{name}: {what}")));
    let names = inside::other_names(&fresh, &options.cancel);
    let names = names.map_err(|error| inside::failure(archive, b"", &error))?;
    lines.extend(names.iter().map(|what| format!("{name}: {what}")));
    // What was found is said whatever fails from here on.
    let mut trouble = None;
    match inside::behind_the_end(&fresh, u64::MAX) {
        Ok(what) => lines.extend(what.map(|what| format!("{name}: {what}"))),
        Err(error) => match inside::failure(archive, b"", &error.into()) {
            failure if failure.code == Code::Interrupted => return Err(failure),
            failure => trouble = Some(failure),
        },
    }
    match found {
        Ok(opened) => {
            let path = opened.index_path.as_deref().unwrap_or(Path::new("")).as_os_str().to_owned();
            // A sidecar says less.
            let compare = if opened.is_sidecar { difference_of_sidecar } else { difference };
            match compare(&opened.index, &fresh.index, &options.cancel) {
                Ok(None) => log::info!("{name}: its index {} is right", shown(&path)),
                Ok(Some(what)) => {
                    let (then, now) = (opened.index.summary().archive.modified, summary.archive.modified);
                    let cause = if then == now { "" } else { " (the archive was changed after it was indexed)" };
                    let index = shown(&path);
                    lines.push(format!(
                        "{name}: the archive and its index {index} differ{cause}: {what}; make the index again with -c"
                    ));
                    code = if code == Code::Success { Code::Index } else { code };
                }
                Err(_) if options.cancel.is_cancelled() => {
                    return Err(Failure::new(Code::Interrupted, format!("{name}: interrupted")));
                }
                Err(error) => {
                    let what = format!("{name}: reading {}: {error}", shown(&path));
                    trouble.get_or_insert(Failure::new(Code::Index, what));
                }
            }
        }
        Err(Problem::NoIndex(why)) => log::info!("{name}: no index to compare it with: {why}"),
        Err(problem) => match inside::cannot_open(archive, &problem) {
            failure if failure.code == Code::Index => log::info!("{failure}"),
            failure => {
                trouble.get_or_insert(failure);
            }
        },
    }
    lines.iter().try_for_each(|line| writeln!(io::stdout(), "{line}")).map_err(|error| output_failure(&error))?;
    match trouble {
        None => Ok(code),
        // Damage says more than an index that cannot be read.
        Some(failure) if code != Code::Success && failure.code == Code::Index => Err(Failure { code, ..failure }),
        Some(failure) => Err(Failure { code: failure.code.max(code), ..failure }),
    }
}
