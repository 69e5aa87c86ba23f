//! Documents that ask for more than they have.

#![allow(clippy::format_push_string, clippy::format_collect, reason = "it is read more easily so")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tarnfs_source::{MemorySource, SharedSource};

use super::document::{self, Document, Objects, make_room};
use super::object::{Dict, Object, Parser};
use super::places::Place;
use super::reader;
use super::text::{self, Fonts};
use crate::{Decode, Entry, Event, Options};

mod steps;

/// A document of these objects, whose first one is the root.
fn document(objects: &[(u32, String)]) -> Vec<u8> {
    document_with("", objects)
}

/// The same, of which more is told beside the root.
fn document_with(more: &str, objects: &[(u32, String)]) -> Vec<u8> {
    let mut out = String::from("%PDF-1.7\n");
    let mut table = String::new();
    for (number, object) in objects {
        table += &format!("{number} 1\n{:010} 00000 n \n", out.len());
        out += &format!("{number} 0 obj\n{object}\nendobj\n");
    }
    let place = out.len();
    out += &format!("xref\n{table}trailer\n<</Root 1 0 R{more}>>\nstartxref\n{place}\n%%EOF\n");
    out.into_bytes()
}

fn stream(dict: &str, content: &str) -> String {
    format!("<<{dict}/Length {}>>stream\n{content}\nendstream", content.len())
}

/// What is told of it: files, and damage.
fn told(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    told_with(bytes, &Options::default())
}

fn told_with(bytes: &[u8], options: &Options) -> (Vec<String>, Vec<String>) {
    let (entries, damage) = entries(bytes, options);
    (entries.into_iter().map(|entry| String::from_utf8(entry.path).unwrap()).collect(), damage)
}

fn entries(bytes: &[u8], options: &Options) -> (Vec<Entry>, Vec<String>) {
    let source: SharedSource = Arc::new(MemorySource::new(bytes, "a document"));
    let (mut files, mut damage) = (Vec::new(), Vec::new());
    let mut receive = |event| {
        match event {
            Event::Entry(entry) => files.push(*entry),
            Event::Damage(found) => damage.push(found.what),
            _ => {}
        }
        Ok(())
    };
    if let Err(error) = reader::read(&source, options, 0, &mut receive) {
        damage.push(error.to_string());
    }
    (files, damage)
}

const CATALOG: &str = "<</Type/Catalog/Pages 2 0 R>>";

#[test]
fn tables_of_rows_without_bytes_are_none() {
    for index in ["/Index[0 9000000000000000000]", "/Size 9000000000000000000"] {
        for widths in ["0 0 0", "0 0 1", "1 4 1"] {
            let mut bytes = format!("%PDF-1.7\n1 0 obj\n{CATALOG}\nendobj\n2 0 obj\n<</Kids[]>>\nendobj\n");
            let place = bytes.len();
            let table = stream(&format!("/Type/XRef/Root 1 0 R/W[{widths}]{index}"), "x");
            bytes += &format!("3 0 obj\n{table}\nendobj\nstartxref\n{place}\n%%EOF\n");
            // It is as if there was no table.
            assert_eq!(told(bytes.as_bytes()), (Vec::new(), Vec::new()), "{index} {widths}");
        }
    }
}

#[test]
fn what_a_table_hides_is_in_the_stream_that_belongs_to_it() {
    let mut bytes = String::from("%PDF-1.7\n");
    let mut places = vec![None; 8];
    let objects = [
        (1, "<</Type/Catalog/Pages 2 0 R/Names<</EmbeddedFiles 5 0 R>>>>".to_owned()),
        (2, "<</Kids[]>>".to_owned()),
        (4, stream("", "content")),
        (7, stream("/Type/ObjStm/N 2/First 9", "5 0 6 25 <</Names[(a.txt) 6 0 R]>><</UF(a.txt)/EF<</F 4 0 R>>>>")),
    ];
    for (number, object) in objects {
        places[number] = Some(bytes.len());
        bytes += &format!("{number} 0 obj\n{object}\nendobj\n");
    }
    let coded = bytes.len();
    let rows = "\u{2}\0\0\0\u{7}\0\u{2}\0\0\0\u{7}\u{1}";
    bytes += &format!("8 0 obj\n{}\nendobj\n", stream("/Type/XRef/W[1 4 1]/Index[5 2]/Size 9", rows));
    let plain = bytes.len();
    bytes += "xref\n0 8\n";
    for place in places {
        bytes += &place.map_or("0000000000 65535 f \n".to_owned(), |place| format!("{place:010} 00000 n \n"));
    }
    bytes += &format!("trailer\n<</Size 9/Root 1 0 R/XRefStm {coded}>>\nstartxref\n{plain}\n%%EOF\n");
    assert_eq!(told(bytes.as_bytes()), (vec!["a.txt".to_owned()], Vec::new()));
}

/// A dictionary of so many names.
fn many(count: usize) -> String {
    format!("<<{}>>", "/a 1".repeat(count))
}

#[test]
fn resources_in_each_other_are_not_kept_without_end() {
    const LEVELS: u32 = 8;
    let chain = |count: usize| {
        let mut objects = vec![(1, CATALOG.to_owned())];
        for level in 2..LEVELS + 2 {
            let kids = format!("[{} 0 R<</A 1>>]", level + 1);
            objects.push((level, format!("<</Kids{kids}/Resources{}>>", many(count))));
        }
        objects.push((LEVELS + 2, "<</Type/Page>>".to_owned()));
        document(&objects)
    };
    assert_eq!(told(&chain(10)).1, Vec::<String>::new());
    let (_, damage) = told(&chain(200_000));
    assert!(damage.len() == 1 && damage[0].contains("kept in memory"), "{damage:?}");
}

