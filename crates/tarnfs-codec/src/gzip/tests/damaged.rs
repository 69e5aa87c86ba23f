//! Damaged streams: cut anywhere, with any bit flipped, or with parts missing.

use super::*;
use crate::DecodeContext;

#[test]
fn a_wrong_checksum_is_damage_of_its_member() {
    let parts = [text(50_000), text(70_001), random_bytes(10, 1)];
    let members = parts.each_ref().map(|part| gzip(part));
    for place in 1..=8 {
        let mut broken = members.clone();
        let end = broken[1].len();
        broken[1][end - place] ^= 0x40;
        let pass = first_pass(&Gzip, &memory(&broken.concat()), 20_000, 4096);
        assert!(pass.error.is_none() && pass.decoded == parts.concat());
        assert_eq!(pass.damage.len(), 1);
        assert_eq!(pass.damage[0].decoded, 50_000..120_001);
        assert!(pass.damage[0].what.contains(if place <= 4 { "length" } else { "CRC-32" }));
    }
    let Some(mut zlib) = python("out.write(zlib.compress(data))", &parts[0]) else { return };
    *zlib.last_mut().unwrap() ^= 1;
    let pass = first_pass(&Zlib, &memory(&zlib), 20_000, 4096);
    assert!(pass.error.is_none() && pass.decoded == parts[0]);
    assert!(pass.damage[0].decoded == (0..50_000) && pass.damage[0].what.contains("Adler-32"));
}

#[test]
fn a_member_behind_a_wrong_checksum_and_garbage_is_found() {
    let (before, behind) = (text(50_000), text(70_001));
    let (mut first, second) = (gzip(&before), gzip(&behind));
    let garbage = [0x55; 3000];
    let whole = first_pass(&Gzip, &memory(&[&first[..], &garbage, &second].concat()), 20_000, 4096);
    assert!(whole.decoded == before, "behind a member that is whole it is trailing garbage");
    let end = first.len();
    first[end - 6] ^= 0x40;
    let pass = first_pass(&Gzip, &memory(&[&first[..], &garbage, &second].concat()), 20_000, 4096);
    assert!(pass.error.is_none() && pass.decoded.ends_with(&behind), "{:?}", pass.error);
    let start = (pass.decoded.len() - behind.len()) as u64;
    assert!(start > 50_000, "what is missing leaves a gap");
    for offset in [0, 25_000, 49_999, start - 1] {
        assert!(pass.damage.iter().any(|damage| damage.decoded.contains(&offset)), "{offset}: {:?}", pass.damage);
    }
    assert!(pass.damage.iter().all(|damage| damage.decoded.end <= start), "{:?}", pass.damage);
    assert!(pass.points.iter().any(|point| point.decoded == start));
}

#[test]
fn among_too_many_that_look_like_a_member_none_is_looked_for() {
    let (before, behind) = (text(50_000), text(70_001));
    let mut first = gzip(&before);
    let end = first.len();
    first[end - 6] ^= 0x40;
    let look_alike = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff];
    for (count, is_found) in [(500, true), (20_000, false)] {
        let file = [&first[..], &[0x55], &look_alike.repeat(count), &gzip(&behind)].concat();
        let pass = first_pass(&Gzip, &memory(&file), 20_000, 4096);
        assert!(pass.error.is_none() && pass.decoded.starts_with(&before), "{:?}", pass.error);
        assert_eq!((pass.decoded.len() > before.len(), pass.decoded.ends_with(&behind)), (is_found, is_found));
        assert!(pass.damage.iter().any(|damage| damage.decoded == (0..50_000)), "{:?}", pass.damage);
    }
}

