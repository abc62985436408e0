//! `auth` exactly as it is written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::{Entries, Given, List, OneOf};
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
#[schemars(extend("anyOf" = [{"required": ["keys"]}, {"required": ["certs"]}, {"required": ["jwt"]}]))]
pub struct RawAuth {
    /// Bearer keys.
    pub keys: List<RawKey>,
    /// Client certificates; `listeners.api.tls.client_ca` says who signs them.
    pub certs: List<RawCert>,
    /// Issuers of tokens.
    pub jwt: List<RawIssuer>,
}

/// One bearer key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "scopes", "key"]))]
pub struct RawKey {
    /// Stands in log lines.
    pub name: Given<String>,
    /// One of `organisations`; default `default`.
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

/// A client certificate, known by a name in it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "san", "scopes"]))]
pub struct RawCert {
    /// Stands in log lines.
    pub name: Given<String>,
    /// One of `organisations`; default `default`.
    pub organisation: Given<String>,
    /// The subject alternative name: a DNS name or a URI, in which `*` stands for any run of characters.
    pub san: Given<String>,
    /// What it may do.
    pub scopes: List<RawScope>,
    /// Agents that it may speak for, as names or globs; left out: any.
    pub agents: List<String>,
    /// Tools that it may call, as names or globs; left out: any.
    pub tools: List<String>,
}

/// Somebody whose tokens are taken.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["issuer", "audiences", "jwks", "scopes"]))]
pub struct RawIssuer {
    /// What `iss` must be, to the letter.
    pub issuer: Given<Verbatim>,
    /// One of these must stand in `aud`.
    pub audiences: List<String>,
    /// Where its public keys are.
    pub jwks: Given<RawKeySet>,
    /// One of `organisations`; default `default`.
    pub organisation: Given<String>,
    /// The claim that names the agents that a token may speak for; left out: any agent. A claim that begins with `/` is a
    /// JSON pointer.
    pub agent: Given<String>,
    /// The claim that holds scopes, or a claim whose values stand for scopes.
    pub scopes: Given<OneOf<String, RawScopeMap>>,
}

/// Where a set of public keys is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a reference: {file: PATH} or {url: URL}")]
#[schemars(extend("oneOf" = [{"required": ["file"]}, {"required": ["url"]}]))]
pub struct RawKeySet {
    /// A file that holds it.
    pub file: Given<Verbatim>,
    /// An https URL, fetched by the rules of `egress`; an exception names it as the tool `_jwks`.
    pub url: Given<Verbatim>,
}

/// A claim whose values stand for scopes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["claim", "values"]))]
pub struct RawScopeMap {
    /// The claim. One that begins with `/` is a JSON pointer.
    pub claim: Given<String>,
    /// Its values, each with the scopes that it stands for.
    pub values: Given<Entries<Vec<Given<RawScope>>>>,
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
