use super::super::receiver::About;
use super::*;
use crate::open::DecodingOptions;
use tarnfs_index::{Shape, Writer, WriterOptions};
use tarnfs_source::{Budget, Cancel, MemorySource};

/// Many files of an image may have the same blocks.
#[test]
fn archives_that_share_their_blocks_are_counted() {
    let (limits, options) = (Limits::default(), Options::default());
    let names = Names::new(&Shape { recursion: Some(tarnfs_index::Recursion::default()), ..Shape::default() }, &limits);
    let names = names.unwrap();
    let (format_options, bodies) = (tarnfs_format::Options::default(), Bodies::new(1 << 20));
    let expansion = Expansion::new(&names, &options, &format_options, &bodies, 100);
    let expansion = Expansion { amount: Arc::new(Amount::of(5 * 3000)), ..expansion };
    let writer = WriterOptions { limits, budget: Budget::new(0), cancel: Cancel::default() };
    let direct = Direct::new(Writer::new(writer).unwrap(), limits, 100);
    let shared: Arc<[Piece]> = [1000, 2000].map(|length| Piece { length, ..Piece::default() }).into();
    let xz = tarnfs_codec::by_name("xz");
    for number in 0..12 {
        let candidate = Candidate {
            input: 0,
            file_in: 0,
            archive: 0,
            start: 0,
            // The rest is a hole.
            length: 1 << 40,
            bytes: Arc::new(MemorySource::new(vec![b'x'; 3000], "test")),
            damaged: Vec::new(),
            pieces: Some(Arc::clone(&shared)),
            split: None,
            codec: xz.filter(|_| number % 2 == 1),
            name: b"a.tar".to_vec(),
            makes_folder: false,
            file: Box::default(),
            expected: None,
            content: None,
            instead: None,
            is_layer: false,
            place: MemberPlace { in_pieces: 1, ..MemberPlace::default() },
            told_at: number,
        };
        // There is nothing more that a large one could have later.
        assert_eq!(expansion.limits_of(&candidate), limits);
        direct.candidate(candidate).unwrap();
    }
    expansion.run(&direct).unwrap();
    let notes = direct.into_parts().1;
    let bombs: Vec<u64> = notes.iter().filter(|(_, what)| what.contains("bomb")).map(|(at, _)| *at).collect();
    assert_eq!(bombs, (5..12).collect::<Vec<u64>>(), "{notes:?}");
}

/// Where no thread can be started, this one reads them all.
#[test]
fn candidates_are_read_whatever_threads_there_are() {
    let (limits, options) = (
        Limits::default(),
        Options { decoding: DecodingOptions { threads: 4, ..DecodingOptions::default() }, ..Options::default() },
    );
    let names = Names::new(&Shape::default(), &limits).unwrap();
    let (format_options, bodies) = (tarnfs_format::Options::default(), Bodies::new(1 << 20));
    let expansion = Expansion::new(&names, &options, &format_options, &bodies, 1 << 20);
    let candidate = |start: u64| Candidate {
        input: 0,
        file_in: 0,
        archive: 0,
        start,
        length: 10,
        bytes: std::sync::Arc::new(MemorySource::new(b"not xz at all".to_vec(), "test")),
        damaged: Vec::new(),
        pieces: None,
        split: None,
        codec: tarnfs_codec::by_name("xz"),
        name: b"a.xz".to_vec(),
        makes_folder: false,
        file: Box::new(Entry { path: format!("{start}.xz").into_bytes(), ..Entry::default() }),
        expected: None,
        content: None,
        instead: None,
        is_layer: false,
        place: MemberPlace::default(),
        told_at: start,
    };
    let candidates: Vec<Candidate> = (0..20).map(candidate).collect();
    let none = || thread::Builder::new().stack_size(1 << 60);
    let builders: [&dyn Fn() -> thread::Builder; 2] = [&thread::Builder::new, &none];
    for (builder, starts) in builders.into_iter().zip([true, false]) {
        assert_eq!(builder().spawn(|| ()).is_ok(), starts);
        let writer = WriterOptions { limits, budget: Budget::new(0), cancel: Cancel::default() };
        let direct = Direct::new(Writer::new(writer).unwrap(), limits, 100);
        expansion.beside_each_other(&candidates, &direct, builder).unwrap();
        let notes: Vec<u64> = direct.into_parts().1.into_iter().map(|(at, _)| at).collect();
        assert_eq!(notes, (0..20).collect::<Vec<u64>>());
    }
}

