//! Policies over many tools: what they refuse reaches no server, and what only watches changes nothing.

use serde_json::{Value, json};

use crate::support::config::Tool;
use crate::support::gateway::Gateway;
use crate::support::http::request;
use crate::support::script::{Script, answer};
use crate::support::world::World;

const POLICY_KEY: &str = "sk-policy-Qd7RtV2xHn5YbK8m";

fn refund(world: &World) -> Tool {
    let schema = json!({"type": "object", "properties": {"amount": {"type": "number"}}});
    world.tool("refund").parameters(schema)
}

fn over(amount: u64) -> Value {
    json!([{"pointer": "/amount", "operator": "greater_than", "threshold": amount}])
}

/// A tool `refund` under one policy, and a tool `lookup`.
async fn under(policy: Value) -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let config = world.config().tool(refund(&world)).tool(world.tool("lookup"));
    let gateway = config.set("/policies", json!([policy])).start().await;
    (world, gateway)
}

async fn decisions(gateway: &Gateway, effect: &str, mode: &str) -> f64 {
    let labels = [("tool", "refund"), ("effect", effect), ("mode", mode)];
    gateway.metrics().await.value("sortie_policy_decisions_total", &labels)
}

#[tokio::test]
async fn a_policy_refuses_what_it_is_about_and_the_model_reads_its_message() {
    let (world, gateway) = under(json!({
        "id": "big-refunds", "match": {"tools": ["ref*"], "when": over(500)}, "effect": "deny",
        "message": "Refunds end at 500.",
    }))
    .await;
    for (amount, text) in [(json!(501), "over"), (json!(1e3), "far over"), (Value::Null, "absent")]
    {
        let arguments = if amount.is_null() { json!({}) } else { json!({ "amount": amount }) };
        let outcome = gateway.call("refund", arguments).await;
        outcome.refused("denied", None);
        assert_eq!(outcome.model_text(), "This call is not allowed. Refunds end at 500.", "{text}");
        let decision = json!({
            "effect": "deny", "policy": "big-refunds", "rule": "/amount greater_than 500", "shadow": [],
        });
        assert_eq!(outcome.at("/decision"), decision);
    }
    world.upstream.assert_untouched().await;
    assert_eq!(decisions(&gateway, "deny", "enforce").await, 3.0);
    let outcome = gateway.call("refund", json!({"amount": 500})).await;
    outcome.succeeded();
    assert_eq!(outcome.at("/decision/policy"), json!("tool"));
    gateway.call("lookup", json!({})).await.succeeded();
    gateway.finish().await;
}

/// Requirement S1-047.
#[tokio::test]
async fn a_policy_in_shadow_mode_watches() {
    let (world, gateway) = under(json!({
        "id": "big-refunds", "mode": "shadow", "match": {"when": over(500)}, "effect": "deny",
    }))
    .await;
    let outcome = gateway.call("refund", json!({"amount": 501})).await;
    outcome.succeeded();
    let shadow =
        json!([{"policy": "big-refunds", "effect": "deny", "rule": "/amount greater_than 500"}]);
    assert_eq!(outcome.at("/decision/effect"), json!("allow"));
    assert_eq!(outcome.at("/decision/shadow"), shadow);
    assert_eq!(gateway.call_line(&outcome.id()).await["shadow"], json!("deny"));
    let small = gateway.call("refund", json!({"amount": 5})).await;
    small.succeeded();
    assert_eq!(small.at("/decision/shadow"), json!([]));
    assert_eq!(decisions(&gateway, "deny", "shadow").await, 1.0);
    assert_eq!(decisions(&gateway, "allow", "enforce").await, 2.0);
    let disagreements = [("tool", "refund")];
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.value("sortie_policy_shadow_disagreements_total", &disagreements), 1.0);
    assert_eq!(world.upstream.requests().len(), 2);
    gateway.finish().await;
}

#[tokio::test]
async fn a_policy_of_agents_is_about_theirs_alone() {
    let (world, gateway) =
        under(json!({"id": "sales", "match": {"agents": ["sales-*"]}, "effect": "deny"})).await;
    let call = async |agent: Value| {
        let body = json!({"tool": "refund", "arguments": {}, "agent_id": agent});
        gateway.call_with(body).await
    };
    call(json!("sales-eu")).await.refused("denied", None);
    call(json!("support")).await.succeeded();
    call(Value::Null).await.succeeded();
    assert_eq!(world.upstream.requests().len(), 2);
    gateway.finish().await;
}

/// Requirement S1-045. Of a tool of the file, that is where it changes.
#[tokio::test]
async fn a_tool_s_own_policy_is_changed_in_the_file_and_holds_for_the_next_call() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let with = |policy: &str| {
        let tool = refund(&world).set("policy", json!(policy));
        let key = json!({"scopes": ["agent:policy"]});
        world.config().tool(tool).key("desk", POLICY_KEY, key)
    };
    let gateway = with("require_approval").start().await;
    let waits = gateway.call("refund", json!({"amount": 9})).await;
    assert_eq!((waits.0.status, waits.at("/status")), (202, json!("waiting_approval")));
    let body = json!({"effect": "allow"}).to_string();
    let put = request("PUT", "/v1/tools/refund/policy", Some(POLICY_KEY), &body);
    let put = gateway.send(put.as_bytes()).await;
    assert_eq!((put.status, &put.json()["error"]["code"]), (409, &json!("file_managed")));
    let waits = gateway.call("refund", json!({"amount": 9})).await;
    assert_eq!(waits.at("/status"), json!("waiting_approval"), "nothing has changed");
    crate::reload::apply(&gateway, &with("allow").text()).await;
    gateway.call("refund", json!({"amount": 9})).await.succeeded();
    crate::reload::apply(&gateway, &with("deny").text()).await;
    gateway.call("refund", json!({"amount": 9})).await.refused("denied", None);
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

#[tokio::test]
async fn a_policy_that_a_reload_brings_holds_for_the_next_call() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let config = || world.config().tool(refund(&world));
    let gateway = config().start().await;
    gateway.call("refund", json!({"amount": 9})).await.succeeded();
    let closed = config().set("/policies", json!([{"id": "closed", "effect": "deny"}])).text();
    crate::reload::apply(&gateway, &closed).await;
    gateway.call("refund", json!({"amount": 9})).await.refused("denied", None);
    crate::reload::apply(&gateway, &config().text()).await;
    gateway.call("refund", json!({"amount": 9})).await.succeeded();
    assert_eq!(world.upstream.requests().len(), 2);
    gateway.finish().await;
}
