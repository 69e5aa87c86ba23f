//! `tarnfs serve`: what a mount would show, over HTTP and WebDAV.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tarnfs_format::containers::DOCUMENTS;
use tarnfs_serve::{Logins, Server, Settings, Tls, TlsError};
use tarnfs_tree::open::{DecodedCache, Options};
use tarnfs_tree::{Composition, filling};

use crate::args::{Keys, Serve, secret, secrets, shown};
use crate::commands::mount::{named_after, open_all, title};
use crate::exit::{Code, Failure};
use crate::reading::Reading;
use crate::signals::Ending;
use crate::{inside, logging, memory, sandbox, terminal};

/// The port, unless another one is named: TARN on the keys of a telephone.
const PORT: u16 = 8276;

/// Bounds of --timeout, in seconds.
const LEAST_TIMEOUT: u64 = 1;
const MOST_TIMEOUT: u64 = 24 * 3600;

/// Serves archives and folders until it is ended.
pub(crate) fn run(arguments: &Serve) -> Result<Code, Failure> {
    arguments.archives.iter().try_for_each(|archive| inside::not_standard_input(archive))?;
    let address = address(arguments.listen.as_deref())?;
    let mut settings = settings(arguments)?;
    if !address.ip().is_loopback() && settings.logins.is_empty() && !arguments.open_to_all {
        let what = "others could read there, and no login is asked for: give --token-file or --login-file, or \
                    --open-to-all if everybody may";
        return Err(Failure::new(Code::Usage, format!("--listen {address}: {what}")));
    }
    let is_for_all = settings.logins.is_empty() && !arguments.open_to_all;
    let is_encrypted = settings.tls.is_some();
    if !is_encrypted && !settings.logins.is_empty() && !address.ip().is_loopback() {
        log::warn!(
            "logins, and all that is read, travel in clear over the network: --tls-cert and --tls-key encrypt it"
        );
    }
    let keys = Keys::read(&arguments.open)?;
    let ending = Ending::default();
    ending.listen().map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
    let mut options = inside::options(&arguments.open, &keys, &ending.cancel())?;
    (settings.salt, settings.is_far) = salt(&arguments.archives, &options);
    // Ratarmount's has no checksums: what is wrong might be found when it was sent.
    options.index.use_sidecars = false;
    options.decoding.decoded_cache = options.decoding.decoded_cache.map(DecodedCache::filled_when_idle);
    // Which file, and which bytes of it, a path leads to: a client that has what was served with others has nothing.
    let place = (&arguments.prefix, arguments.disable_union_mount, arguments.images.wanted_by_others());
    let view = (&options.shape, options.decoding.force, place);
    settings.salt.extend_from_slice(format!("{view:?}").as_bytes());
    settings.most_clients = settings.most_clients.min(most_clients(inside::raise_descriptors()));
    let failed = |error: io::Error| {
        let other = match error.kind() {
            io::ErrorKind::AddrInUse => ": another port is named with --listen PORT, and 0 takes any that is free",
            _ => "",
        };
        Failure::new(Code::Failure, format!("{address}: {error}{other}"))
    };
    // Before an archive is read, which may take long. Who comes meanwhile waits.
    let listener = TcpListener::bind(address).map_err(failed)?;
    let composition = Composition {
        union: !arguments.disable_union_mount,
        prefix: arguments.prefix.as_ref().map(|prefix| prefix.as_bytes().to_vec()),
        file_versions: !arguments.no_file_versions,
        lazy: arguments.lazy,
        images: arguments.images.wanted_by_others(),
        ..Composition::default()
    };
    let opened = open_all(&arguments.archives, &composition, &mut options, false, None)?;
    let (assembly, code) = (opened.assembly, opened.code);
    let reading = Reading::begin(&arguments.archives, options.shape.recursion.is_some());
    if is_for_all && (keys.has_passwords() || arguments.archives.iter().any(|archive| is_private(archive))) {
        // A mount shows it to its user alone.
        let what = "what is private is served to every user of this machine";
        log::warn!("{what}: --token-file or --login-file asks for a login, --open-to-all says that it is meant so");
    }
    let server = Server::new(listener, assembly.tree, settings).map_err(failed)?;
    let url = format!("{}://{}/", if is_encrypted { "https" } else { "http" }, server.address().map_err(failed)?);
    let stopper = server.stopper();
    ending.when_asked(move || stopper.stop());
    memory::give_back_freed();
    let idle = memory::IdleCache::watch(Arc::clone(&options.decoding.cache))
        .inspect_err(|error| log::warn!("caches are kept while nobody reads: starting a thread: {error}"))
        .ok();
    // Who opens archives later, and writes their indexes, needs what would be given up.
    if !assembly.is_lazy {
        options.decoding.scratch.fill();
        let given_up = ending.without_listener(|| sandbox::give_up_files(&assembly.folders, None));
        given_up.map_err(|error| Failure::new(Code::Failure, format!("waiting for signals: {error}")))?;
    }
    writeln!(io::stdout(), "{url}").map_err(|error| terminal::output_failure(&error))?;
    terminal::tell(&format!("{} is served at {url}; Ctrl-C ends that", shown(&title(&arguments.archives))));
    logging::queue();
    logging::write_behind();
    filling::begin();
    let served = server.run().map_err(failed);
    drop((idle, reading));
    logging::flush();
    served.map(|()| code)
}

