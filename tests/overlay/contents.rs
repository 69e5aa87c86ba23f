//! One file, written in every way that there is, beside a model in memory (as `fsx` does).

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use crate::support::{Mounted, Numbers, Scratch, can_mount, can_pass_through, statistics};

/// The longest that the file becomes.
const LONGEST: u64 = 300_000;

/// Bytes of a file that are mapped into memory, from its beginning.
struct Map {
    start: *mut libc::c_void,
    length: usize,
}

impl Map {
    fn new(file: &File, length: u64) -> Self {
        let length = usize::try_from(length).unwrap();
        // SAFETY: a new mapping, which nobody else has. The file is not cut while it is there.
        let start = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { start, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: it was mapped to read and write, and is so until this is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.length) }
    }

    fn sync(&self) {
        // SAFETY: it is mapped.
        assert_eq!(unsafe { libc::msync(self.start, self.length, libc::MS_SYNC) }, 0);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is mapped, and not used any more.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// The file, and what must be in it.
struct Twin<'a> {
    path: &'a Path,
    file: File,
    /// Open to read it since it was opened last, perhaps from before something was written.
    reader: File,
    model: Vec<u8>,
    numbers: Numbers,
}

impl<'a> Twin<'a> {
    fn new(path: &'a Path, seed: u64) -> Self {
        let reader = File::open(path).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        Self { path, file, reader, model: std::fs::read(path).unwrap(), numbers: Numbers::new(seed) }
    }

    fn reopen(&mut self) {
        if self.numbers.below(2) == 0 {
            // Nobody has it open in between.
            let other = File::open("/dev/null").unwrap();
            self.reader = other.try_clone().unwrap();
            self.file = other;
        }
        // One that goes past what the kernel keeps.
        let flags = if self.numbers.below(4) == 0 { libc::O_DSYNC } else { 0 };
        let open = |path| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap();
        if self.numbers.below(2) == 0 {
            self.reader = File::open(self.path).unwrap();
            self.file = open(self.path);
        } else {
            self.file = open(self.path);
            self.reader = File::open(self.path).unwrap();
        }
    }

    fn length(&self) -> u64 {
        self.model.len() as u64
    }

    /// A place, and how many bytes from there on, within `limit`.
    fn range(&mut self, limit: u64, most: u64) -> (usize, usize) {
        let at = self.numbers.below(limit.max(1));
        let count = 1 + self.numbers.below(most.min(limit.saturating_sub(at)).max(1));
        (at as usize, count as usize)
    }

    fn grow(&mut self, to: usize) {
        if self.model.len() < to {
            self.model.resize(to, 0);
        }
    }

