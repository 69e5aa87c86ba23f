//! Archives made by the tar programs that people use, compared with what GNU tar extracts from them, attribute by
//! attribute.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::twin::compare_all;
use common::{has, read, sh, try_read, try_read_source};
use tarnfs_format::{Event, Kind, Options, Probe, SourceStream, by_name, detect};
use tarnfs_source::{Cancel, FileSource, MemorySource, SharedSource, Source};

/// A tree with everything that v7 can store.
const PLAIN: &str = r#"
    mkdir -p tree/folder/inner tree/empty
    printf hello > tree/folder/file; : > tree/folder/nothing
    head -c 100000 /dev/urandom > tree/folder/inner/random
    ln -s ../file tree/folder/inner/link; ln -s /etc/passwd tree/absolute; ln -s missing tree/dangling
    ln tree/folder/file tree/hard
    chmod 4751 tree/folder/file; chmod 1777 tree/empty; chmod 0 tree/folder/nothing
    touch -h -d '2001-02-03 04:05:06.123456789 UTC' tree/folder/file tree/dangling tree/folder/inner
    printf x > "$(printf 'tree/b\344d\033name')"
    printf x > 'tree/sp ace"\\'
"#;

/// What ustar adds: devices, fifos and longer paths.
const USTAR: &str = r#"
    [ "$(id -u)" = 0 ] && mknod tree/null c 1 3 && mknod tree/disk b 259 70 && chown 1234:4321 tree/null
    mkfifo tree/fifo
    long=tree/$(printf '%090d' 1)/$(printf '%090d' 2)
    mkdir -p $long; echo long > $long/file
"#;

/// What GNU and pax add.
const ENDLESS: &str = r#"
    name=$(printf '%0200d' 3)
    mkdir -p tree/$name/$name/$name; echo longer > tree/$name/$name/$name/$name; ln -s $name/$name/$name tree/to
    ln tree/$name/$name/$name/$name tree/longhard
    touch -d '1931-02-03 04:05:06.75 UTC' tree/folder/file; touch -d '2300-01-01' tree/empty
    [ "$(id -u)" = 0 ] && chown 3000000000:4000000000 tree/folder/inner/random
    true
"#;

/// A folder with such a tree, archived with `make` as a.tar and extracted by GNU tar.
struct Twin {
    folder: tempfile::TempDir,
}

