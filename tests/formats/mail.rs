//! Mail: what Python makes of it, and what is mounted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{Mounted, Scratch, can_mount, have};
use crate::trees::{small, sums, told};

/// Writes what Python finds in the mbox `x.mbox` to the folder `theirs`, under the names that are promised for it: the
/// message, its parts by their names, messages in it as files and folders.
const THEIRS: &str = r#"
import mailbox, os, sys, email.header
ENDS = {"text/plain": ".txt", "text/html": ".html", "image/png": ".png"}
def plain(value):
    return str(email.header.make_header(email.header.decode_header(value))) if value else None
def safe(name):
    return " ".join("_" if c in "/\0" else c for c in [name])[:0] + "".join("_" if c in "/\0" else c for c in " ".join(name.split()))
taken = {}
def place(folder, name):
    path = folder + "/" + name
    count = taken.get(path, 0) + 1
    taken[path] = count
    if count == 1: return path
    stem, dot, end = name.rpartition(".")
    return folder + "/" + (f"{stem} ({count}).{end}" if stem else f"{name} ({count})")
def parts(message, folder):
    if message.get_content_type() == "message/rfc822":
        inner = message.get_payload(0)
        path = place(folder, safe(plain(inner["subject"])))
        os.makedirs(path)
        parts(inner, path)
    elif message.is_multipart():
        for part in message.get_payload(): parts(part, folder)
    else:
        name = message.get_filename()
        kind = message.get_content_type()
        if name is None: name = ("body" if kind.startswith("text/") else "part") + ENDS.get(kind, ".bin")
        with open(place(folder, safe(plain(name))), "wb") as file: file.write(message.get_payload(decode=True) or b"")
box = mailbox.mbox("x.mbox")
for number, key in enumerate(box.keys(), 1):
    message = box[key]
    subject = plain(message["subject"])
    folder = "theirs/" + f"{number:06}" + (" " + safe(subject) if subject else "")
    os.makedirs(folder)
    with open(folder + "/message.eml", "wb") as file: file.write(box.get_bytes(key))
    parts(message, folder)
"#;

/// Makes a mailbox of messages of all kinds with Python.
const MADE: &str = r#"
import mailbox, email, email.message, email.policy, random, os
random.seed(7)
box = mailbox.mbox("x.mbox")
for number in range(60):
    message = email.message.EmailMessage(email.policy.SMTP if number % 3 == 0 else email.policy.default)
    message["From"] = "a@example.org"
    message["Date"] = "Tue, 1 Jul 2003 10:52:%02d +0200" % number
    if number % 7: message["Subject"] = ["short", "gr\u00fcn und \u65e5\u672c/" + "x" * number, "a  b\tc"][number % 3]
    text = "".join(random.choice(["word ", "From here\n", "\n", "=", "\u00e4\u00f6\u00fc ", "long " * 30]) for _ in range(number * 3))
    message.set_content(text, cte=["quoted-printable", "base64", "8bit"][number % 3] if number else None)
    if number % 2: message.add_alternative("<p>" + text + "</p>", subtype="html", cte="quoted-printable")
    for count in range(number % 4):
        content = random.randbytes(random.choice([0, 1, 2, 3, 56, 57, 58, 1000, 70000]))
        name = ["a.bin", "gr\u00fcn.bin", "a.bin", None][count]
        message.add_attachment(content, maintype="application", subtype="octet-stream", **({"filename": name} if name else {}))
    if number % 5 == 4:
        inner = email.message.EmailMessage()
        inner["Subject"] = "inner"
        inner.set_content("inner text\n")
        inner.add_attachment(b"\0\1\2" * 100, maintype="image", subtype="png", filename="i.png")
        message.add_attachment(inner)
    box.add(message)
box.flush()
"#;

fn python(scratch: &Scratch, script: &str) {
    fs::write(scratch.path("script.py"), script).unwrap();
    scratch.shell("python3 script.py");
}

