//! What volumes are called: `x.part1.rar`, `x.part2.rar`, ..., or `x.rar`, `x.r00`, ..., `x.r99`, `x.s00`, .... The
//! first one may be a program (`.exe`, or `.sfx` elsewhere than on Windows).

/// Suffixes of the first one.
const FIRST: [&str; 3] = ["rar", "exe", "sfx"];

fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    Some((name.get(..dot)?, name.get(dot.saturating_add(1)..)?)).filter(|(stem, _)| !stem.is_empty())
}

/// `suffix` in the case of `other`.
fn cased(suffix: &str, other: &[u8]) -> Vec<u8> {
    let is_upper = other.first().is_some_and(u8::is_ascii_uppercase);
    if is_upper { suffix.to_ascii_uppercase().into_bytes() } else { suffix.as_bytes().to_vec() }
}

fn is_first_suffix(suffix: &[u8]) -> bool {
    FIRST.iter().any(|first| suffix.eq_ignore_ascii_case(first.as_bytes()))
}

/// What is before and behind the number of a name with `.part`, and the number.
fn numbered(name: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (stem, suffix) = split(name).filter(|(_, suffix)| is_first_suffix(suffix))?;
    let digits = stem.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = stem.split_at_checked(stem.len().checked_sub(digits)?)?;
    let part = before.get(before.len().checked_sub(5)?..)?;
    ((1..=9).contains(&digits) && part.eq_ignore_ascii_case(b".part")).then_some((before, number, suffix))
}

/// The names that the first volume may have, if `name` may be that of one.
pub(super) fn firsts(name: &[u8]) -> Vec<Vec<u8>> {
    if let Some((before, number, suffix)) = numbered(name) {
        let of_width = |width: usize| {
            let number = format!("{:0width$}", 1);
            FIRST.map(|first| [before, number.as_bytes(), b".", &cased(first, suffix)].concat())
        };
        return (1..=number.len()).rev().flat_map(of_width).collect();
    }
    let Some((stem, suffix)) = split(name) else { return Vec::new() };
    if is_first_suffix(suffix) {
        return vec![name.to_vec()];
    }
    match suffix {
        [b'r'..=b'z' | b'R'..=b'Z', tens, ones] if tens.is_ascii_digit() && ones.is_ascii_digit() => {
            FIRST.map(|first| [stem, b".", &cased(first, suffix)].concat()).to_vec()
        }
        _ => Vec::new(),
    }
}

/// The name of the volume behind that with this `name`.
pub(super) fn next(name: &[u8]) -> Option<Vec<u8>> {
    if let Some((before, number, suffix)) = numbered(name) {
        let next = std::str::from_utf8(number).ok()?.parse::<u64>().ok()?.checked_add(1)?;
        let next = format!("{next:0width$}", width = number.len());
        return Some([before, next.as_bytes(), b".", &cased("rar", suffix)].concat());
    }
    let (stem, suffix) = split(name)?;
    let next = match *suffix {
        _ if is_first_suffix(suffix) => cased("r00", suffix),
        [letter, b'9', b'9'] => vec![letter.checked_add(1).filter(u8::is_ascii_alphabetic)?, b'0', b'0'],
        [letter, tens, b'9'] => vec![letter, tens.checked_add(1)?, b'0'],
        [letter, tens, ones] => vec![letter, tens, ones.checked_add(1)?],
        _ => return None,
    };
    Some([stem, b".", &next].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_of(name: &str) -> Option<String> {
        next(name.as_bytes()).map(|next| String::from_utf8(next).unwrap())
    }

    #[test]
    fn volumes_are_counted_in_both_ways() {
        for (name, expected) in [
            ("x.part1.rar", "x.part2.rar"),
            ("x.part9.rar", "x.part10.rar"),
            ("x.part099.rar", "x.part100.rar"),
            ("X.PART1.RAR", "X.PART2.RAR"),
            ("x.part1.exe", "x.part2.rar"),
            ("x.rar", "x.r00"),
            ("x.exe", "x.r00"),
            ("X.RAR", "X.R00"),
            ("x.r09", "x.r10"),
            ("x.r99", "x.s00"),
        ] {
            assert_eq!(next_of(name).as_deref(), Some(expected), "{name}");
        }
        assert_eq!((next_of("x.z99"), next_of("x"), next_of("x.7z")), (None, None, None));
    }

    #[test]
    fn the_first_one_is_found_from_any() {
        let has = |name: &str, first: &str| firsts(name.as_bytes()).contains(&first.as_bytes().to_vec());
        assert!(has("x.part12.rar", "x.part01.rar") && has("x.part12.rar", "x.part1.rar"));
        assert!(has("x.part2.rar", "x.part1.exe") && has("x.r00", "x.rar") && has("X.S07", "X.RAR"));
        assert_eq!(firsts(b"x.rar"), [b"x.rar"]);
        for name in ["x.zip", "x.r0", "x.7z", "x.tar.gz", ".rar", "x.001", "x.a00"] {
            assert!(firsts(name.as_bytes()).is_empty(), "{name}");
        }
    }
}
