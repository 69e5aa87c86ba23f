//! Overwrites what others must not read in the list of processes: any user can see the words of a command line as long
//! as the process is there, and a mount may be there for weeks.

#![allow(unsafe_code, reason = "the words of the command line are in memory that nothing in Rust owns")]

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::OnceLock;

/// What stands there instead.
const INSTEAD: u8 = b'*';

/// Overwrites these passwords in the words that this process was started with. To be called while it has one thread,
/// and before it starts others: they have the words as they are then.
pub(crate) fn passwords(passwords: &[OsString]) {
    let passwords: Vec<&[u8]> = passwords.iter().map(|word| word.as_bytes()).filter(|word| !word.is_empty()).collect();
    if !passwords.is_empty() {
        overwrite(|word| secrets(word, &passwords));
    }
}

/// What of URLs on the command line is not to be shown.
static OF_URLS: OnceLock<Vec<String>> = OnceLock::new();

/// The same for what of URLs is not to be shown: user, password and query. Messages do not show it from now on, either.
pub(crate) fn urls() {
    let found = of_urls(std::env::args_os());
    if found.is_empty() {
        return;
    }
    overwrite(secrets_of_urls);
    let _ = OF_URLS.set(found);
}

/// What of URLs in these words is not to be shown, as it may stand in a message.
pub(crate) fn of_urls(words: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let mut found = Vec::new();
    for word in words {
        for secret in secrets_of_urls(word.as_bytes()) {
            let secret = &word.as_bytes()[secret];
            // Of a password with a slash, what stands before that is looked up as a host.
            let start = secret.split(|&byte| byte == b'/').next().unwrap_or(secret);
            let parts = [secret, start].into_iter().filter(|part| part.len() > 1);
            // Messages show names escaped.
            let shown = |part| [String::from_utf8_lossy(part).into_owned(), crate::terminal::escaped(part)];
            found.extend(parts.flat_map(shown));
        }
    }
    // The longest first: others may be in it.
    found.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    found.dedup();
    found
}

/// A message without what of URLs on the command line is not to be shown.
pub(crate) fn without_secrets(message: String) -> String {
    without(message, OF_URLS.get().map_or(&[], Vec::as_slice))
}

/// A message without these.
pub(crate) fn without(message: String, secrets: &[String]) -> String {
    secrets.iter().fold(message, |message, secret| message.replace(secret, "***"))
}

/// Overwrites parts of words.
fn overwrite(secrets: impl Fn(&[u8]) -> Vec<Range<usize>>) {
    let words: Vec<OsString> = std::env::args_os().collect();
    let Some(start) = start_of_words() else {
        return log::debug!("/proc/self/stat does not say where the command line lies: it stays as it is");
    };
    let mut at = start;
    for word in &words {
        for secret in secrets(word.as_bytes()) {
            for byte in secret {
                let place = ptr::with_exposed_provenance_mut::<u8>(at + byte);
                // SAFETY: the kernel says where it has put the words, one behind the other, each with a zero behind
                // it, and this is a byte of one of them, as long as it was when they were read above. That memory is
                // there until the process ends, can be written, and nobody else reads it: there is one thread, and
                // std makes copies.
                unsafe { place.write_volatile(INSTEAD) };
            }
        }
        at += word.len() + 1;
    }
}

/// Where in memory the words of the command line begin; `None` if that is not known.
fn start_of_words() -> Option<usize> {
    /// `arg_start` and `arg_end` (proc_pid_stat(5)), counted from the state, which is the third field.
    const START: usize = 48 - 3;
    let stat = std::fs::read("/proc/self/stat").ok()?;
    // The name of the program is in brackets, and may hold anything.
    let behind_name = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = String::from_utf8_lossy(stat.get(behind_name + 1..)?).into_owned();
    let mut fields = rest.split_ascii_whitespace().skip(START).map(|field| field.parse::<usize>().ok());
    let (start, end) = (fields.next()??, fields.next()??);
    let length: usize = std::env::args_os().map(|word| word.len() + 1).sum();
    // Something else lies there if a library has changed it (setproctitle).
    (start != 0 && end.checked_sub(start)? == length).then_some(start)
}

