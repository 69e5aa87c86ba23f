//! Archives that ask for more memory than there is, or expand to far more than they are.
//!
//! `TARNFS_FULL=1 cargo test --release --test bombs -- --nocapture` expands 10 GiB in each codec instead of 1.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it has done")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::foreground::Foreground;
use crate::support::{self, DEFAULT_SIGNALS, Scratch, behind, can_mount, have, run, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// What a bomb may take beyond what a mount of a small archive takes.
const MOST_FOR_A_BOMB: u64 = 256 << 20;

/// What a header may.
const MOST_FOR_A_HEADER: u64 = 128 << 20;

fn is_full() -> bool {
    std::env::var_os("TARNFS_FULL").is_some()
}

/// True if `child` looks at Ctrl-C itself, or has ended.
fn takes_signals(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.map_or(0, |bits| u64::from_str_radix(bits.trim(), 16).unwrap());
    // In the bit mask, signal 1 has bit 0.
    status.contains("State:\tZ") || caught >> (libc::SIGINT - 1) & 1 == 1
}

/// Memory of a mount of a small archive.
fn idle(scratch: &Scratch) -> u64 {
    scratch.shell("echo hello > hello; tar -czf small.tar.gz hello");
    let mount =
        Foreground::new(scratch, &scratch.path("small.tar.gz"), &[]).unwrap_or_else(|refused| panic!("{refused:?}"));
    let idle = mount.peak();
    mount.unmount();
    idle
}

const TOOLS: [(&str, &str); 6] = [
    ("gz", "gzip -9"),
    ("bz2", "bzip2 -9"),
    ("xz", "xz -9"),
    ("zst", "zstd -q -19"),
    ("lz4", "lz4 -q -9"),
    ("lrz", "lrzip -Q -l -T"),
];

#[test]
fn a_bomb_takes_time_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let idle = idle(&scratch);
    let units: u64 = if is_full() { 80 } else { 4 };
    let length = units << 27;
    scratch.shell(&format!(
        "head -c 128M /dev/zero > unit
         python3 -c \"
import tarfile
def header(name, size):
    info = tarfile.TarInfo(name); info.size = size; return info.tobuf(tarfile.GNU_FORMAT)
open('head', 'wb').write(header('zeros', {length}))
open('tail', 'wb').write(header('end', 4) + b'end\\\\n'.ljust(512, b'\\\\0') + bytes(1024))\""
    ));
    for (suffix, tool) in TOOLS {
        if !have(tool.split(' ').next().unwrap()) {
            continue;
        }
        scratch.shell(&if suffix == "lrz" {
            // Its files do not follow one another. All of it is one chunk, where the machine's memory allows.
            format!("rm -f *.sqlite; (cat head; for i in $(seq {units}); do cat unit; done; cat tail) > whole; {tool} -o bomb.lrz whole; rm whole")
        } else {
            // Each compressor is given a part once; the rest are copies of it.
            format!(
                "rm -f *.sqlite; {tool} < unit > unit.c; {tool} < head > bomb.{suffix}
                 for i in $(seq {units}); do cat unit.c; done >> bomb.{suffix}; {tool} < tail >> bomb.{suffix}; rm unit.c"
            )
        });
        let archive = scratch.path(format!("bomb.{suffix}"));
        let start = Instant::now();
        let patience = Duration::from_secs(600);
        let mount = Foreground::patient(&scratch, &archive, &["--index-minimum-file-count=0"], patience)
            .unwrap_or_else(|refused| panic!("{suffix}: {refused:?}"));
        let mounted = start.elapsed();
        let start = Instant::now();
        assert_eq!(fs::read(mount.at.join("end")).unwrap(), b"end\n", "{suffix}");
        let mut bytes = vec![1; 1 << 20];
        fs::File::open(mount.at.join("zeros")).unwrap().read_exact_at(&mut bytes, length - (1 << 20)).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
        let read = start.elapsed();
        let memory = mount.peak().saturating_sub(idle);
        mount.unmount();
        // What it leaves on the disk is its index.
        let index = fs::metadata(scratch.path(format!("bomb.{suffix}.tarnfs.sqlite"))).unwrap().len();
        println!(
            "{suffix}: {length} bytes mounted in {mounted:?}, its end read in {read:?}, {memory} bytes over idle, index of {index} bytes"
        );
        assert!(memory < MOST_FOR_A_BOMB, "{suffix}: {memory} bytes over a mount of a small archive");
        assert!(index < 16 << 20, "{suffix}: an index of {index} bytes");
        // And it can be interrupted.
        let mut index = behind(&scratch, DEFAULT_SIGNALS).args(["index", "-c"]).arg(&archive).spawn().unwrap();
        wait_until("it takes signals", || takes_signals(&index));
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        let sent = kill_process(Pid::from_child(&index), Signal::INT);
        let code = index.wait().unwrap().code();
        println!("{suffix}: ended {:?} after Ctrl-C", start.elapsed());
        assert!(code == Some(130) || (sent.is_ok() && code == Some(0)), "{suffix}: {code:?}");
        fs::remove_file(archive).unwrap();
    }
}

