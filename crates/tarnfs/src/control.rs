//! `--control-interface`: what is written to `command` is read as a command line, and done.
//!
//! One thread takes the lines, one after the other. What is about this mount it does itself: trees are added and taken
//! out. All else is a process of its own, started from the root folder, with its two outputs in `output`; it is no
//! matter of ours how long it runs, but when the mount ends it is asked to end as well. No shell is involved: [`words`]
//! splits a line, and expands nothing.

mod children;
mod paths;
pub(crate) mod words;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use tarnfs_tree::control::{LONGEST_LINE, Line, Refusal, Submitted, Token};
use tarnfs_tree::open::{DecodedCache, Options};
use tarnfs_tree::{ControlTree, Error, Tree};

use crate::args::{Cli, Command, DEBUG, Keys, Mount, parse_quietly, shown};
use crate::commands::mount::{Request, open_all};
use crate::exit::Failure;
use crate::reading::Reading;
use crate::remote::is_far;
use crate::{hide, inside, logging};
use children::Children;

/// Lines that wait for those before them.
const MOST_WAITING: usize = 256;

/// A control that nobody answers yet: there is no mount.
pub(crate) struct Control {
    tree: Arc<ControlTree>,
    lines: Receiver<Submitted>,
}

/// `tree` with a control around it.
pub(crate) fn around(tree: Arc<dyn Tree>) -> Result<(Arc<dyn Tree>, Control), Error> {
    let (send, lines) = sync_channel(MOST_WAITING);
    let tree = Arc::new(ControlTree::new(tree, send)?);
    Ok((Arc::clone(&tree) as Arc<dyn Tree>, Control { tree, lines }))
}

