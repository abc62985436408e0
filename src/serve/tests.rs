//! One connection at a time, over a pipe instead of a socket.

use super::*;

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use crate::serve::pace::Turns;

const LIMITS: ConnectionLimits = ConnectionLimits {
    header_timeout: Duration::from_secs(5),
    idle_timeout: Duration::from_secs(60),
    max_connections: 1,
};
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n";

/// A connection that is being served.
struct Connection {
    client: DuplexStream,
    serving: JoinHandle<()>,
    phase: watch::Sender<Phase>,
    metrics: Arc<Metrics>,
}

impl Connection {
    /// The pipe holds this many bytes in each direction.
    fn open(router: Router, phase: Phase, pipe: usize) -> Self {
        let (client, server) = tokio::io::duplex(pipe);
        let metrics = Arc::new(Metrics::new(true));
        let router = TowerToHyperService::new(router);
        let listener = ListenerName::Api;
        let tls_of = None;
        let (phase, seen) = watch::channel(phase);
        let door =
            FrontDoor { listener, router, metrics: metrics.clone(), tls_of, phase: seen.clone() };
        let door = Arc::new(door);
        let pace = Pace::new(Turns::default());
        let serving = tokio::spawn(serve(Box::new(server), door, LIMITS, seen, pace));
        Self { client, serving, phase, metrics }
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).await.expect("bytes that are taken");
    }

    /// What comes up to the end of the connection.
    async fn rest(&mut self) -> String {
        let mut text = String::new();
        self.client.read_to_string(&mut text).await.expect("an end in good order");
        text
    }

    /// What comes up to the end of an answer's head.
    async fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push(char::from(self.client.read_u8().await.expect("a head")));
        }
        head
    }
}

/// Runs a future on the paused clock; how many seconds it took.
#[expect(clippy::disallowed_methods, reason = "tokio's paused clock")]
async fn seconds<T>(future: impl Future<Output = T>) -> u64 {
    let begun = Instant::now();
    future.await;
    (Instant::now() - begun).as_secs()
}

fn one_word() -> Router {
    Router::new().route("/", get(async || "word"))
}

/// An answer that ends when the test says so.
fn held() -> (Router, watch::Sender<bool>) {
    let (go, gone) = watch::channel(false);
    let answer = async move || {
        let _ = gone.clone().wait_for(|go| *go).await;
        "word"
    };
    (Router::new().route("/", get(answer)), go)
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_500_and_the_connection_goes_on() {
    let broken = async || -> &'static str { panic!("at the disco") };
    let router = one_word().route("/broken", get(broken));
    let mut connection = Connection::open(router, Phase::Serving, 4096);
    connection.write(b"GET /broken HTTP/1.1\r\nHost: gateway\r\n\r\n").await;
    let head = connection.head().await;
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    connection.write(b"GET / HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n").await;
    let rest = connection.rest().await;
    assert!(rest.starts_with(r#"{"error":{"code":"internal","#), "{rest}");
    assert!(!rest.contains("disco") && rest.ends_with("word"), "{rest}");
    assert_eq!(connection.metrics.panics.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_an_idle_connection_at_once() {
    let mut connection = Connection::open(one_word(), Phase::Serving, 4096);
    connection.write(REQUEST).await;
    connection.head().await;
    connection.phase.send_replace(Phase::Draining);
    assert_eq!(seconds(connection.rest()).await, 0);
}

/// It was accepted before the drain, and its bytes are on their way.
#[tokio::test(start_paused = true)]
async fn a_drain_does_not_lose_the_first_request_of_a_connection() {
    let mut connection = Connection::open(one_word(), Phase::Serving, 4096);
    tokio::task::yield_now().await;
    connection.phase.send_replace(Phase::Draining);
    tokio::task::yield_now().await;
    connection.write(REQUEST).await;
    let answer = connection.rest().await;
    assert!(answer.contains("connection: close\r\n") && answer.ends_with("word"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_kept_connection_is_led_elsewhere_before_the_drain() {
    let mut connection = Connection::open(one_word(), Phase::Serving, 4096);
    connection.write(REQUEST).await;
    assert!(!connection.head().await.contains("connection: close"));
    connection.phase.send_replace(Phase::Retiring);
    tokio::task::yield_now().await;
    connection.write(REQUEST).await;
    let answer = connection.rest().await;
    assert!(answer.contains("connection: close\r\n") && answer.ends_with("word"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_an_answer_end_and_says_that_it_is_the_last() {
    for phase in [Phase::Draining, Phase::Closed] {
        let (router, go) = held();
        let mut connection = Connection::open(router, Phase::Serving, 4096);
        connection.write(REQUEST).await;
        tokio::task::yield_now().await;
        connection.phase.send_replace(phase);
        // Longer than any bound on the client.
        let long = Duration::from_secs(600);
        assert!(tokio::time::timeout(long, &mut connection.serving).await.is_err());
        go.send_replace(true);
        let answer = connection.rest().await;
        assert!(answer.contains("connection: close\r\n") && answer.ends_with("word"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_during_a_drain_gets_one_answer() {
    let mut connection = Connection::open(one_word(), Phase::Draining, 4096);
    connection.write(REQUEST).await;
    let answer = connection.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("connection: close\r\n") && answer.ends_with("word"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn half_a_head_has_its_own_time_and_no_more() {
    for phase in [Phase::Draining, Phase::Closed] {
        for begun in [Phase::Serving, Phase::Draining] {
            let mut connection = Connection::open(one_word(), begun, 4096);
            connection.write(&REQUEST[..20]).await;
            tokio::task::yield_now().await;
            connection.phase.send_replace(phase);
            assert_eq!(seconds(&mut connection.serving).await, 5);
        }
    }
    let mut connection = Connection::open(one_word(), Phase::Serving, 4096);
    connection.write(&REQUEST[..20]).await;
    tokio::task::yield_now().await;
    connection.phase.send_replace(Phase::Closed);
    connection.write(&REQUEST[20..]).await;
    assert!(connection.rest().await.ends_with("word"), "the rest came in time");
}

#[tokio::test(start_paused = true)]
async fn who_comes_during_a_drain_and_says_nothing_ends_with_it() {
    let mut connection = Connection::open(one_word(), Phase::Draining, 4096);
    tokio::task::yield_now().await;
    connection.phase.send_replace(Phase::Closed);
    assert_eq!(seconds(&mut connection.serving).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_its_answer_does_not_hold_the_end() {
    let router = Router::new().route("/", get(async || "word".repeat(100_000)));
    let mut connection = Connection::open(router, Phase::Serving, 64);
    connection.write(REQUEST).await;
    tokio::task::yield_now().await;
    connection.phase.send_replace(Phase::Closed);
    assert_eq!(seconds(&mut connection.serving).await, 5);
}

#[track_caller]
fn check_accept(number: i32, of_one_connection: bool) {
    let error = io::Error::from_raw_os_error(number);
    assert_eq!(is_of_one_connection(&error), of_one_connection, "{error}");
}

/// After either of them the next client is accepted; only a shortage is told and waited out.
#[cfg(target_os = "linux")]
#[test]
fn f050_a_failed_accept_is_of_one_connection_or_a_shortage() {
    let (aborted, reset, refused, interrupted) = (103, 104, 111, 4);
    for number in [aborted, reset, refused, interrupted] {
        check_accept(number, true);
    }
    let (too_many_here, too_many_anywhere, no_buffers, no_memory) = (24, 23, 105, 12);
    for number in [too_many_here, too_many_anywhere, no_buffers, no_memory] {
        check_accept(number, false);
    }
}
