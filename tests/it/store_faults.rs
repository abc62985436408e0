//! A store that is damaged, taken, full or away: it says so, nothing is deleted, and it works again when it can.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;
use sortie::model::outcome::Phase;
use sortie::store::postgres::PostgresStore;
use sortie::store::sqlite::{OpenError, SqliteStore};
use sortie::store::{Bound, Store, StoreError};

use crate::store_suite::records::{DONE, approval, call, call_id, parked, shared};
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

/// SQLite itself sees nothing wrong with such a row.
#[tokio::test]
async fn f143_finished_calls_that_are_not_whole_are_said_to_be_damaged() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    let store = SqliteStore::open(&path).expect("it works");
    store.write(shared((1..200).map(|number| call(number, DONE)))).await.expect("it works");
    drop(store);
    let change = |text: &str| {
        let file = rusqlite::Connection::open(&path).expect("it works");
        file.execute_batch(text).expect("it works");
    };
    for part in ["records", "names"] {
        change(&format!("CREATE TABLE kept AS SELECT n, {part} FROM chunks"));
        change(&format!("UPDATE chunks SET {part} = substr({part}, 1, length({part}) - 7)"));
        let text = refused(&path);
        assert!(text.contains("is damaged (") && text.contains("finished call"), "{part}: {text}");
        change(&format!(
            "UPDATE chunks SET {part} = kept.{part} FROM kept WHERE kept.n = chunks.n"
        ));
        change("DROP TABLE kept");
    }
    SqliteStore::open(&path).expect("it is whole again");
}

#[tokio::test]
async fn f143_the_file_of_a_later_version_or_of_another_program_is_refused() {
    let folder = tempfile::tempdir().expect("it works");
    let path = folder.path().join("sortie.db");
    drop(SqliteStore::open(&path).expect("it works"));
    let change = |path: &Path, text: &str| {
        rusqlite::Connection::open(path).expect("it works").execute_batch(text).expect("it works");
    };
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

#[test]
fn a_folder_that_is_not_there_is_said_and_the_file_is_the_owner_s_alone() {
    let folder = tempfile::tempdir().expect("it works");
    let text = refused(&folder.path().join("nowhere/sortie.db"));
    assert!(text.contains("cannot be opened for writing"), "{text}");
    let text = refused(folder.path());
    assert!(text.contains("cannot be opened for writing"), "{text}");
    let path = folder.path().join("sortie.db");
    let _store = SqliteStore::open(&path).expect("it works");
    for name in ["sortie.db", "sortie.db-wal", "sortie.db.lock"] {
        let mode =
            std::fs::metadata(folder.path().join(name)).expect("it works").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
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
