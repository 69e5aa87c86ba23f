//! `tarnfs check`, and `tarnfs cat --range`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{self, Ran, Scratch, run};

fn check(scratch: &Scratch, archive: &str) -> Ran {
    run(scratch, [Path::new("check"), &scratch.path(archive)])
}

fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

const COMPRESSORS: [(&str, &str); 7] = [
    ("gz", "gzip -1"),
    ("bz2", "bzip2 -1"),
    ("xz", "xz -1"),
    ("lzma", "xz -1 --format=lzma"),
    ("zst", "zstd -q -c"),
    ("lz4", "lz4 -q -c"),
    ("tar", "cat"),
];

#[test]
fn whole_archives_are_whole_and_damage_is_told_with_its_place() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1 300000 > tree/numbers; head -c 300000 /dev/urandom > tree/noise");
    let mut names = Vec::new();
    for (suffix, compressor) in COMPRESSORS {
        let name = format!("a.{suffix}");
        scratch.shell(&format!("tar -C tree -c . | {compressor} > {name}"));
        let whole = check(&scratch, &name);
        assert!(whole.code == 0 && whole.text().contains("whole: 2 files with "), "{name}: {whole:?}");
        let length = fs::metadata(scratch.path(&name)).unwrap().len();
        // In a plain tar only headers have checksums, and .lzma has none; but a cut is seen in all of them.
        if !["tar", "lzma"].contains(&suffix) {
            flip(&scratch.path(&name), length / 2);
            let damaged = check(&scratch, &name);
            assert!(damaged.code == 5 && damaged.text().contains(": damaged at byte "), "{name}: {damaged:?}");
            flip(&scratch.path(&name), length / 2);
        }
        scratch.shell(&format!("head -c {} {name} > cut.{suffix}", length / 2));
        let cut = check(&scratch, &format!("cut.{suffix}"));
        assert!(cut.code == 5 && cut.text().contains("damaged at byte"), "{name}: {cut:?}");
        names.push(scratch.path(name));
    }
    // Several at once: each has its line, and one that is none does not hide the others.
    fs::write(scratch.path("none"), "no archive").unwrap();
    let all = run(&scratch, [Path::new("check").into(), scratch.path("none")].into_iter().chain(names));
    assert_eq!((all.code, all.text().lines().count()), (4, COMPRESSORS.len()), "{all:?}");
    assert!(!scratch.path("a.gz.tarnfs.sqlite").exists(), "nothing is written");
}

