//! `tarnfs overlay`: what is in the folder of a write overlay.

mod diff;

use std::io::{self, Write as _};
use std::path::Path;

use tarnfs_tree::{Change, Changed, OverlayStatus};

use crate::args::Overlay;
use crate::exit::{Code, Failure};
use crate::json;
use crate::terminal::{Output, output_failure};

pub(crate) fn run(arguments: &Overlay) -> Result<Code, Failure> {
    match arguments {
        Overlay::Status { folder, json } => status(folder, *json),
        Overlay::Diff(arguments) => diff::run(arguments),
    }
}

/// Lists what it changes: a letter, and the path in the mount; of something with another name, the one that it has in
/// the archive, an arrow, and the new one.
fn status(folder: &Path, as_json: bool) -> Result<Code, Failure> {
    let failed = |error: tarnfs_tree::OverlayError| Failure::new(Code::CannotOpen, error.to_string());
    let status = OverlayStatus::open(folder).map_err(failed)?;
    let mut out = Output::new();
    let mut written = Ok(());
    status
        .each(&mut |changed| {
            written = if as_json { out.json(&json::of_change(&status, &changed)) } else { put(&mut out, &changed) };
            written.is_ok()
        })
        .map_err(failed)?;
    written.and_then(|()| out.flush()).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}

/// One line.
fn put(out: &mut Output, changed: &Changed) -> io::Result<()> {
    write!(out, "{} ", changed.change.letter())?;
    if let Some(from) = changed.from.as_ref().filter(|_| changed.change == Change::Renamed) {
        out.name_in_line(from)?;
        write!(out, " -> ")?;
    }
    out.name_in_line(&changed.path)?;
    if changed.is_folder() && changed.path.as_slice() != b"/" {
        write!(out, "/")?;
    }
    writeln!(out)
}
