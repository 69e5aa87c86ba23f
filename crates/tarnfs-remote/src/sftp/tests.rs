use super::peer::{self, Asked, Peer, soon, text};
use super::*;

const PIECE: u64 = 32 << 10;

fn version_of(length: u64, second: u64) -> Version {
    Version::of_second(Some(length), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(second))).unwrap()
}

fn reading(session: &Arc<Session>, length: u64) -> Coming {
    let open = Arc::new(Open::new(session, b"h".to_vec()));
    let place = Place { host: None, path: b"/~/a".to_vec() };
    Coming::new(&place, open, 0..length, &version_of(length, 1), soon())
}

/// Go's server has threads for reads, and another one for all else.
#[test]
fn a_change_is_noticed_where_a_server_does_something_else_before_it_reads() {
    let (session, mut peer) = Peer::new();
    let length = 2 * GROUP;
    let server = std::thread::spawn(move || {
        let (mut reads, mut second): (Vec<Asked>, _) = (Vec::new(), 1);
        while let Some(asked) = peer.asked() {
            match asked.kind {
                peer::READ => reads.push(asked),
                peer::OF_HANDLE => peer.answer(&asked, peer::ATTRIBUTES, &peer::attributes(length, second)),
                _ => peer.status(&asked, 0),
            }
            if reads.len() as u64 == length / PIECE {
                // The file is changed, and then it reads.
                second = 2;
                for asked in reads.drain(..) {
                    peer.answer(&asked, peer::DATA, &text(&vec![7; asked.length as usize]));
                }
            }
        }
    });
    let found = reading(&session, length).group();
    assert!(matches!(found, Err(Fault::Changed(_))), "{found:?}");
    drop(session);
    server.join().unwrap();
}

/// Reads a file of seven groups. `ahead` are those that are to be under way at a time.
fn assert_are_asked_ahead(ahead: usize) {
    let (session, mut peer) = Peer::new();
    let groups = 7;
    session.took(if ahead == 1 { Duration::from_secs(5) } else { Duration::ZERO });
    let length = groups * GROUP - 100;
    let server = std::thread::spawn(move || {
        let mut kinds = Vec::new();
        while let Some(asked) = peer.asked() {
            kinds.push(asked.kind);
            match asked.kind {
                peer::READ => {
                    let bytes = vec![(asked.offset / PIECE) as u8; asked.length as usize];
                    peer.answer(&asked, peer::DATA, &text(&bytes));
                }
                peer::OF_HANDLE => peer.answer(&asked, peer::ATTRIBUTES, &peer::attributes(length, 1)),
                _ => peer.status(&asked, 0),
            }
        }
        kinds
    });
    let (mut coming, mut bytes) = (reading(&session, length), Vec::new());
    loop {
        let group = coming.group().unwrap();
        // As if that had been asked for over such a line.
        session.took(if ahead == 1 { Duration::from_secs(5) } else { Duration::ZERO });
        if group.is_empty() {
            break;
        }
        bytes.extend_from_slice(&group);
    }
    assert_eq!(bytes.len() as u64, length);
    assert!((0_u64..).zip(&bytes).all(|(at, byte)| u64::from(*byte) == at / PIECE));
    drop(coming);
    drop(session);
    let group = |_| std::iter::repeat_n(peer::READ, (GROUP / PIECE) as usize);
    let mut expected: Vec<_> = (0..ahead).flat_map(group).collect();
    for number in 0..groups as usize {
        expected.push(peer::OF_HANDLE);
        expected.extend((number + ahead..groups as usize).take(1).flat_map(group));
    }
    // Once nobody asks by it any more.
    expected.push(peer::CLOSE);
    assert_eq!(server.join().unwrap(), expected);
}

#[test]
fn what_is_next_is_asked_for_before_the_version_of_what_is_here() {
    assert_are_asked_ahead(AHEAD);
}

#[test]
fn over_a_slow_line_no_more_is_asked_for_than_is_needed() {
    assert_are_asked_ahead(1);
    let (session, _peer) = Peer::new();
    let slow = [0, 3, 4, 3, 1, 0, u64::MAX].map(|seconds| {
        session.took(Duration::from_secs(seconds));
        session.is_slow()
    });
    assert_eq!(slow, [false, false, true, true, true, false, true]);
}

/// Else a connection that is cut again and again before the version of anything is known would bring nothing.
#[test]
fn what_has_come_before_a_cut_is_taken_if_its_version_is_there_after_it() {
    for second in [1, 2] {
        let url = Url::parse("sftp://box/~/a").unwrap();
        let (ours, control) = std::os::unix::net::UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let mut connections = 0;
            while let Some((_, sockets)) = ssh::take_over(&control).unwrap() {
                connections += 1;
                let sockets: Vec<_> = sockets.into_iter().map(Into::into).collect();
                let mut peer = Peer::of_program(sockets.try_into().unwrap());
                while let Some(asked) = peer.asked() {
                    match asked.kind {
                        peer::READ => peer.answer(&asked, peer::DATA, &text(&vec![7; asked.length as usize])),
                        // It is cut instead.
                        peer::OF_HANDLE => break,
                        peer::CLOSE => peer.status(&asked, 0),
                        3 => peer.answer(&asked, peer::HANDLE, &text(b"h")),
                        _ => peer.answer(&asked, peer::ATTRIBUTES, &peer::attributes(2 * GROUP, second)),
                    }
                }
                peer.end();
            }
            connections
        });
        let host = Ssh::new(ours, std::slice::from_ref(&url)).host(&url);
        let file = File { place: Place { host, path: b"/~/a".to_vec() }, open: Mutex::default() };
        let found = file.range(0..GROUP, &version_of(2 * GROUP, 1), soon());
        match found {
            Ok(mut body) => {
                let mut bytes = Vec::new();
                io::Read::read_to_end(&mut body, &mut bytes).unwrap();
                assert!(second == 1 && bytes == vec![7; GROUP as usize]);
            }
            Err(fault) => assert!(second == 2 && matches!(fault, Fault::Changed(_)), "{fault:?}"),
        }
        drop(file);
        assert_eq!(server.join().unwrap(), 2);
    }
}

#[test]
fn what_is_open_is_closed_whatever_comes_of_it() {
    // A file that is not read to its end, and a folder that cannot be read.
    for is_folder in [false, true] {
        let (session, mut peer) = Peer::new();
        let server = std::thread::spawn(move || {
            let mut closed = Vec::new();
            while let Some(asked) = peer.asked() {
                match asked.kind {
                    peer::CLOSE => closed.push(asked.of.clone()),
                    // It opens a folder.
                    11 => {
                        peer.answer(&asked, peer::HANDLE, &text(b"d"));
                        continue;
                    }
                    _ => {}
                }
                peer.status(&asked, status::FAILURE);
            }
            closed
        });
        if is_folder {
            assert!(list::names(&session, b"p", soon()).is_err());
        } else {
            assert!(reading(&session, 8 * GROUP).group().is_err());
        }
        // What was asked before has come there by then.
        let _ = session.ask_one(Question::OfPath(b"p"), soon()).unwrap();
        drop(session);
        assert_eq!(server.join().unwrap(), [if is_folder { b"d" } else { b"h" }]);
    }
}
