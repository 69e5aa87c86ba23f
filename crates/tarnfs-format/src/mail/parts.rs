//! The parts of one message, line by line: each becomes an entry when it ends.

use std::sync::Arc;

use super::fields::{self, Fields};
use super::lines::Line;
use crate::measure::{Encoding, Measure};
use crate::name::bounded_path;
use crate::naming::{self, Names};
use crate::{Body, Coder, Damage, Entry, Event, Kind, Piece, Time};

/// Parts that lie in each other. What lies deeper stays as it is stored.
const MOST_LEVELS: usize = 32;

/// Parts of one message, with those of messages in it.
const MOST_PARTS: u32 = 1 << 16;

/// Bytes of the line between parts; RFC 2046 allows 70.
const LONGEST_BOUNDARY: usize = 512;

/// A message as it is stored.
const WHOLE: &str = "message.eml";

/// The same of a message in a message, behind the name of its folder.
const SUFFIX: &str = ".eml";

/// A message that is being read.
#[derive(Debug)]
pub(super) struct Message {
    /// The folder of what is read, with a slash at its end; empty for the root.
    folder: Vec<u8>,
    /// When what is read was written.
    time: Time,
    /// Its number, if it is one of many: it gets a folder.
    number: Option<u64>,
    start: u64,
    /// Where its content begins, and how long that is by its own word.
    pub(super) content: Option<(u64, u64)>,
    levels: Vec<Level>,
    state: State,
    /// The end of the line before, which belongs to what follows if that ends a part.
    pending: Vec<u8>,
    names: Names,
    parts: u32,
    /// Bytes of a path.
    longest: usize,
}

/// What the part that is read lies in.
#[derive(Debug)]
enum Level {
    Parts {
        boundary: Vec<u8>,
        /// Parts that do not say what they are, are messages.
        is_digest: bool,
    },
    Message {
        start: u64,
        /// What the header of the part calls it.
        label: Option<String>,
        /// Its folder and the time of what it lies in.
        outside: Vec<u8>,
        time: Time,
        /// Its name, once its own header was read.
        path: Vec<u8>,
    },
}

#[derive(Debug)]
enum State {
    /// Before the first part, between them, or behind the last one.
    Nothing,
    Header {
        fields: Fields,
        start: u64,
        is_message: bool,
        is_digest: bool,
    },
    Part {
        header: u64,
        start: u64,
        measure: Measure,
        name: String,
    },
}

impl Message {
    /// One that begins at byte `start`; one of many has a number.
    pub(super) fn new(start: u64, number: Option<u64>, time: Time, longest: usize) -> Self {
        let state = State::Header { fields: Fields::default(), start, is_message: true, is_digest: false };
        Self {
            folder: Vec::new(),
            time,
            number,
            start,
            content: None,
            levels: Vec::new(),
            state,
            pending: Vec::new(),
            names: Names::default(),
            parts: 0,
            longest,
        }
    }

    /// Takes its next line.
    pub(super) fn line(&mut self, line: Line<'_>, out: &mut Vec<Event>) {
        if line.is_start
            && line.text.starts_with(b"--")
            && let Some((level, is_last)) = self.boundary(line.text)
        {
            let end = line.at.saturating_sub(self.pending.len() as u64);
            self.pending.clear();
            self.close(end, out);
            let kept = level.saturating_add(usize::from(!is_last));
            let is_digest = matches!(self.levels.get(level), Some(Level::Parts { is_digest: true, .. }));
            self.leave(kept, end, out);
            if !is_last {
                let start = line.behind();
                self.state = State::Header { fields: Fields::default(), start, is_message: false, is_digest };
            }
            return;
        }
        if let State::Header { fields, .. } = &mut self.state {
            self.pending.clear();
            let is_more = line.text.first().is_some_and(|first| matches!(first, b' ' | b'\t'));
            // Some programs leave the line that stood before it in an mbox.
            let is_left = fields.is_empty() && (line.text.starts_with(b"From ") || line.text.starts_with(b">From "));
            if !line.is_start {
                return;
            }
            if line.is_empty() {
                self.header_ends(line.behind(), out);
                return;
            }
            if is_more || is_left || fields::is_field(line.text) {
                if !is_left {
                    fields.push(line.text);
                }
                return;
            }
            // The empty line is missing.
            self.header_ends(line.at, out);
        }
        if let State::Part { measure, start, .. } = &mut self.state {
            // No line of the part ends before its first one, nor where only a piece of one ends.
            if line.is_start && line.at > *start {
                measure.end(&self.pending);
            }
            measure.text(line.text);
        }
        self.pending.clear();
        self.pending.extend_from_slice(line.end);
    }

