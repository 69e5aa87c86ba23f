//! `tarnfs extract` by who is not root, and into folders with rules of their own: groups, access lists, mounts, limits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use crate::support::{Scratch, can_mount, have, is_root};

/// A folder where the user `nobody` may run this program, with archives of `tree` in it; `None` where that cannot be.
fn for_nobody(prepare: &str) -> Option<Scratch> {
    if !is_root() || !have("setpriv") {
        println!("left out: needs root and setpriv, to become somebody else");
        return None;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "chmod 755 .; cp {} tarnfs; chmod 755 tarnfs; umask 022; {prepare}
         tar -C tree -cf w.tar site; gzip -k w.tar",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    Some(scratch)
}

/// What the user `nobody`, who is in group 33, gets of `words`: the exit code, and what is said.
fn as_nobody(scratch: &Scratch, words: &str) -> String {
    scratch.shell(&format!(
        "export XDG_CACHE_HOME=/nonexistent
         setpriv --reuid=65534 --regid=65534 --groups=65534,33 bash -c 'umask 022; {words}' 2>&1 || echo code $?"
    ))
}

const SITE: &str =
    "mkdir -p tree/site/sub; echo f > tree/site/f; ln -s f tree/site/l; seq 5 > tree/site/sub/g; mkfifo tree/site/p";

/// > Where the folder that is extracted to may not be written in, what lies in folders below it is extracted all the
/// > same.
#[test]
fn who_may_only_write_below_extracts_there() {
    let Some(scratch) = for_nobody(SITE) else { return };
    for archive in ["w.tar", "w.tar.gz"] {
        scratch.shell("rm -rf at; mkdir -p at/site; chown 65534:65534 at/site");
        for options in ["", "--overwrite"] {
            let said = as_nobody(&scratch, &format!("./tarnfs extract {options} -C at {archive}"));
            assert_eq!(said, "", "{archive} {options}");
            let seen =
                scratch.shell("diff -r --no-dereference tree/site/sub at/site/sub; cat at/site/f; ls -A at at/site");
            assert_eq!(seen, "f\nat:\nsite\n\nat/site:\nf\nl\np\nsub\n", "{archive} {options}");
        }
    }
}

/// What has room where it is to be needs none elsewhere.
#[test]
fn what_is_mounted_below_has_its_own_room() {
    if !is_root() {
        println!("left out: needs root, to mount");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p t/data; head -c 6000000 /dev/urandom > t/data/large; for n in $(seq 300); do seq 999 > t/data/$n; done
         ln t/data/large t/data/other; tar -C t -cf w.tar data; gzip -1k w.tar",
    );
    for (archive, read_only) in [("w.tar", false), ("w.tar.gz", false), ("w.tar", true), ("w.tar.gz", true)] {
        let remount = if read_only { "mount -o remount,ro at;" } else { "" };
        let seen = scratch.shell(&format!(
            "export XDG_CACHE_HOME=$PWD/cache; mkdir -p at; mount -t tmpfs -o size=1m none at; mkdir at/data
             mount -t tmpfs -o size=30m none at/data; {remount}
             for options in '' --overwrite; do
                 {} extract $options -C at {archive} 2>&1 || echo code $?; diff -r t/data at/data 2>&1; ls -A at
             done
             umount at/data; umount at",
            env!("CARGO_BIN_EXE_tarnfs")
        ));
        assert_eq!(seen, "data\ndata\n", "{archive} {read_only}");
    }
    // Where there is no room for it at all, that is said.
    let seen = scratch.shell(&format!(
        "export XDG_CACHE_HOME=$PWD/cache; mkdir -p at; mount -t tmpfs -o size=30m none at; mkdir at/data
         mount -t tmpfs -o size=1m none at/data; {} extract -C at w.tar.gz 2>&1 || echo code $?; umount at/data; umount at",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    assert!(seen.contains("No space left on device") && seen.ends_with("code 1\n"), "{seen}");
}

/// A folder with another key, or another quota, takes nothing by rename.
#[test]
fn folders_that_take_nothing_from_others_get_their_files() {
    let scratch = Scratch::new();
    if scratch.shell("strace -qq -o /dev/null true 2> /dev/null && echo works || true") != "works\n" {
        println!("left out: strace is not installed, or processes may not be traced here");
        return;
    }
    scratch.shell(&format!("{SITE}; ln tree/site/f tree/site/h; tar -C tree -cf w.tar site; gzip -k w.tar"));
    // Every second name fails, and then the others.
    for first in [1, 2] {
        let said = scratch.shell(&format!(
            "export XDG_CACHE_HOME=$PWD/cache; rm -rf at
             strace -f -qq -o trace -e inject=renameat2:error=EXDEV:when={first}+2 {} extract -P1 -C at w.tar.gz 2>&1 || echo code $?
             grep -c INJECTED trace > count; cat at/site/f at/site/h at/site/sub/g; ls -A at at/site; [ at/site/f -ef at/site/h ]; test -p at/site/p",
            env!("CARGO_BIN_EXE_tarnfs")
        ));
        assert_eq!(said, "f\nf\n1\n2\n3\n4\n5\nat:\nsite\n\nat/site:\nf\nh\nl\np\nsub\n", "{first}");
    }
}

/// The same where files have a name before their own (NFS, CephFS: there are none without one).
#[test]
fn folders_that_take_nothing_from_others_get_files_with_names() {
    let scratch = Scratch::new();
    if scratch.shell("strace -qq -o /dev/null true 2> /dev/null && echo works || true") != "works\n" {
        println!("left out: strace is not installed, or processes may not be traced here");
        return;
    }
    scratch.shell("mkdir -p tree/sub; seq 5 > tree/sub/f; seq 6 > tree/sub/g; tar -C tree -cf w.tar sub");
    // The first two calls that open something in the folder ask for a file without a name.
    let said = scratch.shell(&format!(
        "export XDG_CACHE_HOME=$PWD/cache; mkdir at
         strace -f -qq -o trace -P $PWD/at/sub -e trace=openat,renameat2 -e inject=openat:error=EOPNOTSUPP:when=1..2 \\
             -e inject=renameat2:error=EXDEV:when=1 {} extract -P1 -C at w.tar 2>&1 || echo code $?
         grep INJECTED trace | awk '{{ print $2 }}' | cut -d'(' -f1; grep INJECTED trace | grep -c TMPFILE
         diff -r tree at; ls -A at at/sub",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    assert_eq!(said, "openat\nrenameat2\nopenat\n2\nat:\nsub\n\nat/sub:\nf\ng\n");
}

/// > Where a file system that is mounted below it is full or read-only, all else is extracted.
#[test]
fn what_is_mounted_below_fails_by_itself() {
    if !is_root() || !can_mount() {
        println!("left out: needs root, to mount");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p t/a t/boot/new t/z; for name in a boot boot/new z; do echo $name > t/$name/f; done
         head -c 3000000 /dev/urandom > t/boot/large; tar -C t -cf w.tar a boot/new boot/large boot/f z; gzip -1k w.tar",
    );
    for archive in ["w.tar", "w.tar.gz"] {
        for (is_full, options) in [(false, ""), (false, "--resume"), (true, ""), (true, "-P1 --resume")] {
            let remount = if is_full { "" } else { "mount -o remount,ro at/boot;" };
            let seen = scratch.shell(&format!(
                "export XDG_CACHE_HOME=$PWD/cache; rm -rf at; mkdir -p at/boot; mount -t tmpfs -o size=1m none at/boot; {remount}
                 {} extract {options} -C at {archive} > said 2>&1 || echo code $?
                 cat at/a/f at/z/f; ls at/boot; umount at/boot",
                env!("CARGO_BIN_EXE_tarnfs")
            ));
            let there = if is_full { "f\nnew\n" } else { "" };
            let said = std::fs::read_to_string(scratch.path("said")).unwrap();
            assert_eq!(seen, format!("code 1\na\nz\n{there}"), "{archive} {options}: {said}");
            assert!(said.contains("boot/large: ") && !said.contains("boot/large/"), "{archive} {options}: {said}");
        }
    }
}

/// > Who is not root gets groups as from GNU tar: in a folder with setgid that of the folder, and folders keep setgid.
#[test]
fn groups_come_from_folders_with_setgid() {
    let Some(scratch) = for_nobody(SITE) else { return };
    let list = "find . -printf \"%p %m %g\\n\" | sort";
    let place = "rm -rf at; mkdir -p at/site; chown -R 65534:33 at; chmod 2775 at/site";
    // In the other way round, files do not get the group of the hidden folder.
    let turned =
        "rm -rf at; mkdir -p at/site; chown 65534:33 at; chmod 2775 at; chown 65534:65534 at/site; chmod 755 at/site";
    for place in [place, turned] {
        scratch.shell(place);
        let expected = as_nobody(&scratch, &format!("tar -C at -xf w.tar; cd at; {list}"));
        assert!(expected.contains("./site/sub/g 644"), "{expected}");
        for archive in ["w.tar", "w.tar.gz"] {
            scratch.shell(place);
            let seen = as_nobody(&scratch, &format!("./tarnfs extract -C at {archive}; cd at; {list}"));
            assert_eq!(seen, expected, "{archive} {place}");
            // What replaces something, too.
            let seen = as_nobody(&scratch, &format!("./tarnfs extract --overwrite -C at {archive}; cd at; {list}"));
            assert_eq!(seen, expected, "{archive} {place}");
        }
    }
}

/// > Where access lists are handed down, what who is not root makes there has them as they are.
#[test]
fn lists_that_are_handed_down_say_who_may_enter() {
    if !have("setfacl") {
        return;
    }
    let Some(scratch) = for_nobody(&format!("{SITE}; mkdir tree/site/closed; chmod 555 tree/site/closed")) else {
        return;
    };
    // A pipe has the mode of the archive. GNU tar also gives others what the archive gives them of a folder that its
    // owner may not write.
    let list = "getfacl -Rn site/f site/sub; getfacl -n site; stat -c %a site site/sub";
    for mask in ["022", "077"] {
        let place = "rm -rf at; mkdir at; chown 65534 at; setfacl -d -m u:1234:rwx,g::rx,o::- at";
        scratch.shell(place);
        let expected = as_nobody(&scratch, &format!("umask {mask}; tar -C at -xf w.tar; cd at; {list}"));
        assert!(expected.contains("user:1234:rwx"), "{expected}");
        for archive in ["w.tar", "w.tar.gz"] {
            scratch.shell(place);
            let seen = as_nobody(&scratch, &format!("umask {mask}; ./tarnfs extract -C at {archive}; cd at; {list}"));
            assert_eq!(seen, expected, "{archive} {mask}");
            assert_eq!(scratch.shell("stat -c %a at/site/closed"), "550\n", "{archive} {mask}");
        }
    }
}

/// Each thread has folders open: there are as many threads as there may be open files.
#[test]
fn many_threads_do_with_few_open_files() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import tarfile
with tarfile.open('a.tar', 'w') as tar:
    for number in range(6000):
        tar.addfile(tarfile.TarInfo(f'{number * 7 % 600}/x/{number}'))
E",
    );
    for limit in ["-n", "-Sn"] {
        let said = scratch.shell(&format!(
            "export XDG_CACHE_HOME=$PWD/cache; rm -rf at; mkdir at; ulimit {limit} 64
             {tarnfs} extract -P 48 -C at a.tar 2>&1 || echo code $?; find at -type f | wc -l
             {tarnfs} compare -P 48 a.tar at 2>&1 || echo code $?",
            tarnfs = env!("CARGO_BIN_EXE_tarnfs")
        ));
        assert_eq!(said, "6000\n", "{limit}");
    }
}
