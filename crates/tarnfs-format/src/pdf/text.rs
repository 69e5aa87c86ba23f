//! The text that a page shows, in the order in which it is drawn.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::document::Document;
use super::font::Font;
use super::object::{Dict, Object, Parser};
use crate::image::is_damage;

/// Bytes of text of a page, and of what it draws.
const LONGEST: usize = 2 << 20;
const MOST_DRAWN: usize = 64 << 20;

/// Forms in each other.
const MOST_LEVELS: usize = 8;

/// Objects that wait for their operator, with those in them.
const MOST_OPERANDS: usize = 1 << 16;

/// Names of fonts and of what is drawn that are remembered of one page or form.
const MOST_NAMES: usize = 1 << 12;

/// Fonts that are kept, and bytes that they take.
const MOST_FONTS: usize = 256;
const MOST_OF_FONTS: usize = 32 << 20;

/// A gap in a line, in thousandths of the size of its letters, from which on it parts two words.
const GAP: f64 = -200.0;

/// Bytes of memory that an object in a dictionary takes, about.
const BYTES_OF_PART: usize = 96;

/// Which font it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Number(u32),
    /// One that has no number: where its dictionary is in memory.
    Inline(usize),
    Nothing,
}

/// A font that was read.
#[derive(Debug)]
struct Kept {
    font: Arc<Font>,
    /// Of one that has no number: while this is kept, nothing else has its place.
    _dict: Option<Dict>,
    weight: usize,
}

/// What a page draws by a name.
#[derive(Debug, Clone)]
enum Form {
    /// It is none, as an image, or is not there.
    None,
    /// What it draws cannot be read.
    Damaged,
    Is(Arc<Drawing>),
}

/// What a form draws, and its own resources.
#[derive(Debug)]
struct Drawing {
    bytes: Vec<u8>,
    resources: Option<Dict>,
    /// Objects in these.
    parts: usize,
}

/// Forms that were drawn last, by the numbers of their objects. A plot draws its marker some hundred thousand times:
/// neither what it draws nor the object itself is read again for each.
#[derive(Debug, Default)]
struct Forms {
    kept: HashMap<u32, Form>,
    bytes: usize,
}

impl Forms {
    fn keep(&mut self, number: u32, form: &Form) {
        /// Forms that are kept, bytes of memory of one, and of all. They are dropped together: a map draws as many
        /// symbols again and again as it has kinds of them.
        const MOST: usize = 4096;
        const LONGEST: usize = 256 << 10;
        const MOST_BYTES: usize = 4 << 20;
        let weight = match form {
            Form::Is(drawing) => drawing.bytes.len().saturating_add(drawing.parts.saturating_mul(BYTES_OF_PART)),
            Form::None | Form::Damaged => 0,
        };
        if weight > LONGEST {
            return;
        }
        self.bytes = self.bytes.saturating_add(weight);
        if self.kept.len() >= MOST || self.bytes > MOST_BYTES {
            self.kept.clear();
            self.bytes = weight;
        }
        self.kept.insert(number, form.clone());
    }
}

/// Fonts that were read, and forms.
#[derive(Debug, Default)]
pub(super) struct Fonts {
    forms: Forms,
    kept: HashMap<Key, Kept>,
    /// What they are called, in no order.
    keys: Vec<Key>,
    bytes: usize,
    random: u64,
}

impl Fonts {
    /// The font that `object` is.
    fn get(&mut self, document: &mut Document<'_>, object: &Object) -> io::Result<Arc<Font>> {
        let key = match object {
            Object::Reference(number, _) => Key::Number(*number),
            Object::Dict(dict) => Key::Inline(Arc::as_ptr(&dict.0).addr()),
            _ => Key::Nothing,
        };
        if let Some(kept) = self.kept.get(&key) {
            return Ok(Arc::clone(&kept.font));
        }
        let dict = document.resolve(object)?.dict().cloned().unwrap_or_default();
        let font = match Font::of(document, &dict) {
            Ok(font) => font,
            Err(error) if is_damage(&error) => Font::default(),
            Err(error) => return Err(error),
        };
        self.make_room();
        let (font, dict) = (Arc::new(font), object.dict().cloned());
        let of_dict = dict.as_ref().map_or(0, |dict| dict.parts().saturating_mul(BYTES_OF_PART));
        let weight = font.weight().saturating_add(of_dict);
        self.bytes = self.bytes.saturating_add(weight);
        self.keys.push(key);
        self.kept.insert(key, Kept { font: Arc::clone(&font), _dict: dict, weight });
        Ok(font)
    }