    /// Its last line ends at byte `end`. That belongs to it, unless `is_cut`.
    pub(super) fn finish(mut self, end: u64, is_cut: bool, out: &mut Vec<Event>) {
        if let State::Part { measure, .. } = &mut self.state
            && !is_cut
        {
            measure.end(&self.pending);
        }
        self.close(end, out);
        self.leave(0, end, out);
        if self.number.is_some() {
            let path = [self.folder.as_slice(), WHOLE.as_bytes()].concat();
            out.push(self.file(path, self.start, (self.start, end), Measure::Stored));
            out.push(self.folder_at(self.folder.clone(), self.start));
        }
    }

    /// The level whose parts the line separates, and whether it is behind the last of them.
    fn boundary(&self, text: &[u8]) -> Option<(usize, bool)> {
        let rest = text.get(2..)?;
        for (number, level) in self.levels.iter().enumerate().rev() {
            let Level::Parts { boundary, .. } = level else { continue };
            if let Some(behind) = rest.strip_prefix(boundary.as_slice()) {
                match behind.trim_ascii_end() {
                    b"" => return Some((number, false)),
                    b"--" => return Some((number, true)),
                    _ => {}
                }
            }
        }
        None
    }

    /// The header that is read ends, and at byte `at` its content begins.
    fn header_ends(&mut self, at: u64, out: &mut Vec<Event>) {
        let State::Header { fields, start, is_message, is_digest } = std::mem::replace(&mut self.state, State::Nothing)
        else {
            return;
        };
        if is_message {
            self.message_begins(&fields, at);
        }
        let kind = fields.structured("content-type").unwrap_or_default();
        let is_untold = kind.value.is_empty();
        let encoding = Encoding::of(&fields.get("content-transfer-encoding").unwrap_or_default());
        let disposition = fields.structured("content-disposition").unwrap_or_default();
        let label = disposition.text("filename").or_else(|| kind.text("name"));
        let label = label.and_then(|label| naming::safe(&label));
        let is_deep = self.levels.len() >= MOST_LEVELS;
        if kind.value.starts_with(b"multipart/")
            && !is_deep
            && let Some(boundary) = kind.raw("boundary").map(<[u8]>::trim_ascii_end)
            && (1..=LONGEST_BOUNDARY).contains(&boundary.len())
        {
            let is_digest = kind.value == b"multipart/digest";
            self.levels.push(Level::Parts { boundary: boundary.to_vec(), is_digest });
            return;
        }
        self.parts = self.parts.saturating_add(1);
        if self.parts > MOST_PARTS {
            if self.parts == MOST_PARTS.saturating_add(1) {
                let what = format!("the message at byte {} has more than {MOST_PARTS} parts", self.start);
                out.push(Event::Damage(Damage { offset: start, what }));
            }
            return;
        }
        let is_inner = matches!(kind.value.as_slice(), b"message/rfc822" | b"message/global") || is_digest && is_untold;
        if is_inner && encoding == Encoding::None && !is_deep {
            let (outside, time) = (self.folder.clone(), self.time);
            self.levels.push(Level::Message { start: at, label, outside, time, path: Vec::new() });
            self.state = State::Header { fields: Fields::default(), start: at, is_message: true, is_digest: false };
            return;
        }
        let stem = if is_untold || kind.value.starts_with(b"text/") { "body" } else { "part" };
        let name = label.unwrap_or_else(|| format!("{stem}{}", naming::extension(&kind.value)));
        self.state = State::Part { header: start, start: at, measure: Measure::new(encoding), name };
    }