impl Twin {
    fn new(scripts: &[&str], make: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        sh(folder.path(), &scripts.concat());
        sh(folder.path(), make);
        let twin = Self { folder };
        twin.extract();
        twin
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn extract(&self) {
        // bsdtar writes what is in a folder after other entries: its time has to be set at the end.
        let line = "rm -rf twin; mkdir twin; tar -xf a.tar -C twin -p --numeric-owner --xattrs --xattrs-include='*' --acls --delay-directory-restore";
        sh(self.path(), line);
    }

    fn archive(&self) -> Vec<u8> {
        fs::read(self.path().join("a.tar")).unwrap()
    }

    /// Compares everything in the archive with everything that was extracted.
    fn compare(&self) {
        let archive = self.archive();
        assert_eq!(
            detect(&Probe::of_head(&archive[..archive.len().min(4096)])).map(tarnfs_format::Format::name),
            Some("tar")
        );
        let told = read(&archive);
        assert_eq!(told.damage, []);
        compare_all(archive, &told, &self.path().join("twin"));
    }
}

#[test]
fn gnu_tar_in_each_of_its_formats() {
    for (format, scripts) in [
        ("v7", &[PLAIN][..]),
        ("oldgnu", &[PLAIN, USTAR, ENDLESS]),
        ("gnu", &[PLAIN, USTAR, ENDLESS]),
        ("ustar", &[PLAIN, USTAR]),
        ("posix", &[PLAIN, USTAR, ENDLESS]),
    ] {
        for options in ["", "--numeric-owner", "-b 1", "-h --hard-dereference --ignore-failed-read 2>/dev/null || true"]
        {
            // A dangling link cannot be followed, which is what -h would do.
            let make = format!("tar --format={format} -cf a.tar tree {options}");
            Twin::new(scripts, &make).compare();
        }
    }
}

#[test]
fn bsdtar_in_each_of_its_formats() {
    if !has("bsdtar") {
        return;
    }
    for (format, scripts) in [
        ("v7tar", &[PLAIN][..]),
        ("ustar", &[PLAIN, USTAR]),
        ("gnutar", &[PLAIN, USTAR, ENDLESS]),
        ("pax", &[PLAIN, USTAR, ENDLESS]),
        ("paxr", &[PLAIN, USTAR, ENDLESS]),
    ] {
        let make = format!("bsdtar --format={format} --no-read-sparse -cf a.tar tree");
        Twin::new(scripts, &make).compare();
    }
}

#[test]
fn python_in_each_of_its_formats() {
    for (format, scripts) in
        [("USTAR", &[PLAIN, USTAR][..]), ("GNU", &[PLAIN, USTAR, ENDLESS]), ("PAX", &[PLAIN, USTAR, ENDLESS])]
    {
        let make = format!(
            "python3 -c 'import tarfile
with tarfile.open(\"a.tar\", \"w\", format=tarfile.{format}_FORMAT) as archive: archive.add(\"tree\")'"
        );
        Twin::new(scripts, &make).compare();
    }
}

#[test]
fn other_programs() {
    for (tool, scripts, make) in [
        ("pax", &[PLAIN, USTAR][..], "pax -w -x ustar -f a.tar tree"),
        ("pax", &[PLAIN], "pax -w -x tar -f a.tar tree"),
        ("busybox", &[PLAIN, USTAR], "busybox tar -cf a.tar tree"),
        (
            "git",
            &[PLAIN],
            "git init -q .; git -c user.name=n -c user.email=e add tree/folder tree/hard tree/absolute; git -c user.name=n -c user.email=e commit -qm m; git archive -o a.tar HEAD",
        ),
        (
            "perl",
            &[PLAIN],
            "perl -MArchive::Tar -e 'my $t = Archive::Tar->new; $t->add_files(split /\\n/, `find tree`); $t->write(\"a.tar\")'",
        ),
    ] {
        if has(tool) {
            Twin::new(scripts, make).compare();
        }
    }
}

/// What no program on this machine writes: archives that star and Solaris wrote themselves, from libarchive's tests.
#[test]
fn archives_of_star_and_of_solaris() {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
    let corpus = std::env::var_os("TARNFS_CORPUS").unwrap_or_else(|| default.into());
    let archives = Path::new(&corpus).join("libarchive");
    if !archives.is_dir() {
        println!("no corpus at {}: not tested", archives.display());
        return;
    }
    for name in [
        "test_compat_star_acl_posix1e.tar",
        "test_compat_solaris_tar_acl.tar",
        "test_compat_solaris_pax_sparse_1.pax.Z",
        "test_acl_pax_posix1e.tar",
    ] {
        let path = archives.join(format!("libarchive__{name}"));
        let read = if path.extension().is_some_and(|suffix| suffix == "Z") { "gzip -dc" } else { "cat" };
        // GNU tar makes files of Solaris' access lists, which the files of the same names behind them replace; it says
        // so.
        let make = format!("{read} '{}' > a.tar", path.display());
        let twin = Twin::new(&[], &make);
        twin.compare();
    }
    let star = read(&fs::read(archives.join("libarchive__test_compat_star_acl_posix1e.tar")).unwrap());
    assert!(star.entries.iter().any(|entry| entry.xattrs.iter().any(|(name, _)| name == b"system.posix_acl_access")));
}

#[test]
fn attributes_and_access_lists() {
    if !has("setfacl") || !has("setfattr") {
        return;
    }
    let script = r#"
        mkdir -p tree/folder; echo a > tree/file; echo b > tree/plain
        setfattr -n user.text -v value tree/file; setfattr -n user.binary -v 0x000aff3d tree/file
        setfattr -n user.empty tree/file; setfattr -n 'user.we=ird%25' -v 1 tree/file
        setfattr -n user.folder -v 'is one' tree/folder
        setfacl -m u:0:rw,u:77:r,g:0:x,g:99:rwx tree/file; setfacl -d -m u:78:rwx tree/folder; setfacl -m u:3:x tree/folder
        [ "$(id -u)" = 0 ] && setfattr -n trusted.secret -v 1 tree/file
        chmod 640 tree/plain
    "#;
    let twin = Twin::new(&[script], "tar --format=posix --xattrs --acls -cf a.tar tree");
    twin.compare();
    assert!(read(&twin.archive()).entry("tree/file").xattrs.len() >= 5);
    if has("bsdtar") {
        // Its access lists have numbers behind the names.
        Twin::new(&[script], "bsdtar --format=pax --xattrs --acls -cf a.tar tree").compare();
    }
}

#[test]
fn sparse_files_in_each_form() {
    let script = r#"
        mkdir tree; cd tree
        truncate -s 1G hole; printf x > start; truncate -s 5M start; : > nothing; printf dense > dense
        truncate -s 3M end; printf end >> end
        for n in 1 3 4 5 20 21 22 25 60 300; do
            for k in $(seq $n); do printf "data $k" | dd of=many$n bs=64k seek=$k conv=notrunc status=none; done
        done
        truncate -s 9G huge; printf middle | dd of=huge bs=1M seek=5000 conv=notrunc status=none
    "#;
    for make in [
        "--format=oldgnu --sparse",
        "--format=gnu --sparse",
        "--format=posix --sparse-version=0.0",
        "--format=posix --sparse-version=0.1",
        "--format=posix --sparse-version=1.0",
        "--format=posix --sparse-version=1.0 --hole-detection=raw --exclude=huge --exclude=hole",
    ] {
        let twin = Twin::new(&[script], &format!("tar --sparse {make} -cf a.tar tree"));
        twin.compare();
        let told = read(&twin.archive());
        for name in ["many5", "many300", "start"] {
            let body = &told.entry(&format!("tree/{name}")).body;
            let map = body.extents.as_ref().unwrap();
            assert!(body.stored < body.size / 2, "{make}: {name} has holes");
            assert_eq!(map.iter().map(|extent| extent.length).sum::<u64>().next_multiple_of(1), body.stored, "{make}");
        }
        assert_eq!(told.entry("tree/dense").body.extents, None);
    }
    if has("bsdtar") {
        let twin = Twin::new(&[script], "bsdtar --format=pax --read-sparse -cf a.tar tree");
        twin.compare();
    }
}

#[test]
fn incremental_dumps() {
    for format in ["gnu", "oldgnu", "posix"] {
        let make = format!("tar --format={format} -g snapshot -cf full.tar tree; echo new > tree/new; rm tree/hard");
        let later = format!("; tar --format={format} -g snapshot -cf later.tar tree; cp full.tar a.tar");
        let twin = Twin::new(&[PLAIN], &(make + &later));
        twin.compare();
        for gnu_incremental in [None, Some(true), Some(false)] {
            let options = Options { gnu_incremental, ..Options::default() };
            let later = fs::read(twin.path().join("later.tar")).unwrap();
            let told = try_read(&later, &options).unwrap();
            let listed = sh(twin.path(), "tar -tf later.tar");
            assert_eq!(told.damage, []);
            // GNU tar escapes what it lists; only the ordinary names are compared.
            let mut expected: Vec<_> = listed.lines().filter(|line| !line.contains('\\')).collect();
            expected.sort_unstable();
            let mut paths = told.paths();
            paths.retain(|path| path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains('\\'));
            paths.sort_unstable();
            assert_eq!(paths, expected, "{format}");
            assert!(told.entries.iter().all(|entry| entry.kind != Kind::Folder || entry.body.size == 0));
        }
    }
}

#[test]
fn labels_and_volumes() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["gnu", "posix"] {
        let make = format!(
            "head -c 250000 /dev/urandom > big; echo small > small; rm -f ?.tar
             tar --format={format} -V 'a label' -M -L 100 -cf 1.tar -f 2.tar -f 3.tar big small"
        );
        sh(folder.path(), &make);
        let big = fs::read(folder.path().join("big")).unwrap();
        let mut joined = Vec::new();
        for n in 1..=3 {
            let archive = fs::read(folder.path().join(format!("{n}.tar"))).unwrap();
            let told = read(&archive);
            assert_eq!(told.labels.len(), 1, "{format}, volume {n}");
            assert!(told.labels[0].starts_with(b"a label"));
            let part = &told.entries[0];
            let name = String::from_utf8_lossy(&part.path).into_owned();
            let expected = if format == "gnu" || n == 1 { "big".to_owned() } else { format!("GNUFileParts/big.{n}") };
            assert!(name.ends_with(&expected), "{format}, volume {n}: {name}");
            let end = (part.body.offset + part.body.stored).min(archive.len() as u64) as usize;
            joined.extend_from_slice(&archive[part.body.offset as usize..end]);
            if end < (part.body.offset + part.body.stored) as usize {
                assert!(told.damage.iter().any(|(_, what)| what.contains("ends")), "{:?}", told.damage);
            } else {
                assert_eq!(told.paths().last().unwrap(), "small");
            }
        }
        assert!(joined == big, "{format}: the parts are the file");
    }
}

/// The same, for a reader that cannot go back.
struct Forward<'a>(&'a mut SourceStream);

