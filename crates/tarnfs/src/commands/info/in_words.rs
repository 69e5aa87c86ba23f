//! What is said to people: lines with a heading each.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;

use tarnfs_codec::Outline;
use tarnfs_tree::open::Kept;
use tarnfs_tree::{Fit, Method};

use super::facts::{Facts, IndexState, Layer, Nested};
use super::faster::Faster;
use super::slow::Slow;
use crate::inside;
use crate::terminal::{Output, escaped, harmless};

/// Damaged places that are named.
const MOST_NAMED: usize = 10;

/// Ways to store files that are named.
const MOST_METHODS: usize = 8;

/// What a block coder's name ends in.
const BLOCK: &str = "-block";

/// What is said of an archive.
pub(super) struct Lines {
    path: Vec<u8>,
    lines: Vec<(&'static str, String)>,
}

impl Lines {
    fn add(&mut self, heading: &'static str, text: impl Into<String>) {
        self.lines.push((heading, text.into()));
    }

    /// Writes the archive's name, and below it each line behind its heading. A heading is not repeated.
    pub(super) fn print(&self, out: &mut Output, is_behind_others: bool) -> io::Result<()> {
        if is_behind_others {
            writeln!(out)?;
        }
        out.name_in_line(&self.path)?;
        writeln!(out)?;
        let width = self.lines.iter().map(|(heading, _)| heading.len()).max().unwrap_or_default() + 1;
        let mut last = "";
        for (heading, text) in &self.lines {
            let shown = if *heading == last { String::new() } else { format!("{heading}:") };
            last = heading;
            writeln!(out, "  {shown:<width$}  {}", harmless(text))?;
        }
        Ok(())
    }
}

/// Bytes in the unit in which they are easily read: "900 bytes", "1.5 MiB", "24 MiB".
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return plural(bytes, "byte");
    }
    let (mut scaled, mut unit) = (bytes as f64 / 1024.0, 0);
    while scaled >= 1023.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let unit = UNITS[unit];
    // A power of two is said as it is.
    if scaled >= 9.95 || (scaled - scaled.round()).abs() < 0.005 {
        format!("{scaled:.0} {unit}")
    } else {
        format!("{scaled:.1} {unit}")
    }
}

/// "1 file", "12 files".
pub(super) fn plural(number: u64, noun: &str) -> String {
    format!("{number} {}", inside::noun(number, noun))
}

/// A part of the whole: "4.2 %", "42 %".
pub(super) fn percent(part: f64) -> String {
    if part < 0.0995 { format!("{:.1} %", part * 100.0) } else { format!("{:.0} %", part * 100.0) }
}

/// A time in the unit in which it is easily read.
pub(super) fn time(milliseconds: f64) -> String {
    match milliseconds {
        _ if milliseconds < 0.95 => "less than 1 ms".to_owned(),
        _ if milliseconds < 9.95 => format!("{milliseconds:.1} ms"),
        _ if milliseconds < 999.5 => format!("{milliseconds:.0} ms"),
        _ if milliseconds < 9950.0 => format!("{:.1} s", milliseconds / 1e3),
        _ if milliseconds < 120e3 => format!("{:.0} s", milliseconds / 1e3),
        _ => format!("{:.0} min", milliseconds / 60e3),
    }
}

/// Steps that take parts of blocks, and join them, with the zeros between them.
const JOINING: &[&str] = &["part", "copy", "zeros"];

/// The steps of a method: "lzma2 + bcj-x86", "stored".
pub(super) fn name_of_method(method: &Method) -> String {
    if method.steps.is_empty() {
        return "no compression".to_owned();
    }
    // What only puts the bytes of blocks together compresses nothing.
    let compresses = |step: &&String| !JOINING.contains(&step.as_str());
    let mut names: Vec<_> =
        method.steps.iter().filter(compresses).map(|step| escaped(step_name(step).as_bytes())).collect();
    names.dedup();
    names.join(" + ")
}

