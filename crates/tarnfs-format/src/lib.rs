//! Archive formats: bytes in, entries out.
//!
//! A [`Format`] bids on what a [`Probe`] shows of an archive. It reads the archive, either from its start to its end
//! ([`ReadForwards`]) or from a directory ([`ReadRandom`]), and tells of each [`Entry`] that it meets: its path, its
//! attributes, and where its bytes are, so that they can be opened again. Parsers are without I/O; one thin reader per
//! format does that.
//!
//! A new format is one module and one line in [`FORMATS`].

#![forbid(unsafe_code)]
// Of tests, a panic is the aim.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

pub mod ar;
pub mod arj;
pub mod asar;
pub mod backends;
mod big;
mod boot;
pub mod cab;
mod calendar;
mod clusters;
pub mod containers;
mod content;
pub mod cpio;
pub mod deb;
mod decode;
pub mod disk_image;
pub mod encoding;
mod entry;
pub mod erofs;
pub mod exfat;
pub mod ext;
pub mod fat;
pub mod foreign;
mod guess;
pub mod hfsplus;
pub mod html;
mod image;
mod in_time;
mod inodes;
pub mod iso9660;
pub mod lha;
mod little;
pub mod mail;
mod measure;
pub mod mtree;
pub mod name;
mod naming;
pub mod ntfs;
pub mod ogg;
mod pages;
pub mod partitions;
pub mod pdf;
mod probe;
mod program;
pub mod rar;
mod reparse;
pub mod rpm;
mod separators;
pub mod sevenzip;
pub mod sqlar;
pub mod squashfs;
/// Walking a stream of bytes once, from its start to its end.
pub mod stream;
pub mod tar;
mod time;
pub mod udf;
mod unlisted;
pub mod warc;
pub mod wim;
mod window;
pub mod xar;
pub mod zip;

/// The example of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::io;
use std::ops::Range;

use tarnfs_source::{Cancel, Limits, SharedSource, Source};

pub use decode::{Decode, IsRight, Take};
pub use entry::{Body, Coder, Device, Entry, Input, Kind, MOST_OF_CODERS, Piece, Shown, Step, Time, Told, Xattrs};
pub use in_time::read_in_time;
pub use probe::Probe;
pub use stream::{ForwardStream, SourceStream, Stream};
pub use unlisted::{Unlisted, around};

/// What shapes how an archive is read. Kept in the index: another value means another tree.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bounds on what the archive may say.
    pub limits: Limits,
    /// Zero blocks do not end a tar (concatenated archives; GNU tar's `--ignore-zeros`).
    pub ignore_zeros: bool,
    /// GNU incremental dumps: `Some(true)` reads it as one, `Some(false)` does not, `None` finds out.
    pub gnu_incremental: Option<bool>,
    /// Names of a zip that are in no encoding that it tells are converted from the one that fits best. Of formats that
    /// separate names by backslashes it says which bytes are some.
    pub guess_encoding: bool,
    /// The encoding of names that are not UTF-8, if somebody has told it. Whoever gets the entries converts their
    /// names; a reader has to know it where the bytes of a name say something else before.
    pub encoding: Option<encoding::Encoding>,
    /// Ends a long pass.
    pub cancel: Cancel,
    /// For directories that are coded.
    pub decode: Decode,
    /// How many images have together what one may take of memory and time: the partitions of a disk. At least 1.
    pub shares: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            ignore_zeros: false,
            gnu_incremental: Some(false),
            guess_encoding: true,
            encoding: None,
            cancel: Cancel::default(),
            decode: Decode::default(),
            shares: 1,
        }
    }
}

