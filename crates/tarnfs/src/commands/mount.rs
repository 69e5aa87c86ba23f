use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use tarnfs_fuse::Unmounter;
use tarnfs_tree::build::{Progress, without_archive_suffix};
use tarnfs_tree::open::{DecodedCache, OpenArchive, Options, Problem, is_url, url, whole_of_parts};
use tarnfs_tree::{
    AssembleError, Assembly, ComposeError, Composition, Error, FolderTree, Location, Observer, OverlayTree, Tree,
    assemble, filling,
};

use crate::args::{DEBUG, Keys, Mount, composition, mount_options, shown, writes};
use crate::asking::{self, Asking};
use crate::commands::{commit, index, mounts};
use crate::control::{self, Control};
use crate::daemon::{self, Ready, Role};
use crate::exit::{Code, Failure};
use crate::indexer::Indexer;
use crate::mountpoint::{self, Mountpoint, resolved};
use crate::overlay::{self, Commits, Place, Written};
use crate::progress::Bar;
use crate::reading::Reading;
use crate::signals::{self, Ending};
use crate::watcher::Watcher;
use crate::{inside, logging, memory, sandbox, terminal, typos};

/// Mounts archives and folders. Returns in the parent when the mount is ready, in the daemon when it is over.
pub(crate) fn run(arguments: &Mount) -> Result<Code, Failure> {
    no_command(&arguments.paths)?;
    let request = Request::from(&arguments.paths, arguments.control_interface, !arguments.disable_union_mount)?;
    no_mistake(&request.sources)?;
    // What is wrong with a URL is told below.
    if !request.made_up
        && !is_url(&request.mountpoint)
        && let Some(mistake) = typos::mistaken_mountpoint(&request.mountpoint, &request.sources)
    {
        return Err(Failure::new(Code::CannotOpen, mistake));
    }
    if arguments.no_mount {
        return only_index(&request.sources, arguments);
    }
    tell_of_swapped(&request);
    let mut as_typed = shown(request.mountpoint.as_os_str());
    let mut request = request.absolute()?;
    request.written = arguments.written.overlay().map(|given| Place::of(given)).transpose()?;
    if writes(arguments) {
        let archive = commit::can_be_written(&request.sources, arguments)?;
        request.written = Some(Place::Folder(overlay::changes_of(&archive)));
        request.commits = Some(archive);
    }
    if request.written.is_some() && has_option(arguments, "ro") {
        let option = if request.commits.is_some() { "--write" } else { "--write-overlay" };
        let what = format!("-o ro and {option}: leave one of them out");
        return Err(Failure::new(Code::Usage, what));
    }
    if let Some(hidden) = hidden(&request) {
        as_typed += &hidden;
    }
    // Once for all processes, and while a signal still ends who waits for a pipe.
    let keys = Keys::read(&arguments.open)?;
    signals::hold();
    let open = &arguments.open;
    if open.debug > DEBUG && !arguments.foreground && open.log_file().is_none() {
        log::info!("what is said once it is mounted is lost in the background: give --log-file FILE, or -f");
    }
    if arguments.foreground {
        return serve(&request, arguments, &keys, None);
    }
    match daemon::fork()? {
        Role::Parent(code) => {
            if matches!(code, Code::Success | Code::Damaged) {
                terminal::tell(&format!("mounted at {as_typed}"));
            }
            Ok(code)
        }
        Role::Child(ready) => serve(&request, arguments, &keys, Some(ready)),
    }
}

/// True if `-o` has this word.
fn has_option(arguments: &Mount, word: &str) -> bool {
    arguments.fuse.iter().flat_map(|joined| tarnfs_fuse::split_options(joined)).any(|option| option == word)
}

/// Entries of a mount point that are counted.
const MOST_COUNTED: usize = 10_000;

/// What is said of what lies where the mount goes: it is hidden meanwhile. Nothing of a folder that is shown itself.
fn hidden(request: &Request) -> Option<String> {
    let is_shown = |source: &PathBuf| resolved(source) == resolved(&request.mountpoint);
    if request.made_up || !terminal::is_told() || request.sources.iter().any(is_shown) {
        return None;
    }
    let entries = request.mountpoint.read_dir().ok()?.take(MOST_COUNTED + 1).count();
    let until = "hidden until it is unmounted";
    match entries {
        0 => None,
        1 => Some(format!("; the entry that is there is {until}")),
        _ if entries > MOST_COUNTED => Some(format!("; more than {MOST_COUNTED} entries that are there are {until}")),
        _ => Some(format!("; the {entries} entries that are there are {until}")),
    }
}

