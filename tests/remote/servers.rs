//! Servers that the tests start: nginx, Apache (WebDAV), Python's, which knows no ranges, moto, which is one for S3,
//! those of OpenSSH and rclone, for FTP vsftpd and pyftpdlib's, and one that answers as GitHub, Dropbox and IPFS do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Mounted, Scratch, have, unique, wait_until};

/// Any port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server that ends with the test. It serves the folder `served` of a scratch folder.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) log: PathBuf,
}

impl Server {
    fn start(mut command: Command, port: u16, log: PathBuf) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)), log };
        wait_until("it listens", || {
            assert!(server.child.try_wait().unwrap().is_none(), "the server has ended");
            TcpStream::connect(server.address).is_ok()
        });
        server
    }

    /// nginx, with these lines for the server. `None` where it is not installed.
    pub(crate) fn nginx(scratch: &Scratch, lines: &str, tls: bool) -> Option<Self> {
        if !have("nginx") {
            return None;
        }
        let port = free_port();
        let folder = scratch.folder(format!("nginx-{}", unique()));
        let (at, served) = (folder.display(), scratch.folder("served"));
        let listen = if tls {
            certificates(scratch);
            let of = |name: &str| scratch.path(name).display().to_string();
            format!(
                "listen 127.0.0.1:{port} ssl; ssl_certificate {}; ssl_certificate_key {};",
                of("tls.crt"),
                of("tls.key")
            )
        } else {
            format!("listen 127.0.0.1:{port};")
        };
        let user = if crate::support::is_root() { "user root;" } else { "" };
        let text = format!(
            "{user} worker_processes 1; pid {at}/pid; error_log {at}/error.log; events {{}}
             http {{ access_log {at}/access.log; client_body_temp_path {at}/b; proxy_temp_path {at}/p;
             fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
             server {{ {listen} root {}; {lines} }} }}",
            served.display()
        );
        fs::write(folder.join("conf"), text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&folder).arg("-e").arg(folder.join("error.log")).arg("-c").arg(folder.join("conf"));
        command.args(["-g", "daemon off;"]);
        Some(Self::start(command, port, folder.join("access.log")))
    }

    /// Apache, which serves the folder over WebDAV below `/dav/` to `me` with this password, and to all without one.
    /// `None` where it is not installed.
    pub(crate) fn apache(scratch: &Scratch, password: Option<&str>) -> Option<Self> {
        const MODULES: &str = "/usr/lib/apache2/modules";
        let program = Path::new("/usr/sbin/apache2");
        if !program.exists() {
            return None;
        }
        let port = free_port();
        let folder = scratch.folder(format!("apache-{}", unique()));
        let (at, served) = (folder.display(), scratch.folder("served"));
        let names = [
            "mpm_event",
            "alias",
            "authn_core",
            "authn_file",
            "authz_core",
            "authz_user",
            "auth_basic",
            "dav",
            "dav_fs",
        ];
        let modules: String = names.map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n")).concat();
        let access = password.map_or("Require all granted".to_owned(), |password| {
            let hash = scratch.shell(&format!("openssl passwd -apr1 '{password}'"));
            fs::write(folder.join("logins"), format!("me:{hash}")).unwrap();
            format!("AuthType Basic\nAuthName x\nAuthUserFile {at}/logins\nRequire valid-user")
        });
        // It does not run as root.
        let user = if crate::support::is_root() { "User www-data\nGroup www-data\n" } else { "" };
        if crate::support::is_root() {
            scratch.shell("chmod -R o+rX .; mkdir -p dav-locks; chmod 777 dav-locks");
        }
        let text = format!(
            "{modules}{user}Listen 127.0.0.1:{port}\nServerName localhost\nPidFile {at}/pid\nErrorLog {at}/error.log
             DavLockDB {}/lock\nAlias /dav {served}\n<Location /dav>\nDav On\n{access}\n</Location>\n",
            scratch.folder("dav-locks").display(),
            served = served.display(),
        );
        fs::write(folder.join("conf"), text).unwrap();
        let mut command = Command::new(program);
        command.arg("-d").arg(&folder).arg("-f").arg(folder.join("conf")).arg("-DFOREGROUND");
        Some(Self::start(command, port, folder.join("error.log")))
    }

    /// Python's own server.
    pub(crate) fn python(scratch: &Scratch) -> Self {
        let port = free_port();
        let mut command = Command::new("python3");
        command.args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()]);
        command.current_dir(scratch.folder("served"));
        Self::start(command, port, PathBuf::new())
    }

    /// A server for S3 that looks at every signature ([`crate::s3`] says what is in it). `None` where it is not
    /// installed.
    pub(crate) fn moto() -> Option<Self> {
        let port = free_port();
        let mut command = Command::new(crate::peers::installed("moto_server")?);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        Some(Self::start(command, port, PathBuf::new()))
    }

    /// OpenSSH's, with these settings for a port.
    pub(crate) fn sshd(scratch: &Scratch, settings: impl Fn(u16) -> String) -> Self {
        let port = free_port();
        let folder = scratch.folder(format!("sshd-{}", unique()));
        fs::write(folder.join("conf"), settings(port)).unwrap();
        // It starts itself again for each connection, by its path.
        let mut command = Command::new(scratch.shell("command -v sshd").trim());
        command.arg("-D").arg("-E").arg(folder.join("log")).arg("-f").arg(folder.join("conf"));
        Self::start(command, port, folder.join("log"))
    }

    /// vsftpd, which serves the folder to everybody. `None` where it is not installed, or this is not root.
    pub(crate) fn vsftpd(scratch: &Scratch, tls: bool) -> Option<Self> {
        if !have("vsftpd") || !crate::support::is_root() {
            return None;
        }
        let port = free_port();
        let folder = scratch.folder(format!("vsftpd-{}", unique()));
        let (at, served) = (folder.display(), scratch.folder("served"));
        // It does not read as root, and nobody may write to the folder.
        scratch.shell("chmod o+x .; chmod -R o+rX,go-w served");
        scratch.folder(folder.join("empty"));
        let mut text = format!(
            "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nanonymous_enable=YES\nlocal_enable=NO
anon_root={}\nno_anon_password=YES\nsecure_chroot_dir={at}/empty\nxferlog_enable=YES\nvsftpd_log_file={at}/log
log_ftp_protocol=YES\nsyslog_enable=NO\nseccomp_sandbox=NO\nisolate_network=NO\n",
            served.display()
        );
        if tls {
            certificates(scratch);
            let of = |name: &str| scratch.path(name).display().to_string();
            let (certificate, key) = (of("tls.crt"), of("tls.key"));
            text.extend([format!(
                "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_logins_ssl=YES\nforce_anon_data_ssl=YES
require_ssl_reuse=YES\nrsa_cert_file={certificate}\nrsa_private_key_file={key}\nssl_ciphers=HIGH\n"
            )]);
        }
        fs::write(folder.join("conf"), text).unwrap();
        let mut command = Command::new("vsftpd");
        command.arg(folder.join("conf"));
        Some(Self::start(command, port, folder.join("log")))
    }

    /// That of `ftp.py`, with arguments for a port and the path of a log. `None` where its library is not installed.
    pub(crate) fn pyftpdlib(scratch: &Scratch, arguments: impl Fn(u16, String) -> Vec<String>) -> Option<Self> {
        // Debian's, wherever another one comes first.
        const PYTHON: &str = "/usr/bin/python3";
        let has = Command::new(PYTHON).args(["-c", "import pyftpdlib, OpenSSL"]).stderr(Stdio::null()).status();
        if !has.is_ok_and(|status| status.success()) {
            return None;
        }
        let port = free_port();
        let log = scratch.path(format!("ftp-{}", unique()));
        let mut command = Command::new(PYTHON);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/remote/ftp.py"));
        command.args(arguments(port, log.display().to_string()));
        Some(Self::start(command, port, log))
    }

    /// That of `services.py`, which answers as GitHub, Dropbox and a gateway of IPFS do.
    pub(crate) fn services(scratch: &Scratch, token: &str) -> Self {
        let port = free_port();
        let log = scratch.path(format!("services-{}", unique()));
        let mut command = Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/remote/services.py")).arg(port.to_string());
        command.arg(scratch.folder("served")).arg(&log).arg(token);
        Self::start(command, port, log)
    }

    /// rclone's for this protocol, with these options.
    pub(crate) fn rclone(scratch: &Scratch, protocol: &str, options: &[&str]) -> Self {
        let port = free_port();
        let mut command = Command::new("rclone");
        command.args(["serve", protocol, "--read-only", "--addr", &format!("127.0.0.1:{port}")]).args(options);
        command.arg(scratch.folder("served")).env("RCLONE_CONFIG", "/dev/null");
        Self::start(command, port, PathBuf::new())
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Requests so far, one in each line.
    pub(crate) fn requests(&self) -> Vec<String> {
        fs::read_to_string(&self.log).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // nginx has processes below it, which end with it when it is asked to.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A certificate authority of this test (`ca.crt`), and a certificate for `localhost` by it.
pub(crate) fn certificates(scratch: &Scratch) {
    if scratch.path("tls.crt").exists() {
        return;
    }
    scratch.shell(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tests -keyout ca.key -out ca.crt \
           -addext basicConstraints=critical,CA:TRUE 2>/dev/null
         openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout tls.key -out tls.csr 2>/dev/null
         printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' > ext
         openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out tls.crt 2>/dev/null",
    );
}

/// A folder `tree`, and archives of it in `served`: of every kind that is read in another way. They were not changed
/// just now: of such nothing is kept.
pub(crate) fn archives(scratch: &Scratch) -> Vec<&'static str> {
    scratch.folder("served");
    scratch.shell(
        "mkdir -p tree/d/e; seq 1 300000 > tree/numbers; echo hello > tree/d/hello; ln -s numbers tree/link
         head -c 3000000 /dev/urandom > tree/d/e/noise
         tar -C tree -cf served/a.tar .; tar -C tree -czf served/a.tar.gz .
         tar -C tree -c . | zstd -q -o served/a.tar.zst; (cd tree; zip -qry ../served/a.zip .)
         touch -d '5 minutes ago' served/*",
    );
    vec!["a.tar", "a.tar.gz", "a.tar.zst", "a.zip"]
}

/// Files in `served/alike` that have one length and one time: nothing but their bytes tells them apart.
pub(crate) fn alike(scratch: &Scratch) -> Vec<String> {
    scratch.folder("served/alike");
    scratch.shell(
        "cd served/alike; for i in 1 2 3 4; do head -c 6000000 /dev/urandom > $i; done; touch -d '5 minutes ago' *",
    );
    (1..=4).map(|number| number.to_string()).collect()
}

/// Reads all of them, each by a thread of its own.
pub(crate) fn assert_are_read_at_once(scratch: &Scratch, mount: &Mounted, names: &[String]) {
    std::thread::scope(|scope| {
        for name in names {
            scope.spawn(move || {
                let found = fs::read(mount.path(name)).unwrap();
                assert!(found == fs::read(scratch.path("served/alike").join(name)).unwrap(), "{name}");
            });
        }
    });
}

/// What lies in `tree`.
pub(crate) fn tree(scratch: &Scratch) -> PathBuf {
    scratch.path("tree")
}

/// A hash of all contents below `root`, by name.
pub(crate) fn contents(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for name in ["numbers", "d/hello", "d/e/noise", "link"] {
        found.push((PathBuf::from(name), fs::read(root.join(name)).unwrap_or_default()));
    }
    found
}
