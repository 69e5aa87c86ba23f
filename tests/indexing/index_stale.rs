//! Does an index still belong? To the archive as it is now, to what was appended to it, to the options that are given.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, Mounted, Ran, Scratch, can_mount, have, run};

const INDEX: &str = "a.tar.tarnfs.sqlite";

fn ls(archive: &Path, scratch: &Scratch, options: &[&str]) -> Ran {
    run(scratch, ["ls", "-lR", archive.to_str().unwrap()].into_iter().chain(options.iter().copied()))
}

/// Changes `bytes` of the file at `at`, which keeps its length and its time.
fn edit(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(bytes, at).unwrap();
    file.set_modified(modified).unwrap();
}

/// Where the headers of `file1` to `file9` lie, in order, and where their content.
fn archive(scratch: &Scratch, tar_options: &str) -> (PathBuf, Vec<(u64, u64)>) {
    scratch.shell(&format!(
        "mkdir -p tree; for i in $(seq 1 2000); do head -c 3000 /dev/urandom > tree/file$i; done
         tar {tar_options} -cf a.tar tree"
    ));
    let path = scratch.path("a.tar");
    run(scratch, ["index".as_ref(), path.as_os_str()]).ok();
    let connection = rusqlite::Connection::open(scratch.path(INDEX)).unwrap();
    let mut query = connection
        .prepare(
            "SELECT header * 512, body FROM entries JOIN classes USING (class) \
             WHERE CAST(name AS TEXT) GLOB 'file[1-9]' ORDER BY name",
        )
        .unwrap();
    let rows = query.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap();
    let places = rows.map(Result::unwrap).map(|(header, body)| (header as u64, (header + body) as u64)).collect();
    (path, places)
}

/// The samples of an archive's bytes do not see a change of one block. Whoever opens the file behind a changed header
/// learns of it.
#[test]
fn a_changed_header_is_noticed_when_its_file_is_opened() {
    for options in ["--format=ustar", "--format=gnu", "--format=posix"] {
        let scratch = Scratch::new();
        let (path, places) = archive(&scratch, options);
        let whole = fs::read(&path).unwrap();
        let (header, body) = places[4];
        let cat = |name: &str| run(&scratch, ["cat", path.to_str().unwrap(), "--no-recreate-index", name]);
        let block = |at: u64| whole[at as usize..][..512].to_vec();
        // Another header in its place, also one that is right in itself: of another file of the same size.
        let mut edits: Vec<(&str, u64, Vec<u8>)> = vec![
            ("noise", body - 512, (0..512_u32).map(|n| (n * 7919 % 251) as u8).collect()),
            ("zeros", body - 512, vec![0; 512]),
            ("one bit", body - 512, vec![block(body - 512)[0] ^ 1]),
            ("the header of another file", header, whole[places[5].0 as usize..places[5].1 as usize].to_vec()),
        ];
        if header + 512 < body {
            edits.push(("the records before it", header + 512, vec![b'9'; 20]));
            edits.push(("the header of its records", header, vec![0; 512]));
        }
        let expected = cat("tree/file5").ok().out;
        for (what, at, bytes) in edits {
            edit(&path, at, &bytes);
            let ran = cat("tree/file5");
            assert_ne!(ran.code, 0, "{options} {what}: served");
            assert!(ran.out.is_empty(), "{options} {what}: some of it was served");
            assert!(ran.err.contains("has changed") && ran.err.contains("--recreate-index"), "{what}: {}", ran.err);
            // Files behind other headers are served.
            cat("tree/file7").ok();
            edit(&path, at, &whole[at as usize..at as usize + bytes.len()]);
            assert!(cat("tree/file5").ok().out == expected, "{what}");
        }
        // A change of content is the archive's content.
        edit(&path, body, b"other");
        assert!(cat("tree/file5").ok().out.starts_with(b"other"));
    }
}

/// Also when the archive has grown meanwhile, and what the older index says of the rest is kept.
#[test]
fn a_changed_header_is_noticed_when_something_was_appended() {
    let scratch = Scratch::new();
    let (path, places) = archive(&scratch, "--format=gnu");
    let whole = fs::read(&path).unwrap();
    let header = |place: usize| &whole[places[place].0 as usize..places[place].1 as usize];
    // Two files change places.
    edit(&path, places[4].0, header(5));
    edit(&path, places[5].0, header(4));
    scratch.shell("echo late > late; tar -rf a.tar late");
    let ran = run(&scratch, ["cat", "-d", "2", path.to_str().unwrap(), "tree/file5"]);
    assert!(ran.err.contains("grew: reading"), "{}", ran.err);
    assert!(ran.code != 0 && ran.out.is_empty() && ran.err.contains("has changed"), "{} {}", ran.code, ran.err);
    let cat = |name: &str| run(&scratch, ["cat", path.to_str().unwrap(), name]);
    assert_eq!(cat("late").ok().text(), "late\n");
    cat("tree/file7").ok();
    assert!(cat("tree/file6").err.contains("has changed"));
}

