//! Requests to the gateway that are none, or none of ours: rows 122 to 124.

use serde_json::json;

use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::gateway::Gateway;
use crate::support::http::{RawClient, Reply, post};
use crate::support::metrics::Metrics;
use crate::support::script::Script;
use crate::support::wait::poll;
use crate::support::world::World;

/// A call that would run, were it let in.
const CALL: &str = r#"{"tool":"x","arguments":{},"run_id":"run_7Hq2xV","step":"3"}"#;

const REQUESTS: &str = "sortie_http_requests_total";

/// What stands at the door of a gateway: whatever is refused there is counted, is no call, and reaches no tool.
pub(super) struct Door<'a> {
    world: &'a World,
    gateway: &'a Gateway,
    before: Metrics,
}

impl<'a> Door<'a> {
    pub(super) async fn of(world: &'a World, gateway: &'a Gateway) -> Self {
        Self { world, gateway, before: gateway.metrics().await }
    }

    /// So many requests were answered with this status since then, and nothing else was asked.
    pub(super) async fn refused(self, status: u16, number: usize) {
        let status = status.to_string();
        let labels = [("listener", "api"), ("code", status.as_str())];
        let expected = number as f64;
        poll("the requests to be counted", || async {
            let moved = self.moved(&self.gateway.metrics().await, REQUESTS, &labels);
            assert!(moved <= expected, "{moved} requests with {status}, not {expected}");
            (moved == expected).then_some(())
        })
        .await;
        let now = self.gateway.metrics().await;
        assert_eq!(self.moved(&now, REQUESTS, &labels[..1]), expected, "{status}");
        assert_eq!(self.moved(&now, "sortie_calls_total", &[]), 0.0);
        assert_eq!(self.moved(&now, "sortie_call_log_entries_total", &[]), 0.0);
        self.gateway.assert_quiet().await;
        self.world.upstream.assert_untouched().await;
    }

    fn moved(&self, now: &Metrics, name: &str, labels: &[(&str, &str)]) -> f64 {
        now.value(name, labels) - self.before.value(name, labels)
    }
}

/// A gateway whose tool must not be reached.
async fn closed(change: impl FnOnce(ConfigBuilder) -> ConfigBuilder) -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let gateway = change(world.config().tool(world.tool("x"))).start().await;
    (world, gateway)
}

/// A request with these lines beside the key and the type of its body.
fn request(line: &str, lines: &[&str], body: &str) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let key = format!("Authorization: Bearer {API_KEY}\r\nContent-Type: application/json\r\n");
    format!("{line}\r\n{key}{lines}\r\n{body}").into_bytes()
}

/// The same to the gateway's own name.
fn call(lines: &[&str], body: &str) -> Vec<u8> {
    request("POST /v1/calls HTTP/1.1", &[&["Host: gateway"], lines].concat(), body)
}

fn message(reply: &Reply) -> String {
    reply.json()["error"]["message"].as_str().expect("a message").to_owned()
}