/// `--no-mount`: indexes the archives, as `tarnfs index` does, and looks whether folders can be opened.
fn only_index(sources: &[PathBuf], arguments: &Mount) -> Result<Code, Failure> {
    inside::each(sources, &arguments.open, |source, options| {
        if source.is_dir() {
            return inside::open_folder(source).map(|_| Code::Success);
        }
        let mut options = options.clone();
        options.index.minimum_file_count = 0;
        if arguments.lazy {
            options.shape.recursion = None;
        }
        index::one(source, &options, &|what| {
            terminal::tell(what);
            Ok(())
        })
    })
}

/// Fails if the first path is the name of a command: behind an option it is not taken for one.
fn no_command(paths: &[PathBuf]) -> Result<(), Failure> {
    let Some(name) = paths.first().and_then(|path| path.to_str()) else { return Ok(()) };
    if crate::args::command().find_subcommand(name).is_none() || Path::new(name).symlink_metadata().is_ok() {
        return Ok(());
    }
    let what = "is a command, and options go behind it";
    Err(Failure::new(Code::Usage, format!("{name} {what}: tarnfs {name} ...; a file of that name is ./{name}")))
}

/// Fails if the first of `sources` is a command that was mistyped, or one of them is standard input.
fn no_mistake(sources: &[PathBuf]) -> Result<(), Failure> {
    if let Some(first) = sources.first().filter(|first| first.symlink_metadata().is_err())
        && let Some(command) = typos::command(first)
    {
        let first = shown(first.as_os_str());
        let message =
            format!("{first} is no command, and there is no file of that name; did you mean `tarnfs {command}`?");
        return Err(Failure::new(Code::Usage, message));
    }
    for source in sources {
        if let Some((file, below)) = inside::parted(source) {
            let what = format!("{file} is a file; `tarnfs --prefix {below} {file}` shows what is there in it");
            return Err(Failure::new(Code::CannotOpen, format!("{}: {what}", shown(source.as_os_str()))));
        }
    }
    sources.iter().try_for_each(|source| inside::not_standard_input(source))
}

/// Warns of an empty folder before an archive where no mount point is named: it adds nothing, and may have been meant
/// for that.
fn tell_of_swapped(request: &Request) {
    if let ([folder, archive], true) = (request.sources.as_slice(), request.made_up)
        && archive.is_file()
        && folder.read_dir().is_ok_and(|mut entries| entries.next().is_none())
    {
        let (folder, archive) = (shown(folder.as_os_str()), shown(archive.as_os_str()));
        let at = shown(request.mountpoint.as_os_str());
        log::warn!("{folder} is an empty folder: mounting at {at}; did you mean `tarnfs {archive} {folder}`?");
    }
}

/// What is to be mounted where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Archives and folders, from left to right.
    pub(crate) sources: Vec<PathBuf>,
    pub(crate) mountpoint: PathBuf,
    /// Where what is written goes, if it can be written to.
    pub(crate) written: Option<Place>,
    /// The archive that gets what was written when it is unmounted.
    pub(crate) commits: Option<PathBuf>,
    /// Nobody has named the mount point: it is called after the archive.
    pub(crate) made_up: bool,
}

impl Request {
    /// The last path is the mount point if it is a folder or does not exist. `may_be_empty`: it may be the only one,
    /// and what is to be seen there comes later. `is_union`: they are laid over each other.
    fn from(paths: &[PathBuf], may_be_empty: bool, is_union: bool) -> Result<Self, Failure> {
        let (sources, mountpoint, made_up) = match paths {
            [] => return Err(Failure::new(Code::Usage, "which archive? See tarnfs --help".to_owned())),
            [sources @ .., last] if (may_be_empty || !sources.is_empty()) && !last.is_file() && !is_remote(last) => {
                (sources, last.clone(), false)
            }
            [first, ..] => (paths, named_after(first)?, true),
        };
        let mut sources = sources.to_vec();
        // One over itself is itself. In folders of their own, each name of it is another folder.
        sources.dedup_by(|right, left| match (left.canonicalize(), right.canonicalize()) {
            (Ok(left), Ok(right)) if is_union => left == right,
            _ => left == right,
        });
        Ok(Self { sources, mountpoint, written: None, commits: None, made_up })
    }

