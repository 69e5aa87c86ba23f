//! HTTPS: a certificate with its key, and what happens on a connection before the first request.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error as RustlsError, ServerConfig};
use tokio_rustls::server::TlsStream;

/// What is spoken inside; with it a client knows that it is not HTTP/2.
const PROTOCOL: &[u8] = b"http/1.1";

/// Bytes that wait for the network, on each connection: two records.
const BUFFER: usize = 32 << 10;

/// Bytes that are taken of who speaks no TLS, so that it sees the answer.
const MOST_PLAIN: usize = 64 << 10;

/// A certificate with its key. The handshake is that of TLS 1.2 or 1.3.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the key.
        formatter.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Why a certificate or a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// What is wrong with the file of the certificate.
    #[error("{0}")]
    Certificate(String),
    /// What is wrong with the file of the key.
    #[error("{0}")]
    Key(String),
    /// The two belong to different certificates.
    #[error("it is not the key of the certificate")]
    Mismatch,
}

/// What is wrong with a PEM file, in which `what` is looked for.
fn unreadable(error: &PemError, what: &str) -> String {
    match error {
        PemError::NoItemsFound => format!("there is no {what} in it (PEM, with a line -----BEGIN ...-----)"),
        _ => format!("a {what} in it is cut or damaged"),
    }
}

impl Tls {
    /// Takes a certificate, with those between it and its authority behind it, and its private key, all as PEM. The
    /// key may stand among other things, and must not be encrypted.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| TlsError::Certificate(unreadable(&error, "certificate")))?;
        if chain.is_empty() {
            return Err(TlsError::Certificate(unreadable(&PemError::NoItemsFound, "certificate")));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            let is_encrypted = key.windows(9).any(|word| word == b"ENCRYPTED");
            TlsError::Key(if is_encrypted {
                "the key is encrypted: `openssl pkey -in FILE -out NEW` writes it without a password".to_owned()
            } else {
                unreadable(&error, "private key")
            })
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        // It has what these versions need.
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| TlsError::Key(error.to_string()))?;
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(|error| match error {
            RustlsError::InconsistentKeys(_) => TlsError::Mismatch,
            RustlsError::InvalidCertificate(what) => {
                TlsError::Certificate(format!("the certificate cannot be used: {what}"))
            }
            _ => TlsError::Key(
                "the key is of a kind that is not known here: RSA from 2048 bits, ECDSA (P-256, P-384) and Ed25519 are"
                    .to_owned(),
            ),
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// The handshake. It ends when the client likes: the caller bounds its time. Who speaks plain HTTP is told so.
    pub(crate) async fn accept(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut first = [0];
        let seen = stream.peek(&mut first).await?;
        // Methods of HTTP are letters; a handshake begins with 22.
        if seen == 1 && first[0].is_ascii_alphabetic() {
            tell(&mut stream).await?;
            return Err(io::Error::other("plain HTTP, where HTTPS is spoken"));
        }
        self.0.accept_with(stream, |connection| connection.set_buffer_limit(Some(BUFFER))).await
    }
}

/// Answers who speaks plain HTTP.
async fn tell(stream: &mut TcpStream) -> io::Result<()> {
    let what = "This is an HTTPS port: the address begins with https://.\n";
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n";
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{what}", what.len()).as_bytes()).await?;
    stream.shutdown().await?;
    // A connection that is closed with something unread is reset, and the answer may be lost with it.
    let mut rest = stream.take(MOST_PLAIN as u64);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(drop)
}