/// What a format meets on its way along the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A file, folder, link, ...
    Entry(Box<Entry>),
    /// A file whose content comes now, in a stream that cannot go back, and which may go on in another volume: whoever
    /// wants to read the content reads it now. The next event is the [`Event::Entry`] of the same header. If that
    /// has the same body, it was all; else only its first part was.
    Ahead(Box<Entry>),
    /// Whether a header that holds for all entries behind it says something of them from here on. `false` at the start.
    ForAll(bool),
    /// Something is wrong here; reading goes on behind it where it can.
    Damage(Damage),
    /// The name that the archive gives itself (GNU volume header), as it is stored.
    Label(Vec<u8>),
    /// Something is in the archive that no entry shows, in words, and which [`Format::unlisted`] cannot find without
    /// reading all of it: "12 bytes that belong to none of its files". A reader tells few of these.
    Unlisted(String),
    /// What comes next may take megabytes of memory: whoever reads archives beside each other may let the reader wait
    /// here until those before it have ended.
    Heavy,
    /// The archive ends before this byte, unless another one follows: of formats that have something behind the last
    /// entry that says so.
    End(u64),
}

/// Bytes of a header, or of what is made of one, from which on [`Event::Heavy`] is told.
const HEAVY: u64 = 1 << 20;

/// A place at which an archive breaks its format's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Byte of the stream at which it begins.
    pub offset: u64,
    /// What is wrong and what was done, as a clause: "no valid header; 3 blocks were skipped".
    pub what: String,
}

/// Why reading an archive stopped before its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream could not be read on.
    #[error("reading at byte {offset}: {error}")]
    Read {
        /// Byte of the stream.
        offset: u64,
        /// What the source said.
        error: io::Error,
    },
    /// The stream does not hold this format at all.
    #[error("not a {format} archive: {reason}")]
    NotThisFormat {
        /// The format's name.
        format: &'static str,
        /// What speaks against it.
        reason: String,
    },
    /// It is of this format, but nothing of it can be read: what leads to its files is damaged, or too much.
    #[error("a {format} archive that cannot be read: {reason}")]
    Unreadable {
        /// The format's name.
        format: &'static str,
        /// Why not.
        reason: String,
    },
    /// It is of this format, and may well be whole: another file, a password or something that is not known here (a
    /// version, a feature) is needed to read it.
    #[error("a {format} archive that cannot be read: {reason}")]
    Unsupported {
        /// The format's name.
        format: &'static str,
        /// What it needs.
        reason: String,
    },
    /// The receiver of the events failed; reading stopped.
    #[error(transparent)]
    Receiver(io::Error),
}

/// For whoever has no use for where it was. What speaks against the archive is damage of it.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Read { error, .. } | Error::Receiver(error) => error,
            error @ Error::Unsupported { .. } => Self::new(io::ErrorKind::Unsupported, error),
            error @ (Error::NotThisFormat { .. } | Error::Unreadable { .. }) => {
                Self::new(io::ErrorKind::InvalidData, error)
            }
        }
    }
}

/// What a volume says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Whether another one follows it; `None` if that cannot be read, as its headers are encrypted.
    pub is_followed: Option<bool>,
    /// The name of that one, where it says so.
    pub next: Option<Vec<u8>>,
    /// Others are needed to read all that is in it.
    pub is_part: bool,
    /// The number of what it belongs to and its place there, where it says so.
    pub set: Option<(u16, u16)>,
}

impl Volume {
    /// False if it cannot be the one behind `before`.
    pub fn may_follow(&self, before: &Self) -> bool {
        match (self.set, before.set) {
            (Some((set, place)), Some((of, last))) => set == of && Some(place) == last.checked_add(1),
            _ => true,
        }
    }
}

/// Takes what a format meets; see [`ReadForwards::read`]. An error ends the reading.
pub type Receive<'r> = dyn FnMut(Event, &mut dyn Stream) -> io::Result<()> + 'r;

/// A part of an archive that is one of its own: see [`Fidelity::parts`].
#[derive(Clone)]
pub struct Part {
    /// Its bytes.
    pub range: Range<u64>,
    /// Its format.
    pub format: &'static dyn Format,
    /// What [`Fidelity::tells_of_unix`] says of it.
    pub tells_of_unix: bool,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Part").field(&self.range).field(&self.format.name()).finish()
    }
}

