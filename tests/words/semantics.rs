//! The promises of `doc/SEMANTICS.md` each stand above a test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;

/// The sources of all tests of the workspace.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn each_promise_stands_above_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tests = Vec::new();
    sources(&root.join("tests"), &mut tests);
    sources(&root.join("crates"), &mut tests);
    let page = fs::read_to_string(root.join("doc/SEMANTICS.md")).unwrap();
    let promises: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    assert!(promises.len() > 30);
    let quoted: Vec<_> = tests
        .iter()
        .flat_map(|test| {
            let lines: Vec<_> = test.lines().map(str::trim).collect();
            (0..lines.len())
                .filter_map(|at| {
                    // One that is long goes on in the next line; it ends with a full stop.
                    let begins = at == 0 || !lines[at - 1].starts_with("/// > ") || lines[at - 1].ends_with('.');
                    let mut promise = lines[at].strip_prefix("/// > ").filter(|_| begins)?.to_owned();
                    let mut next = at + 1;
                    while !promise.ends_with('.') {
                        promise = promise + " " + lines.get(next)?.strip_prefix("/// > ")?;
                        next += 1;
                    }
                    Some((promise, &lines[next..]))
                })
                // Between the promise and the test there are only further ones, and attributes.
                .filter(|(_, after)| {
                    let test = after.iter().position(|line| *line == "#[test]");
                    test.is_some_and(|test| {
                        after[..test].iter().all(|line| line.starts_with("//") || line.starts_with("#["))
                    })
                })
                .map(|(promise, _)| promise)
                .collect::<Vec<_>>()
        })
        .collect();
    for promise in &promises {
        assert!(quoted.iter().any(|quoted| quoted == promise), "no test is said to keep: {promise}");
    }
    for promise in &quoted {
        assert!(promises.contains(&promise.as_str()), "a test keeps what is not promised: {promise}");
    }
}
