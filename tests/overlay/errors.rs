//! What the manual pages say of errors: a table (`errors.py`), which is run on a tmpfs first, to prove itself.

use std::fs;

use crate::support::{Mounted, Scratch, can_mount, have};

/// > Calls that change something fail with the error that their manual pages give for the reason, for root and for
/// > others.
#[test]
fn each_error_of_the_manual_pages_is_given() {
    if !can_mount() || !have("python3") {
        return;
    }
    let scratch = Scratch::new();
    fs::write(scratch.path("errors.py"), include_str!("errors.py")).unwrap();
    let said = scratch.shell(
        "chmod 755 .; mkdir real tree; mount -t tmpfs -o mode=755 tmpfs real; python3 errors.py real
        python3 errors.py tree make; tar -C tree -cf a.tar . 2>/dev/null; mkdir empty; tar -C empty -cf empty.tar .",
    );
    scratch.unmount("real");
    assert!(said.ends_with(" 0 of them otherwise\n"), "{said}");
    // What is made there; and what lies in an archive, or in a folder.
    for source in ["empty.tar", "a.tar", "tree"] {
        let overlay = scratch.path(format!("overlay-{source}")).display().to_string();
        let mounted = Mounted::new(&scratch, scratch.path(source), &["-w", &overlay, "-o", "allow_other"]);
        let run = format!("chmod 755 {0}; python3 errors.py {0} || true", mounted.at.display());
        let said = scratch.shell(&run);
        assert!(said.ends_with(" 0 of them otherwise\n"), "{source}: {said}");
        mounted.unmount();
    }
}