/// The parts of a word of the command line that are passwords: all of it, behind `--password=`, or in the list behind
/// `-o`.
fn secrets(word: &[u8], passwords: &[&[u8]]) -> Vec<Range<usize>> {
    const ALONE: &[u8] = b"--password=";
    const IN_LIST: &[u8] = b"password=";
    let mut found = Vec::new();
    if passwords.contains(&word) {
        found.push(0..word.len());
        return found;
    }
    if word.starts_with(ALONE) {
        found.push(ALONE.len()..word.len());
        return found;
    }
    // A comma behind a backslash belongs to the value.
    let mut start = 0;
    while start <= word.len() {
        let rest = &word[start..];
        let mut escaped = false;
        let length = rest.iter().position(|&byte| {
            let ends = byte == b',' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let end = start + length.unwrap_or(rest.len());
        let option = &word[start..end];
        // The first may stand right behind `-o`, or other letters.
        let named = option.windows(IN_LIST.len()).position(|part| part == IN_LIST);
        found.extend(named.map(|at| start + at + IN_LIST.len()..end));
        start = end + 1;
    }
    found
}

/// What stands before the host of each URL in a word, and behind its path. The word may be an option, and URLs may
/// stand in a list. Where a port is no number, a password with a slash may be meant, so nothing is shown.
fn secrets_of_urls(word: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(start) = word[at..].windows(3).position(|bytes| bytes == b"://").map(|start| at + start + 3) {
        at = start;
        // Nobody logs in there: a repository stands in that place, or a name.
        if ["github://", "dropbox://"].iter().any(|scheme| word[..start].ends_with(scheme.as_bytes())) {
            continue;
        }
        let rest = &word[start..];
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        let login = rest[..end].iter().rposition(|&byte| byte == b'@').map_or(0, |at| at + 1);
        let authority = &rest[login..end];
        let is_port = |port: &[u8]| port.iter().all(u8::is_ascii_digit);
        let colon = authority.iter().rposition(|byte| b":]".contains(byte)).filter(|&at| authority[at] == b':');
        if colon.is_some_and(|colon| !is_port(&authority[colon + 1..])) {
            found.push(start..word.len());
            break;
        }
        // A password with a slash may begin with digits.
        let behind = rest[end..].iter().position(|&byte| byte == b'@').filter(|_| login == 0 && colon.is_some());
        let login = behind.map_or(login, |behind| end + behind + 1);
        found.push(start..start + login);
        if let Some(query) = rest.iter().position(|byte| b"?#".contains(byte)).filter(|&query| query + 1 < rest.len()) {
            found.push(start + query..word.len());
            break;
        }
    }
    found.retain(|range| !range.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opens_a_url_is_found() {
        for (word, left) in [
            ("https://me:secret@host/x?sig=abc", "https://**********host/x********"),
            ("--index-file=http://a@b/?", "--index-file=http://**b/?"),
            ("http://host/a@b", "http://host/a@b"),
            ("http://me:12/S3cret@h/x?sig", "http://*************h/x****"),
            ("http://host?a@b", "http://host****"),
            ("github://org:repo@main/x", "github://org:repo@main/x"),
            ("tar::http://a:b@host:80/x,ftp://c@[::1]:/", "tar::http://****host:80/x,ftp://**[::1]:/"),
            ("http://me:a/b@host/x", "http://*************"),
            ("http://me:a#b@host/x", "http://*************"),
            ("me:secret@host", "me:secret@host"),
        ] {
            let mut shown = word.as_bytes().to_vec();
            for part in secrets_of_urls(word.as_bytes()) {
                shown[part].fill(INSTEAD);
            }
            assert_eq!(String::from_utf8(shown).unwrap(), left);
        }
    }

    #[test]
    fn messages_have_nothing_that_opens_a_url() {
        let words = ["ls", "http://me:se cr\u{7}et@host/x?sig", "s3://a:b/c@d/e", "/a/b"].map(OsString::from);
        let message = "http://me:se cr\u{7}et@host/x?sig, http://me:se cr\\x07et@host, s3://a:b, /a/b".to_owned();
        assert_eq!(without(message, &of_urls(words)), "http://***host/x***, http://***host, s3://***, /a/b");
        assert!(of_urls(["/x?y@z".into()]).is_empty());
    }

    #[test]
    fn passwords_are_found_in_words_and_nothing_else_is() {
        for (word, left) in [
            ("secret", "******"),
            ("secrets", "secrets"),
            ("--password", "--password"),
            ("--password=secret", "--password=******"),
            ("--password-file=/dev/fd/7", "--password-file=/dev/fd/7"),
            ("-rosuid,password=secret", "-rosuid,password=******"),
            ("ro,password=se\\,cret,suid", "ro,password=********,suid"),
            ("-opassword=secret", "-opassword=******"),
            ("-o", "-o"),
            ("password", "password"),
            ("", ""),
        ] {
            let mut shown = word.as_bytes().to_vec();
            for part in secrets(word.as_bytes(), &[b"secret", b"se,cret"]) {
                shown[part].fill(INSTEAD);
            }
            assert_eq!(String::from_utf8(shown).unwrap(), left, "{word}");
        }
    }
}
