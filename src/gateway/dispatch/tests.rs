//! A yes that nothing ran on, and who said it.

use std::sync::atomic::Ordering;

use super::*;
use crate::gateway::tests::{Jumping, asked, build_at};
use crate::gateway::told::Verdict;
use crate::model::outcome::Phase;

#[tokio::test]
async fn a_yes_that_nobody_used_in_time_ends_its_call() {
    let clock = Arc::new(Jumping::default());
    let (gateway, _counting) = build_at("require_approval", clock.clone()).await;
    let caller = Arc::new(Caller::anonymous());
    let call = gateway.call(gateway.epoch(), caller.clone(), asked("call_0001", "{}")).await;
    let id = call.expect("it waits").id;
    let filter = || ApprovalFilter { most: 10, ..ApprovalFilter::default() };
    let approval = gateway.approvals(&caller, filter()).await.expect("approvals").remove(0);
    // The process ends before the call has its turn.
    gateway.begin_nothing_more();
    let verdict = Verdict {
        yes: true,
        arguments_digest: Some(approval.arguments_digest.clone()),
        reason: None,
        name: Some("Ada".to_owned()),
    };
    let decided = gateway.decide(&caller, &approval.id, verdict).await.expect("decided");
    // The key says who sits behind it.
    assert!(decided.decided_by.is_some_and(|by| !by.verified));
    tokio::task::yield_now().await;
    gateway.take_up().await.expect("a store");
    let told = gateway.follow(&caller, &id, Duration::ZERO).await.expect("a call");
    assert_eq!(told.phase, Phase::Waiting);
    clock.0.store(2 * 60 * 60 * 1000, Ordering::Relaxed);
    tokio::task::yield_now().await;
    gateway.take_up().await.expect("a store");
    let told = gateway.follow(&caller, &id, Duration::ZERO).await.expect("a call");
    let text = String::from_utf8_lossy(&told.body).into_owned();
    assert!(told.phase.is_final() && text.contains("approval_expired"), "{text}");
    let approval = gateway.approvals(&caller, filter()).await.expect("approvals").remove(0);
    assert_eq!(approval.status, crate::model::approval::ApprovalStatus::Expired);
}
