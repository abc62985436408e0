//! Approvals: decided once, used once, and not past their time.

use sortie::model::approval::{Approval, ApprovalStatus};
use sortie::model::outcome::Phase;
use sortie::store::records::{ApprovalFilter, Claimed, PendingApprovals};
use sortie::store::{Bound, Decided, Store, StoreError};

use super::records::{
    DONE, HOUR, MINUTE, NOW, approval, approval_id, approved, call, call_id, notice, parked,
    ruling, then,
};

async fn status(store: &dyn Store, number: u32) -> ApprovalStatus {
    store.approval("shop", &approval_id(number)).await.expect("it works").expect("it works").status
}

async fn told(store: &dyn Store) -> Vec<String> {
    let claimed: Vec<Claimed> =
        store.claim_notices(NOW + HOUR, NOW + 2 * HOUR, 9).await.expect("it works");
    claimed.into_iter().map(|one| one.notice.message_id).collect()
}

pub(super) async fn a_call_waits_with_its_approval_and_what_people_are_told(store: &dyn Store) {
    let record = call(1, Phase::Waiting);
    let asked = approval(1, &record);
    let notices = vec![notice(1), notice(2)];
    assert_eq!(store.park(record.clone(), asked.clone(), notices).await, Ok(Bound::Now));
    assert_eq!(store.call("shop", &record.id).await, Ok(Some(record.clone())));
    assert_eq!(store.approval("shop", &asked.id).await, Ok(Some(asked.clone())));
    assert_eq!(store.approvals_of("shop", &record.id).await, Ok(vec![asked]));
    assert_eq!(told(store).await, ["msg_1", "msg_2"]);
    // The same call again, while it waits: nobody is asked twice.
    let again = store.park(record.clone(), approval(2, &record), vec![notice(3)]).await;
    assert_eq!(again, Ok(Bound::Before(Box::new(record.clone()))));
    assert_eq!(store.approvals_of("shop", &record.id).await.expect("it works").len(), 1);
    assert!(told(store).await.is_empty());
}

pub(super) async fn after_one_yes_a_call_can_wait_for_another(store: &dyn Store) {
    let record = approved(store, 1).await;
    let mut still = record.clone();
    still.outcome = "{}".into();
    let second = approval(2, &record);
    assert_eq!(store.park(still.clone(), second, Vec::new()).await, Ok(Bound::Now));
    assert_eq!(store.call("shop", &record.id).await, Ok(Some(still)));
    let all = store.approvals_of("shop", &record.id).await.expect("it works");
    let all: Vec<_> =
        all.into_iter().map(|one| (one.id, one.status, one.used_at_ms.is_some())).collect();
    let expected = [(1, ApprovalStatus::Approved, true), (2, ApprovalStatus::Pending, false)];
    assert_eq!(all, expected.map(|(number, status, used)| (approval_id(number), status, used)));
}

pub(super) async fn a_decision_says_who_and_why_and_keeps_the_call(store: &dyn Store) {
    let record = parked(store, 1).await;
    let ruling = ruling(1, ApprovalStatus::Rejected);
    let ended = then(record.clone(), DONE);
    let kept = Some(ended.clone());
    let decided = store.decide(ruling.clone(), kept, vec![notice(1)]).await.expect("it works");
    let expected = Approval {
        status: ApprovalStatus::Rejected,
        decided_at_ms: Some(ruling.at_ms),
        decided_by: ruling.by.clone(),
        reason: ruling.reason.clone(),
        ..approval(1, &record)
    };
    assert_eq!(decided, Decided::Now(Box::new(expected.clone())));
    assert_eq!(store.approval("shop", &approval_id(1)).await, Ok(Some(expected.clone())));
    assert_eq!(store.call("shop", &record.id).await, Ok(Some(ended)));
    assert_eq!(told(store).await, ["msg_1"]);
    let late = store.decide(ruling, Some(record), vec![notice(2)]).await.expect("it works");
    assert_eq!(late, Decided::Closed(Box::new(expected)));
    assert!(told(store).await.is_empty());
}

pub(super) async fn what_is_not_there_cannot_be_decided(store: &dyn Store) {
    parked(store, 1).await;
    let unknown = store.decide(ruling(2, ApprovalStatus::Approved), None, Vec::new()).await;
    assert_eq!(unknown, Err(StoreError::NotFound));
    let mut theirs = ruling(1, ApprovalStatus::Approved);
    theirs.organisation = "bank".to_owned();
    assert_eq!(store.decide(theirs, None, Vec::new()).await, Err(StoreError::NotFound));
    assert_eq!(status(store, 1).await, ApprovalStatus::Pending);
}