/// Small streams of each format with several members, blocks and kinds of blocks.
fn small_streams() -> Vec<(&'static dyn Codec, Vec<u8>, Vec<u8>)> {
    let parts = [text(900), random_bytes(60, 2), vec![b'x'; 500]];
    let whole = parts.concat();
    let members = [member(8, b"name\0", &parts[0]), gzip(&parts[1]), gzip(&parts[2])].concat();
    let mut streams: Vec<(&'static dyn Codec, _, _)> = vec![(&Gzip, members, whole.clone())];
    let script = |wbits: i32| {
        format!(
            "c = zlib.compressobj(6, 8, {wbits})
out.write(c.compress(data[:500]) + c.flush(zlib.Z_SYNC_FLUSH) + c.compress(data[500:]) + c.flush())"
        )
    };
    for (codec, wbits) in [(&Zlib as &'static dyn Codec, 15), (&Deflate, -15)] {
        streams.extend(python(&script(wbits), &whole).map(|stream| (codec, stream, whole.clone())));
    }
    streams
}

#[test]
fn cut_at_every_byte() {
    for (codec, compressed, data) in small_streams() {
        for length in 0..compressed.len() {
            let source = memory(&compressed[..length]);
            let pass = first_pass(codec, &source, 300, 1000);
            assert!(data.starts_with(&pass.decoded));
            let whole_members = codec.name() == "gzip" && pass.error.is_none();
            if whole_members {
                assert!(compressed[length..].starts_with(&[0x1f, 0x8b]), "cut at {length} goes unnoticed");
            } else {
                assert_eq!(
                    pass.error.unwrap().kind(),
                    io::ErrorKind::UnexpectedEof,
                    "{} cut at {length}",
                    codec.name()
                );
            }
            for point in &pass.points {
                let mut decoder = codec.resume(Arc::clone(&source), point, &DecodeContext::default()).unwrap();
                let (decoded, error) = read_all(&mut *decoder, 77);
                assert!(decoded == pass.decoded[point.decoded as usize..]);
                assert_eq!(error.is_none(), whole_members);
            }
        }
    }
}

#[test]
fn no_flipped_bit_gives_a_wrong_byte_in_silence() {
    for (codec, compressed, data) in small_streams().into_iter().filter(|(codec, ..)| codec.name() != "deflate") {
        for bit in 0..compressed.len() * 8 {
            let mut flipped = compressed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let source = memory(&flipped);
            let pass = first_pass(codec, &source, 300, 1000);
            let error = pass.error.as_ref().map(io::Error::kind);
            // A stream that ends too early has no checksum at its end: what came before is believed. But of gzip its
            // length shows that it was not cut.
            if codec.name() == "gzip" || error != Some(io::ErrorKind::UnexpectedEof) {
                let covered = |offset: u64| pass.damage.iter().any(|damage| damage.decoded.contains(&offset));
                let wrong = (0..pass.decoded.len() as u64)
                    .filter(|&offset| pass.decoded.get(offset as usize) != data.get(offset as usize));
                // A damaged member may have another length; what follows it is then moved, and right.
                let after = pass.damage.iter().map(|damage| damage.decoded.end).max().unwrap_or(0) as usize;
                let moved_only = data.ends_with(&pass.decoded[after.min(pass.decoded.len())..]);
                assert!(wrong.into_iter().all(covered) || (!pass.damage.is_empty() && moved_only), "bit {bit}");
                assert!(error.is_some() || pass.damage.iter().any(|_| true) || pass.decoded == data, "bit {bit}");
            }
            assert_resumes(codec, &source, &pass, 77, &format!("bit {bit}"));
        }
    }
}

#[test]
fn a_member_that_cannot_be_decoded_costs_only_itself() {
    let parts: Vec<Vec<u8>> =
        (0..6).map(|seed| [text(30_000 + seed), random_bytes(5000, seed as u64)].concat()).collect();
    let members: Vec<_> = parts.iter().map(|part| gzip(part)).collect();
    for (damaged, padding) in [(0, 0), (3, 0), (3, 100), (4, 0)] {
        let mut broken = members.clone();
        let middle = broken[damaged].len() / 2;
        // A block of the type that does not exist, wherever the decoder happens to be.
        broken[damaged][middle..middle + 600].fill(0xff);
        broken[damaged].resize(members[damaged].len() + padding, 0);
        let source = memory(&broken.concat());
        let pass = first_pass(&Gzip, &source, 100_000, 4096);
        assert!(pass.error.is_none(), "{damaged}: {:?}", pass.error);
        let before = parts[..damaged].concat();
        let after = parts[damaged + 1..].concat();
        assert!(pass.decoded.starts_with(&before) && pass.decoded.ends_with(&after), "{damaged}");
        let end = pass.decoded.len() - after.len();
        // All of the member is damage, and only it; what follows lies in the blocks of a tar as before, if nothing lies
        // between.
        let covered = |offset: usize| pass.damage.iter().any(|damage| damage.decoded.contains(&(offset as u64)));
        assert!((before.len()..end).all(covered) && !covered(end));
        assert!(before.is_empty() || !covered(before.len() - 1));
        let length = end - before.len();
        assert!(
            padding > 0 || length % 512 == parts[damaged].len() % 512,
            "{damaged}: {length} bytes, {:?}",
            pass.damage
        );
        // What lies behind has a point of its own, and nobody has to decode the damage to get there.
        let point = pass.points.iter().find(|point| point.decoded == end as u64).unwrap();
        let mut decoder = Gzip.resume(Arc::clone(&source), point, &DecodeContext::default()).unwrap();
        assert!(read_all(&mut *decoder, 999).0 == after);
    }
    // The last one: there is nothing to go on with. It ends in a block of the type that does not exist.
    let script = "c = zlib.compressobj(6, 8, 31)\nout.write(c.compress(data) + c.flush(zlib.Z_SYNC_FLUSH))";
    let Some(last) = python(script, &parts[5]) else { return };
    let source = memory(&[&members[..5].concat()[..], &last, &[0b111; 100]].concat());
    let pass = first_pass(&Gzip, &source, 100_000, 4096);
    assert_eq!(pass.error.unwrap().kind(), io::ErrorKind::InvalidData);
    assert!(pass.decoded == parts.concat());
    assert_eq!(pass.damage[0].decoded, parts[..5].concat().len() as u64..pass.decoded.len() as u64);
}

#[test]
fn a_damaged_member_that_is_too_long_leaves_no_gap_of_gigabytes() {
    let (data, behind) = (random_bytes(5 << 20, 1), text(50_000));
    let mut damaged = gzip(&data);
    let trailer = damaged.len() - 8;
    damaged[trailer] ^= 1;
    damaged[trailer + 4..].copy_from_slice(&(data.len() as u32 - 16).to_le_bytes());
    let pass = first_pass(&Gzip, &memory(&[damaged, gzip(&behind)].concat()), 1 << 20, 64 << 10);
    assert!(pass.decoded.ends_with(&behind));
    // 16 less, as far as the blocks of a tar go.
    assert_eq!(pass.decoded.len() - behind.len(), data.len() + 512 - 16);
}

#[test]
fn behind_a_last_member_that_is_too_long_there_is_no_gap() {
    let data = text(50_000);
    let mut damaged = gzip(&data);
    let trailer = damaged.len() - 8;
    damaged[trailer] ^= 1;
    for (length, gap) in [(data.len() - 16, 0), (data.len() - 512, 0), (0, 0), (data.len() + 16, 16)] {
        damaged[trailer + 4..].copy_from_slice(&(length as u32).to_le_bytes());
        for behind in [&b""[..], &[0; 1000], b"garbage"] {
            let source = memory(&[&damaged, behind].concat());
            let pass = first_pass(&Gzip, &source, 20_000, 4096);
            let what = format!("{length}, {} bytes behind it", behind.len());
            assert!(pass.error.is_none() && pass.decoded.starts_with(&data), "{what}: {:?}", pass.error);
            assert_eq!(pass.decoded.len(), data.len() + gap, "{what}");
            let is_told = |at: usize| pass.damage.iter().any(|damage| damage.decoded.contains(&(at as u64)));
            assert!((0..pass.decoded.len()).all(is_told), "{what}: {:?}", pass.damage);
        }
    }
}

#[test]
fn a_member_in_a_file_of_its_own_is_no_next_member() {
    // gzip's trailing garbage may hold anything, a member among it.
    let [first, second] = [gzip(&text(1000)), gzip(&text(2000))];
    let pass = first_pass(&Gzip, &memory(&[&first[..], b"garbage", &second].concat()), 100, 100);
    assert!(pass.error.is_none() && pass.decoded == text(1000));
    // Four bytes that look like one make none.
    let noise = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff][..], &random_bytes(20_000, 9)].concat();
    let mut broken = first.clone();
    let middle = broken.len() / 2;
    broken.truncate(middle);
    let pass = first_pass(&Gzip, &memory(&[&broken[..], &[0xff; 600], &noise].concat()), 100, 100);
    assert!(pass.error.is_some() && pass.decoded.len() < 10_000);
}

#[test]
fn all_bytes_before_damage_are_returned() {
    let data = text(300_000);
    let script = "c = zlib.compressobj(6, 8, 31)\nout.write(c.compress(data) + c.flush(zlib.Z_SYNC_FLUSH))";
    let Some(compressed) = python(script, &data) else { return };
    // A block of the type that does not exist (RFC 1951 §3.2.3).
    let compressed = [&compressed[..], &[0b111; 100]].concat();
    for read_size in [1, 1000, 1 << 20] {
        let pass = first_pass(&Gzip, &memory(&compressed), 50_000, read_size);
        let error = pass.error.unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("at byte"), "{error}");
        assert!(pass.decoded == data);
    }
}
