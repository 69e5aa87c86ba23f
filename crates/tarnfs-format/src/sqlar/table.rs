//! The table, and which of its columns are which.

use std::io;

use tarnfs_source::Cancel;

use super::NAME;
use super::pages::Pages;
use super::row::{self, ValueKind};

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

/// Finds the table in the list of all tables, which begins at the first page.
pub(super) fn find(pages: &mut Pages<'_>, cancel: &Cancel) -> io::Result<Option<Table>> {
    let (text, mut found) = (pages.database.text, None);
    let mut damage = None;
    pages.rows::<io::Error>(
        1,
        cancel,
        &mut |cell, page, at| {
            let start = usize::try_from(cell.at.saturating_sub(at)).unwrap_or(usize::MAX);
            let row = page.get(start..start.saturating_add(cell.local as usize)).unwrap_or_default();
            // type, name, tbl_name, rootpage, sql. That of another table may go on elsewhere.
            let Some([kind, name, _, root, sql]) =
                row::values(row, cell.length).and_then(|values| values.first_chunk::<5>().copied())
            else {
                return Ok(());
            };
            let bytes = |value: row::Value| {
                let at = usize::try_from(value.at).ok()?;
                row.get(at..at.checked_add(usize::try_from(value.length).ok()?)?)
            };
            let word = |value: row::Value| {
                let bytes = bytes(value).filter(|_| value.kind == ValueKind::Text)?;
                Some(row::decoded(text, bytes.to_vec()))
            };
            let is_it = word(kind).is_some_and(|kind| kind == b"table")
                && word(name).is_some_and(|name| name.eq_ignore_ascii_case(NAME.as_bytes()));
            if is_it && let Some(sql) = word(sql) {
                let root = bytes(root).and_then(|bytes| u32::try_from(root.number(bytes)?).ok());
                let columns = columns(&String::from_utf8_lossy(&sql));
                found = found.or(root.filter(|root| *root > 0).zip(columns));
            }
            Ok(())
        },
        &mut |_, error| {
            damage.get_or_insert(error);
            Ok(())
        },
    )?;
    match (found, damage) {
        (None, Some(error)) => Err(error),
        (found, _) => Ok(found.map(|(root, columns)| Table { root, columns })),
    }
}

/// The places of [`COLUMNS`] in a table that was made with this statement.
fn columns(sql: &str) -> Option<[usize; 5]> {
    let sql = without_comments(sql);
    let (_, inside) = sql.split_once('(')?;
    let (mut names, mut name, mut depth, mut quote) = (Vec::new(), String::new(), 0_usize, None);
    for letter in inside.chars() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '"' | '`' | '\'') => quote = Some(letter),
            (None, '[') => quote = Some(']'),
            (None, '(') => depth = depth.saturating_add(1),
            (None, ')') if depth == 0 => break,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                names.push(std::mem::take(&mut name));
            }
            _ => name.push(letter),
        }
    }
    names.push(name);
    let first_words: Vec<&str> = names.iter().map(|name| name.split_whitespace().next().unwrap_or_default()).collect();
    let place = |wanted: &str| first_words.iter().position(|name| name.eq_ignore_ascii_case(wanted));
    let mut places = [0; 5];
    for (at, wanted) in places.iter_mut().zip(COLUMNS) {
        *at = place(wanted)?;
    }
    Some(places)
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
        assert_eq!(columns(own), Some([0, 1, 2, 3, 4]));
        let other = "CREATE TABLE \"sqlar\"(id INTEGER PRIMARY KEY, [data] BLOB CHECK(length(data, ',') > 0), `SZ`, mtime, mode, 'name', UNIQUE(name))";
        assert_eq!(columns(other), Some([5, 4, 3, 2, 1]));
        for none in ["", "CREATE TABLE sqlar", "CREATE TABLE sqlar(name, mode, mtime, sz)", "x(((("] {
            assert_eq!(columns(none), None, "{none}");
        }
    }
}
