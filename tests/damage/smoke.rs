//! A short run of each fuzz target on stable Rust: seeds that are the same everywhere, changed by numbers that are the
//! same in each run. `TARNFS_SMOKE_RUNS` says how many inputs each target gets; `make smoke` asks for a thousand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::entry_points;
use crate::support;
use crate::udf_image;

/// Inputs for each target where the environment names no other number.
const RUNS: usize = 200;

/// A target takes no longer than this where all inputs are slow. It only cuts the run short; nothing fails for it.
const LONGEST: Duration = Duration::from_secs(20);

/// Numbers that are the same in each run: a failure can be seen again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// `seed` after one to four changes as libFuzzer makes them: bits flipped, bytes replaced, parts removed, doubled
    /// or taken from `other`, numbers at their bounds, the end cut off.
    fn change(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let end = bytes.len().min(at + 1 + self.below(64));
            match self.below(8) {
                0 => bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (at % 8)),
                1 => bytes.get_mut(at).into_iter().for_each(|byte| *byte = self.byte()),
                2 => drop(bytes.drain(at..end)),
                3 => {
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                4 if !other.is_empty() => {
                    let from = self.below(other.len());
                    let to = other.len().min(from + 1 + self.below(256));
                    bytes.splice(at..end, other[from..to].iter().copied());
                }
                5 => bytes[at..end].fill([0, 0xFF, 0x7F, 0x80][self.below(4)]),
                6 => bytes.truncate(at),
                _ => {
                    let part: Vec<u8> = (0..=self.below(8)).map(|_| self.byte()).collect();
                    bytes.splice(at..at, part);
                }
            }
        }
        bytes
    }
}

/// Files of each format. Their content is that of a small tar in the repository; tools compress it from standard input,
/// so no time and no name is in them.
fn seeds(suffix: &str) -> Vec<Vec<u8>> {
    static MADE: OnceLock<(support::Scratch, std::path::PathBuf)> = OnceLock::new();
    let (_, folder) = MADE.get_or_init(|| {
        let scratch = support::Scratch::new();
        std::fs::write(scratch.path("tree.tar"), tree()).unwrap();
        // A tool that is not there makes no file.
        scratch.shell(
            r#"mkdir seeds; head -c 6000 tree.tar > part; export LRZIP=NOCONFIG
            make() { "${@:2}" > "seeds/$1" 2> /dev/null || rm -f "seeds/$1"; }
            for from in tree.tar part; do
                make $from.gz gzip -nc $from; make $from.bz2 bzip2 -c $from; make $from.xz xz -c --block-size=2000 $from
                make $from-x86.xz xz -c --check=sha256 --x86 --lzma2=preset=1 $from; make $from.lzma xz -c --format=lzma $from
                make $from.lz lzip -c $from; make $from.lz4 lz4 -qc -B4 -BX $from; make $from.lzo lzop -c < $from
                make $from-crc.lzo lzop -c -9 --crc32 < $from; make $from.zst zstd -qc $from; make $from-19.zst zstd -qc -19 --no-check $from
                make $from.br brotli -c -q 5 $from; for width in 10 16; do make $from-$width.Z sh -c "compress -c -b $width < $from || [ \$? = 2 ]"; done
                for method in lzma gzip bzip2 lzo no-compress; do make $from-$method.lrz sh -c "lrzip -Q -T --$method < $from"; done
                touch -d '2001-02-03 04:05:06' $from; for options in -0 -9 '-X -9'; do make "$from$options.zip" zip -q $options - $from part; done
                (cat seeds/$from-0.zip; head -c 700 seeds/$from-9.zip) > seeds/$from-cut.zip
                for format in newc odc bin; do make $from.$format.cpio sh -c "touch -d @1 tree.tar part; ln -f $from other; printf '$from\nother\n' | cpio -o --quiet -H $format"; done
                make $from.crc.cpio sh -c "echo part | cpio -o --quiet -H crc"; make $from.ar sh -c "rm -f x.ar; cp part a-name-of-more-than-sixteen; ar rcD x.ar part a-name-of-more-than-sixteen; cat x.ar"
                (printf '\030'; xz -c --format=raw --lzma2=preset=6 $from) > seeds/$from.lzma2
                (printf '\024\000abcdefghijklmnopqrst'; cat seeds/$from.zst) > seeds/$from.dictionary
            done"#,
        );
        let folder = scratch.path("seeds");
        (scratch, folder)
    });
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.to_string_lossy().ends_with(suffix));
    found.sort();
    found.iter().map(|path| std::fs::read(path).unwrap()).filter(|seed| !seed.is_empty()).collect()
}

