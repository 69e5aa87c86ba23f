//! Programs that write and read tars, and how each does what.

use std::ffi::OsString;
use std::path::Path;

use crate::measure::{Job, Kept, Program};
use crate::{Report, Settings};

/// What they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    List,
    Extract,
    Compare,
}

impl Operation {
    pub(super) const ALL: [Self; 4] = [Self::Create, Self::List, Self::Extract, Self::Compare];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::List => "list",
            Self::Extract => "extract",
            Self::Compare => "compare",
        }
    }
}

/// A compression, and the programs that undo it on all cores, the best first.
#[derive(Debug)]
pub(crate) struct Compression {
    pub(crate) name: &'static str,
    pub(crate) suffix: &'static str,
    /// With the options that make them use all cores.
    programs: &'static [(&'static str, &'static str)],
}

/// All that are measured. The first is none.
pub(crate) const COMPRESSIONS: [Compression; 5] = [
    Compression { name: "none", suffix: ".tar", programs: &[] },
    Compression { name: "gzip", suffix: ".tar.gz", programs: &[("pigz", ""), ("gzip", "")] },
    Compression { name: "bzip2", suffix: ".tar.bz2", programs: &[("lbzip2", ""), ("pbzip2", ""), ("bzip2", "")] },
    Compression { name: "xz", suffix: ".tar.xz", programs: &[("xz", " -T0")] },
    Compression { name: "zstd", suffix: ".tar.zst", programs: &[("zstd", " -T0")] },
];

impl Compression {
    /// The command of a program that is installed; empty where nothing is compressed.
    pub(crate) fn command(&self, settings: &Settings, report: &mut Report) -> Option<String> {
        if self.programs.is_empty() {
            return Some(String::new());
        }
        self.programs.iter().find_map(|(name, options)| {
            let program = settings.program(report, name)?;
            // tar splits the command at blanks, so a path with some cannot be given.
            let path = program.path.to_str().filter(|path| !path.contains(char::is_whitespace))?;
            Some(format!("{path}{options}"))
        })
    }
}

/// The tar that is not compressed.
pub(super) const PLAIN: &str = "archive.tar";

/// How a program is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Own,
    /// The same, where there is an index already.
    OwnWithIndex,
    Gnu,
    Bsd,
    Star,
    /// The compressor by itself, on a tar that is there already.
    Alone,
}

/// A program in a manner.
#[derive(Debug)]
pub(super) struct Archiver {
    pub(super) name: String,
    program: Program,
    manner: Manner,
    /// It has an operation that compares.
    compares: bool,
}

impl Archiver {
    /// All that are installed.
    pub(super) fn all(settings: &Settings, report: &mut Report) -> Vec<Self> {
        let mut help = settings.tarnfs.job(["-h"], settings.limit);
        let help = help.keep(Kept::All).run(&settings.cancel).map(|done| done.output).unwrap_or_default();
        let compares = String::from_utf8_lossy(&help).lines().any(|line| line.trim_start().starts_with("compare "));
        let own =
            |name: &str, manner| Self { name: name.to_owned(), program: settings.tarnfs.clone(), manner, compares };
        let mut all = vec![own("tarnfs", Manner::Own), own("tarnfs, with index", Manner::OwnWithIndex)];
        for (name, manner) in [("tar", Manner::Gnu), ("bsdtar", Manner::Bsd), ("star", Manner::Star)] {
            if let Some(program) = settings.program(report, name) {
                all.push(Self { name: name.to_owned(), program, manner, compares: manner != Manner::Bsd });
            }
        }
        all
    }

    /// What a compressor does by itself with a tar that is there already: writing one cannot take less.
    pub(super) fn alone(settings: &Settings) -> Self {
        let name = "compressor alone".to_owned();
        Self { name, program: settings.tarnfs.clone(), manner: Manner::Alone, compares: false }
    }

