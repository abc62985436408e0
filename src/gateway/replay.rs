//! The same call asked for again (contract, section 3): joined while it runs, told again afterwards, and never run twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::gateway::ledger::{Entry, Live, Standing};
use crate::gateway::record::{call_of, repeats_do_no_harm};
use crate::gateway::told::{CallError, Told};
use crate::gateway::{Gateway, Leave, Stop};
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
                Err(other) => match self.join(&other, live, until).await? {
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
            return self.known_before(epoch, entry, record, until).await;
        }
    }

    /// What is kept under the names of a call.
    async fn known(&self, live: &Live) -> Result<Option<CallRecord>, StoreError> {
        let organisation = live.caller.organisation.as_str();
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

    /// A kept call has one of the names.
    async fn known_before(
        self: &Arc<Self>,
        epoch: &Epoch,
        entry: Entry,
        record: CallRecord,
        until: Instant,
    ) -> Result<Found, CallError> {
        let live = entry.live().clone();
        let good = self.good_approval(&record).await?;
        if !is_same(&record, &live) {
            // What was refused or not sent keeps nobody else from the identity.
            if good.is_some() {
                self.memory.store.release(&record.organisation, &record.id).await?;
                return Ok(Found::New(entry));
            }
            return Err(conflict(&live, &record.id));
        }
        let left = until.saturating_duration_since(self.clock.now());
        if !record.phase.is_final() {
            drop(entry);
            let told = self.follow(&live.caller, &record.id, follow_time(&record, left)).await?;
            return Ok(Found::Told(told));
        }
        if let Some(approval) = good {
            drop(entry);
            let leave = Leave { approval, record, is_patient: true };
            return Ok(Found::Told(self.dispatch_and_wait(leave, left).await?));
        }
        if live.call.resend && sent_of(&record) == Some(Sent::Unknown) {
            let tool = epoch.snapshot.tool(&record.tool);
            if !tool.is_some_and(|tool| repeats_do_no_harm(tool)) {
                return Err(CallError::NotIdempotent);
            }
            drop(entry);
            return match self.ledger.enter(&once_more(&record, &live)?) {
                Ok(entry) => Ok(Found::New(entry)),
                Err(other) => {
                    let told = self.join(&other, &live, until).await?;
                    told.map(Found::Told).ok_or(CallError::Unavailable)
                }
            };
        }
        let told =
            Told { phase: record.phase, id: record.id.clone(), body: record.outcome.clone() };
        Ok(Found::Told(self.tell_again(&record.tool, told)))
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
    let call = call_of(record).ok_or(CallError::Unavailable)?;
    let (caller, presence) = (asking.caller.clone(), asking.presence.clone());
    Ok(Arc::new(Live::new(call, caller, record.created_at_ms, presence)))
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
