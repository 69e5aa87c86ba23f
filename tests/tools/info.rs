//! `tarnfs info`: what it says is what the tools say that made the archive.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::collections::BTreeMap;
use std::fs;

use crate::support::{Scratch, have, is_root, tarnfs};
use serde_json::Value;

/// Text in many files, what cannot be compressed, and one of each kind of file.
const TREE: &str = r"
    mkdir -p tree/folder/deep tree/empty; cd tree
    seq 1 200000 > numbers; for n in $(seq 1 150); do seq $n 7 2000 > folder/$n; done
    head -c 300000 /dev/urandom > folder/deep/noise; cp folder/deep/noise folder/noise.tar.gz
    ln -s numbers link; ln -s nowhere dangling; ln numbers hard; : > nothing; mkfifo fifo
    truncate -s 3M holes; printf end >> holes
    if [ $(id -u) = 0 ]; then mknod null c 1 3; mknod disk b 7 0; fi
";

/// What is said, run in the scratch folder.
fn said(scratch: &Scratch, words: &[&str]) -> (i32, String, String) {
    let ran = tarnfs(scratch).arg("info").args(words).current_dir(scratch.path("")).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ran.status.code().unwrap(), text(ran.stdout), text(ran.stderr))
}

#[track_caller]
fn json(scratch: &Scratch, words: &[&str]) -> Value {
    let (code, out, errors) = said(scratch, &[&["--json"], words].concat());
    assert_eq!((code, errors.as_str()), (0, ""), "{words:?}: {out}");
    serde_json::from_str(&out).unwrap()
}

fn number(text: &str) -> u64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number: {text:?}"))
}

/// What the first letters of a listing say: how many of each.
fn kinds(listing: &str) -> BTreeMap<char, u64> {
    let mut kinds = BTreeMap::new();
    for letter in listing.lines().filter_map(|line| line.chars().next()) {
        *kinds.entry(letter).or_insert(0) += 1;
    }
    kinds
}

/// Letters of `ls -l` and the keys of what they stand for.
const KINDS: [(char, &str); 6] = [
    ('-', "files"),
    ('d', "folders"),
    ('l', "symlinks"),
    ('c', "character_devices"),
    ('b', "block_devices"),
    ('p', "fifos"),
];

#[track_caller]
fn has_kinds(told: &Value, kinds: &BTreeMap<char, u64>) {
    for (letter, key) in KINDS {
        assert_eq!(told["entries"][key], kinds.get(&letter).copied().unwrap_or(0), "{key}: {told:#}");
    }
}

/// > `info` counts what is in an archive as `tar -tv` and `cpio -tv` list it.
#[test]
fn counts_are_those_of_the_listing() {
    let scratch = Scratch::new();
    scratch.shell(TREE);
    for format in ["v7", "ustar", "gnu", "pax"] {
        let sparse = if matches!(format, "gnu" | "pax") { "-S" } else { "" };
        // The oldest one has no special files.
        let special = if format == "v7" { "--exclude=fifo --exclude=null --exclude=disk" } else { "" };
        scratch.shell(&format!("tar --format={format} {sparse} {special} -cf a.tar -C tree ."));
        let mut listed = kinds(&scratch.shell("tar -tvf a.tar"));
        // The root itself, which is no entry in it.
        *listed.get_mut(&'d').unwrap() -= 1;
        let links = listed.remove(&'h').unwrap();
        let told = json(&scratch, &["a.tar"]);
        has_kinds(&told, &listed);
        let entries = &told["entries"];
        assert_eq!((&entries["hard_links"], &entries["versions"]), (&links.into(), &0.into()), "{format}");
        assert_eq!(entries["sparse"], u64::from(!sparse.is_empty()), "{format}");
        assert_eq!((&told["format"], &told["layers"]), (&"tar".into(), &Value::Array(Vec::new())));
        let bytes =
            number(&scratch.shell("find tree -type f ! -name hard -printf '%s\\n' | awk '{n += $1} END {print n}'"));
        assert_eq!(
            (&told["content"], &told["size"]),
            (&bytes.into(), &fs::metadata(scratch.path("a.tar")).unwrap().len().into())
        );
        assert_eq!(entries["longest"], (3 << 20) + 3);
        fs::remove_file(scratch.path("a.tar")).unwrap();
    }
    if have("cpio") {
        scratch.shell("cd tree; find . -mindepth 1 ! -name hard | cpio --quiet -o -H newc > ../a.cpio");
        let listed = kinds(&scratch.shell("cpio --quiet -tv < a.cpio"));
        let told = json(&scratch, &["a.cpio"]);
        has_kinds(&told, &listed);
        assert_eq!(told["format"], "cpio");
    }
    if have("ar") {
        scratch.shell("ar rc a.a tree/numbers tree/folder/1 tree/folder/2");
        let told = json(&scratch, &["a.a"]);
        assert_eq!((&told["format"], &told["entries"]["files"]), (&"ar".into(), &3.into()));
    }
}

