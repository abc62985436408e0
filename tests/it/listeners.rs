//! The listeners, seen by clients.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::http::{RawClient, get, post};
use crate::support::wait::poll;
use crate::support::world::{HOST, World};

/// A whole call of the tool, on a connection that may be kept.
fn call(tool: &str, step: &str) -> Vec<u8> {
    let body = json!({"tool": tool, "arguments": {}, "run_id": "run_1", "step": step});
    kept(&post("/v1/calls", Some(API_KEY), body.to_string()))
}

/// The same request without the wish to close.
fn kept(request: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(request).expect("a request of text");
    text.replace("Connection: close\r\n", "").into_bytes()
}

#[tokio::test]
async fn a_body_that_is_not_whole_does_not_hold_the_end() {
    // Far more than a test waits.
    let config = ConfigBuilder::new().set("/shutdown", json!({"grace": "600s"}));
    let bounds = json!({"address": "127.0.0.1:0", "header_timeout": "300s"});
    let mut gateway = config.set("/listeners/api", bounds).start().await;
    let whole = call("unknown", "1");
    let mut clients = Vec::new();
    for part in [0, whole.len() - 1] {
        let mut client = RawClient::connect(gateway.api()).await;
        client.write(&whole[..part]).await;
        clients.push(client);
    }
    // One whole answer later, the gateway has seen what came before.
    let mut seen = RawClient::connect(gateway.api()).await;
    seen.write(&whole).await;
    assert_eq!(seen.read_reply().await.status, 200);
    gateway.terminate();
    let answer = clients.pop().expect("the body but one byte").read_to_end().await;
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("draining"), "{answer}");
    let finished = gateway.ended().await;
    assert_eq!(finished.code, Some(0), "{finished:#?}");
}

#[tokio::test]
async fn idle_clients_do_not_take_the_telemetry_listener_away() {
    let gateway = ConfigBuilder::new().start().await;
    let mut clients = Vec::new();
    for _ in 0..256 {
        let mut client = RawClient::connect(gateway.telemetry()).await;
        client.write(&kept(&get("/livez"))).await;
        assert_eq!(client.read_reply().await.status, 200);
        clients.push(client);
    }
    assert_eq!(gateway.probe("/readyz").await.status, 200);
    assert!(clients[0].read_to_end().await.is_empty(), "whoever was idle longest made room");
    let last = clients.last_mut().expect("a client");
    last.write(&kept(&get("/livez"))).await;
    assert_eq!(last.read_reply().await.status, 200);
    gateway.finish().await;
}

#[tokio::test]
async fn without_keys_a_web_page_cannot_call_under_its_own_name() {
    let gateway = ConfigBuilder::new().set("/auth", json!("none")).start().await;
    let request = |host: &str| {
        let text = String::from_utf8(call("unknown", "1")).expect("text");
        text.replace("Host: localhost", &format!("Host: {host}")).into_bytes()
    };
    for host in ["localhost", "127.0.0.1:8477", "[::1]:1"] {
        let mut client = RawClient::connect(gateway.api()).await;
        client.write(&request(host)).await;
        assert_eq!(client.read_reply().await.status, 200, "{host}");
    }
    for host in ["evil.example.com", "localhost.example.com:8477", "gateway"] {
        let mut client = RawClient::connect(gateway.api()).await;
        client.write(&request(host)).await;
        let reply = client.read_reply().await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("bad_request")));
        assert!(reply.text().contains("localhost"), "{}", reply.text());
        assert!(!reply.text().contains(host), "{}", reply.text());
    }
    gateway.finish().await;
}

#[tokio::test]
async fn the_log_says_nothing_in_a_client_s_own_words() {
    let gateway = ConfigBuilder::new().start().await;
    let key = "canary".repeat(20_000);
    let bodies = [
        json!({"tool": "t", "arguments": {}, &key: 1}).to_string(),
        json!({"tool": "t", "arguments": {}, "end_user": {&key: 1}}).to_string(),
        format!(r#"{{"tool":"t","arguments":{{"{key}":{{"a":1,"a":2}}}}}}"#),
        json!({"tool": "t", "arguments": {}, "credentials": {&key: "x", key.to_uppercase(): "x"}})
            .to_string(),
    ];
    for body in &bodies {
        let reply = gateway.post(Some(API_KEY), body).await;
        assert_eq!(reply.status, 400);
        assert!(reply.body.len() < 2048, "{} bytes", reply.body.len());
    }
    let refused = |lines: Vec<Value>| {
        let lines = lines.into_iter().filter(|line| line["message"] == "A request was refused.");
        lines.map(|line| line["field"].clone()).collect::<Vec<_>>()
    };
    let fields = poll("the lines", || async {
        Some(refused(gateway.log_lines())).filter(|fields| fields.len() == bodies.len())
    })
    .await;
    assert_eq!(fields, [json!(null), json!("end_user"), json!("arguments"), json!("credentials")]);
    let finished = gateway.finish().await;
    assert!(!finished.stdout.contains("canary"));
}

#[tokio::test]
async fn a_unix_socket_is_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("api.sock");
    let listener = json!({"unix": {"path": path}});
    let gateway = ConfigBuilder::new().set("/listeners/api", listener).start().await;
    let mode = path.metadata().expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).expect("a listener");
    // Any Host is served: no browser reaches a Unix socket.
    stream.write_all(&get("/nothing")).expect("bytes that are taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    gateway.finish().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn exceptions_are_said_at_the_start() {
    let world = World::tls().await;
    let gateway = world.gateway(world.tool("any")).await;
    let lines = gateway.log_lines();
    let said: Vec<_> = lines.iter().filter(|line| line["exception"].is_string()).collect();
    let [line] = said[..] else { panic!("{lines:#?}") };
    let text = line["exception"].as_str().expect("a text");
    for part in [
        &format!("* to {HOST} at 127.0.0.1/32, ports "),
        r#"reason "the test's own upstream""#,
        r#"owner "tests""#,
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(line["level"], "WARN");
    assert_eq!(gateway.metrics().await.value("sortie_egress_exceptions", &[]), 1.0);
    gateway.finish().await;
}
