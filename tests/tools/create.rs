//! `tarnfs create`: what it writes is what the other programs read, and the same on every machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::Stdio;

use crate::support::{Compare, Mounted, Scratch, assert_twins, can_mount, have, is_root, run, tarnfs};

/// Suffix, and what decompresses it.
const TARS: [(&str, &str); 6] = [
    ("tar", "cat"),
    ("tar.gz", "gzip -dc"),
    ("tar.bz2", "bzip2 -dc"),
    ("tar.xz", "xz -dc"),
    ("tar.zst", "zstd -dcq"),
    ("tar.lz4", "lz4 -dcq"),
];

/// Whatever a folder may hold. Without root there are no devices and no other owners.
const TREE: &str = r"
    mkdir -p tree/folder/deep tree/empty; cd tree
    printf hello > file; : > nothing; head -c 1500000 /dev/urandom > random; seq 1 300000 > numbers
    head -c 2000000 /dev/zero > zeros
    printf y > 'sp ace'; printf z > $'\xff\xfe'; printf u > 'ünï'; printf c > $'new\nline'
    ln file folder/hard; ln -s ../file folder/link; ln -s /absent absolute; ln -s file $'li\xffnk'; mkfifo pipe
    name=$(printf 'n%.0s' {1..200}); mkdir -p $name/$name; printf long > $name/$name/$name; ln -s $name/$name/x long
    half=$(printf 'h%.0s' {1..95}); mkdir $half; printf s > $half/$half
    truncate -s 5M sparse; printf middle | dd of=sparse bs=1 seek=1000000 conv=notrunc status=none
    truncate -s 1M hole; printf start > holes; truncate -s 300000 holes; printf end >> holes
    chmod 4711 file; chmod 2775 folder; chmod 1777 empty; chmod 600 nothing
    touch -d '2001-02-03 04:05:06.123456789 UTC' file; touch -d '1960-01-01 00:00:00.25 UTC' nothing
    touch -d '2400-01-01 UTC' zeros; touch -h -d '2010-01-01 00:00:00.5 UTC' absolute
    if [ $(id -u) = 0 ]; then
        chown 123456:4000000000 numbers; chown daemon:bin random; mknod null c 1 3; mknod loop b 7 300000
    fi
    touch -d '2011-11-11 11:11:11 UTC' folder/deep folder empty .
";

fn tree(scratch: &Scratch) {
    scratch.shell(TREE);
}

/// > What `create` writes as a tar, every program that reads tars reads with all attributes.
#[test]
fn a_tar_is_what_gnu_tar_and_bsdtar_say_it_is() {
    let scratch = Scratch::new();
    tree(&scratch);
    let has_xattrs = have("setfattr") && have("setfacl");
    if has_xattrs {
        scratch.shell(
            "cd tree; setfattr -n user.note -v 'a=b' file; setfattr -n user.bin -v 0x00ff0a folder; \
             setfattr -n user.a%b -v x numbers; setfacl -m u:daemon:r,g:54321:rwx,m:rx random; setfacl -d -m u:bin:rx folder",
        );
        if is_root() {
            scratch.shell("cd tree; setfattr -n trusted.t -v 1 file; setfattr -h -n trusted.link -v 2 absolute");
        }
    }
    for (suffix, decompress) in TARS {
        let name = format!("x.{suffix}");
        let ran = tarnfs(&scratch)
            .args(["create", "-S", "--xattrs", "--acls", "--sort=name", &name, "tree"])
            .current_dir(scratch.path(""))
            .output()
            .unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{name}: {ran:?}");
        scratch.shell(&format!("{decompress} {name} > {suffix}.plain; cmp {suffix}.plain x.tar"));
    }
    // Compares content, types, modes, owners, times, links; attributes below.
    scratch.shell("tar --compare --xattrs --acls -f x.tar 2>&1 | tee said; [ ! -s said ]");
    // Nothing of it is said to be odd.
    scratch.shell(
        "mkdir gnu bsd; tar --xattrs --xattrs-include='*' --acls -xpSf x.tar -C gnu 2>&1 | (! grep -v 'time stamp')",
    );
    let compare = Compare { skip_folder_times: false, holes: true, whole_seconds: false };
    assert_twins(&scratch.path("gnu/tree"), &scratch.path("tree"), compare);
    if has_xattrs {
        scratch.shell(
            "for x in tree gnu/tree; do (cd $x; getfattr -hRm - -d -e hex . 2> /dev/null; getfacl -Rn . 2> /dev/null) > ${x%%/*}.attributes; done
             cmp tree.attributes gnu.attributes; grep -q 'user.note=0x613d62' tree.attributes; grep -q 'group:54321' tree.attributes",
        );
    }
    if have("bsdtar") {
        scratch.shell("bsdtar -xpSf x.tar -C bsd 2> said; [ ! -s said ]");
        // It takes the digits behind the point of a time before 1970 for those that come after, not before.
        scratch.shell("touch -r tree/nothing bsd/tree/nothing");
        if has_xattrs {
            // GNU tar and star escape what would end a key; bsdtar takes it as it is.
            scratch.shell("cd bsd/tree; setfattr -x user.a%25b numbers; setfattr -n user.a%b -v x numbers; touch -r ../../tree/numbers numbers");
        }
        assert_twins(&scratch.path("bsd/tree"), &scratch.path("tree"), Compare { holes: false, ..compare });
    }
    if can_mount() {
        let mounted = Mounted::new(&scratch, scratch.path("x.tar.zst"), &[]);
        assert_twins(&mounted.path("tree"), &scratch.path("tree"), compare);
    }
}

