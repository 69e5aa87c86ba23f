use std::sync::Arc;

use tarnfs_codec::engine::Indexing;
use tarnfs_codec::{DecodeContext, Options, SeekPoint};
use tarnfs_source::{MemorySource, SharedSource};

use super::*;

/// Text that compresses, and bytes that do not.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..3 << 20).map(|_| random()).collect();
    let text: Vec<u8> = (0..700_000).flat_map(|_| [b'a' + random() % 4, b'e', b' ', b'\n']).collect();
    vec![
        ("nothing", Vec::new()),
        ("one byte", b"x".to_vec()),
        ("noise", noise),
        ("text", text),
        ("runs", vec![0; 5 << 20]),
    ]
}

/// The stream, and where its parts can be decoded from.
fn packed(compression: &dyn Compression, level: i32, data: &[u8]) -> (Vec<u8>, Vec<SeekPoint>) {
    let mut frame = compression.frame(level);
    let mut compressor = compression.compressor(level).unwrap();
    let (mut stream, mut points, mut decoded) = (frame.start(), Vec::new(), 0);
    for part in data.chunks(compression.block(level)) {
        let mut block = Block::default();
        compressor.compress(part, &mut block).unwrap();
        points.extend(block.points.iter().map(|point| SeekPoint {
            compressed_bit: stream.len() as u64 * 8 + point.bit,
            decoded: decoded + point.decoded,
            state: point.state.clone(),
        }));
        frame.add(part, &block);
        stream.extend_from_slice(&block.bytes);
        decoded += part.len() as u64;
    }
    stream.extend(frame.end());
    (stream, points)
}

#[test]
fn what_is_compressed_is_decoded_from_each_of_its_points() {
    for compression in COMPRESSIONS.iter().filter(|one| !one.is_plain()) {
        let codec = tarnfs_codec::by_name(compression.name()).unwrap();
        let levels = [*compression.levels().start(), compression.usual_level(), (*compression.levels().end()).min(12)];
        for (what, data) in samples() {
            for level in levels {
                let name = format!("{}, level {level}, {what}", compression.name());
                let (stream, points) = packed(*compression, level, &data);
                let source: SharedSource = Arc::new(MemorySource::new(stream, "stream"));
                let mut pass = Indexing::new(codec, Arc::clone(&source), &Options::default()).unwrap();
                let (mut decoded, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
                // An empty frame of some formats is nothing at all.
                if data.is_empty() && source.len() == 0 {
                    continue;
                }
                loop {
                    match pass.read(&mut buffer).unwrap_or_else(|error| panic!("{name}: {error}")) {
                        0 => break,
                        read => decoded.extend_from_slice(&buffer[..read]),
                    }
                }
                assert!(decoded == data, "{name}: {} of {} bytes", decoded.len(), data.len());
                let mut damage = Vec::new();
                pass.take_damage(&mut damage);
                assert_eq!(damage, [], "{name}");
                for point in points.iter().take(5).chain(points.last()) {
                    let mut decoder = codec
                        .resume(Arc::clone(&source), point, &DecodeContext::default())
                        .unwrap_or_else(|error| panic!("{name}: {point:?}: {error}"));
                    let start = point.decoded as usize;
                    let wanted = (data.len() - start).min(100_000);
                    let mut filled = 0;
                    while filled < wanted {
                        let read = decoder.read(&mut buffer[filled..wanted]).unwrap();
                        assert!(read > 0, "{name}: {point:?}");
                        filled += read;
                    }
                    assert!(buffer[..wanted] == data[start..start + wanted], "{name}: {point:?}");
                }
            }
        }
    }
}

#[test]
fn names_tell_how_a_tar_is_compressed() {
    for (name, expected) in [
        ("x.tar", "none"),
        ("x.tar.gz", "gzip"),
        ("X.TGZ", "gzip"),
        ("x.tar.bz2", "bzip2"),
        ("x.tar.xz", "xz"),
        ("x.txz", "xz"),
        ("x.tar.zst", "zstd"),
        ("x.tar.lz4", "lz4"),
    ] {
        assert_eq!(of_archive(".tar", &name.to_ascii_lowercase().into_bytes()).unwrap().name(), expected, "{name}");
    }
    for name in ["x.gz", "x.zip", "x", ".tar", "x.tar.lzma"] {
        assert!(of_archive(".tar", &name.to_ascii_lowercase().into_bytes()).is_none(), "{name}");
    }
    assert_eq!(by_name("gz").unwrap().name(), "gzip");
    assert_eq!(by_name("none").unwrap().name(), "none");
    assert!(by_name("").is_none());
}
