use std::sync::Arc;

use tarnfs_source::testing::CountedSource;
use tarnfs_source::{Cancel, Limits, SharedSource};

use super::{DEB, Known, deb};
use crate::testing::{Pass, noise, tool};
use crate::{Codec, DecodeContext, Decoder, FILLER, Findings, FirstPass, Options, SeekPoint};

/// A member of an ar.
fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100_644, content.len());
    let padding: &[u8] = if content.len() % 2 == 1 { b"\n" } else { b"" };
    [header.as_bytes(), content, padding].concat()
}

fn package(control: &[u8]) -> Vec<u8> {
    let (version, data) = (member("debian-binary", b"2.0\n"), member("data.tar", b"data"));
    [&b"!<arch>\n"[..], &version, &member("control.tar.x", control), &data].concat()
}

/// Byte of what comes of a package at which `control` begins.
const CONTROL: usize = 8 + 60 + 4 + 60;

fn decoded(package: &[u8]) -> Pass {
    let mut pass = DEB.first_pass(crate::testing::source(package), &Options::default()).unwrap();
    let mut found = Pass { data: Vec::new(), points: Vec::new(), damage: Vec::new(), shifts: Vec::new(), error: None };
    let mut buffer = vec![0; 100_000];
    loop {
        let read = pass.read(&mut buffer).unwrap();
        pass.take_damage(&mut found.damage);
        pass.take_shifts(&mut found.shifts);
        if read == 0 {
            return found;
        }
        found.data.extend_from_slice(&buffer[..read]);
    }
}

/// Length of `control`, and which bytes of it are said to be wrong.
fn control(pass: &Pass) -> (usize, Vec<std::ops::Range<usize>>) {
    let length = std::str::from_utf8(&pass.data[CONTROL - 12..CONTROL - 2]).unwrap().trim().parse().unwrap();
    let from = |at: u64| (at as usize).checked_sub(CONTROL).unwrap();
    let damaged = pass.damage.iter().map(|damage| from(damage.decoded.start)..from(damage.decoded.end));
    let damaged: Vec<_> = damaged.filter(|range| !range.is_empty()).collect();
    assert!(damaged.iter().all(|range| range.end <= length), "{damaged:?} of {length}");
    (length, damaged)
}

#[test]
fn what_is_damaged_in_the_control_of_a_package_is_not_right() {
    let text = noise(30_000);
    assert!(decoded(&package(&tool("gzip -nc", &text))).is_clean());
    // A wrong byte of what is stored as it is.
    let mut packed = tool("gzip -nc", &text);
    packed[1000] ^= 1;
    let pass = decoded(&package(&packed));
    let (length, damaged) = control(&pass);
    assert_eq!((length, damaged.len(), damaged[0].clone()), (text.len(), 1, 0..text.len()));
    assert!(pass.damage[0].what.starts_with("'control.tar.x': "), "{:?}", pass.damage);
    assert!(pass.damage[0].compressed > CONTROL as u64 && pass.data.ends_with(b"data"));
    // A block of several.
    let mut packed = tool("xz -c0 --block-size=8000", &text);
    let at = packed.len() / 2;
    packed[at..at + 12].fill(0x5a);
    let pass = decoded(&package(&packed));
    let (length, damaged) = control(&pass);
    assert_eq!((length, damaged.len(), damaged[0].len()), (text.len(), 1, 8000));
    let shown = &pass.data[CONTROL..][..length];
    assert!((0..length).all(|at| damaged[0].contains(&at) || shown[at] == text[at]));
    // One that is cut has what is whole, and is told.
    let packed = tool("xz -c0 --block-size=8000", &text);
    let pass = decoded(&package(&packed[..packed.len() / 2]));
    let (length, damaged) = control(&pass);
    assert!(length < text.len() && pass.data[CONTROL..][..length] == text[..length], "{damaged:?}");
    assert!(!pass.damage.is_empty());
}

