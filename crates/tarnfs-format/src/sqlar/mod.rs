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

use crate::window::Window;
use crate::{Error, Fidelity, Format, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted};
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
        let mut head = [0; 100];
        let read = source.read_at(&mut head, 0)?;
        let head = head.get(..read).unwrap_or_default();
        let Some(database) = Database::read(head, Some(source.len())) else { return Ok(Unlisted::unknown()) };
        let mut window = Window::growing(source).until(cancel);
        let mut show = |at: u64, length: usize| window.bytes(at, u64::MAX, length).map(<[u8]>::to_vec);
        let most = source.len().checked_div(database.page.into()).unwrap_or_default().saturating_add(2);
        let listed = table::listed(&mut Pages::new(database, &mut show, most.saturating_mul(2)), cancel)?;
        let Some(listed) = listed else { return Ok(Unlisted::unknown()) };
        let mut others = Vec::new();
        if listed.others > 0 {
            others.push(format!("other tables of the database, views, or the like ({})", listed.others));
        }
        for (is_there, what) in [
            (listed.has_more_columns, "further columns of its table, or rules for them"),
            (database.is_of_program, "numbers with which a program marks its databases"),
            (database.has_log, "what its write-ahead log holds, if there is one beside it (its name with -wal)"),
        ] {
            others.extend(is_there.then(|| what.to_owned()));
        }
        let end = database.end(head).unwrap_or(source.len());
        others.extend(crate::around(source, 0..end, cancel)?);
        Ok(Unlisted::of(others))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Sqlar {
    fn told(&self, shown: &Shown) -> Told {
        Told { owner: false, ..Told::all(shown.mtime) }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl ReadRandom for Sqlar {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
