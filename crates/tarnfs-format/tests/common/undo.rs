//! Undoes the coders of 7z archives with other programs' code, so that tests can tell whether pieces are where they are
//! said to be.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use liblzma::stream::{Action, Filters, Stream};
use sha2::{Digest, Sha256};
use tarnfs_format::{Coder, Step};
use tarnfs_source::Source;

/// What comes out of `stored`, `length` bytes; `Unsupported` where nothing here undoes a step.
pub(crate) fn undo(coder: &Coder, stored: &dyn Source, length: u64, password: Option<&str>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; stored.len() as usize];
    stored.read_exact_at(&mut bytes, 0)?;
    for (number, step) in coder.steps.iter().enumerate() {
        // Nothing here puts several streams together.
        if !step.inputs.is_empty() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, step.codec.as_str()));
        }
        // Filters give as many bytes as they take. What AES gives before anything else is whole blocks.
        let is_filter =
            |step: &Step| matches!(step.codec.as_str(), "delta" | "swap2" | "swap4") || step.codec.starts_with("bcj-");
        let known = coder.steps[number + 1..].iter().all(is_filter).then_some(length as usize);
        bytes = undo_step(
            step,
            &bytes,
            step.decoded_length.map(|length| length as usize).or(known).unwrap_or(bytes.len()),
            password,
        )?;
    }
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn undo_step(step: &Step, bytes: &[u8], length: usize, password: Option<&str>) -> io::Result<Vec<u8>> {
    let properties = &step.properties;
    let mut filters = Filters::new();
    match step.codec.as_str() {
        "lzma-raw" => raw(filters.lzma1_properties(properties)?, bytes, length),
        "lzma2" => raw(filters.lzma2_properties(properties)?, bytes, length),
        "bzip2" => {
            let mut decoded = Vec::new();
            bzip2::read::BzDecoder::new(bytes).read_to_end(&mut decoded)?;
            Ok(decoded)
        }
        "swap2" | "swap4" => {
            let mut decoded = bytes.to_vec();
            decoded.chunks_exact_mut(if step.codec == "swap2" { 2 } else { 4 }).for_each(<[u8]>::reverse);
            Ok(decoded)
        }
        "aes-7z" => {
            let mut decoded = decrypt(properties, bytes, password)?;
            decoded.truncate(length);
            Ok(decoded)
        }
        filter => {
            match filter {
                "delta" => filters.delta_properties(properties)?,
                "bcj-x86" => filters.x86(),
                "bcj-ppc" => filters.powerpc(),
                "bcj-ia64" => filters.ia64(),
                "bcj-arm" => filters.arm(),
                "bcj-armt" => filters.arm_thumb(),
                "bcj-arm64" => filters.arm64(),
                "bcj-sparc" => filters.sparc(),
                "bcj-riscv" => filters.riscv(),
                _ => return Err(io::Error::new(io::ErrorKind::Unsupported, filter)),
            };
            // liblzma filters only what came out of LZMA2: so the bytes are made chunks of that which are not packed.
            let mut chunks = Vec::new();
            for (number, chunk) in bytes.chunks(1 << 16).enumerate() {
                chunks.push(if number == 0 { 1 } else { 2 });
                chunks.extend((chunk.len() as u16).wrapping_sub(1).to_be_bytes());
                chunks.extend(chunk);
            }
            chunks.push(0);
            raw(filters.lzma2_properties(&[24])?, &chunks, length)
        }
    }
}

fn raw(filters: &Filters, bytes: &[u8], length: usize) -> io::Result<Vec<u8>> {
    // One more: a stream that goes on is known so.
    let mut decoded = Vec::with_capacity(length + 1);
    let mut stream = Stream::new_raw_decoder(filters)?;
    let mut before = u64::MAX;
    while decoded.len() < length && before != stream.total_out() + stream.total_in() {
        before = stream.total_out() + stream.total_in();
        stream.process_vec(&bytes[stream.total_in() as usize..], &mut decoded, Action::Run)?;
    }
    decoded.truncate(length);
    Ok(decoded)
}

/// AES-256 in CBC; the key is a SHA-256 of the password in UTF-16 with a counter, many times.
fn decrypt(properties: &[u8], bytes: &[u8], password: Option<&str>) -> io::Result<Vec<u8>> {
    let denied = |what: &str| io::Error::new(io::ErrorKind::PermissionDenied, what);
    let password = password.ok_or(denied("it is encrypted: give a password"))?;
    let (first, second) = (properties[0], properties[1]);
    let salt_length = usize::from(first >> 7) + usize::from(second >> 4);
    let (salt, iv) = properties[2..].split_at(salt_length);
    let mut hash = Sha256::new();
    for round in 0..1_u64 << (first & 0x3f) {
        hash.update(salt);
        hash.update(password.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
        hash.update(round.to_le_bytes());
    }
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let mut openssl = Command::new("openssl")
        .args(["enc", "-d", "-aes-256-cbc", "-nopad", "-K", &hex(&hash.finalize()), "-iv"])
        .arg(format!("{:0<32}", hex(iv)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = openssl.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = openssl.wait_with_output()?;
    writer.join().unwrap()?;
    if output.status.success() { Ok(output.stdout) } else { Err(denied("wrong password")) }
}
