//! What a tool's server is sent, byte for byte, as it was captured by the server itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde_json::{Value, json};

use crate::support::certs::Authority;
use crate::support::config::{ConfigBuilder, SECRET, Tool};
use crate::support::dns::DnsServer;
use crate::support::gateway::Gateway;
use crate::support::receiver::{hex, hmac, verify};
use crate::support::script::{Script, answer};
use crate::support::upstream::{Request, Upstream};
use crate::support::world::World;

const BASE64_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// A request of the golden files, and how to make it happen.
struct Golden {
    profile: &'static str,
    tool: &'static str,
    url: (&'static str, &'static str),
    secret: Option<&'static str>,
    call: Value,
    text: &'static str,
}

fn scan(profile: &'static str, path: &'static str, text: &'static str) -> Golden {
    let call = json!({
        "tool": "scans.start", "arguments": {"scanId": "RX-4471"},
        "run_id": "run_7Hq2xV", "step": "3", "call_id": "call_8f2c",
    });
    let url = ("scans.example.com", path);
    Golden { profile, tool: "scans.start", url, secret: Some(SECRET), call, text }
}

/// The server's name without a port, or with another one, is this server's.
fn at_port(text: &str, host: &str, port: u16) -> String {
    let line = Regex::new(&format!("Host: {}(:[0-9]+)?\r\n", regex::escape(host))).expect("valid");
    line.replace(text, format!("Host: {host}:{port}\r\n")).into_owned()
}

/// The first group of a pattern that must be found.
#[track_caller]
fn find(pattern: &str, text: &str) -> String {
    let found = Regex::new(pattern).expect("a pattern").captures(text);
    found.unwrap_or_else(|| panic!("no {pattern} in {text}"))[1].to_owned()
}

const SIGNATURE: &str = "v1[=,]([0-9a-f]{64}|[A-Za-z0-9+/]{43}=)";
const TIME: &str = "(?:t=|webhook-timestamp: )([0-9]{10})";
const SENT_AT: &str = r#""sent_at":"([^"]+)""#;

/// The signature of a request text, computed from the contract.
fn signature(text: &str, secret: &str) -> String {
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let t = find(TIME, head);
    if head.contains("webhook-signature: ") {
        let id = find("webhook-id: ([^\r]+)\r\n", head);
        let key = secret.strip_prefix("whsec_").expect("the prefix of a key");
        let key = STANDARD.decode(key).expect("base64");
        return STANDARD.encode(hmac(&key, format!("{id}.{t}.{body}").as_bytes()));
    }
    hex(&hmac(secret.as_bytes(), format!("{t}.{body}").as_bytes()))
}

/// The golden text with the port, the times and the signature of this moment.
#[track_caller]
fn expected(golden: &Golden, port: u16, captured: &str) -> String {
    let mut text = at_port(golden.text, golden.url.0, port);
    let Some(secret) = golden.secret else { return text };
    let right = find(SIGNATURE, &text);
    assert_eq!(signature(&text, secret), right, "the golden file's own signature");
    if text.contains("\"sent_at\"") {
        let (then, now) = (find(SENT_AT, &text), find(SENT_AT, captured));
        text = text.replace(&then, &now);
        // S3-113: its whole second is t.
        let time: jiff::Timestamp = now.parse().expect("RFC 3339");
        assert_eq!(time.as_second().to_string(), find(TIME, captured));
        assert!(now.len() == 24 && now.ends_with('Z'), "three decimals: {now}");
    }
    text = text.replace(&find(TIME, &text), &find(TIME, captured));
    let signature = signature(&text, secret);
    text.replace(&right, &signature)
}