/// Which bytes are meant, those of the file or those that come out of it, is said in the same words for all codecs.
#[test]
fn damage_is_told_in_the_same_words_for_all_codecs() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1 20000 > tree/a; seq 30000 60000 > tree/b; tar -C tree --sort=name -cf a.tar a b");
    // Numbers depend on the versions of the tools: N stands for each.
    let without_numbers = |text: &str| {
        let words = text.replace("CRC-32", "CRC").replace("CRC-64", "CRC").replace("Adler-32", "Adler");
        let mut shown = String::new();
        for character in words.chars() {
            match character {
                '0'..='9' if shown.ends_with('N') => {}
                '0'..='9' => shown.push('N'),
                other => shown.push(other),
            }
        }
        shown
    };
    let lines = |name: &str| {
        let mut command = support::tarnfs(&scratch);
        let ran = Ran::from(command.args(["check", name]).current_dir(scratch.path("")).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (5, ""), "{name}");
        without_numbers(&ran.text())
    };
    let force = "; --force serves what of it can be decoded";
    let all = format!("NAME: N of N files are damaged{force}\nNAME: damaged: a\nNAME: damaged: b\n");
    let end = "of the compressed file; what comes before it is served\n";
    for (suffix, tool, checksum, wrong, cut_in) in [
        ("gz", "gzip -nc", 8, "gzip: the CRC of a gzip member does not match its data", "deflate data"),
        ("xz", "xz -c", 28, "xz: the check of an xz block does not match its data", "a block"),
        ("zst", "zstd -qc", 1, "zstd: the XXHN of a zstd frame does not match its data", "a block"),
        ("lz", "lzip -c", 20, "lzip: the CRC of an lzip member does not match its data", "the LZMA data"),
    ] {
        if !support::have(tool.split(' ').next().unwrap()) {
            continue;
        }
        let name = format!("b.{suffix}");
        scratch.shell(&format!("{tool} < a.tar > {name}"));
        let length = fs::metadata(scratch.path(&name)).unwrap().len();
        flip(&scratch.path(&name), length - checksum);
        let places = "between bytes N and N of the compressed file\n";
        let expected = format!("NAME: damaged at byte N of the decoded data: {wrong}, {places}{all}");
        assert_eq!(lines(&name), expected.replace("NAME", &name), "{suffix}");
        // A mount and `ls` warn in the same words.
        let warned = run(&scratch, [Path::new("ls"), &scratch.path(&name)]).err;
        assert!(without_numbers(&warned).contains(&format!("of the decoded data: {wrong}, {places}")), "{warned}");
        // Its last quarter is gone.
        scratch.shell(&format!("head -c $(({length} * 3 / 4)) {name} > cut.{suffix}"));
        let cut = lines(&format!("cut.{suffix}"));
        let codec = wrong.split_once(':').unwrap().0;
        let told = format!(
            "cut.{suffix}: damaged at byte N of the decoded data: {codec}: the compressed file is cut short inside \
             {cut_in}, at byte N {end}"
        );
        assert!(cut.contains(&told), "{told}{cut}");
        // Of one zstd block nothing comes out, and what is in it is not known to be a tar.
        let named = [format!(" is damaged\ncut.{suffix}: damaged: b\n"), ": the file in it is damaged\n".to_owned()];
        assert!(named.iter().any(|end| cut.ends_with(end)), "{cut}");
    }
    // What is read says so, too.
    let ran = run(&scratch, ["cat".as_ref(), scratch.path("b.gz").as_os_str(), "a".as_ref()]);
    let length = fs::metadata(scratch.path("b.gz")).unwrap().len();
    let decoded = fs::metadata(scratch.path("a.tar")).unwrap().len();
    let error = format!(
        "a: bytes 0 to {decoded} of the decoded data are damaged: the CRC-32 of a gzip member does not match its data, \
         found at byte {length} of the compressed file\n"
    );
    assert!(ran.err.ends_with(&error), "{error}{}", ran.err);
    // Without compression there is only the file.
    scratch.shell("head -c 200000 a.tar > cut.tar");
    let told = "cut.tar: damaged at byte N of the file: the archive ends after N of the N bytes of the entry whose \
                header is at byte N\n";
    let counted = "cut.tar: N of N files is damaged\ncut.tar: damaged: b\n";
    assert_eq!(lines("cut.tar"), format!("{told}{counted}"));
    // A compressed file of no archive.
    scratch.shell("gzip -nc tree/a > c.gz");
    flip(&scratch.path("c.gz"), fs::metadata(scratch.path("c.gz")).unwrap().len() - 8);
    assert!(lines("c.gz").ends_with(&format!("c.gz: the file in it is damaged{force}\n")));
}

