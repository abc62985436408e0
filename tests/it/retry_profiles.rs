//! What the shipped profiles repeat, and what every repeat carries: the same body and key, and a fresh signature.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::config::{SECRET, Tool};
use crate::support::fleet::Fleet;
use crate::support::receiver::verify;
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::wait::{Log, together};
use crate::support::world::World;

/// A secret that the Standard Webhooks scheme takes.
const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What a server does with each of its connections.
#[derive(Clone, Copy)]
enum Does {
    Reset,
    Close,
    Answer(u16),
}

impl Does {
    fn script(self) -> Script {
        match self {
            Self::Reset => Script::new().request().reset(),
            Self::Close => Script::new().request().fin(),
            Self::Answer(status) => Script::once(answer(status, "application/json", r#"{"x":1}"#)),
        }
    }
}

/// The server does this in turn, the last for ever; so many requests arrive, and the call has this code.
type Row = (&'static str, &'static [Does], usize, &'static str);

async fn check(profile: &str, rows: &[Row]) {
    let mut fleet = Fleet::new().await;
    let mut servers = Vec::new();
    for (name, turns, ..) in rows {
        let last = turns.last().expect("one turn at least").script();
        let shape = |tool: Tool| match profile {
            "standard-webhooks" => tool.profile(profile).secret(WEBHOOK_SECRET),
            "plain-v1" => tool.profile(profile).no_secret(),
            _ => tool.profile(profile),
        };
        let (next, upstream) = fleet.plain(name, last, shape).await;
        for turn in *turns {
            upstream.next(turn.script());
        }
        servers.push(upstream);
        fleet = next;
    }
    let gateway = fleet.config.start().await;
    let outcomes = together(rows.iter().map(|row| gateway.call(row.0, json!({"n": 1})))).await;
    for ((row, outcome), server) in rows.iter().zip(&outcomes).zip(&servers) {
        let (name, _, requests, code) = row;
        let found = outcome.at("/error/code").as_str().unwrap_or("ok").to_owned();
        assert_eq!((found.as_str(), server.requests().len()), (*code, *requests), "{name}");
        assert_eq!(
            outcome.at("/attempts").as_array().expect("attempts").len(),
            *requests,
            "{name}"
        );
        if *code == "ok" {
            assert_eq!(outcome.succeeded(), json!({"x": 1}), "{name}");
        }
    }
    gateway.finish().await;
}

#[tokio::test]
async fn bare_v1_repeats_network_errors_and_every_5xx_twice_and_nothing_else() {
    use Does::{Answer, Close, Reset};
    let rows: [Row; 16] = [
        ("resets_then_answers", &[Reset, Reset, Answer(200)], 3, "ok"),
        ("resets", &[Reset], 3, "network_error"),
        ("closes_once", &[Close, Answer(200)], 2, "ok"),
        ("s503_then_answers", &[Answer(503), Answer(503), Answer(200)], 3, "ok"),
        ("s500", &[Answer(500)], 3, "http_status"),
        ("s501", &[Answer(501)], 3, "http_status"),
        ("s503", &[Answer(503)], 3, "http_status"),
        ("s505", &[Answer(505)], 3, "http_status"),
        ("s599", &[Answer(599)], 3, "http_status"),
        ("s301", &[Answer(301)], 1, "redirect"),
        ("s400", &[Answer(400)], 1, "http_status"),
        ("s404", &[Answer(404)], 1, "http_status"),
        ("s408", &[Answer(408)], 1, "http_status"),
        ("s409", &[Answer(409)], 1, "http_status"),
        ("s425", &[Answer(425)], 1, "http_status"),
        ("s429", &[Answer(429)], 1, "http_status"),
    ];
    check("bare-v1", &rows).await;
}

#[tokio::test]
async fn standard_webhooks_repeats_what_asks_for_it_too() {
    use Does::{Answer, Reset};
    let rows: [Row; 8] = [
        ("resets", &[Reset, Reset, Answer(200)], 3, "ok"),
        ("s408", &[Answer(408)], 3, "http_status"),
        ("s425", &[Answer(425), Answer(200)], 2, "ok"),
        ("s429", &[Answer(429)], 3, "http_status"),
        ("s500", &[Answer(500)], 3, "http_status"),
        ("s501", &[Answer(501)], 1, "http_status"),
        ("s505", &[Answer(505)], 1, "http_status"),
        ("s409", &[Answer(409)], 1, "http_status"),
    ];
    check("standard-webhooks", &rows).await;
}

#[tokio::test]
async fn envelope_v1_and_plain_v1_ask_once() {
    use Does::{Answer, Reset};
    let rows: [Row; 3] = [
        ("resets", &[Reset], 1, "network_error"),
        ("s429", &[Answer(429)], 1, "http_status"),
        ("s503", &[Answer(503)], 1, "http_status"),
    ];
    check("envelope-v1", &rows).await;
    check("plain-v1", &rows).await;
}

#[tokio::test]
async fn f129_each_attempt_carries_the_same_body_and_key_and_a_signature_of_its_own_moment() {
    let world = World::tls().await;
    let arrivals = Arc::new(Log::new());
    let noted = Arc::clone(&arrivals);
    // The server asks for a second each time, so that the moments of signing must differ.
    let respond = move |_: &_| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let status = if noted.push(now) == 2 { 200 } else { 503 };
        let text =
            format!("HTTP/1.1 {status} Said\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{{}}");
        text.into_bytes()
    };
    world.upstream.default(Script::responding(respond));
    let shape = json!({"type": "object", "properties": {"n": {"type": "number"}}});
    let tool = world.tool("orders.ship").profile("bare-v1").parameters(shape);
    let gateway = world.gateway(tool).await;

    let body = r#"{"tool": "orders.ship", "arguments": {"n": 1e2, "x": 12345678901234567890}, "run_id": "run_1", "step": "3"}"#;
    let key = Some(crate::support::config::API_KEY);
    let outcome = crate::support::gateway::Outcome(gateway.post(key, body).await);

    assert_eq!(outcome.succeeded(), json!({}));
    let requests = world.upstream.requests();
    assert_eq!(requests.len(), 3);
    let keys: BTreeSet<_> = requests.iter().map(|one| one.header("Idempotency-Key")).collect();
    assert_eq!(keys, BTreeSet::from([outcome.at("/idempotency_key").as_str()]), "{requests:#?}");
    let mut seconds = BTreeSet::new();
    for (request, arrived) in requests.iter().zip(arrivals.all()) {
        assert_eq!(request.body, br#"{"n":1e2,"x":12345678901234567890}"#);
        let t = verify(request, "CL-Signature", SECRET);
        assert!((arrived - t as f64) < 2.0, "t {t} of a request that came at {arrived}");
        seconds.insert(t);
    }
    assert_eq!(seconds.len(), 3, "each attempt has a t of its own: {seconds:?}");
    // A kept connection serves a repeat: after a whole answer it is as good as any.
    assert_eq!(world.upstream.connections().len(), 1);
    let statuses: Vec<Value> =
        (0..3).map(|n| outcome.at(&format!("/attempts/{n}/status"))).collect();
    assert_eq!(statuses, [503, 503, 200]);
    gateway.finish().await;
}

#[tokio::test]
async fn the_key_follows_from_run_step_and_index_alone() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "1")));
    let tool = || world.tool("keyed").profile("bare-v1");
    let (first, second) = (world.gateway(tool()).await, world.gateway(tool()).await);
    let call = |run: &str, step: &str, index: u32| json!({"tool": "keyed", "arguments": {}, "run_id": run, "step": step, "call_index": index});
    first.call_with(call("run_a", "1", 0)).await.succeeded();
    second.call_with(call("run_a", "1", 0)).await.succeeded();
    second.call_with(call("run_b", "1", 0)).await.succeeded();
    second.call_with(call("run_a", "2", 0)).await.succeeded();
    second.call_with(call("run_a", "1", 1)).await.succeeded();
    let keys = sent_keys(&world.upstream);
    assert_eq!(keys[0], keys[1], "two gateways make the same key");
    assert_eq!(BTreeSet::from_iter(&keys[1..]).len(), 4, "{keys:?}");
    for key in &keys {
        assert!(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    }
    first.finish().await;
    second.finish().await;
}

fn sent_keys(upstream: &Upstream) -> Vec<String> {
    let key = |header: Option<&str>| header.expect("a key").to_owned();
    upstream.requests().iter().map(|one| key(one.header("Idempotency-Key"))).collect()
}
