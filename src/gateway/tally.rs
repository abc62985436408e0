//! Counts by day what policies that only watch said of calls: the report's numbers, on their way into the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};

use crate::clock::Clock;
use crate::exec::Flag;
use crate::model::approval::ApprovalStatus;
use crate::model::id::{CallId, ToolName};
use crate::model::outcome::{Decision, PolicyName, ShadowRuling};
use crate::policy::rules::{Mode, Policy};
use crate::store::records::{ShadowCount, ShadowSample};
use crate::store::{Store, StoreError};

/// How long a count may wait for the store.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// A store that fails is told of once in this time.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Contract: 20 samples.
pub const SAMPLES: usize = 20;
/// Who may wait for a flush at the same time; others ask again.
const WAITING: usize = 64;
/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// The UTC day of a time in Unix milliseconds, counted from 1970-01-01.
pub fn day(unix_ms: i64) -> i64 {
    unix_ms.div_euclid(DAY_MS)
}

/// When a day begins, in Unix milliseconds.
pub fn day_begins_ms(day: i64) -> i64 {
    day.saturating_mul(DAY_MS)
}

/// The key of a tool's candidate, where a policy has its id.
pub fn candidate_key(tool: &str) -> String {
    format!("candidate:{tool}")
}

/// One decision, and what it was made by.
#[derive(Debug)]
pub struct Decided<'a> {
    /// The organisation that called.
    pub organisation: &'a str,
    /// The tool.
    pub tool: &'a ToolName,
    /// Whether the tool has a candidate.
    pub has_candidate: bool,
    /// The policies that are about the tool.
    pub policies: &'a [Arc<Policy>],
    /// The call.
    pub call_id: &'a CallId,
    /// When it was made, in Unix milliseconds.
    pub created_at_ms: i64,
    /// What was decided.
    pub decision: &'a Decision,
}

/// What is counted and not yet in the store.
#[derive(Debug)]
pub struct Tally {
    waiting: Mutex<Waiting>,
    asked: mpsc::Sender<oneshot::Sender<Result<(), StoreError>>>,
}

/// Bounded by what there is: policies, tools and the days on which the store failed.
#[derive(Debug, Default)]
struct Waiting {
    counts: HashMap<Key, Counts>,
    samples: Vec<ShadowSample>,
    /// Samples that were offered of a policy and day.
    sampled: HashMap<(String, Watcher, i64), usize>,
}

/// What is on its way into the store.
struct Taken {
    counts: HashMap<Key, Counts>,
    samples: Vec<ShadowSample>,
}

type Key = (String, Watcher, ToolName, i64);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Watcher {
    Candidate(ToolName),
    Policy(Arc<str>),
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    calls: u64,
    matched: u64,
    disagreed: u64,
    unasked: u64,
    approved: u64,
    rejected: u64,
    expired: u64,
}

/// Brings the counts into the store.
#[derive(Debug)]
pub struct TallyWorker {
    tally: Arc<Tally>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    asked: mpsc::Receiver<oneshot::Sender<Result<(), StoreError>>>,
    warned: Option<Instant>,
}

