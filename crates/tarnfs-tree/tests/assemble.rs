//! Archives and folders that are opened and put together by a library call, as the command does it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::cell::RefCell;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_index::{Recursion, Shape, trust};
use tarnfs_tree::build::Progress;
use tarnfs_tree::containers::Wanted;
use tarnfs_tree::open::{FileFacts, IndexPlace, OpenArchive, Options, Problem};
use tarnfs_tree::{AssembleError, ComposeError, Composition, Location, Observer, assemble};

use common::{archives, content, member, memory, options, paths};

/// The small archive of all tests, as bytes that are given.
fn given(path: &str) -> Location {
    let (_, tar) = archives().into_iter().find(|(name, _)| *name == "tar").unwrap();
    let owner = trust::Owner { user: 0, group: 0, mode: 0o644 };
    let facts = FileFacts { owner, modified: 1_700_000_000_000_000_000, identity: Some(1) };
    Location::Source { source: memory(path, &tar), facts, path: PathBuf::from(path) }
}

/// Writes down what it is told.
#[derive(Default)]
struct Log(RefCell<Vec<String>>);

impl Observer for Log {
    fn opens(&self, path: &Path, _: &Arc<Progress>) {
        self.0.borrow_mut().push(format!("opens {}", path.display()));
    }

    fn opened(&self, number: usize, path: &Path, archive: Result<&OpenArchive, &Problem>) {
        let what = if archive.is_ok() { "opened" } else { "cannot open" };
        self.0.borrow_mut().push(format!("{what} {number} {}", path.display()));
    }
}

#[test]
fn a_folder_and_an_archive_become_one_tree() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("new"), "n").unwrap();
    let locations = [given("a.tar"), Location::Path(folder.path().to_owned())];
    let log = Log::default();
    let union = assemble(&locations, &Composition::default(), &options(), &log).unwrap();
    let alone = assemble(&locations[..1], &Composition::default(), &options(), &()).unwrap();
    let mut expected = paths(&*alone.tree);
    expected.push(b"/new".to_vec());
    expected.sort();
    assert_eq!(paths(&*union.tree), expected);
    assert_eq!((union.folders.len(), union.is_lazy, union.first), (1, false, None));
    assert_eq!(log.0.into_inner(), ["opens a.tar", "opened 0 a.tar"]);

    let beside = Composition { union: false, ..Composition::default() };
    let beside = assemble(&locations, &beside, &options(), &()).unwrap();
    let name = folder.path().file_name().unwrap().as_encoded_bytes().to_vec();
    assert!(paths(&*beside.tree).contains(&[b"/", name.as_slice(), b"/new"].concat()));
    assert!(paths(&*beside.tree).contains(&b"/a.tar".to_vec()));
}

#[test]
fn archives_in_a_folder_are_opened_as_somebody_looks_into_them() {
    let folder = tempfile::tempdir().unwrap();
    let (_, tar) = archives().into_iter().find(|(name, _)| *name == "tar").unwrap();
    std::fs::write(folder.path().join("inner.tar"), tar).unwrap();
    let recursion = Recursion { extensions: vec!["tar".to_owned()], ..Recursion::default() };
    let shape = Shape { recursion: Some(recursion), ..options().shape };
    let options = Options { shape, ..options() };
    let log = Log::default();
    let locations = [Location::Path(folder.path().to_owned())];
    let assembly = assemble(&locations, &Composition::default(), &options, &log).unwrap();
    assert!(assembly.is_lazy);
    let alone = assemble(&[given("a.tar")], &Composition::default(), &options, &()).unwrap();
    assert_eq!(paths(&*assembly.tree).len(), paths(&*alone.tree).len() + 1);
    // Nothing was opened before.
    assert!(log.0.into_inner().is_empty());
}

#[test]
fn what_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no archive").unwrap();
    let log = Log::default();
    let locations = [given("a.tar"), Location::Path(text.clone()), given("b.tar")];
    let error = assemble(&locations, &Composition::default(), &options(), &log).unwrap_err();
    assert!(matches!(&error, AssembleError::Archive { path, .. } if *path == text), "{error}");
    assert!(error.to_string().starts_with(&format!("{}: ", text.display())), "{error}");
    let cannot = format!("cannot open 1 {}", text.display());
    assert_eq!(log.0.into_inner(), ["opens a.tar", "opened 0 a.tar", &format!("opens {}", text.display()), &cannot]);

    let prefix = Composition { prefix: Some(b"not/there".to_vec()), ..Composition::default() };
    let error = assemble(&locations[..1], &prefix, &options(), &()).unwrap_err();
    assert!(matches!(error, AssembleError::Compose(ComposeError::Prefix { .. })), "{error}");

    let mut one_file = options();
    one_file.index.place = IndexPlace::File(folder.path().join("index"));
    let both = [given("a.tar"), given("b.tar")];
    let error = assemble(&both, &Composition::default(), &one_file, &()).unwrap_err();
    assert!(matches!(error, AssembleError::OneIndexFile), "{error}");
    assert!(!folder.path().join("index").exists());
}

#[test]
fn nothing_is_an_empty_folder() {
    let assembly = assemble(&[], &Composition::default(), &options(), &()).unwrap();
    assert!(paths(&*assembly.tree).is_empty());
}

