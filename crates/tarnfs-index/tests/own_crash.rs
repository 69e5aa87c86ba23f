//! An index is complete or not there, whatever happens to who writes it.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test that overflows or finds an error fails"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tarnfs_format::Kind;
use tarnfs_index::{Destination, Error, own};

use common::{entry, summary, walk, writer};

const DESTINATION: &str = "TARNFS_TEST_DESTINATION";

fn write(path: &Path, entries: u64) -> Result<(), Error> {
    let mut writer = writer(64 << 20);
    for number in 0..entries {
        writer.add(&entry(number, Kind::File, format!("d{}/{number}", number % 9).as_bytes(), b""))?;
    }
    writer.finish(summary(), &Destination::File(path.to_path_buf())).map(drop)
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Not a test of its own: what the killed process of the next one does.
#[test]
fn child_that_writes_for_ever() {
    let Some(path) = std::env::var_os(DESTINATION).map(PathBuf::from) else { return };
    loop {
        write(&path, 3000).unwrap();
        let _ = fs::remove_file(&path);
    }
}

#[test]
fn killed_at_any_moment_it_leaves_a_whole_index_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let (mut whole, mut left_over) = (0, 0);
    for round in 0..40 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_for_ever"])
            .env(DESTINATION, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(30_000 + round * 2_711));
        child.kill().unwrap();
        child.wait().unwrap();
        left_over += names(folder.path()).iter().filter(|name| *name != "index").count();
        match own::open(&path, None, false) {
            Ok(index) => {
                assert_eq!(walk(&*index).unwrap().len(), 3010);
                whole += 1;
            }
            Err(Error::Missing) => {}
            Err(other) => panic!("{other}"),
        }
    }
    write(&path, 10).unwrap();
    assert_eq!(names(folder.path()), ["index"], "after {left_over} left over and {whole} whole ones");
    assert_eq!(walk(&*own::open(&path, None, false).unwrap()).unwrap().len(), 20);
}

#[test]
fn two_writers_at_once_both_end_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deeper/index");
    for _ in 0..10 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    write(&path, 2000).unwrap();
                    // Whoever reads meanwhile sees a whole one, and goes on seeing it.
                    let index = own::open(&path, None, false).unwrap();
                    assert_eq!(walk(&*index).unwrap().len(), 2010);
                });
            }
        });
        assert_eq!(names(path.parent().unwrap()), ["index"]);
    }
}

#[test]
fn the_same_entries_make_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("one"), folder.path().join("two")];
    for path in &paths {
        write(path, 5000).unwrap();
        std::thread::sleep(Duration::from_millis(600));
    }
    assert!(fs::read(&paths[0]).unwrap() == fs::read(&paths[1]).unwrap());
}

#[test]
fn without_room_or_right_it_is_an_error_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("a file");
    fs::write(&missing, b"").unwrap();
    assert!(matches!(write(&missing.join("index"), 10), Err(Error::Io(_))));
    // The next place is tried, and the failure told.
    let mut writer = writer(64 << 20);
    writer.add(&entry(0, Kind::File, b"a", b"")).unwrap();
    let places = [Destination::File(missing.join("index")), Destination::File(folder.path().join("good"))];
    let mut failed = Vec::new();
    let mut choose = |path: &Path| Some(path.to_path_buf());
    let failed_at = &mut |place: &Destination, _: &Error| failed.push(place.clone());
    let index = writer.finish_at_first(summary(), &places, &mut choose, failed_at).unwrap();
    assert_eq!((failed.as_slice(), walk(&*index).unwrap().len()), (&places[..1], 2));

    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(&full).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("nothing can be mounted here: a full disk was not tried");
        return;
    }
    let mut last = 0;
    for entries in [10, 1000, 3000, 5000, 7000, 9000, 20_000] {
        let path = full.join("index");
        match write(&path, entries) {
            Ok(()) => {
                assert!(last == 0, "room for {entries}, none for less");
                assert_eq!(walk(&*own::open(&path, None, false).unwrap()).unwrap().len() as u64, entries + 10);
                fs::remove_file(path).unwrap();
            }
            Err(error) => {
                let Error::Io(error) = error else { panic!("{error}") };
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                assert_eq!(names(&full), Vec::<String>::new());
                last = entries;
            }
        }
    }
    assert!(Command::new("umount").arg(&full).status().unwrap().success());
    assert!(last > 0);
}