/// What is damaged is told by its path, as far as that is a help.
#[test]
fn damaged_files_are_named() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/in; for n in $(seq 10 34); do echo $n > tree/in/$n; done; ln -s in tree/link; ln tree/in/10 tree/hard
         tar --sort=name -C tree -czf many.tar.gz in hard link; seq 100000 > tree/in/large
         tar -C tree -cf cut.tar in/11 in/large; truncate -s 100000 cut.tar",
    );
    let ran = |words: &[&str]| {
        let mut command = support::tarnfs(&scratch);
        Ran::from(command.args(words).current_dir(scratch.path("")).output().unwrap())
    };
    assert_eq!(ran(&["check", "many.tar.gz"]).ok().text(), "many.tar.gz: whole: 26 files with 75 bytes of content\n");
    let archive = scratch.path("many.tar.gz");
    flip(&archive, fs::metadata(&archive).unwrap().len() - 8);
    let (few, all) = (ran(&["check", "many.tar.gz"]).text(), ran(&["check", "-d2", "many.tar.gz"]).text());
    let (few, all): (Vec<_>, Vec<_>) = (few.lines().skip(1).collect(), all.lines().skip(1).collect());
    let first = "many.tar.gz: 26 of 26 files are damaged; --force serves what of it can be decoded";
    assert_eq!([few[0], all[0]], [first; 2]);
    assert_eq!((few.len(), all.len()), (22, 27), "{few:?}");
    assert_eq!(all[1..3], ["many.tar.gz: damaged: hard", "many.tar.gz: damaged: in/10"]);
    assert!(few[1..21].iter().all(|line| all.contains(line)) && few[21] == "many.tar.gz: and 6 more; -d 2 names all");
    // One of them, and how.
    let stat = ran(&["stat", "many.tar.gz", "in/12"]);
    let wrong = "the CRC-32 of a gzip member does not match its data";
    let line = stat.text().lines().find(|line| line.starts_with("Damage: ")).map(str::to_owned);
    assert_eq!((stat.code, line), (5, Some(format!("Damage: {wrong}"))));
    assert!(ran(&["stat", "--json", "many.tar.gz", "in/12"]).text().contains(&format!("\"damage\":\"{wrong}\"")));
    // What a cut has taken the end of.
    let stat = ran(&["stat", "--force", "cut.tar", "in/11", "in/large"]).text();
    let lines: Vec<_> = stat.lines().filter(|line| line.starts_with("Damage") || line.starts_with(" xattr")).collect();
    assert_eq!(
        lines,
        ["Damage: the archive ends before its end", " xattr: user.tarnfs.damaged=the archive ends before its end"]
    );
    if !support::can_mount() {
        return;
    }
    let log = scratch.path("log");
    let mounted = support::Mounted::any(&scratch, scratch.path("cut.tar"), &["--log-file", log.to_str().unwrap()]);
    assert!(fs::read(mounted.path("in/large")).is_err() && fs::read(mounted.path("in/11")).unwrap() == b"11\n");
    drop(mounted);
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("read of ")).collect();
    assert!(matches!(lines[..], [line] if line.contains(": read of in/large at byte ")), "{log}");
}

/// A tar that was cut is told of in one line, and -i is advised to nobody whom it would not help.
#[test]
fn a_tar_that_was_cut_is_no_other_one_behind_the_end() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; echo two > two; tar -cf a.tar one two");
    for cut in [1024 + 300, 1024 + 511, 1024 + 512, 1024 + 514] {
        scratch.shell(&format!("head -c {cut} a.tar > cut.tar"));
        for words in [&["ls"][..], &["ls", "-i"], &["check"], &["check", "-i"]] {
            let archive = scratch.path("cut.tar");
            let ran = run(&scratch, words.iter().copied().chain([archive.to_str().unwrap()]));
            let said = ran.text() + &ran.err;
            assert!(!said.contains("-i reads") && !said.contains("behind the end"), "{cut} {words:?}: {said}");
            assert_eq!(ran.code, 5, "{cut} {words:?}: {said}");
            assert!(words[0] == "check" || ran.err.lines().count() == 1, "{cut} {words:?}: {said}");
        }
    }
}

