//! Profiles as data: the YAML of a wire format, checked and compiled.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::definition;
use crate::config::finding::{ConfigErrors, Finding, Report};
use crate::config::given::{Given, List};
use crate::config::leaf::{Size, Span};
use crate::config::raw_tool::RawEffect;
use crate::config::read;
use crate::config::redact;
use crate::config::yaml::{Document, NodeId};
use crate::policy::answer::ErrorBody;
use crate::policy::breaker::Trip;
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
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = [
    "name", "names", "schema", "policy", "timeout", "result_max_bytes", "retry", "headers", "body"
]))]
pub struct RawProfile {
    /// What tools call it by: a-z, 0-9 and `-`.
    pub name: Given<String>,
    /// A regular expression that the names of its tools match as a whole.
    pub names: Given<String>,
    /// Which JSON Schema its tools' parameters may use.
    pub schema: Given<RawDialect>,
    /// The policy of a tool that names none.
    pub policy: Given<RawEffect>,
    /// Bounds on one attempt, from the name lookup to the last byte of the answer.
    pub timeout: Given<RawTimeout>,
    /// A longer result is cut.
    pub result_max_bytes: Given<Size>,
    /// How often, and after which failures, a request is sent again.
    pub retry: Given<RawRetry>,
    /// After which answers a tool is not called for a while; left out: after none.
    pub circuit: Given<RawCircuit>,
    /// Which error bodies the model reads; default never.
    pub error_body: Given<RawErrorBody>,
    /// Every header in order and letter case: `Host` first, `Content-Length` last, `$own` where the tool's own go.
    pub headers: List<HeaderText>,
    /// How `$idempotency_key` is written in a header; default bare.
    pub idempotency_key: Given<KeyForm>,
    /// The body: JSON with slots such as `$arguments`; `$slot?` leaves its key out when the call brings nothing for it.
    #[schemars(with = "serde_json::Value")]
    pub body: Given<TemplateText>,
    /// How the body is signed; absent: it is not.
    pub signature: Given<SchemeText>,
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

/// Bounds on one attempt.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["default", "min", "max"]))]
pub struct RawTimeout {
    /// Where the tool says nothing.
    pub default: Given<Span>,
    /// The least that a tool may ask for.
    pub min: Given<Span>,
    /// The most that a tool may ask for.
    pub max: Given<Span>,
}

/// How often, and after which failures, a request is sent again.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["attempts"]))]
pub struct RawRetry {
    /// Attempts in all, the first one included.
    #[schemars(range(min = 1, max = 10))]
    pub attempts: Given<u32>,
    /// `network`, `5xx` (all but 501 and 505), or a status. What is not safe to repeat is not repeated all the same.
    pub on: List<RawCondition>,
    /// Whether the tool can tell a repeat, by a key or id that is the same on every attempt.
    pub repeat_key: Given<bool>,
}

/// Answers after which a tool is not called for a while.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["open_on", "for"]))]
pub struct RawCircuit {
    /// The statuses, from 400 to 599.
    pub open_on: List<u16>,
    /// How long the tool is not called, unless its breaker is off.
    #[serde(rename = "for")]
    pub lasts: Given<Span>,
}

/// A failure after which a request is sent again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "must be `network`, `5xx` or a status such as 503")]
pub enum RawCondition {
    /// An answer with this status.
    Status(u16),
    /// `network` or `5xx`.
    Word(String),
}

/// Which error bodies the model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum RawErrorBody {
    /// Those of 4xx answers.
    #[serde(rename = "4xx")]
    ClientErrors,
    /// None.
    #[serde(rename = "never")]
    Never,
}

/// Compiles a profile that stands at `node`, and reports whatever is wrong. Where a field could not be read there is no
/// profile, and what the fields mean together is not judged.
pub fn compile(report: &Report<'_>, node: NodeId, raw: &RawProfile) -> Option<WireProfile> {
    let fields = Fields { report, map: node };
    let name = fields.required("name", &raw.name);
    let names = fields.required("names", &raw.names);
    let schema = fields.required("schema", &raw.schema);
    let policy = fields.required("policy", &raw.policy);
    let timeout = fields.required("timeout", &raw.timeout).zip(raw.timeout.node());
    let timeout = timeout.and_then(|(raw, map)| timeout_bounds(&Fields { report, map }, raw));
    let result_max_bytes = fields.required("result_max_bytes", &raw.result_max_bytes);
    let retry = fields.required("retry", &raw.retry).zip(raw.retry.node());
    let retry = retry.and_then(|(raw, map)| retry_policy(&Fields { report, map }, raw));
    let circuit = match raw.circuit.node() {
        Some(map) => raw.circuit.get().and_then(|raw| trip(&Fields { report, map }, raw)).map(Some),
        None => Some(None),
    };
    let headers = fields.required("headers", &raw.headers).and_then(|list| every(list));
    let body = fields.required("body", &raw.body);
    let parts = WireParts {
        name: name?.clone(),
        definition: definition::of(&redact::part(report.document, node)),
        names: names?.clone(),
        dialect: match schema? {
            RawDialect::Full => Dialect::Full,
            RawDialect::Subset => Dialect::Subset,
        },
        default_policy: policy?.effect(),
        timeout: timeout?,
        result_limit: result_max_bytes?.0,
        retry: retry?,
        circuit: circuit?,
        error_body: match optional(&raw.error_body)? {
            Some(RawErrorBody::ClientErrors) => ErrorBody::ClientErrors,
            Some(RawErrorBody::Never) | None => ErrorBody::Never,
        },
        headers: headers?,
        key_form: optional(&raw.idempotency_key)?.unwrap_or_default(),
        body: body?.clone(),
        signature: optional(&raw.signature)?,
    };
    let report_fault = |fault: ProfileFault| report.error_at_path(node, &fault.path, fault.message);
    parts.compile().map_err(|faults| faults.into_iter().for_each(report_fault)).ok()
}