/// What it takes to read the text of a page that draws `content`.
fn work(resources: &str, content: &str, more: &[(u32, String)]) -> (String, u64) {
    work_with(&Options::default(), resources, content, more)
}

fn work_with(options: &Options, resources: &str, content: &str, more: &[(u32, String)]) -> (String, u64) {
    let mut objects = vec![(1, CATALOG.to_owned()), (2, "<</Kids[]>>".to_owned()), (3, stream("", content))];
    objects.extend_from_slice(more);
    let bytes = document(&objects);
    let most = document::steps(bytes.len() as u64, 1);
    let source: SharedSource = Arc::new(MemorySource::new(bytes.as_slice(), "a document"));
    let mut document = Document::open(&source, options, 0).unwrap();
    let page = Dict(Arc::new(vec![(b"Contents".to_vec(), Object::Reference(3, 0))]));
    let resources = Parser::new(resources.as_bytes()).object().unwrap();
    let (text, is_whole) = text::of(&mut document, &mut Fonts::default(), &page, Some(&resources)).unwrap();
    assert_eq!(is_whole, text.len() < 2 << 20);
    assert_eq!(document.held, 0);
    (text, most - document.work)
}

/// A font is read once, and a name is looked up once, however often they are asked for.
#[test]
fn fonts_in_the_resources_are_read_once() {
    let font = format!("<</Encoding<</Differences[65/b {}]>>>>", "/a ".repeat(50_000));
    let resources = format!("<</Font<<{}/F{font}>>>>", "/x 1".repeat(50_000));
    let (text, work) = work(&resources, &format!("{}(A) Tj", "/F 1 Tf\n".repeat(20_000)), &[]);
    assert_eq!(text, "b\n");
    assert!(work < 500_000, "{work}");
}

#[test]
fn names_of_forms_are_looked_up_once() {
    let resources = format!("<</XObject<<{}/F 4 0 R>>>>", "/x 1".repeat(50_000));
    let form = stream("/Subtype/Form", "");
    let (_, work) = work(&resources, &"/F Do\n".repeat(5000), &[(4, form)]);
    assert!(work < 400_000, "{work}");
}

/// A map draws some kinds of symbols in turn. Each is decoded once.
#[test]
fn forms_that_are_drawn_in_turn_are_decoded_once() {
    const KINDS: u32 = 50;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let decode = Decode::default().with_each(move |_, _, _, take| {
        count.fetch_add(1, Ordering::Relaxed);
        take(b"0 0 m")
    });
    let names: String = (0..KINDS).map(|kind| format!("/F{kind} {} 0 R", kind + 4)).collect();
    let forms: Vec<_> =
        (0..KINDS).map(|kind| (kind + 4, stream("/Subtype/Form/Filter/FlateDecode", "0 0 m"))).collect();
    let round: String = (0..KINDS).map(|kind| format!("/F{kind} Do\n")).collect();
    let options = Options { decode, ..Options::default() };
    let (_, work) = work_with(&options, &format!("<</XObject<<{names}>>>>"), &round.repeat(1000), &forms);
    assert_eq!(asked.load(Ordering::Relaxed), KINDS as usize);
    assert!(work < 4_000_000, "{work}");
}

/// A plot draws its marker very often.
#[test]
fn a_form_that_is_drawn_again_and_again_is_decoded_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let decode = Decode::default().with_each(move |_, _, _, take| {
        count.fetch_add(1, Ordering::Relaxed);
        take(b"0 0 m 1 1 l S")
    });
    let fonts = "/Font<</T<</Type/Font>>>>/XObject<</F 5 0 R>>";
    let bytes = document(&[
        (1, CATALOG.to_owned()),
        (2, "<</Kids[3 0 R]>>".to_owned()),
        (3, format!("<</Type/Page/Resources<<{fonts}>>/Contents 4 0 R>>")),
        (4, stream("", &format!("{}BT /T 1 Tf (Hello) Tj ET", "/F Do\n".repeat(200_000)))),
        (5, stream("/Subtype/Form/Filter/FlateDecode", "x")),
    ]);
    let options = Options { decode, ..Options::default() };
    assert_eq!(told_with(&bytes, &options), (vec!["page_0.txt".to_owned()], Vec::new()));
    // For the text, and perhaps once more to look for images in it.
    let asked = asked.load(Ordering::Relaxed);
    assert!((1..=2).contains(&asked), "{asked}");
}

/// What waits for an operator is no more than some.
#[test]
fn operands_are_passed_if_there_are_too_many() {
    let array = format!("[{}]", "(A)".repeat(100_000));
    let font = "<</Font<</F<</Type/Font>>>>>>";
    assert_eq!(work(font, &format!("/F 1 Tf {array} TJ (B) Tj"), &[]).0, "B\n");
    // No more text comes of a string than a page has.
    let long = format!("/F 1 Tf ({}) Tj", "A".repeat(3 << 20));
    assert!(work(font, &long, &[]).0.len() < (2 << 20) + 100);
}

