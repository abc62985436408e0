//! A store that is damaged, taken, full or away: it says so, nothing is deleted, and it works again when it can.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use sortie::config::storage::Keep;
use sortie::model::outcome::Phase;
use sortie::store::postgres::PostgresStore;
use sortie::store::sqlite::{OpenError, SqliteStore};
use sortie::store::{Bound, Store, StoreError};

use crate::store_suite::records::{
    DAY, DONE, NOW, approval, call, call_id, identity, keep, parked, shared,
};
use crate::store_suite::{connect, tls};
use crate::support::http::{Reply, request};
use crate::support::postgres::Postgres;
use crate::support::wait;
use crate::support::world::World;

/// A key that reads, decides and keeps policies.
const DESK_KEY: &str = "sk-desk-Jm4Xc8Vn2Qw6Er9Tz";

#[track_caller]
fn refused(path: &Path) -> String {
    match SqliteStore::open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn f143_a_damaged_file_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    let store = SqliteStore::open(&path).expect("it works");
    store.write(shared((1..200).map(|number| call(number, DONE)))).await.expect("it works");
    drop(store);
    let good = std::fs::read(&path).expect("it works");
    for (what, from, to) in [("its head", 0, 16), ("its pages", 4096, good.len())] {
        let mut bad = good.clone();
        bad[from..to].iter_mut().for_each(|byte| *byte ^= 0x5a);
        std::fs::write(&path, &bad).expect("it works");
        let text = refused(&path);
        assert!(text.contains("is damaged"), "{what}: {text}");
        assert!(std::fs::read(&path).expect("it works") == bad, "{what}: the file is as it was");
    }
    std::fs::write(&path, &good).expect("it works");
    let store = SqliteStore::open(&path).expect("it works");
    assert_eq!(store.call("shop", &call_id(7)).await, Ok(Some(call(7, DONE))));
}

/// The files that the finished calls of a store are in.
fn segments(store: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(store.with_extension("db.calls")).expect("it works");
    let mut found: Vec<_> = entries.map(|entry| entry.expect("it works").path()).collect();
    found.sort();
    found
}

fn change(store: &Path, text: &str) {
    rusqlite::Connection::open(store).expect("it works").execute_batch(text).expect("it works");
}

/// Opens a store once for each of these calls: each is then in a file of its own.
async fn in_files_of_their_own(path: &Path, numbers: std::ops::RangeInclusive<u32>) {
    for number in numbers {
        let store = SqliteStore::open(path).expect("it works");
        store.write(shared([call(number, DONE)])).await.expect("it works");
    }
}

/// SQLite itself sees nothing wrong there.
#[tokio::test]
async fn f143_finished_calls_that_are_not_whole_are_said_to_be_damaged() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    in_files_of_their_own(&path, 1..=2).await;
    let first = segments(&path).remove(0);
    let whole = std::fs::read(&first).expect("it works");
    for left in [&whole[..whole.len() - 7], &[]] {
        std::fs::write(&first, left).expect("it works");
        let text = refused(&path);
        assert!(text.contains("is damaged (") && text.contains("finished call"), "{text}");
    }
    std::fs::write(&first, &whole).expect("it works");
    change(&path, "CREATE TABLE kept AS SELECT n, names FROM chunks");
    change(&path, "UPDATE chunks SET names = substr(names, 1, length(names) - 7)");
    let text = refused(&path);
    assert!(text.contains("is damaged (") && text.contains("finished call"), "{text}");
    change(&path, "UPDATE chunks SET names = kept.names FROM kept WHERE kept.n = chunks.n");
    let store = SqliteStore::open(&path).expect("it is whole again");
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(Some(call(1, DONE))));
}

