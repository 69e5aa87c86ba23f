//! Names of files and folders, for what has a name in a header or none at all.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a name that a header gives. It stays a name with a number before it and behind it.
const LONGEST: usize = 160;

/// `text` as the name of a file: in one line, without slashes, and never one that leads elsewhere. `None` if nothing
/// is left of it.
pub(crate) fn safe(text: &str) -> Option<String> {
    let mut name = String::new();
    for word in text.split_whitespace() {
        if !name.is_empty() {
            name.push(' ');
        }
        name.extend(
            word.chars().map(|letter| if matches!(letter, '/' | '\0') || letter.is_control() { '_' } else { letter }),
        );
        if name.len() > 4 * LONGEST {
            break;
        }
    }
    if name.len() > LONGEST {
        // What says what it is stays.
        let dot = name.rfind('.').filter(|dot| name.len().saturating_sub(*dot) <= 16 && *dot > 0);
        let end = dot.and_then(|dot| name.get(dot..)).unwrap_or_default().to_owned();
        let mut length = LONGEST.saturating_sub(end.len());
        while !name.is_char_boundary(length) {
            length = length.saturating_sub(1);
        }
        name.truncate(length);
        name.push_str(&end);
    }
    match name.as_str() {
        "" => None,
        "." | ".." => Some(format!("_{name}")),
        _ => Some(name),
    }
}

/// What names of a kind of content end in: "text/plain" in ".txt".
pub(crate) fn extension(kind: &[u8]) -> &'static str {
    match kind {
        b"text/plain" | b"" => ".txt",
        b"text/html" => ".html",
        b"text/calendar" => ".ics",
        b"text/csv" => ".csv",
        b"text/x-vcard" | b"text/vcard" => ".vcf",
        b"text/x-patch" | b"text/x-diff" => ".patch",
        b"text/enriched" | b"text/richtext" | b"text/rtf" | b"application/rtf" => ".rtf",
        b"text/xml" | b"application/xml" => ".xml",
        b"application/json" => ".json",
        b"application/pdf" => ".pdf",
        b"application/zip" | b"application/x-zip-compressed" => ".zip",
        b"application/gzip" | b"application/x-gzip" => ".gz",
        b"application/x-tar" => ".tar",
        b"application/pgp-signature" => ".asc",
        b"application/pkcs7-signature" | b"application/x-pkcs7-signature" => ".p7s",
        b"application/pkcs7-mime" | b"application/x-pkcs7-mime" => ".p7m",
        b"application/ms-tnef" => ".dat",
        b"image/jpeg" | b"image/jpg" | b"image/pjpeg" => ".jpg",
        b"image/png" => ".png",
        b"image/gif" => ".gif",
        b"image/svg+xml" => ".svg",
        b"image/tiff" => ".tif",
        b"image/bmp" => ".bmp",
        b"image/webp" => ".webp",
        b"audio/mpeg" => ".mp3",
        b"audio/wav" | b"audio/x-wav" => ".wav",
        b"audio/ogg" => ".oga",
        b"video/mp4" => ".mp4",
        b"message/rfc822" | b"message/global" => ".eml",
        _ if kind.starts_with(b"text/") || kind.starts_with(b"message/") => ".txt",
        _ => ".bin",
    }
}

/// The names that there are in the folders of one message, or of what else may have several of one name.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By the hash of the path: the number that the next one gets.
    taken: HashMap<u64, u32>,
}

impl Names {
    /// `name` in `folder` (which ends in a slash, or is the root), with a number if there is another one.
    pub(crate) fn path(&mut self, folder: &[u8], name: &str) -> Vec<u8> {
        let dot = name.rfind('.').filter(|dot| *dot > 0);
        let parts = dot.and_then(|dot| name.split_at_checked(dot)).unwrap_or((name, ""));
        self.free(folder, parts, &[""])
    }

    /// The same of a message, which has two names: one of its folder, and one that ends in `suffix`.
    pub(crate) fn message(&mut self, folder: &[u8], name: &str, suffix: &str) -> Vec<u8> {
        self.free(folder, (name, ""), &["", suffix])
    }

    /// A name that nothing has yet, with each of these behind it. A number is between its parts.
    fn free(&mut self, folder: &[u8], (stem, end): (&str, &str), behind: &[&str]) -> Vec<u8> {
        let named = |name: &str| [folder, name.as_bytes()].concat();
        let hash = |path: &[u8], more: &&str| xxh3_64(&[path, more.as_bytes()].concat());
        let mut path = named(&format!("{stem}{end}"));
        let first = xxh3_64(&path);
        // All of one name are numbered in one go, so that many take no longer than few.
        let mut number = self.taken.get(&first).copied().unwrap_or(1);
        loop {
            if number > 1 {
                path = named(&format!("{stem} ({number}){end}"));
            }
            // Another part may have the number in its own name.
            if !behind.iter().any(|more| self.taken.contains_key(&hash(&path, more))) {
                break;
            }
            number = number.saturating_add(1);
        }
        self.taken.extend(behind.iter().map(|more| (hash(&path, more), 2)));
        self.taken.insert(first, number.saturating_add(1));
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_and_differ() {
        for (text, name) in [
            ("a/b\nc", Some("a_b c")),
            ("..", Some("_..")),
            ("../../etc/passwd", Some(".._.._etc_passwd")),
            (" \t ", None),
            ("a\u{0}\u{1b}[31mb", Some("a__[31mb")),
        ] {
            assert_eq!(safe(text).as_deref(), name, "{text:?}");
        }
        let long = safe(&format!("{}.tar.gz", "ü".repeat(500))).unwrap();
        assert!(long.len() <= LONGEST && long.ends_with("ü.gz"));
        let mut names = Names::default();
        let mut path = |name: &str| String::from_utf8(names.path(b"f/", name)).unwrap();
        assert_eq!(
            (path("a.txt"), path("a.txt"), path("a.txt")),
            ("f/a.txt".into(), "f/a (2).txt".into(), "f/a (3).txt".into())
        );
        assert_eq!(
            (path(".a"), path(".a"), path("b"), path("b")),
            ("f/.a".into(), "f/.a (2)".into(), "f/b".into(), "f/b (2)".into())
        );
        // Names with a number in them are names, too.
        assert_eq!((path("c (2).txt"), path("c (3).txt")), ("f/c (2).txt".into(), "f/c (3).txt".into()));
        assert_eq!((path("c.txt"), path("c.txt")), ("f/c.txt".into(), "f/c (4).txt".into()));
        assert_eq!((path("c (2).txt"), path("c.txt")), ("f/c (2) (2).txt".into(), "f/c (5).txt".into()));
        assert_eq!((path("m.eml"), path("n")), ("f/m.eml".into(), "f/n".into()));
        let mut message = |name: &str| String::from_utf8(names.message(b"f/", name, ".eml")).unwrap();
        assert_eq!((message("m"), message("m"), message("n")), ("f/m (2)".into(), "f/m (3)".into(), "f/n (2)".into()));
        assert_eq!(names.path(b"f/", "n (2).eml"), b"f/n (2) (2).eml");
    }
}