/// What `info` says of the only layer of `name`.
#[track_caller]
fn layer(scratch: &Scratch, name: &str) -> Value {
    let told = json(scratch, &[name]);
    assert_eq!(told["layers"].as_array().unwrap().len(), 1, "{told:#}");
    let length = |name: &str| Value::from(fs::metadata(scratch.path(name)).unwrap().len());
    let layer = &told["layers"][0];
    assert_eq!(layer["compressed"], length(name), "{name}");
    assert_eq!((&layer["decoded"], &told["unpacked"]), (&length("a.tar"), &length("a.tar")), "{name}");
    layer.clone()
}

/// > `info` says which blocks, frames or members a compressed file has, as its tool does.
#[test]
fn layers_are_those_of_the_tools() {
    let scratch = Scratch::new();
    scratch.shell(TREE);
    scratch.shell("tar -cf a.tar tree");
    let make = |script: &str| scratch.shell(script);
    make(
        "xz -0 -k -T1 -c a.tar > one.tar.xz; xz -0 -T2 --block-size=300KiB -C sha256 -c a.tar > many.tar.xz
         head -c 1000000 a.tar | xz -0 -C crc32 > two.tar.xz; tail -c +1000001 a.tar | xz -0 -C crc32 >> two.tar.xz
         xz -0 -C none -c a.tar > none.tar.xz",
    );
    for name in ["one.tar.xz", "many.tar.xz", "two.tar.xz", "none.tar.xz"] {
        let listed = make(&format!("xz --robot --list -vv {name}"));
        let row = |first: &str, at: usize| -> Vec<String> {
            let rows = listed.lines().map(|line| line.split('\t').collect::<Vec<_>>());
            rows.filter(|row| row[0] == first).map(|row| row[at].to_owned()).collect()
        };
        let told = layer(&scratch, name);
        assert_eq!(told["parts"], number(&row("file", 2)[0]), "{name}: {listed}");
        assert_eq!(told["part"], "block");
        let longest = row("block", 7).iter().map(|length| number(length)).max().unwrap();
        assert_eq!(told["longest_part"], longest, "{name}");
        let check = match row("file", 6)[0].as_str() {
            "None" => "none",
            "CRC32" => "CRC-32",
            "CRC64" => "CRC-64",
            "SHA-256" => "SHA-256",
            other => panic!("{other}"),
        };
        assert_eq!(told["check"], check, "{name}");
        // Of preset 0, or the longest block if that is shorter.
        assert_eq!(told["history"], longest.min(256 << 10), "{name}");
    }
    if have("zstd") {
        make(
            "zstd -q -k -c a.tar > one.tar.zst; zstd -q --no-check -c a.tar > unchecked.tar.zst
             split -b 700000 a.tar part.; for part in part.*; do zstd -q -c $part; done > many.tar.zst; rm part.*",
        );
        for name in ["one.tar.zst", "unchecked.tar.zst", "many.tar.zst"] {
            let listed = make(&format!("zstd -lv {name} 2>&1"));
            let line = |words: &str| listed.lines().find(|line| line.contains(words)).unwrap_or_default();
            let told = layer(&scratch, name);
            assert_eq!(told["parts"], number(line("Zstandard Frames")), "{name}: {listed}");
            let check = if line("Check").contains("XXH64") { "XXH64" } else { "none" };
            assert_eq!((&told["part"], &told["check"]), (&"frame".into(), &check.into()), "{name}: {listed}");
            // "Window Size: 2.00 MiB (2097152 B)"
            let window = number(line("Window Size").split('(').nth(1).unwrap());
            // Of several, that of the last one is listed.
            let history = told["history"].as_u64().unwrap();
            assert!(history == window || name == "many.tar.zst" && history > window, "{name}: {listed}");
        }
    }
    if have("lzip") {
        make("lzip -0 -k -c a.tar > one.tar.lz; lzip -0 -b 300KiB -c a.tar > many.tar.lz");
        for name in ["one.tar.lz", "many.tar.lz"] {
            let listed = make(&format!("lzip -lvv {name}"));
            // A heading, a row for the file, and below it a row for each member if there are several.
            let members = listed.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
            let members = members.filter(|line| line.split_whitespace().count() == 5).count().max(1) as u64;
            let told = layer(&scratch, name);
            let expected = if name == "one.tar.lz" { 1 } else { members };
            assert_eq!((&told["part"], &told["parts"]), (&"member".into(), &expected.into()), "{name}: {listed}");
            assert_eq!(told["check"], "CRC-32");
        }
    }
    let others = [
        ("gzip", "gzip -c a.tar > a.tar.gz", "a.tar.gz", "gzip", "CRC-32"),
        ("bzip2", "bzip2 -1 -c a.tar > a.tar.bz2", "a.tar.bz2", "bzip2", "CRC-32"),
        ("lz4", "lz4 -q -c a.tar > a.tar.lz4", "a.tar.lz4", "lz4", "XXH32"),
        ("xz", "xz --format=lzma -0 -c a.tar > a.tar.lzma", "a.tar.lzma", "lzma", "none"),
        ("lzop", "lzop -q -c a.tar > a.tar.lzo", "a.tar.lzo", "lzop", ""),
        ("compress", "compress -c a.tar > a.tar.Z", "a.tar.Z", "compress", ""),
        ("brotli", "brotli -q 1 -c a.tar > a.tar.br", "a.tar.br", "brotli", ""),
        ("lrzip", "lrzip -q -o a.tar.lrz a.tar", "a.tar.lrz", "lrzip", ""),
        ("bgzip", "bgzip -c a.tar > bgzf.tar.gz", "bgzf.tar.gz", "gzip", "CRC-32"),
    ];
    for (program, script, name, codec, check) in others {
        if !have(program) {
            continue;
        }
        make(script);
        let told = layer(&scratch, name);
        assert_eq!(told["codec"], codec);
        assert_eq!(told["check"].as_str().unwrap_or_default(), check, "{name}");
        if name == "bgzf.tar.gz" {
            assert_eq!((&told["part"], &told["longest_part"]), (&"BGZF block".into(), &(64 << 10).into()));
        }
    }
}