/// Objects in a stream are read anew for each reference to them.
#[test]
fn long_objects_in_streams_count_each_time() {
    const COUNT: usize = 2000;
    let index: String = (0..COUNT).map(|number| format!("{} 0 ", 10 + number)).collect();
    let content = format!("{index}({})", "a".repeat(1 << 20));
    let kids: String = (0..COUNT).map(|number| format!("{} 0 R ", 10 + number)).collect();
    let mut bytes = format!("%PDF-1.7\n1 0 obj\n{CATALOG}\nendobj\n2 0 obj\n<</Kids[{kids}]>>\nendobj\n");
    let objects = stream(&format!("/Type/ObjStm/N {COUNT}/First {}", index.len()), &content);
    // There is no table.
    bytes += &format!("3 0 obj\n{objects}\nendobj\n");
    let (files, damage) = told(bytes.as_bytes());
    assert!(files.is_empty());
    assert!(damage.iter().any(|what| what.contains("is not read")), "{:?}", damage.last());
    assert!(damage.len() < COUNT, "{}", damage.len());
}

#[test]
fn pages_that_are_missing_are_told() {
    let bytes = document(&[(1, CATALOG.to_owned()), (2, "<</Kids[3 0 R]>>".to_owned())]);
    assert_eq!(told(&bytes).1, ["page 0, or what lists it, is missing"]);
    let page = "<</Type/Page/Contents 4 0 R>>".to_owned();
    let bytes = document(&[(1, CATALOG.to_owned()), (2, "<</Kids[3 0 R]>>".to_owned()), (3, page)]);
    assert_eq!(told(&bytes).1, ["not all that page 0 shows can be read"]);
    // Cut anywhere, it is never taken for whole, unless it is.
    let bytes = document(&[
        (1, CATALOG.to_owned()),
        (2, "<</Kids[3 0 R]>>".to_owned()),
        (3, "<</Type/Page/Resources<</Font<</F<</Type/Font>>>>>>/Contents 4 0 R>>".to_owned()),
        (4, stream("", "BT /F 1 Tf (Hello) Tj ET")),
    ]);
    assert_eq!(told(&bytes), (vec!["page_0.txt".to_owned()], Vec::new()));
    for length in 0..bytes.len() {
        let (files, damage) = told(&bytes[..length]);
        assert!(files.len() == 1 || !damage.is_empty(), "{length}");
    }
}

/// What tables say is kept, and paid for as long as they are read: millions of objects, one for each byte that a
/// document has, would be more than half a gigabyte.
#[test]
fn the_places_of_objects_are_paid_for() {
    const GAPS: u32 = 20_000;
    let mut bytes = document(&[(1, CATALOG.to_owned()), (2, "<</Kids[]>>".to_owned())]);
    let end = memchr::memmem::find(&bytes, b"trailer").unwrap();
    let rows: String = (1..=GAPS).map(|number| format!("{} 1\n0 0 n \n", number * 1000)).collect();
    bytes.splice(end..end, rows.into_bytes());
    let source: SharedSource = Arc::new(MemorySource::new(bytes.as_slice(), "a document"));
    let open = |shares: u64| {
        let options = Options { shares, ..Options::default() };
        Document::open(&source, &options, 0).map(|document| (document.places.weight(), document.budget.bytes))
    };
    let (weight, left) = open(1).unwrap();
    let taken = document::budget(bytes.len() as u64, 1).bytes - left;
    assert!(weight > 500 * GAPS as usize && taken >= weight as u64, "{weight} {taken}");
    // One of many documents has not as much.
    assert!(open(1 << 20).unwrap_err().to_string().contains("too often"));
}

/// A table of references is read as it comes. Parts end where they like, and ranges may have no objects.
#[test]
fn rows_of_tables_may_come_in_parts() {
    let catalog = format!("1 0 obj\n{CATALOG}\nendobj\n");
    let (first, second) = (9, 9 + catalog.len());
    let mut bytes = format!("%PDF-1.7\n{catalog}2 0 obj\n<</Kids[7 0 R]>>\nendobj\n").into_bytes();
    let place = bytes.len();
    let table = stream("/Type/XRef/Root 1 0 R/W[1 2 1]/Index[1 0 1 2 5 0 7 1 9 9]/Size 9/Filter/FlateDecode", "x");
    bytes.extend(format!("3 0 obj\n{table}\nendobj\nstartxref\n{place}\n%%EOF\n").into_bytes());
    // The last row is cut.
    let rows = [[1, 0, first as u8, 0], [1, 0, second as u8, 0], [2, 0, 3, 5], [1, 0, 1, 0]].concat();
    let rows = rows[..15].to_vec();
    let source: SharedSource = Arc::new(MemorySource::new(bytes.as_slice(), "a document"));
    for length in 1..=rows.len() {
        let rows = rows.clone();
        let decode = Decode::default().with_each(move |_, _, _, take| rows.chunks(length).try_for_each(&mut *take));
        let options = Options { decode, ..Options::default() };
        let document = Document::open(&source, &options, 0).unwrap();
        let places = [1, 2, 3, 5, 7, 9].map(|number| document.places.get(number));
        let expected =
            [Some(Place::At(first as u64)), Some(Place::At(second as u64)), None, None, Some(Place::In(3, 5)), None];
        assert_eq!(places, expected, "{length}");
    }
}

