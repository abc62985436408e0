//! One attempt: name to checked addresses, to a connection, to a signed request, to an answer.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method};
use tokio::time::{Instant, timeout_at};

use crate::exec::Job;
use crate::exec::failure::{AttemptFailure, is_redirect};
use crate::exec::tokens::Ask;
use crate::exec::webhook::{Request, Trace, WebhookExecutor, Window};
use crate::model::outcome::Success;
use crate::model::secret::Secret;
use crate::model::trace::SpanId;
use crate::net::client::{ExchangeErrorKind, Outbound, RawAnswer, ReadLimits};
use crate::net::connect::ConnectError;
use crate::net::pool::{DialTimings, Freshness, Lease};
use crate::net::resolve::Resolved;
use crate::policy::address::{Admitted, Judged, Target, WayOut};
use crate::policy::answer::{self, AnswerHead, ERROR_BODY_LIMIT};
use crate::policy::egress_code::EgressCode;
use crate::policy::retry;
use crate::policy::wire::{OwnHeader, TRACEPARENT};
use crate::telemetry::labels::Phase;
use crate::telemetry::trace::call::{CallTrace, fresh_span};

/// Where one attempt may go: asked for once and judged once.
struct Aim<'a> {
    admitted: Admitted<'a>,
    target: Target<'a>,
}

impl WebhookExecutor {
    /// One attempt. Up to the connection it stops when the caller goes away; once bytes are out it runs to its end, or
    /// to that of the gateway.
    pub(super) async fn attempt(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        at_ms: i64,
        window: Window<'_>,
        trace: &mut Trace,
    ) -> Result<Success, AttemptFailure> {
        let aim = until_gone(job, self.aim(job, at_ms, window, trace)).await?;
        until_gone(job, self.authorize(job, window, trace)).await?;
        let mut freshness = Freshness::Any;
        loop {
            let connection = self.connection(job, request, &aim, window, freshness, trace);
            let lease = until_gone(job, connection).await?;
            let outbound = self.outbound(job, request, trace)?;
            let limits = ReadLimits {
                result_limit: job.tool.result_limit,
                error_limit: ERROR_BODY_LIMIT,
                wants_body,
            };
            let was_reused = lease.reused();
            let begun = self.clock.now();
            let exchanged = tokio::select! {
                biased;
                exchanged = lease.exchange(outbound, limits, window.deadline) => Some(exchanged),
                () = job.presence.cut_off() => None,
            };
            self.spent_upstream(begun, trace);
            let exchanged = exchanged.ok_or_else(AttemptFailure::cut_off)?;
            match exchanged {
                Ok(raw) => return self.answer(job, raw, trace),
                // The kept connection had closed and nothing was written: free, once, on a new one.
                Err(error) if was_reused && matches!(error.kind, ExchangeErrorKind::Unsent) => {
                    freshness = Freshness::Fresh;
                }
                Err(error) => {
                    trace.http_status = error.status;
                    return Err(AttemptFailure::exchange(&error, window.allowed));
                }
            }
        }
    }

