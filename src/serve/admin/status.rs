//! How a running gateway stands, as `GET /status` writes it and `sortie status` reads it.
//!
//! Another version may leave fields out or have more of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How the gateway stands.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// This build.
    pub version: String,
    /// The configuration in force.
    pub hash: String,
    /// Counts the configurations of this process.
    pub generation: u64,
    /// Whether it takes calls.
    pub ready: bool,
    /// Whether it ends.
    pub draining: bool,
    /// Calls that run.
    pub calls_in_flight: i64,
    /// `limits.max_calls_in_flight`.
    pub calls_in_flight_limit: i64,
    /// Connections to tools that are open.
    pub upstream_connections_open: u64,
    /// Tasks of the runtime that are alive.
    pub tasks: usize,
    /// The last reload since the start.
    pub reload: Option<LastReload>,
    /// The files of the configuration that are broken.
    pub broken_files: Vec<BrokenFile>,
    /// Of each tool its circuit: closed, open, half_open or off.
    pub circuits: BTreeMap<String, String>,
    /// The tools.
    pub tools: BTreeMap<String, ToolStatus>,
}

/// A file whose text is not in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BrokenFile {
    /// The file, from the main file's folder on.
    pub file: String,
    /// kept (its tools are those of its last good text) or unavailable.
    pub tools: String,
    /// Everything that is wrong with it.
    pub findings: Vec<String>,
}

/// What became of a reload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastReload {
    /// applied, unchanged, invalid or needs_restart: the label of `config_reloads_total`.
    pub result: String,
    /// What asked for it: admin, poll, signal or watch.
    pub trigger: String,
    /// When it ended.
    pub at: String,
    /// Why nothing was changed, or what looks wrong.
    pub findings: Vec<String>,
}

/// How a tool stands.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolStatus {
    /// Whether it is turned on.
    pub enabled: bool,
    /// Who answers for it.
    pub owner: Option<String>,
    /// Where the operators' page about it is.
    pub runbook: Option<String>,
    /// Its wire profile.
    pub profile: String,
    /// What its policy says of a call.
    pub policy: String,
    /// Why it cannot be called, where it cannot: for the operator.
    pub unavailable: Option<String>,
    /// closed, open, half_open or off.
    pub circuit: String,
    /// How long an open circuit stays open, in milliseconds.
    pub circuit_wait_ms: u64,
    /// How long the tool asked not to be called, in milliseconds.
    pub pause_ms: u64,
    /// Its calls that run.
    pub calls_in_flight: usize,
    /// How many may.
    pub concurrency: usize,
    /// Its rate limits, in words.
    pub rate_limits: Vec<String>,
    /// Calls that succeeded since the start.
    pub succeeded: u64,
    /// Calls that failed or were refused since the start.
    pub unsuccessful: u64,
    /// When the last one succeeded.
    pub succeeded_at: Option<String>,
    /// The last that did not, five at most, the latest first.
    pub failures: Vec<FailureStatus>,
}

/// A call that did not succeed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureStatus {
    /// When it ended.
    pub at: String,
    /// Which call.
    pub call_id: String,
    /// Which failure.
    pub code: String,
    /// The finer code.
    pub detail: Option<String>,
    /// The answer's status, where there was one.
    pub status: Option<u16>,
    /// The sentence that the model read.
    pub message: String,
    /// What the log says of it, with addresses.
    pub reason: Option<String>,
}