/// What kind of thing is in a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// Files that were put together.
    Archive,
    /// What is mostly used as it is, as a page or a film is ([`Format::is_document`]).
    Document,
    /// An image of a file system, which may lie in a partition of a disk.
    FileSystem,
    /// All of a disk: a table of partitions.
    Disk,
    /// A package. A codec has made the stream that it reads of headers and a payload, and nobody can make the package
    /// of that again.
    Package,
}

impl Nature {
    /// True of what may be all of a disk: file systems, and tables of partitions.
    pub(crate) fn is_of_disk(self) -> bool {
        matches!(self, Self::FileSystem | Self::Disk)
    }
}

/// One archive format.
///
/// An implementor provides what has no body here, and the [`suffixes`](Self::suffixes). What only some formats have is
/// in traits of its own, which this one leads to.
pub trait Format: Send + Sync {
    /// Its name, as it stands in an index: "tar".
    fn name(&self) -> &'static str;

    /// What of it is read, in one line.
    fn about(&self) -> &'static str;

    /// Ends of names of such files, in lower case and from the dot on: ".tar".
    fn suffixes(&self) -> &'static [&'static str] {
        &[]
    }

    /// What kind of thing it is.
    fn nature(&self) -> Nature {
        Nature::Archive
    }

    /// How sure it is that what `probe` shows holds this format: the number of bits that had to match. 0 if it does
    /// not.
    fn bid(&self, probe: &Probe<'_>) -> u32;

    /// Bytes from the start that say whether it is the one.
    fn head(&self) -> usize {
        1024
    }

    /// True of what has such a name and is known by its end: what stands at its start may look like anything.
    fn is_known_by_its_end(&self, name: &[u8]) -> bool {
        let _ = name;
        false
    }

    /// What encrypts such archives as a whole, so that nothing in a file tells what it is but its name, and what to do:
    /// of a file that has one of the names, begins with `head`, and is of no format.
    fn encrypted_with(&self, head: &[u8], length: u64) -> Option<&'static str> {
        let _ = (head, length);
        None
    }

    /// True if a file that begins with `head` is mostly used as it is, as a page or a film is. What lies in one shows
    /// where the file itself is named, and with `-r`; inside of a compressed file it stays a file.
    fn is_document(&self, head: &[u8]) -> bool {
        let _ = head;
        self.nature() == Nature::Document
    }

    /// True if `head` begins a later volume of an archive whose volumes cannot simply be joined: it begins with headers
    /// of its own. What joins them is [`Options::ignore_zeros`].
    fn is_later_volume(&self, head: &[u8]) -> bool {
        let _ = head;
        false
    }

    /// How it is read.
    fn reader(&self) -> Reader<'_>;

    /// What reads it, if it is read forwards.
    fn forwards(&self) -> Option<&dyn ReadForwards> {
        match self.reader() {
            Reader::Forwards(forwards) => Some(forwards),
            Reader::Random(_) => None,
        }
    }

    /// What is in the archive `source` and in none of its entries. Who finds nothing takes the archive away once its
    /// entries are kept elsewhere: a format that cannot tell says [`Unlisted::unknown`]. What is around the archive
    /// ([`around`]) belongs to it, of formats that have a directory; of those that are read forwards, whoever has read
    /// them knows where they end. What was met on the way is told then ([`Event::Unlisted`]).
    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted>;

    /// True if it has a checksum of each file.
    fn compares_content(&self) -> bool {
        false
    }

    /// What does not fit to checksums that are compared neither when it is listed nor when a file is read, as all of it
    /// is read for that: some of it. `None` if it has none such.
    fn wrong_checksums(&self, source: &SharedSource, cancel: &Cancel) -> io::Result<Option<Vec<Damage>>> {
        let _ = (source, cancel);
        Ok(None)
    }

    /// What of a file it keeps: all, unless it says otherwise.
    fn fidelity(&self) -> &dyn Fidelity {
        &Everything
    }

    /// How its volumes are called, if the last one of them leads to the others.
    fn volumes_by_last(&self) -> Option<&dyn VolumesByLast> {
        None
    }

    /// How its volumes are called, if the first one of them is known by its name, and each says whether another one
    /// follows.
    fn volumes_by_first(&self) -> Option<&dyn VolumesByFirst> {
        None
    }
}

