//! Names that lead inside, in every way that DNS and a tool server have.

use serde_json::json;

use crate::faults::proof::Fault;
use crate::support::config::Tool;
use crate::support::dns::Answer;
use crate::support::namespace::{
    BLACK_HOLE, FORBIDDEN, HOST, Network, OTHER_HOST, PUBLIC, PUBLIC_V6, SECOND, isolated,
};
use crate::support::script::{Script, answer, answer_with_headers};

const DECISIONS: &str = "sortie_address_decisions_total";

/// A call of the tool `lookup`, which may reach the public server.
fn lookup(network: &Network) -> Fault<'_> {
    Fault::at("lookup").served_by(&network.public, HOST, "/lookup")
}

/// The name is refused for this reason, and nobody is connected to.
fn refused<'a>(network: &'a Network, code: &'static str) -> Fault<'a> {
    let decision = [("tool", "lookup"), ("verdict", "refuse"), ("code", code), ("mode", "enforce")];
    let fault = lookup(network).refused("blocked_host").detail(code).connections(0);
    fault.metric(DECISIONS, &decision, 1.0).metric(DECISIONS, &[], 1.0)
}

#[test]
fn f013_a_rebinding_name_is_called_at_its_public_address_or_not_at_all() {
    isolated(async |network| rebind_a_hundred_times(network, "auto").await);
}

#[test]
fn f013_a_rebinding_name_is_not_followed_when_every_call_dials() {
    isolated(async |network| rebind_a_hundred_times(network, "never").await);
}

/// Why each of [`FORBIDDEN`] is refused.
const INSIDE_CODES: [&str; 16] = [
    "loopback",
    "loopback",
    "private",
    "private",
    "private",
    "cgnat",
    "cgnat",
    "cloud_platform",
    "link_local",
    "benchmarking",
    "unique_local",
    "unique_local",
    "unique_local",
    "nat64_embedded",
    "nat64_embedded",
    "six_to_four",
];

/// Each question gets another answer than the one before: a second lookup in a call, or a lookup by the dialler, would
/// lead inside at a good call and come out of step for all that follow.
async fn rebind_a_hundred_times(network: &Network, reuse: &str) {
    let inside = |call: usize| {
        let address = FORBIDDEN[call % FORBIDDEN.len()];
        format!("{} {address}", if address.contains(':') { "AAAA" } else { "A" })
    };
    let outside = [format!("A {PUBLIC}"), format!("AAAA {PUBLIC_V6}")];
    let answers = (0..100).map(|call| match call % 2 {
        0 => Answer::with_ttl(0, &[&outside[call / 2 % 2]]),
        _ => Answer::with_ttl(0, &[&inside(call / 2)]),
    });
    network.dns.script(HOST, answers.collect());
    let config = network.config().tool(network.tool("lookup"));
    let gateway = config.set("/egress/pool/reuse", json!(reuse)).start().await;
    for call in 0..100 {
        let public = [&network.public, &network.public_v6][call / 2 % 2];
        let fault = match call % 2 {
            0 => Fault::at("lookup").served_by(public, HOST, "/lookup"),
            _ => refused(network, INSIDE_CODES[call / 2 % FORBIDDEN.len()]),
        };
        // One connection to each of the two public addresses.
        fault.kept(2).holds(&gateway).await;
    }
    assert_eq!(network.requests(), 50);
    assert_eq!(network.dials(), if reuse == "never" { 50 } else { 2 });
    assert_eq!(network.dns.questions().len(), 200);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.value(DECISIONS, &[("verdict", "allow"), ("code", "ok")]), 50.0);
    assert_eq!(metrics.value(DECISIONS, &[("verdict", "refuse"), ("mode", "enforce")]), 50.0);
    assert_eq!(metrics.value(DECISIONS, &[]), 100.0);
    gateway.finish().await;
}

