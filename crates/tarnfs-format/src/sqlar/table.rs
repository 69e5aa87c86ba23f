//! The table, and which of its columns are which.

use std::io;

use tarnfs_source::Cancel;

use super::NAME;
use super::pages::{Pages, Text};
use super::row::{self, Value, ValueKind};
use crate::image::is_damage;

/// The columns that are wanted.
const COLUMNS: [&str; 5] = ["name", "mode", "mtime", "sz", "data"];

/// The table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Table {
    /// The page at which its tree begins.
    pub(super) root: u32,
    /// Of [`COLUMNS`], the place of each in a row.
    pub(super) columns: [usize; 5],
}

/// What is in the list of all that a database has.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) table: Option<Table>,
    /// The table has columns beside those that are wanted, or rules.
    pub(super) has_more_columns: bool,
    /// Tables, indexes, views and triggers beside it.
    pub(super) others: u64,
    /// What is wrong with the list.
    damage: Option<io::Error>,
}

/// Bytes of what a row of the list tells: of a statement that makes a table of five columns it is some hundred.
const LONGEST: usize = 32 << 10;

/// Rows that may tell of the table, and go on in other pages: only a table has its name, so there are few.
const MOST_LONG: usize = 16;

/// Finds the table in the list of all tables, which begins at the first page.
pub(super) fn find(pages: &mut Pages<'_>, cancel: &Cancel) -> io::Result<Option<Table>> {
    match list(pages, cancel)? {
        Listed { table: None, damage: Some(error), .. } => Err(error),
        Listed { table, .. } => Ok(table),
    }
}

/// All that the database has; `None` where its list cannot be read.
pub(super) fn listed(pages: &mut Pages<'_>, cancel: &Cancel) -> io::Result<Option<Listed>> {
    Ok(Some(list(pages, cancel)?).filter(|listed| listed.damage.is_none()))
}

fn list(pages: &mut Pages<'_>, cancel: &Cancel) -> io::Result<Listed> {
    let (text, mut listed, mut damage) = (pages.database.text, Listed::default(), None);
    let mut long = Vec::new();
    pages.rows::<io::Error>(
        1,
        cancel,
        &mut |cell, page, at| {
            let start = usize::try_from(cell.at.saturating_sub(at)).unwrap_or(usize::MAX);
            let row = page.get(start..start.saturating_add(cell.local as usize)).unwrap_or_default();
            if listed.take(text, row, cell.length) {
                return Ok(());
            }
            match cell.next.filter(|_| long.len() < MOST_LONG) {
                Some(next) => long.push((row.to_vec(), next, cell.length)),
                None => listed.others = listed.others.saturating_add(1),
            }
            Ok(())
        },
        &mut |_, error| {
            damage.get_or_insert(error);
            Ok(())
        },
    )?;
    for (mut row, next, length) in long {
        let wanted = usize::try_from(length).unwrap_or(usize::MAX).min(LONGEST);
        match pages.listed(next, wanted.saturating_sub(row.len())) {
            Ok(rest) => row.extend(rest),
            Err(error) if is_damage(&error) => {
                damage.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
        if !listed.take(text, &row, length) {
            listed.others = listed.others.saturating_add(1);
        }
    }
    Ok(Listed { damage, ..listed })
}

impl Listed {
    /// Takes a row that begins so, and has `length` bytes in all. False if more of them are needed to tell what it is.
    fn take(&mut self, text: Text, row: &[u8], length: u64) -> bool {
        // type, name, tbl_name, rootpage, sql.
        let values = row::values(row, length).and_then(|values| values.first_chunk::<5>().copied());
        let bytes = |value: Value| {
            let at = usize::try_from(value.at).ok()?;
            row.get(at..at.checked_add(usize::try_from(value.length).ok()?)?)
        };
        let is = |value: Value, wanted: &str| {
            let bytes = bytes(value).filter(|_| value.kind == ValueKind::Text).unwrap_or_default();
            row::decoded(text, bytes.to_vec()).eq_ignore_ascii_case(wanted.as_bytes())
        };
        let Some([kind, name, of, root, sql]) = values else {
            self.others = self.others.saturating_add(1);
            return true;
        };
        if [kind, name, of, root].into_iter().any(|value| bytes(value).is_none()) {
            return false;
        }
        // What SQLite makes itself for the key of a table has no statement.
        if is(kind, "index") && is(of, NAME) && sql.kind == ValueKind::Null {
            return true;
        }
        if !(is(kind, "table") && is(name, NAME)) {
            self.others = self.others.saturating_add(1);
            return true;
        }
        let Some(statement) = bytes(sql) else { return false };
        let root = bytes(root).and_then(|bytes| u32::try_from(root.number(bytes)?).ok()).filter(|root| *root > 0);
        let statement = row::decoded(text, statement.to_vec());
        let columns = columns(&String::from_utf8_lossy(&statement)).filter(|_| sql.kind == ValueKind::Text);
        if let (None, Some(root), Some((columns, has_more))) = (self.table, root, columns) {
            (self.table, self.has_more_columns) = (Some(Table { root, columns }), has_more);
        }
        true
    }
}

/// The places of [`COLUMNS`] in a table that was made with this statement, and whether it has others, or rules.
fn columns(sql: &str) -> Option<([usize; 5], bool)> {
    let sql = without_comments(sql);
    let (_, inside) = sql.split_once('(')?;
    let (mut names, mut name, mut depth, mut quote) = (Vec::new(), String::new(), 0_usize, None);
    // Of the column that is read, what stands in no quotes and no brackets, with a `(` where one opens.
    let (mut plain, mut count) = (String::new(), 0_usize);
    let mut end = |name: String, plain: String| {
        count = count.saturating_add(1);
        if !is_virtual(&plain) {
            names.push(name);
        }
    };
    for letter in inside.chars() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '"' | '`' | '\'') => quote = Some(letter),
            (None, '[') => quote = Some(']'),
            (None, '(') => {
                if depth == 0 {
                    plain.push_str(" ( ");
                }
                depth = depth.saturating_add(1);
            }
            (None, ')') if depth == 0 => break,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                end(std::mem::take(&mut name), std::mem::take(&mut plain));
            }
            _ => {
                name.push(letter);
                if depth == 0 {
                    // What is quoted is no keyword.
                    plain.push(if quote.is_none() { letter } else { '_' });
                }
            }
        }
    }
    end(name, plain);
    let first_words: Vec<&str> = names.iter().map(|name| name.split_whitespace().next().unwrap_or_default()).collect();
    let place = |wanted: &str| first_words.iter().position(|name| name.eq_ignore_ascii_case(wanted));
    let mut places = [0; 5];
    for (at, wanted) in places.iter_mut().zip(COLUMNS) {
        *at = place(wanted)?;
    }
    Some((places, count > COLUMNS.len()))
}

