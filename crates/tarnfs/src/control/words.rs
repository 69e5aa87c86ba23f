//! From a line to words.

/// Words of a line at most: none of them does any good in larger numbers, and each costs memory.
const MOST_WORDS: usize = 4096;

/// Splits `line` as a shell does: at spaces and tabs, but not in `'...'`, in `"..."` (where a backslash counts before
/// `"`, `\`, `$` and `` ` `` only), or behind a backslash. Nothing else means anything: no variable, no glob, no other
/// command. POSIX.1-2024, XCU 2.2.
///
/// In a line whose first word ends with a zero byte, all words do, and every other byte is itself: so ratarmount takes
/// words, too.
pub(crate) fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let words = match line.iter().position(|byte| b"\0 \t\"'\\".contains(byte)) {
        Some(end) if line.get(end) == Some(&0) => {
            let line = line.strip_suffix(b"\0").unwrap_or(line);
            line.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
        }
        _ => split_quoted(line)?,
    };
    if words.len() > MOST_WORDS {
        return Err(format!("more than {MOST_WORDS} words are no command"));
    }
    Ok(words)
}

fn split_quoted(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    // `""` is a word, though there is nothing in it.
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied().enumerate();
    while let Some((start, byte)) = bytes.next() {
        let unended = || format!("the quote at byte {} never ends", start + 1);
        match byte {
            0 => return Err(format!("there is a zero byte at byte {}", start + 1)),
            b' ' | b'\t' | b'\r' => words.extend(word.take()),
            b'\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next().ok_or_else(unended)?.1 {
                        b'\'' => break,
                        other => word.push(other),
                    }
                }
            }
            b'"' => {
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next().ok_or_else(unended)?.1 {
                        b'"' => break,
                        b'\\' => match bytes.next().ok_or_else(unended)?.1 {
                            escaped @ (b'"' | b'\\' | b'$' | b'`') => word.push(escaped),
                            other => word.extend([b'\\', other]),
                        },
                        other => word.push(other),
                    }
                }
            }
            b'\\' => {
                let (_, escaped) = bytes.next().ok_or("there is nothing behind the last backslash")?;
                word.get_or_insert_default().push(escaped);
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if words.iter().any(|word| word.contains(&0)) {
        return Err("there is a zero byte in a word".to_owned());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Vec<String> {
        split(line).unwrap().into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn words_are_those_of_a_shell() {
        for line in [
            r"a  b	c",
            r#"'a b' "c d"e\ f"#,
            r#""a\"b\\c\d\'" 'x\' \'"#,
            r#""" '' x"#,
            r#"a"b c"'d e'f"#,
            r"\-- ä\ö",
            "  leading and trailing  ",
        ] {
            let shell =
                std::process::Command::new("sh").args(["-c", &format!(r"printf '%s\n' {line}")]).output().unwrap();
            let expected: Vec<_> = std::str::from_utf8(&shell.stdout).unwrap().lines().map(str::to_owned).collect();
            assert_eq!(words(line.as_bytes()), expected, "{line}");
        }
        assert_eq!(words(b"$HOME * `ls` ; a|b"), ["$HOME", "*", "`ls`", ";", "a|b"]);
        assert_eq!(words(b"a b\r"), ["a", "b"]);
        assert_eq!(words(b""), [""; 0]);
    }

    #[test]
    fn words_with_zero_bytes_behind_them_are_taken_as_they_are() {
        assert_eq!(words(b"ratarmount\0-u\0/a b\"\0"), ["ratarmount", "-u", "/a b\""]);
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for (line, problem) in [
            (&b"a 'b c"[..], "the quote at byte 3 never ends"),
            (b"\"a\\\"", "the quote at byte 1 never ends"),
            (b"a \"b\\", "never ends"),
            (b"a\\", "behind the last backslash"),
            (b"a b\0c", "zero byte at byte 4"),
            (b"a 'b\0c'", "zero byte"),
        ] {
            let said = split(line).unwrap_err();
            assert!(said.contains(problem), "{said}");
        }
        assert!(split(&b"a ".repeat(MOST_WORDS + 1)).unwrap_err().contains("words"));
    }
}
