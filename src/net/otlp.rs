//! Exports spans to the operator's collector: OTLP, as protobuf over HTTP, in batches and beside every call.
//!
//! A collector that is slow or gone costs spans and nothing else: they wait in a bounded queue, and are counted when they
//! are given up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::tracing::Tracing;
use crate::net::client::{RawAnswer, ReadLimits};
use crate::net::epoch::Epoch;
use crate::net::own_server::{self, Letter, OwnServerError};
use crate::policy::retry::parse_retry_after;
use crate::policy::truncate;
use crate::policy::wire::OwnHeader;
use crate::telemetry::spans;
use crate::telemetry::trace::{Batch, BatchLimits, Spool};

/// Bound on one export, from the lookup to the answer.
const EXPORT_TIME: Duration = Duration::from_secs(10);
/// What is exported together.
const TOGETHER: BatchLimits =
    BatchLimits { spans: 512, bytes: 1 << 20, linger: Duration::from_secs(1) };
/// How often a batch is sent before it is given up ...
const MOST_TRIES: u32 = 3;
/// ... and how long it waits before the second try; before the third, twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a collector may ask to be left alone.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// An answer says no more than how many spans were not taken, and why.
const ANSWER_LIMIT: usize = 4096;
/// What of these words is logged.
const WORDS: usize = 200;
/// In the order in which they are sent; the collector's own headers stand before the last.
const SPELLING: [&str; 3] = ["Host", "Content-Type", "User-Agent"];

/// Why spans were not taken, for the operator.
#[derive(Debug, thiserror::Error)]
enum Untaken {
    #[error(transparent)]
    Server(#[from] OwnServerError),
    #[error("it was answered with status {status}")]
    Status { status: u16, retry_after: Option<Duration> },
}

impl Untaken {
    /// How long to wait until the same may be tried again, where that may help (OTLP, "failures").
    fn pause(&self, tries: u32) -> Option<Duration> {
        let own = FIRST_PAUSE.saturating_mul(1 << tries.min(8));
        match self {
            Self::Server(_) => Some(own),
            Self::Status { status: 429 | 502..=504, retry_after } => {
                Some(retry_after.unwrap_or(own).min(LONGEST_PAUSE))
            }
            Self::Status { .. } => None,
        }
    }
}

/// Exports what is recorded.
pub struct SpanExporter {
    spool: Spool,
    epochs: watch::Receiver<Arc<Epoch>>,
    clock: Arc<dyn Clock>,
    /// Whether the last export went well: a collector that is gone is told of once.
    works: bool,
}

impl SpanExporter {
    /// For what this spool holds, by the configuration in force.
    pub fn new(spool: Spool, epochs: watch::Receiver<Arc<Epoch>>, clock: Arc<dyn Clock>) -> Self {
        Self { spool, epochs, clock, works: true }
    }

    /// Exports until it is dropped, or until nothing can be recorded any more.
    pub async fn run(mut self) {
        while let Some(batch) = self.spool.next(TOGETHER).await {
            if batch.count() > 0 {
                self.export(batch).await;
            }
        }
    }

    /// A batch that is given up has failed.
    async fn export(&mut self, batch: Batch) {
        for tries in 0.. {
            let epoch = self.epochs.borrow().clone();
            // Another configuration may not want them any more.
            let Some(settings) = &epoch.snapshot.tracing else { return };
            match self.send(&epoch, settings, &batch).await {
                Ok(answer) => return self.taken(batch, &answer),
                Err(error) => {
                    let pause = error.pause(tries);
                    self.failed(&error);
                    // Who waits for them wants to end.
                    match pause.filter(|_| tries + 1 < MOST_TRIES && !batch.is_awaited()) {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None => return,
                    }
                }
            }
        }
    }

    async fn send(
        &self,
        epoch: &Epoch,
        settings: &Tracing,
        batch: &Batch,
    ) -> Result<RawAnswer, Untaken> {
        let body = Bytes::from(spans::request(&settings.resource, batch.spans()));
        let own = settings.headers.iter().map(OwnHeader::spelling);
        let spelling: Vec<&str> =
            SPELLING.into_iter().chain(own).chain(["Content-Length"]).collect();
        let letter = Letter {
            headers: headers(settings, body.len()),
            spelling: &spelling,
            body,
            limits: ReadLimits {
                result_limit: ANSWER_LIMIT,
                error_limit: ANSWER_LIMIT,
                wants_body: |status, _| status == 200,
            },
        };
        let deadline = self.clock.now() + EXPORT_TIME;
        let clock = &*self.clock;
        let answer = own_server::post(epoch, &settings.endpoint, letter, deadline, clock).await?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        let asked = answer.headers.get(RETRY_AFTER);
        let now = clock.unix_ms().div_euclid(1000);
        let retry_after = asked.and_then(|value| parse_retry_after(value.as_bytes(), now));
        Err(Untaken::Status { status: answer.status, retry_after })
    }

    fn taken(&mut self, batch: Batch, answer: &RawAnswer) {
        if !self.works {
            tracing::info!("Spans are exported again.");
        }
        self.works = true;
        let (refused, words) = spans::refused(&answer.body);
        let refused = usize::try_from(refused).unwrap_or(usize::MAX).min(batch.count());
        if refused > 0 || !words.is_empty() {
            let reason = truncate::prefix(&words, WORDS);
            tracing::warn!(refused, reason, "The collector did not take every span.");
        }
        batch.settle(refused);
    }

    fn failed(&mut self, error: &Untaken) {
        if self.works {
            tracing::warn!(%error, "Spans cannot be exported.");
        }
        self.works = false;
    }
}

fn headers(settings: &Tracing, length: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let host = HeaderValue::from_str(settings.endpoint.authority());
    headers.insert(HOST, host.expect("a host is visible ASCII"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    let agent = concat!("Sortie/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    for own in &settings.headers {
        headers.append(own.name(), own.value().clone());
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    headers
}