    /// The same from the root on: relative names mean something else once the daemon has left this folder.
    fn absolute(self) -> Result<Self, Failure> {
        let absolute = |path: PathBuf, code| {
            // As a path it would lose one of its slashes.
            if is_remote(&path) && code == Code::CannotOpen {
                return Ok(path);
            }
            if is_url(&path) && !path.exists() {
                return Err(Failure::new(Code::CannotOpen, format!("{}: {}", shown(path.as_os_str()), url(&path))));
            }
            std::path::absolute(&path).map_err(|error| Failure::new(code, format!("{}: {error}", path.display())))
        };
        let sources =
            self.sources.into_iter().map(|source| absolute(source, Code::CannotOpen)).collect::<Result<_, _>>()?;
        Ok(Self { sources, mountpoint: absolute(self.mountpoint, Code::CannotMount)?, ..self })
    }

    /// How it is put together.
    pub(crate) fn composition(&self, arguments: &Mount) -> Composition {
        Composition { mountpoint: Some(resolved(&self.mountpoint)), ..composition(arguments) }
    }

    /// What is mounted, for messages.
    fn title(&self) -> OsString {
        title(&self.sources)
    }
}

/// True of the URL of an archive that can be opened.
fn is_remote(path: &Path) -> bool {
    let scheme = path.to_str().and_then(|url| url.split_once("://")).map(|(scheme, _)| scheme.to_ascii_lowercase());
    is_url(path) && !path.exists() && scheme.is_some_and(|scheme| tarnfs_remote::is_known_scheme(&scheme))
}

/// What is shown, for messages.
pub(crate) fn title(sources: &[PathBuf]) -> OsString {
    let first = sources.first().map(|first| first.as_os_str().to_owned());
    let mut title = first.unwrap_or_else(|| OsString::from("tarnfs"));
    if sources.len() > 1 {
        title.push(format!(" and {} more", sources.len() - 1));
    }
    title
}

/// Tells of each archive while it is opened, and keeps what is to be said of all of them in the end.
struct Teller<'a> {
    options: &'a Options,
    /// Those that a sidecar of ratarmount describes get an index of our own meanwhile.
    is_indexed: bool,
    bar: RefCell<Option<Bar>>,
    /// A person can be asked for passwords.
    asks: bool,
    /// The first archive for which one is missing.
    locked: RefCell<Option<PathBuf>>,
    said: Cell<Said>,
    /// Numbers of the archives that are shown as a sidecar of ratarmount has them.
    with_sidecar: RefCell<Vec<usize>>,
    /// Why the first of them that could be opened is of no use.
    failure: RefCell<Option<Failure>>,
}

/// What was said of archives.
#[derive(Debug, Clone, Copy)]
struct Said {
    /// Of so many, from the first on.
    count: usize,
    /// The worst that can be said of one is said of all.
    code: Code,
}

impl Observer for Teller<'_> {
    fn opens(&self, path: &Path, progress: &Arc<Progress>) {
        *self.bar.borrow_mut() = Some(inside::bar(path, progress));
    }

    fn opened(&self, number: usize, path: &Path, archive: Result<&OpenArchive, &Problem>) {
        *self.bar.borrow_mut() = None;
        // Failures are told by who gets them.
        let Ok(archive) = archive else { return };
        if archive.is_sidecar {
            self.with_sidecar.borrow_mut().push(number);
        }
        // With a password, all are opened once more.
        if self.locked.borrow().is_some() || number < self.said.get().count {
            return;
        }
        // Where that fails, it does so again below.
        if self.asks && asking::is_locked(archive, self.options).unwrap_or(false) {
            *self.locked.borrow_mut() = Some(path.to_owned());
            return;
        }
        let code = self.said.get().code.max(inside::tell_of_damage(path, archive, self.options));
        self.said.set(Said { count: number + 1, code });
        inside::tell_of_the_rest(path, archive);
        if let Err(failure) = inside::tell_of_locked(path, archive, self.options) {
            self.failure.borrow_mut().get_or_insert(failure);
        }
        if archive.is_sidecar {
            let meanwhile = "an index that keeps all of it is made meanwhile, for the next mount";
            inside::tell_of_sidecar(path, archive, if self.is_indexed { meanwhile } else { inside::INDEX_INSTEAD });
        }
    }
}