/// True of a column that no row has, as it is computed when it is read: `AS (...)` without `STORED` behind it. `plain`
/// is its definition without what stands in quotes and brackets.
fn is_virtual(plain: &str) -> bool {
    let mut words = plain.split_whitespace();
    let is_computed = words
        .by_ref()
        .zip(plain.split_whitespace().skip(1))
        .any(|(one, next)| one.eq_ignore_ascii_case("as") && next == "(");
    is_computed && !words.any(|word| word.eq_ignore_ascii_case("stored"))
}

/// A statement without comments: those up to the end of a line, and those in `/* */`.
fn without_comments(sql: &str) -> String {
    let (mut rest, mut kept) = (sql, String::new());
    while let Some(at) = rest.find("--").into_iter().chain(rest.find("/*")).min() {
        let (before, comment) = rest.split_at(at);
        kept.push_str(before);
        kept.push(' ');
        let end = if comment.starts_with('-') { '\n'.to_string() } else { "*/".to_owned() };
        rest = comment.split_once(end.as_str()).map_or("", |(_, behind)| behind);
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_their_names() {
        let own = "CREATE TABLE sqlar(\n  name TEXT PRIMARY KEY,  -- name, of the file\n  mode INT, /* (of it) */\n  mtime INT,\n  sz INT,\n  data BLOB -- )\n)";
        assert_eq!(columns(own), Some(([0, 1, 2, 3, 4], false)));
        let other = "CREATE TABLE \"sqlar\"(id INTEGER PRIMARY KEY, [data] BLOB CHECK(length(data, ',') > 0), `SZ`, mtime, mode, 'name', UNIQUE(name))";
        assert_eq!(columns(other), Some(([5, 4, 3, 2, 1], true)));
        // What is computed when it is read is in no row; what is stored is.
        let computed =
            |how: &str| format!("CREATE TABLE sqlar(name TEXT, ext TEXT {how}, mode INT, mtime INT, sz INT, data)");
        for (how, places) in [
            ("AS (substr(name, -3)) VIRTUAL", [0, 1, 2, 3, 4]),
            ("GENERATED ALWAYS AS(lower(name))", [0, 1, 2, 3, 4]),
            ("as ('STORED')", [0, 1, 2, 3, 4]),
            ("AS (substr(name, -3)) STORED", [0, 2, 3, 4, 5]),
            ("DEFAULT 'as ('", [0, 2, 3, 4, 5]),
            ("CHECK(CAST(ext AS INT) > 0)", [0, 2, 3, 4, 5]),
        ] {
            assert_eq!(columns(&computed(how)), Some((places, true)), "{how}");
        }
        for none in [
            "",
            "CREATE TABLE sqlar",
            "CREATE TABLE sqlar(name, mode, mtime, sz)",
            "CREATE TABLE sqlar(name, mode, mtime, sz AS (1), data)",
            "x((((",
        ] {
            assert_eq!(columns(none), None, "{none}");
        }
    }
}
