//! What is said, and what the folder of an overlay looks like.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::support::{Mounted, Scratch, can_mount, run, statistics};

/// > `tarnfs overlay status DIR` lists what was added, modified, deleted and renamed.
#[test]
fn status_lists_what_was_changed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d/in tree/e tree/f; for i in 1 2 3 4 5; do echo $i > tree/$i; done; echo x > tree/d/x
        echo y > tree/d/in/y; echo z > tree/e/z; echo t > tree/f/t; ln tree/4 tree/four; tar -C tree -cf a.tar .",
    );
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    let status = || run(&scratch, ["overlay", "status", &overlay]).ok().text();
    assert_eq!(status(), "");
    scratch.shell(&format!(
        "cd {}; echo new > new; mkdir folder; echo in > folder/in; echo more >> 1; rm 2; chmod 600 3; mv d moved
        echo q > moved/in/q; rm moved/x; rm -r e; echo other > tmp; mv tmp 5; mv f/t f/u; echo v > $'a\\nb'; rm four",
        mounted.at.display()
    ));
    let expected = "M 1\nD 2\nM 3\nM 5\nA a\\nb\nD e\nA folder/\nD four\nR d -> moved/\nA new\n\
                    R f/t -> f/u\nA folder/in\nD moved/x\nA moved/in/q\n";
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    // It is in use meanwhile.
    assert_eq!(sorted(&status()), sorted(expected));
    let json = run(&scratch, ["overlay", "status", "--json", &overlay]).ok().text();
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), expected.lines().count());
    let one = lines.iter().find(|line| line["path"] == "1").unwrap();
    assert_eq!((one["change"].as_str(), one["type"].as_str()), (Some("M"), Some("file")));
    assert_eq!(fs::read_to_string(one["content"].as_str().unwrap()).unwrap(), "1\nmore\n");
    mounted.unmount();
    assert_eq!(sorted(&status()), sorted(expected));
    // People can look and copy.
    assert_eq!(fs::read_to_string(scratch.path("overlay/new")).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(scratch.path("overlay/folder/in")).unwrap(), "in\n");
    let stat = fs::metadata(scratch.path("overlay/new")).unwrap();
    assert_eq!(stat.mode() & 0o777, 0o600);
}

/// > `tarnfs overlay diff DIR ARCHIVE` shows what was changed in text files as `git diff` does: applied to what is in
/// > the archive, it makes of them what is in the mount.
#[test]
fn a_diff_can_be_applied() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/d/in tree/e tree/f tree/g; seq 100 > tree/long; for i in 1 2 3 4 5 6; do echo $i > tree/$i; done
        echo x > tree/d/x; seq 20 > tree/d/in/y; echo z > tree/e/z; seq 30 > tree/f/t; printf 'no end' > tree/end
        ln -s old tree/link; head -c 3000 /dev/urandom > tree/binary; echo g > tree/g/g; chmod -R u=rwX,go=rX tree
        tar -C tree -cf a.tar .",
    );
    let overlay = scratch.path("overlay").display().to_string();
    let archive = scratch.path("a.tar").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    scratch.shell(&format!(
        "cd {}; umask 022; echo new > new; mkdir folder; printf in > folder/in; echo more >> 1; rm 2; chmod 755 3; rm -r e
        sed -i 's/^3$/three/; s/^50$/fifty/; s/^54$/more/; /^97$/d' long; mv f/t f/u; sed -i '5d' f/u; mv 4 'a \"b\"'
        echo v > $'a\\nb'; echo ' end' >> end; ln -sfn new link; rm 5; ln -s 1 5; touch 6; : > d/x; echo q >> d/in/y
        rm -r g; echo file > g",
        mounted.at.display()
    ));
    let diff = |paths: &[&str]| {
        let words = [&["overlay", "diff", &overlay, &archive], paths].concat();
        run(&scratch, words).ok().text()
    };
    let all = diff(&[]);
    fs::write(scratch.path("diff"), &all).unwrap();
    scratch.shell("mkdir out; tar -C out -xpf a.tar; cd out; git apply ../diff");
    // What git does not keep: folders that are empty.
    scratch
        .shell(&format!("cd out; rmdir e 2> /dev/null || true; diff -r --no-dereference . {}", mounted.at.display()));
    let lists = |at: &str| {
        scratch.shell(&format!("cd {at}; find . -type f -perm -100 | sort; find . -type l -printf '%p %l\\n' | sort"))
    };
    assert_eq!(lists(&scratch.path("out").display().to_string()), lists(&mounted.at.display().to_string()));
    assert!(!all.contains("/6\n") && all.contains("rename from 4\nrename to \"a \\\"b\\\"\""), "{all}");
    // As git has it, line by line.
    let one = diff(&["long"]);
    scratch.shell("mkdir git; cd git; tar -xpf ../a.tar; git init -q; git add -A");
    scratch.shell(&format!("cp {}/long git/long", mounted.at.display()));
    let git = scratch.shell("cd git; git -c core.abbrev=7 diff --diff-algorithm=histogram long | grep -v '^index '");
    let without_heads = |text: &str| {
        let cut = |line: &str| line.split_once(" @@").map_or(line.to_owned(), |(at, _)| format!("{at} @@"));
        text.lines().map(cut).collect::<Vec<_>>()
    };
    assert_eq!(without_heads(&one), without_heads(&git));
    assert_eq!(diff(&["d/in", "/5"]).matches("diff --git").count(), 3);
    // Other bytes are only said to differ.
    let binary = mounted.path("binary");
    fs::write(&binary, [0; 10]).unwrap();
    let said = diff(&["binary"]);
    assert_eq!(said, "diff --git a/binary b/binary\nBinary files a/binary and b/binary differ\n");
    mounted.unmount();
    assert_eq!(diff(&["long"]), one);
}