fn tree() -> Vec<u8> {
    let (mut plain, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let packed: &[u8] = include_bytes!("../../fuzz/archives/tree.tar.zst");
    let codec = tarnfs_codec::by_name("zstd").unwrap();
    let source = std::sync::Arc::new(tarnfs_source::MemorySource::new(packed, "tree"));
    let options = tarnfs_codec::Options::default();
    let mut indexing = tarnfs_codec::engine::Indexing::new(codec, source, &options).unwrap();
    while let read @ 1.. = indexing.read(&mut buffer).unwrap() {
        plain.extend_from_slice(&buffer[..read]);
    }
    plain
}

/// A gzip file without a name in its header, cut down to the deflate stream in it.
fn deflated() -> Vec<Vec<u8>> {
    seeds(".gz").into_iter().map(|file| file[10..file.len() - 8].to_vec()).collect()
}

fn zlib() -> Vec<Vec<u8>> {
    deflated().into_iter().map(|data| [&[0x78, 0x9C], &data[..], &[0; 4]].concat()).collect()
}

/// Stored chunks of a framed snappy file.
fn snappy() -> Vec<Vec<u8>> {
    let tree = tree();
    let chunk = |kind: u8, data: &[u8]| [&[kind], &(data.len() as u32).to_le_bytes()[..3], data].concat();
    let parts: Vec<u8> =
        tree.chunks(3000).take(4).flat_map(|part| chunk(1, &[&masked_crc32c(part)[..], part].concat())).collect();
    vec![[&chunk(0xFF, b"sNaPpY")[..], &parts].concat()]
}

/// Snappy framing format, section 3.
fn masked_crc32c(data: &[u8]) -> [u8; 4] {
    let mut sum = u32::MAX;
    for byte in data {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0x82F6_3B78 } else { 0 };
        }
    }
    (!sum).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
}

/// Archives whose headers are not compressed, so that changes reach what is in them, and one whose header is.
fn seven_zip() -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    std::fs::write(scratch.path("part"), &tree()[..6000]).unwrap();
    scratch.shell(
        r#"mkdir d; printf ä > ä; : > empty; ln -s part link; tool=$(command -v 7zz || command -v 7z) || exit 0
        make() { "$tool" a -bd -snl "$@" part ä empty link d > log || cat log; }
        for method in copy lzma lzma2 ppmd bzip2; do make -mhc=off -m0=$method $method.7z; done
        make -mhc=off -ms=off -mf=arm64 -mtc=on -mta=on single.7z; make -mhc=off -m0=bcj2 -m1=lzma -m2=lzma -m3=lzma bcj2.7z
        make -mhc=off -psecret secret.7z; make packed.7z"#,
    );
    let mut found: Vec<_> = std::fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "7z"));
    found.sort();
    found.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Images of which most is not compressed, so that changes reach what is in them, and one of each compression.
fn squashfs() -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    std::fs::write(scratch.path("part"), &tree()[..6000]).unwrap();
    scratch.shell(
        r#"mkdir -p d/deep; seq 9 > d/deep/nine; printf ä > ä; : > empty; ln -s part link; mkfifo fifo; ln part hard
        mksquashfs part ä empty link d fifo hard probe.squashfs -quiet -no-progress > log 2>&1 || exit 0
        setfattr -n user.name -v value part; truncate -s 30000 sparse; seq 2000 >> sparse
        make() { mksquashfs part ä empty link d fifo hard sparse "$1" -all-root -quiet -no-progress "${@:2}" >> log 2>&1 || cat log; }
        make bare.squashfs -noI -noD -noF -noX -b 4096 -no-xattrs; make xattrs.squashfs -noI -noId -noD -noX -b 4096
        for method in gzip lzma lzo lz4 xz zstd; do make $method.squashfs -comp $method -b 4096; done"#,
    );
    let mut found: Vec<_> = std::fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "squashfs"));
    found.sort();
    found.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Images of little more than their listings.
