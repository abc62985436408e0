//! A tool that asks to be left alone for a while is, by every caller.

use serde_json::{Value, json};

use super::{counted, refused};
use crate::support::config::Tool;
use crate::support::fleet::{Fleet, eager_profile};
use crate::support::gateway::Outcome;
use crate::support::script::{Script, answer, answer_with_headers};
use crate::support::wait::{Signal, poll};
use crate::support::world::World;

const PAUSED: &str = "The tool asked for a pause;";

fn busy(status: u16, retry_after: &str) -> Script {
    Script::once(answer_with_headers(status, &[("Retry-After", retry_after)], ""))
}

#[tokio::test]
async fn a_wait_that_the_tool_asks_for_pauses_it_for_every_caller() {
    let mut fleet = Fleet::new().await;
    let mut servers = Vec::new();
    for (name, status, retry_after) in
        [("busy", 429, "600"), ("down", 503, "600"), ("gone", 503, "86400"), ("other", 500, "600")]
    {
        let (next, server) = fleet.plain(name, busy(status, retry_after), |tool| tool).await;
        fleet = next;
        servers.push(server);
    }
    let gateway = fleet.config.start().await;
    for (name, most) in [("busy", 600), ("down", 600), ("gone", 3600)] {
        assert_eq!(counted(&gateway, name, "pause").await, 0.0);
        gateway.call(name, json!({})).await.failed("http_status", None, "answered");
        refused(&gateway.call(name, json!({})).await, "rate_limited", PAUSED, most);
        assert_eq!(counted(&gateway, name, "pause").await, 1.0, "{name}");
    }
    // Another status asks for nothing.
    for _ in 0..2 {
        gateway.call("other", json!({})).await.failed("http_status", None, "answered");
    }
    let requests: Vec<_> = servers.iter().map(|server| server.requests().len()).collect();
    assert_eq!(requests, [1, 1, 1, 2]);
    gateway.finish().await;
}

#[tokio::test]
async fn a_pause_ends() {
    let world = World::plain().await;
    world.upstream.next(busy(429, "1")).default(Script::always(answer(200, "text/plain", "fine")));
    let gateway = world.gateway(world.tool("busy")).await;
    gateway.call("busy", json!({})).await.failed("http_status", None, "answered");
    refused(&gateway.call("busy", json!({})).await, "rate_limited", PAUSED, 1);
    poll("the end of the pause", || async {
        let outcome = gateway.call("busy", json!({})).await;
        (outcome.at("/status") == "succeeded").then_some(())
    })
    .await;
    gateway.finish().await;
}

/// Unix milliseconds of an attempt's beginning and end.
fn times(outcome: &Outcome, attempt: usize) -> (i64, i64) {
    let of = |field: &str| outcome.at(&format!("/attempts/{attempt}/{field}"));
    let at = of("at").as_str().expect("a time").parse::<jiff::Timestamp>().expect("RFC 3339");
    let began = at.as_millisecond();
    (began, began + of("duration_ms").as_i64().expect("a duration"))
}

#[tokio::test]
async fn a_call_that_runs_waits_for_the_pause_before_it_tries_again() {
    let asked = Signal::new();
    let broken = Script::new().request().wait(&asked).send(answer(500, "", ""));
    // The server closes after each answer: of two calls at once, one must not be given the other's connection meanwhile.
    let fleet = Fleet::new().await.configure(|config| {
        config
            .set("/profiles", json!([eager_profile("eager-key", true)]))
            .set("/egress/pool", json!({"reuse": "never"}))
    });
    let shape = |tool: Tool| tool.no_secret().profile("eager-key");
    let fine = Script::once(answer(200, "text/plain", "fine"));
    let (fleet, server) = fleet.plain("busy", fine, shape).await;
    server.next(broken).next(busy(429, "2"));
    let gateway = fleet.config.start().await;
    let first = gateway.call("busy", json!({}));
    let second = async {
        server.wait_for_requests(1).await;
        gateway.call("busy", json!({})).await
    };
    let third = async {
        server.wait_for_requests(2).await;
        poll("the pause", || async {
            let outcome = gateway.call("busy", json!({})).await;
            (outcome.at("/error/code") == "rate_limited").then_some(())
        })
        .await;
        asked.fire();
    };
    let (first, second, ()) = tokio::join!(first, second, third);
    for outcome in [&first, &second] {
        outcome.succeeded();
        let statuses = outcome.at("/attempts");
        assert_eq!(statuses.as_array().map(Vec::len), Some(2), "{statuses}");
    }
    assert_eq!(first.at("/attempts/0/status"), json!(500));
    let (_, told) = times(&second, 0);
    let (again, _) = times(&first, 1);
    // Times are cut to milliseconds.
    assert!(again >= told + 1990, "{} ms after it was asked to wait", again - told);
    assert_eq!(second.at("/error"), Value::Null);
    gateway.finish().await;
}
