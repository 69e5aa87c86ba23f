use std::ops::Deref;

use rusqlite::Connection;

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
        Ok(Self { connection, patience })
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
