use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tarnfs_format::Time;
use tarnfs_source::{Budget, Cancel};
use tarnfs_tree::open::{Options, Problem};
use tarnfs_write::container::Container;
use tarnfs_write::files::{self, Choice, Exclude, ModeChange, Owner, Sort, Transform};
use tarnfs_write::{Finished, Output, Target, Writing};

use crate::args::{Compress, Create, SortFiles, shown};
use crate::exit::{Code, Failure};
use crate::inside;
use crate::logging;
use crate::signals::Ending;
use crate::terminal::{self, Colour, escaped, output_failure};

/// 1980-01-01: the first day that a zip can tell, and one that `tar` does not wonder about.
const FIRST_DAY: i64 = 315_532_800;

/// Memory where nobody knows how much there is.
const MEMORY: u64 = 1 << 30;

/// Puts files and folders into an archive.
pub(crate) fn run(arguments: &Create) -> Result<Code, Failure> {
    logging::start(arguments.debug, None, Colour::default())?;
    let archive = &arguments.archive;
    let target = target(archive, &arguments.how).map_err(|mut failure| {
        let is_archive = |path: &OsString| Target::of_name(path.as_bytes()).is_some();
        if archive.exists() && arguments.paths.last().is_some_and(is_archive) {
            failure.message.push_str("; the archive comes first, and then what goes in");
        }
        failure
    })?;
    let mut choice = choice(arguments)?;
    let keeps = target.keeps();
    let flags = [
        (&mut choice.xattrs, "--xattrs", keeps.xattrs),
        (&mut choice.acls, "--acls", keeps.xattrs),
        (&mut choice.sparse, "--sparse", keeps.holes),
    ];
    for (flag, name, is_kept) in flags {
        if !is_kept && std::mem::take(flag) {
            log::warn!("{name} has no effect: a {} cannot keep that", target.name());
        }
    }
    if choice.paths.is_empty() {
        return Err(usage("nothing to put in: give files and folders, or -T"));
    }
    let ending = Ending::default();
    ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
    choice.cancel = ending.cancel();
    let output = output(archive, arguments.how.overwrite, false)?;
    ending.removes(output.remover());
    choice.leaves_out = output.identities();
    // What lies in the folder that is put in is of the archive that is being replaced.
    let index = [archive.as_os_str().as_bytes(), b".tarnfs.sqlite"].concat();
    choice.leaves_out.extend(fs::symlink_metadata(OsString::from_vec(index)).map(|found| (found.dev(), found.ino())));
    let mut writer = target
        .writer(writing(target, output, &arguments.how, arguments.threads, &choice.cancel))
        .map_err(|error| of_output(archive, &error))?;
    let mut told = |path: &[u8], what: &str| log::warn!("{}: {what}", escaped(path));
    choice.progress.total.store(size_of_files(&choice).unwrap_or(0), Ordering::Relaxed);
    let bar = inside::bar(archive, &choice.progress);
    let count = files::add(&choice, &mut *writer, &mut told).map_err(|error| of_output(archive, &error))?;
    let finished = writer.finish().map_err(|error| of_output(archive, &error))?;
    drop(bar);
    choice.cancel.check().map_err(|error| of_output(archive, &error))?;
    if count.entries == 0 {
        let what = match count.told {
            0 => "nothing of what was named goes in; no archive was written",
            _ => "nothing of what was named could be read; no archive was written",
        };
        return Err(Failure::new(Code::Failure, format!("{}: {what}", shown(archive.as_os_str()))));
    }
    let length = finished.length;
    commit(archive, finished, &choice.cancel)?;
    terminal::tell(&format!(
        "{}: {} entries, {} bytes of files, {length} bytes",
        shown(archive.as_os_str()),
        count.entries,
        count.bytes
    ));
    if count.told > 0 {
        let what = match count.told {
            1 => "one file is not in it, or not as it was, as was said above".to_owned(),
            told => format!("{told} files are not in it, or not as they were, as was said above"),
        };
        return Err(Failure::new(Code::Failure, format!("{}: {what}", shown(archive.as_os_str()))));
    }
    Ok(Code::Success)
}