    fn step(&mut self, step: u64) {
        let value = (step % 251) as u8 + 1;
        match self.numbers.below(20) {
            0..=4 => {
                let (at, count) = self.range(LONGEST - 70_000, 70_000);
                let bytes: Vec<u8> = (0..count).map(|byte| value.wrapping_add(byte as u8)).collect();
                self.file.write_all_at(&bytes, at as u64).unwrap();
                self.grow(at + count);
                self.model[at..at + count].copy_from_slice(&bytes);
            }
            5..=8 if !self.model.is_empty() => {
                let (at, count) = self.range(self.length(), 30_000);
                let count = count.min(self.model.len() - at);
                let before = self.file.metadata().unwrap();
                let mut map = Map::new(&self.file, self.length());
                map.bytes()[at..at + count].fill(value);
                self.model[at..at + count].fill(value);
                assert_eq!(map.bytes(), self.model, "through the mapping");
                if self.numbers.below(3) == 0 {
                    map.sync();
                    let after = self.file.metadata().unwrap();
                    assert!((after.mtime(), after.mtime_nsec()) >= (before.mtime(), before.mtime_nsec()));
                }
            }
            9 | 10 => {
                let length = self.numbers.below(LONGEST);
                self.file.set_len(length).unwrap();
                self.model.resize(length as usize, 0);
            }
            11 => {
                let length = self.numbers.below(self.length() + 1);
                // By its name.
                OpenOptions::new().write(true).open(self.path).unwrap().set_len(length).unwrap();
                self.model.truncate(length as usize);
            }
            12 | 13 if !self.model.is_empty() => {
                let (at, count) = self.range(self.length(), 40_000);
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, flags, at as u64, count as u64).unwrap();
                let end = (at + count).min(self.model.len());
                self.model[at..end].fill(0);
            }
            14 => {
                let (at, count) = self.range(LONGEST - 40_000, 40_000);
                let zeroes = fallocate(&self.file, FallocateFlags::ZERO_RANGE, at as u64, count as u64);
                // Not on every file system.
                if zeroes.is_ok() {
                    self.grow(at + count);
                    self.model[at..at + count].fill(0);
                }
            }
            15 if self.model.len() > 2 => {
                let (from, count) = self.range(self.length() / 2, 30_000);
                let to = from + count + self.numbers.below(50_000) as usize;
                let count = count.min(self.model.len() - from);
                let mut done = 0;
                while done < count {
                    let (mut from, mut to) = ((from + done) as u64, (to + done) as u64);
                    let copied =
                        copy_file_range(&self.reader, Some(&mut from), &self.file, Some(&mut to), count - done);
                    done += copied.unwrap();
                }
                let bytes = self.model[from..from + count].to_vec();
                self.grow(to + count);
                self.model[to..to + count].copy_from_slice(&bytes);
            }
            16 => {
                let mut appending = OpenOptions::new().append(true).open(self.path).unwrap();
                let bytes = vec![value; 1 + self.numbers.below(5000) as usize];
                std::io::Write::write_all(&mut appending, &bytes).unwrap();
                self.model.extend(bytes);
            }
            17 => self.reopen(),
            18 => self.file.sync_all().unwrap(),
            _ => {
                // Data behind the last byte there is none.
                let end = seek(&self.file, SeekFrom::Data(self.length()));
                assert_eq!(end, Err(Errno::NXIO));
            }
        }
        // Who reads, by whichever descriptor, sees it.
        if !self.model.is_empty() {
            let (at, count) = self.range(self.length(), 20_000);
            let count = count.min(self.model.len() - at);
            let mut read = vec![0; count];
            let by = if step.is_multiple_of(2) { &self.reader } else { &self.file };
            by.read_exact_at(&mut read, at as u64).unwrap();
            assert!(read == self.model[at..at + count], "bytes {at} to {}", at + count);
        }
        for found in [self.file.metadata().unwrap(), std::fs::metadata(self.path).unwrap()] {
            assert_eq!(found.len(), self.length());
        }
    }
}

/// > What is written to a file is read back, however it was written: by `write`, through a mapping, by cutting it, with
/// > holes, by copying.
///
/// `TARNFS_FSX` says how many operations, of each of two files.
#[test]
fn what_is_written_in_any_way_is_read() {
    if !can_mount() {
        return;
    }
    let count = std::env::var("TARNFS_FSX").ok().and_then(|count| count.parse().ok()).unwrap_or(1500);
    let seed = std::env::var("TARNFS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for source in ["a.tar", "tree"] {
        let scratch = Scratch::new();
        scratch.shell("mkdir tree; seq 30000 > tree/below; tar -C tree -cf a.tar .");
        let overlay = scratch.path("overlay").display().to_string();
        let mut mounted = Some(Mounted::new(&scratch, scratch.path(source), &["-w", &overlay]));
        std::fs::write(mounted.as_ref().unwrap().path("new"), "new\n").unwrap();
        for (name, seed) in [("below", seed), ("new", seed + 1)] {
            let path = mounted.as_ref().unwrap().path(name);
            let mut twin = Twin::new(&path, seed);
            for step in 0..count {
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| twin.step(step)));
                assert!(done.is_ok(), "{source}: {name}: seed {seed}, step {step}");
                if step % 100 == 99 {
                    assert!(std::fs::read(&path).unwrap() == twin.model, "{source}: {name}: seed {seed}, step {step}");
                }
            }
            let model = twin.model;
            drop((twin.file, twin.reader));
            // What is below stays as it is.
            assert_eq!(scratch.shell("tail -n 1 tree/below"), "30000\n");
            mounted.take().unwrap().unmount();
            mounted = Some(Mounted::new(&scratch, scratch.path(source), &["-w", &overlay]));
            let again = std::fs::read(mounted.as_ref().unwrap().path(name)).unwrap();
            assert!(again == model, "{source}: {name}: seed {seed}, mounted again");
        }
        mounted.take().unwrap().unmount();
    }
}

