//! UDF images, mounted through the kernel: of programs that write them, and of what none of these writes, made by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::support::{Compare, Mounted, Ran, Scratch, Seen, assert_twins, can_mount, data_extents, have};
use crate::support::{is_root, run, survey, tarnfs};
use crate::udf_image::{self, How, KINDS, Kind, Node, Place, Writer, component, device, long, of, seal, stamp, text};

/// Bytes of a block.
const BLOCKS: [usize; 4] = [512, 1024, 2048, 4096];

/// A folder `tree` with all that UDF knows.
fn make_tree(scratch: &Scratch) {
    scratch.shell(
        r"mkdir -p tree/folder/deep tree/void tree/many; cd tree; : > empty; printf short > short; seq 30000 > numbers
         head -c 100000 /dev/urandom > noise; head -c 4096 /dev/urandom > page; seq 7 > folder/deep/seven; echo other > 'Grün 日本 😀'
         truncate -s 3000000 sparse; printf middle | dd of=sparse bs=65536 seek=3 conv=notrunc 2> /dev/null; truncate -s 1000000 hole
         ln -s folder/deep/seven link; ln -s /usr/../lib/./x absolute; ln -s ../.. up; ln -s 日本/x wide; ln short folder/again
         ln numbers folder/deep/too; mkfifo fifo; mknod character c 300 70000; mknod block-device b 7 3; chmod 4755 page; chmod 600 noise
         chmod 1777 void; chown 12345:54321 page; for i in $(seq 400); do echo $i > many/file-$i.text; done
         printf n > $(printf 'n%.0s' $(seq 250)); printf m > $(printf 'ü%.0s' $(seq 120))
         find . -exec touch -h -d '2022-05-06 07:08:09.654321 UTC' {} +; touch -d '1931-02-28 23:59:59.000001 UTC' noise
         touch -h -d '2000-02-29 00:00:00 UTC' link",
    );
}

/// What stands for a file of the folder `tree` in an image.
struct Copy<'w> {
    writer: &'w mut Writer,
    known: BTreeMap<u64, Place>,
    count: usize,
    /// In ways that 7-Zip knows.
    is_simple: bool,
}

impl Copy<'_> {
    /// Writes `path` and all below it.
    fn add(&mut self, path: &Path) -> Place {
        let stat = fs::symlink_metadata(path).unwrap();
        if let Some(place) = self.known.get(&stat.ino()) {
            return *place;
        }
        self.count += 1;
        let like = self.node(&stat);
        let place = if stat.is_dir() {
            let mut paths: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            let names: Vec<_> = paths
                .iter()
                .map(|path| {
                    let bits = if path.is_dir() && !path.is_symlink() { udf_image::IS_FOLDER } else { 0 };
                    (path.file_name().unwrap().to_str().unwrap(), bits, self.add(path))
                })
                .collect();
            let how = if names.len() < 3 { How::Inside } else { [How::Long, How::Scattered][names.len() % 2] };
            let how = if self.is_simple { How::Long } else { how };
            self.writer.folder(&names, &Node { kind: udf_image::FOLDER, ..like }, how)
        } else {
            let node = self.content(path, &stat);
            self.writer.entry(&of(node, &like))
        };
        self.known.insert(stat.ino(), place);
        place
    }

    fn content(&mut self, path: &Path, stat: &fs::Metadata) -> Node {
        if stat.is_symlink() {
            let target = fs::read_link(path).unwrap();
            let parts = target.to_str().unwrap().split('/').map(|part| match part {
                "" => component(2, ""),
                ".." => component(3, ""),
                "." => component(4, ""),
                name => component(5, name),
            });
            let parts: Vec<_> = parts.collect();
            return self.writer.content(&parts.concat(), How::Inside);
        }
        if !stat.is_file() {
            return Node::default();
        }
        let bytes = fs::read(path).unwrap();
        let extents = data_extents(path);
        let block = self.writer.block as u64;
        if stat.blocks() * 512 < stat.len() {
            let (mut parts, mut at) = (Vec::new(), 0);
            for (start, end) in extents {
                // Holes of both kinds.
                parts.push(long(1 << 30 | (start - at) as u32, Place::default()));
                let end = end.next_multiple_of(block).min(stat.len());
                let place = self.writer.data(&bytes[start as usize..end as usize]);
                parts.push(long((end - start) as u32, place));
                at = end;
            }
            parts.push(long(2 << 30 | (stat.len() - at) as u32, Place::default()));
            parts.retain(|part| part[..3] != [0; 3] || part[3] & 0x3f != 0);
            return self.writer.of_parts(stat.len(), &parts);
        }
        let how = match bytes.len() {
            ..100 => How::Inside,
            _ if self.is_simple => How::Long,
            _ => [How::Long, How::Extended, How::Scattered][self.count % 3],
        };
        self.writer.content(&bytes, how)
    }

    fn node(&self, stat: &fs::Metadata) -> Node {
        let kind = stat.file_type();
        let (major, minor) = (rustix::fs::major(stat.rdev()), rustix::fs::minor(stat.rdev()));
        let (kind, attributes) = match () {
            () if kind.is_dir() => (udf_image::FOLDER, Vec::new()),
            () if kind.is_symlink() => (udf_image::LINK, Vec::new()),
            () if kind.is_fifo() => (udf_image::FIFO, Vec::new()),
            () if kind.is_socket() => (udf_image::SOCKET, Vec::new()),
            () if kind.is_block_device() => (udf_image::BLOCK_DEVICE, device(major, minor)),
            () if kind.is_char_device() => (udf_image::CHARACTER_DEVICE, device(major, minor)),
            () => (udf_image::FILE, Vec::new()),
        };
        let east = [0, 120, -330][self.count % 3];
        let time = at(stat.mtime(), (stat.mtime_nsec() / 1000) as u32, east);
        Node {
            kind,
            attributes,
            mode: stat.mode() & 0o7777,
            owner: (stat.uid(), stat.gid()),
            links: stat.nlink() as u16,
            times: [time; 3],
            is_extended: self.count.is_multiple_of(2),
            ..Node::default()
        }
    }
}

