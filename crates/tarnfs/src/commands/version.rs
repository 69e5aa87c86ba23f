use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use crate::exit::{Code, Failure};
use crate::sandbox;
use crate::terminal::{escaped, output_failure};

/// Prints the version; `in_full` with what a report of an error should have beside it.
pub(crate) fn run(in_full: bool) -> Result<Code, Failure> {
    let mut text = format!("tarnfs {}\n", env!("CARGO_PKG_VERSION"));
    if in_full {
        text.extend(details().map(|(what, value)| format!("{what}: {value}\n")));
    }
    io::stdout().write_all(text.as_bytes()).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}

fn details() -> [(&'static str, String); 8] {
    let mut libraries = vec![format!("SQLite {}", tarnfs_index::sqlite_version())];
    libraries.extend(tarnfs_codec::c_libraries().map(|(name, version)| format!("{name} {version}")));
    let mut formats: Vec<_> = tarnfs_format::FORMATS.iter().map(|format| format.name()).collect();
    formats.sort_unstable();
    // What only a container uses is told with that.
    let codecs = tarnfs_codec::CODECS.iter().filter(|codec| !codec.about().is_empty());
    let codecs: Vec<_> = codecs.map(|codec| codec.name()).collect();
    let indexes = format!("schema {} of tarnfs, 0.5 to 0.7 of ratarmount", tarnfs_index::SCHEMA_VERSION);
    let helper = match tarnfs_fuse::fusermount() {
        Ok(path) => escaped(path.as_os_str().as_bytes()),
        Err(_) => "not found".to_owned(),
    };
    [
        ("libraries", libraries.join(", ")),
        ("formats", formats.join(", ")),
        ("codecs", codecs.join(", ")),
        ("indexes", indexes),
        ("kernel", kernel()),
        ("FUSE", fuse()),
        ("fusermount3", helper),
        ("sandbox", sandbox()),
    ]
}

/// As `uname -sr` tells it.
fn kernel() -> String {
    let of = |name| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {}", of("ostype").trim(), of("osrelease").trim())
}

/// What the kernel's side of FUSE can do, or why that is not known.
fn fuse() -> String {
    match tarnfs_fuse::offer() {
        Ok(offer) => {
            let passthrough = if offer.passthrough { "passthrough" } else { "no passthrough" };
            let ((major, minor), (our_major, our_minor)) = (offer.version, offer.ours);
            format!("protocol {major}.{minor} (tarnfs knows {our_major}.{our_minor}), {passthrough}")
        }
        Err(error) => crate::terminal::harmless(error),
    }
}

/// What there is to give up rights with.
fn sandbox() -> String {
    let landlock =
        sandbox::landlock_version().map_or("no Landlock".to_owned(), |version| format!("Landlock {version}"));
    let seccomp = if sandbox::has_seccomp() { "seccomp" } else { "no seccomp" };
    format!("{landlock}, {seccomp}")
}
