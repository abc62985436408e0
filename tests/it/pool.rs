//! Kept connections: when they are used again, when they are not, and that they cost no call its result.

use serde_json::json;

use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::wait::{Signal, poll, together};
use crate::support::world::World;

fn ok() -> Vec<u8> {
    answer(200, "application/json", "1")
}

fn always() -> Script {
    Script::always(ok())
}

/// `sortie_upstream_connections_total`, as new, reused, evicted and poisoned; and how many are open.
async fn counts(gateway: &Gateway) -> ([u64; 4], u64) {
    let metrics = gateway.metrics().await;
    let total = |kind| metrics.value("sortie_upstream_connections_total", &[("kind", kind)]) as u64;
    let totals = ["new", "reused", "evicted", "poisoned"].map(total);
    (totals, metrics.value("sortie_upstream_connections_open", &[]) as u64)
}

/// Waits until they stand so: an idle connection's end is noticed by itself, in its own time.
async fn wait_for_counts(gateway: &Gateway, expected: ([u64; 4], u64)) {
    poll(&format!("connections to stand at {expected:?}"), || async {
        (counts(gateway).await == expected).then_some(())
    })
    .await;
}

async fn calls(gateway: &Gateway, tool: &str, count: usize) {
    for _ in 0..count {
        assert_eq!(gateway.call(tool, json!({})).await.succeeded(), json!(1));
    }
}

/// On which connection each request came.
fn carriers(upstream: &Upstream) -> Vec<usize> {
    upstream.requests().iter().map(|request| request.connection).collect()
}

#[tokio::test]
async fn one_connection_carries_call_after_call() {
    for world in [World::tls().await, World::plain().await] {
        world.upstream.default(always());
        let gateway = world.gateway(world.tool("kept")).await;
        calls(&gateway, "kept", 10).await;
        assert_eq!(carriers(&world.upstream), [0; 10]);
        assert_eq!(counts(&gateway).await, ([1, 9, 0, 0], 1));
        gateway.finish().await;
        world.upstream.wait_until_closed(1).await;
    }
}

#[tokio::test]
async fn reuse_never_makes_a_connection_for_each_call() {
    let world = World::tls().await;
    world.upstream.default(always());
    let config = world.config().set("/egress/pool", json!({"reuse": "never"}));
    let gateway = config.tool(world.tool("single")).start().await;
    calls(&gateway, "single", 3).await;
    assert_eq!(carriers(&world.upstream), [0, 1, 2]);
    world.upstream.wait_until_closed(3).await;
    assert_eq!(counts(&gateway).await, ([3, 0, 0, 0], 0));
    gateway.finish().await;
}

#[tokio::test]
async fn two_tools_at_one_address_share_no_connection() {
    let world = World::tls().await;
    world.upstream.default(always());
    let gateway = world.config().tool(world.tool("one")).tool(world.tool("two")).start().await;
    for _ in 0..3 {
        calls(&gateway, "one", 1).await;
        calls(&gateway, "two", 1).await;
    }
    for request in world.upstream.requests() {
        let expected = ["POST /one HTTP/1.1", "POST /two HTTP/1.1"][request.connection];
        assert_eq!(request.line(), expected);
    }
    assert_eq!(counts(&gateway).await, ([2, 4, 0, 0], 2));
    gateway.finish().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_its_time() {
    let world = World::tls().await;
    world.upstream.default(always());
    let config = world.config().set("/egress/pool", json!({"idle_timeout": "1s"}));
    let gateway = config.tool(world.tool("idle")).start().await;
    calls(&gateway, "idle", 2).await;
    assert_eq!(counts(&gateway).await.1, 1);
    world.upstream.wait_until_closed(1).await;
    wait_for_counts(&gateway, ([1, 1, 1, 0], 0)).await;
    calls(&gateway, "idle", 1).await;
    assert_eq!(carriers(&world.upstream), [0, 0, 1]);
    gateway.finish().await;
}

#[tokio::test]
async fn an_old_connection_is_replaced_although_it_is_busy() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = world.config().set("/egress/pool", json!({"max_age": "1s"}));
    let gateway = config.tool(world.tool("old")).start().await;
    poll("a second connection", || async {
        calls(&gateway, "old", 1).await;
        (world.upstream.connections().len() == 2).then_some(())
    })
    .await;
    gateway.finish().await;
}

#[tokio::test]
async fn only_so_many_are_kept() {
    let world = World::plain().await;
    let go = Signal::new();
    world.upstream.default(Script::new().request().wait(&go).send(ok()).stall());
    let config = world.config().set("/egress/pool", json!({"max_idle_per_host": 1}));
    let gateway = config.tool(world.tool("many")).start().await;
    let running = together((0..3).map(|_| gateway.call("many", json!({}))));
    let release = async {
        world.upstream.wait_for_requests(3).await;
        go.fire();
    };
    let (outcomes, ()) = tokio::join!(running, release);
    outcomes.iter().for_each(|outcome| drop(outcome.succeeded()));
    wait_for_counts(&gateway, ([3, 0, 2, 0], 1)).await;
    gateway.finish().await;
}
