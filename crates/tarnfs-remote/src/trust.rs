//! Certificates that are trusted: those of the system, and of whom `SSL_CERT_FILE` and `SSL_CERT_DIR` name.

use std::sync::OnceLock;

use rustls_native_certs::load_native_certs;

/// A certificate (DER).
pub(crate) type Certificate = Vec<u8>;

/// Those that are trusted; `None` where the system has none and nobody names others: then those that Mozilla trusts
/// are. Files are read the first time.
pub(crate) fn trusted() -> Option<&'static [Certificate]> {
    static TRUSTED: OnceLock<Option<Vec<Certificate>>> = OnceLock::new();
    let load = || {
        let found: Vec<_> = load_native_certs().certs.iter().map(|found| found.to_vec()).collect();
        let are_named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
        if found.is_empty() && are_named {
            log::warn!("what SSL_CERT_FILE or SSL_CERT_DIR names has no certificates: no server is trusted");
        }
        // Who names others trusts no more than those.
        (!found.is_empty() || are_named).then_some(found)
    };
    TRUSTED.get_or_init(load).as_deref()
}