/// > The seek points of `info` are those in the index.
#[test]
fn seek_points_are_those_in_the_index() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1 3000000 > tree/numbers; tar -cf a.tar tree");
    for (name, script) in [
        ("a.tar.gz", "gzip -1 -c a.tar > a.tar.gz"),
        ("a.tar.bz2", "bzip2 -9 -c a.tar > a.tar.bz2"),
        ("a.tar.xz", "xz -0 -c a.tar > a.tar.xz"),
        ("a.tar.zst", "zstd -q -c a.tar > a.tar.zst"),
    ] {
        scratch.shell(script);
        let made = tarnfs(&scratch).args(["index", name]).current_dir(scratch.path("")).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let index = format!("{name}.tarnfs.sqlite");
        let sql = "select count(*), max(length), sum(length) / count(*), \
                   sum(1.0 * length * length) / sum(length) / 2 from chunks where layer = 0";
        let row = scratch.shell(&format!(
            "python3 -c 'import sqlite3; print(*sqlite3.connect(\"{index}\").execute(\"{sql}\").fetchone())'"
        ));
        let row: Vec<f64> = row.split_whitespace().map(|column| column.parse().unwrap()).collect();
        let told = json(&scratch, &[name]);
        let points = &told["layers"][0]["seek_points"];
        let told_row = ["count", "longest", "mean"].map(|key| points[key].as_u64().unwrap());
        assert_eq!(
            told_row.to_vec(),
            row[..3].iter().map(|&number| number as u64).collect::<Vec<_>>(),
            "{name}: {told:#}"
        );
        assert_eq!(points["checksums"], true);
        // A block of bzip2 is decoded as a whole.
        let expected = if name == "a.tar.bz2" { 2.0 * row[3] } else { row[3] };
        let way = told["layers"][0]["random_read"]["mean_bytes"].as_f64().unwrap();
        assert!((way - expected).abs() < 2.0, "{name}: {way}, {expected}");
        assert_eq!(told["index"]["state"], "used");
        assert_eq!(told["index"]["path"].as_str().unwrap().rsplit('/').next().unwrap(), index);
        assert_eq!(told["index"]["bytes"], fs::metadata(scratch.path(&index)).unwrap().len());
    }
}