/// Compiles a profile that is a document of its own.
pub fn parse(file: &str, yaml: &str) -> Result<WireProfile, ConfigErrors> {
    let (document, faults) = Document::parse(yaml);
    let faults = faults.into_iter().map(|fault| Finding::of_fault(file, fault)).collect();
    let Some(document) = document else {
        return Err(ConfigErrors { errors: faults, warnings: Vec::new() });
    };
    let report = Report::new(file.to_owned(), faults, &document);
    let raw: Given<RawProfile> = read::read(&report, &[]);
    let profile = raw.found().and_then(|(raw, node)| compile(&report, node, raw));
    let (errors, warnings) = report.into_findings();
    match profile {
        Some(profile) if errors.is_empty() => Ok(profile),
        _ => Err(ConfigErrors { errors, warnings }),
    }
}

/// The shipped profiles, compiled, in the order of [`BUILTIN_PROFILES`].
pub fn builtin() -> Vec<WireProfile> {
    BUILTIN_PROFILES.iter().map(|(name, yaml)| parse(name, yaml).expect(name)).collect()
}

/// The fields of one mapping.
struct Fields<'r> {
    report: &'r Report<'r>,
    map: NodeId,
}

impl Fields<'_> {
    /// A field that has to be there; `None` where it is not or is wrong, both reported.
    fn required<'g, T>(&self, key: &str, given: &'g Given<T>) -> Option<&'g T> {
        if given.node().is_none() {
            self.report.missing(self.map, key, "is missing");
        }
        given.get()
    }
}

/// A field that may be absent; `None` where it is wrong, which is reported.
fn optional<T: Clone>(given: &Given<T>) -> Option<Option<T>> {
    match (given.node(), given.get()) {
        (Some(_), None) => None,
        (_, value) => Some(value.cloned()),
    }
}

/// The items of a list; `None` where one is wrong, which is reported.
fn every<T: Clone>(list: &[Given<T>]) -> Option<Vec<T>> {
    let items = list.iter().map(optional).collect::<Option<Vec<_>>>()?;
    Some(items.into_iter().flatten().collect())
}

fn timeout_bounds(fields: &Fields<'_>, raw: &RawTimeout) -> Option<TimeoutBounds> {
    let [default, min, max] = [("default", &raw.default), ("min", &raw.min), ("max", &raw.max)]
        .map(|(key, given)| fields.required(key, given));
    Some(TimeoutBounds { default: default?.0, min: min?.0, max: max?.0 })
}

fn retry_policy(fields: &Fields<'_>, raw: &RawRetry) -> Option<RetryPolicy> {
    let attempts = fields.required("attempts", &raw.attempts);
    let repeat_key = optional(&raw.repeat_key);
    let list = optional(&raw.on)?.unwrap_or_default();
    let mut policy = RetryPolicy::default();
    for (condition, node) in list.iter().filter_map(Given::found) {
        let wanted = match condition {
            RawCondition::Status(status) => policy.want(&status.to_string()),
            RawCondition::Word(word) => policy.want(word),
        };
        if let Err(unknown) = wanted {
            fields.report.error(node, unknown.to_string());
        }
    }
    every(&list)?;
    Some(RetryPolicy {
        attempts: *attempts?,
        repeat_key: repeat_key?.unwrap_or_default(),
        ..policy
    })
}

fn trip(fields: &Fields<'_>, raw: &RawCircuit) -> Option<Trip> {
    let statuses = fields.required("open_on", &raw.open_on).and_then(|list| every(list));
    let lasts = fields.required("for", &raw.lasts);
    Some(Trip { statuses: statuses?.into_iter().collect(), lasts: lasts?.0 })
}

#[cfg(test)]
mod tests;
