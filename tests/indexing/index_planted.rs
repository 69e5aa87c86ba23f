//! An index that somebody else could have put there, or that is no index: none is believed, none makes the program wait
//! or write somewhere else, and the tree is that of the archive.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::process::{Command, Output};

use crate::support::{self, Scratch, is_root, run};

/// Every name that is only in a planted index has this in it.
const EVIL: &str = "evil";

/// What becomes of a planted file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It is refused.
    Refused,
    /// It is a good index with something beside it, which nobody looks at.
    Unharmed,
}
use Then::{Refused, Unharmed};

/// Shell scripts that plant something, run by root in a folder with: `shared/a.tar` (the archive, in a folder like
/// /tmp), `good` and `evil` (an index of it, and one that shows other names and modes), `foreign` and `foreign-evil`
/// (the same as sidecars of ratarmount). `$I` and `$R` are where they are looked for. All belong to root.
const CASES: &[(&str, Then, &str)] = &[
    // Who could have written it.
    ("of another user", Refused, "cp evil $I; chown nobody $I"),
    ("of another user, read-only", Refused, "cp evil $I; chmod 444 $I; chown nobody $I"),
    ("the group may write it", Refused, "cp evil $I; chgrp nogroup $I; chmod 664 $I"),
    ("others may write it", Refused, "cp evil $I; chmod 646 $I"),
    ("everybody may write it", Refused, "cp evil $I; chmod 666 $I"),
    ("of another user, in the cache", Refused, "mkdir -p cache/tarnfs; cp evil \"$C\"; chown nobody \"$C\""),
    ("everybody may write it, in the cache", Refused, "mkdir -p cache/tarnfs; cp evil \"$C\"; chmod 666 \"$C\""),
    ("a link, in the cache", Refused, "mkdir -p cache/tarnfs; ln -s ../../evil \"$C\""),
    // What is no file.
    (
        "a link to the file of another user",
        Refused,
        "cp evil shared/b; chown nobody shared/b; ln -s b $I; chown -h nobody $I",
    ),
    ("a link to a file of root", Refused, "ln -s ../evil $I; chown -h nobody $I"),
    ("a link to a good index", Refused, "ln -s ../good $I"),
    ("a link to a secret", Refused, "echo secret > secret; chmod 600 secret; ln -s ../secret $I; chown -h nobody $I"),
    ("a link to itself", Refused, "ln -s a.tar.tarnfs.sqlite $I"),
    ("a link through a link", Refused, "ln -s ../evil one; ln -s ../one $I"),
    ("a link to nothing", Refused, "ln -s ../new $I; chown -h nobody $I"),
    ("a hard link to a file of root", Refused, "ln evil $I"),
    ("a hard link to a secret", Refused, "echo secret > secret; chmod 600 secret; ln secret $I"),
    ("a fifo", Refused, "mkfifo $I; chown nobody $I"),
    ("a fifo of root", Refused, "mkfifo $I"),
    ("a socket", Refused, "python3 -c 'import socket, os; socket.socket(socket.AF_UNIX).bind(os.environ[\"I\"])'"),
    ("a folder", Refused, "mkdir $I; chown nobody $I"),
    ("a device without an end", Refused, "mknod $I c 1 5"),
    ("a device that waits", Refused, "mknod $I c 5 0"),
    ("100 GiB of hole", Refused, "truncate -s 100G $I; chown nobody $I"),
    ("an index with 100 GiB of hole behind it", Refused, "cp evil $I; truncate -s 100G $I"),
    ("nothing in it", Refused, ": > $I"),
    // Sidecars of ratarmount.
    ("a sidecar of another user", Refused, "cp foreign-evil $R; chown nobody $R"),
    ("a sidecar that everybody may write", Refused, "cp foreign-evil $R; chmod 666 $R"),
    ("a link to a sidecar", Refused, "ln -s ../foreign-evil $R"),
    ("a hard link to a sidecar", Refused, "ln foreign-evil $R"),
    ("a fifo in place of a sidecar", Refused, "mkfifo $R; chown nobody $R"),
    (
        "a compressed sidecar",
        Refused,
        "gzip -c foreign-evil > $R.gz; zstd -qc foreign-evil > $R.zst || true; chown nobody $R.*",
    ),
    // What is in it.
    (
        "a trigger",
        Refused,
        "sql evil 'CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM folders; END'; cp evil $I",
    ),
    ("a view", Refused, "sql evil 'DROP TABLE summary; CREATE VIEW summary(key, value) AS SELECT 1, 2'; cp evil $I"),
    (
        "a view of ten million rows",
        Refused,
        "sql evil 'DROP TABLE entries; CREATE VIEW entries AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000000) SELECT i AS name, i AS class, i AS header, i AS size, i AS mtime FROM n'; cp evil $I",
    ),
    (
        "a generated column",
        Refused,
        "sql evil 'ALTER TABLE entries ADD COLUMN more AS (zeroblob(1000000000))'; cp evil $I",
    ),
    ("an index on an expression", Refused, "sql evil 'CREATE INDEX i ON entries(zeroblob(size))'; cp evil $I"),
    ("a table too many", Refused, "sql evil 'CREATE TABLE more (a)'; cp evil $I"),
    (
        "a virtual table",
        Refused,
        "sql evil \"PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('table', 'v', 'v', 0, 'CREATE VIRTUAL TABLE v USING csv(filename=''/etc/passwd'')')\"; cp evil $I",
    ),
    (
        "another text of a table",
        Refused,
        "sql evil \"PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE TABLE entries (name, class, header, size, mtime)' WHERE name = 'entries'\"; cp evil $I",
    ),
    (
        "a table in the place of another",
        Refused,
        "sql evil \"PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'summary') WHERE name = 'entries'\"; cp evil $I",
    ),
    (
        "a table without row numbers",
        Refused,
        "sql evil 'DROP TABLE hard_links; CREATE TABLE hard_links (node INTEGER PRIMARY KEY, shared INTEGER NOT NULL) WITHOUT ROWID'; cp evil $I",
    ),
    (
        "two thousand million pages",
        Refused,
        "cp evil $I; printf '\\x7f\\xff\\xff\\xfe' | dd of=$I bs=1 seek=28 conv=notrunc status=none",
    ),
    ("another program's", Refused, "sql evil 'PRAGMA application_id = 7'; cp evil $I"),
    ("a schema of the future", Refused, "sql evil 'PRAGMA user_version = 2'; cp evil $I"),
    (
        "names in UTF-16",
        Refused,
        "python3 -c 'import sqlite3; c = sqlite3.connect(\"wide\"); c.execute(\"PRAGMA encoding = \\\"UTF-16\\\"\"); c.execute(\"CREATE TABLE entries (evil)\"); c.commit()'; cp wide $I",
    ),
    (
        "pages with room for something else",
        Refused,
        "cp evil $I; printf '\\x40' | dd of=$I bs=1 seek=20 conv=notrunc status=none",
    ),
    ("a log that is said to be there", Refused, "wal evil; cp evil $I; cp evil-wal $I-wal; cp evil-shm $I-shm"),
    // What lies beside it.
    ("a log beside it", Unharmed, "cp good $I; wal evil; cp evil-wal $I-wal; cp evil-shm $I-shm"),
    (
        "the journal of another file beside it",
        Unharmed,
        "cp good $I; python3 - <<'E'
import shutil, sqlite3
evil = sqlite3.connect('evil', isolation_level=None)
evil.execute('PRAGMA cache_size = 1')
evil.execute('BEGIN')
evil.execute('UPDATE entries SET mtime = mtime + 1')
shutil.copy('evil-journal', 'hot')
E
        [ -s hot ]; cp hot $I-journal; chown nobody $I-journal",
    ),
    (
        "a journal that names another one",
        Unharmed,
        "cp good $I; printf '\\xd9\\xd5\\x05\\xf9\\x20\\xa1\\x63\\xd7../secret' > $I-journal; mkfifo $I-wal",
    ),
];

