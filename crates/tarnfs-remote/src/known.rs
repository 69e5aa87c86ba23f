//! What the cache remembers of an object: which version was there last.

use crate::Version;
use crate::open::LONGEST;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) version: Version,
    /// Its server knows ranges.
    pub(crate) has_ranges: bool,
}

/// The first line of such a file.
const MAGIC: &str = "tarnfs remote object 1";

impl Known {
    /// As lines, one for each thing.
    pub(crate) fn to_text(&self) -> String {
        let Version { length, tag, modified, id, .. } = &self.version;
        let ranges = u8::from(self.has_ranges);
        let mut text = format!("{MAGIC}\nlength {length}\nranges {ranges}\n");
        for (name, value) in [("tag", tag), ("modified", modified), ("id", id)] {
            if let Some(value) = value {
                text += name;
                text.push(' ');
                text += value;
                text.push('\n');
            }
        }
        text + "end\n"
    }

    /// `None` of what is no such text, or not all of one.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let lines = text.strip_prefix(MAGIC)?.strip_prefix('\n')?.strip_suffix("end\n")?;
        let of =
            |name: &str| lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned);
        let length = of("length")?.parse().ok().filter(|&length| length <= LONGEST)?;
        // Others are not remembered.
        let version = Version { is_lasting: true, length, tag: of("tag"), modified: of("modified"), id: of("id") };
        Some(Self { version, has_ranges: of("ranges")? == "1" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_known_again_and_half_of_it_is_not() {
        for (tag, modified) in [(None, None), (Some("\"a b\""), Some("Mon, 1")), (Some(""), None)] {
            let version = Version {
                length: 7,
                tag: tag.map(str::to_owned),
                modified: modified.map(str::to_owned),
                id: modified.map(|_| "3/L4".to_owned()),
                is_lasting: true,
            };
            let known = Known { version, has_ranges: tag.is_some() };
            let text = known.to_text();
            assert_eq!(Known::from_text(&text), Some(known));
            for end in 0..text.len() {
                assert_eq!(Known::from_text(&text[..end]), None);
            }
        }
    }
}
