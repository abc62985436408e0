//! What the body of an answer may be: text and JSON, whole or cut, and nothing that cannot be shown.

use serde_json::{Value, json};

use super::{Case, Ends, bad, case, check, raw};
use crate::support::fleet::Fleet;
use crate::support::script::{Script, answer, answer_with_headers};

fn kept(name: &'static str, answer: Vec<u8>, result: Value) -> Case {
    Case { kept: true, after: Script::new(), ..case(name, answer, Ends::Gives(result)) }
}

#[tokio::test]
async fn text_and_json_are_results_as_they_came() {
    let typed = |kind: &str, body: &[u8]| answer(200, kind, body);
    let json_type = |body: &str| answer(200, "application/json", body);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    // The default profile's limit cuts a deep one; this one is as deep as it fits.
    let deep = &deep[100_000 - 10_000..100_000 + 10_000];
    check(vec![
        kept("text", typed("text/plain", b"hello"), json!("hello")),
        kept("no_type", answer_with_headers(200, &[], "hello"), json!("hello")),
        kept("json_without_type", answer_with_headers(200, &[], r#"{"x":1}"#), json!({"x": 1})),
        kept("json", json_type(r#"{"x":1}"#), json!({"x": 1})),
        kept(
            "problem",
            typed("application/problem+json", br#"{"title":"no"}"#),
            json!({"title": "no"}),
        ),
        kept("no_json", json_type("<html>sorry</html>"), json!("<html>sorry</html>")),
        kept("deep", json_type(deep), json!(deep)),
        kept("latin1", typed("text/plain; charset=ISO-8859-1", b"caf\xe9"), json!("café")),
        kept("bom", typed("text/plain", b"\xef\xbb\xbfhello"), json!("hello")),
        kept(
            "bom_before_json",
            typed("application/json", b"\xef\xbb\xbf{\"x\":1}"),
            json!({"x": 1}),
        ),
        kept(
            "controls",
            typed("text/plain", "a\u{1b}[31m\u{202e}\0b".as_bytes()),
            json!("a\u{1b}[31m\u{202e}\0b"),
        ),
        kept("empty", typed("application/json", b""), Value::Null),
        kept("no_content", raw("204 No Content", &[], ""), Value::Null),
        kept("created", raw("201 Created", &["Content-Length: 0"], ""), Value::Null),
        kept("small_chunks", chunks(2000), json!("x".repeat(2000))),
    ])
    .await;
}

/// An answer in chunks of one byte.
fn chunks(count: usize) -> Vec<u8> {
    raw(
        "200 OK",
        &["Transfer-Encoding: chunked"],
        &format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(count)),
    )
}

#[tokio::test]
async fn what_cannot_be_shown_fails() {
    let typed = |kind: &str, body: &[u8]| answer(200, kind, body);
    let encoded = |coding: &str| {
        answer_with_headers(
            200,
            &[("Content-Type", "text/plain"), ("Content-Encoding", coding)],
            "\u{1f}x",
        )
    };
    let utf16: Vec<u8> = "hi".encode_utf16().flat_map(u16::to_le_bytes).collect();
    // A body that was read whole leaves its connection in order; one that is ruled out by its head is not read.
    let read = |case: Case| Case { kept: true, after: Script::new(), ..case };
    check(vec![
        read(case("bad_utf8", typed("text/plain", b"a\xff\xfe"), bad("utf8", "answered"))),
        read(case(
            "bad_utf8_json",
            typed("application/json", b"\"\xff\""),
            bad("utf8", "answered"),
        )),
        read(case(
            "untyped_bytes",
            answer_with_headers(200, &[], b"\x00\xff"),
            bad("utf8", "answered"),
        )),
        read(case("utf16", typed("text/plain; charset=utf-16", &utf16), bad("utf8", "answered"))),
        case("gzip", encoded("gzip"), bad("encoding", "unknown")),
        case("brotli", encoded("br"), bad("encoding", "unknown")),
        case("stacked", encoded("gzip, gzip"), bad("encoding", "unknown")),
        case("image", typed("image/png", b"\x89PNG"), bad("media", "unknown")),
        case(
            "endless_image",
            raw("200 OK", &["Content-Type: image/png"], "x"),
            bad("media", "unknown"),
        ),
        case(
            "events",
            raw("200 OK", &["Content-Type: text/event-stream"], "data: 1\n\n"),
            bad("media", "unknown"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn the_number_text_and_the_key_order_of_an_answer_are_kept() {
    let body = r#"{"z": 1e999, "a": 12345678901234567890.10, "a": 2, "n": -0}"#;
    let script = Script::always(answer(200, "application/json", body));
    let (fleet, _server) = Fleet::new().await.plain("numbers", script, |tool| tool).await;
    let gateway = fleet.config.start().await;
    let outcome = gateway.call("numbers", json!({})).await;
    assert!(outcome.0.text().contains(&format!("\"result\":{body},")), "{}", outcome.0.text());
    let text = format!("\"text\":{}", json!(body));
    assert!(outcome.0.text().contains(&text), "{}", outcome.0.text());
    gateway.finish().await;
}

#[tokio::test]
async fn the_model_is_told_which_type_cannot_be_shown() {
    let script = Script::once(answer(200, "IMAGE/PNG; x=1", b"\x89PNG"));
    let (fleet, _server) = Fleet::new().await.plain("picture", script, |tool| tool).await;
    let gateway = fleet.config.start().await;
    let outcome = gateway.call("picture", json!({})).await;
    outcome.failed("bad_body", Some("media"), "unknown");
    let sentence = "The tool answered with image/png, which cannot be shown.";
    assert_eq!(outcome.at("/error/message"), sentence);
    assert_eq!(
        outcome.model_text(),
        format!("{sentence} It may have taken effect; check before trying again.")
    );
    gateway.finish().await;
}