#[test]
fn where_the_control_of_a_package_is_out_of_step_is_told() {
    let text = noise(300_000);
    let mut packed = [tool("bzip2 -1c", &text), tool("bzip2 -1c", &text)].concat();
    // The CRC-32 of the first block.
    packed[10] ^= 1;
    let pass = decoded(&package(&packed));
    let (length, damaged) = control(&pass);
    assert_eq!((length, damaged.len(), pass.shifts.len()), (600_000, 1, 1));
    assert_eq!(pass.shifts[0] as usize, CONTROL + damaged[0].end);
}

/// Each damaged frame of one byte took a hundred bytes of memory.
#[test]
fn any_number_of_damaged_frames_in_the_control_of_a_package_takes_little_memory() {
    let good = tool("zstd -qc --check", b"x");
    let mut wrong = good.clone();
    *wrong.last_mut().unwrap() ^= 0x55;
    let pass = decoded(&package(&[wrong, good].concat().repeat(20_000)));
    let (length, damaged) = control(&pass);
    assert_eq!((length, damaged[0].clone()), (40_000, 0..1));
    assert!(damaged.len() <= deb::MOST_REPORTS + 1 && pass.shifts.len() <= deb::MOST_REPORTS, "{}", damaged.len());
    assert!((0..length).step_by(2).all(|at| damaged.iter().any(|range| range.contains(&at))));
    assert!(!damaged.iter().any(|range| range.contains(&1)), "the first ones are told apart");
}

#[test]
fn a_signature_that_is_cut_is_no_shorter_one() {
    let package = [package(&tool("gzip -nc", b"control")), member("_gpgorigin", b"signed ")].concat();
    assert!(decoded(&package).is_clean());
    let pass = decoded(&package[..package.len() - 5]);
    assert_eq!(pass.damage.len(), 1, "{:?}", pass.damage);
    let lost = pass.damage[0].decoded.start as usize;
    assert_eq!((pass.damage[0].decoded.end as usize, pass.data[lost]), (lost + 1, FILLER));
    assert!(pass.data[..lost].ends_with(b"`\nsig"), "{:?}", &pass.data[lost - 9..lost]);
}

/// > What is whole in a damaged or cut archive is served, and the rest is an error.
#[test]
fn what_is_before_the_data_of_a_package_that_is_cut_is_served() {
    let text = noise(30_000);
    for (control, rest) in [(text.clone(), 10_000), (tool("xz -c0 --block-size=8000", &text), 20_000)] {
        let whole = package(&control);
        let pass = decoded(&whole[..CONTROL + rest]);
        let (length, _) = self::control(&pass);
        assert!((8000..=rest).contains(&length) && pass.data[CONTROL..][..length] == text[..length], "{length}");
        assert!(pass.data.starts_with(b"!<debs>\ndebian-binary") && pass.data[68..].starts_with(b"2.0\n"));
        let told: Vec<_> = pass.damage.iter().map(|damage| damage.what.as_str()).collect();
        assert!(told.iter().any(|what| what.starts_with("'control.tar.x': ")), "{told:?}");
        assert!(told.iter().any(|what| what.contains("before its data")), "{told:?}");
        // Between two members, and in the header of one.
        let data = whole.len() - 4 - 60;
        for length in [data, data + 59] {
            let pass = decoded(&whole[..length]);
            assert_eq!(self::control(&pass), (text.len(), Vec::new()));
            assert_eq!(pass.damage.len(), 1, "{:?}", pass.damage);
            assert_eq!(pass.damage[0].compressed, data as u64);
        }
        let mut wrong = whole.clone();
        wrong[data + 58] = b'?';
        let pass = decoded(&wrong);
        assert!(self::control(&pass).0 == text.len() && pass.damage[0].what.contains("no valid header"));
    }
    // Of what has no member there is nothing to show.
    let cut = crate::testing::source(&package(b"control")[..8 + 40]);
    assert!(DEB.first_pass(cut, &Options::default()).is_err());
}

/// Where the data stand before it, they are all there.
#[test]
fn that_the_control_of_a_package_is_cut_is_told_wherever_it_stands() {
    let members = [member("debian-binary", b"2.0\n"), member("data.tar", b"data"), member("control.tar", &noise(5000))];
    let package = [&b"!<arch>\n"[..], &members.concat()].concat();
    assert!(decoded(&package).is_clean());
    let pass = decoded(&package[..package.len() - 1000]);
    assert!(pass.data.ends_with(b"data"));
    let [damage] = pass.damage.as_slice() else { panic!("{:?}", pass.damage) };
    assert!(damage.what.ends_with("the package is cut short in it"), "{damage:?}");
}