fn iso9660() -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    std::fs::write(scratch.path("part"), &tree()[..6000]).unwrap();
    scratch.shell(
        r#"command -v xorriso > found && command -v genisoimage >> found || exit 0
        mkdir -p d/1/2/3/4/5/6/7/8/9 e/d; mv d e; cd e; seq 9 > d/nine; printf ä > ä; : > empty; ln -s d/nine link; mkfifo fifo; ln ../part hard
        cp hard part; printf x > $(printf 'n%.0s' $(seq 250)); ln -s ../$(printf 'x%.0s' $(seq 250))/y long; setfattr -n user.name -v value part; cd ..
        make() { "$@" e >> log 2>&1 || cat log; }
        make genisoimage -R -cache-inodes -o rock.iso; make genisoimage -J -o joliet.iso; make genisoimage -iso-level 4 -o four.iso
        make xorriso -as mkisofs --xattr -o aaip.iso; make xorriso -as mkisofs -b part -no-emul-boot -o boot.iso
        make xorriso -as mkisofs -z -o zisofs.iso"#,
    );
    let mut found: Vec<_> = std::fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "iso"));
    found.sort();
    found.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Small images, packed, of which most have no checksums, so that changes reach what is in them.
fn ext() -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    std::fs::write(scratch.path("part"), &tree()[..6000]).unwrap();
    scratch.shell(
        r#"command -v mkfs.ext4 > found || exit 0
        mkdir -p e/d/deep e/many; mv part e; cd e; seq 9 > d/deep/nine; printf ä > ä; : > empty; ln -s d/nine link; mkfifo fifo; ln part hard
        ln -s $(printf 'x%.0s' $(seq 250)) long; truncate -s 50000 sparse; seq 2000 >> sparse; mknod device c 5 1 || true
        for i in $(seq 120); do : > many/a-file-with-a-name-$i; done; setfattr -n user.name -v value part; setfattr -n user.long -v $(printf 'x%.0s' $(seq 300)) d
        setfacl -m u:12:rw part; cd ..
        make() { mkfs.ext4 -q -F -b 1024 -N 160 -d e -m 0 "${@:2}" $1.img 500K >> log 2>&1 || { rm -f $1.img; cat log; }; }
        make two -t ext2 -O ^resize_inode; make old -t ext2 -r 0 -O ^resize_inode; make four -O ^has_journal,^metadata_csum,^resize_inode
        make blocks -O ^has_journal,^metadata_csum,^extents,^64bit,^resize_inode; make inline -I 512 -O ^has_journal,^metadata_csum,^resize_inode,inline_data
        make sums -O ^has_journal,^resize_inode; make groups -g 256 -O ^has_journal,^metadata_csum,^resize_inode,meta_bg"#,
    );
    packed_images(&scratch, "img")
}

