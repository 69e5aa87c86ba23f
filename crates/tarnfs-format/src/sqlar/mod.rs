//! SQLite archives: a database with a table `sqlar` (name, mode, mtime, sz, data), a row for each file.
//!
//! `pages` walks the b-tree of a table, `row` takes its rows apart, `table` finds the table and its columns; only
//! `reader` reads the archive. No SQL is run, so nothing in the file is. A row that does not fit into a page goes on in
//! a list of pages: its content is a [`Piece`](crate::Piece) with a codec that walks the list when it is read.
//!
//! What `sqlite3 -Ax` would make is the reference. What a write-ahead log beside the file holds is not read, and
//! neither is what a journal would undo: who opens the file with SQLite once has all of it in the file.
//!
//! The format: <https://www.sqlite.org/sqlar.html>, <https://www.sqlite.org/fileformat2.html>.

mod pages;
mod reader;
mod row;
mod table;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{Error, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted};
use pages::{Database, Pages};

const NAME: &str = "sqlar";

/// Pages that are looked at to find the table, where nothing else says what the file is.
const MOST_OF_SCHEMA: u64 = 64;

/// Databases with a table as the program `sqlite3 -A` makes it.
#[derive(Debug)]
pub struct Sqlar;

impl Format for Sqlar {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "archives of SQLite (sqlite3 -A): compressed and stored, modes, times, links"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".sqlar"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        let Some(database) = Database::read(probe.head(), probe.length()) else { return 0 };
        let mut show = |at: u64, length: usize| Ok(probe.at(at, length));
        let mut pages = Pages::new(database, &mut show, MOST_OF_SCHEMA);
        // The mark, and a name.
        if matches!(table::find(&mut pages, &Cancel::default()), Ok(Some(_))) { 128 + 40 } else { 0 }
    }

    fn head(&self) -> usize {
        64 << 10
    }

    fn told(&self, shown: &Shown) -> Told {
        Told { owner: false, ..Told::all(shown.mtime) }
    }

    fn has_hard_links(&self) -> bool {
        false
    }

    fn encrypted_with(&self, head: &[u8], length: u64) -> Option<&'static str> {
        // Of 1024 random bytes some 250 differ.
        const LEAST: usize = 200;
        let mut seen = [false; 256];
        for &byte in head {
            if let Some(seen) = seen.get_mut(usize::from(byte)) {
                *seen = true;
            }
        }
        let is_noise = seen.iter().filter(|seen| **seen).count() >= LEAST;
        (is_noise && length.is_multiple_of(512)).then_some("SQLCipher (its sqlcipher_export() writes what is in it)")
    }

    fn unlisted(&self, source: &dyn Source, cancel: &Cancel) -> io::Result<Unlisted> {
        let _ = cancel;
        let mut head = [0; 100];
        let read = source.read_at(&mut head, 0)?;
        let has_log = Database::read(head.get(..read).unwrap_or_default(), None).is_some_and(|found| found.has_log);
        let log = "what its write-ahead log holds, if there is one beside it (its name with -wal)".to_owned();
        Ok(Unlisted { others: has_log.then_some(log).into_iter().collect(), ..Unlisted::default() })
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }
}

impl ReadRandom for Sqlar {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
