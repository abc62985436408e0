//! Compiles `tracing`, together with the variables that OpenTelemetry defines: the file counts before them.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use crate::config::context::{Context, SecretProblem};
use crate::config::given::{Entries, Given};
use crate::config::leaf::Verbatim;
use crate::config::raw_tool::RawHeader;
use crate::config::raw_tracing::{RawOtlp, RawTracing};
use crate::config::storage::Capture;
use crate::config::variables::Variables;
use crate::config::yaml::NodeId;
use crate::model::secret::Secret;
use crate::policy::endpoint::Endpoint;
use crate::policy::sampling::Sampling;
use crate::policy::wire::{HeaderError, OwnHeader};

/// What is recorded where nobody says it.
const DEFAULT: Sampling = Sampling { ratio: 0.05, heeds_parent: true };
/// Where collectors take traces.
const TRACES: &str = "/v1/traces";
const SERVICE_NAME: &str = "service.name";

/// Spans of calls, and where they go.
#[derive(Debug)]
pub struct Tracing {
    /// The collector.
    pub endpoint: Endpoint,
    /// Headers of each export.
    pub headers: Vec<OwnHeader>,
    /// Which traces are recorded.
    pub sampling: Sampling,
    /// Whether spans have arguments and answers.
    pub capture: Capture,
    /// What the spans are of: attributes by name.
    pub resource: Vec<(String, String)>,
}

/// Compiles the section; `None` where no spans are made.
pub fn compile(context: &Context<'_>, given: &Given<RawTracing>) -> Option<Tracing> {
    let default = RawOtlp::default();
    let raw = given.get().and_then(|raw| raw.otlp.get()).unwrap_or(&default);
    let compiler = Compiler { context, variables: &context.environment.open_telemetry };
    let endpoint = compiler.endpoint(raw);
    let sampling = compiler.sampling(&raw.sample);
    let headers = match raw.headers.found() {
        Some((Entries(entries), node)) => compiler.headers(entries, node),
        None => compiler.variable_headers(),
    };
    let capture = raw.capture.get().copied().unwrap_or(Capture::None);
    let is_disabled = |text: &str| text.eq_ignore_ascii_case("true");
    if compiler.variables.get("OTEL_SDK_DISABLED").is_some_and(is_disabled) {
        return None;
    }
    let endpoint = endpoint?;
    let resource = compiler.resource();
    Some(Tracing { endpoint, headers, sampling, capture, resource })
}

struct Compiler<'a> {
    context: &'a Context<'a>,
    variables: &'a Variables,
}

