//! What 7-Zip and Python pack.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarnfs_source::{Cancel, Limits, SharedSource, Source};

use super::{
    Member, archive, assert_decodes, assert_outlives_mutations, assert_unpacks, coder, context, folder, options,
    program, resume, seven_zip,
};
use crate::testing::{decode_with, noise, sample, source, tool};
use crate::{DecodeContext, Options, PIECE, SeekPoint, coder_by_name};

fn texts() -> [Vec<u8>; 6] {
    [
        vec![],
        vec![7],
        sample(3000, 80),
        vec![0; 700_000],
        noise(200_000),
        [sample(300_000, 81), program(300_000)].concat(),
    ]
}

#[test]
fn members_of_zip_in_every_method() {
    let Some(program) = seven_zip() else { return };
    for (switch, method, name) in
        [("Copy", 0, "copy"), ("Deflate64", 9, "deflate64"), ("LZMA", 14, "lzma-zip"), ("PPMd", 98, "ppmd8")]
    {
        for data in texts() {
            for more in ["-mx=1", "-mx=9"] {
                let member = Member::first(&archive(program, &format!("a -tzip -mm={switch} {more} @ data"), &data));
                if member.method != method {
                    // Where nothing is gained, it stores.
                    assert_eq!(member.method, 0);
                    continue;
                }
                assert_eq!(crc32fast::hash(&data) as usize, member.crc);
                let mut context = coder(&[], None);
                context.decoded_length = Some(member.length as u64);
                assert_decodes(name, &context, &member.stream, &data);
            }
        }
    }
}

#[test]
fn lzma_of_zip_with_a_marker_and_without() {
    let data = sample(1_500_000, 82);
    // A header of `.lzma` with the length, or -1 and a marker.
    let marked = tool("xz -q -c --format=lzma --lzma1=preset=1,dict=64KiB", &data);
    let zip = [&[9, 20, 5, 0], &marked[..5], &marked[13..]].concat();
    let mut context = coder(&[], None);
    assert!(assert_decodes("lzma-zip", &context, &zip, &data) > 2);
    context.decoded_length = Some(data.len() as u64);
    assert!(assert_decodes("lzma-zip", &context, &zip, &data) > 2);
    assert!(
        assert_decodes(
            "lzma-raw",
            &super::CoderContext { properties: marked[..5].into(), ..context.clone() },
            &marked[13..],
            &data
        ) > 2
    );
    // With what may be behind it in an archive.
    let followed = [&zip[..], b"PK\x01\x02"].concat();
    assert!(resume("lzma-zip", &context, &followed, &SeekPoint::default(), 9999).unwrap() == data);
    for wrong in [data.len() - 1, data.len() + 1, 0] {
        context.decoded_length = Some(wrong as u64);
        assert!(resume("lzma-zip", &context, &zip, &SeekPoint::default(), 9999).is_err(), "{wrong}");
    }
    context.decoded_length = None;
    for length in 0..30 {
        let error = resume("lzma-zip", &context, &zip[..length], &SeekPoint::default(), 9).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{length}");
    }
    for (at, value) in [(2, 4), (2, 6), (3, 1), (4, 225), (12, 0xFF)] {
        let mut wrong = zip.clone();
        wrong[at] = value;
        assert!(resume("lzma-zip", &context, &wrong, &SeekPoint::default(), 9).is_err(), "{at}");
    }
}

#[test]
fn raw_lzma2_has_seek_points_inside() {
    let data = [sample(1_500_000, 83), noise(300_000), sample(600_000, 84)].concat();
    for options in ["preset=1,dict=64KiB", "preset=6,lc=0,lp=2,pb=0,dict=1MiB", "preset=6"] {
        let stream = tool(&format!("xz -q -c --format=raw --lzma2={options}"), &data);
        for length in [None, Some(data.len() as u64)] {
            let context = super::CoderContext { decoded_length: length, ..coder(&[24], None) };
            assert!(assert_decodes("lzma2", &context, &stream, &data) > 1, "{options}");
        }
        let context = super::CoderContext { decoded_length: Some(data.len() as u64 - 1), ..coder(&[24], None) };
        assert!(resume("lzma2", &context, &stream, &SeekPoint::default(), 4096).is_err());
    }
    let small = super::CoderContext { decoded_length: Some(1000), ..coder(&[40], None) };
    let stream = tool("xz -q -c --format=raw --lzma2=preset=0", &data[..1000]);
    let limits = Limits { lzma_dictionary: 4096, ..Limits::default() };
    // The dictionary is no larger than what comes.
    let codec = coder_by_name("lzma2").unwrap();
    let context = DecodeContext { limits, ..context(&small) };
    assert!(codec.resume(source(&stream), &SeekPoint::default(), &context).is_ok());
    let context = DecodeContext { limits, ..super::context(&coder(&[40], None)) };
    let refused = codec.resume(source(&stream), &SeekPoint::default(), &context).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    for properties in [&[41][..], &[], &[1, 2]] {
        assert!(resume("lzma2", &coder(properties, None), &stream, &SeekPoint::default(), 9).is_err());
    }
}

