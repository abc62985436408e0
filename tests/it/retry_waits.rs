//! How long a retry waits: the backoff, what Retry-After asks for, and the deadline that bounds it all.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::config::Tool;
use crate::support::fleet::{Fleet, eager_profile};
use crate::support::gateway::Outcome;
use crate::support::script::{Script, answer, answer_with_headers, head};
use crate::support::upstream::Upstream;
use crate::support::wait::together;
use crate::support::world::World;

/// The milliseconds between the end of each attempt and the start of the next.
fn waits(outcome: &Outcome) -> Vec<f64> {
    let attempts = outcome.at("/attempts");
    let attempts = attempts.as_array().expect("attempts");
    let began = |attempt: &Value| {
        let at = attempt["at"].as_str().expect("a time");
        at.parse::<jiff::Timestamp>().expect("RFC 3339").as_millisecond() as f64
    };
    let took = |attempt: &Value| attempt["duration_ms"].as_f64().expect("a duration");
    attempts.windows(2).map(|two| began(&two[1]) - began(&two[0]) - took(&two[0])).collect()
}

fn eager(tool: Tool) -> Tool {
    tool.no_secret().profile("eager-key")
}

async fn fleet() -> Fleet {
    let profile = json!([eager_profile("eager-key", true)]);
    Fleet::new().await.configure(|config| config.set("/profiles", profile))
}

#[tokio::test]
async fn the_wait_doubles_and_half_of_it_is_random() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut fleet = fleet().await;
    let mut servers = Vec::new();
    for name in names {
        let (next, server) = fleet.plain(name, Script::once(answer(500, "", "")), eager).await;
        fleet = next;
        servers.push(server);
    }
    let gateway = fleet.config.start().await;
    let outcomes = together(names.map(|name| gateway.call(name, json!({})))).await;
    let mut firsts = Vec::new();
    for outcome in &outcomes {
        let waits = waits(outcome);
        // Times are cut to milliseconds; a busy machine may add to a wait and never takes from it.
        assert!(waits[0] >= 248.0 && waits[1] >= 498.0, "{waits:?}");
        assert!(waits[0] < 500.0 + 1000.0 && waits[1] < 1000.0 + 1000.0, "{waits:?}");
        firsts.push(waits[0] as u64);
    }
    firsts.sort_unstable();
    assert!(firsts.first() != firsts.last(), "no two waits differ: {firsts:?}");
    gateway.finish().await;
}

/// One value of Retry-After on a 503: the requests that arrive, the least wait, and `retry_after_ms` of the outcome.
struct After {
    name: &'static str,
    headers: Vec<(&'static str, String)>,
    requests: usize,
    least: f64,
    told: Option<std::ops::RangeInclusive<u64>>,
}

fn after(name: &'static str, value: &str, requests: usize, least: f64) -> After {
    After { name, headers: vec![("Retry-After", value.to_owned())], requests, least, told: None }
}

#[tokio::test]
async fn retry_after_is_waited_for_where_it_fits_and_told_where_it_does_not() {
    let date = |seconds| httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds));
    let two = vec![("Retry-After", "1".to_owned()), ("Retry-After", "86400".to_owned())];
    let rows = [
        After { told: Some(1000..=1000), ..after("second", "1", 3, 998.0) },
        // A date has no fractions of a second: two seconds ahead may be hardly more than one.
        After { told: Some(0..=3000), ..after("date", &date(3), 3, 0.0) },
        After { told: Some(0..=0), ..after("past", "Sun, 06 Nov 1994 08:49:37 GMT", 3, 248.0) },
        After { told: Some(0..=0), ..after("zero", "0", 3, 248.0) },
        After { headers: two, told: Some(1000..=1000), ..after("first_counts", "", 3, 998.0) },
        After { told: Some(86_400_000..=86_400_000), ..after("day", "86400", 1, 0.0) },
        After { told: Some(3_500_000..=3_600_000), ..after("hour", &date(3600), 1, 0.0) },
        // What is no wait is none: the tool is idempotent, so that it is asked again in our own time.
        after("negative", "-1", 3, 248.0),
        after("plus", "+3", 3, 248.0),
        after("fraction", "1.5", 3, 248.0),
        after("infinite", "inf", 3, 248.0),
        after("exponent", "1e300", 3, 248.0),
        after("digits", "99999999999999999999", 3, 248.0),
        after("empty", "", 3, 248.0),
    ];
    let mut fleet = fleet().await;
    let mut servers = Vec::new();
    for row in &rows {
        let headers: Vec<_> =
            row.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let script = Script::once(answer_with_headers(503, &headers, ""));
        let (next, server) = fleet.plain(row.name, script, eager).await;
        fleet = next;
        servers.push(server);
    }
    let gateway = fleet.config.start().await;
    let calls = rows.iter().map(|row| {
        gateway.call_with(json!({"tool": row.name, "arguments": {}, "deadline_ms": 20_000}))
    });
    let outcomes = together(calls).await;
    for ((row, outcome), server) in rows.iter().zip(&outcomes).zip(&servers) {
        let name = row.name;
        outcome.failed("http_status", None, "answered");
        assert_eq!(server.requests().len(), row.requests, "{name}");
        let waits = waits(outcome);
        assert!(waits.iter().all(|wait| *wait >= row.least), "{name}: {waits:?}");
        let told = outcome.at("/error/retry_after_ms").as_u64();
        match (&row.told, told) {
            (None, None) => {}
            (Some(range), Some(told)) => assert!(range.contains(&told), "{name}: {told}"),
            (expected, found) => panic!("{name}: {found:?} and not {expected:?}"),
        }
    }
    gateway.finish().await;
}