/// A header that says it needs much memory gets it only as far as there are bytes, or is refused with a word on why.
/// > A header that asks for much memory gets what the archive can fill, or an error that names the limit.
#[test]
fn a_header_that_asks_for_memory_does_not_get_it() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let idle = idle(&scratch);
    scratch.shell(
        r"python3 - <<'E'
import lzma, os, struct, subprocess, tarfile, zlib
BLOCK = tarfile.BLOCKSIZE
def header(name, kind, size):
    info = tarfile.TarInfo(name); info.type = kind; info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)
after = header('after', b'0', 6) + b'hello\n'.ljust(BLOCK, b'\0') + bytes(2 * BLOCK)
four = 4 << 30
# 8 KiB that claim 4 GiB, and 4 GiB that are there, as a hole.
for kind, name in ((b'x', 'pax'), (b'g', 'global'), (b'L', 'longname'), (b'K', 'longlink')):
    first = header('before', b'0', 0) + header(name, kind, four)
    open(f'{name}-cut.tar', 'wb').write(first + bytes(7168))
    with open(f'{name}-4g.tar', 'wb') as file:
        file.write(first); file.seek(four + len(first)); file.write(header('own', b'0', 0) + after)
tar = header('before', b'0', 0) + after
# xz: the dictionary of the one block. It is given no more than the block can fill.
plain = lzma.compress(tar, format=lzma.FORMAT_XZ, filters=[{'id': lzma.FILTER_LZMA2, 'preset': 0}])
for code, name in ((37, 'dictionary-1.5g.tar.xz'), (38, 'dictionary-2g.tar.xz'), (40, 'dictionary-4g.tar.xz')):
    bytes_ = bytearray(plain)
    length = (bytes_[12] + 1) * 4
    assert bytes_[14:16] == b'\x21\x01'
    bytes_[16] = code
    bytes_[12 + length - 4:12 + length] = struct.pack('<I', zlib.crc32(bytes_[12:12 + length - 4]))
    open(name, 'wb').write(bytes_)
# zstd: the window of a frame that does not say how long it is.
plain = bytearray(subprocess.run(['zstd', '-q', '-c'], input=tar, stdout=subprocess.PIPE, check=True).stdout)
assert not plain[4] & 0x20
for log, name in ((27, 'window-128m.tar.zst'), (28, 'refused-window-256m.tar.zst'), (31, 'refused-window-2g.tar.zst'), (41, 'refused-window-2t.tar.zst')):
    plain[5] = (log - 10) << 3
    open(name, 'wb').write(plain)
E",
    );
    let mut archives: Vec<_> = fs::read_dir(scratch.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            name.contains("-4g") || name.contains("cut") || name.contains("dictionary") || name.contains("window")
        })
        .collect();
    archives.sort();
    assert_eq!(archives.len(), 15);
    for name in archives {
        let expect_refusal = name.starts_with("refused");
        match Foreground::new(&scratch, &scratch.path(&name), &["--index-file=:memory:"]) {
            Ok(mount) => {
                let memory = mount.peak().saturating_sub(idle);
                println!("{name}: {memory} bytes over idle");
                assert!(!expect_refusal, "{name} is mounted");
                assert!(memory < MOST_FOR_A_HEADER, "{name}: {memory} bytes");
                assert!(mount.at.join("before").exists(), "{name}");
                if !name.contains("cut") {
                    assert_eq!(fs::read(mount.at.join("after")).unwrap(), b"hello\n", "{name}");
                }
                assert!(mount.peak().saturating_sub(idle) < MOST_FOR_A_HEADER, "{name}");
                mount.unmount();
            }
            Err((code, said)) => {
                println!("{name}: {code} {said}");
                assert!(expect_refusal, "{name}: {said}");
                assert_eq!(code, 3, "{name}: {said}");
                assert!(said.contains("limit"), "{name}: {said}");
            }
        }
    }
}

/// Runs the program with so many MiB of address space, which is far more than it takes. What has not ended after five
/// minutes never would.
#[track_caller]
fn in_little_memory(scratch: &Scratch, mib: u64, words: &[&str]) -> support::Ran {
    let output = Command::new("bash")
        .args([
            "-c",
            &format!("ulimit -v {}; exec timeout 300 \"$@\"", mib << 10),
            "bash",
            env!("CARGO_BIN_EXE_tarnfs"),
        ])
        .args(words)
        .env("XDG_CACHE_HOME", scratch.path("cache"))
        .stdin(std::process::Stdio::null())
        .output();
    let ran = support::Ran::from(output.unwrap());
    assert!((0..=5).contains(&ran.code), "{words:?}: {} {:.2000}", ran.code, ran.err);
    ran
}

/// Records of 8 MiB each, in 150 entries of an archive of a few megabytes: 1.2 GB, and four times that in messages.
/// > What is kept in memory for each entry is short.
#[test]
fn long_records_are_not_kept() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import gzip, tarfile
def header(name, kind, size):
    info = tarfile.TarInfo(name); info.type = kind; info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)
