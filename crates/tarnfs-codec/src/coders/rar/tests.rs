//! Members of archives of real RARs decode to what `unrar` makes of them.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{PLAIN, RUN, SERVICE};
use crate::testing::{decode_with, source};
use crate::{Codec, CoderContext, Options};

fn archive(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/rar").join(name)).unwrap()
}

/// Decodes the first member, or all.
fn options(what: u8, archive: &[u8], length: u64) -> Options {
    let version = if archive.starts_with(b"Rar!\x1a\x07\x01") { 5 } else { 4 };
    let properties = [what, version].as_slice().into();
    let coder = CoderContext { properties, decoded_length: Some(length), ..CoderContext::default() };
    Options { coder, ..Options::default() }
}

/// Archives, whether all files are decoded together, how many bytes come of that, and the SHA-256 of what `unrar p` of
/// 6.21 prints.
#[rustfmt::skip]
const KNOWN: &[(&str, u8, u64, &str)] = &[
    // RAR 1.5, 2.0.
    ("readme_154_normal.rar", 0, 4198, "f3d51f2d627fdb20b876e61f9e7772d7b8bf869ca03aeea49d8a9b3153de6eff"),
    ("BIGLZ.RAR", 0, 167_936, "fad63818082f34d397d046a6f1d6b8123dd524ac0d17380151570cd493bad914"),
    ("SOLID.RAR", RUN, 29_640, "90b3d1dbae87511194c58d769c564bce16239186ed03d19b2ff482fc692a610a"),
    ("AUDIO.RAR", 0, 32_768, "f05349da7dda900dca87ef9e197a3732196454e0be4b12c0ab409b527fa4afa9"),
    // RAR 2.9: LZ, filters, PPMd.
    ("solid_rar300.rar", RUN, 65_575, "933dde12fd1091dda97e956ca3793a37b72fd4644992ddc86f47947a6de1a26b"),
    ("rarvm_audio_stereo_rar300.rar", 0, 705_644, "a8b0c328d34bd22585b0332fb7e5deb8b76f1318497a6ac6dbbe98903420129c"),
    ("rarvm_delta_4ch_rar300.rar", 0, 262_144, "6cfed042719f3b10399ac389b340993f4653b498a9ce2a0c89e13724f5b9ccf8"),
    ("rarvm_itanium_synthetic_rar300.rar", 0, 1_048_576, "0b345c7a7c5978dbbbf79c5cc7fcc5b2092ed5dc018cff0d626bd740481c98d4"),
    ("rarvm_rgb_gradient_rar300.rar", 0, 196_662, "211a7a298a4b9eb8b72f5e8a052782f865d4fb8788920c578744e9b512fd3c68"),
    ("rarvm_x86_e8_rar300.rar", 0, 196_608, "7efff592ab2da266eae9d09d5805dd2820fbb5794f6c7d3b5d48278cf83ba0ba"),
    ("rarvm_x86_e8e9_rar300.rar", 0, 196_608, "5bf15ef0f2df7c777610ad9813200527325a0e60e2d7339388e0023923b7acf8"),
    ("ppmd_lorem_rar300.rar", 0, 130_048, "a434d9be88dd0f9d314776f4bca0f0022695c46d09a9c59e8c77c337f843fa92"),
    ("ppmd_lz_match_rar300.rar", 0, 44_544, "3633c9649f486bbf055f5bc0a21e8ece25c38578945b0fd0750c60ca0cc7c275"),
    ("ppmd_escape_rar300.rar", 0, 65_536, "e8f80cf2cb3f73455a625237f5d0ce3d0facdb0b0e5138ee99bbe14541f2e3f7"),
    ("ppmd_solid_rar300.rar", RUN, 196_608, "38f02a5b9a5652b4c5494b776b3f97cbb05d62b73012d809c99fb84700256632"),
    // RAR 5.
    ("m5_max.rar", 0, 65_536, "ed70a3812333daa70dfdbc167cb009049fd6aed3aeef0902ad5326d245892209"),
    ("m1_fastest.rar", 0, 65_536, "ed70a3812333daa70dfdbc167cb009049fd6aed3aeef0902ad5326d245892209"),
    ("filter_arm.rar", 0, 4096, "0f9e89de82a843ad6321f7fbeae3810170c3878f777f98ee764597bae87575a0"),
    ("filter_delta.rar", 0, 262_144, "6cfed042719f3b10399ac389b340993f4653b498a9ce2a0c89e13724f5b9ccf8"),
    ("filter_e8.rar", 0, 196_608, "7efff592ab2da266eae9d09d5805dd2820fbb5794f6c7d3b5d48278cf83ba0ba"),
    ("filter_e8e9.rar", 0, 196_608, "5bf15ef0f2df7c777610ad9813200527325a0e60e2d7339388e0023923b7acf8"),
    ("solid.rar", RUN, 39, "3364384cd9acbf5f5e9c7bb0fe211d9e88eb729c2755e3a50b9f296c7d4c3602"),
];

