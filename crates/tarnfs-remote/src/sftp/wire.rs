//! SFTP version 3 as bytes (draft-ietf-secsh-filexfer-02): what is asked, and what comes back. Nothing is read or
//! written here.

/// Bytes of one answer at most: OpenSSH sends 256 KiB and the head.
pub(super) const LONGEST: usize = (256 << 10) + 1024;

/// The version that is spoken, and all servers know.
const VERSION: u32 = 3;

/// What a handle is opened for.
const READ_ONLY: u32 = 1;

/// Bytes of a handle at most (section 6.3).
const LONGEST_HANDLE: usize = 256;

/// Bytes of a path at most, as a server tells it: four times what Linux takes.
const LONGEST_PATH: usize = 16 << 10;

/// Why a server has nothing (section 7).
pub(super) mod status {
    pub(in crate::sftp) const EOF: u32 = 1;
    pub(in crate::sftp) const NO_SUCH_FILE: u32 = 2;
    pub(in crate::sftp) const PERMISSION_DENIED: u32 = 3;
    pub(in crate::sftp) const FAILURE: u32 = 4;
    pub(in crate::sftp) const NO_CONNECTION: u32 = 6;
    pub(in crate::sftp) const CONNECTION_LOST: u32 = 7;
}

/// A question. Paths are bytes; those that begin with no slash begin in the home folder.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question<'a> {
    Open(&'a [u8]),
    Close(&'a [u8]),
    /// Of a handle: so many bytes from there on.
    Read(&'a [u8], u64, u32),
    /// Attributes of what is open.
    OfHandle(&'a [u8]),
    /// Attributes of what a path leads to.
    OfPath(&'a [u8]),
    OpenFolder(&'a [u8]),
    /// The next names of a folder.
    Names(&'a [u8]),
    /// The path without links in it.
    RealPath(&'a [u8]),
}

/// What a server answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Status(u32),
    Handle(Vec<u8>),
    Data(Vec<u8>),
    Names(Vec<(Vec<u8>, Attributes)>),
    Attributes(Attributes),
}

/// What may be the answer to a question, but for a status. So a server cannot send more than was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Status,
    Handle,
    /// So many bytes at most.
    Data(u32),
    Names,
    /// A single name.
    Path,
    Attributes,
}

impl Question<'_> {
    pub(super) fn expects(&self) -> Expected {
        match self {
            Self::Open(_) | Self::OpenFolder(_) => Expected::Handle,
            Self::Close(_) => Expected::Status,
            Self::Read(_, _, length) => Expected::Data(*length),
            Self::OfHandle(_) | Self::OfPath(_) => Expected::Attributes,
            Self::Names(_) => Expected::Names,
            Self::RealPath(_) => Expected::Path,
        }
    }
}

impl Expected {
    pub(super) fn is_met_by(self, answer: &Answer) -> bool {
        match (self, answer) {
            (_, Answer::Status(_)) | (Self::Names, Answer::Names(_)) | (Self::Attributes, Answer::Attributes(_)) => {
                true
            }
            (Self::Handle, Answer::Handle(handle)) => handle.len() <= LONGEST_HANDLE,
            (Self::Data(most), Answer::Data(data)) => data.len() <= most as usize,
            (Self::Path, Answer::Names(names)) => matches!(&names[..], [(path, _)] if path.len() <= LONGEST_PATH),
            _ => false,
        }
    }
}

/// What is known of a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    /// Bytes.
    pub(super) size: Option<u64>,
    /// Type and permissions, as in `st_mode`.
    pub(super) mode: Option<u32>,
    /// Last change, seconds since 1970.
    pub(super) modified: Option<u32>,
}

impl Attributes {
    fn is_of_type(&self, kind: u32) -> bool {
        self.mode.is_some_and(|mode| mode & libc::S_IFMT == kind)
    }

    pub(super) fn is_folder(&self) -> bool {
        self.is_of_type(libc::S_IFDIR)
    }

    /// Also of what the server does not say the type of.
    pub(super) fn may_be_file(&self) -> bool {
        self.mode.is_none_or(|mode| matches!(mode & libc::S_IFMT, libc::S_IFREG | 0))
    }

    /// True if the type has to be asked for: of a link, it is that of what the link leads to.
    pub(super) fn is_to_be_asked(&self) -> bool {
        self.is_of_type(libc::S_IFLNK) || self.mode.is_none() || self.size.is_none()
    }
}

/// The first message of all.
pub(super) fn hello() -> Vec<u8> {
    let mut packet = Packet::new(1);
    packet.number(VERSION);
    packet.end()
}

/// True if this is the answer to that, and the server speaks the same.
pub(super) fn is_hello(payload: &[u8]) -> bool {
    matches!(payload.split_first(), Some((2, rest)) if rest.starts_with(&VERSION.to_be_bytes()))
}

/// A question as a message with this number.
pub(super) fn of_question(id: u32, question: &Question<'_>) -> Vec<u8> {
    let kind = match question {
        Question::Open(_) => 3,
        Question::Close(_) => 4,
        Question::Read(..) => 5,
        Question::OfHandle(_) => 8,
        Question::OpenFolder(_) => 11,
        Question::Names(_) => 12,
        Question::RealPath(_) => 16,
        Question::OfPath(_) => 17,
    };
    let mut packet = Packet::new(kind);
    packet.number(id);
    match question {
        Question::Open(path) => {
            packet.text(path);
            packet.number(READ_ONLY);
            // No attributes.
            packet.number(0);
        }
        Question::Read(handle, offset, length) => {
            packet.text(handle);
            packet.0.extend_from_slice(&offset.to_be_bytes());
            packet.number(*length);
        }
        Question::Close(of)
        | Question::OfHandle(of)
        | Question::OfPath(of)
        | Question::OpenFolder(of)
        | Question::Names(of)
        | Question::RealPath(of) => packet.text(of),
    }
    packet.end()
}

struct Packet(Vec<u8>);

impl Packet {
    fn new(kind: u8) -> Self {
        Self(vec![0, 0, 0, 0, kind])
    }

    fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u32);
        self.0.extend_from_slice(text);
    }

    fn end(mut self) -> Vec<u8> {
        let length = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// The number of the question, and what is answered. `None` of what is no answer.
pub(super) fn answer(payload: &[u8]) -> Option<(u32, Answer)> {
    let mut rest = Rest(payload);
    let kind = rest.bytes(1)?[0];
    let id = rest.number()?;
    let answer = match kind {
        101 => Answer::Status(rest.number()?),
        102 => Answer::Handle(rest.text()?.to_vec()),
        103 => Answer::Data(rest.text()?.to_vec()),
        104 => {
            // Each takes twelve bytes at least, so that a number that is too high is found out.
            let count = rest.number()?;
            let mut names = Vec::new();
            for _ in 0..count {
                let name = rest.text()?.to_vec();
                let _as_ls_shows_it = rest.text()?;
                names.push((name, rest.attributes()?));
            }
            Answer::Names(names)
        }
        105 => Answer::Attributes(rest.attributes()?),
        _ => return None,
    };
    Some((id, answer))
}

/// What is left of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    fn attributes(&mut self) -> Option<Attributes> {
        const SIZE: u32 = 1;
        const OWNER: u32 = 2;
        const MODE: u32 = 4;
        const TIMES: u32 = 8;
        const MORE: u32 = 1 << 31;
        let flags = self.number()?;
        let mut found = Attributes::default();
        if flags & SIZE != 0 {
            found.size = Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?));
        }
        if flags & OWNER != 0 {
            self.bytes(8)?;
        }
        if flags & MODE != 0 {
            found.mode = Some(self.number()?);
        }
        if flags & TIMES != 0 {
            let _used = self.number()?;
            found.modified = Some(self.number()?);
        }
        if flags & MORE != 0 {
            for _ in 0..self.number()? {
                self.text()?;
                self.text()?;
            }
        }
        Some(found)
    }
}

