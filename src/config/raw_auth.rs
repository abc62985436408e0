//! `auth` exactly as it is written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::{Given, List};
use crate::config::leaf::{Day, Verbatim};

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
