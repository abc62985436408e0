//! The metrics of calls that wait for a person, and of what is kept.

use std::collections::HashMap;
use std::time::Duration;

use prometheus::{Gauge, Histogram, IntCounterVec, IntGaugeVec, Opts};

use crate::model::approval::ApprovalStatus;
use crate::telemetry::maker::Maker;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tool_metrics::ToolMetrics;

const WAIT_SECONDS: &[f64] = &[1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

/// What is known of calls that wait.
pub(super) struct WaitingMetrics {
    pending: IntGaugeVec,
    oldest: Gauge,
    wait: Histogram,
    records: IntCounterVec,
}

impl WaitingMetrics {
    /// Makes them.
    pub(super) fn new(make: &Maker<'_>) -> Self {
        let records = make.counters(
            "call_records_total",
            "Records of calls, by whether they could be kept.",
            &["result"],
        );
        for result in ["written", "dropped"] {
            records.with_label_values(&[result]);
        }
        Self {
            pending: make.gauges("approvals_pending", "Calls that wait for a person.", &["tool"]),
            oldest: make.keep(Gauge::with_opts(
                Opts::new(
                    "approval_oldest_pending_seconds",
                    "How long the oldest waiting call has waited.",
                )
                .namespace("sortie"),
            )),
            wait: make.histogram(
                "approval_wait_seconds",
                "Time from asked for to decided.",
                WAIT_SECONDS,
            ),
            records,
        }
    }
}

impl Metrics {
    /// Counts the end of an approval. How long somebody needed is of interest where somebody decided.
    pub fn approval_ended(&self, tool: &ToolMetrics, status: ApprovalStatus, waited: Duration) {
        tool.approvals[status as usize].inc();
        if matches!(status, ApprovalStatus::Approved | ApprovalStatus::Rejected) {
            self.waiting.wait.observe(waited.as_secs_f64());
        }
    }

    /// Shows which calls wait: the names of their tools, each with its age.
    pub fn approvals_stand<'a>(&self, pending: impl IntoIterator<Item = (&'a str, Duration)>) {
        let (mut totals, mut oldest) = (HashMap::<String, i64>::new(), Duration::ZERO);
        for (tool, age) in pending {
            *totals.entry(self.label(tool)).or_default() += 1;
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
}