/// Functions for the scripts.
const FUNCTIONS: &str = r#"
sql() { python3 -c 'import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.commit()' "$1" "$2"; }
wal() { python3 - "$1" <<'E'
import shutil, sqlite3, sys
name = sys.argv[1]
c = sqlite3.connect(name, isolation_level=None)
c.execute('PRAGMA journal_mode = WAL')
c.execute('PRAGMA wal_autocheckpoint = 0')
c.execute('UPDATE entries SET mtime = mtime + 1')
# Closing it ends the log: what there is now is kept.
for end in ('', '-wal', '-shm'):
    shutil.copy(name + end, 'kept' + end)
c.close()
for end in ('', '-wal', '-shm'):
    shutil.move('kept' + end, name + end)
E
}
"#;

/// Everything there: names, kinds, owners, sizes, times.
fn listing(scratch: &Scratch) -> String {
    scratch.shell("find . -mindepth 1 -printf '%p %y %i %U %m %s %T@ %C@ %l\\n' | sort")
}

/// Lists the archive; what waits for more than ten minutes hangs.
fn listed(scratch: &Scratch, options: &[&str]) -> Output {
    Command::new("timeout")
        .args(["600", env!("CARGO_BIN_EXE_tarnfs"), "ls", "-lR"])
        .args(options)
        .arg(scratch.path("shared/a.tar"))
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .env("HOME", scratch.path("home"))
        .output()
        .unwrap()
}