#[test]
fn f010_f011_f012_every_answer_that_leads_inside_refuses_the_name() {
    isolated(async |network| {
        let gateway = network.config().tool(network.tool("lookup")).start().await;
        let public = &*format!("A {PUBLIC}");
        let many: Vec<String> =
            (0..500).map(|n| format!("A 151.101.{}.{}", n / 250, n % 250)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let rows: &[(&[&str], &str)] = &[
            // One good address does not make a bad one better.
            (&[public, "A 127.0.0.1"], "loopback"),
            (&["A 10.0.0.5", public], "private"),
            (&[public, "AAAA ::1"], "loopback"),
            (&[public, "AAAA fd12:3456:789a::1"], "unique_local"),
            (&["A 192.168.0.10", &format!("AAAA {PUBLIC_V6}")], "private"),
            // An alias that only the cluster knows, whatever its address.
            (&["CNAME kubernetes.default.svc", "A 10.0.0.5"], "name_denied"),
            (&["CNAME payments.prod.svc.cluster.local", public], "name_denied"),
            (&["CNAME metadata.google.internal", "A 169.254.169.254"], "name_denied"),
            (&["CNAME localhost", "A 127.0.0.1"], "name_denied"),
            (&["CNAME db.example.net", "A 172.16.0.9"], "private"),
            // Clouds.
            (&["A 169.254.169.254"], "link_local"),
            (&["A 168.63.129.16"], "cloud_platform"),
            (&["A 100.100.100.200"], "cgnat"),
            (&["AAAA fd00:ec2::254"], "unique_local"),
            (&["AAAA fd20:ce::254"], "unique_local"),
            // Disguises.
            (&["AAAA ::ffff:10.0.0.5"], "ipv4_mapped"),
            (&["AAAA ::10.0.0.5"], "ipv4_compatible"),
            (&["AAAA 64:ff9b::a00:5"], "nat64_embedded"),
            (&["AAAA 64:ff9b::a9fe:a9fe"], "nat64_embedded"),
            (&["AAAA 2002:a00:5::1"], "six_to_four"),
            // The rest of this machine.
            (&["A 0.0.0.0"], "this_network"),
            (&["AAAA ::"], "unspecified"),
            (&["A 127.1.2.3"], "loopback"),
            (&["A 100.64.0.5"], "cgnat"),
            (&["A 198.18.0.84"], "benchmarking"),
            (&many, "too_many_answers"),
        ];
        for (lines, code) in rows {
            network.now(HOST, lines);
            refused(network, code).holds(&gateway).await;
        }
        assert_eq!(network.dials(), 0);
        gateway.finish().await;
    });
}

#[test]
fn a_redirect_leads_nowhere() {
    isolated(async |network| {
        network.now(HOST, &[&format!("A {PUBLIC}")]);
        let gateway = network.config().tool(network.tool("lookup")).start().await;
        let targets = [
            "https://10.0.0.5/",
            "http://169.254.169.254/latest/meta-data/",
            "//127.0.0.1:8443/",
            "https://other.example.com/",
            "/elsewhere",
        ];
        let mut sent = 0;
        for status in [300, 301, 302, 303, 305, 307, 308] {
            for target in targets {
                let headers = [
                    ("Location", target),
                    ("Refresh", "0; url=http://10.0.0.5/"),
                    ("Alt-Svc", "h2=\"10.0.0.5:443\", http/1.1=\"127.0.0.1:8443\""),
                ];
                let redirect = answer_with_headers(status, &headers, "see there");
                network.public.next(Script::once(redirect));
                let outcome = gateway.call("lookup", json!({})).await;
                sent += 1;
                assert_eq!(outcome.at("/error/status"), status);
                outcome.failed("redirect", None, "answered");
                assert!(!outcome.0.text().contains(target), "the runtime does not see {target}");
                assert_eq!(network.requests(), sent);
            }
        }
        gateway.finish().await;
    });
}

#[test]
fn f025_the_gateway_does_not_call_itself() {
    isolated(async |network| {
        let tool = |name: &str, port| Tool::new(name, &format!("https://{HOST}:{port}/"));
        let config = network
            .config()
            .set("/listeners/api/address", json!(":8477"))
            .set("/listeners/telemetry/address", json!(format!("{SECOND}:9477")))
            .set("/egress/own_addresses", json!([BLACK_HOLE]));
        let gateway = config
            .tool(tool("api", 8477))
            .tool(tool("telemetry", 9477))
            .tool(network.tool("own"))
            .start()
            .await;
        let own = |tool: &'static str| {
            let decision = [("tool", tool), ("verdict", "refuse"), ("code", "self")];
            let fault = Fault::at(tool).refused("blocked_host").detail("self");
            fault.metric(DECISIONS, &decision, 1.0)
        };
        // Where it listens on everything, every public address of the machine is its own.
        for lines in [format!("A {PUBLIC}"), format!("A {SECOND}"), format!("AAAA {PUBLIC_V6}")] {
            network.now(HOST, &[&lines]);
            own("api").holds(&gateway).await;
        }
        network.now(HOST, &[&format!("A {SECOND}")]);
        own("telemetry").holds(&gateway).await;
        // Another port of the same machine falls under the normal rules.
        let normal = Fault::at("own").served_by(&network.second, HOST, "/own").connections(1);
        normal.holds(&gateway).await;
        network.now(HOST, &[&format!("A {BLACK_HOLE}")]);
        own("own").kept(1).holds(&gateway).await;
        assert_eq!(network.dials(), 1);
        gateway.finish().await;
    });
}

