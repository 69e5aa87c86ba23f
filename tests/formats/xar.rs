//! XAR, as bsdtar writes it, beside what bsdtar and 7-Zip extract.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;

use crate::support::{Compare, Mounted, Scratch, assert_twins, can_mount, have, is_root};
use crate::trees::{sums, told};

const COMPARE: Compare = Compare { skip_folder_times: true, holes: false, whole_seconds: true };

#[test]
fn what_bsdtar_has_packed_is_read() {
    if !can_mount() || !have("bsdtar") || !is_root() {
        return println!("left out: no mounts or no bsdtar here");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/sub; cd tree; seq 40000 > numbers; head -c 100000 /dev/urandom > random; : > empty; echo x > sub/small
         ln -s ../numbers sub/link; ln numbers sub/other; mkfifo fifo; chmod 4711 random; chown 123:456 numbers
         touch -d '2021-02-03 04:05:06 UTC' numbers random; touch 'a & <b>'",
    );
    for compression in ["gzip", "bzip2", "xz", "none"] {
        scratch.shell(&format!(
            "bsdtar --format=xar --options xar:compression={compression} -cf x.xar -C tree . && rm -rf theirs && mkdir theirs
             bsdtar -xpf x.xar -C theirs"
        ));
        let checked = told(&scratch, "check", "x.xar", &[]);
        assert_eq!(checked.code, 0, "{compression}: {}", checked.err);
        let mounted = Mounted::new(&scratch, scratch.path("x.xar"), &[]);
        assert_twins(&mounted.at, &scratch.path("theirs"), COMPARE);
        mounted.unmount();
    }
    scratch.shell("tar -cf outer.tar x.xar; gzip -k outer.tar");
    for outer in ["outer.tar", "outer.tar.gz"] {
        let mounted = Mounted::new(&scratch, scratch.path(outer), &["-r"]);
        assert_eq!(sums(&scratch, &mounted.path("x.xar")), sums(&scratch, &scratch.path("tree")), "{outer}");
        mounted.unmount();
    }
}

#[test]
fn what_is_damaged_says_so() {
    if !have("bsdtar") {
        return println!("left out: no bsdtar here");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 40000 > tree/numbers; bsdtar --format=xar -cf x.xar -C tree numbers");
    let bytes = fs::read(scratch.path("x.xar")).unwrap();
    fs::write(scratch.path("cut.xar"), &bytes[..bytes.len() / 2]).unwrap();
    let cut = told(&scratch, "check", "cut.xar", &[]);
    assert!(cut.code != 0 && cut.text().contains("behind the end"), "{}", cut.text());
    fs::write(scratch.path("short.xar"), &bytes[..40]).unwrap();
    let short = told(&scratch, "ls", "short.xar", &[]);
    assert!(short.code != 0 && short.err.contains("table of contents"), "{}", short.err);
    let mut wrong = bytes;
    wrong[100] ^= 0x40;
    fs::write(scratch.path("wrong.xar"), &wrong).unwrap();
    let wrong = told(&scratch, "ls", "wrong.xar", &[]);
    assert!(wrong.code != 0 && wrong.err.contains("table of contents"), "{}", wrong.err);
}