/// Makes the archive and its indexes.
fn prepare(scratch: &Scratch) {
    scratch.shell(
        "mkdir shared home tree; chmod 1777 shared; umask 022
        for i in $(seq 1000 2100); do echo $i > tree/file$i; done
        tar --owner=root --group=root -cf shared/a.tar tree; rm -r tree",
    );
    let archive = scratch.path("shared/a.tar");
    for (name, format) in [("good", "tarnfs"), ("foreign", "ratarmount")] {
        let (index, format) = (format!("--index-file={}", scratch.path(name).display()), format!("--format={format}"));
        run(scratch, ["index".as_ref(), archive.as_os_str(), index.as_ref(), format.as_ref()]).ok();
    }
    scratch.shell(
        r#"python3 - <<'E'
import shutil, sqlite3
shutil.copy('good', 'evil')
evil = sqlite3.connect('evil')
# A name that root might call, and the bits that make every file one of root's.
evil.execute("UPDATE entries SET name = CAST('file1500evil.sh' AS BLOB) WHERE name = CAST('file1500' AS BLOB)")
evil.execute("UPDATE classes SET mode = 2541 WHERE class = 1")
evil.commit()
shutil.copy('foreign', 'foreign-evil')
evil = sqlite3.connect('foreign-evil')
evil.execute("UPDATE files SET name = 'file1500evil.sh' WHERE name = 'file1500'")
evil.commit()
E"#,
    );
}

/// A copy of what `prepare` has made.
fn copy_of(prepared: &Scratch) -> Scratch {
    let scratch = Scratch::new();
    scratch.shell(&format!("cp -a '{}/.' .", prepared.path("").display()));
    scratch
}

/// > An index that somebody else could have written is not used.
#[test]
fn nothing_that_was_planted_is_believed() {
    if !is_root() {
        println!("left out: needs root, to be somebody else");
        return;
    }
    let prepared = Scratch::new();
    prepare(&prepared);
    let output = listed(&prepared, &["--index-file=:memory:"]);
    assert!(output.status.success());
    let expected = output.stdout;
    // What is planted would be shown if it were believed.
    for (from, to) in [("evil", "a.tar.tarnfs.sqlite"), ("foreign-evil", "a.tar.index.sqlite")] {
        let to = prepared.path("shared").join(to);
        fs::copy(prepared.path(from), &to).unwrap();
        let shown = String::from_utf8(listed(&prepared, &["--no-recreate-index"]).stdout).unwrap();
        assert!(shown.contains(EVIL), "{shown}");
        assert!(from != "evil" || shown.contains("-rwsr"), "{shown}");
        fs::remove_file(to).unwrap();
    }
    for (what, then, script) in CASES {
        let scratch = copy_of(&prepared);
        let archive = fs::canonicalize(scratch.path("shared/a.tar")).unwrap();
        let cached = tarnfs_index::location::candidates(&archive, None, &[scratch.path("cache/tarnfs")]);
        scratch.shell(&format!(
            "export I=shared/a.tar.tarnfs.sqlite R=shared/a.tar.index.sqlite C='{}'\n{FUNCTIONS}\n{script}",
            cached[0].display()
        ));
        let before = listing(&scratch);
        let output = listed(&scratch, &["--no-recreate-index"]);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!out.contains(EVIL), "{what}: believed");
        assert_eq!(listing(&scratch), before, "{what}: something was made or changed");
        let names_it = err.contains("a.tar.tarnfs.sqlite") || err.contains("a.tar.index.sqlite");
        match then {
            Refused => assert!(output.status.code() == Some(7) && names_it, "{what}: {} {err}", output.status),
            Unharmed => assert!(output.stdout == expected, "{what}: {} {err}", output.status),
        }
        // With an index to be made, too, nothing is written through what was planted.
        let output = listed(&scratch, &[]);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == expected, "{what}: another tree once it was made");
        let secret = fs::read_to_string(scratch.path("secret")).unwrap_or_else(|_| "secret\n".to_owned());
        assert_eq!(secret, "secret\n", "{what}: it was written over");
        assert!(!scratch.path("new").exists(), "{what}: it was written through a link");
        for name in ["good", "foreign"] {
            let (now, kept) = (fs::read(scratch.path(name)).unwrap(), fs::read(prepared.path(name)).unwrap());
            assert!(now == kept, "{what}: {name} was written over");
        }
    }
    println!("{} planted: none was believed", CASES.len());
    assert!(CASES.len() >= 40);
}

