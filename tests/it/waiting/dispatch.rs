//! After the yes: everything is checked again, and the call runs once, as soon as it may.

use serde_json::json;

use super::{API_KEY, approved, ask, config, decide, end, read, waits};
use crate::support::script::{Script, answer};
use crate::support::wait::{poll, together};

/// Faults 134 and 149.
#[tokio::test]
async fn a_reload_that_changes_the_tool_voids_what_waits_for_it() {
    let (world, config) = config("require_approval").await;
    let gateway = config.start().await;
    let waiting = gateway.call("refund", json!({"amount": 5})).await;
    let id = waits(&waiting);
    let tool = world.tool("refund").set("policy", json!("require_approval"));
    let other = world.config().tool(tool.set("timeout", json!("7s")));
    let other = other.set("/storage", json!({"url": "sqlite:calls.db"})).key(
        "approver",
        super::APPROVER,
        json!({"scopes": ["agent:approve"]}),
    );
    crate::reload::apply(&gateway, &other.text()).await;
    let ended = end(&gateway, &id).await;
    ended.refused("approval_void", None);
    assert_eq!(ended.model_text(), "The tool changed while this call waited; call it again.");
    assert_eq!(ended.at("/approval/status"), json!("void"));
    let late = decide(&gateway, &waiting, "approve").await;
    assert_eq!((late.status, &late.json()["error"]["code"]), (409, &json!("approval_closed")));
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

#[tokio::test]
async fn of_two_who_decide_at_once_one_is_told_that_it_was_decided() {
    let (world, config) = config("require_approval").await;
    let gateway = config.start().await;
    for round in 0..10 {
        let waiting = gateway.call("refund", json!({"amount": round})).await;
        let id = waits(&waiting);
        let verbs = ["approve", "reject", "approve", "approve"];
        let replies = together(verbs.map(|verb| decide(&gateway, &waiting, verb))).await;
        let decided: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        assert_eq!(decided.iter().filter(|status| **status == 200).count(), 1, "{decided:?}");
        assert_eq!(decided.iter().filter(|status| **status == 409).count(), 3, "{decided:?}");
        let sent = world.upstream.requests().len();
        let ended = end(&gateway, &id).await;
        let rejected = ended.at("/status") == json!("refused");
        assert!(rejected || ended.at("/status") == json!("succeeded"), "{}", ended.0.text());
        assert!(world.upstream.requests().len() <= sent + 1);
    }
    let mut calls: Vec<String> =
        world.upstream.requests().iter().map(|one| one.json()["call_id"].to_string()).collect();
    calls.sort();
    let sent = calls.len();
    calls.dedup();
    assert_eq!(calls.len(), sent, "a call was sent twice");
    gateway.finish().await;
}

#[tokio::test]
async fn an_approved_call_behind_an_open_circuit_runs_when_it_closes() {
    let (world, config) = config("require_approval").await;
    let breaker = json!({"consecutive": 1, "open_for": "2s"});
    let config = config.tool(world.tool("other")).set("/tools/0/breaker", breaker);
    let gateway = config.start().await;
    world.upstream.next(Script::once(answer(500, "text/plain", "no")));
    let first = gateway.call("refund", json!({"amount": 1})).await;
    let second = gateway.call("refund", json!({"amount": 2})).await;
    approved(&decide(&gateway, &first, "approve").await);
    let failed = end(&gateway, &waits(&first)).await;
    failed.failed("http_status", None, "answered");
    approved(&decide(&gateway, &second, "approve").await);
    let id = waits(&second);
    let waiting = read(&gateway, &id).await;
    // It is approved and holds nothing until the circuit lets it pass.
    assert_eq!((waits(&waiting), waiting.at("/approval/status")), (id.clone(), json!("approved")));
    let ran = end(&gateway, &id).await;
    ran.succeeded();
    assert_eq!(world.upstream.requests().len(), 2);
    gateway.finish().await;
}

#[tokio::test]
async fn a_call_that_could_not_run_in_time_runs_on_the_same_yes_when_it_is_asked_for_again() {
    let (world, config) = config("require_approval").await;
    let config = config
        .set("/limits/dispatch_within", json!("1s"))
        .set("/tools/0/breaker", json!({"consecutive": 1, "open_for": "3s"}));
    let gateway = config.start().await;
    world.upstream.next(Script::once(answer(500, "text/plain", "no")));
    let first = gateway.call("refund", json!({"amount": 1})).await;
    let body = json!({"tool": "refund", "arguments": {"amount": 2}, "run_id": "r", "step": "7"});
    let second = gateway.call_with(body.clone()).await;
    let id = waits(&second);
    approved(&decide(&gateway, &first, "approve").await);
    end(&gateway, &waits(&first)).await.failed("http_status", None, "answered");
    approved(&decide(&gateway, &second, "approve").await);
    end(&gateway, &id).await.refused("circuit_open", None);
    // The same step, once the circuit lets it pass: nobody is asked anew, and it keeps its id.
    let ran = poll("the circuit to let it pass", || async {
        let again = gateway.call_with(body.clone()).await;
        assert_ne!(again.at("/status"), json!("waiting_approval"), "{}", again.0.text());
        (again.at("/status") == json!("succeeded")).then_some(again)
    })
    .await;
    assert_eq!(ran.id(), id);
    assert_eq!(world.upstream.requests().len(), 2);
    // Now it has run: asking again tells it.
    let told = gateway.call_with(body).await;
    assert_eq!((told.at("/replayed"), told.id()), (json!(true), id));
    assert_eq!(world.upstream.requests().len(), 2);
    gateway.finish().await;
}

#[tokio::test]
async fn a_waiting_call_can_be_taken_back() {
    let (world, config) = config("require_approval").await;
    let gateway = config.start().await;
    let waiting = gateway.call("refund", json!({"amount": 5})).await;
    let id = waits(&waiting);
    let cancel = format!("/v1/calls/{id}/cancel");
    let ended = super::Outcome(ask(&gateway, API_KEY, "POST", &cancel, &json!({})).await);
    ended.refused("cancelled", None);
    assert_eq!(ended.at("/approval/status"), json!("cancelled"));
    let late = decide(&gateway, &waiting, "approve").await;
    assert_eq!(late.status, 409);
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

#[tokio::test]
async fn a_call_with_a_person_s_credentials_cannot_wait() {
    let (world, config) = config("require_approval").await;
    let gateway = config.set("/tools/0/accept_credentials", json!(["X-User-Token"])).start().await;
    let body = json!({"tool": "refund", "arguments": {}, "credentials": {"X-User-Token": "t"}});
    let reply = gateway.call_with(body).await;
    assert_eq!((reply.0.status, reply.at("/error/field")), (422, json!("/credentials")));
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}
