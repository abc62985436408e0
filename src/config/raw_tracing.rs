//! `tracing` exactly as it is written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::{Entries, Given};
use crate::config::leaf::Verbatim;
use crate::config::raw_tool::RawHeader;
use crate::config::storage::Capture;

/// `tracing`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTracing {
    /// Spans of calls, sent to a collector by OTLP over HTTP.
    pub otlp: Given<RawOtlp>,
}

/// `tracing.otlp`. What is left out is taken from the variables `OTEL_…` that OpenTelemetry defines.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawOtlp {
    /// Where spans go, such as `http://127.0.0.1:4318`: without a path they go to `/v1/traces`. It is the operator's own
    /// server: `egress`, which is about tools, does not bound it. Left out here and in the environment: no spans.
    pub endpoint: Given<Verbatim>,
    /// Headers of each export, such as the collector's key.
    pub headers: Given<Entries<RawHeader>>,
    /// The share of traces that are recorded, from 0 to 1, where the caller has not decided it; default 0.05.
    pub sample: Given<f64>,
    /// full: spans have arguments and answers too, of tools whose records have them. none (default): they do not.
    pub capture: Given<Capture>,
}
