//! One tool's server, its name in the DNS and its certificate authority: what most tests begin with.

use crate::support::certs::Authority;
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::dns::DnsServer;
use crate::support::gateway::Gateway;
use crate::support::upstream::Upstream;

/// The name under which the upstream is reached.
pub(crate) const HOST: &str = "tool.example.com";

/// Everything around a gateway.
pub(crate) struct World {
    pub(crate) authority: Authority,
    pub(crate) upstream: Upstream,
    pub(crate) dns: DnsServer,
}

impl World {
    /// With an upstream that speaks TLS.
    pub(crate) async fn tls() -> Self {
        let authority = Authority::new();
        let upstream = Upstream::tls(&authority.leaf(&[HOST])).await;
        Self { authority, upstream, dns: DnsServer::start().await }
    }

    /// With an upstream that speaks plain TCP: for faults below TLS.
    pub(crate) async fn plain() -> Self {
        Self {
            authority: Authority::new(),
            upstream: Upstream::plain().await,
            dns: DnsServer::start().await,
        }
    }

    /// A tool at the upstream, with the path `/NAME`.
    pub(crate) fn tool(&self, name: &str) -> Tool {
        Tool::new(name, &self.upstream.url(HOST, &format!("/{name}")))
    }

    /// A configuration that reaches the upstream, without a tool yet.
    pub(crate) fn config(&self) -> ConfigBuilder {
        ConfigBuilder::new().reach(&self.upstream, &self.dns, HOST).ca(&self.authority.pem())
    }

    /// A gateway with one tool.
    pub(crate) async fn gateway(&self, tool: Tool) -> Gateway {
        self.config().tool(tool).start().await
    }
}
