//! Two gateways on one PostgreSQL: what waits is held by none of them, and runs once.

use serde_json::{Value, json};

use super::{API_KEY, approved, ask, config, decide, end, read, waits};
use crate::support::config::ConfigBuilder;
use crate::support::gateway::{Gateway, Outcome};
use crate::support::postgres::Postgres;
use crate::support::script::{Script, answer};
use crate::support::wait::{poll, together};
use crate::support::world::World;

/// Two gateways with the same configuration; `None` where there is no PostgreSQL.
async fn two(policy: &str) -> Option<(World, Gateway, Gateway)> {
    let (world, config) = shared(policy).await?;
    let (one, other) = (config.start().await, config.start().await);
    Some((world, one, other))
}

async fn shared(policy: &str) -> Option<(World, ConfigBuilder)> {
    let url = Postgres::shared()?.database().await;
    let (world, config) = config(policy).await;
    Some((world, config.set("/storage", json!({ "url": url }))))
}

#[tokio::test]
async fn an_approval_given_at_one_lets_the_call_of_the_other_run_once() {
    let Some((world, one, other)) = two("require_approval").await else { return };
    for round in 0..5 {
        let waiting = one.call("refund", json!({"amount": round})).await;
        let id = waits(&waiting);
        // Both see it, both are asked at the same time, and one of the answers counts.
        assert_eq!(waits(&read(&other, &id).await), id);
        let deciding = [decide(&one, &waiting, "approve"), decide(&other, &waiting, "approve")];
        let mut replies = together(deciding).await;
        replies.sort_by_key(|reply| reply.status);
        approved(&replies[0]);
        assert_eq!(replies[1].status, 409, "{}", replies[1].text());
        for gateway in [&one, &other] {
            let ended = end(gateway, &id).await;
            assert_eq!(ended.succeeded(), json!({"paid": true}));
            assert_eq!(ended.id(), id);
        }
        assert_eq!(world.upstream.requests().len(), round + 1);
    }
    one.finish().await;
    other.finish().await;
}

#[tokio::test]
async fn what_one_approved_and_did_not_begin_the_other_runs() {
    let Some((world, config)) = shared("require_approval").await else { return };
    let config = config.set("/tools/0/breaker", json!({"consecutive": 1, "open_for": "60s"}));
    let (mut one, other) = (config.start().await, config.start().await);
    // The circuit of the first is open, so what is approved there waits.
    world.upstream.next(Script::once(answer(500, "text/plain", "no")));
    let first = one.call("refund", json!({"amount": 1})).await;
    approved(&decide(&one, &first, "approve").await);
    let failed = end(&one, &waits(&first)).await;
    failed.failed("http_status", None, "answered");
    // It may have run at the other one, whose circuit is open then.
    let second = one.call("refund", json!({"amount": 2})).await;
    let id = waits(&second);
    approved(&decide(&one, &second, "approve").await);
    one.signal("KILL");
    let ended = end(&other, &id).await;
    ended.succeeded();
    assert_eq!(world.upstream.requests().len(), 2);
    one.start_anew().await;
    assert_eq!(read(&one, &id).await.succeeded(), json!({"paid": true}));
    assert_eq!(world.upstream.requests().len(), 2);
    one.finish().await;
    other.finish().await;
}

/// Faults 131 to 133.
#[tokio::test]
async fn one_step_is_one_call_at_both() {
    let Some((world, one, other)) = two("allow").await else { return };
    for step in 0..10 {
        let body = |amount: u64| json!({"tool": "refund", "arguments": {"amount": amount}, "run_id": "r", "step": step.to_string()});
        let asked = [&one, &other, &one, &other].map(|gateway| gateway.call_with(body(1)));
        let outcomes = together(asked).await;
        let ids: Vec<String> = outcomes.iter().map(Outcome::id).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        outcomes.iter().for_each(|outcome| assert_eq!(outcome.succeeded(), json!({"paid": true})));
        assert_eq!(world.upstream.requests().len(), step + 1);
        let conflict = other.call_with(body(2)).await;
        assert_eq!(
            (conflict.0.status, conflict.at("/error/code")),
            (409, json!("idempotency_conflict"))
        );
    }
    one.finish().await;
    other.finish().await;
}

/// Faults 145.
#[tokio::test]
async fn a_server_that_is_away_stops_what_has_to_be_kept_and_nothing_else() {
    let Some(server) = Postgres::start() else { return };
    let (world, config) = config("require_approval").await;
    let config = config
        .tool(world.tool("lookup").set("annotations", json!({"read_only": true})))
        .set("/storage", json!({"url": server.database().await}));
    let gateway = config.start().await;
    let waiting = gateway.call("refund", json!({"amount": 1})).await;
    let id = waits(&waiting);
    server.stop();
    gateway.call("lookup", json!({})).await.succeeded();
    gateway.call("refund", json!({"amount": 2})).await.refused("overloaded", None);
    let read_without =
        ask(&gateway, API_KEY, "GET", &format!("/v1/calls/{id}"), &Value::Null).await;
    assert_eq!(
        (read_without.status, &read_without.json()["error"]["code"]),
        (503, &json!("overloaded"))
    );
    server.resume();
    poll("the store to answer again", || async {
        let reply = decide(&gateway, &waiting, "approve").await;
        (reply.status == 200).then_some(())
    })
    .await;
    end(&gateway, &id).await.succeeded();
    assert_eq!(world.upstream.requests().len(), 2);
    gateway.finish().await;
    server.stop();
}
