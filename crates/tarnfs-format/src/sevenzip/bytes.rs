//! The bytes of a header, read forwards: numbers of one to nine bytes, bits, and columns of values that may be missing.

/// A header breaks the rules of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken {
    /// Byte of the header.
    pub(super) at: usize,
    /// What is wrong there, as a clause.
    pub(super) what: &'static str,
}

/// Where a header is being read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bytes<'h> {
    header: &'h [u8],
    at: usize,
}

impl<'h> Bytes<'h> {
    pub(super) fn new(header: &'h [u8]) -> Self {
        Self { header, at: 0 }
    }

    pub(super) fn broken(&self, what: &'static str) -> Broken {
        Broken { at: self.at, what }
    }

    pub(super) fn left(&self) -> usize {
        self.header.len().saturating_sub(self.at)
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'h [u8], Broken> {
        let rest = self.header.get(self.at..).unwrap_or_default();
        let taken = rest.get(..length).ok_or(self.broken("it ends too early"))?;
        self.at = self.at.saturating_add(length);
        Ok(taken)
    }

    /// The next `length` bytes, to be read by themselves.
    pub(super) fn part(&mut self, length: u64) -> Result<Self, Broken> {
        let at = self.at;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok(Self { header: self.header.get(..self.at).unwrap_or_default(), at })
    }

    /// What was read since `start`, an earlier state of `self`.
    pub(super) fn since(&self, start: &Self) -> &'h [u8] {
        self.header.get(start.at..self.at).unwrap_or_default()
    }

    /// Pairs of bytes up to the next pair of zeros, which is passed.
    pub(super) fn pairs(&mut self) -> Result<&'h [[u8; 2]], Broken> {
        let (pairs, _) = self.header.get(self.at..).unwrap_or_default().as_chunks::<2>();
        let length = pairs.iter().position(|pair| *pair == [0, 0]);
        let passed = length.map_or(pairs.len(), |length| length.saturating_add(1));
        self.at = self.at.saturating_add(passed.saturating_mul(2));
        length.and_then(|length| pairs.get(..length)).ok_or(self.broken("it ends too early"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let at = *self;
        self.take(N)?.try_into().map_err(|_| at.broken("it ends too early"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, Broken> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Ones at the top of the first byte count the bytes that follow, from the lowest up; what is left of the first
    /// byte lies above them.
    pub(super) fn number(&mut self) -> Result<u64, Broken> {
        let first = self.byte()?;
        let more = first.leading_ones();
        let low = self.take(more as usize)?.iter().rev().fold(0, |low, &byte| low << 8 | u64::from(byte));
        let top = u64::from(first) & 0x7f_u64.wrapping_shr(more);
        Ok(if more < 8 { low | top.wrapping_shl(more.saturating_mul(8)) } else { low })
    }

    /// A number of things each of which takes some of the bytes that follow: there are no more of them than bytes.
    pub(super) fn count(&mut self) -> Result<usize, Broken> {
        let at = *self;
        let count = self.number()?;
        usize::try_from(count)
            .ok()
            .filter(|&count| count <= self.left())
            .ok_or(at.broken("a count is larger than the header"))
    }

    pub(super) fn skip_numbers(&mut self, count: usize) -> Result<(), Broken> {
        (0..count).try_for_each(|_| self.number().map(drop))
    }

    /// Passes over a property that is not known.
    pub(super) fn skip_property(&mut self) -> Result<(), Broken> {
        let length = self.number()?;
        self.part(length).map(drop)
    }

    pub(super) fn bits(&mut self, count: usize) -> Result<Bits<'h>, Broken> {
        self.take(count.div_ceil(8)).map(|bytes| Bits { bytes: Some(bytes) })
    }
}

/// One bit for each of several things, from the top of each byte.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bits<'h> {
    /// `None`: all are set.
    bytes: Option<&'h [u8]>,
}

impl Bits<'_> {
    pub(super) fn get(&self, index: usize) -> bool {
        let Some(bytes) = self.bytes else { return true };
        bytes.get(index / 8).is_some_and(|byte| byte & 0x80_u8.wrapping_shr((index % 8) as u32) != 0)
    }

    pub(super) fn ones(&self, count: usize) -> usize {
        if self.bytes.is_some() { (0..count).filter(|&index| self.get(index)).count() } else { count }
    }
}