/// > What `create` compresses passes the test of each format's own program, and is in parts that can be found and
/// > decoded by themselves.
#[test]
fn what_is_compressed_is_in_parts_for_every_program() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; head -c 8000000 /dev/urandom | base64 > tree/text; seq 1 1000000 > tree/numbers");
    for (suffix, check) in [
        ("tar.gz", "gzip -t"),
        ("tar.bz2", "bzip2 -t"),
        ("tar.xz", "xz -t"),
        ("tar.zst", "zstd -tq"),
        ("tar.lz4", "lz4 -tq"),
        ("zip", "unzip -tq"),
        ("zip", "7z t"),
    ] {
        let level = if suffix == "tar.lz4" { "" } else { "--level=1" };
        let words = format!("create --overwrite {level} x.{suffix} tree");
        let ran = tarnfs(&scratch).args(words.split_whitespace()).current_dir(scratch.path("")).output().unwrap();
        assert!(ran.status.success(), "{words}: {ran:?}");
        if have(check.split(' ').next().unwrap()) {
            scratch.shell(&format!("{check} x.{suffix}"));
        }
    }
    // Members of at most 64 KiB, as bgzip makes them.
    let gzip = fs::read(scratch.path("x.tar.gz")).unwrap();
    assert_eq!((&gzip[12..14], &gzip[gzip.len() - 28..][12..14]), (&b"BC"[..], &b"BC"[..]));
    if have("bgzip") {
        scratch.shell("bgzip -t x.tar.gz; bgzip -r x.tar.gz; bgzip -b 12000000 -s 1000 x.tar.gz | cmp - <(gzip -dc x.tar.gz | tail -c +12000001 | head -c 1000)");
    }
    assert!(scratch.shell("xz --robot -l x.tar.xz").lines().any(|line| {
        let fields: Vec<_> = line.split('\t').collect();
        fields[0] == "file" && fields[2].parse::<u32>().unwrap() > 3
    }));
    scratch.shell("xz -T2 -dc x.tar.xz | cmp - <(xz -dc x.tar.xz)");
    let zstd = fs::read(scratch.path("x.tar.zst")).unwrap();
    // The seekable format ends with its magic; before it, flags and the number of frames.
    assert_eq!(zstd[zstd.len() - 4..], 0x8f92_eab1_u32.to_le_bytes());
    let frames = u32::from_le_bytes(zstd[zstd.len() - 9..zstd.len() - 5].try_into().unwrap());
    assert!(frames > 3, "{frames}");
    assert!(zstd.len() > 8 + 8 * frames as usize + 9);
    let table = &zstd[zstd.len() - 9 - 8 * frames as usize..zstd.len() - 9];
    let word = |at: usize| u64::from(u32::from_le_bytes(table[at..at + 4].try_into().unwrap()));
    let (packed, plain) = (0..frames as usize).fold((0, 0), |(a, b), one| (a + word(one * 8), b + word(one * 8 + 4)));
    assert_eq!(packed, zstd.len() as u64 - 8 - 8 * u64::from(frames) - 9);
    assert_eq!(plain.to_string(), scratch.shell("zstd -dcq x.tar.zst | wc -c").trim());
}

