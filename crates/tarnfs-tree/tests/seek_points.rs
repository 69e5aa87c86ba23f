//! Seek points that lie: of an index of ours, every piece is compared with its checksum, so what is read is right or an
//! error. What is read ends, and takes no more memory than it may.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

mod common;

use std::fs;

use tarnfs_codec::engine::PieceCache;
use tarnfs_source::{Budget, Limits};
use tarnfs_tree::open::{DecodingOptions, IndexOptions, IndexPlace, Options, Recreate};

use common::{archives, memory, open, options, survey};

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }

    /// A value that one might make up for a column, as SQL.
    fn value(&mut self, column: &str) -> String {
        match self.below(9) {
            0 => "0".to_owned(),
            1 => "-1".to_owned(),
            2 => format!("{column} + 1"),
            3 => format!("{column} - 1"),
            4 => format!("{column} * 2"),
            5 => i64::MAX.to_string(),
            6 => format!("{column} + {}", self.below(100_000)),
            7 => format!("(SELECT {column} FROM chunks ORDER BY random() LIMIT 1)"),
            _ => self.below(1 << 20).to_string(),
        }
    }
}

#[test]
fn what_is_read_through_them_is_right_or_an_error() {
    let rounds = if std::env::var_os("TARNFS_FULL").is_some() { 2000 } else { 120 };
    for (name, bytes) in archives().into_iter().filter(|(name, _)| *name != "tar") {
        let expected =
            survey(&*open(memory(name, &bytes), &options()).unwrap().tree, &mut |_, error| panic!("{error}"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let limits = Limits { decoder_window: 8 << 20, lzma_dictionary: 16 << 20, ..Limits::default() };
        let budget = Budget::new(16 << 20);
        let with = |recreate| Options {
            limits,
            index: IndexOptions { place: IndexPlace::File(path.clone()), recreate, ..options().index },
            decoding: DecodingOptions { cache: PieceCache::new(budget.clone()), ..options().decoding },
            ..options()
        };
        open(memory(name, &bytes), &with(Recreate::Always)).unwrap();
        let whole = fs::read(&path).unwrap();
        let mut random = Random(9);
        let (mut right, mut partly, mut refused) = (0, 0, 0);
        for round in 0..rounds {
            fs::write(&path, &whole).unwrap();
            let connection = rusqlite::Connection::open(&path).unwrap();
            connection.execute_batch("PRAGMA journal_mode = OFF").unwrap();
            for _ in 0..=random.below(3) {
                let row =
                    "rowid_of = (SELECT decoded FROM chunks ORDER BY random() LIMIT 1)".replace("rowid_of", "decoded");
                let statement = match random.below(6) {
                    0 => "UPDATE states SET bytes = substr(bytes, 2)".to_owned(),
                    1 => "UPDATE states SET bytes = CAST(bytes || x'00' AS BLOB)".to_owned(),
                    2 => format!(
                        "UPDATE layers SET decoded_length = {}",
                        random.value("decoded_length").replace("chunks", "layers")
                    ),
                    _ => {
                        let column = ["decoded", "length", "compressed_bit", "state"][random.below(4) as usize];
                        format!("UPDATE chunks SET {column} = {} WHERE {row}", random.value(column))
                    }
                };
                // Two points at one place are not possible: then this change is none.
                let _ = connection.execute_batch(&statement);
            }
            drop(connection);
            match open(memory(name, &bytes), &with(Recreate::Never)) {
                Ok(opened) => {
                    let mut failures = 0;
                    let found = survey(&*opened.tree, &mut |_, _| failures += 1);
                    for (path, (_, content)) in &found {
                        let shown = String::from_utf8_lossy(path);
                        let is_right =
                            content.is_none() || expected.get(path).is_some_and(|(_, right)| right == content);
                        assert!(is_right, "{name} {round}: {shown} is wrong");
                    }
                    assert!(budget.used() <= budget.limit());
                    *(if failures == 0 { &mut right } else { &mut partly }) += 1;
                }
                Err(_) => refused += 1,
            }
        }
        println!("{name}: {right} read whole, {partly} in part, {refused} refused");
        assert!(right > 0 && partly + refused > 0, "{name}");
    }
}
