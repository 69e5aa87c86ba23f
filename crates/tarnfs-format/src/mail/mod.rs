//! Mail: a file of many messages (mbox), or one message (`.eml`).
//!
//! `lines` cuts a stream into lines. `reader` finds where messages begin and end. `parts` follows the MIME structure of
//! one, line by line, and counts how long each part is once it is decoded, so that all is read forwards, once.
//! `fields` reads headers, `words` what is in them in other encodings, `names` makes names of files.
//!
//! In an mbox each message is a folder: its number and its subject, with the message as it is stored (`message.eml`),
//! its text (`body.txt`, `body.html`) and what is attached. Of a message by itself these are in the root. A message in
//! a message is a file and a folder of its own. What is attached is read where it is stored, through the decoder of its
//! encoding; texts keep the charset that they have.
//!
//! - The messages of an mbox: RFC 4155. Each begins with a line "From ADDRESS DATE". Those of mboxcl and mboxcl2 say
//!   how long they are: such a line before their end is a part of them.
//! - Messages: RFC 5322. MIME: RFC 2045 to 2047, 2049 and 2231.

mod fields;
mod lines;
mod parts;
mod reader;
mod words;

use std::io;

use tarnfs_source::{Cancel, Source};

use crate::{
    Error, Fidelity, Format, Nature, Options, Probe, ReadForwards, Reader, Receive, Shown, Stream, Told, Unlisted,
};

const NAME: &str = "mail";

/// Messages in a file.
#[derive(Debug)]
pub struct Mail;

impl Format for Mail {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "mboxo, mboxrd, mboxcl and single messages: each a folder of its text and attachments"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".mbox", ".mbx", ".eml"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        match reader::Kind::of(probe.head()) {
            // "From ", a month, a time and a year, and a field below.
            Some(reader::Kind::Many) => 64,
            // Some fields that each message has.
            Some(reader::Kind::One) => 32,
            None => 0,
        }
    }

    fn nature(&self) -> Nature {
        Nature::Document
    }

    fn is_document(&self, head: &[u8]) -> bool {
        match reader::Kind::of(head) {
            Some(reader::Kind::One) => true,
            Some(reader::Kind::Many) => is_of_git(head),
            None => false,
        }
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        Ok(Unlisted::but("what stands between messages, or in the header of a single one"))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Forwards(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Mail {
    fn told(&self, shown: &Shown) -> Told {
        Told { mtime: Told::all(shown.mtime).mtime, ..Told::NOTHING }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

/// True of what `git format-patch` writes: the date in the first line of each patch is always the same.
fn is_of_git(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let name = line.strip_prefix(b"From ").and_then(|rest| rest.strip_suffix(b" Mon Sep 17 00:00:00 2001"));
    name.is_some_and(|name| name.len() >= 40 && name.iter().all(u8::is_ascii_hexdigit))
}

impl ReadForwards for Mail {
    fn read(&self, stream: &mut dyn Stream, options: &Options, receive: &mut Receive<'_>) -> Result<(), Error> {
        reader::read(stream, options, receive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_patches_are_documents() {
        let fields = "From: a@b\nDate: x\nSubject: [PATCH] y\n\nz\n";
        let patch = format!("From {} Mon Sep 17 00:00:00 2001\n{fields}", "0123abcd".repeat(5));
        let mbox = format!("From a@b Tue Jul  1 10:52:37 2003\n{fields}");
        for (head, expected) in [(fields, true), (&patch, true), (&mbox, false), ("text\n", false)] {
            assert_eq!(Mail.is_document(head.as_bytes()), expected, "{head}");
        }
    }
}
