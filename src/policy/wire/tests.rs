//! Whose headers a tool may send, and how the values of a call become lines.

use serde_json::json;

use super::*;
use crate::model::id::Token;
use crate::model::json::read_object;
use crate::policy::header::HeaderText;
use crate::policy::schema::ArgumentSchema;
use crate::policy::scheme::SchemeText;
use crate::policy::template::TemplateText;
use crate::policy::wire_parts::WireParts;

const LINES: &str = r#"[
    {"name":"Host","value":"$host"},
    {"name":"content-type","value":"application/json"},
    {"name":"X-Hub-Signature-256","value":"$signature"},
    {"name":"X-Run","value":"$run_id"},
    {"name":"Idempotency-Key","value":"$idempotency_key"},
    {"name":"X-Sent","value":"$timestamp"},
    "$own",
    {"name":"X-Tool","value":"$tool"},
    {"name":"Content-Length","value":"$content_length"}
]"#;

fn profile(key_form: KeyForm) -> WireProfile {
    WireParts {
        name: "hub".into(),
        definition: [0; 32],
        names: "[a-z]+|[a-z]+_order".into(),
        dialect: Dialect::Full,
        default_policy: Effect::Allow,
        timeout: TimeoutBounds {
            default: Duration::from_secs(2),
            min: Duration::from_secs(1),
            max: Duration::from_secs(3),
        },
        result_limit: 1024,
        retry: RetryPolicy { attempts: 1, ..RetryPolicy::default() },
        circuit: None,
        error_body: ErrorBody::Never,
        headers: serde_json::from_str::<Vec<HeaderText>>(LINES).unwrap(),
        key_form,
        body: TemplateText::Text("$arguments".into()),
        signature: Some(
            serde_json::from_value::<SchemeText>(json!({
                "signed": "{body}", "key": "text", "digest": "hex", "value": "sha256={digest}"
            }))
            .unwrap(),
        ),
    }
    .compile()
    .unwrap()
}

fn keys(profile: &WireProfile) -> SigningKeys {
    let secret = Secret::new("whsec_8sKqT1vN5rYbH2mZ0cLdWx9Qa");
    profile.signature().unwrap().prepare(&[secret]).unwrap()
}

