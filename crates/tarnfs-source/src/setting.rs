use std::fmt;
use std::sync::OnceLock;

/// A setting that a message advises or names.
///
/// The libraries do not know how their user sets it: on a command line, as an argument of a function, or in a file. So
/// a message has the setting, and the program says once how it calls them ([`Setting::call_them`]). Until then each is
/// shown by its [`name`](Setting::name) in backticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// How many bytes are kept on disk.
    CacheSize,
    /// The memory budget.
    CacheMemory,
    /// Whether an archive is looked at for a dump directory of GNU tar.
    DetectGnuIncremental,
    /// What the names in an archive are encoded in.
    Encoding,
    /// Damaged archives are served as far as they go.
    Force,
    /// The list of formats.
    Formats,
    /// How many decoded bytes lie between two seek points of gzip.
    GzipSeekPointSpacing,
    /// Names of dump directories are those of GNU tar.
    GnuIncremental,
    /// Which hashes of each file an index has.
    Hashes,
    /// The names that a server answers to.
    Host,
    /// What lies behind zero blocks of a tar is read.
    IgnoreZeros,
    /// No index is made where none can be used.
    NoRecreateIndex,
    /// The network is not asked.
    Offline,
    /// A password.
    Password,
    /// A file with passwords.
    PasswordFile,
    /// For which machines images of containers are shown.
    Platform,
    /// An index is made again.
    RecreateIndex,
    /// How many archives in one another are opened.
    RecursionDepth,
    /// Archives in archives are folders.
    Recursive,
    /// Which names may be those of archives in archives.
    RecursiveExtensions,
    /// Archives in archives show without the end of their name.
    StripRecursiveTarExtension,
    /// How paths are changed.
    Transform,
    /// How the paths of archives in archives are changed.
    TransformRecursiveMountPoint,
    /// Indexes of other users are used.
    TrustIndex,
    /// What a file is read as.
    UseBackend,
    /// The folder for what is written.
    WriteOverlay,
    /// The dictionary of zstd.
    ZstdDictionary,
}

static CALLED: OnceLock<fn(Setting) -> String> = OnceLock::new();

impl Setting {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::CacheSize,
        Self::CacheMemory,
        Self::DetectGnuIncremental,
        Self::Encoding,
        Self::Force,
        Self::Formats,
        Self::GzipSeekPointSpacing,
        Self::GnuIncremental,
        Self::Hashes,
        Self::Host,
        Self::IgnoreZeros,
        Self::NoRecreateIndex,
        Self::Offline,
        Self::Password,
        Self::PasswordFile,
        Self::Platform,
        Self::RecreateIndex,
        Self::RecursionDepth,
        Self::Recursive,
        Self::RecursiveExtensions,
        Self::StripRecursiveTarExtension,
        Self::Transform,
        Self::TransformRecursiveMountPoint,
        Self::TrustIndex,
        Self::UseBackend,
        Self::WriteOverlay,
        Self::ZstdDictionary,
    ];

    /// Says how the user of this program calls the settings; the first call of the process counts.
    pub fn call_them(called: fn(Self) -> String) {
        let _ = CALLED.set(called);
    }

    /// Its name, the words with `-` between them.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CacheSize => "cache-size",
            Self::CacheMemory => "cache-memory",
            Self::DetectGnuIncremental => "detect-gnu-incremental",
            Self::Encoding => "encoding",
            Self::Force => "force",
            Self::Formats => "formats",
            Self::GzipSeekPointSpacing => "gzip-seek-point-spacing",
            Self::GnuIncremental => "gnu-incremental",
            Self::Hashes => "hashes",
            Self::Host => "host",
            Self::IgnoreZeros => "ignore-zeros",
            Self::NoRecreateIndex => "no-recreate-index",
            Self::Offline => "offline",
            Self::Password => "password",
            Self::PasswordFile => "password-file",
            Self::Platform => "platform",
            Self::RecreateIndex => "recreate-index",
            Self::RecursionDepth => "recursion-depth",
            Self::Recursive => "recursive",
            Self::RecursiveExtensions => "recursive-extensions",
            Self::StripRecursiveTarExtension => "strip-recursive-tar-extension",
            Self::Transform => "transform",
            Self::TransformRecursiveMountPoint => "transform-recursive-mount-point",
            Self::TrustIndex => "trust-index",
            Self::UseBackend => "use-backend",
            Self::WriteOverlay => "write-overlay",
            Self::ZstdDictionary => "zstd-dictionary",
        }
    }
}

/// As the user of the program calls it.
impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CALLED.get() {
            Some(called) => formatter.write_str(&called(*self)),
            None => write!(formatter, "`{}`", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_no_dashes_before_it() {
        let names: std::collections::BTreeSet<_> = Setting::ALL.iter().map(|setting| setting.name()).collect();
        assert_eq!(names.len(), Setting::ALL.len());
        assert!(names.iter().all(|name| !name.starts_with('-')));
        assert_eq!(format!("see {}", Setting::CacheSize), "see `cache-size`");
    }
}
