//! The examples in README.md and doc/guide.md, run as they stand there: each command must end well, and print what
//! stands below it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{self, Scratch, can_mount, have, is_root, wait_until};

/// What the examples take for granted.
const PREPARATION: &str = "umask 022
    mkdir -p monday/home/me tuesday/home/me project folder
    echo Monday > monday/home/me/notes.txt; echo Tuesday > tuesday/home/me/notes.txt; echo code > project/main.c
    tar cf monday.tar -C monday home; tar czf tuesday.tar.gz -C tuesday home; tar czf backup.tar.gz -C monday home
    gzip -k monday.tar; echo 'all went well' > log.txt; gzip log.txt; tar cf backups.tar monday.tar.gz log.txt.gz
    cp backups.tar folder; mkdir mnt; echo sesame > words
    if command -v mksquashfs >/dev/null; then
        mksquashfs monday root.squashfs -quiet -no-progress; cat /bin/true root.squashfs > Editor.AppImage; fi
    if command -v zip 7z >/dev/null; then zip -q -r photos.zip monday; 7z a -bd -bso0 -psesame secret.7z monday; fi";

/// A command of a document, and the lines that it prints there.
#[derive(Debug)]
struct Example {
    command: String,
    prints: Vec<String>,
}

/// The examples of each block that belongs to a section of that title.
fn blocks(document: &str, section: &str) -> Vec<Vec<Example>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document)).unwrap();
    let text = format!("\n{text}");
    let start = text.find(&format!("\n{section}\n")).unwrap_or_else(|| panic!("{document} has no {section}"));
    let rest = &text[start + 1 + section.len()..];
    let body = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
    let blocks = body.split("```console\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks
        .map(|block| {
            let mut examples: Vec<Example> = Vec::new();
            for line in block.lines() {
                match line.strip_prefix("$ ").or(line.strip_prefix("# ")) {
                    Some(command) => {
                        let command = command.split("  #").next().unwrap().trim().to_owned();
                        examples.push(Example { command, prints: Vec::new() });
                    }
                    None => examples.last_mut().unwrap().prints.push(line.to_owned()),
                }
            }
            examples
        })
        .collect()
}

fn run(scratch: &Scratch, example: &Example) {
    let folder = Path::new(env!("CARGO_BIN_EXE_tarnfs")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    // `ls` writes columns on a terminal only.
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let expected = words(&example.prints.join("\n"));
    // What was written to `command` is done a moment later.
    wait_until(&format!("{} prints {}", example.command, example.prints.join("\n")), || {
        let mut command = Command::new("sh");
        command.args(["-c", &example.command]).current_dir(scratch.path("")).env("PATH", &path);
        let output = command.env("XDG_CACHE_HOME", scratch.path("cache")).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {out}{err}", example.command);
        expected.is_empty() || words(&out) == expected
    });
}

#[test]
fn the_examples_do_what_they_say() {
    if !can_mount() || !is_root() || !have("getfattr") {
        return;
    }
    let documents = [
        ("README.md", &["# tarnfs", "## More that it does"][..]),
        (
            "doc/guide.md",
            &[
                "## Without a mount",
                "## Making archives",
                "## What an archive is made of",
                "## Which compression?",
                "## Comparing programs",
                "## zip and 7z",
                "## squashfs",
                "## Folders",
                "## Several archives, older versions",
                "## Archives in archives",
                "## Hashes",
                "## More archives while it is mounted",
                "## What is mounted",
                "## Statistics",
            ],
        ),
    ];
    for (document, section) in documents.iter().flat_map(|(name, sections)| sections.iter().map(move |s| (*name, *s))) {
        if section.contains("7z") && !(have("zip") && have("7z")) {
            println!("left out: {section}: no zip or 7z");
            continue;
        }
        if section.contains("squashfs") && !have("mksquashfs") {
            println!("left out: {section}: no mksquashfs");
            continue;
        }
        let blocks = blocks(document, section);
        assert!(blocks.iter().map(Vec::len).sum::<usize>() >= 2, "{document}: {section} has no examples any more");
        for block in blocks {
            let scratch = Scratch::new();
            scratch.shell(PREPARATION);
            for example in &block {
                // A mount that the next example needs the folder of is over.
                let at = scratch.path("mnt");
                if example.command.starts_with("tarnfs")
                    && !example.command.contains(" -u ")
                    && support::is_mounted(&at)
                {
                    support::run(&scratch, ["-u".as_ref(), at.as_os_str()]).ok();
                    fs::create_dir_all(&at).unwrap();
                }
                run(&scratch, example);
                fs::create_dir_all(&at).unwrap();
            }
            for at in ["mnt", "frozen", "project", "backup"] {
                while support::is_mounted(&scratch.path(at)) {
                    support::run(&scratch, ["-u".as_ref(), scratch.path(at).as_os_str()]).ok();
                }
            }
        }
    }
}
