//! What is noticed of a change at a server that does as it is told here.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::*;

const MIB: u64 = 1 << 20;
const LENGTH: u64 = 6 * MIB;

/// A server of one file, for as long as the process lives.
struct Server {
    /// The minute of its last change.
    minute: AtomicU64,
    /// When it was asked for that so often from now on, the minute is another one; never with 0.
    changes: AtomicUsize,
    transfers: AtomicUsize,
    port: u16,
}

impl Server {
    fn new() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (minute, changes, transfers) = (AtomicU64::new(1), AtomicUsize::new(0), AtomicUsize::new(0));
        let server = Arc::new(Self { minute, changes, transfers, port });
        let all = Arc::clone(&server);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = Arc::clone(&all);
                std::thread::spawn(move || server.serve(&client));
            }
        });
        server
    }

    fn pool(&self) -> Arc<Pool> {
        let host = "127.0.0.1".to_owned();
        Arc::new(Pool::new(Site { host, port: self.port, login: None, is_encrypted: false }))
    }

    fn transfers(&self) -> usize {
        self.transfers.load(Ordering::SeqCst)
    }

    /// It is as it was first.
    fn restore(&self) {
        self.minute.store(1, Ordering::SeqCst);
    }

    /// The next question about it finds it changed.
    fn change_before_check(&self) {
        self.changes.store(1, Ordering::SeqCst);
    }

    fn serve(&self, mut client: &TcpStream) -> Option<()> {
        let mut lines = BufReader::new(client.try_clone().ok()?).lines();
        let (mut offset, mut data) = (0, None);
        client.write_all(b"220 hello\r\n").ok()?;
        while let Some(Ok(line)) = lines.next() {
            let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
            let answer = match command {
                "USER" => "230 in".to_owned(),
                "PWD" => "257 \"/\"".to_owned(),
                "EPSV" => {
                    let listener = data.insert(TcpListener::bind("127.0.0.1:0").ok()?);
                    format!("229 there (|||{}|)", listener.local_addr().ok()?.port())
                }
                "REST" => {
                    offset = argument.parse().ok()?;
                    "350 from there".to_owned()
                }
                "RETR" => {
                    self.transfers.fetch_add(1, Ordering::SeqCst);
                    client.write_all(b"150 it comes\r\n").ok()?;
                    let (mut socket, _) = data.take()?.accept().ok()?;
                    let bytes: Vec<u8> = (offset..LENGTH).map(byte).collect();
                    // Who has had enough closes it.
                    let _ = socket.write_all(&bytes);
                    "226 all of it".to_owned()
                }
                "MLST" => {
                    let left =
                        self.changes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                    if left == Ok(1) {
                        self.minute.fetch_add(1, Ordering::SeqCst);
                    }
                    let minute = self.minute.load(Ordering::SeqCst);
                    format!("250-\r\n type=file;size={LENGTH};modify=202601010{minute:03}00; a\r\n250 that")
                }
                _ => "200 as you like".to_owned(),
            };
            client.write_all(format!("{answer}\r\n").as_bytes()).ok()?;
        }
        Some(())
    }
}

fn byte(at: u64) -> u8 {
    (at / 1000) as u8
}

/// A part of the file in the version that was there first.
fn part(pool: &Arc<Pool>, range: Range<u64>) -> Result<Vec<u8>, Fault> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_660);
    let version = Version::of_second(Some(LENGTH), Some(time)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut coming = Coming::new(pool, "/a".to_owned(), range.clone(), &version, deadline);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < range.end - range.start {
        bytes.extend_from_slice(&coming.group()?);
    }
    assert!(range.zip(&bytes).all(|(at, &found)| found == byte(at)));
    Ok(bytes)
}

/// As the other thread sees it, which has the bytes and asks for the version then.
#[test]
fn a_change_between_the_bytes_and_the_check_is_noticed() {
    let server = Server::new();
    let pool = server.pool();
    part(&pool, 0..MIB).unwrap();
    server.change_before_check();
    let changed = part(&pool, MIB..2 * MIB);
    assert!(matches!(changed, Err(Fault::Changed(_))), "{changed:?}");
    assert_eq!(server.transfers(), 1);
    // What is sent over that connection yet may be of either: nobody goes on with it.
    server.restore();
    part(&pool, 2 * MIB..3 * MIB).unwrap();
    assert_eq!(server.transfers(), 2);
}

#[test]
fn what_is_skipped_is_kept_once_its_version_is_known() {
    let server = Server::new();
    let pool = server.pool();
    part(&pool, 0..MIB).unwrap();
    part(&pool, MIB + MIB / 2..2 * MIB).unwrap();
    // It is there already.
    part(&pool, MIB..MIB + MIB / 2).unwrap();
    assert_eq!(server.transfers(), 1);
    server.change_before_check();
    let changed = part(&pool, 2 * MIB + MIB / 2..3 * MIB);
    assert!(matches!(changed, Err(Fault::Changed(_))), "{changed:?}");
    server.restore();
    part(&pool, 2 * MIB..2 * MIB + MIB / 2).unwrap();
    assert_eq!(server.transfers(), 2);
    // Nor is what was kept before of use.
    part(&pool, 3 * MIB..4 * MIB).unwrap();
    assert_eq!(server.transfers(), 2);
    server.change_before_check();
    assert!(part(&pool, 4 * MIB..5 * MIB).is_err());
    server.restore();
    part(&pool, 2 * MIB + MIB / 2..3 * MIB).unwrap();
    assert_eq!(server.transfers(), 3);
}

#[test]
fn who_wants_what_is_skipped_waits_for_it() {
    // Nobody listens there: whoever does not wait has an error.
    let pool = Arc::new(Pool::new(Site { host: "127.0.0.1".to_owned(), port: 1, login: None, is_encrypted: false }));
    let mut skipped = pool.skips("f", 10..20);
    let wanted = Wanted { path: "/f".to_owned(), file: "f".to_owned(), start: 13, end: 15 };
    let other = Arc::clone(&pool);
    let reader = std::thread::spawn(move || other.reading(wanted, Instant::now() + Duration::from_secs(60)));
    skipped.bytes = (10..20).collect();
    skipped.keep();
    assert!(matches!(reader.join().unwrap(), Ok(Got::Kept(bytes)) if bytes == [13, 14]));
}
