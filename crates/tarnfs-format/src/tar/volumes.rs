//! Where a file goes on in the next volume of an archive: the headers that stand there, GNU's own and those in pax.

use super::header::{BLOCK, Block, Check, Header, check};
use super::numbers::decimal;

/// Bytes that all headers before the continuation of a file have together, at the most: a label, records, and the file's own.
pub(super) const LONGEST: usize = 16 << 10;

/// True if such headers may begin with `block`.
pub(super) fn may_continue(block: &Block) -> bool {
    matches!(Header(block).typeflag(), b'M' | b'V' | b'g') && check(block) == Check::Header
}

/// The length of the headers at the start of `head`, if behind them goes on the file at `path`, which has `size` bytes of which `at` came
/// before. All that they say must fit: the bytes of a file may look like a header, too.
pub(super) fn continuation(head: &[u8], path: &[u8], at: u64, size: u64) -> Option<u64> {
    let mut rest = head;
    let mut announced = false;
    loop {
        let (block, behind) = rest.split_first_chunk::<BLOCK>()?;
        if check(block) != Check::Header {
            return None;
        }
        let header = Header(block);
        let stored = header.size()?;
        let length = usize::try_from(stored).ok()?.checked_next_multiple_of(BLOCK)?;
        let passed = (head.len().saturating_sub(behind.len())) as u64;
        match header.typeflag() {
            b'M' => {
                let name = header.path(header.dialect());
                let fits = header.continued_at(header.dialect())? == at && stored.checked_add(at)? == size;
                // A name that does not fit is cut.
                return (fits && !name.is_empty() && path.starts_with(&name)).then_some(passed);
            }
            b'V' | b'x' => rest = behind.get(length..)?,
            b'g' => {
                announced |= is_announced(behind.get(..usize::try_from(stored).ok()?)?, path, at, size);
                rest = behind.get(length..)?;
            }
            b'0' if announced => return (stored.checked_add(at)? == size).then_some(passed),
            _ => return None,
        }
    }
}

/// True if these records say that `path` goes on at its byte `at`.
fn is_announced(records: &[u8], path: &[u8], at: u64, size: u64) -> bool {
    let value = |key: &[u8]| {
        // Names in them have no new lines: GNU tar writes none, and such a file is then two parts as before.
        records.split(|&byte| byte == b'\n').find_map(|record| {
            let space = record.iter().position(|&byte| byte == b' ')?;
            record.get(space..)?.get(1..)?.strip_prefix(key)?.strip_prefix(b"=")
        })
    };
    value(b"GNU.volume.filename") == Some(path)
        && value(b"GNU.volume.offset").and_then(decimal) == Some(at)
        && value(b"GNU.volume.size").and_then(decimal).and_then(|left| left.checked_add(at)) == Some(size)
}
