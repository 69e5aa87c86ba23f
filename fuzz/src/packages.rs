//! Packages, cabinets and other archives whose members are decoded one by one, whole or not.

use tarnfs_codec::{CoderContext, coder_by_name};
use tarnfs_source::SharedSource;

use super::{limits, members, source};

/// Bytes that are decoded.
const MOST: usize = 1 << 20;

/// A package of RPM, and what its codec would make of it.
pub fn rpm(data: &[u8]) {
    members(&tarnfs_format::rpm::Rpm, data, 1);
    members(&tarnfs_format::rpm::Rpm, &undone("rpm-payload", data), 1);
}

/// A package of Debian, and what its codec would make of it.
pub fn deb(data: &[u8]) {
    members(&tarnfs_format::deb::Deb, data, 1);
    members(&tarnfs_format::deb::Deb, &undone("deb-payload", data), 1);
}

/// What a codec makes of `data`, as far as that goes.
fn undone(codec: &str, data: &[u8]) -> Vec<u8> {
    decoded(codec, source(data), CoderContext::default()).unwrap_or_default()
}

fn decoded(codec: &str, stored: SharedSource, coder: CoderContext) -> std::io::Result<Vec<u8>> {
    let codec = coder_by_name(codec).ok_or(std::io::ErrorKind::Unsupported)?;
    let options = tarnfs_codec::Options { limits: limits(), coder, ..tarnfs_codec::Options::default() };
    let mut pass = codec.first_pass(stored, &options)?;
    let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while all.len() < MOST {
        match pass.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(read) => all.extend_from_slice(&buffer[..read]),
        }
        assert!(pass.memory() <= 256 << 20, "{} bytes of memory", pass.memory());
    }
    Ok(all)
}
