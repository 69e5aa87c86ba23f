//! What archives have that no file of theirs shows, and who finds that out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{END, file, try_read_as};
use tarnfs_format::{Event, Options, Reader, by_name};
use tarnfs_source::{Cancel, MemorySource, SharedSource};

/// A folder shows none of what is stored with it.
#[test]
fn content_of_folders_in_lha_is_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/small");
    let mut bytes = std::fs::read(folder.join("level0.lzh")).unwrap();
    let others = |bytes: &[u8]| {
        let source = MemorySource::new(bytes, "archive");
        by_name("lha").unwrap().unlisted(&source, &Cancel::default()).unwrap().others
    };
    assert!(others(&bytes).is_empty());
    // The checksum of a header is the sum of its bytes.
    let place = bytes.windows(3).position(|window| window == b"-lh").unwrap();
    assert!(place == 2 && bytes[place + 3] != b'd');
    bytes[1] = bytes[1].wrapping_add(b'd').wrapping_sub(bytes[place + 3]);
    bytes[place + 3] = b'd';
    assert_eq!(others(&bytes), ["content of folders and the like, which is not shown (1)"]);
}

/// What DOS says of a file beside whether it may be written has no place in a tree.
#[test]
fn hidden_files_in_cabinets_are_told_once() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/small");
    let mut bytes = std::fs::read(folder.join("stored.cab")).unwrap();
    let unlisted = |bytes: &[u8]| {
        let source: SharedSource = Arc::new(MemorySource::new(bytes, "archive"));
        let Reader::Random(random) = by_name("cab").unwrap().reader() else { unreachable!() };
        let mut told = Vec::new();
        let mut take = |event: Event| {
            told.extend(if let Event::Unlisted(what) = event { Some(what) } else { None });
            Ok(())
        };
        random.read(&source, &Options::default(), &mut take).unwrap();
        told
    };
    assert!(unlisted(&bytes).is_empty());
    // The attributes of the first file.
    let place = u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize + 14;
    bytes[place] |= 6;
    assert_eq!(unlisted(&bytes), ["attributes of DOS that are not shown"]);
}

/// The header of a member of a package, of that length or up to the end.
fn member(name: &str, length: Option<usize>) -> Vec<u8> {
    let length = length.map(|length| length.to_string()).unwrap_or_default();
    format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{length:<10}`\n", 0, 0, 0, 100_644).into_bytes()
}

/// What fills a tar up is nothing; whatever else is behind its end is told.
#[test]
fn what_is_behind_the_tar_in_a_package_is_told() {
    let control = [file("./control", b"1"), END.to_vec()].concat();
    let data = [file("./f", b"2"), END.to_vec(), vec![0; 100_000]].concat();
    let package = |more_control: &[u8], more_data: &[u8]| {
        let control = [&control[..], more_control].concat();
        let head = [b"!<debs>\n".to_vec(), member("control.tar", Some(control.len())), control].concat();
        let package = [head, member("data.tar", None), data.clone(), more_data.to_vec()].concat();
        let told = try_read_as("deb", &package).unwrap();
        assert_eq!((told.paths().len(), told.damage.len()), (2, 0), "{told:?}");
        told.unlisted
    };
    assert!(package(&[0; 512], &[0; 1]).is_empty());
    assert_eq!(package(&[7; 3000], b""), ["what is behind the end of its control.tar"]);
    assert_eq!(package(b"", b"more"), ["what is behind the end of its data.tar"]);
}
