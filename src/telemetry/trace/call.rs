//! One call that is recorded: `execute_tool`, in it its attempts, and in these what led to a connection.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde_json::Value as Json;
use tokio::time::Instant;

use crate::config::snapshot::Tool;
use crate::config::storage::Capture;
use crate::config::tracing::Tracing;
use crate::model::call::CallContext;
use crate::model::outcome::{CallOutcome, FailureCode, Success, ToolResult};
use crate::model::secret::Secret;
use crate::model::trace::{SpanId, TraceContext};
use crate::policy::endpoint::Endpoint;
use crate::policy::truncate;
use crate::policy::wire::OwnHeader;
use crate::telemetry::spans::{Attribute, Kind, Span, Value};

/// Bound on the arguments of a call, and on its answer, as a span has them.
const CAPTURED_BYTES: usize = 16 << 10;
/// A header's value of fewer bytes is no secret, and taking it out would spoil every text.
const SHORTEST_SECRET: usize = 6;
/// What stands where a secret was.
const REMOVED: &str = "***";

/// A call that is recorded.
pub struct CallTrace {
    context: TraceContext,
    id: SpanId,
    began: Instant,
    began_unix: Duration,
    capture: Capture,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    bytes: Vec<u8>,
    count: usize,
    /// What must not be repeated: what the request carried.
    secrets: Vec<HeaderValue>,
}

/// What a call was asked with.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Where it comes from.
    pub context: &'a CallContext,
    /// Its arguments as compact JSON, where they are known.
    pub arguments: Option<&'a [u8]>,
    /// The person's own values that it brought along, by header.
    pub credentials: &'a [(String, Secret)],
}

/// An attempt that has ended.
#[derive(Debug)]
pub struct AttemptSpan<'a> {
    /// Its id.
    pub id: SpanId,
    /// When it began and when it ended.
    pub time: [Instant; 2],
    /// Which one it is, from 1.
    pub number: u32,
    /// Where it went.
    pub endpoint: &'a Endpoint,
    /// The answer's status, where there was one.
    pub http_status: Option<u16>,
    /// Why it failed.
    pub error: Option<(FailureCode, Option<&'static str>)>,
}

impl CallTrace {
    pub(super) fn new(
        settings: &Tracing,
        context: TraceContext,
        began: Instant,
        began_unix_ms: i64,
    ) -> Self {
        Self {
            context,
            id: fresh_span(),
            began,
            began_unix: Duration::from_millis(u64::try_from(began_unix_ms).unwrap_or(0)),
            capture: settings.capture,
            recorded: Mutex::default(),
        }
    }

    /// The `traceparent` by which whoever gets it goes on from this span.
    pub fn header(&self, span: SpanId) -> String {
        self.context.header(span)
    }

    /// A value that the request carries: where the answer repeats it, it is taken out.
    pub fn hide(&self, value: &HeaderValue) {
        if self.capture == Capture::Full {
            self.lock().secrets.push(value.clone());
        }
    }

    /// A part of an attempt, and why it failed.
    pub fn phase(
        &self,
        attempt: SpanId,
        name: &'static str,
        time: [Instant; 2],
        error: Option<&str>,
    ) {
        self.write(&Span {
            context: self.context,
            id: fresh_span(),
            inside: Some(attempt),
            name,
            kind: Kind::Internal,
            nanoseconds: self.nanoseconds(time),
            attributes: &[],
            error,
        });
    }

    /// One attempt. Neither path nor query are told: they may hold a key.
    pub fn attempt(&self, attempt: &AttemptSpan<'_>) {
        let host = attempt.endpoint.host().to_string();
        let repeats = attempt.number.saturating_sub(1);
        let error = attempt.error.map(|(code, detail)| error_text(code, detail));
        let attributes: [Attribute<'_>; 6] = [
            ("http.request.method", Some(Value::Text("POST"))),
            ("http.request.resend_count", (repeats > 0).then_some(Value::Number(repeats.into()))),
            (
                "http.response.status_code",
                attempt.http_status.map(|status| Value::Number(status.into())),
            ),
            ("server.address", Some(Value::Text(&host))),
            ("server.port", Some(Value::Number(attempt.endpoint.port().into()))),
            ("url.scheme", Some(Value::Text(attempt.endpoint.scheme().as_str()))),
        ];
        self.write(&Span {
            context: self.context,
            id: attempt.id,
            inside: Some(self.id),
            name: "attempt",
            kind: Kind::Client,
            nanoseconds: self.nanoseconds(attempt.time),
            attributes: &attributes,
            error: error.as_deref(),
        });
    }