impl Compiler<'_> {
    /// Something is wrong with a variable: it is left out, since it is not always the operator of this gateway who sets it.
    fn warn(&self, name: &str, message: &str) {
        let root = self.context.report.document.root();
        let message = format!("variable `{name}` is left out: {message}");
        self.context.report.warn_below(root, &["tracing", "otlp"], message);
    }

    fn endpoint(&self, raw: &RawOtlp) -> Option<Endpoint> {
        if let Some((Verbatim(text), node)) = raw.endpoint.found() {
            let endpoint = Endpoint::parse(text).and_then(|endpoint| match endpoint {
                bare if bare.path_and_query() == "/" => Endpoint::parse(&below(text)),
                whole => Ok(whole),
            });
            return endpoint
                .map_err(|error| self.context.report.error(node, error.to_string()))
                .ok();
        }
        const WHOLE: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let (name, text) = self.variables.first([WHOLE, BASE])?;
        const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
        if let Some(exporters) = self.variables.get(EXPORTER)
            && !exporters.split(',').any(|exporter| exporter.trim() == "otlp")
        {
            if exporters != "none" {
                self.warn(EXPORTER, "otlp is what is spoken here, so no span is exported");
            }
            return None;
        }
        let protocols = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
        if let Some((protocol, spoken)) = self.variables.first(protocols)
            && spoken != "http/protobuf"
        {
            self.warn(protocol, "http/protobuf is what is spoken here, on port 4318 as a rule");
        }
        let text = if name == BASE { below(text) } else { text.to_owned() };
        Endpoint::parse(&text).map_err(|error| self.warn(name, &error.to_string())).ok()
    }

    fn sampling(&self, given: &Given<f64>) -> Sampling {
        if let Some((ratio, node)) = given.found() {
            if !(0.0..=1.0).contains(ratio) {
                self.context.report.error(node, format!("must be from 0 to 1, not {ratio}"));
            }
            return Sampling { ratio: *ratio, ..DEFAULT };
        }
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        let Some(sampler) = self.variables.get(NAME) else { return DEFAULT };
        let parts = sampler.strip_prefix("parentbased_");
        let ratio = match parts.unwrap_or(sampler) {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.ratio(),
            _ => {
                let known = "it is one of always_on, always_off and traceidratio, or of these with \
                             parentbased_ in front";
                self.warn(NAME, known);
                return DEFAULT;
            }
        };
        Sampling { ratio, heeds_parent: parts.is_some() }
    }

    fn ratio(&self) -> f64 {
        const NAME: &str = "OTEL_TRACES_SAMPLER_ARG";
        let Some(text) = self.variables.get(NAME) else { return 1.0 };
        let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.unwrap_or_else(|| {
            self.warn(NAME, "it is not a number from 0 to 1");
            1.0
        })
    }

    fn headers(&self, entries: &[(String, Given<RawHeader>)], node: NodeId) -> Vec<OwnHeader> {
        let mut headers = Vec::new();
        for (name, given) in entries {
            let Some((raw, node)) = given.found() else {
                let message = "has no value, write {file: PATH} or {env: NAME}";
                if given.node().is_none() {
                    self.context.report.missing(node, name, message);
                }
                continue;
            };
            let Some(source) = self.context.source(node, &raw.file, &raw.env) else { continue };
            let secret = match self.context.secret(node, &source) {
                Ok(secret) => secret,
                Err(SecretProblem::Reported) => continue,
                Err(SecretProblem::Lookup(error)) => {
                    let consequence = "spans are sent without this header";
                    self.context.unreadable(node, &source, &error, consequence);
                    continue;
                }
            };
            let prefix = raw.prefix.get().map(|Verbatim(text)| text.as_bytes()).unwrap_or_default();
            match OwnHeader::new(name, Secret::new([prefix, secret.expose()].concat())) {
                Ok(header) => headers.push(header),
                Err(HeaderError::Refused { name }) => {
                    let message = format!("`{name}` is not a header that an export may have");
                    self.context.report.error(node, message);
                }
                Err(error) => self.context.report.error(node, error.to_string()),
            }
        }
        headers
    }

    fn variable_headers(&self) -> Vec<OwnHeader> {
        let names = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
        let Some((variable, text)) = self.variables.first(names) else { return Vec::new() };
        let Some(headers) = pairs(text) else {
            self.warn(variable, "it is not a list such as name=value,other=value");
            return Vec::new();
        };
        let headers = headers.into_iter().filter_map(|(name, value)| {
            OwnHeader::new(&name, Secret::new(value))
                .map_err(|error| self.warn(variable, &error.to_string()))
                .ok()
        });
        headers.collect()
    }

    /// What the spans are of. A name of its own counts before one among the attributes.
    fn resource(&self) -> Vec<(String, String)> {
        const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let mut resource = BTreeMap::from([
            (SERVICE_NAME.to_owned(), env!("CARGO_PKG_NAME").to_owned()),
            ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ]);
        if let Some(text) = self.variables.get(NAME) {
            match pairs(text) {
                Some(pairs) => resource.extend(pairs),
                None => self.warn(NAME, "it is not a list such as name=value,other=value"),
            }
        }
        if let Some(name) = self.variables.get("OTEL_SERVICE_NAME") {
            resource.insert(SERVICE_NAME.to_owned(), name.to_owned());
        }
        resource.into_iter().collect()
    }
}

/// The place of traces below a collector's address.
fn below(base: &str) -> String {
    format!("{}{TRACES}", base.strip_suffix('/').unwrap_or(base))
}

/// Reads `name=value,other=value`, in which what has a meaning is percent-encoded.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let decoded = |text: &str| {
        let text = percent_decode_str(text.trim()).decode_utf8().ok()?;
        Some(text.into_owned())
    };
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pairs = parts.map(|part| {
        let (name, value) = part.split_once('=')?;
        let name = decoded(name)?;
        (!name.is_empty()).then_some((name, decoded(value)?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests;
