//! Keys: who is let in, and for which agents and tools.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::{CALL, call_with, closed_door, error, request, untouched};
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer};
use crate::support::world::World;

const KEY: &str = "sk-bound-Hd83kQw7Xz2Lm5TpRv";
const OLD_KEY: &str = "sk-older-Bn40sJt6Ky9Wc1QzUe";

/// A gateway with tools `lookup` and `refund`, which answer, and one key of these fields beside the usual one.
async fn open_door(fields: Value) -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let config = world.config().tool(world.tool("lookup")).tool(world.tool("refund"));
    let gateway = config.key("bound", KEY, fields).start().await;
    (world, gateway)
}

/// Calls with the bound key, as a step of its own.
async fn call(gateway: &Gateway, mut changes: Value) -> Outcome {
    changes["step"] = json!(gateway.next_step());
    Outcome(gateway.post(Some(KEY), call_with(changes)).await)
}

#[tokio::test]
async fn nobody_calls_without_a_known_key() {
    let (world, gateway) = closed_door(|config| config).await;
    let with = |lines: &[&str]| {
        let length = format!("Content-Length: {}", CALL.len());
        let fixed = ["Host: gateway", "Content-Type: application/json", &length];
        request("POST /v1/calls HTTP/1.1", &[&fixed, lines].concat(), CALL)
    };
    let known = format!("Authorization: Bearer {API_KEY}");
    for lines in [
        vec![],
        vec!["Authorization: Bearer sk-wrong-Wq9"],
        vec!["Authorization: Bearer "],
        vec!["Authorization: Bearer"],
        vec!["Authorization: Basic c2stdGVzdDo="],
        vec![&*format!("Authorization: {API_KEY}")],
        vec![&*format!("Authorization: Bearer {}", &API_KEY[..API_KEY.len() - 1])],
        vec![&*format!("Authorization: Bearer {API_KEY}x")],
        vec![&*format!("X-Api-Key: {API_KEY}")],
        vec![&*known, "Authorization: Bearer other"],
        vec![&*known, &*known],
    ] {
        let reply = gateway.send(&with(&lines)).await;
        let message = error(&reply, 401, "unauthorized", None);
        assert_eq!(message, "a known key is required: `Authorization: Bearer KEY`", "{lines:?}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{lines:?}");
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn only_the_scope_agent_call_runs_calls() {
    let (world, gateway) = closed_door(|config| {
        let others = ["agent", "agent:write", "agent:approve", "agent:policy"];
        config.key("desk", KEY, json!({"scopes": others}))
    })
    .await;
    let reply = gateway.post(Some(KEY), CALL).await;
    let message = error(&reply, 403, "missing_scope", None);
    assert_eq!(message, "the key `desk` does not have the scope `agent:call`");
    untouched(world, gateway).await;
}

#[tokio::test]
async fn a_request_is_judged_from_the_key_inwards() {
    let (world, gateway) = closed_door(|config| {
        config
            .key("reader", KEY, json!({"scopes": ["agent"]}))
            .set("/listeners/api/max_body", json!("1KiB"))
    })
    .await;
    let large = "x".repeat(2000);
    let post = |key: &str, kind: &str, body: &str| {
        let (key, kind) = (format!("Authorization: Bearer {key}"), format!("Content-Type: {kind}"));
        let length = format!("Content-Length: {}", body.len());
        let lines = ["Host: gateway", "Connection: close", &key, &kind, &length];
        request("POST /v1/calls HTTP/1.1", &lines, body)
    };
    let send = async |key, kind, body| gateway.send(&post(key, kind, body)).await;
    let json = "application/json";
    error(&send("nobody", "text/plain", &large).await, 401, "unauthorized", None);
    error(&send(KEY, "text/plain", &large).await, 403, "missing_scope", None);
    error(&send(API_KEY, "text/plain", &large).await, 415, "unsupported_type", None);
    error(&send(API_KEY, json, &large).await, 413, "too_large", None);
    error(&send(API_KEY, json, "x").await, 400, "bad_request", Some(""));
    untouched(world, gateway).await;
}

#[tokio::test]
async fn a_key_of_one_agent_speaks_for_it() {
    let (world, gateway) =
        open_door(json!({"scopes": ["agent:call"], "agents": ["support"]})).await;
    let filled = call(&gateway, json!({"call_id": "call_filled"})).await;
    filled.succeeded();
    call(&gateway, json!({"agent_id": "support"})).await.succeeded();
    for request in world.upstream.requests() {
        assert_eq!(request.json()["agent_id"], "support");
    }
    assert_eq!(gateway.call_line("call_filled").await["agent_id"], "support");
    for other in ["sales", "Support", "support ", "support-eu"] {
        let refused = call(&gateway, json!({"agent_id": other})).await;
        refused.refused("not_allowed_for_key", None);
        assert_eq!(refused.model_text(), "This call is not allowed.");
    }
    assert_eq!(world.upstream.requests().len(), 2);
    gateway.finish().await;
}

#[tokio::test]
async fn a_key_of_agents_by_pattern_needs_a_claim_inside_of_it() {
    let fields = json!({"scopes": ["agent:call"], "agents": ["support-*", "desk"]});
    let (world, gateway) = open_door(fields).await;
    call(&gateway, json!({"agent_id": "support-eu"})).await.succeeded();
    call(&gateway, json!({"agent_id": "desk"})).await.succeeded();
    for outside in [json!({}), json!({"agent_id": null}), json!({"agent_id": "sales"})] {
        call(&gateway, outside).await.refused("not_allowed_for_key", None);
    }
    assert_eq!(world.upstream.requests().len(), 2);
    gateway.finish().await;
}

#[tokio::test]
async fn a_key_of_tools_learns_nothing_about_others() {
    let (world, gateway) = open_door(json!({"scopes": ["agent:call"], "tools": ["look*"]})).await;
    call(&gateway, json!({})).await.succeeded();
    call(&gateway, json!({"tool": "lookalike"})).await.refused("unknown_tool", None);
    let shown = |outcome: &Outcome| {
        ["/tool_id", "/tool_version", "/kind", "/decision", "/model", "/error"]
            .map(|pointer| outcome.at(pointer))
    };
    let known = call(&gateway, json!({"tool": "refund"})).await;
    known.refused("not_allowed_for_key", None);
    let unknown = call(&gateway, json!({"tool": "nothing"})).await;
    unknown.refused("not_allowed_for_key", None);
    assert_eq!(shown(&known), shown(&unknown));
    assert_eq!(known.at("/tool_id"), Value::Null);
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

#[tokio::test]
async fn a_key_may_stand_in_the_file_as_its_digest() {
    let digest: String =
        Sha256::digest(KEY.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let config = world.config().tool(world.tool("lookup"));
    let gateway = config
        .key("digest", KEY, json!({"scopes": ["agent:call"]}))
        .set("/auth/keys/1/key", json!({"sha256": digest}))
        .start()
        .await;
    call(&gateway, json!({})).await.succeeded();
    // The digest is no key.
    error(&gateway.post(Some(&digest), CALL).await, 401, "unauthorized", None);
    gateway.finish().await;
}

fn with_end(config: ConfigBuilder, expires: &str) -> ConfigBuilder {
    config
        .key("changing", KEY, json!({"scopes": ["agent:call"], "expires": expires}))
        .file("secrets/older.key", &format!("{OLD_KEY}\n"))
        .watch(OLD_KEY)
        .set("/auth/keys/1/previous", json!({"file": "secrets/older.key"}))
}

#[tokio::test]
async fn two_values_of_a_key_are_taken_while_it_is_replaced() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let config = world.config().tool(world.tool("lookup"));
    let gateway = with_end(config, "2999-12-31").start().await;
    for key in [KEY, OLD_KEY] {
        let outcome = Outcome(gateway.post(Some(key), CALL).await);
        outcome.succeeded();
        assert_eq!(gateway.call_line(&outcome.id()).await["key"], "changing");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn a_key_ends_with_both_of_its_values() {
    let (world, gateway) = closed_door(|config| with_end(config, "2020-12-31")).await;
    for key in [KEY, OLD_KEY] {
        error(&gateway.post(Some(key), CALL).await, 401, "unauthorized", None);
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn without_authentication_loopback_may_call() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let config = world.config().tool(world.tool("lookup")).set("/auth", json!("none"));
    let gateway = config.start().await;
    let outcome = Outcome(gateway.post(None, CALL).await);
    outcome.succeeded();
    assert_eq!(gateway.call_line(&outcome.id()).await["key"], "none");
    gateway.finish().await;
}
