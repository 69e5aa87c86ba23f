//! Archives made of random headers, some of them damaged: the names that GNU tar lists are the names that are told.
//!
//! Intended differences, each passed over below where it shows:
//!
//! - GNU tar ends at a lone zero block at the start, and at two zero blocks while it searches for the next header;
//!   tarnfs goes on there, as such zeros may be those of a damaged file.
//! - An entry whose size may have been in a record that cannot be read is left out; GNU tar takes the header's size.
//! - An empty value takes a record away (POSIX); GNU tar calls it malformed for numbers and believes it for names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::process::Command;

use common::{Block, member, padded, pax, try_read};
use tarnfs_format::Options;

/// xorshift: the same archives in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        match self.below(4) {
            // What looks like an entry to a reader that is out of step.
            0 => Block::new("phantom", b'0').ustar().done().repeat(4)[..length].to_vec(),
            1 => vec![0; length],
            _ => std::iter::repeat_with(|| self.of(b"abc")).take(length).collect(),
        }
    }

    fn dialect(&mut self, block: &mut Block) {
        match self.below(3) {
            0 => block.ustar(),
            1 => block.gnu(),
            _ => block,
        };
    }

    fn file(&mut self, name: &str) -> Vec<u8> {
        let mut block = Block::new(name, self.of(&[b'0', 0, b'7', b'Z']));
        self.dialect(&mut block);
        let length = self.of(&[0, 0, 1, 511, 512, 513, 1500]);
        member(&mut block, &self.bytes(length))
    }

    /// One header with all that belongs to it.
    fn part(&mut self, number: usize) -> Vec<u8> {
        let name = |at: &str| format!("{at}{number}");
        match self.below(20) {
            0..6 => self.file(&name("file")),
            6..8 => {
                let mut block = Block::new(&name("other"), self.of(b"12346"));
                self.dialect(&mut block);
                block.put(157, b"target").done()
            }
            8 => Block::new(&name("folder"), b'5').ustar().done(),
            9..12 => {
                let (path, size) = (name("pax"), self.of(&[0_usize, 1, 512, 1024]));
                let written = size.to_string();
                let all = [
                    ("path", path.as_bytes()),
                    ("mtime", b"1.5"),
                    ("uid", b"frog"),
                    ("comment", &[b'c'; 600]),
                    ("linkpath", b"to"),
                ];
                let mut records: Vec<_> = (0..self.below(4)).map(|_| self.of(&all)).collect();
                if self.below(2) == 0 {
                    return [pax(b'x', &records), self.file(&name("file"))].concat();
                }
                // The header's own size is another one.
                records.push(("size", written.as_bytes()));
                let header = Block::new(&name("file"), b'0').ustar().size(self.of(&[0, 512])).done();
                [pax(self.of(b"xX"), &records), header, padded(&self.bytes(size))].concat()
            }
            12 => pax(b'g', &[self.of(&[("mtime", &b"9"[..]), ("uname", b"g"), ("comment", b"c")])]),
            13..16 => {
                let long = [name("long").repeat(self.of(&[1, 40])).as_bytes(), b"\0"].concat();
                let header = member(Block::new("././@LongLink", self.of(b"LLK")).gnu(), &long);
                [header, self.file(&name("file"))].concat()
            }
            16 => b"damage, not a header".repeat(100)[..512 * (1 + self.below(3))].to_vec(),
            17 => {
                let size: &[u8] =
                    self.of(&[&b"\x80\0\0\0\0\0\0\0\0\0\0\x09"[..], b"      12 \0\0\0", b"frog", &[0xff; 12]]);
                let mut block = Block::new(&name("file"), b'0');
                [block.gnu().put(124, size).done(), padded(b"123456789")].concat()
            }
            18 => member(Block::new(&name("dump/"), b'D').gnu(), b"Yfile\0\0"),
            _ => vec![0; 512 * self.of(&[1, 2])],
        }
    }
}

#[test]
fn gnu_tar_lists_the_same_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut compared = 0;
    for case in 0..1500 {
        let parts = 1 + random.below(8);
        let mut archive: Vec<u8> = (0..parts).flat_map(|number| random.part(number)).collect();
        if random.below(3) == 0 {
            let at = random.below(archive.len());
            archive[at] = random.of(b"a0\0 ");
        }
        archive.resize(archive.len() + 1024, 0);
        std::fs::write(&path, &archive).unwrap();
        let ignore_zeros = random.below(2) == 0;
        let mut tar = Command::new("tar");
        tar.args(["--quoting-style=escape", "-tf"]).arg(&path).env("LC_ALL", "C");
        if ignore_zeros {
            tar.arg("-i");
        }
        let output = tar.output().unwrap();
        let warned = String::from_utf8_lossy(&output.stderr).into_owned();
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = try_read(&archive, &Options { ignore_zeros, ..Options::default() }).unwrap_or_default();
        let says = |what: &str| told.damage.iter().any(|(_, damage)| damage.contains(what));
        if says("size is in doubt") {
            continue;
        }
        let paths: Vec<_> = told.paths().iter().map(|path| path.replace('\\', "\\\\")).collect();
        let listed: Vec<_> = listed.lines().collect();
        let goes_on = says("before the first header") || says("no valid header");
        let expected = if goes_on && !ignore_zeros { &paths[..listed.len().min(paths.len())] } else { &paths[..] };
        assert_eq!(expected, listed, "case {case}, {} bytes\n{warned}\n{:?}", archive.len(), told.damage);
        compared += 1;
    }
    assert!(compared > 1200, "{compared}");
}