/// True if not every user of this machine may read that file or folder, as far as the way to it says.
fn is_private(path: &Path) -> bool {
    let lacks = |path: &Path, bits: u32| path.metadata().is_ok_and(|found| found.mode() & bits != bits);
    let own = if path.is_dir() { 0o005 } else { 0o004 };
    // With links followed: what they lead to is on the way.
    let whole = path.canonicalize();
    lacks(path, own) || whole.is_ok_and(|whole| whole.ancestors().skip(1).any(|folder| lacks(folder, 0o001)))
}

/// What `--listen` says.
fn address(typed: Option<&str>) -> Result<SocketAddr, Failure> {
    let Some(typed) = typed else { return Ok((Ipv4Addr::LOCALHOST, PORT).into()) };
    if let Ok(port) = typed.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let bare = typed.strip_prefix('[').and_then(|typed| typed.strip_suffix(']')).unwrap_or(typed);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok((address, PORT).into());
    }
    // A number is no name, though some resolvers take it for an address.
    let is_number = typed.bytes().all(|byte| byte.is_ascii_digit());
    let found = if is_number {
        Err(io::ErrorKind::InvalidInput.into())
    } else if typed.contains(':') {
        typed.to_socket_addrs()
    } else {
        (typed, PORT).to_socket_addrs()
    };
    found.ok().and_then(|mut found| found.next()).ok_or_else(|| {
        let what = "is no address: give one as 127.0.0.1:8000, a port, or a name that this machine knows";
        Failure::new(Code::Usage, format!("--listen {}: {what}", shown(typed.as_ref())))
    })
}

fn settings(arguments: &Serve) -> Result<Settings, Failure> {
    let usage = |message: String| Failure::new(Code::Usage, message);
    let mut logins = Logins::default();
    for path in &arguments.token_file {
        let tokens = secrets("--token-file", path).map_err(usage)?;
        if tokens.is_empty() {
            return Err(usage(format!("--token-file {}: there is no token in it", shown(path.as_os_str()))));
        }
        // Blanks at the end of a header are none of it.
        if tokens.iter().any(|token| token.trim_ascii().len() < token.len()) {
            let what = "a token begins or ends with a blank, which no client can send";
            return Err(usage(format!("--token-file {}: {what}", shown(path.as_os_str()))));
        }
        for token in &tokens {
            logins.add_token(token);
        }
    }
    for path in &arguments.login_file {
        let pairs = secrets("--login-file", path).map_err(usage)?;
        let is_bad = |pair: &Arc<[u8]>| !pair.contains(&b':');
        if pairs.is_empty() || pairs.iter().any(is_bad) {
            let what = "each of its lines must be USER:PASSWORD";
            return Err(usage(format!("--login-file {}: {what}", shown(path.as_os_str()))));
        }
        for pair in &pairs {
            logins.add_login(pair);
        }
    }
    if !(LEAST_TIMEOUT..=MOST_TIMEOUT).contains(&arguments.timeout) {
        let what = format!("give seconds between {LEAST_TIMEOUT} and {MOST_TIMEOUT}");
        return Err(usage(format!("--timeout {}: {what}", arguments.timeout)));
    }
    if arguments.most_clients == 0 {
        return Err(usage("--most-clients 0: nobody could connect".to_owned()));
    }
    Ok(Settings {
        title: named(&arguments.archives),
        folder: folder(&arguments.archives),
        logins,
        tls: tls(arguments)?,
        hosts: arguments.host.clone(),
        patience: Duration::from_secs(arguments.timeout),
        most_clients: arguments.most_clients,
        ..Settings::default()
    })
}

/// The certificate for HTTPS, if there is to be one.
fn tls(arguments: &Serve) -> Result<Option<Tls>, Failure> {
    let usage = |message: String| Failure::new(Code::Usage, message);
    let (Some(certificate), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) else { return Ok(None) };
    let certificates = secret("--tls-cert", certificate).map_err(usage)?;
    let key_bytes = secret("--tls-key", key).map_err(usage)?;
    if key.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o004 != 0) {
        let what = "all users of this machine can read it, unless they cannot come there: chmod o-r takes that away";
        log::warn!("--tls-key {}: {what}", shown(key.as_os_str()));
    }
    let made = Tls::new(&certificates, &key_bytes).map_err(|error| {
        let (option, path) = match error {
            TlsError::Certificate(_) => ("--tls-cert", certificate),
            _ => ("--tls-key", key),
        };
        usage(format!("{option} {}: {error}", shown(path.as_os_str())))
    });
    made.map(Some)
}