pack = lambda data: gzip.compress(data, 6, mtime=0)
LONG = 8 << 20
def make(name, byte, start, end):
    filler = pack(byte * LONG)
    with open(name, 'wb') as file:
        for number in range(150):
            first, last = start % number, end + bytes([10])
            length = 8 + len(first) + LONG + len(last)
            record = b'%07d ' % length + first
            padding = bytes(-length % 512)
            file.write(pack(header('pax', b'x', length) + record) + filler)
            file.write(pack(last + padding + header('f%d' % number, b'0', 0)))
        file.write(pack(bytes(1024)))
make('owners.tar.gz', b'u', b'uname=%08d', b'')
make('groups.tar.gz', bytes([255]), b'gname=%08d', b'')
make('acls.tar.gz', bytes([255]), b'SCHILY.acl.access=user:%08d', b'')
make('xattrs.tar.gz', bytes([255]), b'SCHILY.xattr.user.%08d', b'=x')
make('holes.tar.gz', bytes([255]), b'GNU.sparse.numbytes=%08d', b'')
E",
    );
    for name in ["owners", "groups", "acls", "xattrs", "holes"] {
        let archive = scratch.path(format!("{name}.tar.gz"));
        assert!(fs::metadata(&archive).unwrap().len() < 16 << 20);
        let words = ["ls", "-R", "-P", "2", "--index-file=:memory:", archive.to_str().unwrap()];
        let ran = in_little_memory(&scratch, 1024, &words);
        if name != "holes" {
            assert_eq!(ran.text().lines().count(), 150, "{name}: {:.2000}", ran.err);
        }
        assert!(!ran.err.is_empty() && ran.err.len() < 8 << 20, "{name}: {} bytes of messages", ran.err.len());
        fs::remove_file(archive).unwrap();
    }
}

/// Names that wait for the one that has their content, each of which is then a link to a long path; and a header of 7z
/// that is packed in 32 steps, of which each gives 60 MiB.
#[test]
fn links_and_steps_take_no_more_than_what_they_are_made_of() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import gzip, lzma, struct, zlib
def header(name, links, size):
    name += b'\0'
    head = b'070701' + b''.join(b'%08x' % value for value in (7, 0o100644, 0, 0, links, 0, size, 0, 0, 0, 0, len(name), 0)) + name
    return head + bytes(-len(head) % 4)
with gzip.open('links.cpio.gz', 'wb', 6) as out:
    for number in range(200000):
        out.write(header(b'%x' % number, 0xffffffff, 0))
    out.write(header((b'd' * 200 + b'/') * 19 + b'f', 0xffffffff, 4) + b'abcd' + header(b'TRAILER!!!', 1, 0))
def number(value):
    for bytes_ in range(8):
        if value < 1 << 7 * (bytes_ + 1):
            return bytes([0xff00 >> bytes_ & 0xff | value >> 8 * bytes_]) + (value & (1 << 8 * bytes_) - 1).to_bytes(bytes_, 'little')
steps, size = 31, 60 << 20
packed = lzma.compress(bytes(size), format=lzma.FORMAT_RAW, filters=[{'id': lzma.FILTER_LZMA1, 'preset': 1, 'dict_size': 1 << 24}])
coders = b'\x21\x03\x01\0' * steps + b'\x23\x03\x01\x01\x05\x5d' + struct.pack('<I', 1 << 24)
folder = number(steps + 1) + coders + b''.join(number(step) + number(step + 1) for step in range(steps))
head = b'\x17\x06\0\x01\x09' + number(len(packed)) + b'\0\x07\x0b\x01\0' + folder + b'\x0c' + number(size) * (steps + 1) + b'\0\0'
start = struct.pack('<QQI', len(packed), len(head), zlib.crc32(head))
open('steps.7z', 'wb').write(b'7z\xbc\xaf\x27\x1c\0\4' + struct.pack('<I', zlib.crc32(start)) + start + packed + head)
E",
    );
    for (name, mib) in [("links.cpio.gz", 640), ("steps.7z", 640)] {
        let archive = scratch.path(name);
        assert!(fs::metadata(&archive).unwrap().len() < 1 << 20);
        let ran =
            in_little_memory(&scratch, mib, &["ls", "-P", "1", "--index-file=:memory:", archive.to_str().unwrap()]);
        if name == "links.cpio.gz" {
            assert!(ran.text().lines().count() > 200_000 / 2, "{:.2000}", ran.err);
        } else {
            assert!(!ran.err.contains("memory"), "{:.2000}", ran.err);
        }
    }
}