/// What was not on the disk yet is cut off, or stands there as zeros.
#[tokio::test]
async fn f143_a_loss_of_power_takes_the_latest_finished_calls_and_nothing_else() {
    for is_cut in [true, false] {
        let folder = tempfile::tempdir().expect("it works");
        let path = folder.path().join("sortie.db");
        in_files_of_their_own(&path, 1..=2).await;
        let store = SqliteStore::open(&path).expect("it works");
        store.write(shared([call(3, DONE)])).await.expect("it works");
        let last = segments(&path).remove(2);
        let kept = std::fs::read(&last).expect("it works");
        store.write(shared([call(4, DONE)])).await.expect("it works");
        drop(store);
        let length = if is_cut { kept.len() + 9 } else { 2 * kept.len() };
        let mut left = kept;
        left.resize(length, 0);
        std::fs::write(&last, left).expect("it works");
        for _ in 0..2 {
            let store = SqliteStore::open(&path).expect("it opens, and again");
            for number in 1..=3 {
                let found = store.call("shop", &call_id(number)).await;
                assert_eq!(found, Ok(Some(call(number, DONE))));
            }
            assert!(!store.may_know("shop", Some(&call_id(4)), Some(&identity(4))));
        }
        let store = SqliteStore::open(&path).expect("it works");
        store.write(shared([call(4, DONE)])).await.expect("it works");
        assert_eq!(store.call("shop", &call_id(4)).await, Ok(Some(call(4, DONE))));
    }
}

/// Nothing is given up because it cannot be told.
#[tokio::test]
async fn f143_a_file_of_finished_calls_that_may_not_be_read_is_no_loss() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    in_files_of_their_own(&path, 1..=1).await;
    let last = segments(&path).remove(0);
    let away = folder.path().join("away");
    std::fs::rename(&last, &away).expect("it works");
    // It has a length, and reading it fails for whoever it is.
    std::fs::create_dir(&last).expect("it works");
    assert!(refused(&path).contains("cannot be opened"));
    std::fs::remove_dir(&last).and(std::fs::rename(&away, &last)).expect("it works");
    let store = SqliteStore::open(&path).expect("it works");
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(Some(call(1, DONE))));
}

/// The file alone is not the store.
#[tokio::test]
async fn f143_files_of_finished_calls_that_are_missing_are_damage_until_they_are_back() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    in_files_of_their_own(&path, 1..=3).await;
    let away = folder.path().join("away");
    for missing in segments(&path).into_iter().chain([path.with_extension("db.calls")]) {
        std::fs::rename(&missing, &away).expect("it works");
        let text = refused(&path);
        assert!(
            text.contains("is damaged (the finished calls in ") && text.contains("are missing")
        );
        std::fs::rename(&away, &missing).expect("it works");
    }
    let store = SqliteStore::open(&path).expect("it is whole again");
    for number in 1..=3 {
        assert_eq!(store.call("shop", &call_id(number)).await, Ok(Some(call(number, DONE))));
    }
}

/// It is not taken for one that nobody knows, which would be sent.
#[tokio::test]
async fn a_call_that_cannot_be_read_any_more_is_an_error_and_what_comes_after_it_is_kept() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    let store = SqliteStore::open(&path).expect("it works");
    store.write(shared([call(1, DONE)])).await.expect("it works");
    let file = segments(&path).remove(0);
    let zeros = vec![0; std::fs::read(&file).expect("it works").len()];
    std::fs::write(&file, zeros).expect("it works");
    let found = store.call("shop", &call_id(1)).await;
    assert!(matches!(&found, Err(StoreError::Unavailable(text)) if text.contains(".calls")));
    let found = store.call_by_identity("shop", &identity(1)).await;
    assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
    let bound = store.bind(call(1, Phase::Running)).await;
    assert!(matches!(bound, Err(StoreError::Unavailable(_))), "{bound:?}");
    store.write(shared([call(1, DONE), call(2, DONE)])).await.expect("it works");
    for number in 1..=2 {
        let again = call(number, DONE);
        assert_eq!(store.call("shop", &again.id).await, Ok(Some(again.clone())));
        let by_identity = store.call_by_identity("shop", &identity(number)).await;
        assert_eq!(by_identity, Ok(Some(again)));
    }
}

