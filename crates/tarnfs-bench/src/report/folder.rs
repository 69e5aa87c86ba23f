//! The folder of a report.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::Error;

use super::{Report, draw, page};

/// Where a report is to go. Made before anything is measured, so that a wrong name is told then.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Where it is written. Dropped, it is removed.
    temporary: Option<PathBuf>,
}

impl Folder {
    /// A folder of that name that is not there yet, or is empty.
    pub fn new(path: &Path) -> Result<Self, Error> {
        match path.read_dir().map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => {
                return Err(Error::Usage(format!("{}: is not empty; give the report a new folder", path.display())));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::at(path)(error)),
        }
        let name = path.file_name().ok_or_else(|| Error::Usage(format!("{}: has no name", path.display())))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let temporary = path.with_file_name(hidden);
        fs::create_dir(&temporary).map_err(Error::at(path))?;
        Ok(Self { path: path.to_owned(), temporary: Some(temporary) })
    }

    /// Writes it. The folder gets its name when all is in it.
    pub fn write(mut self, report: &Report) -> Result<(), Error> {
        if let Some(temporary) = &self.temporary {
            report.write(temporary)?;
            // An empty folder is replaced. Whatever else is there by now stays.
            fs::rename(temporary, &self.path).map_err(Error::at(&self.path))?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nobody is left who could be told.
            let _ = fs::remove_dir_all(temporary);
        }
    }
}

impl Report {
    fn write(&self, folder: &Path) -> Result<(), Error> {
        let file = |name: &str, content: &[u8]| {
            let path = folder.join(name);
            File::create_new(&path)
                .and_then(|mut file| io::Write::write_all(&mut file, content))
                .map_err(Error::at(&path))
        };
        for table in self.tables() {
            file(&format!("{}.tsv", table.name), table.tsv().as_bytes())?;
        }
        for plot in self.plots() {
            file(&format!("{}.svg", plot.name), draw::svg(plot)?.as_bytes())?;
            file(&format!("{}.png", plot.name), &draw::png(plot)?)?;
        }
        let mut failed = None;
        let page = page::html(self, |plot| {
            draw::svg_in_page(plot).unwrap_or_else(|error| {
                failed = Some(error);
                String::new()
            })
        });
        failed.map_or(Ok(()), Err)?;
        file("index.html", page.as_bytes())?;
        file("report.md", self.markdown().as_bytes())?;
        file("report.txt", self.text().as_bytes())?;
        let json = serde_json::to_string_pretty(&self.json()).map_err(|error| Error::Other(error.to_string()))?;
        file("report.json", json.as_bytes())
    }
}
