//! Folders of which an archive has no entry: what a mount shows of them is made up.

use crate::support::{Compare, Scratch, can_mount, run, survey};
use crate::{assert_same, changed, commit, left, shown};

/// As from `tar -cf a.tar home/me/proj`: there is no entry of `home` and of `home/me`.
fn archive(scratch: &Scratch) {
    scratch.shell(
        "mkdir -p tree/home/me/proj; echo f > tree/home/me/proj/f; echo g > tree/home/me/proj/g; chmod 700 tree/home/me
        tar -C tree -cf a.tar home/me/proj",
    );
}

/// > Folders that have no entry in the archive get none by a commit, unless they get other attributes, or nothing is
/// > left in them.
#[test]
fn folders_without_an_entry_get_none() {
    if !can_mount() {
        return;
    }
    let proj = "home/me/proj/ home/me/proj/f home/me/proj/g ";
    for (script, how, expected) in [
        ("rm home/me/proj/g", "is written anew", "home/me/proj/ home/me/proj/f ".to_owned()),
        ("mv home/me home/you", "is written anew", proj.replace("/me/", "/you/")),
        ("echo n > home/me/n", "is appended to", format!("{proj}home/me/n ")),
        ("echo n >> home/me/proj/g", "is appended to", format!("{proj}home/me/proj/ home/me/proj/g ")),
        ("chmod 711 home/me; echo n > home/n", "is appended to", format!("{proj}home/me/ home/n ")),
        ("rm -r home/me/proj", "is written anew", "home/me/ ".to_owned()),
    ] {
        let scratch = Scratch::new();
        archive(&scratch);
        let mut expected_tree = changed(&scratch, "a.tar", script);
        // Folders that are shown with a time that is made up. What is appended changes that.
        let ran = commit(&scratch, "a.tar", &["--yes"]).ok();
        assert!(ran.text().contains(how) && ran.err.is_empty(), "{script}: {} {}", ran.text(), ran.err);
        assert_eq!(left(&scratch), "", "{script}");
        assert_eq!(scratch.shell("tar -tf a.tar | tr '\\n' ' '"), expected, "{script}");
        let mut found = shown(&scratch, "a.tar");
        for all in [&mut expected_tree, &mut found] {
            for seen in all.values_mut().filter(|seen| seen.kind == "folder") {
                seen.mtime = (0, 0);
            }
        }
        assert_same(&expected_tree, &found, script);
        // What is there already keeps its mode.
        scratch.shell("mkdir -p out/home/me; chmod 700 out/home/me; tar -C out -xpf a.tar");
        let mode = scratch.shell("stat -c %a out/home/me");
        let has_entry = expected.split(' ').any(|path| path == "home/me/");
        assert!(has_entry || mode == "700\n", "{script}: {mode}");
    }
}

/// The time of such a folder is that of the archive, which is another one as soon as something is appended to it.
#[test]
fn an_append_below_such_folders_succeeds_at_once() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archive(&scratch);
    let at = scratch.folder("at");
    let path = scratch.path("a.tar");
    run(&scratch, ["--write".as_ref(), path.as_os_str(), at.as_os_str()]).ok();
    scratch.shell("echo NEW > at/home/me/proj/f");
    let expected = survey(&at.join("home/me/proj"), Compare::default());
    let ran = run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
    assert_eq!((ran.err.as_str(), scratch.shell("ls -d a.tar*").as_str()), ("", "a.tar\n"));
    assert_eq!(scratch.shell("tar -tf a.tar | grep -c proj/f"), "2\n");
    scratch.shell("tar -xpf a.tar -C tree");
    assert_same(&expected, &survey(&scratch.path("tree/home/me/proj"), Compare::default()), "proj");
}
