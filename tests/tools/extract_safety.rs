//! What `tarnfs extract` may not do: write outside of its folder, follow links, lose what is there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{self, Compare, Ran, Scratch, can_mount, have, is_root, run, survey, tarnfs};

/// An entry of a tar: type, name, target of a link, content.
type Entry<'a> = (u8, &'a str, &'a str, &'a [u8]);

/// A tar of entries that GNU tar would not write.
fn tar_of(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (kind, name, link, content) in entries {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000755\0");
        header[108..116].copy_from_slice(b"0000000\0");
        header[116..124].copy_from_slice(b"0000000\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[136..148].copy_from_slice(b"00000000017\0");
        header[148..156].copy_from_slice(b"        ");
        header[156] = *kind;
        header[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[329..337].copy_from_slice(b"0000001\0");
        header[337..345].copy_from_slice(b"0000003\0");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(header);
        tar.extend(*content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

/// All below `path`, but for what is below `but`.
fn outside(path: &Path, but: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found: Vec<_> = survey(path, Compare::default())
        .into_iter()
        .map(|(name, seen)| (name, format!("{seen:?}").into_bytes()))
        .filter(|(name, _)| !path.join(name).starts_with(but))
        .collect();
    found.sort();
    found
}

/// > Nothing is extracted to outside of the folder that was named, and no symbolic link is followed on the way.
#[test]
fn nothing_is_written_outside() {
    let evil = b"evil".as_slice();
    let tricks: [&[Entry<'_>]; 14] = [
        &[(b'0', "../up", "", evil), (b'0', "../../up", "", evil), (b'0', "a/../../../up", "", evil)],
        &[(b'0', "/absolute", "", evil), (b'0', "//tmp/absolute", "", evil)],
        &[(b'2', "link", "../outside", b""), (b'0', "link/planted", "", evil)],
        &[(b'2', "link", "../outside/file", b""), (b'0', "link", "", evil)],
        &[(b'0', "link/planted", "", evil), (b'2', "link", "../outside", b"")],
        &[(b'2', "a", ".", b""), (b'2', "a/b", "..", b""), (b'0', "a/b/planted", "", evil)],
        &[(b'2', "a", "b", b""), (b'2', "b", "../outside", b""), (b'0', "a/planted", "", evil)],
        &[(b'1', "hard", "../outside/file", b""), (b'0', "hard", "", evil)],
        &[(b'1', "hard", "/etc/hostname", b""), (b'1', "hard2", "../outside/file", b"")],
        &[(b'2', "link", "../outside/file", b""), (b'1', "hard", "link", b""), (b'0', "hard", "", evil)],
        &[(b'5', "link", "", b""), (b'2', "link", "../outside", b""), (b'0', "link/planted", "", evil)],
        &[(b'2', "sub", "/proc/self/cwd/../outside", b""), (b'5', "sub/new", "", b""), (b'0', "sub/new/x", "", evil)],
        &[(b'5', "..", "", b""), (b'5', "../outside", "", b""), (b'0', ".", "", evil)],
        &[(b'2', "..", "/etc", b""), (b'2', "x/../../outside", "/etc", b"")],
    ];
    for (number, trick) in tricks.iter().enumerate() {
        let scratch = Scratch::new();
        scratch.shell("mkdir -p place/outside; printf precious > place/outside/file");
        fs::write(scratch.path("a.tar"), tar_of(trick)).unwrap();
        scratch.shell("gzip -k a.tar");
        let (place, to) = (scratch.path("place"), scratch.path("place/to"));
        let before = outside(&place, &to);
        for archive in ["a.tar", "a.tar.gz"] {
            for policy in ["--skip-old", "--overwrite", "--resume"] {
                let words = ["extract".as_ref(), policy.as_ref(), "-C".as_ref(), to.as_os_str()];
                let ran = run(&scratch, words.into_iter().chain([scratch.path(archive).as_os_str()]));
                assert!(matches!(ran.code, 0 | 1 | 5), "{number} {archive} {policy}: {}", ran.err);
                assert_eq!(outside(&place, &to), before, "{number} {archive} {policy}");
            }
        }
    }
}

/// Links that lay in the folder before: nothing goes through them, and nothing behind them changes.
#[test]
fn links_that_are_there_are_not_followed() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/folder/deep outside/deep to; printf new > tree/folder/file; printf new > tree/folder/deep/file; printf new > tree/link
         printf old > outside/file; printf old > outside/deep/file; printf old > target
         ln -s ../outside to/folder; ln -s ../target to/link; tar --format=pax -cf a.tar -C tree .; gzip -k a.tar",
    );
    let to = scratch.path("to");
    let extract = |archive: &str, policy: &[&str]| {
        let mut command = tarnfs(&scratch);
        command.arg("extract").args(policy).arg("-C").arg(&to).arg(scratch.path(archive));
        Ran::from(command.output().unwrap())
    };
    for archive in ["a.tar", "a.tar.gz"] {
        for policy in [&[][..], &["--skip-old"], &["--resume"], &["--keep-newer"]] {
            let ran = extract(archive, policy);
            assert_eq!(ran.code, 1, "{policy:?}: {}", ran.err);
            assert!(ran.err.contains("folder: is there and is no folder"), "{}", ran.err);
            assert!(fs::symlink_metadata(to.join("folder")).unwrap().is_symlink());
            scratch.shell("rm -f to/link; ln -s ../target to/link");
        }
    }
    extract("a.tar", &["--overwrite"]).ok();
    assert_eq!(
        scratch.shell("cat outside/file outside/deep/file target to/folder/file to/folder/deep/file to/link"),
        "oldoldoldnewnewnew"
    );
}

/// Somebody swaps folders for links all the time while files are made in them.
#[test]
fn links_that_come_meanwhile_are_not_followed() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree outside; for d in $(seq 20); do mkdir tree/$d; for f in $(seq 40); do echo $f > tree/$d/$f; done; done
         tar --format=pax -cf a.tar -C tree .",
    );
    let to = scratch.folder("to");
    let end = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(std::sync::atomic::Ordering::Relaxed) {
                for number in 1..=20 {
                    let (folder, aside) = (to.join(number.to_string()), to.join(format!("aside-{number}")));
                    // Some of these fail: nothing is there yet.
                    if fs::rename(&folder, &aside).is_ok() {
                        let _ = symlink(scratch.path("outside"), &folder);
                        let _ = fs::remove_file(&folder);
                        let _ = fs::rename(&aside, &folder);
                    }
                }
            }
        });
        for _ in 0..support::rounds(10, 200) {
            let ran = run(
                &scratch,
                [
                    "extract".as_ref(),
                    "--overwrite".as_ref(),
                    "-C".as_ref(),
                    to.as_os_str(),
                    scratch.path("a.tar").as_os_str(),
                ],
            );
            assert!(matches!(ran.code, 0 | 1), "{}", ran.err);
        }
        end.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(scratch.path("outside")).unwrap().count(), 0);
}

