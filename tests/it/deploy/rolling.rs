//! A rolling restart of the shared deployment under load: a client that tries again only where it could not connect loses
//! no call.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::fleet::Fleet;
use crate::support::gateway::Gateway;
use crate::support::http::{RawClient, get, post};
use crate::support::script::{Script, answer};
use crate::support::wait::{poll, together, within};

/// How long after a gateway says so its clients are led elsewhere: a probe has its period, and what comes of it a way to go.
const LATE: Duration = Duration::from_secs(2);
/// How often a gateway is asked.
const PERIOD: Duration = Duration::from_millis(250);
/// A gateway that does not answer a probe for so long is not ready. Long, so that a busy machine does not count as that.
const PROBE_TIME: Duration = Duration::from_secs(10);
/// A client that nobody takes a connection of tries again after so long.
const AGAIN: Duration = Duration::from_millis(20);
/// Calls of a slow tool take so long: longer than what is left of `accept_for` when clients have been led elsewhere.
const SLOW: Duration = Duration::from_secs(4);

/// What stands between clients and gateways: it knows who is ready, and knows it late.
struct Balancer {
    /// The places of those that run: calls, and probes.
    replicas: Mutex<Vec<(SocketAddr, SocketAddr)>>,
    /// Who was ready, and when that was seen.
    views: Mutex<Vec<(Instant, Vec<SocketAddr>)>>,
    turn: AtomicUsize,
    over: AtomicBool,
}

impl Balancer {
    /// Between clients and these.
    fn new(replicas: &[&Gateway]) -> Arc<Self> {
        let places = replicas.iter().map(|one| (one.api(), one.telemetry())).collect();
        Arc::new(Self {
            replicas: Mutex::new(places),
            views: Mutex::default(),
            turn: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        })
    }

