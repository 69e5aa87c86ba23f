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
        let filled = fill(&index, &source, &temporary.as_file().metadata().unwrap(), &file, most, &Cancel::default());
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
        let filled = fill(&index, &source, &temporary.as_file().metadata().unwrap(), &file, most, &Cancel::default());
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
    fill(&index, &source, &archive.metadata().unwrap(), &file, u64::MAX, &Cancel::default()).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    let connection = file.connect().unwrap();
    assert_eq!(connection.query_row("SELECT name FROM files", [], |row| row.get::<_, String>(0)).unwrap(), "f");
}

/// Rows of files and of folders that no entry names, as they are before the latter get headers.
fn with_rows(files: &[(String, i64)], folders: &[String]) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    let split = |path: &str| path.rsplit_once('/').map(|(above, name)| (above.to_owned(), name.to_owned())).unwrap();
    let row = |path: &str, header: Option<i64>, kind: rusqlite::types::Value| {
        let (above, name) = split(path);
        let sql = "INSERT INTO files VALUES (?1, ?2, ?3, ?3 + 512, 0, 0, 0, ?4, '', 0, 0, 0, 0, 0, 0)";
        connection.prepare_cached(sql).unwrap().execute(params![above, name, header, kind]).unwrap();
    };
    for (path, header) in files {
        row(path, Some(*header), vec![b'0'].into());
    }
    for path in folders {
        row(path, None, 5_i64.into());
    }
    connection
}

#[test]
fn a_folder_that_no_entry_names_has_the_first_header_below_it() {
    let files = [("/a/b/c/f", 4096), ("/a/b/g", 2048), ("/a/d/named", 8192), ("/a/d/named/early", 1024), ("/h/i", 512)];
    let files = files.map(|(path, header)| (path.to_owned(), header));
    let folders = ["/a", "/a/b", "/a/b/c", "/a/d", "/h", "/empty"].map(str::to_owned);
    let connection = with_rows(&files, &folders);
    finish_folders(&connection).unwrap();
    let found = |path: &str| {
        let sql = "SELECT offsetheader, offset FROM files WHERE path || '/' || name = ?1";
        let of: (Option<i64>, Option<i64>) =
            connection.query_row(sql, [path], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(of.0.map(|header| header + 512), of.1, "{path}");
        of.0
    };
    let headers: Vec<_> = folders.iter().map(|path| found(path)).collect();
    assert_eq!(headers, [Some(1024), Some(2048), Some(4096), Some(1024), Some(512), None]);
    // Those of entries stay as they are.
    assert!(files.iter().all(|(path, header)| found(path) == Some(*header)));
}

/// > No archive makes tarnfs crash, hang, or use memory without bound.
#[test]
fn headers_of_folders_take_as_many_steps_as_there_are_rows() {
    let folders: Vec<String> = (1..=500).map(|depth| "/a".repeat(depth)).collect();
    let files: Vec<_> = (0..2000).map(|number| (format!("{}/{number}", "/a".repeat(500)), 512 * number)).collect();
    let mut connection = with_rows(&files, &folders);
    let (ticks, counted) = (Arc::new(std::sync::atomic::AtomicU64::new(0)), 1000);
    let seen = Arc::clone(&ticks);
    let count = move || {
        seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        false
    };
    connection.progress_handler(counted, Some(count)).unwrap();
    finish_folders(&connection).unwrap();
    // To look at each file for each folder takes a million looks of several steps.
    let steps = ticks.load(std::sync::atomic::Ordering::Relaxed) * 1000;
    assert!(steps < 500_000, "{steps}");
    let least = "SELECT count(*) FROM files WHERE offsetheader = 0";
    assert_eq!(connection.query_row(least, [], |row| row.get::<_, i64>(0)).unwrap(), 501);
}

#[test]
fn nothing_is_left_of_one_that_is_not_wanted_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("sidecar"));
    std::fs::write(&archive, [0; 10_240]).unwrap();
    let index = index_of(Fingerprint::of(&FileSource::open(&archive).unwrap()).unwrap());
    let cancel = Cancel::default();
    cancel.cancel();
    let ended = write_until(&index, &archive, &sidecar, &cancel);
    assert!(matches!(ended, Err(Error::Io(error)) if error.kind() == io::ErrorKind::Interrupted));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    write_until(&index, &archive, &sidecar, &Cancel::default()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}