/// Archives that were joined as files are: nobody reads what lies behind the first without `-i`.
#[test]
fn what_lies_behind_the_end_is_told() {
    let scratch = Scratch::new();
    scratch.shell(
        "echo one > one; echo two > two; tar -cf a.tar one; tar -cf b.tar two; cat a.tar b.tar > both.tar
         gzip -nk both.tar; (cat a.tar; echo rubbish) > more.tar; (cat a.tar; head -c 20M /dev/zero) > zeros.tar
         (cat a.tar; printf x) > byte.tar",
    );
    let ran = |words: &[&str]| {
        let mut command = support::tarnfs(&scratch);
        Ran::from(command.args(words).current_dir(scratch.path("")).output().unwrap())
    };
    let whole = "whole: 1 file with 4 bytes of content, which has no checksums to compare";
    let behind = "behind the end of the archive, at byte 10240, are 10240 more bytes; they look like another tar: -i reads them, too";
    for (name, expected) in [
        ("both.tar", format!("NAME: {whole}\nNAME: {behind}\n")),
        ("both.tar.gz", format!("NAME: whole: 1 file with 4 bytes of content\nNAME: {behind}\n")),
        (
            "more.tar",
            "NAME: WHOLE\nNAME: behind the end of the archive, at byte 10240, are 8 more bytes; \
             they are no tar\n"
                .to_owned(),
        ),
        (
            "byte.tar",
            "NAME: WHOLE\nNAME: behind the end of the archive, at byte 10240, is 1 more byte; it is \
             no tar\n"
                .to_owned(),
        ),
        ("zeros.tar", format!("NAME: {whole}\n")),
    ] {
        let checked = ran(&["check", name]);
        assert_eq!((checked.code, checked.err.as_str()), (0, ""), "{name}");
        assert_eq!(checked.text(), expected.replace("NAME", name).replace("WHOLE", whole));
    }
    assert_eq!(
        ran(&["check", "-i", "both.tar"]).ok().text(),
        "both.tar: whole: 2 files with 8 bytes of content, which has no checksums to compare\n"
    );
    if !support::can_mount() {
        return;
    }
    let at = scratch.path("at");
    for (is_first, expected) in [(true, format!("tarnfs: warning: PATH: {behind}\n")), (false, String::new())] {
        let mounted = ran(&["--index-minimum-file-count=0", "both.tar", "at"]);
        let expected = expected.replace("PATH", scratch.path("both.tar").to_str().unwrap());
        assert_eq!((mounted.code, mounted.err), (0, expected), "{is_first}");
        run(&scratch, [Path::new("-u"), &at]).ok();
    }
}

/// Zeros that end a tar do so, whatever stands behind the stream in which it lies: another archive there shows nothing.
#[test]
fn no_archive_behind_garbage_takes_the_place_of_the_one_before_it() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p o/etc i/etc; echo outer > o/etc/passwd; head -c 30000 /dev/urandom > o/noise
         echo inner > i/etc/passwd; echo hidden > i/etc/shadow; tar -C o -cf o.tar etc noise; tar -C i -cf i.tar etc",
    );
    let others = [("lz", "lzip"), ("lzo", "lzop -c")];
    for (suffix, compressor) in COMPRESSORS.into_iter().filter(|(suffix, _)| *suffix != "tar").chain(others) {
        for garbage in ["printf 'some garbage'", "head -c 512 /dev/urandom", ":"] {
            scratch.shell(&format!("{compressor} < o.tar > o.z; {compressor} < i.tar > i.z"));
            let is_wrong = suffix == "gz" && garbage == ":";
            if is_wrong {
                // Its checksum.
                let first = scratch.path("o.z");
                flip(&first, fs::metadata(&first).unwrap().len() - 6);
            }
            scratch.shell(&format!("(cat o.z; {garbage}; cat i.z) > a.tar.{suffix}"));
            let archive = scratch.path(format!("a.tar.{suffix}"));
            let archive = archive.to_str().unwrap();
            let shown = run(&scratch, ["cat", archive, "etc/passwd"]).text();
            assert!(shown == "outer\n" || is_wrong && shown.is_empty(), "{suffix} {garbage}: {shown}");
            let found = run(&scratch, ["find", archive]).text();
            assert!(!found.contains("shadow"), "{suffix} {garbage}: {found}");
        }
    }
}

/// Nobody reads through terabytes that are not there.
#[test]
fn a_hole_behind_the_end_is_not_read() {
    let scratch = Scratch::new();
    scratch.shell("echo one > one; tar -cf hole.tar one; truncate -s 4T hole.tar");
    scratch.shell("cp --sparse=always hole.tar more.tar; printf x >> more.tar");
    let whole = "whole: 1 file with 4 bytes of content, which has no checksums to compare";
    let more = "behind the end of the archive, at byte 4398046511104, is 1 more byte; it is no tar";
    for (name, expected) in
        [("hole.tar", format!("hole.tar: {whole}\n")), ("more.tar", format!("more.tar: {whole}\nmore.tar: {more}\n"))]
    {
        let mut command = support::behind(&scratch, &["timeout", "300"]);
        let ran = Ran::from(command.args(["check", name]).current_dir(scratch.path("")).output().unwrap());
        assert_eq!((ran.code, ran.text()), (0, expected), "{}", ran.err);
    }
}

