//! How many calls run at the same time, how many bodies are read, and how many attempts are repeats.

use serde_json::json;

use super::refused;
use crate::support::config::{API_KEY, Tool};
use crate::support::deaf::Vacant;
use crate::support::fleet::Fleet;
use crate::support::http::{RawClient, post};
use crate::support::script::{Script, answer};
use crate::support::wait::{Signal, poll, together};
use crate::support::world::World;

const FULL: &str = "Too many calls are running;";

fn held(signal: &Signal) -> Script {
    Script::new().request().wait(signal).send(answer(200, "text/plain", "late"))
}

#[tokio::test]
async fn a_tool_runs_so_many_calls_at_once_and_others_have_places_of_their_own() {
    let world = World::plain().await;
    let go = Signal::new();
    world.upstream.next(held(&go)).default(Script::always(answer(200, "text/plain", "fine")));
    let gateway = world
        .config()
        .tool(world.tool("narrow").set("concurrency", json!(1)))
        .tool(world.tool("wide"))
        .start()
        .await;
    let running = gateway.call("narrow", json!({}));
    let meanwhile = async {
        world.upstream.wait_for_requests(1).await;
        refused(&gateway.call("narrow", json!({})).await, "overloaded", FULL, 1);
        gateway.call("wide", json!({})).await.succeeded();
        go.fire();
    };
    let (running, ()) = tokio::join!(running, meanwhile);
    running.succeeded();
    gateway.call("narrow", json!({})).await.succeeded();
    let labels = [("tool", "narrow"), ("code", "overloaded"), ("fault", "gateway")];
    assert_eq!(gateway.metrics().await.value("sortie_calls_total", &labels), 1.0);
    gateway.finish().await;
}

#[tokio::test]
async fn the_gateway_runs_so_many_calls_at_once() {
    let world = World::plain().await;
    let go = Signal::new();
    world.upstream.next(held(&go)).default(Script::always(answer(200, "text/plain", "fine")));
    let gateway = world
        .config()
        .set("/limits/max_calls_in_flight", json!(1))
        .tool(world.tool("one"))
        .tool(world.tool("other"))
        .start()
        .await;
    assert_eq!(gateway.metrics().await.value("sortie_calls_in_flight_limit", &[]), 1.0);
    let running = gateway.call("one", json!({}));
    let meanwhile = async {
        world.upstream.wait_for_requests(1).await;
        refused(&gateway.call("other", json!({})).await, "overloaded", FULL, 1);
        go.fire();
    };
    let (running, ()) = tokio::join!(running, meanwhile);
    running.succeeded();
    gateway.call("other", json!({})).await.succeeded();
    gateway.finish().await;
}

#[tokio::test]
async fn a_runtime_that_hangs_up_gives_its_place_back() {
    let world = World::plain().await;
    let go = Signal::new();
    world.upstream.next(held(&go)).default(Script::always(answer(200, "text/plain", "fine")));
    let gateway = world.gateway(world.tool("narrow").set("concurrency", json!(1))).await;
    let mut runtime = RawClient::connect(gateway.api()).await;
    let body = json!({"tool": "narrow", "arguments": {}, "call_id": "call_gone"}).to_string();
    runtime.write(&post("/v1/calls", Some(API_KEY), body)).await;
    world.upstream.wait_for_requests(1).await;
    drop(runtime);
    // What was sent runs on, and holds its place until it has ended.
    refused(&gateway.call("narrow", json!({})).await, "overloaded", FULL, 1);
    go.fire();
    gateway.call_line("call_gone").await;
    gateway.assert_quiet().await;
    gateway.call("narrow", json!({})).await.succeeded();
    gateway.finish().await;
}

#[tokio::test]
async fn so_many_bodies_are_read_at_once_and_one_more_is_not() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let config = world.config().set("/limits/max_calls_in_flight", json!(1));
    let gateway = config.tool(world.tool("lookup")).start().await;
    let whole =
        post("/v1/calls", Some(API_KEY), json!({"tool": "lookup", "arguments": {}}).to_string());
    let (begun, rest) = whole.split_at(whole.len() - 5);
    let mut slow = RawClient::connect(gateway.api()).await;
    slow.write(begun).await;
    let reply = poll("a full house", || async {
        let reply = gateway.send(&whole).await;
        (reply.status == 503).then_some(reply)
    })
    .await;
    assert_eq!(reply.json()["error"]["code"], "overloaded");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.header("connection"), Some("close"));
    slow.write(rest).await;
    assert_eq!(slow.read_reply().await.json()["status"], "succeeded");
    assert_eq!(gateway.send(&whole).await.json()["status"], "succeeded");
    let labels = [("listener", "api"), ("code", "503")];
    assert!(gateway.metrics().await.value("sortie_http_requests_total", &labels) >= 1.0);
    gateway.finish().await;
}

#[tokio::test]
async fn f156_an_outage_is_not_answered_with_a_storm_of_repeats() {
    let vacant = Vacant::take();
    let dead = vacant.port();
    let url = |name: &str| format!("http://{name}.example.com:{dead}/");
    let bare = |tool: Tool| tool.profile("bare-v1");
    let fleet = Fleet::new().await.at("stubborn", dead, &url("stubborn"), bare).at(
        "guarded",
        dead,
        &url("guarded"),
        |tool| bare(tool).set("breaker", json!({})),
    );
    let gateway = fleet.config.start().await;
    for name in ["stubborn", "guarded"] {
        for _ in 0..5 {
            let calls = (0..200).map(|_| gateway.call(name, json!({})));
            for outcome in together(calls).await {
                let code = outcome.at("/error/code");
                assert!(code == "network_error" || code == "circuit_open", "{code}");
                assert_eq!(outcome.at("/error/outcome"), json!("not_sent"));
            }
        }
    }
    let metrics = gateway.metrics().await;
    let of = |metric: &str, name: &str| metrics.value(metric, &[("tool", name)]);
    for name in ["stubborn", "guarded"] {
        assert_eq!(of("sortie_calls_total", name), 1000.0);
        let attempts = of("sortie_attempts_total", name);
        assert!(attempts < 1300.0, "{name}: {attempts}");
    }
    // Without a breaker each call is tried, and some are tried again.
    assert!(of("sortie_attempts_total", "stubborn") >= 1010.0);
    let retries =
        metrics.value("sortie_retries_total", &[("tool", "stubborn"), ("reason", "connect")]);
    assert_eq!(retries, of("sortie_attempts_total", "stubborn") - 1000.0);
    assert!(of("sortie_attempts_total", "guarded") <= 240.0);
    gateway.finish().await;
}
