//! Services that are not named by a host: where they are, and who asks. Of the environment.

use std::fmt;
use std::path::PathBuf;

use crate::url::Url;

/// What the environment says of services.
#[derive(Clone, Default)]
pub struct Services {
    /// `GITHUB_API_URL`, as in a job of GitHub; else GitHub's own.
    pub(crate) github_api: Option<String>,
    /// `GITHUB_RAW_URL`: where files are as they are.
    pub(crate) github_raw: Option<String>,
    /// `GITHUB_TOKEN`, or `GH_TOKEN`.
    pub(crate) github_token: Option<String>,
    /// `IPFS_GATEWAY`, else what the file `gateway` of IPFS has, else that of a node on this machine.
    pub(crate) ipfs_gateway: Option<String>,
    /// `DROPBOX_TOKEN`.
    pub(crate) dropbox_token: Option<String>,
    /// `DROPBOX_API_URL`: one server for all that is asked, instead of Dropbox's own.
    pub(crate) dropbox_api: Option<String>,
}

/// A file that names a gateway is not longer.
const LONGEST: u64 = 4 << 10;

impl Services {
    /// Reads it, and the file that names a gateway of IPFS.
    pub fn of_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let folder = || {
            let folder = std::env::var_os("IPFS_PATH").map(PathBuf::from);
            folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".ipfs")))
        };
        let of_file = || {
            let file = folder()?.join("gateway");
            let is_short = file.metadata().is_ok_and(|found| found.is_file() && found.len() <= LONGEST);
            let text = std::fs::read_to_string(file).ok().filter(|_| is_short)?;
            text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
        };
        Self {
            github_api: variable("GITHUB_API_URL"),
            github_raw: variable("GITHUB_RAW_URL"),
            github_token: variable("GITHUB_TOKEN").or_else(|| variable("GH_TOKEN")),
            ipfs_gateway: variable("IPFS_GATEWAY").or_else(of_file),
            dropbox_token: variable("DROPBOX_TOKEN"),
            dropbox_api: variable("DROPBOX_API_URL"),
        }
    }
}

/// Without tokens.
impl fmt::Debug for Services {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Services")
    }
}

/// What lies below a base, which a variable of this name may have given. An error says what is wrong with it.
pub(crate) fn below(base: Option<&String>, variable: &str, usual: &str, path: &str) -> Result<Url, String> {
    let base = base.map_or(usual, String::as_str).trim_end_matches('/');
    let is_web = ["http://", "https://"].iter().any(|scheme| base.starts_with(scheme));
    if !is_web {
        return Err(format!("{variable} is no URL that begins with https:// or http://"));
    }
    let base = Url::parse(base).map_err(|what| format!("{variable} is of no use: {what}"))?;
    let path = format!("{}{path}", base.path().trim_end_matches('/'));
    Ok(Url::of_parts(base.scheme(), base.authority().to_owned(), path, None))
}
