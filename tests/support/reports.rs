//! `tarnfs bench` in the tests: runs it, and reads what it reports.

#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::support::{Ran, Scratch, tarnfs};

/// Where programs of Python are, as `make bench` installs them.
fn peers() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    std::env::var_os("TARNFS_PEERS").map_or(usual, PathBuf::from).join("bin")
}

/// Runs it with a folder of its own for scratch files, which must be empty again then.
pub(crate) fn bench<A: AsRef<OsStr>>(scratch: &Scratch, words: impl IntoIterator<Item = A>) -> Ran {
    bench_with(scratch, words, &std::env::var_os("PATH").unwrap(), &peers())
}

/// The same with the programs of this `PATH`, and those of Python in `peers`.
pub(crate) fn bench_with<A: AsRef<OsStr>>(
    scratch: &Scratch,
    words: impl IntoIterator<Item = A>,
    path: &OsStr,
    peers: &Path,
) -> Ran {
    let folder = scratch.folder("scratch-files");
    let mut command = tarnfs(scratch);
    command.arg("bench").args(words).arg("--folder").arg(&folder).arg("--peers").arg(peers).env("PATH", path);
    let ran = Ran::from(command.current_dir(scratch.path("")).output().unwrap());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{}", ran.err);
    ran
}

/// The rows of a TSV: what its columns are called, and what is in them.
pub(crate) fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    let names = lines.next().unwrap();
    lines
        .map(|line| {
            assert_eq!(line.len(), names.len(), "{line:?}");
            names.iter().cloned().zip(line).collect()
        })
        .collect()
}

/// The median of a figure in the row with these labels; the reason if there is none.
pub(crate) fn figure(rows: &[BTreeMap<String, String>], labels: &[(&str, &str)], figure: &str) -> Result<f64, String> {
    let is_it = |row: &&BTreeMap<String, String>| {
        row["figure"] == figure && labels.iter().all(|(name, value)| row[*name] == *value)
    };
    let row = rows.iter().find(is_it).unwrap_or_else(|| panic!("no {figure} of {labels:?}"));
    row["median"].parse().map_err(|_| row["reason"].clone())
}

/// A page with plots as it says, all of which are pictures.
pub(crate) fn is_whole(report: &Path) {
    let page = fs::read_to_string(report.join("index.html")).unwrap();
    assert!(page.ends_with("</html>\n") && page.contains("prefers-color-scheme") && !page.contains("<script"));
    let json: serde_json::Value = serde_json::from_slice(&fs::read(report.join("report.json")).unwrap()).unwrap();
    let plots = json["plots"].as_array().unwrap();
    assert!(!plots.is_empty() && page.matches("<svg").count() == plots.len());
    for plot in plots {
        let name = plot["name"].as_str().unwrap();
        let svg = fs::read_to_string(report.join(format!("{name}.svg"))).unwrap();
        assert!(svg.trim_end().ends_with("</svg>") && svg.contains(plot["title"].as_str().unwrap()), "{name}");
        let png = fs::read(report.join(format!("{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.ends_with(b"IEND\xaeB\x60\x82"), "{name}");
    }
    assert!(json["machine"]["cores"].as_u64().unwrap() > 0);
    let programs = json["programs"].as_array().unwrap();
    assert!(programs.iter().any(|it| it["name"] == "tarnfs" && it["version"].as_str().unwrap().contains("tarnfs")));
    if let Some(keep) = std::env::var_os("TARNFS_KEEP_PLOTS") {
        let to = Path::new(&keep).join(report.file_name().unwrap());
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(report).unwrap().flatten() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}
