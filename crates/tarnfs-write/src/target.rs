//! What is to be written: a kind of archive, and how it is compressed.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;

use tarnfs_format::Entry;

use crate::compress::{self, Compression};
use crate::container::{CONTAINERS, Container, Keeps};
use crate::{ArchiveWriter, Writing};

/// A kind of archive and its compression, or a single file that is compressed.
#[derive(Clone, Copy)]
pub struct Target {
    container: Option<&'static dyn Container>,
    compression: &'static dyn Compression,
}

impl Target {
    /// What a file of that name is: `x.tar.gz`, `x.tgz`, `x.zip`.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        CONTAINERS.iter().find_map(|container| {
            let compression = match container.own_levels() {
                Some(_) => lower.ends_with(container.suffix().as_bytes()).then(uncompressed),
                None => compress::of_archive(container.suffix(), &lower),
            };
            Some(Self { container: Some(*container), compression: compression? })
        })
    }

    /// What `--compress NAME` stands for: an archive of that kind, or of the first kind with that compression.
    pub fn named(name: &str) -> Option<Self> {
        let own = CONTAINERS.iter().find(|one| one.name() == name && one.own_levels().is_some());
        match own {
            Some(container) => Some(Self { container: Some(*container), compression: uncompressed() }),
            None => Some(Self { container: CONTAINERS.first().copied(), compression: compress::by_name(name)? }),
        }
    }

    /// Names that [`Target::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let own = CONTAINERS.iter().filter(|one| one.own_levels().is_some()).map(|one| one.name());
        own.chain(compress::COMPRESSIONS.iter().map(|one| one.name()))
    }

    /// A single file under that name, if the name says that it is compressed and no archive: `x.gz`.
    pub fn single(name: &[u8]) -> Option<Self> {
        if Self::of_name(name).is_some() {
            return None;
        }
        let lower = name.to_ascii_lowercase();
        let is_it = |one: &&&dyn Compression| !one.suffix().is_empty() && lower.ends_with(one.suffix().as_bytes());
        Some(Self { container: None, compression: *compress::COMPRESSIONS.iter().find(is_it)? })
    }

    /// An archive of the first kind without compression.
    pub fn plain() -> Self {
        Self { container: CONTAINERS.first().copied(), compression: uncompressed() }
    }

    /// What kind of archive it is; `None` of a single file.
    pub fn container(self) -> Option<&'static dyn Container> {
        self.container
    }

    /// What compresses the stream.
    pub fn compression(self) -> &'static dyn Compression {
        self.compression
    }

    /// Levels that there are.
    pub fn levels(self) -> RangeInclusive<i32> {
        self.own_levels().map_or_else(|| self.compression.levels(), |(levels, _)| levels)
    }

    /// The one that is taken if none is named.
    pub fn usual_level(self) -> i32 {
        self.own_levels().map_or_else(|| self.compression.usual_level(), |(_, usual)| usual)
    }

    /// The name of what has these levels.
    pub fn name(self) -> &'static str {
        match self.container {
            Some(container) if container.own_levels().is_some() => container.name(),
            _ => self.compression.name(),
        }
    }

    /// What of an entry is kept. A single file has no attributes.
    pub fn keeps(self) -> Keeps {
        let nothing = Keeps {
            root: false,
            names: false,
            xattrs: false,
            holes: false,
            ctime: false,
            comment: false,
            time_unit: 1,
        };
        self.container.map_or(nothing, Container::keeps)
    }

    /// See [`ArchiveWriter::why_not`].
    pub fn why_not(self, entry: &Entry) -> Option<&'static str> {
        self.container.and_then(|container| container.why_not(entry))
    }

    /// Starts the archive. A single file is a [`BlockStream`](crate::BlockStream).
    pub fn writer(self, writing: Writing) -> io::Result<Box<dyn ArchiveWriter>> {
        let no_archive = || io::Error::new(io::ErrorKind::InvalidInput, "a single compressed file is no archive");
        self.container.ok_or_else(no_archive)?.writer(writing)
    }

    fn own_levels(self) -> Option<(RangeInclusive<i32>, i32)> {
        self.container.and_then(Container::own_levels)
    }
}

/// The one that leaves bytes as they are.
fn uncompressed() -> &'static dyn Compression {
    compress::COMPRESSIONS.iter().copied().find(|one| one.is_plain()).unwrap_or(compress::COMPRESSIONS[0])
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let container = self.container.map(Container::name);
        write!(formatter, "Target({container:?}, {:?})", self.compression.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(target: Option<Target>) -> String {
        target.map_or_else(String::new, |target| format!("{target:?}"))
    }

    #[test]
    fn names_say_what_is_written() {
        assert_eq!(shown(Target::of_name(b"a.tar")), "Target(Some(\"tar\"), \"none\")");
        assert_eq!(shown(Target::of_name(b"A.TGZ")), "Target(Some(\"tar\"), \"gzip\")");
        assert_eq!(shown(Target::of_name(b"a.tar.zst")), "Target(Some(\"tar\"), \"zstd\")");
        assert_eq!(shown(Target::of_name(b"a.Zip")), "Target(Some(\"zip\"), \"none\")");
        assert_eq!(shown(Target::of_name(b"a.gz")), "");
        assert_eq!(shown(Target::of_name(b".tar")), "");
        assert_eq!(shown(Target::single(b"a.gz")), "Target(None, \"gzip\")");
        assert_eq!(shown(Target::single(b"a.tgz")), "");
        assert_eq!(shown(Target::single(b"a")), "");
        assert_eq!(shown(Target::named("zip")), "Target(Some(\"zip\"), \"none\")");
        assert_eq!(shown(Target::named("gz")), "Target(Some(\"tar\"), \"gzip\")");
        assert_eq!(shown(Target::named("none")), "Target(Some(\"tar\"), \"none\")");
        assert_eq!(shown(Target::named("rar")), "");
        assert_eq!(Target::names().next(), Some("zip"));
    }

    #[test]
    fn what_compresses_for_itself_has_levels_of_its_own() {
        let zip = Target::named("zip").unwrap();
        assert_eq!((zip.levels(), zip.usual_level(), zip.name()), (0..=9, 6, "zip"));
        assert!(!zip.keeps().xattrs && !zip.keeps().names && zip.keeps().time_unit == 100);
        let tar = Target::named("none").unwrap();
        assert_eq!((tar.name(), tar.keeps().root), ("none", true));
    }
}