#[test]
fn an_index_that_does_not_match_the_archive_is_told() {
    let scratch = Scratch::new();
    // Without a checksum of zstd, what rots in bytes that could not be compressed goes unseen by everybody else.
    scratch.shell(
        "mkdir tree; head -c 20000000 /dev/urandom > tree/noise; tar -C tree -c . | zstd -q --no-check > a.tar.zst",
    );
    let archive = scratch.path("a.tar.zst");
    let name = archive.to_str().unwrap();
    run(&scratch, ["index", name]).ok();
    check(&scratch, "a.tar.zst").ok();
    flip(&archive, 7_000_001);
    assert_eq!(run(&scratch, ["index", "--no-recreate-index", name]).code, 0, "no sample lies there");
    let wrong = check(&scratch, "a.tar.zst");
    assert!(
        wrong.code == 7
            && wrong.text().contains("differ (the archive was changed after it was indexed): its checksums"),
        "{wrong:?}"
    );
    assert!(wrong.text().contains("whole: 1 file with "), "{wrong:?}");
    run(&scratch, ["index", "-c", name]).ok();
    check(&scratch, "a.tar.zst").ok();
}

/// What is damaged in the archive is said all the same, and decides how it ends.
/// What GNU tar does not extract: a name that leads out, and one behind a link to elsewhere.
#[test]
fn names_that_are_others_than_in_the_archive_are_told() {
    let scratch = Scratch::new();
    scratch.shell(
        "python3 -c \"
import io, tarfile
def add(tar, name, **more):
    entry = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(entry, key, value)
    tar.addfile(entry, io.BytesIO(b'x' * entry.size))
with tarfile.open('out.tar', 'w') as tar:
    add(tar, 'd/../../up', size=1)
with tarfile.open('more.tar', 'w') as tar:
    for name in ['../up', '../too', 'plain', 'l' * 300]:
        add(tar, name, size=1)
with tarfile.open('link.tar', 'w') as tar:
    add(tar, 'd/l', type=tarfile.SYMTYPE, linkname='/tmp')
    add(tar, 'd/l/p', size=1)
    add(tar, 'both', size=1)
    add(tar, 'both', size=2)
    add(tar, 'm', type=tarfile.SYMTYPE, linkname='d')
    add(tar, 'm', type=tarfile.DIRTYPE)
with tarfile.open('links.tar', 'w') as tar:
    for name in 'ab':
        add(tar, name, type=tarfile.SYMTYPE, linkname='/tmp')
        add(tar, name + '/p', size=1)
\"
         gzip -k more.tar",
    );
    let says = |words: &[&str]| {
        let ran = Ran::from(support::tarnfs(&scratch).args(words).current_dir(scratch.path("")).output().unwrap());
        (ran.code, ran.text(), ran.err)
    };
    let more = "3 names are not as they are stored, for `..` in them or their length: ../up, ...";
    for (archive, files, bytes, what) in [
        ("out.tar", "1 file", "1 byte", "one name is not as it is stored, for `..` in it or its length: d/../../up"),
        ("more.tar", "4 files", "4 bytes", more),
        ("link.tar", "2 files", "3 bytes", "d/l is a folder, for what is in it, and its own entry is hidden"),
        (
            "links.tar",
            "2 files",
            "2 bytes",
            "2 names are folders, for what is in them, and their own entries are hidden: a, ...",
        ),
    ] {
        let whole = format!("{archive}: whole: {files} with {bytes} of content, which has no checksums to compare\n");
        assert_eq!(says(&["check", archive]), (0, format!("{whole}{archive}: {what}\n"), String::new()));
        let extracted = says(&["extract", "-C", &format!("to-{archive}"), archive]);
        assert_eq!(extracted, (0, String::new(), format!("tarnfs: warning: {archive}: {what}\n")));
    }
    // Also from an index.
    assert_eq!(says(&["index", "more.tar.gz"]).0, 0);
    for _ in 0..2 {
        let extracted = says(&["extract", "--skip-old", "-C", "to-more.tar", "more.tar.gz"]);
        assert_eq!(extracted, (0, String::new(), format!("tarnfs: warning: more.tar.gz: {more}\n")));
    }
}

