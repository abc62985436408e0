//! What a caller cannot swell, stain or hold up: series (row 159), log lines (160), scrapes (163).

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::faults::proof::Fault;
use crate::support::config::API_KEY;
use crate::support::http::{RawClient, exchange, get, post, request};
use crate::support::metrics::Metrics;
use crate::support::script::{Script, answer};
use crate::support::wait::{Signal, poll, together};
use crate::support::world::World;

fn ok() -> Vec<u8> {
    answer(200, "application/json", "1")
}

/// The same request without the wish to close.
fn kept(request: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(request).expect("a request of text");
    text.replace("Connection: close\r\n", "").into_bytes()
}

/// The names of all series, with their labels.
fn series(metrics: &Metrics) -> Vec<String> {
    let lines = metrics.text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect()
}

#[tokio::test]
async fn f159_names_and_texts_from_outside_make_no_series() {
    const NAMES: usize = 2_500;
    let world = World::plain().await;
    world.upstream.default(Script::always(ok()));
    let gateway = world.gateway(world.tool("x")).await;
    let body = |tool: String, n: usize| {
        json!({
            "tool": tool, "arguments": {}, "run_id": format!("run_{n}"), "step": n.to_string(),
            "agent_id": format!("agent{n}"), "session_id": format!("session{n}"),
            "end_user": {"id": format!("person{n}")},
        })
        .to_string()
    };
    // One of each kind first: what comes once is there.
    let kinds = |n: usize| {
        [
            kept(&post("/v1/calls", Some(API_KEY), body(format!("tool{n}"), n))),
            kept(&post("/v1/calls", Some(&format!("key{n}")), body("x".to_owned(), n))),
            kept(&post(&format!("/v1/{n}"), Some(API_KEY), "{}")),
            kept(request("PUT", "/v1/calls", None, "").as_bytes()),
        ]
    };
    let mut client = RawClient::connect(gateway.api()).await;
    for request in kinds(0) {
        client.write(&request).await;
        client.read_reply().await;
    }
    world.upstream.next(Script::once("HTTP/1.1 599 Odd Reason 0\r\nContent-Length: 0\r\n\r\n"));
    gateway.call("x", json!({})).await.failed("http_status", None, "answered");
    let (before, first) = (gateway.metrics().await, series(&gateway.metrics().await));

    let unknown = [("tool", "_unknown"), ("code", "unknown_tool")];
    for n in 1..=NAMES {
        let statuses = [200, 401, 404, 405];
        for (request, status) in kinds(n).iter().zip(statuses) {
            client.write(request).await;
            assert_eq!(client.read_reply().await.status, status);
        }
    }
    for n in 1..10 {
        let head = format!("HTTP/1.1 {} Reason {n}\r\nContent-Length: 0\r\n\r\n", 590 + n);
        world.upstream.next(Script::once(head));
        gateway.call("x", json!({})).await.failed("http_status", None, "answered");
    }
    let now = gateway.metrics().await;
    assert_eq!(series(&now), first);
    let counted = |metrics: &Metrics| metrics.value("sortie_calls_total", &unknown);
    assert_eq!(counted(&now) - counted(&before), NAMES as f64);
    gateway.finish().await;
}

/// Texts that would be a line of their own, colour a terminal, end a string, or fill a disk.
fn odd_texts() -> Vec<String> {
    let odd = [
        "\n",
        "\r\n",
        "\u{1b}[31m",
        "\u{2028}",
        "\u{2029}",
        "\u{85}",
        "\u{7f}",
        "\0",
        "\u{202e}",
        "\"}",
        "\\",
    ];
    let forged = r#"{"stream":"call"}"#;
    let mut texts: Vec<_> = odd.iter().map(|odd| format!("a{odd}{forged}")).collect();
    texts.push("x".repeat(900_000));
    texts
}

const FIELDS: [&str; 11] = [
    "/tool",
    "/call_id",
    "/run_id",
    "/step",
    "/agent_id",
    "/session_id",
    "/turn_id",
    "/model_call_id",
    "/end_user/id",
    "/end_user/external_id",
    "/arguments/text",
];

