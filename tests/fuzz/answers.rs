//! What a tool answers, and what becomes of it.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use sortie::model::call::{CallContext, EndUser};
use sortie::model::id::CallId;
use sortie::model::outcome::{CallOutcome, Failure, FailureCode, Problem, Success, ToolResult};
use sortie::model::outcome_text::write;
use sortie::policy::answer::{
    AnswerHead, ERROR_BODY_LIMIT, ErrorBody, error_text, judge_head, read,
};
use sortie::policy::retry::{
    Asked, AttemptEnd, Next, RetryPolicy, ToolTraits, backoff, next, parse_retry_after, safe,
};
use sortie::telemetry::log::{CallLine, LineCaller, LogSink};

use super::{NOW, number, take_line};

/// Lines of status, type, coding and limit, then a body: the result is a part of the body and within the limit.
pub fn answer(data: &[u8]) {
    let mut rest = data;
    let status = number(take_line(&mut rest)).unwrap_or(200);
    let content_type = take_line(&mut rest);
    let content_encoding = take_line(&mut rest);
    let limit = number::<usize>(take_line(&mut rest)).unwrap_or(64);
    let head = AnswerHead {
        status,
        content_type: (!content_type.is_empty()).then_some(content_type),
        content_encoding: (!content_encoding.is_empty()).then_some(content_encoding),
    };
    is_shown(&head, rest);
    let Ok(media) = judge_head(&head) else { return };
    // The reader stops one byte past the limit.
    let whole = rest.len() <= limit;
    let body = rest.get(..limit.saturating_add(1)).unwrap_or(rest);
    let total = u64::try_from(rest.len()).ok();
    let success = match read(media, body, whole, total, limit) {
        Ok(success) => success,
        Err(error) => {
            assert!(error.sentence().ends_with('.') && !error.detail().is_empty());
            return;
        }
    };
    assert_eq!(Some(success.result_bytes), total);
    assert_eq!(success.cut_note.is_none(), whole);
    match success.result {
        ToolResult::Null => assert!(matches!(body, b"" | b"\xef\xbb\xbf") || status == 204),
        ToolResult::Json(value) => {
            assert!(whole, "JSON that was cut is text");
            // Its numbers need not be any that a double can hold.
            serde_json::from_str::<&RawValue>(value.as_str()).expect("it is JSON");
            assert!(value.as_str().len() <= limit);
        }
        ToolResult::Text(text) => {
            assert!(!text.is_empty() || !whole, "the model would read nothing");
            let plain = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
            let same = plain.starts_with(text.as_bytes());
            let latin = || text.chars().zip(body).all(|(c, byte)| u32::from(c) == u32::from(*byte));
            assert!(same || latin(), "not what the tool said");
            let kept = if same { text.len() } else { text.chars().count() };
            assert!(kept <= limit);
            assert!(whole || kept + 6 >= limit, "{kept} of {limit} bytes were kept");
        }
    }
}

fn is_shown(head: &AnswerHead<'_>, body: &[u8]) {
    assert_eq!(error_text(head, body, ErrorBody::Never), None);
    let Some(text) = error_text(head, body, ErrorBody::ClientErrors) else { return };
    assert!((400..500).contains(&head.status));
    assert!((1..=ERROR_BODY_LIMIT).contains(&text.len()));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
}

