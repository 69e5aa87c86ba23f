//! Tables of seek points: those that tarnfs writes lead to the right bytes, and those that lie are refused.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use tarnfs_index::{Error, Node, Shape, ratarmount};

use crate::support::{content, open, own_index, shell, stream};

/// A compressed file, its sidecar as tarnfs writes it, and what is in the file.
struct Compressed {
    _folder: tempfile::TempDir,
    archive: PathBuf,
    sidecar: PathBuf,
    written: Vec<u8>,
    plain: Vec<u8>,
}

impl Compressed {
    fn new(name: &str, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        shell(folder.path(), &format!("seq 1 600000 > plain; {script}"));
        let (archive, sidecar) = (folder.path().join(name), folder.path().join("sidecar"));
        ratarmount::write(&own_index(&archive, &Shape::default()).0, &archive, &sidecar).unwrap();
        let [plain, written] = [&folder.path().join("plain"), &sidecar].map(|path| std::fs::read(path).unwrap());
        let made = Self { _folder: folder, archive, sidecar, written, plain };
        assert!(made.read().unwrap() == made.plain, "{name}");
        made
    }

    fn gzip() -> Self {
        Self::new("a.gz", "gzip -c plain > a.gz")
    }

    /// Its table is one of gztool, that of the former is one of indexed_gzip.
    fn zlib() -> Self {
        let python = "import sys, zlib; sys.stdout.buffer.write(zlib.compress(open('plain', 'rb').read()))";
        Self::new("a.zz", &format!("python3 -c \"{python}\" > a.zz"))
    }

    fn bzip2() -> Self {
        Self::new("a.bz2", "bzip2 -c plain > a.bz2")
    }

    fn zstd() -> Self {
        Self::new("a.zst", "split -b 300000 --filter 'zstd -qc' plain > a.zst")
    }

    /// All of the file, through the sidecar.
    fn read(&self) -> Result<Vec<u8>, Error> {
        let (index, source) = open(&self.archive, &self.sidecar, Shape::default())?;
        let stream = stream(&index, source)?;
        let mut file = None;
        index.children(Node::ROOT, 0, &mut |_, _, row| {
            file = Some(row.clone());
            false
        })?;
        content(&index, &stream, &file.unwrap())
    }

    /// What is wrong once the sidecar is changed; nothing if the right bytes are read nevertheless.
    fn refused(&self, what: &str, change: impl FnOnce(&Connection)) -> String {
        std::fs::write(&self.sidecar, &self.written).unwrap();
        change(&Connection::open(&self.sidecar).unwrap());
        match self.read() {
            Ok(read) => {
                assert!(read == self.plain, "{what}: {} wrong bytes", read.len());
                String::new()
            }
            Err(error) => error.to_string(),
        }
    }

    /// The same for the bytes of a table, which may lie in several rows.
    fn refused_bytes(&self, what: &str, table: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
        self.refused(what, |connection| {
            let mut rows = connection.prepare(&format!("SELECT data FROM {table} ORDER BY rowid")).unwrap();
            let rows = rows.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
            let mut bytes: Vec<u8> = rows.flat_map(Result::unwrap).collect();
            change(&mut bytes);
            connection.execute(&format!("DELETE FROM {table}"), []).unwrap();
            connection.execute(&format!("INSERT INTO {table} VALUES (?1)"), [bytes]).unwrap();
        })
    }

    fn length(&self) -> u64 {
        std::fs::metadata(&self.archive).unwrap().len()
    }
}

/// What is changed, how, and what of the error must be said; nothing if the right bytes do as well.
type Lie<'a> = (&'a str, &'a dyn Fn(&mut Vec<u8>), &'a str);

