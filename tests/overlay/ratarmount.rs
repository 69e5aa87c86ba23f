//! Overlays that the real ratarmount has made.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use crate::peers;
use crate::support::{Mounted, Scratch, behind, can_mount, is_mounted, run, wait_until};

/// > An overlay that ratarmount has made opens, and goes on.
#[test]
fn an_overlay_of_ratarmount_goes_on() {
    let Some(ratarmount) = peers::ratarmount() else { return };
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d/deep tree/gone tree/moved; for i in 1 2 3 4 5 6; do echo old $i > tree/$i; done
        echo x > tree/d/x; echo y > tree/d/deep/y; echo z > tree/gone/z; chmod 640 tree/2;
        touch -d '2011-11-11 11:11:11' tree/*; tar -C tree -cf a.tar .; mkdir theirs overlay",
    );
    let (at, overlay) = (scratch.path("theirs"), scratch.path("overlay").display().to_string());
    let ran = Command::new(ratarmount)
        .args(["-w", &overlay])
        .arg(scratch.path("a.tar"))
        .arg(&at)
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    wait_until("ratarmount has mounted", || is_mounted(&at));
    scratch.shell(
        "cd theirs; echo new > new; mkdir folder; echo in > folder/in; echo more >> 2; rm 3; rm gone/z; rmdir gone
        chmod 600 4; touch -d '2012-12-12 12:12:12' 4; chown 12:34 6; ln -s new link; mv d/x d/moved; echo w > d/deep/w
        chmod 711 d/deep; ln new hard",
    );
    let seen = "find . -mindepth 1 -printf '%P %y %l\\n' | sort; find . -type f -printf '%P %s\\n' | sort; cat 1 2 new folder/in d/moved d/deep/y d/deep/w hard";
    let theirs = scratch.shell(&format!("cd theirs; {seen}"));
    scratch.shell("fusermount3 -u theirs || umount theirs");
    wait_until("ratarmount is gone", || !is_mounted(&at));
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    let in_mount = |mounted: &Mounted, script: &str| scratch.shell(&format!("cd {}; {script}", mounted.at.display()));
    assert_eq!(in_mount(&mounted, seen), theirs);
    let said =
        in_mount(&mounted, "stat -c '%n %a %u %g %Y' 2 4 6 d/deep | sed 's/ [0-9]*$//'; stat -c %Y 4; stat -c %h new");
    let expected = "2 640 0 0\n4 600 0 0\n6 644 12 34\nd/deep 711 0 0\n";
    let time = scratch.shell("date -d '2012-12-12 12:12:12' +%s");
    assert_eq!(said, format!("{expected}{time}2\n"));
    in_mount(
        &mounted,
        "echo again >> new; rm 1; mv folder other; echo back > 3; setfattr -n user.a -v b link -h || true",
    );
    mounted.unmount();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    assert_eq!(in_mount(&mounted, "cat hard other/in 3; test -e 1 || echo gone"), "new\nagain\nin\nback\ngone\n");
    mounted.unmount();
}

/// > A file of somebody else that is called as ratarmount's is refused, whatever is in it, and nothing is lost.
#[test]
fn what_is_not_of_ratarmount_is_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree overlay/folder; echo 1 > tree/f; tar -C tree -cf a.tar .; echo x > overlay/folder/x");
    let overlay = scratch.path("overlay").display().to_string();
    let columns = "'/n' || i AS path, 'n' || i AS name, 0 AS mtime, 0 AS mode, 0 AS uid, 0 AS gid, 0 AS deleted";
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    for make in [
        format!("CREATE VIEW files AS {endless} SELECT {columns} FROM n"),
        "CREATE TABLE files (path, name, mtime, mode, uid, gid, deleted AS (hex(zeroblob(500000)))); \
         INSERT INTO files VALUES ('/', 'f', 0, 0, 0, 0)"
            .to_owned(),
        "CREATE TABLE other (a)".to_owned(),
    ] {
        scratch.shell(&format!(
            "python3 - <<'P'
import sqlite3
c = sqlite3.connect('overlay/.ratarmount.overlay.sqlite'); c.executescript(\"\"\"{make}\"\"\"); c.commit()
P"
        ));
        for _ in 0..2 {
            let at = scratch.path("at").display().to_string();
            let ran = run(&scratch, ["-w", &overlay, scratch.path("a.tar").to_str().unwrap(), &at]);
            assert!(
                ran.code == 3 && ran.err.contains(".ratarmount.overlay.sqlite"),
                "{make}: {}: {}",
                ran.code,
                ran.err
            );
        }
        scratch.shell("rm overlay/.ratarmount.overlay.sqlite");
    }
    // Nothing was taken over, so now it is.
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    assert_eq!(fs::read_to_string(mounted.path("folder/x")).unwrap(), "x\n");
    mounted.unmount();
}

/// > Who mounts may read and write what lies in an overlay that was taken over, whatever mode it has.
#[test]
fn contents_that_are_for_reading_are_taken_over() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree overlay/d; echo 1 > tree/f; tar -C tree -cf a.tar .; echo x > overlay/d/x; echo y > overlay/y
        chmod 444 overlay/d/x; chmod 0 overlay/y; chmod 500 overlay/d",
    );
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    let modes = |of: &dyn Fn(&str) -> std::path::PathBuf| {
        ["d/x", "y", "d"].map(|name| fs::metadata(of(name)).unwrap().mode() & 0o777)
    };
    assert_eq!(modes(&|name| mounted.path(name)), [0o444, 0, 0o500]);
    assert_eq!(modes(&|name| scratch.path("overlay").join(name)), [0o644, 0o600, 0o700]);
    assert_eq!(fs::read_to_string(mounted.path("d/x")).unwrap(), "x\n");
    mounted.unmount();
}

/// > What cannot be taken over stays as it was, and is taken over by the next mount.
#[test]
fn what_fails_to_be_taken_over_keeps_its_mode() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree overlay/d; echo 1 > tree/f; tar -C tree -cf a.tar .; cd overlay/d; echo x > x
        seq -f 'a-file-with-a-long-name-%g' 3000 | xargs touch; chmod 444 x",
    );
    let (overlay, at) = (scratch.path("overlay").display().to_string(), scratch.folder("at"));
    let mode = |path: std::path::PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    // There is no room for all that is to be said of them.
    let limited = ["sh", "-c", "ulimit -f 400; exec \"$0\" \"$@\""];
    let ran = behind(&scratch, &limited).args(["-w", &overlay]).arg(scratch.path("a.tar")).arg(&at).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(said.contains(&overlay) && !is_mounted(&at), "{said}");
    assert_eq!(mode(scratch.path("overlay/d/x")), 0o444);
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    assert_eq!(mode(mounted.path("d/x")), 0o444);
    assert_eq!(mounted.path("d").read_dir().unwrap().count(), 3001);
    assert_eq!(mode(scratch.path("overlay/d/x")), 0o644);
    mounted.unmount();
}
