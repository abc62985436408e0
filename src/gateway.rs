//! The path of one call, readable top to bottom.

pub mod asking;
mod closing;
mod decisions;
mod dispatch;
pub mod events;
pub mod flight;
mod follow;
pub mod ledger;
pub mod memory;
pub mod notices;
pub mod notify;
pub mod policies;
pub mod recent;
mod record;
mod replay;
mod rounds;
pub mod shadow_report;
pub mod simulate;
pub mod tally;
pub mod tending;
pub mod told;
mod unkept;
mod waiting;
mod watching;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::{BoxFuture, Clock};
use crate::config::file::Unread;
use crate::config::snapshot::Tool;
use crate::exec::{Executor, Flag, Job, Presence};
use crate::gateway::asking::{bounds_hold, hold, resolve_names};
use crate::gateway::events::{Event, Events};
use crate::gateway::flight::{Caught, InFlight, Outliving, aside};
use crate::gateway::ledger::{Ledger, Live};
use crate::gateway::memory::Memory;
use crate::gateway::notices::Teller;
use crate::gateway::recent::Recent;
use crate::gateway::told::{CallError, Told, reference};
use crate::limits::Limits;
use crate::model::approval::{Approval, ApprovalStatus};
use crate::model::call::ToolCall;
use crate::model::id::IdempotencyKey;
use crate::model::outcome::{
    AttemptRecord, CallOutcome, Decision, Failure, FailureCode, Phase, Sent, Success, ToolReference,
};
use crate::model::outcome_text;
use crate::net::epoch::Epoch;
use crate::policy::approval;
use crate::policy::identity::Caller;
use crate::policy::rules;
use crate::policy::schema;
use crate::store::records::CallRecord;
use crate::telemetry::audit::{Audit, KeyRefusal};
use crate::telemetry::log::{CallLine, LineCaller, LogSink};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tool_metrics::ToolMetrics;
use crate::telemetry::trace::call::CallTrace;

/// Contract: a call's deadline is at most 20 minutes.
pub const LONGEST_DEADLINE: Duration = Duration::from_secs(20 * 60);
/// Contract: what the default deadline adds to attempts times timeout.
const DEADLINE_SLACK: Duration = Duration::from_secs(15);
/// Arguments of more bytes are judged aside: each condition of each policy may read all of them.
const LARGE: usize = 64 * 1024;

/// Runs calls on the current configuration.
#[derive(Debug)]
pub struct Gateway {
    epochs: watch::Receiver<Arc<Epoch>>,
    webhook: Arc<dyn Executor>,
    limits: Arc<Limits>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    log: LogSink,
    memory: Memory,
    ledger: Arc<Ledger>,
    in_flight: InFlight,
    recent: Recent,
    events: Arc<Events>,
    cut_off: Flag,
    /// The gateway ends: what a person said yes to is left for the next one.
    ending: Flag,
    /// Grows whenever a waiting call changes in this process.
    changes: watch::Sender<u64>,
}

/// One call on its way.
struct Way<'a> {
    epoch: &'a Epoch,
    call: &'a ToolCall,
    caller: &'a Caller,
    presence: &'a Presence,
    /// Its place among the open calls; a call at a desk has none and is not kept.
    live: Option<&'a Live>,
    /// The decision of a person on which it runs, and what is kept of it.
    leave: Option<&'a Leave>,
}

impl Way<'_> {
    fn not_now(&self, failure: Failure) -> Stop {
        match self.leave {
            Some(leave) if leave.is_patient => Stop::NotNow(failure),
            _ => Stop::Ended(failure),
        }
    }
}

/// A person's yes, and the waiting call that it is about.
struct Leave {
    approval: Approval,
    record: CallRecord,
    /// Whether it waits for limits, places and the circuit.
    is_patient: bool,
}

impl Leave {
    /// The decision once its call has ended so: it is void where it was about something else.
    fn approval_after(&self, ended: &Result<Success, Failure>) -> Approval {
        let is_void = ended.as_ref().is_err_and(|failed| failed.code == FailureCode::ApprovalVoid);
        let status = if is_void { ApprovalStatus::Void } else { self.approval.status };
        Approval { status, ..self.approval.clone() }
    }
}

