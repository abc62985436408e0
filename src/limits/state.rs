//! One tool's limits, and how far each is used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::config::snapshot::{Tool, ToolLimits};
use crate::limits::bucket::Bucket;
use crate::limits::slots::Slots;
use crate::limits::ticks::Ticks;
use crate::model::id::ToolName;
use crate::policy::breaker::{Breaker, State};
use crate::policy::budget::RetryBudget;
use crate::policy::endpoint::Endpoint;
use crate::policy::quota::RateLimit;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tool_metrics::ToolMetrics;

/// One tool's limits. What calls change is shared with the states that follow this one after a reload.
#[derive(Debug)]
pub struct ToolState {
    /// The tool.
    pub name: ToolName,
    /// Calls at the same time.
    pub concurrency: usize,
    /// The rate limits, in the order of the file.
    pub buckets: Vec<Arc<Bucket>>,
    /// The calls that run.
    pub calls: Slots,
    limits: ToolLimits,
    endpoint: Endpoint,
    breaker: Option<Arc<Mutex<Breaker>>>,
    budget: Arc<Mutex<RetryBudget>>,
    /// Milliseconds since the start until which the tool asked not to be called.
    paused_until_ms: Arc<AtomicU64>,
    ticks: Ticks,
    metrics: Arc<Metrics>,
}

impl ToolState {
    /// A tool's state that takes over from the one before whatever still holds.
    pub fn new(tool: &Tool, before: Option<&Self>, ticks: &Ticks, metrics: &Arc<Metrics>) -> Self {
        let before = before.filter(|before| before.is_of(tool));
        // Each is taken over once: a limit that stands twice has two buckets, and would count each call twice in one.
        let mut known: Vec<_> = before.iter().flat_map(|before| &before.buckets).cloned().collect();
        let bucket = |limit: &RateLimit| {
            let same = known.iter().position(|bucket| bucket.limit() == limit);
            let same = same.map(|at| known.swap_remove(at));
            same.unwrap_or_else(|| Arc::new(Bucket::new(*limit, ticks.clone())))
        };
        let limits = &tool.limits;
        let breaker = limits.breaker.map(|settings| {
            let same = before.filter(|before| before.limits.breaker == Some(settings));
            let same = same.and_then(|before| before.breaker.clone());
            same.unwrap_or_else(|| Arc::new(Mutex::new(Breaker::new(settings))))
        });
        Self {
            name: tool.name.clone(),
            concurrency: limits.concurrency,
            buckets: limits.rates.iter().map(bucket).collect(),
            calls: before.map(|before| before.calls.clone()).unwrap_or_default(),
            limits: limits.clone(),
            endpoint: tool.endpoint.clone(),
            breaker,
            budget: before.map(|before| before.budget.clone()).unwrap_or_default(),
            paused_until_ms: before
                .map(|before| before.paused_until_ms.clone())
                .unwrap_or_default(),
            ticks: ticks.clone(),
            metrics: metrics.clone(),
        }
    }

    /// Whether it counts the calls of this tool: under its name, another server has limits of its own.
    pub fn is_of(&self, tool: &Tool) -> bool {
        self.endpoint == tool.endpoint
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.ticks.elapsed()
    }

    /// The circuit, where the tool has one.
    pub fn breaker(&self) -> Option<MutexGuard<'_, Breaker>> {
        self.breaker.as_ref().map(|breaker| breaker.lock().expect("no panic holds this lock"))
    }

    /// The budget of repeats.
    pub fn budget(&self) -> MutexGuard<'_, RetryBudget> {
        self.budget.lock().expect("no panic holds this lock")
    }

    /// How long the tool is paused still.
    pub fn pause_left(&self, now: Duration) -> Duration {
        let until = self.paused_until_ms.load(Ordering::Acquire);
        Duration::from_millis(until).saturating_sub(now)
    }

    /// A shorter pause does not end a longer one.
    pub fn pause_until(&self, until: Duration) {
        let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.paused_until_ms.fetch_max(until, Ordering::AcqRel);
    }

    /// The tool may be called again.
    pub fn end_pause(&self) {
        self.paused_until_ms.store(0, Ordering::Release);
    }

    /// All metrics, and the tool's own: looked up only where something is counted, since most calls count nothing here.
    pub fn series(&self) -> (&Metrics, Arc<ToolMetrics>) {
        (&self.metrics, self.metrics.tool(self.name.as_str()))
    }

    /// Counts and tells that the circuit changed.
    pub fn circuit_changed(&self, to: State) {
        let (metrics, series) = self.series();
        metrics.circuit_changed(&series, to);
        let tool = &self.name;
        match to {
            State::Closed => tracing::info!(%tool, "The tool works again."),
            State::HalfOpen => tracing::info!(%tool, "One call tries the tool again."),
            State::Open => tracing::warn!(%tool, "The tool is failing and not called for a while."),
        }
    }
}
