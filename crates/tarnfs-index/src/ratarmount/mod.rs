//! The sidecars of ratarmount (`<archive>.index.sqlite`), as they are: schema 0.5 to 0.7 of its backend
//! `SQLiteIndexedTar`, which holds tar archives and single files, plain or in gzip, bzip2, xz or zstd.
//!
//! [`open`] makes an [`Index`](crate::Index) of one, [`write`] makes one of any index. What the schema does not hold,
//! tarnfs cannot know from it: times finer than a double, link counts, device numbers and the maps of sparse files
//! (these two are read from the archive's headers), names of owners, checksums.
//!
//! [`rows`]: the table `files`. [`reader`]: the index made of it; [`links`]: its hard links. [`validity`]: does it
//! belong to the archive? [`header`]: what the archive's own headers say. [`chunks`]: where decoding can start, from
//! [`gztool`], [`gzidx`] (both read [`points`]) or the tables of blocks, and of xz from its own index ([`xz_blocks`]).
//! [`writer`] and [`compressed`]: the way back. [`places`]: where they lie. [`packed`]: those that are compressed.

mod chunks;
mod compressed;
mod connections;
mod gzidx;
mod gztool;
mod header;
mod links;
mod packed;
mod places;
mod points;
mod reader;
mod rows;
mod validity;
mod writer;
mod xz_blocks;

pub use packed::PACKED;
pub use places::{SUFFIX, beside, candidates, may_be_one, packed_beside};
pub use reader::{Expected, open, open_alone, open_source};
pub use writer::{write, write_until};

/// A number that cannot be negative.
fn unsigned(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(index)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, number))
}
