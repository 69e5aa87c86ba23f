use super::*;

/// Space for so many bytes, which somebody else may take hold of.
pub(in super::super) struct TestSpace {
    pub(in super::super) room: u64,
}

impl PieceSpace for TestSpace {
    fn extend(&mut self, length: u64, write: &mut dyn FnMut() -> io::Result<()>) -> io::Result<Extended> {
        if length > self.room {
            return Ok(Extended::Full);
        }
        write().map(|()| Extended::Written)
    }

    fn is_empty(&mut self) {}
}

/// A writer of `file`, as another process would have it.
pub(in super::super) fn writer_of(file: &tempfile::NamedTempFile) -> DecodedFileWriter {
    let file = File::options().read(true).write(true).open(file.path()).unwrap();
    let file = DecodedFile::new(file, Budget::new(64 << 20));
    DecodedFileWriter::new(file, Box::new(TestSpace { room: u64::MAX })).unwrap()
}

pub(in super::super) fn reader_of(file: &tempfile::NamedTempFile) -> Arc<DecodedFile> {
    DecodedFile::new(File::open(file.path()).unwrap(), Budget::new(64 << 20))
}

/// What is packed well, what is not, and one that is short; more than a group has.
fn pieces(count: u64) -> Vec<(u64, u64, Vec<u8>)> {
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    let noise: Vec<u8> = noise.take(PIECE).collect();
    let mut pieces = vec![(0, 0, vec![7; PIECE]), (0, PIECE as u64, noise), (5, 0, b"short".repeat(9))];
    pieces.extend((0..count).map(|number| (9, number * 1000, number.to_le_bytes().repeat(3))));
    pieces.push((0, u64::MAX, vec![1]));
    pieces
}

fn put(writer: &mut DecodedFileWriter, pieces: &[(u64, u64, Vec<u8>)]) {
    for (stream, start, piece) in pieces {
        writer.add(*stream, *start, piece, checksum(piece, *start), Some(1)).unwrap();
    }
}

fn written(pieces: &[(u64, u64, Vec<u8>)]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = writer_of(&file);
    assert!(writer.lock().unwrap());
    put(&mut writer, pieces);
    drop(writer);
    file
}

/// How many of the first pieces are there; none behind the first that is not.
fn first_of(kept: &DecodedFile, pieces: &[(u64, u64, Vec<u8>)]) -> usize {
    let is_there = |(stream, start, piece): &(u64, u64, Vec<u8>)| {
        let mut read = vec![0; piece.len()];
        let found = kept.read(*stream, *start, checksum(piece, *start), &mut read);
        assert!(found != Found::Piece || read == *piece);
        found == Found::Piece
    };
    let there: Vec<bool> = pieces.iter().map(is_there).collect();
    let first = there.iter().take_while(|there| **there).count();
    assert!(!there[first..].contains(&true));
    first
}

#[test]
fn what_was_written_is_read() {
    let pieces = pieces(1200);
    let file = written(&pieces);
    let kept = reader_of(&file);
    assert_eq!(first_of(&kept, &pieces), pieces.len());
    for (stream, start, piece) in &pieces {
        let mut read = vec![0; piece.len()];
        let right = checksum(piece, *start);
        assert_eq!(kept.read(*stream, *start, right ^ 1, &mut read), Found::Nothing, "another checksum");
        assert_eq!(kept.read(*stream, *start ^ 1, right, &mut read), Found::Nothing, "a piece that is not there");
        assert_eq!(kept.read(*stream + 1, *start, right, &mut read), Found::Nothing, "another stream");
        assert_eq!(kept.read(*stream, *start, right, &mut vec![0; piece.len() + 1]), Found::Nothing, "another length");
    }
}

#[test]
fn a_writer_goes_on_behind_another_one_and_never_beside_it() {
    let pieces = pieces(2000);
    let file = tempfile::NamedTempFile::new().unwrap();
    let early = reader_of(&file);
    for part in pieces.chunks(300) {
        let mut writer = writer_of(&file);
        assert!(writer.lock().unwrap());
        let mut other = writer_of(&file);
        assert!(!other.lock().unwrap());
        put(&mut writer, part);
        drop(writer);
        assert!(other.lock().unwrap());
    }
    early.refresh();
    assert_eq!(first_of(&early, &pieces), pieces.len());
    assert_eq!(first_of(&reader_of(&file), &pieces), pieces.len());
}

