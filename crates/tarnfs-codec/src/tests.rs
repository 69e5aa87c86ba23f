//! What holds for several codecs.

mod behind_damage;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_source::testing::{Fault, FaultySource, When};
use tarnfs_source::{Cancel, SharedSource, Source};

use crate::testing::{Broken, decode, length_before_damage, noise, sample, source, to_the_end, tool};
use crate::{DecodeContext, Decoder, Options, PIECE, by_name};

#[test]
fn what_cannot_be_read_further_on_ends_no_pass_before_it_is_there() {
    let data = sample(8 << 20, 40);
    let mut early = Vec::new();
    let parts = |command: &str| data.chunks(1 << 20).flat_map(|part| tool(command, part)).collect::<Vec<_>>();
    for (codec, stream) in [
        ("bzip2", tool("bzip2 -c", &data)),
        ("gzip", tool("gzip -nc", &data)),
        ("lzip", parts("lzip -qc0")),
        ("xz", tool("xz -qc0 -T1 --block-size=1048576", &data)),
        ("xz", tool("xz -qc0 -T2 --block-size=1048576", &data)),
        ("zstd", parts("zstd -qc")),
    ] {
        for threads in [1, 3] {
            let options = Options { threads, seek_point_spacing: 256 << 10, ..Options::default() };
            let source = Broken(source(&stream), stream.len() as u64 / 4 * 3);
            let mut pass = by_name(codec).unwrap().first_pass(Arc::new(source), &options).unwrap();
            let length = length_before_damage(&mut *pass);
            if length < data.len() / 2 {
                early.push(format!("{codec}, {threads} threads: {length} of {} bytes", data.len()));
            }
        }
    }
    assert!(early.is_empty(), "{early:#?}");
}

/// A disk that fails once has damaged nothing: an index that said so would be believed for ever.
#[test]
fn what_cannot_be_read_now_is_no_damage() {
    let data = [sample(300_000, 41), noise(200_000)].concat();
    for (codec, stream) in [
        ("brotli", tool("brotli -cq 5", &data)),
        ("bzip2", tool("bzip2 -1c", &data)),
        ("gzip", tool("gzip -nc", &data)),
        ("lz4", tool("lz4 -qcB4", &data)),
        ("lzip", tool("lzip -qc0", &data)),
        ("lzma", tool("xz -qc0 --format=lzma", &data)),
        ("lzop", tool("lzop -qc1", &data)),
        ("xz", tool("xz -qc0 --block-size=100000", &data)),
        ("xz", tool("xz -qc0 -T2 --block-size=100000", &data)),
        ("zstd", tool("zstd -qc", &data)),
    ] {
        for number in 1.. {
            let faulty = FaultySource::new(source(&stream), Fault::Error(libc::EIO), When::At(number));
            let faulty = Arc::new(faulty);
            let options = Options { threads: 1, ..Options::default() };
            let pass = by_name(codec).unwrap().first_pass(Arc::clone(&faulty) as SharedSource, &options);
            let mut damage = Vec::new();
            let error = pass.and_then(|mut pass| {
                let decoded = to_the_end(&mut *pass, PIECE);
                pass.take_damage(&mut damage);
                decoded
            });
            if !faulty.has_struck() {
                assert!(number > 1 && error.unwrap() == data, "{codec}");
                break;
            }
            assert_eq!(damage, [], "{codec}, read {number}");
            match error {
                Ok(decoded) => assert!(decoded == data, "{codec}, read {number}: other bytes in silence"),
                Err(error) => assert!(error.to_string().contains("os error 5"), "{codec}, read {number}: {error}"),
            }
        }
    }
}

/// Bytes, and a hole behind them.
#[derive(Debug)]
struct Sparse {
    bytes: Vec<u8>,
    hole: u64,
    read: AtomicU64,
}

impl Source for Sparse {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = (buffer.len() as u64).min(self.len().saturating_sub(offset)) as usize;
        let bytes = self.bytes.get(offset as usize..).unwrap_or_default();
        let stored = bytes.len().min(length);
        buffer[..stored].copy_from_slice(&bytes[..stored]);
        buffer[stored..length].fill(0);
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.hole
    }

    fn describe(&self) -> String {
        "a sparse file".into()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        (offset < self.bytes.len() as u64).then_some(offset)
    }
}

