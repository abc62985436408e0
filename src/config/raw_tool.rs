//! A tool exactly as it is written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::config::given::{Entries, Given, List, OneOf};
use crate::config::leaf::{Moment, Size, Span, Verbatim};
use crate::config::raw_condition::RawCondition;
use crate::config::raw_limits::{RawBreaker, RawOff, RawRateLimit};
use crate::config::storage::Capture;
use crate::model::outcome::Effect;

/// One tool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "description"]))]
pub struct RawTool {
    /// The name, unique, in the profile's pattern.
    pub name: Given<String>,
    /// Who answers for it.
    pub owner: Given<String>,
    /// Where the operators' page about it is.
    pub runbook: Given<String>,
    /// What the model chooses by: 1 to 1000 characters.
    pub description: Given<String>,
    /// Only webhook in this version.
    pub kind: Given<RawKind>,
    /// The wire format; left out: the shipped envelope.
    pub profile: Given<String>,
    /// What the arguments must be: a JSON Schema. Left out: the tool takes none.
    pub parameters: Given<Value>,
    /// Another name of `parameters`.
    pub input: Given<Value>,
    /// Where the tool is: https and a public host.
    pub url: Given<Verbatim>,
    /// Another name of `url`.
    pub endpoint: Given<Verbatim>,
    /// Bound on one attempt; the profile has the default and the bounds.
    pub timeout: Given<Span>,
    /// `timeout` in seconds.
    #[serde(rename = "timeoutSeconds")]
    pub timeout_seconds: Given<u64>,
    /// `timeout` in milliseconds.
    pub timeout_ms: Given<u64>,
    /// Own headers, sent with every call: 10 at most.
    pub headers: Given<Entries<RawHeader>>,
    /// How the tool's server is told who calls, beside the signature.
    pub authentication: Given<RawToolAuthentication>,
    /// The certificate that is shown to the tool's server.
    pub client_certificate: Given<RawClientCertificate>,
    /// The signing secret.
    pub secret: Given<RawSecret>,
    /// Whether a call may run; the profile has the default.
    pub policy: Given<OneOf<RawEffect, RawToolPolicy>>,
    /// true: the person is asked before the call runs.
    pub ask_first: Given<bool>,
    /// What the tool does to the world.
    pub annotations: Given<RawAnnotations>,
    /// Bound on the result; at most the profile's.
    pub result_max_bytes: Given<Size>,
    /// How often it may be called: this list stands for that of `defaults`.
    pub rate_limits: List<RawRateLimit>,
    /// Calls of it at the same time; `defaults` has the default.
    #[schemars(range(min = 1, max = 100_000))]
    pub concurrency: Given<u32>,
    /// When it is not called for a while because it fails; keys that are left out are those of `defaults`.
    pub breaker: Given<OneOf<RawOff, RawBreaker>>,
    /// Header names that a call may bring a value for.
    pub accept_credentials: List<String>,
    /// Whether records of its calls have arguments and answers: full or none; left out: as `storage` says.
    pub capture: Given<Capture>,
    /// What is said to the person meanwhile: 200 characters at most.
    pub filler: Given<String>,
    /// true: its server is told the trace that the call belongs to, by the header `traceparent`; default false.
    pub forward_trace: Given<bool>,
    /// false turns the tool off; default true.
    pub enabled: Given<bool>,
}

/// A tool's kind.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawKind {
    /// A server that takes signed requests.
    Webhook,
}

/// A tool's signing secret: one key, or two while they overlap.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a mapping such as {current: {file: PATH}}")]
#[schemars(extend("required" = ["current"]))]
pub struct RawSecret {
    /// The key.
    pub current: Given<RawReference>,
    /// The key before, which signs too while both overlap.
    pub previous: Given<RawReference>,
    /// Which of the two stands last in the signature header: `previous` (default) and later `current`.
    pub last: Given<RawLast>,
    /// When the previous key stops signing; default 24h after both were first seen together, at most 7d ahead.
    pub previous_until: Given<Moment>,
}

/// Which key's signature stands last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawLast {
    /// The new one: receivers that read the last signature take it.
    Current,
    /// The old one: such receivers are not changed over yet.
    Previous,
}

/// Whether a call may run.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawEffect {
    /// It runs.
    Allow,
    /// The person is asked first.
    AskFirst,
    /// It does not run.
    Deny,
    /// An operator decides.
    RequireApproval,
}