/// Small archives are read beside each other, and what each holds of its directory adds up.
#[test]
fn what_holds_much_of_its_directory_is_read_by_itself() {
    // An archive of Windows with one image, whose tree has 20 MiB.
    let mut bytes = vec![0; 208 + 50];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"MSWIM\0\0\0");
    put(8, &[208, 0x1_0d00, 0, 0].map(u32::to_le_bytes).concat());
    put(40, &[1, 0, 1, 0, 1, 0, 0, 0]);
    put(48, &[50_u64, 208, 50].map(u64::to_le_bytes).concat());
    put(208, &[(2 << 56) + 20_u64, 0, 20 << 20].map(u64::to_le_bytes).concat());
    put(232, &[1, 0]);
    // A package of macOS, whose table would have as many; what is packed in it is none.
    let lengths = [20_u64, 20 << 20].map(u64::to_be_bytes).concat();
    let package = [&b"xar!\0\x1c\0\x01"[..], &lengths, &[0; 4], b"\x78\x9c", &[7; 18]].concat();
    // A 7z whose header cannot be read: how much its reader would hold is not looked at.
    let header = [&b"7z\xbc\xaf\x27\x1c\0\x04"[..], &[0; 12], &[5, 0, 0, 0, 0, 0, 0, 0], &[0; 4], b"other"].concat();
    let archives =
        [("a.wim", bytes, "tree of image 1"), ("a.xar", package, "table of contents"), ("a.7z", header, "7z")];
    for (name, bytes, why) in archives {
        assert_is_put_off(name, bytes, why);
    }
}

/// A frame of zstd with a window of two to the power of `window` bytes, in which one byte comes so many times 128 KiB.
fn zstd(window: u8, blocks: u32) -> Vec<u8> {
    let block = |number: u32| (u32::from(number + 1 == blocks) | 1 << 1 | (128 << 10) << 3).to_le_bytes();
    let blocks = (0..blocks).flat_map(|number| [&block(number)[..3], b"z"].concat());
    [0x28, 0xB5, 0x2F, 0xFD, 0, (window - 10) << 3].into_iter().chain(blocks).collect()
}

