//! Services of the own cluster: called through an exception that names them, and not otherwise.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::config::{ConfigBuilder, SECRET};
use crate::support::namespace::{HOST, Network, ip, isolated};
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;

const SERVICE: &str = "orders.prod.svc.cluster.local";
/// Where services and pods are: on public and on shared address space, as clusters of clouds have them.
const RANGES: &[&str] = &["11.20.0.0/16", "100.64.8.0/21"];
const PORT: u16 = 8080;

/// A server of the cluster, which answers whoever asks it.
async fn server(address: &str) -> Upstream {
    ip(&format!("address add {address}/32 dev lo\n"));
    let server =
        Upstream::plain_at(SocketAddr::new(address.parse().expect("an address"), PORT)).await;
    server.default(Script::always(answer(200, "application/json", r#"{"ok":true}"#)));
    server
}

/// The ranges are private, and the team's file has a tool at the service and one at a public name.
fn config(network: &Network) -> ConfigBuilder {
    let tool = |name: &str, url: &str| {
        format!(
            "  - name: {name}\n    description: Looks an order up by its number.\n    url: {url}\n    \
             parameters: {{type: object, properties: {{}}}}\n    secret: {{current: {{file: ../secret}}}}\n"
        )
    };
    let inside = tool("orders", &format!("http://{SERVICE}:{PORT}/lookup"));
    let outside = tool("public", &format!("https://{HOST}:{PORT}/lookup"));
    network
        .config()
        .set("/egress/private_cidrs", json!(RANGES))
        .set("/include", json!(["tools.d/*.yaml"]))
        .file("secret", SECRET)
        .file("tools.d/orders.yaml", &format!("owner: orders\ntools:\n{inside}"))
        .file("tools.d/public.yaml", &format!("owner: web\ntools:\n{outside}"))
}

fn exception(tool: &str, cidrs: &[&str]) -> Value {
    json!({
        "tools": [tool], "hosts": [SERVICE], "cidrs": cidrs, "ports": [PORT.to_string()],
        "http": true, "reason": "a service of this cluster", "owner": "orders",
    })
}

#[test]
fn a_service_is_called_through_its_exception_while_the_cluster_is_private() {
    isolated(async |network| {
        for address in ["11.20.3.4", "100.64.8.20"] {
            let server = server(address).await;
            network.now(SERVICE, &[&format!("A {address}")]);
            network.now(HOST, &[&format!("A {address}")]);
            let gateway = config(network).exception(exception("orders", RANGES)).start().await;
            gateway.call("orders", json!({})).await.succeeded();
            let request = server.only_request();
            assert_eq!(request.line(), "POST /lookup HTTP/1.1");
            let host = format!("{SERVICE}:{PORT}");
            assert_eq!(request.header("Host"), Some(host.as_str()));
            // The exception is that tool's and that name's alone.
            gateway.call("public", json!({})).await.refused("blocked_host", Some("private"));
            assert_eq!(server.requests().len(), 1);
            gateway.finish().await;
        }
    });
}

#[test]
fn without_its_exception_a_service_is_refused_and_hears_nothing() {
    isolated(async |network| {
        let server = server("11.20.3.4").await;
        network.now(SERVICE, &["A 11.20.3.4"]);
        network.now(HOST, &["A 11.20.3.4"]);
        // None at all, and one of another tool: the file is refused, and the rest serves.
        let none = config(network);
        let others = config(network).exception(exception("warehouse_*", RANGES));
        for config in [none, others] {
            let checked = config.check(&[]);
            assert_eq!(checked.code, Some(1));
            let told = "orders.yaml:5:10: tools[0].url: ";
            assert!(checked.stdout.contains(told), "{}", checked.stdout);
            let gateway = config.start().await;
            gateway.call("orders", json!({})).await.failed("not_configured", None, "not_sent");
            gateway.call("public", json!({})).await.refused("blocked_host", Some("private"));
            gateway.finish().await;
        }
        // One for another part of the cluster: the address is refused when it is called.
        let elsewhere = config(network).exception(exception("orders", &["11.20.9.0/24"]));
        let gateway = elsewhere.start().await;
        gateway.call("orders", json!({})).await.refused("blocked_host", Some("private"));
        gateway.finish().await;
        server.assert_untouched().await;
    });
}