/// > What is there is replaced by what is extracted only on demand.
#[test]
fn what_is_there_is_lost_only_on_demand() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/folder tree/other; printf archive > tree/file; printf archive > tree/folder/inner; printf archive > tree/instead
         touch -d '2020-01-01 UTC' tree/file tree/folder/inner tree/instead; tar --format=pax -cf a.tar -C tree .; gzip -k a.tar
         mkdir -p before/folder before/instead/full; printf mine > before/file; printf mine > before/folder/inner; printf mine > before/other
         printf mine > before/instead/full/x
         touch -d '2019-01-01 UTC' before/file; touch -d '2021-01-01 UTC' before/folder/inner",
    );
    let mine = "mine mine";
    for archive in ["a.tar", "a.tar.gz"] {
        for (policy, files, code, says) in [
            ("", mine, 1, "file: is there already; --overwrite replaces it"),
            ("--resume", mine, 1, "file: is there, and is not what the archive has"),
            ("--skip-old", mine, 1, "other: is there and is no folder"),
            ("--keep-newer", "archive mine", 1, "other: is there and is no folder"),
            ("--overwrite", "archive archive", 1, "instead: a folder is there that is not empty; it stays"),
        ] {
            let ran = scratch.shell(&format!(
                "rm -rf to; cp -a before to; {} extract {policy} -C to {archive} 2>&1 && echo code 0 || echo code $?; echo $(cat to/file) $(cat to/folder/inner); cat to/instead/full/x; ls -A to",
                env!("CARGO_BIN_EXE_tarnfs")
            ));
            assert!(
                ran.contains(says) && ran.contains(&format!("code {code}\n{files}\nmine")),
                "{archive} {policy}: {ran}"
            );
            assert!(!ran.contains(".tarnfs"), "{ran}");
            // What is a folder in the archive takes a file's place only if that may be lost.
            assert_eq!(scratch.path("to/other").is_dir(), policy == "--overwrite", "{policy}");
        }
    }
    let both = run(&scratch, ["extract", "--overwrite", "--skip-old", "a.tar"]);
    assert_eq!(both.code, 2, "{}", both.err);
}

