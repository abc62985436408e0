//! Where calls do go: to addresses that were judged, whatever the machine's own files and variables say.

use serde_json::json;

use crate::faults::proof::Fault;
use crate::support::config::Tool;
use crate::support::namespace::{
    BLACK_HOLE, CLOSED, HOST, NO_ROUTE_V6, OTHER_HOST, PUBLIC, PUBLIC_V6, SECOND, isolated,
};
use crate::support::upstream::Upstream;

/// A call of the tool `lookup`, which this server is to get.
fn lookup(server: &Upstream) -> Fault<'_> {
    Fault::at("lookup").served_by(server, HOST, "/lookup")
}

#[test]
fn a_call_asks_each_family_once_and_goes_to_that_address() {
    isolated(async |network| {
        let gateway = network.config().tool(network.tool("lookup")).start().await;
        for (calls, lines) in [(1, format!("A {PUBLIC}")), (2, format!("AAAA {PUBLIC_V6}"))] {
            network.now(HOST, &[&lines]);
            gateway.call("lookup", json!({})).await.succeeded();
            assert_eq!(network.dns.questions().len(), calls * 2);
        }
        let mut asked: Vec<String> = network
            .dns
            .questions()
            .iter()
            .map(|question| format!("{} {}", question.kind, question.name))
            .collect();
        asked.sort();
        let name = format!("{HOST}.");
        assert_eq!(
            asked,
            [
                format!("A {name}"),
                format!("A {name}"),
                format!("AAAA {name}"),
                format!("AAAA {name}")
            ]
        );
        for server in [&network.public, &network.public_v6] {
            assert_eq!(server.only_request().header("Host"), Some(HOST));
            assert_eq!(server.connections()[0].server_name.as_deref(), Some(HOST));
        }
        gateway.finish().await;
    });
}

#[test]
fn f019_f020_hosts_file_search_list_and_proxies_change_nothing() {
    isolated(async |network| {
        const FILE_ONLY: &str = "hosts-file-only.example.com";
        let url = |host: &str| format!("https://{host}/");
        let config = network
            .config()
            .tool(network.tool("lookup"))
            .tool(Tool::new("gone", &url("gone.example.com")))
            .tool(Tool::new("file_only", &url(FILE_ONLY)));
        // With ndots:5 a system resolver asks for this one first. The fixture has it, so it would be believed.
        for suffix in ["default.svc.cluster.local", "svc.cluster.local", "cluster.local"] {
            for host in [HOST, "gone.example.com", FILE_ONLY] {
                network.dns.set(&format!("{host}.{suffix}"), &["A 10.0.0.5"]);
            }
        }
        network.now(HOST, &[&format!("A {PUBLIC}")]);
        network.now("gone.example.com", &["NXDOMAIN"]);
        network.now(FILE_ONLY, &["NXDOMAIN"]);
        let gateway = config.start().await;
        lookup(&network.public).holds(&gateway).await;
        for tool in ["gone", "file_only"] {
            let fault = Fault::at(tool).failed("network_error").detail("dns").retryable();
            let nxdomain = [("result", "nxdomain")];
            fault.metric("sortie_dns_lookups_total", &nxdomain, 1.0).kept(1).holds(&gateway).await;
        }
        let strangers: Vec<_> = network
            .dns
            .questions()
            .into_iter()
            .filter(|question| question.name.contains("cluster"))
            .collect();
        assert!(strangers.is_empty(), "absolute names only: {strangers:?}");
        assert_eq!(network.dials(), 1);
        gateway.finish().await;
    });
}

#[test]
fn an_address_in_the_url_is_never_asked_for() {
    isolated(async |network| {
        let tool = Tool::new("literal", &format!("https://{PUBLIC}/literal"));
        let gateway = network.config().tool(tool).start().await;
        gateway.call("literal", json!({})).await.succeeded();
        assert_eq!(network.dns.questions(), []);
        assert_eq!(network.public.only_request().header("Host"), Some(PUBLIC));
        gateway.finish().await;
    });
}

#[test]
fn f028_f032_the_next_judged_address_is_tried() {
    isolated(async |network| {
        // Waiting for the first address to the end would take longer than the call may.
        let config = network.config().set("/egress/pool/reuse", json!("never"));
        let config = config.set("/egress/connect_timeout", json!("30s"));
        let gateway = config.tool(network.tool("lookup")).start().await;
        let rows = [
            [format!("A {CLOSED}"), format!("A {SECOND}")],
            [format!("A {BLACK_HOLE}"), format!("A {SECOND}")],
            [format!("AAAA {NO_ROUTE_V6}"), format!("A {SECOND}")],
        ];
        for (calls, [first, second]) in rows.iter().enumerate() {
            network.now(HOST, &[first, second]);
            lookup(&network.second).connections(1).kept(0).holds(&gateway).await;
            assert_eq!(network.dns.questions().len(), (calls + 1) * 2, "no second lookup");
        }
        // A bad address beside them is no way out.
        network.now(HOST, &[&format!("A {CLOSED}"), &format!("A {BLACK_HOLE}"), "A 10.0.0.5"]);
        let fault = lookup(&network.second).refused("blocked_host").detail("private");
        fault.connections(0).holds(&gateway).await;
        assert_eq!(network.dials(), 3);
        gateway.finish().await;
    });
}

#[test]
fn f014_a_kept_connection_is_left_when_dns_moves() {
    isolated(async |network| {
        let config = network.config().set("/egress/pool/reuse", json!("always"));
        let gateway = config.tool(network.tool("lookup")).start().await;
        let public = format!("A {PUBLIC}");
        network.now(HOST, &[&public]);
        lookup(&network.public).connections(1).holds(&gateway).await;
        lookup(&network.public).connections(0).holds(&gateway).await;

        network.now(HOST, &["A 127.0.0.1"]);
        let fault = lookup(&network.public).refused("blocked_host").detail("loopback");
        fault.connections(0).kept(1).holds(&gateway).await;

        // Not the kept one of another address.
        network.now(HOST, &[&format!("A {SECOND}")]);
        lookup(&network.second).connections(1).kept(2).holds(&gateway).await;

        network.now(HOST, &[&public]);
        lookup(&network.public).connections(0).kept(2).holds(&gateway).await;
        gateway.finish().await;
    });
}

#[test]
fn names_on_one_address_share_no_connection() {
    isolated(async |network| {
        let config = network
            .config()
            .set("/egress/pool/reuse", json!("always"))
            .tool(network.tool("first"))
            .tool(network.tool("second"))
            .tool(Tool::new("third", &format!("https://{OTHER_HOST}/third")));
        let gateway = config.start().await;
        for host in [HOST, OTHER_HOST] {
            network.now(host, &[&format!("A {PUBLIC}")]);
        }
        for _ in 0..2 {
            for tool in ["first", "second", "third"] {
                gateway.call(tool, json!({})).await.succeeded();
            }
        }
        assert_eq!((network.dials(), network.requests()), (3, 6));
        let names: Vec<_> = network
            .public
            .connections()
            .into_iter()
            .map(|connection| connection.server_name.expect("a name"))
            .collect();
        assert_eq!(names, [HOST, HOST, OTHER_HOST]);
        gateway.finish().await;
    });
}