    /// Name to checked addresses, once for each attempt. No step can be left out: each needs what the one before made.
    /// Only where the proxy is declared to be the boundary, the name goes on as it is.
    async fn aim<'a>(
        &self,
        job: &Job<'a>,
        at_ms: i64,
        window: Window<'a>,
        trace: &mut Trace,
    ) -> Result<Aim<'a>, AttemptFailure> {
        let rules = &window.epoch.snapshot.egress;
        let tool = job.tool.name.as_str();
        // What shadow mode let pass here is told by `vet`, which repeats it: one decision, one count.
        let judged = rules.admit(tool, &job.tool.endpoint, at_ms.div_euclid(1000));
        if judged.verdict.is_err() {
            self.count(job, &judged);
        }
        let admitted = judged.verdict.map_err(|refusal| AttemptFailure::refused(&refusal))?;
        let way = rules.way_out(&admitted);
        let target = match way {
            WayOut::Delegated(name) => {
                let passed = Judged { verdict: Ok(name), shadow: judged.shadow };
                Target::Delegated(self.decided(job, passed)?)
            }
            WayOut::Direct | WayOut::Proxy => {
                let begun = self.clock.now();
                let resolved = self.lookup(job, &admitted, window, trace).await;
                self.spent_upstream(begun, trace);
                way.to(self.decided(job, rules.vet(&admitted, &resolved?.answers))?)
            }
        };
        Ok(Aim { admitted, target })
    }

    /// The token that the request carries, where its tool takes one. Without it nothing is sent.
    async fn authorize(
        &self,
        job: &Job<'_>,
        window: Window<'_>,
        trace: &mut Trace,
    ) -> Result<(), AttemptFailure> {
        let Some(source) = &job.tool.tokens else { return Ok(()) };
        let ask = Ask {
            epoch: window.epoch,
            tool: job.tool.name.as_str(),
            source,
            deadline: window.deadline,
            allowed: window.allowed,
            decided: &|judged| self.count(job, judged),
        };
        let begun = self.clock.now();
        let token = self.tokens.token(&ask).await;
        self.spent_upstream(begun, trace);
        trace.token = Some(token?);
        Ok(())
    }

    /// A kept connection that is still allowed, or a dial to exactly these addresses.
    async fn connection(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        aim: &Aim<'_>,
        window: Window<'_>,
        freshness: Freshness,
        trace: &mut Trace,
    ) -> Result<Lease, AttemptFailure> {
        let begun = self.clock.now();
        let checkout = self.pool.checkout(
            &request.destination.route,
            &aim.admitted,
            &aim.target,
            &window.epoch.snapshot.egress,
            freshness,
            window.deadline,
        );
        let lease = checkout.await;
        self.spent_upstream(begun, trace);
        if let Some((spans, attempt)) = job.spans.zip(trace.span) {
            dial_spans(spans, attempt, [begun, self.clock.now()], &lease);
        }
        let lease = lease.map_err(|error| AttemptFailure::connect(&error, window.allowed))?;
        let dial = lease.timings();
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
        job: &Job<'_>,
        admitted: &Admitted<'_>,
        window: Window<'_>,
        trace: &Trace,
    ) -> Result<Resolved, AttemptFailure> {
        let begun = self.clock.now();
        let looked_up =
            timeout_at(window.deadline, job.epoch.network.resolver.lookup(admitted)).await;
        let Ok(looked_up) = looked_up else {
            self.metrics.lookup("timeout");
            self.span(job, trace, "dns", begun, Some("timeout"));
            return Err(AttemptFailure::too_late(Phase::Dns, window.allowed));
        };
        if admitted.lookup_name().is_none() {
            // An address stands in the URL: nobody was asked.
            return looked_up.map_err(|error| AttemptFailure::resolve(&error));
        }
        let asked = match &looked_up {
            Ok(resolved) => (!resolved.cached).then_some(resolved.duration),
            Err(error) => (!error.cached).then_some(error.duration),
        };
        if let Some(duration) = asked {
            self.metrics.phase(Phase::Dns, duration);
            self.metrics.dns_lookup_duration.observe(duration.as_secs_f64());
            let error = looked_up.as_ref().err().map(|error| error.kind.as_str());
            self.span(job, trace, "dns", begun, error);
        }
        let result = match (&looked_up, asked) {
            (_, None) => "cached",
            (Ok(_), Some(_)) => "ok",
            (Err(error), Some(_)) => error.kind.as_str(),
        };
        self.metrics.lookup(result);
        looked_up.map_err(|error| AttemptFailure::resolve(&error))
    }

    /// A part of the attempt ends now.
    fn span(
        &self,
        job: &Job<'_>,
        trace: &Trace,
        name: &'static str,
        begun: Instant,
        error: Option<&str>,
    ) {
        if let Some((spans, attempt)) = job.spans.zip(trace.span) {
            spans.phase(attempt, name, [begun, self.clock.now()], error);
        }
    }

    /// What passed since then was the tool's, the network's or the name servers' time, however it ended.
    fn spent_upstream(&self, begun: Instant, trace: &mut Trace) {
        trace.upstream += self.clock.now().saturating_duration_since(begun);
    }

    /// Counts the decision of the egress rules on a host and its addresses, once, and turns a refusal into a failure.
    fn decided<T>(&self, job: &Job<'_>, judged: Judged<T>) -> Result<T, AttemptFailure> {
        self.count(job, &judged);
        judged.verdict.map_err(|refusal| AttemptFailure::refused(&refusal))
    }

    fn count<T>(&self, job: &Job<'_>, judged: &Judged<T>) {
        let ok = EgressCode::Ok.as_str();
        let (verdict, code, mode) = match (&judged.verdict, judged.shadow) {
            (Err(refusal), _) => ("refuse", refusal.code.as_str(), "enforce"),
            (Ok(_), Some(code)) => ("refuse", code.as_str(), "shadow"),
            (Ok(_), None) => ("allow", ok, "enforce"),
        };
        self.metrics.address_decision(job.metrics, verdict, code, mode);
        if mode == "shadow" {
            let tool = &job.tool.name;
            tracing::warn!(%tool, code, "Would be refused; egress is in shadow mode.");
        }
    }

    /// The request as it goes out: the same body, a fresh signature.
    fn outbound(
        &self,
        job: &Job<'_>,
        request: &Request<'_>,
        trace: &Trace,
    ) -> Result<Outbound, AttemptFailure> {
        // Contract: the first `t` is the second of `sent_at`; later ones are those of their sending.
        let at_ms = if trace.first { request.rendering.sent_at_ms } else { self.clock.unix_ms() };
        let t = at_ms.div_euclid(1000);
        let tool = job.tool;
        let token = trace.token.as_ref().map(|token| token.header.clone());
        if let Some((spans, token)) = job.spans.zip(token.as_ref()) {
            spans.hide(token.value());
        }
        let traceparent = traceparent(job, trace.span);
        let with_more: Vec<OwnHeader>;
        let own = match (&token, &traceparent) {
            (None, None) => &request.own,
            _ => {
                let own = request.own.iter();
                with_more = token.iter().chain(own).chain(&traceparent).cloned().collect();
                &with_more
            }
        };
        let headers = tool
            .profile
            .headers(&request.rendering, own, &request.body, tool.signing.at(t), t)
            .map_err(|error| AttemptFailure::internal(error.to_string()))?;
        Ok(Outbound {
            method: Method::POST,
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
            let location = raw.headers.get(LOCATION).map(HeaderValue::as_bytes);
            return Err(AttemptFailure::status(raw.status, text, retry_after, location));
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

/// What led to a new connection, or how far it came.
fn dial_spans(
    spans: &CallTrace,
    attempt: SpanId,
    [begun, over]: [Instant; 2],
    lease: &Result<Lease, ConnectError>,
) {
    let (dialled, error) = match lease {
        Ok(lease) if lease.reused() => return,
        Ok(lease) => {
            let DialTimings { connect, tls } = lease.timings();
            ((!tls.is_zero()).then_some(connect), None)
        }
        Err(error) => (error.dialled, Some(error.kind.as_str())),
    };
    let Some(connect) = dialled else {
        return spans.phase(attempt, "connect", [begun, over], error);
    };
    let connected = over.min(begun + connect);
    spans.phase(attempt, "connect", [begun, connected], None);
    spans.phase(attempt, "tls", [connected, over], error);
}

/// The header that tells a tool the trace, where it is to be told: this attempt is what it goes on from, or where nothing
/// is recorded, what the caller's own header said.
fn traceparent(job: &Job<'_>, span: Option<SpanId>) -> Option<OwnHeader> {
    if !job.tool.forward_trace {
        return None;
    }
    let context = job.call.context.trace?;
    let header = context.header(span.or(context.parent).unwrap_or_else(fresh_span));
    Some(OwnHeader::new(TRACEPARENT, Secret::new(header)).expect("digits and signs"))
}

/// Stops when the caller goes away: nothing is sent yet.
async fn until_gone<T>(
    job: &Job<'_>,
    work: impl Future<Output = Result<T, AttemptFailure>>,
) -> Result<T, AttemptFailure> {
    tokio::select! {
        biased;
        done = work => done,
        () = job.presence.gone() => Err(AttemptFailure::cancelled()),
    }
}

/// Whether a body can matter, by the answer's head: not that of a redirect, nor one of a type that cannot be shown.
fn wants_body(status: u16, headers: &HeaderMap) -> bool {
    let readable = || answer::judge_head(&answer_head(status, headers)).is_ok();
    !is_redirect(status) && (!(200..300).contains(&status) || readable())
}

/// What the answer's head says about its body.
fn answer_head(status: u16, headers: &HeaderMap) -> AnswerHead<'_> {
    // Of several codings the first that is one decides.
    let codings = || headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes);
    let coding = codings().find(|coding| !coding.eq_ignore_ascii_case(b"identity"));
    AnswerHead {
        status,
        content_type: headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes),
        content_encoding: coding.or_else(|| codings().next()),
    }
}
