//! `tarnfs serve` with a certificate, which each test makes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a test says what it could not test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::served::{Served, request};
use crate::support::{self, Scratch, have, wait_until};

const WORDS: [&str; 4] = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];

/// An archive `a.tar`, and a certificate `cert.pem` of `ca.pem` with its `key.pem`. False if there is no program for
/// it.
fn prepare(scratch: &Scratch) -> bool {
    if !have("openssl") || !have("curl") {
        println!("left out: no openssl or no curl");
        return false;
    }
    scratch.shell(
        "seq 300000 > long; echo one > one; tar -cf a.tar one long
         new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2'
         authority() { $new -x509 -subj \"/CN=$1\" -keyout $1.key -out $1.pem -addext basicConstraints=critical,CA:TRUE; }
         authority ca 2>&1; authority other 2>&1; chmod 600 *.key
         $new -subj /CN=localhost -keyout key.pem -out request.pem 2>&1; chmod 600 key.pem
         echo 'subjectAltName=DNS:localhost,IP:127.0.0.1' > names
         openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem 2>&1",
    );
    true
}

fn curl(scratch: &Scratch, words: &[&str]) -> Output {
    Command::new("curl").args(["-sS", "--max-time", "300"]).args(words).current_dir(scratch.path("")).output().unwrap()
}

/// What `openssl s_client` says with these words, and its exit code.
fn handshake(scratch: &Scratch, served: &Served, words: &[&str]) -> (String, bool) {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &served.address.to_string()]).args(words).stdin(Stdio::null());
    command.current_dir(scratch.path(""));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&said).into_owned(), output.status.success())
}

/// How many sockets the process has open.
fn sockets(served: &Served) -> usize {
    let is_socket = |path: PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    let open = fs::read_dir(format!("/proc/{}/fd", served.process.id())).unwrap();
    open.filter(|entry| is_socket(entry.as_ref().unwrap().path())).count()
}

/// > With a certificate, `serve` answers over HTTPS only.
#[test]
fn https_is_spoken_with_who_trusts_the_certificate() {
    /// Of curl.
    const UNKNOWN_AUTHORITY: i32 = 60;
    let scratch = Scratch::new();
    if !prepare(&scratch) {
        return;
    }
    let served = Served::new(&scratch, WORDS.into_iter().chain(["a.tar"]));
    let url = |path: &str| format!("{}/{path}", served.url());
    assert!(url("").starts_with("https://127.0.0.1:"), "{}", url(""));
    let got = curl(&scratch, &["--cacert", "ca.pem", &url("long")]);
    assert!(got.stdout == fs::read(scratch.path("long")).unwrap(), "{}", String::from_utf8_lossy(&got.stderr));
    let part = curl(&scratch, &["--cacert", "ca.pem", "-r", "2-3", "-w", "%{http_version} %{http_code}", &url("long")]);
    assert_eq!(String::from_utf8_lossy(&part.stdout), "2\n1.1 206");
    // It is nobody whom another authority knows.
    for words in [&["--cacert", "other.pem"][..], &[]] {
        let refused = curl(&scratch, &[words, &[&url("one")]].concat());
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(UNKNOWN_AUTHORITY), 0), "{words:?}");
    }
    for (version, is_spoken) in [("-tls1_2", true), ("-tls1_3", true), ("-tls1_1", false)] {
        let (said, ended_well) = handshake(&scratch, &served, &[version, "-alpn", "h2,http/1.1", "-CAfile", "ca.pem"]);
        let is_right =
            ended_well && said.contains("ALPN protocol: http/1.1") && said.contains("Verify return code: 0 (ok)");
        assert_eq!(is_right, is_spoken, "{version}: {said}");
    }
    assert!(!handshake(&scratch, &served, &["-alpn", "h2"]).1);
    // Who speaks no TLS is told what this is, and gets nothing else.
    let plain = served.get("/one").whole(400);
    assert!(plain.text().contains("https://"), "{plain:?}");
    let mut neither = served.connect();
    neither.send(b"\x00\x01\x02\r\n\r\n");
    assert!(neither.has_end());
    let again = curl(&scratch, &["--cacert", "ca.pem", &url("one"), &url("one")]);
    assert_eq!(again.stdout, b"one\none\n");
    assert_eq!(served.end(), Some(0));
}

