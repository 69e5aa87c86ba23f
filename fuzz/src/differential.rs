//! The same bytes as Python's tarfile reads them: every member that it lists is told, with the same kind, the same
//! size, and its content at the same place.
//!
//! Intended differences, each passed over below where it shows:
//!
//! - Behind damage Python ends; tarnfs searches for the next header. Only what lies before the first damage is
//!   compared.
//! - Python believes sizes that do not fit into the archive, and what a damaged pax record says in part.
//! - Python lists headers of types that it does not know as files under their letter, such as labels (`V`),
//!   continuations (`M`) and Solaris' access lists (`A`); in tarnfs they are no members.
//! - Global headers add up in Python; each replaces the one before it in GNU tar and here.
//! - A hard link with a size has content in tarnfs if no header follows it; in Python it never has.
//! - Of several extended headers before one entry, Python takes what each of them says; GNU tar and tarnfs the last one
//!   of a kind.
//! - Python believes the real size of a sparse file without its map; here it has the size that is stored.
//! - The contents of a sparse file begin behind its map here; Python counts the map in one dialect. Sparse files are
//!   compared by name.
//! - Python takes the times in GNU's headers, which stand where ustar has its prefix, for a part of the path.
//! - Python takes a prefix of the path also from headers without the magic of ustar.
//! - A folder of which the header says a size has content for Python only in an incremental dump.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use tarnfs_format::{Event, Kind, ReadForwards, SourceStream};
use tarnfs_source::Cancel;

/// Reads archives from its input, each behind its length in a line, and writes what it lists, each on a line.
const SCRIPT: &str = r"
import io, sys, tarfile
while True:
    line = sys.stdin.buffer.readline()
    if not line: break
    data = sys.stdin.buffer.read(int(line))
    out = []
    try:
        archive = tarfile.open(fileobj=io.BytesIO(data), mode='r:', errors='surrogateescape', encoding='utf-8')
        while True:
            member = archive.next()
            if member is None: break
            name = member.name.encode('utf-8', 'surrogateescape')
            out.append('%d %d %d %s %d %s' % (member.offset, member.offset_data, member.size, member.type.hex(), member.sparse is not None, name.hex()))
    except Exception as error:
        out.append('error %r' % error)
    sys.stdout.write('\n'.join(out).replace('\r', ' ') + '\n.\n'); sys.stdout.flush()
";

/// Python, kept for the next archive.
struct Python {
    child: Child,
    output: BufReader<ChildStdout>,
}

thread_local! {
    static PYTHON: RefCell<Option<Python>> = const { RefCell::new(None) };
}

impl Python {
    fn start() -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let output = BufReader::new(child.stdout.take()?);
        Some(Self { child, output })
    }

    fn list(&mut self, archive: &[u8]) -> Option<Vec<String>> {
        let input = self.child.stdin.as_mut()?;
        writeln!(input, "{}", archive.len()).ok()?;
        input.write_all(archive).ok()?;
        input.flush().ok()?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).ok().filter(|&read| read > 0)?;
            let line = line.trim_end().to_owned();
            if line == "." {
                return Some(lines);
            }
            lines.push(line);
        }
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// One member as both can tell it: where its header, its content and its length are, its type, whether it has a map,
/// its path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    data: u64,
    size: u64,
    is_file: bool,
    path: Vec<u8>,
}

