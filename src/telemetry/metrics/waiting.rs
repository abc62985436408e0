//! Counts calls that wait for a person, and what is kept of calls.

use std::collections::HashMap;
use std::time::Duration;

use crate::model::approval::ApprovalStatus;
use crate::model::notice::{Sink, Told};
use crate::telemetry::metrics::{Metrics, UNKNOWN_TOOL};
use crate::telemetry::tool_metrics::ToolMetrics;

impl Metrics {
    /// Counts a try to tell people.
    pub fn notified(&self, sink: Sink, told: Told) {
        self.waiting.notifications.with_label_values(&[sink.as_str(), told.as_str()]).inc();
    }

    /// Counts the end of an approval. How long somebody needed is of interest where somebody decided.
    pub fn approval_ended(&self, tool: &ToolMetrics, status: ApprovalStatus, waited: Duration) {
        if let Some((_, counter)) = tool.approvals.iter().find(|(one, _)| *one == status) {
            counter.inc();
        }
        if matches!(status, ApprovalStatus::Approved | ApprovalStatus::Rejected) {
            self.waiting.wait.observe(waited.as_secs_f64());
        }
    }

    /// Shows which calls wait: of each tool how many, and the age of the oldest.
    pub fn approvals_stand<'a>(&self, pending: impl IntoIterator<Item = (&'a str, i64, Duration)>) {
        let named = self.named();
        // A tool for whose calls nobody is waited has a series too.
        let mut totals: HashMap<String, i64> =
            named.all().map(|tool| (tool.label.clone(), 0)).collect();
        let mut oldest = Duration::ZERO;
        for (tool, count, age) in pending {
            *totals.entry(self.label(tool)).or_default() += count;
            oldest = oldest.max(age);
        }
        self.waiting.pending.reset();
        for (tool, count) in totals {
            self.waiting.pending.with_label_values(&[&tool]).set(count);
        }
        self.waiting.oldest.set(oldest.as_secs_f64());
    }

    /// Counts a call that is told from before.
    pub fn replayed(&self, tool: &ToolMetrics) {
        tool.replays.inc();
    }

    /// Counts records that were kept.
    pub fn records_written(&self, count: usize) {
        self.waiting.records.with_label_values(&["written"]).inc_by(count as u64);
    }

    /// Counts records that were not.
    pub fn records_dropped(&self, count: usize) {
        self.waiting.records.with_label_values(&["dropped"]).inc_by(count as u64);
    }

    /// The label that a tool's series have.
    fn label(&self, tool: &str) -> String {
        let named = self.named();
        let known = named.tools.contains_key(tool);
        named.label(if known { tool } else { UNKNOWN_TOOL }).to_owned()
    }
}