/// > `--skip-old` leaves what is there as it is: the folder that is extracted to, too.
#[test]
fn what_is_skipped_keeps_its_attributes() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/sub; echo new > tree/sub/f; chmod 755 tree tree/sub; tar -C tree -cf a.tar .; gzip -k a.tar",
    );
    for archive in ["a.tar", "a.tar.gz"] {
        let seen = scratch.shell(&format!(
            "rm -rf at; mkdir -m 700 at at/sub; touch -d @1000 at/sub at; {} extract --skip-old -C at {archive} 2>&1; stat -c '%a %n' at at/sub; cat at/sub/f
             rm -rf at; mkdir -m 700 at at/sub; {0} extract -C at {archive} 2>&1; stat -c '%a %n' at at/sub",
            env!("CARGO_BIN_EXE_tarnfs")
        ));
        assert_eq!(seen, "700 at\n700 at/sub\nnew\n755 at\n755 at/sub\n", "{archive}");
    }
}

/// > `--resume` takes a file for done that has the archive's size and time, as exactly as is kept there, and no other
/// > one.
#[test]
fn a_file_of_the_second_before_is_another_one() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; printf BBBB > tree/f; touch -d @1001 tree/f; tar -C tree -cf a.tar f");
    let resume = |options: &str| {
        scratch.shell(&format!(
            "mkdir -p at; printf AAAA > at/f; touch -d @1000 at/f; {} extract --resume {options} -C at a.tar 2>&1 || echo code $?; cat at/f",
            env!("CARGO_BIN_EXE_tarnfs")
        ))
    };
    assert_eq!(resume("--overwrite"), "BBBB");
    let said = resume("");
    assert!(said.contains("is not what the archive has") && said.ends_with("code 1\nAAAA"), "{said}");
}

/// > Of hidden folders that are found where something is extracted to, only what this program makes in them is removed.
#[test]
fn what_others_have_renamed_to_hidden_folders_stays() {
    let scratch = Scratch::new();
    scratch.shell(
        "echo new > new; tar -cf a.tar new; gzip -k a.tar; mkdir -p at; cd at; mkdir -m 700 .tarnfs-extract-0123456789abcdef
         mkdir .tarnfs-extract-0123456789abcdef/inner; echo x > .tarnfs-extract-0123456789abcdef/thesis.txt
         mkdir -m 700 .tarnfs-extract-00000000000000ff; echo x > .tarnfs-extract-00000000000000ff/new-7",
    );
    for archive in ["a.tar", "a.tar.gz"] {
        let (at, path) = (scratch.path("at"), scratch.path(archive));
        run(&scratch, ["extract".as_ref(), "--overwrite".as_ref(), "-C".as_ref(), at.as_os_str(), path.as_os_str()])
            .ok();
        assert_eq!(
            scratch.shell("cd at; find . -mindepth 1 | sort"),
            "./.tarnfs-extract-0123456789abcdef\n./.tarnfs-extract-0123456789abcdef/inner\n\
             ./.tarnfs-extract-0123456789abcdef/thesis.txt\n./new\n"
        );
    }
}

