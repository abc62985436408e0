//! The variables of the environment that OpenTelemetry defines, as plain values.

use std::collections::BTreeMap;

use crate::model::secret::Secret;

/// The variables of the environment that are read.
pub const VARIABLES: [&str; 12] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
];

/// Their values; one that is empty is not there. A value may be a key, so none is shown.
#[derive(Default)]
pub struct Variables(BTreeMap<&'static str, Secret>);

impl Variables {
    /// Reads them.
    pub fn read(find: impl Fn(&str) -> Option<Secret>) -> Self {
        let found = VARIABLES.into_iter().filter_map(|name| Some((name, find(name)?)));
        Self(found.filter(|(_, value)| !value.expose().trim_ascii().is_empty()).collect())
    }

    /// The value of one of them.
    pub fn get(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.0.get(name)?.expose().trim_ascii()).ok()
    }

    /// The first of them that is there, with its name.
    pub fn first(&self, names: [&'static str; 2]) -> Option<(&'static str, &str)> {
        names.into_iter().find_map(|name| Some((name, self.get(name)?)))
    }
}
