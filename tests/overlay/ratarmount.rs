//! Overlays that the real ratarmount has made.

use std::process::Command;

use crate::peers;
use crate::support::{Mounted, Scratch, can_mount, is_mounted, wait_until};

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
