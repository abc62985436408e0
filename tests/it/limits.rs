//! What is refused because it comes too early or too often: rate limits, pauses and places.

mod pauses;
mod places;

use serde_json::{Value, json};

use crate::support::config::Tool;
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer};
use crate::support::world::World;

/// A second key, beside the one that every configuration has.
const OTHER_KEY: &str = "sk-test-Hw3Jd8Nf5Qs0Yb6Kc1";

/// Fails unless the call was refused with a sentence that begins so and a wait of at most `most` seconds.
#[track_caller]
fn refused(outcome: &Outcome, code: &str, sentence: &str, most: u64) {
    outcome.refused(code, None);
    assert_eq!(outcome.at("/error/retryable"), json!(true), "{}", outcome.0.text());
    let text = outcome.model_text();
    assert_eq!(json!(text), outcome.at("/error/message"));
    let wait = text.strip_prefix(sentence).and_then(|rest| rest.strip_prefix(" try again in "));
    let wait = wait.and_then(|rest| rest.strip_suffix(" s.")).unwrap_or_else(|| panic!("{text}"));
    let seconds: u64 = wait.parse().expect("whole seconds");
    assert!((1..=most).contains(&seconds), "{text}");
    assert_eq!(outcome.at("/error/retry_after_ms"), json!(seconds * 1000));
    assert_eq!(outcome.at("/attempts"), json!([]));
}

/// A tool with these rate limits.
fn limited(world: &World, name: &str, limits: Value) -> Tool {
    world.tool(name).set("rate_limits", limits)
}

async fn call_as(gateway: &Gateway, key: &str, body: Value) -> Outcome {
    Outcome(gateway.post(Some(key), body.to_string()).await)
}

async fn counted(gateway: &Gateway, tool: &str, scope: &str) -> f64 {
    let labels = [("tool", tool), ("scope", scope)];
    gateway.metrics().await.value("sortie_rate_limited_total", &labels)
}

#[tokio::test]
async fn a_burst_passes_and_the_next_call_is_told_when_to_come_again() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let limit = json!([{"per": "tool", "rate": "1/h", "burst": 3}]);
    let gateway = world.config().tool(limited(&world, "rare", limit)).start().await;
    assert_eq!(counted(&gateway, "rare", "tool").await, 0.0);
    for _ in 0..3 {
        gateway.call("rare", json!({})).await.succeeded();
    }
    let outcome = gateway.call("rare", json!({})).await;
    let sentence = "The tool's limit of 1 call an hour is reached;";
    refused(&outcome, "rate_limited", sentence, 3600);
    assert_eq!(outcome.at("/decision/effect"), json!("allow"));
    assert_eq!(world.upstream.requests().len(), 3);
    assert_eq!(counted(&gateway, "rare", "tool").await, 1.0);
    let labels = [("tool", "rare"), ("code", "rate_limited"), ("fault", "policy")];
    assert_eq!(gateway.metrics().await.value("sortie_calls_total", &labels), 1.0);
    let line = gateway.call_line(&outcome.id()).await;
    assert_eq!((&line["status"], &line["attempts"]), (&json!("refused"), &json!(0)));
    gateway.finish().await;
}

#[tokio::test]
async fn calls_are_counted_for_whom_the_limit_says() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let scopes = ["tool", "organisation", "key", "agent", "end_user"];
    let mut config = world.config().key("other", OTHER_KEY, json!({"scopes": ["agent:call"]}));
    for scope in scopes {
        let limit = json!([{"per": scope, "rate": "1/day"}]);
        config = config.tool(limited(&world, &format!("per_{scope}"), limit));
    }
    let gateway = config.start().await;
    let call = |agent: Option<&str>, user: Option<&str>| json!({"arguments": {}, "agent_id": agent, "end_user": {"external_id": user}});
    let first = call(Some("support"), Some("cust-1"));
    for scope in scopes {
        let tool = format!("per_{scope}");
        // The same again, and one that differs from it in the key, the agent and the person.
        for (key, mut body, passes) in [
            (crate::support::config::API_KEY, first.clone(), true),
            (crate::support::config::API_KEY, first.clone(), false),
            (OTHER_KEY, first.clone(), scope == "key"),
            (OTHER_KEY, call(Some("sales"), Some("cust-1")), scope == "agent"),
            (OTHER_KEY, call(Some("sales"), Some("cust-2")), scope == "end_user"),
            // Those without a name are one.
            (OTHER_KEY, call(None, None), ["agent", "end_user"].contains(&scope)),
            (OTHER_KEY, call(None, None), false),
        ] {
            body["tool"] = json!(tool);
            let outcome = call_as(&gateway, key, body.clone()).await;
            if passes {
                outcome.succeeded();
            } else {
                let sentence = "The tool's limit of 1 call a day is reached;";
                refused(&outcome, "rate_limited", sentence, 86_400);
            }
        }
        let passed = match scope {
            "agent" | "end_user" => 3.0,
            "key" => 2.0,
            _ => 1.0,
        };
        assert_eq!(counted(&gateway, &tool, scope).await, 7.0 - passed, "{scope}");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn the_first_limit_of_the_list_that_is_reached_is_the_one_that_is_told() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let rates = json!([{"per": "key", "rate": "2/h"}, {"per": "tool", "rate": "1/day"}]);
    let gateway = world
        .config()
        .set("/defaults/rate_limits", rates)
        .tool(world.tool("both"))
        .tool(world.tool("none").set("rate_limits", json!([])))
        .start()
        .await;
    gateway.call("both", json!({})).await.succeeded();
    let day = "The tool's limit of 1 call a day is reached;";
    refused(&gateway.call("both", json!({})).await, "rate_limited", day, 86_400);
    let hours = "The tool's limit of 2 calls an hour is reached;";
    refused(&gateway.call("both", json!({})).await, "rate_limited", hours, 1800);
    // A tool's own list stands for that of the defaults.
    for _ in 0..4 {
        gateway.call("none", json!({})).await.succeeded();
    }
    gateway.finish().await;
}

#[tokio::test]
async fn replicas_share_a_rate() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let limit = json!([{"per": "tool", "rate": "6/day"}]);
    let config = world.config().set("/defaults/rate_limit_replicas", json!(3));
    let gateway = config.tool(limited(&world, "shared", limit)).start().await;
    for _ in 0..2 {
        gateway.call("shared", json!({})).await.succeeded();
    }
    let sentence = "The tool's limit of 6 calls a day is reached;";
    refused(&gateway.call("shared", json!({})).await, "rate_limited", sentence, 43_200);
    gateway.finish().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_told_before_that_it_came_too_often() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let limit = json!([{"per": "tool", "rate": "1/day"}]);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let tool = limited(&world, "strict", limit).parameters(schema);
    let gateway = world.config().tool(tool).start().await;
    // It spends nothing.
    for _ in 0..3 {
        gateway.call("strict", json!({"n": "x"})).await.refused("invalid_arguments", None);
    }
    gateway.call("strict", json!({"n": 1})).await.succeeded();
    gateway.call("strict", json!({"n": "x"})).await.refused("invalid_arguments", None);
    gateway.call("strict", json!({"n": 1})).await.refused("rate_limited", None);
    gateway.finish().await;
}