/// Where something cannot be, it is said why.
#[test]
fn what_cannot_be_an_overlay_is_refused_with_a_reason() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree at open; echo 1 > tree/f; tar -C tree -cf a.tar .; chmod 777 open; echo x > file; mkdir planted; echo none > planted/.tarnfs-overlay.sqlite");
    let says = |options: &[&str]| {
        let [archive, at] = ["a.tar", "at"].map(|name| scratch.path(name).display().to_string());
        let all = [options, &[archive.as_str(), at.as_str()]].concat();
        let ran = run(&scratch, all);
        (ran.code, ran.err)
    };
    let path = |name: &str| scratch.path(name).display().to_string();
    for (options, code, why) in [
        (vec!["-w".to_owned(), path("file")], 3, "file"),
        (vec!["-w".to_owned(), path("at/inside")], 3, "hide"),
        (vec!["-w".to_owned(), path("at")], 3, "hide"),
        (vec!["-w".to_owned(), path("")], 3, "lies in it"),
        (vec!["-w".to_owned(), path("open")], 3, "everybody may write"),
        (vec!["-w".to_owned(), path("planted")], 3, "database"),
        (vec!["-w".to_owned(), path("new"), "-o".to_owned(), "ro".to_owned()], 2, "-o ro"),
    ] {
        let (found, said) = says(&options.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(found == code && said.contains(why), "{options:?}: {found}: {said}");
    }
    let ran = run(&scratch, ["overlay".as_ref(), "status".as_ref(), scratch.path("tree").as_os_str()]);
    assert!(ran.code != 0 && ran.err.contains("no overlay"), "{}", ran.err);
    // An empty one is none.
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", ""]);
    assert!(fs::write(mounted.path("x"), "x").is_err());
    mounted.unmount();
}

/// > Files keep their numbers when they are changed, and when they are mounted again.
#[test]
fn numbers_of_files_stay() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/d; echo 1 > tree/f; echo 2 > tree/d/g; ln tree/f tree/h; tar -C tree -cf a.tar .");
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay, "-d", "2"]);
    let number = |mounted: &Mounted, name: &str| fs::symlink_metadata(mounted.path(name)).unwrap().ino();
    let before = ["f", "d/g", "d"].map(|name| number(&mounted, name));
    fs::write(mounted.path("f"), "changed").unwrap();
    fs::rename(mounted.path("d/g"), mounted.path("g")).unwrap();
    fs::write(mounted.path("d/new"), "new").unwrap();
    let new = number(&mounted, "d/new");
    assert_eq!(before, ["f", "g", "d"].map(|name| number(&mounted, name)));
    assert_eq!(number(&mounted, "h"), before[0]);
    assert_eq!(statistics(&mounted.at)["panics"], 0);
    mounted.unmount();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    // The other name first.
    assert_eq!(number(&mounted, "h"), before[0]);
    assert_eq!(fs::read_to_string(mounted.path("h")).unwrap(), "changed");
    assert_eq!(before, ["f", "g", "d"].map(|name| number(&mounted, name)));
    assert_eq!(number(&mounted, "d/new"), new);
    mounted.unmount();
}