/// > Of a zip, `info` says with which methods how many files are stored, as `zipinfo` does.
#[test]
fn methods_of_a_zip_are_those_of_zipinfo() {
    if !have("zip") || !have("unzip") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(TREE);
    scratch.shell("cd tree; rm -f fifo null disk; zip -q -r -y -n .tar.gz ../a.zip .; zip -q -P secret ../locked.zip numbers nothing link");
    let listed = scratch.shell("zipinfo -l a.zip");
    let told = json(&scratch, &["a.zip"]);
    // Mode, version, system, length, flags, stored bytes, method, ...; empty files are stored in no way.
    let mut methods: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for row in listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()) {
        if row.len() > 8 && row[0].starts_with('-') && row[3] != "0" {
            let name = if row[6].starts_with("stor") { "" } else { "deflate" };
            let method = methods.entry(name).or_default();
            *method = (method.0 + 1, method.1 + number(row[3]), method.2 + number(row[5]));
        }
    }
    assert_eq!(methods.len(), 2, "{listed}");
    for (name, (files, bytes, stored)) in methods {
        let is_it = |method: &&Value| {
            method["steps"].as_array().unwrap().first().map_or("", |step| step.as_str().unwrap()) == name
        };
        let method = told["methods"].as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{told:#}"));
        assert_eq!(
            (&method["files"], &method["bytes"], &method["stored"]),
            (&files.into(), &bytes.into(), &stored.into()),
            "{told:#}"
        );
        assert_eq!((&method["runs"], &method["solid_blocks"]), (&files.into(), &0.into()));
    }
    has_kinds(
        &told,
        &kinds(
            &listed
                .lines()
                .filter(|line| line.split_whitespace().count() > 8)
                .fold(String::new(), |all, line| all + line + "\n"),
        ),
    );
    assert_eq!((&told["index"]["state"], &told["format"]), (&"not needed".into(), &"zip".into()));
    assert_eq!(told["layers"], Value::Array(Vec::new()));
    // Names of archives that -r would look into: one of them is one.
    assert_eq!(told["archives"]["files"], 1);
    let locked = json(&scratch, &["locked.zip"]);
    let encrypted = scratch
        .shell("zipinfo locked.zip")
        .lines()
        .filter(|line| line.starts_with('-') && line.split_whitespace().nth(4).unwrap().starts_with(['T', 'B']))
        .count();
    assert_eq!(locked["encrypted"]["passwords"], "not given");
    assert!(locked["encrypted"]["files"].as_u64().unwrap() <= encrypted as u64 && locked["encrypted"]["files"] != 0);
    assert_eq!(json(&scratch, &["--password=secret", "locked.zip"])["encrypted"]["passwords"], "fit or unknown");
    assert_eq!(
        said(&scratch, &["--password=wrong", "--json", "locked.zip"]).0,
        0,
        "what is told does not depend on it"
    );
}

