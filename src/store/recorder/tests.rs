//! What is offered is found until it is kept, once, and as it was last.

use std::future::Future;
use std::task::{Context, Waker};

use bytes::Bytes;

use super::*;
use crate::clock::SystemClock;
use crate::model::outcome::{Phase, Status};
use crate::store::sqlite::SqliteStore;

const DONE: Phase = Phase::Ended(Status::Succeeded);

fn recorder() -> (Recorder, RecordWriter, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::memory().expect("a store"));
    let metrics = Arc::new(Metrics::new(true));
    let (recorder, writer) = Recorder::new(store.clone(), Arc::new(SystemClock), metrics);
    (recorder, writer, store)
}

fn id(number: usize) -> CallId {
    CallId::parse(&format!("call_{number:04}")).expect("an id")
}

fn record(number: usize, phase: Phase) -> CallRecord {
    CallRecord {
        organisation: "default".into(),
        id: id(number),
        phase,
        bound: true,
        identity: None,
        alias: None,
        tool: "lookup".into(),
        key: "key".into(),
        context: Arc::default(),
        deadline: None,
        code: None,
        created_at_ms: 1,
        finished_at_ms: phase.is_final().then_some(2),
        arguments: Some(Bytes::from_static(b"{}")),
        arguments_digest: None,
        outcome: Bytes::from_static(b"{}"),
        instance: None,
    }
}

fn phase(recorder: &Recorder, number: usize) -> Option<Phase> {
    recorder.find("default", Some(&id(number)), None).map(|record| record.phase)
}

#[tokio::test]
async fn what_is_offered_is_found_at_once_and_kept_once_it_is_flushed() {
    let (recorder, writer, store) = recorder();
    recorder.offer(&record(1, Phase::Running));
    assert_eq!(phase(&recorder, 1), Some(Phase::Running));
    recorder.offer(&record(1, DONE));
    // What ended does not run again.
    recorder.offer(&record(1, Phase::Running));
    assert_eq!(phase(&recorder, 1), Some(DONE));
    assert!(recorder.find("other", Some(&id(1)), None).is_none());
    let writing = tokio::spawn(writer.run());
    recorder.flush().await;
    assert_eq!(phase(&recorder, 1), None);
    let kept = store.call("default", &id(1)).await.expect("a store").expect("it is kept");
    assert_eq!(kept.phase, DONE);
    writing.abort();
}

#[test]
fn a_call_is_found_by_its_identity_only_where_it_is_bound() {
    let (recorder, _writer, _store) = recorder();
    let token = |text| crate::model::id::Token::parse(text).expect("a token");
    let identity = IdempotencyKey::derive(&token("run"), &token("1"), 0);
    let with = |number, bound| CallRecord {
        bound,
        identity: Some(identity.clone()),
        ..record(number, DONE)
    };
    recorder.offer(&with(1, false));
    assert!(recorder.find("default", None, Some(&identity)).is_none());
    recorder.offer(&with(2, true));
    let found = recorder.find("default", Some(&id(1)), Some(&identity)).expect("the bound one");
    assert_eq!(found.id, id(2));
}

#[test]
fn what_could_not_be_written_waits_again_and_an_end_stays_one() {
    let (recorder, _writer, _store) = recorder();
    recorder.offer(&record(1, DONE));
    assert_eq!(recorder.0.take().len(), 1);
    // It is being written, and found meanwhile; the sign that it runs comes late.
    assert_eq!(phase(&recorder, 1), Some(DONE));
    recorder.offer(&record(1, Phase::Running));
    recorder.offer(&record(2, Phase::Running));
    recorder.0.put_back();
    assert_eq!((phase(&recorder, 1), phase(&recorder, 2)), (Some(DONE), Some(Phase::Running)));
    assert_eq!(recorder.0.take().len(), 2);
}

#[test]
fn another_call_under_a_free_id_is_no_late_sign_of_the_first() {
    let (recorder, _writer, _store) = recorder();
    recorder.offer(&CallRecord { bound: false, ..record(1, DONE) });
    recorder.offer(&CallRecord { created_at_ms: 5, ..record(1, Phase::Running) });
    assert_eq!(phase(&recorder, 1), Some(Phase::Running));
}

#[test]
fn a_full_queue_takes_nothing_new_and_still_learns_what_became_of_its_own() {
    let (recorder, _writer, _store) = recorder();
    let large = Bytes::from(vec![b' '; MOST_BYTES]);
    recorder.offer(&CallRecord { arguments: Some(large), ..record(1, Phase::Running) });
    recorder.offer(&record(2, DONE));
    assert_eq!(phase(&recorder, 2), None);
    recorder.offer(&record(1, DONE));
    assert_eq!(phase(&recorder, 1), Some(DONE));
    recorder.offer(&record(2, DONE));
    assert_eq!(phase(&recorder, 2), Some(DONE));
}

/// The batch before is kept at the very moment: its end is not taken for that of the next one.
#[tokio::test]
async fn a_flush_waits_for_the_batch_that_it_saw() {
    let (recorder, _writer, _store) = recorder();
    recorder.offer(&record(1, DONE));
    recorder.0.take();
    recorder.offer(&record(2, DONE));
    let mut flushed = std::pin::pin!(recorder.flush());
    let mut is_over = || flushed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert!(!is_over());
    recorder.0.written();
    assert!(!is_over(), "the second batch waits still");
    recorder.0.take();
    recorder.0.written();
    assert!(is_over());
}