/// A time in a zone so many minutes to the east.
fn at(seconds: i64, micros: u32, east: i16) -> [u8; 12] {
    let local = seconds + i64::from(east) * 60;
    let (mut day, of_day) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let length = |year: i64| if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 366 } else { 365 };
    let mut year = 1970;
    while day < 0 {
        year -= 1;
        day += length(year);
    }
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let mut month = 0;
    let days = |month: usize| {
        if month == 1 { length(year) - 337 } else { [31, 0, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month] }
    };
    while day >= days(month) {
        day -= days(month);
        month += 1;
    }
    let parts = [year, month as i64 + 1, day + 1, of_day / 3600, of_day / 60 % 60, of_day % 60];
    stamp(east, parts.map(|part| part as u16), micros)
}

/// An image of the folder `tree`.
fn image_of_tree(scratch: &Scratch, kind: Kind, block: usize, is_simple: bool) -> Vec<u8> {
    let mut writer = Writer::new(kind, block);
    let mut copy = Copy { writer: &mut writer, known: BTreeMap::new(), count: 0, is_simple };
    let root = copy.add(&scratch.path("tree"));
    writer.finish(root)
}

fn can_make_trees() -> bool {
    if !can_mount() || !is_root() {
        println!("left out: no mounts here, or no root, who makes devices");
        return false;
    }
    true
}

/// > Of a UDF image, whatever kind of disc it is for, a mount shows the tree that was written.
#[test]
fn each_kind_of_partition_shows_the_tree() {
    if !can_make_trees() {
        return;
    }
    let scratch = Scratch::new();
    make_tree(&scratch);
    for kind in KINDS {
        for block in BLOCKS {
            let name = format!("{kind:?}-{block}.udf");
            fs::write(scratch.path(&name), image_of_tree(&scratch, kind, block, false)).unwrap();
            println!("{name}");
            let mounted = Mounted::new(&scratch, scratch.path(&name), &[]);
            assert_twins(&mounted.path(""), &scratch.path("tree"), Compare::default());
            let hole = data_extents(&mounted.path("hole"));
            assert!(hole.is_empty(), "{hole:?}");
            let [(start, end)] = data_extents(&mounted.path("sparse"))[..] else { panic!("{name}") };
            assert!(start <= 3 * 65536 && end >= 3 * 65536 + 6 && end - start <= 8192, "{name}: {start} {end}");
            mounted.unmount();
            fs::remove_file(scratch.path(&name)).unwrap();
        }
    }
    assert!(!scratch.shell("ls").contains("sqlite"), "an image needs no index");
}

/// What is extracted is what 7-Zip extracts, as far as it knows UDF.
#[test]
fn seven_zip_extracts_the_same() {
    if !can_make_trees() || !have("7z") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p tree/folder; cd tree; seq 30000 > numbers; echo x > folder/x; printf y > 'Grün 日本'; : > empty
         head -c 100000 /dev/urandom > noise",
    );
    for kind in KINDS {
        let name = format!("{kind:?}.udf");
        fs::write(scratch.path(&name), image_of_tree(&scratch, kind, 2048, true)).unwrap();
        let known = scratch.shell(&format!("7z x -y -otheirs-{name} {name} > log 2>&1 && echo yes || true"));
        if known.trim() != "yes" && kind != Kind::Plain {
            println!("{name} is unknown to 7-Zip");
            continue;
        }
        run(
            &scratch,
            [
                "extract",
                "-C",
                scratch.folder(format!("ours-{name}")).to_str().unwrap(),
                scratch.path(&name).to_str().unwrap(),
            ],
        )
        .ok();
        let bytes = |root: String| {
            let found = survey(&scratch.path(root), Compare::default());
            found
                .into_iter()
                .map(|(path, seen)| (path, (seen.kind, seen.size, seen.content)))
                .collect::<BTreeMap<_, _>>()
        };
        let ours = bytes(format!("ours-{name}"));
        assert_eq!(ours.len(), 6, "{ours:?}");
        assert_eq!(ours, bytes(format!("theirs-{name}")), "{name}");
    }
}

/// The file set, and in it the block of the root's entry, and where the partition begins.
fn root_of(image: &[u8], block: usize) -> (usize, u32) {
    let is_kind = |at: usize, kind: u16| image[at..].starts_with(&kind.to_le_bytes()) && image[at + 5] == 0;
    let number = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let blocks = || (0..image.len()).step_by(block);
    let part = blocks().find(|at| is_kind(*at, 5)).unwrap();
    let set = blocks().find(|at| is_kind(*at, 256)).unwrap();
    (number(part + 188) as usize * block, number(set + 404))
}

