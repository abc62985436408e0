//! The configuration file exactly as it is written: the one list of its keys, for reading and for its JSON Schema.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::{Given, List, OneOf};
use crate::config::leaf::{Size, Span, Verbatim};
use crate::config::profile::RawProfile;
use crate::config::raw_auth::{RawAuth, RawNoAuth};
use crate::config::raw_egress::RawEgress;
use crate::config::raw_limits::{RawBreaker, RawLimits, RawOff, RawRateLimit};
use crate::config::raw_notify::{RawNotifications, RawOrganisation};
use crate::config::raw_policy::RawPolicy;
use crate::config::raw_store::RawStorage;
use crate::config::raw_tool::{RawEffect, RawReference, RawTool};
use crate::config::raw_tracing::RawTracing;
use crate::config::read::Later;

/// Keys that a later version will have: they get their own message.
pub const LATER: &Later = &[
    ("RawConfig", &["builtin", "seal"]),
    ("RawApiListener", &["token"]),
    ("RawTelemetryListener", &["tls", "unix"]),
    ("RawLogging", &["calls"]),
    ("RawTool", &["action_only"]),
    ("RawToolPolicy", &["when"]),
];

/// Keys that an included file does not have: what they say holds for all files.
pub const MAIN_ONLY: &[&str] = &[
    "auth",
    "defaults",
    "dns",
    "egress",
    "include",
    "limits",
    "listeners",
    "logging",
    "metrics",
    "notifications",
    "organisations",
    "policies",
    "region",
    "shutdown",
    "storage",
    "strict",
    "tracing",
    "version",
];

/// Sortie's configuration file. YAML 1.2; JSON is a subset of it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Sortie configuration", extend("required" = ["version", "auth"]))]
pub struct RawConfig {
    /// The version of this format: 1.
    #[schemars(schema_with = "version_one")]
    pub version: Given<u32>,
    /// true: a missing secret stops the start or the reload. false (default): it makes that tool unavailable.
    pub strict: Given<bool>,
    /// Where Sortie listens. A change here needs a restart, everything else is hot.
    pub listeners: Given<RawListeners>,
    /// Who may call: `none` (loopback and Unix sockets only), or keys, certificates and tokens.
    pub auth: Given<OneOf<RawNoAuth, RawAuth>>,
    /// Which organisations there are: callers of one do not see the calls of another. Left out: `default` alone.
    pub organisations: List<RawOrganisation>,
    /// Further files, by names or patterns such as `tools.d/*.yaml` from this file's folder on. Each holds owner, runbook,
    /// secrets, tools, profiles and agents. A broken one keeps its last good tools, and the others go on.
    pub include: List<Verbatim>,
    /// Where the signing secrets of tools without `secret` are.
    pub secrets: Given<RawSecrets>,
    /// Where this gateway runs, for log lines.
    pub region: Given<String>,
    /// Where calls and approvals are kept; left out: in memory, so that a restart loses them.
    pub storage: Given<RawStorage>,
    /// What SIGTERM does.
    pub shutdown: Given<RawShutdown>,
    /// How names are looked up.
    pub dns: Given<RawDns>,
    /// Which hosts and addresses may be called, and how connections are made.
    pub egress: Given<RawEgress>,
    /// What holds for a tool that says nothing itself.
    pub defaults: Given<RawDefaults>,
    /// Limits of the gateway as a whole.
    pub limits: Given<RawLimits>,
    /// Which agents there are, and which tools each is offered; left out: every tool for every agent.
    pub agents: List<RawAgent>,
    /// An operator's own wire formats.
    pub profiles: List<RawProfile>,
    /// The tools.
    pub tools: List<RawTool>,
    /// Rules over many tools. They only tighten what a tool's own policy says.
    pub policies: List<RawPolicy>,
    /// By which ways people are told that a call waits for them, and of what goes wrong.
    pub notifications: Given<RawNotifications>,
    /// What is logged.
    pub logging: Given<RawLogging>,
    /// Where the time of calls goes, for a collector of traces.
    pub tracing: Given<RawTracing>,
    /// What is counted.
    pub metrics: Given<RawMetrics>,
}

/// A file that the configuration includes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Sortie tools")]
pub struct RawIncluded {
    /// Who answers for its tools, where a tool does not say it.
    pub owner: Given<String>,
    /// Where the operators' page about its tools is, where a tool does not say it.
    pub runbook: Given<String>,
    /// Where the signing secrets of its tools without `secret` are; left out: where the main file says.
    pub secrets: Given<RawSecrets>,
    /// Wire formats for its own tools.
    pub profiles: List<RawProfile>,
    /// Its tools.
    pub tools: List<RawTool>,
    /// Agents, with the tools that each is offered; the main file has a list too, which may be empty.
    pub agents: List<RawAgent>,
}

/// `secrets`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawSecrets {
    /// A folder. A tool NAME without `secret` is signed for with its file NAME.secret and, where there is one, with
    /// NAME.previous too.
    pub dir: Given<Verbatim>,
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
    /// For the operator: reload, drain, the configuration, the log's level. Off where it is left out.
    pub admin: Given<RawAdminListener>,
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
    /// TLS; left out: plain HTTP.
    pub tls: Given<RawServing>,
}

/// `listeners.api.tls`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["cert", "key"]))]
pub struct RawServing {
    /// A PEM file with the certificate and those between it and its root.
    pub cert: Given<RawReference>,
    /// A PEM file with its key: PKCS#8, PKCS#1 or SEC1.
    pub key: Given<RawReference>,
    /// A PEM file of the authorities whose client certificates are taken; left out: clients are not asked for one.
    pub client_ca: Given<RawReference>,
    /// Names of client certificates that may connect at all: DNS names or URIs, in which `*` stands for any run of
    /// characters; left out: every one that `client_ca` signed.
    pub client_names: List<String>,
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
    /// Bound on connections at the same time; default 256.
    pub max_connections: Given<u32>,
}

/// `listeners.admin`: a Unix socket, or loopback with a token.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["unix"]}, {"required": ["address", "token"]}]))]
pub struct RawAdminListener {
    /// A loopback address and port, such as `127.0.0.1:9478`.
    pub address: Given<Verbatim>,
    /// A Unix socket instead of an address.
    pub unix: Given<RawUnix>,
    /// The bearer token that an operator shows. Needed with an address.
    pub token: Given<RawReference>,
    /// Bound on connections at the same time; default 64.
    pub max_connections: Given<u32>,
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

/// `defaults`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawDefaults {
    /// Whether a call may run, where the tool does not say it; left out: the profile has the default.
    pub policy: Given<RawEffect>,
    /// Calls of one tool at the same time; default 256.
    #[schemars(range(min = 1, max = 100_000))]
    pub concurrency: Given<u32>,
    /// How often a tool may be called; default without limit.
    pub rate_limits: List<RawRateLimit>,
    /// How many gateways share the load: each has its part of every rate and burst; default 1.
    #[schemars(range(min = 1, max = 1000))]
    pub rate_limit_replicas: Given<u32>,
    /// When a tool that fails is not called for a while; `off`: never.
    pub breaker: Given<OneOf<RawOff, RawBreaker>>,
}

/// One agent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["id", "tools"]))]
pub struct RawAgent {
    /// What a call gives as `agent_id`.
    pub id: Given<String>,
    /// The tools that it is offered, as names or globs; `["*"]`: all.
    pub tools: List<String>,
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
