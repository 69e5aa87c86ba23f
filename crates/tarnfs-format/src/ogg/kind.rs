//! What a stream holds, by what its first page begins with.

/// Kind, and what names of such files end in.
type Kind = (&'static str, &'static str);

const AUDIO: Kind = ("audio", ".oga");
const VIDEO: Kind = ("video", ".ogv");
const TEXT: Kind = ("text", ".ogg");

/// <https://wiki.xiph.org/index.php/MIMETypesCodecs>, and what OGM has. The first one that fits counts.
const KINDS: &[(&[u8], Kind)] = &[
    (b"CELT    ", AUDIO),
    (b"\x7fFLAC", AUDIO),
    (b"OpusHead", AUDIO),
    (b"PCM     ", AUDIO),
    (b"Speex   ", AUDIO),
    (b"\x01vorbis", AUDIO),
    (b"\x01audio", ("audio", ".ogm")),
    (b"CMML\0\0\0\0", TEXT),
    (b"\x80kate\0\0\0", TEXT),
    (b"OggMIDI\0", TEXT),
    (b"\x01text", ("text", ".ogm")),
    (b"BBCD\0", VIDEO),
    (b"\x8bJNG\r\n\x1a\n", VIDEO),
    (b"\x8aMNG\r\n\x1a\n", VIDEO),
    (b"\x89PNG\r\n\x1a\n", VIDEO),
    (b"\x80theora", VIDEO),
    (b"YUV4MPEG", VIDEO),
    (b"\x01video", ("video", ".ogm")),
];

/// Bytes that are looked at.
pub(super) const LOOKED_AT: usize = 8;

pub(super) fn of(start: &[u8]) -> Kind {
    KINDS.iter().find(|(mark, _)| start.starts_with(mark)).map_or(("unknown", ".ogg"), |(_, kind)| *kind)
}
