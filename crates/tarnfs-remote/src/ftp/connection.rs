//! One connection to a server of FTP: questions, and a transfer that may go on between reads.

use std::io::{self, Read as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use suppaftp::rustls::pki_types::CertificateDer;
use suppaftp::rustls::{ClientConfig, RootCertStore, crypto};
use suppaftp::types::FileType;
use suppaftp::{Encoding, FtpError, Mode, RustlsConnector, RustlsFtpStream, Status, TlsConnector, TransferStream};

use super::Site;
use super::{facts, names};
use crate::backend::Fault;
use crate::trust::trusted;

/// What is waited for: a connection, and each piece of an answer.
pub(super) const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(12);

/// Bytes of a listing at most.
const LONGEST_LIST: u64 = 64 << 20;

/// Bytes of one name for each letter: names are what bytes they are.
#[derive(Debug)]
struct Bytes;

impl Encoding for Bytes {
    fn decode(&self, bytes: &[u8]) -> String {
        letters(bytes)
    }

    fn encode(&self, text: &str) -> io::Result<Vec<u8>> {
        Ok(bytes(text))
    }
}

/// Bytes as letters of a text, one each.
pub(super) fn letters(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

/// The inverse.
pub(super) fn bytes(letters: &str) -> Vec<u8> {
    letters.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap_or(b'?')).collect()
}

type Stream = <RustlsConnector as TlsConnector>::Stream;

/// See the module. A path begins at the root.
pub(super) struct Connection {
    ftp: RustlsFtpStream,
    watch: Arc<Watch>,
    transfer: Option<Transfer>,
    /// The folder in which it began, without a slash at the end.
    pub(super) home: String,
    /// False if the server does not know `MLST`.
    has_facts: bool,
    is_broken: bool,
}

/// A file that is being sent.
struct Transfer {
    stream: TransferStream<Stream>,
    file: String,
    /// The byte that comes next.
    position: u64,
}

/// What is known of a file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    pub(super) is_folder: bool,
    /// Bytes.
    pub(super) size: Option<u64>,
    pub(super) modified: Option<SystemTime>,
}

impl Connection {
    /// Connects and logs in.
    pub(super) fn new(site: &Site, deadline: Instant) -> Result<Self, Fault> {
        let mut refused = Fault::Again("the host has no address".to_owned(), None);
        for address in names::found(&site.host, site.port, deadline)? {
            match socket(&address, deadline) {
                Ok(socket) => return Self::over(socket, site, deadline),
                Err(error) => refused = Fault::Again(format!("no connection: {error}"), None),
            }
        }
        Err(refused)
    }

    fn over(socket: TcpStream, site: &Site, deadline: Instant) -> Result<Self, Fault> {
        let of_ours = |error: io::Error| Fault::Again(error.to_string(), None);
        let watch = Watch::new(socket.try_clone().map_err(of_ours)?);
        let begin = || {
            let ftp = RustlsFtpStream::connect_with_stream(socket)?;
            let mut ftp = if site.is_encrypted {
                ftp.into_secure(RustlsConnector::from(encryption()?), &site.host)?
            } else {
                ftp
            };
            let watched = Arc::clone(&watch);
            ftp = ftp.passive_stream_builder(move |address| {
                let socket = socket_by(&address, watched.until()).map_err(FtpError::ConnectionError)?;
                watched.watches(socket.try_clone().map_err(FtpError::ConnectionError)?);
                Ok(socket)
            });
            // Where a server says another host than its own, that is not asked.
            ftp.set_passive_nat_workaround(true);
            ftp.set_mode(Mode::ExtendedPassive);
            ftp.set_encoding(Bytes);
            let (user, password) = site
                .login
                .as_ref()
                .map_or(("anonymous", "anonymous@"), |login| (login.user.as_str(), login.password.as_str()));
            ftp.login(letters(user.as_bytes()), letters(password.as_bytes()))?;
            ftp.transfer_type(FileType::Binary)?;
            let home = ftp.pwd()?;
            Ok((ftp, home.trim_end_matches('/').to_owned()))
        };
        let _time = watch.set(deadline);
        let (ftp, home) = begin().map_err(|error| match error {
            FtpError::UnexpectedResponse(said) if matches!(code(said.status), 430 | 530..=532) => {
                Fault::Final(format!("the server refuses the login (it says {})", code(said.status)))
            }
            error => watch.says(fault(error)),
        })?;
        Ok(Self { ftp, watch: Arc::clone(&watch), transfer: None, home, has_facts: true, is_broken: false })
    }

