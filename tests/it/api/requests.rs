//! What a request must be before it is routed: paths, methods, framing, and heads that never end.

use crate::api::{CALL, closed_door, error, request, untouched};
use crate::support::config::API_KEY;
use crate::support::http::{RawClient, get, post};

fn key() -> String {
    format!("Authorization: Bearer {API_KEY}")
}

/// The lines of a good call, but for what frames its body.
fn lines<'a>(key: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["Host: gateway", "Content-Type: application/json", key], rest].concat()
}

#[tokio::test]
async fn other_paths_and_methods_are_not_there() {
    let (world, gateway) = closed_door(|config| config).await;
    for path in
        ["/", "/v1", "/v1/calls/", "/v1/calls/call_x/", "//v1/calls", "/V1/CALLS", "/metrics"]
    {
        error(&gateway.send(&get(path)).await, 404, "not_found", None);
        error(&gateway.send(&post(path, Some(API_KEY), CALL)).await, 404, "not_found", None);
    }
    let key = key();
    for (path, allowed) in [("/v1/calls", "POST,GET,HEAD"), ("/v1/calls/call_x", "GET,HEAD")] {
        for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "BREW", "post"] {
            let lines = lines(&key, &["Content-Length: 0"]);
            let line = format!("{method} {path} HTTP/1.1");
            let reply = gateway.send(&request(&line, &lines, "")).await;
            error(&reply, 405, "method_not_allowed", None);
            assert_eq!(reply.header("allow"), Some(allowed), "{method} {path}");
        }
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn only_json_is_read() {
    let (world, gateway) = closed_door(|config| config).await;
    let (key, length) = (key(), format!("Content-Length: {}", CALL.len()));
    let with = |kind: &[&str]| {
        let lines = [&["Host: gateway", &*key, &*length], kind].concat();
        request("POST /v1/calls HTTP/1.1", &lines, CALL)
    };
    for kind in [
        vec![],
        vec!["Content-Type: text/plain"],
        vec!["Content-Type: application/json-seq"],
        vec!["Content-Type: application/x-www-form-urlencoded"],
        vec!["Content-Type: text/plain; application/json"],
        vec!["Content-Type: "],
    ] {
        let reply = gateway.send(&with(&kind)).await;
        let message = error(&reply, 415, "unsupported_type", None);
        assert_eq!(message, "the body's Content-Type must be application/json", "{kind:?}");
    }
    for kind in ["Application/JSON", "application/json; charset=utf-8"] {
        let reply = gateway.send(&with(&[&format!("Content-Type: {kind}")]).replace_tool()).await;
        assert_eq!(reply.json()["error"]["code"], "unknown_tool", "{kind}");
    }
    untouched(world, gateway).await;
}

/// The same request for a tool that does not exist: it is read, and reaches nobody.
trait ReplaceTool {
    fn replace_tool(self) -> Self;
}

impl ReplaceTool for Vec<u8> {
    fn replace_tool(self) -> Self {
        let text = String::from_utf8(self).expect("UTF-8");
        text.replace(r#""lookup""#, r#""nobody""#).into_bytes()
    }
}

#[tokio::test]
async fn a_head_has_bounds() {
    let (world, gateway) = closed_door(|config| config).await;
    let (key, length) = (key(), format!("Content-Length: {}", CALL.len()));
    let many: Vec<String> = (0..80).map(|number| format!("X-{number}: 1")).collect();
    let with = |extra: &[&str]| {
        let head = [&lines(&key, &[&length]), extra].concat();
        request("POST /v1/calls HTTP/1.1", &head, CALL).replace_tool()
    };
    let extra: Vec<&str> = many.iter().map(String::as_str).collect();
    // 64 lines are taken, 65 are not.
    assert_eq!(gateway.send(&with(&extra[..60])).await.status, 200);
    assert_eq!(gateway.send(&with(&extra[..61])).await.status, 431);
    assert_eq!(gateway.send(&with(&extra)).await.status, 431);
    let wide = format!("X-Wide: {}", "x".repeat(70_000));
    assert_eq!(gateway.send(&with(&[&wide])).await.status, 431);
    untouched(world, gateway).await;
}

#[tokio::test]
async fn what_is_no_head_is_refused() {
    let (world, gateway) = closed_door(|config| config).await;
    let key = key();
    for (line, extra) in [
        ("POST /v1/calls HTTP/1.1", "X-Bad\u{1}: 1"),
        ("POST /v1/calls HTTP/1.1", "X-Bad: a\0b"),
        ("POST /v1/calls HTTP/1.1", "no header"),
        ("POST /v1/calls HTTP/1.1", " folded: 1"),
        ("POST /v1/calls HTTP/2.0", "X: 1"),
        ("POST /v1/calls", "X: 1"),
        ("POST /v1 calls HTTP/1.1", "X: 1"),
        ("\u{16}\u{3}\u{1}", "X: 1"),
    ] {
        let mut client = RawClient::connect(gateway.api()).await;
        let head = lines(&key, &["Content-Length: 0", extra]);
        client.write(&request(line, &head, "")).await;
        let answer = String::from_utf8(client.read_to_end().await).expect("UTF-8");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{line:?} {extra:?}: {answer:?}");
    }
    untouched(world, gateway).await;
}
