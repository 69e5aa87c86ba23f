//! The head of a page.

/// What each page begins with.
pub(super) const MARK: &[u8] = b"OggS";

/// Bytes of the head without its table, and with the longest one.
const HEAD: usize = 27;
pub(super) const LONGEST_HEAD: usize = HEAD + 255;

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    /// The number of the stream.
    pub(super) stream: u32,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    /// Bytes of the head, and of all of it.
    pub(super) head: usize,
    pub(super) length: u64,
}

impl Page {
    /// The page at the start of `bytes`, which has its head.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD] = bytes.first_chunk()?;
        let [mark @ .., _, flags] = head.first_chunk::<6>()?;
        let [_, _, _, _, version, _] = head.first_chunk::<6>()?;
        if mark != MARK || *version != 0 || flags & !7 != 0 {
            return None;
        }
        let stream = u32::from_le_bytes(*head.get(14..18)?.first_chunk()?);
        let segments = usize::from(*head.last()?);
        let length = HEAD.checked_add(segments)?;
        let table = bytes.get(HEAD..length)?;
        let content: u64 = table.iter().map(|length| u64::from(*length)).sum();
        Some(Self {
            stream,
            is_first: flags & 2 != 0,
            is_last: flags & 4 != 0,
            head: length,
            length: content.checked_add(length as u64)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_far_as_they_go() {
        let mut bytes = b"OggS\0\x02".to_vec();
        bytes.extend([0; 8]);
        bytes.extend(7_u32.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend([2, 255, 3]);
        let page = Page { stream: 7, is_first: true, is_last: false, head: 29, length: 287 };
        assert_eq!(Page::read(&bytes), Some(page));
        for length in 0..bytes.len() {
            assert_eq!(Page::read(&bytes[..length]), None);
        }
        bytes[4] = 1;
        assert_eq!(Page::read(&bytes), None);
    }
}
