//! `ask_first`: the person's own yes, by a tap or by the next turn, and every way in which it is dropped.

use serde_json::{Value, json};

use super::{API_KEY, APPROVER, ask, config, decide, end, read, waits};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::wait::{poll, together};

async fn refund(gateway: &Gateway, amount: u64, turn: Option<u32>) -> Outcome {
    let arguments = json!({"amount": amount, "note": "x"});
    in_turn(gateway, arguments, turn).await
}

async fn in_turn(gateway: &Gateway, arguments: Value, turn: Option<u32>) -> Outcome {
    let body = json!({
        "tool": "refund", "arguments": arguments, "session_id": "s1", "turn_index": turn,
        "end_user": {"external_id": "cust-77"},
    });
    gateway.call_with(body).await
}

async fn confirm(gateway: &Gateway, id: &str, yes: bool) -> Outcome {
    let path = format!("/v1/calls/{id}/confirmed");
    Outcome(ask(gateway, API_KEY, "POST", &path, &json!({ "yes": yes })).await)
}

/// Requirement S3-076. Requirement S3-077.
#[tokio::test]
async fn the_model_alone_never_runs_it_and_is_told_to_ask() {
    let (world, config) = config("ask_first").await;
    let gateway = config.start().await;
    let first = refund(&gateway, 5, Some(3)).await;
    let id = waits(&first);
    assert_eq!(
        first.model_text(),
        "Ask the person, in your own words, whether to do this: refund with \
         {\"amount\":5,\"note\":\"x\"}. Call the tool again with the same arguments only after they say yes."
    );
    assert_eq!(first.at("/approval/kind"), json!("person"));
    let again = together((0..99).map(|_| refund(&gateway, 5, Some(3)))).await;
    for outcome in &again {
        // It is the same question.
        assert_eq!(waits(outcome), id);
    }
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

/// Requirement S3-079. Requirement S3-080. Requirement S3-087.
#[tokio::test]
async fn the_person_s_yes_runs_it_under_its_own_id() {
    let (world, config) = config("ask_first").await;
    let gateway = config.start().await;
    let id = waits(&refund(&gateway, 5, None).await);
    let ran = confirm(&gateway, &id, true).await;
    ran.succeeded();
    assert_eq!(ran.id(), id);
    assert_eq!(ran.at("/approval/status"), json!("approved"));
    assert_eq!(
        ran.at("/approval/decided_by"),
        json!({"id": "cust-77", "name": null, "verified": false})
    );
    let request = world.upstream.only_request();
    assert_eq!(request.header("X-Tool-Call"), Some(id.as_str()));
    assert_eq!(request.json()["call_id"], json!(id));
    let twice = confirm(&gateway, &id, true).await;
    assert_eq!((twice.0.status, twice.at("/error/code")), (409, json!("approval_closed")));
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

/// Requirement S3-081. Requirement S3-087. Requirement S3-088.
#[tokio::test]
async fn the_next_turn_s_same_call_is_a_yes_once() {
    let (world, config) = config("ask_first").await;
    let gateway = config.start().await;
    let id = waits(&refund(&gateway, 5, Some(3)).await);
    let ran = in_turn(&gateway, json!({"note": "x", "amount": 5}), Some(4)).await;
    ran.succeeded();
    assert_eq!(ran.id(), id);
    let request = world.upstream.only_request();
    assert_eq!(request.header("X-Tool-Call"), Some(id.as_str()));
    assert_eq!(request.json()["call_id"], json!(id));
    let other = waits(&refund(&gateway, 5, Some(5)).await);
    assert_ne!(other, id);
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

/// Requirement S3-082.
#[tokio::test]
async fn a_no_drops_it_and_the_same_call_later_asks_again() {
    let (world, config) = config("ask_first").await;
    let gateway = config.start().await;
    let id = waits(&refund(&gateway, 5, Some(3)).await);
    let no = confirm(&gateway, &id, false).await;
    no.refused("rejected", None);
    assert_eq!(no.model_text(), "A person declined this call.");
    assert_ne!(waits(&refund(&gateway, 5, Some(4)).await), id);
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

/// Requirement S3-083. Requirement S3-084.
#[tokio::test]
async fn other_arguments_and_later_turns_drop_it() {
    let (world, config) = config("ask_first").await;
    let gateway = config.start().await;
    for (amount, turn) in [(6, 4), (5, 5)] {
        let session = format!("s{turn}");
        let in_session = |amount: u64, turn: u32| {
            let body = json!({
                "tool": "refund", "arguments": {"amount": amount}, "session_id": session,
                "turn_index": turn,
            });
            gateway.call_with(body)
        };
        let id = waits(&in_session(5, 3).await);
        let other = waits(&in_session(amount, turn).await);
        assert_ne!(other, id);
        let dropped = read(&gateway, &id).await;
        dropped.refused("approval_expired", None);
        assert_eq!(dropped.at("/approval/status"), json!("void"));
        let late = confirm(&gateway, &id, true).await;
        assert_eq!((late.0.status, late.at("/error/code")), (409, json!("approval_closed")));
    }
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

/// Requirement S3-086.
#[tokio::test]
async fn without_a_turn_between_nothing_runs() {
    let (world, config) = config("ask_first").await;
    let gateway = config.start().await;
    let id = waits(&refund(&gateway, 5, None).await);
    assert_eq!(waits(&refund(&gateway, 5, None).await), id);
    assert_eq!(waits(&refund(&gateway, 5, Some(4)).await), id);
    // Two questions of one turn stand beside each other.
    let one = waits(&refund(&gateway, 7, Some(4)).await);
    let two = waits(&refund(&gateway, 8, Some(4)).await);
    assert_eq!(
        (waits(&refund(&gateway, 7, Some(4)).await), waits(&read(&gateway, &two).await)),
        (one, two)
    );
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

/// Requirement S3-085.
#[tokio::test]
async fn the_time_limit_drops_it_and_a_late_yes_is_told_so() {
    let (world, config) = config("ask_first").await;
    let gateway = config.set("/limits/confirm_for", json!("1s")).start().await;
    let id = waits(&refund(&gateway, 5, Some(3)).await);
    let ended = end(&gateway, &id).await;
    ended.refused("approval_expired", None);
    assert_eq!(ended.model_text(), "Nobody approved this call in time.");
    assert_eq!(ended.at("/approval/status"), json!("expired"));
    let late = confirm(&gateway, &id, true).await;
    assert_eq!((late.0.status, late.at("/error/code")), (409, json!("approval_closed")));
    waits(&refund(&gateway, 5, Some(4)).await);
    world.upstream.assert_untouched().await;
    let metrics = gateway.metrics().await;
    let labels = [("tool", "refund"), ("result", "expired")];
    assert_eq!(metrics.value("sortie_approvals_total", &labels), 1.0);
    gateway.finish().await;
}

#[tokio::test]
async fn the_operator_decides_first_and_then_the_person() {
    let (world, config) = config("ask_first").await;
    let policy = json!([{"id": "all", "effect": "require_approval"}]);
    let gateway = config.set("/policies", policy).start().await;
    let first = refund(&gateway, 5, Some(3)).await;
    let id = waits(&first);
    assert_eq!(first.at("/approval/kind"), json!("operator"));
    assert_eq!(decide(&gateway, &first, "approve").await.status, 200);
    let second = poll("the person to be asked", || async {
        let call = read(&gateway, &id).await;
        (call.at("/approval/kind") == json!("person")).then_some(call)
    })
    .await;
    assert_eq!(waits(&second), id);
    world.upstream.assert_untouched().await;
    // Another's yes is not theirs.
    let path =
        format!("/v1/approvals/{}/approve", second.at("/approval/id").as_str().unwrap_or(""));
    let body = json!({"arguments_digest": second.at("/approval/arguments_digest")});
    assert_eq!(ask(&gateway, APPROVER, "POST", &path, &body).await.status, 409);
    let ran = confirm(&gateway, &id, true).await;
    ran.succeeded();
    assert_eq!((ran.id(), ran.at("/approval/kind")), (id, json!("person")));
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}
