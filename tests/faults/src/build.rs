//! Builds the tests of the copy.

use crate::plant::Copies;
use crate::{Options, Result};
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A test program, and the folder that its tests expect to be in.
pub struct Binary {
    pub name: String,
    pub path: PathBuf,
    pub folder: PathBuf,
}

/// The test programs, or the faults that do not compile.
pub fn tests(
    options: &Options,
    tree: &Path,
    copies: &Copies,
) -> Result<std::result::Result<Vec<Binary>, HashSet<usize>>> {
    let mut binaries = Vec::new();
    let mut guilty = HashSet::new();
    let mut runs = vec![vec!["-p".to_owned(), options.krate.clone()]];
    if !options.also.is_empty() {
        runs.push(vec!["-p".into(), "tarnfs".into()]);
        runs[1].extend(options.also.iter().flat_map(|test| ["--test".into(), test.clone()]));
    }
    for run in runs {
        let output = Command::new("cargo")
            .args(["test", "--no-run", "--message-format=json"])
            .args(&run)
            .current_dir(tree)
            .env("CARGO_TARGET_DIR", options.scratch.join("target"))
            .stderr(Stdio::inherit())
            .output()?;
        for line in String::from_utf8(output.stdout)?.lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
            if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
                blame(&message["message"], copies, &mut guilty);
            }
            let of_tests = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
            if of_tests && let Some(path) = message["executable"].as_str() {
                let manifest = PathBuf::from(message["manifest_path"].as_str().unwrap_or_default());
                binaries.push(Binary {
                    name: message["target"]["name"].as_str().unwrap_or_default().into(),
                    path: path.into(),
                    folder: manifest.parent().unwrap_or(tree).into(),
                });
            }
        }
        if !output.status.success() {
            if guilty.is_empty() {
                return Err("the copy does not build, and no fault can be blamed".into());
            }
            return Ok(Err(guilty));
        }
    }
    if !options.tests.is_empty() {
        binaries.retain(|binary| options.tests.contains(&binary.name) || options.also.contains(&binary.name));
    }
    Ok(Ok(binaries))
}

/// Finds the innermost fault around an error.
fn blame(message: &Value, copies: &Copies, guilty: &mut HashSet<usize>) {
    let found = spans(message).find_map(|(file, bytes)| {
        let (_, written) = copies.written.iter().find(|(path, _)| file.ends_with(path))?;
        let around = written.iter().filter(|(place, _)| place.start <= bytes.start && bytes.end <= place.end);
        around.min_by_key(|(place, _)| place.len()).map(|(_, number)| *number)
    });
    match found {
        Some(number) => _ = guilty.insert(number),
        None => println!("{}", message["rendered"].as_str().unwrap_or_default()),
    }
}

/// Places that a message speaks of, the important ones first.
fn spans(message: &Value) -> impl Iterator<Item = (PathBuf, std::ops::Range<usize>)> {
    let spans = message["spans"].as_array().cloned().unwrap_or_default();
    let (first, second): (Vec<_>, Vec<_>) = spans.into_iter().partition(|span| span["is_primary"] == true);
    first.into_iter().chain(second).map(|span| {
        let byte = |which: &str| span[which].as_u64().unwrap_or_default() as usize;
        (PathBuf::from(span["file_name"].as_str().unwrap_or_default()), byte("byte_start")..byte("byte_end"))
    })
}