/// > A zip that `create` writes has modes, owners, times, symbolic links and names; what it cannot hold is told.
#[test]
fn a_zip_is_what_unzip_and_7z_say_it_is() {
    if !have("unzip") || !have("7z") {
        return;
    }
    let scratch = Scratch::new();
    tree(&scratch);
    let ran = run_in(&scratch, "create x.zip tree");
    assert_eq!(ran.0, 1);
    assert!(ran.1.contains("tree/pipe: it is left out: a named pipe cannot be kept in a zip"), "{}", ran.1);
    scratch.shell("unzip -tq x.zip; 7z t x.zip > /dev/null; cd tree; rm pipe li*nk new*line *$'\\xfe'; [ $(id -u) != 0 ] || rm null loop");
    let (code, said) = run_in(&scratch, "create --overwrite x.zip tree");
    assert_eq!((code, said.as_str()), (0, ""));
    // A zip has no holes and no second names; unzip writes times in whole seconds, and no special bits.
    scratch.shell("mkdir out; LC_ALL=C.UTF-8 unzip -qXK x.zip -d out; diff -r --no-dereference tree out/tree");
    let listed = |folder: &str| {
        scratch.shell(&format!(
            r"cd {folder}; find . \( -name zeros -o -name nothing -o -type l \) -prune -o -printf '%p %m %Ts %U %G\n' | sort"
        ))
    };
    assert_eq!(listed("out/tree"), listed("tree"));
    if can_mount() {
        let mounted = Mounted::new(&scratch, scratch.path("x.zip"), &[]);
        scratch.shell(&format!("diff -r --no-dereference tree {}/tree", mounted.at.display()));
        let time = |path: &Path| fs::symlink_metadata(path).unwrap().modified().unwrap();
        let nanoseconds = |path: &Path| time(path).duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() / 100;
        assert_eq!(nanoseconds(&mounted.path("tree/file")), nanoseconds(&scratch.path("tree/file")));
    }
}

/// Runs in the scratch folder: the code, and what was said.
fn run_in(scratch: &Scratch, words: &str) -> (i32, String) {
    let ran = tarnfs(scratch).args(words.split_whitespace()).current_dir(scratch.path("")).output().unwrap();
    (ran.status.code().unwrap_or(-1), String::from_utf8_lossy(&ran.stderr).into_owned())
}

#[track_caller]
fn create(scratch: &Scratch, words: &str) {
    assert_eq!(run_in(scratch, &format!("create {words}")), (0, String::new()), "{words}");
}

/// > A zip may have more files than 16 bits can count.
#[test]
fn a_zip_of_many_files() {
    if !have("unzip") || !have("7z") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; cd tree; seq 1 66000 | xargs touch");
    create(&scratch, "x.zip tree");
    assert_eq!(scratch.shell("unzip -Z1 x.zip | wc -l").trim(), "66001");
    scratch.shell("7z t x.zip > /dev/null");
}

/// > The options of `create` choose the same, and make it look the same, as those of GNU tar.
#[test]
fn options_mean_what_they_mean_in_gnu_tar() {
    let scratch = Scratch::new();
    tree(&scratch);
    scratch.shell(
        r"mkdir tree/skip; echo x > tree/skip/inside; echo o > tree/a.o; echo o > tree/folder/deep/b.o
          printf '*.o\ntree/skip\n' > globs; printf 'tree/file\ntree/folder\n' > list; printf 'tree/file\0tree/new\nline\0' > zeros
          rm tree/pipe; rm -f tree/ünï; rm tree/li*nk tree/null tree/loop tree/*fe 2> /dev/null || true; ln -s ../tree/file tree/to; ln -s nowhere tree/dangling",
    );
    for words in [
        "tree",
        "./tree",
        "tree/folder tree/file",
        "--exclude=*.o tree",
        "--exclude=skip tree",
        "--exclude=tree/[f-s]* tree",
        "--exclude=folder/deep tree",
        "-X globs tree",
        "-T list",
        "--null -T zeros",
        "-C tree file folder",
        "-C tree .",
        "--owner=root --group=bin:77 tree",
        "--owner=12345 tree",
        "--owner=7 --group=9 tree",
        "--numeric-owner tree",
        "--mtime=@1000000000 tree",
        "--mtime=./globs tree",
        "--mode=u+rw,go-w tree",
        "--mode=0640 tree/file",
        "--mode=755 tree",
        "--mode=u=rwX,go=rX tree",
        "--transform=s,tree,other, tree",
        "--transform=s,^tree/,, --transform=s/.*/\\U&/ tree",
        "--transform=s/e/E/g;s/\\(f\\)\\(i\\)/\\2\\1/ tree",
        "--transform=s/f(i|o)/X\\1/xg tree",
        "--transform=s/f/F/S tree",
        "--hard-dereference tree",
        "-S tree",
        "--one-file-system tree",
    ] {
        let gnu = format!(
            "tar --format=posix --pax-option=delete=atime,delete=ctime --sort=name -cf gnu.tar {}",
            quoted(words)
        );
        scratch.shell(&gnu);
        create(&scratch, &format!("--overwrite --sort=name x.tar {words}"));
        let listed = |name: &str| scratch.shell(&format!("tar --full-time -tvf {name}"));
        assert_eq!(listed("x.tar"), listed("gnu.tar"), "{words}");
        scratch.shell("mkdir one two; tar -xpf x.tar -C one; tar -xpf gnu.tar -C two; diff -r --no-dereference one two; chmod -R u+rwx one two; rm -r one two");
    }
    // What links lead to.
    scratch.shell("rm tree/dangling tree/absolute tree/long; tar -h --sort=name -cf gnu.tar tree");
    create(&scratch, "--overwrite -h --sort=name x.tar tree");
    assert_eq!(scratch.shell("tar -tvf x.tar"), scratch.shell("tar -tvf gnu.tar"));
    // Dates.
    for (date, seconds) in
        [("2024-02-29T12:00:00Z", "1709208000"), ("@5.5", "5"), ("2024-02-29T13:00:00+01:00", "1709208000")]
    {
        create(&scratch, &format!("--overwrite --mtime={date} x.tar tree/numbers"));
        scratch.shell(&format!(
            "rm -rf one; mkdir one; tar -xpf x.tar -C one; [ $(stat -c %Y one/tree/numbers) = {seconds} ]"
        ));
    }
    // What leads out is cut off, as tar does it.
    let (code, said) = run_in(&scratch, "create --overwrite x.tar tree/../../..//etc/hostname");
    assert!(code == 1 || said.contains("is cut off from the names"), "{code} {said}");
    scratch.shell("tar -tf x.tar | (! grep -e '\\.\\.' -e '^/')");
    for bad in [
        "--mode=q x2.tar tree",
        "--owner=nobody-is-called-so x2.tar tree",
        "--mtime=yesterday x2.tar tree",
        "--transform=s/a x2.tar tree",
        "--level=99 x2.tar.gz tree",
        "--level=5 x2.tar.lz4 tree",
        "--compress=rar x2.tar tree",
        "--compress=xz x2.zip tree",
        "x2 tree",
        "x2.tar",
    ] {
        assert_eq!(run_in(&scratch, &format!("create {bad}")).0, 2, "{bad}");
        assert!(fs::read_dir(scratch.path("")).unwrap().all(|one| one.unwrap().file_name() != "x2.tar"), "{bad}");
    }
}

