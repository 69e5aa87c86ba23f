//! What the files are called that an archive is split over: `x.z01`, `x.z02`, ..., and the last one `x.zip`.

/// Suffix of the last one, and what stands before the number of the others.
const SUFFIXES: [(&str, &str); 2] = [("zip", "z"), ("zipx", "zx")];

/// The name of the last one, if `name` may be that of one of them. It has the case of the other.
pub(super) fn last(name: &[u8]) -> Option<Vec<u8>> {
    let (stem, suffix) = split(name)?;
    let is_upper = suffix.first().is_some_and(u8::is_ascii_uppercase);
    let lower = suffix.to_ascii_lowercase();
    let found = SUFFIXES.iter().find_map(|(last, letters)| {
        let number = lower.strip_prefix(letters.as_bytes()).unwrap_or_default();
        let is_number = number.len() >= 2 && number.iter().all(u8::is_ascii_digit);
        (is_number || lower == last.as_bytes()).then_some(*last)
    })?;
    if lower == found.as_bytes() {
        return Some(name.to_vec());
    }
    let last = if is_upper { found.to_ascii_uppercase() } else { found.to_owned() };
    Some([stem, b".", last.as_bytes()].concat())
}

/// The name of the one of that `number` before the last one, which is called `last`.
pub(super) fn before(last: &[u8], number: u64) -> Option<Vec<u8>> {
    let (stem, suffix) = split(last)?;
    let lower = suffix.to_ascii_lowercase();
    let (_, letters) = SUFFIXES.iter().find(|(last, _)| lower == last.as_bytes())?;
    let is_upper = suffix.first().is_some_and(u8::is_ascii_uppercase);
    let letters = if is_upper { letters.to_ascii_uppercase() } else { (*letters).to_owned() };
    Some([stem, format!(".{letters}{number:02}").as_bytes()].concat())
}

fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    Some((name.get(..dot)?, name.get(dot.saturating_add(1)..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_is_found_from_any() {
        for (name, expected) in [
            ("x.z01", Some("x.zip")),
            ("x.z123", Some("x.zip")),
            ("a.b.Z02", Some("a.b.ZIP")),
            ("x.zip", Some("x.zip")),
            ("X.Zip", Some("X.Zip")),
            ("x.zx01", Some("x.zipx")),
            ("x.z1", None),
            ("x.z", None),
            ("x.zst", None),
            ("z01", None),
        ] {
            assert_eq!(last(name.as_bytes()).as_deref(), expected.map(str::as_bytes), "{name}");
        }
    }

    #[test]
    fn the_others_are_counted() {
        assert_eq!(before(b"a.b.ZIP", 1).as_deref(), Some(&b"a.b.Z01"[..]));
        assert_eq!(before(b"a.b.ZIP", 100).as_deref(), Some(&b"a.b.Z100"[..]));
        assert_eq!(before(b"x.zipx", 1).as_deref(), Some(&b"x.zx01"[..]));
        assert_eq!(before(b"x.jar", 1), None);
    }
}
