//! Tokens of OAuth2 client credentials: kept until shortly before they end, fetched once for all who wait.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Method};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::exec::failure::AttemptFailure;
use crate::model::outcome::FailureCode;
use crate::net::client::RawAnswer;
use crate::net::epoch::Epoch;
use crate::net::fetch::{Fetch, FetchError, fetch_judged};
use crate::net::header_case::HeaderCase;
use crate::policy::address::Judged;
use crate::policy::oauth2::{GrantError, SPELLING, TokenSource, read_grant};
use crate::policy::retry;
use crate::policy::wire::OwnHeader;
use crate::telemetry::labels::Phase;

/// Bound on a token endpoint's answer.
const ANSWER_LIMIT: usize = 64 * 1024;

/// How long a refused client is not asked for again.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// A token that may be sent.
#[derive(Debug, Clone)]
pub struct Token {
    /// The `Authorization` header.
    pub header: OwnHeader,
    /// Whether it was fetched for this attempt, or for one that waited beside it.
    pub fresh: bool,
    serial: u64,
}

/// Who asks for a token, and what there is to ask with.
pub struct Ask<'a> {
    /// The configuration in force for the attempt.
    pub epoch: &'a Epoch,
    /// The tool's name: its exceptions hold for its token endpoint, too.
    pub tool: &'a str,
    /// Where its tokens come from.
    pub source: &'a TokenSource,
    /// When the attempt must be over.
    pub deadline: Instant,
    /// How long it had.
    pub allowed: Duration,
    /// Hears the decision of the egress rules on the endpoint.
    pub decided: &'a (dyn Fn(&Judged<()>) + Sync),
}

/// Whoever needs tokens shares one of these.
pub struct Tokens {
    clock: Arc<dyn Clock>,
    case: HeaderCase,
    book: Mutex<Book>,
}

/// By the fingerprint of a source, so that a changed secret is another source.
#[derive(Default)]
struct Book {
    known: HashMap<[u8; 32], Known>,
    flights: HashMap<[u8; 32], Arc<OnceCell<Outcome>>>,
    serial: u64,
}

type Outcome = Result<Token, AttemptFailure>;

struct Known {
    outcome: Outcome,
    until: Instant,
}

/// A failure that is one caller's own: whoever waits beside it asks again.
struct Own(AttemptFailure);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let case = HeaderCase::capture(&SPELLING).expect("names that HTTP knows");
        Self { clock, case, book: Mutex::default() }
    }

    /// A token that is good for a while yet, or why there is none.
    pub async fn token(&self, ask: &Ask<'_>) -> Result<Token, AttemptFailure> {
        let key = ask.source.fingerprint();
        let flight = {
            let mut book = self.book();
            if let Some(known) = book.known.get(&key)
                && self.clock.now() < known.until
            {
                return known.outcome.clone();
            }
            Arc::clone(book.flights.entry(key).or_default())
        };
        // A caller that goes away, or whose own time is over, leaves the question to the next one who waits.
        // Rare and large: in a box of its own, so that a token that is kept does not carry it along.
        let outcome = flight.get_or_try_init(|| Box::pin(self.fetch(ask)));
        match timeout_at(ask.deadline, outcome).await {
            Ok(Ok(outcome)) => outcome.clone(),
            Ok(Err(Own(failure))) => Err(failure),
            Err(_) => {
                let failure = AttemptFailure::too_late(Phase::FirstByte, ask.allowed);
                Err(failure.about(&place(ask.source)))
            }
        }
    }

    /// Forgets exactly this token: one that came after it stays.
    pub fn discard(&self, source: &TokenSource, token: &Token) {
        if let Entry::Occupied(known) = self.book().known.entry(source.fingerprint())
            && known.get().outcome.as_ref().is_ok_and(|kept| kept.serial == token.serial)
        {
            known.remove();
        }
    }

    async fn fetch(&self, ask: &Ask<'_>) -> Result<Outcome, Own> {
        let source = ask.source;
        let fetch = Fetch {
            asker: ask.tool,
            endpoint: &source.endpoint,
            method: Method::POST,
            headers: source.headers(),
            case: &self.case,
            body: source.body(),
            limit: ANSWER_LIMIT,
            deadline: ask.deadline,
        };
        let fetched = fetch_judged(ask.epoch, fetch, &*self.clock, ask.decided).await;
        let about = |failure: AttemptFailure| failure.about(&place(source));
        let (outcome, keep_for) = match fetched {
            Ok(answer) => self.read(&answer),
            Err(error) => match failure(&error, ask.allowed) {
                (failure, true) => return Err(Own(about(failure))),
                (failure, false) => (Err(failure), Duration::ZERO),
            },
        };
        Ok(self.keep(source.fingerprint(), outcome.map_err(about), keep_for))
    }

    /// What an answer comes to, and for how long.
    fn read(&self, answer: &RawAnswer) -> (Outcome, Duration) {
        match read_grant(answer.status, &answer.body, answer.whole) {
            Ok(grant) => {
                let token = Token { header: grant.header, fresh: true, serial: 0 };
                (Ok(token), grant.usable_for)
            }
            Err(error @ GrantError::Refused { .. }) => {
                (Err(AttemptFailure::no_grant(error.to_string())), REFUSED_FOR)
            }
            Err(error @ (GrantError::Status { .. } | GrantError::Unusable { .. })) => {
                let wait = self.retry_after(&answer.headers);
                (Err(AttemptFailure::no_token(error.to_string(), wait)), Duration::ZERO)
            }
        }
    }

    fn retry_after(&self, headers: &HeaderMap) -> Option<Duration> {
        let now = self.clock.unix_ms().div_euclid(1000);
        headers.get(RETRY_AFTER).and_then(|value| retry::parse_retry_after(value.as_bytes(), now))
    }

    /// Ends the flight, and keeps what is worth it.
    fn keep(&self, key: [u8; 32], outcome: Outcome, keep_for: Duration) -> Outcome {
        let now = self.clock.now();
        let mut book = self.book();
        book.flights.remove(&key);
        book.flights.retain(|_, flight| Arc::strong_count(flight) > 1);
        // Sources of older configurations go when their tokens end.
        book.known.retain(|_, known| now < known.until);
        book.serial += 1;
        let serial = book.serial;
        let outcome = outcome.map(|token| Token { serial, ..token });
        if !keep_for.is_zero() {
            let kept = outcome.clone().map(|token| Token { fresh: false, ..token });
            book.known.insert(key, Known { outcome: kept, until: now + keep_for });
        }
        outcome
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a fetch without an answer comes to, and whether it is the asker's own: its rules and its deadline are.
fn failure(error: &FetchError, allowed: Duration) -> (AttemptFailure, bool) {
    match error {
        FetchError::Connect(error) => {
            let failure = AttemptFailure::connect(error, allowed);
            let own = failure.failure.code == FailureCode::Timeout;
            (failure, own)
        }
        FetchError::Exchange(error) => {
            let failure = AttemptFailure::token_exchange(error, allowed);
            let own = failure.failure.code == FailureCode::Timeout;
            (failure, own)
        }
        FetchError::Refused(refusal) => (AttemptFailure::refused(refusal), true),
        FetchError::Resolve(error) => (AttemptFailure::resolve(error), false),
        FetchError::TooLate => (AttemptFailure::too_late(Phase::Dns, allowed), true),
    }
}

fn place(source: &TokenSource) -> String {
    format!("token endpoint {}", source.place())
}
