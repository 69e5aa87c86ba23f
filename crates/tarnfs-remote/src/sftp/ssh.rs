//! Where connections come from: `ssh -s HOST sftp`, with all that the user has said to ssh.
//!
//! The process that has the network executes nothing. A process of its own starts `ssh` for it ([`start_programs`]):
//! only for the hosts of the URLs that it was given at first, and it reads nothing of what comes from there. It has the
//! other end of one more socket for each, which is closed when nobody wants that program any more.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, kill_process_group};

use super::SCHEMES;
use super::askpass;
use super::said::{CANNOT_START, Refusal};
use super::session::Session;
use crate::backend::Fault;
use crate::url::Url;

/// A login that was refused is not tried again before: servers lock out who tries often.
const REFUSED: Duration = Duration::from_secs(60);

/// Who is asked for, and as whom.
#[derive(Clone, PartialEq, Eq)]
struct Destination {
    host: String,
    port: Option<u16>,
    user: Option<String>,
    password: Option<String>,
}

impl Destination {
    /// `None` for a URL of something else.
    fn of(url: &Url) -> Option<Self> {
        if !SCHEMES.contains(&url.scheme()) {
            return None;
        }
        let host = url.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (user, password) = url.login().map_or((None, None), |login| (some(&login.user), some(&login.password)));
        Some(Self { host, port: url.port(), user, password })
    }

    /// False for names of users that a shell would take for commands: `ssh` gives them to one where `~/.ssh/config` has
    /// `%r` (before OpenSSH 9.6; CVE-2023-51385). No host is asked for those.
    fn is_harmless(&self) -> bool {
        let is_plain = |letter: char| letter.is_alphanumeric() || "._-+@\\".contains(letter);
        self.user
            .as_ref()
            .is_none_or(|user| user.chars().all(is_plain) && !user.starts_with('-') && !user.ends_with('\\'))
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.host, self.port, &self.user) == (&other.host, other.port, &other.user)
    }
}

/// Those of these URLs, in their order: both processes number them so.
fn destinations(urls: &[Url]) -> Vec<Destination> {
    let mut all: Vec<Destination> = Vec::new();
    for new in urls.iter().filter_map(Destination::of).filter(Destination::is_harmless) {
        if !all.iter().any(|known| known.is_same(&new)) {
            all.push(new);
        }
    }
    all
}

/// True if one of them needs [`start_programs`].
pub fn needs_ssh(urls: &[Url]) -> bool {
    urls.iter().any(|url| Destination::of(url).is_some())
}

/// The hosts that are asked over `ssh`, and a connection to each that is used by all. The default one knows none.
#[derive(Clone, Default)]
pub struct Ssh(Option<Arc<Hosts>>);

struct Hosts {
    control: UnixStream,
    all: Vec<(Destination, Slot)>,
}

/// The connection to one host.
#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    is_connecting: bool,
    refused: Option<(Refusal, Instant)>,
    /// What the first name of a path leads to: true if it lies in the home folder.
    homes: Vec<(Vec<u8>, bool)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ssh {
    /// For the hosts of these URLs, over the other end of what [`start_programs`] has got.
    pub fn new(control: UnixStream, urls: &[Url]) -> Self {
        let all = destinations(urls).into_iter().map(|destination| (destination, Slot::default())).collect();
        Self(Some(Arc::new(Hosts { control, all })))
    }

    /// The host of this URL, if it is one of them.
    pub(super) fn host(&self, url: &Url) -> Option<Host> {
        let hosts = self.0.clone()?;
        let wanted = Destination::of(url)?;
        let number = hosts.all.iter().position(|(known, _)| known.is_same(&wanted))?;
        Some(Host { hosts, number })
    }
}

impl fmt::Debug for Ssh {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Ssh")
    }
}

/// One of them.
#[derive(Clone)]
pub(super) struct Host {
    hosts: Arc<Hosts>,
    number: usize,
}

impl Host {
    fn slot(&self) -> &Slot {
        &self.hosts.all[self.number].1
    }

