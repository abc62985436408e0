//! What a tool is told of a trace, and what becomes of a caller's header.

use serde_json::{Value, json};

use super::{PARENT, TRACE, call_within, header, traced, traceparent};
use crate::deploy::traces::collector::{Collector, Span};
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::http::request;
use crate::support::script::{Script, answer};
use crate::support::wait::poll;
use crate::support::world::World;

const APPROVER: &str = "sk-approver-Hs6Wq2NvZr9Tb4Kx";

/// A world with a tool that is told the trace, and one that is not.
async fn world() -> (World, ConfigBuilder) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "7")));
    let told = world.tool("told").set("forward_trace", json!(true));
    let config = world.config().tool(told).tool(world.tool("untold"));
    (world, config)
}

async fn call(gateway: &Gateway, tool: &str, lines: &[String]) -> Outcome {
    let outcome = call_within(gateway, lines, json!({"tool": tool, "arguments": {}})).await;
    outcome.succeeded();
    outcome
}

#[tokio::test]
async fn a_tool_that_is_told_the_trace_goes_on_from_the_attempt() {
    let Some(collector) = Collector::plain().await else { return };
    let (world, config) = world().await;
    let gateway = traced(config, &collector.url("127.0.0.1")).start().await;
    let sampled = header(&traceparent("01"));
    call(&gateway, "untold", std::slice::from_ref(&sampled)).await;
    call(&gateway, "told", &[sampled]).await;
    let spans = collector.trace(TRACE, 7).await;
    let last = spans.iter().rev().find(|span| span.text("name") == "attempt").expect("one");
    let requests = world.upstream.requests();
    assert_eq!(requests[0].header("traceparent"), None);
    let expected = format!("00-{TRACE}-{}-01", last.text("id"));
    assert_eq!(requests[1].header("traceparent"), Some(expected.as_str()));
    let spelled = requests[1].headers().iter().any(|(name, _)| *name == "traceparent");
    assert!(spelled, "in lower case: {}", requests[1].head);
    gateway.finish().await;
}

#[tokio::test]
async fn a_trace_that_is_not_recorded_is_passed_on_as_it_came() {
    let (world, config) = world().await;
    // No spans are made at all, and the caller's decision is not ours.
    let gateway = config.start().await;
    for flags in ["01", "00"] {
        let outcome = call(&gateway, "told", &[header(&traceparent(flags))]).await;
        assert_eq!(outcome.at("/trace_id"), TRACE);
    }
    let outcome = call(&gateway, "told", &[]).await;
    assert_eq!(outcome.at("/trace_id"), Value::Null);
    let told: Vec<_> = world.upstream.requests();
    let told: Vec<_> = told.iter().map(|one| one.header("traceparent")).collect();
    let [sampled, not] = ["01", "00"].map(traceparent);
    assert_eq!(told, [Some(sampled.as_str()), Some(not.as_str()), None]);
    gateway.finish().await;
}

#[tokio::test]
async fn what_is_no_traceparent_is_left_out() {
    let (world, config) = world().await;
    let gateway = config.start().await;
    let good = traceparent("01");
    let upper = good.to_uppercase();
    let zeros = format!("00-{}-{PARENT}-01", "0".repeat(32));
    for lines in [
        vec![header("nonsense")],
        vec![header(&upper)],
        vec![header(&zeros)],
        vec![header(&format!("{good}-more"))],
        vec![header(&good), header(&good)],
        vec![header("\u{e9}")],
    ] {
        let outcome = call(&gateway, "told", &lines).await;
        assert_eq!(outcome.at("/trace_id"), Value::Null, "{lines:?}");
    }
    assert!(world.upstream.requests().iter().all(|one| one.header("traceparent").is_none()));
    gateway.finish().await;
}

#[tokio::test]
async fn the_calls_of_a_batch_are_in_one_trace() {
    let Some(collector) = Collector::plain().await else { return };
    let (_world, config) = world().await;
    let gateway = traced(config, &collector.url("127.0.0.1")).start().await;
    let one = |at: u32| json!({"tool": "told", "arguments": {}, "run_id": "r", "step": "1", "call_index": at});
    let body = json!({"calls": [one(0), one(1)]}).to_string();
    let ask = format!(
        "POST /v1/calls/batch HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {API_KEY}\r\ntraceparent: {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        traceparent("01"),
        body.len()
    );
    let reply = gateway.send(ask.as_bytes()).await.json();
    assert_eq!(
        (&reply["calls"][0]["trace_id"], &reply["calls"][1]["trace_id"]),
        (&json!(TRACE), &json!(TRACE))
    );
    let roots = |spans: &[Span]| {
        let is_root = |span: &&Span| span.text("name") == "execute_tool told";
        spans.iter().filter(is_root).cloned().collect::<Vec<_>>()
    };
    let spans = collector.trace_when(TRACE, |spans| roots(spans).len() == 2).await;
    assert!(roots(&spans).iter().all(|span| span.text("parent") == PARENT), "{spans:#?}");
    gateway.finish().await;
}

#[tokio::test]
async fn a_call_that_waited_for_a_person_runs_in_the_trace_that_it_was_asked_in() {
    let Some(collector) = Collector::plain().await else { return };
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "7")));
    let refund = world.tool("refund").set("policy", json!("require_approval"));
    let approver = json!({"scopes": ["agent:approve"]});
    let config = world.config().tool(refund).set("/storage", json!({"url": "sqlite:calls.db"}));
    let config = traced(config.key("approver", APPROVER, approver), &collector.url("127.0.0.1"));
    let mut gateway = config.start().await;
    let body = json!({"tool": "refund", "arguments": {}});
    let waiting = call_within(&gateway, &[header(&traceparent("01"))], body).await;
    assert_eq!(
        (waiting.at("/status"), waiting.at("/trace_id")),
        (json!("waiting_approval"), json!(TRACE))
    );
    // What is kept of it outlives the process.
    gateway.kill_and_start().await;
    let id = waiting.at("/approval/id");
    let path = format!("/v1/approvals/{}/approve", id.as_str().expect("an approval"));
    let body = json!({"arguments_digest": waiting.at("/approval/arguments_digest")}).to_string();
    let reply = gateway.send(request("POST", &path, Some(APPROVER), &body).as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let path = format!("/v1/calls/{}", waiting.id());
    let ended = poll("the end of the call", || async {
        let reply = gateway.send(request("GET", &path, Some(API_KEY), "").as_bytes()).await;
        let outcome = Outcome(reply);
        (outcome.at("/status") == "succeeded").then_some(outcome)
    });
    assert_eq!(ended.await.at("/trace_id"), TRACE);
    let spans = collector.trace(TRACE, 4).await;
    assert_eq!((spans[0].text("name"), spans[0].text("parent")), ("execute_tool refund", PARENT));
    gateway.finish().await;
}