/// A control at work. Dropped, it asks the processes that it has started to end.
pub(crate) struct Running(Arc<Children>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Control {
    /// Does what is written, from now on. What `options` have in common for all archives is shared with those that are
    /// added.
    pub(crate) fn start(self, mountpoint: &Path, options: &Options) -> io::Result<Running> {
        let said = Arc::clone(&self.tree);
        logging::tell(move |line| said.say(line.as_bytes()));
        let children = Arc::new(Children::default());
        let mut runner = Runner {
            tree: self.tree,
            children: Arc::clone(&children),
            mountpoint: mountpoint.to_owned(),
            // Until here nobody has been kept from mounting something else over one of its folders.
            real: mountpoint.canonicalize().unwrap_or_else(|_| mountpoint.to_owned()),
            options: options.clone(),
            number: 0,
            token: None,
        };
        let lines = self.lines;
        // Opening an archive takes the stack of a main thread.
        let builder = thread::Builder::new().name("tarnfs-control".to_owned()).stack_size(8 << 20);
        builder.spawn(move || lines.iter().for_each(|line| runner.take(line)))?;
        Ok(Running(children))
    }
}

struct Runner {
    tree: Arc<ControlTree>,
    children: Arc<Children>,
    mountpoint: PathBuf,
    /// The mount point without symbolic links.
    real: PathBuf,
    options: Options,
    /// Commands so far.
    number: u64,
    /// Of the one that runs.
    token: Option<Arc<Token>>,
}

impl Runner {
    fn take(&mut self, Submitted { line, token }: Submitted) {
        self.number += 1;
        let number = self.number;
        // Behind what is said of how it ended: whoever waits for it may read that.
        let token = Arc::new(token);
        self.token = Some(Arc::clone(&token));
        // A panic has been told in the log; the next command may do better.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.follow(line)));
        self.token = None;
        match done.unwrap_or_else(|_| Err("it panicked, which is a bug of tarnfs".to_owned())) {
            Ok(Done::Here) => self.tree.say(format!("command {number}: done\n").as_bytes()),
            Ok(Done::ByAnother) => {}
            Err(problem) => {
                let problem = crate::terminal::harmless(problem);
                self.tree.say(format!("tarnfs: {problem}\ncommand {number}: failed\n").as_bytes());
            }
        }
    }

    fn follow(&self, line: Line) -> Result<Done, String> {
        let Line::Whole(line) = line else {
            return Err(format!("a line of more than {LONGEST_LINE} bytes is no command"));
        };
        let words: Vec<OsString> = words::split(&line)?.into_iter().map(OsString::from_vec).collect();
        let done = self.obey(&words);
        // This process was not started with these.
        done.map_err(|problem| hide::without(problem, &hide::of_urls(words)))
    }

    fn obey(&self, words: &[OsString]) -> Result<Done, String> {
        let Some((name, arguments)) = words.split_first() else { return Ok(Done::Here) };
        if name != "ratarmount" && name != "tarnfs" {
            return Err(format!("{}: a command begins with tarnfs or ratarmount", shown(name)));
        }
        // Whatever cannot be read is said by a process of its own, as it would be anywhere.
        let Some(cli) = parse_quietly(words.to_vec()) else { return self.run(arguments) };
        if let Some(path) = paths::among_options(&cli) {
            return Err(paths::refusal(&path));
        }
        match &cli {
            Cli { command: Some(Command::Unmount { mountpoints, .. }), .. } => self.unmount(mountpoints),
            Cli { command: Some(Command::Mount(mount)), .. } | Cli { command: None, mount, .. } => {
                match mount.to_unmount() {
                    None => self.mount(mount, arguments),
                    Some(mountpoints) => self.unmount(&mountpoints),
                }
            }
            cli => match paths::of_command(cli) {
                Some(path) => Err(paths::refusal(&path)),
                None => self.run(arguments),
            },
        }
    }

    /// What is inside this mount is taken out; all else, this mount itself too, is for a process of its own.
    fn unmount(&self, mountpoints: &[PathBuf]) -> Result<Done, String> {
        let mut others: Vec<OsString> = Vec::new();
        let mut problems = Vec::new();
        for path in mountpoints {
            // What is mounted somewhere may be named by its URL.
            match if is_far(path) { PathPlace::Outside } else { self.inside(path)? } {
                PathPlace::Inside(inside) => {
                    if let Err(refusal) = self.tree.remove(&inside) {
                        problems.push(format!("{}: {refusal}", shown(path.as_os_str())));
                    }
                }
                PathPlace::Mountpoint => others.push(self.real.clone().into()),
                PathPlace::Outside => others.push(path.clone().into()),
            }
        }
        if !problems.is_empty() {
            return Err(problems.join("\ntarnfs: "));
        }
        if others.is_empty() {
            return Ok(Done::Here);
        }
        // Whoever writes the command has a file of this mount open.
        others.splice(0..0, ["unmount".into(), "-l".into(), "--".into()]);
        // It waits for the end of this mount, which waits for the file to be closed.
        self.start(&others, None)
    }

    fn mount(&self, mount: &Mount, arguments: &[OsString]) -> Result<Done, String> {
        let (last, sources) = mount.paths.split_last().ok_or("which archive? Write one, and where to show it")?;
        let relative = |paths: &[PathBuf]| paths.iter().find(|path| path.is_relative() && !is_far(path)).cloned();
        let refuse_relative = |path: &Path| Err(paths::refusal(path));
        // A single path is an archive, and is mounted beside itself. A URL is no mount point, which another process
        // says.
        let place = if sources.is_empty() || is_far(last) { PathPlace::Outside } else { self.inside(last)? };
        if let Some(path) = relative(sources) {
            return refuse_relative(&path);
        }
        let PathPlace::Inside(place) = place else {
            if let Some(path) = relative(&mount.paths) {
                return refuse_relative(&path);
            }
            // In the foreground it goes on until somebody ends it.
            let token = self.token.clone().filter(|_| !mount.foreground);
            return self.start(arguments, token);
        };
        let open = &mount.open;
        let index = open.index_file().map(Path::new);
        if let Some(url) = sources.iter().map(PathBuf::as_path).chain(index).find(|path| is_far(path)) {
            // The process that has the network is as old as this mount.
            let what = "a mount opens the URLs that it was started with, and no others: mount this one outside of it";
            return Err(format!("{}: {what}", shown(url.as_os_str())));
        }
        for source in sources {
            self.is_outside(source)?;
        }
        let is_of_a_process = mount.foreground || mount.no_sandbox || open.debug != DEBUG || open.log_file().is_some();
        if mount.written.overlay().is_some() || mount.written.write || mount.written.commit_overlay {
            return Err("--write-overlay and --write are for a mount of its own, not for a part of one".to_owned());
        }
        if mount.no_mount || mount.control_interface || is_of_a_process || !mount.fuse.is_empty() {
            let what = "--no-mount, --control-interface, --no-sandbox, --log-file, -d, -f and options of the kernel (-o) are for a \
                        mount of its own, not for a part of one";
            return Err(what.to_owned());
        }
        let refused = |refusal: Refusal| format!("{}: {refusal}", shown(last.as_os_str()));
        // Before an archive is read, which may take long.
        self.tree.check(&place).map_err(refused)?;
        let failed = |failure: Failure| failure.message;
        mount.open.files_of_keys().try_for_each(|file| is_no_pipe(file))?;
        let keys = Keys::read(&mount.open).map_err(failed)?;
        // One memory for all that is decoded here, and one end.
        let mut options = inside::options(&mount.open, &keys, &self.options.cancel).map_err(failed)?;
        options.decoding.cache = self.options.decoding.cache.clone();
        options.decoding.decoded_cache = options.decoding.decoded_cache.map(DecodedCache::filled_when_idle);
        let request = Request {
            sources: sources.to_vec(),
            mountpoint: self.real.clone(),
            made_up: false,
            written: None,
            commits: None,
        };
        let composition = request.composition(mount);
        // Before it is opened: from then on nobody may change it under the mount.
        let reading = Reading::begin(&request.sources, options.shape.recursion.is_some());
        let tree = open_all(&request.sources, &composition, &mut options, false, None).map_err(failed)?.assembly.tree;
        self.tree.add_with(&place, tree, Arc::new(reading)).map_err(refused)?;
        Ok(Done::Here)
    }

    /// A process of its own.
    fn run(&self, arguments: &[OsString]) -> Result<Done, String> {
        self.start(arguments, self.token.clone())
    }

    /// The same, where whoever has the `token` is waited for.
    fn start(&self, arguments: &[OsString], token: Option<Arc<Token>>) -> Result<Done, String> {
        let tree = Arc::clone(&self.tree);
        let started = self.children.start(arguments, self.number, move |said| {
            let _ = &token;
            tree.say(said);
        });
        started.map(|()| Done::ByAnother).map_err(|error| format!("starting a process: {error}"))
    }

    /// Where in the mount `path` is: relative ones begin at its root.
    fn inside(&self, path: &Path) -> Result<PathPlace, String> {
        let (own, asked) = (self.own(), path.to_owned());
        in_time(path, move || own.inside(&asked))
    }

    /// Fails for what this mount shows itself: whoever reads it would wait for us, who wait for it.
    fn is_outside(&self, source: &Path) -> Result<(), String> {
        let (own, asked) = (self.own(), source.to_owned());
        if in_time(source, move || own.shows(&asked))? {
            let source = shown(source.as_os_str());
            return Err(format!("{source}: is inside this mount, and a mount cannot show what it shows itself"));
        }
        Ok(())
    }

    fn own(&self) -> Own {
        Own { mountpoint: self.mountpoint.clone(), real: self.real.clone() }
    }
}

/// How long a file system may take to say what a path is.
const PATIENCE: Duration = Duration::from_secs(5);

/// What `ask` says of `path`. Other commands do not wait for a server that is gone: who asks it, waits alone.
fn in_time<T: Send + 'static>(path: &Path, ask: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (send, told) = sync_channel(1);
    let asking = thread::Builder::new().name("tarnfs-asking".to_owned()).spawn(move || {
        let _ = send.send(ask());
    });
    asking.map_err(|error| format!("starting a thread: {error}"))?;
    let silent = |_| format!("{}: does not answer; is it on a server that is gone?", shown(path.as_os_str()));
    told.recv_timeout(PATIENCE).map_err(silent)
}