    /// Drops fonts until one more may be kept. A page may use some more than are kept, in turn: whichever was used
    /// longest ago comes next then, so any of them goes.
    fn make_room(&mut self) {
        while self.kept.len() >= MOST_FONTS || self.bytes > MOST_OF_FONTS {
            // The xorshift of Marsaglia.
            self.random = self.random.max(1);
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let Some(place) = (self.random as usize).checked_rem(self.keys.len()) else { return };
            let gone = self.kept.remove(&self.keys.swap_remove(place));
            self.bytes = self.bytes.saturating_sub(gone.map_or(0, |kept| kept.weight));
        }
    }
}

/// What resources have of one kind, looked up when it is used first.
#[derive(Debug, Default)]
struct Named {
    dict: Option<Dict>,
    found: HashMap<Vec<u8>, Object>,
}

impl Named {
    fn get(&mut self, document: &mut Document<'_>, of: (&Dict, &str), name: &[u8]) -> io::Result<Object> {
        if let Some(object) = self.found.get(name) {
            return Ok(object.clone());
        }
        let dict = if let Some(dict) = &self.dict {
            dict
        } else {
            let dict = document.dict(of.0, of.1)?.unwrap_or_default();
            document.hold(dict.parts())?;
            self.dict.insert(dict)
        };
        // A name is searched for among all.
        document.spend(dict.0.len() as u64)?;
        let object = std::str::from_utf8(name).ok().and_then(|name| dict.get(name)).cloned().unwrap_or(Object::Null);
        if self.found.len() < MOST_NAMES {
            self.found.insert(name.to_vec(), object.clone());
        }
        Ok(object)
    }
}

/// Where text is drawn.
#[derive(Debug, Clone, Copy)]
struct Matrix([f64; 6]);