/// What py7zr has written, with brotli 1.2.1 of Python: a stream that is flushed, and has no end.
const OF_PY7ZR: &[u8] = include_bytes!("../../../../../tests/archives/brotli-of-py7zr.7z");

/// The branch of 7-Zip with zstd writes such frames.
fn brotli_frame(data: &[u8]) -> Vec<u8> {
    let stream = tool("brotli -cq 5", data);
    let header = [&[0x50, 0x2a, 0x4d, 0x18, 8, 0, 0, 0][..], &(stream.len() as u32).to_le_bytes(), b"BR", &[1, 0]];
    [&header.concat()[..], &stream].concat()
}

#[test]
fn brotli_of_7z() {
    let numbers = (1..=200).map(|number| number.to_string() + "\n").collect::<Vec<_>>().concat();
    let numbers = numbers.as_bytes();
    let of_length =
        |length: usize| super::CoderContext { decoded_length: Some(length as u64), ..coder(&[3, 1, 0], None) };
    let flushed = &OF_PY7ZR[32..295];
    assert_decodes("brotli-7z", &of_length(numbers.len()), flushed, numbers);
    for (context, length) in [(of_length(693), flushed.len()), (coder(&[], None), flushed.len()), (of_length(692), 200)]
    {
        let error = resume("brotli-7z", &context, &flushed[..length], &SeekPoint::default(), 100).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
    for data in texts() {
        let (context, ended) = (of_length(data.len()), tool("brotli -cq 5", &data));
        assert_decodes("brotli-7z", &context, &ended, &data);
        let frames: Vec<u8> = data.chunks(100_000).flat_map(brotli_frame).collect();
        let context = if frames.is_empty() { coder(&[], None) } else { context };
        if !frames.is_empty() {
            assert_decodes("brotli-7z", &context, &frames, &data);
            assert_decodes("brotli-7z", &coder(&[], None), &frames, &data);
        }
    }
    let data = sample(150_000, 87);
    let frames: Vec<u8> = data.chunks(50_000).flat_map(brotli_frame).collect();
    let context = of_length(data.len());
    assert_outlives_mutations("brotli-7z", &context, &frames);
    for length in [8, 15, 16, 17, frames.len() / 2, frames.len() - 1] {
        let error = resume("brotli-7z", &context, &frames[..length], &SeekPoint::default(), 999).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData), "{length}: {error}");
    }
    let other = [&frames[..], b"something"].concat();
    assert!(resume("brotli-7z", &context, &other, &SeekPoint::default(), 999).unwrap() == data, "all is there");
    assert!(resume("brotli-7z", &coder(&[], None), &other, &SeekPoint::default(), 999).is_err());
    // A window of 2^40 bytes.
    let error = resume("brotli-7z", &context, &[0x11, 40, 0, 0], &SeekPoint::default(), 999).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn folders_of_7z_in_every_method() {
    let Some(program) = seven_zip() else { return };
    let methods = [
        "-m0=LZMA",
        "-m0=LZMA:lc=0:lp=3:pb=0",
        "-m0=LZMA2",
        "-m0=LZMA2 -mx=1",
        "-m0=PPMd",
        "-m0=PPMd:o=32:mem=16m",
        "-m0=PPMd:o=2:mem=64k",
        "-m0=Deflate64",
        "-m0=BCJ -m1=LZMA2",
        "-m0=Delta:2 -m1=PPMd",
    ];
    for method in methods {
        for data in &texts()[1..] {
            let made = archive(program, &format!("a -mhc=off {method} @ data"), data);
            assert_unpacks(&folder(&made, None), data);
        }
    }
}

#[test]
fn packed_data_survive_anything() {
    let Some(program) = seven_zip() else { return };
    let data = sample(200_000, 85);
    for method in ["LZMA", "LZMA2", "PPMd:o=6:mem=1m", "PPMd:o=32:mem=64k", "Deflate64"] {
        let (steps, stream) = folder(&archive(program, &format!("a -mhc=off -m0={method} @ data"), &data), None);
        let [(name, context)] = &steps[..] else { panic!("{method}") };
        assert_outlives_mutations(name, context, &stream);
        // Cut anywhere: an error, and before it what is whole.
        for length in (0..40).chain((40..stream.len() - 8).step_by(997)) {
            let mut buffer = vec![0; data.len() + 1];
            let codec = coder_by_name(name).unwrap();
            let Ok(mut decoder) =
                codec.resume(source(&stream[..length]), &SeekPoint::default(), &super::context(context))
            else {
                continue;
            };
            let mut filled = 0;
            let error = loop {
                match decoder.read(&mut buffer[filled..]) {
                    Ok(0) => panic!("{method}, cut at {length}: no error"),
                    Ok(read) => filled += read,
                    Err(error) => break error,
                }
            };
            assert!(data[..filled] == buffer[..filled], "{method}, cut at {length}");
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{method}, cut at {length}");
            assert!(filled + (200 << 10) > length, "{filled} bytes of {length}");
        }
    }
    for method in ["LZMA", "PPMd", "Deflate64"] {
        let member = Member::first(&archive(program, &format!("a -tzip -mm={method} @ data"), &data));
        let name = match member.method {
            14 => "lzma-zip",
            9 => "deflate64",
            _ => "ppmd8",
        };
        let mut context = coder(&[], None);
        context.decoded_length = Some(member.length as u64);
        assert_outlives_mutations(name, &context, &member.stream);
        context.decoded_length = None;
        assert_outlives_mutations(name, &context, &member.stream);
    }
}

