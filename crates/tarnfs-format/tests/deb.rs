//! Packages of Debian that are made by hand: members with other names, and `--ignore-zeros`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::sync::Arc;

use common::{END, file};
use tarnfs_format::{Entry, Event, ForwardStream, Options, SourceStream, by_name};
use tarnfs_source::{Cancel, MemorySource};

/// A member of a package of which the payload is decoded.
fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100_644, content.len());
    let filler: &[u8] = if content.len().is_multiple_of(2) { b"" } else { b"\n" };
    [header.as_bytes(), content, filler].concat()
}

fn package(members: &[Vec<u8>]) -> Vec<u8> {
    [b"!<debs>\n".to_vec(), member("debian-binary", b"2.0\n"), members.concat()].concat()
}

/// What a package tells in a stream that cannot go back: entries of which the content comes now, all entries, damage.
fn told(package: Vec<u8>, options: &Options) -> (Vec<Entry>, Vec<Entry>, Vec<String>) {
    let (mut ahead, mut entries, mut damage) = (Vec::new(), Vec::new(), Vec::new());
    let source = Arc::new(MemorySource::new(package, "package"));
    let mut stream = ForwardStream(SourceStream::new(source, Cancel::default()));
    let format = by_name("deb").unwrap().forwards().unwrap();
    format
        .read(&mut stream, options, &mut |event, stream| {
            match event {
                Event::Ahead(entry) => {
                    assert_eq!(stream.position(), entry.body.offset);
                    ahead.push(*entry);
                }
                Event::Entry(entry) => entries.push(*entry),
                Event::Damage(found) => damage.push(found.what),
                _ => {}
            }
            Ok(())
        })
        .unwrap();
    (ahead, entries, damage)
}

fn paths(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
}

/// Whoever wants their content has to have it then: archives in them, and hashes.
#[test]
fn contents_are_handed_out_where_volumes_may_be_joined() {
    let data = [file("./a", &[7; 600]), file("../b", b"x"), END.to_vec()].concat();
    let options = Options { ignore_zeros: true, ..Options::default() };
    let (ahead, entries, damage) = told(package(&[member("data.tar", &data)]), &options);
    assert_eq!(damage, Vec::<String>::new());
    assert_eq!(paths(&entries), ["debian-binary", "data/./a", "data/b"]);
    assert_eq!(ahead, entries[1..]);
}

#[test]
fn a_member_with_another_name_is_told_and_passed_over() {
    let data = [file("./a", b"x"), END.to_vec()].concat();
    for name in ["#1/4", "/12", "//"] {
        let (_, entries, damage) =
            told(package(&[member(name, b"name+"), member("data.tar", &data)]), &Options::default());
        assert_eq!(paths(&entries), ["debian-binary", "data/./a"], "{name}");
        assert!(damage.len() == 1 && damage[0].contains(&format!("'{name}' is no name")), "{damage:?}");
    }
}
