//! One call to a tool's server: resolve, judge, connect, sign, send, read, and again where that is safe.

mod route;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE, RETRY_AFTER};
use tokio::time::{Instant, timeout_at};

use crate::clock::{BoxFuture, Clock};
use crate::exec::failure::{AttemptFailure, is_redirect};
use crate::exec::webhook::route::{Destination, Routes};
use crate::exec::{Executed, Executor, Job};
use crate::model::id::IdempotencyKey;
use crate::model::outcome::{AttemptRecord, Failure, FailureCode, Sent, Success};
use crate::net::client::{ExchangeErrorKind, Outbound, RawAnswer, ReadLimits};
use crate::net::pool::{Freshness, Lease, Pool};
use crate::net::resolve::{Resolve, Resolved};
use crate::policy::address::{Admitted, Judged};
use crate::policy::answer::{self, AnswerHead, ERROR_BODY_LIMIT};
use crate::policy::egress_code::EgressCode;
use crate::policy::retry::{self, Next, ToolTraits};
use crate::policy::wire::{OwnHeader, Rendering};
use crate::telemetry::labels::{AttemptResult, Phase};
use crate::telemetry::metrics::Metrics;

/// Calls tools over HTTP.
pub struct WebhookExecutor {
    resolver: Arc<dyn Resolve>,
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    routes: Routes,
    jitter: fn() -> f64,
}

/// What is the same for every attempt of a call.
struct Request<'a> {
    rendering: Rendering<'a>,
    body: Bytes,
    own: Vec<OwnHeader>,
    destination: Arc<Destination>,
}

/// When one attempt must be over, and how long that is.
#[derive(Clone, Copy)]
struct Window {
    deadline: Instant,
    allowed: Duration,
}

/// What the attempts of a call leave behind.
#[derive(Default)]
struct Course {
    attempts: Vec<AttemptRecord>,
    upstream: Duration,
}

/// What an attempt adds to its record.
#[derive(Default)]
struct Trace {
    http_status: Option<u16>,
    upstream: Duration,
}

impl WebhookExecutor {
    /// Puts an executor together; `jitter` gives a number in [0, 1).
    pub fn new(
        resolver: Arc<dyn Resolve>,
        pool: Arc<Pool>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        jitter: fn() -> f64,
    ) -> Self {
        Self { resolver, pool, clock, metrics, routes: Routes::default(), jitter }
    }

    async fn execute(&self, job: &Job<'_>) -> Executed {
        let sent_at_ms = self.clock.unix_ms();
        let sends_key = job.tool.profile.sends_idempotency_key();
        let idempotency_key = job.call.context.idempotency_key().filter(|_| sends_key);
        let mut course = Course::default();
        let ended = match self.request(job, sent_at_ms, idempotency_key.as_ref()) {
            Ok(request) => self.attempts(job, &request, &mut course).await,
            Err(failed) => Err(*failed.failure),
        };
        Executed {
            ended,
            started_at_ms: course.attempts.first().map(|attempt| attempt.at_ms),
            attempts: course.attempts,
            idempotency_key,
            upstream: course.upstream,
        }
    }

