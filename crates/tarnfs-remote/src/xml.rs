//! Answers in XML: records, each of which has texts by name.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;

use crate::backend::MOST_ENTRIES;

/// What stands in one element, at any depth: the texts of what has no others in it, by local names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(Vec<(&'static str, String)>);

impl Record {
    /// Takes a text, if one of its name is wanted. An empty one makes room for the first that is not.
    fn take(&mut self, name: &str, text: String, wanted: &[&'static str]) {
        let Some(name) = wanted.iter().find(|wanted| **wanted == name) else { return };
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) if known.is_empty() => *known = text,
            Some(_) => {}
            None => self.0.push((name, text)),
        }
    }

    /// The first text of this name that is not empty, or an empty one.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, text)| text.as_str())
    }
}

/// Records at most: somewhat more than there may be names in a folder, so that too many of those are told as such.
const MOST: usize = MOST_ENTRIES + 1000;

/// Elements inside each other at most.
const DEEPEST: usize = 100;

/// What was found: records with their names, and what stands outside of them.
pub(crate) type Found = (Vec<(&'static str, Record)>, Record);

/// All elements that have one of these local `names`, with the name, and what stands outside of them: the texts that
/// are `wanted`, and nothing else. `None` of what is no XML, or has a document type, which may define anything, or has
/// more than [`MOST`] records.
pub(crate) fn records(xml: &[u8], names: &[&'static str], wanted: &[&'static str]) -> Option<Found> {
    let mut reader = Reader::from_str(str::from_utf8(xml).ok()?);
    let (mut found, mut outside) = (Vec::new(), Record::default());
    let (mut open, mut text) = (Vec::<String>::new(), String::new());
    // How deep it lies, and its name.
    let mut inside: Option<(usize, &str, Record)> = None;
    let mut has_any = false;
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                has_any = true;
                let name = start.local_name().as_ref().to_owned();
                if let Some(known) = names.iter().find(|known| **known == name).filter(|_| inside.is_none()) {
                    inside = Some((open.len(), known, Record::default()));
                }
                if open.len() == DEEPEST {
                    return None;
                }
                open.push(name);
                text.clear();
            }
            Event::Empty(empty) => {
                let record = inside.as_mut().map_or(&mut outside, |(_, _, record)| record);
                record.take(empty.local_name().as_ref(), String::new(), wanted);
            }
            Event::End(_) => {
                let name = open.pop()?;
                if let Some((_, known, record)) = inside.take_if(|(depth, ..)| *depth == open.len()) {
                    if found.len() == MOST {
                        return None;
                    }
                    found.push((known, record));
                } else {
                    let record = inside.as_mut().map_or(&mut outside, |(_, _, record)| record);
                    record.take(&name, std::mem::take(&mut text), wanted);
                }
                text.clear();
            }
            Event::Text(part) => text += &part.xml10_content(),
            Event::CData(part) => text += &part.xml10_content(),
            Event::GeneralRef(part) => match part.resolve_char_ref().ok()? {
                Some(letter) => text.push(letter),
                None => text += resolve_xml_entity(&part.into_inner())?,
            },
            Event::DocType(_) => return None,
            Event::Eof => return (has_any && open.is_empty()).then_some((found, outside)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_texts_of_what_is_in_them() {
        let xml =
            b"<?xml version=\"1.0\"?><a:l xmlns:a='x'><Token>t&amp;1</Token>\n<a:r><p><k>a &lt;&#65;</k></p><e/></a:r>\
                    <r><k><![CDATA[<b>]]></k></r></a:l>";
        let (found, outside) = records(xml, &["r"], &["Token", "k", "e"]).unwrap();
        assert_eq!(outside.get("Token"), Some("t&1"));
        assert_eq!(found.iter().map(|(_, record)| record.get("k")).collect::<Vec<_>>(), [Some("a <A"), Some("<b>")]);
        assert_eq!((found[0].1.get("e"), found[1].1.get("e")), (Some(""), None));
        for wrong in ["", "hello", "<a>", "<a></b>", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "<a>&b;</a>"] {
            assert_eq!(records(wrong.as_bytes(), &["r"], &[]), None, "{wrong}");
        }
        assert_eq!(records("<a>".repeat(1000).as_bytes(), &[], &[]), None);
    }

    #[test]
    fn only_what_is_wanted_is_kept_and_once() {
        let xml = format!("<l>{}<r><k/><k>7</k><k>8</k></r></l>", "<a/><k>1</k><k/>".repeat(1000));
        let (found, outside) = records(xml.as_bytes(), &["r"], &["k"]).unwrap();
        assert_eq!((outside.0.len(), found[0].1.0.len()), (1, 1));
        assert_eq!((outside.get("k"), found[0].1.get("k")), (Some("1"), Some("7")));
        let most = |count| records(format!("<l>{}</l>", "<r></r>".repeat(count)).as_bytes(), &["r"], &[]);
        assert!(most(MOST).is_some() && most(MOST + 1).is_none());
    }
}
