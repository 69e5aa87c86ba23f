//! Opening an archive for a command: with a progress bar, Ctrl-C, and one warning for what is damaged.

mod paths;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tarnfs_index::Summary;
use tarnfs_source::{Cancel, Limits};
use tarnfs_tree::build::Progress;
use tarnfs_tree::open::{Contents, IndexPlace, OpenArchive, Options, Problem, Sink};
use tarnfs_tree::{Attributes, Error, Fit, FolderTree, Kind, LockedFiles, Tree, Versions, escape, path};

use crate::args::{Keys, Open, open_options};
use crate::asking::{self, Asking};
use crate::exit::{Code, Failure};
use crate::input;
use crate::progress::Bar;
use crate::signals::Ending;
use crate::terminal::{self, escaped, output_failure};
use crate::typos;

pub(crate) use paths::Paths;

/// Damaged places that are named one by one; of more, only the number is told.
const MOST_NAMED: usize = 10;

/// Opens `archive` for a command without a mount.
pub(crate) fn open(archive: &Path, arguments: &Open) -> Result<(OpenArchive, Code), Failure> {
    open_into(None, archive, arguments)
}

/// [`open`], where `sink` gets what is decoded on the way.
pub(crate) fn open_into(
    sink: Option<Arc<dyn Sink>>,
    archive: &Path,
    arguments: &Open,
) -> Result<(OpenArchive, Code), Failure> {
    open_and(sink, archive, arguments, |_, _, _| Ok(()))
}

/// [`open`], for somebody who looks what is there: encrypted files are told of ([`tell_of_locked`]).
pub(crate) fn open_to_list(archive: &Path, arguments: &Open) -> Result<(OpenArchive, Code), Failure> {
    open_and(None, archive, arguments, |path, opened, options| tell_of_locked(path, opened, options).map(drop))
}

/// [`open`], for somebody who reads files: if some are encrypted, and `reads` says that one of them is wanted, a person
/// is asked for the password.
pub(crate) fn open_to_read(
    archive: &Path,
    arguments: &Open,
    reads: &dyn Fn(&OpenArchive) -> bool,
) -> Result<(OpenArchive, Code), Failure> {
    open_as(archive, arguments, |_, _| Ok(()), reads, |_, _, _| Ok(())).map(|(opened, code, _)| (opened, code))
}

fn open_and(
    sink: Option<Arc<dyn Sink>>,
    archive: &Path,
    arguments: &Open,
    tell: impl FnOnce(&Path, &OpenArchive, &Options) -> Result<(), Failure>,
) -> Result<(OpenArchive, Code), Failure> {
    open_as(
        archive,
        arguments,
        |options, _| {
            options.sink = sink;
            Ok(())
        },
        &|_| false,
        tell,
    )
    .map(|(opened, code, _)| (opened, code))
}

/// An archive that is opened to be extracted.
pub(crate) struct ToExtract {
    pub(crate) opened: OpenArchive,
    pub(crate) code: Code,
    pub(crate) cancel: Cancel,
    pub(crate) limits: Limits,
    pub(crate) threads: usize,
}

