//! `egress` exactly as it is written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::{Given, List};
use crate::config::leaf::{Day, Ports, Span, Verbatim};
use crate::config::raw_tool::{RawBasic, RawReference};

/// `egress`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawEgress {
    /// Ports that may be called; default ["443", "1024-65535"].
    pub ports: List<Ports>,
    /// Whether IPv6 addresses are called; default on.
    pub ipv6: Given<RawIpv6>,
    /// What happens to a name with allowed and refused addresses; default refuse.
    pub mixed_answers: Given<RawMixedAnswers>,
    /// Ranges that are never called. They beat everything below.
    pub deny_cidrs: List<String>,
    /// Ranges that count as private: the cluster's pods, services and nodes on public or shared space.
    pub private_cidrs: List<String>,
    /// Names and `*.` globs that are never called; addresses stand in `deny_cidrs`.
    pub deny_hosts: List<String>,
    /// The only names that are called; empty: any public one.
    pub allow_hosts: List<String>,
    /// The operator's own NAT64 prefixes.
    pub nat64_prefixes: List<String>,
    /// Addresses that are this gateway, besides its listeners: never called.
    pub own_addresses: List<String>,
    /// Ranges with which a TUN proxy answers DNS.
    pub fake_ip_cidrs: List<String>,
    /// shadow: what deny_*, allow_hosts and ports would refuse is logged and passes; default enforce.
    pub mode: Given<RawMode>,
    /// Private targets, each named.
    pub exceptions: List<RawException>,
    /// How tools' certificates are checked.
    pub tls: Given<RawTls>,
    /// Bound on one TCP connect; default 3s.
    pub connect_timeout: Given<Span>,
    /// How connections are kept.
    pub pool: Given<RawPool>,
    /// The proxy through which tools are called; what an exception names goes past it.
    pub proxy: Given<RawProxy>,
}

/// `egress.ipv6`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawIpv6 {
    /// IPv4 only.
    Off,
    /// Both.
    On,
    /// IPv6 first.
    Prefer,
}

/// `egress.mixed_answers`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawMixedAnswers {
    /// The refused addresses are left out.
    Filter,
    /// The name is refused.
    Refuse,
}

/// `egress.mode`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawMode {
    /// Rules refuse.
    Enforce,
    /// Rules only log.
    Shadow,
}

/// A private target that these tools may call.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["tools", "hosts", "cidrs"]))]
pub struct RawException {
    /// Tools, as names or globs.
    pub tools: List<String>,
    /// Names, `*.` globs of a private suffix, or address literals.
    pub hosts: List<String>,
    /// Ranges in which the host's addresses must lie.
    pub cidrs: List<String>,
    /// Ports; left out: `egress.ports`. Needed for loopback.
    pub ports: List<Ports>,
    /// true opens plain http to these addresses.
    pub http: Given<bool>,
    /// Why it is needed.
    pub reason: Given<String>,
    /// Who answers for it.
    pub owner: Given<String>,
    /// The last day on which it holds, UTC.
    pub expires: Given<Day>,
}

/// `egress.tls`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTls {
    /// The oldest version that is spoken; default "1.2".
    pub min_version: Given<RawTlsVersion>,
    /// Which root certificates are trusted; default webpki (Mozilla's, compiled in).
    pub roots: Given<RawRoots>,
    /// A PEM file of further roots.
    pub extra_ca: Given<RawReference>,
}

/// A TLS version.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub enum RawTlsVersion {
    /// TLS 1.2 and 1.3.
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3 only.
    #[serde(rename = "1.3")]
    V13,
}

/// Root certificates.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawRoots {
    /// The operating system's.
    System,
    /// Mozilla's, compiled in.
    Webpki,
}

/// `egress.proxy`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawProxy {
    /// Where it is: `http://HOST:PORT`, or `https://HOST:PORT` for one that speaks TLS itself. Left out: there is none.
    pub url: Given<Verbatim>,
    /// Who looks names up and judges them; default connect_ip.
    pub mode: Given<RawProxyMode>,
    /// How the proxy is told who calls.
    pub basic: Given<RawBasic>,
    /// A PEM file of further roots for the proxy's own certificate.
    pub extra_ca: Given<RawReference>,
}

/// `egress.proxy.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawProxyMode {
    /// Sortie: the proxy is given an address that was judged.
    ConnectIp,
    /// The proxy: it is given the name, and the address rules here do not hold for it.
    ConnectName,
}

/// `egress.pool`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawPool {
    /// Whether connections are kept; default auto.
    pub reuse: Given<RawReuse>,
    /// Idle connections per tool and host; default 8.
    pub max_idle_per_host: Given<u32>,
    /// How long an idle one is kept; default 30s.
    pub idle_timeout: Given<Span>,
    /// How long any is kept; default 5m.
    pub max_age: Given<Span>,
}

/// `egress.pool.reuse`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawReuse {
    /// Always.
    Always,
    /// Except where a reused connection broke lately.
    Auto,
    /// Never.
    Never,
}