/// What lies behind the last header of an incremental dump was not appended to it.
#[test]
fn a_dump_that_ends_in_a_folder_may_be_touched_and_appended_to() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir d; echo 1 > d/f; tar -g state -cf full.tar d; tar -g state -cf a.tar d
         touch late",
    );
    let path = scratch.path("a.tar");
    let index = format!("--index-file={}", scratch.path("index").display());
    let shown = ls(&path, &scratch, &[&index]).ok().out;
    scratch.shell("touch -d '2001-01-01' a.tar");
    let touched = ls(&path, &scratch, &[&index, "-d", "2"]).ok();
    assert!(touched.out == shown && !touched.err.contains("grew"), "{}", touched.err);
    scratch.shell("tar -rf a.tar late");
    let grown = ls(&path, &scratch, &[&index, "-d", "2"]).ok();
    assert!(grown.text().contains("late") && grown.err.contains("grew: reading"), "{}", grown.err);
}

/// Where nothing can be read on behind the old end, the archive is read anew, and shows what it shows then.
#[test]
fn what_cannot_be_read_on_is_read_from_its_start() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar --format=ustar -cf a.tar one; cp a.tar whole.tar");
    let path = scratch.path("a.tar");
    let index = format!("--index-file={}", scratch.path("index").display());
    for (what, behind) in [
        ("nothing but noise", "head -c 20480 /dev/zero | tr '\\0' x"),
        ("noise and a header", "head -c 1024 /dev/zero | tr '\\0' x; cat whole.tar"),
    ] {
        scratch.shell("cp whole.tar a.tar; rm -f index");
        ls(&path, &scratch, &[&index]).ok();
        scratch.shell(&format!("truncate -s 1024 a.tar; ({behind}) >> a.tar; touch -d '2001-01-01' a.tar"));
        let grown = ls(&path, &scratch, &[&index, "-d", "2"]);
        assert!(grown.err.contains("is read from its start"), "{what}: {}", grown.err);
        let fresh = ls(&path, &scratch, &["--index-file=:memory:"]);
        assert_eq!(grown.code, fresh.code, "{what}: {}", grown.err);
        assert!(grown.out == fresh.out && fresh.text().contains("one"), "{what}: {}", grown.text());
    }
}

/// Permission bits that an ACL gives depend on whom the machine knows, and a daemon that has given up opening files
/// cannot ask.
#[test]
fn an_acl_does_not_look_like_a_change() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import tarfile
with tarfile.open('a.tar', 'w', format=tarfile.PAX_FORMAT) as tar:
    for name, acl in ('of-an-acl', 'user::rw-,group::r--,other::r--,user:nobody-of-that-name:rwx'), ('other', None):
        member = tarfile.TarInfo(name); member.mode = 0o644
        if acl: member.pax_headers = {'SCHILY.acl.access': acl}
        tar.addfile(member)
E",
    );
    let path = scratch.path("a.tar");
    let index = format!("--index-file={}", scratch.path("index").display());
    ls(&path, &scratch, &[&index]).ok();
    // As on a machine that knows that name.
    let connection = rusqlite::Connection::open(scratch.path("index")).unwrap();
    let changed = connection.execute("UPDATE classes SET mode = ? WHERE mode = ?", (0o674, 0o644)).unwrap();
    assert!(changed > 0);
    drop(connection);
    let cat = |name: &str| run(&scratch, ["cat", path.to_str().unwrap(), &index, "--no-recreate-index", name]);
    cat("of-an-acl").ok();
    let other = cat("other");
    assert!(other.code != 0 && other.err.contains("has changed"), "{}", other.err);
}

#[test]
fn through_a_mount_a_changed_header_is_a_stale_file() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let (path, places) = archive(&scratch, "--format=gnu");
    edit(&path, places[4].0, b"other/name");
    let log = format!("--log-file={}", scratch.path("log-of-mount").display());
    let mount = Mounted::new(&scratch, &path, &["--no-recreate-index", &log]);
    let error = fs::read(mount.path("tree/file5")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    assert_eq!(fs::read(mount.path("tree/file6")).unwrap().len(), 3000);
    mount.unmount();
    let log = fs::read_to_string(scratch.path("log-of-mount")).unwrap();
    assert!(log.contains("--recreate-index"), "{log}");
    // The hint helps.
    let mount = Mounted::any(&scratch, &path, &["-c"]);
    assert!(fs::read(mount.path("tree/file6")).is_ok());
    mount.unmount();
}

/// What a header says for all entries behind it cannot be seen in an entry's own: it must not make them look changed.
#[test]
fn headers_for_all_entries_do_not_look_like_changes() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; for i in $(seq 1200); do echo $i > tree/file$i; done
         tar --format=pax --pax-option='globexthdr.name=global,uid:=4321,gname:=other' -cf a.tar tree",
    );
    let path = scratch.path("a.tar");
    run(&scratch, ["index".as_ref(), path.as_os_str()]).ok();
    for i in [1, 700, 1200] {
        let name = format!("tree/file{i}");
        let ran = run(&scratch, ["cat", path.to_str().unwrap(), "--no-recreate-index", &name]).ok();
        assert_eq!(ran.text(), format!("{i}\n"));
    }
}

