//! What was kept is there when the store is opened again.

use sortie::config::storage::Keep;
use sortie::model::approval::ApprovalStatus;
use sortie::model::outcome::Phase;
use sortie::store::records::CallRecord;
use sortie::store::sqlite::SqliteStore;
use sortie::store::{Bound, Decided, Store};

use crate::support::postgres::Postgres;

use super::connect;
use super::records::{
    DONE, HOUR, NOW, REFUSED, approval_id, approved, call, call_id, identity, notice, parked,
    shared, then,
};

pub(super) async fn it_works_now(store: &dyn Store) {
    assert_eq!(store.check().await, Ok(()));
}

async fn fill(store: &dyn Store) {
    parked(store, 1).await;
    approved(store, 2).await;
    let running = then(approved(store, 3).await, Phase::Running);
    assert_eq!(store.start(running, &approval_id(3), NOW + 1).await, Ok(true));
    store.write(shared([call(4, DONE), call(5, REFUSED)])).await.expect("it works");
    store.notify(vec![notice(1)]).await.expect("it works");
}

async fn assert_filled(store: &dyn Store) {
    let phases = [Phase::Waiting, Phase::Waiting, Phase::Running, DONE, REFUSED];
    for (number, phase) in (1..).zip(phases) {
        let found =
            store.call("shop", &call_id(number)).await.expect("it works").expect("it works");
        assert_eq!((found.phase, found.bound), (phase, phase != REFUSED));
        let by_identity =
            store.call_by_identity("shop", &identity(number)).await.expect("it works");
        assert_eq!(by_identity, found.bound.then_some(found));
        assert!(store.may_know("shop", Some(&call_id(number)), None));
    }
    let status = async |number| {
        let found = store
            .approval("shop", &approval_id(number))
            .await
            .expect("it works")
            .expect("it works");
        (found.status, found.used_at_ms.is_some())
    };
    assert_eq!(status(1).await, (ApprovalStatus::Pending, false));
    assert_eq!(status(2).await, (ApprovalStatus::Approved, false));
    assert_eq!(status(3).await, (ApprovalStatus::Approved, true));
    let mut again = call(6, Phase::Running);
    again.identity = Some(identity(4));
    let bound = store.bind(again).await.expect("it works");
    assert!(matches!(bound, Bound::Before(_)), "{bound:?}");
    let lost = store.lost("two", NOW).await.expect("it works");
    assert_eq!(lost.into_iter().map(|record| record.id).collect::<Vec<_>>(), [call_id(3)]);
    assert_eq!(store.claim_notices(NOW + 9, NOW + 99, 9).await.expect("it works").len(), 1);
    let waiting = then(call(2, Phase::Waiting), Phase::Running);
    assert_eq!(store.start(waiting, &approval_id(2), NOW + 1).await, Ok(true));
}

#[tokio::test]
async fn a_file_is_as_it_was_when_it_is_opened_again() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    let store = SqliteStore::open(&path).expect("it works");
    fill(&store).await;
    drop(store);
    assert_filled(&SqliteStore::open(&path).expect("it works")).await;
}

#[tokio::test]
async fn a_database_is_as_it_was_when_it_is_opened_again() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database().await;
    let store = connect(&url).await;
    fill(&store).await;
    drop(store);
    assert_filled(&connect(&url).await).await;
}

