//! What the tests of the index share.

#![allow(
    dead_code,
    clippy::arithmetic_side_effects,
    reason = "each test file uses a part; a test that overflows fails"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use tarnfs_format::{Body, Entry, Kind, Time};
use tarnfs_index::{Archive, Destination, Error, Index, Layer, Node, Row, Shape, Summary, Writer, WriterOptions};
use tarnfs_source::{Budget, Fingerprint, Limits};

/// Length of the archive that the tests speak of.
pub(crate) const LENGTH: u64 = 1 << 40;

pub(crate) fn writer(budget: usize) -> Writer {
    Writer::new(WriterOptions {
        limits: Limits::default(),
        budget: Budget::new(budget),
        cancel: tarnfs_source::Cancel::default(),
    })
    .unwrap()
}

pub(crate) fn summary() -> Summary {
    Summary {
        archive: Archive { length: LENGTH, fingerprint: Fingerprint(0xfedc_ba98_7654_3210), modified: -5 },
        name: Some(b"a.tar.gz".to_vec()),
        shape: Shape { encoding: Some("latin1".to_owned()), ignore_zeros: true, ..Shape::default() },
        layers: Vec::new(),
        format: "tar".to_owned(),
        end: 4096,
        grown_from: Some(Fingerprint(17)),
        files: 0,
        folders: 0,
        bytes: 0,
        has_xattrs: false,
        has_acls: false,
        has_locked: false,
        renamed: tarnfs_index::Renamed::default(),
        has_directories: false,
        label: Some(b"label".to_vec()),
        unlisted: Vec::new(),
        notes: Vec::new(),
    }
}

pub(crate) fn layered() -> Summary {
    let layer = |codec: &str, decoded_length| Layer { codec: codec.to_owned(), decoded_length };
    Summary { layers: vec![layer("gzip", LENGTH), layer("xz", LENGTH)], ..summary() }
}

/// An entry whose header is the `number`th block of 1 MiB.
pub(crate) fn entry(number: u64, kind: Kind, path: &[u8], link: &[u8]) -> Entry {
    let header = number << 20;
    let size = if kind == Kind::File { number + 1 } else { 0 };
    Entry {
        path: path.to_vec(),
        kind,
        mode: 0o644,
        header,
        body: Body { offset: header + 512, stored: size, size, ..Body::default() },
        link: link.to_vec(),
        mtime: Time { seconds: number as i64 - 3, nanoseconds: 5 },
        ..Entry::default()
    }
}

pub(crate) fn build(entries: &[Entry]) -> Arc<dyn Index> {
    build_with(writer(64 << 20), entries)
}

pub(crate) fn build_with(mut writer: Writer, entries: &[Entry]) -> Arc<dyn Index> {
    for entry in entries {
        writer.add(entry).unwrap();
    }
    writer.finish(summary(), &Destination::Memory).unwrap()
}

/// Everything that shows, by path.
pub(crate) fn walk(index: &dyn Index) -> Result<BTreeMap<Vec<u8>, Row>, Error> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(Node::ROOT, Vec::new())];
    found.insert(Vec::new(), index.row(Node::ROOT)?.ok_or(Error::Missing)?);
    while let Some((folder, path)) = waiting.pop() {
        index.children(folder, 0, &mut |_, name, row| {
            let path = [path.as_slice(), b"/", name].concat();
            if row.kind == Kind::Folder {
                waiting.push((row.node, path.clone()));
            }
            found.insert(path, row.clone());
            true
        })?;
    }
    Ok(found)
}