impl tarnfs_format::Stream for Forward<'_> {
    fn position(&self) -> u64 {
        self.0.position()
    }

    fn peek(&mut self, length: usize) -> std::io::Result<&[u8]> {
        self.0.peek(length)
    }

    fn skip(&mut self, length: u64) -> std::io::Result<u64> {
        self.0.skip(length)
    }
}

#[test]
fn volumes_one_behind_the_other() {
    let folder = tempfile::tempdir().unwrap();
    // A tar in the tar: what looks like headers inside of a file, where a part ends.
    let tree = "head -c 250000 /dev/urandom > big; head -c 30000 /dev/zero > zeros; echo small > small; tar -cf inner big small zeros";
    sh(folder.path(), tree);
    for (format, label) in [("gnu", ""), ("gnu", "-V label"), ("posix", ""), ("posix", "-V label")] {
        for kib in [100, 150] {
            let make = format!(
                "rm -f [0-9]*.tar; tar --format={format} {label} -M -L {kib} -cf 1.tar $(for n in 2 3 4 5 6 7 8; do echo -f $n.tar; done) inner big zeros small
                 cat $(ls [0-9]*.tar) > all.tar"
            );
            sh(folder.path(), &make);
            let archive = fs::read(folder.path().join("all.tar")).unwrap();
            let source: SharedSource = Arc::new(MemorySource::new(archive.clone(), "archive"));
            let options = Options { ignore_zeros: true, ..Options::default() };
            let back = try_read_source(Arc::clone(&source), &options).unwrap();
            let mut entries: Vec<tarnfs_format::Entry> = Vec::new();
            // What is read ahead of each entry: nothing, some bytes, or all that can be had.
            let (mut aheads, mut ahead) = (0, None);
            let mut stream = SourceStream::new(source, Cancel::default());
            by_name("tar")
                .unwrap()
                .forwards()
                .unwrap()
                .read(&mut Forward(&mut stream), &options, &mut |event, stream| {
                    match event {
                        Event::Ahead(entry) => {
                            let name = String::from_utf8(entry.path.clone()).unwrap();
                            assert_eq!(stream.position(), entry.body.offset);
                            let most = [usize::MAX, 0, 1, 70_000, 123_456][(aheads + usize::from(kib == 150)) % 5];
                            aheads += 1;
                            let mut bytes = Vec::new();
                            while bytes.len() < most {
                                let next = stream.peek(3001.min(most - bytes.len()))?.to_vec();
                                if next.is_empty() {
                                    break;
                                }
                                stream.skip(next.len() as u64)?;
                                bytes.extend(next);
                            }
                            let whole = fs::read(folder.path().join(&name)).unwrap();
                            assert!(whole.starts_with(&bytes), "{name}: {} bytes", bytes.len());
                            ahead = Some((entry, most, bytes.len() as u64));
                        }
                        Event::Entry(entry) => {
                            let (before, most, length) = ahead.take().expect("each of them has content");
                            let first = entry.body.extents.as_ref().map_or(entry.body.size, |parts| parts[0].length);
                            assert_eq!(length, first.min(most as u64), "{format} {label} {kib}");
                            assert_eq!(before.body == entry.body, entry.body.extents.is_none());
                            assert_eq!((before.header, &before.path), (entry.header, &entry.path));
                            entries.push(*entry);
                        }
                        Event::Damage(damage) => panic!("{damage:?}"),
                        _ => {}
                    }
                    Ok(())
                })
                .unwrap();
            assert_eq!((&back.entries, back.damage.len()), (&entries, 0), "{format} {label} {kib}");
            assert_eq!(back.paths(), ["inner", "big", "zeros", "small"], "{format} {label} {kib}");
            assert!(back.entry("inner").body.extents.as_ref().is_some_and(|parts| parts.len() > 1));
            for entry in &back.entries {
                let name = String::from_utf8(entry.path.clone()).unwrap();
                assert!(
                    common::content(&archive, entry) == fs::read(folder.path().join(&name)).unwrap(),
                    "{format} {label} {kib}: {name}"
                );
            }
            // Of too many parts the first ones are there.
            let limits = tarnfs_source::Limits { sparse_extents: 1, ..tarnfs_source::Limits::default() };
            let few = try_read(&archive, &Options { limits, ..options.clone() }).unwrap();
            let inner = few.entry("inner");
            assert_eq!((few.paths(), inner.body.extents.as_ref().unwrap().len()), (back.paths(), 2));
            let bytes = common::content(&archive, inner);
            assert!(fs::read(folder.path().join("inner")).unwrap().starts_with(&bytes) && bytes.len() > kib << 10);
            assert!(few.damage[0].1.contains("too many parts"), "{:?}", few.damage);
            // Cut inside of the last part: an error, not a file that is shorter or longer.
            let cut = try_read(&archive[..archive.len() / 3], &options).unwrap();
            assert_eq!(cut.damage.len(), 1, "{:?}", cut.damage);
        }
    }
}

