//! What goes over the sockets: a kind, a length and as many bytes. Each answer belongs to the question before it.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::backend::Entry;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Questions.
/// For what is behind a URL, which is named as it is shown.
pub(super) const OPEN: u8 = b'o';
pub(super) const INDEX: u8 = b'i';
/// The number of a folder there.
pub(super) const FOLDER: u8 = b'f';
/// About what has a number. What lies in a folder is named by the names that lead there, with slashes.
pub(super) const READ: u8 = b'r';
pub(super) const PREFETCH: u8 = b'p';
pub(super) const BESIDE: u8 = b'b';
pub(super) const LIST: u8 = b'l';
pub(super) const BELOW: u8 = b'w';
/// No answer comes.
pub(super) const CLOSE: u8 = b'x';

/// Answers.
pub(super) const FOUND: u8 = b'+';
pub(super) const FAILED: u8 = b'-';
/// A line for the log; the answer comes later.
pub(super) const LINE: u8 = b'#';

/// How an index is told of, where there is one: the path of a copy, or what is told of an object that is open.
pub(super) const COPIED: u8 = b'c';
pub(super) const FAR: u8 = b'f';

/// Bytes of one message: those of a read, and a little more.
pub(super) const LONGEST: usize = MOST_READ + 64;
/// Bytes of one read.
pub(super) const MOST_READ: usize = 2 << 20;

/// Bytes of the kind and the length.
const HEAD: usize = 5;