/// Names in other encodings, long ones, sparse files: all are found again where they were.
#[test]
fn nothing_looks_changed_that_is_not() {
    let scratch = Scratch::new();
    support::make_tree(&scratch);
    scratch.shell(
        "cd tree; rm -f null wide loop fifo; truncate -s 1M sparse; echo end >> sparse; for i in $(seq 1100); do : > many$i; done
         for i in $(seq 1 2 99); do echo x | dd of=holes bs=4096 seek=$i conv=notrunc status=none; done",
    );
    let formats = ["oldgnu", "gnu", "posix", "posix --sparse-version=0.0", "posix --sparse-version=0.1"];
    for format in formats {
        scratch.shell(&format!("tar --format={format} -S -C tree -cf a.tar . "));
        for options in [&[][..], &["-e", "latin1"]] {
            let path = scratch.path("a.tar");
            ls(&path, &scratch, options).ok();
            let names = run(&scratch, ["ls", "-R", "--json", path.to_str().unwrap()].iter().chain(options)).ok().text();
            assert!(names.lines().count() > 1100);
            let output = Command::new("bash")
                .args([
                    "-euo",
                    "pipefail",
                    "-c",
                    "for name in file short over sparse holes folder/random folder/inner/numbers long/n*; do
                         [ -f \"tree/$name\" ] || continue
                         \"$0\" cat a.tar --no-recreate-index \"$@\" \"$name\" | cmp - \"tree/$name\"
                     done",
                    env!("CARGO_BIN_EXE_tarnfs"),
                ])
                .args(options)
                .current_dir(scratch.path(""))
                .env("XDG_CACHE_HOME", scratch.path("cache"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{format} {options:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Twenty times something is appended: each time the index is the one that a fresh reading makes.
/// > An archive that grew is read from where it ended.
#[test]
fn an_archive_that_grows_twenty_times_has_a_fresh_index_each_time() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; for i in $(seq 1200); do echo $i > tree/file$i; done; ln tree/file7 tree/link; ln -s file8 tree/symlink
         tar -cf a.tar tree",
    );
    let path = scratch.path("a.tar");
    ls(&path, &scratch, &[]).ok();
    for step in 1..=20 {
        // New ones, such that replace others, links to old ones and to new ones, folders, large ones.
        scratch.shell(&format!(
            "rm -rf more; mkdir -p more/tree/new{step}; cd more
             echo new {step} > tree/new{step}/file; echo again {step} > tree/file{step}; ln tree/file{step} tree/hard{step}
             ln -s file{step} tree/new{step}/symlink; head -c {} /dev/urandom > tree/random
             chmod 7{}5 tree/new{step}; tar --owner={step} -rf ../a.tar tree",
            step * 1500,
            step % 8
        ));
        let logged = ls(&path, &scratch, &["-d", "2"]).ok();
        assert!(logged.err.contains("grew"), "{step}: {}", logged.err);
        let appended = fs::read(scratch.path(INDEX)).unwrap();
        let again = run(&scratch, ["index".as_ref(), "-c".as_ref(), path.as_os_str()]);
        again.ok();
        let fresh = fs::read(scratch.path(INDEX)).unwrap();
        assert!(appended == fresh, "{step}: {}", different_tables(&scratch, &appended));
    }
}

/// Any entries in any order, in many folders, that replace others and link to others.
#[test]
fn whatever_is_appended_the_index_is_a_fresh_one() {
    let mut grown = 0;
    for seed in 0..5 {
        let scratch = Scratch::new();
        let path = scratch.path("a.tar");
        for step in 0..5 {
            scratch.shell(&format!(
                "python3 - {seed} {step} <<'E'
import io, random, sys, tarfile
seed, step = map(int, sys.argv[1:])
random.seed(seed)
files = []
for now in range(step + 1):
    out = io.BytesIO() if now < step else None
    with tarfile.open('a.tar' if out is None else None, 'a' if now and out is None else 'w', out, format=tarfile.PAX_FORMAT) as tar:
        for i in range(1300 if now == 0 else 60):
            name = '/'.join(random.choice('zyxwvutsrq') for _ in range(random.randint(1, 3)))
            kind = random.choice(['file'] * 5 + ['folder', 'symlink', 'xattr'] + ['link'] * (seed % 3))
            path = name + '/' + random.choice(['a', 'b', 'c', str(i), str(i)]) + str(seed)
            member = tarfile.TarInfo(path)
            member.mtime = random.choice([0, 5, 1e9 + i, 7.25])
            member.mode, member.uid = random.choice([0o644, 0o600, 0o755]), random.choice([0, 0, 7, i])
            member.uname = random.choice(['', 'root', 'me'])
            if random.random() < 0.2:
                member.pax_headers = {{'atime': str(random.choice([member.mtime, 8.5]))}}
            if kind == 'folder':
                member.type, member.name = tarfile.DIRTYPE, name
            elif kind == 'symlink':
                member.type, member.linkname = tarfile.SYMTYPE, 'somewhere'
            elif kind == 'link' and files:
                member.type, member.linkname = tarfile.LNKTYPE, random.choice(files)
                if member.linkname == path:
                    continue
            else:
                if kind == 'xattr':
                    member.pax_headers = {{'SCHILY.xattr.user.' + random.choice('mlkjihg'): str(i)}}
                files.append(path)
            tar.addfile(member)
E"
            ));
            let logged = ls(&path, &scratch, &["-d", "2"]);
            assert!(logged.code == 0, "{seed} {step}: {}", logged.err);
            grown += u32::from(logged.err.contains("grew: reading"));
            let appended = fs::read(scratch.path(INDEX)).unwrap();
            run(&scratch, ["index".as_ref(), "-c".as_ref(), path.as_os_str()]).ok();
            let fresh = fs::read(scratch.path(INDEX)).unwrap();
            assert!(appended == fresh, "{seed} {step}: {}", different_tables(&scratch, &appended));
        }
    }
    // Of links to links the index may not know enough.
    println!("{grown} of 20 indexes grew, the others were made anew");
    assert!(grown >= 8, "{grown}");
}

/// Makes `a.tar` by the Python lines in `members`, appends a file, and compares the index that comes of it with one
/// that is made anew.
#[track_caller]
fn assert_fresh_when_appended(members: &str) -> serde_json::Value {
    let scratch = Scratch::new();
    let path = scratch.path("a.tar");
    scratch.shell(&format!(
        "python3 - <<'E'
import tarfile
def pax(kind, record):
    body = record + bytes([10])
    info = tarfile.TarInfo('pax'); info.type, info.size = kind, len(body)
    return info.tobuf(tarfile.USTAR_FORMAT) + body.ljust(-(-len(body) // 512) * 512, bytes(1))
def member(name, data=b'', link=None):
    info = tarfile.TarInfo(name); info.size, info.mtime = len(data), 1e9
    if link: info.type, info.linkname = tarfile.LNKTYPE, link
    return info.tobuf(tarfile.USTAR_FORMAT) + data.ljust(-(-len(data) // 512) * 512, bytes(1))
archive = b''
{members}
open('a.tar', 'wb').write(archive + bytes(1024))
E
         echo late > late"
    ));
    ls(&path, &scratch, &["--index-minimum-file-count=0"]).ok();
    scratch.shell("tar --owner=5 -rf a.tar late");
    ls(&path, &scratch, &["--index-minimum-file-count=0"]).ok();
    let appended = fs::read(scratch.path(INDEX)).unwrap();
    run(&scratch, ["index".as_ref(), "-c".as_ref(), path.as_os_str()]).ok();
    let fresh = fs::read(scratch.path(INDEX)).unwrap();
    assert!(appended == fresh, "{}", different_tables(&scratch, &appended));
    let seen = run(&scratch, ["ls".as_ref(), "--json".as_ref(), path.as_os_str()]).ok().text();
    let entries = seen.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    entries.into_iter().find(|entry| entry["path"] == "late").unwrap()
}

/// Where more was replaced than shows, the old index is no shorter way.
#[test]
fn an_archive_of_which_most_was_replaced_is_read_from_its_start() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 - <<'E'
import tarfile
with tarfile.open('a.tar', 'w') as tar:
    for number in range(10000): tar.addfile(tarfile.TarInfo('d/f%d' % (number % 1000)))
E
         echo late > late",
    );
    let path = scratch.path("a.tar");
    ls(&path, &scratch, &[]).ok();
    scratch.shell("tar --owner=5 -rf a.tar late");
    let ran = ls(&path, &scratch, &["-d", "2"]).ok();
    assert!(ran.err.contains("more of its entries were replaced than show"), "{}", ran.err);
    let appended = fs::read(scratch.path(INDEX)).unwrap();
    run(&scratch, ["index".as_ref(), "-c".as_ref(), path.as_os_str()]).ok();
    let fresh = fs::read(scratch.path(INDEX)).unwrap();
    assert!(appended == fresh, "{}", different_tables(&scratch, &appended));
}

/// What a link to a link leads to is what the first one led to, though its path was replaced in between.
#[test]
fn a_link_to_a_link_whose_target_was_replaced_is_found_out_again() {
    assert_fresh_when_appended(
        "archive += member('p', b'first') + member('l1', link='p') + member('p', b'second') + member('l2', link='l1')",
    );
    assert_fresh_when_appended(
        "archive += member('p', b'first') + member('l1', link='p') + member('p', b'second') + member('l2', link='p')
archive += member('l1', b'third') + member('l3', link='l2') + member('p', b'last')",
    );
}

/// A link whose target is not there yet shows what its path showed before: until the target is appended.
#[test]
fn a_link_whose_target_is_appended_leads_there() {
    for members in [
        "archive += member('d', b'old') + member('d', link='late')",
        "archive += member('a', b'old') + member('d', link='a') + member('d', link='late')",
        "archive += member('d', b'old') + member('d', link='late') + member('d', b'last')",
        "archive += member('d', b'old') + member('d', link='late') + member('e', link='d')",
        "archive += member('d', b'old') + member('d', link='d')",
    ] {
        assert_fresh_when_appended(members);
    }
}

/// A header that holds for all entries behind it holds for those that are appended, wherever it stands.
#[test]
fn a_global_header_holds_for_what_is_appended() {
    for (members, uid) in [
        ("archive += member('a', b'a') + pax(b'g', b'8 uid=7') + member('b', b'b')", 7),
        ("archive += member('a', b'a') + member('b', b'b') + pax(b'g', b'8 uid=7')", 7),
        ("archive += pax(b'g', b'8 uid=7') + member('a', b'a') + pax(b'g', b'13 comment=x') + member('b', b'b')", 5),
        ("archive += member('c', b'c') + pax(b'g', b'8 uid=7') + member('a', b'a') + pax(b'g', b'13 comment=x')", 5),
    ] {
        let seen = assert_fresh_when_appended(members);
        assert_eq!(seen["uid"], uid, "{members}: {seen}");
    }
}

/// In which tables the index that lies there differs from `other`.
fn different_tables(scratch: &Scratch, other: &[u8]) -> String {
    fs::write(scratch.path("other"), other).unwrap();
    scratch.shell(&format!(
        "python3 - <<'E'
import sqlite3
one, other = sqlite3.connect('{INDEX}'), sqlite3.connect('other')
for (table,) in one.execute('SELECT name FROM sqlite_schema'):
    left, right = (index.execute(f'SELECT * FROM {{table}}').fetchall() for index in (one, other))
    if left != right:
        print(table, len(left), len(right), [pair for pair in zip(left, right) if pair[0] != pair[1]][:3])
E"
    ))
}

/// Options that shape the tree. Each makes an index that only the same options use.
const SHAPES: [&[&str]; 8] = [
    &[],
    &["-e", "latin1"],
    &["-e", "koi8-r"],
    &["-i"],
    &["--gnu-incremental"],
    &["--detect-gnu-incremental"],
    &["-i", "-e", "latin1"],
    &["-i", "--gnu-incremental"],
];

/// > An index is used only for its archive, and for the options that it was made with, for fewer hashes, or without -r.
#[test]
fn an_index_made_with_other_options_is_not_used() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir one two; for i in $(seq 1100); do : > one/file$i; done; touch $(printf 'one/b\\344r'); touch two/b
         tar -C one -cf a.tar .; tar -C two -cf b.tar .; cat b.tar >> a.tar",
    );
    let path = scratch.path("a.tar");
    let expected = SHAPES.map(|shape| ls(&path, &scratch, &[shape, &["--index-file=:memory:"]].concat()).ok().out);
    let different = expected.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert!(different >= 5, "{different} different trees");
    for (made, shape) in SHAPES.iter().enumerate() {
        scratch.shell("rm -f *.sqlite");
        ls(&path, &scratch, shape).ok();
        let index = fs::read(scratch.path(INDEX)).unwrap();
        for (wanted, other) in SHAPES.iter().enumerate() {
            let ran = ls(&path, &scratch, &[*other, &["--no-recreate-index"]].concat());
            assert_eq!(ran.code, if made == wanted { 0 } else { 7 }, "{shape:?} {other:?}: {}", ran.err);
            let made_so = if made == 0 { "made without options" } else { "made with other options (" };
            assert!(made == wanted || ran.err.contains(made_so), "{}", ran.err);
            let ran = ls(&path, &scratch, other).ok();
            assert!(ran.out == expected[wanted], "{shape:?} {other:?}");
            assert!(fs::read(scratch.path(INDEX)).unwrap() == index, "{shape:?} {other:?}");
            // The other one is beside it, and both are kept: that is told only to who wants to know all.
            assert!(!ran.err.contains("is kept"), "{shape:?} {other:?}: {}", ran.err);
            let again = ls(&path, &scratch, &[*other, &["--no-recreate-index"]].concat()).ok();
            assert!(again.out == expected[wanted] && again.err.is_empty(), "{shape:?} {other:?}: {}", again.err);
            scratch.shell("rm -f *.options-*.sqlite");
        }
    }
    // Others do not shape it.
    scratch.shell("rm -f *.sqlite");
    ls(&path, &scratch, &[]).ok();
    for options in [["-P", "1"], ["--gzip-seek-point-spacing", "1"], ["--index-minimum-file-count", "5"], ["-d", "2"]] {
        ls(&path, &scratch, &[&options[..], &["--no-recreate-index"]].concat()).ok();
    }
}

/// An index that took long to make survives a command that asks for something else.
#[test]
fn an_index_that_can_do_more_is_used_and_one_that_cannot_is_kept() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; seq 1200 | (cd tree; xargs touch); echo x > tree/x; tar cf tree/in.tar tree/x; tar cf a.tar tree",
    );
    let archive = scratch.path("a.tar");
    let name = archive.to_str().unwrap();
    let tarnfs = |words: &[&str]| run(&scratch, words.iter().copied().chain([name]));
    let indexes = || {
        let names = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> = names.filter(|path| path.to_str().unwrap().ends_with(".tarnfs.sqlite")).collect();
        names.sort();
        names.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect::<Vec<_>>()
    };
    let attributes = |words: &[&str]| {
        let found = run(&scratch, ["stat", "--no-recreate-index", name, "tree/x"].iter().chain(words)).ok().text();
        found.lines().filter(|line| line.contains("user.hash.")).count()
    };
    tarnfs(&["index", "-r", "--hashes", "sha256,md5"]).ok();
    let first_one = indexes();
    assert_eq!(first_one.len(), 1);
    // Fewer hashes: those of the index that nobody asked for are not shown.
    for (words, shown) in [(&["-r"][..], 0), (&["-r", "--hashes=md5"], 1), (&["-r", "--hashes=sha256,md5"], 2)] {
        let listed = tarnfs(&[&["ls", "-R"], words].concat()).ok();
        assert!(listed.err.is_empty() && listed.text().contains("in.tar/tree/x"), "{words:?}: {}", listed.err);
        assert_eq!(attributes(words), shown, "{words:?}");
    }
    assert!(indexes() == first_one);
    // All that it has is compared.
    let checked = tarnfs(&["check", "-r", "-d", "2"]).ok();
    assert!(checked.err.contains("is right"), "{}", checked.err);
    // Without -r archives show as files, and another tree with -s.
    let listed = tarnfs(&["ls", "-R"]).ok();
    assert!(listed.err.is_empty() && listed.text().contains("in.tar") && !listed.text().contains("in.tar/"));
    assert!(indexes() == first_one);
    let listed = tarnfs(&["ls", "-R", "-d2", "-r", "-s"]).ok();
    let (first, other) = (first_one[0].0.display(), indexes().into_iter().find(|one| *one != first_one[0]).unwrap());
    let told = format!(
        "{name}: index {first} was made with other options (--recursive --hashes=md5,sha256), and is kept; the one for these options is {}\n",
        other.0.display()
    );
    assert!(listed.err.contains(&told), "{}", listed.err);
    assert!(listed.text().contains("tree/in/tree/x"), "{}", listed.text());
    let both = indexes();
    assert!(both.len() == 2 && both.contains(&first_one[0]));
    // From now on both are used, and nothing is said.
    for words in [&["ls"][..], &["ls", "-r", "-s"], &["ls", "-r", "--hashes", "md5"], &["ls", "--no-recreate-index"]] {
        assert_eq!(tarnfs(words).ok().err, "", "{words:?}");
    }
    assert!(indexes() == both);
    // Hashes that neither has: a third place, which then serves those without hashes, too.
    tarnfs(&["index", "--hashes", "crc32"]).ok();
    let three = indexes();
    assert!(three.len() == 3 && both.iter().all(|one| three.contains(one)));
    assert_eq!((attributes(&["--hashes=crc32"]), attributes(&[])), (1, 0));
    // -c replaces the one that would be used, and no other.
    tarnfs(&["index", "-c", "--hashes", "crc32,sha1"]).ok();
    let replaced = indexes();
    assert!(replaced.contains(&first_one[0]), "the one with -r is none of these");
    tarnfs(&["index", "-c", "-r"]).ok();
    assert!(!indexes().contains(&first_one[0]));
    assert_eq!(attributes(&["-r"]), 0);
    // Another archive of that name needs none of them.
    scratch.shell("echo more > tree/more; tar cf a.tar tree");
    tarnfs(&["ls"]).ok();
    assert!(indexes().iter().filter(|one| replaced.contains(one)).count() < replaced.len());
    assert_eq!(tarnfs(&["ls", "--no-recreate-index"]).ok().err.lines().filter(|line| line.contains("kept")).count(), 0);
}

/// > An index of a tar, cpio or ar that was made with -r serves a call without it where archives in the archive are
/// > all that it differs in.
///
/// All that is in an archive, as `find` and `cat` see it, through an index that was made with `-r` and without one.
#[test]
fn an_index_made_with_r_shows_archives_as_files_to_who_asks_without() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d in/e; for i in $(seq 1100); do echo $i > tree/file$i; done; echo x > in/e/x; ln in/e/x in/y
         tar -C in -cf tree/d/plain.tar .; tar cf tree/named.tar in; tar -C in -czf tree/c.tar.gz .; gzip < in/y > tree/y.gz
         tar -C tree -cf tree/d/nested.tar named.tar c.tar.gz; ln tree/d/nested.tar tree/link.tar; ln tree/y.gz tree/z
         (cd in && python3 -c 'import zipfile; zipfile.ZipFile(\"../tree/d/x.zip\", \"w\").write(\"y\")')
         tar -C tree -cf a.tar .; gzip < a.tar > b.tar.gz; printf 'not an archive' > tree/d/no.tar; ln -s d tree/s.tar
         tar -C tree -cf c.tar --owner=0 d s.tar named.tar y.gz; seq 1100 | xargs touch; tar rf c.tar $(seq 1100)",
    );
    for name in ["a.tar", "b.tar.gz", "c.tar"] {
        let archive = scratch.path(name);
        let seen = |options: &[&str]| {
            let mounted = Mounted::new(&scratch, &archive, options);
            let script = format!(
                "cd {}; LC_ALL=C find . -printf '%p %M %n %U %G %s %t %l\\n' | sort; find . -samefile d/nested.tar | sort
                 find . -type f -exec sha256sum {{}} + | sort; getfattr -dR -m - . 2>/dev/null | grep user. || true
                 for path in d/nested.tar named.tar y.gz d; do ls $path.versions 2>&1 || true; done",
                mounted.at.display()
            );
            let found = scratch.shell(&script);
            mounted.unmount();
            found
        };
        let expected = seen(&["--index-file=:memory:"]);
        assert!(expected.contains("named.tar") && !expected.contains("named.tar/"), "{expected}");
        run(&scratch, ["index", "-r", "--hashes", "sha256", archive.to_str().unwrap()]).ok();
        let count = || scratch.shell("ls *.sqlite");
        let indexes = count();
        assert_eq!(seen(&["--no-recreate-index"]), expected, "{name}");
        assert_eq!(seen(&[]), expected, "{name}");
        for inner in ["named.tar", "d/nested.tar"] {
            let cat = |index: &str| run(&scratch, ["cat", archive.to_str().unwrap(), index, inner]).ok().out;
            assert!(
                cat("--no-recreate-index") == cat("--index-file=:memory:") && !cat("--index-file=:memory:").is_empty()
            );
        }
        assert_eq!(count(), indexes);
    }
}

/// A zip that was compressed has to be decoded for its directory, so its index is worth as much as that of a tar.
#[test]
fn an_index_of_a_compressed_directory_made_with_r_serves_who_asks_without() {
    if !have("zip") {
        return println!("left out: no zip");
    }
    let scratch = Scratch::new();
    scratch.shell("for i in $(seq 1100); do echo $i > f$i; done; zip -q x.zip f*; xz -0 x.zip");
    let archive = scratch.path("x.zip.xz");
    let archive = archive.to_str().unwrap();
    run(&scratch, ["index", "-r", archive]).ok();
    let again = run(&scratch, ["index", archive]).ok();
    assert!(again.text().contains("is up to date") || again.err.contains("is up to date"), "{}", again.err);
    assert_eq!(run(&scratch, ["cat", "--no-recreate-index", archive, "f7"]).ok().text(), "7\n");
}

/// Where something else has come together with what an archive holds, or something was broken, nothing is certain.
#[test]
fn an_index_made_with_r_is_not_used_without_where_more_than_archives_in_it_differs() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p one two/in.tar; echo x > one/x; tar -C one -cf one/in.tar x; rm one/x; cp -r one three
         echo y > two/in.tar/y; echo z > three/in.tar; seq 1100 | (cd one; xargs touch); : > two/empty",
    );
    for (what, second) in [
        ("a file in it", "-C two in.tar/y"),
        ("a folder", "-C two in.tar"),
        ("another file", "-C three in.tar"),
        ("a link into it", "-C four link"),
        ("a link that leads nowhere", "-C five link"),
        ("more", "-C two empty"),
    ] {
        scratch.shell(
            "rm -rf four five *.sqlite; mkdir -p four/in.tar five; echo x > four/in.tar/x; ln four/in.tar/x four/link; echo w > five/w
             ln five/w five/link; tar -C one -cf a.tar .",
        );
        match what {
            "a link into it" => scratch
                .shell("tar -C four -cf b.tar in.tar/x link; tar -f b.tar --delete in.tar/x; tar -Af a.tar b.tar"),
            "a link that leads nowhere" => {
                scratch.shell("tar -C five -cf b.tar w link; tar -f b.tar --delete w; tar -Af a.tar b.tar")
            }
            _ => scratch.shell(&format!("tar -rf a.tar {second}")),
        };
        let archive = scratch.path("a.tar");
        let expected = ls(&archive, &scratch, &["--index-file=:memory:"]).out;
        run(&scratch, ["index", "-r", archive.to_str().unwrap()]);
        let ran = ls(&archive, &scratch, &["--no-recreate-index"]);
        // An archive that another file has replaced does not show in either.
        let is_certain = matches!(what, "more" | "another file");
        assert_eq!(ran.code, if is_certain { 0 } else { 7 }, "{what}: {}", ran.err);
        assert_eq!(ls(&archive, &scratch, &[]).out, expected, "{what}");
        let versions =
            |index: &str| run(&scratch, ["ls", "-l", index, archive.to_str().unwrap(), "in.tar.versions"]).out;
        assert_eq!(versions("--index-minimum-file-count=0"), versions("--index-file=:memory:"), "{what}");
    }
}