/// > Of a 7z, `info` says how many solid blocks there are, and how long the longest is.
#[test]
fn blocks_of_a_7z_are_those_of_7z() {
    if !have("7z") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(TREE);
    scratch.shell(
        "cd tree; rm -rf fifo null disk link dangling; 7z a -bd -ms=on ../solid.7z . > /dev/null
         7z a -bd -ms=off ../each.7z . > /dev/null; 7z a -bd -ms=100k ../some.7z . > /dev/null
         7z a -bd -ms=on -m0=PPMd ../ppmd.7z . > /dev/null; 7z a -bd -psecret ../locked.7z numbers folder/1 > /dev/null",
    );
    for name in ["solid.7z", "each.7z", "some.7z", "ppmd.7z", "locked.7z"] {
        let listed = scratch.shell(&format!("7z l -slt {name}"));
        let told = json(&scratch, &[name]);
        let (mut blocks, mut files, mut encrypted): (BTreeMap<u64, (u64, u64)>, _, _) = (BTreeMap::new(), 0, 0);
        let head = listed.split("----------").next().unwrap();
        for entry in listed.split("----------").nth(1).unwrap().split("\n\n") {
            let value =
                |key: &str| entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = ")).unwrap_or("");
            if value("Attributes").starts_with('D') || value("Path").is_empty() {
                continue;
            }
            files += 1;
            if !value("Block").is_empty() {
                let block = blocks.entry(number(value("Block"))).or_default();
                *block = (block.0 + 1, block.1 + number(value("Size")));
            }
            encrypted += u64::from(value("Encrypted") == "+");
        }
        assert_eq!(told["entries"]["files"], files, "{name}: {listed}");
        let count = number(head.lines().find(|line| line.starts_with("Blocks = ")).unwrap());
        assert_eq!(count, blocks.len() as u64, "{listed}");
        let methods = told["methods"].as_array().unwrap();
        let sum = |key: &str| methods.iter().map(|method| method[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("runs"), count, "{name}: {told:#}");
        let shared = blocks.values().filter(|(files, _)| *files > 1);
        assert_eq!(sum("solid_blocks"), shared.clone().count() as u64, "{name}: {told:#}");
        let longest = methods.iter().map(|method| method["longest_solid_block"].as_u64().unwrap()).max().unwrap();
        assert_eq!(longest, shared.map(|(_, bytes)| *bytes).max().unwrap_or(0), "{name}");
        let packed = number(head.lines().find(|line| line.starts_with("Physical Size = ")).unwrap());
        let headers = number(head.lines().find(|line| line.starts_with("Headers Size = ")).unwrap());
        assert_eq!(sum("stored"), packed - headers, "{name}: {told:#}");
        assert_eq!(told["encrypted"]["files"].as_u64().unwrap_or(0), encrypted, "{name}");
        let step = |name: &str| methods.iter().any(|method| method["steps"].as_array().unwrap().contains(&name.into()));
        assert!(step(if name == "ppmd.7z" { "ppmd7" } else { "lzma2" }), "{name}: {told:#}");
    }
}

/// > Of a squashfs, `info` says how its blocks are compressed and how long they are, as `unsquashfs -s` does.
#[test]
fn blocks_of_a_squashfs_are_those_of_unsquashfs() {
    if !have("mksquashfs") || !have("unsquashfs") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell(TREE);
    for (name, words) in
        [("gzip", ""), ("xz", "-b 1M"), ("zstd", "-b 64K -no-fragments"), ("lz4", "-b 256K"), ("lzo", "")]
    {
        scratch.shell(&format!("mksquashfs tree a.squashfs -comp {name} {words} -quiet -no-progress -noappend"));
        let stated = scratch.shell("unsquashfs -s a.squashfs");
        let told = json(&scratch, &["a.squashfs"]);
        let line = |words: &str| stated.lines().find(|line| line.starts_with(words)).unwrap_or_default();
        let codec = match name {
            "gzip" => "zlib",
            "lzo" => "lzo1x",
            other => other,
        };
        let methods = told["methods"].as_array().unwrap();
        let is_it = |method: &&Value| method["steps"] == Value::from(vec![codec]);
        let method = methods.iter().find(is_it).unwrap_or_else(|| panic!("{name}: {told:#}"));
        assert_eq!((&method["blocks"], &method["longest"]), (&true.into(), &number(line("Block size")).into()));
        let mut listed = kinds(&scratch.shell("unsquashfs -ll a.squashfs | tail -n +2"));
        // A hard link is a name more of a file there.
        *listed.get_mut(&'-').unwrap() -= 1;
        has_kinds(&told, &listed);
        assert_eq!(told["entries"]["hard_links"], 1, "{told:#}");
        assert_eq!(told["entries"]["sparse"], 1, "{told:#}");
        fs::remove_file(scratch.path("a.squashfs")).unwrap();
    }
}

/// > `info` opens an archive with any index that serves, and says which it is.
#[test]
fn the_index_is_named_and_what_it_is_worth() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; for n in $(seq 1200); do echo $n > tree/$n; done; tar -cf a.tar tree; gzip -k a.tar; tar -cf small.tar tree/1");
    let state = |words: &[&str]| json(&scratch, words)["index"]["state"].as_str().unwrap().to_owned();
    assert_eq!(state(&["small.tar"]), "too small");
    assert_eq!(state(&["--index-file", ":memory:", "a.tar.gz"]), "in memory");
    assert!(!scratch.path("a.tar.gz.tarnfs.sqlite").exists());
    assert_eq!(state(&["a.tar.gz"]), "made");
    assert!(scratch.path("a.tar.gz.tarnfs.sqlite").exists());
    assert_eq!(state(&["a.tar.gz"]), "used");
    assert_eq!(state(&["-c", "a.tar.gz"]), "made");
    // Another state of the archive: its index is told of, and replaced.
    scratch.shell("echo more > tree/more; tar -czf a.tar.gz tree");
    let (code, out, errors) = said(&scratch, &["--json", "a.tar.gz"]);
    assert!(code == 0 && errors.contains("does not belong to this archive"), "{errors}");
    assert!(out.contains("\"state\":\"made\"") && out.contains("\"files\":1201"), "{out}");
    assert_eq!(said(&scratch, &["--no-recreate-index", "a.tar"]).0, 7);
    // One of ratarmount.
    let written =
        tarnfs(&scratch).args(["index", "--format", "ratarmount", "a.tar.gz"]).current_dir(scratch.path("")).status();
    assert!(written.unwrap().success());
    let own = json(&scratch, &["a.tar.gz"]);
    scratch.shell("rm a.tar.gz.tarnfs.sqlite");
    let told = json(&scratch, &["a.tar.gz"]);
    assert_eq!(told["index"]["state"], "ratarmount");
    assert!(told["index"]["path"].as_str().unwrap().ends_with("a.tar.gz.index.sqlite"), "{told:#}");
    assert_eq!((&told["entries"], &told["content"]), (&own["entries"], &own["content"]));
    assert_eq!(told["layers"][0]["decoded"], own["layers"][0]["decoded"]);
    assert_eq!(told["slow"][0]["reason"], "no_checksums", "{told:#}");
    assert_eq!(told["convert"], Value::Array(Vec::new()));
}