/// Members of one KiB that each ask for 256 MiB before their first byte, read by many at once.
#[test]
fn decoders_that_ask_for_much_take_turns() {
    if !can_mount() || !have("7z") {
        return println!("left out: there is no 7z, or nothing can be mounted");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir d; for i in $(seq 24); do seq $i $((i + 250)) > d/f$i; done
         cd d; 7z a -bd -bso0 -tzip -mm=PPMd ../few.zip .; cd ..
         python3 - <<'E'
import struct
data = bytearray(open('few.zip', 'rb').read())
at, members = 0, 0
while data[at:at + 4] == b'PK\\3\\4':
    method, = struct.unpack_from('<H', data, at + 8)
    packed, = struct.unpack_from('<I', data, at + 18)
    start = at + 30 + sum(struct.unpack_from('<HH', data, at + 26))
    if method == 98:
        # 7z asks for no more than a short file needs.
        struct.pack_into('<H', data, start, struct.unpack_from('<H', data, start)[0] | 0xff0)
        members += 1
    at = start + packed
assert members == 24
open('pp.zip', 'wb').write(data)
E",
    );
    let mount = Foreground::new(&scratch, &scratch.path("pp.zip"), &[]).unwrap();
    let before = mount.peak();
    std::thread::scope(|scope| {
        for number in 1..=24 {
            let (at, there) = (mount.at.join(format!("f{number}")), scratch.path(format!("d/f{number}")));
            scope.spawn(move || assert!(fs::read(at).unwrap() == fs::read(there).unwrap(), "f{number}"));
        }
    });
    let memory = mount.peak() - before;
    println!("{memory} bytes");
    // One of them may exceed the budget alone.
    assert!(memory < 600 << 20, "{memory} bytes");
    mount.unmount();
}

/// Small archives in an archive, whose dictionaries are 192 MiB each, on many threads. All of them are looked into.
#[test]
fn archives_that_need_much_memory_are_looked_into_one_by_one() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import io, lzma, struct, tarfile, zlib
def pack(name, size):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode='w') as tar:
        info = tarfile.TarInfo(name)
        info.size = size
        tar.addfile(info, io.BytesIO(bytes(size)))
    data = bytearray(lzma.compress(inner.getvalue(), check=lzma.CHECK_CRC32, filters=[{'id': lzma.FILTER_LZMA2, 'preset': 0}]))
    # The header of the block: its length, flags, LZMA2, one byte of properties: 192 MiB.
    length = (data[12] + 1) * 4
    assert data[14:16] == b'\x21\1'
    data[16] = 31
    struct.pack_into('<I', data, 12 + length - 4, zlib.crc32(data[12:12 + length - 4]))
    return bytes(data)
with tarfile.open('many.tar', 'w') as out:
    for number in range(6):
        packed = pack('zeros%d' % number, 160 << 20)
        info = tarfile.TarInfo('%d.tar.xz' % number)
        info.size = len(packed)
        out.addfile(info, io.BytesIO(packed))
E",
    );
    // Not 960 MiB.
    assert_found_in_little_memory(&scratch);
}

/// The same of those with windows of 128 MiB, and of lrzip, which keeps a chunk in memory where there is a password.
#[test]
fn archives_with_large_windows_are_looked_into_one_by_one() {
    let scratch = Scratch::new();
    scratch.shell("head -c 160M /dev/zero > zeros; tar cf z.tar zeros");
    for (end, program, options) in [
        ("zst", "zstd", "-q --long=27 -1 -o"),
        ("br", "brotli", "-q 5 --large_window=27 -o"),
        ("lrz", "lrzip", "-Q -l -o"),
    ] {
        if !have(program) {
            println!("left out: {program}");
            continue;
        }
        scratch.shell(&format!(
            "{program} {options} 1.tar.{end} z.tar; for i in 2 3 4 5 6; do cp 1.tar.{end} $i.tar.{end}; done
             tar cf many.tar [1-6].tar.{end}; rm [1-6].tar.{end}"
        ));
        println!("{program}");
        assert_found_in_little_memory(&scratch);
    }
}

/// Six archives in `many.tar` each show their file of 160 MiB, in less than 512 MiB together.
fn assert_found_in_little_memory(scratch: &Scratch) {
    let program = env!("CARGO_BIN_EXE_tarnfs");
    let ran = scratch.shell(&format!(
        "python3 - <<'E'
import resource, subprocess
words = ['{program}', 'find', '-r', '-P', '6', '--password=a', '--index-file=:memory:', 'many.tar', '-name', 'zeros*', '-size', '160M']
print(subprocess.run(words, stdout=subprocess.PIPE).stdout.decode())
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
E"
    ));
    let lines: Vec<&str> = ran.lines().filter(|line| !line.is_empty()).collect();
    let (memory, found) = lines.split_last().unwrap();
    assert_eq!(found.len(), 6, "{ran}");
    assert!(memory.parse::<u64>().unwrap() < 512, "{memory} MiB");
}

/// One archive in an archive that there is no memory for keeps nobody from the others.
#[test]
fn an_archive_that_there_is_no_memory_for_stays_a_file() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import io, lzma, struct, tarfile, zlib
def pack(name, size, dictionary):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode='w') as tar:
        info = tarfile.TarInfo(name)
        info.size = size
        tar.addfile(info, io.BytesIO(bytes(size)))
    data = bytearray(lzma.compress(inner.getvalue(), check=lzma.CHECK_CRC32, filters=[{'id': lzma.FILTER_LZMA2, 'preset': 0}]))
    length = (data[12] + 1) * 4
    if dictionary:
        data[16] = dictionary
    struct.pack_into('<I', data, 12 + length - 4, zlib.crc32(data[12:12 + length - 4]))
    return bytes(data)
