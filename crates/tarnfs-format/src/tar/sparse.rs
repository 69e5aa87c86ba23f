//! Maps of sparse files, in the five ways in which they were written.

use tarnfs_source::{Extent, Limits};

use super::header::Block;
use super::numbers::{decimal, number};

/// Adds one pair to `map`. Pairs without data say where the file ends, which is known already.
pub(super) fn push(map: &mut Vec<Extent>, extent: Extent, limits: &Limits) -> Result<(), String> {
    if extent.length == 0 {
        return Ok(());
    }
    if map.len() >= limits.sparse_extents {
        return Err(format!("the map of a sparse file has more than {} extents", limits.sparse_extents));
    }
    map.push(extent);
    Ok(())
}

/// Adds the pairs of octal numbers in `pairs` (old GNU and star), which end at an empty one.
pub(super) fn push_fields(map: &mut Vec<Extent>, pairs: &[u8], limits: &Limits) -> Result<(), String> {
    let (pairs, _) = pairs.as_chunks::<24>();
    for pair in pairs {
        if pair[12] == 0 {
            break;
        }
        let field = |field| number(field).and_then(|number| u64::try_from(number).ok());
        let (Some(offset), Some(length)) = (field(&pair[..12]), field(&pair[12..])) else {
            return Err("the map of a sparse file has something that is not a number".to_owned());
        };
        push(map, Extent { offset, length, skip: 0 }, limits)?;
    }
    Ok(())
}

/// The map of GNU's format 0.1: decimal numbers with commas between them.
pub(super) fn text_map(text: &[u8], limits: &Limits) -> Result<Vec<Extent>, String> {
    let mut map = Vec::new();
    let mut numbers = text.split(|&byte| byte == b',').map(decimal);
    while let Some(offset) = numbers.next() {
        let (Some(offset), Some(Some(length))) = (offset, numbers.next()) else {
            return Err("the map of a sparse file is not made of pairs of numbers".to_owned());
        };
        push(&mut map, Extent { offset, length, skip: 0 }, limits)?;
    }
    Ok(map)
}

/// Reads the map of GNU's format 1.0, which stands before the data: decimal numbers, each on a line, first how many
/// pairs there are; filled up to whole blocks.
#[derive(Debug, Default)]
pub(super) struct LineMap {
    pub(super) map: Vec<Extent>,
    /// Digits of the number that is being read.
    number: Option<u64>,
    pairs: Option<u64>,
    offset: Option<u64>,
}

impl LineMap {
    /// Takes the next block; true once the map is complete.
    pub(super) fn block(&mut self, block: &Block, limits: &Limits) -> Result<bool, String> {
        for &byte in block {
            match byte {
                b'0'..=b'9' => {
                    let number = self.number.unwrap_or(0).checked_mul(10);
                    let number = number.and_then(|number| number.checked_add(u64::from(byte & 0xf)));
                    self.number = Some(number.ok_or("the map of a sparse file has a number that is too large")?);
                }
                b'\n' => {
                    let number = self.number.take().ok_or("the map of a sparse file has an empty line")?;
                    self.line(number, limits)?;
                }
                _ => return Err("the map of a sparse file has something that is not a number".to_owned()),
            }
            if self.pairs == Some(0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn line(&mut self, number: u64, limits: &Limits) -> Result<(), String> {
        match (self.pairs, self.offset.take()) {
            (None, _) => self.pairs = Some(number),
            (Some(_), None) => self.offset = Some(number),
            (Some(left), Some(offset)) => {
                push(&mut self.map, Extent { offset, length: number, skip: 0 }, limits)?;
                self.pairs = Some(left.saturating_sub(1));
            }
        }
        Ok(())
    }
}

/// Checks that `map` is in order, lies within `size` bytes, and needs no more than `stored` bytes of data.
pub(super) fn check(map: &[Extent], size: u64, stored: u64) -> Result<(), String> {
    let (mut end, mut data) = (0_u64, 0_u64);
    for extent in map {
        let behind = extent.offset.checked_add(extent.length);
        match behind {
            Some(behind) if extent.offset >= end && behind <= size => end = behind,
            _ => return Err("the map of a sparse file is out of order or goes past its end".to_owned()),
        }
        // Disjoint extents inside `size` cannot add up to more than it.
        data = data.saturating_add(extent.length);
    }
    if data > stored {
        return Err(format!("the map of a sparse file wants {data} bytes of data, {stored} are stored"));
    }
    if size > i64::MAX as u64 {
        return Err(format!("a sparse file is {size} bytes long, more than a file can be"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, length: u64) -> Extent {
        Extent { offset, length, skip: 0 }
    }

    fn lines(text: &[u8]) -> Result<(bool, Vec<Extent>), String> {
        let mut map = LineMap::default();
        for chunk in text.chunks(512) {
            let mut block = [0; 512];
            block[..chunk.len()].copy_from_slice(chunk);
            if map.block(&block, &Limits::default())? {
                return Ok((true, map.map));
            }
        }
        Ok((false, map.map))
    }

    #[test]
    fn a_map_before_the_data_is_read_across_blocks() {
        assert_eq!(lines(b"0\n"), Ok((true, vec![])));
        assert_eq!(lines(b"2\n0\n512\n4096\n0\n"), Ok((true, vec![extent(0, 512)])));
        let text: String = (0..200_u64).flat_map(|n| [(n * 1000).to_string(), "\n7\n".to_owned()]).collect();
        let (done, map) = lines(format!("200\n{text}").as_bytes()).unwrap();
        assert!(done);
        assert_eq!(map, (0..200).map(|n| extent(n * 1000, 7)).collect::<Vec<_>>());
        for bad in [&b"x\n"[..], b"\n", b"1\n-1\n", b"99999999999999999999\n", b"1\n0 \n"] {
            assert!(lines(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn maps_that_lie_are_found_out() {
        assert_eq!(check(&[extent(0, 5), extent(5, 5)], 10, 10), Ok(()));
        for (map, size, stored) in [
            (vec![extent(5, 5), extent(0, 5)], 10, 10),
            (vec![extent(0, 6), extent(5, 5)], 10, 20),
            (vec![extent(0, 5)], 4, 10),
            (vec![extent(u64::MAX, 2)], u64::MAX, 10),
            (vec![extent(0, 5)], 10, 4),
            (vec![], u64::MAX, 0),
        ] {
            assert!(check(&map, size, stored).is_err(), "{map:?}");
        }
        assert_eq!(text_map(b"0,5,10,2", &Limits::default()), Ok(vec![extent(0, 5), extent(10, 2)]));
        for bad in [&b""[..], b"1", b"1,2,", b"1,,2", b"a,b"] {
            assert!(text_map(bad, &Limits::default()).is_err(), "{bad:?}");
        }
        let few = Limits { sparse_extents: 1, ..Limits::default() };
        assert!(text_map(b"0,5,10,2", &few).is_err());
    }
}
