//! What a runtime gets back: the exact shape, each code with its text, one count and one log line per call.

mod attempts;
mod failures;
mod refusals;
mod shapes;

use regex::Regex;
use serde_json::{Value, json};

use crate::support::gateway::{Gateway, Outcome};
use crate::support::metrics::Metrics;

/// A failure or refusal as the contract has it.
struct Expected {
    tool: &'static str,
    status: &'static str,
    code: &'static str,
    detail: Option<&'static str>,
    outcome: &'static str,
    fault: &'static str,
    /// What the model reads, to the last character.
    text: &'static str,
    http_status: Option<u16>,
    retryable: bool,
}

/// A refusal for which a policy is to blame; the tests change what is different.
const REFUSED: Expected = Expected {
    tool: "x",
    status: "refused",
    code: "denied",
    detail: None,
    outcome: "not_sent",
    fault: "policy",
    text: "This call is not allowed.",
    http_status: None,
    retryable: false,
};

/// A failure of the tool's server.
const FAILED: Expected = Expected {
    status: "failed",
    code: "http_status",
    outcome: "answered",
    fault: "upstream",
    text: "The tool answered with status 503.",
    ..REFUSED
};

/// Makes a call and proves everything that is told about it: outcome, one count, one line.
async fn check(gateway: &Gateway, body: Value, expected: &Expected) -> Outcome {
    let before = gateway.metrics().await;
    let outcome = gateway.call_with(body).await;
    let code = (expected.code, expected.detail);
    match expected.status {
        "refused" => outcome.refused(code.0, code.1),
        _ => outcome.failed(code.0, code.1, expected.outcome),
    }
    assert_eq!(outcome.model_text(), expected.text);
    let message = outcome.at("/error/message");
    assert!(expected.text.starts_with(message.as_str().expect("a message")), "{message}");
    assert_eq!(outcome.at("/error/status"), json!(expected.http_status), "{}", outcome.0.text());
    assert_eq!(outcome.at("/error/retryable"), json!(expected.retryable), "{}", outcome.0.text());
    let attempts = outcome.at("/attempts");
    if let Some(last) = attempts.as_array().expect("a list").last() {
        let error = json!({"code": expected.code, "detail": expected.detail});
        assert_eq!((&last["error"], &last["status"]), (&error, &json!(expected.http_status)));
    }
    one_count(&before, &gateway.metrics().await, expected);
    let line = gateway.call_line(&outcome.id()).await;
    assert_eq!(line["tool"], outcome.at("/tool"));
    assert_eq!(line["status"], expected.status);
    assert_eq!(line["code"], expected.code);
    assert_eq!(line["outcome"], expected.outcome);
    assert_eq!(line["attempts"], attempts.as_array().expect("a list").len());
    outcome
}

/// Fails unless this one call was counted, once and under these labels alone.
#[track_caller]
fn one_count(before: &Metrics, after: &Metrics, expected: &Expected) {
    let labels = [
        ("tool", expected.tool),
        ("status", expected.status),
        ("code", expected.code),
        ("fault", expected.fault),
    ];
    for labels in [&labels[..], &[]] {
        let more =
            after.value("sortie_calls_total", labels) - before.value("sortie_calls_total", labels);
        assert_eq!(more, 1.0, "{labels:?}\n{}", after.text);
    }
}

/// A text with all that differs between two runs replaced: ids of tools, times, durations.
fn steady(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, instead) in [
        (r#""tl_[A-Za-z0-9]{16}""#, r#""TOOL_ID""#),
        (r#""\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z""#, r#""TIME""#),
        (r#""duration_ms":\d+"#, r#""duration_ms":0"#),
    ] {
        let pattern = Regex::new(pattern).expect("a pattern");
        text = pattern.replace_all(&text, instead).into_owned();
    }
    text
}
