//! Proves the harness: calls through the real binary, and a leak that does not go unseen.

use serde_json::json;

use crate::support::config::{ConfigBuilder, SECRET, Tool};
use crate::support::http::RawClient;
use crate::support::script::{Script, answer};
use crate::support::world::World;

#[tokio::test]
async fn a_call_runs_from_the_runtime_to_the_tool_and_back() {
    let world = World::tls().await;
    world.upstream.default(Script::always(answer(
        200,
        "application/json",
        r#"{"status":"shipped"}"#,
    )));
    let tool = world
        .tool("lookup_order")
        .profile("bare-v1")
        .parameters(json!({"type": "object", "properties": {"order": {"type": "string"}}}))
        .header("Authorization", "Bearer ", "tool-token-Yk3Zr8");
    let gateway = world.gateway(tool).await;

    let outcome = gateway.call("lookup_order", json!({"order": "A-1042"})).await;

    assert_eq!(outcome.succeeded(), json!({"status": "shipped"}));
    assert_eq!(outcome.model_text(), r#"{"status":"shipped"}"#);
    let request = world.upstream.only_request();
    assert_eq!(request.line(), "POST /lookup_order HTTP/1.1");
    assert_eq!(request.body, br#"{"order":"A-1042"}"#);
    assert_eq!(request.header("authorization"), Some("Bearer tool-token-Yk3Zr8"));
    assert_eq!(gateway.call_line(&outcome.id()).await["code"], "ok");
    let metrics = gateway.metrics().await;
    assert_eq!(
        metrics.value("sortie_calls_total", &[("tool", "lookup_order"), ("code", "ok")]),
        1.0
    );
    assert_eq!(gateway.probe("/livez").await.status, 200);
    assert_eq!(gateway.send(b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n").await.status, 404);
    gateway.finish().await;
}

#[tokio::test]
async fn a_secret_in_an_answer_fails_the_test() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", SECRET)));
    let gateway = world.gateway(world.tool("leaky")).await;
    gateway.call("leaky", json!({})).await.succeeded();
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(gateway)));
    dropped.expect_err("a leak is noticed");
}

#[tokio::test]
async fn refusals_and_failures_are_told_apart() {
    let world = World::plain().await;
    world
        .upstream
        .next(Script::once(answer(503, "text/plain", "later")))
        .default(Script::new().request().reset());
    let gateway = world
        .config()
        .tool(world.tool("flaky").set("timeout", json!("2s")))
        .tool(world.tool("other").profile("plain-v1").no_secret())
        .key("reader", "sk-reader-Hd83kQw7Xz2Lm5Tp", json!({"scopes": ["agent"]}))
        .set("/egress/connect_timeout", json!("1s"))
        .environment("HTTPS_PROXY", "http://127.0.0.1:9")
        .watch("canary-Qw21")
        .start()
        .await;
    gateway.call("flaky", json!({})).await.failed("http_status", None, "answered");
    gateway.call("other", json!({})).await.failed("network_error", Some("reset"), "unknown");
    gateway.call("missing", json!({})).await.refused("unknown_tool", None);
    assert_eq!(gateway.post(Some("sk-reader-Hd83kQw7Xz2Lm5Tp"), "{}").await.status, 403);
    assert!(gateway.folder().path().join("secrets/flaky.secret").exists());
    let mut client = RawClient::connect(gateway.api()).await;
    client.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n").await;
    let refusal = String::from_utf8(client.read_to_end().await).expect("UTF-8");
    assert!(refusal.starts_with("HTTP/1.1 400 "), "{refusal:?}");
    gateway.finish().await;
}

#[test]
fn check_runs_on_a_written_configuration() {
    let finished =
        ConfigBuilder::new().raw("version: [\n").file("tools.d/x.yaml", "").check(&["--strict"]);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let tool = Tool::new("signed", "https://shop.example.com/").profile("standard-webhooks");
    let tool = tool.secret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX");
    let dns = "127.0.0.1:5353".parse().expect("an address");
    let finished = ConfigBuilder::new().tool(tool).dns_at(dns).check(&[]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
}