/// What is known about a call while it goes its way.
#[derive(Default)]
struct Trail {
    reference: Option<ToolReference>,
    decision: Option<Decision>,
    attempts: Vec<AttemptRecord>,
    started_at_ms: Option<i64>,
    idempotency_key: Option<IdempotencyKey>,
    unsaid: Unsaid,
    spans: Option<CallTrace>,
}

/// What the outcome does not say.
#[derive(Default)]
struct Unsaid {
    upstream: Duration,
    reason: Option<String>,
}

/// Why a call does not reach its end here.
enum Stop {
    /// Its identity was taken meanwhile: whose it is has to be looked up again.
    Again,
    /// It failed or was refused.
    Ended(Failure),
    /// It runs on a person's yes, and limits or circuit do not let it run yet.
    NotNow(Failure),
    /// The request cannot be answered.
    Error(CallError),
    /// It waits for a person, or runs as the call that the person was asked about.
    Told(Told),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Ended(failure)
    }
}

impl Gateway {
    /// Puts a gateway together.
    pub fn new(
        epochs: watch::Receiver<Arc<Epoch>>,
        webhook: Arc<dyn Executor>,
        limits: Arc<Limits>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        log: LogSink,
        memory: Memory,
    ) -> Self {
        let in_flight = InFlight::new(metrics.calls_in_flight.clone());
        let (recent, cut_off, ledger) = (Recent::default(), Flag::default(), Arc::default());
        let (changes, _) = watch::channel(0);
        let events = Arc::new(Events::new(clock.clone()));
        Self {
            epochs,
            webhook,
            limits,
            clock,
            metrics,
            log,
            memory,
            ledger,
            in_flight,
            recent,
            events,
            cut_off,
            ending: Flag::default(),
            changes,
        }
    }

    /// The configuration in force.
    pub fn epoch(&self) -> Arc<Epoch> {
        self.epochs.borrow().clone()
    }

    /// The limits in force.
    pub fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    /// The clocks.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Takes down who did what.
    pub fn audit(&self) -> &Audit {
        &self.memory.audit
    }