    /// Why it has no such operation, if so.
    pub(super) fn lacks(&self, operation: Operation, compress: &str) -> Option<&'static str> {
        match (operation, self.manner) {
            (Operation::Create, Manner::Alone) if compress.is_empty() => Some("nothing is compressed there"),
            (Operation::List | Operation::Extract | Operation::Compare, Manner::Alone) => {
                Some("it has no such operation")
            }
            (Operation::Create, Manner::OwnWithIndex) => Some("an index is of no use there"),
            (Operation::Compare, _) if !self.compares => Some("it has no such operation"),
            _ => None,
        }
    }

    /// True if what it does begins with no index.
    pub(super) fn begins_without_index(&self) -> bool {
        self.manner == Manner::Own
    }

    pub(super) fn is_gnu(&self) -> bool {
        self.manner == Manner::Gnu
    }

    /// The call. What goes in is the folder `tree`; what is extracted goes to `out`; indexes are in `keeps`.
    pub(super) fn call(
        &self,
        operation: Operation,
        compress: &str,
        archive: &Path,
        [tree, out, keeps]: [&Path; 3],
        settings: &Settings,
    ) -> Job {
        if self.manner == Manner::Alone {
            let (program, options) = compress.split_once(' ').unwrap_or((compress, ""));
            let options = options.split_whitespace().map(OsString::from);
            let plain = archive.with_file_name(PLAIN);
            let arguments = options.chain([OsString::from("-c"), OsString::from(plain)]);
            let mut job = Job::new(Path::new(program), arguments, settings.limit);
            job.keep(Kept::File(archive.to_owned()));
            return job;
        }
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let path = |option: &str, path: &Path| {
            let mut word = OsString::from(option);
            word.push(path);
            word
        };
        let mut arguments = match (self.manner, operation) {
            (Manner::Own | Manner::OwnWithIndex, Operation::Create) => words(&["create", "--no-index"]),
            (Manner::Own | Manner::OwnWithIndex, Operation::List) => words(&["ls", "-R"]),
            (Manner::Own | Manner::OwnWithIndex, Operation::Extract) => words(&["extract", "-C"]),
            (Manner::Own | Manner::OwnWithIndex, Operation::Compare) => words(&["compare"]),
            // See above.
            (Manner::Alone, _) => Vec::new(),
            (Manner::Star, Operation::Extract) => words(&["-x", "-p"]),
            (Manner::Star, Operation::Compare) => words(&["-diff"]),
            (_, Operation::Create) => words(&["-c"]),
            (_, Operation::List) => words(&["-t"]),
            (_, Operation::Extract) => words(&["-x"]),
            (_, Operation::Compare) => words(&["-d"]),
        };
        match self.manner {
            Manner::Own | Manner::OwnWithIndex => {
                match operation {
                    Operation::Create => arguments.extend([OsString::from(archive), ".".into()]),
                    Operation::List => arguments.push(archive.into()),
                    Operation::Extract => arguments.extend([OsString::from(out), archive.into()]),
                    Operation::Compare => arguments.extend([OsString::from(archive), tree.into()]),
                }
                // Who extracts or compares gets no index unless it is asked for.
                if operation == Operation::List || self.manner == Manner::OwnWithIndex && operation != Operation::Create
                {
                    arguments.push(path("--index-folders=", keeps));
                }
            }
            Manner::Gnu if !compress.is_empty() => arguments.push(format!("-I{compress}").into()),
            // It would run the command as it stands to decompress; what it has itself needs no option.
            Manner::Bsd if !compress.is_empty() && operation == Operation::Create => {
                arguments.push(format!("--use-compress-program={compress}").into());
            }
            Manner::Star if !compress.is_empty() => arguments.push(format!("compress-program={compress}").into()),
            _ => {}
        }
        match self.manner {
            Manner::Own | Manner::OwnWithIndex | Manner::Alone => {}
            Manner::Star => arguments.push(path("f=", archive)),
            Manner::Gnu | Manner::Bsd => arguments.extend([OsString::from("-f"), archive.into()]),
        }
        if operation == Operation::Create && !matches!(self.manner, Manner::Own | Manner::OwnWithIndex) {
            arguments.push(".".into());
        }
        let mut job = self.program.job(arguments, settings.limit);
        job.variable("XDG_CACHE_HOME", keeps);
        job.folder(if operation == Operation::Extract { out } else { tree });
        job
    }
}