/// A file that was made longer, by `truncate` say, costs what is in it.
#[test]
fn a_hole_behind_a_stream_is_not_read() {
    const HOLE: u64 = 1 << 30;
    let data = sample(200_000, 43);
    for (codec, command) in [
        ("bzip2", "bzip2 -c"),
        ("gzip", "gzip -nc"),
        ("lz4", "lz4 -qc"),
        ("lzip", "lzip -qc0"),
        ("xz", "xz -qc0"),
        ("zstd", "zstd -qc"),
    ] {
        let source = Arc::new(Sparse { bytes: tool(command, &data), hole: HOLE, read: AtomicU64::new(0) });
        let options = Options { threads: 1, ..Options::default() };
        let shared = Arc::clone(&source) as SharedSource;
        let mut pass = by_name(codec).unwrap().first_pass(shared, &options).unwrap();
        assert!(to_the_end(&mut *pass, PIECE).unwrap() == data, "{codec}");
        let mut damage = Vec::new();
        pass.take_damage(&mut damage);
        // Of lz4 they are told.
        assert_eq!(damage.len(), usize::from(codec == "lz4"), "{codec}: {damage:?}");
        let read = source.read.load(Ordering::Relaxed);
        assert!(read < HOLE / 16, "{codec}: {read} bytes");
    }
}

#[test]
fn whoever_asks_a_pass_to_end_need_not_wait_for_a_byte() {
    let data = noise(1000);
    for codec in ["brotli", "bzip2", "gzip", "lz4", "lzip", "lzop", "xz", "zstd"] {
        let stream = tool(&format!("{codec} -c"), &data);
        let codec = by_name(codec).unwrap();
        assert!(decode(codec, &stream).whole() == data);
        let cancel = Cancel::default();
        cancel.cancel();
        let mut pass = codec.first_pass(source(&stream), &Options { cancel, ..Options::default() }).unwrap();
        assert_eq!(pass.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::Interrupted, "{}", codec.name());
    }
}

#[test]
fn behind_an_lzip_member_of_another_length_all_may_be_out_of_step() {
    let data = sample(5000, 41);
    let members = [tool("lzip -qc", &data), tool("lzip -qc", &data)];
    let lzip = by_name("lzip").unwrap();
    for (from_end, shifts) in [(20, vec![]), (16, vec![5000]), (8, vec![])] {
        let mut stream = members.concat();
        stream[members[0].len() - from_end] ^= 1;
        let pass = decode(lzip, &stream);
        assert_eq!((pass.damage.len(), pass.shifts), (1, shifts), "{from_end} bytes from the end");
    }
}

/// Decoders are let in by what they say that they will take. One that says too little takes memory that others have.
#[test]
fn no_decoder_takes_more_than_it_has_said() {
    const MORE: usize = 3 << 20;
    const SLACK: usize = 256 << 10;
    // Text that refers far back.
    let (block, mut wrong) = (noise(700_000), Vec::new());
    let data: Vec<u8> = (0_u8..8).flat_map(|number| block.iter().map(move |byte| byte ^ number & 1)).collect();
    for (codec, command) in [
        ("brotli", "brotli -c --lgwin=22"),
        ("bzip2", "bzip2 -c"),
        ("gzip", "gzip -c"),
        ("lz4", "lz4 -c -BD"),
        ("lzip", "lzip -c -s 4MiB"),
        ("lzma", "xz -c --format=lzma --lzma1=dict=4MiB"),
        ("lzop", "lzop -c"),
        ("lrzip", "env LRZIP=NOCONFIG lrzip -Q -g -L1"),
        ("xz", "xz -c --lzma2=dict=4MiB"),
        ("zstd", "zstd -c --long=23"),
    ] {
        let stream = tool(command, &data);
        let codec = by_name(codec).unwrap();
        let start = decode(codec, &stream).points.swap_remove(0);
        let mut decoder = codec.resume(source(&stream), &start, &DecodeContext::default()).unwrap();
        let mut buffer = vec![0; PIECE];
        let mut next = |decoder: &mut dyn Decoder| {
            let mut filled = 0;
            while filled < buffer.len() {
                match decoder.read(&mut buffer[filled..]).unwrap() {
                    0 => break,
                    read => filled += read,
                }
            }
            filled
        };
        let mut decoded = next(&mut *decoder);
        let (told, most) = (decoder.memory_after(MORE as u64), decoder.memory_after(u64::MAX));
        while decoded < PIECE + MORE {
            decoded += next(&mut *decoder);
        }
        let mut taken = decoder.memory();
        if taken > told.saturating_add(SLACK) {
            wrong.push(format!("{}: {told} bytes were told, {taken} are taken", codec.name()));
        }
        while next(&mut *decoder) > 0 {
            taken = taken.max(decoder.memory());
        }
        if taken > most.saturating_add(SLACK) {
            wrong.push(format!("{}: {most} bytes at most, {taken} are taken", codec.name()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