/// Requirement S1-046.
pub(super) async fn of_two_deciders_at_the_same_instant_one_decides(store: &dyn Store) {
    for number in 0..10 {
        parked(store, number).await;
        let yes = store.decide(ruling(number, ApprovalStatus::Approved), None, Vec::new());
        let no = store.decide(ruling(number, ApprovalStatus::Rejected), None, Vec::new());
        let (yes, no) = tokio::join!(yes, no);
        let both = [yes.expect("it works"), no.expect("it works")];
        let now = both.iter().filter(|one| matches!(one, Decided::Now(_))).count();
        assert_eq!(now, 1, "{both:?}");
    }
}

pub(super) async fn past_its_time_nobody_decides(store: &dyn Store) {
    for status in [ApprovalStatus::Approved, ApprovalStatus::Rejected] {
        let number = 1 + u32::from(status == ApprovalStatus::Approved);
        parked(store, number).await;
        let mut ruling = ruling(number, status);
        ruling.at_ms = NOW + HOUR;
        let late = store.decide(ruling.clone(), None, Vec::new()).await.expect("it works");
        let Decided::Closed(found) = late else { panic!("{late:?}") };
        assert_eq!(found.status, ApprovalStatus::Pending);
        ruling.at_ms -= 1;
        let in_time = store.decide(ruling, None, Vec::new()).await.expect("it works");
        assert!(matches!(in_time, Decided::Now(_)), "{in_time:?}");
    }
    for (number, gone) in
        [(3, ApprovalStatus::Expired), (4, ApprovalStatus::Void), (5, ApprovalStatus::Cancelled)]
    {
        parked(store, number).await;
        let mut ruling = ruling(number, gone);
        (ruling.at_ms, ruling.by, ruling.reason) = (NOW + HOUR, None, None);
        let decided = store.decide(ruling, None, Vec::new()).await.expect("it works");
        assert!(matches!(decided, Decided::Now(_)), "{decided:?}");
        assert_eq!(status(store, number).await, gone);
    }
}

pub(super) async fn a_call_starts_once_on_an_approval(store: &dyn Store) {
    let record = approved(store, 1).await;
    let running = then(record.clone(), Phase::Running);
    let id = approval_id(1);
    let start = || store.start(running.clone(), &id, NOW + 2 * MINUTE);
    let (one, other) = tokio::join!(start(), start());
    assert_eq!([one, other].iter().filter(|one| **one == Ok(true)).count(), 1);
    assert_eq!(store.call("shop", &record.id).await, Ok(Some(running.clone())));
    let used = store.approval("shop", &id).await.expect("it works").expect("it works").used_at_ms;
    assert_eq!((used, start().await), (Some(NOW + 2 * MINUTE), Ok(false)));
}

pub(super) async fn a_call_does_not_start_on_less_than_a_good_approval(store: &dyn Store) {
    let pending = then(parked(store, 1).await, Phase::Running);
    assert_eq!(store.start(pending, &approval_id(1), NOW + MINUTE).await, Ok(false));

    let late = then(approved(store, 2).await, Phase::Running);
    assert_eq!(store.start(late.clone(), &approval_id(2), NOW + HOUR).await, Ok(false));

    let own = then(approved(store, 3).await, Phase::Running);
    assert_eq!(store.start(own.clone(), &approval_id(2), NOW + MINUTE).await, Ok(false));
    assert_eq!(store.start(own, &approval_id(9), NOW + MINUTE).await, Ok(false));

    let unknown = call(4, Phase::Running);
    assert_eq!(store.start(unknown, &approval_id(2), NOW + MINUTE).await, Ok(false));
    assert_eq!(store.start(late, &approval_id(2), NOW + HOUR - 1).await, Ok(true));
}

pub(super) async fn a_run_that_sent_nothing_leaves_its_approval_good(store: &dyn Store) {
    let record = approved(store, 1).await;
    let running = then(record.clone(), Phase::Running);
    assert_eq!(store.start(running, &approval_id(1), NOW + MINUTE).await, Ok(true));
    let mut ended = then(record, DONE);
    ended.bound = false;
    let unused = Some(approval_id(1));
    store.finish(ended.clone(), unused, vec![notice(1)]).await.expect("it works");
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(Some(ended)));
    assert_eq!(told(store).await, ["msg_1"]);
    let found = store.approval("shop", &approval_id(1)).await.expect("it works").expect("it works");
    assert_eq!((found.status, found.used_at_ms), (ApprovalStatus::Approved, None));
}

