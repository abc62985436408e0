//! The immutable compiled configuration: what one call reads from beginning to end.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::config::client_identity::ClientIdentity;
use crate::config::context::{Earlier, Source};
use crate::config::file::{File, Unread};
use crate::config::finding::Finding;
use crate::config::listening::{Listeners, Operators, Serving};
use crate::config::local::Local;
use crate::config::notifications::Notifications;
use crate::config::signing::Signing;
use crate::config::storage::{Capture, Storage};
use crate::config::tracing::Tracing;
use crate::model::id::ToolName;
use crate::model::secret::Secret;
use crate::policy::address::EgressRules;
use crate::policy::agents::Agents;
use crate::policy::approval::ToolPolicy;
use crate::policy::authentication::Authentication;
use crate::policy::breaker;
use crate::policy::endpoint::Endpoint;
use crate::policy::export::{self, Exports};
use crate::policy::mail::MailAddress;
use crate::policy::oauth2::TokenSource;
use crate::policy::quota::RateLimit;
use crate::policy::rules::Policy;
use crate::policy::schema::ArgumentSchema;
use crate::policy::wire::{OwnHeader, WireProfile};

/// Everything that the configuration says, checked and compiled. It is never edited, only replaced.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts the configurations of this process, so that connections of an older one are told apart.
    pub generation: u64,
    /// SHA-256 of the configuration text, 16 hex digits: tells two configurations apart in logs and metrics.
    pub hash: String,
    /// The tools by name.
    pub tools: HashMap<ToolName, Arc<Tool>>,
    /// The names of those that providers know by another one, by that one.
    pub exported: HashMap<String, ToolName>,
    /// Which agent is offered which of them.
    pub agents: Agents,
    /// The policies over many tools, in the order of the file.
    pub policies: Vec<Arc<Policy>>,
    /// Tools of broken files, of which only the names are known.
    pub unread: HashMap<ToolName, Unread>,
    /// The files that it was made of: first those of the command line, then those that these include.
    pub files: Vec<File>,
    /// Which organisations there are, in the order of the file.
    pub organisations: Vec<Organisation>,
    /// Who may call.
    pub authentication: Authentication,
    /// Which hosts and addresses may be called.
    pub egress: Arc<EgressRules>,
    /// Where Sortie listens.
    pub listeners: Listeners,
    /// Whom the admin listener serves.
    pub operators: Operators,
    /// TLS of the api listener.
    pub serving: Serving,
    /// How names are looked up.
    pub dns: DnsSettings,
    /// How tools' certificates are checked.
    pub tls: TlsSettings,
    /// Bound on one TCP connect.
    pub connect_timeout: Duration,
    /// How connections are kept.
    pub pool: PoolSettings,
    /// `limits.max_calls_in_flight`: calls that are sent, and bodies that are read, at the same time.
    pub max_calls_in_flight: usize,
    /// How many calls make a round, and how many rounds a reply.
    pub rounds: Rounds,
    /// How long calls wait.
    pub waiting: Waiting,
    /// Where calls and approvals are kept.
    pub storage: Storage,
    /// By which ways people are told.
    pub notifications: Notifications,
    /// Through which proxy they leave; which of them, and what it judges, the rules know.
    pub proxy: Option<Proxy>,
    /// What SIGTERM does.
    pub shutdown: Shutdown,
    /// What is logged.
    pub logging: Logging,
    /// What local development forces, where it does.
    pub local: Option<Local>,
    /// Spans of calls, where they are made.
    pub tracing: Option<Tracing>,
    /// `metrics.per_tool`.
    pub metrics_per_tool: bool,
    /// `region`, written into log lines.
    pub region: Option<String>,
    /// The file as an operator may see it: secrets are references, digests and queries of URLs are left out.
    pub redacted: serde_json::Value,
    /// What `check` would say: something works but looks wrong.
    pub warnings: Vec<Finding>,
}

