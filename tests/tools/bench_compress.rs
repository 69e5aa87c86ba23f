//! `tarnfs bench compress`: every compressor and level on a small folder, from end to end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;

use crate::support::{Scratch, tarnfs};

/// > `bench compress` measures every compressor and level, as records and as archives, with one writer and two.
#[test]
fn every_compressor_is_in_the_tables_and_plots() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir mail; for n in $(seq 1 20); do seq $n 3 6000 > mail/$n; done; head -c 20000 /dev/urandom > mail/noise",
    );
    let ran = tarnfs(&scratch)
        .args(["bench", "compress", "--runs", "1", "--out", "report", "mail"])
        .current_dir(scratch.path(""))
        .output()
        .unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(text.contains("As records of 128 KiB") && text.contains("As an archive"), "{text}");
    for (name, levels) in [
        (
            "records",
            &[
                ("lzjb", 1),
                ("lz4", 1),
                ("snappy", 1),
                ("gzip", 9),
                ("zstd", 22),
                ("brotli", 12),
                ("bzip2", 9),
                ("xz", 10),
            ][..],
        ),
        ("archive", &[("lz4", 1), ("gzip", 12), ("zstd", 22), ("bzip2", 9), ("xz", 10)]),
    ] {
        let table = fs::read_to_string(scratch.path(format!("report/{name}.tsv"))).unwrap();
        let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let heading = lines.next().unwrap();
        assert_eq!(heading[..6], ["compressor", "level", "writers", "figure", "unit", "median"]);
        let mut count: BTreeMap<(String, String), usize> = BTreeMap::new();
        for row in lines {
            let value: f64 = row[5].parse().unwrap_or_else(|_| panic!("{name}: {row:?}"));
            assert!(value > 0.0, "{name}: {row:?}");
            if row[3] == "ratio" {
                *count.entry((row[0].to_owned(), row[2].to_owned())).or_default() += 1;
                // Numbers become shorter by more than a third, with all but the simplest compressors and the first
                // level.
                let is_simple = ["lzjb", "snappy", "lz4"].contains(&row[0]) || row[1] == "1";
                let least = if is_simple { 1.1 } else { 1.5 };
                assert!(value > least && value < 30.0, "{name}: {row:?}");
            }
        }
        for (compressor, levels) in levels {
            for writers in ["1", "2"] {
                assert_eq!(
                    count.get(&((*compressor).to_owned(), writers.to_owned())),
                    Some(levels),
                    "{name}: {compressor}"
                );
            }
        }
        assert_eq!(count.len(), levels.len() * 2, "{name}: {count:?}");
        let plot = fs::read_to_string(scratch.path(format!("report/{name}-efficiency.svg"))).unwrap();
        for word in ["one writer", "2 writers at once", "zstd 22"] {
            assert!(plot.contains(word), "{name}: {word}");
        }
        assert!(fs::metadata(scratch.path(format!("report/{name}-efficiency.png"))).unwrap().len() > 5000);
    }
    let page = fs::read_to_string(scratch.path("report/index.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    if let Some(keep) = std::env::var_os("TARNFS_KEEP_PLOTS") {
        fs::create_dir_all(&keep).unwrap();
        for name in ["records-efficiency.png", "archive-efficiency.png", "report.txt"] {
            fs::copy(scratch.path("report").join(name), std::path::Path::new(&keep).join(name)).unwrap();
        }
    }
}

/// > `bench compress` takes as many bytes as are asked for, and the compressors that are named.
#[test]
fn sizes_and_names_are_chosen() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir mail; for n in $(seq 1 20); do seq $n 3 60000 > mail/$n; done; mkfifo mail/pipe; ln -s 1 mail/link",
    );
    let bench = |words: &[&str]| {
        let ran =
            tarnfs(&scratch).args(["bench", "compress"]).args(words).current_dir(scratch.path("")).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (ran.status.code().unwrap(), text(ran.stdout), text(ran.stderr))
    };
    let (code, out, errors) = bench(&["--runs", "1", "--json", "--size", "300K", "--only", "lz4,lzjb", "mail"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = |number: usize| report["tables"][number]["rows"].as_array().unwrap().len();
    assert_eq!((rows(0), rows(1)), (4, 2));
    let notes = report["notes"].to_string();
    assert!(notes.contains("307200 bytes of") && notes.contains("of the 20 files"), "{notes}");
    // Of files that are read from all over the list, the mean is told, without the spread of their lengths.
    for row in [0, 1].iter().flat_map(|&number| report["tables"][number]["rows"].as_array().unwrap()) {
        let cells = row["cells"].as_array().unwrap();
        assert!(cells.last().unwrap()["median"].as_f64().is_some_and(|mean| mean > 0.0), "{row}");
        assert!(cells.iter().all(|cell| cell["spread"].is_null()), "one run has no spread: {row}");
    }
    let (code, out, errors) = bench(&["--runs", "1", "--only", "lz4", "--make", "300K"]);
    assert!(code == 0 && out.contains("lz4"), "{out}{errors}");
    // What takes too long is "-", with the reason.
    let (code, out, _) = bench(&["--runs", "1", "--limit", "0.001", "--only", "xz", "mail"]);
    assert_eq!(code, 0);
    assert!(out.contains("took longer than 0.001 s"), "{out}");
    for (words, said) in [
        (&["--only", "rar", "mail"][..], "rar: there is no such compressor"),
        (&["absent"], "absent: No such file"),
        (&["mail/1"], "mail/1: is no folder"),
        (&["--size", "1000T", "mail"], "are held in memory"),
    ] {
        let (code, _, errors) = bench(words);
        assert!(code != 0 && errors.contains(said), "{words:?}: {errors}");
    }
}