with tarfile.open('o.tar', 'w') as out:
    # The first one asks for 768 MiB.
    for name, packed in [('large.tar.xz', pack('zeros', 400 << 20, 35)), ('small.tar.xz', pack('few', 1000, None))]:
        info = tarfile.TarInfo(name)
        info.size = len(packed)
        out.addfile(info, io.BytesIO(packed))
E",
    );
    let archive = scratch.path("o.tar");
    let ran =
        in_little_memory(&scratch, 360, &["find", "-r", "-P", "1", "--index-file=:memory:", archive.to_str().unwrap()]);
    assert!(ran.err.contains("large.tar.xz") && ran.err.contains("memory"), "{ran:?}");
    let found = ran.text();
    assert!(found.contains("small.tar.xz/few") && !found.contains("zeros"), "{found}");
}

/// Archives in each other, in each of which many names wait for one that does not come.
#[test]
fn names_that_wait_in_archives_in_archives_take_little_memory_together() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import gzip
def entry(name, inode, links, content):
    name += b'\0'
    head = b'070701' + b''.join(b'%08x' % value for value in (inode, 0o100644, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name), 0)) + name
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)
waiting = b''.join(entry(b'%x' % number, number, 2, b'') for number in range(60000))
archive = b''
for layer in range(12):
    inner = entry(b'%d.cpio' % layer, 1 << 20, 1, archive) if archive else b''
    archive = waiting + inner + entry(b'TRAILER!!!', 0, 1, b'')
with gzip.open('a.cpio.gz', 'wb', 6) as file:
    file.write(archive)
E",
    );
    let words = ["ls", "-r", "-P", "1", "--cache-memory=64M", "--index-file=:memory:", "a.cpio.gz"];
    let (code, said, peak) = peak_of(&scratch, "", &words);
    println!("{code:?}, {peak} bytes");
    // Those for which there is no room are told as damage.
    assert!(code == Some(5) && said.contains("was not found; it was left out"), "{code:?} {said:.2000}");
    assert!(peak < MOST_FOR_A_BOMB, "{peak} bytes");
}

/// Twelve tars in each other, of which each has a long name, a long link and a long target of one before its file, or
/// long attributes: 600 KB took 674 MB.
#[test]
fn long_headers_of_archives_in_archives_take_little_memory_together() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import gzip, tarfile
def member(kind, data):
    info = tarfile.TarInfo('header'); info.type = kind; info.size = len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)
def record(key, value):
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest + 8))
    return b'%d %s=%s
' % (length, key, value)
def make(name, head, levels):
    info = tarfile.TarInfo('a.tar')
    info.size, blocks = 0, []
    for level in range(levels):
        blocks.append(info.tobuf(tarfile.GNU_FORMAT))
        info.size += len(head) + 512
    with gzip.open(name, 'wb', 1) as file:
        for block in reversed(blocks):
            file.write(head)
            file.write(block)
most = (16 << 20) - 2000
long = member(b'L', b'x' * most) + member(b'K', b'y' * most)
make('names.tar.gz', long + member(b'x', record(b'path', b'a.tar') + record(b'linkpath', b'z' * most)), 12)
attributes = b''.join(record(b'SCHILY.xattr.user.%03d' % number, b'v' * 65000) for number in range(240))
make('attributes.tar.gz', member(b'x', attributes), 12)
E",
    );
    for archive in ["names.tar.gz", "attributes.tar.gz"] {
        let words = ["ls", "-r", "-P", "1", "--cache-memory=64M", "--index-file=:memory:", archive];
        let (code, said, peak) = peak_of(&scratch, "", &words);
        println!("{archive}: {code:?}, {peak} bytes");
        // The archive in the first one has less room.
        assert!(code == Some(5) && said.contains("it was skipped"), "{code:?} {said:.2000}");
        assert!(peak < MOST_FOR_A_BOMB, "{archive}: {peak} bytes");
    }
}

/// Few entries, and 15 MiB of extended attributes in each of them: an index of 450 MB for an archive of less than one.
/// > An index takes little memory, even one that is not kept on disk.
#[test]
fn large_attributes_are_not_kept_in_memory() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let idle = idle(&scratch);
    scratch.shell(
        r"python3 - <<'E'
import gzip, tarfile
def header(name, kind, size):
    info = tarfile.TarInfo(name); info.type = kind; info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)
pack = lambda data: gzip.compress(data, 6, mtime=0)
records = b''.join((b'65000 SCHILY.xattr.user.%03d=' % number).ljust(64999, b'v') + b'\n' for number in range(240))
body = pack(records + bytes(-len(records) % 512))
with open('xattrs.tar.gz', 'wb') as file:
    for number in range(30):
        file.write(pack(header('pax', b'x', len(records))) + body + pack(header('f%d' % number, b'0', 0)))
    file.write(pack(bytes(1024)))
