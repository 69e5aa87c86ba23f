//! Where the folder of an overlay lies, and what in it nobody may reach.

use std::fs;
use std::io::ErrorKind;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{DEFAULT_SIGNALS, Mounted, Scratch, behind, can_mount, daemon, is_mounted, run, wait_until};

/// > An overlay cannot lie in a folder that is shown, whatever way leads there.
#[test]
fn an_overlay_in_what_is_shown_is_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p project/in project/there bound at other; echo a > project/a; ln -s project/in link
        mount --bind project bound; tar -cf a.tar project",
    );
    let path = |name: &str| scratch.path(name).display().to_string();
    for overlay in
        ["project/new", "project/there", "project/deep/down", "link/new", "bound/new", "bound/there", "project"]
    {
        for sources in [vec!["project"], vec!["a.tar", "project"], vec!["bound"], vec!["other", "bound/in/.."]] {
            let sources: Vec<String> = sources.into_iter().map(path).collect();
            let all = [vec!["-w".to_owned(), path(overlay)], sources, vec![path("at")]].concat();
            let ran = run(&scratch, &all);
            let says_it = ran.err.contains("is shown") || ran.err.contains("lies in it");
            assert!(ran.code == 3 && says_it, "{all:?}: {}: {}", ran.code, ran.err);
        }
    }
    assert!(!scratch.path("project/new").exists() && !scratch.path("project/deep").exists());
    assert!(!scratch.path("project/there/.tarnfs-overlay.lock").exists());
    scratch.unmount("bound");
}

/// > What is shown does not show the overlay either where it is mounted elsewhere, or got there later, and what was
/// > synced survives looking for it, `tarnfs overlay status`, and a kill.
#[test]
fn an_overlay_is_hidden_in_what_is_shown() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p project/changes elsewhere; echo a > project/a; mount --bind project/changes elsewhere");
    let overlay = scratch.path("elsewhere").display().to_string();
    let at = scratch.folder("at");
    let mut command = behind(&scratch, DEFAULT_SIGNALS);
    command.args(["-f", "-w", &overlay]).arg(scratch.path("project")).arg(&at);
    let mut daemon = daemon(command, &at);
    wait_until("it is served", || at.join("a").exists());
    fs::write(at.join("one"), "one").unwrap();
    scratch.shell("grep -rq foo at || true; ! ls at/changes; ! cat at/changes/.tarnfs-overlay.sqlite; ls at > list");
    assert_eq!(fs::read_to_string(scratch.path("list")).unwrap(), "a\none\n");
    assert_eq!(run(&scratch, ["overlay", "status", &overlay]).ok().text(), "A one\n");
    assert!(scratch.path("elsewhere/.tarnfs-overlay.sqlite-shm").exists());
    let two = fs::File::create(at.join("two")).unwrap();
    two.sync_all().unwrap();
    fs::File::open(&at).unwrap().sync_all().unwrap();
    drop(two);
    kill_process(Pid::from_child(&daemon), Signal::KILL).unwrap();
    daemon.wait().unwrap();
    wait_until("the mount is gone", || !is_mounted(&at));
    let mounted = Mounted::new(&scratch, scratch.path("project"), &["-w", &overlay]);
    assert!(mounted.path("one").exists() && mounted.path("two").exists());
    mounted.unmount();
    scratch.unmount("elsewhere");
}

/// > The database of an overlay is not trusted: a place in it leads to contents alone.
#[test]
fn a_planted_place_does_not_lead_to_the_database() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo 1 > tree/f; tar -C tree -cf a.tar .; echo secret > outside");
    let overlay = scratch.path("overlay").display().to_string();
    let mount = || Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    let mounted = mount();
    fs::write(mounted.path("x"), "x").unwrap();
    mounted.unmount();
    for place in [
        ".tarnfs-overlay.sqlite",
        "./.tarnfs-overlay.sqlite",
        ".tarnfs-overlay.sqlite-wal",
        ".tarnfs-overlay.files/../.tarnfs-overlay.sqlite",
        ".tarnfs-overlay.lock",
        "../outside",
        "/etc/passwd",
    ] {
        scratch.shell(&format!(
            "python3 -c \"import sqlite3; c = sqlite3.connect('overlay/.tarnfs-overlay.sqlite')
c.execute('UPDATE nodes SET place = ? WHERE place IS NOT NULL AND kind = 8', (b'{place}',)); c.commit()\""
        ));
        let before = fs::read(scratch.path("overlay/.tarnfs-overlay.sqlite")).unwrap().len();
        let mounted = mount();
        assert!(fs::read(mounted.path("x")).is_err(), "{place}");
        assert!(fs::write(mounted.path("x"), "y").is_err(), "{place}");
        let _ = fs::remove_file(mounted.path("x"));
        mounted.unmount();
        assert!(fs::read(scratch.path("overlay/.tarnfs-overlay.sqlite")).unwrap().len() >= before);
        let mounted = mount();
        fs::write(mounted.path("x"), "x").unwrap();
        mounted.unmount();
    }
    // Another name of it.
    fs::hard_link(scratch.path("overlay/.tarnfs-overlay.sqlite"), scratch.path("overlay/name")).unwrap();
    let ran =
        run(&scratch, ["-w", &overlay, scratch.path("a.tar").to_str().unwrap(), scratch.path("at").to_str().unwrap()]);
    assert!(ran.code == 3 && ran.err.contains("other names"), "{}: {}", ran.code, ran.err);
    assert_eq!(fs::metadata(scratch.path("at")).unwrap_err().kind(), ErrorKind::NotFound);
}

/// The kernel would move one folder of two parents to where it was looked up last, and who removes one name of an
/// archive would remove what was written to the other.
#[test]
fn what_is_done_to_one_name_of_an_archive_does_not_touch_the_other() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p src d/a d/b; echo one > src/one; tar -cf d/a/x.tar -C src one; ln d/a/x.tar d/b/y.tar
        echo A > d/a/note; tar -cf t.tar -C d .",
    );
    for (source, options) in [("d", &["-r"][..]), ("t.tar", &["-r", "--lazy"])] {
        let overlay = scratch.path(format!("overlay-{source}")).display().to_string();
        let mount = || Mounted::new(&scratch, scratch.path(source), &[options, &["-w", overlay.as_str()]].concat());
        let mounted = mount();
        let inside = fs::File::open(mounted.path("a/x.tar")).unwrap();
        assert!(mounted.path("b/y.tar/one").exists());
        let above = openat(&inside, "../note", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        assert!(above.is_ok(), "{source}: {above:?}");
        drop((inside, above));
        fs::write(mounted.path("a/x.tar/new"), "precious").unwrap();
        fs::remove_dir_all(mounted.path("b/y.tar")).unwrap();
        let check = |mounted: &Mounted| {
            let read = |path: &str| fs::read_to_string(mounted.path(path)).unwrap();
            assert_eq!((&*read("a/x.tar/new"), &*read("a/x.tar/one")), ("precious", "one\n"), "{source}");
            assert!(!mounted.path("b/y.tar").exists(), "{source}");
        };
        check(&mounted);
        mounted.unmount();
        let mounted = mount();
        check(&mounted);
        mounted.unmount();
    }
}