/// The compression of a step.
pub(super) fn step_name(step: &str) -> &str {
    step.strip_suffix(BLOCK).unwrap_or(step)
}

/// All that is said.
pub(super) fn lines(facts: &Facts<'_>, slow: &[Slow], faster: &[Faster]) -> Lines {
    let mut lines = Lines { path: facts.path.as_os_str().as_bytes().to_vec(), lines: Vec::new() };
    let summary = facts.opened.index.summary();
    lines.add("Format", format(facts));
    if let Some(label) = &summary.label {
        lines.add("Label", escaped(label));
    }
    lines.add("Size", sizes(facts));
    lines.add("Holds", holds(facts));
    let census = &facts.census;
    if census.versions > 0 {
        lines.add("Versions", plural(census.versions, "older version") + " of what shows");
    }
    if let Some(locked) = facts.locked {
        let opens = match locked.passwords {
            Fit::NotGiven => format!("; {}", inside::GIVE_A_PASSWORD),
            Fit::None => "; no password that is given opens any that was tried".to_owned(),
            Fit::SomeOrUnknown => "; a password that is given may open them".to_owned(),
        };
        lines.add("Encrypted", format!("{} of {}{opens}", locked.encrypted, plural(locked.files, "file")));
    }
    archives(facts, &mut lines);
    methods(facts, &mut lines);
    for layer in &facts.layers {
        lines.add("Seek points", seek_points(layer, facts.layers.len() > 1));
    }
    checks(facts, &mut lines);
    lines.add("Index", index(facts));
    if summary.shape.recursion.is_some() || !summary.shape.hashes.is_empty() {
        lines.add("Made with", summary.shape.to_string());
    }
    cache(facts, &mut lines);
    damage(facts, &mut lines);
    for one in slow {
        lines.add("Slow", one.text.clone());
    }
    if slow.is_empty() {
        lines.add("Slow", "nothing: any file opens at once, at any offset");
    }
    for one in faster {
        lines.add("Faster", one.command.clone());
        lines.add("Faster", format!("  {}", one.text));
    }
    lines
}

fn format(facts: &Facts<'_>) -> String {
    let mut steps: Vec<_> = facts.layers.iter().map(of_layer).collect();
    steps.push(match facts.format {
        Some(format) => format.name().to_owned(),
        None if facts.is_single_file => "a single file".to_owned(),
        None => "what is compressed again".to_owned(),
    });
    let parts = if facts.is_split { "; joined from several files" } else { "" };
    steps.join(", then ") + parts
}

/// "xz, 12 blocks of up to 24 MiB"
fn of_layer(layer: &Layer) -> String {
    let Some(outline) = layer.outline else { return layer.codec.name().to_owned() };
    let Outline { part, parts, longest, history, .. } = outline;
    let parts = match (parts, longest) {
        (Some(1), _) => format!(", one {part}"),
        (Some(parts), Some(longest)) => format!(", {} of up to {}", plural(parts, part), size(longest)),
        (Some(parts), None) => format!(", {}", plural(parts, part)),
        (None, Some(longest)) => format!(", {part}s of up to {}", size(longest)),
        (None, None) => String::new(),
    };
    let memory = history.filter(|&history| history > 0);
    let memory = memory.map(|history| format!(" (a decoder keeps {} in memory)", size(history))).unwrap_or_default();
    format!("{}{parts}{memory}", layer.codec.name())
}

fn sizes(facts: &Facts<'_>) -> String {
    let (packed, content) = (facts.size(), facts.census.bytes);
    let mut text = size(packed);
    if content > 0 {
        let _ = write!(text, " for {} of files", size(content));
        // Of next to nothing, headers and padding are many times that.
        if packed / 10 <= content {
            let _ = write!(text, ": {}", percent(packed as f64 / content as f64));
        }
    }
    if let Some(layer) = facts.layers.last().filter(|layer| facts.format.is_some() && layer.decoded > 0) {
        let inner = facts.format.map_or("", |format| format.name());
        let _ =
            write!(text, " ({} of {inner}: {})", size(layer.decoded), percent(packed as f64 / layer.decoded as f64));
    }
    text
}

