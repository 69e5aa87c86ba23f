//! Walks along the pages of a document.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use tarnfs_source::SharedSource;

use super::NAME;
use super::crypt::What;
use super::document::{Document, Stream, step};
use super::files::{Called, or_nothing, plain};
use super::filters::{self, Tail};
use super::images;
use super::object::{Dict, Object};
use super::text::{self, Fonts};
use crate::image::{Teller, is_damage};
use crate::name::{bounded_path, excerpt};
use crate::naming::Names;
use crate::{Body, Coder, Entry, Error, Kind, Options, Piece, ReceiveRandom, Step, Time};

/// Forms in each other in which images are looked for.
const MOST_FORMS: usize = 8;

/// Images that are remembered: one may be on each page.
const MOST_REMEMBERED: usize = 1 << 16;

/// Bytes that an object takes that is kept ([`Document::hold`]).
const BYTES_OF_HELD: usize = 64;

/// Bytes that are decoded to find out how long files are. What decoding takes is bounded with the document, too.
const MOST_COUNTED: u64 = 16 << 30;

/// Bytes of text of all pages: they are kept with their names.
const MOST_OF_TEXT: usize = 32 << 20;

/// Bytes of it in one piece: no coder has more properties.
const LONGEST_LITERAL: usize = 3 << 10;

/// Content of a file.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) offset: u64,
    size: u64,
    piece: Option<Piece>,
}

pub(super) struct Reader<'s, 'run> {
    pub(super) document: Document<'s>,
    pub(super) tell: Teller<'run>,
    /// Numbers of streams that were attached, and their names.
    pub(super) attached: HashSet<u32>,
    pub(super) names: Names,
    /// Hashes of the paths of what was attached, which are as those of what is on pages.
    pub(super) like_pages: HashSet<u64>,
    /// Pages of which was told what is on them, and what the images on them are called.
    pub(super) pages: u64,
    pub(super) images_called: Called,
    /// By the number of the stream: what it is, and what its name ends in. `None` of what is none.
    images: HashMap<u32, Option<(&'static str, Found)>>,
    counted: u64,
    fonts: Fonts,
    /// Bytes of text that were told.
    text: usize,
}

pub(super) fn read<'run>(
    source: &SharedSource,
    options: &Options,
    start: u64,
    receive: &'run mut ReceiveRandom<'run>,
) -> Result<(), Error> {
    let document = match Document::open(source, options, start) {
        Ok(document) => document,
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            return Err(Error::Unsupported { format: NAME, reason: error.to_string() });
        }
        Err(error) if is_damage(&error) => {
            return Err(Error::Unreadable { format: NAME, reason: error.to_string() });
        }
        Err(error) => return Err(Error::Read { offset: start, error }),
    };
    let tell = Teller::new(receive);
    let mut reader = Reader {
        document,
        tell,
        attached: HashSet::new(),
        names: Names::default(),
        like_pages: HashSet::new(),
        pages: 0,
        images_called: Called::default(),
        images: HashMap::new(),
        counted: 0,
        fonts: Fonts::default(),
        text: 0,
    };
    reader.run()
}

impl Reader<'_, '_> {
    fn run(&mut self) -> Result<(), Error> {
        self.all()?;
        // Nobody else says what is missing then.
        for (number, at, why) in std::mem::take(&mut self.document.lost) {
            self.tell.damage(at, format!("the objects in stream {number} are missing: {why}"))?;
        }
        Ok(())
    }