/// Who names the file of an index has said where it is to be.
#[test]
fn an_index_file_that_is_named_is_replaced_by_other_options_with_c_alone() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo x > tree/x; tar cf a.tar tree");
    let (archive, index) = (scratch.path("a.tar"), scratch.path("named"));
    let option = format!("--index-file={}", index.display());
    let tarnfs = |words: &[&str]| run(&scratch, words.iter().copied().chain([archive.to_str().unwrap(), &option]));
    tarnfs(&["index", "-r", "-s"]).ok();
    let made = fs::read(&index).unwrap();
    let told = format!(
        "index {} was made with other options (--recursive --strip-recursive-tar-extension), and is kept; --recreate-index replaces it",
        index.display()
    );
    let listed = tarnfs(&["ls", "-R"]).ok();
    assert!(listed.err.contains(&told) && listed.text().contains('x'), "{}", listed.err);
    let refused = tarnfs(&["index"]);
    assert!(refused.code == 7 && refused.err.contains(&told), "{}", refused.err);
    assert!(fs::read(&index).unwrap() == made);
    tarnfs(&["index", "-c"]).ok();
    assert!(fs::read(&index).unwrap() != made);
    assert_eq!(tarnfs(&["ls"]).ok().err, "");
    // A sidecar of ratarmount may be named as well.
    tarnfs(&["index", "--format=ratarmount"]).ok();
    let sidecar = fs::read(&index).unwrap();
    let told = format!("index {} was made by ratarmount, and is kept", index.display());
    for words in [&["ls", "-r"][..], &["ls", "--hashes=md5"]] {
        let listed = tarnfs(words).ok();
        assert!(listed.err.contains(&told), "{words:?}: {}", listed.err);
    }
    assert_eq!(tarnfs(&["index"]).code, 7);
    assert!(fs::read(&index).unwrap() == sidecar);
    // Of ratarmount it is also with -c, whatever archive it belongs to.
    scratch.shell("tar cf b.tar tree; echo more > tree/more; tar rf b.tar tree/more");
    for archive in ["a.tar", "b.tar"] {
        for command in ["index", "ls"] {
            let refused = run(&scratch, [command, "-c", scratch.path(archive).to_str().unwrap(), &option]);
            let told = format!(
                "tarnfs: {}: {} is an index of ratarmount, which could not read what would replace it: name another file, \
                 or delete it; `tarnfs index --format ratarmount` makes such an index again\n",
                scratch.path(archive).display(),
                index.display()
            );
            assert_eq!((refused.code, refused.err), (7, told));
            assert!(fs::read(&index).unwrap() == sidecar);
        }
    }
    tarnfs(&["index", "-c", "--format=ratarmount"]).ok();
    assert_eq!(tarnfs(&["index"]).code, 7);
}

