//! UDF images: ECMA-167 (3rd edition) as OSTA UDF 1.02 to 2.60 uses it.
//!
//! `recognition` finds the marks and the anchors, `volume` reads the descriptors that these lead to, `space` says where
//! the blocks of each kind of partition lie. `disc` puts these together, and finds the entries of files (`file`) and
//! where their content is (`content`). `listing` is what stands in a folder, `names` and `attributes` what files are
//! called and have. `reader` walks the folders and makes an [`crate::Entry`] of each name. Nothing of the files is read
//! but what becomes an attribute, and the targets of links.
//!
//! What is so on purpose:
//!
//! - Of an image that ISO 9660 describes as well, that is shown if it has Rock Ridge: then it has attributes and links,
//!   which writers of such images leave out of UDF. So it is if there are several sessions: of files of earlier ones
//!   genisoimage writes empty entries to UDF. Else UDF is shown, for its names and the lengths of its files. If
//!   it cannot be read, ISO 9660 is shown. What a computer boots from is in a folder `[BOOT]`, whichever shows.
//! - The first name of an entry is a file, and each other one a hard link, if it has several.
//! - A folder that is reached a second time is damage.
//! - Streams are extended attributes: `user.` and the name. Those that are too long for one are left out.
//! - What is deleted is not shown, what is hidden is; but not the list of blocks that no file may have.
//! - The time at which a file was made is in no tree.

mod attributes;
mod bytes;
mod content;
mod disc;
mod file;
mod image;
mod listing;
mod names;
mod reader;
mod recognition;
mod space;
mod tag;
mod volume;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Damage, Error, Event, Fidelity, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Unlisted,
};

/// UDF images.
#[derive(Debug)]
pub struct Udf;

const NAME: &str = "udf";

/// The other format of an image that has both.
const OTHER: &str = "iso9660";

/// What two marks get, one at the start of the sequence and one that says that it is UDF: more than ISO 9660 alone.
const BITS: u32 = 80;
/// What UDF gets where something else shows more of the files.
const BEHIND_BITS: u32 = 32;

impl Format for Udf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "1.02 to 2.60; virtual, sparable and metadata partitions, symbolic and hard links, streams as extended attributes"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".udf"]
    }

    fn nature(&self) -> Nature {
        Nature::FileSystem
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let show = |offset: u64, length: usize| probe.at(offset, length);
        let Some(found) = recognition::recognise(&show) else { return 0 };
        // Of what is decoded, only the start shows. Who reads it looks again.
        let Some(length) = probe.length().filter(|_| found.is_bridge) else { return BITS };
        let is_behind = shows_less(&show, length) || recognition::anchors(&show, length).is_empty();
        if is_behind { BEHIND_BITS } else { BITS }
    }

    fn head(&self) -> usize {
        64 << 10
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let mut others = Vec::new();
        let mut before = vec![0; 32 << 10];
        source.read_exact_at(&mut before, 0)?;
        if before.iter().any(|&byte| byte != 0) {
            others.push("boot code or partitions in its first 32768 bytes".to_owned());
        }
        let show = shows(source);
        if recognition::recognise(&show).is_some_and(|found| found.is_bridge) {
            others.push("what only ISO 9660 describes".to_owned());
        }
        let options = Options { cancel: cancel.clone(), ..Options::default() };
        let mut ignore = |_| Ok(());
        let reader = reader::Reader::open(source, &options, &mut ignore)?;
        let end = reader.end();
        let left_out = reader.run()?;
        if left_out.hidden {
            others.push("which files are hidden".to_owned());
        }
        if left_out.streams {
            others.push("streams or attributes that have no place as extended attributes".to_owned());
        }
        // Where an anchor counts from the end, that is the end of the volume.
        let at_end = recognition::anchors(&show, source.len()).into_iter().find(|anchor| anchor.is_at_end);
        let whole = at_end.and_then(|anchor| source.len().checked_div(anchor.sector)?.checked_mul(anchor.sector));
        let end = whole.unwrap_or(end);
        others.extend(crate::around(source, 0..end, cancel)?);
        Ok(Unlisted::of(others))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Udf {
    fn tells_of_unix(&self, source: &dyn Source) -> io::Result<bool> {
        let show = shows(source);
        let is_bridge = recognition::recognise(&show).is_some_and(|found| found.is_bridge);
        let of_other = || crate::by_name(OTHER).map_or(Ok(true), |other| other.fidelity().tells_of_unix(source));
        if is_bridge && shows_less(&show, source.len()) {
            return of_other();
        }
        let (options, mut ignore) = (Options::default(), |_| Ok(()));
        match reader::Reader::open(source, &options, &mut ignore) {
            Ok(mut reader) => reader.has_owners(),
            Err(_) if is_bridge => of_other(),
            Err(error) => Err(error.into()),
        }
    }
}

/// True if `show` shows the mark of UDF.
pub(crate) fn has_mark(show: &dyn Fn(u64, usize) -> Vec<u8>) -> bool {
    recognition::recognise(show).is_some()
}

/// True of a bridge of which ISO 9660 shows more than UDF.
fn shows_less(show: &recognition::Show<'_>, length: u64) -> bool {
    recognition::has_rock_ridge(show) || recognition::has_sessions(&recognition::anchors(show, length))
}

/// Shows bytes of `source`; none where they cannot be read.
fn shows(source: &dyn Source) -> impl Fn(u64, usize) -> Vec<u8> {
    |offset, length| {
        let there = usize::try_from(source.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(there)];
        if source.read_exact_at(&mut bytes, offset).is_err() {
            bytes.clear();
        }
        bytes
    }
}

impl ReadRandom for Udf {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        let show = shows(&**source);
        let is_bridge = recognition::recognise(&show).is_some_and(|found| found.is_bridge);
        let other = crate::by_name(OTHER).map(Format::reader).filter(|_| is_bridge);
        let Some(Reader::Random(other)) = other else {
            return reader::Reader::open(&**source, options, receive)?.run().map(drop);
        };
        if shows_less(&show, source.len()) {
            return other.read(source, options, receive);
        }
        let what = |why: &str| format!("UDF cannot be read, and is left out: {why}");
        match reader::Reader::open(&**source, options, &mut *receive) {
            Ok(reader) => return reader.run().map(drop),
            Err(Error::Unreadable { reason, .. }) => {
                receive(Event::Damage(Damage { offset: 0, what: what(&reason) })).map_err(Error::Receiver)?;
            }
            // It may well be whole.
            Err(Error::Unsupported { reason, .. }) => log::warn!("{}: {}", source.describe(), what(&reason)),
            Err(error) => return Err(error),
        }
        other.read(source, options, receive)
    }
}
