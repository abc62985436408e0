//! Refusals as a call meets them: what the runtime, the operator and the metrics are told.

use serde_json::{Value, json};

use super::cases::{Case, REFUSED_BY_LOADER, groups};
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::dns::DnsServer;
use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer};
use crate::support::world::{HOST, World};

const DECISIONS: &str = "sortie_address_decisions_total";

/// Refused before the lookup, when the configuration is loaded.
const REFUSED_BY_NAME: [&str; 2] = ["dns-localhost-name", "dns-allow-only-miss"];

#[tokio::test]
async fn every_refused_answer_refuses_the_call_and_is_told_to_the_operator_alone() {
    let dns = DnsServer::start().await;
    let mut left_out = Vec::new();
    for group in groups("dns") {
        let (mut refused, other): (Vec<Case>, Vec<Case>) = group.into_iter().partition(|case| {
            let early =
                REFUSED_BY_LOADER.contains(&case.id()) || REFUSED_BY_NAME.contains(&case.id());
            case.verdict() == "refuse" && !early
        });
        let early = other.into_iter().filter(|case| case.verdict() == "refuse");
        left_out.extend(early.map(|case| case.id().to_owned()));
        // A lookup that failed is believed for a second, so it comes last.
        refused.sort_by_key(|case| case.code() == "resolve_failed");
        let Some(first) = refused.first() else { continue };
        let mut hosts: Vec<&str> = refused.iter().map(Case::input).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let mut config = ConfigBuilder::new().set("/egress", first.settings()).dns(&dns);
        for (at, host) in hosts.iter().enumerate() {
            config = config.tool(Tool::new(&tool(first, at), &format!("https://{host}/")));
        }
        let gateway = config.start().await;
        for case in &refused {
            let at = hosts.iter().position(|host| *host == case.input()).expect("its host");
            dns.chain(case.input(), &case.answers("answers"));
            check(&gateway, &tool(first, at), case).await;
        }
        gateway.finish().await;
    }
    left_out.sort();
    let mut early = [REFUSED_BY_LOADER, REFUSED_BY_NAME].concat();
    early.sort_unstable();
    assert_eq!(left_out, early);
}

/// An exception names its tool, so a group with one has one host.
fn tool(case: &Case, at: usize) -> String {
    if at == 0 { case.tool().to_owned() } else { format!("tool_{at}") }
}

async fn check(gateway: &Gateway, tool: &str, case: &Case) {
    let before = gateway.metrics().await;
    let outcome = gateway.call(tool, json!({})).await;
    let after = gateway.metrics().await;
    let moved =
        |labels: &[(&str, &str)]| after.value(DECISIONS, labels) - before.value(DECISIONS, labels);
    if case.code() == "resolve_failed" {
        outcome.failed("network_error", Some("dns"), "not_sent");
        assert_eq!(moved(&[]), 0.0, "{}: nothing was decided", case.id());
        return;
    }
    outcome.refused("blocked_host", Some(case.code()));
    assert_eq!(outcome.model_text(), "The tool's address is not allowed.");
    assert_eq!(outcome.at("/error/retryable"), json!(false));
    let labels =
        [("tool", tool), ("verdict", "refuse"), ("code", case.code()), ("mode", "enforce")];
    assert_eq!((moved(&labels), moved(&[])), (1.0, 1.0), "{}", case.id());

    let call = gateway.call_line(&outcome.id()).await.to_string();
    // The lines of an attempt come before the line of its call.
    let log = gateway.log_lines();
    let of_call = |line: &&Value| line["call_id"] == outcome.id().as_str();
    let told = log.iter().filter(of_call).find(|line| line["message"] == "Attempt failed.");
    let told = told.expect("a line for the operator");
    assert_eq!(told["detail"], case.code(), "{told}");
    let reason = told["reason"].as_str().expect("a reason");
    let answer = outcome.0.text();
    let names_one = case.addresses().iter().any(|address| reason.contains(address));
    let names_none = ["name_denied", "too_many_answers", "ipv6_disabled"].contains(&case.code());
    // IPv4 in the tail of an IPv6 address is written in hexadecimal.
    assert!(names_one || names_none || case.code() == "ipv4_compatible", "{}: {reason}", case.id());
    for address in case.addresses() {
        assert!(!answer.contains(address), "{}: {address} stands in {answer}", case.id());
        assert!(!call.contains(address), "{}: {address} stands in {call}", case.id());
    }
}

#[tokio::test]
async fn an_exception_opens_its_tool_alone_and_is_shown() {
    let world = World::tls().await;
    world.dns.set(HOST, &["A 127.0.0.1"]);
    let port = world.upstream.port();
    let config = ConfigBuilder::new().dns(&world.dns).ca(&world.authority.pem());
    let gateway = config
        .exception(json!({
            "tools": ["wms_*"],
            "hosts": [HOST],
            "cidrs": ["127.0.0.1/32"],
            "ports": [port.to_string()],
            "reason": "the test's own upstream",
            "owner": "tests",
        }))
        .tool(world.tool("wms_scan"))
        .tool(world.tool("other"))
        .start()
        .await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    gateway.call("wms_scan", json!({})).await.succeeded();
    gateway.call("other", json!({})).await.refused("blocked_host", Some("loopback"));
    let metrics = gateway.metrics().await;
    for (tool, verdict) in [("wms_scan", "allow"), ("other", "refuse")] {
        assert_eq!(metrics.value(DECISIONS, &[("tool", tool)]), 1.0);
        assert_eq!(metrics.value(DECISIONS, &[("tool", tool), ("verdict", verdict)]), 1.0);
    }
    assert_eq!(metrics.value("sortie_egress_exceptions", &[]), 1.0);
    let told: Vec<_> = gateway
        .log_lines()
        .into_iter()
        .filter(|line| line["level"] == "WARN")
        .filter_map(|line| Some(line["exception"].as_str()?.to_owned()))
        .collect();
    let opened = format!("wms_* to {HOST} at 127.0.0.1/32, ports {port}");
    assert_eq!(told, [opened + r#", reason "the test's own upstream", owner "tests""#]);
    gateway.finish().await;
}