/// Any number of pages may show what the resources that they share name, which may be one image under any number of
/// names.
#[test]
fn what_is_told_is_paid_for() {
    const PAGES: u32 = 100;
    const NAMES: u32 = 2000;
    let kids: String = (0..PAGES).map(|page| format!("{} 0 R ", 10 + page)).collect();
    let names: String = (0..NAMES).map(|name| format!("/{name:0100} 3 0 R")).collect();
    let mut objects = vec![
        (1, CATALOG.to_owned()),
        (2, format!("<</Kids[{kids}]/Resources<</XObject<<{names}>>>>>>")),
        (3, stream("/Subtype/Image/Width 1/Height 1/BitsPerComponent 8/ColorSpace/DeviceGray", "x")),
    ];
    objects.extend((0..PAGES).map(|page| (10 + page, "<</Type/Page>>".to_owned())));
    let bytes = document(&objects);
    let most = crate::image::Budget::new(bytes.len() as u64, 64).bytes;
    let (files, damage) = told_with(&bytes, &Options { shares: 64, ..Options::default() });
    let paths: usize = files.iter().map(String::len).sum();
    assert!(files.len() > NAMES as usize && paths as u64 <= most, "{} {paths}", files.len());
    assert!(damage.iter().any(|what| what.contains("more files in it")), "{:?}", damage.first());
}

/// An archive may have any number of small documents.
#[test]
fn a_small_document_tells_of_few_files() {
    const NAMES: usize = 1000;
    const PAGES: usize = 200;
    let names: String = (0..NAMES).map(|name| format!("/{name:x} 3 0 R")).collect();
    let image = stream("/Subtype/Image/Width 1/Height 1/Filter/DCTDecode", "x");
    let document = |pages: usize| {
        let kids = "<</Type/Page>>".repeat(pages);
        document(&[
            (1, CATALOG.to_owned()),
            (2, format!("<</Kids[{kids}]/Resources<</XObject<<{names}>>>>>>")),
            (3, image.clone()),
        ])
    };
    let (files, damage) = told(&document(20));
    assert_eq!((files.len(), damage), (20 * NAMES, Vec::new()));
    let (files, damage) = told(&document(PAGES));
    assert!((20 * NAMES..PAGES * NAMES * 2 / 3).contains(&files.len()), "{}", files.len());
    assert!(damage.iter().any(|what| what.contains("more files in it")), "{:?}", damage.first());
}

/// A stream of objects that is long makes those go that are kept.
#[test]
fn streams_that_are_kept_make_room() {
    let mut kept: std::collections::VecDeque<_> =
        (0..4).map(|number| (number, Arc::new(Objects { bytes: vec![0; 1 << 20], places: Vec::new() }))).collect();
    make_room(&mut kept, 60 << 20);
    assert_eq!(kept.len(), 4);
    make_room(&mut kept, 62 << 20);
    assert_eq!(kept.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1]);
    make_room(&mut kept, 64 << 20);
    assert!(kept.is_empty());
}

/// The values of an image may count the places of its table from the last one on.
#[test]
fn tables_of_colors_may_be_read_backwards() {
    for (bits, decode, expected) in [
        (1, "", [1, 2, 3, 4, 5, 6].to_vec()),
        (1, "/Decode[0 1]", [1, 2, 3, 4, 5, 6].to_vec()),
        (1, "/Decode[1 0]", [4, 5, 6, 1, 2, 3].to_vec()),
        (4, "/Decode[15 0]", [vec![0; 42], vec![4, 5, 6, 1, 2, 3]].concat()),
        (8, "/Decode[255 0]", [vec![0; 762], vec![4, 5, 6, 1, 2, 3]].concat()),
        (8, "/Decode[1 0]", [vec![1, 2, 3, 4, 5, 6], vec![0; 762]].concat()),
    ] {
        let image = format!(
            "/Subtype/Image/Width 1/Height 1/BitsPerComponent {bits}/ColorSpace[/Indexed/DeviceRGB 1<010203040506>]{decode}"
        );
        let bytes = document(&[
            (1, CATALOG.to_owned()),
            (2, "<</Kids[3 0 R]>>".to_owned()),
            (3, "<</Type/Page/Resources<</XObject<</I 4 0 R>>>>>>".to_owned()),
            (4, stream(&image, "x")),
        ]);
        let (files, _) = entries(&bytes, &Options::default());
        let properties = &files[0].body.pieces.as_ref().unwrap()[0].coder.as_ref().unwrap().steps[0].properties;
        assert_eq!(files[0].path, b"page_0_I.png");
        assert!(
            properties.ends_with(&[&expected.len().to_le_bytes()[..2], expected.as_slice()].concat()),
            "{bits} {decode}"
        );
    }
}

/// Three numbers of a colour are not always red, green and blue.
#[test]
fn tables_of_other_colors_are_not_shown_as_red_green_and_blue() {
    for (base, end) in [("/DeviceRGB", "png"), ("[/Lab<<>>]", "raw"), ("[/DeviceN[/A/B/C]/DeviceRGB null]", "raw")] {
        let image =
            format!("/Subtype/Image/Width 1/Height 1/BitsPerComponent 8/ColorSpace[/Indexed{base} 1<010203040506>]");
        let bytes = document(&[
            (1, CATALOG.to_owned()),
            (2, "<</Kids[3 0 R]>>".to_owned()),
            (3, "<</Type/Page/Resources<</XObject<</I 4 0 R>>>>>>".to_owned()),
            (4, stream(&image, "x")),
        ]);
        assert_eq!(told(&bytes), (vec![format!("page_0_I.{end}")], Vec::new()), "{base}");
    }
}