    /// The connection to it. One thread makes it where there is none, and the others wait for that, until their
    /// deadline.
    pub(super) fn session(&self, deadline: Instant) -> Result<Arc<Session>, Fault> {
        let slot = self.slot();
        let mut state = lock(&slot.state);
        loop {
            if let Some(session) = state.session.as_ref().filter(|session| !session.is_over()) {
                return Ok(Arc::clone(session));
            }
            if let Some((refusal, at)) = &state.refused
                && at.elapsed() < REFUSED
            {
                return Err(refusal.fault());
            }
            if !state.is_connecting {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Fault::Again("the server does not answer in time".to_owned(), None));
            }
            state = slot.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_connecting = true;
        let old = state.session.take();
        drop(state);
        drop(old);
        let _connecting = Connecting(slot);
        let result = self.connect(deadline).map(Arc::new);
        let mut state = lock(&slot.state);
        match &result {
            Ok(session) => {
                state.session = Some(Arc::clone(session));
                state.refused = None;
            }
            Err(Fault::Final(what)) => state.refused = Some((Refusal::Lasting(what.clone()), Instant::now())),
            Err(_) => {}
        }
        drop(state);
        result
    }

    fn connect(&self, deadline: Instant) -> Result<Session, Fault> {
        let of_ours = |error: io::Error| Fault::Again(format!("starting ssh: {error}"), None);
        let (ours, theirs) = UnixStream::pair().map_err(of_ours)?;
        let (our_errors, their_errors) = UnixStream::pair().map_err(of_ours)?;
        let (alive, their_alive) = UnixStream::pair().map_err(of_ours)?;
        hand_over(&self.hosts.control, self.number as u32, &[&theirs, &their_errors, &their_alive]).map_err(of_ours)?;
        drop((theirs, their_errors, their_alive));
        Session::begin(ours, our_errors, alive, deadline)
    }

    /// Whether this name, the first of a path, lies in the home folder. `find` asks the server, once for each name.
    pub(super) fn is_at_home(&self, name: &[u8], find: impl FnOnce() -> Result<bool, Fault>) -> Result<bool, Fault> {
        /// They are those of the URLs, and of the folder that one may be.
        const MOST: usize = 64 << 10;
        let known = |state: &State| state.homes.iter().find(|(known, _)| known == name).map(|&(_, is)| is);
        if let Some(is) = known(&lock(&self.slot().state)) {
            return Ok(is);
        }
        let found = find()?;
        let mut state = lock(&self.slot().state);
        // Whoever was first has said it for all: what is below one path comes from one place.
        let is = known(&state).unwrap_or(found);
        if known(&state).is_none() && state.homes.len() < MOST {
            state.homes.push((name.to_vec(), is));
        }
        Ok(is)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.hosts.all[self.number].0.host)
    }
}

/// Lets others connect whatever becomes of who does.
struct Connecting<'a>(&'a Slot);

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).is_connecting = false;
        self.0.changed.notify_all();
    }
}

