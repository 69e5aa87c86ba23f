//! From what was typed to what the libraries take.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarnfs_codec::Dictionaries;
use tarnfs_codec::engine::PieceCache;
use tarnfs_format::backends::in_order;
use tarnfs_fuse::MountOptions;
use tarnfs_index::{Recursion, Shape, location, ratarmount};
use tarnfs_source::{Budget, Cancel};
use tarnfs_tree::Composition;
use tarnfs_tree::open::{
    DecodedCache, DecodingOptions, IndexOptions, IndexPlace, Options, Passwords, Recreate, Remotes, is_url,
};

use super::{Mount, Open, shown};
use crate::exit::{Code, Failure};
use crate::{prompt, remote};

/// Smallest spacing of seek points that makes sense: below, their windows weigh more than the archive.
const LEAST_SPACING: f64 = 128.0 / 1024.0;
/// Largest: 1 TiB.
const MOST_SPACING: f64 = 1024.0 * 1024.0;

/// Bounds of `--cache-memory`: below, hardly a decoder has room.
const LEAST_MEMORY: u64 = 8 << 20;
const MOST_MEMORY: u64 = 1 << 40;

/// What ratarmount calls its decoders, and the codecs that they are for.
const BACKENDS: &[(&str, &str)] = &[
    ("rapidgzip", "gzip"),
    ("rapidgzip-gzip", "gzip"),
    ("indexed_gzip", "gzip"),
    ("rapidgzip-bzip2", "bzip2"),
    ("indexed_bzip2", "bzip2"),
    ("lzmaffi", "xz"),
    ("python-xz", "xz"),
    ("indexed_zstd", "zstd"),
];

/// The value of `--parallelization`: threads for all codecs, and for single ones.
fn threads(value: &str) -> Result<(usize, Vec<(String, usize)>), String> {
    const MOST: usize = 1024;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut threads, mut threads_of) = (cores, Vec::new());
    for part in value.split(',') {
        let (name, number) = part.rsplit_once(':').unwrap_or(("", part));
        let number = match number.trim().parse::<usize>() {
            Ok(0) => cores,
            Ok(number) if number <= MOST => number,
            Ok(_) => return Err(format!("{value}: more than {MOST} threads are not possible")),
            Err(_) => return Err(format!("{value}: give a number of threads, or CODEC:NUMBER,...,:NUMBER")),
        };
        let name = name.trim();
        let codec = BACKENDS.iter().find(|(backend, _)| *backend == name).map_or(name, |(_, codec)| codec);
        match codec {
            "" => threads = number,
            codec if tarnfs_codec::by_name(codec).is_some() => threads_of.push((codec.to_owned(), number)),
            // Of ratarmount there are more; what they read, nothing here reads in parallel.
            other => log::warn!("--parallelization: there is no codec {other}"),
        }
    }
    Ok((threads, threads_of))
}

/// What is in the files of passwords and dictionaries. A file may be a pipe, which can be read only once.
#[derive(Clone)]
pub(crate) struct Keys {
    passwords: Passwords,
    dictionaries: Dictionaries,
}

impl Keys {
    /// Reads the files. To be called before signals are listened to: until then they end who waits for a pipe.
    pub(crate) fn read(open: &Open) -> Result<Self, Failure> {
        let usage = |message: String| Failure::new(Code::Usage, message);
        let dictionaries = dictionaries(&open.zstd_dictionary).map_err(usage)?;
        Ok(Self { passwords: Passwords::new(passwords(open).map_err(usage)?), dictionaries })
    }

    /// True if something may be opened with a password.
    pub(crate) fn has_passwords(&self) -> bool {
        !self.passwords.is_empty()
    }
}