#[test]
fn all_versions_decode_to_what_unrar_makes_of_them() {
    for &(name, what, length, expected) in KNOWN {
        let archive = archive(name);
        for step in [1009, 50_000] {
            let data = decode_with(&PLAIN, &archive, step, &options(what, &archive, length)).whole().clone();
            assert_eq!(data.len() as u64, length, "{name}");
            let hash = Sha256::digest(&data).iter().fold(String::new(), |hash, byte| hash + &format!("{byte:02x}"));
            assert_eq!(hash, expected, "{name}, {step} bytes at once");
        }
    }
}

/// Calls the first header of a file that of a service.
fn as_service(archive: &mut [u8]) {
    let seal = |header: &mut [u8], sum: usize| {
        let crc = crc32fast::hash(&header[sum..]).to_le_bytes();
        header[..sum].copy_from_slice(&crc[..sum]);
    };
    if archive.starts_with(b"Rar!\x1a\x07\x01") {
        // Lengths of one byte: the header behind the mark is that of the archive.
        let at = 8 + 5 + usize::from(archive[12]);
        assert_eq!(archive[at + 5], 2);
        archive[at + 5] = 3;
        let end = at + 5 + usize::from(archive[at + 4]);
        seal(&mut archive[at..end], 4);
    } else {
        let at = 7 + usize::from(archive[12]);
        assert_eq!(archive[at + 2], 0x74);
        archive[at + 2] = 0x7A;
        let end = at + usize::from(archive[at + 5]);
        seal(&mut archive[at..end], 2);
    }
}

#[test]
fn what_belongs_to_a_file_is_decoded_alone() {
    for name in ["m5_max.rar", "ppmd_lz_match_rar300.rar"] {
        let mut archive = archive(name);
        let length = KNOWN.iter().find(|(known, ..)| *known == name).unwrap().2;
        let as_file = decode_with(&PLAIN, &archive, 5000, &options(0, &archive, length));
        as_service(&mut archive);
        let as_service = decode_with(&PLAIN, &archive, 5000, &options(SERVICE, &archive, length));
        assert!(as_file.whole() == as_service.whole(), "{name}");
        // For others it is no file.
        let mut pass = PLAIN.first_pass(source(&archive), &options(0, &archive, length)).unwrap();
        assert!(!matches!(pass.read(&mut [0; 100]), Ok(1..)), "{name}");
    }
}

#[test]
fn what_is_cut_is_no_whole_file() {
    for &(name, what, length, _) in KNOWN {
        let archive = archive(name);
        // The last bytes are those of the end.
        for left in [archive.len() / 3, archive.len() - 40] {
            let options = options(what, &archive, length);
            let Ok(mut pass) = PLAIN.first_pass(source(&archive[..left]), &options) else { continue };
            let (mut buffer, mut all) = (vec![0; 10_000], 0);
            let error = loop {
                match pass.read(&mut buffer) {
                    Ok(0) => break None,
                    Ok(read) => all += read as u64,
                    Err(error) => break Some(error),
                }
            };
            assert!(all < length || error.is_some() || left > archive.len() / 3, "{name}, {left} bytes");
        }
    }
}
