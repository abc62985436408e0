//! What is kept, what is used again, and what is closed.

use std::sync::atomic::AtomicUsize;

use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::clock::SystemClock;
use crate::net::client::Phase;
use crate::net::tests::{Authority, NAME, Target, listen, loopback, read_request, soon};
use crate::policy::address::{Target as Goal, VettedAddr};
use crate::policy::egress::EgressSettings;

const LIMITS: ReadLimits =
    ReadLimits { result_limit: 1024, error_limit: 64, wants_body: |_, _| true };
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What the server does with one request of a connection.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Answers and waits for the next request.
    Answer(&'static str),
    /// Answers and closes.
    Last(&'static str),
    /// Answers, and closes when the test says so.
    UntilTold(&'static str),
    /// Closes.
    Close,
    /// Is silent until the client hangs up.
    Stall,
}

/// A server that plays one script per connection; the last script is played again and again.
struct Server {
    port: u16,
    dials: Arc<AtomicUsize>,
    ended: mpsc::UnboundedReceiver<()>,
    close: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(scripts: &'static [&'static [Step]]) -> Self {
        let (listener, port) = listen(1).await;
        Self::on(listener, port, None, scripts)
    }

    fn on(
        listener: TcpListener,
        port: u16,
        acceptor: Option<TlsAcceptor>,
        scripts: &'static [&'static [Step]],
    ) -> Self {
        let dials = Arc::new(AtomicUsize::new(0));
        let (end, ended) = mpsc::unbounded_channel();
        let close = Arc::new(Notify::new());
        let (counter, told) = (Arc::clone(&dials), Arc::clone(&close));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let nth = counter.fetch_add(1, Ordering::SeqCst);
                let script = scripts[nth.min(scripts.len() - 1)];
                let (acceptor, end, told) = (acceptor.clone(), end.clone(), Arc::clone(&told));
                tokio::spawn(async move {
                    match acceptor {
                        Some(acceptor) => {
                            play(acceptor.accept(stream).await.unwrap(), script, &told).await
                        }
                        None => play(stream, script, &told).await,
                    }
                    let _ = end.send(());
                });
            }
        });
        Self { port, dials, ended, close, task }
    }

    fn dials(&self) -> usize {
        self.dials.load(Ordering::SeqCst)
    }

    /// Waits until one connection has ended at the server's side.
    async fn one_ended(&mut self) {
        self.ended.recv().await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn play(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: &[Step], told: &Notify) {
    for step in script {
        if read_request(&mut stream).await.is_none() {
            return;
        }
        match step {
            Step::Answer(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
            Step::Last(answer) => return stream.write_all(answer.as_bytes()).await.unwrap(),
            Step::UntilTold(answer) => {
                stream.write_all(answer.as_bytes()).await.unwrap();
                return told.notified().await;
            }
            Step::Close => return,
            Step::Stall => break,
        }
    }
    let _ = read_request(&mut stream).await;
}

/// A pool, a tool and the rules that open its server.
struct Bench {
    pool: Arc<Pool>,
    target: Target,
    route: Route,
    way: Way,
}

fn direct(vetted: Vec<VettedAddr>) -> Goal<'static> {
    Goal::Direct(vetted)
}

fn settings() -> PoolSettings {
    PoolSettings {
        reuse: Reuse::Auto,
        max_idle_per_host: 8,
        idle_timeout: Duration::from_secs(30),
        max_age: Duration::from_secs(300),
    }
}

impl Bench {
    fn new(server: &Server, settings: PoolSettings) -> Self {
        Self::over(server, settings, "http", &Authority::found())
    }

    fn over(server: &Server, settings: PoolSettings, scheme: &str, authority: &Authority) -> Self {
        let connect = authority.connector(Duration::from_secs(2));
        let pool = Pool::new(Arc::new(SystemClock));
        let way = Way { connect: Arc::new(connect), settings };
        let target = Target::new(scheme, NAME, server.port);
        let route = pool.route("tl_a", &target.endpoint, case(), way.clone());
        Self { pool, target, route, way }
    }

    async fn lease(&self, route: &Route, lasts: &[u8], freshness: Freshness) -> Lease {
        let Target { rules, .. } = &self.target;
        let (admitted, vetted) = (self.target.admitted(), self.target.vetted(lasts));
        self.pool
            .checkout(route, &admitted, &direct(vetted), rules, freshness, soon(2000))
            .await
            .unwrap()
    }

    async fn call(&self) -> (bool, Result<RawAnswer, ExchangeError>) {
        self.call_on(&self.route, Freshness::Any).await
    }

    async fn call_on(
        &self,
        route: &Route,
        freshness: Freshness,
    ) -> (bool, Result<RawAnswer, ExchangeError>) {
        let lease = self.lease(route, &[1], freshness).await;
        (lease.reused(), lease.exchange(outbound(), LIMITS, soon(2000)).await)
    }

    /// A call that works; says whether its connection was a kept one.
    async fn ok(&self) -> bool {
        let (reused, answer) = self.call().await;
        assert_eq!(&answer.unwrap().body[..], b"ok");
        reused
    }

    /// new, reused, evicted, poisoned, open
    fn events(&self) -> [u64; 5] {
        let PoolEvents { new, reused, evicted, poisoned, open } = self.pool.events();
        [new, reused, evicted, poisoned, open].map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Waits until so many connections are open.
    async fn until_open(&self, count: u64) {
        while self.events()[4] != count {
            tokio::task::yield_now().await;
        }
    }
}

fn case() -> HeaderCase {
    HeaderCase::capture(&["Host", "Content-Length"]).unwrap()
}

fn outbound() -> Outbound {
    let host = (http::header::HOST, "tool.example".parse().unwrap());
    let length = (http::header::CONTENT_LENGTH, 2.into());
    let headers = HeaderMap::from_iter([host, length]);
    let path_and_query = "/a".parse().unwrap();
    Outbound { method: http::Method::POST, path_and_query, headers, body: "{}".into() }
}

#[tokio::test]
async fn a_clean_connection_is_used_again() {
    let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, settings());
    let reused = [bench.ok().await, bench.ok().await, bench.ok().await];
    assert_eq!((reused, server.dials()), ([false, true, true], 1));
    assert_eq!(bench.events(), [1, 2, 0, 0, 1]);
}

#[tokio::test]
async fn reuse_never_means_never() {
    let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, PoolSettings { reuse: Reuse::Never, ..settings() });
    assert_eq!([bench.ok().await, bench.ok().await], [false, false]);
    assert_eq!(bench.events(), [2, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_fresh_connection_can_be_asked_for() {
    let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, settings());
    bench.ok().await;
    let (reused, answer) = bench.call_on(&bench.route, Freshness::Fresh).await;
    assert!(!reused && answer.is_ok());
    assert_eq!(server.dials(), 2);
}

#[tokio::test]
async fn tools_and_snapshots_never_share_a_connection() {
    let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, settings());
    bench.ok().await;
    for tool in ["tl_b", "tl_a"] {
        let other = bench.pool.route(tool, &bench.target.endpoint, case(), bench.way.clone());
        let (reused, answer) = bench.call_on(&other, Freshness::Any).await;
        assert!(!reused && answer.is_ok(), "{tool}");
    }
    assert!(bench.ok().await, "the first one is still there");
    assert_eq!(server.dials(), 3);
}

#[tokio::test]
async fn only_an_address_of_this_attempt_is_used_again() {
    let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
    let other = TcpListener::bind((loopback(2), server.port)).await.unwrap();
    let bench = Bench::new(&server, settings());
    bench.ok().await;
    let moved = bench.lease(&bench.route, &[2], Freshness::Any).await;
    assert!(!moved.reused());
    assert_eq!(moved.peer().address().unwrap().socket().ip(), loopback(2));
    drop((moved, other));
    assert!(bench.ok().await);
}

#[tokio::test]
async fn an_address_that_the_rules_no_longer_allow_is_evicted() {
    let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, settings());
    bench.ok().await;
    let vetted = direct(bench.target.vetted(&[1]));
    let deny = EgressSettings { deny_cidrs: vec!["127.0.0.0/8".into()], ..Default::default() };
    let Target { rules, endpoint } = Target::with("http", NAME, server.port, deny);
    let admitted = rules.admit("lookup_order", &endpoint, 0).verdict.unwrap();
    let dialled = bench
        .pool
        .checkout(&bench.route, &admitted, &vetted, &rules, Freshness::Any, soon(2000))
        .await;
    assert!(dialled.is_ok_and(|lease| !lease.reused()));
    assert_eq!(bench.events()[2], 1);
}

