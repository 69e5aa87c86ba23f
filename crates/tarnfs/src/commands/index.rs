use std::path::Path;

use tarnfs_index::ratarmount;

use crate::args::{Index, IndexFormat, shown};
use crate::exit::{Code, Failure};
use crate::inside;

/// Makes the index of each archive, also of those that a mount would not write one for.
pub(crate) fn run(arguments: &Index) -> Result<Code, Failure> {
    let mut worst = Code::Success;
    for archive in &arguments.archives {
        let ending = crate::signals::Ending::default();
        ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
        let mut options = inside::options(&arguments.open, &ending.cancel())?;
        options.minimum_file_count = 0;
        let code = match arguments.format {
            IndexFormat::Tarnfs => one(archive, &options)?,
            IndexFormat::Ratarmount => for_ratarmount(archive, &options)?,
        };
        if code != Code::Success {
            worst = code;
        }
    }
    Ok(worst)
}

fn one(archive: &Path, options: &tarnfs_tree::open::Options) -> Result<Code, Failure> {
    let (opened, code) = inside::open_with(archive, options)?;
    match opened.index_path {
        Some(path) if opened.is_new => {
            log::info!("{}: index written to {}", shown(archive.as_os_str()), path.display())
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
    let destination = match &options.place {
        Place::File(path) => path.clone(),
        Place::Folders(_) => ratarmount::beside(archive),
        Place::Memory => return Err(Failure::new(Code::Usage, "an index for ratarmount needs a file")),
    };
    let options = tarnfs_tree::open::Options {
        place: match &options.place {
            Place::File(_) => Place::Memory,
            other => other.clone(),
        },
        ..options.clone()
    };
    let (opened, code) = inside::open_with(archive, &options)?;
    ratarmount::write(&opened.index, archive, &destination).map_err(|error| {
        Failure::new(Code::Index, format!("{}: writing {}: {error}", shown(archive.as_os_str()), destination.display()))
    })?;
    Ok(code)
}
