//! What is remembered of each tool's calls, for the operator who asks why it fails: counts, and the last failures.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::snapshot::Snapshot;
use crate::model::id::{CallId, ToolName};
use crate::model::outcome::{CallOutcome, FailureCode};

/// Failures of a tool that are kept.
const KEPT: usize = 5;

/// By the names of configured tools, so that no request makes it grow.
#[derive(Debug, Default)]
pub struct Recent(Mutex<HashMap<ToolName, History>>);

/// What became of a tool's calls since the start.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed or were refused.
    pub unsuccessful: u64,
    /// When the last one succeeded, in Unix milliseconds.
    pub succeeded_at_ms: Option<i64>,
    /// The last that did not, the latest first.
    pub failures: VecDeque<PastFailure>,
}

/// A call that did not succeed.
#[derive(Debug, Clone)]
pub struct PastFailure {
    /// When it ended, in Unix milliseconds.
    pub at_ms: i64,
    /// Which call.
    pub call_id: CallId,
    /// Which failure.
    pub code: FailureCode,
    /// The finer code.
    pub detail: Option<&'static str>,
    /// The answer's status, where there was one.
    pub http_status: Option<u16>,
    /// The sentence that the model read.
    pub message: String,
    /// What the log says of it: it may name addresses and quote libraries.
    pub reason: Option<String>,
}

impl Recent {
    /// Takes note of a call that ended.
    pub fn note(&self, snapshot: &Snapshot, outcome: &CallOutcome, reason: Option<String>) {
        let Some(tool) = snapshot.tool(&outcome.tool) else { return };
        let mut known = self.lock();
        if !known.contains_key(&tool.name) {
            // A tool that comes is a reason to look for those that went.
            known.retain(|name, _| snapshot.tools.contains_key(name));
        }
        let history = known.entry(tool.name.clone()).or_default();
        match &outcome.ended {
            Ok(_) => {
                history.succeeded += 1;
                history.succeeded_at_ms = Some(outcome.finished_at_ms);
            }
            Err(failure) => {
                history.unsuccessful += 1;
                history.failures.truncate(KEPT - 1);
                history.failures.push_front(PastFailure {
                    at_ms: outcome.finished_at_ms,
                    call_id: outcome.id.clone(),
                    code: failure.code,
                    detail: failure.detail,
                    http_status: failure.http_status,
                    message: failure.message.clone(),
                    reason,
                });
            }
        }
    }

    /// What is known of a tool.
    pub fn of(&self, tool: &str) -> History {
        self.lock().get(tool).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ToolName, History>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