    /// Tells of what is attached, and of all pages.
    fn all(&mut self) -> Result<(), Error> {
        let trailer = self.document.trailer.clone();
        let root = self.of(0, |document| document.dict(&trailer, "Root"))?.flatten();
        let Some(root) = root else { return self.tell.damage(0, "the document has no root".to_owned()) };
        self.listed(&root)?;
        // Nodes with what they inherit, and how much is kept for that: of each node, what it is in.
        let mut waiting = vec![(root.get("Pages").cloned().unwrap_or(Object::Null), None::<Object>, 0_usize)];
        let (mut seen, mut number) = (HashSet::new(), 0_u64);
        while let Some((node, inherited, held)) = waiting.pop() {
            if self.document.is_spent() {
                return self.tell.damage(0, "the rest of the document is not read".to_owned());
            }
            if node.reference().is_some_and(|(number, _)| !seen.insert(number)) {
                continue;
            }
            let found = self.of(0, |document| {
                document.held = held;
                document.spend(1)?;
                let dict = document.resolve(&node)?.dict().cloned().unwrap_or_default();
                let kids = document.get(&dict, "Kids")?;
                let own = dict.get("Resources").cloned();
                document.hold(own.as_ref().map_or(0, Object::parts).saturating_add(kids.parts()))?;
                Ok((dict, kids, own))
            })?;
            let Some((dict, kids, own)) = found else { continue };
            let resources = own.or(inherited);
            if let Object::Array(kids) = kids {
                let held = self.document.held;
                waiting.extend(kids.iter().rev().map(|kid| (kid.clone(), resources.clone(), held)));
                continue;
            }
            if dict.0.is_empty() {
                self.tell.damage(0, format!("page {number}, or what lists it, is missing"))?;
                continue;
            }
            self.page(number, &dict, resources.as_ref())?;
            self.text_of(number, &dict, resources.as_ref())?;
            number = number.saturating_add(1);
            self.pages = number;
        }
        Ok(())
    }

    fn page(&mut self, number: u64, page: &Dict, resources: Option<&Object>) -> Result<(), Error> {
        self.on_page(page)?;
        // What is drawn in a form has a name there.
        let mut waiting = vec![(resources.cloned().unwrap_or(Object::Null), String::new(), 0_usize)];
        let held = self.document.held;
        let (mut seen, mut on_page) = (HashSet::new(), HashSet::new());
        while let Some((resources, prefix, level)) = waiting.pop() {
            if self.document.is_spent() {
                break;
            }
            let drawn = self.of(0, |document| {
                let resources = document.resolve(&resources)?.dict().cloned().unwrap_or_default();
                let drawn = document.dict(&resources, "XObject")?.unwrap_or_default();
                document.spend(drawn.0.len() as u64)?;
                Ok(drawn)
            })?;
            for (name, object) in drawn.unwrap_or_default().0.iter() {
                let Some((id, _)) = object.reference() else { continue };
                let name = format!("{prefix}{}", plain(name));
                if let Some(known) = self.images.get(&id) {
                    if let Some((end, found)) = known.clone() {
                        let path = self.path_of_image(&format!("page_{number}_{name}{end}"), &mut on_page);
                        self.file(path, Time::default(), &found)?;
                    }
                    continue;
                }
                let found = self.of(0, |document| {
                    let stream = document.stream(object)?;
                    let Some(stream) = stream else { return Ok(None) };
                    let kind = document.get(&stream.dict, "Subtype")?;
                    Ok(kind.name().map(|kind| (kind.to_vec(), stream)))
                })?;
                match found.flatten() {
                    Some((kind, stream)) if kind == b"Image" => {
                        let image = self.image(&stream, &name)?;
                        if self.images.len() < MOST_REMEMBERED {
                            self.images.insert(id, image.clone());
                        }
                        if let Some((end, found)) = image {
                            let path = self.path_of_image(&format!("page_{number}_{name}{end}"), &mut on_page);
                            self.file(path, Time::default(), &found)?;
                        }
                    }
                    Some((kind, stream)) if kind == b"Form" && level < MOST_FORMS && seen.insert(id) => {
                        let resources = stream.dict.get("Resources").cloned().unwrap_or(Object::Null);
                        // It has the names of all forms that it is in.
                        let of_name = name.len().div_ceil(BYTES_OF_HELD).saturating_add(1);
                        let is_kept = self
                            .of(stream.offset, |document| document.hold(resources.parts().saturating_add(of_name)))?
                            .is_some();
                        if resources != Object::Null && is_kept {
                            waiting.push((resources, format!("{name}_"), level.saturating_add(1)));
                        }
                    }
                    _ => {}
                }
            }
        }
        self.document.held = held;
        Ok(())
    }