fn holds(facts: &Facts<'_>) -> String {
    let census = &facts.census;
    let mut files = plural(census.files, "file");
    if census.sparse > 0 {
        let _ = write!(files, " ({} sparse)", census.sparse);
    }
    let others = [
        (census.folders, "folder"),
        (census.symlinks, "symbolic link"),
        (census.hard_links, "hard link"),
        (census.character_devices, "character device"),
        (census.block_devices, "block device"),
        (census.fifos, "named pipe"),
        (census.sockets, "socket"),
    ];
    let others = others.iter().filter(|(count, _)| *count > 0).map(|(count, noun)| plural(*count, noun));
    let mut all: Vec<_> = std::iter::once(files).chain(others).collect();
    if census.files > 0 {
        all.push(format!("the longest file has {}", size(census.longest)));
    }
    all.join(", ")
}

fn archives(facts: &Facts<'_>, lines: &mut Lines) {
    let census = &facts.census;
    let looks_in = facts.looks_into_archives;
    if !looks_in && census.archives > 0 {
        let verb = if census.archives == 1 { "has the name" } else { "have names" };
        let text = format!(
            "{} in it {verb} of an archive or a compressed file: -r looks into them",
            plural(census.archives, "file")
        );
        lines.add("Archives", text);
    }
    if looks_in && census.opened > 0 {
        let verb = if census.opened == 1 { "shows as a folder" } else { "show as folders" };
        lines.add("Archives", format!("{} in it {verb}", plural(census.opened, "archive")));
    }
    if looks_in && census.archives > 0 {
        let text = format!("{} of that kind could not be opened, or lie too deep", plural(census.archives, "file"));
        lines.add("Archives", text);
    }
    for Nested { codec, streams, compressed, decoded, longest } in &facts.nested {
        let text = match codec {
            Some(codec) => format!(
                "{} of {}: {} as {}; seek points at most {} apart",
                plural(*streams, "stream"),
                escaped(codec.as_bytes()),
                size(*decoded),
                size(*compressed),
                size(*longest)
            ),
            None => format!("{} in pieces: {}", plural(*streams, "stream"), size(*decoded)),
        };
        lines.add("Archives", text);
    }
}

fn methods(facts: &Facts<'_>, lines: &mut Lines) {
    let methods = &facts.census.methods;
    for method in methods.iter().take(MOST_METHODS) {
        let stored = method.stored.map(|stored| format!(" as {}", size(stored))).unwrap_or_default();
        let mut text =
            format!("{}: {} of {}{stored}", name_of_method(method), size(method.bytes), plural(method.files, "file"));
        let is_block = method.has_blocks;
        if is_block {
            let _ = write!(text, ", blocks of up to {}", size(method.longest));
        } else if method.shared > 0 {
            let blocks = plural(method.shared, "solid block");
            let _ = write!(text, ", {blocks} of up to {}", size(method.longest_shared));
        }
        lines.add("Stored", text);
    }
    if methods.len() > MOST_METHODS {
        lines.add("Stored", format!("in {} other ways", methods.len() - MOST_METHODS));
    }
}

fn seek_points(layer: &Layer, is_one_of_many: bool) -> String {
    let of = if is_one_of_many { format!("{}: ", layer.codec.name()) } else { String::new() };
    let points = &layer.points;
    match points.count {
        0 => format!("{of}none, as nothing is in it"),
        1 => format!("{of}1: decoding starts at the start"),
        count => format!("{of}{count}, {} apart on average and {} at most", size(layer.apart()), size(points.longest)),
    }
}

