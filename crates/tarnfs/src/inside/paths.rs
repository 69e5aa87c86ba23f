//! What a command was asked for in an archive.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tarnfs_tree::{Attributes, Tree};

use super::{failure, find};
use crate::exit::{Code, Failure};
use crate::globs;
use crate::terminal::{self, Colour};

/// The paths that a command was given. One that cannot be shown is reported, and the command goes on with the others.
pub(crate) struct Paths<'a> {
    archive: &'a Path,
    colour: Colour,
    code: Code,
    has_failed: bool,
}

impl<'a> Paths<'a> {
    /// `code` is that of opening the archive.
    pub(crate) fn new(archive: &'a Path, colour: Colour, code: Code) -> Self {
        Self { archive, colour, code, has_failed: false }
    }

    /// The paths with globs expanded; the root if none was typed.
    pub(crate) fn expand(&mut self, tree: &dyn Tree, typed: &[OsString]) -> Vec<Vec<u8>> {
        if typed.is_empty() {
            return vec![Vec::new()];
        }
        let (mut paths, mut room) = (Vec::new(), globs::ROOM);
        for path in typed {
            match globs::expand(tree, path.as_bytes(), &mut room) {
                Ok(found) => paths.extend(found),
                Err(error) => self.report(&failure(self.archive, path.as_bytes(), &error)),
            }
        }
        paths
    }

    /// [`find`]; `None` if that fails, which was reported.
    pub(crate) fn find(&mut self, tree: &dyn Tree, path: &[u8], follow: bool) -> Option<Attributes> {
        find(tree, self.archive, path, follow).map_err(|failure| self.report(&failure)).ok()
    }

    /// Reports that one of them failed. An error means that there is nobody to go on for.
    pub(crate) fn failed(&mut self, failure: Failure) -> Result<(), Failure> {
        if failure.is_of_output || failure.code == Code::Interrupted {
            return Err(failure);
        }
        self.report(&failure);
        Ok(())
    }

    /// One of them is damaged, and was shown.
    pub(crate) fn damaged(&mut self) {
        self.code = self.code.max(Code::Damaged);
    }

    fn report(&mut self, failure: &Failure) {
        terminal::report(failure, self.colour);
        self.code = self.code.max(failure.code);
        self.has_failed = true;
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The largest of all failures and of opening the archive.
    pub(crate) fn code(&self) -> Code {
        self.code
    }
}