/// The owner of an archive may say what is in it.
#[test]
fn what_its_owner_made_is_believed() {
    if !is_root() {
        println!("left out: needs root, to be somebody else");
        return;
    }
    let scratch = Scratch::new();
    prepare(&scratch);
    let index = scratch.path("shared/a.tar.tarnfs.sqlite");
    fs::copy(scratch.path("good"), &index).unwrap();
    let nobody = Some(65_534);
    std::os::unix::fs::chown(&index, nobody, nobody).unwrap();
    assert_eq!(listed(&scratch, &["--no-recreate-index"]).status.code(), Some(7));
    assert_eq!(listed(&scratch, &["--no-recreate-index", "--trust-index"]).status.code(), Some(0));
    std::os::unix::fs::chown(scratch.path("shared/a.tar"), nobody, nobody).unwrap();
    assert_eq!(listed(&scratch, &["--no-recreate-index"]).status.code(), Some(0));
}

/// Streams in streams without an end: none is followed further than a first pass would go.
#[test]
fn streams_that_lie_in_very_many_others_are_not_followed() {
    let scratch = Scratch::new();
    scratch.shell("echo content | gzip > file.gz; tar -cf a.tar file.gz");
    let archive = scratch.path("a.tar");
    let index = format!("--index-file={}", scratch.path("index").display());
    let cat = || run(&scratch, ["cat", "-r", archive.to_str().unwrap(), &index, "file.gz/file"]);
    assert_eq!(cat().ok().text(), "content\n");
    scratch.shell(
        "python3 - <<'E'
import sqlite3
index = sqlite3.connect('index')
codec, length = index.execute('SELECT codec, decoded_length FROM layers WHERE layer = 1024').fetchone()
for layer in range(1025, 200000):
    index.execute('INSERT INTO layers VALUES (?, ?, ?, ?, 0, ?)', (layer, codec, length, layer - 1, length))
index.execute('UPDATE classes SET stream = ? WHERE stream = 1024', (199999,))
index.commit()
E",
    );
    let ran = cat();
    assert!(ran.code != 0 && ran.out.is_empty(), "{}", ran.text());
    assert!(ran.err.contains("more than 100 layers of compression"), "{}", ran.err);
}

/// Folders that all say that the files of one of them are theirs: what grows from such an index would have no end.
#[test]
fn folders_that_share_their_files_are_noticed_where_an_archive_grew() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import tarfile
with tarfile.open('a.tar', 'w') as tar:
    for number in range(100):
        folder = tarfile.TarInfo('d%d' % number); folder.type = tarfile.DIRTYPE; tar.addfile(folder)
    for number in range(3000):
        tar.addfile(tarfile.TarInfo('z/f%d' % number))
E
        echo more > more",
    );
    let archive = scratch.path("a.tar");
    run(&scratch, ["index".as_ref(), archive.as_os_str()]).ok();
    scratch.shell(
        "python3 - <<'E'
import sqlite3
index = sqlite3.connect('a.tar.tarnfs.sqlite')
files = index.execute('SELECT first, count FROM folders WHERE count = 3000').fetchone()
assert index.execute('UPDATE folders SET first = ?, count = ? WHERE count = 0', files).rowcount == 100
index.commit()
E
        tar -rf a.tar more",
    );
    let ran = run(&scratch, ["ls".as_ref(), "-R".as_ref(), archive.as_os_str()]).ok();
    assert!(ran.err.contains("is broken: its folders hold more"), "{}", ran.err);
    assert_eq!(ran.text().lines().filter(|line| line.contains('f')).count(), 3000);
}

