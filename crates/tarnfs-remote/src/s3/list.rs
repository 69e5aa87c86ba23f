//! What lies in a bucket below a name with a slash behind it (`ListObjectsV2`).

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use ureq::http::{HeaderName, Method};

use super::Bucket;
use crate::backend::{Entry, Fault, MOST_ENTRIES};
use crate::fetch::tried;
use crate::http::{Access, Answer, Asker, Question, Refusal, all_of};
use crate::time::of_iso;
use crate::url::{Url, literal, plain};
use crate::xml::{Record, records};

/// A question about a bucket.
#[derive(Debug)]
struct Listing {
    bucket: Arc<Bucket>,
    query: String,
}

impl Access for Listing {
    fn url(&self) -> Url {
        self.bucket.state().place.url(self.bucket.url.host(), "/", Some(self.query.clone()))
    }

    fn login(&self, method: &Method, at: &Url) -> Result<Vec<(HeaderName, String)>, Fault> {
        self.bucket.login(method, at)
    }

    fn refused(&self, answer: &mut Answer, deadline: Instant) -> Refusal {
        self.bucket.refused(answer, deadline)
    }
}

/// Lists the folder at the URL of `bucket`.
pub(super) fn list(bucket: Bucket, deadline: Instant) -> io::Result<Vec<Entry>> {
    let prefix = plain(bucket.url.path());
    let prefix = String::from_utf8_lossy(prefix.strip_prefix(b"/").unwrap_or(&prefix)).into_owned();
    let prefix = if prefix.is_empty() || prefix.ends_with('/') { prefix } else { format!("{prefix}/") };
    let bucket = Arc::new(bucket);
    let (mut entries, mut token, mut tokens) = (Vec::new(), String::new(), HashSet::new());
    loop {
        // In order, as a signature has it.
        let behind =
            if token.is_empty() { String::new() } else { format!("continuation-token={}&", literal(&token, b"")) };
        let query = format!(
            "{behind}delimiter=%2F&encoding-type=url&list-type=2&max-keys=1000&prefix={}",
            literal(&prefix, b"")
        );
        let asker = Asker::new(Box::new(Listing { bucket: Arc::clone(&bucket), query }));
        let (found, outside) = tried(deadline, entries.is_empty(), || {
            let question = Question { method: Method::GET, headers: &[], body: None, deadline, is_for_body: true };
            let all = all_of(asker.ask(&question)?, deadline)?;
            let page = records(&all, &["Contents", "CommonPrefixes"], WANTED);
            page.filter(|(_, outside)| outside.get("IsTruncated").is_some())
                .ok_or_else(|| Fault::Again("the answer is no list of a bucket".to_owned(), None))
        })?;
        let is_escaped = outside.get("EncodingType") == Some("url");
        entries.extend(found.iter().filter_map(|(_, record)| entry(record, &prefix, is_escaped)));
        if entries.len() > MOST_ENTRIES {
            return Err(io::Error::other(format!("there are more than {MOST_ENTRIES} names in it")));
        }
        match next(&outside, &mut tokens)? {
            Some(next) => token = next,
            // Nothing has such a name, not even the folder itself.
            _ if !prefix.is_empty() && found.is_empty() && entries.is_empty() => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "there is nothing in it"));
            }
            _ => return Ok(entries),
        }
    }
}

/// What of a list is of use.
const WANTED: &[&str] =
    &["Key", "Prefix", "Size", "LastModified", "IsTruncated", "NextContinuationToken", "EncodingType"];

/// Bytes of what names the next part of a list at most.
const LONGEST_TOKEN: usize = 8 << 10;

/// What names the next part of a list, if there is one. `known` are those that were followed: a list that ends without
/// having been told to its end, or that goes round, is none.
fn next(outside: &Record, known: &mut HashSet<String>) -> io::Result<Option<String>> {
    if outside.get("IsTruncated") != Some("true") {
        return Ok(None);
    }
    let next = outside.get("NextContinuationToken").unwrap_or_default();
    if next.is_empty() || next.len() > LONGEST_TOKEN {
        return Err(io::Error::other("the server says that there is more, and not how to get it"));
    }
    if !known.insert(next.to_owned()) {
        return Err(io::Error::other("the server tells the same part of the list again and again"));
    }
    Ok(Some(next.to_owned()))
}

/// An object (with a key), or what several keys begin with.
fn entry(record: &Record, prefix: &str, is_escaped: bool) -> Option<Entry> {
    let (key, is_folder) = match record.get("Key") {
        Some(key) => (key, false),
        None => (record.get("Prefix")?, true),
    };
    // A plus stands for a space there.
    let key = if is_escaped { plain(&key.replace('+', "%20")) } else { key.as_bytes().to_vec() };
    let name = key.strip_prefix(prefix.as_bytes())?;
    let name = if is_folder { name.strip_suffix(b"/")? } else { name };
    let size = record.get("Size").map_or(Some(0), |size| size.trim().parse().ok())?;
    let modified = record.get("LastModified").and_then(of_iso).unwrap_or(0);
    // An object with a slash at the end stands for its folder.
    Some(Entry { name: name.to_vec(), is_folder, size, modified }).filter(Entry::is_possible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_followed_to_its_end_or_is_an_error() {
        let mut known = HashSet::new();
        let mut of = |truncated: &str, token: &str| {
            let xml = format!("<l><IsTruncated>{truncated}</IsTruncated>{token}</l>");
            next(&records(xml.as_bytes(), &[], WANTED).unwrap().1, &mut known)
        };
        let token = |name: &str| format!("<NextContinuationToken>{name}</NextContinuationToken>");
        assert_eq!(of("false", &token("a")).unwrap(), None);
        assert_eq!(of("true", &token("a")).unwrap().unwrap(), "a");
        assert_eq!(of("true", &token("b")).unwrap().unwrap(), "b");
        for wrong in [String::new(), token(""), token("a"), token("b"), token(&"c".repeat(LONGEST_TOKEN + 1))] {
            assert!(of("true", &wrong).is_err(), "{wrong}");
        }
    }
}
