//! `tarnfs bench index` at a small scale, from end to end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::process::Stdio;

use crate::reports::{bench, figure, is_whole, rows};
use crate::support::{Ran, Scratch, tarnfs, wait_until};
use rustix::process::{Pid, Signal, kill_process};

const KINDS: [&str; 5] = ["tarnfs", "ratarmount", "one table of paths", "MessagePack", "JSON"];

const FIGURES: [&str; 9] =
    ["making", "memory, making", "size", "opening", "memory, open", "name", "path", "folder", "all"];

/// > `bench index` compares indexes that are made of the same entries and show all of them.
#[test]
fn indexes_are_compared() {
    let scratch = Scratch::new();
    let ran = bench(&scratch, ["index", "--entries", "2000,20000", "--runs", "2", "--out", "indexes"]).ok();
    is_whole(&scratch.path("indexes"));
    let rows = rows(&scratch.path("indexes/index.tsv"));
    let of = |entries: &str, kind: &str, name: &str| figure(&rows, &[("entries", entries), ("index", kind)], name);
    for kind in KINDS {
        for entries in ["2000", "20000"] {
            for name in FIGURES {
                assert!(of(entries, kind, name).unwrap() > 0.0, "{kind}, {entries}: {name}");
            }
        }
        let size = |entries: &str| of(entries, kind, "size").unwrap();
        assert!(size("20000") > size("2000") * 5.0, "{kind}");
        // In memory it is more than an empty process has.
        assert!(of("20000", kind, "memory, making") > of("20000", "the entries alone", "memory, making"), "{kind}");
    }
    // Whole paths in each row, and text, take more.
    assert!(of("20000", "tarnfs", "size") < of("20000", "one table of paths", "size"));
    assert!(of("20000", "MessagePack", "size") < of("20000", "JSON", "size"));
    assert!(of("2000", "the entries alone", "making").unwrap() > 0.0);
    assert!(of("2000", "the entries alone", "size").is_err());
    assert!(ran.text().contains("is written from an index of tarnfs in memory"), "{}", ran.text());
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(scratch.path("indexes/report.json")).unwrap()).unwrap();
    let plots = json["plots"].as_array().unwrap();
    let plot = |name: &str| plots.iter().find(|plot| plot["name"] == name).unwrap_or_else(|| panic!("{name}"));
    // A line for each, over time.
    for name in ["memory-over-time-1", "memory-over-time-2"] {
        let series = plot(name)["series"].as_array().unwrap();
        assert_eq!(series.len(), KINDS.len() + 1, "{name}");
        for line in series {
            let points = line["points"].as_array().unwrap();
            assert!(!points.is_empty() && points.iter().all(|point| point[1].as_f64().unwrap() > 0.0), "{line}");
        }
    }
    for name in ["making", "making-memory", "size", "opening", "opening-memory", "name", "path", "folder", "all"] {
        let series = plot(name)["series"].as_array().unwrap();
        let lines = series.iter().filter(|line| KINDS.iter().any(|kind| line["name"] == *kind));
        assert_eq!(lines.filter(|line| line["points"].as_array().unwrap().len() == 2).count(), KINDS.len(), "{name}");
    }
}

/// > Its entries may be those of an archive, of any kind.
#[test]
fn entries_of_archives_are_taken() {
    let scratch = Scratch::new();
    scratch.shell(
        r#"mkdir -p tree/a/b "tree/a blank" tree/a-b; for n in $(seq 40); do seq $n > "tree/a/file $n"; done
           seq 9 > tree/a/b/deep; seq 9 > tree/a-b/file; seq 9 > tree/$'latin-\xe4'; ln tree/a/b/deep tree/hard
           ln -s a/b tree/link; mkfifo tree/fifo; seq 5 > "tree/a0"; seq 5 > "tree/a blank/x"
           tar -czf a.tar.gz -C tree .; tar -cf implied.tar -C tree a/b/deep "a blank/x" a-b/file
           (cd tree; find . | cpio -o -H newc --quiet > ../a.cpio)"#,
    );
    let archives = ["a.tar.gz", "implied.tar", "a.cpio"];
    bench(&scratch, ["index", "--runs=1", "--out=indexes"].iter().chain(&archives)).ok();
    let rows = rows(&scratch.path("indexes/index.tsv"));
    let entries = scratch.shell("find tree -mindepth 1 | wc -l").trim().to_owned();
    for (archive, entries) in [("a.tar.gz", entries.as_str()), ("implied.tar", "7"), ("a.cpio", &entries)] {
        for kind in KINDS {
            let of = [("entries of", archive), ("entries", entries), ("index", kind)];
            // Who shows other entries than went in has no figure here.
            assert!(figure(&rows, &of, "all").unwrap() > 0.0, "{of:?}");
        }
    }
    let text = fs::read_to_string(scratch.path("indexes/report.txt")).unwrap();
    assert!(text.contains("1 devices, fifos and sockets"), "{text}");
    let names: Vec<_> = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("index.sqlite")), "{names:?}");
}

#[test]
fn what_takes_too_long_is_ended() {
    let scratch = Scratch::new();
    let ran = bench(&scratch, ["index", "--entries=1000", "--runs=1", "--limit=0.001", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
    for row in json["tables"][0]["rows"].as_array().unwrap() {
        assert_eq!(row["cells"][0]["reason"], "took longer than 0.001 s", "{row}");
    }
}

/// It is ended with the process that makes the index, and nothing is left.
#[test]
fn an_interrupt_leaves_nothing() {
    let scratch = Scratch::new();
    let folder = scratch.folder("scratch-files");
    let mut command = tarnfs(&scratch);
    command.args(["bench", "index", "--entries=300000", "--folder"]).arg(&folder);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Entries are there, so they are made, or a process makes something of them.
    wait_until("it has begun", || {
        let mut found = fs::read_dir(&folder).unwrap().flatten();
        found.any(|entry| fs::metadata(entry.path().join("entries")).is_ok_and(|found| found.len() > 100_000))
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, fs::read_dir(&folder).unwrap().count()), (130, 0), "{}", ran.err);
}
