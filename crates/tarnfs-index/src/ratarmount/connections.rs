use std::fmt::Debug;
use std::fs::File;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;
use rusqlite::limits::Limit;

use crate::Error;
use crate::sqlite::{Patience, broken, open_untrusted};
use crate::vfs::Opened;

/// Memory for pages of one connection, in KiB.
const CACHE: u32 = 512;

/// Longest value: gzip's seek points, which ratarmount cuts at 256 MiB.
const LONGEST_VALUE: i32 = (256 << 20) + 4096;

/// Connections that are kept for later; more are closed when they are given back.
const MOST_KEPT: usize = 16;

/// Connections to one file, so that threads need not wait for each other.
pub(super) struct Connections {
    file: Opened,
    free: Mutex<Vec<(Connection, Patience)>>,
}

/// A connection that is given back when dropped.
pub(super) struct Borrowed<'a> {
    owner: &'a Connections,
    /// `None` only while it is dropped.
    connection: Option<(Connection, Patience)>,
}

impl Connections {
    /// Opens the first one.
    pub(super) fn new(file: File) -> Result<Self, Error> {
        let connections = Self { file: Opened::file(file, false), free: Mutex::default() };
        let first = connections.open()?;
        connections.give_back(first);
        Ok(connections)
    }

    fn open(&self) -> Result<(Connection, Patience), Error> {
        let (connection, patience) = open_untrusted(&self.file, CACHE)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE).map_err(broken)?;
        Ok((connection, patience))
    }

    fn give_back(&self, connection: (Connection, Patience)) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MOST_KEPT {
            free.push(connection);
        }
    }

    /// A connection for one query, or for several of a few rows.
    pub(super) fn get(&self) -> Result<Borrowed<'_>, Error> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (connection, patience) = free.map_or_else(|| self.open(), Ok)?;
        patience.renew();
        Ok(Borrowed { owner: self, connection: Some((connection, patience)) })
    }
}

impl Debug for Connections {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connections").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Borrowed<'_> {
    /// Allows a long query to go on: to be called at each of its rows.
    pub(super) fn renew(&self) {
        if let Some((_, patience)) = &self.connection {
            patience.renew();
        }
    }
}

impl Deref for Borrowed<'_> {
    type Target = Connection;

    #[allow(clippy::expect_used, reason = "it is taken out only when this is dropped")]
    fn deref(&self) -> &Connection {
        &self.connection.as_ref().expect("a connection until dropped").0
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.owner.give_back(connection);
        }
    }
}
