//! Many tools behind one gateway, each with a server and a name of its own: cases that take their time run together.

use serde_json::{Value, json};

use crate::support::certs::Authority;
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::dns::DnsServer;
use crate::support::script::Script;
use crate::support::upstream::Upstream;

/// A fleet in the making: its gateway is started from `config`.
pub(crate) struct Fleet {
    pub(crate) authority: Authority,
    pub(crate) dns: DnsServer,
    pub(crate) config: ConfigBuilder,
}

/// The name of a tool's server.
pub(crate) fn host(tool: &str) -> String {
    format!("{}.example.com", tool.replace(['_', '.'], "-"))
}

impl Fleet {
    /// Without a tool yet.
    pub(crate) async fn new() -> Self {
        let (authority, dns) = (Authority::new(), DnsServer::start().await);
        let config = ConfigBuilder::new().dns(&dns).ca(&authority.pem());
        Self { authority, dns, config }
    }

    /// Changes the configuration.
    pub(crate) fn configure(mut self, change: impl FnOnce(ConfigBuilder) -> ConfigBuilder) -> Self {
        self.config = change(self.config);
        self
    }

    /// Adds a tool at a new plain server with this script on every connection.
    pub(crate) async fn plain(
        self,
        name: &str,
        script: Script,
        shape: impl FnOnce(Tool) -> Tool,
    ) -> (Self, Upstream) {
        let upstream = Upstream::plain().await;
        upstream.default(script);
        (self.reaching(name, &upstream, shape), upstream)
    }

    /// Adds a tool at a new TLS server with this script on every connection.
    pub(crate) async fn tls(
        self,
        name: &str,
        script: Script,
        shape: impl FnOnce(Tool) -> Tool,
    ) -> (Self, Upstream) {
        let upstream = Upstream::tls(&self.authority.leaf(&[&host(name)])).await;
        upstream.default(script);
        (self.reaching(name, &upstream, shape), upstream)
    }

    /// Adds a tool at this server.
    pub(crate) fn reaching(
        self,
        name: &str,
        upstream: &Upstream,
        shape: impl FnOnce(Tool) -> Tool,
    ) -> Self {
        let url = upstream.url(&host(name), "/");
        self.at(name, upstream.port(), &url, shape)
    }

    /// Adds a tool with this URL, whose name leads to this loopback port.
    pub(crate) fn at(
        self,
        name: &str,
        port: u16,
        url: &str,
        shape: impl FnOnce(Tool) -> Tool,
    ) -> Self {
        self.dns.set(&host(name), &["A 127.0.0.1"]);
        let exception = json!({
            "tools": [name],
            "hosts": [host(name)],
            "cidrs": ["127.0.0.1/32"],
            "ports": [port.to_string()],
            "http": url.starts_with("http:"),
            "reason": "the test's own server",
            "owner": "tests",
        });
        let tool = shape(Tool::new(name, url));
        self.configure(|config| config.exception(exception).tool(tool))
    }
}

/// An unsigned profile that wants everything repeated that can be wanted: what is safe decides alone. The least timeout
/// is 100 ms, so that waiting for one is short.
pub(crate) fn eager_profile(name: &str, repeat_key: bool) -> Value {
    let mut headers = vec![
        json!({"name": "Host", "value": "$host"}),
        json!({"name": "Content-Type", "value": "application/json"}),
        json!("$own"),
        json!({"name": "Content-Length", "value": "$content_length"}),
    ];
    if repeat_key {
        headers.insert(2, json!({"name": "Idempotency-Key", "value": "$idempotency_key"}));
    }
    let on = json!(["network", "5xx", 501, 505, 408, 409, 425, 429]);
    json!({
        "name": name,
        "names": "[a-z][a-z0-9_]*",
        "schema": "full",
        "policy": "allow",
        "timeout": {"default": "10s", "min": "100ms", "max": "30s"},
        "result_max_bytes": 1024,
        "retry": {"attempts": 3, "on": on, "repeat_key": repeat_key},
        "error_body": "4xx",
        "headers": headers,
        "body": "$arguments",
    })
}
