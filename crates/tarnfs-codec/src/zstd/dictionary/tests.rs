use std::io::ErrorKind;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;
use zstd_safe::{DCtx, InBuffer, OutBuffer};

use super::*;
use crate::testing::{Pass, decode, decode_with, sample, source, to_the_end, tool, tool_status};
use crate::zstd::Zstd;
use crate::zstd::decoder::FrameDecoder;
use crate::{Codec, DecodeContext, FirstPass as _, Options, PIECE, SeekPoint};

/// Dictionaries as files.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Vec<u8> {
        std::fs::write(self.path(name), bytes).unwrap();
        bytes.to_vec()
    }

    /// A dictionary with codes, of parts of `data`.
    fn train(&self, name: &str, id: u32, data: &[u8]) -> Vec<u8> {
        let parts = self.path(&format!("parts-{name}"));
        std::fs::create_dir(&parts).unwrap();
        for (at, part) in data.chunks(data.len() / 200).enumerate() {
            std::fs::write(parts.join(at.to_string()), part).unwrap();
        }
        let (parts, path) = (parts.display(), self.path(name));
        tool(&format!("zstd -q --train -r {parts} --maxdict=20000 --dictID={id} -o {}", path.display()), b"");
        std::fs::read(path).unwrap()
    }

    /// What the tool makes with a dictionary, or with none.
    fn pack(&self, options: &str, dictionary: &str, data: &[u8]) -> Vec<u8> {
        let dictionary =
            if dictionary.is_empty() { String::new() } else { format!("-D {}", self.path(dictionary).display()) };
        let command = format!("zstd -q -c {options} {dictionary}");
        if options.contains("stream-size") {
            return tool(&command, data);
        }
        // From a file, so that it knows the length and writes it.
        std::fs::write(self.path("input"), data).unwrap();
        tool(&format!("{command} {}", self.path("input").display()), b"")
    }
}

fn dictionaries(files: &[&[u8]]) -> Dictionaries {
    let mut dictionaries = Dictionaries::default();
    for bytes in files {
        dictionaries.add(bytes.to_vec()).unwrap();
    }
    dictionaries
}

fn pass_with(stream: &[u8], dictionaries: &Dictionaries) -> Pass {
    decode_with(&Zstd, stream, PIECE, &Options { dictionaries: dictionaries.clone(), ..Options::default() })
}

fn context(dictionaries: &Dictionaries) -> DecodeContext {
    DecodeContext { dictionaries: dictionaries.clone(), ..DecodeContext::default() }
}

fn resume_with(stream: &[u8], point: &SeekPoint, dictionaries: &Dictionaries) -> std::io::Result<Vec<u8>> {
    to_the_end(&mut *Zstd.resume(source(stream), point, &context(dictionaries))?, 33_333)
}

/// The points before all blocks.
fn all_points(stream: &[u8], data: &[u8], dictionaries: &Dictionaries) -> Vec<SeekPoint> {
    let options = Options { dictionaries: dictionaries.clone(), ..Options::default() };
    let mut pass = FrameDecoder::first_pass_with_all_points(source(stream), &options);
    let (mut points, mut damage) = (Vec::new(), Vec::new());
    assert!(to_the_end(&mut pass, 50_000).unwrap() == data);
    pass.take_points(&mut points);
    pass.take_damage(&mut damage);
    assert_eq!(damage, []);
    points
}

/// libzstd only minds weights that no Huffman code can have where one is used.
fn is_taken_alike(ours: &Result<(), String>, theirs: bool) -> bool {
    ours.as_ref().map_or_else(|what| !theirs || what.contains("the weights of a Huffman code have"), |()| theirs)
}

/// What libzstd makes of a stream with this dictionary; `None` where it finds something wrong.
fn with_libzstd(stream: &[u8], dictionary: &[u8]) -> Option<Vec<u8>> {
    let mut context = DCtx::create();
    context.load_dictionary(dictionary).ok()?;
    let (mut decoded, mut buffer, mut input) = (Vec::new(), vec![0; 128 << 10], InBuffer::around(stream));
    loop {
        let mut output = OutBuffer::around(&mut buffer[..]);
        let left = context.decompress_stream(&mut output, &mut input).ok()?;
        decoded.extend_from_slice(output.as_slice());
        match (left, input.pos() == stream.len()) {
            (0, true) => return Some(decoded),
            (1.., true) if output.as_slice().is_empty() => return None,
            _ => {}
        }
    }
}

