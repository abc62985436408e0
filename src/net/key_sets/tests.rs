//! When a set is fetched, and when what there is has to do.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::advance;

use super::*;
use crate::clock::SystemClock;

/// A server whose answers a test chooses, and the sets that are fetched from it.
struct Server {
    sets: Arc<KeySets>,
    asked: Arc<AtomicUsize>,
    answers: Arc<Mutex<Answer>>,
    worker: JoinHandle<()>,
}

#[derive(Clone, Copy)]
enum Answer {
    Fails,
    Hangs,
    Panics,
    Set { age: Duration },
}

const FRESH: Answer = Answer::Set { age: LEAST_AGE };

fn set() -> KeySet {
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x}]});
    KeySet::parse(set.to_string().as_bytes()).expect("a set")
}

fn endpoint() -> Endpoint {
    Endpoint::parse("https://idp.example/keys").expect("a URL")
}

impl Server {
    fn start(answer: Answer) -> Self {
        let (sets, fetcher) = KeySets::new(Arc::new(SystemClock));
        let answers = Arc::new(Mutex::new(answer));
        let asked = Arc::new(AtomicUsize::new(0));
        let (counter, chosen) = (asked.clone(), answers.clone());
        let worker = tokio::spawn(fetcher.run(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            let answer = *chosen.lock().expect("no panic holds it");
            async move {
                match answer {
                    Answer::Fails => Err(KeySetFetchError::Status(503)),
                    Answer::Hangs => std::future::pending().await,
                    Answer::Panics => panic!("a fetch that panics"),
                    Answer::Set { age } => Ok(Fetched { keys: set(), age }),
                }
            }
        }));
        Self { sets: Arc::new(sets), asked, answers, worker }
    }

    fn answer(&self, answer: Answer) {
        *self.answers.lock().expect("no panic holds it") = answer;
    }

    async fn get(&self) -> Option<Arc<KeySet>> {
        self.sets.get(&endpoint()).await
    }

    /// How often it was asked, once everything that can happen now has happened.
    async fn asked(&self) -> usize {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_fetched_before_it_is_needed_and_then_once() {
    let server = Server::start(FRESH);
    assert_eq!(server.asked().await, 0);
    let one = endpoint();
    let (first, second) = tokio::join!(server.sets.get(&one), server.sets.get(&one));
    assert!(Arc::ptr_eq(&first.expect("a set"), &second.expect("a set")));
    assert_eq!(server.asked().await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_old_set_is_used_while_a_new_one_is_fetched() {
    let server = Server::start(FRESH);
    let first = server.get().await.expect("a set");
    advance(LEAST_AGE - Duration::from_secs(1)).await;
    server.get().await;
    assert_eq!(server.asked().await, 1);
    advance(Duration::from_secs(1)).await;
    let old = server.get().await.expect("a set");
    assert!(Arc::ptr_eq(&first, &old), "nobody waits");
    assert_eq!(server.asked().await, 2);
    assert!(!Arc::ptr_eq(&first, &server.get().await.expect("a set")));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_fetched_again_is_used_for_a_day() {
    let server = Server::start(FRESH);
    server.get().await.expect("a set");
    server.answer(Answer::Fails);
    advance(LONGEST_USE - Duration::from_secs(1)).await;
    assert!(server.get().await.is_some());
    assert_eq!(server.asked().await, 2);
    advance(Duration::from_secs(1)).await;
    assert!(
        server.get().await.is_none(),
        "nobody is let in by keys that may be revoked long since"
    );
    server.answer(FRESH);
    advance(PAUSE).await;
    assert!(server.get().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_missing_key_is_looked_for_at_most_every_ten_seconds() {
    let server = Server::start(FRESH);
    let first = server.get().await.expect("a set");
    for _ in 0..100 {
        assert!(server.sets.newer(&endpoint(), &first).await.is_none());
    }
    assert_eq!(server.asked().await, 1);
    advance(PAUSE).await;
    let newer = server.sets.newer(&endpoint(), &first).await.expect("a newer set");
    assert_eq!(server.asked().await, 2);
    // Whoever had the first one sees what is there meanwhile.
    let again = server.sets.newer(&endpoint(), &first).await.expect("the newer set");
    assert!(Arc::ptr_eq(&newer, &again));
    assert_eq!(server.asked().await, 2);
}

#[tokio::test(start_paused = true)]
async fn so_many_wait_for_a_set_and_the_next_one_is_answered_at_once() {
    let server = Server::start(Answer::Hangs);
    let waiting: Vec<_> = (0..WAITING)
        .map(|_| {
            let sets = server.sets.clone();
            tokio::spawn(async move { sets.get(&endpoint()).await })
        })
        .collect();
    assert_eq!(server.asked().await, 1);
    let began = server.sets.clock.now();
    assert!(server.get().await.is_none());
    assert_eq!((server.sets.clock.now() - began), Duration::ZERO);
    for one in waiting {
        assert!(one.await.expect("no panic").is_none());
    }
    assert_eq!((server.sets.clock.now() - began), WAIT);
    assert!(server.get().await.is_none());
    assert_eq!((server.sets.clock.now() - began), WAIT * 2, "places are given back");
}

#[tokio::test(start_paused = true)]
async fn whoever_hangs_up_stops_no_fetch() {
    let server = Server::start(Answer::Hangs);
    for _ in 0..50 {
        let gone = timeout(Duration::from_millis(10), server.get()).await;
        assert!(gone.is_err());
    }
    assert_eq!(server.asked().await, 1);
    assert!(server.get().await.is_none(), "waiting has an end");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_panics_is_one_that_failed() {
    let server = Server::start(Answer::Panics);
    assert!(server.get().await.is_none());
    assert!(server.get().await.is_none(), "it rests");
    assert_eq!(server.asked().await, 1);
    server.answer(FRESH);
    advance(PAUSE).await;
    assert!(server.get().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn without_a_worker_nobody_waits_for_ever() {
    let server = Server::start(FRESH);
    server.worker.abort();
    assert_eq!(server.asked().await, 0);
    assert!(server.get().await.is_none());
}

#[track_caller]
fn check_age(values: &[&'static str], seconds: u64) {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(CACHE_CONTROL, HeaderValue::from_static(value));
    }
    assert_eq!(age(&headers), Duration::from_secs(seconds), "{values:?}");
}

#[test]
fn a_set_is_kept_as_long_as_its_server_says_within_bounds() {
    check_age(&[], 300);
    check_age(&["public, max-age=900, must-revalidate"], 900);
    check_age(&["max-age=86400"], 3600);
    check_age(&["no-store", "Max-Age = \"1200\""], 1200);
    for odd in ["max-age=0", "max-age", "max-age=x", "max-age=-1", "s-maxage=900", "no-cache"] {
        check_age(&[odd], 300);
    }
    check_age(&["max-age=99999999999999999999, max-age=1000"], 1000);
}
