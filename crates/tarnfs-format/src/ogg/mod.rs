//! Ogg: streams of sound, pictures and text in pages, those of several streams in any order. Each stream is a file, of
//! its pages: an Ogg file of its own.
//!
//! `page` reads the head of a page, `kind` says what a stream holds by its first bytes; `reader` walks from page to
//! page. Nothing else of the file is read. Names are those that ratarmount gives: `audio_0000abcd.oga`, by the kind of
//! a stream and its number. In files one behind the other a number may come again: the last one shows, and those before
//! are its older versions. Checksums of pages are not compared: players do that.
//!
//! Source: RFC 3533.

mod kind;
mod page;
mod reader;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Error, Fidelity, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted,
};

const NAME: &str = "ogg";

/// Ogg of version 0.
#[derive(Debug)]
pub struct Ogg;

impl Format for Ogg {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "each stream as a file"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".ogg", ".oga", ".ogv", ".ogm", ".ogx", ".opus", ".spx"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        // A page begins a stream.
        match page::Page::read(probe.head()) {
            Some(page) if page.is_first => 48,
            _ => 0,
        }
    }

    fn nature(&self) -> Nature {
        Nature::Document
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        Ok(Unlisted::but("how its streams were put together"))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Ogg {
    fn told(&self, _shown: &Shown) -> Told {
        Told::NOTHING
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

impl ReadRandom for Ogg {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}