/// The command line of the first mount names the index as well from then on (`d/*`): what the archive has is read.
#[test]
fn the_index_of_an_archive_beside_it_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (_, tar) = archives().into_iter().find(|(name, _)| *name == "tar").unwrap();
    let (archive, index) = (folder.path().join("a.tar"), folder.path().join("a.tar.tarnfs.sqlite"));
    std::fs::write(&archive, tar).unwrap();
    let mut options = options();
    options.index.place = IndexPlace::Folders(vec![PathBuf::new()]);
    options.index.is_written = true;
    options.index.minimum_file_count = 0;
    let locations = [Location::Path(archive), Location::Path(index.clone())];
    let first = assemble(&locations[..1], &Composition::default(), &options, &()).unwrap();
    assert!(index.exists());
    let expected = contents(&*first.tree);
    assert!(expected.iter().any(Result::is_ok));
    for locations in [locations.clone(), [locations[1].clone(), locations[0].clone()]] {
        let log = Log::default();
        let both = assemble(&locations, &Composition::default(), &options, &log).unwrap();
        assert_eq!(contents(&*both.tree), expected);
        // That is known before it is opened, which would say that an index alone is shown.
        let opens = log.0.into_inner().into_iter().filter(|line| line.starts_with("opens ")).collect::<Vec<_>>();
        assert_eq!(opens, [format!("opens {}", folder.path().join("a.tar").display())]);
        assert!(both.first.is_some());
    }
    // By itself it is shown, and nothing can be read.
    let alone = assemble(&locations[1..], &Composition::default(), &options, &()).unwrap();
    assert_eq!(listed(&*alone.tree), listed(&*first.tree));
    assert!(!contents(&*alone.tree).iter().any(Result::is_ok));
}

/// Every path. Nothing is read.
fn listed(tree: &dyn tarnfs_tree::Tree) -> Vec<Vec<u8>> {
    let (mut found, mut waiting) = (Vec::new(), vec![(tarnfs_tree::Node::ROOT, Vec::new())]);
    while let Some((folder, path)) = waiting.pop() {
        let receive = &mut |child: tarnfs_tree::Child<'_>| {
            let path = [&path[..], b"/", child.name].concat();
            if child.attributes.kind == tarnfs_tree::Kind::Folder {
                waiting.push((child.attributes.node, path.clone()));
            }
            found.push(path);
            true
        };
        tree.read_dir(folder, 0, receive).unwrap();
    }
    found.sort();
    found
}

/// The first byte of each file that has one.
fn contents(tree: &dyn tarnfs_tree::Tree) -> Vec<Result<u8, ()>> {
    let mut read = Vec::new();
    for path in listed(tree) {
        let found = tarnfs_tree::path::find(tree, &path, false).unwrap();
        if found.kind == tarnfs_tree::Kind::File && found.size > 0 {
            let mut byte = [0];
            let source = tree.open(found.node);
            let first = source.and_then(|source| Ok(source.read_exact_at(&mut byte, 0)?));
            read.push(first.map(|()| byte[0]).map_err(drop));
        }
    }
    read
}

/// A tar of these files.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar: Vec<u8> = files.iter().flat_map(|(name, bytes)| member(b'0', name, bytes)).collect();
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    // A window of 2^15, and 16 for the wrapper of gzip.
    let config = zlib_rs::DeflateConfig { window_bits: 15 + 16, ..zlib_rs::DeflateConfig::default() };
    let mut packed = vec![0; zlib_rs::compress_bound(bytes.len()) + 64];
    let (packed, code) = zlib_rs::compress_slice(&mut packed, bytes, config);
    assert_eq!(code, zlib_rs::ReturnCode::Ok);
    packed.to_vec()
}