#[test]
fn damage_is_told_where_the_index_cannot_be_read() {
    let scratch = Scratch::new();
    scratch
        .shell("mkdir tree; seq 1 200000 > tree/numbers; echo in > tree/other; tar -C tree -c . | gzip -1 > a.tar.gz");
    let (archive, index) = (scratch.path("a.tar.gz"), scratch.path("a.tar.gz.tarnfs.sqlite"));
    let spoil = || {
        let done = rusqlite::Connection::open(&index)
            .unwrap()
            .execute_batch("UPDATE classes SET mode = 99999 WHERE type = 32768");
        done.unwrap();
    };
    let name = archive.to_str().unwrap();
    run(&scratch, ["index", "-c", name]).ok();
    spoil();
    let only_index = check(&scratch, "a.tar.gz");
    assert!(only_index.code == 7 && only_index.err.contains("reading"), "{only_index:?}");
    assert!(only_index.text().contains("whole: 2 files"), "{only_index:?}");
    flip(&archive, fs::metadata(&archive).unwrap().len() / 2);
    assert_eq!(run(&scratch, ["index", "-c", name]).code, 5);
    spoil();
    let both = check(&scratch, "a.tar.gz");
    assert!(both.code == 5 && both.err.contains("reading"), "{both:?}");
    assert!(both.text().contains("damaged at byte"), "{both:?}");
}

/// Each of these is a small lie in one table.
#[test]
fn an_index_that_lies_is_told() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree inner; cd tree; echo first > A; echo secnd > B; ln -s A link; ln A hard; truncate -s 1M sparse
         printf x | dd of=sparse bs=1 seek=500000 conv=notrunc status=none; echo in > ../inner/f
         tar -C ../inner -czf inner.tar.gz f; tar --sparse -cf ../a.tar A B link hard sparse inner.tar.gz
         echo third > B; tar -rf ../a.tar B",
    );
    let archive = scratch.path("a.tar");
    let (name, index) = (archive.to_str().unwrap(), scratch.path("a.tar.tarnfs.sqlite"));
    let make = ["index", "-c", "-r", "--hashes", "sha256", name];
    run(&scratch, make).ok();
    let check = || run(&scratch, ["check", "-r", "--hashes", "sha256", name]);
    assert!(check().ok().text().contains("whole"));
    let whole = fs::read(&index).unwrap();
    let of = |name: &str| format!("(SELECT rowid FROM entries WHERE name = CAST('{name}' AS BLOB))");
    let at = |name: &str| format!("rowid = {}", of(name));
    for lie in [
        format!("UPDATE entries SET header = (SELECT header FROM entries WHERE {}) WHERE {}", at("B"), at("A")),
        format!("UPDATE entries SET mtime = mtime + 1 WHERE {}", at("A")),
        format!("UPDATE entries SET size = 5 WHERE {}; UPDATE entries SET size = 7 WHERE {}", at("A"), at("B")),
        format!("UPDATE entries SET name = CAST('C' AS BLOB) WHERE {}", at("B")),
        "UPDATE links SET target = CAST('B' AS BLOB)".to_owned(),
        format!("UPDATE hard_links SET shared = {}", of("B")),
        "UPDATE extents SET map = x'8080108001'".to_owned(),
        "UPDATE xattrs SET value = CAST('0' AS BLOB)".to_owned(),
        "UPDATE replaced SET header = header - 1".to_owned(),
        "UPDATE layers SET length = length - 1 WHERE layer = 1024".to_owned(),
        "UPDATE chunks SET checksums = x'00000000' WHERE layer = 1024".to_owned(),
        "INSERT INTO damage VALUES (1024, 0, 10, 0, 'planted')".to_owned(),
    ] {
        rusqlite::Connection::open(&index).unwrap().execute_batch(&lie).unwrap();
        let told = check();
        assert!(told.code == 7, "{lie}: {told:?}");
        fs::write(&index, &whole).unwrap();
    }
    assert!(check().ok().text().contains("whole"));
}