/// Opens `archive` to extract it; who `takes_all` of it fails here if nothing can be read, and who `tells_of_names`
/// says which of them are others than in the archive. `contents` makes what gets the contents of files that are decoded
/// on the way, and is given what a signal ends.
pub(crate) fn open_to_extract(
    archive: &Path,
    arguments: &Open,
    takes_all: bool,
    tells_of_names: bool,
    contents: impl FnOnce(&mut Options, &Ending) -> Result<Option<Arc<dyn Contents>>, Failure>,
) -> Result<ToExtract, Failure> {
    let asks_for_index =
        arguments.recreate_index || arguments.index_file().is_some() || arguments.index_folders.is_some();
    let prepare = |options: &mut Options, ending: &Ending| {
        // Whoever has extracted an archive hardly comes back for its index. That of ratarmount says too little.
        options.index.is_written &= asks_for_index;
        options.index.use_sidecars = false;
        options.contents = contents(options, ending)?;
        Ok(())
    };
    raise_descriptors();
    let tell = |archive: &Path, opened: &OpenArchive, options: &Options| {
        // There would be one line for each, and nothing but empty files and folders.
        let locked = if takes_all { unlocked(archive, opened, options)? } else { None };
        if let Some(locked) = locked
            && locked.passwords == Fit::NotGiven
            && locked.readable == 0
        {
            let are = are(locked.encrypted, locked.files);
            let what = format!("{}: {are} encrypted: {GIVE_A_PASSWORD}", crate::args::shown(archive.as_os_str()));
            return Err(Failure::new(Code::CannotOpen, what));
        }
        if tells_of_names {
            let names = other_names(opened, &options.cancel).map_err(|error| failure(archive, b"", &error))?;
            let archive = crate::args::shown(archive.as_os_str());
            for what in &names {
                log::warn!("{archive}: {what}");
            }
        }
        Ok(())
    };
    let (opened, code, options) = open_as(archive, arguments, prepare, &|_| true, tell)?;
    let Options { cancel, limits, decoding, .. } = options;
    Ok(ToExtract { opened, code, cancel, limits, threads: decoding.threads.min(most_threads()) })
}

/// As many open files as may be, and how many that is: many programs are started with a low limit that they could
/// raise.
pub(crate) fn raise_descriptors() -> usize {
    let limits = getrlimit(Resource::Nofile);
    // Where it cannot be raised, the low one is enough for one archive.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    let most = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok());
    most.unwrap_or(usize::MAX)
}

/// Threads of which each may have folders and files open.
fn most_threads() -> usize {
    /// What a thread has open at most.
    const EACH: u64 = 16;
    /// What the program has open itself.
    const OWN: u64 = 32;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit.saturating_sub(OWN) / EACH).unwrap_or(usize::MAX).max(1)
}

/// Opens `archive` for somebody who reads some of it, and gives what is encrypted in it and what Ctrl-C sets.
#[allow(clippy::type_complexity, reason = "it is taken apart at once")]
pub(crate) fn open_to_sample(
    archive: &Path,
    arguments: &Open,
) -> Result<(OpenArchive, Code, Option<LockedFiles>, Cancel), Failure> {
    let mut locked = None;
    let tell = |path: &Path, opened: &OpenArchive, options: &Options| {
        locked = tell_of_locked(path, opened, options)?;
        Ok(())
    };
    let (opened, code, options) = open_as(archive, arguments, |_, _| Ok(()), &|_| true, tell)?;
    Ok((opened, code, locked, options.cancel))
}

/// What is said where files that are encrypted in an archive are not so in another one that is made of it.
pub(crate) fn not_encrypted_any_more(locked: &LockedFiles) -> String {
    let files = match locked.encrypted {
        1 => "one file of the archive is".to_owned(),
        more => format!("{more} files of the archive are"),
    };
    format!(
        "encryption cannot be kept there: {files} encrypted, and all who may read the new one can read what is in it"
    )
}

