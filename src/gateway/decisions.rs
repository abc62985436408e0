//! What a person decides: once, on exactly what was seen, and with an effect at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::config::snapshot::Tool;
use crate::gateway::closing::{Closing, ruling};
use crate::gateway::dispatch::Running;
use crate::gateway::follow::{MOST, MOST_BYTES, reach};
use crate::gateway::ledger::Live;
use crate::gateway::notices::Teller;
use crate::gateway::record::{captures, ended_unsent, forget_text};
use crate::gateway::replay::may_see;
use crate::gateway::told::{CallError, Told, Verdict, reference};
use crate::gateway::waiting::binding;
use crate::gateway::{Gateway, Leave, Stop};
use crate::model::approval::{Approval, ApprovalId, ApprovalKind, ApprovalStatus, DecidedBy};
use crate::model::canonical;
use crate::model::id::{CallId, IdempotencyKey};
use crate::model::outcome::{CallOutcome, Failure, FailureCode, Phase, Status};
use crate::model::outcome_text::change::{Change, changed};
use crate::policy::approval as words;
use crate::policy::identity::Caller;
use crate::store::records::{ApprovalFilter, CallRecord, Notice};
use crate::store::{Decided, StoreError};
use crate::telemetry::log::{CallLine, LineCaller};
use crate::telemetry::trace::call::Asked;

/// How long a confirmation waits for its call: as long as a call does by default.
const CONFIRM_WAIT: Duration = Duration::from_secs(50);

impl Gateway {
    /// Approvals that a key may see, the newest first.
    pub async fn approvals(
        &self,
        caller: &Caller,
        filter: ApprovalFilter,
    ) -> Result<Vec<Approval>, CallError> {
        let organisation = Some(caller.organisation.to_string());
        let most = filter.most.min(MOST);
        let (reach, bytes) = (reach(caller, most), Some(MOST_BYTES));
        let filter = ApprovalFilter { organisation, most: reach, most_bytes: bytes, ..filter };
        let mut found = self.memory.store.approvals(&filter).await?;
        found.retain(|one| may_see(caller, &one.tool, one.agent_id.as_deref()));
        found.truncate(most);
        Ok(found)
    }

    /// One approval, with the exact arguments.
    pub async fn approval(&self, caller: &Caller, id: &ApprovalId) -> Result<Approval, CallError> {
        let found = self.memory.store.approval(&caller.organisation, id).await?;
        let found = found.filter(|one| may_see(caller, &one.tool, one.agent_id.as_deref()));
        found.ok_or(CallError::NotFound)
    }

    /// An operator decides on a waiting call. After a yes the call runs, or waits for its turn.
    pub async fn decide(
        self: &Arc<Self>,
        caller: &Caller,
        id: &ApprovalId,
        verdict: Verdict,
    ) -> Result<Approval, CallError> {
        let approval = self.approval(caller, id).await?;
        let digest = verdict.arguments_digest.as_deref().ok_or(CallError::DigestMissing)?;
        if digest != approval.arguments_digest {
            return Err(CallError::DigestMismatch);
        }
        if approval.kind == ApprovalKind::Person && verdict.yes {
            return Err(CallError::Persons);
        }
        let by = DecidedBy {
            id: caller.name.to_string(),
            // A key is known to be itself; which person sits behind it is its own word.
            verified: verdict.name.is_none(),
            name: verdict.name,
        };
        let settled = self.settle(approval, verdict.yes, by, verdict.reason, None).await?;
        Ok(settled.0)
    }

    /// The person's own answer to what the agent asked them.
    pub async fn confirm(
        self: &Arc<Self>,
        caller: &Caller,
        id: &CallId,
        yes: bool,
    ) -> Result<Told, CallError> {
        let approvals = self.memory.store.approvals_of(&caller.organisation, id).await?;
        let asked = approvals.into_iter().rfind(|one| one.kind == ApprovalKind::Person);
        let asked = asked.filter(|one| may_see(caller, &one.tool, one.agent_id.as_deref()));
        let approval = asked.ok_or(CallError::NotFound)?;
        let by = person(&approval);
        let (_, running) = self.settle(approval, yes, by, None, None).await?;
        match running {
            Some(running) => self.wait_for(running, caller, id, CONFIRM_WAIT).await,
            None => self.follow(caller, id, Duration::ZERO).await,
        }
    }

