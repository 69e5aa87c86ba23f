//! What a document may take of the work of who reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::document::steps;
use tarnfs_source::{Limits, MemorySource, SharedSource};

use super::super::Pdf;
use super::{CATALOG, document, lengths, stream, told, work};
use crate::{Decode, Event, Options, read_in_time};

#[test]
fn a_small_document_takes_few_steps() {
    assert!(steps(1000, 1) < 10 << 20);
    // Whatever its bytes are: a comment may be long.
    assert_eq!(steps(1 << 20, 1), 40 << 20);
    assert_eq!(steps(4 << 20, 1), 136 << 20);
    assert_eq!(steps(16 << 20, 1), 512 << 20);
    assert_eq!(steps(64 << 20, 1), 32 << 26);
    assert_eq!(steps(64 << 20, 1 << 10), 32 << 26);
}

/// Fonts with a map of all codes are kept, so many may be used in turn.
#[test]
fn fonts_with_maps_of_all_codes_are_read_once() {
    const FONTS: u32 = 50;
    let map = stream("", "1 beginbfrange <0000> <FFFF> <0061D83D0061> endbfrange");
    let fonts: String = (0..FONTS).map(|font| format!("/F{font}<</Subtype/Type0/ToUnicode 10 0 R>>")).collect();
    let round: String = (0..FONTS).map(|font| format!("/F{font} 1 Tf\n")).collect();
    let (_, work) = work(&format!("<</Font<<{fonts}>>>>"), &round.repeat(100), &[(10, map)]);
    assert!(work < 1_000_000, "{work}");
}

/// What lies in a stream of objects is read anew for each reference to it, with all that is in it.
#[test]
fn long_objects_in_a_stream_take_steps_each_time() {
    const PAGES: u32 = 100;
    let kids: String = (0..PAGES).map(|page| format!("{} 0 R ", page + 100)).collect();
    let mut objects = vec![(1, CATALOG.to_owned()), (2, format!("<</Kids[{kids}]>>"))];
    let page = "<</Type/Page/Resources<</XObject 11 0 R>>>>";
    objects.extend((0..PAGES).map(|page_number| (page_number + 100, page.to_owned())));
    objects.push((20, stream("/Type/ObjStm/N 1/First 5", &format!("11 0 [{}]", "[]".repeat(100_000)))));
    let mut bytes = document(&objects);
    // The table says where that one is.
    let text = String::from_utf8(bytes.clone()).unwrap();
    let place = text.find("xref\n").unwrap();
    bytes.truncate(place);
    let table = text[place..].split_once("trailer").unwrap().0;
    let rows = stream("/Type/XRef/W[1 1 1]/Index[11 1]", "\u{2}\u{14}\0");
    let coded = bytes.len();
    bytes.extend(format!("30 0 obj\n{rows}\nendobj\n").into_bytes());
    let start = bytes.len();
    bytes.extend(format!("{table}trailer\n<</Root 1 0 R/XRefStm {coded}>>\nstartxref\n{start}\n%%EOF\n").into_bytes());
    let (_, damage) = told(&bytes);
    assert!(damage.iter().any(|what| what.contains("too much work")), "{damage:?}");
}

/// Some programs write a map of all codes for each font, however short the document is.
#[test]
fn a_small_document_may_have_maps_of_all_codes() {
    const FONTS: u32 = 8;
    let map = stream("", "1 beginbfrange <0000> <FFFF> <0000> endbfrange");
    let more: Vec<_> = (0..FONTS).map(|font| (10 + font, map.clone())).collect();
    let fonts: String =
        (0..FONTS).map(|font| format!("/F{font}<</Subtype/Type0/ToUnicode {} 0 R>>", 10 + font)).collect();
    let content: String = (0..FONTS).map(|font| format!("/F{font} 1 Tf <004{font}> Tj\n")).collect();
    let (text, _) = work(&format!("<</Font<<{fonts}>>>>"), &content, &more);
    assert_eq!(text, "@ABCDEFG\n");
}

/// A page may use some more fonts than are kept, in turn.
#[test]
fn most_fonts_are_kept_where_there_are_some_too_many() {
    let fonts: String =
        (0..300).map(|font| format!("/F{font}<</Encoding<</Differences[65{}]>>>>", "/a".repeat(190))).collect();
    let resources = format!("<</Font<<{fonts}>>>>");
    let round: String = (0..300).map(|font| format!("/F{font} 1 Tf\n")).collect();
    // The names themselves are looked up once.
    let (_, once) = work(&resources, &round, &[]);
    let (_, often) = work(&resources, &round.repeat(10), &[]);
    assert!(often < 5 * once, "{once} {often}");
}

