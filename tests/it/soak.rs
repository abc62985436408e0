//! Random calls against a tool server on which every fault happens often: what must hold of each call, and of all.
//!
//! The short form runs with the other tests. `SORTIE_SOAK_SECONDS=600` makes it long, `SORTIE_SOAK_SEED` repeats the
//! choices of a run; both are printed.

mod driver;
mod history;
mod peer;
mod usage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;

use crate::support::config::Tool;
use crate::support::dns::{Answer, DnsServer};
use crate::support::fleet::{Fleet, eager_profile, host};
use crate::support::gateway::Gateway;
use crate::support::wait::{poll, together};

use self::driver::{Driver, TOOLS};
use self::history::History;
use self::peer::Peer;
use self::usage::Usage;

/// Runtimes that call at the same time.
const RUNTIMES: usize = 48;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_fails_each_call_has_one_outcome_that_is_true() {
    let length = Duration::from_secs(number("SORTIE_SOAK_SECONDS").unwrap_or(8));
    let seed = number("SORTIE_SOAK_SEED").unwrap_or_else(rand::random);
    println!("soak: {length:?}, SORTIE_SOAK_SEED={seed}");
    let history = Arc::new(History::default());
    let peer = Peer::start(seed, &history).await;
    let (gateway, _dns) = gateway(&peer, length).await;

    let until = Instant::now() + length;
    let usage = Usage::watch(&gateway, until);
    let runtimes = (0..RUNTIMES).map(|runtime| {
        let random = StdRng::seed_from_u64(seed.wrapping_add(runtime as u64));
        Driver::new(&gateway, &history, random).run(until)
    });
    together(runtimes).await;
    let usage = usage.await.expect("the watcher ends");

    // Calls whose runtime hung up may still run.
    gateway.assert_quiet().await;
    let lines = gateway.call_lines().await;
    let accepted = history.check(|call| lines.get(call).cloned().unwrap_or_default());
    println!("soak: {}", history.summary());
    println!("soak: {usage}");
    assert!(accepted > 0 && history.covers_every_fault(length), "{}", history.summary());
    usage.assert_flat();
    no_socket_is_left(&gateway, &peer).await;
    poll("the gateway's tasks to end", || async {
        (gateway.tasks_beyond_the_base().await == 0).then_some(())
    })
    .await;
    gateway.finish().await;
}

/// A gateway with one tool of each kind at the peer.
async fn gateway(peer: &Peer, length: Duration) -> (Gateway, DnsServer) {
    let mut fleet = Fleet::new().await.configure(|config| {
        config
            .set(
                "/profiles",
                json!([eager_profile("eager", false), eager_profile("eager-key", true)]),
            )
            .set("/egress/pool", json!({"idle_timeout": "2s", "max_idle_per_host": 16}))
    });
    for tool in &TOOLS {
        let url = format!("http://{}:{}/{}", host(tool.name), peer.port(), tool.name);
        let shape = |made: Tool| {
            let call = json!({"type": "object", "properties": {"call": {"type": "string"}}});
            let made = made.no_secret().profile(tool.profile).parameters(call);
            let made = made.set("timeout", json!("1s"));
            // An open circuit would keep the faults away.
            let made = made.set("breaker", json!("off"));
            made.set("annotations", json!({"read_only": tool.read_only}))
        };
        fleet = fleet.at(tool.name, peer.port(), &url, shape);
    }
    unsteady(&fleet.dns, length);
    (fleet.config.start().await, fleet.dns)
}

/// Names whose lookups fail now and then, to the end of the run: without these failures more calls run at once.
fn unsteady(dns: &DnsServer, length: Duration) {
    let rounds = 50 + length.as_secs();
    for tool in TOOLS.iter().filter(|tool| tool.unsteady_name) {
        let good = || Answer::with_ttl(0, &["A 127.0.0.1"]);
        let mut answers = Vec::new();
        for _ in 0..rounds {
            answers.extend((0..57).map(|_| good()));
            answers.extend([
                Answer::lines(&["SERVFAIL"]),
                Answer::lines(&["NXDOMAIN"]),
                Answer::with_ttl(0, &["A 127.0.0.1", "A 10.0.0.5"]),
            ]);
        }
        answers.push(good());
        dns.script(&host(tool.name), answers);
    }
}

/// Kept connections end in their time, and nothing else was open.
async fn no_socket_is_left(gateway: &Gateway, peer: &Peer) {
    poll("the gateway's connections to end", || async {
        let metrics = gateway.metrics().await;
        let open = metrics.value("sortie_upstream_connections_open", &[]);
        (open == 0.0 && peer.open() == 0).then_some(())
    })
    .await;
}