/// > With `-r`, `info` says what it opens in the archive; without it, how many files have such names.
#[test]
fn archives_in_the_archive_are_told() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir in; seq 1 100000 > in/numbers; tar -cf in.tar in; gzip -c in.tar > in.tgz; xz -0 -c in/numbers > numbers.xz
         tar -cf a.tar in.tar in.tgz numbers.xz in/numbers",
    );
    let told = json(&scratch, &["a.tar"]);
    let archives = &told["archives"];
    assert_eq!(
        (&archives["recursive"], &archives["files"], &archives["opened"]),
        (&false.into(), &3.into(), &0.into())
    );
    let made = tarnfs(&scratch).args(["index", "-r", "a.tar"]).current_dir(scratch.path("")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let inner = json(&scratch, &["-r", "a.tar"]);
    let archives = &inner["archives"];
    assert_eq!(
        (&archives["recursive"], &archives["files"], &archives["opened"]),
        (&true.into(), &0.into(), &3.into()),
        "{inner:#}"
    );
    let streams = archives["streams"].as_array().unwrap();
    let of = |codec: &str| streams.iter().find(|one| one["codec"] == codec).unwrap_or_else(|| panic!("{inner:#}"));
    let length = |name: &str| Value::from(fs::metadata(scratch.path(name)).unwrap().len());
    assert_eq!(
        (&of("gzip")["streams"], &of("gzip")["compressed"], &of("gzip")["decoded"]),
        (&1.into(), &length("in.tgz"), &length("in.tar"))
    );
    assert_eq!((&of("xz")["compressed"], &of("xz")["decoded"]), (&length("numbers.xz"), &length("in/numbers")));
    assert_eq!(inner["entries"]["versions"], 0);
    // The same index, for a call without -r.
    let again = json(&scratch, &["a.tar"]);
    assert_eq!(again["index"]["state"], "used");
    assert_eq!(
        (&again["entries"], &again["content"], &again["archives"]),
        (&told["entries"], &told["content"], &told["archives"])
    );
}

