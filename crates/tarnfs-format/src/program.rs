//! Where a program ends: what is behind it may be an archive that it unpacks.

use crate::Probe;

/// The byte behind the last one that the program's own headers know of; `None` if `probe` shows no program.
pub(crate) fn end(probe: &Probe<'_>) -> Option<u64> {
    match probe.head() {
        [0x7f, b'E', b'L', b'F', ..] => end_of_elf(probe.head()),
        [b'M', b'Z', ..] => end_of_windows(probe),
        _ => None,
    }
}

/// The table of sections is the last thing that a linker writes.
fn end_of_elf(head: &[u8]) -> Option<u64> {
    let (is_wide, is_big) = (*head.get(4)? == 2, *head.get(5)? == 2);
    let number = |at: usize, length: usize| {
        let bytes = head.get(at..at.checked_add(length)?)?;
        let push = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if is_big { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) })
    };
    let (table, size, count) = if is_wide {
        (number(0x28, 8)?, number(0x3a, 2)?, number(0x3c, 2)?)
    } else {
        (number(0x20, 4)?, number(0x2e, 2)?, number(0x30, 2)?)
    };
    table.checked_add(size.checked_mul(count)?)
}

/// Windows: the end of the section that lies furthest behind.
fn end_of_windows(probe: &Probe<'_>) -> Option<u64> {
    let half = |bytes: &[u8], at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
    let word =
        |bytes: &[u8], at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u64::from(u32::from_le_bytes(*bytes)));
    let header = word(probe.head(), 0x3c)?;
    let fixed = probe.at(header, 24);
    if !fixed.starts_with(b"PE\0\0") {
        return None;
    }
    let (count, skipped) = (half(&fixed, 6)?, half(&fixed, 20)?);
    let sections = probe.at(header.checked_add(24)?.checked_add(skipped.into())?, usize::from(count).checked_mul(40)?);
    let (sections, _) = sections.as_chunks::<40>();
    let end = |section: &[u8; 40]| word(section, 20)?.checked_add(word(section, 16)?);
    sections.iter().filter_map(end).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_end_behind_their_last_section() {
        let mut elf = [&b"\x7fELF\x02\x01"[..], &[0; 58]].concat();
        elf[0x28..0x30].copy_from_slice(&1000_u64.to_le_bytes());
        elf[0x3a..0x3e].copy_from_slice(&[64, 0, 3, 0]);
        assert_eq!(end(&Probe::of_head(&elf)), Some(1192));
        elf[4..6].copy_from_slice(&[1, 2]);
        elf[0x20..0x24].copy_from_slice(&500_u32.to_be_bytes());
        elf[0x2e..0x32].copy_from_slice(&[0, 40, 0, 2]);
        assert_eq!(end(&Probe::of_head(&elf)), Some(580));
        let mut windows = [&b"MZ"[..], &[0; 58], &64_u32.to_le_bytes(), b"PE\0\0\x4c\x01\x02\0", &[0; 112]].concat();
        windows[84] = 8;
        for (section, place, size) in [(0, 4096_u32, 100_u32), (1, 512, 1000)] {
            let at = 64 + 24 + 8 + section * 40;
            windows[at + 16..at + 20].copy_from_slice(&size.to_le_bytes());
            windows[at + 20..at + 24].copy_from_slice(&place.to_le_bytes());
        }
        assert_eq!(end(&Probe::of_head(&windows)), Some(4196));
        for program in [elf, windows] {
            for length in 0..program.len() {
                let _ = end(&Probe::of_head(&program[..length]));
            }
        }
        assert_eq!(end(&Probe::of_head(b"text")), None);
    }
}