impl Snapshot {
    /// What the next configuration takes over from this one, with the secrets that were read for it.
    pub fn earlier(&self, secrets: HashMap<Source, Secret>) -> Earlier {
        let overlaps = self.tools.values().filter_map(|tool| {
            let overlap = tool.signing.overlap.as_ref()?;
            Some(((tool.name.to_string(), overlap.pair), overlap.since))
        });
        let texts = self.files.iter().filter_map(|file| {
            let good = file.good.clone()?;
            Some((file.name.clone(), good))
        });
        Earlier::new(secrets, overlaps.collect(), texts.collect())
    }

    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tools.get(name)
    }

    /// The tool of this name, or the one that providers know by it.
    pub fn tool_by_any_name(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tool(name).or_else(|| self.tools.get(self.exported.get(name)?))
    }

    /// The tool of a broken file that has this name, or that providers know by it.
    pub fn unread_by_any_name(&self, name: &str) -> Option<&ToolName> {
        let own = self.unread.get_key_value(name).map(|(tool, _)| tool);
        own.or_else(|| self.unread.keys().find(|tool| export::name(tool.as_str()) == name))
    }

    /// Who answers for a tool, where that is known.
    pub fn owner(&self, name: &str) -> Option<&str> {
        let unread = || self.unread.get(name)?.owner.as_deref();
        self.tools.get(name).map_or_else(unread, |tool| tool.owner.as_deref())
    }

    /// What is wrong with included files, while the rest works.
    pub fn file_errors(&self) -> impl Iterator<Item = &Finding> {
        self.files.iter().flat_map(|file| &file.errors)
    }
}

/// One organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Organisation {
    /// Its name.
    pub id: String,
    /// The mail addresses of those who answer for it.
    pub admins: Vec<MailAddress>,
}

/// One tool, compiled.
#[derive(Debug)]
pub struct Tool {
    /// `tl_…`, from organisation and name.
    pub id: String,
    /// The name.
    pub name: ToolName,
    /// What the model chooses by.
    pub description: String,
    /// Who answers for it.
    pub owner: Option<String>,
    /// Where the operators' page about it is.
    pub runbook: Option<String>,
    /// The file that it stands in, from the main file's folder on.
    pub file: Arc<str>,
    /// Where in that file: `tools[2]`.
    pub path: String,
    /// Whether it may be called at all.
    pub enabled: bool,
    /// The wire format.
    pub profile: Arc<WireProfile>,
    /// Where it is.
    pub endpoint: Endpoint,
    /// SHA-256 over what it is: what a call of it means and where it goes. A secret's value is no part of it.
    pub definition_digest: [u8; 32],
    /// SHA-256 over everything that decides where its connections go and how: they are kept for as long as it is the same.
    pub route_digest: [u8; 32],
    /// `parameters` as JSON text, keys and numbers as the file has them; none: it takes no arguments.
    pub parameters: Option<Arc<RawValue>>,
    /// What it is to providers of models.
    pub exports: Exports,
    /// What its arguments must be.
    pub arguments: ArgumentSchema,
    /// Own headers: that of `authentication`, where it stays the same, then those of `headers` in their order.
    pub headers: Vec<OwnHeader>,
    /// The names of these headers and of a fetched token's, in this order, where a value could not be read too.
    pub header_names: Vec<String>,
    /// Where the token of each request comes from.
    pub tokens: Option<Arc<TokenSource>>,
    /// The certificate that its server is shown.
    pub identity: Option<Arc<ClientIdentity>>,
    /// Whether its server is told the trace.
    pub forward_trace: bool,
    /// Header names that a call may bring a value for.
    pub accept_credentials: Vec<String>,
    /// The signing keys; none where the profile does not sign, or where the tool is unavailable.
    pub signing: Signing,
    /// Bound on one attempt.
    pub timeout: Duration,
    /// Bound on the result, in bytes.
    pub result_limit: usize,
    /// Whether a call may run.
    pub policy: ToolPolicy,
    /// `ask_first`, which the policy holds already.
    pub ask_first: bool,
    /// The policies over many tools that are about it.
    pub policies: Vec<Arc<Policy>>,
    /// What of its calls is kept.
    pub capture: Capture,
    /// How often, and how many at once.
    pub limits: ToolLimits,
    /// `annotations.destructive`: it may destroy something.
    pub destructive: bool,
    /// `annotations.idempotent`: a repeat does no harm.
    pub idempotent: bool,
    /// `annotations.read_only`: it changes nothing.
    pub read_only: bool,
    /// What is said to the person meanwhile.
    pub filler: Option<String>,
    /// As an operator may see it in the file: what is left out there is absent, and secrets are references.
    pub written: serde_json::Value,
    /// Why the tool cannot be called, where it cannot.
    pub unavailable: Option<Unavailable>,
}

