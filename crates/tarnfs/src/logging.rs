//! Where log lines go: standard error while there is somebody to read it, and the file of `--log-file`.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::exit::{Code, Failure};
use crate::terminal::{Colour, harmless};

/// Who is told each line, beside the log.
static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);

type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// From now on `listener` is told each line as well.
pub(crate) fn tell(listener: impl Fn(&str) + Send + Sync + 'static) {
    *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(listener));
}

struct Logger {
    file: Option<Mutex<File>>,
    /// Asked for at the start: later its file may not be open to us.
    zone: TimeZone,
    colour: bool,
}

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
    let _ = log::set_boxed_logger(Box::new(Logger {
        file: file.map(Mutex::new),
        zone: TimeZone::system(),
        colour: colour.is_on(),
    }));
    Ok(())
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
        // A line that cannot be written is lost; there is no other place to say so.
        if let Some(file) = &self.file {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let time = Timestamp::now().to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S%.3f %z");
            let _ = writeln!(file, "{time} {word}: {message}");
        } else {
            let (start, end) = match record.level() {
                Level::Error | Level::Warn if self.colour => ("\x1b[33m", "\x1b[0m"),
                _ => ("", ""),
            };
            let _ = writeln!(io::stderr(), "{start}tarnfs: {word}: {message}{end}");
        }
    }

    fn flush(&self) {}
}