/// Room is left for some bytes only.
#[test]
fn a_member_that_is_too_long_for_the_head_is_no_shorter_one() {
    let content = noise(20_000);
    for (name, lost) in [("_gpgorigin", 1), ("control.tar", 0)] {
        let package = member(name, &content);
        let (source, cancel) = (crate::testing::source(&package), Cancel::default());
        let before = deb::MOST - 10_000;
        let header = deb::Header { bytes: package[..60].try_into().unwrap(), start: 60, size: 20_000, before };
        let found = deb::member(&source, &header, &Limits::default(), &cancel).unwrap();
        let [damage] = found.findings.damage.as_slice() else { panic!("{name}: {:?}", found.findings) };
        assert!(damage.what.contains("it has more than"), "{damage:?}");
        let end = before + found.content.len() as u64;
        assert_eq!((damage.decoded.clone(), damage.lost_from), (end - lost..end, end - lost), "{name}");
    }
}

/// Is out of step at each byte, and tells no damage.
struct OutOfStep(Findings);

impl Decoder for OutOfStep {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Ok(0)
    }

    fn memory(&self) -> usize {
        0
    }
}

impl FirstPass for OutOfStep {
    fn findings(&mut self) -> Option<&mut Findings> {
        Some(&mut self.0)
    }

    fn compressed_position(&self) -> u64 {
        0
    }
}

/// Many decoders rest at a time.
#[test]
fn the_head_of_a_package_counts_until_it_was_handed_out() {
    let package = package(&tool("gzip -nc", &vec![0; 1 << 20]));
    let (source, context) = (crate::testing::source(&package), DecodeContext::default());
    let mut decoder = DEB.resume(source, &SeekPoint::default(), &context).unwrap();
    assert!(decoder.memory() > 1 << 20, "{}", decoder.memory());
    let mut bytes = vec![0; 2 << 20];
    while decoder.read(&mut bytes).unwrap() > 0 {}
    assert!(decoder.memory() < 1 << 20, "{}", decoder.memory());
}

#[test]
fn what_is_out_of_step_too_often_is_lost() {
    let mut member = deb::Member { content: vec![0; 1000], ..deb::Member::default() };
    let shifts = (1..=500).collect();
    member.take(&mut OutOfStep(Findings { shifts, ..Findings::default() }));
    let findings = member.end().findings;
    assert_eq!(findings.shifts.len(), deb::MOST_REPORTS);
    let [damage] = findings.damage.as_slice() else { panic!("{:?}", findings.damage) };
    assert_eq!(damage.decoded, deb::MOST_REPORTS as u64 + 1..1000);
}

/// Each seek point decoded the members before the payload again, up to 64 MiB of them, before it said that there was
/// no memory for it.
#[test]
fn what_comes_before_the_payload_is_decoded_once_for_all_seek_points() {
    let (control, data) = (noise(600_000), noise(300_000));
    let packed = [tool("bzip2 -1c", &data[..150_000]), tool("bzip2 -1c", &data[150_000..])].concat();
    let members = [member("debian-binary", b"2.0\n"), member("control.tar.x", &tool("gzip -nc", &control))];
    let package = [&b"!<arch>\n"[..], &members.concat(), &member("data.tar.bz2", &packed)].concat();
    let before = CONTROL + control.len() + 60;
    let source = Arc::new(CountedSource::new(crate::testing::source(&package)));
    let shared: SharedSource = Arc::clone(&source) as _;
    let points = {
        let mut pass = DEB.first_pass(Arc::clone(&shared), &Options::default()).unwrap();
        let (mut points, mut buffer) = (Vec::new(), vec![0; 100_000]);
        while pass.read(&mut buffer).unwrap() > 0 {}
        pass.take_points(&mut points);
        points
    };
    let last = points.last().unwrap();
    assert!(last.decoded >= before as u64, "{points:?}");
    let read = || {
        let taken = source.bytes();
        let mut decoder = DEB.resume(Arc::clone(&shared), last, &DecodeContext::default()).unwrap();
        let mut byte = [0];
        assert_eq!(decoder.read(&mut byte).unwrap(), 1);
        assert_eq!(byte[0], data[last.decoded as usize - before]);
        assert!(decoder.memory_after(u64::MAX) >= decoder.memory());
        (source.bytes() - taken) as usize
    };
    let (first, second, third) = (read(), read(), read());
    assert!(first > control.len() / 2, "{first} bytes were read to find the payload");
    assert!(second < control.len() / 2 && third == second, "{second} and {third} bytes for the next ones");
}