/// The right to mount on a folder: others who would mount there at the same time wait, and see then what is mounted.
struct MountTurn(OwnedFd);

impl MountTurn {
    /// So often, and that far apart, it is tried. Whoever else locks a folder must not keep it from being mounted on.
    const TRIES: usize = 50;
    const BETWEEN: Duration = Duration::from_millis(100);

    /// `None` where the folder cannot be opened, or another program holds it.
    fn take(folder: &Path) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(folder, flags, Mode::empty()).ok()?;
        for _ in 0..Self::TRIES {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => std::thread::sleep(Self::BETWEEN),
                taken => return taken.ok().map(|()| Self(folder)),
            }
        }
        None
    }
}

impl Drop for MountTurn {
    fn drop(&mut self) {
        // Processes that were forked meanwhile have it open, too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Fails if tarnfs has mounted something on the mount point, unless `-o nonempty` says that this is meant. What is left
/// of a mount whose program was killed is taken away.
fn not_mounted(request: &Request, options: &[String]) -> Result<(), Failure> {
    /// Dead mounts on top of each other that are taken away.
    const MOST_DEAD: usize = 100;
    if options.iter().flat_map(|joined| tarnfs_fuse::split_options(joined)).any(|option| option == "nonempty") {
        return Ok(());
    }
    let path = resolved(&request.mountpoint);
    let find = || {
        // Where the table of mounts cannot be read, nobody knows; then this is no reason to stop.
        let mounts = tarnfs_fuse::mounts().unwrap_or_default();
        let is_here = |mount: &&tarnfs_fuse::MountedTree| mount.mount_point == path;
        (mounts.iter().filter(is_here).count(), mounts.iter().rfind(is_here).cloned())
    };
    let mut found = find();
    for _ in 0..MOST_DEAD {
        let (count, Some(_)) = found else { return Ok(()) };
        if let Err(error) = tarnfs_fuse::unmount_dead(&path) {
            log::debug!("{}: a dead mount stays: {error}", path.display());
        }
        found = find();
        if found.0 >= count {
            break;
        }
    }
    let Some(mounted) = found.1 else { return Ok(()) };
    let (what, path) = (mounts::shown_source(&mounted.source), shown(request.mountpoint.as_os_str()));
    // Nothing is hidden in a folder that nobody has named.
    let or = if request.made_up { "name another mount point" } else { "mount over it with -o nonempty" };
    let message = format!("{what} is already mounted at {path}; run `tarnfs -u {path}` first, or {or}");
    Err(Failure::new(Code::CannotMount, message))
}

/// Everything that is to be mounted.
pub(crate) struct Opened {
    pub(crate) assembly: Assembly,
    /// See [`Teller`].
    with_sidecar: Vec<usize>,
    pub(crate) code: Code,
}

/// Opens everything that is to be shown, one after the other. Where a password is missing, a person is asked for it, if
/// there is one.
///
/// `is_indexed`: see [`Teller`].
pub(crate) fn open_all(
    sources: &[PathBuf],
    composition: &Composition,
    options: &mut Options,
    is_indexed: bool,
    mut asking: Option<Asking>,
) -> Result<Opened, Failure> {
    let locations: Vec<_> = sources.iter().cloned().map(Location::Path).collect();
    let mut said = Said { count: 0, code: Code::Success };
    loop {
        let teller = Teller {
            options,
            is_indexed,
            bar: RefCell::default(),
            asks: asking.is_some(),
            locked: RefCell::default(),
            said: Cell::new(said),
            with_sidecar: RefCell::default(),
            failure: RefCell::default(),
        };
        let assembled = assemble(&locations, composition, options, &teller);
        let Teller { locked, said: by_now, with_sidecar, failure, .. } = teller;
        said = by_now.get();
        let locked = match &assembled {
            Err(AssembleError::Archive { path, problem }) if problem.is_for_want_of_a_password() => Some(path.clone()),
            _ => locked.into_inner(),
        };
        if let (Some(locked), Some(asks)) = (locked, &mut asking) {
            if asks.ask(&locked, options)? {
                continue;
            }
            asking = None;
            if assembled.is_ok() {
                // Now what is missing is said.
                continue;
            }
        }
        let assembly = assembled.map_err(|error| cannot_assemble(sources, error))?;
        return match failure.into_inner() {
            Some(failure) => Err(failure),
            None => Ok(Opened { assembly, with_sidecar: with_sidecar.into_inner(), code: said.code }),
        };
    }
}

fn cannot_assemble(sources: &[PathBuf], error: AssembleError) -> Failure {
    match error {
        AssembleError::OneIndexFile => {
            let what = "--index-file names the index of one archive, and there are several: --index-folders names a folder for all of them";
            Failure::new(Code::Usage, what)
        }
        AssembleError::Archive { path, problem } => inside::cannot_open(&path, &problem),
        AssembleError::Folder { path, error } => inside::cannot_open_folder(&path, &error),
        AssembleError::Lazily { path, problem } => {
            Failure::new(Code::Usage, format!("{}: {problem}", shown(path.as_os_str())))
        }
        AssembleError::Compose(ComposeError::Prefix {
            error: Error::NotFound | Error::NotAFolder | Error::TooManyLinks,
            ..
        }) => Failure::new(Code::Failure, format!("{}: {error}", shown(&title(sources)))),
        error => Failure::new(Code::CannotOpen, format!("{}: {error}", shown(&title(sources)))),
    }
}

/// `backup` for `backup.tar.gz`, in the same folder; `x.mounted` for an `x` without a suffix that says what it is.
/// Of `x.tar.00`, a part of an archive, it is `x.tar`, as in ratarmount, or `x` where there is such a file.
pub(crate) fn named_after(archive: &Path) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStringExt as _;
    // What is wrong with the parts is told by who opens them.
    if let Some(whole) = whole_of_parts(archive).ok().flatten().filter(|whole| whole != archive) {
        return if whole.is_file() { named_after(&whole) } else { Ok(whole) };
    }
    // Behind a URL there is no folder: it is mounted where one is.
    let is_remote = is_remote(archive);
    let name = archive.file_name().filter(|_| !is_remote || archive.ancestors().count() > 3);
    let Some(name) = name else {
        let archive = shown(archive.as_os_str());
        return Err(Failure::new(Code::Usage, format!("{archive}: name a mount point: tarnfs {archive} MOUNTPOINT")));
    };
    let name = name.as_bytes();
    let stem = without_archive_suffix(name).unwrap_or_else(|| [name, b".mounted"].concat());
    let stem = std::ffi::OsString::from_vec(stem);
    Ok(if is_remote { stem.into() } else { archive.with_file_name(stem) })
}

/// What is written to, in words, if that is not one archive as it is: what is written cannot be committed then.
fn not_as_it_is(
    sources: &[PathBuf],
    how: &Composition,
    options: &Options,
    has_folders: bool,
    has_images: bool,
) -> Option<&'static str> {
    match sources {
        [_] if has_images => Some("a container image"),
        [_] if has_folders => Some("a folder"),
        [_] if how.prefix.is_some() => Some("a part of an archive (--prefix)"),
        [_] if !how.union => Some("an archive in a folder of its own (--disable-union-mount)"),
        [_] if options.shape.transform.is_some() => Some("other names than those in the archive (--transform)"),
        [_] => None,
        _ => Some("several archives or folders"),
    }
}