/// Words as a shell takes them.
fn quoted(words: &str) -> String {
    words.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

/// > An archive that is written is the same for any number of threads, and with `--reproducible` on any machine.
#[test]
fn the_same_bytes_for_any_threads_and_with_reproducible_anywhere() {
    let scratch = Scratch::new();
    tree(&scratch);
    scratch.shell("for i in 1 2 3; do seq $i 350000 > tree/more$i; done; rm -f tree/pipe tree/null tree/loop");
    scratch.shell(
        "mkdir other; cp -r --no-preserve=all --preserve=links tree other/tree; cd other/tree; chmod u+x file; chmod -R g+w .; touch -h *",
    );
    for suffix in TARS.map(|(suffix, _)| suffix).into_iter().chain(["zip"]) {
        let level = if suffix.ends_with("lz4") || suffix == "tar" { "" } else { "--level=2" };
        for (threads, memory) in [("1", "1M"), ("5", "1G")] {
            create(&scratch, &format!("{level} -P {threads} --memory {memory} {threads}.{suffix} tree"));
            create(&scratch, &format!("{level} --reproducible -P {threads} r{threads}.{suffix} tree"));
        }
        create(&scratch, &format!("{level} --reproducible o.{suffix} -C other tree"));
        scratch.shell(&format!("cmp 1.{suffix} 5.{suffix}; cmp r1.{suffix} r5.{suffix}; cmp r1.{suffix} o.{suffix}"));
    }
    let (listed, owner) = (scratch.shell("tar --full-time --numeric-owner -tvf r1.tar"), "0/0");
    assert!(listed.lines().all(|line| line.contains(owner) && line.contains("1980-01-01")), "{listed}");
    let mut command = tarnfs(&scratch);
    command.args(["create", "--reproducible", "e.tar", "tree/file"]).env("SOURCE_DATE_EPOCH", "86400");
    assert!(command.current_dir(scratch.path("")).status().unwrap().success());
    assert!(scratch.shell("TZ=UTC tar -tvf e.tar").contains("1970-01-02 00:00"));
}

/// > The index that `create` writes is what a first mount would make of the archive, and a mount uses it.
#[test]
fn the_index_is_that_of_a_first_mount() {
    let scratch = Scratch::new();
    tree(&scratch);
    scratch.shell("mkdir tree/many; cd tree/many; for i in $(seq 1200); do echo $i > $i; done; for i in $(seq 800); do head -c 4000 /dev/urandom > r$i; done; seq 1 1500000 > ../text; setfattr -n user.k -v v 7");
    for (suffix, _) in TARS {
        let name = format!("x.{suffix}");
        let index = scratch.path(format!("{name}.tarnfs.sqlite"));
        create(&scratch, &format!("-S --xattrs {name} tree"));
        let written = Rows::of(&index);
        let ran = run(&scratch, ["ls".as_ref(), "-d".as_ref(), "3".as_ref(), scratch.path(&name).as_os_str()]);
        assert!(ran.err.contains(".tarnfs.sqlite is used"), "{name}: {}", ran.err);
        let ran = run(&scratch, ["index".as_ref(), "-c".as_ref(), scratch.path(&name).as_os_str()]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.err);
        let made = Rows::of(&index);
        for (table, rows) in &made.0 {
            let ours = written.0.iter().find(|(name, _)| name == table).map(|(_, rows)| rows.as_slice());
            // A decoder notes places inside of blocks; who compresses them does not know these.
            let has_more = matches!((suffix, table.as_str()), ("tar.bz2", "states") | ("tar.xz", "states" | "chunks"));
            if has_more {
                assert!(ours.unwrap().len() <= rows.len() && !ours.unwrap().is_empty(), "{name}: {table}");
            } else {
                assert_eq!(ours, Some(rows.as_slice()), "{name}: {table}");
            }
        }
        if can_mount() {
            scratch.shell(&format!("rm {name}*"));
            create(&scratch, &format!("-S --xattrs {name} tree"));
            let mounted = Mounted::new(&scratch, scratch.path(&name), &["--no-recreate-index"]);
            assert_twins(
                &mounted.path("tree"),
                &scratch.path("tree"),
                Compare { skip_folder_times: false, holes: true, whole_seconds: false },
            );
        }
    }
    create(&scratch, "--no-index none.tar tree");
    assert!(!scratch.path("none.tar.tarnfs.sqlite").exists());
    // Also beside one that it replaces, whose index would lie.
    scratch.shell("rm -r tree/many");
    create(&scratch, "--overwrite x.tar.gz tree");
    let ran = run(&scratch, ["ls".as_ref(), "-R".as_ref(), scratch.path("x.tar.gz").as_os_str()]);
    assert!(ran.code == 0 && !ran.text().contains("many"), "{}", ran.err);
}

/// The tables of an index, as text.
struct Rows(Vec<(String, Vec<String>)>);

impl Rows {
    fn of(index: &Path) -> Self {
        let database = rusqlite::Connection::open(index).unwrap();
        let mut names = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").unwrap();
        let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let rows = |name: &String| -> Vec<String> {
            let mut all = database.prepare(&format!("SELECT * FROM \"{name}\"")).unwrap();
            let columns = all.column_count();
            let text = |row: &rusqlite::Row<'_>| {
                Ok((0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())).collect::<Vec<_>>().join(" "))
            };
            all.query_map([], text).unwrap().map(Result::unwrap).collect()
        };
        Self(names.iter().map(|name| (name.clone(), rows(name))).collect())
    }
}

