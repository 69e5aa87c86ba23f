//! HTML pages that hold files: data URLs (RFC 2397), as browsers and their extensions save pages in one file.
//!
//! `reader` looks for them, `place` reads what stands around one, `kinds` says what names end in. Each is a file at the
//! address that Save Page WE gives with it (`data-savepage-src`, `savepage-url`), or called by the SHA-256 of its
//! content, as ratarmount does it. Base64 is read where it is stored. Comments are passed.

mod kinds;
mod place;
mod reader;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Error, Fidelity, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted,
};

const NAME: &str = "html";

/// Bytes in which a page shows what it is: what follows may be a member of a tar.
const HEAD: usize = 512;

/// What one of them begins with.
const MARKS: [&[u8]; 7] = [b"<head", b"<title", b"<html", b"<script", b"<style", b"<table", b"<a href"];

/// HTML with data URLs.
#[derive(Debug)]
pub struct Html;

impl Format for Html {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "pages that hold their images and styles: data URLs, with the names that Save Page WE gives them"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".html", ".htm", ".xhtml"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        // Others stay the files that they are.
        if is_page(probe.head()) && place::holds_files(probe) { 16 } else { 0 }
    }

    fn nature(&self) -> Nature {
        Nature::Document
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        Ok(Unlisted::but("the page itself, of which only what data URLs hold are files"))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Html {
    fn told(&self, _shown: &Shown) -> Told {
        Told::NOTHING
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

/// True of what begins as a page does.
fn is_page(head: &[u8]) -> bool {
    let head = head.get(..HEAD.min(head.len())).unwrap_or_default().to_ascii_lowercase();
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head).trim_ascii_start();
    if !text.starts_with(b"<") || text.contains(&0) {
        return false;
    }
    let is_mark = |mark: &&[u8]| {
        memchr::memmem::find_iter(text, *mark).any(|place| {
            let behind = text.get(place.saturating_add(mark.len()));
            behind.is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'='))
        })
    };
    memchr::memmem::find(text, b"<!doctype html").is_some() || MARKS.iter().any(is_mark)
}

impl ReadRandom for Html {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        reader::read(source, options, receive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_from_text() {
        for (head, expected) in [
            (&b"<!DOCTYPE html>\n<html>"[..], true),
            (b"\xef\xbb\xbf <HTML lang=en>", true),
            (b"<?xml version='1.0'?><html xmlns='x'>", true),
            (b"<table>", true),
            (b"<tables>", false),
            (b"<xml>", false),
            (b"text <html>", false),
            (b"<html>\0", false),
            (b"", false),
        ] {
            assert_eq!(is_page(head), expected, "{}", String::from_utf8_lossy(head));
        }
    }
}