#[tokio::test]
async fn each_profile_sends_its_golden_bytes() {
    let order = Golden {
        profile: "envelope-v1",
        tool: "lookup_order",
        url: ("shop.example.com", "/tools/lookup-order"),
        secret: Some(SECRET),
        call: json!({
            "tool": "lookup_order", "arguments": {"order_number": "A-1042"},
            "call_id": "call_8f2c", "agent_id": "0193b1e2-6c1d-7a4e-9f20-5d8a3c2b1e07",
            "session_id": "0193b2f0", "turn_id": "0193b2f1",
            "end_user": {"id": "eu_7GqT2mXcV9pLs4Hd", "external_id": "cust-77"},
        }),
        text: include_str!("../golden/envelope-v1.http"),
    };
    let bare = scan("bare-v1", "/api/scans", include_str!("../golden/bare-v1.http"));
    let plain = scan("plain-v1", "/api/scans", include_str!("../golden/plain-v1.http"));
    let webhooks = include_str!("../golden/standard-webhooks.http");
    let webhooks = scan("standard-webhooks", "/api/scans?region=eu", webhooks);
    let plain = Golden { secret: None, ..plain };
    let webhooks = Golden { secret: Some(BASE64_SECRET), ..webhooks };
    for golden in [order, bare, plain, webhooks] {
        let authority = Authority::new();
        // A server that would rather speak HTTP/2.
        let leaf = authority.leaf(&[golden.url.0]);
        let upstream = Upstream::with_tls_config(leaf.server_config(&["h2", "http/1.1"])).await;
        upstream.default(Script::always(answer(200, "application/json", "{}")));
        let dns = DnsServer::start().await;
        let mut tool = Tool::new(golden.tool, &upstream.url(golden.url.0, golden.url.1))
            .profile(golden.profile)
            .parameters(json!({"type": "object", "properties": {}}))
            .header("Authorization", "Bearer ", "shop-token")
            .header("X-Team", "", "warehouse");
        tool = match golden.secret {
            Some(secret) => tool.secret(secret),
            None => tool.no_secret(),
        };
        let config = ConfigBuilder::new().reach(&upstream, &dns, golden.url.0);
        let gateway = config.ca(&authority.pem()).tool(tool).start().await;
        gateway.call_with(golden.call.clone()).await.succeeded();

        let captured = String::from_utf8(upstream.only_request().raw()).expect("UTF-8");
        assert_eq!(captured, expected(&golden, upstream.port(), &captured), "{}", golden.profile);
        let connection = upstream.connections().remove(0);
        assert_eq!(connection.alpn, ["http/1.1"], "only HTTP/1.1 is offered");
        assert_eq!(connection.server_name.as_deref(), Some(golden.url.0));
        gateway.finish().await;
    }
}

/// A gateway with one tool whose server answers, and what it was sent.
async fn answering(tool: impl FnOnce(Tool) -> Tool) -> (World, Gateway) {
    let world = World::tls().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let gateway = world.gateway(tool(world.tool("x"))).await;
    (world, gateway)
}

async fn sent(world: &World, gateway: &Gateway, changes: Value) -> Request {
    let mut body = json!({"tool": "x", "arguments": {}});
    for (name, value) in changes.as_object().expect("an object") {
        body[name] = value.clone();
    }
    gateway.call_with(body).await.succeeded();
    world.upstream.requests().pop().expect("a request")
}

#[tokio::test]
async fn each_attempt_is_signed_anew_over_the_same_body_and_key() {
    let world = World::tls().await;
    let again = Script::once(answer(503, "text/plain", "later"));
    world.upstream.next(again).next(Script::once(answer(200, "application/json", "{}")));
    let gateway = world.gateway(world.tool("x").profile("bare-v1")).await;
    let outcome = gateway.call("x", json!({"a": 1e2})).await;
    outcome.succeeded();
    let requests = world.upstream.requests();
    let [first, second] = &requests[..] else { panic!("two requests: {requests:#?}") };
    assert_eq!(first.body, second.body);
    let key = first.header("Idempotency-Key").expect("a key");
    assert_eq!(Some(key), second.header("Idempotency-Key"));
    assert_eq!(outcome.at("/idempotency_key"), key);
    assert!(verify(first, "CL-Signature", SECRET) <= verify(second, "CL-Signature", SECRET));
    gateway.finish().await;
}

#[tokio::test]
async fn what_a_call_did_not_give_is_null_in_the_envelope() {
    let (world, gateway) = answering(|tool| tool).await;
    let request = sent(&world, &gateway, json!({"end_user": {}})).await;
    verify(&request, "X-Tool-Signature", SECRET);
    let body = String::from_utf8(request.body).expect("UTF-8");
    let call = find(r#""call_id":"(call_[A-Za-z0-9]{16})""#, &body);
    let sent_at = find(SENT_AT, &body);
    assert_eq!(
        body,
        format!(
            r#"{{"tool":"x","call_id":"{call}","arguments":{{}},"agent_id":null,"session_id":null,"turn_id":null,"end_user":{{"id":null,"external_id":null}},"test":false,"sent_at":"{sent_at}"}}"#
        )
    );
    let request = sent(&world, &gateway, json!({})).await;
    assert_eq!(request.json()["end_user"], Value::Null);
    gateway.finish().await;
}

#[tokio::test]
async fn f130_two_secrets_sign_side_by_side_while_one_is_replaced() {
    const OLD: &str = "whsec_Zp4LwE7uGfRk3JtN6yVs1XcBm";
    for (last, order) in [("previous", [SECRET, OLD]), ("current", [OLD, SECRET])] {
        let world = World::tls().await;
        world.upstream.default(Script::always(answer(200, "application/json", "{}")));
        let gateway = world
            .config()
            .tool(world.tool("x"))
            .file("secrets/old", OLD)
            .watch(OLD)
            .set("/tools/0/secret/previous", json!({"file": "secrets/old"}))
            .set("/tools/0/secret/last", json!(last))
            .start()
            .await;
        let request = sent(&world, &gateway, json!({})).await;
        let value = request.header("X-Tool-Signature").expect("a signature");
        let t = find(TIME, value);
        let signed = [t.as_bytes(), b".", &request.body].concat();
        let [first, second] = order.map(|key| hex(&hmac(key.as_bytes(), &signed)));
        assert_eq!(value, format!("t={t},v1={first},v1={second}"), "{last}");
        let active = gateway.metrics().await.value("sortie_signing_keys_active", &[("tool", "x")]);
        assert_eq!(active, 2.0);
        gateway.finish().await;
    }
}

#[tokio::test]
async fn own_headers_go_out_with_their_prefix_and_letter_case() {
    let (world, gateway) = answering(|tool| {
        tool.header("authorization", "Bearer ", "tool-token-Yk3Zr8")
            .header("x-API-key", "", "api-key-Wm4Qt7Zx")
            .header("X-Note", "a  b; ", "note-text-Rt5Yb2")
    })
    .await;
    let request = sent(&world, &gateway, json!({})).await;
    let headers = request.headers();
    let own: Vec<_> = headers.iter().skip(6).take(headers.len() - 7).copied().collect();
    assert_eq!(headers.last().map(|(name, _)| *name), Some("Content-Length"));
    let mut sorted = own.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            ("X-Note", "a  b; note-text-Rt5Yb2"),
            ("authorization", "Bearer tool-token-Yk3Zr8"),
            ("x-API-key", "api-key-Wm4Qt7Zx"),
        ]
    );
    gateway.finish().await;
}