/// Who is done last replaces none that the others have made.
#[test]
fn indexes_of_other_options_that_are_made_at_once_are_all_kept() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; (cd tree; seq 20000 | xargs touch); tar cf a.tar tree");
    let archive = scratch.path("a.tar");
    let shapes = [&[][..], &["-i"], &["-e", "latin1"], &["--transform", "tree", "t"]];
    let children = shapes.map(|shape| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tarnfs"));
        command.arg("ls").arg(&archive).args(shape).env("XDG_CACHE_HOME", scratch.path("cache"));
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    });
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    for shape in shapes {
        let ran = ls(&archive, &scratch, &[shape, &["--no-recreate-index"]].concat());
        assert_eq!(ran.code, 0, "{shape:?}: {}", ran.err);
    }
}

/// Others are kept, also in a folder that comes before.
#[test]
fn a_new_index_replaces_the_one_in_use_in_whichever_folder_it_is() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree one two; (cd tree; seq 1200 | xargs touch); tar cf a.tar tree");
    let archive = scratch.path("a.tar");
    let (one, two) = (scratch.path("one"), scratch.path("two"));
    let both = format!("--index-folders={},{}", one.display(), two.display());
    let tarnfs = |words: &[&str]| run(&scratch, words.iter().copied().chain([archive.to_str().unwrap()])).ok();
    let indexes = |folder: &Path| {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), fs::metadata(path).unwrap().modified().unwrap())).collect::<Vec<_>>()
    };
    tarnfs(&["index", &format!("--index-folders={}", two.display())]);
    tarnfs(&["index", "-r", &both]);
    let before = (indexes(&one), indexes(&two));
    assert_eq!((before.0.len(), before.1.len()), (1, 1));
    let made = tarnfs(&["index", "-c", &both]);
    assert_eq!(made.err, "");
    assert_eq!(indexes(&one), before.0);
    let after = indexes(&two);
    assert!(after.len() == 1 && after != before.1);
    // Where this call would use none, it gets a place of its own.
    tarnfs(&["index", "-c", "-i", &both]);
    assert!(indexes(&one).len() == 2 && indexes(&one).contains(&before.0[0]));
    assert_eq!(indexes(&two), after);
    tarnfs(&["ls", "-r", "--no-recreate-index", &both]);
}