#[test]
fn what_the_tool_writes_with_any_dictionary_at_any_level() {
    let (folder, data) = (Folder::new(), sample(700_000, 51));
    let trained = folder.train("trained", 4711, &data);
    let raw = folder.write("raw", &data[300_000..420_000]);
    let short = folder.write("short", &data[..5]);
    for (name, dictionary) in [("trained", &trained), ("raw", &raw), ("short", &short)] {
        let (given, mut made_with_it) = (dictionaries(&[dictionary]), 0);
        for level in 1..=19 {
            for (length, options) in [(900, ""), (30_000, "--no-dictID"), (30_000, "--stream-size=30000")] {
                let data = &data[level * 1000..][..length];
                let stream = folder.pack(&format!("-{level} {options}"), name, data);
                let what = format!("{name} -{level} {options}");
                made_with_it += usize::from(!pass_with(&stream, &Dictionaries::default()).is_clean());
                let pass = pass_with(&stream, &given);
                assert_eq!(pass.points.len(), 1);
                assert!(resume_with(&stream, &pass.points[0], &given).unwrap() == data, "{what}");
                assert!(pass.whole() == data, "{what}");
                assert!(with_libzstd(&stream, dictionary).unwrap() == data, "{what}");
            }
        }
        assert!(name == "short" || made_with_it > 40, "{name}: {made_with_it}");
        for options in
            ["-1", "-3 --no-check", "-6 --zstd=wlog=14", "-3 --long=20", "-3 -T2 -B512KiB", "--ultra -22", "--fast=4"]
        {
            for length in [0, 1, 7, PIECE, 700_000] {
                let stream = folder.pack(options, name, &data[..length]);
                assert!(pass_with(&stream, &given).whole() == data[..length], "{name} {options}, {length} bytes");
            }
        }
    }
}

#[test]
fn what_a_patch_is_made_of_is_a_dictionary() {
    let (folder, data) = (Folder::new(), sample(2_000_000, 52));
    let old = folder.write("old", &data[..1_500_000]);
    let new = [&data[200_000..900_000], &b"something new"[..], &data[..300_000]].concat();
    let stream = folder.pack(&format!("--patch-from={}", folder.path("old").display()), "", &new);
    assert!(stream.len() < 200_000, "{}", stream.len());
    assert!(pass_with(&stream, &dictionaries(&[&old])).whole() == new);
}

#[test]
fn every_block_of_a_frame_with_a_dictionary_can_be_a_seek_point() {
    let (folder, data) = (Folder::new(), sample(500_000, 53));
    let trained = folder.train("trained", 7, &data);
    let raw = folder.write("raw", &data[100_000..400_000]);
    for (name, dictionary) in [("trained", &trained), ("raw", &raw)] {
        let given = dictionaries(&[dictionary]);
        for options in [
            "-1",
            "-3 --zstd=wlog=17",
            "-5 --zstd=wlog=14",
            "-19",
            "-3 --stream-size=455000",
            "-4 --zstd=wlog=12 --no-check",
        ] {
            // What comes first is nothing of the dictionary.
            let data = [&sample(5000, 99)[..], &data[..450_000]].concat();
            let stream = folder.pack(options, name, &data);
            let points = all_points(&stream, &data, &given);
            assert!(points.len() >= 3, "{name} {options}: {} points", points.len());
            let mut without = 0;
            for point in &points {
                let rest = &data[point.decoded as usize..];
                assert!(resume_with(&stream, point, &given).unwrap() == rest, "{name} {options}: {}", point.decoded);
                let resumed = resume_with(&stream, point, &Dictionaries::default());
                let error = match resumed {
                    // Behind a window of the frame nothing refers to the dictionary; at its start nothing says that
                    // something does.
                    Ok(decoded) if point.decoded > 1 << 12 => {
                        assert!(decoded == rest);
                        continue;
                    }
                    Ok(decoded) => {
                        assert!(name == "raw" && decoded != rest);
                        continue;
                    }
                    Err(error) => error,
                };
                without += 1;
                let says = error.to_string();
                if point.decoded == 0 && name == "raw" {
                    assert!(says.contains("`zstd-dictionary`"), "{error}");
                } else {
                    let which = if name == "raw" { "needs a dictionary without an ID," } else { "needs dictionary 7," };
                    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                    assert!(
                        says.contains(&format!("byte 0 of the compressed file {which}"))
                            && says.contains("`zstd-dictionary`"),
                        "{error}"
                    );
                }
            }
            let some_reach_it_not = options.contains("wlog");
            assert!(without > 0 && (without + 1 < points.len()) == some_reach_it_not, "{name} {options}: {without}");
        }
    }
}

