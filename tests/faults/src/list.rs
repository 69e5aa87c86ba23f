//! Which faults there are.

use crate::places::{Bytes, Places};
use crate::{Result, output};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One fault, and how it is put.
pub struct Fault {
    pub name: String,
    pub file: PathBuf,
    /// `None`: it cannot be put beside others.
    pub change: Option<Change>,
}

pub enum Change {
    /// An expression, and what stands there instead.
    Instead(Bytes, String),
    /// A function's body, and what the function returns at once.
    Returns(Bytes, String),
    /// The condition of a match arm that is gone, or where one would stand.
    Gone(Bytes),
}

impl Change {
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Instead(bytes, _) | Self::Returns(bytes, _) | Self::Gone(bytes) => bytes,
        }
    }
}

/// The list of cargo-mutants.
pub fn of_cargo_mutants(root: &Path, krate: &str) -> Result<Vec<Fault>> {
    let listed = output(Command::new("cargo").args(["mutants", "--list", "--json", "-p", krate]).current_dir(root))?;
    let listed: Value = serde_json::from_slice(&listed)?;
    let mut files = HashMap::new();
    let mut faults = Vec::new();
    for fault in listed.as_array().ok_or("the list of cargo-mutants is none")? {
        let file = PathBuf::from(fault["file"].as_str().ok_or("a fault without file")?);
        if !files.contains_key(&file) {
            let text = fs::read_to_string(root.join(&file))?;
            let places = Places::of(&text)?;
            files.insert(file.clone(), (text, places));
        }
        let (text, places) = &files[&file];
        faults.push(Fault {
            name: fault["name"].as_str().ok_or("a fault without name")?.into(),
            file,
            change: change(fault, text, places),
        });
    }
    Ok(faults)
}

fn change(fault: &Value, text: &str, places: &Places) -> Option<Change> {
    let at = |which: &str| {
        let place = &fault["span"][which];
        let line = place["line"].as_u64()? as usize;
        let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        let column = place["column"].as_u64()? as usize - 1;
        Some(start + text[start..].chars().take(column).map(char::len_utf8).sum::<usize>())
    };
    let span = at("start")?..at("end")?;
    let replacement = fault["replacement"].as_str()?;
    let replaced = |whole: &Bytes| {
        let changed = format!("{}{replacement}{}", &text[whole.start..span.start], &text[span.end..whole.end]);
        Change::Instead(whole.clone(), changed)
    };
    match fault["genre"].as_str()? {
        "FnValue" => {
            // The span is that of the statements, without the braces.
            let around = places.blocks.iter().filter(|block| block.start < span.start && span.end < block.end);
            let body = around.min_by_key(|block| block.len())?;
            Some(Change::Returns(body.clone(), replacement.into()))
        }
        "BinaryOperator" | "UnaryOperator" => Some(replaced(places.operators.get(&span)?)),
        "MatchArm" => Some(Change::Gone(places.arms.get(&span)?.clone())),
        "MatchArmGuard" => Some(replaced(places.conditions.get(&span)?)),
        "StructField" => Some(replaced(places.fields.get(&span.start)?)),
        _ => None,
    }
}

/// All guards of the crate's files whose path contains `part`.
pub fn guards(root: &Path, krate: &str, part: &str) -> Result<Vec<Fault>> {
    let files = output(Command::new("git").args(["ls-files", &format!("crates/{krate}/src")]).current_dir(root))?;
    let mut faults = Vec::new();
    for file in String::from_utf8(files)?.lines().filter(|file| file.contains(part) && file.ends_with(".rs")) {
        if file.contains("/tests/") || file.ends_with("/tests.rs") {
            continue;
        }
        let text = fs::read_to_string(root.join(file))?;
        for (bytes, becomes) in Places::of(&text)?.guards {
            let line = text[..bytes.start].matches('\n').count() + 1;
            let condition = text[bytes.clone()].split_whitespace().collect::<Vec<_>>().join(" ");
            faults.push(Fault {
                name: format!("{file}:{line}: {condition} is {becomes}"),
                file: file.into(),
                change: Some(Change::Instead(bytes, becomes.into())),
            });
        }
    }
    Ok(faults)
}

/// Some of them, drawn at random, in their order; all if `count` is 0.
pub fn sample(mut faults: Vec<Fault>, count: usize, seed: u64, krate: &str) -> Vec<Fault> {
    if count == 0 || count >= faults.len() {
        return faults;
    }
    // SplitMix64.
    let mut state = krate.bytes().fold(seed, |state, byte| state.wrapping_mul(0x0100_0000_01B3) ^ u64::from(byte));
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    };
    while faults.len() > count {
        faults.remove((next() % faults.len() as u64) as usize);
    }
    faults
}