impl Matrix {
    const NONE: Self = Self([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);

    #[allow(clippy::many_single_char_names, reason = "the names of ISO 32000-1, section 8.3.3")]
    fn moved(self, x: f64, y: f64) -> Self {
        let Self([a, b, c, d, e, f]) = self;
        Self([a, b, c, d, x.mul_add(a, y.mul_add(c, e)), x.mul_add(b, y.mul_add(d, f))])
    }
}

pub(super) struct Drawn<'d, 's> {
    document: &'d mut Document<'s>,
    fonts: &'d mut Fonts,
    font: Option<Arc<Font>>,
    text: String,
    line: Matrix,
    leading: f64,
    /// Where the last text was drawn.
    last: Option<(f64, f64)>,
    size: f64,
    left: usize,
    /// Not all that it draws could be read.
    is_partial: bool,
}

/// The text of a page, and whether that is all of it.
pub(super) fn of(
    document: &mut Document<'_>,
    fonts: &mut Fonts,
    page: &Dict,
    resources: Option<&Object>,
) -> io::Result<(String, bool)> {
    let contents = page.get("Contents").cloned().unwrap_or(Object::Null);
    let parts = match document.resolve(&contents)? {
        Object::Array(parts) => parts,
        _ => Arc::new(vec![contents]),
    };
    let (mut drawn, mut is_partial) = (Vec::new(), false);
    for part in parts.iter() {
        let Some(stream) = document.stream(part)? else {
            is_partial |= *part != Object::Null;
            continue;
        };
        is_partial |= stream.is_cut;
        let bytes = match document.decoded(&stream) {
            Ok(bytes) => bytes,
            Err(error) if is_damage(&error) => {
                is_partial = true;
                // What came before it is there.
                if document.is_spent() {
                    break;
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        if drawn.len().saturating_add(bytes.len()) > MOST_DRAWN {
            is_partial = true;
            break;
        }
        // Most pages have one stream, which may be long.
        if drawn.is_empty() {
            drawn = bytes;
        } else {
            drawn.extend(bytes);
        }
        drawn.push(b'\n');
    }
    let resources = document.resolve(resources.unwrap_or(&Object::Null))?.dict().cloned().unwrap_or_default();
    let (text, font) = (String::new(), None);
    let (line, leading, last, size) = (Matrix::NONE, 0.0, None, 1.0);
    let mut page = Drawn { document, fonts, font, text, line, leading, last, size, left: MOST_DRAWN, is_partial };
    page.draw(&drawn, &resources, 0)?;
    let is_partial = page.is_partial || page.text.len() >= LONGEST;
    let mut text = page.text;
    text.truncate(text.trim_end().len());
    if !text.is_empty() {
        text.push('\n');
    }
    Ok((text, !is_partial))
}

impl Drawn<'_, '_> {
    /// Follows what `bytes` draw. Forms lie in each other no deeper than `MOST_LEVELS`.
    fn draw(&mut self, bytes: &[u8], resources: &Dict, level: usize) -> io::Result<()> {
        self.left = self.left.saturating_sub(bytes.len());
        let held = self.document.held;
        let (mut fonts, mut forms) = (Named::default(), Named::default());
        let mut parser = Parser::of_content(bytes);
        let (mut operands, mut waiting) = (Vec::new(), 0_usize);
        while self.text.len() < LONGEST {
            let (before, spent) = (parser.at(), parser.steps());
            let object = parser.object();
            // Each code of a long string is looked up.
            self.document.spend(parser.steps().saturating_sub(spent))?;
            let Some(object) = object else {
                // What is none is passed.
                if parser.at() <= before || parser.at() >= bytes.len() {
                    break;
                }
                operands.clear();
                waiting = 0;
                continue;
            };
            let Object::Word(word) = object else {
                waiting = waiting.saturating_add(parser.parts());
                if waiting <= MOST_OPERANDS {
                    operands.push(object);
                }
                continue;
            };
            match word.as_slice() {
                b"ID" => {
                    // An image that stands between what is drawn, up to its end.
                    let rest = bytes.get(parser.at()..).unwrap_or_default();
                    let is_end = |place: &usize| {
                        let around =
                            |at: Option<usize>| at.and_then(|at| rest.get(at)).is_none_or(u8::is_ascii_whitespace);
                        around(place.checked_sub(1)) && around(place.checked_add(2))
                    };
                    let end = memchr::memmem::find_iter(rest, b"EI").find(is_end).unwrap_or(rest.len());
                    parser.go_to(parser.at().saturating_add(end).saturating_add(2));
                }
                b"Do" if level < MOST_LEVELS && self.left > 0 => {
                    if let Some(Object::Name(name)) = operands.last() {
                        let form = forms.get(self.document, (resources, "XObject"), name)?;
                        self.form(&form, resources, level)?;
                    }
                }
                b"Tf" => self.set_font(&mut fonts, resources, &operands)?,
                word => self.operator(word, &operands),
            }
            operands.clear();
            waiting = 0;
        }
        self.document.held = held;
        Ok(())
    }

    fn set_font(&mut self, fonts: &mut Named, resources: &Dict, operands: &[Object]) -> io::Result<()> {
        let [Object::Name(name), size] = operands else { return Ok(()) };
        self.size = size.number().unwrap_or(1.0);
        let font = fonts.get(self.document, (resources, "Font"), name)?;
        if font != Object::Null {
            self.font = Some(self.fonts.get(self.document, &font)?);
        }
        Ok(())
    }

    fn form(&mut self, object: &Object, resources: &Dict, level: usize) -> io::Result<()> {
        /// Steps that drawing one takes, beside those for what it draws.
        const WORK: u64 = 4;
        self.document.spend(WORK)?;
        let number = object.reference().map(|(number, _)| number);
        let known = number.and_then(|number| self.fonts.forms.kept.get(&number)).cloned();
        let form = if let Some(form) = known {
            form
        } else {
            let form = self.read_form(object)?;
            if let Some(number) = number {
                self.fonts.forms.keep(number, &form);
            }
            form
        };
        let drawing = match form {
            Form::Is(drawing) => drawing,
            Form::Damaged => {
                self.is_partial = true;
                return Ok(());
            }
            Form::None => return Ok(()),
        };
        if drawing.bytes.len() > self.left {
            (self.left, self.is_partial) = (0, true);
            return Ok(());
        }
        let held = self.document.held;
        self.document.hold(drawing.parts)?;
        self.draw(&drawing.bytes, drawing.resources.as_ref().unwrap_or(resources), level.saturating_add(1))?;
        self.document.held = held;
        Ok(())
    }

    /// The form that `object` refers to.
    fn read_form(&mut self, object: &Object) -> io::Result<Form> {
        let Some(stream) = self.document.stream(object)? else { return Ok(Form::None) };
        if self.document.get(&stream.dict, "Subtype")?.name() != Some(b"Form") {
            return Ok(Form::None);
        }
        let resources = self.document.dict(&stream.dict, "Resources")?;
        let parts = resources.as_ref().map_or(0, Dict::parts);
        match self.document.decoded(&stream) {
            Ok(bytes) => Ok(Form::Is(Arc::new(Drawing { bytes, resources, parts }))),
            Err(error) if is_damage(&error) && !self.document.is_spent() => Ok(Form::Damaged),
            Err(error) => Err(error),
        }
    }

    fn operator(&mut self, word: &[u8], operands: &[Object]) {
        let number = |place: usize| operands.get(place).and_then(Object::number).unwrap_or(0.0);
        match word {
            b"BT" => self.line = Matrix::NONE,
            b"TL" => self.leading = number(0),
            b"Td" => self.line = self.line.moved(number(0), number(1)),
            b"TD" => {
                self.leading = -number(1);
                self.line = self.line.moved(number(0), number(1));
            }
            b"Tm" => self.line = Matrix([number(0), number(1), number(2), number(3), number(4), number(5)]),
            b"T*" => self.line = self.line.moved(0.0, -self.leading),
            b"Tj" => self.show(operands.last()),
            b"'" | b"\"" => {
                self.line = self.line.moved(0.0, -self.leading);
                self.show(operands.last());
            }
            b"TJ" => {
                self.place();
                for part in operands.last().and_then(Object::array).unwrap_or_default() {
                    match part {
                        Object::String(codes) => self.codes(codes),
                        part => {
                            if part.number().is_some_and(|gap| gap < GAP) {
                                self.blank();
                            }
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn show(&mut self, codes: Option<&Object>) {
        self.place();
        if let Some(Object::String(codes)) = codes {
            self.codes(codes);
        }
    }

    fn codes(&mut self, codes: &[u8]) {
        if let Some(font) = &self.font {
            font.text(codes, &mut self.text, LONGEST);
        }
    }

    fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with([' ', '\n']) {
            self.text.push(' ');
        }
    }

    /// Ends a line that has begun.
    fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.truncate(self.text.trim_end_matches(' ').len());
            self.text.push('\n');
        }
    }

    /// Text is drawn where it is now: in another line than what was drawn before, or at another place of it.
    fn place(&mut self) {
        let Matrix([_, _, _, scale, x, y]) = self.line;
        let size = (self.size * scale).abs().max(1.0);
        match self.last {
            Some((_, last)) if (last - y).abs() > size / 2.0 => self.end_line(),
            // What follows without being placed goes on.
            Some((last, _)) if (last - x).abs() > 0.0 => self.blank(),
            _ => {}
        }
        self.last = Some((x, y));
    }
}