    /// The call as a whole has ended: all of its spans, and how many there are.
    pub(super) fn finish(
        self,
        asked: &Asked<'_>,
        tool: Option<&Tool>,
        outcome: &CallOutcome,
        now: Instant,
    ) -> (Vec<u8>, usize) {
        let context = asked.context;
        let failure = outcome.ended.as_ref().err();
        let error = failure.map(|failure| error_text(failure.code, failure.detail));
        let [arguments, result] = self.captured(asked, tool, outcome);
        let text = |text: Option<&'_ str>| text.map(str::to_owned);
        let own_id = outcome.id.as_str();
        let texts: [(&'static str, Option<String>); 13] = [
            ("gen_ai.operation.name", text(Some("execute_tool"))),
            ("gen_ai.tool.name", Some(outcome.tool.clone())),
            ("gen_ai.tool.type", text(tool.map(|_| "function"))),
            ("gen_ai.tool.description", text(tool.map(|tool| tool.description.as_str()))),
            ("gen_ai.tool.call.id", text(Some(context.model_call_id.as_deref().unwrap_or(own_id)))),
            ("gen_ai.tool.call.arguments", arguments),
            ("gen_ai.tool.call.result", result),
            ("gen_ai.agent.id", context.agent_id.clone()),
            ("gen_ai.conversation.id", context.session_id.clone()),
            ("sortie.call.id", text(Some(own_id))),
            ("sortie.call.status", text(Some(outcome.status().as_str()))),
            ("sortie.call.code", text(Some(outcome.code()))),
            ("sortie.call.outcome", text(failure.map(|failure| failure.sent.as_str()))),
        ];
        let texts = texts.iter().map(|(name, value)| (*name, value.as_deref().map(Value::Text)));
        let attempts = u64::try_from(outcome.attempts.len()).unwrap_or(u64::MAX);
        let cut = outcome.ended.as_ref().is_ok_and(|success| success.cut_note.is_some());
        let more = [
            ("sortie.call.attempts", Some(Value::Number(attempts))),
            ("sortie.call.truncated", Some(Value::Truth(cut))),
        ];
        let attributes: Vec<Attribute<'_>> = texts.chain(more).collect();
        // Only a configured name makes a span's name, as it makes a label.
        let name = match tool {
            Some(tool) => format!("execute_tool {}", tool.name),
            None => "execute_tool".to_owned(),
        };
        self.write(&Span {
            context: self.context,
            id: self.id,
            inside: None,
            name: &name,
            kind: Kind::Internal,
            nanoseconds: self.nanoseconds([self.began, now]),
            attributes: &attributes,
            error: error.as_deref(),
        });
        let recorded = self.recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
        (recorded.bytes, recorded.count)
    }

    /// Arguments and answer, where both the collector and the tool's records may have them.
    fn captured(
        &self,
        asked: &Asked<'_>,
        tool: Option<&Tool>,
        outcome: &CallOutcome,
    ) -> [Option<String>; 2] {
        let Some(tool) = tool else { return [None, None] };
        if self.capture != Capture::Full || tool.capture != Capture::Full {
            return [None, None];
        }
        let recorded = self.lock();
        let headers = tool.headers.iter().map(OwnHeader::value).chain(&recorded.secrets);
        let headers = headers.map(HeaderValue::as_bytes);
        let credentials = asked.credentials.iter().map(|(_, value)| value.expose());
        // A query may hold a key.
        let query = tool.endpoint.path_and_query().split_once('?').map_or("", |(_, query)| query);
        let values =
            query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        let secrets: Vec<&[u8]> =
            headers.chain(credentials).chain(values.map(str::as_bytes)).collect();
        let arguments = asked.arguments.map(String::from_utf8_lossy);
        let result = outcome.ended.as_ref().ok().map(answer);
        [arguments.as_deref(), result].map(|text| text.map(|text| without(text, &secrets)))
    }

    fn write(&self, span: &Span<'_>) {
        let mut recorded = self.lock();
        span.write(&mut recorded.bytes);
        recorded.count += 1;
    }

    /// The monotonic clock tells how long something took, the wall clock only when the call began.
    fn nanoseconds(&self, time: [Instant; 2]) -> [u64; 2] {
        time.map(|at| {
            let since = at.saturating_duration_since(self.began);
            u64::try_from((self.began_unix + since).as_nanos()).unwrap_or(u64::MAX)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for CallTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CallTrace({})", self.context.id)
    }
}

/// The id of a new span.
pub fn fresh_span() -> SpanId {
    loop {
        if let Some(id) = SpanId::new(rand::random()) {
            return id;
        }
    }
}

fn error_text(code: FailureCode, detail: Option<&'static str>) -> String {
    match detail {
        Some(detail) => format!("{}/{detail}", code.as_str()),
        None => code.as_str().to_owned(),
    }
}

fn answer(success: &Success) -> &str {
    match &success.result {
        ToolResult::Json(value) => value.as_str(),
        ToolResult::Null => "null",
        ToolResult::Text(text) => text,
    }
}

/// The text without these secrets, as they are and as JSON has them, and without what stands behind a scheme such as
/// `Bearer` or in its pair of user and password; cut to what a span holds.
fn without(text: &str, secrets: &[&[u8]]) -> String {
    let mut forms = Vec::new();
    for secret in secrets.iter().filter_map(|secret| std::str::from_utf8(secret).ok()) {
        let alone = secret.rsplit(' ').next().unwrap_or_default();
        forms.extend([secret.to_owned(), alone.to_owned()]);
        if let Some(pair) = basic(secret) {
            forms.extend(pair.split_once(':').map(|(_, password)| password.to_owned()));
            forms.push(pair);
        }
    }
    forms.retain(|form| form.len() >= SHORTEST_SECRET);
    // A longer one first: it may begin with a shorter one.
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    let mut text = removed(text, &forms).unwrap_or_else(|| text.to_owned());
    // JSON can have any sign in another form.
    if text.contains('\\')
        && let Ok(mut value) = serde_json::from_str(&text)
        && strip(&mut value, &forms)
    {
        text = value.to_string();
    }
    truncate::shorten(text, CAPTURED_BYTES)
}

/// The user and the password of a `Basic` header.
fn basic(header: &str) -> Option<String> {
    let (scheme, pair) = header.split_once(' ')?;
    let pair = STANDARD.decode(pair).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    String::from_utf8(pair).ok()
}

/// The text without these, where one of them is in it.
fn removed(text: &str, forms: &[String]) -> Option<String> {
    let mut without = None;
    for form in forms {
        let now = without.as_deref().unwrap_or(text);
        if now.contains(form) {
            without = Some(now.replace(form, REMOVED));
        }
    }
    without
}

/// Takes these out of each string of a document; whether there was one.
fn strip(value: &mut Json, forms: &[String]) -> bool {
    match value {
        Json::String(text) => match removed(text, forms) {
            Some(without) => {
                *text = without;
                true
            }
            None => false,
        },
        Json::Array(items) => strip_all(items.iter_mut(), forms),
        Json::Object(fields) => {
            let mut any = strip_all(fields.values_mut(), forms);
            let named: Vec<String> =
                fields.keys().filter(|name| removed(name, forms).is_some()).cloned().collect();
            for name in named {
                if let Some(item) = fields.remove(&name) {
                    fields.insert(REMOVED.to_owned(), item);
                    any = true;
                }
            }
            any
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

fn strip_all<'a>(values: impl Iterator<Item = &'a mut Json>, forms: &[String]) -> bool {
    let mut any = false;
    for value in values {
        any |= strip(value, forms);
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, secret: &str, expected: &str) {
        assert_eq!(without(text, &[secret.as_bytes()]), expected);
    }

    #[test]
    fn a_secret_is_taken_out_in_every_form() {
        check("{\"a\":\"Bearer abcdef\"}", "Bearer abcdef", "{\"a\":\"***\"}");
        check("{\"a\":\"abcdef\"}", "Bearer abcdef", "{\"a\":\"***\"}");
        check(r#"{"a":"ab\"cdef"}"#, "ab\"cdef", "{\"a\":\"***\"}");
        check(r#"{"a":"abcdef\""}"#, "abcdef\"", "{\"a\":\"***\"}");
        check(r#"{"a":["ab\/cdef"]}"#, "Bearer ab/cdef", r#"{"a":["***"]}"#);
        check(r#"{"ab\u002bcdef":1}"#, "ab+cdef", r#"{"***":1}"#);
        check("user:password", "Basic dXNlcjpwYXNzd29yZA==", "***");
        check("the password", "Basic dXNlcjpwYXNzd29yZA==", "the ***");
        check("a b c", "b", "a b c");
        check("", "abcdef", "");
    }

    #[test]
    fn a_secret_that_begins_with_another_is_taken_out_whole() {
        assert_eq!(without("abcdef-ghijkl", &[b"abcdef", b"abcdef-ghijkl"]), "***");
    }

    #[test]
    fn a_long_text_is_cut_and_no_secret_with_it() {
        let before = "x".repeat(CAPTURED_BYTES - 4);
        let cut = without(&format!("{before}abcdefgh"), &[b"abcdefgh"]);
        assert!(cut.len() <= CAPTURED_BYTES && !cut.contains("abc"), "{}", &cut[cut.len() - 9..]);
    }
}