#[tokio::test]
async fn a_route_serves_its_own_endpoint_only() {
    let server = Server::start(&[&[Step::Answer(OK)]]).await;
    let bench = Bench::new(&server, settings());
    let other = Target::new("http", "other.example", server.port);
    let vetted = direct(other.vetted(&[1]));
    let result = bench
        .pool
        .checkout(
            &bench.route,
            &other.admitted(),
            &vetted,
            &other.rules,
            Freshness::Any,
            soon(2000),
        )
        .await;
    assert_eq!(result.err().unwrap().kind, ConnectErrorKind::PeerMismatch);
    assert_eq!(server.dials(), 0);
}

#[tokio::test]
async fn a_connection_that_closed_while_idle_is_replaced_silently() {
    let mut server = Server::start(&[&[Step::UntilTold(OK)], &[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, settings());
    bench.ok().await;
    server.close.notify_one();
    server.one_ended().await;
    // A dial lets the runtime look at its sockets: then it has seen the end too.
    drop(bench.lease(&bench.route, &[1], Freshness::Fresh).await);
    assert!(!bench.ok().await);
    assert_eq!((bench.events(), server.dials()), ([3, 0, 1, 0, 1], 3));
}

#[tokio::test]
async fn a_connection_that_brings_more_than_its_answer_is_poisoned() {
    const TWO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno";
    let server = Server::start(&[&[Step::Answer(TWO); 10]]).await;
    let bench = Bench::new(&server, settings());
    assert!(!bench.ok().await);
    assert!(!bench.ok().await);
    assert_eq!(bench.events(), [2, 0, 0, 2, 0]);
}

#[tokio::test]
async fn a_broken_message_poisons_and_a_cut_body_only_closes() {
    const CUT: &str = "HTTP/1.1 404 No\r\nContent-Length: 900\r\n\r\n0123456789012345678901234567890123456789012345678901234567890123456789";
    let server = Server::start(&[
        &[Step::Answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")],
        &[Step::Answer(CUT)],
    ])
    .await;
    let bench = Bench::new(&server, settings());
    assert_eq!(bench.call().await.1.unwrap_err().kind, ExchangeErrorKind::Framing);
    assert_eq!(bench.events(), [1, 0, 0, 1, 0]);
    assert_eq!(bench.call().await.1.unwrap().body.len(), 65);
    assert_eq!(bench.events(), [2, 0, 0, 1, 0]);
}

#[tokio::test]
async fn an_endpoint_that_breaks_a_kept_connection_gets_fresh_ones() {
    const SCRIPTS: &[&[Step]] = &[&[Step::Answer(OK), Step::Close], &[Step::Answer(OK); 10]];
    let server = Server::start(SCRIPTS).await;
    let bench = Bench::new(&server, settings());
    bench.ok().await;
    let (reused, broken) = bench.call().await;
    let broken = broken.unwrap_err();
    assert_eq!((reused, broken.kind, broken.sent), (true, ExchangeErrorKind::Closed, true));
    assert_eq!([bench.ok().await, bench.ok().await], [false, false]);
    // The memory is older than the snapshot.
    let renewed = bench.pool.route("tl_a", &bench.target.endpoint, case(), bench.way.clone());
    bench.call_on(&renewed, Freshness::Any).await.1.unwrap();
    assert!(!bench.call_on(&renewed, Freshness::Any).await.0);
    // Another tool at the same place is another matter.
    let other = bench.pool.route("tl_b", &bench.target.endpoint, case(), bench.way.clone());
    bench.call_on(&other, Freshness::Any).await.1.unwrap();
    assert!(bench.call_on(&other, Freshness::Any).await.0);
}

#[tokio::test]
async fn reuse_always_does_not_hold_it_against_anybody() {
    let server = Server::start(&[&[Step::Answer(OK), Step::Close], &[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, PoolSettings { reuse: Reuse::Always, ..settings() });
    bench.ok().await;
    assert!(bench.call().await.1.is_err());
    assert_eq!([bench.ok().await, bench.ok().await], [false, true]);
}

#[tokio::test]
async fn time_and_number_end_a_kept_connection() {
    for limits in [
        PoolSettings { idle_timeout: Duration::ZERO, ..settings() },
        PoolSettings { max_age: Duration::ZERO, ..settings() },
        PoolSettings { max_idle_per_host: 0, ..settings() },
    ] {
        let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
        let bench = Bench::new(&server, limits.clone());
        assert_eq!([bench.ok().await, bench.ok().await], [false, false], "{limits:?}");
    }
    let server = Server::start(&[&[Step::Answer(OK); 1001]]).await;
    let bench = Bench::new(&server, settings());
    for _ in 0..=MAX_EXCHANGES {
        bench.ok().await;
    }
    assert_eq!(server.dials(), 2);
}

#[tokio::test]
async fn only_so_many_are_kept_and_the_latest_goes_out_first() {
    let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, PoolSettings { max_idle_per_host: 2, ..settings() });
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(bench.lease(&bench.route, &[1], Freshness::Any).await);
    }
    for lease in leases {
        lease.exchange(outbound(), LIMITS, soon(2000)).await.unwrap();
    }
    assert_eq!(bench.events(), [3, 0, 1, 0, 2]);
    let opened = |lease: &Lease| lease.pooled.opened;
    let latest = bench.lease(&bench.route, &[1], Freshness::Any).await;
    let older = bench.lease(&bench.route, &[1], Freshness::Any).await;
    assert!(latest.reused() && older.reused() && opened(&latest) > opened(&older));
}

#[tokio::test]
async fn a_reload_closes_what_is_idle_and_what_comes_back() {
    let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, settings());
    bench.ok().await;
    let busy = bench.lease(&bench.route, &[1], Freshness::Fresh).await;
    assert_eq!(bench.events(), [2, 0, 0, 0, 2]);
    bench.pool.retire(&bench.route);
    assert_eq!(bench.events(), [2, 0, 1, 0, 1]);
    busy.exchange(outbound(), LIMITS, soon(2000)).await.unwrap();
    assert_eq!(bench.events()[4], 0);
    let kept = bench.pool.route("tl_a", &bench.target.endpoint, case(), bench.way.clone());
    bench.call_on(&kept, Freshness::Any).await.1.unwrap();
    bench.pool.close_all();
    assert_eq!(bench.events()[4], 0);
}

#[tokio::test]
async fn the_last_handle_takes_its_connections_along() {
    let server = Server::start(&[&[Step::Answer(OK); 10]]).await;
    let bench = Bench::new(&server, settings());
    bench.ok().await;
    let Bench { pool, route, .. } = bench;
    drop(route);
    assert_eq!(pool.events().open.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_call_that_is_dropped_closes_its_connection() {
    let mut server = Server::start(&[&[Step::Stall]]).await;
    let bench = Bench::new(&server, settings());
    let lease = bench.lease(&bench.route, &[1], Freshness::Any).await;
    let early = tokio::time::timeout(
        Duration::from_millis(50),
        lease.exchange(outbound(), LIMITS, soon(60_000)),
    );
    assert!(early.await.is_err());
    assert_eq!(bench.events()[4], 0);
    server.one_ended().await;
    let late = bench.lease(&bench.route, &[1], Freshness::Any).await;
    let error = late.exchange(outbound(), LIMITS, soon(50)).await.unwrap_err();
    assert_eq!(error.kind, ExchangeErrorKind::Timeout(Phase::FirstByte));
    assert_eq!(bench.events()[4], 0);
}

#[tokio::test]
async fn the_reaper_closes_what_its_peer_closed_or_time_ended() {
    let server = Server::start(&[&[Step::UntilTold(OK)], &[Step::Answer(OK); 10]]).await;
    let quick = PoolSettings { idle_timeout: Duration::from_millis(100), ..settings() };
    for limits in [settings(), quick] {
        let bench = Bench::new(&server, limits);
        let reaper = tokio::spawn(Arc::clone(&bench.pool).run_reaper());
        bench.ok().await;
        assert_eq!(bench.events()[4], 1);
        server.close.notify_one();
        bench.until_open(0).await;
        assert_eq!(bench.events(), [1, 0, 1, 0, 0]);
        reaper.abort();
    }
}

#[tokio::test]
async fn over_tls_a_body_without_length_needs_a_proper_end() {
    const OPEN_END: &str = "HTTP/1.1 200 OK\r\n\r\nok";
    let authority = Authority::found();
    let (listener, port) = listen(1).await;
    let acceptor = Some(authority.acceptor(NAME, |_| {}));
    let server = Server::on(listener, port, acceptor, &[&[Step::Answer(OK), Step::Last(OPEN_END)]]);
    let bench = Bench::over(&server, settings(), "https", &authority);
    assert!(!bench.ok().await);
    let (reused, cut) = bench.call().await;
    let cut = cut.unwrap_err();
    assert!(reused);
    assert_eq!((cut.kind, cut.status, cut.sent), (ExchangeErrorKind::Closed, Some(200), true));
    assert_eq!(bench.events(), [1, 1, 0, 0, 0]);
}