/// That this process could not get ready for signals.
fn listening(error: &io::Error) -> Failure {
    Failure::new(Code::Failure, format!("waiting for signals: {error}"))
}

/// The process that takes the mount away. Without one, all is as it is with other programs: one that is killed leaves a
/// dead mount.
fn watcher() -> Option<Watcher> {
    Watcher::start().inspect_err(|error| log::debug!("no process to watch this one: {error}")).ok()
}

/// Takes the mount away through the watcher, and gives up rights as soon as there is nothing left that needs them.
#[derive(Debug)]
struct Helper {
    watcher: Watcher,
    ending: Ending,
    sandbox: bool,
    /// The watcher knows the mount. It may have been killed before, while the archive was read.
    has_mount: AtomicBool,
    /// Below which files may still be opened, known once the sources are open; `None` where archives are opened later,
    /// and nothing can be given up.
    folders: OnceLock<Option<Vec<Arc<FolderTree>>>>,
    /// Where files may still be written.
    written: OnceLock<Arc<OverlayTree>>,
}

impl Unmounter for Helper {
    fn mounted(&self, mount_point: &Path, device: &str) -> io::Result<()> {
        self.watcher.mounted(mount_point, device)?;
        if self.sandbox
            && let Some(Some(folders)) = self.folders.get()
        {
            let written = self.written.get().map(|written| written.as_fd());
            self.ending.without_listener(|| sandbox::give_up_files(folders, written))?;
        }
        self.has_mount.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn unmount(&self) -> io::Result<()> {
        self.watcher.unmount()
    }

    fn gone(&self) -> io::Result<()> {
        self.watcher.gone()
    }

    fn abort(&self) -> io::Result<()> {
        self.watcher.abort()
    }
}

/// Makes what may be needed later. Where files have names for a moment, none stays when this one ends.
struct Filling(Option<JoinHandle<()>>);

impl Drop for Filling {
    fn drop(&mut self) {
        // A panic of it has been told.
        drop(self.0.take().map(JoinHandle::join));
    }
}

fn serve(request: &Request, arguments: &Mount, keys: &Keys, ready: Option<Ready>) -> Result<Code, Failure> {
    // Forked before there are threads.
    let has_url = request.sources.iter().any(|source| is_remote(source));
    let indexer = if has_url { None } else { Indexer::start(&request.sources, arguments, keys) };
    // What is mounted already is unmounted by those who have mounted it.
    let watcher = if tarnfs_fuse::is_mounted_device(&request.mountpoint) { None } else { watcher() };
    let ending = Ending::default();
    if let Some(watcher) = &watcher {
        ending.watched_by(watcher.clone());
    }
    ending.listen().map_err(|error| listening(&error))?;
    let mut options = inside::options(&arguments.open, keys, &ending.cancel())?;
    options.decoding.decoded_cache = options.decoding.decoded_cache.map(DecodedCache::filled_when_idle);
    let (mountpoint, title) = (&request.mountpoint, request.title());
    let name = shown(&title);
    let mut mount_options = mount_options(arguments, &mounts::source(&request.sources));
    if arguments.control_interface {
        log::info!("{name}: no rights are given up, as commands to --control-interface need them");
    }
    // Without somebody else who can unmount it, nothing is given up.
    let sandbox =
        watcher.is_some() && !arguments.no_sandbox && !arguments.control_interface && request.commits.is_none();
    if request.commits.is_some() {
        log::info!("{name}: no rights are given up, as the archive is written in the end");
    }
    let helper = watcher.clone().map(|watcher| {
        let (ending, has_mount) = (ending.clone(), AtomicBool::default());
        let (folders, written) = (OnceLock::new(), OnceLock::new());
        Arc::new(Helper { watcher, ending, sandbox, has_mount, folders, written })
    });
    mount_options.unmounter = helper.clone().map(|helper| helper as Arc<dyn Unmounter>);
    let cannot =
        |error: tarnfs_fuse::Error| Failure::new(Code::CannotMount, format!("{name} cannot be mounted: {error}"));
    mount_options.check().map_err(|error| match error {
        tarnfs_fuse::Error::Option(_) => Failure::new(Code::Usage, error.to_string()),
        error => cannot(error),
    })?;
    inside::raise_descriptors();
    not_mounted(request, &mount_options.options)?;
    mountpoint::check(mountpoint, request.made_up)?;
    let place = request.sources.first().filter(|source| request.made_up && !is_remote(source));
    let place = place.map(|source| mountpoint::Place::new(mountpoint, source)).transpose()?;
    let composition = request.composition(arguments);
    let asking = Asking::of(&arguments.open);
    let known = overlay::known(&request.sources);
    // What may be needed later is made while the archive is read. A disk that is busy lets whoever makes files wait.
    let scratch = options.decoding.scratch.clone();
    let filling = (sandbox && !arguments.lazy).then(|| thread::Builder::new().spawn(move || scratch.fill()));
    let filling = Filling(filling.and_then(Result::ok));
    let opened = open_all(&request.sources, &composition, &mut options, indexer.is_some(), asking)?;
    let Opened { assembly, with_sidecar, code } = opened;
    let Assembly { mut tree, folders, is_lazy, has_images, first } = assembly;
    let has_folders = !folders.is_empty();
    let mut reading = Reading::begin(&request.sources, options.shape.recursion.is_some());
    let written = match &request.written {
        Some(place) => {
            let of = (request.sources.as_slice(), folders.as_slice(), mountpoint.as_path());
            let over = not_as_it_is(&request.sources, &composition, &options, has_folders, has_images);
            let is_still = || overlay::not_replaced(&known);
            Some(Written::open(place, &tree, of, (over, &is_still), watcher.as_ref())?)
        }
        None => None,
    };
    let commits = match (&request.commits, &written) {
        (Some(archive), Some(written)) => {
            written.is_own(archive)?;
            Some(Commits::begin(written.tree.folder(), mountpoint)?)
        }
        _ => None,
    };
    if let Some(written) = &written {
        tree = Arc::clone(&written.tree) as Arc<dyn Tree>;
        if let Some(helper) = &helper {
            let _ = helper.written.set(Arc::clone(&written.tree));
        }
        let folder = shown(written.tree.folder().as_os_str());
        let then = if request.commits.is_some() { "into the archive at the end" } else { "the archive stays as it is" };
        log::info!("{name}: what is written goes to {folder}; {then}");
    }
    if let Some(helper) = &helper {
        let _ = helper.folders.set((!is_lazy).then_some(folders));
    }
    // Whoever opens archives and writes their indexes needs what would be given up.
    let sandbox = sandbox && !is_lazy;
    if sandbox {
        drop(filling);
        options.decoding.scratch.fill();
    }
    if let Some(place) = &place {
        place.check(first)?;
    }
    let (made, folder) = Mountpoint::new(mountpoint, place.as_ref(), &ending, watcher.as_ref())?;
    // Open, it could keep what it lies on from being unmounted.
    drop(place);
    mount_options.folder = folder.map(Arc::new);
    // Reading the archive may have taken long, and somebody else may be about to mount here as well.
    let turn = MountTurn::take(mountpoint);
    not_mounted(request, &mount_options.options)?;
    let start = Instant::now();
    let (tree, control) = if arguments.control_interface {
        let (tree, control) = control::around(tree).map_err(|error| Failure::new(Code::Failure, error.to_string()))?;
        (tree, Some(control))
    } else {
        (tree, None)
    };
    // From its first answer on. The thread that writes is started when files are given up.
    logging::queue();
    let mount = tarnfs_fuse::mount(tree, mountpoint, &mount_options).map_err(cannot);
    logging::write_behind();
    drop(turn);
    let mount = mount?;
    // Open, it would keep what it lies on from being unmounted.
    mount_options.folder = None;
    log::debug!("{}: mounted in {:.3} s", shown(mountpoint.as_os_str()), start.elapsed().as_secs_f64());
    ending.mounted(mount.stopper());
    if options.cancel.is_cancelled() {
        // Somebody who waits for the mount must not be told that it is there.
        mount.wait().map_err(cannot)?;
        return Err(Failure::new(Code::Interrupted, format!("{name}: interrupted")));
    }
    log::info!("{name} is mounted at {}", shown(mountpoint.as_os_str()));
    if let Some(written) = &written {
        written.mounted(&request.sources);
    }
    // It may be killed before it has said that it has the mount.
    let is_watched = sandbox && helper.is_some();
    let has_helper = helper.is_some_and(|helper| helper.has_mount.load(Ordering::Relaxed));
    if sandbox && !has_helper {
        log::info!("{name}: no rights are given up, as there is no other process that could unmount it");
    }
    let sandbox = sandbox && has_helper;
    if let Some(watcher) = watcher.as_ref().filter(|_| is_watched) {
        let at = shown(mountpoint.as_os_str());
        let tell = move || {
            log::warn!(
                "{at}: the process that takes this mount away was killed: unmount it with `tarnfs -u {at}`, as the end \
                 of this process would leave a dead mount"
            );
        };
        watcher.when_it_ends(tell).unwrap_or_else(|error| log::debug!("{name}: its watcher is not watched: {error}"));
    }
    if ready.is_none() {
        terminal::tell(&format!("{name} is mounted at {}; Ctrl-C unmounts it", shown(mountpoint.as_os_str())));
    }
    let running = control.map(|control: Control| control.start(mountpoint, &options));
    let running =
        running.transpose().map_err(|error| Failure::new(Code::Failure, format!("starting a thread: {error}")))?;
    memory::give_back_freed();
    let idle = memory::IdleCache::watch(Arc::clone(&options.decoding.cache))
        .inspect_err(|error| log::warn!("caches are kept while nobody reads: starting a thread: {error}"))
        .ok();
    if let Some(ready) = ready {
        // Then standard error leads nowhere.
        logging::flush();
        ready.report(code).map_err(|error| Failure::new(Code::Failure, format!("going to the background: {error}")))?;
    }
    filling::begin();
    if let Some(indexer) = indexer.filter(|_| !with_sidecar.is_empty())
        && let Err(error) = indexer.begin(&with_sidecar)
    {
        log::info!("{name}: no index is made meanwhile: {error}");
    }
    if sandbox {
        sandbox::give_up_calls(has_folders, written.is_some());
    }
    let ended = mount.wait().map_err(cannot);
    if let (Some(archive), Some(commits)) = (&request.commits, &commits) {
        ending.goes_on((commits.path(), commit::kept_in(archive, commits.folder())));
    }
    // Before the commit of this mount, or of its overlay, asks for it.
    reading.end();
    drop((running, idle));
    if let Some(written) = &written {
        written.finish();
    }
    if let (Some(archive), Some(commits), Some(written)) = (&request.commits, &commits, &written) {
        commit::when_unmounted(archive, commits, &written.tree, (&arguments.open, &ending))?;
    }
    drop(written);
    ended?;
    drop(made);
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_the_same_archive_has_a_folder_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let (archive, link) = (folder.path().join("a.tar"), folder.path().join("b.tar"));
        std::fs::write(&archive, "").unwrap();
        std::os::unix::fs::symlink(&archive, &link).unwrap();
        let paths = [archive.clone(), archive.clone(), link.clone(), folder.path().join("at")];
        assert_eq!(Request::from(&paths, false, true).unwrap().sources.as_slice(), std::slice::from_ref(&archive));
        assert_eq!(Request::from(&paths, false, false).unwrap().sources, [archive, link]);
    }

