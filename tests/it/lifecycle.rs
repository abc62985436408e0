//! The ends of things: a gateway that is told to stop, and one that cannot start.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::config::ConfigBuilder;
use crate::support::dns::Answer;
use crate::support::gateway::Gateway;
use crate::support::http::RawClient;
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::wait::{Signal, poll};
use crate::support::world::World;

fn ok() -> Vec<u8> {
    answer(200, "application/json", "1")
}

/// A runtime that posts a call and waits for the answer.
async fn runtime(gateway: &Gateway, tool: &str, call_id: &str) -> RawClient {
    let run = json!({"run_id": "run_1", "step": call_id});
    gateway.open_call(tool, call_id, run).await
}

/// Waits until the drain has begun.
async fn draining(gateway: &Gateway) {
    poll("/readyz to say 503", || async {
        (gateway.probe("/readyz").await.status == 503).then_some(())
    })
    .await;
}

#[tokio::test]
async fn sigterm_lets_running_calls_finish() {
    let world = World::tls().await;
    let go = Signal::new();
    world.upstream.default(Script::new().request().wait(&go).send(ok()).stall());
    let tools = world.config().tool(world.tool("running")).tool(world.tool("orphan"));
    let mut gateway = tools.start().await;
    let mut client = runtime(&gateway, "running", "call_running1").await;
    let orphan = runtime(&gateway, "orphan", "call_orphan1").await;
    world.upstream.wait_for_requests(2).await;
    drop(orphan);

    gateway.terminate();
    draining(&gateway).await;
    assert_eq!(gateway.probe("/livez").await.status, 200);
    assert_eq!(gateway.metrics().await.value("sortie_draining", &[]), 1.0);
    // Who comes now is told to go elsewhere.
    let late = gateway.call("running", json!({})).await;
    assert_eq!((late.0.status, late.at("/error/code")), (503, json!("draining")));
    go.fire();

    let reply = client.read_reply().await;
    assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("succeeded")));
    let finished = gateway.ended().await;
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    assert!(finished.stderr.is_empty(), "{finished:#?}");
    for call in ["call_running1", "call_orphan1"] {
        let logged = finished.stdout.lines().filter(|line| line.contains(call));
        let logged: Vec<_> = logged.filter(|line| line.contains(r#""code":"ok""#)).collect();
        assert_eq!(logged.len(), 1, "{call}: {finished:#?}");
    }
    assert!(finished.stdout.ends_with('}'), "the last line is whole: {finished:#?}");
}

#[tokio::test]
async fn calls_are_taken_for_a_while_after_sigterm_where_the_configuration_says_so() {
    let world = World::tls().await;
    world.upstream.default(Script::always(ok()));
    let config = world.config().set("/shutdown", json!({"accept_for": "600s"}));
    let mut gateway = config.tool(world.tool("taken")).start().await;
    gateway.terminate();
    draining(&gateway).await;
    assert_eq!(gateway.call("taken", json!({})).await.succeeded(), json!(1));
    // A second signal ends the wait.
    gateway.terminate();
    let finished = gateway.ended().await;
    assert_eq!(finished.code, Some(1), "{finished:#?}");
}

#[tokio::test]
async fn a_call_longer_than_the_grace_is_cut_off_with_its_outcome_open() {
    let world = World::tls().await;
    let (held, arrived) = (Signal::new(), Signal::new());
    world.upstream.default(Script::new().request().fire(&arrived).stall());
    let config = world.config().set("/shutdown", json!({"grace": "300ms"}));
    // The second tool has a name of its own, whose lookup never ends.
    let other = crate::support::config::Tool::new("unsent", "https://unsent.example.com/");
    world.dns.script("unsent.example.com", vec![Answer::lines(&[]).held(&held)]);
    let config = config.set("/dns/timeout", json!("30s"));
    let mut gateway = config.tool(world.tool("hanging")).tool(other).start().await;
    let mut sent = runtime(&gateway, "hanging", "call_hanging1").await;
    let mut unsent = runtime(&gateway, "unsent", "call_unsent1").await;
    arrived.fired().await;
    world.dns.wait_for_questions(4).await;

    let told = Instant::now();
    gateway.terminate();
    let (sent, unsent) = (sent.read_reply().await.json(), unsent.read_reply().await.json());
    let finished = gateway.ended().await;
    assert!(told.elapsed() < Duration::from_secs(5), "it took {:?}", told.elapsed());

    assert_eq!(finished.code, Some(0), "{finished:#?}");
    let error =
        |reply: &Value| ["code", "outcome", "retryable"].map(|field| reply["error"][field].clone());
    assert_eq!(error(&sent), [json!("cancelled"), json!("unknown"), json!(false)], "{sent}");
    let text = "The call was cancelled. It may have taken effect; check before trying again.";
    assert_eq!(sent["model"]["text"], text);
    assert_eq!(sent["attempts"][0]["error"], json!({"code": "cancelled", "detail": null}));
    assert_eq!(error(&unsent), [json!("cancelled"), json!("not_sent"), json!(true)], "{unsent}");
    assert_eq!(unsent["model"]["text"], "The call was cancelled.");
    for call in ["call_hanging1", "call_unsent1"] {
        let is_line =
            |line: &&str| line.contains(call) && line.contains(r#""code":"cancelled","outcome""#);
        assert_eq!(finished.stdout.lines().filter(is_line).count(), 1, "{finished:#?}");
    }
    assert!(finished.stdout.contains("Some calls did not finish in time"), "{finished:#?}");
    world.upstream.wait_until_closed(1).await;
}

#[tokio::test]
async fn a_second_sigterm_ends_at_once() {
    let world = World::plain().await;
    world.upstream.default(Script::new().request().stall());
    let mut gateway = world.gateway(world.tool("stuck")).await;
    let mut client = runtime(&gateway, "stuck", "call_stuck1").await;
    world.upstream.wait_for_requests(1).await;
    let told = Instant::now();
    gateway.terminate();
    draining(&gateway).await;
    gateway.terminate();
    let finished = gateway.ended().await;
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    assert!(told.elapsed() < Duration::from_secs(8), "the tool's 10 s were not waited for");
    assert!(client.read_to_end().await.is_empty());
}

/// `sortie serve` on this configuration ends by itself with 1, and says this on standard error.
#[track_caller]
fn check_start(config: &ConfigBuilder, expected: &[&str]) {
    let folder = config.write();
    let path = folder.config.to_str().expect("a UTF-8 path");
    let finished = crate::support::cli::run(["serve", "--config", path], "");
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    for part in expected {
        assert!(finished.stderr.contains(part), "{part:?} is missing in {finished:#?}");
    }
    assert!(!finished.stderr.contains("panicked"), "{finished:#?}");
}

#[tokio::test]
async fn a_taken_port_is_named_and_ends_the_start() {
    let taken = Upstream::forbidden_at(([127, 0, 0, 1], 0).into()).await;
    let address = taken.address().to_string();
    for listener in ["api", "telemetry"] {
        let place = format!("/listeners/{listener}/address");
        let config = ConfigBuilder::new().set(&place, json!(address));
        check_start(&config, &[&format!("the {listener} listener cannot listen at {address}: ")]);
    }
}

#[test]
fn a_configuration_that_does_not_hold_ends_the_start() {
    check_start(&ConfigBuilder::new().raw("version: [\n"), &["sortie.yaml:"]);
    let twice = "version: 1\nversion: 1\n";
    check_start(&ConfigBuilder::new().raw(twice), &["sortie.yaml:2:1: ", "version"]);
    let unknown = ConfigBuilder::new().set("/listenerz", json!({}));
    check_start(&unknown, &["sortie.yaml:", "listenerz"]);
    let missing = crate::support::cli::run(["serve", "--config", "/nowhere/sortie.yaml"], "");
    assert_eq!(missing.code, Some(1), "{missing:#?}");
    assert!(missing.stderr.contains("/nowhere/sortie.yaml"), "{missing:#?}");
    assert_eq!(crate::support::cli::run(["serve"], "").code, Some(2));
}
