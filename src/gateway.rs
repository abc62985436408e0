//! The path of one call, readable top to bottom.

pub mod flight;
pub mod recent;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::file::Unread;
use crate::config::snapshot::Tool;
use crate::exec::{Executor, Flag, Job, Presence};
use crate::gateway::flight::{Caught, InFlight, Outliving, aside};
use crate::gateway::recent::Recent;
use crate::limits::Limits;
use crate::model::call::ToolCall;
use crate::model::id::IdempotencyKey;
use crate::model::outcome::{
    AttemptRecord, CallOutcome, Decision, Failure, FailureCode, Success, ToolReference,
};
use crate::net::epoch::Epoch;
use crate::policy::approval;
use crate::policy::identity::Caller;
use crate::policy::rules;
use crate::policy::schema;
use crate::telemetry::log::{CallLine, LineCaller, LogSink};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tool_metrics::ToolMetrics;

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
    in_flight: InFlight,
    recent: Recent,
    cut_off: Flag,
}

/// A request that is no call of this tool: the runtime's own mistake, told as an error of the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The profile sends an Idempotency-Key, which is made of it.
    #[error("`{0}` is required: the tool is sent an Idempotency-Key that is made of it")]
    Missing(&'static str),
    /// A credential whose value cannot be a header's.
    #[error("`{name}`: {reason}")]
    Credential {
        /// The header's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A credential that the tool does not list.
    #[error("`{0}` is not among the tool's accept_credentials")]
    UnlistedCredential(String),
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
}

/// What the outcome does not say.
#[derive(Default)]
struct Unsaid {
    upstream: Duration,
    reason: Option<String>,
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
    ) -> Self {
        let in_flight = InFlight::new(metrics.calls_in_flight.clone());
        let (recent, cut_off) = (Recent::default(), Flag::default());
        Self { epochs, webhook, limits, clock, metrics, log, in_flight, recent, cut_off }
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

    /// What is remembered of each tool's calls.
    pub fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Lines of finished calls since the start, by what became of them.
    pub fn call_lines(&self) -> [(&'static str, u64); 2] {
        self.log.call_lines()
    }

    /// Waits until no call runs.
    pub async fn idle(&self) {
        self.in_flight.idle().await;
    }

    /// Ends what still runs: `cancelled`, and with an open outcome where the tool has the request.
    pub fn cut_off(&self) {
        self.cut_off.raise();
    }

    /// Runs one call to its end.
    ///
    /// Dropping the returned future (the runtime hung up) does not undo what was sent: a call whose request is out goes
    /// on in a task of its own and is logged; one that sent nothing yet stops.
    pub async fn call(
        self: &Arc<Self>,
        epoch: Arc<Epoch>,
        caller: Arc<Caller>,
        mut call: ToolCall,
    ) -> Result<CallOutcome, Malformed> {
        let known = epoch.snapshot.tool_by_any_name(&call.tool);
        // To a key that is not bound to it, a tool's other name is nobody's.
        if let Some(tool) = known.filter(|tool| caller.may_call(tool.name.as_str())) {
            tool.name.as_str().clone_into(&mut call.tool);
            well_formed(tool, &call)?;
        } else if known.is_none()
            && let Some(name) = epoch.snapshot.unread_by_any_name(&call.tool)
            && caller.may_call(name.as_str())
        {
            name.as_str().clone_into(&mut call.tool);
        }
        let presence = Presence::until(self.cut_off.clone());
        let ticket = self.in_flight.enter();
        let gateway = self.clone();
        let watched = presence.clone();
        let whole = async move {
            let outcome = gateway.run(&epoch, &caller, call, &watched).await;
            drop(ticket);
            outcome
        };
        Ok(Outliving::new(Box::pin(whole), presence).await)
    }

    /// From the first check to the one exit.
    async fn run(
        &self,
        epoch: &Epoch,
        caller: &Caller,
        mut call: ToolCall,
        presence: &Presence,
    ) -> CallOutcome {
        let began = self.clock.now();
        let created_at_ms = self.clock.unix_ms();
        let metrics = self.metrics.tool(&call.tool);
        let mut trail = Trail::default();
        let steps = self.steps(epoch, caller, &mut call, presence, &metrics, &mut trail);
        let ended = Caught::new(steps).await.unwrap_or_else(|panic| {
            self.metrics.panics.inc();
            tracing::error!(panic, "A call panicked.");
            Err(Failure {
                sent: crate::model::outcome::Sent::Unknown,
                ..Failure::not_sent(FailureCode::Internal, "The call failed inside the gateway.")
            })
        });
        let duration = self.clock.now().saturating_duration_since(began);
        let outcome = CallOutcome {
            id: call.id.clone(),
            tool: call.tool.clone(),
            reference: trail.reference,
            decision: trail.decision,
            ended,
            attempts: trail.attempts,
            idempotency_key: trail.idempotency_key,
            test: call.context.test,
            created_at_ms,
            started_at_ms: trail.started_at_ms,
            finished_at_ms: self.clock.unix_ms(),
            duration,
        };
        self.finish(epoch, caller, &call, &metrics, &outcome, trail.unsaid);
        outcome
    }

    /// The checks in their order, then the executor. Each step ends the call or hands on what the next one needs.
    async fn steps(
        &self,
        epoch: &Epoch,
        caller: &Caller,
        call: &mut ToolCall,
        presence: &Presence,
        metrics: &ToolMetrics,
        trail: &mut Trail,
    ) -> Result<Success, Failure> {
        // 1. The key's bounds hold what the body claims.
        let agent = caller.agent(call.context.agent_id.as_deref());
        let agent = agent.ok().filter(|_| caller.may_call(&call.tool));
        call.context.agent_id = agent.ok_or_else(|| {
            Failure::not_sent(FailureCode::NotAllowedForKey, "This call is not allowed.")
        })?;

        // 2. The tool is known, the agent's, and turned on.
        let tool = epoch.snapshot.tool(&call.tool).ok_or_else(|| {
            if epoch.snapshot.unread.contains_key(call.tool.as_str()) {
                return Failure::not_sent(FailureCode::NotConfigured, Unread::SENTENCE);
            }
            let text = format!("There is no tool named \"{}\".", call.tool);
            Failure::not_sent(FailureCode::UnknownTool, text)
        })?;
        trail.reference = Some(reference(tool));
        let agent = call.context.agent_id.as_deref();
        let off = if !epoch.snapshot.agents.offers(agent, &call.tool) {
            Some(FailureCode::NotOnAgent)
        } else {
            (!tool.enabled).then_some(FailureCode::ToolDisabled)
        };
        if let Some(code) = off {
            let text = format!("The tool \"{}\" is turned off.", tool.name);
            return Err(Failure::not_sent(code, text));
        }

        // 3. The arguments fit its schema; only what was checked can be sent.
        let judge = || tool.arguments.check(&call.arguments);
        let takes_long =
            tool.arguments.takes_long(&call.arguments) || call.arguments.text().len() > LARGE;
        let judged = if takes_long { aside(judge) } else { judge() };
        let arguments = judged.map_err(|problems| {
            let text = schema::sentence(&problems);
            Failure { problems, ..Failure::not_sent(FailureCode::InvalidArguments, text) }
        })?;

        // 4. The policies let it run.
        let decide = || rules::decide(&tool.policy, &tool.policies, agent, &call.arguments);
        let decision = if takes_long { aside(decide) } else { decide() };
        self.metrics.policy(metrics, &decision);
        let refusal = approval::refusal(&decision);
        trail.decision = Some(decision);
        if let Some(text) = refusal {
            return Err(Failure::not_sent(FailureCode::Denied, text));
        }

        // 5. Its secrets are there, and its exception has not ended.
        if let Some(reason) = &tool.unavailable {
            return Err(Failure::not_sent(FailureCode::NotConfigured, reason.sentence()));
        }

        // 6. It may be called now: pause, rate limits, places, circuit.
        let permit = self.limits.admit(tool, caller, call)?;

        // 7. Resolve, judge, connect, sign, send, read, repeat: `exec/webhook.rs`.
        let bound = call.deadline.unwrap_or_else(|| default_deadline(tool)).min(LONGEST_DEADLINE);
        let deadline: Instant = self.clock.now() + bound;
        let job = Job {
            epoch,
            tool,
            call,
            arguments: &arguments,
            permit: &permit,
            deadline,
            presence,
            metrics,
        };
        let executed = self.webhook.run(&job).await;
        trail.attempts = executed.attempts;
        trail.started_at_ms = executed.started_at_ms;
        trail.idempotency_key = executed.idempotency_key;
        trail.unsaid = Unsaid { upstream: executed.upstream, reason: executed.reason };
        permit.settle(&executed.ended);
        executed.ended
    }

    /// The one exit of every outcome: metrics, what is remembered, and the call's log line.
    fn finish(
        &self,
        epoch: &Epoch,
        caller: &Caller,
        call: &ToolCall,
        metrics: &ToolMetrics,
        outcome: &CallOutcome,
        unsaid: Unsaid,
    ) {
        self.metrics.finished(metrics, outcome);
        let own = outcome.duration.saturating_sub(unsaid.upstream);
        self.metrics.overhead.observe(own.as_secs_f64());
        let snapshot = &epoch.snapshot;
        self.recent.note(snapshot, outcome, unsaid.reason);
        let owner = snapshot.owner(&call.tool);
        let line = LineCaller {
            organisation: &caller.organisation,
            key: &caller.name,
            region: snapshot.region.as_deref(),
            owner,
        };
        self.log.call(&CallLine::new(outcome, &call.context, line));
    }
}

fn well_formed(tool: &Tool, call: &ToolCall) -> Result<(), Malformed> {
    if tool.profile.needs_run() {
        if call.context.run_id.is_none() {
            return Err(Malformed::Missing("run_id"));
        }
        if call.context.step.is_none() {
            return Err(Malformed::Missing("step"));
        }
    }
    let listed =
        |name: &str| tool.accept_credentials.iter().any(|one| one.eq_ignore_ascii_case(name));
    for (name, value) in &call.credentials {
        if !listed(name) {
            return Err(Malformed::UnlistedCredential(name.clone()));
        }
        let checked = tool.profile.check_own_header(name, value.clone());
        let reason = match checked {
            Ok(_) if value.is_empty() => "is empty, leave it out".into(),
            Ok(_) => continue,
            Err(error) => error.to_string(),
        };
        return Err(Malformed::Credential { name: name.clone(), reason });
    }
    Ok(())
}

/// Contract: attempts × timeout + 15 s.
fn default_deadline(tool: &Tool) -> Duration {
    tool.timeout.saturating_mul(tool.profile.retry.attempts) + DEADLINE_SLACK
}

fn reference(tool: &Tool) -> ToolReference {
    ToolReference {
        id: tool.id.clone(),
        version: 1,
        read_only: tool.read_only,
        filler: tool.filler.clone(),
    }
}

#[cfg(test)]
mod tests;