/// A decoder that gives so many bytes of each stream and ends with an error, and how often it was asked.
fn failing(length: usize) -> (Options, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let decode = Decode::default().with_each(move |_, _, _, take| {
        count.fetch_add(1, Ordering::Relaxed);
        (0..length / 1024).try_for_each(|_| take(&[b' '; 1024]))?;
        Err(crate::image::damaged("it is damaged"))
    });
    (Options { decode, ..Options::default() }, asked)
}

/// A page may name one stream any number of times.
#[test]
fn streams_that_cannot_be_decoded_count_each_time() {
    const COUNT: usize = 100_000;
    let page = format!("<</Type/Page/Contents[{}]>>", "4 0 R ".repeat(COUNT));
    for (length, most) in [(8 << 20, 40), (0, 50_000)] {
        let bytes = document(&[
            (1, CATALOG.to_owned()),
            (2, "<</Kids[3 0 R]>>".to_owned()),
            (3, page.clone()),
            (4, stream("/Filter/FlateDecode", "x")),
        ]);
        let (options, asked) = failing(length);
        let (files, damage) = told_with(&bytes, &options);
        assert!(files.is_empty() && !damage.is_empty());
        let asked = asked.load(Ordering::Relaxed);
        assert!((2..most).contains(&asked), "{length}: {asked}");
    }
}

/// Each of these streams costs a row, whatever is in it.
#[test]
fn rows_of_a_predictor_count() {
    let page = format!("<</Type/Page/Contents[{}]>>", "4 0 R ".repeat(1000));
    let filter = "/Filter/FlateDecode/DecodeParms<</Predictor 2/Colors 8/BitsPerComponent 8/Columns 100000>>";
    let bytes =
        document(&[(1, CATALOG.to_owned()), (2, "<</Kids[3 0 R]>>".to_owned()), (3, page), (4, stream(filter, "x"))]);
    let (options, asked) = failing(0);
    told_with(&bytes, &options);
    let asked = asked.load(Ordering::Relaxed);
    assert!((2..30).contains(&asked), "{asked}");
}

#[test]
fn a_stream_of_objects_is_opened_once() {
    let objects = stream("/Type/ObjStm/N 1/First 4/Filter/FlateDecode", "x");
    // There is no table. What has its number before it is another version of it, and what is in it is asked for often.
    let kids = "9 0 R ".repeat(100);
    let mut bytes = format!("%PDF-1.7\n1 0 obj\n{CATALOG}\nendobj\n2 0 obj\n<</Kids[{kids}]>>\nendobj\n");
    bytes += &format!("{}3 0 obj\n{objects}\nendobj\n", "3 0 obj /ObjStm\n".repeat(1000));
    let (options, asked) = failing(1 << 20);
    told_with(bytes.as_bytes(), &options);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // The same where a table says what is in it.
    let mut bytes = format!("%PDF-1.7\n1 0 obj\n{CATALOG}\nendobj\n");
    let kids: String = (10..100).map(|number| format!("{number} 0 R ")).collect();
    let mut places = vec![(1, 9_usize), (2, bytes.len())];
    bytes += &format!("2 0 obj\n<</Kids[{kids}]>>\nendobj\n");
    places.push((3, bytes.len()));
    bytes += &format!("3 0 obj\n{objects}\nendobj\n");
    let place = bytes.len();
    let mut rows: Vec<u8> = places.iter().flat_map(|(_, at)| [1, (at >> 8) as u8, *at as u8, 0]).collect();
    rows.extend((0..90).flat_map(|index| [2, 0, 3, index]));
    let table = format!("/Type/XRef/Root 1 0 R/W[1 2 1]/Index[1 3 10 90]/Size 100/Length {}", rows.len());
    let table = [format!("4 0 obj\n<<{table}>>stream\n").as_bytes(), &rows, b"\nendstream\nendobj\n"].concat();
    let end = format!("startxref\n{place}\n%%EOF\n");
    let bytes = [bytes.as_bytes(), &table, end.as_bytes()].concat();
    let (options, asked) = failing(1 << 20);
    let (_, damage) = told_with(&bytes, &options);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // It is told once, whatever was in it.
    let told = damage.iter().filter(|what| what.contains("the objects in stream 3 are missing: it is damaged"));
    assert_eq!(told.count(), 1, "{damage:?}");
}

/// Where what is attached is described is damaged, it is missing.
#[test]
fn what_is_lost_with_a_stream_of_objects_is_told() {
    for (objects, why) in [
        (stream("/Type/ObjStm/N 1/First 4/Filter/FlateDecode", "x"), "it is damaged"),
        (stream("/Type/ObjStm/N 1/First 4", ""), "a stream of objects is damaged"),
    ] {
        let (files, damage) = told_with(&with_objects_in(objects), &failing(0).0);
        assert_eq!(files, [""; 0]);
        assert_eq!(damage, [format!("the objects in stream 3 are missing: {why}")]);
    }
}

/// A document that describes what is attached in the stream `objects`.
fn with_objects_in(objects: String) -> Vec<u8> {
    let mut bytes = String::from("%PDF-1.7\n");
    let mut places = Vec::new();
    for (number, object) in [
        (1, "<</Type/Catalog/Pages 2 0 R/Names<</EmbeddedFiles<</Names[(a.txt) 5 0 R]>>>>>>".to_owned()),
        (2, "<</Kids[]>>".to_owned()),
        (3, objects),
    ] {
        places.push(bytes.len());
        bytes += &format!("{number} 0 obj\n{object}\nendobj\n");
    }
    let place = bytes.len();
    let mut rows: Vec<u8> = places.iter().flat_map(|at| [1, (at >> 8) as u8, *at as u8, 0]).collect();
    rows.extend([2, 0, 3, 0]);
    let table = format!("/Type/XRef/Root 1 0 R/W[1 2 1]/Index[1 3 5 1]/Size 6/Length {}", rows.len());
    let table = [format!("4 0 obj\n<<{table}>>stream\n").as_bytes(), &rows, b"\nendstream\nendobj\n"].concat();
    [bytes.as_bytes(), &table, format!("startxref\n{place}\n%%EOF\n").as_bytes()].concat()
}