    /// Asks all of them again and again.
    async fn watch(self: Arc<Self>) {
        while !self.over.load(Ordering::Relaxed) {
            let replicas = lock(&self.replicas).clone();
            // Whoever does not answer keeps nobody from being asked.
            let probed = together(replicas.into_iter().map(async |(api, telemetry)| {
                let answer = tokio::time::timeout(PROBE_TIME, is_ready(telemetry)).await;
                answer.unwrap_or(false).then_some(api)
            }));
            let ready = probed.await.into_iter().flatten().collect();
            lock(&self.views).push((Instant::now(), ready));
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Who is ready, as far as clients know.
    fn known(&self) -> Vec<SocketAddr> {
        let views = lock(&self.views);
        let old = views.iter().rev().find(|(seen, _)| seen.elapsed() >= LATE);
        old.or(views.first()).map(|(_, ready)| ready.clone()).unwrap_or_default()
    }

    /// Waits until clients know of exactly these.
    async fn knows(&self, expected: &[&Gateway]) {
        let expected: Vec<_> = expected.iter().map(|one| one.api()).collect();
        poll("clients to know who is ready", || async {
            let known = self.known();
            let all = known.len() == expected.len();
            (all && expected.iter().all(|one| known.contains(one))).then_some(())
        })
        .await;
    }

    /// Another one each time.
    fn next(&self) -> Option<SocketAddr> {
        let known = self.known();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        known.get(turn % known.len().max(1)).copied()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn is_ready(telemetry: SocketAddr) -> bool {
    match RawClient::try_connect(telemetry).await {
        Ok(client) => client.offer(&get("/readyz")).await.starts_with(b"HTTP/1.1 200 "),
        Err(_) => false,
    }
}

/// What one client met.
#[derive(Debug, Default)]
struct Tally {
    calls: BTreeMap<SocketAddr, usize>,
    /// Calls on a connection that was kept.
    reused: usize,
    /// Answers that were the last ones of their connections.
    last: usize,
    /// Connections that were refused.
    refused: usize,
}

/// A client that keeps its connections and calls until it is over. It fails on anything but a call that succeeded: a
/// connection that breaks, an error of the API, an outcome that is none.
async fn calls(balancer: Arc<Balancer>, tool: &'static str, pause: Duration) -> Tally {
    let body = json!({"tool": tool, "arguments": {}}).to_string();
    let request = String::from_utf8(post("/v1/calls", Some(API_KEY), body)).expect("text");
    let request = request.replace("Connection: close\r\n", "");
    let mut kept: HashMap<SocketAddr, RawClient> = HashMap::new();
    let mut tally = Tally::default();
    while !balancer.over.load(Ordering::Relaxed) {
        let connected = async {
            loop {
                let Some(address) = balancer.next() else {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                };
                if let Some(client) = kept.remove(&address) {
                    tally.reused += 1;
                    return (address, client);
                }
                match RawClient::try_connect(address).await {
                    Ok(client) => return (address, client),
                    Err(_) => {
                        tally.refused += 1;
                        tokio::time::sleep(AGAIN).await;
                    }
                }
            }
        };
        let (address, mut client) = within("a gateway that takes a connection", connected).await;
        client.write(request.as_bytes()).await;
        let reply = client.read_reply().await;
        let status = (reply.status, reply.json()["status"].clone());
        assert_eq!(status, (200, json!("succeeded")), "{address}: {}", reply.text());
        *tally.calls.entry(address).or_default() += 1;
        if reply.header("connection") == Some("close") {
            tally.last += 1;
        } else {
            kept.insert(address, client);
        }
        tokio::time::sleep(pause).await;
    }
    tally
}

/// Ends one as Kubernetes does, and starts another one in its place.
async fn restarted(mut gateway: Gateway, config: &ConfigBuilder, balancer: &Balancer) -> Gateway {
    let old = gateway.api();
    gateway.terminate();
    let finished = gateway.ended().await;
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    assert!(!finished.stdout.contains("did not finish in time"), "{finished:#?}");
    let gateway = config.start().await;
    let mut replicas = lock(&balancer.replicas);
    replicas.retain(|(api, _)| *api != old);
    replicas.push((gateway.api(), gateway.telemetry()));
    drop(replicas);
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_loses_no_call() {
    let fine = answer(200, "application/json", "1");
    let slowly = SLOW / u32::try_from(fine.len()).expect("a short answer");
    let fleet = Fleet::new().await;
    let (fleet, _quick) = fleet.plain("quick", Script::always(fine.clone()), |tool| tool).await;
    let slow = Script::new().forever(Script::new().request().drip(fine, slowly));
    let (fleet, _slow) = fleet.plain("slow", slow, |tool| tool).await;
    // As the shared deployment has it.
    let shutdown = json!({"accept_for": "8s", "grace": "25s"});
    let config = fleet.config.set("/shutdown", shutdown).patient();
    let (one, other) = (config.start().await, config.start().await);
    let balancer = Balancer::new(&[&one, &other]);
    let watching = tokio::spawn(balancer.clone().watch());
    balancer.knows(&[&one, &other]).await;

    let busy = ("quick", Duration::from_millis(10));
    let seldom = ("quick", Duration::from_millis(700));
    let long = ("slow", Duration::ZERO);
    let clients = [busy, busy, busy, busy, seldom, seldom, seldom, long, long, long];
    let clients = clients.map(|(tool, pause)| tokio::spawn(calls(balancer.clone(), tool, pause)));
    let mut served = vec![one.api(), other.api()];
    let one = restarted(one, &config, &balancer).await;
    balancer.knows(&[&one, &other]).await;
    let other = restarted(other, &config, &balancer).await;
    balancer.knows(&[&one, &other]).await;
    served.extend([one.api(), other.api()]);
    // Both of the new ones have had calls by then.
    for gateway in [&one, &other] {
        poll("calls of the new ones", || async {
            let succeeded = [("tool", "quick"), ("code", "ok")];
            let calls = gateway.metrics().await.value("sortie_calls_total", &succeeded);
            (calls >= 10.0).then_some(())
        })
        .await;
    }
    balancer.over.store(true, Ordering::Relaxed);
    let mut all = Tally::default();
    for client in clients {
        let tally = client.await.expect("a client that lost no call");
        for (address, calls) in tally.calls {
            *all.calls.entry(address).or_default() += calls;
        }
        all.reused += tally.reused;
        all.last += tally.last;
        all.refused += tally.refused;
    }
    watching.await.expect("whoever asks who is ready");
    eprintln!("{all:?}");
    // Each of the four processes served, connections were kept, and clients were led away from those that ended.
    assert!(served.iter().all(|one| all.calls.contains_key(one)), "{served:?} {all:?}");
    assert!(all.reused > 100 && all.last >= 2, "{all:?}");
    one.finish().await;
    other.finish().await;
}
