//! Calls that wait while nobody asks for them.

use super::*;
use crate::gateway::tests::{Jumping, asked, build_at};
use crate::model::approval::Approval;
use crate::policy::identity::Caller;
use crate::store::records::PolicyRecord;

const MINUTE_MS: i64 = 60_000;

async fn waiting() -> (Arc<Gateway>, Arc<Jumping>) {
    let clock = Arc::new(Jumping::default());
    (build_at("require_approval", clock.clone()).await.0, clock)
}

async fn park(gateway: &Arc<Gateway>, nth: usize) -> CallRecord {
    let caller = Arc::new(Caller::anonymous());
    let call = asked(&format!("call_{nth:04}"), "{}");
    let told = gateway.call(gateway.epoch(), caller.clone(), call).await.expect("it waits");
    gateway.kept(&caller, &told.id).await.expect("it is kept")
}

/// Keeps a policy that forbids such calls.
async fn forbid(gateway: &Gateway, call: &CallRecord) {
    let policy = PolicyRecord {
        organisation: call.organisation.to_string(),
        id: "rule".to_owned(),
        version: 1,
        body: r#"{"id":"rule","effect":"deny"}"#.to_owned(),
        created_at_ms: 0,
        updated_at_ms: 0,
    };
    gateway.policies().put(policy, None).await.expect("it is kept");
}

/// How the approval of a call stands.
async fn status(gateway: &Gateway, call: &CallRecord) -> ApprovalStatus {
    let store = &gateway.memory.store;
    let found: Vec<Approval> = store.approvals_of(&call.organisation, &call.id).await.expect("one");
    found[0].status
}

#[tokio::test]
async fn what_is_due_is_closed_however_many_wait() {
    let (gateway, clock) = waiting().await;
    let first = park(&gateway, 0).await;
    let mut seen = None;
    gateway.look_after(1, &mut seen).await.expect("a store");
    clock.0.store(30 * MINUTE_MS, Ordering::Relaxed);
    let mut others = Vec::new();
    for nth in 1..=MOST {
        others.push(park(&gateway, nth).await);
    }
    clock.0.store(61 * MINUTE_MS, Ordering::Relaxed);
    gateway.look_after(2, &mut seen).await.expect("a store");
    assert_eq!(status(&gateway, &first).await, ApprovalStatus::Expired);
    for call in &others {
        assert_eq!(status(&gateway, call).await, ApprovalStatus::Pending);
    }
}

#[tokio::test]
async fn however_many_a_change_is_about_all_of_them_are_closed() {
    let (gateway, _clock) = waiting().await;
    let mut calls = Vec::new();
    for nth in 0..MOST + 2 {
        calls.push(park(&gateway, nth).await);
    }
    let mut seen = None;
    gateway.look_after(1, &mut seen).await.expect("a store");
    forbid(&gateway, &calls[0]).await;
    for round in 2..4 {
        gateway.look_after(round, &mut seen).await.expect("a store");
    }
    for call in &calls {
        assert_eq!(status(&gateway, call).await, ApprovalStatus::Void);
    }
}

#[tokio::test]
async fn what_is_not_due_is_looked_at_where_a_policy_changed() {
    let (gateway, _clock) = waiting().await;
    let call = park(&gateway, 0).await;
    let mut seen = None;
    for round in 1..4 {
        gateway.look_after(round, &mut seen).await.expect("a store");
        assert_eq!(status(&gateway, &call).await, ApprovalStatus::Pending);
    }
    forbid(&gateway, &call).await;
    gateway.look_after(4, &mut seen).await.expect("a store");
    assert_eq!(status(&gateway, &call).await, ApprovalStatus::Void);
}
