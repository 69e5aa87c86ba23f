//! How a document is encrypted.

use super::object::{Dict, Object};

/// The stage that decrypts, for the decoder.
const STAGE: u8 = 7;

/// What is said of it, without what differs from object to object.
#[derive(Debug, Clone)]
pub(super) struct Encryption {
    revision: u8,
    length: u8,
    encrypts_metadata: bool,
    permissions: i32,
    /// O, U, OE, UE and the ID, each with its length before it.
    said: Vec<u8>,
    streams: Method,
    strings: Method,
    files: Method,
    /// What a stream may name in place of these.
    named: Dict,
}

/// How it is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    None,
    Rc4,
    Aes128,
    Aes256,
}

/// What is decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Stream,
    String,
    /// What is attached.
    File,
}

impl Method {
    /// That of the crypt filter which `filters` have under `name`; `None` if it is not known.
    fn named(filters: &Dict, name: &[u8]) -> Option<Self> {
        if name == b"Identity" {
            return Some(Self::None);
        }
        let filter = filters.get(std::str::from_utf8(name).ok()?).and_then(Object::dict)?;
        match filter.get("CFM").and_then(Object::name).unwrap_or(b"None") {
            b"None" => Some(Self::None),
            b"V2" => Some(Self::Rc4),
            b"AESV2" => Some(Self::Aes128),
            b"AESV3" => Some(Self::Aes256),
            _ => None,
        }
    }
}

impl Encryption {
    /// `None` if it is one that is not known. Of `dict`, all is resolved; `id` is the first one of the document.
    pub(super) fn of(dict: &Dict, id: &[u8]) -> Option<Self> {
        if dict.get("Filter").and_then(Object::name)? != b"Standard" {
            return None;
        }
        let version = dict.get("V").and_then(Object::integer).unwrap_or(0);
        let revision = u8::try_from(dict.get("R").and_then(Object::integer)?).ok()?;
        let bits = dict.get("Length").and_then(Object::integer).unwrap_or(40);
        let mut length = u8::try_from(bits.checked_div(8)?).ok()?;
        let encrypts_metadata = !matches!(dict.get("EncryptMetadata"), Some(Object::Bool(false)));
        let permissions = dict.get("P").and_then(Object::integer).unwrap_or(0) as i32;
        let named = dict.get("CF").and_then(Object::dict).filter(|_| version >= 4).cloned().unwrap_or_default();
        let filter = |name: &str| -> Option<Method> {
            Method::named(&named, dict.get(name).and_then(Object::name).unwrap_or(b"Identity"))
        };
        let (streams, strings, files) = match version {
            1..=3 => {
                if version == 1 || revision == 2 {
                    length = 5;
                }
                (Method::Rc4, Method::Rc4, Method::Rc4)
            }
            4 | 5 => {
                let streams = filter("StmF")?;
                if version == 4 {
                    length = 16;
                }
                let files = if dict.get("EFF").is_some() { filter("EFF")? } else { streams };
                (streams, filter("StrF")?, files)
            }
            _ => return None,
        };
        let mut said = Vec::new();
        for name in ["O", "U", "OE", "UE"] {
            let value = dict.get(name).and_then(Object::string).unwrap_or_default();
            // Some programs fill them up with zeros.
            let most = if revision >= 5 { 48 } else { 32 };
            let value = value.get(..most).unwrap_or(value);
            said.push(value.len() as u8);
            said.extend_from_slice(value);
        }
        let id = id.get(..255).unwrap_or(id);
        said.push(id.len() as u8);
        said.extend_from_slice(id);
        Some(Self { revision, length, encrypts_metadata, permissions, said, streams, strings, files, named })
    }

    /// The stage that decrypts what is in that object; `None` if it is not encrypted.
    pub(super) fn stage(&self, what: What, id: (u32, u16)) -> Option<Vec<u8>> {
        let method = match what {
            What::Stream => self.streams,
            What::String => self.strings,
            What::File => self.files,
        };
        self.stage_of(method, id)
    }

    /// The stage that undoes the crypt filter of that name in that object: nothing, of one that does not encrypt.
    /// `None` if it is not known.
    pub(super) fn named_stage(&self, name: &[u8], id: (u32, u16)) -> Option<Vec<u8>> {
        Method::named(&self.named, name).map(|method| self.stage_of(method, id).unwrap_or_default())
    }

    fn stage_of(&self, method: Method, (number, generation): (u32, u16)) -> Option<Vec<u8>> {
        let method = match method {
            Method::None => return None,
            Method::Rc4 => 1,
            Method::Aes128 => 2,
            Method::Aes256 => 3,
        };
        let mut stage = vec![STAGE, method, self.revision, self.length, u8::from(self.encrypts_metadata)];
        stage.extend_from_slice(&self.permissions.to_le_bytes());
        stage.extend_from_slice(&number.to_le_bytes());
        stage.extend_from_slice(&generation.to_le_bytes());
        stage.extend_from_slice(&self.said);
        Some(stage)
    }
}
