//! Asking over HTTP: under conditions, and wherever redirects lead.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::AsSendBody;
use ureq::http::{HeaderName, Method, Request, StatusCode, header};

use super::agent::{CONNECT, LEADS_HERE, SILENCE, agent, fault, is_near, is_private_host};
use super::answer::{Answer, again, text};
use crate::backend::Fault;
use crate::url::Url;

/// As browsers have it.
const MOST_REDIRECTS: usize = 10;

/// How often what a refusal has taught is tried.
const MOST_LESSONS: usize = 3;

/// How what lies behind a URL is asked for over HTTP: where, and who asks.
pub(crate) trait Access: fmt::Debug + Send + Sync {
    /// Where it is.
    fn url(&self) -> Url;

    /// Headers that say who asks, for a request at `at`. That may be another host, to which a redirect has led: nothing
    /// is for it that was meant for the first one.
    fn login(&self, method: &Method, at: &Url) -> Result<Vec<(HeaderName, String)>, Fault>;

    /// What an answer means that is neither bytes nor a redirect to follow.
    fn refused(&self, answer: &mut Answer, deadline: Instant) -> Refusal {
        let _ = (answer, deadline);
        Refusal::AsItSays
    }

    /// What the server calls the version that an answer is of.
    fn tag(&self, answer: &Answer) -> Option<String> {
        text(answer, &header::ETAG)
    }

    /// True if the server compares that with what a request says (`If-Match`).
    fn compares_tags(&self) -> bool {
        true
    }

    /// The name of the version that an answer is of, if it can be asked for by that.
    fn id(&self, answer: &Answer) -> Option<String> {
        let _ = answer;
        None
    }

    /// The name of the version that is asked for now; `None` for the newest one.
    fn version(&self) -> Option<String> {
        None
    }

    /// Asks for the version of this name from now on, whichever is the newest. False if there is no point in asking
    /// again, by who has `asked` for that version: it was this one already, or there are no such names.
    fn of_version(&self, id: &str, asked: Option<&str>) -> bool {
        let _ = (id, asked);
        false
    }
}

fn run<B: AsSendBody>(
    is_public: bool,
    request: Request<B>,
    left: Duration,
    question: &Question<'_>,
) -> Result<Answer, ureq::Error> {
    let agent = agent(is_public);
    let request = agent
        .configure_request(request)
        .timeout_resolve(Some(left.min(CONNECT)))
        .timeout_connect(Some(left.min(CONNECT)))
        .timeout_recv_response(Some(left.min(SILENCE)))
        .timeout_global(question.is_for_body.then_some(left))
        .allow_non_standard_methods(true)
        .build();
    agent.run(request)
}

/// See [`Access::refused`].
#[derive(Debug)]
pub(crate) enum Refusal {
    /// What the status says.
    AsItSays,
    /// It has said how to ask.
    AskAgain,
    /// This.
    Means(Fault),
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Question<'a> {
    pub(crate) method: Method,
    pub(crate) headers: &'a [(HeaderName, &'a str)],
    /// What is sent along.
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) deadline: Instant,
    /// All of the answer has to be read by then.
    pub(crate) is_for_body: bool,
}

/// Asks for one thing, again and again.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) access: Box<dyn Access>,
    /// Where redirects have led.
    target: Mutex<Option<Url>>,
}

impl Asker {
    pub(crate) fn new(access: Box<dyn Access>) -> Self {
        Self { access, target: Mutex::default() }
    }

    fn set_target(&self, target: Option<Url>) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// Where the last answer came from.
    pub(crate) fn place(&self) -> Url {
        let target = self.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        target.unwrap_or_else(|| self.access.url())
    }

    /// Asks, and follows redirects.
    pub(crate) fn ask(&self, question: &Question<'_>) -> Result<Answer, Fault> {
        let known = self.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known {
            let answer = self.ask_at(&known, question);
            // Such a target may be good for a while only.
            let is_over =
                |status: StatusCode| matches!(status.as_u16(), 400 | 401 | 403 | 404 | 410) || status.is_redirection();
            match answer {
                Ok(answer) if !is_over(answer.status()) || answer.status() == StatusCode::NOT_MODIFIED => {
                    return Ok(answer);
                }
                Err(fault @ Fault::Again(..)) => {
                    self.set_target(None);
                    return Err(fault);
                }
                _ => self.set_target(None),
            }
        }
        let (mut first, mut lessons) = (self.access.url(), 0);
        let (mut at, mut redirects) = (first.clone(), 0);
        while redirects <= MOST_REDIRECTS {
            let mut answer = self.ask_at(&at, question)?;
            let status = answer.status();
            if at == first && !status.is_success() && status != StatusCode::NOT_MODIFIED {
                match self.access.refused(&mut answer, question.deadline) {
                    Refusal::AskAgain if lessons < MOST_LESSONS => {
                        lessons += 1;
                        first = self.access.url();
                        at = first.clone();
                        continue;
                    }
                    Refusal::Means(fault) => return Err(fault),
                    _ => {}
                }
            }
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                if status.is_success() && at != first {
                    self.set_target(Some(at));
                }
                return Ok(answer);
            }
            let location = text(&answer, &header::LOCATION);
            let location = location.ok_or_else(|| Fault::Final("a redirect of the server leads nowhere".to_owned()))?;
            let to = at.redirected(&location);
            let to = to.map_err(|error| Fault::Final(format!("a redirect of the server is of no use: {error}")))?;
            // It may lead away and back.
            let to = to.with_login_of(&first);
            if at.scheme() == "https" && to.scheme() != "https" || !["http", "https"].contains(&to.scheme()) {
                let what = format!("the server redirects to {}://, which is not followed", to.scheme());
                return Err(Fault::Final(what));
            }
            at = to;
            redirects += 1;
        }
        Err(Fault::Final(format!("the server redirects more than {MOST_REDIRECTS} times")))
    }

    fn ask_at(&self, at: &Url, question: &Question<'_>) -> Result<Answer, Fault> {
        let left = question.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(again("the server does not answer in time"));
        }
        // Where a redirect leads, somebody else has said.
        let first = self.access.url();
        let is_public = *at != first && !is_near(first.host());
        if is_public && is_private_host(at.host()) && !is_private_host(first.host()) {
            return Err(Fault::Final(LEADS_HERE.to_owned()));
        }
        let mut request = Request::builder().method(question.method.clone()).uri(at.request());
        for (name, value) in question.headers {
            request = request.header(name, *value);
        }
        for (name, value) in self.access.login(&question.method, at)? {
            request = request.header(name, value);
        }
        let unusable = |_| Fault::Final("it is no URL that can be asked for".to_owned());
        let answer = match question.body {
            Some(body) => run(is_public, request.body(body).map_err(unusable)?, left, question),
            None => run(is_public, request.body(()).map_err(unusable)?, left, question),
        };
        answer.map_err(|error| fault(&error))
    }
}
