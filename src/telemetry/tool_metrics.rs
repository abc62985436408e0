//! The series of one tool, looked up once and counted without a search.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use prometheus::{Histogram, IntCounter};

use crate::model::approval::ApprovalStatus;
use crate::model::outcome::{FailureCode, Fault, Status};
use crate::policy::breaker::State;
use crate::telemetry::labels::{AttemptResult, LimitScope, ProbeResult, RetryReason};
use crate::telemetry::vectors::Vectors;

/// What most wrong arguments break: these start at 0, so that the first of a kind is a step and no new series. The rest of
/// the schema's keywords would be too many.
const COMMON_KEYWORDS: [&str; 4] = ["enum", "pattern", "required", "type"];

/// The series of one tool, looked up once a call.
#[derive(Debug)]
pub struct ToolMetrics {
    pub(super) label: String,
    pub(super) ok: IntCounter,
    pub(super) duration: Histogram,
    pub(super) attempts: [IntCounter; AttemptResult::ALL.len()],
    pub(super) attempt_duration: Histogram,
    pub(super) retries: [IntCounter; RetryReason::ALL.len()],
    pub(super) response_bytes: Histogram,
    pub(super) truncated: IntCounter,
    pub(super) redirects: IntCounter,
    pub(super) address_ok: IntCounter,
    pub(super) policy_allow: IntCounter,
    pub(super) certificate_expiry: AtomicI64,
    pub(super) rate_limited: [IntCounter; LimitScope::ALL.len()],
    pub(super) circuit_transitions: [IntCounter; State::ALL.len()],
    pub(super) circuit_probes: [IntCounter; ProbeResult::ALL.len()],
    /// By how they were closed: one that waits has no count here.
    pub(super) approvals: Vec<(ApprovalStatus, IntCounter)>,
    pub(super) replays: IntCounter,
    retired: AtomicBool,
}

impl ToolMetrics {
    /// Makes them, all at 0.
    pub(super) fn new(vectors: &Vectors, label: &str) -> Self {
        for code in FailureCode::ALL {
            vectors.calls.with_label_values(&call_labels(label, Err(*code)));
        }
        for keyword in COMMON_KEYWORDS {
            vectors.argument_failures.with_label_values(&[label, keyword]);
        }
        let one = &[label];
        vectors.shadow_disagreements.with_label_values(one);
        Self {
            ok: vectors.calls.with_label_values(&call_labels(label, Ok(()))),
            duration: vectors.call_duration.with_label_values(one),
            attempts: AttemptResult::ALL
                .map(|result| vectors.attempts.with_label_values(&[label, result.as_str()])),
            attempt_duration: vectors.attempt_duration.with_label_values(one),
            retries: RetryReason::ALL
                .map(|reason| vectors.retries.with_label_values(&[label, reason.as_str()])),
            response_bytes: vectors.response_bytes.with_label_values(one),
            truncated: vectors.truncated.with_label_values(one),
            redirects: vectors.redirects.with_label_values(one),
            address_ok: vectors
                .address_decisions
                .with_label_values(&[label, "allow", "ok", "enforce"]),
            policy_allow: vectors.policy_decisions.with_label_values(&[label, "allow", "enforce"]),
            certificate_expiry: AtomicI64::new(i64::MAX),
            rate_limited: LimitScope::ALL
                .map(|scope| vectors.rate_limited.with_label_values(&[label, scope.as_str()])),
            circuit_transitions: State::ALL
                .map(|to| vectors.circuit_transitions.with_label_values(&[label, to.as_str()])),
            circuit_probes: ProbeResult::ALL
                .map(|result| vectors.circuit_probes.with_label_values(&[label, result.as_str()])),
            approvals: ApprovalStatus::ALL
                .iter()
                .filter(|status| **status != ApprovalStatus::Pending)
                .map(|status| {
                    (*status, vectors.approvals.with_label_values(&[label, status.as_str()]))
                })
                .collect(),
            replays: vectors.replays.with_label_values(one),
            retired: AtomicBool::new(false),
            label: label.to_owned(),
        }
    }

    /// Says that the tool is gone: what still runs of it makes no series any more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }
}

/// The labels of a finished call.
pub(super) fn call_labels(tool: &str, ended: Result<(), FailureCode>) -> [&str; 4] {
    match ended {
        Ok(()) => [tool, Status::Succeeded.as_str(), "ok", Fault::None.as_str()],
        Err(code) => [tool, code.status().as_str(), code.as_str(), code.fault().as_str()],
    }
}