#[test]
fn a_part_is_written() {
    let scratch = Scratch::new();
    scratch
        .shell("mkdir tree; seq 1 2000000 > tree/numbers; echo more > tree/more; tar -C tree -cf a.tar numbers more");
    scratch.shell("gzip -1 < a.tar > a.tar.gz");
    let (tar, numbers) = (fs::read(scratch.path("a.tar")).unwrap(), fs::read(scratch.path("tree/numbers")).unwrap());
    for archive in ["a.tar.gz", "a.tar"] {
        let part = |range: &str, paths: &[&str]| {
            let archive = scratch.path(archive);
            run(&scratch, [&["cat", "--range", range, archive.to_str().unwrap()], paths].concat()).ok().out
        };
        assert!(part("5M:64K", &[]) == tar[5 << 20..(5 << 20) + (64 << 10)]);
        assert!(part("1000", &[]) == tar[1000..]);
        assert!(part("0:3", &["numbers", "more"]) == b"1\n2mor");
        assert!(part("3000001:", &["numbers"]) == numbers[3_000_001..]);
        assert!(part("1G:1G", &["numbers"]).is_empty());
        assert!(part("7:0", &[]).is_empty());
    }
    for range in ["", ":5", "a:b", "1:2:3", "-1"] {
        let refused = run(&scratch, ["cat", &format!("--range={range}"), scratch.path("a.tar").to_str().unwrap()]);
        assert_eq!(refused.code, 2, "{range}: {refused:?}");
    }
}

/// The most memory that `tarnfs` has with these arguments.
fn peak(scratch: &Scratch, arguments: &[&Path]) -> u64 {
    const MEASURE: &str = "import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)";
    let program = support::tarnfs(scratch);
    let mut command = std::process::Command::new("python3");
    command.args(["-c", MEASURE]).arg(program.get_program()).args(arguments).current_dir(scratch.path(""));
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// A small archive can have any number of folders whose paths are as long as a path may be.
#[test]
fn long_paths_are_not_kept_for_each_folder() {
    const MOST: u64 = 64 << 20;
    let scratch = Scratch::new();
    scratch.shell(
        r#"python3 -c '
import tarfile
above = "/".join(["d" * 249] * 250)
with tarfile.open("deep.tar.gz", "w:gz", format=tarfile.GNU_FORMAT, compresslevel=1) as tar:
    for number in range(4000):
        folder = tarfile.TarInfo(above + "/" + str(number))
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
'"#,
    );
    let archive = scratch.path("deep.tar.gz");
    let alone = peak(&scratch, &[Path::new("check"), &archive]);
    run(&scratch, [Path::new("index"), &archive]).ok();
    // Now there is something to compare it with.
    let compared = peak(&scratch, &[Path::new("check"), &archive]);
    assert!(compared < alone + MOST, "{alone} bytes, {compared} with an index");
    let [listed, searched] = [".", "**/none"].map(|path| peak(&scratch, &[Path::new("ls"), &archive, Path::new(path)]));
    assert!(searched < listed + MOST, "{listed} bytes, {searched} to search it");
}

/// Nobody sees what would be said of the others.
#[test]
fn it_ends_where_nobody_takes_what_it_says() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1 1000 > tree/numbers; tar -C tree -czf a.gz .; echo no archive > none");
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let output = support::tarnfs(&scratch)
        .args([Path::new("check"), &scratch.path("a.gz"), &scratch.path("none")])
        .stdout(write)
        .output()
        .unwrap();
    let ran = Ran::from(output);
    // The second would be told on standard error. It ends by the signal, as other tools do.
    assert_eq!((ran.code, ran.err.as_str()), (-1, ""));
    let full = support::tarnfs(&scratch)
        .args([Path::new("check"), &scratch.path("a.gz"), &scratch.path("none")])
        .stdout(fs::File::options().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    let ran = Ran::from(full);
    assert!(ran.code == 1 && ran.err.lines().count() == 1 && ran.err.contains("standard output"), "{ran:?}");
}