/// Volumes of `mkudffs`, in which this test puts files: no other program here can.
#[test]
fn volumes_of_udftools_are_read() {
    if !can_mount() || !have("mkudffs") {
        return println!("left out: no mounts here, or no mkudffs");
    }
    let scratch = Scratch::new();
    let mut read = 0;
    for media in ["hd", "dvd", "dvdram", "dvdrw", "cdrw", "cdr", "dvdr", "bdr"] {
        for revision in ["1.02", "1.50", "2.00", "2.01", "2.50", "2.60"] {
            for block in BLOCKS {
                let name = format!("{media}-{revision}-{block}.udf");
                let made = scratch.shell(&format!(
                    "truncate -s 24M {name}; mkudffs -m {media} -r {revision} -b {block} --vid=label {name} > log 2>&1 && echo yes || true"
                ));
                let path = scratch.path(&name);
                if made.trim() == "yes" {
                    read += 1;
                    let listed = run(&scratch, ["ls", path.to_str().unwrap()]).ok();
                    assert!(matches!(&*listed.text(), "" | "lost+found\n"), "{name}: {}", listed.text());
                    // A table of blocks would have to be written anew.
                    if !matches!(media, "cdr" | "dvdr" | "bdr") {
                        plant(&path, block);
                        let file = run(&scratch, ["cat", path.to_str().unwrap(), "planted"]).ok();
                        assert_eq!(file.text(), "planted here\n", "{name}");
                    }
                }
                fs::remove_file(path).unwrap();
            }
        }
    }
    println!("{read} volumes");
    assert!(read > 40, "{read}");
}