impl Tally {
    /// A tally, and the worker that empties it.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> (Arc<Self>, TallyWorker) {
        let (sender, asked) = mpsc::channel(WAITING);
        let tally = Arc::new(Self { waiting: Mutex::default(), asked: sender });
        let worker = TallyWorker { tally: tally.clone(), store, clock, asked, warned: None };
        (tally, worker)
    }

    /// Counts a decision on a new call.
    pub fn note(&self, decided: &Decided<'_>) {
        let watching = decided.policies.iter().filter(|policy| policy.mode == Mode::Shadow);
        let mut watching = watching.peekable();
        if !decided.has_candidate && watching.peek().is_none() {
            return;
        }
        let mut waiting = self.lock();
        if decided.has_candidate {
            let watcher = Watcher::Candidate(decided.tool.clone());
            waiting.count(decided, watcher, &PolicyName::Candidate);
        }
        for policy in watching {
            let name = PolicyName::Named(policy.id.clone());
            waiting.count(decided, Watcher::Policy(policy.id.clone()), &name);
        }
    }

    /// Counts what became of a call that waited, though the tool's candidate would have let it run, on the day on which it
    /// was made.
    pub fn resolved(
        &self,
        organisation: &str,
        tool: &ToolName,
        created_at_ms: i64,
        status: ApprovalStatus,
    ) {
        let mut waiting = self.lock();
        let key = (
            organisation.to_owned(),
            Watcher::Candidate(tool.clone()),
            tool.clone(),
            day(created_at_ms),
        );
        let counts = waiting.counts.entry(key).or_default();
        match status {
            ApprovalStatus::Approved => counts.approved += 1,
            ApprovalStatus::Expired => counts.expired += 1,
            ApprovalStatus::Rejected => counts.rejected += 1,
            // Nobody has said anything.
            ApprovalStatus::Cancelled | ApprovalStatus::Pending | ApprovalStatus::Void => {}
        }
    }

    /// Waits until everything that was counted before is in the store.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let busy = || StoreError::Unavailable("the counts are not being written".into());
        let (done, written) = oneshot::channel();
        self.asked.try_send(done).map_err(|_| busy())?;
        written.await.map_err(|_| busy())?
    }

    /// Everything that waits; samples are counted for this day and the one before.
    fn take(&self, today: i64) -> Taken {
        let mut waiting = self.lock();
        waiting.sampled.retain(|(_, _, day), _| *day >= today - 1);
        let counts = std::mem::take(&mut waiting.counts);
        Taken { counts, samples: std::mem::take(&mut waiting.samples) }
    }

    fn put_back(&self, taken: Taken) {
        let mut waiting = self.lock();
        for (key, counts) in taken.counts {
            waiting.counts.entry(key).or_default().add(counts);
        }
        waiting.samples.splice(0..0, taken.samples);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn count(&mut self, decided: &Decided<'_>, watcher: Watcher, name: &PolicyName) {
        let day = day(decided.created_at_ms);
        let organisation = decided.organisation.to_owned();
        let key = (organisation.clone(), watcher.clone(), decided.tool.clone(), day);
        let counts = self.counts.entry(key).or_default();
        counts.calls += 1;
        let is_its = |ruling: &&ShadowRuling| ruling.policy == *name;
        let Some(ruling) = decided.decision.shadow.iter().find(is_its) else { return };
        counts.matched += 1;
        if *name == PolicyName::Candidate && decided.decision.would_run_unasked() {
            counts.unasked += 1;
        }
        if !ruling.disagrees {
            return;
        }
        counts.disagreed += 1;
        let policy = watcher.key();
        let sampled = self.sampled.entry((organisation.clone(), watcher, day)).or_default();
        if *sampled < SAMPLES {
            *sampled += 1;
            self.samples.push(ShadowSample {
                organisation,
                policy,
                day,
                call_id: decided.call_id.as_str().to_owned(),
                tool: decided.tool.as_str().to_owned(),
            });
        }
    }
}

impl Watcher {
    fn key(&self) -> String {
        match self {
            Self::Candidate(tool) => candidate_key(tool.as_str()),
            Self::Policy(id) => id.to_string(),
        }
    }
}

impl TallyWorker {
    /// Writes every second and whenever somebody asks, until `end` is raised, and then once more.
    pub async fn run(mut self, end: Flag) {
        let mut ticks = tokio::time::interval(FLUSH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut waiting = Vec::new();
            tokio::select! {
                () = end.raised() => break,
                _ = ticks.tick() => {}
                Some(one) = self.asked.recv() => waiting.push(one),
            }
            // Those who asked meanwhile are served by the same write.
            while let Ok(one) = self.asked.try_recv() {
                waiting.push(one);
            }
            let written = self.flush().await;
            for one in waiting {
                // Whoever asked may have gone.
                let _ = one.send(written.clone());
            }
        }
        // What the store does not take now is lost: `flush` says so.
        let _ = self.flush().await;
    }

    /// Brings everything that waits into the store; what it does not take waits on.
    pub async fn flush(&mut self) -> Result<(), StoreError> {
        let taken = self.tally.take(day(self.clock.unix_ms()));
        if taken.counts.is_empty() {
            return Ok(());
        }
        let counts =
            taken.counts.iter().map(|((organisation, watcher, tool, day), counts)| ShadowCount {
                organisation: organisation.clone(),
                policy: watcher.key(),
                tool: tool.as_str().to_owned(),
                day: *day,
                calls: counts.calls,
                matched: counts.matched,
                disagreed: counts.disagreed,
                unasked: counts.unasked,
                approved: counts.approved,
                rejected: counts.rejected,
                expired: counts.expired,
            });
        let samples = taken.samples.clone();
        let written = self.store.count_shadow(counts.collect(), samples).await;
        if let Err(error) = &written {
            self.tally.put_back(taken);
            let now = self.clock.now();
            if self.warned.is_none_or(|at| now.saturating_duration_since(at) >= WARN_EVERY) {
                self.warned = Some(now);
                tracing::warn!(%error, "Counts of shadow policies wait for the store.");
            }
        }
        written
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.matched += other.matched;
        self.disagreed += other.disagreed;
        self.unasked += other.unasked;
        self.approved += other.approved;
        self.rejected += other.rejected;
        self.expired += other.expired;
    }
}

#[cfg(test)]
mod tests;
