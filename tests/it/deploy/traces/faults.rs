//! A collector that is gone, slow or unwilling costs spans, which are counted, and nothing else.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{COLLECTOR_KEY, traced};
use crate::support::config::ConfigBuilder;
use crate::support::deaf::{Deaf, Vacant};
use crate::support::gateway::Gateway;
use crate::support::script::{Script, Step, answer, answer_with_headers};
use crate::support::upstream::Upstream;
use crate::support::wait::poll;
use crate::support::world::World;

/// Longer than a call takes in any of these tests, and shorter than any wait for a collector.
const QUICK: Duration = Duration::from_secs(9);

async fn world() -> World {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "7")));
    world
}

/// A gateway's configuration that records every call.
fn recording(world: &World, endpoint: &str) -> ConfigBuilder {
    let config = world.config().tool(world.tool("lookup")).set("/tracing/otlp/sample", json!(1));
    traced(config, endpoint)
}

async fn spans(gateway: &Gateway, result: &str) -> f64 {
    gateway.metrics().await.value("sortie_trace_exports_total", &[("result", result)])
}

async fn wait_for(gateway: &Gateway, result: &str, count: f64) {
    poll(&format!("{count} spans {result}"), || async {
        (spans(gateway, result).await >= count).then_some(())
    })
    .await;
}

async fn calls(gateway: &Gateway, count: usize) {
    let begun = Instant::now();
    for _ in 0..count {
        assert_eq!(gateway.call("lookup", json!({})).await.succeeded(), json!(7));
    }
    assert!(begun.elapsed() < QUICK, "{:?}", begun.elapsed());
}

fn is_about_spans(line: &Value) -> bool {
    line["message"].as_str().is_some_and(|text| text.to_lowercase().contains("span"))
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).expect("a JSON line")
}

/// The operator's lines about exports, once there are so many.
async fn told(gateway: &Gateway, count: usize) -> Vec<Value> {
    poll(&format!("{count} lines about spans"), || async {
        let mut lines = gateway.log_lines();
        lines.retain(is_about_spans);
        (lines.len() >= count).then_some(lines)
    })
    .await
}

#[tokio::test]
async fn f162_a_collector_that_is_gone_is_told_of_once_and_costs_spans_alone() {
    let world = world().await;
    let vacant = Vacant::take();
    let gateway = recording(&world, &format!("http://{}", vacant.address())).start().await;
    calls(&gateway, 3).await;
    // A call, its attempt and the connection; the first has a lookup too.
    wait_for(&gateway, "failed", 8.0).await;
    calls(&gateway, 1).await;
    // A call and its attempt more.
    wait_for(&gateway, "failed", 10.0).await;
    assert_eq!((spans(&gateway, "sent").await, spans(&gateway, "dropped").await), (0.0, 0.0));
    let begun = Instant::now();
    let finished = gateway.finish().await;
    assert!(begun.elapsed() < QUICK, "{:?}", begun.elapsed());
    // Every line is there only now.
    let mut told = finished.stdout.lines().filter(|line| is_about_spans(&parsed(line)));
    let line = parsed(told.next().expect("a line"));
    assert_eq!(
        (&line["level"], &line["message"]),
        (&json!("WARN"), &json!("Spans cannot be exported."))
    );
    assert_eq!(told.next(), None);
}

#[tokio::test]
async fn f162_a_collector_that_does_not_answer_holds_up_neither_calls_nor_the_end() {
    let world = world().await;
    let deaf = Deaf::listen();
    let silent = Upstream::plain().await;
    silent.default(Script::new().request().then(Step::Hold));
    for address in [deaf.address(), silent.address()] {
        let endpoint = format!("http://{address}");
        let gateway = recording(&world, &endpoint).start().await;
        calls(&gateway, 3).await;
        let begun = Instant::now();
        gateway.finish().await;
        assert!(begun.elapsed() < QUICK, "{:?}", begun.elapsed());
    }
    // The spans were on their way.
    silent.wait_for_requests(1).await;
}

#[tokio::test]
async fn what_is_recorded_last_is_exported_before_the_end() {
    let world = world().await;
    let collector = Upstream::plain().await;
    collector.default(Script::always(answer(200, "application/x-protobuf", "")));
    let gateway = recording(&world, &format!("http://{}/otlp", collector.address())).start().await;
    calls(&gateway, 1).await;
    gateway.finish().await;
    collector.wait_for_requests(1).await;
    let sent = collector.only_request();
    assert_eq!(sent.line(), "POST /otlp HTTP/1.1");
    assert!(sent.body.windows(19).any(|part| part == b"execute_tool lookup"));
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_what_may_not_is_given_up_at_once() {
    let world = world().await;
    let collector = Upstream::plain().await;
    let ask_again = answer_with_headers(503, &[("Retry-After", "0")], "");
    collector.next(Script::once(ask_again));
    collector.default(Script::always(answer(200, "application/x-protobuf", "")));
    let config = recording(&world, &format!("http://{}", collector.address()))
        .file("secrets/otlp", COLLECTOR_KEY)
        .watch(COLLECTOR_KEY)
        .set(
            "/tracing/otlp/headers",
            json!({"Authorization": {"file": "secrets/otlp", "prefix": "Bearer "}}),
        );
    let gateway = config.start().await;
    calls(&gateway, 1).await;
    let requests = collector.wait_for_requests(2).await;
    assert_eq!(requests[0].body, requests[1].body, "the same spans");
    let key = format!("Bearer {COLLECTOR_KEY}");
    assert!(requests.iter().all(|one| one.header("Authorization") == Some(&key)));
    wait_for(&gateway, "sent", 4.0).await;
    let messages: Vec<_> =
        told(&gateway, 2).await.iter().map(|line| line["message"].clone()).collect();
    assert_eq!(messages, ["Spans cannot be exported.", "Spans are exported again."]);

    collector.next(Script::once(answer(400, "text/plain", "")));
    calls(&gateway, 1).await;
    wait_for(&gateway, "failed", 2.0).await;
    assert_eq!(collector.requests().len(), 3);
    gateway.finish().await;
}

#[tokio::test]
async fn what_a_collector_does_not_take_is_counted_with_its_words() {
    let world = world().await;
    let collector = Upstream::plain().await;
    // ExportTraceServiceResponse {partial_success {rejected_spans: 1, error_message: "quota"}}
    let partial = b"\x0a\x09\x08\x01\x12\x05quota";
    collector.default(Script::always(answer(200, "application/x-protobuf", partial)));
    let gateway = recording(&world, &format!("http://{}", collector.address())).start().await;
    calls(&gateway, 1).await;
    wait_for(&gateway, "failed", 1.0).await;
    assert_eq!(spans(&gateway, "sent").await, 3.0);
    let told = told(&gateway, 1).await;
    assert_eq!((&told[0]["refused"], &told[0]["reason"]), (&json!(1), &json!("quota")));
    gateway.finish().await;
}
