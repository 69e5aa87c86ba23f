//! Whether there is UDF: the volume recognition sequence (ECMA-167, 2/8.3) and the anchors (3/8.4.2.1).

use super::bytes::{u16_at, u32_at};
use super::tag;

/// Shows up to so many bytes from a byte on.
pub(super) type Show<'s> = dyn Fn(u64, usize) -> Vec<u8> + 's;

/// Where the sequence begins.
const FIRST: u64 = 32 << 10;
/// Bytes of a descriptor there; of larger sectors each has one.
const STEPS: &[u64] = &[2048, 4096, 8192, 16_384, 32_768];
/// Descriptors of ISO 9660 may stand before those of UDF.
const MOST: u64 = 64;

/// Bytes of a sector, the likeliest first.
const SECTORS: &[u64] = &[2048, 512, 4096, 1024, 8192, 16_384, 32_768];

/// What the sequence says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recognised {
    /// ISO 9660 describes the same files, or others.
    pub(super) is_bridge: bool,
}

/// Looks for the mark of UDF.
pub(super) fn recognise(show: &Show<'_>) -> Option<Recognised> {
    let mark = |at: u64| show(at, 7).get(1..6).map(<[u8]>::to_vec).unwrap_or_default();
    let first = mark(FIRST);
    if !is_known(&first) {
        return None;
    }
    let is_bridge = first == b"CD001";
    for step in STEPS {
        for number in 0..MOST {
            let found = mark(FIRST.saturating_add(number.saturating_mul(*step)));
            if matches!(&found[..], b"NSR02" | b"NSR03") {
                return Some(Recognised { is_bridge });
            }
            if !is_known(&found) {
                break;
            }
        }
    }
    None
}

fn is_known(mark: &[u8]) -> bool {
    matches!(mark, b"BEA01" | b"CD001" | b"BOOT2" | b"CDW02" | b"NSR02" | b"NSR03" | b"TEA01")
}

/// Where the volume descriptors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Anchor {
    /// Bytes of a sector.
    pub(super) sector: u64,
    /// First sector and bytes of the sequence, and of its copy.
    pub(super) main: (u64, u64),
    pub(super) reserve: (u64, u64),
    /// It is one of those that count from the end.
    pub(super) is_at_end: bool,
}

/// All anchors of an image of `length` bytes, the likeliest first.
pub(super) fn anchors(show: &Show<'_>, length: u64) -> Vec<Anchor> {
    let mut found = Vec::new();
    for number in 0..4 {
        for &sector in SECTORS {
            let Some(last) = length.checked_div(sector).and_then(|count| count.checked_sub(1)) else { continue };
            let at = match number {
                0 => Some(256),
                1 => Some(last),
                2 => last.checked_sub(256),
                _ => Some(512),
            };
            let anchor = at.filter(|at| *at <= last).and_then(|at| anchor(show, at, sector));
            found.extend(anchor.map(|anchor| Anchor { is_at_end: matches!(number, 1 | 2), ..anchor }));
        }
    }
    found
}

fn anchor(show: &Show<'_>, number: u64, sector: u64) -> Option<Anchor> {
    let bytes = show(number.checked_mul(sector)?, 512);
    let tag = tag::read(&bytes).ok()?;
    let extent = |at: usize| Some((u64::from(u32_at(&bytes, at.checked_add(4)?)?), u64::from(u32_at(&bytes, at)?)));
    let is_one = tag.kind == tag::ANCHOR && u64::from(tag.location) == number;
    let (main, reserve) = (extent(16)?, extent(24)?);
    is_one.then_some(Anchor { sector, main, reserve, is_at_end: false })
}

/// True if the ISO 9660 side of a bridge has Rock Ridge: then that has all that UDF has, and more.
pub(super) fn has_rock_ridge(show: &Show<'_>) -> bool {
    let descriptor = show(FIRST, 2048);
    let place = (|| {
        let block = u16_at(&descriptor, 128).filter(|block| matches!(block, 512 | 1024 | 2048))?;
        u64::from(u32_at(&descriptor, 158)?).checked_mul(block.into())
    })();
    let Some(at) = place.filter(|_| descriptor.starts_with(b"\x01CD001")) else { return false };
    let listing = show(at, 256);
    // Of the root itself, whose name has one byte. Those of a CD-ROM XA stand behind 14 bytes of that.
    let fields = listing.first().and_then(|length| listing.get(34..usize::from(*length))).unwrap_or_default();
    [0, 14].iter().any(|at| matches!(fields.get(*at..), Some([b'S', b'P', 7, 1, 0xbe, 0xef, ..])))
}