/// How many calls make a round, and how many rounds a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounds {
    /// Calls that one round may run at the same time.
    pub calls_per_round: u32,
    /// Rounds before a reply.
    pub max_rounds: u32,
}

/// How long calls wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// For the person to confirm.
    pub confirm_for: Duration,
    /// Approved, for limits, a place and the circuit.
    pub dispatch_within: Duration,
}

/// How often a tool may be called, how many calls of it may run, and when it is not called for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolLimits {
    /// Calls at the same time.
    pub concurrency: usize,
    /// In the order of the file.
    pub rates: Vec<RateLimit>,
    /// `None`: it is called however often it fails.
    pub breaker: Option<breaker::Settings>,
}

/// Why a tool cannot be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    /// The exception that opened its address is past its last day.
    ExceptionEnded,
    /// A secret cannot be read: which and why, for the operator.
    NoSecret(String),
}

impl Unavailable {
    /// What the operator reads.
    pub fn reason(&self) -> String {
        match self {
            Self::ExceptionEnded => {
                "the exception that opened its address is past its last day".to_owned()
            }
            Self::NoSecret(reason) => reason.clone(),
        }
    }

    /// What a model may read: no names, no places.
    pub fn sentence(&self) -> &'static str {
        match self {
            Self::ExceptionEnded => "The tool is not configured: its exception ended.",
            Self::NoSecret(_) => "The tool is not configured: a secret of it is missing.",
        }
    }
}

/// How names are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSettings {
    /// The servers, in order; `system` is already replaced by what resolv.conf names.
    pub servers: Vec<SocketAddr>,
    /// Bound on one query.
    pub timeout: Duration,
    /// Queries per server and lookup.
    pub attempts: u32,
    /// Cap on how long an answer is kept.
    pub max_ttl: Duration,
    /// Cap on how many names are kept.
    pub max_entries: usize,
}

/// How tools' certificates are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// `1.2` admits TLS 1.2 and 1.3, `1.3` only the latter.
    pub min_version: TlsVersion,
    /// Which roots are trusted.
    pub roots: Roots,
    /// PEM text of further roots, already read.
    pub extra_ca: Option<String>,
}

/// A TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V12,
    /// TLS 1.3.
    V13,
}

/// Which root certificates are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roots {
    /// The operating system's.
    System,
    /// Mozilla's, compiled in.
    Webpki,
}

/// A proxy that opens tunnels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its scheme, host and port.
    pub endpoint: Endpoint,
    /// The value of `Proxy-Authorization`.
    pub authorization: Option<Secret>,
    /// PEM text of further roots for its own certificate.
    pub extra_ca: Option<String>,
}

/// How connections are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// Whether they are kept.
    pub reuse: Reuse,
    /// Idle connections per pool key.
    pub max_idle_per_host: usize,
    /// How long an idle one is kept.
    pub idle_timeout: Duration,
    /// How long any is kept, so that DNS moves are followed.
    pub max_age: Duration,
}

/// Whether connections are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Yes, even where a reused one broke lately.
    Always,
    /// Yes; an endpoint whose reused connection broke under a written request gets fresh ones for ten minutes.
    Auto,
    /// No.
    Never,
}

/// What SIGTERM does.
#[derive(Debug, Clone)]
pub struct Shutdown {
    /// How long new calls are still taken.
    pub accept_for: Duration,
    /// How long calls in flight may take to finish.
    pub grace: Duration,
}

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logging {
    /// The least severe level that is written.
    pub level: LogLevel,
    /// Whether lines are JSON or text.
    pub json: bool,
}

/// A severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Per attempt.
    Trace,
    /// Inside a call.
    Debug,
    /// Start, stop, the line of each call.
    Info,
    /// Unexpected, handled.
    Warn,
    /// A person must act.
    Error,
}