/// Nothing stands for the blocks of such an image, and it may lie where no sample is taken.
#[test]
fn an_image_in_an_archive_that_was_written_anew_is_read_anew() {
    if !have("mksquashfs") {
        return println!("left out: there is no mksquashfs");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir d; head -c 100000 /dev/urandom > d/a; head -c 100000 /dev/urandom > d/b
         printf 'a 100\\nb -100\\n' > s1; printf 'a -100\\nb 100\\n' > s2
         head -c 30000000 /dev/urandom > p1; head -c 30000000 /dev/urandom > p2
         for n in 1 2; do
             rm -f img.sqsh; mksquashfs d img.sqsh -no-fragments -noI -noD -mkfs-time 0 -sort s$n > /dev/null
             tar -cf $n.tar p1 img.sqsh p2
         done; cp 1.tar t.tar; touch -d 2024-01-01 t.tar",
    );
    let archive = scratch.path("t.tar");
    let archive = archive.to_str().unwrap();
    run(&scratch, ["index", "-r", archive]).ok();
    let right = fs::read(scratch.path("d/a")).unwrap();
    let read = || run(&scratch, ["cat", "-r", archive, "img.sqsh/a"]);
    assert!(read().ok().out == right);
    scratch.shell("cat 2.tar > t.tar");
    assert!(read().ok().out == right, "bytes of another file");
}
