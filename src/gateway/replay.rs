//! The same call asked for again (contract, section 3): joined while it runs, told again afterwards, and never run twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::gateway::flight::Outliving;
use crate::gateway::ledger::{Entry, Live, Standing};
use crate::gateway::record::{call_of, repeats_do_no_harm};
use crate::gateway::told::{CallError, Told};
use crate::gateway::{Gateway, LONGEST_DEADLINE, Leave, Stop};
use crate::model::approval::Approval;
use crate::model::canonical;
use crate::model::id::CallId;
use crate::model::json_tree::Tree;
use crate::model::outcome::{Phase, Sent};
use crate::model::outcome_text::change::replayed;
use crate::model::outcome_text::{self, OpenCall};
use crate::net::epoch::Epoch;
use crate::policy::identity::Caller;
use crate::store::StoreError;
use crate::store::records::CallRecord;

/// What is known of a call that is asked for.
enum Found {
    /// Nothing that binds it: it runs.
    New(Entry),
    /// It was asked for before.
    Told(Told),
}

impl Gateway {
    /// Tells a call that was asked for before, or runs it.
    pub(super) async fn answer(
        self: &Arc<Self>,
        epoch: &Epoch,
        live: Arc<Live>,
        until: Instant,
    ) -> Result<Told, CallError> {
        loop {
            match self.look_up(epoch, &live, until).await? {
                Found::Told(told) => return Ok(told),
                Found::New(entry) => match self.go(epoch, entry, None).await {
                    Ok(told) | Err(Stop::Told(told)) => return Ok(told),
                    Err(Stop::Error(error)) => return Err(error),
                    // Somebody was quicker: it is known by now.
                    Err(Stop::Again | Stop::Ended(_) | Stop::NotNow(_)) => {}
                },
            }
        }
    }

    async fn look_up(
        self: &Arc<Self>,
        epoch: &Epoch,
        live: &Arc<Live>,
        until: Instant,
    ) -> Result<Found, CallError> {
        loop {
            let entry = match self.ledger.enter(live) {
                Ok(entry) => entry,
                // In a box of its own, as what follows: a new call does not carry it along.
                Err(other) => match Box::pin(self.join(&other, live, until)).await? {
                    Some(told) => return Ok(Found::Told(told)),
                    None => continue,
                },
            };
            let record = match self.known(live).await {
                Ok(record) => record,
                Err(error) => {
                    tracing::warn!(%error, "Whether a call ran before is not known.");
                    live.doubt();
                    None
                }
            };
            let Some(record) = record.filter(|record| record.bound) else {
                return Ok(Found::New(entry));
            };
            let before = self.known_before(epoch, entry, record, until);
            if let Some(found) = Box::pin(before).await? {
                return Ok(found);
            }
        }
    }

    /// What is kept under the names of a call.
    async fn known(&self, live: &Live) -> Result<Option<CallRecord>, StoreError> {
        let organisation = &*live.caller.organisation;
        let id = live.call.is_named.then_some(&live.call.id);
        if id.is_none() && live.identity.is_none() {
            return Ok(None);
        }
        let recorder = &self.memory.recorder;
        if let Some(record) = recorder.find(organisation, id, live.identity.as_ref()) {
            return Ok(Some(record));
        }
        let store = &self.memory.store;
        if !store.may_know(organisation, id, live.identity.as_ref()) {
            return Ok(None);
        }
        if let Some(id) = id
            && let Some(record) = store.call(organisation, id).await?
            && record.bound
        {
            return Ok(Some(record));
        }
        match &live.identity {
            Some(identity) => store.call_by_identity(organisation, identity).await,
            None => Ok(None),
        }
    }