#[tokio::test]
async fn files_of_calls_that_are_forgotten_go() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    in_files_of_their_own(&path, 1..=3).await;
    let store = SqliteStore::open(&path).expect("it works");
    let left = segments(&path).split_off(2);
    let keep = Keep { max_calls: 1, ..keep() };
    store.sweep(&keep, NOW).await.expect("it works");
    assert_eq!(segments(&path), left);
    assert_eq!(store.call("shop", &call_id(3)).await, Ok(Some(call(3, DONE))));
    assert_eq!(store.call("shop", &call_id(2)).await, Ok(None));
    // The next file begins while this one's calls are young, and all go with their youngest.
    let (long, short) = (Keep { max_calls: 100, ..keep }, keep);
    store.sweep(&long, NOW).await.expect("it works");
    store.write(shared([call(4, DONE)])).await.expect("it works");
    store.sweep(&long, NOW).await.expect("it works");
    store.sweep(&long, NOW + 7 * DAY / 8).await.expect("it works");
    store.write(shared([call(5, DONE)])).await.expect("it works");
    assert_eq!(segments(&path).len(), 3);
    store.sweep(&short, NOW + DAY).await.expect("it works");
    assert_eq!(segments(&path).len(), 1);
    drop(store);
    let file = rusqlite::Connection::open(&path).expect("it works");
    let first = "SELECT first_segment FROM marks";
    let first: i64 = file.query_row(first, [], |row| row.get(0)).expect("it works");
    assert_eq!(first, 5, "nothing before it is expected any more");
}

/// The first version of the tables had the calls of a chunk in its row.
#[tokio::test]
async fn a_file_of_the_first_version_is_brought_up_to_date_with_all_its_calls() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    let store = SqliteStore::open(&path).expect("it works");
    let calls = || (1..200).map(|number| call(number, DONE));
    store.write(shared(calls())).await.expect("it works");
    parked(&store, 300).await;
    drop(store);
    let records = std::fs::read(segments(&path).remove(0)).expect("it works");
    std::fs::remove_dir_all(path.with_extension("db.calls")).expect("it works");
    let file = rusqlite::Connection::open(&path).expect("it works");
    file.execute("UPDATE chunks SET records = ?1", [records]).expect("it works");
    drop(file);
    for (table, column) in [
        ("chunks", "segment"),
        ("chunks", "offset"),
        ("chunks", "checksum"),
        ("marks", "shelf"),
        ("marks", "first_segment"),
    ] {
        change(&path, &format!("ALTER TABLE {table} DROP COLUMN {column}"));
    }
    change(&path, "PRAGMA user_version = 1");
    let store = SqliteStore::open(&path).expect("it is brought up to date");
    store.write(shared([call(400, DONE)])).await.expect("it works");
    for record in calls().chain([call(400, DONE)]) {
        assert_eq!(store.call("shop", &record.id).await, Ok(Some(record)));
    }
    assert_eq!(store.call("shop", &call_id(300)).await.map(|found| found.is_some()), Ok(true));
    change(&path, "UPDATE chunks SET records = substr(records, 8) WHERE segment IS NULL");
    drop(store);
    assert!(refused(&path).contains("finished call"));
}

#[tokio::test]
async fn f143_the_file_of_a_later_version_or_of_another_program_is_refused() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    drop(SqliteStore::open(&path).expect("it works"));
    change(&path, "PRAGMA user_version = 99");
    let text = refused(&path);
    assert!(text.contains("written by a later version of sortie (schema 99"), "{text}");
    let foreign = folder.path().join("other.db");
    change(&foreign, "CREATE TABLE calls (n); PRAGMA user_version = 1");
    assert!(refused(&foreign).contains("a database of another program"));
}

#[tokio::test]
async fn f143_the_database_of_a_later_version_is_refused() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database().await;
    drop(connect(&url).await);
    let (client, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it works");
    let driver = tokio::spawn(connection);
    client.batch_execute("INSERT INTO sortie_schema VALUES (99)").await.expect("it works");
    drop(client);
    driver.await.expect("it works").expect("it works");
    let Err(error) = PostgresStore::open(&url, &tls()).await else { panic!("it was opened") };
    assert!(error.to_string().contains("set up by a later version of sortie (schema 99"));
}

