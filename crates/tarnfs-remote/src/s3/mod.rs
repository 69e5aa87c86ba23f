//! `s3://BUCKET/KEY`: objects of Amazon S3, and of all that answers as it does.
//!
//! They are asked for over HTTP. What is of S3 is here: where a bucket is ([`settings`]), who asks ([`sign`]), and what
//! a refusal means.

mod list;
mod settings;
mod sign;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ureq::http::{HeaderName, Method, StatusCode, header};

use crate::backend::{Backend, Entry, Fault, Object};
use crate::fetch::read_by;
use crate::http::{Access, Answer, HttpObject, Refusal, text};
use crate::open::Settings;
use crate::url::Url;
pub use settings::Aws;
use settings::{Endpoint, Keys, Place};

/// Bytes of what is said in a refusal.
const LONGEST_REFUSAL: u64 = 8 << 10;

/// See the module.
pub(crate) struct S3;

impl Backend for S3 {
    fn schemes(&self) -> &'static [&'static str] {
        &["s3"]
    }

    fn object(&self, url: &Url, settings: &Settings) -> io::Result<Box<dyn Object>> {
        Ok(Box::new(HttpObject::new(Box::new(Bucket::new(url, &settings.aws)?))))
    }

    fn reads(&self, settings: &Settings) -> Vec<PathBuf> {
        settings.aws.reads()
    }

    /// There are no folders: keys have slashes in them.
    fn may_be_folder(&self, url: &Url, failed: Option<&io::Error>) -> bool {
        failed.map_or(url.path().ends_with('/'), |error| error.kind() == io::ErrorKind::NotFound)
    }

    fn list(&self, url: &Url, settings: &Settings, deadline: Instant) -> io::Result<Vec<Entry>> {
        list::list(Bucket::new(url, &settings.aws)?, deadline)
    }

    fn place(&self, url: &Url, settings: &Settings) -> String {
        let endpoint = settings.aws.place().map(|place| format!("{}{}", place.endpoint, place.partition()));
        format!("{} {}", endpoint.unwrap_or_default(), url.request())
    }
}

/// An object, or a folder, in a bucket.
struct Bucket {
    url: Url,
    aws: Aws,
    state: Mutex<State>,
}

#[derive(Clone)]
struct State {
    place: Place,
    /// The version that is asked for, if it is not the newest.
    version: Option<String>,
    /// How much later it is by the clock of the server, seconds.
    later: i64,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(formatter)
    }
}

impl Bucket {
    fn new(url: &Url, aws: &Aws) -> io::Result<Self> {
        let place = aws.place().map_err(io::Error::other)?;
        let state = Mutex::new(State { place, version: None, later: 0 });
        Ok(Self { url: url.clone(), aws: aws.clone(), state })
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Who asks: nobody, where no keys are known.
    fn keys(&self) -> Result<Option<Keys>, Fault> {
        let of_url = self.url.login().map(|login| Keys::new(&login.user, &login.password));
        of_url.map_or_else(|| self.aws.keys().map_err(Fault::Final), |keys| Ok(Some(keys)))
    }

    /// What a refusal teaches: true if it is worth asking again at once.
    fn learns(&self, answer: &Answer, said: &str) -> bool {
        let State { place, later, .. } = self.state();
        let region = text(answer, &HeaderName::from_static("x-amz-bucket-region"));
        let region = region.or_else(|| element(said, "Region")).filter(|region| is_region(region));
        if let Some(region) = region.filter(|region| *region != place.region) {
            self.change(|state| state.place.region = region);
            return true;
        }
        let date = text(answer, &header::DATE).and_then(|date| httpdate::parse_http_date(&date).ok());
        if element(said, "Code").as_deref() == Some("RequestTimeTooSkewed")
            && let Some(date) = date
        {
            let seconds = |time: SystemTime| {
                time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
            };
            let now = seconds(date).saturating_sub(seconds(SystemTime::now()));
            self.change(|state| state.later = now);
            // Some seconds pass on the way.
            return now.abs_diff(later) > 60;
        }
        false
    }
}

impl Access for Bucket {
    fn url(&self) -> Url {
        let State { place, version, .. } = self.state();
        let query = version.map(|version| format!("versionId={}", crate::url::literal(&version, b"")));
        let query = query.or_else(|| self.url.query().map(str::to_owned));
        place.url(self.url.host(), self.url.path(), query)
    }

    fn login(&self, method: &Method, at: &Url) -> Result<Vec<(HeaderName, String)>, Fault> {
        if at.origin() != self.url().origin() {
            return Ok(Vec::new());
        }
        let State { place, later, .. } = self.state();
        let Some(keys) = self.keys()? else { return Ok(Vec::new()) };
        let now = SystemTime::now();
        let by = Duration::from_secs(later.unsigned_abs());
        let now = if later < 0 { now.checked_sub(by) } else { now.checked_add(by) }.unwrap_or(now);
        Ok(sign::headers(&keys, &place.region, method.as_str(), at, &[], now))
    }