    /// An open call has one of the names: its outcome where it is the same call, an error where it is another one, and
    /// nothing where it bound nothing.
    async fn join(
        self: &Arc<Self>,
        other: &Arc<Live>,
        live: &Live,
        until: Instant,
    ) -> Result<Option<Told>, CallError> {
        let left = || until.saturating_duration_since(self.clock.now());
        let arguments = |live: &Live| live.call.arguments.text().clone();
        let is_same = other.call.tool == live.call.tool
            && canonical::same(&arguments(other), &arguments(live))
            && may_see(&live.caller, &other.call.tool, other.call.context.agent_id.as_deref());
        let standing = if is_same {
            other.over(left()).await
        } else {
            // It may yet be refused, and then binds nothing.
            other.past_checks(left()).await
        };
        match standing {
            Standing::Left | Standing::Ended { bound: false, .. } => Ok(None),
            _ if !is_same => Err(conflict(live, &other.call.id)),
            Standing::Ended { told, bound: true } => {
                Ok(Some(self.tell_again(&live.call.tool, told)))
            }
            Standing::Checked | Standing::Runs(_) => {
                Ok(Some(self.running(other).unwrap_or_else(|| {
                    let body = Bytes::from(checked_text(other, self.clock.unix_ms()));
                    Told { phase: Phase::Running, id: other.call.id.clone(), body }
                })))
            }
        }
    }

    /// A kept call has one of the names. `None`: it changed meanwhile, and is looked up anew.
    async fn known_before(
        self: &Arc<Self>,
        epoch: &Epoch,
        entry: Entry,
        record: CallRecord,
        until: Instant,
    ) -> Result<Option<Found>, CallError> {
        let live = entry.live().clone();
        let is_same = is_same(&record, &live);
        let good = self.good_approval(&record).await?;
        let is_unsent = record.phase.is_final() && sent_of(&record) == Some(Sent::NotSent);
        if is_unsent && (good.is_none() || !is_same) {
            // What was refused or not sent keeps nobody from the identity, but for the yes on which it may run yet.
            self.memory.store.release(&record.organisation, &record.id).await?;
            return Ok(Some(Found::New(entry)));
        }
        if !is_same {
            return Err(conflict(&live, &record.id));
        }
        let left = until.saturating_duration_since(self.clock.now());
        if !record.phase.is_final() {
            drop(entry);
            let told = self.follow(&live.caller, &record.id, follow_time(&record, left)).await?;
            return Ok(Some(Found::Told(told)));
        }
        if let Some(approval) = good {
            drop(entry);
            let leave = Leave { approval, record, is_patient: true };
            return Ok(Some(Found::Told(self.dispatch_and_wait(leave, left).await?)));
        }
        if live.call.resend && sent_of(&record) == Some(Sent::Unknown) {
            let tool = epoch.snapshot.tool(&record.tool);
            if !tool.is_some_and(|tool| repeats_do_no_harm(tool)) {
                return Err(CallError::NotIdempotent);
            }
            return self.send_again(entry, &record, until).await;
        }
        let told =
            Told { phase: record.phase, id: record.id.clone(), body: record.outcome.clone() };
        Ok(Some(Found::Told(self.tell_again(&record.tool, told))))
    }

    /// The call of a record takes the place of the one that asks to send it once more.
    async fn send_again(
        self: &Arc<Self>,
        entry: Entry,
        record: &CallRecord,
        until: Instant,
    ) -> Result<Option<Found>, CallError> {
        let live = entry.live().clone();
        if live.runs_as.get().is_none() {
            // Only this request sets it.
            let _ = live.runs_as.set(once_more(record, &live)?);
        }
        let Some(again) = live.runs_as.get() else { return Err(CallError::Unavailable) };
        drop(entry);
        match self.ledger.enter(again) {
            Ok(entry) => {
                // Between the two places another request may have sent it.
                let now = self.known(again).await?;
                let is_unknown = now.is_some_and(|now| sent_of(&now) == Some(Sent::Unknown));
                Ok(is_unknown.then_some(Found::New(entry)))
            }
            Err(other) => Ok(self.join(&other, &live, until).await?.map(Found::Told)),
        }
    }

    /// The runtime's patience is over: tells its call as running once it runs, or its end where that comes first.
    pub(super) async fn tell_running(
        &self,
        live: &Arc<Live>,
        mut outliving: Outliving<Result<Told, CallError>>,
    ) -> Result<Told, CallError> {
        loop {
            let current = live.runs_as.get().unwrap_or(live);
            tokio::select! {
                biased;
                told = &mut outliving => return told,
                _ = current.past_checks(LONGEST_DEADLINE) => {}
            }
            if let Some(told) = self.running(current) {
                outliving.go_on();
                return Ok(told);
            }
            let is_replaced = live.runs_as.get().is_some_and(|again| !Arc::ptr_eq(again, current));
            if !is_replaced {
                // It was asked for before, or ends its own waiting now.
                return outliving.await;
            }
        }
    }

