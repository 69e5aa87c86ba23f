use std::path::Path;

use tarnfs_index::ratarmount;

use crate::args::{Index, IndexFormat, shown};
use crate::exit::{Code, Failure};
use crate::{inside, terminal};

/// Makes the index of each archive, also of those that a mount would not write one for.
pub(crate) fn run(arguments: &Index) -> Result<Code, Failure> {
    let mut worst = Code::Success;
    for archive in &arguments.archives {
        let ending = crate::signals::Ending::default();
        ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
        let mut options = inside::options(&arguments.open, &ending.cancel())?;
        options.minimum_file_count = 0;
        let code = match arguments.format {
            IndexFormat::Tarnfs => one(archive, &options),
            IndexFormat::Ratarmount => for_ratarmount(archive, &options),
        };
        match code {
            Ok(Code::Success) => {}
            Ok(code) => worst = code,
            Err(failure) if failure.code == Code::Interrupted => return Err(failure),
            // The others may be better.
            Err(failure) => {
                worst = failure.code;
                terminal::report(&failure, arguments.open.colour());
            }
        }
    }
    Ok(worst)
}

fn one(archive: &Path, options: &tarnfs_tree::open::Options) -> Result<Code, Failure> {
    let (opened, code) = inside::open_with(archive, options)?;
    match opened.index_path {
        Some(path) if opened.is_new => {
            log::info!("{}: index written to {}", shown(archive.as_os_str()), path.display());
        }
        Some(path) => log::info!("{}: its index {} is good", shown(archive.as_os_str()), path.display()),
        None if options.place == tarnfs_tree::open::Place::Memory => {}
        None => {
            return Err(Failure::new(
                Code::Index,
                format!("{}: the index could not be written anywhere; see --index-folders", shown(archive.as_os_str())),
            ));
        }
    }
    Ok(code)
}

fn for_ratarmount(archive: &Path, options: &tarnfs_tree::open::Options) -> Result<Code, Failure> {
    use tarnfs_tree::open::Place;
    let destinations = match &options.place {
        Place::File(path) => vec![path.clone()],
        Place::Folders(folders) => ratarmount::candidates(archive, folders),
        Place::Memory => return Err(Failure::new(Code::Usage, "an index for ratarmount needs a file")),
    };
    let options = tarnfs_tree::open::Options {
        place: match &options.place {
            Place::File(_) => Place::Memory,
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
