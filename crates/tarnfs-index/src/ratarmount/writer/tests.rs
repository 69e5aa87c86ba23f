use std::os::unix::fs::symlink;

use tarnfs_format::Entry;
use tarnfs_source::{Budget, Cancel, Limits};

use super::*;
use crate::{Archive, Destination, Shape, Summary, Writer, WriterOptions};

/// Of an archive of 10 240 bytes.
fn index_of(fingerprint: Fingerprint) -> Arc<dyn Index> {
    let options = WriterOptions { limits: Limits::default(), budget: Budget::new(1 << 20), cancel: Cancel::default() };
    let mut writer = Writer::new(options).unwrap();
    writer.add(&Entry { path: b"f".to_vec(), ..Entry::default() }).unwrap();
    let summary = Summary {
        archive: Archive { length: 10_240, fingerprint, modified: 0 },
        name: None,
        shape: Shape::default(),
        layers: Vec::new(),
        format: "tar".to_owned(),
        end: 512,
        grown_from: None,
        files: 0,
        folders: 0,
        bytes: 0,
        has_xattrs: false,
        has_acls: false,
        label: None,
        unlisted: Vec::new(),
        has_locked: false,
        renamed: crate::Renamed::default(),
        has_directories: false,
        notes: Vec::new(),
    };
    writer.finish(summary, &Destination::Memory).unwrap()
}

#[test]
fn only_of_the_archive_that_was_indexed() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("a.tar.index.sqlite"));
    std::fs::write(&archive, [0; 10_240]).unwrap();
    let index = index_of(Fingerprint::of(&FileSource::open(&archive).unwrap()).unwrap());
    write(&index, &archive, &sidecar).unwrap();
    std::fs::remove_file(&sidecar).unwrap();
    std::fs::write(&archive, [1; 10_240]).unwrap();
    assert!(matches!(write(&index, &archive, &sidecar), Err(Error::Stale(_))));
    assert!(!sidecar.exists());
}

/// What is changed of an index that can be written, whether its file is stored in pieces, and why it is refused.
type Refused<'a> = (&'a dyn Fn(&mut Summary), bool, &'a str);