E",
    );
    let archive = scratch.path("xattrs.tar.gz");
    for place in ["--index-file=:memory:", "--index-folders="] {
        let options = ["--cache-memory=64M", place];
        let mount = Foreground::new(&scratch, &archive, &options).unwrap_or_else(|refused| panic!("{refused:?}"));
        let memory = mount.peak().saturating_sub(idle);
        println!("{place}: {memory} bytes over idle");
        assert_eq!(fs::read_dir(&mount.at).unwrap().count(), 30);
        mount.unmount();
        assert!(memory < MOST_FOR_A_BOMB, "{place}: {memory} bytes over a mount of a small archive");
    }
    assert!(scratch.path("xattrs.tar.gz.tarnfs.sqlite").exists(), "few entries, and not a small index");
}

/// > Archives in an archive that wait to be read take little memory, however long their paths are.
#[test]
fn long_paths_of_archives_that_wait_are_bounded() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import gzip, tarfile
def member(name, kind, data):
    info = tarfile.TarInfo(name); info.type = kind; info.size = len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data.ljust(-(-len(data) // 512) * 512, bytes(1))
folders = (b'd' * 250 + b'/') * 240
small = gzip.compress(b'small', mtime=0)
with gzip.open('inner.tar.gz', 'wb', 6) as file:
    for number in range(7000):
        file.write(member('long', b'L', folders + b'%d.gz' % number) + member('short', b'0', small))
    file.write(bytes(1024))
data = open('inner.tar.gz', 'rb').read()
open('outer.tar', 'wb').write(member('inner.tar.gz', b'0', data) + bytes(1024))
E",
    );
    let archive = scratch.path("outer.tar");
    let words = ["index", "-c", "-r", "-P", "2", archive.to_str().unwrap()];
    let ran = in_little_memory(&scratch, 1024, &words);
    assert!(ran.err.contains("it stays a file"), "{:.2000}", ran.err);
}

