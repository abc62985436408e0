//! One call to a tool's server: resolve, judge, connect, sign, send, read, and again where that is safe.

mod attempt;
mod route;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::{BoxFuture, Clock};
use crate::config::snapshot::{Snapshot, Tool};
use crate::exec::failure::AttemptFailure;
use crate::exec::tokens::{Token, Tokens};
use crate::exec::webhook::route::{Destination, Routes};
use crate::exec::{Executed, Executor, Job};
use crate::model::call::ToolCall;
use crate::model::id::IdempotencyKey;
use crate::model::outcome::{AttemptRecord, Failure, FailureCode, Sent, Success};
use crate::model::trace::SpanId;
use crate::net::epoch::Epoch;
use crate::net::pool::Pool;
use crate::policy::retry::{self, Asked, AttemptEnd, LEAST_ATTEMPT, Next, ToolTraits};
use crate::policy::rules;
use crate::policy::wire::{OwnHeader, Rendering};
use crate::telemetry::labels::AttemptResult;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::trace::call::{AttemptSpan, fresh_span};

/// Calls tools over HTTP.
pub struct WebhookExecutor {
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    routes: Routes,
    tokens: Tokens,
    jitter: fn() -> f64,
    epochs: watch::Receiver<Arc<Epoch>>,
}

/// What is the same for every attempt of a call.
struct Request<'a> {
    rendering: Rendering<'a>,
    body: Bytes,
    own: Vec<OwnHeader>,
    destination: Arc<Destination>,
}

/// When one attempt must be over, how long that is, and which configuration judges it.
#[derive(Clone, Copy)]
struct Window<'a> {
    deadline: Instant,
    allowed: Duration,
    epoch: &'a Epoch,
}

/// What the attempts of a call leave behind.
#[derive(Default)]
struct Course {
    attempts: Vec<AttemptRecord>,
    upstream: Duration,
    /// Why the last one failed.
    reason: Option<String>,
    /// What the last one carried.
    token: Option<Token>,
}

/// What an attempt knows of itself and adds to its record.
#[derive(Default)]
struct Trace {
    first: bool,
    /// Its span, where it is recorded.
    span: Option<SpanId>,
    http_status: Option<u16>,
    upstream: Duration,
    token: Option<Token>,
}

impl WebhookExecutor {
    /// Puts an executor together; `jitter` gives a number in [0, 1), `epochs` the configuration in force.
    pub fn new(
        pool: Arc<Pool>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        jitter: fn() -> f64,
        epochs: watch::Receiver<Arc<Epoch>>,
    ) -> Self {
        let tokens = Tokens::new(clock.clone());
        Self { pool, clock, metrics, routes: Routes::default(), tokens, jitter, epochs }
    }

    /// Takes another configuration: connections of tools that went, or that are reached in another way, are closed.
    pub fn configure(&self, epoch: &Epoch) {
        self.routes.configure(&self.pool, epoch);
    }

