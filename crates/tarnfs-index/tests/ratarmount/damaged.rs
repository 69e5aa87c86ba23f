//! Sidecars that are old, belong to something else, or are broken.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tarnfs_index::{Error, Node, Shape, ratarmount};

use crate::python_or_return;
use crate::support::{LARGE, TREE, dump, open, own_index, shell, stream, walk};

/// An archive with a sidecar of ratarmount's.
fn made(python: &Path, folder: &Path, name: &str, script: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    shell(folder, script);
    let (archive, sidecar) = (folder.join(name), folder.join(format!("{name}.index.sqlite")));
    dump(python, "write", &archive, &sidecar, options).unwrap();
    (archive, sidecar)
}

fn edit(sidecar: &Path, sql: &str) {
    let connection = Connection::open(sidecar).unwrap();
    connection.execute_batch("PRAGMA writable_schema = ON").unwrap();
    connection.execute_batch(sql).unwrap();
}

#[test]
fn old_schemas_show_the_same_tree() {
    let python = python_or_return!();
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), TREE);
    let (archive, sidecar) = made(&python, folder.path(), "a.tar", "tar --sparse -cf a.tar tree", &[]);
    let (index, source) = open(&archive, &sidecar, Shape::default()).unwrap();
    let expected = walk(&index, source).unwrap();
    // 0.6 had no gztoolindex; 0.5 neither attributes nor the columns of generated rows.
    for edits in [
        "UPDATE versions SET version = '0.6.0', minor = 6 WHERE name = 'index'",
        "DROP VIEW xattrs; DROP TABLE xattrsdata; DROP TABLE xattrkeys;
         ALTER TABLE files DROP COLUMN isgenerated; ALTER TABLE files DROP COLUMN recursiondepth;
         UPDATE versions SET version = '0.5.0', minor = 5 WHERE name = 'index'",
    ] {
        edit(&sidecar, edits);
        let (index, source) = open(&archive, &sidecar, Shape::default()).unwrap();
        assert!(walk(&index, source).unwrap() == expected, "{edits}");
    }
    for edits in [
        "UPDATE versions SET minor = 4 WHERE name = 'index'",
        "UPDATE versions SET minor = 8 WHERE name = 'index'",
        "UPDATE versions SET major = 1 WHERE name = 'index'",
    ] {
        edit(&sidecar, edits);
        assert!(matches!(open(&archive, &sidecar, Shape::default()), Err(Error::Unknown(_))), "{edits}");
    }
}

#[test]
fn one_of_another_archive_or_tree_is_not_used() {
    let python = python_or_return!();
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), TREE);
    let (archive, sidecar) = made(&python, folder.path(), "a.tar", "tar --sparse -cf a.tar tree", &[]);
    let whole = std::fs::read(&archive).unwrap();
    let kept = std::fs::read(&sidecar).unwrap();
    let is_stale = |what: &str, shape: Shape| {
        let result = open(&archive, &sidecar, shape);
        assert!(matches!(result, Err(Error::Stale(_) | Error::OtherOptions(_))), "{what}: {result:?}");
    };
    open(&archive, &sidecar, Shape::default()).unwrap();
    is_stale("ignore zeros", Shape { ignore_zeros: true, ..Shape::default() });
    is_stale("encoding", Shape { encoding: Some("latin1".into()), ..Shape::default() });
    is_stale("incremental", Shape { gnu_incremental: Some(true), ..Shape::default() });

    std::fs::write(&archive, [&whole[..], &[0; 512]].concat()).unwrap();
    is_stale("grown", Shape::default());
    std::fs::write(&archive, &whole[..whole.len() - 512]).unwrap();
    is_stale("shrunk", Shape::default());
    std::fs::write(&archive, &whole).unwrap();
    is_stale("another time of change", Shape::default());

    // Written anew at the same size, and the time put back.
    shell(
        folder.path(),
        "touch -r a.tar time; mv tree/empty tree/stuff; tar --sparse -cf a.tar tree; touch -r time a.tar",
    );
    edit(&sidecar, "UPDATE metadata SET value = json_remove(value, '$.st_mtime_ns') WHERE key = 'tarstats'");
    shell(
        folder.path(),
        "rm -f copy; python3 -c 'import os, json, sqlite3; c = sqlite3.connect(\"a.tar.index.sqlite\"); v = json.loads(c.execute(\"select value from metadata where key = ?\", (\"tarstats\",)).fetchone()[0]); v[\"st_mtime\"] = os.stat(\"a.tar\").st_mtime; c.execute(\"update metadata set value = ? where key = ?\", (json.dumps(v), \"tarstats\")); c.commit()'",
    );
    assert_eq!(std::fs::metadata(&archive).unwrap().len(), whole.len() as u64);
    is_stale("written anew", Shape::default());

    for (what, edits, is_right) in [
        (
            "unfinished",
            "CREATE TABLE parentfolders (path)",
            (|error| matches!(error, Error::Broken(_))) as fn(&Error) -> bool,
        ),
        ("another backend", "UPDATE metadata SET value = 'ZipMountSource' WHERE key = 'backendName'", |error| {
            matches!(error, Error::Foreign(_))
        }),
        (
            "no key",
            "DROP VIEW xattrs; ALTER TABLE files RENAME TO old; CREATE TABLE files AS SELECT * FROM old",
            |error| matches!(error, Error::Broken(_)),
        ),
        (
            "a view",
            "DROP VIEW xattrs; ALTER TABLE files RENAME TO old; CREATE VIEW files AS SELECT * FROM old",
            |error| matches!(error, Error::Broken(_)),
        ),
    ] {
        std::fs::write(&sidecar, &kept).unwrap();
        edit(&sidecar, edits);
        let result = open(&archive, &sidecar, Shape::default());
        assert!(matches!(&result, Err(error) if is_right(error)), "{what}: {result:?}");
    }
}

