//! The fuzz targets' entry points on stable Rust: over what fuzzing has found, over the archives of the corpus and what
//! is near them, and over indexes that were changed.

use std::fs;
use std::path::Path;

use crate::entry_points;
use crate::support;

/// Larger files are read by other tests; here each is decoded many times.
const LARGEST: u64 = 64 << 10;

fn compare(data: &[u8]) {
    entry_points::differential(data);
}

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 57] = [
    ("tar", entry_points::tar),
    ("cpio", entry_points::cpio),
    ("ar", entry_points::ar),
    ("zip", entry_points::zip),
    ("differential", compare),
    ("rpm", entry_points::rpm),
    ("deb", entry_points::deb),
    ("cab", entry_points::cab),
    ("xar", entry_points::xar),
    ("containers", entry_points::containers),
    ("asar", entry_points::asar),
    ("warc", entry_points::warc),
    ("mtree", entry_points::mtree),
    ("wim", entry_points::wim),
    ("sqlar", entry_points::sqlar),
    ("lha", entry_points::lha),
    ("mail", entry_points::mail),
    ("html", entry_points::html),
    ("ogg", entry_points::ogg),
    ("pdf", entry_points::pdf),
    ("text", entry_points::text),
    ("arj", entry_points::arj),
    ("rar", entry_points::rar),
    ("rar_decoder", entry_points::rar_decoder),
    ("sevenzip", entry_points::sevenzip),
    ("squashfs", entry_points::squashfs),
    ("disk_image", entry_points::disk_image),
    ("erofs", entry_points::erofs),
    ("exfat", entry_points::exfat),
    ("ext", entry_points::ext),
    ("fat", entry_points::fat),
    ("hfsplus", entry_points::hfsplus),
    ("iso9660", entry_points::iso9660),
    ("ntfs", entry_points::ntfs),
    ("partitions", entry_points::partitions),
    ("udf", entry_points::udf),
    ("names", entry_points::names),
    ("gzip", entry_points::gzip),
    ("zlib", entry_points::zlib),
    ("deflate", entry_points::deflate),
    ("bzip2", entry_points::bzip2),
    ("xz", entry_points::xz),
    ("lzma", entry_points::lzma),
    ("lzip", entry_points::lzip),
    ("lzma2", entry_points::lzma2),
    ("zstd", entry_points::zstd),
    ("zstd_differential", entry_points::zstd_differential),
    ("zstd_dictionary", entry_points::zstd_dictionary),
    ("lz4", entry_points::lz4),
    ("compress", entry_points::compress),
    ("lzop", entry_points::lzop),
    ("lrzip", entry_points::lrzip),
    ("snappy", entry_points::snappy),
    ("brotli", entry_points::brotli),
    ("index", entry_points::index),
    ("ratarmount", entry_points::ratarmount),
    ("rows", entry_points::rows),
];

/// Numbers that are the same in each run: a failure can be seen again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// Flips a few bits.
    fn damage(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << self.below(8);
            }
        }
        bytes
    }

    fn cut(&mut self, seed: &[u8]) -> Vec<u8> {
        seed[..self.below(seed.len())].to_vec()
    }
}

/// Archives in every dialect, changed: each member that Python lists is told with the same name, size and place. The
/// list of differences on purpose is in `fuzz/src/differential.rs`.
#[test]
fn python_reads_the_same_members() {
    if !support::have("python3") {
        return;
    }
    let scratch = support::Scratch::new();
    scratch.shell(
        r"mkdir -p tree/folder; cd tree; echo hello > file; seq 200 > folder/numbers; : > empty; ln -s file link; ln file hard; mkfifo fifo
        echo long > folder/$(printf 'n%.0s' $(seq 150)); truncate -s 20k sparse; echo end >> sparse; cd ..
        tar --format=v7 -b1 -C tree -cf v7.tar file empty folder/numbers link hard
        for format in oldgnu gnu posix; do tar --format=$format -b1 -C tree -cf $format.tar .; tar --format=$format -S -b1 -C tree -cf $format-sparse.tar .; done
        tar --format=ustar -b1 -C tree --exclude='*nnn*' -cf ustar.tar .; tar --format=gnu -g snapshot -b1 -C tree -cf dump.tar .",
    );
    let mut seeds: Vec<_> = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.retain(|path| path.extension().is_some_and(|extension| extension == "tar"));
    seeds.sort();
    let mut random = Random(12);
    let (mut cases, mut compared) = (0, 0);
    for path in &seeds {
        let seed = fs::read(path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        // Dumps have times where Python sees a part of the path.
        assert!(entry_points::differential(&seed) || name == "dump.tar", "{name}: nothing was compared");
        for case in 0..150 {
            let mut bytes = seed.clone();
            // In headers, where changes matter.
            let headers: Vec<_> =
                (0..seed.len() / 512).filter(|at| &seed[at * 512 + 257..at * 512 + 262] == b"ustar").collect();
            for _ in 0..=random.below(3) {
                let block = if headers.is_empty() {
                    random.below(seed.len() / 512)
                } else {
                    headers[random.below(headers.len())]
                };
                let at = block * 512 + random.below(512);
                bytes[at] = if random.below(2) == 0 { b'0' + random.below(10) as u8 } else { random.below(256) as u8 };
            }
            println!("{name} {case}");
            cases += 1;
            compared += u32::from(entry_points::differential(&bytes));
        }
    }
    println!("{compared} of {cases} archives could be compared");
    assert!(compared * 2 > cases, "{compared} of {cases}");
}

/// What fuzzing has found, in files that are called after their target: `gzip-what-it-was.bin`.
#[test]
fn nothing_that_was_found_comes_back() {
    let mut replayed = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/found")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some((target, _)) = name.split_once('-').filter(|(_, rest)| rest.strip_suffix(".bin").is_some()) else {
            continue;
        };
        let (_, target) = TARGETS.iter().find(|(name, _)| *name == target).expect("it is called after a target");
        println!("{name}");
        target(&fs::read(path).unwrap());
        replayed += 1;
    }
    println!("{replayed} files");
}