/// What of a file is told by an archive that it was put into: for whoever compares both.
pub trait Fidelity {
    /// Which attributes of a file its entry has told, and which may stand for what it did not tell.
    fn told(&self, shown: &Shown) -> Told {
        Told::all(shown.mtime)
    }

    /// True if it has hard links.
    fn has_hard_links(&self) -> bool {
        true
    }

    /// False if this archive keeps neither modes, owners nor hard links, though others of its format do.
    fn tells_of_unix(&self, source: &dyn Source) -> io::Result<bool> {
        let _ = source;
        Ok(true)
    }

    /// Of an archive that only holds others, those, each in a format of its own: of a file in one of them that is told
    /// which it keeps, and of others nothing. A file lies where its header is.
    fn parts(&self, source: &dyn Source) -> io::Result<Option<Vec<Part>>> {
        let _ = source;
        Ok(None)
    }

    /// An extended attribute of the files of which nothing of Unix is told, where others in their archive have more.
    fn xattr_without_unix(&self) -> Option<&'static [u8]> {
        None
    }

    /// What the names of extended attributes begin with that stand for what another system keeps of a file. A file on a
    /// disk that has none of them does not differ for that.
    fn foreign_xattrs(&self) -> Option<&'static [u8]> {
        None
    }
}

/// All that a file can have.
struct Everything;

impl Fidelity for Everything {}

/// A format that splits an archive over several files, of which the last one has the directory.
pub trait VolumesByLast: Format {
    /// The name of the last of the files that an archive is split over in the format's own way, if `name` may be that
    /// of one of them.
    fn last_volume(&self, name: &[u8]) -> Option<Vec<u8>>;

    /// How many files there are before the `last` one, if it says that there are some. Nobody has seen them: it may say
    /// any number.
    fn volumes(&self, last: &dyn Source) -> io::Result<Option<u64>>;

    /// The name of the file of that number, from 1 on, of those before the `last` one, which is called so.
    fn volume_before(&self, last: &[u8], number: u64) -> Option<Vec<u8>>;
}

/// A format that splits an archive over several files, of which the first one is known by its name, and each says
/// whether another one follows.
pub trait VolumesByFirst: Format {
    /// The names that the first of the files may have that an archive is split over in the format's own way, if `name`
    /// may be that of one of them.
    fn first_volumes(&self, name: &[u8]) -> Vec<Vec<u8>>;

    /// The name of the volume that follows the one with that `name`.
    fn next_volume(&self, name: &[u8]) -> Option<Vec<u8>> {
        let _ = name;
        None
    }

    /// What `source` says of itself if it is a volume; `None` if it is none.
    fn volume(&self, source: &dyn Source) -> io::Result<Option<Volume>>;
}

/// The two ways in which archives are read.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Reader<'f> {
    /// From the start to the end, once: each header stands before its content.
    Forwards(&'f dyn ReadForwards),
    /// From a directory, wherever that lies. Contents are not read.
    Random(&'f dyn ReadRandom),
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Forwards(_) => "Forwards",
            Self::Random(_) => "Random",
        })
    }
}