/// How much is to be read, if that is known without looking into folders. Holes that are kept are not read.
fn size_of_files(choice: &Choice) -> Option<u64> {
    if choice.sparse {
        return None;
    }
    let folder = choice.folder.as_deref().unwrap_or(Path::new(""));
    choice.paths.iter().try_fold(0_u64, |sum, path| {
        let found = fs::symlink_metadata(folder.join(OsStr::from_bytes(path))).ok()?;
        found.is_file().then(|| sum.saturating_add(found.len()))
    })
}

/// Gives a finished archive its name, and then its index.
pub(crate) fn commit(archive: &Path, finished: Finished, cancel: &Cancel) -> Result<(), Failure> {
    let written = finished.output.commit().map_err(|error| of_output(archive, &error))?;
    let kept = match finished.index {
        None => return Ok(()),
        Some(Ok(index)) => index.keep(archive, &written, &index_options(cancel)),
        Some(Err(problem)) => Err(problem),
    };
    match kept {
        Ok(Some(path)) => log::info!("{}: index written to {}", archive.display(), path.display()),
        // The archive is whole, and an index can be made at any time.
        Ok(None) | Err(Problem::Cancelled) => {}
        Err(problem) => log::warn!("{}: no index is written: {problem}", shown(archive.as_os_str())),
    }
    Ok(())
}

/// Those of an index that is made while its archive is written.
fn index_options(cancel: &Cancel) -> Options {
    let mut options = Options { cancel: cancel.clone(), ..Options::default() };
    options.decoding.decoded_cache = None;
    options
}

fn usage(what: impl Into<String>) -> Failure {
    Failure::new(Code::Usage, what)
}

/// What went wrong while `archive` was written.
pub(crate) fn of_output(archive: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::Interrupted {
        return Failure::new(Code::Interrupted, "interrupted; no archive was written");
    }
    if archive == Path::new("-") {
        return output_failure(error);
    }
    let name = shown(archive.as_os_str());
    let what = match error.kind() {
        io::ErrorKind::AlreadyExists => "it exists already: --overwrite replaces it".to_owned(),
        // What is no error of the system says itself what was done.
        _ if error.get_ref().is_some() => error.to_string(),
        _ => format!("cannot be written: {error}"),
    };
    Failure::new(Code::Failure, format!("{name}: {what}"))
}

/// Where an archive goes to.
pub(crate) fn output(archive: &Path, overwrite: bool, is_private: bool) -> Result<Output, Failure> {
    if archive != Path::new("-") {
        return Output::create(archive, overwrite, is_private).map_err(|error| of_output(archive, &error));
    }
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(Failure::new(Code::Failure, "standard output is a terminal: send the archive to a file or a pipe"));
    }
    let file = stdout.as_fd().try_clone_to_owned().map_err(|error| output_failure(&error))?;
    Ok(Output::stream(File::from(file)))
}

/// What kind of archive is written: what the options say, or else the name.
pub(crate) fn target(archive: &Path, how: &Compress) -> Result<Target, Failure> {
    let name = archive.as_os_str().as_bytes();
    let by_name = Target::of_name(name);
    let target = match &how.compress {
        Some(named) => {
            let Some(target) = Target::named(named) else {
                let all: Vec<_> = Target::names().collect();
                return Err(usage(format!("--compress {named}: give {}", all.join(", "))));
            };
            let kind = |target: Target| target.container().map(Container::name);
            if let (Some(said), Some(meant)) = (by_name.and_then(kind), kind(target))
                && said != meant
            {
                return Err(usage(format!("--compress {named}: the name says {said}, and this would be a {meant}")));
            }
            if let Some(said) = by_name.map(Target::compression).filter(|said| !said.is_plain())
                && said.name() != target.compression().name()
            {
                let name = shown(archive.as_os_str());
                log::warn!("{name}: the name says {}, and this is {named}", said.name());
            }
            target
        }
        None if name == b"-" => Target::plain(),
        None => by_name.ok_or_else(|| {
            let lower = name.to_ascii_lowercase();
            let stem = tarnfs_tree::build::without_suffix(&lower).unwrap_or_else(|| lower.clone());
            let what = if tarnfs_format::by_suffix(&stem).is_some() {
                "archives of this kind can be read, but not written; there are"
            } else {
                "its name does not say what it is to be:"
            };
            let all = ".tar, .tar.gz, .tar.bz2, .tar.xz, .tar.zst, .tar.lz4 and .zip";
            usage(format!("{}: {what} {all}; or give --compress", shown(archive.as_os_str())))
        })?,
    };
    checked(target, how)
}