/// A form that waits has the names of all those that it is in.
#[test]
fn long_names_of_forms_are_not_kept_without_end() {
    const FORMS: usize = 100_000;
    let name = "n".repeat(120);
    let mut objects = vec![
        (1, CATALOG.to_owned()),
        (2, "<</Kids[3 0 R]>>".to_owned()),
        (3, format!("<</Type/Page/Resources<</XObject<</{name} 10 0 R>>>>>>")),
        (4, "<</XObject<<>>>>".to_owned()),
    ];
    for level in 10..16 {
        let inner = format!("/Subtype/Form/Resources<</XObject<</{name} {} 0 R>>>>", level + 1);
        objects.push((level, stream(&inner, "")));
    }
    let names: String = (0..FORMS).map(|number| format!("/a{number} {} 0 R", 100 + number)).collect();
    objects.push((16, stream(&format!("/Subtype/Form/Resources<</XObject<<{names}>>>>"), "")));
    let form = stream("/Subtype/Form/Resources 4 0 R", "");
    objects.extend((0..FORMS as u32).map(|number| (100 + number, form.clone())));
    let (_, damage) = told(&document(&objects));
    assert!(damage.iter().any(|what| what.contains("kept in memory")), "{:?}", damage.first());
}

/// What is attached may be encrypted by itself, in another way than the rest of the document (ISO 32000-1, 7.6.5), or
/// be coded as nothing here undoes it: neither is handed out as it is stored.
#[test]
fn what_is_attached_is_undone_or_not_read() {
    const FIRST: u32 = 10;
    const FILES: [(&str, &str, Option<&str>, &[u8]); 12] = [
        ("rc4", "/Crypt/DecodeParms<</Name/Std>>", Some("pdf-stream"), &[7, 1]),
        ("aes", "[/Crypt/FlateDecode]/DecodeParms[<</Name/Aes>>null]", Some("pdf-stream"), &[7, 2]),
        ("inner", "[/FlateDecode/Crypt]/DecodeParms[null<</Name/Std>>]", Some("pdf-stream"), &[1, 7, 1]),
        ("clear", "/Crypt/DecodeParms<</Name/Identity>>", None, &[]),
        ("clear too", "/Crypt", None, &[]),
        ("by nobody", "/Crypt/DecodeParms<</Name/Open>>", None, &[]),
        ("in another way", "/Crypt/DecodeParms<</Name/New>>", Some("the filter Crypt of PDF"), &[]),
        ("unnamed", "[/Crypt/FlateDecode]/DecodeParms[<</Name/X>>null]", Some("the filter Crypt of PDF"), &[]),
        ("brotli", "/BrotliDecode", Some("the filter BrotliDecode of PDF"), &[]),
        ("behind", "[/FlateDecode/Foo]", Some("the filter Foo of PDF"), &[]),
        ("before", "[/Foo/FlateDecode]", Some("the filter Foo of PDF"), &[]),
        ("fax", "/CCITTFaxDecode", Some("the filter CCITTFaxDecode of PDF"), &[]),
    ];
    let numbers = || (FIRST..).step_by(2).zip(FILES);
    let names: String = numbers().map(|(number, (name, ..))| format!("({name}){number} 0 R")).collect();
    let mut objects = vec![
        (1, format!("<</Type/Catalog/Pages 2 0 R/Names<</EmbeddedFiles<</Names[{names}]>>>>>>")),
        (2, "<</Kids[]>>".to_owned()),
    ];
    for (number, (name, filter, ..)) in numbers() {
        objects.push((number, format!("<</UF({name})/EF<</F {} 0 R>>>>", number + 1)));
        objects.push((number + 1, stream(&format!("/Filter{filter}"), "stored")));
    }
    let encryption = format!(
        "/ID[(id)(id)]/Encrypt<</Filter/Standard/V 4/R 4/Length 128/P -4/O({0})/U({0})/StmF/Identity/StrF/Identity\
         /CF<</Std<</CFM/V2>>/Aes<</CFM/AESV2>>/Open<</CFM/None>>/New<</CFM/AESV9>>>>>>",
        "x".repeat(32)
    );
    let options =
        Options { decode: Decode::default().with_each(|_, _, _, take| take(b"undone")), ..Options::default() };
    let (files, damage) = entries(&document_with(&encryption, &objects), &options);
    assert_eq!((files.len(), damage), (FILES.len(), Vec::new()));
    for (entry, (number, (name, _, codec, properties))) in files.iter().zip(numbers()) {
        let piece = &entry.body.pieces.as_ref().unwrap()[0];
        let step = piece.coder.as_ref().map(|coder| &coder.steps[0]);
        assert_eq!(entry.path, name.as_bytes());
        assert_eq!(step.map(|step| step.codec.as_str()), codec, "{name}");
        let Some(step) = step.filter(|_| !properties.is_empty()) else { continue };
        assert!(step.properties.starts_with(properties), "{name}: {:?}", step.properties);
        assert_eq!(step.properties.ends_with(&[1]), name == "aes");
        // Behind the method: the revision, the length, and so on, up to the number of the object.
        let of_object = properties.len() + 7;
        assert_eq!(step.properties[of_object..of_object + 4], (number + 1).to_le_bytes(), "{name}");
    }
    // Where nothing is encrypted, no name stands for a way to do so.
    let (files, _) = entries(&document(&objects), &options);
    let coder = files[0].body.pieces.as_ref().unwrap()[0].coder.clone().unwrap();
    assert_eq!(coder.steps[0].codec, "the filter Crypt of PDF");
}