/// How an archive is opened.
pub(crate) fn open_options(open: &Open, keys: &Keys, cancel: &Cancel) -> Result<Options, Failure> {
    let usage = |message: String| Failure::new(Code::Usage, message);
    let (threads, threads_of) =
        threads(&open.parallelization).map_err(|problem| usage(format!("--parallelization {problem}")))?;
    // Now, as what is opened later may have to know it when no file can be opened any more.
    Budget::memory_of_this_machine();
    let budget = open.cache_memory.map_or_else(
        || Budget::for_this_machine(threads),
        |bytes| Budget::new(bytes.clamp(LEAST_MEMORY, MOST_MEMORY) as usize),
    );
    let decoded_cache = location::cache_folder()
        .filter(|_| open.cache_size != Some(0))
        .map(|folder| DecodedCache::new(folder.join("decoded"), open.cache_size));
    let mut spacing = open.gzip_seek_point_spacing;
    // As ratarmount has it.
    if let Some(typed) = spacing.filter(|spacing| *spacing <= 0.0) {
        log::info!("--gzip-seek-point-spacing {typed} is taken for the least: {LEAST_SPACING} MiB");
        spacing = Some(LEAST_SPACING);
    }
    if let Some(spacing) = spacing.filter(|spacing| !(LEAST_SPACING..=MOST_SPACING).contains(spacing)) {
        return Err(usage(format!(
            "--gzip-seek-point-spacing {spacing}: give MiB between {LEAST_SPACING} and {MOST_SPACING}"
        )));
    }
    // It is somebody else's, and stays as it is.
    let mut is_foreign = false;
    let place = match (open.index_file(), &open.index_folders) {
        (Some(file), _) if file == ":memory:" => IndexPlace::Memory,
        (Some(file), _) if is_url(Path::new(file)) && !Path::new(file).exists() => {
            let network = open.network.as_ref().filter(|_| is_known(file));
            let network = network.ok_or_else(|| {
                usage(format!(
                    "--index-file {}: an index can be read from http://, https://, s3://, webdav://, sftp:// and others",
                    shown(file)
                ))
            })?;
            is_foreign = true;
            IndexPlace::Url(remote::index_at(&file.to_string_lossy(), network, cancel)?)
        }
        (Some(file), _) => {
            let file = location::expand_home(PathBuf::from(file));
            may_be_replaced(&file).map_err(usage)?;
            may_be_made(&file)?;
            IndexPlace::File(from_here(file).map_err(|error| usage(format!("--index-file: {error}")))?)
        }
        (None, Some(folders)) => {
            let folders =
                location::parse_folders(folders).map_err(|error| usage(format!("--index-folders: {error}")))?;
            let folders: io::Result<Vec<_>> = folders.into_iter().map(from_here).collect();
            IndexPlace::Folders(folders.map_err(|error| usage(format!("--index-folders: {error}")))?)
        }
        (None, None) => IndexPlace::Folders(location::default_folders()),
    };
    let is_utf8 = ["utf-8", "utf8", ""].iter().any(|name| open.encoding.eq_ignore_ascii_case(name));
    Ok(Options {
        shape: Shape {
            encoding: (!is_utf8).then(|| open.encoding.to_ascii_lowercase()),
            ignore_zeros: open.ignore_zeros,
            gnu_incremental: match (open.gnu_incremental, open.detect_gnu_incremental) {
                (true, _) => Some(true),
                (false, true) => None,
                (false, false) => Some(false),
            },
            transform: pair(open.transform.as_deref()),
            recursion: recursion(open),
            hashes: tarnfs_tree::hashes::normalise(&open.hashes).map_err(|error| usage(format!("--hashes {error}")))?,
            backends: in_order(open.use_backend.iter().map(String::as_str)),
        },
        cancel: cancel.clone(),
        index: IndexOptions {
            place,
            is_written: !is_foreign,
            recreate: match (open.recreate_index, open.no_recreate_index) {
                (true, _) => Recreate::Always,
                (_, true) => Recreate::Never,
                _ => Recreate::IfNeeded,
            },
            verify_mtime: open.verify_mtime,
            is_trusted: open.trust_index, // Who names a folder for indexes wants to find them there.
            minimum_file_count: match (open.index_minimum_file_count, &open.index_folders) {
                (Some(count), _) => count,
                (None, Some(_)) => 0,
                (None, None) => IndexOptions::default().minimum_file_count,
            },
            ..IndexOptions::default()
        },
        decoding: DecodingOptions {
            dictionaries: keys.dictionaries.clone(),
            passwords: keys.passwords.clone(),
            seek_point_spacing: spacing.map(|spacing| (spacing * f64::from(1 << 20)) as u64),
            threads,
            threads_of,
            cache: PieceCache::new(budget),
            decoded_cache,
            force: open.force,
            ..DecodingOptions::default()
        },
        remotes: open.network.as_ref().map(|network| Arc::new(remote::Opens::new(network, cancel)) as Arc<dyn Remotes>),
        ..Options::default()
    })
}