/// Opens `archive` with options that `prepare` has changed. Whoever `reads` what is encrypted is asked for a password
/// ([`asking`]).
fn open_as(
    archive: &Path,
    arguments: &Open,
    prepare: impl FnOnce(&mut Options, &Ending) -> Result<(), Failure>,
    reads: &dyn Fn(&OpenArchive) -> bool,
    tell: impl FnOnce(&Path, &OpenArchive, &Options) -> Result<(), Failure>,
) -> Result<(OpenArchive, Code, Options), Failure> {
    if archive == Path::new("-") && arguments.password_files().any(|file| file == Path::new("-")) {
        let what = "the archive is already there; name a file with the passwords";
        return Err(Failure::new(Code::Usage, format!("--password-file -: {what}")));
    }
    // Before signals are listened to: they end who waits for its bytes.
    let input = if archive == Path::new("-") { Some(input::standard_input()?) } else { None };
    let keys = Keys::read(arguments)?;
    let ending = Ending::default();
    ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
    let mut options = options(arguments, &keys, &ending.cancel())?;
    options.index.keeps_rows = true;
    prepare(&mut options, &ending)?;
    let (name, opened, code) = match input {
        None => {
            let opened = open_or_ask(archive, arguments, &mut options, reads)?;
            let code = tell_of_damage(archive, &opened, &options);
            (archive, opened, code)
        }
        Some(input) => {
            if let Some(file) = arguments.index_file().filter(|file| *file != ":memory:") {
                let what = "not used: an archive on standard input has no index on disk";
                log::warn!("--index-file {}: {what}", crate::args::shown(file));
            }
            // Nobody would find an index of it again.
            options.index.place = IndexPlace::Memory;
            options.index.is_written = false;
            options.decoding.decoded_cache = None;
            let name = input::name();
            let open = || tarnfs_tree::open::open_source(input.source, input.facts, name, &options);
            let opened = opened_with_bar(name, &options, open).map_err(|problem| cannot_open(name, &problem))?;
            let code = tell_of_damage(name, &opened, &options);
            (name, opened, code)
        }
    };
    tell_of_the_rest(name, &opened);
    tell(name, &opened, &options)?;
    // What the first pass was told is over.
    (options.sink, options.contents) = (None, None);
    Ok((opened, code, options))
}

/// Opens `archive`. Where a password is missing, a person is asked for it: for its directory, and for files that
/// somebody `reads`.
fn open_or_ask(
    archive: &Path,
    arguments: &Open,
    options: &mut Options,
    reads: &dyn Fn(&OpenArchive) -> bool,
) -> Result<OpenArchive, Failure> {
    let mut asking = Asking::of(arguments);
    loop {
        let opened = opened_with_bar(archive, options, || tarnfs_tree::open::open(archive, options));
        let Some(asking) = &mut asking else { return opened.map_err(|problem| cannot_open(archive, &problem)) };
        let is_locked = match &opened {
            Ok(opened) => {
                asking::is_locked(opened, options).map_err(|error| failure(archive, b"", &error))? && reads(opened)
            }
            Err(problem) => problem.is_for_want_of_a_password(),
        };
        if !is_locked || !asking.ask(archive, options)? {
            return opened.map_err(|problem| cannot_open(archive, &problem));
        }
        // A directory is no stream of which anything was passed on.
        (options.sink, options.contents) = (None, None);
    }
}

/// Fails if `archive` stands for standard input, in which nothing could be found again.
pub(crate) fn not_standard_input(archive: &Path) -> Result<(), Failure> {
    if archive != Path::new("-") {
        return Ok(());
    }
    let what = "-: an archive on standard input can only be read by `tarnfs ls -`, `tarnfs find -`, `tarnfs cat -`, \
                `tarnfs stat -`, `tarnfs compare -` and `tarnfs extract -`; a file of that name is ./-";
    Err(Failure::new(Code::Usage, what))
}

/// What was typed, as options; see [`open_options`].
pub(crate) fn options(arguments: &Open, keys: &Keys, cancel: &Cancel) -> Result<Options, Failure> {
    open_options(arguments, keys, cancel)
}

/// Does `work` with each archive, also where it fails with others before; the largest code is the
/// result.
pub(crate) fn each(
    archives: &[PathBuf],
    arguments: &Open,
    mut work: impl FnMut(&Path, &Options) -> Result<Code, Failure>,
) -> Result<Code, Failure> {
    if let ([_, _, ..], Some(file)) = (archives, arguments.index_file().filter(|file| *file != ":memory:")) {
        let what = "each archive has an index of its own; name one archive, or use --index-folders";
        return Err(Failure::new(Code::Usage, format!("--index-file {}: {what}", crate::args::shown(file))));
    }
    archives.iter().try_for_each(|archive| not_standard_input(archive))?;
    let keys = Keys::read(arguments)?;
    let mut worst = Code::Success;
    // One for all: it stays until the program ends, with a thread and descriptors of its own.
    let ending = Ending::default();
    ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
    for archive in archives {
        match work(archive, &options(arguments, &keys, &ending.cancel())?) {
            Ok(Code::Success) => {}
            Ok(code) => worst = worst.max(code),
            Err(failure) if failure.code == Code::Interrupted || failure.is_of_output => return Err(failure),
            // The others may be better.
            Err(failure) => {
                worst = worst.max(failure.code);
                terminal::report(&failure, arguments.colour());
            }
        }
    }
    Ok(worst)
}

