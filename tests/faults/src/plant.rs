//! The copy of the sources, with the faults.

use crate::list::{Change, Fault};
use crate::places::Bytes;
use crate::{Result, output};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the faults are in the copy.
#[derive(Default)]
pub struct Copies {
    /// File → what was written there: (bytes in the copy, fault). Bytes within others' come behind these.
    pub written: BTreeMap<PathBuf, Vec<(Bytes, usize)>>,
    pub planted: HashSet<usize>,
}

/// Copies what git knows and does not ignore, and puts the faults into the copy.
pub fn copy(from: &Path, to: &Path, krate: &str, faults: &[Fault], left_out: &HashSet<usize>) -> Result<Copies> {
    let listed = output(
        Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(from),
    )?;
    let lib = PathBuf::from(format!("crates/{krate}/src/lib.rs"));
    let mut copies = Copies::default();
    for file in String::from_utf8(listed)?.split_terminator('\0').map(Path::new) {
        if !from.join(file).is_file() {
            continue;
        }
        let mut here: Vec<_> = faults
            .iter()
            .enumerate()
            .filter(|(number, fault)| fault.file == file && !left_out.contains(number))
            .filter_map(|(number, fault)| Some((number, fault.change.as_ref()?)))
            .collect();
        let mut text = fs::read(from.join(file))?;
        if !here.is_empty() {
            here.sort_by_key(|(_, change)| (change.bytes().start, std::cmp::Reverse(change.bytes().end)));
            let mut writer = Writer { original: str::from_utf8(&text)?, copy: String::new(), written: Vec::new() };
            writer.render(0..text.len(), &here);
            let Writer { copy, written, .. } = writer;
            copies.planted.extend(written.iter().map(|(_, number)| number));
            copies.written.insert(file.into(), written);
            text = copy.into();
        }
        if file == lib {
            text.extend(SWITCH.replace("COUNT", &faults.len().max(1).to_string()).bytes());
        }
        let copied = to.join(file);
        if fs::read(&copied).is_ok_and(|there| there == text) {
            continue;
        }
        fs::create_dir_all(copied.parent().ok_or("no folder")?)?;
        fs::write(&copied, text)?;
        fs::set_permissions(&copied, fs::metadata(from.join(file))?.permissions())?;
    }
    Ok(copies)
}

struct Writer<'a> {
    original: &'a str,
    copy: String,
    written: Vec<(Bytes, usize)>,
}

impl Writer<'_> {
    /// Writes `range` with the faults in it, which are sorted so that outer ones come first.
    fn render(&mut self, range: Bytes, mut faults: &[(usize, &Change)]) {
        let mut at = range.start;
        while let Some((&(number, change), rest)) = faults.split_first() {
            let bytes = change.bytes().clone();
            let inner = rest.iter().take_while(|(_, other)| other.bytes().end <= bytes.end).count();
            let (inner, rest) = rest.split_at(inner);
            self.copy.push_str(&self.original[at..bytes.start]);
            let start = self.copy.len();
            self.written.push((0..0, number));
            let slot = self.written.len() - 1;
            match change {
                Change::Instead(_, changed) => {
                    let _ = write!(self.copy, "(if crate::faults_switch::is({number}) {{ {changed} }} else {{ ");
                    self.written.push((start..self.copy.len(), number));
                    self.render(bytes.clone(), inner);
                    self.copy.push_str(" })");
                }
                Change::Returns(_, value) => {
                    let _ = write!(self.copy, "{{ if crate::faults_switch::is({number}) {{ return {value}; }} ");
                    self.written.push((start..self.copy.len(), number));
                    self.render(bytes.clone(), inner);
                    self.copy.push_str(" }");
                }
                Change::Gone(_) if bytes.is_empty() => {
                    let _ = write!(self.copy, " if !crate::faults_switch::is({number})");
                }
                Change::Gone(_) => {
                    let _ = write!(self.copy, "!crate::faults_switch::is({number}) && (");
                    self.render(bytes.clone(), inner);
                    self.copy.push(')');
                }
            }
            self.written[slot].0 = start..self.copy.len();
            at = bytes.end;
            faults = rest;
        }
        self.copy.push_str(&self.original[at..range.end]);
    }
}

/// Says which fault is on, and notes which ones are met.
const SWITCH: &str = r#"
#[doc(hidden)]
pub mod faults_switch {
    #![allow(missing_docs)]
    use std::io::Write;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    static MET: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    static CHOSEN: LazyLock<usize> =
        LazyLock::new(|| std::env::var("FAULT").ok().and_then(|number| number.parse().ok()).unwrap_or(usize::MAX));
    static NOTES: LazyLock<Option<std::fs::File>> = LazyLock::new(|| {
        std::fs::OpenOptions::new().append(true).create(true).open(std::env::var_os("FAULTS_MET")?).ok()
    });
    pub fn is(number: usize) -> bool {
        if !MET[number].load(Relaxed) && !MET[number].swap(true, Relaxed) {
            if let Some(mut notes) = NOTES.as_ref() {
                let _ = notes.write_all(format!("{number}\n").as_bytes());
            }
        }
        number == *CHOSEN
    }
}
"#;
