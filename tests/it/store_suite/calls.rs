//! Calls: kept whole, found by id, identity and filter, and never by somebody else.

use std::sync::Arc;

use sortie::model::id::Token;
use sortie::model::outcome::Phase;
use sortie::store::records::{ApprovalFilter, CallFilter};
use sortie::store::{Bound, Store};

use super::records::{
    DONE, MINUTE, NOW, REFUSED, approval, call, call_id, identity, ids, parked, shared, then,
};

pub(super) async fn a_call_is_found_again_as_it_was(store: &dyn Store) {
    let mut bare = call(2, DONE);
    bare.identity = None;
    bare.context = Default::default();
    (bare.deadline, bare.code, bare.arguments) = (None, None, None);
    (bare.arguments_digest, bare.instance, bare.finished_at_ms) = (None, None, None);
    for record in [call(1, DONE), bare, call(3, Phase::Running)] {
        store.write(shared([record.clone()])).await.expect("it works");
        assert_eq!(store.call("shop", &record.id).await, Ok(Some(record)));
    }
    assert_eq!(store.call("shop", &call_id(9)).await, Ok(None));
}

pub(super) async fn an_identity_leads_to_its_call(store: &dyn Store) {
    let mut record = call(1, DONE);
    record.alias = Some(identity(7));
    store.write(shared([record.clone()])).await.expect("it works");
    for key in [identity(1), identity(7)] {
        assert_eq!(store.call_by_identity("shop", &key).await, Ok(Some(record.clone())));
        assert!(store.may_know("shop", None, Some(&key)));
    }
    assert_eq!(store.call_by_identity("shop", &identity(2)).await, Ok(None));
    assert!(store.may_know("shop", Some(&record.id), None));
}

pub(super) async fn another_organisation_sees_nothing(store: &dyn Store) {
    let record = parked(store, 1).await;
    let other = CallFilter { organisation: "bank".to_owned(), most: 9, ..CallFilter::default() };
    assert_eq!(store.call("bank", &record.id).await, Ok(None));
    assert_eq!(store.call_by_identity("bank", &identity(1)).await, Ok(None));
    assert_eq!(store.calls(&other).await, Ok(Vec::new()));
    assert_eq!(store.approval("bank", &super::records::approval_id(1)).await, Ok(None));
    assert_eq!(store.approvals_of("bank", &record.id).await, Ok(Vec::new()));
    let mut theirs = call(1, Phase::Running);
    theirs.organisation = "bank".into();
    assert_eq!(store.bind(theirs.clone()).await, Ok(Bound::Now));
    assert_eq!(store.call("bank", &record.id).await, Ok(Some(theirs)));
    assert_eq!(store.call("shop", &record.id).await, Ok(Some(record)));
}

pub(super) async fn a_call_that_ended_takes_the_place_of_its_beginning(store: &dyn Store) {
    let began = call(1, Phase::Running);
    let ended = then(began.clone(), DONE);
    store.write(shared([began.clone()])).await.expect("it works");
    store.write(shared([ended.clone(), began.clone()])).await.expect("it works");
    store.write(shared([began])).await.expect("it works");
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(Some(ended)));
    assert_eq!(ids(store).await, ["call_0001"]);
}

pub(super) async fn an_identity_is_bound_once(store: &dyn Store) {
    let first = call(1, Phase::Running);
    assert_eq!(store.bind(first.clone()).await, Ok(Bound::Now));
    let mut second = call(2, Phase::Running);
    second.identity = Some(identity(1));
    let before = Ok(Bound::Before(Box::new(first.clone())));
    assert_eq!(store.bind(second.clone()).await, before);
    let mut same_id = call(3, Phase::Running);
    same_id.id = call_id(1);
    assert_eq!(store.bind(same_id).await, before);
    let waiting = then(second, Phase::Waiting);
    assert_eq!(store.park(waiting.clone(), approval(2, &waiting), Vec::new()).await, before);
    assert_eq!(store.approvals_of("shop", &waiting.id).await, Ok(Vec::new()));
    assert_eq!(ids(store).await, ["call_0001"]);
}

pub(super) async fn of_two_at_the_same_instant_one_is_bound(store: &dyn Store) {
    for round in 0..10 {
        let [mut one, mut other] = [2 * round, 2 * round + 1].map(|n| call(n, Phase::Running));
        one.identity = Some(identity(500 + round));
        other.identity = Some(identity(500 + round));
        let (one, other) = tokio::join!(store.bind(one), store.bind(other));
        let both = [one.expect("it works"), other.expect("it works")];
        let now = both.iter().filter(|bound| **bound == Bound::Now).count();
        assert_eq!(now, 1, "{both:?}");
    }
}