/// Opens `archive`; the code is [`Code::Damaged`] if something in it is broken.
pub(crate) fn open_with(archive: &Path, options: &Options) -> Result<(OpenArchive, Code), Failure> {
    let opened = open_quietly(archive, options)?;
    let code = tell_of_damage(archive, &opened, options);
    Ok((opened, code))
}

/// Says what is broken in an archive; the code is [`Code::Damaged`] if something is.
pub(crate) fn tell_of_damage(archive: &Path, opened: &OpenArchive, options: &Options) -> Code {
    tell_of_damage_and(archive, opened, options, "--force serves it")
}

/// The same; `served` says how what fails its checksum can be had all the same.
pub(crate) fn tell_of_damage_and(archive: &Path, opened: &OpenArchive, options: &Options, served: &str) -> Code {
    let name = crate::args::shown(archive.as_os_str());
    let mut damage: Vec<_> = opened.index.summary().notes.iter().collect();
    // What was found again where reading went on is one trouble.
    damage.dedup();
    for note in damage.iter().take(MOST_NAMED) {
        log::warn!("{name}: {}", told(archive, opened.index.summary(), note));
    }
    if damage.len() > MOST_NAMED {
        let more = damage.len() - MOST_NAMED;
        log::warn!("{name}: damaged in {more} more {}", if more == 1 { "place" } else { "places" });
    }
    if opened.index.has_unverified() {
        if options.decoding.force {
            log::warn!("{name}: bytes that fail their checksum are served (--force); only what is lost is an error");
        } else {
            log::warn!("{name}: some of it can be decoded but fails its checksum; {served}");
        }
    }
    if damage.is_empty() { Code::Success } else { Code::Damaged }
}

/// What helps where files are encrypted.
pub(crate) const GIVE_A_PASSWORD: &str = "give --password or --password-file";

/// Says that files are encrypted, where no password is given; fails if those that are given open none of an archive
/// that encrypts its files itself, and all of its files were tried. Returns what is known of them.
pub(crate) fn tell_of_locked(
    archive: &Path,
    opened: &OpenArchive,
    options: &Options,
) -> Result<Option<LockedFiles>, Failure> {
    let Some(locked) = unlocked(archive, opened, options)? else { return Ok(None) };
    let (name, are) = (crate::args::shown(archive.as_os_str()), are(locked.encrypted, locked.files));
    match locked.passwords {
        Fit::NotGiven => {
            log::warn!("{}", terminal::with_how_to_ask(format!("{name}: {are} encrypted: {GIVE_A_PASSWORD}")));
        }
        Fit::None if !opened.encrypts_files() => {
            let any = match locked.tried {
                tried if tried < locked.encrypted => format!("any of the {tried} that were tried"),
                _ => "any".to_owned(),
            };
            log::warn!("{name}: {are} encrypted, and no password that is given opens {any}");
        }
        Fit::None | Fit::SomeOrUnknown => {}
    }
    Ok(Some(locked))
}