/// > Older versions, parts and labels are told.
#[test]
fn versions_and_parts_are_told() {
    let scratch = Scratch::new();
    scratch.shell(
        "echo one > file; tar -V 'a label' -cf a.tar file; echo two > file; tar -rf a.tar file; echo three > file; tar -rf a.tar file
         seq 1 300000 > numbers; gzip -c numbers > numbers.gz; split -d -a 3 --numeric-suffixes=1 -b 200000 numbers.gz numbers.gz.",
    );
    let told = json(&scratch, &["a.tar"]);
    assert_eq!(
        (&told["entries"]["files"], &told["entries"]["versions"], &told["label"]),
        (&1.into(), &2.into(), &"a label".into())
    );
    let (whole, parts) = (json(&scratch, &["numbers.gz"]), json(&scratch, &["numbers.gz.002"]));
    assert_eq!((&whole["split"], &parts["split"]), (&false.into(), &true.into()));
    assert_eq!(
        (&whole["format"], &whole["size"], &whole["content"]),
        (&"file".into(), &parts["size"], &parts["content"])
    );
    let (code, out, errors) = said(&scratch, &["a.tar", "missing.tar", "numbers.gz.001"]);
    assert!(code == 3 && errors.contains("missing.tar"), "{errors}");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!((lines[0], lines.iter().filter(|line| line.starts_with("  Format: ")).count()), ("a.tar", 2), "{out}");
    assert!(out.contains("\n\nnumbers.gz.001\n") && out.contains("a single file; joined from several files"), "{out}");
    assert!(out.contains("2 older versions") && out.contains("a label"), "{out}");
}

/// > Damage that is known is told, and the code is that of damage.
#[test]
fn damage_is_told() {
    let scratch = Scratch::new();
    scratch.shell(
        "mkdir tree; for n in $(seq 9); do seq $n 300000 > tree/$n; done; tar -cf a.tar tree; xz -0 --block-size=1MiB -c a.tar > a.tar.xz
         printf wrong | dd of=a.tar.xz bs=1 seek=$(($(stat -c %s a.tar.xz) / 2)) conv=notrunc status=none",
    );
    let (code, out, errors) = said(&scratch, &["--json", "a.tar.xz"]);
    assert_eq!((code, errors.as_str()), (5, ""), "{out}");
    let told: Value = serde_json::from_str(&out).unwrap();
    let places = told["damage"]["places"].as_array().unwrap();
    assert!(!places.is_empty(), "{told:#}");
    let checked = tarnfs(&scratch).args(["check", "a.tar.xz"]).current_dir(scratch.path("")).output().unwrap();
    let checked = String::from_utf8(checked.stdout).unwrap();
    let files = told["damage"]["files"].as_u64().unwrap();
    assert!(files > 0 && checked.contains(&format!("{files} of 9 files ")), "{checked}");
    assert!(checked.contains(places[0]["what"].as_str().unwrap()), "{checked}");
    assert_eq!(told["convert"], Value::Array(Vec::new()), "what is damaged is not converted");
    let (code, out, _) = said(&scratch, &["a.tar.xz"]);
    assert!(code == 5 && out.contains("  Damage: ") && out.contains(" of 9 files cannot be read whole"), "{out}");
}

/// > What is slow to read is told with the reason, and what lies in the cache.
#[test]
fn what_is_slow_is_told_and_why() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1 6000000 > tree/numbers; tar -cf a.tar tree; bzip2 -k a.tar; gzip -k -1 a.tar");
    scratch.shell("if command -v brotli; then brotli -q 1 -c tree/numbers > numbers.br; fi");
    assert_eq!(json(&scratch, &["a.tar"])["slow"], Value::Array(Vec::new()));
    let told = json(&scratch, &["a.tar.bz2"]);
    let kept = fs::metadata(told["cache"]["path"].as_str().unwrap()).unwrap().len();
    assert_eq!(told["cache"]["bytes"], kept, "{told:#}");
    let (decoded, all) = (told["cache"]["decoded"].as_u64().unwrap(), told["layers"][0]["decoded"].as_u64().unwrap());
    assert!(decoded > 0 && decoded <= all, "{told:#}");
    let reasons = |told: &Value| -> Vec<String> {
        told["slow"].as_array().unwrap().iter().map(|one| one["reason"].as_str().unwrap().to_owned()).collect()
    };
    let without = json(&scratch, &["--cache-size=0", "-c", "a.tar.bz2"]);
    assert_eq!((reasons(&without), without.get("cache")), (vec!["seek_points".to_owned()], None), "{without:#}");
    let slow = &without["slow"][0];
    assert_eq!(slow["bytes"], without["layers"][0]["seek_points"]["longest"]);
    assert!(slow["text"].as_str().unwrap().contains("a whole block"), "{slow}");
    if have("brotli") {
        let told = json(&scratch, &["--cache-size=0", "numbers.br"]);
        assert_eq!(reasons(&told)[0], "no_seek_points", "{told:#}");
    }
    if have("7z") {
        scratch.shell("for n in 1 2 3; do seq $n 2000000 > tree/$n; done; 7z a -bd -ms=on -mx=1 a.7z tree > /dev/null");
        let told = json(&scratch, &["a.7z"]);
        assert!(reasons(&told).contains(&"solid".to_owned()), "{told:#}");
    }
    // Without an index, each call reads all of it.
    let told = json(&scratch, &["--index-file=:memory:", "a.tar.gz"]);
    assert!(reasons(&told).contains(&"no_index".to_owned()), "{told:#}");
}