#[test]
fn blocks_lead_to_the_right_bytes_or_are_refused() {
    for (made, table, bits) in [(Compressed::bzip2(), "bzip2blocks", 8), (Compressed::zstd(), "zstdblocks", 1)] {
        let last = format!("(SELECT max(blockoffset) FROM {table})");
        let third = format!("(SELECT blockoffset FROM {table} ORDER BY 1 LIMIT 1 OFFSET 2)");
        let behind = (made.length() + 1) * bits;
        for (change, why) in [
            (format!("DROP TABLE {table}"), "there is no table"),
            (format!("DELETE FROM {table}"), "is empty"),
            (format!("DELETE FROM {table} WHERE dataoffset = 0"), "and the stream has"),
            (format!("UPDATE {table} SET dataoffset = 1 WHERE dataoffset = 0"), "and the stream has"),
            (format!("UPDATE {table} SET blockoffset = {behind} WHERE blockoffset = {last}"), "and the stream has"),
            (format!("UPDATE {table} SET dataoffset = -1 WHERE blockoffset = {last}"), ""),
            (format!("UPDATE {table} SET dataoffset = dataoffset - 1 WHERE blockoffset = {last}"), ""),
            (format!("UPDATE {table} SET dataoffset = dataoffset + 1 WHERE blockoffset = {last}"), ""),
            (format!("UPDATE {table} SET dataoffset = dataoffset + 1 WHERE blockoffset = {third}"), ""),
            (format!("UPDATE {table} SET dataoffset = dataoffset - 1 WHERE blockoffset = {third}"), ""),
            (format!("UPDATE {table} SET dataoffset = 1 << 40 WHERE blockoffset = {third}"), "does not lie"),
            (format!("UPDATE {table} SET dataoffset = 0 WHERE blockoffset = {third}"), "does not lie"),
            (format!("UPDATE {table} SET dataoffset = -1 WHERE blockoffset = {third}"), ""),
            (
                format!("UPDATE {table} SET blockoffset = blockoffset + 1 WHERE blockoffset = {third}"),
                "no block begins",
            ),
        ] {
            let said = made.refused(&change, |connection| connection.execute_batch(&change).unwrap());
            assert!(said.contains(why), "{change}: {said}");
        }
        // Fewer blocks are as good.
        std::fs::write(&made.sidecar, &made.written).unwrap();
        let fewer = format!("DELETE FROM {table} WHERE blockoffset = {third}");
        Connection::open(&made.sidecar).unwrap().execute_batch(&fewer).unwrap();
        assert!(made.read().unwrap() == made.plain, "{table}");
    }
}

/// The check of a block says nothing of where it lies. Each reader here has read nothing before: one that goes on from
/// the block before never uses the seek point that lies.
#[test]
fn a_block_is_not_believed_to_lie_where_the_table_says() {
    for (made, table) in [(Compressed::bzip2(), "bzip2blocks"), (Compressed::zstd(), "zstdblocks")] {
        let starts: Vec<u64> = Connection::open(&made.sidecar)
            .unwrap()
            .prepare(&format!("SELECT DISTINCT dataoffset FROM {table} ORDER BY 1"))
            .unwrap()
            .query_map([], |row| row.get::<_, i64>(0))
            .unwrap()
            .map(|start| start.unwrap() as u64)
            .collect();
        assert!(starts.len() > 4, "{starts:?}");
        for change in [512, -512] {
            std::fs::write(&made.sidecar, &made.written).unwrap();
            let lie = format!("UPDATE {table} SET dataoffset = dataoffset + {change} WHERE dataoffset = {}", starts[2]);
            Connection::open(&made.sidecar).unwrap().execute_batch(&lie).unwrap();
            for number in (0..4).rev() {
                let (at, mut read) = (starts[number] as usize + 1000, [0; 100]);
                let (index, source) = open(&made.archive, &made.sidecar, Shape::default()).unwrap();
                let is_read = stream(&index, source).unwrap().read_exact_at(&mut read, at as u64).is_ok();
                assert!(!is_read || read == made.plain[at..][..100], "{table} {change}: wrong bytes in block {number}");
                assert_eq!(is_read, number == 0 || number == 3, "{table} {change}: block {number}");
            }
        }
    }
}

