use std::io::{self, Write};

use crate::exit::{Code, Failure};
use crate::terminal::output_failure;

/// What of a format is shown: its name, the ends of names of such files, and what of it is read.
type Line = (&'static str, String, &'static str);

/// Prints all formats, each with what of it is read.
pub(crate) fn run() -> Result<Code, Failure> {
    let columns = |lines: &[Line]| {
        let widest = |of: fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or(0);
        let (names, suffixes) = (widest(|line| line.0.len()), widest(|line| line.1.len()));
        let shown = lines.iter().map(|(name, suffix, about)| format!("  {name:names$}  {suffix:suffixes$}  {about}\n"));
        shown.collect::<String>()
    };
    let text = format!("Archives:\n{}\nCompression:\n{}", columns(&archives()), columns(&compression()));
    io::stdout().write_all(text.as_bytes()).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}

fn archives() -> Vec<Line> {
    let mut lines: Vec<_> = tarnfs_format::FORMATS
        .iter()
        .map(|format| (format.name(), format.suffixes().join(" "), format.about()))
        .collect();
    lines.sort_unstable();
    lines
}

fn compression() -> Vec<Line> {
    let suffixes = |codec: &dyn tarnfs_codec::Codec| {
        codec.suffixes().iter().map(|(suffix, _)| *suffix).collect::<Vec<_>>().join(" ")
    };
    // What only a container uses is told with that.
    let shown = tarnfs_codec::CODECS.iter().filter(|codec| !codec.about().is_empty());
    let mut lines: Vec<_> = shown.map(|codec| (codec.name(), suffixes(*codec), codec.about())).collect();
    lines.sort_unstable();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the README, as it has to stand there.
    fn table() -> String {
        let line = |(name, suffixes, about): Line| {
            let suffixes: Vec<_> = suffixes.split(' ').filter(|suffix| !suffix.is_empty()).collect();
            let suffixes: Vec<_> = suffixes.iter().map(|suffix| format!("`{suffix}`")).collect();
            format!("| {name} | {} | {about} |\n", suffixes.join(" "))
        };
        let lines = archives().into_iter().chain(compression()).map(line);
        format!("| format | names | what is read |\n| --- | --- | --- |\n{}", lines.collect::<String>())
    }

    #[test]
    fn the_table_of_the_readme_is_that_of_the_registry() {
        let readme = include_str!("../../../../README.md");
        assert!(readme.contains(&table()), "put this into README.md:\n\n{}", table());
    }

    #[test]
    fn each_format_says_what_of_it_is_read() {
        for (name, _, about) in archives().into_iter().chain(compression()) {
            assert!(!about.is_empty() && !about.contains(['|', '\n']), "{name}: {about}");
        }
    }
}