#[tokio::test]
async fn f160_each_event_is_one_json_line_whatever_stands_in_it() {
    let world = World::plain().await;
    world.upstream.default(Script::always(ok()));
    let config = world.config().set("/logging/level", json!("trace"));
    let gateway = config.tool(world.tool("x")).start().await;
    let mut taken = Vec::new();
    for text in odd_texts() {
        for field in FIELDS {
            let mut body = json!({
                "tool": "x", "arguments": {}, "run_id": "run_1", "step": gateway.next_step(), "end_user": {},
            });
            let (place, name) = field.rsplit_once('/').expect("a pointer");
            body.pointer_mut(place).expect("a place")[name] = json!(text);
            let reply = gateway.post(Some(API_KEY), body.to_string()).await;
            match reply.status {
                200 => taken.push(reply.json()["id"].clone()),
                400 => {}
                other => panic!("{other}: {}", reply.text()),
            }
        }
        // What a server says of itself.
        let line = text.replace(['\n', '\r'], "");
        let line: String = line.chars().take(3000).collect();
        let head = format!("HTTP/1.1 503 {line}\r\nX-Odd: {line}\r\nContent-Length: 0\r\n\r\n");
        world.upstream.next(Script::once(head));
        taken.push(gateway.call("x", json!({})).await.at("/id"));
    }
    let calls = gateway.call_lines().await;
    let ids: Vec<_> = taken.iter().map(|id| id.as_str().expect("an id")).collect();
    assert_eq!(calls.len(), ids.len());
    assert!(ids.iter().all(|id| calls[*id].len() == 1));
    let odd = |c: char| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c);
    for line in gateway.texts() {
        assert!(line.len() < 4096 && !line.contains(odd), "{line:?}");
        serde_json::from_str::<Value>(&line).expect("one whole JSON value");
    }
    let finished = gateway.finish().await;
    assert!(finished.stderr.is_empty(), "{finished:#?}");
}

#[tokio::test]
async fn f163_a_hundred_scrapes_and_one_that_does_not_read_hold_up_no_call() {
    let world = World::tls().await;
    let go = Signal::new();
    world.upstream.default(Script::always(ok()));
    let gateway = world.gateway(world.tool("x")).await;
    world.upstream.next(Script::new().request().wait(&go).send(ok()));
    // Scrapes that ask again and again and read nothing: what they have asked for does not fit into their sockets.
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut client = RawClient::connect(gateway.telemetry()).await;
        client.write(&kept(&get("/metrics")).repeat(200)).await;
        slow.push(client);
    }
    let waiting = gateway.open_call("x", "call_waiting1", json!({"run_id": "run_1", "step": "w"}));
    let mut waiting = waiting.await;
    world.upstream.wait_for_requests(1).await;
    let scrape = get("/metrics");
    let scrapes = together((0..100).map(|_| exchange(gateway.telemetry(), &scrape)));
    let calls = together((0..100).map(|_| gateway.call("x", json!({}))));
    let (scrapes, calls) = tokio::join!(scrapes, calls);
    for scrape in scrapes {
        assert_eq!(scrape.status, 200);
        assert_eq!(Metrics::parse(scrape.text()).value("sortie_draining", &[]), 0.0);
    }
    calls.iter().for_each(|call| assert_eq!(call.succeeded(), json!(1)));
    go.fire();
    assert_eq!(waiting.read_reply().await.json()["status"], "succeeded");
    drop(slow);
    Fault::of(&world, "x").kept(8).holds(&gateway).await;
    gateway.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f155_probes_are_answered_while_arguments_are_judged() {
    const CALLS: usize = 24;
    let world = World::tls().await;
    // Each number is compared with every alternative before the last one takes it.
    let mut one_of: Vec<_> = (0..200).map(|n| json!({"const": format!("no {n}")})).collect();
    one_of.push(json!({"type": "integer"}));
    let schema = json!({
        "type": "object",
        "properties": {"xs": {"type": "array", "items": {"anyOf": one_of}}},
    });
    let tool = world.tool("costly").profile("bare-v1").parameters(schema);
    let gateway = world.gateway(tool).await;
    let mut costly = json!({"xs": vec![1; 10_000]});
    costly["xs"].as_array_mut().expect("a list").push(json!("misfit"));
    let ended = AtomicUsize::new(0);
    let calls = together((0..CALLS).map(|_| async {
        let outcome = gateway.call("costly", costly.clone()).await;
        ended.fetch_add(1, Ordering::AcqRel);
        outcome
    }));
    let probes = async {
        poll("calls to run", || async {
            (gateway.metrics().await.value("sortie_calls_in_flight", &[]) > 2.0).then_some(())
        })
        .await;
        for _ in 0..5 {
            assert_eq!(gateway.probe("/livez").await.status, 200);
        }
        ended.load(Ordering::Acquire)
    };
    let (outcomes, ended) = tokio::join!(calls, probes);
    assert!(ended < CALLS, "the probes waited for all of the calls");
    outcomes.iter().for_each(|outcome| outcome.refused("invalid_arguments", None));
    gateway.finish().await;
}
