//! Any operations in a mount, a commit, and the archive shows the same.

use crate::support::{Compare, Mounted, Numbers, Scratch, can_mount, rounds, survey};
use crate::{assert_same, commit, left, shown};

fn path(numbers: &mut Numbers) -> String {
    let depth = 1 + numbers.below(3);
    (0..depth).map(|_| ["a", "b", "c", "d", "e"][numbers.below(5) as usize]).collect::<Vec<_>>().join("/")
}

/// A line of a shell script; many of them fail, as what they are about is something else.
fn line(numbers: &mut Numbers) -> String {
    let (from, to, number) = (path(numbers), path(numbers), numbers.below(100_000));
    match numbers.below(19) {
        0..=2 => format!("echo {number} > {from}"),
        3 => format!("head -c {number} /dev/zero | tr '\\0' x >> {from}"),
        4 => format!("[ ! -f {from} ] || truncate -s {number} {from}"),
        5 | 6 => format!("mkdir -p {from}"),
        7 => format!("rm -rf {from}"),
        8 => format!("rmdir {from}"),
        9..=11 => format!("mv -T {from} {to}"),
        12 => format!("ln -s {to} {from}"),
        13 => format!("ln {from} {to}"),
        14 => format!("[ -L {from} ] || chmod {:o} {from}", 0o400 | number & 0o777),
        15 => format!("chown -h {}:{} {from}", number % 7, number % 5),
        16 => format!("touch -h -d @{number}.5 {from}"),
        17 => format!("[ -L {from} ] || setfattr -n user.x{} -v {number} {from}", number % 3),
        // Not a pipe: who opens one waits.
        _ => format!("mknod {from} c 1 3"),
    }
}

/// > Whatever was done in a mount, the archive shows the same after the commit.
#[test]
fn whatever_was_done_is_there_after_the_commit() {
    if !can_mount() {
        return;
    }
    for seed in 1..=rounds(4, 60) {
        let scratch = Scratch::new();
        let name = ["a.tar", "a.tar.zst", "a.tar.gz", "a.tar.xz"][(seed % 4) as usize];
        scratch.shell(&format!(
            "mkdir -p tree/a/b/c tree/d; cd tree; echo 1 > a/a; echo 2 > a/b/b; seq 9000 > e; ln a/a d/b; ln -s a c
            cd ..; tar -C tree -caf {name} ."
        ));
        let mut numbers = Numbers::new(seed);
        let overlay = scratch.path("overlay").display().to_string();
        for round in 0..4 {
            let mounted = Mounted::new(&scratch, scratch.path(name), &["-w", &overlay]);
            let lines: Vec<_> = (0..120).map(|_| format!("({}) 2> /dev/null || true", line(&mut numbers))).collect();
            scratch.shell(&format!("cd {}; {}", mounted.at.display(), lines.join("\n")));
            let expected = survey(&mounted.at, Compare::default());
            mounted.unmount();
            // Older versions of names that an append has left are no more of interest.
            let ran = commit(&scratch, name, &["--yes", "--lossy"]);
            assert_eq!(ran.code, 0, "seed {seed}, round {round}: {}", ran.err);
            assert_same(&expected, &shown(&scratch, name), &format!("seed {seed}, round {round}"));
            assert_eq!(left(&scratch), "", "seed {seed}, round {round}");
        }
    }
}

/// What of two things of one size and one time was where.
fn swap(numbers: &mut Numbers) -> String {
    let (one, two) = (path(numbers), path(numbers));
    let back = if numbers.below(4) == 0 { "true" } else { "mv -T t" };
    format!("[ -e {one} ] && [ -e {two} ] && mv -T {one} t && mv -T {two} {one} && {back} {two}")
}

/// The same of a few changes at a time to a tar that is not compressed, so that it is appended to where that is enough.
/// All files look the same from outside.
#[test]
fn few_changes_are_there_after_the_commit() {
    if !can_mount() {
        return;
    }
    let mut counts = [0; 2];
    for seed in 1..=rounds(3, 100) {
        let scratch = Scratch::new();
        scratch.shell(
            "mkdir tree; cd tree; n=1; for a in a b c; do mkdir $a; for b in a b c; do mkdir $a/$b; for c in a b c d; do
                n=$((n + 1)); printf %04d $n > $a/$b/$c; done; done; printf %04d $((n += 1)) > $a/e; done; printf 0000 > d
            ln a/e a/a/e; cd ..; tar -C tree --mtime=2001-01-01 -cf a.tar .",
        );
        let mut numbers = Numbers::new(1000 + seed);
        let overlay = scratch.path("overlay").display().to_string();
        for round in 0..8 {
            let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
            let next = |numbers: &mut Numbers| if numbers.below(3) == 0 { swap(numbers) } else { line(numbers) };
            let lines: Vec<_> =
                (0..=numbers.below(3)).map(|_| format!("({}) 2> /dev/null || true", next(&mut numbers))).collect();
            scratch.shell(&format!("cd {}; {}", mounted.at.display(), lines.join("\n")));
            let expected = survey(&mounted.at, Compare::default());
            mounted.unmount();
            let ran = commit(&scratch, "a.tar", &["--yes", "--lossy"]);
            let what = format!("seed {seed}, round {round}: {lines:?}");
            assert_eq!(ran.code, 0, "{what}: {}", ran.err);
            let out = ran.text();
            counts[0] += u32::from(out.contains("is appended to"));
            counts[1] += u32::from(out.contains("is written anew"));
            assert_same(&expected, &shown(&scratch, "a.tar"), &what);
            assert_eq!(left(&scratch), "", "{what}");
        }
    }
    assert!(counts[0] > 2 && counts[1] > 2, "{counts:?}: appended, written anew");
}