/// A Retry-After value, then what is left of the deadline in milliseconds: a wait is neither shorter than what was asked
/// for nor longer than the deadline.
pub fn retry_after(data: &[u8]) {
    let mut rest = data;
    let value = take_line(&mut rest);
    let remaining = Duration::from_millis(number(take_line(&mut rest)).unwrap_or(30_000));
    let asked = parse_retry_after(value, NOW);
    let digits = value.trim_ascii();
    if !digits.is_empty() && digits.len() <= 10 && digits.iter().all(u8::is_ascii_digit) {
        assert_eq!(asked.map(|wait| wait.as_secs()), number(digits));
    }
    if let Some(asked) = asked {
        // Ten digits of seconds, or the last date that there is.
        assert!(asked < Duration::from_secs(1_000_000_000_000), "{asked:?}");
        assert_eq!(asked.subsec_nanos(), 0);
    }
    let mut policy = RetryPolicy { attempts: 3, ..RetryPolicy::default() };
    for word in ["network", "5xx", "408", "409", "425", "429"] {
        policy.want(word).expect("a known word");
    }
    for (byte, attempt) in rest.iter().take(8).zip(1..) {
        let traits = ToolTraits { idempotent: byte & 1 == 1, read_only: byte & 2 == 2 };
        let end = match byte >> 2 & 7 {
            0 => AttemptEnd::Connect,
            1 => AttemptEnd::Broken,
            2 => AttemptEnd::BodyBroken,
            3 => AttemptEnd::ResponseTimeout,
            4 => AttemptEnd::Status(409),
            5 => AttemptEnd::Status(429),
            6 => AttemptEnd::Status(503),
            _ => AttemptEnd::Status(500),
        };
        let jitter = f64::from(byte >> 5) / 8.0;
        let waits = Asked { retry_after: asked, pause: Duration::ZERO };
        match next(&policy, traits, end, attempt, waits, remaining, jitter) {
            Next::Stop { retry_after } => assert_eq!(retry_after, asked),
            Next::Retry { after } => {
                assert!(attempt < policy.attempts && after < remaining);
                assert!(after >= asked.unwrap_or_default().max(backoff(attempt - 1, 0.0)));
                assert!(safe(end, traits, asked.is_some()), "{end:?} was repeated");
            }
        }
    }
}

/// Texts between bars, put wherever a call has text: the log line and the response stay one JSON document each.
pub fn outcome(data: &[u8]) {
    let all = String::from_utf8_lossy(data);
    let texts: Vec<&str> = all.split('|').collect();
    let part = |at: usize| texts.get(at).map(|text| (*text).to_owned()).unwrap_or_default();
    let given = |at: usize| Some(part(at)).filter(|text| !text.is_empty());
    let context = CallContext {
        agent_id: given(1),
        session_id: given(2),
        end_user: Some(EndUser { id: given(3), external_id: given(4) }),
        ..CallContext::default()
    };
    let failure = Failure {
        tool_message: given(6),
        problems: vec![Problem { pointer: part(7), keyword: part(8), message: part(9) }],
        ..Failure::not_sent(FailureCode::InvalidArguments, part(5))
    };
    let success =
        Success { result: ToolResult::Text(part(5)), result_bytes: u64::MAX, cut_note: given(6) };
    let (owner, region) = (given(7), given(8));
    for ended in [Err(failure), Ok(success)] {
        let outcome = CallOutcome {
            approval: None,
            id: CallId::from_random(std::iter::repeat(7)),
            tool: part(0),
            reference: None,
            decision: None,
            ended,
            attempts: Vec::new(),
            idempotency_key: None,
            trace_id: None,
            test: false,
            created_at_ms: NOW * 1000,
            started_at_ms: None,
            finished_at_ms: number(part(10).as_bytes()).unwrap_or(NOW * 1000),
            duration: Duration::MAX,
        };
        let body: Value = serde_json::from_slice(&write(&outcome)).expect("a JSON document");
        assert_eq!(body["tool"], outcome.tool.as_str());
        assert!(body["model"]["text"].is_string());
        let caller = LineCaller {
            organisation: "default",
            key: "fuzz",
            region: region.as_deref(),
            owner: owner.as_deref(),
        };
        is_one_line(&outcome, &context, caller);
    }
}

fn is_one_line(outcome: &CallOutcome, context: &CallContext, caller: LineCaller<'_>) {
    for json in [true, false] {
        let output = Output::default();
        let (sink, writer) = LogSink::start(json, output.clone()).expect("a thread");
        assert!(sink.call(&CallLine::new(outcome, context, caller)));
        drop(writer);
        // A writer that the machine does not let run is left behind after a while, and writes all the same.
        let text = loop {
            let written = output.0.lock().expect("nobody panicked").clone();
            if written.ends_with(b"\n") {
                break String::from_utf8(written).expect("UTF-8");
            }
            std::thread::yield_now();
        };
        let line = text.strip_suffix('\n').expect("a whole line");
        if json {
            assert!(line.chars().all(|c| c >= ' '), "{line:?}");
            let line: Value = serde_json::from_str(line).expect("a JSON document");
            assert_eq!(line["tool"], outcome.tool.as_str());
            assert_eq!(line["agent_id"].as_str(), context.agent_id.as_deref());
            assert_eq!(line["owner"].as_str(), caller.owner);
        } else {
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}

/// What the log's writer wrote.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
