use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use tarnfs_tree::{Attributes, Error, Kind, Time, Tree};

use crate::args::Stat;
use crate::exit::{Code, Failure};
use crate::inside::{self, Trouble};
use crate::terminal::Output;

/// Shows everything that is known of one node; a symbolic link itself, not its target.
pub(crate) fn run(arguments: &Stat) -> Result<Code, Failure> {
    let (opened, code) = inside::open(&arguments.archive, &arguments.open)?;
    let tree = inside::tree(&opened);
    let path = arguments.path.as_bytes();
    let attributes = inside::find(&tree, &arguments.archive, path, false)?;
    let mut out = Output::new();
    let written = write(&mut out, &tree, path, &attributes).and_then(|()| Ok(out.flush()?));
    written.map_err(|trouble| trouble.failure(&arguments.archive, path))?;
    Ok(code)
}

fn write(out: &mut Output, tree: &dyn Tree, path: &[u8], attributes: &Attributes) -> Result<(), Trouble> {
    let (user, group) = owner(tree, attributes)?;
    out.write_all(b"  Path: ")?;
    out.name(path)?;
    writeln!(out)?;
    writeln!(out, "  Type: {}", kind_name(attributes.kind))?;
    if attributes.kind == Kind::Symlink {
        out.write_all(b"Target: ")?;
        out.name(&tree.read_link(attributes.node)?)?;
        writeln!(out)?;
    }
    if let Kind::CharacterDevice(device) | Kind::BlockDevice(device) = attributes.kind {
        writeln!(out, "Device: {},{}", device.major, device.minor)?;
    }
    writeln!(out, "  Size: {} bytes in {} blocks of 512", attributes.size, attributes.blocks)?;
    writeln!(out, "  Node: {}", attributes.node.0)?;
    writeln!(out, " Links: {}", attributes.links)?;
    writeln!(out, "  Mode: {:04o} {}", attributes.mode, mode_string(attributes))?;
    writeln!(out, " Owner: {} ({user}), {} ({group})", attributes.uid, attributes.gid)?;
    for (name, time) in [("Modify", attributes.mtime), ("Access", attributes.atime), ("Change", attributes.ctime)] {
        writeln!(out, "{name}: {}", Calendar::of(time).nanoseconds())?;
    }
    for (name, value) in tree.xattrs(attributes.node)? {
        out.write_all(b" xattr: ")?;
        out.name(&name)?;
        out.write_all(b"=")?;
        out.write_all(crate::terminal::escaped(&value).as_bytes())?;
        writeln!(out)?;
    }
    Ok(())
}

/// Names of owner and group, or their numbers where the archive has no names.
pub(crate) fn owner(tree: &dyn Tree, attributes: &Attributes) -> Result<(String, String), Error> {
    let (user, group) = tree.owner_names(attributes.node)?;
    let or_number = |name: Vec<u8>, number: u32| {
        if name.is_empty() { number.to_string() } else { crate::terminal::escaped(&name) }
    };
    Ok((or_number(user, attributes.uid), or_number(group, attributes.gid)))
}

/// The type in one word.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Folder => "folder",
        Kind::Symlink => "symlink",
        Kind::HardLink => "hard link",
        Kind::CharacterDevice(_) => "character device",
        Kind::BlockDevice(_) => "block device",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
    }
}

/// `-rwxr-xr-x`, as `ls -l` shows it.
pub(crate) fn mode_string(attributes: &Attributes) -> String {
    let kind = match attributes.kind {
        Kind::File | Kind::HardLink => '-',
        Kind::Folder => 'd',
        Kind::Symlink => 'l',
        Kind::CharacterDevice(_) => 'c',
        Kind::BlockDevice(_) => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
    };
    let mode = attributes.mode;
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time in the calendar of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Calendar {
    year: i64,
    month: i64,
    day: i64,
    second: i64,
    nanosecond: u32,
}

impl Calendar {
    /// Proleptic Gregorian calendar; the arithmetic counts years from March, so that the leap day is a year's last one.
    pub(crate) fn of(time: Time) -> Self {
        const DAYS_IN_400_YEARS: i64 = 146_097;
        // Days from 0000-03-01 to 1970-01-01.
        const TO_1970: i64 = 719_468;
        let days = time.seconds.div_euclid(86_400) + TO_1970;
        let (era, day) = (days.div_euclid(DAYS_IN_400_YEARS), days.rem_euclid(DAYS_IN_400_YEARS));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        Self {
            year: era * 400 + year + i64::from(month >= 10),
            month: if month < 10 { month + 3 } else { month - 9 },
            day: day - (153 * month + 2) / 5 + 1,
            second: time.seconds.rem_euclid(86_400),
            nanosecond: time.nanoseconds,
        }
    }

    fn date(self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// `2026-11-20 12:34`
    pub(crate) fn minutes(self) -> String {
        format!("{} {:02}:{:02}", self.date(), self.second / 3600, self.second / 60 % 60)
    }

    /// `2026-11-20 12:34:56.123456789 UTC`
    pub(crate) fn nanoseconds(self) -> String {
        format!("{}:{:02}.{:09} UTC", self.minutes(), self.second % 60, self.nanosecond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_agree_with_the_date_command() {
        for seconds in [
            0,
            -1,
            951_782_399,
            951_782_400,
            951_868_800,
            4_102_444_799,
            -2_208_988_801,
            -62_135_596_800,
            253_402_300_799,
        ] {
            let output = std::process::Command::new("date")
                .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%d %H:%M:%S.%N UTC"])
                .output()
                .unwrap();
            let expected = String::from_utf8(output.stdout).unwrap();
            assert_eq!(Calendar::of(Time { seconds, nanoseconds: 0 }).nanoseconds(), expected.trim());
        }
    }

    #[test]
    fn modes_look_as_in_ls() {
        let attributes = |kind, mode| Attributes {
            node: tarnfs_tree::Node::ROOT,
            kind,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            blocks: 0,
            mtime: Time::default(),
            atime: Time::default(),
            ctime: Time::default(),
        };
        assert_eq!(mode_string(&attributes(Kind::File, 0o4755)), "-rwsr-xr-x");
        assert_eq!(mode_string(&attributes(Kind::Folder, 0o1776)), "drwxrwxrwT");
        assert_eq!(mode_string(&attributes(Kind::Fifo, 0o2640)), "prw-r-S---");
    }
}
