//! What `ssh` says when there is no connection, and what that means.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use crate::backend::Fault;

/// Bytes that are kept of it: the last ones.
const MOST: usize = 8 << 10;

/// Letters of a line that are shown.
const LONGEST_LINE: usize = 200;

/// What has been said so far.
#[derive(Debug, Default)]
pub(super) struct Heard(Vec<u8>);

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There may be one later.
    Passing(String),
    /// There will not.
    Lasting(String),
}

impl Refusal {
    pub(crate) fn fault(&self) -> Fault {
        match self {
            Self::Passing(what) => Fault::Again(what.clone(), None),
            Self::Lasting(what) => Fault::Final(what.clone()),
        }
    }
}

impl Heard {
    /// Reads once. False at the end.
    pub(super) fn read(&mut self, mut errors: &UnixStream) -> bool {
        let mut buffer = [0; 1024];
        let read = errors.read(&mut buffer).unwrap_or(0);
        self.0.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let surplus = self.0.len().saturating_sub(MOST);
        self.0.drain(..surplus);
        read > 0
    }

    /// What it means.
    pub(super) fn refusal(&self) -> Refusal {
        let text = String::from_utf8_lossy(&self.0);
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let has = |words: &str| lines.iter().any(|line| line.contains(words));
        // Also where its key has changed, which fills the screen before.
        if has("IDENTIFICATION HAS CHANGED") {
            let what = "the host has another key than the one in known_hosts: somebody may be in between";
            return Refusal::Lasting(format!("{what}, or it was installed anew"));
        }
        if has("Host key verification failed") || has("host key is known for") {
            let what = "the key of the host is not in known_hosts: connect once by ssh, and compare it";
            return Refusal::Lasting(what.to_owned());
        }
        if has("Permission denied (") || has("Too many authentication failures") {
            let what = "the server refuses the login: it takes none of the keys of ssh, its agent or the files";
            return Refusal::Lasting(format!("{what}, and no password of the URL"));
        }
        if has("subsystem request failed") {
            return Refusal::Lasting("the server has no SFTP".to_owned());
        }
        match lines.last() {
            Some(line) if line.starts_with(CANNOT_START) => Refusal::Lasting(shown(line)),
            Some(line) => Refusal::Passing(format!("ssh says: {}", shown(line))),
            None => Refusal::Passing("the connection was cut".to_owned()),
        }
    }
}

/// What is said instead where there is no such program.
pub(super) const CANNOT_START: &str = "ssh cannot be started";

/// A line that anybody may have written, without the name of a user in it.
fn shown(line: &str) -> String {
    let words = line.split(' ').map(|word| word.rsplit_once('@').map_or(word, |(_, host)| host));
    let text = words.collect::<Vec<_>>().join(" ");
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(LONGEST_LINE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_is_told_in_one_line() {
        let of = |text: &str| Heard(text.as_bytes().to_vec()).refusal();
        let is_lasting = |text: &str, said: &str| match of(text) {
            Refusal::Lasting(what) => what.contains(said),
            Refusal::Passing(_) => false,
        };
        assert!(is_lasting("me@h: Permission denied (publickey).\r\n", "login"));
        assert!(is_lasting("Host key verification failed.\r\n", "known_hosts"));
        let changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\nHost key verification failed.\r\n";
        assert!(is_lasting(changed, "another key"));
        assert!(is_lasting("subsystem request failed on channel 0\r\n", "no SFTP"));
        assert!(is_lasting("ssh cannot be started: no such file", "started"));
        let passing = |what: &str| Refusal::Passing(what.to_owned());
        assert_eq!(of(""), passing("the connection was cut"));
        let reset =
            "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by me@h port 2\r\n";
        assert_eq!(of(reset), passing("ssh says: Connection reset by h port 2"));
        assert_eq!(of("a\x1b[1m\n"), passing("ssh says: a [1m"));
    }
}
