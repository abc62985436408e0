//! Bodies: their bound, what is no JSON, and what two readers could read differently.

use serde_json::json;

use crate::api::{CALL, closed_door, error, request, untouched};
use crate::support::config::API_KEY;
use crate::support::gateway::Gateway;
use crate::support::http::RawClient;

async fn refused(gateway: &Gateway, body: impl AsRef<[u8]>, field: Option<&str>, part: &str) {
    let body = body.as_ref();
    let reply = gateway.post(Some(API_KEY), body).await;
    let message = error(&reply, 400, "bad_request", field);
    let shown = String::from_utf8_lossy(&body[..body.len().min(200)]);
    assert!(message.contains(part), "{shown}: {message}");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_call() {
    let (world, gateway) = closed_door(|config| config).await;
    let key = format!("Authorization: Bearer {API_KEY}");
    let length = format!("Content-Length: {}", CALL.len() + 1);
    let chunk = format!("{:x}\r\n{CALL}\r\n", CALL.len());
    for (framing, body) in [(&*length, CALL), ("Transfer-Encoding: chunked", &*chunk)] {
        let mut client = RawClient::connect(gateway.api()).await;
        let lines = ["Host: gateway", "Content-Type: application/json", &key, framing];
        client.write(&request("POST /v1/calls HTTP/1.1", &lines, body)).await;
        client.half_close().await;
        let answer = String::from_utf8(client.read_to_end().await).expect("UTF-8");
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{framing}: {answer}");
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn what_is_no_json_object_is_refused_with_its_place() {
    let (world, gateway) = closed_door(|config| config).await;
    let root = Some("");
    refused(&gateway, "", root, "the body is not JSON: line 1, column 0").await;
    refused(&gateway, "{", root, "the body is not JSON: line 1, column 1").await;
    refused(&gateway, format!("{CALL}x"), root, "the body is not JSON: line 1").await;
    refused(&gateway, format!("{CALL}{CALL}"), root, "the body is not JSON: line 1").await;
    refused(&gateway, "{'tool':'lookup'}", root, "the body is not JSON").await;
    refused(&gateway, "{\"tool\":\n\"lookup\",}", root, "line 2").await;
    refused(&gateway, "{\"tool\":\"look\nup\"}", root, "the body is not JSON").await;
    refused(&gateway, "{\"tool\":NaN}", root, "the body is not JSON").await;
    refused(&gateway, format!("\u{feff}{CALL}"), root, "the body is not JSON").await;
    for other in ["[]", "7", "null", "true", "\"lookup\"", "[{}]"] {
        refused(&gateway, other, root, "the body must be a JSON object").await;
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn f125_what_is_no_utf8_is_refused() {
    let (world, gateway) = closed_door(|config| config).await;
    for bytes in [&b"\xff"[..], b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9f\x93", b"\xc0\xaf"] {
        let body = [br#"{"tool":"lookup","arguments":{"a":""#, bytes, br#""}}"#].concat();
        refused(&gateway, body, None, "the body is not UTF-8").await;
    }
    // Half a character as an escape is no text either.
    for escape in [r"\ud800", r"\udc00\ud800", r"\ud83dx", r"\u12", r"\x41"] {
        let body = format!(r#"{{"tool":"lookup","arguments":{{"a":"{escape}"}}}}"#);
        let reply = gateway.post(Some(API_KEY), body).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("bad_request")));
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn f125_a_key_that_stands_twice_is_refused_at_any_depth() {
    let (world, gateway) = closed_door(|config| config).await;
    let with = |arguments: &str| format!(r#"{{"tool":"lookup","arguments":{arguments}}}"#);
    for (body, field) in [
        (r#"{"tool":"lookup","tool":"lookup","arguments":{}}"#.to_owned(), "/tool"),
        (r#"{"tool":"lookup","arguments":{},"\u0074ool":"x"}"#.to_owned(), "/tool"),
        (r#"{"tool":"lookup","arguments":{},"arguments":{}}"#.to_owned(), "/arguments"),
        (with(r#"{"a":1,"a":1}"#), "/arguments/a"),
        (with(r#"{"a":1,"\u0061":2}"#), "/arguments/a"),
        (with(r#"{"x":{"a":1,"a":2}}"#), "/arguments/x/a"),
        (with(r#"{"x":[0,{"y":[{"a/b":1,"a/b":2}]}]}"#), "/arguments/x/1/y/0/a~1b"),
        (
            r#"{"tool":"lookup","arguments":{},"end_user":{"id":"eu_1","id":"eu_2"}}"#.to_owned(),
            "/end_user/id",
        ),
        (
            r#"{"tool":"lookup","arguments":{},"credentials":{"A":"1","A":"2"}}"#.to_owned(),
            "/credentials",
        ),
        // What would be duplicate and unknown is still no way to smuggle a key in.
        (with(r#"{"x":{"__proto__":1,"__proto__":2}}"#), "/arguments/x/__proto__"),
    ] {
        refused(&gateway, &body, Some(field), "twice").await;
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn f125_deep_json_is_refused_and_not_followed() {
    let (world, gateway) = closed_door(|config| config).await;
    for depth in [64, 65, 127, 128, 100_000] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let body = format!(r#"{{"tool":"lookup","arguments":{{"a":{open}{close}}}}}"#);
        refused(&gateway, body, Some("/arguments"), "nested deeper than 64 levels").await;
    }
    for text in ["[".repeat(500_000), "{\"a\":".repeat(200_000), "\"\\u0061".repeat(100_000)] {
        let reply = gateway.post(Some(API_KEY), text).await;
        assert_eq!((reply.status, &reply.json()["error"]["field"]), (400, &json!("")));
    }
    untouched(world, gateway).await;
}