#[tokio::test]
async fn f144_a_second_store_on_the_same_file_is_refused_until_the_first_ends() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    let store = SqliteStore::open(&path).expect("it works");
    let text = refused(&path);
    assert!(text.contains("in use by another process"), "{text}");
    assert!(matches!(SqliteStore::open(&path), Err(OpenError::Taken { .. })));
    drop(store);
    SqliteStore::open(&path).expect("it works");
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_said_and_the_file_is_the_owner_s_alone() {
    let folder = tempfile::tempdir().expect("it works");
    let text = refused(&folder.path().join("nowhere/sortie.db"));
    assert!(text.contains("cannot be opened for writing"), "{text}");
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("it works");
    let text = refused(&inner);
    assert!(text.contains("cannot be opened for writing"), "{text}");
    let path = folder.path().join("sortie.db");
    let store = SqliteStore::open(&path).expect("it works");
    store.write(shared([call(1, DONE)])).await.expect("it works");
    let names = ["sortie.db", "sortie.db-wal", "sortie.db.lock"];
    let mut files: Vec<_> = names.map(|name| folder.path().join(name)).into();
    files.extend(segments(&path));
    assert_eq!(files.len(), 4);
    for file in files {
        let mode = std::fs::metadata(&file).expect("it works").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn f142_a_file_that_somebody_holds_is_waited_for_and_not_for_ever() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    let store = SqliteStore::open(&path).expect("it works");
    let other = rusqlite::Connection::open(&path).expect("it works");
    other.execute_batch("BEGIN IMMEDIATE").expect("it works");
    let held = store.write(shared([call(1, DONE)])).await;
    assert!(matches!(held, Err(StoreError::Unavailable(_))), "{held:?}");
    // What nobody wrote is not known either, and reading goes on.
    assert_eq!(store.call("shop", &call_id(1)).await, Ok(None));
    assert!(!store.may_know("shop", Some(&call_id(1)), None));
    other.execute_batch("ROLLBACK").expect("it works");
    store.write(shared([call(1, DONE)])).await.expect("it works");
    assert_eq!(store.check().await, Ok(()));
}

/// A store in memory has an end too: finished calls make room, and what waits is refused when nothing else is left.
#[tokio::test]
async fn f141_a_full_store_refuses_what_must_be_kept_and_works_again() {
    let store = SqliteStore::memory().expect("it works");
    let large = |number, phase| {
        let mut record = call(number, phase);
        record.outcome = vec![b'x'; 8 << 20].into();
        record
    };
    for number in 0..40 {
        store.write(shared([large(number, DONE)])).await.expect("it works");
    }
    assert_eq!(store.call("shop", &call_id(0)).await, Ok(None));
    assert!(store.call("shop", &call_id(39)).await.expect("it works").is_some());
    let mut kept = Vec::new();
    let refused = loop {
        let record = large(100 + u32::try_from(kept.len()).expect("it works"), Phase::Waiting);
        let asked = approval(100 + u32::try_from(kept.len()).expect("it works"), &record);
        match store.park(record.clone(), asked, Vec::new()).await {
            Ok(Bound::Now) => kept.push(record),
            other => break (record, other),
        }
        assert!(kept.len() < 100, "it has no end");
    };
    let StoreError::Unavailable(text) = refused.1.unwrap_err() else { panic!("{kept:?}") };
    assert!(text.contains("full"), "{text}");
    assert!(!store.may_know("shop", Some(&refused.0.id), None));
    let mut ended = kept.pop().expect("it works");
    (ended.phase, ended.outcome) = (DONE, "{}".into());
    store.finish(ended.clone(), None, Vec::new()).await.expect("it works");
    assert_eq!(store.call("shop", &ended.id).await, Ok(Some(ended)));
    parked(&store, 1).await;
}

#[tokio::test]
async fn f145_a_server_that_goes_is_said_and_one_that_comes_back_is_used() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database().await;
    let store = connect(&url).await;
    let record = parked(&store, 1).await;
    server.stop();
    let away = store.call("shop", &record.id).await;
    assert!(matches!(away, Err(StoreError::Unavailable(_))), "{away:?}");
    let away = store.bind(call(2, Phase::Running)).await;
    assert!(matches!(away, Err(StoreError::Unavailable(_))), "{away:?}");
    assert!(store.check().await.is_err());
    server.resume();
    wait::poll("the store works again", async || store.check().await.ok()).await;
    assert_eq!(store.call("shop", &record.id).await, Ok(Some(record)));
}