#[test]
fn frames_of_different_dictionaries_stand_side_by_side() {
    let (folder, data) = (Folder::new(), sample(900_000, 54));
    let names = ["a", "b", "raw", "", "a"];
    let a = folder.train("a", 1, &data[..300_000]);
    let b = folder.train("b", 70_000, &data[300_000..600_000]);
    let raw = folder.write("raw", &data[600_000..700_000]);
    // As pzstd writes it, and small ones that are decoded together.
    for part in [150_000, 700] {
        let parts: Vec<_> = data.chunks(part).take(200).collect();
        let names = names.iter().copied().cycle();
        let frames: Vec<_> = parts.iter().zip(names).map(|(part, name)| folder.pack("-3", name, part)).collect();
        let (data, stream) = (parts.concat(), frames.concat());
        let given = dictionaries(&[&b, &raw, &a]);
        let pass = pass_with(&stream, &given);
        for point in &pass.points {
            assert!(resume_with(&stream, point, &given).unwrap() == data[point.decoded as usize..]);
        }
        assert!(pass.whole() == data);
        // One that is missing ends it there, and says what would help.
        let pass = pass_with(&stream, &dictionaries(&[&raw, &a]));
        let says = pass.error.as_ref().unwrap().to_string();
        assert_eq!(pass.error_kind(), ErrorKind::Unsupported);
        let at = format!("byte {} of the compressed file needs dictionary 70000, ", frames[0].len());
        assert!(says.contains(&at) && says.contains("`zstd-dictionary`"), "{says}");
        assert!(pass.data == parts[0] && pass.damage.is_empty());
    }
}

#[test]
fn a_wrong_dictionary_is_noticed() {
    let (folder, data) = (Folder::new(), sample(300_000, 55));
    folder.train("right", 9, &data);
    let other = folder.train("other", 9, &sample(300_000, 56));
    let stream = folder.pack("-3", "right", &data[..40_000]);
    let pass = pass_with(&stream, &dictionaries(&[&other]));
    assert!(!pass.is_clean() && pass.error.is_none());
    assert_eq!(pass.damage[0].decoded, 0..40_000);
    // With codes of its own only the checksum tells.
    let (right, wrong) = (folder.write("a", &data[..9000]), folder.write("b", &[b'x'; 9000]));
    let stream = folder.pack("-1", "a", &data[..9000]);
    assert!(pass_with(&stream, &dictionaries(&[&right])).whole() == data[..9000]);
    let pass = pass_with(&stream, &dictionaries(&[&wrong]));
    assert!(pass.damage[0].what.contains("XXH64"), "{:?}", pass.damage);
}

#[test]
fn a_frame_without_an_id_that_fails_at_once_tells_of_dictionaries() {
    let (folder, data) = (Folder::new(), sample(100_000, 57));
    folder.train("trained", 9, &data);
    folder.write("raw", &data);
    for name in ["trained", "raw"] {
        let stream = folder.pack("-3 --no-dictID", name, &data[..20_000]);
        let pass = decode(&Zstd, &stream);
        assert!(pass.damage[0].what.contains("`zstd-dictionary`"), "{:?}", pass.damage);
        let given = dictionaries(&[b"quite another"]);
        let wrong = pass_with(&stream, &given);
        assert!(wrong.damage[0].what.contains("made with another dictionary"), "{:?}", wrong.damage);
        for pass in [pass, wrong] {
            let what = &pass.damage[0].what;
            assert!(given.may_mend(what) && !Dictionaries::default().may_mend(what));
        }
    }
    // Of one that has its dictionary by its name, nobody is told that it is missing.
    let stream = folder.pack("-3", "trained", &data[..20_000]);
    let other = folder.train("other", 9, &sample(100_000, 58));
    let pass = pass_with(&stream, &dictionaries(&[&other]));
    assert!(!pass.is_clean());
    for damage in pass.damage {
        assert!(!damage.what.contains("`zstd-dictionary`"), "{damage:?}");
    }
}

