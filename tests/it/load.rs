//! Memory and connections under load: the bounds that an operator plans with.

use std::sync::Arc;

use serde_json::json;

use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::fleet::Fleet;
use crate::support::gateway::Gateway;
use crate::support::http::{RawClient, get, post, request};
use crate::support::script::{Script, answer, head};
use crate::support::wait::{Log, Signal, poll, spawned};

const CALLS: usize = 1000;
const ANSWER: usize = 5_000_000;
const IDLE: usize = 10_000;
/// What many calls do is waited for step by step, so that only standing still is too slow.
const STEP: usize = 50;
/// Longer than a slow machine needs until the last of all calls is at its tool: the first ones wait for it.
const LONG: &str = "300s";

/// Most kibibytes that the process has had in memory so far.
fn peak_kib(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.process()));
    let status = status.expect("a running process");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f153_a_thousand_of_the_largest_answers_at_once_stay_within_600_mb() {
    let go = Signal::new();
    // Head and first bytes at once, the rest as fast as it is taken: nobody takes five megabytes.
    let script = Script::new()
        .request()
        .wait(&go)
        .send(head(200, &[("Content-Type", "text/plain"), ("Content-Length", &ANSWER.to_string())]))
        .flood(vec![b'x'; 64 << 10]);
    let (fleet, upstream) = Fleet::new()
        .await
        .plain("large", script, |tool| {
            let tool = tool.no_secret().profile("plain-v1").set("concurrency", json!(CALLS));
            tool.set("timeout", json!(LONG))
        })
        .await;
    let fleet = fleet.configure(|config| {
        config
            .set("/egress/connect_timeout", json!("60s"))
            .set("/listeners/api/header_timeout", json!(LONG))
    });
    let gateway = fleet.config.start().await;
    let clients = (0..CALLS).map(|step| {
        let body = json!({
            "tool": "large", "arguments": {}, "run_id": "run_1", "step": step.to_string(),
            "wait_ms": 60_000,
        });
        let (api, request) = (gateway.api(), post("/v1/calls", Some(API_KEY), body.to_string()));
        async move {
            let mut client = RawClient::connect(api).await;
            client.write(&request).await;
            client
        }
    });
    let clients = spawned(clients).await;
    for some in (0..=CALLS).step_by(STEP) {
        upstream.wait_for_requests(some).await;
    }
    go.fire();
    // The first byte of each outcome is there before any of them is read further.
    let begun = Arc::new(Log::new());
    let replies = spawned(clients.into_iter().map(|mut client| {
        let begun = begun.clone();
        async move {
            client.begun().await;
            begun.push(());
            client
        }
    }));
    let progress = async {
        for some in (0..=CALLS).step_by(STEP) {
            let is_there = |all: &[()]| (all.len() >= some).then_some(());
            begun.wait(&format!("{some} outcomes that begin"), is_there).await;
        }
    };
    let (replies, ()) = tokio::join!(replies, progress);
    for mut client in replies {
        let mut outcome = client.read_reply().await.json();
        // A slow machine takes longer than a request waits for its call.
        while outcome["status"] == "running" {
            let id = outcome["id"].as_str().expect("an id");
            let path = format!("/v1/calls/{id}?wait_ms=20000");
            let asked = request("GET", &path, Some(API_KEY), "");
            outcome = gateway.send(asked.as_bytes()).await.json();
        }
        let told = (&outcome["status"], &outcome["truncated"]);
        assert_eq!(told, (&json!("succeeded"), &json!(true)));
    }
    for some in (0..=CALLS).step_by(STEP) {
        poll(&format!("{some} calls that succeed"), || async {
            let succeeded = [("tool", "large"), ("code", "ok")];
            let calls = gateway.metrics().await.value("sortie_calls_total", &succeeded);
            (calls >= some as f64).then_some(())
        })
        .await;
    }
    let peak = peak_kib(&gateway);
    println!("{CALLS} calls of {ANSWER} bytes: {peak} KiB at the most");
    assert!(peak < 600_000, "{peak} KiB");
    gateway.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f049_ten_thousand_idle_connections_stay_within_300_mb_and_do_not_hold_up_a_call() {
    let (fleet, _upstream) = Fleet::new()
        .await
        .plain("quick", Script::always(answer(200, "application/json", "1")), |tool| tool)
        .await;
    let fleet = fleet.configure(ConfigBuilder::patient);
    let gateway = fleet.config.start().await;
    let request = String::from_utf8(get("/nothing")).expect("a request of text");
    let request = request.replace("Connection: close\r\n", "").into_bytes();
    let one = || {
        let (api, request) = (gateway.api(), request.clone());
        async move {
            let mut client = RawClient::connect(api).await;
            client.write(&request).await;
            assert_eq!(client.read_reply().await.status, 404);
            client
        }
    };
    let mut idle = vec![one().await];
    while idle.len() < IDLE {
        let some = (IDLE - idle.len()).min(500);
        idle.extend(spawned((0..some).map(|_| one())).await);
    }
    let peak = peak_kib(&gateway);
    println!("{IDLE} idle connections: {peak} KiB at the most");
    // One more than the bound: whoever has been idle longest makes room.
    gateway.call("quick", json!({})).await.succeeded();
    assert!(idle[0].read_to_end().await.is_empty(), "the first one had to go");
    idle[IDLE - 1].write(&request).await;
    assert_eq!(idle[IDLE - 1].read_reply().await.status, 404, "the last one is still served");
    assert!(peak < 300_000, "{peak} KiB");
    drop(idle);
    gateway.finish().await;
}

#[tokio::test]
async fn the_bound_on_descriptors_is_raised_to_what_the_system_allows() {
    let (fleet, _upstream) = Fleet::new().await.plain("quick", Script::new(), |tool| tool).await;
    let gateway = fleet.config.start_under("prlimit", &["--nofile=1000:5000"]).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.process()));
    let limits = limits.expect("a running process");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a bound");
    assert_eq!(line.split_whitespace().nth(3), Some("5000"), "{line}");
    let lines = gateway.log_lines();
    let warning = lines.iter().find(|line| line["max_connections"] == 10_000).expect("a warning");
    assert_eq!((&warning["level"], &warning["descriptors"]), (&json!("WARN"), &json!(5000)));
    gateway.finish().await;
}