/// Bytes that cannot be compressed.
fn noise(length: u32) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// The documents of an archive of `docker save` of these two layers.
fn documents(layers: [&str; 2]) -> [(String, String); 2] {
    let id = format!("\"sha256:{}\"", "0123456789abcdef".repeat(4));
    let config = format!(
        r#"{{"os":"linux","architecture":"amd64","rootfs":{{"type":"layers","diff_ids":[{id},{}]}}}}"#,
        id.replace('0', "1")
    );
    let manifest = format!(r#"[{{"Config":"config.json","Layers":["{}","{}"]}}]"#, layers[0], layers[1]);
    [("manifest.json".to_owned(), manifest), ("config.json".to_owned(), config)]
}

fn layers() -> [Vec<u8>; 2] {
    let noise = noise(200_000);
    let lower = tar(&[("etc/passwd", b"old"), ("gone", b"must be gone")]);
    let upper = tar(&[("a", &noise), ("b", &noise), ("etc/passwd", b"new"), (".wh.gone", b"")]);
    [lower, upper]
}

/// The header of a tar's folder `path`, with these bits and this owner.
fn folder(path: &str, mode: u32, owner: u32) -> Vec<u8> {
    let mut header = member(b'5', path, b"");
    header[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
    header[108..116].copy_from_slice(format!("{owner:07o}\0").as_bytes());
    header[148..156].fill(b' ');
    let sum: u32 = header[..512].iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

/// What hides all that is in a folder leaves the folder as it was; what removes it does not.
#[test]
fn an_opaque_folder_without_an_entry_keeps_its_owner_and_mode() {
    let lower = [folder("secret/", 0o700, 1000), tar(&[("secret/old", b"old")])].concat();
    let opaque = tar(&[("secret/.wh..wh..opq", b""), ("secret/new", b"new")]);
    let more = tar(&[("secret/more", b"more")]);
    let removed = tar(&[(".wh.secret", b""), ("secret/new", b"new")]);
    let removed_and_opaque = tar(&[(".wh.secret", b""), ("secret/.wh..wh..opq", b""), ("secret/new", b"new")]);
    let of_its_own = [folder("secret/", 0o711, 7), opaque.clone()].concat();
    let file_between = tar(&[("secret", b"a file")]);
    let named = |layers: &[Vec<u8>]| -> Arc<dyn tarnfs_tree::Tree> {
        let names: Vec<String> = (0..layers.len()).map(|number| format!("{number}.tar")).collect();
        let layers: Vec<(&str, &[u8])> =
            names.iter().zip(layers).map(|(name, layer)| (name.as_str(), layer.as_slice())).collect();
        assembled(&saved(&layers, &digests(layers.len())), &options())
    };
    let empty = tar(&[("other", b"")]);
    for (layers, mode, owner, old) in [
        (vec![lower.clone(), opaque.clone()], 0o700, 1000, false),
        (vec![lower.clone(), empty, opaque.clone()], 0o700, 1000, false),
        (vec![lower.clone(), opaque.clone(), more.clone()], 0o700, 1000, false),
        (vec![lower.clone(), opaque.clone(), opaque.clone()], 0o700, 1000, false),
        (vec![lower.clone(), more], 0o700, 1000, true),
        (vec![lower.clone(), of_its_own], 0o711, 7, false),
        (vec![lower.clone(), removed], 0o755, 0, false),
        (vec![lower.clone(), removed_and_opaque], 0o755, 0, false),
        (vec![lower, file_between, opaque], 0o755, 0, false),
    ] {
        // What a listing has made is not asked of the layers again.
        for is_listed in [false, true] {
            let tree = named(&layers);
            if is_listed {
                tree.read_dir(tarnfs_tree::Node::ROOT, 0, &mut |child| {
                    let own = (child.attributes.mode, child.attributes.uid);
                    assert!(child.name != b"secret" || own == (mode, owner), "{own:?} {mode:o} {owner}");
                    true
                })
                .unwrap();
            }
            let found = tarnfs_tree::path::find(&*tree, b"secret", true).unwrap();
            assert_eq!((found.mode, found.uid), (mode, owner), "{} layers, {is_listed}", layers.len());
            let again = tree.attributes(found.node).unwrap();
            assert_eq!((again.mode, again.uid), (mode, owner), "{} layers, {is_listed}", layers.len());
            assert_eq!(read(&*tree, "secret/old").is_some(), old, "{} layers, {is_listed}", layers.len());
        }
    }
}

/// What is assembled of an archive with images.
fn assembled(archive: &[u8], options: &Options) -> Arc<dyn tarnfs_tree::Tree> {
    let owner = trust::Owner { user: 0, group: 0, mode: 0o644 };
    let facts = FileFacts { owner, modified: 1_700_000_000_000_000_000, identity: Some(1) };
    let location = Location::Source { source: memory("image", archive), facts, path: PathBuf::from("image") };
    let how = Composition { images: Some(Wanted::default()), file_versions: false, ..Composition::default() };
    assemble(&[location], &how, options, &()).unwrap().tree
}

/// The content of a file, if there is one.
fn read(tree: &dyn tarnfs_tree::Tree, path: &str) -> Option<Vec<u8>> {
    let found = tarnfs_tree::path::find(tree, path.as_bytes(), true).ok()?;
    content(tree, found.node).ok()
}

/// Paths of what is assembled of an archive, and what the file `etc/passwd` holds if there is one.
fn image(archive: &[u8], force: bool, strip_extension: bool) -> (Vec<String>, Option<Vec<u8>>) {
    let mut options = options();
    options.decoding.force = force;
    if strip_extension {
        options.shape.recursion = Some(Recursion { strip_extension, ..Recursion::default() });
    }
    let tree = assembled(archive, &options);
    let paths = listed(&*tree).into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
    (paths, read(&*tree, "etc/passwd"))
}

/// A tar of an image with these layers, by their paths and contents. Its configuration has these digests.
fn saved(layers: &[(&str, &[u8])], digests: &[String]) -> Vec<u8> {
    let ids: Vec<String> = digests.iter().map(|digest| format!("\"{digest}\"")).collect();
    let (ids, rootfs) = (ids.join(","), r#""rootfs":{"type":"layers","diff_ids""#);
    let config = format!(r#"{{"os":"linux","architecture":"amd64",{rootfs}:[{ids}]}}}}"#);
    let paths: Vec<String> = layers.iter().map(|(path, _)| format!("\"{path}\"")).collect();
    let manifest = format!(r#"[{{"Config":"config.json","Layers":[{}]}}]"#, paths.join(","));
    let documents = [("manifest.json", manifest.as_bytes()), ("config.json", config.as_bytes())];
    tar(&[&documents[..], layers].concat())
}

/// So many digests that nothing has.
fn digests(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("sha256:{number:064x}")).collect()
}

/// An image of which a layer is missing or damaged is not shown, with a line that says so.
#[test]
fn an_image_with_a_damaged_layer_is_shown_as_it_is_stored() {
    let [lower, upper] = layers();
    let packed = gzip(&upper);
    let broken_header = {
        let mut upper = upper.clone();
        let at = upper.windows(8).position(|bytes| bytes == b".wh.gone").unwrap();
        upper[at] = b'x';
        upper
    };
    let wrong_check = {
        let mut packed = packed.clone();
        let at = packed.len() - 8;
        packed[at] ^= 1;
        packed
    };
    for prefix in ["", "./"] {
        for strip_extension in [false, true] {
            let shown = |name: &str, upper: &[u8], force: bool| {
                let [manifest, config] = documents(["lower.tar", name]);
                let names = [manifest.0, config.0, "lower.tar".to_owned(), name.to_owned()];
                let names = names.map(|name| format!("{prefix}{name}"));
                let contents = [manifest.1.as_bytes(), config.1.as_bytes(), &lower, upper];
                let files: Vec<_> = names.iter().map(String::as_str).zip(contents).collect();
                image(&tar(&files), force, strip_extension)
            };
            for (name, whole) in [("upper.tar", &upper), ("upper.tar.gz", &packed)] {
                let (paths, passwd) = shown(name, whole, false);
                assert_eq!(passwd.as_deref(), Some(&b"new"[..]), "{prefix}{name} {paths:?}");
                assert!(!paths.contains(&"/gone".to_owned()) && paths.contains(&"/a".to_owned()), "{paths:?}");
            }
            for (name, damaged) in [
                ("upper.tar", &upper[..250_000]),
                ("upper.tar", &broken_header),
                ("upper.tar.gz", &packed[..250_000]),
                ("upper.tar.gz", &wrong_check),
            ] {
                let (paths, passwd) = shown(name, damaged, false);
                assert_eq!(passwd, None, "{prefix}{name} {strip_extension} {} {paths:?}", damaged.len());
                assert!(paths.contains(&"/manifest.json".to_owned()), "{paths:?}");
                let (paths, _) = shown(name, damaged, true);
                assert!(paths.contains(&"/etc/passwd".to_owned()), "{prefix}{name} {paths:?}");
            }
        }
    }
}

/// The archive around the layers is damaged, where one of them lies.
#[test]
fn an_image_in_a_damaged_archive_is_shown_as_it_is_stored() {
    let [lower, upper] = layers();
    let [manifest, config] = documents(["lower.tar", "upper.tar"]);
    let before = tar(&[(&manifest.0, manifest.1.as_bytes()), (&config.0, config.1.as_bytes()), ("lower.tar", &lower)]);
    // Members of gzip of their own, so that only the last one is damaged.
    let first = gzip(&before[..before.len() - 1024]);
    let last = gzip(&tar(&[("upper.tar", &upper)]));
    let whole = [&first[..], &last].concat();
    assert_eq!(image(&whole, false, false).1.as_deref(), Some(&b"new"[..]));
    let mut damaged = whole.clone();
    let at = damaged.len() - 8;
    damaged[at] ^= 1;
    for damaged in [&damaged[..], &whole[..250_000]] {
        let (paths, passwd) = image(damaged, false, false);
        assert_eq!(passwd, None, "{paths:?}");
        assert!(paths.contains(&"/manifest.json".to_owned()), "{paths:?}");
    }
}

/// A hard link to a file of a lower layer is told as one that leads nowhere, and damages nothing. What is wrong with an
/// archive in a layer does not, either.
#[test]
fn what_is_wrong_inside_a_layer_does_not_hide_the_image() {
    let [lower, upper] = layers();
    let mut link = member(b'1', "link", b"");
    link[157..161].copy_from_slice(b"gone");
    link[148..156].fill(b' ');
    let sum: u32 = link[..512].iter().map(|&byte| u32::from(byte)).sum();
    link[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let inner = &gzip(&tar(&[("x", &noise(100_000))]))[..50_000];
    let upper = [link, member(b'0', "inner.tar.gz", inner), upper].concat();
    let [manifest, config] = documents(["lower.tar", "upper.tar"]);
    let files: [(&str, &[u8]); 4] = [
        (&manifest.0, manifest.1.as_bytes()),
        (&config.0, config.1.as_bytes()),
        ("lower.tar", &lower),
        ("upper.tar", &upper),
    ];
    for strip_extension in [false, true] {
        let (paths, passwd) = image(&tar(&files), false, strip_extension);
        assert_eq!(passwd.as_deref(), Some(&b"new"[..]), "{paths:?}");
    }
}

/// > Layers and documents of a layout that is a folder are files in it: symbolic links are not followed.
#[test]
fn a_layout_does_not_lead_out_of_its_folder() {
    let all = tempfile::tempdir().unwrap();
    let (folder, outside) = (all.path().join("image"), all.path().join("outside"));
    let how = Composition { images: Some(Wanted::default()), ..Composition::default() };
    let shown = |folder: &Path| {
        let assembly = assemble(&[Location::Path(folder.to_owned())], &how, &options(), &()).unwrap();
        listed(&*assembly.tree)
    };
    let [lower, upper] = layers();
    for make in 0..6 {
        for folder in [&folder, &outside] {
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir_all(folder.join("l")).unwrap();
        }
        for (name, text) in documents(["l/lower.tar", "l/upper.tar"]) {
            std::fs::write(folder.join(name), text).unwrap();
        }
        std::fs::write(outside.join("upper.tar"), &upper).unwrap();
        std::fs::write(folder.join("l/lower.tar"), &lower).unwrap();
        std::fs::write(folder.join("l/upper.tar"), &upper).unwrap();
        let fifo = |name: &str| {
            std::fs::remove_file(folder.join(name)).unwrap();
            let made = std::process::Command::new("mkfifo").arg(folder.join(name)).status().unwrap();
            assert!(made.success());
        };
        match make {
            0 => {}
            1 => {
                std::fs::remove_file(folder.join("l/upper.tar")).unwrap();
                symlink(outside.join("upper.tar"), folder.join("l/upper.tar")).unwrap();
            }
            2 => {
                std::fs::write(outside.join("lower.tar"), &lower).unwrap();
                std::fs::remove_dir_all(folder.join("l")).unwrap();
                symlink(&outside, folder.join("l")).unwrap();
            }
            3 => {
                std::fs::rename(folder.join("manifest.json"), outside.join("manifest.json")).unwrap();
                symlink(outside.join("manifest.json"), folder.join("manifest.json")).unwrap();
            }
            // Nobody waits for who writes into them.
            4 => ["manifest.json", "config.json"].into_iter().for_each(fifo),
            _ => fifo("l/upper.tar"),
        }
        let folders = std::fs::metadata(&folder).unwrap();
        let assembly = assemble(&[Location::Path(folder.clone())], &how, &options(), &()).unwrap();
        let identity = (std::os::unix::fs::MetadataExt::dev(&folders), std::os::unix::fs::MetadataExt::ino(&folders));
        assert_eq!(assembly.first, Some(identity), "{make}");
        let paths = shown(&folder);
        let is_image = paths.contains(&b"/etc/passwd".to_vec());
        assert_eq!((is_image, paths.contains(&b"/manifest.json".to_vec())), (make == 0, make != 0), "{make}");
    }
}

/// What a later entry replaces is no part any more, also where it spells the path in another way.
#[test]
fn parts_that_were_replaced_are_not_joined() {
    let whole = |text: &str| tar(&[("a", &[b'a'; 6000]), ("f", text.repeat(100).as_bytes())]);
    let (old, new) = (whole("OLD content\n"), whole("NEW content\n"));
    let half = 7168;
    for (later, target) in
        [("./p/x.tar.002", false), ("p//x.tar.002", false), ("q/../p/x.tar.002", false), ("./p/x.tar.002", true)]
    {
        let mut members =
            [member(b'0', "p/x.tar.001", &old[..half]), member(b'0', "p/x.tar.002", &old[half..])].concat();
        members.extend(if target { member(b'2', later, b"") } else { member(b'0', later, &new[half..]) });
        members.resize(members.len() + 1024, 0);
        for archive in [members.clone(), gzip(&members)] {
            let extensions = tarnfs_tree::DEFAULT_EXTENSIONS.map(str::to_owned).into();
            let recursion = Recursion { extensions, ..Recursion::default() };
            let shape = Shape { recursion: Some(recursion), ..options().shape };
            let opened = common::open(memory("archive", &archive), &Options { shape, ..options() }).unwrap();
            let found = tarnfs_tree::path::find(&*opened.tree, b"p/x.tar.001/f", true);
            let read = found.ok().and_then(|found| content(&*opened.tree, found.node).ok());
            let expected = "NEW content\n".repeat(100).into_bytes();
            assert!(target && read.is_none() || !target && read == Some(expected), "{later} {target}");
        }
    }
}

/// Each numbered file counts up from the first one, but what one of them has found holds for all.
#[test]
fn very_many_numbered_files_are_looked_at_once() {
    const COUNT: usize = 20_000;
    let mut tar: Vec<u8> =
        (0..COUNT).flat_map(|number| member(b'0', &format!("frame.{number:05}"), b"frame")).collect();
    tar.resize(tar.len() + 1024, 0);
    let recursion = Recursion { extensions: vec!["*".to_owned()], ..Recursion::default() };
    let shape = Shape { recursion: Some(recursion), ..options().shape };
    let opened = common::open(memory("archive", &tar), &Options { shape, ..options() }).unwrap();
    assert_eq!((listed(&*opened.tree).len(), opened.index.summary().notes.len()), (COUNT, 0));
}

/// The archive around the layers ends in the last one, between two of its entries: what comes behind is as if it were
/// not there, and the layer itself says nothing of that.
#[test]
fn an_image_is_not_shown_if_its_archive_ends_between_two_entries_of_a_layer() {
    let lower = tar(&[("etc/passwd", b"old"), ("gone", b"must be gone")]);
    let upper = tar(&[("a", &noise(20_000)), ("etc/passwd", b"new"), (".wh.gone", b"")]);
    // A header and 20 000 bytes, in blocks.
    let first = 512 + 20_480;
    for strip_extension in [false, true] {
        let archive = saved(&[("lower.tar", &lower), ("upper.tar", &upper)], &digests(2));
        let at = archive.windows(upper.len()).position(|bytes| bytes == upper).unwrap();
        assert_eq!(image(&archive, false, strip_extension).1.as_deref(), Some(&b"new"[..]));
        // The same with nothing but the end of the archive missing.
        assert_eq!(image(&archive[..at + upper.len()], false, strip_extension).1.as_deref(), Some(&b"new"[..]));
        let cut = &archive[..at + first];
        for damaged in [cut.to_vec(), gzip(cut), gzip(&archive[..at + first + 512])] {
            let (paths, passwd) = image(&damaged, false, strip_extension);
            assert_eq!(passwd, None, "{strip_extension} {paths:?}");
            assert!(paths.contains(&"/manifest.json".to_owned()), "{paths:?}");
            assert!(image(&damaged, true, strip_extension).0.contains(&"/gone".to_owned()));
        }
        // A layer of two members, of which the archive has the first.
        let [one, two] = [gzip(&upper[..first]), gzip(&upper[first..])];
        let packed = [&one[..], &two].concat();
        let archive = saved(&[("lower.tar", &lower), ("upper.tar.gz", &packed)], &digests(2));
        assert_eq!(image(&archive, false, strip_extension).1.as_deref(), Some(&b"new"[..]));
        let at = archive.windows(packed.len()).position(|bytes| bytes == packed).unwrap();
        let (paths, passwd) = image(&archive[..at + one.len()], false, strip_extension);
        assert_eq!(passwd, None, "{strip_extension} {paths:?}");
    }
}

/// A crash may leave zeros, or nothing, in place of a layer. One that changes nothing has a digest.
#[test]
fn what_is_left_of_a_layer_is_none_that_changes_nothing() {
    let lower = tar(&[("etc/passwd", b"old")]);
    // Of 1024 zeros, and of nothing.
    let empty = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef".to_owned();
    let nothing = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned();
    let other = digests(1).remove(0);
    let zeros = [0; 1024];
    for (bytes, digest, is_whole) in [
        (&zeros[..], &empty, true),
        (&zeros, &other, false),
        (&[], &nothing, true),
        (&[], &other, false),
        (&[], &empty, false),
    ] {
        let digests = [digests(1), vec![digest.clone()]].concat();
        for (name, upper) in [("upper.tar", bytes.to_vec()), ("upper.tar.gz", gzip(bytes))] {
            for strip_extension in [false, true] {
                let archive = saved(&[("lower.tar", &lower), (name, &upper)], &digests);
                let (paths, passwd) = image(&archive, false, strip_extension);
                assert_eq!(passwd.is_some(), is_whole, "{name} {digest} {strip_extension} {paths:?}");
                assert_eq!(image(&archive, true, strip_extension).1.as_deref(), Some(&b"old"[..]), "{name} {digest}");
            }
        }
    }
}

/// A header of a link, behind one of the long target that it has.
fn link(name: &str, target: &str) -> Vec<u8> {
    [member(b'K', "././@LongLink", &[target.as_bytes(), b"\0"].concat()), member(b'2', name, b"")].concat()
}

/// Links may lead round for very long, in few bytes.
#[test]
fn layers_that_are_hard_to_find_are_not_looked_for_any_more() {
    let layer = tar(&[("etc/passwd", b"new")]);
    let archive = |layers: usize, steps: usize| {
        let names: Vec<String> = (0..layers).map(|number| format!("layer{number}")).collect();
        let none: &[u8] = b"";
        let paths: Vec<_> = names.iter().map(|name| (name.as_str(), none)).collect();
        // What lies there in that tar is replaced by links.
        let mut archive = saved(&paths, &digests(layers));
        archive.truncate(archive.len() - 1024);
        let way = "./".repeat(steps);
        archive.extend(names.iter().flat_map(|name| link(name, &format!("{way}l0"))));
        archive.extend((0..38).flat_map(|number| link(&format!("l{number}"), &format!("{way}l{}", number + 1))));
        archive.extend(member(b'0', "l38", &layer));
        archive.resize(archive.len() + 1024, 0);
        archive
    };
    assert_eq!(image(&archive(3, 5), false, false).1.as_deref(), Some(&b"new"[..]));
    let (paths, passwd) = image(&archive(10, 1000), false, false);
    assert_eq!(passwd, None);
    assert!(paths.contains(&"/manifest.json".to_owned()), "{paths:?}");
}

/// Options with which archives are shown as folders.
fn recursive(strip_extension: bool) -> Options {
    let extensions = tarnfs_tree::DEFAULT_EXTENSIONS.map(str::to_owned).into();
    let recursion = Recursion { extensions, strip_extension, ..Recursion::default() };
    Options { shape: Shape { recursion: Some(recursion), ..options().shape }, ..options() }
}

/// > With `-r`, an archive in a layer takes the place of all that lower layers have at its path, and is merged with
/// > nothing.
#[test]
fn archives_in_layers_are_not_merged() {
    let packed = |files: &[(&str, &[u8])]| gzip(&tar(files));
    let lower = tar(&[
        ("opt/a.tar.gz", &packed(&[("old", b"old"), ("both", b"old")])),
        ("opt/b.tar.gz", &packed(&[("old", b"old")])),
        ("opt/c.tar.gz", &packed(&[("only", b"old")])),
        ("opt/d.tar.gz/old", b"old"),
        ("opt/e/old", b"old"),
    ]);
    let upper = tar(&[
        ("opt/a.tar.gz", &packed(&[("new", b"new"), ("both", b"new")])),
        ("opt/b.tar.gz/new", b"new"),
        ("opt/d.tar.gz", &packed(&[("new", b"new")])),
        ("opt/e/new", b"new"),
    ]);
    let archive = saved(&[("lower.tar", &lower), ("upper.tar", &upper)], &digests(2));
    let expected = [
        "/opt",
        "/opt/a.tar.gz",
        "/opt/a.tar.gz/both",
        "/opt/a.tar.gz/new",
        "/opt/b.tar.gz",
        "/opt/b.tar.gz/new",
        "/opt/c.tar.gz",
        "/opt/c.tar.gz/only",
        "/opt/d.tar.gz",
        "/opt/d.tar.gz/new",
        "/opt/e",
        "/opt/e/new",
        "/opt/e/old",
    ];
    // What is looked up first is not listed before, and the other way round. Names are those of the archives.
    for (is_listed_first, strips) in [(true, false), (false, false), (true, true), (false, true)] {
        let tree = assembled(&archive, &recursive(strips));
        let list = || {
            let paths: Vec<String> = listed(&*tree).into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
            assert_eq!(paths, expected);
        };
        if is_listed_first {
            list();
        }
        let gone = ["opt/a.tar.gz/old", "opt/b.tar.gz/old", "opt/d.tar.gz/old"];
        assert!(gone.iter().all(|path| read(&*tree, path).is_none()), "{is_listed_first}");
        assert_eq!(read(&*tree, "opt/a.tar.gz/both").as_deref(), Some(&b"new"[..]));
        assert_eq!(read(&*tree, "opt/e/old").as_deref(), Some(&b"old"[..]));
        list();
    }
}

/// A hard link to a file of a lower layer does not show. What it took the place of must not show in its place.
#[test]
fn a_link_to_a_lower_layer_hides_what_was_at_its_name() {
    let lower = tar(&[("big", b"big"), ("d/hl", b"old"), ("d/other", b"old"), ("hl", b"old"), ("only", b"old")]);
    let mut upper = [member(b'K', "././@LongLink", b"big\0"), member(b'1', "d/hl", b"")].concat();
    upper.extend([member(b'K', "././@LongLink", b"big\0"), member(b'1', "hl", b"")].concat());
    upper.extend([member(b'K', "././@LongLink", b"d/new\0"), member(b'1', "d/link", b"")].concat());
    upper.extend(tar(&[("d/new", b"new"), ("n", b"new")]));
    let archive = saved(&[("lower.tar", &lower), ("upper.tar", &upper)], &digests(2));
    for is_listed_first in [true, false] {
        let tree = assembled(&archive, &options());
        let list = || {
            let paths: Vec<String> = listed(&*tree).into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
            assert_eq!(paths, ["/big", "/d", "/d/link", "/d/new", "/d/other", "/n", "/only"]);
        };
        if is_listed_first {
            list();
        }
        assert_eq!([read(&*tree, "hl"), read(&*tree, "d/hl")], [None, None], "{is_listed_first}");
        assert_eq!(read(&*tree, "d/other").as_deref(), Some(&b"old"[..]));
        assert_eq!(read(&*tree, "n").as_deref(), Some(&b"new"[..]));
        list();
    }
}

/// > Where a layer only removes something behind what is a link or a file in a lower one, and has no entry for a folder
/// > there, that link or file stays, and nothing behind it is removed.
#[test]
fn what_only_removes_takes_no_file_away() {
    let link = [member(b'K', "././@LongLink", b"usr/lib\0"), member(b'2', "lib", b"")].concat();
    let lower = [link, tar(&[("conf", b"text"), ("d/in", b"text"), ("usr/lib/old", b"old")])].concat();
    let (x, y) = (("conf/.wh.x", &b""[..]), ("conf/sub/.wh.y", &b""[..]));
    let gone = tar(&[x, y, ("d/in/.wh..wh..opq", b""), ("lib/.wh.old", b"")]);
    let (puts, other) = (tar(&[("lib/new", b"new"), x]), tar(&[("other", b"")]));
    let (told, removes) = ([folder("conf/", 0o755, 0), tar(&[x])].concat(), tar(&[(".wh.conf", b"")]));
    let kind_of = |kind| match kind {
        tarnfs_tree::Kind::Folder => 'd',
        tarnfs_tree::Kind::File => 'f',
        _ => 'l',
    };
    for (upper, expected) in [
        (vec![&gone], "ffl"),
        (vec![&gone, &gone], "ffl"),
        (vec![&other, &gone], "ffl"),
        (vec![&puts], "ffd"),
        (vec![&gone, &puts], "ffd"),
        (vec![&told], "dfl"),
        (vec![&removes, &gone], "dfl"),
    ] {
        let names: Vec<String> = (0..=upper.len()).map(|number| format!("{number}.tar")).collect();
        let layers = names.iter().zip([&[&lower][..], &upper[..]].concat());
        let layers: Vec<(&str, &[u8])> = layers.map(|(name, layer)| (name.as_str(), layer.as_slice())).collect();
        for is_listed_first in [false, true] {
            let tree = assembled(&saved(&layers, &digests(layers.len())), &options());
            if is_listed_first {
                listed(&*tree);
            }
            let find = |path: &str| tarnfs_tree::path::find(&*tree, path.as_bytes(), false).unwrap();
            let kinds: String = ["conf", "d/in", "lib"].map(|path| kind_of(find(path).kind)).iter().collect();
            assert_eq!(kinds, expected, "{is_listed_first}");
            assert_eq!(read(&*tree, "lib/old").is_some(), expected.ends_with('l'), "{expected}");
            assert_eq!(read(&*tree, "conf").is_some(), expected.starts_with('f'), "{expected}");
            let versions = tree.versions(tarnfs_tree::Node::ROOT, b"conf").unwrap();
            assert!(expected.starts_with('d') || versions.len() == 1, "{expected}: {versions:?}");
        }
    }
}

/// With `-s` the files that layers are stored in stay beside their folders. Links lead to either.
#[test]
fn layers_are_found_where_their_folders_have_shorter_names() {
    let [lower, upper] = layers();
    let (none, links): (&[u8], _) = (b"", [(b'2', "../b/layer.tar"), (b'1', "b/layer.tar")]);
    for strip_extension in [false, true] {
        let archive = saved(&[("a/layer.tar", &lower), ("b/layer.tar", &upper)], &digests(2));
        let tree = assembled(&archive, &recursive(strip_extension));
        assert_eq!(read(&*tree, "etc/passwd").as_deref(), Some(&b"new"[..]), "{strip_extension}");
        for (kind, target) in links {
            let mut archive = saved(&[("a/layer.tar", &lower), ("c/layer.tar", none)], &digests(2));
            archive.truncate(archive.len() - 1024);
            archive.extend(member(b'0', "b/layer.tar", &upper));
            archive.extend(member(b'K', "././@LongLink", &[target.as_bytes(), b"\0"].concat()));
            archive.extend(member(kind, "c/layer.tar", b""));
            archive.resize(archive.len() + 1024, 0);
            let tree = assembled(&archive, &recursive(strip_extension));
            assert_eq!(read(&*tree, "etc/passwd").as_deref(), Some(&b"new"[..]), "{strip_extension} {target}");
        }
    }
    // A folder that is merely called so is none.
    let mut archive = saved(&[("a/layer.tar", &lower), ("b/layer.tar", b"no archive")], &digests(2));
    archive.truncate(archive.len() - 1024);
    archive.extend(member(b'0', "b/layer/etc/passwd", b"new"));
    archive.resize(archive.len() + 1024, 0);
    assert_eq!(read(&*assembled(&archive, &recursive(true)), "etc/passwd"), None);
}

/// Higher layers may have closed what is in lower ones.
///
/// > The folder `.layers` of an image is for the mount's owner alone, and is not served over HTTP.
#[test]
fn the_layers_of_an_image_are_for_its_owner() {
    let [lower, upper] = layers();
    let archive = saved(&[("lower.tar", &lower), ("upper.tar", &upper)], &digests(2));
    let tree = assembled(&archive, &options());
    let layers = tarnfs_tree::path::find(&*tree, b".layers", true).unwrap();
    let owner = rustix::process::geteuid().as_raw();
    assert_eq!((layers.mode, layers.uid), (0o700, owner));
    assert_eq!(tree.attributes(layers.node).unwrap().mode, 0o700);
}

/// An index that lies where one of an archive does is left out, whatever is in it.
#[test]
fn an_index_that_an_archive_does_not_use_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (_, tar) = archives().into_iter().find(|(name, _)| *name == "tar").unwrap();
    let archive = folder.path().join("a.tar");
    std::fs::write(&archive, tar).unwrap();
    let mut options = options();
    options.index.place = IndexPlace::Folders(vec![PathBuf::new()]);
    options.index.is_written = true;
    options.index.minimum_file_count = 0;
    let archive = Location::Path(archive);
    assemble(std::slice::from_ref(&archive), &Composition::default(), &options, &()).unwrap();
    let index = folder.path().join("a.tar.tarnfs.sqlite");
    let other = folder.path().join("a.tar.options-0123456789abcdef.tarnfs.sqlite");
    std::fs::copy(&index, &other).unwrap();
    // The archive has become another one, and too small for an index.
    std::fs::write(archive.path(), self::tar(&[("other", b"other")])).unwrap();
    options.index.is_written = false;
    let alone = assemble(std::slice::from_ref(&archive), &Composition::default(), &options, &()).unwrap();
    assert_eq!(listed(&*alone.tree), [b"/other"]);
    let all = [archive.clone(), Location::Path(index), Location::Path(other)];
    let union = assemble(&all, &Composition::default(), &options, &()).unwrap();
    assert_eq!(listed(&*union.tree), [b"/other"]);
    // Without its archive it is shown.
    let indexes = assemble(&all[1..], &Composition::default(), &options, &()).unwrap();
    assert!(listed(&*indexes.tree).len() > 1);
}
