//! A tool's circuit: closed while it works, open while it fails, and one probe before it closes again.
//!
//! It knows no clock: `now` is the time since the start, and never goes back.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::policy::window::{Counts, Window};

/// How long a refused call is told to wait while the probe runs: nobody knows when it ends.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// When a circuit opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Failures one after the other that open it.
    pub consecutive: u32,
    /// The share of failures, from 0 to 1, that opens it,
    pub failure_ratio: f64,
    /// where at least so many calls ended
    pub min_calls: u32,
    /// within this time.
    pub window: Duration,
    /// How long it stays open the first time.
    pub open_for: Duration,
    /// Each probe that fails doubles that, up to here.
    pub max_open_for: Duration,
}

/// What a wire format knows of answers after which no call makes sense for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trip {
    /// Answers with these statuses open the circuit at once,
    pub statuses: BTreeSet<u16>,
    /// for so long.
    pub lasts: Duration,
}

/// Where a circuit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Calls run.
    Closed,
    /// One call runs, to see whether the others may.
    HalfOpen,
    /// No call runs.
    Open,
}

impl State {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

    /// The name in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

/// What a call says about its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It lives, and did not like the call: nothing while the circuit is closed, and enough to close it.
    Answered,
    /// It failed.
    Failure,
    /// Nothing: the call never came to it, or was called off.
    Ignored,
    /// It works.
    Success,
}

/// The leave to call. It is given back with [`Breaker::record`], whatever became of the call.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a probe that is not recorded holds the circuit half open"]
pub struct Ticket {
    epoch: u64,
    probe: bool,
    began: bool,
}

impl Ticket {
    /// Whether this call is the one that decides whether the others may.
    pub fn is_probe(&self) -> bool {
        self.probe
    }

    /// Whether the circuit went from open to half open with it.
    pub fn began_probing(&self) -> bool {
        self.began
    }
}

/// The circuit is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// How long to wait; never zero.
    pub wait: Duration,
}

/// One tool's circuit.
#[derive(Debug, Clone, PartialEq)]
pub struct Breaker {
    settings: Settings,
    phase: Phase,
    record: Record,
    /// Counts the times that it opened or closed: what began before is not judged by.
    epoch: u64,
    /// How long it stays open the next time.
    open_for: Duration,
    /// Whether a probe runs. It is told apart from the phase: the circuit may be forced open meanwhile.
    probing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    HalfOpen,
    Open { until: Duration },
}

/// What calls said since the circuit was last closed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    in_a_row: u32,
    window: Window,
}

impl Breaker {
    /// A closed circuit.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            phase: Phase::Closed,
            record: Record::new(&settings),
            epoch: 0,
            open_for: settings.open_for,
            probing: false,
        }
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where it stands. An open one whose time is over stays open until somebody calls.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Closed => State::Closed,
            Phase::HalfOpen => State::HalfOpen,
            Phase::Open { .. } => State::Open,
        }
    }

    /// How long it stays open still.
    pub fn wait(&self, now: Duration) -> Duration {
        match self.phase {
            Phase::Open { until } => until.saturating_sub(now),
            Phase::Closed | Phase::HalfOpen => Duration::ZERO,
        }
    }

    /// Asks for the leave to call.
    pub fn permit(&mut self, now: Duration) -> Result<Ticket, Refused> {
        let began = match self.phase {
            Phase::Closed => {
                return Ok(Ticket { epoch: self.epoch, probe: false, began: false });
            }
            Phase::Open { until } if now < until => return Err(Refused { wait: until - now }),
            Phase::HalfOpen | Phase::Open { .. } if self.probing => {
                return Err(Refused { wait: PROBE_WAIT });
            }
            Phase::HalfOpen => false,
            Phase::Open { .. } => true,
        };
        self.phase = Phase::HalfOpen;
        self.probing = true;
        Ok(Ticket { epoch: self.epoch, probe: true, began })
    }

    /// Takes the leave back. Returns the new state where the circuit opened or closed.
    pub fn record(&mut self, ticket: Ticket, verdict: Verdict, now: Duration) -> Option<State> {
        if ticket.probe {
            self.probing = false;
        }
        if ticket.epoch != self.epoch {
            // It began before the circuit last changed, and says nothing about now.
            return None;
        }
        let Record { in_a_row, window } = &mut self.record;
        let opens = match (self.phase, verdict) {
            (Phase::Closed, Verdict::Failure) => {
                *in_a_row = in_a_row.saturating_add(1);
                window.add(now, Counts { all: 1, marked: 1 });
                *in_a_row >= self.settings.consecutive || self.settings.too_many(window.sum(now))
            }
            (Phase::Closed, Verdict::Success) => {
                *in_a_row = 0;
                window.add(now, Counts { all: 1, marked: 0 });
                false
            }
            (Phase::HalfOpen, Verdict::Failure) => true,
            (Phase::HalfOpen, Verdict::Success | Verdict::Answered) => {
                self.close();
                return Some(State::Closed);
            }
            // A probe that never came to the tool leaves its place to the next call.
            (Phase::HalfOpen, Verdict::Ignored)
            | (Phase::Closed, Verdict::Answered | Verdict::Ignored)
            | (Phase::Open { .. }, _) => false,
        };
        if !opens {
            return None;
        }
        self.open(now.saturating_add(self.open_for));
        self.open_for = self.open_for.saturating_mul(2).min(self.settings.max_open_for);
        Some(State::Open)
    }

    /// Opens it until then, or for longer where it is open already. Returns the new state where it changed.
    pub fn force_open(&mut self, until: Duration) -> Option<State> {
        if let Phase::Open { until: known } = &mut self.phase {
            *known = until.max(*known);
            return None;
        }
        self.open(until);
        Some(State::Open)
    }

    /// Closes it, and forgets what was. Returns the new state where it changed.
    pub fn reset(&mut self) -> Option<State> {
        let before = self.state();
        self.close();
        (before != State::Closed).then_some(State::Closed)
    }

    fn open(&mut self, until: Duration) {
        self.phase = Phase::Open { until };
        self.epoch += 1;
    }

    fn close(&mut self) {
        self.phase = Phase::Closed;
        self.record = Record::new(&self.settings);
        self.open_for = self.settings.open_for;
        self.epoch += 1;
    }
}

impl Settings {
    fn too_many(&self, counts: Counts) -> bool {
        let enough = counts.all >= u64::from(self.min_calls.max(1));
        enough && counts.marked as f64 >= self.failure_ratio * counts.all as f64
    }
}

impl Record {
    fn new(settings: &Settings) -> Self {
        Self { in_a_row: 0, window: Window::new(settings.window) }
    }
}

#[cfg(test)]
mod tests;