    /// Tells of the text of a page. It is nowhere as such: the decoder has all of it.
    fn text_of(&mut self, number: u64, page: &Dict, resources: Option<&Object>) -> Result<(), Error> {
        if self.text >= MOST_OF_TEXT {
            return Ok(());
        }
        let mut fonts = std::mem::take(&mut self.fonts);
        let text = self.of(0, |document| text::of(document, &mut fonts, page, resources));
        self.fonts = fonts;
        let Some((text, is_whole)) = text? else { return Ok(()) };
        if !is_whole {
            self.tell.damage(0, format!("not all that page {number} shows can be read"))?;
        }
        if text.is_empty() {
            return Ok(());
        }
        self.text = self.text.saturating_add(text.len());
        if self.text >= MOST_OF_TEXT {
            let what = format!("there is more than {MOST_OF_TEXT} bytes of text: that of later pages is not shown");
            self.tell.damage(0, what)?;
        }
        let offset = self.document.start;
        let piece = |part: &[u8]| {
            let (steps, length) = (vec![step(&images::literal(part))], part.len() as u64);
            let coder = Some(Arc::new(Coder { steps, is_behind_header: None }));
            Piece { length, offset, coder, decoded: length, ..Piece::default() }
        };
        let pieces = text.as_bytes().chunks(LONGEST_LITERAL).map(piece).collect();
        let path = self.path_on_page(format!("page_{number}.txt"));
        self.pieces(path, Time::default(), (offset, text.len() as u64), Some(pieces))
    }

    /// The file that an image is, and what its name ends in.
    fn image(&mut self, stream: &Stream, name: &str) -> Result<Option<(&'static str, Found)>, Error> {
        let cipher = self.document.encryption.as_ref().and_then(|said| said.stage(What::Stream, stream.id));
        let filters = self.of(stream.offset, |document| filters::of(document, stream, cipher))?;
        let Some(filters) = filters else { return Ok(None) };
        // The head of a fax says how long its data are, which is what its other filters make of what is stored.
        let length = match &filters.tail {
            Tail::Fax(_) if !filters.stages.is_empty() => self.counted(stream, &filters.stages)?,
            _ => Ok(stream.length),
        };
        let length = match length {
            Ok(length) => length,
            Err(why) => return Ok(Some((".tif", self.made(stream, &filters.stages, Err(why), name)?))),
        };
        let made = self.of(stream.offset, |document| images::of(document, stream, filters, length))?;
        let Some(image) = made else { return Ok(None) };
        let size = match image.size {
            Some(size) => Ok(size),
            None => self.counted(stream, &image.stages)?,
        };
        let content = self.made(stream, &image.stages, size, name)?;
        Ok(Some((image.end, content)))
    }

    /// The content of a stream.
    pub(super) fn content(&mut self, stream: &Stream, what: What) -> Result<Found, Error> {
        let cipher = self.document.encryption.as_ref().and_then(|said| said.stage(what, stream.id));
        let filters = self.of(stream.offset, |document| filters::of(document, stream, cipher))?;
        let Some(filters) = filters else {
            return Ok(Self::unreadable(stream));
        };
        let not_undone = match &filters.tail {
            // A JPEG that is attached is handed out as one, as those on pages are.
            Tail::Bytes | Tail::Jpeg | Tail::Jpeg2000 => None,
            Tail::Fax(_) => Some(&b"CCITTFaxDecode"[..]),
            Tail::Jbig2(_) => Some(&b"JBIG2Decode"[..]),
            Tail::Unknown(name) => Some(name.as_slice()),
        };
        if let Some(name) = not_undone {
            return Ok(Self::coded(stream, format!("the filter {} of PDF", excerpt(name))));
        }
        let size = match filters.stages.as_slice() {
            [] => Ok(stream.length),
            stages => self.counted(stream, stages)?,
        };
        self.made(stream, &filters.stages, size, "what is attached")
    }