fn checks(facts: &Facts<'_>, lines: &mut Lines) {
    let checks = facts.layers.iter().filter_map(|layer| Some((layer.codec.name(), layer.outline?.check?)));
    let mut all: Vec<_> = checks
        .map(|(codec, check)| match check {
            "none" => format!("{codec} has none"),
            check => format!("{codec} has {check}"),
        })
        .collect();
    match facts.format {
        Some(format) if format.compares_content() => all.push(format!("{} has one of each file", format.name())),
        Some(format) if facts.layers.is_empty() && !facts.has_directory() => {
            all.push(format!("{} has none of the content of files, so damage there does not show", format.name()));
        }
        _ => {}
    }
    if !all.is_empty() {
        lines.add("Checksums", all.join("; "));
    }
}

fn index(facts: &Facts<'_>) -> String {
    let path = facts.opened.index_path.as_ref().map(|path| escaped(path.as_os_str().as_bytes()));
    let path = path.unwrap_or_default();
    let bytes = size(facts.index.bytes);
    match facts.index.state {
        IndexState::Used => format!("{path} ({bytes}), which belongs to the archive as it is now"),
        IndexState::Made => format!("{path} ({bytes}), made just now"),
        IndexState::Sidecar => format!("{path} ({bytes}), ratarmount's, which says less than one of tarnfs"),
        IndexState::NotNeeded => "none is needed: the archive has a directory of its own".to_owned(),
        IndexState::TooSmall => "none is kept of so small an archive; `tarnfs index` makes one all the same".to_owned(),
        IndexState::InMemory => "none on disk, as was asked for".to_owned(),
        IndexState::NotKept => "none is kept".to_owned(),
    }
}

fn cache(facts: &Facts<'_>, lines: &mut Lines) {
    let shown = |kept: &Kept| escaped(kept.path.as_os_str().as_bytes());
    if let Some(kept) = &facts.cache {
        let share = percent(facts.share_kept());
        let text = format!("{} ({}), has {} of it decoded: {share}", shown(kept), size(kept.bytes), size(kept.decoded));
        lines.add("Cache", text);
    }
    if let Some(kept) = &facts.members {
        lines.add("Cache", format!("{} ({}), has seek points of long files", shown(kept), size(kept.bytes)));
    }
}

fn damage(facts: &Facts<'_>, lines: &mut Lines) {
    let summary = facts.opened.index.summary();
    let mut notes: Vec<_> = summary.notes.iter().collect();
    notes.dedup();
    for note in notes.iter().take(MOST_NAMED) {
        let told = inside::told(facts.path, summary, note);
        lines.add("Damage", told.strip_prefix("damaged ").unwrap_or(&told).to_owned());
    }
    if notes.len() > MOST_NAMED {
        lines.add("Damage", format!("in {} more", plural((notes.len() - MOST_NAMED) as u64, "place")));
    }
    if let Some(damaged) = &facts.damaged {
        lines.add("Damage", format!("{} of {} cannot be read whole", damaged.damaged, plural(damaged.files, "file")));
    }
    if facts.opened.index.has_unverified() {
        lines.add("Damage", "some of it can be decoded but fails its checksum; --force serves it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_people_read_them() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (24 << 20, "24 MiB"),
            (10_300_000, "9.8 MiB"),
            ((1 << 30) - 1, "1 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), shown, "{bytes}");
        }
        for (milliseconds, shown) in [
            (0.2, "less than 1 ms"),
            (2.04, "2.0 ms"),
            (80.0, "80 ms"),
            (1500.0, "1.5 s"),
            (60e3, "60 s"),
            (1e6, "17 min"),
        ] {
            assert_eq!(time(milliseconds), shown);
        }
        assert_eq!((percent(0.042), percent(0.42), percent(1.0)), ("4.2 %".into(), "42 %".into(), "100 %".into()));
        assert_eq!((plural(1, "file"), plural(0, "file")), ("1 file".into(), "0 files".into()));
    }
}
