use std::path::Path;

use tarnfs_index::ratarmount;
use tarnfs_tree::open::{IndexPlace, Options, Recreate};

use crate::args::{Index, IndexFormat, shown};
use crate::exit::{Code, Failure};
use crate::inside;

/// Makes the index of each archive, also of those that a mount would not write one for.
pub(crate) fn run(arguments: &Index) -> Result<Code, Failure> {
    inside::each(&arguments.archives, &arguments.open, |archive, options| {
        let options = Options { minimum_file_count: 0, ..options.clone() };
        if arguments.format == IndexFormat::Ratarmount && options.shape.recursion.is_some() {
            let what = "--format ratarmount does not go with --recursive: its sidecars keep nothing of compressed archives in archives";
            return Err(Failure::new(Code::Usage, what));
        }
        match arguments.format {
            IndexFormat::Tarnfs => one(archive, &options),
            IndexFormat::Ratarmount => for_ratarmount(archive, &options),
        }
    })
}

/// Makes the index of `archive`, unless there is one. Fails if it cannot be written.
pub(crate) fn one(archive: &Path, options: &Options) -> Result<Code, Failure> {
    // A sidecar of ratarmount is not what was asked for, unless nothing may be made.
    let use_sidecars = options.recreate == Recreate::Never;
    let options = &Options { use_sidecars, index_is_required: true, ..options.clone() };
    let (opened, code) = inside::open_with(archive, options)?;
    match opened.index_path {
        Some(path) if opened.is_new => {
            log::info!("{}: index written to {}", shown(archive.as_os_str()), path.display());
        }
        Some(path) => log::info!("{}: its index {} is good", shown(archive.as_os_str()), path.display()),
        None if options.place == IndexPlace::Memory => {}
        None => {
            let what = "no index was written: one that was made with other options is kept";
            return Err(Failure::new(Code::Index, format!("{}: {what}", shown(archive.as_os_str()))));
        }
    }
    Ok(code)
}

fn for_ratarmount(archive: &Path, options: &Options) -> Result<Code, Failure> {
    let destinations = match &options.place {
        IndexPlace::File(path) => vec![path.clone()],
        IndexPlace::Folders(folders) => ratarmount::candidates(archive, folders),
        IndexPlace::Memory => return Err(Failure::new(Code::Usage, "an index for ratarmount needs a file")),
    };
    let options = Options {
        place: match &options.place {
            IndexPlace::File(_) => IndexPlace::Memory,
            other => other.clone(),
        },
        // Who asked for a sidecar gets that alone; an index of our own that is there already saves reading the archive.
        write_index: false,
        ..options.clone()
    };
    let (opened, code) = inside::open_with(archive, &options)?;
    let mut tried = Vec::new();
    for destination in destinations {
        match ratarmount::write(&opened.index, archive, &destination) {
            Ok(()) => {
                log::info!("{}: index written to {}", shown(archive.as_os_str()), destination.display());
                return Ok(code);
            }
            Err(error) => tried.push(format!("writing {}: {error}", destination.display())),
        }
    }
    Err(Failure::new(Code::Index, format!("{}: {}", shown(archive.as_os_str()), tried.join("; "))))
}