fn with_call<T>(context: &CallContext, check: impl FnOnce(&Rendering<'_>) -> T) -> T {
    let arguments = read_object(r#"{ "scanId" : "RX-4471" }"#).unwrap();
    let schema = ArgumentSchema::compile(Some(&json!({"type": "object"})), Dialect::Full).unwrap();
    let key = context.idempotency_key();
    check(&Rendering {
        tool: &ToolName::parse("lookup_order").unwrap(),
        call_id: &CallId::parse("call_8f2c").unwrap(),
        context,
        arguments: &schema.check(&arguments).unwrap(),
        endpoint: &Endpoint::parse("https://[2606:4700::1]:8443/a?b").unwrap(),
        sent_at_ms: 0,
        idempotency_key: key.as_ref(),
    })
}

fn run() -> CallContext {
    CallContext {
        run_id: Some(Token::parse("run_7Hq2xV").unwrap()),
        step: Some(Token::parse("3").unwrap()),
        ..CallContext::default()
    }
}

/// The lines of one attempt at second 7.
fn lines(profile: &WireProfile, context: &CallContext, own: &[OwnHeader]) -> Vec<String> {
    with_call(context, |call| {
        let body = profile.body(call);
        let headers = profile.headers(call, own, &body, &keys(profile), 7).unwrap().0;
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    })
}

#[test]
fn every_slot_becomes_its_line_in_order() {
    let profile = profile(KeyForm::Bare);
    let own = [
        profile.check_own_header("X-Team", Secret::new("a  b")).unwrap(),
        profile.check_own_header("Authorization", Secret::new("Bearer x")).unwrap(),
    ];
    assert_eq!(
        lines(&profile, &run(), &own),
        [
            "host: [2606:4700::1]:8443",
            "content-type: application/json",
            "x-hub-signature-256: sha256=f8b6de76d3b0f9704cb5caa4d36a79db78d5aea085c201d7fc971286d519842f",
            "x-run: run_7Hq2xV",
            "idempotency-key: dcecefd7bc74085436b9067e030349d2",
            "x-sent: 7",
            "x-team: a  b",
            "authorization: Bearer x",
            "x-tool: lookup_order",
            "content-length: 20",
        ]
    );
    assert_eq!(
        profile.header_spelling(own.iter().map(OwnHeader::spelling)),
        [
            "Host",
            "content-type",
            "X-Hub-Signature-256",
            "X-Run",
            "Idempotency-Key",
            "X-Sent",
            "X-Team",
            "Authorization",
            "X-Tool",
            "Content-Length",
        ]
    );
}

#[test]
fn a_line_without_a_value_is_left_out() {
    let lines = lines(&profile(KeyForm::Bare), &CallContext::default(), &[]);
    let names: Vec<_> = lines.iter().filter_map(|line| line.split(':').next()).collect();
    let expected =
        ["host", "content-type", "x-hub-signature-256", "x-sent", "x-tool", "content-length"];
    assert_eq!(names, expected);
}

#[test]
fn a_key_can_be_a_quoted_string() {
    let lines = lines(&profile(KeyForm::Quoted), &run(), &[]);
    assert_eq!(lines[4], r#"idempotency-key: "dcecefd7bc74085436b9067e030349d2""#);
}

#[test]
fn own_values_are_sensitive_and_hidden() {
    let profile = profile(KeyForm::Bare);
    let own = [profile.check_own_header("X-Key", Secret::new("canary-4471")).unwrap()];
    assert!(!format!("{own:?}").contains("canary"));
    with_call(&run(), |call| {
        let body = profile.body(call);
        let headers = profile.headers(call, &own, &body, &keys(&profile), 7).unwrap();
        assert!(headers.0["x-key"].is_sensitive());
        assert!(!format!("{headers:?}").contains("canary"));
    });
}

#[test]
fn nothing_is_sent_unsigned() {
    let profile = profile(KeyForm::Bare);
    with_call(&run(), |call| {
        let body = profile.body(call);
        let headers = profile.headers(call, &[], &body, &SigningKeys::default(), 7);
        assert_eq!(headers.unwrap_err(), RenderError::NoKey);
    });
    let signed = profile.signature_headers(&SigningKeys::default(), 7, None, b"");
    assert_eq!(signed, Err(RenderError::NoKey));
}

#[test]
fn a_signature_can_be_written_without_a_call() {
    let profile = profile(KeyForm::Bare);
    let signed =
        profile.signature_headers(&keys(&profile), 7, None, br#"{"scanId":"RX-4471"}"#).unwrap();
    let digest = "sha256=f8b6de76d3b0f9704cb5caa4d36a79db78d5aea085c201d7fc971286d519842f";
    assert_eq!(signed, [("X-Hub-Signature-256", digest.to_owned()), ("X-Sent", "7".to_owned())]);
}

#[test]
fn a_name_must_match_the_whole_pattern() {
    let profile = profile(KeyForm::Bare);
    let accepted = ["lookup", "lookup_order", "xlookup", "lookup_orders", "Lookup", "", "lookup\n"]
        .map(|name| profile.accepts_name(name));
    assert_eq!(accepted, [true, true, true, false, false, false, false]);
}

#[track_caller]
fn check_own(name: &str, value: &[u8], expected: Result<(), &str>) {
    let made = profile(KeyForm::Bare).check_own_header(name, Secret::new(value));
    match (made.map_err(|error| error.to_string()), expected) {
        (Ok(header), Ok(())) => assert_eq!(header.spelling(), name),
        (Err(error), Err(part)) => {
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
        (made, _) => panic!("{name}: {made:?}"),
    }
}

#[test]
fn own_headers_that_are_taken() {
    for name in [
        "Authorization",
        "X-Api-Key",
        "X_Api_Key",
        "x-team",
        "Cookie",
        "X-Toolbox",
        "TEA",
        "Claim",
        "Accept",
    ] {
        check_own(name, b"Bearer canary", Ok(()));
    }
    check_own("X-A", &[b'a'; 4096], Ok(()));
    check_own("X-A", b"", Ok(()));
    check_own("X-A", b" ~!\"", Ok(()));
}

#[test]
fn own_headers_that_are_refused_by_name_in_any_letter_case() {
    let names = [
        "Host",
        "Content-Type",
        "content-length",
        "Content-Anything",
        "Transfer-Encoding",
        "TE",
        "te",
        "Trailer",
        "Connection",
        "Keep-Alive",
        "Upgrade",
        "Proxy-Authorization",
        "proxy-x",
        "Expect",
        "USER-AGENT",
        "Accept-Encoding",
        "Idempotency-Key",
        "X-Tool-Name",
        "x-tool-anything",
        "CL-Signature",
        "cl-x",
        "Webhook-Id",
        "webhook-x",
        "Content_Length",
        "Transfer_Encoding",
        "X_Tool_Name",
        "x_tool-name",
        "CL_Signature",
        "User_Agent",
    ];
    for name in names {
        check_own(name, b"canary", Err("the gateway or a profile sets it"));
    }
    for name in ["x-hub-signature-256", "X-RUN", "X-Tool", "X_Run", "x_hub-signature_256"] {
        check_own(name, b"canary", Err("its profile `hub` sends it"));
    }
    for name in ["", "X A", "X:A", "X\r\nA", "é", "X\0"] {
        check_own(name, b"canary", Err("is not a header name"));
    }
}

#[test]
fn own_headers_that_are_refused_by_value() {
    for value in ["canary\r\nX: y", "canary\n", "canary\0", "canary\t", "canary\u{7f}", "canaryé"]
    {
        check_own(
            "X-A",
            value.as_bytes(),
            Err("the value of `X-A` may hold spaces and visible ASCII only"),
        );
    }
    check_own(
        "X-A",
        &[b'a'; 4097],
        Err("the value of `X-A` has 4097 bytes; at most 4096 are allowed"),
    );
}
