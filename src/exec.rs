//! The executor port: something that can run a checked call.

pub mod failure;
pub mod tokens;
pub mod webhook;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::BoxFuture;
use crate::config::snapshot::Tool;
use crate::limits::permit::Permit;
use crate::model::call::ToolCall;
use crate::model::id::IdempotencyKey;
use crate::model::outcome::{AttemptRecord, Failure, Success};
use crate::net::epoch::Epoch;
use crate::policy::schema::ValidArguments;
use crate::telemetry::tool_metrics::ToolMetrics;
use crate::telemetry::trace::call::CallTrace;

/// A call that passed every check of the gateway.
#[derive(Debug)]
pub struct Job<'a> {
    /// The configuration that the call began with.
    pub epoch: &'a Epoch,
    /// The tool.
    pub tool: &'a Tool,
    /// The call.
    pub call: &'a ToolCall,
    /// Its arguments, which fit the tool's schema.
    pub arguments: &'a ValidArguments,
    /// The key of its run, step and index, where they were given.
    pub identity: Option<IdempotencyKey>,
    /// Its leave to call the tool.
    pub permit: &'a Permit,
    /// When the whole call must be over.
    pub deadline: Instant,
    /// Whether somebody still waits for the outcome.
    pub presence: &'a Presence,
    /// The tool's series.
    pub metrics: &'a ToolMetrics,
    /// The call's spans, where they are recorded.
    pub spans: Option<&'a CallTrace>,
}

/// What running it gave.
#[derive(Debug)]
pub struct Executed {
    /// The result, or why there is none.
    pub ended: Result<Success, Failure>,
    /// What was sent.
    pub attempts: Vec<AttemptRecord>,
    /// Unix milliseconds of the first attempt.
    pub started_at_ms: Option<i64>,
    /// The key that went out.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Why the last attempt failed, in the operator's words: they may name addresses and quote libraries.
    pub reason: Option<String>,
    /// Time spent upstream and in waits: what is not the gateway's own.
    pub upstream: Duration,
}

/// Something that can run a checked call.
pub trait Executor: Send + Sync {
    /// Runs it to its end; every failure is in the answer.
    fn run<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Executed>;
}

/// Something that happens once and that any number of tasks may wait for.
#[derive(Debug, Clone, Default)]
pub struct Flag(Arc<FlagState>);

#[derive(Debug, Default)]
struct FlagState {
    up: AtomicBool,
    changed: Notify,
}

impl Flag {
    /// Lets it happen.
    pub fn raise(&self) {
        self.0.up.store(true, Ordering::Release);
        self.0.changed.notify_waiters();
    }

    /// Whether it has happened.
    pub fn is_up(&self) -> bool {
        self.0.up.load(Ordering::Acquire)
    }

    /// Waits until it happens.
    pub async fn raised(&self) {
        let changed = self.0.changed.notified();
        tokio::pin!(changed);
        // Enabled before the flag is read: a `raise` between the two is not missed.
        changed.as_mut().enable();
        if !self.is_up() {
            changed.await;
        }
    }
}

/// Whether the runtime still waits for the outcome. A call that was sent goes on without it, until the gateway's own end
/// cuts it off; one that was not sent stops.
#[derive(Debug, Clone, Default)]
pub struct Presence {
    left: Flag,
    taken_back: Flag,
    cut_off: Flag,
}

impl Presence {
    /// Of a call that ends when `cut_off` is raised, wherever it stands.
    pub fn until(cut_off: Flag) -> Self {
        Self { left: Flag::default(), taken_back: Flag::default(), cut_off }
    }

    /// Says that nobody waits any more.
    pub fn leave(&self) {
        self.left.raise();
    }

    /// Ends the call wherever it stands: the runtime takes it back.
    pub fn take_back(&self) {
        self.taken_back.raise();
    }

    /// Waits until nobody waits any more.
    pub async fn gone(&self) {
        tokio::select! {
            () = self.left.raised() => {}
            () = self.cut_off() => {}
        }
    }

    /// Waits until the call was taken back, or the gateway can wait no more.
    pub async fn cut_off(&self) {
        tokio::select! {
            () = self.taken_back.raised() => {}
            () = self.cut_off.raised() => {}
        }
    }
}

impl std::fmt::Debug for dyn Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Executor")
    }
}