    /// The body is built once: every attempt sends these bytes.
    fn request<'a>(
        &self,
        job: &'a Job<'_>,
        sent_at_ms: i64,
        idempotency_key: Option<&'a IdempotencyKey>,
    ) -> Result<Request<'a>, AttemptFailure> {
        let tool = job.tool;
        let rendering = Rendering {
            tool: &tool.name,
            call_id: &job.call.id,
            context: &job.call.context,
            arguments: job.arguments,
            endpoint: &tool.endpoint,
            sent_at_ms,
            idempotency_key,
        };
        let own = own_headers(job)?;
        let destination = self.routes.of(&self.pool, job.snapshot, tool);
        Ok(Request { body: tool.profile.body(&rendering), rendering, own, destination })
    }

    /// Attempts until one works, or until another is not wanted, not safe, or too late.
    async fn attempts(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        course: &mut Course,
    ) -> Result<Success, Failure> {
        let traits = ToolTraits {
            idempotent: job.tool.idempotent || job.tool.profile.retry.repeat_key,
            read_only: job.tool.read_only,
        };
        let mut before: Option<AttemptFailure> = None;
        for number in 1.. {
            let mut failed = match self.recorded_attempt(job, request, number, course).await {
                Ok(success) => return Ok(success),
                Err(failed) => failed,
            };
            if failed.result.is_none() {
                // It was refused or called off before it was tried: what an earlier one did is what happened.
                return Err(conclude(job, before.unwrap_or(failed), None));
            }
            if let Some(before) = &before {
                failed.failure.sent = failed.failure.sent.max(before.failure.sent);
            }
            let remaining = job.deadline.saturating_duration_since(self.clock.now());
            let next = retry::next(
                &job.tool.profile.retry,
                traits,
                failed.end,
                number,
                failed.retry_after,
                remaining,
                (self.jitter)(),
            );
            let wait = match next {
                Next::Retry { after } => after,
                Next::Stop { retry_after } => return Err(conclude(job, failed, retry_after)),
            };
            let woken = tokio::select! {
                biased;
                () = job.presence.gone() => false,
                () = tokio::time::sleep(wait) => true,
            };
            course.upstream += wait;
            if !woken {
                let retry_after = failed.retry_after;
                return Err(conclude(job, failed, retry_after));
            }
            self.metrics.retry(job.metrics, failed.retry_reason());
            before = Some(failed);
        }
        unreachable!("a profile bounds its attempts")
    }

    /// One attempt, with its metrics, its record and the operator's line.
    async fn recorded_attempt(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        number: u32,
        course: &mut Course,
    ) -> Result<Success, AttemptFailure> {
        let began = self.clock.now();
        let at_ms = if number == 1 { request.rendering.sent_at_ms } else { self.clock.unix_ms() };
        let window = Window {
            deadline: job.deadline.min(began + job.tool.timeout),
            allowed: job.tool.timeout.min(job.deadline.saturating_duration_since(began)),
        };
        let mut trace = Trace::default();
        let ended = self.attempt(job, request, at_ms, window, &mut trace).await;
        let duration = self.clock.now().saturating_duration_since(began);
        course.upstream += trace.upstream;
        let failed = ended.as_ref().err();
        if let Some(failed) = failed {
            log_failure(job, number, failed);
        }
        if let Some(result) = failed.map_or(Some(AttemptResult::Success), |failed| failed.result) {
            self.metrics.attempt(job.metrics, result, duration);
            course.attempts.push(AttemptRecord {
                at_ms,
                duration,
                http_status: trace.http_status,
                error: failed.map(|failed| (failed.failure.code, failed.failure.detail)),
            });
        }
        ended
    }

    /// One attempt. Up to the connection it stops when the caller goes away; once bytes are out it runs to its end.
    async fn attempt(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        at_ms: i64,
        window: Window,
        trace: &mut Trace,
    ) -> Result<Success, AttemptFailure> {
        let mut freshness = Freshness::Any;
        loop {
            let lease = tokio::select! {
                biased;
                lease = self.connection(job, request, at_ms, window, freshness, trace) => lease?,
                () = job.presence.gone() => return Err(AttemptFailure::cancelled()),
            };
            let outbound = self.outbound(job, request, at_ms)?;
            let limits = ReadLimits {
                result_limit: job.tool.result_limit,
                error_limit: ERROR_BODY_LIMIT,
                wants_body,
            };
            let was_reused = lease.reused();
            match lease.exchange(outbound, limits, window.deadline).await {
                Ok(raw) => return self.answer(job, raw, trace),
                // The kept connection had closed and nothing was written: free, once, on a new one.
                Err(error) if was_reused && matches!(error.kind, ExchangeErrorKind::Unsent) => {
                    freshness = Freshness::Fresh;
                }
                Err(error) => {
                    trace.http_status = error.status;
                    trace.upstream += error.first_byte;
                    return Err(AttemptFailure::exchange(&error, window.allowed));
                }
            }
        }
    }

    /// Name to checked addresses to a connection. No step can be left out: each needs what the one before made.
    async fn connection(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        at_ms: i64,
        window: Window,
        freshness: Freshness,
        trace: &mut Trace,
    ) -> Result<Lease, AttemptFailure> {
        let rules = &job.snapshot.egress;
        let judged = rules.admit(job.tool.name.as_str(), &job.tool.endpoint, at_ms / 1000);
        let admitted = self.decided(job, judged)?;
        let resolved = self.lookup(&admitted, window, trace).await?;
        let vetted = self.decided(job, rules.vet(&admitted, &resolved.answers))?;
        self.metrics.address_decision(job.metrics, "allow", EgressCode::Ok.as_str(), "enforce");
        let checkout = self.pool.checkout(
            &request.destination.route,
            &admitted,
            &vetted,
            rules,
            freshness,
            window.deadline,
        );
        let lease =
            checkout.await.map_err(|error| AttemptFailure::connect(&error, window.allowed))?;
        let dial = lease.timings();
        trace.upstream += dial.connect + dial.tls;
        if !lease.reused() {
            self.metrics.phase(Phase::Connect, dial.connect);
            self.metrics.phase(Phase::Tls, dial.tls);
            if let Some(expiry) = lease.certificate_expiry() {
                self.metrics.certificate(job.metrics, expiry);
            }
        }
        Ok(lease)
    }

    async fn lookup(
        &self,
        admitted: &Admitted<'_>,
        window: Window,
        trace: &mut Trace,
    ) -> Result<Resolved, AttemptFailure> {
        let looked_up = timeout_at(window.deadline, self.resolver.lookup(admitted)).await;
        let Ok(looked_up) = looked_up else {
            self.metrics.lookup("timeout");
            return Err(AttemptFailure::too_late(Phase::Dns, window.allowed));
        };
        let asked = match &looked_up {
            Ok(resolved) => (!resolved.cached).then_some(resolved.duration),
            Err(error) => (!error.cached).then_some(error.duration),
        };
        if let Some(duration) = asked {
            trace.upstream += duration;
            self.metrics.phase(Phase::Dns, duration);
            self.metrics.dns_lookup_duration.observe(duration.as_secs_f64());
        }
        match looked_up {
            Ok(resolved) => {
                self.metrics.lookup(if resolved.cached { "cached" } else { "ok" });
                Ok(resolved)
            }
            Err(error) => {
                self.metrics.lookup(error.kind.as_str());
                Err(AttemptFailure::resolve(&error))
            }
        }
    }

    /// Counts and logs a decision of the egress rules, and turns a refusal into a failure.
    fn decided<T>(&self, job: &Job<'_>, judged: Judged<T>) -> Result<T, AttemptFailure> {
        if let Some(code) = judged.shadow {
            self.metrics.address_decision(job.metrics, "refuse", code.as_str(), "shadow");
            tracing::warn!(tool = %job.tool.name, code = code.as_str(), "Would be refused; egress is in shadow mode.");
        }
        judged.verdict.map_err(|refusal| {
            self.metrics.address_decision(job.metrics, "refuse", refusal.code.as_str(), "enforce");
            if refusal.code == EgressCode::ResolveFailed {
                AttemptFailure::no_address(&refusal)
            } else {
                AttemptFailure::blocked(&refusal)
            }
        })
    }

    /// The request as it goes out: the same body, a fresh signature.
    fn outbound(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        at_ms: i64,
    ) -> Result<Outbound, AttemptFailure> {
        let t = at_ms.div_euclid(1000);
        let tool = job.tool;
        let headers = tool
            .profile
            .headers(&request.rendering, &request.own, &request.body, tool.signing.at(t), t)
            .map_err(|error| AttemptFailure::internal(error.to_string()))?;
        Ok(Outbound {
            path_and_query: request.destination.target.clone(),
            headers: headers.0,
            body: request.body.clone(),
        })
    }

    fn answer(
        &self,
        job: &Job<'_>,
        raw: RawAnswer,
        trace: &mut Trace,
    ) -> Result<Success, AttemptFailure> {
        trace.http_status = Some(raw.status);
        trace.upstream += raw.first_byte + raw.body_time;
        self.metrics.phase(Phase::FirstByte, raw.first_byte);
        self.metrics.phase(Phase::Body, raw.body_time);
        self.metrics.response(job.metrics, raw.body.len());
        let now = self.clock.unix_ms().div_euclid(1000);
        self.note_skew(&raw.headers, now);
        let head = answer_head(raw.status, &raw.headers);
        if !(200..300).contains(&raw.status) {
            let text = answer::error_text(&head, &raw.body, job.tool.profile.error_body);
            let retry_after = raw
                .headers
                .get(RETRY_AFTER)
                .and_then(|value| retry::parse_retry_after(value.as_bytes(), now));
            return Err(AttemptFailure::status(raw.status, text, retry_after));
        }
        let media = answer::judge_head(&head)
            .map_err(|error| AttemptFailure::answer(&error, raw.status, false))?;
        answer::read(media, &raw.body, raw.whole, raw.content_length, job.tool.result_limit)
            .map_err(|error| AttemptFailure::answer(&error, raw.status, raw.whole))
    }

    /// A tool whose clock is off refuses fresh signatures as stale: the operator sees it here first.
    fn note_skew(&self, headers: &HeaderMap, now: i64) {
        let date = headers.get(DATE).and_then(|value| value.to_str().ok());
        let Some(Ok(date)) = date.map(httpdate::parse_http_date) else { return };
        let Ok(date) = date.duration_since(std::time::UNIX_EPOCH) else { return };
        let date = i64::try_from(date.as_secs()).unwrap_or(i64::MAX);
        self.metrics.clock_skew.set(date.saturating_sub(now) as f64);
    }
}