#[test]
fn a_volume_may_go_on_where_the_file_would_end() {
    let folder = tempfile::tempdir().unwrap();
    // Archives without their ends: each second block is a header; the first and the last one are.
    let files = "mkdir tree; for n in $(seq 120); do echo $n > tree/$n; done; tar -b1 -cf whole tree
        head -c -1024 whole > inner; head -c 140288 /dev/urandom > noise; touch empty
        tar -b1 -cf whole noise empty; head -c -1024 whole > far";
    sh(folder.path(), files);
    let mut parts = 0;
    for (format, label) in [("gnu", ""), ("gnu", "-V label"), ("posix", ""), ("posix", "-V label")] {
        let lengths = (98_816..104_000).step_by(512).map(|length| format!("head -c {length} noise"));
        for content in lengths.chain(["cat inner".to_owned(), "cat far".to_owned()]) {
            let make = format!(
                "rm -f ?.tar; {content} > content
                 tar --format={format} {label} -M -L 100 -cf 1.tar -f 2.tar content; cat ?.tar > all.tar"
            );
            sh(folder.path(), &make);
            let archive = fs::read(folder.path().join("all.tar")).unwrap();
            let options = Options { ignore_zeros: true, ..Options::default() };
            let told = try_read(&archive, &options).unwrap();
            let what = format!("{format} {label}, {content}");
            assert_eq!((told.paths(), told.damage.len()), (vec!["content".to_owned()], 0), "{what}");
            let entry = told.entry("content");
            assert!(common::content(&archive, entry) == fs::read(folder.path().join("content")).unwrap(), "{what}");
            parts += usize::from(entry.body.extents.is_some());
        }
    }
    assert!(parts > 20, "{parts}");
}