/// Compares what tarnfs and Python tell of `data`, whose checksums are put right first so that changed headers are
/// read, too. True if something was there to compare.
pub fn differential(data: &[u8]) -> bool {
    let archive = with_checksums(data);
    let Some(listed) = PYTHON.with_borrow_mut(|python| {
        if python.is_none() {
            *python = Python::start();
        }
        let listed = python.as_mut()?.list(&archive);
        if listed.is_none() {
            // It is gone, for want of memory perhaps; the next archive gets another one.
            *python = None;
        }
        listed
    }) else {
        return false;
    };
    let mut told = Vec::new();
    let mut damage = u64::MAX;
    let mut stream = SourceStream::new(super::source(&archive), Cancel::default());
    let read = tarnfs_format::tar::Tar.read(&mut stream, &tarnfs_format::Options::default(), &mut |event, _| {
        match event {
            Event::Entry(entry) => told.push(*entry),
            Event::Damage(found) => damage = damage.min(found.offset),
            _ => {}
        }
        Ok(())
    });
    // Where one side ends the other may go on: what both have is the same.
    if read.is_err() || has_unlike_headers(&archive) {
        return false;
    }
    let has_holes = archive.windows(11).any(|bytes| bytes == b"GNU.sparse." || bytes == b"SCHILY.real");
    let mut compared = false;
    let theirs = listed.iter().map_while(|line| parse(line));
    for (ours, (header, theirs)) in told.iter().zip(theirs) {
        if header >= damage || ours.header >= damage || ours.kind == Kind::HardLink && ours.body.size > 0 {
            break;
        }
        let Some(theirs) = theirs else { break };
        let path = components(&ours.path);
        assert_eq!(path, components(&theirs.path), "at {header}: {ours:?} {theirs:?}");
        let is_file = ours.kind == Kind::File;
        assert_eq!(is_file, theirs.is_file, "at {header}: {ours:?} {theirs:?}");
        if is_file && ours.body.extents.is_none() && !has_holes {
            assert_eq!(
                (ours.body.offset, ours.body.size),
                (theirs.data, theirs.size),
                "at {header}: {ours:?} {theirs:?}"
            );
        }
        compared = true;
    }
    compared
}

/// A line of Python's; `None` inside for a member that is compared no further.
fn parse(line: &str) -> Option<(u64, Option<Member>)> {
    let mut fields = line.split(' ');
    let header = fields.next()?.parse().ok()?;
    let (data, size) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok());
    let kind = fields.next()?;
    let is_sparse = fields.next()? == "1";
    let path = from_hex(fields.next().unwrap_or_default());
    // The types of POSIX that are no files: links, devices, folders, fifos, and folders of dumps.
    let is_file = !["31", "32", "33", "34", "35", "36", "44"].contains(&kind);
    let member = size.filter(|_| !is_sparse).map(|size| Member { data, size, is_file, path });
    Some((header, member))
}

fn from_hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks_exact(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let limits = tarnfs_source::Limits::default();
    tarnfs_format::name::components(path, &limits).iter().map(<[u8]>::to_vec).collect()
}

/// Headers about which the two differ on purpose: see the list above.
fn has_unlike_headers(archive: &[u8]) -> bool {
    let is_header = |block: &[u8]| block.len() == 512 && sum(block) == stated(block);
    let mut extended = 0;
    archive.chunks(512).any(|block| {
        if !is_header(block) {
            return false;
        }
        let kind = block[156];
        extended = if matches!(kind, b'x' | b'X' | b'L' | b'K') { extended + 1 } else { 0 };
        let is_known = matches!(kind, 0 | b'0'..=b'7' | b'x' | b'L' | b'K' | b'D' | b'S');
        let has_prefix_of_v7 = &block[257..262] != b"ustar" && block[345] != 0;
        let has_times = &block[257..265] == b"ustar  \0" && block[345] != 0;
        !is_known
            || has_times
            || has_prefix_of_v7
            || extended > 1
            || kind == b'5' && block[124..136].iter().any(|byte| (b'1'..=b'7').contains(byte))
    })
}

fn sum(block: &[u8]) -> u64 {
    block.iter().enumerate().map(|(at, &byte)| if (148..156).contains(&at) { 32 } else { u64::from(byte) }).sum()
}

fn stated(block: &[u8]) -> u64 {
    let digits: Vec<u8> = block[148..156].iter().copied().filter(|byte| (b'0'..=b'7').contains(byte)).collect();
    u64::from_str_radix(std::str::from_utf8(&digits).unwrap_or_default(), 8).unwrap_or(u64::MAX)
}

/// `data` with the checksum of each block put right that has the magic of ustar or GNU: else every change would only
/// break a header.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut archive = data.to_vec();
    for block in archive.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            let digits = format!("{:06o}\0 ", sum(block));
            block[148..156].copy_from_slice(digits.as_bytes());
        }
    }
    archive
}
