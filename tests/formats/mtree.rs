//! Lists of mtree, as bsdtar and the mtree of NetBSD write them, beside the files that they list.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::path::Path;

use crate::support::{Mounted, Scratch, can_mount, corpus, have, is_root, run};
use crate::trees::told;

fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r#"mkdir -p "tree/sub dir/deep"; cd tree; seq 400 > numbers; : > empty; echo x > "sub dir/small #1"; ln -s "../a b" "sub dir/link"
        mkfifo fifo; chmod 4711 numbers; chown 123:456 numbers; touch -d '2021-02-03 04:05:06 UTC' numbers; echo ä > "$(printf 'Gr\303\274n\t\\n')"
        mkdir "sub dir/deep/er" "sub dir/deep/est"; echo a > "sub dir/deep/er/a"; echo b > "sub dir/deep/est/b"; mknod null c 1 3; mknod disk b 259 300; echo z > "sub dir/z""#,
    );
}

/// Kind, mode, owner, size, time and target of all that is in a folder, of folders without the size.
fn attributes(scratch: &Scratch, folder: &Path) -> String {
    let folder = folder.display();
    scratch.shell(&format!(
        r"cd '{folder}'; find . -mindepth 1 -type d -printf '%y %m %U %G %Ts %p\n' -o -mindepth 1 -printf '%y %m %U %G %s %Ts %l %p\n' | sort; stat -c '%t %T' null disk"
    ))
}

/// > Of an mtree specification, a mount shows the files with the attributes that it tells; reading one says that what
/// > it holds is not there.
#[test]
fn what_is_listed_has_its_attributes() {
    if !can_mount() || !is_root() || !have("bsdtar") {
        return println!("left out: no mounts or no bsdtar here");
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    scratch.shell(
        "cd tree; export LC_ALL=C.UTF-8; options='!all,mode,uid,gid,uname,gname,time,size,type,link,device'
         bsdtar --format=mtree --options=\"$options,sha256\" -cf ../whole.mtree .; bsdtar --format=mtree --options=\"$options,indent\" -cf ../indented.mtree .
         bsdtar --format=mtree-classic --options=\"$options\" -cf ../classic.mtree .; bsdtar --format=mtree --options=\"$options,use-set\" -cf ../set.mtree .
         sed 1d ../classic.mtree > ../unsigned.txt
         if command -v mtree > ../found; then mtree -c -k mode,uid,gid,time,size,type,link,device > ../netbsd.mtree; mtree -C -k mode,uid,gid,time,size,type,link,device < ../netbsd.mtree > ../flat.mtree; mtree -D -k mode,uid,gid,time,size,type,link,device < ../netbsd.mtree > ../last.mtree; fi",
    );
    let expected = attributes(&scratch, &scratch.path("tree"));
    let lists = ["whole", "indented", "classic", "set", "netbsd", "flat", "last"].map(|name| format!("{name}.mtree"));
    let mut count = 0;
    for list in lists.iter().map(String::as_str).chain(["unsigned.txt"]) {
        if !scratch.path(list).exists() {
            println!("left out: {list}, which nothing here writes");
            continue;
        }
        count += 1;
        let mounted = Mounted::any(&scratch, scratch.path(list), &[]);
        assert_eq!(attributes(&scratch, &mounted.at), expected, "{list}");
        assert_eq!(fs::read(mounted.path("empty")).unwrap(), b"", "{list}");
        assert!(fs::read(mounted.path("numbers")).is_err(), "{list}");
        mounted.unmount();
    }
    assert!(count >= 5);
    let read = run(&scratch, ["cat", scratch.path("whole.mtree").to_str().unwrap(), "numbers"]);
    assert!(read.code != 0 && read.err.contains("elsewhere"), "{}", read.err);
    // That is no damage.
    let listed = run(&scratch, ["ls", scratch.path("whole.mtree").to_str().unwrap()]);
    assert!(listed.code == 0 && listed.err.is_empty(), "{}", listed.err);
    let sums = scratch.shell("cut -d ' ' -f 1 <(sha256sum < tree/numbers)");
    let shown = run(&scratch, ["stat", scratch.path("whole.mtree").to_str().unwrap(), "numbers"]);
    assert!(shown.text().contains(sums.trim()), "{}", shown.text());
}

#[test]
fn lists_are_known_by_their_start_and_what_is_wrong_is_told() {
    let scratch = Scratch::new();
    scratch.shell(
        "printf '#mtree\\n/set type=file colour=red\\na size=3\\nb type=link\\nc type=thing\\n' > odd.mtree
         printf 'a type=file\\nb type=dir\\n' > short.txt; printf '#mtree\\n. type=dir\\n d type=dir\\n  e type=dir\\n  ..\\n  f type=fifo\\n ..\\ng type=fifo\\n' > d.mtree
         tar -cf outer.tar d.mtree; gzip -k d.mtree",
    );
    let odd = told(&scratch, "check", "odd.mtree", &[]);
    let said = odd.text() + &odd.err;
    for part in ["colour=red", "leads nowhere", "type=thing"] {
        assert!(odd.code != 0 && said.contains(part), "{part}: {said}");
    }
    assert!(told(&scratch, "ls", "short.txt", &[]).code != 0);
    for name in ["d.mtree", "d.mtree.gz"] {
        assert_eq!(told(&scratch, "find", name, &[]).ok().text(), ".\n./d\n./d/e\n./d/f\n./g\n", "{name}");
    }
    let Some(corpus) = corpus() else { return };
    for (name, count) in [("nomagic2", 7), ("noprint", 3)] {
        let path = corpus.join(format!("libarchive/libarchive__test_read_format_mtree_{name}.mtree"));
        let found = run(&scratch, ["find", path.to_str().unwrap()]).text();
        assert_eq!(found.lines().count(), count, "{found}");
    }
}