#[test]
fn files_of_one_name_are_all_there() {
    let names = "<</EmbeddedFiles<</Names[(a) 5 0 R (b) 6 0 R (c) 7 0 R (d) 8 0 R]>>>>";
    let file = |name: &str, number: u32| format!("<</UF({name})/EF<</F {number} 0 R>>>>");
    let bytes = document(&[
        (1, format!("<</Type/Catalog/Pages 2 0 R/Names{names}>>")),
        (2, "<</Kids[3 0 R]>>".to_owned()),
        (3, "<</Type/Page/Resources<</Font<</F<</Type/Font>>>>>>/Contents 4 0 R>>".to_owned()),
        (4, stream("", "BT /F 1 Tf (Hello) Tj ET")),
        (5, file("d.e/report.txt", 9)),
        (6, file("d.e/report.txt", 10)),
        (7, file("x", 11)),
        (8, file("page_0.txt", 12)),
        (9, stream("", "1")),
        (10, stream("", "2")),
        (11, stream("", "3")),
        (12, stream("", "4")),
    ]);
    let expected = ["d.e/report.txt", "d.e/report (2).txt", "x", "page_0.txt", "page_0 (2).txt"];
    assert_eq!(told(&bytes), (expected.map(str::to_owned).to_vec(), Vec::new()));
}

/// What must be found of the documents below: the paths and lengths of files.
fn lengths(bytes: &[u8], options: &Options) -> (Vec<(String, u64)>, Vec<String>) {
    let (files, damage) = entries(bytes, options);
    let files = files.into_iter().map(|entry| (String::from_utf8(entry.path).unwrap(), entry.body.size));
    (files.collect(), damage)
}

/// A header may lie where two of the parts meet in which a document is searched.
#[test]
fn objects_are_found_wherever_they_lie() {
    const BORDER: usize = (256 << 10) - 512;
    let object = |number: u32, object: &str| format!("{number} 0 obj\n{object}\nendobj\n");
    let first = [
        "%PDF-1.4\n".to_owned(),
        object(1, "<</Pages 2 0 R/Names<</EmbeddedFiles<</Names[(one) 20 0 R (two) 30 0 R]>>>>>>"),
        object(2, "<</Kids[]>>"),
        object(20, "<</UF(one)/EF<</F 1122 0 R>>>>"),
        object(30, "<</UF(two)/EF<</F 22 0 R>>>>"),
        object(22, &stream("", "two")),
    ]
    .concat();
    let (one, trailer) = (object(1122, &stream("", "of one")), "trailer\n<</Root 1 0 R>>\n");
    for (there, behind) in [(one.as_str(), trailer), (trailer, one.as_str())] {
        for shift in 0..16 {
            let filler = "x".repeat(BORDER - shift - first.len() - 1);
            let bytes = [&first, filler.as_str(), "\n", there, &"y".repeat(2000), "\n", behind].concat();
            let expected = [("one".to_owned(), 6), ("two".to_owned(), 3)].to_vec();
            assert_eq!(lengths(bytes.as_bytes(), &Options::default()), (expected, Vec::new()), "{shift} {there}");
        }
    }
}

