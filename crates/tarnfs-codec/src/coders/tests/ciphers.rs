//! Encrypted members of zip and folders of 7z.

use std::io::ErrorKind;

use super::{
    Member, archive, assert_decodes, assert_is_read_anywhere, assert_outlives_mutations, assert_unpacks, coder, folder,
    resume, seven_zip,
};
use crate::coders::lengths_of_steps;
use crate::testing::{decode_with, sample, source};
use crate::{Options, PIECE, SeekPoint, coder_by_name};

const PASSWORD: &str = "grün=7";

/// 7-Zip takes no other for a zip.
const ASCII: &str = "spruce-7";

/// A member of zip, stored and encrypted, and what its container says.
fn zip_crypto(data: &[u8]) -> (super::CoderContext, Vec<u8>) {
    let made = archive("zip", &format!("-q -0 -P {PASSWORD} @ data"), data);
    let member = Member::first(&made);
    assert_eq!(member.flags & 1, 1);
    // With a data descriptor the time, else the CRC-32.
    let check = if member.flags & 8 > 0 { member.time >> 8 } else { member.crc >> 24 };
    (coder(&[check as u8], Some(PASSWORD)), member.stream)
}

fn aes_zip(program: &str, data: &[u8], bits: u32) -> (super::CoderContext, Vec<u8>) {
    let made = archive(program, &format!("a -tzip -mm=Copy -mem=AES{bits} -p{ASCII} @ data"), data);
    let member = Member::first(&made);
    let (_, strength, method) = member.aes.unwrap();
    assert_eq!((member.method, method), (99, 0));
    (coder(&[strength], Some(ASCII)), member.stream)
}

#[test]
fn lengths_between_steps_are_known() {
    let with = |name: &str, properties: &[u8]| (coder_by_name(name).unwrap(), coder(properties, None));
    let steps = [
        with("zipcrypto", &[0]),
        with("aes-zip", &[3]),
        with("aes-7z", &[0]),
        with("lzma2", &[0]),
        with("bcj-x86", &[]),
        with("delta", &[0]),
        with("copy", &[]),
    ];
    let lengths = |names: &[&str], stored, decoded| {
        let find = |name: &&str| steps.iter().find(|(codec, _)| codec.name() == *name).unwrap();
        let steps: Vec<_> = names.iter().map(find).map(|(codec, coder)| (*codec, coder)).collect();
        lengths_of_steps(&steps, stored, decoded)
    };
    assert_eq!(lengths(&["lzma2"], 100, 1000), [Some(1000)]);
    assert_eq!(lengths(&["zipcrypto", "lzma2"], 100, 1000), [Some(88), Some(1000)]);
    assert_eq!(lengths(&["zipcrypto", "lzma2"], 11, 1000), [None, Some(1000)]);
    assert_eq!(lengths(&["aes-zip", "lzma2"], 100, 1000), [Some(72), Some(1000)]);
    assert_eq!(
        lengths(&["aes-7z", "lzma2", "bcj-x86", "delta"], 112, 999),
        [Some(112), Some(999), Some(999), Some(999)]
    );
    assert_eq!(lengths(&["aes-7z", "copy"], 112, 99), [Some(99), Some(99)]);
    assert_eq!(lengths(&["lzma2", "lzma2"], 112, 99), [None, Some(99)]);
    assert_eq!(lengths(&["delta", "lzma2", "lzma2", "copy"], 112, 99), [Some(112), None, Some(99), Some(99)]);
}

fn refusal(name: &str, coder: &super::CoderContext, stream: &[u8]) -> String {
    let codec = coder_by_name(name).unwrap();
    let errors = [
        codec.random_access(&source(stream), coder).err().unwrap(),
        codec.first_pass(source(stream), &super::options(coder)).err().unwrap(),
        codec.resume(source(stream), &SeekPoint::default(), &super::context(coder)).err().unwrap(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::PermissionDenied));
    assert_eq!(errors[0].to_string(), errors[1].to_string());
    errors[0].to_string()
}