/// > A file that vanishes, gets shorter or cannot be read while `create` reads it is told, with exit code 1, and the
/// > archive is whole.
#[test]
fn files_that_are_not_as_they_were() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; echo before > tree/a; echo behind > tree/z");
    // Files of sysfs say that they have 4096 bytes, and have fewer.
    let short = "/sys/kernel/mm/transparent_hugepage/enabled";
    let shorter = Path::new(short).exists();
    if shorter {
        for name in ["x.tar", "x.tar.zst", "x.zip"] {
            let (code, said) = run_in(&scratch, &format!("create {name} tree/a {short} tree/z"));
            assert_eq!(code, 1, "{said}");
            assert!(said.contains("it became shorter while it was read by"), "{said}");
        }
        scratch.shell("tar -tf x.tar; tar -xOf x.tar tree/z | grep behind; tar --zstd -xOf x.tar.zst tree/z | grep behind; unzip -tq x.zip");
    }
    let (code, said) = run_in(&scratch, "create gone.tar tree/a missing tree/z");
    assert_eq!(code, 1);
    assert!(said.contains("missing: No such file or directory"), "{said}");
    assert_eq!(scratch.shell("tar -tf gone.tar"), "tree/a\ntree/z\n");
    if is_root() {
        scratch.shell("echo secret > tree/secret; chmod 600 tree/secret; mkdir -m 700 tree/closed; chmod 777 .");
        let ran = tarnfs(&scratch)
            .args(["create", "nobody.tar", "tree"])
            .current_dir(scratch.path(""))
            .uid(65_534)
            .gid(65_534)
            .output();
        let Ok(ran) = ran else { return println!("left out: the program lies where nobody else may run it") };
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(1), "{said}");
        assert!(said.contains("tree/secret: it cannot be opened: Permission denied"), "{said}");
        assert!(said.contains("tree/closed: it cannot be opened: Permission denied"), "{said}");
        assert!(scratch.shell("tar -tf nobody.tar").contains("tree/z"));
    }
}

