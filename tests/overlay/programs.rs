//! Programs that people run in a folder.

use crate::support::{can_mount, have};
use crate::twin::Twins;

/// git, a compiler and a database work in it.
#[test]
fn real_programs_work_in_it() {
    if !can_mount() || !have("git") || !have("cc") || !have("make") || !have("python3") {
        return;
    }
    let make = r#"
mkdir src
cat > src/main.c <<'C'
#include <stdio.h>
int twice(int);
int main(void) { printf("%d\n", twice(21)); return 0; }
C
echo 'int twice(int x) { return 2 * x; }' > src/twice.c
printf 'all: program\nprogram: main.o twice.o\n\tcc -o $@ $^\nclean:\n\trm -f *.o program\n' > src/Makefile
"#;
    let mut twins = Twins::new(make, &[]);
    let at = twins.at().to_owned();
    let run = |at: &std::path::Path, script: &str| {
        twins.scratch.shell(&format!("export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; cd {}; {script}", at.display()))
    };
    let said = run(
        &at,
        "git init -q . 2>&1; git config user.name T; git config user.email t@example.org; git add -A
        git commit -qm first; (cd src; make -s -j2 && ./program); echo '*.o' > .gitignore; git add -A; git commit -qm second
        git mv src source; sed -i 's/21/4/' source/main.c; git commit -qam third; git gc -q; git fsck --full --strict
        git status --porcelain; git clone -q . copy; git -C copy fsck --full; git -C copy log --oneline | wc -l",
    );
    assert_eq!(said.trim(), "42\n3");
    run(
        &at,
        "python3 -c \"
import sqlite3
for mode in ('wal', 'delete'):
    c = sqlite3.connect('base-' + mode)
    c.execute('pragma journal_mode=' + mode)
    c.execute('create table t (a integer primary key, b text)')
    with c:
        c.executemany('insert into t (b) values (?)', (('x' * i,) for i in range(2000)))
    with c:
        c.execute('delete from t where a % 3 = 0')
    c.execute('vacuum')
    c.close()
\"",
    );
    twins.remount();
    let at = twins.at().to_owned();
    let said = twins.scratch.shell(&format!(
        "cd {}; git fsck --full --strict; git status --porcelain --untracked-files=no; cd source; rm -f *.o; make -s; ./program
        cd ..; for b in base-wal base-delete; do python3 -c \"
import sqlite3, sys
c = sqlite3.connect('$b')
print(c.execute('pragma integrity_check').fetchone()[0], c.execute('select count(*) from t').fetchone()[0])
\"; done; rm -rf copy .git source src; ls -A",
        at.display()
    ));
    assert_eq!(said, "8\nok 1334\nok 1334\n.gitignore\nbase-delete\nbase-wal\n");
}

/// Many files in one folder are all listed, also while they are removed.
#[test]
fn many_files_are_made_listed_and_removed() {
    if !can_mount() {
        return;
    }
    let mut twins = Twins::new("mkdir d; for i in $(seq 500); do echo $i > d/old$i; done", &[]);
    twins.shell("cd d; for i in $(seq 3000); do echo $i > new$i; done; ls | wc -l");
    twins.shell(
        "cd d; for i in $(seq 1 2 500); do chmod 600 old$i; done; for i in $(seq 2 7 500); do mv new$i old$i; done",
    );
    twins.same("made");
    twins.remount();
    assert_eq!(twins.shell("ls d | wc -l; ls d | sort -u | wc -l"), "3428\n3428\n");
    twins.shell("rm -r d; ls -A");
    twins.remount();
    twins.same("removed");
    assert_eq!(twins.scratch.shell("find overlay -type f -not -name '.tarnfs-overlay.*'"), "");
}