    #[test]
    fn the_mount_point_is_named_after_the_archive() {
        for (archive, mountpoint) in [
            ("/a/backup.tar.gz", "/a/backup"),
            ("backup.tgz", "backup"),
            ("x.TAR", "x"),
            ("x.TAR.GZ", "x"),
            ("x.tar", "x"),
            ("notes.txt.zst", "notes.txt"),
            ("data", "data.mounted"),
            ("x.zip", "x"),
            ("x.JAR", "x"),
            ("x.7z", "x"),
            ("libx.a", "libx"),
            ("x.cpio.gz", "x"),
            ("x.tzstd", "x"),
            ("x.zip.gz", "x.zip"),
            ("x.tgz.gz", "x.tgz"),
            ("x.gz.gz", "x.gz"),
            (".zip", ".zip.mounted"),
            ("..7z", "..7z.mounted"),
            (".tar", ".tar.mounted"),
            (".gz", ".gz.mounted"),
            ("..gz", "..gz.mounted"),
            ("...gz", "...gz.mounted"),
            ("...tar", "...tar.mounted"),
            ("...tar.gz", "...tar"),
            ("..tgz", "..tar"),
        ] {
            assert_eq!(named_after(Path::new(archive)).unwrap(), Path::new(mountpoint), "{archive}");
        }
        assert!(named_after(Path::new("/")).is_err());
    }
}