/// Puts a file into an image that `mkudffs` has made, in place of all that its root has.
fn plant(path: &Path, block: usize) {
    let mut image = fs::read(path).unwrap();
    let (start, root) = root_of(&image, block);
    let mut writer = Writer::new(Kind::Plain, block);
    let place = Place { partition: 0, block: 4000 };
    let file = writer.content(b"planted here\n", How::Inside);
    let entry = writer.entry_bytes(&file, place);
    let listing = writer.listing(&[("planted", 0, place)]);
    let folder = writer.content(&listing, How::Inside);
    let folder = of(folder, &Node { kind: udf_image::FOLDER, ..Node::default() });
    let folder = writer.entry_bytes(&folder, Place { partition: 0, block: root });
    for (number, bytes) in [(place.block, entry), (root, folder)] {
        let at = start + number as usize * block;
        image[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    fs::write(path, image).unwrap();
}

fn names(scratch: &Scratch, image: &str) -> Vec<String> {
    let listed = run(scratch, ["find", scratch.path(image).to_str().unwrap()]).ok();
    let mut names: Vec<_> = listed.text().lines().map(|line| line.trim_start_matches("./").to_owned()).collect();
    names.retain(|name| name != ".");
    names.sort();
    names
}

/// Of what has both, the one shows that has more.
#[test]
fn bridges_show_the_better_side() {
    if !can_mount() || !have("genisoimage") {
        return println!("left out: no mounts here, or no genisoimage");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p 'tree/A folder/below'; cd tree; seq 30000 > 'A folder/Grün und länger als acht.Text'; echo x > readme.txt; : > none
         ln -s readme.txt link; seq 9 > 'A folder/below/nine'; touch -d '2020-02-03 04:05:06 UTC' readme.txt; cd ..
         make() { genisoimage -quiet -input-charset utf-8 -o $1 ${@:2} tree 2> log || { cat log >&2; false; }; }
         make plain.iso -udf; make joliet.iso -udf -J; make rock.iso -udf -R; make dvd.iso -udf -J -R
         cp plain.iso gone.iso; gzip -k plain.iso; gzip -k rock.iso; cp joliet.iso other.iso; tar -cf t.tar plain.iso rock.iso plain.iso.gz",
    );
    let folder = ["A folder", "A folder/Grün und länger als acht.Text", "A folder/below", "A folder/below/nine"];
    let all = |others: &[&str]| folder.iter().chain(others).map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (with_link, without) = (all(&["link", "none", "readme.txt"]), all(&["none", "readme.txt"]));
    for (image, is_rock) in [("plain.iso", false), ("joliet.iso", false), ("rock.iso", true), ("dvd.iso", true)] {
        let found = names(&scratch, image);
        assert!(found == with_link || !is_rock && found == without, "{image}: {found:?}");
        let mounted = Mounted::new(&scratch, scratch.path(image), &[]);
        let wanted = survey(&scratch.path("tree"), Compare { whole_seconds: true, ..Compare::default() });
        let seen = survey(&mounted.path(""), Compare { whole_seconds: true, ..Compare::default() });
        for (path, theirs) in wanted.iter().filter(|(_, seen)| seen.kind == "file") {
            let Seen { size, content, mtime, .. } = seen[path];
            assert_eq!(
                (size, content, mtime),
                (theirs.size, theirs.content, theirs.mtime),
                "{image}: {}",
                path.display()
            );
        }
        let target = fs::read_link(mounted.path("link"));
        assert!(!is_rock || target.unwrap() == Path::new("readme.txt"), "{image}");
        mounted.unmount();
    }
    // Compressed, and in another archive.
    for (archive, before) in [
        ("plain.iso.gz", ""),
        ("rock.iso.gz", ""),
        ("t.tar", "plain.iso/"),
        ("t.tar", "rock.iso/"),
        ("t.tar", "plain.iso.gz/"),
    ] {
        let path = scratch.path(archive);
        let read = run(&scratch, ["cat", "-r", path.to_str().unwrap(), &format!("{before}A folder/below/nine")]).ok();
        assert_eq!(read.text(), "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "{archive}");
    }
    // What UDF has lost, ISO 9660 still has.
    for (image, at) in [("gone.iso", 256 * 2048), ("other.iso", 32 * 2048)] {
        let file = fs::File::options().write(true).open(scratch.path(image)).unwrap();
        let length = file.metadata().unwrap().len();
        file.write_all_at(&[0; 2048], at).unwrap();
        if image == "gone.iso" {
            for number in [length / 2048 - 1, length / 2048 - 257] {
                file.write_all_at(&[0; 2048], number * 2048).unwrap();
            }
        } else {
            file.write_all_at(&vec![1; 32 * 2048], at).unwrap();
        }
        let listed = run(&scratch, ["find", scratch.path(image).to_str().unwrap()]);
        assert!(listed.text().to_lowercase().contains("readme.txt"), "{image}: {} {}", listed.text(), listed.err);
    }
}

/// Of several sessions ISO 9660 shows the last one: in UDF genisoimage leaves the files of the others empty.
#[test]
fn the_last_session_shows() {
    if !have("genisoimage") {
        return println!("left out: no genisoimage");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir one two; echo first > one/a; echo kept > one/b; echo second > two/a; echo new > two/c
         genisoimage -quiet -udf -o a.iso one 2> log || { cat log >&2; false; }
         sectors=$(( ($(stat -c %s a.iso) / 2048 + 31) / 32 * 32 ))
         genisoimage -quiet -udf -C 0,$sectors -M a.iso -o more.iso two 2> log || { cat log >&2; false; }
         truncate -s $((sectors * 2048)) a.iso; cat more.iso >> a.iso",
    );
    let path = scratch.path("a.iso");
    for (name, content) in [("A", "second\n"), ("B", "kept\n"), ("C", "new\n")] {
        assert_eq!(run(&scratch, ["cat", path.to_str().unwrap(), name]).ok().text(), content);
    }
}

/// What a computer boots from is there, too: installation discs of Windows are such bridges.
#[test]
fn a_bridge_has_what_a_computer_boots_from() {
    if !have("genisoimage") {
        return println!("left out: no genisoimage");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir t; head -c 40000 /dev/urandom > t/loader; seq 9 > t/nine
         genisoimage -quiet -udf -b loader -no-emul-boot -boot-load-size 4 -c catalogue -o a.iso t 2> log || { cat log >&2; false; }",
    );
    let path = scratch.path("a.iso");
    assert!(run(&scratch, ["info", path.to_str().unwrap()]).ok().text().contains("udf"));
    let read = run(&scratch, ["cat", path.to_str().unwrap(), "[[]BOOT]/Boot-NoEmul.img"]).ok();
    assert!(read.out == fs::read(scratch.path("t/loader")).unwrap());
}

/// Of a damaged listing or entry, the names around it show.
#[test]
fn what_is_damaged_is_told_and_left_out() {
    let scratch = Scratch::new();
    let mut writer = Writer::new(Kind::Plain, 2048);
    let files: Vec<_> = (0..50)
        .map(|number| {
            let file = writer.content(number.to_string().as_bytes(), How::Inside);
            writer.entry(&file)
        })
        .collect();
    let names: Vec<_> = (0..50).map(|number| format!("name-{number}")).collect();
    let named: Vec<_> = names.iter().zip(&files).map(|(name, place)| (&**name, 0, *place)).collect();
    let root = writer.folder(&named, &Node::default(), How::Long);
    let image = writer.finish(root);
    let of = |changed: usize, what: &str| {
        let mut image = image.clone();
        image[changed] ^= 0x55;
        let path = scratch.path("a.udf");
        fs::write(&path, image).unwrap();
        let ran = run(&scratch, ["ls", path.to_str().unwrap()]);
        let text = ran.text();
        let found: Vec<_> = text.lines().collect();
        assert!(ran.code == 5 && ran.err.contains(what), "{what}: {} {}", ran.code, ran.err);
        assert_eq!(found.len(), 49, "{what}: {}", ran.err);
        assert!(!found.contains(&"name-20") && found.contains(&"name-21"), "{what}: {found:?}");
    };
    let entry = (udf_image::START + files[20].block) as usize * 2048;
    of(entry + 40, "name-20 is left out");
    let name = image.windows(7).position(|bytes| bytes == b"name-20").unwrap();
    of(name, "the root: 48 bytes of the listing");
    of(name - 20, "the root: 48 bytes of the listing");
    of(name - 39, "the root: 48 bytes of the listing");
}

/// A small image of one file in a folder, in which a test changes something.
fn small(kind: Kind, block: usize) -> Vec<u8> {
    let mut writer = Writer::new(kind, block);
    // A tar cannot have a label.
    writer.name = String::new();
    let file = writer.content(&[b'x'; 5000], How::Long);
    let file = writer.entry(&file);
    let folder = writer.folder(&[("file", 0, file)], &Node::default(), How::Inside);
    let root = writer.folder(&[("folder", udf_image::IS_FOLDER, folder)], &Node::default(), How::Long);
    writer.finish(root)
}

fn read(scratch: &Scratch, image: &[u8], name: &str) -> Ran {
    let path = scratch.path("changed.udf");
    fs::write(&path, image).unwrap();
    run(scratch, ["cat", path.to_str().unwrap(), name])
}

/// Of each thing that is there twice, one is enough.
#[test]
fn copies_stand_in_for_what_is_damaged() {
    let scratch = Scratch::new();
    let wanted = vec![b'x'; 5000];
    for kind in KINDS {
        let block = 512;
        let image = small(kind, block);
        let sectors = image.len() / block;
        let with = |changes: &[usize]| {
            let mut image = image.clone();
            for sector in changes {
                image[sector * block + 40] ^= 0xff;
            }
            read(&scratch, &image, "folder/file")
        };
        // Each descriptor of the volume, then some of each.
        for changes in [&[128][..], &[129], &[130], &[161], &[128, 162], &[129, 160, 162], &[128, 129, 130]] {
            let ran = with(changes);
            assert!(matches!(ran.code, 0 | 5) && ran.out == wanted, "{kind:?} {changes:?}: {}", ran.err);
        }
        let ran = with(&[130, 162]);
        assert!(ran.code != 0 && ran.err.contains("logical volume"), "{kind:?}: {}", ran.err);
        let (at_end, both) = (with(&[256]), with(&[256, sectors - 1]));
        if matches!(kind, Kind::Virtual | Kind::VirtualOld) {
            assert!(at_end.code != 0 && at_end.err.contains("anchor"), "{kind:?}: {}", at_end.err);
            let no_table = with(&[sectors - 1]);
            assert!(
                no_table.code != 0 && no_table.err.contains("the table of its blocks"),
                "{kind:?}: {}",
                no_table.err
            );
        } else {
            assert!(at_end.code == 0 && at_end.out == wanted, "{kind:?}: {}", at_end.err);
            assert!(both.code != 0 && both.err.contains("anchor"), "{kind:?}: {}", both.err);
        }
    }
    // Any descriptor of the metadata, and of the file of it.
    let image = small(Kind::Metadata, 512);
    let mut changed = 0;
    for sector in udf_image::START as usize..image.len() / 512 - 1 {
        let kind = u16::from_le_bytes(image[sector * 512..][..2].try_into().unwrap());
        if matches!(kind, 256 | 266) {
            let mut image = image.clone();
            image[sector * 512 + 40] ^= 0xff;
            let ran = read(&scratch, &image, "folder/file");
            assert!(matches!(ran.code, 0 | 5) && ran.out == wanted, "{sector}: {}", ran.err);
            changed += 1;
        }
    }
    assert!(changed >= 10, "{changed}");
}

/// The prevailing descriptor is the one with the highest number, wherever it stands.
#[test]
fn the_newest_descriptor_prevails() {
    let scratch = Scratch::new();
    let mut image = small(Kind::Plain, 512);
    // The logical volume again, with another number and without a partition map.
    for (number, sector) in [(2_u32, 131), (9, 163)] {
        let mut older = image[130 * 512..131 * 512].to_vec();
        older[12..16].copy_from_slice(&(sector as u32).to_le_bytes());
        older[16..20].copy_from_slice(&number.to_le_bytes());
        older[268] = 0;
        seal(&mut older);
        let (at, end) = (sector * 512, (sector + 1) * 512);
        let behind = image[at..end].to_vec();
        image[at..end].copy_from_slice(&older);
        let mut behind = behind;
        behind[12..16].copy_from_slice(&(sector as u32 + 1).to_le_bytes());
        seal(&mut behind);
        image[end..end + 512].copy_from_slice(&behind);
        let ran = read(&scratch, &image, "folder/file");
        assert!(ran.code == 0 && ran.out.len() == 5000, "{sector}: {}", ran.err);
    }
    // In the main one it counts.
    let mut newer = image[131 * 512..132 * 512].to_vec();
    newer[16..20].copy_from_slice(&9_u32.to_le_bytes());
    seal(&mut newer);
    image[131 * 512..132 * 512].copy_from_slice(&newer);
    assert_ne!(read(&scratch, &image, "folder/file").code, 0);
}

/// Entries that were replaced, deleted names, streams, links to one entry.
#[test]
fn what_else_there_is_in_an_image() {
    if !can_mount() {
        return println!("left out: no mounts here");
    }
    let scratch = Scratch::new();
    for kind in KINDS {
        fs::write(scratch.path("a.udf"), udf_image::sample(kind)).unwrap();
        let mounted = Mounted::new(&scratch, scratch.path("a.udf"), &[]);
        let text = |name: &str| fs::read_to_string(mounted.path(name)).unwrap();
        assert_eq!(
            (text("replaced"), text("short"), text("below/again")),
            ("newer".into(), "short".into(), "short".into()),
            "{kind:?}"
        );
        let (one, other) =
            (fs::metadata(mounted.path("short")).unwrap(), fs::metadata(mounted.path("below/again")).unwrap());
        assert_eq!((one.ino(), one.nlink()), (other.ino(), 2), "{kind:?}");
        assert!(!mounted.path("gone").exists() && mounted.path("long").exists(), "{kind:?}");
        assert_eq!(fs::read(mounted.path("long")).unwrap(), [7; 3000]);
        assert_eq!(fs::read(mounted.path("other")).unwrap(), [8; 3000]);
        assert_eq!(fs::read(mounted.path("sparse")).unwrap(), [&[9; 512][..], &[0; 1536]].concat());
        assert_eq!(fs::read_link(mounted.path("link")).unwrap().as_os_str().as_bytes(), "/a/../日".as_bytes());
        let seen = survey(&mounted.path(""), Compare::default());
        let xattrs = &seen[&PathBuf::from("with")].xattrs;
        assert_eq!(xattrs.iter().collect::<Vec<_>>(), [(&"user.stream".into(), &b"a stream".to_vec())], "{kind:?}");
        mounted.unmount();
    }
}

/// Names that Linux cannot have are changed, and none leads out.
#[test]
fn names_that_cannot_be_are_changed() {
    let scratch = Scratch::new();
    let mut writer = Writer::new(Kind::Plain, 2048);
    let file = writer.content(b"x", How::Inside);
    let file = writer.entry(&file);
    let mut listing = Vec::new();
    for name in ["..", ".", "a/b", "a\0b", "fine", ""] {
        listing.extend(writer.name(&text(name), 0, file));
    }
    listing.extend(writer.name(b"\x05odd", 0, file));
    let folder = writer.content(&listing, How::Long);
    let root = writer.entry(&of(folder, &Node { kind: udf_image::FOLDER, ..Node::default() }));
    fs::write(scratch.path("a.udf"), writer.finish(root)).unwrap();
    let path = scratch.path("a.udf");
    let listed = run(&scratch, ["ls", path.to_str().unwrap()]);
    let text = listed.text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{lines:?} {}", listed.err);
    assert!(lines.contains(&"fine") && listed.err.contains("in no encoding"), "{lines:?} {}", listed.err);
    assert_eq!(lines.iter().filter(|line| line.starts_with("a_b#")).count(), 2, "{lines:?}");
}

/// What leads around in circles, or tells the same again and again, comes to an end.
#[test]
fn circles_and_bombs_come_to_an_end() {
    let scratch = Scratch::new();
    let folder = |node: Node| of(node, &Node { kind: udf_image::FOLDER, ..Node::default() });
    let listed = |image: Vec<u8>, what: &str| {
        let path = scratch.path("a.udf");
        fs::write(&path, image).unwrap();
        let ran = run(&scratch, ["ls", "-R", path.to_str().unwrap()]);
        assert!(ran.code == 5 && ran.err.contains(what), "{what}: {} {}", ran.code, ran.err);
    };
    // A folder in itself.
    let mut writer = Writer::new(Kind::Plain, 512);
    let below = writer.free();
    let listing = writer.listing(&[("again", udf_image::IS_FOLDER, below)]);
    let node = writer.content(&listing, How::Inside);
    writer.put_entry(&folder(node), below);
    let root = writer.folder(&[("one", udf_image::IS_FOLDER, below)], &Node::default(), How::Inside);
    listed(writer.finish(root), "it is another folder, too");
    // Entries that lead to each other.
    let mut writer = Writer::new(Kind::Plain, 512);
    let [one, two] = [writer.free(), writer.free()];
    writer.indirect(one, two);
    writer.indirect(two, one);
    let root = writer.folder(&[("one", 0, one)], &Node::default(), How::Inside);
    listed(writer.finish(root), "its entry was replaced by itself");
    // A list of parts that leads to itself.
    let mut writer = Writer::new(Kind::Plain, 512);
    let list: Vec<_> = (0..8).map(|block| long(512, Place { partition: 0, block })).collect();
    let mut allocation = writer.chained(&list, 4);
    let next = u32::from_le_bytes(allocation[allocation.len() - 12..][..4].try_into().unwrap());
    let place = Place { partition: 0, block: next };
    let body = [0_u32, 16, 3 << 30 | 512, next, 0, 0].map(u32::to_le_bytes).concat();
    let mut bytes = [
        &258_u16.to_le_bytes()[..],
        &[3, 0, 0, 0, 0, 0, 0, 0],
        &(body.len() as u16).to_le_bytes(),
        &next.to_le_bytes(),
        &body,
    ]
    .concat();
    seal(&mut bytes);
    writer.put(place, &bytes);
    allocation.truncate(allocation.len());
    let node = Node { length: 1 << 40, form: 1, allocation, ..Node::default() };
    let file = writer.entry(&node);
    let root = writer.folder(&[("one", 0, file)], &Node::default(), How::Inside);
    listed(writer.finish(root), "the list of its parts has no end");
    // A file of more bytes than there can be, and a listing that is one hole.
    let mut writer = Writer::new(Kind::Plain, 512);
    let node = writer.of_parts(u64::MAX, &[long(512, Place::default())]);
    let file = writer.entry(&node);
    let node = writer.of_parts(1 << 40, &vec![long(1 << 30 | 0x3fff_fe00, Place::default()); 20]);
    let hole = writer.entry(&folder(node));
    let root = writer.folder(&[("one", 0, file), ("hole", 2, hole)], &Node::default(), How::Inside);
    let image = writer.finish(root);
    listed(image.clone(), "it would have 18446744073709551615 bytes");
    listed(image, "bytes of the listing");
    // Many folders that share one large listing.
    let mut writer = Writer::new(Kind::Plain, 512);
    let file = writer.content(b"x", How::Inside);
    let file = writer.entry(&file);
    let listing = writer.listing(&vec![("file", 0, file); 5000]);
    let shared = writer.content(&listing, How::Long);
    let folders: Vec<_> = (0..400).map(|_| writer.entry(&folder(shared.clone()))).collect();
    let names: Vec<_> = (0..400).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().zip(folders).map(|(name, place)| (&**name, 2, place)).collect();
    let root = writer.folder(&names, &Node::default(), How::Long);
    listed(writer.finish(root), "listings overlap");
}

/// What a descriptor says of tables costs no more than such a table can have, and what only looks like one next to
/// nothing.
#[test]
fn tables_cost_what_they_can_have() {
    let scratch = Scratch::new();
    let read = |image: &[u8], length: u64, limit: &str| {
        let path = scratch.path("a.udf");
        fs::write(&path, image).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(length.max(image.len() as u64)).unwrap();
        let limit = format!("ulimit {limit}; exec \"$@\"");
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &limit, "bash", env!("CARGO_BIN_EXE_tarnfs"), "cat"]).arg(&path).arg("folder/file");
        command.output().unwrap()
    };
    // It says that it has 4 GiB, and the image is longer.
    let mut image = small(Kind::Sparable, 512);
    for at in (0..image.len()).step_by(512) {
        let name = image[at..at + 512].windows(23).position(|bytes| bytes == b"*UDF Sparable Partition");
        if let Some(name) = name.filter(|_| image[at..].starts_with(&[6, 0])) {
            image[at + name - 5 + 44..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
            seal(&mut image[at..at + 512]);
        }
    }
    let ran = read(&image, 6 << 30, "-v 2500000");
    assert!(ran.status.success() && ran.stdout.len() == 5000, "{}", String::from_utf8_lossy(&ran.stderr));
    // Behind the table of blocks there are many files of any kind, of 16 MiB each.
    let mut image = small(Kind::VirtualOld, 512);
    let writer = Writer::new(Kind::Plain, 512);
    let allocation = long(16 << 20, Place::default());
    let node = Node { kind: 0, length: 16 << 20, form: 1, allocation, ..Node::default() };
    for _ in 0..40_000 {
        let block = (image.len() / 512) as u32 - udf_image::START;
        let mut entry = writer.entry_bytes(&node, Place { partition: 0, block });
        entry.resize(512, 0);
        image.extend(entry);
    }
    let ran = read(&image, 0, "-t 30");
    assert!(ran.status.success() && ran.stdout.len() == 5000, "{}", String::from_utf8_lossy(&ran.stderr));
}

/// What was on a medium before it was formatted does not show, whatever sectors that had.
#[test]
fn what_was_there_before_does_not_show() {
    if !have("mkudffs") {
        return println!("left out: no mkudffs");
    }
    let scratch = Scratch::new();
    for (before, after) in [(2048, 512), (2048, 1024), (4096, 512), (512, 2048), (1024, 4096)] {
        scratch.shell(&format!(
            "rm -f z.udf; truncate -s 40M z.udf; mkudffs --label=BEFORE -b {before} z.udf > log
             sleep 1.1; mkudffs --label=AFTER -b {after} z.udf > log"
        ));
        let ran = run(&scratch, ["info", scratch.path("z.udf").to_str().unwrap()]).ok();
        assert!(ran.text().contains("AFTER"), "{before} {after}: {}", ran.text());
    }
}

/// Of what has both, the other side shows where the root of UDF cannot be read.
#[test]
fn a_bridge_without_its_root_shows_the_other_side() {
    if !have("genisoimage") {
        return println!("left out: no genisoimage");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/below; seq 9 > tree/below/nine; genisoimage -quiet -udf -J -o a.iso tree 2> log || { cat log; false; }");
    let mut image = fs::read(scratch.path("a.iso")).unwrap();
    let is_root = |at: &usize| image[*at..].starts_with(&[5, 1]) && image[*at + 27] == udf_image::FOLDER;
    let root = (0..image.len()).step_by(2048).find(is_root).unwrap();
    assert_eq!(names(&scratch, "a.iso"), ["below", "below/nine"]);
    image[root + 60] ^= 1;
    fs::write(scratch.path("b.iso"), image).unwrap();
    let listed = run(&scratch, ["find", scratch.path("b.iso").to_str().unwrap(), "-name", "nine"]);
    assert!(listed.text().contains("below/nine") && listed.err.contains("its root cannot be read"), "{}", listed.err);
}

/// An image that was cut anywhere shows what is whole, and of a file what is there of it.
#[test]
fn a_cut_image_serves_what_is_there() {
    let scratch = Scratch::new();
    let mut writer = Writer::new(Kind::Plain, 2048);
    let bytes: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
    let first = writer.free();
    let root = writer.free();
    let listing = writer.listing(&[
        ("file", 0, first),
        ("last", 0, Place { partition: 0, block: 4 + bytes.len().div_ceil(2048) as u32 }),
    ]);
    let node = writer.content(&listing, How::Inside);
    writer.put_entry(&of(node, &Node { kind: udf_image::FOLDER, ..Node::default() }), root);
    let file = writer.content(&bytes, How::Long);
    writer.put_entry(&file, first);
    let last = writer.content(b"last", How::Inside);
    let last = writer.entry(&last);
    assert_eq!(last.block, 4 + bytes.len().div_ceil(2048) as u32);
    let image = writer.finish(root);
    let mut parts = 0;
    for length in (0..image.len()).step_by(image.len() / 60) {
        let ran = read(&scratch, &image[..length], "file");
        assert!(!ran.err.contains("panicked") && bytes.starts_with(&ran.out), "{length}: {}", ran.err);
        assert!(ran.code != 0 || ran.out == bytes, "{length}");
        // Up to the cut, but for what is read at once.
        let there = length.saturating_sub((udf_image::START as usize + 4) * 2048).min(bytes.len());
        assert!(ran.out.len() + (256 << 10) >= there, "{length}: {} of {there}", ran.out.len());
        parts += usize::from(!ran.out.is_empty());
        let check = run(&scratch, ["check", scratch.path("changed.udf").to_str().unwrap()]);
        assert!(check.code != 0 || ran.out == bytes, "{length}");
    }
    assert!(read(&scratch, &image, "file").ok().out == bytes);
    println!("{parts} in part");
}

#[test]
fn an_image_lies_in_other_archives_and_others_in_it() {
    if !have("zip") {
        return println!("left out: no zip");
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir in; seq 70000 > in/numbers; tar -C in -czf in.tar.gz numbers");
    let mut writer = Writer::new(Kind::Plain, 2048);
    let inner = writer.content(&fs::read(scratch.path("in.tar.gz")).unwrap(), How::Long);
    let inner = writer.entry(&inner);
    let nine = writer.content(b"nine", How::Inside);
    let nine = writer.entry(&nine);
    let own = writer.content(&small(Kind::Metadata, 512), How::Long);
    let own = writer.entry(&own);
    let root = writer.folder(
        &[("in.tar.gz", 0, inner), ("nine", 0, nine), ("own.udf", 0, own)],
        &Node::default(),
        How::Inside,
    );
    fs::write(scratch.path("a.udf"), writer.finish(root)).unwrap();
    scratch.shell("gzip -k a.udf; xz -k a.udf; tar -cf t.tar a.udf a.udf.gz; gzip -k t.tar; zip -q z.zip a.udf");
    let numbers = fs::read(scratch.path("in/numbers")).unwrap();
    for (archive, before) in [
        ("a.udf", ""),
        ("a.udf.gz", ""),
        ("a.udf.xz", ""),
        ("t.tar", "a.udf/"),
        ("t.tar", "a.udf.gz/"),
        ("t.tar.gz", "a.udf/"),
        ("t.tar.gz", "a.udf.gz/"),
        ("z.zip", "a.udf/"),
    ] {
        let path = scratch.path(archive);
        let options = ["cat", "-r", "--recursive-extensions", "/archive,/compressed,/disk", path.to_str().unwrap()];
        let read = |name: &str| {
            let name = format!("{before}{name}");
            run(&scratch, options.iter().copied().chain([name.as_str()])).ok()
        };
        assert_eq!(read("nine").text(), "nine", "{archive}");
        assert!(read("in.tar.gz/numbers").out == numbers, "{archive}");
        assert_eq!(read("own.udf/folder/file").out, [b'x'; 5000], "{archive}");
    }
}

/// A volume that tells no owners tells neither modes nor hard links that anybody has chosen.
#[test]
fn a_volume_without_owners_is_compared_without_them() {
    if !have("genisoimage") {
        return println!("left out: no genisoimage");
    }
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir -p t/below; seq 9 > t/nine; chmod 600 t/nine; ln t/nine t/below/again; chown 1000:1000 t/nine || true
         genisoimage -quiet -udf -J -o a.iso t 2> log || { cat log; false; }",
    );
    let ran = run(&scratch, ["compare", scratch.path("a.iso").to_str().unwrap(), scratch.path("t").to_str().unwrap()]);
    assert!(ran.code == 0 && ran.out.is_empty(), "{}{}", ran.text(), ran.err);
}

/// An image that has more than is shown of it stays when it is converted.
#[test]
fn what_has_more_than_is_shown_is_not_replaced() {
    let scratch = Scratch::new();
    let with_streams = |streams: &[(&str, usize)]| {
        let mut writer = Writer::new(Kind::Plain, 512);
        writer.name = String::new();
        let mut listed = Vec::new();
        for &(name, length) in streams {
            let stream = writer.content(&vec![1; length], How::Long);
            listed.push((name, 0, writer.entry(&stream)));
        }
        let listing = writer.listing(&listed);
        let node = writer.content(&listing, How::Long);
        let streams = writer.entry(&of(node, &Node { kind: udf_image::STREAMS, ..Node::default() }));
        let file = writer.entry(&Node { streams: Some(streams), is_extended: true, ..Node::default() });
        let root = writer.folder(&[("file", 0, file)], &Node::default(), How::Inside);
        writer.finish(root)
    };
    let (name, many) = ("n".repeat(251), (0..1100).map(|number| number.to_string()).collect::<Vec<_>>());
    let many: Vec<_> = many.iter().map(|name| (&**name, 1)).collect();
    let plain = small(Kind::Plain, 2048);
    let boot = [b"MBR", &plain[3..]].concat();
    let more = [&plain[..], b"tail"].concat();
    for (name, image, what) in [
        ("long.udf", with_streams(&[("stream", 70_000)]), "streams or attributes that have no place"),
        ("name.udf", with_streams(&[(&name, 1)]), "streams or attributes that have no place"),
        ("many.udf", with_streams(&many), "streams or attributes that have no place"),
        ("twice.udf", with_streams(&[("one", 1), ("one", 2)]), "streams or attributes that have no place"),
        ("streams.udf", with_streams(&[("one", 1), ("two", 2)]), ""),
        ("boot.udf", boot, "first 32768 bytes"),
        ("more.udf", more, "behind its end"),
        ("plain.udf", plain, ""),
    ] {
        fs::write(scratch.path(name), image).unwrap();
        let mut command = tarnfs(&scratch);
        command.args(["convert", "--replace", name, "new.tar"]).current_dir(scratch.path(""));
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(
            (ran.code == 0, scratch.path(name).exists()),
            (what.is_empty(), !what.is_empty()),
            "{name}: {}",
            ran.err
        );
        assert!(ran.err.contains(what), "{name}: {}", ran.err);
        scratch.shell("rm -f new.tar");
    }
}