#[test]
fn an_mbox_shows_what_python_finds_in_it() {
    if !can_mount() || !have("python3") || !have("gzip") {
        return println!("left out: no mounts or no Python here");
    }
    let scratch = Scratch::new();
    for script in ["", MADE] {
        scratch.shell("rm -rf theirs x.mbox*");
        if script.is_empty() {
            // Without the message that says how long it is: Python does not look at that.
            let bytes = fs::read(small("parts.mbox")).unwrap();
            let end = bytes.windows(7).position(|window| window == b"From b@").unwrap();
            fs::write(scratch.path("x.mbox"), &bytes[..end]).unwrap();
        } else {
            python(&scratch, script);
        }
        python(&scratch, THEIRS);
        scratch.shell("gzip -k x.mbox");
        let theirs = sums(&scratch, &scratch.path("theirs"));
        assert!(theirs.contains("message.eml"));
        for name in ["x.mbox", "x.mbox.gz"] {
            let mounted = Mounted::new(&scratch, scratch.path(name), &[]);
            // Messages in messages are files, too.
            scratch.shell(&format!(
                "rm -rf ours; cp -r '{}' ours; find ours -name '*.eml' ! -name message.eml -delete",
                mounted.path("").display()
            ));
            mounted.unmount();
            assert_eq!(sums(&scratch, &scratch.path("ours")), theirs, "{name}");
        }
    }
}

#[test]
fn messages_are_folders_of_what_they_hold() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    fs::copy(small("parts.mbox"), scratch.path("x.mbox")).unwrap();
    let mounted = Mounted::new(&scratch, scratch.path("x.mbox"), &[]);
    let read = |path: &str| fs::read_to_string(mounted.path(path)).unwrap();
    assert_eq!(read("000001 grün und blau/body.txt"), "grün, soft break\n>From here on");
    assert_eq!(fs::metadata(mounted.path("000001 grün und blau")).unwrap().mtime(), 1_057_049_557);
    assert_eq!(read("000001 grün und blau/.._x_y.bin"), "ABCDEFGH");
    assert_eq!(read("000001 grün und blau/inner/body (2).txt"), "two");
    assert!(read("000001 grün und blau/inner.eml").starts_with("From: c@"));
    assert_eq!(read("000002/body.txt"), "From nobody Wed Jul  2 10:52:37 2003\nthat is a line of it\n");
    assert_eq!(read("000003 last/body.txt"), "cut\n");
    mounted.unmount();
    fs::copy(small("digest.eml"), scratch.path("x.eml")).unwrap();
    let mounted = Mounted::any(&scratch, scratch.path("x.eml"), &[]);
    let read = |path: &str| fs::read_to_string(mounted.path(path)).unwrap();
    assert_eq!(
        (read("one/body.txt"), read("two/body.txt"), read("body.txt")),
        ("one".into(), "two".into(), "end".into())
    );
    assert!(read("two.eml").ends_with("\r\n\r\ntwo"));
    mounted.unmount();
}

