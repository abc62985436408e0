//! The shipped profiles against the contract and their golden requests, an operator's own, and what is said of bad ones.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::model::call::{CallContext, EndUser};
use crate::model::id::{CallId, Token, ToolName};
use crate::model::json::read_object;
use crate::model::outcome::Effect;
use crate::model::secret::Secret;
use crate::policy::endpoint::Endpoint;
use crate::policy::schema::ArgumentSchema;
use crate::policy::sign::SigningKeys;
use crate::policy::wire::{OwnHeader, Rendering};

const TEXT_KEY: &str = "whsec_8sKqT1vN5rYbH2mZ0cLdWx9Qa";
const BASE64_KEY: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

fn shipped(name: &str) -> WireProfile {
    builtin().into_iter().find(|profile| profile.name == name).unwrap()
}

/// A standard call, and where it goes.
struct Standard {
    tool: &'static str,
    url: &'static str,
    arguments: &'static str,
    context: CallContext,
    sent_at_ms: i64,
    key: Option<&'static str>,
}

impl Standard {
    fn scan() -> Self {
        Self {
            tool: "scans.start",
            url: "https://scans.example.com/api/scans",
            arguments: r#"{ "scanId": "RX-4471" }"#,
            context: CallContext {
                run_id: Some(Token::parse("run_7Hq2xV").unwrap()),
                step: Some(Token::parse("3").unwrap()),
                ..CallContext::default()
            },
            sent_at_ms: 1_760_708_872_345,
            key: Some(TEXT_KEY),
        }
    }

    fn order() -> Self {
        let end_user =
            EndUser { id: Some("eu_7GqT2mXcV9pLs4Hd".into()), external_id: Some("cust-77".into()) };
        Self {
            tool: "lookup_order",
            url: "https://shop.example.com/tools/lookup-order",
            arguments: r#"{"order_number": "A-1042"}"#,
            context: CallContext {
                agent_id: Some("0193b1e2-6c1d-7a4e-9f20-5d8a3c2b1e07".into()),
                session_id: Some("0193b2f0".into()),
                turn_id: Some("0193b2f1".into()),
                end_user: Some(end_user),
                ..CallContext::default()
            },
            sent_at_ms: 1_793_354_102_000,
            key: Some(TEXT_KEY),
        }
    }