#[test]
fn every_target_survives_the_corpus_and_what_is_near_it() {
    let Some(corpus) = support::corpus() else { return };
    let mut seeds = Vec::new();
    for folder in ["libarchive", "xz", "zstd/golden-decompression", "zstd/golden-decompression-errors"] {
        for entry in fs::read_dir(corpus.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && fs::metadata(&path).unwrap().len() <= LARGEST {
                seeds.push((path.clone(), fs::read(path).unwrap()));
            }
        }
    }
    seeds.sort();
    let mut random = Random(42);
    for (path, seed) in &seeds {
        let name = path.file_name().unwrap().to_string_lossy();
        for (target, run) in TARGETS {
            println!("{target} {name}");
            run(seed);
            // Foreign bytes are refused at their start; once suffices.
            let near = match target {
                "tar" => &["tar"][..],
                "gzip" => &["gz"],
                "bzip2" => &["bz"],
                "xz" => &[".xz", "txz"],
                "rpm" => &[".rpm"],
                "cab" => &[".cab"],
                "xar" => &[".xar"],
                "containers" => &[".image.tar"],
                "warc" => &[".warc"],
                "mtree" => &[".mtree"],
                "lha" => &[".lzh"],
                "rar" | "rar_decoder" => &["_rar"],
                "sevenzip" => &["format_7zip"],
                "lzma" => &["lzma"],
                "lzip" => &[".lz"],
                "zstd" | "zstd_differential" => &["zst"],
                "lz4" => &["lz4"],
                "brotli" => &[".br"],
                "snappy" => &[".sz"],
                "lzop" => &[".lzo"],
                "lrzip" => &[".lrz"],
                "compress" => &[".Z"],
                _ => &[],
            };
            if near.iter().any(|part| name.contains(part)) {
                for _ in 0..12 {
                    run(&random.cut(seed));
                    run(&random.damage(seed));
                }
            }
        }
    }
    assert!(seeds.len() > 250, "{} archives", seeds.len());
}

/// Chunks of LZMA2, changed: liblzma and the decoder of ours find the same bytes in them.
#[test]
fn liblzma_decodes_the_same_chunks() {
    let scratch = support::Scratch::new();
    scratch.shell(
        r"(seq 3000; head -c 20000 /dev/urandom; seq 3000) > mixed
        for options in preset=0 preset=6 preset=1,lc=0,lp=4,pb=0 preset=1,lc=1,lp=1,pb=4,dict=4KiB; do
            (printf ''; xz -c --format=raw --lzma2=$options mixed) > $options.lzma2
            (printf ''; head -c 300 mixed | xz -c --format=raw --lzma2=$options) > small-$options.lzma2
        done",
    );
    let mut random = Random(21);
    for path in fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "lzma2") {
            continue;
        }
        let seed = fs::read(&path).unwrap();
        entry_points::lzma2(&seed);
        for case in 0..200 {
            println!("{} {case}", path.display());
            entry_points::lzma2(&random.cut(&seed));
            entry_points::lzma2(&random.damage(&seed));
        }
    }
}

