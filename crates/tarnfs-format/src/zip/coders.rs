//! Methods and ciphers as steps of coders.

use std::collections::HashMap;
use std::sync::Arc;

use super::NAME;
use crate::{Coder, Step};

/// How the content of a member was encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Cipher {
    None,
    /// PKZIP's of 1993 (APPNOTE 6.1), and the byte that a right password gives.
    Zip {
        check: u8,
    },
    /// WinZip's.
    Aes {
        strength: u8,
    },
    /// PKWARE's (APPNOTE 7), which nothing else can read.
    Strong,
}

impl Cipher {
    /// Bytes that it adds to what it encrypts, if that is known.
    pub(super) fn overhead(self) -> Option<u64> {
        match self {
            Self::None => Some(0),
            Self::Zip { .. } => Some(12),
            // Salt, two bytes that check the password, ten that check the content.
            Self::Aes { strength } => Some(u64::from(strength).saturating_mul(4).saturating_add(4 + 2 + 10)),
            Self::Strong => None,
        }
    }
}

/// What has to be undone to read a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Recipe {
    Packed {
        cipher: Cipher,
        method: u16,
    },
    /// What the archive says of it cannot be.
    Damaged,
}

/// Coders that are remembered: encrypted members differ in the byte that checks their password.
const MOST_KNOWN: usize = 4096;

/// The coders of one archive.
#[derive(Debug, Default)]
pub(super) struct Coders {
    known: HashMap<Recipe, Arc<Coder>>,
    last: Option<(Recipe, Arc<Coder>)>,
}

impl Coders {
    /// The coder of `recipe`, and whether it was not asked for before.
    pub(super) fn get(&mut self, recipe: Recipe) -> (Arc<Coder>, bool) {
        if let Some((_, coder)) = self.last.as_ref().filter(|(last, _)| *last == recipe) {
            return (Arc::clone(coder), false);
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let count = self.known.len();
        // Also what is stored as it is lies behind a header.
        let make = || Arc::new(Coder { steps: steps(recipe), is_behind_header: Some(NAME.to_owned()) });
        let coder = Arc::clone(self.known.entry(recipe).or_insert_with(make));
        self.last = Some((recipe, Arc::clone(&coder)));
        (coder, self.known.len() > count)
    }
}

/// Why what has this recipe cannot be read.
pub(super) fn unreadable(recipe: Recipe) -> Option<String> {
    match recipe {
        Recipe::Packed { cipher: Cipher::Strong, .. } => Some("PKWARE's strong encryption".to_owned()),
        Recipe::Packed { cipher: Cipher::Aes { strength: strength @ (0 | 4..) }, .. } => {
            Some(format!("AES of strength {strength}"))
        }
        Recipe::Packed { method, .. } if codec(method).is_none() => Some(match method_name(method) {
            Some(name) => format!("zip method {method} ({name})"),
            None => format!("zip method {method}"),
        }),
        Recipe::Packed { .. } => None,
        Recipe::Damaged => Some("places or sizes that cannot be".to_owned()),
    }
}

/// The steps that undo `recipe`. One that is not known becomes a step that no codec has: whoever looks for it can say
/// what is missing.
pub(super) fn steps(recipe: Recipe) -> Vec<Step> {
    let step = |codec: &str, properties: &[u8]| {
        let (codec, properties) = (codec.to_owned(), properties.to_vec());
        Step { codec, properties, ..Step::default() }
    };
    if let Some(missing) = unreadable(recipe) {
        return vec![step(&missing, &[])];
    }
    let Recipe::Packed { cipher, method } = recipe else { return Vec::new() };
    let decrypt = match cipher {
        Cipher::Zip { check } => Some(step("zipcrypto", &[check])),
        Cipher::Aes { strength } => Some(step("aes-zip", &[strength])),
        Cipher::None | Cipher::Strong => None,
    };
    let decode = codec(method).filter(|codec| !codec.is_empty()).map(|codec| step(codec, &[]));
    decrypt.into_iter().chain(decode).collect()
}

/// The codec of a method (APPNOTE 4.4.5); empty for what is stored.
fn codec(method: u16) -> Option<&'static str> {
    Some(match method {
        0 => "",
        8 => "deflate",
        9 => "deflate64",
        12 => "bzip2",
        14 => "lzma-zip",
        // 20 was its number for a year.
        20 | 93 => "zstd",
        95 => "xz",
        98 => "ppmd8",
        _ => return None,
    })
}

fn method_name(method: u16) -> Option<&'static str> {
    Some(match method {
        1 => "shrink",
        2..=5 => "reduce",
        6 => "implode",
        10 => "DCL implode",
        16 => "CMPSC",
        18 => "TERSE",
        19 => "LZ77",
        92 => "WinZip's reference",
        94 => "MP3",
        96 => "JPEG",
        97 => "WavPack",
        99 => "AES without its extra field",
        _ => return None,
    })
}

/// True of the numbers that a method may have: what has another one is hardly a header.
pub(super) fn is_method(method: u16) -> bool {
    codec(method).is_some() || method_name(method).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format as _;

    /// Who looks for a program that reads old archives learns from the list of formats that it is another one.
    #[test]
    fn the_list_of_formats_names_the_old_methods_that_are_not_read() {
        let about = super::super::Zip.about();
        for method in 1..=6 {
            let recipe = Recipe::Packed { cipher: Cipher::None, method };
            let name = method_name(method).unwrap();
            assert_eq!(unreadable(recipe), Some(format!("zip method {method} ({name})")));
            assert!(about.contains(name), "{name}");
        }
    }
}
