//! What is old is forgotten, and nothing else.

use std::time::Duration;

use sortie::config::storage::Keep;
use sortie::model::approval::ApprovalStatus;
use sortie::model::outcome::Phase;
use sortie::store::records::{AuditEntry, ShadowCount};
use sortie::store::{Bound, Store};

use super::records::{
    DAY, DONE, HOUR, NOW, approval_id, approved, call, call_id, identity, ids, keep, parked,
    ruling, shared, then,
};

pub(super) async fn a_call_is_forgotten_after_its_time_and_its_approvals_with_it(
    store: &dyn Store,
) {
    let running = then(approved(store, 1).await, Phase::Running);
    assert_eq!(store.start(running.clone(), &approval_id(1), NOW + 1).await, Ok(true));
    store.finish(then(running, DONE), None, Vec::new()).await.expect("it works");
    parked(store, 2).await;
    let mut young = call(3, DONE);
    young.finished_at_ms = Some(NOW + HOUR);
    store.write(shared([call(5, DONE)])).await.expect("it works");
    store.write(shared([young, call(4, Phase::Running)])).await.expect("it works");
    store.sweep(&keep(), NOW + 7 * DAY + HOUR - 1).await.expect("it works");
    assert_eq!(ids(store).await, ["call_0002", "call_0003", "call_0004"]);
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(None));
    assert_eq!(store.call_by_identity("shop", &identity(5)).await, Ok(None));
    assert_eq!(store.approval("shop", &approval_id(1)).await, Ok(None));
    let waiting =
        store.approval("shop", &approval_id(2)).await.expect("it works").expect("it works");
    assert_eq!(waiting.status, ApprovalStatus::Pending);
    // Its names are free.
    let again = call(1, Phase::Running);
    assert_eq!(store.bind(again).await, Ok(Bound::Now));
}

pub(super) async fn names_are_free_when_the_time_of_replay_is_over(store: &dyn Store) {
    let mut late = call(2, DONE);
    late.finished_at_ms = Some(NOW + HOUR);
    store.write(shared([call(1, DONE), late.clone()])).await.expect("it works");
    parked(store, 3).await;
    store.sweep(&keep(), NOW + DAY + HOUR - 1).await.expect("it works");
    assert_eq!(store.call_by_identity("shop", &identity(1)).await, Ok(None));
    assert!(!store.call("shop", &call_id(1)).await.expect("it works").expect("it works").bound);
    assert_eq!(store.call_by_identity("shop", &identity(2)).await, Ok(Some(late)));
    let waits = store.call_by_identity("shop", &identity(3)).await.expect("it works");
    assert_eq!(waits.map(|record| record.phase), Some(Phase::Waiting));
    let mut again = call(1, Phase::Running);
    again.created_at_ms += DAY;
    assert_eq!(store.bind(again.clone()).await, Ok(Bound::Now));
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(Some(again)));
}

pub(super) async fn of_too_many_calls_the_oldest_go(store: &dyn Store) {
    parked(store, 0).await;
    store.write(shared((1..=50).map(|number| call(number, DONE)))).await.expect("it works");
    store.sweep(&Keep { max_calls: 3, ..keep() }, NOW + HOUR).await.expect("it works");
    assert_eq!(ids(store).await, ["call_0000", "call_0048", "call_0049", "call_0050"]);
}

pub(super) async fn many_calls_are_swept_to_the_last(store: &dyn Store) {
    store.write(shared((1..=3500).map(|number| call(number, DONE)))).await.expect("it works");
    let short = Keep { calls: Duration::from_secs(1), replay: Duration::from_secs(1), ..keep() };
    store.sweep(&short, NOW + HOUR).await.expect("it works");
    assert!(ids(store).await.is_empty());
    assert_eq!(store.call_by_identity("shop", &identity(3500)).await, Ok(None));
}

pub(super) async fn the_trail_and_the_counts_go_after_their_time(store: &dyn Store) {
    let entry = |at_ms| AuditEntry {
        at_ms,
        organisation: "shop".to_owned(),
        actor: "ops".to_owned(),
        action: "drain".to_owned(),
        subject: None,
        before: None,
        after: None,
        detail: None,
    };
    store.audit(vec![entry(NOW), entry(NOW + 1)]).await.expect("it works");
    let count = |day| ShadowCount {
        organisation: "shop".to_owned(),
        policy: "p".to_owned(),
        day,
        calls: 1,
        ..ShadowCount::default()
    };
    let today = NOW.div_euclid(DAY);
    store.count_shadow(vec![count(today - 1), count(today)], Vec::new()).await.expect("it works");
    store.sweep(&keep(), NOW + 400 * DAY + 1).await.expect("it works");
    assert_eq!(store.audited("shop", 0, 9).await, Ok(vec![entry(NOW + 1)]));
    let (counts, _) = store.shadow("shop", "p", [0, today]).await.expect("it works");
    assert_eq!(counts, [count(today)]);
}

pub(super) async fn a_decision_is_kept_as_long_as_its_call(store: &dyn Store) {
    parked(store, 1).await;
    let rejected = ruling(1, ApprovalStatus::Rejected);
    let ended = then(call(1, Phase::Waiting), DONE);
    store.decide(rejected, Some(ended), Vec::new()).await.expect("it works");
    store.sweep(&keep(), NOW + 6 * DAY).await.expect("it works");
    assert!(store.approval("shop", &approval_id(1)).await.expect("it works").is_some());
}