/// Also between two blocks of one of its headers.
#[test]
fn a_volume_may_end_among_the_headers_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    sh(folder.path(), "head -c 60000 /dev/urandom > b; echo 3 > c");
    for format in ["gnu", "posix"] {
        for blocks in 28..44 {
            // A long name has headers of its own.
            let long = "n".repeat(150);
            let make = format!(
                "rm -f v?.tar {long}; head -c $((512 * {blocks})) /dev/urandom > a; cp c {long}
                 tar -c -b1 -M -L 20 --format={format} -f v0.tar -f v1.tar -f v2.tar -f v3.tar -f v4.tar -f v5.tar \
                     a {long} b c < /dev/null; cat v?.tar > all"
            );
            sh(folder.path(), &make);
            let archive = fs::read(folder.path().join("all")).unwrap();
            let options = Options { ignore_zeros: true, ..Options::default() };
            let told = try_read(&archive, &options).unwrap();
            let what = format!("{format}, {blocks} blocks");
            assert_eq!(
                (told.paths(), told.damage),
                (["a", &long, "b", "c"].map(str::to_owned).to_vec(), vec![]),
                "{what}"
            );
            let told = try_read(&archive, &options).unwrap();
            for name in ["a", &long, "b", "c"] {
                let right = fs::read(folder.path().join(name)).unwrap();
                assert!(common::content(&archive, told.entry(name)) == right, "{what}: {name}");
            }
        }
    }
}