/// Two gateways that start at once make the tables once, and see each other's calls.
#[tokio::test]
async fn two_gateways_share_a_database() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database().await;
    let (one, other) = tokio::join!(connect(&url), connect(&url));
    let record = parked(&one, 1).await;
    assert_eq!(other.call("shop", &record.id).await, Ok(Some(record.clone())));
    assert!(other.is_shared() && other.may_know("shop", Some(&record.id), None));
    let ruling = |store| super::records::ruling(store, ApprovalStatus::Approved);
    let (first, second) = tokio::join!(
        one.decide(ruling(1), None, Vec::new()),
        other.decide(ruling(1), None, Vec::new())
    );
    let both = [first.expect("it works"), second.expect("it works")];
    let now = both.iter().filter(|decided| matches!(decided, Decided::Now(_))).count();
    assert_eq!(now, 1, "{both:?}");
    let mut running = then(record, Phase::Running);
    running.instance = Some("one".into());
    let id = approval_id(1);
    let (first, second) =
        tokio::join!(one.start(running.clone(), &id, NOW + 1), other.start(running, &id, NOW + 1));
    assert_eq!([first, second].iter().filter(|started| **started == Ok(true)).count(), 1);
    other.heard("one", NOW).await.expect("it works");
    assert!(other.lost("two", NOW).await.expect("it works").is_empty());
    assert_eq!(other.lost("two", NOW + 1).await.expect("it works").len(), 1);
}

/// Whoever asks while a call moves to a row of its own finds it all the same: else it would be sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_call_that_moves_within_its_file_is_known_all_the_while() {
    let folder = tempfile::tempdir().expect("it works");
    let store = SqliteStore::open(&folder.path().join("sortie.db")).expect("it works");
    let store = std::sync::Arc::new(store);
    store.write(shared((0..200).map(|number| call(number, DONE)))).await.expect("it works");
    let mover = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..200 {
                let mut told = call(number, DONE);
                told.outcome = "{}".into();
                store.write(shared([told])).await.expect("it works");
            }
        }
    });
    while !mover.is_finished() {
        for number in 0..200 {
            let (id, identity) = (call_id(number), identity(number));
            assert!(store.may_know("shop", Some(&id), None), "{number}");
            assert!(store.may_know("shop", None, Some(&identity)), "{number}");
            if number % 8 == 0 {
                assert!(store.call("shop", &id).await.expect("it works").is_some(), "{number}");
                let found = store.call_by_identity("shop", &identity).await.expect("it works");
                assert!(found.is_some(), "{number}");
            }
        }
    }
    mover.await.expect("it works");
}

/// What changed after it was finished is as it became, not as it was first kept.
#[tokio::test]
async fn a_finished_call_that_changed_is_as_it_became_when_its_file_is_opened_again() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    let store = SqliteStore::open(&path).expect("it works");
    store.write(shared((1..=6).map(|number| call(number, DONE)))).await.expect("it works");
    // One is let go, one makes room for a new one, one is told anew.
    store.release("shop", &call_id(1)).await.expect("it works");
    store.release("shop", &call_id(2)).await.expect("it works");
    assert_eq!(store.bind(call(2, Phase::Running)).await, Ok(Bound::Now));
    let mut told = call(3, DONE);
    told.outcome = "{}".into();
    store.write(shared([told.clone()])).await.expect("it works");
    // The oldest goes, which is the first that is left of the chunk, and no name of it stays.
    let keep = Keep { max_calls: 4, ..super::records::keep() };
    store.sweep(&keep, NOW + HOUR).await.expect("it works");
    assert_changed(&store, &told).await;
    drop(store);
    assert_changed(&SqliteStore::open(&path).expect("it works"), &told).await;
}

async fn assert_changed(store: &dyn Store, told: &CallRecord) {
    let find = async |number| store.call("shop", &call_id(number)).await.expect("it works");
    assert_eq!(find(1).await.map(|record| record.bound), Some(false));
    assert_eq!(find(2).await.map(|record| record.phase), Some(Phase::Running));
    assert_eq!(find(3).await.as_ref(), Some(told));
    assert_eq!((find(4).await, find(5).await), (None, Some(call(5, DONE))));
    let held = store.call_by_identity("shop", &identity(3)).await.expect("it works");
    assert_eq!(held.as_ref(), Some(told));
    assert!(!store.may_know("shop", Some(&call_id(4)), Some(&identity(4))));
    assert_eq!(
        super::records::ids(store).await,
        ["call_0001", "call_0002", "call_0003", "call_0005", "call_0006"]
    );
}