/// Whoever begins in the middle searches the table.
#[test]
fn blocks_are_found_from_anywhere() {
    for (made, table) in [(Compressed::bzip2(), "bzip2blocks"), (Compressed::zstd(), "zstdblocks")] {
        let length = made.plain.len() as u64;
        let chunk = |decoded: u64| {
            // Nothing is known of what was found before.
            let (index, _) = open(&made.archive, &made.sidecar, Shape::default())?;
            Ok::<_, Error>(index.chunks(0)?.chunk_at(decoded)?)
        };
        let mut starts: Vec<u64> = Connection::open(&made.sidecar)
            .unwrap()
            .prepare(&format!("SELECT dataoffset FROM {table} ORDER BY 1"))
            .unwrap()
            .query_map([], |row| row.get::<_, i64>(0))
            .unwrap()
            .map(|start| start.unwrap() as u64)
            .collect();
        starts.dedup();
        let blocks: Vec<_> = starts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        assert!(blocks.len() > 4 && starts.last() == Some(&length), "{table}: {starts:?}");
        for &(start, end) in &blocks {
            for decoded in [start, start + 1, end - 1] {
                let found = chunk(decoded).unwrap().unwrap();
                assert_eq!((found.point.decoded, found.length), (start, end - start), "{table}: byte {decoded}");
            }
        }
        assert!(chunk(length).unwrap().is_none());
        let (index, _) = open(&made.archive, &made.sidecar, Shape::default()).unwrap();
        let longest = blocks.iter().map(|(start, end)| end - start).max();
        assert_eq!(index.chunks(0).unwrap().longest().unwrap(), longest, "{table}");
        // A block in the middle that lies is met by whoever searches there.
        let middle = blocks[blocks.len() / 2].0;
        let lie = format!("UPDATE {table} SET dataoffset = 1 << 40 WHERE dataoffset = {middle}");
        Connection::open(&made.sidecar).unwrap().execute_batch(&lie).unwrap();
        let refused = chunk(length - 1).map(|found| found.unwrap().point.decoded);
        assert!(!matches!(refused, Ok(start) if start != blocks[blocks.len() - 1].0), "{table}: {refused:?}");
        let refused = chunk(middle).unwrap_err().to_string();
        assert!(refused.contains("does not lie"), "{table}: {refused}");
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..][..value.len()].copy_from_slice(value);
}

#[test]
fn points_of_indexed_gzip_are_in_order_and_in_the_stream() {
    let made = Compressed::gzip();
    // The header has 35 bytes, a point 18.
    let point = |number: usize| 35 + 18 * number;
    let count = |bytes: &[u8]| u32::from_le_bytes(*bytes[31..].first_chunk().unwrap()) as usize;
    let at_last = |bytes: &mut Vec<u8>, at: usize, value: u64| {
        let last = point(count(bytes) - 1);
        put(bytes, last + at, &value.to_le_bytes());
    };
    let behind = made.length() + 1;
    let lies: &[Lie] = &[
        ("no such magic", &|bytes| bytes[0] = b'g', "does not hold"),
        ("another version", &|bytes| bytes[5] = 2, "does not hold"),
        ("a large window", &|bytes| put(bytes, 27, &32_769_u32.to_le_bytes()), "windows of"),
        ("more points than any has", &|bytes| put(bytes, 31, &u32::MAX.to_le_bytes()), "windows of"),
        ("more points than there are", &|bytes| put(bytes, 31, &100_000_u32.to_le_bytes()), "ends at byte"),
        ("decoded backwards", &|bytes| bytes.copy_within(point(1) + 8..point(1) + 16, point(3) + 8), "out of order"),
        ("compressed backwards", &|bytes| bytes.copy_within(point(1)..point(1) + 8, point(3)), "out of order"),
        (
            "the same place twice",
            &|bytes| {
                bytes.copy_within(point(1)..point(1) + 8, point(2));
                bytes.copy_within(point(1) + 16..point(1) + 17, point(2) + 16);
            },
            "out of order",
        ),
        ("behind the stream", &|bytes| at_last(bytes, 0, behind), "behind the end"),
        ("behind its content", &|bytes| at_last(bytes, 8, 1 << 40), "behind the end"),
        ("eight bits of a byte", &|bytes| bytes[point(1) + 16] = 8, "8 bits"),
        (
            "bits before the first byte",
            &|bytes| {
                put(bytes, point(0), &0_u64.to_le_bytes());
                bytes[point(0) + 16] = 1;
            },
            "byte 0 and 1 bits",
        ),
        ("a window that is cut", &|bytes| _ = bytes.pop(), "ends at byte"),
        ("another length", &|bytes| put(bytes, 15, &1_u64.to_le_bytes()), ""),
    ];
    for (what, change, why) in lies {
        let said = made.refused_bytes(what, "gzipindex", change);
        assert!(said.contains(why), "{what}: {said}");
    }
    // From the start nothing is needed, so nothing is believed of it.
    let elsewhere = |bytes: &mut Vec<u8>| put(bytes, point(0), &500_u64.to_le_bytes());
    assert_eq!(made.refused_bytes("another start", "gzipindex", elsewhere), "");
}

