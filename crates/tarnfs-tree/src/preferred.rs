//! What a file is read as that could be several things (`--use-backend`).

use tarnfs_codec::{CODECS, Codec};
use tarnfs_format::{FORMATS, Format, Probe, backends, by_name, detect};

/// What a file is.
#[derive(Clone, Copy)]
pub(crate) enum Choice {
    /// An archive.
    Format(&'static dyn Format),
    /// Something compressed.
    Codec(&'static dyn Codec),
}

/// What comes first where a file could be several things.
#[derive(Clone, Default)]
pub(crate) struct Preferred(Vec<Choice>);

impl std::fmt::Debug for Preferred {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.iter().map(|choice| match choice {
            Choice::Format(format) => format.name(),
            Choice::Codec(codec) => codec.name(),
        });
        formatter.debug_list().entries(names).finish()
    }
}

impl Preferred {
    /// Of these names, the first one before all others. The error names one that does not exist.
    pub(crate) fn new<N: AsRef<str>>(names: &[N]) -> Result<Self, String> {
        let mut choices = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            let backend = backends::read_by(name);
            let own = [name];
            let (formats, codecs) = backend.unwrap_or((&own[..], &own[..]));
            let formats = formats.iter().filter_map(|name| by_name(name)).map(Choice::Format);
            // What only a container uses is in no file of its own.
            let of_files = |codec: &&'static dyn Codec| codec.file_codec().is_some_and(|own| !own.about().is_empty());
            let codecs = codecs.iter().filter_map(|name| tarnfs_codec::by_name(name)).filter(of_files);
            let before = choices.len();
            choices.extend(formats.chain(codecs.map(Choice::Codec)));
            if choices.len() == before && backend.is_none() {
                return Err(format!(
                    "{name}: there is no format or backend of that name; there are {}",
                    known().join(", ")
                ));
            }
        }
        Ok(Self(choices))
    }

    /// What is preferred, and what `probe` shows may be.
    pub(crate) fn choose(&self, probe: &Probe<'_>) -> Option<Choice> {
        self.0.iter().copied().find(|choice| match choice {
            Choice::Format(format) => format.bid(probe) > 0,
            Choice::Codec(codec) => codec.bid(probe.head()) > 0,
        })
    }

    /// The format that is preferred of those that bid for what `probe` shows, else the one that bids highest.
    pub(crate) fn detect(&self, probe: &Probe<'_>) -> Option<&'static dyn Format> {
        match self.choose(probe) {
            Some(Choice::Format(format)) => Some(format),
            _ => detect(probe),
        }
    }
}

/// All names.
fn known() -> Vec<&'static str> {
    let codecs = CODECS.iter().filter(|codec| !codec.about().is_empty()).map(|codec| codec.name());
    let formats = FORMATS.iter().map(|format| format.name());
    let mut names: Vec<_> = backends::names().chain(formats).chain(codecs).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_of_ratarmount_is_known() {
        for name in known() {
            Preferred::new(&backends::in_order([name].into_iter())).unwrap();
        }
        let refused = Preferred::new(&["bsdtar"]).unwrap_err();
        assert!(refused.contains("bsdtar") && refused.contains("py7zr"), "{refused}");
        let shown = format!("{:?}", Preferred::new(&["py7zr", "tarfile"]).unwrap());
        assert!(shown.starts_with("[\"7z\", \"tar\", \"gzip\""), "{shown}");
    }

    /// What does not bid is no candidate, however much it is preferred.
    #[test]
    fn what_does_not_fit_is_not_preferred() {
        let head = b"7z\xbc\xaf\x27\x1c\0\x04".to_vec();
        let probe = Probe::of_head(&head);
        let preferred = Preferred::new(&["zipfile", "tarfile"]).unwrap();
        assert!(preferred.choose(&probe).is_none());
        assert_eq!(preferred.detect(&probe).map(tarnfs_format::Format::name), Some("7z"));
    }
}
