//! Numbers that look like chance and are the same each time, and files made of them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tarnfs_source::Cancel;

/// A row of numbers (splitmix64): what is made and chosen with it is the same for each seed.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// The row of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// One between 0 and 1.
    pub fn part(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// So many of `all`, in the order of chance, none twice; all of them if there are not so many.
    pub fn some_of<T: Clone>(&mut self, all: &[T], most: usize) -> Vec<T> {
        let mut left: Vec<usize> = (0..all.len()).collect();
        let wanted = most.min(left.len());
        for at in 0..wanted {
            let other = at + self.below((left.len() - at) as u64) as usize;
            left.swap(at, other);
        }
        left[..wanted].iter().map(|&at| all[at].clone()).collect()
    }

    /// Text that compresses as source code and prose do, to about a third.
    pub fn text(&mut self, length: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(length + 32);
        let mut line = 0;
        while text.len() < length {
            // Few words are used often, as in any language.
            let rank = (self.part().powi(3) * WORDS_IN_USE) as u64;
            let start = text.len();
            word(rank, &mut text);
            if self.below(8) == 0 {
                text.extend(format!("({})", self.below(1000)).bytes());
            }
            line += text.len() - start + 1;
            if line > 72 {
                text.push(b'\n');
                let indent = self.below(4) as usize * 4;
                text.resize(text.len() + indent, b' ');
                line = indent;
            } else {
                text.push(b' ');
            }
        }
        text.truncate(length);
        text
    }

    /// Bytes of programs and pictures: some of it again and again, most of it never.
    pub fn binary(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 64);
        while bytes.len() < length {
            match self.below(4) {
                0 if bytes.len() > 64 => {
                    let from = self.below(bytes.len() as u64 - 64) as usize;
                    bytes.extend_from_within(from..from + 64);
                }
                1 => bytes.extend([0; 16]),
                _ => bytes.extend(self.number().to_le_bytes()),
            }
        }
        bytes.truncate(length);
        bytes
    }
}

pub(crate) const WORDS_IN_USE: f64 = 6000.0;

/// The word of that rank; those that are used often are short.
pub(crate) fn word(rank: u64, text: &mut Vec<u8>) {
    let mut letters = Seeded::new(rank);
    for _ in 0..=(2 + rank.max(1).ilog2() / 2) {
        let syllable = b"taneriosulmadicopegabuvefihok";
        let at = letters.below(syllable.len() as u64 - 1) as usize;
        text.extend(&syllable[at..at + 2]);
    }
}

/// Makes a folder of about so many bytes: many small texts in folders in folders, some binary files, few that are
/// large, and links. The same for each seed.
pub fn make_tree(folder: &Path, bytes: u64, seed: u64, cancel: &Cancel) -> io::Result<()> {
    /// Files of a folder, on average.
    const FILES: u64 = 20;
    let mut chance = Seeded::new(seed);
    fs::create_dir_all(folder)?;
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    let (mut made, mut number) = (0, 0_u64);
    while made < bytes {
        cancel.check()?;
        if number % FILES == FILES - 1 {
            let parent = folders[chance.below(folders.len() as u64) as usize].clone();
            let below = parent.join(format!("folder{number}"));
            fs::create_dir(&below)?;
            folders.push(below);
        }
        let parent = folders[folders.len() - 1 - chance.below(folders.len().min(3) as u64) as usize].clone();
        number += 1;
        // Sizes as in source trees: most are of few KiB, one in some hundred is as large as hundreds of these.
        let usual = 4096.0 * 2_f64.powf((chance.part() + chance.part() + chance.part() - 1.5) * 4.0);
        let is_large = chance.below(300) == 0;
        let size = if is_large { usual * 200.0 } else { usual }.min((bytes - made) as f64 + 1.0) as usize;
        let (name, content) = match chance.below(10) {
            0 => (format!("data{number}.bin"), chance.binary(size)),
            _ => (format!("text{number}.txt"), chance.text(size)),
        };
        let path = parent.join(&name);
        let mut file = BufWriter::new(File::create(&path)?);
        file.write_all(&content)?;
        file.flush()?;
        made += size as u64;
        match chance.below(50) {
            0 => std::os::unix::fs::symlink(&name, parent.join(format!("link{number}")))?,
            1 => fs::hard_link(&path, parent.join(format!("same{number}")))?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_the_same_for_each_seed() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, seed| {
            let path = folder.path().join(name);
            make_tree(&path, 3 << 20, seed, &Cancel::default()).unwrap();
            let sums = std::process::Command::new("sh")
                .args(["-c", "find . -type f -exec md5sum {} + | sort -k 2; find . -type l | sort"])
                .current_dir(path)
                .output()
                .unwrap();
            String::from_utf8(sums.stdout).unwrap()
        };
        let (one, same, other) = (make("one", 1), make("same", 1), make("other", 2));
        assert!(one.lines().count() > 50 && one.contains("link") && one.contains(".bin"), "{one}");
        assert!(one == same && one != other);
        let stopped = Cancel::default();
        stopped.cancel();
        assert!(make_tree(&folder.path().join("stopped"), 1 << 30, 1, &stopped).is_err());
    }

    #[test]
    fn some_are_chosen_once_each() {
        let all: Vec<u32> = (0..100).collect();
        let mut some = Seeded::new(7).some_of(&all, 60);
        assert_eq!(some, Seeded::new(7).some_of(&all, 60));
        some.sort_unstable();
        some.dedup();
        assert_eq!(some.len(), 60);
        assert_eq!(Seeded::new(7).some_of(&all, 1000).len(), 100);
        assert!(Seeded::new(7).some_of::<u32>(&[], 3).is_empty());
    }

    #[test]
    fn text_compresses_as_text() {
        let text = Seeded::new(3).text(100_000);
        assert_eq!(text.len(), 100_000);
        let mut gzip = std::process::Command::new("gzip");
        gzip.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut gzip = gzip.spawn().unwrap();
        let mut stdin = gzip.stdin.take().unwrap();
        std::thread::spawn(move || stdin.write_all(&text).unwrap());
        let packed = gzip.wait_with_output().unwrap().stdout.len();
        assert!((15_000..60_000).contains(&packed), "{packed}");
    }
}