/// Messages out of what comes in any parts.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    /// So many of them belong to messages that were taken.
    taken: usize,
}

impl Incoming {
    /// These have come.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message that is there as a whole. An error if it is too long for one.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, ()> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > LONGEST {
            return Err(());
        }
        let payload = rest.get(..length);
        self.taken += payload.map_or(0, |payload| payload.len() + 4);
        Ok(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(payload: &[u8]) -> Vec<u8> {
        [&(payload.len() as u32).to_be_bytes(), payload].concat()
    }

    #[test]
    fn questions_are_as_the_draft_has_them() {
        assert_eq!(hello(), [0, 0, 0, 5, 1, 0, 0, 0, 3]);
        let open = of_question(7, &Question::Open(b"a"));
        assert_eq!(open, [0, 0, 0, 18, 3, 0, 0, 0, 7, 0, 0, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 0]);
        let read = of_question(8, &Question::Read(b"h", 1 << 32, 9));
        assert_eq!(read, [0, 0, 0, 22, 5, 0, 0, 0, 8, 0, 0, 0, 1, b'h', 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]);
        assert!(is_hello(&[2, 0, 0, 0, 3, 0]) && !is_hello(&[2, 0, 0, 0, 2]) && !is_hello(b"Welcome"));
    }

    #[test]
    fn answers_are_read_and_halves_of_them_are_none() {
        let attributes = [
            &[0x80, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0x81, 0xa4][..],
            &[0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, b'k', 0, 0, 0, 1, b'v'],
        ]
        .concat();
        let expected = Attributes { size: Some(9), mode: Some(0o100_644), modified: Some(4) };
        let names =
            [&[104, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0, 0, 0, 2, b'l', b's'], &attributes[..]].concat();
        assert_eq!(answer(&names), Some((1, Answer::Names(vec![(vec![0xff], expected)]))));
        let of_file = [&[105, 0, 0, 0, 2], &attributes[..]].concat();
        assert_eq!(answer(&of_file), Some((2, Answer::Attributes(expected))));
        for whole in [&names, &of_file] {
            assert!((0..whole.len()).all(|end| answer(&whole[..end]).is_none()));
        }
        // As many names as no message has.
        assert_eq!(answer(&[104, 0, 0, 0, 1, 255, 255, 255, 255]), None);
        assert_eq!(answer(&[101, 0, 0, 0, 1, 0, 0, 0, 2]), Some((1, Answer::Status(status::NO_SUCH_FILE))));
        assert!(expected.may_be_file() && !expected.is_folder() && !expected.is_to_be_asked());
    }

    #[test]
    fn messages_come_in_any_parts() {
        let all = [message(b"abc"), message(b""), message(&[7; 1000])].concat();
        for step in [1, 3, 100, 5000] {
            let (mut incoming, mut lengths) = (Incoming::default(), Vec::new());
            for part in all.chunks(step) {
                incoming.push(part);
                while let Some(payload) = incoming.next().unwrap() {
                    lengths.push(payload.len());
                }
            }
            assert_eq!(lengths, [3, 0, 1000], "{step}");
        }
        let mut long = Incoming::default();
        long.push(b"Welcome to this server!");
        assert!(long.next().is_err());
    }
}