    /// False if nothing more can be asked.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_broken
    }

    /// The file that is being sent, and the byte that comes next.
    pub(super) fn transfer(&self) -> Option<(&str, u64)> {
        self.transfer.as_ref().map(|transfer| (transfer.file.as_str(), transfer.position))
    }

    /// Asks something, and has an answer soon after the deadline.
    fn ask<T>(
        &mut self,
        deadline: Instant,
        question: impl FnOnce(&mut RustlsFtpStream) -> Result<T, FtpError>,
    ) -> Result<T, FtpError> {
        let watch = Arc::clone(&self.watch);
        let _time = watch.set(deadline);
        let answer = question(&mut self.ftp);
        // After any other error, nobody knows which answer comes next.
        self.is_broken |= matches!(&answer, Err(error) if !matches!(error, FtpError::UnexpectedResponse(_)));
        self.is_broken |= matches!(&answer, Err(FtpError::UnexpectedResponse(said)) if code(said.status) == 421);
        answer
    }

    /// Ends the transfer, if there is one.
    pub(super) fn stop(&mut self, deadline: Instant) -> Result<(), Fault> {
        let Some(transfer) = self.transfer.take() else { return Ok(()) };
        self.watch.forgets();
        // The server says that it was not taken to its end, if it was not.
        match self.ask(deadline, |_| transfer.stream.finish()) {
            Ok(()) | Err(FtpError::UnexpectedResponse(_)) if !self.is_broken => Ok(()),
            Ok(()) => Err(again("the connection was cut")),
            Err(error) => Err(fault(error)),
        }
    }

    /// Begins to get what is at this path, from this byte on. `file` is what it is called here.
    pub(super) fn begin(&mut self, path: &str, file: &str, position: u64, deadline: Instant) -> Result<(), Fault> {
        self.stop(deadline)?;
        let offset = usize::try_from(position).map_err(|_| again("it is too long for this machine"))?;
        let stream = self.opened(deadline, |ftp| {
            ftp.resume_transfer(offset)?;
            ftp.retr_as_stream(path)
        });
        let stream = stream.map_err(fault)?;
        self.transfer = Some(Transfer { stream, file: file.to_owned(), position });
        Ok(())
    }

    /// Opens a data connection; in the older way where the server does not know the newer one.
    fn opened<T>(
        &mut self,
        deadline: Instant,
        open: impl Fn(&mut RustlsFtpStream) -> Result<T, FtpError>,
    ) -> Result<T, FtpError> {
        match self.ask(deadline, &open) {
            Err(FtpError::UnexpectedResponse(said)) if is_unknown(said.status) || code(said.status) == 522 => {
                self.ftp.set_mode(Mode::Passive);
                self.ask(deadline, &open)
            }
            opened => opened,
        }
    }

    /// Reads so many bytes of the file that is being sent; fewer at its end.
    pub(super) fn read(&mut self, count: usize, deadline: Instant) -> Result<Vec<u8>, Fault> {
        let Some(transfer) = self.transfer.as_mut() else { return Err(again("nothing is being sent")) };
        let watch = Arc::clone(&self.watch);
        let _time = watch.set(deadline);
        let mut bytes = Vec::with_capacity(count);
        let read = (&mut transfer.stream).take(count as u64).read_to_end(&mut bytes);
        transfer.position += bytes.len() as u64;
        match read {
            Ok(read) if read == count => Ok(bytes),
            // At the end. (There are servers that end TLS without saying so.) It may be cut, too: who has asked for
            // them knows how long it is.
            Ok(_) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(bytes),
            Err(error) => {
                self.is_broken = true;
                Err(watch.says(of_io(&error)))
            }
        }
    }

    /// What is at this path. `Missing` if nothing is.
    pub(super) fn about(&mut self, path: &str, deadline: Instant) -> Result<About, Fault> {
        self.stop(deadline)?;
        let path = if path.is_empty() { "/" } else { path };
        if self.has_facts {
            match self.ask(deadline, |ftp| ftp.mlst(Some(path))) {
                Ok(line) => {
                    let parsed = facts::of_line(&line).map(|(about, _)| about);
                    return parsed.ok_or_else(|| again("the server describes it in a way that is not known"));
                }
                Err(FtpError::UnexpectedResponse(said)) if is_unknown(said.status) => self.has_facts = false,
                Err(error) => return Err(fault(error)),
            }
        }
        let sized = self.ask(deadline, |ftp| ftp.size(path));
        match sized {
            Ok(size) => {
                let time = match self.ask(deadline, |ftp| ftp.mdtm(path)) {
                    Ok(time) => Some(time),
                    // It knows no times. What passes is no word on that.
                    Err(FtpError::UnexpectedResponse(said)) if code(said.status) >= 500 => None,
                    Err(error) => return Err(fault(error)),
                };
                let modified = time.map(|time| SystemTime::from(time.and_utc()));
                Ok(About { is_folder: false, size: Some(size as u64), modified })
            }
            Err(FtpError::UnexpectedResponse(said)) => match self.ask(deadline, |ftp| ftp.cwd(path)) {
                Ok(()) => Ok(About { is_folder: true, size: None, modified: None }),
                Err(FtpError::UnexpectedResponse(_)) => Err(fault(FtpError::UnexpectedResponse(said))),
                Err(error) => Err(fault(error)),
            },
            Err(error) => Err(fault(error)),
        }
    }

    /// True if the server can begin in the middle of a file.
    pub(super) fn has_ranges(&mut self, deadline: Instant) -> Result<bool, Fault> {
        self.stop(deadline)?;
        for offset in ["REST 1", "REST 0"] {
            match self.ask(deadline, |ftp| ftp.custom_command(offset, &[Status::RequestFilePending])) {
                Ok(_) => {}
                Err(FtpError::UnexpectedResponse(_)) if !self.is_broken => return Ok(false),
                Err(error) => return Err(fault(error)),
            }
        }
        Ok(true)
    }

    /// The lines of a list of this folder, and whether they have facts (`MLSD`) or are as `ls` shows them.
    pub(super) fn list(&mut self, path: &str, deadline: Instant) -> Result<(Vec<u8>, bool), Fault> {
        const OPENS: [Status; 2] = [Status::AboutToSend, Status::AlreadyOpen];
        self.stop(deadline)?;
        // Some take signs in a path for a pattern.
        self.ask(deadline, |ftp| ftp.cwd(if path.is_empty() { "/" } else { path })).map_err(fault)?;
        let commands = [("MLSD", true), ("LIST -a", false), ("LIST", false)];
        let mut last = again("the server lists nothing");
        for (command, has_facts) in commands {
            if has_facts && !self.has_facts {
                continue;
            }
            match self.opened(deadline, |ftp| ftp.custom_data_command(command, &OPENS)) {
                Ok((_, stream)) => return Ok((self.all_of(stream, deadline)?, has_facts)),
                Err(error @ FtpError::UnexpectedResponse(_)) if !self.is_broken => {
                    self.has_facts &= !has_facts;
                    last = fault(error);
                }
                Err(error) => return Err(fault(error)),
            }
        }
        Err(last)
    }

    fn all_of(&mut self, mut stream: TransferStream<Stream>, deadline: Instant) -> Result<Vec<u8>, Fault> {
        let watch = Arc::clone(&self.watch);
        let time = watch.set(deadline);
        let mut bytes = Vec::new();
        let read = (&mut stream).take(LONGEST_LIST + 1).read_to_end(&mut bytes);
        drop(time);
        let is_too_long = bytes.len() as u64 > LONGEST_LIST;
        if is_too_long || read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::UnexpectedEof) {
            self.is_broken = true;
            self.watch.end();
            if is_too_long {
                let what = format!("the list that the server sends is longer than {} MiB", LONGEST_LIST >> 20);
                return Err(Fault::Final(what));
            }
        }
        self.watch.forgets();
        // This says whether it was all.
        self.ask(deadline, |_| stream.finish()).map_err(fault)?;
        Ok(bytes)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A transfer that is dropped waits for an answer.
        self.watch.end();
    }
}

