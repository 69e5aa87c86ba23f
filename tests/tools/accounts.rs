//! Users and groups whom no file of this machine names, and who are known to it: by LDAP, SSSD, systemd.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use crate::support::{Scratch, have, is_root};

/// What `script` says where only systemd knows the user `nobody`; `None` where that cannot be.
fn without_nobody(scratch: &Scratch, script: &str) -> Option<String> {
    let said = is_root().then(|| {
        scratch.shell(&format!(
            "sed '/^[^:]*:[^:]*:65534:/d' /etc/passwd > users; sed '/^[^:]*:[^:]*:65534:/d' /etc/group > groups
            unshare -m bash -euo pipefail -c '
                mount --bind users /etc/passwd; mount --bind groups /etc/group
                export XDG_CACHE_HOME=$PWD/cache
                getent passwd nobody > /dev/null && getent group 65534 > /dev/null || exit 0
                echo known; {script}' 2>&1 || echo unknown"
        ))
    });
    let said = said.and_then(|said| said.strip_prefix("known\n").map(str::to_owned));
    if said.is_none() {
        println!("left out: needs root, a mount namespace, and a user whom systemd knows");
    }
    said
}

/// > Users and groups have names where the system knows them, also by LDAP, SSSD or systemd.
#[test]
fn whom_the_system_knows_has_a_name_in_the_archive() {
    let scratch = Scratch::new();
    scratch.shell("mkdir s; echo 1 > s/f; echo 2 > s/g; chown 65534:65534 s/f");
    let tarnfs = env!("CARGO_BIN_EXE_tarnfs");
    let script = format!(
        "tar -cf g.tar s; {tarnfs} create t.tar s
         tar -cf go.tar --owner nobody --group $(getent group 65534 | cut -d: -f1) s
         {tarnfs} create to.tar --owner nobody --group $(getent group 65534 | cut -d: -f1) s
         for tar in g.tar t.tar go.tar to.tar; do
             tar -tvf $tar | sort -k 6 | while read -r mode owner rest; do echo $owner; done > $tar.owners
         done
         cmp g.tar.owners t.tar.owners; cmp go.tar.owners to.tar.owners; cat t.tar.owners; grep -c nobody/ to.tar.owners"
    );
    let Some(said) = without_nobody(&scratch, &script) else { return };
    assert!(said.contains("nobody/") && said.ends_with("\n3\n"), "{said}");
}

/// GNU tar, too, finds the people in an access list by their names.
#[test]
fn whom_the_system_knows_stays_in_a_list() {
    if !have("getfacl") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import tarfile
with tarfile.open('a.tar', 'w', format=tarfile.PAX_FORMAT) as tar:
    entry = tarfile.TarInfo('f')
    entry.mode = 0o640
    entry.pax_headers = {'SCHILY.acl.access': 'user::rw-,user:nobody:r--,group::r--,mask::r--,other::---'}
    tar.addfile(entry)
E",
    );
    let tarnfs = env!("CARGO_BIN_EXE_tarnfs");
    let script = format!("mkdir o; {tarnfs} extract a.tar -C o; getfacl -cn o/f; stat -c %a o/f");
    let Some(said) = without_nobody(&scratch, &script) else { return };
    assert!(said.contains("user:65534:r--"), "{said}");
}