    /// Takes a call back: one that waits is refused, one that runs here is ended.
    pub async fn cancel(self: &Arc<Self>, caller: &Caller, id: &CallId) -> Result<Told, CallError> {
        let open = self.ledger.call(&caller.organisation, id);
        if let Some(live) = open
            .filter(|live| may_see(caller, &live.call.tool, live.call.context.agent_id.as_deref()))
        {
            live.presence.take_back();
            // One that waits for its turn only looked whether it may run: it is closed below.
            live.over(Duration::from_secs(1)).await;
        }
        let told = self.follow(caller, id, Duration::ZERO).await?;
        if told.phase != Phase::Waiting {
            return Ok(told);
        }
        let approvals = self.memory.store.approvals_of(&caller.organisation, id).await?;
        if let Some(approval) = approvals.into_iter().next_back() {
            self.close(approval, Closing::TakenBack).await?;
        }
        self.follow(caller, id, Duration::ZERO).await
    }

    /// A call that would ask the person: it may be the one that they were asked about (contract, section 6).
    ///
    /// The next turn's same call is their yes. Asking again in the same turn asks nobody. Other arguments and later turns
    /// drop what was asked.
    pub(super) async fn asked_before(
        self: &Arc<Self>,
        live: &Live,
        tool: &Arc<Tool>,
    ) -> Result<(), Stop> {
        let context = &live.call.context;
        let Some(session_id) = &context.session_id else { return Ok(()) };
        let filter = ApprovalFilter {
            organisation: Some(live.caller.organisation.to_string()),
            status: Some(ApprovalStatus::Pending),
            tool: Some(tool.name.to_string()),
            session_id: Some(session_id.clone()),
            most: MOST,
            ..ApprovalFilter::default()
        };
        let pending = self.memory.store.approvals(&filter).await.map_err(stop)?;
        let asked = pending
            .into_iter()
            .filter(|one| one.kind == ApprovalKind::Person && one.agent_id == context.agent_id);
        let digest = canonical::digest(live.call.arguments.text());
        for approval in asked {
            let is_same = approval.arguments_digest == digest;
            let turns = context.turn_index.zip(approval.turn_index);
            let later = turns.map(|(now, then)| i64::from(now) - i64::from(then));
            match later {
                // Their answer lies between the turns.
                Some(1) if is_same => return Err(self.confirmed_by_turn(live, approval).await),
                Some(1..) => self.close(approval, Closing::Dropped).await.map_err(Stop::Error)?,
                _ if is_same => {
                    let id = approval.call_id.clone();
                    let told = self.follow_kept(&live.caller, &id).await.map_err(Stop::Error)?;
                    return Err(Stop::Told(told));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The next turn's same call: the person's yes to what they were asked.
    async fn confirmed_by_turn(self: &Arc<Self>, live: &Live, approval: Approval) -> Stop {
        let (by, id) = (person(&approval), approval.call_id.clone());
        let alias = live.identity.clone();
        let settled = self.settle(approval, true, by, None, alias).await;
        let told = match settled {
            Ok((_, Some(running))) => {
                self.wait_for(running, &live.caller, &id, live.call.wait).await
            }
            Ok((_, None)) => self.follow_kept(&live.caller, &id).await,
            // Somebody answered at the same moment: this one asks anew.
            Err(CallError::Closed(_)) => return Stop::Again,
            Err(error) => Err(error),
        };
        told.map_or_else(Stop::Error, Stop::Told)
    }

    /// Keeps a yes or a no, and lets the call run after a yes.
    async fn settle(
        self: &Arc<Self>,
        approval: Approval,
        yes: bool,
        by: DecidedBy,
        reason: Option<String>,
        alias: Option<IdempotencyKey>,
    ) -> Result<(Approval, Option<Running>), CallError> {
        if approval.status != ApprovalStatus::Pending {
            return Err(CallError::Closed(approval.status.as_str()));
        }
        self.look_at_policies().await?;
        let now_ms = self.clock.unix_ms();
        if let Some(closing) = self.stands(&approval, now_ms) {
            self.close(approval, closing).await?;
            return Err(CallError::Closed(closing.status().as_str()));
        }
        let record = self.record_of(&approval).await?;
        let status = if yes { ApprovalStatus::Approved } else { ApprovalStatus::Rejected };
        let decided = Approval {
            status,
            decided_at_ms: Some(now_ms),
            decided_by: Some(by),
            reason,
            ..approval
        };
        let change = Change {
            approval: Some(&decided),
            created_at_ms: record.created_at_ms,
            ..Change::default()
        };
        let failure = (!yes).then(|| {
            let text = words::rejected(decided.reason.as_deref());
            Failure::not_sent(FailureCode::Rejected, text)
        });
        let mut kept = match &failure {
            Some(failure) => ended_unsent(&record, Status::Refused, failure, change, now_ms),
            None => waiting(&record, &change),
        };
        kept.alias = alias.or(kept.alias);
        if failure.is_some() {
            self.forget(&mut kept);
        }
        let ruling = ruling(&decided, now_ms);
        let notices = self.told_of(&decided, failure.is_some().then_some(&kept), now_ms);
        match self.memory.store.decide(ruling, Some(kept.clone()), notices).await? {
            Decided::Closed(other) => return Err(CallError::Closed(other.status.as_str())),
            Decided::Now(_) => {}
        }
        self.count_decided(&decided, now_ms);
        self.count_unasked(&kept, &decided);
        self.waiting_changed();
        if let Some(failure) = failure {
            self.ended_unrun(&kept, &decided, failure);
            return Ok((decided, None));
        }
        let leave = Leave { approval: decided.clone(), record: kept, is_patient: true };
        Ok((decided, Some(self.dispatch(leave))))
    }

    /// Ends a waiting call on which nobody decides any more.
    pub(super) async fn close(
        &self,
        approval: Approval,
        closing: Closing,
    ) -> Result<(), CallError> {
        let now_ms = self.clock.unix_ms();
        let record = self.record_of(&approval).await?;
        let closed = Approval { status: closing.status(), decided_at_ms: Some(now_ms), ..approval };
        let change = Change {
            approval: Some(&closed),
            created_at_ms: record.created_at_ms,
            ..Change::default()
        };
        let failure = closing.failure();
        let mut kept = ended_unsent(&record, Status::Refused, &failure, change, now_ms);
        self.forget(&mut kept);
        let ruling = ruling(&closed, now_ms);
        let notices = self.told_of(&closed, Some(&kept), now_ms);
        match self.memory.store.decide(ruling, Some(kept.clone()), notices).await? {
            // Somebody was quicker, and has said so.
            Decided::Closed(_) => return Ok(()),
            Decided::Now(_) => {}
        }
        self.count_decided(&closed, now_ms);
        self.count_unasked(&kept, &closed);
        self.ended_unrun(&kept, &closed, failure);
        self.waiting_changed();
        Ok(())
    }

    /// Why nobody can decide any more, where that is so.
    pub(super) fn stands(&self, approval: &Approval, now_ms: i64) -> Option<Closing> {
        if now_ms >= approval.expires_at_ms {
            return Some(Closing::Expired);
        }
        let epoch = self.epoch();
        let tool = epoch.snapshot.tool(&approval.tool);
        let bound = tool.map(|tool| {
            let policies = self.memory.policies.about(&approval.organisation, tool);
            binding(&approval.organisation, tool, &policies, &approval.arguments_digest)
        });
        (bound.as_deref() != Some(&approval.binding)).then_some(Closing::ToolChanged)
    }

    async fn record_of(&self, approval: &Approval) -> Result<CallRecord, CallError> {
        let found = self.memory.store.call(&approval.organisation, &approval.call_id).await?;
        found.ok_or(CallError::NotFound)
    }

    fn forget(&self, record: &mut CallRecord) {
        let epoch = self.epoch();
        forget_text(record, captures(&epoch, epoch.snapshot.tool(&record.tool)));
    }

    /// What people are told of a decision, and of the call that it ends.
    fn told_of(&self, approval: &Approval, ended: Option<&CallRecord>, now_ms: i64) -> Vec<Notice> {
        let epoch = self.epoch();
        let teller = Teller::new(&epoch.snapshot, now_ms);
        let mut notices = teller.approval_decided(approval);
        notices.extend(ended.into_iter().flat_map(|record| teller.call_finished(record)));
        notices
    }

    fn count_decided(&self, approval: &Approval, now_ms: i64) {
        let waited = since(approval.created_at_ms, now_ms);
        self.memory.outbox.written();
        self.metrics.approval_ended(&self.metrics.tool(&approval.tool), approval.status, waited);
    }

    /// What every end leaves behind, and a span, for a call that never ran anywhere.
    fn ended_unrun(&self, record: &CallRecord, approval: &Approval, failure: Failure) {
        let outcome = self.ended_elsewhere(record, Some(approval), failure);
        let epoch = self.epoch();
        let asked = Asked {
            context: &record.context,
            arguments: record.arguments.as_deref(),
            credentials: &[],
        };
        let tool = epoch.snapshot.tool(&record.tool).map(Arc::as_ref);
        let settings = epoch.snapshot.tracing.as_ref();
        self.memory.tracer.end_unrun(settings, &asked, tool, &outcome);
    }

    /// What every end leaves behind, for a call that ends without having run here. Whoever ran it tells its spans.
    pub(super) fn ended_elsewhere(
        &self,
        record: &CallRecord,
        approval: Option<&Approval>,
        failure: Failure,
    ) -> CallOutcome {
        let epoch = self.epoch();
        let tool = epoch.snapshot.tool(&record.tool);
        let finished_at_ms = record.finished_at_ms.unwrap_or(record.created_at_ms);
        let outcome = CallOutcome {
            id: record.id.clone(),
            tool: record.tool.to_string(),
            reference: tool.map(|tool| reference(tool, None)),
            decision: None,
            approval: approval.cloned().map(Box::new),
            ended: Err(failure),
            attempts: Vec::new(),
            idempotency_key: None,
            trace_id: record.context.trace_id(),
            test: record.context.test,
            created_at_ms: record.created_at_ms,
            started_at_ms: None,
            finished_at_ms,
            duration: since(record.created_at_ms, finished_at_ms),
        };
        self.events.tell_end(&record.organisation, &record.context, &outcome);
        self.metrics.ended(&self.metrics.tool(&record.tool), &outcome.ended);
        let line = LineCaller {
            organisation: &record.organisation,
            key: &record.key,
            region: epoch.snapshot.region.as_deref(),
            owner: epoch.snapshot.owner(&record.tool),
        };
        self.log.call(&CallLine::new(&outcome, &record.context, line));
        outcome
    }
}

/// The time between two times in Unix milliseconds.
pub(super) fn since(then_ms: i64, now_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(now_ms.saturating_sub(then_ms)).unwrap_or(0))
}

/// A waiting call with what changed about it.
fn waiting(record: &CallRecord, change: &Change<'_>) -> CallRecord {
    let text = changed(&record.outcome, Phase::Waiting, change);
    let outcome = text.map_or_else(|| record.outcome.clone(), Bytes::from);
    CallRecord { outcome, ..record.clone() }
}

fn stop(error: StoreError) -> Stop {
    Stop::Error(error.into())
}

/// The person on whose behalf the agent acts: the runtime says who they are.
fn person(approval: &Approval) -> DecidedBy {
    let id = approval.end_user.clone().unwrap_or_else(|| "person".to_owned());
    DecidedBy { id, name: None, verified: false }
}
