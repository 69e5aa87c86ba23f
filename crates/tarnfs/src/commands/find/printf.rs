//! What `-printf` prints, in the words of GNU find.

use std::io::{self, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tarnfs_tree::{Attributes, Error, Kind, Time, Tree, path};

use super::Visit;
use crate::commands::stat::mode_string;
use crate::terminal::Output;

/// A format, part by part.
#[derive(Debug)]
pub(super) struct Format(Vec<Part>);

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    /// `\c`: the rest is not printed.
    Stop,
    Field {
        /// Between the `%` and the letter: flags, width, precision.
        layout: Layout,
        what: Field,
    },
}

/// How a field fills its place, as printf(3) has it.
#[derive(Debug, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of printf(3)")]
struct Layout {
    is_left: bool,
    has_zeros: bool,
    has_sign: bool,
    has_space: bool,
    is_alternate: bool,
    width: usize,
    precision: Option<usize>,
}

/// Widths above this are refused: nobody has such a terminal.
const MOST_WIDTH: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    /// A letter on its own.
    Plain(u8),
    /// Of a time (`A`, `C` or `T`), a letter of it.
    Time(u8, u8),
}

impl Format {
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let [byte, behind @ ..] = rest {
            rest = behind;
            match byte {
                b'\\' => match escape(behind) {
                    Some((Some(byte), length)) => {
                        plain.push(byte);
                        rest = &behind[length..];
                    }
                    Some((None, length)) => {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                        parts.push(Part::Stop);
                        rest = &behind[length..];
                    }
                    None => plain.push(b'\\'),
                },
                b'%' if behind.first() == Some(&b'%') => {
                    plain.push(b'%');
                    rest = &behind[1..];
                }
                b'%' => {
                    let (layout, length) = Layout::parse(behind)?;
                    let (what, more) = Field::parse(&behind[length..])?;
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                    parts.push(Part::Field { layout, what });
                    rest = &behind[length + more..];
                }
                byte => plain.push(*byte),
            }
        }
        parts.push(Part::Text(plain));
        parts.retain(|part| *part != Part::Text(Vec::new()));
        Ok(Self(parts))
    }

    /// Prints what is said of one entry. The targets of links that cannot be read are empty, and the error is returned
    /// beside that.
    pub(super) fn print(&self, out: &mut Output, tree: &dyn Tree, visit: &Visit<'_>) -> io::Result<Option<Error>> {
        let mut trouble = None;
        for part in &self.0 {
            match part {
                Part::Stop => return out.flush().map(|()| trouble),
                Part::Text(text) => out.write_all(text)?,
                Part::Field { layout, what } => match what.value(tree, visit) {
                    Ok(value) => layout.write(out, &value)?,
                    Err(error) => trouble = Some(error),
                },
            }
        }
        Ok(trouble)
    }
}

/// The byte that stands behind a backslash, none for `\c`, and how long that is. `None` if it is no escape.
fn escape(text: &[u8]) -> Option<(Option<u8>, usize)> {
    let byte = match text.first()? {
        b'a' => 7,
        b'b' => 8,
        b'c' => return Some((None, 1)),
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' => b'\\',
        b'0'..=b'7' => {
            let digits = text.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let number = text[..digits].iter().fold(0_u32, |number, digit| number * 8 + u32::from(digit - b'0'));
            return Some((Some(number as u8), digits));
        }
        _ => return None,
    };
    Some((Some(byte), 1))
}

/// What a field stands for, before it is laid out.
enum Value {
    Number(i128),
    Octal(u32),
    /// A name from the archive.
    Name(Vec<u8>),
    Text(String),
}