/// What is known of encrypted files; fails as [`tell_of_locked`] does. If only some were tried, and no password opens
/// any of these, it warns: another file may have another password.
pub(crate) fn unlocked(
    archive: &Path,
    opened: &OpenArchive,
    options: &Options,
) -> Result<Option<LockedFiles>, Failure> {
    let locked = opened.tree.locked(&options.cancel).map_err(|error| failure(archive, b"", &error))?;
    let is_its_own = opened.encrypts_files();
    if let Some(LockedFiles { encrypted, tried, passwords: Fit::None, .. }) = locked.filter(|_| is_its_own) {
        let name = crate::args::shown(archive.as_os_str());
        if tried < encrypted {
            log::warn!(
                "{name}: wrong password: none of the {tried} files that were tried can be opened, \
                 of {encrypted} encrypted ones"
            );
            return Ok(locked);
        }
        let what = match encrypted {
            1 => "its encrypted file cannot be opened".to_owned(),
            _ => format!("none of its {encrypted} encrypted files can be opened"),
        };
        return Err(Failure::new(Code::CannotOpen, format!("{name}: wrong password: {what}")));
    }
    Ok(locked)
}

/// "2 of 3 files are", "its only file is".
pub(crate) fn are(some: u64, files: u64) -> String {
    match (some, files) {
        (1, 1) => "its only file is".to_owned(),
        (1, _) => format!("1 of {files} files is"),
        _ => format!("{some} of {files} files are"),
    }
}

/// The noun for so many.
pub(crate) fn noun(number: u64, one: &str) -> String {
    if number == 1 { one.to_owned() } else { format!("{one}s") }
}

/// Bytes behind the end of an archive in which somebody who does not check it looks for more: what tar pads with zeros
/// is far less.
const PADDING: u64 = 4 << 20;

/// What is said of a tar of nothing that is longer than `tar` makes one.
pub(crate) fn only_zeros(opened: &OpenArchive) -> Option<String> {
    /// A record of GNU tar, which is all of an archive of nothing.
    const RECORD: u64 = 10_240;
    let summary = opened.index.summary();
    let is_empty = summary.files == 0 && summary.end == 0 && summary.notes.is_empty() && summary.label.is_none();
    let length = opened.stream.len();
    (summary.format == "tar" && is_empty && !opened.is_sidecar && length > RECORD)
        .then(|| format!("there is nothing in it but {length} zero bytes: its writing may have failed"))
}

/// What is said of names that are not those in the archive, and of what is hidden by folders that only what lies in
/// them makes: GNU tar extracts neither.
pub(crate) fn other_names(opened: &OpenArchive, cancel: &Cancel) -> Result<Vec<String>, Error> {
    /// Entries that are looked at: an archive may have replaced millions.
    const MOST: usize = 10_000;
    let summary = opened.index.summary();
    let mut lines = Vec::new();
    let first = escape(&summary.renamed.first);
    match summary.renamed.count {
        0 => {}
        1 => lines.push(format!("one name is not as it is stored, for `..` in it or its length: {first}")),
        more => {
            lines.push(format!(
                "{more} names are not as they are stored, for `..` in them or their length: {first}, ..."
            ));
        }
    }
    let mut replaced = Vec::new();
    opened.index.replaced(&mut |folder, name, row| {
        // With -r, a file may be in its place.
        let is_other = match row.kind {
            Kind::Folder => false,
            Kind::File => summary.shape.recursion.is_none(),
            _ => true,
        };
        if is_other && replaced.len() < MOST {
            replaced.push((folder, name.to_vec()));
        }
    })?;
    let mut hidden = Vec::new();
    for (folder, name) in replaced {
        cancel.check()?;
        if let Some(row) = opened.index.lookup(folder, &name)?
            && row.kind == Kind::Folder
            && opened.tree.stored(row.node)?.header.is_none()
        {
            hidden.push(row.node);
        }
    }
    let path = hidden.first().and_then(|&first| opened.tree.path_of(first)).unwrap_or_default();
    match hidden.len() {
        0 => {}
        1 => lines.push(format!("{} is a folder, for what is in it, and its own entry is hidden", escape(&path))),
        more => {
            let path = escape(&path);
            lines.push(format!(
                "{more} names are folders, for what is in them, and their own entries are hidden: {path}, ..."
            ));
        }
    }
    Ok(lines)
}

