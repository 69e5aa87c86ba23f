//! How much of what global headers say all entries may have.

/// What all entries together may still get from global headers, in bytes. An entry takes 512 bytes, which pack to
/// almost nothing, and what it gets stands in the index for each.
#[derive(Debug)]
pub(super) struct Inheritance {
    left: u64,
    /// Byte of the stream at which the last entry was.
    at: u64,
}

impl Default for Inheritance {
    fn default() -> Self {
        /// What any archive may have more than it has bytes.
        const LEAST: u64 = 64 << 10;
        Self { left: LEAST, at: 0 }
    }
}

impl Inheritance {
    /// An entry at byte `at` of the stream gets so many bytes; false if that is too much.
    pub(super) fn take(&mut self, at: u64, bytes: usize) -> bool {
        /// Bytes of an entry that count. Most of a long one may be zeros or holes.
        const MOST_OF_ONE: u64 = 8 << 10;
        let passed = at.saturating_sub(self.at).min(MOST_OF_ONE);
        self.at = at;
        let there = self.left.saturating_add(passed);
        let left = there.checked_sub(bytes as u64);
        self.left = left.unwrap_or(there);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tarnfs_source::{Cancel, MemorySource};

    use crate::tar::Tar;
    use crate::{Event, Options, ReadForwards as _, SourceStream};

    fn part(name: &str, typeflag: u8, content: &[u8]) -> Vec<u8> {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..136].copy_from_slice(format!("0000644\x000000000\x000000000\0{:011o}\0", content.len()).as_bytes());
        block[136..148].copy_from_slice(b"00000000000\0");
        block[148..156].fill(b' ');
        block[156] = typeflag;
        block[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut bytes = [&block[..], content].concat();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    fn record(key: &str, value: &str) -> String {
        let rest = format!(" {key}={value}\n");
        let length =
            (rest.len()..rest.len() + 9).find(|length| length.to_string().len() + rest.len() == *length).unwrap();
        format!("{length}{rest}")
    }

    /// How many of the files have attributes, and what is told to be wrong.
    fn with_xattrs(archive: &[Vec<u8>]) -> (usize, Vec<String>) {
        let source = Arc::new(MemorySource::new(archive.concat(), "an archive"));
        let (mut count, mut wrong) = (0, Vec::new());
        let mut stream = SourceStream::new(source, Cancel::default());
        Tar.read(&mut stream, &Options::default(), &mut |event, _| {
            match event {
                Event::Entry(entry) => count += usize::from(!entry.xattrs.is_empty()),
                Event::Damage(damage) => wrong.push(damage.what),
                _ => {}
            }
            Ok(())
        })
        .unwrap();
        (count, wrong)
    }

    /// Each entry has what a global header says, in 512 bytes.
    #[test]
    fn entries_get_no_more_from_a_global_header_than_an_archive_has_bytes() {
        let global = |text: &str| part("global", b'g', text.as_bytes());
        let files = |count: usize, length: usize| vec![part("f", b'0', &vec![0; length]); count];
        let long = record("SCHILY.xattr.user.a", &"v".repeat(4000));
        let (count, wrong) = with_xattrs(&[vec![global(&long)], files(1000, 0)].concat());
        assert!((10..200).contains(&count), "{count}");
        assert!(wrong.len() == 1 && wrong[0].contains("too much"), "{wrong:?}");
        // It is told once, and files that hold something have it all.
        let twice = [vec![global(&long)], files(100, 0), vec![global(&long)], files(100, 0)].concat();
        assert_eq!(with_xattrs(&twice).1.len(), 1);
        assert_eq!(with_xattrs(&[vec![global(&long)], files(200, 5000)].concat()), (200, vec![]));
        let short = record("SCHILY.xattr.user.a", &"v".repeat(400));
        assert_eq!(with_xattrs(&[vec![global(&short)], files(1000, 0)].concat()), (1000, vec![]));
        // Each attribute takes more than its name.
        let many: String = (0..300).map(|number| record(&format!("SCHILY.xattr.{number}"), "")).collect();
        let (count, wrong) = with_xattrs(&[vec![global(&many)], files(3, 0)].concat());
        assert!(count == 0 && wrong.len() == 1, "{count} {wrong:?}");
    }
}