    /// The header of a message was read: it says what its folder is called.
    fn message_begins(&mut self, fields: &Fields, at: u64) {
        self.time = fields.date().unwrap_or(self.time);
        let subject = fields.text_of("subject").and_then(|subject| naming::safe(&subject));
        let Some(Level::Message { label, outside, path, .. }) = self.levels.last_mut() else {
            self.content = fields.content_length().map(|length| (at, length));
            if let Some(number) = self.number {
                self.folder = match subject {
                    Some(subject) => format!("{number:06} {subject}/").into_bytes(),
                    None => format!("{number:06}/").into_bytes(),
                };
                // No part of it takes that name.
                self.names.path(&self.folder, WHOLE);
            }
            return;
        };
        let label = label.take().map(|label| label.strip_suffix(SUFFIX).map_or(label.clone(), str::to_owned));
        let name = label.filter(|label| !matches!(label.as_str(), "" | "." | "..")).or(subject);
        *path = self.names.message(outside, name.as_deref().unwrap_or("message"), SUFFIX);
        self.folder = [path.as_slice(), b"/"].concat();
    }

    /// Ends the part that is read at byte `end`.
    fn close(&mut self, end: u64, out: &mut Vec<Event>) {
        loop {
            match std::mem::replace(&mut self.state, State::Nothing) {
                State::Nothing => return,
                // It has no content. Messages in each other without any are no deeper than levels may be.
                header @ State::Header { .. } => {
                    self.state = header;
                    self.header_ends(end, out);
                }
                State::Part { header, start, measure, name } => {
                    let path = self.names.path(&self.folder, &name);
                    out.push(self.file(path, header, (start, end), measure));
                    return;
                }
            }
        }
    }

    /// Leaves the levels from that one on.
    fn leave(&mut self, kept: usize, end: u64, out: &mut Vec<Event>) {
        while self.levels.len() > kept {
            let Some(Level::Message { start, outside, time, path, .. }) = self.levels.pop() else { continue };
            let (whole, folder) = ([path.as_slice(), SUFFIX.as_bytes()].concat(), [path.as_slice(), b"/"].concat());
            out.push(self.file(whole, start, (start, end), Measure::Stored));
            out.push(self.folder_at(folder, start));
            (self.folder, self.time) = (outside, time);
        }
    }

    /// A file whose content is stored from one byte to another.
    fn file(&self, path: Vec<u8>, header: u64, (start, end): (u64, u64), measure: Measure) -> Event {
        let stored = end.saturating_sub(start);
        let (size, step) = measure.finish(stored);
        let coder = step.map(|step| Arc::new(Coder { steps: vec![step], is_behind_header: None }));
        let piece = Piece { length: size, offset: start, stored, coder, decoded: size, ..Piece::default() };
        let pieces = (size > 0).then(|| vec![piece]);
        Event::Entry(Box::new(Entry {
            path: bounded_path(path, self.longest),
            kind: Kind::File,
            mode: 0o644,
            mtime: self.time,
            header,
            body: Body { offset: header, size, pieces, ..Body::default() },
            ..Entry::default()
        }))
    }

    fn folder_at(&self, path: Vec<u8>, header: u64) -> Event {
        Event::Entry(Box::new(Entry {
            path: bounded_path(path, self.longest),
            kind: Kind::Folder,
            mode: 0o755,
            mtime: self.time,
            header,
            body: Body { offset: header, ..Body::default() },
            ..Entry::default()
        }))
    }
}