/// An xz whose blocks have dictionaries of such sizes, as their headers state them, and hold so many times 64 KiB that
/// are stored as they are.
fn xz(blocks: &[(u8, usize)]) -> Vec<u8> {
    let with_crc = |bytes: &[u8]| [bytes, &crc32fast::hash(bytes).to_le_bytes()].concat();
    let padded = |mut bytes: Vec<u8>| {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let number = |mut value: usize, bytes: &mut Vec<u8>| {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    };
    let content = vec![b'x'; 64 << 10];
    let mut file = [b"\xfd7zXZ\0".to_vec(), with_crc(&[0, 1])].concat();
    let mut index = vec![0];
    number(blocks.len(), &mut index);
    for &(dictionary, times) in blocks {
        let start = file.len();
        file.extend(with_crc(&[2, 0, 0x21, 1, dictionary, 0, 0, 0]));
        for chunk in 0..times {
            file.extend([if chunk == 0 { 1 } else { 2 }, 0xFF, 0xFF]);
            file.extend(&content);
        }
        file.push(0);
        number(file.len() - start + 4, &mut index);
        number(times * content.len(), &mut index);
        file = padded(file);
        file.extend(crc32fast::hash(&content.repeat(times)).to_le_bytes());
    }
    let index = with_crc(&padded(index));
    let footer = [&(index.len() as u32 / 4 - 1).to_le_bytes()[..], &[0, 1]].concat();
    [file, index, crc32fast::hash(&footer).to_le_bytes().to_vec(), footer, b"YZ".to_vec()].concat()
}

/// As the headers of an xz state the sizes of dictionaries.
const OF_4_KIB: u8 = 0;
const OF_64_MIB: u8 = 28;
const OF_256_MIB: u8 = 32;

/// Knows whether it was asked for memory that there was no room for.
#[derive(Default)]
struct Asked {
    waits: Cell<bool>,
}

impl Receiver for Asked {
    fn about(&self, _: About, _: &Entry) -> Result<(), tarnfs_index::Error> {
        Ok(())
    }

    fn call(&self, call: Call) -> Result<(), tarnfs_index::Error> {
        assert!(!matches!(call, Call::PutOff));
        Ok(())
    }

    fn wait(&self, has_room: &mut dyn FnMut() -> bool) -> Result<(), tarnfs_index::Error> {
        self.waits.set(self.waits.get() || !has_room());
        Ok(())
    }
}

/// What its decoder takes counts, whatever is known of it beforehand.
#[test]
fn what_needs_much_memory_is_decoded_beside_few_others() {
    let decoding = DecodingOptions { threads: 4, ..DecodingOptions::default() };
    let (limits, options) = (Limits::default(), Options { decoding, ..Options::default() });
    let names = Names::new(&Shape::default(), &limits).unwrap();
    let (format_options, bodies) = (options.of_formats(), Bodies::new(1 << 20));
    let expansion = Expansion::new(&names, &options, &format_options, &bodies, 1 << 20);
    let waits = |codec: &str, bytes: &[u8]| {
        let (candidate, asked) = (of_bytes("a", bytes.to_vec(), tarnfs_codec::by_name(codec)), Asked::default());
        expansion.read(&candidate, &asked, Some(1), &expansion.limits_of(&candidate)).unwrap();
        asked.waits.get()
    };
    let second = xz(&[(OF_4_KIB, 1), (OF_64_MIB, 11 << 4)]);
    let large = [
        ("zstd", zstd(26, 4)),
        ("zstd", [zstd(17, 1), b"!".to_vec(), zstd(26, 4)].concat()),
        ("xz", second[..second.len() - 20].to_vec()),
        ("xz", second),
    ];
    for (codec, bytes) in &large {
        assert!(!waits(codec, bytes), "{codec}: the only one");
    }
    let share = expansion.large.share().unwrap();
    for (codec, bytes) in &large {
        assert!(waits(codec, bytes), "{codec}: another one has the room for it");
    }
    // What is stated is not all used.
    let tiny = [&[0x5D][..], &(64_u32 << 20).to_le_bytes(), &[0xFF; 8], &[0; 20]].concat();
    for (codec, bytes) in [("zstd", zstd(23, 100)), ("xz", xz(&[(OF_64_MIB, 100)])), ("lzma", tiny)] {
        assert!(!waits(codec, &bytes), "{codec}: as many as there are threads");
    }
    drop(share);
    assert!(waits("zstd", &zstd(27, 4)) && !waits("zstd", &zstd(26, 4)), "one at a time");
}

/// A later part may need more than the first one: what shows is the same for any number of threads.
#[test]
fn a_large_dictionary_in_a_later_part_is_read() {
    for threads in [1, 4] {
        let decoding = DecodingOptions { threads, ..DecodingOptions::default() };
        let (limits, options) = (Limits::default(), Options { decoding, ..Options::default() });
        let names = Names::new(&Shape::default(), &limits).unwrap();
        let (format_options, bodies) = (options.of_formats(), Bodies::new(1 << 20));
        let expansion = Expansion::new(&names, &options, &format_options, &bodies, 1 << 20);
        let writer = WriterOptions { limits, budget: Budget::new(0), cancel: Cancel::default() };
        let direct = Direct::new(Writer::new(writer).unwrap(), limits, 100);
        for _ in 0..6 {
            let bytes = xz(&[(OF_4_KIB, 1), (OF_256_MIB, 1)]);
            direct.candidate(of_bytes("a.xz", bytes, tarnfs_codec::by_name("xz"))).unwrap();
        }
        expansion.run(&direct).unwrap();
        let notes = direct.into_parts().1;
        assert!(notes.is_empty(), "{threads} threads: {notes:?}");
    }
}

fn of_bytes(name: &str, bytes: Vec<u8>, codec: Option<&'static dyn Codec>) -> Candidate {
    Candidate {
        input: 0,
        file_in: 0,
        archive: 0,
        start: 0,
        length: bytes.len() as u64,
        bytes: Arc::new(MemorySource::new(bytes, "test")),
        damaged: Vec::new(),
        pieces: None,
        split: None,
        codec,
        name: name.into(),
        makes_folder: false,
        file: Box::new(Entry { path: name.into(), ..Entry::default() }),
        expected: None,
        content: None,
        instead: None,
        is_layer: false,
        place: MemberPlace::default(),
        told_at: 7,
    }
}

#[track_caller]
fn assert_is_put_off(name: &str, bytes: Vec<u8>, why: &str) {
    let (limits, options) = (Limits::default(), Options::default());
    let names = Names::new(&Shape::default(), &limits).unwrap();
    let (format_options, bodies) = (options.of_formats(), Bodies::new(1 << 20));
    let expansion = Expansion::new(&names, &options, &format_options, &bodies, 1 << 20);
    let candidate = of_bytes(name, bytes, None);
    let writer = WriterOptions { limits, budget: Budget::new(0), cancel: Cancel::default() };
    let direct = Direct::new(Writer::new(writer).unwrap(), limits, 100);
    expansion.read(&candidate, &direct, None, &expansion.limits_of(&candidate)).unwrap();
    assert!(direct.take_put_off());
    // By itself it may; what is there of its directory is none.
    expansion.read(&candidate, &direct, None, &limits).unwrap();
    assert!(!direct.take_put_off());
    let notes = direct.into_parts().1;
    assert!(notes.len() == 1 && notes[0].1.contains(why), "{name}: {notes:?}");
}