/// True if the URL is one that can be asked.
fn is_known(url: &OsStr) -> bool {
    let scheme = url.to_str().and_then(|url| url.split_once("://")).map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| tarnfs_remote::is_known_scheme(&scheme))
}

/// Expression and replacement. Of an option that is repeated, the last ones.
fn pair(values: Option<&[String]>) -> Option<(String, String)> {
    let [.., expression, replacement] = values? else { return None };
    Some((expression.clone(), replacement.clone()))
}

/// Which files in the archive are shown as folders.
fn recursion(open: &Open) -> Option<Recursion> {
    let depth = open.recursion_depth.unwrap_or(if open.recursive { -1 } else { 0 });
    if depth == 0 {
        for (option, is_given) in [
            ("-s (--strip-recursive-tar-extension)", open.strip_recursive_tar_extension),
            ("--transform-recursive-mount-point", open.transform_recursive_mount_point.is_some()),
        ] {
            if is_given {
                log::warn!("{option} has no effect without -r (--recursive)");
            }
        }
        return None;
    }
    Some(Recursion {
        depth: u32::try_from(depth).ok(),
        extensions: open.recursive_extensions.clone(),
        strip_extension: open.strip_recursive_tar_extension,
        transform: pair(open.transform_recursive_mount_point.as_deref()),
    })
}

/// The option that names files of passwords.
const PASSWORD_FILE: &str = "--password-file";

/// All passwords that are given, in order.
fn passwords(open: &Open) -> Result<Vec<Arc<[u8]>>, String> {
    // An empty one is none, as in ratarmount: scripts have it in a variable.
    let typed = open.password.iter().filter(|password| !password.is_empty());
    let mut passwords: Vec<Arc<[u8]>> = typed.map(|password| password.as_bytes().into()).collect();
    for path in open.password_files() {
        passwords.extend(secrets(PASSWORD_FILE, path)?);
    }
    Ok(passwords)
}

/// The lines of a file that `option` names. To be read before signals are listened to, as for [`Keys::read`].
pub(crate) fn secrets(option: &str, path: &Path) -> Result<Vec<Arc<[u8]>>, String> {
    let bytes = secret(option, path)?;
    // Editors of Windows put a mark in front of a text, which is no part of its first line.
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let lines = bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    Ok(lines.filter(|line| !line.is_empty()).map(Arc::from).collect())
}