#[test]
fn a_dictionary_is_taken_where_libzstd_takes_it() {
    let (folder, data) = (Folder::new(), sample(60_000, 58));
    let trained = folder.train("trained", 300, &data);
    let stream = folder.pack("-3", "trained", &data[..3000]);
    let content = Dictionary::new(trained.clone()).unwrap().content;
    assert!((20..2000).contains(&content), "{content}");
    let (mut taken, mut refused) = (0, 0);
    let mut check = |dictionary: Vec<u8>, what: String| {
        let theirs = DCtx::create().load_dictionary(&dictionary).is_ok();
        let mut ours = Dictionaries::default();
        let added = ours.add(dictionary.clone());
        assert!(is_taken_alike(&added, theirs), "{what}: {added:?}");
        *(if theirs { &mut taken } else { &mut refused }) += 1;
        if added.is_ok()
            && let Some(expected) = with_libzstd(&stream, &dictionary)
        {
            assert!(pass_with(&stream, &ours).whole() == expected, "{what}");
        }
    };
    for length in 1..trained.len().min(content + 20) {
        check(trained[..length].to_vec(), format!("cut to {length}"));
    }
    for bit in 0..content * 8 {
        let mut flipped = trained.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        check(flipped, format!("bit {bit}"));
    }
    assert!(taken > 100 && refused > 100, "{taken} {refused}");
    let mut given = Dictionaries::default();
    assert_eq!(given.add(Vec::new()).unwrap_err(), "is empty");
    given.add(b"one".to_vec()).unwrap();
    given.add(b"one".to_vec()).unwrap();
    assert!(given.add(b"other".to_vec()).unwrap_err().contains("without an ID"));
    given.add(trained.clone()).unwrap();
    let other = [&trained[..], b"longer"].concat();
    assert!(given.add(other).unwrap_err().contains("is another one of ID 300"));
    assert_eq!(format!("{given:?}"), "[0, 300]");
}

#[test]
fn flips_and_cuts_are_noticed_with_a_dictionary() {
    let (folder, data) = (Folder::new(), sample(60_000, 59));
    let trained = folder.train("trained", 300, &data);
    let given = dictionaries(&[&trained]);
    let data = &data[..1500];
    let stream = [folder.pack("-3", "trained", &data[..700]), folder.pack("-9", "trained", &data[700..])].concat();
    assert!(pass_with(&stream, &given).whole() == data);
    for bit in 0..stream.len() * 8 {
        let mut flipped = stream.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let pass = pass_with(&flipped, &given);
        pass.assert_honest(data, &format!("bit {bit}"));
        let theirs = with_libzstd(&flipped, &trained);
        assert!(!pass.is_clean() || theirs.is_none_or(|theirs| theirs == pass.data), "bit {bit}");
    }
    for cut in 1..stream.len() {
        let pass = pass_with(&stream[..cut], &given);
        assert!(data.starts_with(&pass.data) && pass.damage.is_empty(), "cut at {cut}");
        assert_eq!(pass.error.is_none(), with_libzstd(&stream[..cut], &trained).is_some(), "cut at {cut}");
    }
}

