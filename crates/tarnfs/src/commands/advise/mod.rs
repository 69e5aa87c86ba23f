//! `tarnfs advise`: which compression is best for a folder or an archive, from a sample of it.

mod advice;
mod measure;
mod quote;
mod sample;
pub(super) mod target;
mod told;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarnfs_source::{Budget, Cancel};
use tarnfs_write::Target;

use crate::args::{Advise, shown};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::signals::Ending;
use crate::terminal::{self, Output, output_failure};
use advice::Advice;
use measure::{Machine, Measured};
use sample::Sample;
use target::Input;
use told::Told;

/// Memory where nobody knows how much there is; as `tarnfs create` has it.
const MEMORY: u64 = 1 << 30;

/// Says what to use, and how.
pub(crate) fn run(arguments: &Advise) -> Result<Code, Failure> {
    let path = arguments.path.as_path();
    inside::not_standard_input(path)?;
    if path.is_dir() {
        let ending = Ending::default();
        ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
        let tree = inside::open_folder(path)?;
        let cancel = ending.cancel();
        let sample = sample::of_tree(&*tree, &cancel).map_err(|error| inside::failure(path, b"", &error))?;
        return tell(arguments, &Input::Folder(path), &sample, (None, Code::Success), &cancel);
    }
    let (opened, code, locked, cancel) = inside::open_to_sample(path, &arguments.open)?;
    let from_input = |file: &PathBuf| file.as_os_str() == "-";
    if !arguments.open.password.is_empty() || arguments.open.password_files().any(from_input) {
        log::warn!("{}: what is printed is without the password", shown(path.as_os_str()));
    }
    if let Some(locked) = locked {
        log::warn!("{}: {}", shown(path.as_os_str()), inside::not_encrypted_any_more(&locked));
    }
    let summary = opened.index.summary();
    let has_tree = Target::plain().container().is_some_and(|container| summary.format == container.name());
    let is_single = tarnfs_format::by_name(&summary.format).is_none();
    // Of these, only the compression changes, as `tarnfs convert` has it.
    let keeps_stream = (has_tree || is_single) && summary.shape.recursion.is_none();
    let sample = if keeps_stream {
        sample::of_stream(&*opened.stream, (summary.files, summary.bytes), &cancel)
            .map_err(|error| inside::failure(path, b"", &error.into()))
    } else {
        sample::of_tree(&inside::tree(&opened), &cancel).map_err(|error| inside::failure(path, b"", &error))
    }?;
    let input = Input::Archive {
        path,
        open: &arguments.open,
        is_single: is_single && keeps_stream,
        is_plain: keeps_stream && summary.layers.is_empty(),
    };
    tell(arguments, &input, &sample, (Some(summary.archive.length), code), &cancel)
}

/// `now` is how long the archive is, and `code` what opening it gave.
fn tell(
    arguments: &Advise,
    input: &Input<'_>,
    sample: &Sample,
    (now, code): (Option<u64>, Code),
    cancel: &Cancel,
) -> Result<Code, Failure> {
    let path = arguments.path.as_path();
    warn(path, sample);
    if sample.says_little() {
        let what = "most of what was to be tried cannot be read, so there is no advice";
        let code = if code == Code::Success { Code::CannotOpen } else { code };
        return Err(Failure::new(code, format!("{}: {what}", shown(path.as_os_str()))));
    }
    if sample.total == 0 {
        let what = "it is empty: there is nothing to compress";
        return Err(Failure::new(Code::Failure, format!("{}: {what}", shown(path.as_os_str()))));
    }
    // What comes before and after takes some time, too.
    let time = Duration::from_millis(u64::from(arguments.seconds) * 800);
    terminal::tell(&format!("compressing a sample, which takes about {} s", arguments.seconds));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if arguments.threads == 0 { cores } else { arguments.threads };
    let memory = Budget::memory_of_this_machine().map_or(MEMORY, |all| all / 4);
    let results = measure::measure(sample, &Machine { threads, memory, time }, cancel)
        .map_err(|error| inside::failure(path, b"", &error.into()))?;
    let nothing = || Failure::new(Code::Failure, format!("{}: nothing could be measured", shown(path.as_os_str())));
    let advice = Advice::of_results(&results, threads).ok_or_else(nothing)?;
    let command = |one: &Measured| input.command(one.compression, one.level, arguments.threads);
    let told = Told { path, sample, results: &results, advice: &advice, now, command: &command };
    let mut out = Output::new();
    let written = if arguments.json {
        out.json(&told.json())
    } else {
        let table = if arguments.verbose { told.table(&mut out) } else { Ok(()) };
        table.and_then(|()| told.lines(&mut out, arguments.purpose))
    };
    written.and_then(|()| out.flush()).map_err(|error| output_failure(&error)).map(|()| code)
}

/// Says why the sample may not stand for all of it.
fn warn(path: &Path, sample: &Sample) {
    let name = shown(path.as_os_str());
    match sample.unreadable {
        0 => {}
        1 => log::warn!("{name}: one file, folder or part of it cannot be read, and the advice is for the others"),
        more => log::warn!("{name}: {more} files, folders or parts cannot be read, and the advice is for the others"),
    }
    if sample.is_cut {
        log::warn!("{name}: it is so large that only some of its folders were looked at");
    }
}
