//! The header: an object for each folder and file, those of a folder in each other.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// What is told of a file or folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) is_folder: bool,
    pub(super) size: u64,
    /// Where it lies behind the header; `None` if it does not lie there.
    pub(super) offset: Option<u64>,
    pub(super) is_executable: bool,
    /// The target of a link, from the root of the archive.
    pub(super) link: Option<String>,
}

/// Takes what is found: a path and a node, each folder behind what is in it. An error ends the reading.
pub(super) type Receive<'r> = dyn FnMut(&[u8], Node) -> Result<(), String> + 'r;

/// Reads the header `json`. Nothing of it is kept. Folders in each other are bounded by the parser.
pub(super) fn read(json: &[u8], receive: &mut Receive<'_>) -> Result<(), String> {
    let mut path = Vec::new();
    let mut parser = serde_json::Deserializer::from_slice(json);
    let node = Seed { path: &mut path, receive };
    node.deserialize(&mut parser).map(drop).map_err(|error| error.to_string())
}

/// Reads one node, whose path is known.
struct Seed<'s, 'r> {
    path: &'s mut Vec<u8>,
    receive: &'s mut Receive<'r>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a file or a folder")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Node, M::Error> {
        let mut node = Node::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "files" => {
                    node.is_folder = true;
                    map.next_value_seed(Files { path: &mut *self.path, receive: &mut *self.receive })?;
                }
                "size" => node.size = map.next_value()?,
                // A number that JSON may be too small for.
                "offset" => {
                    let digits: String = map.next_value()?;
                    node.offset = Some(digits.parse().map_err(|_| M::Error::custom("an offset that is no number"))?);
                }
                "executable" => node.is_executable = map.next_value()?,
                "link" => node.link = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(node)
    }
}

/// Bytes of a path: each name in a folder is told with all of it.
const LONGEST_PATH: usize = 64 << 10;

/// Reads what is in a folder.
struct Files<'s, 'r> {
    path: &'s mut Vec<u8>,
    receive: &'s mut Receive<'r>,
}

impl<'de> DeserializeSeed<'de> for Files<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Files<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("what is in a folder")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let length = self.path.len();
        while let Some(name) = map.next_key::<String>()? {
            if length > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.as_bytes());
            if self.path.len() > LONGEST_PATH {
                return Err(M::Error::custom(format!("a path of more than {LONGEST_PATH} bytes")));
            }
            let node = map.next_value_seed(Seed { path: &mut *self.path, receive: &mut *self.receive })?;
            (self.receive)(self.path, node).map_err(M::Error::custom)?;
            self.path.truncate(length);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_with_their_paths() {
        let json = br#"{"files":{"a":{"files":{"b":{"size":3,"offset":"12","executable":true,"integrity":{"x":[1,{}]}},
            "l":{"link":"a/b"}}},"u":{"size":5,"unpacked":true}}}"#;
        let mut told = Vec::new();
        read(json, &mut |path, node| {
            told.push((String::from_utf8(path.to_vec()).unwrap(), node));
            Ok(())
        })
        .unwrap();
        let names: Vec<_> = told.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, ["a/b", "a/l", "a", "u"]);
        assert_eq!((told[0].1.offset, told[0].1.size, told[0].1.is_executable), (Some(12), 3, true));
        assert_eq!((told[1].1.link.as_deref(), told[2].1.is_folder, told[3].1.offset), (Some("a/b"), true, None));
        for length in 0..json.len() {
            let _ = read(&json[..length], &mut |_, _| Ok(()));
        }
        let long = format!(r#"{{"files":{{"{}":{{"files":{{"a":{{}},"b":{{}}}}}}}}}}"#, "x".repeat(LONGEST_PATH));
        assert!(read(long.as_bytes(), &mut |_, _| Ok(())).unwrap_err().contains("a path of more than"));
        let deep = br#"{"files":{"a":"#.repeat(100_000);
        assert!(read(&deep, &mut |_, _| Ok(())).unwrap_err().contains("recursion"));
    }
}