#[test]
fn shadow_mode_opens_what_the_operator_closed_and_nothing_else() {
    isolated(async |network| {
        let public = format!("A {PUBLIC}");
        let rows = [
            ("/egress/deny_cidrs", json!([format!("{PUBLIC}/32")]), "denied_cidr"),
            ("/egress/deny_hosts", json!([HOST]), "denied_host"),
            ("/egress/allow_hosts", json!([OTHER_HOST]), "host_not_allowed"),
            ("/egress/ports", json!(["8443"]), "port"),
        ];
        for (setting, value, code) in rows {
            let config = network.config().set("/egress/mode", json!("shadow"));
            let gateway = config.set(setting, value).tool(network.tool("lookup")).start().await;
            network.now(HOST, &[&public]);
            gateway.call("lookup", json!({})).await.succeeded();
            let metrics = gateway.metrics().await;
            assert_eq!(metrics.value(DECISIONS, &[("mode", "shadow"), ("code", code)]), 1.0);
            assert_eq!(metrics.value(DECISIONS, &[]), 1.0, "one decision, one count");
            for (lines, code) in [
                (&["A 10.0.0.5"], "private"),
                (&["A 127.0.0.1"], "loopback"),
                (&["A 169.254.169.254"], "link_local"),
                (&["AAAA fd00:ec2::254"], "unique_local"),
            ] {
                network.now(HOST, lines);
                gateway.call("lookup", json!({})).await.refused("blocked_host", Some(code));
            }
            network.now(HOST, &["CNAME localhost", &public]);
            gateway.call("lookup", json!({})).await.refused("blocked_host", Some("name_denied"));
            let metrics = gateway.metrics().await;
            assert_eq!(
                metrics.value(DECISIONS, &[("mode", "enforce"), ("verdict", "refuse")]),
                5.0
            );
            assert_eq!(metrics.value(DECISIONS, &[]), 6.0);
            gateway.finish().await;
        }
        assert_eq!(network.dials(), 4);
    });
}

#[test]
fn a_retry_asks_and_judges_again() {
    isolated(async |network| {
        let moved = |to: &str| {
            let lines = [format!("A {PUBLIC}"), to.to_owned()];
            network
                .dns
                .script(HOST, lines.iter().map(|line| Answer::with_ttl(0, &[line])).collect());
        };
        let busy = || Script::once(answer(503, "text/plain", "busy"));
        let tool = network.tool("lookup").profile("bare-v1");
        let gateway = network.config().tool(tool).start().await;

        moved(&format!("A {SECOND}"));
        network.public.next(busy());
        gateway.call("lookup", json!({})).await.succeeded();
        assert_eq!((network.public.requests().len(), network.second.requests().len()), (1, 1));
        assert_eq!(network.dns.questions().len(), 4, "A and AAAA for each attempt");

        moved("A 10.0.0.5");
        network.public.next(busy());
        let outcome = gateway.call("lookup", json!({})).await;
        // The first attempt did reach the tool, so the call was not refused.
        outcome.failed("http_status", None, "answered");
        assert_eq!(outcome.at("/error/status"), json!(503));
        assert_eq!(outcome.at("/attempts").as_array().map(Vec::len), Some(1), "{outcome:?}");
        gateway.call_line(&outcome.id()).await;
        let told = gateway.log_lines().into_iter().filter(|line| line["attempt"] == 2);
        let told: Vec<_> =
            told.map(|line| [line["code"].clone(), line["detail"].clone()]).collect();
        assert_eq!(told, [[json!("blocked_host"), json!("private")]]);
        assert_eq!(network.dns.questions().len(), 8);
        assert_eq!(network.dials(), 3);
        gateway.finish().await;
    });
}
