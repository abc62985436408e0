//! The cost of a call: the real gateway beside a plain hyper client, both against one HTTPS server, in one run.
//!
//! `cargo bench --bench call` prints a table; `-- --quick` is shorter. Nothing here fails on a figure: throughput and
//! latency depend on what else the machine does. CPU a call and the ratios hold better.
#![expect(
    clippy::disallowed_methods,
    reason = "a bench is a client and a peer itself, and times things"
)]

mod bare;
mod components;
mod gateway;
mod load;
mod process;
mod table;
mod upstream;

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::process::{Child, Load, Plan, Role, Window};
use crate::table::{Report, median};

/// Connections of either driver, as many as the yardstick of other gateways uses.
const CONNECTIONS: usize = 32;
/// Calls a second where latency is compared: far from saturation.
const CALM_RATE: u32 = 800;
/// Before a window is measured: connections are open, caches are warm.
const WARM_UP: Duration = Duration::from_millis(400);

fn main() {
    if let Some(role) = process::own_role() {
        return match role {
            Role::Bare(plan) => bare::run(&plan),
            Role::Load(load) => load::run(&load),
            Role::Upstream => upstream::run(),
        };
    }
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, seconds) = if quick { (2, 0.8) } else { (5, 1.8) };
    let window = Duration::from_secs_f64(seconds);

    let mut report = Report::default();
    let upstream = upstream::start();
    let gateway = Gateway::start(&upstream, &Value::Null);
    let idle = process::resident_kib(gateway.id());
    let (first, second) = gateway.first_calls();

    let full = rounds_of(rounds, &upstream, &gateway, window, None);
    let calm = rounds_of(rounds.div_ceil(2), &upstream, &gateway, window, Some(CALM_RATE));

    // A small difference: more and shorter windows than for the rest.
    let recording = recording(4 * rounds, &upstream, window / 2);

    report.heading("At saturation, 32 connections");
    report.windows(&full);
    report.heading(&format!("At {CALM_RATE} calls a second"));
    report.windows(&calm);
    report.heading("Against the aims");
    let ratio = median(full.iter().map(|(ours, bare)| ours.cpu_us() / bare.cpu_us()));
    report.aim("CPU a call, times the bare client's", ratio, "", 2.9, 3.4);
    let added = median(calm.iter().map(|(ours, bare)| ours.p50_us - bare.p50_us));
    report.aim("added p50 at a calm rate", added, " us", 150.0, 200.0);
    report.aim("idle memory", idle as f64 / 1024.0, " MB", 12.0, 25.0);
    report.aim("start to ready", gateway.ready_ms(), " ms", 100.0, 250.0);
    report.line(
        "memory after the load",
        process::resident_kib(gateway.id()) as f64 / 1024.0,
        " MB",
    );
    report.line("first call, with its dial", first, " us");
    report.line("second call", second, " us");
    report.heading("Recording off and on, in a file");
    let [off, on] = [0, 1].map(|at| median(recording.iter().map(|both| both[at])));
    report.line("CPU a call, nothing is recorded", off, " us");
    report.line("CPU a call, each one is recorded", on, " us");
    let ratio = median(recording.iter().map(|[off, on]| on / off));
    report.below("recording costs, of the CPU a call", 100.0 * (ratio - 1.0), " %", 10.0);
    report.heading("Parts of a call, in memory");
    for (name, ns) in components::measure(gateway.config()) {
        report.line(name, ns, " ns");
    }
    report.print();
}

/// CPU a call of a gateway that records no finished call, and of one that records each, in turn.
fn recording(rounds: usize, upstream: &upstream::Upstream, window: Duration) -> Vec<[f64; 2]> {
    let kept = json!({"url": "sqlite:calls.db"});
    let mut forgotten = kept.clone();
    forgotten["keep"] = json!({"max_calls": 0});
    let gateways = [&forgotten, &kept].map(|storage| Gateway::start(upstream, storage));
    let plan = Plan { connections: CONNECTIONS, warm_up: WARM_UP, window, rate: None };
    let cpu = |gateway: &Gateway| {
        let load = Load { plan, address: gateway.address(), request: gateway.request() };
        Child::spawn(&Role::Load(load)).window(Some(gateway.id())).cpu_us()
    };
    let round = |round| {
        // Each is the first in every second round: what the machine does meanwhile meets both.
        let mut both = [0.0; 2];
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            both[at] = cpu(&gateways[at]);
        }
        both
    };
    (0..rounds).map(round).collect()
}

/// The gateway and the bare client in turn, so that both meet the same noise.
fn rounds_of(
    rounds: usize,
    upstream: &upstream::Upstream,
    gateway: &Gateway,
    window: Duration,
    rate: Option<u32>,
) -> Vec<(Window, Window)> {
    let plan = Plan { connections: CONNECTIONS, warm_up: WARM_UP, window, rate };
    let round = |_| {
        let load = Load { plan, address: gateway.address(), request: gateway.request() };
        let ours = Child::spawn(&Role::Load(load)).window(Some(gateway.id()));
        let bare = Child::spawn(&Role::Bare(upstream.bare(plan))).window(None);
        (ours, bare)
    };
    (0..rounds).map(round).collect()
}
