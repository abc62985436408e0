//! Profiles as data: the YAML of a wire format, checked and compiled.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::leaf::{Size, Span};
use crate::model::outcome::Effect;
use crate::policy::answer::ErrorBody;
use crate::policy::header::HeaderText;
use crate::policy::profile_fault::ProfileFault;
use crate::policy::retry::RetryPolicy;
use crate::policy::schema::Dialect;
use crate::policy::scheme::SchemeText;
use crate::policy::template::TemplateText;
use crate::policy::wire::{KeyForm, TimeoutBounds, WireProfile};
use crate::policy::wire_parts::WireParts;

/// The shipped profiles by name; the first is that of a tool which names none.
pub const BUILTIN_PROFILES: &[(&str, &str)] = &[
    ("envelope-v1", include_str!("../../config/profiles/envelope-v1.yaml")),
    ("bare-v1", include_str!("../../config/profiles/bare-v1.yaml")),
    ("standard-webhooks", include_str!("../../config/profiles/standard-webhooks.yaml")),
    ("plain-v1", include_str!("../../config/profiles/plain-v1.yaml")),
];

/// A wire format: its limits, its headers, its body and how it is signed.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawProfile {
    /// What tools call it by: a-z, 0-9 and `-`.
    pub name: String,
    /// A regular expression that the names of its tools match as a whole.
    pub names: String,
    /// Which JSON Schema its tools' parameters may use.
    pub schema: RawDialect,
    /// The policy of a tool that names none.
    pub policy: RawPolicy,
    /// Bounds on one attempt, from the name lookup to the last byte of the answer.
    pub timeout: RawTimeout,
    /// A longer result is cut.
    pub result_max_bytes: Size,
    /// How often, and after which failures, a request is sent again.
    pub retry: RawRetry,
    /// Which error bodies the model reads.
    #[serde(default)]
    pub error_body: RawErrorBody,
    /// Every header in order and letter case: `Host` first, `Content-Length` last, `$own` where the tool's own go.
    pub headers: Vec<HeaderText>,
    /// How `$idempotency_key` is written in a header.
    #[serde(default)]
    pub idempotency_key: KeyForm,
    /// The body: JSON with slots such as `$arguments`; `$slot?` leaves its key out when the call brings nothing for it.
    #[schemars(with = "serde_json::Value")]
    pub body: TemplateText,
    /// How the body is signed; absent: it is not.
    #[serde(default)]
    pub signature: Option<SchemeText>,
}

/// Which JSON Schema is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawDialect {
    /// JSON Schema 2020-12; no reference leaves the document.
    Full,
    /// A short list of keywords that every model provider takes.
    Subset,
}

/// Whether a call may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawPolicy {
    /// It runs.
    Allow,
    /// The person is asked first.
    AskFirst,
    /// It does not run.
    Deny,
    /// An operator decides.
    RequireApproval,
}

/// Bounds on one attempt.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTimeout {
    /// Where the tool says nothing.
    pub default: Span,
    /// The least that a tool may ask for.
    pub min: Span,
    /// The most that a tool may ask for.
    pub max: Span,
}

/// How often, and after which failures, a request is sent again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRetry {
    /// Attempts in all, the first one included.
    pub attempts: u32,
    /// `network`, `5xx` (all but 501 and 505), or a status. What is not safe to repeat is not repeated all the same.
    #[serde(default)]
    pub on: Vec<RawCondition>,
    /// Whether the tool can tell a repeat, by a key or id that is the same on every attempt.
    #[serde(default)]
    pub repeat_key: bool,
}

/// A failure after which a request is sent again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "`network`, `5xx` or a status such as 503")]
pub enum RawCondition {
    /// An answer with this status.
    Status(u16),
    /// `network` or `5xx`.
    Word(String),
}

/// Which error bodies the model reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum RawErrorBody {
    /// Those of 4xx answers.
    #[serde(rename = "4xx")]
    ClientErrors,
    /// None.
    #[default]
    #[serde(rename = "never")]
    Never,
}

/// Checks and compiles a profile; all faults at once.
pub fn compile(raw: &RawProfile) -> Result<WireProfile, Vec<ProfileFault>> {
    let mut retry = RetryPolicy {
        attempts: raw.retry.attempts,
        repeat_key: raw.retry.repeat_key,
        ..RetryPolicy::default()
    };
    let mut faults = Vec::new();
    for (at, condition) in raw.retry.on.iter().enumerate() {
        let wanted = match condition {
            RawCondition::Status(status) => retry.want(&status.to_string()),
            RawCondition::Word(word) => retry.want(word),
        };
        if let Err(unknown) = wanted {
            faults.push(ProfileFault::new(format!("retry.on[{at}]"), unknown.to_string()));
        }
    }
    let parts = WireParts {
        name: raw.name.clone(),
        names: raw.names.clone(),
        dialect: match raw.schema {
            RawDialect::Full => Dialect::Full,
            RawDialect::Subset => Dialect::Subset,
        },
        default_policy: match raw.policy {
            RawPolicy::Allow => Effect::Allow,
            RawPolicy::AskFirst => Effect::AskFirst,
            RawPolicy::Deny => Effect::Deny,
            RawPolicy::RequireApproval => Effect::RequireApproval,
        },
        timeout: TimeoutBounds {
            default: raw.timeout.default.0,
            min: raw.timeout.min.0,
            max: raw.timeout.max.0,
        },
        result_limit: raw.result_max_bytes.0,
        retry,
        error_body: match raw.error_body {
            RawErrorBody::ClientErrors => ErrorBody::ClientErrors,
            RawErrorBody::Never => ErrorBody::Never,
        },
        headers: raw.headers.clone(),
        key_form: raw.idempotency_key,
        body: raw.body.clone(),
        signature: raw.signature.clone(),
    };
    match parts.compile() {
        Ok(profile) if faults.is_empty() => Ok(profile),
        Ok(_) => Err(faults),
        Err(more) => Err(faults.into_iter().chain(more).collect()),
    }
}

/// The shipped profiles, compiled, in the order of [`BUILTIN_PROFILES`].
pub fn builtin() -> Vec<WireProfile> {
    let read = |&(name, yaml): &(&str, &str)| {
        let raw = serde_saphyr::from_str::<RawProfile>(yaml).expect(name);
        compile(&raw).expect(name)
    };
    BUILTIN_PROFILES.iter().map(read).collect()
}

#[cfg(test)]
mod tests;