/// What its backends keep nothing of.
#[test]
fn what_ratarmount_could_not_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("sidecar"));
    std::fs::write(&archive, [0; 10_240]).unwrap();
    let fingerprint = Fingerprint::of(&FileSource::open(&archive).unwrap()).unwrap();
    let options =
        || WriterOptions { limits: Limits::default(), budget: Budget::new(1 << 20), cancel: Cancel::default() };
    let written = |change: &dyn Fn(&mut Summary), has_pieces: bool| {
        let mut writer = Writer::new(options()).unwrap();
        let body = tarnfs_format::Body { pieces: has_pieces.then(Vec::new), ..tarnfs_format::Body::default() };
        writer.add(&Entry { path: b"f".to_vec(), body, ..Entry::default() }).unwrap();
        let mut summary = Summary::new(Archive { length: 10_240, fingerprint, modified: 0 }, "tar");
        change(&mut summary);
        let index = writer.finish(summary, &Destination::Memory).unwrap();
        let written = write(&index, &archive, &sidecar).map_err(|error| error.to_string());
        assert_eq!(written.is_ok(), sidecar.exists());
        let _ = std::fs::remove_file(&sidecar);
        written
    };
    let layers = |codecs: &'static [&str]| {
        move |summary: &mut Summary| {
            let layer = |codec: &&str| crate::Layer { codec: (*codec).to_owned(), decoded_length: 512 };
            summary.layers = codecs.iter().map(layer).collect();
        }
    };
    assert_eq!(written(&|_| (), false), Ok(()));
    assert_eq!(written(&|summary| summary.format = crate::SINGLE_FILE.to_owned(), false), Ok(()));
    let cases: &[Refused<'_>] = &[
        (&|summary| summary.shape.recursion = Some(crate::Recursion::default()), false, "`recursive`"),
        (&|summary| summary.format = "cpio".to_owned(), false, "cpio archives"),
        (&|summary| summary.archive.length = 10_241, false, "is 10240 bytes long"),
        (&|summary| summary.archive.fingerprint = Fingerprint(!fingerprint.0), false, "other bytes"),
        (&|_| (), true, "in pieces"),
        (&layers(&["gzip", "xz"]), false, "here are 2"),
        (&layers(&["lz4"]), false, "no index for lz4"),
        (&layers(&["none"]), false, "no decoder for none"),
    ];
    for (change, has_pieces, expected) in cases {
        let told = written(*change, *has_pieces).unwrap_err();
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[test]
fn a_sidecar_does_not_fill_the_disk() {
    let options = WriterOptions { limits: Limits::default(), budget: Budget::new(1 << 20), cancel: Cancel::default() };
    let mut writer = Writer::new(options).unwrap();
    let folder = [&[b'x'; 200][..], b"/"].concat().repeat(300);
    for number in 0..10 {
        let path = [&folder, format!("{number}").as_bytes()].concat();
        writer.add(&Entry { path, ..Entry::default() }).unwrap();
    }
    let archive = Archive { length: 10_240, fingerprint: Fingerprint(0), modified: 0 };
    let index = writer.finish(Summary::new(archive, "tar"), &Destination::Memory).unwrap();
    let temporary = tempfile::NamedTempFile::new().unwrap();
    temporary.as_file().set_len(10_240).unwrap();
    let source = FileSource::open(temporary.path()).unwrap();
    // 300 folders that no entry names, of half of 60 KB on average, and 10 files.
    for (most, is_enough) in [(1 << 20, false), (9 << 20, false), (10 << 20, true)] {
        let file = Opened::file(tempfile::tempfile().unwrap(), true);
        let filled = fill(&index, &source, &temporary.as_file().metadata().unwrap(), &file, most);
        assert_eq!(filled.is_ok(), is_enough, "{most}");
        assert!(is_enough || filled.unwrap_err().to_string().contains("fill the disk"));
    }
}

/// Each link has the path of its file.
#[test]
fn links_to_a_long_path_do_not_fill_it_either() {
    let options = WriterOptions { limits: Limits::default(), budget: Budget::new(1 << 20), cancel: Cancel::default() };
    let mut writer = Writer::new(options).unwrap();
    let target = [&[b'x'; 200][..], b"/"].concat().repeat(20);
    let target = [&target[..], b"file"].concat();
    writer.add(&Entry { path: target.clone(), ..Entry::default() }).unwrap();
    for number in 1..=1000_u64 {
        let (path, link) = (format!("{number}").into_bytes(), target.clone());
        let header = number * 512;
        writer.add(&Entry { path, link, header, kind: Kind::HardLink, ..Entry::default() }).unwrap();
    }
    let archive = Archive { length: 1 << 20, fingerprint: Fingerprint(0), modified: 0 };
    let index = writer.finish(Summary::new(archive, "tar"), &Destination::Memory).unwrap();
    let temporary = tempfile::NamedTempFile::new().unwrap();
    temporary.as_file().set_len(1 << 20).unwrap();
    let source = FileSource::open(temporary.path()).unwrap();
    for (most, is_enough) in [(1 << 20, false), (3 << 20, false), (5 << 20, true)] {
        let file = Opened::file(tempfile::tempfile().unwrap(), true);
        let filled = fill(&index, &source, &temporary.as_file().metadata().unwrap(), &file, most);
        assert_eq!(filled.is_ok(), is_enough, "{most}: {filled:?}");
    }
}

#[test]
fn what_takes_the_place_of_the_file_while_it_is_written_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, victim) = (folder.path().join("a.tar"), folder.path().join("victim"));
    std::fs::write(&archive, [0; 10_240]).unwrap();
    std::fs::write(&victim, "precious").unwrap();
    let index = index_of(Fingerprint(0));
    let temporary = Temporary::create(&folder.path().join("a.tar.index.sqlite"), None).unwrap();
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let own = names.into_iter().find(|path| path.extension().is_some_and(|end| end == "tmp")).unwrap();
    std::fs::remove_file(&own).unwrap();
    symlink(&victim, &own).unwrap();
    let source = FileSource::open(&archive).unwrap();
    let file = Opened::file(temporary.file().unwrap(), true);
    fill(&index, &source, &archive.metadata().unwrap(), &file, u64::MAX).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    let connection = file.connect().unwrap();
    assert_eq!(connection.query_row("SELECT name FROM files", [], |row| row.get::<_, String>(0)).unwrap(), "f");
}
