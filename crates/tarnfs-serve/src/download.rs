//! A folder as an archive, made while it is sent.

use std::fs::File;
use std::io;
use std::sync::Arc;

use tarnfs_source::Cancel;
use tarnfs_tree::build::Progress;
use tarnfs_tree::{Error, Tree, escape};
use tarnfs_write::container::CONTAINERS;
use tarnfs_write::{LEFT_OUT, Output, Refill, RefillError, Target, Writing, compress};

use crate::held::Held;

/// What streams are compressed with: about as fast as a network.
const COMPRESSION: &str = "zstd";

/// Bytes for compressing one archive.
const MEMORY: u64 = 64 << 20;

/// Kinds of archive, and how a query and a name call them.
pub(crate) fn offered() -> Vec<(String, Target)> {
    let compressed = compress::by_name(COMPRESSION).map_or("", |compression| compression.suffix());
    let mut all = Vec::new();
    for container in CONTAINERS.iter().rev() {
        let ends: &[&str] = if container.own_levels().is_some() { &[""] } else { &[compressed, ""] };
        for end in ends {
            let suffix = format!("{}{end}", container.suffix());
            if let Some(target) = Target::of_name(format!("x{suffix}").as_bytes()) {
                all.push((suffix.trim_start_matches('.').to_owned(), target));
            }
        }
    }
    all
}

/// An archive of a folder that somebody wants.
pub(crate) struct Download {
    pub(crate) tree: Arc<dyn Tree>,
    pub(crate) folder: Held,
    /// In the archive, all lies in a folder of this name.
    pub(crate) name: Vec<u8>,
    pub(crate) target: Target,
    /// Threads that compress.
    pub(crate) threads: usize,
}

impl Download {
    /// Writes the archive to `pipe`.
    pub(crate) fn write(&self, pipe: File, cancel: &Cancel) -> io::Result<()> {
        let Self { tree, folder, name, target, threads } = self;
        let writing = Writing {
            output: Output::stream(pipe),
            compression: target.compression(),
            level: target.usual_level(),
            threads: *threads,
            memory: MEMORY,
            index: None,
        };
        let mut writer = target.writer(writing)?;
        // What tarnfs says of a file is no part of it.
        let is_added = |name: &[u8]| name == b"user.tarnfs.damaged" || name.starts_with(b"user.hash.");
        // The client sees itself how much has come.
        let progress = Progress::default();
        let mut refill = Refill::new(&**tree, &mut *writer, cancel, &progress, &is_added);
        let filled = refill.entry(&folder.attributes, name).and_then(|()| refill.below(folder.attributes.node, name));
        for (what, (count, first)) in refill.left_out().0 {
            // Who downloads a folder does not expect what its kind of archive has no place for, like names of owners.
            let level = if what.starts_with(LEFT_OUT) { log::Level::Warn } else { log::Level::Debug };
            log::log!(level, "{}", told(&what, count, &first));
        }
        drop(refill);
        filled.map_err(|error| match error {
            RefillError::Output(error) => error,
            RefillError::Tree { path, error } => {
                log::warn!("{}: {error}: the download was broken off", escape(&path));
                match error {
                    Error::Io(error) => error,
                    error => io::Error::other(error),
                }
            }
        })?;
        writer.finish().map(drop)
    }
}

/// That `what` happened to `first`, and to so many in all. What is not left out is another there.
fn told(what: &str, count: u64, first: &[u8]) -> String {
    let place = if what.starts_with(LEFT_OUT) { ": not in" } else { ", in" };
    format!("{}: {what} (of {count} in all){place} the archive that was sent", escape(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_left_out_is_not_in_the_archive() {
        let what = format!("{LEFT_OUT}no device");
        assert_eq!(told(&what, 2, b"d"), "d: left out: no device (of 2 in all): not in the archive that was sent");
        let said = told("holes cannot be kept there", 1, b"f");
        assert_eq!(said, "f: holes cannot be kept there (of 1 in all), in the archive that was sent");
    }

    #[test]
    fn the_names_are_those_of_archives() {
        let names: Vec<_> = offered().into_iter().map(|(label, _)| label).collect();
        assert_eq!(names, ["zip", "tar.zst", "tar"]);
    }
}
