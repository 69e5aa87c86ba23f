//! One header: 60 bytes of text.

/// Bytes of a header.
pub(crate) const HEADER: usize = 60;

/// At the end of each.
const END: &[u8] = b"`\n";

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header<'b> {
    pub(crate) name: Name<'b>,
    pub(crate) mtime: i64,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    /// Type and permission bits.
    pub(crate) mode: u32,
    pub(crate) size: u64,
}

/// What stands where the name does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name<'b> {
    Short(&'b [u8]),
    /// BSD: the content begins with the name, of so many bytes.
    Before(u64),
    /// GNU, COFF: at this byte of the table of names.
    Table(u64),
    /// The table of names.
    Names,
    /// What linkers look symbols up in.
    Symbols,
}

impl<'b> Header<'b> {
    /// `None` if it is no header.
    pub(crate) fn read(bytes: &'b [u8; HEADER]) -> Option<Self> {
        let (fields, end) = bytes.split_at_checked(58)?;
        if end != END {
            return None;
        }
        let field = |at: usize, length: usize| fields.get(at..).and_then(|rest| rest.get(..length));
        let decimal = |at, length| number::<10>(field(at, length)?);
        Some(Self {
            name: name(field(0, 16)?),
            // Windows writes -1 where it knows nothing.
            mtime: match field(16, 12)? {
                [b'-', ..] => 0,
                time => i64::try_from(number::<10>(time)?).ok()?,
            },
            uid: decimal(28, 6)?,
            gid: decimal(34, 6)?,
            mode: number::<8>(field(40, 8)?)? as u32,
            size: decimal(48, 10).filter(|_| !field(48, 10).is_some_and(|size| size.trim_ascii().is_empty()))?,
        })
    }
}

/// Digits up to the blanks at the end; nothing but blanks is 0, as fields are that do not apply.
fn number<const BASE: u32>(field: &[u8]) -> Option<u64> {
    field.trim_ascii().iter().try_fold(0_u64, |value, &byte| {
        let digit = char::from(byte).to_digit(BASE)?;
        value.checked_mul(BASE.into())?.checked_add(digit.into())
    })
}

fn name(field: &[u8]) -> Name<'_> {
    let field = field.trim_ascii_end();
    let digits = |text: &[u8]| (!text.is_empty()).then(|| number::<10>(text)).flatten();
    match field {
        b"/" | b"/SYM64/" | b"/<ECSYMBOLS>/" | b"/<XFGHASHMAP>/" => Name::Symbols,
        b"//" | b"ARFILENAMES/" => Name::Names,
        [b'#', b'1', b'/', length @ ..] => digits(length).map_or(Name::Short(field), Name::Before),
        // In a thin archive, what is behind a colon says where in another archive it lies.
        [b'/', at @ ..] => match digits(at.split(|&byte| byte == b':').next().unwrap_or_default()) {
            Some(at) => Name::Table(at),
            None => Name::Short(field),
        },
        [name @ .., b'/'] => Name::Short(name),
        _ => Name::Short(field),
    }
}

/// True of BSD's names of symbol tables.
pub(crate) fn is_symbols(name: &[u8]) -> bool {
    matches!(name, b"__.SYMDEF" | b"__.SYMDEF SORTED" | b"__.SYMDEF_64" | b"__.SYMDEF_64 SORTED")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, fields: &str) -> Vec<u8> {
        format!("{name:<16}{fields}`\n").into_bytes()
    }

    #[test]
    fn headers_as_ar_programs_write_them() {
        let gnu = "1700000000  1000  100   100644  1234      ";
        for (stored, expected) in [
            ("a.o/", Name::Short(b"a.o")),
            ("debian-binary", Name::Short(b"debian-binary")),
            ("with space/", Name::Short(b"with space")),
            ("#1/20", Name::Before(20)),
            ("#1/x", Name::Short(b"#1/x")),
            ("/123", Name::Table(123)),
            ("/7:4096", Name::Table(7)),
            ("/x", Name::Short(b"/x")),
            ("//", Name::Names),
            ("/", Name::Symbols),
            ("/SYM64/", Name::Symbols),
        ] {
            let bytes = header(stored, gnu);
            let read = Header::read(bytes.first_chunk().unwrap()).unwrap();
            let expected =
                Header { name: expected, mtime: 1_700_000_000, uid: 1000, gid: 100, mode: 0o100_644, size: 1234 };
            assert_eq!(read, expected);
        }
        let coff = header("/", "-1                      0       12        ");
        let read = Header::read(coff.first_chunk().unwrap()).unwrap();
        assert_eq!((read.mtime, read.mode, read.size), (0, 0, 12));
        for wrong in ["x           0     0     644     12        ", "0           0     0     644               "] {
            assert_eq!(Header::read(header("a/", wrong).first_chunk().unwrap()), None, "{wrong}");
        }
        assert_eq!(Header::read(&[b' '; HEADER]), None);
    }
}
