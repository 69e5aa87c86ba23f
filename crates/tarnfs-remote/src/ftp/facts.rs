//! What a server of FTP says of files: facts (RFC 3659, 7), or lines as `ls` shows them.

use std::time::{Duration, SystemTime};

use suppaftp::list::{File, ListParser};

use super::connection::{About, bytes};
use crate::backend::MOST_ENTRIES;
use crate::time::of_parts;

/// What stands in a line of facts, and the name behind them. `None` of what is none.
pub(super) fn of_line(line: &str) -> Option<(About, &str)> {
    // A fact may have blanks: the target of a link, in what some servers say.
    let line = line.trim_start();
    let (facts, name) = line.split_once("; ").or_else(|| line.split_once(' '))?;
    let mut about = About { is_folder: false, size: None, modified: None };
    for fact in facts.split(';') {
        let Some((key, value)) = fact.split_once('=') else { continue };
        match key.to_ascii_lowercase().as_str() {
            "type" => about.is_folder = ["dir", "cdir", "pdir"].iter().any(|kind| value.eq_ignore_ascii_case(kind)),
            "size" => about.size = value.parse().ok(),
            "modify" => about.modified = time(value),
            _ => {}
        }
    }
    Some((about, name))
}

/// As in `20260131235959`, in UTC; parts of a second are left out.
fn time(text: &str) -> Option<SystemTime> {
    let digits = text.get(..14).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let part = |from: usize, to: usize| digits.get(from..to)?.parse::<u32>().ok();
    let parts = [part(0, 4)?, part(4, 6)?, part(6, 8)?, part(8, 10)?, part(10, 12)?, part(12, 14)?];
    let nanoseconds = of_parts(parts)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanoseconds).ok()?))
}

/// What stands in a list, and whether it has to be asked what each is: of a link, or where the line does not say it.
pub(super) fn of_list(list: &[u8], has_facts: bool) -> Vec<(Vec<u8>, About, bool)> {
    let lines = list.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines = lines.filter(|line| !line.is_empty()).map(super::connection::letters);
    let found = lines.filter_map(|line| if has_facts { of_facts(&line) } else { of_ls(&line) });
    // One more says that there are too many.
    found.take(MOST_ENTRIES + 1).collect()
}

fn of_facts(line: &str) -> Option<(Vec<u8>, About, bool)> {
    let (about, name) = of_line(line)?;
    let lower = line.get(..line.len() - name.len())?.to_ascii_lowercase();
    if lower.contains("type=cdir") || lower.contains("type=pdir") {
        return None;
    }
    let is_known = lower.contains("type=dir") || (lower.contains("type=file") && about.size.is_some());
    Some((bytes(name), about, !is_known))
}

fn of_ls(line: &str) -> Option<(Vec<u8>, About, bool)> {
    let file: File = ListParser::parse_posix(line).or_else(|_| ListParser::parse_dos(line)).ok()?;
    // Pipes, devices and sockets, which it may take for files.
    if matches!(line.bytes().next(), Some(b'p' | b's' | b'b' | b'c')) {
        return None;
    }
    let is_folder = file.is_directory();
    let size = (!is_folder).then_some(file.size() as u64);
    let about = About { is_folder, size, modified: Some(file.modified()) };
    Some((bytes(file.name()), about, file.is_symlink()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let list =
            b"type=cdir;modify=20260101000000; .\r\ntype=file;size=12;modify=20130524000000.5;perm=r; a b;c\xff\r\n\
                     Type=dir;Modify=20130524000000; d\r\ntype=OS.unix=slink:/x;size=3; l\r\nnonsense\r\n\
                     type=OS.unix=slink:/a b; m n\r\n";
        let found = of_list(list, true);
        let names: Vec<_> = found.iter().map(|(name, about, asks)| (&name[..], about.is_folder, *asks)).collect();
        let links = [(&b"l"[..], false, true), (b"m n", false, true)];
        assert_eq!(names, [&[(&b"a b;c\xff"[..], false, false), (b"d", true, false)][..], &links].concat());
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        assert_eq!(found[0].1, About { is_folder: false, size: Some(12), modified: Some(then) });
        let list = b"total 3\r\ndrwxr-xr-x    2 1 1   4096 May 24 2013 d\r\n-rw-r--r-- 1 0 0 12 May 24 2013 a b\r\n\
                     lrwxrwxrwx 1 0 0 12 May 24 2013 l -> a b\r\nprw-r--r-- 1 0 0 0 May 24 2013 p\r\n";
        let found = of_list(list, false);
        let names: Vec<_> = found.iter().map(|(name, about, asks)| (&name[..], about.is_folder, *asks)).collect();
        assert_eq!(names, [(&b"d"[..], true, false), (b"a b", false, false), (b"l", false, true)]);
        assert_eq!(found[1].1.size, Some(12));
        assert_eq!(time("20260230000000"), time("20260302000000"));
        assert!(time("2026").is_none() && time("2026013123595x").is_none() && of_line("x").is_none());
    }
}
