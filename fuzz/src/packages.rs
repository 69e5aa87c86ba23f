//! Packages, cabinets and other archives whose members are decoded one by one, whole or not.

use std::sync::Arc;

use tarnfs_codec::{CoderContext, coder_by_name};
use tarnfs_format::{Coder, Decode, Event, Format, Options, Piece, Probe};
use tarnfs_source::{Cancel, MemorySource, SharedSource, Slice, Source};

use super::{check_entry, limits, members, source};

/// Bytes that are decoded of one member, and members that are.
const MOST: usize = 1 << 20;
const MOST_MEMBERS: usize = 16;

/// A package of RPM, and what its codec would make of it.
pub fn rpm(data: &[u8]) {
    members(&tarnfs_format::rpm::Rpm, data, 1);
    members(&tarnfs_format::rpm::Rpm, &undone("rpm-payload", data), 1);
}

/// A package of Debian, and what its codec would make of it.
pub fn deb(data: &[u8]) {
    members(&tarnfs_format::deb::Deb, data, 1);
    members(&tarnfs_format::deb::Deb, &undone("deb-payload", data), 1);
}

/// Records of a crawler.
pub fn warc(data: &[u8]) {
    members(&tarnfs_format::warc::Warc, data, 10);
}

/// Mail.
pub fn mail(data: &[u8]) {
    members(&tarnfs_format::mail::Mail, data, 1);
}

/// A document.
pub fn pdf(data: &[u8]) {
    random(&tarnfs_format::pdf::Pdf, &source(data));
}

/// A page with files.
pub fn html(data: &[u8]) {
    random(&tarnfs_format::html::Html, &source(data));
}

/// Streams of sound and pictures.
pub fn ogg(data: &[u8]) {
    random(&tarnfs_format::ogg::Ogg, &source(data));
}

/// What carries files as text, and what only containers use of that.
pub fn text(data: &[u8]) {
    for codec in ["base64", "mime-base64", "uuencode", "quoted-printable"] {
        undone(codec, data);
    }
    let (first, rest) = data.split_at(data.len().min(200));
    for properties in [&[7][..], first] {
        let coder = CoderContext { properties: properties.into(), ..CoderContext::default() };
        for codec in ["data-url", "pdf-stream", "mime-base64"] {
            let _ = decoded(codec, source(rest), coder.clone());
        }
    }
}

/// A cabinet, and the same bytes as several.
pub fn cab(data: &[u8]) {
    random(&tarnfs_format::cab::Cab, &source(data));
    let (first, second) = data.split_at(data.len() / 2);
    if let Ok(joined) = tarnfs_source::Joined::new(vec![source(first), source(second)], "fuzzed".to_owned()) {
        random(&tarnfs_format::cab::Cab, &(Arc::new(joined) as SharedSource));
    }
}

/// An archive with a table of contents in XML, which is decoded, or the table itself.
pub fn xar(data: &[u8]) {
    random(&tarnfs_format::xar::Xar, &source(data));
    let mut whole = b"xar!\0\x1c\0\x01".to_vec();
    whole.extend((data.len() as u64).to_be_bytes());
    whole.extend((data.len() as u64).to_be_bytes());
    whole.extend([0; 4]);
    whole.extend(data);
    random(&tarnfs_format::xar::Xar, &source(&whole));
}

/// An archive of Electron.
pub fn asar(data: &[u8]) {
    random(&tarnfs_format::asar::Asar, &source(data));
}

/// An image of Windows, as it is and with `data` as the tree of its image.
pub fn wim(data: &[u8]) {
    random(&tarnfs_format::wim::Wim, &source(data));
    let mut whole = vec![0; 208];
    whole[..8].copy_from_slice(b"MSWIM\0\0\0");
    (whole[8], whole[13], whole[14], whole[40], whole[42], whole[44]) = (208, 13, 1, 1, 1, 1);
    let tree = [&(data.len() as u64).to_le_bytes()[..7], &[2]].concat();
    let place = |at: u64, length: u64| [at.to_le_bytes(), length.to_le_bytes()].concat();
    let listed = [&tree[..], &place(208, data.len() as u64), &[1, 0, 1, 0, 0, 0], &[0; 20]].concat();
    whole[48..72].copy_from_slice(&[&50_u64.to_le_bytes()[..], &place(208 + data.len() as u64, 50)].concat());
    whole.extend(data);
    whole.extend(listed);
    random(&tarnfs_format::wim::Wim, &source(&whole));
}

/// A list of files.
pub fn mtree(data: &[u8]) {
    random(&tarnfs_format::mtree::Mtree, &source(data));
}

