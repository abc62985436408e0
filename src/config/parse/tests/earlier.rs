//! What a configuration takes over from the one before it, and what keeps a tool's connections.

use super::*;
use crate::config::context::Earlier;

const DAY: i64 = 86_400;
const PAIR: &str = "secret: {current: {file: /s/good}, previous: {file: /s/old}}";

fn earlier(snapshot: &Snapshot) -> Earlier {
    let read = |path: &str| {
        let source = Source::File(path.into());
        let secret = lookup(&source).expect("a secret");
        (source, secret)
    };
    snapshot.earlier([read("/s/good"), read("/s/old")].into())
}

/// The end of the tool's overlap in a load at this second, after that of another configuration.
fn until(fields: &str, seconds: i64, before: &Snapshot) -> Option<i64> {
    let earlier = earlier(before);
    let environment =
        Environment { unix_seconds: seconds, earlier: Some(&earlier), ..environment() };
    let snapshot = parse("f", &with_tool(fields), &environment).expect("valid");
    snapshot.tools["lookup"].signing.overlap.as_ref().map(|overlap| overlap.until)
}

#[test]
fn an_overlap_runs_from_the_load_that_first_saw_its_pair() {
    let first = parse_text(&with_tool(PAIR)).expect("valid");
    let overlap = first.tools["lookup"].signing.overlap.as_ref().expect("two keys");
    assert_eq!((overlap.since, overlap.until), (NOW, NOW + DAY));
    let later = NOW + 1000;
    assert_eq!(until(PAIR, later, &first), Some(NOW + DAY));
    // The phases of one rotation share its time, also where the two files were exchanged.
    let next_phase = "secret: {current: {file: /s/good}, previous: {file: /s/old}, last: current}";
    assert_eq!(until(next_phase, later, &first), Some(NOW + DAY));
    let exchanged = "secret: {current: {file: /s/old}, previous: {file: /s/good}}";
    assert_eq!(until(exchanged, later, &first), Some(NOW + DAY));
    // Another pair begins anew, and so does one after a time without.
    let other = "secret: {current: {env: GOOD}, previous: {file: /s/old}}";
    assert_eq!(until(other, later, &first), Some(later + DAY));
    let single = parse_text(&with_tool("")).expect("valid");
    assert_eq!(until(PAIR, later, &single), Some(later + DAY));
}

#[test]
fn one_secret_in_both_places_signs_once() {
    let same = "secret: {current: {file: /s/good}, previous: {file: /s/good}}";
    let snapshot = parse_text(&with_tool(same)).expect("valid");
    let signing = &snapshot.tools["lookup"].signing;
    assert!(signing.overlap.is_none() && signing.at(NOW).len() == 1);
}

#[test]
fn an_overlap_that_is_over_is_a_warning() {
    let first = parse_text(&with_tool(PAIR)).expect("valid");
    let earlier = earlier(&first);
    let later = Environment { unix_seconds: NOW + DAY, earlier: Some(&earlier), ..environment() };
    let snapshot = parse("f", &with_tool(PAIR), &later).expect("valid");
    let warnings: Vec<_> = snapshot.warnings.iter().map(ToString::to_string).collect();
    let over = "f:8:50: tools[0].secret.previous: was taken for a day, it no longer signs and can be removed";
    assert_eq!(warnings, [over]);
}

#[test]
fn a_secret_that_is_gone_keeps_its_last_value_unless_the_file_is_strict() {
    let text = with_tool("secret: {current: {file: /s/good}}");
    let earlier = earlier(&parse_text(&text).expect("valid"));
    let nothing = |_: &Source| Err(SourceError::Missing);
    let gone = || Environment { lookup: &nothing, earlier: Some(&earlier), ..environment() };
    let snapshot = parse("f", &text, &gone()).expect("valid");
    let tool = &snapshot.tools["lookup"];
    assert!(tool.unavailable.is_none() && tool.signing.at(NOW).len() == 1);
    let warnings: Vec<_> = snapshot.warnings.iter().map(ToString::to_string).collect();
    let kept =
        "f:8:23: tools[0].secret.current: file `/s/good` is not there, its last value is kept";
    assert_eq!(warnings, [kept]);
    let strict = Environment { strict: true, ..gone() };
    let found = parse("f", &text, &strict).expect_err("strict");
    assert_eq!(found.to_string(), kept);
    // A secret that was never read has no last value.
    let text = with_tool("secret: {current: {file: /s/never}}");
    let snapshot = parse("f", &text, &gone()).expect("valid");
    assert!(snapshot.tools["lookup"].unavailable.is_some());
}

/// Whether connections outlive the step from a tool with these fields to one with those, both with something around.
#[track_caller]
fn check_route(before: &str, after: &str, around: [&str; 2], kept: bool) {
    let route = |fields: &str, around: &str| {
        let text = format!("{}{around}", with_tool(fields));
        let snapshot = parse_text(&text).unwrap_or_else(|found| panic!("{found}"));
        snapshot.tools["lookup"].route_digest
    };
    let same = route(before, around[0]) == route(after, around[1]);
    assert_eq!(same, kept, "{before} to {after}, {around:?}");
}

#[test]
fn what_decides_about_connections_tells_routes_apart_and_nothing_else() {
    let check = |before: &str, after: &str, kept| check_route(before, after, ["", ""], kept);
    check("", "timeout: 5s\npolicy: deny\nfiller: One moment.\nenabled: false", true);
    check("", "secret: {current: {env: GOOD}}", true);
    check("headers: {X-A: {file: /s/good}}", "headers: {X-A: {file: /s/old}}", true);
    check("headers: {X-A: {file: /s/good}}", "headers: {x-a: {file: /s/good}}", false);
    check("", "headers: {X-A: {file: /s/good}}", false);
    check("", "accept_credentials: [X-A]", false);
    check("", "url: https://shop.example.com/other", false);
    check("", "url: https://shop.example.com:8443/lookup", false);
    check("", "profile: plain-v1", false);
    let egress = |one: &str| format!("egress: {{{one}}}\n");
    for (one, other) in [
        ("ports: [443]", "ports: [443, 8443]"),
        ("deny_hosts: []", "deny_hosts: [evil.example.com]"),
        ("connect_timeout: 3s", "connect_timeout: 4s"),
        ("pool: {max_age: 5m}", "pool: {max_age: 4m}"),
        ("tls: {min_version: \"1.2\"}", "tls: {min_version: \"1.3\"}"),
        ("tls: {}", "tls: {extra_ca: {file: /s/ca.pem}}"),
    ] {
        check_route("", "", [&egress(one), &egress(other)], false);
    }
    check_route("", "", ["region: a\n", "region: b\ndns: {timeout: 1s}\n"], true);
    // A connector looks its proxy up itself, and not as the configuration before did.
    let proxied = |dns: &str| {
        egress("proxy: {url: \"http://proxy.example.net:3128\", mode: connect_ip}") + dns
    };
    check_route("", "", [&proxied(""), &proxied("dns: {timeout: 1s}\n")], false);
}
