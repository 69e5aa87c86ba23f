//! Connections to one sidecar.

use std::ops::Deref;

use rusqlite::Connection;

use super::validity;
use crate::Error;
use crate::pool::{Pool, Pooled};
use crate::sqlite::{Patience, open_untrusted};
use crate::vfs::Opened;

/// Connections to one sidecar.
pub(super) type Connections = Pool<Session>;

/// One connection.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    patience: Patience,
    /// `files` says which rows were generated (since 0.6).
    pub(super) has_generated: bool,
}

impl Session {
    /// Allows a long query to go on: to be called at each of its rows.
    pub(super) fn renew(&self) {
        self.patience.renew();
    }
}

impl Pooled for Session {
    fn open(file: &Opened, cache: u32) -> Result<Self, Error> {
        let (connection, patience) = open_untrusted(file, cache)?;
        // Each of them: it reads the schema anew, and the file's owner may have changed it in place meanwhile.
        let has_generated = validity::check_schema(&connection)?;
        Ok(Self { connection, patience, has_generated })
    }

    fn patience(&self) -> &Patience {
        &self.patience
    }
}

impl Deref for Session {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}