/// The right password, none, and wrong ones.
fn assert_needs_a_password(name: &str, coder: &super::CoderContext, stream: &[u8]) {
    let without = super::CoderContext { password: None, ..coder.clone() };
    assert_eq!(refusal(name, &without, stream), "it is encrypted: give `password` or `password-file`");
    if name == "aes-7z" {
        return;
    }
    let mut refused = 0;
    for number in 0..50 {
        let password = Some(format!("wrong {number}").as_bytes().into());
        let wrong = super::CoderContext { password, ..coder.clone() };
        match coder_by_name(name).unwrap().resume(source(stream), &SeekPoint::default(), &super::context(&wrong)) {
            Err(_) => {
                assert_eq!(refusal(name, &wrong, stream), "wrong password");
                refused += 1;
            }
            Ok(_) => assert_eq!(name, "zipcrypto", "one in 256 passes"),
        }
    }
    assert!(refused > 40, "{refused}");
}

#[test]
fn zip_crypto_is_decrypted_from_any_point() {
    for length in [0, 1, 1000, 700_000] {
        let data = sample(length, 90);
        let (context, stream) = zip_crypto(&data);
        let points = assert_decodes("zipcrypto", &context, &stream, &data);
        assert!(points > length / 300_000);
        assert_needs_a_password("zipcrypto", &context, &stream);
    }
    let (context, stream) = zip_crypto(&sample(300_000, 91));
    assert_outlives_mutations("zipcrypto", &context, &stream);
    let pass = decode_with(coder_by_name("zipcrypto").unwrap(), &stream, PIECE, &super::options(&context));
    let point = pass.points.last().unwrap();
    // The state alone is of no use: with another password it leads to other bytes.
    let mut keys = [0; 12];
    keys.copy_from_slice(&point.state);
    let again =
        SeekPoint { state: keys.to_vec(), decoded: point.decoded - 1, compressed_bit: point.compressed_bit - 8 };
    assert!(resume("zipcrypto", &context, &stream, &again, PIECE).unwrap()[1..] != pass.data[point.decoded as usize..]);
    let short = SeekPoint { state: vec![1; 11], ..point.clone() };
    assert!(resume("zipcrypto", &context, &stream, &short, PIECE).is_err());
}

#[test]
fn aes_of_zip_is_decrypted_anywhere() {
    let Some(program) = seven_zip() else { return };
    for bits in [128, 192, 256] {
        for length in [0, 1, 16, 1000, 500_001] {
            let data = sample(length, 92);
            let (context, stream) = aes_zip(program, &data, bits);
            assert_decodes("aes-zip", &context, &stream, &data);
            assert_needs_a_password("aes-zip", &context, &stream);
        }
    }
    let (context, stream) = aes_zip(program, &sample(300_000, 93), 256);
    assert_outlives_mutations("aes-zip", &context, &stream);
    for length in 0..28 {
        let error = resume("aes-zip", &context, &stream[..length], &SeekPoint::default(), 9).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
    for strength in [0, 4] {
        assert!(resume("aes-zip", &coder(&[strength], Some(ASCII)), &stream, &SeekPoint::default(), 9).is_err());
    }
}

#[test]
fn what_was_changed_under_aes_is_no_secret() {
    let Some(program) = seven_zip() else { return };
    let data = sample(300_000, 94);
    let (context, stream) = aes_zip(program, &data, 256);
    for at in [18, 100_000, 300_017, 300_018, stream.len() - 1] {
        let mut wrong = stream.clone();
        wrong[at] ^= 4;
        let codec = coder_by_name("aes-zip").unwrap();
        let pass = decode_with(codec, &wrong, PIECE, &super::options(&context));
        assert_eq!(pass.damage.len(), 1, "{at}");
        assert_eq!((pass.damage[0].decoded.clone(), pass.damage[0].lost_from), (0..300_000, 300_000));
        let error = resume("aes-zip", &context, &wrong, &SeekPoint::default(), 5000).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidData && error.to_string().contains("HMAC"), "{error}");
        // Anywhere: from when as much was read as there is.
        let backwards = codec.random_access(&source(&wrong), &context).unwrap().unwrap();
        let mut part = vec![0; 100_000];
        for offset in [200_000, 100_000] {
            backwards.read_exact_at(&mut part, offset).unwrap();
        }
        assert!(backwards.read_at(&mut part, 0).is_err());
        let verified = codec.random_access(&source(&wrong), &context).unwrap().unwrap();
        assert_eq!(verified.verify(&|| true).unwrap_err().kind(), ErrorKind::Interrupted);
        verified.read_exact_at(&mut part[..1], 9).unwrap();
        verified.verify(&|| false).unwrap();
        assert!(verified.read_at(&mut part[..1], 9).is_err());
        let all = codec.random_access(&source(&wrong), &context).unwrap().unwrap();
        let mut buffer = vec![0; 200_000];
        all.read_exact_at(&mut buffer[..100], 250_000).unwrap();
        all.read_exact_at(&mut buffer[..199_000], 0).unwrap();
        assert!(all.read_at(&mut buffer, 150_000).is_err());
        assert!(all.read_at(&mut buffer[..1], 0).is_err());
        // What is wanted in spite of it is given.
        let forced = crate::DecodeContext { unverified: true, ..super::context(&context) };
        let mut decoder = codec.resume(source(&wrong), &SeekPoint::default(), &forced).unwrap();
        assert_eq!(crate::testing::to_the_end(&mut *decoder, 5000).unwrap().len(), 300_000);
    }
    let all = coder_by_name("aes-zip").unwrap().random_access(&source(&stream), &context).unwrap().unwrap();
    let mut buffer = vec![0; 300_000];
    for _ in 0..2 {
        for (number, part) in buffer.chunks_mut(70_001).enumerate() {
            all.read_exact_at(part, 70_001 * number as u64).unwrap();
        }
        assert!(buffer == data);
    }
    assert_is_read_anywhere(&all, &data);
}