/// An archive of SQLite.
pub fn sqlar(data: &[u8]) {
    random(&tarnfs_format::sqlar::Sqlar, &source(data));
}

/// An archive of LHA.
pub fn lha(data: &[u8]) {
    random(&tarnfs_format::lha::Lha, &source(data));
}

/// An archive of ARJ, as it is and with the checksums of its headers set right.
pub fn arj(data: &[u8]) {
    random(&tarnfs_format::arj::Arj, &source(data));
    let mut bytes = data.to_vec();
    let mut at = 0;
    while let Some(length) =
        bytes.get(at + 2..at + 4).map(|length| usize::from(u16::from_le_bytes([length[0], length[1]])))
    {
        let (Some(header), true) = (bytes.get(at + 4..at + 4 + length), length >= 30) else { break };
        let (crc, stored) =
            (crc32fast::hash(header), u32::from_le_bytes([header[12], header[13], header[14], header[15]]));
        let is_archive = header[6] == 2;
        let Some(place) = bytes.get_mut(at + 4 + length..at + 8 + length) else { break };
        place.copy_from_slice(&crc.to_le_bytes());
        at += 10 + length + if is_archive { 0 } else { stored as usize };
    }
    random(&tarnfs_format::arj::Arj, &source(&bytes));
}

/// What a codec makes of `data`, as far as that goes.
fn undone(codec: &str, data: &[u8]) -> Vec<u8> {
    decoded(codec, source(data), CoderContext::default()).unwrap_or_default()
}

fn decoded(codec: &str, stored: SharedSource, coder: CoderContext) -> std::io::Result<Vec<u8>> {
    let codec = coder_by_name(codec).ok_or(std::io::ErrorKind::Unsupported)?;
    let options = tarnfs_codec::Options { limits: limits(), coder, ..tarnfs_codec::Options::default() };
    let mut pass = codec.first_pass(stored, &options)?;
    let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while all.len() < MOST {
        match pass.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(read) => all.extend_from_slice(&buffer[..read]),
        }
        assert!(pass.memory() <= 256 << 20, "{} bytes of memory", pass.memory());
    }
    Ok(all)
}

/// Undoes the steps of a coder.
fn undo(coder: &Coder, stored: SharedSource, length: u64) -> std::io::Result<Vec<u8>> {
    let mut stored = stored;
    for step in &coder.steps {
        let properties = step.properties.as_slice().into();
        let context = CoderContext { properties, decoded_length: Some(length), ..CoderContext::default() };
        let all = decoded(&step.codec, stored, context)?;
        assert!(all.len() as u64 <= length.max(MOST as u64 + (64 << 10)));
        stored = Arc::new(MemorySource::new(all, "a step"));
    }
    let mut all = vec![0; stored.len() as usize];
    stored.read_exact_at(&mut all, 0)?;
    Ok(all)
}

/// Reads an archive with a directory, and decodes its first members.
fn random(format: &dyn Format, source: &SharedSource) {
    let length = source.len();
    let mut head = vec![0; length.min(4096) as usize];
    source.read_exact_at(&mut head, 0).expect("it is in memory");
    format.bid(&Probe::of_head(&head));
    format.bid(&Probe::new(&head, &**source));
    let decode = Decode::new(|coder, stored, length, _| undo(coder, stored, length));
    let decode = decode.with_each(|step, stored, _, take| {
        let coder = CoderContext { properties: step.properties.as_slice().into(), ..CoderContext::default() };
        decoded(&step.codec, stored, coder)?.chunks(1 << 16).try_for_each(take)
    });
    let options = Options { decode, ..Options::default() };
    let tarnfs_format::Reader::Random(reader) = format.reader() else { panic!("it has a directory") };
    let (mut pieces, mut entries) = (Vec::<Piece>::new(), 0_u64);
    // Whether it is read to its end is the archive's matter.
    let _ = reader.read(source, &options, &mut |event| {
        let Event::Entry(entry) = event else { return Ok(()) };
        check_entry(&entry, &options.limits);
        super::check_pieces(&entry, length);
        entries += 1;
        let left = MOST_MEMBERS.saturating_sub(pieces.len());
        pieces.extend(entry.body.pieces.iter().flatten().take(left).cloned());
        Ok(())
    });
    assert!(entries <= length * 64, "an entry takes some bytes");
    for piece in pieces {
        let Some(coder) = &piece.coder else { continue };
        let stored = Slice::new(SharedSource::clone(source), piece.offset, piece.stored);
        let _ = undo(coder, Arc::new(stored), piece.decoded);
    }
    let _ = format.volumes_by_first().map(|volumes| volumes.volume(&**source));
    let _ = format.unlisted(&**source, &Cancel::default());
}