/// > An archive that is written has its name when it is whole; nothing is left of one that is not, and the old one
/// > stays.
#[test]
fn never_half_an_archive() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree out; head -c 30000000 /dev/urandom > tree/random; echo old > out/x.tar");
    let names = || scratch.shell("ls -A out; cat out/x.tar");
    let (code, said) = run_in(&scratch, "create out/x.tar tree");
    assert_eq!(code, 1);
    assert!(said.contains("it exists already: --overwrite replaces it"), "{said}");
    assert_eq!(names(), "x.tar\nold\n");
    // No more than so many blocks of 1 KiB.
    for name in ["x.tar", "x.tar.gz", "x.zip"] {
        let program = env!("CARGO_BIN_EXE_tarnfs");
        let limited = format!("ulimit -f 1000; ! {program} create --overwrite out/{name} tree 2> said; cat said");
        assert!(scratch.shell(&limited).contains("File too large"), "{name}");
        assert_eq!(names(), "x.tar\nold\n", "{name}");
    }
    // Killed in the middle, at some moments.
    for (number, name) in ["x.tar", "x.tar.xz", "x.tar.bz2", "x.zip"].into_iter().enumerate() {
        let mut child = tarnfs(&scratch)
            .args(["create", "--overwrite", &format!("out/{name}"), "tree"])
            .current_dir(scratch.path(""))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5 + 15 * number as u64));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        if ended.signal().is_some() {
            let left = scratch.shell("ls -A out");
            // What was finished before is whole.
            assert!(!left.contains(".part"), "{left}");
            scratch.shell("head -c 3 out/x.tar | grep -q old || tar -tf out/x.tar > /dev/null");
        }
    }
    create(&scratch, "--overwrite out/x.tar tree");
    scratch.shell("tar -df out/x.tar");
    // Into the folder that is put in: the archive is not in itself.
    create(&scratch, "tree/inner.tar.gz tree");
    let (code, said) = run_in(&scratch, "create --overwrite tree/inner.tar.gz tree");
    assert!(code == 0 && said.contains("this is the archive itself"), "{code} {said}");
    assert_eq!(scratch.shell("tar -tf tree/inner.tar.gz | sort"), "tree/\ntree/random\n");
}

/// > `tarnfs create -` writes to standard output.
#[test]
fn to_standard_output() {
    let scratch = Scratch::new();
    tree(&scratch);
    let program = env!("CARGO_BIN_EXE_tarnfs");
    scratch.shell(&format!("{program} create - tree | tar -df - "));
    scratch.shell(&format!("{program} create --compress zstd - tree | zstd -dcq | tar -df - "));
    scratch.shell(&format!(
        "rm tree/pipe; rm -f tree/null tree/loop; {program} create --compress zip - tree > x.zip; unzip -tq x.zip"
    ));
    scratch.shell(&format!("{program} create --compress none /dev/null tree"));
    // Nobody reads on.
    scratch
        .shell(&format!("set +o pipefail; {program} create - tree 2> said | head -c 100 > /dev/null; [ ! -s said ]"));
}

/// > `create` walks folders without following links, also when somebody puts one there meanwhile.
#[test]
fn nobody_leads_it_out_of_the_tree() {
    let scratch = Scratch::new();
    scratch.shell("mkdir -p tree/folder/inner outside/inner; echo secret > outside/secret; echo secret > outside/inner/secret; echo in > tree/folder/inner/file; seq 1 50000 > tree/a");
    let (folder, aside) = (scratch.path("tree/folder"), scratch.path("aside"));
    let outside = scratch.path("outside");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let swapped = std::thread::scope(|threads| {
        let swapping = threads.spawn(|| {
            let mut swapped = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                fs::rename(&folder, &aside).unwrap();
                std::os::unix::fs::symlink(&outside, &folder).unwrap();
                fs::remove_file(&folder).unwrap();
                fs::rename(&aside, &folder).unwrap();
                swapped += 1;
            }
            swapped
        });
        for number in 0..60 {
            let (code, said) = run_in(&scratch, &format!("create --overwrite {number}.tar tree"));
            assert!(code == 0 || code == 1, "{code} {said}");
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        swapping.join().unwrap()
    });
    assert!(swapped > 60, "{swapped}");
    scratch.shell("for number in $(seq 0 59); do tar -tf $number.tar | (! grep secret); done");
}

/// > `create` walks more levels of folders than a process may have files open.
#[test]
fn folders_a_thousand_levels_deep() {
    let scratch = Scratch::new();
    let program = env!("CARGO_BIN_EXE_tarnfs");
    scratch.shell(&format!(
        "mkdir tree; cd tree; for level in $(seq 1000); do echo $level > z; mkdir d; cd d; done; cd {}; ulimit -n 256; {program} create x.tar tree",
        scratch.path("").display()
    ));
    scratch.shell("tar -df x.tar; [ $(tar -tf x.tar | wc -l) = 2001 ]");
}

