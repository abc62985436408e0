//! The configuration file exactly as it is written: the one list of its keys, for reading and for its JSON Schema.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::{Given, List, OneOf};
use crate::config::leaf::{Day, Ports, Size, Span, Verbatim};
use crate::config::profile::RawProfile;
use crate::config::raw_tool::{RawReference, RawTool};
use crate::config::read::Later;

/// Keys that a later version will have: they get their own message.
pub const LATER: &Later = &[
    (
        "RawConfig",
        &[
            "agents",
            "breaker",
            "builtin",
            "concurrency",
            "defaults",
            "include",
            "limits",
            "notifications",
            "organisations",
            "policies",
            "rate_limits",
            "seal",
            "secrets",
            "storage",
            "tracing",
        ],
    ),
    ("RawListeners", &["admin"]),
    ("RawApiListener", &["tls", "token"]),
    ("RawTelemetryListener", &["max_connections", "tls", "unix"]),
    ("RawAuth", &["certs", "jwt"]),
    ("RawEgress", &["proxy"]),
    ("RawLogging", &["calls"]),
    (
        "RawTool",
        &[
            "action_only",
            "authentication",
            "breaker",
            "capture",
            "client_certificate",
            "concurrency",
            "forward_trace",
            "rate_limits",
        ],
    ),
    ("RawToolPolicy", &["when"]),
    ("RawShadow", &["when"]),
];

/// Sortie's configuration file. YAML 1.2; JSON is a subset of it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Sortie configuration", extend("required" = ["version", "auth"]))]
pub struct RawConfig {
    /// The version of this format: 1.
    #[schemars(schema_with = "version_one")]
    pub version: Given<u32>,
    /// true: a missing secret stops the start. false (default): it makes that tool unavailable.
    pub strict: Given<bool>,
    /// Where Sortie listens. A change here needs a restart.
    pub listeners: Given<RawListeners>,
    /// Who may call: `none` (loopback and Unix sockets only) or keys.
    pub auth: Given<OneOf<RawNoAuth, RawAuth>>,
    /// Where this gateway runs, for log lines.
    pub region: Given<String>,
    /// What SIGTERM does.
    pub shutdown: Given<RawShutdown>,
    /// How names are looked up.
    pub dns: Given<RawDns>,
    /// Which hosts and addresses may be called, and how connections are made.
    pub egress: Given<RawEgress>,
    /// An operator's own wire formats.
    pub profiles: List<RawProfile>,
    /// The tools.
    pub tools: List<RawTool>,
    /// What is logged.
    pub logging: Given<RawLogging>,
    /// What is counted.
    pub metrics: Given<RawMetrics>,
}

fn version_one(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"const": 1})
}

/// `listeners`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawListeners {
    /// Calls.
    pub api: Given<RawApiListener>,
    /// Metrics and probes.
    pub telemetry: Given<RawTelemetryListener>,
}

/// `listeners.api`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawApiListener {
    /// Address and port; default `127.0.0.1:8477`. `:8477` is all interfaces.
    pub address: Given<Verbatim>,
    /// A Unix socket instead of an address.
    pub unix: Given<RawUnix>,
    /// Bound on a request's body; default 1MiB.
    pub max_body: Given<Size>,
    /// Bound on the time for a request's head; default 5s.
    pub header_timeout: Given<Span>,
    /// How long a kept connection may be idle; default 60s.
    pub idle_timeout: Given<Span>,
    /// Bound on connections at the same time; default 10000.
    pub max_connections: Given<u32>,
}

/// A Unix socket.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub struct RawUnix {
    /// The socket's path.
    pub path: Given<Verbatim>,
    /// Permission bits in quotes; default "0600".
    pub mode: Given<String>,
}

/// `listeners.telemetry`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTelemetryListener {
    /// Address and port; default `:9477`, all interfaces.
    pub address: Given<Verbatim>,
}

/// `auth: none`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawNoAuth {
    /// Nobody is asked for a key.
    None,
}

/// `auth`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["keys"]))]
pub struct RawAuth {
    /// Bearer keys.
    pub keys: List<RawKey>,
}

/// One bearer key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "scopes", "key"]))]
pub struct RawKey {
    /// Stands in log lines.
    pub name: Given<String>,
    /// `default` is the only organisation in this version.
    pub organisation: Given<String>,
    /// What it may do.
    pub scopes: List<RawScope>,
    /// Agents that it may speak for, as names or globs; left out: any.
    pub agents: List<String>,
    /// Tools that it may call, as names or globs; left out: any.
    pub tools: List<String>,
    /// The key.
    pub key: Given<RawKeyValue>,
    /// The key before, while callers change over.
    pub previous: Given<RawKeyValue>,
    /// The last day on which it is taken, UTC.
    pub expires: Given<Day>,
}

/// A scope.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub enum RawScope {
    /// Read.
    #[serde(rename = "agent")]
    Agent,
    /// Decide on waiting calls.
    #[serde(rename = "agent:approve")]
    Approve,
    /// Run calls.
    #[serde(rename = "agent:call")]
    Call,
    /// Change policies.
    #[serde(rename = "agent:policy")]
    Policy,
    /// Manage tools.
    #[serde(rename = "agent:write")]
    Write,
}

/// Where a bearer key is, or its SHA-256.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a reference: {file: PATH}, {env: NAME} or {sha256: HEX}"
)]
#[schemars(extend("oneOf" = [{"required": ["file"]}, {"required": ["env"]}, {"required": ["sha256"]}]))]
pub struct RawKeyValue {
    /// A file that holds it.
    pub file: Given<Verbatim>,
    /// A variable of the environment that holds it.
    pub env: Given<Verbatim>,
    /// SHA-256 of the key, 64 hex digits. It may live in version control.
    pub sha256: Given<Verbatim>,
}

/// `shutdown`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawShutdown {
    /// How long new calls are still taken after SIGTERM; default 0s.
    pub accept_for: Given<Span>,
    /// How long calls in flight may take to finish; default 25s.
    pub grace: Given<Span>,
}

/// `dns`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawDns {
    /// `system` (the name servers of resolv.conf), or addresses with or without a port; by default `system` alone.
    pub servers: List<String>,
    /// Bound on one query; default 2s.
    pub timeout: Given<Span>,
    /// Queries per server and lookup; default 2.
    #[schemars(range(min = 1, max = 10))]
    pub attempts: Given<u32>,
    /// How long answers are kept.
    pub cache: Given<RawDnsCache>,
}

/// `dns.cache`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawDnsCache {
    /// Cap on an answer's own time to live; default and at most 60s.
    pub max_ttl: Given<Span>,
    /// Cap on how many names are kept; default 1024.
    pub max_entries: Given<u32>,
}

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

/// `logging`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawLogging {
    /// The least severe level that is written; default info.
    pub level: Given<RawLevel>,
    /// json (default) or text.
    pub format: Given<RawFormat>,
}

/// `logging.level`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawLevel {
    /// Per attempt.
    Trace,
    /// Inside a call.
    Debug,
    /// Start, stop and the line of each call.
    Info,
    /// Unexpected, handled.
    Warn,
    /// A person must act.
    Error,
}

/// `logging.format`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// `metrics`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawMetrics {
    /// false folds the tool label away; default true.
    pub per_tool: Given<bool>,
}