/// Numbers as good as any, the same ones each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Whatever is in a sidecar: an error or a tree, no panic, no end of memory, and an end.
#[test]
fn broken_ones_are_errors() {
    let python = python_or_return!();
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), TREE);
    shell(folder.path(), "rm -r tree/empty tree/a/hole");
    shell(folder.path(), LARGE);
    shell(folder.path(), "truncate -s 600K tree/a/large tree/last tree/a/b/numbers; truncate -s 4300K tree/a/noise");
    let cases: [(&str, &str, &[&str]); 5] = [
        ("a.tar", "tar --sparse -cf a.tar --exclude noise tree", &[]),
        ("a.tar.gz", "tar --sparse -czf a.tar.gz tree", &["small-spacing"]),
        ("b.tar.gz", "cp a.tar.gz b.tar.gz", &["small-spacing", "indexed_gzip"]),
        ("a.tar.bz2", "tar --sparse -cjf a.tar.bz2 --exclude noise tree", &[]),
        ("a.tar.zst", "tar --sparse -cf - --exclude noise tree | split -b 100000 --filter 'zstd -qc' > a.tar.zst", &[]),
    ];
    for (number, (name, script, options)) in cases.into_iter().enumerate() {
        let (archive, sidecar) = made(&python, folder.path(), name, script, options);
        let whole = std::fs::read(&sidecar).unwrap();
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 + number as u64);
        let mut refused = 0;
        let rounds = if std::env::var_os("TARNFS_FULL").is_some() { 10_000 } else { 600 };
        for round in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..=dice.below(8) {
                let at = dice.below(bytes.len() as u64) as usize;
                bytes[at] = dice.below(256) as u8;
            }
            if round % 50 == 0 {
                bytes.truncate(dice.below(bytes.len() as u64) as usize);
            }
            // Written in place: the file keeps its owner and its only name.
            std::fs::write(&sidecar, &bytes).unwrap();
            // Every tenth is read to its last byte; of the others the names do.
            refused += u32::from(look(&archive, &sidecar, round % 10 == 0).is_err());
        }
        println!("{name}: {refused} of {rounds} refused");
        assert!(refused > 0, "{name}");
    }
}

fn look(archive: &Path, sidecar: &Path, reads: bool) -> Result<(), Error> {
    let (index, source) = open(archive, sidecar, Shape::default())?;
    let mut nodes = 0_u64;
    let mut folders = vec![tarnfs_index::Node::ROOT];
    let stream = crate::support::stream(&index, source);
    while let Some(folder) = folders.pop() {
        let mut files = Vec::new();
        index.children(folder, 0, &mut |_, _, row| {
            nodes += 1;
            if row.kind == tarnfs_format::Kind::Folder {
                folders.push(row.node);
            } else {
                files.push(row.clone());
            }
            nodes < 10_000 && folders.len() < 1000
        })?;
        for row in files {
            let _ = (index.xattrs(row.node), index.link(row.node), index.extents(row.node));
            if let Ok(stream) = &stream
                && reads
                && row.size < 1 << 24
            {
                let _ = crate::support::content(&index, stream, &row);
            }
        }
        if nodes > 10_000 {
            break;
        }
    }
    index.replaced(&mut |_, _, _| ())?;
    index.hard_links(&mut |_, _, _, _| ())?;
    Ok(())
}

/// Only headers have the maps of sparse files, and the map of a file in pax has no checksum of its own.
#[test]
fn no_map_is_read_from_damaged_bytes() {
    for (suffix, tool) in [("gz", "gzip -1"), ("zst", "zstd -q -1"), ("xz", "xz -0"), ("bz2", "bzip2")] {
        let folder = tempfile::tempdir().unwrap();
        shell(
            folder.path(),
            &format!(
                "truncate -s 60M sparse; for n in $(seq 97 7919 60000); do printf $n | dd of=sparse bs=1 seek=$((n * 1000)) conv=notrunc status=none; done
                 tar --sparse --format=posix -c sparse | {tool} > a.tar.{suffix}"
            ),
        );
        let archive = folder.path().join(format!("a.tar.{suffix}"));
        let sidecar = folder.path().join("sidecar");
        let (index, _) = own_index(&archive, &Shape::default());
        ratarmount::write(&index, &archive, &sidecar).unwrap();
        let right = std::fs::read(&archive).unwrap();
        let time = std::fs::metadata(&archive).unwrap().modified().unwrap();
        let node = |index: &std::sync::Arc<dyn tarnfs_index::Index>| {
            index.lookup(Node::ROOT, b"sparse").unwrap().filter(|row| row.is_sparse).unwrap().node
        };
        let map = index.extents(node(&index)).unwrap();
        assert!(map.len() > 5);
        let mut failed = 0;
        for at in (0..right.len().min(1200)).step_by(3) {
            let mut bytes = right.clone();
            bytes[at] ^= [0, 1, 4, 16, 64][at % 5];
            std::fs::write(&archive, &bytes).unwrap();
            std::fs::File::options().write(true).open(&archive).unwrap().set_modified(time).unwrap();
            let Ok((index, source)) = open(&archive, &sidecar, Shape::default()) else { continue };
            assert!(!index.knows_extents());
            // From a stream of its own, and from one that is given.
            if at % 2 == 0 {
                index.read_headers_from(&stream(&index, source).unwrap());
            }
            match index.extents(node(&index)) {
                Ok(found) => assert!(found == map, "{suffix}: byte {at} is believed: {found:?}"),
                Err(_) => failed += 1,
            }
        }
        assert!(failed > 50, "{suffix}: {failed}");
    }
}
