//! Names of files and folders, for what has a name in a header or none at all.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a name that a header gives. It stays a name with a number before it and behind it.
const LONGEST: usize = 160;

/// `text` as the name of a file: in one line, without slashes, and never one that leads elsewhere. `None` if nothing
/// is left of it.
pub(super) fn safe(text: &str) -> Option<String> {
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
pub(super) fn extension(kind: &[u8]) -> &'static str {
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

/// The names that there are in the folders of one message.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By the hash of the path: the number that the next one gets.
    taken: HashMap<u64, u32>,
}

impl Names {
    /// `name` in `folder` (which ends in a slash, or is the root), with a number if there is another one.
    pub(super) fn path(&mut self, folder: &[u8], name: &str) -> Vec<u8> {
        let path = [folder, name.as_bytes()].concat();
        let Some(count) = self.taken.get_mut(&xxh3_64(&path)) else {
            self.taken.insert(xxh3_64(&path), 2);
            return path;
        };
        // All of one name are numbered in one go, so that many take no longer than few.
        let number = *count;
        *count = count.saturating_add(1);
        let (stem, end) =
            name.rfind('.').filter(|dot| *dot > 0).and_then(|dot| name.split_at_checked(dot)).unwrap_or((name, ""));
        let path = [folder, format!("{stem} ({number}){end}").as_bytes()].concat();
        self.taken.entry(xxh3_64(&path)).or_insert(2);
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
    }
}