#[tokio::test]
async fn a_profile_that_does_not_repeat_passes_the_wait_on() {
    let world = World::plain().await;
    let busy = answer_with_headers(429, &[("Retry-After", "12")], "");
    world.upstream.default(Script::once(busy));
    let gateway = world.gateway(world.tool("busy").profile("bare-v1")).await;
    let outcome = gateway.call("busy", json!({})).await;
    outcome.failed("http_status", None, "answered");
    assert_eq!(outcome.at("/error/retry_after_ms"), json!(12_000));
    assert_eq!(outcome.at("/error/retryable"), json!(true));
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

#[tokio::test]
async fn no_attempt_starts_that_cannot_finish() {
    let mut fleet = fleet().await;
    let busy = || Script::once(answer_with_headers(503, &[("Retry-After", "2")], ""));
    let (next, waiting) = fleet.plain("waiting", busy(), eager).await;
    let (next, failing) = next.plain("failing", Script::once(answer(500, "", "")), eager).await;
    let (next, silent) = next.plain("silent", Script::new().request().stall(), eager).await;
    fleet = next;
    let gateway = fleet.config.start().await;
    let call = |tool, deadline: u64| {
        gateway.call_with(json!({"tool": tool, "arguments": {}, "deadline_ms": deadline}))
    };

    let outcomes =
        together([call("waiting", 1900), call("failing", 340), call("silent", 500)]).await;

    outcomes[0].failed("http_status", None, "answered");
    assert_eq!(outcomes[0].at("/error/retry_after_ms"), json!(2000));
    outcomes[1].failed("http_status", None, "answered");
    assert_eq!(outcomes[1].at("/error/retry_after_ms"), Value::Null);
    outcomes[2].failed("timeout", Some("first_byte"), "unknown");
    assert_eq!(outcomes[2].at("/error/message"), "The tool did not answer within 0.5 s.");
    for (outcome, server) in outcomes.iter().zip([&waiting, &failing, &silent]) {
        assert_eq!(server.requests().len(), 1);
        assert_eq!(outcome.at("/attempts").as_array().expect("attempts").len(), 1);
    }
    gateway.finish().await;
}

/// Numbers that look random and are the same in every run.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[tokio::test]
async fn no_call_outlives_its_deadline() {
    let mut fleet = fleet().await;
    let half = [head(200, &[("Content-Length", "9")]), b"half".to_vec()].concat();
    let scripts = [
        Script::new().request().stall(),
        Script::new().request().send(half).stall(),
        Script::new().request().drip(head(200, &[]), Duration::from_millis(40)).stall(),
        Script::once(answer(500, "", "")),
        Script::new().request().reset(),
        Script::once(answer_with_headers(429, &[("Retry-After", "1")], "")),
    ];
    let names = ["silent", "half", "drips", "s500", "resets", "busy"];
    let mut servers: Vec<Upstream> = Vec::new();
    for (name, script) in names.iter().zip(scripts) {
        let (next, server) = fleet.plain(name, script, eager).await;
        fleet = next;
        servers.push(server);
    }
    let gateway = fleet.config.start().await;
    let mut number = numbers(7);
    let calls: Vec<_> = (0..200).map(|n| (names[n % names.len()], 1 + number(1500))).collect();
    let outcomes = together(calls.iter().map(|(tool, deadline)| {
        gateway.call_with(json!({"tool": tool, "arguments": {}, "deadline_ms": deadline}))
    }))
    .await;
    for ((tool, deadline), outcome) in calls.iter().zip(&outcomes) {
        // The first 429 pauses its tool for whoever comes after.
        let paused = *tool == "busy" && outcome.at("/error/code") == "rate_limited";
        assert!(paused || outcome.at("/status") == "failed", "{}", outcome.0.text());
        let took = outcome.at("/duration_ms").as_u64().expect("a duration");
        // Some ten milliseconds on an idle machine; this one may be running everything else as well.
        assert!(took <= deadline + 1000, "{tool} took {took} ms of {deadline}");
    }
    gateway.finish().await;
}