    /// The approval on which a call that sent nothing may run yet.
    async fn good_approval(&self, record: &CallRecord) -> Result<Option<Approval>, StoreError> {
        if !record.phase.is_final() || sent_of(record) != Some(Sent::NotSent) {
            return Ok(None);
        }
        let store = &self.memory.store;
        let approvals = store.approvals_of(&record.organisation, &record.id).await?;
        let now_ms = self.clock.unix_ms();
        Ok(approvals.into_iter().next_back().filter(|approval| approval.is_good(now_ms)))
    }

    fn tell_again(&self, tool: &str, told: Told) -> Told {
        self.metrics.replayed(&self.metrics.tool(tool));
        Told { body: replayed(&told.body).into(), ..told }
    }
}

/// The call of a record, to be sent once more: the same key, the same body.
fn once_more(record: &CallRecord, asking: &Live) -> Result<Arc<Live>, CallError> {
    // Where the arguments are not kept, those that were given again have their digest.
    let arguments = record.arguments.as_ref().unwrap_or(asking.call.arguments.text()).clone();
    let kept = CallRecord { arguments: Some(arguments), ..record.clone() };
    let mut call = call_of(&kept).ok_or(CallError::Unavailable)?;
    call.credentials.clone_from(&asking.call.credentials);
    call.stands_in(asking.call.context.trace);
    let (caller, presence) = (asking.caller.clone(), asking.presence.clone());
    let mut live = Live::new(call, caller, record.created_at_ms, presence);
    live.alias.clone_from(&record.alias);
    live.is_repeat = true;
    Ok(Arc::new(live))
}

/// A call that is still being checked, for whoever waits no longer.
fn checked_text(live: &Live, now_ms: i64) -> Vec<u8> {
    outcome_text::write_open(&OpenCall {
        phase: Phase::Running,
        id: live.call.id.as_str(),
        tool: &live.call.tool,
        reference: None,
        decision: None,
        approval: None,
        model_text: None,
        idempotency_key: None,
        trace_id: live.call.context.trace_id(),
        created_at_ms: live.created_at_ms,
        started_at_ms: None,
        now_ms,
    })
}

/// Whether a caller may know of a call of this tool and agent.
pub(super) fn may_see(caller: &Caller, tool: &str, agent: Option<&str>) -> bool {
    caller.may_call(tool) && agent.is_none_or(|agent| caller.speaks_for(agent))
}

fn is_same(record: &CallRecord, live: &Live) -> bool {
    let text = live.call.arguments.text();
    let same_arguments = match (&record.arguments, &record.arguments_digest) {
        (Some(kept), _) => canonical::same(kept, text),
        (None, Some(digest)) => **digest == *canonical::digest(text),
        (None, None) => false,
    };
    *record.tool == *live.call.tool
        && same_arguments
        && may_see(&live.caller, &record.tool, record.context.agent_id.as_deref())
}

/// What may have happened at the tool, of a call that has no result.
fn sent_of(record: &CallRecord) -> Option<Sent> {
    let tree = Tree::read(std::str::from_utf8(&record.outcome).ok()?)?;
    let outcome = tree.get("error")?.get("outcome")?.as_text()?;
    [Sent::NotSent, Sent::Answered, Sent::Unknown].into_iter().find(|one| one.as_str() == outcome)
}

/// Contract: a call that waits for a person is answered at once.
fn follow_time(record: &CallRecord, left: Duration) -> Duration {
    if record.phase == Phase::Waiting { Duration::ZERO } else { left }
}

fn conflict(live: &Live, other: &CallId) -> CallError {
    let context = &live.call.context;
    CallError::Conflict(match (&context.run_id, &context.step) {
        (Some(run), Some(step)) if live.call.id != *other => format!(
            "Step {} of {} already ran another call; give each call of a step its own call_index.",
            step.as_str(),
            run.as_str()
        ),
        _ => format!(
            "{} already ran another call; give each call its own call_id.",
            live.call.id.as_str()
        ),
    })
}

#[cfg(test)]
mod tests;