impl RawEffect {
    /// What it means.
    pub fn effect(self) -> Effect {
        match self {
            Self::Allow => Effect::Allow,
            Self::AskFirst => Effect::AskFirst,
            Self::Deny => Effect::Deny,
            Self::RequireApproval => Effect::RequireApproval,
        }
    }
}

/// A tool's policy in its long form.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["effect"]))]
pub struct RawToolPolicy {
    /// What is in force.
    pub effect: Given<RawEffect>,
    /// A candidate that changes nothing but the report.
    pub shadow: Given<RawShadow>,
}

/// A candidate policy.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["effect"]))]
pub struct RawShadow {
    /// What it would say.
    pub effect: Given<RawEffect>,
    /// Of which calls: all of this holds of their arguments; left out: of each.
    pub when: List<RawCondition>,
}

/// `annotations`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAnnotations {
    /// It changes nothing.
    pub read_only: Given<bool>,
    /// It may destroy something.
    pub destructive: Given<bool>,
    /// A repeat does no harm.
    pub idempotent: Given<bool>,
}

/// Where a secret is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a reference: {file: PATH} or {env: NAME}")]
#[schemars(extend("oneOf" = [{"required": ["file"]}, {"required": ["env"]}]))]
pub struct RawReference {
    /// A file that holds it. A relative path starts at the configuration file's folder.
    pub file: Given<Verbatim>,
    /// A variable of the environment that holds it.
    pub env: Given<Verbatim>,
}

/// Where a header's value is.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a reference: {file: PATH} or {env: NAME}, with `prefix: \"Bearer \"` where the value has one"
)]
#[schemars(extend("oneOf" = [{"required": ["file"]}, {"required": ["env"]}]))]
pub struct RawHeader {
    /// A file that holds the value.
    pub file: Given<Verbatim>,
    /// A variable of the environment that holds the value.
    pub env: Given<Verbatim>,
    /// Stands before the value: `"Bearer "`.
    pub prefix: Given<Verbatim>,
}

/// How a tool's server is told who calls: one of the three.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a mapping with one of `bearer`, `basic` and `oauth2`"
)]
#[schemars(extend("oneOf" = [{"required": ["bearer"]}, {"required": ["basic"]}, {"required": ["oauth2"]}]))]
pub struct RawToolAuthentication {
    /// A token that is sent as it is: `Authorization: Bearer`.
    pub bearer: Given<RawReference>,
    /// A user and a password: `Authorization: Basic`.
    pub basic: Given<RawBasic>,
    /// A token that is fetched with a client's own credentials: `Authorization: Bearer`.
    pub oauth2: Given<RawOauth2>,
}

/// A user and a password.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a mapping such as {user: NAME, password: {file: PATH}}"
)]
#[schemars(extend("required" = ["user", "password"]))]
pub struct RawBasic {
    /// The user's name, without `:`.
    pub user: Given<Verbatim>,
    /// The password.
    pub password: Given<RawReference>,
}

/// OAuth2 client credentials.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a mapping such as {token_url: URL, client_id: ID, client_secret: {file: PATH}}"
)]
#[schemars(extend("required" = ["token_url", "client_id", "client_secret"]))]
pub struct RawOauth2 {
    /// Where tokens come from: under the same address rules as the tool itself.
    pub token_url: Given<Verbatim>,
    /// The client.
    pub client_id: Given<Verbatim>,
    /// The client's secret.
    pub client_secret: Given<RawReference>,
    /// Scopes that are asked for, separated by spaces.
    pub scope: Given<Verbatim>,
    /// The audience that is asked for, where the server wants one.
    pub audience: Given<Verbatim>,
    /// Where the secret stands: in a header (basic, default) or in the body (post).
    pub method: Given<RawMethod>,
}

/// How a client shows its secret to a token endpoint.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawMethod {
    /// In an `Authorization` header.
    Basic,
    /// In the body.
    Post,
}

/// A certificate that Sortie shows, and its key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a mapping such as {chain: {file: PATH}, key: {file: PATH}}"
)]
#[schemars(extend("required" = ["chain", "key"]))]
pub struct RawClientCertificate {
    /// PEM: the certificate, then those that lead to its root.
    pub chain: Given<RawReference>,
    /// PEM: its private key, unencrypted (PKCS#8, PKCS#1 or SEC1).
    pub key: Given<RawReference>,
}