/// The same, if it has the level that was typed.
pub(crate) fn checked(target: Target, how: &Compress) -> Result<Target, Failure> {
    let (levels, name) = (target.levels(), target.name());
    if let Some(level) = how.level.filter(|level| !levels.contains(level)) {
        let what = if levels.start() == levels.end() {
            format!("{name} has no levels")
        } else {
            format!("{name} has levels {} to {}", levels.start(), levels.end())
        };
        return Err(usage(format!("--level {level}: {what}")));
    }
    Ok(target)
}

/// How it is written to `output`.
pub(crate) fn writing(target: Target, output: Output, how: &Compress, threads: usize, cancel: &Cancel) -> Writing {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = how.memory.or_else(|| Budget::memory_of_this_machine().map(|all| all / 4));
    Writing {
        output,
        compression: target.compression(),
        level: how.level.unwrap_or(target.usual_level()),
        threads: if threads == 0 { cores } else { threads },
        memory: memory.unwrap_or(MEMORY),
        index: (!how.no_index).then(|| index_options(cancel)),
    }
}

/// What was typed of what goes in.
fn choice(arguments: &Create) -> Result<Choice, Failure> {
    let mut paths: Vec<Vec<u8>> = arguments.paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    for file in &arguments.files_from {
        paths.extend(lines(file, if arguments.null { 0 } else { b'\n' }).map_err(|error| of_file("-T", file, &error))?);
    }
    let mut excludes: Vec<_> = arguments.exclude.iter().map(|glob| Exclude::new(glob.as_bytes())).collect();
    for file in &arguments.exclude_from {
        let globs = lines(file, b'\n').map_err(|error| of_file("--exclude-from", file, &error))?;
        let globs = globs.iter().map(|glob| without_white_space(glob)).filter(|glob| !glob.is_empty());
        excludes.extend(globs.map(Exclude::new));
    }
    let mut transforms = Vec::new();
    for expression in &arguments.transform {
        let parsed = Transform::parse(expression);
        transforms.extend(parsed.map_err(|error| usage(format!("--transform {expression}: {error}")))?);
    }
    let mode = arguments.mode.as_deref().map(|text| {
        // There is no other way to ask for it.
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(umask);
        ModeChange::parse(text, umask.as_raw_mode())
            .ok_or_else(|| usage(format!("--mode {text}: give changes as for chmod: u+rw,go-w or 644")))
    });
    let mut mtime = arguments.mtime.as_deref().map(time).transpose()?;
    // What is the same anywhere has no names of this machine.
    let has_names = !arguments.numeric_owner && !arguments.reproducible;
    let user = |id| Some(id).filter(|_| has_names).and_then(files::user_name);
    let of_user = |text: &String| owner("--owner", text, files::user_number, user);
    let group = |id| Some(id).filter(|_| has_names).and_then(files::group_name);
    let of_group = |text: &String| owner("--group", text, files::group_number, group);
    let mut owner = arguments.owner.as_ref().map(of_user).transpose()?;
    let mut group = arguments.group.as_ref().map(of_group).transpose()?;
    if arguments.reproducible {
        if mtime.is_none() {
            mtime = Some(source_date()?);
        }
        let nobody = || Some(Owner { name: Vec::new(), id: 0 });
        owner = owner.or_else(nobody);
        group = group.or_else(nobody);
    }
    Ok(Choice {
        folder: arguments.directory.clone(),
        paths,
        excludes,
        one_file_system: arguments.one_file_system,
        follow: arguments.dereference,
        hard_dereference: arguments.hard_dereference,
        sparse: arguments.sparse,
        xattrs: arguments.xattrs,
        acls: arguments.acls,
        sort: match arguments.sort {
            SortFiles::None if arguments.reproducible => Sort::Name,
            SortFiles::None => Sort::None,
            SortFiles::Name => Sort::Name,
            SortFiles::Inode => Sort::Inode,
        },
        owner,
        group,
        mtime,
        mode: mode.transpose()?,
        plain_modes: arguments.reproducible,
        numeric_owner: arguments.numeric_owner || arguments.reproducible,
        transforms,
        leaves_out: Vec::new(),
        progress: Arc::default(),
        cancel: Cancel::default(),
    })
}