#[test]
fn a_file_that_was_cut_anywhere_is_read_so_far_and_gone_on_with() {
    let pieces = pieces(600);
    let whole = std::fs::read(written(&pieces)).unwrap();
    let (mut before, mut seen) = (0, std::collections::BTreeSet::new());
    let near = |at: usize| at < 200 || whole.len() - at < 3000 || at.is_multiple_of(997);
    for length in (0..=whole.len()).filter(|&at| near(at)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &whole[..length]).unwrap();
        let there = first_of(&reader_of(&file), &pieces);
        assert!(there >= before, "{length}");
        before = there;
        if seen.insert(there) {
            let mut writer = writer_of(&file);
            assert!(writer.lock().unwrap());
            put(&mut writer, &pieces[there..]);
            drop(writer);
            assert_eq!(first_of(&reader_of(&file), &pieces), pieces.len(), "cut at {length}");
            assert!(std::fs::read(file.path()).unwrap() == whole, "cut at {length}");
        }
    }
    assert_eq!(before, pieces.len());
}

#[test]
fn changed_bytes_are_not_read() {
    let pieces = pieces(3);
    let file = written(&pieces);
    let mut bytes = std::fs::read(file.path()).unwrap();
    let tables = MAGIC.len() + RECORD * (pieces.len() + 1);
    let content = MAGIC.len() + TABLE as usize;
    for at in (0..tables).chain(content..content + 40).chain(bytes.len() - 200..bytes.len()) {
        bytes[at] ^= 0x10;
        std::fs::write(file.path(), &bytes).unwrap();
        let kept = reader_of(&file);
        for (stream, start, piece) in &pieces {
            let mut read = vec![0; piece.len()];
            let found = kept.read(*stream, *start, checksum(piece, *start), &mut read);
            assert!(found != Found::Piece || read == *piece, "{at}");
        }
        bytes[at] ^= 0x10;
    }
}

#[test]
fn a_file_of_something_else_is_begun_anew() {
    let pieces = pieces(100);
    for bytes in [&b"tarnfs decoded 1 and what follows"[..], b"x", &vec![0; 100_000]] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        assert_eq!(first_of(&reader_of(&file), &pieces), 0);
        let mut writer = writer_of(&file);
        assert!(writer.lock().unwrap());
        put(&mut writer, &pieces);
        drop(writer);
        assert_eq!(first_of(&reader_of(&file), &pieces), pieces.len());
    }
}

#[test]
fn what_was_added_can_be_undone() {
    let pieces = pieces(900);
    let file = written(&pieces[..700]);
    let before = std::fs::read(file.path()).unwrap();
    let mut writer = writer_of(&file);
    assert!(writer.lock().unwrap());
    put(&mut writer, &pieces[700..]);
    writer.flush().unwrap();
    writer.undo().unwrap();
    drop(writer);
    assert!(std::fs::read(file.path()).unwrap() == before);
}

#[test]
fn nothing_is_written_behind_the_end_of_the_space() {
    let pieces = pieces(0);
    let file = tempfile::NamedTempFile::new().unwrap();
    for room in [0, 16, 20_000, 200_000] {
        let open = File::options().read(true).write(true).open(file.path()).unwrap();
        let kept = DecodedFile::new(open, Budget::new(64 << 20));
        let mut writer = DecodedFileWriter::new(kept, Box::new(TestSpace { room })).unwrap();
        assert!(writer.lock().unwrap());
        for piece in &pieces {
            put(&mut writer, std::slice::from_ref(piece));
            writer.flush().unwrap();
        }
        drop(writer);
        assert!(file.as_file().metadata().unwrap().len() <= room);
    }
    assert!(first_of(&reader_of(&file), &pieces) > 0);
}

#[test]
fn what_is_known_of_the_pieces_takes_memory_of_the_budget() {
    let pieces = pieces(1500);
    let file = written(&pieces);
    let budget = Budget::new(2 * PER_PIECE * PIECES_AT_ONCE + 10);
    let open = File::options().read(true).write(true).open(file.path()).unwrap();
    let kept = DecodedFile::new(open, budget.clone());
    assert_eq!(first_of(&kept, &pieces), 2 * PIECES_AT_ONCE);
    assert_eq!(budget.used(), 2 * PER_PIECE * PIECES_AT_ONCE);
    let mut writer = DecodedFileWriter::new(kept, Box::new(TestSpace { room: u64::MAX })).unwrap();
    assert!(writer.lock().is_err(), "it would cut off what it does not know");
    drop(writer);
    assert_eq!(first_of(&reader_of(&file), &pieces), pieces.len());
}
