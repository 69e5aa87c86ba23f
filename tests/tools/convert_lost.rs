//! `tarnfs convert`: what the new archive cannot hold is told, and the old one stays then.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Ran, Scratch, tarnfs};

fn run_in(scratch: &Scratch, words: &str) -> (i32, String) {
    let ran = Ran::from(tarnfs(scratch).args(words.split_whitespace()).current_dir(scratch.path("")).output().unwrap());
    (ran.code, ran.err)
}

/// > Names of owners, names that cannot be stored, times and the attributes of the root are among what is told.
#[test]
fn what_is_lost_of_entries_keeps_the_old_archive() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import tarfile, zipfile
def make(name, *members):
    with tarfile.open(name, 'w', format=tarfile.PAX_FORMAT) as file:
        for path, facts in members:
            entry = tarfile.TarInfo(path)
            for key, value in facts.items():
                setattr(entry, key, value)
            file.addfile(entry)
make('user.tar', ('f', {'uname': 'alice'}))
make('group.tar', ('f', {'gname': 'staff'}))
make('root.tar', ('./', {'type': tarfile.DIRTYPE, 'mode': 0o700, 'uid': 7}), ('./f', {}))
make('old.tar', ('f', {'mtime': -20000000000}))
make('read.tar', ('f', {'pax_headers': {'atime': '-20000000000'}}))
make('long.tar', ('n' * 304, {}), ('d/../e', {}))
with zipfile.ZipFile('long.zip', 'w') as file:
    file.writestr('n' * 304, 'x')
    file.writestr('d/../e', 'y')
E",
    );
    let names = "2 names are not as they are stored, for `..` in them or their length";
    for (from, to, message) in [
        ("user.tar", "new.zip", "new.zip: names of owners cannot be kept there: f"),
        ("group.tar", "new.zip", "new.zip: names of owners cannot be kept there: f"),
        ("root.tar", "new.zip", "new.zip: owner, mode and time of the folder that all is in cannot be kept there"),
        ("old.tar", "new.zip", "new.zip: times so far from now cannot be kept there: f"),
        ("read.tar", "new.zip", "new.zip: times so far from now cannot be kept there: f"),
        ("long.tar", "new.zip", names),
        ("long.zip", "new.tar", names),
        ("long.zip", "new.zip", names),
    ] {
        scratch.shell(&format!("cp {from} before"));
        let (code, said) = run_in(&scratch, &format!("convert --replace {from} {to}"));
        assert!(code == 1 && said.contains(message) && said.contains("it is kept"), "{from}: {code} {said}");
        scratch.shell(&format!("cmp {from} before; test ! -e {to}"));
        // Without --replace that is a warning.
        let (code, said) = run_in(&scratch, &format!("convert {from} {to}"));
        assert!(code == 0 && said.contains(message), "{from}: {code} {said}");
        scratch.shell(&format!("cmp {from} before; rm {to}"));
    }
}

/// An index that another version has made may not know of all that is lost.
#[test]
fn an_archive_that_is_to_be_replaced_is_read_anew() {
    let scratch = Scratch::new();
    scratch
        .shell("echo x > f; tar --format=pax --pax-option=VENDOR.key:=y --numeric-owner -cf a.tar f; cp a.tar before");
    assert_eq!(run_in(&scratch, "index --index-minimum-file-count=0 a.tar").0, 0);
    let deleted = "sqlite3 a.tar.tarnfs.sqlite \"DELETE FROM summary WHERE key = 'unlisted'; SELECT changes()\"";
    assert_eq!(scratch.shell(deleted).trim(), "1");
    let (code, said) = run_in(&scratch, "convert --replace a.tar a.zip");
    assert!(code == 1 && said.contains("'VENDOR.key'"), "{code} {said}");
    scratch.shell("cmp a.tar before; test ! -e a.zip");
}

/// > `convert` makes a tar or a zip of any archive that can be mounted, with all that both can hold.
#[test]
fn times_and_names_of_owners_are_kept_where_there_is_room() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import tarfile
def make(name, headers, **facts):
    with tarfile.open(name, 'w', format=tarfile.PAX_FORMAT) as file:
        entry = tarfile.TarInfo('f')
        entry.pax_headers = headers
        for key, value in facts.items():
            setattr(entry, key, value)
        file.addfile(entry)
make('read.tar', {'atime': '1000000000.25'}, mtime=1000000)
make('all.tar', {'atime': '1000000000.25', 'ctime': '-3.5'}, uname='alice', gname='staff', uid=3, gid=4, mtime=1000000)
E",
    );
    for words in
        ["--replace read.tar read.zip", "--replace read.zip read.tar", "--replace --transform ^/f /g all.tar new.tar"]
    {
        assert_eq!(run_in(&scratch, &format!("convert {words}")), (0, String::new()), "{words}");
    }
    let said = scratch.shell(
        r"python3 - <<'E'
import tarfile
for name in ['read.tar', 'new.tar']:
    entry = tarfile.open(name).next()
    print(entry.name, int(entry.mtime), entry.uname, entry.gname, [entry.pax_headers.get(key) for key in ['atime', 'ctime']])
E",
    );
    assert_eq!(said, "f 1000000   ['1000000000.25', None]\ng 1000000 alice staff ['1000000000.25', '-3.5']\n");
}

/// > Folders that have no entry in the old archive have none in what `convert` makes of it.
#[test]
fn folders_without_an_entry_get_none() {
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/d/e/f; echo g > tree/d/e/f/g; tar --numeric-owner -C tree -cf a.tar d/e/f");
    assert_eq!(run_in(&scratch, "convert --replace a.tar b.zip"), (0, String::new()));
    assert_eq!(run_in(&scratch, "convert --replace b.zip c.tar"), (0, String::new()));
    assert_eq!(scratch.shell("ls; tar -tf c.tar"), "c.tar\ntree\nd/e/f/\nd/e/f/g\n");
}