fn socket(address: &std::net::SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let socket = TcpStream::connect_timeout(address, left.min(CONNECT))?;
    socket.set_read_timeout(Some(SILENCE))?;
    socket.set_write_timeout(Some(SILENCE))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn socket_by(address: &std::net::SocketAddr, deadline: Option<Instant>) -> io::Result<TcpStream> {
    socket(address, deadline.unwrap_or_else(|| Instant::now() + CONNECT))
}

/// How connections are encrypted. One for all: servers want a data connection to go on with what was agreed on before.
fn encryption() -> Result<Arc<ClientConfig>, FtpError> {
    static CONFIG: OnceLock<Option<Arc<ClientConfig>>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        match trusted() {
            Some(trusted) => {
                roots.add_parsable_certificates(trusted.iter().map(|der| CertificateDer::from_slice(der)));
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().ok()?;
        Some(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    });
    config.clone().ok_or_else(|| FtpError::SecureError("no TLS".to_owned()))
}

/// Loads what that needs, so that no file need be opened later.
pub(super) fn prepare() {
    let _ = trusted();
}

fn again(what: &str) -> Fault {
    Fault::Again(what.to_owned(), None)
}

/// The number of an answer.
fn code(status: Status) -> u32 {
    status.code()
}

/// The server does not know the command.
fn is_unknown(status: Status) -> bool {
    matches!(code(status), 500..=504)
}

/// What an error means. Texts of the server are not shown: they may have anything in them.
fn fault(error: FtpError) -> Fault {
    match error {
        FtpError::UnexpectedResponse(said) => {
            let what = |meaning: &str| format!("the server says {}{meaning}", code(said.status));
            match code(said.status) {
                421 => Fault::Again(what(": it takes no more connections now"), None),
                530..=532 => Fault::Final(what(": the login may not do that")),
                550 => Fault::Missing(what(": there is no such file, or it may not be read")),
                534..=536 => Fault::Final(what(": it does not encrypt connections")),
                400..=499 => Fault::Again(what(""), None),
                _ => Fault::Final(what("")),
            }
        }
        FtpError::ConnectionError(error) => of_io(&error),
        FtpError::SecureError(what) => of_tls(&what),
        FtpError::BadResponse | FtpError::InvalidAddress(_) | FtpError::DataConnectionAlreadyOpen => {
            again("what answers there does not speak FTP")
        }
    }
}

/// Whoever is there is not who was asked for, or that will not be known.
fn of_tls(what: &str) -> Fault {
    if what.contains("certificate") {
        Fault::Final(format!("no connection that is safe: {what}"))
    } else {
        again(&format!("no connection that is safe: {what}"))
    }
}

fn of_io(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => again("the server does not answer in time"),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            again("the connection was cut")
        }
        io::ErrorKind::InvalidData => of_tls(&error.to_string()),
        _ => again(&format!("the connection was cut ({error})")),
    }
}

