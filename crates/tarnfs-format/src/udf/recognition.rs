//! Whether there is UDF: the volume recognition sequence (ECMA-167, 2/8.3) and the anchors (3/8.4.2.1).

use super::bytes::{u16_at, u32_at};
use super::tag;
use crate::boot::catalogue;

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
    /// Sector of the catalogue of what a computer boots from.
    pub(super) boot: Option<u64>,
}

/// Looks for the mark of UDF.
pub(super) fn recognise(show: &Show<'_>) -> Option<Recognised> {
    let mark = |at: u64| show(at, 7).get(1..6).map(<[u8]>::to_vec).unwrap_or_default();
    let first = mark(FIRST);
    if !is_known(&first) {
        return None;
    }
    let is_bridge = first == b"CD001";
    let mut boot = None;
    for step in STEPS {
        for number in 0..MOST {
            let at = FIRST.saturating_add(number.saturating_mul(*step));
            let found = mark(at);
            if matches!(&found[..], b"NSR02" | b"NSR03") {
                return Some(Recognised { is_bridge, boot });
            }
            if found == b"CD001" {
                boot = catalogue(&show(at, 128)).or(boot);
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

/// All anchors of an image of `length` bytes, the likeliest first. Where they lead to different places, that is the one
/// that was recorded last, and of those the one that leads furthest: the last session of a disc has what is left of
/// those before it. What a medium held before it was formatted, perhaps with sectors of another size, is older.
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
    found.sort_by_cached_key(|anchor| {
        let place = anchor.main.0.saturating_mul(anchor.sector);
        std::cmp::Reverse((recorded(show, anchor), place))
    });
    found
}

/// When the volume was recorded to which an anchor leads (ECMA-167, 3/10.1.17 and 1/7.3): year, month, day, hours and
/// what is less. `None` where that cannot be read.
fn recorded(show: &Show<'_>, anchor: &Anchor) -> Option<(u16, [u8; 8])> {
    const MOST_BEFORE: u64 = 16;
    const AT: usize = 376;
    let sequences = [anchor.main.0, anchor.reserve.0];
    let sectors = sequences.into_iter().flat_map(|first| (0..MOST_BEFORE).map(move |number| first.checked_add(number)));
    sectors.into_iter().find_map(|sector| {
        let sector = sector?;
        let bytes = show(sector.checked_mul(anchor.sector)?, 512);
        let is_it = tag::read(&bytes).is_ok_and(|tag| tag.kind == tag::PRIMARY);
        let rest = bytes.get(AT.checked_add(4)?..)?.first_chunk()?;
        is_it.then_some((u16_at(&bytes, AT.checked_add(2)?)?, *rest))
    })
}

/// True if they lead to different places, as those of several sessions do.
pub(super) fn has_sessions(anchors: &[Anchor]) -> bool {
    anchors.windows(2).any(|pair| matches!(pair, [one, other] if one.main != other.main))
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

#[cfg(test)]
mod tests {
    use super::super::bytes::crc;
    use super::*;

    fn anchored(length: usize, places: &[(u64, u64)]) -> Vec<u8> {
        let mut image = vec![0; length];
        for &(number, sector) in places {
            let at = (number * sector) as usize;
            let bytes = &mut image[at..at + 512];
            bytes[..2].copy_from_slice(&tag::ANCHOR.to_le_bytes());
            bytes[12..16].copy_from_slice(&(number as u32).to_le_bytes());
            bytes[16..24].copy_from_slice(&[0, 0x80, 0, 0, 32, 0, 0, 0]);
            let sum = crc(&bytes[16..]);
            bytes[8..10].copy_from_slice(&sum.to_le_bytes());
            bytes[10..12].copy_from_slice(&496_u16.to_le_bytes());
            bytes[4] = 0;
            bytes[4] = bytes[..16].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        }
        image
    }

    fn shown(image: &[u8]) -> impl Fn(u64, usize) -> Vec<u8> {
        |at, length| {
            let rest = image.get(at as usize..).unwrap_or_default();
            rest[..length.min(rest.len())].to_vec()
        }
    }

    #[test]
    fn anchors_are_where_they_may_be() {
        for sector in SECTORS.iter().copied().filter(|sector| *sector <= 4096) {
            let count = 1000;
            let length = (count * sector) as usize;
            for (number, is_at_end) in [(256, false), (count - 1, true), (count - 257, true), (512, false)] {
                let image = anchored(length, &[(number, sector)]);
                let found = anchors(&shown(&image), length as u64);
                let anchor = Anchor { sector, main: (32, 0x8000), reserve: (0, 0), is_at_end };
                assert_eq!(found, [anchor], "{number} {sector}");
                // Of other bytes behind it the end is elsewhere; of a change in it nothing is left.
                let mut image = image;
                image[(number * sector) as usize + 100] ^= 1;
                assert!(anchors(&shown(&image), length as u64).is_empty(), "{number} {sector}");
            }
            for number in [255, 100, 511] {
                let image = anchored(length, &[(number, sector)]);
                let found = anchors(&shown(&image), length as u64);
                assert!(found.is_empty(), "{number} {sector}: {found:?}");
            }
        }
        assert!(anchors(&shown(&[]), 0).is_empty());
    }

    #[test]
    fn marks_stand_at_each_step() {
        for step in STEPS {
            for (marks, is_bridge) in [(&["BEA01", "NSR02"][..], false), (&["CD001", "CD001", "BEA01", "NSR03"], true)]
            {
                let mut image = vec![0; 512 << 10];
                for (number, mark) in marks.iter().enumerate() {
                    let at = (FIRST + number as u64 * step) as usize;
                    image[at + 1..at + 6].copy_from_slice(mark.as_bytes());
                }
                assert_eq!(recognise(&shown(&image)), Some(Recognised { is_bridge, boot: None }), "{step} {marks:?}");
                let cut = (FIRST + step) as usize;
                assert_eq!(recognise(&shown(&image[..cut])), None, "{step}");
            }
        }
        let mut image = vec![0; 64 << 10];
        assert_eq!(recognise(&shown(&image)), None);
        image[(32 << 10) + 1..(32 << 10) + 6].copy_from_slice(b"CD001");
        assert_eq!(recognise(&shown(&image)), None);
    }

    #[test]
    fn rock_ridge_is_known_by_the_first_record() {
        let mut image = vec![0; 64 << 10];
        image[32 << 10..(32 << 10) + 6].copy_from_slice(b"\x01CD001");
        image[(32 << 10) + 128..(32 << 10) + 130].copy_from_slice(&2048_u16.to_le_bytes());
        image[(32 << 10) + 158] = 20;
        let at = 20 * 2048;
        image[at] = 80;
        assert!(!has_rock_ridge(&shown(&image)));
        for fields in [34, 48] {
            let mut image = image.clone();
            image[at + fields..at + fields + 7].copy_from_slice(b"SP\x07\x01\xbe\xef\0");
            assert!(has_rock_ridge(&shown(&image)));
            image[at] = 34;
            assert!(!has_rock_ridge(&shown(&image)));
        }
        assert!(!has_rock_ridge(&shown(&[])));
    }
}