/// In others, and others in it.
#[test]
fn mail_in_archives_and_archives_in_mail_are_folders() {
    if !can_mount() || !have("python3") || !have("zip") {
        return println!("left out: no mounts, no Python or no zip here");
    }
    let scratch = Scratch::new();
    python(
        &scratch,
        r#"
import mailbox, email.message, io, tarfile, gzip
tar = io.BytesIO()
with tarfile.open(fileobj=tar, mode="w") as archive:
    member = tarfile.TarInfo("d/inside"); member.size = 5
    archive.addfile(member, io.BytesIO(b"bytes"))
for name, more in (("x.mbox", None), ("y.mbox", "x.mbox")):
    box = mailbox.mbox(name)
    for number in range(2):
        message = email.message.EmailMessage()
        message["Subject"] = "archive"
        message.set_content("see below")
        message.add_attachment(tar.getvalue(), maintype="application", subtype="x-tar", filename="a.tar")
        message.add_attachment(gzip.compress(tar.getvalue()), maintype="application", subtype="gzip", filename="b.tar.gz")
        if more: message.add_attachment(open(more, "rb").read(), maintype="application", subtype="mbox", filename="x.mbox")
        box.add(message)
    box.flush()
"#,
    );
    scratch.shell("tar -cf x.tar x.mbox; zip -q0 x.zip x.mbox; gzip -k x.mbox");
    let options = ["-r", "--recursive-extensions", "/archive,/compressed,mbox"];
    for (archive, prefix) in [
        ("x.mbox", "000002 archive"),
        ("x.tar", "x.mbox/000002 archive"),
        ("x.zip", "x.mbox/000002 archive"),
        ("y.mbox", "000002 archive"),
        ("y.mbox", "000002 archive/x.mbox/000002 archive"),
    ] {
        let mounted = Mounted::any(&scratch, scratch.path(archive), &options);
        for inner in ["a.tar", "b.tar.gz"] {
            let path = mounted.path(format!("{prefix}/{inner}/d/inside"));
            assert_eq!(fs::read(path).unwrap(), b"bytes", "{archive} {prefix} {inner}");
        }
        mounted.unmount();
    }
    // What is decoded while it is read is not read again: there they are files.
    let listed = told(&scratch, "find", "x.mbox.gz", &options);
    assert!(listed.code == 0 && String::from_utf8_lossy(&listed.out).contains("000002 archive"), "{}", listed.text());
    let read = told(&scratch, "cat", "x.mbox.gz", &["000002 archive/a.tar"]);
    assert!(read.code == 0 && read.out.windows(5).any(|window| window == b"bytes"), "{}", read.err);
}

/// As Python's `mailbox` writes them: read and unread, in a folder, a tar and a zip.
#[test]
fn messages_of_a_maildir_are_folders() {
    if !can_mount() || !have("python3") || !have("zip") {
        return println!("left out: no mounts, no Python or no zip here");
    }
    let scratch = Scratch::new();
    python(
        &scratch,
        r#"
import mailbox, email.message
box = mailbox.Maildir("box")
for number in range(3):
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.org", "b@example.org", f"number {number}"
    message["Date"], message["Message-ID"] = "Mon, 01 Jan 2024 00:00:00 +0000", f"<{number}@example.org>"
    message.set_content("text")
    message.add_attachment(b"bytes" * number, maintype="application", subtype="octet-stream", filename="attached")
    message = mailbox.MaildirMessage(message)
    if number: message.set_subdir("cur"); message.add_flag("S")
    box.add(message)
open("box/new/1700000001.notes.txt", "w").write("no mail")
"#,
    );
    scratch.shell("tar -cf box.tar box; zip -qr0 box.zip box");
    for archive in ["box", "box.tar", "box.zip"] {
        let mounted =
            Mounted::any(&scratch, scratch.path(archive), &["-r", "--recursive-extensions", "/archive,/mailbox"]);
        let root = mounted.path(if archive == "box" { "" } else { "box" });
        let mut attached = Vec::new();
        for folder in ["cur", "new"] {
            for entry in fs::read_dir(root.join(folder)).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    assert_eq!(fs::read(entry.path().join("body.txt")).unwrap(), b"text\n");
                    attached.push(fs::read(entry.path().join("attached")).unwrap());
                } else {
                    assert_eq!(fs::read(entry.path()).unwrap(), b"no mail");
                }
            }
        }
        attached.sort();
        assert_eq!(attached, [&b""[..], b"bytes", b"bytesbytes"], "{archive}");
        mounted.unmount();
    }
    let plain = Mounted::any(&scratch, scratch.path("box.tar"), &["-r"]);
    for entry in fs::read_dir(plain.path("box/cur")).unwrap() {
        assert!(entry.unwrap().file_type().unwrap().is_file(), "only with the set of mail");
    }
}

#[test]
fn text_is_no_mail() {
    let scratch = Scratch::new();
    for text in [
        "From here on all was well.\nFrom: nobody\n",
        "Subject: x\n\ntext\n",
        "From a at 10:00 on 1 Jan 2001\nno field\n",
    ] {
        fs::write(scratch.path("x.mbox"), text).unwrap();
        let ran = told(&scratch, "find", "x.mbox", &[]);
        assert!(ran.code != 0 && ran.err.contains("x.mbox"), "{text}: {}", ran.text());
    }
}