/// Asks for a program that asks this host, with these as its input and output, its errors, and what says how long it is
/// wanted.
fn hand_over(control: &UnixStream, number: u32, sockets: &[&UnixStream; 3]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let sockets = sockets.map(|socket| socket.as_fd());
    ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(control, &[IoSlice::new(&number.to_le_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What was asked for so; `Ok(None)` when nobody can ask any more.
pub(super) fn take_over(control: &UnixStream) -> io::Result<Option<(u32, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut number = [0; 4];
    let received = recvmsg(control, &mut [IoSliceMut::new(&mut number)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let sockets = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    Ok(Some((u32::from_le_bytes(number), sockets.flatten().collect())))
}

/// Starts `ssh` for the hosts of these URLs whenever it is asked to over `control`. Returns when nobody can ask any
/// more. To be called in a process of its own, which has a single thread. [`answer_ssh`](super::answer_ssh) has to be
/// called by the program in which it runs.
pub fn start_programs(control: &UnixStream, urls: &[Url]) -> io::Result<()> {
    let destinations = destinations(urls);
    let secrets: Vec<_> = destinations
        .iter()
        .map(|destination| destination.password.as_deref().map(askpass::Secret::new).transpose())
        .collect::<io::Result<_>>()?;
    run_programs(control, |number, socket, errors| {
        let (destination, secret) = destinations.get(number).zip(secrets.get(number))?;
        start(destination, secret.as_ref(), socket, errors)
    })
}

/// The loop of [`start_programs`], which has `start` start the program of this number.
fn run_programs(control: &UnixStream, start: impl Fn(usize, OwnedFd, OwnedFd) -> Option<Child>) -> io::Result<()> {
    let mut running: Vec<Running> = Vec::new();
    loop {
        // Those that have ended are forgotten by the kernel then.
        running.retain_mut(Running::goes_on);
        let wanted = running.iter().filter(|program| program.unwanted.is_none()).map(|program| &program.alive);
        let mut polled: Vec<_> = wanted.map(|alive| PollFd::new(alive, PollFlags::IN)).collect();
        polled.push(PollFd::new(control, PollFlags::IN));
        // Soon where one is about to end.
        let is_ending = running.iter().any(|program| program.unwanted.is_some());
        let pause = Timespec { tv_sec: i64::from(!is_ending), tv_nsec: if is_ending { 50_000_000 } else { 0 } };
        match poll(&mut polled, (!running.is_empty()).then_some(&pause)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut come: Vec<_> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        let is_asked = come.pop() == Some(true);
        let wanted = running.iter_mut().filter(|program| program.unwanted.is_none());
        wanted.zip(come).filter(|(_, is_over)| *is_over).for_each(|(program, _)| program.end());
        if !is_asked {
            continue;
        }
        let (number, sockets) = match take_over(control) {
            Ok(Some(asked)) => asked,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Nobody reads what they say any more.
            result => {
                running.iter_mut().for_each(Running::end);
                for _ in 0..150 {
                    running.retain_mut(Running::goes_on);
                    if running.is_empty() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                return result.map(|_| ());
            }
        };
        let Ok([socket, errors, alive]) = <[OwnedFd; 3]>::try_from(sockets) else { continue };
        let started = start(number as usize, socket, errors);
        running.extend(started.map(|child| Running { child, alive, unwanted: None }));
    }
}

/// A program that was started, in a group of its own with those that it has started (`ProxyCommand`).
struct Running {
    child: Child,
    /// Its other end is closed when nobody wants the program any more.
    alive: OwnedFd,
    /// Since when that is so.
    unwanted: Option<Instant>,
}

impl Running {
    /// False if it has ended. One that nobody wants is killed if it does not see to that itself.
    fn goes_on(&mut self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(2);
        let goes_on = matches!(self.child.try_wait(), Ok(None));
        if goes_on && self.unwanted.is_some_and(|since| since.elapsed() >= PATIENCE) {
            self.signal(Signal::KILL);
        }
        goes_on
    }

    /// Nobody wants it any more. It has seen that, too, but may wait for a host that does not answer.
    fn end(&mut self) {
        self.unwanted = Some(Instant::now());
        self.signal(Signal::TERM);
    }

    /// It is our child until somebody has waited for it, so the number is that of no other one.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

fn start(
    destination: &Destination,
    secret: Option<&askpass::Secret>,
    socket: OwnedFd,
    errors: OwnedFd,
) -> Option<Child> {
    let mut told = UnixStream::from(errors.try_clone().ok()?);
    let mut command = Command::new("ssh");
    command.args(arguments(destination)).process_group(0);
    if let Some(secret) = secret {
        secret.tell(&mut command);
    }
    let output = socket.try_clone().ok()?;
    let started = command.stdin(Stdio::from(socket)).stdout(Stdio::from(output)).stderr(Stdio::from(errors)).spawn();
    if let Err(error) = &started {
        let _ = writeln!(told, "{CANNOT_START}: {error}");
    }
    started.ok()
}

/// Nobody can be asked anything; what else could be of harm in the user's settings is off, as `sftp` has it. A
/// connection that is there already is used, and none stays behind.
fn arguments(destination: &Destination) -> Vec<String> {
    let mut options = vec![
        "LogLevel=ERROR",
        "ConnectTimeout=20",
        "ServerAliveInterval=10",
        "ServerAliveCountMax=3",
        "ForwardX11=no",
        "ForwardAgent=no",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        "RemoteCommand=none",
        "RequestTTY=no",
        "ControlMaster=no",
    ];
    options.extend(match destination.password {
        // A question is refused by who answers then.
        // Who asks for a host on the way would be told the password, too.
        Some(_) => &[
            "ProxyJump=none",
            "ProxyCommand=none",
            "BatchMode=no",
            "NumberOfPasswordPrompts=1",
            "PreferredAuthentications=password,keyboard-interactive,publickey",
        ][..],
        None => &["BatchMode=yes"],
    });
    let mut words: Vec<_> = options.iter().map(|option| format!("-o{option}")).collect();
    words.extend(destination.port.map(|port| format!("-p{port}")));
    words.extend(destination.user.as_ref().map(|user| format!("-l{user}")));
    words.extend(["-s", "--", &destination.host, "sftp"].map(str::to_owned));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_nobody_wants_any_more_is_gone() {
        let (control, theirs) = UnixStream::pair().unwrap();
        let (started, pids) = std::sync::mpsc::channel();
        let runs = std::thread::spawn(move || {
            run_programs(&theirs, |number, socket, errors| {
                // One that does not look at its input, and has started another one. The second does not end by itself.
                let trap = if number == 1 { "trap '' TERM;" } else { "" };
                let mut command = Command::new("sh");
                command.args(["-c", &format!("{trap} sleep 1000 & echo $!; wait; wait")]).process_group(0);
                let output = OwnedFd::from(UnixStream::from(socket));
                let child =
                    command.stdin(Stdio::null()).stdout(Stdio::from(output)).stderr(Stdio::from(errors)).spawn();
                started.send(child.as_ref().unwrap().id()).unwrap();
                child.ok()
            })
        });
        let is_there = |pid: u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
        let mut programs = Vec::new();
        for number in 0..3 {
            let [(ours, theirs), (our_errors, their_errors), (alive, their_alive)] =
                [(); 3].map(|()| UnixStream::pair().unwrap());
            hand_over(&control, number, &[&theirs, &their_errors, &their_alive]).unwrap();
            let pid = pids.recv().unwrap();
            // What it has started is there, too.
            let mut line = String::new();
            drop(theirs);
            io::BufRead::read_line(&mut io::BufReader::new(&ours), &mut line).unwrap();
            programs.push((pid, line.trim().parse::<u32>().unwrap(), ours, our_errors, Some(alive)));
        }
        let wait_until_gone = |pid: u32| {
            let begin = Instant::now();
            while is_there(pid) {
                assert!(begin.elapsed() < Duration::from_secs(100), "{pid}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        for number in [0, 1] {
            programs[number].4 = None;
            // It has been waited for, too.
            wait_until_gone(programs[number].0);
        }
        assert!(is_there(programs[2].0) && is_there(programs[2].1));
        drop(control);
        runs.join().unwrap().unwrap();
        assert!(!is_there(programs[2].0));
        for (_, below, ours, ..) in &mut programs {
            // Nobody has its output any more.
            io::Read::read_to_end(ours, &mut Vec::new()).unwrap();
            let _ = below;
        }
    }

    #[test]
    fn a_user_is_no_command() {
        for (user, count) in
            [("me", 1), ("DOM%5Cme", 1), ("%24%28id%29", 0), ("a%3Bb", 0), ("-oX", 0), ("a%0Ab", 0), ("`id`", 0)]
        {
            let url = Url::parse(&format!("sftp://{user}@host/a"));
            assert_eq!(url.map_or(0, |url| destinations(&[url]).len()), count, "{user}");
        }
    }

    #[test]
    fn a_password_is_no_argument_and_a_host_is_no_option() {
        let of = |text: &str| {
            let urls = [Url::parse(text).unwrap()];
            assert!(needs_ssh(&urls));
            arguments(&destinations(&urls)[0]).join(" ")
        };
        assert!(of("sftp://Host/a").ends_with("-oBatchMode=yes -s -- Host sftp"));
        let with_all = of("ssh://me:secret@[::1]:22/a");
        assert!(with_all.ends_with("-p22 -lme -s -- ::1 sftp") && with_all.contains("BatchMode=no"), "{with_all}");
        assert!(!with_all.contains("secret"));
        assert!(of("sftp://-oProxyCommand=x/a".replace('=', "").as_str()).ends_with("-s -- -oProxyCommandx sftp"));
        let urls = ["sftp://h/a", "ssh://h/b", "ssh://h:22/b", "sftp://me@h/b", "http://h/"];
        let urls: Vec<_> = urls.iter().map(|text| Url::parse(text).unwrap()).collect();
        assert_eq!(destinations(&urls).len(), 3);
        assert!(!needs_ssh(&urls[4..]) && Ssh::default().host(&urls[0]).is_none());
    }
}