#[tokio::test]
async fn a_person_s_credential_reaches_the_tool_for_one_call_alone() {
    let world = World::tls().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let tool = world
        .tool("x")
        .header("X-Account", "", "account-Pw6Vn3Kd")
        .set("accept_credentials", json!(["X-User-Token", "X-Other"]));
    let token = "person-one-Kx83Wq2m";
    let config = world.config().watch(token);
    let gateway = config.tool(tool).set("/logging/level", json!("trace")).start().await;
    let credentials = json!({"credentials": {"x-user-token": token}});
    let first = sent(&world, &gateway, credentials).await;
    assert!(first.head.contains(&format!("\r\nX-User-Token: {token}\r\n")), "{}", first.head);
    assert_eq!(first.header("X-Account"), Some("account-Pw6Vn3Kd"));
    // Neither kept for the next call, nor with the connection, which is kept.
    let second = sent(&world, &gateway, json!({})).await;
    assert_eq!((second.header("X-User-Token"), second.connection), (None, first.connection));
    assert_eq!(second.header("X-Account"), Some("account-Pw6Vn3Kd"));
    for request in world.upstream.requests() {
        assert!(!String::from_utf8_lossy(&request.body).contains("person-"));
    }
    gateway.finish().await;
}

#[tokio::test]
async fn an_operator_s_own_format_needs_no_code() {
    let world = World::tls().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let profile = json!({
        "name": "hub", "names": "^[a-z][a-z0-9_]*$", "schema": "full", "policy": "allow",
        "timeout": {"default": "10s", "min": "1s", "max": "60s"}, "result_max_bytes": "64KiB",
        "retry": {"attempts": 2, "on": ["network", 503]}, "error_body": "4xx",
        "headers": [
            {"name": "Host", "value": "$host"},
            {"name": "content-type", "value": "application/json"},
            {"name": "X-Hub-Signature-256", "value": "$signature"},
            {"name": "X-GitHub-Delivery", "value": "$call_id"},
            "$own",
            {"name": "Content-Length", "value": "$content_length"},
        ],
        "body": {"event": "$tool", "input": "$arguments", "user": "$agent_id?", "fixed": [1, "x"]},
        "signature": {"signed": "{body}", "key": "text", "digest": "hex", "value": "sha256={digest}"},
    });
    let tool = world.tool("x").profile("hub").header("X-Own", "", "own-value-Lk2Mq8");
    let config = world.config().set("/profiles", json!([profile])).tool(tool);
    let gateway = config.start().await;
    let request = sent(&world, &gateway, json!({"call_id": "call_8f2c"})).await;
    let body = String::from_utf8(request.body.clone()).expect("UTF-8");
    // A body template is an object, whose keys the test's own JSON has put in order.
    assert_eq!(body, r#"{"event":"x","fixed":[1,"x"],"input":{}}"#);
    let digest = hex(&hmac(SECRET.as_bytes(), body.as_bytes()));
    assert_eq!(
        request.head,
        format!(
            "POST /x HTTP/1.1\r\nHost: tool.example.com:{}\r\ncontent-type: application/json\r\n\
             X-Hub-Signature-256: sha256={digest}\r\nX-GitHub-Delivery: call_8f2c\r\n\
             X-Own: own-value-Lk2Mq8\r\nContent-Length: {}\r\n\r\n",
            world.upstream.port(),
            body.len()
        )
    );
    gateway.finish().await;
}

#[test]
fn the_verifier_of_these_tests_agrees_with_github() {
    let digest = hex(&hmac(b"It's a Secret to Everybody", b"Hello, World!"));
    assert_eq!(digest, "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17");
}