/// > A client that does not come to the end of its handshake is closed, and makes room for others.
#[test]
fn who_does_not_shake_hands_goes() {
    let scratch = Scratch::new();
    if !prepare(&scratch) {
        return;
    }
    // The beginning of a handshake.
    let half = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let served = Served::new(&scratch, WORDS.into_iter().chain(["--timeout", "1", "a.tar"]));
    for begun in [&b""[..], half] {
        let mut silent = served.connect();
        silent.send(begun);
        assert!(silent.has_end(), "{begun:?}");
    }
    assert_eq!(served.end(), Some(0));
    let served = Served::new(&scratch, WORDS.into_iter().chain(["--timeout", "600", "--most-clients", "4", "a.tar"]));
    let mut silent: Vec<_> = (0..8).map(|_| served.connect()).collect();
    for connection in &mut silent[4..] {
        connection.send(half);
    }
    let got = curl(&scratch, &["--cacert", "ca.pem", &format!("{}/one", served.url())]);
    assert_eq!(got.stdout, b"one\n", "{}", String::from_utf8_lossy(&got.stderr));
    assert_eq!(served.end(), Some(0));
}

/// Over HTTPS as over HTTP: who takes nothing of an answer does not hold it for ever.
#[test]
fn who_takes_nothing_goes_over_https_too() {
    let scratch = Scratch::new();
    if !prepare(&scratch) {
        return;
    }
    scratch.shell("truncate -s 30M holes; tar -cf b.tar holes");
    let served = Served::new(&scratch, WORDS.into_iter().chain(["--timeout", "2", "b.tar"]));
    let before = sockets(&served);
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &served.address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    client.stdin.as_mut().unwrap().write_all(&request("GET", "/holes", &[], b"")).unwrap();
    // It writes what it gets to a pipe, which nobody empties.
    client.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    wait_until("the connection is closed", || sockets(&served) == before);
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(served.end(), Some(0));
}

#[test]
fn what_is_no_certificate_or_no_key_is_said_to_be_none() {
    let scratch = Scratch::new();
    if !prepare(&scratch) {
        return;
    }
    scratch.shell(
        "head -c 300 cert.pem > cut.pem; openssl pkey -in key.pem -aes256 -passout pass:x -out locked.pem
         openssl ecparam -name secp521r1 -genkey -noout -out odd.pem; : > empty
         printf -- '-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n' > wrong.pem
         cat key.pem cert.pem > both.pem; chmod 600 *.pem",
    );
    let serve = |words: &[&str]| {
        let mut command = support::tarnfs(&scratch);
        let output = command.arg("serve").args(words).args(["--listen=0", "a.tar"]).current_dir(scratch.path(""));
        let output = output.output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (cert, key, what) in [
        ("none", "key.pem", "--tls-cert none: cannot be read: No such file"),
        ("cert.pem", "none", "--tls-key none: cannot be read: No such file"),
        ("empty", "key.pem", "--tls-cert empty: there is no certificate in it"),
        ("key.pem", "key.pem", "--tls-cert key.pem: there is no certificate in it"),
        ("cut.pem", "key.pem", "--tls-cert cut.pem: a certificate in it is cut or damaged"),
        ("wrong.pem", "key.pem", "--tls-cert wrong.pem: the certificate cannot be used: "),
        ("cert.pem", "cert.pem", "--tls-key cert.pem: there is no private key in it"),
        ("cert.pem", "ca.key", "--tls-key ca.key: it is not the key of the certificate"),
        ("cert.pem", "locked.pem", "--tls-key locked.pem: the key is encrypted"),
        ("cert.pem", "odd.pem", "--tls-key odd.pem: the key is of a kind that is not known here"),
    ] {
        let said = serve(&["--tls-cert", cert, "--tls-key", key]);
        assert!(said.contains(what) && said.lines().count() == 1, "{what}: {said}");
    }
    assert!(serve(&["--tls-cert=cert.pem"]).contains("--tls-key"));
    assert!(serve(&["--tls-key=key.pem"]).contains("--tls-cert"));
    let served = Served::new(&scratch, ["--tls-cert", "both.pem", "--tls-key", "both.pem", "a.tar"]);
    let got = curl(&scratch, &["--cacert", "ca.pem", &format!("{}/one", served.url())]);
    assert_eq!(got.stdout, b"one\n");
}

#[test]
fn what_others_may_read_is_told() {
    let scratch = Scratch::new();
    if !prepare(&scratch) {
        return;
    }
    scratch.shell("echo sesame > tokens");
    let login = ["--listen", "0.0.0.0:0", "--token-file", "tokens"];
    let said = |words: &[&str]| Served::new(&scratch, words.iter().chain(&["a.tar"])).said();
    let (readable, in_clear) = ("--tls-key key.pem: all users of this machine can read it", "travel in clear");
    let private = said(&[&WORDS[..], &login].concat());
    assert!(!private.contains(readable) && !private.contains(in_clear), "{private}");
    scratch.shell("chmod 644 key.pem");
    assert!(said(&WORDS).contains(readable));
    assert!(said(&login).contains(in_clear));
    assert!(!said(&login[2..]).contains(in_clear), "loopback is no network");
}
