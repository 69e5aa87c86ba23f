//! An overlay on a disk that is full when it is opened.

use std::fs;
use std::io::Write as _;

use crate::support::{Mounted, Scratch, can_mount, run};

/// Writes until there is no room.
fn fill(mounted: &Mounted) {
    let mut file = fs::File::create(mounted.path("big")).unwrap();
    let error = (0..1000).find_map(|_| file.write_all(&[7; 4096]).err()).unwrap();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
}

/// > An overlay on a full disk can be mounted again, and committed.
#[test]
fn an_overlay_on_a_full_disk_is_opened_and_committed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree disk; echo a > tree/a; echo b > tree/b; tar -C tree -cf a.tar .
        mount -t tmpfs -o size=3m tmpfs disk",
    );
    let overlay = scratch.path("disk/overlay").display().to_string();
    let archive = scratch.path("a.tar");
    let mount = || Mounted::new(&scratch, archive.clone(), &["-w", &overlay]);
    let mounted = mount();
    fs::write(mounted.path("mine"), "precious").unwrap();
    fill(&mounted);
    mounted.unmount();
    // Something else takes the last of the room.
    scratch.shell("dd if=/dev/zero of=disk/rest bs=4096 2>/dev/null || true");
    let mounted = mount();
    assert_eq!(fs::read_to_string(mounted.path("mine")).unwrap(), "precious");
    assert_eq!(fs::read_to_string(mounted.path("a")).unwrap(), "a\n");
    fs::remove_file(mounted.path("big")).unwrap();
    assert!(!mounted.path("big").exists());
    mounted.unmount();
    let mounted = mount();
    fill(&mounted);
    mounted.unmount();
    scratch.shell("rm disk/rest; dd if=/dev/zero of=disk/rest bs=4096 2>/dev/null || true");
    run(&scratch, ["commit".as_ref(), archive.as_os_str(), "--overlay".as_ref(), overlay.as_ref(), "--yes".as_ref()])
        .ok();
    scratch.shell("rm -rf out; mkdir out; tar -C out -xf a.tar; grep -q precious out/mine; test -s out/big");
    assert_eq!(run(&scratch, ["overlay", "status", &overlay]).ok().text(), "");
    scratch.unmount("disk");
}