/// Fails for what has to be waited for: nobody may ever write to a pipe, and the other commands wait for this one. What
/// is not there is told by whoever reads it.
fn is_no_pipe(file: &Path) -> Result<(), String> {
    let asked = file.to_owned();
    match in_time(file, move || asked.metadata())? {
        Ok(found) if !found.is_file() => Err(format!("{}: is not a file", shown(file.as_os_str()))),
        _ => Ok(()),
    }
}

/// The mount that is controlled, by both of its names.
struct Own {
    mountpoint: PathBuf,
    real: PathBuf,
}

impl Own {
    fn inside(&self, path: &Path) -> PathPlace {
        let below = |path: &Path| {
            let path = plain(path);
            let below = [&self.mountpoint, &self.real].into_iter().find_map(|own| path.strip_prefix(own).ok());
            below.map(Path::to_owned)
        };
        let found = if path.is_relative() {
            Some(plain(&Path::new("/").join(path)).strip_prefix("/").map(Path::to_owned).unwrap_or_default())
        } else {
            below(path).or_else(|| {
                // By another name. Its folder, as it need not exist itself.
                let parent = path.parent()?.canonicalize().ok()?;
                below(&parent.join(path.file_name()?))
            })
        };
        match found {
            None => PathPlace::Outside,
            Some(path) if path.as_os_str().is_empty() => PathPlace::Mountpoint,
            Some(path) => PathPlace::Inside(path.into_os_string().into_vec()),
        }
    }

    /// True if `source` is something that this mount shows.
    fn shows(&self, source: &Path) -> bool {
        let device = |path: &Path| path.metadata().ok().map(|found| found.dev());
        let own = device(&self.real);
        !matches!(self.inside(source), PathPlace::Outside)
            || source.canonicalize().is_ok_and(|real| real.starts_with(&self.real))
            || own.is_some() && device(source) == own
    }
}

enum Done {
    /// It is over.
    Here,
    /// It runs, and will say how it ended.
    ByAnother,
}

/// Where a path leads.
enum PathPlace {
    Outside,
    /// Exactly where this mount is.
    Mountpoint,
    /// From its root on.
    Inside(Vec<u8>),
}

/// An absolute path without `.` and `..`, by its letters alone: nothing is asked of any file system.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}