#[test]
fn memory_is_bounded() {
    // The first byte of a range coder's data is 0.
    let stream = [0; 100];
    let refused = resume("ppmd7", &coder(&[32, 1, 0, 0, 16], None), &stream, &SeekPoint::default(), 9).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("the limit is 268435456"), "{refused}");
    let codec = coder_by_name("ppmd8").unwrap();
    let limits = Limits { lzma_dictionary: 1 << 20, ..Limits::default() };
    for (megabytes, is_refused) in [(0_u8, false), (1, true)] {
        let stream = [&[5 | megabytes << 4, 0][..], &stream].concat();
        let context = DecodeContext { limits, ..DecodeContext::default() };
        let refused = codec.resume(source(&stream), &SeekPoint::default(), &context).err();
        assert_eq!(refused.map(|error| error.kind()), is_refused.then_some(ErrorKind::Unsupported));
    }
    for properties in [&[1, 0, 0, 1, 0][..], &[65, 0, 0, 1, 0], &[6, 255, 7, 0, 0], &[6, 0, 0, 1], &[]] {
        assert!(resume("ppmd7", &coder(properties, None), &stream, &SeekPoint::default(), 9).is_err());
    }
    for parameters in [[0x10, 0], [0x15, 0x20]] {
        let stream = [&parameters[..], &stream].concat();
        assert!(resume("ppmd8", &coder(&[], None), &stream, &SeekPoint::default(), 9).is_err());
    }
    let small = [&[9, 20, 5, 0, 93, 0, 0, 0, 255][..], &stream].concat();
    let context = DecodeContext { limits, ..DecodeContext::default() };
    let refused = coder_by_name("lzma-zip").unwrap().resume(source(&small), &SeekPoint::default(), &context);
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::Unsupported);
}

#[test]
fn what_is_stored_is_as_long_as_the_container_says() {
    let data = sample(500_000, 87);
    let mut context = coder(&[], None);
    assert!(assert_decodes("copy", &context, &data, &data) > 3);
    context.decoded_length = Some(400_000);
    assert_decodes("copy", &context, &data, &data[..400_000]);
    context.decoded_length = Some(500_001);
    assert_eq!(resume("copy", &context, &data, &SeekPoint::default(), 9).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let beside = SeekPoint { compressed_bit: 16, decoded: 1, state: vec![] };
    assert!(resume("copy", &coder(&[], None), &data, &beside, 9).is_err());
    let pass = decode_with(
        coder_by_name("copy").unwrap(),
        &data,
        PIECE,
        &Options { seek_point_spacing: u64::MAX, ..options(&coder(&[], None)) },
    );
    assert_eq!(pass.points.len(), 1);
}

/// A terabyte of blocks that hold nothing, behind `head`. Counts its reads, and cancels at the fifth.
#[derive(Debug)]
struct Nothing {
    head: &'static [u8],
    block: &'static [u8],
    reads: AtomicU64,
    cancel: Cancel,
}

impl Source for Nothing {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let reads = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(reads < 100, "it reads on after it was cancelled");
        if reads == 5 {
            self.cancel.cancel();
        }
        let head = self.head.len() as u64;
        for (byte, at) in buffer.iter_mut().zip(offset..) {
            *byte = match at.checked_sub(head) {
                Some(behind) => self.block[(behind % self.block.len() as u64) as usize],
                None => self.head[at as usize],
            };
        }
        Ok(buffer.len())
    }

    fn len(&self) -> u64 {
        1 << 40
    }

    fn describe(&self) -> String {
        "nothing".to_owned()
    }
}

#[test]
fn what_decodes_to_nothing_can_be_cancelled() {
    // Of brotli, the window and metadata of no bytes, and one stream after the other of none; of deflate64, stored
    // blocks of no bytes.
    let frame = b"\x50\x2a\x4d\x18\x08\0\0\0\x01\0\0\0BR\0\0\x06";
    let kinds: [(_, &[u8], &[u8]); 3] =
        [("brotli-7z", b"\x0c", b"\x06"), ("brotli-7z", frame, frame), ("deflate64", b"", b"\0\0\0\xff\xff")];
    for (name, head, block) in kinds {
        let options = options(&coder(&[], None));
        let cancel = options.cancel.clone();
        let source = Arc::new(Nothing { head, block, reads: AtomicU64::new(0), cancel });
        let mut pass = coder_by_name(name).unwrap().first_pass(Arc::clone(&source) as SharedSource, &options).unwrap();
        assert_eq!(pass.read(&mut [0; 100]).unwrap_err().kind(), ErrorKind::Interrupted, "{name}");
        assert!(source.reads.load(Ordering::SeqCst) < 8, "{name}");
    }
}