/// Values of `N` bytes for those of several things that have one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'h, const N: usize> {
    defined: Bits<'h>,
    values: Bytes<'h>,
    next: usize,
}

impl<'h, const N: usize> Column<'h, N> {
    /// Checksums.
    pub(super) fn digests(bytes: &mut Bytes<'h>, count: usize) -> Result<Self, Broken> {
        let defined = if bytes.byte()? == 0 { bytes.bits(count)? } else { Bits::default() };
        Self::values(bytes, defined, count)
    }

    /// Attributes and times, which say where they are.
    pub(super) fn property(bytes: &mut Bytes<'h>, count: usize) -> Result<Self, Broken> {
        let defined = if bytes.byte()? == 0 { bytes.bits(count)? } else { Bits::default() };
        inside(bytes)?;
        Self::values(bytes, defined, count)
    }

    fn values(bytes: &mut Bytes<'h>, defined: Bits<'h>, count: usize) -> Result<Self, Broken> {
        let length = defined.ones(count).saturating_mul(N);
        Ok(Self { defined, values: bytes.part(length as u64)?, next: 0 })
    }

    pub(super) fn next(&mut self) -> Option<[u8; N]> {
        let index = self.next;
        self.next = index.saturating_add(1);
        if self.defined.get(index) { self.values.array().ok() } else { None }
    }
}

/// The byte that says whether values lie in a stream of their own. No program is known that writes them there.
pub(super) fn inside(bytes: &mut Bytes<'_>) -> Result<(), Broken> {
    let at = *bytes;
    if bytes.byte()? == 0 { Ok(()) } else { Err(at.broken("what stands here is in another stream")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_length() {
        for (bytes, number) in [
            (&[0x00][..], 0),
            (&[0x7f], 0x7f),
            (&[0x80, 0x80], 0x80),
            (&[0xbf, 0xff], 0x3fff),
            (&[0xc1, 0x34, 0x12], 0x0001_1234),
            (&[0xe1, 3, 2, 1], 0x0101_0203),
            (&[0xf0, 4, 3, 2, 1], 0x0102_0304),
            (&[0xf8, 5, 4, 3, 2, 1], 0x01_0203_0405),
            (&[0xfc, 6, 5, 4, 3, 2, 1], 0x0102_0304_0506),
            (&[0xfd, 6, 5, 4, 3, 2, 1], 0x0001_0102_0304_0506),
            (&[0xfe, 7, 6, 5, 4, 3, 2, 1], 0x0001_0203_0405_0607),
            (&[0xff, 8, 7, 6, 5, 4, 3, 2, 1], 0x0102_0304_0506_0708),
            (&[0xff, 255, 255, 255, 255, 255, 255, 255, 255], u64::MAX),
        ] {
            let mut cursor = Bytes::new(bytes);
            assert_eq!((cursor.number(), cursor.left()), (Ok(number), 0), "{bytes:x?}");
            for length in 0..bytes.len() {
                assert!(Bytes::new(&bytes[..length]).number().is_err());
            }
        }
    }

    #[test]
    fn columns_give_what_is_defined() {
        let mut bytes = Bytes::new(&[0, 0b1010_0000, 1, 0, 0, 0, 2, 0, 0, 0, 9]);
        let mut column = Column::<4>::digests(&mut bytes, 4).unwrap();
        assert_eq!([(); 5].map(|()| column.next().map(u32::from_le_bytes)), [Some(1), None, Some(2), None, None]);
        assert_eq!(bytes.byte(), Ok(9));
        assert!(Column::<4>::digests(&mut Bytes::new(&[1, 0, 0, 0, 0, 0, 0, 0]), 2).is_err());
        assert!(Column::<4>::property(&mut Bytes::new(&[1, 1, 0]), 0).is_err());
        // More things than any memory has are not there.
        assert!(Column::<4>::digests(&mut Bytes::new(&[1]), usize::MAX).is_err());
    }

    #[test]
    fn counts_are_no_larger_than_what_is_left() {
        assert_eq!(Bytes::new(&[2, 0, 0]).count(), Ok(2));
        assert!(Bytes::new(&[3, 0, 0]).count().is_err());
    }
}
