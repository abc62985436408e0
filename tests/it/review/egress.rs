//! `sortie egress --all`: every tool of a file, where it leads and why it may.

use serde_json::{Value, json};

use crate::support::cli::run;
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::dns::DnsServer;

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_is_a_line_with_its_addresses_and_its_reason() {
    let dns = DnsServer::start().await;
    dns.set("wms.corp.example.com", &["A 10.20.0.7"]);
    dns.set("shop.example.com", &["A 93.184.216.34"]);
    let config = ConfigBuilder::new()
        .dns(&dns)
        .exception(
            json!({"tools": ["wms"], "hosts": ["wms.corp.example.com"], "cidrs": ["10.20.0.0/16"],
            "reason": "warehouse on the VPN", "owner": "logistics", "expires": "2099-01-01"}),
        )
        .tool(Tool::new("wms", "https://wms.corp.example.com:8443/a").set("owner", json!("stock")))
        .tool(Tool::new("orders", "https://shop.example.com/a").profile("bare-v1"));
    let folder = config.write();
    let file = folder.config.to_str().expect("UTF-8");
    let all = |more: &[&str]| run([&["egress", "--all", "--config", file], more].concat(), "");
    let finished = all(&["--json"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let lines: Vec<Value> =
        finished.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let orders = json!({"tool": "orders", "owner": null, "host": "shop.example.com", "port": 443,
        "verdict": "allow", "code": "ok", "addresses": ["93.184.216.34"], "exception": null,
        "profile": "bare-v1", "policy": "allow", "authentication": "none"});
    assert_eq!(lines[0], orders);
    assert_eq!(lines[1]["exception"]["reason"], "warehouse on the VPN");
    assert_eq!(lines[1]["exception"]["expires"], "2099-01-01");
    assert_eq!((&lines[1]["addresses"], &lines[1]["port"]), (&json!(["10.20.0.7"]), &json!(8443)));
    assert_eq!(lines.len(), 2);
    dns.set("shop.example.com", &["A 10.0.0.1"]);
    let refused = all(&[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let text: Vec<&str> = refused.stdout.lines().collect();
    assert!(text[0].starts_with("refuse       private"), "{text:?}");
    assert!(text[1].contains("by the exception wms to wms.corp.example.com"), "{text:?}");
    let unasked = all(&["--no-dns"]);
    assert_eq!(unasked.code, Some(0), "{unasked:?}");
}

#[test]
fn all_and_a_target_make_no_sense_together() {
    for arguments in [
        &["egress", "--all"][..],
        &["egress", "--all", "--config", "f", "example.com"],
        &["egress", "--all", "--config", "f", "--tool", "a"],
        &["egress", "--config", "f"],
    ] {
        let finished = run(arguments, "");
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
    }
}
