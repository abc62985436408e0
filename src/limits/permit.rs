//! The leave to call a tool: its places, and what the call's end says about the tool.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::slots::Slot;
use crate::limits::state::ToolState;
use crate::model::outcome::{Failure, FailureCode, Success};
use crate::policy::breaker::{State, Ticket, Verdict};
use crate::policy::wire::WireProfile;
use crate::telemetry::labels::ProbeResult;

/// A tool that asks for a longer pause is tried again after this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// The leave to call a tool. Dropping it unsettled says nothing about the tool, and frees everything.
#[derive(Debug)]
#[must_use = "dropping it frees the places of the call"]
pub struct Permit {
    pub(super) state: Arc<ToolState>,
    pub(super) profile: Arc<WireProfile>,
    /// Whether the runtime gives the call less time than the tool has for one attempt.
    pub(super) hurried: bool,
    pub(super) ticket: Option<Ticket>,
    pub(super) _slots: [Slot; 2],
}

impl Permit {
    /// Gives everything back; the call's end goes into the tool's circuit. `true`: the tool was called until now, and has
    /// failed once too often.
    pub fn settle(mut self, ended: &Result<Success, Failure>) -> bool {
        let tripped = ended.as_ref().err().and_then(|failure| self.trip(failure));
        let verdict = match (ended, tripped) {
            (_, Some(_)) => Verdict::Failure,
            (Ok(_), None) => Verdict::Success,
            // The runtime's own impatience says nothing about the tool.
            (Err(failure), None) if failure.code == FailureCode::Timeout && self.hurried => {
                Verdict::Ignored
            }
            (Err(failure), None) => verdict(failure),
        };
        self.give_back(verdict, tripped)
    }

    /// Whether one more attempt may be made: a probe is one attempt, nothing is repeated once the circuit is open, and
    /// the tool's budget of repeats bounds the rest. A yes is spent.
    pub fn may_retry(&self) -> bool {
        if self.ticket.as_ref().is_some_and(Ticket::is_probe) {
            return false;
        }
        let closed = self.state.breaker().is_none_or(|breaker| breaker.state() == State::Closed);
        closed && self.state.budget().spend(self.state.now())
    }

    /// Pauses the tool for all its callers, as it asked for; an hour at most.
    pub fn pause(&self, asked: Duration) {
        self.state.pause_until(self.state.now().saturating_add(asked.min(LONGEST_PAUSE)));
    }

    /// How long the tool is paused still.
    pub fn pause_left(&self) -> Duration {
        self.state.pause_left(self.state.now())
    }

    /// How long an answer keeps the tool from being called, by its wire format.
    fn trip(&self, failure: &Failure) -> Option<Duration> {
        let status = failure.http_status.filter(|_| failure.code == FailureCode::HttpStatus)?;
        let trip = self.profile.circuit.as_ref()?;
        trip.statuses.contains(&status).then_some(trip.lasts)
    }

    /// Whether a closed circuit opened.
    fn give_back(&mut self, verdict: Verdict, tripped: Option<Duration>) -> bool {
        let Some(ticket) = self.ticket.take() else { return false };
        let now = self.state.now();
        let probe = ticket.is_probe();
        let changed = self.state.breaker().and_then(|mut breaker| {
            let changed = breaker.record(ticket, verdict, now);
            let forced = tripped.and_then(|lasts| breaker.force_open(now.saturating_add(lasts)));
            changed.or(forced)
        });
        if probe {
            let result = match verdict {
                Verdict::Answered | Verdict::Success => ProbeResult::Success,
                Verdict::Failure => ProbeResult::Failure,
                Verdict::Ignored => ProbeResult::Abandoned,
            };
            let (metrics, series) = self.state.series();
            metrics.circuit_probe(&series, result);
        }
        if let Some(state) = changed {
            self.state.circuit_changed(state);
        }
        changed == Some(State::Open) && !probe
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back(Verdict::Ignored, None);
    }
}

/// What a call without a result says about its tool.
pub fn verdict(failure: &Failure) -> Verdict {
    match failure.code {
        FailureCode::NetworkError | FailureCode::Timeout => Verdict::Failure,
        FailureCode::HttpStatus => match failure.http_status {
            Some(500..) => Verdict::Failure,
            _ => Verdict::Answered,
        },
        // It came as HTTP, and the arguments may be the reason that it cannot be shown.
        FailureCode::BadBody => match failure.detail {
            Some("framing" | "head") => Verdict::Failure,
            _ => Verdict::Answered,
        },
        FailureCode::Redirect => Verdict::Answered,
        FailureCode::ApprovalExpired
        | FailureCode::ApprovalVoid
        | FailureCode::BlockedHost
        | FailureCode::Cancelled
        | FailureCode::CircuitOpen
        | FailureCode::Denied
        | FailureCode::Internal
        | FailureCode::InvalidArguments
        | FailureCode::NotAllowedForKey
        | FailureCode::NotConfigured
        | FailureCode::NotOnAgent
        | FailureCode::NotRun
        | FailureCode::Overloaded
        | FailureCode::RateLimited
        | FailureCode::Rejected
        | FailureCode::ToolDisabled
        | FailureCode::UnknownTool => Verdict::Ignored,
    }
}
