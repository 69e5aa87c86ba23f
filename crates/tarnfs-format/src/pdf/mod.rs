//! PDF: what is attached to a document, its images, and the text of its pages.
//!
//! `object` reads objects, `xref` finds out where they are, `places` keeps that, `document` gets one by its number;
//! `filters` and `crypt` say what undoes their streams, for the decoder. `files` finds what is attached, by the
//! document's list and on its pages, `images` makes files of images, `text` and `font` read what a page shows. `reader`
//! walks along the pages.
//!
//! Files have the names that they were attached with. Images are `page_0_Im1.jpg`: the number of the page, from 0, and
//! the name that it has there. What is a JPEG or JPEG 2000 in the document is the file itself; pixels become a PNG, fax
//! and colours of print a TIFF, of which the header is made and the rest is read where it is stored. Text is
//! `page_0.txt`, in the order in which it is drawn; what its fonts do not say is left out.
//!
//! Source: ISO 32000-2.

mod crypt;
mod document;
mod files;
mod filters;
mod font;
mod images;
mod object;
mod places;
mod reader;
#[cfg(test)]
mod tests;
mod text;
mod xref;

use std::io;

use tarnfs_source::{Cancel, SharedSource, Source};

use crate::{
    Error, Fidelity, Format, Nature, Options, Probe, ReadRandom, Reader, ReceiveRandom, Shown, Told, Unlisted,
};

const NAME: &str = "pdf";
const MAGIC: &[u8] = b"%PDF-";

/// PDF 1.0 to 2.0.
#[derive(Debug)]
pub struct Pdf;

impl Format for Pdf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "what is attached, images, and text; with object streams, changes, lost tables, passwords"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".pdf"]
    }

    fn bid(&self, probe: &Probe<'_>) -> u32 {
        if start(probe.head()).is_some() { 40 } else { 0 }
    }

    fn nature(&self) -> Nature {
        Nature::Document
    }

    fn unlisted(&self, _source: &dyn Source, _cancel: &Cancel) -> io::Result<Unlisted> {
        Ok(Unlisted::but("the document itself, of which only text, images and what is attached are files"))
    }

    fn reader(&self) -> Reader<'_> {
        Reader::Random(self)
    }

    fn fidelity(&self) -> &dyn Fidelity {
        self
    }
}

impl Fidelity for Pdf {
    fn told(&self, shown: &Shown) -> Told {
        Told { mtime: Told::all(shown.mtime).mtime, ..Told::NOTHING }
    }

    fn has_hard_links(&self) -> bool {
        false
    }
}

/// Where the document begins: blanks may stand before it, and the mark of UTF-8.
fn start(head: &[u8]) -> Option<usize> {
    let rest = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let is_one = rest.starts_with(MAGIC) && rest.get(MAGIC.len()).is_some_and(u8::is_ascii_digit);
    is_one.then(|| head.len().saturating_sub(rest.len()))
}

impl ReadRandom for Pdf {
    fn read(&self, source: &SharedSource, options: &Options, receive: &mut ReceiveRandom<'_>) -> Result<(), Error> {
        let mut head = vec![0; 1024.min(usize::try_from(source.len()).unwrap_or(usize::MAX))];
        source.read_exact_at(&mut head, 0).map_err(|error| Error::Read { offset: 0, error })?;
        let missing = || Error::NotThisFormat { format: NAME, reason: "it does not begin as one does".to_owned() };
        reader::read(source, options, start(&head).ok_or_else(missing)? as u64, receive)
    }
}