/// > `find` and `ls -R` take little memory however deep an archive is, and a glob that stands for too much is refused.
///
/// What is printed of each folder on the way down would take 400 MB together.
#[test]
fn a_deep_tree_is_listed_in_little_memory() {
    let scratch = Scratch::new();
    scratch.shell(
        r"python3 - <<'E'
import tarfile
def member(name, kind, data):
    info = tarfile.TarInfo(name); info.type = kind; info.size = len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data.ljust(-(-len(data) // 512) * 512, bytes(1))
with open('deep.tar', 'wb') as file:
    folder = b''
    for depth in range(150):
        # What leads down comes first.
        folder += b'a' * 120 + b'/'
        for number in range(40):
            file.write(member('long', b'L', folder + b'%02d' % number + b'b' * 118) + member('short', b'0', b''))
    file.write(bytes(1024))
E",
    );
    let printf = format!("find deep.tar . -printf {}", "%p".repeat(8));
    for (line, most, code) in [
        (printf.as_str(), 150, 0),
        ("ls deep.tar -R", 150, 0),
        ("ls deep.tar --directory **", 200, 0),
        // The first of them is listed.
        ("ls deep.tar --directory ** **/*", 200, 1),
    ] {
        let mut words: Vec<_> = line.split(' ').collect();
        words.splice(1..1, ["--index-file=:memory:", "--cache-memory=16M"]);
        let (ended, said, peak) = peak_of(&scratch, "", &words);
        assert_eq!((ended, said.contains("too many paths")), (Some(code), code == 1), "{line}: {said}");
        assert!(peak < most << 20, "{line}: {peak} bytes");
    }
}

/// A folder of very many folders is searched, and sorted, in little memory, or that is refused.
///
/// All that is known of them would take 200 MB.
#[test]
fn a_wide_tree_is_listed_in_little_memory() {
    const FOLDERS: usize = 600_000;
    let scratch = Scratch::new();
    scratch.shell(&format!(
        r"python3 - <<'E' | zstd -q -1 > wide.tar.zst
import sys, tarfile
info = tarfile.TarInfo('d' * 90); info.type = b'5'
block = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
block[148:156] = b' ' * 8
out = sys.stdout.buffer
for number in range({FOLDERS}):
    block[0:6] = b'%06d' % number
    block[148:156] = b' ' * 8
    block[148:156] = b'%06o' % sum(block) + bytes(1) + b' '
    out.write(block)
out.write(bytes(1024))
E"
    ));
    run(&scratch, ["index".as_ref(), scratch.path("wide.tar.zst").as_os_str()]).ok();
    let (code, said, idle) = peak_of(&scratch, "", &["ls", "wide.tar.zst", "--directory", "000001d*"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    for pattern in ["*/x", "**/x"] {
        let (code, said, peak) = peak_of(&scratch, "", &["ls", "wide.tar.zst", pattern]);
        assert!(code == Some(1) && said.lines().count() == 1, "{code:?} {said}");
        assert!(peak < idle + (32 << 20), "{pattern}: {peak} bytes, {idle} for one name");
    }
    // What is sorted is in memory; of very much that is refused.
    let (code, said, peak) = peak_of(&scratch, "", &["ls", "--reverse", "wide.tar.zst"]);
    assert!(code == Some(1) && said.contains("holds too many entries to be sorted"), "{code:?} {said}");
    assert!(peak < idle + (256 << 20), "{peak} bytes");
}

/// The versions of one name are listed some at a time, not gathered: all of these take 100 MB.
#[test]
fn versions_of_one_name_take_little_memory() {
    const NAMES: usize = 300_000;
    const MOST: u64 = 64 << 20;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let idle = idle(&scratch);
    scratch.shell(&format!(
        "touch x; tar -cf one.tar x; head -c 512 one.tar > header
         for i in $(seq 1000); do cat header; done > thousand
         for i in $(seq {}); do cat thousand; done > many.tar; head -c 1024 /dev/zero >> many.tar",
        NAMES / 1000
    ));
    let mount = Foreground::patient(&scratch, &scratch.path("many.tar"), &[], Duration::from_secs(600))
        .unwrap_or_else(|refused| panic!("{refused:?}"));
    let built = mount.peak().saturating_sub(idle);
    assert_eq!(fs::read_dir(mount.at.join("x.versions")).unwrap().count(), NAMES);
    assert!(mount.at.join(format!("x.versions/{NAMES}")).exists());
    assert!(!mount.at.join(format!("x.versions/{}", NAMES + 1)).exists());
    let listed = mount.peak().saturating_sub(idle);
    mount.unmount();
    println!("{built} bytes over idle for the index, {listed} with the listing");
    assert!(listed < built.max(MOST), "{listed} bytes");
}

/// Makes `bomb.tar.zst`: so many entries, each with a header of 16 MiB of attributes, which compresses to 3 KiB.
fn attribute_bomb(scratch: &Scratch, entries: u32) {
    scratch.shell(&format!(
        "python3 - <<'E' | zstd -q -1 --long=27 > bomb.tar.zst
import sys, tarfile
def header(name, kind, size):
    info = tarfile.TarInfo(name); info.type = kind; info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)
def record(key):
    return b'60026 SCHILY.xattr.user.%03d=' % key + b'A' * 59997 + bytes([10])
pax = b''.join(record(key) for key in range(270))
pax = header('pax', b'x', len(pax)) + pax.ljust(-(-len(pax) // 512) * 512, bytes(1))
for number in range({entries}):
    sys.stdout.buffer.write(pax); sys.stdout.buffer.write(header('f%d' % number, b'0', 0))
sys.stdout.buffer.write(bytes(1024))
E"
    ));
}

/// Runs `tarnfs ls bomb.tar.zst` behind `limits`; see [`peak_of`].
fn list_bomb(scratch: &Scratch, limits: &str) -> (Option<i32>, String, u64) {
    peak_of(scratch, limits, &["ls", "--cache-memory=64M", "--index-file=:memory:", "bomb.tar.zst"])
}

/// Runs the program behind `limits`: its exit code, what it said, and its peak of memory.
fn peak_of(scratch: &Scratch, limits: &str, words: &[&str]) -> (Option<i32>, String, u64) {
    let script = "import resource, subprocess, sys
ran = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
sys.exit(ran.returncode)";
    let output = Command::new("bash")
        .args(["-c", &format!("{limits} exec python3 -c \"$@\""), "bash", script, env!("CARGO_BIN_EXE_tarnfs")])
        .args(words)
        .current_dir(scratch.path(""))
        .output()
        .unwrap();
    let peak = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), peak)
}

/// > An index takes little memory, even one that is not kept on disk.
#[test]
fn an_index_that_no_disk_takes_has_a_limit() {
    let scratch = Scratch::new();
    attribute_bomb(&scratch, 24);
    let (code, said, peak) = list_bomb(&scratch, "ulimit -f 20480;");
    println!("{code:?}, {peak} bytes: {said}");
    assert!(code != Some(0) && said.contains("limit") && said.contains("TMPDIR"), "{code:?}: {said}");
    assert!(peak < 448 << 20, "{peak} bytes");
}

/// > A header that asks for much memory gets what the archive can fill, or an error that names the limit.
#[test]
fn an_index_does_not_outgrow_its_archive() {
    let scratch = Scratch::new();
    attribute_bomb(&scratch, 72);
    let (code, said, peak) = list_bomb(&scratch, "");
    println!("{code:?}, {peak} bytes: {said}");
    assert!(code != Some(0) && said.contains("the limit for an archive of its length"), "{code:?}: {said}");
    assert!(peak < 448 << 20, "{peak} bytes");
}

/// A map of a sparse file takes 12 MiB here, and there are 40 of them.
#[test]
fn maps_of_sparse_files_take_little_memory_together() {
    const FILES: usize = 40;
    if !support::can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        r"python3 - <<'E' | zstd -q -o a.tar.zst
import sys, tarfile
EXTENTS = 1 << 19
pad = lambda data: data + bytes(-len(data) % 512)
def header(name, kind, size):
    info = tarfile.TarInfo(name); info.type = kind; info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)
def record(key, value):
    length = len(key) + len(value) + 3
    length += len(str(length + len(str(length))))
    return b'%d %s=%s\n' % (length, key, value)
numbers = pad(b'%d\n' % EXTENTS + b''.join(b'%d\n1\n' % (2 * n) for n in range(EXTENTS)))
write = sys.stdout.buffer.write
for number in range({FILES}):
    pax = record(b'GNU.sparse.major', b'1') + record(b'GNU.sparse.minor', b'0')
    pax += record(b'GNU.sparse.name', b'%d' % number) + record(b'GNU.sparse.realsize', b'%d' % (2 * EXTENTS))
    write(header('x', b'x', len(pax)) + pad(pax) + header('f', b'0', len(numbers) + EXTENTS))
    write(numbers + pad(b'x' * EXTENTS))
write(bytes(1024))
E"
    ));
    let (at, archive) = (scratch.path("mnt"), scratch.path("a.tar.zst"));
    let mut command = support::tarnfs(&scratch);
    command.args(["-f", "--index-file", ":memory:"]).args([&archive, &at]);
    let mut daemon = support::daemon(command, &at);
    let process = daemon.id();
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    };
    let expected: Vec<u8> = b"x\0".repeat(1 << 19);
    let read = |number: usize| assert!(fs::read(at.join(number.to_string())).unwrap() == expected, "{number}");
    support::wait_until("it is served", || at.join("0").exists());
    read(0);
    let before = resident();
    // Also where several are read at once.
    std::thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || (first..FILES).step_by(4).for_each(read));
        }
    });
    let grown = resident().saturating_sub(before);
    // 64 MiB of maps are kept, each of four readers has one, and one is being made.
    assert!(grown < 240, "{grown} MiB more");
    support::signal(&daemon, rustix::process::Signal::TERM);
    daemon.wait().unwrap();
}