#[test]
fn aes_of_7z_is_decrypted_anywhere() {
    let Some(program) = seven_zip() else { return };
    for data in [sample(1, 95), sample(15, 96), sample(16, 97), sample(600_007, 98)] {
        for method in ["Copy", "LZMA2", "BCJ -m1=LZMA"] {
            let made = archive(program, &format!("a -mhc=off -m0={method} -p{PASSWORD} @ data"), &data);
            let folder = folder(&made, Some(PASSWORD));
            assert_eq!(folder.0[0].0, "aes-7z");
            assert_unpacks(&folder, &data);
            assert_needs_a_password("aes-7z", &folder.0[0].1, &folder.1);
        }
    }
    let made = archive(program, &format!("a -mhc=off -m0=Copy -p{PASSWORD} @ data"), &sample(300_000, 99));
    let (steps, stream) = folder(&made, Some(PASSWORD));
    let context = &steps[0].1;
    assert_outlives_mutations("aes-7z", context, &stream);
    // A wrong password is noise.
    let wrong = super::CoderContext { password: Some(b"wrong".as_slice().into()), ..context.clone() };
    assert!(resume("aes-7z", &wrong, &stream, &SeekPoint::default(), 5000).unwrap() != sample(300_000, 99));
    for properties in [&[25][..], &[0x3E], &[], &[0x53], &[0x53, 7], &[0xD3, 0xFF, 0], &[19, 1]] {
        let wrong = super::CoderContext { properties: properties.into(), ..context.clone() };
        let error = resume("aes-7z", &wrong, &stream, &SeekPoint::default(), 9).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidData || error.kind() == ErrorKind::Unsupported, "{error}");
    }
    // Salt and password as they are, and the fewest rounds.
    for properties in [
        &[0x3F][..],
        &[0],
        &[0xC0, 0, 1, 2],
        &[
            0xC0, 0xFF, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
            13, 14, 15,
        ],
    ] {
        let other = super::CoderContext { properties: properties.into(), ..context.clone() };
        assert!(resume("aes-7z", &other, &stream, &SeekPoint::default(), 5000).is_ok(), "{properties:?}");
    }
    let options = Options {
        coder: super::CoderContext { decoded_length: Some(1 << 40), ..context.clone() },
        ..Options::default()
    };
    let refused = coder_by_name("aes-7z").unwrap().first_pass(source(&stream), &options).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::UnexpectedEof);
}