pub(super) async fn a_call_that_was_not_sent_makes_room(store: &dyn Store) {
    let refused = call(1, REFUSED);
    store.write(shared([refused.clone()])).await.expect("it works");
    assert_eq!(store.call_by_identity("shop", &identity(1)).await, Ok(None));
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(Some(refused)));
    let again = call(1, Phase::Running);
    assert_eq!(store.bind(again.clone()).await, Ok(Bound::Now));
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(Some(again.clone())));
    // It turns out that nothing was sent: the names are free again.
    let mut ended = then(again, DONE);
    ended.bound = false;
    store.write(shared([ended])).await.expect("it works");
    assert_eq!(store.call_by_identity("shop", &identity(1)).await, Ok(None));
    let mut later = call(1, DONE);
    later.created_at_ms += MINUTE;
    store.write(shared([later.clone()])).await.expect("it works");
    assert_eq!(store.call_by_identity("shop", &identity(1)).await, Ok(Some(later)));
    assert_eq!(ids(store).await, ["call_0001"]);
}

pub(super) async fn a_bound_call_makes_no_room_for_one_that_was_not_sent(store: &dyn Store) {
    let bound = call(1, DONE);
    store.write(shared([bound.clone()])).await.expect("it works");
    let mut refused = call(1, REFUSED);
    refused.created_at_ms += MINUTE;
    store.write(shared([refused])).await.expect("it works");
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(Some(bound)));
}

pub(super) async fn calls_are_filtered_and_the_newest_are_told_oldest_first(store: &dyn Store) {
    let mut batch = Vec::new();
    for number in 1..=6 {
        let phase = if number % 2 == 0 { DONE } else { Phase::Running };
        let mut record = call(number, phase);
        Arc::make_mut(&mut record.context).session_id = Some(format!("se_{}", number / 4));
        record.tool = if number == 5 { "lookup" } else { "refund" }.into();
        batch.push(record);
    }
    store.write(shared(batch)).await.expect("it works");
    let all = CallFilter { organisation: "shop".to_owned(), most: 100, ..CallFilter::default() };
    let check = async |filter: CallFilter, expected: &[u32]| {
        let found = store.calls(&filter).await.expect("it works");
        let found: Vec<_> = found.into_iter().map(|record| record.id).collect();
        let expected: Vec<_> = expected.iter().map(|number| call_id(*number)).collect();
        assert_eq!(found, expected, "{filter:?}");
    };
    let all = || all.clone();
    check(all(), &[1, 2, 3, 4, 5, 6]).await;
    check(CallFilter { most: 2, ..all() }, &[5, 6]).await;
    check(CallFilter { most: 0, ..all() }, &[]).await;
    check(CallFilter { session_id: Some("se_0".to_owned()), ..all() }, &[1, 2, 3]).await;
    check(CallFilter { run_id: Some("run_4".to_owned()), ..all() }, &[4]).await;
    check(CallFilter { phase: Some(Phase::Running), ..all() }, &[1, 3, 5]).await;
    check(CallFilter { tool: Some("lookup".to_owned()), ..all() }, &[5]).await;
    check(CallFilter { since_ms: Some(NOW + 5), ..all() }, &[5, 6]).await;
    let session_id = Some("se_1".to_owned());
    check(CallFilter { session_id, phase: Some(DONE), ..all() }, &[4, 6]).await;
    let injected = Some("se_1' OR true --".to_owned());
    check(CallFilter { session_id: injected, ..all() }, &[]).await;
}

pub(super) async fn a_lost_call_is_buried_once(store: &dyn Store) {
    let mut others = call(1, Phase::Running);
    others.instance = Some("gone".into());
    let mut nobodys = call(2, Phase::Running);
    nobodys.instance = None;
    let own = call(3, Phase::Running);
    store
        .write(shared([others.clone(), nobodys.clone(), own, call(4, DONE)]))
        .await
        .expect("it works");
    parked(store, 5).await;
    store.heard("one", NOW).await.expect("it works");
    let mut lost = store.lost("one", NOW - MINUTE).await.expect("it works");
    lost.sort_by_key(|record| record.created_at_ms);
    assert_eq!(lost, [others.clone(), nobodys]);
    let ended = then(others, DONE);
    assert_eq!(store.bury(ended.clone()).await, Ok(true));
    assert_eq!(store.bury(ended.clone()).await, Ok(false));
    assert_eq!(store.bury(call(9, DONE)).await, Ok(false));
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(Some(ended)));
}

