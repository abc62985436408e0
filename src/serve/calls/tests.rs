//! Reading a call: what is taken, and how each wrong field is named.

use super::*;

#[track_caller]
fn check_error(body: &str, field: &str, part: &str) {
    let error = parse_call(body.as_bytes()).expect_err(body);
    assert_eq!(error.code, ApiCode::BadRequest, "{body}");
    assert_eq!(error.field.as_deref(), Some(field), "{body}: {}", error.message);
    assert!(error.message.contains(part), "{body}: {}", error.message);
}

#[test]
fn a_whole_call_is_read() {
    let body = r#"{ "tool": "lookup_order", "arguments": { "order_number" : "A-1042", "n": 1e2 },
        "run_id": "run_7Hq2xV", "step": "3", "call_index": 2, "round": 1,
        "agent_id": "a", "session_id": "s", "turn_id": "t", "turn_index": 12,
        "end_user": {"id": "eu_1", "external_id": null},
        "model_call_id": "toolu_1", "wait_ms": 30000, "deadline_ms": 60000, "call_id": "call_8f2c" }"#;
    let call = parse_call(body.as_bytes()).expect("valid");
    assert_eq!(call.id.as_str(), "call_8f2c");
    assert_eq!(&call.arguments.text()[..], br#"{"order_number":"A-1042","n":1e2}"#);
    assert_eq!(call.context.call_index, 2);
    let user = call.context.end_user.as_ref().expect("given");
    assert_eq!((user.id.as_deref(), &user.external_id), (Some("eu_1"), &None));
    assert_eq!(call.deadline, Some(Duration::from_secs(60)));
}

#[test]
fn absent_and_null_fields_are_the_same() {
    let body = r#"{"tool":"t","arguments":{},"run_id":null,"end_user":null,"deadline_ms":null}"#;
    let call = parse_call(body.as_bytes()).expect("valid");
    assert!(call.context.run_id.is_none() && call.context.end_user.is_none());
    assert!(call.deadline.is_none() && call.id.as_str().len() == 21);
}

#[test]
fn wrong_fields_are_named_by_their_pointer() {
    let call = |rest: &str| format!(r#"{{"tool":"t","arguments":{{}},{rest}}}"#);
    check_error(r#"{"arguments":{}}"#, "/tool", "is required");
    check_error(r#"{"tool":"t"}"#, "/arguments", "is required");
    check_error(r#"{"tool":"t","arguments":null}"#, "/arguments", "is required");
    check_error(r#"{"tool":7,"arguments":{}}"#, "/tool", "text");
    check_error(r#"{"tool":"t","arguments":[]}"#, "/arguments", "object");
    check_error(&call(r#""extra":1"#), "/extra", "not known");
    check_error(&call(r#""tool":"u""#), "/tool", "twice");
    check_error(&call(r#""wait_ms":60001"#), "/wait_ms", "60000");
    check_error(&call(r#""wait_ms":"1""#), "/wait_ms", "whole number");
    check_error(&call(r#""round":0"#), "/round", "whole number");
    check_error(&call(r#""turn_index":1.5"#), "/turn_index", "whole number");
    check_error(&call(r#""deadline_ms":0"#), "/deadline_ms", "1 to 1200000");
    check_error(&call(r#""run_id":"a b""#), "/run_id", "visible ASCII");
    check_error(&call("\"run_id\":\"a\\r\\nX: 1\""), "/run_id", "control");
    check_error(&call(r#""call_id":"8f2c""#), "/call_id", "call_");
    check_error(&call(r#""end_user":{"name":"x"}"#), "/end_user/name", "not known");
    check_error(&call(r#""end_user":"x""#), "/end_user", "object");
    check_error(&call(r#""credentials":{"A":1}"#), "/credentials", "texts");
    check_error(&call(r#""credentials":{"A":"1","a":"2"}"#), "/credentials", "twice");
    let many: Vec<_> = (0..11).map(|at| format!(r#""X-{at}":"1""#)).collect();
    let many = format!(r#""credentials":{{{}}}"#, many.join(","));
    check_error(&call(&many), "/credentials", "10 headers at most");
}

#[test]
fn a_credential_is_not_in_debug_output() {
    let body = r#"{"tool":"t","arguments":{},"credentials":{"X-User-Token":"person-Kx83Wq2m"}}"#;
    let call = parse_call(body.as_bytes()).expect("valid");
    let (name, value) = &call.credentials[0];
    assert_eq!((name.as_str(), value.expose()), ("X-User-Token", &b"person-Kx83Wq2m"[..]));
    let shown = format!("{call:?} {:?}", call.clone());
    assert!(shown.contains("X-User-Token") && !shown.contains("person"), "{shown}");
}

#[test]
fn duplicate_keys_in_arguments_are_named_at_any_depth() {
    let body = r#"{"tool":"t","arguments":{"a":[{"b":1,"\u0062":2}]}}"#;
    check_error(body, "/arguments/a/0/b", "twice");
}

#[test]
fn what_is_no_text_is_refused() {
    let error = parse_call(b"{\"tool\":\"\xff\"}").expect_err("not UTF-8");
    assert_eq!(error.message, "the body is not UTF-8");
    let deep =
        format!(r#"{{"tool":"t","arguments":{{"a":{}1{}}}}}"#, "[".repeat(200), "]".repeat(200));
    assert_eq!(parse_call(deep.as_bytes()).expect_err("too deep").code, ApiCode::BadRequest);
    let deeper = "[".repeat(500_000);
    assert_eq!(parse_call(deeper.as_bytes()).expect_err("too deep").code, ApiCode::BadRequest);
}
