//! Callers that go away, and callers that are too many: rows 38, 48 and 49.

use serde_json::{Value, json};

use crate::faults::proof::{Fault, RUN, prove_while};
use crate::support::config::{API_KEY, Tool};
use crate::support::dns::Answer;
use crate::support::gateway::{Gateway, Outcome};
use crate::support::http::{RawClient, get, post};
use crate::support::script::{Script, answer};
use crate::support::wait::{Signal, poll, together, within};
use crate::support::world::{HOST, World};

fn ok() -> Vec<u8> {
    answer(200, "application/json", "1")
}

/// A runtime that posts a call of the tool `x` and can hang up.
async fn runtime(gateway: &Gateway, call_id: &str) -> RawClient {
    let fields = json!({"run_id": RUN, "step": call_id});
    gateway.open_call("x", call_id, fields).await
}

/// The call that such a runtime has made.
fn left<'a>(world: &'a World, call_id: &str) -> Fault<'a> {
    Fault::of(world, "x").arguments(json!({})).profile("bare-v1").unheard(call_id)
}

#[tokio::test]
async fn f038_a_runtime_that_hangs_up_before_the_request_is_out_stops_the_call() {
    let world = World::tls().await;
    let held = Signal::new();
    let gateway = world.gateway(world.tool("x")).await;
    world.dns.script(HOST, vec![Answer::lines(&["A 127.0.0.1"]).held(&held)]);
    let hangs_up = async {
        let client = runtime(&gateway, "call_early1").await;
        world.dns.wait_for_questions(2).await;
        drop(client);
        gateway.call_line("call_early1").await;
        held.fire();
    };
    let fault = left(&world, "call_early1").failed("cancelled").connections(0);
    let labels = [("tool", "x"), ("code", "cancelled"), ("fault", "caller")];
    let fault = fault.metric("sortie_calls_total", &labels, 1.0);
    prove_while(&gateway, vec![fault], hangs_up).await;
    world.upstream.default(Script::new());
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

#[tokio::test]
async fn f038_a_runtime_that_hangs_up_between_two_attempts_leaves_the_first_one_s_failure() {
    let world = World::plain().await;
    world.upstream.default(Script::once(answer(503, "", "")));
    let gateway = world.gateway(world.tool("x").profile("bare-v1")).await;
    let hangs_up = async {
        let client = runtime(&gateway, "call_between1").await;
        // The wait before the next attempt has begun, and lasts a quarter of a second at least.
        world.upstream.wait_until_closed(1).await;
        drop(client);
    };
    let fault = left(&world, "call_between1").failed("http_status").http_status(503).answered();
    prove_while(&gateway, vec![fault.connections(1)], hangs_up).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f038_what_was_sent_is_finished_and_logged_although_the_runtime_hung_up() {
    for succeeds in [true, false] {
        let world = World::tls().await;
        let (arrived, go) = (Signal::new(), Signal::new());
        let bytes = if succeeds { ok() } else { answer(503, "", "") };
        world
            .upstream
            .default(Script::new().request().fire(&arrived).wait(&go).send(bytes).stall());
        let gateway = world.gateway(world.tool("x").profile("bare-v1")).await;
        let hangs_up = async {
            let client = runtime(&gateway, "call_late1").await;
            arrived.fired().await;
            drop(client);
            go.fire();
        };
        let fault = left(&world, "call_late1").connections(1);
        let fault = match succeeds {
            true => fault,
            // No further attempt: nobody waits for it.
            false => fault.failed("http_status").http_status(503).answered().kept(1),
        };
        prove_while(&gateway, vec![fault], hangs_up).await;
        gateway.finish().await;
    }
}

/// A whole GET request on a connection that is kept.
fn kept_get(path: &str) -> Vec<u8> {
    kept(&get(path))
}

/// The same request without the wish to close.
fn kept(request: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(request).expect("a request of text");
    text.replace("Connection: close\r\n", "").into_bytes()
}

/// Asks on this connection until it has this status.
async fn readiness(probe: &mut RawClient, expected: u16) {
    within("readiness to change", async {
        loop {
            probe.write(&kept_get("/readyz")).await;
            if probe.read_reply().await.status == expected {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn f048_without_descriptors_calls_are_shed_and_the_gateway_recovers() {
    let world = World::plain().await;
    world.upstream.default(Script::always(ok()));
    let config = world.config().set("/egress/pool", json!({"reuse": "never"}));
    // A name that nobody has asked for yet: a question needs a descriptor too.
    world.dns.set("fresh.example.com", &["A 10.0.0.5"]);
    let fresh = Tool::new("fresh", "https://fresh.example.com/");
    let gateway = config.tool(world.tool("x")).tool(fresh).start().await;
    Fault::of(&world, "x").kept(0).holds(&gateway).await;
    let mut probe = RawClient::connect(gateway.telemetry()).await;
    readiness(&mut probe, 200).await;
    let mut client = RawClient::connect(gateway.api()).await;
    client.write(&kept_get("/nothing")).await;
    assert_eq!(client.read_reply().await.status, 404);

    let runs_out = async {
        // Below what it has already: from now on it gets none.
        let before = gateway.limit_descriptors(8);
        for (tool, call_id) in [("x", "call_short1"), ("fresh", "call_short2")] {
            let call = json!({
                "tool": tool, "arguments": {}, "call_id": call_id, "run_id": RUN, "step": call_id,
            });
            client.write(&kept(&post("/v1/calls", Some(API_KEY), call.to_string()))).await;
            let outcome = Outcome(client.read_reply().await);
            outcome.refused("overloaded", None);
            assert_eq!(outcome.at("/error/retryable"), json!(true));
        }
        let mut waiting = RawClient::connect(gateway.api()).await;
        waiting.write(&get("/nothing")).await;
        readiness(&mut probe, 503).await;
        gateway.limit_descriptors(before);
        readiness(&mut probe, 200).await;
        assert_eq!(waiting.read_reply().await.status, 404);
    };
    let fault = [("code", "overloaded"), ("fault", "gateway")];
    let shed = left(&world, "call_short1").refused("overloaded").connections(0);
    let unasked = Fault::at("fresh").refused("overloaded").unheard("call_short2");
    let faults = [shed, unasked].map(|shed| shed.metric("sortie_calls_total", &fault, 1.0));
    prove_while(&gateway, faults.into(), runs_out).await;
    // Nothing of it is believed any longer.
    Fault::at("fresh").refused("blocked_host").detail("private").holds(&gateway).await;
    let said = |line: &Value| line["message"] == "No connection can be accepted.";
    let said = gateway.log_lines().iter().filter(|line| said(line)).count();
    assert!((1..10).contains(&said), "{said} lines: it does not run in circles");

    // Far more calls than descriptors: each of them has an answer, and what was shed was not sent.
    let before = gateway.limit_descriptors(40);
    let requests = world.upstream.requests().len();
    let outcomes = together((0..200).map(|_| gateway.call("x", json!({})))).await;
    gateway.limit_descriptors(before);
    let (good, shed): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|outcome| outcome.at("/status") == "succeeded");
    shed.iter().for_each(|outcome| outcome.refused("overloaded", None));
    assert_eq!(world.upstream.requests().len() - requests, good.len());
    Fault::of(&world, "x").kept(0).holds(&gateway).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f049_idle_clients_make_room_and_what_runs_is_not_touched() {
    const ROOM: usize = 20;
    let world = World::tls().await;
    let go = Signal::new();
    world.upstream.default(Script::new().request().wait(&go).send(ok()).stall());
    let bounds = json!({"address": "127.0.0.1:0", "max_connections": ROOM});
    let config = world.config().set("/listeners/api", bounds).tool(world.tool("x"));
    let gateway = config.start().await;
    let flood = async {
        world.upstream.wait_for_requests(1).await;
        let mut idle = Vec::new();
        for _ in 0..10 * ROOM {
            idle.push(RawClient::connect(gateway.api()).await);
        }
        // Whoever was idle longest made room, and the next one is served.
        for client in idle.iter_mut().take(9 * ROOM) {
            assert!(client.read_to_end().await.is_empty());
        }
        let last = idle.last_mut().expect("a client");
        last.write(&kept_get("/nothing")).await;
        assert_eq!(last.read_reply().await.status, 404);
        assert_eq!(gateway.probe("/readyz").await.status, 200);
        go.fire();
    };
    prove_while(&gateway, vec![Fault::of(&world, "x").connections(1)], flood).await;
    poll("a call among idle clients", || async {
        (gateway.call("x", json!({})).await.at("/status") == "succeeded").then_some(())
    })
    .await;
    gateway.finish().await;
}