/// Dictionaries and frames, changed: libzstd takes the same dictionaries, and decodes the same bytes with them.
#[test]
fn libzstd_decodes_the_same_with_dictionaries() {
    let scratch = support::Scratch::new();
    scratch.shell(
        r"seq 3000 > text; split -b 100 text parts-; zstd -q --train parts-* --maxdict=2000 -o trained; head -c 3000 text > raw
        for dictionary in trained raw; do
            for options in -1 -19 '-3 --no-dictID' '-5 --zstd=wlog=10'; do
                name=$dictionary-${options// /}
                head -c 6000 text | zstd -q -c --no-check $options -D $dictionary > $name.frames
                tail -c 500 text | zstd -q -c --no-check $options -D $dictionary >> $name.frames
                cp $dictionary $name.dictionary
            done
        done",
    );
    let mut random = Random(22);
    for path in fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "frames") {
            continue;
        }
        let (dictionary, frames) = (fs::read(path.with_extension("dictionary")).unwrap(), fs::read(&path).unwrap());
        let run = |dictionary: &[u8], frames: &[u8]| {
            let length = (dictionary.len() as u16).to_le_bytes();
            entry_points::zstd_dictionary(&[&length, dictionary, frames].concat());
        };
        run(&dictionary, &frames);
        for case in 0..support::rounds(300, 20_000) {
            println!("{} {case}", path.display());
            run(&dictionary, &random.damage(&frames));
            run(&dictionary, &random.cut(&frames));
            // Its codes are at its start.
            let start = dictionary.len().min(200);
            run(&[&random.damage(&dictionary[..start]), &dictionary[start..]].concat(), &frames);
            run(&random.damage(&dictionary), &random.damage(&frames));
        }
    }
}

/// Images that are made here, and archives of real RARs.
#[test]
fn images_and_archives_of_rar_may_be_cut_and_damaged() {
    let scratch = support::Scratch::new();
    if support::have("genisoimage") && support::have("mkudffs") {
        scratch.shell(
            r#"mkdir -p t/a/b/c/d/e/f/g/h; seq 200 > t/numbers; ln -s numbers t/link; ln t/numbers t/hard; echo deep > t/a/b/c/d/e/f/g/h/deep
            for options in '' -R -J '-R -J' '-iso-level 4' '-R -z' '-R -udf'; do
                genisoimage -quiet -no-pad $options -o "image$options.iso" t 2> log
            done
            for revision in 0x0102 0x0150 0x0201; do truncate -s 1M $revision.iso; mkudffs -r $revision -b 512 $revision.iso > log; done"#,
        );
    }
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/rar");
    let mut seeds = Vec::new();
    for path in [scratch.path(""), archives].iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let path = path.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|suffix| suffix == "iso") {
            let image = fs::read(&path).unwrap();
            seeds.push((name.clone(), packed(&image), entry_points::udf as fn(&[u8])));
            seeds.push((name, image, entry_points::iso9660));
        } else if fs::metadata(&path).unwrap().is_file()
            && path.extension().is_none_or(|suffix| suffix != "md")
            && name != "log"
        {
            let archive = fs::read(&path).unwrap();
            seeds.push((name.clone(), archive.clone(), entry_points::rar));
            seeds.push((name, archive, entry_points::rar_decoder));
        }
    }
    seeds.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(seeds.len() > 80, "{}", seeds.len());
    let mut random = Random(18);
    for (name, seed, run) in &seeds {
        println!("{name}");
        run(seed);
        for _ in 0..support::rounds(4, 1000) {
            run(&random.cut(seed));
            run(&random.damage(seed));
        }
    }
}

/// Of an image, the blocks that are not zeros, as the target for UDF takes them.
fn packed(image: &[u8]) -> Vec<u8> {
    let mut packed = b"packed".to_vec();
    for (number, block) in image.chunks_exact(512).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0))
    {
        packed.extend((number as u16).to_le_bytes());
        packed.extend(block);
    }
    packed
}

#[test]
fn an_index_may_be_cut_and_damaged() {
    let mut random = Random(7);
    for template in entry_points::templates() {
        let own = (&template.own, entry_points::index as fn(&[u8]));
        let foreign = template.foreign.as_ref().map(|foreign| (foreign, entry_points::ratarmount as fn(&[u8])));
        for (sidecar, run) in [Some(own), foreign].into_iter().flatten() {
            println!("{}", template.name);
            run(&sidecar.bytes);
            for _ in 0..60 {
                run(&random.cut(&sidecar.bytes));
                run(&random.damage(&sidecar.bytes));
            }
        }
    }
}

#[test]
fn rows_of_an_index_may_lie() {
    let mut random = Random(3);
    for _ in 0..3000 {
        let length = 5 + random.below(20);
        entry_points::rows(&random.bytes(length));
    }
}
