//! Who may not see something where it lies sees it in no mount either, with `-o allow_other`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it has left out")]

use crate::support::{Mounted, Scratch, can_mount, have, is_root};

/// What a script prints as a user who owns nothing.
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

fn can_try(scratch: &Scratch) -> bool {
    let lists = format!(
        "touch list; chmod 644 list; chmod 755 .
         {NOBODY} cat list 2> /dev/null && setfacl -m u:65534:- list 2> /dev/null && rm list && echo yes || echo no"
    );
    let can = can_mount() && is_root() && have("setpriv") && have("setfacl") && scratch.shell(&lists).contains("yes");
    if !can {
        println!("left out: it takes root, setpriv and a file system with access lists");
    }
    can
}

/// > Who may not enter the folder that shows, enters none of its older versions.
#[test]
fn a_list_counts_for_older_versions() {
    let scratch = Scratch::new();
    if !can_try(&scratch) {
        return;
    }
    scratch.shell(
        "umask 022; mkdir d; echo old > d/f; chmod 705 d; tar --acls -cf a.tar d; chmod 755 d; setfacl -m u:65534:- d
         echo new > d/f; tar --acls -rf a.tar d",
    );
    let mounted = Mounted::any(&scratch, scratch.path("a.tar"), &["-o", "allow_other"]);
    let at = mounted.at.display();
    let seen = scratch.shell(&format!(
        "cat {at}/d.versions/1/f; for f in {at}/d/f {at}/d.versions/1/f; do {NOBODY} cat $f 2>&1 || true; done"
    ));
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines.len(), 3, "{seen}");
    assert_eq!(lines[0], "new");
    assert!(lines[1..].iter().all(|line| line.contains("Permission denied")), "{seen}");
    mounted.unmount();
}

/// The bits of the group are the mask of a list: without the list they let the group in.
#[test]
fn what_a_private_file_holds_is_private() {
    let scratch = Scratch::new();
    if !can_try(&scratch) {
        return;
    }
    scratch.shell(
        "umask 022; echo secret | gzip > s.gz; setfacl -m u:65534:-,g::r,o::r s.gz
         echo plain | gzip > open.gz; chmod 644 open.gz",
    );
    let command = format!("{NOBODY} cat s.gz 2>&1 || true");
    assert!(scratch.shell(&command).contains("Permission denied"));
    for (name, expected) in [("s", "Permission denied"), ("open", "plain")] {
        let mounted = Mounted::any(&scratch, scratch.path(format!("{name}.gz")), &["-o", "allow_other"]);
        let seen = scratch.shell(&format!("{NOBODY} cat {}/{name} 2>&1 || true", mounted.at.display()));
        assert!(seen.contains(expected), "{name}: {seen}");
        mounted.unmount();
    }
}
