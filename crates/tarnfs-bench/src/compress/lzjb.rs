//! LZJB, the compression that ZFS began with ("ZFS On-Disk Specification", and what it decodes): bytes, and copies of
//! up to 66 bytes from up to 1023 bytes before. A byte of flags stands before eight of them, the first in its lowest
//! bit.

/// Shortest and longest copy.
const LEAST: usize = 3;
const MOST: usize = 66;
/// Copies come from no further away.
const FARTHEST: usize = 1023;
/// Places that are remembered, by a hash of three bytes.
const PLACES: usize = 1024;

fn hash(three: &[u8]) -> usize {
    let number = three.iter().fold(0_u32, |number, &byte| (number << 8) | u32::from(byte));
    (number.wrapping_add(number >> 9).wrapping_add(number >> 5)) as usize % PLACES
}

/// Appends what `data` becomes.
pub(super) fn pack(data: &[u8], out: &mut Vec<u8>) {
    let mut places = [usize::MAX; PLACES];
    let (mut at, mut flags, mut bit) = (0, out.len(), 8);
    while at < data.len() {
        if bit == 8 {
            (flags, bit) = (out.len(), 0);
            out.push(0);
        }
        let mut length = 0;
        if let Some(three) = data.get(at..at + LEAST) {
            let place = std::mem::replace(&mut places[hash(three)], at);
            let is_near = place != usize::MAX && at - place <= FARTHEST;
            if is_near {
                let same = data[place..].iter().zip(&data[at..]).take(MOST).take_while(|(one, other)| one == other);
                length = same.count();
            }
            if length >= LEAST {
                let distance = at - place;
                out[flags] |= 1 << bit;
                out.push(((length - LEAST) << 2) as u8 | (distance >> 8) as u8);
                out.push(distance as u8);
            }
        }
        if length < LEAST {
            out.push(data[at]);
            length = 1;
        }
        at += length;
        bit += 1;
    }
}

/// Appends the `length` bytes that became `packed`; `None` if it cannot be what [`pack`] has made.
pub(super) fn unpack(packed: &[u8], length: usize, out: &mut Vec<u8>) -> Option<()> {
    let (start, mut bytes) = (out.len(), packed.iter().copied());
    while out.len() - start < length {
        let flags = bytes.next()?;
        for bit in 0..8 {
            if out.len() - start >= length {
                break;
            }
            let first = bytes.next()?;
            if flags & (1 << bit) == 0 {
                out.push(first);
                continue;
            }
            let distance = (usize::from(first & 3) << 8) | usize::from(bytes.next()?);
            let count = usize::from(first >> 2) + LEAST;
            let from = out.len().checked_sub(distance).filter(|from| *from >= start && distance > 0)?;
            // What is copied may be what was copied just before.
            for at in from..from + count {
                out.push(out[at]);
            }
        }
    }
    (out.len() - start == length).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let text: Vec<u8> =
            (0..20_000_u32).flat_map(|number| format!("{} and so on, ", number % 40).into_bytes()).collect();
        let mut state = 1_u32;
        let noise: Vec<u8> = (0..70_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        for (data, most) in [
            (Vec::new(), 0),
            (b"a".to_vec(), 2),
            (b"abc".to_vec(), 4),
            (vec![7; 100_000], 4000),
            (text.clone(), text.len() / 4),
            (noise.clone(), noise.len() * 9 / 8 + 1),
            ([&noise[..1020], &noise[..1020]].concat(), 1300),
        ] {
            let (mut packed, mut unpacked) = (b"before".to_vec(), b"xy".to_vec());
            pack(&data, &mut packed);
            assert!(packed.len() - 6 <= most, "{} became {}", data.len(), packed.len());
            unpack(&packed[6..], data.len(), &mut unpacked).unwrap();
            assert!(unpacked[2..] == data, "{} bytes", data.len());
            // What was cut is found out.
            if !data.is_empty() {
                assert_eq!(unpack(&packed[6..packed.len() - 1], data.len(), &mut Vec::new()), None);
            }
        }
    }

    /// As the format's description has it: eight bytes behind their flags, and a copy as two bytes.
    #[test]
    fn the_format_is_that_of_zfs() {
        let mut packed = Vec::new();
        pack(b"abcabcabcX", &mut packed);
        // Three bytes, a copy of six from three before, and a byte.
        assert_eq!(packed, [0b1000, b'a', b'b', b'c', (6 - 3) << 2, 3, b'X']);
        assert_eq!(unpack(&[1, 0, 1], 3, &mut Vec::new()), None);
    }
}