/// Says at the first reading what lies behind the end of an archive. What is compressed would have to be decoded once
/// more for that.
pub(crate) fn tell_of_the_rest(archive: &Path, opened: &OpenArchive) {
    if opened.is_new
        && let Some(what) = only_zeros(opened)
    {
        log::warn!("{}: {what}", crate::args::shown(archive.as_os_str()));
    } else if opened.is_new
        && opened.index.summary().layers.is_empty()
        && let Ok(Some(what)) = behind_the_end(opened, PADDING)
    {
        log::warn!("{}: {what}", crate::args::shown(archive.as_os_str()));
    }
}

/// A place where an archive is damaged, and what is wrong there.
pub(crate) fn told(archive: &Path, summary: &Summary, (offset, what): &(u64, String)) -> String {
    let of = if summary.layers.is_empty() { "file" } else { "decoded data" };
    format!("damaged at byte {offset} of the {of}: {}", escaped(named_once(archive, what).as_bytes()))
}

/// What a sidecar of ratarmount costs, in one line. `instead` says how there will be an index that has all.
pub(crate) fn tell_of_sidecar(archive: &Path, opened: &OpenArchive, instead: &str) {
    if let Some(path) = opened.index_path.as_ref().filter(|_| opened.is_sidecar) {
        log::warn!(
            "{}: ratarmount's index {} is used: hard links count as files, times are rounded, access lists are missing, and modes of folders may differ; {instead}",
            crate::args::shown(archive.as_os_str()),
            crate::args::shown(path.as_os_str())
        );
    }
}

/// What [`tell_of_sidecar`] says where nobody makes such an index by itself.
pub(crate) const INDEX_INSTEAD: &str = "`tarnfs index` makes one that keeps all of it";

/// `message` about `archive`, in a line that begins with its name: without that name in it again.
pub(crate) fn named_once(archive: &Path, message: &str) -> String {
    let path = archive.display();
    let others = [
        (format!("the decoded data of {path}"), "the decoded data"),
        (format!("{path}: "), ""),
        (format!("{path} is "), "it is "),
        (format!("{path})"), "the archive)"),
    ];
    let mut text = message.to_owned();
    for (written, instead) in others {
        let mut rest = std::mem::take(&mut text);
        while let Some(at) = rest.find(&written) {
            // The same letters in the middle of a sentence are no name.
            let before = &rest[..at];
            let is_word = before.is_empty() || before.ends_with(": ") || before.ends_with(" of ");
            text += &rest[..at];
            text += if is_word { instead } else { &written };
            rest.drain(..at + written.len());
        }
        text += &rest;
    }
    text
}

/// Opens `folder`, to show what is in it.
pub(crate) fn open_folder(folder: &Path) -> Result<Arc<FolderTree>, Failure> {
    FolderTree::open(folder).map(Arc::new).map_err(|error| cannot_open_folder(folder, &error))
}

/// That `folder` could not be opened.
pub(crate) fn cannot_open_folder(folder: &Path, error: &Error) -> Failure {
    Failure::new(Code::CannotOpen, format!("{}: {error}", crate::args::shown(folder.as_os_str())))
}

/// [`open_with`], where nobody is told of damage.
pub(crate) fn open_quietly(archive: &Path, options: &Options) -> Result<OpenArchive, Failure> {
    opened_with_bar(archive, options, || tarnfs_tree::open::open(archive, options))
        .map_err(|problem| cannot_open(archive, &problem))
}

/// A bar of how far the first pass over `archive` has come.
pub(crate) fn bar(archive: &Path, progress: &Arc<Progress>) -> Bar {
    bar_of(archive, progress, 0)
}

/// A bar of how far the work on `archive` has come, which has this many `entries`.
pub(crate) fn bar_of(archive: &Path, progress: &Arc<Progress>, entries: u64) -> Bar {
    Bar::show(&crate::args::shown(archive.file_name().unwrap_or_default()), progress, entries)
}

