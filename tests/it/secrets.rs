//! No secret and no content comes out of the gateway, however much it is asked to log.

use serde_json::json;

use crate::support::config::{API_KEY, Tool};
use crate::support::gateway::Outcome;
use crate::support::script::{Script, answer, answer_with_headers, head};
use crate::support::world::World;

/// Texts that are no secrets, but that are in no log either.
const ARGUMENT: &str = "argument-Ft7Rq2Xm";
const ANSWER: &str = "answer-Jw4Zk9Lp";

#[tokio::test]
async fn f161_many_kinds_of_calls_at_level_trace_tell_no_secret() {
    let world = World::tls().await;
    world.dns.set("inside.example.com", &["A 10.9.8.7"]);
    world.dns.set("nowhere.example.com", &["NXDOMAIN"]);
    let (bearer, person, wrong) = ("tool-token-Yk3Zr8", "person-Kx83Wq2m", "sk-wrong-Gh5Tn1Rw");
    let old = "whsec_Zp4LwE7uGfRk3JtN6yVs1XcBm";
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}}});
    let gateway = world
        .config()
        .tool(
            world
                .tool("bare")
                .profile("bare-v1")
                .parameters(schema)
                .header("Authorization", "Bearer ", bearer)
                .set("accept_credentials", json!(["X-User-Token"])),
        )
        .tool(world.tool("wrapped").set("timeout", json!("1s")))
        .tool(world.tool("denied").set("policy", json!("deny")))
        .tool(Tool::new("inside", "https://inside.example.com/"))
        .tool(Tool::new("nowhere", "https://nowhere.example.com/"))
        .tool(world.tool("lost"))
        .reach(&world.upstream, &world.dns, "wrong.example.com")
        .tool(Tool::new("wrong", &world.upstream.url("wrong.example.com", "/")))
        .file("secrets/old", old)
        .set("/tools/1/secret/previous", json!({"file": "secrets/old"}))
        .set("/tools/5/secret/current", json!({"file": "secrets/not_there"}))
        .set("/logging/level", json!("trace"))
        .watch(old)
        .watch(person)
        .watch(wrong)
        .start()
        .await;

    let text = |body: &str| answer(200, "text/plain", body);
    let moved = [("Location", "https://elsewhere.example/"), ("Content-Length", "0")];
    let (cut, secret) = (head(200, &[("Content-Length", "99")]), [("X-Secret", bearer)]);
    for script in [
        Script::once(text(ANSWER)),
        Script::once(answer(503, "text/plain", ANSWER)),
        Script::once(text(ANSWER)),
        Script::once(answer(404, "text/plain", "no")),
        Script::once(head(302, &moved)),
        Script::new().request().reset(),
        Script::new().request().send(cut),
        Script::new().request().stall(),
        Script::once(text("\u{0}".repeat(40_000).as_str())),
        // A tool that sends its own secret back in a header.
        Script::once(answer_with_headers(200, &secret, "{}")),
    ] {
        world.upstream.next(script);
    }
    world.upstream.default(Script::new());

    let good = json!({"a": ARGUMENT});
    let credentials = json!({"X-User-Token": person});
    let call = json!({"tool": "bare", "arguments": good, "credentials": credentials});
    gateway.call_with(call).await.succeeded();
    gateway.call("bare", good.clone()).await.succeeded();
    gateway.call("bare", good.clone()).await.failed("http_status", None, "answered");
    gateway.call("wrapped", good.clone()).await.failed("redirect", None, "answered");
    let call = |tool: &'static str| gateway.call(tool, json!({"a": ARGUMENT}));
    call("wrapped").await.failed("network_error", Some("reset"), "unknown");
    call("wrapped").await.failed("network_error", Some("closed"), "unknown");
    call("wrapped").await.failed("timeout", Some("first_byte"), "unknown");
    call("wrapped").await.succeeded();
    call("wrapped").await.succeeded();
    call("wrong").await.failed("network_error", Some("tls"), "not_sent");
    call("denied").await.refused("denied", None);
    call("inside").await.refused("blocked_host", Some("private"));
    call("nowhere").await.failed("network_error", Some("dns"), "not_sent");
    call("lost").await.failed("not_configured", None, "not_sent");
    call("unknown").await.refused("unknown_tool", None);
    gateway.call("bare", json!({"a": "value-Bm8Xs3Vq"})).await.refused("invalid_arguments", None);

    let with = |fields: &str| format!(r#"{{"tool":"bare","arguments":{{}},{fields}}}"#);
    let token = format!(r#""{person}""#);
    for fields in [
        format!(r#""credentials":{{"Authorization":{token}}}"#),
        format!(r#""credentials":{{"X-User-Token":"{person}\r\n"}}"#),
        format!(r#""credentials":[{token}]"#),
        format!(r#""credentials":{token}"#),
        format!(r#""run_id":[{token}]"#),
        format!(r#""wait_ms":{token}"#),
        format!(r#""step":{token}"#),
        format!(r#""arguments":{token}"#),
        format!(r#""end_user":{token}"#),
        token.clone(),
    ] {
        assert_eq!(gateway.post(Some(API_KEY), with(&fields)).await.status, 400, "{fields}");
    }
    assert_eq!(gateway.post(Some(wrong), with("")).await.status, 401);
    Outcome(gateway.post(Some(API_KEY), r#"{"tool":"nobody","arguments":{}}"#).await)
        .refused("unknown_tool", None);

    // Dropping the gateway searches all of it for the secrets; what is no secret stays out of the log too.
    let finished = gateway.finish().await;
    for content in [ARGUMENT, ANSWER, "value-Bm8Xs3Vq", "sk-wrong", "Bearer"] {
        for output in [&finished.stdout, &finished.stderr] {
            assert!(!output.contains(content), "{content} in {output}");
        }
    }
}
