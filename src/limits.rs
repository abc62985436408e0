//! What stands between a checked call and its tool: the pause, rate limits, places and the circuit.

pub mod bucket;
pub mod permit;
pub mod slots;
pub mod state;
pub mod ticks;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use crate::clock::Clock;
use crate::config::snapshot::{Snapshot, Tool};
use crate::limits::permit::Permit;
use crate::limits::slots::{Slot, Slots};
use crate::limits::state::ToolState;
use crate::limits::ticks::Ticks;
use crate::model::call::ToolCall;
use crate::model::id::ToolName;
use crate::model::outcome::{Failure, FailureCode};
use crate::policy::breaker::State;
use crate::policy::identity::Caller;
use crate::policy::quota::whole_seconds;
use crate::telemetry::labels::LimitScope;
use crate::telemetry::metrics::Metrics;

/// The limits of the configuration in force, and how far each is used.
pub struct Limits {
    ticks: Ticks,
    metrics: Arc<Metrics>,
    tools: RwLock<HashMap<ToolName, Arc<ToolState>>>,
    calls: Slots,
    bodies: Slots,
    most_at_once: AtomicUsize,
    /// Names of subjects are not kept, only their hashes; nobody outside can make two that are the same.
    hasher: RandomState,
}

/// How far the limits of a tool are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// How long its circuit stays open.
    pub wait: Duration,
    /// How long it asked not to be called.
    pub pause: Duration,
    /// Its calls that run.
    pub calls: usize,
}

impl Limits {
    /// Limits of a gateway without tools.
    pub fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        Self {
            ticks: Ticks::new(clock),
            metrics,
            tools: RwLock::default(),
            calls: Slots::default(),
            bodies: Slots::default(),
            most_at_once: AtomicUsize::new(0),
            hasher: RandomState::new(),
        }
    }

    /// Takes a configuration's limits, before its first call. What did not change for a tool, and leads to the same URL,
    /// goes on as it is.
    pub fn configure(&self, snapshot: &Snapshot) {
        let most = snapshot.max_calls_in_flight;
        self.most_at_once.store(most, Ordering::Release);
        self.metrics.calls_in_flight_limit.set(i64::try_from(most).unwrap_or(i64::MAX));
        let mut tools = self.tools.write().expect("no panic holds this lock");
        let state = |(name, tool): (&ToolName, &Arc<Tool>)| {
            let before = tools.get(name).map(Arc::as_ref);
            let state = ToolState::new(tool, before, &self.ticks, &self.metrics);
            (name.clone(), Arc::new(state))
        };
        let configured = snapshot.tools.iter().map(state).collect();
        *tools = configured;
    }

    /// Takes one call in, or says why it cannot be sent now: the pause, rate limits in the order of the file, the tool's
    /// places, the gateway's places, the circuit.
    pub fn admit(&self, tool: &Tool, caller: &Caller, call: &ToolCall) -> Result<Permit, Failure> {
        let state = self.of(tool);
        let now = state.now();
        let pause = state.pause_left(now);
        if !pause.is_zero() {
            count(&state, LimitScope::Pause);
            let wait = whole_seconds(pause);
            let text = format!("The tool asked for a pause; try again in {wait} s.");
            return Err(refused(FailureCode::RateLimited, text, wait));
        }
        for bucket in &state.buckets {
            let limit = bucket.limit();
            let subject = self.hasher.hash_one(limit.per.subject(caller, &call.context));
            bucket.take(subject).map_err(|wait| {
                count(&state, LimitScope::of(limit.per));
                refused(FailureCode::RateLimited, limit.sentence(wait), whole_seconds(wait))
            })?;
        }
        let own = state.calls.take(state.concurrency).ok_or_else(Failure::overloaded)?;
        let most = self.most_at_once.load(Ordering::Acquire);
        let whole = self.calls.take(most).ok_or_else(Failure::overloaded)?;
        let permitted = state.breaker().map(|mut breaker| breaker.permit(now));
        let ticket = permitted.transpose().map_err(|open| {
            let wait = whole_seconds(open.wait);
            let text = format!("The tool has been failing and is paused; try again in {wait} s.");
            refused(FailureCode::CircuitOpen, text, wait)
        })?;
        if ticket.as_ref().is_some_and(|ticket| ticket.began_probing()) {
            state.circuit_changed(State::HalfOpen);
        }
        state.budget().first(now);
        Ok(Permit {
            profile: tool.profile.clone(),
            hurried: call.deadline.is_some_and(|deadline| deadline < tool.timeout),
            ticket,
            _slots: [own, whole],
            state,
        })
    }

    /// A place to read the body of one request in, where one is free.
    pub fn body(&self) -> Option<Slot> {
        self.bodies.take(self.most_at_once.load(Ordering::Acquire))
    }

    /// Where the circuit of each tool stands; `None` where it has none.
    pub fn circuits(&self) -> Vec<(String, Option<State>)> {
        let tools = self.tools.read().expect("no panic holds this lock");
        let circuit = |state: &Arc<ToolState>| {
            let stands = state.breaker().map(|breaker| breaker.state());
            (state.name.to_string(), stands)
        };
        tools.values().map(circuit).collect()
    }

    /// How far the limits of a tool are used.
    pub fn standing(&self, tool: &str) -> Option<Standing> {
        let state = self.tools.read().expect("no panic holds this lock").get(tool).cloned()?;
        let now = state.now();
        let wait = state.breaker().map(|breaker| breaker.wait(now));
        Some(Standing {
            wait: wait.unwrap_or_default(),
            pause: state.pause_left(now),
            calls: state.calls.taken(),
        })
    }

    /// Closes the circuit of a tool and ends its pause; `false` where there is no such tool.
    pub fn reset(&self, tool: &str) -> bool {
        let state = self.tools.read().expect("no panic holds this lock").get(tool).cloned();
        let Some(state) = state else { return false };
        state.end_pause();
        let changed = state.breaker().and_then(|mut breaker| breaker.reset());
        if let Some(changed) = changed {
            state.circuit_changed(changed);
        }
        true
    }

    /// The tool's state. A call that began on a configuration whose tool is gone since, or is another server now, is bound
    /// by nobody else's calls, and says nothing about them.
    fn of(&self, tool: &Tool) -> Arc<ToolState> {
        let known = self.tools.read().expect("no panic holds this lock").get(&tool.name).cloned();
        let known = known.filter(|known| known.is_of(tool));
        known.unwrap_or_else(|| Arc::new(ToolState::new(tool, None, &self.ticks, &self.metrics)))
    }
}

impl std::fmt::Debug for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Limits")
    }
}

fn count(state: &ToolState, scope: LimitScope) {
    let (metrics, series) = state.series();
    metrics.rate_limited(&series, scope);
}

/// Nothing was sent, and it may be tried again after so many seconds.
fn refused(code: FailureCode, text: String, seconds: u64) -> Failure {
    Failure {
        retryable: true,
        retry_after: Some(Duration::from_secs(seconds)),
        ..Failure::not_sent(code, text)
    }
}

#[cfg(test)]
mod tests;