/// Whoever could not read the old archive cannot read the new one, and nothing replaces something.
#[test]
fn what_replaces_an_archive_has_its_mode_and_something_in_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    scratch
        .shell("mkdir tree; echo one > tree/one; tar -czf x.tar.gz tree; chmod 600 x.tar.gz; cp x.tar.gz old.tar.gz");
    let (code, said) = run_in(&scratch, "create --overwrite x.tar.gz missing");
    assert!(code == 1 && said.contains("no archive was written"), "{code} {said}");
    scratch.shell("cmp x.tar.gz old.tar.gz");
    create(&scratch, "--overwrite x.tar.gz tree");
    let mode = std::fs::metadata(scratch.path("x.tar.gz")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(scratch.shell("tar -xOzf x.tar.gz tree/one"), "one\n");
}

/// Whoever reads a zip from its start needs to know where the data of a member end.
#[test]
fn a_zip_that_is_not_compressed_has_no_stored_data_of_unknown_length() {
    if !have("unzip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("head -c 3000000 /dev/urandom > large; echo small > small");
    create(&scratch, "--level=0 x.zip large small");
    scratch.shell("unzip -tq x.zip; unzip -p x.zip large | cmp - large; bsdtar -xOf - large < x.zip | cmp - large");
    let methods = scratch.shell(
        "python3 -c \"import zipfile
for one in zipfile.ZipFile('x.zip').infolist(): print(one.filename, one.compress_type, one.flag_bits & 8)\"",
    );
    assert_eq!(methods, "large 8 8\nsmall 0 0\n");
}

/// A name that is left out is none that others lead to.
#[test]
fn a_hard_link_does_not_lead_to_what_was_left_out() {
    let scratch = Scratch::new();
    scratch.shell("mkdir c; echo data > c/a; ln c/a c/b");
    let _ = run_in(&scratch, "create x.tar --transform s,^c/a$,, c");
    assert_eq!(scratch.shell("tar -xOf x.tar c/b"), "data\n");
}

/// An archive that would hold nothing, as one of itself would, takes nobody's place.
#[test]
fn an_archive_of_itself_is_not_written() {
    let scratch = Scratch::new();
    scratch.shell("echo precious > file");
    create(&scratch, "x.tar file");
    scratch.shell("cp x.tar kept");
    let (code, said) = run_in(&scratch, "create --overwrite x.tar x.tar");
    assert!(code == 1 && said.contains("x.tar: nothing of what was named goes in; no archive was written"), "{said}");
    scratch.shell("cmp x.tar kept");
}

/// A file that is named twice is no link to itself.
#[test]
fn what_is_named_twice_is_a_file_twice() {
    let scratch = Scratch::new();
    scratch.shell("mkdir a; echo content > a/f; ln a/f a/g");
    create(&scratch, "x.tar a/f a");
    scratch.shell("mkdir new; tar -xf x.tar -C new; cmp a/f new/a/f; test new/a/f -ef new/a/g");
    if have("bsdtar") {
        scratch.shell("mkdir bsd; bsdtar -xf x.tar -C bsd; cmp a/f bsd/a/f; test bsd/a/f -ef bsd/a/g");
    }
}

/// Sockets are left out, as by GNU tar; files that cannot be opened are told, however often they say why.
#[test]
fn what_cannot_go_in_is_told() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir home; echo x > home/x; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"home/agent\")'",
    );
    let (code, said) = run_in(&scratch, "create x.tar home");
    assert!(
        code == 0 && said.contains("home/agent: it is left out: a socket cannot be kept in a tar"),
        "{code} {said}"
    );
    if !have("strace") {
        println!("not tested: there is no strace");
        return;
    }
    let ran = scratch.shell(&format!(
        "strace -f -o trace -P home/x -e trace=openat -e inject=openat:error=ENXIO {} create y.tar home/x 2>&1 || echo code $?",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
    assert!(ran.contains("home/x: it cannot be opened") && ran.contains("code 1"), "{ran}");
}

/// > A file that vanishes, gets shorter or cannot be read while `create` reads it is told, with exit code 1, and the
/// > archive is whole.
#[test]
fn attributes_that_cannot_be_read_are_told() {
    if !have("strace") || !have("setfattr") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir d; echo x > d/f; ln -s f d/link; setfattr -n user.note -v mine d/f");
    let create = |inject: &str, options: &str| {
        scratch.shell(&format!(
            "strace -f -qq -o log -e inject={inject} {} create --overwrite {options} x.tar d 2>&1 || echo code $?; tar -xOf x.tar d/f",
            env!("CARGO_BIN_EXE_tarnfs")
        ))
    };
    for (inject, file, what) in [
        ("flistxattr:error=EIO", "d/f", "its extended attributes cannot be read: "),
        ("llistxattr:error=EACCES", "d/link", "its extended attributes cannot be read: "),
        ("fgetxattr:error=EIO", "d/f", "its extended attribute user.note cannot be read: "),
    ] {
        let said = create(inject, "--xattrs --acls");
        assert!(said.contains(&format!("{file}: {what}")) && said.contains("\ncode 1\nx\n"), "{inject}: {said}");
    }
    // There are none, or nobody has asked.
    assert_eq!(create("flistxattr,llistxattr:error=EOPNOTSUPP", "--xattrs --acls"), "x\n");
    assert_eq!(create("fgetxattr:error=ENODATA", "--xattrs"), "x\n");
    assert_eq!(create("flistxattr:error=EIO", ""), "x\n");
}

/// A FUSE file system may say anything of where data lie.
#[test]
fn data_before_what_was_asked_for_is_no_data() {
    if !have("strace") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(&format!(
        "mkdir d; truncate -s 4M d/f; printf x | dd of=d/f conv=notrunc status=none
         printf x | dd of=d/f seek=3000000 bs=1 conv=notrunc status=none
         for when in 1+2 2+2 1+1; do
             strace -f -qq -o log -e inject=lseek:retval=0:when=$when {} create --sparse --no-index --overwrite x.tar d
             grep -q INJECTED log; tar -xOf x.tar d/f | cmp - d/f
         done",
        env!("CARGO_BIN_EXE_tarnfs")
    ));
}

/// The sizes of sparse files may be more together than 64 bits hold.
#[test]
fn files_of_the_largest_size_are_put_in() {
    if !is_root() {
        println!("left out: needs root, to mount a file system that has such files");
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir d; mount -t tmpfs none d");
    let ran = std::panic::catch_unwind(|| {
        scratch.shell(&format!(
            "for n in 1 2 3; do truncate -s 9223372036854775807 d/f$n; done; {} create --sparse --no-index x.tar d; tar -tf x.tar | sort",
            env!("CARGO_BIN_EXE_tarnfs")
        ))
    });
    scratch.shell("umount d");
    assert_eq!(ran.unwrap(), "d/\nd/f1\nd/f2\nd/f3\n");
}

/// > The options of `create` choose the same, and make it look the same, as those of GNU tar.
#[test]
fn globs_match_characters_as_in_gnu_tar() {
    let scratch = Scratch::new();
    scratch.shell("mkdir e; cd e; touch é.txt e.txt 語 ab à $'\\xff.txt'");
    for glob in ["?.txt", "??.txt", "[é].txt", "[!é].txt", "[à-ü]*", "??", "e/?", "[[:alpha:]]b", "*[語]"] {
        let listed = scratch.shell(&format!(
            "export LC_ALL=C.UTF-8; tar -c --exclude='{glob}' e | tar -t | sort > gnu; {} create --exclude='{glob}' - e | tar -t | sort > own
             diff gnu own || true",
            env!("CARGO_BIN_EXE_tarnfs")
        ));
        assert_eq!(listed, "", "{glob}");
    }
}

/// > On a terminal `create` shows how much it has read.
#[test]
fn a_terminal_is_shown_how_far_it_is() {
    if !have("script") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; head -c 40000000 /dev/zero > tree/zeros");
    let shown = |what: &str, awaited: &str| {
        // Nobody reads the archive for a while, so it cannot be over before that is shown.
        let program = env!("CARGO_BIN_EXE_tarnfs");
        let name = what.replace('/', "-");
        let wait = format!("for n in $(seq 600); do grep -qs '{awaited}' shown && break; sleep 0.1; done");
        fs::write(
            scratch.path("call"),
            format!("stty cols 200; {program} create - {what} | ({wait}; cat > {name}.tar)"),
        )
        .unwrap();
        scratch.shell("rm -f shown; script -qefc 'bash call' shown < /dev/null > /dev/null; cat shown")
    };
    let all = shown("tree/zeros", " left");
    assert!(all.contains("of 38.15 MiB") && all.contains(" left"), "{all:?}");
    // How much is in a folder is known when all of it was read.
    let all = shown("tree", "file");
    assert!(all.contains("MiB, 1 file, ") && all.contains("B/s") && !all.contains(" left"), "{all:?}");
    scratch.shell("tar -df tree-zeros.tar; tar -df tree.tar");
}

/// > Lines of `-X` are without the white space at their end, as in GNU tar.
#[test]
fn globs_of_a_file_have_no_white_space_at_their_end() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; touch tree/a.o tree/b.key tree/c 'tree/d e'; printf '*.o \\n*.key\\r\\n \\t\\r\\n\\n*d e\\n' > list",
    );
    create(&scratch, "-X list x.tar tree");
    assert_eq!(scratch.shell("tar -tf x.tar"), scratch.shell("tar -X list -cf - tree | tar -tf -"));
    assert_eq!(scratch.shell("tar -tf x.tar"), "tree/\ntree/c\n");
}