/// What `open` has opened, with a bar while it does so.
fn opened_with_bar(
    archive: &Path,
    options: &Options,
    open: impl FnOnce() -> Result<OpenArchive, Problem>,
) -> Result<OpenArchive, Problem> {
    let bar = bar(archive, &options.progress);
    let opened = open();
    drop(bar);
    opened
}

/// `failure` to open `archive`, with `instead` behind it where that is a folder.
pub(crate) fn of_folder(archive: &Path, mut failure: Failure, instead: &str) -> Failure {
    if failure.code == Code::CannotOpen && archive.is_dir() {
        failure.message.push_str("; ");
        failure.message.push_str(instead);
    }
    failure
}

/// That `archive` could not be opened.
pub(crate) fn cannot_open(archive: &Path, problem: &Problem) -> Failure {
    let name = crate::args::shown(archive.as_os_str());
    let inner = match problem {
        Problem::OfParts { problem, .. } => problem,
        problem => problem,
    };
    let code = match inner {
        Problem::NotAnArchive
        | Problem::Misnamed { .. }
        | Problem::Foreign(_)
        | Problem::Encrypted(_)
        | Problem::Empty
        | Problem::OnlyZeros { .. } => Code::NotAnArchive,
        Problem::NoIndex(_) | Problem::Unwritten(_) | Problem::Index(_) => Code::Index,
        Problem::Option(_) => Code::Usage,
        Problem::Cancelled => return Failure::new(Code::Interrupted, format!("{name}: interrupted")),
        _ => Code::CannotOpen,
    };
    let mut what = named_once(archive, &problem.to_string());
    if let Some((file, below)) = parted(archive) {
        let _ = write!(what, ": {file} is a file; name what is in it behind it: {file} {below}");
    }
    Failure::new(code, format!("{name}: {what}"))
}

/// The file that `path` goes through as if it were a folder, and the rest, as they can be shown: somebody has typed
/// what lies in an archive as if that were mounted.
pub(crate) fn parted(path: &Path) -> Option<(String, String)> {
    let file = path.ancestors().skip(1).find(|above| above.is_file())?;
    let below = path.strip_prefix(file).ok()?;
    Some((crate::args::shown(file.as_os_str()), crate::args::shown(below.as_os_str())))
}

/// Bytes of a block of a tar.
const TAR_BLOCK: u64 = 512;

/// What lies behind the end of a tar, where that is not only zeros: another one, if archives were joined as files are.
/// Of what is there, `most` bytes are looked at.
pub(crate) fn behind_the_end(opened: &OpenArchive, most: u64) -> io::Result<Option<String>> {
    let summary = opened.index.summary();
    if summary.format != "tar" || opened.is_sidecar {
        return Ok(None);
    }
    let (stream, mut at) = (&opened.stream, summary.end);
    let end = stream.len().min(at.saturating_add(most));
    let mut buffer = vec![0; 64 << 10];
    while at < end {
        // Holes are zeros.
        let Some(data) = stream.next_data(at) else { return Ok(None) };
        at = at.max(data);
        let read = match stream.read_at(&mut buffer, at) {
            Ok(0) => return Ok(None),
            Ok(read) => read,
            // That was told.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(first) = buffer[..read].iter().position(|&byte| byte != 0) else {
            at += read as u64;
            continue;
        };
        at += first as u64;
        // An archive ends with a block of zeros.
        let has_ended = at.saturating_sub(summary.end) >= TAR_BLOCK;
        let reads_on = summary.shape.ignore_zeros;
        if (!has_ended || reads_on) && !summary.notes.is_empty() {
            // It was cut there, or is damaged, and that was told.
            return Ok(None);
        }
        let mut head = vec![0; 4096];
        let read = stream.read_at(&mut head, at)?;
        let is_tar = tarnfs_format::detect(&tarnfs_format::Probe::of_head(&head[..read]))
            .is_some_and(|format| format.name() == "tar");
        let place = format!("behind the end of the archive, at byte {at},");
        return Ok(Some(match stream.len() - at {
            more if is_tar && has_ended && !reads_on => {
                format!("{place} are {more} more bytes; they look like another tar: -i reads them, too")
            }
            more if is_tar => format!("{place} are {more} more bytes, which were not read"),
            1 => format!("{place} is 1 more byte; it is no tar"),
            more => format!("{place} are {more} more bytes; they are no tar"),
        }));
    }
    Ok(None)
}

