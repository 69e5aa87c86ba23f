//! What a sidecar says of entries that were replaced, and of hard links.

use rusqlite::Connection;
use std::sync::Arc;

use tarnfs_index::{Error, Index, Node, Shape, ratarmount};
use tarnfs_source::SharedSource;

use crate::support::{content, open, own_index, shell, stream};

/// Name and content of each entry that was replaced.
fn replaced(index: &Arc<dyn Index>, source: &SharedSource) -> Vec<(Vec<u8>, Vec<u8>)> {
    let stream = stream(index, Arc::clone(source)).unwrap();
    let mut rows = Vec::new();
    index.replaced(&mut |_, name, row| rows.push((name.to_vec(), row.clone()))).unwrap();
    let mut found: Vec<_> =
        rows.iter().map(|(name, row)| (name.clone(), content(index, &stream, row).unwrap())).collect();
    for name in [&b"f"[..], b"g", b"none"] {
        let mut of_name = Vec::new();
        let mut receive = |_: Option<u64>, row: &tarnfs_index::Row| {
            of_name.push(content(index, &stream, row).unwrap());
            true
        };
        index.replaced_of(Node::ROOT, name, 0, &mut receive).unwrap();
        let all = found.iter().filter(|(of, _)| of == name).map(|(_, content)| content);
        assert!(all.eq(&of_name), "{}", String::from_utf8_lossy(name));
    }
    found.sort();
    found
}

#[test]
fn versions_are_those_of_our_own_index() {
    let folder = tempfile::tempdir().unwrap();
    shell(
        folder.path(),
        "echo one > f; echo other > g; tar -cf a.tar f g
         echo second > f; tar -rf a.tar f; echo third > f; ln f l; tar -rf a.tar f l",
    );
    let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("sidecar"));
    let (own, source) = own_index(&archive, &Shape::default());
    ratarmount::write(&own, &archive, &sidecar).unwrap();
    let of_f = |content: &[u8]| (b"f".to_vec(), content.to_vec());
    assert_eq!(replaced(&own, &source), [of_f(b"one\n"), of_f(b"second\n")]);
    let (index, source) = open(&archive, &sidecar, Shape::default()).unwrap();
    assert_eq!(replaced(&index, &source), [of_f(b"one\n"), of_f(b"second\n")]);
    let stream = stream(&index, source).unwrap();
    for (name, expected) in [(&b"f"[..], &b"third\n"[..]), (b"l", b"third\n"), (b"g", b"other\n")] {
        let row = index.lookup(Node::ROOT, name).unwrap().unwrap();
        assert_eq!(content(&index, &stream, &row).unwrap(), expected, "{}", String::from_utf8_lossy(name));
    }
}

#[test]
fn rows_have_numbers_from_one_on() {
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), "echo one > f; tar -cf a.tar f");
    let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("sidecar"));
    ratarmount::write(&own_index(&archive, &Shape::default()).0, &archive, &sidecar).unwrap();
    for (number, is_right) in [(1_i64, true), (i64::from(i32::MAX), true), (0, false), (-1, false), (i64::MIN, false)] {
        let connection = Connection::open(&sidecar).unwrap();
        connection.execute("UPDATE files SET rowid = ?1 WHERE name = 'f'", [number]).unwrap();
        drop(connection);
        let found = open(&archive, &sidecar, Shape::default()).and_then(|(index, _)| index.lookup(Node::ROOT, b"f"));
        match found {
            Ok(row) => assert!(is_right && row.is_some(), "{number}"),
            Err(Error::Broken(_)) => assert!(!is_right, "{number}"),
            Err(error) => panic!("{number}: {error}"),
        }
    }
}

