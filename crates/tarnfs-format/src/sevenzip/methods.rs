//! Which codec undoes which method. The numbers are those of 7-Zip's `Methods.txt`, and of its branch with zstd.

/// AES-256 with a key from a password.
pub(super) const AES: &[u8] = &[0x06, 0xf1, 0x07, 0x01];

/// x86 code in four streams.
pub(super) const BCJ2: &[u8] = &[0x03, 0x03, 0x01, 0x1b];

/// Leaves the bytes as they are.
pub(super) const COPY: &[u8] = &[0x00];

const CODECS: &[(&[u8], &str)] = &[
    (&[0x03], "delta"),
    (&[0x04], "bcj-x86"),
    (&[0x05], "bcj-ppc"),
    (&[0x06], "bcj-ia64"),
    (&[0x07], "bcj-arm"),
    (&[0x08], "bcj-armt"),
    (&[0x09], "bcj-sparc"),
    (&[0x0a], "bcj-arm64"),
    (&[0x0b], "bcj-riscv"),
    (&[0x21], "lzma2"),
    (&[0x02, 0x03, 0x02], "swap2"),
    (&[0x02, 0x03, 0x04], "swap4"),
    (&[0x03, 0x01, 0x01], "lzma-raw"),
    (&[0x03, 0x03, 0x01, 0x03], "bcj-x86"),
    (BCJ2, "bcj2"),
    (&[0x03, 0x03, 0x02, 0x05], "bcj-ppc"),
    (&[0x03, 0x03, 0x04, 0x01], "bcj-ia64"),
    (&[0x03, 0x03, 0x05, 0x01], "bcj-arm"),
    (&[0x03, 0x03, 0x07, 0x01], "bcj-armt"),
    (&[0x03, 0x03, 0x08, 0x05], "bcj-sparc"),
    (&[0x03, 0x04, 0x01], "ppmd7"),
    (&[0x04, 0x01, 0x08], "deflate"),
    (&[0x04, 0x01, 0x09], "deflate64"),
    (&[0x04, 0x02, 0x02], "bzip2"),
    (&[0x04, 0xf7, 0x11, 0x01], "zstd"),
    (&[0x04, 0xf7, 0x11, 0x02], "brotli-7z"),
    (&[0x04, 0xf7, 0x11, 0x04], "lz4"),
    (AES, "aes-7z"),
];

/// The codec that undoes the method of this number.
pub(super) fn codec(id: &[u8]) -> Option<&'static str> {
    CODECS.iter().find(|(known, _)| *known == id).map(|(_, codec)| *codec)
}

/// Streams that go into the method of this number.
pub(super) fn streams(id: &[u8]) -> usize {
    if id == BCJ2 { 4 } else { 1 }
}

/// True of a codec of which as many bytes come as go into it.
pub(super) fn keeps_length(codec: &str) -> bool {
    codec == "delta" || codec.starts_with("bcj-") || codec.starts_with("swap")
}

/// What a method is called that no codec undoes.
pub(super) fn unknown(id: &[u8]) -> String {
    id.iter().fold("7z method ".to_owned(), |name, byte| name + &format!("{byte:02x}"))
}