/// > What is known of a file is true also where the kernel writes it itself, through a mapping.
#[test]
fn the_time_of_a_file_that_is_written_through_a_mapping_is_seen() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo x > tree/x; tar -C tree -cf a.tar .");
    let overlay = scratch.path("overlay").display().to_string();
    let mounted = Mounted::new(&scratch, scratch.path("a.tar"), &["-w", &overlay]);
    let path = mounted.path("file");
    std::fs::write(&path, vec![b'a'; 10_000]).unwrap();
    scratch.shell(&format!("touch -d '2001-01-01' {}", path.display()));
    let time = || std::fs::metadata(&path).unwrap().mtime();
    let before = time();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut map = Map::new(&file, 10_000);
    assert_eq!(time(), before);
    map.bytes()[5000] = b'b';
    map.sync();
    drop((map, file));
    assert!(time() > before);
    assert_eq!(std::fs::read(&path).unwrap()[5000], b'b');
    mounted.unmount();
}

/// The kernel itself reads and writes what lies in the overlay: a file that was made, one that was below and was
/// copied, and both when they are mounted again. Without that, all of it is right, and slow.
#[test]
fn the_kernel_reads_and_writes_files_of_the_overlay_itself() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    if !can_pass_through(&scratch) {
        return;
    }
    scratch.shell("mkdir tree; seq 30000 > tree/below; tar -C tree -cf a.tar .");
    let overlay = scratch.path("overlay").display().to_string();
    let bytes: Vec<u8> = (0..1 << 18_u32).flat_map(u32::to_le_bytes).collect();
    for source in ["a.tar", "tree"] {
        let overlay = format!("{overlay}-{source}");
        let mounted = Mounted::new(&scratch, scratch.path(source), &["-d", "2", "-w", &overlay]);
        // By the call that makes it.
        let made = File::options().read(true).write(true).create_new(true).open(mounted.path("made")).unwrap();
        // What is below is read, and this write copied, by us.
        std::fs::OpenOptions::new().write(true).open(mounted.path("below")).unwrap().write_all_at(b"x", 0).unwrap();
        let open = |name: &str| OpenOptions::new().read(true).write(true).open(mounted.path(name)).unwrap();
        let check = |what: &str, mount: &Path, file: &File| {
            let before = statistics(mount);
            file.write_all_at(&bytes, 0).unwrap();
            let mut read = vec![0; bytes.len()];
            file.read_exact_at(&mut read, 0).unwrap();
            assert!(read == bytes, "{source}: {what}");
            let after = statistics(mount);
            for counted in ["read", "write"] {
                let [before, after] = [&before, &after].map(|all| &all["requests"][counted]);
                assert!(after.is_u64() && before == after, "{source}: {what}: {counted}: {before}, {after}");
            }
        };
        check("made", &mounted.at, &made);
        drop(made);
        check("made, and opened again", &mounted.at, &open("made"));
        check("copied", &mounted.at, &open("below"));
        mounted.unmount();
        let mounted = Mounted::new(&scratch, scratch.path(source), &["-d", "2", "-w", &overlay]);
        for name in ["made", "below"] {
            let file = OpenOptions::new().read(true).write(true).open(mounted.path(name)).unwrap();
            check("mounted again", &mounted.at, &file);
        }
        mounted.unmount();
    }
}

/// > Programs that were written to a mount are run there, also while the sandbox is on.
#[test]
fn what_was_written_can_be_run() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    // Else they are run as any file of a mount is. It says so.
    can_pass_through(&scratch);
    scratch.shell("mkdir tree; echo x > tree/x; tar -C tree -cf a.tar .");
    for source in ["a.tar", "tree"] {
        let overlay = scratch.path(format!("overlay-{source}")).display().to_string();
        let mounted = Mounted::new(&scratch, scratch.path(source), &["-w", &overlay]);
        let run = format!(
            "cd {}; cp /bin/true . && chmod 755 true && ./true && cp true other && ./other",
            mounted.at.display()
        );
        scratch.shell(&run);
        mounted.unmount();
        let mounted = Mounted::new(&scratch, scratch.path(source), &["-w", &overlay]);
        scratch.shell(&format!("{0}/true && {0}/other", mounted.at.display()));
        mounted.unmount();
    }
}
