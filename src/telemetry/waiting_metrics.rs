//! The metrics of calls that wait for a person, and of what is kept.

use prometheus::{Gauge, Histogram, IntCounterVec, IntGaugeVec, Opts};

use crate::model::notice::{Sink, Told};
use crate::telemetry::maker::Maker;

const WAIT_SECONDS: &[f64] = &[1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

/// What is known of calls that wait.
pub(super) struct WaitingMetrics {
    pub(in crate::telemetry) pending: IntGaugeVec,
    pub(in crate::telemetry) oldest: Gauge,
    pub(in crate::telemetry) wait: Histogram,
    pub(in crate::telemetry) records: IntCounterVec,
    pub(in crate::telemetry) notifications: IntCounterVec,
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
        let notifications = make.counters(
            "notifications_total",
            "Tries to tell people, by their way and by what became of them.",
            &["sink", "result"],
        );
        for (sink, told) in Sink::ALL.iter().flat_map(|sink| Told::ALL.map(|told| (sink, told))) {
            notifications.with_label_values(&[sink.as_str(), told.as_str()]);
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
            notifications,
        }
    }
}