/// Reads an archive from its start to its end.
pub trait ReadForwards: Send + Sync {
    /// Reads `stream` to its end and hands each event to `receive`, in the order of the stream, and with it the stream
    /// itself. With an entry that has content the stream stands where that begins; `receive` may read it and move
    /// on up to its end.
    ///
    /// Damage is an event, not an error, as long as anything behind it can be read. The format stops at the archive's
    /// end; what the stream holds behind it is the caller's.
    fn read(&self, stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error>;

    /// Bytes of the shortest entry, where an archive that begins with `head` can be read on behind its last entry when
    /// something was appended to it: what comes is a header or nothing but zeros, and nothing before it says anything
    /// of it. `None` where it has to be read from its start.
    fn continues(&self, head: &[u8]) -> Option<u64> {
        let _ = head;
        None
    }

    /// How a stream of it tells where files begin, for whoever wants to know that without reading it. `None` where that
    /// is not told at places that are known before.
    fn file_starts(&self) -> Option<FileStarts> {
        None
    }
}

/// Where files begin in a stream: with `magic` at byte `at` of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStarts {
    /// Bytes of a block. The stream is made of those.
    pub block: u64,
    /// Where in the first block of a file the magic is.
    pub at: u64,
    /// The magic. Something in a file may look like that, too.
    pub magic: &'static [u8],
}

/// Takes what a format finds in a directory; see [`ReadRandom::read`]. An error ends the reading.
pub type ReceiveRandom<'r> = dyn FnMut(Event) -> io::Result<()> + 'r;

/// Reads an archive that has a directory.
pub trait ReadRandom: Send + Sync {
    /// Hands what the archive in `source` holds to `receive`: each file before the next one of the same path, which
    /// takes its place. Offsets count from the start of `source`.
    ///
    /// Damage is an event, not an error, as long as anything else can be read.
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error>;

    /// True if it never holds more than [`Limits::held`] of what leads to its files. Others may hold as much as they
    /// need, and small ones of these are not read beside each other.
    fn heeds_held(&self) -> bool {
        false
    }

    /// Where the content of a member begins that has a header of its own at byte `header`
    /// ([`Coder::is_behind_header`]), and which lies in the archive as `expected` says. `InvalidData` where that header
    /// is not what the directory says.
    fn find_content(&self, source: &dyn Source, header: u64, expected: &Piece) -> io::Result<u64> {
        let _ = (source, header, expected);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// All formats.
pub static FORMATS: &[&dyn Format] = &[
    &ar::Ar,
    &arj::Arj,
    &asar::Asar,
    &cab::Cab,
    &cpio::Cpio,
    &deb::Deb,
    &disk_image::DiskImage,
    &erofs::Erofs,
    &exfat::ExFat,
    &ext::Ext,
    &fat::Fat,
    &hfsplus::HfsPlus,
    &html::Html,
    &iso9660::Iso9660,
    &lha::Lha,
    &mail::Mail,
    &mtree::Mtree,
    &ntfs::Ntfs,
    &ogg::Ogg,
    &partitions::Partitions,
    &pdf::Pdf,
    &rar::Rar,
    &rpm::Rpm,
    &sevenzip::SevenZip,
    &sqlar::Sqlar,
    &squashfs::Squashfs,
    &tar::Tar,
    &udf::Udf,
    &warc::Warc,
    &wim::Wim,
    &xar::Xar,
    &zip::Zip,
];

/// The format of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}

/// The format that `name` says by its end, and the name without that end, where something is left.
pub fn by_suffix(name: &[u8]) -> Option<(&'static dyn Format, &[u8])> {
    let ends = FORMATS.iter().flat_map(|format| format.suffixes().iter().map(move |suffix| (*format, *suffix)));
    let stems = ends.filter_map(|(format, suffix)| {
        let (stem, end) = name.split_at_checked(name.len().checked_sub(suffix.len())?)?;
        (!stem.is_empty() && end.eq_ignore_ascii_case(suffix.as_bytes())).then_some((format, stem))
    });
    stems.min_by_key(|(_, stem)| stem.len())
}

/// The format of what is called `name` and is known by its end ([`Format::is_known_by_its_end`]).
pub fn known_by_its_end(name: &[u8]) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.is_known_by_its_end(name))
}

/// The format that bids highest for what `probe` shows; `None` if none does.
pub fn detect(probe: &Probe<'_>) -> Option<&'static dyn Format> {
    FORMATS
        .iter()
        .copied()
        .map(|format| (format.bid(probe), format))
        .filter(|(bid, _)| *bid > 0)
        .max_by_key(|(bid, _)| *bid)
        .map(|(_, format)| format)
}