pub(super) async fn calls_are_walked_through_each_once(store: &dyn Store) {
    for number in 1..=7 {
        let mut record = call(number, DONE);
        record.created_at_ms = if number == 2 { NOW - MINUTE } else { NOW };
        if number == 5 {
            record.organisation = "bank".into();
        }
        store.write(shared([record])).await.expect("it works");
    }
    let (mut below, mut walked) = (i64::MAX, Vec::new());
    for pages in 1.. {
        let (page, next) = store.walk("shop", NOW, below, 2).await.expect("it works");
        assert!(page.len() <= 2 && pages <= 3, "{page:?}");
        walked.extend(page.into_iter().map(|record| record.id));
        match next {
            Some(next) => below = next,
            None => break,
        }
    }
    assert_eq!(walked, [7, 6, 4, 3, 1].map(call_id));
    assert_eq!(store.walk("shop", NOW + 1, i64::MAX, 2).await, Ok((Vec::new(), None)));
}

/// In each of many batches there are calls of other conversations and runs.
pub(super) async fn a_conversation_and_a_run_are_found_among_many_others(store: &dyn Store) {
    for batch in 0..8 {
        let records = (0..40).map(|number| {
            let mut record = call(batch * 40 + number, DONE);
            let rare = batch % 3 == 1 && number == 7;
            let context = Arc::make_mut(&mut record.context);
            context.session_id = Some(if rare { "rare".to_owned() } else { format!("s{batch}") });
            let run = if rare { "run_rare".to_owned() } else { format!("run_{number}") };
            context.run_id = Some(Token::parse(&run).expect("it is one"));
            record.created_at_ms = NOW + i64::from(batch * 40 + number);
            record
        });
        store.write(shared(records)).await.expect("it works");
    }
    // What was taken out of its batch counts once.
    store.release("shop", &call_id(167)).await.expect("it works");
    let filter = CallFilter { organisation: "shop".to_owned(), most: 100, ..CallFilter::default() };
    let of_session = CallFilter { session_id: Some("rare".to_owned()), ..filter.clone() };
    let of_run = CallFilter { run_id: Some("run_rare".to_owned()), ..filter.clone() };
    let of_both = CallFilter { run_id: Some("run_rare".to_owned()), ..of_session.clone() };
    for filter in [of_session.clone(), of_run, of_both] {
        let found = store.calls(&filter).await.expect("it works");
        let found: Vec<_> = found.into_iter().map(|record| record.id).collect();
        assert_eq!(found, [47, 167, 287].map(call_id), "{filter:?}");
    }
    let elsewhere = CallFilter { organisation: "bank".to_owned(), ..of_session.clone() };
    assert_eq!(store.calls(&elsewhere).await, Ok(Vec::new()));
    let apart = CallFilter { run_id: Some("run_1".to_owned()), ..of_session };
    assert_eq!(store.calls(&apart).await, Ok(Vec::new()));
}

pub(super) async fn what_was_let_go_is_free(store: &dyn Store) {
    store.write(shared([call(1, DONE), call(2, Phase::Running)])).await.expect("it works");
    for number in 1..=3 {
        store.release("shop", &call_id(number)).await.expect("it works");
    }
    store.release("bank", &call_id(2)).await.expect("it works");
    assert_eq!(store.call_by_identity("shop", &identity(1)).await, Ok(None));
    assert!(!store.call("shop", &call_id(1)).await.expect("it works").expect("it works").bound);
    assert!(store.call_by_identity("shop", &identity(2)).await.expect("it works").is_some());
    assert_eq!(store.bind(call(1, Phase::Running)).await, Ok(Bound::Now));
}

/// PostgreSQL's text cannot hold the character, so there another one stands for it.
pub(super) async fn a_name_with_a_nul_is_nobody_s(store: &dyn Store) {
    let mut like = call(1, Phase::Waiting);
    like.tool = "a\u{fffd}b".into();
    Arc::make_mut(&mut like.context).session_id = Some("a\u{fffd}b".to_owned());
    let asked = approval(1, &like);
    assert_eq!(store.park(like, asked, Vec::new()).await, Ok(Bound::Now));
    for (name, there) in [("a\u{fffd}b", 1), ("a\0b", 0), ("\0", 0)] {
        let named = || Some(name.to_owned());
        let all = CallFilter { organisation: "shop".to_owned(), most: 9, ..CallFilter::default() };
        let any = ApprovalFilter { most: 9, ..ApprovalFilter::default() };
        for filter in [
            CallFilter { session_id: named(), ..all.clone() },
            CallFilter { tool: named(), ..all.clone() },
        ] {
            let found = store.calls(&filter).await.expect("it works");
            assert_eq!(found.len(), there, "{filter:?}");
        }
        for filter in [
            ApprovalFilter { session_id: named(), ..any.clone() },
            ApprovalFilter { tool: named(), ..any },
        ] {
            let found = store.approvals(&filter).await.expect("it works");
            assert_eq!(found.len(), there, "{filter:?}");
        }
        let run = CallFilter { run_id: named(), ..all };
        assert_eq!(store.calls(&run).await.expect("it works").len(), 0, "{run:?}");
    }
}
