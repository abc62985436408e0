//! The circuit of a tool: what opens it, that exactly one probe tries it again, and what never counts.

use serde_json::{Value, json};

use crate::support::config::{API_KEY, ConfigBuilder, Tool};
use crate::support::dns::Answer;
use crate::support::gateway::Gateway;
use crate::support::http::{RawClient, post};
use crate::support::metrics::Metrics;
use crate::support::script::{Script, answer, answer_with_headers};
use crate::support::wait::{Signal, poll, together};
use crate::support::world::World;

/// One failure opens it, for a second.
fn quick(world: &World, name: &str) -> Tool {
    world.tool(name).set("breaker", json!({"consecutive": 1, "open_for": "1s"}))
}

/// The configuration with the breaker that it has by default.
fn guarded(world: &World) -> ConfigBuilder {
    world.config().set("/defaults/breaker", Value::Null)
}

/// `closed`, `open` or `half_open`, of which exactly one is 1.
fn state(metrics: &Metrics, tool: &str) -> &'static str {
    let value = |state| metrics.value("sortie_circuit_state", &[("tool", tool), ("state", state)]);
    let states: Vec<_> =
        ["closed", "open", "half_open"].into_iter().filter(|state| value(state) == 1.0).collect();
    assert_eq!(states.len(), 1, "{states:?}");
    states[0]
}

fn transitions(metrics: &Metrics, tool: &str) -> [f64; 3] {
    ["open", "half_open", "closed"]
        .map(|to| metrics.value("sortie_circuit_transitions_total", &[("tool", tool), ("to", to)]))
}

fn probes(metrics: &Metrics, tool: &str) -> [f64; 3] {
    ["success", "failure", "abandoned"].map(|result| {
        metrics.value("sortie_circuit_probes_total", &[("tool", tool), ("result", result)])
    })
}

async fn fails(gateway: &Gateway, tool: &str) {
    gateway.call(tool, json!({})).await.failed("http_status", None, "answered");
}

#[tokio::test]
async fn five_failures_in_a_row_open_the_circuit_of_that_tool_alone() {
    let world = World::plain().await;
    world.upstream.default(Script::responding(|request| {
        answer(if request.line().contains("/ill") { 500 } else { 200 }, "text/plain", "")
    }));
    let gateway = guarded(&world).tool(world.tool("ill")).tool(world.tool("well")).start().await;
    assert_eq!(state(&gateway.metrics().await, "ill"), "closed");
    for _ in 0..5 {
        fails(&gateway, "ill").await;
    }
    let outcome = gateway.call("ill", json!({})).await;
    outcome.refused("circuit_open", None);
    let text = outcome.model_text();
    assert!(
        text.starts_with("The tool has been failing and is paused; try again in ")
            && text.ends_with(" s."),
        "{text}"
    );
    let wait = outcome.at("/error/retry_after_ms").as_u64().expect("a wait");
    assert!((1000..=30_000).contains(&wait) && wait % 1000 == 0, "{wait}");
    assert_eq!(outcome.at("/error/retryable"), json!(true));
    assert_eq!(world.upstream.requests().len(), 5);
    gateway.call("well", json!({})).await.succeeded();
    let metrics = gateway.metrics().await;
    assert_eq!((state(&metrics, "ill"), state(&metrics, "well")), ("open", "closed"));
    assert_eq!(transitions(&metrics, "ill"), [1.0, 0.0, 0.0]);
    assert_eq!(transitions(&metrics, "well"), [0.0; 3]);
    let labels = [("tool", "ill"), ("code", "circuit_open"), ("fault", "upstream")];
    assert_eq!(metrics.value("sortie_calls_total", &labels), 1.0);
    gateway.finish().await;
}

#[tokio::test]
async fn f157_one_probe_runs_while_fifty_calls_want_to() {
    let world = World::plain().await;
    let go = Signal::new();
    let fine = answer(200, "text/plain", "fine");
    world.upstream.next(Script::once(answer(500, "", "")));
    world.upstream.default(Script::new().forever(Script::new().request().wait(&go).send(fine)));
    let gateway = world.config().tool(quick(&world, "ill")).start().await;
    fails(&gateway, "ill").await;
    let callers = (0..50).map(|_| async {
        loop {
            let outcome = gateway.call("ill", json!({})).await;
            if outcome.at("/status") == "succeeded" {
                return;
            }
            outcome.refused("circuit_open", None);
        }
    });
    let refused = |metrics: &Metrics| {
        metrics.value("sortie_calls_total", &[("tool", "ill"), ("code", "circuit_open")])
    };
    let watch = async {
        world.upstream.wait_for_requests(2).await;
        let before = gateway.metrics().await;
        assert_eq!(state(&before, "ill"), "half_open");
        // Each of the other callers comes at least once more meanwhile.
        poll("the others to be refused", || async {
            (refused(&gateway.metrics().await) >= refused(&before) + 100.0).then_some(())
        })
        .await;
        assert_eq!(world.upstream.requests().len(), 2, "one probe, nothing else");
        go.fire();
    };
    tokio::join!(together(callers), watch);
    let metrics = gateway.metrics().await;
    assert_eq!(state(&metrics, "ill"), "closed");
    assert_eq!(transitions(&metrics, "ill"), [1.0; 3]);
    assert_eq!(probes(&metrics, "ill"), [1.0, 0.0, 0.0]);
    assert_eq!(world.upstream.requests().len(), 51);
    gateway.finish().await;
}