#[test]
fn points_of_gztool_are_in_order_and_their_windows_whole() {
    // The header has 32 bytes, a point 24 and its window.
    fn point(bytes: &[u8], number: usize) -> usize {
        (0..number).fold(32, |at, _| at + 24 + u32::from_be_bytes(*bytes[at + 20..].first_chunk().unwrap()) as usize)
    }
    let made = Compressed::zlib();
    let at_first = |bytes: &mut Vec<u8>, at: usize, value: &[u8]| {
        let first = point(bytes, 1);
        put(bytes, first + at, value);
    };
    let lies: &[Lie] = &[
        ("no such magic", &|bytes| bytes[7] = 1, "does not hold"),
        ("another count", &|bytes| put(bytes, 16, &1_u64.to_be_bytes()), "points of"),
        ("more points than any has", &|bytes| put(bytes, 16, &[0xFF; 16]), "points of"),
        ("a large window", &|bytes| at_first(bytes, 20, &65_537_u32.to_be_bytes()), "65537 bytes"),
        (
            "decoded backwards",
            &|bytes| {
                let [to, from] = [3, 1].map(|number| point(bytes, number));
                bytes.copy_within(from..from + 8, to);
            },
            "out of order",
        ),
        ("eight bits of a byte", &|bytes| at_first(bytes, 16, &8_u32.to_be_bytes()), "8 bits"),
        ("a window that is no zlib stream", &|bytes| at_first(bytes, 24, &[0xFF]), "cannot be decompressed"),
        (
            "a point that is cut",
            &|bytes| {
                let third = point(bytes, 3);
                bytes.truncate(third + 10);
            },
            "",
        ),
    ];
    for (what, change, why) in lies {
        let said = made.refused_bytes(what, "gztoolindex", change);
        assert!(said.contains(why), "{what}: {said}");
    }
}

/// Where a member begins no window is needed, and inside one without a window that has to be said. xz keeps nothing.
#[test]
fn what_has_several_parts_is_read_from_anywhere() {
    for made in [
        Compressed::new("m.gz", "split -b 700000 --filter 'gzip -c' plain > m.gz"),
        Compressed::new("a.xz", "xz -1 --block-size=300000 -c plain > a.xz"),
        Compressed::gzip(),
        Compressed::zlib(),
        Compressed::bzip2(),
        Compressed::zstd(),
    ] {
        let length = made.plain.len() as u64;
        let (index, source) = open(&made.archive, &made.sidecar, Shape::default()).unwrap();
        let points = Arc::clone(&index).seek_points(0).unwrap();
        assert_eq!((points.decoded, points.has_checksums), (length, false));
        let table = Arc::clone(&index).chunks(0).unwrap();
        assert!(points.count > 2 && table.longest().unwrap().is_none_or(|longest| longest == points.longest));
        assert_eq!((table.decoded_length(), table.chunk_at(length).unwrap()), (length, None));
        assert!(table.damage_in(0..length).unwrap().is_none() && !table.has_checksums());
        assert!(Arc::clone(&index).chunks(1).is_err() && index.damage_in(0..length).unwrap().is_none());
        // Backwards, so that nothing goes on where it was.
        let stream = stream(&index, source).unwrap();
        for at in (0..length - 100).rev().step_by(90_001) {
            let mut read = [0; 100];
            stream.read_exact_at(&mut read, at).unwrap();
            assert!(read == made.plain[at as usize..][..100], "{}: {at}", made.archive.display());
        }
    }
}