impl Executor for WebhookExecutor {
    fn run<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Executed> {
        Box::pin(self.execute(job))
    }
}

/// Whether the body can matter: not that of a redirect, nor one that its head rules out.
fn wants_body(status: u16, headers: &HeaderMap) -> bool {
    let readable = || answer::judge_head(&answer_head(status, headers)).is_ok();
    !is_redirect(status) && (!(200..300).contains(&status) || readable())
}

/// What the answer's head says about its body.
fn answer_head(status: u16, headers: &HeaderMap) -> AnswerHead<'_> {
    AnswerHead {
        status,
        content_type: headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes),
        content_encoding: headers.get(CONTENT_ENCODING).map(http::HeaderValue::as_bytes),
    }
}

/// The tool's own headers, with a person's credentials in place of configured values.
fn own_headers(job: &Job<'_>) -> Result<Vec<OwnHeader>, AttemptFailure> {
    let brought = |name: &str| {
        job.call.credentials.iter().any(|(credential, _)| credential.eq_ignore_ascii_case(name))
    };
    let configured = job.tool.headers.iter().filter(|own| !brought(own.spelling()));
    let mut own: Vec<OwnHeader> = configured.cloned().collect();
    for (name, value) in &job.call.credentials {
        let header = job.tool.profile.check_own_header(name, value.clone());
        own.push(header.map_err(|error| AttemptFailure::internal(error.to_string()))?);
    }
    Ok(own)
}

/// The failure of the whole call: the last attempt's, with what the call as a whole knows.
fn conclude(job: &Job<'_>, failed: AttemptFailure, retry_after: Option<Duration>) -> Failure {
    let traits = ToolTraits {
        idempotent: job.tool.idempotent || job.tool.profile.sends_idempotency_key(),
        read_only: job.tool.read_only,
    };
    // Contract, section 3: nothing was sent or the tool is idempotent, and the failure is not permanent.
    let safe = failed.failure.sent == Sent::NotSent || traits.idempotent;
    let retryable = match failed.failure.code {
        FailureCode::Internal => false,
        FailureCode::Cancelled => true,
        _ => safe && retry::retryable(failed.end, traits),
    };
    Failure { retryable, retry_after, ..*failed.failure }
}

/// The operator's line: the library's words and the address are here and nowhere else.
fn log_failure(job: &Job<'_>, attempt: u32, failed: &AttemptFailure) {
    let sent = failed.failure.sent != Sent::NotSent;
    tracing::warn!(
        tool = %job.tool.name,
        call_id = job.call.id.as_str(),
        attempt,
        code = failed.failure.code.as_str(),
        detail = failed.failure.detail,
        sent,
        reason = failed.reason,
        "Attempt failed."
    );
}