#[test]
fn states_that_lie_about_a_dictionary_are_refused() {
    let (folder, data) = (Folder::new(), sample(300_000, 60));
    let trained = folder.train("trained", 5, &data);
    let given = dictionaries(&[&trained, &data[..100]]);
    let stream = folder.pack("-3 --zstd=wlog=17", "trained", &data);
    let points = all_points(&stream, &data, &given);
    let point = points.iter().find(|point| point.decoded == 1 << 17).unwrap();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut state = point.state.clone();
        change(&mut state);
        resume_with(&stream, &SeekPoint { state, ..point.clone() }, &given)
    };
    assert!(with(&|_| {}).unwrap() == data[1 << 17..]);
    // Behind the version, the flags, four numbers and the offsets.
    let id = 2 + 4 * 8 + 3 * 4;
    assert!(with(&|state| state[id] = 6).unwrap_err().to_string().contains("needs dictionary 6"));
    assert!(with(&|state| state[id] = 0).unwrap_err().to_string().contains("a dictionary without an ID"));
    assert!(with(&|state| state[id + 5] ^= 1).unwrap_err().to_string().contains("needs dictionary 5"));
    assert!(with(&|state| state[28] += 1).unwrap_err().to_string().contains("out of reach"));
    for bit in 0..(id + 100) * 8 {
        let _ = with(&|state| state[bit / 8] ^= 1 << (bit % 8));
    }
    for length in 1..point.state.len() {
        assert!(with(&|state| state.truncate(length)).is_err(), "cut to {length}");
    }
}

#[test]
fn a_decoder_that_lies_idle_holds_no_dictionary() {
    let (folder, data) = (Folder::new(), sample(100_000, 61));
    let raw = folder.write("raw", &data);
    let with = folder.pack("-3", "raw", &data[..30_000]);
    let plain = folder.pack("-3", "", &data[..30_000]);
    let given = dictionaries(&[&raw]);
    for _ in 0..20 {
        assert!(resume_with(&with, &SeekPoint::default(), &given).unwrap() == data[..30_000]);
        assert!(!decode(&Zstd, &with).is_clean());
        assert!(resume_with(&plain, &SeekPoint::default(), &Dictionaries::default()).unwrap() == data[..30_000]);
    }
    let Dictionaries(given) = given;
    assert_eq!(Arc::strong_count(&given[0]), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_read_through_any_point_is_a_slice_of_the_whole(
        seed in any::<u64>(), level in 1..8, window in 10..19, from in any::<prop::sample::Index>(),
        skip in 0..20_000_usize, length in 0..30_000_usize, start in 0..100_000_usize, size in 1..60_000_usize,
    ) {
        let (folder, data) = (Folder::new(), sample(150_000, seed | 1));
        let raw = folder.write("raw", &data[start..(start + size).min(data.len())]);
        let given = dictionaries(&[&raw]);
        let stream = folder.pack(&format!("-{level} --zstd=wlog={window}"), "raw", &data);
        let points = all_points(&stream, &data, &given);
        let point = from.get(&points);
        let mut decoder = Zstd.resume(source(&stream), point, &context(&given)).unwrap();
        let mut buffer = vec![0; skip + length];
        let read = decoder.read(&mut buffer).unwrap();
        let start = point.decoded as usize;
        prop_assert!(read == buffer.len().min(data.len() - start) && buffer[..read] == data[start..start + read]);
    }

    #[test]
    fn any_bytes_as_a_dictionary_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let bytes = [&MAGIC.to_le_bytes()[..], &[1, 0, 0, 0], &bytes].concat();
        let theirs = DCtx::create().load_dictionary(&bytes).is_ok();
        prop_assert!(is_taken_alike(&Dictionaries::default().add(bytes), theirs));
    }

    #[test]
    fn any_bytes_with_a_dictionary_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300), header in 0u8..4) {
        let given = dictionaries(&[&sample(5000, 3)]);
        let stream = [&[0x28, 0xB5, 0x2F, 0xFD, header << 6 | 0x20], &bytes[..]].concat();
        let pass = pass_with(&stream, &given);
        prop_assert!(!pass.is_clean() || with_libzstd(&stream, &sample(5000, 3)).is_none_or(|theirs| theirs == pass.data));
    }
}

#[test]
fn the_tool_agrees() {
    let (folder, data) = (Folder::new(), sample(400_000, 62));
    let trained = folder.train("trained", 4, &data);
    // What needs none is the same with one.
    let stream = [folder.pack("-3", "trained", &data), folder.pack("-3", "", &data)].concat();
    let (theirs, good) = tool_status(&format!("zstd -dc -q -D {}", folder.path("trained").display()), &stream);
    assert!(good && pass_with(&stream, &dictionaries(&[&trained])).whole() == theirs);
}