/// vfat, SMB, sshfs and the like say of all files that they have one owner, or one mode.
#[test]
fn file_systems_with_one_owner_and_one_mode_are_extracted_to() {
    if !can_mount() || !have("rclone") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir back at tree tree/sub; seq 1 100000 > tree/sub/large; echo small > tree/small; : > tree/nothing
         tar -cf a.tar -C tree .; gzip -k a.tar",
    );
    for shown in ["", "--umask 0", "--uid 12 --gid 12 --umask 0", "--uid 12 --gid 12 --umask 077"] {
        scratch.shell(&format!(
            "rclone mount --config /dev/null --cache-dir cache --vfs-cache-mode writes --daemon {shown} back at > said 2>&1"
        ));
        for archive in ["a.tar", "a.tar.gz"] {
            let ran = std::panic::catch_unwind(|| {
                let (to, path) = (scratch.path("at/to"), scratch.path(archive));
                let ran = tarnfs(&scratch)
                    .args(["extract", "--no-same-owner", "--no-same-permissions", "-C"])
                    .args([&to, &path])
                    .output()
                    .unwrap();
                let ran = Ran::from(ran);
                let found = scratch.shell("diff -r tree at/to && rm -r at/to/* && ls -A at/to && rmdir at/to");
                (ran.code, ran.err, found)
            });
            if ran.is_err() {
                scratch.shell("umount at");
            }
            assert_eq!(ran.unwrap(), (0, String::new(), String::new()), "{archive} {shown}");
        }
        scratch.shell("umount at");
    }
}

/// > `--resume` takes a file for done that has the archive's size and time, as exactly as is kept there, and no other
/// > one.
#[test]
fn what_an_earlier_call_has_made_is_done_also_where_times_are_kept_less_exactly() {
    if !is_root() || !have("mkfs.ext4") {
        return println!("left out: no file system that keeps whole seconds can be made");
    }
    let scratch = Scratch::new();
    // Inodes of 128 bytes have no room for parts of seconds.
    let said = scratch.shell(&format!(
        "mkdir tree im; for f in 1 2 3; do echo $f > tree/$f; touch -d @100000000$f.123456789 tree/$f; done
         tar --format=pax -cf a.tar tree; truncate -s 8M image; mkfs.ext4 -q -I 128 image > /dev/null 2>&1
         mount -o loop image im 2> /dev/null || {{ echo none; exit 0; }}
         trap 'umount im' EXIT
         {0} extract -C im/o a.tar; stat -c %.9Y im/o/tree/1; rm im/o/tree/3; touch -d @1000000001 im/o/tree/2
         {0} extract --resume -C im/o a.tar 2>&1 || echo code $?
         cat im/o/tree/3; ls -A im/o",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    if said == "none\n" {
        return println!("left out: no file system can be mounted");
    }
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.len() == 5 && lines[0] == "1000000001.000000000", "{said}");
    // That of another second is another file.
    assert!(lines[1].contains("tree/2: is there, and is not what the archive has"), "{said}");
    assert_eq!(lines[2..], ["code 1", "3", "tree"], "{said}");
}

/// Where there are no hard links, an earlier call has made files of their own of all names.
#[test]
fn what_an_earlier_call_has_made_of_hard_links_is_done() {
    if !have("strace") {
        return println!("left out: no strace");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir at; echo one > a; ln a b; tar --format=pax -cf a.tar a b; cp -p a at/a; cp -p a at/b");
    let resume = |before: &str| {
        scratch.shell(&format!(
            "export XDG_CACHE_HOME=$PWD/cache; {before} {} extract --resume -C at a.tar 2>&1 && echo code 0 || echo code $?",
            env!("CARGO_BIN_EXE_tarnfs")
        ))
    };
    let said = resume("strace -f -qq -o log -e trace=linkat -e inject=linkat:error=EPERM");
    assert!(said.contains("the file system there has no hard links") && said.ends_with("code 0\n"), "{said}");
    assert!(scratch.shell("cat log").contains("INJECTED"));
    let said = resume("");
    assert!(said.contains("b: is there, and is not the same file") && said.ends_with("code 1\n"), "{said}");
    assert_eq!(scratch.shell("ls -A at; cat at/a at/b"), "a\nb\none\none\n");
}
