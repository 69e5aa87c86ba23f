use std::io::Read as _;

use super::*;
use crate::sftp::peer::{self, Peer, attributes, soon, text};

#[test]
fn a_server_that_does_not_read_is_not_waited_for() {
    let (session, mut peer) = Peer::new();
    // Ten times what a socket takes.
    let handle = [7; 200];
    (0..10_000).for_each(|_| session.close(&handle));
    let found: Vec<_> = (0..10_000).map(|_| peer.asked().unwrap()).collect();
    assert!(found.iter().all(|asked| asked.kind == peer::CLOSE && asked.of == handle));
    assert!(found.windows(2).all(|two| two[0].id + 1 == two[1].id));
}

#[test]
fn what_waits_for_a_server_that_does_not_read_is_bounded() {
    let (session, _peer) = Peer::new();
    let path = vec![b'a'; 1 << 20];
    let answers: Vec<_> = (0..20).map(|_| session.ask(&[Question::OfPath(&path)])).collect();
    for answers in answers {
        let error = answers.and_then(|mut answers| answers.next(soon())).unwrap_err();
        assert!(matches!(&error, Fault::Again(what, _) if what.contains("does not read")), "{error:?}");
    }
    assert!(session.is_over());
}

#[test]
fn answers_that_are_owed_are_bounded() {
    let (session, peer) = Peer::new();
    let refused = (0..=MOST_OWED).find_map(|number| session.ask(&[Question::Close(b"")]).err().map(|_| number));
    assert_eq!(refused, Some(MOST_OWED));
    // Who has started a program for it is told.
    assert_eq!((&peer.alive).read(&mut [0]).unwrap(), 0);
}

#[test]
fn handles_that_nobody_takes_are_closed() {
    let (session, mut peer) = Peer::new();
    // It comes when nobody waits any more.
    drop(session.ask(&[Question::Open(b"a")]).unwrap());
    let asked = peer.asked().unwrap();
    peer.answer(&asked, peer::HANDLE, &text(b"late"));
    let closed = peer.asked().unwrap();
    assert_eq!((closed.kind, &closed.of[..]), (peer::CLOSE, &b"late"[..]));
    // It has come, and nobody takes it. The other question has its answer behind that.
    let answers = session.ask(&[Question::OfPath(b"b"), Question::OpenFolder(b"b")]).unwrap();
    let behind = session.ask(&[Question::OfPath(b"c")]).unwrap();
    let asked = [(); 3].map(|()| peer.asked().unwrap());
    peer.answer(&asked[1], peer::HANDLE, &text(b"early"));
    peer.status(&asked[2], 2);
    let mut behind = behind;
    behind.next(soon()).unwrap();
    drop(answers);
    let closed = peer.asked().unwrap();
    assert_eq!((closed.kind, &closed.of[..]), (peer::CLOSE, &b"early"[..]));
}

#[test]
fn a_server_sends_no_more_than_it_was_asked_for() {
    let name = [text(b"n"), text(b"n"), attributes(1, 2)].concat();
    let names = |count: u32| [&count.to_be_bytes()[..], &name.repeat(count as usize)].concat();
    let read = Question::Read(b"h", 0, 9);
    for (question, kind, answer, is_one) in [
        (read, peer::DATA, text(&[0; 9]), true),
        (read, peer::DATA, text(&[0; 10]), false),
        (read, peer::NAMES, names(1), false),
        (Question::OfPath(b"p"), peer::ATTRIBUTES, attributes(1, 2), true),
        (Question::OfPath(b"p"), peer::NAMES, names(1), false),
        (Question::RealPath(b"p"), peer::NAMES, names(1), true),
        (Question::RealPath(b"p"), peer::NAMES, names(2), false),
        (Question::Names(b"h"), peer::NAMES, names(2), true),
        (Question::Open(b"p"), peer::HANDLE, text(&[0; 256]), true),
        (Question::Open(b"p"), peer::HANDLE, text(&[0; 257]), false),
    ] {
        let (session, mut peer) = Peer::new();
        let mut answers = session.ask(&[question]).unwrap();
        let asked = peer.asked().unwrap();
        peer.answer(&asked, kind, &answer);
        // Nothing more comes over it otherwise.
        peer.end();
        let found = answers.next(soon());
        assert_eq!(found.is_ok(), is_one, "{question:?} {found:?}");
    }
}