#[tokio::test]
async fn a_probe_that_fails_opens_it_again_and_is_not_repeated() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(500, "", "")));
    let tool = quick(&world, "ill").profile("bare-v1");
    let gateway = world.config().tool(tool).start().await;
    // The first call is tried three times: it counts once.
    fails(&gateway, "ill").await;
    assert_eq!(world.upstream.requests().len(), 3);
    let probe = poll("the probe", || async {
        let outcome = gateway.call("ill", json!({})).await;
        (outcome.at("/error/code") == "http_status").then_some(outcome)
    })
    .await;
    assert_eq!(probe.at("/attempts").as_array().map(Vec::len), Some(1));
    let metrics = gateway.metrics().await;
    assert_eq!(state(&metrics, "ill"), "open");
    assert_eq!(transitions(&metrics, "ill"), [2.0, 1.0, 0.0]);
    assert_eq!(probes(&metrics, "ill"), [0.0, 1.0, 0.0]);
    assert_eq!(world.upstream.requests().len(), 4);
    gateway.finish().await;
}

#[tokio::test]
async fn a_tool_that_answers_is_alive_whatever_it_says() {
    let world = World::plain().await;
    let gateway = world.config().tool(quick(&world, "picky")).start().await;
    let image = answer(200, "image/png", "x");
    let moved = answer_with_headers(302, &[("Location", "https://elsewhere.example.com/")], "");
    for (script, code) in [
        (answer(400, "", ""), "http_status"),
        (answer(404, "", ""), "http_status"),
        (answer(429, "", ""), "http_status"),
        (image, "bad_body"),
        (moved, "redirect"),
    ] {
        world.upstream.next(Script::once(script));
        let outcome = gateway.call("picky", json!({})).await;
        assert_eq!(outcome.at("/error/code"), json!(code));
    }
    let metrics = gateway.metrics().await;
    assert_eq!((state(&metrics, "picky"), transitions(&metrics, "picky")), ("closed", [0.0; 3]));
    gateway.finish().await;
}

#[tokio::test]
async fn calls_that_are_called_off_or_hurried_say_nothing_about_the_tool() {
    let world = World::plain().await;
    let held = Signal::new();
    let answers = Answer::lines(&["A 10.0.0.5"]).held(&held);
    world.dns.script("slow.example.com", vec![answers]);
    let breaker = json!({"consecutive": 1});
    let gateway = world
        .config()
        .tool(Tool::new("slow", "https://slow.example.com/").set("breaker", breaker.clone()))
        .tool(quick(&world, "idle"))
        .set("/dns/timeout", json!("10s"))
        .start()
        .await;
    let mut runtime = RawClient::connect(gateway.api()).await;
    let body = json!({"tool": "slow", "arguments": {}, "call_id": "call_gone"}).to_string();
    runtime.write(&post("/v1/calls", Some(API_KEY), body)).await;
    poll("a question", || async {
        world.dns.questions().iter().any(|one| one.name == "slow.example.com.").then_some(())
    })
    .await;
    drop(runtime);
    assert_eq!(gateway.call_line("call_gone").await["code"], "cancelled");
    held.fire();
    // The name leads inside: it is refused, and that is the operator's doing.
    world.dns.set("slow.example.com", &["A 10.0.0.5"]);
    gateway.call("slow", json!({})).await.refused("blocked_host", Some("private"));
    world.upstream.next(Script::new().request().stall());
    let hurried = json!({"tool": "idle", "arguments": {}, "deadline_ms": 300});
    gateway.call_with(hurried).await.failed("timeout", Some("first_byte"), "unknown");
    let metrics = gateway.metrics().await;
    for tool in ["slow", "idle"] {
        assert_eq!((state(&metrics, tool), transitions(&metrics, tool)), ("closed", [0.0; 3]));
    }
    gateway.finish().await;
}

#[tokio::test]
async fn a_tool_that_is_gone_by_its_wire_format_is_not_called_for_an_hour() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(410, "", "")));
    let tool = |name: &str| {
        let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
        world.tool(name).secret(secret).profile("standard-webhooks")
    };
    let gateway = guarded(&world)
        .tool(tool("gone"))
        .tool(tool("never").set("breaker", json!("off")))
        .start()
        .await;
    fails(&gateway, "gone").await;
    let outcome = gateway.call("gone", json!({})).await;
    outcome.refused("circuit_open", None);
    let wait = outcome.at("/error/retry_after_ms").as_u64().expect("a wait");
    assert!((3_500_000..=3_600_000).contains(&wait), "{wait}");
    let metrics = gateway.metrics().await;
    assert_eq!((state(&metrics, "gone"), transitions(&metrics, "gone")), ("open", [1.0, 0.0, 0.0]));
    for _ in 0..2 {
        fails(&gateway, "never").await;
    }
    gateway.finish().await;
}
