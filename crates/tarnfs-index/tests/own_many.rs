//! A process may have very many indexes open. (What limits SQLite's memory limits the whole process, so this is a test
//! binary of its own, with one test.)

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test that overflows or finds an error fails"
)]

mod common;

use std::sync::Arc;

use common::{entry, summary};
use tarnfs_format::Kind;
use tarnfs_index::{Destination, Index, Node, Writer, WriterOptions};
use tarnfs_source::{Budget, Cancel, Limits};

const COUNT: u64 = 600;

fn one(number: u64, budget: &Budget) -> Arc<dyn Index> {
    let options = WriterOptions { limits: Limits::default(), budget: budget.clone(), cancel: Cancel::default() };
    let mut writer = Writer::new(options).unwrap();
    writer.add(&entry(number, Kind::File, format!("d/{number}").as_bytes(), b"")).unwrap();
    writer.finish(summary(), &Destination::Memory).unwrap()
}

fn answers(number: u64, index: &dyn Index) {
    let folder = index.lookup(Node::ROOT, b"d").unwrap().unwrap();
    let mut names = Vec::new();
    index
        .children(folder.node, 0, &mut |_, name, row| {
            names.push((name.to_vec(), row.header));
            true
        })
        .unwrap();
    assert_eq!(names, [(number.to_string().into_bytes(), Some(number << 20))]);
}

#[test]
fn many_indexes_need_few_connections() {
    let limiting = rusqlite::Connection::open_in_memory().unwrap();
    // A limit can be lowered, never raised: that of the indexes' own connections has no effect from here on.
    let limit = |bytes: i64| {
        let set: i64 = limiting.query_row(&format!("PRAGMA hard_heap_limit = {bytes}"), [], |row| row.get(0)).unwrap();
        assert_eq!(set, bytes);
    };
    limit(24 << 20);
    let budget = Budget::new(256 << 20);
    let indexes: Vec<_> = (0..COUNT).map(|number| one(number, &budget)).collect();
    for _ in 0..2 {
        for (number, index) in (0..).zip(&indexes) {
            answers(number, &**index);
        }
    }
    // Each takes as much of the memory budget as it has bytes.
    let each = budget.used() as u64 / COUNT;
    assert!((1000..32_000).contains(&each), "{each} bytes for each of {COUNT} indexes");
    // Less than what the waiting connections have by now, enough for one.
    limit(1 << 20);
    answers(7, &*indexes[7]);
    answers(599, &*indexes[599]);
    drop(indexes);
    assert_eq!(budget.used(), 0);
}
