//! One call to a tool's server: resolve, judge, connect, sign, send, read, and again where that is safe.

mod attempt;
mod route;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::clock::{BoxFuture, Clock};
use crate::exec::failure::AttemptFailure;
use crate::exec::webhook::route::{Destination, Routes};
use crate::exec::{Executed, Executor, Job};
use crate::model::id::IdempotencyKey;
use crate::model::outcome::{AttemptRecord, Failure, FailureCode, Sent, Success};
use crate::net::pool::Pool;
use crate::policy::retry::{self, Asked, Next, ToolTraits};
use crate::policy::wire::{OwnHeader, Rendering};
use crate::telemetry::labels::AttemptResult;
use crate::telemetry::metrics::Metrics;

/// Calls tools over HTTP.
pub struct WebhookExecutor {
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

/// What an attempt knows of itself and adds to its record.
#[derive(Default)]
struct Trace {
    first: bool,
    http_status: Option<u16>,
    upstream: Duration,
}

impl WebhookExecutor {
    /// Puts an executor together; `jitter` gives a number in [0, 1).
    pub fn new(
        pool: Arc<Pool>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        jitter: fn() -> f64,
    ) -> Self {
        Self { pool, clock, metrics, routes: Routes::default(), jitter }
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
            idempotency_key: idempotency_key.filter(|_| !course.attempts.is_empty()),
            attempts: course.attempts,
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
        let destination = self.routes.of(&self.pool, job.epoch, tool);
        Ok(Request { body: tool.profile.body(&rendering), rendering, own, destination })
    }

    /// Attempts until one works, or until another is not wanted, not safe, or too late.
    async fn attempts(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        course: &mut Course,
    ) -> Result<Success, Failure> {
        // A repeat within this call carries the same key, or the same id, wherever the profile sends one.
        let profile = &job.tool.profile;
        let same_key = profile.sends_idempotency_key() || profile.retry.repeat_key;
        let traits = ToolTraits {
            idempotent: job.tool.idempotent || same_key,
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
                let what_happened = before.unwrap_or(failed);
                let retry_after = what_happened.retry_after;
                return Err(conclude(job, what_happened, retry_after));
            }
            if let Some(before) = &before {
                failed.failure.sent = failed.failure.sent.max(before.failure.sent);
            }
            let remaining = job.deadline.saturating_duration_since(self.clock.now());
            if let Some(asked) = failed.pause() {
                job.permit.pause(asked);
            }
            let next = retry::next(
                &profile.retry,
                traits,
                failed.end,
                number,
                Asked { retry_after: failed.retry_after, pause: job.permit.pause_left() },
                remaining,
                (self.jitter)(),
            );
            let wait = match next {
                Next::Retry { after } if job.permit.may_retry() => after,
                Next::Retry { .. } => {
                    let retry_after = failed.retry_after;
                    return Err(conclude(job, failed, retry_after));
                }
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
        let first = number == 1;
        let at_ms = if first { request.rendering.sent_at_ms } else { self.clock.unix_ms() };
        let window = Window {
            deadline: job.deadline.min(began + job.tool.timeout),
            allowed: job.tool.timeout.min(job.deadline.saturating_duration_since(began)),
        };
        let mut trace = Trace { first, ..Trace::default() };
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
}

impl Executor for WebhookExecutor {
    fn run<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Executed> {
        Box::pin(self.execute(job))
    }
}

/// The tool's own headers, then a person's credentials; the configuration keeps their names apart.
fn own_headers(job: &Job<'_>) -> Result<Vec<OwnHeader>, AttemptFailure> {
    let mut own = job.tool.headers.clone();
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
        FailureCode::Cancelled | FailureCode::Overloaded => safe,
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
