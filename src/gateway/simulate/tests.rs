//! A policy that does not exist, tried on calls of a store.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::config::kept_policy;
use crate::model::id::CallId;
use crate::model::outcome::{Phase, Status};
use crate::store::batch::Batch;
use crate::store::sqlite::SqliteStore;

const NOW_MS: i64 = 1_795_561_200_000;

fn record(nth: usize, amount: u32, decision: Option<&str>) -> CallRecord {
    let decision = decision.map(|effect| json!({"effect": effect, "policy": "tool"}));
    let outcome = json!({"id": "x", "decision": decision, "result": null}).to_string();
    CallRecord {
        organisation: "default".into(),
        id: CallId::parse(&format!("call_{nth:05}")).expect("an id"),
        phase: Phase::Ended(Status::Succeeded),
        bound: true,
        identity: None,
        alias: None,
        tool: "lookup".into(),
        key: "k".into(),
        context: Arc::default(),
        deadline: None,
        code: Some("ok".into()),
        // Some of them at the same millisecond.
        created_at_ms: NOW_MS - 1000 + i64::try_from(nth / 3).expect("a number"),
        finished_at_ms: Some(NOW_MS),
        arguments: Some(Bytes::from(json!({ "amount": amount }).to_string())),
        arguments_digest: None,
        outcome: outcome.into(),
        instance: None,
    }
}

async fn tried(records: Vec<CallRecord>, days: u64) -> Simulation {
    let store = SqliteStore::memory().expect("a store");
    for batch in records.chunks(100) {
        store.write(Arc::new(Batch::of(batch))).await.expect("written");
    }
    let policy = json!({
        "id": "a", "effect": "require_approval",
        "match": {"tools": ["look*"], "when": [{"pointer": "/amount", "operator": "greater_than", "threshold": 500}]},
    });
    let policy = kept_policy::compile(&policy.to_string()).expect("a policy");
    let snapshot = crate::gateway::tests::snapshot();
    let days = Days::until(NOW_MS, days);
    simulate(&store, &snapshot, "default", &policy, days).await.expect("a simulation")
}

#[tokio::test]
async fn every_kept_call_is_judged_once() {
    let amount = |nth: usize| if nth.is_multiple_of(4) { 501 } else { 5 };
    let records = (0..301).map(|nth| record(nth, amount(nth), Some("allow"))).collect();
    let Simulation { report, without_arguments, is_cut } = tried(records, 7).await;
    let total = report.total;
    assert_eq!((total.calls, total.matched, total.disagreements), (301, 76, 76));
    assert_eq!((without_arguments, is_cut), (0, false));
    assert_eq!((report.samples.len(), report.samples[0].call_id.as_str()), (20, "call_00300"));
}

#[tokio::test]
async fn what_it_cannot_be_tried_on_is_counted_apart_or_left_out() {
    let mut records: Vec<_> = (0..8).map(|nth| record(nth, 600, Some("allow"))).collect();
    records[0].arguments = None;
    records[1].outcome = record(1, 600, None).outcome;
    records[2].outcome = record(2, 600, Some("deny")).outcome;
    records[3].organisation = "acme".into();
    records[4].tool = "refund".into();
    records[5].created_at_ms -= 8 * 86_400_000;
    let Simulation { report, without_arguments, .. } = tried(records.clone(), 7).await;
    let total = report.total;
    assert_eq!((total.calls, total.matched, total.disagreements), (3, 3, 2));
    assert_eq!(without_arguments, 1);
    assert_eq!(tried(records, 30).await.report.total.calls, 4);
}
