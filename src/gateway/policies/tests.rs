//! Two gateways on one store, and what does not compile any more.

use super::*;
use crate::store::sqlite::SqliteStore;

fn record(organisation: &str, id: &str, body: &str) -> PolicyRecord {
    PolicyRecord {
        organisation: organisation.into(),
        id: id.into(),
        version: 1,
        body: body.into(),
        created_at_ms: 0,
        updated_at_ms: 0,
    }
}

fn denies(id: &str) -> PolicyRecord {
    record("default", id, &format!(r#"{{"id":"{id}","effect":"deny"}}"#))
}

fn store() -> Arc<dyn Store> {
    Arc::new(SqliteStore::memory().expect("a store"))
}

async fn book(store: &Arc<dyn Store>) -> PolicyBook {
    let book = PolicyBook::empty(store.clone());
    book.refresh().await.expect("a store");
    book
}

fn ids(book: &PolicyBook, organisation: &str) -> Vec<String> {
    book.of(organisation).iter().map(|policy| policy.id.to_string()).collect()
}

#[tokio::test]
async fn a_change_holds_here_at_once_and_at_another_gateway_when_it_looks() {
    let store = store();
    let (one, other) = (book(&store).await, book(&store).await);
    one.put(denies("b"), None).await.expect("kept");
    one.put(denies("a"), None).await.expect("kept");
    assert_eq!(ids(&one, "default"), ["a", "b"]);
    assert_eq!(ids(&other, "default"), Vec::<String>::new());
    other.refresh().await.expect("a store");
    assert_eq!(ids(&other, "default"), ["a", "b"]);
    let changed = PolicyRecord { version: 2, ..denies("a") };
    assert_eq!(other.put(changed.clone(), Some(1)).await, Ok(()));
    assert_eq!(one.put(changed, Some(1)).await, Err(StoreError::Conflict));
    other.delete("default", "b").await.expect("deleted");
    assert_eq!(ids(&other, "default"), ["a"]);
    one.refresh().await.expect("a store");
    assert_eq!(one.find("default", "a").map(|kept| kept.record.version), Some(2));
    assert_eq!(ids(&one, "default"), ["a"]);
}

/// A file that a backup was put back into while the gateway runs.
#[tokio::test]
async fn what_a_restored_store_has_holds_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sortie.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).expect("a store"));
    let book = book(&store).await;
    book.put(denies("a"), None).await.expect("kept");
    book.put(denies("b"), None).await.expect("kept");
    let file = rusqlite::Connection::open(&path).expect("a file");
    file.execute_batch("DELETE FROM policies WHERE id = 'b'; UPDATE revision SET revision = 1")
        .expect("it is changed");
    book.refresh().await.expect("a store");
    assert_eq!(ids(&book, "default"), ["a"]);
    // What changes then is seen too: a look was between, so the revision is another one again.
    store.put_policy(denies("c"), None).await.expect("kept");
    book.refresh().await.expect("a store");
    assert_eq!(ids(&book, "default"), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn another_gateway_s_change_is_seen_within_five_seconds() {
    let store = store();
    let (one, other) = (book(&store).await, Arc::new(book(&store).await));
    one.put(denies("a"), None).await.expect("kept");
    let clock: Arc<dyn Clock> = Arc::new(crate::clock::SystemClock);
    let watching = other.clone().watch(clock);
    let seen = async {
        tokio::time::sleep(LOOK_EVERY + Duration::from_millis(1)).await;
        while other.of("default").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = watching => {}
        () = seen => {}
    }
    assert_eq!(ids(&other, "default"), ["a"]);
}

#[tokio::test]
async fn an_organisation_sees_its_own_policies_alone() {
    let store = store();
    let book = book(&store).await;
    book.put(denies("a"), None).await.expect("kept");
    let theirs = record("acme", "a", r#"{"id":"a","effect":"ask_first"}"#);
    book.put(theirs, None).await.expect("kept");
    assert_eq!(
        book.find("acme", "a").map(|kept| kept.record.organisation.clone()),
        Some("acme".into())
    );
    book.delete("acme", "a").await.expect("deleted");
    assert_eq!((ids(&book, "acme").len(), ids(&book, "default").len()), (0, 1));
    assert!(book.find("acme", "a").is_none() && book.list("acme").is_empty());
}

#[tokio::test]
async fn what_does_not_compile_any_more_is_shown_and_not_in_force() {
    let store = store();
    let broken = record("default", "old", r#"{"id":"old","effect":"forbid"}"#);
    store.put_policy(broken, None).await.expect("kept");
    store.put_policy(denies("good"), None).await.expect("kept");
    let book = book(&store).await;
    assert_eq!(ids(&book, "default"), ["good"]);
    let kept = book.find("default", "old").expect("it is shown");
    assert!(kept.compiled.as_ref().is_err_and(|error| error.starts_with("/effect: ")));
}

#[tokio::test]
async fn a_tool_is_decided_on_by_the_file_s_policies_and_those_about_it() {
    let store = store();
    let book = book(&store).await;
    let snapshot = crate::gateway::tests::snapshot();
    let tool = &snapshot.tools["lookup"];
    assert!(matches!(book.about("default", tool), Cow::Borrowed(_)));
    let of = |id: &str, matching: &str| {
        let body = format!(r#"{{"id":"{id}","effect":"deny","match":{matching}}}"#);
        record("default", id, &body)
    };
    book.put(of("named", r#"{"tools":["look*"]}"#), None).await.expect("kept");
    book.put(of("other", r#"{"tools":["refund"]}"#), None).await.expect("kept");
    book.put(of("reads", r#"{"permission":"READ"}"#), None).await.expect("kept");
    let about = book.about("default", tool);
    assert_eq!(about.iter().map(|policy| &*policy.id).collect::<Vec<_>>(), ["named"]);
    assert!(book.about("acme", tool).is_empty());
}
