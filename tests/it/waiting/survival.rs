//! What a kill leaves: nothing is sent twice, nothing that waits is lost, and what ran is told as unknown.

use std::collections::BTreeMap;

use serde_json::json;

use super::{approved, config, decide, end, read, waits};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer};
use crate::support::wait::poll;

async fn refund(gateway: &Gateway, step: &str) -> Outcome {
    let body = json!({"tool": "refund", "arguments": {"step": step}, "run_id": "r", "step": step});
    gateway.call_with(body).await
}

/// Faults 139 and 140. Fifty kills, each with a call that waits, one that was approved a moment ago, one that runs, and
/// one that has ended.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_kills_send_no_approved_call_twice_and_lose_no_waiting_one() {
    let (world, config) = config("require_approval").await;
    let held = world.tool("held").set("policy", json!("allow")).set("timeout", json!("30s"));
    let mut gateway = config.tool(held).start().await;
    let (mut waiting, mut approved_calls, mut running, mut ended) =
        (vec![], vec![], vec![], vec![]);
    for round in 0..50 {
        let one = refund(&gateway, &format!("w{round}")).await;
        waiting.push((waits(&one), one.at("/approval/id")));
        let two = refund(&gateway, &format!("a{round}")).await;
        approved_calls.push(waits(&two));
        let three = refund(&gateway, &format!("e{round}")).await;
        approved(&decide(&gateway, &three, "approve").await);
        let told = end(&gateway, &waits(&three)).await;
        told.succeeded();
        ended.push((told.id(), told.at("/result")));
        if round % 10 == 0 {
            world.upstream.next(Script::new().request().stall());
            let call_id = format!("call_held{round:04}");
            let sent = world.upstream.requests().len();
            let _client =
                gateway.open_call("held", &call_id, json!({"run_id": "h", "step": call_id})).await;
            world.upstream.wait_for_requests(sent + 1).await;
            poll("its intent to be kept", || async {
                let metrics = gateway.metrics().await;
                let kept = [("result", "written")];
                (metrics.value("sortie_call_records_total", &kept) >= 1.0).then_some(())
            })
            .await;
            running.push(call_id);
        }
        approved(&decide(&gateway, &two, "approve").await);
        gateway.kill_and_start().await;
    }
    // Every waiting call is still there.
    for (id, approval) in &waiting {
        let call = read(&gateway, id).await;
        assert_eq!((waits(&call), &call.at("/approval/id")), (id.clone(), approval));
    }
    // What was approved ran once, or its outcome is unknown.
    for id in &approved_calls {
        let call = end(&gateway, id).await;
        let unknown = call.at("/error/outcome") == json!("unknown");
        assert!(call.at("/status") == json!("succeeded") || unknown, "{}", call.0.text());
    }
    // No outcome that was told is lost.
    for (id, result) in &ended {
        let call = read(&gateway, id).await;
        assert_eq!((call.at("/status"), &call.at("/result")), (json!("succeeded"), result));
    }
    for id in &running {
        let call = read(&gateway, id).await;
        call.failed("internal", None, "unknown");
        assert_eq!(
            call.model_text(),
            "The call failed inside the gateway. It may have taken effect; check before trying again."
        );
        // Asking again sends nothing.
        let sent = world.upstream.requests().len();
        let again =
            json!({"tool": "held", "arguments": {}, "call_id": id, "run_id": "h", "step": id});
        let again = gateway.call_with(again).await;
        assert_eq!(
            (again.at("/replayed"), again.at("/error/outcome")),
            (json!(true), json!("unknown"))
        );
        assert_eq!(world.upstream.requests().len(), sent);
    }
    let mut sent: BTreeMap<String, usize> = BTreeMap::new();
    for request in world.upstream.requests() {
        let id = request.json()["call_id"].as_str().expect("an id").to_owned();
        *sent.entry(id).or_default() += 1;
    }
    assert!(sent.values().all(|count| *count == 1), "{sent:?}");
    assert!(waiting.iter().all(|(id, _)| !sent.contains_key(id)));
    gateway.finish().await;
}

/// Faults 139.
#[tokio::test]
async fn an_approval_outlives_the_process_that_was_asked() {
    let (world, config) = config("require_approval").await;
    let mut gateway = config.start().await;
    let waiting = gateway.call("refund", json!({"amount": 5})).await;
    let id = waits(&waiting);
    gateway.kill_and_start().await;
    approved(&decide(&gateway, &waiting, "approve").await);
    end(&gateway, &id).await.succeeded();
    assert_eq!(world.upstream.only_request().json()["call_id"], json!(id));
    world.upstream.default(Script::always(answer(200, "text/plain", "second")));
    gateway.kill_and_start().await;
    let kept = read(&gateway, &id).await;
    assert_eq!(kept.succeeded(), json!({"paid": true}));
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}