/// Each path has 64 KiB, all of which is the same folder; a zip has it in each entry of its directory, and a tar in
/// each hard link.
/// > No archive makes tarnfs crash, hang, or use memory without bound.
#[test]
fn long_paths_are_not_gathered_where_an_archive_is_written() {
    const MOST: u64 = 100 << 20;
    let scratch = Scratch::new();
    if !have("zstd") {
        return;
    }
    scratch.shell(
        r"python3 - <<'E' | zstd -q -1 > deep.tar.zst
import sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode='w|', format=tarfile.PAX_FORMAT) as tar:
    folder = '/'.join(['d' * 240] * 270)
    for number in range(2000):
        tar.addfile(tarfile.TarInfo(f'{folder}/f{number}'))
    for number in range(2000):
        link = tarfile.TarInfo(f'{folder}/l{number}')
        link.type, link.linkname = tarfile.LNKTYPE, f'{folder}/f{number}'
        tar.addfile(link)
E",
    );
    for words in [
        &["convert", "--index-file=:memory:", "deep.tar.zst", "out.zip"][..],
        &["convert", "--index-file=:memory:", "--no-index", "--transform", "^/x", "/y", "deep.tar.zst", "out.tar.zst"],
    ] {
        let (code, said, peak) = peak_of(&scratch, "", words);
        println!("{words:?}: {peak} bytes");
        assert_eq!(code, Some(0), "{said:.2000}");
        assert!(peak < MOST, "{words:?}: {peak} bytes");
    }
    let said = scratch.shell(
        r"python3 - <<'E'
import subprocess, tarfile, zipfile
folder = '/'.join(['d' * 240] * 270)
expected = {f'{folder}/{kind}{number}' for kind in 'fl' for number in range(2000)}
names = {name for name in zipfile.ZipFile('out.zip').namelist() if not name.endswith('/')}
assert names == expected
with subprocess.Popen(['zstd', '-dcq', 'out.tar.zst'], stdout=subprocess.PIPE) as ran:
    links = 0
    for entry in tarfile.open(fileobj=ran.stdout, mode='r|'):
        if entry.islnk():
            links += 1
            assert entry.linkname == entry.name.replace('/l', '/f')
assert links == 2000
print('all')
E",
    );
    assert_eq!(said.trim(), "all");
}

/// As many names as `xargs` gives at once: each of them waits at each folder on its way.
#[test]
fn many_names_to_extract_take_little_memory() {
    const NAMES: usize = 3000;
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir o; python3 - <<'E'
import tarfile
with tarfile.open('many.tar', 'w') as tar:
    for number in range({NAMES}):
        tar.addfile(tarfile.TarInfo(f'd{{number}}/file'))
E"
    ));
    let names: Vec<_> = (0..NAMES).map(|number| format!("d{number}/file")).collect();
    let mut words = vec!["extract", "--index-file=:memory:", "many.tar", "-C", "o"];
    words.extend(names.iter().map(String::as_str));
    let (code, said, peak) = peak_of(&scratch, "", &words);
    println!("{peak} bytes");
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert_eq!(scratch.shell("find o -type f | wc -l").trim(), NAMES.to_string());
    assert!(peak < 96 << 20, "{peak} bytes");
}