    async fn execute(&self, job: &Job<'_>) -> Executed {
        let sent_at_ms = self.clock.unix_ms();
        let sends_key = job.tool.profile.sends_idempotency_key();
        let idempotency_key = job.identity.as_ref().filter(|_| sends_key);
        let mut course = Course::default();
        let ended = match self.request(job, sent_at_ms, idempotency_key) {
            Ok(request) => self.attempts(job, &request, &mut course).await,
            Err(failed) => {
                course.reason = Some(failed.reason);
                Err(*failed.failure)
            }
        };
        Executed {
            ended,
            started_at_ms: course.attempts.first().map(|attempt| attempt.at_ms),
            idempotency_key: idempotency_key.filter(|_| !course.attempts.is_empty()).cloned(),
            attempts: course.attempts,
            reason: course.reason,
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
        let mut renewals = 0;
        // The first attempt belongs to the configuration that the call began with, each repeat to the one in force then.
        let mut current: Option<Arc<Epoch>> = None;
        for number in 1.. {
            let epoch = current.as_deref().unwrap_or(job.epoch);
            let attempt = self.recorded_attempt(job, request, number, epoch, course);
            let mut failed = match attempt.await {
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
            // Once, and whatever the profile wants: by its meaning a 401 did nothing, and a token may end early.
            let renews = self.renews(job, &failed, course);
            let has_room = renewals == 0 && remaining >= LEAST_ATTEMPT;
            let at_once =
                renews && has_room && job.permit.pause_left().is_zero() && job.permit.may_retry();
            let next = retry::next(
                &profile.retry,
                traits,
                failed.end,
                number - renewals,
                Asked { retry_after: failed.retry_after, pause: job.permit.pause_left() },
                remaining,
                (self.jitter)(),
            );
            let wait = match next {
                _ if at_once => {
                    renewals = 1;
                    Duration::ZERO
                }
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
            let in_force = self.epochs.borrow().clone();
            if !woken || !may_still_run(job, &in_force) {
                let retry_after = failed.retry_after;
                return Err(conclude(job, failed, retry_after));
            }
            current = Some(in_force);
            self.metrics.retry(job.metrics, failed.retry_reason());
            before = Some(failed);
        }
        unreachable!("a profile bounds its attempts")
    }

    /// Whether the tool refused a token that was kept: it is forgotten, and another may do.
    fn renews(&self, job: &Job<'_>, failed: &AttemptFailure, course: &Course) -> bool {
        let kept = course.token.as_ref().filter(|token| !token.fresh);
        let refused = failed.end == AttemptEnd::Status(401);
        let Some((source, token)) = job.tool.tokens.as_ref().zip(kept).filter(|_| refused) else {
            return false;
        };
        self.tokens.discard(source, token);
        true
    }

    /// One attempt, with its metrics, its record and the operator's line.
    async fn recorded_attempt(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        number: u32,
        epoch: &Epoch,
        course: &mut Course,
    ) -> Result<Success, AttemptFailure> {
        let began = self.clock.now();
        let first = number == 1;
        let at_ms = if first { request.rendering.sent_at_ms } else { self.clock.unix_ms() };
        let window = Window {
            deadline: job.deadline.min(began + job.tool.timeout),
            allowed: job.tool.timeout.min(job.deadline.saturating_duration_since(began)),
            epoch,
        };
        let span = job.spans.map(|_| fresh_span());
        let mut trace = Trace { first, span, ..Trace::default() };
        let ended = self.attempt(job, request, at_ms, window, &mut trace).await;
        let over = self.clock.now();
        let duration = over.saturating_duration_since(began);
        course.upstream += trace.upstream;
        course.token = trace.token;
        let failed = ended.as_ref().err();
        course.reason = failed.map(|failed| failed.reason.clone());
        if let Some(failed) = failed {
            log_failure(job, number, failed);
        }
        let error = failed.map(|failed| (failed.failure.code, failed.failure.detail));
        if let Some((spans, id)) = job.spans.zip(trace.span) {
            spans.attempt(&AttemptSpan {
                id,
                time: [began, over],
                number,
                endpoint: &job.tool.endpoint,
                http_status: trace.http_status,
                error,
            });
        }
        if let Some(result) = failed.map_or(Some(AttemptResult::Success), |failed| failed.result) {
            self.metrics.attempt(job.metrics, result, duration);
            course.attempts.push(AttemptRecord {
                at_ms,
                duration,
                http_status: trace.http_status,
                error,
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

/// Whether the configuration in force still lets the tool be called: one that was taken away meanwhile is not asked again.
fn may_still_run(job: &Job<'_>, current: &Epoch) -> bool {
    let (before, now) = (&job.epoch.snapshot, &current.snapshot);
    let may = before.generation == now.generation || still_lets(job.call, before, now);
    if !may {
        let (tool, call_id) = (&job.tool.name, job.call.id.as_str());
        tracing::warn!(%tool, call_id, "A reload took the tool away, the call is not repeated.");
    }
    may
}

/// Whether a newer configuration lets the tool be called no less than the one before, and by its way: the call has that
/// one's connections, and none of them may lead past a new proxy or through one that went.
fn still_lets(call: &ToolCall, before: &Snapshot, now: &Snapshot) -> bool {
    let agent = call.context.agent_id.as_deref();
    let effect = |tool: &Arc<Tool>| {
        rules::decide(&tool.policy, &tool.policies, agent, &call.arguments).effect
    };
    let Some((then, tool)) = before.tool(&call.tool).zip(now.tool(&call.tool)) else {
        return false;
    };
    let is_offered = now.agents.offers(agent, &call.tool);
    let is_on = is_offered && tool.enabled && tool.unavailable.is_none();
    // What a person said yes to, they said by the policy of then.
    now.proxy == before.proxy && is_on && effect(tool) <= effect(then)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::context::{Environment, SourceError};
    use crate::config::parse::parse;
    use crate::model::call::DEFAULT_WAIT;
    use crate::model::id::CallId;
    use crate::model::json::read_object;

    fn snapshot(fields: &str, around: &str) -> Snapshot {
        let environment = Environment::bare(&|_| Err(SourceError::Missing), 0);
        let text = format!(
            "{{version: 1, auth: none, {around} tools: [{{name: one, description: Looks something up by its number., \
             url: 'https://shop.example.com/', profile: plain-v1{fields}}}]}}"
        );
        parse("f", &text, &environment).unwrap_or_else(|found| panic!("{found}"))
    }

    #[test]
    fn a_repeat_needs_a_configuration_that_lets_the_tool_be_called_by_the_same_way() {
        const LET: &str = ", policy: allow, parameters: {type: object}";
        let call = |tool: &str| ToolCall {
            id: CallId::parse("call_0001").expect("an id"),
            is_named: false,
            tool: tool.to_owned(),
            arguments: read_object(r#"{"amount":600}"#).expect("an object"),
            context: Arc::default(),
            deadline: None,
            wait: DEFAULT_WAIT,
            resend: false,
            credentials: Vec::new(),
            batch: None,
        };
        let proxy = |host: &str| format!("egress: {{proxy: {{url: 'http://{host}:3128'}}}},");
        let check = |around: [&str; 2], fields: &str, expected: bool| {
            let (before, now) = (snapshot(LET, around[0]), snapshot(fields, around[1]));
            assert_eq!(still_lets(&call("one"), &before, &now), expected, "{around:?} {fields}");
        };
        check(["", "region: a,"], LET, true);
        check(["", ""], ", policy: deny", false);
        check(["", ""], ", policy: require_approval", false);
        check(["", ""], ", policy: allow, enabled: false", false);
        let (one, other) = (proxy("one.example.net"), proxy("other.example.net"));
        let rule = |over: u64| {
            let when = format!("[{{pointer: /amount, operator: greater_than, threshold: {over}}}]");
            format!("policies: [{{id: big, match: {{when: {when}}}, effect: deny}}],")
        };
        check(["", "agents: [{id: other, tools: [one]}],"], LET, false);
        check(["", &rule(500)], LET, false);
        check(["", &rule(700)], LET, true);
        check([&one, &one], LET, true);
        check(["", &one], LET, false);
        check([&one, &other], LET, false);
        check([&one, ""], LET, false);
        assert!(!still_lets(&call("two"), &snapshot(LET, ""), &snapshot(LET, "")));
    }
}
