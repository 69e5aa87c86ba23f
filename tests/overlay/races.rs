//! What happens at once, and what changes below meanwhile.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use crate::support::{Mounted, Scratch, can_mount, have, wait_until};

/// > A file that is written through a mapping while it is removed, or replaced, stays removed, or replaced.
#[test]
fn what_is_removed_while_its_pages_are_written_stays_removed() {
    if !can_mount() || !have("python3") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for i in $(seq 0 299); do echo before > tree/f$i; done; tar -C tree -cf a.tar .");
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    fs::write(
        scratch.path("race.py"),
        "import mmap, os, random, sys, threading, time
os.chdir(sys.argv[1])
N = 300
fds = [os.open(f'f{i}', os.O_RDWR) for i in range(N)]
maps = [mmap.mmap(fd, 7) for fd in fds]
both = threading.Barrier(2)
done = False
def noise(number):
    os.mkdir(f'noise{number}')
    while not done:
        open(f'noise{number}/x', 'w').close()
        os.unlink(f'noise{number}/x')
def write():
    for i in range(N):
        both.wait()
        maps[i][0:6] = b'WRITER'
        maps[i].close()
def remove():
    for i in range(N):
        if i % 2:
            open(f'tmp{i}', 'w').write('new')
        both.wait()
        time.sleep(random.random() * 0.01)
        os.rename(f'tmp{i}', f'f{i}') if i % 2 else os.unlink(f'f{i}')
noises = [threading.Thread(target=noise, args=(k,)) for k in range(3)]
work = [threading.Thread(target=write), threading.Thread(target=remove)]
for thread in noises + work: thread.start()
for thread in work: thread.join()
done = True
for thread in noises: thread.join()
for fd in fds: os.close(fd)
",
    )
    .unwrap();
    scratch.shell(&format!("python3 race.py {}", mounted.at.display()));
    let check = |mounted: &Mounted| {
        for number in 0..300 {
            let found = fs::read_to_string(mounted.path(format!("f{number}")));
            if number % 2 == 0 {
                assert!(found.is_err(), "f{number} is back: {found:?}");
            } else {
                assert_eq!(found.unwrap(), "new", "f{number}");
            }
        }
    };
    check(&mounted);
    mounted.unmount();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    check(&mounted);
    mounted.unmount();
}

/// > What was written stays, and is listed once, whatever becomes of the folder below.
#[test]
fn what_was_written_is_listed_once_while_the_folder_below_changes() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p low/d low/e; echo 1 > low/d/f; echo 2 > low/d/g; echo 3 > low/e/f");
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("low"), &["-w", &overlay]);
    let list = |name: &str| {
        let entries = mounted.path(name).read_dir().unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!((list("d"), list("e")), ("f g".to_owned(), "f".to_owned()));
    scratch.shell(&format!("cd {}; echo mine >> d/f; echo x > new; echo mine >> e/f", mounted.at.display()));
    scratch.shell("rm low/d/f; rm -r low/e; echo low > low/new; echo h > low/d/h");
    wait_until("it is shown", || mounted.path("d/h").exists() && list("d").contains('h'));
    assert_eq!(list("d"), "f g h");
    assert_eq!(fs::read_to_string(mounted.path("d/f")).unwrap(), "1\nmine\n");
    assert_eq!(list(""), "d e new");
    assert_eq!(fs::read_to_string(mounted.path("new")).unwrap(), "x\n");
    for folder in ["d", "e"] {
        let refused = fs::remove_dir(mounted.path(folder)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOTEMPTY.raw_os_error()), "{folder}");
    }
    assert_eq!(fs::read_to_string(mounted.path("e/f")).unwrap(), "3\nmine\n");
    mounted.unmount();
    let mounted = Mounted::new(&scratch, scratch.path("low"), &["-w", &overlay]);
    assert_eq!(fs::read_to_string(mounted.path("e/f")).unwrap(), "3\nmine\n");
    assert_eq!(fs::read_to_string(mounted.path("d/f")).unwrap(), "1\nmine\n");
    mounted.unmount();
}

/// > A file that is open is written also when the kernel has forgotten the folder in which its other name lies.
#[test]
fn a_file_whose_other_name_is_forgotten_can_be_written() {
    if !can_mount() {
        return;
    }
    // Only the first user of a machine may do this.
    let forget = || fs::write("/proc/sys/vm/drop_caches", "2");
    if forget().is_err() {
        return eprintln!("skipped: the kernel cannot be told to forget anything here");
    }
    for source in ["a.tar", "tree"] {
        let scratch = Scratch::new();
        scratch.shell(
            "mkdir -p tree/d1/in tree/d2 tree/other; echo 1 > tree/d2/a; ln tree/d2/a tree/d1/in/b; tar -C tree -cf a.tar .",
        );
        let overlay = scratch.path("overlay").display().to_string();
        let mounted = Mounted::new(&scratch, scratch.path(source), &["-w", &overlay]);
        let file = fs::OpenOptions::new().read(true).write(true).open(mounted.path("d2/a")).unwrap();
        let number = |name: &str| fs::metadata(mounted.path(name)).unwrap().ino();
        let (before, other) = (number("d1"), number("other"));
        assert_eq!(fs::metadata(mounted.path("d1/in/b")).unwrap().nlink(), 2);
        (0..3).for_each(|_| forget().unwrap());
        wait_until("it is forgotten", || {
            forget().unwrap();
            // Who looks it up before the program is told that it is forgotten, keeps it.
            std::thread::sleep(Duration::from_millis(20));
            // Of a folder, what was forgotten gets a new number. An archive has its own.
            source == "a.tar" || number("other") != other
        });
        file.write_at(b"2", 0).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        for name in ["d1/in/b", "d2/a"] {
            assert_eq!(fs::read_to_string(mounted.path(name)).unwrap(), "2\n", "{source}");
            assert_eq!(fs::metadata(mounted.path(name)).unwrap().mode() & 0o777, 0o600, "{source}");
        }
        assert_eq!(number("d1"), before, "{source}: its number has changed");
        drop(file);
        mounted.unmount();
    }
}

/// > Where only the name or the attributes of a file in a folder were changed, its content is that of what is at its
/// > path below by now.
#[test]
fn what_replaces_a_file_of_which_the_mode_was_changed_is_read_whole() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir low; echo one > low/a; echo one > low/b; seq 1000 > new-a; seq 1000 > new-b");
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("low"), &["-w", &overlay]);
    // What the kernel knows of the old one would end the new one. The second is gone for a moment.
    let at = mounted.at.display();
    scratch.shell(&format!(
        "chmod 600 {at}/a {at}/b && stat {at}/a {at}/b && mv new-a low/a && cmp low/a {at}/a &&
        rm low/b && if cat {at}/b; then false; fi && mv new-b low/b && cmp low/b {at}/b &&
        echo more >> {at}/b && (cat low/b; echo more) | cmp - {at}/b"
    ));
    mounted.unmount();
}
