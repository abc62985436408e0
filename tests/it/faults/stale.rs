//! Kept connections whose server ended them: rows 45 and 46.

use serde_json::json;

use crate::faults::proof::Fault;
use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer};
use crate::support::world::World;

const CONNECTIONS: &str = "sortie_upstream_connections_total";

/// Ends a connection.
type End = fn(Script) -> Script;

fn ok() -> Vec<u8> {
    answer(200, "application/json", "1")
}

fn good<'a>(world: &'a World, profile: &'static str) -> Fault<'a> {
    Fault::of(world, "x").profile(profile).result(json!(1))
}

#[tokio::test]
async fn f045_a_connection_that_ended_while_idle_is_replaced_without_a_word() {
    let world = World::tls().await;
    let ends: [End; 3] = [Script::fin, Script::bare_fin, Script::reset];
    for end in ends {
        world.upstream.next(end(Script::new().request().send(ok())));
    }
    world.upstream.default(Script::always(ok()));
    let gateway = world.gateway(world.tool("x")).await;
    for _ in 0..ends.len() {
        // One attempt, one request, and the connection ends by itself.
        let fault = good(&world, "envelope-v1").connections(1).kept(0);
        fault.metric(CONNECTIONS, &[("kind", "new")], 1.0).holds(&gateway).await;
    }
    good(&world, "envelope-v1").connections(1).holds(&gateway).await;
    gateway.finish().await;
}

/// A server whose first connection answers once, reads a second request and then ends in this way.
async fn crossing(profile: &'static str, reuse: &str, end: End) -> (World, Gateway) {
    let world = World::plain().await;
    let first = end(Script::new().request().send(ok()).request());
    world.upstream.next(first).default(Script::always(ok()));
    let config = world.config().set("/egress/pool", json!({"reuse": reuse}));
    let gateway = config.tool(world.tool("x").profile(profile)).start().await;
    good(&world, profile).connections(1).holds(&gateway).await;
    (world, gateway)
}

/// The server had the whole second request.
fn crossed<'a>(world: &'a World, detail: &'static str) -> Fault<'a> {
    let fault = Fault::of(world, "x").failed("network_error").detail(detail).unknown();
    fault.connections(0).requests(1).metric(CONNECTIONS, &[("kind", "reused")], 1.0)
}

#[tokio::test]
async fn f046_an_end_that_crosses_a_request_leaves_the_outcome_open_and_reuse_off() {
    let ends: [(&str, End); 2] = [("closed", Script::fin), ("reset", Script::reset)];
    for (detail, end) in ends {
        let (world, gateway) = crossing("envelope-v1", "auto", end).await;
        crossed(&world, detail).holds(&gateway).await;
        // From now on this endpoint gets a connection for each call.
        for _ in 0..3 {
            let fault = good(&world, "envelope-v1").connections(1).kept(0);
            fault.metric(CONNECTIONS, &[("kind", "reused")], 0.0).holds(&gateway).await;
        }
        gateway.finish().await;
    }
}

#[tokio::test]
async fn f046_an_idempotent_tool_is_asked_again_on_a_fresh_connection() {
    let (world, gateway) = crossing("bare-v1", "auto", Script::reset).await;
    let retries = [("tool", "x"), ("reason", "reset")];
    good(&world, "bare-v1")
        .attempts("reset", 1)
        .attempts("2xx", 1)
        .connections(1)
        .kept(0)
        .metric("sortie_retries_total", &retries, 1.0)
        .holds(&gateway)
        .await;
    gateway.finish().await;
}

#[tokio::test]
async fn f046_where_reuse_is_always_the_endpoint_is_trusted_again() {
    let (world, gateway) = crossing("envelope-v1", "always", Script::fin).await;
    crossed(&world, "closed").holds(&gateway).await;
    good(&world, "envelope-v1").connections(1).holds(&gateway).await;
    good(&world, "envelope-v1").connections(0).holds(&gateway).await;
    gateway.finish().await;
}