    fn unreadable(stream: &Stream) -> Found {
        let size = stream.length.max(1);
        Found { offset: stream.offset, size, piece: Some(Piece::unreadable(stream.offset, size)) }
    }

    /// A file that cannot be read, as nothing undoes `how` it is stored. How long it would be is not known.
    fn coded(stream: &Stream, how: String) -> Found {
        let mut found = Self::unreadable(stream);
        let steps = vec![Step { codec: how, ..Step::default() }];
        let coder = Some(Arc::new(Coder { steps, is_behind_header: None }));
        found.piece = found.piece.map(|piece| Piece { coder, ..piece });
        found
    }

    /// A file that `stages` make of a stream, if that can be.
    fn made(&mut self, stream: &Stream, stages: &[u8], size: Result<u64, String>, name: &str) -> Result<Found, Error> {
        let size =
            size.and_then(|size| if stream.is_cut { Err("the document ends in it".to_owned()) } else { Ok(size) });
        let size = match size {
            Ok(size) => size,
            Err(why) => {
                self.tell.damage(stream.offset, format!("{}: {why}", excerpt(name.as_bytes())))?;
                return Ok(Self::unreadable(stream));
            }
        };
        let coder = (!stages.is_empty()).then(|| Arc::new(Coder { steps: vec![step(stages)], is_behind_header: None }));
        let (offset, stored) = (stream.offset, stream.length);
        let piece = Piece { length: size, offset, stored, coder, decoded: size, ..Piece::default() };
        Ok(Found { offset, size, piece: (size > 0).then_some(piece) })
    }

    /// How many bytes `stages` make of a stream; the error is what is wrong with it.
    fn counted(&mut self, stream: &Stream, stages: &[u8]) -> Result<Result<u64, String>, Error> {
        let (mut size, left) = (0_u64, MOST_COUNTED.saturating_sub(self.counted));
        let mut count = |part: &[u8]| {
            size = size.saturating_add(part.len() as u64);
            if size > left {
                return Err(crate::image::damaged("its files are too long to be counted"));
            }
            Ok(())
        };
        let stored = self.document.stored(stream);
        let counted = stored.and_then(|stored| self.document.each(stages, stored, &mut count));
        self.counted = self.counted.saturating_add(size);
        let failed = |error| Error::Read { offset: stream.offset, error };
        let counted = match counted {
            // Without a decoder nothing of it can be read.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Err(error.to_string())),
            counted => or_nothing(counted),
        };
        Ok(counted.map_err(failed)?.map(|()| size))
    }

    /// Tells of a file.
    pub(super) fn file(&mut self, path: Vec<u8>, mtime: Time, found: &Found) -> Result<(), Error> {
        let pieces = found.piece.clone().map(|piece| vec![piece]);
        self.pieces(path, mtime, (found.offset, found.size), pieces)
    }

    fn pieces(
        &mut self,
        path: Vec<u8>,
        mtime: Time,
        (offset, size): (u64, u64),
        pieces: Option<Vec<Piece>>,
    ) -> Result<(), Error> {
        let path = bounded_path(path, self.document.options.limits.path);
        // Pages may show one image any number of times. What is not paid for is left out, and that is told.
        if self.of(offset, |document| document.take_file(&path))?.is_none() {
            return Ok(());
        }
        let body = Body { offset, size, pieces, ..Body::default() };
        self.tell.entry(Entry { path, kind: Kind::File, mode: 0o644, mtime, header: offset, body, ..Entry::default() })
    }

    /// What `read` finds; what is damaged is told, and nothing is found then. `offset` is a byte of the source.
    pub(super) fn of<T>(
        &mut self,
        offset: u64,
        read: impl FnOnce(&mut Document<'_>) -> io::Result<T>,
    ) -> Result<Option<T>, Error> {
        match or_nothing(read(&mut self.document)) {
            Ok(Ok(found)) => Ok(Some(found)),
            Ok(Err(what)) => self.tell.damage(offset, what).map(|()| None),
            Err(error) => Err(Error::Read { offset, error }),
        }
    }
}