#[tokio::test]
async fn f122_a_request_has_one_length_one_coding_and_one_host() {
    let (world, gateway) = closed(|config| config).await;
    let door = Door::of(&world, &gateway).await;
    let length = format!("Content-Length: {}", CALL.len());
    let chunked = format!("{:x}\r\n{CALL}\r\n0\r\n\r\n", CALL.len());
    let broken = |size: &str| format!("{size}\r\n{CALL}\r\n0\r\n\r\n");
    let (letters, past, less) = (broken("zz"), broken("10000000000000000"), broken("3"));
    let plain = "Transfer-Encoding: chunked";
    let framings: [(&[&str], &str); 17] = [
        (&["Transfer-Encoding: gzip, chunked"], &chunked),
        (&["Transfer-Encoding: identity, chunked"], &chunked),
        (&["Transfer-Encoding: chunked, chunked"], &chunked),
        (&["Transfer-Encoding: gzip", plain], &chunked),
        (&["Transfer-Encoding: gzip"], CALL),
        (&["Transfer-Encoding: chunked, identity"], CALL),
        (&["Transfer-Encoding: xchunked"], CALL),
        (&["Transfer-Encoding : chunked"], &chunked),
        (&[&length, "Content-Length: 5"], CALL),
        (&["Content-Length: +5"], CALL),
        (&["Content-Length: 5, 5"], CALL),
        (&["Content-Length: 0x10"], CALL),
        (&["Content-Length: -1"], CALL),
        (&[plain], &letters),
        (&[plain], &past),
        (&[plain], "-1\r\n"),
        (&[plain], &less),
    ];
    for (lines, body) in framings {
        let reply = gateway.send(&call(lines, body)).await;
        assert_eq!(reply.status, 400, "{lines:?}: {}", reply.text());
    }
    let line = "POST /v1/calls HTTP/1.1";
    let hosts: [&[&str]; 3] =
        [&["Host: gateway", "Host: other"], &["Host: gateway", "host: gateway"], &[]];
    for lines in hosts {
        let reply = gateway.send(&request(line, &[lines, &[&length]].concat(), CALL)).await;
        assert_eq!(
            (reply.status, message(&reply).as_str()),
            (400, "exactly one Host header is required")
        );
    }
    let elsewhere = "POST http://elsewhere/v1/calls HTTP/1.1";
    let reply = gateway.send(&request(elsewhere, &["Host: gateway", &length], CALL)).await;
    assert_eq!(
        (reply.status, message(&reply).as_str()),
        (400, "the request target must be a path")
    );
    door.refused(400, framings.len() + 4).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f122_no_second_call_hides_behind_two_lengths() {
    let (world, gateway) = closed(|config| config).await;
    let door = Door::of(&world, &gateway).await;
    let hidden = String::from_utf8(post("/v1/calls", Some(API_KEY), CALL)).expect("UTF-8");
    let body = format!("0\r\n\r\n{hidden}");
    let length = format!("Content-Length: {}", body.len());
    let chunked = "Transfer-Encoding: chunked";
    for framing in [[&*length, chunked], [chunked, &*length]] {
        let mut client = RawClient::connect(gateway.api()).await;
        client.write(&call(&framing, &body)).await;
        let answers = String::from_utf8(client.read_to_end().await).expect("UTF-8");
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
        assert!(answers.starts_with("HTTP/1.1 400 "), "{answers}");
    }
    door.refused(400, 2).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f123_old_http_has_no_chunks_and_nothing_is_upgraded() {
    let (world, gateway) = closed(|config| config).await;
    let door = Door::of(&world, &gateway).await;
    let chunked = format!("{:x}\r\n{CALL}\r\n0\r\n\r\n", CALL.len());
    let old = ["Host: gateway", "Transfer-Encoding: chunked"];
    let reply = gateway.send(&request("POST /v1/calls HTTP/1.0", &old, &chunked)).await;
    assert_eq!(reply.status, 400, "{}", reply.text());

    // What follows an upgrade that was not taken is no second request.
    let hidden = String::from_utf8(post("/v1/calls", Some(API_KEY), CALL)).expect("UTF-8");
    let length = format!("Content-Length: {}", hidden.len());
    let lines = ["Connection: Upgrade, close", "Upgrade: websocket", &length];
    let mut client = RawClient::connect(gateway.api()).await;
    client.write(&call(&lines, &hidden)).await;
    let answers = String::from_utf8(client.read_to_end().await).expect("UTF-8");
    assert!(answers.starts_with("HTTP/1.1 400 "), "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    door.refused(400, 2).await;

    let door = Door::of(&world, &gateway).await;
    let connect = request("CONNECT gateway:443 HTTP/1.1", &["Host: gateway:443"], "");
    let reply = gateway.send(&connect).await;
    assert_eq!((reply.status, message(&reply).as_str()), (405, "CONNECT is not served here"));
    door.refused(405, 1).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f124_a_body_over_the_bound_is_not_read() {
    let (world, gateway) =
        closed(|config| config.set("/listeners/api/max_body", json!("1KiB"))).await;
    let door = Door::of(&world, &gateway).await;
    let chunk = format!("200\r\n{}\r\n", " ".repeat(0x200));
    let bodies = [
        // Announced: refused by its head alone.
        ("Content-Length: 1025", String::new()),
        ("Content-Length: 9007199254740993", String::new()),
        // In chunks without an end: refused by the third one.
        ("Transfer-Encoding: chunked", chunk.repeat(3)),
        ("Transfer-Encoding: chunked", format!("ffffffff\r\n{}", " ".repeat(0x500))),
    ];
    for (framing, body) in &bodies {
        let mut client = RawClient::connect(gateway.api()).await;
        client.write(&call(&[framing], body)).await;
        let reply = client.read_reply().await;
        assert_eq!(message(&reply), "the body is larger than 1024 bytes", "{framing}");
        assert_eq!((reply.status, reply.header("connection")), (413, Some("close")), "{framing}");
    }
    let padded = |size: usize| format!("{CALL}{}", " ".repeat(size - CALL.len()));
    let reply = gateway.post(Some(API_KEY), padded(1025)).await;
    assert_eq!(reply.status, 413, "{}", reply.text());
    door.refused(413, bodies.len() + 1).await;
    // One at the bound is read: what is wrong with it is the tool.
    let reply = gateway.post(Some(API_KEY), padded(1024).replace(r#""x""#, r#""y""#)).await;
    assert_eq!(reply.json()["error"]["code"], "unknown_tool");
    gateway.finish().await;
}

#[tokio::test]
async fn f124_a_head_that_never_ends_is_cut_off() {
    let (world, gateway) =
        closed(|config| config.set("/listeners/api/header_timeout", json!("300ms"))).await;
    for beginning in ["", "P", "POST /v1/calls HTTP/1.1\r\nHost: gateway\r\nX-Slow: 1"] {
        let door = Door::of(&world, &gateway).await;
        let mut client = RawClient::connect(gateway.api()).await;
        client.write(beginning.as_bytes()).await;
        let answer = String::from_utf8(client.read_to_end().await).expect("UTF-8");
        assert!(answer.is_empty(), "{answer:?}");
        // Nobody was answered, so that there is no code to be counted.
        door.refused(408, 0).await;
    }
    gateway.finish().await;
}
