//! `ipfs://CID/PATH` and `ipns://NAME/PATH`: files of IPFS, through a gateway that speaks HTTP.
//!
//! What a CID names never changes, and a gateway says so (its ETag); a name may lead to another one tomorrow. The
//! gateway is believed: it is one's own, or one that was chosen.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use ureq::http::{HeaderName, Method};

use crate::backend::{Backend, Entry, Fault, Object};
use crate::http::{Access, HttpObject};
use crate::open::Settings;
use crate::services::below;
use crate::url::Url;

/// See the module.
pub(crate) struct Ipfs;

/// That of a node on this machine.
const USUAL: &str = "http://127.0.0.1:8080";

impl Backend for Ipfs {
    fn schemes(&self) -> &'static [&'static str] {
        &["ipfs", "ipns"]
    }

    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>> {
        let path = format!("/{}/{}{}", url.scheme(), url.authority(), url.path().trim_end_matches('/'));
        let at = below(settings.services.ipfs_gateway.as_ref(), "IPFS_GATEWAY", USUAL, &path);
        Ok(Box::new(HttpObject::new(Box::new(Gateway(at.map_err(io::Error::other)?)))))
    }

    fn reads(&self, _: &Settings) -> Vec<PathBuf> {
        Vec::new()
    }

    /// An answer tells it.
    fn may_be_folder(&self, _: &Url, _: Option<&io::Error>) -> bool {
        false
    }

    fn list(&self, _: &Url, _: &Settings, _: Instant) -> io::Result<Vec<Entry>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "folders of IPFS cannot be shown yet: name an archive in it"))
    }
}

#[derive(Debug)]
struct Gateway(Url);

impl Access for Gateway {
    fn url(&self) -> Url {
        self.0.clone()
    }

    fn login(&self, _: &Method, _: &Url) -> Result<Vec<(HeaderName, String)>, Fault> {
        Ok(Vec::new())
    }
}