    fn refused(&self, answer: &mut Answer, deadline: Instant) -> Refusal {
        let status = answer.status();
        // Of what is no error, and of conditions and ranges, the status says all.
        if !(status.is_redirection() || matches!(status.as_u16(), 400 | 401 | 403 | 404)) {
            return Refusal::AsItSays;
        }
        let mut said = Vec::new();
        let _ = read_by(deadline, &mut answer.body_mut().as_reader(), LONGEST_REFUSAL, &mut said);
        let said = String::from_utf8_lossy(&said);
        if self.learns(answer, &said) {
            return Refusal::AskAgain;
        }
        if status.is_redirection() && answer.headers().contains_key(header::LOCATION) {
            return Refusal::AsItSays;
        }
        // A code is a word.
        let code = element(&said, "Code").filter(|code| code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let in_brackets = code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        let words = format!("the server says {}{in_brackets}", status.as_u16());
        let is_known = self.keys().is_ok_and(|keys| keys.is_some());
        let hint = match code.as_deref() {
            Some("ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired") => {
                // Whoever made it may be about to make another one.
                return Refusal::Means(Fault::Again(format!("{words}: the session has run out"), None));
            }
            Some("SignatureDoesNotMatch") => "the secret key is another one",
            Some("InvalidAccessKeyId") => "the server does not know the access key",
            Some("NoSuchBucket") => return Refusal::Means(Fault::Missing(format!("{words}: there is no such bucket"))),
            _ if status == StatusCode::NOT_FOUND => return Refusal::Means(Fault::Missing(words)),
            _ if matches!(status.as_u16(), 401 | 403) && !is_known => {
                "it may not be read without keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            }
            _ if matches!(status.as_u16(), 401 | 403) => "it is not there, or these keys may not read it",
            _ => return Refusal::Means(Fault::Final(words)),
        };
        Refusal::Means(Fault::Final(format!("{words}: {hint}")))
    }

    fn id(&self, answer: &Answer) -> Option<String> {
        let id = text(answer, &HeaderName::from_static("x-amz-version-id"));
        // Versions are not kept, or were not when it was written.
        id.filter(|id| id != "null" && id.len() <= 1024)
    }

    fn version(&self) -> Option<String> {
        self.state().version
    }

    fn of_version(&self, id: &str, asked: Option<&str>) -> bool {
        // Whoever has typed a version reads that one.
        if self.url.query().is_some() || asked.is_some() {
            return false;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.version.is_none() {
            log::debug!("{}: there is a newer version: the older one is read", self.url);
            state.version = Some(id.to_owned());
        }
        state.version.as_deref() == Some(id)
    }
}

/// What stands in the first element of this name, which has no others in it.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once('<')?;
    Some(value.to_owned())
}

fn is_region(text: &str) -> bool {
    let is_of_region = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=32).contains(&text.len()) && text.bytes().all(is_of_region)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Amazon => formatter.write_str("aws"),
            Self::Other(url) => url.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Barrier};

    use super::*;
    use crate::backend::Version;

    fn bucket(endpoint: &str, url: &str) -> Bucket {
        let aws = Aws::of_variables(&[("AWS_ENDPOINT_URL", endpoint), ("AWS_REGION", "us-east-1")]);
        Bucket::new(&Url::parse(url).unwrap(), &aws).unwrap()
    }

    #[test]
    fn who_has_asked_for_the_newest_version_asks_again() {
        let of = |url| bucket("http://127.0.0.1:9", url);
        let one = of("s3://b/a");
        assert_eq!(one.version(), None);
        assert!(one.of_version("1", None) && one.of_version("1", None));
        assert_eq!(one.version().as_deref(), Some("1"));
        assert!(!one.of_version("1", Some("1")) && !one.of_version("2", None));
        assert!(!of("s3://b/a?versionId=1").of_version("1", None));
    }

    /// A server that has replaced version 1. It answers those who ask for the newest one when two have asked.
    fn replaced() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let both = Arc::new(Barrier::new(2));
        std::thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                let both = Arc::clone(&both);
                std::thread::spawn(move || {
                    let (mut head, mut byte) = (Vec::new(), [0]);
                    while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|read| read > 0) {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
                    let number =
                        |at: &str| at.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<usize>().ok();
                    let start = head.split_once("range: bytes=").and_then(|(_, range)| number(range)).unwrap();
                    let answer = if head.contains("versionid=1 ") {
                        let about = format!("Content-Range: bytes {start}-{start}/10\r\nETag: \"1\"");
                        format!("206 Partial Content\r\n{about}\r\nContent-Length: 1\r\n\r\n{start}")
                    } else {
                        both.wait();
                        "412 Precondition Failed\r\nContent-Length: 0\r\n\r\n".to_owned()
                    };
                    let (status, rest) = answer.split_once("\r\n").unwrap();
                    let _ = write!(socket, "HTTP/1.1 {status}\r\nConnection: close\r\n{rest}");
                });
            }
        });
        endpoint
    }

    #[test]
    fn ranges_that_are_refused_at_once_are_all_of_the_old_version() {
        let object = HttpObject::new(Box::new(bucket(&replaced(), "s3://b/a")));
        let word = |text: &str| Some(text.to_owned());
        let version = Version { length: 10, tag: word("\"1\""), modified: None, id: word("1"), is_lasting: true };
        let deadline = Instant::now() + Duration::from_secs(60);
        let read = |start: u64| {
            let mut bytes = String::new();
            object.range(start..start + 1, &version, deadline).unwrap().read_to_string(&mut bytes).unwrap();
            bytes
        };
        std::thread::scope(|scope| {
            let both = [3, 7].map(|start| scope.spawn(move || read(start)));
            assert_eq!(both.map(|one| one.join().unwrap()), ["3", "7"]);
        });
    }
}
