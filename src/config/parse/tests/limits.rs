//! Limits: what holds by default, and what a tool says itself.

use std::num::NonZeroU32;

use super::*;
use crate::config::snapshot::ToolLimits;
use crate::policy::quota::{Per, Rate, RateLimit};

const TOOLS: &str = "tools:
  - {name: plain, description: Looks an order up by its number., profile: plain-v1, url: \"https://a.example.com/\"}
  - {name: own, description: Looks an order up by its number., profile: plain-v1, url: \"https://a.example.com/\", OWN}
";

/// The limits of a tool that says nothing, and of one that says `own`.
fn limits(defaults: &str, own: &str) -> [ToolLimits; 2] {
    let snapshot = good(&with_head(&format!("{defaults}\n{}", TOOLS.replace("OWN", own))));
    ["plain", "own"].map(|name| snapshot.tool(name).expect("a tool").limits.clone())
}

fn rate(per: Per, rate: &str, burst: Option<u32>, replicas: u32) -> RateLimit {
    let replicas = NonZeroU32::new(replicas).expect("some");
    RateLimit::new(per, Rate::parse(rate).expect("a rate"), burst, replicas).expect("a limit")
}

#[test]
fn without_a_word_there_are_places_and_a_breaker_and_no_rate() {
    let [plain, _] = limits("", "enabled: true");
    assert_eq!((plain.concurrency, plain.rates.len()), (256, 0));
    let breaker = plain.breaker.expect("a breaker");
    assert_eq!((breaker.consecutive, breaker.min_calls, breaker.failure_ratio), (5, 10, 0.5));
    let spans = [breaker.window, breaker.open_for, breaker.max_open_for];
    assert_eq!(spans.map(|span| span.as_secs()), [60, 30, 600]);
    let snapshot = good(&with_head(""));
    assert_eq!(snapshot.max_calls_in_flight, 1024);
    let snapshot = good(&with_head("limits: {max_calls_in_flight: 7}\n"));
    assert_eq!(snapshot.max_calls_in_flight, 7);
}

#[test]
fn a_tool_s_list_stands_for_that_of_the_defaults() {
    let defaults = "defaults: {concurrency: 9, rate_limit_replicas: 2, rate_limits: [{per: agent, rate: 60/min}]}";
    let [plain, own] =
        limits(defaults, "concurrency: 3, rate_limits: [{per: key, rate: 5/s, burst: 9}]");
    assert_eq!((plain.concurrency, own.concurrency), (9, 3));
    assert_eq!(plain.rates, [rate(Per::Agent, "60/min", None, 2)]);
    assert_eq!(own.rates, [rate(Per::Key, "5/s", Some(9), 2)]);
    let [_, own] = limits(defaults, "rate_limits: []");
    assert_eq!(own.rates, []);
}

#[test]
fn keys_that_a_tool_s_breaker_leaves_out_are_those_of_the_defaults() {
    let [plain, own] = limits(
        "defaults: {breaker: {consecutive: 2, open_for: 20m}}",
        "breaker: {min_calls: 3, failure_ratio: 1}",
    );
    let (plain, own) = (plain.breaker.expect("one"), own.breaker.expect("one"));
    assert_eq!((plain.consecutive, own.consecutive, own.min_calls), (2, 2, 3));
    // It cannot be open for longer than for the longest time.
    assert_eq!(plain.max_open_for, plain.open_for);
    assert_eq!(own.failure_ratio, 1.0);
}

#[test]
fn a_breaker_can_be_off_here_and_on_there() {
    let [plain, own] = limits("defaults: {breaker: off}", "breaker: {consecutive: 2}");
    assert_eq!(
        (plain.breaker, own.breaker.map(|own| (own.consecutive, own.min_calls))),
        (None, Some((2, 10)))
    );
    let [plain, own] = limits("", "breaker: off");
    assert!(plain.breaker.is_some() && own.breaker.is_none());
}

#[test]
fn the_default_policy_stands_for_that_of_the_profile() {
    let effects = |text: &str| {
        let snapshot =
            good(&with_head(&format!("{text}\n{}", TOOLS.replace("OWN", "policy: deny"))));
        ["plain", "own"].map(|name| snapshot.tool(name).expect("a tool").policy.effect)
    };
    assert_eq!(effects(""), [Effect::RequireApproval, Effect::Deny]);
    assert_eq!(effects("defaults: {policy: allow}"), [Effect::Allow, Effect::Deny]);
}
