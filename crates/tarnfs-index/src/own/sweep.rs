//! All entries one after the other, as they lie in the file: the quickest way to count them.

use std::collections::HashMap;
use std::sync::Arc;

use tarnfs_format::{Coder, Kind, Piece};

use crate::sqlite::{broken, with_longer};
use crate::writer::record::more;
use crate::{Error, FIRST_NESTED, Nested, SeekPoints, Swept, pieces};

use super::session::{Class, Session, goes_on, lies, name_of};
use super::{Own, schema};

/// Classes and coders that are known at a time.
const MOST_KNOWN: usize = 4096;

/// What was found, so that it need not be looked for again.
struct Known<K, V>(HashMap<K, V>);

impl<K: Copy + Eq + std::hash::Hash, V: Clone> Known<K, V> {
    fn get(&mut self, key: K, read: impl FnOnce() -> Result<V, Error>) -> Result<V, Error> {
        if let Some(value) = self.0.get(&key) {
            return Ok(value.clone());
        }
        if self.0.len() >= MOST_KNOWN {
            self.0.clear();
        }
        let value = read()?;
        self.0.insert(key, value.clone());
        Ok(value)
    }
}

/// The table of extents, which has its rows in the order of nodes.
struct Maps<'r> {
    session: &'r Session,
    rows: rusqlite::Rows<'r>,
    last: u64,
    /// The row that comes next.
    next: Option<(u64, Vec<u8>)>,
}

impl Maps<'_> {
    fn advance(&mut self) -> Result<(), Error> {
        // Maps of sparse files are passed over, and there may be very many.
        self.session.patience.renew();
        self.next = match self.rows.next().map_err(broken)? {
            None => None,
            Some(row) => {
                let node = goes_on(&mut self.last, row.get(0).map_err(broken)?)?;
                Some((node, row.get(1).map_err(broken)?))
            }
        };
        Ok(())
    }

    /// The map of `node`. Nodes are asked for in their order.
    fn of(&mut self, node: u64) -> Result<Vec<u8>, Error> {
        while self.next.as_ref().is_some_and(|(next, _)| *next < node) {
            self.advance()?;
        }
        match self.next.take_if(|(next, _)| *next == node) {
            Some((_, map)) => {
                self.advance()?;
                Ok(map)
            }
            None => Err(lies(node, "its map is missing")),
        }
    }
}

impl Own {
    /// [`Index::sweep`](crate::Index::sweep).
    pub(super) fn sweep_all(&self, receive: &mut dyn FnMut(&Swept<'_>) -> Result<(), Error>) -> Result<(), Error> {
        // Once: what was handed on must not come again.
        self.pool.with_once(|session| with_longer(&session.connection, || self.sweep_in(session, receive)))
    }

    fn sweep_in(
        &self,
        session: &Session,
        receive: &mut dyn FnMut(&Swept<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let prepare = |sql: &str| session.connection.prepare_cached(sql).map_err(broken);
        // The root is no entry of the archive's.
        let mut query = prepare("SELECT name, rowid, class, header, size FROM entries WHERE rowid > 1 ORDER BY rowid")?;
        let mut maps = prepare("SELECT node, map FROM extents ORDER BY node")?;
        let mut maps = Maps { session, rows: maps.query([]).map_err(broken)?, last: 0, next: None };
        maps.advance()?;
        let mut classes: Known<i64, Class> = Known(HashMap::new());
        let mut coders: Known<u32, Arc<Coder>> = Known(HashMap::new());
        let mut last = 1;
        let mut rows = query.query([]).map_err(broken)?;
        while let Some(row) = rows.next().map_err(broken)? {
            session.patience.renew();
            let number = |column: usize| row.get::<_, i64>(column).map_err(broken);
            let node = goes_on(&mut last, number(1)?)?;
            let class = number(2)?;
            let class = classes.get(class, || session.read_class(class))?;
            let size = u64::try_from(number(4)?).map_err(|_| lies(node, "a length is negative"))?;
            let has_map = class.has(more::EXTENTS);
            let has_pieces = has_map && class.has(more::PIECES) && matches!(class.kind, Kind::File | Kind::Symlink);
            let mut found: Vec<Piece> = Vec::new();
            if has_pieces {
                let header = self.bounds.byte(number(3)?).ok_or_else(|| lies(node, "it has no header"))?;
                let coder_of = |number| coders.get(number, || session.read_coder(number));
                found = pieces::read(&maps.of(node)?, header, size, u64::MAX, coder_of)?;
            }
            receive(&Swept {
                name: name_of(row)?,
                kind: class.kind,
                size: if class.kind == Kind::File { size } else { 0 },
                stream: class.stream,
                is_sparse: has_map && !has_pieces && class.kind == Kind::File,
                pieces: has_pieces.then_some(found.as_slice()),
            })?;
        }
        session.patience.renew();
        Ok(())
    }

    /// [`StreamTables::seek_points`](crate::StreamTables::seek_points).
    pub(super) fn count_seek_points(&self, layer: usize) -> Result<SeekPoints, Error> {
        self.pool.with(|session| {
            let sql = "SELECT decoded, length FROM chunks WHERE layer = ? ORDER BY decoded";
            let mut query = session.connection.prepare_cached(sql).map_err(broken)?;
            let mut rows = query.query([layer as i64]).map_err(broken)?;
            let mut found = SeekPoints { has_checksums: true, ..SeekPoints::default() };
            let mut last = None;
            while let Some(row) = rows.next().map_err(broken)? {
                session.patience.renew();
                let number = |column: usize| row.get::<_, i64>(column).map_err(broken);
                let (decoded, length) = (number(0)?, number(1)?);
                if last.replace(decoded).is_some_and(|last| last >= decoded) {
                    return Err(Error::Broken(format!("the seek points of layer {layer} are out of order")));
                }
                found.add(u64::try_from(length).map_err(|_| Error::Broken("a length is negative".to_owned()))?);
            }
            Ok(found)
        })
    }

    /// [`StreamTables::each_nested`](crate::StreamTables::each_nested).
    pub(super) fn all_nested(&self, receive: &mut dyn FnMut(u32, &Nested)) -> Result<(), Error> {
        // Once: what was handed on must not come again.
        self.pool.with_once(|session| {
            let sql = "SELECT layer, codec, decoded_length, input, start, length FROM layers WHERE layer >= ? \
                       ORDER BY layer";
            let mut query = session.connection.prepare_cached(sql).map_err(broken)?;
            let mut rows = query.query([FIRST_NESTED]).map_err(broken)?;
            let mut last = 0;
            while let Some(row) = rows.next().map_err(broken)? {
                session.patience.renew();
                let wrong = || Error::Broken("a number of a nested stream makes no sense".to_owned());
                let number =
                    |column: usize| u64::try_from(row.get::<_, i64>(column).map_err(broken)?).map_err(|_| wrong());
                let layer = goes_on(&mut last, row.get(0).map_err(broken)?)?;
                let nested = Nested {
                    codec: schema::codec_name(row, 1)?,
                    decoded_length: number(2)?,
                    input: u32::try_from(number(3)?).map_err(|_| wrong())?,
                    start: number(4)?,
                    length: number(5)?,
                };
                receive(u32::try_from(layer).map_err(|_| wrong())?, &nested);
            }
            session.patience.renew();
            Ok(())
        })
    }
}
