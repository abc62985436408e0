//! The metrics with labels: each is named here, once.

use std::collections::{HashMap, HashSet};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec};

use crate::telemetry::maker::Maker;

const CALL_SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0,
];
const BYTES: &[f64] =
    &[256.0, 1024.0, 4096.0, 16384.0, 32768.0, 65536.0, 131_072.0, 262_144.0, 1_048_576.0];

/// The metrics that have labels besides those of one tool's own fields.
pub(super) struct Vectors {
    pub(super) calls: IntCounterVec,
    pub(super) call_duration: HistogramVec,
    pub(super) attempts: IntCounterVec,
    pub(super) attempt_duration: HistogramVec,
    pub(super) retries: IntCounterVec,
    pub(super) response_bytes: HistogramVec,
    pub(super) truncated: IntCounterVec,
    pub(super) argument_failures: IntCounterVec,
    pub(super) policy_decisions: IntCounterVec,
    pub(super) shadow_disagreements: IntCounterVec,
    pub(super) dns_lookups: IntCounterVec,
    pub(super) address_decisions: IntCounterVec,
    pub(super) redirects: IntCounterVec,
    pub(super) certificate_expiry: IntGaugeVec,
    pub(super) signing_keys: IntGaugeVec,
    pub(super) rate_limited: IntCounterVec,
    pub(super) circuit_transitions: IntCounterVec,
    pub(super) circuit_probes: IntCounterVec,
    pub(super) approvals: IntCounterVec,
    pub(super) replays: IntCounterVec,
    pub(super) http_requests: IntCounterVec,
    pub(super) audit_entries: IntCounterVec,
    pub(super) trace_exports: IntCounterVec,
    pub(super) build_info: GaugeVec,
}

impl Vectors {
    /// Makes and registers all of them.
    pub(super) fn new(make: &Maker<'_>) -> Self {
        let tool = &["tool"];
        Self {
            calls: make.counters(
                "calls_total",
                "Finished calls.",
                &["tool", "status", "code", "fault"],
            ),
            call_duration: make.histograms(
                "call_duration_seconds",
                "Time from asked for to ended.",
                CALL_SECONDS,
                tool,
            ),
            attempts: make.counters(
                "attempts_total",
                "Attempts by how they ended.",
                &["tool", "result"],
            ),
            attempt_duration: make.histograms(
                "attempt_duration_seconds",
                "Time of one attempt.",
                CALL_SECONDS,
                tool,
            ),
            retries: make.counters(
                "retries_total",
                "Attempts after the first, by reason.",
                &["tool", "reason"],
            ),
            response_bytes: make.histograms(
                "response_bytes",
                "Bytes of an answer that were read.",
                BYTES,
                tool,
            ),
            truncated: make.counters("responses_truncated_total", "Answers that were cut.", tool),
            argument_failures: make.counters(
                "argument_failures_total",
                "Problems in arguments, by schema keyword.",
                &["tool", "keyword"],
            ),
            policy_decisions: make.counters(
                "policy_decisions_total",
                "Decisions of policies.",
                &["tool", "effect", "mode"],
            ),
            shadow_disagreements: make.counters(
                "policy_shadow_disagreements_total",
                "Calls that a policy in shadow mode would have decided otherwise.",
                tool,
            ),
            dns_lookups: make.counters("dns_lookups_total", "Lookups by result.", &["result"]),
            address_decisions: make.counters(
                "address_decisions_total",
                "Decisions on hosts and addresses.",
                &["tool", "verdict", "code", "mode"],
            ),
            redirects: make.counters(
                "redirects_refused_total",
                "Redirects that were not followed.",
                tool,
            ),
            certificate_expiry: make.gauges(
                "upstream_certificate_expiry_timestamp_seconds",
                "When the tool's certificate ends, in Unix time.",
                tool,
            ),
            signing_keys: make.gauges(
                "signing_keys_active",
                "Keys that sign a tool's calls.",
                tool,
            ),
            rate_limited: make.counters(
                "rate_limited_total",
                "Calls that came too early.",
                &["tool", "scope"],
            ),
            circuit_transitions: make.counters(
                "circuit_transitions_total",
                "Changes of circuits.",
                &["tool", "to"],
            ),
            circuit_probes: make.counters(
                "circuit_probes_total",
                "Calls that tried a failing tool again.",
                &["tool", "result"],
            ),
            approvals: make.counters(
                "approvals_total",
                "Approvals by how they ended.",
                &["tool", "result"],
            ),
            replays: make.counters(
                "idempotent_replays_total",
                "Calls that were asked for again and told from before.",
                tool,
            ),
            http_requests: make.counters(
                "http_requests_total",
                "Requests to Sortie's own listeners.",
                &["listener", "code"],
            ),
            audit_entries: make.counters(
                "audit_entries_total",
                "Entries of the audit trail on their way to the store.",
                &["result"],
            ),
            trace_exports: make.counters(
                "trace_exports_total",
                "Spans by what became of them: sent, failed or dropped.",
                &["result"],
            ),
            build_info: make.infos("build_info", "This build.", &["version", "revision", "rustc"]),
        }
    }

    /// Removes the series of tools that are gone, so that none of them is scraped for ever.
    pub(super) fn forget(&self, gone: &HashSet<&str>) {
        forget(&self.calls, gone);
        forget(&self.call_duration, gone);
        forget(&self.attempts, gone);
        forget(&self.attempt_duration, gone);
        forget(&self.retries, gone);
        forget(&self.response_bytes, gone);
        forget(&self.truncated, gone);
        forget(&self.argument_failures, gone);
        forget(&self.policy_decisions, gone);
        forget(&self.shadow_disagreements, gone);
        forget(&self.address_decisions, gone);
        forget(&self.redirects, gone);
        forget(&self.certificate_expiry, gone);
        forget(&self.signing_keys, gone);
        forget(&self.rate_limited, gone);
        forget(&self.circuit_transitions, gone);
        forget(&self.circuit_probes, gone);
        forget(&self.approvals, gone);
        forget(&self.replays, gone);
    }
}

fn forget<B: MetricVecBuilder>(vector: &MetricVec<B>, gone: &HashSet<&str>) {
    for family in vector.collect() {
        for metric in family.get_metric() {
            let labels = metric.get_label().iter().map(|pair| (pair.name(), pair.value()));
            let labels: HashMap<&str, &str> = labels.collect();
            if labels.get("tool").is_some_and(|tool| gone.contains(tool)) {
                // An error means that it is gone already.
                let _ = vector.remove(&labels);
            }
        }
    }
}