#[tokio::test]
async fn f145_a_server_that_is_away_at_the_start_is_waited_for_and_not_for_ever() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("it works")
        .local_addr()
        .expect("it works");
    let url = format!("postgres://sortie:sEcret@{closed}/sortie");
    let Err(error) = PostgresStore::open(&url, &tls()).await else { panic!("it was opened") };
    let text = error.to_string();
    assert!(text.contains("the database cannot be used") && !text.contains("sEcret"), "{text}");
    let Err(error) = PostgresStore::open("postgres://:bad:url", &tls()).await else {
        panic!("it was opened")
    };
    assert!(error.to_string().contains("the store's url cannot be used"), "{error}");
}

/// A character that PostgreSQL's text does not have: what is named with it is not there, on each store.
#[tokio::test]
async fn a_nul_in_a_request_is_no_fault_of_the_store() {
    let mut urls = vec!["memory".to_owned()];
    if let Some(server) = Postgres::shared() {
        urls.push(server.database().await);
    }
    for url in urls {
        let world = World::plain().await;
        let config = world.config().tool(world.tool("lookup"));
        let config = match url.as_str() {
            "memory" => config,
            _ => config.set("/storage", json!({ "url": url })),
        };
        let scopes = json!({"scopes": ["agent", "agent:approve", "agent:policy"]});
        let gateway = config.key("desk", DESK_KEY, scopes).start().await;
        let asked = async |method: &str, path: &str, body: &str| {
            gateway.send(request(method, path, Some(DESK_KEY), body).as_bytes()).await
        };
        for path in ["calls?session_id=", "calls?run_id=", "calls?tool=", "approvals?tool="] {
            for name in ["%00", "a%00b"] {
                let told = asked("GET", &format!("/v1/{path}{name}"), "").await;
                let expected = (200, json!({"data": []}));
                assert_eq!((told.status, told.json()), expected, "{url}: {path}{name}");
            }
        }
        for (method, path, body) in [
            ("GET", "/v1/calls/call_%00aaa", ""),
            ("GET", "/v1/approvals/ap_%00", ""),
            ("GET", "/v1/policies/a%00", ""),
            ("GET", "/v1/policies/a%00/shadow", ""),
            ("DELETE", "/v1/policies/a%00", ""),
            ("GET", "/v1/tools/lookup%00", ""),
            ("GET", "/v1/tools/lookup%00/policy/shadow", ""),
        ] {
            let told = asked(method, path, body).await;
            assert_eq!(told.status, 404, "{url}: {method} {path}: {}", told.text());
        }
        let odd = r#"{"id":"odd","effect":"deny","mode":"shadow","match":{"when":[
            {"pointer":"/a\u0000","operator":"equals","threshold":"\u0000"}]}}"#;
        let made = asked("POST", "/v1/policies", odd).await;
        assert_eq!(made.status, 201, "{url}: {}", made.text());
        let threshold = |told: &Reply| told.json().pointer("/match/when/0/threshold").cloned();
        let kept = asked("GET", "/v1/policies/odd", "").await;
        assert_eq!(threshold(&kept), Some(json!("\0")), "{url}: {}", kept.text());
        gateway.finish().await;
    }
}
