use std::io::{self, Write};

use crate::exit::{Code, Failure};
use crate::terminal::{self, output_failure};

/// What of a format is shown: its name, the ends of names of such files, and what of it is read.
type Line = (&'static str, String, &'static str);

/// Prints all formats, each with what of it is read: on a terminal in lines that fit it, elsewhere each on one line.
pub(crate) fn run() -> Result<Code, Failure> {
    let width = terminal::width();
    let text = format!("Archives:\n{}\nCompression:\n{}", shown(&archives(), width), shown(&compression(), width));
    io::stdout().write_all(text.as_bytes()).map_err(|error| output_failure(&error))?;
    Ok(Code::Success)
}

fn shown(lines: &[Line], width: Option<usize>) -> String {
    /// Of most formats the names are not longer. Behind those that are, the rest does not stand in its column.
    const SUFFIXES: usize = 40;
    let names = lines.iter().map(|line| line.0.len()).max().unwrap_or(0);
    let one = |(name, suffixes, about): &Line| match width {
        Some(width) => {
            let [about, suffixes] = [about, suffixes.as_str()].map(|text| wrapped(text, 2 + names + 2, width));
            format!("  {name:names$}  {}{}", about.trim_start(), suffixes)
        }
        None => format!("  {name:names$}  {suffixes:SUFFIXES$}  {about}\n"),
    };
    lines.iter().map(one).collect()
}

/// The words of `text` in lines that begin with so many spaces and are not longer than `width`, but for a longer word.
fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        if column > 0 && column + 1 + word.len() <= width {
            lines.push(' ');
            column += 1;
        } else {
            lines.push_str(if column > 0 { "\n" } else { "" });
            lines.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        }
        lines.push_str(word);
        column += word.len();
    }
    lines + "\n"
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
    let suffixes = |codec: &dyn tarnfs_codec::FileCodec| {
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
    fn no_line_is_wider_than_the_terminal() {
        let lines = [("zip", ".zip .jar .war".to_owned(), "all of it, and more"), ("7z", ".7z".to_owned(), "all")];
        let expected =
            "  zip  all of\n       it, and\n       more\n       .zip .jar\n       .war\n  7z   all\n       .7z\n";
        assert_eq!(shown(&lines, Some(16)), expected);
        let in_a_pipe = shown(&lines, None);
        assert_eq!(in_a_pipe.lines().count(), 2, "{in_a_pipe}");
        for lines in [archives(), compression()] {
            assert!(shown(&lines, Some(80)).lines().all(|line| line.len() <= 80));
        }
    }

    #[test]
    fn each_format_says_what_of_it_is_read() {
        for (name, _, about) in archives().into_iter().chain(compression()) {
            assert!(!about.is_empty() && !about.contains(['|', '\n']), "{name}: {about}");
        }
    }
}