    /// What is remembered of each tool's calls.
    pub fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Tells what happens to calls.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// What outlives a call.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Lines of finished calls since the start, by what became of them.
    pub fn call_lines(&self) -> [(&'static str, u64); 2] {
        self.log.call_lines()
    }

    /// Waits until no call runs.
    pub async fn idle(&self) {
        self.in_flight.idle().await;
    }

    /// Lets no call begin that waits for its turn: it stays approved, and the next process goes on with it.
    pub fn begin_nothing_more(&self) {
        self.ending.raise();
    }

    /// Ends what still runs: `cancelled`, and with an open outcome where the tool has the request.
    pub fn cut_off(&self) {
        self.cut_off.raise();
    }

    /// Runs one call, and tells it once it has ended, or waits for a person, or the runtime's patience is over.
    ///
    /// Dropping the returned future (the runtime hung up) does not undo what was sent: a call whose request is out goes
    /// on in a task of its own and is kept; one that sent nothing yet stops.
    pub async fn call(
        self: &Arc<Self>,
        epoch: Arc<Epoch>,
        caller: Arc<Caller>,
        mut call: ToolCall,
    ) -> Result<Told, CallError> {
        resolve_names(&epoch, &caller, &mut call)?;
        let settings = epoch.snapshot.tracing.as_ref();
        call.stands_in(self.memory.tracer.place(settings, call.context.trace));
        let until = self.clock.now() + call.wait;
        let presence = Presence::until(self.cut_off.clone());
        let is_held = hold(&caller, &mut call);
        let created_at_ms = self.clock.unix_ms();
        let live = Arc::new(Live::new(call, caller, created_at_ms, presence.clone()));
        let (gateway, own) = (self.clone(), live.clone());
        let whole = async move {
            // Whoever may not call it learns nothing about calls either, and leaves nothing under their names.
            if !is_held {
                let unkept = gateway.run_unkept(&epoch, &own.caller, &own.call);
                let outcome = Box::pin(unkept).await;
                return Ok(Told {
                    phase: Phase::Ended(outcome.status()),
                    id: outcome.id.clone(),
                    body: outcome_text::write(&outcome).into(),
                });
            }
            gateway.answer(&epoch, own, until).await
        };
        let mut outliving = Outliving::new(Box::pin(whole), presence);
        match tokio::time::timeout_at(until, &mut outliving).await {
            Ok(told) => told,
            Err(_) => Box::pin(self.tell_running(&live, outliving)).await,
        }
    }

    /// Lets a call go its way in a task of its own. What it runs is in flight, and the end waits for that.
    fn set_off(&self, work: BoxFuture<'static, ()>) {
        tokio::spawn(work);
    }

    /// From the first check to the one exit.
    async fn run(self: &Arc<Self>, way: &Way<'_>, created_at_ms: i64) -> Result<CallOutcome, Stop> {
        let began = self.clock.now();
        let metrics = self.metrics.tool(&way.call.tool);
        let settings = way.epoch.snapshot.tracing.as_ref();
        let spans = self.memory.tracer.begin(settings, way.call, began);
        let mut trail = Trail { spans, ..Trail::default() };
        let ended = {
            let steps = pin!(self.steps(way, &metrics, &mut trail));
            Caught(steps).await
        };
        let ended = ended.unwrap_or_else(|panic| {
            self.metrics.panics.inc();
            tracing::error!(panic, "A call panicked.");
            let text = "The call failed inside the gateway.";
            let failure = Failure::not_sent(FailureCode::Internal, text);
            Err(Failure { sent: Sent::Unknown, ..failure }.into())
        });
        let ended = match ended {
            Ok(success) => Ok(success),
            Err(Stop::Ended(failure)) => Err(failure),
            Err(stop) => return Err(stop),
        };
        let outcome = CallOutcome {
            id: way.call.id.clone(),
            tool: way.call.tool.clone(),
            reference: trail.reference,
            decision: trail.decision,
            approval: way.leave.map(|leave| Box::new(leave.approval_after(&ended))),
            ended,
            attempts: trail.attempts,
            idempotency_key: trail.idempotency_key,
            trace_id: way.call.context.trace_id(),
            test: way.call.context.test,
            created_at_ms,
            started_at_ms: trail.started_at_ms,
            finished_at_ms: self.clock.unix_ms(),
            duration: self.clock.now().saturating_duration_since(began),
        };
        self.finish(way, &metrics, &outcome, trail.unsaid);
        if let Some(spans) = trail.spans {
            let tool = way.epoch.snapshot.tool(&way.call.tool).map(Arc::as_ref);
            self.memory.tracer.end(spans, way.call, tool, &outcome);
        }
        Ok(outcome)
    }

    /// The checks in their order, then the executor. Each step ends the call or hands on what the next one needs. What a
    /// person said yes to passes all of them once more, by the configuration of that moment.
    async fn steps(
        self: &Arc<Self>,
        way: &Way<'_>,
        metrics: &ToolMetrics,
        trail: &mut Trail,
    ) -> Result<Success, Stop> {
        let Way { epoch, call, caller, presence, .. } = *way;

        // 1. The key's bounds hold what the body claims: looked at before the call was looked up.
        if !bounds_hold(caller, call) {
            return Err(not_allowed().into());
        }

        // 2. The tool is known, the agent's, and turned on.
        let tool = epoch.snapshot.tool(&call.tool).ok_or_else(|| {
            if epoch.snapshot.unread.contains_key(call.tool.as_str()) {
                return Failure::not_sent(FailureCode::NotConfigured, Unread::SENTENCE);
            }
            let text = format!("There is no tool named \"{}\".", call.tool);
            Failure::not_sent(FailureCode::UnknownTool, text)
        })?;
        trail.reference = Some(reference(tool, call.batch.as_ref()));
        let agent = call.context.agent_id.as_deref();
        let off = if !epoch.snapshot.agents.offers(agent, &call.tool) {
            Some(FailureCode::NotOnAgent)
        } else {
            (!tool.enabled).then_some(FailureCode::ToolDisabled)
        };
        if let Some(code) = off {
            let text = format!("The tool \"{}\" is turned off.", tool.name);
            return Err(Failure::not_sent(code, text).into());
        }
        rounds::admit(&epoch.snapshot.rounds, call)?;

        // 3. The arguments fit its schema; only what was checked can be sent.
        let judge = || tool.arguments.check(&call.arguments);
        let takes_long =
            tool.arguments.takes_long(&call.arguments) || call.arguments.text().len() > LARGE;
        let judged = if takes_long { aside(judge) } else { judge() };
        let arguments = judged.map_err(|problems| {
            let text = schema::sentence(&problems);
            Failure { problems, ..Failure::not_sent(FailureCode::InvalidArguments, text) }
        })?;

        // 4. The policies let it run, or it is parked for a person.
        let policies = self.policies_about(way, tool).await?;
        let decide = || rules::decide(&tool.policy, &policies, agent, &call.arguments);
        let decision = if takes_long { aside(decide) } else { decide() };
        if way.leave.is_none() {
            self.metrics.policy(metrics, &decision);
        }
        let decision = &*trail.decision.insert(decision);
        let passed = match approval::refusal(decision, way.live.is_some()) {
            Some(text) => Err(Failure::not_sent(FailureCode::Denied, text).into()),
            None => self.person(way, tool, decision, &policies).await,
        };
        self.count_watching(way, tool, decision, &policies, &passed);
        passed?;

        // 5. Its secrets are there, and its exception has not ended.
        if let Some(reason) = &tool.unavailable {
            let text = reason.sentence();
            return Err(Failure::not_sent(FailureCode::NotConfigured, text).into());
        }

        // 6. It may be called now: pause, rate limits, places, circuit. From here on its identity is its own.
        let permit =
            self.limits.admit(tool, caller, call).map_err(|failure| way.not_now(failure))?;
        let filler = rounds::filler(tool, call);
        trail.reference = Some(reference(tool, call.batch.as_ref()));
        self.begin(way, tool, decision).await?;
        self.events.tell(|| Event::start(&caller.organisation, call, filler));

        // 7. Resolve, judge, connect, sign, send, read, repeat: `exec/webhook.rs`.
        let bound = call.deadline.unwrap_or_else(|| default_deadline(tool)).min(LONGEST_DEADLINE);
        let deadline: Instant = self.clock.now() + bound;
        let job = Job {
            epoch,
            tool,
            call,
            arguments: &arguments,
            identity: way
                .live
                .map_or_else(|| call.context.idempotency_key(), |live| live.identity.clone()),
            permit: &permit,
            deadline,
            presence,
            metrics,
            spans: trail.spans.as_ref(),
        };
        let executed = self.webhook.run(&job).await;
        trail.attempts = executed.attempts;
        trail.started_at_ms = executed.started_at_ms;
        trail.idempotency_key = executed.idempotency_key;
        trail.unsaid = Unsaid { upstream: executed.upstream, reason: executed.reason };
        if permit.settle(&executed.ended) {
            let teller = Teller::new(&way.epoch.snapshot, self.clock.unix_ms());
            self.memory.outbox.offer(teller.tool_failing(tool));
        }
        executed.ended.map_err(Stop::Ended)
    }

    /// The one exit of every outcome: metrics, what is remembered, and the call's log line.
    fn finish(&self, way: &Way<'_>, metrics: &ToolMetrics, outcome: &CallOutcome, unsaid: Unsaid) {
        self.events.tell_end(&way.caller.organisation, &way.call.context, outcome);
        self.metrics.finished(metrics, outcome);
        let own = outcome.duration.saturating_sub(unsaid.upstream);
        self.metrics.overhead.observe(own.as_secs_f64());
        let snapshot = &way.epoch.snapshot;
        self.recent.note(snapshot, outcome, unsaid.reason);
        if outcome.code() == FailureCode::NotAllowedForKey.as_str() {
            let (reason, caller) = (KeyRefusal::NotAllowedForKey, Some(way.caller));
            self.memory.audit.refused(reason, caller, Some(&outcome.tool));
        }
        let line = LineCaller {
            organisation: &way.caller.organisation,
            key: &way.caller.name,
            region: snapshot.region.as_deref(),
            owner: snapshot.owner(&way.call.tool),
        };
        self.log.call(&CallLine::new(outcome, &way.call.context, line));
    }
}

fn not_allowed() -> Failure {
    Failure::not_sent(FailureCode::NotAllowedForKey, "This call is not allowed.")
}

/// Contract: attempts × timeout + 15 s.
fn default_deadline(tool: &Tool) -> Duration {
    tool.timeout.saturating_mul(tool.profile.retry.attempts) + DEADLINE_SLACK
}

#[cfg(test)]
mod tests;
