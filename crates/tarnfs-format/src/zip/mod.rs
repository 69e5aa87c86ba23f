//! zip, with zip64, as APPNOTE 6.3.10 and Info-ZIP's extrafld.txt have it.
//!
//! The directory at the end says all but one thing: how long the local header before each content is. It is read in
//! parts, and nothing before it is; [`find_content`] reads a local header when its member is opened. `end` finds the
//! directory, `central` walks it, `extra` reads the fields behind a header, `member` makes an [`Entry`] of both,
//! `coders` says what undoes the content. `reader` does all that in order. Where the directory is missing or damaged,
//! `scan` finds members by their local headers. `volumes` knows how the files are called that an archive is split over,
//! and `unlisted` what an archive has that is in no member.
//!
//! What `unzip` and Python's zipfile make of an archive is the reference. What is so on purpose:
//!
//! - Members are told in the order in which they lie in the archive, so of two with the same name the one further back
//!   is the later one. The directory has the same order, unless an archive was put together in another way.
//! - Times of DOS are local time of nobody knows whom: they are taken for UTC. Most archives of today have better ones
//!   beside them.
//! - Names that are not UTF-8 and do not say what they are: see `guess.rs`. Where there is no directory they stay as
//!   they are.
//! - Only the directory is read, so times of the last access that stand in local headers only are not told. Times of
//!   creation have no place in an [`Entry`].
//! - A member without an owner belongs to user and group 0, and has the mode 0644 or 0755 if it has none.
//! - Members that overlap cannot be read, but the last of them: archives that pack the same bytes many times are bombs.
//! - A name in a local header may be another one than in the directory, which counts.
//! - The target of a symbolic link is the content of its member: such an entry has a body, and an empty link.

mod bytes;
mod central;
mod coders;
mod end;
mod extra;
mod local;
mod member;
mod reader;
mod scan;
mod unlisted;
mod volumes;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Error, Fidelity, Format, Options, Piece, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted,
    VolumesByLast,
};

/// zip and what is made of it: jar, apk, docx, odt, epub, whl, ...
#[derive(Debug)]
pub struct Zip;

const NAME: &str = "zip";

/// What an archive gets that begins with a member: a signature, a version and a method. A block that is a header of a
/// tar all the same gets more.
const HEAD_BITS: u32 = 40;
/// What one gets that ends as an archive does, with its directory there: less than a tar in which an archive lies last.
const TAIL_BITS: u32 = 40;
/// What one gets that begins with the signature of a member, but not with a member.
const LIKELY_BITS: u32 = 24;
/// What one gets whose end record is further ahead: less than any codec. A compressed archive may have stored a member
/// as it is.
const BEHIND_BITS: u32 = 5;

impl Format for Zip {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "zip64, each method that is common today (not 1 to 6: shrink, reduce, implode), ZipCrypto and AES, several files (.z01), self-extracting, a lost directory; also jar, whl, apk, docx, epub"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        // Many programs keep what is theirs in zip archives: of Java, Android, Python, browsers, comics, offices, CAD.
        &[
            ".zip", ".jar", ".war", ".ear", ".apk", ".aab", ".ipa", ".whl", ".xpi", ".vsix", ".nupkg", ".cbz", ".epub",
            ".docx", ".docm", ".dotx", ".dotm", ".xlsx", ".xlsm", ".xltx", ".xltm", ".pptx", ".pptm", ".ppsx", ".ppsm",
            ".potx", ".potm", ".vsdx", ".odt", ".ods", ".odp", ".odg", ".kmz", ".3mf", ".usdz", ".appx", ".msix",
        ]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let head = probe.head();
        // Of volumes, the first one has a signature of its own before the first member.
        let first = [&b"PK\x07\x08"[..], b"PK00"].iter().find_map(|mark| head.strip_prefix(*mark)).unwrap_or(head);
        if local::begins(first) {
            return HEAD_BITS;
        }
        // A damaged member, or an empty archive.
        let is_likely = head.starts_with(&local::SIGNATURE) || head.starts_with(b"PK\x05\x06");
        match end::probe(probe) {
            Some(true) => TAIL_BITS,
            _ if is_likely => LIKELY_BITS,
            Some(false) => BEHIND_BITS,
            None => 0,
        }
    }

    fn compares_content(&self) -> bool {
        true
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        unlisted::unlisted(source, cancel)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }

    fn volumes_by_last(&self) -> Option<&dyn VolumesByLast> {
        Some(self)
    }
}

impl Fidelity for Zip {
    fn told(&self, shown: &Shown) -> Told {
        /// The time of DOS, which counts every second second.
        const OF_DOS: u64 = 2_000_000_000;
        let all = Told::all(shown.mtime);
        let is_even = shown.mtime.nanoseconds == 0 && shown.mtime.seconds % 2 == 0;
        Told { owner: (shown.uid, shown.gid) != (0, 0), mtime: if is_even { Some(OF_DOS) } else { all.mtime }, ..all }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl VolumesByLast for Zip {
    fn last_volume(&self, name: &[u8]) -> Option<Vec<u8>> {
        volumes::last(name)
    }

    fn volumes(&self, last: &dyn Source) -> io::Result<Option<u64>> {
        Ok(match end::find(last, &Cancel::default())? {
            end::End::Split(others) => u16::try_from(others).ok().map(u64::from),
            end::End::Directory(_) | end::End::Missing => None,
        })
    }

    fn volume_before(&self, last: &[u8], number: u64) -> Option<Vec<u8>> {
        volumes::before(last, number)
    }
}

impl ReadRandom for Zip {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::Reader::new(&**source, options, receive).run()
    }

    fn heeds_held(&self) -> bool {
        true
    }

    fn find_content(&self, source: &dyn Source, header: u64, expected: &Piece) -> io::Result<u64> {
        local::find_content(source, header, Some(expected))
    }
}