/// How many clients there is room for with so many open files. Each has a connection, and reads a file of a folder.
fn most_clients(open_files: usize) -> usize {
    /// For indexes, archives in folders, downloads and threads.
    const OTHERS: usize = 128;
    open_files.saturating_sub(OTHERS).div_euclid(2).max(1)
}

/// What the page of the root is called.
fn named(archives: &[PathBuf]) -> String {
    let first = archives.first().map(|first| first.file_name().map_or(OsString::from("root"), Into::into));
    first.unwrap_or_default().to_string_lossy().into_owned()
}

/// What an archive of the root is called, and the folder in it. With the name of the archive, unpacking it beside that
/// would take its place.
fn folder(archives: &[PathBuf]) -> Vec<u8> {
    let first = archives.first().filter(|first| !first.is_dir());
    let folder = first.and_then(|first| named_after(first).ok());
    let name = folder.as_deref().and_then(Path::file_name).map(|name| name.as_bytes().to_vec());
    let name = name.unwrap_or_else(|| named(archives).into_bytes());
    // That is a word for mount points.
    match (name.strip_suffix(b".mounted"), first.and_then(|first| first.file_name())) {
        (Some(stem), Some(own)) if stem == own.as_bytes() => [stem, b".files"].concat(),
        _ => name,
    }
}

/// What tells these archives from others, and from what they were before they were written anew; and whether there are
/// folders behind URLs among them.
fn salt(archives: &[PathBuf], options: &Options) -> (Vec<u8>, bool) {
    let (mut salt, mut is_far) = (Vec::new(), false);
    for path in archives {
        salt.extend_from_slice(path.file_name().unwrap_or_default().as_bytes());
        salt.push(b'/');
        let Ok(found) = path.metadata() else {
            match options.remotes.as_ref().map(|remotes| remotes.open(path)) {
                Some(Ok(remote)) => salt.extend_from_slice(remote.version.as_bytes()),
                Some(Err(_)) => is_far = true,
                None => {}
            }
            continue;
        };
        if !found.is_dir() {
            for number in [found.ino(), found.len(), found.mtime() as u64, found.mtime_nsec() as u64] {
                salt.extend_from_slice(&number.to_le_bytes());
            }
            continue;
        }
        // A folder with images shows as these, whose files have the times that they have there. Who makes images that
        // are always the same may set the times of what leads to them, too.
        for document in DOCUMENTS {
            let Ok(found) = path.join(document).metadata() else { continue };
            let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()].map(|time| time as u64);
            for number in [found.ino(), found.len()].into_iter().chain(times) {
                salt.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
    (salt, is_far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_known() {
        use std::fs::{self, Permissions};
        use std::os::unix::fs::PermissionsExt as _;

        let scratch = tempfile::tempdir().unwrap();
        let (folder, file) = (scratch.path().join("folder"), scratch.path().join("folder/file"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        // Who has this folder made may have it where nobody else comes.
        let around = scratch.path().parent().is_some_and(is_private);
        for (above, of_folder, of_file, is_own) in [
            (0o755, 0o755, 0o644, false),
            (0o711, 0o711, 0o604, false),
            (0o755, 0o755, 0o640, true),
            (0o755, 0o750, 0o644, true),
            (0o700, 0o755, 0o644, true),
        ] {
            set(&file, of_file);
            set(&folder, of_folder);
            set(scratch.path(), above);
            assert_eq!(is_private(&file), is_own || around, "{above:o} {of_folder:o} {of_file:o}");
        }
        for (mode, is_own) in [(0o755, false), (0o751, true), (0o754, true)] {
            set(scratch.path(), 0o755);
            set(&folder, mode);
            assert_eq!(is_private(&folder), is_own || around, "{mode:o}");
        }
    }

    #[test]
    fn an_address_may_be_said_in_part() {
        for (typed, address) in [
            ("80", "127.0.0.1:80"),
            ("0", "127.0.0.1:0"),
            ("127.0.0.2", "127.0.0.2:8276"),
            ("[::1]", "[::1]:8276"),
            ("::1", "[::1]:8276"),
            ("[::1]:80", "[::1]:80"),
            ("0.0.0.0:80", "0.0.0.0:80"),
        ] {
            assert_eq!(super::address(Some(typed)).unwrap(), address.parse().unwrap(), "{typed}");
        }
        assert_eq!(super::address(None).unwrap(), "127.0.0.1:8276".parse().unwrap());
        assert!(super::address(Some("localhost:80")).unwrap().ip().is_loopback());
        for bad in ["", ":80", "127.0.0.1:", "127.0.0.1:99999", "http://127.0.0.1/", "70000"] {
            assert_eq!(super::address(Some(bad)).unwrap_err().code, Code::Usage, "{bad}");
        }
    }
}
