use std::io::{self, Write};
use std::path::Path;

use tarnfs_index::ratarmount;
use tarnfs_tree::open::{IndexPlace, Options, Recreate};

use crate::args::{Index, IndexFormat, shown};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::terminal::{harmless, output_failure};

/// Makes the index of each archive, also of those that a mount would not write one for.
pub(crate) fn run(arguments: &Index) -> Result<Code, Failure> {
    inside::each(&arguments.archives, &arguments.open, |archive, options| {
        let mut options = options.clone();
        options.index.minimum_file_count = 0;
        if arguments.format == IndexFormat::Ratarmount && options.shape.recursion.is_some() {
            let what = "--format ratarmount does not go with --recursive: its sidecars keep nothing of compressed archives in archives";
            return Err(Failure::new(Code::Usage, what));
        }
        match arguments.format {
            IndexFormat::Tarnfs => one(archive, &options, &said),
            IndexFormat::Ratarmount => for_ratarmount(archive, &options, arguments.open.index_folders.is_some()),
        }
    })
}

/// Says on standard output what was made.
fn said(what: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{}", harmless(what)).map_err(|error| output_failure(&error))
}

/// Makes the index of `archive`, unless there is one, and says so through `say`. Fails if it cannot be written.
pub(crate) fn one(
    archive: &Path,
    options: &Options,
    say: &dyn Fn(&str) -> Result<(), Failure>,
) -> Result<Code, Failure> {
    // A sidecar of ratarmount is not what was asked for, unless nothing may be made.
    let use_sidecars = options.index.recreate == Recreate::Never;
    let mut options = options.clone();
    options.index.use_sidecars = use_sidecars;
    options.index.is_required = true;
    let options = &options;
    let (opened, code) = inside::open_with(archive, options)?;
    match opened.index_path {
        Some(path) if opened.is_new => {
            say(&format!("{}: index written to {}", shown(archive.as_os_str()), shown(path.as_os_str())))?;
        }
        Some(path) => {
            say(&format!("{}: its index {} is up to date", shown(archive.as_os_str()), shown(path.as_os_str())))?;
        }
        None if options.index.place == IndexPlace::Memory => {}
        None => {
            let what = "no index was written: the one that is there is kept";
            return Err(Failure::new(Code::Index, format!("{}: {what}", shown(archive.as_os_str()))));
        }
    }
    Ok(code)
}

/// `is_named`: the folders for it were named, and it goes nowhere else.
fn for_ratarmount(archive: &Path, options: &Options, is_named: bool) -> Result<Code, Failure> {
    if options.remotes_for(archive).is_some() {
        let what = "is a URL: an index for ratarmount is made beside a file of this machine";
        return Err(Failure::new(Code::Usage, format!("{}: {what}", shown(archive.as_os_str()))));
    }
    let destinations = match &options.index.place {
        IndexPlace::File(path) => vec![path.clone()],
        IndexPlace::Folders(folders) => {
            let most = if is_named { folders.len() } else { usize::MAX };
            ratarmount::candidates(archive, folders).into_iter().take(most).collect()
        }
        IndexPlace::Memory | IndexPlace::Url(_) => {
            return Err(Failure::new(Code::Usage, "an index for ratarmount needs a file"));
        }
    };
    let mut options = options.clone();
    if matches!(options.index.place, IndexPlace::File(_)) {
        options.index.place = IndexPlace::Memory;
    }
    // Who asked for a sidecar gets that alone; an index of our own that is there already saves reading the archive.
    options.index.is_written = false;
    // One that was made with -r has streams for which there is no place in a sidecar.
    options.index.without_archives_as_files = true;
    let (opened, code) = inside::open_with(archive, &options)?;
    let mut tried = Vec::new();
    for destination in destinations {
        match ratarmount::write_until(&opened.index, archive, &destination, &options.cancel) {
            Ok(()) => {
                said(&format!("{}: index written to {}", shown(archive.as_os_str()), shown(destination.as_os_str())))?;
                return Ok(code);
            }
            // Anywhere.
            Err(error @ tarnfs_index::Error::Foreign(_)) => {
                return Err(Failure::new(Code::Index, format!("{}: {error}", shown(archive.as_os_str()))));
            }
            Err(_) if options.cancel.is_cancelled() => {
                return Err(Failure::new(Code::Interrupted, format!("{}: interrupted", shown(archive.as_os_str()))));
            }
            Err(error) => tried.push(format!("writing {}: {error}", destination.display())),
        }
    }
    Err(Failure::new(Code::Index, format!("{}: {}", shown(archive.as_os_str()), tried.join("; "))))
}
