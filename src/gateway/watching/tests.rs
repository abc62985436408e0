//! What people decide on calls that the tool's candidate would have let run.

use serde_json::json;

use super::*;
use crate::gateway::closing::Closing;
use crate::gateway::shadow_report::Days;
use crate::gateway::tally::candidate_key;
use crate::gateway::tests::{asked, build};
use crate::gateway::told::Verdict;
use crate::model::outcome::Phase;
use crate::policy::identity::Caller;
use crate::store::records::{ApprovalFilter, PolicyRecord};

const TRIED: &str = "{effect: require_approval, shadow: {effect: allow, when: \
    [{pointer: /amount, operator: less_than, threshold: 100, on_absent: skip}]}}";

async fn parked(gateway: &Arc<Gateway>, caller: &Arc<Caller>, nth: usize, amount: u32) {
    let call = asked(&format!("call_{nth:04}"), &json!({ "amount": amount }).to_string());
    let told = gateway.call(gateway.epoch(), caller.clone(), call).await.expect("an answer");
    assert_eq!(told.phase, Phase::Waiting, "{told:?}");
}

async fn approvals(gateway: &Arc<Gateway>, caller: &Caller) -> Vec<Approval> {
    let status = Some(ApprovalStatus::Pending);
    let filter = ApprovalFilter { status, most: 100, ..ApprovalFilter::default() };
    gateway.approvals(caller, filter).await.expect("approvals")
}

async fn decide(gateway: &Arc<Gateway>, caller: &Caller, approval: &Approval, yes: bool) {
    let verdict = Verdict {
        yes,
        arguments_digest: Some(approval.arguments_digest.clone()),
        reason: None,
        name: None,
    };
    gateway.decide(caller, &approval.id, verdict).await.expect("decided");
}

/// Requirement S1-047b.
#[tokio::test]
async fn the_candidate_s_report_says_what_people_decided() {
    let (gateway, mut counting) = build(TRIED).await;
    let caller = Arc::new(Caller::anonymous());
    for nth in 0..10 {
        parked(&gateway, &caller, nth, 5).await;
    }
    // The candidate says nothing of this one.
    parked(&gateway, &caller, 10, 500).await;
    let waiting = approvals(&gateway, &caller).await;
    let large = waiting.iter().find(|one| one.call_id.as_str() == "call_0010").expect("it waits");
    decide(&gateway, &caller, large, true).await;
    let mut small = waiting.iter().filter(|one| one.id != large.id);
    for yes in [true, true, true, true, true, true, true, false, false] {
        decide(&gateway, &caller, small.next().expect("one that waits"), yes).await;
    }
    let last = small.next().expect("one that waits").clone();
    gateway.close(last, Closing::Expired).await.expect("expired");
    counting.flush().await.expect("a store");
    let days = Days::until(gateway.clock().unix_ms(), 7);
    let report = gateway.policies().report("default", &candidate_key("lookup"), days).await;
    let total = report.expect("a report").total;
    assert_eq!((total.calls, total.matched, total.unasked), (11, 10, 10));
    assert_eq!((total.approved, total.rejected, total.expired), (7, 2, 1));
}

#[tokio::test]
async fn a_kept_policy_that_changes_while_a_call_waits_voids_its_approval() {
    let (gateway, _counting) = build("require_approval").await;
    let caller = Arc::new(Caller::anonymous());
    parked(&gateway, &caller, 0, 5).await;
    let approval = approvals(&gateway, &caller).await.remove(0);
    let record = |mode: &str| PolicyRecord {
        organisation: "default".into(),
        id: "a".into(),
        version: 1,
        body: json!({"id": "a", "effect": "require_approval", "mode": mode}).to_string(),
        created_at_ms: 0,
        updated_at_ms: 0,
    };
    let now_ms = gateway.clock().unix_ms();
    gateway.policies().put(record("shadow"), None).await.expect("kept");
    assert_eq!(gateway.stands(&approval, now_ms), None, "what only watches changes nothing");
    gateway.policies().put(record("enforce"), Some(1)).await.expect("kept");
    assert_eq!(gateway.stands(&approval, now_ms), Some(Closing::ToolChanged));
    gateway.policies().delete("default", "a").await.expect("deleted");
    assert_eq!(gateway.stands(&approval, now_ms), None);
    let of_policy = record("enforce");
    gateway.policies().put(of_policy, None).await.expect("kept");
    parked(&gateway, &caller, 1, 6).await;
    let mut waiting = approvals(&gateway, &caller).await;
    waiting.retain(|one| one.call_id.as_str() == "call_0001");
    assert_eq!((waiting[0].policy.as_str(), gateway.stands(&waiting[0], now_ms)), ("a", None));
}
