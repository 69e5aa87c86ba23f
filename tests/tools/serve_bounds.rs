//! What is shared among the clients of `tarnfs serve`: no part of the tree, and no client, has all of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;

use crate::served::{Served, request};
use crate::support::{self, Scratch, can_mount, run};
use rustix::process::Signal;

/// > What `serve` waits for in one folder holds up nobody who asks for something in another one.
#[test]
fn what_hangs_in_one_folder_holds_up_no_other() {
    /// As many threads as there are, and some more.
    const REQUESTS: usize = 70;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p folder/m folder/other sub; echo one > folder/one; echo two > folder/other/two; touch file sub/1
         tar -cf a.tar file sub",
    );
    let mut mount = support::foreground(&scratch, &scratch.path("a.tar"), &scratch.path("folder/m"));
    let served = Served::new(&scratch, ["--timeout", "5", "folder"]);
    served.get("/m/sub/1").whole(200);
    support::signal(&mount, Signal::STOP);
    // Its threads stop one after the other.
    let state = |task: &fs::DirEntry| fs::read_to_string(task.path().join("stat")).unwrap_or_default();
    support::wait_until("it has stopped", || {
        let mut tasks = fs::read_dir(format!("/proc/{}/task", mount.id())).unwrap();
        tasks.all(|task| state(&task.unwrap()).contains(") T "))
    });
    let mut waiting: Vec<_> = (0..REQUESTS).map(|_| served.connect()).collect();
    for (number, connection) in waiting.iter_mut().enumerate() {
        connection.send(&request("GET", &format!("/m/sub/y{number}"), &[], b""));
    }
    let answers: Vec<_> = waiting.iter_mut().map(|connection| connection.answer(false).status).collect();
    assert!(answers.iter().all(|status| *status == 504), "{answers:?}");
    // They have their threads for as long as it hangs.
    assert_eq!(served.get("/one").whole(200).text(), "one\n");
    assert_eq!(served.get("/other/two").whole(200).text(), "two\n");
    served.get("/other/").whole(200);
    support::signal(&mount, Signal::CONT);
    served.get("/m/sub/1").whole(200);
    assert_eq!(served.end(), Some(0));
    run(&scratch, ["-u".as_ref(), scratch.path("folder/m").as_os_str()]).ok();
    assert!(mount.wait().unwrap().success());
}

/// > Who has not sent all of its request holds no place that somebody else needs.
#[test]
fn half_a_request_holds_no_place() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf a.tar one");
    let served = Served::new(&scratch, ["--most-clients", "4", "--timeout", "600", "a.tar"]);
    let head =
        "PROPFIND / HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n";
    let mut halves: Vec<_> = (0..4).map(|_| served.connect()).collect();
    for connection in &mut halves {
        connection.send(head.as_bytes());
        // That the rest may come: its head was read.
        assert!(connection.has_more());
    }
    served.get("/one").whole(200);
    assert_eq!(served.end(), Some(0));
}

/// What is repeated for each entry counts, too: the URL of the folder, and names of properties that are not there.
#[test]
fn listings_are_sent_in_pieces_of_a_bounded_length() {
    /// Of a body, and of an entry.
    const PIECE: usize = 256 << 10;
    const ENTRY: usize = 64 << 10;
    let scratch = Scratch::new();
    let name = "\u{e9}".repeat(127);
    let deep = vec![name.as_str(); 50].join("/");
    scratch.shell("mkdir files; seq 300 | sed 's,^,files/,' | xargs touch");
    scratch.shell(&format!("tar -cf a.tar files; tar -rf a.tar --transform 's,^files,{deep},' files"));
    let served = Served::new(&scratch, ["a.tar"]);
    let names: Vec<_> = (0..60).map(|number| format!("<x:{}{number}/>", "n".repeat(60))).collect();
    let names = names.concat();
    let properties = format!("<propfind xmlns=\"DAV:\" xmlns:x=\"urn:x\"><prop>{names}</prop></propfind>");
    let code: String = "%C3%A9".repeat(127);
    let deep = vec![code.as_str(); 50].join("/");
    for (folder, body) in [("files", properties.as_str()), (&deep, "")] {
        let listed = served.ask_with("PROPFIND", &format!("/{folder}/"), &[("Depth", "1")], body.as_bytes()).whole(207);
        assert_eq!(listed.text().matches("<D:response>").count(), 301);
        assert!((1..PIECE + ENTRY).contains(&listed.longest), "{}", listed.longest);
    }
    assert_eq!(served.end(), Some(0));
}