/// Small images of FAT (`fat`), of exFAT, and of disks with these in their partitions (`disk`), packed.
fn fat(end: &str) -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    std::fs::write(scratch.path("part"), &tree()[..6000]).unwrap();
    scratch.shell(
        r#"command -v mkfs.vfat > found && command -v mcopy >> found && command -v mkfs.exfat >> found && command -v sfdisk >> found || exit 0
        export TZ=UTC LC_ALL=C.UTF-8; mkdir -p t/folder/deep; seq 900 > t/folder/deep/numbers; cp part t; echo x > 't/a name of more than one record ä.text'; : > t/EMPTY
        make() { truncate -s $2 $1.fat; mkfs.vfat "${@:3}" -n LABEL $1.fat >> log; mcopy -s -m -i $1.fat t/* ::/; mdel -i $1.fat ::/EMPTY; }
        make twelve 512K -F 12; make sixteen 3M -F 16 -s 1 -f 1 -r 512 2>> log; make wide 34M -F 32 -s 1 -f 1 2>> log; truncate -s 2M wide.fat
        truncate -s 2M a.exfat; mkfs.exfat -c 512 -b 4096 -L LABEL a.exfat >> log; python3 - <<'END' || true
import struct
image = bytearray(open('a.exfat', 'rb').read())
word = lambda at: struct.unpack_from('<I', image, at)[0]
heap, root, table = word(88) * 512, word(96), word(80) * 512
at = heap + (root - 2) * 512
while image[at]: at += 32
def entry(name, first, length, flags, attributes):
    name = name.encode('utf-16-le'); names = -(-len(name) // 30)
    s = bytearray(32 * (2 + names)); s[0], s[1], s[4], s[32], s[33], s[35] = 0x85, 1 + names, attributes, 0xc0, flags, len(name) // 2
    struct.pack_into('<Q', s, 40, length); struct.pack_into('<I', s, 52, first); struct.pack_into('<Q', s, 56, length)
    for n in range(names): s[64 + n * 32] = 0xc1; part = name[n * 30:n * 30 + 30]; s[66 + n * 32:66 + n * 32 + len(part)] = part
    total = 0
    for i, byte in enumerate(s):
        if i not in (2, 3): total = ((total & 1) << 15 | total >> 1) + byte & 0xffff
    struct.pack_into('<H', s, 2, total); return s
sets = entry('run', 60, 1000, 3, 0) + entry('chained with a long name', 64, 1200, 1, 0) + entry('folder', 70, 512, 3, 16)
image[at:at + len(sets)] = sets
inner = entry('inside', 60, 512, 3, 1); image[heap + 68 * 512:heap + 68 * 512 + len(inner)] = inner
for cluster, after in ((64, 67), (67, 66), (66, 0xffffffff)): struct.pack_into('<I', image, table + cluster * 4, after)
open('a.exfat', 'wb').write(image)
END
        disk() { truncate -s 2000K $1.disk; printf "$2" | sfdisk -q $1.disk; dd if=twelve.fat of=$1.disk bs=512 seek=$3 conv=notrunc status=none; }
        disk dos 'start=64,size=1100,type=c
start=1200,size=100,type=82
start=1400,size=2000,type=5
start=1500,size=300,type=83
start=1900,size=100,type=83
' 64
        disk gpt 'label: gpt
first-lba: 64
start=64,size=1100
start=1200,size=100
' 64"#,
    );
    packed_images(&scratch, end)
}

/// Small images of disks, of each kind, with an ext2 on them.
fn disk_image() -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    scratch.shell(
        r"command -v mkfs.ext4 > found && command -v qemu-img >> found && command -v img2simg >> found || exit 0
        mkdir -p e/d; seq 900 > e/d/nine; ln -s d/nine e/link; mkfs.ext4 -q -F -b 1024 -N 16 -d e -m 0 -t ext2 -O ^resize_inode raw 200K > log 2>&1
        make() { qemu-img convert ${@:2} raw $1; }
        make a.image -O qcow2 -o cluster_size=512; make b.image -c -O qcow2 -o cluster_size=4k; make c.image -O qcow2 -o compat=0.10,cluster_size=1k
        make d.image -O vmdk; make e.image -O vmdk -o subformat=streamOptimized; make f.image -O vpc -o force_size=on
        img2simg raw g.image 1024; for method in raw zlib; do python3 DMG raw $method.image $method 32; done"
            .replace("DMG", concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/dmg.py"))
            .as_str(),
    );
    packed_images(&scratch, "image")
}

/// Small volumes, packed.
fn hfsplus() -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/hfsplus.py");
    scratch.shell(&format!(
        r"command -v python3 > found || exit 0
        mkdir -p t/d/deep; seq 9000 > t/d/numbers; cp t/d/numbers t/n.scattered; seq 900 > t/a.cmp3; for kind in 4 8 12; do seq 20000 > t/b.cmp$kind; done
        ln -s d/deep t/link; ln t/d/numbers t/hard; : > t/empty; seq 9 > t/resource:empty; for i in $(seq 60); do : > t/d/a-file-with-a-name-$i; done
        setfattr -n user.name -v value t/empty; python3 {script} t a.volume 512; python3 {script} t b.volume 4096"
    ));
    packed_images(&scratch, "volume")
}

/// Small images of NTFS, packed.
fn ntfs() -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    scratch.shell(
        r"command -v mkntfs > found && command -v ntfscp >> found || exit 0
        make() { truncate -s $2 $1.volume; mkntfs -Q -F -L LABEL -c $3 $1.volume >> log 2>&1; for file in nine numbers empty; do ntfscp $1.volume $file $file >> log 2>&1; done
            ntfscp -N stream $1.volume nine numbers >> log 2>&1; }
        seq 9 > nine; seq 9000 > numbers; : > empty; make small 1200K 512; make large 2M 4096",
    );
    packed_images(&scratch, "volume")
}

/// Small images without checksums, packed.
fn erofs() -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    scratch.shell(
        r#"command -v mkfs.erofs > found || exit 0
        mkdir -p e/d/deep; seq 9000 > e/d/numbers; seq 9 > e/d/deep/nine; : > e/empty; ln -s d/deep link; mv link e; ln e/d/numbers e/hard; truncate -s 50000 e/holes
        for i in $(seq 60); do : > e/d/a-file-with-a-name-$i; done; setfattr -n user.name -v value e/empty e/d/deep/nine || true
        make() { mkfs.erofs -Enosbcrc "${@:2}" $1.image e >> log 2>&1 || mkfs.erofs "${@:2}" $1.image e >> log 2>&1 || rm -f $1.image; }
        make plain; make chunks -Eforce-chunk-indexes --chunksize=4096; make packed -zlz4; make legacy -zlz4 -Elegacy-compress
        make large -zlz4hc -C65536; make tails -zlz4hc -Eztailpacking; make blockmap -Eforce-inode-blockmap --chunksize=4096; make long -Eforce-inode-extended"#,
    );
    packed_images(&scratch, "image")
}

/// The files in a folder that end so, packed.
fn packed_images(scratch: &support::Scratch, end: &str) -> Vec<Vec<u8>> {
    let mut found: Vec<_> = std::fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == end));
    found.sort();
    found.iter().map(|path| udf_image::packed(&std::fs::read(path).unwrap())).collect()
}

/// Images of each kind of partition, and one that ISO 9660 describes, too.
fn udf() -> Vec<Vec<u8>> {
    let mut seeds = udf_image::KINDS.map(|kind| udf_image::packed(&udf_image::sample(kind))).to_vec();
    let scratch = support::Scratch::new();
    scratch.shell(
        "command -v genisoimage > found || exit 0; mkdir t; seq 9 > t/nine; genisoimage -quiet -udf -o a.iso t 2> log || cat log",
    );
    seeds.extend(std::fs::read(scratch.path("a.iso")));
    seeds
}

/// Small archives with that end of their names.
fn small(suffix: &str) -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/archives/small");
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.to_string_lossy().ends_with(suffix));
    found.sort();
    found.iter().map(|path| std::fs::read(path).unwrap()).filter(|bytes| bytes.len() <= 20 << 10).collect()
}

/// Packages, with payloads that are compressed or not.
fn packages(suffix: &str) -> Vec<Vec<u8>> {
    let scratch = support::Scratch::new();
    scratch.shell(
        "mkdir t; seq 99 > t/nine; ln -s nine t/link; echo 2.0 > debian-binary
        tar -b1 -C t -cf control.tar nine; tar -b1 -C t -cf data.tar nine link; gzip -k control.tar data.tar; xz -k data.tar
        if command -v ar > found; then
            ar rcD stored.deb debian-binary control.tar data.tar; ar rcD gzip.deb debian-binary control.tar.gz data.tar.gz
            ar rcD xz.deb debian-binary control.tar.gz data.tar.xz
        fi
        command -v rpmbuild > found || exit 0
        printf 'Name: x\nVersion: 1\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\n%%description\nx\n%%install\n' > x.spec
        printf 'mkdir -p %%{buildroot}/d; seq 99 > %%{buildroot}/d/a; ln %%{buildroot}/d/a %%{buildroot}/d/b; ln -s a %%{buildroot}/d/l\n%%files\n/d\n' >> x.spec
        for payload in w9.gzdio w3.zstdio w.ufdio; do
            rpmbuild -bb --define \"_topdir $PWD/top\" --define \"_binary_payload $payload\" x.spec > log 2>&1 || cat log
            find top/RPMS -name '*.rpm' -exec mv {} $payload.rpm ';'
        done",
    );
    let mut found: Vec<_> = std::fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.to_string_lossy().ends_with(suffix));
    found.sort();
    found.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Small archives of real RARs.
fn rar() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/archives/rar");
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_none_or(|extension| extension != "md"));
    found.sort();
    found.iter().map(|path| std::fs::read(path).unwrap()).filter(|bytes| bytes.len() <= 16 << 10).collect()
}

/// Bytes that choose what is changed in an index.
fn choices() -> Vec<Vec<u8>> {
    let mut random = Random(7);
    (0..40)
        .map(|number| {
            let length = [5, 9, 17, 41][number % 4];
            (0..length).map(|_| random.byte()).collect()
        })
        .collect()
}

/// Runs a target over its seeds, then over as many changed ones as are asked for.
fn smoke(name: &str, target: fn(&[u8]), seeds: &[Vec<u8>]) {
    if seeds.is_empty() {
        println!("{name}: no tool here makes seeds for it; left out");
        return;
    }
    let runs = std::env::var("TARNFS_SMOKE_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let started = Instant::now();
    let mut random = Random(name.bytes().map(u64::from).sum());
    for seed in seeds {
        target(seed);
    }
    let mut ran = 0;
    while ran < runs && started.elapsed() < LONGEST {
        let seed = &seeds[random.below(seeds.len())];
        let other = &seeds[random.below(seeds.len())];
        let input = random.change(seed, other);
        // What fails is shown, so that it can go to tests/found.
        let failed = std::panic::catch_unwind(|| target(&input));
        if let Err(panic) = failed {
            let kept = std::env::temp_dir().join(format!("{name}-smoke-{ran}.bin"));
            std::fs::write(&kept, &input).ok();
            println!("{name}: input {ran} of {} bytes is in {}", input.len(), kept.display());
            std::panic::resume_unwind(panic);
        }
        ran += 1;
    }
    println!("{name}: {ran} inputs from {} seeds", seeds.len());
}

macro_rules! targets {
    ($($target:ident: $seeds:expr;)*) => {
        $(mod $target {
            #[test]
            fn survives() {
                use super::*;
                let seeds: Vec<Vec<u8>> = $seeds;
                smoke(stringify!($target), |data| { let _ = entry_points::$target(data); }, &seeds);
            }
        })*
    };
}

targets! {
    tar: vec![tree()];
    zip: seeds(".zip");
    cpio: seeds(".cpio");
    ar: seeds(".ar");
    differential: if support::have("python3") { vec![tree()] } else { Vec::new() };
    rpm: packages(".rpm");
    deb: packages(".deb");
    cab: small(".cab");
    xar: small(".xar");
    containers: small(".image.tar");
    asar: small(".asar");
    warc: small(".warc");
    mtree: vec![b"#mtree\n/set type=file\n. type=dir\n a\\040b size=9 mode=644 \\\n sha1=x\n d type=dir\n  l type=link link=a\n ..\n".to_vec()];
    sqlar: small(".sqlar");
    wim: small(".wim");
    lha: small(".lzh");
    mail: small(".mbox");
    html: small(".html");
    ogg: small(".ogg");
    pdf: small(".pdf");
    text: small(".mbox");
    arj: small(".arj");
    rar: rar();
    rar_decoder: rar();
    sevenzip: seven_zip();
    squashfs: squashfs();
    disk_image: disk_image();
    erofs: erofs();
    exfat: fat("exfat");
    ext: ext();
    fat: fat("fat");
    hfsplus: hfsplus();
    iso9660: iso9660();
    ntfs: ntfs();
    partitions: fat("disk");
    udf: udf();
    names: vec![b"../../a".to_vec(), b"/a//./b/".to_vec(), b"\xf0\xf2/\x83\x65\x00\n".to_vec()];
    gzip: seeds(".gz");
    zlib: zlib();
    deflate: deflated();
    bzip2: seeds(".bz2");
    xz: seeds(".xz");
    lzma: seeds(".lzma");
    lzip: seeds(".lz");
    lzma2: seeds(".lzma2");
    zstd: seeds(".zst");
    zstd_differential: seeds(".zst");
    zstd_dictionary: seeds(".dictionary");
    lz4: seeds(".lz4");
    compress: seeds(".Z");
    lzop: seeds(".lzo");
    lrzip: seeds(".lrz");
    snappy: snappy();
    brotli: seeds(".br");
    index: choices();
    ratarmount: choices();
    rows: choices();
}

/// Nobody forgets to list a new target here.
#[test]
fn every_target_is_run() {
    let targets = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets")).unwrap();
    let this = include_str!("smoke.rs");
    for target in targets {
        let name = target.unwrap().file_name().to_string_lossy().replace(".rs", "");
        assert!(this.contains(&format!("    {name}: ")), "{name} is not run");
    }
}