/// > The command that `info` names makes what it promises.
#[test]
fn the_command_makes_it_faster() {
    let scratch = Scratch::new();
    scratch.shell("mkdir tree; seq 1 4000000 > tree/numbers; tar -cf a.tar tree; bzip2 a.tar; xz -0 -c tree/numbers > 'one file.xz'");
    if have("7z") {
        scratch.shell("cd tree; 7z a -bd -ms=on -mx=1 '../a b.7z' . > /dev/null");
    }
    for name in ["a.tar.bz2", "one file.xz", "a b.7z"] {
        if !scratch.path(name).exists() {
            continue;
        }
        let told = json(&scratch, &[name]);
        let commands = told["convert"].as_array().unwrap();
        if name != "one file.xz" {
            assert!(!commands.is_empty(), "{name}: {told:#}");
        }
        for one in commands {
            let command = one["command"].as_str().unwrap();
            assert!(command.starts_with("tarnfs convert "), "{command}");
            let program = tarnfs(&scratch).get_program().to_owned();
            let before: Vec<_> =
                fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            fs::write(
                scratch.path("line"),
                format!("tarnfs() {{ '{}' \"$@\"; }}\n{command}\n", program.to_str().unwrap()),
            )
            .unwrap();
            scratch.shell("bash -e line; rm line; rm -f *.sqlite");
            let names = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name());
            let new = names.into_iter().find(|name| !before.contains(name)).unwrap().into_string().unwrap();
            let made = json(&scratch, &[&new]);
            assert_eq!((&made["content"], &made["entries"]["files"]), (&told["content"], &told["entries"]["files"]));
            let then = made["layers"][0]["random_read"]["mean_milliseconds"].as_f64().unwrap();
            let (now, promised) =
                (one["milliseconds_now"].as_f64().unwrap(), one["milliseconds_then"].as_f64().unwrap());
            assert!(
                then * 2.0 <= now && then <= promised * 1.3,
                "{command}: {then}, {promised} was promised, now {now}"
            );
            fs::remove_file(scratch.path(&new)).unwrap();
        }
    }
}

/// > What is printed for people has a heading for each line and no names that steer a terminal.
#[test]
fn lines_for_people_are_short_and_harmless() {
    let scratch = Scratch::new();
    scratch.shell(TREE);
    scratch.shell("tar -S -V \"$(printf 'a\\033[2Jb')\" -cf a.tar tree; xz -0 --block-size=300KiB -T1 a.tar");
    let (code, out, errors) = said(&scratch, &["a.tar.xz"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(!out.chars().any(|letter| letter.is_control() && letter != '\n'), "{out:?}");
    let line = |heading: &str| {
        let found = out.lines().find_map(|line| line.trim_start().strip_prefix(heading)?.strip_prefix(':'));
        found.unwrap_or_else(|| panic!("{heading}: {out}")).trim().to_owned()
    };
    assert!(line("Format").starts_with("xz, ") && line("Format").ends_with(", then tar"), "{out}");
    assert!(line("Format").contains(" blocks of up to 300 KiB"), "{out}");
    assert!(line("Holds").contains("(1 sparse)") && line("Holds").contains("1 hard link"), "{out}");
    if is_root() {
        assert!(line("Holds").contains("1 character device, 1 block device"), "{out}");
    }
    assert!(line("Label").contains("\\x1b[2J"), "{out}");
    assert!(line("Size").contains(" %"), "{out}");
    assert!(line("Checksums").contains("CRC-64"), "{out}");
    assert!(line("Index").contains("so small an archive"), "{out}");
    // One heading for several lines, and all texts in one column.
    let columns: Vec<_> = out.lines().skip(1).map(|line| line.len() - line[15..].trim_start().len()).collect();
    assert!(columns.iter().all(|&column| column >= 15), "{out}");
}