/// Sends a message. In one step where that is possible: whoever waits for it is woken once.
pub(super) fn send(socket: &mut impl Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    let mut head: [u8; HEAD] = [kind, 0, 0, 0, 0];
    head[1..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let mut parts = &mut [IoSlice::new(&head), IoSlice::new(payload)][..];
    while !parts.is_empty() {
        match socket.write_vectored(parts) {
            Ok(0) if parts.iter().any(|part| !part.is_empty()) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // An empty payload may be left.
        if parts.iter().all(|part| part.is_empty()) {
            break;
        }
    }
    Ok(())
}

/// Sends a short message or nothing over a socket that does not wait. `WouldBlock` if the other side has not read those
/// before it.
pub(super) fn send_now(mut socket: &UnixStream, kind: u8, payload: &[u8]) -> io::Result<()> {
    let mut message = Vec::new();
    send(&mut message, kind, payload)?;
    let sent = socket.write(&message)?;
    // Half a message is the end of all that come over it.
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

/// A message as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    head: [u8; HEAD],
    /// As long as the head says, once that is there.
    payload: Vec<u8>,
    /// So many bytes of both have come.
    done: usize,
}

impl Incoming {
    /// Reads once. Returns the message when that was all of it. Whatever the other
    /// side says, it takes bounded memory.
    pub(super) fn read(&mut self, socket: &mut impl Read) -> io::Result<Option<(u8, Vec<u8>)>> {
        let rest = match self.done.checked_sub(HEAD) {
            None => &mut self.head[self.done..],
            Some(done) => &mut self.payload[done..],
        };
        match socket.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => self.done += read,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
        if self.done == HEAD && self.payload.is_empty() {
            let [_, length @ ..] = self.head;
            let length = u32::from_le_bytes(length) as usize;
            if length > LONGEST {
                return Err(io::Error::other("a message is too long"));
            }
            self.payload.resize(length, 0);
        }
        if self.done < HEAD + self.payload.len() {
            return Ok(None);
        }
        let Self { head, payload, .. } = std::mem::take(self);
        Ok(Some((head[0], payload)))
    }
}

/// The next message. Whatever the other side says, it takes bounded memory.
pub(super) fn receive(socket: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut incoming = Incoming::default();
    loop {
        if let Some(message) = incoming.read(socket)? {
            return Ok(message);
        }
    }
}

/// Numbers of a message, one behind the other.
pub(super) fn numbers<const N: usize>(payload: &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let (parts, rest) = payload.as_chunks::<8>();
    if parts.len() != N || !rest.is_empty() {
        return None;
    }
    for (number, part) in numbers.iter_mut().zip(parts) {
        *number = u64::from_le_bytes(*part);
    }
    Some(numbers)
}

/// The inverse.
pub(super) fn of_numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Numbers before something else.
pub(super) fn numbers_before<const N: usize>(payload: &[u8]) -> Option<([u64; N], &[u8])> {
    let (before, rest) = payload.split_at_checked(N * 8)?;
    Some((numbers(before)?, rest))
}

/// What lies in a folder, as much as goes into one message: whether there is more, then each entry.
pub(super) fn of_entries(entries: &[Entry]) -> (Vec<u8>, usize) {
    let mut payload = vec![0];
    let mut count = 0;
    for Entry { name, is_folder, size, modified } in entries {
        if payload.len() + name.len() + 32 > MOST_READ {
            payload[0] = 1;
            break;
        }
        payload.push(u8::from(*is_folder));
        payload.extend_from_slice(&of_numbers(&[*size, *modified as u64, name.len() as u64]));
        payload.extend_from_slice(name);
        count += 1;
    }
    (payload, count)
}

/// The inverse.
pub(super) fn entries(payload: &[u8]) -> Option<(Vec<Entry>, bool)> {
    let (has_more, mut rest) = payload.split_first()?;
    let mut entries = Vec::new();
    while let Some((kind, behind)) = rest.split_first() {
        let ([size, modified, length], behind) = numbers_before(behind)?;
        let (name, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
        entries.push(Entry { name: name.to_vec(), is_folder: *kind != 0, size, modified: modified as i64 });
        rest = behind;
    }
    Some((entries, *has_more != 0))
}

/// Kinds of errors that mean something to whoever reads; all others are one.
const KINDS: [io::ErrorKind; 6] = [
    io::ErrorKind::Other,
    io::ErrorKind::NotFound,
    io::ErrorKind::StaleNetworkFileHandle,
    io::ErrorKind::Unsupported,
    io::ErrorKind::IsADirectory,
    io::ErrorKind::NotADirectory,
];

/// An error as a message.
pub(super) fn of_error(error: &io::Error) -> Vec<u8> {
    let kind = KINDS.iter().position(|&kind| kind == error.kind()).unwrap_or(0) as u8;
    let mut payload = vec![kind];
    payload.extend_from_slice(error.to_string().as_bytes());
    payload
}

/// The inverse.
pub(super) fn error(payload: &[u8]) -> io::Error {
    let (kind, said) = payload.split_first().unwrap_or((&0, &[]));
    let kind = KINDS.get(usize::from(*kind)).copied().unwrap_or(io::ErrorKind::Other);
    io::Error::new(kind, String::from_utf8_lossy(said).into_owned())
}

/// Hands an open socket over.
pub(super) fn hand_over(control: &UnixStream, socket: &UnixStream) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(control, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next one that was handed over; `None` when there will be no more.
pub(super) fn take_over(control: &UnixStream) -> io::Result<Option<UnixStream>> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let received = recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        match received {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(received) if received.bytes == 0 => return Ok(None),
            Ok(_) => {}
        }
        let sockets = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        if let Some(socket) = sockets.flatten().map(|socket: OwnedFd| UnixStream::from(socket)).next() {
            return Ok(Some(socket));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_as_they_were_sent_and_too_long_ones_do_not() {
        let mut bytes = Vec::new();
        send(&mut bytes, READ, &of_numbers(&[1, u64::MAX])).unwrap();
        let (kind, payload) = receive(&mut bytes.as_slice()).unwrap();
        assert_eq!((kind, numbers::<2>(&payload)), (READ, Some([1, u64::MAX])));
        assert_eq!(numbers::<1>(&payload), None);
        assert!(receive(&mut &bytes[..20]).is_err());
        assert!(receive(&mut [READ, 255, 255, 255, 255].as_slice()).is_err());
        let stale = io::Error::new(io::ErrorKind::StaleNetworkFileHandle, "changed");
        assert_eq!(error(&of_error(&stale)).kind(), stale.kind());
        assert_eq!(error(&[]).kind(), io::ErrorKind::Other);
    }

    #[test]
    fn entries_come_as_they_were_sent_in_several_messages() {
        let entry = |number: u64| Entry {
            name: format!("{number}").repeat(40).into_bytes(),
            is_folder: number.is_multiple_of(2),
            size: number << 40,
            modified: -1,
        };
        let all: Vec<_> = (0..50_000).map(entry).collect();
        let (mut came, mut messages) = (Vec::new(), 0);
        loop {
            let (payload, count) = of_entries(&all[came.len()..]);
            let (part, has_more) = entries(&payload).unwrap();
            assert!(
                payload.len() <= LONGEST && part.len() == count && entries(&payload[..payload.len() - 1]).is_none()
            );
            came.extend(part);
            messages += 1;
            if !has_more {
                break;
            }
        }
        assert!(came == all && messages > 1);
        assert_eq!(entries(&of_entries(&[]).0), Some((Vec::new(), false)));
    }

    #[test]
    fn a_message_comes_in_any_parts() {
        let mut bytes = Vec::new();
        for payload in [b"abc".to_vec(), Vec::new(), vec![7; 100_000]] {
            send(&mut bytes, FOUND, &payload).unwrap();
        }
        for step in [1, 3, 4096, 1 << 20] {
            let (mut incoming, mut came) = (Incoming::default(), Vec::new());
            for mut part in bytes.chunks(step) {
                while !part.is_empty() {
                    came.extend(incoming.read(&mut part).unwrap());
                }
            }
            assert!(came.iter().all(|(kind, _)| *kind == FOUND));
            assert_eq!(came.iter().map(|(_, payload)| payload.len()).collect::<Vec<_>>(), [3, 0, 100_000], "{step}");
        }
        assert!(Incoming::default().read(&mut [].as_slice()).is_err());
        let mut long = Incoming::default();
        assert!(long.read(&mut [READ, 255, 255, 255, 255].as_slice()).is_err());
    }

    #[test]
    fn who_does_not_read_is_not_waited_for() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let sent = (0..100_000).map(|_| send_now(&ours, PREFETCH, &[0; 16]));
        let error = sent.into_iter().find_map(Result::err).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(theirs);
        assert!(send_now(&ours, PREFETCH, &[]).is_err());
    }

    #[test]
    fn a_socket_is_handed_over() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut one, other) = UnixStream::pair().unwrap();
        hand_over(&ours, &other).unwrap();
        drop((ours, other));
        let mut taken = take_over(&theirs).unwrap().unwrap();
        send(&mut one, OPEN, b"x").unwrap();
        assert_eq!(receive(&mut taken).unwrap(), (OPEN, b"x".to_vec()));
        assert!(take_over(&theirs).unwrap().is_none());
    }
}
