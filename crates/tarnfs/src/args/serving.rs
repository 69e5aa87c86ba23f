//! Options of `tarnfs serve`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::definitions::Open;
use super::images::Images;
use super::size::parse_number;

/// Pages of folders, files, and WebDAV, for reading. Ctrl-C ends it.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Serve {
    /// Archives and folders. Several are merged: where they have the same path, the last one shows
    #[arg(required = true, value_name = "ARCHIVE")]
    pub(crate) archives: Vec<PathBuf>,

    /// Where to listen: an address, a port, or both, as in 192.0.2.1:8000, [::]:8000. With port 0 any that is free
    /// [default: 127.0.0.1:8276]
    #[arg(long, value_name = "ADDR", help_heading = "Serving")]
    pub(crate) listen: Option<String>,

    /// File with tokens, one in each line: who has one may read, as a Bearer token or as the password of any user
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Serving")]
    pub(crate) token_file: Vec<PathBuf>,

    /// File with users who may read, in each line USER:PASSWORD
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Serving")]
    pub(crate) login_file: Vec<PathBuf>,

    /// Serve over HTTPS with this certificate. It is PEM, with those between it and its authority behind it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key", help_heading = "Serving")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of the certificate, PEM and not encrypted
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert", help_heading = "Serving")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Let everybody read who reaches an address that is not loopback
    #[arg(long, conflicts_with_all = ["token_file", "login_file"], help_heading = "Serving")]
    pub(crate) open_to_all: bool,

    /// Answer under this name, too, as behind a proxy. Loopback answers only as localhost otherwise
    #[arg(long, value_name = "NAME", help_heading = "Serving")]
    pub(crate) host: Vec<String>,

    /// Close connections on which nothing moves for so long
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_number::<u64>, help_heading = "Serving")]
    pub(crate) timeout: u64,

    /// Connections at the same time. Where one more comes, the one is closed that has been idle the longest
    #[arg(long, value_name = "N", default_value = "4096", value_parser = parse_number::<usize>, help_heading = "Serving")]
    pub(crate) most_clients: usize,

    /// Show each archive in a folder of its own, named after it
    #[arg(long, help_heading = "What is shown")]
    pub(crate) disable_union_mount: bool,

    #[command(flatten)]
    pub(crate) images: Images,

    /// Show only this folder of the archive
    #[arg(short = 'p', long, value_name = "PATH", help_heading = "What is shown")]
    pub(crate) prefix: Option<OsString>,

    /// Show no older versions of files
    #[arg(long, help_heading = "What is shown")]
    pub(crate) no_file_versions: bool,

    /// With -r, open archives in it when somebody looks into them
    #[arg(short = 'l', long, help_heading = "What is shown")]
    pub(crate) lazy: bool,

    #[command(flatten)]
    pub(crate) open: Open,
}