/// As a program that plots a time series writes its markers.
#[test]
fn a_plot_may_draw_a_circle_very_often() {
    const DRAWS: usize = 50_000;
    let arc = "2.683901 -1.55874 3 -0.795609 3 0 c\n";
    let circle = format!("/A1 gs\n0 -3 m\n{}h\nB\n", arc.repeat(8));
    let draw = "1 0 0 1 0.006 -12.3456789012 cm\n/F Do\n";
    let resources = "<</XObject<</F 4 0 R>>/Font<</T<</Type/Font>>>>>>";
    let form = (4, stream("/Subtype/Form", &circle));
    let (text, work) = work(resources, &format!("{}BT /T 1 Tf (end) Tj ET", draw.repeat(DRAWS)), &[form]);
    assert_eq!(text, "end\n");
    // Eight bytes of each are stored where it is packed. It is read for its text, and for images. A document with any
    // number of them is read.
    assert!(2 * work <= 32 * 8 * DRAWS as u64, "{work}");
}

/// The object of a form is not read for each time that it is drawn: that is a kilobyte.
#[test]
fn pages_behind_a_plot_of_very_many_markers_are_read() {
    const DRAWS: usize = 300_000;
    let page = |content: u32| format!("<</Type/Page/Resources 6 0 R/Contents {content} 0 R>>");
    let text = "BT /T 1 Tf (end) Tj ET";
    let bytes = document(&[
        (1, CATALOG.to_owned()),
        (2, "<</Kids[3 0 R 4 0 R]>>".to_owned()),
        (3, page(7)),
        (4, page(8)),
        (5, stream("/Subtype/Form/Resources 6 0 R", "0 0 m")),
        (6, "<</Font<</T<</Type/Font>>>>/XObject<</F 5 0 R>>>>".to_owned()),
        (7, stream("", &format!("{}{text}", "/F Do\n".repeat(DRAWS)))),
        (8, stream("", text)),
    ]);
    assert_eq!(told(&bytes), (vec!["page_0.txt".to_owned(), "page_1.txt".to_owned()], Vec::new()));
}

/// A decoder that makes so many bytes of each stream, and how many were taken.
fn making(length: u64) -> (Options, Arc<AtomicU64>) {
    const PART: u64 = 32 << 10;
    let taken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&taken);
    let decode = Decode::default().with_each(move |_, _, _, take| {
        let part = vec![b' '; PART as usize];
        (0..length.div_ceil(PART)).try_for_each(|number| {
            let length = PART.min(length - number * PART);
            count.fetch_add(length, Ordering::Relaxed);
            take(&part[..length as usize])
        })
    });
    (Options { decode, ..Options::default() }, taken)
}

/// A document with an attached file.
fn attached(dict: &str, content: &str) -> Vec<u8> {
    document(&[
        (1, "<</Type/Catalog/Pages 2 0 R/Names<</EmbeddedFiles<</Names[(a) 3 0 R]>>>>>>".to_owned()),
        (2, "<</Kids[]>>".to_owned()),
        (3, "<</UF(a)/EF<</F 4 0 R>>>>".to_owned()),
        (4, stream(dict, content)),
    ])
}

/// Filters in each other make any number of bytes of a few, and some take nanoseconds for each.
#[test]
fn what_is_counted_of_a_small_document_is_paid_for() {
    for (filters, most) in [("/ASCII85Decode", 4 << 20), ("/RunLengthDecode", 4 << 20), ("", 32 << 20)] {
        let bytes = attached(&format!("/Filter[/FlateDecode/FlateDecode{filters}]"), "x");
        let (options, taken) = making(16 << 30);
        let (files, damage) = lengths(&bytes, &options);
        assert_eq!(files.len(), 1);
        assert!(damage.iter().any(|what| what.contains("far more comes of its streams")), "{damage:?}");
        let taken = taken.load(Ordering::Relaxed);
        assert!((1 << 20..most).contains(&taken), "{filters}: {taken}");
    }
}

/// Deflate makes 1032 bytes of one where all are the same, as those of a white picture are.
#[test]
fn what_a_document_packs_best_is_counted_to_its_end() {
    const LENGTH: usize = 30_000;
    const MADE: u64 = 1032 * LENGTH as u64;
    let dict = "/Filter/FlateDecode/DecodeParms<</Predictor 12/Columns 1000>>";
    let (options, _) = making(MADE);
    let found = lengths(&attached(dict, &"x".repeat(LENGTH)), &options);
    assert_eq!(found, (vec![("a".to_owned(), MADE)], Vec::new()));
}