/// A document that a program has changed which puts objects into streams, also an encrypted one, of which the root is
/// in such a stream. Its table may be lost.
#[test]
fn what_an_update_has_replaced_is_not_shown() {
    const KEY: u8 = 0x55;
    for (is_encrypted, has_table) in [(false, true), (false, false), (true, true), (true, false)] {
        let cipher = |content: &str| -> Vec<u8> {
            content.bytes().map(|byte| byte ^ if is_encrypted { KEY } else { 0 }).collect()
        };
        let coded = |dict: &str, content: &[u8]| {
            let head = format!("<<{dict}/Length {}>>stream\n", content.len());
            [head.as_bytes(), content, b"\nendstream"].concat()
        };
        let encryption = format!("<</Filter/Standard/V 1/R 2/P -4/O({0})/U({0})>>", "x".repeat(32));
        let encrypt = if is_encrypted { "/Encrypt 6 0 R/ID[(id)(id)]" } else { "" };
        let mut bytes = b"%PDF-1.5\n".to_vec();
        let mut add = |number: u32, object: &[u8]| {
            let place = bytes.len();
            bytes.extend(format!("{number} 0 obj\n").into_bytes());
            bytes.extend_from_slice(object);
            bytes.extend(b"\nendobj\n");
            place
        };
        // What is in a stream has its number and its place before it.
        let catalog = "<</Pages 2 0 R/Names<</EmbeddedFiles<</Names[(a.txt) 10 0 R]>>>>>> ";
        let inner = format!("1 0 2 {} {catalog}<</Kids[]>>", catalog.len());
        let index = format!("/Type/ObjStm/N 2/First {}", inner.find('<').unwrap());
        let first = [
            (1, [2, 0, 5, 0]),
            (2, [2, 0, 5, 1]),
            (5, row(add(5, &coded(&index, &cipher(&inner))))),
            (6, row(add(6, encryption.as_bytes()))),
            (10, row(add(10, b"<</EF<</F 22 0 R>>>>"))),
            (22, row(add(22, &coded("", &cipher("old content"))))),
        ];
        let table = |rows: &[(u32, [u8; 4])], more: &str| {
            let index: String = rows.iter().map(|(number, _)| format!("{number} 1 ")).collect();
            let dict = format!("/Type/XRef/Root 1 0 R/W[1 2 1]/Size 30/Index[{index}]{encrypt}{more}");
            coded(&dict, &rows.iter().flat_map(|(_, row)| *row).collect::<Vec<_>>())
        };
        let before = add(7, &table(&first, ""));
        let second = [
            (10, [2, 0, 24, 0]),
            (23, row(add(23, &coded("", &cipher("new"))))),
            (24, row(add(24, &coded("/Type/ObjStm/N 1/First 5", &cipher("10 0 <</EF<</F 23 0 R>>>>"))))),
        ];
        let last = add(25, &table(&second, &format!("/Prev {before}")));
        let word = if has_table { "startxref" } else { "it is lost" };
        bytes.extend(format!("{word}\n{last}\n%%EOF\n").into_bytes());
        let decode = Decode::default().with_each(|_, stored, _, take| {
            let mut bytes = vec![0; usize::try_from(stored.len()).unwrap()];
            stored.read_exact_at(&mut bytes, 0)?;
            for byte in &mut bytes {
                *byte ^= KEY;
            }
            take(&bytes)
        });
        let found = lengths(&bytes, &Options { decode, ..Options::default() });
        assert_eq!(found, (vec![("a.txt".to_owned(), 3)], Vec::new()), "{is_encrypted} {has_table}");
    }
}

/// A row of a table: of an object at that byte.
fn row(place: usize) -> [u8; 4] {
    [1, (place >> 8) as u8, place as u8, 0]
}

/// What a TIFF says of its data is what other filters make of what is stored.
#[test]
fn fax_in_another_filter_has_its_own_length() {
    let fax = "/Subtype/Image/Width 8/Height 9/Filter[/FlateDecode/CCITTFaxDecode]/DecodeParms[null<</K -1>>]";
    let bytes = document(&[
        (1, CATALOG.to_owned()),
        (2, "<</Kids[3 0 R]>>".to_owned()),
        (3, "<</Type/Page/Resources<</XObject<</I 4 0 R>>>>>>".to_owned()),
        (4, stream(fax, "xyz")),
    ]);
    let decode = Decode::default().with_each(|_, _, _, take| take(b"ten bytes!"));
    let (files, damage) = entries(&bytes, &Options { decode, ..Options::default() });
    assert_eq!(damage, [""; 0]);
    assert_eq!(files[0].path, b"page_0_I.tif");
    let properties = &files[0].body.pieces.as_ref().unwrap()[0].coder.as_ref().unwrap().steps[0].properties;
    // The stages: that of deflate, and what is before the data.
    let header = &properties[4..];
    assert_eq!((properties[0], files[0].body.size), (1, header.len() as u64 + 10));
    let field = [0x17, 1, 4, 0, 1, 0, 0, 0, 10, 0, 0, 0];
    assert!(header.windows(12).any(|found| found == field), "{header:?}");
}

/// A stream that does not say how long it is ends before the line of its mark, wherever that lies.
#[test]
fn streams_without_a_length_end_where_their_line_does() {
    for length in 65_520..65_532 {
        for end in ["\r\n", "\n"] {
            let content = "a".repeat(length);
            let bytes = document(&[
                (1, "<</Pages 2 0 R/Names<</EmbeddedFiles<</Names[(a) 3 0 R]>>>>>>".to_owned()),
                (2, "<</Kids[]>>".to_owned()),
                (3, "<</EF<</F 4 0 R>>>>".to_owned()),
                // Blanks behind the word belong to its line.
                (4, format!("<<>>stream \r\n{content}{end}endstream")),
            ]);
            let expected = vec![("a".to_owned(), length as u64)];
            assert_eq!(lengths(&bytes, &Options::default()), (expected, Vec::new()), "{length} {end:?}");
        }
    }
}

/// An image is called as the forms that it is in and itself, so two may have one name.
#[test]
fn images_of_one_name_on_a_page_are_all_there() {
    let form =
        |name: &str, image: u32| stream(&format!("/Subtype/Form/Resources<</XObject<</{name} {image} 0 R>>>>"), "");
    let image = |content: &str| stream("/Subtype/Image/Width 1/Height 1/Filter/DCTDecode", content);
    let bytes = document(&[
        (1, CATALOG.to_owned()),
        (2, "<</Kids[3 0 R]>>".to_owned()),
        (3, "<</Type/Page/Resources<</XObject<</A 4 0 R/A_B 5 0 R>>>>>>".to_owned()),
        (4, form("B_C", 6)),
        (5, form("C", 7)),
        (6, image("1")),
        (7, image("22")),
    ]);
    let (mut files, damage) = told(&bytes);
    files.sort_unstable();
    assert_eq!((files, damage), (vec!["page_0_A_B_C (2).jpg".to_owned(), "page_0_A_B_C.jpg".to_owned()], Vec::new()));
}