/// The same of what has no content: behind the end of a volume stands its label, or nothing.
#[test]
fn a_volume_may_end_among_the_headers_of_what_has_no_content() {
    let folder = tempfile::tempdir().unwrap();
    let (long, target) = ("n".repeat(130), "t".repeat(150));
    sh(
        folder.path(),
        &format!("mkdir {long}d; ln -s {target} {long}l; echo 1 > {long}f; ln {long}f {long}h; echo 2 > b"),
    );
    let names = ["a".to_owned(), format!("{long}d"), format!("{long}l"), format!("{long}f"), format!("{long}h")];
    let mut are_later = 0;
    for (format, label) in [("gnu", ""), ("gnu", "-V lab"), ("posix", ""), ("posix", "-V lab")] {
        for blocks in 21..42 {
            let make = format!(
                "rm -f v?.tar; head -c $((512 * {blocks})) /dev/urandom > a
                 tar -c -b1 -M -L 20 --format={format} {label} -f v0.tar -f v1.tar -f v2.tar -f v3.tar -f v4.tar \
                     {} b < /dev/null; cat v?.tar > all",
                names.join(" ")
            );
            sh(folder.path(), &make);
            let archive = fs::read(folder.path().join("all")).unwrap();
            let told = try_read(&archive, &Options { ignore_zeros: true, ..Options::default() }).unwrap();
            let what = format!("{format} {label}, {blocks} blocks");
            let paths: Vec<_> = told.paths().iter().map(|path| path.trim_end_matches('/').to_owned()).collect();
            assert_eq!((&paths[..5], paths[5].as_str(), &told.damage[..]), (&names[..], "b", &[][..]), "{what}");
            assert_eq!(told.entry(&names[2]).link, target.as_bytes(), "{what}");
            assert_eq!(told.entry(&names[4]).link, names[3].as_bytes(), "{what}");
            for name in [&names[0], &names[3], "b"] {
                let right = fs::read(folder.path().join(name)).unwrap();
                assert!(common::content(&archive, told.entry(name)) == right, "{what}: {name}");
            }
            let next = fs::read(folder.path().join("v1.tar")).unwrap();
            let is_later = by_name("tar").unwrap().is_later_volume(&next);
            assert!(is_later || label.is_empty(), "{what}");
            are_later += usize::from(is_later);
        }
    }
    assert!(are_later > 2 * 21, "{are_later}");
}