/// An archive as a mount shows it, with older versions of files ([`Versions`]).
pub(crate) fn tree(opened: &OpenArchive) -> Versions {
    Versions::new(Arc::clone(&opened.tree) as _)
}

/// The file or folder at `path` in the tree of an archive.
pub(crate) fn find(tree: &dyn Tree, archive: &Path, path: &[u8], follow: bool) -> Result<Attributes, Failure> {
    path::find(tree, path, follow).map_err(|error| {
        // The name is there; what is not there is something that nobody has typed.
        let target = matches!(error, Error::NotFound)
            .then(|| path::find(tree, path, false).and_then(|link| tree.read_link(link.node)).ok())
            .flatten();
        let Some(target) = target else {
            let mut failure = failure(archive, path, &error);
            let mut above =
                path.rsplitn(2, |&byte| byte == b'/').nth(1).unwrap_or_default().split(|&byte| byte == b'/');
            if matches!(error, Error::NotAFolder) && above.any(typos::is_archive) {
                failure.message.push_str(": with -r, archives in it show as folders");
            }
            if matches!(error, Error::NotFound) && is_another_archive(path) {
                failure.message.push_str(", but there is an archive of that name here: one is read at a time");
            }
            return failure;
        };
        let (archive, path) = (crate::args::shown(archive.as_os_str()), escaped(path));
        let message =
            format!("{archive}: {path}: is a symbolic link to {}, which is not in the archive", escaped(&target));
        Failure::new(Code::Failure, message)
    })
}

/// True if `path`, which is not in the archive, is that of an archive on this machine, as behind `*.tar`.
fn is_another_archive(path: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    path.file_name().is_some_and(|name| typos::is_archive(name.as_bytes())) && path.is_file()
}

/// What may go wrong while something of an archive is written to standard output.
pub(crate) enum Trouble {
    Tree(Error),
    Output(io::Error),
}

/// True if the person has ended it: that is no fault of what was read.
pub(crate) fn is_interrupted(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::Interrupted)
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Tree(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Trouble {
    /// The failure that it is to the command.
    pub(crate) fn failure(self, archive: &Path, path: &[u8]) -> Failure {
        match self {
            Self::Tree(error) => failure(archive, path, &error),
            Self::Output(error) => output_failure(&error),
        }
    }
}

/// That something went wrong with `path` in `archive`, or with all of it.
pub(crate) fn failure(archive: &Path, path: &[u8], error: &Error) -> Failure {
    if is_interrupted(error) {
        return Failure::new(Code::Interrupted, format!("{}: interrupted", crate::args::shown(archive.as_os_str())));
    }
    let code = match error {
        Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => Code::Damaged,
        Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Code::Damaged,
        Error::Io(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => Code::Failure,
        Error::Io(_) => Code::CannotOpen,
        Error::Index(_) => Code::Index,
        _ => Code::Failure,
    };
    let error = named_once(archive, &error.to_string());
    let archive = crate::args::shown(archive.as_os_str());
    let place = if path.is_empty() { archive } else { format!("{archive}: {}", escaped(path)) };
    Failure::new(code, format!("{place}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever presses Ctrl-C is told neither that the archive is damaged nor that it cannot be read, and a list of
    /// archives ends there.
    #[test]
    fn what_was_interrupted_is_no_fault_of_the_archive() {
        let cancel = Cancel::default();
        cancel.cancel();
        let error = cancel.check().map_err(Error::from).unwrap_err();
        let failure = failure(Path::new("a.zip"), b"file", &error);
        assert_eq!((failure.code, failure.message.as_str()), (Code::Interrupted, "a.zip: interrupted"));
    }
}