/// All of such a file.
pub(crate) fn secret(option: &str, path: &Path) -> Result<Vec<u8>, String> {
    /// Bytes of such a file at most.
    const MOST: u64 = 1 << 20;
    let refused = |what: String| format!("{option} {}: {what}", shown(path.as_os_str()));
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") && option == PASSWORD_FILE && io::stdin().is_terminal() {
        prompt::line("Password: ", &|| false).map(|line| {
            bytes = line;
            bytes.len()
        })
    } else if path == Path::new("-") {
        io::stdin().take(MOST + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| refused(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MOST {
        return Err(refused(format!("has more than {} MiB, which is the limit", MOST >> 20)));
    }
    Ok(bytes)
}

/// What these files hold, for frames of zstd.
fn dictionaries(files: &[PathBuf]) -> Result<Dictionaries, String> {
    /// Bytes of a file at most: what `zstd --patch-from` refers to fits into its window, for which this is the limit.
    const MOST: u64 = 128 << 20;
    let mut dictionaries = Dictionaries::default();
    for path in files {
        let refused = |what: String| format!("--zstd-dictionary {}: {what}", shown(path.as_os_str()));
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes));
        read.map_err(|error| refused(format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > MOST {
            return Err(refused(format!("has more than {} MiB, which is the limit", MOST >> 20)));
        }
        dictionaries.add(bytes).map_err(refused)?;
    }
    Ok(dictionaries)
}

/// The path from the root: a mount in the background leaves the folder in which it was started, and may open archives
/// later. An empty one stays so.
fn from_here(path: PathBuf) -> io::Result<PathBuf> {
    if path.as_os_str().is_empty() { Ok(path) } else { std::path::absolute(path) }
}

/// Fails if the folder of a file that `--index-file` names does not exist: it is more likely mistyped than meant.
fn may_be_made(path: &Path) -> Result<(), Failure> {
    let folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    let is_missing = |folder: &&Path| folder.metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let Some(missing) = folders.take_while(is_missing).last() else { return Ok(()) };
    let (path, missing) = (shown(path.as_os_str()), shown(missing.as_os_str()));
    Err(Failure::new(Code::Index, format!("--index-file {path}: {missing} does not exist; make that folder first")))
}

/// A file that `--index-file` names is written over if it is an index (of tarnfs, or a sidecar of ratarmount) or empty;
/// whatever else it is, such as the archive itself, was not meant.
fn may_be_replaced(path: &Path) -> Result<(), String> {
    /// Enough for the definitions of all tables of a sidecar.
    const START: u64 = 64 << 10;
    let mut start = Vec::new();
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(format!("--index-file {}: is not a file", shown(path.as_os_str()))),
        // What cannot be looked at cannot be opened either; one that does not exist is made.
        Err(_) => return Ok(()),
    }
    let read = File::open(path).and_then(|file| file.take(START).read_to_end(&mut start));
    let has = |text: &[u8]| start.windows(text.len()).any(|part| part == text);
    let is_index =
        start.starts_with(b"SQLite format 3\0") && (start.get(68..72) == Some(&b"tarn"[..]) || has(b"offsetheader"));
    if read.is_err() || start.is_empty() || is_index {
        return Ok(());
    }
    // One that is compressed is read, and not written over: see `tarnfs_tree`.
    if !start.starts_with(b"SQLite format 3\0") && ratarmount::may_be_one(path, true) {
        return Ok(());
    }
    Err(format!(
        "--index-file {}: there is a file of this name that is not an index; name another",
        shown(path.as_os_str())
    ))
}

/// How what is mounted is put together.
pub(crate) fn composition(mount: &Mount) -> Composition {
    let prefix = mount.prefix.as_ref().map(|prefix| prefix.as_bytes().to_vec());
    Composition {
        union: !mount.disable_union_mount,
        prefix,
        file_versions: !mount.no_file_versions,
        lazy: mount.lazy,
        images: mount.images.wanted(),
        ..Composition::default()
    }
}

/// From this `-d` on, a mount answers questions for extended attributes, of which one is for its statistics, also where
/// the archive has none.
const STATISTICS_LEVEL: u8 = 2;

/// Words that fstab and mount(8) put among the options for themselves.
const FOR_MOUNT: &[&str] = &[
    "", "auto", "noauto", "defaults", "nofail", "_netdev", "user", "nouser", "users", "nousers", "owner", "group",
    "async", "rw", "suid", "dev",
];

/// True if what is written is to go into the archive when it is unmounted: by `--write`, or by a `rw` that somebody has
/// typed. mount(8) and mount.fuse3 always say one of ro and rw, and with it whether devices and set-user-id count.
pub(crate) fn writes(mount: &Mount) -> bool {
    let has = |wanted: &str| {
        mount.fuse.iter().flat_map(|joined| tarnfs_fuse::split_options(joined)).any(|option| option == wanted)
    };
    let is_typed = !["suid", "nosuid", "dev", "nodev"].into_iter().any(has) && !super::is_called_by_mount();
    let is_free = !mount.control_interface && mount.written.overlay().is_none();
    mount.written.write || is_free && is_typed && has("rw")
}

/// How it is mounted. `rw`, `suid` and `dev` are what fstab's "defaults" stand for; a mount of tarnfs is always
/// `ro,nosuid,nodev`.
pub(crate) fn mount_options(mount: &Mount, archive: &OsStr) -> MountOptions {
    let is_ours = |option: &&String| {
        !FOR_MOUNT.contains(&option.as_str()) && !option.starts_with("x-") && !option.starts_with("comment=")
    };
    let mut options = mount.fuse.clone();
    options.retain(|option| is_ours(&option));
    if !super::is_called_by_mount() {
        for word in ["suid", "dev"].into_iter().filter(|word| mount.fuse.iter().any(|option| option == word)) {
            log::warn!("-o {word} has no effect: mounts of tarnfs are always no{word}");
        }
    }
    let before = options.len();
    options.retain(|option| option != "allow_other");
    MountOptions {
        source: archive.to_owned(),
        allow_other: options.len() != before,
        options,
        statistics: mount.open.debug >= STATISTICS_LEVEL,
        ..MountOptions::default()
    }
}
