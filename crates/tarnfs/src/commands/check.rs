use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use tarnfs_index::Index;
use tarnfs_tree::open::{IndexPlace, Options, Recreate};

use crate::args::{Check, shown};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::terminal::{escaped, output_failure};

/// Reads each archive from its start to its end, says on standard output what is damaged, and compares what was found
/// with its index.
pub(crate) fn run(arguments: &Check) -> Result<Code, Failure> {
    inside::each(&arguments.archives, &arguments.open, one)
}

fn one(archive: &Path, options: &Options) -> Result<Code, Failure> {
    let name = shown(archive.as_os_str());
    let fresh =
        Options { place: IndexPlace::Memory, recreate: Recreate::Always, decoded_cache: None, ..options.clone() };
    let fresh = inside::open_quietly(archive, &fresh)?;
    let summary = fresh.index.summary();
    let mut lines = Vec::new();
    let mut notes: Vec<_> = summary.notes.iter().collect();
    notes.sort();
    for (offset, what) in notes {
        lines.push(format!("{name}: damaged at byte {offset}: {}", escaped(what.as_bytes())));
    }
    let mut code = if lines.is_empty() { Code::Success } else { Code::Damaged };
    if lines.is_empty() {
        let decoded = if summary.layers.is_empty() { "" } else { " decoded" };
        let length = summary.layers.last().map_or(summary.archive.length, |layer| layer.decoded_length);
        lines.push(format!("{name}: whole: {} files, {length} bytes{decoded}", summary.files));
    }
    let existing = Options { recreate: Recreate::Never, decoded_cache: None, ..options.clone() };
    match inside::open_quietly(archive, &existing) {
        Ok(opened) => {
            let path = opened.index_path.as_deref().unwrap_or(Path::new("")).as_os_str().to_owned();
            match difference(&opened.index, &fresh.index) {
                Ok(None) => log::info!("{name}: its index {} is right", shown(&path)),
                Ok(Some(what)) => {
                    lines.push(format!("{name}: its index {} is wrong: {what}; make it again with -c", shown(&path)));
                    code = if code == Code::Success { Code::Index } else { code };
                }
                Err(error) => {
                    return Err(Failure::new(Code::Index, format!("{name}: reading {}: {error}", shown(&path))));
                }
            }
        }
        Err(failure) if failure.code == Code::Index => log::info!("{failure}"),
        Err(failure) => return Err(failure),
    }
    lines.iter().try_for_each(|line| writeln!(io::stdout(), "{line}")).map_err(|error| output_failure(&error))?;
    Ok(code)
}

/// How the index that was `there` differs from the one that was just made.
fn difference(there: &Arc<dyn Index>, fresh: &Arc<dyn Index>) -> Result<Option<String>, tarnfs_index::Error> {
    let (old, new) = (there.summary(), fresh.summary());
    if (old.files, old.bytes, old.end) != (new.files, new.bytes, new.end) {
        let totals = |of: &tarnfs_index::Summary| format!("{} files with {} bytes", of.files, of.bytes);
        return Ok(Some(format!("it has {}, the archive {}", totals(old), totals(new))));
    }
    for (number, (old_layer, new_layer)) in old.layers.iter().zip(&new.layers).enumerate() {
        if old_layer != new_layer {
            let (old, new) = (old_layer.decoded_length, new_layer.decoded_length);
            return Ok(Some(format!("it says that {old} bytes are compressed in the archive, there are {new}")));
        }
        let tables = (Arc::clone(there).chunks(number)?, Arc::clone(fresh).chunks(number)?);
        let mut position = 0;
        while position < new_layer.decoded_length {
            let (Some(old), Some(new)) = (tables.0.chunk_at(position)?, tables.1.chunk_at(position)?) else {
                return Ok(Some(format!("it has no seek point for decoded byte {position}")));
            };
            let is_same_chunk = (old.point.decoded, old.length) == (new.point.decoded, new.length);
            // Other seek points, such as those of another spacing, have other pieces.
            if is_same_chunk && !old.checksums.is_empty() && old.checksums != new.checksums {
                return Ok(Some(format!("its checksums of what lies behind decoded byte {position} do not match")));
            }
            position = new.point.decoded.saturating_add(new.length).max(position + 1);
        }
    }
    Ok(None)
}
