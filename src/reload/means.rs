//! Those who are told of another configuration, and what they are told.

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::file::{File, Standing};
use crate::config::snapshot::Snapshot;
use crate::exec::webhook::WebhookExecutor;
use crate::gateway::notify::Outbox;
use crate::limits::Limits;
use crate::net::epoch::Epoch;
use crate::telemetry::audit::Audit;
use crate::telemetry::log::LogSink;
use crate::telemetry::metrics::{Metrics, ToolLabels};

/// Those who are told of another configuration.
#[derive(Clone)]
pub struct Means {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The series.
    pub metrics: Arc<Metrics>,
    /// Counts and bounds calls.
    pub limits: Arc<Limits>,
    /// The way to whoever tells people.
    pub outbox: Outbox,
    /// Parts with connections.
    pub webhook: Arc<WebhookExecutor>,
    /// Takes level and form of lines.
    pub log: LogSink,
    /// Takes down who had it read.
    pub audit: Audit,
}

impl Means {
    /// Shows a configuration in the metrics, and in the log what looks odd about it and was not said of the one before.
    pub fn announce(&self, epoch: &Epoch, before: Option<&Epoch>, unreadable: usize) {
        let (snapshot, metrics) = (&epoch.snapshot, &self.metrics);
        let now = self.clock.unix_ms().div_euclid(1000);
        let unread = snapshot.unread.keys().map(|name| ToolLabels::unread(name.as_str()));
        let tools = snapshot.tools.values().map(|tool| ToolLabels::of(tool));
        metrics.configure(snapshot.metrics_per_tool, tools.chain(unread));
        self.show_signing_keys(snapshot, now);
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        metrics.config.in_force(&snapshot.hash);
        metrics.config.tools.set(count(snapshot.tools.len()));
        metrics.config.warnings.set(count(snapshot.warnings.len()));
        metrics.config.secret_errors.set(count(unreadable));
        metrics.config.files(snapshot);
        tell_of_files(snapshot, before.map(|before| before.snapshot.as_ref()));

        let odd = |epoch: &Epoch| {
            let warnings = epoch.snapshot.warnings.iter().map(ToString::to_string);
            warnings.chain(epoch.network.tls().warnings.iter().cloned()).collect::<Vec<_>>()
        };
        let said = before.map(odd).unwrap_or_default();
        for warning in odd(epoch).iter().filter(|warning| !said.contains(warning)) {
            tracing::warn!(warning, "The configuration works, but something looks wrong.");
        }
        let open = |epoch: &Epoch| epoch.snapshot.egress.exceptions_in_force(now);
        let said = before.map(open).unwrap_or_default();
        for exception in open(epoch).iter().filter(|exception| !said.contains(exception)) {
            tracing::warn!(exception, "An exception opens what egress refuses.");
        }
        let by_proxy = |epoch: &Epoch| {
            let proxy = epoch.snapshot.proxy.as_ref()?;
            Some((proxy.endpoint.to_string(), epoch.snapshot.egress.delegates()))
        };
        let said = before.and_then(by_proxy);
        match by_proxy(epoch).filter(|now| said.as_ref() != Some(now)) {
            Some((proxy, true)) => {
                tracing::warn!(
                    proxy,
                    "The proxy is the boundary: names are looked up and judged there."
                );
            }
            Some((proxy, false)) => tracing::info!(proxy, "Tools are called through the proxy."),
            None => {}
        }
    }

    /// Shows how many keys sign each tool's calls at this Unix second.
    pub(super) fn show_signing_keys(&self, snapshot: &Snapshot, now: i64) {
        let tools = snapshot.tools.values();
        self.metrics
            .signing_keys(tools.map(|tool| (tool.name.as_str(), tool.signing.at(now).len())));
    }
}

/// Says which included files have become broken, and which are well again.
fn tell_of_files(snapshot: &Snapshot, before: Option<&Snapshot>) {
    let earlier = |file: &File| before?.files.iter().find(|one| one.name == file.name);
    for file in &snapshot.files {
        let (label, earlier) = (file.label.as_str(), earlier(file));
        match (file.is_ok(), earlier) {
            (true, Some(earlier)) if !earlier.is_ok() => {
                tracing::info!(file = label, "An included file is well again.");
            }
            (true, _) => {}
            (false, Some(earlier))
                if earlier.errors == file.errors && earlier.standing == file.standing => {}
            (false, _) => {
                for error in &file.errors {
                    let error = error.to_string();
                    tracing::error!(file = label, error, "An included file is wrong here.");
                }
                let errors = file.errors.len();
                if file.standing == Standing::Kept {
                    let message = "An included file is broken, its last good tools stay in force.";
                    tracing::error!(file = label, errors, message);
                } else {
                    let message = "An included file is broken, its tools are unavailable.";
                    tracing::error!(file = label, errors, message);
                }
            }
        }
    }
}