impl Layout {
    fn parse(text: &[u8]) -> Result<(Self, usize), String> {
        let mut layout = Self::default();
        let mut at = 0;
        loop {
            match text.get(at) {
                Some(b'-') => layout.is_left = true,
                Some(b'0') => layout.has_zeros = true,
                Some(b'+') => layout.has_sign = true,
                Some(b' ') => layout.has_space = true,
                Some(b'#') => layout.is_alternate = true,
                _ => break,
            }
            at += 1;
        }
        let number = |at: &mut usize| -> Result<usize, String> {
            let digits = text[*at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = std::str::from_utf8(&text[*at..*at + digits]).unwrap_or_default();
            *at += digits;
            let number = if number.is_empty() { Ok(0) } else { number.parse() };
            number.ok().filter(|&width| width <= MOST_WIDTH).ok_or_else(|| "a width in it is too large".to_owned())
        };
        layout.width = number(&mut at)?;
        if text.get(at) == Some(&b'.') {
            at += 1;
            layout.precision = Some(number(&mut at)?);
        }
        Ok((layout, at))
    }

    fn write(&self, out: &mut Output, value: &Value) -> io::Result<()> {
        let (sign, digits) = match value {
            Value::Name(name) => {
                let name = &name[..self.precision.map_or(name.len(), |most| most.min(name.len()))];
                let fill = self.width.saturating_sub(name.len());
                self.blank(out, fill, false)?;
                out.name(name)?;
                return self.blank(out, fill, true);
            }
            Value::Text(text) => {
                let text = text.get(..self.precision.unwrap_or(text.len())).unwrap_or(text);
                let fill = self.width.saturating_sub(text.len());
                self.blank(out, fill, false)?;
                out.write_all(text.as_bytes())?;
                return self.blank(out, fill, true);
            }
            Value::Number(number) => {
                let sign = match number {
                    ..0 => "-",
                    _ if self.has_sign => "+",
                    _ if self.has_space => " ",
                    _ => "",
                };
                (sign, number.unsigned_abs().to_string())
            }
            Value::Octal(number) if self.is_alternate && *number > 0 => ("", format!("0{number:o}")),
            Value::Octal(number) => ("", format!("{number:o}")),
        };
        let least = match self.precision {
            Some(least) => least,
            None if self.has_zeros && !self.is_left => self.width.saturating_sub(sign.len()),
            None => 0,
        };
        let digits = format!("{digits:0>least$}");
        let fill = self.width.saturating_sub(sign.len() + digits.len());
        self.blank(out, fill, false)?;
        out.write_all(sign.as_bytes())?;
        out.write_all(digits.as_bytes())?;
        self.blank(out, fill, true)
    }

    /// Fills the place on the side where there is room.
    fn blank(&self, out: &mut Output, fill: usize, is_behind: bool) -> io::Result<()> {
        if is_behind == self.is_left { write!(out, "{:fill$}", "") } else { Ok(()) }
    }
}

impl Field {
    fn parse(text: &[u8]) -> Result<(Self, usize), String> {
        const LETTERS: &[u8] = b"abcdDfFgGhHiklmMnpPsStuUyY";
        const OF_TIMES: &[u8] = b"@HIklMprST+XZaAbBcdDFhjmUwWxyY";
        match text {
            [of @ (b'A' | b'C' | b'T'), letter, ..] if OF_TIMES.contains(letter) => Ok((Self::Time(*of, *letter), 2)),
            [of @ (b'A' | b'C' | b'T'), ..] => {
                Err(format!("%{} needs a letter that says what of the time", *of as char))
            }
            [letter, ..] if LETTERS.contains(letter) => Ok((Self::Plain(*letter), 1)),
            [letter, ..] => Err(format!("%{} is not known", char::from(*letter).escape_default())),
            [] => Err("it ends with a %".into()),
        }
    }