/// Sees to it that what waits for a server ends: a server may send a byte from time to time.
struct Watch {
    state: Mutex<Watched>,
}

struct Watched {
    control: TcpStream,
    data: Option<TcpStream>,
    until: Option<Instant>,
    /// It was ended because that had come.
    is_late: bool,
}

/// Those that may have to be ended, and whether a thread looks at them.
static WATCHES: Mutex<(Vec<Weak<Watch>>, bool)> = Mutex::new((Vec::new(), false));

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    fn new(control: TcpStream) -> Arc<Self> {
        let new = Arc::new(Self { state: Mutex::new(Watched { control, data: None, until: None, is_late: false }) });
        let mut watches = lock(&WATCHES);
        watches.0.push(Arc::downgrade(&new));
        if !watches.1 {
            watches.1 = std::thread::Builder::new().name("tarnfs-ftp".into()).spawn(look).is_ok();
        }
        new
    }

    /// What is waited for has to be there by then, as long as the result lives.
    fn set(&self, deadline: Instant) -> Waiting<'_> {
        lock(&self.state).until = Some(deadline);
        Waiting(self)
    }

    fn until(&self) -> Option<Instant> {
        lock(&self.state).until
    }

    /// What an error means that has come.
    fn says(&self, fault: Fault) -> Fault {
        if lock(&self.state).is_late { again("the server does not answer in time") } else { fault }
    }

    fn watches(&self, data: TcpStream) {
        lock(&self.state).data = Some(data);
    }

    /// The data connection is about to be closed.
    fn forgets(&self) {
        lock(&self.state).data = None;
    }

    fn end(&self) {
        let state = lock(&self.state);
        for socket in state.data.iter().chain([&state.control]) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

struct Waiting<'a>(&'a Watch);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).until = None;
    }
}

/// What the thread does, until there is nothing more to look at.
fn look() {
    loop {
        std::thread::sleep(Duration::from_millis(250));
        let mut watches = lock(&WATCHES);
        watches.0.retain(|watch| watch.strong_count() > 0);
        if watches.0.is_empty() {
            watches.1 = false;
            return;
        }
        let now = Instant::now();
        for watch in watches.0.iter().filter_map(Weak::upgrade) {
            if watch.until().is_some_and(|until| until < now) {
                lock(&watch.state).is_late = true;
                watch.end();
            }
        }
    }
}