#[test]
fn concatenated_archives() {
    let folder = tempfile::tempdir().unwrap();
    sh(folder.path(), "echo 1 > one; echo 2 > two; tar -cf a.tar one; tar -cf b.tar two; cat a.tar b.tar > ab.tar");
    let archive = fs::read(folder.path().join("ab.tar")).unwrap();
    assert_eq!(read(&archive).paths(), ["one"]);
    let options = Options { ignore_zeros: true, ..Options::default() };
    let told = try_read(&archive, &options).unwrap();
    assert_eq!((told.paths(), told.damage.len()), (vec!["one".to_owned(), "two".to_owned()], 0));
}

#[test]
fn nothing_is_read_of_large_bodies() {
    let folder = tempfile::tempdir().unwrap();
    sh(
        folder.path(),
        "truncate -s 20G huge; echo 1 > small; tar --format=gnu -cf - small huge small | head -c 4000 > head",
    );
    // The archive itself is sparse: two real blocks around 20 GiB of nothing.
    let head = fs::read(folder.path().join("head")).unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, &head[..1536]).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1536 + (20 << 30) + 1024).unwrap();
    // Where volumes may be joined, the last file is looked through for a header of the next one. None is in a hole.
    for (ignore_zeros, most) in [(false, 64 << 10), (true, 1 << 20)] {
        let reads = Arc::new(Counting { inner: FileSource::open(&path).unwrap(), bytes: 0.into() });
        let told = try_read_source(reads.clone(), &Options { ignore_zeros, ..Options::default() }).unwrap();
        assert_eq!((told.paths(), told.damage.len()), (vec!["small".to_owned(), "huge".to_owned()], 0));
        let read = reads.bytes.load(std::sync::atomic::Ordering::Relaxed);
        assert!(read < most, "{read}");
    }
}

#[derive(Debug)]
struct Counting {
    inner: FileSource,
    bytes: std::sync::atomic::AtomicU64,
}

impl Source for Counting {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.bytes.fetch_add(buffer.len() as u64, std::sync::atomic::Ordering::Relaxed);
        self.inner.read_at(buffer, offset)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        self.inner.next_data(offset)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[test]
fn a_receiver_that_fails_and_a_person_who_cancels_end_the_pass() {
    let archive = [common::file("a", b""), common::file("b", b"")].concat();
    let source: SharedSource = Arc::new(MemorySource::new(archive, "archive"));
    let cancel = Cancel::default();
    let tar = by_name("tar").unwrap().forwards().unwrap();
    let mut stream = SourceStream::new(Arc::clone(&source), cancel.clone());
    let mut seen = 0;
    let failed = tar.read(&mut stream, &Options::default(), &mut |event, _| {
        seen += usize::from(matches!(event, Event::Entry(_)));
        Err(std::io::ErrorKind::StorageFull.into())
    });
    assert!(matches!(failed, Err(tarnfs_format::Error::Receiver(_))));
    assert_eq!(seen, 1);
    cancel.cancel();
    let mut stream = SourceStream::new(source, cancel);
    let failed = tar.read(&mut stream, &Options::default(), &mut |_, _| Ok(()));
    assert!(matches!(failed, Err(tarnfs_format::Error::Read { offset: 0, .. })));
}