fn of_file(option: &str, file: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::Failure, format!("{option} {}: {error}", shown(file.as_os_str())))
}

/// What stands between the ends in a file, or in standard input. What is empty is left out.
fn lines(file: &Path, end: u8) -> io::Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    if file == Path::new("-") {
        io::stdin().read_to_end(&mut all)?;
    } else {
        all = fs::read(file)?;
    }
    Ok(all.split(|&byte| byte == end).filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect())
}

/// A line without white space at its end, as GNU tar takes globs from a file: also that of lines that end with CR LF.
fn without_white_space(line: &[u8]) -> &[u8] {
    let is_kept = |byte: &u8| !byte.is_ascii_whitespace() && *byte != b'\x0b';
    &line[..line.iter().rposition(is_kept).map_or(0, |last| last + 1)]
}

/// `NAME`, `NUMBER`, `NAME:NUMBER` or `+NUMBER`.
fn owner(
    option: &str,
    text: &str,
    number: impl Fn(&[u8]) -> Option<u32>,
    name_of: impl Fn(u32) -> Option<Vec<u8>>,
) -> Result<Owner, Failure> {
    let (name, id) = text.split_once(':').map_or((text, None), |(name, id)| (name, Some(id)));
    let parsed = |text: &str| text.strip_prefix('+').unwrap_or(text).parse::<u64>().ok();
    let id = match id {
        Some(id) => parsed(id),
        None => match parsed(name) {
            Some(id) => {
                let name = u32::try_from(id).ok().and_then(name_of).unwrap_or_default();
                return Ok(Owner { name, id });
            }
            None => number(name.as_bytes()).map(u64::from),
        },
    };
    let id = id.ok_or_else(|| usage(format!("{option} {text}: nobody is called so here: give NAME:NUMBER")))?;
    Ok(Owner { name: OsString::from(name).into_vec(), id })
}

/// What `--mtime` says.
fn time(text: &str) -> Result<Time, Failure> {
    let problem =
        || usage(format!("--mtime {text}: give a date such as 2024-02-29, 2024-02-29T12:00:00Z or @1709208000"));
    if text.starts_with(['/', '.']) {
        let found = fs::metadata(text).map_err(|error| of_file("--mtime", Path::new(text), &error))?;
        return Ok(Time { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 });
    }
    if let Some(number) = text.strip_prefix('@') {
        let (seconds, fraction) = number.split_once('.').unwrap_or((number, ""));
        let seconds: i64 = seconds.parse().map_err(|_| problem())?;
        let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
        let nanoseconds = format!("{fraction:0<9}").parse().ok().filter(|_| is_fraction).ok_or_else(problem)?;
        let is_before = seconds < 0 && nanoseconds > 0;
        return if is_before { Err(problem()) } else { Ok(Time { seconds, nanoseconds }) };
    }
    let moment = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        // A date alone is its first moment.
        let local = text.parse::<DateTime>().ok()?;
        local.to_zoned(TimeZone::system()).ok().map(|zoned| zoned.timestamp())
    });
    let nanoseconds = moment.ok_or_else(problem)?.as_nanosecond();
    let second = 1_000_000_000;
    Ok(Time { seconds: nanoseconds.div_euclid(second) as i64, nanoseconds: nanoseconds.rem_euclid(second) as u32 })
}

/// The time that a reproducible archive has: <https://reproducible-builds.org/specs/source-date-epoch>.
fn source_date() -> Result<Time, Failure> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(Time { seconds: FIRST_DAY, nanoseconds: 0 });
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds.ok_or_else(|| usage(format!("SOURCE_DATE_EPOCH is {}, not a number", shown(&text))))?;
    Ok(Time { seconds, nanoseconds: 0 })
}