/// The same where encrypted files are counted before a mount: 2000 folders of 2000 files would be 4 million.
#[test]
fn folders_that_share_their_files_are_not_all_looked_at_for_encrypted_ones() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import sqlite3, subprocess, zipfile
with zipfile.ZipFile('e.zip', 'w') as file:
    for number in range(2000):
        file.writestr('d%d/' % number, b'')
    for number in range(2000):
        file.writestr('z/f%d' % number, b'')
    file.writestr('z/last', b'12 bytes, and six.')
data = bytearray(open('e.zip', 'rb').read())
for magic, flags, length in [(b'PK\x03\x04', 6, 22), (b'PK\x01\x02', 8, 24)]:
    data[data.rindex(magic) + flags] |= 1
    data[data.rindex(magic) + length] -= 12
open('e.zip', 'wb').write(data)
E",
    );
    let (archive, index) = (scratch.path("e.zip"), scratch.path("e.idx"));
    let archive = archive.to_str().unwrap();
    run(&scratch, ["index", "--index-file", index.to_str().unwrap(), archive]);
    let listed = |debug: &[&str]| {
        let options = ["ls", "--index-file", index.to_str().unwrap(), archive];
        run(&scratch, [debug, &options].concat())
    };
    let honest = listed(&[]);
    assert!(honest.err.contains("1 of 2001 files is encrypted"), "{}", honest.err);
    scratch.shell(
        "python3 - <<'E'
import sqlite3
index = sqlite3.connect('e.idx')
files = index.execute('SELECT first, count FROM folders WHERE count = 2001 ORDER BY first DESC').fetchone()
assert index.execute('UPDATE folders SET first = ?, count = ? WHERE count = 0', files).rowcount == 2000
index.commit()
E",
    );
    let lying = listed(&[]);
    let files = lying.err.split(" of ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(files.is_some_and(|files| files < 2_000_000), "{}", lying.err);
}

/// In a user namespace the owners of two files may have one number, though they are two users.
#[test]
fn an_owner_without_a_number_is_nobodys_friend() {
    let scratch = Scratch::new();
    let can = Command::new("unshare").args(["-Ur", "true"]).status();
    if !is_root() || !can.is_ok_and(|status| status.success()) {
        println!("left out: needs root and user namespaces");
        return;
    }
    prepare(&scratch);
    scratch.shell("chown 4321 shared/a.tar; cp evil shared/a.tar.tarnfs.sqlite; chown 1234 shared/a.tar.tarnfs.sqlite");
    let listed = || {
        let output = Command::new("unshare")
            .args(["-Ur", env!("CARGO_BIN_EXE_tarnfs"), "ls", "-lR"])
            .arg(scratch.path("shared/a.tar"))
            .env("XDG_CACHE_HOME", scratch.path("cache"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (shown, said) = listed();
    assert!(!shown.contains(EVIL) && said.contains("not known in this container"), "{said}");
    // Its own is of nobody else.
    scratch.shell("rm shared/a.tar.tarnfs.sqlite; cp good shared/a.tar.tarnfs.sqlite");
    assert_eq!(listed().1, "");
}

/// Behind an access control list the bits of the group are a mask: others than the group may write it.
#[test]
fn an_index_that_a_list_lets_others_write_is_not_believed() {
    let scratch = Scratch::new();
    if !is_root() || !support::have("setfacl") {
        println!("left out: needs root and setfacl");
        return;
    }
    prepare(&scratch);
    scratch.shell("chmod 664 shared/a.tar; cp good shared/a.tar.tarnfs.sqlite; chmod 664 shared/a.tar.tarnfs.sqlite");
    let listed = || listed(&scratch, &["--no-recreate-index"]);
    assert_eq!(listed().status.code(), Some(0), "the group may write both");
    scratch.shell("setfacl -m user:4321:rw,mask::rw shared/a.tar.tarnfs.sqlite");
    let output = listed();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(7) && said.contains("access control list"), "{said}");
}