/// Blanks pay for nothing: an archive packs any number of them.
#[test]
fn blanks_do_not_pay_for_what_is_decoded() {
    const BLANKS: usize = 1 << 20;
    let (options, taken) = making(16 << 30);
    for (filters, most) in [
        ("[/FlateDecode/FlateDecode/ASCII85Decode]", 512 << 20),
        ("[/FlateDecode/FlateDecode]/DecodeParms[null<</Predictor 2/BitsPerComponent 1>>]", 128 << 20),
        ("[/FlateDecode/FlateDecode]/DecodeParms[null<</Predictor 12>>]", 256 << 20),
    ] {
        let bytes = attached(&format!("/Filter{filters}"), "x");
        let bytes = [&b"%PDF-1.7\n%"[..], &vec![b' '; BLANKS], b"\n", &bytes].concat();
        let before = taken.load(Ordering::Relaxed);
        let (files, damage) = lengths(&bytes, &options);
        assert!(damage.iter().any(|what| what.contains("far more comes of its streams")), "{damage:?}");
        let taken = taken.load(Ordering::Relaxed) - before;
        assert!(files.len() == 1 && taken < most, "{filters}: {taken}");
    }
}

/// Once a file has taken all that decoding may, what deflate packs is read all the same.
#[test]
fn what_is_behind_a_bomb_is_read() {
    let names = "<</EmbeddedFiles<</Names[(a) 3 0 R (b) 5 0 R (c) 6 0 R]>>>>";
    let file = |number: u32| format!("<</EF<</F {number} 0 R>>>>");
    let bytes = document(&[
        (1, format!("<</Type/Catalog/Pages 2 0 R/Names{names}>>")),
        (2, "<</Kids[]>>".to_owned()),
        (3, file(4)),
        (4, stream("/Filter[/FlateDecode/FlateDecode]", "x")),
        (5, file(8)),
        (6, file(7)),
        (8, stream("/Filter[/FlateDecode/FlateDecode]", "x")),
        (7, stream("/Filter/FlateDecode", &"x".repeat(100))),
    ]);
    let decode = Decode::default().with_each(|step, _, _, take| {
        let parts = if step.properties == [1] { 100 } else { 1 << 20 };
        (0..parts).try_for_each(|_| take(&[b' '; 1000]))
    });
    let (files, damage) = lengths(&bytes, &Options { decode, ..Options::default() });
    let sizes: Vec<u64> = files.iter().map(|(_, size)| *size).collect();
    // Of what cannot be read, the length is what is stored.
    assert_eq!(sizes, [1, 1, 100_000], "{damage:?}");
}

/// A document that takes too long shows what was found before.
#[test]
fn what_takes_no_time_is_told_though_the_rest_takes_too_much() {
    let names = "<</EmbeddedFiles<</Names[(a) 3 0 R (b) 5 0 R]>>>>";
    let bytes = document(&[
        (1, format!("<</Type/Catalog/Pages 2 0 R/Names{names}>>")),
        (2, "<</Kids[]>>".to_owned()),
        (3, "<</UF(a)/EF<</F 4 0 R>>>>".to_owned()),
        (4, stream("", "content")),
        (5, "<</UF(b)/EF<</F 6 0 R>>>>".to_owned()),
        (6, stream("/Filter/FlateDecode", "x")),
    ]);
    // Nothing ever comes of it.
    let decode = Decode::default().with_each(|_, _, cancel, _| {
        loop {
            cancel.check()?;
        }
    });
    let limits = Limits { directory_time: Duration::from_millis(50), ..Limits::default() };
    let options = Options { limits, decode, ..Options::default() };
    let source: SharedSource = Arc::new(MemorySource::new(bytes.as_slice(), "a document"));
    let (mut files, mut damage) = (Vec::new(), Vec::new());
    let mut receive = |event| {
        match event {
            Event::Entry(entry) => files.push(entry.path),
            Event::Damage(found) => damage.push(found.what),
            _ => {}
        }
        Ok(())
    };
    read_in_time(&Pdf, &source, &options, &mut receive).unwrap();
    assert_eq!(files, [b"a"]);
    assert!(damage.len() == 1 && damage[0].contains("it took more than"), "{damage:?}");
}

/// All that a page draws is held at once.
#[test]
fn a_small_document_holds_little() {
    let bytes = document(&[
        (1, CATALOG.to_owned()),
        (2, "<</Kids[3 0 R]>>".to_owned()),
        (3, "<</Type/Page/Resources<</Font<</T<</Type/Font>>>>>>/Contents 4 0 R>>".to_owned()),
        (4, stream("/Filter/FlateDecode", "x")),
    ]);
    let (options, taken) = making(63 << 20);
    let (_, damage) = lengths(&bytes, &options);
    assert!(damage.iter().any(|what| what.contains("not all that page 0 shows")), "{damage:?}");
    let taken = taken.load(Ordering::Relaxed);
    assert!((16 << 20..18 << 20).contains(&taken), "{taken}");
}