/// ratarmount shows what lies in a folder that a file has replaced.
#[test]
fn what_lies_behind_a_file_is_written() {
    let folder = tempfile::tempdir().unwrap();
    shell(
        folder.path(),
        "mkdir d; echo in > d/in; tar -cf a.tar d; rm -r d; echo file > d; tar -rf a.tar d; mkdir e; echo in > e/in; tar -rf a.tar e e",
    );
    let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("sidecar"));
    ratarmount::write(&own_index(&archive, &Shape::default()).0, &archive, &sidecar).unwrap();
    let connection = Connection::open(&sidecar).unwrap();
    let count = |path: &str, name: &str| {
        let sql = "SELECT count(*) FROM files WHERE path = ?1 AND name = ?2";
        connection.query_row(sql, [path, name], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!([count("", "d"), count("/d", "in"), count("", "e"), count("/e", "in")], [2, 1, 2, 2]);
}

#[test]
fn links_to_their_own_name_mean_what_was_there_before() {
    // More of them than a chain of links may be long.
    const LINKS: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let python = format!(
        "import tarfile, io
out = tarfile.open('a.tar', 'w')
file = tarfile.TarInfo('f'); file.size = 3
out.addfile(file, io.BytesIO(b'old'))
link = tarfile.TarInfo('f'); link.type = tarfile.LNKTYPE; link.linkname = 'f'
for _ in range({LINKS}): out.addfile(link)
file.size = 1
out.addfile(file, io.BytesIO(b'n'))"
    );
    shell(folder.path(), &format!("python3 -c \"{python}\""));
    let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("sidecar"));
    ratarmount::write(&own_index(&archive, &Shape::default()).0, &archive, &sidecar).unwrap();
    // As ratarmount has them: our own index knows of no link that only says what is there already.
    let connection = Connection::open(&sidecar).unwrap();
    let insert = "INSERT INTO files SELECT path, name, ?1, ?1 + 512, 0, mtime, mode & 4095, CAST('1' AS BLOB), 'f', \
                  uid, gid, istar, 0, 0, 0 FROM files WHERE name = 'f' ORDER BY offsetheader LIMIT 1";
    connection.execute("DELETE FROM files WHERE name = 'f' AND linkname != ''", []).unwrap();
    for number in 0..LINKS as i64 {
        connection.execute(insert, [1024 + 512 * number]).unwrap();
    }
    drop(connection);
    let (index, source) = open(&archive, &sidecar, Shape::default()).unwrap();
    let versions = replaced(&index, &source);
    assert_eq!(versions.len(), LINKS + 1);
    assert!(versions.iter().all(|(name, content)| (name.as_slice(), content.as_slice()) == (b"f", b"old")));
}

#[test]
fn versions_go_on_from_anywhere_and_end_where_they_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo 0 > v; tar -cf v.tar v; for n in 1 2 3; do echo $n > v; tar -rf v.tar v; done";
    shell(folder.path(), script);
    let (archive, sidecar) = (folder.path().join("v.tar"), folder.path().join("sidecar"));
    ratarmount::write(&own_index(&archive, &Shape::default()).0, &archive, &sidecar).unwrap();
    let (index, _) = open(&archive, &sidecar, Shape::default()).unwrap();
    let behind = |from: u64, most: usize| {
        let mut headers = Vec::new();
        let passed = index.replaced_of(Node::ROOT, b"v", from, &mut |header, _| {
            headers.push(header.unwrap());
            headers.len() < most
        });
        (passed.unwrap(), headers)
    };
    for from in 0..5 {
        let expected: Vec<_> = [0, 1024, 2048].into_iter().skip(from).collect();
        assert_eq!(behind(from as u64, 9), (from.min(3) as u64, expected), "{from}");
    }
    assert_eq!(behind(0, 1), (0, vec![0]));
    assert_eq!(behind(1, 1), (1, vec![1024]));
    assert_eq!(index.replaced_count().unwrap(), 3);
    for name in [&b"none"[..], b"", b"\xff"] {
        assert_eq!(index.replaced_of(Node::ROOT, name, 0, &mut |_, _| panic!("there is none")).unwrap(), 0);
    }
}

#[test]
fn hard_links_are_told_with_what_they_share() {
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), "mkdir d; echo content > f; ln f l; ln f d/m; echo x > other; tar -cf a.tar f l other d");
    let (archive, sidecar) = (folder.path().join("a.tar"), folder.path().join("sidecar"));
    let (own, _) = own_index(&archive, &Shape::default());
    ratarmount::write(&own, &archive, &sidecar).unwrap();
    let (index, _) = open(&archive, &sidecar, Shape::default()).unwrap();
    for index in [own, index] {
        let node = |folder, name: &[u8]| index.lookup(folder, name).unwrap().unwrap().node;
        let (d, f) = (node(Node::ROOT, b"d"), node(Node::ROOT, b"f"));
        let mut links = Vec::new();
        index.hard_links(&mut |folder, name, header, node| links.push((header, folder, name.to_vec(), node))).unwrap();
        links.sort();
        let found: Vec<_> = links.iter().map(|(_, folder, name, node)| (*folder, name.as_slice(), *node)).collect();
        assert_eq!(found, [(Node::ROOT, &b"l"[..], f), (d, b"m", f)]);
        assert_eq!((node(Node::ROOT, b"l"), node(d, b"m")), (f, f));
        // The header of each is its own.
        assert!(links.iter().all(|(header, ..)| header % 512 == 0 && *header > 0) && links[0].0 != links[1].0);
    }
}
