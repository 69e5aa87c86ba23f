//! Where log lines go: standard error while there is somebody to read it, and the file of `--log-file`. While a mount
//! is served, a thread writes them (`queue.rs`).

mod queue;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::exit::{Code, Failure};
use crate::terminal::{Colour, harmless};
use queue::Queue;

/// Who is told each line, beside the log.
static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);

type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// From now on `listener` is told each line as well.
pub(crate) fn tell(listener: impl Fn(&str) + Send + Sync + 'static) {
    *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(listener));
}

/// Who writes; set when logging starts.
static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Logger {
    file: Option<File>,
    /// That of the lines in the file. Asked for at the start: later its own file may not be open to us.
    zone: TimeZone,
    colour: bool,
    queue: Queue<To>,
}

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// To the file of `--log-file`; without one, to standard error.
    Log,
    StandardError,
}

/// How long an end waits for what is still to be written.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts logging. `level` is that of `-d`.
pub(crate) fn start(level: u8, file: Option<&Path>, colour: Colour) -> Result<(), Failure> {
    let file = file
        .map(|path| {
            open(path).map_err(|error| {
                Failure::new(Code::Usage, format!("--log-file {}: {error}", crate::args::shown(path.as_os_str())))
            })
        })
        .transpose()?;
    let filter = [LevelFilter::Error, LevelFilter::Warn, LevelFilter::Info, LevelFilter::Debug];
    log::set_max_level(filter.get(usize::from(level)).copied().unwrap_or(LevelFilter::Debug));
    // A second logger in one process would be a bug; then the first one goes on.
    // To know it, all folders of zones are listed: half a millisecond, which most commands have no use for.
    let zone = if file.is_some() { TimeZone::system() } else { TimeZone::UTC };
    let logger = Logger { file, zone, colour: colour.is_on(), queue: Queue::new() };
    let _ = log::set_logger(LOGGER.get_or_init(|| logger));
    Ok(())
}

/// From now on nobody waits until what they say is written: [`write_behind`] is called soon.
pub(crate) fn queue() {
    if let Some(logger) = LOGGER.get() {
        logger.queue.begin();
    }
}

/// Starts the thread that writes. It has the rights that this thread has now. Without it, lines are written at once.
pub(crate) fn write_behind() {
    let Some(logger) = LOGGER.get() else { return };
    let write = move || logger.queue.write(|to, line| logger.write(to, &line), |count| logger.tell_lost(count));
    let started = std::thread::Builder::new().name("tarnfs-log".to_owned()).stack_size(128 << 10).spawn(write);
    if let Err(error) = started {
        logger.queue.end();
        logger.queue.write(|to, line| logger.write(to, &line), |count| logger.tell_lost(count));
        log::warn!("starting a thread: {error}; if nobody reads the log, the mount stops");
    }
}

/// Waits until all that was said is written; not for long, should nobody read it.
pub(crate) fn flush() {
    if let Some(logger) = LOGGER.get() {
        logger.queue.flush(PATIENCE);
    }
}

/// Writes a line for whoever sees standard error, with its end.
pub(crate) fn print(line: String) {
    let line = match LOGGER.get() {
        Some(logger) => logger.queue.push(To::StandardError, line).map(|(_, line)| line),
        None => Some(line),
    };
    if let Some(line) = line {
        write_to_standard_error(line.as_bytes());
    }
}

/// Without the lock of std, which whoever is stuck here would keep.
fn write_to_standard_error(mut bytes: &[u8]) {
    let stderr = rustix::stdio::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(stderr, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Somebody else who has it open may have said so.
            Err(Errno::AGAIN) => {
                let _ = rustix::event::poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            // There is no other place to say so.
            Err(_) => return,
        }
    }
}

/// Opens the log for appending. A file that holds anything but text was not meant: it could be the archive.
fn open(path: &Path) -> io::Result<File> {
    /// What is looked at: more than the header of any archive.
    const START: usize = 4096;
    let file = File::options().create(true).append(true).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(file);
    }
    // By its name, as one who may append need not be allowed to read; of what cannot be read nobody can say that it is
    // no log.
    let mut start = vec![0; START];
    let Ok(length) = File::open(path).and_then(|file| file.read_at(&mut start, 0)) else { return Ok(file) };
    let start = &start[..length];
    let is_text = match std::str::from_utf8(start) {
        Ok(_) => true,
        // A character may be cut at the end of what was read.
        Err(error) => error.error_len().is_none(),
    };
    if is_text && start.iter().all(|&byte| byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r' | b'\x1b')) {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file of this name that is not a log; name another"))
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let word = match record.level() {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info => "info",
            Level::Debug | Level::Trace => "debug",
        };
        let message = harmless(record.args());
        if let Some(listener) = &*LISTENER.read().unwrap_or_else(PoisonError::into_inner) {
            listener(&format!("tarnfs: {word}: {message}\n"));
        }
        if let Some((to, line)) = self.queue.push(To::Log, self.line(record.level(), word, &message)) {
            self.write(to, &line);
        }
    }

    fn flush(&self) {
        self.queue.flush(PATIENCE);
    }
}

impl Logger {
    /// A line as it is written.
    fn line(&self, level: Level, word: &str, message: &str) -> String {
        if self.file.is_some() {
            let time = Timestamp::now().to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S%.3f %z");
            return format!("{time} {word}: {message}\n");
        }
        let (start, end) = match level {
            Level::Error | Level::Warn if self.colour => ("\x1b[33m", "\x1b[0m"),
            _ => ("", ""),
        };
        format!("{start}tarnfs: {word}: {message}{end}\n")
    }

    fn write(&self, to: To, line: &str) {
        match (to, &self.file) {
            // A line that cannot be written is lost; there is no other place to say so.
            (To::Log, Some(file)) => drop((&*file).write_all(line.as_bytes())),
            _ => write_to_standard_error(line.as_bytes()),
        }
    }

    /// Says that so many lines were not written.
    fn tell_lost(&self, count: u64) {
        let lines = if count == 1 { "line is" } else { "lines are" };
        let message = format!("{count} {lines} missing here: more was said than was read or could be written");
        self.write(To::Log, &self.line(Level::Warn, "warning", &message));
    }
}
