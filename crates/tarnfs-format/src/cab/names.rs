//! What cabinets are called that belong together. Each has the names of the one before and of the one behind it; the
//! first one is found by its number.

/// The names that the first cabinet may have, if `name` may be that of one.
pub(super) fn firsts(name: &[u8]) -> Vec<Vec<u8>> {
    const SUFFIX: &[u8] = b".cab";
    let split = name.len().checked_sub(SUFFIX.len()).and_then(|at| name.split_at_checked(at));
    let Some((stem, suffix)) = split.filter(|(stem, end)| !stem.is_empty() && end.eq_ignore_ascii_case(SUFFIX)) else {
        return Vec::new();
    };
    let digits = stem.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = stem.split_at_checked(stem.len().saturating_sub(digits)).unwrap_or((stem, b""));
    let mut firsts = Vec::new();
    if !number.is_empty() {
        let first = [before, format!("{:0width$}", 1, width = number.len()).as_bytes(), suffix].concat();
        firsts.push(first);
    }
    if !firsts.iter().any(|first| first == name) {
        firsts.push(name.to_vec());
    }
    firsts
}

/// The name of a file that a cabinet says another one has, without the folders that it was in; `None` where that is no
/// name.
pub(super) fn plain(stored: &[u8]) -> Option<Vec<u8>> {
    let name = stored.rsplit(|byte| matches!(byte, b'/' | b'\\')).next()?;
    (!matches!(name, b"" | b"." | b"..")).then(|| name.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_has_the_number_one() {
        let of = |name: &str| -> Vec<String> {
            firsts(name.as_bytes()).into_iter().map(|first| String::from_utf8(first).unwrap()).collect()
        };
        assert_eq!(of("disk3.cab"), ["disk1.cab", "disk3.cab"]);
        assert_eq!(of("DISK03.CAB"), ["DISK01.CAB", "DISK03.CAB"]);
        assert_eq!(of("disk1.cab"), ["disk1.cab"]);
        assert_eq!(of("x.cab"), ["x.cab"]);
        assert!(of("x.zip").is_empty() && of(".cab").is_empty());
        assert_eq!(plain(b"..\\disk2.cab").as_deref(), Some(&b"disk2.cab"[..]));
        assert_eq!((plain(b""), plain(b"a/.."), plain(b"a\\")), (None, None, None));
    }
}
