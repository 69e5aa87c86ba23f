//! Modes as `-perm` takes them: `644`, `-u+w`, `/a=x`.

/// How the bits of a file's mode are compared with those that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModeTest {
    /// They are the same.
    Exactly(u32),
    /// All of them are set.
    All(u32),
    /// Any of them is set, or none is asked for.
    Any(u32),
}

impl ModeTest {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.as_bytes() {
            [b'-', ..] => bits(&text[1..]).map(Self::All),
            [b'/', ..] => bits(&text[1..]).map(Self::Any),
            _ => bits(text).map(Self::Exactly),
        }
    }

    pub(super) fn holds(self, mode: u32) -> bool {
        match self {
            Self::Exactly(bits) => mode & 0o7777 == bits,
            Self::All(bits) => mode & bits == bits,
            Self::Any(bits) => bits == 0 || mode & bits != 0,
        }
    }
}

/// Octal, or as chmod(1) has it, beginning with no bit set.
fn bits(text: &str) -> Option<u32> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return u32::from_str_radix(text, 8).ok().filter(|&bits| bits <= 0o7777);
    }
    text.split(',').try_fold(0, clause)
}

/// What `ugo+rw` makes of `mode`.
fn clause(mut mode: u32, clause: &str) -> Option<u32> {
    const USER: u32 = 0o4700;
    const GROUP: u32 = 0o2070;
    const OTHERS: u32 = 0o1007;
    let operators = clause.find(['+', '-', '='])?;
    let (who, mut rest) = clause.split_at(operators);
    let who = who.chars().try_fold(0, |who, letter| {
        Some(
            who | match letter {
                'u' => USER,
                'g' => GROUP,
                'o' => OTHERS,
                'a' => USER | GROUP | OTHERS,
                _ => return None,
            },
        )
    })?;
    let who = if who == 0 { USER | GROUP | OTHERS } else { who };
    while let Some(operator) = rest.chars().next() {
        rest = &rest[1..];
        let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
        let named = rest[..end].chars().try_fold(0, |named, letter| {
            let spread = |bits: u32| (bits & 7) * 0o111;
            Some(
                named
                    | match letter {
                        'r' => 0o444,
                        'w' => 0o222,
                        'x' => 0o111,
                        's' => 0o6000,
                        't' => 0o1000,
                        // Only where somebody may execute it already; and of one class, what another has.
                        'X' => {
                            if mode & 0o111 != 0 {
                                0o111
                            } else {
                                0
                            }
                        }
                        'u' => spread(mode >> 6),
                        'g' => spread(mode >> 3),
                        'o' => spread(mode),
                        _ => return None,
                    },
            )
        })?;
        let named = named & who;
        match operator {
            '+' => mode |= named,
            '-' => mode &= !named,
            _ => mode = mode & !(who & 0o777) | named,
        }
        rest = &rest[end..];
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_find_does() {
        for (text, test) in [
            ("644", ModeTest::Exactly(0o644)),
            ("-4000", ModeTest::All(0o4000)),
            ("/222", ModeTest::Any(0o222)),
            ("u=rw,g=r,o=r", ModeTest::Exactly(0o644)),
            ("-u+w,g+w", ModeTest::All(0o220)),
            ("/a+x", ModeTest::Any(0o111)),
            ("-g=u", ModeTest::All(0)),
            ("u=rwx,g=u-w", ModeTest::Exactly(0o750)),
            ("u+s", ModeTest::Exactly(0o4000)),
            ("+t", ModeTest::Exactly(0o1000)),
        ] {
            assert_eq!(ModeTest::parse(text), Some(test), "{text}");
        }
        for text in ["", "9", "77777", "u", "z+r", "u+q", "-"] {
            assert_eq!(ModeTest::parse(text), None, "{text}");
        }
        assert!(ModeTest::Any(0).holds(0o600) && !ModeTest::Any(0o11).holds(0o600));
    }
}