    fn value(self, tree: &dyn Tree, visit: &Visit<'_>) -> Result<Value, Error> {
        let attributes = visit.attributes;
        let name = |name: &[u8]| Ok(Value::Name(name.to_vec()));
        let letter = match self {
            Self::Plain(letter) => letter,
            Self::Time(of, letter) => return Ok(Value::Text(of_time(time_of(attributes, of), letter))),
        };
        // As in GNU find they are strings: zeros and signs are not for them.
        let number = |number: u64| Value::Text(number.to_string());
        let owner = |is_group: bool| {
            let (user, group) = tree.owner_names(attributes.node)?;
            let (name, id) = if is_group { (group, attributes.gid) } else { (user, attributes.uid) };
            Ok(if name.is_empty() { number(id.into()) } else { Value::Name(name) })
        };
        Ok(match letter {
            b'a' | b'c' | b't' => Value::Text(of_time(time_of(attributes, letter.to_ascii_uppercase()), b'c')),
            b'b' => number(attributes.blocks),
            b'd' => Value::Number(visit.depth as i128),
            b'D' => number(0),
            b'f' => return name(visit.name),
            b'F' => return name(b"tarnfs"),
            b'g' => return owner(true),
            b'G' => number(attributes.gid.into()),
            b'h' => return name(visit.folder()),
            b'H' => return name(visit.start()),
            b'i' => number(attributes.node.0),
            b'k' => number(attributes.blocks.div_ceil(2)),
            b'l' if attributes.kind == Kind::Symlink => Value::Name(tree.read_link(attributes.node)?),
            b'l' => Value::Name(Vec::new()),
            b'm' => Value::Octal(attributes.mode),
            b'M' => Value::Text(mode_string(attributes)),
            b'n' => number(attributes.links.into()),
            b'p' => return name(visit.path),
            b'P' => return name(visit.below()),
            b's' => number(attributes.size),
            b'S' if attributes.size == 0 => Value::Text("1".into()),
            b'S' => Value::Text(general(attributes.blocks as f64 * 512.0 / attributes.size as f64)),
            b'u' => return owner(false),
            b'U' => number(attributes.uid.into()),
            b'y' => Value::Text(letter_of(attributes.kind).into()),
            _ => Value::Text(kind_behind(tree, visit)),
        })
    }
}

/// A number as `%g` of printf(3) has it.
fn general(number: f64) -> String {
    let text = format!("{number:.6}");
    let (whole, _) = text.split_once('.').unwrap_or((&text, ""));
    let digits = 6_usize.saturating_sub(if whole == "0" { 0 } else { whole.len() });
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The letter of `-type`.
pub(super) fn letter_of(kind: Kind) -> &'static str {
    match kind {
        Kind::File | Kind::HardLink => "f",
        Kind::Folder => "d",
        Kind::Symlink => "l",
        Kind::CharacterDevice(_) => "c",
        Kind::BlockDevice(_) => "b",
        Kind::Fifo => "p",
        Kind::Socket => "s",
    }
}

/// `%Y`: what a link leads to, `N` if that is not there, `L` if it leads to itself.
fn kind_behind(tree: &dyn Tree, visit: &Visit<'_>) -> String {
    if visit.attributes.kind != Kind::Symlink {
        return letter_of(visit.attributes.kind).into();
    }
    match path::find(tree, visit.path, true) {
        Ok(found) => letter_of(found.kind),
        Err(Error::NotFound | Error::NotAFolder) => "N",
        Err(Error::TooManyLinks) => "L",
        Err(_) => "?",
    }
    .into()
}

fn time_of(attributes: &Attributes, of: u8) -> Time {
    match of {
        b'A' => attributes.atime,
        b'C' => attributes.ctime,
        _ => attributes.mtime,
    }
}

/// A part of a time, in local time. Seconds have ten digits behind the point, as in GNU find.
fn of_time(time: Time, letter: u8) -> String {
    let fraction = format!("{:09}0", time.nanoseconds);
    if letter == b'@' {
        return format!("{}.{fraction}", time.seconds);
    }
    let zoned = i32::try_from(time.nanoseconds).ok().and_then(|ns| Timestamp::new(time.seconds, ns).ok());
    let Some(zoned) = zoned.map(|timestamp| timestamp.to_zoned(TimeZone::system())) else {
        return format!("@{}", time.seconds);
    };
    let format = match letter {
        b'+' => format!("%Y-%m-%d+%H:%M:%S.{fraction}"),
        b'S' | b'T' | b'X' => format!("%{}.{fraction}", if letter == b'S' { 'S' } else { 'T' }),
        b'c' => format!("%a %b %e %H:%M:%S.{fraction} %Y"),
        b'r' => "%I:%M:%S %p".to_owned(),
        b'x' | b'D' => "%m/%d/%y".to_owned(),
        b'h' => "%b".to_owned(),
        letter => format!("%{}", char::from(letter)),
    };
    zoned.strftime(&format).to_string()
}

/// As `ls -dils` has it: number, blocks of 1 KiB, mode, links, owner, size, time, path.
pub(super) fn print_long(out: &mut Output, tree: &dyn Tree, visit: &Visit<'_>) -> io::Result<Option<Error>> {
    let attributes = visit.attributes;
    let mut trouble = None;
    let (user, group) = crate::commands::stat::owner(tree, attributes).unwrap_or_else(|error| {
        trouble = Some(error);
        (attributes.uid.to_string(), attributes.gid.to_string())
    });
    let size = match attributes.kind {
        Kind::CharacterDevice(device) | Kind::BlockDevice(device) => format!("{},{}", device.major, device.minor),
        _ => attributes.size.to_string(),
    };
    write!(
        out,
        "{:>9} {:>6} {} {:>3} {user:<8} {group:<8} {size:>8} {} ",
        attributes.node.0,
        attributes.blocks.div_ceil(2),
        mode_string(attributes),
        attributes.links,
        crate::times::minutes(attributes.mtime),
    )?;
    out.name_in_line(visit.path)?;
    if attributes.kind == Kind::Symlink {
        out.write_all(b" -> ")?;
        match tree.read_link(attributes.node) {
            Ok(target) => out.name_in_line(&target)?,
            Err(error) => {
                out.write_all(b"?")?;
                trouble = Some(error);
            }
        }
    }
    out.write_all(b"\n")?;
    Ok(trouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read() {
        let text = |text: &[u8]| Part::Text(text.to_vec());
        let Format(parts) = Format::parse(b"a\\n%%\\101\\0%-5s\\c").unwrap();
        let layout = Layout { is_left: true, width: 5, ..Layout::default() };
        let field = Part::Field { layout, what: Field::Plain(b's') };
        assert_eq!(parts, [text(b"a\n%A\0"), field, Part::Stop]);
        for wrong in [&b"%"[..], b"%q", b"%T", b"%Tq", b"%99999s"] {
            assert!(Format::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (number, shown) in [(1.0, "1"), (0.5, "0.5"), (1.0 / 3.0, "0.333333"), (12.345_678, "12.3457")] {
            assert_eq!(general(number), shown);
        }
    }
}