/// Two readers of the first chunk have one head. What holds nothing is not decoded without an end.
#[test]
fn a_head_is_decoded_once_for_all_who_have_it_and_not_without_an_end() {
    let control = noise(600_000);
    let source = Arc::new(CountedSource::new(crate::testing::source(&package(&tool("gzip -nc", &control)))));
    let shared: SharedSource = Arc::clone(&source) as _;
    let start = || DEB.resume(Arc::clone(&shared), &SeekPoint::default(), &DecodeContext::default()).unwrap();
    let held = start();
    let before = source.bytes();
    let other = start();
    assert!(source.bytes() - before < 300_000, "{} bytes", source.bytes() - before);
    drop((held, other));
    // Streams of one byte.
    let one = tool("bzip2 -c", b"x");
    let pass = decoded(&package(&one.repeat(3_000_000 / one.len())));
    let (length, damaged) = self::control(&pass);
    assert!(length < 70_000 && !pass.damage.is_empty(), "{length} {damaged:?}");
    assert!(pass.damage[0].what.contains("it takes more than"), "{:?}", pass.damage[0]);
}

/// A decoder passes all streams that hold nothing while it is asked for one byte. They are read again after each mount.
#[test]
fn streams_that_hold_nothing_are_not_all_read() {
    let (text, nothing) = (noise(30_000), tool("gzip -nc", b""));
    let control = [tool("gzip -nc", &text), nothing.repeat((8 << 20) / nothing.len())].concat();
    let source = Arc::new(CountedSource::new(crate::testing::source(&package(&control))));
    let shared: SharedSource = Arc::clone(&source) as _;
    let limits = Limits::default();
    let layout = deb::layout(&shared, &limits, &Cancel::default()).unwrap();
    assert!(source.bytes() < 4 << 20, "{} bytes", source.bytes());
    let [damage] = layout.findings.damage.as_slice() else { panic!("{:?}", layout.findings) };
    assert!(damage.what.contains("it takes more than"), "{damage:?}");
    // What it says is there.
    let mut shown = vec![0; text.len()];
    layout.head.read_exact_at(&mut shown, CONTROL as u64).unwrap();
    assert_eq!(shown, text);
    // So it is for who reads behind it.
    let before = source.bytes();
    let point = SeekPoint { compressed_bit: layout.payload * 8, decoded: layout.head_length, state: Vec::new() };
    let mut decoder = DEB.resume(Arc::clone(&shared), &point, &DecodeContext::default()).unwrap();
    let mut bytes = [0; 4];
    assert_eq!((decoder.read(&mut bytes).unwrap(), &bytes), (4, b"data"));
    assert!(source.bytes() - before < 4 << 20, "{} bytes", source.bytes() - before);
}

/// While a head is decoded for one reader, those behind it go on.
#[test]
fn who_needs_no_head_does_not_wait_for_one() {
    let shared = crate::testing::source(&package(&tool("gzip -nc", b"control")));
    let layout = deb::layout(&shared, &Limits::default(), &Cancel::default()).unwrap();
    let point = SeekPoint { compressed_bit: layout.payload * 8, decoded: layout.head_length, state: Vec::new() };
    let resume = |source: &SharedSource| DEB.resume(Arc::clone(source), &point, &DecodeContext::default()).is_ok();
    assert!(resume(&shared));
    let known = Known::of(&shared);
    let making = known.making.lock().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(resume(&shared)));
        let answer = receiver.recv_timeout(std::time::Duration::from_secs(60));
        drop(making);
        assert_eq!(answer, Ok(true));
    });
}