pub(super) async fn approvals_are_filtered_the_newest_first(store: &dyn Store) {
    for number in 1..=3 {
        parked(store, number).await;
    }
    approved(store, 4).await;
    let used = approved(store, 5).await;
    let running = then(used, Phase::Running);
    assert_eq!(store.start(running, &approval_id(5), NOW + MINUTE).await, Ok(true));
    let mut other = call(6, Phase::Waiting);
    (other.organisation, other.tool) = ("bank".into(), "transfer".into());
    let mut asked = approval(6, &other);
    asked.expires_at_ms = NOW + MINUTE;
    assert_eq!(store.park(other, asked, Vec::new()).await, Ok(Bound::Now));

    let all = ApprovalFilter { most: 100, ..ApprovalFilter::default() };
    let check = async |filter: ApprovalFilter, expected: &[u32]| {
        let found = store.approvals(&filter).await.expect("it works");
        let found: Vec<_> = found.into_iter().map(|one| one.id).collect();
        let expected: Vec<_> = expected.iter().map(|number| approval_id(*number)).collect();
        assert_eq!(found, expected, "{filter:?}");
    };
    let all = || all.clone();
    let shop = || ApprovalFilter { organisation: Some("shop".to_owned()), ..all() };
    check(all(), &[6, 5, 4, 3, 2, 1]).await;
    check(shop(), &[5, 4, 3, 2, 1]).await;
    check(ApprovalFilter { most: 2, ..shop() }, &[5, 4]).await;
    check(ApprovalFilter { most_bytes: Some(0), ..shop() }, &[5]).await;
    let pending = Some(ApprovalStatus::Pending);
    check(ApprovalFilter { status: pending, ..all() }, &[6, 3, 2, 1]).await;
    let approved = Some(ApprovalStatus::Approved);
    check(ApprovalFilter { status: approved, unused_of_waiting: true, ..all() }, &[4]).await;
    check(ApprovalFilter { tool: Some("transfer".to_owned()), ..all() }, &[6]).await;
    check(ApprovalFilter { session_id: Some("se_2".to_owned()), ..shop() }, &[2]).await;
    check(ApprovalFilter { expires_by_ms: Some(NOW + MINUTE), ..all() }, &[6]).await;
    check(ApprovalFilter { expires_by_ms: Some(NOW + MINUTE - 1), ..all() }, &[]).await;
}

pub(super) async fn what_is_pending_is_counted_by_tool(store: &dyn Store) {
    assert_eq!(store.pending().await, Ok(Vec::new()));
    for number in 1..=2 {
        parked(store, number).await;
    }
    approved(store, 3).await;
    let mut other = call(4, Phase::Waiting);
    (other.organisation, other.tool) = ("bank".into(), "transfer".into());
    let mut asked = approval(4, &other);
    asked.created_at_ms = NOW - MINUTE;
    assert_eq!(store.park(other, asked, Vec::new()).await, Ok(Bound::Now));
    let mut found = store.pending().await.expect("it works");
    found.sort_by(|one, other| one.tool.cmp(&other.tool));
    let first = approval(1, &call(1, Phase::Waiting));
    let expected = [(first.tool, 2, first.created_at_ms), ("transfer".to_owned(), 1, NOW - MINUTE)];
    let expected =
        expected.map(|(tool, count, oldest_ms)| PendingApprovals { tool, count, oldest_ms });
    assert_eq!(found, expected);
}

pub(super) async fn an_approval_shows_the_arguments_only_while_they_are_kept(store: &dyn Store) {
    let record = parked(store, 1).await;
    let mut ended = then(record, DONE);
    ended.arguments = None;
    store.finish(ended, None, Vec::new()).await.expect("it works");
    let found = store.approval("shop", &approval_id(1)).await.expect("it works").expect("it works");
    assert_eq!((found.arguments, found.arguments_digest.as_str()), (None, "sha256:00ff"));
}

pub(super) async fn what_ended_unsent_starts_again_unless_its_names_are_taken(store: &dyn Store) {
    for number in 1..=2 {
        let mut ended = then(approved(store, number).await, DONE);
        ended.bound = false;
        store.finish(ended, None, Vec::new()).await.expect("it works");
    }
    let mut other = call(9, Phase::Running);
    other.identity = call(2, DONE).identity;
    assert_eq!(store.bind(other).await, Ok(Bound::Now));
    let start = async |number| {
        let running = call(number, Phase::Running);
        store.start(running, &approval_id(number), NOW + 2 * MINUTE).await
    };
    assert_eq!((start(1).await, start(1).await, start(2).await), (Ok(true), Ok(false), Ok(false)));
    let again = store.call("shop", &call_id(1)).await.expect("it works").expect("it works");
    assert_eq!((again.phase, again.bound), (Phase::Running, true));
}

pub(super) async fn what_was_approved_can_be_taken_back_until_it_is_used(store: &dyn Store) {
    approved(store, 1).await;
    let void =
        store.decide(ruling(1, ApprovalStatus::Void), None, Vec::new()).await.expect("it works");
    assert!(matches!(void, Decided::Now(_)), "{void:?}");
    let running = then(approved(store, 2).await, Phase::Running);
    assert_eq!(store.start(running, &approval_id(2), NOW + MINUTE).await, Ok(true));
    let late = store
        .decide(ruling(2, ApprovalStatus::Cancelled), None, Vec::new())
        .await
        .expect("it works");
    assert!(matches!(late, Decided::Closed(_)), "{late:?}");
    assert_eq!(status(store, 2).await, ApprovalStatus::Approved);
}
