//! `--control-interface`, and commands that name URLs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write as _;

use crate::servers::{Server, archives};
use crate::support::{Mounted, Scratch, can_mount, wait_until};

/// It stands nowhere by chance.
const SECRET: &str = "Xq7secretq7X";

/// > Any other command runs in a process of its own, as from the command line. What it prints is in `output`.
/// > Such a command may name URLs. What is added to the mount is none: that is refused, and the message shows no
/// > password.
/// > The password and the query of a URL are in no message, log, index, table of mounts, list of processes or cache.
#[test]
fn commands_that_are_written_to_a_mount_open_urls() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    archives(&scratch);
    let server = Server::python(&scratch);
    let mounted = Mounted::new(&scratch, scratch.path("served/a.tar"), &["--control-interface"]);
    let folder = mounted.path(".ratarmount-control");
    let output = || fs::read_to_string(folder.join("output")).unwrap();
    let mut number = 0;
    // What is new in the output, and whether it was done.
    let mut say = |line: &str| {
        let before = output().len();
        let mut command = fs::File::options().write(true).truncate(true).open(folder.join("command")).unwrap();
        command.write_all(format!("{line}\n").as_bytes()).unwrap();
        drop(command);
        number += 1;
        let end = format!("command {number}: ");
        wait_until(&end, || output()[before..].lines().any(|line| line.starts_with(&end)));
        let said = output()[before..].to_owned();
        let is_done = said.ends_with(&format!("{end}done\n"));
        (said, is_done)
    };
    let plain = server.url("a.tar");
    let url = format!("http://me:{SECRET}@{}/a.tar?token={SECRET}", server.address);
    for url in [&plain, &url] {
        let (said, is_done) = say(&format!("tarnfs cat {url} d/hello"));
        assert!(is_done && said.contains("hello\n"), "{said}");
        let (said, is_done) = say(&format!("tarnfs compare {} {url}", scratch.path("served/a.tar").display()));
        assert!(is_done, "{said}");
    }
    // Mounted somewhere else, and gone again.
    let place = scratch.path("another");
    let (said, is_done) = say(&format!("tarnfs {url} {}", place.display()));
    assert!(is_done && fs::read_to_string(place.join("d/hello")).unwrap() == "hello\n", "{said}");
    let (said, is_done) = say(&format!("tarnfs -u {}", place.display()));
    assert!(is_done, "{said}");
    let archive = scratch.path("served/a.tar").display().to_string();
    for (line, why) in [
        (format!("tarnfs {url} new"), "a mount opens the URLs that it was started with"),
        (format!("tarnfs {archive} {url} new"), "a mount opens the URLs that it was started with"),
        (format!("tarnfs --index-file '{url}' {archive} new"), "a mount opens the URLs that it was started with"),
        (format!("tarnfs -u '{url}'"), ""),
        (format!("tarnfs extract -C '{url}' {archive}"), "write the whole path"),
        (format!("tarnfs convert {archive} '{url}'"), "write the whole path"),
        (format!("tarnfs ls --password-file '{url}' {archive}"), "write the whole path"),
        (format!("tarnfs ls http://me:{SECRET}@127.0.0.1:1/none.tar"), "127.0.0.1:1/none.tar"),
        (format!("tarnfs ls ftq://me:{SECRET}@host/none.tar"), ""),
        (url.clone(), "a command begins with"),
    ] {
        let (said, is_done) = say(&line);
        assert!(!is_done && said.contains(why) && !said.contains(SECRET), "{line}: {said}");
    }
    assert!(!output().contains(SECRET));
    mounted.unmount();
}