    /// The bytes that go over the wire.
    fn request(&self, profile: &WireProfile) -> Vec<u8> {
        let endpoint = Endpoint::parse(self.url).unwrap();
        let arguments = read_object(self.arguments).unwrap();
        let schema = ArgumentSchema::compile(Some(&json!({"type": "object"})), profile.dialect);
        let key = self.context.idempotency_key();
        let call = Rendering {
            tool: &ToolName::parse(self.tool).unwrap(),
            call_id: &CallId::parse("call_8f2c").unwrap(),
            context: &self.context,
            arguments: &schema.unwrap().check(&arguments).unwrap(),
            endpoint: &endpoint,
            sent_at_ms: self.sent_at_ms,
            idempotency_key: key.as_ref(),
        };
        let own = [("Authorization", "Bearer shop-token"), ("X-Team", "warehouse")]
            .map(|(name, value)| profile.check_own_header(name, Secret::new(value)).unwrap());
        let secrets: Vec<_> = self.key.into_iter().map(Secret::new).collect();
        let keys = profile.signature().map(|scheme| scheme.prepare(&secrets).unwrap());
        let body = profile.body(&call);
        let t = self.sent_at_ms.div_euclid(1000);
        let headers = profile.headers(&call, &own, &body, &keys.unwrap_or_default(), t).unwrap().0;
        let spelling = profile.header_spelling(own.iter().map(OwnHeader::spelling));
        assert!(profile.accepts_name(self.tool));
        assert_eq!(headers.len(), spelling.len());
        let mut request = format!("POST {} HTTP/1.1\r\n", endpoint.path_and_query()).into_bytes();
        for ((name, value), spelling) in headers.iter().zip(spelling) {
            assert!(spelling.eq_ignore_ascii_case(name.as_str()), "{spelling} is not {name}");
            request.extend([spelling.as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        [&request, &b"\r\n"[..], &body].concat()
    }
}

#[track_caller]
fn check_golden(name: &str, call: Standard, golden: &[u8]) {
    let request = call.request(&shipped(name));
    assert_eq!(String::from_utf8_lossy(&request), String::from_utf8_lossy(golden));
}

#[test]
fn golden_bare() {
    let golden = include_bytes!("../../../tests/golden/bare-v1.http");
    check_golden("bare-v1", Standard::scan(), golden);
}

#[test]
fn golden_envelope() {
    let golden = include_bytes!("../../../tests/golden/envelope-v1.http");
    check_golden("envelope-v1", Standard::order(), golden);
}

#[test]
fn golden_standard_webhooks() {
    let call = Standard {
        url: "https://scans.example.com:8443/api/scans?region=eu",
        key: Some(BASE64_KEY),
        ..Standard::scan()
    };
    let golden = include_bytes!("../../../tests/golden/standard-webhooks.http");
    check_golden("standard-webhooks", call, golden);
}

#[test]
fn golden_plain() {
    let golden = include_bytes!("../../../tests/golden/plain-v1.http");
    check_golden("plain-v1", Standard { key: None, ..Standard::scan() }, golden);
}

#[test]
fn an_envelope_always_has_its_nine_keys() {
    let call = Standard { context: CallContext::default(), ..Standard::order() };
    let request = String::from_utf8(call.request(&shipped("envelope-v1"))).unwrap();
    let body = concat!(
        r#"{"tool":"lookup_order","call_id":"call_8f2c","arguments":{"order_number":"A-1042"},"#,
        r#""agent_id":null,"session_id":null,"turn_id":null,"end_user":null,"test":false,"#,
        r#""sent_at":"2026-10-30T09:55:02.000Z"}"#,
    );
    assert_eq!(request.split_once("\r\n\r\n").unwrap().1, body);
}

#[test]
fn the_default_is_the_envelope_and_each_file_holds_the_profile_of_its_name() {
    let names: Vec<_> = builtin().into_iter().map(|profile| profile.name).collect();
    assert_eq!(names, ["envelope-v1", "bare-v1", "standard-webhooks", "plain-v1"]);
    assert_eq!(names, BUILTIN_PROFILES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

/// default, min and max in seconds; result limit; attempts; repeats are told; signs; run and key are sent.
type Row = ((u64, u64, u64), usize, u32, bool, bool, bool);

#[track_caller]
fn check_row(name: &str, row: Row, policy: Effect, dialect: Dialect, error_body: ErrorBody) {
    let profile = shipped(name);
    let bounds = profile.timeout;
    let seconds = [bounds.default, bounds.min, bounds.max].map(|bound| bound.as_secs());
    let (times, limit, attempts, repeat_key, signs, run) = row;
    assert_eq!(seconds, [times.0, times.1, times.2]);
    assert_eq!((profile.result_limit, profile.retry.attempts), (limit, attempts));
    assert_eq!((profile.retry.repeat_key, profile.signs()), (repeat_key, signs));
    assert_eq!((profile.sends_idempotency_key(), profile.needs_run()), (run, run));
    assert_eq!((profile.default_policy, profile.dialect), (policy, dialect));
    assert_eq!(profile.error_body, error_body);
}

#[test]
fn the_shipped_profiles_are_those_of_the_contract() {
    let approval = Effect::RequireApproval;
    let (never, client) = (ErrorBody::Never, ErrorBody::ClientErrors);
    check_row(
        "envelope-v1",
        ((10, 1, 30), 32_768, 1, false, true, false),
        Effect::Allow,
        Dialect::Subset,
        never,
    );
    check_row(
        "bare-v1",
        ((30, 1, 300), 262_144, 3, true, true, true),
        approval,
        Dialect::Full,
        client,
    );
    check_row(
        "standard-webhooks",
        ((20, 1, 30), 262_144, 3, true, true, false),
        approval,
        Dialect::Full,
        never,
    );
    check_row(
        "plain-v1",
        ((30, 1, 300), 262_144, 1, false, false, false),
        approval,
        Dialect::Full,
        client,
    );
}

#[test]
fn what_the_shipped_profiles_repeat() {
    let wanted = |name, statuses: &[u16]| {
        let retry = shipped(name).retry;
        let all: Vec<u16> = (300..=599).filter(|status| retry.statuses.contains(status)).collect();
        let fives: Vec<u16> = (500..=599).filter(|status| all.contains(status)).collect();
        (
            retry.on_network,
            fives.len(),
            statuses.iter().all(|status| all.contains(status)),
            all.len(),
        )
    };
    assert_eq!(wanted("bare-v1", &[500, 501, 505, 599]), (true, 100, true, 100));
    assert_eq!(wanted("standard-webhooks", &[408, 425, 429, 500, 503]), (true, 98, true, 101));
    assert_eq!(wanted("envelope-v1", &[]), (false, 0, true, 0));
    assert_eq!(wanted("plain-v1", &[]), (false, 0, true, 0));
}

#[test]
fn names_of_the_shipped_profiles() {
    let accepts = |profile| {
        [
            "orders",
            "orders.lookup_2",
            "a.b.c",
            "orders.",
            ".orders",
            "orders..x",
            "orders.2",
            "2x",
            "Orders",
        ]
        .map(|name| shipped(profile).accepts_name(name))
    };
    let [yes, no] = [true, false];
    assert_eq!(accepts("bare-v1"), [yes, yes, yes, no, no, no, no, no, no]);
    assert_eq!(accepts("envelope-v1"), [yes, no, no, no, no, no, no, no, no]);
    let envelope = shipped("envelope-v1");
    assert!(envelope.accepts_name(&"a".repeat(64)) && !envelope.accepts_name(&"a".repeat(65)));
}

#[test]
fn an_attempt_has_its_own_time_and_signature_and_all_else_stays() {
    let lines = |t_ms| {
        let call = Standard { sent_at_ms: t_ms, ..Standard::scan() };
        let request = String::from_utf8(call.request(&shipped("bare-v1"))).unwrap();
        request.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (first, second) = (lines(1_760_708_872_000), lines(1_760_708_873_000));
    let changed: Vec<_> = first.iter().zip(&second).filter(|(a, b)| a != b).collect();
    assert!(matches!(changed[..], [(a, _)] if a.starts_with("CL-Signature: t=1760708872,v1=")));
}

const GITHUB: &str = r#"
name: github
names: '[a-z_]+'
schema: full
policy: deny
timeout: {default: 5s, min: 1s, max: 10s}
result_max_bytes: 1024
retry: {attempts: 2, on: [network, 502], repeat_key: true}
headers:
  - {name: Host, value: $host}
  - {name: Content-Type, value: application/json}
  - {name: X-GitHub-Delivery, value: $call_id}
  - {name: X-Hub-Signature-256, value: $signature}
  - $own
  - {name: Content-Length, value: $content_length}
body: $arguments
signature: {signed: '{body}', key: text, digest: hex, value: 'sha256={digest}'}
"#;

#[test]
fn an_operator_describes_github_signatures_without_code() {
    let profile = parse("github", GITHUB).unwrap();
    let call = Standard { tool: "lookup_order", ..Standard::scan() };
    let request = String::from_utf8(call.request(&profile)).unwrap();
    let value = "sha256=f8b6de76d3b0f9704cb5caa4d36a79db78d5aea085c201d7fc971286d519842f";
    assert!(request.contains(&format!("\r\nX-Hub-Signature-256: {value}\r\n")), "{request}");
    assert!(profile.check_own_name("x-github-delivery").is_err());
    assert_eq!(profile.default_policy, Effect::Deny);
    assert_eq!(profile.timeout.max, Duration::from_secs(10));
}

/// The GitHub profile with some of its fields replaced; null takes a field away.
fn changed(changes: &Value) -> Result<WireProfile, Vec<String>> {
    let (document, _) = Document::parse(GITHUB);
    let document = document.unwrap();
    let report = Report::new("github".into(), Vec::new(), &document);
    let profile: Given<Value> = read::read(&report, &[]);
    let mut profile = profile.get().unwrap().clone();
    let fields = profile.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        fields.insert(name.clone(), value.clone());
    }
    fields.retain(|_, value| !value.is_null());
    let told = |found: ConfigErrors| {
        found.errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect()
    };
    parse("f", &profile.to_string()).map_err(told)
}

#[track_caller]
fn check_faults(changes: Value, expected: &[&str]) {
    let faults = changed(&changes).expect_err("the profile must be refused");
    assert_eq!(faults.len(), expected.len(), "{faults:?}");
    for expected in expected {
        assert!(faults.iter().any(|fault| fault.contains(expected)), "no {expected} in {faults:?}");
    }
}

#[test]
fn limits_out_of_order_are_refused() {
    check_faults(json!({"name": "My Profile"}), &["name: is 1 to 64 of a-z"]);
    for names in ["(", "a)|(?:b"] {
        let fault = format!("names: `{names}` is not a regular expression");
        check_faults(json!({"names": names}), &[&fault]);
    }
    for bytes in [json!(0), json!((64 << 20) + 1), json!("1GiB")] {
        let fault = "result_max_bytes: must be 1 to 64MiB";
        check_faults(json!({"result_max_bytes": bytes}), &[fault]);
    }
    check_faults(
        json!({"timeout": {"default": "10s", "min": "1s", "max": "21m"}}),
        &["timeout.max: must be 20m at most"],
    );
    check_faults(
        json!({"timeout": {"default": "11s", "min": "1s", "max": "10s"}}),
        &["timeout.default: must lie between `min` and `max`"],
    );
    check_faults(
        json!({"timeout": {"default": "0s", "min": "0s", "max": "10s"}}),
        &["timeout.min: must be more than 0 s"],
    );
    check_faults(
        json!({"timeout": {"default": "5s", "min": "6s", "max": "5s"}}),
        &["timeout.max: must be at least `min`", "timeout.default"],
    );
    check_faults(json!({"retry": {"attempts": 0}}), &["retry.attempts: must be 1 to 10"]);
    check_faults(json!({"retry": {"attempts": 2}}), &["retry.on: names no failure to repeat"]);
    check_faults(
        json!({"retry": {"attempts": 2, "on": ["network", "netwrok", 404]}}),
        &["retry.on[1]: `netwrok` is not", "retry.on[2]: `404` is not"],
    );
}

#[test]
fn parts_that_do_not_fit_each_other_are_refused() {
    let header = |name: &str, value: &str| json!({"name": name, "value": value});
    let lines = |middle: &[Value]| {
        let mut lines = vec![header("Host", "$host")];
        lines.extend_from_slice(middle);
        lines.extend([json!("$own"), header("Content-Length", "$content_length")]);
        json!(lines)
    };
    let id = header("X-Id", "$call_id");
    let signature = header("X-S", "$signature");
    check_faults(
        json!({"headers": lines(std::slice::from_ref(&id))}),
        &["headers: one must hold `$signature`"],
    );
    let twice = [id.clone(), signature.clone(), header("X-T", "$signature")];
    check_faults(json!({"headers": lines(&twice)}), &["headers: only one can hold `$signature`"]);
    check_faults(
        json!({"signature": null}),
        &["signature: is missing, and a header holds `$signature`"],
    );
    check_faults(
        json!({"headers": lines(std::slice::from_ref(&signature))}),
        &["retry.repeat_key: nothing tells the tool of a repeat"],
    );
    let standard = json!({
        "signed": "{id}.{t}.{body}", "key": "base64", "digest": "base64", "value": "v1,{digest}", "separator": " "
    });
    check_faults(
        json!({"signature": standard, "headers": lines(&[signature]), "retry": {"attempts": 1}}),
        &["the time is signed and never sent", "the call id is signed and never sent"],
    );
    check_faults(json!({"body": {"tool": "$tool"}}), &["body: has no `$arguments`"]);
}

#[test]
fn faults_of_all_parts_are_said_at_once_with_their_paths() {
    check_faults(
        json!({
            "names": "[",
            "retry": {"attempts": 99},
            "headers": [],
            "body": {"end_user": {"id": "$argumnets"}},
            "signature": {"signed": "{t}", "key": "text", "digest": "hex", "value": "{digest}"},
        }),
        &[
            "retry.attempts: ",
            "retry.on: ",
            "names: ",
            "headers: the first",
            "headers: the last",
            "headers: `$own`",
            "body.end_user.id: `$argumnets` is no slot of a body; there are $tool, ",
            "signature.signed: ",
        ],
    );
}

#[test]
fn misspelt_fields_and_values_are_refused_all_at_once() {
    check_faults(
        json!({
            "tiemout": "5s",
            "schema": "none",
            "policy": null,
            "timeout": {"default": "soon", "min": "1s"},
            "retry": {"attempts": 1, "on": [["network"], "netwrok"], "repeat": true},
            "error_body": "5xx",
            "headers": ["$owm", {"name": "Host"}],
            "signature": {"signed": "{body}", "key": "hex", "digest": "hex", "value": "{digest}"},
        }),
        &[
            "tiemout: is not a known key, did you mean `timeout`?",
            "schema: must be `full` or `subset`",
            "policy: is missing",
            "timeout.default: must be a duration",
            "timeout.max: is missing",
            "retry.on[0]: must be `network`, `5xx` or a status such as 503",
            "retry.on[1]: `netwrok` is not",
            "retry.repeat: is not a known key, did you mean `repeat_key`?",
            "error_body: must be `4xx` or `never`, not `5xx`",
            "headers[0]: a header is `{name, value}`, or the text `$own`",
            "headers[1]: a header is `{name, value}`, or the text `$own`",
            "signature.key: must be `base64` or `text`",
        ],
    );
}

#[test]
fn a_profile_without_a_signature_takes_no_keys() {
    let profile = shipped("plain-v1");
    assert!(profile.signature().is_none());
    assert_eq!(profile.signature_headers(&SigningKeys::default(), 7, None, b""), Ok(Vec::new()));
}
